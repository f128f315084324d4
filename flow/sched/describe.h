/* SPDX-License-Identifier: Apache-2.0
 *
 * A run and its stages, the one form that status, watch, show and report print from.
 */
#ifndef LF_FLOW_DESCRIBE_H
#define LF_FLOW_DESCRIBE_H

#include "flow/record/shown.h"
#include "flow/run/state.h"

/* Both borrow from the view. */
void lf_describe_stage(lf_stage_shown *out, const lf_stage_view *s);
int lf_describe_run(lf_run_shown *out, const lf_run_view *v, lf_err *err);
void lf_stage_shown_fini(lf_stage_shown *s);
void lf_run_shown_fini(lf_run_shown *r);
/* May the stage still do something without anybody asking for it? It runs, or may run where it
 * cannot be seen from here, or a scheduler has its job, or it waits and somebody drives the run. */
bool lf_describe_lives(const lf_run_view *v, const lf_stage_view *s);
/* Load a run by word (NULL: newest) with the states of its stages. */
int lf_view_find(lf_run_view *out, const lf_project *p, const char *word, lf_err *err);

#endif
