/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching attention over packed documents: for 16-bit types attn_fwd.cu and attn_bwd.cu; on
 * compute capability 9.0 those with "_wgmma" for keys and values of up to 128 channels;
 * attn_f32.cu; cuDNN where it was asked for (attn_source.h).
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
              a->n_docs < INT32_MAX && !a->own.first && !a->own.cu && !a->bias.reach &&
              lf_cu_float(a->x_type) &&
              lf_cu_attn_heads_ok(a->heads, a->groups, a->d, a->d_value) &&
              a->ldq >= a->heads * a->d && a->ldo >= a->heads * a->d_value &&
              a->ldk >= a->groups * a->d && a->ldv >= a->groups * a->d_value &&
              a->softcap >= 0.0f && lf_cu_attn_drop_ok(&a->drop, a->heads, a->rows);
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

/* The same of compute capability 9.0: 128 rows a block, 256 threads; three stages, queries, and
 * what aligning them to 1024 bytes takes. */
static const struct {
    enum lf_cu_fn fn[2]; /* bf16, f16 */
    size_t smem;
} fwd_wg[2] = {
    {{LF_CU_FN_attn_fwd_wg_bf16_64, LF_CU_FN_attn_fwd_wg_f16_64}, 1024 + 8 * 64 * 64 * 2},
    {{LF_CU_FN_attn_fwd_wg_bf16_128, LF_CU_FN_attn_fwd_wg_f16_128}, 1024 + 8 * 64 * 128 * 2},
};
enum { WG_ROWS = 128, WG_THREADS = 256 };

static bool by_warpgroups(const lf_queue *q, int64_t dp, uint8_t type)
{
    return q->dev->attn_wgmma && type != LF_F32 && dp <= 128;
}

int lf_cuda_attn_fwd(lf_queue *q, const struct lf_k_attn_fwd *a)
{
    const int64_t wide = lf_cu_attn_wide(a->d, a->d_value), dp = lf_cu_attn_dp(wide);
    const int i = dp == 64 ? 0 : dp == 128 ? 1 : 2;
    bool done = false;
    const int rc = lf_cudnn_attn_fwd(q, a, &done);
    if (rc != 0 || done)
        return rc;
    if (a->x_type == LF_F32)
        return lf_cu_launch(
            q, LF_CU_FN_attn_fwd_f32,
            (struct lf_cu_dim){.x = lf_cu_blocks(a->rows, 64), .y = (unsigned)a->heads},
            (struct lf_cu_dim){.x = 256}, lf_cu_attn_f32_smem(wide), a);
    if (by_warpgroups(q, dp, a->x_type))
        return lf_cu_launch(
            q, fwd_wg[i].fn[a->x_type == LF_F16],
            (struct lf_cu_dim){.x = lf_cu_blocks(a->rows, WG_ROWS), .y = (unsigned)a->heads},
            (struct lf_cu_dim){.x = WG_THREADS}, fwd_wg[i].smem + lf_cu_attn_mend_bytes(dp), a);
    return lf_cu_launch(
        q, a->x_type == LF_BF16 ? fwd_form[i].bf16 : fwd_form[i].f16,
        (struct lf_cu_dim){.x = lf_cu_blocks(a->rows, fwd_form[i].rows), .y = (unsigned)a->heads},
        (struct lf_cu_dim){.x = fwd_form[i].threads}, fwd_form[i].smem + lf_cu_attn_mend_bytes(dp),
        a);
}

int lf_cuda_attn_bwd_check(const struct lf_k_attn_bwd *a)
{
    const int64_t hd = a->heads * a->d, gd = a->groups * a->d, he = a->heads * a->d_value,
                  ge = a->groups * a->d_value;
    bool ok = a->rows >= 0 && a->rows < INT32_MAX - 256 && a->n_docs >= 0 &&
              a->n_docs < INT32_MAX && !a->own.first && !a->own.cu && !a->bias.reach &&
              lf_cu_float(a->x_type) &&
              lf_cu_attn_heads_ok(a->heads, a->groups, a->d, a->d_value) && a->ldq >= hd &&
              a->ldo >= he && a->lddo >= he && a->lddq >= hd && a->ldk >= gd && a->ldv >= ge &&
              a->lddk >= gd && a->lddv >= ge && a->softcap >= 0.0f &&
              lf_cu_attn_drop_ok(&a->drop, a->heads, a->rows);
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

/* The same of compute capability 9.0: own rows, two stages, alignment. */
static const struct {
    enum lf_cu_fn dq[2], dkv[2];
    size_t smem;
} bwd_wg[2] = {
    {{LF_CU_FN_attn_dq_wg_bf16_64, LF_CU_FN_attn_dq_wg_f16_64},
     {LF_CU_FN_attn_dkv_wg_bf16_64, LF_CU_FN_attn_dkv_wg_f16_64},
     1024 + 8 * 64 * 64 * 2},
    {{LF_CU_FN_attn_dq_wg_bf16_128, LF_CU_FN_attn_dq_wg_f16_128},
     {LF_CU_FN_attn_dkv_wg_bf16_128, LF_CU_FN_attn_dkv_wg_f16_128},
     1024 + 8 * 64 * 128 * 2},
};

/* The two kernels of a call, and their blocks. */
struct bwd_launch {
    enum lf_cu_fn dq, dkv;
    unsigned rows, threads, halves;
    size_t smem;
};
static struct bwd_launch bwd_launch(const lf_queue *q, const struct lf_k_attn_bwd *a)
{
    const int64_t wide = lf_cu_attn_wide(a->d, a->d_value), dp = lf_cu_attn_dp(wide);
    const int i = dp == 64 ? 0 : dp == 128 ? 1 : 2, half = a->x_type == LF_F16;
    const size_t stat = 2 * 3 * 64 * sizeof(float);
    if (a->x_type == LF_F32)
        return (struct bwd_launch){LF_CU_FN_attn_dq_f32,         LF_CU_FN_attn_dkv_f32, 32, 256, 1,
                                   lf_cu_attn_bwd_f32_smem(wide)};
    if (by_warpgroups(q, dp, a->x_type))
        return (struct bwd_launch){
            bwd_wg[i].dq[half], bwd_wg[i].dkv[half], WG_ROWS, WG_THREADS, 1, bwd_wg[i].smem + stat};
    return (struct bwd_launch){bwd_form[i].dq[half], bwd_form[i].dkv[half],  64, 128,
                               bwd_form[i].halves,   bwd_form[i].smem + stat};
}

int lf_cuda_attn_bwd(lf_queue *q, const struct lf_k_attn_bwd *a)
{
    const struct bwd_launch l = bwd_launch(q, a);
    const struct lf_cu_dim block = {.x = l.threads};
    struct lf_cu_dim grid = {
        .x = lf_cu_blocks(a->rows, l.rows), .y = (unsigned)a->groups, .z = l.halves};
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
        rc = lf_cu_launch(q, l.dkv, grid, block, l.smem, a);
    grid.y = (unsigned)a->heads;
    return rc != 0 ? rc : lf_cu_launch(q, l.dq, grid, block, l.smem, a);
}

size_t lf_cuda_attn_sinks_bwd_work(const struct lf_k_attn_sinks_bwd *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}

int lf_cuda_attn_sinks_bwd_check(const struct lf_k_attn_sinks_bwd *a)
{
    const int64_t he = a->heads * a->d_value;
    bool ok = a->rows >= 0 && a->rows < INT32_MAX - 256 && lf_cu_float(a->x_type) &&
              lf_cu_attn_heads_ok(a->heads, 1, 2, a->d_value) && a->ldo >= he && a->lddo >= he &&
              a->ldds >= a->heads;
    return ok ? LF_K_OK : LF_K_EINVAL;
}

int lf_cuda_attn_sinks_bwd(lf_queue *q, const struct lf_k_attn_sinks_bwd *a)
{
    return lf_cu_launch(q, LF_CU_FN_attn_sinks_bwd,
                        (struct lf_cu_dim){.x = lf_cu_blocks(a->rows * a->heads, 8)},
                        (struct lf_cu_dim){.x = 256}, 0, a);
}
