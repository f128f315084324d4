/* SPDX-License-Identifier: Apache-2.0
 *
 * embed_fwd and embed_bwd against the formulas in f64, on every instruction set and on CUDA, all
 * types; threads bit for bit. Tokens repeat, some do not exist, tables are overwritten or added to.
 */
#include "config.h"

#include "tests/op/op_test.h"

enum { TYPES = OP_LAST_FLOAT + 1 };
static lf_queue *queue[4];

struct ecase {
    int64_t rows, c, v, max_pos;
    bool wpe, accumulate;
    float scale;
    int32_t offset;
};
static const struct ecase cases[] = {
    {0, 4, 3, 5, true, false, 1, 0},        {1, 1, 1, 3, true, true, 1, 2},
    {37, 33, 11, 20, true, false, 1, 2},    {700, 130, 50, 64, false, true, 11.25f, 0},
    {300, 768, 900, 300, true, true, 1, 0}, {5000, 8, 3000, 7, true, true, 1, 0},
};

struct edata {
    struct op_buf wte, wpe, dy, token, pos;
    double *y, *dt, *dp, *at, *ap;
};

static double *doubles(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

/* Tokens repeat, two rows carry tokens that do not exist, and one the token of a row of zeros. */
static struct edata data_make(const struct ecase *e, int wt, int yt)
{
    struct edata d = {.wte = op_random(e->v * e->c, wt, 1, 1.0),
                      .wpe = op_random(e->max_pos * e->c, wt, 2, 1.0),
                      .dy = op_random(e->rows * e->c, yt, 3, 1.0)};
    d.token = op_alloc((size_t)e->rows * 4);
    d.pos = op_alloc((size_t)e->rows * 4);
    d.y = doubles(e->rows * e->c);
    d.dt = doubles(e->v * e->c);
    d.dp = doubles(e->max_pos * e->c);
    d.at = doubles(e->v * e->c);
    d.ap = doubles(e->max_pos * e->c);
    for (int64_t r = 0; r < e->rows; r++) {
        int32_t t = (int32_t)((op_rand(7, r) + 1) / 2 * (double)e->v * 0.999),
                p = (int32_t)(r % (e->max_pos - e->offset));
        t = r == 20 ? -2 : r == 25 ? -1 : r == 30 ? (int32_t)e->v : t;
        ((int32_t *)d.token.p)[r] = t;
        ((int32_t *)d.pos.p)[r] = p;
        for (int64_t c = 0; c < e->c; c++) {
            double g = op_get(d.dy.p, r * e->c + c, yt);
            bool ok = t >= 0 && t < e->v;
            d.y[r * e->c + c] =
                ok || t == -1 ? (ok ? (double)e->scale * op_get(d.wte.p, t * e->c + c, wt) : 0) +
                                    (e->wpe ? op_get(d.wpe.p, (p + e->offset) * e->c + c, wt) : 0)
                              : (double)NAN;
            if (ok) {
                d.dt[t * e->c + c] += (double)e->scale * g;
                d.at[t * e->c + c] += fabs((double)e->scale * g);
            }
            d.dp[(p + e->offset) * e->c + c] += g;
            d.ap[(p + e->offset) * e->c + c] += fabs(g);
        }
    }
    for (int64_t i = 0; i < e->v * e->c; i++) {
        d.dt[i] += e->accumulate ? 0.25 : 0;
        d.at[i] += 1;
    }
    for (int64_t i = 0; i < e->max_pos * e->c; i++) {
        d.dp[i] += e->accumulate ? 0.25 : 0;
        d.ap[i] += 1;
    }
    return d;
}

static void test_forward(const struct lf_kernels *k, const struct ecase *e, const struct edata *d,
                         int wt, int yt)
{
    struct op_buf y[4];
    bool same = true;
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = op_alloc((size_t)(e->rows * e->c) * lf_dtype_size((enum lf_dtype)yt));
        struct lf_k_embed_fwd a = {.rows = e->rows,
                                   .c = e->c,
                                   .v = e->v,
                                   .max_pos = e->max_pos,
                                   .token = d->token.p,
                                   .position = d->pos.p,
                                   .wte = d->wte.p,
                                   .wpe = e->wpe ? d->wpe.p : NULL,
                                   .y = y[t].p,
                                   .scale = e->scale,
                                   .pos_offset = e->offset,
                                   .w_type = (uint8_t)wt,
                                   .y_type = (uint8_t)yt};
        same = same && k->embed_fwd.check(&a) == 0 && k->embed_fwd.run(queue[t], &a) == 0 &&
               memcmp(y[1].p, y[t].p, y[1].bytes) == 0 && op_guards_intact(&y[t]);
    }
    tap_ok(same, "embed_fwd: same bits with 1 to 3 threads, %s", k->family);
    op_ok(op_compare(y[1].p, yt, d->y, NULL, e->rows * e->c, 3e-7), "embed_fwd");
    for (int t = 1; t <= OP_THREADS; t++)
        op_free(&y[t]);
}

/* wte NULL: the row of the position alone, whatever the token. */
static void test_positions_alone(const struct lf_kernels *k)
{
    struct op_buf table = op_alloc(15 * 4), out = op_alloc(10 * 4), position = op_alloc(8),
                  token = op_alloc(8);
    float *wpe = table.p, *y = out.p;
    memcpy(position.p, (const int32_t[]){1, 0}, 8);
    memcpy(token.p, (const int32_t[]){-1, 7}, 8);
    for (int i = 0; i < 15; i++)
        wpe[i] = (float)i;
    const struct lf_k_embed_fwd a = {.rows = 2,
                                     .c = 5,
                                     .v = 1,
                                     .max_pos = 3,
                                     .token = token.p,
                                     .position = position.p,
                                     .wpe = wpe,
                                     .y = y,
                                     .scale = 9,
                                     .pos_offset = 1};
    tap_ok(k->embed_fwd.check(&a) == 0 && k->embed_fwd.run(queue[1], &a) == 0 &&
               memcmp(y, wpe + 10, 20) == 0 && memcmp(y + 5, wpe + 5, 20) == 0,
           "embed_fwd: positions alone, %s", k->family);
    op_free(&table);
    op_free(&out);
    op_free(&position);
    op_free(&token);
}

/* A table of 3 rows for 6 tokens: those without a row of theirs have the first. [v0, v0 + v): the
 * rows that are here. */
static void test_short_table(const struct lf_kernels *k, int64_t v0, int64_t v)
{
    enum { ROWS = 6, C = 5, KNOWN = 3, ALL = 6 };
    static const int32_t token[ROWS] = {0, 2, 4, -1, 1, 5};
    struct op_buf tokens = op_alloc(sizeof token), table = op_random(KNOWN * C, LF_F32, 1, 1.0),
                  dy = op_random(ROWS * C, LF_F32, 2, 1.0), y = op_alloc(ROWS * C * sizeof(float)),
                  dt = op_alloc((size_t)(v * C) * sizeof(float));
    double want[ROWS * C] = {0}, sum[KNOWN * C] = {0};
    memcpy(tokens.p, token, sizeof token);
    for (int i = 0; i < ROWS * C; i++) {
        const int32_t row = token[i / C] < KNOWN ? token[i / C] : 0;
        if (row >= v0 && row < v0 + v)
            want[i] = 2 * op_get(table.p, row * C + i % C, LF_F32);
        if (row >= 0)
            sum[row * C + i % C] += 2 * op_get(dy.p, i, LF_F32);
    }
    const struct lf_k_embed_fwd f = {.rows = ROWS,
                                     .c = C,
                                     .v = v,
                                     .v0 = v0,
                                     .v_all = ALL,
                                     .known = KNOWN,
                                     .token = tokens.p,
                                     .wte = (const float *)table.p + v0 * C,
                                     .y = y.p,
                                     .scale = 2};
    tap_ok(k->embed_fwd.check(&f) == 0 && k->embed_fwd.run(queue[1], &f) == 0 &&
               op_guards_intact(&y) && op_compare(y.p, LF_F32, want, NULL, ROWS * C, 3e-7).bad < 0,
           "embed_fwd: a table that ends before the vocabulary, %s", k->family);
    struct lf_k_embed_bwd b = {.rows = ROWS,
                               .c = C,
                               .v = v,
                               .v0 = v0,
                               .known = KNOWN,
                               .token = tokens.p,
                               .dy = dy.p,
                               .dwte = dt.p,
                               .scale = 2};
    struct op_buf work = op_alloc(b.work_bytes = k->embed_bwd.work(&b, 1));
    b.work = work.p;
    tap_ok(k->embed_bwd.check(&b) == 0 && k->embed_bwd.run(queue[1], &b) == 0 &&
               op_guards_intact(&dt) &&
               op_compare(dt.p, LF_F32, sum + v0 * C, NULL, v * C, 1e-6).bad < 0,
           "embed_bwd: a table that ends before the vocabulary, %s", k->family);
    struct op_buf *bufs[] = {&tokens, &table, &dy, &y, &dt, &work};
    for (size_t i = 0; i < sizeof bufs / sizeof *bufs; i++)
        op_free(bufs[i]);
}

/* A rank that has rows [v0, v0 + half) of the table: tokens of others are rows of zeros beside
 * their position, tokens of nobody not a number, and its gradients are those of its rows. */
static void test_divided(const struct lf_kernels *k, const struct ecase *e, const struct edata *d,
                         int wt, int yt)
{
    const int64_t half = e->v / 2, v0 = e->v - half;
    struct op_buf y = op_alloc((size_t)(e->rows * e->c) * lf_dtype_size((enum lf_dtype)yt)),
                  dt = op_alloc((size_t)(half * e->c) * sizeof(float));
    double *want = doubles(e->rows * e->c);
    const struct lf_k_embed_fwd f = {.rows = e->rows,
                                     .c = e->c,
                                     .v = half,
                                     .v0 = v0,
                                     .v_all = e->v,
                                     .max_pos = e->max_pos,
                                     .token = d->token.p,
                                     .position = d->pos.p,
                                     .wte = (const char *)d->wte.p +
                                            (size_t)(v0 * e->c) * lf_dtype_size((enum lf_dtype)wt),
                                     .wpe = e->wpe ? d->wpe.p : NULL,
                                     .y = y.p,
                                     .scale = e->scale,
                                     .pos_offset = e->offset,
                                     .w_type = (uint8_t)wt,
                                     .y_type = (uint8_t)yt};
    for (int64_t i = 0; i < e->rows * e->c; i++) {
        const int64_t r = i / e->c, c = i % e->c;
        const int32_t t = ((const int32_t *)d->token.p)[r], p = ((const int32_t *)d->pos.p)[r];
        const double own = op_get(d->wte.p, (t < v0 ? v0 : t < e->v ? t : 0) * e->c + c, wt);
        want[i] = t < -1 || t >= e->v
                      ? (double)NAN
                      : (t < v0 ? 0 : (double)e->scale * own) +
                            (e->wpe ? op_get(d->wpe.p, (p + e->offset) * e->c + c, wt) : 0);
    }
    tap_ok(k->embed_fwd.check(&f) == 0 && k->embed_fwd.run(queue[1], &f) == 0 &&
               op_guards_intact(&y) &&
               op_compare(y.p, yt, want, NULL, e->rows * e->c, 3e-7).bad < 0,
           "embed_fwd: %s, half of the vocabulary", k->family);
    struct lf_k_embed_bwd b = {.rows = e->rows,
                               .c = e->c,
                               .v = half,
                               .v0 = v0,
                               .max_pos = e->max_pos,
                               .token = d->token.p,
                               .position = d->pos.p,
                               .dy = d->dy.p,
                               .dwte = dt.p,
                               .scale = e->scale,
                               .accumulate = e->accumulate,
                               .dy_type = (uint8_t)yt};
    struct op_buf work = op_alloc(b.work_bytes = k->embed_bwd.work(&b, 1));
    b.work = work.p;
    for (int64_t i = 0; i < half * e->c; i++)
        op_set(dt.p, i, LF_F32, 0.25);
    tap_ok(
        k->embed_bwd.check(&b) == 0 && k->embed_bwd.run(queue[1], &b) == 0 &&
            op_guards_intact(&dt) &&
            op_compare(dt.p, LF_F32, d->dt + v0 * e->c, d->at + v0 * e->c, half * e->c, 1e-6).bad <
                0,
        "embed_bwd: %s, half of the vocabulary", k->family);
    free(want);
    op_free(&y);
    op_free(&dt);
    op_free(&work);
}

static void test_backward(const struct lf_kernels *k, const struct ecase *e, const struct edata *d,
                          int yt)
{
    struct op_buf dt[4], dp[4];
    bool same = true;
    for (int t = 1; t <= OP_THREADS; t++) {
        dt[t] = op_alloc((size_t)(e->v * e->c) * 4);
        dp[t] = op_alloc((size_t)(e->max_pos * e->c) * 4);
        for (int64_t i = 0; i < e->v * e->c; i++)
            ((float *)dt[t].p)[i] = 0.25f;
        for (int64_t i = 0; i < e->max_pos * e->c; i++)
            ((float *)dp[t].p)[i] = 0.25f;
        struct lf_k_embed_bwd a = {.rows = e->rows,
                                   .c = e->c,
                                   .v = e->v,
                                   .max_pos = e->max_pos,
                                   .token = d->token.p,
                                   .position = d->pos.p,
                                   .dy = d->dy.p,
                                   .dwte = dt[t].p,
                                   .dwpe = dp[t].p,
                                   .scale = e->scale,
                                   .pos_offset = e->offset,
                                   .accumulate = e->accumulate,
                                   .dy_type = (uint8_t)yt};
        a.work_bytes = k->embed_bwd.work(&a, t);
        struct op_buf work = op_alloc(a.work_bytes);
        a.work = work.p;
        same = same && k->embed_bwd.check(&a) == 0 && k->embed_bwd.run(queue[t], &a) == 0 &&
               memcmp(dt[1].p, dt[t].p, dt[1].bytes) == 0 &&
               memcmp(dp[1].p, dp[t].p, dp[1].bytes) == 0 && op_guards_intact(&dt[t]) &&
               op_guards_intact(&dp[t]) && op_guards_intact(&work);
        op_free(&work);
    }
    tap_ok(same, "embed_bwd: same bits with 1 to 3 threads, %s", k->family);
    op_ok(op_compare(dt[1].p, LF_F32, d->dt, d->at, e->v * e->c, 1e-6), "embed_bwd dwte");
    op_ok(op_compare(dp[1].p, LF_F32, d->dp, d->ap, e->max_pos * e->c, 1e-6), "embed_bwd dwpe");
    op_prove(dt[1].p, LF_F32, d->dt, d->at, e->v * e->c, 1e-6, e->v * e->c / 2);
    for (int t = 1; t <= OP_THREADS; t++) {
        op_free(&dt[t]);
        op_free(&dp[t]);
    }
}

int main(void)
{
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int types = 0; types < TYPES * TYPES; types++)
        for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
            struct edata d = data_make(&cases[n], types % TYPES, types / TYPES);
            for (int b = 0; b < OP_BACKENDS; b++) {
                const struct lf_kernels *k = op_kernels(b);
                if (!k)
                    continue;
                TAP(2, test_forward(k, &cases[n], &d, types % TYPES, types / TYPES));
                TAP(4, test_backward(k, &cases[n], &d, types / TYPES));
                if (cases[n].v > 1) {
                    TAP(2, test_divided(k, &cases[n], &d, types % TYPES, types / TYPES));
                }
            }
            double *p[] = {d.y, d.dt, d.dp, d.at, d.ap};
            struct op_buf *bufs[] = {&d.wte, &d.wpe, &d.dy, &d.token, &d.pos};
            for (size_t i = 0; i < 5; i++) {
                free(p[i]);
                op_free(bufs[i]);
            }
        }
    for (int b = 0; b < OP_BACKENDS; b++)
        if (op_kernels(b)) {
            TAP(1, test_positions_alone(op_kernels(b)));
            TAP(2, test_short_table(op_kernels(b), 0, 3));
            TAP(2, test_short_table(op_kernels(b), 2, 1));
        }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
