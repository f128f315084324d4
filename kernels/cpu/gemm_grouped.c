/* SPDX-License-Identifier: Apache-2.0
 *
 * Grouped matrix products (experts): tasks over (group, block of rows, block of columns), each a
 * gemm by the thread that takes it with packing buffers of its own. Sizes of groups are known when
 * it runs only, so tasks are handed out by a counter; a group that got most rows is cut like the
 * others. How it is cut enters no element's chain (gemm_int.h).
 */
#include "config.h"

#include <string.h>

#include "kernels/cpu/gemm_int.h"
#include "kernels/cpu/gemm_units.h"

LF_CPU_DECLARE(gemm)
LF_CPU_DECLARE(grouped_gemm)

enum {
    ROWS = 256 / LF_MR * LF_MR, /* of a task at most: B is packed once for so many */
    ROWS_LEAST = 4 * LF_MR,
    A_BYTES = 8 << 20, /* packed A of a task */
    COLS = 512,
    COLS_LEAST = 128, /* of a task: packing A costs so little beside them */
    TASKS_EACH = 4    /* per thread, so that the last ones end together */
};

struct cut {
    int64_t rows, cols;           /* of a task */
    int64_t all_cols, col_blocks; /* of a group's result */
    size_t work;                  /* of a thread */
};

LF_INLINE int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static struct lf_k_gemm task_shape(const struct lf_k_grouped_gemm *a, const struct cut *c)
{
    struct lf_k_gemm g = {.n = c->cols,
                          .ab_type = a->ab_type,
                          .c_type = a->c_type,
                          .bias_type = LF_F32,
                          .mode = LF_INVARIANT};
    g.m = min64(c->rows, a->dw ? a->n : a->m);
    g.k = a->dw ? a->m : a->k;
    g.residual = a->residual;
    g.bias = a->bias;
    return g;
}

static struct cut cut_of(const struct lf_k_grouped_gemm *a, int threads)
{
    struct cut c;
    const int64_t k = a->dw ? a->m : a->k, row_blocks = a->dw ? div_up(a->n, ROWS) : 1;
    c.rows = k > 0 ? min64(ROWS, A_BYTES / (4 * k) / LF_MR * LF_MR) : ROWS;
    c.rows = c.rows < ROWS_LEAST ? ROWS_LEAST : c.rows;
    c.all_cols = a->dw ? a->k : a->n;
    const int64_t want = div_up(TASKS_EACH * threads, a->groups * row_blocks);
    int64_t blocks = div_up(c.all_cols, COLS), most = div_up(c.all_cols, COLS_LEAST);
    blocks = blocks < want ? min64(want, most) : blocks;
    c.cols = div_up(div_up(c.all_cols, blocks), LF_NR) * LF_NR;
    c.col_blocks = div_up(c.all_cols, c.cols);
    struct lf_k_gemm g = task_shape(a, &c);
    c.work = LF_SYM(gemm_work_most)(&g, 1);
    return c;
}

size_t LF_SYM(grouped_gemm_work)(const struct lf_k_grouped_gemm *a, int threads)
{
    return (size_t)threads * cut_of(a, threads).work;
}

int LF_SYM(grouped_gemm_check)(const struct lf_k_grouped_gemm *a)
{
    bool types = (a->ab_type == LF_F32 || a->ab_type == LF_BF16) &&
                 (a->c_type == LF_F32 || a->c_type == LF_BF16);
    bool sizes =
        a->m >= 0 && a->n > 0 && a->k > 0 && a->groups > 0 && (!a->residual || a->ldres >= a->n);
    if (a->dw)
        sizes = sizes && a->lda >= a->n && a->ldb >= a->k && a->c_type == LF_F32 && !a->residual &&
                !a->bias;
    else
        sizes = sizes && a->lda >= a->k && a->ldc >= a->n && !a->accumulate;
    return types && sizes ? LF_K_OK : LF_K_EINVAL;
}

LF_INLINE const void *at(const void *p, int64_t i, uint8_t type)
{
    return p ? (const char *)p + i * (type == LF_BF16 ? 2 : 4) : NULL;
}

/* Rows r of the group's block, columns c. */
static int task_rows(lf_queue *one, const struct lf_k_grouped_gemm *a, struct lf_k_gemm g,
                     int64_t group, int64_t row, int64_t col)
{
    g.lda = a->lda;
    g.ldb = a->tb ? a->k : a->n;
    g.ldc = a->ldc;
    g.ldres = a->ldres;
    g.tb = a->tb;
    g.a = at(a->a, row * a->lda, a->ab_type);
    g.b = at(a->b, group * a->n * a->k + (a->tb ? col * a->k : col), a->ab_type);
    g.c = (char *)a->c + (row * a->ldc + col) * (a->c_type == LF_BF16 ? 2 : 4);
    g.residual = at(a->residual, row * a->ldres + col, a->c_type);
    g.bias = a->bias ? a->bias + group * a->n + col : NULL;
    return LF_SYM(gemm)(one, &g);
}

static int task_dw(lf_queue *one, const struct lf_k_grouped_gemm *a, struct lf_k_gemm g,
                   int64_t group, int64_t row, int64_t col)
{
    const int64_t r0 = a->offsets[group];
    float *c = (float *)a->c + (group * a->n + row) * a->k + col;
    g.k = a->offsets[group + 1] - r0;
    if (g.k == 0) {
        for (int64_t i = 0; i < g.m && !a->accumulate; i++)
            memset(c + i * a->k, 0, (size_t)g.n * sizeof *c);
        return LF_K_OK;
    }
    g.lda = a->lda;
    g.ldb = a->ldb;
    g.ldc = a->k;
    g.ta = true;
    g.accumulate = a->accumulate;
    g.a = at(a->a, r0 * a->lda + row, a->ab_type);
    g.b = at(a->b, r0 * a->ldb + col, a->ab_type);
    g.c = c;
    return LF_SYM(gemm)(one, &g);
}

/* Task t, counted from the group's first: (rows from `row`, columns from `col`). */
static int run_task(lf_queue *one, const struct lf_k_grouped_gemm *a, const struct cut *c,
                    int64_t group, int64_t t, void *work)
{
    const int64_t first = a->dw ? 0 : a->offsets[group], end = a->dw ? a->n : a->offsets[group + 1];
    const int64_t row = first + t / c->col_blocks * c->rows, col = t % c->col_blocks * c->cols;
    struct lf_k_gemm g = task_shape(a, c);
    g.m = min64(c->rows, end - row);
    g.n = min64(c->cols, c->all_cols - col);
    g.work = work;
    g.work_bytes = c->work;
    return a->dw ? task_dw(one, a, g, group, row, col) : task_rows(one, a, g, group, row, col);
}

static int64_t tasks_of(const struct lf_k_grouped_gemm *a, const struct cut *c, int64_t group)
{
    return div_up(a->dw ? a->n : (int64_t)a->offsets[group + 1] - a->offsets[group], c->rows) *
           c->col_blocks;
}

struct tasks {
    lf_queue *q;
    const struct lf_k_grouped_gemm *a;
    struct cut c;
    int64_t next;
    int rc; /* of a task that failed */
};

/* Takes tasks until there are none, each a product of this thread alone. */
static void run_tasks(void *arg, int member)
{
    struct tasks *w = arg;
    lf_queue one = {.threads = 1, .border = w->q->border, .border_arg = w->q->border_arg};
    char *work = (char *)w->a->work + (size_t)member * w->c.work;
    int64_t group = 0, before = 0;
    for (int64_t t = lf_take(&w->next);; t = lf_take(&w->next)) {
        while (group < w->a->groups && t >= before + tasks_of(w->a, &w->c, group))
            before += tasks_of(w->a, &w->c, group++);
        if (group == w->a->groups)
            return;
        const int rc = run_task(&one, w->a, &w->c, group, t - before, work);
        if (rc != LF_K_OK)
            __atomic_store_n(&w->rc, rc, __ATOMIC_RELAXED);
    }
}

int LF_SYM(grouped_gemm)(lf_queue *q, const struct lf_k_grouped_gemm *a)
{
    if (LF_SYM(grouped_gemm_check)(a))
        return LF_K_EINVAL;
    struct tasks w = {.q = q, .a = a, .c = cut_of(a, q->threads), .rc = LF_K_OK};
    if (a->work_bytes < (size_t)q->threads * w.c.work || a->offsets[a->groups] > a->m)
        return LF_K_EINVAL;
    lf_team_call(q, q->threads, run_tasks, &w);
    return w.rc;
}
