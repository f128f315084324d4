/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of a run divide among themselves: the options zero and zero_inner of training
 * stages, and what a plan is told of them.
 */
#ifndef LF_TRAIN_ZERO_H
#define LF_TRAIN_ZERO_H

#include "engine/graph/plan.h"

struct lf_zero {
    int stage; /* 0 to 3, lf_plan_ranks */
    int inner; /* ranks of a group that divides the state among its own; 0: all ranks */
};

/* What a communicator keeps for each of its ranks (two segments of comm/coll.c). */
#define LF_COMM_BYTES (512.0 * 1024)

/* LF_EINVAL: these ranks cannot form such groups, or nothing is divided. */
int lf_zero_check(const struct lf_zero *z, int ranks, lf_err *err);
/* How many ranks divide the state: those of a group, or all. */
int lf_zero_inner(const struct lf_zero *z, int ranks);
/* Memory of the host that the communicators of a rank for this take. */
double lf_zero_comm_bytes(const struct lf_zero *z, int ranks);
/* What rank `rank` of `ranks` plans. bucket_bytes: of gradients that are summed at once; 0: 25
 * MiB. */
struct lf_plan_ranks lf_zero_share(const struct lf_zero *z, size_t bucket_bytes, int rank,
                                   int ranks);

#endif
