/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics of a stage from the framed files of its starts: the last record, and whole series
 * where a later start replaces what earlier ones wrote behind the step at which it begins.
 */
#ifndef LF_FLOW_SERIES_H
#define LF_FLOW_SERIES_H

#include <jansson.h>
#include <stddef.h>

#include "engine/base/err.h"
#include "flow/run/state.h"

/* The first record of a metrics file, NULL when there is none. */
json_t *lf_metrics_first(const char *path);
/* The newest whole record of a metrics file, NULL when there is none; looks at the end of the file
 * only. */
json_t *lf_metrics_last(const char *path);
/* Every record that counts of a stage, by rising step, as an array of objects. */
json_t *lf_metrics_records(const lf_stage_view *s, lf_err *err);
typedef struct lf_points {
    double *x, *y;
    size_t n;
} lf_points;
/* Points (step, value) of one key. Owned: lf_points_fini. */
int lf_metrics_points(lf_points *out, const json_t *records, const char *key, lf_err *err);
void lf_points_fini(lf_points *p);
/* Names of numeric members over all records, sorted, without step and t. New array. */
json_t *lf_metrics_keys(const json_t *records);

#endif
