/* SPDX-License-Identifier: Apache-2.0
 *
 * unit_rows_fwd and unit_rows_bwd against the formulas in f64, the backward also against finite
 * differences of them; a row of zeros; threads bit for bit.
 */
#include "config.h"

#include "tests/op/op_test.h"

static lf_queue *queue[4];

static double length_of(const struct op_buf *x, int64_t r, int64_t c)
{
    double s = 0;
    for (int64_t i = 0; i < c; i++)
        s += op_get(x->p, r * c + i, LF_F32) * op_get(x->p, r * c + i, LF_F32);
    return fmax(sqrt(s), 1e-12);
}

static void test_forward(const struct lf_kernels *k, const struct op_buf *x, int64_t rows,
                         int64_t c, int type)
{
    struct op_buf y[4];
    double *want = calloc((size_t)(rows * c) + 1, sizeof *want);
    bool same = true;
    for (int64_t i = 0; i < rows * c; i++)
        want[i] = op_get(x->p, i, LF_F32) / length_of(x, i / c, c);
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = op_alloc((size_t)(rows * c) * lf_dtype_size((enum lf_dtype)type));
        const struct lf_k_unit_rows_fwd a = {
            .rows = rows, .c = c, .x = x->p, .y = y[t].p, .y_type = (uint8_t)type};
        same = same && k->unit_rows_fwd.check(&a) == 0 && k->unit_rows_fwd.run(queue[t], &a) == 0 &&
               memcmp(y[1].p, y[t].p, y[1].bytes) == 0 && op_guards_intact(&y[t]);
    }
    tap_ok(same, "unit_rows_fwd: same bits with 1 to 3 threads, %s", k->family);
    op_ok(op_compare(y[1].p, type, want, NULL, rows * c, 5e-7), "unit_rows_fwd");
    for (int t = 1; t <= OP_THREADS; t++)
        op_free(&y[t]);
    free(want);
}

/* sum of dy * unit(x) of row r. */
static double value(const struct op_buf *x, const struct op_buf *dy, int64_t r, int64_t c)
{
    double s = 0, l = length_of(x, r, c);
    for (int64_t i = 0; i < c; i++)
        s += op_get(dy->p, r * c + i, LF_F32) * op_get(x->p, r * c + i, LF_F32) / l;
    return s;
}

static void test_backward(const struct lf_kernels *k, struct op_buf *x, int64_t rows, int64_t c,
                          bool accumulate)
{
    struct op_buf dx[4], dy = op_random(rows * c, LF_F32, 2, 1.0);
    double *want = calloc((size_t)(rows * c) + 1, sizeof *want),
           *scale = calloc((size_t)(rows * c) + 1, sizeof *scale);
    bool same = true;
    for (int64_t r = 0; r < rows; r++) {
        double dot = 0, sum = 0, l = length_of(x, r, c);
        for (int64_t i = r * c; i < (r + 1) * c; i++) {
            double p = op_get(x->p, i, LF_F32) / l * op_get(dy.p, i, LF_F32);
            dot += l > 1e-12 ? p : 0;
            sum += fabs(p);
        }
        for (int64_t i = r * c; i < (r + 1) * c; i++) {
            double u = op_get(x->p, i, LF_F32) / l, g = op_get(dy.p, i, LF_F32);
            want[i] = (g - u * dot) / l + (accumulate ? 0.5 : 0);
            scale[i] = (fabs(g) + fabs(u) * sum) / l + 1;
        }
    }
    for (int t = 1; t <= OP_THREADS; t++) {
        dx[t] = op_alloc((size_t)(rows * c) * 4);
        for (int64_t i = 0; i < rows * c && accumulate; i++)
            op_set(dx[t].p, i, LF_F32, 0.5);
        const struct lf_k_unit_rows_bwd a = {
            .rows = rows, .c = c, .x = x->p, .dy = dy.p, .dx = dx[t].p, .accumulate = accumulate};
        same = same && k->unit_rows_bwd.check(&a) == 0 && k->unit_rows_bwd.run(queue[t], &a) == 0 &&
               memcmp(dx[1].p, dx[t].p, dx[1].bytes) == 0 && op_guards_intact(&dx[t]);
    }
    tap_ok(same, "unit_rows_bwd: same bits with 1 to 3 threads, %s", k->family);
    op_ok(op_compare(dx[1].p, LF_F32, want, scale, rows * c, 1e-6), "unit_rows_bwd");
    for (int64_t r = 0; r < rows && r < 3 && !accumulate; r++) { /* one element of some rows */
        const int64_t i = r * c + r % c;
        const double old = op_get(x->p, i, LF_F32), h = 1.0 / 1024;
        if (length_of(x, r, c) <= 1e-12)
            continue;
        op_set(x->p, i, LF_F32, old + h);
        double up = value(x, &dy, r, c), hi = op_get(x->p, i, LF_F32);
        op_set(x->p, i, LF_F32, old - h);
        double numeric = (up - value(x, &dy, r, c)) / (hi - op_get(x->p, i, LF_F32));
        op_set(x->p, i, LF_F32, old);
        tap_ok(fabs(numeric - op_get(dx[1].p, i, LF_F32)) <= 1e-4 * scale[i],
               "agrees with finite differences");
        tap_ok(!(fabs(numeric - op_get(dy.p, i, LF_F32) / length_of(x, r, c)) <= 1e-4 * scale[i]) ||
                   c == 1 || c > 64,
               "and the gradient without its projection would not, where it is not tiny");
    }
    for (int t = 1; t <= OP_THREADS; t++)
        op_free(&dx[t]);
    op_free(&dy);
    free(want);
    free(scale);
}

int main(void)
{
    static const int64_t shapes[][2] = {{0, 4}, {1, 1}, {5, 3}, {7, 33}, {130, 16}, {40, 1027}};
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int b = 0; b < OP_BACKENDS; b++)
        for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
            const struct lf_kernels *k = op_kernels(b);
            const int64_t rows = shapes[n][0], c = shapes[n][1];
            if (!k)
                continue;
            struct op_buf x = op_random(rows * c, LF_F32, 1, 2.0);
            for (int64_t i = 0; i < c && rows > 4; i++)
                op_set(x.p, 4 * c + i, LF_F32, 0); /* a row without direction */
            for (int type = LF_F32; type <= OP_LAST_FLOAT; type++)
                TAP(2, test_forward(k, &x, rows, c, type));
            TAP(2 + 2 * (rows < 3 ? rows : 3), test_backward(k, &x, rows, c, false));
            TAP(2, test_backward(k, &x, rows, c, true));
            op_free(&x);
        }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
