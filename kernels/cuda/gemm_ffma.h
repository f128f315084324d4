/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of an f32 matrix product by fused multiply-adds, device side. There are 16 x 16 threads;
 * each holds 4 or 8 rows by as many columns in registers. Shared memory holds [k][lane] of both
 * operands, twice. The next stage waits in registers.
 */
#ifndef LF_KERNELS_CUDA_GEMM_FFMA_H
#define LF_KERNELS_CUDA_GEMM_FFMA_H

#include "kernels/cuda/dev.h"
#include "kernels/cuda/gemm_args.h"

/* The place of a thread's piece i of a stage, four elements. With k contiguous they are four k of
 * one lane, else four lanes of one k. */
LF_DEV void lf_ff_place(int i, bool k_fast, const int LANES, int *lane, int *k)
{
    const int j = (int)threadIdx.x + 256 * i;
    *lane = k_fast ? j / 4 : j % (LANES / 4) * 4;
    *k = k_fast ? j % 4 * 4 : j / (LANES / 4);
}

LF_DEV void lf_ff_fetch(float v[2][4], const void *base, int64_t ld, bool k_fast, bool vec,
                        int64_t lane0, int64_t count, int k0, int k_end, const int LANES)
{
    LF_UNROLL for (int i = 0; i < LANES / 64; i++)
    {
        int l, k;
        lf_ff_place(i, k_fast, LANES, &l, &k);
        const int64_t lane = lane0 + l, left = k_fast ? (lane < count ? k_end - k0 - k : 0)
                                                      : (k0 + k < k_end ? count - lane : 0);
        const float *p = (const float *)base + (k_fast ? lane * ld + k0 + k : (k0 + k) * ld + lane);
        if (vec && left >= 4) {
            const struct lf_u4 u = *(const struct lf_u4 *)p;
            LF_UNROLL for (int e = 0; e < 4; e++) v[i][e] = lf_u32_f(u.x[e]);
        } else {
            LF_UNROLL for (int e = 0; e < 4; e++) v[i][e] = e < left ? p[e] : 0.0f;
        }
    }
}

LF_DEV void lf_ff_put(float *tile, const float v[2][4], bool k_fast, const int LANES)
{
    LF_UNROLL for (int i = 0; i < LANES / 64; i++)
    {
        int l, k;
        lf_ff_place(i, k_fast, LANES, &l, &k);
        LF_UNROLL for (int e = 0; e < 4; e++)
            tile[(k_fast ? k + e : k) * (LANES + 4) + (k_fast ? l : l + e)] = v[i][e];
    }
}

/* Row or column of a thread's element i. */
LF_DEV int lf_ff_lane(int thread, int i)
{
    return i / 4 * 64 + thread * 4 + i % 4;
}

LF_DEV void lf_ff_read(float v[8], const float *row, int thread, const int R)
{
    LF_UNROLL for (int h = 0; h < R / 4; h++)
    {
        const struct lf_u4 u = *(const struct lf_u4 *)(row + lf_ff_lane(thread, 4 * h));
        LF_UNROLL for (int e = 0; e < 4; e++) v[4 * h + e] = lf_u32_f(u.x[e]);
    }
}

LF_DEV void lf_ff_stage(float acc[8][8], const float *ta, const float *tb, const int R)
{
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16, pitch = 16 * R + 4;
    LF_UNROLL for (int k = 0; k < LF_MM_BK_F32; k++)
    {
        float a[8], b[8];
        lf_ff_read(a, ta + k * pitch, ty, R);
        lf_ff_read(b, tb + k * pitch, tx, R);
        LF_UNROLL for (int i = 0; i < R; i++)
        {
            LF_UNROLL for (int j = 0; j < R; j++) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
        }
    }
}

/* A block's tile of 16 R x 16 R at (row0, col0), k in [k0, k1). */
LF_DEV void lf_ff_tile(float tot[8][8], const struct lf_k_gemm *g, int64_t row0, int64_t col0,
                       int k0, int k1, bool vec_a, bool vec_b, float *smem, const int R)
{
    const int LANES = 16 * R, tile = LF_MM_BK_F32 * (LANES + 4);
    const int steps = (k1 - k0 + LF_MM_BK_F32 - 1) / LF_MM_BK_F32;
    const bool a_fast = !g->ta, b_fast = g->tb;
    float acc[8][8], va[2][4], vb[2][4];
    LF_UNROLL for (int i = 0; i < 64; i++) tot[i / 8][i % 8] = acc[i / 8][i % 8] = 0.0f;
    lf_ff_fetch(va, g->a, g->lda, a_fast, vec_a, row0, g->m, k0, k1, LANES);
    lf_ff_fetch(vb, g->b, g->ldb, b_fast, vec_b, col0, g->n, k0, k1, LANES);
    for (int s = 0; s < steps; s++) {
        float *t = smem + s % 2 * 2 * tile;
        const int k = k0 + (s + 1) * LF_MM_BK_F32;
        lf_ff_put(t, va, a_fast, LANES);
        lf_ff_put(t + tile, vb, b_fast, LANES);
        /* this half is written again two stages later, behind the barrier of the next stage */
        __syncthreads();
        if (s + 1 < steps) {
            lf_ff_fetch(va, g->a, g->lda, a_fast, vec_a, row0, g->m, k, k1, LANES);
            lf_ff_fetch(vb, g->b, g->ldb, b_fast, vec_b, col0, g->n, k, k1, LANES);
        }
        lf_ff_stage(acc, t, t + tile, R);
        if ((s + 1) % (LF_MM_CHUNK / LF_MM_BK_F32) == 0 || s + 1 == steps) {
            LF_UNROLL for (int i = 0; i < R * R; i++)
            {
                tot[i / R][i % R] += acc[i / R][i % R];
                acc[i / R][i % R] = 0.0f;
            }
        }
    }
}

/* Writes a thread's sums into the tile of sums, whose rows are 8 floats apart in banks. */
LF_DEV void lf_ff_put_sums(float *tile, const float tot[8][8], const int R)
{
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    __syncthreads(); /* the operands have been read */
    LF_UNROLL for (int i = 0; i < R; i++)
    {
        LF_UNROLL for (int j = 0; j < R; j++)
            tile[lf_ff_lane(ty, i) * (16 * R + 8) + lf_ff_lane(tx, j)] = tot[i][j];
    }
    __syncthreads();
}

#endif
