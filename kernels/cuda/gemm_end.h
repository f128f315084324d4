/* SPDX-License-Identifier: Apache-2.0
 *
 * The end of a matrix product: product, + bias, rounded to c_type where something follows that the backward pass must
 * see (pre, act), act, + residual, rounded once, stored. Element by element, so a tile's place changes nothing.
 */
#ifndef LF_KERNELS_CUDA_GEMM_END_H
#define LF_KERNELS_CUDA_GEMM_END_H

#include "kernels/cuda/act.h"

/* Two neighbours at p[i], p[i + 1]: in one access where both are wanted and the address allows it. */
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

/* Products x[0], x[1] of row r, columns c and c + 1; columns >= g->n are left out. */
LF_DEV void lf_gemm_end(const struct lf_k_gemm *g, int64_t r, int64_t c, float x0, float x1)
{
    const int n = g->n - c < 2 ? (int)(g->n - c) : 2;
    float x[2] = {x0, x1};
    if (r >= g->m || n <= 0)
        return;
    const int64_t c1 = n > 1 ? c + 1 : c; /* what a missing neighbour reads instead */
    if (g->bias) {
        x[0] += lf_load(g->bias, c, g->bias_type);
        x[1] += lf_load(g->bias, c1, g->bias_type);
    }
    if (g->pre || g->act != LF_ACT_NONE) {
        x[0] = lf_round(x[0], g->c_type);
        x[1] = lf_round(x[1], g->c_type);
        if (g->pre)
            lf_put2(g->pre, r * g->ldpre + c, g->c_type, x, n);
        x[0] = lf_act(g->act, x[0]);
        x[1] = lf_act(g->act, x[1]);
    }
    if (g->residual) {
        x[0] += lf_load(g->residual, r * g->ldres + c, g->c_type);
        x[1] += lf_load(g->residual, r * g->ldres + c1, g->c_type);
    }
    if (g->accumulate) {
        x[0] += ((const float *)g->c)[r * g->ldc + c];
        x[1] += ((const float *)g->c)[r * g->ldc + c1];
    }
    lf_put2(g->c, r * g->ldc + c, g->c_type, x, n);
}

/* A block's tile of LANES x LANES at (row0, col0), from shared memory with rows of `pitch`: so that neighbouring
 * threads store neighbours, and so that the code of every epilogue stands in a kernel once. partial: [m][n], instead of
 * C. */
LF_DEV void lf_gemm_tile_end(const struct lf_k_gemm *g, float *partial, const float *tile, int64_t row0, int64_t col0,
                             const int LANES, const int PITCH)
{
    LF_ROLLED for (int i = (int)threadIdx.x; i < LANES * LANES / 2; i += (int)blockDim.x)
    {
        const int64_t r = row0 + i / (LANES / 2), c = col0 + i % (LANES / 2) * 2;
        const float *x = tile + i / (LANES / 2) * PITCH + i % (LANES / 2) * 2;
        if (partial)
            lf_put2(partial, r * g->n + c, LF_F32, x, r >= g->m || c >= g->n ? 0 : g->n - c < 2 ? 1 : 2);
        else
            lf_gemm_end(g, r, c, x[0], x[1]);
    }
}

#endif
