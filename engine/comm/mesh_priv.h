/* SPDX-License-Identifier: Apache-2.0
 *
 * The places of ranks in a mesh, a function of their hosts alone.
 */
#ifndef LF_COMM_MESH_PRIV_H
#define LF_COMM_MESH_PRIV_H

#include "engine/base/err.h"

/* Ranks node by node: nodes in the order of their first ranks, the ranks of one in their order, so
 * that rank 0 stays the first. host[n] by rank. at[n] by place: its rank; place[n] by rank: its
 * place; node[n] by place: the first rank of its node. */
int lf_mesh_order(const char *const *host, int n, int *at, int *place, int *node, lf_err *err);

#endif
