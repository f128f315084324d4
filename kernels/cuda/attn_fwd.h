/* SPDX-License-Identifier: Apache-2.0
 *
 * What both forms of attention's forward for 16-bit types share (attn_fwd.cu, attn_fwd_wgmma.cu): a
 * block's rows and operands, fetching a tile, numbers that are not finite, and the results.
 */
#ifndef LF_KERNELS_CUDA_ATTN_FWD_H
#define LF_KERNELS_CUDA_ATTN_FWD_H

#include "kernels/cuda/attn_mma.h"

/* A block: its rows, and where their operands lie. Shared memory holds the stages of keys and
 * values; queries before them, or at their place until they are in registers. */
struct fwd_block {
    const struct lf_k_attn_fwd *a;
    struct attn_call call;
    const uint16_t *k, *v; /* of the group's head */
    uint16_t *queries, *stage;
    uint64_t *mended;
    int *broken;
    int r0, r1, w0; /* rows of the block, first row of the warp */
    int tid, lane;
    bool vec;
};

LF_DEV struct fwd_block fwd_block_of(const struct lf_k_attn_fwd *a, uint16_t *smem, const int dp,
                                     const int warps, const int stages, const bool q_in_registers,
                                     const int type)
{
    struct fwd_block b;
    const int d = (int)a->d, e = (int)a->d_value, h = (int)blockIdx.y,
              g = h / (int)(a->heads / a->groups);
    b.a = a;
    b.call = attn_call_of(a->scale, a->softcap, a->window, a->causal, a->alibi != NULL);
    b.k = (const uint16_t *)a->k + g * d;
    b.v = (const uint16_t *)a->v + g * e;
    b.queries = smem;
    b.stage = q_in_registers ? smem : smem + 16 * warps * dp;
    b.mended = (uint64_t *)(b.stage + stages * 2 * ATTN_T * dp);
    b.broken = (int *)(b.mended + dp);
    b.r0 = 16 * warps * (int)(gridDim.x - 1 - blockIdx.x);
    b.r1 = b.r0 + 16 * warps;
    b.tid = (int)threadIdx.x;
    b.lane = b.tid % 32;
    b.w0 = b.r0 + 16 * (b.tid / 32);
    b.vec = d % 8 == 0 && e % 8 == 0 && lf_vec8(a->q, a->ldq, type) &&
            lf_vec8(a->k, a->ldk, type) && lf_vec8(a->v, a->ldv, type);
    return b;
}

/* Ask for tile t of the document. box: as in attn_place. */
LF_DEV void fwd_fetch(const struct fwd_block *b, const struct attn_doc *doc, uint16_t *to, int t,
                      const int dp, const int box, const int threads)
{
    const int n = doc->len - t * ATTN_T, d = (int)b->a->d, e = (int)b->a->d_value;
    const int64_t first = doc->begin + t * ATTN_T;
    attn_fill_in(to, b->k + first * b->a->ldk, b->a->ldk, n, d, b->vec, ATTN_T, dp, box, b->tid,
                 threads);
    attn_fill_in(to + ATTN_T * dp, b->v + first * b->a->ldv, b->a->ldv, n, e, b->vec, ATTN_T, dp,
                 box, b->tid, threads);
}

/* Where some row does not see all of a tile: take numbers that are not finite out of its values and
 * note them, for they would reach rows that do not see them as 0 * NaN. *broken is 0 before. True:
 * there were some. */
LF_DEV bool fwd_mend(const struct fwd_block *b, uint16_t *vs, int *broken, const int dp,
                     const int box, const int threads, const int type)
{
    if (attn_tile_broken(vs, type, ATTN_T, dp, b->tid, threads))
        *broken = 1;
    __syncthreads();
    const bool bad = *broken;
    if (bad) {
        attn_mend_in(vs, b->mended, type, dp, box, b->tid, threads);
        __syncthreads();
    }
    return bad;
}

/* The results of the block's rows. */
LF_DEV void fwd_put(const struct fwd_block *b, float (*o)[4], struct attn_row r[2], const int dp,
                    const int type)
{
    const struct lf_k_attn_fwd *a = b->a;
    const int e = (int)a->d_value, h = (int)blockIdx.y, rows = (int)a->rows;
    LF_UNROLL for (int i = 0; i < 2; i++)
    {
        const int t = b->w0 + b->lane / 4 + 8 * i;
        if (t < rows) {
            attn_put((uint16_t *)a->o + (int64_t)t * a->ldo + h * e, o, i,
                     attn_close(&r[i], a->sinks, h), e, b->lane, dp, type);
            if (a->lse && b->lane % 4 == 0)
                a->lse[(int64_t)h * rows + t] = attn_lse(&r[i]);
        }
    }
}

/* Rows of the block that have seen nothing. */
LF_DEV void fwd_clear(const struct fwd_block *b, float (*o)[4], struct attn_row r[2], const int dp)
{
    LF_UNROLL for (int n = 0; n < dp / 8; n++)
    {
        LF_UNROLL for (int e = 0; e < 4; e++) o[n][e] = 0.0f;
    }
    attn_row_clear(&r[0]);
    attn_row_clear(&r[1]);
    r[0].slope = r[1].slope = b->a->alibi ? b->a->alibi[blockIdx.y] : 0.0f;
}

#endif
