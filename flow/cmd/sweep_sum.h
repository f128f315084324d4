/* SPDX-License-Identifier: Apache-2.0
 *
 * What a sweep would cost in all, for plan, run and submit: they add up the same numbers and refuse
 * the same sweeps.
 */
#ifndef LF_FLOW_SWEEP_SUM_H
#define LF_FLOW_SWEEP_SUM_H

#include "engine/base/err.h"
#include "flow/cmd/cost.h"
#include "flow/plan/sweep.h"

struct lf_fields;

/* Sums over the stages that would run, shared ones once. */
typedef struct lf_sweep_sum {
    bool given;         /* the pipeline is a sweep */
    int64_t children;   /* all of them */
    int64_t stages;     /* that would run */
    lf_real disk_bytes; /* of their outputs */
    /* core hours = sum over the stages of nodes x ranks x cpus x hours. The hours follow from a
     * measured rate, else from time_limit. The sum is not given where a stage has neither. */
    lf_real core_hours;
    int64_t unknown; /* stages that have neither */
    lf_int max_parallel;
    lf_real max_core_hours;
} lf_sweep_sum;
extern const struct lf_fields lf_sweep_sum_fields;

/* rate: FLOP/s that --rate gives, 0: as measured before. */
void lf_sweep_add_up(lf_sweep_sum *out, lf_prep *p, const lf_cost_rows *costs, double rate);
/* LF_EINVAL with the place of max_core_hours of [sweep]: the core hours are known and above it. */
int lf_sweep_check(const lf_sweep_sum *sum, const lf_prep *p, lf_err *err);

/* The children with their settings, and the sums, as lines of plan. Nothing without a sweep. */
void lf_sweep_print_children(const lf_sweep *sweep);
void lf_sweep_print_sum(const lf_sweep_sum *sum);
/* Is it the stage of a child behind the first one that has this name in the file? Such a stage is
 * shown in one line. */
bool lf_sweep_is_repeated(const lf_doc *plan, const char *stage);

#endif
