/* SPDX-License-Identifier: Apache-2.0
 *
 * What state a stage is in, by evidence in its directory, strongest first: a commit whose spec id
 * matches and whose files are there (done), or whose files are gone (purged); a living wrapper or
 * stage process (running); an end record (failed, cancelled, or stopped at a checkpoint = pending);
 * a process that is provably gone without one (interrupted = pending); a process that cannot be
 * seen from here (unknown). Absence is never success.
 *
 *   waiting    a stage it depends on is not done
 *   pending    it can run: never started, stopped at a good checkpoint, or interrupted
 */
#ifndef LF_FLOW_STATE_H
#define LF_FLOW_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "engine/base/err.h"
#include "flow/record/attempt.h"
#include "flow/record/queue.h"
#include "flow/record/start.h"
#include "flow/run/project.h"

enum lf_state {
    LF_STATE_WAITING,
    LF_STATE_PENDING,
    LF_STATE_RUNNING,
    LF_STATE_DONE,
    LF_STATE_FAILED,
    LF_STATE_CANCELLED,
    LF_STATE_PURGED,
    LF_STATE_UNKNOWN,
    LF_STATE_ENDED /* by a rung of a sweep (rung.h): not done, and nothing is missing */
};
const char *lf_state_name(enum lf_state s);

typedef struct lf_start {
    int attempt, epoch;
    char *dir; /* absolute */
    /* epoch record: the wrapper's process, host, time; NULL when there is none */
    struct lf_claim *claim;
    struct lf_started *started; /* stage.json: the stage's process; NULL before it started */
    struct lf_end *end;         /* end.json, NULL when there is none */
    struct lf_done *done;       /* done.json, NULL when there is none */
} lf_start;

typedef struct lf_stage_view {
    const lf_doc_stage *plan; /* borrowed from the run's document */
    char *dir;                /* RUN/<stage> */
    size_t *deps;             /* places in the view of the stages it waits for; only in a view */
    size_t n_deps;
    enum lf_state state;
    char reason[400];                 /* why, for people; "" when there is nothing to say */
    struct lf_attempt_rec **attempts; /* attempt.N.json, index N - 1 */
    size_t n_attempts, cap_attempts;
    lf_start *incs; /* ascending epoch */
    size_t n_incs, cap_incs;
    /* the start that is done or purged in this run, NULL otherwise */
    const lf_start *result;
    char *result_dir; /* its directory (of another run when adopted), NULL when not done */
    const struct lf_done *result_done; /* its marker; borrowed or own_done */
    struct lf_done *own_done;
    /* A scheduler has a job of the newest attempt, or may have one: nobody has seen its end. */
    bool live;
    struct lf_job_said *job; /* what it says (sched.h), NULL: local, not asked, or nothing to ask */
    /* The class of an end that only the scheduler knows, "" when there is none; repair.c records
     * it. */
    char ended_class[32];
    /* A command was given the name of this stage: when its results are purged, they are made again
     * even if nothing needs them (lf_view_mark_needed). */
    bool forced;
    bool claimed;            /* its log says that something ran here */
    bool has_reader, needed; /* by lf_view_mark_needed */
    bool held;               /* it waits for a decision about its sweep (rung.h) */
    bool resumable;  /* an earlier start left an out directory that this spec may go on from */
    int last_finish; /* the newest finish.N.json, 0: there is none */
    int asked;       /* the one that still stands (lf_stage_asked), 0: none */
} lf_stage_view;

typedef struct lf_run_view {
    lf_run run;
    lf_stage_view *stages; /* in running order */
    size_t n;
} lf_run_view;

/* run: taken (moved into the view). */
int lf_view_load(lf_run_view *out, lf_run *run, lf_err *err);
/* The view of a run that stays as it is: of a copy of it, which holds the same plan. */
int lf_view_load_copy(lf_run_view *out, const lf_run *run, lf_err *err);
void lf_view_fini(lf_run_view *v);
/* Read the directory of stage i again. On failure the stage is empty. */
int lf_view_reload(lf_run_view *v, size_t i, lf_err *err);
/* When a start was claimed and when it ended, by its records; 0: not said. */
double lf_inc_begin(const lf_start *inc);
double lf_inc_end(const lf_start *inc);
/* Class of its end, "" when there is none. */
const char *lf_inc_class(const lf_start *inc);
/* The attempt that a start belongs to, and the newest one; NULL: there is none. */
const struct lf_attempt_rec *lf_attempt_of(const lf_stage_view *s, const lf_start *inc);
const struct lf_attempt_rec *lf_attempt_newest(const lf_stage_view *s);
/* Is the newest attempt one of a batch scheduler? */
bool lf_attempt_is_batch(const lf_stage_view *s);
lf_stage_view *lf_view_stage(const lf_run_view *v, const char *name);
/* Does a word name a stage of it, or those of a sweep's children (lf_sweep_named)? */
bool lf_view_names(const lf_run_view *v, const char *word);
/* LF_ENOENT: it has no such stage; says which it has. */
int lf_view_no_stage(const lf_run_view *v, const char *name, lf_err *err);
/* Set `needed` of every stage from the present states. A purged stage is made again only when a
 * stage that is still to run reads it, when no stage reads it at all, or when it is forced.
 * selected: the stages that count, NULL: all. */
void lf_view_mark_needed(lf_run_view *v, const bool *selected);
/* Is nothing of it missing: done, ended by a rung, or purged and not needed? */
bool lf_stage_finished(const lf_stage_view *s);
/* The first stage that s waits for and that is not done, NULL: none. */
const lf_stage_view *lf_view_undone(const lf_run_view *v, const lf_stage_view *s);

/* The parts, for the wrapper. */
int lf_stage_scan(lf_stage_view *out, const char *run_dir, const lf_doc_stage *plan, lf_err *err);
void lf_stage_scan_fini(lf_stage_view *s);
/* Did a job of the newest attempt refuse to begin or to go on (exec.h)? Then its reason is the
 * stage's, and it is pending, or failed when nothing may follow. */
bool lf_stage_skipped(lf_stage_view *s);
/* Was the newest attempt not taken by its scheduler (refused.<attempt>.json)? Then its words are
 * the stage's reason, and it is pending. */
bool lf_stage_refused(lf_stage_view *s);
/* Directory and marker of the result a stage of this run stands for, its own or adopted: 1 found
 * and whole, 0 not done (reason), negative error. state DONE or PURGED is set. */
int lf_stage_result(lf_stage_view *s, const lf_run *run, lf_err *err);
/* Is every output that a marker names still there? LF_OK, LF_ENOENT (purged; text says which),
 * other = broken or damaged. */
int lf_done_check_outputs(const struct lf_done *done, const char *dir, lf_err *err);
/* What the runs below `data` have made, by spec id; each run is read once, when nothing newer
 * answers. */
typedef struct lf_results {
    const lf_run_list *runs; /* newest first; borrowed */
    const char *data;        /* borrowed */
    size_t next;             /* runs that were read */
    struct lf_result *found; /* in the order in which they were read */
    size_t n, cap;
    lf_names by_spec; /* the first of each spec id */
} lf_results;
/* Find a whole result for a stage: *out is zero or given, and to be freed. Runs that cannot be read
 * are passed over: the stage is then computed again. */
int lf_results_find(lf_adopted *out, lf_results *r, const lf_doc_stage *stage, lf_err *err);
/* After nothing was found: one that ended early, which nobody takes over who does not name it.
 * *text says so and how to name it, NULL: there is none. Owned. */
int lf_results_early(char **text, const lf_results *r, const lf_doc_stage *stage, lf_err *err);
void lf_results_fini(lf_results *r);
/* May starts of an attempt be continued by a stage of this document? accepted: list of
 * setting names. */
bool lf_spec_continues(const struct lf_attempt_rec *attempt, const lf_doc_stage *stage,
                       const lf_texts *accepted);

/* The attempt of the newest request to end early that stands for its newest attempt, 0: none does.
 * One stands until a result is committed, and until the stage begins anew or with other
 * settings. */
int lf_stage_asked(const lf_stage_view *s);

/* Has an earlier start left an out directory that the stage goes on from? */
bool lf_stage_resumes(const lf_stage_view *s, const lf_texts *accepted);

#endif
