/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of single heads: tasks over (head, block of rows, block of columns), each a gemm by the
 * thread that takes it. How they are cut enters no element's chain (gemm_int.h).
 */
#include "config.h"

#include <omp.h>

#include "kernels/cpu/gemm_int.h"
#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(gemm)
LF_CPU_DECLARE(gemm_heads)

enum {
    ROWS = 256 / LF_MR * LF_MR, /* of a task at most */
    COLS = 128                  /* of a task at least, where heads are fewer than threads */
};

struct cut {
    int64_t rows, cols; /* of a task */
    int64_t row_blocks, col_blocks;
    size_t work; /* of a thread */
};

static int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static struct lf_k_gemm task_shape(const struct lf_k_gemm_heads *a, int64_t rows, int64_t cols)
{
    return (struct lf_k_gemm){.m = rows,
                              .n = cols,
                              .k = a->k,
                              .lda = a->ldx,
                              .ldb = a->ldw,
                              .ldc = a->ldy,
                              .tb = a->tb,
                              .ab_type = a->x_type,
                              .c_type = a->x_type,
                              .bias_type = LF_F32,
                              .mode = LF_INVARIANT};
}

static struct cut cut_of(const struct lf_k_gemm_heads *a, int threads)
{
    struct cut c = {.rows = a->rows < ROWS ? a->rows : ROWS};
    c.row_blocks = c.rows > 0 ? div_up(a->rows, c.rows) : 0;
    const int64_t want = div_up(threads, a->heads), most = div_up(a->n, COLS),
                  blocks = want < most ? want : most;
    c.cols = div_up(div_up(a->n, blocks), LF_NR) * LF_NR;
    c.cols = c.cols < a->n ? c.cols : a->n;
    c.col_blocks = div_up(a->n, c.cols);
    const struct lf_k_gemm g = task_shape(a, c.rows, c.cols);
    c.work = LF_SYM(gemm_work_most)(&g, 1);
    return c;
}

size_t LF_SYM(gemm_heads_work)(const struct lf_k_gemm_heads *a, int threads)
{
    return (size_t)threads * cut_of(a, threads).work;
}

int LF_SYM(gemm_heads_check)(const struct lf_k_gemm_heads *a)
{
    const bool sizes = a->rows >= 0 && a->heads > 0 && a->k > 0 && a->n > 0 && a->tail >= 0 &&
                       a->ldx >= a->heads * (a->k + a->tail) &&
                       a->ldy >= a->heads * (a->n + a->tail) && a->ldw >= (a->tb ? a->k : a->n);
    return sizes && lf_is_float(a->x_type) ? LF_K_OK : LF_K_EINVAL;
}

/* What stays of a head's channels, of some rows. */
static void keep_tail(const struct lf_k_gemm_heads *a, int64_t head, int64_t row, int64_t rows)
{
    const int64_t from = head * (a->k + a->tail) + a->k, to = head * (a->n + a->tail) + a->n;
    for (int64_t r = row; r < row + rows && a->tail; r++)
        memcpy(lf_at_w(a->y, r * a->ldy + to, a->x_type), lf_at(a->x, r * a->ldx + from, a->x_type),
               (size_t)a->tail * lf_dtype_size((enum lf_dtype)a->x_type));
}

static int run_task(lf_queue *one, const struct lf_k_gemm_heads *a, const struct cut *c, int64_t t,
                    void *work)
{
    const int64_t head = t / (c->row_blocks * c->col_blocks),
                  row = t / c->col_blocks % c->row_blocks * c->rows,
                  col = t % c->col_blocks * c->cols;
    const int64_t rows = a->rows - row < c->rows ? a->rows - row : c->rows,
                  cols = a->n - col < c->cols ? a->n - col : c->cols;
    struct lf_k_gemm g = task_shape(a, rows, cols);
    g.a = lf_at(a->x, row * a->ldx + head * (a->k + a->tail), a->x_type);
    g.b = lf_at(a->w, a->tb ? (head * a->n + col) * a->ldw : head * a->k * a->ldw + col, a->x_type);
    g.c = lf_at_w(a->y, row * a->ldy + head * (a->n + a->tail) + col, a->x_type);
    g.work = work;
    g.work_bytes = c->work;
    if (col == 0)
        keep_tail(a, head, row, rows);
    return LF_SYM(gemm)(one, &g);
}

int LF_SYM(gemm_heads)(lf_queue *q, const struct lf_k_gemm_heads *a)
{
    if (LF_SYM(gemm_heads_check)(a))
        return LF_K_EINVAL;
    const struct cut c = cut_of(a, q->threads);
    if (a->work_bytes < (size_t)q->threads * c.work)
        return LF_K_EINVAL;
    int rc = LF_K_OK;
#pragma omp parallel num_threads(q->threads) reduction(min : rc)
    {
        const bool caller = omp_get_thread_num() == 0; /* of this kernel, not of its products */
        lf_queue one = {
            .threads = 1, .border = caller ? q->border : NULL, .border_arg = q->border_arg};
        void *work = (char *)a->work + (size_t)omp_get_thread_num() * c.work;
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < a->heads * c.row_blocks * c.col_blocks; t++) {
            const int failed = run_task(&one, a, &c, t, work);
            rc = failed < rc ? failed : rc;
        }
    }
    return rc;
}
