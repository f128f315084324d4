/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward part of a chunk of a scan: rows, decays, the two triangles, the solved rows, and the
 * state behind the chunk.
 *
 * Decays per channel stand inside the products. Between blocks of 16 rows they are split at the
 * blocks' ends: what row j of one keeps until its block ends, what the blocks between keep, and
 * what is kept from the beginning of its block up to row i. So no exponent is positive. Within a
 * block the decay of a pair is carried from row to row.
 */
#include "config.h"

#include "kernels/cpu/scan.h"

static float *take(float **at, size_t n)
{
    float *p = *at;
    *at += n;
    return p;
}

size_t LF_SYM(scan_chunk_lay)(struct scan_chunk *c, const struct scan_shape *z, float *base,
                              bool backward)
{
    const size_t kn = (size_t)(SCAN_C * z->lk), vn = (size_t)(SCAN_C * z->lv), none = 0,
                 tri = (size_t)SCAN_C * SCAN_LA, state = (size_t)(z->dkp * z->lv);
    const bool channel = z->in->per_channel, delta = z->in->delta;
    const struct {
        float **to;
        size_t n;
    } part[] = {{&c->q, kn},
                {&c->k, kn},
                {&c->raw, channel ? none
                          : delta ? 2 * tri
                                  : tri},
                {&c->tile, (size_t)(z->dkp > z->dvp ? z->dkp : z->dvp) * SCAN_C},
                {&c->ss, (size_t)scan_block_heads(z->in) * state},
                {&c->u, vn},
                {&c->t, backward ? vn : none},
                {&c->o, vn},
                {&c->na, channel || delta ? tri : none},
                {&c->p, tri},
                {&c->ag, backward && (channel || delta) ? tri : none},
                {&c->gam, backward && !channel ? tri : none},
                {&c->g, channel ? kn : SCAN_C},
                {&c->beta, SCAN_C},
                {&c->corr, (size_t)z->dkp},
                {&c->sum, channel ? none : 2 * SCAN_C},
                {&c->eg, channel ? none : SCAN_C},
                {&c->behind, channel ? none : SCAN_C},
                {&c->step, channel ? kn : none},
                {&c->since, channel ? kn : none},
                {&c->until, channel ? kn : none},
                {&c->before, channel ? kn / SCAN_B : none},
                {&c->after, channel ? kn / SCAN_B : none},
                {&c->qp, channel ? kn : none},
                {&c->kp, channel ? kn : none},
                {&c->kd, channel ? kn : none},
                {&c->few, channel ? (size_t)(2 * SCAN_B * z->lk) : none}};
    size_t all = 0;
    float *at = base;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        all += part[i].n;
        if (base)
            *part[i].to = part[i].n ? take(&at, part[i].n) : NULL;
    }
    return all;
}

/* The factor of a row of q or k: scale, or what makes its length one. */
static void unit(float *x, const struct scan_shape *z, float scale)
{
    const float eps = z->in->unit_eps;
    if (eps > 0.0f)
        scale /= sqrtf(scan_dot(x, x, z->dkp) + eps);
    if (scale != 1.0f)
        scan_times(x, x, scale, z->dkp);
}

static void load_decay(struct scan_chunk *c, const struct scan_shape *z, int64_t r, int64_t h,
                       int64_t i)
{
    const struct lf_scan_in *in = z->in;
    const int64_t width = in->per_channel ? in->dk : 1;
    const float *g = in->g + r * in->ldg + h * width;
    float *to = c->g + i * scan_ldg(z);
    if (!in->per_channel) {
        *to = *g < SCAN_FADED ? SCAN_FADED : *g;
        return;
    }
    if (in->ldg)
        scan_ask(g + (scan_far(r, in->rows) - r) * in->ldg, width, LF_F32);
    scan_row(to, g, width, LF_F32);
    const lf_v least = lf_v_set1(SCAN_FADED);
    for (int64_t x = 0; x < z->dkp; x += LF_VL) {
        const lf_v v = lf_v_load(to + x);
        lf_v_store(to + x, lf_v_select(v < least, least, v));
    }
}

/* s + g rounded; *lack gets the rest of it, which is exact (Knuth 1969, Moller 1965). */
LF_INLINE lf_v two_sum(lf_v s, lf_v g, lf_v *lack)
{
    const lf_v sum = s + g, part = sum - s;
    *lack += (s - (sum - part)) + (g - part);
    return sum;
}

static void head_sums(struct scan_chunk *c, int64_t n)
{
    lf_v s = lf_v_zero(), lack = s;
    for (int64_t i = 0; i < n; i++) {
        s = two_sum(s, lf_v_set1(c->g[i]), &lack);
        c->sum[i] = s[0];
        c->sum[SCAN_C + i] = lack[0];
    }
    for (int64_t i = 0; i < n; i += LF_VL)
        lf_v_store(c->eg + i, lf_v_exp(lf_v_load(c->sum + i)));
}

/* Decays of the rows [b, e) of a block, which has no others, and before of the block behind it. */
static void block_decays(struct scan_chunk *c, const struct scan_shape *z, int64_t b, int64_t e)
{
    const int64_t lk = z->lk, p = b / SCAN_B;
    for (int64_t x = 0; x < z->dkp; x += LF_VL) {
        lf_v up = lf_v_zero(), down = up, all = up;
        for (int64_t t = 0; t < e - b; t++) {
            const int64_t i = (b + t) * lk + x, j = (e - 1 - t) * lk + x;
            const lf_v g = lf_v_load(c->g + i);
            up += g;
            all = lf_v_exp(up);
            lf_v_store(c->step + i, lf_v_exp(g));
            lf_v_store(c->since + i, all);
            lf_v_store(c->until + j, lf_v_exp(down));
            down += lf_v_load(c->g + j);
        }
        if (p == 0)
            lf_v_store(c->before + x, lf_v_set1(1.0f));
        if (p + 1 < SCAN_C / SCAN_B)
            lf_v_store(c->before + (p + 1) * lk + x, lf_v_load(c->before + p * lk + x) * all);
    }
}

/* A row of q and k; t is a constant of each copy. */
LF_INLINE void key_row(struct scan_chunk *c, const struct scan_shape *z, int64_t r, int64_t key,
                       int64_t i, const uint8_t t)
{
    const struct lf_scan_in *in = z->in;
    const int64_t far = scan_far(r, in->rows);
    scan_ask(lf_at(in->k, far * in->ldk + key * in->dk, t), in->dk, t);
    scan_row(c->k + i * z->lk, lf_at(in->k, r * in->ldk + key * in->dk, t), in->dk, t);
    unit(c->k + i * z->lk, z, 1.0f);
    if (c->state_only)
        return;
    scan_ask(lf_at(in->q, far * in->ldq + key * in->dk, t), in->dk, t);
    scan_row(c->q + i * z->lk, lf_at(in->q, r * in->ldq + key * in->dk, t), in->dk, t);
    unit(c->q + i * z->lk, z, in->scale);
}

/* Products of g.m rows with the rows that the tile has, g.n of them: of q into g.c, and with delta
 * of k into a, without factors. */
static void raw_scores(struct scan_chunk *c, const struct scan_shape *z, const float *q,
                       const float *k, struct scan_mm g, float *a)
{
    g.k = z->dkp;
    g.lda = z->lk;
    g.b = c->tile;
    g.ldb = SCAN_C;
    g.ldc = SCAN_LA;
    g.a = q;
    if (!c->state_only)
        scan_product(g, false, ATTN_ZERO, NULL);
    g.a = k;
    g.c = a;
    if (z->in->delta)
        scan_product(g, false, ATTN_ZERO, NULL);
}

void LF_SYM(scan_keys)(struct scan_chunk *c, const struct scan_shape *z, int64_t row, int64_t key,
                       int64_t i0, int64_t i1)
{
    const size_t rest = (size_t)(scan_up(i1) - i1) * (size_t)z->lk * 4;
    for (int64_t i = i0; i < i1; i++)
        if (z->in->x_type == LF_BF16)
            key_row(c, z, row + i, key, i, LF_BF16);
        else
            key_row(c, z, row + i, key, i, LF_F32);
    memset(c->q + i1 * z->lk, 0, rest);
    memset(c->k + i1 * z->lk, 0, rest);
    if (!c->raw || (c->state_only && !z->in->delta))
        return;
    scan_pack_cols(c->tile, c->k, z->lk, i1, z->dkp);
    for (int64_t i = i0, e; i < i1; i = e) {
        e = scan_up(i + 1) < i1 ? scan_up(i + 1) : i1;
        float *raw = c->raw + i * SCAN_LA;
        raw_scores(c, z, c->q + i * z->lk, c->k + i * z->lk,
                   (struct scan_mm){.m = e - i, .n = scan_up(e), .c = raw}, raw + SCAN_C * SCAN_LA);
    }
}

/* A row of v; t is a constant of each copy. */
LF_INLINE void value_row(struct scan_chunk *c, const struct scan_shape *z, int64_t r, int64_t h,
                         int64_t i, const uint8_t t)
{
    const struct lf_scan_in *in = z->in;
    const int64_t far = scan_far(r, in->rows);
    scan_ask(lf_at(in->v, far * in->ldv + h * in->dv, t), in->dv, t);
    scan_row(c->u + i * z->lv, lf_at(in->v, r * in->ldv + h * in->dv, t), in->dv, t);
}

void LF_SYM(scan_load)(struct scan_chunk *c, const struct scan_shape *z, int64_t row, int64_t h,
                       int64_t i0, int64_t i1)
{
    const struct lf_scan_in *in = z->in;
    for (int64_t i = i0; i < i1; i++) {
        const int64_t r = row + i;
        if (in->x_type == LF_BF16)
            value_row(c, z, r, h, i, LF_BF16);
        else
            value_row(c, z, r, h, i, LF_F32);
        c->beta[i] = in->beta ? in->beta[r * in->ldbeta + h] : 1.0f;
        load_decay(c, z, r, h, i);
    }
    if (!in->per_channel)
        head_sums(c, i1);
    for (int64_t b = 0; b < i1 && in->per_channel; b += SCAN_B)
        block_decays(c, z, b, b + SCAN_B < i1 ? b + SCAN_B : i1);
    const size_t rest = (size_t)(scan_up(i1) - i1);
    memset(c->u + i1 * z->lv, 0, rest * (size_t)z->lv * 4);
    memset(c->p + i1 * SCAN_LA, 0, rest * SCAN_LA * 4);
    if (c->na)
        memset(c->na + i1 * SCAN_LA, 0, rest * SCAN_LA * 4);
}

/* P and -A of row i from the raw products: Gam, beta, the masks. */
static void mask_row(struct scan_chunk *c, const struct scan_shape *z, int64_t i)
{
    const float *raw = c->raw + i * SCAN_LA, *lack = c->sum + SCAN_C;
    const lf_vi row = lf_vi_set1((int32_t)i);
    const lf_v beta = lf_v_set1(-c->beta[i]), zero = lf_v_zero();
    const lf_v gi = lf_v_set1(c->sum[i]), li = lf_v_set1(lack[i]);
    for (int64_t j = 0; j < scan_up(i + 1); j += LF_VL) {
        const int64_t to = i * SCAN_LA + j;
        const lf_vi at = lf_vi_iota() + lf_vi_set1((int32_t)j);
        const lf_v d = (gi - lf_v_load(c->sum + j)) + (li - lf_v_load(lack + j));
        const lf_v gam = lf_v_exp(lf_v_select(at > row, zero, d));
        if (!c->state_only)
            lf_v_store(c->p + to, lf_v_select(at > row, zero, lf_v_load(raw + j) * gam));
        if (c->gam)
            lf_v_store(c->gam + to, gam);
        if (!z->in->delta)
            continue;
        const lf_v ag = lf_v_select(at < row, lf_v_load(raw + SCAN_C * SCAN_LA + j) * gam, zero);
        if (c->ag)
            lf_v_store(c->ag + to, ag);
        lf_v_store(c->na + to, ag * beta);
    }
}

/* Pairs of rows [i0, i1) with the four rows from j on, which begin in the same block: w has these
 * four as row i sees them, zeros before their turn. */
LF_INLINE void four_pairs(struct scan_chunk *c, const struct scan_shape *z, int64_t j, int64_t i0,
                          int64_t i1, const bool reads)
{
    enum { N = 4 };
    const int64_t lk = z->lk;
    float *const w = c->few;
    memset(w, 0, (size_t)(N * lk) * 4);
    for (int64_t i = j; i < i1; i++) {
        const float *q = c->q + i * lk, *k = c->k + i * lk,
                    *next = c->step + (i + 1 < i1 ? i + 1 : i) * lk; /* the last one is not used */
        lf_v p[N], a[N];
        if (i < j + N)
            memcpy(w + (i - j) * lk, k, (size_t)z->dkp * 4);
#pragma GCC unroll 4
        for (int r = 0; r < N; r++)
            p[r] = a[r] = lf_v_zero();
        for (int64_t x = 0; x < z->dkp; x += LF_VL)
#pragma GCC unroll 4
            for (int r = 0; r < N; r++) {
                const lf_v seen = lf_v_load(w + r * lk + x);
                if (reads)
                    p[r] = lf_v_fma(lf_v_load(q + x), seen, p[r]);
                a[r] = lf_v_fma(lf_v_load(k + x), seen, a[r]);
                lf_v_store(w + r * lk + x, seen * lf_v_load(next + x));
            }
        for (int r = 0; r < N && i >= i0; r++) {
            if (reads)
                c->p[i * SCAN_LA + j + r] = lf_v_hsum(p[r]);
            c->na[i * SCAN_LA + j + r] = z->in->delta && j + r < i ? lf_v_hsum(a[r]) : 0.0f;
        }
    }
}
static void pairs(struct scan_chunk *c, const struct scan_shape *z, int64_t j, int64_t i0,
                  int64_t i1)
{
    if (c->state_only)
        four_pairs(c, z, j, i0, i1, false);
    else
        four_pairs(c, z, j, i0, i1, true);
}

/* The columns of the tile are rows of k as they are where block b begins: the block before it joins
 * them, and those before that fade by it. */
static void tile_next(struct scan_chunk *c, const struct scan_shape *z, int64_t b)
{
    const int64_t lk = z->lk, old = b - SCAN_B;
    for (int64_t x = 0; x < z->dkp; x++)
        scan_times(c->tile + x * SCAN_C, c->tile + x * SCAN_C, c->since[(b - 1) * lk + x], old);
    for (int64_t j = old; j < b; j += LF_VL)
        for (int64_t x = 0; x < z->dkp; x += LF_VL) {
            lf_v r[LF_VL];
#pragma GCC unroll 16
            for (int i = 0; i < LF_VL; i++)
                r[i] = lf_v_load(c->k + (j + i) * lk + x) * lf_v_load(c->until + (j + i) * lk + x);
            lf_v_transpose(r);
#pragma GCC unroll 16
            for (int i = 0; i < LF_VL; i++)
                lf_v_store(c->tile + (x + i) * SCAN_C + j, r[i]);
        }
}

/* Rows [i0, i1) of the block that begins at row b. */
static void block_scores(struct scan_chunk *c, const struct scan_shape *z, int64_t b, int64_t i0,
                         int64_t i1)
{
    const int64_t lk = z->lk;
    float *q = c->few, *k = q + SCAN_B * lk;
    for (int64_t i = i0; i < i1 && b; i++) {
        if (!c->state_only)
            scan_each(q + (i - i0) * lk, c->q + i * lk, c->since + i * lk, z->dkp);
        scan_each(k + (i - i0) * lk, c->k + i * lk, c->since + i * lk, z->dkp);
    }
    if (b)
        raw_scores(c, z, q, k, (struct scan_mm){.m = i1 - i0, .n = b, .c = c->p + i0 * SCAN_LA},
                   c->na + i0 * SCAN_LA);
    for (int64_t i = i0; i < i1; i++) {
        memset(c->p + i * SCAN_LA + b, 0, SCAN_B * 4);
        memset(c->na + i * SCAN_LA + b, 0, SCAN_B * 4);
    }
    for (int64_t j = b; j < i1; j += 4)
        pairs(c, z, j, i0, i1);
}

static void channel_scores(struct scan_chunk *c, const struct scan_shape *z, int64_t i0, int64_t i1)
{
    for (int64_t b = 0; b < i1; b += SCAN_B) {
        const int64_t i = b > i0 ? b : i0, e = b + SCAN_B < i1 ? b + SCAN_B : i1;
        if (b)
            tile_next(c, z, b);
        if (i < e)
            block_scores(c, z, b, i, e);
        for (int64_t r = i; r < e && z->in->delta; r++) {
            if (c->ag)
                memcpy(c->ag + r * SCAN_LA, c->na + r * SCAN_LA, (size_t)(b + SCAN_B) * 4);
            scan_times(c->na + r * SCAN_LA, c->na + r * SCAN_LA, -c->beta[r], b + SCAN_B);
        }
    }
}

/* e^G q and e^G k. */
static void grown(struct scan_chunk *c, const struct scan_shape *z, int64_t i)
{
    const int64_t at = i * z->lk;
    const float *before = c->before + i / SCAN_B * z->lk;
    for (int64_t x = 0; x < z->dkp; x += LF_VL) {
        const lf_v e = lf_v_load(c->since + at + x) * lf_v_load(before + x);
        if (!c->state_only)
            lf_v_store(c->qp + at + x, lf_v_load(c->q + at + x) * e);
        lf_v_store(c->kp + at + x, lf_v_load(c->k + at + x) * e);
    }
}

void LF_SYM(scan_scores)(struct scan_chunk *c, const struct scan_shape *z, int64_t i0, int64_t i1)
{
    if (c->state_only && !z->in->delta)
        return;
    for (int64_t i = i0; i < i1 && !z->in->per_channel; i++)
        mask_row(c, z, i);
    if (!z->in->per_channel)
        return;
    channel_scores(c, z, i0, i1);
    for (int64_t i = i0; i < i1 && c->has_s; i++)
        grown(c, z, i);
}

/* u_i += sum over j of -A_ij u_j for j in [b, i), in registers. */
static void solve_row(struct scan_chunk *c, const struct scan_shape *z, int64_t b, int64_t i)
{
    const float *na = c->na + i * SCAN_LA;
    for (int64_t x = 0; x < z->dvp; x += LF_VL) {
        lf_v u = lf_v_load(c->u + i * z->lv + x);
        for (int64_t j = b; j < i; j++)
            u = lf_v_fma(lf_v_set1(na[j]), lf_v_load(c->u + j * z->lv + x), u);
        lf_v_store(c->u + i * z->lv + x, u);
    }
}

void LF_SYM(scan_solve)(struct scan_chunk *c, const struct scan_shape *z, int64_t i0, int64_t i1)
{
    float *u = c->u;
    const bool delta = z->in->delta;
    if (delta && c->has_s) { /* o is a scratch here: K+ S, of which a row's e^G may be missing */
        scan_product((struct scan_mm){i1 - i0, z->dvp, z->dkp, (c->kp ? c->kp : c->k) + i0 * z->lk,
                                      z->lk, c->s, z->lv, c->o + i0 * z->lv, z->lv},
                     false, ATTN_ZERO, NULL);
        for (int64_t i = i0; i < i1; i++) {
            const lf_v e = lf_v_set1(c->eg ? -c->eg[i] : -1.0f);
            for (int64_t x = i * z->lv; x < i * z->lv + z->dvp; x += LF_VL)
                lf_v_store(u + x, lf_v_fma(e, lf_v_load(c->o + x), lf_v_load(u + x)));
        }
    }
    for (int64_t i = i0; i < i1; i++) {
        const lf_v beta = lf_v_set1(c->beta[i]);
        for (int64_t x = i * z->lv; x < i * z->lv + z->dvp; x += LF_VL) {
            const lf_v v = lf_v_load(u + x);
            if (c->t)
                lf_v_store(c->t + x, v);
            lf_v_store(u + x, v * beta);
        }
    }
    for (int64_t i = i0, e; i < i1 && delta; i = e) {
        const int64_t b = i / SCAN_B * SCAN_B;
        e = b + SCAN_B < i1 ? b + SCAN_B : i1;
        scan_product((struct scan_mm){e - i, z->dvp, b, c->na + i * SCAN_LA, SCAN_LA, u, z->lv,
                                      u + i * z->lv, z->lv},
                     false, ATTN_ADD, NULL);
        for (int64_t r = i; r < e; r++)
            solve_row(c, z, b, r);
    }
}

static void channel_decay(struct scan_chunk *c, const struct scan_shape *z, int64_t n)
{
    const int64_t lk = z->lk, last = (n - 1) / SCAN_B;
    const float *end = c->since + (n - 1) * lk; /* by the whole of the last block */
    for (int64_t x = 0; x < z->dkp; x += LF_VL)
        lf_v_store(c->after + last * lk + x, lf_v_set1(1.0f));
    scan_each(c->corr, c->before + last * lk, end, z->dkp);
    for (int64_t p = last; p > 0; p--, end = c->since + ((p + 1) * SCAN_B - 1) * lk)
        scan_each(c->after + (p - 1) * lk, c->after + p * lk, end, z->dkp);
    for (int64_t i = 0; i < n; i++) {
        scan_each(c->kd + i * lk, c->until + i * lk, c->after + i / SCAN_B * lk, z->dkp);
        scan_each(c->kd + i * lk, c->kd + i * lk, c->k + i * lk, z->dkp);
    }
    memset(c->kd + n * lk, 0, (size_t)((scan_up(n) - n) * lk) * 4);
}

void LF_SYM(scan_decay)(struct scan_chunk *c, const struct scan_shape *z, int64_t n)
{
    if (z->in->per_channel) {
        channel_decay(c, z, n);
        return;
    }
    const float *lack = c->sum + SCAN_C;
    const lf_v last = lf_v_set1(c->sum[n - 1]), last_lack = lf_v_set1(lack[n - 1]);
    for (int64_t i = 0; i < n; i += LF_VL)
        lf_v_store(c->behind + i,
                   lf_v_exp((last - lf_v_load(c->sum + i)) + (last_lack - lf_v_load(lack + i))));
    memset(c->behind + n, 0, (size_t)(SCAN_C - n) * 4);
    for (int64_t x = 0; x < z->dkp; x++)
        c->corr[x] = c->eg[n - 1];
}

void LF_SYM(scan_fold)(struct scan_chunk *c, const struct scan_shape *z, int64_t n)
{
    LF_SYM(scan_decay)(c, z, n);
    const float *k = c->kd, *u = c->u;
    for (int64_t i = 0; i < n && !k; i++)
        scan_times(c->o + i * z->lv, c->u + i * z->lv, c->behind[i], z->dvp);
    if (!k)
        k = c->k, u = c->o;
    scan_product((struct scan_mm){z->dkp, z->dvp, n, k, z->lk, u, z->lv, c->s, z->lv}, true,
                 c->has_s ? ATTN_SCALE : ATTN_ZERO, c->corr);
}
