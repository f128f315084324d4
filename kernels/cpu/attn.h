/* SPDX-License-Identifier: Apache-2.0
 *
 * What the attention kernels share: panels of keys and values, a small register-blocked matrix
 * product over panels, and the online-softmax step of a block of query rows over one tile of
 * LF_ATTN_TILE keys.
 *
 * Units. A panel element (a unit) has 32 bits. With bf16 data on an instruction set that multiplies
 * pairs of bf16 (`pairs`), a unit is two bf16 that are neighbours along the reduction. Otherwise it
 * is an f32: bf16 data is widened, and the left operands of the products are rounded to bf16 where
 * the pair form rounds them. So both forms round at the same points. Values of an odd number of
 * channels have no pairs, so their heads take the second form.
 *
 * Bits of a row. A score is one ascending chain over the channels. An output is one ascending chain
 * over the keys that the row sees, tile by tile. Rows are blocked for speed only. Of a tile a row
 * sees its own range [lo, hi). Neither other rows nor invisible keys (even NaN) enter its chains.
 */
#ifndef LF_KERNELS_CPU_ATTN_H
#define LF_KERNELS_CPU_ATTN_H

#include "kernels/cpu/ops.h"

enum {
    ATTN_T = LF_ATTN_TILE,
    ATTN_MR = 6,  /* query rows in registers at a time */
    ATTN_QB = 48, /* query rows of one block */
    ATTN_MAX_D = LF_ATTN_MAX_CHANNELS
};

static inline bool attn_pairs(uint8_t x_type, int64_t d_value)
{
    return LF_BF16_DOT && x_type == LF_BF16 && d_value % 2 == 0;
}
static inline int64_t attn_dp(int64_t d)
{
    return (d + 15) / 16 * 16;
}
static inline int64_t attn_tiles(int64_t n)
{
    return (n + ATTN_T - 1) / ATTN_T;
}

enum attn_init { ATTN_ZERO, ATTN_ADD, ATTN_SCALE };

/* C[m][n] = init + A B. n is a multiple of 16. C is f32 with row distance ldc.
 *   unit k of row r of A   at a + r * ars + k * acs (bytes)
 *   unit (k, c) of B       at b + (k * ldb + c) * 4 (bytes)
 *   init                   0, C, or C[r] * corr[r]
 * Each element is one ascending chain of fused multiply-adds over k. */
struct attn_mm {
    int64_t m, n, k;
    const void *a;
    int64_t ars, acs;
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    const float *corr;
    bool pairs;
    enum attn_init init;
};
void LF_SYM(attn_mm)(const struct attn_mm *g);

/* Memory to prefetch: of each of `rows` rows, the bytes [0, p_bytes) at p and [0, q_bytes) at q;
 * rows are p_stride and q_stride bytes apart. A core drops prefetches that come in long bursts. So
 * the packing loops ask for `quota` cache lines of each at a time. */
struct attn_ahead {
    const char *p, *q;
    int64_t p_bytes, q_bytes, p_stride, q_stride, rows, at, quota;
};
LF_INLINE void attn_ask(struct attn_ahead *w)
{
    for (int64_t i = 0; i < w->quota && w->rows > 0; i++) {
        if (w->at < w->p_bytes)
            __builtin_prefetch(w->p + w->at, 0, 2);
        if (w->at < w->q_bytes)
            __builtin_prefetch(w->q + w->at, 0, 2);
        w->at += 64;
        if (w->at >= w->p_bytes && w->at >= w->q_bytes) {
            w->at = 0;
            w->p += w->p_stride;
            w->q += w->q_stride;
            w->rows--;
        }
    }
}

/* n rows of d channels, the first at src and the others `stride` bytes apart. */
struct attn_rows {
    const void *src;
    int64_t stride, n, d;
};
struct attn_shape;
/* dst[d / ku][ATTN_T]: the rows become columns. Columns >= n are 0. ku is 2 with pairs, else 1.
 * ahead may be NULL. */
void LF_SYM(attn_pack_cols)(float *dst, const struct attn_rows *r, const struct attn_shape *s,
                            struct attn_ahead *ahead);
/* dst[ceil(n / ku)][attn_dp(d)]: the rows stay rows, padded with 0 to pad rows and whole vectors of
 * channels. */
void LF_SYM(attn_pack_rows)(float *dst, const struct attn_rows *r, int64_t pad,
                            const struct attn_shape *s);

/* The values that all rows of a call share. */
struct attn_shape {
    int64_t d, dp, kd;    /* channels of q and k, padded, and units of the score reduction */
    int64_t dv, dvp, kdv; /* the same of v and o; kdv: of the reduction of do . v */
    float scale, softcap;
    int64_t window;
    int64_t reach, heads; /* of the bias; reach 0: there is none */
    uint8_t x_type;
    bool causal, pairs;
};

/* The shape of a call (struct lf_k_attn_fwd and its like). */
#define ATTN_SHAPE_OF(a, is_causal)                                                                \
    attn_shape_of((a)->d, (a)->d_value,                                                            \
                  &(struct attn_shape){.scale = (a)->scale,                                        \
                                       .softcap = (a)->softcap,                                    \
                                       .window = (a)->window,                                      \
                                       .reach = (a)->bias.reach,                                   \
                                       .heads = (a)->heads,                                        \
                                       .x_type = (a)->x_type,                                      \
                                       .causal = (is_causal)})
static inline struct attn_shape attn_shape_of(int64_t d, int64_t d_value,
                                              const struct attn_shape *rest)
{
    struct attn_shape s = *rest;
    s.pairs = attn_pairs(s.x_type, d_value);
    s.d = d;
    s.dp = attn_dp(d);
    s.kd = s.pairs ? d / 2 : d;
    s.dv = d_value;
    s.dvp = attn_dp(d_value);
    s.kdv = s.pairs ? d_value / 2 : d_value;
    return s;
}

/* Head sizes and row distances that every call of attention shares. */
static inline bool attn_heads_ok(int64_t heads, int64_t groups, int64_t d, int64_t d_value)
{
    return heads > 0 && groups > 0 && heads % groups == 0 && d > 0 && d % 2 == 0 &&
           d <= ATTN_MAX_D && d_value > 0 && d_value <= ATTN_MAX_D;
}

/* What a query may see behind its own key: the first `prefix` keys of its document, and those below
 * run[1] (NULL: none). */
struct attn_more {
    int64_t prefix;
    const int32_t *run;
};

/* The first key that the window or chunk of a row at position pos leaves it. */
static inline int64_t attn_first(const struct attn_shape *s, int64_t pos)
{
    const int64_t first = s->window < 0 ? pos / -s->window * -s->window : pos - s->window + 1;
    return s->window != 0 && first > 0 ? first : 0;
}

/* The end of the rows, of a document of len, that windows or chunks leave the key at position
 * pos. */
static inline int64_t attn_past(const struct attn_shape *s, int64_t pos, int64_t len)
{
    const int64_t end = s->window < 0 ? (pos / -s->window + 1) * -s->window : pos + s->window;
    return s->window != 0 && end < len ? end : len;
}

/* The keys [*lo, *hi) that the query at position pos sees, of a document of len keys. */
static inline void attn_range(const struct attn_shape *s, int64_t pos, int64_t len,
                              struct attn_more m, int64_t *lo, int64_t *hi)
{
    int64_t open = pos + 1 > m.prefix ? pos + 1 : m.prefix;
    if (m.run && m.run[1] > open)
        open = m.run[1];
    *hi = s->causal && open < len ? open : len;
    *lo = pos >= m.prefix ? attn_first(s, pos) : 0;
    if (*lo > *hi)
        *lo = *hi;
}

/* Query rows that follow each other in a document: `n` of them from position pos on, the first of
 * which is row `row` of the call's queries. */
struct attn_part {
    int64_t pos, n, row;
};

static inline int64_t attn_own_rows(const struct lf_k_attn_own *o, int64_t rows)
{
    return o->first || o->cu ? o->n : rows;
}

/* The first row of the call's own ones whose block ends behind row `begin` of the keys. */
static inline int64_t attn_own_from(const struct lf_k_attn_own *o, int64_t begin)
{
    int64_t lo = 0, hi = (o->n + o->block - 1) / o->block;
    while (lo < hi) {
        const int64_t mid = lo + (hi - lo) / 2, left = o->n - mid * o->block;
        if (o->first[mid] + (left < o->block ? left : o->block) <= begin)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo * o->block;
}

/* The queries of document i where they have an axis of their own, as one part. */
static inline bool attn_part_apart(const struct lf_k_attn_own *o, int64_t i, struct attn_part *p)
{
    const int64_t first = o->cu[i] < o->n ? o->cu[i] : o->n,
                  end = o->cu[i + 1] < o->n ? o->cu[i + 1] : o->n;
    const bool more = p->n == 0 && end > first;
    *p = (struct attn_part){0, more ? end - first : 0, first};
    return more;
}

/* Makes *p the part behind it of document i, of rows [begin, begin + len) of the keys; the first
 * one where p->n is 0. Neighbouring blocks are one part. False: there is none. */
static inline bool attn_part_next(const struct lf_k_attn_own *o, int64_t i, int64_t begin,
                                  int64_t len, struct attn_part *p)
{
    if (o->cu)
        return attn_part_apart(o, i, p);
    if (!o->first) {
        const bool more = p->n == 0 && len > 0;
        *p = (struct attn_part){0, more ? len : 0, begin};
        return more;
    }
    int64_t row = p->n ? p->row + p->n : attn_own_from(o, begin);
    if (row >= o->n || len <= 0)
        return false;
    int64_t at = o->first[row / o->block] + row % o->block;
    if (at < begin) {
        row += begin - at;
        at = begin;
    }
    if (at >= begin + len)
        return false;
    int64_t end = row;
    do
        end = (end / o->block + 1) * o->block;
    while (end < o->n && o->first[end / o->block] == at + (end - row));
    end = end < o->n ? end : o->n;
    const int64_t n = end - row, most = begin + len - at;
    *p = (struct attn_part){at - begin, n < most ? n : most, row};
    return true;
}

/* The row behind the last of n_docs documents, on the axis that says where queries are. */
static inline int64_t attn_own_end(const struct lf_k_attn_own *o, const int32_t *cu_seqlens,
                                   int64_t n_docs)
{
    return o->cu ? o->cu[n_docs] : cu_seqlens[n_docs];
}

/* Is a query row behind the last document, which ends at row `end` of that axis? */
static inline bool attn_own_pads(const struct lf_k_attn_own *o, int64_t row, int64_t end)
{
    return (o->first ? o->first[row / o->block] + row % o->block : row) >= end;
}

static inline bool attn_own_ok(const struct lf_k_attn_own *o, int64_t rows)
{
    if (o->cu)
        return !o->first && o->n >= 0;
    return !o->first || (o->n >= 0 && o->n <= rows && o->block > 0 && o->keys >= 0 &&
                         o->key0 >= 0 && o->key0 + o->keys <= rows);
}

/* How many rows of keys are there. */
static inline int64_t attn_key_rows(const struct lf_k_attn_own *o, int64_t rows)
{
    return o->first && o->keys ? o->keys : rows;
}

/* The row of keys and values in memory that is row `row` of all. */
static inline int64_t attn_key_at(const struct lf_k_attn_own *o, int64_t row)
{
    return o->first && o->keys ? row - o->key0 : row;
}

/* Those of rows [begin, end) that are there, as rows in memory. */
static inline void attn_key_span(const struct lf_k_attn_own *o, int64_t rows, int64_t begin,
                                 int64_t end, int64_t *lo, int64_t *hi)
{
    const int64_t all = attn_key_rows(o, rows);
    *lo = attn_key_at(o, begin);
    *hi = attn_key_at(o, end);
    *lo = *lo > 0 ? *lo : 0;
    *hi = *hi < all ? *hi : all;
    if (*hi < *lo)
        *hi = *lo;
}

/* Which keys of the document of rows [begin, begin + len) are there: from a whole tile on. */
struct attn_there {
    int64_t from, end;
};
static inline struct attn_there attn_there(const struct lf_k_attn_own *o, int64_t begin,
                                           int64_t len)
{
    struct attn_there t = {0, len};
    if (!o->first || !o->keys)
        return t;
    const int64_t end = o->key0 + o->keys - begin;
    t.from = o->key0 > begin ? attn_tiles(o->key0 - begin) * ATTN_T : 0;
    t.end = end < len ? end : len;
    return t.from < t.end ? t : (struct attn_there){0, 0};
}

static inline bool attn_bias_ok(const struct lf_k_attn_bias *b)
{
    return b->reach == 0 || (b->reach > 0 && b->reach < INT32_MAX / 2 && b->table);
}
/* Does a call whose queries have an axis of their own ask for nothing that goes by positions? */
#define ATTN_APART_OK(a)                                                                           \
    (!(a)->own.cu || (!(a)->causal && !(a)->window && !(a)->prefix && !(a)->runs && !(a)->alibi && \
                      !(a)->bias.reach))

/* Where rows of a document are, for their bias: place [len], or NULL: where they stand. */
struct attn_places {
    const int32_t *place;
    int64_t len;
};
/* The row of the table for a key that is `far` behind the query. */
static inline int64_t attn_bias_row(int64_t reach, int64_t far)
{
    const int64_t most = reach - 1;
    return most + (far < -most ? -most : far > most ? most : far);
}
/* The bias of keys key0 ... key0 + ATTN_T - 1 for a query at position pos: column is that of its
 * head, H apart from row to row. Keys behind the document have none. */
static inline void attn_bias_tile(float add[ATTN_T], const float *column,
                                  const struct attn_shape *s, const struct attn_places *p,
                                  int64_t pos, int64_t key0)
{
    for (int64_t c = 0; c < ATTN_T; c++) {
        const int64_t key = key0 + c;
        if (!p->place)
            add[c] = column[attn_bias_row(s->reach, key - pos) * s->heads];
        else
            add[c] = key < p->len
                         ? column[attn_bias_row(s->reach, (int64_t)p->place[key] - p->place[pos]) *
                                  s->heads]
                         : 0.0f;
    }
}

/* Scores after scale, softcap and ALiBi; add: the bias of the lanes, or NULL. key0 is the document
 * position of lane 0. *dcap gets the derivative of the softcap; dcap may be NULL. */
LF_INLINE lf_v attn_score(const struct attn_shape *s, lf_v dot, float slope, const float *add,
                          int64_t pos, int64_t key0, lf_v *dcap)
{
    lf_v v = dot * lf_v_set1(s->scale);
    if (s->softcap > 0.0f) {
        lf_v t = lf_v_tanh(v / lf_v_set1(s->softcap));
        v = t * lf_v_set1(s->softcap);
        if (dcap)
            *dcap = lf_v_set1(1.0f) - t * t;
    }
    if (slope != 0.0f)
        v -= lf_v_set1(slope) * lf_v_from_int(lf_vi_set1((int32_t)(pos - key0)) - lf_vi_iota());
    if (add)
        v += lf_v_load(add);
    return v;
}

/* Dropout of a tile. scale[ATTN_T] becomes 1 / (1 - p) or 0 for the keys key0 ... key0 + ATTN_T - 1
 * of head h and query row `row` (counted in the call's rows). It is in elementwise.c, beside the
 * other random draws. */
void LF_SYM(attn_drop_tile)(float *scale, const struct lf_k_attn_drop *drop, int64_t row, int64_t h,
                            int64_t key0);

static inline bool attn_drop_ok(const struct lf_k_attn_drop *d, int64_t heads, int64_t rows)
{
    return d->p == 0.0f || (d->p > 0.0f && d->p < 1.0f && d->sample && d->position && d->rec &&
                            d->head0 + heads <= 1024 && rows < (int64_t)1 << 24);
}

/* A block of up to ATTN_QB query rows. It may mix the heads of one group and the rows of one
 * document. */
struct attn_block {
    int64_t n;
    /* rows of q, qs bytes apart: q below, or the caller's own rows when their elements are units */
    const void *qa;
    int64_t qs;
    float *q;               /* [n][dp] units */
    float *o;               /* [n][dvp] running sums */
    float *m, *l, *slope;   /* [n] running maximum and sum; ALiBi slope */
    int64_t *pos, *lo, *hi; /* [n] position; visible keys of the document */
    const float **bias;     /* [n] of shapes with a bias: the column of the row's head */
    struct attn_places places;
    float *s; /* [ATTN_MR][ATTN_T] scores, then probabilities */
    /* dropout, or NULL; with it, all rows are consecutive rows of one head */
    const struct lf_k_attn_drop *drop;
    int64_t drop_row, drop_head; /* row of the call that is row 0 of the block; its head */
};
/* attn_block_floats gives the floats that a block of up to cap rows needs. attn_block_init lays the
 * block out in mem (64-byte aligned). */
size_t LF_SYM(attn_block_floats)(const struct attn_shape *s, int64_t cap);
void LF_SYM(attn_block_init)(struct attn_block *b, float *mem, const struct attn_shape *s,
                             int64_t cap);
/* Append one query row of a document of len keys. q NULL: the row lies in qa, which the caller has
 * set. With a bias the caller sets bias[n - 1] then. */
void LF_SYM(attn_block_add)(struct attn_block *b, const struct attn_shape *s, const void *q,
                            float slope, int64_t pos, int64_t len, struct attn_more m);
/* One tile: the keys key0 ... key0 + ATTN_T - 1. kt is a panel of attn_pack_cols. v is a panel of
 * attn_pack_rows with ldv = dvp, or, for f32 with dv a multiple of 16, the rows themselves. No row
 * of v is read beyond the keys that some query row sees. */
void LF_SYM(attn_block_tile)(struct attn_block *b, const struct attn_shape *s, int64_t key0,
                             const float *kt, const float *v, int64_t ldv);
/* Write the normalised output of row r to o. Returns the row's log-sum-exp. sink: the score that
 * joins the row's softmax without a value; -INFINITY: none. A row that saw no key stays without. */
float LF_SYM(attn_block_out)(const struct attn_block *b, const struct attn_shape *s, int64_t r,
                             float sink, void *o);

#endif
