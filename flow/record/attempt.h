/* SPDX-License-Identifier: Apache-2.0
 *
 * The records of an attempt, beside the starts of its stage: what was asked for, the jobs that
 * carry it, and why it did not begin. Each has one function that reads it and one that writes it;
 * see start.h for who owns what.
 */
#ifndef LF_FLOW_ATTEMPT_RECORDS_H
#define LF_FLOW_ATTEMPT_RECORDS_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "engine/base/id.h"
#include "flow/record/doc.h"

/* attempt.<N>.json: published before a scheduler is asked. */
struct lf_attempt_rec {
    int attempt;
    const char *run, *stage, *token;
    int rev;
    const char *spec_id;
    lf_spec spec;        /* of the plan document */
    const char *backend; /* the submitter's name */
    double t;
    lf_proc_id submitter;
    bool fresh; /* start over */
    const char *script_sha256;
    lf_resources resources; /* what it asks for; not given: what the plan says */
    lf_texts accepted;      /* settings whose change does not restart the stage */
    const char *behind;     /* the stage whose end its job waits for (max_parallel of a sweep) */
};
int lf_attempt_rec_load(struct lf_attempt_rec **out, const char *stage_dir, int n, lf_err *err);
int lf_attempt_rec_publish(const char *stage_dir, const struct lf_attempt_rec *a, lf_err *err);
void lf_attempt_rec_free(struct lf_attempt_rec *a);

/* settled.<N>.json: the spec of an attempt that was asked for before a result that it reads ended
 * early, as its first start found it (flow/plan/settle.h). It holds in the place of the attempt's
 * own. */
struct lf_settled_rec {
    const char *spec_id;
    lf_spec spec;
};
/* spec_id and spec of a, from the record; nothing changes where there is none. */
int lf_settled_rec_lay(struct lf_attempt_rec *a, const char *stage_dir, lf_err *err);
/* The same from what is given. */
int lf_attempt_rec_settle(struct lf_attempt_rec *a, const char *spec_id, const lf_spec *spec,
                          lf_err *err);
int lf_settled_rec_publish(const char *stage_dir, int n, const struct lf_settled_rec *s,
                           lf_err *err);

/* finish.<N>.json: a person asked the stage to end early and take what is there, when attempt N was
 * the newest. The stage itself reads "decay" of it (engine/base/ending.h). */
struct lf_finish_rec {
    const char *spec_id; /* what the stage was then: with other settings it is not asked any more */
    const char *by;      /* user */
    double t;
    bool decay;
};
#define LF_FINISH_NAME "finish.%d.json"
int lf_finish_rec_load(struct lf_finish_rec **out, const char *stage_dir, int n, lf_err *err);
int lf_finish_rec_publish(const char *stage_dir, int n, const struct lf_finish_rec *f, lf_err *err);
/* Of one that is there already. */
int lf_finish_rec_replace(const char *stage_dir, int n, const struct lf_finish_rec *f, lf_err *err);
/* Takes away those of attempts 1 to n, the oldest first: until all are gone the newest stands. */
int lf_finish_rec_remove(const char *stage_dir, int n, lf_err *err);
void lf_finish_rec_free(struct lf_finish_rec *f);

/* job.<N>.json: the jobs that may run the attempt. */
struct lf_job_rec {
    const char *backend, *id;
    lf_texts ids; /* of the links, in order */
    const char *cluster, *token, *script_sha256;
    double t;
    int adopted;         /* was it found by its token; -1: not said */
    lf_texts after;      /* what its first job depends on */
    lf_texts behind;     /* what its first job waits for the end of */
    lf_proc_id *process; /* of the local scheduler */
};
int lf_job_rec_load(struct lf_job_rec **out, const char *stage_dir, int n, lf_err *err);
int lf_job_rec_publish(const char *stage_dir, int n, const struct lf_job_rec *j, lf_err *err);
/* A record of its own with nothing in it; NULL with err. */
struct lf_job_rec *lf_job_rec_new(lf_err *err);
void lf_job_rec_free(struct lf_job_rec *j);

/* skip.<N>.json: why the first job of the attempt that could not begin ended. */
struct lf_skip_rec {
    double t;
    const char *cls, *reason;
    int exit_code;
    const char *jobid;
};
int lf_skip_rec_load(struct lf_skip_rec **out, const char *stage_dir, int n, lf_err *err);
int lf_skip_rec_publish(const char *stage_dir, int n, const struct lf_skip_rec *s, lf_err *err);
void lf_skip_rec_free(struct lf_skip_rec *s);

/* refused.<N>.json: the scheduler did not take it. */
struct lf_refused_rec {
    double t;
    const char *needs; /* the stage whose fate it shares, or */
    const char *words; /* the scheduler's */
    bool for_now;
};
int lf_refused_rec_load(struct lf_refused_rec **out, const char *stage_dir, int n, lf_err *err);
/* May be written again. */
int lf_refused_rec_replace(const char *stage_dir, int n, const struct lf_refused_rec *r,
                           lf_err *err);
void lf_refused_rec_free(struct lf_refused_rec *r);

/* successor.<N>.<id>.json: a job in place of one that may not be requeued. */
struct lf_successor_rec {
    const char *id, *after;
    double t;
};
int lf_successor_rec_publish(const char *stage_dir, int n, const struct lf_successor_rec *s,
                             lf_err *err);

/* cancel.<N>: nothing of the attempt is to be started or put back into a queue. */
struct lf_cancel_rec {
    const char *by;
    double t;
};
int lf_cancel_rec_publish(const char *stage_dir, int n, const struct lf_cancel_rec *c, lf_err *err);

/* RUN/ended.<attempts>.<starts>.json: the run had ended when its stages had so many attempts and
 * starts together, and whoever published the record tells so. */
struct lf_ended_rec {
    const char *state, *reason; /* see flow/sched/ended.h */
    double t;
};
/* LF_EEXIST: somebody has told this end, or is about to. */
int lf_ended_rec_publish(const char *run_dir, const char *name, const struct lf_ended_rec *e,
                         lf_err *err);

/* RUN/driver.want: the stages that `tick` goes on with. path: of the file. */
int lf_want_load(lf_texts *stages, const char *run_dir, const char *name, lf_err *err);
int lf_want_replace(const char *path, const lf_texts *stages, lf_err *err);

#endif
