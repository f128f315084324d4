/* SPDX-License-Identifier: Apache-2.0
 *
 * The best measurement of a run, the weights that belong to it, and the end of a run without a
 * better one for a while. A loop measures (the validations of loop.h, the rounds of
 * engine/post/pg.h) and folds each value into a struct lf_best:
 *
 *     better(x) = x is finite and (nothing was best before, or score(x) < score(best))
 *     score(x)  = x, or -x where a higher value is the better one
 *
 * So what is best, and when patience ends, are functions of the recorded values alone. The struct
 * is in each checkpoint, and a run that goes on folds the rest. NaN never is best, nor is an equal
 * value; both count as measurements without a better one.
 *
 * Kept weights are OUT/best-step-N, one for each best so far. At the end that of the best becomes
 * OUT/best and the others go. One that was replaced goes earlier, once a checkpoint that knows its
 * successor is complete: a run that is killed before goes on from one that may still name it.
 */
#ifndef LF_TRAIN_BEST_H
#define LF_TRAIN_BEST_H

#include "engine/train/run.h"

struct lf_best {
    double score;  /* of the best, lower is better; NaN: nothing was best yet */
    int64_t step;  /* of it; 0: none */
    int64_t stale; /* measurements since then */
};

struct lf_best lf_best_start(void);
/* Takes a measurement of the weights after `step`. true: it is the best so far. */
bool lf_best_take(struct lf_best *b, double value, bool higher, int64_t step);
/* patience 0: never. */
static inline bool lf_best_over(const struct lf_best *b, int64_t patience)
{
    return patience > 0 && b->stale >= patience;
}
/* Adds to the state of a checkpoint that patience ended its run before its length, for whoever
 * reads the manifest (LF_CKPT_IMPATIENT). -1: out of memory. */
struct lf_best_end {
    int64_t at, of;           /* the end and the length by the settings */
    const char *unit;         /* of both: "steps" or "rounds" */
    const char *metric;       /* as the metrics call what was measured: "valid_loss" */
    const char *measurements; /* what patience counts: "validations" or "rounds" */
};
int lf_best_tell_end(const struct lf_best *b, const struct lf_best_end *e, json_t *state);
/* Adds best_score, best_step and stale to the state of a checkpoint, or reads them from it. -1: out
 * of memory. */
int lf_best_to_json(const struct lf_best *b, json_t *state);
struct lf_best lf_best_of(json_t *state);

/* Publishes the weights as OUT/best-step-N; N is b->step. before: the step of the best before, 0:
 * none. state: of the checkpoint, borrowed. rc: how this rank fared so far, returned on a failure.
 * Rank 0; collective where ranks write parts. */
int lf_best_keep(lf_run *r, int rc, const struct lf_best *b, int64_t before, const json_t *state,
                 lf_err *err);
/* At the end: publishes what was kept of the best as OUT/best; with an adapter the merged model.
 * Rank 0. LF_EINTR: a newer start has begun. */
int lf_best_publish(lf_run *r, const struct lf_best *b, lf_err *err);
/* Of a run that was complete before this start and is asked for its best: LF_EINVAL where there is
 * no OUT/best, because keep_best was not set when the run was made. */
int lf_best_in_place(const lf_run *r, lf_err *err);

#endif
