/* SPDX-License-Identifier: Apache-2.0
 *
 * The online-softmax step of attention: a block of query rows against one tile of keys. Used alike
 * over whole documents and over the paged cache, which is why both give the same bits.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/attn.h"

/* Rows of the small fields: a multiple of 16, so that each keeps 64-byte alignment. */
static int64_t field_rows(int64_t cap)
{
    return (cap + 15) / 16 * 16;
}

size_t LF_SYM(attn_block_floats)(const struct attn_shape *s, int64_t cap)
{
    const int64_t wide = s->reach ? 4 : 3; /* fields of 8 bytes */
    return (size_t)(cap * (s->dp + s->dvp) + (3 + wide * 2) * field_rows(cap) + ATTN_MR * ATTN_T);
}

void LF_SYM(attn_block_init)(struct attn_block *b, float *mem, const struct attn_shape *s,
                             int64_t cap)
{
    const int64_t f = field_rows(cap);
    b->n = 0;
    b->drop = NULL;
    b->q = mem;
    b->qa = mem;
    b->qs = s->dp * (int64_t)sizeof *mem;
    b->o = b->q + cap * s->dp;
    b->m = b->o + cap * s->dvp;
    b->l = b->m + f;
    b->slope = b->l + f;
    b->s = b->slope + f;
    b->pos = (int64_t *)(void *)(b->s + ATTN_MR * ATTN_T);
    b->lo = b->pos + f;
    b->hi = b->lo + f;
    b->places = (struct attn_places){NULL, 0};
    b->bias = s->reach ? (const float **)(void *)(b->hi + f) : NULL;
}

void LF_SYM(attn_block_add)(struct attn_block *b, const struct attn_shape *s, const void *q,
                            float slope, int64_t pos, int64_t len, struct attn_more m)
{
    const int64_t r = b->n++;
    float *mine = b->q + r * s->dp, *o = b->o + r * s->dvp;
    if (q && s->pairs)
        memcpy(mine, q, (size_t)s->d * sizeof(uint16_t));
    else if (q && s->x_type == LF_F32)
        LF_EACH_VEC(c, n, s->d) lf_put(mine, c, LF_F32, n, lf_get(q, c, LF_F32, n));
    else if (q)
        LF_EACH_VEC(c, n, s->d) lf_put(mine, c, LF_F32, n, lf_get(q, c, LF_BF16, n));
    for (int64_t c = 0; c < s->dvp; c += LF_VL)
        lf_v_store(o + c, lf_v_zero());
    b->m[r] = -INFINITY;
    b->l[r] = 0.0f;
    b->slope[r] = slope;
    b->pos[r] = pos;
    attn_range(s, pos, len, m, &b->lo[r], &b->hi[r]);
}

/* What the rows of a strip see of the tile. */
struct strip {
    int64_t r0, mr;
    int64_t lo[ATTN_MR], hi[ATTN_MR];
    int64_t max_lo, min_hi, max_hi;
    float corr[ATTN_MR > LF_VL ? 2 * LF_VL : LF_VL > 8 ? LF_VL : 8];
};

static void strip_init(struct strip *t, const struct attn_block *b, int64_t r0, int64_t key0)
{
    t->r0 = r0;
    t->mr = b->n - r0 < ATTN_MR ? b->n - r0 : ATTN_MR;
    t->max_lo = 0;
    t->min_hi = ATTN_T;
    t->max_hi = 0;
    for (int64_t r = 0; r < t->mr; r++) {
        int64_t lo = b->lo[r0 + r] - key0, hi = b->hi[r0 + r] - key0;
        lo = lo < 0 ? 0 : lo > ATTN_T ? ATTN_T : lo;
        hi = hi < lo ? lo : hi > ATTN_T ? ATTN_T : hi;
        t->lo[r] = lo;
        t->hi[r] = hi;
        t->max_lo = lo > t->max_lo ? lo : t->max_lo;
        t->min_hi = hi < t->min_hi ? hi : t->min_hi;
        if (hi > lo && hi > t->max_hi)
            t->max_hi = hi;
    }
}

/* Scores of row i of the block, which is row r of the strip, in place, invisible lanes -inf;
 * returns the maximum. cols covers every visible key. */
LF_INLINE float row_scores(const struct attn_block *b, const struct attn_shape *s,
                           const struct strip *t, int64_t r, int64_t cols, int64_t key0)
{
    const lf_v ninf = lf_v_set1(-INFINITY);
    const int64_t i = t->r0 + r, lo = t->lo[r], hi = t->hi[r], pos = b->pos[i];
    const float slope = b->slope[i];
    float *row = b->s + r * ATTN_T, add[ATTN_T];
    lf_v top = ninf;
    if (s->reach)
        attn_bias_tile(add, b->bias[i], s, &b->places, pos, key0);
    for (int64_t c = 0; c < cols; c += LF_VL) {
        lf_v v = attn_score(s, lf_v_load(row + c), slope, s->reach ? add + c : NULL, pos, key0 + c,
                            NULL);
        if (lo > c || hi < c + LF_VL) {
            lf_vi lane = lf_vi_iota() + lf_vi_set1((int32_t)c);
            v = lf_v_select((lane >= lf_vi_set1((int32_t)lo)) & (lane < lf_vi_set1((int32_t)hi)), v,
                            ninf);
        }
        lf_v_store(row + c, v);
        top = lf_v_max(top, v);
    }
    return lf_v_hmax(top);
}

/* The same for a whole tile in sight, scaled only. */
LF_INLINE float row_scores_plain(float *row, float scale)
{
    lf_v v[ATTN_T / LF_VL];
#pragma GCC unroll 16
    for (int c = 0; c < ATTN_T / LF_VL; c++) {
        v[c] = lf_v_load(row + c * LF_VL) * lf_v_set1(scale);
        lf_v_store(row + c * LF_VL, v[c]);
    }
#pragma GCC unroll 16
    for (int c = 1; c < ATTN_T / LF_VL; c++)
        v[0] = lf_v_max(v[0], v[c]);
    return lf_v_hmax(v[0]);
}

/* Probabilities of one row, stored as the product's left operand; returns their sum before
 * rounding. */
LF_INLINE float row_probs(const struct attn_shape *s, float *row, int64_t cols, float m)
{
    const lf_v vm = lf_v_set1(m);
    lf_v sum = lf_v_zero();
#pragma GCC unroll 4
    for (int64_t c = 0; c < cols; c += LF_VL) {
        lf_v p = lf_v_exp(lf_v_load(row + c) - vm);
        sum += p;
        /* pair (c, c+1) is unit c/2; never ahead of what is read */
        if (LF_BF16_DOT && s->pairs) {
            lf_v_store_factors((uint16_t *)(void *)row + c, p);
            continue;
        }
        lf_v_store(row + c, lf_vt_round(p, s->x_type == LF_BF16));
    }
    return lf_v_hsum(sum);
}

/* The same with dropout: the sum is that of all keys. */
static float row_probs_dropped(const struct attn_block *b, const struct attn_shape *s, float *row,
                               int64_t cols, float m, int64_t i, int64_t key0)
{
    float scale[ATTN_T];
    const lf_v vm = lf_v_set1(m);
    lf_v sum = lf_v_zero();
    LF_SYM(attn_drop_tile)(scale, b->drop, b->drop_row + i, b->drop_head, key0);
    for (int64_t c = 0; c < cols; c += LF_VL) {
        lf_v p = lf_v_exp(lf_v_load(row + c) - vm);
        sum += p;
        p *= lf_v_load(scale + c);
        if (LF_BF16_DOT && s->pairs) {
            lf_v_store_factors((uint16_t *)(void *)row + c, p);
            continue;
        }
        lf_v_store(row + c, lf_vt_round(p, s->x_type == LF_BF16));
    }
    return lf_v_hsum(sum);
}

static void strip_softmax(struct attn_block *b, const struct attn_shape *s, struct strip *t,
                          int64_t key0, int64_t cols)
{
    float top[ATTN_MR];
    for (int64_t r = 0; r < t->mr; r++) {
        const int64_t i = t->r0 + r;
        t->corr[r] = 0.0f;
        top[r] = b->m[i];
        if (t->hi[r] <= t->lo[r])
            continue;
        const bool plain = t->lo[r] == 0 && t->hi[r] == ATTN_T && s->softcap == 0.0f &&
                           b->slope[i] == 0.0f && !s->reach;
        float m = plain ? row_scores_plain(b->s + r * ATTN_T, s->scale)
                        : row_scores(b, s, t, r, cols, key0);
        top[r] = m > b->m[i] ? m : b->m[i];
        t->corr[r] = b->m[i] - top[r];
    }
    for (int64_t r = 0; r < t->mr; r += LF_VL)
        lf_v_store(t->corr + r, lf_v_exp(lf_v_load(t->corr + r)));
    for (int64_t r = 0; r < t->mr; r++) {
        const int64_t i = t->r0 + r;
        if (t->hi[r] <= t->lo[r])
            continue;
        float sum = b->drop ? row_probs_dropped(b, s, b->s + r * ATTN_T, cols, top[r], i, key0)
                    : cols == ATTN_T ? row_probs(s, b->s + r * ATTN_T, ATTN_T, top[r])
                                     : row_probs(s, b->s + r * ATTN_T, cols, top[r]);
        b->l[i] = b->l[i] * t->corr[r] + sum;
        b->m[i] = top[r];
    }
}

/* o += p[k0, k1) v for rows [r, r + m) of the strip; k in units of the product. */
static void add_range(struct attn_block *b, const struct attn_shape *s, const struct strip *t,
                      const float *v, int64_t ldv, int64_t r, int64_t m, int64_t k0, int64_t k1,
                      enum attn_init init)
{
    struct attn_mm g = {.m = m,
                        .n = s->dvp,
                        .k = k1 - k0,
                        .ars = ATTN_T * 4,
                        .acs = 4,
                        .b = v + k0 * ldv,
                        .ldb = ldv,
                        .ldc = s->dvp,
                        .pairs = s->pairs,
                        .init = init};
    g.a = b->s + r * ATTN_T + k0;
    g.c = b->o + (t->r0 + r) * s->dvp;
    g.corr = init == ATTN_SCALE ? t->corr + r : NULL;
    LF_SYM(attn_mm)(&g);
}

#if LF_BF16_DOT
/* One key whose partner in the pair is invisible: the partner's value is cleared, for it may be
 * NaN. */
static void add_half(float *o, const float *prob, const float *v, int64_t dp, uint32_t keep)
{
    float p;
    memcpy(&p, prob, sizeof p);
    const lf_vi mask = lf_vi_set1((int)keep);
    for (int64_t c = 0; c < dp; c += LF_VL) {
        lf_v u = (lf_v)((lf_vi)lf_v_load(v + c) & mask);
        lf_v_store(o + c, lf_v_dot(lf_v_set1(p), u, lf_v_load(o + c)));
    }
}
#endif

/* Row r alone over keys [lo, hi) except the units [u0, u1), which all rows take together: before =
 * the part below. */
static void add_edge(struct attn_block *b, const struct attn_shape *s, const struct strip *t,
                     const float *v, int64_t ldv, int64_t r, int64_t u0, int64_t u1, bool before)
{
    const int64_t lo = t->lo[r], hi = t->hi[r];
    if (!s->pairs) {
        int64_t k0 = before ? lo : u1, k1 = before ? u0 : hi;
        if (k0 < k1)
            add_range(b, s, t, v, ldv, r, 1, k0, k1, ATTN_ADD);
        return;
    }
#if LF_BF16_DOT
    float *o = b->o + (t->r0 + r) * s->dvp;
    const float *p = b->s + r * ATTN_T;
    int64_t k0 = before ? (lo + 1) / 2 : u1, k1 = before ? u0 : hi / 2;
    if (before && lo % 2 && lo < hi)
        add_half(o, p + lo / 2, v + lo / 2 * s->dvp, s->dvp, 0xffff0000u);
    if (k0 < k1)
        add_range(b, s, t, v, ldv, r, 1, k0, k1, ATTN_ADD);
    if (!before && hi % 2 && hi > lo)
        add_half(o, p + hi / 2, v + hi / 2 * s->dvp, s->dvp, 0x0000ffffu);
#endif
}

static void strip_values(struct attn_block *b, const struct attn_shape *s, const struct strip *t,
                         const float *v, int64_t ldv)
{
    const int64_t ku = s->pairs ? 2 : 1;
    int64_t u0 = (t->max_lo + ku - 1) / ku, u1 = t->min_hi / ku;
    bool edges = false;
    for (int64_t r = 0; r < t->mr; r++)
        edges |= t->lo[r] != u0 * ku || t->hi[r] != u1 * ku;
    if (!edges) {
        add_range(b, s, t, v, ldv, 0, t->mr, u0, u1, ATTN_SCALE);
        return;
    }
    /* without a common range every row goes alone, from its own first unit */
    const bool common = u0 < u1;
    bool left = !common;
    for (int64_t r = 0; r < t->mr; r++)
        left |= t->lo[r] != u0 * ku;
    if (left) {
        add_range(b, s, t, v, ldv, 0, t->mr, 0, 0, ATTN_SCALE);
        for (int64_t r = 0; r < t->mr; r++) {
            int64_t mid = common ? u0 : t->hi[r] / ku;
            add_edge(b, s, t, v, ldv, r, mid, mid, true);
        }
    }
    if (common)
        add_range(b, s, t, v, ldv, 0, t->mr, u0, u1, left ? ATTN_ADD : ATTN_SCALE);
    for (int64_t r = 0; r < t->mr; r++) {
        int64_t mid = common ? u1 : t->hi[r] / ku;
        add_edge(b, s, t, v, ldv, r, mid, mid, false);
    }
}

void LF_SYM(attn_block_tile)(struct attn_block *b, const struct attn_shape *s, int64_t key0,
                             const float *kt, const float *v, int64_t ldv)
{
    struct strip t;
    for (int64_t r0 = 0; r0 < b->n; r0 += ATTN_MR) {
        strip_init(&t, b, r0, key0);
        if (t.max_hi == 0)
            continue;
        int64_t cols = (t.max_hi + 15) / 16 * 16;
        struct attn_mm g = {.m = t.mr,
                            .n = cols,
                            .k = s->kd,
                            .a = (const char *)b->qa + r0 * b->qs,
                            .ars = b->qs,
                            .acs = 4,
                            .b = kt,
                            .ldb = ATTN_T,
                            .c = b->s,
                            .ldc = ATTN_T,
                            .pairs = s->pairs,
                            .init = ATTN_ZERO};
        LF_SYM(attn_mm)(&g);
        strip_softmax(b, s, &t, key0, cols);
        strip_values(b, s, &t, v, ldv);
    }
}

float LF_SYM(attn_block_out)(const struct attn_block *b, const struct attn_shape *s, int64_t r,
                             float sink, void *o)
{
    const bool sunk = sink != -INFINITY && b->l[r] != 0.0f; /* a NaN goes on */
    const float m = sunk && sink > b->m[r] ? sink : b->m[r], was = sunk ? expf(b->m[r] - m) : 1.0f,
                l = sunk ? b->l[r] * was + expf(sink - m) : b->l[r];
    const lf_v inv = lf_v_set1(l == 0.0f ? 0.0f : was / l);
    const float *sum = b->o + r * s->dvp;
    if (s->x_type == LF_F32)
        LF_EACH_VEC(c, n, s->dv) lf_put(o, c, LF_F32, n, lf_v_load(sum + c) * inv);
    else
        LF_EACH_VEC(c, n, s->dv) lf_put(o, c, LF_BF16, n, lf_v_load(sum + c) * inv);
    return l == 0.0f ? -INFINITY : m + logf(l);
}
