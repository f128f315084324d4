/* SPDX-License-Identifier: Apache-2.0
 *
 * What both forms of attention's backward share. One function body serves two kernels. Each kernel
 * owns some rows and walks the tiles of the other rows:
 *
 *     queries: own = (q, do), other = (k, v)      dq = sum over keys of ds k
 *     keys:    own = (k, v), other = (q, do)      dk = sum over queries of ds q
 *                                                 dv = sum over queries of p do
 *
 * with
 *     x     = own_0 . other_0, the product q . k
 *     y     = own_1 . other_1, the product do . v
 *     p     = 2^(x sl - lse), lse in base 2
 *     ds    = p (m y - delta) scale, times the derivative of the softcap
 *     m     = 1 / (1 - p_drop) or 0 (dropout)
 *     delta = do . o
 *
 * Each gradient is one chain over the tiles of the documents in order. In the keys kernel the heads
 * of the group ascend, and in each head the queries ascend. There are no atomics, and no block
 * waits for another. The price is that x and y are computed twice: seven products, where one pass
 * for all three gradients needs five.
 */
#ifndef LF_KERNELS_CUDA_ATTN_BWD_H
#define LF_KERNELS_CUDA_ATTN_BWD_H

#include "kernels/cuda/attn_dev.h"

/* What a row of a document sees, as in the forward; end: of all that it sees (attn_end). */
LF_DEV bool attn_visible(const struct attn_call *c, const struct attn_doc *d, int query, int key,
                         int end)
{
    return key < end && (key >= attn_first(c, query) || query < d->prefix);
}
LF_DEV int attn_end(const struct attn_call *c, const struct attn_doc *d, int query,
                    const int32_t *runs)
{
    int lo, hi;
    attn_range(c, query, d->len, d->prefix, attn_run(runs, d, query), &lo, &hi);
    return hi;
}

/* The queries [*lo, *hi) of a document that see some of the keys first ... last: a key is seen from
 * the first row of its run on. */
LF_DEV void attn_seen_by(const struct attn_call *c, const struct attn_doc *d, int first, int last,
                         const int32_t *runs, int *lo, int *hi)
{
    *lo = c->causal && first >= d->prefix ? first : 0;
    *hi = attn_past(c, last, d->len);
    if (first < d->prefix && *hi < d->prefix)
        *hi = d->prefix < d->len ? d->prefix : d->len;
    if (runs && attn_run(runs, d, first)[0] < *lo)
        *lo = attn_run(runs, d, first)[0] > 0 ? attn_run(runs, d, first)[0] : 0;
    if (*hi < *lo)
        *hi = *lo;
}

/* One element. *x and *y are read and become p and ds. m is the factor of dropout. */
LF_DEV void attn_element(const struct attn_call *c, float *x, float *y, bool visible, float slope,
                         int distance, float lse2, float delta, float m)
{
    float cap = 1.0f, v = *x;
    if (c->bent)
        v = attn_bend(c, v, slope, distance, &cap);
    const float p = visible ? lf_exp2(fmaf(v, c->sl, -lse2)) : 0.0f;
    *y = visible ? p * fmaf(*y, m, -delta) * (c->scale * cap) : 0.0f;
    *x = p * m;
}

/* One side (own or other). */
struct attn_side {
    const void *x, *y; /* q, do or k, v, at the head */
    int64_t ldx, ldy;
    int dx, dy; /* channels */
};
LF_DEV struct attn_side attn_query_side(const struct lf_k_attn_bwd *a, int h)
{
    const int64_t size = a->x_type == LF_F32 ? 4 : 2;
    struct attn_side s;
    s.x = (const char *)a->q + h * a->d * size;
    s.y = (const char *)a->d_o + h * a->d_value * size;
    s.ldx = a->ldq;
    s.ldy = a->lddo;
    s.dx = (int)a->d;
    s.dy = (int)a->d_value;
    return s;
}
LF_DEV struct attn_side attn_key_side(const struct lf_k_attn_bwd *a, int g)
{
    const int64_t size = a->x_type == LF_F32 ? 4 : 2;
    struct attn_side s;
    s.x = (const char *)a->k + g * a->d * size;
    s.y = (const char *)a->v + g * a->d_value * size;
    s.ldx = a->ldk;
    s.ldy = a->ldv;
    s.dx = (int)a->d;
    s.dy = (int)a->d_value;
    return s;
}

#endif
