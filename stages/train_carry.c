/* SPDX-License-Identifier: Apache-2.0
 *
 * What the stages that train leave for the next start of the same stage.
 */
#include "config.h"

#include "stages/opts.h"

const lf_opt_carry lf_train_carry[] = {
    {"checkpoints/step-*", false},
    {"checkpoint", false}, /* the end of a shorter run */
    {"adapter", false},    /* what that was made of */
    {"best", false},
    {"best-step-*", false},
    {"reference", false}, /* log-probabilities of the reference, whole and in part */
    {"reference/partial.h5", false},
    {"rollouts/*.h5", false}, /* rounds, published; and those under way */
    {"rollouts/*.part*", true},
    {NULL, false},
};
