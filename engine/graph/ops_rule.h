/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for shape rules that stand beside their ops. */
#ifndef LF_GRAPH_OPS_RULE_H
#define LF_GRAPH_OPS_RULE_H

#include "engine/graph/priv.h"

/* Refuses what an operand is, or that there is none. */
static inline int bad(lf_graph *g, const struct lf_node *n, int slot, const char *why)
{
    const struct lf_tensor *t = &g->t[n->in[slot]];
    return lf_graph_fail(g, LF_EINVAL, "%s: %s [%lld, %lld]: %s", lf_op_table[n->op].name,
                         n->in[slot] ? t->name : "an operand", (long long)t->rows,
                         (long long)t->cols, why);
}

/* A float matrix that is no parameter. */
static inline bool is_value(const lf_graph *g, int32_t t)
{
    return t && lf_is_float(g->t[t].dtype) && g->t[t].role != LF_ROLE_PARAM;
}

#endif
