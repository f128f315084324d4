/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching grouped.cu.
 */
#include "kernels/cuda/args.h"
#include "kernels/cuda/gemm_args.h"
#include "kernels/cuda/gemm_form.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_DECLARE(grouped_gemm)

size_t lf_cuda_grouped_gemm_work(const struct lf_k_grouped_gemm *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}

int lf_cuda_grouped_gemm_check(const struct lf_k_grouped_gemm *a)
{
    bool ok = lf_cu_float(a->ab_type) && lf_cu_float(a->c_type) && a->m >= 0 && a->n > 0 &&
              a->k > 0 && a->groups > 0 && a->m <= INT32_MAX && a->n <= INT32_MAX &&
              a->k <= INT32_MAX && (!a->residual || a->ldres >= a->n);
    if (a->dw)
        ok = ok && a->lda >= a->n && a->ldb >= a->k && a->c_type == LF_F32 && !a->residual &&
             !a->bias;
    else
        ok = ok && a->lda >= a->k && a->ldc >= a->n && !a->accumulate;
    return ok ? LF_K_OK : LF_K_EINVAL;
}

int lf_cuda_grouped_gemm(lf_queue *q, const struct lf_k_grouped_gemm *a)
{
    static const enum lf_cu_fn fn[] = {[LF_F32] = LF_CU_FN_grouped_f32,
                                       [LF_BF16] = LF_CU_FN_grouped_bf16,
                                       [LF_F16] = LF_CU_FN_grouped_f16};
    if (lf_cuda_grouped_gemm_check(a))
        return LF_K_EINVAL;
    const int64_t ldb = a->dw   ? a->ldb
                        : a->tb ? a->k
                                : a->n,
                  per = (a->n + LF_MM_SMALL - 1) / LF_MM_SMALL;
    struct lf_cu_grouped x = {.g = *a,
                              .tiles_n = (int32_t)lf_cu_blocks(a->dw ? a->k : a->n, LF_MM_SMALL),
                              .vec_a = lf_cu_vec16(a->a, a->lda, a->ab_type),
                              .vec_b = lf_cu_vec16(a->b, ldb, a->ab_type)};
    /* rows: every group may end with a part of a tile */
    const int64_t tiles = (a->dw  ? a->groups * per
                           : a->m ? a->m / LF_MM_SMALL + a->groups
                                  : 0) *
                          x.tiles_n;
    if (tiles > INT32_MAX)
        return LF_K_EINVAL;
    const bool f32 = a->ab_type == LF_F32;
    return lf_cu_launch(q, fn[a->ab_type], (struct lf_cu_dim){.x = (unsigned)tiles},
                        (struct lf_cu_dim){.x = f32 ? 256 : LF_MM_SMALL_THREADS},
                        f32 ? LF_MM_SMEM_F32_SMALL : LF_MM_SMEM_SMALL, &x);
}
