/* SPDX-License-Identifier: Apache-2.0
 *
 * What plan prints, for run --dry-run too.
 */
#ifndef LF_FLOW_CMD_PLAN_H
#define LF_FLOW_CMD_PLAN_H

#include "flow/cmd/cmd.h"
#include "flow/cmd/prep.h"

typedef struct lf_plan_ask {
    double rate;        /* FLOP/s to estimate times with, 0: what is known of earlier runs */
    bool measure;       /* measure a rate where none is known */
    const bool *wanted; /* the stages of p->view that are asked for, NULL: all */
} lf_plan_ask;

/* Asks the stages what they cost and prints what would run. Returns LF_FLOW_FAILED when it does not
 * fit. LF_EINVAL: a stage refuses its settings. */
int lf_cmd_show_plan(const lf_cmd *c, lf_prep *p, const lf_plan_ask *ask, lf_err *err);

#endif
