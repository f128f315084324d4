/* SPDX-License-Identifier: Apache-2.0
 *
 * What SLURM's commands print, as jobs (record/queue.h). States are matched by their first word,
 * cut ones ("OUT_OF_ME+") by what is there; a state nobody knows is "unknown", never success.
 * Source: man pages squeue, sacct, scontrol, sbatch of 22.05 and job_state_codes.
 */
#ifndef LF_FLOW_SLURM_PARSE_H
#define LF_FLOW_SLURM_PARSE_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/sched/submit.h"

/* id, state, reason, start, end, submit, partition, nodes, name, comment: what a user writes comes
 * last. */
#define LF_SQUEUE_FORMAT "%i|%T|%r|%S|%e|%V|%P|%N|%j|%k"
/* Fields that every sacct has had for ten years. */
#define LF_SACCT_FORMAT "JobIDRaw,State,ExitCode,Submit,Start,End,NodeList"

/* The last line of sbatch --parsable that is an id, "123" or "123;cluster"; sites print other lines
 * before it. */
bool lf_slurm_parse_id(char *id, size_t id_cap, char *cluster, size_t cluster_cap, const char *out);
/* What follows from what a command said when it failed: LF_EINVAL for good, LF_EBUSY a limit or a
 * busy controller that made no job, LF_ECOMM not reached (a job may have been made). */
int lf_slurm_refusal(const char *said);
/* Did a command end because it knows of no cluster? Then it has asked nobody for anything. */
bool lf_slurm_no_cluster(const char *said);
bool lf_slurm_no_accounting(const char *said);
bool lf_slurm_unknown_id(const char *said);

/* Entries of text in the formats above. LF_ECOMM: not understood. Arrays and steps are passed
 * over. */
int lf_slurm_parse_squeue(lf_sched_jobs *jobs, const char *text, lf_err *err);
/* Rows submitted long before t belong to another job that had the id, and are
 * passed over. Appends. */
int lf_slurm_parse_sacct(lf_sched_jobs *jobs, const char *text, const lf_wanted_list *wanted,
                         lf_err *err);
int lf_slurm_parse_scontrol(lf_sched_jobs *jobs, const char *text, const lf_wanted_list *wanted,
                            lf_err *err);

#endif
