/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers for vector-Jacobian products: the tensor of a gradient, and the node that computes it. */
#ifndef LF_GRAPH_OPS_VJP_H
#define LF_GRAPH_OPS_VJP_H

#include "engine/graph/priv.h"

/* Returns the gradient tensor of a parameter, or 0 when it is frozen or absent. */
static inline int32_t param_grad(struct lf_ad *ad, int32_t param)
{
    if (!param || !ad->needs[param])
        return 0;
    return lf_graph_grad(ad->g, param);
}

/* Appends a node of op with these attributes, inputs and outputs. */
static inline int emit(struct lf_ad *ad, enum lf_op op, const struct lf_attr *a, const int32_t *in,
                       int n_in, const int32_t *out, int n_out)
{
    int32_t i = lf_node_raw(ad->g, op, ad->block);
    if (i < 0)
        return ad->g->err.rc;
    struct lf_node *n = &ad->g->n[i];
    if (a)
        n->a = *a;
    for (int k = 0; k < n_in; k++)
        n->in[k] = in[k];
    for (int k = 0; k < n_out; k++) {
        n->out[k] = out[k];
        if (out[k])
            ad->g->t[out[k]].producer = i;
    }
    return ad->g->err.rc;
}

static inline int32_t dense(struct lf_ad *ad, int32_t t)
{
    if (!ad->g->t[t].parent)
        return t;
    int32_t i = lf_node_new(ad->g, LF_OP_COPY, &t, 1, NULL);
    return i < 0 ? 0 : ad->g->n[i].out[0];
}

/* Makes a tensor for a gradient that a kernel writes and nothing reads. */
static inline int32_t scratch(struct lf_ad *ad, int32_t t)
{
    const struct lf_tensor *x = &ad->g->t[t];
    int32_t d = lf_tensor_new(ad->g, LF_F32, LF_ROLE_ACT, x->rows, x->cols, "d_%s", x->name);
    if (d)
        ad->g->t[d].pinned = ad->g->t[lf_root_of(ad->g, t)].pinned;
    return d;
}

static inline int32_t slot_or_scratch(struct lf_ad *ad, int32_t t)
{
    return lf_ad_wants(ad, t) ? lf_ad_slot(ad, t) : scratch(ad, t);
}

#endif
