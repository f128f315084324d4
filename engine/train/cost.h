/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of a model take on this machine, so that a pipeline is cut by time (cut.h) and
 * its schedule is told in seconds (engine/pipe/walk.h).
 *
 * A part is the embedding, a layer, or the head. Each kind of part is planned and bound as a
 * pipeline stage of its own, with the settings of the run, and its passes run against the clock: a
 * micro-batch of full sequences, random weights and tokens. Times of a pass include its inputs and
 * what is copied to and from messages; what the ranks of the tensor and of the context axis send
 * each other is left out, and each of the latter takes its part of the time. Layers are of one kind
 * where the model's FLOPs, and what of them is trained, are the same.
 *
 * Times are another each time, so a run measures once, before it plans its memory, and its
 * checkpoints keep the cut: a start that goes on from one with the same layout takes that one.
 */
#ifndef LF_TRAIN_COST_H
#define LF_TRAIN_COST_H

#include <jansson.h>

#include "engine/comm/comm.h"
#include "engine/pipe/cut.h"
#include "engine/pipe/walk.h"
#include "engine/train/cut.h"

/* Of a part: seconds of a micro-batch, and of the optimizer in a step. z_s is that of B and W in
 * one pass. With recompute = full there is only that, and b_s and w_s are halves of it. The update
 * is that of a rank which keeps its share of the optimizer's state. */
struct lf_train_cost {
    double f_s, b_s, w_s, z_s, update_s;
};

/* Of a model, for ranks that stand like `who`. Zeroed: nothing was measured. */
struct lf_train_costs {
    struct lf_train_cost *part; /* [n]: embedding, layers, head; owned */
    int n;                      /* layers (lf_model_depth) + 2 */
    char *layers;               /* the cut that goes with it, "6,6,5,3"; NULL: not cut yet. owned */
};
void lf_train_costs_fini(struct lf_train_costs *k);

/* Measures them on this rank alone, within some seconds a kind. comm (may be NULL) says which GPU
 * is this rank's. LF_ENOMEM, or what planning the run fails with. */
int lf_train_cost_measure(struct lf_train_costs *out, const struct lf_train_config *c,
                          const lf_model_config *mc, const struct lf_train_who *who,
                          const lf_comm *comm, lf_err *err);

/* For lf_pipe_cut: what a step of so many micro-batches makes of each part, in nanoseconds.
 * cost[n - 2]; the others are set, too. */
void lf_train_cost_weigh(struct lf_pipe_layers *of, int64_t *cost, const struct lf_train_costs *k,
                         int micro_batches);

/* Of all chunks of a rank of the pipeline axis. */
struct lf_train_cost lf_train_cost_rank(const struct lf_train_costs *k,
                                        const struct lf_train_cut *cut, int rank);

/* How long a step of so many micro-batches takes by the schedule: *step_s until the last rank is
 * done with its passes and the longest update, without messages. t: lf_pipe_timing_fini. */
int lf_train_cost_walk(struct lf_pipe_timing *t, double *step_s, const struct lf_train_costs *k,
                       const struct lf_train_cut *cut, int micro_batches, lf_err *err);

/* What a checkpoint says: {"axes", "layers", "parts": [[F, B, W, Z, update], ..]} in nanoseconds;
 * owned, NULL: out of memory. */
json_t *lf_train_costs_json(const struct lf_train_costs *k, const struct lf_train_cut *cut,
                            const struct lf_axes *a, const struct lf_train_who *who);
/* Reads it. Returns 1 where it is of this layout and of a model with so many layers, and 0 where it
 * is not, or is none. LF_ENOMEM. */
int lf_train_costs_read(struct lf_train_costs *out, const json_t *record, const struct lf_axes *a,
                        const struct lf_train_who *who, int layers, lf_err *err);

#endif
