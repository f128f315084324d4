/* SPDX-License-Identifier: Apache-2.0
 *
 * quantise against a search for the nearest value, byte for byte, over odd shapes, all scalings,
 * extreme and non-finite elements, absent results; gemm_fp8 against f64 sums of the quantised
 * values with every epilogue. Threads bit for bit.
 */
#include "config.h"

#include "tests/op/op_test.h"
#ifdef OP_CUDA
#include "tests/cuda/emu/blaslt.h"
#endif

enum { B = LF_FP8_BLOCK };
static lf_queue *queue[4];

/* ---- the formats, by their definition ---- */

static double f8_value(int type, int code)
{
    const int m_bits = type == LF_E4M3 ? 3 : 2, bias = type == LF_E4M3 ? 7 : 15;
    const int e = (code & 0x7f) >> m_bits, m = code & ((1 << m_bits) - 1);
    const double v = e ? ldexp(1 + ldexp(m, -m_bits), e - bias) : ldexp(m, 1 - bias - m_bits);
    if (type == LF_E4M3 ? (code & 0x7f) == 0x7f : e == 31)
        return (double)NAN;
    return code & 0x80 ? -v : v;
}

static int last_code(int type)
{
    return type == LF_E4M3 ? 0x7e : 0x7b;
}

/* Nearest, ties to the even code. */
static int f8_code(int type, double x)
{
    const double v = fabs(x);
    int lo = 0, hi = last_code(type);
    if (isnan(x))
        return 0x7f;
    while (hi - lo > 1) {
        const int mid = (lo + hi) / 2;
        *(f8_value(type, mid) <= v ? &lo : &hi) = mid;
    }
    const double down = v - f8_value(type, lo), up = f8_value(type, hi) - v;
    const int code = down < up || (down == up && lo % 2 == 0) ? lo : hi;
    return code | (signbit(x) ? 0x80 : 0);
}

static double scale_ref(int type, double most)
{
    const double top = f8_value(type, last_code(type)), m = most < 0x1p-60 ? 0x1p-60 : most;
    int e = 200;
    if (!isfinite(most))
        return (double)NAN;
    while (ldexp(m, e) > top)
        e--;
    return ldexp(1, -e);
}

/* ---- quantise ---- */

struct qcase {
    int64_t rows, cols, ld;
    int x_type, q_type, scaling;
    bool no_q, no_qt;
};

/* x or its transpose as the kernel reads it. */
static double element(const struct qcase *t, const void *x, bool transposed, int64_t r, int64_t c)
{
    return op_get(x, transposed ? c * t->ld + r : r * t->ld + c, t->x_type);
}

static int64_t scale_at(int scaling, int64_t rows, int64_t cols, int64_t r, int64_t c)
{
    const int64_t pitch = ((cols + B - 1) / B + 3) / 4 * 4;
    return scaling == LF_FP8_TENSOR   ? 0
           : scaling == LF_FP8_VEC128 ? c / B * rows + r
                                      : r / B * pitch + c / B;
}

/* Codes [rows][cols] of x or its transpose, and scales; places that nothing fills keep 0xA5. */
static void quantise_ref(const struct qcase *t, const void *x, bool transposed, uint8_t *code,
                         float *scale, size_t scales)
{
    const int64_t rows = transposed ? t->cols : t->rows, cols = transposed ? t->rows : t->cols;
    const int64_t br = t->scaling == LF_FP8_TENSOR ? rows : t->scaling == LF_FP8_VEC128 ? 1 : B;
    const int64_t bc = t->scaling == LF_FP8_TENSOR ? cols : B;
    memset(scale, 0xA5, scales * sizeof *scale);
    if (rows * cols == 0 && t->scaling == LF_FP8_TENSOR)
        scale[0] = (float)scale_ref(t->q_type, 0);
    for (int64_t r0 = 0; r0 < rows && cols; r0 += br)
        for (int64_t c0 = 0; c0 < cols; c0 += bc) {
            double most = 0;
            for (int64_t r = r0; r < rows && r < r0 + br; r++)
                for (int64_t c = c0; c < cols && c < c0 + bc; c++) {
                    const double v = fabs(element(t, x, transposed, r, c));
                    most = v > most || isnan(v) ? v : most;
                }
            const double s = scale_ref(t->q_type, most);
            scale[scale_at(t->scaling, rows, cols, r0, c0)] = (float)s;
            for (int64_t r = r0; r < rows && r < r0 + br; r++)
                for (int64_t c = c0; c < cols && c < c0 + bc; c++)
                    code[r * cols + c] = (uint8_t)f8_code(
                        t->q_type, isnan(s) ? s : element(t, x, transposed, r, c) / s);
        }
}

/* First byte that differs, -1: none. NaN is NaN with any sign. */
static int64_t codes_differ(const struct qcase *t, const uint8_t *got, const uint8_t *want)
{
    for (int64_t i = 0; i < t->rows * t->cols; i++)
        if (got[i] != want[i] &&
            !(isnan(f8_value(t->q_type, got[i])) && isnan(f8_value(t->q_type, want[i]))))
            return i;
    return -1;
}

static bool scales_differ(const float *got, const float *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i])))
            return true;
    return false;
}

struct qout {
    struct op_buf q, qt, s, st, work;
    bool ran;
};

static struct qout quantise_run(const struct lf_kernels *k, lf_queue *queue_, const struct qcase *t,
                                const void *x)
{
    const enum lf_fp8_scaling s = (enum lf_fp8_scaling)t->scaling;
    struct qout o = {op_alloc((size_t)(t->rows * t->cols)),
                     op_alloc((size_t)(t->rows * t->cols)),
                     op_alloc((size_t)lf_fp8_scales(t->rows, t->cols, s) * 4),
                     op_alloc((size_t)lf_fp8_scales(t->cols, t->rows, s) * 4),
                     {0},
                     false};
    struct lf_k_quantise a = {.rows = t->rows,
                              .cols = t->cols,
                              .ldx = t->ld,
                              .x = x,
                              .q = t->no_q ? NULL : o.q.p,
                              .qt = t->no_qt ? NULL : o.qt.p,
                              .scale = t->no_q && s != LF_FP8_TENSOR ? NULL : o.s.p,
                              .scale_t = t->no_qt ? NULL : o.st.p,
                              .x_type = (uint8_t)t->x_type,
                              .q_type = (uint8_t)t->q_type,
                              .scaling = (uint8_t)t->scaling};
    a.work_bytes = k->quantise.work(&a, 3);
    o.work = op_alloc(a.work_bytes);
    a.work = a.work_bytes ? o.work.p : NULL;
    o.ran = k->quantise.check(&a) == 0 && k->quantise.run(queue_, &a) == 0 &&
            op_guards_intact(&o.q) && op_guards_intact(&o.qt) && op_guards_intact(&o.s) &&
            op_guards_intact(&o.st) && op_guards_intact(&o.work);
    return o;
}

static void qout_free(struct qout *o)
{
    op_free(&o->q);
    op_free(&o->qt);
    op_free(&o->s);
    op_free(&o->st);
    op_free(&o->work);
}

static bool qout_same(const struct qout *a, const struct qout *b)
{
    return memcmp(a->q.p, b->q.p, a->q.bytes) == 0 && memcmp(a->qt.p, b->qt.p, a->qt.bytes) == 0 &&
           memcmp(a->s.p, b->s.p, a->s.bytes) == 0 && memcmp(a->st.p, b->st.p, a->st.bytes) == 0;
}

static void test_quantise(const struct lf_kernels *k, const struct qcase *t, const void *x,
                          const char *what)
{
    const size_t n = (size_t)(t->rows * t->cols);
    const enum lf_fp8_scaling s = (enum lf_fp8_scaling)t->scaling;
    const size_t ns = (size_t)lf_fp8_scales(t->rows, t->cols, s),
                 nt = (size_t)lf_fp8_scales(t->cols, t->rows, s);
    struct qout o[4];
    uint8_t *q = malloc(n + 1), *qt = malloc(n + 1);
    float *scale = malloc((ns + 1) * 4), *scale_t = malloc((nt + 1) * 4);
    quantise_ref(t, x, false, q, scale, ns);
    quantise_ref(t, x, true, qt, scale_t, nt);
    if (t->no_q)
        memset(q, 0xA5, n);
    if (t->no_qt)
        memset(qt, 0xA5, n);
    if (t->no_q && s != LF_FP8_TENSOR)
        memset(scale, 0xA5, ns * 4);
    if (t->no_qt || s == LF_FP8_TENSOR)
        memset(scale_t, 0xA5, nt * 4);
    for (int i = 1; i <= OP_THREADS; i++)
        o[i] = quantise_run(k, queue[i], t, x);
    const int64_t bad = codes_differ(t, o[1].q.p, q), bad_t = codes_differ(t, o[1].qt.p, qt);
    const bool scales =
        !scales_differ(o[1].s.p, scale, ns) && !scales_differ(o[1].st.p, scale_t, nt);
    bool same = true;
    for (int i = 1; i <= OP_THREADS; i++)
        same = same && o[i].ran && qout_same(&o[1], &o[i]);
    tap_ok(same && bad < 0 && bad_t < 0 && scales,
           "quantise %lld x %lld, type %d to %d, scaling %d, %s", (long long)t->rows,
           (long long)t->cols, t->x_type, t->q_type, t->scaling, what);
    if (bad >= 0 || bad_t >= 0 || !scales)
        tap_diag("first wrong code %lld of q, %lld of qt; scales %s", (long long)bad,
                 (long long)bad_t, scales ? "right" : "wrong");
    for (int i = 1; i <= OP_THREADS; i++)
        qout_free(&o[i]);
    free(q);
    free(qt);
    free(scale);
    free(scale_t);
}

/* Magnitudes over many powers of two, exact ties among them. */
static struct op_buf wide_range(const struct qcase *t, uint64_t seed)
{
    struct op_buf b = op_random(t->rows * t->ld, t->x_type, seed, 1.0);
    for (int64_t i = 0; i < t->rows * t->ld; i++) {
        const int e = (int)(12 * op_rand(seed + 1, i)) - (t->x_type == LF_F16 ? 2 : 0);
        const double x = i % 3 ? op_rand(seed, i) : (double)((int)(40 * op_rand(seed, i)));
        op_set(b.p, i, t->x_type, ldexp(x, e));
    }
    return b;
}

static void quantise_shape(const struct lf_kernels *k, int64_t rows, int64_t cols, int64_t pad,
                           int x_type)
{
    for (int scaling = LF_FP8_TENSOR; scaling <= LF_FP8_BLK128; scaling++)
        for (int q_type = LF_E4M3; q_type <= LF_E5M2; q_type++) {
            struct qcase t = {rows, cols, cols + pad, x_type, q_type, scaling, false, false};
            struct op_buf x = wide_range(&t, 7);
            test_quantise(k, &t, x.p, "both");
            op_free(&x);
        }
}

static void quantise_special(const struct lf_kernels *k)
{
    static const double values[] = {0,
                                    1e-30,
                                    1e-19,
                                    3e38,
                                    448,
                                    449,
                                    57344,
                                    57345,
                                    1.75,
                                    1.7500001,
                                    (double)INFINITY,
                                    -(double)INFINITY,
                                    (double)NAN};
    for (int scaling = LF_FP8_TENSOR; scaling <= LF_FP8_BLK128; scaling++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            struct qcase t = {130,     140,        140,       LF_F32, v % 2 ? LF_E4M3 : LF_E5M2,
                              scaling, v % 4 == 1, v % 4 == 3};
            struct op_buf x =
                op_random(t.rows * t.ld, t.x_type, 3, fabs(values[v]) < 1 ? values[v] : 1.0);
            op_set(x.p, 129 * t.ld + 5, t.x_type, values[v]);
            test_quantise(k, &t, x.p,
                          t.no_q    ? "qt alone, special"
                          : t.no_qt ? "q alone, special"
                                    : "special");
            op_free(&x);
        }
}

/* The comparison sees one wrong code and one wrong scale. */
static void prove_quantise(const struct lf_kernels *k)
{
    struct qcase t = {17, 33, 33, LF_F32, LF_E4M3, LF_FP8_VEC128, false, false};
    struct op_buf x = wide_range(&t, 9);
    struct qout o = quantise_run(k, queue[1], &t, x.p);
    uint8_t want[17 * 33], *got = o.q.p;
    float scale[17], *s = o.s.p;
    quantise_ref(&t, x.p, false, want, scale, 17);
    got[300] ^= 1;
    s[5] *= 2;
    tap_ok(codes_differ(&t, got, want) == 300 && scales_differ(s, scale, 17),
           "a planted code and a planted scale are found");
    qout_free(&o);
    op_free(&x);
}

/* ---- gemm_fp8 ---- */

struct gcase {
    int64_t m, n, k;
    int a_type, b_type, a_scaling, b_scaling, c_type, act;
    bool bias, residual, pre, accumulate;
};

struct operand {
    struct op_buf q, scale;
};

static struct operand operand_make(const struct lf_kernels *k, int64_t rows, int64_t cols, int type,
                                   int scaling, uint64_t seed)
{
    struct qcase t = {rows, cols, cols, LF_F32, type, scaling, false, true};
    struct op_buf x = op_random(rows * cols, LF_F32, seed, 1.0);
    for (int64_t i = 0; i < rows * cols; i++) /* blocks of different sizes */
        op_set(x.p, i, LF_F32,
               op_get(x.p, i, LF_F32) * (1 + (double)(i / cols / 64 % 3) * 5) *
                   (i % cols < 128 ? 1 : 9));
    struct qout o = quantise_run(k, queue[1], &t, x.p);
    if (!o.ran)
        tap_bail("quantise failed");
    op_free(&x);
    op_free(&o.qt);
    op_free(&o.st);
    op_free(&o.work);
    return (struct operand){o.q, o.s};
}

static double operand_value(const struct operand *o, int type, int scaling, int64_t rows,
                            int64_t cols, int64_t r, int64_t c)
{
    return f8_value(type, ((const uint8_t *)o->q.p)[r * cols + c]) *
           (double)((const float *)o->scale.p)[scale_at(scaling, rows, cols, r, c)];
}

static double rounded(double x, int type)
{
    return type == LF_BF16 ? op_from_bf16(op_to_bf16(x)) : (double)(float)x;
}

/* What the sum of an element's products may differ by. On the emulator and the CPU f32 is summed.
 * Hopper's tensor cores take 32 products and the sum so far to the exponent of the largest and keep
 * 13 bits of fraction of each, so a group loses up to 33 such units. sum: of magnitudes; groups: of
 * the largest magnitude of each 32. */
static double sums_apart(double sum, double groups)
{
#ifdef OP_CUDA
    if (op_on_gpu())
        return 0x1p-13 * (sum + 33 * groups);
#endif
    (void)groups;
    return 1e-6 * sum;
}

/* limit[i]: what sums in another order, and with something after the product one more rounding of
 * it, may change. */
static void gemm_ref(const struct gcase *t, const struct operand *a, const struct operand *b,
                     const float *bias, const void *res, const float *old, double *want,
                     double *pre, double *limit)
{
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < t->n; j++) {
            const int64_t o = i * t->n + j;
            double s = 0, sum = 0, group = 0, groups = 0;
            for (int64_t x = 0; x < t->k; x++) {
                const double p = operand_value(a, t->a_type, t->a_scaling, t->m, t->k, i, x) *
                                 operand_value(b, t->b_type, t->b_scaling, t->n, t->k, j, x);
                s += p;
                sum += fabs(p);
                groups += x % 32 == 0 ? group : 0;
                group = x % 32 == 0 ? fabs(p) : fmax(group, fabs(p));
            }
            groups += group;
            const double product = fabs(s);
            s += t->bias ? (double)bias[j] : 0;
            limit[o] =
                sums_apart(sum, groups) +
                (t->bias || t->act || t->pre ? 1.1 * op_eps(t->c_type) * (product + fabs(s)) : 0);
            pre[o] = s;
            if (t->act)
                s = rounded(s, t->c_type) / (1 + exp(-rounded(s, t->c_type))); /* LF_ACT_SILU */
            s += t->residual ? op_get(res, o, t->c_type) : 0;
            want[o] = s + (t->accumulate ? (double)old[o] : 0);
        }
}

static void test_gemm(const struct lf_kernels *k, const struct gcase *t)
{
    const int64_t size = t->m * t->n;
    struct operand a = operand_make(k, t->m, t->k, t->a_type, t->a_scaling, 21);
    struct operand b = operand_make(k, t->n, t->k, t->b_type, t->b_scaling, 22);
    struct op_buf bias = op_random(t->n, LF_F32, 23, 2.0),
                  res = op_random(size, t->c_type, 24, 2.0), c[4], pre[4];
    double *want = calloc((size_t)size + 1, 8), *wpre = calloc((size_t)size + 1, 8),
           *limit = calloc((size_t)size + 1, 8);
    gemm_ref(t, &a, &b, bias.p, res.p, res.p, want, wpre, limit);
    bool same = true;
    for (int i = 1; i <= OP_THREADS; i++) {
        c[i] = op_alloc((size_t)size * lf_dtype_size((enum lf_dtype)t->c_type));
        pre[i] = op_alloc(c[i].bytes);
        if (t->accumulate)
            memcpy(c[i].p, res.p, c[i].bytes);
        struct lf_k_gemm_fp8 g = {.gemm = {.m = t->m,
                                           .n = t->n,
                                           .k = t->k,
                                           .a = a.q.p,
                                           .b = b.q.p,
                                           .c = c[i].p,
                                           .lda = t->k,
                                           .ldb = t->k,
                                           .ldc = t->n,
                                           .ldpre = t->n,
                                           .ldres = t->n,
                                           .tb = true,
                                           .c_type = (uint8_t)t->c_type,
                                           .accumulate = t->accumulate,
                                           .act = (uint8_t)t->act},
                                  .a_scale = a.scale.p,
                                  .b_scale = b.scale.p,
                                  .a_type = (uint8_t)t->a_type,
                                  .b_type = (uint8_t)t->b_type,
                                  .a_scaling = (uint8_t)t->a_scaling,
                                  .b_scaling = (uint8_t)t->b_scaling};
        g.gemm.bias = t->bias ? bias.p : NULL;
        g.gemm.residual = t->residual ? res.p : NULL;
        g.gemm.pre = t->pre ? pre[i].p : NULL;
        g.gemm.work_bytes = k->gemm_fp8.work(&g, i);
        struct op_buf work = op_alloc(g.gemm.work_bytes);
        g.gemm.work = work.p;
        same = same && k->gemm_fp8.check(&g) == 0 && k->gemm_fp8.run(queue[i], &g) == 0 &&
               memcmp(c[1].p, c[i].p, c[i].bytes) == 0 && op_guards_intact(&c[i]) &&
               op_guards_intact(&pre[i]) && op_guards_intact(&work);
        op_free(&work);
    }
    tap_ok(same, "gemm_fp8 %lld x %lld x %lld runs, same bits with 1 to %d threads",
           (long long)t->m, (long long)t->n, (long long)t->k, (int)OP_THREADS);
    op_ok(op_compare(c[1].p, t->c_type, want, limit, size, 1), "gemm_fp8 against f64");
    if (t->pre)
        op_ok(op_compare(pre[1].p, t->c_type, wpre, limit, size, 1), "gemm_fp8: pre");
    if (size)
        op_prove(c[1].p, t->c_type, want, limit, size, 1, size / 2);
    for (int i = 1; i <= OP_THREADS; i++) {
        op_free(&c[i]);
        op_free(&pre[i]);
    }
    struct op_buf *all[] = {&a.q, &a.scale, &b.q, &b.scale, &bias, &res};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        op_free(all[i]);
    free(want);
    free(wpre);
    free(limit);
}

static void test_refused(const struct lf_kernels *k)
{
    const struct lf_k_gemm_fp8 good = {.gemm = {.m = 128,
                                                .n = 128,
                                                .k = 128,
                                                .lda = 128,
                                                .ldb = 128,
                                                .ldc = 128,
                                                .tb = true,
                                                .c_type = LF_BF16},
                                       .a_type = LF_E4M3,
                                       .b_type = LF_E4M3,
                                       .a_scaling = LF_FP8_VEC128,
                                       .b_scaling = LF_FP8_BLK128};
    struct lf_k_gemm_fp8 bad[6];
    for (int i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].a_type = bad[0].b_type = LF_E5M2;
    bad[1].b_scaling = LF_FP8_TENSOR;
    bad[2].a_scaling = LF_FP8_BLK128;
    bad[3].gemm.m = 16;
    bad[4].gemm.tb = false;
    bad[5].gemm.mode = LF_INVARIANT;
    bool ok = k->gemm_fp8.check(&good) == 0;
    for (int i = 0; i < 6; i++)
        ok = ok && k->gemm_fp8.check(&bad[i]) == LF_K_EINVAL;
    tap_ok(ok, "types, scalings, shapes and modes that no library has are refused");
}

/* Where 8-bit products come from: the library, in its place the emulated one. false: this GPU has
 * no scales of blocks.
 */
static bool prepare(void)
{
#ifdef OP_CUDA
    struct lf_lt lt;
    lf_emu_blaslt(&lt);
    if (!op_on_gpu() && lf_blaslt_use(queue[1]->dev, &lt))
        tap_bail("no memory");
    return queue[1]->dev->sm == 90;
#else
    return true;
#endif
}

/* Is there who multiplies 8-bit matrices? */
static bool library(void)
{
#ifdef OP_CUDA
    return strcmp(lf_cuda_gemm_algorithm(queue[1]->dev, LF_FAST), "own") != 0;
#else
    return true;
#endif
}

/* Nothing else multiplies them: without the library the run says what is missing. */
static void test_missing(const struct lf_kernels *k)
{
#ifdef OP_CUDA
    struct operand a = operand_make(k, 16, 16, LF_E4M3, LF_FP8_TENSOR, 31);
    struct op_buf c = op_alloc(16 * 16 * 4);
    const struct lf_k_gemm_fp8 g = {.gemm = {.m = 16,
                                             .n = 16,
                                             .k = 16,
                                             .a = a.q.p,
                                             .b = a.q.p,
                                             .c = c.p,
                                             .lda = 16,
                                             .ldb = 16,
                                             .ldc = 16,
                                             .tb = true},
                                    .a_scale = a.scale.p,
                                    .b_scale = a.scale.p,
                                    .a_type = LF_E4M3,
                                    .b_type = LF_E4M3};
    lf_queue *q = queue[1];
    const bool ok =
        lf_blaslt_use(q->dev, NULL) == LF_K_OK && k->gemm_fp8.run(q, &g) == LF_K_EDEVICE;
    tap_ok(ok && q->what && strstr(q->what, "needs cublasLt"),
           "without the library the product is refused by name");
    q->status = 0;
    op_free(&a.q);
    op_free(&a.scale);
    op_free(&c);
#else
    (void)k;
#endif
}

static void test_products(const struct lf_kernels *k)
{
    static const struct gcase cases[] = {
        {48, 32, 80, LF_E4M3, LF_E4M3, LF_FP8_TENSOR, LF_FP8_TENSOR, LF_BF16, 0, false, false,
         false, false},
        {16, 16, 16, LF_E5M2, LF_E4M3, LF_FP8_TENSOR, LF_FP8_TENSOR, LF_F32, 0, true, true, false,
         false},
        {0, 16, 16, LF_E4M3, LF_E4M3, LF_FP8_TENSOR, LF_FP8_TENSOR, LF_BF16, 0, false, false, false,
         false},
        {32, 64, 48, LF_E4M3, LF_E5M2, LF_FP8_TENSOR, LF_FP8_TENSOR, LF_F32, 0, false, false, false,
         true},
        {32, 48, 64, LF_E4M3, LF_E4M3, LF_FP8_TENSOR, LF_FP8_TENSOR, LF_BF16, LF_ACT_SILU, true,
         false, true, false},
        {128, 256, 384, LF_E4M3, LF_E4M3, LF_FP8_VEC128, LF_FP8_BLK128, LF_BF16, 0, false, true,
         false, false},
        {128, 128, 128, LF_E4M3, LF_E4M3, LF_FP8_BLK128, LF_FP8_VEC128, LF_F32, LF_ACT_SILU, false,
         true, false, false},
        {256, 128, 256, LF_E4M3, LF_E4M3, LF_FP8_VEC128, LF_FP8_VEC128, LF_F32, 0, false, false,
         false, true}};
    const bool blocks = prepare();
    if (!library()) {
        tap_skip(1, "no cuBLASLt was found (LF_CUBLASLT names it): no 8-bit products");
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (blocks || cases[i].a_scaling == LF_FP8_TENSOR)
            test_gemm(k, &cases[i]);
    test_refused(k);
    test_missing(k);
}

int main(void)
{
    static const int64_t shapes[][3] = {{0, 5, 0},    {1, 1, 3},    {16, 128, 0},
                                        {130, 67, 1}, {40, 300, 4}, {257, 136, 8}};
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int i = 0; i < OP_BACKENDS; i++) {
        const struct lf_kernels *k = op_kernels(i);
        if (!k)
            continue;
        for (size_t n = 0; n < sizeof shapes / sizeof *shapes; n++)
            for (int type = LF_F32; type <= OP_LAST_FLOAT; type++)
                TAP(6, quantise_shape(k, shapes[n][0], shapes[n][1], shapes[n][2], type));
        TAP(39, quantise_special(k));
        TAP(1, prove_quantise(k));
#ifdef OP_CUDA /* a real GPU may have no cuBLASLt, and no scales of blocks */
        TAP_MIN(op_on_gpu() ? 1 : 26, test_products(k));
#else
        TAP(25, test_products(k));
#endif
    }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
