/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks on a mesh (data, tensor): rank = data * tensor + coordinate on the tensor axis. The trainer
 * of engine/train gets the ranks of equal coordinate on the tensor axis, as if they were all, and
 * knows nothing of that axis. Its store gets the layout where it is created (the linker puts
 * mesh.c's lf_pstore_create in place of the engine's, --wrap in local.mk), and its executor the
 * sums of the tensor axis beside those of the data axis.
 */
#ifndef LF_TESTS_LAYOUT_MESH_H
#define LF_TESTS_LAYOUT_MESH_H

#include "engine/comm/mesh.h"
#include "engine/graph/exec.h"
#include "engine/graph/layout.h"
#include "tests/layout/rig.h"

/* The place of this thread's rank. Zeroed: it is no rank, or there is no tensor axis. */
struct rig_mesh {
    lf_mesh *mesh;
    lf_comm *world, *data, *tensor; /* borrowed */
    struct lf_layout layout;
    size_t part[LOCAL_RANKS]; /* of a call under way: the same for each rank of the tensor axis */
};

/* The ranks of the tensor axis, at least 1. */
int rig_tensor_ranks(const struct rig_layout *l);

/* Collective over world. The mesh is this thread's until it is closed. */
int rig_mesh_open(struct rig_mesh *m, const struct rig_layout *l, lf_comm *world, lf_err *err);
/* Makes the executor sum over the ranks of the tensor axis too; for a plan whose store was created
 * since the mesh was opened. */
void rig_mesh_connect(lf_exec *ex);
void rig_mesh_close(struct rig_mesh *m);

#endif
