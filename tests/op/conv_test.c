/* SPDX-License-Identifier: Apache-2.0
 *
 * The causal convolution and its backward against their formulas in f64, for documents shorter and
 * longer than the taps, and rows that come in several calls bit for bit; the gates of a scan
 * against their formulas, their backward against central differences.
 */
#include "config.h"

#include "tests/op/op_test.h"

enum { DOCS = 7, PAD = 3 };
static const int64_t lengths[DOCS] = {1, 2, 63, 0, 64, 65, 129};

static lf_queue *queue[4];

struct conv {
    int64_t c, taps, gap;
    int act;
    bool bias;
};
static const struct conv convs[] = {
    {70, 4, 0, LF_ACT_SILU, true}, {5, 3, 2, LF_ACT_NONE, false}, {16, 1, 0, LF_ACT_SILU, false}};

struct data {
    const struct conv *v;
    int type;
    int64_t rows, ld;
    struct op_buf x, w, bias, dy, cu;
};

static struct data draw(const struct conv *v, int type)
{
    struct data d = {.v = v, .type = type, .rows = PAD, .ld = v->c + v->gap};
    d.cu = op_alloc((DOCS + 1) * 4);
    int32_t *cu = d.cu.p;
    cu[0] = 0;
    for (int i = 0; i < DOCS; i++) {
        cu[i + 1] = cu[i] + (int32_t)lengths[i];
        d.rows += lengths[i];
    }
    d.x = op_random(d.rows * d.ld, type, 1, 1.0);
    d.dy = op_random(d.rows * d.ld, type, 2, 1.0);
    d.w = op_random(v->c * v->taps, LF_F32, 3, 1.0);
    d.bias = op_random(v->c, LF_F32, 4, 1.0);
    return d;
}

static void drop(struct data *d)
{
    op_free(&d->x);
    op_free(&d->dy);
    op_free(&d->w);
    op_free(&d->bias);
    op_free(&d->cu);
}

/* The derivative of y by its argument, and y. */
static double act(int act, double a, double *slope)
{
    const double s = 1 / (1 + exp(-a));
    *slope = act == LF_ACT_SILU ? s + a * s * (1 - s) : 1;
    return act == LF_ACT_SILU ? a * s : a;
}

/* y, and da = dy act'. */
static void reference(const struct data *d, double *y, double *da)
{
    const int32_t *cu = d->cu.p;
    for (int doc = 0; doc < DOCS; doc++)
        for (int64_t t = cu[doc]; t < cu[doc + 1]; t++)
            for (int64_t c = 0; c < d->v->c; c++) {
                double a = d->v->bias ? op_get(d->bias.p, c, LF_F32) : 0, slope;
                for (int64_t j = 0; j < d->v->taps; j++)
                    if (t - d->v->taps + 1 + j >= cu[doc])
                        a += op_get(d->w.p, c * d->v->taps + j, LF_F32) *
                             op_get(d->x.p, (t - d->v->taps + 1 + j) * d->ld + c, d->type);
                y[t * d->ld + c] = act(d->v->act, a, &slope);
                da[t * d->ld + c] = slope * op_get(d->dy.p, t * d->ld + c, d->type);
            }
}

/* dx, dw and dbias by the sums of the contract, which the chain rule gives; dw and dbias on top of
 * 0.5. */
static void reference_bwd(const struct data *d, const double *da, double *dx, double *dw,
                          double *db)
{
    const int32_t *cu = d->cu.p;
    const int64_t taps = d->v->taps;
    for (int64_t c = 0; c < d->v->c; c++) {
        db[c] = 0.5;
        for (int64_t j = 0; j < taps; j++)
            dw[c * taps + j] = 0.5;
    }
    for (int doc = 0; doc < DOCS; doc++)
        for (int64_t t = cu[doc]; t < cu[doc + 1]; t++)
            for (int64_t c = 0; c < d->v->c; c++) {
                const double g = da[t * d->ld + c];
                db[c] += g;
                for (int64_t j = 0; j < taps; j++) {
                    const int64_t from = t - taps + 1 + j;
                    if (from < cu[doc])
                        continue;
                    dx[from * d->ld + c] += g * op_get(d->w.p, c * taps + j, LF_F32);
                    dw[c * taps + j] += g * op_get(d->x.p, from * d->ld + c, d->type);
                }
            }
}

static struct lf_k_conv_fwd args(const struct data *d, void *y)
{
    return (struct lf_k_conv_fwd){.rows = d->rows,
                                  .c = d->v->c,
                                  .taps = d->v->taps,
                                  .n_docs = DOCS,
                                  .ldx = d->ld,
                                  .ldy = d->ld,
                                  .x = d->x.p,
                                  .w = d->w.p,
                                  .bias = d->v->bias ? d->bias.p : NULL,
                                  .y = y,
                                  .cu_seqlens = d->cu.p,
                                  .act = (uint8_t)d->v->act,
                                  .x_type = (uint8_t)d->type};
}

/* The same rows in calls of some rows of each document. */
static bool in_calls(const struct lf_kernels *k, const struct data *d, const char *whole)
{
    static const int64_t turns[] = {1, 2, 30, 1, 5};
    const size_t size = lf_dtype_size((enum lf_dtype)d->type), row = (size_t)d->ld * size;
    struct op_buf x = op_alloc((size_t)d->rows * row), y = op_alloc((size_t)d->rows * row),
                  seq = op_alloc((size_t)d->rows * 4), pos = op_alloc((size_t)d->rows * 4),
                  state = op_alloc((size_t)(DOCS * (d->v->taps - 1) * d->v->c) * size + 1);
    const int32_t *cu = d->cu.p;
    int64_t at[DOCS] = {0}, left = d->rows - PAD;
    bool ok = true;
    for (int turn = 0; left > 0; turn++) {
        int64_t n = 0, from[512];
        for (int doc = 0; doc < DOCS; doc++)
            for (int64_t m = turns[(turn + doc) % 5]; m > 0 && at[doc] < lengths[doc]; m--) {
                ((int32_t *)seq.p)[n] = doc;
                ((int32_t *)pos.p)[n] = (int32_t)at[doc];
                from[n++] = cu[doc] + at[doc]++;
            }
        for (int64_t r = 0; r < n; r++)
            memcpy((char *)x.p + (size_t)r * row, (char *)d->x.p + (size_t)from[r] * row, row);
        struct lf_k_conv_fwd f = args(d, y.p);
        f.rows = n;
        f.x = x.p;
        f.cu_seqlens = NULL;
        f.state = state.p;
        f.seq = seq.p;
        f.pos = pos.p;
        ok = k->conv_fwd.run(queue[1 + turn % OP_THREADS], &f) == 0 && ok;
        for (int64_t r = 0; r < n; r++)
            ok = ok && memcmp((char *)y.p + (size_t)r * row, whole + (size_t)from[r] * row,
                              (size_t)d->v->c * size) == 0;
        left -= n;
    }
    ok = ok && op_guards_intact(&state);
    op_free(&x);
    op_free(&y);
    op_free(&seq);
    op_free(&pos);
    op_free(&state);
    return ok;
}

/* Gaps between rows are not compared. */
static void close_gaps(const struct data *d, void *p)
{
    for (int64_t r = 0; r < d->rows; r++)
        for (int64_t c = d->v->c; c < d->ld; c++)
            op_set(p, r * d->ld + c, d->type, 0);
}

static void test_conv(const struct lf_kernels *k, const struct data *d)
{
    const struct conv *v = d->v;
    const int64_t n = d->rows * d->ld, nw = v->c * v->taps;
    const size_t bytes = (size_t)n * lf_dtype_size((enum lf_dtype)d->type);
    double *y = calloc((size_t)n, 8), *da = calloc((size_t)n, 8), *dx = calloc((size_t)n, 8),
           *dw = calloc((size_t)nw, 8), *db = calloc((size_t)v->c, 8);
    struct op_buf gy[4], gx[4], gw[4], gb[4];
    bool same = true;
    reference(d, y, da);
    reference_bwd(d, da, dx, dw, db);
    for (int t = 1; t <= OP_THREADS; t++) {
        gy[t] = op_alloc(bytes);
        gx[t] = op_alloc(bytes);
        gw[t] = op_alloc((size_t)nw * 4);
        gb[t] = op_alloc((size_t)v->c * 4);
        for (int64_t i = 0; i < nw; i++)
            op_set(gw[t].p, i, LF_F32, 0.5);
        for (int64_t i = 0; i < v->c; i++)
            op_set(gb[t].p, i, LF_F32, 0.5);
        const struct lf_k_conv_fwd f = args(d, gy[t].p);
        const struct lf_k_conv_bwd b = {.rows = d->rows,
                                        .c = v->c,
                                        .taps = v->taps,
                                        .n_docs = DOCS,
                                        .ldx = d->ld,
                                        .lddy = d->ld,
                                        .lddx = d->ld,
                                        .x = d->x.p,
                                        .dy = d->dy.p,
                                        .w = d->w.p,
                                        .bias = v->bias ? d->bias.p : NULL,
                                        .dx = gx[t].p,
                                        .dw = gw[t].p,
                                        .dbias = gb[t].p,
                                        .cu_seqlens = d->cu.p,
                                        .accumulate = true,
                                        .act = (uint8_t)v->act,
                                        .x_type = (uint8_t)d->type};
        same = same && k->conv_fwd.check(&f) == 0 && k->conv_fwd.run(queue[t], &f) == 0 &&
               k->conv_bwd.check(&b) == 0 && k->conv_bwd.run(queue[t], &b) == 0 &&
               memcmp(gy[1].p, gy[t].p, bytes) == 0 && memcmp(gx[1].p, gx[t].p, bytes) == 0 &&
               memcmp(gw[1].p, gw[t].p, gw[t].bytes) == 0 && op_guards_intact(&gw[t]) &&
               memcmp(gb[1].p, gb[t].p, gb[t].bytes) == 0 && op_guards_intact(&gy[t]);
    }
    tap_ok(same, "conv, %lld columns: the same bits with 1 to 3 threads, %s", (long long)v->c,
           k->family);
    tap_ok(in_calls(k, d, gy[1].p), "rows in several calls have the bits of one");
    close_gaps(d, gy[1].p);
    close_gaps(d, gx[1].p);
    op_ok(op_compare(gy[1].p, d->type, y, NULL, n, 1e-6), "conv");
    op_prove(gy[1].p, d->type, y, NULL, n, 1e-6, d->ld);
    op_ok(op_compare(gx[1].p, d->type, dx, NULL, n, 2e-6), "dx");
    op_ok(op_compare(gw[1].p, LF_F32, dw, NULL, nw, 4e-5), "dw");
    op_ok(op_compare(gb[1].p, LF_F32, db, NULL, v->c, 4e-5), "dbias");
    for (int t = 1; t <= OP_THREADS; t++) {
        op_free(&gy[t]);
        op_free(&gx[t]);
        op_free(&gw[t]);
        op_free(&gb[t]);
    }
    free(y);
    free(da);
    free(dx);
    free(dw);
    free(db);
}

/* ---- gates ---- */

struct gate {
    int64_t heads, width;
    bool b;
    double low, high, strength;
};
static const struct gate gates[] = {
    {19, 1, false, 0.2, 2.0, 2}, {19, 1, true, 0, INFINITY, 1.75}, {3, 21, true, 0, INFINITY, 1}};
enum { ROWS = 37, A, B, A_LOG, BIAS, PARTS };

static double gate_loss(const struct gate *s, double *const x[], const double *dg,
                        const double *dbeta, double *g, double *beta)
{
    double loss = 0;
    for (int64_t r = 0; r < ROWS; r++)
        for (int64_t h = 0; h < s->heads; h++) {
            double step = 0;
            for (int64_t i = h * s->width; i < (h + 1) * s->width; i++) {
                const int64_t at = r * s->heads * s->width + i;
                step = fmin(fmax(log1p(exp(x[A][at] + x[BIAS][i])), s->low), s->high);
                const double v = -exp(x[A_LOG][h]) * step;
                loss += v * dg[at];
                if (g)
                    g[at] = v;
            }
            const double w = s->b ? s->strength / (1 + exp(-x[B][r * s->heads + h])) : step;
            loss += w * dbeta[r * s->heads + h];
            if (beta)
                beta[r * s->heads + h] = w;
        }
    return loss;
}

static void test_gate(const struct lf_kernels *k, const struct gate *s, int type)
{
    const int64_t hw = s->heads * s->width,
                  n[PARTS] = {
                      [A] = ROWS * hw, [B] = ROWS * s->heads, [A_LOG] = s->heads, [BIAS] = hw};
    const int types[PARTS] = {[A] = type, [B] = type, [A_LOG] = LF_F32, [BIAS] = LF_F32};
    struct op_buf in[PARTS], out[PARTS],
        dg = op_random(ROWS * hw, LF_F32, 5, 1.0), dbeta = op_random(n[B], LF_F32, 6, 1.0),
        g = op_alloc((size_t)n[A] * 4), beta = op_alloc((size_t)n[B] * 4);
    double *x[PARTS], *wg = calloc((size_t)n[A], 8), *wb = calloc((size_t)n[B], 8),
                      *ddg = calloc((size_t)n[A], 8), *ddb = calloc((size_t)n[B], 8);
    for (int i = A; i < PARTS; i++) {
        in[i] = op_random(n[i], types[i], (uint64_t)i, i == A ? 3.0 : 1.0);
        out[i] = op_alloc(in[i].bytes);
        x[i] = calloc((size_t)n[i], 8);
        for (int64_t e = 0; e < n[i]; e++) {
            x[i][e] = op_get(in[i].p, e, types[i]);
            op_set(out[i].p, e, types[i], 0.5);
        }
    }
    for (int64_t e = 0; e < n[A]; e++)
        ddg[e] = op_get(dg.p, e, LF_F32);
    for (int64_t e = 0; e < n[B]; e++)
        ddb[e] = op_get(dbeta.p, e, LF_F32);
    const struct lf_k_scan_gate_fwd f = {ROWS,
                                         s->heads,
                                         s->width,
                                         hw,
                                         s->b ? s->heads : 0,
                                         in[A].p,
                                         s->b ? in[B].p : NULL,
                                         in[A_LOG].p,
                                         in[BIAS].p,
                                         g.p,
                                         beta.p,
                                         (float)s->low,
                                         (float)s->high,
                                         (float)s->strength,
                                         (uint8_t)type};
    const struct lf_k_scan_gate_bwd b = {.rows = ROWS,
                                         .heads = s->heads,
                                         .width = s->width,
                                         .lda = hw,
                                         .ldb = f.ldb,
                                         .ldda = hw,
                                         .lddb = s->heads,
                                         .a = f.a,
                                         .b = f.b,
                                         .a_log = f.a_log,
                                         .bias = f.bias,
                                         .dg = dg.p,
                                         .dbeta = dbeta.p,
                                         .da = out[A].p,
                                         .db = out[B].p,
                                         .da_log = out[A_LOG].p,
                                         .dbias = out[BIAS].p,
                                         .low = f.low,
                                         .high = f.high,
                                         .strength = f.strength,
                                         .accumulate = true,
                                         .x_type = (uint8_t)type};
    bool ok = true;
    for (int t = OP_THREADS; t >= 1; t--) {
        for (int i = A_LOG; i < PARTS; i++)
            for (int64_t e = 0; e < n[i]; e++)
                op_set(out[i].p, e, LF_F32, 0.5);
        ok = k->scan_gate_fwd.check(&f) == 0 && k->scan_gate_fwd.run(queue[t], &f) == 0 &&
             k->scan_gate_bwd.check(&b) == 0 && k->scan_gate_bwd.run(queue[t], &b) == 0 && ok;
    }
    tap_ok(ok && op_guards_intact(&g) && op_guards_intact(&out[A_LOG]) &&
               op_guards_intact(&out[BIAS]),
           "gates of %lld heads, %s", (long long)s->heads, k->family);
    gate_loss(s, x, ddg, ddb, wg, wb);
    op_ok(op_compare(g.p, LF_F32, wg, NULL, n[A], 1e-6), "g");
    op_prove(g.p, LF_F32, wg, NULL, n[A], 1e-6, 3);
    op_ok(op_compare(beta.p, LF_F32, wb, NULL, n[B], 1e-6), "beta");
    for (int i = A; i < PARTS; i++) {
        double want[24], got[24];
        int64_t m = 0;
        for (; m < 24 && m < n[i] && (i != B || s->b); m++) {
            const int64_t e = (m * 7919) % n[i];
            const double old = x[i][e], step = 1e-6, base = i >= A_LOG ? 0.5 : 0;
            x[i][e] = old + step;
            want[m] = gate_loss(s, x, ddg, ddb, NULL, NULL);
            x[i][e] = old - step;
            want[m] = base + (want[m] - gate_loss(s, x, ddg, ddb, NULL, NULL)) / (2 * step);
            x[i][e] = old;
            got[m] = op_get(out[i].p, e, types[i]);
            if (fabs(got[m] - want[m]) <= op_eps(types[i]) * fabs(want[m]))
                got[m] = want[m]; /* the rounding of the result */
        }
        op_ok(op_compare(got, LF_F64, want, NULL, m, 2e-5), "gradient of a, b, a_log or bias");
    }
    for (int i = A; i < PARTS; i++) {
        op_free(&in[i]);
        op_free(&out[i]);
        free(x[i]);
    }
    op_free(&dg);
    op_free(&dbeta);
    op_free(&g);
    op_free(&beta);
    free(wg);
    free(wb);
    free(ddg);
    free(ddb);
}

int main(void)
{
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int i = 0; i < OP_BACKENDS; i++) {
        const struct lf_kernels *k = op_kernels(i);
        for (int type = LF_F32; k && type <= OP_LAST_FLOAT; type++) {
            for (size_t v = 0; v < sizeof convs / sizeof *convs; v++) {
                struct data d = draw(&convs[v], type);
                TAP(7, test_conv(k, &d));
                drop(&d);
            }
            for (size_t s = 0; s < sizeof gates / sizeof *gates; s++)
                TAP(8, test_gate(k, &gates[s], type));
        }
    }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
