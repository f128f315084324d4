/* SPDX-License-Identifier: Apache-2.0
 *
 * Successive halving: at each rung, a step of the stage that has the metric, the children of a
 * sweep wait for each other, and the best `keep` of them go on.
 *
 *   kept of n children = max(1, ceil(n x keep))
 *   order  by the last value of the metric at or before the rung's step; without one, failed or not
 *          finite: behind all others; of equals the smaller number
 *
 * A training stage knows the rung's step (engine/base/ending.h): it saves there and ends (class
 * rung), and goes on from there. Any other stage is asked to stop by its wrapper, which sees by its
 * records that it has come to the rung, and may end some steps behind it. Its schedule is that of
 * all its steps, so what it makes is what it would have made without the stop.
 *
 * The decision is a function of records that no longer change once every child that is in play has
 * come to the rung: whoever looks makes the same one, and the first that is published
 * (rung.<N>.json) stands.
 */
#ifndef LF_FLOW_RUNG_H
#define LF_FLOW_RUNG_H

#include "engine/base/err.h"
#include "flow/record/rung.h"
#include "flow/run/state.h"

#define LF_CLASS_RUNG "rung"

/* Set anew `held` of stages that wait for a decision, and the state of those whose children
 * have all ended at a rung to LF_STATE_ENDED. Nothing where the sweep has no rungs. */
int lf_rung_apply(lf_run_view *v, lf_err *err);
/* Decide the next rung where every child that is in play has come to it. 1: a rung was decided, by
 * us or meanwhile, and the view is to be loaded again; *out: our decision, NULL otherwise. */
int lf_rung_decide(lf_rung **out, const lf_run_view *v, lf_err *err);
/* The step at which a stage is to stop, -1: none. */
int64_t lf_rung_step(const lf_run *run, const lf_doc_stage *stage);

#endif
