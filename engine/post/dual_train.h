/* SPDX-License-Identifier: Apache-2.0
 *
 * Training of two towers (engine/model/dual.h) as an objective of the loop: pictures find their
 * captions, and captions their pictures, among all of a step (dual_loss.h), over every micro-batch
 * and rank. An extra forward pass makes the vectors of all, which the ranks exchange; the loss and
 * its derivatives by vectors are computed of these once, a block of pictures at a time (Gao et al.
 * 2021, arXiv:2101.06983, GradCache). So neither the size of a micro-batch nor the number of ranks
 * changes the training. In validation a picture is held against LF_DUAL_GROUP captions in a row.
 *
 * The data are documents with one picture, whose tokens are the caption. With clip the scale is at
 * most 100 (Radford et al. 2021, section 2.5): before each step and after the last one s becomes
 * min(s, log 100).
 */
#ifndef LF_POST_DUAL_TRAIN_H
#define LF_POST_DUAL_TRAIN_H

#include "engine/post/dual_loss.h"
#include "engine/train/objective.h"

#define LF_DUAL_GROUP 64

struct lf_dual_train_opts {
    enum lf_dual_kind kind;
    int threads; /* of the loss */
};

typedef struct lf_dual_train lf_dual_train;

/* The objective is borrowed until destroy. */
lf_dual_train *lf_dual_train_create(const struct lf_dual_train_opts *o, lf_err *err);
const lf_objective *lf_dual_train_objective(const lf_dual_train *t);
void lf_dual_train_destroy(lf_dual_train *t);

#endif
