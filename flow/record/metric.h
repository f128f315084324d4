/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of a stage's metrics: what the wrapper reads of one (flow/job/exec_time.c), and curves.
 */
#ifndef LF_FLOW_METRIC_H
#define LF_FLOW_METRIC_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "flow/record/values.h"

struct json_t;
struct lf_fields;

struct lf_metric {
    double t, save_s;    /* 0: not said */
    int64_t step, saved; /* -1: not said */
};

/* What is no record of metrics says nothing. */
void lf_metric_parse(struct lf_metric *out, const char *text, size_t n);

/* A record of a curve, or of where a start begins (engine/train/run.h). */
typedef struct lf_metric_row {
    lf_real step, t;
    bool resumed;          /* it says where a start begins, and is no record of a step */
    struct json_t *values; /* all of it, by name */
} lf_metric_row;
typedef LF_ROWS(lf_metric_row) lf_metric_rows;

/* false: it is no object; nothing is owned then. */
bool lf_metric_row_parse(lf_metric_row *out, const char *text, size_t n);
void lf_metric_row_fini(lf_metric_row *r);
/* What else is known of the step of r. */
int lf_metric_row_add(lf_metric_row *r, const lf_metric_row *more, lf_err *err);
/* Down to the first n. */
void lf_metric_rows_cut(lf_metric_rows *rows, size_t n);
void lf_metric_rows_fini(lf_metric_rows *rows);
/* Names of numbers over all records, sorted, without step and t. */
int lf_metric_names(lf_texts *out, const lf_metric_rows *rows, lf_err *err);
/* A record as it is. */
extern const struct lf_fields lf_metric_row_fields;

#endif
