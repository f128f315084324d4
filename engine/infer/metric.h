/* SPDX-License-Identifier: Apache-2.0
 *
 * Aggregates one value per document to one number and its standard error, like
 * lm-evaluation-harness (api/metrics.py, 0.4.13).
 *
 *     aggregation          value                                   standard error
 *     mean                 sum / n                                 sample standard deviation
 *                                                                  / sqrt(n)
 *     median               sorted[n / 2]                           bootstrap
 *     perplexity           exp(-mean)                              bootstrap
 *     weighted_perplexity  exp(-sum a / sum b)                     none
 *     bits_per_byte        -(sum a / sum b) / ln 2                 none
 *     brier_score          mean of a                               none
 *     f1                   of class 1; a = gold, b = prediction    bootstrap
 *     matthews_corrcoef    of any classes; a = gold, b = prediction
 *                                                                  bootstrap
 *
 * Bootstrap: the sample standard deviation of the statistic over `iters` resamples. Block i of 1000
 * resamples is drawn by Python's random.Random(i).choices. With n < 2 or iters 0 there is no
 * standard error.
 */
#ifndef LF_INFER_METRIC_H
#define LF_INFER_METRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum lf_agg {
    LF_AGG_MEAN,
    LF_AGG_MEDIAN,
    LF_AGG_PERPLEXITY,
    LF_AGG_WEIGHTED_PERPLEXITY,
    LF_AGG_BITS_PER_BYTE,
    LF_AGG_BRIER,
    LF_AGG_F1,
    LF_AGG_MCC,
    LF_AGGS
};
int lf_agg_find(const char *name); /* -1: there is none of that name */

typedef struct lf_pair {
    double a, b;
} lf_pair;

double lf_agg_value(enum lf_agg g, const lf_pair *v, size_t n);
/* Computes the standard error with scratch[n]. false: there is none. */
bool lf_agg_stderr(enum lf_agg g, const lf_pair *v, size_t n, int64_t iters, lf_pair *scratch,
                   double *out);

/* Groups of tasks: the mean of the values of the tasks, weighted by size or plain, and its standard
 * error, from pooled variance or of independent means. */
double lf_group_mean(const double *v, const double *size, size_t n, bool by_size);
double lf_group_stderr(const double *se, const double *size, size_t n, bool by_size);

#endif
