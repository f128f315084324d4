/* SPDX-License-Identifier: Apache-2.0
 *
 * What the wrapper reads of a record of a stage's metrics (flow/job/exec_time.c).
 */
#ifndef LF_FLOW_METRIC_H
#define LF_FLOW_METRIC_H

#include <stddef.h>
#include <stdint.h>

struct lf_metric {
    double t, save_s;    /* 0: not said */
    int64_t step, saved; /* -1: not said */
};

/* What is no record of metrics says nothing. */
void lf_metric_parse(struct lf_metric *out, const char *text, size_t n);

#endif
