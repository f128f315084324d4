/* SPDX-License-Identifier: Apache-2.0
 *
 * The axes of a run's ranks (comm/mesh.h): which ranks share a batch and which divide matrices
 * (graph/layout.h). Ranks of the tensor axis are neighbours, so that they share a node; the data
 * axis is what is left:
 *
 *     place = data * tensor_ranks + tensor
 *
 * where the place of a rank is its number in the order of nodes. All ranks with one data coordinate
 * read the same micro-batches and have the same losses.
 */
#ifndef LF_TRAIN_AXES_H
#define LF_TRAIN_AXES_H

#include "engine/comm/mesh.h"
#include "engine/graph/layout.h"

/* Options of a stage. Zeroed: all ranks share the batch. */
struct lf_axes {
    int tensor;        /* ranks that divide matrices among themselves; 0 or 1: none do */
    bool sequence;     /* they divide rows, too, between the products */
    bool across_nodes; /* they may be on several nodes */
};

/* The coordinates of a rank. */
struct lf_train_who {
    int data, data_ranks;
    int tensor, tensor_ranks;
};

/* LF_EINVAL: so many ranks do not form such groups, or an option needs another one. */
int lf_axes_check(const struct lf_axes *a, int ranks, lf_err *err);
/* The coordinates of the rank at this place of so many. */
struct lf_train_who lf_axes_who(const struct lf_axes *a, int place, int ranks);
static inline int lf_axes_ranks(const struct lf_train_who *w)
{
    return w->data_ranks * w->tensor_ranks;
}
/* What a store of this rank is told. */
struct lf_layout lf_axes_layout(const struct lf_axes *a, const struct lf_train_who *w);

/* The mesh of the ranks of world, which the caller destroys, and this rank's coordinates. *m stays
 * NULL where only the data axis has several ranks: then world is its communicator. world NULL: one
 * rank. Collective. LF_EINVAL: ranks that divide matrices are on several nodes. */
int lf_axes_open(lf_mesh **m, struct lf_train_who *w, const struct lf_axes *a, lf_comm *world,
                 lf_err *err);

/* Memory of the host that communicators take beside that of the data axis. */
double lf_axes_comm_bytes(const struct lf_train_who *w);

#endif
