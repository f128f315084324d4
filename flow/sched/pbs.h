/* SPDX-License-Identifier: Apache-2.0
 *
 * What PBS commands print. Two families share the names of their commands and little else: OpenPBS
 * / PBS Pro and Torque. Which one is there is asked (`qstat --version`), never guessed: `qstat -x`
 * is job history in one and XML in the other. Sources: manual pages qsub.1B, qstat.1B, qdel.1B,
 * qalter.1B of OpenPBS 23.06 and of Torque 6.1; ends and states as an OpenPBS 23.06 was seen to
 * report them.
 */
#ifndef LF_FLOW_PBS_H
#define LF_FLOW_PBS_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"
#include "flow/record/doc.h"
#include "flow/record/queue.h"
#include "flow/sched/tmpl.h"

enum lf_pbs_flavour { LF_PBS_NONE, LF_PBS_OPENPBS, LF_PBS_TORQUE };

/* Ask. site: of the plan document (command paths, time-outs), may be NULL. LF_EINVAL: there is no
 * qstat, or it is neither. */
int lf_pbs_detect(enum lf_pbs_flavour *out, const lf_site *site, lf_err *err);
/* The answer of `qstat --version`, from both of its streams (Torque prints to stderr). */
enum lf_pbs_flavour lf_pbs_flavour_of(const char *out, const char *err_text);

/* The last line of qsub's output that is a job id, "123.server"; sites print other lines before
 * it. */
bool lf_pbs_parse_id(char *id, size_t cap, const char *out);
/* What follows from what a command said when it failed: LF_EINVAL for good, LF_EBUSY a limit that
 * made no job, LF_ECOMM not reached or cut off (a job may have been made). */
int lf_pbs_refusal(const char *said);
/* Did a command end because it knows of no server? Then it has asked nobody for anything. */
bool lf_pbs_no_cluster(const char *said);
/* Does every line say that a job is unknown or over? That is an answer, not a failure. */
bool lf_pbs_only_gone(const char *said);

/* Append entries (sched.h) for the jobs in the output of `qstat -f` of either family, wrapped or
 * not. now: seconds since the epoch, for nothing but the walltime of jobs that run. Attributes that
 * are not known are missing. */
int lf_pbs_parse_full(lf_sched_jobs *jobs, const char *text, enum lf_pbs_flavour f, lf_err *err);

/* Makes jobs that wait as small as they can be: one core, one minute, no whole nodes. A job that is
 * gone, or that runs already, is no error. limit_s: the walltime that they have, 0: none; a user
 * may lower what was asked for, and may not raise it. */
int lf_pbs_shrink(const lf_texts *ids, long long limit_s, const lf_site *site, lf_err *err);

/* Add what the templates of templates/pbs need beside lf_submit_values: SELECT, PLACE or
 * TORQUE_NODES, JOB_MEMORY_MIB, WALLTIME, QUEUE, MAIL_POINTS. LF_EINVAL: resources ask for what
 * this flavour has no word for. */
int lf_pbs_values(lf_tmpl_values *values, const lf_resources *resources, enum lf_pbs_flavour f,
                  lf_err *err);
/* Append the words of a script's #PBS lines to a qsub command, up to the first line that is neither
 * comment nor blank. Quotes are taken off as qsub does. LF_EINVAL: an open quote, or an option that
 * is loong-flow's own to give. */
int lf_pbs_directives(lf_texts *argv, const char *script, lf_err *err);

/* "1:02:03" in seconds, -1 when it is no time; and back, into buf. */
long lf_pbs_seconds(const char *text);
const char *lf_pbs_clock(char buf[32], long long s);

#endif
