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
enum {
    SPLIT_ROWS = 32,
    SPLIT_BLOCKS = 256
}; /* above so many rows tiles are not shared out; blocks to get to */
#define SPLIT_BYTES ((size_t)64 << 20) /* of workspace at most */

static int64_t tiles_of(const struct lf_k_attn_paged *a)
{
    return a->max_pages * a->page_tokens / LF_ATTN_TILE;
}

static int64_t columns_of(const struct lf_k_attn_paged *a)
{
    return a->groups * ((a->heads / a->groups + SLOTS - 1) / SLOTS);
}

static size_t parts_bytes(const struct lf_k_attn_paged *a)
{
    return (size_t)(a->rows * a->heads * tiles_of(a) * (a->d_value + 2)) * sizeof(float);
}

/* Blocks that share out the tiles of a run of rows; the bits do not depend on it. */
static int64_t shares_of(const struct lf_k_attn_paged *a)
{
    const int64_t blocks = a->rows * columns_of(a), tiles = tiles_of(a);
    if (a->x_type == LF_F32 || a->rows < 1 || a->rows > SPLIT_ROWS || parts_bytes(a) > SPLIT_BYTES)
        return 1;
    const int64_t n = (SPLIT_BLOCKS + blocks - 1) / blocks;
    return n < tiles ? n : tiles;
}

int lf_cuda_attn_paged_check(const struct lf_k_attn_paged *a)
{
    bool ok = a->rows >= 0 && a->rows < INT32_MAX - 256 && lf_cu_float(a->x_type) &&
              lf_cu_attn_heads_ok(a->heads, a->groups, a->d, a->d_value) && a->page_tokens > 0 &&
              a->page_tokens % LF_ATTN_TILE == 0 && a->max_pages > 0 && LF_CU_PAGES_DENSE(a) &&
              a->ldq >= a->heads * a->d && a->ldo >= a->heads * a->d_value && a->softcap >= 0.0f;
    return ok ? LF_K_OK : LF_K_EINVAL;
}

size_t lf_cuda_attn_paged_work(const struct lf_k_attn_paged *a, int threads)
{
    (void)threads;
    return shares_of(a) > 1 ? parts_bytes(a) : 0;
}

/* Functions and tiles of shared memory for 64, 128 and 256 channels. */
static const struct {
    enum lf_cu_fn whole[2], split[2]; /* bf16, f16 */
    size_t tiles;
} form[3] = {
    {{LF_CU_FN_attn_paged_bf16_64, LF_CU_FN_attn_paged_f16_64},
     {LF_CU_FN_attn_split_bf16_64, LF_CU_FN_attn_split_f16_64},
     4},
    {{LF_CU_FN_attn_paged_bf16_128, LF_CU_FN_attn_paged_f16_128},
     {LF_CU_FN_attn_split_bf16_128, LF_CU_FN_attn_split_f16_128},
     4},
    {{LF_CU_FN_attn_paged_bf16_256, LF_CU_FN_attn_paged_f16_256},
     {LF_CU_FN_attn_split_bf16_256, LF_CU_FN_attn_split_f16_256},
     5},
};

int lf_cuda_attn_paged(lf_queue *q, const struct lf_k_attn_paged *a)
{
    const int64_t wide = lf_cu_attn_wide(a->d, a->d_value), dp = lf_cu_attn_dp(wide),
                  shares = shares_of(a);
    const int i = dp == 64 ? 0 : dp == 128 ? 1 : 2, half = a->x_type == LF_F16;
    const size_t smem = form[i].tiles * LF_ATTN_TILE * (size_t)dp * 2 + lf_cu_attn_mend_bytes(dp);
    const struct lf_cu_dim block = {.x = THREADS};
    struct lf_cu_dim grid = {
        .x = (unsigned)a->rows, .y = (unsigned)columns_of(a), .z = (unsigned)shares};
    if (a->x_type == LF_F32)
        return lf_cu_launch(q, LF_CU_FN_attn_paged_f32, grid, (struct lf_cu_dim){.x = 256},
                            lf_cu_attn_f32_smem(wide), a);
    if (shares == 1)
        return lf_cu_launch(q, form[i].whole[half], grid, block, smem, a);
    if (!a->work || a->work_bytes < parts_bytes(a))
        return LF_K_EINVAL;
    int rc = lf_cu_launch(q, form[i].split[half], grid, block, smem, a);
    grid = (struct lf_cu_dim){.x = (unsigned)a->rows, .y = (unsigned)a->heads};
    return rc != 0 ? rc : lf_cu_launch(q, LF_CU_FN_attn_join, grid, block, 0, a);
}
