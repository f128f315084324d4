/* SPDX-License-Identifier: Apache-2.0
 *
 * norm_fwd and norm_bwd (LayerNorm, RMSNorm, fused residual sum, heads inside rows, with parameters
 * of their own or of all) against the
 * formulas in f64; the backward against its analytic form and against finite differences of the
 * forward; threads bit for bit; rows in two parts, whose sums are added, as ranks have them.
 */
#include "config.h"

#include "tests/op/op_test.h"

struct ncase {
    int64_t rows, heads, c;
    bool layer, delta, bias, weight, dres, accumulate;
    uint8_t y_type; /* relative to x: 0 same, 1 the other type */
    float w_offset;
    bool each, affine;
};
static const struct ncase cases[] = {
    {0, 1, 8, true, false, true, true, false, false, 0, 0, false, false},
    {1, 1, 1, false, false, false, true, false, false, 0, 0, false, false},
    {3, 1, 17, true, true, true, true, true, false, 0, 0, false, false},
    {5, 3, 33, false, false, false, true, false, true, 0, 0, false, false},
    {40, 1, 64, false, true, false, true, true, true, 1, 1.0f, false, false},
    {9, 2, 70, true, false, true, false, true, false, 1, 0, false, false},
    {333, 1, 259, true, true, true, true, true, true, 0, 0, false, false},
    {333, 2, 128, false, true, false, true, true, false, 0, 0, false, false},
    {6, 1, 1030, true, false, true, true, false, false, 0, 0, false, false},
    {3, 1, 4100, false, true, false, true, true, true, 0, 0, false, false},
    {0, 2, 8, false, false, false, true, false, false, 0, 0, true, false},
    {1, 4, 1, true, false, true, true, false, false, 0, 0, true, false},
    {5, 3, 33, true, false, true, true, false, true, 0, 0, true, false},
    {333, 2, 128, false, true, false, true, true, false, 0, 1.0f, true, false},
    {40, 4, 17, true, true, true, false, true, true, 1, 0, true, false},
    {17, 2, 1030, false, false, false, true, false, false, 1, 0, true, false},
    {2, 2, 4100, true, false, true, true, false, true, 0, 0, true, false},
    {7, 1, 33, true, false, true, true, false, true, 0, 0, false, true},
    {333, 1, 259, true, false, true, true, true, false, 1, 0, false, true},
};
enum { CASES = sizeof cases / sizeof *cases, GAP = 8, WIDTH_CAP = 4200 };
static lf_queue *queue[4];

/* Elements of w and b, and where those of row r (t * heads + h) begin. */
static int64_t weights(const struct ncase *n)
{
    return n->each ? n->heads * n->c : n->c;
}
static int64_t own(const struct ncase *n, int64_t r)
{
    return n->each ? r % n->heads * n->c : 0;
}

/* y of one row of s. */
static void ref_row(const struct ncase *n, const double *s, const double *w, const double *b,
                    double *y, double *mean, double *rstd)
{
    double m = 0, v = 0;
    for (int64_t i = 0; i < n->c; i++)
        m += s[i];
    m = n->layer && !n->affine ? m / (double)n->c : 0;
    for (int64_t i = 0; i < n->c; i++)
        v += (s[i] - m) * (s[i] - m);
    *mean = m;
    *rstd = n->affine ? 1 : 1 / sqrt(v / (double)n->c + 1e-5);
    for (int64_t i = 0; i < n->c; i++)
        y[i] = (s[i] - m) * *rstd * (n->weight ? w[i] + (double)n->w_offset : 1) +
               (n->bias ? b[i] : 0);
}

struct ndata {
    int64_t total, width, ld;
    int xt, yt;
    struct op_buf x, delta, w, b, dy, dres;
    double *s, *y, *mean, *rstd, *wv, *bv, *dyv, *dx, *dw, *db, *adw, *adx;
};

static double *doubles(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

static void ref_backward(const struct ncase *n, struct ndata *t)
{
    for (int64_t r = 0; r < n->rows * n->heads; r++) {
        const double *s = t->s + r * n->c, *dy = t->dyv + r * n->c, *wv = t->wv + own(n, r);
        double *dw = t->dw + own(n, r), *adw = t->adw + own(n, r), *db = t->db + own(n, r);
        double mg = 0, mgx = 0, amg = 0;
        for (int64_t i = 0; i < n->c; i++) {
            double xh = (s[i] - t->mean[r]) * t->rstd[r],
                   g = dy[i] * (n->weight ? wv[i] + (double)n->w_offset : 1);
            mg += g / (double)n->c;
            mgx += g * xh / (double)n->c;
            amg += fabs(g) * (1 + fabs(xh)) / (double)n->c;
            dw[i] += dy[i] * xh;
            adw[i] += fabs(dy[i]) * (1 + fabs(xh));
            db[i] += dy[i];
        }
        for (int64_t i = 0; i < n->c; i++) {
            double xh = (s[i] - t->mean[r]) * t->rstd[r],
                   g = dy[i] * (n->weight ? wv[i] + (double)n->w_offset : 1);
            double res =
                n->dres ? op_get(t->dres.p, r / n->heads * t->ld + r % n->heads * n->c + i, t->xt)
                        : 0;
            t->dx[r * n->c + i] =
                n->affine ? g + res : t->rstd[r] * (g - (n->layer ? mg : 0) - xh * mgx) + res;
            t->adx[r * n->c + i] = t->rstd[r] * (fabs(g) + amg * (1 + fabs(xh))) + fabs(res);
        }
    }
}

static struct ndata data_make(const struct ncase *n, int xt)
{
    struct ndata t = {.total = n->rows * n->heads * n->c,
                      .width = n->heads * n->c,
                      .xt = xt,
                      .yt = n->y_type ? !xt : xt};
    t.ld = t.width + GAP;
    t.x = op_random(n->rows * t.ld, xt, 1, 2.0);
    t.delta = op_random(n->rows * t.ld, xt, 2, 2.0);
    t.w = op_random(weights(n), LF_F32, 3, 1.5);
    t.b = op_random(weights(n), LF_F32, 4, 1.0);
    t.dy = op_random(n->rows * t.ld, t.yt, 5, 1.0);
    t.dres = op_random(n->rows * t.ld, xt, 6, 1.0);
    double **f[] = {&t.s, &t.y, &t.dyv, &t.dx, &t.adx};
    for (size_t i = 0; i < sizeof f / sizeof *f; i++)
        *f[i] = doubles(t.total);
    t.mean = doubles(n->rows * n->heads);
    t.rstd = doubles(n->rows * n->heads);
    double **v[] = {&t.wv, &t.bv, &t.dw, &t.db, &t.adw};
    for (size_t i = 0; i < sizeof v / sizeof *v; i++)
        *v[i] = doubles(weights(n));
    for (int64_t i = 0; i < weights(n); i++) {
        t.wv[i] = op_get(t.w.p, i, LF_F32);
        t.bv[i] = op_get(t.b.p, i, LF_F32);
    }
    for (int64_t i = 0; i < t.total; i++) {
        int64_t at = i / t.width * t.ld + i % t.width;
        double s = op_get(t.x.p, at, xt) + (n->delta ? op_get(t.delta.p, at, xt) : 0);
        t.s[i] = xt == LF_BF16  ? op_from_bf16(op_to_bf16(s))
                 : xt == LF_F16 ? op_from_f16(op_to_f16(s))
                                : (double)(float)s;
        t.dyv[i] = op_get(t.dy.p, at, t.yt);
    }
    for (int64_t r = 0; r < n->rows * n->heads; r++)
        ref_row(n, t.s + r * n->c, t.wv + own(n, r), t.bv + own(n, r), t.y + r * n->c, &t.mean[r],
                &t.rstd[r]);
    ref_backward(n, &t);
    return t;
}

static void data_free(struct ndata *t)
{
    struct op_buf *b[] = {&t->x, &t->delta, &t->w, &t->b, &t->dy, &t->dres};
    double *d[] = {t->s,   t->y,  t->mean, t->rstd, t->wv,  t->bv,
                   t->dyv, t->dx, t->dw,   t->db,   t->adw, t->adx};
    for (size_t i = 0; i < sizeof b / sizeof *b; i++)
        op_free(b[i]);
    for (size_t i = 0; i < sizeof d / sizeof *d; i++)
        free(d[i]);
}

static struct op_diff rows_diff(const struct op_buf *b, const double *want, const double *scale,
                                const struct ndata *t, int type, double tol)
{
    double *got = doubles(t->total);
    for (int64_t i = 0; i < t->total; i++)
        got[i] = op_get(b->p, i / t->width * t->ld + i % t->width, type);
    double *lim = doubles(t->total);
    for (int64_t i = 0; i < t->total; i++)
        lim[i] = (scale ? scale[i] : fabs(want[i]) + 1) +
                 (type == LF_F32
                      ? 0
                      : fabs(want[i]) * op_eps(type) / tol + (type == LF_F16 ? 0x1p-25 / tol : 0));
    struct op_diff d = op_compare(got, LF_F64, want, lim, t->total, tol);
    if (!op_guards_intact(b))
        d.bad = 0;
    free(got);
    free(lim);
    return d;
}

static struct op_buf rows_blank(const struct ndata *t, int64_t rows, int type)
{
    return op_alloc((size_t)(rows * t->ld) * lf_dtype_size((enum lf_dtype)type));
}

static void test_forward(const struct lf_kernels *k, const struct ncase *n, const struct ndata *t)
{
    struct op_buf y[4], sum[4], mean[4], rstd[4];
    bool same = true, ran = true;
    for (int th = 1; th <= OP_THREADS; th++) {
        y[th] = rows_blank(t, n->rows, t->yt);
        sum[th] = rows_blank(t, n->rows, t->xt);
        mean[th] = op_alloc((size_t)(n->rows * n->heads) * 4);
        rstd[th] = op_alloc((size_t)(n->rows * n->heads) * 4);
        struct lf_k_norm_fwd a = {.rows = n->rows,
                                  .heads = n->heads,
                                  .c = n->c,
                                  .x = t->x.p,
                                  .delta = n->delta ? t->delta.p : NULL,
                                  .w = n->weight ? t->w.p : NULL,
                                  .b = n->bias ? t->b.p : NULL,
                                  .sum = sum[th].p,
                                  .y = y[th].p,
                                  .mean = mean[th].p,
                                  .rstd = rstd[th].p,
                                  .ldx = t->ld,
                                  .lddelta = t->ld,
                                  .ldsum = t->ld,
                                  .ldy = t->ld,
                                  .eps = 1e-5f,
                                  .w_offset = n->w_offset,
                                  .layer = n->layer,
                                  .affine = n->affine,
                                  .each = n->each,
                                  .x_type = (uint8_t)t->xt,
                                  .y_type = (uint8_t)t->yt,
                                  .w_type = LF_F32};
        ran = ran && k->norm_fwd.check(&a) == 0 && k->norm_fwd.run(queue[th], &a) == 0;
        same = same && memcmp(y[1].p, y[th].p, y[1].bytes) == 0 &&
               memcmp(sum[1].p, sum[th].p, sum[1].bytes) == 0 &&
               memcmp(rstd[1].p, rstd[th].p, rstd[1].bytes) == 0;
    }
    tap_ok(ran && same, "norm_fwd: same bits with 1 to 3 threads");
    op_ok(rows_diff(&y[1], t->y, NULL, t, t->yt, 4e-6), "norm_fwd y");
    if (n->delta)
        op_ok(rows_diff(&sum[1], t->s, NULL, t, t->xt, 1e-9), "norm_fwd sum");
    op_ok(op_compare(rstd[1].p, LF_F32, t->rstd, NULL, n->rows * n->heads, 2e-6), "norm_fwd rstd");
    if (n->layer)
        op_ok(op_compare(mean[1].p, LF_F32, t->mean, NULL, n->rows * n->heads, 1e-6),
              "norm_fwd mean");
    for (int th = 1; th <= OP_THREADS; th++) {
        op_free(&y[th]);
        op_free(&sum[th]);
        op_free(&mean[th]);
        op_free(&rstd[th]);
    }
}

static bool backward(const struct lf_kernels *k, const struct ncase *n, const struct ndata *t,
                     int th, struct op_buf *dx, struct op_buf *dw, struct op_buf *db)
{
    struct op_buf s = rows_blank(t, n->rows, t->xt),
                  mean = op_alloc((size_t)(n->rows * n->heads) * 4),
                  rstd = op_alloc((size_t)(n->rows * n->heads) * 4);
    for (int64_t i = 0; i < t->total; i++)
        op_set(s.p, i / t->width * t->ld + i % t->width, t->xt, t->s[i]);
    for (int64_t r = 0; r < n->rows * n->heads; r++) {
        op_set(mean.p, r, LF_F32, t->mean[r]);
        op_set(rstd.p, r, LF_F32, t->rstd[r]);
    }
    *dx = rows_blank(t, n->rows, t->xt);
    *dw = op_alloc((size_t)weights(n) * 4);
    *db = op_alloc((size_t)weights(n) * 4);
    for (int64_t i = 0; i < weights(n); i++)
        ((float *)dw->p)[i] = ((float *)db->p)[i] = 0.5f;
    struct lf_k_norm_bwd a = {.rows = n->rows,
                              .heads = n->heads,
                              .c = n->c,
                              .x = s.p,
                              .dy = t->dy.p,
                              .dres = n->dres ? t->dres.p : NULL,
                              .w = n->weight ? t->w.p : NULL,
                              .mean = n->layer ? mean.p : NULL,
                              .rstd = rstd.p,
                              .dx = dx->p,
                              .dw = dw->p,
                              .db = db->p,
                              .ldx = t->ld,
                              .lddy = t->ld,
                              .lddres = t->ld,
                              .lddx = t->ld,
                              .w_offset = n->w_offset,
                              .layer = n->layer,
                              .affine = n->affine,
                              .each = n->each,
                              .accumulate = n->accumulate,
                              .x_type = (uint8_t)t->xt,
                              .dy_type = (uint8_t)t->yt,
                              .w_type = LF_F32};
    a.work_bytes = k->norm_bwd.work(&a, th);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    bool ok = k->norm_bwd.check(&a) == 0 && k->norm_bwd.run(queue[th], &a) == 0 &&
              op_guards_intact(&work) && op_guards_intact(dw) && op_guards_intact(db);
    op_free(&work);
    op_free(&s);
    op_free(&mean);
    op_free(&rstd);
    return ok;
}

/* Derivative of sum dy * y (+ dres * s) with respect to s[i], numerically. */
static double numeric(const struct ncase *n, const struct ndata *t, int64_t i)
{
    const int64_t r = i / n->c, c = i % n->c;
    double s[WIDTH_CAP], y[WIDTH_CAP], m, rs, side[2];
    const double h = 1e-5;
    for (int k = 0; k < 2; k++) {
        memcpy(s, t->s + r * n->c, (size_t)n->c * sizeof *s);
        s[c] += k ? h : -h;
        ref_row(n, s, t->wv + own(n, r), t->bv + own(n, r), y, &m, &rs);
        side[k] = 0;
        for (int64_t j = 0; j < n->c; j++)
            side[k] += t->dyv[r * n->c + j] * y[j];
    }
    return (side[1] - side[0]) / (2 * h) +
           (n->dres ? op_get(t->dres.p, r / n->heads * t->ld + r % n->heads * n->c + c, t->xt) : 0);
}

static void test_backward(const struct lf_kernels *k, const struct ncase *n, const struct ndata *t)
{
    struct op_buf dx[4], dw[4], db[4];
    bool same = true, ran = true;
    for (int th = 1; th <= OP_THREADS; th++) {
        ran = ran && backward(k, n, t, th, &dx[th], &dw[th], &db[th]);
        same = same && memcmp(dx[1].p, dx[th].p, dx[1].bytes) == 0 &&
               memcmp(dw[1].p, dw[th].p, dw[1].bytes) == 0 &&
               memcmp(db[1].p, db[th].p, db[1].bytes) == 0;
    }
    tap_ok(ran && same, "norm_bwd: same bits with 1 to 3 threads");
    op_ok(rows_diff(&dx[1], t->dx, t->adx, t, t->xt, 4e-6), "norm_bwd dx");
    double *want = doubles(weights(n)), *wantb = doubles(weights(n)), *scale = doubles(weights(n));
    for (int64_t i = 0; i < weights(n); i++) {
        want[i] = t->dw[i] + (n->accumulate ? 0.5 : 0);
        wantb[i] = t->db[i] + (n->accumulate ? 0.5 : 0);
        scale[i] = t->adw[i] + 1;
    }
    op_ok(op_compare(dw[1].p, LF_F32, want, scale, weights(n), 4e-6), "norm_bwd dw");
    op_ok(op_compare(db[1].p, LF_F32, wantb, scale, weights(n), 4e-6), "norm_bwd db");
    op_prove(dw[1].p, LF_F32, want, scale, weights(n), 4e-6, weights(n) - 1);
    double w = 0;
    for (int64_t q = 0; q < 12 && t->total > 0 && t->xt == LF_F32; q++) {
        int64_t i = q * 7907 % t->total;
        double e =
            fabs(op_get(dx[1].p, i / t->width * t->ld + i % t->width, LF_F32) - numeric(n, t, i));
        w = tap_worse(w, e / (t->adx[i] * 1e-5 + 1e-7));
    }
    tap_ok(w <= 1, "norm_bwd agrees with finite differences (error / limit %.3f)", w);
    for (int th = 1; th <= OP_THREADS; th++) {
        op_free(&dx[th]);
        op_free(&dw[th]);
        op_free(&db[th]);
    }
    free(want);
    free(wantb);
    free(scale);
}

/* ---- rows in two parts ---- */

struct halves {
    struct op_buf s, y, mean, rstd, dx, dw, db, part[2], total_x, total;
    int64_t at[3]; /* where the parts begin and end */
};
/* The calls of a pass: what each part has of a row, until the last one takes the sums of that. */
enum call { SUMS, SQUARES, FORWARD, DOTS, BACKWARD };

static void *column(const struct op_buf *b, int64_t at, int type)
{
    return (char *)b->p + (size_t)at * lf_dtype_size((enum lf_dtype)type);
}

/* What each part has of every row, added up; a layer norm has two dots. */
static void add_halves(const struct ncase *n, const struct halves *h, enum call call)
{
    const float *a = h->part[0].p, *b = h->part[1].p;
    float *to = call == SUMS ? h->total_x.p : h->total.p;
    for (int64_t i = 0; i < n->rows * (call == DOTS ? 1 + n->layer : 1); i++)
        to[i] = a[i] + b[i];
}

static bool half_forward(const struct lf_kernels *k, const struct ncase *n, const struct ndata *t,
                         struct halves *h, enum call call, int i)
{
    const int64_t at = h->at[i];
    struct lf_k_norm_fwd a = {.rows = n->rows,
                              .heads = 1,
                              .c = h->at[i + 1] - at,
                              .x = column(&h->s, at, t->xt),
                              .ldx = t->ld,
                              .eps = 1e-5f,
                              .layer = n->layer,
                              .x_type = (uint8_t)t->xt,
                              .y_type = (uint8_t)t->yt,
                              .w_type = LF_F32,
                              .sums = call == SUMS ? h->part[i].p : NULL,
                              .squares = call == SQUARES ? h->part[i].p : NULL,
                              .total_x = n->layer && call != SUMS ? h->total_x.p : NULL,
                              .all = n->c};
    if (call == FORWARD) {
        a.w = column(&t->w, at, LF_F32);
        a.b = n->bias ? column(&t->b, at, LF_F32) : NULL;
        a.w_offset = n->w_offset;
        a.y = column(&h->y, at, t->yt);
        a.ldy = t->ld;
        a.mean = h->mean.p;
        a.rstd = h->rstd.p;
        a.total = h->total.p;
    }
    const bool ok = k->norm_fwd.check(&a) == 0 && k->norm_fwd.run(queue[OP_THREADS], &a) == 0;
    a.layer = !n->layer;
    return ok && k->norm_fwd.check(&a) != 0;
}

static bool half_backward(const struct lf_kernels *k, const struct ncase *n, const struct ndata *t,
                          struct halves *h, enum call call, int i)
{
    const int64_t at = h->at[i];
    struct lf_k_norm_bwd a = {.rows = n->rows,
                              .heads = 1,
                              .c = h->at[i + 1] - at,
                              .x = column(&h->s, at, t->xt),
                              .dy = column(&t->dy, at, t->yt),
                              .w = column(&t->w, at, LF_F32),
                              .mean = h->mean.p,
                              .rstd = h->rstd.p,
                              .ldx = t->ld,
                              .lddy = t->ld,
                              .w_offset = n->w_offset,
                              .layer = n->layer,
                              .x_type = (uint8_t)t->xt,
                              .dy_type = (uint8_t)t->yt,
                              .w_type = LF_F32,
                              .dots = call == DOTS ? h->part[i].p : NULL,
                              .dw = call == DOTS ? column(&h->dw, at, LF_F32) : NULL,
                              .db = call == DOTS ? column(&h->db, at, LF_F32) : NULL};
    if (call == BACKWARD) {
        a.dres = n->dres ? column(&t->dres, at, t->xt) : NULL;
        a.dx = column(&h->dx, at, t->xt);
        a.lddres = a.lddx = t->ld;
        a.total = h->total.p;
        a.all = n->c;
    }
    a.work_bytes = k->norm_bwd.work(&a, OP_THREADS);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    const bool ok = k->norm_bwd.check(&a) == 0 && k->norm_bwd.run(queue[OP_THREADS], &a) == 0;
    op_free(&work);
    a.heads = 2;
    return ok && k->norm_bwd.check(&a) != 0;
}

static bool halves_run(const struct lf_kernels *k, const struct ncase *n, const struct ndata *t,
                       struct halves *h, enum call call)
{
    bool ok = true;
    for (int i = 0; i < 2; i++)
        ok = ok && (call < DOTS ? half_forward : half_backward)(k, n, t, h, call, i);
    if (call != FORWARD && call != BACKWARD)
        add_halves(n, h, call);
    return ok;
}

static void test_halves(const struct lf_kernels *k, const struct ncase *n, const struct ndata *t)
{
    struct halves h = {.s = rows_blank(t, n->rows, t->xt),
                       .y = rows_blank(t, n->rows, t->yt),
                       .dx = rows_blank(t, n->rows, t->xt),
                       .at = {0, n->c / 4, n->c}};
    struct op_buf *rows[] = {&h.mean, &h.rstd, &h.part[0], &h.part[1], &h.total_x, &h.total},
                  *sums[] = {&h.dw, &h.db}, *others[] = {&h.s, &h.y, &h.dx};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        *rows[i] = op_alloc((size_t)n->rows * 2 * sizeof(float));
    for (size_t i = 0; i < 2; i++)
        *sums[i] = op_alloc((size_t)n->c * sizeof(float));
    for (int64_t i = 0; i < t->total; i++)
        op_set(h.s.p, i / t->width * t->ld + i % t->width, t->xt, t->s[i]);
    bool ran = true;
    for (int call = n->layer ? SUMS : SQUARES; call <= BACKWARD; call++)
        ran = ran && halves_run(k, n, t, &h, (enum call)call);
    op_ok(rows_diff(&h.y, t->y, NULL, t, t->yt, 4e-6), "norm_fwd y of two parts of rows");
    op_ok(rows_diff(&h.dx, t->dx, t->adx, t, t->xt, 4e-6), "norm_bwd dx of two parts");
    for (int64_t i = 0; i < n->c; i++)
        t->adw[i] += 1;
    op_ok(op_compare(h.dw.p, LF_F32, t->dw, t->adw, n->c, 4e-6), "norm_bwd dw of two parts");
    op_ok(op_compare(h.db.p, LF_F32, t->db, t->adw, n->c, 4e-6), "norm_bwd db of two parts");
    tap_ok(ran, "every part gives and takes such sums, of its kind of norm and without heads");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        op_free(rows[i]);
    for (size_t i = 0; i < 2; i++)
        op_free(sums[i]);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        op_free(others[i]);
}

static bool has_halves(const struct ncase *n)
{
    return n->heads == 1 && n->weight && n->c > 1 && !n->affine;
}

int main(void)
{
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int n = 0; n < CASES; n++)
        for (int type = LF_F32; type <= OP_LAST_FLOAT; type++) {
            struct ndata t = data_make(&cases[n], type);
            for (int i = 0; i < OP_BACKENDS; i++) {
                const struct lf_kernels *k = op_kernels(i);
                if (!k)
                    continue;
                tap_diag("case %d, %s, %s", n, k->family,
                         type == LF_BF16  ? "bf16"
                         : type == LF_F16 ? "f16"
                                          : "f32");
                TAP(3 + cases[n].delta + cases[n].layer, test_forward(k, &cases[n], &t));
                TAP(6, test_backward(k, &cases[n], &t));
                if (has_halves(&cases[n]))
                    TAP(5, test_halves(k, &cases[n], &t));
            }
            data_free(&t);
        }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
