/* SPDX-License-Identifier: Apache-2.0
 *
 * The process mesh: ranks as points of a grid with named dimensions, and a communicator along each
 * of them.
 *
 * Dimensions are given from the slowest to the fastest. With sizes n_0, n_1, ..., n_{k-1} and
 * coordinates c_i,
 *
 *     place = (...(c_0 * n_1 + c_1) * n_2 + ...) * n_{k-1} + c_{k-1}
 *
 * is the place of a rank in the order of nodes: first all ranks of the node that rank 0 is on, then
 * those of the node that the lowest of the others is on, and so on. So neighbours in the last
 * dimension share a node where that is possible, however a launcher deals ranks to nodes. Ranks
 * themselves keep their numbers.
 *
 * The names of this project: "pipeline", "data", "context", "tensor", in that order where several
 * are used.
 */
#ifndef LF_COMM_MESH_H
#define LF_COMM_MESH_H

#include <stdbool.h>

#include "engine/comm/comm.h"

enum { LF_MESH_MAX_DIMS = 8 };

typedef struct lf_mesh_dim {
    const char *name; /* copied, at most 15 bytes */
    int size;         /* >= 1; one dimension may have 0: the ranks that the others leave */
} lf_mesh_dim;

typedef struct lf_mesh lf_mesh;

/* Collective over world, which is borrowed until lf_mesh_destroy. LF_EINVAL: the product of the
 * sizes is not the number of ranks, a name is missing, too long or used twice, or ranks ask for
 * different meshes. */
lf_mesh *lf_mesh_create(lf_comm *world, const lf_mesh_dim *dims, int n_dims, lf_err *err);
void lf_mesh_destroy(lf_mesh *m);

/* Size and coordinate of this rank in a dimension. A dimension that the mesh does not have has size
 * 1 and coordinate 0, so callers need not know which dimensions exist. */
int lf_mesh_size(const lf_mesh *m, const char *dim);
int lf_mesh_coord(const lf_mesh *m, const char *dim);
/* Returns the world rank of the point at coord[n_dims]; dimensions are in the order of creation. */
int lf_mesh_rank_at(const lf_mesh *m, const int *coord);

/* Does each group of ranks that differ in `dim` only lie within a node? Else ranks has two world
 * ranks of such a group that do not share one. The same on every rank. */
bool lf_mesh_inside(const lf_mesh *m, const char *dim, int ranks[2]);

/* Returns the communicator of the ranks that differ from this one in `dim` only, ordered by that
 * coordinate; borrowed. For a dimension that the mesh does not have it is that of one rank. */
lf_comm *lf_mesh_comm(const lf_mesh *m, const char *dim);
/* Creates the communicator of the ranks that differ from this one in the given dimensions only,
 * ordered by place; gradients use "data" and "context". Collective over world. The caller owns it.
 * Dimensions that the mesh does not have are ignored. */
lf_comm *lf_mesh_comm_over(lf_mesh *m, const char *const *dims, int n, lf_err *err);

#endif
