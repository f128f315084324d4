/* SPDX-License-Identifier: Apache-2.0
 *
 * mix_rows against a dense product in f64, with empty rows, repeated entries and a transpose that
 * gives the gradient; col_gate and its gradients against the formulas; threads bit for bit.
 */
#include "config.h"

#include "tests/op/op_test.h"

static lf_queue *queue[4];

/* A sparse matrix [rows, from], and its transpose. */
struct sparse {
    int64_t rows, from, n;
    struct op_buf start, index, weight;
};

static struct sparse blank(int64_t rows, int64_t from, int64_t n)
{
    struct sparse m = {.rows = rows, .from = from, .n = n};
    m.start = op_alloc((size_t)(rows + 1) * 4);
    m.index = op_alloc((size_t)n * 4 + 4);
    m.weight = op_alloc((size_t)n * 4 + 4);
    return m;
}

static void drop(struct sparse *m)
{
    op_free(&m->start);
    op_free(&m->index);
    op_free(&m->weight);
}

/* Row r has r % 4 entries, of which two may be in one column. */
static struct sparse draw(int64_t rows, int64_t from)
{
    int64_t n = 0;
    for (int64_t r = 0; r < rows; r++)
        n += r % 4;
    struct sparse m = blank(rows, from, n);
    int32_t *start = m.start.p, *index = m.index.p, k = 0;
    for (int64_t r = 0; r < rows; r++) {
        start[r] = k;
        for (int64_t e = 0; e < r % 4; e++, k++) {
            index[k] = (int32_t)((r * 11 + e / 2 * 5) % from);
            op_set(m.weight.p, k, LF_F32, op_rand(9, k));
        }
    }
    start[rows] = k;
    return m;
}

static struct sparse transposed(const struct sparse *m)
{
    struct sparse t = blank(m->from, m->rows, m->n);
    const int32_t *start = m->start.p, *index = m->index.p;
    int32_t *ts = t.start.p, *ti = t.index.p, k = 0;
    for (int64_t c = 0; c < m->from; c++) {
        ts[c] = k;
        for (int64_t r = 0; r < m->rows; r++)
            for (int32_t e = start[r]; e < start[r + 1]; e++)
                if (index[e] == c) {
                    ti[k] = (int32_t)r;
                    op_set(t.weight.p, k++, LF_F32, op_get(m->weight.p, e, LF_F32));
                }
    }
    ts[m->from] = k;
    return t;
}

/* y = m x, with what the kernel gives and what f64 gives. */
static void mix(const struct lf_kernels *k, const struct sparse *m, int64_t c, int64_t gap,
                int x_type, int y_type, bool accumulate)
{
    const int64_t ld = c + gap, n = m->rows * ld;
    struct op_buf x = op_random(m->from * ld, x_type, 1, 1.0), y[4];
    double *want = calloc((size_t)n + 1, sizeof *want),
           *scale = calloc((size_t)n + 1, sizeof *scale);
    const int32_t *start = m->start.p, *index = m->index.p;
    bool same = true;
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t j = 0; j < c; j++) {
            double *w = &want[r * ld + j];
            *w = accumulate ? 0.5 : 0;
            for (int32_t e = start[r]; e < start[r + 1]; e++)
                *w += op_get(m->weight.p, e, LF_F32) * op_get(x.p, index[e] * ld + j, x_type);
            scale[r * ld + j] = fabs(*w) + 4;
        }
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = op_alloc((size_t)n * lf_dtype_size((enum lf_dtype)y_type));
        for (int64_t i = 0; i < n && accumulate; i++)
            op_set(y[t].p, i, y_type, 0.5);
        const struct lf_k_mix_rows a = {.rows = m->rows,
                                        .c = c,
                                        .ldx = ld,
                                        .ldy = ld,
                                        .x = x.p,
                                        .start = start,
                                        .index = index,
                                        .weight = m->weight.p,
                                        .y = y[t].p,
                                        .accumulate = accumulate,
                                        .x_type = (uint8_t)x_type,
                                        .y_type = (uint8_t)y_type};
        same = same && k->mix_rows.check(&a) == 0 && k->mix_rows.run(queue[t], &a) == 0 &&
               memcmp(y[1].p, y[t].p, y[1].bytes) == 0 && op_guards_intact(&y[t]);
    }
    tap_ok(same, "mix_rows: same bits with 1 to 3 threads, %s", k->family);
    for (int64_t r = 0; r < m->rows; r++)
        for (int64_t g = c; g < ld; g++)
            op_set(y[1].p, r * ld + g, y_type, 0); /* gaps are not compared */
    op_ok(op_compare(y[1].p, y_type, want, scale, n, 2e-7), "mix_rows");
    if (m->n > 0)
        op_prove(y[1].p, y_type, want, scale, n, 2e-7, start[2] > start[1] ? ld : 0);
    for (int t = 1; t <= OP_THREADS; t++)
        op_free(&y[t]);
    op_free(&x);
    free(want);
    free(scale);
}

/* <dy, M x> = <M^T dy, x>: the call with the transpose is the gradient. */
static void test_adjoint(const struct lf_kernels *k)
{
    enum { ROWS = 21, FROM = 13, C = 19 };
    struct sparse m = draw(ROWS, FROM), t = transposed(&m);
    struct op_buf x = op_random(FROM * C, LF_F32, 1, 1.0), dy = op_random(ROWS * C, LF_F32, 2, 1.0),
                  y = op_alloc(ROWS * C * 4), dx = op_alloc(FROM * C * 4);
    struct lf_k_mix_rows a = {.rows = ROWS,
                              .c = C,
                              .ldx = C,
                              .ldy = C,
                              .x = x.p,
                              .start = m.start.p,
                              .index = m.index.p,
                              .weight = m.weight.p,
                              .y = y.p};
    bool ok = k->mix_rows.run(queue[1], &a) == 0;
    a.rows = FROM;
    a.x = dy.p;
    a.y = dx.p;
    a.start = t.start.p;
    a.index = t.index.p;
    a.weight = t.weight.p;
    ok = ok && k->mix_rows.run(queue[1], &a) == 0;
    double there = 0, back = 0;
    for (int64_t i = 0; i < ROWS * C; i++)
        there += op_get(y.p, i, LF_F32) * op_get(dy.p, i, LF_F32);
    for (int64_t i = 0; i < FROM * C; i++)
        back += op_get(dx.p, i, LF_F32) * op_get(x.p, i, LF_F32);
    tap_ok(ok && fabs(there) > 1e-3, "both calls run, %s", k->family);
    tap_f64(back, there, 1e-5, "the transpose is the gradient");
    struct op_buf *b[] = {&x, &dy, &y, &dx};
    for (size_t i = 0; i < 4; i++)
        op_free(b[i]);
    drop(&m);
    drop(&t);
}

static void test_mix(const struct lf_kernels *k, int64_t rows, int64_t c, int64_t gap, int type)
{
    struct sparse m = draw(rows, 17), t = transposed(&m);
    mix(k, &m, c, gap, type, type, false);
    mix(k, &t, c, gap, type, LF_F32, true); /* the gradient of a table of parameters */
    drop(&m);
    drop(&t);
}

static void test_gate(const struct lf_kernels *k, int64_t rows, int64_t c, int64_t gap, int type)
{
    const int64_t ld = c + gap, n = rows * ld;
    struct op_buf x = op_random(n, type, 1, 1.0), dy = op_random(n, type, 2, 1.0),
                  gain = op_random(c, LF_F32, 3, 1e-5), y[4], dx[4], dg[4];
    double *want = calloc((size_t)n + 1, sizeof *want),
           *wantd = calloc((size_t)n + 1, sizeof *want),
           *wantg = calloc((size_t)c + 1, sizeof *want),
           *scale = calloc((size_t)c + 1, sizeof *want);
    for (int64_t j = 0; j < c; j++)
        wantg[j] = 0.5;
    for (int64_t i = 0; i < n; i++) {
        const int64_t j = i % ld;
        if (j >= c)
            continue;
        const double g = op_get(gain.p, j, LF_F32),
                     p = op_get(x.p, i, type) * op_get(dy.p, i, type);
        want[i] = g * op_get(x.p, i, type);
        wantd[i] = g * op_get(dy.p, i, type);
        wantg[j] += p;
        scale[j] += fabs(p);
    }
    for (int64_t j = 0; j < c; j++)
        scale[j] += 1;
    bool same = true;
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = op_alloc(x.bytes);
        dx[t] = op_alloc(x.bytes);
        dg[t] = op_alloc((size_t)c * 4);
        for (int64_t j = 0; j < c; j++)
            op_set(dg[t].p, j, LF_F32, 0.5);
        const struct lf_k_col_gate_fwd f = {.rows = rows,
                                            .c = c,
                                            .ldx = ld,
                                            .ldy = ld,
                                            .x = x.p,
                                            .gain = gain.p,
                                            .y = y[t].p,
                                            .x_type = (uint8_t)type};
        struct lf_k_col_gate_bwd b = {.rows = rows,
                                      .c = c,
                                      .ldx = ld,
                                      .lddy = ld,
                                      .lddx = ld,
                                      .x = x.p,
                                      .dy = dy.p,
                                      .gain = gain.p,
                                      .dx = dx[t].p,
                                      .dgain = dg[t].p,
                                      .accumulate = true,
                                      .x_type = (uint8_t)type};
        same = same && k->col_gate_fwd.check(&f) == 0 && k->col_gate_fwd.run(queue[t], &f) == 0 &&
               k->col_gate_bwd.check(&b) == 0 && k->col_gate_bwd.run(queue[t], &b) == 0;
        same =
            same && op_guards_intact(&y[t]) && op_guards_intact(&dx[t]) && op_guards_intact(&dg[t]);
        same = same && memcmp(y[1].p, y[t].p, x.bytes) == 0 &&
               memcmp(dx[1].p, dx[t].p, x.bytes) == 0 && memcmp(dg[1].p, dg[t].p, dg[1].bytes) == 0;
    }
    tap_ok(same, "col_gate: same bits with 1 to 3 threads, %s", k->family);
    for (int64_t i = 0; i < n; i++)
        if (i % ld >= c) { /* gaps are not compared */
            op_set(y[1].p, i, type, 0);
            op_set(dx[1].p, i, type, 0);
        }
    op_ok(op_compare(y[1].p, type, want, NULL, n, 2e-7), "col_gate_fwd, a small gain");
    op_ok(op_compare(dx[1].p, type, wantd, NULL, n, 2e-7), "its gradient");
    op_ok(op_compare(dg[1].p, LF_F32, wantg, scale, c, 1e-6), "and that of the gain");
    for (int t = 1; t <= OP_THREADS; t++) {
        op_free(&y[t]);
        op_free(&dx[t]);
        op_free(&dg[t]);
    }
    op_free(&x);
    op_free(&dy);
    op_free(&gain);
    free(want);
    free(wantd);
    free(wantg);
    free(scale);
}

#ifdef OP_CUDA
/* There is no kernel for numbers of heads. */
static void test_heads(const struct lf_kernels *k, int type)
{
    float x[8] = {0};
    const struct lf_k_col_gate_fwd f = {.rows = 1,
                                        .c = 8,
                                        .ldx = 8,
                                        .ldy = 8,
                                        .x = x,
                                        .gain = x,
                                        .y = x,
                                        .x_type = (uint8_t)type,
                                        .each = 4};
    tap_ok(k->col_gate_fwd.check(&f) != 0, "numbers of heads are refused");
}
#else
/* A number of each head, of which exp multiplies, cut: the last is above `most`. */
static void test_heads(const struct lf_kernels *k, int type)
{
    enum { ROWS = 67, HEADS = 3, EACH = 21, C = HEADS * EACH, LD = C + 3 };
    const float most = 1.5f, gains[HEADS] = {-0.7f, 1.25f, 2};
    struct op_buf x = op_random(ROWS * LD, type, 1, 1), dy = op_random(ROWS * LD, type, 2, 1), y[4],
                  dx[4];
    float dgain[4][HEADS];
    double want[ROWS * LD] = {0}, wantd[ROWS * LD] = {0}, wantg[HEADS] = {1, 1, 1}, apart = 0;
    bool same = true;
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < C; c++) {
            const int at = r * LD + c, h = c / EACH;
            const double by = exp(fmin((double)gains[h], (double)most)), d = op_get(dy.p, at, type),
                         v = op_get(x.p, at, type);
            want[at] = by * v;
            wantd[at] = by * d;
            wantg[h] += gains[h] <= most ? by * v * d : 0;
        }
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = op_alloc(x.bytes);
        dx[t] = op_alloc(x.bytes);
        for (int h = 0; h < HEADS; h++)
            dgain[t][h] = 1;
        const struct lf_k_col_gate_fwd f = {.rows = ROWS,
                                            .c = C,
                                            .ldx = LD,
                                            .ldy = LD,
                                            .x = x.p,
                                            .gain = gains,
                                            .y = y[t].p,
                                            .x_type = (uint8_t)type,
                                            .each = EACH,
                                            .most = most};
        const struct lf_k_col_gate_bwd b = {.rows = ROWS,
                                            .c = C,
                                            .ldx = LD,
                                            .lddy = LD,
                                            .lddx = LD,
                                            .x = x.p,
                                            .dy = dy.p,
                                            .gain = gains,
                                            .dx = dx[t].p,
                                            .dgain = dgain[t],
                                            .accumulate = true,
                                            .x_type = (uint8_t)type,
                                            .each = EACH,
                                            .most = most};
        same = same && k->col_gate_fwd.check(&f) == 0 && k->col_gate_fwd.run(queue[t], &f) == 0 &&
               k->col_gate_bwd.check(&b) == 0 && k->col_gate_bwd.run(queue[t], &b) == 0 &&
               memcmp(y[1].p, y[t].p, x.bytes) == 0 && memcmp(dx[1].p, dx[t].p, x.bytes) == 0 &&
               memcmp(dgain[1], dgain[t], sizeof dgain[1]) == 0 && op_guards_intact(&y[t]) &&
               op_guards_intact(&dx[t]);
    }
    for (int i = 0; i < ROWS * LD; i++)
        if (i % LD >= C) { /* gaps are not compared */
            op_set(y[1].p, i, type, 0);
            op_set(dx[1].p, i, type, 0);
        }
    for (int h = 0; h < HEADS; h++)
        apart = tap_worse(apart, fabs((double)dgain[1][h] - wantg[h]) / (1 + fabs(wantg[h])));
    tap_ok(same, "numbers of heads: same bits with 1 to 3 threads, %s", k->family);
    op_ok(op_compare(y[1].p, type, want, NULL, ROWS * LD, 1e-6), "rows times them");
    op_ok(op_compare(dx[1].p, type, wantd, NULL, ROWS * LD, 1e-6), "the gradient");
    tap_ok(apart < 1e-5, "and that of the numbers, of which one is cut: %.2g", apart);
    const struct lf_k_col_gate_fwd odd = {.rows = 1,
                                          .c = C,
                                          .ldx = C,
                                          .ldy = C,
                                          .x = x.p,
                                          .gain = gains,
                                          .y = y[1].p,
                                          .x_type = (uint8_t)type,
                                          .each = EACH + 1};
    tap_ok(k->col_gate_fwd.check(&odd) != 0, "heads that are not whole are refused");
    for (int t = 1; t <= OP_THREADS; t++) {
        op_free(&y[t]);
        op_free(&dx[t]);
    }
    op_free(&x);
    op_free(&dy);
}
#endif

/* One number for all columns, which has no gradient. */
static void test_one(const struct lf_kernels *k, int type)
{
    enum { ROWS = 9, C = 37 };
    struct op_buf x = op_random(ROWS * C, type, 1, 1), dy = op_random(ROWS * C, type, 2, 1),
                  gain = op_random(1, LF_F32, 3, 1), y = op_alloc(x.bytes);
    double want[ROWS * C];
    const struct lf_k_col_gate_fwd f = {.rows = ROWS,
                                        .c = C,
                                        .ldx = C,
                                        .ldy = C,
                                        .x = x.p,
                                        .gain = gain.p,
                                        .y = y.p,
                                        .x_type = (uint8_t)type,
                                        .one = true};
    struct lf_k_col_gate_bwd b = {.rows = ROWS,
                                  .c = C,
                                  .ldx = C,
                                  .lddy = C,
                                  .lddx = C,
                                  .x = x.p,
                                  .dy = dy.p,
                                  .gain = gain.p,
                                  .dx = dy.p,
                                  .x_type = (uint8_t)type,
                                  .one = true};
    for (int i = 0; i < ROWS * C; i++)
        want[i] = op_get(gain.p, 0, LF_F32) * op_get(x.p, i, type);
    tap_ok(k->col_gate_fwd.check(&f) == 0 && k->col_gate_fwd.run(queue[1], &f) == 0,
           "one number for all columns");
    op_ok(op_compare(y.p, type, want, NULL, ROWS * C, 2e-7), "times x");
    for (int i = 0; i < ROWS * C; i++)
        want[i] = op_get(gain.p, 0, LF_F32) * op_get(dy.p, i, type);
    tap_ok(k->col_gate_bwd.check(&b) == 0 && k->col_gate_bwd.run(queue[1], &b) == 0,
           "in place of dy");
    op_ok(op_compare(dy.p, type, want, NULL, ROWS * C, 2e-7), "its gradient");
    b.dgain = gain.p;
    tap_ok(k->col_gate_bwd.check(&b) != 0, "it has none of its own");
    op_free(&x), op_free(&dy), op_free(&gain), op_free(&y);
}

int main(void)
{
    static const int64_t shapes[][3] = {{0, 4, 0}, {1, 1, 0}, {5, 3, 2}, {30, 33, 7}, {150, 64, 0}};
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int b = 0; b < OP_BACKENDS; b++) {
        const struct lf_kernels *k = op_kernels(b);
        if (!k)
            continue;
        TAP(2, test_adjoint(k));
        for (int type = LF_F32; type <= OP_LAST_FLOAT; type++) {
            TAP(5, test_one(k, type));
#ifdef OP_CUDA
            TAP(1, test_heads(k, type));
#else
            TAP(5, test_heads(k, type));
#endif
        }
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            for (int type = LF_F32; type <= OP_LAST_FLOAT; type++) {
                const int64_t *e = shapes[s];
                TAP(e[0] > 1 ? 6 : 4, test_mix(k, e[0], e[1], e[2], type));
                TAP(4, test_gate(k, e[0], e[1], e[2], type));
            }
    }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
