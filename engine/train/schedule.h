/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate schedules and the batch ramp. They are pure functions of the number of samples, so
 * they do not depend on the division of a run into steps, micro-batches or starts.
 *
 *   x = samples done when the step is complete, so the first step has a rate above 0 and the last
 *       one that of the end
 *   warm-up        x <= warmup:       peak x / warmup
 *   after it, with u = (x - warmup) / (total - warmup) in [0, 1]:
 *     constant     peak
 *     linear       peak + (min - peak) u
 *     cosine       min + (peak - min) (1 + cos(pi u)) / 2
 *     inverse_sqrt max(min, peak sqrt(warmup' / x)), warmup' = max(warmup, 1)
 *                  (Vaswani et al. 2017)
 *     wsd          peak until total - decay, then over v = (x - (total - decay)) / decay
 *                  (Hu et al. 2024):
 *                    linear    peak + (min - peak) v
 *                    cosine    min + (peak - min) (1 + cos(pi v)) / 2
 *                    exp       peak (min / peak)^v
 *                    sqrt      peak + (min - peak) sqrt(v)
 *   beyond total   the value at total
 */
#ifndef LF_TRAIN_SCHEDULE_H
#define LF_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_schedule_kind {
    LF_SCHED_CONSTANT,
    LF_SCHED_LINEAR,
    LF_SCHED_COSINE,
    LF_SCHED_INVERSE_SQRT,
    LF_SCHED_WSD
};
enum lf_schedule_tail { LF_TAIL_LINEAR, LF_TAIL_COSINE, LF_TAIL_EXP, LF_TAIL_SQRT };

typedef struct lf_schedule {
    enum lf_schedule_kind kind;
    enum lf_schedule_tail tail;   /* wsd */
    double peak, min;             /* learning rates */
    int64_t warmup, total, decay; /* samples; decay: wsd */
} lf_schedule;

/* LF_EINVAL: warmup is beyond total, decay does not fit, min is above peak, or an exp tail goes to
 * 0. */
int lf_schedule_check(const lf_schedule *s, lf_err *err);
double lf_schedule_lr(const lf_schedule *s, int64_t samples);

/* One row of the batch ramp: from sample from_sample on, a step takes `samples` samples. Row 0
 * begins at 0. A row takes effect at the first step that begins at or after it. */
typedef struct lf_ramp_row {
    int64_t from_sample;
    int64_t samples;
} lf_ramp_row;

/* Returns the samples of the step that begins at sample `at`. */
int64_t lf_ramp_samples(const lf_ramp_row *rows, size_t n, int64_t at);
/* Return the samples of the first `steps` steps, and the number of steps that reach `samples`; the
 * last step may pass it. */
int64_t lf_ramp_samples_of_steps(const lf_ramp_row *rows, size_t n, int64_t steps);
int64_t lf_ramp_steps_to(const lf_ramp_row *rows, size_t n, int64_t samples);

/* Averages of weights over steps: after each step from `start` on the average moves towards the
 * weights by 1 - decay (Polyak and Juditsky 1992). Until then, and after the first of them, it is
 * the weights. */
struct lf_average {
    double decay;  /* in [0, 1); 0: no averages are kept */
    int64_t start; /* steps after which the first weights are taken in */
    /* with k steps since the first: min(decay, (1 + k) / (10 + k)), so that the average forgets its
     * beginning sooner */
    bool warmup;
};
/* The share of the new weights in the average, after the step with this number, from 0 on:
 * 1 - decay, or 1. 0: no averages are kept. */
double lf_average_share(const struct lf_average *a, int64_t step);

#endif
