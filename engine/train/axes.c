/* SPDX-License-Identifier: Apache-2.0
 *
 * The axes of a run's ranks: see axes.h.
 */
#include "engine/train/axes.h"

#include "engine/train/zero.h"

static int tensor_of(const struct lf_axes *a)
{
    return a->tensor > 1 ? a->tensor : 1;
}

int lf_axes_check(const struct lf_axes *a, int ranks, lf_err *err)
{
    const int tensor = tensor_of(a);
    if (a->sequence && tensor == 1)
        return lf_fail(err, LF_EINVAL,
                       "sequence_parallel divides rows among the ranks that tensor names; set "
                       "tensor to 2 or more");
    if (ranks % tensor)
        return lf_fail(err, LF_EINVAL,
                       "tensor = %d: %d rank%s cannot form such groups; take a divisor of their "
                       "number, or start a multiple of %d ranks",
                       tensor, ranks, ranks == 1 ? "" : "s", tensor);
    return 0;
}

struct lf_train_who lf_axes_who(const struct lf_axes *a, int place, int ranks)
{
    const int tensor = tensor_of(a);
    return (struct lf_train_who){.data = place / tensor,
                                 .data_ranks = ranks / tensor,
                                 .tensor = place % tensor,
                                 .tensor_ranks = tensor};
}

struct lf_layout lf_axes_layout(const struct lf_axes *a, const struct lf_train_who *w)
{
    return (struct lf_layout){
        .tensor = w->tensor_ranks, .tensor_rank = w->tensor, .sequence = a->sequence};
}

static int check_nodes(const lf_mesh *m, lf_comm *world, int tensor, lf_err *err)
{
    int ranks[2];
    if (lf_mesh_inside(m, "tensor", ranks))
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "tensor = %d: ranks %d and %d divide matrices and are on two nodes (%s, %s), "
                   "which makes each layer wait for the network; take a divisor of the ranks of a "
                   "node, or set tensor_across_nodes = yes",
                   tensor, ranks[0], ranks[1], lf_comm_peer_host(world, ranks[0]),
                   lf_comm_peer_host(world, ranks[1]));
}

int lf_axes_open(lf_mesh **m, struct lf_train_who *w, const struct lf_axes *a, lf_comm *world,
                 lf_err *err)
{
    const int tensor = tensor_of(a);
    const lf_mesh_dim dims[] = {{"data", 0}, {"tensor", tensor}};
    *m = NULL;
    *w = lf_axes_who(a, world ? world->rank : 0, world ? world->size : 1);
    if (tensor == 1)
        return 0;
    *m = lf_mesh_create(world, dims, 2, err);
    if (!*m)
        return err ? err->rc : LF_ECOMM;
    w->data = lf_mesh_coord(*m, "data");
    w->tensor = lf_mesh_coord(*m, "tensor");
    return a->across_nodes ? 0 : check_nodes(*m, world, tensor, err);
}

double lf_axes_comm_bytes(const struct lf_train_who *w)
{
    return w->tensor_ranks > 1 ? LF_COMM_BYTES * (lf_axes_ranks(w) + w->tensor_ranks) : 0;
}
