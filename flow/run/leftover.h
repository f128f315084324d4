/* SPDX-License-Identifier: Apache-2.0
 *
 * What a freeze that did not end (killed, no space) has left below a project's data roots, and
 * taking it away: revisions without plan.json, runs without any complete revision, copies of
 * programs that no revision links, and copies that were never finished. A run in which anything
 * else was written is not one of these.
 */
#ifndef LF_FLOW_LEFTOVER_H
#define LF_FLOW_LEFTOVER_H

#include "engine/base/err.h"
#include "flow/record/fields.h"
#include "flow/record/start.h"
#include "flow/run/project.h"

/* What may be deleted, below the data root `data`. Owns what it points to. */
typedef struct lf_removable {
    const char *path, *data, *why;
    double bytes;
    const char *half_run;      /* its id, where it is a whole run that was never complete */
    const char *run, *run_dir; /* of a start: its run, and */
    struct lf_output *outputs;
    size_t n_outputs;
} lf_removable;
typedef LF_ROWS(lf_removable) lf_removables;
extern const struct lf_fields lf_removable_fields;
int lf_removables_add(lf_removables *l, const lf_removable *r, lf_err *err); /* copies */
void lf_removables_fini(lf_removables *l);

/* Append what is left. Who deletes holds submit.lock of the project, or they may belong to a submit
 * that is at it now. */
int lf_leftovers(lf_removables *list, const lf_project *p, lf_err *err);

/* Remove a revision that was not finished, and the copies of programs that only it had. The caller
 * holds submit.lock. What cannot be removed is found by lf_leftovers again. */
void lf_leftover_drop(const char *data, const char *rev_dir);

#endif
