/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching dora.cu.
 */
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_DORA(LF_CUDA_DECLARE)

enum { THREADS = 256, COLUMNS = 32, ROW_BLOCKS = 1024, BLOCKS = 1 << 20 };
static const struct lf_cu_dim block = {.x = THREADS};

int lf_cuda_dora_norm_check(const struct lf_k_dora_norm *a)
{
    return a->rows >= 0 && a->c > 0 && a->rank >= 0 && lf_cu_float(a->w_type) ? LF_K_OK
                                                                              : LF_K_EINVAL;
}
size_t lf_cuda_dora_norm_work(const struct lf_k_dora_norm *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}
int lf_cuda_dora_norm(lf_queue *q, const struct lf_k_dora_norm *a)
{
    const struct lf_cu_dim grid = {.x = (unsigned)(a->rows < BLOCKS ? a->rows : BLOCKS)};
    return lf_cu_launch(q, LF_CU_FN_dora_norm, grid, block, 32 * sizeof(float), a);
}

int lf_cuda_dora_fwd_check(const struct lf_k_dora_fwd *a)
{
    return a->rows >= 0 && a->c > 0 && lf_cu_float(a->x_type) && a->ldbase >= a->c &&
                   a->ldlora >= a->c && a->ldy >= a->c
               ? LF_K_OK
               : LF_K_EINVAL;
}
size_t lf_cuda_dora_fwd_work(const struct lf_k_dora_fwd *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}
int lf_cuda_dora_fwd(lf_queue *q, const struct lf_k_dora_fwd *a)
{
    const struct lf_cu_dim grid = {.x = a->rows ? lf_cu_blocks(a->c, THREADS) : 0,
                                   .y = (unsigned)(a->rows < ROW_BLOCKS ? a->rows : ROW_BLOCKS)};
    return lf_cu_launch(q, LF_CU_FN_dora_fwd, grid, block, 0, a);
}

int lf_cuda_dora_bwd_check(const struct lf_k_dora_bwd *a)
{
    return a->rows >= 0 && a->c > 0 && lf_cu_float(a->x_type) && a->lddy >= a->c &&
                   a->ldbase >= a->c && a->ldlora >= a->c
               ? LF_K_OK
               : LF_K_EINVAL;
}
size_t lf_cuda_dora_bwd_work(const struct lf_k_dora_bwd *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}
int lf_cuda_dora_bwd(lf_queue *q, const struct lf_k_dora_bwd *a)
{
    const struct lf_cu_dim grid = {.x = lf_cu_blocks(a->c, COLUMNS)};
    return lf_cu_launch(q, LF_CU_FN_dora_bwd, grid, block, THREADS * sizeof(float), a);
}

int lf_cuda_root_check(const struct lf_k_root *a)
{
    return a->n >= 0 ? LF_K_OK : LF_K_EINVAL;
}
size_t lf_cuda_root_work(const struct lf_k_root *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}
int lf_cuda_root(lf_queue *q, const struct lf_k_root *a)
{
    const struct lf_cu_dim grid = {.x = lf_cu_blocks(a->n, THREADS)};
    return lf_cu_launch(q, LF_CU_FN_root, grid, block, 0, a);
}
