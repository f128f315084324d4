/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a model is cut into graphs: what comes from the graph before and what goes to the next one.
 * A value that goes on is a tensor of its own, because a slot keeps it after the segment: a graph
 * that changes nothing between its two ends copies.
 */
#include "engine/graph/priv.h"

lf_val lf_cut_in(lf_graph *g, const char *name, int64_t rows, int64_t cols, const char *grad_name)
{
    const size_t before = g->n_t;
    const lf_val v = lf_input_act(g, name, rows, cols);
    if (!v.id)
        return LF_NONE;
    if (g->n_t == before) {
        lf_graph_fail(g, LF_EINVAL, "there is an input %s already", name);
        return LF_NONE;
    }
    g->t[v.id].cut = true;
    if (!grad_name)
        return v;
    const char *to = lf_arena_strdup(g->arena, grad_name, &g->err);
    if (!to || lf_grow(&g->cut, &g->cap_cut, g->n_cut, sizeof *g->cut, &g->err))
        return LF_NONE;
    g->cut[g->n_cut++] = (struct lf_cut){v.id, to};
    return v;
}

bool lf_graph_is_cut(const lf_graph *g)
{
    bool yes = false;
    for (size_t i = 1; i < g->n_t; i++)
        yes = yes || g->t[i].cut;
    return yes;
}

/* A whole activation in the compute type that nothing else keeps: t, or a copy of it. */
static int32_t apart(lf_graph *g, int32_t t)
{
    if (g->err.rc || t <= 0 || (size_t)t >= g->n_t)
        return t;
    const struct lf_tensor *x = &g->t[t];
    const bool as_it_is =
        x->role == LF_ROLE_ACT && !x->parent && !x->fixed && !x->pinned && !x->is_output;
    return as_it_is ? t : lf_graph_op(g, LF_OP_COPY, &t, 1, NULL).id;
}

static void keep(lf_graph *g, int32_t t, const char *name)
{
    lf_output(g, (lf_val){t}, name);
    if (!g->err.rc)
        g->t[t].cut = true;
}

void lf_cut_out(lf_graph *g, lf_val v, const char *name, const char *grad_name)
{
    const int32_t t = apart(g, v.id);
    keep(g, t, name);
    if (g->err.rc || !grad_name)
        return;
    const lf_val d = lf_cut_in(g, grad_name, g->t[t].rows, g->t[t].cols, NULL);
    if (!d.id || lf_grow(&g->seed, &g->cap_seed, g->n_seed, sizeof *g->seed, &g->err))
        return;
    g->seed[g->n_seed++] = (struct lf_seed){t, d.id};
}

/* A copy that is f32 in every precision. */
static int32_t copy_f32(lf_graph *g, int32_t t)
{
    const lf_val y = lf_graph_op(g, LF_OP_CAST, &t, 1, NULL);
    lf_pin_f32(g, y);
    return y.id;
}

void lf_cut_out_sums(lf_graph *g, lf_val v, const char *name)
{
    if (g->err.rc)
        return;
    keep(g, g->t[v.id].role == LF_ROLE_INPUT ? copy_f32(g, v.id) : v.id, name);
}

void lf_moe_total(lf_graph *g, lf_val total, const char *name)
{
    if (g->err.rc)
        return;
    g->moe_total = total.id;
    g->moe_total_name = name ? lf_arena_strdup(g->arena, name, &g->err) : NULL;
}

int lf_cut_gradients(struct lf_ad *ad)
{
    lf_graph *g = ad->g;
    for (size_t i = 0; i < g->n_cut && !g->err.rc; i++) {
        const struct lf_cut c = g->cut[i];
        const int32_t d = lf_ad_grad_of(ad, c.value);
        if (!d)
            return lf_graph_fail(g, LF_EINVAL,
                                 "input %s has no gradient: nothing that goes on depends on it",
                                 g->t[c.value].name);
        keep(g, apart(g, d), c.grad_name);
    }
    if (g->moe_total && g->moe_total_name && !g->err.rc)
        keep(g, copy_f32(g, g->moe_total), g->moe_total_name);
    return g->err.rc;
}
