/* SPDX-License-Identifier: Apache-2.0
 *
 * Training on labels as an objective of the loop (engine/train/objective.h): classes of texts and
 * pairs of texts, of tokens, regression, and spans (label_loss.h), for encoders and decoders. The
 * data are prompts with a label among their other columns (label_data.h). The loss is the mean over
 * the texts of a step.
 */
#ifndef LF_POST_LABEL_TRAIN_H
#define LF_POST_LABEL_TRAIN_H

#include "engine/post/label_data.h"
#include "engine/train/objective.h"

struct lf_label_train_opts {
    struct lf_label_form form;
    bool dropout; /* in training; measurements have none */
    /* part of a text behind the first token of this number is of type 1 (the second text of a
     * pair); -1: all is of type 0 */
    int64_t separator;
};

typedef struct lf_label_train lf_label_train;

/* enum lf_model_labels_of of a model that is trained on this kind. */
int lf_label_of(enum lf_label_kind kind);
/* Reads the label of every document of a split, so that what is wrong is told before the first
 * step. Of rank 0. */
int lf_label_check(const struct lf_label_form *f, lf_trainer *t, bool valid, lf_err *err);
/* The objective is borrowed until destroy. */
lf_label_train *lf_label_train_create(const struct lf_label_train_opts *o, lf_err *err);
const lf_objective *lf_label_train_objective(const lf_label_train *t);
void lf_label_train_destroy(lf_label_train *t);

#endif
