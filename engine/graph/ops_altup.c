/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of a row, matched magnitudes and cut gates, from the builder's function to the kernel's
 * arguments, with shape rules.
 */
#include "engine/graph/ops_emit.h"
#include "engine/graph/ops_rule.h"
#include "engine/graph/ops_vjp.h"

/* A value with as many rows as the first operand. */
static bool is_row_value(const lf_graph *g, const struct lf_node *n, int slot)
{
    return is_value(g, n->in[slot]) && g->t[n->in[slot]].rows == g->t[n->in[0]].rows;
}

static int make(lf_graph *g, struct lf_node *n, int64_t cols)
{
    n->out[0] = lf_tensor_new(g, LF_F32, LF_ROLE_ACT, g->t[n->in[0]].rows, cols, "%s.%zu",
                              lf_op_table[n->op].name, g->n_n - 1);
    return n->out[0] ? 0 : g->err.rc;
}

/* ---- streams ---- */

lf_val lf_altup_mix(lf_graph *g, lf_val x, lf_val w, const struct lf_altup_opts *o)
{
    const int32_t in[] = {x.id, w.id};
    const struct lf_attr a = {.groups = o->from,
                              .heads = o->to,
                              .at = o->first,
                              .rot = o->read ? o->read : o->from,
                              .w_offset = o->offset};
    return lf_graph_op(g, LF_OP_ALTUP_MIX, in, 2, &a);
}

LF_SHAPE(altup_mix)
{
    const struct lf_attr *a = &n->a;
    if (!is_row_value(g, n, ALTUP_X))
        return lf_graph_fail(g, LF_EINVAL, "altup_mix: x is no activation");
    if (a->groups < 1 || a->groups > LF_MOST_STREAMS || a->heads < 1 ||
        a->heads > LF_MOST_STREAMS || g->t[n->in[ALTUP_X]].cols % a->groups || a->at < 0 ||
        a->at > a->heads)
        return bad(g, n, ALTUP_X, "its columns are no streams, or there are too many");
    if (n->in[ALTUP_W] &&
        (!is_row_value(g, n, ALTUP_W) || g->t[n->in[ALTUP_W]].cols != a->groups * a->heads))
        return bad(g, n, ALTUP_W, "a coefficient for each pair of streams is needed");
    return make(g, n, g->t[n->in[ALTUP_X]].cols / a->groups * a->heads);
}

LF_VJP(altup_mix)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t x = n.in[ALTUP_X], w = n.in[ALTUP_W], dy = lf_ad_grad_of(ad, n.out[0]);
    if (w && lf_ad_wants(ad, w)) {
        const int32_t in[] = {x, dy}, dw = lf_ad_slot(ad, w);
        emit(ad, LF_OP_ALTUP_MIX_DW, &n.a, in, 2, &dw, 1);
        lf_ad_contribute(ad, w, dw);
    }
    if (!lf_ad_wants(ad, x))
        return ad->g->err.rc;
    struct lf_attr a = n.a;
    a.inverse = true;
    const int32_t in[] = {dy, w}, dx = lf_ad_slot(ad, x);
    emit(ad, LF_OP_ALTUP_MIX, &a, in, 2, &dx, 1);
    lf_ad_contribute(ad, x, dx);
    return ad->g->err.rc;
}

LF_EMIT(altup_mix)
{
    struct lf_k_altup_mix *k = args;
    const int32_t x = n->in[ALTUP_X], w = n->in[ALTUP_W], y = n->out[0];
    *k = (struct lf_k_altup_mix){.rows = R(b, x),
                                 .c = C(b, x) / (n->a.inverse ? n->a.heads : n->a.groups),
                                 .ldx = LD(b, x),
                                 .ldw = LD(b, w),
                                 .ldy = LD(b, y),
                                 .x = P(b, x),
                                 .w = P(b, w),
                                 .y = P(b, y),
                                 .offset = n->a.w_offset,
                                 .from = n->a.groups,
                                 .to = n->a.heads,
                                 .first = n->a.at,
                                 .read = n->a.rot,
                                 .back = n->a.inverse,
                                 .x_type = DT(b, x)};
    return 0;
}

LF_EMIT(altup_mix_dw)
{
    struct lf_k_altup_mix_dw *k = args;
    const int32_t x = n->in[ALTUPB_X], dy = n->in[ALTUPB_DY], dw = n->out[0];
    *k = (struct lf_k_altup_mix_dw){.rows = R(b, x),
                                    .c = C(b, x) / n->a.groups,
                                    .ldx = LD(b, x),
                                    .lddy = LD(b, dy),
                                    .lddw = LD(b, dw),
                                    .x = P(b, x),
                                    .dy = P(b, dy),
                                    .dw = P(b, dw),
                                    .from = n->a.groups,
                                    .to = n->a.heads,
                                    .first = n->a.at,
                                    .read = n->a.rot,
                                    .x_type = DT(b, x)};
    return 0;
}

/* ---- magnitudes ---- */

lf_val lf_match_rms(lf_graph *g, lf_val x, lf_val like, int parts, float eps)
{
    const int32_t in[] = {x.id, like.id};
    const struct lf_attr a = {.heads = parts, .eps = eps};
    return lf_graph_op(g, LF_OP_MATCH_RMS, in, 2, &a);
}

LF_SHAPE(match_rms)
{
    if (!is_row_value(g, n, MATCH_X) || !is_row_value(g, n, MATCH_LIKE))
        return lf_graph_fail(g, LF_EINVAL,
                             "match_rms: x and like are two activations of as many "
                             "rows");
    if (n->a.heads < 1 || g->t[n->in[MATCH_X]].cols != n->a.heads * g->t[n->in[MATCH_LIKE]].cols)
        return bad(g, n, MATCH_X, "it does not consist of parts of the width of like");
    return make(g, n, g->t[n->in[MATCH_X]].cols);
}

LF_VJP(match_rms)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t x = n.in[MATCH_X], like = n.in[MATCH_LIKE];
    const int32_t in[] = {x, like, lf_ad_grad_of(ad, n.out[0])};
    const int32_t out[] = {slot_or_scratch(ad, x), slot_or_scratch(ad, like)};
    emit(ad, LF_OP_MATCH_RMS_BWD, &n.a, in, 3, out, 2);
    lf_ad_contribute(ad, x, out[MATCH_X]);
    lf_ad_contribute(ad, like, out[MATCH_LIKE]);
    return ad->g->err.rc;
}

LF_EMIT(match_rms)
{
    struct lf_k_match_rms_fwd *k = args;
    const int32_t x = n->in[MATCH_X], like = n->in[MATCH_LIKE], y = n->out[0];
    *k = (struct lf_k_match_rms_fwd){.rows = R(b, x),
                                     .c = C(b, like),
                                     .ldx = LD(b, x),
                                     .ldlike = LD(b, like),
                                     .ldy = LD(b, y),
                                     .x = P(b, x),
                                     .like = P(b, like),
                                     .y = P(b, y),
                                     .eps = n->a.eps,
                                     .parts = n->a.heads,
                                     .x_type = DT(b, x)};
    return 0;
}

LF_EMIT(match_rms_bwd)
{
    struct lf_k_match_rms_bwd *k = args;
    const int32_t x = n->in[MATCH_X], like = n->in[MATCH_LIKE], dy = n->in[MATCHB_DY],
                  dx = n->out[MATCH_X], dlike = n->out[MATCH_LIKE];
    *k = (struct lf_k_match_rms_bwd){.rows = R(b, x),
                                     .c = C(b, like),
                                     .ldx = LD(b, x),
                                     .ldlike = LD(b, like),
                                     .lddy = LD(b, dy),
                                     .lddx = LD(b, dx),
                                     .lddlike = LD(b, dlike),
                                     .x = P(b, x),
                                     .like = P(b, like),
                                     .dy = P(b, dy),
                                     .dx = P(b, dx),
                                     .dlike = P(b, dlike),
                                     .eps = n->a.eps,
                                     .parts = n->a.heads,
                                     .x_type = DT(b, x)};
    return 0;
}

/* ---- cut gates ---- */

lf_val lf_gauss_topk(lf_graph *g, lf_val x, float k)
{
    const struct lf_attr a = {.scale = k};
    return lf_graph_op(g, LF_OP_GAUSS_TOPK, &x.id, 1, &a);
}

LF_VJP(gauss_topk)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t in[] = {n.in[0], lf_ad_grad_of(ad, n.out[0])};
    const int32_t dx = lf_ad_slot(ad, n.in[0]);
    emit(ad, LF_OP_GAUSS_TOPK_BWD, &n.a, in, 2, &dx, 1);
    lf_ad_contribute(ad, n.in[0], dx);
    return ad->g->err.rc;
}

LF_EMIT(gauss_topk)
{
    struct lf_k_gauss_topk_fwd *k = args;
    const int32_t x = n->in[0], y = n->out[0];
    *k = (struct lf_k_gauss_topk_fwd){.rows = R(b, x),
                                      .c = C(b, x),
                                      .ldx = LD(b, x),
                                      .ldy = LD(b, y),
                                      .x = P(b, x),
                                      .y = P(b, y),
                                      .k = n->a.scale,
                                      .x_type = DT(b, x)};
    return 0;
}

LF_EMIT(gauss_topk_bwd)
{
    struct lf_k_gauss_topk_bwd *k = args;
    const int32_t x = n->in[TOPKB_X], dy = n->in[TOPKB_DY], dx = n->out[0];
    *k = (struct lf_k_gauss_topk_bwd){.rows = R(b, x),
                                      .c = C(b, x),
                                      .ldx = LD(b, x),
                                      .lddy = LD(b, dy),
                                      .lddx = LD(b, dx),
                                      .x = P(b, x),
                                      .dy = P(b, dy),
                                      .dx = P(b, dx),
                                      .k = n->a.scale,
                                      .x_type = DT(b, x)};
    return 0;
}
