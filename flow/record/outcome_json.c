/* SPDX-License-Identifier: Apache-2.0
 *
 * The outcome of a sweep as --json shows it.
 */
#include "config.h"

#include "flow/record/outcome.h"

static const struct lf_fields child_fields = LF_FIELDS_SHOWN(
    lf_outcome_child, LF_MEMBERS(lf_outcome_child, number, group, settings, stage, state, stop,
                                 step, last, best, best_step, not_finite, winner));

static const struct lf_fields group_fields = LF_FIELDS_SHOWN(
    lf_outcome_group, LF_MEMBERS(lf_outcome_group, number, n, bad, settings, mean),
    {LF_FIELD_AS(lf_outcome_group, stderr_, "stderr")}, LF_MEMBERS(lf_outcome_group, winner));

const struct lf_fields lf_outcome_fields = LF_FIELDS_SHOWN(
    lf_outcome, LF_MEMBERS(lf_outcome, run, metric_stage, metric, goal, axes, seeds),
    LF_LIST(lf_outcome, children, child_fields), LF_LIST(lf_outcome, groups, group_fields));
