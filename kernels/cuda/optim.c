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

enum { SCRATCH = LF_OPT_THREADS / 32 * sizeof(double), BLOCKS_PER_SM = 8 };

int lf_cuda_grad_norm_check(const struct lf_k_grad_norm *a)
{
    return a->n_tensors >= 0 && !a->sums ? LF_K_OK : LF_K_EINVAL;
}
size_t lf_cuda_grad_norm_work(const struct lf_k_grad_norm *a, int threads)
{
    (void)a;
    (void)threads;
    return LF_OPT_PARTS * sizeof(double);
}
int lf_cuda_grad_norm(lf_queue *q, const struct lf_k_grad_norm *a)
{
    const struct lf_cu_dim block = {.x = LF_OPT_THREADS};
    if (a->work_bytes < LF_OPT_PARTS * sizeof(double))
        return LF_K_EINVAL;
    int rc = lf_cu_launch(q, LF_CU_FN_grad_norm, (struct lf_cu_dim){.x = LF_OPT_PARTS}, block,
                          SCRATCH, a);
    return rc != 0 ? rc
                   : lf_cu_launch(q, LF_CU_FN_grad_norm_end, (struct lf_cu_dim){.x = 1}, block,
                                  SCRATCH, a);
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
