/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of single heads: tasks over (head, block of rows, block of columns), each a gemm by the
 * thread that takes it. How they are cut enters no element's chain (gemm_int.h).
 *
 * Few rows times W_h [K, N] are bound by reading W_h, which gemm would pack first. They are added
 * up row by row of W_h, in the one chain that gemm has for a K of one chunk.
 */
#include "config.h"

#include "kernels/cpu/gemm_int.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/team.h"

LF_CPU_DECLARE(gemm)
LF_CPU_DECLARE(gemm_heads)

enum {
    ROWS = 256 / LF_MR * LF_MR, /* of a task at most */
    FEW = 4,                    /* rows for which W_h is not packed */
    WIDE = 512,                 /* columns of their sums at a time */
    DEEP = 4,                   /* rows of W_h that are added at a time */
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

static bool few_rows(const struct lf_k_gemm_heads *a)
{
    return !a->tb && a->rows <= FEW && a->k <= lf_k_chunk(a->k) &&
           (a->x_type == LF_F32 || !LF_BF16_DOT);
}

/* sum[0 ... n) += x[i] w[i] for i = 0 ... deep - 1, in this order; rows of w are ldw apart. */
LF_INLINE void add_rows(float *sum, int64_t n, const float *x, const void *w, int64_t ldw,
                        int64_t deep, uint8_t t)
{
    LF_EACH_VEC(c, lanes, n)
    {
        lf_v s = lf_v_load(sum + c);
        for (int64_t i = 0; i < deep; i++)
            s = lf_v_fma(lf_v_set1(x[i]), lf_get(lf_at(w, i * ldw, t), c, t, lanes), s);
        lf_v_store(sum + c, s);
    }
}

LF_INLINE void few_columns(const struct lf_k_gemm *g, int64_t c0, int64_t n, uint8_t t)
{
    float sum[FEW][WIDE] = {{0}}, x[DEEP];
    for (int64_t k = 0; k < g->k; k += DEEP) {
        const int64_t deep = g->k - k < DEEP ? g->k - k : DEEP;
        const void *w = lf_at(g->b, k * g->ldb + c0, t);
        for (int64_t r = 0; r < g->m; r++) {
            for (int64_t i = 0; i < deep; i++)
                x[i] = t == LF_BF16 ? lf_bf16_to_f32(((const uint16_t *)g->a)[r * g->lda + k + i])
                                    : ((const float *)g->a)[r * g->lda + k + i];
            if (deep == DEEP)
                add_rows(sum[r], n, x, w, g->ldb, DEEP, t);
            else
                add_rows(sum[r], n, x, w, g->ldb, deep, t);
        }
    }
    for (int64_t r = 0; r < g->m; r++)
        LF_EACH_VEC(c, lanes, n)
    lf_put(lf_at_w(g->c, r * g->ldc + c0, t), c, t, lanes, lf_v_load(sum[r] + c));
}

static void few_product(const struct lf_k_gemm *g)
{
    for (int64_t c = 0; c < g->n; c += WIDE) {
        const int64_t n = g->n - c < WIDE ? g->n - c : WIDE;
        if (g->ab_type == LF_BF16)
            few_columns(g, c, n, LF_BF16);
        else
            few_columns(g, c, n, LF_F32);
    }
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
    if (!few_rows(a))
        return LF_SYM(gemm)(one, &g);
    lf_border(one);
    few_product(&g);
    return LF_K_OK;
}

struct tasks {
    lf_queue *q;
    const struct lf_k_gemm_heads *a;
    struct cut c;
    int64_t next;
    int rc; /* of a task that failed */
};

/* Takes tasks until there are none, each a product of this thread alone. */
static void run_tasks(void *arg, int member)
{
    struct tasks *w = arg;
    lf_queue one = {.threads = 1, .border = w->q->border, .border_arg = w->q->border_arg};
    void *work = (char *)w->a->work + (size_t)member * w->c.work;
    const int64_t n = w->a->heads * w->c.row_blocks * w->c.col_blocks;
    for (int64_t t = lf_take(&w->next); t < n; t = lf_take(&w->next)) {
        const int rc = run_task(&one, w->a, &w->c, t, work);
        if (rc != LF_K_OK)
            __atomic_store_n(&w->rc, rc, __ATOMIC_RELAXED);
    }
}

int LF_SYM(gemm_heads)(lf_queue *q, const struct lf_k_gemm_heads *a)
{
    if (LF_SYM(gemm_heads_check)(a))
        return LF_K_EINVAL;
    struct tasks w = {.q = q, .a = a, .c = cut_of(a, q->threads), .rc = LF_K_OK};
    if (a->work_bytes < (size_t)q->threads * w.c.work)
        return LF_K_EINVAL;
    lf_team_call(q, q->threads, run_tasks, &w);
    return w.rc;
}
