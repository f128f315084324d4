/* SPDX-License-Identifier: Apache-2.0
 *
 * Aggregation; see metric.h. Sums run in the order of the documents, in f64.
 */
#include "engine/infer/metric.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mt19937.h"

#define CHUNK 1000

static const char *const names[LF_AGGS] = {
    "mean",          "median",      "perplexity", "weighted_perplexity",
    "bits_per_byte", "brier_score", "f1",         "matthews_corrcoef"};

int lf_agg_find(const char *name)
{
    for (int i = 0; i < LF_AGGS; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static double sum_a(const lf_pair *v, size_t n)
{
    double s = 0;
    for (size_t i = 0; i < n; i++)
        s += v[i].a;
    return s;
}

static double ratio(const lf_pair *v, size_t n)
{
    double b = 0;
    for (size_t i = 0; i < n; i++)
        b += v[i].b;
    return sum_a(v, n) / b;
}

/* 2 tp / (2 tp + fp + fn); 0 where nothing is or was predicted to be of class 1. */
static double f1(const lf_pair *v, size_t n)
{
    double tp = 0, off = 0;
    for (size_t i = 0; i < n; i++) {
        tp += v[i].a == 1 && v[i].b == 1;
        off += (v[i].a == 1) != (v[i].b == 1);
    }
    return tp + off > 0 ? 2 * tp / (2 * tp + off) : 0;
}

#define CLASSES 256 /* beyond them, and not a class at all: the last */

static size_t class_of(double v)
{
    return v >= 0 && v < CLASSES - 1 ? (size_t)v : CLASSES - 1;
}

/* Correlation of gold and prediction over classes (Gorodkin 2004); 0 where one of them never
 * varies. */
static double mcc(const lf_pair *v, size_t n)
{
    double gold[CLASSES] = {0}, pred[CLASSES] = {0}, right = 0, pred2 = 0, gold2 = 0, both = 0,
           total = (double)n;
    for (size_t i = 0; i < n; i++) {
        right += v[i].a == v[i].b;
        gold[class_of(v[i].a)]++;
        pred[class_of(v[i].b)]++;
    }
    for (size_t c = 0; c < CLASSES; c++) {
        both += gold[c] * pred[c];
        gold2 += gold[c] * gold[c];
        pred2 += pred[c] * pred[c];
    }
    double scale = (total * total - pred2) * (total * total - gold2);
    return scale > 0 ? (right * total - both) / sqrt(scale) : 0;
}

static int by_a(const void *x, const void *y)
{
    double a = ((const lf_pair *)x)->a, b = ((const lf_pair *)y)->a;
    return (a > b) - (a < b);
}

static double median(const lf_pair *v, size_t n)
{
    lf_pair *copy = malloc(n * sizeof *copy);
    if (!copy)
        return NAN;
    memcpy(copy, v, n * sizeof *copy);
    qsort(copy, n, sizeof *copy, by_a);
    double m = copy[n / 2].a;
    free(copy);
    return m;
}

double lf_agg_value(enum lf_agg g, const lf_pair *v, size_t n)
{
    if (n == 0)
        return NAN;
    switch (g) {
    case LF_AGG_MEDIAN:
        return median(v, n);
    case LF_AGG_PERPLEXITY:
        return exp(-sum_a(v, n) / (double)n);
    case LF_AGG_WEIGHTED_PERPLEXITY:
        return exp(-ratio(v, n));
    case LF_AGG_BITS_PER_BYTE:
        return -ratio(v, n) / M_LN2;
    case LF_AGG_F1:
        return f1(v, n);
    case LF_AGG_MCC:
        return mcc(v, n);
    default:
        return sum_a(v, n) / (double)n;
    }
}

/* Sample standard deviation. */
static double deviation(const double *v, size_t n)
{
    double mean = 0, sq = 0;
    for (size_t i = 0; i < n; i++)
        mean += v[i];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++)
        sq += (v[i] - mean) * (v[i] - mean);
    return sqrt(sq / (double)(n - 1));
}

static bool bootstrap(enum lf_agg g, const lf_pair *v, size_t n, int64_t iters, lf_pair *draw,
                      double *out)
{
    size_t chunk = iters < CHUNK ? (size_t)iters : CHUNK, chunks = (size_t)iters / chunk, k = 0;
    double *all = malloc(chunk * chunks * sizeof *all);
    lf_mt19937 mt;
    if (!all)
        return false;
    for (size_t c = 0; c < chunks; c++) {
        lf_mt19937_seed_key(&mt, &(uint32_t){(uint32_t)c}, 1);
        for (size_t r = 0; r < chunk; r++) {
            for (size_t i = 0; i < n; i++)
                draw[i] = v[(size_t)(lf_mt19937_f64(&mt) * (double)n)];
            all[k++] = lf_agg_value(g, draw, n);
        }
    }
    *out = k > 1 ? deviation(all, k) : 0;
    free(all);
    return k > 1;
}

bool lf_agg_stderr(enum lf_agg g, const lf_pair *v, size_t n, int64_t iters, lf_pair *scratch,
                   double *out)
{
    double sq = 0, mean;
    if (n < 2 || iters <= 0)
        return false;
    switch (g) {
    case LF_AGG_MEAN:
        mean = sum_a(v, n) / (double)n;
        for (size_t i = 0; i < n; i++)
            sq += (v[i].a - mean) * (v[i].a - mean);
        *out = sqrt(sq / (double)(n - 1)) / sqrt((double)n);
        return true;
    case LF_AGG_MEDIAN:
    case LF_AGG_PERPLEXITY:
    case LF_AGG_F1:
    case LF_AGG_MCC:
        return bootstrap(g, v, n, iters, scratch, out);
    default:
        return false;
    }
}

double lf_group_mean(const double *v, const double *size, size_t n, bool by_size)
{
    double sum = 0, weight = 0;
    for (size_t i = 0; i < n; i++) {
        sum += v[i] * (by_size ? size[i] : 1);
        weight += by_size ? size[i] : 1;
    }
    return sum / weight;
}

double lf_group_stderr(const double *se, const double *size, size_t n, bool by_size)
{
    double sum = 0, total = 0;
    for (size_t i = 0; i < n; i++) {
        sum += by_size ? (size[i] - 1) * se[i] * se[i] * size[i] : se[i] * se[i];
        total += size[i];
    }
    return by_size ? sqrt(sum / (total - (double)n) / total) : sqrt(sum) / (double)n;
}
