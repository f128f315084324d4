/* SPDX-License-Identifier: Apache-2.0
 *
 * The outcome of a sweep (flow/run/outcome.h): its children with what they reached, and, where some
 * axes are seeds, groups of children that differ in seeds only. Texts and settings are borrowed
 * from the run's document and its view, but for lists, which are owned.
 */
#ifndef LF_FLOW_OUTCOME_RECORD_H
#define LF_FLOW_OUTCOME_RECORD_H

#include <stdbool.h>

#include "flow/record/fields.h"

typedef struct lf_outcome_child {
    int number, group; /* from 1 */
    lf_pairs settings; /* borrowed */
    const char *stage; /* the stage of this child that has the metric; NULL: no metric is known */
    const char *state; /* of the child: the first of failed, running, unknown, cancelled, purged,
                          pending, waiting, done that one of its stages has */
    const char *stop;  /* the stage of that state, NULL: done */
    lf_real step;      /* of the last value */
    /* Stages leave out a value that is not finite. It is taken as that when the records go on for
     * as long as values lie apart: then last is not given. */
    lf_real last, best, best_step;
    bool not_finite;
    bool winner; /* of all that are done, the first of equals */
} lf_outcome_child;

/* Children that differ in nothing but seeds. mean = sum(x) / n and
 * stderr = sqrt(sum((x - mean)^2) / (n - 1) / n) over the last values x of the n that are done;
 * stderr is given for n > 1. One that is not finite makes both not given; n counts it, bad too. */
typedef struct lf_outcome_group {
    int number, n, bad;
    lf_pairs settings; /* owned */
    lf_real mean, stderr_;
    bool winner;
} lf_outcome_group;

typedef struct lf_outcome {
    const char *run;
    char *metric_stage, *metric; /* owned; NULL: no child has a record of one */
    const char *goal;            /* "min" or "max" */
    lf_texts axes, seeds;        /* owned: keys; seeds are among the axes */
    LF_ROWS(lf_outcome_child) children;
    LF_ROWS(lf_outcome_group) groups; /* one for each child where there are no seeds */
} lf_outcome;

extern const struct lf_fields lf_outcome_fields;

#endif
