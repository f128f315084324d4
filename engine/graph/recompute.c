/* SPDX-License-Identifier: Apache-2.0
 *
 * Recomputation: backward nodes read re-emitted forward values instead of saved ones. Each block
 * (layer) keeps what other blocks read of it; "full" re-emits everything else of the block, with
 * what ranks that divide its matrices gather and sum, and with the rows that go to experts of other
 * ranks and come back; "selective" only ops that cost no matrix product. Values are the same bits,
 * since the re-emitted node is the same kernel on the same operands.
 *
 * Two nodes are re-emitted in a lighter form with the same bits: a norm that also added keeps the
 * sum and is repeated as the norm alone; a linear with a fused activation whose input to the
 * activation is kept is repeated as the activation alone.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"

struct pass {
    lf_graph *g;
    enum lf_recompute how;
    bool *crosses; /* per root: another block's forward reads it */
    int32_t *copy; /* per tensor: re-emitted one, 0 none */
    size_t n0;     /* tensors when the pass began */
    struct lf_nodes out;
};

/* What the ranks of the tensor axis tell each other, and rows of experts. Every rank plans the same
 * nodes, so all of them ask for it again at the same place; the sums are in one order, so they are
 * the same bits. The counts of rows are kept: by them the nodes of one exchange know each other.
 */
static bool repeats_exchange(const struct pass *p, enum lf_op op)
{
    return p->how == LF_RECOMPUTE_FULL && (op == LF_OP_TP_ENTER || op == LF_OP_TP_LEAVE ||
                                           op == LF_OP_EXPERT_SEND || op == LF_OP_EXPERT_RETURN);
}

/* Is forward root r kept for the backward? */
static bool kept(const struct pass *p, int32_t r)
{
    const lf_graph *g = p->g;
    const struct lf_tensor *t = &g->t[r];
    if (t->role != LF_ROLE_ACT || t->producer < 0 || (size_t)t->producer >= g->n_fwd ||
        t->is_output || p->crosses[r])
        return true;
    const struct lf_node *n = &g->n[t->producer];
    if (n->block < 0 ||
        ((lf_op_table[n->op].flags & LF_OPF_SIDE) && !repeats_exchange(p, (enum lf_op)n->op)))
        return true;
    if (p->how == LF_RECOMPUTE_FULL)
        return false;
    if (lf_is_linear(n->op) && n->a.act != LF_ACT_NONE && !n->in[LINEAR_RES] && n->out[LINEAR_PRE])
        return r != n->out[LINEAR_Y];
    return !(lf_op_table[n->op].flags & LF_OPF_CHEAP) || r != n->out[0];
}

static int32_t like(struct pass *p, int32_t t)
{
    lf_graph *g = p->g;
    struct lf_tensor old = g->t[t];
    int32_t c = lf_tensor_new(g, (enum lf_dtype)old.dtype, (enum lf_tensor_role)old.role, old.rows,
                              old.cols, "%s.again", old.name);
    if (c) {
        g->t[c].fixed = old.fixed;
        g->t[c].pinned = old.pinned;
    }
    p->copy[t] = c;
    return c;
}

static int32_t need(struct pass *p, int32_t t);

/* Re-emit the node that makes root r. */
static void again(struct pass *p, int32_t r)
{
    const struct lf_node old = p->g->n[p->g->t[r].producer];
    struct lf_node n = old;
    n.clone = true;
    if (old.op == LF_OP_NORM && old.out[NORM_SUM] && kept(p, old.out[NORM_SUM])) {
        n.in[NORM_X] = old.out[NORM_SUM];
        n.in[NORM_DELTA] = 0;
        n.out[NORM_SUM] = 0;
    } else if (lf_is_linear(old.op) && old.out[LINEAR_PRE] && kept(p, old.out[LINEAR_PRE]) &&
               r == old.out[LINEAR_Y]) {
        memset(&n, 0, sizeof n);
        n = (struct lf_node){
            .op = LF_OP_ACT, .clone = true, .block = old.block, .a = {.act = old.a.act}};
        n.in[0] = old.out[LINEAR_PRE];
        n.out[0] = old.out[LINEAR_Y];
    }
    for (int k = 0; k < LF_MAX_IN; k++)
        n.in[k] = need(p, n.in[k]);
    for (int k = 0; k < LF_MAX_OUT; k++)
        if (n.out[k])
            n.out[k] = like(p, n.out[k]);
    lf_nodes_push(p->g, &p->out, &n);
}

/* The tensor a backward node reads in place of t. */
static int32_t need(struct pass *p, int32_t t)
{
    lf_graph *g = p->g;
    if (!t || (size_t)t >= p->n0 || g->err.rc)
        return t;
    if (p->copy[t])
        return p->copy[t];
    if (kept(p, lf_root_of(g, t)))
        return t;
    if (g->t[t].parent) {
        int32_t parent = need(p, g->t[t].parent);
        return p->copy[t] = lf_tensor_view(g, parent, g->t[t].col, g->t[t].cols);
    }
    again(p, t);
    return p->copy[t];
}

/* Gradients go to experts of other ranks at node i. What is computed from there to their return is
 * done once for each round (experts.h), so what the repeated rows make is re-emitted before it.
 * Where the rows are kept it is not: each round makes it from its rows. */
static void need_region(struct pass *p, size_t i)
{
    const lf_graph *g = p->g;
    const int32_t counts = g->n[i].in[SEND_COUNTS], block = g->n[i].block;
    for (; i < g->n_n && g->n[i].block == block; i++) {
        for (int k = 0; k < LF_MAX_IN; k++)
            need(p, g->n[i].in[k]);
        if (g->n[i].op == LF_OP_EXPERT_RETURN && g->n[i].in[RETURN_COUNTS] == counts)
            break;
    }
}

static void find_crossings(struct pass *p)
{
    lf_graph *g = p->g;
    for (size_t i = 0; i < g->n_fwd; i++)
        for (int k = 0; k < LF_MAX_IN; k++) {
            int32_t r = lf_root_of(g, g->n[i].in[k]);
            if (r && g->t[r].producer >= 0 && g->n[g->t[r].producer].block != g->n[i].block)
                p->crosses[r] = true;
        }
}

int lf_recompute(lf_graph *g, enum lf_recompute how, lf_err *err)
{
    int rc = lf_graph_check(g, err);
    if (rc != 0 || how == LF_RECOMPUTE_NONE || g->n_fwd == g->n_n)
        return rc;
    struct pass p = {.g = g, .how = how, .n0 = g->n_t};
    p.crosses = lf_calloc(g->n_t, sizeof *p.crosses, err);
    p.copy = lf_calloc(g->n_t, sizeof *p.copy, err);
    if (!p.crosses || !p.copy) {
        rc = LF_ENOMEM;
        goto out;
    }
    find_crossings(&p);
    for (size_t i = 0; i < g->n_n; i++) {
        struct lf_node n = g->n[i];
        if (i >= g->n_fwd && n.op == LF_OP_EXPERT_SEND && repeats_exchange(&p, (enum lf_op)n.op))
            need_region(&p, i);
        for (int k = 0; k < LF_MAX_IN && i >= g->n_fwd; k++)
            n.in[k] = need(&p, n.in[k]);
        lf_nodes_push(g, &p.out, &n);
    }
    rc = lf_nodes_take(g, &p.out, g->n_fwd, err);
out:
    free(p.crosses);
    free(p.copy);
    return rc;
}
