/* SPDX-License-Identifier: Apache-2.0
 *
 * See label_loss.h. */
#include "engine/post/label_loss.h"

#include <math.h>

#include "engine/post/label_metrics.h"

int64_t lf_label_best(const float *z, int64_t n)
{
    int64_t best = 0;
    for (int64_t k = 1; k < n; k++)
        if (z[k] > z[best])
            best = k;
    return best;
}

void lf_label_best_span(const float *z, int64_t n, int64_t *begin, int64_t *end)
{
    int64_t i = 0;
    double most = -INFINITY;
    for (int64_t j = 0; j < n; j++) {
        if (z[2 * j] > z[2 * i])
            i = j;
        if ((double)z[2 * i] + (double)z[2 * j + 1] > most) {
            most = (double)z[2 * i] + (double)z[2 * j + 1];
            *begin = i;
            *end = j;
        }
    }
}

/* -log softmax(z)_y over n numbers that lie `step` apart; d gets its derivatives times scale. */
static double cross_entropy(const float *z, int64_t n, int64_t step, int64_t y, float *d,
                            double scale)
{
    double most = -INFINITY, sum = 0;
    for (int64_t k = 0; k < n; k++)
        most = fmax(most, (double)z[k * step]);
    for (int64_t k = 0; k < n; k++)
        sum += exp((double)z[k * step] - most);
    for (int64_t k = 0; d && k < n; k++)
        d[k * step] += (float)(scale * (exp((double)z[k * step] - most) / sum - (k == y)));
    return most + log(sum) - (double)z[y * step];
}

static void count_pair(double *sums, bool is, bool said)
{
    sums[is ? (said ? LF_LABEL_TP : LF_LABEL_FN) : (said ? LF_LABEL_FP : LF_LABEL_TN)] += 1;
}

static void count_class(double *sums, int64_t n, int64_t y, int64_t said)
{
    sums[LF_LABEL_ITEMS] += 1;
    sums[LF_LABEL_CORRECT] += said == y;
    if (n == 2)
        count_pair(sums, y == 1, said == 1);
}

static double add_any(const struct lf_label_loss *l, double *sums)
{
    double loss = 0;
    bool all = true;
    for (int64_t k = 0; k < l->n; k++) {
        const double z = (double)l->z[k], y = l->y[k], s = 1 / (1 + exp(-z));
        const bool is = y > 0.5, said = z > 0;
        loss += fmax(z, 0) - z * y + log1p(exp(-fabs(z)));
        if (l->d)
            l->d[k] += (float)(l->scale * (s - y) / (double)l->n);
        count_pair(sums, is, said);
        all = all && is == said;
    }
    sums[LF_LABEL_ITEMS] += 1;
    sums[LF_LABEL_CORRECT] += all;
    return loss / (double)l->n;
}

static double add_numbers(const struct lf_label_loss *l, double *sums)
{
    double loss = 0;
    for (int64_t k = 0; k < l->n; k++) {
        const double x = (double)l->z[k], y = l->y[k];
        loss += (x - y) * (x - y);
        if (l->d)
            l->d[k] += (float)(l->scale * 2 * (x - y) / (double)l->n);
        sums[LF_LABEL_ITEMS] += 1;
        sums[LF_LABEL_X] += x;
        sums[LF_LABEL_Y] += y;
        sums[LF_LABEL_XX] += x * x;
        sums[LF_LABEL_YY] += y * y;
        sums[LF_LABEL_XY] += x * y;
    }
    return loss / (double)l->n;
}

static double add_tokens(const struct lf_label_loss *l, double *sums)
{
    double loss = 0, of = 0;
    for (int64_t t = 0; t < l->rows; t++)
        of += l->y[t] >= 0;
    for (int64_t t = 0; t < l->rows; t++) {
        const int64_t y = (int64_t)l->y[t], at = t * l->n;
        if (l->y[t] < 0)
            continue;
        loss += cross_entropy(l->z + at, l->n, 1, y, l->d ? l->d + at : NULL, l->scale / of);
        count_class(sums, l->n, y, lf_label_best(l->z + at, l->n));
    }
    return of > 0 ? loss / of : 0;
}

static double add_span(const struct lf_label_loss *l, double *sums)
{
    const int64_t i = (int64_t)l->y[0], j = (int64_t)l->y[1];
    int64_t from = 0, to = 0;
    lf_label_best_span(l->z, l->rows, &from, &to);
    const int64_t low = from > i ? from : i, high = to < j ? to : j;
    const double both = high >= low ? (double)(high - low + 1) : 0;
    sums[LF_LABEL_ITEMS] += 1;
    sums[LF_LABEL_CORRECT] += from == i && to == j;
    sums[LF_LABEL_OVERLAP] += 2 * both / (double)(to - from + 1 + j - i + 1);
    return 0.5 * (cross_entropy(l->z, l->rows, 2, i, l->d, 0.5 * l->scale) +
                  cross_entropy(l->z + 1, l->rows, 2, j, l->d ? l->d + 1 : NULL, 0.5 * l->scale));
}

void lf_label_add(const struct lf_label_loss *l, double *sums)
{
    double loss = 0;
    switch (l->kind) {
    case LF_LABEL_ONE:
        loss = cross_entropy(l->z, l->n, 1, (int64_t)l->y[0], l->d, l->scale);
        count_class(sums, l->n, (int64_t)l->y[0], lf_label_best(l->z, l->n));
        break;
    case LF_LABEL_ANY:
        loss = add_any(l, sums);
        break;
    case LF_LABEL_NUMBERS:
        loss = add_numbers(l, sums);
        break;
    case LF_LABEL_TOKENS:
        loss = add_tokens(l, sums);
        break;
    case LF_LABEL_SPAN:
        loss = add_span(l, sums);
        break;
    case LF_LABEL_KINDS:
        break;
    }
    sums[LF_LABEL_TEXTS] += 1;
    sums[LF_LABEL_LOSS] += loss;
}

void lf_label_means(enum lf_label_kind kind, int64_t n, const double *s,
                    double out[LF_LABEL_METRICS])
{
    const double items = s[LF_LABEL_ITEMS], right = s[LF_LABEL_CORRECT] / items;
    out[0] = s[LF_LABEL_LOSS] / s[LF_LABEL_TEXTS];
    for (int i = 1; i < LF_LABEL_METRICS; i++)
        out[i] = (double)NAN;
    if (kind == LF_LABEL_NUMBERS) {
        const double x = s[LF_LABEL_X] / items, y = s[LF_LABEL_Y] / items;
        out[1] = out[0];
        out[2] =
            lf_label_correlation(s[LF_LABEL_XX] / items - x * x, s[LF_LABEL_YY] / items - y * y,
                                 s[LF_LABEL_XY] / items - x * y);
        return;
    }
    out[1] = right;
    if (kind == LF_LABEL_SPAN) {
        out[2] = s[LF_LABEL_OVERLAP] / items;
        return;
    }
    if (kind != LF_LABEL_ANY && n != 2)
        return;
    out[2] = lf_label_f1(s[LF_LABEL_TP], s[LF_LABEL_FP], s[LF_LABEL_FN]);
    const double pair[] = {s[LF_LABEL_TN], s[LF_LABEL_FP], s[LF_LABEL_FN], s[LF_LABEL_TP]};
    out[3] = lf_label_matthews(pair, 2);
}
