/* SPDX-License-Identifier: Apache-2.0
 *
 * The wrapper: what runs inside a job (`loong-flow exec`). It re-checks what the stage depends on,
 * claims the next epoch, writes the stage's configuration, starts the stage executable from the
 * frozen revision, passes signals on, watches the time, records the end, and sees to it that the
 * next segment follows. It never opens the ledger.
 *
 * A start's directory RUN/<stage>/<attempt>.<epoch>/:
 *   config.ini   what the stage reads        log       stdout and stderr of the stage (and of its
 *                launcher)
 *   stage.json   the stage's process         metrics   framed metrics
 *   ranks/       HOST.PID.json of each rank, cause.json (engine/base/cause.h): why it ended, said
 *                by those who know
 *   stop         made to ask for a stop
 *   out/         outputs and checkpoints     done.json the commit marker, only when it is done
 *   from/        what earlier starts handed over (handover.h), until the commit
 *   end.json     how it ended                spool/    event files
 *   damaged.json a reader found a result damaged (exec_damage.c): it counts no more
 * and beside it, in RUN/<stage>/:
 *   successor.<attempt>.<job>.json  a job that the wrapper submitted in place of one that may not
 *                                   be requeued
 *   skip.<attempt>.json  why a job of the attempt ended before it claimed an epoch (the first one
 *                        that did)
 *
 * Steps, each leaving a state that the next command understands:
 *    1  find out where we are and whether there is anything to do
 *    2  claim the number of this start (epoch.N)
 *    3  make the directory
 *    4  resolve inputs
 *    5  publish stage.json while the child waits
 *    6  let the child exec
 *    7  wait
 *    8  judge; after a failure: are the inputs what they were?
 *    9  artifact events
 *   10  commit
 *   11  end.json and the end event
 *   12  requeue event, then put the job back
 */
#ifndef LF_FLOW_EXEC_H
#define LF_FLOW_EXEC_H

#include <stdbool.h>
#include <sys/types.h>

#include "engine/base/err.h"
#include "flow/job/jobside.h"
#include "flow/launch/launch.h"
#include "flow/record/event.h"
#include "flow/run/classify.h"
#include "flow/run/state.h"

/* Exit codes of the job: 0 done (also: was done already), 1 failed, 2 wrong call, 75 stopped with
 * work left, and */
#define LF_EXEC_NOT_READY                                                                          \
    76 /* a stage it depends on is not done: the scheduler let it start too early */
#define LF_EXEC_GIVEN_UP 77 /* cancelled, or a newer attempt or job has taken over */

typedef struct lf_exec_args {
    const char *run_dir; /* absolute */
    const char *stage;
    int attempt;
    const char *token;
    const char *project; /* base of relative paths */
} lf_exec_args;

/* How fast the stage goes, from the records of its metrics (exec_time.c). */
typedef struct lf_exec_pace {
    /* between safe points: the longest time between two records, an old one weighing a little
     * less */
    double spacing_s;
    double save_s;       /* what saving took the last time */
    double t_last;       /* "t" of the newest record, 0: none in this start */
    int64_t step, saved; /* newest, -1: not said */
    int64_t offset;      /* in the metrics file */
} lf_exec_pace;

typedef struct lf_exec {
    lf_exec_args args;
    lf_run run;
    const lf_doc_stage *plan; /* borrowed from run.plan: of the attempt's revision */
    struct lf_attempt_rec *attempt;
    lf_resources resources; /* what it asked for */
    char *stage_dir, *dir;
    int epoch;
    struct lf_used *inputs; /* resolved */
    size_t n_inputs, cap_inputs;
    /* directories laid out as out that the stage may go on from, oldest first */
    lf_texts resume;
    bool taken; /* <dir>/from holds what earlier starts handed over (handover.h) */
    double t_start;
    const lf_run_view *view; /* where somebody has one, to find stages by name; NULL in a job */
    bool planning;           /* inputs that are not made yet are no error */
    lf_jobside job;
    lf_exec_pace pace;
    lf_launch_plan launch;
    lf_end_evidence ev;
    lf_cause cause; /* of ev.said */
    char *log_tail;
} lf_exec;

/* Where its events come from. */
lf_origin lf_exec_origin(const lf_exec *x);
/* Everything. Returns the exit code for the job. */
int lf_exec_main(const lf_exec_args *args, lf_err *err);

/* exec_start.c: run directory, attempt, revision, job; what can be known before anything is
 * begun. */
int lf_exec_open(lf_exec *x, lf_err *err);
/* Is there anything to do, and may it begin? 1: yes; 0: no, *code is the exit code and err says why
 * (err->rc is set unless the code is 0). Waits a moment for files of other nodes inside a job. */
int lf_exec_may_start(lf_exec *x, int *code, lf_err *err);
int lf_exec_claim(lf_exec *x, lf_err *err);

/* exec_evict.c: processes of starts that are superseded. */
/* Those before x: each is asked by its stop file, and what runs on this host is killed. What cannot
 * be reached looks at the fence itself (base/fence.h). */
void lf_exec_evict(const lf_exec *x);
/* Those of x, which has been superseded itself. */
void lf_exec_evict_own(const lf_exec *x);
/* Make the stop file of the start in dir. */
void lf_exec_ask_by_file(const char *dir);

/* exec_config.c: fills x->inputs and x->resume, writes config.ini. LF_ENOENT: something it depends
 * on is not done. */
int lf_exec_prepare(lf_exec *x, lf_err *err);
/* Is every stage that this one depends on done, by its marker and files? LF_ENOENT: not. */
int lf_exec_deps_done(lf_exec *x, lf_err *err);
/* Appends the config.ini of a stage whose producers need not be done: their outputs get a path
 * below x->dir where nothing is, in a directory of this name. Without x->view nobody is done. */
#define LF_NOT_MADE "not-made-yet"
/* The characters of what follows it, STAGE.OUTPUT. */
#define LF_NOT_MADE_NAME "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.@"
int lf_exec_plan_config(lf_buf *ini, lf_exec *x, lf_err *err);
void lf_exec_prepare_fini(lf_exec *x); /* what the two made */

/* exec_child.c: run the stage to its end; fills x->ev. */
int lf_exec_child(lf_exec *x, lf_err *err);
/* exec_argv.c: x->launch: what to execute, the stage's words or those of a launcher around them. */
int lf_exec_argv(lf_exec *x, lf_err *err);

/* exec_listen.c: a step that is ended when the job is about to be (SLURM). */
typedef struct lf_exec_listener {
    pid_t pid; /* of srun, 0: none */
} lf_exec_listener;
void lf_exec_listen_begin(lf_exec_listener *l, lf_exec *x);
bool lf_exec_listen_heard(lf_exec_listener *l, lf_exec *x); /* once */
void lf_exec_listen_end(lf_exec_listener *l);

/* exec_time.c */
void lf_exec_pace_of(lf_exec_pace *out,
                     const lf_stage_view *s); /* what earlier starts measured; zeros: nothing yet */
void lf_exec_pace_begin(lf_exec *x);          /* the same for x */
void lf_exec_pace_read(lf_exec *x);           /* new records of the metrics */
/* How long before the end the stage is asked to stop: max(2 x save_s + spacing_s, grace), at most
 * half of the time there is. */
double lf_exec_lead_s(const lf_exec_pace *p, double grace_s, double total_s);

/* exec_damage.c: after a failure, is a result of another stage that this one read damaged? Then it
 * is marked (struct lf_damaged), and the reason says so. */
void lf_exec_suspect(lf_exec *x, lf_end_class *c);

/* exec_end.c: the end record and what follows from it. Returns the exit code. */
int lf_exec_end(lf_exec *x, lf_end_class *c, lf_err *err);
/* The result, collected and committed; the class changes when that fails. */
void lf_exec_commit(lf_exec *x, lf_end_class *c);

#endif
