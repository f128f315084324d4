/* SPDX-License-Identifier: Apache-2.0
 *
 * When will a run be over? What its running stages still need by their own pace, and what was
 * estimated for those that wait (estimate_s of the plan document).
 */
#ifndef LF_FLOW_ETA_H
#define LF_FLOW_ETA_H

#include "flow/record/shown.h"
#include "flow/run/state.h"

typedef struct lf_eta {
    double left_s;
    int stages;    /* that are not done */
    bool at_least; /* of some of them nothing is known */
} lf_eta;

/* With jobs = 1 (stages at once) the times of the stages add up; with more, those along the longest
 * way through the graph do. selected: the stages that count, NULL: all. now: the stages as they are
 * shown, in the order of the view; the entry of a stage that does not run may be zero. */
void lf_eta_of(lf_eta *out, const lf_run_view *v, const lf_stage_shown *now, const bool *selected,
               int jobs);

#endif
