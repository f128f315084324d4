/* SPDX-License-Identifier: Apache-2.0
 *
 * Attempts and the schedulers that carry them. An attempt is written down, with a random token,
 * before a scheduler is asked; a submitter only turns it into a job and says what its scheduler
 * knows of jobs. The state of a stage never comes from here but from its directory (state.h); what
 * the scheduler says is laid over it (sched.h).
 *
 * Files of attempt N in RUN/<stage>/, in the order in which they appear:
 *   attempt.N.json  published first: number, token, revision, spec id, the resources that are asked
 *                   for
 *   script.N        published when the scheduler is about to be called: the exact bytes that it
 *                   gets. Where it is missing, the scheduler was certainly never asked.
 *   job.N.json      the jobs that carry it (struct lf_job_rec). Only a job that is listed here
 *                   may run the attempt; others with its token are orphans.
 *   cancel.N        cancel was asked for: nothing of the attempt is to be started or put back into
 *                   a queue
 *
 * An attempt is one job (that may be requeued, keeping its id) or a chain of pre-submitted links
 * 1..n, link k + 1 with "afterany" on link k. It keeps its token over requeues and links. A
 * script's bytes do not depend on run, attempt or token: those are arguments. It ends in `exec
 * "$@"`, and its arguments are the command of the wrapper (lf_submit_wrapper), so what `submit
 * --dry-run` prints is what a later submit hands over.
 */
#ifndef LF_FLOW_SUBMIT_H
#define LF_FLOW_SUBMIT_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "flow/record/queue.h"
#include "flow/run/state.h"
#include "flow/sched/tmpl.h"

enum lf_job_state { LF_JOB_QUEUED, LF_JOB_RUNNING, LF_JOB_ENDED, LF_JOB_UNKNOWN };

/* What a scheduler can do. */
enum {
    LF_CAN_BATCH = 1,  /* has a queue: whole graphs are handed over, no driver stays (local: not) */
    LF_CAN_DEPEND = 2, /* afterok and afterany between jobs */
    LF_CAN_REQUEUE = 4, /* a job may put itself back into the queue and keeps its id */
    LF_CAN_HOLD =
        8, /* first jobs are held until the whole graph is in (a server that forgets ended jobs) */
};

typedef struct lf_submit_req {
    const lf_run *run;
    const lf_doc_stage *stage;
    /* what this attempt asks for: the stage's resources with its memory_bytes, time_limit_s and
     * grace_s in them, after the failure policy has had its say */
    const lf_resources *resources;
    int attempt;
    const char *token;
    const char *project; /* base of relative paths, for the wrapper */
    const char *stage_dir;
    const char *script; /* path of script.N; NULL for local */
    int link, n_links;  /* 1, 1 without a chain of links */
    const char *prev;   /* link > 1: id of the link before it (afterany); NULL otherwise */
    bool held;          /* LF_CAN_HOLD and nothing to wait for: submit it held, release() follows */
    /* link 1: ids of the last jobs of upstream stages that are not done: afterok on all */
    const lf_texts *after;
    /* link 1: ids of jobs whose end is waited for, however it comes (max_parallel): afterany; NULL
     * or empty: none */
    const lf_texts *behind;
} lf_submit_req;

/* Jobs that somebody wants to know of. */
typedef struct lf_wanted {
    char *id;
    const char *token; /* borrowed; NULL: none */
    double t;          /* of submission */
} lf_wanted;
typedef LF_ROWS(lf_wanted) lf_wanted_list;
int lf_wanted_add(lf_wanted_list *l, const char *id, const char *token, double t, lf_err *err);
void lf_wanted_fini(lf_wanted_list *l);

/* One scheduler. self is what open made. Commands run through lf_sched_run (sched.h), so with
 * scrubbed environment, time-out and bounded output. */
typedef struct lf_submitter {
    const char *name; /* value of `scheduler` and "backend" */
    unsigned can;     /* LF_CAN_ */
    /* site: "site" of the plan document (sched.h says which members), never NULL. Starts no
     * command. */
    int (*open)(void **self, const lf_site *site, lf_err *err);
    void (*close)(void *self);

    /* ---- schedulers with LF_CAN_BATCH ---- */

    /* The script of an attempt: from the template and req->stage, req->resources, req->n_links
     * alone. LF_EINVAL: a value that this scheduler cannot take, or a fault in a template, worded
     * for the user. */
    int (*render)(void *self, const lf_submit_req *req, lf_buf *script, lf_err *err);
    /* The command that would submit it: its words are added to argv. script: the bytes (PBS takes
     * options from its lines). */
    int (*command)(void *self, const lf_submit_req *req, const char *script, lf_texts *argv,
                   lf_err *err);
    /* One call of that command. job: gets its id, and its cluster where there are several.
     *   LF_EINVAL  refused for good (text: what the scheduler said)
     *   LF_EBUSY   refused for now: limits, "temporarily unable"; no job was made
     *   LF_ECOMM   not reached, or timed out: a job may have been made
     *   LF_ENOENT  there is no such command, or it knows of no cluster: nobody was asked */
    int (*submit)(void *self, const lf_submit_req *req, const char *script, struct lf_job_rec *job,
                  lf_err *err);
    /* All jobs of this user, those that ended lately included where the scheduler still knows them:
     * one command. jobs: added to. LF_ECOMM: no answer. */
    int (*list)(void *self, lf_sched_jobs *jobs, lf_err *err);
    /* What is known of ids that list did not have; jobs: those that are known are added.
     * LF_ENOTSUP: the site keeps no history. LF_ECOMM: no answer. */
    int (*history)(void *self, const lf_wanted_list *ids, lf_sched_jobs *jobs, lf_err *err);

    /* LF_CAN_HOLD: let held jobs go. Ids that are gone or not held are no error. LF_ECOMM: ask
     * again. */
    int (*release)(void *self, const lf_texts *ids, lf_err *err);

    /* force: end the jobs (scancel, qdel), whatever they do. Otherwise ask the
     * wrapper of each, which must be running, to stop at the next safe point (SIGUSR2); that alone
     * keeps nothing from starting. Ids that are gone are no error. LF_ECOMM: not reached, ask
     * again. */
    int (*cancel)(void *self, const lf_texts *ids, bool force, lf_err *err);

    /* ---- local only ---- */

    /* job: gets its id and process. */
    int (*start)(void *self, const lf_submit_req *req, struct lf_job_rec *job, lf_err *err);
    int (*poll)(void *self, const struct lf_job_rec *job, enum lf_job_state *state, lf_err *err);
    /* Ask it to stop at the next safe point. One that is gone is no error. */
    int (*stop)(void *self, const struct lf_job_rec *job, lf_err *err);
} lf_submitter;

extern const lf_submitter lf_submitter_local, lf_submitter_slurm;
/* OpenPBS, PBS Pro, or Torque: whichever qstat is there */
extern const lf_submitter lf_submitter_pbs;
extern const lf_submitter lf_submitter_torque; /* Torque, and an error where PBS is */
/* By name; an error says which there are. */
int lf_submitter_find(const lf_submitter **out, const char *name, lf_err *err);

/* ---- what submitters share ---- */

/* The words of the wrapper's command, which are the script's arguments: RUN/rev.K/bin/loong-flow
 * exec --run-dir ... --stage ... --attempt N --token T --project P. Appended to argv. */
int lf_submit_wrapper(lf_texts *argv, const lf_submit_req *req, lf_err *err);
/* What templates of every scheduler may use (the names of the keys in capitals): STAGE KIND
 * PIPELINE NODES RANKS CPUS CPUS_PER_NODE MEMORY_MIB GPUS_N GPUS_TYPE TIME_S GRACE_S PARTITION
 * ACCOUNT QOS CONSTRAINT RESERVATION EXCLUSIVE MAIL HAVE_MODULES, lists MODULES EXCLUDE_HOSTS
 * MAIL_TYPES, raw PROLOGUE EXTRA. What was not given is absent; NODES, RANKS are at least 1, CPUS
 * absent without `cpus` but CPUS_PER_NODE then counts 1 for each rank. Added to v. */
int lf_submit_values(lf_tmpl_values *v, const lf_submit_req *req, lf_err *err);
/* "afterok:1:2,afterany:3" behind prefix; a link waits for the one before it only. Nothing is added
 * where there is nothing to wait for. */
void lf_submit_dependency(lf_buf *out, const char *prefix, const lf_submit_req *req);
/* The job's name for schedulers that take long ones: "<stage>-<token>" with ".<link>" for link >
 * 1. */
void lf_submit_job_name(char *buf, size_t cap, const lf_submit_req *req);
/* Token and link from such a name: true when it is one of ours. */
bool lf_submit_parse_name(const char *name, char token[LF_TOKEN_SIZE], int *link);

#endif
