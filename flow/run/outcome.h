/* SPDX-License-Identifier: Apache-2.0
 *
 * What the children of a sweep have reached, from the metrics of their stages.
 */
#ifndef LF_FLOW_OUTCOME_H
#define LF_FLOW_OUTCOME_H

#include "engine/base/err.h"
#include "flow/record/outcome.h"
#include "flow/run/state.h"

/* metric: "STAGE.KEY", NULL: the one of [sweep], else valid_loss or loss of the last stage that has
 * one. goal: "min", "max", NULL: that of [sweep], else min. LF_EINVAL: the run is no sweep, or
 * metric names no stage. The view is borrowed. */
int lf_outcome_load(lf_outcome *out, const lf_run_view *v, const char *metric, const char *goal,
                    lf_err *err);
void lf_outcome_fini(lf_outcome *o);

/* The value that children are compared by, the last one: -1 when a is better than b, 1 when b is, 0
 * when they are equal. Values that are not finite or not there are behind all others. */
int lf_outcome_compare(const lf_real *a, const lf_real *b, const char *goal);

#endif
