/* SPDX-License-Identifier: Apache-2.0
 *
 * See label_metrics.h. */
#include "engine/post/label_metrics.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "engine/base/mem.h"

double lf_label_f1(double tp, double fp, double fn)
{
    const double all = 2 * tp + fp + fn;
    return all > 0 ? 2 * tp / all : 0;
}

/* How many are of class k, or with `said` were said to be. */
static double of_class(const double *m, int64_t n, int64_t k, bool said)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += said ? m[i * n + k] : m[k * n + i];
    return sum;
}

double lf_label_accuracy(const double *m, int64_t n)
{
    double right = 0, all = 0;
    for (int64_t k = 0; k < n; k++) {
        right += m[k * n + k];
        all += of_class(m, n, k, false);
    }
    return right / all;
}

double lf_label_macro_f1(const double *m, int64_t n)
{
    double sum = 0, classes = 0;
    for (int64_t k = 0; k < n; k++) {
        const double is = of_class(m, n, k, false), said = of_class(m, n, k, true),
                     both = m[k * n + k];
        if (!(is + said > 0))
            continue;
        sum += lf_label_f1(both, said - both, is - both);
        classes++;
    }
    return sum / classes;
}

double lf_label_matthews(const double *m, int64_t n)
{
    double c = 0, s = 0, pt = 0, pp = 0, tt = 0;
    for (int64_t k = 0; k < n; k++) {
        const double t = of_class(m, n, k, false), p = of_class(m, n, k, true);
        c += m[k * n + k];
        s += t;
        pt += p * t;
        pp += p * p;
        tt += t * t;
    }
    const double root = sqrt((s * s - pp) * (s * s - tt));
    return root > 0 ? (c * s - pt) / root : 0;
}

json_t *lf_label_measures(const double *m, int64_t n)
{
    json_t *o = json_pack("{s:f}", "accuracy", lf_label_accuracy(m, n));
    const int bad =
        !o || (n == 2 && json_object_set_new(o, "f1", json_real(lf_label_f1(m[3], m[1], m[2])))) ||
        json_object_set_new(o, "macro_f1", json_real(lf_label_macro_f1(m, n))) ||
        json_object_set_new(o, "matthews", json_real(lf_label_matthews(m, n)));
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

double lf_label_correlation(double var_x, double var_y, double cov)
{
    return var_x > 0 && var_y > 0 ? cov / sqrt(var_x * var_y) : (double)NAN;
}

double lf_label_pearson(const double *x, const double *y, size_t n)
{
    double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
    for (size_t i = 0; i < n; i++) {
        mx += x[i] / (double)n;
        my += y[i] / (double)n;
    }
    for (size_t i = 0; i < n; i++) {
        xx += (x[i] - mx) * (x[i] - mx);
        yy += (y[i] - my) * (y[i] - my);
        xy += (x[i] - mx) * (y[i] - my);
    }
    return lf_label_correlation(xx, yy, xy);
}

struct ranked {
    double x;
    size_t at;
};

static int by_value(const void *a, const void *b)
{
    const double x = ((const struct ranked *)a)->x, y = ((const struct ranked *)b)->x;
    return (x > y) - (x < y);
}

static void rank_all(double *out, struct ranked *work, const double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        work[i] = (struct ranked){x[i], i};
    qsort(work, n, sizeof *work, by_value);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && !(work[end].x > work[i].x);)
            end++;
        for (size_t k = i; k < end; k++)
            out[work[k].at] = 0.5 * (double)(i + end - 1);
    }
}

int lf_label_spearman(double *out, const double *x, const double *y, size_t n, lf_err *err)
{
    struct ranked *work = lf_calloc(n + 1, sizeof *work, err);
    double *rx = lf_calloc(2 * n + 1, sizeof *rx, err);
    const int rc = work && rx ? 0 : LF_ENOMEM;
    if (rc == 0) {
        rank_all(rx, work, x, n);
        rank_all(rx + n, work, y, n);
        *out = lf_label_pearson(rx, rx + n, n);
    }
    free(work);
    free(rx);
    return rc;
}
