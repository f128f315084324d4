/* SPDX-License-Identifier: Apache-2.0
 *
 * xielu_fwd and xielu_bwd against the formula in f64 and its central differences, in x and in both
 * parameters, in every storage type, with gaps between rows and in place; threads bit for bit. Some
 * elements lie where the formula has its edges, and close to 0, where it is easily rounded away.
 */
#include "config.h"

#include <stdio.h>

#include "tests/op/op_test.h"

static const float beta = 0.45f, eps = -1e-6f;
#define EDGE ((double)eps)

static lf_queue *queue[4];

static double ref(double x, double positive, double negative)
{
    const double a = log1p(exp(positive)), b = (double)beta + log1p(exp(negative));
    return x > 0 ? a * x * x + (double)beta * x : (expm1(fmin(x, EDGE)) - x) * b + (double)beta * x;
}

/* Central differences in x, 0; positive, 1; negative, 2. On the short flat piece below 0 and at its
 * ends those of x are the slope of the piece. */
static double ref_slope(int of, double x, double p, double n)
{
    const double h = 1e-6;
    if (of == 1)
        return (ref(x, p + h, n) - ref(x, p - h, n)) / (2 * h);
    if (of == 2)
        return (ref(x, p, n + h) - ref(x, p, n - h)) / (2 * h);
    if (x <= 0 && x >= EDGE)
        return -log1p(exp(n));
    const double w = fmin(h, fabs(x > 0 ? x : x - EDGE) / 4);
    return (ref(x + w, p, n) - ref(x - w, p, n)) / (2 * w);
}

struct xcase {
    int64_t rows, c, gap;
    float positive, negative;
    bool accumulate;
};
static const struct xcase cases[] = {
    {0, 5, 0, 0.1f, 0.2f, false},         {1, 1, 0, 0.2f, -1.0f, false},
    {3, 17, 5, -0.3f, 0.7f, true},        {40, 64, 8, 1.3f, -2.5f, false},
    {300, 33, 1, 0.203f, -1.050f, false}, {2, 4099, 0, 0.5f, 0.25f, true},
};
enum { CASES = sizeof cases / sizeof *cases };

struct run {
    const struct lf_kernels *k;
    const struct xcase *n;
    int type;
    struct op_buf beta, eps, x, dy, p, m; /* m: the parameter of the negative side */
    struct op_buf y, dx, dp, dm;          /* of one number of threads */
};

static struct op_buf scalar(float v)
{
    struct op_buf b = op_alloc(4);
    op_set(b.p, 0, LF_F32, (double)v);
    return b;
}

static bool call(struct run *r, int threads, bool in_place)
{
    const int64_t ld = r->n->c + r->n->gap;
    const struct lf_xielu p = {r->p.p, r->m.p, r->beta.p, r->eps.p};
    const struct lf_k_xielu_fwd f = {.rows = r->n->rows,
                                     .c = r->n->c,
                                     .ldx = ld,
                                     .ldy = ld,
                                     .x = r->x.p,
                                     .p = p,
                                     .y = in_place ? r->x.p : r->y.p,
                                     .x_type = (uint8_t)r->type};
    struct lf_k_xielu_bwd b = {.rows = r->n->rows,
                               .c = r->n->c,
                               .ldx = ld,
                               .lddy = ld,
                               .lddx = ld,
                               .x = r->x.p,
                               .dy = r->dy.p,
                               .p = p,
                               .dx = in_place ? r->dy.p : r->dx.p,
                               .dpositive = r->dp.p,
                               .dnegative = r->dm.p,
                               .accumulate = r->n->accumulate,
                               .x_type = (uint8_t)r->type};
    b.work_bytes = r->k->xielu_bwd.work(&b, threads);
    struct op_buf work = op_alloc(b.work_bytes);
    b.work = work.p;
    bool ok = r->k->xielu_bwd.check(&b) == 0 && r->k->xielu_bwd.run(queue[threads], &b) == 0 &&
              r->k->xielu_fwd.check(&f) == 0 && r->k->xielu_fwd.run(queue[threads], &f) == 0 &&
              op_guards_intact(&work) && op_guards_intact(&r->dp) && op_guards_intact(&r->dm);
    op_free(&work);
    return ok;
}

/* The elements of rows, without the gaps, which must be as they were. */
static double *dense(const struct run *r, const struct op_buf *b, bool *intact)
{
    const int64_t c = r->n->c, ld = c + r->n->gap;
    const size_t size = lf_dtype_size((enum lf_dtype)r->type);
    double *out = calloc((size_t)(r->n->rows * c) + 1, sizeof *out);
    for (int64_t i = 0; i < r->n->rows * c; i++)
        out[i] = op_get(b->p, i / c * ld + i % c, r->type);
    for (int64_t i = 0; i < r->n->rows * ld; i++)
        for (size_t k = 0; k < size && i % ld >= c; k++)
            *intact = *intact && ((unsigned char *)b->p)[(size_t)i * size + k] == 0xA5;
    *intact = *intact && op_guards_intact(b);
    return out;
}

/* size: of the terms of an element, whose sum may be much less. */
static void compare(const struct run *r, const struct op_buf *b, const double *want,
                    const double *size, double tol, const char *name)
{
    const int64_t n = r->n->rows * r->n->c;
    bool intact = true;
    double *got = dense(r, b, &intact), *scale = calloc((size_t)n + 1, sizeof *scale);
    for (int64_t i = 0; i < n; i++)
        scale[i] = size[i] + fabs(want[i]) * (r->type == LF_F32 ? 0 : op_eps(r->type) / tol) +
                   (r->type == LF_F16 ? 0x1p-25 / tol : 1e-30);
    op_ok(op_compare(got, LF_F64, want, scale, n, tol), name);
    tap_ok(intact, "%s: gaps and guards are as they were", name);
    free(got);
    free(scale);
}

static void test(const struct lf_kernels *k, const struct xcase *n, int type)
{
    static const double edges[] = {0, -0.0, 1e-7, -5e-7, -2e-6, 1e-3, -1e-3, -0.999, -1.001, -30};
    enum { EDGES = sizeof edges / sizeof *edges };
    const int64_t ld = n->c + n->gap, all = n->rows * ld, count = n->rows * n->c;
    struct run r = {.k = k, .n = n, .type = type};
    r.x = op_random(all, type, 1, 3.0);
    r.dy = op_random(all, type, 2, 1.0);
    r.p = scalar(n->positive);
    r.m = scalar(n->negative);
    r.beta = scalar(beta);
    r.eps = scalar(eps);
    for (int64_t i = 0; i < n->c && i < EDGES && n->rows > 1; i++)
        op_set(r.x.p, ld + i, type, edges[i]);
    double *y = calloc((size_t)count + 1, sizeof *y), *dx = calloc((size_t)count + 1, sizeof *dx),
           *ofy = calloc((size_t)count + 1, sizeof *y),
           *ofdx = calloc((size_t)count + 1, sizeof *y);
    double sum[2], size[2] = {1, 1};
    sum[0] = sum[1] = n->accumulate ? 0.5 : 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t at = i / n->c * ld + i % n->c;
        const double x = op_get(r.x.p, at, type), d = op_get(r.dy.p, at, type),
                     p = (double)n->positive, m = (double)n->negative;
        y[i] = ref(x, p, m);
        dx[i] = d * ref_slope(0, x, p, m);
        ofy[i] = fabs(y[i]) + fabs((double)beta * x);
        ofdx[i] = fabs(dx[i]) + fabs(d * (double)beta);
        for (int s = 0; s < 2; s++) {
            const double v = d * ref_slope(1 + s, x, p, m);
            sum[s] += v;
            size[s] += fabs(v);
        }
    }
    struct run first = r;
    bool ok = true;
    for (int t = 1; t <= OP_THREADS; t++) {
        r.y = op_alloc(r.x.bytes);
        r.dx = op_alloc(r.x.bytes);
        r.dp = scalar(0.5f);
        r.dm = scalar(0.5f);
        ok = ok && call(&r, t, false);
        if (t == 1) {
            first = r;
            continue;
        }
        ok = ok && memcmp(r.y.p, first.y.p, r.y.bytes) == 0 &&
             memcmp(r.dx.p, first.dx.p, r.dx.bytes) == 0 && memcmp(r.dp.p, first.dp.p, 4) == 0 &&
             memcmp(r.dm.p, first.dm.p, 4) == 0;
        struct op_buf *b[] = {&r.y, &r.dx, &r.dp, &r.dm};
        for (size_t i = 0; i < 4; i++)
            op_free(b[i]);
    }
    tap_ok(ok, "xielu: same bits with 1 to 3 threads, %s", k->family);
    compare(&first, &first.y, y, ofy, 1e-6, "xielu_fwd");
    compare(&first, &first.dx, dx, ofdx, 2e-6, "xielu_bwd dx");
    op_ok(op_compare(first.dp.p, LF_F32, sum, size, 1, 2e-6), "xielu_bwd dpositive");
    op_ok(op_compare(first.dm.p, LF_F32, sum + 1, size + 1, 1, 2e-6), "xielu_bwd dnegative");
    const float was[] = {*(float *)first.dp.p, *(float *)first.dm.p};
    op_set(first.dp.p, 0, LF_F32, 0.5);
    op_set(first.dm.p, 0, LF_F32, 0.5);
    bool same = call(&first, 1, true), intact = true;
    same = same && *(float *)first.dp.p == was[0] && *(float *)first.dm.p == was[1];
    for (int i = 0; i < 2; i++) {
        double *a = dense(&first, i ? &first.dx : &first.y, &intact),
               *b = dense(&first, i ? &first.dy : &first.x, &(bool){true});
        same = same && memcmp(a, b, (size_t)count * sizeof *a) == 0;
        free(a);
        free(b);
    }
    tap_ok(same, "xielu and its gradient in place");
    struct op_buf *b[] = {&first.beta, &first.eps, &first.x,  &first.dy, &first.p,
                          &first.m,    &first.y,   &first.dx, &first.dp, &first.dm};
    for (size_t i = 0; i < sizeof b / sizeof *b; i++)
        op_free(b[i]);
    double *d[] = {y, dx, ofy, ofdx};
    for (size_t i = 0; i < sizeof d / sizeof *d; i++)
        free(d[i]);
}

int main(void)
{
    for (int t = 1; t <= OP_THREADS; t++)
        queue[t] = op_queue_create(t);
    for (int i = 0; i < OP_BACKENDS; i++) {
        const struct lf_kernels *k = op_kernels(i);
        for (int type = LF_F32; k && type <= OP_LAST_FLOAT; type++)
            for (int n = 0; n < CASES; n++) {
                tap_diag("case %d, %s, type %d", n, k->family, type);
                TAP(8, test(k, &cases[n], type));
            }
    }
    for (int t = 1; t <= OP_THREADS; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
