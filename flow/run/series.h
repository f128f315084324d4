/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics of a stage from the framed files of its starts: the last record, and whole series
 * where a later start replaces what earlier ones wrote behind the step at which it begins.
 */
#ifndef LF_FLOW_SERIES_H
#define LF_FLOW_SERIES_H

#include <stddef.h>

#include "engine/base/err.h"
#include "flow/record/metric.h"
#include "flow/run/state.h"

/* The first record of a metrics file; false: there is none. */
bool lf_metrics_first(lf_metric_row *out, const char *path);
/* The newest whole record of a metrics file; looks at the end of the file only. */
bool lf_metrics_last(lf_metric_row *out, const char *path);
/* Takes the files of one start; anew: it continues none of those before. */
typedef int lf_series_fn(void *ctx, const char *dir, bool anew, lf_err *err);
/* Calls take for each start of a stage that was made under these settings, oldest first; of a stage
 * that took its result over, for where that is. */
int lf_series_starts(const lf_stage_view *s, lf_series_fn *take, void *ctx, lf_err *err);
/* Every record that counts of a stage, by rising step. Owned: lf_metric_rows_fini. */
int lf_metrics_records(lf_metric_rows *out, const lf_stage_view *s, lf_err *err);
typedef struct lf_points {
    double *x, *y;
    size_t n;
} lf_points;
/* Points (step, value) of one key. Owned: lf_points_fini. */
int lf_metrics_points(lf_points *out, const lf_metric_rows *records, const char *key, lf_err *err);
void lf_points_fini(lf_points *p);

#endif
