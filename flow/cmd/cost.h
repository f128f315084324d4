/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stage would cost, asked from its executable with --plan, whether it would start at all,
 * and whether it fits: memory of this machine or the stage's `memory`, free space of data_dir, and
 * time from a measured rate.
 */
#ifndef LF_FLOW_COST_H
#define LF_FLOW_COST_H

#include <limits.h>
#include <signal.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "flow/cmd/prep.h"

/* The answer for a stage: its cost, or why there is none. */
typedef struct lf_cost_row {
    const lf_doc_stage *stage;
    lf_cost cost;
    char *error;
    bool refused; /* the error is about its settings: it would not start */
    bool unmade;  /* the error is about an input that is only not made yet */
} lf_cost_row;
typedef LF_ROWS(lf_cost_row) lf_cost_rows;

/* Ask every stage that would run, in order; without a view (p->view.n == 0) every stage of the
 * plan that is without a mistake. Stages that ask the same are asked once. Stages whose executable
 * is missing have an error too. */
int lf_cost_ask(lf_cost_rows *out, lf_prep *p, lf_err *err);
/* Every refusal as one line with its place in the pipeline file (complaint.h). unsure: with them
 * what else keeps a stage from planning, but for inputs that are not made yet. */
int lf_cost_refusals(lf_texts *out, const lf_cost_rows *costs, bool unsure, lf_err *err);
/* LF_EINVAL when a stage refuses its settings; the other refusals are printed before. */
int lf_cost_refuse(const lf_cost_rows *costs, const char *command, lf_err *err);
void lf_cost_rows_fini(lf_cost_rows *r);

/* What stages ask of this machine and it has not: a CUDA driver for device = cuda, `gpus`. One line
 * with its place for each stage that would run, none where a scheduler runs them elsewhere. */
int lf_cost_here(lf_texts *out, const lf_prep *p, lf_err *err);

/* Ask one program about one file of settings, of one rank. dir: as the stage's out. Owned by *out:
 * lf_cost_fini. LF_EINVAL: its last word. Threads may do it at once. */
int lf_cost_plan(lf_cost *out, const char *exe, const char *config, const char *dir, lf_err *err);
/* A directory for files of settings. A signal that ends the program (SIGHUP, SIGINT, SIGTERM, where
 * it is not ignored) waits while it is there, and ends what is being asked meanwhile. */
typedef struct lf_cost_dir {
    char path[PATH_MAX]; /* "": none yet */
    sigset_t before;     /* the signals that were held back before */
} lf_cost_dir;
int lf_cost_dir_make(lf_cost_dir *dir, lf_err *err);
/* Removes it, if there is one. A signal that came meanwhile ends the program here. */
void lf_cost_dir_remove(lf_cost_dir *dir);
/* A path that stands for an input which is not made yet: a stage plans without it. */
const char *lf_cost_not_made(void);

typedef struct lf_cost_fit {
    /* of a node: the stage's limit; this machine where the scheduler is local; -1 unknown */
    int64_t memory_bytes;
    int64_t disk_free; /* of data_dir, -1 unknown */
} lf_cost_fit;

/* What there is for a stage. */
void lf_cost_limits(lf_cost_fit *out, const lf_prep *p, const lf_doc_stage *stage);
/* One line with its place for each stage that needs more than its own `memory` or `gpu_memory`. */
int lf_cost_too_small(lf_texts *out, const lf_prep *p, const lf_cost_rows *costs, lf_err *err);
/* Bytes of the executables that the run would copy; 0 where nothing would be frozen. */
double lf_cost_copies(const lf_prep *p);
/* LF_ENOMEM or LF_EIO (disk) with the numbers and a place when something cannot fit, LF_EINVAL when
 * a GPU is missing (lf_cost_here). */
int lf_cost_check(const lf_prep *p, const lf_cost_rows *costs, lf_err *err);

/* Shall lf_cost_ask let stages measure this machine? One of each kind then does, for some 0.2 s, if
 * none of the kind has run in this project and stages run on this machine. */
void lf_cost_measure(lf_prep *p);
/* FLOP/s that a done stage of this kind reached in this project (newest first), else what was
 * measured for lf_cost_measure, 0 when none is known. Looked up once a kind. *measured (may be
 * NULL): it was measured now. */
double lf_cost_rate(lf_prep *p, const char *kind, bool *measured);
/* Seconds that a stage of this name and kind took when it was done last in this project without an
 * interruption, 0 when it was not: for stages whose FLOPs nobody knows. */
double lf_cost_stored_seconds(const lf_prep *p, const lf_doc_stage *stage);

#endif
