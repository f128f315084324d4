/* SPDX-License-Identifier: Apache-2.0
 *
 * From a pipeline file to "what would run": the document with spec ids and executables, the run it
 * belongs to, results of earlier runs it can take over, and the state of every stage under the new
 * settings. plan, run, submit, resume and explain all start here, so they cannot disagree.
 */
#ifndef LF_FLOW_PREP_H
#define LF_FLOW_PREP_H

#include <stdbool.h>

#include "engine/base/err.h"
#include "engine/base/opt.h"
#include "engine/base/str.h"
#include "flow/cmd/restart.h"
#include "flow/plan/pipeline.h"
#include "flow/run/state.h"

typedef struct lf_prep_args {
    /* file; NULL with resume: the run's own, or its frozen document when that file is gone */
    const char *pipeline;
    const char *const *sets;
    size_t n_sets;
    const lf_opt_table *const *tables;
    bool create;    /* make .loong when it is missing (run), instead of doing without (plan) */
    bool fresh_run; /* --new: neither an existing run nor earlier results */
    /* Stages that are made again, with what needs them: a new run that takes over the others. */
    const char *const *force;
    size_t n_force;
    bool resume; /* continue the run named by run_word */
    const char *run_word;
    const char *project; /* resume: project directory, NULL: the nearest */
    bool exe_missing_ok;
    const lf_texts *accepted; /* changed settings that shall not restart a stage; NULL: none */
} lf_prep_args;

typedef struct lf_rate {
    char *kind;
    double flops;  /* a second; 0: none is known */
    bool measured; /* now, because no stage of the kind has run */
    bool wanted;   /* it shall be measured */
} lf_rate;

typedef struct lf_prep {
    lf_pipeline pipeline; /* zero when the frozen document is used */
    bool has_pipeline;
    lf_project project; /* zero when there is none yet */
    bool has_project;
    lf_doc *plan;           /* complete: spec ids, exe, adopted */
    lf_texts warnings;      /* what reading the file warned of */
    char *ini_text;         /* resolved settings with origins */
    bool has_run;           /* view.run is an existing run, otherwise a new one would be made */
    lf_doc *previous;       /* document of the newest run of this name, NULL when there is none */
    LF_ROWS(lf_rate) rates; /* what is known of kinds (cost.h) */
    bool fresh_run;         /* a new run in any case: as asked, or by force */
    const lf_opt_table *const *tables; /* as given */
    bool changed;                      /* plan differs from the run's newest revision */
    /* The newest run of this name under the new plan, where it is other work and nothing that is
     * accepted continues it; n == 0: there is none. */
    lf_run_view other;
    lf_restarts restarts; /* stages of the run, or of other, whose saved steps would be lost */
    lf_run_view view;     /* states of the plan's stages; view.run.plan is plan */
} lf_prep;

int lf_prep_make(lf_prep *out, const lf_prep_args *args, lf_err *err);
void lf_prep_fini(lf_prep *p);
/* Make the run (when there is none) and freeze the document (when it changed); after that view.run
 * is on disk. LF_EBUSY: another command has made a run of the same work meanwhile. LF_EINVAL: the
 * project is somebody else's, and what would be executed lies in it. */
int lf_prep_commit(lf_prep *p, lf_err *err);

/* LF_EINVAL: a setting of args.accepted has not changed. */
int lf_prep_check_accepted(const lf_prep *p, const lf_texts *accepted, lf_err *err);

/* Why a stage would run or not, as one sentence. will_run is set. accepted may be NULL. */
void lf_prep_explain(const lf_prep *p, const lf_stage_view *s, const lf_texts *accepted,
                     bool *will_run, char *text, size_t cap);

/* Resolved settings of a configuration as INI text. origins: a comment before each key. */
int lf_conf_print(const lf_conf *c, bool origins, lf_buf *out, lf_err *err);

#endif
