/* SPDX-License-Identifier: Apache-2.0
 *
 * Curves of stages, of one run or of several, as rows of steps: what `metrics` prints from.
 */
#ifndef LF_FLOW_CURVES_H
#define LF_FLOW_CURVES_H

#include "flow/record/fields.h"
#include "flow/record/metric.h"
#include "flow/run/project.h"

/* The records of a stage. Owned. */
typedef struct lf_curve {
    char *run, *label, *stage, *kind; /* label: the run, for people */
    char *title; /* label, or label/stage where the curves have several of it */
    char *ended; /* where it ended early, NULL: it did not */
    lf_metric_rows records;
    lf_texts keys; /* the metrics that there are, sorted */
} lf_curve;
typedef LF_ROWS(lf_curve) lf_curves;
extern const struct lf_fields lf_curve_fields;

/* The stages that words name, STAGE, RUN or RUN/STAGE; a stage is one of each of `runs`, and of the
 * newest run when there is none. Of a run alone it is the stage with most records. */
int lf_curves_load(lf_curves *out, const lf_project *p, const char *const *words, size_t n_words,
                   const char *const *runs, size_t n_runs, lf_err *err);
void lf_curves_fini(lf_curves *c);

/* Are all of these metrics of one of the curves? LF_EINVAL lists what there is. */
int lf_curves_check(const lf_curves *c, const lf_texts *keys, lf_err *err);

/* A row: one step. at[k]: the place of its record in curve k, -1: it has none there. */
typedef struct lf_steps {
    double *step;
    long *at; /* n x curves */
    size_t n;
} lf_steps;
/* All steps of the curves by rising step, at most `max` of them (0: all): the first, the last, rows
 * with a validation, and others evenly spread between. Owned: lf_steps_fini. */
int lf_steps_choose(lf_steps *out, const lf_curves *c, size_t max, lf_err *err);
void lf_steps_fini(lf_steps *s);

#endif
