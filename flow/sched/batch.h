/* SPDX-License-Identifier: Apache-2.0
 *
 * Handing a whole graph to a batch scheduler, and keeping it true. Nothing stays behind: no daemon,
 * no driver. Every command that changes something begins with the same look (batch.c) and does the
 * same steps, so what one that was killed left is finished by the next:
 *
 *   1 the run's directory and the queue are read; ends that only the scheduler knows of are written
 *   down 2 for each stage is decided (batch_plan.c): done | keep its job | adopt a job found by its
 *   token | submit 3 driver.want is replaced: the stages that are wanted (tick goes by it) 4
 *   attempts: attempt.N.json and the submit event of every stage to submit; from now on older
 *   attempts cannot publish 5 jobs of given-up attempts, and second jobs of one token, are
 *   cancelled 6 in running order: script.N, the scheduler, job.N.json and the submitted event; jobs
 *   depend on those of upstream stages 7 first jobs that were held are let go; the ledger is
 *   brought up to date
 *
 * An attempt without script.N was never sent and is used again; one with it and without any job is
 * given up for a new one.
 */
#ifndef LF_FLOW_BATCH_H
#define LF_FLOW_BATCH_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/run/project.h"
#include "flow/run/select.h"
#include "flow/run/state.h"
#include "flow/sched/submit.h"

/* {"stages":[names]}: what a batch run is to complete; removed when it is, or cancelled */
#define LF_RUN_WANT "driver.want"

struct lf_fields;

typedef struct lf_batch {
    const lf_project *project;
    const lf_submitter *submitter;
    const lf_texts *accepted; /* settings whose change does not restart a stage; NULL: none */
    bool fresh;               /* do not continue from earlier checkpoints */
    /* tick: only what the failure policy allows without a person, of what driver.want says */
    bool automatic;
    lf_select select;
    void (*say)(void *user, const char *text); /* one line of progress; may be NULL */
    /* As lf_drive.look: the run at each look while lf_batch_wait waits; may be NULL. */
    void (*look)(void *user, const lf_run_view *v, const bool *selected);
    void *user;
} lf_batch;

typedef struct lf_batch_result {
    int submitted, adopted, kept; /* stages */
    int failed;       /* stages that could not be submitted, those behind them included */
    bool unreachable; /* because the scheduler did not answer */
    char why[600];    /* the first failure, with the scheduler's words; "" when there is none */
} lf_batch_result;

/* run: borrowed, frozen. LF_ECOMM: the scheduler must be asked first and does not answer. LF_EBUSY:
 * another loong-flow is at it. */
int lf_batch_run(const lf_batch *b, const lf_run *run, lf_batch_result *res, lf_err *err);

/* Is there an attempt that was sent and has no job record? Then lf_batch_run has something to do
 * though every stage is done. */
bool lf_batch_untidy(const lf_run_view *v);

/* What would be sent for a stage. */
typedef struct lf_dry_stage {
    char *stage;
    LF_ROWS(lf_texts) commands; /* one for each link */
    char *script, *script_sha256;
    lf_texts after;  /* jobs that must succeed */
    lf_texts behind; /* jobs of other children of a sweep that must have ended */
} lf_dry_stage;
typedef LF_ROWS(lf_dry_stage) lf_dry_stages;
extern const struct lf_fields lf_dry_stage_fields;
/* What lf_batch_run would submit, without asking anybody. view: states of the stages; a new run is
 * called RUN, tokens TOKEN, ids JOB(stage). Owned: lf_dry_stages_fini. */
int lf_batch_dry_run(lf_dry_stages *out, const lf_batch *b, const lf_run_view *view,
                     bool run_exists, lf_err *err);
void lf_dry_stages_fini(lf_dry_stages *l);

typedef struct lf_batch_cancel {
    const lf_submitter *submitter;
    const bool *selected;
    bool now;      /* do not wait for checkpoints */
    double wait_s; /* for the end, 0: until the grace of the stages is over */
    void (*say)(void *user, const char *text);
    void *user;
} lf_batch_cancel;
/* End the jobs of stages whose cancel records are written: later stages first, those that wait,
 * then those that run (asked to save first), and see them gone. LF_ECOMM: not reached, the records
 * stand; LF_EBUSY: still there. */
int lf_batch_cancel_jobs(const lf_batch_cancel *c, const lf_run *run, lf_err *err);

/* Follow until no job of the run is left; *code as for run: 0 done, 1 failed, 75 stopped. Rungs of
 * a sweep are decided on the way, and what goes on is submitted. */
int lf_batch_wait(const lf_batch *b, const lf_run *run, int *code, lf_err *err);

#endif
