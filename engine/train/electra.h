/* SPDX-License-Identifier: Apache-2.0
 *
 * ELECTRA (engine/model/electra.h) as an objective of the loop. The loader hides tokens (mlm.h).
 * Of each micro-batch the generator reads these first, forward alone; of what it says about a
 * hidden token one word is drawn, and the pass that is differentiated has both encoders, where the
 * discriminator reads the draws. Dropout is that of the first pass, so the words are drawn from
 * the same distribution that is trained.
 *
 * A word is drawn by the inverse of its distribution function, sum_{k <= w} p_k > u, with u of 53
 * bits from a counter of seed, global sample and place in it. So what is drawn depends on weights
 * and data alone, and neither ranks nor micro-batches nor resumes change it; a sample that comes
 * again has another number. A validation draws with the same u each time.
 *
 * The loss is the mean over hidden tokens of the step plus `weight` times the mean over all tokens
 * of documents of the step (electra.h of engine/model).
 */
#ifndef LF_TRAIN_ELECTRA_H
#define LF_TRAIN_ELECTRA_H

#include "engine/train/objective.h"

#define LF_SITE_ELECTRA 0x454C4543u /* Philox site of the draws; that of validation is the next */

/* The word at u in [0, 1) of softmax(logits [n]), n > 0. Logits that are no numbers give word
 * n - 1. */
int32_t lf_electra_draw(const float *logits, int64_t n, double u);
/* The u of a token. */
double lf_electra_chance(uint64_t seed, bool valid, int64_t sample, int64_t place);
/* Binary cross entropy of sigmoid(z) with `replaced`; *slope becomes its derivative by z. */
double lf_electra_loss(double z, bool replaced, double *slope);

struct lf_electra_train_opts {
    double weight; /* of the discriminator's loss; > 0, 50 in the paper */
    uint64_t seed;
    int32_t seq_length;
    int threads;
};
typedef struct lf_electra_train lf_electra_train;
lf_electra_train *lf_electra_train_create(const struct lf_electra_train_opts *o, lf_err *err);
const lf_objective *lf_electra_train_objective(const lf_electra_train *t);
void lf_electra_train_destroy(lf_electra_train *t);

#endif
