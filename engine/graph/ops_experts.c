/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts that ranks divide (experts.h): the builder's operations, shape rules, vjps and emitters.
 * Nothing is added up on the way, so each of the two that move rows is the other one's backward.
 */
#include "engine/graph/experts.h"
#include "engine/graph/ops_emit.h"
#include "engine/graph/ops_rule.h"
#include "engine/graph/ops_vjp.h"

/* ---- building ---- */

lf_val lf_moe_send(lf_graph *g, lf_val x, struct lf_routes *r)
{
    if (g->ps->layout.expert <= 1)
        return lf_moe_permute(g, x, r);
    const struct lf_attr a = {.experts = g->err.rc ? 0 : (int32_t)g->t[r->offsets.id].rows - 1,
                              .k = g->err.rc ? 1 : (int32_t)g->t[r->place.id].cols,
                              .capacity = r->capacity};
    const int32_t of[] = {r->offsets.id, r->row_of.id, r->place.id};
    const lf_val counts = lf_graph_op(g, LF_OP_EXPERT_COUNT, of, g->ps->layout.folded ? 3 : 1, &a);
    const int32_t in[] = {x.id, r->row_of.id, r->place.id, counts.id};
    const lf_val rows = lf_graph_op(g, LF_OP_EXPERT_SEND, in, 4, &a);
    if (g->err.rc)
        return LF_NONE;
    r->sent = x;
    r->counts = counts;
    r->offsets.id = g->n[g->t[rows.id].producer].out[SEND_OFFSETS];
    return rows;
}

lf_val lf_moe_return(lf_graph *g, lf_val y, const struct lf_routes *r)
{
    if (g->ps->layout.expert <= 1)
        return y;
    const struct lf_attr a = {.experts = g->err.rc ? 0 : (int32_t)g->t[r->counts.id].cols,
                              .pairs = g->err.rc ? 0 : g->t[r->row_of.id].rows,
                              .k = g->err.rc ? 1 : (int32_t)g->t[r->place.id].cols,
                              .capacity = r->capacity};
    const int32_t in[] = {y.id, r->counts.id, r->sent.id, r->row_of.id};
    return lf_graph_op(g, LF_OP_EXPERT_RETURN, in, 4, &a);
}

/* ---- shapes ---- */

static int64_t room(const lf_graph *g, const struct lf_node *n, int64_t pairs)
{
    return lf_experts_room(&g->ps->layout,
                           &(struct lf_expert_pairs){pairs, n->a.k, n->a.experts, n->a.capacity});
}

static int make(lf_graph *g, struct lf_node *n, int slot, int64_t rows, int64_t cols)
{
    n->out[slot] = lf_tensor_new(g, LF_F32, LF_ROLE_ACT, rows, cols, "%s.%zu.%d",
                                 lf_op_table[n->op].name, g->n_n - 1, slot);
    return n->out[slot] ? 0 : g->err.rc;
}

static int make_index(lf_graph *g, struct lf_node *n, int slot, int64_t rows, int64_t cols)
{
    const int rc = make(g, n, slot, rows, cols);
    if (rc == 0) {
        g->t[n->out[slot]].dtype = LF_I32;
        g->t[n->out[slot]].fixed = true;
    }
    return rc;
}

static bool is_index(const lf_graph *g, int32_t t, int64_t rows)
{
    return t && g->t[t].dtype == LF_I32 && (!rows || g->t[t].rows == rows);
}

static int check_counts(lf_graph *g, const struct lf_node *n, int slot)
{
    const int32_t t = n->in[slot];
    return is_index(g, t, g->ps->layout.expert + g->ps->layout.folded) &&
                   g->t[t].cols == n->a.experts
               ? 0
               : bad(g, n, slot, "counts must be i32, a row per rank and a column per expert");
}

LF_SHAPE(expert_count)
{
    const struct lf_layout *l = &g->ps->layout;
    if (!is_index(g, n->in[0], n->a.experts + 1))
        return bad(g, n, 0, "offsets must be i32 [E + 1, 1]");
    if (l->expert <= 1 || n->a.experts % l->expert)
        return bad(g, n, 0, "the ranks do not divide the experts");
    if (l->folded && (!is_index(g, n->in[COUNT_ROW_OF], 0) || !is_index(g, n->in[COUNT_PLACE], 0)))
        return bad(g, n, COUNT_PLACE, "the order of the rows must be i32 [M, 1] and [R, k]");
    return make_index(g, n, 0, l->expert + l->folded, n->a.experts);
}

LF_SHAPE(expert_send)
{
    const struct lf_layout *l = &g->ps->layout;
    const int32_t x = n->in[SEND_X], row_of = n->in[SEND_ROW_OF];
    if (check_counts(g, n, SEND_COUNTS))
        return LF_EINVAL;
    if (!is_value(g, x))
        return bad(g, n, SEND_X, "rows must be a float matrix");
    if (!is_index(g, row_of, 0) || !is_index(g, n->in[SEND_PLACE], g->t[x].rows))
        return bad(g, n, SEND_ROW_OF, "the order of the rows must be i32 [M, 1] and [R, k]");
    if (make(g, n, SEND_ROWS, room(g, n, g->t[row_of].rows), g->t[x].cols) ||
        make_index(g, n, SEND_OFFSETS, n->a.experts / l->expert + 1, 1))
        return g->err.rc;
    return 0;
}

LF_SHAPE(expert_return)
{
    const int32_t x = n->in[RETURN_X];
    if (check_counts(g, n, RETURN_COUNTS))
        return LF_EINVAL;
    if (!is_value(g, x) || n->a.pairs < 1 || g->t[x].rows != room(g, n, n->a.pairs))
        return bad(g, n, RETURN_X, "rows must be as many as a rank has room for");
    return make(g, n, 0, n->a.pairs, g->t[x].cols);
}

/* ---- vjps ---- */

/* The gradients of the pairs' rows come back, and a row has the sum of its pairs'. */
LF_VJP(expert_send)
{
    const struct lf_node n = ad->g->n[node];
    if (!lf_ad_wants(ad, n.in[SEND_X]))
        return 0;
    const struct lf_attr a = {
        .experts = n.a.experts, .pairs = ad->g->t[n.in[SEND_ROW_OF]].rows, .k = n.a.k};
    const int32_t back =
        lf_tensor_new(ad->g, LF_F32, LF_ROLE_ACT, a.pairs, ad->g->t[n.in[SEND_X]].cols, "d_%s",
                      ad->g->t[n.out[SEND_ROWS]].name);
    if (!back)
        return ad->g->err.rc;
    const int32_t in[] = {lf_ad_grad_of(ad, n.out[SEND_ROWS]), n.in[SEND_COUNTS]},
                  sum[] = {back, n.in[SEND_PLACE]};
    const int32_t dx = lf_ad_slot(ad, n.in[SEND_X]);
    emit(ad, LF_OP_EXPERT_RETURN, &a, in, 2, &back, 1);
    emit(ad, LF_OP_MOE_COMBINE, NULL, sum, 2, &dx, 1);
    lf_ad_contribute(ad, n.in[SEND_X], dx);
    return ad->g->err.rc;
}

LF_VJP(expert_return)
{
    const struct lf_node n = ad->g->n[node];
    if (!lf_ad_wants(ad, n.in[RETURN_X]))
        return 0;
    const int32_t in[] = {lf_ad_grad_of(ad, n.out[0]), 0, 0, n.in[RETURN_COUNTS], n.in[RETURN_SENT],
                          n.in[RETURN_ROW_OF]};
    const int32_t dx = lf_ad_slot(ad, n.in[RETURN_X]);
    emit(ad, LF_OP_EXPERT_SEND, &n.a, in, 6, &dx, 1);
    lf_ad_contribute(ad, n.in[RETURN_X], dx);
    return ad->g->err.rc;
}

/* ---- emitting ---- */

static struct lf_k_experts args_of(const struct lf_bind *b, const struct lf_node *n,
                                   enum lf_experts_what what)
{
    return (struct lf_k_experts){.with = b->exchange,
                                 .experts = n->a.experts,
                                 .ranks = b->g->ps->layout.expert,
                                 .folded = b->g->ps->layout.folded,
                                 .what = (uint8_t)what};
}

LF_EMIT(expert_count)
{
    struct lf_k_experts *k = args;
    *k = args_of(b, n, LF_EXPERTS_COUNT);
    k->offsets = P(b, n->in[COUNT_OFFSETS]);
    k->counts = P(b, n->out[0]);
    if (k->folded) {
        const struct lf_layout *l = &b->g->ps->layout;
        k->row_of = P(b, n->in[COUNT_ROW_OF]);
        k->pairs = R(b, n->in[COUNT_ROW_OF]);
        k->lo = R(b, n->in[COUNT_PLACE]) * l->tensor_rank / l->tensor;
        k->hi = R(b, n->in[COUNT_PLACE]) * (l->tensor_rank + 1) / l->tensor;
    }
    return 0;
}

/* Without an order x has a row for each pair. */
LF_EMIT(expert_send)
{
    struct lf_k_experts *k = args;
    const int32_t x = n->in[SEND_X], y = n->out[SEND_ROWS], order = n->in[SEND_ROW_OF];
    *k = args_of(b, n, LF_EXPERTS_SEND);
    k->in = P(b, x);
    k->out = P(b, y);
    k->row_of = P(b, order);
    k->counts = P(b, n->in[SEND_COUNTS]);
    k->offsets = P(b, n->out[SEND_OFFSETS]);
    k->pairs = R(b, order ? order : x);
    k->room = R(b, y);
    k->width = C(b, y);
    k->type = DT(b, y);
    return LD(b, x) == C(b, x) && LD(b, y) == C(b, y) && DT(b, x) == DT(b, y) ? 0 : LF_EINVAL;
}

LF_EMIT(expert_return)
{
    struct lf_k_experts *k = args;
    const int32_t x = n->in[RETURN_X], y = n->out[0];
    *k = args_of(b, n, LF_EXPERTS_RETURN);
    k->in = P(b, x);
    k->out = P(b, y);
    k->counts = P(b, n->in[RETURN_COUNTS]);
    k->pairs = R(b, y);
    k->room = R(b, x);
    k->width = C(b, y);
    k->type = DT(b, y);
    return LD(b, x) == C(b, x) && LD(b, y) == C(b, y) && DT(b, x) == DT(b, y) ? 0 : LF_EINVAL;
}
