/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching elementwise.cu.
 */
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_ELEMENTWISE(LF_CUDA_DECLARE)

enum { THREADS = 256, BLOCKS = 65536 };

static struct lf_cu_dim grid(int64_t n)
{
    const int64_t b = (n + 8 * THREADS - 1) / (8 * THREADS);
    return (struct lf_cu_dim){.x = (unsigned)(b < BLOCKS ? b : BLOCKS)};
}

int lf_cuda_fill_check(const struct lf_k_fill *a)
{
    return lf_cu_float(a->y_type) && a->n >= 0 ? LF_K_OK : LF_K_EINVAL;
}
size_t lf_cuda_fill_work(const struct lf_k_fill *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}
int lf_cuda_fill(lf_queue *q, const struct lf_k_fill *a)
{
    return lf_cu_launch(q, LF_CU_FN_fill, grid(a->n), (struct lf_cu_dim){.x = THREADS}, 0, a);
}

int lf_cuda_axpby_check(const struct lf_k_axpby *a)
{
    return lf_cu_float(a->a_type) && lf_cu_float(a->b_type) && lf_cu_float(a->y_type) && a->n >= 0 ? LF_K_OK
                                                                                                   : LF_K_EINVAL;
}
size_t lf_cuda_axpby_work(const struct lf_k_axpby *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}
int lf_cuda_axpby(lf_queue *q, const struct lf_k_axpby *a)
{
    return lf_cu_launch(q, LF_CU_FN_axpby, grid(a->n), (struct lf_cu_dim){.x = THREADS}, 0, a);
}
