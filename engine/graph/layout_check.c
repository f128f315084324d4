/* SPDX-License-Identifier: Apache-2.0
 *
 * The check after differentiation: every gradient ends in the place of its parameter, but for sums
 * over axes, and these are the sums that the optimizer's segment makes (layout.h).
 */
#include "engine/graph/priv.h"

static int refuse(lf_graph *g, const struct lf_tensor *t, enum lf_axis axis, int want)
{
    return lf_graph_fail(g, LF_EINVAL,
                         "the gradient of %s does not add up on the %s axis of the layout: it is "
                         "%s, the parameter is %s",
                         t->name, lf_axis_name(axis), lf_place_name((enum lf_place)t->place[axis]),
                         lf_place_name((enum lf_place)want));
}

/* Micro-batches are different on the data axis, and rows on the context axis, so every gradient is
 * a partial sum there. On the expert axis, which is a part of the first, all but those of experts
 * are. With `folded` the tensor axis is a part of that of experts, and no sum of its own. */
static int settle(lf_graph *g, const struct lf_tensor *t, enum lf_axis axis)
{
    struct lf_pgroup *of = &g->ps->g[t->group];
    if (axis == LF_AXIS_TENSOR && of->experts && g->ps->layout.folded)
        return t->place[axis] == LF_PL_PARTIAL ? 0 : refuse(g, t, axis, LF_PL_PARTIAL);
    const int place = t->place[axis], want = axis == LF_AXIS_EXPERT && of->experts ? LF_PL_EXPERTS
                                             : axis != LF_AXIS_TENSOR              ? LF_PL_PARTIAL
                                             : of->place == LF_PL_COLS && of->ndim == 1 ? LF_PL_ROWS
                                                                                        : of->place;
    if (place == LF_PL_PARTIAL &&
        (axis == LF_AXIS_TENSOR ? of->place == LF_PL_SAME : want == LF_PL_PARTIAL))
        of->sum[axis] = true;
    else if (place != want)
        return refuse(g, t, axis, want);
    return 0;
}

static int check_axis(lf_graph *g, enum lf_axis axis)
{
    int rc = 0;
    lf_place_sources(g, axis);
    for (size_t i = 0; i < g->n_n && rc == 0; i++)
        rc = lf_place_node(g, &g->n[i], axis);
    for (size_t i = 1; i < g->n_t && rc == 0; i++)
        if (g->t[i].role == LF_ROLE_GRAD && g->t[i].place[axis] != LF_PL_UNSET)
            rc = settle(g, &g->t[i], axis);
    return rc;
}

/* An output of a node that computes nothing is what that node read. */
static int hand_output(lf_graph *g, int32_t from, int32_t to)
{
    struct lf_tensor *x = &g->t[from], *y = &g->t[to];
    if (!x->is_output)
        return 0;
    if (y->is_output || y->parent || y->role != LF_ROLE_ACT)
        return lf_graph_fail(g, LF_EINVAL, "output %s: %s cannot be read under this name too",
                             x->out_name, y->name);
    y->is_output = y->dense_only = true;
    y->out_name = x->out_name;
    x->is_output = false;
    return 0;
}

/* Without rows to gather lf_tp_enter computes nothing: its readers take what it read, in the type
 * that they want (the gate of a shared expert stays f32). */
static int drop_enters(lf_graph *g)
{
    for (size_t i = 0; i < g->n_n; i++) {
        const struct lf_node n = g->n[i];
        if (n.op != LF_OP_TP_ENTER || n.a.sequence)
            continue;
        for (size_t k = 0; k < g->n_n; k++)
            for (int j = 0; j < LF_MAX_IN; j++)
                if (g->n[k].in[j] == n.out[0])
                    g->n[k].in[j] = n.in[0];
        for (size_t k = 1; k < g->n_t; k++)
            if (g->t[k].parent == n.out[0])
                g->t[k].parent = n.in[0];
        g->t[n.in[0]].pinned = g->t[n.in[0]].pinned || g->t[n.out[0]].pinned;
        if (hand_output(g, n.out[0], n.in[0]))
            return g->err.rc;
        g->n[i].op = LF_OP_NONE;
    }
    lf_compact(g);
    return 0;
}

/* What ranks add up is not rounded before, so that bf16 is rounded once, as by one rank. A sum has
 * one row of an embedding from one rank and zeros from the others, so that is exact in any type. */
static void keep_f32(lf_graph *g, int32_t t)
{
    struct lf_tensor *x = &g->t[lf_root_of(g, t)];
    const struct lf_node *n = x->producer >= 0 ? &g->n[x->producer] : NULL;
    if (!n || x->role != LF_ROLE_ACT || x->pinned || x->fixed || n->op == LF_OP_EMBED ||
        lf_op_table[n->op].out_types[0] != 'o')
        return;
    x->pinned = true;
    const int addends = n->op == LF_OP_ADD ? 2 : n->op == LF_OP_DORA ? DORA_REST + 1 : 0;
    for (int k = 0; k < addends; k++) /* the base's product and an adapter's */
        if (n->in[k])
            keep_f32(g, n->in[k]);
}

static void keep_addends(lf_graph *g)
{
    for (size_t i = 0; i < g->n_fwd; i++)
        if (g->n[i].op == LF_OP_TP_LEAVE)
            keep_f32(g, g->n[i].in[0]);
}

int lf_layout_check(lf_graph *g, lf_err *err)
{
    int rc = check_axis(g, LF_AXIS_DATA);
    if (rc == 0 && g->ps->layout.context > 1)
        rc = check_axis(g, LF_AXIS_CONTEXT);
    if (rc == 0 && g->ps->layout.expert > 1)
        rc = check_axis(g, LF_AXIS_EXPERT);
    if (rc == 0 && g->ps->layout.tensor > 1)
        rc = check_axis(g, LF_AXIS_TENSOR);
    if (rc == 0 && g->ps->layout.tensor > 1) {
        rc = drop_enters(g);
        keep_addends(g);
    }
    return rc != 0 ? lf_graph_check(g, err) : 0;
}
