/* SPDX-License-Identifier: Apache-2.0
 *
 * What an edited pipeline would throw away. A stage that has saved steps under other settings
 * begins anew, unless the changed settings are accepted. `plan` and `explain` say so; `run`,
 * `submit` and `resume` start nothing without --accept or --restart.
 */
#ifndef LF_FLOW_RESTART_H
#define LF_FLOW_RESTART_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "flow/plan/pipeline.h"
#include "flow/run/state.h"

typedef struct lf_restart {
    const char *stage; /* its name; the plan's */
    lf_texts changed;  /* settings, as --accept takes them: "lr", "data", "model.layers" */
    lf_texts places;   /* of each, "pipeline.ini:14"; "" where nothing says it */
    int64_t saved;     /* the newest step that the stage has saved */
    int64_t from;      /* the step where it would begin */
    int64_t steps;     /* of the whole stage, 0: not known */
    bool taken; /* it would not begin anew: another run has a result that would stand for it */
} lf_restart;
typedef LF_ROWS(lf_restart) lf_restarts;

typedef struct lf_restart_args {
    const lf_run_view *view;     /* of a run under the new plan */
    const lf_pipeline *pipeline; /* for places, NULL: there are none */
    const lf_doc *before;        /* what the run was frozen with, for the number of steps; NULL */
    const lf_texts *accepted;    /* NULL: nothing */
    bool done_too; /* stages that were done under other settings count: their results go too */
} lf_restart_args;

/* The stages that would lose steps, in their order. */
int lf_restarts_find(lf_restarts *out, const lf_restart_args *a, lf_err *err);
void lf_restarts_fini(lf_restarts *r);
/* NULL: the stage loses nothing. */
const lf_restart *lf_restarts_of(const lf_restarts *r, const char *stage);
/* "lr changed (pipeline.ini:14): train would start over and lose 102 of 400 steps; --accept lr
 * continues from step 102, --restart starts over" */
void lf_restart_word(lf_buf *out, const lf_restart *r);
/* LF_EINVAL: one of the accepted settings has not changed, with what has. */
int lf_restart_check_accepted(const lf_restart_args *a, lf_err *err);

#endif
