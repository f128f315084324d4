/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs and stages as commands show them: text and --json are made from these structs, which borrow
 * from the view of the run (flow/sched/describe.h fills them). Members that are not known are not
 * given, and absent in JSON.
 */
#ifndef LF_FLOW_SHOWN_H
#define LF_FLOW_SHOWN_H

#include "flow/record/attempt.h"
#include "flow/record/closing.h"
#include "flow/record/doing.h"
#include "flow/record/fields.h"
#include "flow/record/queue.h"
#include "flow/record/start.h"

typedef struct lf_stage_shown {
    const char *name, *kind, *state, *reason, *spec_id;
    int attempts;
    lf_int segments;                  /* starts so far */
    char layout[80];                  /* lf_laid_words, with ", " between axes */
    const lf_job_said *job;           /* what its scheduler says */
    const lf_adopted *adopted;        /* the start of another run whose result it took over */
    const struct lf_cut_short *ended; /* of its result, where that ended early */
    const char *dir;                  /* of the start that follows */
    lf_int attempt, epoch;
    lf_texts log; /* of a failure: the lines that matter */
    /* Of all starts with these settings: how many, and the first different texts; owned. */
    lf_int n_warnings;
    lf_texts warnings;
    lf_int exit_code, signal;
    const char *cls;
    lf_real t_start, t_end, duration_s;
    lf_int step, steps;
    lf_real progress, steps_per_s, eta_s;
    struct json_t *metrics; /* the last record; owned */
    lf_doing doing;         /* of a stage that runs and counts no steps; owned */
} lf_stage_shown;

typedef struct lf_run_shown {
    const char *run, *name;
    const char *short_name; /* NULL: it was made before there were short names */
    const char *state; /* failed, running, unknown, cancelled, purged, pending, waiting or done: the
                          first of these that a stage has */
    int rev;
    lf_real created;
    const char *dir;
    LF_ROWS(lf_stage_shown) stages; /* owned */
} lf_run_shown;

/* A start of a stage. */
typedef struct lf_start_shown {
    int attempt, epoch;
    const char *dir, *host;
    lf_real t_start, t_end;
    const char *state, *cls, *reason;
    lf_texts resume, accepted;
    lf_resources resources; /* as asked, after the failure policy */
} lf_start_shown;

/* A stage with all that is known of it. */
typedef struct lf_stage_whole {
    lf_stage_shown now;
    lf_doc_stage plan;              /* as frozen */
    LF_ROWS(lf_start_shown) starts; /* owned */
    /* Of the result, where there is one. */
    struct lf_output *outputs;
    struct lf_used *read;
    size_t n_outputs, n_read;
    const char *result_dir;
    lf_closing closing; /* owned */
    lf_pairs made_of;   /* in words (flow/run/provenance.h); owned */
} lf_stage_whole;

extern const struct lf_fields lf_stage_shown_fields, lf_run_shown_fields, lf_stage_whole_fields;

#endif
