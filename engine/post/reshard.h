/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights from the layout they are trained in to another one over the same ranks, in memory: from
 * the store of each rank into a second store of other boxes (graph/layout.h).
 *
 * A rank gets the elements of its new box that it has itself from its own store, and each other one
 * from one rank that keeps it: one of its node where there is one, and of those the nearest by
 * number. So nothing passes through a rank that needs no part of it. Who sends what follows from
 * the boxes alone and is fixed when the stores are planned: no message has a header.
 *
 * What moves are the weights in the type of the new store where both have it (bf16), and otherwise
 * as the training's store has them; the write rounds them as the optimizer rounds its copies. So
 * both stores have the same bits of a tensor.
 */
#ifndef LF_POST_RESHARD_H
#define LF_POST_RESHARD_H

#include "engine/comm/comm.h"
#include "engine/graph/layout.h"

typedef struct lf_reshard lf_reshard;

/* Memory of the host that a run of it takes for messages, of the transport apart. */
#define LF_RESHARD_BYTES (12.0 * 1024 * 1024)

struct lf_reshard_moved {
    double received, sent; /* bytes, of this rank from and to others */
    double copied;         /* bytes that it takes from its own store */
    int64_t messages;      /* that it sends */
};

/* Of one rank's stores alone, whose plans are finished: the bytes of its new boxes that another
 * rank sends it, and those that it has. trained: of tensors that are not frozen. sent and messages
 * are 0: they follow from the other ranks' boxes. */
struct lf_reshard_moved lf_reshard_needs(const lf_pstore *from, const lf_pstore *to, bool trained);

/* The same of another rank, of which only the boxes are known: no less than what others send it. It
 * is more where that rank keeps a part of its box (zero = 3), of which nothing is taken to fit.
 * from_box, to_box: stores of the models in which that rank's tensors are declared. */
double lf_reshard_at_most(const lf_pstore *from, const lf_pstore *to, const lf_pstore *from_box,
                          const lf_pstore *to_box, bool trained);

/* Plans, from stores whose plans are finished and which outlive x. Every rank of comm (NULL: one
 * rank) has both stores of one model. Collective. LF_EINVAL: the ranks together lack elements of a
 * box, or the stores are of two models. */
int lf_reshard_create(lf_reshard **out, lf_comm *comm, lf_pstore *from, lf_pstore *to, lf_err *err);
void lf_reshard_destroy(lf_reshard *x);
/* Writes the weights of `from` into `to`, both bound. trained: leaves out frozen tensors, which the
 * first run has brought. moved: what the communicator has counted, and what was copied. Collective;
 * a failure is this rank's. */
int lf_reshard_run(lf_reshard *x, bool trained, struct lf_reshard_moved *moved, lf_err *err);
/* What a run of this rank moves by its plan. */
struct lf_reshard_moved lf_reshard_planned(const lf_reshard *x, bool trained);

#endif
