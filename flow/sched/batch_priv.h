/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the batch driver share.
 */
#ifndef LF_FLOW_BATCH_PRIV_H
#define LF_FLOW_BATCH_PRIV_H

#include "engine/base/id.h"
#include "flow/sched/batch.h"
#include "flow/sched/sched.h"

enum lf_lane_act {
    LF_LANE_NOTHING, /* done, not wanted, or not to be touched */
    LF_LANE_KEEP,    /* its job is in the scheduler's hands */
    LF_LANE_ADOPT,   /* found by its token: job.N.json is missing, perhaps some links too */
    LF_LANE_SUBMIT,
    LF_LANE_BLOCKED /* something it needs will not be made */
};

typedef struct lf_lane {
    enum lf_lane_act act;
    bool reuse;    /* SUBMIT: attempt.N.json is there and was never sent */
    bool unnamed;  /* jobs in `found` that ended before a job.N.json named them */
    bool old_jobs; /* SUBMIT: jobs of the attempt that is given up are to be ended */
    int attempt;
    char token[LF_TOKEN_SIZE];
    lf_resources resources; /* not given until they are known */
    lf_buf script;
    char sha[65];
    int n_links;
    struct lf_job_rec *job;     /* once there is one */
    const lf_sched_job **found; /* ADOPT: jobs of the queue, by link; borrowed from it */
    size_t n_found;
    char why[400]; /* for people */
    /* Of a child of a sweep that is submitted: the lane that it lies behind, where it does. */
    bool follows;
    size_t behind;
} lf_lane;

typedef struct lf_batch_work {
    const lf_batch *b;
    const lf_run *run;
    lf_run_view view;
    lf_lane *lanes;
    bool *selected;
    void *self;    /* the submitter's */
    lf_proc_id me; /* this process, from lf_batch_act on */
    lf_queue queue;
    bool looked;      /* queue is valid */
    lf_texts orphans; /* ids to be ended */
    lf_texts held;    /* ids to be let go */
    lf_batch_result res;
} lf_batch_work;

/* batch_plan.c: fills lanes and orphans. */
int lf_batch_plan(lf_batch_work *w, lf_err *err);
/* The script of a lane's stage, its sha256, its resources, its number of links. */
int lf_batch_render(lf_batch_work *w, size_t i, lf_err *err);
/* Ids of the last jobs of what stage i needs and is not done. */
int lf_batch_after(lf_texts *out, const lf_batch_work *w, size_t i, lf_err *err);

/* batch_sweep.c. The first places the jobs of a sweep into max_parallel queues, once the lanes are
 * decided. The second gives the id of the job that the job of lane i lies behind, or none. */
int lf_batch_queue_children(lf_batch_work *w, lf_err *err);
int lf_batch_behind(lf_texts *out, const lf_batch_work *w, size_t i, lf_err *err);

/* batch_act.c: steps 3 to 7. */
int lf_batch_act(lf_batch_work *w, lf_err *err);

/* batch.c */
int lf_batch_set(const char **out, const char *text, lf_err *err); /* a text that is owned */
void lf_batch_clear(lf_batch_work *w);                             /* the lanes, for another plan */
void lf_batch_fini(lf_batch_work *w);                              /* all but the view */
void lf_batch_note_failure(lf_batch_work *w, size_t i, const char *text);

/* batch_send.c: one job, exactly once: repeats what failed for now, looks for the token where a job
 * may have been made. *adopted: it was found. LF_EINVAL: refused, or, with w->res.unreachable, the
 * command knows of no cluster. */
int lf_batch_send(lf_batch_work *w, const lf_submit_req *req, const char *script,
                  struct lf_job_rec *job, bool *adopted, lf_err *err);

void lf_batch_pause(double s);
void lf_batch_tell(const lf_batch_work *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
const char *lf_batch_name(const lf_batch_work *w, size_t i);

#endif
