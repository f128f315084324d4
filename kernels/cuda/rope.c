/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching rope.cu.
 */
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_CACHE(LF_CUDA_DECLARE)

enum { THREADS = 128, BLOCKS = 1 << 20 };

static struct lf_cu_dim grid(int64_t rows)
{
    return (struct lf_cu_dim){.x = (unsigned)(rows < BLOCKS ? rows : BLOCKS)};
}

int lf_cuda_rope_check(const struct lf_k_rope *a)
{
    bool ok = a->rows >= 0 && a->heads > 0 && a->d > 0 && a->rot >= 0 && a->first >= 0 &&
              a->first + a->rot <= a->d && a->rot % 2 == 0 && a->heads * a->d < 1 << 24 &&
              a->ldx >= a->heads * a->d && a->ldy >= a->heads * a->d && a->max_pos > 0 &&
              lf_cu_float(a->x_type) && !(a->axis && a->position2);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
size_t lf_cuda_rope_work(const struct lf_k_rope *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}
int lf_cuda_rope(lf_queue *q, const struct lf_k_rope *a)
{
    return lf_cu_launch(q, LF_CU_FN_rope, grid(a->rows), (struct lf_cu_dim){.x = THREADS}, 0, a);
}

int lf_cuda_heads_join_check(const struct lf_k_heads_join *a)
{
    bool ok = a->rows >= 0 && a->heads > 0 && a->a > 0 && a->b > 0 &&
              a->heads * (a->a + a->b) < 1 << 24 && a->ldx >= a->heads * a->a && a->ldz >= a->b &&
              a->ldy >= a->heads * (a->a + a->b) && lf_cu_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
size_t lf_cuda_heads_join_work(const struct lf_k_heads_join *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}
int lf_cuda_heads_join(lf_queue *q, const struct lf_k_heads_join *a)
{
    return lf_cu_launch(q, LF_CU_FN_heads_join, grid(a->rows), (struct lf_cu_dim){.x = THREADS}, 0,
                        a);
}

int lf_cuda_heads_split_check(const struct lf_k_heads_split *a)
{
    bool ok = a->rows >= 0 && a->heads > 0 && a->a > 0 && a->b > 0 &&
              a->heads * (a->a + a->b) < 1 << 24 && a->lddx >= a->heads * a->a && a->lddz >= a->b &&
              a->lddy >= a->heads * (a->a + a->b) && lf_cu_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
size_t lf_cuda_heads_split_work(const struct lf_k_heads_split *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}
int lf_cuda_heads_split(lf_queue *q, const struct lf_k_heads_split *a)
{
    return lf_cu_launch(q, LF_CU_FN_heads_split, grid(a->rows), (struct lf_cu_dim){.x = THREADS}, 0,
                        a);
}

int lf_cuda_kv_write_check(const struct lf_k_kv_write *a)
{
    bool ok = a->rows >= 0 && a->groups > 0 && a->d > 0 && a->d_value > 0 && a->page_tokens > 0 &&
              a->page_tokens % LF_ATTN_TILE == 0 && a->max_pages > 0 && LF_CU_PAGES_DENSE(a) &&
              a->ldk >= a->groups * a->d && a->ldv >= a->groups * a->d_value &&
              lf_cu_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
size_t lf_cuda_kv_write_work(const struct lf_k_kv_write *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}
int lf_cuda_kv_write(lf_queue *q, const struct lf_k_kv_write *a)
{
    return lf_cu_launch(q, LF_CU_FN_kv_write, grid(a->rows), (struct lf_cu_dim){.x = THREADS}, 0,
                        a);
}
