/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm and gemm_pack on every backend against an f64 reference: odd shapes, all types,
 * transpositions, packed panels, every epilogue, accumulate, sentinels, and bitwise: repeat, M, row
 * position, threads, packed or not; on CUDA, every form of tile.
 */
#include "config.h"

#include "tests/op/op_test.h"

#ifdef OP_CUDA
#include "kernels/cuda/gemm_form.h"
#include "tests/cuda/emu/blaslt.h"
enum { CASES = 120, PANELS = 0, QUEUES = 1 };
static int queue_threads(const lf_queue *q)
{
    (void)q;
    return 1;
}
#else
enum { CASES = 500, PANELS = 1, QUEUES = 3 };
static int queue_threads(const lf_queue *q)
{
    return lf_cpu_queue_threads(q);
}
#endif

struct gcase {
    int64_t m, n, k;
    bool ta, tb, packed, accumulate, bias, pre, residual, residual_is_c;
    uint8_t ab, ct, bt, act, mode; /* bt: of the bias */
    int64_t pad;                   /* added to every row distance */
};

static double act_ref(int act, double x)
{
    switch (act) {
    case LF_ACT_GELU:
        return 0.5 * x * (1 + erf(x / sqrt(2.0)));
    case LF_ACT_GELU_TANH:
        return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
    case LF_ACT_GELU_QUICK:
        return x / (1 + exp(-1.702 * x));
    case LF_ACT_SILU:
        return x / (1 + exp(-x));
    case LF_ACT_RELU:
        return x > 0 ? x : 0;
    default:
        return x;
    }
}

struct gdata {
    struct op_buf a, b, c, pre, bias, res, packed, work;
    double *want, *want_pre, *scale;
    struct lf_k_gemm g;
};

static double tolerance(const struct gcase *t)
{
    return 6e-8 * (sqrt((double)t->k) + 4);
}

static void reference(struct gdata *d, const struct gcase *t, const void *c_before)
{
    const struct lf_k_gemm *g = &d->g;
    for (int64_t i = 0; i < t->m; i++)
        for (int64_t j = 0; j < t->n; j++) {
            double s = 0, n2 = 0;
            for (int64_t k = 0; k < t->k; k++) {
                double p = op_get(g->a, t->ta ? k * g->lda + i : i * g->lda + k, t->ab) *
                           op_get(d->b.p, t->tb ? j * g->ldb + k : k * g->ldb + j, t->ab);
                s += p;
                n2 += fabs(p);
            }
            int64_t o = i * t->n + j;
            d->scale[o] = n2 + 1;
            const double product = s;
            if (t->bias)
                s += op_get(g->bias, j, g->bias_type);
            d->want_pre[o] = s;
            if (t->pre || t->act) { /* what act sees is rounded to c_type */
                double r = t->ct == LF_BF16  ? op_from_bf16(op_to_bf16(s))
                           : t->ct == LF_F16 ? op_from_f16(op_to_f16(s))
                                             : s;
                s = act_ref(t->act, r);
            }
            if (t->residual)
                s += op_get(t->residual_is_c ? c_before : g->residual,
                            t->residual_is_c ? i * g->ldc + j : i * g->ldres + j, t->ct);
            if (t->accumulate)
                s += op_get(c_before, i * g->ldc + j, t->ct);
            d->want[o] = s;
            if (t->mode == LF_FAST && t->bias && t->residual && !t->act && !t->pre)
                /* cublasLt rounds product + residual before it adds the bias (kernels.h) */
                d->scale[o] += op_eps(t->ct) * (fabs(product) + 2) / tolerance(t);
        }
}

static void setup(struct gdata *d, const struct gcase *t, const struct lf_kernels *k, lf_queue *q)
{
    struct lf_k_gemm *g = &d->g;
    *d = (struct gdata){0};
    *g = (struct lf_k_gemm){.m = t->m,
                            .n = t->n,
                            .k = t->k,
                            .ta = t->ta,
                            .tb = t->tb,
                            .accumulate = t->accumulate,
                            .ab_type = t->ab,
                            .c_type = t->ct,
                            .bias_type = t->bt,
                            .act = t->act,
                            .mode = t->mode};
    g->lda = (t->ta ? t->m : t->k) + t->pad;
    g->ldb = (t->tb ? t->k : t->n) + t->pad;
    g->ldc = t->n + t->pad;
    g->ldpre = t->n + 2 * t->pad;
    g->ldres = t->n + 3 * t->pad;
    /* the last row ends at the sentinel: no pad after it */
    d->a = op_random(((t->ta ? t->k : t->m) - 1) * g->lda + (t->ta ? t->m : t->k), t->ab, 1, 1);
    d->b = op_random(((t->tb ? t->n : t->k) - 1) * g->ldb + (t->tb ? t->k : t->n), t->ab, 2, 1);
    d->c = op_random((t->m - 1) * g->ldc + t->n, t->ct, 3, 1);
    g->a = d->a.p;
    g->b = d->b.p;
    g->c = d->c.p;
    if (t->bias) {
        d->bias = op_random(t->n, t->bt, 4, 1);
        g->bias = d->bias.p;
    }
    if (t->pre) {
        d->pre = op_random((t->m - 1) * g->ldpre + t->n, t->ct, 5, 1);
        g->pre = d->pre.p;
    }
    if (t->residual && !t->residual_is_c) {
        d->res = op_random((t->m - 1) * g->ldres + t->n, t->ct, 6, 1);
        g->residual = d->res.p;
    } else if (t->residual) {
        g->residual = g->c;
        g->ldres = g->ldc;
    }
    if (t->packed) {
        size_t bytes = lf_cpu_gemm_packed_bytes(t->n, t->k, (enum lf_dtype)t->ab);
        d->packed = op_alloc(bytes);
        struct lf_k_gemm_pack p = {.n = t->n,
                                   .k = t->k,
                                   .b = d->b.p,
                                   .ldb = g->ldb,
                                   .tb = t->tb,
                                   .src_type = t->ab,
                                   .ab_type = t->ab,
                                   .packed = d->packed.p,
                                   .packed_bytes = bytes};
        if (k->gemm_pack.run(q, &p) || !op_guards_intact(&d->packed))
            tap_bail("gemm_pack");
        g->b_packed = d->packed.p;
        g->b = NULL;
    }
    g->work_bytes = k->gemm.work(g, queue_threads(q));
    d->work = op_alloc(g->work_bytes);
    g->work = d->work.p;
    size_t n = (size_t)(t->m * t->n);
    d->want = calloc(n, sizeof(double));
    d->want_pre = calloc(n, sizeof(double));
    d->scale = calloc(n, sizeof(double));
    if (!d->want || !d->want_pre || !d->scale)
        tap_bail("no memory");
}

static void teardown(struct gdata *d)
{
    op_free(&d->a), op_free(&d->b), op_free(&d->c), op_free(&d->pre), op_free(&d->bias),
        op_free(&d->res);
    op_free(&d->packed), op_free(&d->work);
    free(d->want), free(d->want_pre), free(d->scale);
}

/* Rows of a matrix with row distance ld, packed to [m][n] for op_compare. */
static void *dense(const void *c, int64_t m, int64_t n, int64_t ld, int type)
{
    size_t e = lf_dtype_size((enum lf_dtype)type);
    char *p = calloc((size_t)(m * n) + 1, e);
    if (!p)
        tap_bail("no memory");
    for (int64_t i = 0; i < m; i++)
        memcpy(p + (size_t)(i * n) * e, (const char *)c + (size_t)(i * ld) * e, (size_t)n * e);
    return p;
}

static bool pads_intact(const void *c, const void *before, int64_t m, int64_t n, int64_t ld,
                        int type)
{
    size_t e = lf_dtype_size((enum lf_dtype)type);
    for (int64_t i = 0; i + 1 < m; i++)
        if (memcmp((const char *)c + (size_t)(i * ld + n) * e,
                   (const char *)before + (size_t)(i * ld + n) * e, (size_t)(ld - n) * e))
            return false;
    return true;
}

/* One case; counts failures instead of printing a point each. */
static bool run_case(const struct lf_kernels *k, lf_queue *q, const struct gcase *t, bool prove)
{
    struct gdata d;
    setup(&d, t, k, q);
    void *before = malloc(d.c.bytes + 1);
    if (!before)
        tap_bail("no memory");
    memcpy(before, d.c.p, d.c.bytes);
    reference(&d, t, before);
    bool ok = k->gemm.check(&d.g) == LF_K_OK && k->gemm.run(q, &d.g) == LF_K_OK;
    void *got = dense(d.c.p, t->m, t->n, d.g.ldc, t->ct);
    double tol = tolerance(t) + (t->act ? 4e-7 : 0) +
                 (t->ct != LF_F32 && (t->act || t->pre) ? 2 * op_eps(t->ct) / (double)t->k : 0);
    /* a half-precision value before act may round the other way when the f32 sum lies next to a
     * tie: one unit of it */
    double *scale = d.scale;
    struct op_diff diff = op_compare(got, t->ct, d.want, scale, t->m * t->n, tol);
    if (t->ct != LF_F32 && (t->act || t->pre) && diff.bad >= 0) {
        for (int64_t i = 0; i < t->m * t->n; i++)
            scale[i] += fabs(d.want_pre[i]) * 2 * op_eps(t->ct) / tol;
        diff = op_compare(got, t->ct, d.want, scale, t->m * t->n, tol);
    }
    ok = ok && diff.bad < 0 && op_guards_intact(&d.c) && op_guards_intact(&d.work) &&
         pads_intact(d.c.p, before, t->m, t->n, d.g.ldc, t->ct);
    if (t->pre) {
        void *pre = dense(d.pre.p, t->m, t->n, d.g.ldpre, t->ct);
        struct op_diff pd = op_compare(pre, t->ct, d.want_pre, d.scale, t->m * t->n, tol);
        ok = ok && pd.bad < 0 && op_guards_intact(&d.pre);
        free(pre);
    }
    if (!ok)
        tap_diag("%s m %lld n %lld k %lld ta %d tb %d packed %d acc %d bias %d pre %d res %d/%d ab "
                 "%d c %d act %d pad %lld: element "
                 "%lld got %.9g want %.9g limit %.3g",
                 k->family, (long long)t->m, (long long)t->n, (long long)t->k, t->ta, t->tb,
                 t->packed, t->accumulate, t->bias, t->pre, t->residual, t->residual_is_c, t->ab,
                 t->ct, t->act, (long long)t->pad, (long long)diff.bad, diff.got, diff.want,
                 diff.limit);
    if (prove)
        op_prove(got, t->ct, d.want, d.scale, t->m * t->n, tol, t->m * t->n / 2);
    free(got);
    free(before);
    teardown(&d);
    return ok;
}

static int64_t pick(uint64_t seed, int64_t i, int64_t n)
{
    return (int64_t)((op_rand(seed, i) + 1) * 0.5 * (double)n);
}

static void many(const struct lf_kernels *k, lf_queue *q)
{
    static const int64_t dims[] = {1,  2,  3,  5,  7,  8,  13, 14, 15, 16, 17,
                                   28, 29, 31, 32, 33, 47, 48, 63, 64, 65, 97};
    const int64_t nd = sizeof dims / sizeof *dims;
    int bad = 0, total = 0;
    for (int64_t i = 0; i < CASES; i++) {
        struct gcase t = {.mode = LF_INVARIANT,
                          .m = dims[pick(20, i, nd)],
                          .n = dims[pick(21, i, nd)],
                          .k = dims[pick(22, i, nd)]};
        if (i % 25 == 0)
            t.k = 700 + pick(23, i, 1700); /* several chunks */
        t.ta = pick(24, i, 2);
        t.tb = pick(25, i, 2);
        t.ab = (uint8_t)pick(26, i, OP_LAST_FLOAT + 1);
        t.packed = PANELS && pick(27, i, 3) == 0;
        t.pad = pick(28, i, 3);
        t.accumulate = pick(29, i, 4) == 0;
        if (!t.accumulate) {
            t.ct = (uint8_t)pick(30, i, OP_LAST_FLOAT + 1);
            t.bt = (uint8_t)pick(37, i, OP_LAST_FLOAT + 1);
            t.bias = pick(31, i, 2);
            t.pre = pick(32, i, 3) == 0;
            t.residual = pick(33, i, 3) == 0;
            t.residual_is_c = t.residual && pick(34, i, 2);
            t.act = (uint8_t)(pick(35, i, 2) ? pick(36, i, 6) : 0);
        }
        bad += !run_case(k, q, &t, i == 0);
        total++;
    }
    tap_ok(bad == 0, "%s: %d random cases agree with the f64 reference", k->family, total);
}

/* Rows of a product, at any M, position, thread count, packed or not, carry the same bits. */
static void bitwise(const struct lf_kernels *k, uint8_t ab, int64_t n, int64_t kk, bool ta)
{
    const int64_t rows = 61;
    struct gcase t = {.mode = LF_INVARIANT,
                      .m = rows,
                      .n = n,
                      .k = kk,
                      .tb = true,
                      .ab = ab,
                      .ct = LF_F32,
                      .bias = true,
                      .ta = ta};
    lf_queue *q1 = op_queue_create(1), *q2 = op_queue_create(2), *q3 = op_queue_create(3);
    struct gdata d;
    setup(&d, &t, k, q1);
    bool ok = k->gemm.run(q1, &d.g) == LF_K_OK;
    float *first = dense(d.c.p, rows, n, d.g.ldc, LF_F32);
    lf_queue *qs[] = {q1, q2, q3};
    bool threads = true, position = true, packed = true;
    for (int i = 0; i < QUEUES; i++) {
        struct gdata e;
        t.packed = PANELS && i == 2;
        setup(&e, &t, k, qs[i]);
        ok = ok && k->gemm.run(qs[i], &e.g) == LF_K_OK;
        if (memcmp(first, e.c.p, e.c.bytes))
            *(t.packed ? &packed : &threads) = false;
        if (!ta)
            for (int64_t m = 1; m <= 20; m += PANELS ? 1 : 6) { /* rows r0 .. r0+m alone */
                int64_t r0 = pick(40, m, rows - m);
                struct lf_k_gemm g = e.g;
                g.m = m;
                g.a = (const char *)e.a.p + (size_t)(r0 * g.lda) * lf_dtype_size((enum lf_dtype)ab);
                memset(e.c.p, 0, e.c.bytes);
                ok = ok && k->gemm.run(qs[i], &g) == LF_K_OK;
                position = position && !memcmp(first + r0 * n, e.c.p, (size_t)(m * n) * 4);
            }
        teardown(&e);
    }
    tap_ok(ok && threads && packed && position,
           "%s: type %d n %lld k %lld ta %d: bits do not depend on threads, M, position, packing",
           k->family, ab, (long long)n, (long long)kk, ta);
    if (!threads || !packed || !position)
        tap_diag("threads %d packed %d position %d", threads, packed, position);
    free(first);
    teardown(&d);
    op_queue_destroy(q1), op_queue_destroy(q2), op_queue_destroy(q3);
}

/* More rows and columns than one super-block, groups of chunks, scratch. */
static void large(const struct lf_kernels *k, lf_queue *q)
{
    const struct gcase cases[] = {
        {.m = PANELS ? 1601 : 301, .n = 65, .k = 33, .tb = true, .ab = LF_F32, .ct = LF_F32},
        {.m = 17,
         .n = PANELS ? 4200 : 420,
         .k = PANELS ? 2100 : 1100,
         .tb = true,
         .ab = LF_BF16,
         .ct = LF_BF16,
         .bt = LF_BF16,
         .bias = true,
         .residual = true,
         .residual_is_c = true},
        {.m = 130,
         .n = 130,
         .k = PANELS ? 4000 : 1100,
         .ta = true,
         .ab = LF_F32,
         .ct = LF_F32,
         .accumulate = true},
    };
    int bad = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        bad += !run_case(k, q, &cases[i], false);
    tap_ok(bad == 0, "%s: super-blocks, chunk groups and scratch", k->family);
}

#ifndef OP_CUDA
/* f32 weights packed as bf16 panels equal rounding first. */
static void pack_rounds(const struct lf_kernels *k, lf_queue *q)
{
    const int64_t n = 45, kk = 133;
    size_t bytes = lf_cpu_gemm_packed_bytes(n, kk, LF_BF16);
    struct op_buf w = op_random(n * kk, LF_F32, 9, 1), r = op_alloc((size_t)(n * kk) * 2),
                  p1 = op_alloc(bytes), p2 = op_alloc(bytes);
    for (int64_t i = 0; i < n * kk; i++)
        op_set(r.p, i, LF_BF16, op_get(w.p, i, LF_F32));
    memset(p1.p, 0, bytes);
    memset(p2.p, 0, bytes);
    struct lf_k_gemm_pack p = {.n = n,
                               .k = kk,
                               .b = w.p,
                               .ldb = kk,
                               .tb = true,
                               .src_type = LF_F32,
                               .ab_type = LF_BF16,
                               .packed = p1.p,
                               .packed_bytes = bytes};
    bool ok = k->gemm_pack.run(q, &p) == LF_K_OK;
    p.b = r.p;
    p.src_type = LF_BF16;
    p.packed = p2.p;
    ok = ok && k->gemm_pack.run(q, &p) == LF_K_OK && !memcmp(p1.p, p2.p, bytes);
    tap_ok(ok, "%s: packing f32 into bf16 panels rounds to nearest even", k->family);
    op_free(&w), op_free(&r), op_free(&p1), op_free(&p2);
}

/* Mode LF_FAST through the library: same numbers within the tolerance, accumulation and bias
 * included, and kept primitives. */
static void library(const struct lf_kernels *k, lf_queue *q)
{
    const struct lf_k_gemm any = {
        .m = 8, .n = 8, .k = 8, .lda = 8, .ldb = 8, .ldc = 8, .mode = LF_FAST};
    setenv("LF_GEMM", "onednn", 1);
    bool there = strcmp(lf_cpu_gemm_algorithm(&any), "own") != 0;
    int bad = 0;
    for (int i = 0; there && i < 48; i++) {
        struct gcase t = {.m = 20 + i % 5,
                          .n = 33,
                          .k = 70 + i % 7,
                          .ta = i & 1,
                          .tb = i & 2,
                          .accumulate = (i & 12) == 4,
                          .bias = (i & 12) == 8,
                          .ab = i & 16 ? LF_BF16 : LF_F32,
                          .ct = LF_F32,
                          .pad = i % 3,
                          .mode = LF_FAST};
        bad += !run_case(k, q, &t, false) || !run_case(k, q, &t, false);
    }
    if (there)
        tap_ok(bad == 0, "%s: %s in fast mode agrees with the f64 reference", k->family,
               lf_cpu_gemm_algorithm(&any));
    else
        tap_skip(1, "built without oneDNN, or LF_ISA is set");
    setenv("LF_GEMM", "own", 1);
    tap_str(lf_cpu_gemm_algorithm(&any), "own", "LF_GEMM=own");
}

#else

static const char *const form_name[LF_MM_FORMS] = {
    "big", "small", "split", "rows", "wgmma big", "wgmma split", "wgmma rows", "wgmma rows split"};

static bool is_wgmma(int form)
{
    return form >= LF_MM_FORM_WG_BIG;
}

/* A GPU need not have what those forms are made of. */
static bool can_wgmma(lf_queue *q)
{
    return q->dev->sm == 90 && lf_cu_has(q->dev, LF_CU_FN_gemm_wg_bf16_nt);
}

/* Every form that fits, against the reference, and all bit for bit. How many forms ran, a
 * bit each. */
static unsigned forms(lf_queue *q, uint8_t ab, int tr, int64_t m, int64_t n, int64_t kk)
{
    const struct lf_kernels *k = op_kernels(0);
    struct gcase t = {.mode = LF_INVARIANT,
                      .m = m,
                      .n = n,
                      .k = kk,
                      .ta = tr & 1,
                      .tb = tr & 2,
                      .ab = ab,
                      .bt = ab,
                      .bias = true,
                      .act = LF_ACT_SILU,
                      .pre = true,
                      .residual = true,
                      .ct = ab,
                      .pad = (tr == 1 ? m : kk) % 8 ? 1 : 8};
    struct gdata d;
    setup(&d, &t, k, q);
    op_free(&d.work);
    d.work = op_alloc(d.g.work_bytes = lf_cu_gemm_split_bytes(&d.g));
    d.g.work = d.work.p;
    reference(&d, &t, NULL);
    const size_t bytes = (size_t)(t.m * t.n) * lf_dtype_size((enum lf_dtype)t.ct);
    void *first[2] = {0}, *first_pre[2] = {0};
    const struct lf_k_gemm none = {.n = 1, .k = 1, .lda = 1, .ldb = 1, .ldc = 1};
    unsigned ran = 0;
    for (int f = 0; f < LF_MM_FORMS; f++) {
        const int family = is_wgmma(f);
        if (!lf_cu_gemm_form_fits(&d.g, (enum lf_mm_form)f) || (family && !can_wgmma(q)))
            continue;
        ran |= 1u << f;
        memset(d.c.p, 0, d.c.bytes);
        memset(d.pre.p, 0, d.pre.bytes);
        bool ok = lf_cu_gemm_form_run(q, &d.g, (enum lf_mm_form)f) == LF_K_OK;
        ok = k->gemm.run(q, &none) == LF_K_OK && ok; /* waits */
        void *c = dense(d.c.p, t.m, t.n, d.g.ldc, t.ct),
             *pre = dense(d.pre.p, t.m, t.n, d.g.ldpre, t.ct);
        if (!first[family]) {
            struct op_diff diff =
                op_compare(pre, t.ct, d.want_pre, d.scale, t.m * t.n, tolerance(&t));
            ok = ok && diff.bad < 0;
            first[family] = c;
            first_pre[family] = pre;
        } else {
            ok = ok && !memcmp(first[family], c, bytes) && !memcmp(first_pre[family], pre, bytes);
            free(c), free(pre);
        }
        tap_ok(ok && op_guards_intact(&d.c) && op_guards_intact(&d.pre) &&
                   op_guards_intact(&d.work),
               "type %d ta %d tb %d m %lld n %lld k %lld: the %s form has the bits of the first",
               ab, t.ta, t.tb, (long long)m, (long long)n, (long long)kk, form_name[f]);
    }
    if (first[1]) {
        const bool same =
            !memcmp(first[0], first[1], bytes) && !memcmp(first_pre[0], first_pre[1], bytes);
        tap_ok(same, "mma and wgmma give the same bits");
    }
    for (int f = 0; f < 2; f++)
        free(first[f]), free(first_pre[f]);
    teardown(&d);
    return ran;
}

/* Products in mode LF_FAST; how many are wrong. */
static int library_cases(const struct lf_kernels *k, lf_queue *q)
{
    int bad = 0;
    for (int i = 0; i < 96; i++) {
        struct gcase t = {.m = 20 + i % 5,
                          .n = 33,
                          .k = 70 + i % 7,
                          .ta = i & 1,
                          .tb = i & 2,
                          .pad = i % 3,
                          .mode = LF_FAST};
        t.ab = (uint8_t)(i % 3);
        t.ct = (uint8_t)(i % 5 ? i % 3 : 0);
        t.bt = t.ct;
        t.accumulate = i / 4 % 4 == 1 && t.ct == LF_F32;
        t.bias = i / 4 % 4 == 2;
        t.pre = i / 16 % 3 == 1 && !t.accumulate;
        t.act = (uint8_t)(i / 16 % 3 && !t.accumulate ? i % 6 : 0);
        t.residual = i % 7 == 3 && !t.accumulate;
        t.residual_is_c = t.residual && i % 2;
        bad += !run_case(k, q, &t, false);
    }
    return bad;
}

/* An algorithm is for the alignment of its bias too, and gets no workspace that the library does
 * not take. */
static void alignments(const struct lf_kernels *k, lf_queue *q)
{
    const struct gcase t = {
        .m = 40, .n = 48, .k = 64, .tb = true, .bias = true, .bt = LF_F32, .mode = LF_FAST};
    const int before = lf_emu_blaslt_counts(false).products;
    struct op_buf b = op_random(t.n + 16, LF_F32, 77, 1), w = op_alloc(1 << 16);
    struct gdata d;
    bool ok = true;
    setup(&d, &t, k, q);
    for (int i = 0; i < 4; i++) {
        d.g.bias = (const float *)b.p + (i & 1);
        d.g.work = (char *)w.p + (i & 2 ? 16 : 0);
        d.g.work_bytes = 1 << 15;
        ok = ok && k->gemm.run(q, &d.g) == LF_K_OK;
    }
    tap_ok(ok && lf_emu_blaslt_counts(false).products == before + 4,
           "a bias and a workspace of any alignment");
    q->status = 0;
    teardown(&d);
    op_free(&b), op_free(&w);
}

/* A product that has not run before asks for its algorithm, which must not happen in a capture. */
static void captured_product(const struct lf_kernels *k, lf_queue *q)
{
    const struct gcase t = {.m = 40, .n = 80, .k = 96, .tb = true, .mode = LF_FAST};
    const struct lf_cu *cu = &q->dev->cu;
    lf_cu_graph graph = NULL;
    struct gdata d;
    int end[2];
    setup(&d, &t, k, q);
    for (int ran = 0; ran < 2; ran++) {
        if (ran)
            k->gemm.run(q, &d.g);
        cu->StreamBeginCapture(q->stream, LF_CU_CAPTURE_THREAD_LOCAL);
        lf_cuda_kernels.gemm.run(q, &d.g); /* k waits for it */
        end[ran] = cu->StreamEndCapture(q->stream, &graph);
        q->status = 0;
        struct lf_lt lt;
        lf_emu_blaslt(&lt);
        lf_blaslt_use(q->dev, &lt); /* it has chosen nothing again */
    }
    if (graph)
        cu->GraphDestroy(graph);
    tap_ok(end[0] == LF_CU_CAPTURE_INVALIDATED && end[1] == 0,
           "a product is captured when it has run before (%d, %d)", end[0], end[1]);
    teardown(&d);
}

/* What the library is slow at, compute capability 9.0 does itself: rows of no whole number of 16
 * bytes. */
static void uneven(const struct lf_kernels *k, lf_queue *q)
{
    const struct gcase even = {
        .m = 40, .n = 48, .k = 64, .tb = true, .ab = LF_BF16, .ct = LF_F32, .mode = LF_FAST};
    struct gcase odd = even;
    odd.n = 50;
    const bool on = op_wgmma(true);
    const int before = lf_emu_blaslt_counts(false).products;
    const bool ran = run_case(k, q, &odd, false);
    const int own = lf_emu_blaslt_counts(false).products;
    tap_ok(on && ran && own == before && run_case(k, q, &even, false) &&
               lf_emu_blaslt_counts(false).products == own + 1,
           "50 columns by our own kernel, 48 by the library");
    op_wgmma(false);
}

/* Mode LF_FAST through the real library on a GPU, else the emulated one: algorithms asked for once,
 * our own product where it has none. */
static void blaslt(const struct lf_kernels *k, lf_queue *q)
{
    struct lf_lt lt;
    if (op_on_gpu()) {
        const bool there = strcmp(lf_cuda_gemm_algorithm(q->dev, LF_FAST), "own") != 0;
        tap_ok(!there || library_cases(k, q) == 0, "products with %s%s",
               lf_cuda_gemm_algorithm(q->dev, LF_FAST), there ? "" : " # SKIP no cuBLASLt");
        return;
    }
    lf_emu_blaslt(&lt);
    bool ok = lf_blaslt_use(q->dev, &lt) == LF_K_OK;
    tap_str(lf_cuda_gemm_algorithm(q->dev, LF_FAST), "cublasLt 130100",
            "the algorithm is named with its version");
    tap_str(lf_cuda_gemm_algorithm(q->dev, LF_INVARIANT), "own", "invariant products are our own");
    int bad = library_cases(k, q);
    const struct lf_emu_blaslt_counts n = lf_emu_blaslt_counts(false);
    tap_ok(ok && bad == 0 && n.products > 80 && n.products < 96,
           "%d of 96 products by the library, %d wrong", n.products, bad);
    alignments(k, q);
    uneven(k, q);
    captured_product(k, q);
    struct gcase t = {.m = 40, .n = 33, .k = 70, .tb = true, .mode = LF_FAST};
    bad = !run_case(k, q, &t, false);
    const int asked = lf_emu_blaslt_counts(false).asked;
    struct gdata d;
    setup(&d, &t, k, q);
    ok = k->gemm.run(q, &d.g) == LF_K_OK && k->gemm.run(q, &d.g) == LF_K_OK;
    tap_ok(ok && !bad && lf_emu_blaslt_counts(false).asked <= asked + 1,
           "an algorithm is asked for once");
    lf_emu_blaslt_counts(true); /* from now on it refuses */
    ok = k->gemm.run(q, &d.g) == LF_K_EDEVICE && q->what && strcmp(q->what, "cublasLtMatmul") == 0;
    tap_ok(ok, "a product that it refuses to run is named");
    q->status = 0;
    ok = lf_blaslt_use(q->dev, &lt) == LF_K_OK && run_case(k, q, &t, false);
    tap_ok(ok, "without an algorithm of it, our own product runs");
    teardown(&d);
    tap_ok(lf_blaslt_use(q->dev, NULL) == LF_K_OK && run_case(k, q, &t, false) &&
               !strcmp(lf_cuda_gemm_algorithm(q->dev, LF_FAST), "own"),
           "without the library too");
}

/* The forms of gemm_wgmma.cu in every layout: edges in each direction, several chunks, more tiles
 * than multiprocessors (4 here). */
static void wgmma_forms(lf_queue *q)
{
    static const struct {
        int tr;
        int64_t m, n, k;
        unsigned forms; /* that must have run, of LF_MM_FORM_WG_BIG on */
    } cases[] = {{2, 13, 150, 1112, 15}, {2, 1, 8, 8, 15},      {2, 37, 70, 1032, 15},
                 {2, 64, 64, 520, 15},   {2, 150, 200, 600, 3}, {2, 300, 400, 72, 3},
                 {0, 150, 200, 1040, 3}, {1, 136, 200, 83, 3},  {1, 8, 392, 1100, 3},
                 {3, 72, 40, 600, 3}};
    if (!can_wgmma(q)) {
        tap_skip(1, "no compute capability 9.0, or no code for it");
        return;
    }
    for (uint8_t ab = LF_BF16; ab <= LF_F16; ab++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const unsigned ran = forms(q, ab, cases[i].tr, cases[i].m, cases[i].n, cases[i].k);
            tap_ok(ran >> LF_MM_FORM_WG_BIG == cases[i].forms, "and all of its forms ran");
        }
}

/* What the family leaves to the other: by K and alignment, never by the number of rows. */
static void wgmma_takes(void)
{
    static const unsigned char at[64] __attribute__((aligned(16)));
    const struct lf_k_gemm g = {.m = 5,
                                .n = 7,
                                .k = 64,
                                .a = at,
                                .b = at,
                                .lda = 64,
                                .ldb = 64,
                                .ldc = 7,
                                .tb = true,
                                .ab_type = LF_BF16};
    struct lf_k_gemm x = g;
    bool ok = lf_cu_wgmma_takes(&g);
    x.ab_type = LF_F32;
    ok = ok && !lf_cu_wgmma_takes(&x);
    x = g;
    x.k = 60; /* rows are 64 apart */
    ok = ok && lf_cu_wgmma_takes(&x);
    x = g;
    x.a = at + 2;
    ok = ok && !lf_cu_wgmma_takes(&x);
    x = g;
    x.ldb = 68;
    ok = ok && !lf_cu_wgmma_takes(&x);
    x = g;
    x.ta = true;
    x.tb = false;
    x.k = 61; /* k is nowhere along a row */
    ok = ok && lf_cu_wgmma_takes(&x);
    tap_ok(ok, "the wgmma family takes 16-bit products whose rows start at multiples of 16 bytes");
    x = g;
    x.m = 1;
    x.n = 1536;
    const bool few = lf_cu_wgmma_form(&x) == LF_MM_FORM_ROWS;
    x.n = 22016;
    tap_ok(few && lf_cu_wgmma_form(&x) == LF_MM_FORM_WG_ROWS,
           "one row by 1536 columns goes to gemm.cu, by 22016 not");
}

/* LF_GEMM_CUDA: the words, their errors, and products as callers ask for them. */
static void wgmma_family(const struct lf_kernels *k, lf_queue *q)
{
    struct lf_cu_device *d = q->dev;
    char why[200] = "";
    setenv("LF_GEMM_CUDA", "tensor", 1);
    tap_ok(lf_cu_wgmma_open(d, why, sizeof why) == LF_K_EDEVICE &&
               strstr(why, "one of mma, wgmma") && !d->wgmma,
           "an unknown word: %s", why);
    setenv("LF_GEMM_CUDA", "mma", 1);
    tap_ok(lf_cu_wgmma_open(d, why, sizeof why) == LF_K_OK && !d->wgmma, "LF_GEMM_CUDA=mma");
    setenv("LF_GEMM_CUDA", "wgmma", 1);
    const int sm = d->sm;
    d->sm = 80;
    tap_ok(lf_cu_wgmma_open(d, why, sizeof why) == LF_K_EDEVICE &&
               strstr(why, "this GPU has 8.0") && !d->wgmma,
           "another GPU: %s", why);
    d->sm = sm;
    if (can_wgmma(q)) {
        tap_ok(lf_cu_wgmma_open(d, why, sizeof why) == LF_K_OK && d->wgmma, "LF_GEMM_CUDA=wgmma");
        tap_str(lf_cuda_gemm_algorithm(d, LF_INVARIANT), "own wgmma", "the algorithm is named");
        many(k, q);
        bitwise(k, LF_BF16, 160, 600, false);
        bitwise(k, LF_F16, 72, 1112, false);
        large(k, q);
    }
    unsetenv("LF_GEMM_CUDA");
    tap_ok(lf_cu_wgmma_open(d, why, sizeof why) == LF_K_OK && d->wgmma == can_wgmma(q),
           "unset: what this GPU has");
    op_wgmma(false);
}

/* Rows of a large product, which big tiles compute, by themselves: the rows forms, and split
 * ones. */
static void wgmma_rows(const struct lf_kernels *k, lf_queue *q)
{
    struct gcase t = {.mode = LF_INVARIANT,
                      .m = 140,
                      .n = 200,
                      .k = 1096,
                      .tb = true,
                      .ab = LF_BF16,
                      .ct = LF_F32};
    struct gdata d;
    if (!can_wgmma(q))
        return;
    q->dev->wgmma = true;
    setup(&d, &t, k, q);
    bool ok = lf_cu_gemm_form_run(q, &d.g, LF_MM_FORM_WG_BIG) == LF_K_OK &&
              k->gemm.run(q, &d.g) == LF_K_OK;
    float *all = dense(d.c.p, t.m, t.n, d.g.ldc, LF_F32);
    for (int64_t m = 1; m <= 80; m += m < 15 ? 7 : 32) {
        struct lf_k_gemm g = d.g;
        g.m = m;
        g.a = (const char *)d.a.p + (size_t)(50 * g.lda) * 2;
        for (int split = 0; split < 2; split++) {
            g.work = split ? d.work.p : NULL;
            g.work_bytes = split ? d.work.bytes : 0;
            memset(d.c.p, 0, d.c.bytes);
            ok = ok && k->gemm.run(q, &g) == LF_K_OK &&
                 !memcmp(all + 50 * t.n, d.c.p, (size_t)(m * t.n) * 4);
        }
    }
    tap_ok(ok, "wgmma: rows alone, with and without workspace, have the bits of the rows of a "
               "large product");
    q->dev->wgmma = false;
    free(all);
    teardown(&d);
}

static void all_forms(lf_queue *q)
{
    for (uint8_t ab = LF_F32; ab <= LF_F16; ab++) {
        forms(q, ab, 2, 13, 150, 1112);
        forms(q, ab, 2, 70, 150, 531);
        forms(q, ab, 0, 70, 150, 536);
        forms(q, ab, 1, 136, 150, 80);
        forms(q, ab, 3, 33, 150, 600);
    }
    forms(q, LF_BF16, 2, 16, 150, 4600); /* more chunks than warps */
    forms(q, LF_F16, 2, 3, 150, 40);
}
#endif

static void refusals(const struct lf_kernels *k)
{
    struct lf_k_gemm g = {.m = 4, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4};
    bool ok = k->gemm.check(&g) == LF_K_OK;
    struct lf_k_gemm b = g;
    b.lda = 3;
    ok = ok && k->gemm.check(&b) == LF_K_EINVAL;
    b = g;
    b.accumulate = true;
    b.c_type = LF_BF16;
    ok = ok && k->gemm.check(&b) == LF_K_EINVAL;
    b = g;
    b.ab_type = PANELS ? LF_F16 : LF_I32;
    ok = ok && k->gemm.check(&b) == LF_K_EINVAL;
    b = g;
    b.b_packed = &b;
    ok = ok && k->gemm.check(&b) == (PANELS ? LF_K_OK : LF_K_EINVAL);
    tap_ok(ok, "%s: check refuses bad strides, bf16 accumulation, other types", k->family);
}

int main(void)
{
    for (int i = 0; i < OP_BACKENDS; i++) {
        const struct lf_kernels *k = op_kernels(i);
        if (!k)
            continue;
        lf_queue *q = op_queue_create(2);
        TAP(2, many(k, q));
        for (int ab = LF_F32; ab <= OP_LAST_FLOAT; ab++) {
            TAP(1, bitwise(k, (uint8_t)ab, 77, 53, false));
            TAP(1, bitwise(k, (uint8_t)ab, 160, PANELS ? 1500 : 600, false));
            TAP(1, bitwise(k, (uint8_t)ab, 33, PANELS ? 2300 : 1100, true));
        }
        TAP(1, large(k, q));
        TAP(1, refusals(k));
#ifdef OP_CUDA
        /* A real GPU may have fewer forms, and may give the two families other bits. */
        TAP_MIN(op_on_gpu() ? 17 : 73, all_forms(q));
        TAP_MIN(op_on_gpu() ? 1 : 158, wgmma_forms(q));
        TAP(2, wgmma_takes());
        TAP(can_wgmma(q) ? 11 : 4, wgmma_family(k, q));
        TAP(can_wgmma(q), wgmma_rows(k, q));
        TAP(op_on_gpu() ? 1 : 10, blaslt(k, q));
#else
        TAP(1, pack_rounds(k, q));
        TAP(2, library(k, q));
#endif
        op_queue_destroy(q);
    }
    return tap_done();
}
