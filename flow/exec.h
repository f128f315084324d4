/* SPDX-License-Identifier: Apache-2.0
 *
 * The wrapper: what runs inside a job (`loong-flow exec`). It claims the next epoch, re-checks what the stage depends on,
 * writes the stage's configuration, starts the stage executable from the frozen revision, passes signals on, watches the
 * time, and records the end. It never opens the ledger.
 *
 * An incarnation's directory RUN/<stage>/<attempt>.<epoch>/:
 *   config.ini   what the stage reads        log       stdout and stderr of the stage (and of the wrapper)
 *   stage.json   the stage's process         metrics   framed metrics
 *   out/         outputs and checkpoints     stop      made to ask for a stop
 *   end.json     how it ended                done.json the commit marker, only when it is done
 *   spool/       event files
 *
 * Steps, each leaving a state that the next command understands: 1 claim epoch  2 make the directory  3 resolve inputs
 * 4 publish stage.json while the child waits  5 let the child exec  6 wait  7 judge  8 artifact events  9 commit
 * 10 end.json and the end event.
 */
#ifndef LF_FLOW_EXEC_H
#define LF_FLOW_EXEC_H

#include <jansson.h>
#include <stdbool.h>

#include "engine/base/err.h"
#include "flow/classify.h"
#include "flow/state.h"

typedef struct lf_exec_args {
    const char *run_dir; /* absolute */
    const char *stage;
    int attempt;
    const char *token;
    const char *project; /* base of relative paths */
} lf_exec_args;

typedef struct lf_exec {
    lf_exec_args args;
    lf_run run;
    json_t *stage;   /* borrowed from run.doc: of the attempt's revision */
    json_t *attempt; /* attempt.N.json */
    char *stage_dir, *dir;
    int epoch;
    json_t *inputs;  /* resolved: [{"name","path","run","stage","attempt","epoch","spec_id","output"}] */
    json_t *resume;  /* out directories of earlier incarnations, oldest first */
    double t_start;
    bool planning;   /* inputs that are not made yet are no error */
    lf_end_evidence ev;
    char *log_tail;
} lf_exec;

/* Everything. Returns the exit code for the job: 0 done, 1 failed, 2 wrong call, 75 stopped at a good checkpoint. */
int lf_exec_main(const lf_exec_args *args, lf_err *err);

/* exec_config.c: fills x->inputs and x->resume, writes config.ini. LF_ENOENT: something it depends on is not done. */
int lf_exec_prepare(lf_exec *x, lf_err *err);
/* The config.ini of a stage whose producers need not be done: their outputs get a path below x->dir where nothing is, in
 * a directory of this name. */
#define LF_NOT_MADE "not-made-yet"
int lf_exec_plan_config(lf_exec *x, lf_err *err);
/* exec_child.c: run the stage to its end; fills x->ev. */
int lf_exec_child(lf_exec *x, lf_err *err);

#endif
