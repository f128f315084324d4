/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching rows.cu. How many threads share a row depends on its length alone; how many rows a
 * block of the backward adds up, on the number of rows alone.
 */
#include "kernels/cuda/rows.h"
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_ROWS(LF_CUDA_DECLARE)

LF_CU_NO_WORK(norm_fwd)
LF_CU_NO_WORK(unit_rows_fwd)
LF_CU_NO_WORK(unit_rows_bwd)
LF_CU_NO_WORK(row_gate_fwd)
LF_CU_NO_WORK(row_gate_bwd)

enum {
    SCRATCH = 64 * sizeof(float),
    SMALL_BLOCK = 128, /* threads of a block whose groups are parts of a warp */
    MOST_PARTS = 1024, /* blocks of the backward: enough for every multiprocessor */
    FEWEST_ROWS = 16,
    MOST_HEADS = 65535 /* blocks in the second direction of a grid */
};

/* Threads that share a row of c columns, each with at most `vecs` pieces in its registers; 0: too
 * many columns. Beyond a warp, half of the registers stay free: more threads have more loads under
 * way. */
static int group_of(int64_t c, int vecs, int most)
{
    const int64_t pieces = (c + 7) / 8;
    for (int g = 8; g <= 32; g *= 2)
        if (pieces <= g * (int64_t)(g < 32 ? 1 : vecs))
            return g;
    const int64_t each = pieces <= 2 * (int64_t)most && vecs > 2 ? 2 : vecs,
                  t = (pieces + each - 1) / each;
    return t > most ? 0 : (int)((t + 31) / 32 * 32);
}

static unsigned block_of(int group)
{
    return group > 32 ? (unsigned)group : SMALL_BLOCK;
}

/* ---- norm, forward ---- */

int lf_cuda_norm_fwd_check(const struct lf_k_norm_fwd *a)
{
    const int64_t row = a->heads * a->c;
    bool ok = a->rows >= 0 && a->heads > 0 && a->c > 0 && a->ldx >= row &&
              (a->sums || a->squares || a->ldy >= row) && lf_cu_float(a->x_type) &&
              lf_cu_float(a->y_type) && lf_cu_float(a->w_type) && lf_norm_part_fits(a) &&
              group_of(a->c, LF_NORM_FWD_VECS, LF_NORM_THREADS) > 0;
    return ok ? LF_K_OK : LF_K_EINVAL;
}

int lf_cuda_norm_fwd(lf_queue *q, const struct lf_k_norm_fwd *a)
{
    const struct lf_cu_norm_fwd args = {*a, group_of(a->c, LF_NORM_FWD_VECS, LF_NORM_THREADS)};
    const unsigned block = block_of(args.group);
    return lf_cu_launch(
        q, a->c <= 8 * LF_NORM_FWD_FEW * args.group ? LF_CU_FN_norm_fwd_few : LF_CU_FN_norm_fwd,
        (struct lf_cu_dim){.x = lf_cu_blocks(a->rows * a->heads, block / (unsigned)args.group)},
        (struct lf_cu_dim){.x = block}, SCRATCH, &args);
}

/* ---- norm, backward ---- */

static bool bwd_wide(int64_t c)
{
    return c > 8 * LF_NORM_BWD_VECS * LF_NORM_THREADS;
}

static int bwd_group(int64_t c)
{
    return group_of(c, bwd_wide(c) ? LF_NORM_BWD_WIDE : LF_NORM_BWD_VECS, LF_NORM_THREADS);
}

static int64_t bwd_rows(int64_t rows)
{
    const int64_t b = (rows + MOST_PARTS - 1) / MOST_PARTS;
    return b < FEWEST_ROWS ? FEWEST_ROWS : b;
}

/* Rows that blocks divide, and columns of the sums over them: with `each`, a head's rows are other
 * blocks', and its columns its own. */
static int64_t bwd_count(const struct lf_k_norm_bwd *a)
{
    return a->each ? a->rows : a->rows * a->heads;
}

static int64_t bwd_columns(const struct lf_k_norm_bwd *a)
{
    return a->each ? a->heads * a->c : a->c;
}

static int64_t bwd_stride(const struct lf_k_norm_bwd *a)
{
    return (bwd_columns(a) + 31) / 32 * 32;
}

int lf_cuda_norm_bwd_check(const struct lf_k_norm_bwd *a)
{
    const int64_t row = a->heads * a->c;
    bool ok = a->rows >= 0 && a->heads > 0 && a->c > 0 && a->ldx >= row && a->lddy >= row &&
              (a->dots || a->lddx >= row) && lf_cu_float(a->x_type) && lf_cu_float(a->dy_type) &&
              lf_cu_float(a->w_type) && lf_norm_bwd_part_fits(a) && bwd_group(a->c) > 0 &&
              (!a->each || a->heads <= MOST_HEADS);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

size_t lf_cuda_norm_bwd_work(const struct lf_k_norm_bwd *a, int threads)
{
    (void)threads;
    const int64_t rows = bwd_count(a);
    return (size_t)(lf_cu_blocks(rows, bwd_rows(rows)) * 2 * bwd_stride(a)) * sizeof(float);
}

int lf_cuda_norm_bwd(lf_queue *q, const struct lf_k_norm_bwd *a)
{
    const int64_t rows = bwd_count(a), columns = bwd_columns(a);
    const struct lf_cu_norm_bwd args = {*a, bwd_group(a->c), bwd_rows(rows), bwd_stride(a)};
    const unsigned parts = lf_cu_blocks(rows, args.block), block = block_of(args.group);
    const bool wide = bwd_wide(a->c), sums = a->dw || a->db;
    const size_t smem =
        SCRATCH +
        (sums ? (size_t)block * 8 * (wide ? LF_NORM_BWD_WIDE : LF_NORM_BWD_VECS) * sizeof(float)
              : 0);
    if (sums && a->work_bytes < lf_cuda_norm_bwd_work(a, 1))
        return LF_K_EINVAL;
    int rc = lf_cu_launch(q, wide ? LF_CU_FN_norm_bwd_wide : LF_CU_FN_norm_bwd,
                          (struct lf_cu_dim){.x = parts, .y = a->each ? (unsigned)a->heads : 1},
                          (struct lf_cu_dim){.x = block}, smem, &args);
    if (rc != 0 || !sums)
        return rc;
    const struct lf_cu_norm_sum s = {a->work, a->dw,       a->db,        columns,
                                     parts,   args.stride, a->accumulate};
    return lf_cu_launch(q, LF_CU_FN_norm_bwd_sum,
                        (struct lf_cu_dim){.x = lf_cu_blocks(columns, LF_NORM_SUM_X), .y = 2},
                        (struct lf_cu_dim){.x = LF_NORM_SUM_X, .y = LF_NORM_SUM_Y},
                        LF_NORM_SUM_X * LF_NORM_SUM_Y * sizeof(float), &s);
}

/* ---- a block for each row ---- */

static int row_launch(lf_queue *q, enum lf_cu_fn fn, int64_t rows, const void *args)
{
    return lf_cu_launch(q, fn, (struct lf_cu_dim){.x = (unsigned)rows},
                        (struct lf_cu_dim){.x = LF_ROW_THREADS}, SCRATCH, args);
}

int lf_cuda_unit_rows_fwd_check(const struct lf_k_unit_rows_fwd *a)
{
    return a->rows >= 0 && a->rows <= INT32_MAX && a->c > 0 && lf_cu_float(a->y_type) ? LF_K_OK
                                                                                      : LF_K_EINVAL;
}
int lf_cuda_unit_rows_fwd(lf_queue *q, const struct lf_k_unit_rows_fwd *a)
{
    return row_launch(q, LF_CU_FN_unit_rows_fwd, a->rows, a);
}

int lf_cuda_unit_rows_bwd_check(const struct lf_k_unit_rows_bwd *a)
{
    return a->rows >= 0 && a->rows <= INT32_MAX && a->c > 0 ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_unit_rows_bwd(lf_queue *q, const struct lf_k_unit_rows_bwd *a)
{
    return row_launch(q, LF_CU_FN_unit_rows_bwd, a->rows, a);
}

int lf_cuda_row_gate_fwd_check(const struct lf_k_row_gate_fwd *a)
{
    bool ok =
        a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && lf_cu_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_row_gate_fwd(lf_queue *q, const struct lf_k_row_gate_fwd *a)
{
    const int64_t n = a->rows * ((a->c + 7) / 8), most = 65536 * 256;
    return lf_cu_launch(q, LF_CU_FN_row_gate_fwd,
                        (struct lf_cu_dim){.x = lf_cu_blocks(n < most ? n : most, 256)},
                        (struct lf_cu_dim){.x = 256}, 0, a);
}

int lf_cuda_row_gate_bwd_check(const struct lf_k_row_gate_bwd *a)
{
    bool ok = a->rows >= 0 && a->rows <= INT32_MAX && a->c > 0 && a->ldx >= a->c &&
              a->lddy >= a->c && a->lddx >= a->c && lf_cu_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_row_gate_bwd(lf_queue *q, const struct lf_k_row_gate_bwd *a)
{
    return row_launch(q, LF_CU_FN_row_gate_bwd, a->rows, a);
}
