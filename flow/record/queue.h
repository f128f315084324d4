/* SPDX-License-Identifier: Apache-2.0
 *
 * What a scheduler says of jobs, and the file in which every process of a user finds what was seen
 * last (flow/sched/sched_poll.c).
 */
#ifndef LF_FLOW_QUEUE_H
#define LF_FLOW_QUEUE_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/record/values.h"

/* A job; texts that are not known are NULL, times 0. */
typedef struct lf_sched_job {
    char *id;
    char *token;  /* from name, comment or variables; NULL: not one of ours */
    int link;     /* 0: not said */
    bool moved;   /* another server has it (PBS); it says when it begins */
    bool foreign; /* its name, comment or variables were seen and are not ours */
    char *what;   /* "queued", "held", "running", "ended", "unknown" */
    /* of "held": "user" (release lets it go), "depend" (waits for another job), "other" */
    char *hold;
    /* the scheduler's own word for the state ("PENDING", "CANCELLED", "H", ...), without what
     * follows it */
    char *word;
    char *reason; /* why it waits or ended, in the scheduler's words */
    /* it waits for what cannot come (failed dependency, limits it can never meet) */
    bool never;
    int exit_code; /* of the job's script, -1: not said */
    int signal;    /* that ended it, 0: none */
    /* of an end, in our words: "done" (exit 0), "failed", "cancelled", "timeout", "oom", "node",
     * "preempted", "dependency", "vanished" (gone without an end record, as children of a failed
     * PBS job) */
    char *cause;
    double t_submit;
    double t_start; /* estimated while it waits */
    double t_end;   /* expected while it runs */
    char *nodes, *partition;
    int restarts;        /* -1: not said */
    double seen, listed; /* when it was known last, and when the queue had it last */
} lf_sched_job;
typedef LF_ROWS(lf_sched_job) lf_sched_jobs;

/* One more job of this id; NULL with err. */
lf_sched_job *lf_sched_jobs_add(lf_sched_jobs *l, const char *id, lf_err *err);
void lf_sched_job_fini(lf_sched_job *j);
void lf_sched_jobs_fini(lf_sched_jobs *l);

/* {"lf_queue":1,"t","t_try","fails","said","jobs":{id: job}} */
typedef struct lf_queue_rec {
    double t;     /* of the last answer */
    double t_try; /* of the last question */
    int fails;    /* questions without an answer since then */
    const char *said;
    lf_sched_jobs jobs;
} lf_queue_rec;
/* What is not a file of this user, or is no such record, is as good as none: all zeros. */
int lf_queue_rec_load(lf_queue_rec *out, const char *path, lf_err *err);
int lf_queue_rec_replace(const char *path, const lf_queue_rec *q, lf_err *err);
int lf_queue_rec_say(lf_queue_rec *q, const char *said, lf_err *err);
void lf_queue_rec_fini(lf_queue_rec *q);

/* What is said of the job of a stage, for people: of its attempt's jobs the one that says most. */
typedef struct lf_job_said {
    const char *backend;
    lf_texts ids; /* of all, in the order of links */
    double age_s; /* of what is known */
    const char *id, *state, *reason;
    double t_submit, t_start, t_end;
    const char *nodes, *partition;
    int exit_code, signal; /* -1: not said; 0: none */
    const char *cause;
    bool never;
    const char *unreachable; /* why the scheduler did not answer; NULL: it did */
} lf_job_said;
void lf_job_said_free(lf_job_said *j);

#endif
