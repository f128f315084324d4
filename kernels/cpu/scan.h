/* SPDX-License-Identifier: Apache-2.0
 *
 * What the scan and the convolution share: walking the rows of documents or sequences, and the
 * forward part of a chunk, which the backward forms again.
 *
 * Every matrix of a chunk is f32 and padded to 16 columns with zeros; products are attn_mm, whose
 * elements are ascending chains. Rows [i0, i1) of a chunk are computed from rows below i1 alone, in
 * an order that does not depend on i0 and i1: so a row that is generated has the bits of training.
 */
#ifndef LF_KERNELS_CPU_SCAN_H
#define LF_KERNELS_CPU_SCAN_H

#include "kernels/cpu/attn.h"

/* Rows [row, row + n) of one document or sequence, of which `before` rows were in earlier calls.
 * seq: the slot of the sequence; -1: rows that give zeros. */
struct scan_span {
    int64_t row, n, before, seq, next;
};
struct scan_rows {
    int64_t rows, n_docs;
    const int32_t *cu, *seq, *pos; /* documents where seq is NULL */
};
/* The next span, from one with next = 0 on; false behind the last. */
LF_INLINE bool scan_next(const struct scan_rows *r, struct scan_span *s)
{
    if (!r->seq) {
        const int64_t i = s->next++;
        if (i > r->n_docs)
            return false;
        const int64_t b = r->cu[i], e = i < r->n_docs ? r->cu[i + 1] : r->rows;
        s->row = b < r->rows ? b : r->rows;
        s->n = (e < r->rows ? e : r->rows) - s->row;
        s->before = 0;
        s->seq = i < r->n_docs ? i : -1;
        return true;
    }
    if (s->next >= r->rows)
        return false;
    s->row = s->next;
    s->seq = r->seq[s->row];
    s->before = r->pos[s->row];
    while (s->next < r->rows && r->seq[s->next] == s->seq)
        s->next++;
    s->n = s->next - s->row;
    return true;
}

enum { SCAN_C = LF_SCAN_CHUNK, SCAN_B = 16, SCAN_LA = SCAN_C + 16, SCAN_H = 4 };

struct scan_shape {
    const struct lf_scan_in *in;
    /* padded widths, and the row distances, which keep columns out of each other's cache sets */
    int64_t dkp, dvp, lk, lv;
};
LF_INLINE struct scan_shape scan_shape_of(const struct lf_scan_in *in)
{
    const int64_t k = lf_scan_pad(in->dk), v = lf_scan_pad(in->dv);
    return (struct scan_shape){in, k, v, k + 16, v + 16};
}

/* Heads [head, head + n) of key head `key`. */
struct scan_block {
    int64_t key, head, n;
};
/* Heads of a block, of which the last one of a key head may have less; blocks of a key head. With
 * decays per channel heads share nothing but rows. Sums over heads depend on it, so it depends on
 * nothing that threads or documents change. */
LF_INLINE int64_t scan_block_heads(const struct lf_scan_in *in)
{
    const int64_t per = in->heads / in->groups;
    return in->per_channel ? 1 : per < SCAN_H ? per : SCAN_H;
}
LF_INLINE int64_t scan_blocks(const struct lf_scan_in *in)
{
    const int64_t most = scan_block_heads(in);
    return (in->heads / in->groups + most - 1) / most;
}
/* Block i of those of all key heads. */
LF_INLINE struct scan_block scan_block_of(const struct lf_scan_in *in, int64_t i)
{
    const int64_t per = in->heads / in->groups, most = scan_block_heads(in), n = scan_blocks(in),
                  first = i % n * most;
    return (struct scan_block){i / n, i / n * per + first, per - first < most ? per - first : most};
}

/* The buffers of a chunk. Heads that share their keys are taken in blocks: what is made of q and k
 * alone (first part) serves all heads of a block, the rest is made for one after the other. */
struct scan_chunk {
    float *q, *k; /* [64][lk] as the products take them */
    float *raw;   /* [2][64][LA] q k^T, and with delta k k^T; one decay for a head alone */
    float *tile;  /* [max(dkp, dvp)][64]: a transpose */

    float *ss;       /* S of the heads of a block, each as s */
    float *s;        /* [dkp][lv], of the head at hand */
    float *u;        /* [64][lv] v, then what (I + A) is solved for, then U */
    float *t;        /* V - K+ S where the backward asks for it, else NULL */
    float *o;        /* [64][lv]; a scratch where O is not wanted */
    float *na, *p;   /* [64][LA]: -A (NULL where there is none), P */
    float *ag, *gam; /* A without beta, Gam, of the backward; gam: one decay for a head alone */
    float *g;        /* [64], or [64][lk]: g, not below SCAN_FADED */
    float *beta;     /* [64] */
    float *corr;     /* [dkp] e^(G_n) */
    /* of one decay for a head, else NULL */
    float *sum;         /* [2][64]: G as f32 sums, and what they lack */
    float *eg, *behind; /* [64] e^G, e^(G_n - G) */
    /* of decays per channel, else NULL */
    float *step;           /* [64][lk] e^g */
    float *since, *until;  /* [64][lk]: by the rows of a block up to a row, and behind it */
    float *before, *after; /* [4][lk]: by the blocks before a block, and behind it */
    float *qp, *kp;        /* [64][lk] e^G q, e^G k */
    float *kd;             /* [64][lk] e^(G_n - G) k; then rows as the backward needs them */
    float *few;            /* [2][16][lk] rows of a block, of q and k */
    bool has_s;            /* S is not zero */
    bool state_only;       /* S behind the chunk is all that is wanted: q is not read, P not made */
};
/* Lays the buffers out from base on (NULL: only counts). Returns the floats that they take. */
size_t LF_SYM(scan_chunk_lay)(struct scan_chunk *c, const struct scan_shape *z, float *base,
                              bool backward);
LF_INLINE size_t scan_chunk_floats(const struct scan_shape *z, bool backward)
{
    struct scan_chunk none;
    return LF_SYM(scan_chunk_lay)(&none, z, NULL, backward);
}

/* Rows [i0, i1) of the chunk that begins at `row` of the call: q and k of a key head, and their
 * products where the scores of its heads differ by factors. Rows up to the next multiple of 16 are
 * zeros. */
void LF_SYM(scan_keys)(struct scan_chunk *c, const struct scan_shape *z, int64_t row, int64_t key,
                       int64_t i0, int64_t i1);
/* The same of head h: v, beta, g, and what is made of the g of rows [0, i1). Where a state fades
 * fast the sums of one decay for a head are long, and the decay of two near rows is a small
 * difference of theirs: so what each sum rounds away is summed beside it. Decays per channel are
 * made of sums within blocks of 16 rows, from either end, and no difference is taken. */
void LF_SYM(scan_load)(struct scan_chunk *c, const struct scan_shape *z, int64_t row, int64_t h,
                       int64_t i0, int64_t i1);
/* -A and P of the rows, then U of them. */
void LF_SYM(scan_scores)(struct scan_chunk *c, const struct scan_shape *z, int64_t i0, int64_t i1);
void LF_SYM(scan_solve)(struct scan_chunk *c, const struct scan_shape *z, int64_t i0, int64_t i1);
/* corr and behind, or kd, of a chunk of n rows; then S takes the chunk in. */
void LF_SYM(scan_decay)(struct scan_chunk *c, const struct scan_shape *z, int64_t n);
void LF_SYM(scan_fold)(struct scan_chunk *c, const struct scan_shape *z, int64_t n);

LF_INLINE int64_t scan_up(int64_t n)
{
    return (n + SCAN_B - 1) / SCAN_B * SCAN_B;
}

/* n rows of d channels, `stride` values apart, become the columns of dst. */
LF_INLINE void scan_pack_cols(float *dst, const float *src, int64_t stride, int64_t n, int64_t d)
{
    const struct attn_rows rows = {
        .src = src, .stride = stride * (int64_t)sizeof *src, .n = n, .d = d};
    LF_SYM(attn_pack_cols)(dst, &rows, &(struct attn_shape){.x_type = LF_F32}, NULL);
}

/* C (+)= op(A) B with A [m, k], or with ta [k, m], row distances in floats. */
struct scan_mm {
    int64_t m, n, k;
    const float *a;
    int64_t lda;
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
};
LF_INLINE void scan_product(struct scan_mm g, bool ta, enum attn_init init, const float *corr)
{
    const struct attn_mm mm = {.m = g.m,
                               .n = g.n,
                               .k = g.k,
                               .a = g.a,
                               .ars = ta ? 4 : g.lda * 4,
                               .acs = ta ? g.lda * 4 : 4,
                               .b = g.b,
                               .ldb = g.ldb,
                               .c = g.c,
                               .ldc = g.ldc,
                               .corr = corr,
                               .init = init};
    if (g.m > 0)
        LF_SYM(attn_mm)(&mm);
}

/* e^SCAN_FADED is 0 in f32, as are decays below it, and its sums stay exact enough. */
#define SCAN_FADED (-128.0f)

/* Floats of a row of g. */
LF_INLINE int64_t scan_ldg(const struct scan_shape *z)
{
    return z->in->per_channel ? z->lk : 1;
}

/* y[i] = x[i] by[i] for rows of n floats. */
LF_INLINE void scan_each(float *y, const float *x, const float *by, int64_t n)
{
    for (int64_t c = 0; c < n; c += LF_VL)
        lf_v_store(y + c, lf_v_load(x + c) * lf_v_load(by + c));
}
LF_INLINE void scan_times(float *y, const float *x, float by, int64_t n)
{
    for (int64_t c = 0; c < n; c += LF_VL)
        lf_v_store(y + c, lf_v_load(x + c) * lf_v_set1(by));
}
/* e^x of one number, with the bits of a lane. */
LF_INLINE float scan_exp(float x)
{
    return lf_v_exp(lf_v_set1(x))[0];
}

/* A row of n floats from type t, with zeros up to a multiple of 16. */
LF_INLINE void scan_row(float *dst, const void *src, int64_t n, uint8_t t)
{
    LF_EACH_VEC(c, m, n)
    lf_v_store(dst + c, lf_get(src, c, t, m));
    for (int64_t c = (n + LF_VL - 1) / LF_VL * LF_VL; c < lf_scan_pad(n); c += LF_VL)
        lf_v_store(dst + c, lf_v_zero());
}
/* Asks for a row of n elements that is loaded soon: rows lie far apart. */
enum { SCAN_ASK = 6 }; /* rows ahead */
LF_INLINE void scan_ask(const void *row, int64_t n, uint8_t t)
{
    for (int64_t b = 0; b < n * (int64_t)lf_dtype_size((enum lf_dtype)t); b += 64)
        __builtin_prefetch((const char *)row + b, 0, 3);
}
/* The row that is asked for at row r of `rows`. */
LF_INLINE int64_t scan_far(int64_t r, int64_t rows)
{
    return r + SCAN_ASK < rows ? r + SCAN_ASK : r;
}
LF_INLINE float scan_dot(const float *x, const float *y, int64_t n)
{
    lf_v s = lf_v_zero();
    for (int64_t c = 0; c < n; c += LF_VL)
        s = lf_v_fma(lf_v_load(x + c), lf_v_load(y + c), s);
    return lf_v_hsum(s);
}

#endif
