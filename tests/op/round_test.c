/* SPDX-License-Identifier: Apache-2.0
 *
 * How device code rounds (kernels/cuda/dev.h, "Numbers"): products are fused with sums where a
 * kernel says so and nowhere else. Elements whose formula has no library function in it are those
 * of the host, bit for bit; those that have one are the same from every kernel that forms them. On
 * a GPU this looks at what nvcc made; on the emulator it keeps formulas and this file together.
 * CUDA only.
 */
#include <stdio.h>

#include "tests/op/op_test.h"

enum { R = 40, C = 72, N = R * C };

static lf_queue *q;
static const struct lf_kernels *k;

static float at(const struct op_buf *b, int64_t i)
{
    return ((const float *)b->p)[i];
}

/* One point: how many of n elements differ, and that the count can be other than 0. */
static void bits(const struct op_buf *got, const float *want, int64_t n, const char *name)
{
    int64_t bad = 0;
    for (int64_t i = 0; i < n; i++)
        bad += memcmp((const float *)got->p + i, want + i, sizeof *want) != 0;
    tap_ok(bad == 0 && op_guards_intact(got), "%s (%lld of %lld differ)", name, (long long)bad,
           (long long)n);
}

/* The same formula with its last product and sum rounded the other way differs somewhere, or the
 * test says nothing. */
static void other(const float *want, const float *wrong, int64_t n, const char *name)
{
    tap_ok(memcmp(want, wrong, (size_t)n * sizeof *want) != 0,
           "%s: (rounded otherwise it would show)", name);
}

/* C = act(a b^T) + residual with K = 1: the product is a alone, so what is left is the end of a
 * product. */
static void test_epilogue(int act)
{
    static const char *const names[] = {"none", "gelu", "gelu_tanh", "gelu_quick", "silu", "relu"};
    static float want[N], wrong[N];
    struct op_buf a = op_random(R, LF_F32, 1, 2), b = op_alloc(C * 4), x = op_alloc(N * 4),
                  y = op_alloc(N * 4), res = op_random(N, LF_F32, 2, 1), c = op_alloc(N * 4);
    char name[80];
    for (int64_t i = 0; i < C; i++)
        ((float *)b.p)[i] = ldexpf(1, (int)(i % 5) - 2);
    for (int64_t i = 0; i < N; i++)
        ((float *)x.p)[i] = at(&a, i / C) * at(&b, i % C);
    const struct lf_k_act_fwd f = {
        .rows = R, .c = C, .ldx = C, .ldy = C, .x = x.p, .y = y.p, .act = (uint8_t)act};
    struct lf_k_gemm g = {.m = R,
                          .n = C,
                          .k = 1,
                          .a = a.p,
                          .b = b.p,
                          .c = c.p,
                          .residual = res.p,
                          .lda = 1,
                          .ldb = 1,
                          .ldc = C,
                          .ldres = C,
                          .tb = true,
                          .act = (uint8_t)act,
                          .mode = LF_INVARIANT};
    g.work_bytes = k->gemm.work(&g, 1);
    struct op_buf work = op_alloc(g.work_bytes);
    g.work = work.p;
    tap_ok(k->act_fwd.run(q, &f) == 0 && k->gemm.run(q, &g) == 0, "%s: act_fwd and gemm",
           names[act]);
    for (int64_t i = 0; i < N; i++) {
        want[i] = at(&y, i) + at(&res, i);
        wrong[i] =
            (float)((double)at(&x, i) * (double)(at(&y, i) / at(&x, i)) + (double)at(&res, i));
    }
    snprintf(name, sizeof name, "%s + residual at the end of a product is act_fwd, then a sum",
             names[act]);
    bits(&c, want, N, name);
    if (act != LF_ACT_NONE && act != LF_ACT_RELU)
        other(want, wrong, N, names[act]);
    op_free(&a), op_free(&b), op_free(&x), op_free(&y), op_free(&res), op_free(&c), op_free(&work);
}

/* y = act(gate) * up with the activation of act_fwd. */
static void test_glu(void)
{
    static float want[N];
    struct op_buf gate = op_random(2 * N, LF_F32, 3, 3), up = op_random(N, LF_F32, 4, 1),
                  a = op_alloc(N * 4), y = op_alloc(N * 4);
    const struct lf_k_act_fwd f = {
        .rows = R, .c = C, .ldx = C, .ldy = C, .x = gate.p, .y = a.p, .act = LF_ACT_SILU};
    const struct lf_k_glu_fwd g = {.rows = R,
                                   .c = C,
                                   .ldg = C,
                                   .ldu = C,
                                   .ldy = C,
                                   .gate = gate.p,
                                   .up = up.p,
                                   .y = y.p,
                                   .act = LF_ACT_SILU};
    tap_ok(k->act_fwd.run(q, &f) == 0 && k->glu_fwd.run(q, &g) == 0, "act_fwd and glu_fwd");
    for (int64_t i = 0; i < N; i++)
        want[i] = at(&a, i) * at(&up, i);
    bits(&y, want, N, "a gated unit is act_fwd times the other half");
    op_free(&gate), op_free(&up), op_free(&a), op_free(&y);
}

static void test_axpby(void)
{
    static float want[N], wrong[N];
    struct op_buf a = op_random(N, LF_F32, 5, 1), b = op_random(N, LF_F32, 6, 1),
                  y = op_alloc(N * 4);
    const struct lf_k_axpby x = {
        .n = N, .a = a.p, .b = b.p, .y = y.p, .alpha = 1.1f, .beta = -0.3f};
    tap_ok(k->axpby.run(q, &x) == 0, "axpby");
    for (int64_t i = 0; i < N; i++) {
        want[i] = fmaf(at(&b, i), -0.3f, at(&a, i) * 1.1f);
        wrong[i] = at(&b, i) * -0.3f + at(&a, i) * 1.1f;
    }
    bits(&y, want, N, "axpby: beta b is fused, alpha a is not");
    other(want, wrong, N, "axpby");
    op_free(&a), op_free(&b), op_free(&y);
}

/* From the mean and 1 / deviation that the kernel itself tells. */
static void test_norm(void)
{
    static float want[N], wrong[N];
    struct op_buf x = op_random(N, LF_F32, 7, 2), w = op_random(C, LF_F32, 8, 1),
                  b = op_random(C, LF_F32, 9, 1), y = op_alloc(N * 4), mean = op_alloc(R * 4),
                  rstd = op_alloc(R * 4);
    const struct lf_k_norm_fwd f = {.rows = R,
                                    .heads = 1,
                                    .c = C,
                                    .x = x.p,
                                    .w = w.p,
                                    .b = b.p,
                                    .y = y.p,
                                    .mean = mean.p,
                                    .rstd = rstd.p,
                                    .ldx = C,
                                    .ldy = C,
                                    .eps = 1e-5f,
                                    .w_offset = 1,
                                    .layer = true};
    tap_ok(k->norm_fwd.run(q, &f) == 0, "norm_fwd");
    for (int64_t i = 0; i < N; i++) {
        const float u = (at(&x, i) - at(&mean, i / C)) * at(&rstd, i / C), v = at(&w, i % C) + 1;
        want[i] = fmaf(u, v, at(&b, i % C));
        wrong[i] = u * v + at(&b, i % C);
    }
    bits(&y, want, N, "norm_fwd: weight and bias are fused");
    other(want, wrong, N, "norm_fwd");
    op_free(&x), op_free(&w), op_free(&b), op_free(&y), op_free(&mean), op_free(&rstd);
}

static void test_rope(bool interleaved)
{
    enum { D = 24, H = C / D, HALF = D / 2 };
    static float want[N], wrong[N];
    struct op_buf x = op_random(N, LF_F32, 10, 1), co = op_random(R * HALF, LF_F32, 11, 1),
                  si = op_random(R * HALF, LF_F32, 12, 1), y = op_alloc(N * 4),
                  pos = op_alloc(R * 4);
    for (int32_t i = 0; i < R; i++)
        ((int32_t *)pos.p)[i] = R - 1 - i;
    const struct lf_k_rope f = {.rows = R,
                                .heads = H,
                                .d = D,
                                .rot = D,
                                .max_pos = R,
                                .x = x.p,
                                .y = y.p,
                                .ldx = C,
                                .ldy = C,
                                .position = pos.p,
                                .cos = co.p,
                                .sin = si.p,
                                .interleaved = interleaved};
    tap_ok(k->rope.run(q, &f) == 0, "rope");
    for (int64_t r = 0; r < R; r++)
        for (int64_t i = 0; i < H * HALF; i++) {
            const int64_t j = i % HALF, from = r * C + i / HALF * D,
                          u = from + (interleaved ? 2 * j : j), v = interleaved ? u + 1 : u + HALF;
            const float c = at(&co, (R - 1 - r) * HALF + j), s = at(&si, (R - 1 - r) * HALF + j);
            want[u] = fmaf(at(&x, u), c, -(at(&x, v) * s));
            want[v] = fmaf(at(&x, u), s, at(&x, v) * c);
            wrong[u] = fmaf(-at(&x, v), s, at(&x, u) * c);
            wrong[v] = want[v];
        }
    bits(&y, want, N, interleaved ? "rope, neighbours" : "rope, halves");
    other(want, wrong, N, "rope");
    op_free(&x), op_free(&co), op_free(&si), op_free(&y), op_free(&pos);
}

static void test_embed(void)
{
    static float want[N], wrong[N];
    struct op_buf t = op_random(N, LF_F32, 13, 1), p = op_random(N, LF_F32, 14, 1),
                  y = op_alloc(N * 4), i32 = op_alloc(R * 4);
    for (int32_t i = 0; i < R; i++)
        ((int32_t *)i32.p)[i] = i;
    const struct lf_k_embed_fwd f = {.rows = R,
                                     .c = C,
                                     .v = R,
                                     .max_pos = R,
                                     .token = i32.p,
                                     .position = i32.p,
                                     .wte = t.p,
                                     .wpe = p.p,
                                     .y = y.p,
                                     .scale = 1.7f};
    tap_ok(k->embed_fwd.run(q, &f) == 0, "embed_fwd");
    for (int64_t i = 0; i < N; i++) {
        want[i] = fmaf(at(&t, i), 1.7f, at(&p, i));
        wrong[i] = at(&t, i) * 1.7f + at(&p, i);
    }
    bits(&y, want, N, "embed_fwd: scale and position are fused");
    other(want, wrong, N, "embed_fwd");
    op_free(&t), op_free(&p), op_free(&y), op_free(&i32);
}

/* A sum that follows a product without being fused with it. */
static void test_dropout(void)
{
    static float want[N], wrong[N];
    struct op_buf x = op_random(N, LF_F32, 15, 1), res = op_random(N, LF_F32, 16, 1),
                  y = op_alloc(N * 4), sample = op_alloc(R * 8), pos = op_alloc(R * 4),
                  rec = op_alloc(sizeof(struct lf_step_record));
    memset(rec.p, 0, rec.bytes);
    memset(sample.p, 0, sample.bytes);
    for (int32_t i = 0; i < R; i++)
        ((int32_t *)pos.p)[i] = i;
    struct lf_k_dropout f = {.rows = R,
                             .c = C,
                             .ldx = C,
                             .ldres = C,
                             .ldy = C,
                             .x = x.p,
                             .residual = res.p,
                             .y = y.p,
                             .sample = sample.p,
                             .position = pos.p,
                             .p = 0.3f,
                             .site = 1,
                             .rec = rec.p};
    const float keep = 1.0f / (1.0f - f.p);
    int64_t bad = 0, kept = 0;
    tap_ok(k->dropout.run(q, &f) == 0, "dropout");
    for (int64_t i = 0; i < N; i++) {
        want[i] = at(&x, i) * keep + at(&res, i);
        wrong[i] = fmaf(at(&x, i), keep, at(&res, i));
        kept += at(&y, i) != at(&res, i);
        bad += at(&y, i) != at(&res, i) && at(&y, i) != want[i];
    }
    tap_ok(bad == 0 && kept > N / 2 && kept < N,
           "dropout: the residual is added to a rounded product");
    other(want, wrong, N, "dropout");
    op_free(&x), op_free(&res), op_free(&y), op_free(&sample), op_free(&pos), op_free(&rec);
}

int main(void)
{
    k = op_kernels(0);
    q = op_queue_create(1);
    for (int act = LF_ACT_NONE; act <= LF_ACT_RELU; act++)
        TAP(act == LF_ACT_NONE || act == LF_ACT_RELU ? 2 : 3, test_epilogue(act));
    TAP(2, test_glu());
    TAP(3, test_axpby());
    TAP(3, test_norm());
    TAP(3, test_rope(false));
    TAP(3, test_rope(true));
    TAP(3, test_embed());
    TAP(3, test_dropout());
    op_queue_destroy(q);
    return tap_done();
}
