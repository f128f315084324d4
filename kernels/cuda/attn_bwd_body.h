/* SPDX-License-Identifier: Apache-2.0
 *
 * The walk of attention's backward for 16-bit types over tiles of others. Who includes it has
 * defined
 *
 *   BWD_THREADS      of a block; a warp has 16 own rows
 *   BWD_OWN          own rows of a block
 *   BWD_BOX          as in attn_place, of a tile of others; 0: own tiles have none either
 *   BWD_STEP_ROWS    own rows that take a step together
 *   BWD_LANDED()     what a thread does between the wait for its copies and the barrier
 *   bwd_step(b, ds, dv, own, x0, draws, at, c0, keys, cols, dp, type)
 *                    a step over the tile x0 of others at ... + 63
 */
#include "kernels/cuda/attn_bwd_mma.h"

/* Own rows' share of head h of one document. */
LF_DEV void bwd_head(struct bwd_block *b, float (*ds)[4], float (*dv)[4], uint16_t *smem, int h,
                     int g, int c0, bool vec, const bool keys, const int cols, const int dp,
                     const int type)
{
    const struct lf_k_attn_bwd *a = b->a;
    const int stages = dp > 128 ? 1 : 2, tile = ATTN_T * dp, mine = BWD_OWN * dp;
    const struct attn_side other = keys ? attn_query_side(a, h) : attn_key_side(a, g);
    const struct attn_draws draws = attn_draws_of(&a->drop, h);
    uint16_t *own = smem, *stage = smem + 2 * mine;
    float *stat = (float *)(stage + stages * 2 * tile);
    int lo, hi, wlo, whi;
    bwd_others(b, b->doc.first, b->doc.last, keys, &lo, &hi);
    bwd_others(b, b->step_first, b->step_last, keys, &wlo, &whi);
    if (!keys) {
        LF_UNROLL for (int r = 0; r < 2; r++)
        {
            const int t = b->row + 8 * r;
            bwd_stat(b, h, t, t - b->doc.begin >= b->doc.first && t - b->doc.begin <= b->doc.last,
                     &b->lse[r], &b->delta[r], &b->end[r]);
        }
    }
    b->slope = a->alibi ? a->alibi[h] : 0.0f;
    const int t0 = lo / ATTN_T, t1 = (hi + ATTN_T - 1) / ATTN_T;
    for (int t = t0 - (stages - 1); t < t1; t++) {
        const int next = t + stages - 1, to = (next - t0) % stages;
        if (next < t1)
            bwd_fetch(b, &other, stage + to * 2 * tile, stat + to * BWD_STAT, next, h, vec, keys,
                      dp, BWD_BOX, BWD_THREADS);
        lf_cp_commit();
        if (t < t0)
            continue;
        if (stages == 2)
            lf_cp_wait(1);
        else
            lf_cp_wait(0);
        BWD_LANDED();
        __syncthreads();
        const int at = t * ATTN_T, from = (t - t0) % stages;
        b->stat = stat + from * BWD_STAT;
        if (wlo < at + ATTN_T && whi > at)
            bwd_step(b, ds, dv, own, stage + from * 2 * tile, a->drop.p > 0.0f ? &draws : NULL, at,
                     c0, keys, cols, dp, type);
        __syncthreads();
    }
}

LF_DEV void bwd_put(const struct lf_k_attn_bwd *a, float (*ds)[4], float (*dv)[4], int64_t t, int r,
                    int g, int c0, int lane, const bool keys, const int cols, const int type)
{
    const int d = (int)a->d, e = (int)a->d_value;
    if (keys) {
        attn_put((uint16_t *)a->dk + t * a->lddk + g * d + c0, ds, r, 1.0f, d - c0, lane, cols,
                 type);
        attn_put((uint16_t *)a->dv + t * a->lddv + g * e + c0, dv, r, 1.0f, e - c0, lane, cols,
                 type);
    } else {
        attn_put((uint16_t *)a->dq + t * a->lddq + (int)blockIdx.y * d + c0, ds, r, 1.0f, d - c0,
                 lane, cols, type);
    }
}

/* The positions of rows from `row` on, `n` of them, that lie in the document; none: last <
 * first. */
LF_DEV void bwd_part(const struct attn_doc *doc, int row, int n, int *first, int *last)
{
    *first = row - doc->begin > doc->first ? row - doc->begin : doc->first;
    *last = row + n - 1 - doc->begin < doc->last ? row + n - 1 - doc->begin : doc->last;
}

LF_DEV void bwd_body(const struct lf_k_attn_bwd *a, uint16_t *smem, const bool keys, const int dp,
                     const int type)
{
    const int cols = dp > 128 ? 128 : dp, mine_at = BWD_OWN * dp, c0 = cols * (int)blockIdx.z;
    const int tid = (int)threadIdx.x, lane = tid % 32, rows = (int)a->rows,
              r0 = BWD_OWN * (int)(keys ? blockIdx.x : gridDim.x - 1 - blockIdx.x),
              r1 = r0 + BWD_OWN, w0 = r0 + 16 * (tid / 32), per = (int)(a->heads / a->groups),
              y = (int)blockIdx.y, g = keys ? y : y / per;
    const bool vec = a->d % 8 == 0 && a->d_value % 8 == 0 && lf_vec8(a->q, a->ldq, type) &&
                     lf_vec8(a->k, a->ldk, type) && lf_vec8(a->v, a->ldv, type) &&
                     lf_vec8(a->d_o, a->lddo, type);
    const struct attn_side mine = keys ? attn_key_side(a, g) : attn_query_side(a, y);
    float ds[16][4], dv[16][4];
    struct bwd_block b;
    b.a = a;
    b.call = attn_call_of(a->scale, a->softcap, a->window, a->causal, a->alibi != NULL);
    b.lane = lane;
    b.row = w0 + lane / 4;
    attn_fill_in(smem, (const uint16_t *)mine.x + r0 * mine.ldx, mine.ldx, rows - r0, mine.dx, vec,
                 BWD_OWN, dp, BWD_BOX ? BWD_OWN : 0, tid, BWD_THREADS);
    attn_fill_in(smem + mine_at, (const uint16_t *)mine.y + r0 * mine.ldy, mine.ldy, rows - r0,
                 mine.dy, vec, BWD_OWN, dp, BWD_BOX ? BWD_OWN : 0, tid, BWD_THREADS);
    lf_cp_commit();
    LF_UNROLL for (int i = 0; i < cols / 2; i++) ds[i / 4][i % 4] = dv[i / 4][i % 4] = 0.0f;

    for (int i = attn_find(a->cu_seqlens, (int)a->n_docs, r0);
         i < a->n_docs && a->cu_seqlens[i] < r1; i++) {
        if (!attn_doc_of(&b.doc, a->cu_seqlens, a->prefix, i, r0, r1, rows))
            continue;
        bwd_part(&b.doc, w0, 16, &b.first, &b.last);
        bwd_part(&b.doc, (w0 - r0) / BWD_STEP_ROWS * BWD_STEP_ROWS + r0, BWD_STEP_ROWS,
                 &b.step_first, &b.step_last);
        for (int h = keys ? g * per : y; h < (keys ? (g + 1) * per : y + 1); h++)
            bwd_head(&b, ds, dv, smem, h, g, c0, vec, keys, cols, dp, type);
    }
    lf_cp_wait(0);
    LF_UNROLL for (int r = 0; r < 2; r++)
    {
        if (b.row + 8 * r < rows)
            bwd_put(a, ds, dv, b.row + 8 * r, r, g, c0, lane, keys, cols, type);
    }
}
