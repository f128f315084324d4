/* SPDX-License-Identifier: Apache-2.0
 *
 * altup_mix, match_rms and gauss_topk against their formulas in f64, and their gradients against
 * central differences of these, in every storage type, with gaps between rows; threads bit for bit.
 */
#include "config.h"

#include <stdio.h>

#include "tests/op/op_test.h"

static lf_queue *queue[4];

enum { C = 37, GAP = 3, EPS_PART = 1 }; /* the part whose squares are below eps */
static const float eps = 1e-5f, cut = 0.7f;

/* Buffers of one call: operands, results, and their values in f64 without gaps. */
struct rows {
    int64_t rows, cols;
    int type;
    struct op_buf b;
};

static int64_t ld(const struct rows *r)
{
    return r->cols + GAP;
}

static struct rows random_rows(int64_t rows, int64_t cols, int type, uint64_t seed, double scale)
{
    return (struct rows){rows, cols, type, op_random(rows * (cols + GAP), type, seed, scale)};
}

static struct rows blank_rows(int64_t rows, int64_t cols, int type)
{
    return (struct rows){
        rows, cols, type,
        op_alloc((size_t)(rows * (cols + GAP)) * lf_dtype_size((enum lf_dtype)type))};
}

/* f64 values [rows, cols]; the caller frees them. */
static double *values(const struct rows *r)
{
    double *v = calloc((size_t)(r->rows * r->cols) + 1, sizeof *v);
    for (int64_t i = 0; i < r->rows * r->cols; i++)
        v[i] = op_get(r->b.p, i / r->cols * ld(r) + i % r->cols, r->type);
    return v;
}

/* Have two the same values, whatever lies between their rows? */
static bool same(const struct rows *a, const struct rows *b)
{
    const size_t size = lf_dtype_size((enum lf_dtype)a->type);
    for (int64_t r = 0; r < a->rows; r++)
        if (memcmp((const char *)a->b.p + (size_t)(r * ld(a)) * size,
                   (const char *)b->b.p + (size_t)(r * ld(b)) * size, (size_t)a->cols * size) != 0)
            return false;
    return true;
}

/* Nothing outside of the rows was written. */
static bool intact(const struct rows *r)
{
    const size_t size = lf_dtype_size((enum lf_dtype)r->type);
    for (int64_t i = 0; i < r->rows * ld(r); i++)
        for (size_t k = 0; k < size && i % ld(r) >= r->cols; k++)
            if (((unsigned char *)r->b.p)[(size_t)i * size + k] != 0xA5)
                return false;
    return op_guards_intact(&r->b);
}

/* Takes `want`. scale: of the terms of an element. */
static void compare(const struct rows *r, double *want, double scale, double tol, const char *name)
{
    const int64_t n = r->rows * r->cols;
    double *got = values(r), *scales = calloc((size_t)n + 1, sizeof *scales);
    for (int64_t i = 0; i < n; i++)
        scales[i] = scale + fabs(want[i]) * (r->type == LF_F32 ? 0 : op_eps(r->type) / tol) +
                    (r->type == LF_F16 ? 0x1p-25 / tol : 0);
    op_ok(op_compare(got, LF_F64, want, scales, n, tol), name);
    if (n)
        op_prove(got, LF_F64, want, scales, n, tol, n / 2);
    else
        tap_ok(true, "%s: no element", name);
    tap_ok(intact(r), "%s: gaps and guards are as they were", name);
    free(got), free(scales), free(want);
}

/* A function of a row: y [n] of x [m] and more. */
struct of_row {
    void (*f)(const double *x, const double *more, int n, double *y);
    const double *more;
    int m, n;
};

/* dx [m] += the gradient of sum dy . f(x) by x, by central differences. */
static void differences(const struct of_row *o, const double *x, const double *dy, double *dx)
{
    const double h = 1e-6;
    double at[8 * C], y[2][8 * C];
    memcpy(at, x, (size_t)o->m * sizeof *at);
    for (int i = 0; i < o->m; i++) {
        for (int s = 0; s < 2; s++) {
            at[i] = x[i] + (s ? h : -h);
            o->f(at, o->more, o->n, y[s]);
        }
        at[i] = x[i];
        for (int j = 0; j < o->n; j++)
            dx[i] += dy[j] * (y[1][j] - y[0][j]) / (2 * h);
    }
}

/* ---- streams ---- */

struct mix {
    int from, to, first, read;
    bool weights;
    float offset;
};

static void test_mix(const struct lf_kernels *k, int64_t rows, const struct mix *m, int type)
{
    struct rows x = random_rows(rows, m->from * C, type, 1, 1),
                w = random_rows(rows, m->from * m->to, type, 2, 1),
                dy = random_rows(rows, m->to * C, type, 3, 1), y[4], dx[4], dw[4];
    double *xv = values(&x), *wv = values(&w), *dv = values(&dy),
           *wy = calloc((size_t)(rows * m->to * C) + 1, sizeof *wy),
           *wdx = calloc((size_t)(rows * m->from * C) + 1, sizeof *wdx),
           *wdw = calloc((size_t)(rows * m->from * m->to) + 1, sizeof *wdw);
    for (int64_t r = 0; r < rows; r++)
        for (int q = m->first; q < m->to; q++)
            for (int p = 0; p < m->read; p++) {
                const int64_t e = (r * m->to + q) * m->from + p;
                const double by = (double)m->offset + (m->weights ? wv[e] : 0);
                for (int c = 0; c < C; c++) {
                    const int64_t in = (r * m->from + p) * C + c, out = (r * m->to + q) * C + c;
                    wy[out] += by * xv[in];
                    wdx[in] += by * dv[out];
                    wdw[e] += dv[out] * xv[in];
                }
            }
    bool ok = true;
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = blank_rows(rows, m->to * C, type);
        dx[t] = blank_rows(rows, m->from * C, type);
        dw[t] = blank_rows(rows, m->from * m->to, type);
        struct lf_k_altup_mix f = {.rows = rows,
                                   .c = C,
                                   .ldx = ld(&x),
                                   .ldw = ld(&w),
                                   .ldy = ld(&y[t]),
                                   .x = x.b.p,
                                   .w = m->weights ? w.b.p : NULL,
                                   .y = y[t].b.p,
                                   .offset = m->offset,
                                   .from = m->from,
                                   .to = m->to,
                                   .first = m->first,
                                   .read = m->read,
                                   .x_type = (uint8_t)type};
        const struct lf_k_altup_mix_dw g = {.rows = rows,
                                            .c = C,
                                            .ldx = ld(&x),
                                            .lddy = ld(&dy),
                                            .lddw = ld(&dw[t]),
                                            .x = x.b.p,
                                            .dy = dy.b.p,
                                            .dw = dw[t].b.p,
                                            .from = m->from,
                                            .to = m->to,
                                            .first = m->first,
                                            .read = m->read,
                                            .x_type = (uint8_t)type};
        ok = ok && k->altup_mix.check(&f) == 0 && k->altup_mix.run(queue[t], &f) == 0 &&
             k->altup_mix_dw.check(&g) == 0 && k->altup_mix_dw.run(queue[t], &g) == 0;
        f.ldx = ld(&dy), f.x = dy.b.p, f.ldy = ld(&dx[t]), f.y = dx[t].b.p, f.back = true;
        ok = ok && k->altup_mix.check(&f) == 0 && k->altup_mix.run(queue[t], &f) == 0 &&
             memcmp(y[1].b.p, y[t].b.p, y[t].b.bytes) == 0 &&
             memcmp(dx[1].b.p, dx[t].b.p, dx[t].b.bytes) == 0 &&
             memcmp(dw[1].b.p, dw[t].b.p, dw[t].b.bytes) == 0;
    }
    tap_ok(ok, "altup_mix, %d to %d streams: same bits with 1 to 3 threads, %s", m->from, m->to,
           k->family);
    compare(&y[1], wy, m->from, 1e-6, "altup_mix");
    compare(&dx[1], wdx, m->to, 1e-6, "altup_mix back");
    compare(&dw[1], wdw, 3, 1e-6, "altup_mix_dw");
    for (int t = 1; t <= OP_THREADS; t++)
        op_free(&y[t].b), op_free(&dx[t].b), op_free(&dw[t].b);
    op_free(&x.b), op_free(&w.b), op_free(&dy.b), free(xv), free(wv), free(dv);
}

/* ---- magnitudes ---- */

static double mean_square(const double *x)
{
    double s = 0;
    for (int c = 0; c < C; c++)
        s += x[c] * x[c] / C;
    return s;
}

/* x of all parts; more: what they are like. */
static void matched(const double *x, const double *like, int n, double *y)
{
    for (int i = 0; i < n / C; i++)
        for (int c = 0; c < C; c++)
            y[i * C + c] = x[i * C + c] * sqrt(mean_square(like)) /
                           sqrt(fmax(mean_square(x + i * C), (double)eps));
}

/* The other way round: a function of what they are like. */
static void matched_to(const double *like, const double *x, int n, double *y)
{
    matched(x, like, n, y);
}

static void test_match(const struct lf_kernels *k, int64_t rows, int parts, int type)
{
    const int n = parts * C;
    struct rows x = random_rows(rows, n, type, 4, 1), like = random_rows(rows, C, type, 5, 2),
                dy = random_rows(rows, n, type, 6, 1), y[4], dx[4], dl[4];
    for (int64_t r = 0; r < rows && parts > EPS_PART; r += 2)
        for (int c = 0; c < C; c++)
            op_set(x.b.p, r * ld(&x) + EPS_PART * C + c, type, c % 2 ? 2e-3 : -1e-3);
    for (int c = 0; c < C && rows > 2; c++) /* a row that is like nothing */
        op_set(like.b.p, 2 * ld(&like) + c, type, 0);
    double *xv = values(&x), *lv = values(&like), *dv = values(&dy),
           *wy = calloc((size_t)(rows * n) + 1, sizeof *wy),
           *wdx = calloc((size_t)(rows * n) + 1, sizeof *wdx),
           *wdl = calloc((size_t)(rows * C) + 1, sizeof *wdl);
    for (int64_t r = 0; r < rows; r++) {
        const struct of_row by_x = {matched, lv + r * C, n, n},
                            by_like = {matched_to, xv + r * n, C, n};
        matched(xv + r * n, lv + r * C, n, wy + r * n);
        differences(&by_x, xv + r * n, dv + r * n, wdx + r * n);
        if (r != 2)
            differences(&by_like, lv + r * C, dv + r * n, wdl + r * C);
    }
    bool ok = true;
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = blank_rows(rows, n, type);
        dx[t] = blank_rows(rows, n, type);
        dl[t] = blank_rows(rows, C, type);
        const struct lf_k_match_rms_fwd f = {.rows = rows,
                                             .c = C,
                                             .ldx = ld(&x),
                                             .ldlike = ld(&like),
                                             .ldy = ld(&y[t]),
                                             .x = x.b.p,
                                             .like = like.b.p,
                                             .y = y[t].b.p,
                                             .eps = eps,
                                             .parts = parts,
                                             .x_type = (uint8_t)type};
        struct lf_k_match_rms_bwd b = {.rows = rows,
                                       .c = C,
                                       .ldx = ld(&x),
                                       .ldlike = ld(&like),
                                       .lddy = ld(&dy),
                                       .lddx = ld(&dx[t]),
                                       .lddlike = ld(&dl[t]),
                                       .x = x.b.p,
                                       .like = like.b.p,
                                       .dy = dy.b.p,
                                       .dx = dx[t].b.p,
                                       .dlike = dl[t].b.p,
                                       .eps = eps,
                                       .parts = parts,
                                       .x_type = (uint8_t)type};
        ok = ok && k->match_rms_fwd.check(&f) == 0 && k->match_rms_fwd.run(queue[t], &f) == 0 &&
             k->match_rms_bwd.check(&b) == 0 && k->match_rms_bwd.run(queue[t], &b) == 0 &&
             memcmp(y[1].b.p, y[t].b.p, y[t].b.bytes) == 0 &&
             memcmp(dx[1].b.p, dx[t].b.p, dx[t].b.bytes) == 0 &&
             memcmp(dl[1].b.p, dl[t].b.p, dl[t].b.bytes) == 0;
        if (t == OP_THREADS) { /* in place */
            b.lddx = ld(&dy), b.dx = dy.b.p;
            ok = ok && k->match_rms_bwd.check(&b) == 0 && k->match_rms_bwd.run(queue[t], &b) == 0 &&
                 same(&dy, &dx[1]) && memcmp(dl[1].b.p, dl[t].b.p, dl[t].b.bytes) == 0;
        }
    }
    tap_ok(ok, "match_rms, %d parts: same bits with 1 to 3 threads, in place, %s", parts,
           k->family);
    compare(&y[1], wy, 2, 1e-6, "match_rms_fwd");
    compare(&dx[1], wdx, parts > EPS_PART ? 400 : 4, 1e-6, "match_rms_bwd dx");
    compare(&dl[1], wdl, 4, 1e-6, "match_rms_bwd dlike");
    for (int t = 1; t <= OP_THREADS; t++)
        op_free(&y[t].b), op_free(&dx[t].b), op_free(&dl[t].b);
    op_free(&x.b), op_free(&like.b), op_free(&dy.b), free(xv), free(lv), free(dv);
}

/* ---- cut gates ---- */

static void topped(const double *x, const double *more, int n, double *y)
{
    double mean = 0, square = 0;
    (void)more;
    for (int c = 0; c < n; c++)
        mean += x[c] / n;
    for (int c = 0; c < n; c++)
        square += (x[c] - mean) * (x[c] - mean) / n;
    for (int c = 0; c < n; c++)
        y[c] = fmax(x[c] - mean - (double)cut * sqrt(square), 0);
}

static void test_topk(const struct lf_kernels *k, int64_t rows, int c, int type)
{
    const struct of_row o = {topped, NULL, c, c};
    struct rows x = random_rows(rows, c, type, 7, 2), dy = random_rows(rows, c, type, 8, 1), y[4],
                dx[4];
    for (int i = 0; i < c && rows > 2; i++) /* a row without any deviation */
        op_set(x.b.p, 2 * ld(&x) + i, type, 0.5);
    double *xv = values(&x), *dv = values(&dy), *wy = calloc((size_t)(rows * c) + 1, sizeof *wy),
           *wdx = calloc((size_t)(rows * c) + 1, sizeof *wdx);
    for (int64_t r = 0; r < rows; r++) {
        topped(xv + r * c, NULL, c, wy + r * c);
        if (r != 2 && c > 1)
            differences(&o, xv + r * c, dv + r * c, wdx + r * c);
    }
    bool ok = true;
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = blank_rows(rows, c, type);
        dx[t] = blank_rows(rows, c, type);
        struct lf_k_gauss_topk_fwd f = {.rows = rows,
                                        .c = c,
                                        .ldx = ld(&x),
                                        .ldy = ld(&y[t]),
                                        .x = x.b.p,
                                        .y = y[t].b.p,
                                        .k = cut,
                                        .x_type = (uint8_t)type};
        struct lf_k_gauss_topk_bwd b = {.rows = rows,
                                        .c = c,
                                        .ldx = ld(&x),
                                        .lddy = ld(&dy),
                                        .lddx = ld(&dx[t]),
                                        .x = x.b.p,
                                        .dy = dy.b.p,
                                        .dx = dx[t].b.p,
                                        .k = cut,
                                        .x_type = (uint8_t)type};
        ok = ok && k->gauss_topk_fwd.check(&f) == 0 && k->gauss_topk_fwd.run(queue[t], &f) == 0 &&
             k->gauss_topk_bwd.check(&b) == 0 && k->gauss_topk_bwd.run(queue[t], &b) == 0 &&
             memcmp(y[1].b.p, y[t].b.p, y[t].b.bytes) == 0 &&
             memcmp(dx[1].b.p, dx[t].b.p, dx[t].b.bytes) == 0;
        if (t == OP_THREADS) { /* in place */
            b.lddx = ld(&dy), b.dx = dy.b.p;
            f.ldy = ld(&x), f.y = x.b.p;
            ok = ok && k->gauss_topk_bwd.check(&b) == 0 &&
                 k->gauss_topk_bwd.run(queue[t], &b) == 0 && same(&dy, &dx[1]) &&
                 k->gauss_topk_fwd.check(&f) == 0 && k->gauss_topk_fwd.run(queue[t], &f) == 0 &&
                 same(&x, &y[1]);
        }
    }
    tap_ok(ok, "gauss_topk, %d columns: same bits with 1 to 3 threads, in place, %s", c, k->family);
    compare(&y[1], wy, 4, 1e-6, "gauss_topk_fwd");
    compare(&dx[1], wdx, 8, 1e-6, "gauss_topk_bwd");
    for (int t = 1; t <= OP_THREADS; t++)
        op_free(&y[t].b), op_free(&dx[t].b);
    op_free(&x.b), op_free(&dy.b), free(xv), free(dv);
}

int main(void)
{
    static const struct mix mixes[] = {{4, 4, 0, 4, true, 0},  {1, 4, 0, 1, true, 1},
                                       {1, 4, 1, 1, false, 1}, {3, 8, 2, 2, true, 0.5f},
                                       {4, 1, 0, 1, false, 1}, {2, 1, 0, 2, false, 0.25f}};
    static const int64_t rows[] = {0, 1, 5, 70};
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int i = 0; i < OP_BACKENDS; i++) {
        const struct lf_kernels *k = op_kernels(i);
        for (int type = LF_F32; k && type <= OP_LAST_FLOAT; type++)
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
                for (size_t m = 0; m < sizeof mixes / sizeof *mixes; m++)
                    TAP(10, test_mix(k, rows[r], &mixes[m], type));
                for (int parts = 1; parts <= 3; parts += 2)
                    TAP(10, test_match(k, rows[r], parts, type));
                TAP(7, test_topk(k, rows[r], 1, type));
                TAP(7, test_topk(k, rows[r], 2 * C, type));
            }
    }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
