/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings of [pipeline] that name something outside: the scheduler, the group of share, the
 * directory of report, data_dir. A run would find out when it begins, or ends.
 */
#ifndef LF_FLOW_PLACE_H
#define LF_FLOW_PLACE_H

#include "flow/cmd/prep.h"
#include "flow/sched/submit.h"

/* Appends a line for each that is not there, with its place in the file. */
int lf_place_check(lf_texts *out, const lf_prep *p, lf_err *err);
/* The scheduler of the pipeline; an error has its place in the file. */
int lf_place_submitter(const lf_submitter **out, const lf_prep *p, lf_err *err);

/* Returns rc. The words of a failure get the place of a key of [pipeline], [sweep] or [site]; a key
 * that nobody gave adds none. */
int lf_place_of(const lf_prep *p, const char *key, int rc, lf_err *err);

#endif
