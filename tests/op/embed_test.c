/* SPDX-License-Identifier: Apache-2.0
 *
 * embed_fwd, embed_bwd and rope against the formulas in f64, on every instruction set, f32 and bf16; threads bit for bit.
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

/* ---- rope ---- */

struct rcase {
    int64_t rows, heads, d, rot;
    bool interleaved;
};
static const struct rcase rcases[] = {{0, 1, 4, 4, false},  {3, 2, 10, 6, false}, {5, 3, 64, 64, false},
                                      {5, 2, 70, 34, true}, {9, 1, 16, 16, true}, {400, 4, 80, 80, false},
                                      {7, 2, 6, 2, true}};

static void test_rope(const struct lf_kernels *k, const struct rcase *e, int type)
{
    enum { POS = 50, GAP = 3 };
    const int64_t half = e->rot / 2, w = e->heads * e->d, ld = w + GAP, n = e->rows * ld;
    struct op_buf x = op_random(n, type, 1, 2.0), cs = op_alloc((size_t)(POS * half) * 4),
                  sn = op_alloc((size_t)(POS * half) * 4), pos = op_alloc((size_t)e->rows * 4), y[4];
    double *want = doubles(n);
    for (int64_t i = 0; i < POS * half; i++) {
        double angle = (double)(i / half) * pow(10000, -(double)(i % half) / (double)half);
        op_set(cs.p, i, LF_F32, cos(angle));
        op_set(sn.p, i, LF_F32, sin(angle));
    }
    for (int64_t r = 0; r < e->rows; r++) {
        int64_t p = r * 7 % POS;
        ((int32_t *)pos.p)[r] = (int32_t)p;
        for (int64_t h = 0; h < e->heads; h++)
            for (int64_t c = 0; c < e->d; c++) {
                int64_t at = r * ld + h * e->d, i = e->interleaved ? c / 2 : c % (half ? half : 1);
                bool first = e->interleaved ? c % 2 == 0 : c < half;
                double own = op_get(x.p, at + c, type);
                want[at + c] = own;
                if (c < e->rot) {
                    int64_t other = e->interleaved ? c ^ 1 : first ? c + half : c - half;
                    double co = op_get(cs.p, p * half + i, LF_F32), si = op_get(sn.p, p * half + i, LF_F32),
                           o = op_get(x.p, at + other, type);
                    want[at + c] = first ? own * co - o * si : own * co + o * si;
                }
            }
    }
    bool same = true;
    struct lf_k_rope a = {.rows = e->rows,
                          .heads = e->heads,
                          .d = e->d,
                          .rot = e->rot,
                          .max_pos = POS,
                          .x = x.p,
                          .ldx = ld,
                          .ldy = ld,
                          .position = pos.p,
                          .cos = cs.p,
                          .sin = sn.p,
                          .interleaved = e->interleaved,
                          .x_type = (uint8_t)type};
    for (int t = 1; t <= 3; t++) {
        y[t] = op_alloc((size_t)n * lf_dtype_size((enum lf_dtype)type));
        a.y = y[t].p;
        same = same && k->rope.check(&a) == 0 && k->rope.run(queue[t], &a) == 0 &&
               memcmp(y[1].p, y[t].p, y[1].bytes) == 0 && op_guards_intact(&y[t]);
    }
    tap_ok(same, "rope: same bits with 1 to 3 threads, %s", k->family);
    for (int64_t r = 0; r < e->rows; r++)
        for (int64_t g = w; g < ld; g++)
            op_set(y[1].p, r * ld + g, type, want[r * ld + g] = 0); /* gaps are not compared */
    op_ok(op_compare(y[1].p, type, want, NULL, n, 4e-7), "rope");
    a.y = x.p; /* in place, and back */
    k->rope.run(queue[1], &a);
    bool in_place = true;
    for (int64_t i = 0; i < n; i++)
        in_place = in_place && (i % ld >= w || op_get(x.p, i, type) == op_get(y[1].p, i, type));
    tap_ok(in_place, "rope in place");
    struct op_buf orig = op_random(n, type, 1, 2.0);
    a.inverse = true;
    k->rope.run(queue[2], &a);
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        worst = i % ld >= w ? worst : fmax(worst, fabs(op_get(x.p, i, type) - op_get(orig.p, i, type)));
    tap_ok(worst <= (type == LF_BF16 ? 0.03 : 2e-6), "inverse rope takes it back (error %.2g)", worst);
    op_free(&orig);
    if (e->rows > 0) {
        ((int32_t *)pos.p)[0] = POS;
        k->rope.run(queue[1], &a);
        tap_ok(isnan(op_get(x.p, 0, type)), "a position beyond the tables gives NaN");
    }
    for (int t = 1; t <= 3; t++)
        op_free(&y[t]);
    op_free(&x);
    op_free(&cs);
    op_free(&sn);
    op_free(&pos);
    free(want);
}

/* Two positions: as two calls, each over every second head with a row distance that skips the others. */
static void test_rope_2d(const struct lf_kernels *k, int type)
{
    enum { R = 9, H = 3, D = 10, POS = 12 };
    const size_t size = lf_dtype_size((enum lf_dtype)type);
    struct op_buf x = op_random(R * 2 * H * D, type, 1, 2.0), cs = op_random(POS * D / 2, LF_F32, 2, 1.0),
                  sn = op_random(POS * D / 2, LF_F32, 3, 1.0), y = op_alloc(x.bytes), z = op_alloc(x.bytes);
    int32_t first[R], second[R];
    for (int r = 0; r < R; r++) {
        first[r] = r;
        second[r] = (r * 5 + 3) % POS;
    }
    struct lf_k_rope a = {.rows = R, .heads = 2 * H, .d = D, .rot = D, .max_pos = POS, .x = x.p, .y = y.p,
                          .ldx = 2 * H * D, .ldy = 2 * H * D, .position = first, .position2 = second, .cos = cs.p,
                          .sin = sn.p, .x_type = (uint8_t)type};
    bool ok = k->rope.check(&a) == 0 && k->rope.run(queue[2], &a) == 0;
    a.position2 = NULL;
    a.heads = 1;
    for (int h = 0; h < 2 * H; h++) {
        a.position = h % 2 ? second : first;
        a.x = (char *)x.p + (size_t)(h * D) * size;
        a.y = (char *)z.p + (size_t)(h * D) * size;
        ok = ok && k->rope.run(queue[1], &a) == 0;
    }
    tap_ok(ok && memcmp(y.p, z.p, x.bytes) == 0, "rope: heads of odd number turn by the second position, %s", k->family);
    struct op_buf *b[] = {&x, &cs, &sn, &y, &z};
    for (size_t i = 0; i < 5; i++)
        op_free(b[i]);
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
            test_rope_2d(lf_cpu_kernels((enum lf_isa)isa), LF_F32);
            test_rope_2d(lf_cpu_kernels((enum lf_isa)isa), LF_BF16);
        }
    for (int isa = 0; isa <= LF_ISA_AVX512BF16; isa++)
        for (size_t n = 0; n < sizeof rcases / sizeof *rcases; n++)
            for (int type = LF_F32; type <= LF_BF16; type++)
                if (lf_cpu_kernels((enum lf_isa)isa))
                    test_rope(lf_cpu_kernels((enum lf_isa)isa), &rcases[n], type);
    for (int t = 1; t <= 3; t++)
        lf_cpu_queue_destroy(queue[t]);
    return tap_done();
}
