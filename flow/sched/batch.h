/* SPDX-License-Identifier: Apache-2.0
 *
 * Hands the graph of a run to a batch scheduler, and keeps the two in step. No process stays
 * behind. Every command that changes something takes the same look (batch.c) and then the same
 * steps, so the next command finishes what a killed one has left:
 *
 *   1  read the directory of the run and the queue; write down the ends that only the scheduler
 *      knows of
 *   2  decide what becomes of each stage (batch_plan.c): it is done, its job is kept, a job found
 *      by its token is adopted, or a job is submitted
 *   3  replace driver.want, which names the stages that are wanted; tick goes by it
 *   4  publish attempt.N.json and the submit event of every stage to submit; from now on older
 *      attempts cannot publish
 *   5  cancel the jobs of given-up attempts, and second jobs of one token
 *   6  submit, in running order: script.N, the call, job.N.json, the submitted event; a job depends
 *      on those of the stages that its stage needs
 *   7  let go the first jobs that were held, and bring the ledger up to date
 *
 * An attempt without script.N was never sent, so its number is used again. An attempt that has
 * script.N and no job is given up for a new one.
 */
#ifndef LF_FLOW_BATCH_H
#define LF_FLOW_BATCH_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/run/project.h"
#include "flow/run/select.h"
#include "flow/run/state.h"
#include "flow/sched/submit.h"

/* {"stages":[names]}: the stages that a batch run is to complete. The file is removed when they are
 * done, and when the run is cancelled. */
#define LF_RUN_WANT "driver.want"

struct lf_fields;

typedef struct lf_batch {
    const lf_project *project;
    const lf_submitter *submitter;
    const lf_texts *accepted; /* settings whose change does not restart a stage; NULL: none */
    bool fresh;               /* do not continue from earlier checkpoints */
    /* Of tick: of the stages in driver.want it submits only those that the failure policy lets go
     * on without a person. */
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
    double wait_s; /* how long it waits for their end; 0: until the grace of the stages is over */
    void (*say)(void *user, const char *text);
    void *user;
} lf_batch_cancel;
/* Ends the jobs of stages whose cancel records are written, and waits until they are gone. Jobs
 * that wait in the queue go first, those of later stages before those of earlier ones; jobs that
 * run follow, and are asked to save before. LF_ECOMM: the scheduler was not reached, and the
 * records stand. LF_EBUSY: jobs are still there. */
int lf_batch_cancel_jobs(const lf_batch_cancel *c, const lf_run *run, lf_err *err);

/* Follows the run until it has no job left. *code is that of `run`: 0 done, 1 failed, 75 stopped.
 * It decides the rungs of a sweep on the way, and submits the stages that go on. */
int lf_batch_wait(const lf_batch *b, const lf_run *run, int *code, lf_err *err);

#endif
