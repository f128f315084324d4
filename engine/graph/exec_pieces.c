/* SPDX-License-Identifier: Apache-2.0
 *
 * Segments of ranks that divide matrices, rows or experts on a backend that records. As with
 * windows (exec_window.c), what ranks do with each other is in no recorded graph: a segment runs
 * in pieces, which end around each node that exchanges. That node is queued anew every time.
 *
 * A piece begins at an edge and ends at the next one, so its first node names it. Edges are also
 * wherever some run of the chain begins or ends: between segments, where a bucket of gradients is
 * complete, and at the events of windows. The last node of a region of experts (experts.h) is
 * alone, too: behind it the rounds run that the counts ask for, each call by itself. And so is the
 * one that waits for rows that come late.
 */
#include <stdlib.h>

#include "engine/graph/exec_priv.h"

/* Does a node wait for other ranks? */
static bool exchanges(const struct lf_node *n)
{
    const int kernel = lf_op_table[n->op].kernel;
    return kernel == LF_KID_exchange || kernel == LF_KID_attn_spread || kernel == LF_KID_experts ||
           (kernel == LF_KID_linear_xent && n->a.v_all);
}

static void be_alone(const struct lf_bound *bc, int32_t node)
{
    uint8_t *edge = &bc->edge[node];
    edge[0] = LF_EDGE_ALONE;
    edge[1] = edge[1] ? edge[1] : LF_EDGE;
}

static void find_edges(const lf_exec *ex, const struct lf_chain *c, struct lf_bound *bc)
{
    const lf_graph *g = c->g;
    bc->edge[0] = bc->edge[g->n_fwd] = bc->edge[g->n_bwd] = bc->edge[g->n_n] = LF_EDGE;
    for (size_t i = 0; bc->ready && i < ex->p->n_buckets; i++)
        bc->edge[bc->ready[i]] = LF_EDGE;
    for (size_t i = 0; i < c->n_events; i++)
        bc->edge[c->event[i].node] = LF_EDGE;
    for (size_t i = 0; i < g->n_n; i++)
        if (exchanges(&g->n[i])) {
            bc->edge[i] = LF_EDGE_ALONE;
            bc->edge[i + 1] = LF_EDGE;
        }
    for (size_t k = 0; k < c->n_regions; k++) {
        be_alone(bc, c->region[k].last);
        if (c->region[k].reader)
            be_alone(bc, c->region[k].reader);
    }
}

int lf_exec_pieces_bind(lf_exec *ex, size_t chain, lf_err *err)
{
    const struct lf_chain *c = &ex->p->c[chain];
    struct lf_bound *bc = &ex->chain[chain];
    const struct lf_layout *l = &ex->p->ps->layout;
    if ((l->tensor <= 1 && l->context <= 1 && l->expert <= 1) || !ex->b->ops->capture_begin)
        return 0;
    bc->edge = lf_calloc(c->g->n_n + 1, sizeof *bc->edge, err);
    bc->between =
        lf_calloc(c->g->n_n * (size_t)bc->variants * (size_t)c->o.slots, sizeof *bc->between, err);
    if (!bc->edge || !bc->between)
        return LF_ENOMEM;
    find_edges(ex, c, bc);
    return 0;
}

void lf_exec_pieces_free(const lf_exec *ex, size_t chain)
{
    struct lf_bound *bc = &ex->chain[chain];
    const struct lf_chain *c = &ex->p->c[chain];
    const size_t n = c->g->n_n * (size_t)bc->variants * (size_t)c->o.slots;
    for (size_t i = 0; bc->between && i < n; i++)
        lf_back_forget_captured(ex->b, &bc->between[i]);
    free(bc->between);
    free(bc->edge);
}

size_t lf_exec_piece_end(const struct lf_bound *bc, size_t at, size_t to)
{
    size_t end = at + 1;
    while (end < to && !bc->edge[end])
        end++;
    return end;
}
