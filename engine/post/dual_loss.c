/* SPDX-License-Identifier: Apache-2.0
 *
 * See dual_loss.h. A block of pictures is gone through twice: once for what columns add up to, and
 * once for losses and derivatives. */
#include "engine/post/dual_loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

/* Numbers of a block of z: 4 MiB, which no plan has to know. */
#define BLOCK_NUMBERS ((size_t)1 << 19)

struct work {
    const struct lf_dual_loss *d;
    const struct lf_dual_out *out;
    double *unit[2], *length[2]; /* [n, width], [n]: of pictures, of texts */
    double *slope[2];            /* [n, width] derivatives by units; NULL: none are asked for */
    double *z;                   /* [rows of a block, pairs of a group], then derivatives by z */
    double *most, *sum;          /* [n] of columns: the largest z, and the sum of e^(z - most) */
    double *row;                 /* [n] log sum_j e^(z_ij) */
    size_t *best;                /* [n] the picture of a text that has its largest z */
    size_t first, last;          /* the group */
    int threads;
};

static int normalise(struct work *w, int k, const char *what, lf_err *err)
{
    const size_t width = (size_t)w->d->width;
    const double *of = k ? w->d->text : w->d->image;
    for (size_t i = 0; i < w->d->n; i++) {
        const double *x = of + i * width;
        double sum = 0;
        for (size_t c = 0; c < width; c++)
            sum += x[c] * x[c];
        if (!(sum > 0) || !isfinite(sum))
            return lf_fail(err, LF_ENUMERIC, "the vector of %s %zu has %s", what, i,
                           isfinite(sum) ? "no length" : "a number that is not finite");
        w->length[k][i] = sqrt(sum);
        for (size_t c = 0; c < width; c++)
            w->unit[k][i * width + c] = x[c] / w->length[k][i];
    }
    return 0;
}

static double dot(const double *a, const double *b, size_t n)
{
    double sum = 0;
    for (size_t c = 0; c < n; c++)
        sum += a[c] * b[c];
    return sum;
}

/* The rows of z of pictures [from, to). */
static void fill(struct work *w, size_t from, size_t to)
{
    const size_t n = w->last - w->first, width = (size_t)w->d->width;
    const double by = exp(w->d->scale);
#pragma omp parallel for schedule(static) num_threads(w->threads)
    for (size_t j = 0; j < n; j++)
        for (size_t i = from; i < to; i++)
            w->z[(i - from) * n + j] =
                by * dot(w->unit[0] + i * width, w->unit[1] + (w->first + j) * width, width) +
                w->d->bias;
}

/* What columns add up to over pictures [from, to). */
static void add_columns(struct work *w, size_t from, size_t to)
{
    const size_t n = w->last - w->first;
#pragma omp parallel for schedule(static) num_threads(w->threads)
    for (size_t j = 0; j < n; j++) {
        double *most = &w->most[w->first + j], *sum = &w->sum[w->first + j];
        for (size_t i = from; i < to; i++) {
            const double z = w->z[(i - from) * n + j];
            if (z > *most) {
                *sum *= exp(*most - z);
                *most = z;
                w->best[w->first + j] = i;
            }
            *sum += exp(z - *most);
        }
    }
}

/* log sum of e^z over a row, and which is the largest. */
static double row_sum(const double *z, size_t n, size_t *best)
{
    double sum = 0;
    *best = 0;
    for (size_t j = 1; j < n; j++)
        *best = z[j] > z[*best] ? j : *best;
    for (size_t j = 0; j < n; j++)
        sum += exp(z[j] - z[*best]);
    return z[*best] + log(sum);
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double column_sum(const struct work *w, size_t j)
{
    return w->most[j] + log(w->sum[j]);
}

/* L_i from its row of z, which becomes the derivatives by it. */
static double one_loss(struct work *w, double *z, size_t i)
{
    const size_t n = w->last - w->first, own = i - w->first;
    double loss = 0;
    if (w->d->kind == LF_DUAL_SIGLIP) {
        for (size_t j = 0; j < n; j++) {
            const double y = j == own ? 1 : -1;
            loss += softplus(-y * z[j]);
            z[j] = -y / (1 + exp(y * z[j]));
        }
        return loss;
    }
    loss = (w->row[i] + column_sum(w, i)) / 2 - z[own];
    for (size_t j = 0; j < n; j++)
        z[j] = (exp(z[j] - w->row[i]) + exp(z[j] - column_sum(w, w->first + j))) / 2 - (j == own);
    return loss;
}

/* Losses of pictures [from, to), and what they say of these. */
static void add_losses(struct work *w, size_t from, size_t to)
{
    const size_t n = w->last - w->first, width = (size_t)w->d->width;
    const double by = exp(w->d->scale);
#pragma omp parallel for schedule(static) num_threads(w->threads)
    for (size_t i = from; i < to; i++) {
        double *z = w->z + (i - from) * n, all = 0, *slope = NULL;
        w->out->loss[i] = one_loss(w, z, i);
        if (!w->slope[0])
            continue;
        slope = w->slope[0] + i * width;
        for (size_t j = 0; j < n; j++) {
            const double *u = w->unit[1] + (w->first + j) * width;
            for (size_t c = 0; c < width; c++)
                slope[c] += by * z[j] * u[c];
            all += z[j];
        }
        /* by s: sum_j z'_ij e^s cos_ij */
        w->out->dscale[i] = dot(slope, w->unit[0] + i * width, width);
        w->out->dbias[i] = all;
    }
}

/* What losses of pictures [from, to) say of texts. */
static void add_text_slopes(struct work *w, size_t from, size_t to)
{
    const size_t n = w->last - w->first, width = (size_t)w->d->width;
    const double by = exp(w->d->scale);
#pragma omp parallel for schedule(static) num_threads(w->threads)
    for (size_t j = 0; j < n; j++) {
        double *slope = w->slope[1] + (w->first + j) * width;
        for (size_t i = from; i < to; i++) {
            const double g = by * w->z[(i - from) * n + j], *u = w->unit[0] + i * width;
            for (size_t c = 0; c < width; c++)
                slope[c] += g * u[c];
        }
    }
}

static void first_pass(struct work *w, size_t from, size_t to)
{
    const size_t n = w->last - w->first;
    fill(w, from, to);
    add_columns(w, from, to);
    for (size_t i = from; i < to; i++) {
        size_t best = 0;
        w->row[i] = row_sum(w->z + (i - from) * n, n, &best);
        w->out->right[0][i] = best == i - w->first;
    }
}

static size_t block_rows(size_t n)
{
    const size_t rows = BLOCK_NUMBERS / (n ? n : 1);
    return rows ? rows : 1;
}

static void one_group(struct work *w)
{
    const size_t most = block_rows(w->last - w->first);
    for (size_t from = w->first; from < w->last; from += most)
        first_pass(w, from, from + most < w->last ? from + most : w->last);
    for (size_t from = w->first; from < w->last; from += most) {
        const size_t to = from + most < w->last ? from + most : w->last;
        fill(w, from, to);
        add_losses(w, from, to);
        if (w->slope[1])
            add_text_slopes(w, from, to);
    }
    for (size_t i = w->first; i < w->last; i++)
        w->out->right[1][i] = w->best[i] == i;
}

/* From derivatives by x / |x| to those by x. */
static void unscale(const struct work *w, int k, double *d)
{
    const size_t n = (size_t)w->d->width;
    for (size_t i = 0; i < w->d->n; i++) {
        const double *u = w->unit[k] + i * n, *slope = w->slope[k] + i * n,
                     along = dot(slope, u, n);
        for (size_t c = 0; c < n; c++)
            d[i * n + c] = (slope[c] - along * u[c]) / w->length[k][i];
    }
}

static int make_room(struct work *w, size_t group, lf_err *err)
{
    const size_t n = w->d->n + 1, all = n * (size_t)w->d->width,
                 rows = block_rows(group) < group ? block_rows(group) : group;
    bool made = true;
    for (int k = 0; k < 2; k++) {
        w->unit[k] = lf_calloc(all, sizeof *w->unit[k], err);
        w->length[k] = lf_calloc(n, sizeof *w->length[k], err);
        w->slope[k] = w->out->dimage ? lf_calloc(all, sizeof *w->slope[k], err) : NULL;
        made = made && w->unit[k] && w->length[k] && (w->slope[k] || !w->out->dimage);
    }
    w->z = lf_calloc(rows * group + 1, sizeof *w->z, err);
    w->most = lf_calloc(n, sizeof *w->most, err);
    w->sum = lf_calloc(n, sizeof *w->sum, err);
    w->row = lf_calloc(n, sizeof *w->row, err);
    w->best = lf_calloc(n, sizeof *w->best, err);
    for (size_t i = 0; i < n && w->most; i++)
        w->most[i] = -INFINITY;
    return made && w->z && w->most && w->sum && w->row && w->best ? 0 : LF_ENOMEM;
}

static void drop(struct work *w)
{
    for (int k = 0; k < 2; k++) {
        free(w->unit[k]);
        free(w->length[k]);
        free(w->slope[k]);
    }
    free(w->z);
    free(w->most);
    free(w->sum);
    free(w->row);
    free(w->best);
}

int lf_dual_loss(const struct lf_dual_loss *d, const struct lf_dual_out *out, lf_err *err)
{
    struct work w = {.d = d, .out = out, .threads = d->threads > 1 ? d->threads : 1};
    const size_t group = d->group && d->group < d->n ? d->group : d->n;
    int rc = make_room(&w, group, err);
    if (rc == 0)
        rc = normalise(&w, 0, "picture", err);
    if (rc == 0)
        rc = normalise(&w, 1, "text", err);
    for (w.first = 0; w.first < d->n && rc == 0; w.first = w.last) {
        w.last = w.first + group < d->n ? w.first + group : d->n;
        one_group(&w);
    }
    if (rc == 0 && out->dimage) {
        unscale(&w, 0, out->dimage);
        unscale(&w, 1, out->dtext);
    }
    drop(&w);
    return rc;
}
