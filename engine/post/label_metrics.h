/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures of labels over a whole split, as GLUE takes them (Wang et al. 2019): accuracy and F1,
 * the correlation of Matthews for several classes, of Pearson, and of Spearman. t_k texts are of
 * class k, p_k were said to be, c of s were right.
 *
 *     F1         2 tp / (2 tp + fp + fn), 0 where nothing is looked for or found
 *     macro F1   the mean of the F1 of all classes that are there or were said
 *     Matthews   (c s - sum_k p_k t_k) / sqrt((s^2 - sum p_k^2) (s^2 - sum t_k^2))
 *                (Gorodkin 2004), 0 where the root is
 *     Pearson    cov(x, y) / sqrt(var(x) var(y)), NAN where a variance is 0
 *     Spearman   Pearson of ranks; equal numbers share the mean of their ranks
 */
#ifndef LF_POST_LABEL_METRICS_H
#define LF_POST_LABEL_METRICS_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

double lf_label_f1(double tp, double fp, double fn);
/* "accuracy", of two classes "f1" of class 1, "macro_f1" and "matthews" of a table m [n, n] as
 * below; NULL: out of memory. The caller owns it. */
json_t *lf_label_measures(const double *m, int64_t n);
/* m [n, n]: how many of class i (rows) were said to be of class k. */
double lf_label_accuracy(const double *m, int64_t n);
double lf_label_macro_f1(const double *m, int64_t n);
double lf_label_matthews(const double *m, int64_t n);
double lf_label_correlation(double var_x, double var_y, double cov);
double lf_label_pearson(const double *x, const double *y, size_t n);
/* LF_ENOMEM. */
int lf_label_spearman(double *out, const double *x, const double *y, size_t n, lf_err *err);

#endif
