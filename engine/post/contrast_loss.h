/* SPDX-License-Identifier: Apache-2.0
 *
 * InfoNCE (van den Oord et al. 2018) over the vectors of texts: each question a_i has one answer
 * p_i, and may have answers that are wrong, n_ik (hard negatives). Of a group of questions, with
 * c_j all its p and n, and cos the cosine:
 *
 *     L_i = -log( exp(cos(a_i, p_i) / T) / sum_j exp(cos(a_i, c_j) / T) )
 *
 * With `both` it is the mean of that and of the same for p_i among all a of the group. Two passes
 * of one text that differ in their dropout make a pair without labels (Gao et al. 2021, SimCSE).
 * All arithmetic is f64, each number in one order whatever the threads.
 */
#ifndef LF_POST_CONTRAST_LOSS_H
#define LF_POST_CONTRAST_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define LF_CONTRAST_THREADS 64 /* most threads */

struct lf_contrast {
    double temperature; /* T > 0 */
    bool both;
    size_t group; /* most questions of a group, in their order; 0: all are one */
    int64_t width;
    size_t n;           /* texts: a question, its answer, wrong answers, the next question ... */
    const double *x;    /* [n, width] their vectors, none of length 0 */
    const double *role; /* [n] 0: a question, 1: its answer, above: wrong */
    int threads;        /* as many are used where there is much to do; below 2: one */
};
/* loss, cosine, right: [questions] L_i, cos(a_i, p_i), whether p_i is the best of all c_j; d
 * [n, width] (NULL: none) the derivatives of the sum of all L_i. LF_EINVAL: a question without an
 * answer, a vector without length. LF_ENOMEM. */
struct lf_contrast_out {
    double *loss, *cosine;
    bool *right;
    double *d;
};
int lf_contrast_loss(const struct lf_contrast *c, const struct lf_contrast_out *out, lf_err *err);
/* How many questions there are. */
size_t lf_contrast_questions(const struct lf_contrast *c);

#endif
