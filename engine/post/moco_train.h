/* SPDX-License-Identifier: Apache-2.0
 *
 * MoCo v3 (engine/model/moco.h, moco_heads.h) as an objective of the loop. The data are documents
 * with one picture each, whose text is not read; a picture comes twice in a batch, changed anew
 * (engine/media/augment.h, views), and is one of its keys. An extra forward pass makes the rows of
 * all pictures of a step, on all ranks; heads, statistics and loss are computed of these once, on
 * every rank the same, and the pass that is differentiated takes its rows of the slopes (Gao et al.
 * 2021, GradCache). So neither the size of a micro-batch nor the number of ranks changes the
 * training: all pictures of a step are each other's negatives and share their statistics.
 *
 * Before each step but the first the average moves, t <- m t + (1 - m) w, for all its tensors, with
 * m = 1 - (1 - momentum) (1 + cos(pi s / S)) / 2 after s of S steps; before the first it is w.
 *
 * A validation is of the pictures as they are, all of them one batch: both views are the same.
 */
#ifndef LF_POST_MOCO_TRAIN_H
#define LF_POST_MOCO_TRAIN_H

#include "engine/media/augment.h"
#include "engine/post/moco_heads.h"
#include "engine/train/objective.h"

struct lf_moco_train_opts {
    double temperature, momentum;
    int64_t hidden, dim;       /* of the heads */
    struct lf_augment augment; /* its seed and views are set here, its fill by the loader */
    uint64_t seed;
    int threads;
};
typedef struct lf_moco_train lf_moco_train;
lf_moco_train *lf_moco_train_create(const struct lf_moco_train_opts *o, lf_err *err);
const lf_objective *lf_moco_train_objective(const lf_moco_train *t);
void lf_moco_train_destroy(lf_moco_train *t);

/* m after `done` of `total` steps. */
double lf_moco_momentum(double momentum, int64_t done, int64_t total);

#endif
