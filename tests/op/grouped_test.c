/* SPDX-License-Identifier: Apache-2.0
 *
 * grouped_gemm on every backend: forward, dX and dW against an f64 reference over odd shapes, empty
 * groups, one group that has everything; and bitwise against gemm of each group alone, over threads
 * and over what the other groups hold.
 */
#include "config.h"

#include <stdio.h>

#include "tests/op/op_test.h"

#ifdef OP_CUDA
static int queue_threads(const lf_queue *q)
{
    (void)q;
    return 1;
}
#else
static int queue_threads(const lf_queue *q)
{
    return lf_cpu_queue_threads(q);
}
#endif

enum { MAX_GROUPS = 40 };
struct gcase {
    int64_t n, k, groups;
    int64_t rows[MAX_GROUPS];
    int ab, ct;
    bool residual, bias;
};

static const struct gcase cases[] = {
    {5, 3, 3, {2, 0, 1}, LF_F32, LF_F32, false, false},
    {33, 17, 4, {0, 7, 0, 30}, LF_F32, LF_F32, false, true},
    {70, 65, 2, {65, 1}, LF_F32, LF_F32, true, false},
    {64, 48, 8, {0, 0, 0, 100, 0, 0, 0, 0}, LF_F32, LF_F32, false, true},
#ifdef OP_CUDA
    {70, 600, 3, {3, 130, 29}, LF_F32, LF_F32, true, false},
    {70, 600, 40, {0, 5, 0}, LF_F16, LF_F32, true, true}, /* more than 32 groups */
    {33, 17, 4, {0, 7, 1, 30}, LF_F16, LF_F16, false, false},
    {48, 136, 5, {13, 0, 300, 2, 15}, LF_F16, LF_F16, true, true},
#else
    {40,
     1300,
     3,
     {3, 300, 29},
     LF_F32,
     LF_F32,
     true,
     false}, /* several chunks of K, several blocks of rows */
    {1030, 24, 2, {20, 5}, LF_F32, LF_F32, false, true}, /* several blocks of columns */
    {600, 40, 1, {31}, LF_F32, LF_F32, false, false},
    {40, 2600, 3, {3, 30, 29}, LF_BF16, LF_BF16, false, true},
#endif
    {33, 17, 4, {0, 7, 1, 30}, LF_BF16, LF_BF16, false, false},
    {70, 65, 2, {65, 1}, LF_BF16, LF_F32, false, true},
    {48, 130, 5, {13, 0, 300, 2, 15}, LF_BF16, LF_BF16, true, false},
    {9, 9, 12, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, LF_BF16, LF_BF16, false, true},
    {16, 16, 2, {0, 0}, LF_F32, LF_F32, false, false},
};

enum form { FWD, DX, DW, FORMS };
static const char *const form_name[] = {"forward", "dx", "dw"};

struct gdata {
    struct op_buf a, b, c, res, bias, work, offsets;
    int32_t *off;   /* [MAX_GROUPS + 1] */
    int64_t m, n_c; /* rows; elements of c */
    struct lf_k_grouped_gemm g;
};

/* For dx the roles of n and k change: [m, n] times w [n, k] gives [m, k]. */
static void setup(struct gdata *d, const struct gcase *t, enum form form,
                  const struct lf_kernels *k, lf_queue *q, uint64_t seed)
{
    *d = (struct gdata){0};
    d->offsets = op_alloc((MAX_GROUPS + 1) * sizeof *d->off);
    d->off = d->offsets.p;
    d->off[0] = 0;
    for (int64_t i = 0; i < t->groups; i++)
        d->off[i + 1] = d->off[i] + (int32_t)t->rows[i];
    d->m = d->off[t->groups];
    const int64_t n = form == DX ? t->k : t->n, kk = form == DX ? t->n : t->k;
    const int ct = form == DW ? LF_F32 : t->ct;
    d->g = (struct lf_k_grouped_gemm){.m = d->m,
                                      .n = n,
                                      .k = kk,
                                      .groups = t->groups,
                                      .offsets = d->off,
                                      .dw = form == DW,
                                      .tb = form == FWD,
                                      .accumulate = false,
                                      .ab_type = (uint8_t)t->ab,
                                      .c_type = (uint8_t)ct};
    d->g.lda = (form == DW ? n : kk) + 1;
    d->g.ldb = kk + 2;
    d->g.ldc = n + 3;
    d->g.ldres = n + 1;
    d->a = op_random(d->m * d->g.lda, t->ab, seed, 1);
    d->b = form == DW ? op_random(d->m * d->g.ldb, t->ab, seed + 1, 1)
                      : op_random(t->groups * n * kk, t->ab, seed + 1, 1);
    d->n_c = form == DW ? t->groups * n * kk : d->m * d->g.ldc;
    d->c = op_random(d->n_c, ct, seed + 2, 1);
    d->g.a = d->a.p;
    d->g.b = d->b.p;
    d->g.c = d->c.p;
    if (t->residual && form != DW) {
        d->res = op_random(d->m * d->g.ldres, ct, seed + 3, 1);
        d->g.residual = d->res.p;
    }
    if (t->bias && form == FWD) {
        d->bias = op_random(t->groups * n, LF_F32, seed + 4, 1);
        d->g.bias = d->bias.p;
    }
    d->g.work_bytes = k->grouped_gemm.work(&d->g, queue_threads(q));
    d->work = op_alloc(d->g.work_bytes);
    d->g.work = d->work.p;
}

static void teardown(struct gdata *d)
{
    op_free(&d->offsets), op_free(&d->a), op_free(&d->b), op_free(&d->c), op_free(&d->res),
        op_free(&d->bias), op_free(&d->work);
}

static void reference(const struct gdata *d, const struct gcase *t, enum form form, double *want,
                      double *scale)
{
    const struct lf_k_grouped_gemm *g = &d->g;
    for (int64_t i = 0; i < d->n_c; i++) { /* what is not written keeps its value */
        want[i] = form == DW && !g->accumulate ? 0 : op_get(d->c.p, i, g->c_type);
        scale[i] = 1;
    }
    for (int64_t e = 0; e < t->groups; e++)
        for (int64_t i = form == DW ? 0 : d->off[e]; i < (form == DW ? g->n : d->off[e + 1]); i++)
            for (int64_t j = 0; j < (form == DW ? g->k : g->n); j++) {
                double s = 0, size = 1;
                int64_t from = form == DW ? d->off[e] : 0, to = form == DW ? d->off[e + 1] : g->k;
                for (int64_t x = from; x < to; x++) {
                    double p =
                        form == DW
                            ? op_get(g->a, x * g->lda + i, t->ab) *
                                  op_get(g->b, x * g->ldb + j, t->ab)
                            : op_get(g->a, i * g->lda + x, t->ab) *
                                  op_get(g->b,
                                         e * g->n * g->k + (g->tb ? j * g->k + x : x * g->n + j),
                                         t->ab);
                    s += p;
                    size += fabs(p);
                }
                int64_t o = form == DW ? (e * g->n + i) * g->k + j : i * g->ldc + j;
                if (g->bias)
                    s += (double)g->bias[e * g->n + j];
                if (g->residual)
                    s += op_get(g->residual, i * g->ldres + j, g->c_type);
                want[o] = form == DW ? want[o] + s : s;
                scale[o] = size;
            }
}

/* The same product by gemm, group after group, must have the same bits. */
static bool equals_gemm(const struct gdata *d, const struct gcase *t, enum form form,
                        const struct lf_kernels *k, lf_queue *q)
{
    const struct lf_k_grouped_gemm *g = &d->g;
    const size_t ec = lf_dtype_size((enum lf_dtype)g->c_type),
                 ea = lf_dtype_size((enum lf_dtype)t->ab);
    bool same = true;
    for (int64_t e = 0; e < t->groups; e++) {
        const int64_t r0 = d->off[e], rows = d->off[e + 1] - r0;
        if (rows == 0)
            continue;
        struct lf_k_gemm x = {
            .ab_type = g->ab_type, .c_type = g->c_type, .bias_type = LF_F32, .mode = LF_INVARIANT};
        x.m = form == DW ? g->n : rows;
        x.n = form == DW ? g->k : g->n;
        x.k = form == DW ? rows : g->k;
        x.ta = form == DW;
        x.tb = form == FWD;
        x.a = (const char *)g->a + (size_t)(r0 * g->lda) * ea;
        x.b = (const char *)g->b + (size_t)(form == DW ? r0 * g->ldb : e * g->n * g->k) * ea;
        x.lda = g->lda;
        x.ldb = form == DW ? g->ldb : form == FWD ? g->k : g->n;
        x.ldc = x.n;
        x.residual = g->residual ? (const char *)g->residual + (size_t)(r0 * g->ldres) * ec : NULL;
        x.ldres = g->ldres;
        x.bias = g->bias ? g->bias + e * g->n : NULL;
        struct op_buf c = op_alloc((size_t)(x.m * x.n) * ec),
                      work = op_alloc(x.work_bytes = k->gemm.work(&x, queue_threads(q)));
        x.c = c.p;
        x.work = work.p;
        if (k->gemm.run(q, &x))
            tap_bail("gemm");
        for (int64_t i = 0; i < x.m && same; i++) {
            const int64_t at = form == DW ? (e * g->n + i) * g->k : (r0 + i) * g->ldc;
            same = !memcmp((char *)c.p + (size_t)(i * x.n) * ec, (char *)g->c + (size_t)at * ec,
                           (size_t)x.n * ec);
        }
        op_free(&c), op_free(&work);
    }
    return same;
}

static void run(const struct lf_kernels *k, lf_queue *q, const struct lf_k_grouped_gemm *g)
{
    if (k->grouped_gemm.check(g) || k->grouped_gemm.run(q, g))
        tap_bail("grouped_gemm refuses its arguments");
}

static void test_case(const struct lf_kernels *k, lf_queue *q, const struct gcase *t,
                      enum form form)
{
    struct gdata d;
    char name[120];
    setup(&d, t, form, k, q, 5);
    const double tol = 1.5e-6;
    double *want = calloc((size_t)d.n_c + 1, sizeof *want),
           *scale = calloc((size_t)d.n_c + 1, sizeof *scale);
    snprintf(name, sizeof name, "%s %s %lld x %lld x %lld in %lld groups, %s", k->family,
             form_name[form], (long long)d.m, (long long)t->n, (long long)t->k,
             (long long)t->groups,
             t->ab == LF_BF16  ? "bf16"
             : t->ab == LF_F16 ? "f16"
                               : "f32");
    reference(&d, t, form, want, scale);
    run(k, q, &d.g);
    op_ok(op_compare(d.c.p, d.g.c_type, want, scale, d.n_c, tol), name);
    if (d.n_c && (form == DW || d.m))
        op_prove(d.c.p, d.g.c_type, want, scale, d.n_c, tol, 0);
    tap_ok(equals_gemm(&d, t, form, k, q), "the bits of gemm of each group");
    tap_ok(op_guards_intact(&d.c) && op_guards_intact(&d.work), "nothing outside is written");
    if (form == DW) {
        d.g.accumulate = true;
        reference(&d, t, form, want, scale);
        run(k, q, &d.g);
        op_ok(op_compare(d.c.p, LF_F32, want, scale, d.n_c, tol), "added to what was there");
    }
    free(want), free(scale);
    teardown(&d);
}

/* Rows of group 1 keep their bits when the other groups' rows and sizes change, and whatever the
 * threads. */
static void test_alone(const struct lf_kernels *k, int ab)
{
    const struct gcase many = {96, 200, 3, {40, 21, 90}, ab, ab, false, true},
                       few = {96, 200, 3, {0, 21, 1}, ab, ab, false, true};
    lf_queue *q3 = op_queue_create(3), *q1 = op_queue_create(1);
    struct gdata x, y;
    const size_t e = lf_dtype_size((enum lf_dtype)ab);
    setup(&x, &many, FWD, k, q3, 5);
    setup(&y, &few, FWD, k, q1, 5);
    memcpy(y.a.p, (char *)x.a.p + (size_t)(40 * x.g.lda) * e, (size_t)(21 * x.g.lda) * e);
    run(k, q3, &x.g);
    run(k, q1, &y.g);
    bool same = true;
    for (int64_t i = 0; i < 21; i++)
        same = same && !memcmp((char *)y.c.p + (size_t)(i * y.g.ldc) * e,
                               (char *)x.c.p + (size_t)((40 + i) * x.g.ldc) * e, 96 * e);
    tap_ok(same, "%s %s: a group's bits do not depend on the others or on threads", k->family,
           ab == LF_BF16  ? "bf16"
           : ab == LF_F16 ? "f16"
                          : "f32");
#ifndef OP_CUDA /* which cannot look at offsets, and needs no workspace */
    struct lf_k_grouped_gemm wrong = x.g;
    wrong.m--;
    tap_ok(k->grouped_gemm.run(q3, &wrong) == LF_K_EINVAL, "rows that no group has: refused");
    const int64_t g0 = x.g.groups - 1, line = x.g.ldc * (int64_t)e;
    const int32_t behind = x.off[g0], rest = x.off[g0 + 1] - behind;
    memset((char *)x.c.p + behind * line, 0x5a, (size_t)(rest * line));
    x.off[g0 + 1] = behind;
    run(k, q3, &x.g);
    bool kept = rest > 0;
    for (int64_t i = behind * line; i < (behind + rest) * line && kept; i++)
        kept = ((unsigned char *)x.c.p)[i] == 0x5a;
    tap_ok(kept, "rows behind the last group stay as they are");
    x.off[g0 + 1] = behind + rest;
    wrong = x.g;
    wrong.work_bytes /= 4;
    tap_ok(k->grouped_gemm.run(q3, &wrong) == LF_K_EINVAL, "too little workspace: refused");
#endif
    teardown(&x), teardown(&y);
    op_queue_destroy(q3), op_queue_destroy(q1);
}

/* Sums of each group's rows, against the formula and colsum over the group alone. */
static void test_colsum(const struct lf_kernels *k, lf_queue *q, int type)
{
    static const int64_t rows[] = {0, 300, 1, 0, 64, 35};
    enum { G = 6, N = 70, M = 400, LD = N + 3 };
    struct op_buf off = op_alloc((G + 1) * sizeof(int32_t)), dy = op_random(M * LD, type, 1, 1),
                  db = op_random(G * N, LF_F32, 2, 1), one = op_alloc(N * sizeof(float));
    int32_t *offsets = off.p;
    double want[G * N], scale[G * N];
    bool same = true;
    offsets[0] = 0;
    for (int g = 0; g < G; g++)
        offsets[g + 1] = offsets[g] + (int32_t)rows[g];
    struct lf_k_grouped_colsum a = {.m = M,
                                    .n = N,
                                    .groups = G,
                                    .ld = LD,
                                    .offsets = offsets,
                                    .dy = dy.p,
                                    .db = db.p,
                                    .dy_type = (uint8_t)type};
    for (int pass = 0; pass < 2; pass++) { /* written, then added to */
        for (int64_t i = 0; i < G * N; i++) {
            want[i] = pass ? op_get(db.p, i, LF_F32) : 0;
            scale[i] = 1;
            for (int64_t r = offsets[i / N]; r < offsets[i / N + 1]; r++) {
                want[i] += op_get(dy.p, r * LD + i % N, type);
                scale[i] += fabs(op_get(dy.p, r * LD + i % N, type));
            }
        }
        a.accumulate = pass;
        if (k->grouped_colsum.check(&a) || k->grouped_colsum.run(q, &a))
            tap_bail("grouped_colsum");
        op_ok(op_compare(db.p, LF_F32, want, scale, G * N, 1e-6),
              pass ? "grouped_colsum adds" : "grouped_colsum");
        for (int g = 0; g < G && !pass; g++) {
            struct lf_k_colsum x = {.rows = rows[g],
                                    .n = N,
                                    .ld = LD,
                                    .dy = (char *)dy.p + (size_t)(offsets[g] * LD) *
                                                             lf_dtype_size((enum lf_dtype)type),
                                    .db = one.p,
                                    .dy_type = (uint8_t)type};
            struct op_buf work = op_alloc(x.work_bytes = k->colsum.work(&x, 1));
            x.work = work.p;
            if (k->colsum.run(q, &x))
                tap_bail("colsum");
            same = same && !memcmp(one.p, (float *)db.p + g * N, N * sizeof(float));
            op_free(&work);
        }
    }
    op_prove(db.p, LF_F32, want, scale, G * N, 1e-6, 0);
    tap_ok(same && op_guards_intact(&db), "grouped_colsum has the bits of colsum of each group");
    op_free(&off), op_free(&dy), op_free(&db), op_free(&one);
}

static void test_cases(const struct lf_kernels *k, lf_queue *q)
{
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        for (int form = 0; form < FORMS; form++)
            test_case(k, q, &cases[c], (enum form)form);
}

int main(void)
{
    lf_queue *q = op_queue_create(2);
    for (int i = 0; i < OP_BACKENDS; i++) {
        const struct lf_kernels *k = op_kernels(i);
        if (!k)
            continue;
        TAP(167, test_cases(k, q));
        for (int ab = LF_F32; ab <= OP_LAST_FLOAT; ab++) {
            TAP(OP_BACKENDS > 1 ? 4 : 1, test_alone(k, ab));
            TAP(4, test_colsum(k, q, ab));
        }
    }
    op_queue_destroy(q);
    return tap_done();
}
