/* SPDX-License-Identifier: Apache-2.0
 *
 * Training on judged answers as an objective of the loop (engine/train/objective.h). Both answers
 * of a pair lie in one row, so one forward pass gives the log-probabilities of the policy for both.
 * pair_loss.h turns their sums into losses and gradients. reference.h has the log-probabilities of
 * the reference.
 */
#ifndef LF_POST_DPO_H
#define LF_POST_DPO_H

#include "engine/post/pair_loss.h"
#include "engine/post/reference.h"
#include "engine/train/objective.h"

struct lf_dpo_opts {
    bool kto; /* labelled answers instead of pairs */
    struct lf_pair_opts pair;
    struct lf_kto_opts kto_opts;
    const char *loss; /* name of the loss, for checkpoints */
    bool reference_only;
    bool dropout; /* dropout of the policy in training; the reference and validation have none */
    struct lf_reference_opts reference; /* mismatched is set here */
};

typedef struct lf_dpo lf_dpo;

/* The strings of o are borrowed until destroy. */
int lf_dpo_create(lf_dpo **out, const struct lf_dpo_opts *o, lf_err *err);
void lf_dpo_destroy(lf_dpo *d);
const lf_objective *lf_dpo_objective(const lf_dpo *d); /* borrowed until destroy */

#endif
