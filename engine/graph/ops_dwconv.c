/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise convolutions over pictures, from the builder's function to the kernel's arguments. The
 * attribute k is the side of a square of rows.
 */
#include <math.h>

#include "engine/graph/ops_emit.h"
#include "engine/graph/ops_rule.h"
#include "engine/graph/ops_vjp.h"

lf_val lf_dwconv(lf_graph *g, lf_val x, lf_val w, lf_val bias, int64_t side)
{
    const int32_t in[] = {x.id, w.id, bias.id};
    const struct lf_attr a = {.k = (int32_t)side};
    return lf_graph_op(g, LF_OP_DWCONV, in, 3, &a);
}

static int64_t taps_of(int64_t cols)
{
    return (int64_t)sqrt((double)cols);
}

/* A parameter of this shape. */
static bool is_param(const lf_graph *g, int32_t t, int64_t rows, int64_t cols)
{
    return t && g->t[t].role == LF_ROLE_PARAM && g->t[t].rows == rows && g->t[t].cols == cols;
}

LF_SHAPE(dwconv)
{
    if (!is_value(g, n->in[DWCONV_X]))
        return bad(g, n, DWCONV_X, "an activation is needed here");
    const struct lf_tensor *x = &g->t[n->in[DWCONV_X]];
    const int64_t cols = g->t[n->in[DWCONV_W]].cols, taps = taps_of(cols);
    if (!is_param(g, n->in[DWCONV_W], x->cols, cols) || taps * taps != cols || taps % 2 == 0 ||
        taps > LF_DWCONV_MOST_TAPS)
        return bad(g, n, DWCONV_W, "w must be a parameter [C, K K] with an odd K of 1 to 15");
    if (n->in[DWCONV_BIAS] && !is_param(g, n->in[DWCONV_BIAS], 1, x->cols))
        return bad(g, n, DWCONV_BIAS, "bias must be a parameter [1, C]");
    if (n->a.k < 1)
        return bad(g, n, DWCONV_X, "the side of a square must be at least 1");
    n->out[0] = lf_tensor_new(g, LF_F32, LF_ROLE_ACT, x->rows, x->cols, "dwconv.%zu", g->n_n - 1);
    return n->out[0] ? 0 : g->err.rc;
}

LF_VJP(dwconv)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t in[] = {n.in[DWCONV_X], n.in[DWCONV_W], lf_ad_grad_of(ad, n.out[0])};
    const int32_t out[] = {slot_or_scratch(ad, n.in[DWCONV_X]), param_grad(ad, n.in[DWCONV_W]),
                           param_grad(ad, n.in[DWCONV_BIAS])};
    emit(ad, LF_OP_DWCONV_BWD, &n.a, in, 3, out, 3);
    lf_ad_contribute(ad, n.in[DWCONV_X], out[DWCONVB_DX]);
    return ad->g->err.rc;
}

LF_EMIT(dwconv)
{
    struct lf_k_dwconv_fwd *k = args;
    const int32_t x = n->in[DWCONV_X], y = n->out[0];
    *k = (struct lf_k_dwconv_fwd){.rows = R(b, x),
                                  .c = C(b, x),
                                  .side = n->a.k,
                                  .taps = taps_of(C(b, n->in[DWCONV_W])),
                                  .ldx = LD(b, x),
                                  .ldy = LD(b, y),
                                  .x = P(b, x),
                                  .w = P(b, n->in[DWCONV_W]),
                                  .bias = P(b, n->in[DWCONV_BIAS]),
                                  .y = P(b, y),
                                  .x_type = DT(b, x)};
    return 0;
}

LF_EMIT(dwconv_bwd)
{
    struct lf_k_dwconv_bwd *k = args;
    const int32_t x = n->in[DWCONVB_X], dy = n->in[DWCONVB_DY], dx = n->out[DWCONVB_DX],
                  dw = n->out[DWCONVB_DW];
    *k = (struct lf_k_dwconv_bwd){.rows = R(b, x),
                                  .c = C(b, x),
                                  .side = n->a.k,
                                  .taps = taps_of(C(b, n->in[DWCONVB_W])),
                                  .ldx = LD(b, x),
                                  .lddy = LD(b, dy),
                                  .lddx = dx ? LD(b, dx) : C(b, x),
                                  .x = P(b, x),
                                  .dy = P(b, dy),
                                  .w = P(b, n->in[DWCONVB_W]),
                                  .dx = P(b, dx),
                                  .dw = P(b, dw),
                                  .dbias = P(b, n->out[DWCONVB_DBIAS]),
                                  .accumulate = lf_adds(b, dw ? dw : n->out[DWCONVB_DBIAS]),
                                  .x_type = DT(b, x)};
    return 0;
}

lf_val lf_turn_rows(lf_graph *g, lf_val x, int64_t each, int64_t rows)
{
    const int64_t all = each > 0 ? g->t[x.id].rows / each * g->t[x.id].cols : 0;
    const struct lf_attr a = {.k = (int32_t)each, .pairs = rows > all ? rows : all};
    return lf_graph_op(g, LF_OP_TURN_ROWS, &x.id, 1, &a);
}

LF_SHAPE(turn_rows)
{
    if (!is_value(g, n->in[0]))
        return bad(g, n, 0, "an activation is needed here");
    if (n->a.k < 1 || n->a.pairs < 1)
        return bad(g, n, 0, "there is no matrix of so many rows in it");
    n->out[0] =
        lf_tensor_new(g, LF_F32, LF_ROLE_ACT, n->a.pairs, n->a.k, "turn_rows.%zu", g->n_n - 1);
    return n->out[0] ? 0 : g->err.rc;
}

LF_VJP(turn_rows)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t dy = lf_ad_grad_of(ad, n.out[0]);
    if (!lf_ad_wants(ad, n.in[0]))
        return ad->g->err.rc;
    const struct lf_attr back = {.k = (int32_t)ad->g->t[n.in[0]].cols,
                                 .pairs = ad->g->t[n.in[0]].rows};
    const int32_t dx = lf_ad_slot(ad, n.in[0]);
    emit(ad, LF_OP_TURN_ROWS, &back, &dy, 1, &dx, 1);
    lf_ad_contribute(ad, n.in[0], dx);
    return ad->g->err.rc;
}

LF_EMIT(turn_rows)
{
    struct lf_k_turn_rows *k = args;
    const int32_t x = n->in[0], y = n->out[0];
    *k = (struct lf_k_turn_rows){.rows = R(b, x),
                                 .c = C(b, x),
                                 .each = C(b, y),
                                 .y_rows = R(b, y),
                                 .ldx = LD(b, x),
                                 .ldy = LD(b, y),
                                 .x = P(b, x),
                                 .y = P(b, y),
                                 .x_type = DT(b, x)};
    return 0;
}
