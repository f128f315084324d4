/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows mixed by a sparse matrix and columns with a gain, from the builder's function to the
 * kernel's arguments.
 */
#include <stdio.h>

#include "engine/graph/ops_emit.h"
#include "engine/graph/ops_vjp.h"

struct lf_mix lf_mix_input(lf_graph *g, const char *name, int64_t rows, int64_t from,
                           int64_t entries)
{
    static const char *const part[] = {"start", "index", "weight"};
    lf_val v[6];
    for (int k = 0; k < 6; k++) {
        char text[128];
        const int64_t n = k % 3 ? entries : (k ? from : rows) + 1;
        snprintf(text, sizeof text, "%s.%s%s", name, k < 3 ? "" : "back.", part[k % 3]);
        v[k] = lf_input(g, text, k % 3 == 2 ? LF_F32 : LF_I32, n, 1);
    }
    return (struct lf_mix){v[0], v[1], v[2], v[3], v[4], v[5]};
}

struct lf_mix lf_mix_input_own(lf_graph *g, const char *name, int64_t rows, int64_t from,
                               int64_t entries)
{
    const struct lf_mix m = lf_mix_input(g, name, rows, from, entries);
    if (m.back_start.id)
        g->t[m.back_start.id].whole = true; /* its rows are those that all have */
    return m;
}

lf_val lf_mix_rows(lf_graph *g, lf_val x, const struct lf_mix *m)
{
    const int32_t in[] = {x.id,
                          m->start.id,
                          m->index.id,
                          m->weight.id,
                          m->back_start.id,
                          m->back_index.id,
                          m->back_weight.id};
    return lf_graph_op(g, LF_OP_MIX_ROWS, in, 7, NULL);
}

/* dx = W^T dy: the same op with both matrices exchanged, or for a parameter the sum over the
 * micro-batches of the step. */
LF_VJP(mix_rows)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t x = n.in[MIX_X], dy = lf_ad_grad_of(ad, n.out[0]);
    const bool param = ad->g->t[x].role == LF_ROLE_PARAM;
    if (param ? !ad->needs[x] : !lf_ad_wants(ad, x))
        return 0;
    if (!n.in[MIX_BSTART])
        return lf_graph_fail(ad->g, LF_EINVAL,
                             "mix_rows: %s is trained, so the transpose is needed",
                             ad->g->t[x].name);
    const int32_t in[] = {dy,
                          n.in[MIX_BSTART],
                          n.in[MIX_BINDEX],
                          n.in[MIX_BWEIGHT],
                          n.in[MIX_START],
                          n.in[MIX_INDEX],
                          n.in[MIX_WEIGHT]};
    const int32_t dx = param ? param_grad(ad, x) : lf_ad_slot(ad, x);
    if (param)
        return dx ? emit(ad, LF_OP_MIX_ROWS_DW, NULL, in, 4, &dx, 1) : ad->g->err.rc;
    emit(ad, LF_OP_MIX_ROWS, NULL, in, 7, &dx, 1);
    lf_ad_contribute(ad, x, dx);
    return ad->g->err.rc;
}

LF_EMIT(mix_rows)
{
    struct lf_k_mix_rows *k = args;
    const int32_t x = n->in[MIX_X], y = n->out[0];
    *k = (struct lf_k_mix_rows){.rows = T(b, y)->rows,
                                .c = C(b, x),
                                .ldx = LD(b, x),
                                .ldy = LD(b, y),
                                .x = P(b, x),
                                .start = P(b, n->in[MIX_START]),
                                .index = P(b, n->in[MIX_INDEX]),
                                .weight = P(b, n->in[MIX_WEIGHT]),
                                .y = P(b, y),
                                .accumulate = lf_adds(b, y),
                                .x_type = DT(b, x),
                                .y_type = DT(b, y)};
    return 0;
}

lf_val lf_fold_rows(lf_graph *g, lf_val x, int k)
{
    const struct lf_attr a = {.k = k};
    return lf_graph_op(g, LF_OP_FOLD_ROWS, &x.id, 1, &a);
}

LF_VJP(fold_rows)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t dy = dense(ad, lf_ad_grad_of(ad, n.out[0])), dx = scratch(ad, n.in[0]);
    emit(ad, LF_OP_UNFOLD_ROWS, &n.a, &dy, 1, &dx, 1);
    lf_ad_contribute(ad, n.in[0], dx);
    return ad->g->err.rc;
}

/* The same elements in the same order. */
LF_EMIT(fold_rows)
{
    struct lf_k_axpby *k = args;
    const int32_t x = n->in[0], y = n->out[0];
    *k = (struct lf_k_axpby){.n = R(b, x) * C(b, x),
                             .alpha = 1,
                             .a = P(b, x),
                             .y = P(b, y),
                             .a_type = DT(b, x),
                             .y_type = DT(b, y)};
    return LD(b, x) == C(b, x) && LD(b, y) == C(b, y) ? 0 : LF_EINVAL;
}

lf_val lf_col_gate(lf_graph *g, lf_val x, lf_val gain)
{
    const int32_t in[] = {x.id, gain.id};
    return lf_graph_op(g, LF_OP_COL_GATE, in, 2, NULL);
}

lf_val lf_head_gate(lf_graph *g, lf_val x, lf_val s, int heads, float most)
{
    const struct lf_attr a = {.heads = heads, .limit = most};
    const int32_t in[] = {x.id, s.id};
    return lf_graph_op(g, LF_OP_COL_GATE, in, 2, &a);
}

LF_VJP(col_gate)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t x = n.in[COLG_X], gain = n.in[COLG_GAIN];
    const int32_t in[] = {x, lf_ad_grad_of(ad, n.out[0]), gain};
    const int32_t out[] = {slot_or_scratch(ad, x), param_grad(ad, gain)};
    emit(ad, LF_OP_COL_GATE_BWD, &n.a, in, 3, out, 2);
    lf_ad_contribute(ad, x, out[COLGB_DX]);
    return ad->g->err.rc;
}

static bool one_gain(const struct lf_bind *b, const struct lf_node *n, int32_t gain, int32_t x)
{
    return !n->a.heads && C(b, gain) == 1 && C(b, x) > 1;
}

LF_EMIT(col_gate)
{
    struct lf_k_col_gate_fwd *k = args;
    const int32_t x = n->in[COLG_X], y = n->out[0];
    *k = (struct lf_k_col_gate_fwd){.rows = R(b, x),
                                    .c = C(b, x),
                                    .ldx = LD(b, x),
                                    .ldy = LD(b, y),
                                    .x = P(b, x),
                                    .gain = P(b, n->in[COLG_GAIN]),
                                    .y = P(b, y),
                                    .x_type = DT(b, x),
                                    .one = one_gain(b, n, n->in[COLG_GAIN], x),
                                    .each = n->a.heads ? C(b, x) / n->a.heads : 0,
                                    .most = n->a.limit};
    return 0;
}

LF_EMIT(col_gate_bwd)
{
    struct lf_k_col_gate_bwd *k = args;
    const int32_t x = n->in[COLGB_X], dy = n->in[COLGB_DY], dx = n->out[COLGB_DX];
    *k = (struct lf_k_col_gate_bwd){.rows = R(b, x),
                                    .c = C(b, x),
                                    .ldx = LD(b, x),
                                    .lddy = LD(b, dy),
                                    .lddx = dx ? LD(b, dx) : C(b, x),
                                    .x = P(b, x),
                                    .dy = P(b, dy),
                                    .gain = P(b, n->in[COLGB_GAIN]),
                                    .dx = P(b, dx),
                                    .dgain = P(b, n->out[COLGB_DGAIN]),
                                    .accumulate = lf_adds(b, n->out[COLGB_DGAIN]),
                                    .x_type = DT(b, x),
                                    .one = one_gain(b, n, n->in[COLGB_GAIN], x),
                                    .each = n->a.heads ? C(b, x) / n->a.heads : 0,
                                    .most = n->a.limit};
    return 0;
}
