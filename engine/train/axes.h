/* SPDX-License-Identifier: Apache-2.0
 *
 * The axes of a run's ranks (comm/mesh.h): which ranks share a batch, which divide matrices
 * (graph/layout.h) and which have other layers of the model (pipe.h). Ranks of the tensor axis are
 * neighbours, so that they share a node, and those of the context axis come next; the data axis is
 * what is left:
 *
 *     place = ((pipeline * data_ranks + data) * context_ranks + context) * tensor_ranks + tensor
 *
 * where the place of a rank is its number in the order of nodes. All ranks with one data coordinate
 * read the same micro-batches. Those of them on the context axis compute rows of their own, and so
 * have losses of their own. Those on the tensor axis have the same losses; only ranks with the last
 * layers have any.
 *
 * Ranks of the data and of the context axis together have the same layers and boxes, and each has
 * gradients of other rows: they are **sharers**. Gradients are summed over them, and sharded state
 * (zero.h) is divided among them.
 *
 * Ranks of the expert axis are successive sharers with the same tensor and pipeline coordinate:
 * expert = sharer % expert_ranks. They have rows of their own, of one micro-batch or of several,
 * and divide the experts. So this axis is folded over the data and the context axis. With
 * expert_tensor = 1 it is over the tensor axis, too: expert = (sharer * tensor_ranks + tensor) %
 * expert_ranks.
 */
#ifndef LF_TRAIN_AXES_H
#define LF_TRAIN_AXES_H

#include "engine/comm/mesh.h"
#include "engine/graph/layout.h"
#include "engine/graph/plan.h"
#include "engine/model/config.h"

enum lf_context_kind {
    LF_CONTEXT_ULYSSES = 0,
    LF_CONTEXT_GATHER,
    LF_CONTEXT_BOTH,
    LF_CONTEXT_RING
};
/* The word of an option for a kind. */
const char *lf_context_kind_name(int kind);

/* Options of a stage. Zeroed: all ranks share the batch. */
struct lf_axes {
    int tensor;        /* ranks that divide matrices among themselves; 0 or 1: none do */
    bool sequence;     /* they divide rows, too, between the products */
    bool across_nodes; /* they may be on several nodes */
    int context;       /* ranks that divide the rows of a micro-batch; 0 or 1: none do */
    int context_kind;  /* how rows of others come to attention: enum lf_context_kind */
    int pipeline;      /* ranks that each have other layers; 0 or 1: all layers on each */
    int chunks;        /* parts of the model that each of these has; 0: 1, or 2 in a V */
    /* order of their passes: 0: 1f1b, or interleaved with several chunks; else a kind of
     * engine/pipe, plus 1 */
    int schedule;
    const char *stages; /* layers of each pipeline stage, "6,6,5,3"; NULL: by cost */
    int measured;       /* what a cut takes for costs: 0: FLOPs; 1: times (cost.h) */
    int expert;         /* sharers that divide experts among themselves; 0: 1 */
    double expert_room; /* lf_layout */
    /* ranks that divide the matrices of an expert: 0: those of tensor; 1: none do, and the ranks of
     * tensor are among those that divide experts (lf_layout.folded) */
    int expert_tensor;
};

/* The coordinates of a rank. */
struct lf_train_who {
    int data, data_ranks;
    int context, context_ranks;
    int tensor, tensor_ranks;
    int pipeline, pipeline_ranks;
    int expert, expert_ranks; /* within the data and the context axis */
    bool folded;              /* and the tensor axis */
};

/* LF_EINVAL: so many ranks do not form such groups, or an option needs another one. */
int lf_axes_check(const struct lf_axes *a, int ranks, lf_err *err);
/* The coordinates of the rank at this place of so many. */
struct lf_train_who lf_axes_who(const struct lf_axes *a, int place, int ranks);
static inline int lf_axes_ranks(const struct lf_train_who *w)
{
    return w->data_ranks * w->context_ranks * w->tensor_ranks * w->pipeline_ranks;
}
/* How many sharers there are, and which of them rank w is. */
static inline int lf_axes_sharers(const struct lf_train_who *w)
{
    return w->data_ranks * w->context_ranks;
}
static inline int lf_axes_sharer(const struct lf_train_who *w)
{
    return w->data * w->context_ranks + w->context;
}
/* Among how many ranks groups of the expert axis lie, and which of them rank w is. */
static inline int lf_axes_expert_places(const struct lf_train_who *w)
{
    return lf_axes_sharers(w) * (w->folded ? w->tensor_ranks : 1);
}
static inline int lf_axes_expert_place(const struct lf_train_who *w)
{
    return w->folded ? lf_axes_sharer(w) * w->tensor_ranks + w->tensor : lf_axes_sharer(w);
}
/* What a store of this rank is told. */
struct lf_layout lf_axes_layout(const struct lf_axes *a, const struct lf_train_who *w);
/* Where ranks divide rows, what depends on the model and on how many rows each has: as many ranks
 * exchange heads as divide them all, and rows are in order where windows reach no further than over
 * those of the rank before, in turns where that is so of some layers. */
void lf_axes_fit(struct lf_layout *l, const struct lf_axes *a, const lf_model_config *mc,
                 int64_t own_rows);
/* LF_ENOTSUP: a device cannot compute what a kind of the context axis asks for. */
int lf_axes_check_device(const struct lf_axes *a, enum lf_device device, lf_err *err);

/* The ranks that this one does something with; every communicator is borrowed from here. */
struct lf_axes_comms {
    lf_mesh *mesh; /* NULL: only the data axis has several ranks */
    lf_comm *data; /* the sharers: of the data and the context axis */
    lf_comm *context, *tensor, *pipeline;
    lf_comm *column; /* with the same data coordinate: they read the same micro-batches */
    lf_comm *layers; /* with the same layers */
    lf_comm *ends;   /* first and last of the pipeline axis alone; NULL elsewhere */
    /* of the sharers: those that divide experts with this rank, and those that have the same ones;
     * NULL: every rank has all experts */
    lf_comm *experts, *same;
};
/* Zeroed where world is NULL, which is one rank. Without a mesh data and layers are world, and the
 * others NULL, but for those of experts. Also this rank's coordinates. Collective. LF_EINVAL: ranks
 * that divide matrices are on several nodes. */
int lf_axes_open(struct lf_axes_comms *c, struct lf_train_who *w, const struct lf_axes *a,
                 lf_comm *world, lf_err *err);
void lf_axes_close(struct lf_axes_comms *c);

/* Memory of the host that communicators take beside that of the data axis. */
double lf_axes_comm_bytes(const struct lf_train_who *w);

#endif
