/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a matrix product: product, + bias, rounding to c_type, act, + residual, rounding,
 * store. The first rounding is made where the backward pass must see the value that follows (pre,
 * act). Every step is element by element, so the place of a tile changes nothing.
 */
#ifndef LF_KERNELS_CUDA_GEMM_END_H
#define LF_KERNELS_CUDA_GEMM_END_H

#include "kernels/cuda/act.h"

enum { LF_END_ROWS = 4 }; /* most rows of lf_gemm_end_rows */

/* Two neighbours at p[i] and p[i + 1], stored in one access where both are wanted and the address
 * allows it. */
LF_DEV void lf_put2(void *p, int64_t i, int type, const float v[2], int n)
{
    if (n == 2 && type == LF_F32 && ((uintptr_t)((float *)p + i) & 7) == 0) {
        *(uint64_t *)((float *)p + i) = (uint64_t)lf_f_u32(v[1]) << 32 | lf_f_u32(v[0]);
        return;
    }
    if (n == 2 && type != LF_F32 && ((uintptr_t)((uint16_t *)p + i) & 3) == 0) {
        const uint16_t lo = type == LF_BF16 ? lf_f_bf16(v[0]) : lf_f_f16(v[0]);
        const uint16_t hi = type == LF_BF16 ? lf_f_bf16(v[1]) : lf_f_f16(v[1]);
        *(uint32_t *)((uint16_t *)p + i) = (uint32_t)hi << 16 | lo;
        return;
    }
    if (n > 0)
        lf_store(p, i, type, v[0]);
    if (n > 1)
        lf_store(p, i + 1, type, v[1]);
}

/* Two neighbours of R rows, `step` elements apart. All are read before one is used. i1: the element
 * that is read in place of a missing neighbour. */
LF_DEV void lf_get2(float v[][2], const void *p, int64_t i, int64_t i1, int64_t step, int type,
                    int rows, const int R)
{
    uint32_t raw[LF_END_ROWS][2];
    LF_UNROLL for (int j = 0; j < R; j++)
    {
        const int64_t at = j < rows ? j * step : 0;
        if (type == LF_F32) {
            raw[j][0] = lf_f_u32(((const float *)p)[i + at]);
            raw[j][1] = lf_f_u32(((const float *)p)[i1 + at]);
        } else {
            raw[j][0] = ((const uint16_t *)p)[i + at];
            raw[j][1] = ((const uint16_t *)p)[i1 + at];
        }
    }
    LF_UNROLL for (int j = 0; j < 2 * R; j++)
    {
        const uint32_t u = raw[j / 2][j % 2];
        v[j / 2][j % 2] = type == LF_F32    ? lf_u32_f(u)
                          : type == LF_BF16 ? lf_bf16_f((uint16_t)u)
                                            : lf_f16_f((uint16_t)u);
    }
}

/* Ends the products x[j][0] and x[j][1] of the rows r + j STEP, j < R, and the columns c and c + 1.
 * Rows >= g->m and columns >= g->n are left out. Values that several rows need are read before the
 * first is used. A value of one row is read where it is used, which takes fewer registers. */
LF_DEV void lf_gemm_end_rows(const struct lf_k_gemm *g, int64_t r, int64_t c, float x[][2],
                             const int STEP, const int R)
{
    const int n = g->n - c < 2 ? (int)(g->n - c) : 2;
    const int rows =
        g->m - r < (int64_t)(R - 1) * STEP + 1 ? (int)((g->m - r + STEP - 1) / STEP) : R;
    float y[LF_END_ROWS][2], z[LF_END_ROWS][2];
    if (r >= g->m || n <= 0)
        return;
    const int64_t c1 = n > 1 ? c + 1 : c; /* what a missing neighbour reads instead */
    if (R > 1 && g->residual)
        lf_get2(y, g->residual, r * g->ldres + c, r * g->ldres + c1, STEP * g->ldres, g->c_type,
                rows, R);
    if (R > 1 && g->accumulate)
        lf_get2(z, g->c, r * g->ldc + c, r * g->ldc + c1, STEP * g->ldc, LF_F32, rows, R);
    if (g->bias) {
        const float b0 = lf_load(g->bias, c, g->bias_type), b1 = lf_load(g->bias, c1, g->bias_type);
        LF_UNROLL for (int j = 0; j < R; j++)
        {
            x[j][0] += b0;
            x[j][1] += b1;
        }
    }
    LF_UNROLL for (int j = 0; j < R; j++)
    {
        const int64_t at = r + j * STEP;
        if (j >= rows)
            break;
        if (g->pre || g->act != LF_ACT_NONE) {
            x[j][0] = lf_round(x[j][0], g->c_type);
            x[j][1] = lf_round(x[j][1], g->c_type);
            if (g->pre)
                lf_put2(g->pre, at * g->ldpre + c, g->c_type, x[j], n);
            x[j][0] = lf_act(g->act, x[j][0]);
            x[j][1] = lf_act(g->act, x[j][1]);
        }
        if (g->residual) {
            x[j][0] += R > 1 ? y[j][0] : lf_load(g->residual, at * g->ldres + c, g->c_type);
            x[j][1] += R > 1 ? y[j][1] : lf_load(g->residual, at * g->ldres + c1, g->c_type);
        }
        if (g->accumulate) {
            x[j][0] += R > 1 ? z[j][0] : ((const float *)g->c)[at * g->ldc + c];
            x[j][1] += R > 1 ? z[j][1] : ((const float *)g->c)[at * g->ldc + c1];
        }
        lf_put2(g->c, at * g->ldc + c, g->c_type, x[j], n);
    }
}

/* lf_gemm_end_rows for one row. */
LF_DEV void lf_gemm_end(const struct lf_k_gemm *g, int64_t r, int64_t c, float x0, float x1)
{
    float x[1][2] = {{x0, x1}};
    lf_gemm_end_rows(g, r, c, x, 1, 1);
}

/* The tile of a block. Tiles go in bands of eight tile rows, so that blocks that run together share
 * rows of A and columns of B in L2. */
LF_DEV void lf_tile_of(int64_t block, int tiles_m, int tiles_n, int64_t *tm, int64_t *tn)
{
    const int64_t band = 8 * (int64_t)tiles_n, first = block / band * 8;
    const int64_t high = tiles_m - first < 8 ? tiles_m - first : 8;
    *tm = first + block % band % high;
    *tn = block % band / high;
}

/* Ends a block's tile of LANES x LANES at (row0, col0), from shared memory with rows of `pitch`.
 * The detour lets neighbouring threads store neighbours, and a kernel has the code of each epilogue
 * once. partial: [m][n], written instead of C. */
LF_DEV void lf_gemm_tile_end(const struct lf_k_gemm *g, float *partial, const float *tile,
                             int64_t row0, int64_t col0, const int LANES, const int PITCH)
{
    LF_ROLLED for (int i = (int)threadIdx.x; i < LANES * LANES / 2; i += (int)blockDim.x)
    {
        const int64_t r = row0 + i / (LANES / 2), c = col0 + i % (LANES / 2) * 2;
        const float *x = tile + i / (LANES / 2) * PITCH + i % (LANES / 2) * 2;
        if (partial)
            lf_put2(partial, r * g->n + c, LF_F32, x,
                    r >= g->m || c >= g->n ? 0
                    : g->n - c < 2         ? 1
                                           : 2);
        else
            lf_gemm_end(g, r, c, x[0], x[1]);
    }
}

#endif
