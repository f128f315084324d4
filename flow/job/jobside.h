/* SPDX-License-Identifier: Apache-2.0
 *
 * What the wrapper asks and does inside a job: which scheduler am I in, when does the job end, what
 * becomes of it, put it back into the queue. Used by exec_*.c only. One table of functions per
 * scheduler (jobside_slurm.c, jobside_pbs.c); outside a job everything answers "unknown" and
 * nothing can be done.
 *
 * Facts behind it, seen on SLURM 22.05 and OpenPBS 23.06:
 *   - `scontrol requeue` keeps the id, so afterok children go on waiting, but only while the job
 *     still runs: a job that has ended with an exit code other than 0 has failed its children for
 *     good, whatever is done afterwards.
 *   - A job that is being cancelled (COMPLETING) comes back when it is requeued. So the state is
 *     asked after the stage has ended, and only RUNNING may be requeued; never from a signal
 *     handler.
 *   - After a node was lost the same id runs elsewhere while the old processes live on: RUNNING
 *     counts only with our own node.
 *   - A requeued job takes changes of its request while it is still completing: memory, excluded
 *     nodes, and a longer time limit.
 *   - PBS users may not requeue. The next link was submitted beforehand; re-pointing a dependency,
 *     and deleting a link that has children, both delete the children.
 */
#ifndef LF_FLOW_JOBSIDE_H
#define LF_FLOW_JOBSIDE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "flow/sched/submit.h"

enum lf_jobside_state {
    LF_JOBSIDE_UNKNOWN, /* no job, or the scheduler does not answer */
    LF_JOBSIDE_RUNNING, /* it runs and nobody is ending it */
    /* cancelled, preempted, at its limit, put back already, unknown to the scheduler: leave it
     * alone */
    LF_JOBSIDE_ENDING
};

struct lf_jobside;

/* A changed request. A member that is 0 or NULL keeps what the job asked for. */
typedef struct lf_jobside_ask {
    int64_t memory_bytes; /* per node */
    int64_t time_limit_s;
    const char *exclude; /* hosts, separated by commas */
} lf_jobside_ask;

typedef struct lf_jobside_ops {
    const char *name; /* as in "backend": "slurm", "pbs", "torque" */
    bool can_requeue;
    /* Wall time of the job's end in seconds since the epoch, 0 unknown. Runs a command. */
    double (*end_time)(struct lf_jobside *j);
    enum lf_jobside_state (*state)(struct lf_jobside *j);
    /* Of a job that is ending: does it make room for another job? true when nobody can tell. May
     * be NULL. */
    bool (*preempted)(struct lf_jobside *j);
    int (*requeue)(struct lf_jobside *j, lf_err *err);
    /* Change the request of this job while it waits. */
    int (*update)(struct lf_jobside *j, const struct lf_jobside_ask *ask, lf_err *err);
    /* Jobs of this user that wait for this one now wait for `id` instead. */
    int (*repoint)(struct lf_jobside *j, const char *id, lf_err *err);
} lf_jobside_ops;

typedef struct lf_jobside {
    const lf_jobside_ops *ops; /* NULL: not inside a job */
    const lf_site *site;       /* of the plan document, borrowed; command paths and time-outs */
    char id[128];              /* as the scheduler's commands take it */
    int restarts;              /* how often the scheduler has started this job before; -1 unknown */
    double t_start;            /* when the wrapper began, wall */
    int64_t limit_s;           /* what was asked for, 0 none: where the scheduler does not tell */
    double end;                /* what is known, wall; 0 unknown */
    double next_ask;           /* monotonic */
    double timeout_s;          /* of one scheduler command; short when the end is near */
    double ask_every_s;        /* for the end */
    char state_word[64];       /* the scheduler's own word, for messages; "" */
} lf_jobside;

/* Find out where this process runs, from the environment and from the backend that its attempt was
 * handed to: a local run that was started by hand inside somebody's allocation must not put that
 * back into a queue. limit_s: the attempt's time limit, 0 none. Starts no command. */
void lf_jobside_open(lf_jobside *j, const char *backend, const lf_site *site, double t_start,
                     int64_t limit_s);

/* When the job ends. force: ask the scheduler now; otherwise it is asked at most every ten minutes,
 * limits can be changed from outside (every minute when nothing else tells of a preemption). 0: no
 * limit is known. Outside a job: t_start + limit_s. */
double lf_jobside_end(lf_jobside *j, bool force);

/* Ask until there is an answer, for at most patience_s. */
enum lf_jobside_state lf_jobside_state(lf_jobside *j, double patience_s);

/* Put this job back into the queue, under its id. LF_ENOTSUP: this scheduler, or this job, may not
 * (text: what it said); nothing was changed. Afterwards the scheduler ends this process whenever it
 * likes. */
int lf_jobside_requeue(lf_jobside *j, lf_err *err);
/* The same with another request, which SLURM takes while the old processes are still ending. When
 * it refuses the change, the job is put back as it was: the next start sees in its
 * environment what it got. */
int lf_jobside_requeue_as(lf_jobside *j, const lf_jobside_ask *ask, lf_err *err);

/* Submit `req` as a successor of this job (starts after it has ended in any way) with the submitter
 * `s`, and let the jobs that wait for this one wait for the successor. *id (cap bytes) is its id.
 * SLURM only: LF_ENOTSUP elsewhere. */
int lf_jobside_succeed(lf_jobside *j, const lf_submitter *s, const lf_submit_req *req, char *id,
                       size_t cap, lf_err *err);

/* Memory per node that this job really has, bytes; 0 unknown. */
int64_t lf_jobside_memory(const lf_jobside *j);
/* The node's name as the scheduler knows it, into buf; "" unknown. */
const char *lf_jobside_node(const lf_jobside *j, char *buf, size_t cap);

extern const lf_jobside_ops lf_jobside_slurm, lf_jobside_pbs;

/* squeue's "afterok:5(unfulfilled),afterok:6(unfulfilled)" as scontrol takes it, with one id
 * replaced; true when it was there. */
bool lf_slurm_dependency_replace(lf_buf *out, const char *text, const char *from, const char *to);

#endif
