/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching dwconv.cu.
 */
#include "kernels/cuda/dwconv.h"
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_DWCONV(LF_CUDA_DECLARE)
LF_CU_NO_WORK(dwconv_fwd)
LF_CU_NO_WORK(dwconv_bwd)
LF_CU_NO_WORK(turn_rows)

enum { THREADS = 256, COLUMNS = 32, ROW_BLOCKS = 4096 };

static bool shape_ok(int64_t rows, int64_t c, int64_t side, int64_t taps, uint8_t type)
{
    return rows >= 0 && c > 0 && side > 0 && side < 1 << 20 && taps > 0 &&
           taps <= LF_DWCONV_MOST_TAPS && taps % 2 && lf_cu_float(type);
}

static int filter(lf_queue *q, const struct lf_cu_dwconv *f)
{
    const struct lf_cu_dim grid = {.x = f->rows ? lf_cu_blocks(f->c, THREADS) : 0,
                                   .y = (unsigned)(f->rows < ROW_BLOCKS ? f->rows : ROW_BLOCKS)};
    return lf_cu_launch(q, LF_CU_FN_dwconv_filter, grid, (struct lf_cu_dim){.x = THREADS}, 0, f);
}

int lf_cuda_dwconv_fwd_check(const struct lf_k_dwconv_fwd *a)
{
    return shape_ok(a->rows, a->c, a->side, a->taps, a->x_type) && a->ldx >= a->c && a->ldy >= a->c
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_dwconv_fwd(lf_queue *q, const struct lf_k_dwconv_fwd *a)
{
    return filter(q, &(struct lf_cu_dwconv){.rows = a->rows,
                                            .c = a->c,
                                            .side = a->side,
                                            .taps = a->taps,
                                            .ldx = a->ldx,
                                            .ldy = a->ldy,
                                            .x = a->x,
                                            .w = a->w,
                                            .bias = a->bias,
                                            .y = a->y,
                                            .x_type = a->x_type});
}

int lf_cuda_dwconv_bwd_check(const struct lf_k_dwconv_bwd *a)
{
    return shape_ok(a->rows, a->c, a->side, a->taps, a->x_type) && a->ldx >= a->c &&
                   a->lddy >= a->c && a->lddx >= a->c
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_dwconv_bwd(lf_queue *q, const struct lf_k_dwconv_bwd *a)
{
    const struct lf_cu_dwconv dx = {.rows = a->rows,
                                    .c = a->c,
                                    .side = a->side,
                                    .taps = a->taps,
                                    .ldx = a->lddy,
                                    .ldy = a->lddx,
                                    .x = a->dy,
                                    .w = a->w,
                                    .y = a->dx,
                                    .reverse = true,
                                    .x_type = a->x_type};
    const int rc = a->dx ? filter(q, &dx) : LF_K_OK;
    return rc != 0 || (!a->dw && !a->dbias)
               ? rc
               : lf_cu_launch(
                     q, LF_CU_FN_dwconv_bwd,
                     (struct lf_cu_dim){.x = lf_cu_blocks(a->c, COLUMNS), .y = (unsigned)a->taps},
                     (struct lf_cu_dim){.x = THREADS},
                     (size_t)(8 * (a->taps + 1) * 32) * sizeof(float), a);
}

int lf_cuda_turn_rows_check(const struct lf_k_turn_rows *a)
{
    return a->rows >= 0 && a->c > 0 && a->each > 0 && a->ldx >= a->c && a->ldy >= a->each &&
                   a->y_rows >= a->rows / a->each * a->c && lf_cu_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_turn_rows(lf_queue *q, const struct lf_k_turn_rows *a)
{
    const struct lf_cu_dim grid = {.x = a->y_rows ? lf_cu_blocks(a->each, THREADS) : 0,
                                   .y =
                                       (unsigned)(a->y_rows < ROW_BLOCKS ? a->y_rows : ROW_BLOCKS)};
    return lf_cu_launch(q, LF_CU_FN_turn_rows, grid, (struct lf_cu_dim){.x = THREADS}, 0, a);
}
