/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching xielu.cu.
 */
#include "kernels/cuda/xielu.h"
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_XIELU(LF_CUDA_DECLARE)
LF_CU_NO_WORK(xielu_fwd)

enum { THREADS = 256, BLOCKS = 65536, PARTS = 1024, SCRATCH = 32 * sizeof(float) };

/* One thread for eight elements; beyond `most` blocks, threads take several. */
static unsigned blocks_of(int64_t rows, int64_t c, unsigned most)
{
    const int64_t n = (rows * ((c + 7) / 8) + THREADS - 1) / THREADS;
    return n < most ? (unsigned)n : most;
}

int lf_cuda_xielu_fwd_check(const struct lf_k_xielu_fwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && lf_cu_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_xielu_fwd(lf_queue *q, const struct lf_k_xielu_fwd *a)
{
    return lf_cu_launch(q, LF_CU_FN_xielu_fwd,
                        (struct lf_cu_dim){.x = blocks_of(a->rows, a->c, BLOCKS)},
                        (struct lf_cu_dim){.x = THREADS}, 0, a);
}

int lf_cuda_xielu_bwd_check(const struct lf_k_xielu_bwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->lddy >= a->c && a->lddx >= a->c &&
                   lf_cu_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}
size_t lf_cuda_xielu_bwd_work(const struct lf_k_xielu_bwd *a, int threads)
{
    (void)threads;
    return 2 * (size_t)blocks_of(a->rows, a->c, PARTS) * sizeof(float);
}
int lf_cuda_xielu_bwd(lf_queue *q, const struct lf_k_xielu_bwd *a)
{
    const struct lf_cu_xielu_sum s = {*a, blocks_of(a->rows, a->c, PARTS)};
    if (a->work_bytes < lf_cuda_xielu_bwd_work(a, 1))
        return LF_K_EINVAL;
    int rc = lf_cu_launch(q, LF_CU_FN_xielu_bwd, (struct lf_cu_dim){.x = (unsigned)s.blocks},
                          (struct lf_cu_dim){.x = THREADS}, SCRATCH, a);
    return rc != 0 ? rc
                   : lf_cu_launch(q, LF_CU_FN_xielu_sum, (struct lf_cu_dim){.x = 1},
                                  (struct lf_cu_dim){.x = THREADS}, SCRATCH, &s);
}
