/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention where ranks divide the rows (layout.h): nodes that bring whole documents to the rank
 * that has some of the heads, and the results back to the rank that has the rows. Or one node in
 * place of attention, which brings keys and values of all rows to the rank that has the queries.
 */
#include <string.h>

#include "engine/graph/priv.h"

int64_t lf_context_own(int64_t heads, int ranks)
{
    return heads > ranks ? heads / ranks : 1;
}

/* One node for all readers of in[0], such as layers that share keys. */
static int32_t once(lf_graph *g, enum lf_op op, const int32_t in[2], const struct lf_attr *a)
{
    if (!in[0])
        return 0;
    for (size_t i = 0; i < g->n_n; i++)
        if (g->n[i].op == op && g->n[i].in[0] == in[0] && g->n[i].a.heads == a->heads)
            return g->n[i].out[0];
    const int32_t i = lf_node_new(g, op, in, 2, a);
    return i < 0 ? 0 : g->n[i].out[0];
}

static int32_t heads_of(lf_graph *g, int32_t x, int32_t heads)
{
    return once(g, LF_OP_CP_HEADS, (int32_t[]){x, 0}, &(struct lf_attr){.heads = heads});
}

/* Numbers of all rows, in their order. */
static int32_t whole(lf_graph *g, int32_t x, int32_t blocks)
{
    return once(g, LF_OP_CP_WHOLE, (int32_t[]){x, blocks}, &(struct lf_attr){0});
}

/* Those of the ranks that exchange heads. */
static int32_t of_group(lf_graph *g, int32_t x)
{
    const struct lf_context_parts p = lf_context_parts(&g->ps->layout);
    const struct lf_attr a = {.heads = p.rows > 1 ? p.heads : 0};
    return once(g, LF_OP_CP_WHOLE, (int32_t[]){x, 0}, &a);
}

static int check(lf_graph *g, const struct lf_attr *a, int c)
{
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

void lf_context_input(lf_graph *g, int64_t rows)
{
    const struct lf_layout *l = &g->ps->layout;
    if (l->context > 1 && l->context_gather)
        lf_input(g, LF_CONTEXT_BLOCKS, LF_I32, lf_context_blocks(l, rows), 1);
}

/* Attention of this rank's queries. Rows that know what they see must know it of all keys. */
static int enter_gather(lf_graph *g, int32_t in[], int32_t blocks)
{
    if (!blocks)
        return lf_graph_fail(g, LF_EINVAL,
                             "attention needs the input %s, which says where rows are",
                             LF_CONTEXT_BLOCKS);
    in[ATTN_BLOCKS] = blocks;
    in[ATTN_RUNS] = whole(g, in[ATTN_RUNS], blocks);
    return g->err.rc;
}

int lf_context_enter(lf_graph *g, int32_t in[], struct lf_attr *a, int32_t blocks)
{
    const struct lf_layout *l = &g->ps->layout;
    const struct lf_context_parts p = lf_context_parts(l);
    const int32_t heads = a->heads, groups = a->groups;
    if (l->context_gather && enter_gather(g, in, blocks))
        return g->err.rc;
    if (p.heads == 1)
        return 0;
    if (check(g, a, p.heads))
        return g->err.rc;
    in[ATTN_Q] = heads_of(g, in[ATTN_Q], heads);
    in[ATTN_K] = heads_of(g, in[ATTN_K], groups);
    in[ATTN_V] = heads_of(g, in[ATTN_V], groups);
    in[ATTN_SAMPLE] = of_group(g, in[ATTN_SAMPLE]);
    in[ATTN_POS] = of_group(g, in[ATTN_POS]);
    if (!l->context_gather) /* else it is of all keys already */
        in[ATTN_RUNS] = of_group(g, in[ATTN_RUNS]);
    a->heads = heads / p.heads;
    a->groups = (int32_t)lf_context_own(groups, p.heads);
    a->sink0 = p.head * a->heads;
    a->sinks = heads;
    return g->err.rc;
}

int lf_context_stats(lf_graph *g, int32_t in[], const struct lf_attr *a, int32_t blocks)
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
    in[STATS_IDS] = whole(g, in[STATS_IDS], blocks);
    in[STATS_SCORES] = whole(g, in[STATS_SCORES], blocks);
    in[STATS_ENTROPY] = whole(g, in[STATS_ENTROPY], blocks);
    return g->err.rc;
}

int lf_context_keep(lf_graph *g, int32_t in[], int32_t blocks)
{
    in[KEEP_ALL] = whole(g, in[KEEP_IDS], blocks);
    in[KEEP_BLOCKS] = blocks;
    return g->err.rc;
}

int32_t lf_context_leave(lf_graph *g, int32_t o, int32_t heads)
{
    const struct lf_attr a = {.heads = heads};
    const int32_t i = lf_node_new(g, LF_OP_CP_ROWS, &o, 1, &a);
    return i < 0 ? 0 : g->n[i].out[0];
}
