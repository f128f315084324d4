/* SPDX-License-Identifier: Apache-2.0
 *
 * embed_fwd and embed_bwd against the formulas in f64, on every instruction set, f32 and bf16; threads bit for bit.
 * Tokens repeat, some do not exist, tables are overwritten or added to.
 */
#include "config.h"

#include "tests/op/op_test.h"

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
    {300, 768, 900, 300, true, true, 1, 0},
};

struct edata {
    struct op_buf wte, wpe, dy, token, pos;
    double *y, *dt, *dp, *at, *ap;
};

static double *doubles(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

/* Tokens repeat, and two rows carry tokens that do not exist. */
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
        t = r == 20 ? -1 : r == 30 ? (int32_t)e->v : t;
        ((int32_t *)d.token.p)[r] = t;
        ((int32_t *)d.pos.p)[r] = p;
        for (int64_t c = 0; c < e->c; c++) {
            double g = op_get(d.dy.p, r * e->c + c, yt);
            bool ok = t >= 0 && t < e->v;
            d.y[r * e->c + c] = ok ? (double)e->scale * op_get(d.wte.p, t * e->c + c, wt) +
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

static void test_forward(const struct lf_kernels *k, const struct ecase *e, const struct edata *d, int wt, int yt)
{
    struct op_buf y[4];
    bool same = true;
    for (int t = 1; t <= 3; t++) {
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
    for (int t = 1; t <= 3; t++)
        op_free(&y[t]);
}

/* wte NULL: the row of the position alone, whatever the token. */
static void test_positions_alone(const struct lf_kernels *k)
{
    float wpe[3 * 5], y[2 * 5];
    const int32_t position[2] = {1, 0}, token[2] = {-1, 7};
    for (int i = 0; i < 15; i++)
        wpe[i] = (float)i;
    const struct lf_k_embed_fwd a = {.rows = 2, .c = 5, .v = 1, .max_pos = 3, .token = token, .position = position,
                                     .wpe = wpe, .y = y, .scale = 9, .pos_offset = 1};
    tap_ok(k->embed_fwd.check(&a) == 0 && k->embed_fwd.run(queue[1], &a) == 0 && memcmp(y, wpe + 10, 20) == 0 &&
               memcmp(y + 5, wpe + 5, 20) == 0,
           "embed_fwd: positions alone, %s", k->family);
}

static void test_backward(const struct lf_kernels *k, const struct ecase *e, const struct edata *d, int yt)
{
    struct op_buf dt[4], dp[4];
    bool same = true;
    for (int t = 1; t <= 3; t++) {
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
        same = same && k->embed_bwd.check(&a) == 0 && k->embed_bwd.run(queue[t], &a) == 0 &&
               memcmp(dt[1].p, dt[t].p, dt[1].bytes) == 0 && memcmp(dp[1].p, dp[t].p, dp[1].bytes) == 0 &&
               op_guards_intact(&dt[t]) && op_guards_intact(&dp[t]);
    }
    tap_ok(same, "embed_bwd: same bits with 1 to 3 threads, %s", k->family);
    op_ok(op_compare(dt[1].p, LF_F32, d->dt, d->at, e->v * e->c, 1e-6), "embed_bwd dwte");
    op_ok(op_compare(dp[1].p, LF_F32, d->dp, d->ap, e->max_pos * e->c, 1e-6), "embed_bwd dwpe");
    op_prove(dt[1].p, LF_F32, d->dt, d->at, e->v * e->c, 1e-6, e->v * e->c / 2);
    for (int t = 1; t <= 3; t++) {
        op_free(&dt[t]);
        op_free(&dp[t]);
    }
}

int main(void)
{
    for (int t = 1; t <= 3; t++)
        queue[t] = lf_cpu_queue_create(t);
    for (int types = 0; types < 4; types++)
        for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
            struct edata d = data_make(&cases[n], types & 1, types >> 1);
            for (int isa = 0; isa <= LF_ISA_AVX512BF16; isa++) {
                const struct lf_kernels *k = lf_cpu_kernels((enum lf_isa)isa);
                if (!k)
                    continue;
                test_forward(k, &cases[n], &d, types & 1, types >> 1);
                test_backward(k, &cases[n], &d, types >> 1);
            }
            double *p[] = {d.y, d.dt, d.dp, d.at, d.ap};
            struct op_buf *b[] = {&d.wte, &d.wpe, &d.dy, &d.token, &d.pos};
            for (size_t i = 0; i < 5; i++) {
                free(p[i]);
                op_free(b[i]);
            }
        }
    for (int isa = 0; isa <= LF_ISA_AVX512BF16; isa++)
        if (lf_cpu_kernels((enum lf_isa)isa)) {
            test_positions_alone(lf_cpu_kernels((enum lf_isa)isa));
        }
    for (int t = 1; t <= 3; t++)
        lf_cpu_queue_destroy(queue[t]);
    return tap_done();
}
