/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics and filters of a task of requests, ready to use.
 */
#ifndef LF_INFER_TASKS_METRICS_H
#define LF_INFER_TASKS_METRICS_H

#include "engine/infer/filter.h"
#include "engine/infer/metric.h"
#include "engine/infer/tasks_priv.h"

#define EVAL_MAX_DEFS 32

enum eval_metric {
    EVAL_ACC,
    EVAL_ACC_NORM,
    EVAL_ACC_BYTES,
    EVAL_MUTUAL_INFO,
    EVAL_EXACT,
    EVAL_F1,
    EVAL_BRIER,
    EVAL_LL,
    EVAL_WORDS,
    EVAL_BYTES
};

typedef struct eval_metric_def {
    const char *name; /* borrowed from the header */
    enum eval_metric id;
    enum lf_agg agg;
    lf_match *match; /* exact_match of generated texts */
} eval_metric_def;

typedef struct eval_filter_def {
    const char *name;
    lf_filter *filter;
} eval_filter_def;

typedef struct eval_defs {
    eval_metric_def metrics[EVAL_MAX_DEFS];
    eval_filter_def filters[EVAL_MAX_DEFS];
    size_t n_metrics, n_filters;
} eval_defs;

int lf_eval_defs_create(eval_defs *d, json_t *head, lf_err *err); /* head is borrowed */
void lf_eval_defs_destroy(eval_defs *d);

/* A document and the line with its answers; borrowed. */
struct lf_eval_answer {
    int type; /* lf_output_type_of */
    json_t *doc, *line;
};

/* Computes out[n_metrics] for one document. *filtered is the text after the filter, which the
 * caller owns; NULL for kinds that generate nothing. */
int lf_eval_values(const eval_defs *d, size_t filter, const struct lf_eval_answer *a, lf_pair *out,
                   json_t **filtered, lf_err *err);

#endif
