/* SPDX-License-Identifier: Apache-2.0
 *
 * Contrastive training of vectors of texts (contrast_loss.h) as an objective of the loop. The data
 * are prompts, each of which is several texts that end with a separator (engine/train/texts.h): a
 * question, its answer, wrong answers. All answers of a step, over every micro-batch and rank, are
 * candidates for each of its questions: an extra forward pass makes the vectors of all of them,
 * with the same random decisions as the pass that is differentiated, and the loss and its
 * derivatives by vectors are computed of these once (Gao et al. 2021, GradCache). So neither the
 * size of a micro-batch nor the number of ranks changes the training. In validation the candidates
 * are those of LF_CONTRAST_GROUP questions in a row.
 */
#ifndef LF_POST_CONTRAST_TRAIN_H
#define LF_POST_CONTRAST_TRAIN_H

#include "engine/post/contrast_loss.h"
#include "engine/post/rm_score.h"
#include "engine/train/objective.h"

#define LF_CONTRAST_GROUP 64

struct lf_contrast_train_opts {
    double temperature;
    bool both;
    enum lf_rm_pool pool; /* the first token of a text, the mean of all, the last */
    int64_t separator;
    bool dropout; /* in training; measurements have none */
    int threads;  /* of the loss */
};

typedef struct lf_contrast_train lf_contrast_train;

/* The objective is borrowed until destroy. */
lf_contrast_train *lf_contrast_train_create(const struct lf_contrast_train_opts *o, lf_err *err);
const lf_objective *lf_contrast_train_objective(const lf_contrast_train *t);
void lf_contrast_train_destroy(lf_contrast_train *t);

#endif
