/* SPDX-License-Identifier: Apache-2.0
 *
 * Reverse-mode differentiation of a forward graph, in place: backward nodes are appended behind the
 * forward ones. Only tensors with a trained parameter upstream get gradients, so frozen parts make
 * no node.
 *
 * Gradients of slices are written straight into the gradient of the whole: the slot a vjp writes
 * into is a column view of it. That works while a slice has one consumer; with more, contributions
 * are added first and copied into place. A tensor that is read whole and in slices is refused: no
 * model here does that, and a silent sum would be the place to hide a bug.
 */
#include <stdlib.h>

#include "engine/graph/priv.h"

bool lf_ad_wants(const struct lf_ad *ad, int32_t t)
{
    const uint8_t role = ad->g->t[t].role; /* of inputs, those of lf_cut_in need one */
    return t && (size_t)t < ad->n && ad->needs[lf_root_of(ad->g, t)] &&
           (role == LF_ROLE_ACT || role == LF_ROLE_INPUT);
}

static int32_t new_grad(struct lf_ad *ad, int32_t t)
{
    const struct lf_tensor *x = &ad->g->t[t];
    int32_t d = lf_tensor_new(ad->g, LF_F32, LF_ROLE_ACT, x->rows, x->cols, "d_%s", x->name);
    if (d)
        ad->g->t[d].pinned =
            ad->g->t[lf_root_of(ad->g, t)].pinned || ad->g->t[lf_root_of(ad->g, t)].grad_f32;
    return d;
}

/* Gradient of a tensor that is read in slices. */
static int32_t base_grad(struct lf_ad *ad, int32_t t)
{
    if (!ad->grad[t]) {
        if (ad->uses[t] > 0) {
            lf_graph_fail(ad->g, LF_ENOTSUP,
                          "%s is read whole and in slices; its gradient needs one or the other",
                          ad->g->t[t].name);
            return 0;
        }
        int32_t parent = ad->g->t[t].parent;
        ad->grad[t] =
            parent ? lf_tensor_view(ad->g, base_grad(ad, parent), ad->g->t[t].col, ad->g->t[t].cols)
                   : new_grad(ad, t);
    }
    return ad->grad[t];
}

int32_t lf_ad_slot(struct lf_ad *ad, int32_t t)
{
    const struct lf_tensor *x = &ad->g->t[t];
    if (!x->parent || ad->uses[t] != 1 || ad->grad[t])
        return new_grad(ad, t);
    int32_t parent = x->parent;
    int64_t col = x->col, cols = x->cols;
    return lf_tensor_view(ad->g, base_grad(ad, parent), col, cols);
}

static int32_t dense(struct lf_ad *ad, int32_t t)
{
    if (!t || !ad->g->t[t].parent)
        return t;
    int32_t i = lf_node_new(ad->g, LF_OP_COPY, &t, 1, NULL);
    return i < 0 ? 0 : ad->g->n[i].out[0];
}

void lf_ad_contribute(struct lf_ad *ad, int32_t t, int32_t d)
{
    if (!lf_ad_wants(ad, t) || !d)
        return;
    if (!ad->grad[t]) {
        ad->grad[t] = d;
        return;
    }
    const int32_t in[] = {dense(ad, ad->grad[t]), dense(ad, d)};
    int32_t i = lf_node_new(ad->g, LF_OP_ADD, in, 2, NULL);
    if (i < 0)
        return;
    ad->grad[t] = ad->g->n[i].out[0];
    ad->g->t[ad->grad[t]].pinned =
        ad->g->t[lf_root_of(ad->g, t)].pinned || ad->g->t[lf_root_of(ad->g, t)].grad_f32;
}

/* The gradients of t's slices are the slices of one tensor that is shaped like t: it, else 0. A
 * layer whose result took t as an addend part by part (adapter.c) leaves them so, and then nothing
 * is copied. */
static int32_t one_whole(const struct lf_ad *ad, int32_t t)
{
    const struct lf_tensor *x = ad->g->t;
    int32_t whole = 0;
    int64_t covered = 0;
    for (size_t v = 1; v < ad->n; v++) {
        const int32_t d = x[v].parent == t ? ad->grad[v] : 0;
        if (!d)
            continue;
        if (x[d].col != x[v].col || x[d].cols != x[v].cols || !x[d].parent ||
            (whole && whole != x[d].parent))
            return 0;
        whole = x[d].parent;
        covered += x[v].cols;
    }
    return whole && !x[whole].parent && x[whole].cols == x[t].cols && covered == x[t].cols ? whole
                                                                                           : 0;
}

/* Bring the gradients of t's slices into t's gradient. */
static void gather_slices(struct lf_ad *ad, int32_t t)
{
    int64_t covered = 0;
    bool sliced = false;
    if (!ad->grad[t])
        ad->grad[t] = one_whole(ad, t);
    for (size_t v = 1; v < ad->n; v++) {
        if (ad->g->t[v].parent != t || ad->g->t[v].part)
            continue;
        sliced = true;
        gather_slices(ad, (int32_t)v);
        if (!ad->grad[v])
            continue;
        covered += ad->g->t[v].cols;
        if (ad->g->t[ad->grad[v]].parent && ad->g->t[ad->grad[v]].parent == ad->grad[t])
            continue; /* written in place */
        int32_t place = lf_tensor_view(ad->g, base_grad(ad, t), ad->g->t[v].col, ad->g->t[v].cols);
        int32_t i = lf_node_raw(ad->g, LF_OP_COPY, ad->block);
        if (i < 0 || !place)
            return;
        ad->g->n[i].in[0] = ad->grad[v];
        ad->g->n[i].out[0] = place;
        ad->g->t[place].producer = i;
        ad->grad[v] = place;
    }
    if (sliced && covered && covered != ad->g->t[t].cols)
        lf_graph_fail(
            ad->g, LF_ENOTSUP,
            "only %lld of %lld columns of %s reach the loss; give every slice a use or none",
            (long long)covered, (long long)ad->g->t[t].cols, ad->g->t[t].name);
}

int32_t lf_ad_grad_of(struct lf_ad *ad, int32_t t)
{
    if (!t)
        return 0;
    if (ad->g->t[t].part) {
        const int64_t col = ad->g->t[t].col, cols = ad->g->t[t].cols;
        const int32_t whole = lf_ad_grad_of(ad, ad->g->t[t].parent);
        if (!ad->grad[t] && whole)
            ad->grad[t] = lf_tensor_view(ad->g, whole, col, cols);
        return ad->grad[t];
    }
    gather_slices(ad, t);
    return ad->grad[t];
}

static void mark_needs(struct lf_ad *ad)
{
    lf_graph *g = ad->g;
    for (size_t i = 1; i < ad->n; i++)
        ad->needs[i] = g->t[i].role == LF_ROLE_PARAM && !g->ps->g[g->t[i].group].frozen &&
                       !g->ps->g[g->t[i].group].balanced;
    for (size_t i = 0; i < g->n_cut; i++)
        ad->needs[g->cut[i].value] = true;
    for (size_t i = 0; i < g->n_fwd; i++) {
        const struct lf_node *n = &g->n[i];
        bool any = false;
        for (int k = 0; k < LF_MAX_IN; k++)
            any = any || (n->in[k] && ad->needs[lf_root_of(g, n->in[k])]);
        for (int k = 0; k < LF_MAX_OUT; k++)
            if (n->out[k] && any)
                ad->needs[n->out[k]] = ad->needs[lf_root_of(g, n->out[k])] = true;
        for (int k = 0; k < LF_MAX_IN; k++)
            if (n->in[k] && any)
                ad->uses[n->in[k]]++;
    }
}

static int run_vjps(struct lf_ad *ad)
{
    lf_graph *g = ad->g;
    for (size_t i = g->n_fwd; i-- > 0 && !g->err.rc;) {
        const struct lf_op_row *row = &lf_op_table[g->n[i].op];
        bool flows = g->n[i].op == LF_OP_XENT && ad->needs[g->n[i].out[XENT_LOSS]];
        for (int k = 0; k < LF_MAX_OUT && !flows; k++) {
            int32_t o = g->n[i].out[k];
            flows = o && ad->needs[o] && lf_ad_grad_of(ad, o);
        }
        if (!flows)
            continue;
        if (!row->vjp)
            return lf_graph_fail(
                g, LF_ENOTSUP,
                "%s has no backward; it cannot stand before the loss of a trained graph",
                row->name);
        ad->block = g->block = g->n[i].block;
        row->vjp(ad, (int32_t)i);
    }
    g->block = -1;
    return g->err.rc;
}

/* Does the loss, or an output with a gradient from outside, depend on anything that is trained?
 * Outside gradients begin here. */
static bool seed_gradients(struct lf_ad *ad)
{
    lf_graph *g = ad->g;
    bool any = false;
    for (size_t i = 0; i < g->n_fwd; i++)
        any = any || (g->n[i].op == LF_OP_XENT && ad->needs[g->n[i].out[XENT_LOSS]]);
    for (size_t i = 0; i < g->n_seed; i++) {
        any = any || ad->needs[g->seed[i].value];
        lf_ad_contribute(ad, g->seed[i].value, g->seed[i].grad);
    }
    return any;
}

int lf_autodiff(lf_graph *g, lf_err *err)
{
    struct lf_ad ad = {.g = g, .n = g->n_t, .block = -1};
    int rc = lf_graph_check(g, err);
    if (rc != 0)
        return rc;
    if (g->xent < 0 && !g->n_seed)
        return lf_fail(
            err, LF_EINVAL,
            "graph %s has no loss (lf_xent, lf_output_grad), so there is nothing to differentiate",
            g->name);
    ad.grad = lf_calloc(g->n_t, sizeof *ad.grad, err);
    ad.uses = lf_calloc(g->n_t, sizeof *ad.uses, err);
    ad.needs = lf_calloc(g->n_t, sizeof *ad.needs, err);
    if (!ad.grad || !ad.uses || !ad.needs) {
        rc = LF_ENOMEM;
        goto out;
    }
    g->n_fwd = g->n_n;
    mark_needs(&ad);
    if (!seed_gradients(&ad)) {
        rc =
            lf_fail(err, LF_EINVAL,
                    "graph %s: every parameter before the loss is frozen, nothing would be trained",
                    g->name);
        goto out;
    }
    if (run_vjps(&ad) == 0)
        lf_cut_gradients(&ad);
    rc = lf_graph_check(g, err);
out:
    free(ad.grad);
    free(ad.uses);
    free(ad.needs);
    return rc;
}
