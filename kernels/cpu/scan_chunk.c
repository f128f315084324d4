/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward part of a chunk of a scan: rows, decays, the two triangles, the solved rows, and the
 * state behind the chunk.
 *
 * Decays per channel stand inside the products. Between a block of 16 rows and the rows before it
 * they are split at the block's first row, e^(G_i - G_first) e^(G_first - G_j), so that no exponent
 * is positive; within a block the decay of a pair is carried from row to row.
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
                {&c->sum, channel ? 2 * kn : 2 * SCAN_C},
                {&c->eg, channel ? none : SCAN_C},
                {&c->behind, channel ? none : SCAN_C},
                {&c->beta, SCAN_C},
                {&c->corr, (size_t)z->dkp},
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

void LF_SYM(scan_sums)(struct scan_chunk *c, const struct scan_shape *z, int64_t i0, int64_t i1)
{
    const int64_t ld = scan_ldg(z), low = scan_low(z);
    for (int64_t x = 0; x < (ld > 1 ? z->dkp : 1); x += LF_VL) {
        float *at = c->sum + x;
        const float *g = c->g + x;
        lf_v lack = lf_v_zero(), s = lack;
        if (i0 && ld > 1)
            s = lf_v_load(at + (i0 - 1) * ld), lack = lf_v_load(at + low + (i0 - 1) * ld);
        else if (i0)
            s = lf_v_set1(at[i0 - 1]), lack = lf_v_set1(at[low + i0 - 1]);
        for (int64_t i = i0; i < i1; i++) {
            if (ld > 1) {
                s = two_sum(s, lf_v_load(g + i * ld), &lack);
                lf_v_store(at + i * ld, s);
                lf_v_store(at + low + i * ld, lack);
            } else {
                s = two_sum(s, lf_v_set1(g[i]), &lack);
                at[i] = s[0];
                at[low + i] = lack[0];
            }
        }
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
    LF_SYM(scan_sums)(c, z, i0, i1);
    for (int64_t i = i0 / LF_VL * LF_VL; c->eg && i < i1; i += LF_VL)
        lf_v_store(c->eg + i, lf_v_exp(lf_v_load(c->sum + i)));
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

/* Pairs of a block: row j as the rows behind it see it. d is its decay up to row i; kd has the
 * decays of single rows. */
static void pairs(struct scan_chunk *c, const struct scan_shape *z, int64_t j, int64_t i0,
                  int64_t i1)
{
    float *d = c->few;
    for (int64_t x = 0; x < z->dkp; x += LF_VL)
        lf_v_store(d + x, lf_v_set1(1.0f));
    if (j >= i0)
        c->p[j * SCAN_LA + j] = scan_dot(c->q + j * z->lk, c->k + j * z->lk, z->dkp);
    for (int64_t i = j + 1; i < i1; i++) {
        const float *step = c->kd + i * z->lk, *q = c->q + i * z->lk, *k = c->k + i * z->lk;
        lf_v p = lf_v_zero(), a = p;
        for (int64_t x = 0; x < z->dkp; x += LF_VL) {
            const lf_v e = lf_v_load(d + x) * lf_v_load(step + x);
            const lf_v w = e * lf_v_load(c->k + j * z->lk + x);
            lf_v_store(d + x, e);
            p = lf_v_fma(lf_v_load(q + x), w, p);
            a = lf_v_fma(lf_v_load(k + x), w, a);
        }
        if (i < i0)
            continue;
        c->p[i * SCAN_LA + j] = lf_v_hsum(p);
        c->na[i * SCAN_LA + j] = z->in->delta ? lf_v_hsum(a) : 0.0f;
    }
}

/* Rows [i0, i1) of the block that begins at row b. */
static void block_scores(struct scan_chunk *c, const struct scan_shape *z, int64_t b, int64_t i0,
                         int64_t i1)
{
    const float *first = c->sum + b * z->lk;
    if (b) {
        for (int64_t j = 0; j < b; j++)
            scan_scaled(z, c->kd + j * z->lk, c->k + j * z->lk, first, c->sum + j * z->lk);
        scan_pack_cols(c->tile, c->kd, z->lk, b, z->dkp);
        for (int64_t i = i0; i < i1; i++) {
            float *q = c->few + (i - i0) * z->lk, *k = q + SCAN_B * z->lk;
            scan_scaled(z, q, c->q + i * z->lk, c->sum + i * z->lk, first);
            scan_scaled(z, k, c->k + i * z->lk, c->sum + i * z->lk, first);
        }
        raw_scores(c, z, c->few, c->few + SCAN_B * z->lk,
                   (struct scan_mm){.m = i1 - i0, .n = b, .c = c->p + i0 * SCAN_LA},
                   c->na + i0 * SCAN_LA);
    }
    for (int64_t i = i0; i < i1; i++) {
        memset(c->p + i * SCAN_LA + b, 0, SCAN_B * 4);
        memset(c->na + i * SCAN_LA + b, 0, SCAN_B * 4);
    }
    for (int64_t i = b + 1; i < i1; i++)
        for (int64_t x = i * z->lk; x < i * z->lk + z->dkp; x += LF_VL)
            lf_v_store(c->kd + x, lf_v_exp(lf_v_load(c->g + x)));
    for (int64_t j = b; j < i1; j++)
        pairs(c, z, j, i0, i1);
}

static void channel_scores(struct scan_chunk *c, const struct scan_shape *z, int64_t i0, int64_t i1)
{
    for (int64_t i = i0, e; i < i1; i = e) {
        const int64_t b = i / SCAN_B * SCAN_B;
        e = b + SCAN_B < i1 ? b + SCAN_B : i1;
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
    for (int64_t x = 0; x < z->dkp; x += LF_VL) {
        const lf_v e = lf_v_exp(lf_v_load(c->sum + at + x));
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

void LF_SYM(scan_decay)(struct scan_chunk *c, const struct scan_shape *z, int64_t n)
{
    if (z->in->per_channel) {
        const float *last = c->sum + (n - 1) * z->lk;
        for (int64_t i = 0; i < n; i++)
            scan_scaled(z, c->kd + i * z->lk, c->k + i * z->lk, last, c->sum + i * z->lk);
        memset(c->kd + n * z->lk, 0, (size_t)((scan_up(n) - n) * z->lk) * 4);
        for (int64_t x = 0; x < z->dkp; x += LF_VL)
            lf_v_store(c->corr + x, lf_v_exp(lf_v_load(last + x)));
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
