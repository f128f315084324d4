/* SPDX-License-Identifier: Apache-2.0
 *
 * Activations, gated units, axpby, fill, gather_rows and dropout against their formulas in f64, on
 * every instruction set and on CUDA, in every storage type, over odd widths, with gaps between
 * rows, in place, and bit for bit over thread counts. Derivatives are compared with central
 * differences of the f64 functions.
 */
#include "config.h"

#include <stdio.h>

#include "engine/base/rng.h"
#include "tests/op/op_test.h"

static double ref_act(int act, double x)
{
    switch (act) {
    case LF_ACT_GELU:
        return 0.5 * x * erfc(-x / sqrt(2.0));
    case LF_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case LF_ACT_GELU_QUICK:
        return x / (1 + exp(-1.702 * x));
    case LF_ACT_SILU:
        return x / (1 + exp(-x));
    case LF_ACT_RELU:
        return x > 0 ? x : 0;
    case LF_ACT_SIGMOID:
        return 1 / (1 + exp(-x));
    case LF_ACT_TANH:
        return tanh(x);
    default:
        return x;
    }
}

static double ref_slope(int act, double x)
{
    const double h = 1e-5;
    return act == LF_ACT_RELU ? (x > 0 ? 1 : 0)
                              : (ref_act(act, x + h) - ref_act(act, x - h)) / (2 * h);
}

struct shape {
    int64_t rows, c, gap;
};
static const struct shape shapes[] = {{0, 5, 0},  {1, 1, 0},  {3, 17, 5},
                                      {7, 33, 1}, {9, 40, 8}, {150, 515, 3}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static lf_queue *queue[4];
static char label[160];

static const char *tell(const char *what, const struct lf_kernels *k, int type, int64_t rows,
                        int64_t c)
{
    snprintf(label, sizeof label, "%s: %s, %s, %lld x %lld", what, k->family,
             type == LF_BF16  ? "bf16"
             : type == LF_F16 ? "f16"
                              : "f32",
             (long long)rows, (long long)c);
    return label;
}

/* The content of strided rows, dense; gaps must still be 0xA5. */
static bool gather(const struct op_buf *b, double *out, int64_t rows, int64_t c, int64_t ld,
                   int type)
{
    const size_t size = lf_dtype_size((enum lf_dtype)type);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < c; i++)
            out[r * c + i] = op_get(b->p, r * ld + i, type);
        for (size_t i = 0; i < (size_t)(ld - c) * size && r + 1 < rows; i++)
            if (((unsigned char *)b->p)[(size_t)(r * ld + c) * size + i] != 0xA5)
                return false;
    }
    return op_guards_intact(b);
}

static void check(const struct op_buf *b, const double *want, struct shape s, int type, double tol,
                  const char *name)
{
    double *got = calloc((size_t)(s.rows * s.c) + 1, sizeof *got);
    bool intact = gather(b, got, s.rows, s.c, s.c + s.gap, type);
    double *scale = calloc((size_t)(s.rows * s.c) + 1, sizeof *scale);
    for (int64_t i = 0; i < s.rows * s.c; i++)
        scale[i] =
            (fabs(want[i]) + 1) + (type == LF_F32 ? 0
                                                  : fabs(want[i]) * op_eps(type) / tol +
                                                        (type == LF_F16 ? 0x1p-25 / tol : 0));
    struct op_diff d = op_compare(got, LF_F64, want, scale, s.rows * s.c, tol);
    if (!op_ok(d, name) || !intact)
        tap_ok(intact, "gaps and guards are as they were: %s", name);
    if (s.rows > 1 && type == LF_F32)
        op_prove(got, LF_F64, want, scale, s.rows * s.c, tol, s.rows * s.c / 2);
    free(got);
    free(scale);
}

static struct op_buf blank(struct shape s, int type)
{
    return op_alloc((size_t)(s.rows * (s.c + s.gap)) * lf_dtype_size((enum lf_dtype)type));
}

/* The points of check. */
static int checks(struct shape s, int type)
{
    return s.rows > 1 && type == LF_F32 ? 2 : 1;
}

static void test_act(const struct lf_kernels *k, struct shape s, int type, int act)
{
    const int64_t ld = s.c + s.gap, n = s.rows * s.c;
    struct op_buf x = op_random(s.rows * ld, type, 1, 6.0),
                  dy = op_random(s.rows * ld, type, 2, 1.0), y[4], dx[4];
    double *want = calloc((size_t)n + 1, sizeof *want),
           *wantd = calloc((size_t)n + 1, sizeof *wantd);
    for (int64_t i = 0; i < n; i++) {
        double v = op_get(x.p, i / s.c * ld + i % s.c, type);
        want[i] = ref_act(act, v);
        wantd[i] = op_get(dy.p, i / s.c * ld + i % s.c, type) * ref_slope(act, v);
    }
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = blank(s, type);
        dx[t] = blank(s, type);
        struct lf_k_act_fwd f = {.rows = s.rows,
                                 .c = s.c,
                                 .ldx = ld,
                                 .ldy = ld,
                                 .x = x.p,
                                 .y = y[t].p,
                                 .act = (uint8_t)act,
                                 .x_type = (uint8_t)type};
        struct lf_k_act_bwd b = {.rows = s.rows,
                                 .c = s.c,
                                 .ldx = ld,
                                 .lddy = ld,
                                 .lddx = ld,
                                 .x = x.p,
                                 .dy = dy.p,
                                 .dx = dx[t].p,
                                 .act = (uint8_t)act,
                                 .x_type = (uint8_t)type};
        bool ok = k->act_fwd.check(&f) == 0 && k->act_fwd.run(queue[t], &f) == 0 &&
                  k->act_bwd.check(&b) == 0 && k->act_bwd.run(queue[t], &b) == 0;
        if (!ok || (t > 1 && (memcmp(y[1].p, y[t].p, y[t].bytes) != 0 ||
                              memcmp(dx[1].p, dx[t].p, dx[t].bytes) != 0)))
            tap_ok(false, "act %d with %d threads", act, t);
    }
    check(&y[1], want, s, type, 1e-6, tell("act", k, type, s.rows, s.c));
    check(&dx[1], wantd, s, type, 2e-6, tell("act backward", k, type, s.rows, s.c));
    struct lf_k_act_fwd in = {.rows = s.rows,
                              .c = s.c,
                              .ldx = ld,
                              .ldy = ld,
                              .x = x.p,
                              .y = x.p,
                              .act = (uint8_t)act,
                              .x_type = (uint8_t)type};
    k->act_fwd.run(queue[1], &in);
    double *a = calloc((size_t)n + 1, sizeof *a), *b = calloc((size_t)n + 1, sizeof *b);
    gather(&y[1], a, s.rows, s.c, ld, type);
    for (int64_t i = 0; i < n; i++)
        b[i] = op_get(x.p, i / s.c * ld + i % s.c, type);
    tap_ok(memcmp(a, b, (size_t)n * sizeof *a) == 0, "act %d in place", act);
    free(a);
    free(b);
    for (int t = 1; t <= OP_THREADS; t++) {
        op_free(&y[t]);
        op_free(&dx[t]);
    }
    op_free(&x);
    op_free(&dy);
    free(want);
    free(wantd);
}

/* Where values are cut and what is added to up. */
struct bent {
    float limit, offset;
};

static void test_glu(const struct lf_kernels *k, struct shape s, int type, int act, struct bent how)
{
    const int64_t ld = s.c + s.gap, ldu = ld + s.gap, n = s.rows * s.c;
    struct op_buf g = op_random(s.rows * ld, type, 1, 4.0),
                  u = op_random(s.rows * ldu, type, 2, 2.0),
                  dy = op_random(s.rows * ld, type, 3, 1.0);
    struct op_buf y[4], dg[4], du[4];
    double *want[3];
    for (int i = 0; i < 3; i++)
        want[i] = calloc((size_t)n + 1, sizeof(double));
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / s.c * ld + i % s.c;
        double gv = op_get(g.p, at, type), uv = op_get(u.p, i / s.c * ldu + i % s.c, type),
               d = op_get(dy.p, at, type);
        const double most = how.limit > 0 ? (double)how.limit : (double)INFINITY,
                     g0 = fmin(gv, most), u0 = fmax(fmin(uv, most), -most) + (double)how.offset;
        want[0][i] = ref_act(act, g0) * u0;
        want[1][i] = gv > most ? 0 : d * u0 * ref_slope(act, g0);
        want[2][i] = fabs(uv) > most ? 0 : d * ref_act(act, g0);
    }
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = blank(s, type);
        dg[t] = blank(s, type);
        du[t] = blank(s, type);
        struct lf_k_glu_fwd f = {.rows = s.rows,
                                 .c = s.c,
                                 .ldg = ld,
                                 .ldu = ldu,
                                 .ldy = ld,
                                 .gate = g.p,
                                 .up = u.p,
                                 .y = y[t].p,
                                 .limit = how.limit,
                                 .up_offset = how.offset,
                                 .act = (uint8_t)act,
                                 .x_type = (uint8_t)type};
        struct lf_k_glu_bwd b = {.rows = s.rows,
                                 .c = s.c,
                                 .ldg = ld,
                                 .ldu = ldu,
                                 .lddy = ld,
                                 .lddg = ld,
                                 .lddu = ld,
                                 .gate = g.p,
                                 .up = u.p,
                                 .dy = dy.p,
                                 .dgate = dg[t].p,
                                 .dup = du[t].p,
                                 .limit = how.limit,
                                 .up_offset = how.offset,
                                 .act = (uint8_t)act,
                                 .x_type = (uint8_t)type};
        bool ok = k->glu_fwd.check(&f) == 0 && k->glu_fwd.run(queue[t], &f) == 0 &&
                  k->glu_bwd.check(&b) == 0 && k->glu_bwd.run(queue[t], &b) == 0;
        if (!ok || memcmp(y[1].p, y[t].p, y[t].bytes) != 0 ||
            memcmp(dg[1].p, dg[t].p, dg[t].bytes) != 0 ||
            memcmp(du[1].p, du[t].p, du[t].bytes) != 0)
            tap_ok(false, "glu %d with %d threads", act, t);
    }
    check(&y[1], want[0], s, type, 2e-6, tell("glu", k, type, s.rows, s.c));
    check(&dg[1], want[1], s, type, 4e-6, tell("glu dgate", k, type, s.rows, s.c));
    check(&du[1], want[2], s, type, 2e-6, tell("glu dup", k, type, s.rows, s.c));
    /* over its own operands */
    struct lf_k_glu_bwd b = {.rows = s.rows,
                             .c = s.c,
                             .ldg = ld,
                             .ldu = ldu,
                             .lddy = ld,
                             .lddg = ld,
                             .lddu = ldu,
                             .gate = g.p,
                             .up = u.p,
                             .dy = dy.p,
                             .dgate = g.p,
                             .dup = u.p,
                             .limit = how.limit,
                             .up_offset = how.offset,
                             .act = (uint8_t)act,
                             .x_type = (uint8_t)type};
    k->glu_bwd.run(queue[1], &b);
    bool same = true;
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i / s.c * ld + i % s.c;
        same = same && op_get(g.p, at, type) == op_get(dg[1].p, at, type) &&
               op_get(u.p, i / s.c * ldu + i % s.c, type) == op_get(du[1].p, at, type);
    }
    tap_ok(same, "glu backward over its operands");
    for (int t = 1; t <= OP_THREADS; t++) {
        op_free(&y[t]);
        op_free(&dg[t]);
        op_free(&du[t]);
    }
    for (int i = 0; i < 3; i++)
        free(want[i]);
    op_free(&g);
    op_free(&u);
    op_free(&dy);
}

static void test_axpby(const struct lf_kernels *k, int64_t n, int at, int bt, int yt)
{
    struct op_buf a = op_random(n, at, 1, 3.0), b = op_random(n, bt, 2, 3.0);
    struct shape s = {1, n, 0};
    double *want = calloc((size_t)n + 1, sizeof *want);
    for (int form = 0; form < 3; form++) {
        const float al = form == 2 ? 1.0f : 0.75f, be = -1.25f;
        struct op_buf y[4];
        for (int64_t i = 0; i < n; i++)
            want[i] =
                (double)al * op_get(a.p, i, at) + (form ? 0 : (double)be * op_get(b.p, i, bt));
        for (int t = 1; t <= OP_THREADS; t++) {
            y[t] = blank(s, yt);
            struct lf_k_axpby x = {.n = n,
                                   .a = a.p,
                                   .b = form ? NULL : b.p,
                                   .y = y[t].p,
                                   .alpha = al,
                                   .beta = be,
                                   .a_type = (uint8_t)at,
                                   .b_type = (uint8_t)bt,
                                   .y_type = (uint8_t)yt};
            if (k->axpby.check(&x) != 0 || k->axpby.run(queue[t], &x) != 0 ||
                memcmp(y[1].p, y[t].p, y[t].bytes) != 0)
                tap_ok(false, "axpby with %d threads", t);
        }
        check(&y[1], want, s, yt, 6e-7, tell("axpby", k, yt, 1, n));
        if (form == 2 && at == LF_F32 && yt == LF_BF16) {
            bool exact = true;
            for (int64_t i = 0; i < n; i++)
                exact = exact && ((uint16_t *)y[1].p)[i] == op_to_bf16(op_get(a.p, i, at));
            tap_ok(exact, "a cast to bf16 rounds to nearest even");
        }
        for (int t = 1; t <= OP_THREADS; t++)
            op_free(&y[t]);
    }
    op_free(&a);
    op_free(&b);
    free(want);
}

static void test_fill_gather(const struct lf_kernels *k, struct shape s, int type)
{
    const int64_t ld = s.c + s.gap, n = s.rows * s.c, table = 11;
    struct op_buf x = op_random(table * ld, type, 1, 3.0), y = blank(s, type),
                  f = op_alloc((size_t)n * lf_dtype_size((enum lf_dtype)type));
    struct op_buf index = op_alloc((size_t)s.rows * 4);
    double *want = calloc((size_t)n + 1, sizeof *want);
    for (int64_t r = 0; r < s.rows; r++) {
        int32_t i = (int32_t)(r * 7 % 12) - 1;
        ((int32_t *)index.p)[r] = i;
        for (int64_t c = 0; c < s.c; c++)
            want[r * s.c + c] = i < 0 ? 0 : op_get(x.p, i * ld + c, type);
    }
    struct lf_k_gather_rows g = {.rows = s.rows,
                                 .c = s.c,
                                 .ldx = ld,
                                 .ldy = ld,
                                 .x = x.p,
                                 .index = index.p,
                                 .y = y.p,
                                 .x_type = (uint8_t)type};
    tap_ok(k->gather_rows.check(&g) == 0 && k->gather_rows.run(queue[OP_THREADS], &g) == 0,
           "gather_rows runs");
    check(&y, want, s, type, 1e-9, tell("gather_rows", k, type, s.rows, s.c));
    struct lf_k_fill v = {.n = n, .y = f.p, .value = 1.5f, .y_type = (uint8_t)type};
    bool ok =
        k->fill.check(&v) == 0 && k->fill.run(queue[OP_THREADS], &v) == 0 && op_guards_intact(&f);
    for (int64_t i = 0; i < n; i++)
        ok = ok && op_get(f.p, i, type) == 1.5;
    tap_ok(ok, "%s", tell("fill", k, type, s.rows, s.c));
    op_free(&x);
    op_free(&y);
    op_free(&f);
    op_free(&index);
    free(want);
}

static void test_dropout(const struct lf_kernels *k, struct shape s, int type, bool residual)
{
    const int64_t ld = s.c + s.gap, n = s.rows * s.c;
    const float p = 0.3f;
    struct op_buf x = op_random(s.rows * ld, type, 1, 3.0),
                  res = op_random(s.rows * ld, type, 2, 3.0), y[4];
    struct op_buf sample = op_alloc((size_t)s.rows * 8), pos = op_alloc((size_t)s.rows * 4);
    struct op_buf rec = op_alloc(sizeof(struct lf_step_record));
    const uint64_t seed = 0x123456789abcdefu;
    *(struct lf_step_record *)rec.p = (struct lf_step_record){.seed = seed};
    double *want = calloc((size_t)n + 1, sizeof *want);
    int64_t kept = 0;
    for (int64_t r = 0; r < s.rows; r++) {
        ((int64_t *)sample.p)[r] = ((int64_t)1 << 33) + r / 3;
        ((int32_t *)pos.p)[r] = (int32_t)(r % 3);
        for (int64_t c = 0; c < s.c; c++) {
            uint32_t w[4];
            lf_philox(w, seed, 9, (uint64_t)((int64_t *)sample.p)[r],
                      (uint32_t)((r % 3) * ((s.c + 3) / 4) + c / 4));
            bool keep = lf_u01(w[c % 4]) >= p;
            kept += keep;
            want[r * s.c + c] = (keep ? op_get(x.p, r * ld + c, type) / (1 - (double)p) : 0) +
                                (residual ? op_get(res.p, r * ld + c, type) : 0);
        }
    }
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = blank(s, type);
        struct lf_k_dropout d = {.rows = s.rows,
                                 .c = s.c,
                                 .ldx = ld,
                                 .ldres = ld,
                                 .ldy = ld,
                                 .x = x.p,
                                 .residual = residual ? res.p : NULL,
                                 .y = y[t].p,
                                 .sample = sample.p,
                                 .position = pos.p,
                                 .p = p,
                                 .site = 9,
                                 .x_type = (uint8_t)type,
                                 .rec = rec.p};
        if (k->dropout.check(&d) != 0 || k->dropout.run(queue[t], &d) != 0 ||
            memcmp(y[1].p, y[t].p, y[t].bytes) != 0)
            tap_ok(false, "dropout with %d threads", t);
    }
    check(&y[1], want, s, type, 4e-7, tell("dropout", k, type, s.rows, s.c));
    if (n > 10000)
        tap_f64((double)kept / (double)n, 0.7, 0.01, "kept share");
    for (int t = 1; t <= OP_THREADS; t++)
        op_free(&y[t]);
    op_free(&x);
    op_free(&res);
    op_free(&sample);
    op_free(&pos);
    op_free(&rec);
    free(want);
}

/* A NaN is not taken for a value beyond the limit, and a limit alone, or an offset, is heeded. */
static void test_bent(const struct lf_kernels *k)
{
    struct op_buf g = op_random(4, LF_F32, 1, 1.0), u = op_random(4, LF_F32, 2, 1.0),
                  y = op_random(4, LF_F32, 3, 1.0);
    const double gate[] = {NAN, 1, 3, 3}, up[] = {1, NAN, -5, 5};
    struct lf_k_glu_fwd a = {.rows = 1,
                             .c = 4,
                             .ldg = 4,
                             .ldu = 4,
                             .ldy = 4,
                             .gate = g.p,
                             .up = u.p,
                             .y = y.p,
                             .limit = 2,
                             .act = LF_ACT_RELU,
                             .x_type = LF_F32};
    for (int i = 0; i < 4; i++) {
        op_set(g.p, i, LF_F32, gate[i]);
        op_set(u.p, i, LF_F32, up[i]);
    }
    bool ok = k->glu_fwd.check(&a) == 0 && k->glu_fwd.run(queue[1], &a) == 0;
    tap_ok(ok && isnan(op_get(y.p, 1, LF_F32)) && op_get(y.p, 2, LF_F32) == -4 &&
               op_get(y.p, 3, LF_F32) == 4,
           "glu: NaN stays, values are cut at a limit: %s", k->family);
    a.limit = 0;
    a.up_offset = -2;
    ok = k->glu_fwd.check(&a) == 0 && k->glu_fwd.run(queue[1], &a) == 0;
    tap_ok(ok && op_get(y.p, 2, LF_F32) == -21 && op_get(y.p, 3, LF_F32) == 9,
           "glu: an offset without a limit");
#ifndef OP_CUDA
    a.limit = -1;
    tap_ok(k->glu_fwd.check(&a) != 0, "glu: a limit below 0 is refused");
#endif
    op_free(&g);
    op_free(&u);
    op_free(&y);
}

int main(void)
{
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int i = 0; i < OP_BACKENDS; i++)
        if (op_kernels(i))
            TAP(OP_BACKENDS > 1 ? 3 : 2, test_bent(op_kernels(i)));
    for (int i = 0; i < OP_BACKENDS; i++) {
        const struct lf_kernels *k = op_kernels(i);
        for (int type = LF_F32; k && type <= OP_LAST_FLOAT; type++) {
            for (int s = 0; s < SHAPES; s++) {
                for (int act = LF_ACT_NONE; act <= LF_ACT_TANH; act++) {
                    TAP(1 + 2 * checks(shapes[s], type), test_act(k, shapes[s], type, act));
                    TAP(1 + 3 * checks(shapes[s], type),
                        test_glu(k, shapes[s], type, act, (struct bent){0, 0}));
                }
                TAP(1 + 3 * checks(shapes[s], type),
                    test_glu(k, shapes[s], type, LF_ACT_GELU_QUICK, (struct bent){0.7f, 1}));
                TAP(2 + checks(shapes[s], type), test_fill_gather(k, shapes[s], type));
                TAP(checks(shapes[s], type) + (shapes[s].rows == 150),
                    test_dropout(k, shapes[s], type, s % 2));
            }
            for (int at = LF_F32; at <= OP_LAST_FLOAT; at++)
                for (int bt = LF_F32; bt <= OP_LAST_FLOAT; bt++) {
                    TAP(at == LF_F32 && type == LF_BF16 ? 4 : 3, test_axpby(k, 1, at, bt, type));
                    TAP(at == LF_F32 && type == LF_BF16 ? 4 : 3,
                        test_axpby(k, 20011, at, bt, type));
                }
        }
    }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
