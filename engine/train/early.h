/* SPDX-License-Identifier: Apache-2.0
 *
 * A training run that ends before its length: on request (base/ending.h), or because its hours are
 * over. Counts are in the unit of the loop, steps or the rounds of lf-ppo; `done` are those done.
 *
 *   end now      the unit under way is the last one; in a start that has trained nothing yet the
 *                checkpoint that it goes on from is the result
 *   let decay    with schedule = wsd the decay begins after the next unit, or after the warm-up,
 *                and the run ends with it. There a checkpoint is saved that says so, and a run that
 *                goes on from it has the bits of a run of that many steps: what was measured is in
 *                the record
 *   hours        with schedule = constant the run ends where one more unit would take too long;
 *                with wsd the decay begins where, at the speed so far, it ends with the hours. The
 *                hours are those of training, summed over all starts as checkpoints know them
 *
 * Rank 0 looks at the clock; what is done is agreed (lf_run_look). The final state.json and its
 * manifest have {"ended": {"ended_at_step", "at", "of", "unit", "by"}}.
 */
#ifndef LF_TRAIN_EARLY_H
#define LF_TRAIN_EARLY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/train/schedule.h"

/* Ascending: of what ranks ask for, the greatest is done. */
enum lf_run_end { LF_END_NOT, LF_END_HOURS, LF_END_DECAY, LF_END_NOW };

typedef struct lf_early {
    const char *unit;               /* "steps" or "rounds" */
    double hours;                   /* 0: no bound */
    enum lf_schedule_kind schedule; /* only wsd has a decay */
    int64_t warmup, decay;          /* lengths */
    int64_t planned;                /* length by the settings */
    int64_t total;                  /* length as it stands */
    const char *by;                 /* "request", "hours"; NULL: the settings decide */
    int64_t from; /* where a decay that was placed begins, with `placed`; it ends at total */
    bool placed;
    double first_s, least_s; /* first unit of this start, its shortest other one; 0: none */
} lf_early;

/* Refuses hours with a schedule that depends on the length of the run. LF_EINVAL. */
int lf_early_check(double hours, enum lf_schedule_kind schedule, lf_err *err);
/* Takes the seconds of a unit of this start. The first one compiles, allocates and fills caches: it
 * says nothing of the speed, and a long decay multiplies what is wrong in it. */
void lf_early_count(lf_early *e, double seconds);
/* Rank 0: what the clock asks for. active_s: seconds trained over all starts; here and here_s:
 * units and seconds of this start, which measure the speed once there are enough of them. */
enum lf_run_end lf_early_clock(const lf_early *e, int64_t done, double active_s, int64_t here,
                               double here_s);
/* Would this request place a decay? Else it ends the run, or changes nothing. */
bool lf_early_places(const lf_early *e, enum lf_run_end ask, int64_t done);
/* Places the decay. The caller then changes its schedule. */
void lf_early_place(lf_early *e, enum lf_run_end ask, int64_t done);
/* Must a checkpoint be saved here because a decay begins? */
bool lf_early_due(const lf_early *e, int64_t done);
/* Makes `last` the last unit; nothing when the run ends there or before. Returns whether it did. */
bool lf_early_cut(lf_early *e, enum lf_run_end ask, int64_t last);

/* Adds to state what a start that goes on from it must know and, at the end of the run, how it
 * ended. step: the optimizer steps done. LF_ENOMEM. */
int lf_early_add(const lf_early *e, json_t *state, int64_t done, int64_t step, lf_err *err);
/* Takes the place of a decay from the state of a checkpoint. The state of a result that ended early
 * has none to take: a run that goes on from it is a longer one. */
void lf_early_take(lf_early *e, const json_t *state);
/* Is this the state of a result that ended early? */
bool lf_early_ended(const json_t *state);

#endif
