/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching attention over packed documents: attn_fwd.cu for 16-bit types, attn_f32.cu; cuDNN where
 * it was asked for.
 */
#include "kernels/cuda/args.h"
#include "kernels/cuda/attn_args.h"
#include "kernels/cuda/attn_cudnn.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_ATTN(LF_CUDA_DECLARE)

int lf_cuda_attn_fwd_check(const struct lf_k_attn_fwd *a)
{
    bool ok = a->rows >= 0 && a->rows < INT32_MAX - 256 && a->n_docs >= 0 &&
              a->n_docs < INT32_MAX && lf_cu_attn_heads_ok(a->heads, a->groups, a->d, a->x_type) &&
              a->ldq >= a->heads * a->d && a->ldo >= a->heads * a->d &&
              a->ldk >= a->groups * a->d && a->ldv >= a->groups * a->d && a->softcap >= 0.0f &&
              a->window >= 0 && lf_cu_attn_drop_ok(&a->drop, a->heads, a->rows);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

size_t lf_cuda_attn_fwd_work(const struct lf_k_attn_fwd *a, int threads)
{
    (void)threads;
    return lf_cudnn_attn_fwd_work(a);
}

/* rows a block, threads and shared memory of each head size */
static const struct {
    enum lf_cu_fn bf16, f16;
    unsigned rows, threads;
    size_t smem;
} fwd_form[3] = {
    {LF_CU_FN_attn_fwd_bf16_64, LF_CU_FN_attn_fwd_f16_64, 128, 256, 4 * 64 * 64 * 2},
    {LF_CU_FN_attn_fwd_bf16_128, LF_CU_FN_attn_fwd_f16_128, 128, 256, 4 * 64 * 128 * 2},
    {LF_CU_FN_attn_fwd_bf16_256, LF_CU_FN_attn_fwd_f16_256, 64, 128, 5 * 64 * 256 * 2},
};

int lf_cuda_attn_fwd(lf_queue *q, const struct lf_k_attn_fwd *a)
{
    const int64_t dp = lf_cu_attn_dp(a->d);
    const int i = dp == 64 ? 0 : dp == 128 ? 1 : 2;
    bool done = false;
    const int rc = lf_cudnn_attn_fwd(q, a, &done);
    if (rc != 0 || done)
        return rc;
    if (a->x_type == LF_F32)
        return lf_cu_launch(
            q, LF_CU_FN_attn_fwd_f32,
            (struct lf_cu_dim){.x = lf_cu_blocks(a->rows, 64), .y = (unsigned)a->heads},
            (struct lf_cu_dim){.x = 256}, lf_cu_attn_f32_smem(a->d), a);
    return lf_cu_launch(
        q, a->x_type == LF_BF16 ? fwd_form[i].bf16 : fwd_form[i].f16,
        (struct lf_cu_dim){.x = lf_cu_blocks(a->rows, fwd_form[i].rows), .y = (unsigned)a->heads},
        (struct lf_cu_dim){.x = fwd_form[i].threads}, fwd_form[i].smem + lf_cu_attn_mend_bytes(dp),
        a);
}

int lf_cuda_attn_bwd_check(const struct lf_k_attn_bwd *a)
{
    const int64_t hd = a->heads * a->d, gd = a->groups * a->d;
    bool ok = a->rows >= 0 && a->rows < INT32_MAX - 256 && a->n_docs >= 0 &&
              a->n_docs < INT32_MAX && lf_cu_attn_heads_ok(a->heads, a->groups, a->d, a->x_type) &&
              a->ldq >= hd && a->ldo >= hd && a->lddo >= hd && a->lddq >= hd && a->ldk >= gd &&
              a->ldv >= gd && a->lddk >= gd && a->lddv >= gd && a->softcap >= 0.0f &&
              a->window >= 0 && lf_cu_attn_drop_ok(&a->drop, a->heads, a->rows);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* delta, f32 [H, rows] */
static size_t delta_bytes(const struct lf_k_attn_bwd *a)
{
    return (size_t)(a->rows * a->heads) * sizeof(float);
}

size_t lf_cuda_attn_bwd_work(const struct lf_k_attn_bwd *a, int threads)
{
    (void)threads;
    const size_t own = delta_bytes(a), library = lf_cudnn_attn_bwd_work(a);
    return own > library ? own : library;
}

static const struct {
    enum lf_cu_fn dq[2], dkv[2]; /* bf16, f16 */
    unsigned halves;
    size_t smem;
} bwd_form[3] = {
    {{LF_CU_FN_attn_dq_bf16_64, LF_CU_FN_attn_dq_f16_64},
     {LF_CU_FN_attn_dkv_bf16_64, LF_CU_FN_attn_dkv_f16_64},
     1,
     6 * 64 * 64 * 2},
    {{LF_CU_FN_attn_dq_bf16_128, LF_CU_FN_attn_dq_f16_128},
     {LF_CU_FN_attn_dkv_bf16_128, LF_CU_FN_attn_dkv_f16_128},
     1,
     6 * 64 * 128 * 2},
    {{LF_CU_FN_attn_dq_bf16_256, LF_CU_FN_attn_dq_f16_256},
     {LF_CU_FN_attn_dkv_bf16_256, LF_CU_FN_attn_dkv_f16_256},
     2,
     4 * 64 * 256 * 2},
};

int lf_cuda_attn_bwd(lf_queue *q, const struct lf_k_attn_bwd *a)
{
    const int64_t dp = lf_cu_attn_dp(a->d);
    const int i = dp == 64 ? 0 : dp == 128 ? 1 : 2, half = a->x_type == LF_F16;
    const bool f32 = a->x_type == LF_F32;
    const size_t smem =
        f32 ? lf_cu_attn_bwd_f32_smem(a->d) : bwd_form[i].smem + 2 * 2 * 64 * sizeof(float);
    const struct lf_cu_dim block = {.x = f32 ? 256 : 128};
    struct lf_cu_dim grid = {.x = lf_cu_blocks(a->rows, f32 ? 32 : 64),
                             .y = (unsigned)a->groups,
                             .z = f32 ? 1 : bwd_form[i].halves};
    bool done = false;
    if (a->work_bytes < delta_bytes(a))
        return LF_K_EINVAL;
    int rc = lf_cudnn_attn_bwd(q, a, &done);
    if (rc != 0 || done)
        return rc;
    rc = lf_cu_launch(q, LF_CU_FN_attn_bwd_delta,
                      (struct lf_cu_dim){.x = lf_cu_blocks(a->rows * a->heads, 8)},
                      (struct lf_cu_dim){.x = 256}, 0, a);
    if (rc == 0)
        rc = lf_cu_launch(q, f32 ? LF_CU_FN_attn_dkv_f32 : bwd_form[i].dkv[half], grid, block, smem,
                          a);
    grid.y = (unsigned)a->heads;
    return rc != 0 ? rc
                   : lf_cu_launch(q, f32 ? LF_CU_FN_attn_dq_f32 : bwd_form[i].dq[half], grid, block,
                                  smem, a);
}
