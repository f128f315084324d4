/* SPDX-License-Identifier: Apache-2.0
 *
 * A run and its stages as JSON, the one form that status, watch, show and report print from.
 */
#ifndef LF_FLOW_DESCRIBE_H
#define LF_FLOW_DESCRIBE_H

#include <jansson.h>

#include "flow/run/state.h"

/* {"name","kind","state","reason","attempt","epoch","t_start",
 * "t_end","duration_s","class","log":[lines that matter],
 *  "dir","step","steps","progress","steps_per_s","eta_s","segments" (starts so far),"job":{}
 *  (sched.h),"metrics":{last record},"spec_id"}:
 * members that are not known are absent. */
json_t *lf_describe_stage(const lf_stage_view *s);
/* {"run","name","state","rev","created","dir","stages":[...]}; state: failed, running, unknown,
 * cancelled, purged, pending, waiting or done - the first of these that a stage has. */
json_t *lf_describe_run(const lf_run_view *v);
/* May the stage still do something without anybody asking for it? It runs, or may run where it
 * cannot be seen from here, or a scheduler has its job, or it waits and somebody drives the run. */
bool lf_describe_lives(const lf_run_view *v, const lf_stage_view *s);
/* Load a run by word (NULL: newest) with the states of its stages. */
int lf_view_find(lf_run_view *out, const lf_project *p, const char *word, lf_err *err);

#endif
