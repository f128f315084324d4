/* SPDX-License-Identifier: Apache-2.0
 *
 * Hopper's products of a warpgroup. Each warp reads its 16 rows of a and all of b when the first of
 * its threads has waited for the product.
 */
#include "kernels/kernels.h"
#include "tests/cuda/emu/hopper.h"

enum { THREADS = 1024, UNDER_WAY = 16, MOST_N = 192 };

struct product {
    uint64_t number, a, b; /* number from 1 on; 0: none */
    bool add, a_lanes, b_lanes, done;
    int type, n;
    float dot[16][MOST_N];
};

struct thread {
    float *d; /* NULL: no sums are under way */
    int n;
    float sum[MOST_N / 2];
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
        thread[i].d = NULL;
        thread[i].fenced = false;
        thread[i].asked = thread[i].done = thread[i].groups = 0;
        thread[i].open = 1;
    }
}

void lf_emu_wgmma_end(unsigned threads)
{
    for (unsigned i = 0; used && i < threads; i++)
        if (thread[i].d)
            lf_emu_fail("products of a warpgroup that nobody waited for");
}

void lf_wgmma_fence(void)
{
    lf_emu_warp_barrier();
    used = true;
    thread[self()].fenced = true;
}

static bool same(const struct product *x, const struct product *y)
{
    return x->a == y->a && x->b == y->b && x->add == y->add && x->a_lanes == y->a_lanes &&
           x->b_lanes == y->b_lanes && x->type == y->type && x->n == y->n;
}

/* The warp's note of product p->number: written by its first lane, the same for the others and the
 * other warps. */
static void note(unsigned warp, const struct product *p)
{
    struct product *mine = &product[warp][p->number % UNDER_WAY];
    if (mine->number == p->number && !same(mine, p))
        lf_emu_fail("lanes that give a product of a warpgroup different operands");
    if (mine->number != p->number) {
        mine->number = p->number;
        mine->a = p->a;
        mine->b = p->b;
        mine->add = p->add;
        mine->a_lanes = p->a_lanes;
        mine->b_lanes = p->b_lanes;
        mine->type = p->type;
        mine->n = p->n;
        mine->done = false;
    }
    for (unsigned w = warp / 4 * 4; w < warp / 4 * 4 + 4; w++) {
        const struct product *other = &product[w][p->number % UNDER_WAY];
        if (other->number == p->number && !same(other, p))
            lf_emu_fail("warps that give a product of a warpgroup different operands");
    }
}

void lf_emu_wgmma(float *d, uint64_t a, uint64_t b, bool add, bool a_lanes, bool b_lanes, int type,
                  int n)
{
    struct thread *t = &thread[self()];
    struct product p;
    if (!t->fenced)
        lf_emu_fail("a product of a warpgroup without a fence before it");
    if (t->d && t->d != d)
        lf_emu_fail("more than one array of sums under way, which the emulator does not know");
    if (t->asked - t->done == UNDER_WAY)
        lf_emu_fail("more products under way than the emulator keeps");
    p.number = ++t->asked;
    p.a = a;
    p.b = b;
    p.add = add;
    p.a_lanes = a_lanes;
    p.b_lanes = b_lanes;
    p.type = type;
    p.n = n;
    note(self() / 32, &p);
    if (!t->d) {
        memcpy(t->sum, d, (size_t)n / 2 * sizeof *d);
        t->d = d;
        t->n = n;
        memset(d, 0xff, (size_t)n / 2 * sizeof *d);
    }
}

void lf_wgmma_commit(void)
{
    struct thread *t = &thread[self()];
    for (; t->open <= t->asked; t->open++)
        t->group[t->open % UNDER_WAY] = t->groups;
    t->groups++;
}

/* Element (lane, k) of an operand, by the fields of its descriptor. */
static float element(uint64_t desc, unsigned lane, unsigned k, bool by_lanes, int type)
{
    const uint32_t start = (uint32_t)(desc & 0x3fff) << 4,
                   lead = (uint32_t)(desc >> 16 & 0x3fff) << 4,
                   stride = (uint32_t)(desc >> 32 & 0x3fff) << 4;
    uint32_t at;
    uint16_t h;
    if (desc >> 62 != 1 || (desc >> 49 & 7))
        lf_emu_fail("a descriptor of another layout than the 128-byte swizzle");
    if (start >> 7 & 7) /* which the base offset would have to say */
        lf_emu_fail("a descriptor whose pattern does not start at a multiple of 1024 bytes");
    if (by_lanes)
        at = start + lane % 64 * 2 + lane / 64 * lead + k % 8 * 128 + k / 8 * stride;
    else
        at = start + lane % 8 * 128 + lane / 8 * stride + k * 2;
    at ^= (at >> 7 & 7) << 4;
    memcpy(&h, lf_emu_smem_at(at, sizeof h), sizeof h);
    return type == LF_BF16 ? lf_bf16_f(h) : lf_f16_f(h);
}

static void multiply(struct product *p, unsigned warp)
{
    static float a[16][16], b[MOST_N][16];
    for (unsigned i = 0; i < 16; i++)
        for (unsigned k = 0; k < 16; k++)
            a[i][k] = element(p->a, warp % 4 * 16 + i, k, p->a_lanes, p->type);
    for (unsigned j = 0; j < (unsigned)p->n; j++)
        for (unsigned k = 0; k < 16; k++)
            b[j][k] = element(p->b, j, k, p->b_lanes, p->type);
    for (unsigned i = 0; i < 16; i++)
        for (unsigned j = 0; j < (unsigned)p->n; j++) {
            float sum = 0;
            for (unsigned k = 0; k < 16; k++)
                sum += a[i][k] * b[j][k];
            p->dot[i][j] = sum;
        }
    p->done = true;
}

static void finish(struct thread *t, struct product *p, unsigned warp)
{
    const unsigned g = lf_emu.lane / 4, q = lf_emu.lane % 4;
    if (!p->done)
        multiply(p, warp);
    for (unsigned i = 0; i < (unsigned)p->n / 2; i++) {
        const float v = p->dot[g + i / 2 % 2 * 8][i / 4 * 8 + 2 * q + i % 2];
        t->sum[i] = p->add ? t->sum[i] + v : v;
    }
}

void lf_wgmma_wait(int n)
{
    const unsigned me = self();
    struct thread *t = &thread[me];
    lf_emu_warp_barrier(); /* whoever can break something runs first */
    lf_emu_warp_barrier();
    while (t->done + 1 < t->open && t->group[(t->done + 1) % UNDER_WAY] + (uint64_t)n < t->groups) {
        t->done++;
        finish(t, &product[me / 32][t->done % UNDER_WAY], me / 32);
    }
    if (t->d && t->done == t->asked) {
        memcpy(t->d, t->sum, (size_t)t->n / 2 * sizeof *t->d);
        t->d = NULL;
        t->fenced = false;
    }
}
