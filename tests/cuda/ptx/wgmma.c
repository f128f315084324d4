/* SPDX-License-Identifier: Apache-2.0
 *
 * wgmma.mma_async.m64nNk16 (f16, bf16) and k32 (e4m3, e5m2), f32 sums (PTX ISA 9.7.15). Each of a
 * warpgroup's four warps makes its 16 rows. A product happens when its group is waited for, after
 * every other warp had its turn: shared memory is read as late as it may be, and the sums have no
 * value until then. Sums are made as in matrix.c, rounded once per instruction.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/cuda/ptx/ins.h"

enum { MOST = 32, LOG = 64 };

struct product {
    const struct ptx_ins *i;
    uint64_t a, b; /* descriptors */
    bool add;
    uint32_t reg[4][PTX_LANES]; /* A, where it is in registers */
    int group;                  /* -1: open */
};
struct ptx_products {
    struct product all[MOST];
    int n, groups;
    unsigned started; /* since the block began, to compare warps */
    bool fenced, turn;
};
struct ptx_group_log {
    struct {
        uint64_t a, b;
        const struct ptx_ins *i;
        unsigned number;
    } of[LOG];
};

/* What an instruction's `space` ... hold. */
#define N_OF(i)     ((unsigned)(i)->nd * 2)
#define TYPE_OF(i)  ((i)->space) /* of lf_ptx_widen */
#define TRANS_A(i)  ((i)->imm & 1)
#define TRANS_B(i)  ((i)->imm & 2)
#define FROM_REG(i) ((i)->imm & 4)

static void fence(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    (void)i;
    (void)m;
    if (!w->products && !(w->products = calloc(1, sizeof *w->products)))
        abort();
    w->products->fenced = true;
}

/* 9.7.15.5.1.2.2 "Matrix descriptor format": start, leading and stride byte offsets / 16 in bits 0,
 * 16, 32; base offset in 49; swizzle in 62: 1 is 128 bytes. */
static void check_descriptor(const struct ptx_warp *w, const struct ptx_ins *i, uint64_t d,
                             const char *which)
{
    if (d >> 62 != 1 || (d >> 49 & 7))
        lf_ptx_fail(w, i, -1,
                    "descriptor 0x%llx of %s: the interpreter knows the 128-byte swizzle with base "
                    "offset 0 alone",
                    (unsigned long long)d, which);
}

/* Byte of 16-bit (or 8-bit) element (lane of M or N, k). 9.7.15.5.1.2.1 "Strides", in units of 16
 * bytes: K-major: 8 lanes of 128 bytes each, the next 8 at the stride offset, the leading one not
 * used. MN-major: 64 lanes beside each other, the next 64 at the leading offset; 8 k of 128 bytes
 * each, the next 8 at the stride offset. */
static uint32_t element(const struct ptx_warp *w, const struct ptx_ins *i, uint64_t d, bool trans,
                        unsigned lane, unsigned k)
{
    const unsigned size = TYPE_OF(i) < 2 ? 2 : 1;
    const uint32_t start = (d & 0x3fff) << 4, leading = (d >> 16 & 0x3fff) << 4,
                   stride = (d >> 32 & 0x3fff) << 4;
    uint32_t at = start;
    if (trans)
        at += lane / 64 * leading + k / 8 * stride + k % 8 * 128 + lane % 64 * size;
    else
        at += lane / 8 * stride + lane % 8 * 128 + k * size;
    at ^= (at >> 7 & 7) << 4;
    if (at < PTX_BASE || at + size > PTX_BASE + w->b->smem_bytes)
        lf_ptx_fail(w, i, -1, "a descriptor that leaves shared memory: 0x%llx",
                    (unsigned long long)d);
    uint32_t v = 0;
    memcpy(&v, w->b->smem + (at - PTX_BASE), size);
    return v;
}

static void read_a(const struct ptx_warp *w, const struct product *x, unsigned depth,
                   double a[16][32])
{
    const unsigned warp = w->index % 4;
    if (!FROM_REG(x->i)) {
        for (unsigned r = 0; r < 16; r++)
            for (unsigned k = 0; k < depth; k++)
                a[r][k] = lf_ptx_widen(element(w, x->i, x->a, TRANS_A(x->i), 16 * warp + r, k),
                                       TYPE_OF(x->i));
        return;
    }
    /* Figure "WGMMA .m64nNk16 register fragment layout for matrix A": as of mma.m16n8k16. */
    for (unsigned l = 0; l < PTX_LANES; l++)
        for (unsigned e = 0; e < 8; e++)
            a[l / 4 + (e / 2 % 2 ? 8 : 0)][2 * (l % 4) + e % 2 + (e >= 4 ? 8 : 0)] =
                lf_ptx_widen(x->reg[e / 2][l] >> 16 * (e % 2) & 0xffff, TYPE_OF(x->i));
}

/* D, element e of a lane: row 16 warp + lane / 4, 8 more where e / 2 is odd; column 8 (e / 4) + 2
 * (lane % 4) + e % 2 (Figure "... for accumulator matrix D"). */
static void multiply(struct ptx_warp *w, const struct product *x)
{
    const unsigned n = N_OF(x->i), depth = TYPE_OF(x->i) < 2 ? 16 : 32;
    static double a[16][32], b[32][256], d[16][256];
    read_a(w, x, depth, a);
    for (unsigned k = 0; k < depth; k++)
        for (unsigned c = 0; c < n; c++)
            b[k][c] = lf_ptx_widen(element(w, x->i, x->b, TRANS_B(x->i), c, k), TYPE_OF(x->i));
    for (unsigned l = 0; l < PTX_LANES; l++)
        for (unsigned e = 0; e < n / 2; e++)
            d[l / 4 + (e / 2 % 2 ? 8 : 0)][8 * (e / 4) + 2 * (l % 4) + e % 2] =
                x->add ? (double)((ptx_f *)PTX_O(w, x->i, e))[l] : 0;
    for (unsigned r = 0; r < 16; r++)
        for (unsigned k = 0; k < depth; k++)
            for (unsigned c = 0; c < n; c++)
                d[r][c] += a[r][k] * b[k][c];
    for (unsigned l = 0; l < PTX_LANES; l++)
        for (unsigned e = 0; e < n / 2; e++) {
            const float f =
                (float)d[l / 4 + (e / 2 % 2 ? 8 : 0)][8 * (e / 4) + 2 * (l % 4) + e % 2];
            ((ptx_w *)PTX_O(w, x->i, e))[l] = 0x7fffffffu;
            if (f == f)
                ((ptx_f *)PTX_O(w, x->i, e))[l] = f;
        }
}

static bool writes(const struct product *x, uint32_t reg)
{
    for (unsigned e = 0; e < x->i->nd; e++)
        if (x->i->o[e] == reg)
            return true;
    return false;
}

/* The sums are known, or an earlier product that is under way, of the same shape, makes them. */
static void check_sums(const struct ptx_warp *w, const struct ptx_ins *i)
{
    const struct ptx_products *all = w->products;
    for (unsigned e = 0; e < i->nd; e++) {
        bool known = w->defined[i->o[e] / 64] == ~0u;
        for (int k = 0; k < all->n && !known; k++)
            known = all->all[k].i->nd == i->nd && writes(&all->all[k], i->o[e]);
        if (!known)
            lf_ptx_fail(w, i, -1, "a sum that was never written");
    }
}

/* All warps of the warpgroup start the same products (.aligned). */
static void compare(struct ptx_warp *w, const struct product *x)
{
    struct ptx_block *b = w->b;
    if (!b->log && !(b->log = calloc(PTX_MAX_WARPS / 4, sizeof *b->log)))
        abort();
    struct ptx_group_log *log = &b->log[w->index / 4];
    const unsigned number = ++w->products->started;
    if (log->of[number % LOG].number != number) {
        log->of[number % LOG].number = number;
        log->of[number % LOG].a = x->a;
        log->of[number % LOG].b = x->b;
        log->of[number % LOG].i = x->i;
    } else if (log->of[number % LOG].a != x->a || log->of[number % LOG].b != x->b ||
               log->of[number % LOG].i != x->i)
        lf_ptx_fail(w, x->i, -1, "another product than the warpgroup's other warps");
}

static uint64_t uniform(const struct ptx_warp *w, const struct ptx_ins *i, unsigned operand)
{
    const ptx_d *d = PTX_O(w, i, operand);
    if (w->defined[i->o[operand] / 64] != ~0u)
        lf_ptx_fail(w, i, -1, "a descriptor that was never written");
    for (int l = 1; l < PTX_LANES; l++)
        if (d[l] != d[0])
            lf_ptx_fail(w, i, l, "another descriptor than other lanes");
    return d[0];
}

static void start(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    struct ptx_products *all = w->products;
    if (m != ~0u)
        lf_ptx_fail(w, i, -1, "a product of a part of a warp");
    if (!all || !all->fenced)
        lf_ptx_fail(w, i, -1, "a product before any wgmma.fence");
    if (all->n == MOST)
        lf_ptx_fail(w, i, -1, "more products under way than are kept");
    struct product *x = &all->all[all->n];
    const unsigned at = i->nd + (FROM_REG(i) ? 4 : 1);
    const uint32_t add = ptx_pred(w, i->o[at + 1]);
    *x = (struct product){.i = i, .b = uniform(w, i, at), .add = add != 0, .group = -1};
    if (add && add != ~0u)
        lf_ptx_fail(w, i, -1, "lanes that do not agree on scale-d");
    if (FROM_REG(i))
        for (unsigned k = 0; k < 4; k++)
            memcpy(x->reg[k], PTX_O(w, i, i->nd + k), sizeof x->reg[k]);
    else
        check_descriptor(w, i, x->a = uniform(w, i, i->nd), "A");
    check_descriptor(w, i, x->b, "B");
    if (x->add)
        check_sums(w, i);
    for (unsigned e = 0; e < i->nd; e++)
        w->defined[i->o[e] / 64] = 0;
    compare(w, x);
    all->n++;
}

static void commit(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    struct ptx_products *all = w->products;
    (void)m;
    if (!all)
        lf_ptx_fail(w, i, -1, "a group before any wgmma.fence");
    for (int k = 0; k < all->n; k++)
        if (all->all[k].group < 0)
            all->all[k].group = all->groups;
    all->groups++;
}

/* Whether no product that is left makes this register. */
static bool last(const struct ptx_products *all, int from, uint32_t reg)
{
    for (int k = from; k < all->n; k++)
        if (writes(&all->all[k], reg))
            return false;
    return true;
}

static void wait_group(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    struct ptx_products *all = w->products;
    int done = 0;
    (void)m;
    if (!all)
        return;
    while (done < all->n && all->all[done].group >= 0 &&
           all->all[done].group < all->groups - i->imm)
        done++;
    if (done && !all->turn) { /* everybody else first */
        all->turn = true;
        w->again = true;
        return;
    }
    all->turn = false;
    for (int k = 0; k < done; k++)
        multiply(w, &all->all[k]);
    for (int k = 0; k < done; k++)
        for (unsigned e = 0; e < all->all[k].i->nd; e++)
            if (last(all, done, all->all[k].i->o[e]))
                w->defined[all->all[k].i->o[e] / 64] = ~0u;
    memmove(all->all, all->all + done, (size_t)(all->n - done) * sizeof *all->all);
    all->n -= done;
}

void lf_ptx_products_check(struct ptx_block *b)
{
    for (unsigned x = 0; x < b->warps; x++) {
        struct ptx_products *all = b->warp[x].products;
        const struct ptx_products *first = b->warp[x / 4 * 4].products;
        if (all && all->n)
            lf_ptx_fail(&b->warp[x], all->all[0].i, -1, "a product that nobody waited for");
        if ((all ? all->started : 0) != (first ? first->started : 0))
            lf_ptx_fail(&b->warp[x], &b->k->code[b->k->n - 1], -1,
                        "fewer products than the warpgroup's other warps");
    }
    for (unsigned x = 0; x < b->warps; x++)
        if (b->warp[x].products)
            memset(b->warp[x].products, 0, sizeof *b->warp[x].products);
    if (b->log)
        memset(b->log, 0, PTX_MAX_WARPS / 4 * sizeof *b->log);
}
void lf_ptx_products_free(struct ptx_block *b)
{
    for (unsigned x = 0; x < b->warps; x++)
        free(b->warp[x].products);
    free(b->log);
}

/* ---- decoding ---- */

static void nothing(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    (void)w;
    (void)i;
    (void)m;
}

static bool product(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    static const char *const types[] = {"f16.f16", "bf16.bf16", "e4m3.e4m3", "e5m2.e5m2"};
    unsigned n, depth;
    int end = 0;
    if (sscanf(op, "wgmma.mma_async.sync.aligned.m64n%uk%u.f32.%n", &n, &depth, &end) != 2 || !end)
        return false;
    unsigned type = 0;
    while (type < 4 && strcmp(types[type], op + end) != 0)
        type++;
    if (type == 4 || depth != (type < 2 ? 16 : 32) || n % 8 || !n || n > 256)
        return false;
    /* {d}, a, b, scale-d, imm-scale-a, imm-scale-b[, imm-trans-a], imm-trans-b */
    const unsigned half = n / 2;
    const bool regs = lf_ptx_operand(p, (int)half)->group != 0;
    const unsigned a = regs ? 4 : 1, imm = half + a + 2,
                   wanted = imm + 2 + (type < 2 ? 2 - regs : 0);
    if ((unsigned)lf_ptx_operands(p) != wanted || (regs && type > 1))
        lf_ptx_refuse(p, "%d operands, not %u", lf_ptx_operands(p), wanted);
    for (unsigned k = imm; k < wanted; k++)
        if (lf_ptx_operand(p, (int)k)->is != OP_IMM || lf_ptx_operand(p, (int)k)->bits > 1)
            lf_ptx_refuse(p, "operand %u is not 0 or 1", k);
    if (lf_ptx_operand(p, (int)imm)->bits != 1 || lf_ptx_operand(p, (int)imm + 1)->bits != 1)
        lf_ptx_refuse(p, "the interpreter does not know negated operands");
    lf_ptx_new_operands(i, half, imm);
    for (unsigned k = 0; k < imm; k++)
        i->o[k] = lf_ptx_slot(p, (int)k,
                              k < half        ? 4
                              : k < half + a  ? (regs ? 4 : 8)
                              : k == half + a ? 8
                                              : 1);
    i->imm = regs ? 4 : 0;
    if (type < 2 && !regs && lf_ptx_operand(p, (int)imm + 2)->bits)
        i->imm |= 1;
    if (type < 2 && lf_ptx_operand(p, (int)wanted - 1)->bits)
        i->imm |= 2;
    i->space = (uint8_t)type;
    i->kind = PTX_CONVERGE;
    i->own_defined = true;
    i->fn = start;
    return true;
}

bool lf_ptx_decode_wgmma(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    if (product(p, op, i))
        return true;
    if (strncmp(op, "setmaxnreg.", 11) == 0) {
        const uint64_t n = lf_ptx_operand(p, 0)->bits;
        if (n % 8 || n < 24 || n > 256)
            lf_ptx_refuse(p, "%d registers", (int)n);
        i->fn = nothing;
        i->kind = PTX_CONVERGE;
        return true;
    }
    if (strcmp(op, "wgmma.wait_group.sync.aligned") == 0) {
        i->imm = (int64_t)lf_ptx_operand(p, 0)->bits;
        i->fn = wait_group;
        i->kind = PTX_WAIT;
        return true;
    }
    if (strcmp(op, "wgmma.fence.sync.aligned") != 0 &&
        strcmp(op, "wgmma.commit_group.sync.aligned") != 0)
        return false;
    i->fn = op[6] == 'f' ? fence : commit;
    i->kind = PTX_CONVERGE;
    return true;
}
