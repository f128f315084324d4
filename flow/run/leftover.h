/* SPDX-License-Identifier: Apache-2.0
 *
 * What a freeze that did not end (killed, no space) has left below a project's data roots, and
 * taking it away: revisions without plan.json, runs without any complete revision, copies of
 * programs that no revision links, and copies that were never finished. A run in which anything
 * else was written is not one of these.
 */
#ifndef LF_FLOW_LEFTOVER_H
#define LF_FLOW_LEFTOVER_H

#include <jansson.h>

#include "engine/base/err.h"
#include "flow/run/project.h"

/* Append {"path","data","why","bytes"} for each, and "half_run": id where it is a whole run. Who
 * deletes holds submit.lock of the project, or they may belong to a submit that is at it now. */
int lf_leftovers(json_t *list, const lf_project *p, lf_err *err);

/* Remove a revision that was not finished, and the copies of programs that only it had. The caller
 * holds submit.lock. What cannot be removed is found by lf_leftovers again. */
void lf_leftover_drop(const char *data, const char *rev_dir);

#endif
