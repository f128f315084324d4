/* SPDX-License-Identifier: Apache-2.0
 *
 * What both forms of attention's backward for 16-bit types share (attn_bwd.cu, attn_bwd_wgmma.cu):
 * an own row's state, elements, tiles. attn_bwd_body.h has the walk.
 */
#ifndef LF_KERNELS_CUDA_ATTN_BWD_MMA_H
#define LF_KERNELS_CUDA_ATTN_BWD_MMA_H

#include "kernels/cuda/attn_bwd.h"
#include "kernels/cuda/attn_mma.h"

enum { BWD_STAT = 3 * ATTN_T }; /* of a tile of queries: struct bwd_block */

struct bwd_block {
    const struct lf_k_attn_bwd *a;
    struct attn_call call;
    struct attn_doc doc;
    int row, lane;   /* first own row of this lane, as a row of the call */
    int first, last; /* own rows of the warp in the document, as positions; none: last < first */
    int step_first, step_last; /* of those that take a step together */
    float slope, *stat; /* keys: lse, delta and the end of what they see of the tile's queries */
    float lse[2], delta[2]; /* queries: of the own rows */
    int end[2];
};

/* Dropout's factors of this lane's elements, a bit each; keys: every element is another query's. */
LF_DEV uint32_t bwd_bits(const struct bwd_block *b, const struct attn_draws *d, int at, bool keys)
{
    uint32_t bits = 0;
    LF_ROLLED for (int i = 0; i < 32; i++)
    {
        const int own = b->row + 8 * (i >> 1 & 1) - b->doc.begin,
                  other = at + 8 * (i >> 2) + 2 * (b->lane & 3) + (i & 1);
        const int query = keys ? other : own, key = keys ? own : other;
        if (query < 0 || query >= b->doc.len || key < 0)
            continue;
        bits |=
            (uint32_t)(attn_keep(d, attn_draw_row(&b->a->drop, b->doc.begin + query), key) > 0.0f)
            << i;
    }
    return bits;
}

/* x, y of this warp's 16 rows against others at + col0 ..., 16 n of them, to p and ds. all: every
 * element is seen. */
LF_DEV void bwd_elements(const struct bwd_block *b, float x[8][4], float y[8][4],
                         const struct attn_draws *draws, uint32_t bits, int at, int col0,
                         const int n, bool keys, const bool all)
{
    bits >>= col0 / 2;
    LF_UNROLL for (int j = 0; j < 2 * n; j++)
    {
        LF_UNROLL for (int e = 0; e < 4; e++)
        {
            const int r = e >> 1, col = col0 + 8 * j + 2 * (b->lane & 3) + (e & 1),
                      own = b->row + 8 * r - b->doc.begin, other = at + col,
                      query = keys ? other : own, key = keys ? own : other;
            const int end = keys ? ((const int *)b->stat)[2 * ATTN_T + col] : b->end[r];
            /* queries outside of the document see nothing: their end is 0 */
            const bool in = !keys || (own >= b->first && own <= b->last),
                       visible = all || (in && attn_visible(&b->call, &b->doc, query, key, end));
            const float m = !draws ? 1.0f : bits >> (4 * j + e) & 1 ? draws->keep : 0.0f;
            attn_element(&b->call, &x[j][e], &y[j][e], visible, b->slope, query - key,
                         keys ? b->stat[col] : b->lse[r],
                         keys ? b->stat[ATTN_T + col] : b->delta[r], m);
        }
    }
}

/* lse in base 2, delta and the end of the keys of query t for head h. */
LF_DEV void bwd_stat(const struct bwd_block *b, int h, int t, bool in, float *lse, float *delta,
                     int *end)
{
    const int64_t at = h * b->a->rows + t;
    *lse = in ? b->a->lse[at] * ATTN_LOG2E : 0.0f;
    *delta = in ? ((const float *)b->a->work)[at] : 0.0f;
    *end = in ? attn_end(&b->call, &b->doc, t - b->doc.begin, b->a->runs) : 0;
}

/* Others [lo, hi) that some of own rows first ... last (positions in the document) meet; none: lo =
 * hi. */
LF_DEV void bwd_others(const struct bwd_block *b, int first, int last, bool keys, int *lo, int *hi)
{
    *lo = *hi = 0;
    if (first > last)
        return;
    if (keys) {
        attn_seen_by(&b->call, &b->doc, first, last, b->a->runs, lo, hi);
    } else {
        const struct attn_span s = attn_span_of(&b->call, &b->doc, first, last, b->a->runs);
        *lo = s.lo;
        *hi = s.hi;
    }
}

/* Ask for tile t of the others of head h. box: as in attn_place. */
LF_DEV void bwd_fetch(const struct bwd_block *b, const struct attn_side *other, uint16_t *to,
                      float *stat, int t, int h, bool vec, bool keys, const int dp, const int box,
                      const int threads)
{
    const int64_t from = b->doc.begin + t * ATTN_T;
    const int n = b->doc.len - t * ATTN_T, tid = (int)threadIdx.x;
    attn_fill_in(to, (const uint16_t *)other->x + from * other->ldx, other->ldx, n, other->dx, vec,
                 ATTN_T, dp, box, tid, threads);
    attn_fill_in(to + ATTN_T * dp, (const uint16_t *)other->y + from * other->ldy, other->ldy, n,
                 other->dy, vec, ATTN_T, dp, box, tid, threads);
    if (keys && tid < ATTN_T)
        bwd_stat(b, h, (int)from + tid, tid < n, &stat[tid], &stat[ATTN_T + tid],
                 (int *)stat + 2 * ATTN_T + tid);
}

#endif
