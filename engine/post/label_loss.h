/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses on labels (engine/model/labels.c), of one text each. z are the numbers that the model
 * gives, y what is right; p is softmax(z), s(x) = 1 / (1 + e^-x).
 *
 *     one       L = -log p_y                               one of N classes
 *     any       L = -1/N sum_k y_k log s(z_k) + (1 - y_k) log s(-z_k)
 *                                                          any of N, each by itself
 *     numbers   L = 1/N sum_k (z_k - y_k)^2                regression
 *     tokens    L = 1/|T| sum_{t in T} -log p_t,y_t        T: the tokens that have a class
 *     span      L = -1/2 (log softmax(b)_i + log softmax(e)_j)
 *                                                          b, e: the first and the second number of
 *                                                          all tokens; the answer is tokens i to j
 *
 * (Devlin et al. 2019, BERT, section 4; transformers has the same, but for tokens, where it takes
 * the mean over all tokens of a batch: here every text counts alike, as everywhere in this folder.)
 * Derivatives are added to d, times `scale`. Arithmetic is f64.
 */
#ifndef LF_POST_LABEL_LOSS_H
#define LF_POST_LABEL_LOSS_H

#include <stdbool.h>
#include <stdint.h>

enum lf_label_kind {
    LF_LABEL_ONE,
    LF_LABEL_ANY,
    LF_LABEL_NUMBERS,
    LF_LABEL_TOKENS,
    LF_LABEL_SPAN,
    LF_LABEL_KINDS
};

/* Sums over texts, which may be added up. */
enum lf_label_sum {
    LF_LABEL_TEXTS,
    LF_LABEL_LOSS,
    LF_LABEL_ITEMS,   /* what is right or wrong: classes, tokens, spans */
    LF_LABEL_CORRECT, /* of these */
    /* with two classes (the second is the one that is looked for), and of any */
    LF_LABEL_TP,
    LF_LABEL_FP,
    LF_LABEL_FN,
    LF_LABEL_TN,
    /* of numbers: the model's x, the right ones y */
    LF_LABEL_X,
    LF_LABEL_Y,
    LF_LABEL_XX,
    LF_LABEL_YY,
    LF_LABEL_XY,
    LF_LABEL_OVERLAP, /* of spans: F1 of the tokens of both */
    LF_LABEL_SUMS
};

/* The class of the largest of n numbers, the first of equal ones. */
int64_t lf_label_best(const float *z, int64_t n);
/* The best span of n tokens, z [n, 2]: the largest b_i + e_j with i <= j, the first of equal
 * ones. */
void lf_label_best_span(const float *z, int64_t n, int64_t *begin, int64_t *end);

struct lf_label_loss {
    enum lf_label_kind kind;
    int64_t n;      /* numbers of a row */
    int64_t rows;   /* tokens and span: of the text; else 1 */
    const float *z; /* [rows, n] */
    /* one: a class; any, numbers: [n]; tokens: [rows] classes, below 0: none; span: first and last
     * token */
    const double *y;
    float *d; /* [rows, n]; NULL: no derivatives */
    double scale;
};
/* Adds a text to sums[LF_LABEL_SUMS]. */
void lf_label_add(const struct lf_label_loss *l, double *sums);

/* What is reported: the loss, then accuracy, F1 and Matthews (one, tokens; any: F1 over all), mean
 * squared error and Pearson (numbers), exact match and F1 (span). NAN where a number has no
 * meaning, such as F1 of three classes. */
#define LF_LABEL_METRICS 4
void lf_label_means(enum lf_label_kind kind, int64_t n, const double *sums,
                    double out[LF_LABEL_METRICS]);

#endif
