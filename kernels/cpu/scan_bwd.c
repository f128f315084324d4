/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward of the scan. For a block of heads of a document the states before its chunks are
 * formed again and kept in the workspace; then chunks are walked from the last to the first, with
 * the gradient of the state behind the chunk. The heads of a block share a key head, and with one
 * decay for each head dP and dA with their decays are added up before they meet q and k. Where a
 * key head has several blocks, their dq and dk stay apart in the workspace and are added in order.
 */
#include "config.h"

#include "kernels/cpu/scan.h"

LF_CPU_DECLARE(scan_fwd)
LF_CPU_DECLARE(scan_bwd)

int LF_SYM(scan_bwd_check)(const struct lf_k_scan_bwd *a)
{
    const struct lf_scan_in *in = &a->in;
    const struct lf_k_scan_fwd f = {.in = a->in, .ldo = a->lddo};
    const int64_t width = in->per_channel ? in->heads * in->dk : in->heads;
    return a->lddq >= in->groups * in->dk && a->lddk >= in->groups * in->dk &&
                   a->lddv >= in->heads * in->dv && (!a->dg || a->lddg >= width)
               ? LF_SYM(scan_fwd_check)(&f)
               : LF_K_EINVAL;
}

/* The buffers of a thread. */
struct back {
    const struct lf_k_scan_bwd *a;
    struct scan_shape z;
    struct scan_chunk c;
    float *d_o, *du, *dt; /* [64][lv] dO; dU, then R; -dV */
    float *doe, *dte;     /* of one decay for a head: e^G dO and with delta -e^G dV, else NULL */
    float *dq, *dkc;      /* [64][lk]; dk as well in dkc with one decay for a head */
    float *dkr;           /* [64][lk] of decays per channel, else NULL */
    float *sp, *sa;       /* [64][LA] dP, dA without beta (NULL where there is none); with decays */
    float *sps, *sas;     /* their sums over the heads of a block */
    float *acc;           /* a product before its factors: [64][lk], or 64 columns of that */
    float *dg;            /* [64], or [64][lk] */
    float *dss;           /* [heads of a block][dkp][lv]: dS+ of each */
    float *ds;            /* dS+ of the head at hand */
    float *states;        /* [chunks][heads of a block][dkp lv]: S before chunk i + 1 */
    bool has_ds;
    float *dqh, *dkh; /* of all threads: [R][blocks][dkp] where a key head has several, else NULL */
};

static size_t lay(struct back *b, float *base)
{
    const struct scan_shape *z = &b->z;
    const bool channel = z->in->per_channel, delta = z->in->delta;
    const size_t kn = (size_t)(SCAN_C * z->lk), vn = (size_t)(SCAN_C * z->lv), none = 0,
                 tri = (size_t)SCAN_C * SCAN_LA,
                 s = (size_t)(z->dkp * z->lv * scan_block_heads(z->in)), most = kn > vn ? kn : vn;
    const struct {
        float **to;
        size_t n;
    } part[] = {{&b->d_o, vn},
                {&b->du, vn},
                {&b->dt, vn},
                {&b->doe, channel ? none : vn},
                {&b->dte, channel || !delta ? none : vn},
                {&b->dq, kn},
                {&b->dkc, kn},
                {&b->dkr, channel ? kn : none},
                {&b->sp, tri},
                {&b->sa, channel || delta ? tri : none},
                {&b->sps, channel ? none : tri},
                {&b->sas, channel || !delta ? none : tri},
                {&b->acc, most > tri ? most : tri},
                {&b->dg, (size_t)(SCAN_C * scan_ldg(z))},
                {&b->dss, s},
                {&b->states, s * (size_t)(z->in->rows / SCAN_C)}};
    size_t all = LF_SYM(scan_chunk_lay)(&b->c, z, base, true);
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        if (base)
            *part[i].to = part[i].n ? base + all : NULL;
        all += part[i].n;
    }
    return all;
}

/* Blocks whose dq and dk are kept apart. */
static int64_t blocks_apart(const struct lf_scan_in *in)
{
    return scan_blocks(in) > 1 ? in->groups * scan_blocks(in) : 0;
}

static size_t shared_floats(const struct scan_shape *z)
{
    return (size_t)(z->in->rows * blocks_apart(z->in) * z->dkp);
}

size_t LF_SYM(scan_bwd_work)(const struct lf_k_scan_bwd *a, int threads)
{
    struct back b = {.a = a, .z = scan_shape_of(&a->in)};
    return ((size_t)threads * lay(&b, NULL) + 2 * shared_floats(&b.z)) * sizeof(float);
}

/* C[row block] of a product of triangles: rows [0, n) of a lower triangle (ta: of its transpose)
 * times the rows of b. corr: of ATTN_SCALE. */
static void triangle(const float *tri, bool ta, struct scan_mm g, int64_t n, enum attn_init init,
                     const float *corr)
{
    const int64_t up = scan_up(n);
    for (int64_t i = 0; i < up; i += SCAN_B) {
        struct scan_mm m = g;
        m.m = SCAN_B;
        m.k = ta ? up - i : i + SCAN_B;
        m.a = tri + i * SCAN_LA + (ta ? i : 0);
        m.lda = SCAN_LA;
        m.b = g.b + (ta ? i * g.ldb : 0);
        m.c = g.c + i * g.ldc;
        scan_product(m, ta, init, corr ? corr + i : NULL);
    }
}

/* dU, then R by backward substitution. */
static void unsolve(struct back *b, int64_t n)
{
    const struct scan_shape *z = &b->z;
    struct scan_chunk *c = &b->c;
    if (b->has_ds)
        scan_product((struct scan_mm){scan_up(n), z->dvp, z->dkp, c->kd ? c->kd : c->k, z->lk,
                                      b->ds, z->lv, b->du, z->lv},
                     false, ATTN_ZERO, NULL);
    triangle(c->p, true,
             (struct scan_mm){.n = z->dvp, .b = b->d_o, .ldb = z->lv, .c = b->du, .ldc = z->lv}, n,
             !b->has_ds ? ATTN_ZERO
             : c->kd    ? ATTN_ADD
                        : ATTN_SCALE,
             c->behind);
    for (int64_t i = scan_up(n) - SCAN_B; i >= 0 && z->in->delta; i -= SCAN_B) {
        const int64_t e = i + SCAN_B, up = scan_up(n);
        scan_product((struct scan_mm){SCAN_B, z->dvp, up - e, c->na + e * SCAN_LA + i, SCAN_LA,
                                      b->du + e * z->lv, z->lv, b->du + i * z->lv, z->lv},
                     true, ATTN_ADD, NULL);
        for (int64_t j = e - 2; j >= i; j--)
            for (int64_t x = 0; x < z->dvp; x += LF_VL) {
                lf_v r = lf_v_load(b->du + j * z->lv + x);
                for (int64_t k = j + 1; k < e; k++)
                    r = lf_v_fma(lf_v_set1(c->na[k * SCAN_LA + j]),
                                 lf_v_load(b->du + k * z->lv + x), r);
                lf_v_store(b->du + j * z->lv + x, r);
            }
    }
}

/* Row i of dP and dA as they meet q k and k k, from the products that stand there; with one decay
 * for a head they are added to those of the heads before. Returns the sum over j of
 * dA_ij A_ij / beta_i, negative. below[j] += dP_ij P_ij + dA_ij A_ij for j < i. */
static float score_row(struct back *b, int64_t i, float *below)
{
    struct scan_chunk *c = &b->c;
    const bool delta = b->z.in->delta;
    const lf_v zero = lf_v_zero(), beta = lf_v_set1(-c->beta[i]);
    const lf_vi me = lf_vi_set1((int32_t)i);
    lf_v sum = zero;
    for (int64_t j = 0; j < scan_up(i + 1); j += LF_VL) {
        const int64_t to = i * SCAN_LA + j;
        const lf_vi at = lf_vi_iota() + lf_vi_set1((int32_t)j);
        const lf_v gam = c->gam ? lf_v_load(c->gam + to) : lf_v_set1(1.0f),
                   p = lf_v_select(at > me, zero, lf_v_load(b->sp + to));
        lf_v w = lf_v_select(at < me, p * lf_v_load(c->p + to), zero);
        if (b->sps)
            lf_v_store(b->sps + to, lf_v_fma(p, gam, lf_v_load(b->sps + to)));
        else
            lf_v_store(b->sp + to, p);
        if (delta) {
            const lf_v a = lf_v_select(at < me, lf_v_load(b->sa + to), zero),
                       aa = a * lf_v_load(c->ag + to);
            sum += aa;
            w = lf_v_fma(beta, aa, w);
            if (b->sas)
                lf_v_store(b->sas + to, lf_v_fma(beta * a, gam, lf_v_load(b->sas + to)));
            else
                lf_v_store(b->sa + to, beta * a);
        }
        lf_v_store(below + j, lf_v_load(below + j) + w);
    }
    return lf_v_hsum(sum);
}

/* The sum of the first n of x. */
static float sum_of(const float *x, int64_t n)
{
    lf_v sum = lf_v_zero();
    for (int64_t j = 0; j < n; j += LF_VL) {
        const lf_vi at = lf_vi_iota() + lf_vi_set1((int32_t)j);
        sum += lf_v_select(at < lf_vi_set1((int32_t)n), lf_v_load(x + j), lf_v_zero());
    }
    return lf_v_hsum(sum);
}

/* dP and dA, dbeta, -dV; with one decay for the head what dg gets by pairs of rows: a pair (i, j)
 * of the triangles tells of the decays of rows j + 1 to i. Sums over dG would take most of it away
 * again, and leave their rounding where a row fades fast and has next to none of it. */
static void scores_bwd(struct back *b, int64_t row, int64_t h, int64_t n)
{
    const struct scan_shape *z = &b->z;
    struct scan_chunk *c = &b->c;
    const bool delta = z->in->delta;
    float below[SCAN_C] = {0};
    scan_pack_cols(c->tile, c->u, z->lv, n, z->dvp);
    for (int64_t i = 0; i < scan_up(n); i += SCAN_B) {
        const int64_t w = i + SCAN_B;
        scan_product((struct scan_mm){SCAN_B, w, z->dvp, b->d_o + i * z->lv, z->lv, c->tile, SCAN_C,
                                      b->sp + i * SCAN_LA, SCAN_LA},
                     false, ATTN_ZERO, NULL);
        if (delta)
            scan_product((struct scan_mm){SCAN_B, w, z->dvp, b->du + i * z->lv, z->lv, c->tile,
                                          SCAN_C, b->sa + i * SCAN_LA, SCAN_LA},
                         false, ATTN_ZERO, NULL);
    }
    for (int64_t i = n; i < scan_up(n) && z->in->per_channel; i++) {
        memset(b->sp + i * SCAN_LA, 0, (size_t)scan_up(n) * 4);
        memset(b->sa + i * SCAN_LA, 0, (size_t)scan_up(n) * 4);
    }
    for (int64_t i = n - 1; i >= 0; i--) {
        const float sum = score_row(b, i, below);
        if (!z->in->per_channel)
            b->dg[i] = sum_of(below, i);
        if (b->a->dbeta)
            b->a->dbeta[(row + i) * b->a->lddbeta + h] =
                scan_dot(b->du + i * z->lv, c->t + i * z->lv, z->dvp) - sum;
        scan_times(b->dt + i * z->lv, b->du + i * z->lv, -c->beta[i], z->dvp);
    }
}

/* Up to 64 columns of S^T from r on become the tile. */
static void tile_state(struct back *b, const float *s, int64_t r)
{
    const struct scan_shape *z = &b->z;
    scan_pack_cols(b->c.tile, s + r * z->lv, z->lv, z->dkp - r < SCAN_C ? z->dkp - r : SCAN_C,
                   z->dvp);
}

/* C[n rows] = A rows S^T, of the columns from r on that the tile has. */
static void by_state(struct back *b, const float *rows, float *to, int64_t ld, int64_t n, int64_t r)
{
    const struct scan_shape *z = &b->z;
    const int64_t w = z->dkp - r < SCAN_C ? z->dkp - r : SCAN_C;
    scan_product((struct scan_mm){n, w, z->dvp, rows, z->lv, b->c.tile, SCAN_C, to, ld}, false,
                 ATTN_ZERO, NULL);
}

/* to += A rows S^T, where rows have their decays; dots[i] += its row i times that of x. */
static void add_by_state(struct back *b, const float *rows, const float *s, const float *x,
                         float *to, float *dots, int64_t n)
{
    const struct scan_shape *z = &b->z;
    for (int64_t r = 0; r < z->dkp; r += SCAN_C) {
        const int64_t w = z->dkp - r < SCAN_C ? z->dkp - r : SCAN_C;
        tile_state(b, s, r);
        by_state(b, rows, b->acc, SCAN_LA, n, r);
        for (int64_t i = 0; i < n; i++) {
            const int64_t at = i * z->lk + r;
            lf_v sum = lf_v_zero();
            for (int64_t c = 0; c < w; c += LF_VL) {
                const lf_v v = lf_v_load(b->acc + i * SCAN_LA + c);
                lf_v_store(to + at + c, lf_v_load(to + at + c) + v);
                sum = lf_v_fma(lf_v_load(x + at + c), v, sum);
            }
            dots[i] += lf_v_hsum(sum);
        }
    }
}

/* What dg gets of one decay for a head through S, which decays of all rows up to a reader reach,
 * through S+, which those behind a row reach, and through S in S+, where all of them stand. */
static void head_decay_states(struct back *b, const float *reads, const float *read, int64_t n)
{
    const struct scan_shape *z = &b->z;
    const struct scan_chunk *c = &b->c;
    float all = 0.0f;
    if (b->has_ds && c->has_s) {
        lf_v even = lf_v_zero(), odd = even;
        for (int64_t r = 0; r < z->dkp; r += 2)
            for (int64_t x = r * z->lv; x < r * z->lv + z->dvp; x += LF_VL) {
                const int64_t y = x + z->lv;
                even = lf_v_fma(lf_v_load(c->s + x), lf_v_load(b->ds + x), even);
                odd = lf_v_fma(lf_v_load(c->s + y), lf_v_load(b->ds + y), odd);
            }
        all = c->corr[0] * lf_v_hsum(even + odd);
    }
    for (int64_t i = 0; i < n; all += read[i++])
        b->dg[i] += all;
    all = 0.0f;
    for (int64_t i = n - 1; i >= 0; i--)
        b->dg[i] += all += reads[i];
}

/* What q and k get through S and S+ with one decay for a head, and dg with them. */
static void head_through_states(struct back *b, int64_t n)
{
    const struct scan_shape *z = &b->z;
    struct scan_chunk *c = &b->c;
    float reads[SCAN_C] = {0}, read[SCAN_C] = {0};
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = i * z->lv;
        scan_times(b->doe + at, b->d_o + at, c->eg[i], z->dvp);
        scan_times(c->o + at, c->u + at, c->behind[i], z->dvp);
        if (b->dte)
            scan_times(b->dte + at, b->dt + at, c->eg[i], z->dvp);
    }
    if (c->has_s) {
        add_by_state(b, b->doe, c->s, c->q, b->dq, reads, n);
        if (b->dte)
            add_by_state(b, b->dte, c->s, c->k, b->dkc, reads, n);
    }
    if (b->has_ds)
        add_by_state(b, c->o, b->ds, c->k, b->dkc, read, n);
    head_decay_states(b, reads, read, n);
}

/* The same of decays per channel: e^G dQ+, e^G dK+, e^(G_n - G) dKd, each by itself. */
static void channel_through_states(struct back *b, int64_t n)
{
    const struct scan_shape *z = &b->z;
    struct scan_chunk *c = &b->c;
    for (int64_t r = 0; r < z->dkp && c->has_s; r += SCAN_C) {
        tile_state(b, c->s, r);
        by_state(b, b->d_o, b->dq + r, z->lk, n, r);
        if (z->in->delta)
            by_state(b, b->dt, b->dkr + r, z->lk, n, r);
    }
    for (int64_t r = 0; r < z->dkp && b->has_ds; r += SCAN_C) {
        tile_state(b, b->ds, r);
        by_state(b, c->u, b->dkc + r, z->lk, n, r);
    }
    for (int64_t i = 0; i < n; i++)
        for (int64_t x = 0; x < z->dkp; x += LF_VL) {
            const int64_t at = i * z->lk + x, block = i / SCAN_B * z->lk + x;
            const lf_v e = lf_v_load(c->since + at) * lf_v_load(c->before + block),
                       behind = lf_v_load(c->until + at) * lf_v_load(c->after + block);
            lf_v_store(b->dq + at, lf_v_load(b->dq + at) * e);
            lf_v_store(b->dkr + at, lf_v_load(b->dkr + at) * e);
            lf_v_store(b->dkc + at, lf_v_load(b->dkc + at) * behind);
        }
}

/* The products within the chunk, of all heads of a block with one decay each. */
static void head_pairs(struct back *b, int64_t n)
{
    const struct scan_shape *z = &b->z;
    const struct scan_chunk *c = &b->c;
    struct scan_mm g = {.n = z->dkp, .b = c->k, .ldb = z->lk, .c = b->dq, .ldc = z->lk};
    triangle(b->sps, false, g, n, ATTN_ADD, NULL);
    g.c = b->dkc;
    g.b = c->q;
    triangle(b->sps, true, g, n, ATTN_ADD, NULL);
    if (!z->in->delta)
        return;
    g.b = c->k;
    triangle(b->sas, true, g, n, ATTN_ADD, NULL);
    triangle(b->sas, false, g, n, ATTN_ADD, NULL);
}

/* y += acc with the decays up to them for rows [row, row + n), which read rows before their block,
 * or without `reads` acc with the decays behind them for rows that are read. By x, which the
 * products meet y with, dg of the rows gets the part of these pairs that reaches over them. */
static void add_scaled(struct back *b, float *y, const float *x, int64_t row, int64_t n, bool reads)
{
    const struct scan_shape *z = &b->z;
    const float *by = reads ? b->c.since : b->c.until;
    for (int64_t c = 0; c < z->dkp; c += LF_VL) {
        lf_v over = lf_v_zero();
        for (int64_t t = 0; t < n; t++) {
            const int64_t i = reads ? n - 1 - t : t, at = (row + i) * z->lk + c;
            const lf_v v = lf_v_load(b->acc + i * z->lk + c) * lf_v_load(by + at),
                       w = v * lf_v_load(x + at);
            lf_v_store(y + at, lf_v_load(y + at) + v);
            lf_v_store(b->dg + at, lf_v_load(b->dg + at) + (reads ? over + w : over));
            over += w;
        }
    }
}

/* Of a block that begins at row f, with the rows before it. What `until` has of those becomes the
 * decay until row f. */
static void tile_bwd(struct back *b, int64_t f, int64_t n)
{
    const struct scan_shape *z = &b->z;
    struct scan_chunk *c = &b->c;
    const int64_t m = n - f < SCAN_B ? n - f : SCAN_B, lk = z->lk;
    float *q = c->few, *k = q + SCAN_B * lk;
    const float *since = c->since + f * lk, *sp = b->sp + f * SCAN_LA, *sa = b->sa + f * SCAN_LA;
    for (int64_t j = 0; j < f; j++) {
        float *until = c->until + j * lk;
        if (j < f - SCAN_B)
            scan_each(until, until, since - lk, z->dkp);
        scan_each(c->kd + j * lk, c->k + j * lk, until, z->dkp);
    }
    for (int64_t i = 0; i < m; i++) {
        scan_each(q + i * lk, c->q + (f + i) * lk, since + i * lk, z->dkp);
        scan_each(k + i * lk, c->k + (f + i) * lk, since + i * lk, z->dkp);
    }
    scan_product((struct scan_mm){m, z->dkp, f, sp, SCAN_LA, c->kd, lk, b->acc, lk}, false,
                 ATTN_ZERO, NULL);
    add_scaled(b, b->dq, c->q, f, m, true);
    if (z->in->delta) {
        scan_product((struct scan_mm){m, z->dkp, f, sa, SCAN_LA, c->kd, lk, b->acc, lk}, false,
                     ATTN_ZERO, NULL);
        add_scaled(b, b->dkr, c->k, f, m, true);
    }
    scan_product((struct scan_mm){f, z->dkp, m, sp, SCAN_LA, q, lk, b->acc, lk}, true, ATTN_ZERO,
                 NULL);
    if (z->in->delta)
        scan_product((struct scan_mm){f, z->dkp, m, sa, SCAN_LA, k, lk, b->acc, lk}, true, ATTN_ADD,
                     NULL);
    add_scaled(b, b->dkc, c->k, 0, f, false);
}

/* Pairs of a vector of channels from x on within the block of rows [f, e). */
static void pairs_bwd(struct back *b, int64_t f, int64_t e, int64_t x)
{
    const struct scan_shape *z = &b->z;
    struct scan_chunk *c = &b->c;
    const bool delta = z->in->delta;
    for (int64_t j = f; j < e; j++) {
        const int64_t at = j * z->lk + x;
        const lf_v own = lf_v_set1(b->sp[j * SCAN_LA + j]), kj = lf_v_load(c->k + at);
        lf_v over = lf_v_zero(), of[SCAN_B]; /* of[i - j]: what the pair (i, j) gives to dg */
        lf_v d = lf_v_set1(1.0f), sum = lf_v_fma(own, lf_v_load(c->q + at), lf_v_load(b->dkc + at));
        lf_v_store(b->dq + at, lf_v_fma(own, kj, lf_v_load(b->dq + at)));
        for (int64_t i = j + 1; i < e; i++) {
            const int64_t to = i * z->lk + x;
            const lf_v p = lf_v_set1(b->sp[i * SCAN_LA + j]);
            d *= lf_v_load(c->step + to);
            lf_v_store(b->dq + to, lf_v_fma(p * d, kj, lf_v_load(b->dq + to)));
            lf_v seen = p * lf_v_load(c->q + to);
            if (delta) {
                const lf_v a = lf_v_set1(b->sa[i * SCAN_LA + j]);
                lf_v_store(b->dkr + to, lf_v_fma(a * d, kj, lf_v_load(b->dkr + to)));
                seen = lf_v_fma(a, lf_v_load(c->k + to), seen);
            }
            sum = lf_v_fma(d, seen, sum);
            of[i - j] = d * seen * kj;
        }
        lf_v_store(b->dkc + at, sum);
        for (int64_t i = e - 1; i > j; i--) {
            over += of[i - j];
            lf_v_store(b->dg + i * z->lk + x, lf_v_load(b->dg + i * z->lk + x) + over);
        }
    }
}

static void channel_pairs(struct back *b, int64_t n)
{
    const struct scan_shape *z = &b->z;
    for (int64_t f = SCAN_B; f < n; f += SCAN_B)
        tile_bwd(b, f, n);
    for (int64_t f = 0; f < n; f += SCAN_B)
        for (int64_t x = 0; x < z->dkp; x += LF_VL)
            pairs_bwd(b, f, f + SCAN_B < n ? f + SCAN_B : n, x);
}

/* What dg gets through states (head_decay_states) of decays per channel. */
static void channel_decay_states(struct back *b, int64_t n)
{
    const struct scan_shape *z = &b->z;
    const struct scan_chunk *c = &b->c;
    const bool both = b->has_ds && c->has_s;
    for (int64_t r = 0; r < z->dkp; r++)
        b->acc[r] = both ? c->corr[r] * scan_dot(c->s + r * z->lv, b->ds + r * z->lv, z->dvp) : 0;
    for (int64_t x = 0; x < z->dkp; x += LF_VL) {
        lf_v over = lf_v_load(b->acc + x);
        for (int64_t at = x; at < x + n * z->lk; at += z->lk) {
            lf_v_store(b->dg + at, over);
            over = lf_v_fma(lf_v_load(c->k + at), lf_v_load(b->dkc + at), over);
        }
        over = lf_v_zero();
        for (int64_t at = x + (n - 1) * z->lk; at >= 0; at -= z->lk) {
            over = lf_v_fma(lf_v_load(c->q + at), lf_v_load(b->dq + at), over);
            over = lf_v_fma(lf_v_load(c->k + at), lf_v_load(b->dkr + at), over);
            lf_v_store(b->dg + at, lf_v_load(b->dg + at) + over);
        }
    }
}

/* dS of the state before the chunk, from that of the state behind it. */
static void state_bwd(struct back *b, int64_t n)
{
    const struct scan_shape *z = &b->z;
    struct scan_chunk *c = &b->c;
    if (!c->has_s)
        return;
    const bool channel = z->in->per_channel;
    scan_product((struct scan_mm){z->dkp, z->dvp, n, channel ? c->qp : c->q, z->lk,
                                  channel ? b->d_o : b->doe, z->lv, b->ds, z->lv},
                 true, b->has_ds ? ATTN_SCALE : ATTN_ZERO, c->corr);
    if (z->in->delta)
        scan_product((struct scan_mm){z->dkp, z->dvp, n, channel ? c->kp : c->k, z->lk,
                                      channel ? b->dt : b->dte, z->lv, b->ds, z->lv},
                     true, ATTN_ADD, NULL);
}

/* The gradient of a row of x from that of what the products took: scale x, or of length one. */
static void unit_bwd(const struct scan_shape *z, float *d, const void *x, float scale, void *to)
{
    const struct lf_scan_in *in = z->in;
    float raw[LF_SCAN_MOST_D];
    const uint8_t t = in->x_type;
    lf_v along = lf_v_zero(), by = lf_v_set1(scale);
    scan_row(raw, x, in->dk, t);
    if (in->unit_eps > 0.0f) {
        const float r = 1.0f / sqrtf(scan_dot(raw, raw, z->dkp) + in->unit_eps);
        along = lf_v_set1(scan_dot(raw, d, z->dkp) * r * r);
        by = lf_v_set1(scale * r);
    }
    LF_EACH_VEC(c, n, in->dk)
    lf_put(to, c, t, n, (lf_v_load(d + c) - along * lf_v_load(raw + c)) * by);
}

/* dv and dg of a head's rows of the chunk. */
static void values_out(struct back *b, int64_t row, int64_t h, int64_t n)
{
    const struct scan_shape *z = &b->z;
    const struct lf_k_scan_bwd *a = b->a;
    const struct lf_scan_in *in = z->in;
    const uint8_t t = in->x_type;
    const int64_t width = in->per_channel ? in->dk : 1;
    const lf_v skip = lf_v_set1(in->skip ? in->skip[h] : 0.0f);
    for (int64_t i = 0; i < n; i++) {
        const int64_t r = row + i;
        if (a->dg)
            memcpy(a->dg + r * a->lddg + h * width, b->dg + i * scan_ldg(z), (size_t)width * 4);
        LF_EACH_VEC(x, m, in->dv)
        lf_put(
            a->dv, r * a->lddv + h * in->dv + x, t, m,
            lf_v_fma(skip, lf_v_load(b->d_o + i * z->lv + x), -lf_v_load(b->dt + i * z->lv + x)));
    }
}

/* dq and dk of a block's rows of the chunk. */
static void keys_out(struct back *b, int64_t row, struct scan_block block, int64_t n)
{
    const struct scan_shape *z = &b->z;
    const struct lf_k_scan_bwd *a = b->a;
    const struct lf_scan_in *in = z->in;
    const uint8_t t = in->x_type;
    const int64_t apart = blocks_apart(in), most = scan_block_heads(in),
                  per = in->heads / in->groups,
                  place = block.key * scan_blocks(in) + block.head % per / most;
    for (int64_t i = 0; i < n; i++) {
        const int64_t r = row + i;
        float *dq = b->dq + i * z->lk, *dk = b->dkc + i * z->lk;
        for (int64_t x = 0; b->dkr && x < z->dkp; x += LF_VL)
            lf_v_store(dk + x, lf_v_load(b->dkr + i * z->lk + x) + lf_v_load(dk + x));
        if (apart) {
            memcpy(b->dqh + (r * apart + place) * z->dkp, dq, (size_t)z->dkp * 4);
            memcpy(b->dkh + (r * apart + place) * z->dkp, dk, (size_t)z->dkp * 4);
        } else {
            const int64_t far = scan_far(r, in->rows);
            scan_ask(lf_at(in->q, far * in->ldq + block.key * in->dk, t), in->dk, t);
            scan_ask(lf_at(in->k, far * in->ldk + block.key * in->dk, t), in->dk, t);
            unit_bwd(z, dq, lf_at(in->q, r * in->ldq + block.key * in->dk, t), in->scale,
                     lf_at_w(a->dq, r * a->lddq + block.key * in->dk, t));
            unit_bwd(z, dk, lf_at(in->k, r * in->ldk + block.key * in->dk, t), 1.0f,
                     lf_at_w(a->dk, r * a->lddk + block.key * in->dk, t));
        }
    }
}

/* Rows of dO of head h. */
static void load_out(struct back *b, int64_t row, int64_t h, int64_t n)
{
    const struct scan_shape *z = &b->z;
    const struct lf_scan_in *in = z->in;
    const uint8_t t = in->x_type;
    for (int64_t i = 0; i < n; i++) {
        const int64_t far = scan_far(row + i, in->rows);
        scan_ask(lf_at(b->a->d_o, far * b->a->lddo + h * in->dv, t), in->dv, t);
        scan_row(b->d_o + i * z->lv, lf_at(b->a->d_o, (row + i) * b->a->lddo + h * in->dv, t),
                 in->dv, t);
    }
    memset(b->d_o + n * z->lv, 0, (size_t)((scan_up(n) - n) * z->lv) * 4);
}

/* One chunk of a head, whose S is in c->s and whose q and k are there. */
static void head_bwd(struct back *b, int64_t row, int64_t h, int64_t n)
{
    const struct scan_shape *z = &b->z;
    struct scan_chunk *c = &b->c;
    LF_SYM(scan_load)(c, z, row, h, 0, n);
    load_out(b, row, h, n);
    LF_SYM(scan_scores)(c, z, 0, n);
    LF_SYM(scan_solve)(c, z, 0, n);
    LF_SYM(scan_decay)(c, z, n);
    unsolve(b, n);
    scores_bwd(b, row, h, n);
    if (z->in->per_channel) {
        channel_through_states(b, n);
        channel_decay_states(b, n);
        channel_pairs(b, n);
    } else {
        head_through_states(b, n);
    }
    state_bwd(b, n);
    values_out(b, row, h, n);
}

/* Chunk i of a block: rows [row, row + n). */
static void chunk_bwd(struct back *b, int64_t i, int64_t row, struct scan_block block, int64_t n)
{
    const struct scan_shape *z = &b->z;
    struct scan_chunk *c = &b->c;
    const int64_t floats = z->dkp * z->lv;
    float *const clear[] = {b->dq, b->dkc, b->dkr, b->sps, b->sas};
    for (size_t p = 0; p < sizeof clear / sizeof *clear; p++)
        if (clear[p])
            memset(clear[p], 0, (size_t)(SCAN_C * (p < 3 ? z->lk : SCAN_LA)) * 4);
    c->has_s = i > 0;
    LF_SYM(scan_keys)(c, z, row, block.key, 0, n);
    for (int64_t x = 0; x < block.n; x++) {
        c->s = i ? b->states + ((i - 1) * scan_block_heads(z->in) + x) * floats : c->ss;
        b->ds = b->dss + x * floats;
        head_bwd(b, row, block.head + x, n);
    }
    b->has_ds = b->has_ds || c->has_s;
    if (!z->in->per_channel)
        head_pairs(b, n);
    keys_out(b, row, block, n);
}

static void block_bwd(lf_queue *q, struct back *b, const struct scan_span *s,
                      struct scan_block block)
{
    const struct scan_shape *z = &b->z;
    struct scan_chunk *c = &b->c;
    const int64_t chunks = (s->n + SCAN_C - 1) / SCAN_C, floats = z->dkp * z->lv;
    c->has_s = false;
    c->state_only = true;
    for (int64_t i = 0; i + 1 < chunks; i++) {
        const int64_t row = s->row + i * SCAN_C;
        lf_border(q);
        LF_SYM(scan_keys)(c, z, row, block.key, 0, SCAN_C);
        for (int64_t x = 0; x < block.n; x++) {
            c->s = c->ss + x * floats;
            LF_SYM(scan_load)(c, z, row, block.head + x, 0, SCAN_C);
            LF_SYM(scan_scores)(c, z, 0, SCAN_C);
            LF_SYM(scan_solve)(c, z, 0, SCAN_C);
            LF_SYM(scan_fold)(c, z, SCAN_C);
            memcpy(b->states + (i * scan_block_heads(z->in) + x) * floats, c->s,
                   (size_t)floats * 4);
        }
        c->has_s = true;
    }
    b->has_ds = c->state_only = false;
    for (int64_t i = chunks - 1; i >= 0; i--) {
        const int64_t at = i * SCAN_C;
        lf_border(q);
        chunk_bwd(b, i, s->row + at, block, s->n - at < SCAN_C ? s->n - at : SCAN_C);
    }
}

/* Padding rows. */
static void zero_bwd(const struct lf_k_scan_bwd *a, const struct scan_span *s)
{
    const struct lf_scan_in *in = &a->in;
    const size_t size = lf_dtype_size((enum lf_dtype)in->x_type);
    const int64_t width = in->per_channel ? in->heads * in->dk : in->heads;
    for (int64_t r = s->row; r < s->row + s->n; r++) {
        memset((char *)a->dq + (size_t)(r * a->lddq) * size, 0,
               (size_t)(in->groups * in->dk) * size);
        memset((char *)a->dk + (size_t)(r * a->lddk) * size, 0,
               (size_t)(in->groups * in->dk) * size);
        memset((char *)a->dv + (size_t)(r * a->lddv) * size, 0,
               (size_t)(in->heads * in->dv) * size);
        if (a->dg)
            memset(a->dg + r * a->lddg, 0, (size_t)width * 4);
        if (a->dbeta)
            memset(a->dbeta + r * a->lddbeta, 0, (size_t)in->heads * 4);
    }
}

/* dq and dk of rows [lo, hi) of documents from the parts of blocks. */
static void add_blocks(const struct back *b, int64_t lo, int64_t hi)
{
    const struct scan_shape *z = &b->z;
    const struct lf_k_scan_bwd *a = b->a;
    const struct lf_scan_in *in = z->in;
    const uint8_t t = in->x_type;
    const int64_t per = scan_blocks(in), apart = blocks_apart(in);
    float sum[LF_SCAN_MOST_D];
    for (int64_t r = lo; r < hi; r++)
        for (int64_t j = 0; j < in->groups; j++)
            for (int two = 0; two < 2; two++) {
                const float *from = (two ? b->dkh : b->dqh) + (r * apart + j * per) * z->dkp;
                memcpy(sum, from, (size_t)z->dkp * 4);
                for (int64_t p = 1; p < per; p++)
                    for (int64_t x = 0; x < z->dkp; x += LF_VL)
                        lf_v_store(sum + x, lf_v_load(sum + x) + lf_v_load(from + p * z->dkp + x));
                if (two)
                    unit_bwd(z, sum, lf_at(in->k, r * in->ldk + j * in->dk, t), 1.0f,
                             lf_at_w(a->dk, r * a->lddk + j * in->dk, t));
                else
                    unit_bwd(z, sum, lf_at(in->q, r * in->ldq + j * in->dk, t), in->scale,
                             lf_at_w(a->dq, r * a->lddq + j * in->dk, t));
            }
}

static void skip_bwd(const struct lf_k_scan_bwd *a, int64_t h, int64_t rows)
{
    const struct lf_scan_in *in = &a->in;
    const uint8_t t = in->x_type;
    lf_v sum = lf_v_zero();
    for (int64_t r = 0; r < rows; r++) {
        const int64_t far = scan_far(r, rows);
        scan_ask(lf_at(a->d_o, far * a->lddo + h * in->dv, t), in->dv, t);
        scan_ask(lf_at(in->v, far * in->ldv + h * in->dv, t), in->dv, t);
        LF_EACH_VEC(x, n, in->dv)
        sum = lf_v_fma(lf_get(a->d_o, r * a->lddo + h * in->dv + x, t, n),
                       lf_get(in->v, r * in->ldv + h * in->dv + x, t, n), sum);
    }
    a->dskip[h] = a->accumulate ? a->dskip[h] + lf_v_hsum(sum) : lf_v_hsum(sum);
}

struct bwd {
    lf_queue *q;
    const struct lf_k_scan_bwd *a;
    int64_t next;
};

/* The memory of a member. */
static struct back back_of(const struct lf_k_scan_bwd *a, int member)
{
    struct back b = {.a = a, .z = scan_shape_of(&a->in)};
    const size_t each = lay(&b, NULL), shared = shared_floats(&b.z);
    if (shared) {
        b.dqh = a->work;
        b.dkh = b.dqh + shared;
    }
    lay(&b, (float *)a->work + 2 * shared + (size_t)member * each);
    return b;
}

/* Takes blocks, those of each document one after the other. */
static void run_blocks(void *arg, int member)
{
    struct bwd *w = arg;
    const struct lf_scan_in *in = &w->a->in;
    const struct scan_rows rows = {.rows = in->rows, .n_docs = in->n_docs, .cu = in->cu_seqlens};
    const int64_t tasks = in->groups * scan_blocks(in);
    struct back b = back_of(w->a, member);
    struct scan_span s = {0};
    int64_t n = 0, mine = lf_take(&w->next);
    for (; scan_next(&rows, &s); n += tasks)
        for (; mine < n + tasks; mine = lf_take(&w->next)) {
            if (s.seq >= 0)
                block_bwd(w->q, &b, &s, scan_block_of(in, mine - n));
            else if (mine == n)
                zero_bwd(w->a, &s);
        }
}

static void add_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct back b = back_of(arg, 0);
    (void)q;
    add_blocks(&b, lo, hi);
}

static void skip_heads(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_scan_bwd *a = arg;
    const struct lf_scan_in *in = &a->in;
    const int64_t end = in->rows ? in->cu_seqlens[in->n_docs] : 0;
    (void)q;
    for (int64_t h = lo; h < hi; h++)
        skip_bwd(a, h, end < in->rows ? end : in->rows);
}

int LF_SYM(scan_bwd)(lf_queue *q, const struct lf_k_scan_bwd *a)
{
    const struct lf_scan_in *in = &a->in;
    const int team = lf_team(q, in->rows * in->heads * in->dk * 64);
    const struct scan_shape z = scan_shape_of(in);
    const int64_t end = in->rows ? in->cu_seqlens[in->n_docs] : 0;
    if (a->work_bytes < LF_SYM(scan_bwd_work)(a, team))
        return LF_K_EINVAL;
    if (in->rows)
        lf_team_call(q, team, run_blocks, &(struct bwd){q, a, 0});
    if (shared_floats(&z))
        lf_deal(q, team, end < in->rows ? end : in->rows, lf_few_rows(in->heads * in->dk), add_rows,
                a);
    if (a->dskip)
        lf_deal(q, team, in->heads, 1, skip_heads, a);
    return LF_K_OK;
}
