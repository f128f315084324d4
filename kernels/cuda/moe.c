/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching moe.cu.
 */
#include "kernels/cuda/moe.h"
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_MOE(LF_CUDA_DECLARE)

LF_CU_NO_WORK(moe_route)
LF_CU_NO_WORK(moe_route_bwd)
LF_CU_NO_WORK(moe_stats)
LF_CU_NO_WORK(moe_keep)
LF_CU_NO_WORK(moe_sort)
LF_CU_NO_WORK(moe_combine)
LF_CU_NO_WORK(moe_combine_bwd)
LF_CU_NO_WORK(moe_gain)
LF_CU_NO_WORK(moe_gain_dw)

static bool sizes_ok(int64_t rows, int64_t experts, int32_t k)
{
    return rows >= 0 && experts > 0 && experts <= LF_MOE_MAX_EXPERTS && k > 0 && k <= experts &&
           rows <= INT32_MAX / k;
}

/* A warp for each of n rows. */
static int warps(lf_queue *q, enum lf_cu_fn fn, int64_t n, size_t floats, const void *args)
{
    return lf_cu_launch(q, fn, (struct lf_cu_dim){.x = lf_cu_blocks(n, LF_MOE_WARPS)},
                        (struct lf_cu_dim){.x = 32 * LF_MOE_WARPS},
                        LF_MOE_WARPS * floats * sizeof(float), args);
}

int lf_cuda_moe_route_check(const struct lf_k_moe_route *a)
{
    bool groups = a->groups <= 1 ||
                  (a->experts % a->groups == 0 && a->top_groups > 0 && a->top_groups <= a->groups &&
                   a->experts / a->groups * a->top_groups >= a->k);
    return sizes_ok(a->rows, a->experts, a->k) && groups && a->ldlogits >= a->experts ? LF_K_OK
                                                                                      : LF_K_EINVAL;
}
int lf_cuda_moe_route(lf_queue *q, const struct lf_k_moe_route *a)
{
    return warps(q, LF_CU_FN_moe_route, a->rows, LF_MOE_ROUTE_ROWS * (size_t)a->experts, a);
}

int lf_cuda_moe_route_bwd_check(const struct lf_k_moe_route_bwd *a)
{
    bool aux = !a->load || (a->layers > 0 && a->cu_seqlens && a->n_docs > 0 && a->rec);
    return sizes_ok(a->rows, a->experts, a->k) && aux && a->lddlogits >= a->experts ? LF_K_OK
                                                                                    : LF_K_EINVAL;
}
int lf_cuda_moe_route_bwd(lf_queue *q, const struct lf_k_moe_route_bwd *a)
{
    return warps(q, LF_CU_FN_moe_route_bwd, a->rows, (size_t)a->experts, a);
}

int lf_cuda_moe_stats_check(const struct lf_k_moe_stats *a)
{
    return sizes_ok(a->rows, a->experts, a->k) && a->layers >= 0 && a->n_docs > 0 ? LF_K_OK
                                                                                  : LF_K_EINVAL;
}
int lf_cuda_moe_stats(lf_queue *q, const struct lf_k_moe_stats *a)
{
    int rc =
        lf_cu_launch(q, LF_CU_FN_moe_stats, (struct lf_cu_dim){.x = lf_cu_blocks(a->experts, 32)},
                     (struct lf_cu_dim){.x = 1024}, 2 * 1024 * sizeof(double), a);
    if (rc != 0 || !a->rec)
        return rc;
    return lf_cu_launch(q, LF_CU_FN_moe_stats_end, (struct lf_cu_dim){.x = 1},
                        (struct lf_cu_dim){.x = 32}, 0, a);
}

/* One block, which counts the pairs of each expert warp by warp. */
static int by_experts(lf_queue *q, enum lf_cu_fn fn, int64_t experts, const void *args)
{
    return lf_cu_launch(q, fn, (struct lf_cu_dim){.x = 1}, (struct lf_cu_dim){.x = 1024},
                        (33 * (size_t)experts + 1) * sizeof(int32_t), args);
}

int lf_cuda_moe_keep_check(const struct lf_k_moe_keep *a)
{
    bool ok = sizes_ok(a->all_rows, a->experts, a->k) && a->rows >= 0 && a->first >= 0 &&
              a->first + a->rows <= a->all_rows && a->capacity > 0 &&
              (!a->blocks || (a->block > 0 && a->own > 0));
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_moe_keep(lf_queue *q, const struct lf_k_moe_keep *a)
{
    return a->rows ? by_experts(q, LF_CU_FN_moe_keep, a->experts, a) : 0;
}

int lf_cuda_moe_sort_check(const struct lf_k_moe_sort *a)
{
    return sizes_ok(a->rows, a->experts, a->k) ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_moe_sort(lf_queue *q, const struct lf_k_moe_sort *a)
{
    return by_experts(q, LF_CU_FN_moe_sort, a->experts, a);
}

int lf_cuda_moe_combine_check(const struct lf_k_moe_combine *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->k > 0 && a->ldx >= a->c && a->ldy >= a->c &&
              (!a->residual || a->ldres >= a->c) && lf_cu_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_moe_combine(lf_queue *q, const struct lf_k_moe_combine *a)
{
    const int64_t n = a->rows * ((a->c + 7) / 8), most = 65536 * 256;
    return lf_cu_launch(q, LF_CU_FN_moe_combine,
                        (struct lf_cu_dim){.x = lf_cu_blocks(n < most ? n : most, 256)},
                        (struct lf_cu_dim){.x = 256}, 0, a);
}

int lf_cuda_moe_combine_bwd_check(const struct lf_k_moe_combine_bwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->k > 0 && a->ldx >= a->c && a->lddy >= a->c &&
              a->lddx >= a->c && lf_cu_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_moe_combine_bwd(lf_queue *q, const struct lf_k_moe_combine_bwd *a)
{
    return warps(q, LF_CU_FN_moe_combine_bwd, a->rows * a->k, 0, a);
}

int lf_cuda_moe_gain_check(const struct lf_k_moe_gain *a)
{
    return sizes_ok(a->rows, a->experts, a->k) ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_moe_gain(lf_queue *q, const struct lf_k_moe_gain *a)
{
    const int64_t n = a->rows * a->k, most = 65536 * 256;
    return lf_cu_launch(q, LF_CU_FN_moe_gain,
                        (struct lf_cu_dim){.x = lf_cu_blocks(n < most ? n : most, 256)},
                        (struct lf_cu_dim){.x = 256}, 0, a);
}

int lf_cuda_moe_gain_dw_check(const struct lf_k_moe_gain_dw *a)
{
    return sizes_ok(a->rows, a->experts, a->k) ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_moe_gain_dw(lf_queue *q, const struct lf_k_moe_gain_dw *a)
{
    return warps(q, LF_CU_FN_moe_gain_dw, a->experts, 0, a);
}
