/* SPDX-License-Identifier: Apache-2.0
 *
 * Vector-Jacobian products: for one forward node, append the nodes that carry the gradient of its
 * output to its inputs. Weight gradients come first, so that a forward value can be given up before
 * the input's gradient takes room.
 */
#include "engine/graph/ops_vjp.h"

/* Where a weight's gradient goes: the store, or for a computed weight a tensor that its own vjp
 * reads. */
static int32_t weight_grad(struct lf_ad *ad, int32_t w)
{
    if (!lf_ad_wants(ad, w))
        return ad->g->t[w].role == LF_ROLE_PARAM ? param_grad(ad, w) : 0;
    int32_t d = scratch(ad, w);
    if (d)
        ad->g->t[d].fixed = true; /* f32, as the kernel writes it */
    return d;
}

LF_VJP(embed)
{
    const struct lf_node n = ad->g->n[node];
    int32_t dy = dense(ad, lf_ad_grad_of(ad, n.out[0]));
    const int32_t in[] = {n.in[EMBED_TOKEN], n.in[EMBED_POS], dy};
    int32_t wte = param_grad(ad, n.in[EMBED_WTE]), wpe = param_grad(ad, n.in[EMBED_WPE]);
    if (wte) { /* two nodes: each table accumulates by its own rule */
        const int32_t out[] = {wte, 0};
        emit(ad, LF_OP_EMBED_BWD, &n.a, in, 3, out, 2);
    }
    if (wpe) {
        const int32_t out[] = {0, wpe};
        emit(ad, LF_OP_EMBED_BWD, &n.a, in, 3, out, 2);
    }
    return ad->g->err.rc;
}

LF_VJP(linear)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t w = n.in[LINEAR_W];
    if (lf_ad_wants(ad, w) && ad->g->n[ad->g->t[w].producer].op != LF_OP_TP_OWN)
        return lf_graph_fail(ad->g, LF_ENOTSUP,
                             "linear: a computed weight (%s) is trained through the loss only",
                             ad->g->t[w].name);
    int32_t dy = lf_ad_grad_of(ad, n.out[LINEAR_Y]);
    lf_ad_contribute(ad, n.in[LINEAR_RES], dy);
    int32_t dw = weight_grad(ad, w), db = param_grad(ad, n.in[LINEAR_BIAS]);
    if (dw) {
        const int32_t in[] = {dy, n.in[LINEAR_X]};
        emit(ad, LF_OP_LINEAR_DW, NULL, in, 2, &dw, 1);
        lf_ad_contribute(ad, w, dw);
    }
    if (db)
        emit(ad, LF_OP_COLSUM, NULL, &dy, 1, &db, 1);
    if (lf_ad_wants(ad, n.in[LINEAR_X])) {
        const int32_t in[] = {dy, w};
        int32_t dx = lf_ad_slot(ad, n.in[LINEAR_X]);
        emit(ad, LF_OP_LINEAR_DX, NULL, in, 2, &dx, 1);
        lf_ad_contribute(ad, n.in[LINEAR_X], dx);
    }
    return ad->g->err.rc;
}

/* Of a rank's part of rows: what the whole row has of dy is summed over the ranks first. */
static int divided_norm(struct lf_ad *ad, const struct lf_node *n, int32_t dy)
{
    const int32_t x = n->in[NORM_X], w = n->in[NORM_W], rstd = n->out[NORM_RSTD],
                  mean = n->out[NORM_MEAN];
    const int32_t of[] = {x, dy, w, rstd, mean};
    const int32_t sums[] = {lf_tensor_new(ad->g, LF_F32, LF_ROLE_ACT, ad->g->t[x].rows,
                                          1 + n->a.layer, "dots_%s", ad->g->t[x].name),
                            param_grad(ad, w), param_grad(ad, n->in[NORM_B])};
    if (!sums[0])
        return ad->g->err.rc;
    ad->g->t[sums[0]].fixed = true;
    emit(ad, LF_OP_NORM_DOTS, &n->a, of, 5, sums, 3);
    if (!lf_ad_wants(ad, x))
        return ad->g->err.rc;
    const int32_t i = lf_node_new(ad->g, LF_OP_TP_LEAVE, sums, 1, NULL);
    if (i < 0)
        return ad->g->err.rc;
    const int32_t in[] = {x, dy, 0, w, mean, rstd, ad->g->n[i].out[0]}, dx = lf_ad_slot(ad, x);
    emit(ad, LF_OP_NORM_BWD, &n->a, in, 7, &dx, 1);
    lf_ad_contribute(ad, x, dx);
    return ad->g->err.rc;
}

LF_VJP(norm)
{
    const struct lf_node n = ad->g->n[node];
    int32_t x = n.in[NORM_X], dy = lf_ad_grad_of(ad, n.out[NORM_Y]);
    if (n.in[NORM_TOTAL])
        return divided_norm(ad, &n, dy);
    const int32_t in[] = {x, dy, 0, n.in[NORM_W], n.out[NORM_MEAN], n.out[NORM_RSTD]};
    const int32_t out[] = {slot_or_scratch(ad, x), param_grad(ad, n.in[NORM_W]),
                           param_grad(ad, n.in[NORM_B])};
    emit(ad, LF_OP_NORM_BWD, &n.a, in, 6, out, 3);
    lf_ad_contribute(ad, x, out[0]);
    return ad->g->err.rc;
}

LF_VJP(unit_rows)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t in[] = {n.in[0], lf_ad_grad_of(ad, n.out[0])}, dw = param_grad(ad, n.in[0]);
    return dw ? emit(ad, LF_OP_UNIT_ROWS_BWD, &n.a, in, 2, &dw, 1) : ad->g->err.rc;
}

LF_VJP(rope)
{
    const struct lf_node n = ad->g->n[node];
    if (!lf_ad_wants(ad, n.in[ROPE_X]))
        return 0;
    struct lf_attr a = n.a;
    a.inverse = !a.inverse;
    const int32_t in[] = {lf_ad_grad_of(ad, n.out[0]),
                          n.in[ROPE_POS],
                          n.in[ROPE_COS],
                          n.in[ROPE_SIN],
                          n.in[ROPE_POS2],
                          n.in[ROPE_AXIS]};
    int32_t dx = lf_ad_slot(ad, n.in[ROPE_X]);
    emit(ad, LF_OP_ROPE, &a, in, 6, &dx, 1);
    lf_ad_contribute(ad, n.in[ROPE_X], dx);
    return ad->g->err.rc;
}

/* Numbers of this rank's rows and all of so many heads, of those of all rows and its heads. */
static int32_t context_rows(struct lf_ad *ad, int32_t x, int32_t heads)
{
    const struct lf_tensor *of = &ad->g->t[x];
    const struct lf_attr a = {.heads = heads};
    const int32_t own = lf_tensor_new(ad->g, LF_F32, LF_ROLE_ACT,
                                      of->rows / lf_context_parts(&ad->g->ps->layout).heads, heads,
                                      "%s.own", of->name);
    if (!own)
        return 0;
    ad->g->t[own].fixed = true;
    emit(ad, LF_OP_CP_ROWS_F, &a, &x, 1, &own, 1);
    return own;
}

/* The gradient of the sinks is a sum over rows of what o, do and lse tell of each. */
static void sinks_vjp(struct lf_ad *ad, const struct lf_node *n)
{
    const int32_t d = param_grad(ad, n->in[ATTN_SINKS]);
    if (!d)
        return;
    const int32_t in[] = {n->out[ATTN_O], lf_ad_grad_of(ad, n->out[ATTN_O]), n->out[ATTN_LSE],
                          n->in[ATTN_SINKS]};
    const int32_t rows = lf_tensor_new(ad->g, LF_F32, LF_ROLE_ACT, ad->g->t[n->out[ATTN_O]].rows,
                                       n->a.heads, "d_%s.rows", ad->g->t[n->in[ATTN_SINKS]].name);
    if (!rows)
        return;
    ad->g->t[rows].fixed = true;
    emit(ad, LF_OP_ATTN_SINKS_BWD, &n->a, in, 4, &rows, 1);
    const int32_t own = n->a.sinks ? context_rows(ad, rows, n->a.sinks) : rows;
    if (own)
        emit(ad, LF_OP_COLSUM, NULL, &own, 1, &d, 1);
}

LF_VJP(attn)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t in[] = {n.in[ATTN_Q],
                          n.in[ATTN_K],
                          n.in[ATTN_V],
                          n.out[ATTN_O],
                          lf_ad_grad_of(ad, n.out[ATTN_O]),
                          n.out[ATTN_LSE],
                          n.in[ATTN_CU],
                          n.in[ATTN_ALIBI],
                          n.in[ATTN_SAMPLE],
                          n.in[ATTN_POS],
                          n.in[ATTN_PREFIX],
                          n.in[ATTN_RUNS],
                          n.in[ATTN_BLOCKS],
                          n.in[ATTN_BIAS],
                          n.in[ATTN_APART],
                          n.in[ATTN_PLACE]};
    const bool bias = lf_ad_wants(ad, n.in[ATTN_BIAS]);
    int32_t out[4] = {0};
    sinks_vjp(ad, &n);
    for (int k = 0; k < 3; k++)
        out[k] = slot_or_scratch(ad, n.in[ATTN_Q + k]);
    if (bias)
        out[ATTNB_DBIAS] = lf_ad_slot(ad, n.in[ATTN_BIAS]);
    emit(ad, n.op == LF_OP_CP_ATTN ? LF_OP_CP_ATTN_BWD : LF_OP_ATTN_BWD, &n.a, in, 16, out,
         bias ? 4 : 3);
    for (int k = 0; k < 3; k++)
        lf_ad_contribute(ad, n.in[ATTN_Q + k], out[k]);
    if (bias)
        lf_ad_contribute(ad, n.in[ATTN_BIAS], out[ATTNB_DBIAS]);
    return ad->g->err.rc;
}

LF_VJP(add)
{
    const struct lf_node n = ad->g->n[node];
    int32_t dy = lf_ad_grad_of(ad, n.out[0]);
    lf_ad_contribute(ad, n.in[0], dy);
    lf_ad_contribute(ad, n.in[1], dy);
    return ad->g->err.rc;
}

LF_VJP(scale)
{
    const struct lf_node n = ad->g->n[node];
    int32_t in = dense(ad, lf_ad_grad_of(ad, n.out[0])), dx = scratch(ad, n.in[0]);
    emit(ad, LF_OP_SCALE, &n.a, &in, 1, &dx, 1);
    lf_ad_contribute(ad, n.in[0], dx);
    return ad->g->err.rc;
}

LF_VJP(copy)
{
    const struct lf_node n = ad->g->n[node];
    lf_ad_contribute(ad, n.in[0], lf_ad_grad_of(ad, n.out[0]));
    return ad->g->err.rc;
}

LF_VJP(dropout)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t in[] = {lf_ad_grad_of(ad, n.out[0]), 0, n.in[DROP_SAMPLE], n.in[DROP_POS]};
    int32_t dx = lf_ad_slot(ad, n.in[DROP_X]);
    emit(ad, LF_OP_DROPOUT, &n.a, in, 4, &dx, 1);
    lf_ad_contribute(ad, n.in[DROP_X], dx);
    return ad->g->err.rc;
}

/* The loss node itself forms dX and dW; nothing is appended. */
LF_VJP(xent)
{
    const struct lf_node n = ad->g->n[node];
    int32_t x = n.in[XENT_X];
    int32_t dx = slot_or_scratch(ad, x); /* NULL would mean "forward alone" to the kernel */
    int32_t dw = weight_grad(ad, n.in[XENT_W]), db = param_grad(ad, n.in[XENT_BIAS]);
    if (ad->g->err.rc)
        return ad->g->err.rc;
    struct lf_node *m = &ad->g->n[node];
    m->out[XENT_DX] = dx;
    m->out[XENT_DW] = dw;
    m->out[XENT_DB] = db;
    ad->g->t[dx].producer = node;
    lf_ad_contribute(ad, x, dx);
    if (lf_ad_wants(ad, n.in[XENT_W])) {
        ad->g->t[dw].producer = node;
        lf_ad_contribute(ad, n.in[XENT_W], dw);
    }
    return 0;
}

LF_VJP(logp)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t x = n.in[LOGP_X], w = n.in[LOGP_W];
    const int32_t in[] = {x,
                          w,
                          n.in[LOGP_BIAS],
                          n.in[LOGP_TARGET],
                          lf_ad_grad_of(ad, n.out[LOGP_LOGP]),
                          lf_ad_grad_of(ad, n.out[LOGP_ENTROPY])};
    const int32_t out[] = {lf_ad_wants(ad, x) ? lf_ad_slot(ad, x) : 0, weight_grad(ad, w),
                           param_grad(ad, n.in[LOGP_BIAS])};
    if (ad->g->err.rc || (!out[LOGPB_DX] && !out[LOGPB_DW] && !out[LOGPB_DB]))
        return ad->g->err.rc;
    emit(ad, LF_OP_LOGP_BWD, &n.a, in, 6, out, 3);
    lf_ad_contribute(ad, x, out[LOGPB_DX]);
    if (lf_ad_wants(ad, w))
        lf_ad_contribute(ad, w, out[LOGPB_DW]);
    return ad->g->err.rc;
}

/* ---- mixture of experts ---- */

/* The last node that added up loads: its sums are those of all layers. NULL: the graph counts
 * nothing. */
static const struct lf_node *last_stats(const lf_graph *g)
{
    for (size_t i = g->n_fwd; i-- > 0;)
        if (g->n[i].op == LF_OP_MOE_STATS)
            return &g->n[i];
    return NULL;
}

LF_VJP(moe_route)
{
    const struct lf_node n = ad->g->n[node];
    if (!lf_ad_wants(ad, n.in[ROUTE_LOGITS]))
        return 0;
    const struct lf_node *stats = n.a.aux > 0 ? last_stats(ad->g) : NULL;
    const int32_t total = ad->g->moe_total;
    const int32_t in[] = {n.out[ROUTE_IDS],
                          n.out[ROUTE_WEIGHTS],
                          n.out[ROUTE_SCORES],
                          lf_ad_grad_of(ad, n.out[ROUTE_WEIGHTS]),
                          !stats  ? 0
                          : total ? total
                                  : stats->out[STATS_LOAD],
                          stats ? stats->in[STATS_CU] : 0};
    int32_t dx = lf_ad_slot(ad, n.in[ROUTE_LOGITS]);
    emit(ad, LF_OP_MOE_ROUTE_BWD, &n.a, in, 6, &dx, 1);
    lf_ad_contribute(ad, n.in[ROUTE_LOGITS], dx);
    return ad->g->err.rc;
}

LF_VJP(moe_permute)
{
    const struct lf_node n = ad->g->n[node];
    if (!lf_ad_wants(ad, n.in[PERM_X]))
        return 0;
    const int32_t in[] = {lf_ad_grad_of(ad, n.out[0]), n.in[PERM_PLACE]};
    int32_t dx = lf_ad_slot(ad, n.in[PERM_X]);
    emit(ad, LF_OP_MOE_COMBINE, &n.a, in, 2, &dx, 1);
    lf_ad_contribute(ad, n.in[PERM_X], dx);
    return ad->g->err.rc;
}

LF_VJP(moe_linear)
{
    const struct lf_node n = ad->g->n[node];
    int32_t dy = lf_ad_grad_of(ad, n.out[0]), dw = param_grad(ad, n.in[MOEL_W]),
            db = param_grad(ad, n.in[MOEL_BIAS]);
    if (dw) {
        const int32_t in[] = {dy, n.in[MOEL_X], n.in[MOEL_OFFSETS]};
        emit(ad, LF_OP_MOE_LINEAR_DW, NULL, in, 3, &dw, 1);
    }
    if (db) {
        const int32_t in[] = {dy, n.in[MOEL_OFFSETS]};
        emit(ad, LF_OP_MOE_COLSUM, NULL, in, 2, &db, 1);
    }
    if (lf_ad_wants(ad, n.in[MOEL_X])) {
        const int32_t in[] = {dy, n.in[MOEL_W], 0, n.in[MOEL_OFFSETS]};
        int32_t dx = lf_ad_slot(ad, n.in[MOEL_X]);
        emit(ad, LF_OP_MOE_LINEAR_DX, NULL, in, 4, &dx, 1);
        lf_ad_contribute(ad, n.in[MOEL_X], dx);
    }
    return ad->g->err.rc;
}

LF_VJP(moe_combine)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t in[] = {n.in[COMB_X], lf_ad_grad_of(ad, n.out[0]), n.in[COMB_PLACE],
                          n.in[COMB_WEIGHTS]};
    const int32_t w = n.in[COMB_WEIGHTS],
                  out[] = {slot_or_scratch(ad, n.in[COMB_X]), w ? slot_or_scratch(ad, w) : 0};
    emit(ad, LF_OP_MOE_COMBINE_BWD, &n.a, in, 4, out, 2);
    lf_ad_contribute(ad, n.in[COMB_X], out[0]);
    if (w)
        lf_ad_contribute(ad, w, out[1]);
    return ad->g->err.rc;
}

/* The gradient of the weights is the same op on that of the result. */
LF_VJP(moe_gain)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t x = n.in[GAIN_X], ids = n.in[GAIN_IDS], gain = n.in[GAIN_GAIN],
                  dy = lf_ad_grad_of(ad, n.out[0]), dgain = param_grad(ad, gain);
    const int32_t by[] = {x, ids, dy}, in[] = {dy, ids, gain};
    if (dgain)
        emit(ad, LF_OP_MOE_GAIN_DW, NULL, by, 3, &dgain, 1);
    if (!lf_ad_wants(ad, x))
        return ad->g->err.rc;
    const int32_t dx = lf_ad_slot(ad, x);
    emit(ad, LF_OP_MOE_GAIN, NULL, in, 3, &dx, 1);
    lf_ad_contribute(ad, x, dx);
    return ad->g->err.rc;
}

LF_VJP(row_gate)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t in[] = {n.in[GATE_X], lf_ad_grad_of(ad, n.out[0]), n.in[GATE_GATE]};
    const int32_t out[] = {slot_or_scratch(ad, n.in[GATE_X]), slot_or_scratch(ad, n.in[GATE_GATE])};
    emit(ad, LF_OP_ROW_GATE_BWD, &n.a, in, 3, out, 2);
    lf_ad_contribute(ad, n.in[GATE_X], out[0]);
    lf_ad_contribute(ad, n.in[GATE_GATE], out[1]);
    return ad->g->err.rc;
}

/* ---- layouts ---- */

/* A gradient of this shape, f32, as a sum over ranks gives it. */
LF_VJP(tp_enter)
{
    const struct lf_node n = ad->g->n[node];
    if (!lf_ad_wants(ad, n.in[0]))
        return 0;
    const int32_t dy = dense(ad, lf_ad_grad_of(ad, n.out[0]));
    if (n.a.inverse) { /* every rank has the same gradient; it takes its rows */
        const int32_t i = n.a.sequence ? lf_node_new(ad->g, LF_OP_TP_ROWS, &dy, 1, NULL) : -1;
        lf_ad_contribute(ad, n.in[0], i < 0 ? dy : ad->g->n[i].out[0]);
        return ad->g->err.rc;
    }
    const int32_t dx = scratch(ad, n.in[0]);
    if (!dx)
        return ad->g->err.rc;
    ad->g->t[dx].fixed = true;
    emit(ad, LF_OP_TP_LEAVE, &n.a, &dy, 1, &dx, 1);
    lf_ad_contribute(ad, n.in[0], dx);
    return ad->g->err.rc;
}

/* The gradient of what all ranks have whole: that of its rows, from all ranks. */
LF_VJP(tp_rows)
{
    const struct lf_node n = ad->g->n[node];
    const struct lf_attr a = {.sequence = true, .inverse = true};
    if (!lf_ad_wants(ad, n.in[0]))
        return 0;
    const int32_t dy = dense(ad, lf_ad_grad_of(ad, n.out[0])),
                  i = lf_node_new(ad->g, LF_OP_TP_ENTER, &dy, 1, &a);
    lf_ad_contribute(ad, n.in[0], i < 0 ? 0 : ad->g->n[i].out[0]);
    return ad->g->err.rc;
}

LF_VJP(tp_leave)
{
    const struct lf_node n = ad->g->n[node];
    int32_t dy = lf_ad_grad_of(ad, n.out[0]);
    if (n.a.sequence) { /* the gradient of the sum's rows, from all ranks */
        struct lf_attr a = n.a;
        a.inverse = true;
        dy = dense(ad, dy);
        const int32_t i = lf_node_new(ad->g, LF_OP_TP_ENTER, &dy, 1, &a);
        dy = i < 0 ? 0 : ad->g->n[i].out[0];
    }
    lf_ad_contribute(ad, n.in[0], dy);
    return ad->g->err.rc;
}

/* The gradient of what went one way comes back the other way. */
static int context_back(struct lf_ad *ad, int32_t node, enum lf_op back)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t dy = lf_ad_grad_of(ad, n.out[0]);
    if (!lf_ad_wants(ad, n.in[0]))
        return 0;
    const int32_t from = back == LF_OP_CP_ROWS ? dense(ad, dy) : dy, dx = lf_ad_slot(ad, n.in[0]);
    emit(ad, back, &n.a, &from, 1, &dx, 1);
    lf_ad_contribute(ad, n.in[0], dx);
    return ad->g->err.rc;
}

LF_VJP(cp_heads)
{
    return context_back(ad, node, LF_OP_CP_ROWS);
}

LF_VJP(cp_rows)
{
    return context_back(ad, node, LF_OP_CP_HEADS);
}

LF_VJP(tp_own)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t dy = dense(ad, lf_ad_grad_of(ad, n.out[0])), dw = param_grad(ad, n.in[0]);
    return dw ? emit(ad, LF_OP_TP_OWN_BWD, &n.a, &dy, 1, &dw, 1) : ad->g->err.rc;
}

/* ---- weight-decomposed adapters ---- */

/* Base and low-rank product have one gradient; lengths have none (Liu et al. 2024, section 4.3). */
LF_VJP(dora)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t dy = lf_ad_grad_of(ad, n.out[0]), base = n.in[DORA_BASE], lora = n.in[DORA_LORA];
    lf_ad_contribute(ad, n.in[DORA_REST], dy);
    if (!n.in[DORA_M]) {
        lf_ad_contribute(ad, base, dy);
        return ad->g->err.rc;
    }
    if (n.in[DORA_BIAS] && ad->needs[n.in[DORA_BIAS]])
        return lf_graph_fail(ad->g, LF_ENOTSUP,
                             "dora: the bias %s of a layer with a magnitude must be frozen",
                             ad->g->t[n.in[DORA_BIAS]].name);
    const int32_t to = lf_ad_wants(ad, base) ? base : lf_ad_wants(ad, lora) ? lora : 0;
    const int32_t in[] = {dy, base, lora, n.in[DORA_BIAS], n.in[DORA_M], n.in[DORA_NORM]};
    const int32_t out[] = {to ? lf_ad_slot(ad, to) : 0, weight_grad(ad, n.in[DORA_M])};
    emit(ad, LF_OP_DORA_BWD, &n.a, in, 6, out, 2);
    lf_ad_contribute(ad, n.in[DORA_M], out[DORAB_DM]);
    lf_ad_contribute(ad, base, out[DORAB_DX]);
    lf_ad_contribute(ad, lora, out[DORAB_DX]);
    return ad->g->err.rc;
}
