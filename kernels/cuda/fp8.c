/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching fp8.cu, and products of 8-bit matrices, which only cuBLASLt makes: without it they are
 * refused, since any other way would be slower than the bf16 that fp8 was asked for instead of.
 */
#include "kernels/cuda/fp8.h"

#include "kernels/cuda/args.h"
#include "kernels/cuda/gemm_blaslt.h"
#include "kernels/cuda/gemm_form.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_FP8(LF_CUDA_DECLARE)
LF_CUDA_DECLARE(gemm)

enum { EIGHTS_A_THREAD = 8 };

static int64_t most_blocks(const struct lf_k_quantise *a)
{
    const int64_t eights = a->rows * ((a->cols + 7) / 8), per = LF_QUANT_THREADS * EIGHTS_A_THREAD;
    const int64_t n = (eights + per - 1) / per;
    return n < LF_QUANT_MOST_BLOCKS ? n : LF_QUANT_MOST_BLOCKS;
}

size_t lf_cuda_quantise_work(const struct lf_k_quantise *a, int threads)
{
    (void)threads;
    return a->scaling == LF_FP8_TENSOR ? (size_t)most_blocks(a) * sizeof(int32_t) : 0;
}

static int64_t tiles(const struct lf_k_quantise *a)
{
    return (int64_t)lf_cu_blocks(a->rows, LF_FP8_BLOCK) * lf_cu_blocks(a->cols, LF_FP8_BLOCK);
}

int lf_cuda_quantise_check(const struct lf_k_quantise *a)
{
    const bool types = lf_cu_float(a->x_type) && (a->q_type == LF_E4M3 || a->q_type == LF_E5M2);
    return types && a->rows >= 0 && a->cols > 0 && a->rows <= INT32_MAX && a->cols <= INT32_MAX &&
                   a->ldx >= a->cols && a->scaling <= LF_FP8_BLK128 && tiles(a) <= INT32_MAX
               ? LF_K_OK
               : LF_K_EINVAL;
}

static bool aligned(const void *p, int64_t ld, int64_t bytes)
{
    return (uintptr_t)p % (uintptr_t)bytes == 0 && ld % bytes == 0;
}

int lf_cuda_quantise(lf_queue *q, const struct lf_k_quantise *a)
{
    const size_t need = lf_cuda_quantise_work(a, 1);
    if (lf_cuda_quantise_check(a) || a->work_bytes < need || (need && !a->work))
        return LF_K_EINVAL;
    const struct lf_cu_quantise x = {.k = *a,
                                     .most = a->work,
                                     .n_most = (int32_t)(need / sizeof(int32_t)),
                                     .across = (int32_t)lf_cu_blocks(a->cols, LF_FP8_BLOCK),
                                     .vec_x = lf_cu_vec16(a->x, a->ldx, a->x_type),
                                     .vec_q = aligned(a->q, a->cols, 8),
                                     .vec_qt = aligned(a->qt, a->rows, 16)};
    const struct lf_cu_dim block = {.x = LF_QUANT_THREADS};
    int rc = lf_cu_launch(q, LF_CU_FN_quantise_most, (struct lf_cu_dim){.x = (unsigned)x.n_most},
                          block, 32 * sizeof(int32_t), &x);
    if (rc != 0)
        return rc;
    const int64_t n = a->scaling == LF_FP8_TENSOR && a->rows == 0
                          ? 1
                          : tiles(a); /* no rows have a scale all the same */
    return lf_cu_launch(q, LF_CU_FN_quantise, (struct lf_cu_dim){.x = (unsigned)n}, block,
                        LF_QUANT_SMEM, &x);
}

/* ---- the product ---- */

size_t lf_cuda_gemm_fp8_work(const struct lf_k_gemm_fp8 *a, int threads)
{
    (void)threads;
    const double size = (double)a->gemm.m * (double)a->gemm.n * (double)a->gemm.k;
    return size >= LF_LT_WORK_FROM ? (size_t)LF_LT_WORK_MIB << 20 : 0;
}

static bool factors_fit(const struct lf_k_gemm_fp8 *a)
{
    const int s = a->a_scaling, z = a->b_scaling;
    return (a->a_type == LF_E4M3 || a->a_type == LF_E5M2) &&
           (a->b_type == LF_E4M3 || a->b_type == LF_E5M2) &&
           (a->a_type == LF_E4M3 || a->b_type == LF_E4M3) && s <= LF_FP8_BLK128 &&
           z <= LF_FP8_BLK128 && (s == LF_FP8_TENSOR) == (z == LF_FP8_TENSOR) &&
           (s != LF_FP8_BLK128 || z != LF_FP8_BLK128);
}

int lf_cuda_gemm_fp8_check(const struct lf_k_gemm_fp8 *a)
{
    struct lf_k_gemm g = a->gemm;
    const int64_t grain = a->a_scaling == LF_FP8_TENSOR ? 16 : LF_FP8_BLOCK;
    const bool shape =
        g.m % grain == 0 && g.n % grain == 0 && g.k % grain == 0 && g.lda == g.k && g.ldb == g.k;
    g.ab_type = LF_BF16;
    g.b_packed = NULL;
    return factors_fit(a) && shape && !g.ta && g.tb && g.mode == LF_FAST ? lf_cuda_gemm_check(&g)
                                                                         : LF_K_EINVAL;
}

int lf_cuda_gemm_fp8(lf_queue *q, const struct lf_k_gemm_fp8 *a)
{
    bool done = false;
    if (lf_cuda_gemm_fp8_check(a))
        return LF_K_EINVAL;
    if (a->gemm.m == 0)
        return LF_K_OK;
    const int rc = lf_blaslt_gemm_fp8(q, a, &done);
    return rc || done
               ? rc
               : lf_cu_result(q, LF_CU_NOT_FOUND,
                              "precision fp8 needs cublasLt with an algorithm for this product");
}
