/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stage was computed on, and from what: its machines, the options with their defaults, the
 * description of its model, its dataset. Records on disk say all of it; a part that is missing is
 * not given, since stages of an older version wrote less and what runs has not written all yet.
 */
#ifndef LF_FLOW_PROVENANCE_H
#define LF_FLOW_PROVENANCE_H

#include "flow/record/made.h"
#include "flow/run/state.h"

typedef struct lf_provenance {
    const char *dir;      /* of the start: the one with the result, or the newest; NULL: none */
    lf_machines machines; /* of that start */
    lf_pairs options;     /* identity and numeric, also those at their default; inputs are hashes */
    lf_trained *trained;  /* of the result, or of the newest checkpoint; NULL: none */
    lf_dataset *dataset;  /* that it trains on; NULL: none, or nobody knows it any more */
} lf_provenance;

/* Borrows from the view. Owned: lf_provenance_fini. */
int lf_provenance_load(lf_provenance *out, const lf_run_view *v, const lf_stage_view *s,
                       lf_err *err);
void lf_provenance_fini(lf_provenance *p);

/* The value of an option with its default; NULL: unknown. */
const char *lf_provenance_option(const lf_provenance *p, const lf_stage_view *s, const char *name);
/* The value of a key of the model, of the checkpoint or else of the plan; NULL: unknown. */
const char *lf_provenance_model(const lf_provenance *p, const lf_stage_view *s, const char *name);

/* Threads of each rank and number of ranks of the start; 0: unknown. */
int64_t lf_provenance_threads(const lf_provenance *p, const lf_stage_view *s);
int64_t lf_provenance_ranks(const lf_provenance *p, const lf_stage_view *s);

/* Does the stage train a model: does its plan count weights, or has it saved some? */
bool lf_provenance_trains(const lf_provenance *p, const lf_stage_view *s);
/* All of it in words, by name: of a stage that trains "model", "shape", "vocabulary", "context",
 * "text", "corpus", "validation", "precision", "optimizer", "learning rate", "batch"; of every
 * stage that began "host", "processor", "GPU", "ranks"; and "code". What is not known is left out.
 * Owned: lf_pairs_fini. */
int lf_provenance_words(lf_pairs *out, const lf_provenance *p, const lf_run_view *v,
                        const lf_stage_view *s, lf_err *err);

/* Core time of all starts of a stage: held_s is the sum over them of threads x ranks x seconds,
 * used_s what their processes took. A start whose threads nobody knows makes held_s not given, one
 * that was killed makes used_s not given. */
typedef struct lf_core_time {
    lf_real held_s, used_s;
} lf_core_time;
int lf_core_time_of(lf_core_time *out, const lf_stage_view *s, lf_err *err);

#endif
