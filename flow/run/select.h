/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stages of a run a command is about.
 */
#ifndef LF_FLOW_SELECT_H
#define LF_FLOW_SELECT_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"
#include "flow/run/state.h"

typedef struct lf_select {
    const char *const *only; /* these, whatever they need */
    size_t n_only;
    const char *until; /* this one and what it needs */
    const char *from;  /* this one and what needs it; with until: what lies between */
} lf_select;

/* out: v->n flags. Nothing given: all. LF_ENOENT: no such stage, with the nearest name. */
int lf_select_stages(bool *out, const lf_run_view *v, const lf_select *s, lf_err *err);
/* Stages that were asked for by name (only, until) are wanted, also when a purge took what nobody
 * reads any more. */
void lf_select_force(lf_run_view *v, const lf_select *s);
/* Mark what a name stands for: a stage, or in a sweep those of all children (lf_sweep_named).
 * LF_ENOENT when there is none of that name. */
int lf_select_named(bool *out, const lf_run_view *v, const char *name, lf_err *err);
/* Mark everything that needs what a name stands for, directly or not, and does not have that name.
 * LF_ENOENT as above. */
int lf_select_after(bool *out, const lf_run_view *v, const char *name, lf_err *err);

#endif
