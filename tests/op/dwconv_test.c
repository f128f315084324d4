/* SPDX-License-Identifier: Apache-2.0
 *
 * The depthwise convolution over pictures and its backward against their formulas in f64, for sides
 * shorter and longer than the taps and rows behind the last square; matrices that are transposed;
 * threads bit for bit.
 */
#include "config.h"

#include "tests/op/op_test.h"

static lf_queue *queue[4];

struct conv {
    int64_t c, side, taps, squares, rest, gap; /* rest: rows behind the last square */
    bool bias, x;                              /* x: its gradient is wanted */
};
static const struct conv convs[] = {{70, 9, 7, 3, 4, 0, true, true},
                                    {64, 2, 7, 2, 0, 0, true, true},
                                    {5, 6, 3, 11, 35, 3, false, true},
                                    {17, 1, 5, 9, 0, 0, true, false},
                                    {3, 4, 1, 0, 7, 0, true, true}};

struct data {
    const struct conv *v;
    int type;
    int64_t rows, ld;
    struct op_buf x, w, bias, dy;
};

static struct data draw(const struct conv *v, int type)
{
    struct data d = {.v = v,
                     .type = type,
                     .rows = v->squares * v->side * v->side + v->rest,
                     .ld = v->c + v->gap};
    d.x = op_random(d.rows * d.ld, type, 1, 1.0);
    d.dy = op_random(d.rows * d.ld, type, 2, 1.0);
    d.w = op_random(v->c * v->taps * v->taps, LF_F32, 3, 1.0);
    d.bias = op_random(v->c, LF_F32, 4, 1.0);
    return d;
}

static void drop(struct data *d)
{
    op_free(&d->x);
    op_free(&d->dy);
    op_free(&d->w);
    op_free(&d->bias);
}

/* y; and by the chain rule, one product after the other, dx, dw and dbias, the last two on top of
 * 0.5. */
struct want {
    double *y, *dx, *dw, *db;
};

static void add_products(const struct data *d, struct want *o, int64_t square, int64_t at)
{
    const struct conv *v = d->v;
    const int64_t S = v->side, half = v->taps / 2, i = at / S, j = at % S;
    const int64_t row = square * S * S + at;
    for (int64_t c = 0; c < v->c; c++) {
        const double dy = op_get(d->dy.p, row * d->ld + c, d->type);
        o->y[row * d->ld + c] += v->bias ? op_get(d->bias.p, c, LF_F32) : 0;
        o->db[c] += dy;
        for (int64_t t = 0; t < v->taps * v->taps; t++) {
            const int64_t y = i + t / v->taps - half, x = j + t % v->taps - half,
                          from = (square * S * S + y * S + x) * d->ld + c,
                          w = c * v->taps * v->taps + t;
            if (y < 0 || x < 0 || y >= S || x >= S)
                continue;
            o->y[row * d->ld + c] += op_get(d->w.p, w, LF_F32) * op_get(d->x.p, from, d->type);
            o->dx[from] += op_get(d->w.p, w, LF_F32) * dy;
            o->dw[w] += dy * op_get(d->x.p, from, d->type);
        }
    }
}

/* Gaps between rows are not compared. */
static void close_gaps(const struct data *d, void *p)
{
    for (int64_t r = 0; r < d->rows; r++)
        for (int64_t c = d->v->c; c < d->ld; c++)
            op_set(p, r * d->ld + c, d->type, 0);
}

struct result {
    struct op_buf y, dx, dw, db;
};

static bool compute(const struct lf_kernels *k, const struct data *d, int threads, struct result *r)
{
    const struct conv *v = d->v;
    const int64_t n = d->rows * d->ld, nw = v->c * v->taps * v->taps;
    const size_t bytes = (size_t)n * lf_dtype_size((enum lf_dtype)d->type);
    *r = (struct result){op_alloc(bytes), op_alloc(bytes), op_alloc((size_t)nw * 4),
                         op_alloc((size_t)v->c * 4)};
    for (int64_t i = 0; i < nw; i++)
        op_set(r->dw.p, i, LF_F32, 0.5);
    for (int64_t i = 0; i < v->c; i++)
        op_set(r->db.p, i, LF_F32, 0.5);
    const struct lf_k_dwconv_fwd f = {.rows = d->rows,
                                      .c = v->c,
                                      .side = v->side,
                                      .taps = v->taps,
                                      .ldx = d->ld,
                                      .ldy = d->ld,
                                      .x = d->x.p,
                                      .w = d->w.p,
                                      .bias = v->bias ? d->bias.p : NULL,
                                      .y = r->y.p,
                                      .x_type = (uint8_t)d->type};
    const struct lf_k_dwconv_bwd b = {.rows = d->rows,
                                      .c = v->c,
                                      .side = v->side,
                                      .taps = v->taps,
                                      .ldx = d->ld,
                                      .lddy = d->ld,
                                      .lddx = d->ld,
                                      .x = d->x.p,
                                      .dy = d->dy.p,
                                      .w = d->w.p,
                                      .dx = v->x ? r->dx.p : NULL,
                                      .dw = r->dw.p,
                                      .dbias = r->db.p,
                                      .accumulate = true,
                                      .x_type = (uint8_t)d->type};
    const bool ok = k->dwconv_fwd.check(&f) == 0 && k->dwconv_fwd.run(queue[threads], &f) == 0 &&
                    k->dwconv_bwd.check(&b) == 0 && k->dwconv_bwd.run(queue[threads], &b) == 0;
    close_gaps(d, r->y.p);
    close_gaps(d, r->dx.p);
    return ok && op_guards_intact(&r->y) && op_guards_intact(&r->dx) && op_guards_intact(&r->dw) &&
           op_guards_intact(&r->db);
}

static bool same(const struct result *a, const struct result *b)
{
    return memcmp(a->y.p, b->y.p, a->y.bytes) == 0 && memcmp(a->dx.p, b->dx.p, a->dx.bytes) == 0 &&
           memcmp(a->dw.p, b->dw.p, a->dw.bytes) == 0 && memcmp(a->db.p, b->db.p, a->db.bytes) == 0;
}

static void test_refused(const struct lf_kernels *k)
{
    struct lf_k_dwconv_fwd f = {.c = 4, .side = 3, .taps = 3, .ldx = 4, .ldy = 4};
    struct lf_k_dwconv_bwd b = {.c = 4, .side = 3, .taps = 3, .ldx = 4, .lddy = 4, .lddx = 4};
    bool ok = k->dwconv_fwd.check(&f) == 0 && k->dwconv_bwd.check(&b) == 0;
    f.taps = b.taps = 4;
    ok = ok && k->dwconv_fwd.check(&f) != 0 && k->dwconv_bwd.check(&b) != 0;
    f.taps = b.taps = 17;
    ok = ok && k->dwconv_fwd.check(&f) != 0 && k->dwconv_bwd.check(&b) != 0;
    f.taps = b.taps = 3;
    f.side = b.side = 0;
    ok = ok && k->dwconv_fwd.check(&f) != 0 && k->dwconv_bwd.check(&b) != 0;
    f.side = b.side = 3;
    f.ldy = b.lddx = 3;
    ok = ok && k->dwconv_fwd.check(&f) != 0 && k->dwconv_bwd.check(&b) != 0;
    tap_ok(ok, "even or too many taps, no side and short rows are refused, %s", k->family);
}

static void test_conv(const struct lf_kernels *k, const struct data *d)
{
    const struct conv *v = d->v;
    const int64_t n = d->rows * d->ld, nw = v->c * v->taps * v->taps;
    struct want o = {calloc((size_t)n + 1, 8), calloc((size_t)n + 1, 8), calloc((size_t)nw, 8),
                     calloc((size_t)v->c, 8)};
    struct result r[4];
    bool ok = true;
    for (int64_t i = 0; i < nw; i++)
        o.dw[i] = 0.5;
    for (int64_t i = 0; i < v->c; i++)
        o.db[i] = 0.5;
    for (int64_t s = 0; s < v->squares; s++)
        for (int64_t at = 0; at < v->side * v->side; at++)
            add_products(d, &o, s, at);
    for (int t = 1; t <= OP_THREADS; t++)
        ok = compute(k, d, t, &r[t]) && same(&r[1], &r[t]) && ok;
    tap_ok(ok, "dwconv, %lld columns: the same bits with 1 to 3 threads, %s", (long long)v->c,
           k->family);
    op_ok(op_compare(r[1].y.p, d->type, o.y, NULL, n, 2e-6), "dwconv");
    if (v->squares)
        op_prove(r[1].y.p, d->type, o.y, NULL, n, 2e-6, d->ld);
    if (v->x)
        op_ok(op_compare(r[1].dx.p, d->type, o.dx, NULL, n, 2e-6), "dx");
    op_ok(op_compare(r[1].dw.p, LF_F32, o.dw, NULL, nw, 4e-5), "dw");
    op_ok(op_compare(r[1].db.p, LF_F32, o.db, NULL, v->c, 4e-5), "dbias");
    for (int t = 1; t <= OP_THREADS; t++) {
        op_free(&r[t].y);
        op_free(&r[t].dx);
        op_free(&r[t].dw);
        op_free(&r[t].db);
    }
    free(o.y);
    free(o.dx);
    free(o.dw);
    free(o.db);
}

/* ---- matrices that are transposed ---- */

/* rows: of x; what is behind the last whole matrix is left out, and rows of y behind the last one
 * are 0. */
static void test_turn(const struct lf_kernels *k, int64_t rows, int64_t c, int64_t each, int type)
{
    const int64_t ldx = c + 3, ldy = each + 5, want = rows / each * c, y_rows = want + 2;
    const size_t size = lf_dtype_size((enum lf_dtype)type);
    struct op_buf x = op_random(rows * ldx, type, 7, 1.0), y[4];
    int64_t wrong = 0;
    bool ok = true;
    for (int t = 1; t <= OP_THREADS; t++) {
        y[t] = op_random(y_rows * ldy, type, 9, 1.0);
        const struct lf_k_turn_rows a = {.rows = rows,
                                         .c = c,
                                         .each = each,
                                         .y_rows = y_rows,
                                         .ldx = ldx,
                                         .ldy = ldy,
                                         .x = x.p,
                                         .y = y[t].p,
                                         .x_type = (uint8_t)type};
        ok = ok && k->turn_rows.check(&a) == 0 && k->turn_rows.run(queue[t], &a) == 0 &&
             op_guards_intact(&y[t]) && memcmp(y[1].p, y[t].p, y[1].bytes) == 0;
    }
    for (int64_t r = 0; r < y_rows; r++)
        for (int64_t i = 0; i < each; i++) {
            const char zero[4] = {0},
                       *from = r < want ? (const char *)x.p +
                                              (size_t)((r / c * each + i) * ldx + r % c) * size
                                        : zero;
            wrong += memcmp((const char *)y[1].p + (size_t)(r * ldy + i) * size, from, size) != 0;
        }
    tap_ok(ok && wrong == 0, "%lld matrices of %lld x %lld, transposed: %lld wrong, %s",
           (long long)(rows / each), (long long)each, (long long)c, (long long)wrong, k->family);
    op_free(&x);
    for (int t = 1; t <= OP_THREADS; t++)
        op_free(&y[t]);
}

int main(void)
{
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int i = 0; i < OP_BACKENDS; i++) {
        const struct lf_kernels *k = op_kernels(i);
        for (int type = LF_F32; k && type <= OP_LAST_FLOAT; type++)
            for (size_t v = 0; v < sizeof convs / sizeof *convs; v++) {
                struct data d = draw(&convs[v], type);
                test_conv(k, &d);
                drop(&d);
            }
        for (int type = LF_F32; k && type <= OP_LAST_FLOAT; type++) {
            test_turn(k, 3 * 19 + 4, 37, 19, type);
            test_turn(k, 5, 1, 7, type);
            test_turn(k, 64, 16, 16, type);
        }
        if (k)
            test_refused(k);
    }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
