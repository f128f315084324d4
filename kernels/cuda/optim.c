/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching optim.cu. Nothing here reads the table of tensors: it lies in device memory.
 */
#include "kernels/cuda/optim.h"
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_OPTIM(LF_CUDA_DECLARE)

LF_CU_NO_WORK(adamw)
LF_CU_NO_WORK(moe_balance)
LF_CU_NO_WORK(sum_ranks)

enum { SCRATCH = LF_OPT_THREADS / 32 * sizeof(double), BLOCKS_PER_SM = 8 };

int lf_cuda_grad_norm_check(const struct lf_k_grad_norm *a)
{
    bool ok = a->n_tensors >= 0 && a->n_sums >= 0 && (a->n_sums > 0 || !a->n_tensors) &&
              (a->sums || !a->parts);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
size_t lf_cuda_grad_norm_work(const struct lf_k_grad_norm *a, int threads)
{
    (void)threads;
    return a->sums ? 0 : (size_t)a->n_sums * sizeof(double);
}
/* The sums of blocks; with parts some of them. No thread block has more to do than one of them. */
static int norm_sums(lf_queue *q, const struct lf_k_grad_norm *a)
{
    const size_t bytes = (size_t)a->n_sums * sizeof(double);
    const unsigned blocks =
        a->n_sums < LF_OPT_BLOCKS ? (unsigned)(a->n_sums + !a->n_sums) : LF_OPT_BLOCKS;
    int rc = a->parts ? lf_cu_result(q,
                                     q->dev->cu.MemsetD8Async((lf_cu_ptr)(uintptr_t)a->sums, 0,
                                                              bytes, q->stream),
                                     "memset")
                      : 0;
    return rc != 0 ? rc
                   : lf_cu_launch(q, LF_CU_FN_grad_norm, (struct lf_cu_dim){.x = blocks},
                                  (struct lf_cu_dim){.x = LF_OPT_THREADS}, SCRATCH, a);
}
int lf_cuda_grad_norm(lf_queue *q, const struct lf_k_grad_norm *a)
{
    if (!a->sums && a->work_bytes < (size_t)a->n_sums * sizeof(double))
        return LF_K_EINVAL;
    int rc = a->parts || !a->sums ? norm_sums(q, a) : 0;
    return rc != 0 || a->parts ? rc
                               : lf_cu_launch(q, LF_CU_FN_grad_norm_end, (struct lf_cu_dim){.x = 1},
                                              (struct lf_cu_dim){.x = LF_OPT_THREADS}, SCRATCH, a);
}

int lf_cuda_adamw_check(const struct lf_k_adamw *a)
{
    bool ok = a->n_tensors >= 0 && a->beta1 >= 0.0f && a->beta1 < 1.0f && a->beta2 >= 0.0f &&
              a->beta2 < 1.0f && a->eps >= 0.0f;
    return ok ? LF_K_OK : LF_K_EINVAL;
}
/* Element-wise, so the grid may follow the device. */
int lf_cuda_adamw(lf_queue *q, const struct lf_k_adamw *a)
{
    return lf_cu_launch(q, LF_CU_FN_adamw,
                        (struct lf_cu_dim){.x = (unsigned)(BLOCKS_PER_SM * q->dev->n_sm)},
                        (struct lf_cu_dim){.x = LF_OPT_THREADS}, 0, a);
}

int lf_cuda_moe_balance_check(const struct lf_k_moe_balance *a)
{
    return a->n_tensors >= 0 ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_moe_balance(lf_queue *q, const struct lf_k_moe_balance *a)
{
    return lf_cu_launch(q, LF_CU_FN_moe_balance, (struct lf_cu_dim){.x = (unsigned)a->n_tensors},
                        (struct lf_cu_dim){.x = 32}, 0, a);
}

int lf_cuda_sum_ranks_check(const struct lf_k_sum_ranks *a)
{
    bool ok = a->n >= 0 && a->stride >= a->n && a->ranks > 0 && a->rank >= 0 && a->rank < a->ranks;
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_sum_ranks(lf_queue *q, const struct lf_k_sum_ranks *a)
{
    const unsigned most = (unsigned)(BLOCKS_PER_SM * q->dev->n_sm),
                   blocks = lf_cu_blocks(a->n, 8 * LF_OPT_THREADS);
    return lf_cu_launch(q, LF_CU_FN_sum_ranks,
                        (struct lf_cu_dim){.x = blocks < most ? blocks : most},
                        (struct lf_cu_dim){.x = LF_OPT_THREADS}, 0, a);
}
