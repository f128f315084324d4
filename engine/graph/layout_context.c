/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention where ranks divide the rows (layout.h): nodes that bring whole documents to the rank
 * that has some of the heads, and the results back to the rank that has the rows.
 */
#include <string.h>

#include "engine/graph/priv.h"

int64_t lf_context_own(int64_t heads, int ranks)
{
    return heads > ranks ? heads / ranks : 1;
}

/* One node for all readers of x, such as layers that share keys. */
static int32_t once(lf_graph *g, enum lf_op op, int32_t x, const struct lf_attr *a)
{
    if (!x)
        return 0;
    for (size_t i = 0; i < g->n_n; i++)
        if (g->n[i].op == op && g->n[i].in[0] == x && g->n[i].a.heads == a->heads)
            return g->n[i].out[0];
    const int32_t i = lf_node_new(g, op, &x, 1, a);
    return i < 0 ? 0 : g->n[i].out[0];
}

static int32_t heads_of(lf_graph *g, int32_t x, int32_t heads)
{
    return once(g, LF_OP_CP_HEADS, x, &(struct lf_attr){.heads = heads});
}

/* Numbers of all rows. */
static int32_t whole(lf_graph *g, int32_t x)
{
    return once(g, LF_OP_CP_WHOLE, x, &(struct lf_attr){0});
}

static int check(lf_graph *g, const struct lf_attr *a)
{
    const int c = g->ps->layout.context;
    if (a->heads % c)
        return lf_graph_fail(g, LF_EINVAL,
                             "context = %d: a rank has %d heads of attention, which do not divide "
                             "among so many ranks; take a divisor of them",
                             c, a->heads);
    if (a->groups % c && c % a->groups)
        return lf_graph_fail(g, LF_EINVAL,
                             "context = %d: a rank has %d heads of keys, which are no multiple and "
                             "no divisor of it; take another context",
                             c, a->groups);
    return 0;
}

int lf_context_enter(lf_graph *g, int32_t in[], struct lf_attr *a)
{
    const struct lf_layout *l = &g->ps->layout;
    const int32_t heads = a->heads, groups = a->groups;
    if (check(g, a))
        return g->err.rc;
    in[ATTN_Q] = heads_of(g, in[ATTN_Q], heads);
    in[ATTN_K] = heads_of(g, in[ATTN_K], groups);
    in[ATTN_V] = heads_of(g, in[ATTN_V], groups);
    for (int k = ATTN_SAMPLE; k <= ATTN_RUNS; k++)
        if (k != ATTN_PREFIX) /* which is of documents */
            in[k] = whole(g, in[k]);
    a->heads = heads / l->context;
    a->groups = (int32_t)lf_context_own(groups, l->context);
    a->sink0 = l->context_rank * a->heads;
    a->sinks = heads;
    return g->err.rc;
}

int lf_context_stats(lf_graph *g, int32_t in[], const struct lf_attr *a)
{
    if (in[STATS_BIAS]) {
        int32_t own[LF_MAX_IN];
        struct lf_attr counts = *a;
        counts.no_record = true;
        memcpy(own, in, sizeof own);
        own[STATS_PREV] = 0;
        lf_node_new(g, LF_OP_MOE_STATS, own, LF_MAX_IN, &counts);
        in[STATS_BIAS] = 0;
    }
    in[STATS_IDS] = whole(g, in[STATS_IDS]);
    in[STATS_SCORES] = whole(g, in[STATS_SCORES]);
    in[STATS_ENTROPY] = whole(g, in[STATS_ENTROPY]);
    return g->err.rc;
}

int32_t lf_context_leave(lf_graph *g, int32_t o, int32_t heads)
{
    const struct lf_attr a = {.heads = heads};
    const int32_t i = lf_node_new(g, LF_OP_CP_ROWS, &o, 1, &a);
    return i < 0 ? 0 : g->n[i].out[0];
}
