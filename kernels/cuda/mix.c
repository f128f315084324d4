/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching mix.cu.
 */
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_MIX(LF_CUDA_DECLARE)
LF_CU_NO_WORK(mix_rows)
LF_CU_NO_WORK(col_gate_fwd)
LF_CU_NO_WORK(col_gate_bwd)

enum { ROW_THREADS = 128, THREADS = 256, COLUMNS = 32, ROW_BLOCKS = 1024, BLOCKS = 1 << 20 };

int lf_cuda_mix_rows_check(const struct lf_k_mix_rows *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && lf_cu_float(a->x_type) &&
                   lf_cu_float(a->y_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_mix_rows(lf_queue *q, const struct lf_k_mix_rows *a)
{
    const struct lf_cu_dim grid = {.x = (unsigned)(a->rows < BLOCKS ? a->rows : BLOCKS)};
    return lf_cu_launch(q, LF_CU_FN_mix_rows, grid, (struct lf_cu_dim){.x = ROW_THREADS}, 0, a);
}

int lf_cuda_col_gate_fwd_check(const struct lf_k_col_gate_fwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && lf_cu_float(a->x_type) &&
                   !a->each
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_col_gate_fwd(lf_queue *q, const struct lf_k_col_gate_fwd *a)
{
    const struct lf_cu_dim grid = {.x = a->rows ? lf_cu_blocks(a->c, THREADS) : 0,
                                   .y = (unsigned)(a->rows < ROW_BLOCKS ? a->rows : ROW_BLOCKS)};
    return lf_cu_launch(q, LF_CU_FN_col_gate_fwd, grid, (struct lf_cu_dim){.x = THREADS}, 0, a);
}

int lf_cuda_col_gate_bwd_check(const struct lf_k_col_gate_bwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->lddy >= a->c && a->lddx >= a->c &&
                   lf_cu_float(a->x_type) && !(a->one && a->dgain) && !a->each
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_col_gate_bwd(lf_queue *q, const struct lf_k_col_gate_bwd *a)
{
    const struct lf_cu_dim grid = {.x = lf_cu_blocks(a->c, COLUMNS)};
    return lf_cu_launch(q, LF_CU_FN_col_gate_bwd, grid, (struct lf_cu_dim){.x = THREADS},
                        THREADS * sizeof(float), a);
}
