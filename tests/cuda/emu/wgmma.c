/* SPDX-License-Identifier: Apache-2.0
 *
 * Hopper's products of a warpgroup. Each warp reads its 16 rows of a and all of b when the first of
 * its threads has waited for the product.
 */
#include "kernels/kernels.h"
#include "tests/cuda/emu/hopper.h"

enum { THREADS = 1024, UNDER_WAY = 32, MOST_N = 192, ARRAYS = 4 };

struct product {
    uint64_t number; /* from 1 on; 0: none */
    struct lf_emu_wg_form form;
    uint32_t reg[32][4]; /* a, where it is in registers */
    bool done;
    float dot[16][MOST_N];
};

/* An array of sums that products under way make. */
struct sums {
    float *d; /* NULL: none */
    int n;
    float sum[MOST_N / 2];
    uint64_t last; /* product */
};

struct thread {
    struct sums sums[ARRAYS];
    uint8_t makes[UNDER_WAY]; /* the array of product i, at i % UNDER_WAY */
    bool fenced;
    uint64_t asked, done;      /* products */
    uint64_t groups;           /* committed */
    uint64_t group[UNDER_WAY]; /* of product i, at i % UNDER_WAY */
    uint64_t open;             /* the first product that no commit has closed */
};

static struct product product[THREADS / 32][UNDER_WAY];
static struct thread thread[THREADS];
static bool used = true; /* by this block or the one before; as if one had been before the first */

static unsigned self(void)
{
    return lf_emu.thread.x +
           lf_emu.block_dim.x * (lf_emu.thread.y + lf_emu.block_dim.y * lf_emu.thread.z);
}

void lf_emu_wgmma_start(void)
{
    if (!used)
        return;
    used = false;
    for (int w = 0; w < THREADS / 32; w++)
        for (int i = 0; i < UNDER_WAY; i++)
            product[w][i].number = 0;
    for (int i = 0; i < THREADS; i++) {
        for (int k = 0; k < ARRAYS; k++)
            thread[i].sums[k].d = NULL;
        thread[i].fenced = false;
        thread[i].asked = thread[i].done = thread[i].groups = 0;
        thread[i].open = 1;
    }
}

void lf_emu_wgmma_end(unsigned threads)
{
    for (unsigned i = 0; used && i < threads; i++)
        if (thread[i].done != thread[i].asked)
            lf_emu_fail("products of a warpgroup that nobody waited for");
}

void lf_wgmma_fence(void)
{
    lf_emu_all_others();
    used = true;
    thread[self()].fenced = true;
}

static bool same(const struct lf_emu_wg_form *x, const struct lf_emu_wg_form *y)
{
    return x->a == y->a && x->b == y->b && x->a_reg == y->a_reg && x->add == y->add &&
           x->a_lanes == y->a_lanes && x->b_lanes == y->b_lanes && x->type == y->type &&
           x->n == y->n;
}

/* The warp's note of a product: written by its first lane, the same for the others and the other
 * warps. */
static struct product *note(unsigned warp, uint64_t number, const struct lf_emu_wg_form *form)
{
    struct product *mine = &product[warp][number % UNDER_WAY];
    if (mine->number == number && !same(&mine->form, form))
        lf_emu_fail("lanes that give a product of a warpgroup different operands");
    if (mine->number != number) {
        mine->number = number;
        mine->form = *form;
        mine->done = false;
    }
    for (unsigned w = warp / 4 * 4; w < warp / 4 * 4 + 4; w++) {
        const struct product *other = &product[w][number % UNDER_WAY];
        if (other->number == number && !same(&other->form, form))
            lf_emu_fail("warps that give a product of a warpgroup different operands");
    }
    return mine;
}

/* The place of the sums d: that of products under way, else a free one, whose array has no value
 * from now on. */
static int place_of(struct thread *t, float *d, int n)
{
    int at = -1;
    for (int k = 0; k < ARRAYS; k++) {
        if (t->sums[k].d == d)
            return k;
        if (!t->sums[k].d)
            at = k;
    }
    if (at < 0)
        lf_emu_fail("more arrays of sums under way than the emulator keeps");
    struct sums *s = &t->sums[at];
    memcpy(s->sum, d, (size_t)n / 2 * sizeof *d);
    memset(d, 0xff, (size_t)n / 2 * sizeof *d);
    s->d = d;
    s->n = n;
    return at;
}

void lf_emu_wgmma(float *d, const uint32_t *a, const struct lf_emu_wg_form *form)
{
    struct thread *t = &thread[self()];
    if (!t->fenced)
        lf_emu_fail("a product of a warpgroup without a fence before it");
    if (t->asked - t->done == UNDER_WAY)
        lf_emu_fail("more products under way than the emulator keeps");
    const uint64_t number = ++t->asked;
    const int at = place_of(t, d, form->n);
    struct product *p = note(self() / 32, number, form);
    if (a)
        memcpy(p->reg[lf_emu.lane], a, sizeof p->reg[0]);
    t->makes[number % UNDER_WAY] = (uint8_t)at;
    t->sums[at].last = number;
}

void lf_wgmma_commit(void)
{
    struct thread *t = &thread[self()];
    for (; t->open <= t->asked; t->open++)
        t->group[t->open % UNDER_WAY] = t->groups;
    t->groups++;
}

/* An operand: 16 values of each of its lanes. */
struct values {
    float v[16][MOST_N];
};

/* Lanes [lane, lane + lanes) of an operand, a multiple of 8, by the fields of its descriptor. The
 * swizzle leaves 16 bytes together: 8 values. */
static void operand(uint64_t desc, unsigned lane, unsigned lanes, bool by_lanes, int type,
                    struct values *out)
{
    const uint32_t start = (uint32_t)(desc & 0x3fff) << 4,
                   lead = (uint32_t)(desc >> 16 & 0x3fff) << 4,
                   stride = (uint32_t)(desc >> 32 & 0x3fff) << 4;
    if (desc >> 62 != 1 || (desc >> 49 & 7))
        lf_emu_fail("a descriptor of another layout than the 128-byte swizzle");
    if (start >> 7 & 7) /* which the base offset would have to say */
        lf_emu_fail("a descriptor whose pattern does not start at a multiple of 1024 bytes");
    for (unsigned part = 0; part < lanes * 2; part++) {
        const unsigned k = by_lanes ? part % 16 : part % 2 * 8,
                       l = by_lanes ? part / 16 * 8 : part / 2, all = lane + l;
        uint16_t h[8];
        uint32_t at = by_lanes
                          ? start + all % 64 * 2 + all / 64 * lead + k % 8 * 128 + k / 8 * stride
                          : start + all % 8 * 128 + all / 8 * stride + k * 2;
        at ^= (at >> 7 & 7) << 4;
        memcpy(h, lf_emu_smem_at(at, sizeof h), sizeof h);
        for (unsigned e = 0; e < 8; e++)
            out->v[by_lanes ? k : k + e][by_lanes ? l + e : l] =
                type == LF_BF16 ? lf_bf16_f(h[e]) : lf_f16_f(h[e]);
    }
}

/* A warp's 16 rows of a. In registers: rows g and g + 8, k 2 q, 2 q + 1 and 8 more. */
static void rows_of(const struct product *p, unsigned warp, struct values *a)
{
    const struct lf_emu_wg_form *f = &p->form;
    if (!f->a_reg)
        operand(f->a, warp % 4 * 16, 16, f->a_lanes, f->type, a);
    for (unsigned l = 0; l < 32 && f->a_reg; l++)
        for (unsigned e = 0; e < 8; e++) {
            const uint16_t h = (uint16_t)(p->reg[l][e / 2] >> 16 * (e % 2));
            a->v[2 * (l % 4) + e % 2 + e / 4 * 8][l / 4 + e / 2 % 2 * 8] =
                f->type == LF_BF16 ? lf_bf16_f(h) : lf_f16_f(h);
        }
}

/* Each sum begins with 0 and takes its 16 products in their order. */
static void multiply(struct product *p, unsigned warp)
{
    static struct values a, b;
    const unsigned n = (unsigned)p->form.n;
    rows_of(p, warp, &a);
    operand(p->form.b, 0, n, p->form.b_lanes, p->form.type, &b);
    for (unsigned i = 0; i < 16; i++) {
        float *dot = p->dot[i];
        memset(dot, 0, n * sizeof *dot);
        for (unsigned k = 0; k < 16; k++)
            for (unsigned j = 0; j < n; j++)
                dot[j] += a.v[k][i] * b.v[k][j];
    }
    p->done = true;
}

static void finish(struct sums *s, struct product *p, unsigned warp)
{
    const unsigned g = lf_emu.lane / 4, q = lf_emu.lane % 4;
    if (!p->done)
        multiply(p, warp);
    for (unsigned i = 0; i < (unsigned)p->form.n / 2; i += 4) {
        const float *up = &p->dot[g][i * 2 + 2 * q], *down = &p->dot[g + 8][i * 2 + 2 * q];
        const float v[4] = {up[0], up[1], down[0], down[1]};
        for (unsigned e = 0; e < 4; e++)
            s->sum[i + e] = p->form.add ? s->sum[i + e] + v[e] : v[e];
    }
}

void lf_wgmma_wait(int n)
{
    const unsigned me = self();
    struct thread *t = &thread[me];
    lf_emu_all_others(); /* whoever can break something runs first */
    lf_emu_all_others();
    while (t->done + 1 < t->open && t->group[(t->done + 1) % UNDER_WAY] + (uint64_t)n < t->groups) {
        const uint64_t i = ++t->done % UNDER_WAY;
        finish(&t->sums[t->makes[i]], &product[me / 32][i], me / 32);
    }
    for (int k = 0; k < ARRAYS; k++) {
        struct sums *s = &t->sums[k];
        if (!s->d || s->last > t->done)
            continue;
        memcpy(s->d, s->sum, (size_t)s->n / 2 * sizeof *s->d);
        s->d = NULL;
        t->fenced = false;
    }
}
