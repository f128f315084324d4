/* SPDX-License-Identifier: Apache-2.0
 *
 * What stands between us and a batch scheduler: its commands (sched_cmd.c), one look at all jobs of
 * a user that every loong-flow process shares (sched_poll.c), and what it means for the stages of a
 * run (sched_view.c).
 *
 * Site keys, from [site] of the site, user or (where no site file sets them) pipeline file, kept in
 * "site" of the plan document:
 *   poll_s         least seconds between two looks at the queue, all processes of the user together
 *                  (60)
 *   timeout_s      a command that takes longer is ended (60; looks at the queue: a quarter of it);
 *                  a command of ours waits twice that in all for a scheduler that does not answer
 *   grace_lost_s   so long after a job was last seen it counts as lost when nothing knows it (270)
 *   settle_s       how long a request to submit may still be on its way after it failed (3)
 *   submit_wait_s  how long a submission is tried again while the scheduler says "not now" (120);
 *                  when it says nothing, twice timeout_s at most
 *   chain, launcher, templates, exclude (hosts), trust (users whose templates are read)
 *   commands       {"sbatch": path, ...} for commands that are not to be found on PATH
 */
#ifndef LF_FLOW_SCHED_H
#define LF_FLOW_SCHED_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "flow/run/state.h"
#include "flow/sched/submit.h"

/* ---- commands ---- */

typedef struct lf_sched_out {
    int exit;        /* exit status, -1 when it did not exit by itself */
    int signal;      /* that ended it, 0 */
    bool timed_out;  /* we ended it */
    bool missing;    /* there is no such command */
    lf_buf out, err; /* at most 64 MiB and 64 KiB; what comes after is dropped */
    bool cut;
} lf_sched_out;

/* Run argv[0] (found on PATH, or where site "commands" says) with stdin from /dev/null. Its
 * environment is ours without what belongs to the job we may be in (SLURM_*, SBATCH_*, SRUN_*,
 * SQUEUE_*, SACCT_*, SCANCEL_*, SCONTROL_*, SINFO_*, PBS_*, PMIX_*, PMI_*, OMPI_*, SALLOC_* except
 * SLURM_CONF, PBS_CONF_FILE, PBS_SERVER, PBS_DEFAULT), with LC_ALL=C. timeout_s 0: site timeout_s.
 * 0 whenever the command could be started or is missing; look at *out. The command dies with us. */
int lf_sched_run(lf_sched_out *out, const lf_texts *argv, const lf_site *site, double timeout_s,
                 lf_err *err);
/* Run words[0] with exactly this environment, for at most timeout_s; for commands that are no
 * scheduler's. The rest is as above. */
int lf_command_run(lf_sched_out *out, char *const *words, char **env, double timeout_s,
                   lf_err *err);
/* From now on, commands that do not answer may take site timeout_s twice in all, until one does
 * answer; what is asked after that counts as not answered without being run. NULL: each has its own
 * time again. A command of ours that asks several of theirs is begun and ended with this, so that
 * its user does not wait for each. */
void lf_sched_patience(const lf_site *site);
double lf_sched_timeout_s(const lf_site *site);
/* lf_sched_run for a fixed list of words that ends with NULL. */
int lf_sched_runv(lf_sched_out *out, const lf_site *site, double timeout_s, lf_err *err,
                  const char *word0, ...) __attribute__((sentinel));
void lf_sched_out_fini(lf_sched_out *o);
/* What it said, as one line of at most cap bytes without control bytes: stderr, else stdout.
 * Returns buf. */
const char *lf_sched_said(char *buf, size_t cap, const lf_sched_out *o);

/* ---- what a scheduler says of a job (record/queue.h) ---- */

typedef struct lf_queue {
    lf_sched_jobs jobs; /* those that left the queue stay for a day */
    lf_names by_id, by_token;
    size_t *next;   /* of each job: the next of its token, LF_NAMES_NONE: none */
    double t;       /* when the scheduler answered last, 0: never */
    bool reached;   /* the last look got an answer */
    char said[300]; /* why not */
} lf_queue;

/* Everything that is known. ids: what the caller wants to know of. A look at the queue is made when
 * the last one, by any process of this user, is older than poll_s, or when `now` is set; otherwise
 * what was found then is used. Not reaching the scheduler is no error: reached is false and jobs
 * are as last seen. */
int lf_queue_look(lf_queue *out, const lf_submitter *s, void *self, const lf_site *site,
                  const lf_wanted_list *ids, bool now, lf_err *err);
void lf_queue_fini(lf_queue *q);
const lf_sched_job *lf_queue_find(const lf_queue *q, const char *id);
/* Jobs with a token, by link: how many there are, into out. */
#define LF_JOBS_MOST 1024
size_t lf_queue_by_token(const lf_sched_job *out[LF_JOBS_MOST], const lf_queue *q,
                         const char *token);

/* ---- stages ---- */

/* Lay what the scheduler knows over the states of a run, as the last word where the directory has
 * no stronger evidence:
 *   queued           pending, with the scheduler's reason and estimated start
 *   running          running (also elsewhere)
 *   ended, no end record of ours   failed, with the cause; only when the record did not come within
 *                                  a grace
 *   not known to anybody           unknown with the age of what was last seen; after grace_lost_s
 *                                  failed (lost)
 * Each such stage gets view->job. Runs of the local scheduler are left alone. now: as above. */
int lf_sched_overlay(lf_run_view *v, bool now, lf_err *err);
/* Its two halves, for callers that need the queue itself. */
int lf_sched_look(lf_queue *q, const lf_run_view *v, const lf_submitter *sub, void *self, bool now,
                  lf_err *err);
int lf_sched_apply(lf_run_view *v, const lf_submitter *sub, const lf_queue *q, lf_err *err);
/* Name of the scheduler that has the run's attempts, NULL: none or local. Borrowed. */
const char *lf_sched_backend(const lf_run_view *v);

/* job.<attempt>.json, owned; NULL when there is none. */
struct lf_job_rec *lf_sched_job_record(const lf_stage_view *s, int attempt);

#endif
