/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching attn_paged.cu.
 */
#include "kernels/cuda/args.h"
#include "kernels/cuda/attn_args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_CACHE(LF_CUDA_DECLARE)

enum { SLOTS = 64, THREADS = 128 };

int lf_cuda_attn_paged_check(const struct lf_k_attn_paged *a)
{
    bool ok = a->rows >= 0 && a->rows < INT32_MAX - 256 && lf_cu_attn_heads_ok(a->heads, a->groups, a->d, a->x_type) &&
              a->page_tokens > 0 && a->page_tokens % LF_ATTN_TILE == 0 && a->max_pages > 0 &&
              a->ldq >= a->heads * a->d && a->ldo >= a->heads * a->d && a->softcap >= 0.0f && a->window >= 0;
    return ok ? LF_K_OK : LF_K_EINVAL;
}

size_t lf_cuda_attn_paged_work(const struct lf_k_attn_paged *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}

int lf_cuda_attn_paged(lf_queue *q, const struct lf_k_attn_paged *a)
{
    static const struct {
        enum lf_cu_fn bf16, f16;
        size_t tiles;
    } form[3] = {
        {LF_CU_FN_attn_paged_bf16_64, LF_CU_FN_attn_paged_f16_64, 4},
        {LF_CU_FN_attn_paged_bf16_128, LF_CU_FN_attn_paged_f16_128, 4},
        {LF_CU_FN_attn_paged_bf16_256, LF_CU_FN_attn_paged_f16_256, 5},
    };
    const int64_t dp = lf_cu_attn_dp(a->d), per = a->heads / a->groups;
    const int i = dp == 64 ? 0 : dp == 128 ? 1 : 2;
    const struct lf_cu_dim grid = {.x = (unsigned)a->rows, .y = (unsigned)(a->groups * ((per + SLOTS - 1) / SLOTS))};
    if (a->x_type == LF_F32)
        return lf_cu_launch(q, LF_CU_FN_attn_paged_f32, grid, (struct lf_cu_dim){.x = 256}, lf_cu_attn_f32_smem(a->d),
                            a);
    return lf_cu_launch(q, a->x_type == LF_BF16 ? form[i].bf16 : form[i].f16, grid, (struct lf_cu_dim){.x = THREADS},
                        form[i].tiles * LF_ATTN_TILE * (size_t)dp * 2 + lf_cu_attn_mend_bytes(dp), a);
}
