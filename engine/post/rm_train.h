/* SPDX-License-Identifier: Apache-2.0
 *
 * Training of a reward model as an objective of the loop (engine/train/objective.h). The data are
 * pairs of answers; both lie in one row of a micro-batch, so one forward pass scores both. The
 * score of an answer is that of its last token. The loss is bt_loss.h, the mean over all pairs of a
 * step.
 */
#ifndef LF_POST_RM_TRAIN_H
#define LF_POST_RM_TRAIN_H

#include "engine/train/objective.h"

enum lf_rm_normalize { LF_RM_NORM_AUTO, LF_RM_NORM_NO, LF_RM_NORM_TRAIN, LF_RM_NORM_VALID };

struct lf_rm_train_opts {
    double centre;
    bool dropout;     /* in training; measurements have none */
    bool margins;     /* use the margins of the data, where it has them */
    bool require_eos; /* an answer that does not end with the data's EOS is an error */
    /* After the last step mean and standard deviation of the scores of both answers over a split of
     * the first source go into the final checkpoint (rm_score.h). AUTO: the valid split where there
     * is one, else the train split. */
    enum lf_rm_normalize normalize;
};

typedef struct lf_rm_train lf_rm_train;

/* The objective is borrowed until destroy. */
lf_rm_train *lf_rm_train_create(const struct lf_rm_train_opts *o, lf_err *err);
const lf_objective *lf_rm_train_objective(const lf_rm_train *r);
void lf_rm_train_destroy(lf_rm_train *r);

#endif
