/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching colsum.cu.
 */
#include "kernels/cuda/args.h"
#include "kernels/cuda/colsum_args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_DECLARE(colsum)
LF_CUDA_DECLARE(grouped_colsum)

enum { JOIN_THREADS = 256, MOST_BLOCKS = 65535 };

size_t lf_cuda_colsum_work(const struct lf_k_colsum *a, int threads)
{
    (void)threads;
    return a->rows > LF_COLSUM_ROWS
               ? lf_cu_blocks(a->rows, LF_COLSUM_ROWS) * (size_t)a->n * sizeof(float)
               : 0;
}

int lf_cuda_colsum_check(const struct lf_k_colsum *a)
{
    return a->rows >= 0 && a->rows <= (int64_t)MOST_BLOCKS * LF_COLSUM_ROWS && a->n > 0 &&
                   a->n <= INT32_MAX && a->ld >= a->n && lf_cu_float(a->dy_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

int lf_cuda_colsum(lf_queue *q, const struct lf_k_colsum *a)
{
    const size_t need = lf_cuda_colsum_work(a, 1);
    if (lf_cuda_colsum_check(a) || (need && (!a->work || a->work_bytes < need)))
        return LF_K_EINVAL;
    struct lf_cu_colsum x = {.s = *a, .partial = need ? a->work : NULL};
    const unsigned blocks = a->rows ? lf_cu_blocks(a->rows, LF_COLSUM_ROWS) : 1;
    int rc = lf_cu_launch(q, LF_CU_FN_colsum,
                          (struct lf_cu_dim){.x = lf_cu_blocks(a->n, LF_COLSUM_COLS), .y = blocks},
                          (struct lf_cu_dim){.x = 32 * LF_COLSUM_WARPS},
                          LF_COLSUM_WARPS * LF_COLSUM_COLS * sizeof(float), &x);
    if (rc == 0 && need)
        rc = lf_cu_launch(q, LF_CU_FN_colsum_join,
                          (struct lf_cu_dim){.x = lf_cu_blocks(a->n, JOIN_THREADS)},
                          (struct lf_cu_dim){.x = JOIN_THREADS}, 0, &x);
    return rc;
}

size_t lf_cuda_grouped_colsum_work(const struct lf_k_grouped_colsum *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}

int lf_cuda_grouped_colsum_check(const struct lf_k_grouped_colsum *a)
{
    return a->m >= 0 && a->m <= INT32_MAX && a->n > 0 && a->n <= INT32_MAX && a->groups > 0 &&
                   a->groups <= MOST_BLOCKS && a->ld >= a->n && lf_cu_float(a->dy_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

int lf_cuda_grouped_colsum(lf_queue *q, const struct lf_k_grouped_colsum *a)
{
    if (lf_cuda_grouped_colsum_check(a))
        return LF_K_EINVAL;
    return lf_cu_launch(
        q, LF_CU_FN_grouped_colsum,
        (struct lf_cu_dim){.x = lf_cu_blocks(a->n, LF_COLSUM_COLS), .y = (unsigned)a->groups},
        (struct lf_cu_dim){.x = 32 * LF_COLSUM_WARPS},
        LF_COLSUM_WARPS * LF_COLSUM_COLS * sizeof(float), a);
}
