/* SPDX-License-Identifier: Apache-2.0
 *
 * dora_norm, dora_fwd, dora_bwd and root against their formulas in f64, rows of zeros, absent
 * operands; threads bit for bit.
 */
#include "config.h"

#include "tests/op/op_test.h"

static lf_queue *queue[4];

static void test_norm(const struct lf_kernels *k, int64_t rows, int64_t c, int64_t rank, int type,
                      bool squares)
{
    struct op_buf w = op_random(rows * c, type, 1, 1.0), a = op_random(rank * c + 1, type, 2, 0.5),
                  b = op_random(rows * rank + 1, type, 3, 0.5), norm[4];
    double *want = calloc((size_t)rows + 1, sizeof *want);
    bool same = true;
    for (int64_t i = 0; i < c && rows > 2 && !rank; i++)
        op_set(w.p, 2 * c + i, type, 0);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < c; i++) {
            double s = 0;
            for (int64_t j = 0; j < rank; j++)
                s += op_get(b.p, r * rank + j, type) * op_get(a.p, j * c + i, type);
            want[r] += pow(op_get(w.p, r * c + i, type) + 0.75 * s, 2);
        }
        want[r] = squares ? want[r] : sqrt(want[r]);
    }
    for (int t = 1; t <= 3; t++) {
        norm[t] = op_alloc((size_t)rows * 4);
        const struct lf_k_dora_norm args = {.rows = rows,
                                            .c = c,
                                            .rank = rank,
                                            .w = w.p,
                                            .a = a.p,
                                            .b = b.p,
                                            .norm = norm[t].p,
                                            .scale = 0.75f,
                                            .squares = squares,
                                            .w_type = (uint8_t)type};
        same = same && k->dora_norm.check(&args) == 0 && k->dora_norm.run(queue[t], &args) == 0 &&
               memcmp(norm[1].p, norm[t].p, norm[1].bytes) == 0 && op_guards_intact(&norm[t]);
    }
    tap_ok(same, "dora_norm: same bits with 1 to 3 threads, %s", k->family);
    op_ok(op_compare(norm[1].p, LF_F32, want, NULL, rows, 2e-6),
          squares ? "dora_norm: squares" : "dora_norm");
    for (int t = 1; t <= 3; t++)
        op_free(&norm[t]);
    op_free(&w);
    op_free(&a);
    op_free(&b);
    free(want);
}

static void test_root(const struct lf_kernels *k, int64_t n)
{
    struct op_buf x = op_random(n, LF_F32, 1, 3.0);
    double *want = calloc((size_t)n + 1, sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        op_set(x.p, i, LF_F32, i % 5 ? fabs(op_get(x.p, i, LF_F32)) : 0);
        want[i] = sqrt(op_get(x.p, i, LF_F32));
    }
    const struct lf_k_root a = {.n = n, .x = x.p, .y = x.p};
    tap_ok(k->root.check(&a) == 0 && k->root.run(queue[1], &a) == 0 && op_guards_intact(&x),
           "root in place, %s", k->family);
    op_ok(op_compare(x.p, LF_F32, want, NULL, n, 1e-7), "root");
    op_free(&x);
    free(want);
}

/* Operands of a layer; column 1 has length 0. */
struct layer {
    int64_t rows, c, ld;
    int type;
    struct op_buf base, lora, rest, dy, bias, m, norm;
};

static struct layer make(int64_t rows, int64_t c, int64_t ld, int type)
{
    struct layer l = {rows,
                      c,
                      ld,
                      type,
                      op_random(rows * ld, type, 1, 1.0),
                      op_random(rows * ld, type, 2, 0.3),
                      op_random(rows * ld, type, 3, 0.3),
                      op_random(rows * ld, type, 4, 1.0),
                      op_random(c, LF_F32, 5, 0.5),
                      op_random(c, LF_F32, 6, 1.0),
                      op_random(c, LF_F32, 7, 1.0)};
    for (int64_t i = 0; i < c; i++)
        op_set(l.norm.p, i, LF_F32, c > 1 && i == 1 ? 0 : 1 + fabs(op_get(l.norm.p, i, LF_F32)));
    return l;
}

static void drop(struct layer *l)
{
    struct op_buf *all[] = {&l->base, &l->lora, &l->rest, &l->dy, &l->bias, &l->m, &l->norm};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        op_free(all[i]);
}

static double ratio(const struct layer *l, int64_t c)
{
    const double n = op_get(l->norm.p, c, LF_F32);
    return n > 0 ? op_get(l->m.p, c, LF_F32) / n : 1;
}

static void test_forward(const struct lf_kernels *k, const struct layer *l, bool bias, bool rest,
                         bool m)
{
    struct op_buf y[4];
    const int64_t n = l->rows * l->ld;
    double *want = calloc((size_t)n + 1, sizeof *want);
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        const int64_t c = i % l->ld;
        if (c >= l->c)
            continue;
        const double base = op_get(l->base.p, i, l->type), s = ratio(l, c),
                     b = bias ? op_get(l->bias.p, c, LF_F32) : 0;
        want[i] = base + (m ? (s - 1) * (base - b) + s * op_get(l->lora.p, i, l->type) : 0) +
                  (rest ? op_get(l->rest.p, i, l->type) : 0);
    }
    for (int t = 1; t <= 3; t++) {
        y[t] = op_alloc((size_t)n * lf_dtype_size((enum lf_dtype)l->type));
        for (int64_t i = 0; i < n; i++)
            op_set(y[t].p, i, l->type, 0);
        const struct lf_k_dora_fwd a = {.rows = l->rows,
                                        .c = l->c,
                                        .ldbase = l->ld,
                                        .ldlora = l->ld,
                                        .ldrest = l->ld,
                                        .ldy = l->ld,
                                        .base = l->base.p,
                                        .lora = m ? l->lora.p : NULL,
                                        .rest = rest ? l->rest.p : NULL,
                                        .bias = bias ? l->bias.p : NULL,
                                        .m = m ? l->m.p : NULL,
                                        .norm = m ? l->norm.p : NULL,
                                        .y = y[t].p,
                                        .x_type = (uint8_t)l->type};
        same = same && k->dora_fwd.check(&a) == 0 && k->dora_fwd.run(queue[t], &a) == 0 &&
               memcmp(y[1].p, y[t].p, y[1].bytes) == 0 && op_guards_intact(&y[t]);
    }
    tap_ok(same, "dora_fwd: same bits with 1 to 3 threads, %s", k->family);
    op_ok(op_compare(y[1].p, l->type, want, NULL, n, 2e-6),
          m ? rest ? "dora_fwd" : "dora_fwd without bias and rest"
            : "dora_fwd without a magnitude");
    for (int t = 1; t <= 3; t++)
        op_free(&y[t]);
    free(want);
}

/* With m = norm and no product the bits are those of the base. */
static void test_untrained(const struct lf_kernels *k, struct layer *l)
{
    struct op_buf y = op_alloc(l->base.bytes), zero = op_alloc(l->base.bytes);
    memset(zero.p, 0, zero.bytes);
    memcpy(y.p, l->base.p, y.bytes);
    const struct lf_k_dora_fwd a = {.rows = l->rows,
                                    .c = l->c,
                                    .ldbase = l->ld,
                                    .ldlora = l->ld,
                                    .ldy = l->ld,
                                    .base = l->base.p,
                                    .lora = zero.p,
                                    .bias = l->bias.p,
                                    .m = l->norm.p,
                                    .norm = l->norm.p,
                                    .y = y.p,
                                    .x_type = (uint8_t)l->type};
    tap_ok(k->dora_fwd.run(queue[1], &a) == 0 && memcmp(y.p, l->base.p, y.bytes) == 0,
           "untrained, it is the base");
    op_free(&y);
    op_free(&zero);
}

static void test_backward(const struct lf_kernels *k, const struct layer *l, bool bias,
                          bool accumulate)
{
    struct op_buf dx[4], dm[4];
    const int64_t n = l->rows * l->ld;
    double *wx = calloc((size_t)n + 1, sizeof *wx), *wm = calloc((size_t)l->c, sizeof *wm),
           *scale = calloc((size_t)l->c, sizeof *scale);
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        const int64_t c = i % l->ld;
        if (c >= l->c)
            continue;
        const double len = op_get(l->norm.p, c, LF_F32), dy = op_get(l->dy.p, i, l->type),
                     u = op_get(l->base.p, i, l->type) - (bias ? op_get(l->bias.p, c, LF_F32) : 0) +
                         op_get(l->lora.p, i, l->type);
        wx[i] = ratio(l, c) * dy;
        wm[c] += len > 0 ? dy * u / len : 0;
        scale[c] += len > 0 ? fabs(dy * u / len) : 0;
    }
    for (int64_t c = 0; c < l->c; c++) {
        wm[c] += accumulate ? 0.5 : 0;
        scale[c] += 1;
    }
    for (int t = 1; t <= 3; t++) {
        dx[t] = op_alloc((size_t)n * lf_dtype_size((enum lf_dtype)l->type));
        memcpy(dx[t].p, l->dy.p, dx[t].bytes); /* dx is dy */
        for (int64_t i = 0; i < n; i++)
            if (i % l->ld >= l->c)
                op_set(dx[t].p, i, l->type, 0);
        dm[t] = op_alloc((size_t)l->c * 4);
        for (int64_t c = 0; c < l->c && accumulate; c++)
            op_set(dm[t].p, c, LF_F32, 0.5);
        const struct lf_k_dora_bwd a = {.rows = l->rows,
                                        .c = l->c,
                                        .lddy = l->ld,
                                        .ldbase = l->ld,
                                        .ldlora = l->ld,
                                        .lddx = l->ld,
                                        .dy = dx[t].p,
                                        .base = l->base.p,
                                        .lora = l->lora.p,
                                        .bias = bias ? l->bias.p : NULL,
                                        .m = l->m.p,
                                        .norm = l->norm.p,
                                        .dx = dx[t].p,
                                        .dm = dm[t].p,
                                        .accumulate = accumulate,
                                        .x_type = (uint8_t)l->type};
        same = same && k->dora_bwd.check(&a) == 0 && k->dora_bwd.run(queue[t], &a) == 0 &&
               memcmp(dx[1].p, dx[t].p, dx[1].bytes) == 0 &&
               memcmp(dm[1].p, dm[t].p, dm[1].bytes) == 0 && op_guards_intact(&dx[t]) &&
               op_guards_intact(&dm[t]);
    }
    tap_ok(same, "dora_bwd: same bits with 1 to 3 threads, %s", k->family);
    op_ok(op_compare(dx[1].p, l->type, wx, NULL, n, 2e-6), "dora_bwd: dx");
    op_ok(op_compare(dm[1].p, LF_F32, wm, scale, l->c, 2e-6),
          accumulate ? "dora_bwd: dm, added" : "dora_bwd: dm");
    for (int t = 1; t <= 3; t++) {
        op_free(&dx[t]);
        op_free(&dm[t]);
    }
    free(wx);
    free(wm);
    free(scale);
}

int main(void)
{
    static const int64_t shapes[][3] = {{0, 4, 4},   {1, 1, 1},     {5, 3, 7},
                                        {7, 33, 33}, {130, 16, 48}, {40, 327, 400}};
    for (int t = 1; t <= 3; t++)
        queue[t] = op_queue_create(t);
    for (int i = 0; i < OP_BACKENDS; i++)
        for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++) {
            const struct lf_kernels *k = op_kernels(i);
            const int64_t rows = shapes[n][0], c = shapes[n][1], ld = shapes[n][2];
            if (k)
                TAP(2, test_root(k, rows * c));
            for (int type = LF_F32; type <= OP_LAST_FLOAT && k; type++) {
                struct layer l = make(rows, c, ld, type);
                TAP(2, test_norm(k, rows, c, (int64_t)(n % 4) * 3, l.type, n == 3 || n == 5));
                TAP(2, test_forward(k, &l, true, true, true));
                TAP(2, test_forward(k, &l, false, false, true));
                TAP(2, test_forward(k, &l, false, true, false));
                TAP(1, test_untrained(k, &l));
                TAP(3, test_backward(k, &l, true, false));
                TAP(3, test_backward(k, &l, false, true));
                drop(&l);
            }
        }
    for (int t = 1; t <= 3; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
