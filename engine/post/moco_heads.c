/* SPDX-License-Identifier: Apache-2.0
 *
 * Two small networks over all pictures of a step: see moco_heads.h. */
#include "engine/post/moco_heads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

#define EPS 1e-5

enum { BLOCK = 16 }; /* rows that a row of weights meets while it is in a cache */

struct lf_moco_heads {
    struct lf_moco_sizes s;
    int64_t n;
    struct lf_moco_rows view[2];
    double *key[2]; /* [n, D] of length 1 */
    double *query;  /* [n, D] of length 1, of one view */
    double *back;   /* [n, most columns] */
    double *scores; /* [threads, n] */
    int threads;
};

/* ---- room ---- */

static int64_t widest(const struct lf_moco_sizes *s)
{
    int64_t most = s->dim;
    for (int l = 0; l < LF_MOCO_LINEARS; l++)
        most = lf_moco_in(s, l) > most ? lf_moco_in(s, l) : most;
    return most;
}

static int create_view(struct lf_moco_rows *v, const struct lf_moco_sizes *s, int64_t n,
                       lf_err *err)
{
    bool all = (v->y = lf_calloc((size_t)(n * s->dim), sizeof *v->y, err)) != NULL;
    for (int l = 0; l < LF_MOCO_LINEARS && all; l++) {
        const size_t out = (size_t)(n * lf_moco_out(s, l)), each = sizeof(double);
        all = (!l || (v->x[l] = lf_calloc((size_t)(n * lf_moco_in(s, l)), each, err))) &&
              (v->u[l] = lf_calloc(out, each, err)) && (v->dz[l] = lf_calloc(out, each, err)) &&
              (!lf_moco_bends(l) || (v->dy[l] = lf_calloc(out, each, err))) &&
              (v->spread[l] = lf_calloc((size_t)lf_moco_out(s, l), each, err));
    }
    return all ? 0 : LF_ENOMEM;
}

lf_moco_heads *lf_moco_heads_create(const struct lf_moco_sizes *s, int64_t n, int threads,
                                    lf_err *err)
{
    lf_moco_heads *h = lf_calloc(1, sizeof *h, err);
    if (!h)
        return NULL;
    h->s = *s;
    h->n = n;
    h->threads = threads;
    int rc = create_view(&h->view[0], s, n, err);
    if (rc == 0)
        rc = create_view(&h->view[1], s, n, err);
    for (int k = 0; k < 2 && rc == 0; k++)
        rc = (h->key[k] = lf_calloc((size_t)(n * s->dim), sizeof(double), err)) ? 0 : LF_ENOMEM;
    if (rc == 0 && (!(h->query = lf_calloc((size_t)(n * s->dim), sizeof(double), err)) ||
                    !(h->back = lf_calloc((size_t)(n * widest(s)), sizeof(double), err)) ||
                    !(h->scores = lf_calloc((size_t)(n * threads), sizeof(double), err))))
        rc = LF_ENOMEM;
    if (rc == 0)
        return h;
    lf_moco_heads_destroy(h);
    return NULL;
}

void lf_moco_heads_destroy(lf_moco_heads *h)
{
    if (!h)
        return;
    for (int k = 0; k < 2; k++) {
        struct lf_moco_rows *v = &h->view[k];
        for (int l = 0; l < LF_MOCO_LINEARS; l++) {
            if (l)
                free(v->x[l]);
            free(v->u[l]);
            free(v->dz[l]);
            free(v->dy[l]);
            free(v->spread[l]);
        }
        free(v->y);
        free(h->key[k]);
    }
    free(h->query);
    free(h->back);
    free(h->scores);
    free(h);
}

const struct lf_moco_rows *lf_moco_heads_rows(const lf_moco_heads *h, int view)
{
    return &h->view[view];
}

/* ---- products ---- */

static double dot(const double *x, const float *w, int64_t n)
{
    double s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t i = 0; i < n; i++)
        s += x[i] * (double)w[i];
    return s;
}

/* z [n, out] = x [n, in] w^T */
static void multiply(double *z, const double *x, const float *w, int64_t n, int64_t in, int64_t out,
                     int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t b = 0; b < (n + BLOCK - 1) / BLOCK; b++)
        for (int64_t o = 0; o < out; o++)
            for (int64_t r = b * BLOCK; r < n && r < (b + 1) * BLOCK; r++)
                z[r * out + o] = dot(x + r * in, w + o * in, in);
}

/* x [n, in] = z [n, out] w */
static void multiply_back(double *x, const double *z, const float *w, int64_t n, int64_t in,
                          int64_t out, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t b = 0; b < (n + BLOCK - 1) / BLOCK; b++) {
        const int64_t first = b * BLOCK, end = n < first + BLOCK ? n : first + BLOCK;
        memset(x + first * in, 0, (size_t)((end - first) * in) * sizeof *x);
        for (int64_t o = 0; o < out; o++)
            for (int64_t r = first; r < end; r++) {
                const double by = z[r * out + o];
#pragma omp simd
                for (int64_t i = 0; i < in; i++)
                    x[r * in + i] += by * (double)w[o * in + i];
            }
    }
}

/* ---- one layer ---- */

/* u = (z - mean) spread of each column, in place. */
static void normalise(double *u, double *spread, int64_t n, int64_t cols, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t c = 0; c < cols; c++) {
        double sum = 0, squares = 0;
        for (int64_t r = 0; r < n; r++)
            sum += u[r * cols + c];
        const double mean = sum / (double)n;
        for (int64_t r = 0; r < n; r++)
            squares += (u[r * cols + c] - mean) * (u[r * cols + c] - mean);
        spread[c] = 1 / sqrt(squares / (double)n + EPS);
        for (int64_t r = 0; r < n; r++)
            u[r * cols + c] = (u[r * cols + c] - mean) * spread[c];
    }
}

/* dz of du, in place. */
static void normalise_back(double *d, const double *u, const double *spread, int64_t n,
                           int64_t cols, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t c = 0; c < cols; c++) {
        double sum = 0, along = 0;
        for (int64_t r = 0; r < n; r++) {
            sum += d[r * cols + c];
            along += d[r * cols + c] * u[r * cols + c];
        }
        for (int64_t r = 0; r < n; r++)
            d[r * cols + c] =
                spread[c] * (d[r * cols + c] - (sum + u[r * cols + c] * along) / (double)n);
    }
}

/* max(0, x), and NaN of NaN, which fmax would make a 0 that looks like any other. */
static double bent(double x)
{
    return x < 0 ? 0 : x;
}

/* Layers [0, end) over x, the rows of layer 0; the last one's result goes to y. */
static void forward(const lf_moco_heads *h, struct lf_moco_rows *v, const struct lf_moco_weights *w,
                    const double *x, int end, double *y)
{
    const int64_t n = h->n;
    for (int l = 0; l < end; l++) {
        const int64_t in = lf_moco_in(&h->s, l), out = lf_moco_out(&h->s, l);
        multiply(v->u[l], x, w->linear[l], n, in, out, h->threads);
        normalise(v->u[l], v->spread[l], n, out, h->threads);
        double *to = l + 1 < end ? v->x[l + 1] : y;
        for (int64_t i = 0; i < n * out; i++) {
            const double a = v->u[l][i];
            to[i] = lf_moco_bends(l)
                        ? bent(a * (double)w->gain[l][i % out] + (double)w->bias[l][i % out])
                        : a;
        }
        x = to;
    }
}

/* From the slope of y, in h->back. */
static void backward(const lf_moco_heads *h, const struct lf_moco_rows *v,
                     const struct lf_moco_weights *w)
{
    const int64_t n = h->n;
    for (int l = LF_MOCO_LINEARS - 1; l >= 0; l--) {
        const int64_t in = lf_moco_in(&h->s, l), out = lf_moco_out(&h->s, l);
        for (int64_t i = 0; i < n * out; i++) {
            double d = h->back[i];
            if (lf_moco_bends(l)) {
                d = v->dy[l][i] = v->x[l + 1][i] > 0 ? d : 0;
                d *= (double)w->gain[l][i % out];
            }
            v->dz[l][i] = d;
        }
        normalise_back(v->dz[l], v->u[l], v->spread[l], n, out, h->threads);
        if (l)
            multiply_back(h->back, v->dz[l], w->linear[l], n, in, out, h->threads);
    }
}

/* ---- the loss ---- */

static double length_of(const double *x, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += x[i] * x[i];
    return fmax(sqrt(s), 1e-12);
}

static void unit_rows(double *to, const double *from, int64_t n, int64_t cols)
{
    for (int64_t r = 0; r < n; r++) {
        const double by = 1 / length_of(from + r * cols, cols);
        for (int64_t c = 0; c < cols; c++)
            to[r * cols + c] = from[r * cols + c] * by;
    }
}

static double along(const double *a, const double *b, int64_t n)
{
    double s = 0;
    for (int64_t i = 0; i < n; i++)
        s += a[i] * b[i];
    return s;
}

/* Query r against all keys: its loss, whether its own is the nearest, and d (NULL: none), the
 * slope by the query as it was before its length became 1. p: [n] room. */
static void contrast(const lf_moco_heads *h, const struct lf_moco_step *s, int view, int64_t r,
                     double *p, double *d)
{
    const int64_t n = h->n, D = h->s.dim;
    const double *q = h->query + r * D, *keys = h->key[1 - view];
    double most = -INFINITY, sum = 0;
    bool right = true;
    for (int64_t j = 0; j < n; j++) {
        p[j] = along(q, keys + j * D, D) / s->temperature;
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < n; j++) {
        sum += exp(p[j] - most);
        right = right && (j == r || p[j] < p[r]);
    }
    s->loss[view * n + r] = 2 * s->temperature * (most + log(sum) - p[r]);
    s->right[view * n + r] = right;
    if (!d)
        return;
    memset(d, 0, (size_t)D * sizeof *d);
    for (int64_t j = 0; j < n; j++) { /* 2 T / T */
        const double by = 2 * (exp(p[j] - most) / sum - (j == r));
        for (int64_t c = 0; c < D; c++)
            d[c] += by * keys[j * D + c];
    }
    const double inward = along(d, q, D), by = 1 / length_of(h->view[view].y + r * D, D);
    for (int64_t c = 0; c < D; c++)
        d[c] = by * (d[c] - inward * q[c]);
}

/* Thread t of so many has the queries t, t + threads ... */
static void contrast_view(const lf_moco_heads *h, const struct lf_moco_step *s, int view)
{
    const int64_t n = h->n, D = h->s.dim;
    unit_rows(h->query, h->view[view].y, n, D);
#pragma omp parallel for schedule(static) num_threads(h->threads)
    for (int t = 0; t < h->threads; t++)
        for (int64_t r = t; r < n; r += h->threads)
            contrast(h, s, view, r, h->scores + t * n, s->slopes ? h->back + r * D : NULL);
}

void lf_moco_heads_run(lf_moco_heads *h, const struct lf_moco_step *s)
{
    for (int k = 0; k < 2; k++) {
        forward(h, &h->view[k], &s->average, s->g[k], LF_MOCO_PROJECTOR, h->key[k]);
        unit_rows(h->key[k], h->key[k], h->n, h->s.dim);
    }
    for (int k = 0; k < 2; k++) {
        struct lf_moco_rows *v = &h->view[k];
        forward(h, v, &s->w, s->h[k], LF_MOCO_LINEARS, v->y);
    }
    for (int k = 0; k < 2; k++) {
        contrast_view(h, s, k);
        if (s->slopes)
            backward(h, &h->view[k], &s->w);
    }
}
