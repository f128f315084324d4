/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns a score into a reward, in this order: penalty for a missing end token, penalty for length,
 * scaling, clipping. Everything is arithmetic on one number.
 */
#ifndef LF_POST_SHAPING_H
#define LF_POST_SHAPING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_missing_eos {
    LF_MISSING_KEEP = 0, /* the score does not change */
    LF_MISSING_PENALTY,  /* minus value (TRL's missing_eos_penalty) */
    LF_MISSING_REPLACE,  /* value instead (-1 in summarize_from_feedback) */
    LF_MISSING_SCALE     /* times value (OpenRLHF's stop_properly_penalty_coef) */
};

struct lf_shaping {
    enum lf_missing_eos missing;
    double missing_value;
    /* Soft overlong punishment (DAPO, Yu et al. 2025): -min(length - (max - buffer), buffer) /
     * buffer * factor above max - buffer. */
    int64_t overlong_max, overlong_buffer; /* buffer 0: none */
    double overlong_factor;
    bool scale;  /* divide by the running standard deviation of scores (trlx) */
    double clip; /* bound on |score|; 0: none */
};
int lf_shaping_check(const struct lf_shaping *s, lf_err *err);

/* Mean and sum of squared deviations of all numbers so far (Welford 1962). */
struct lf_running {
    int64_t n;
    double mean, m2;
};
void lf_running_add(struct lf_running *r, double x);
/* unbiased; 1 until there are two different numbers */
double lf_running_std(const struct lf_running *r);

/* Returns the reward for the score of a completion of `length` tokens. ended: its last token is an
 * end token. */
double lf_shape(const struct lf_shaping *s, const struct lf_running *r, double score,
                int64_t length, bool ended);

#endif
