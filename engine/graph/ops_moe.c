/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixture of experts: the builder's operations and the emitters. Shape rules and vjps stand with
 * the others. */
#include <math.h>

#include "engine/graph/ops_emit.h"

/* ---- building ---- */

static int32_t add_node(lf_graph *g, enum lf_op op, const int32_t *in, size_t n_in,
                        const struct lf_attr *a)
{
    for (size_t i = 0; i < n_in && !g->err.rc; i++)
        if (in[i] < 0 || (size_t)in[i] >= g->n_t)
            lf_graph_fail(g, LF_EINVAL, "a value of another graph was passed in");
    return g->err.rc ? -1 : lf_node_new(g, op, in, n_in, a);
}

static lf_val out_of(const lf_graph *g, int32_t node, int slot)
{
    return node < 0 ? LF_NONE : (lf_val){g->n[node].out[slot]};
}

/* Pairs of each expert in a micro-batch of so many rows; 0: there is room for all. */
static int64_t capacity_of(const lf_graph *g, double factor, int64_t rows, const struct lf_attr *a)
{
    const int context = g->ps->layout.context > 1 ? g->ps->layout.context : 1;
    const double all = (double)rows * context,
                 most = ceil(factor * all * a->k / a->experts * (1 - 1e-12));
    return !(factor > 0) || most >= all ? 0 : most < 1 ? 1 : (int64_t)most;
}

/* The choices that experts have room for. */
static lf_val keep(lf_graph *g, struct lf_routes *r, double factor, const struct lf_attr *of)
{
    const struct lf_attr a = {.experts = of->experts,
                              .k = of->k,
                              .capacity = capacity_of(g, factor, g->t[r->ids.id].rows, of)};
    r->capacity = a.capacity;
    return a.capacity ? out_of(g, add_node(g, LF_OP_MOE_KEEP, &r->ids.id, 1, &a), 0) : r->ids;
}

struct lf_routes lf_moe_route(lf_graph *g, lf_val logits, lf_val bias,
                              const struct lf_route_opts *o)
{
    struct lf_routes r = {{0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, {0}, 0};
    const struct lf_attr a = {.k = o->k,
                              .groups = o->groups,
                              .top_groups = o->top_groups,
                              .scale = o->scale,
                              .aux = o->aux,
                              .moe_layers = o->layers,
                              .sigmoid = o->sigmoid,
                              .renorm = o->renorm};
    lf_pin_f32(g, logits);
    const int32_t in[] = {logits.id, bias.id};
    int32_t n = add_node(g, LF_OP_MOE_ROUTE, in, 2, &a);
    if (n < 0)
        return r;
    r.ids = out_of(g, n, ROUTE_IDS);
    r.weights = out_of(g, n, ROUTE_WEIGHTS);
    r.scores = out_of(g, n, ROUTE_SCORES);
    r.entropy = out_of(g, n, ROUTE_ENTROPY);
    const struct lf_attr s = {.experts = g->n[n].a.experts};
    const lf_val kept = keep(g, &r, o->capacity_factor, &g->n[n].a);
    n = add_node(g, LF_OP_MOE_SORT, &kept.id, 1, &s);
    r.row_of = out_of(g, n, SORT_ROW_OF);
    r.place = out_of(g, n, SORT_PLACE);
    r.offsets = out_of(g, n, SORT_OFFSETS);
    return r;
}

lf_val lf_moe_stats(lf_graph *g, const struct lf_routes *r, lf_val bias, lf_val cu_seqlens,
                    lf_val prev, int layers)
{
    const int32_t in[] = {r->ids.id, r->scores.id, r->entropy.id, prev.id, cu_seqlens.id, bias.id};
    const struct lf_attr a = {.moe_layers = layers, .capacity = r->capacity};
    return out_of(g, add_node(g, LF_OP_MOE_STATS, in, 6, &a), STATS_LOAD);
}

lf_val lf_moe_permute(lf_graph *g, lf_val x, const struct lf_routes *r)
{
    const int32_t in[] = {x.id, r->row_of.id, r->place.id};
    return out_of(g, add_node(g, LF_OP_MOE_PERMUTE, in, 3, NULL), 0);
}

lf_val lf_moe_linear(lf_graph *g, lf_val x, lf_val w, lf_val bias, const struct lf_routes *r)
{
    const int32_t in[] = {x.id, w.id, r->offsets.id, bias.id};
    return out_of(g, add_node(g, LF_OP_MOE_LINEAR, in, 4, NULL), 0);
}

lf_val lf_moe_combine(lf_graph *g, lf_val x, const struct lf_routes *r)
{
    const int32_t in[] = {x.id, r->place.id, r->weights.id};
    return out_of(g, add_node(g, LF_OP_MOE_COMBINE, in, 3, NULL), 0);
}

lf_val lf_moe_gain(lf_graph *g, lf_val weights, lf_val ids, lf_val gain)
{
    const int32_t in[] = {weights.id, ids.id, gain.id};
    return out_of(g, add_node(g, LF_OP_MOE_GAIN, in, 3, NULL), 0);
}

lf_val lf_row_gate(lf_graph *g, lf_val x, lf_val gate)
{
    lf_pin_f32(g, gate);
    const int32_t in[] = {x.id, gate.id};
    return out_of(g, add_node(g, LF_OP_ROW_GATE, in, 2, NULL), 0);
}

/* ---- emitting ---- */

LF_EMIT(moe_route)
{
    struct lf_k_moe_route *k = args;
    int32_t x = n->in[ROUTE_LOGITS];
    *k = (struct lf_k_moe_route){.rows = R(b, x),
                                 .experts = C(b, x),
                                 .ldlogits = LD(b, x),
                                 .logits = P(b, x),
                                 .bias = P(b, n->in[ROUTE_BIAS]),
                                 .ids = P(b, n->out[ROUTE_IDS]),
                                 .weights = P(b, n->out[ROUTE_WEIGHTS]),
                                 .scores = P(b, n->out[ROUTE_SCORES]),
                                 .entropy = P(b, n->out[ROUTE_ENTROPY]),
                                 .k = n->a.k,
                                 .groups = n->a.groups,
                                 .top_groups = n->a.top_groups,
                                 .scale = n->a.scale,
                                 .sigmoid = n->a.sigmoid,
                                 .renorm = n->a.renorm};
    return 0;
}

LF_EMIT(moe_route_bwd)
{
    struct lf_k_moe_route_bwd *k = args;
    const int context = b->g->ps->layout.context,
              parts = context > 1 ? context : 1; /* load is of so many times these rows */
    int32_t s = n->in[ROUTEB_SCORES], cu = n->in[ROUTEB_CU];
    *k = (struct lf_k_moe_route_bwd){.rows = R(b, s),
                                     .experts = C(b, s),
                                     .n_docs = cu ? R(b, cu) - 1 : 0,
                                     .lddlogits = LD(b, n->out[0]),
                                     .ids = P(b, n->in[ROUTEB_IDS]),
                                     .cu_seqlens = P(b, cu),
                                     .weights = P(b, n->in[ROUTEB_WEIGHTS]),
                                     .scores = P(b, s),
                                     .dweights = P(b, n->in[ROUTEB_DWEIGHTS]),
                                     .load = P(b, n->in[ROUTEB_LOAD]),
                                     .dlogits = P(b, n->out[0]),
                                     .k = n->a.k,
                                     .layers = n->a.moe_layers * parts,
                                     .scale = n->a.scale,
                                     .aux = n->a.aux,
                                     .sigmoid = n->a.sigmoid,
                                     .renorm = n->a.renorm,
                                     .rec = b->rec};
    return DT(b, n->out[0]) == LF_F32 ? 0 : LF_EINVAL;
}

LF_EMIT(moe_stats)
{
    struct lf_k_moe_stats *k = args;
    int32_t s = n->in[STATS_SCORES];
    *k = (struct lf_k_moe_stats){.rows = R(b, s),
                                 .experts = C(b, s),
                                 .n_docs = R(b, n->in[STATS_CU]) - 1,
                                 .ids = P(b, n->in[STATS_IDS]),
                                 .cu_seqlens = P(b, n->in[STATS_CU]),
                                 .scores = P(b, s),
                                 .entropy = P(b, n->in[STATS_ENTROPY]),
                                 .prev = P(b, n->in[STATS_PREV]),
                                 .load = P(b, n->out[STATS_LOAD]),
                                 .counts = P(b, n->out[STATS_COUNTS]),
                                 .capacity = n->a.capacity,
                                 .k = (int32_t)C(b, n->in[STATS_IDS]),
                                 .layers = n->a.moe_layers,
                                 .accumulate = b->acc,
                                 .rec = n->a.no_record ? NULL : b->rec};
    return 0;
}

/* On the context axis a rank's rows follow those of the ranks before it, in the order of ranks. */
LF_EMIT(moe_keep)
{
    struct lf_k_moe_keep *k = args;
    const struct lf_layout *l = &b->g->ps->layout;
    const int32_t ids = n->in[KEEP_IDS], all = n->in[KEEP_ALL], blocks = n->in[KEEP_BLOCKS];
    const int64_t own = R(b, ids) * lf_context_parts(l).heads;
    *k = (struct lf_k_moe_keep){.rows = R(b, ids),
                                .all_rows = R(b, all ? all : ids),
                                .experts = n->a.experts,
                                .first = all ? l->context_rank * R(b, ids) : 0,
                                .block = blocks ? lf_context_block(own) : 0,
                                .own = own,
                                .capacity = n->a.capacity,
                                .all = P(b, all ? all : ids),
                                .blocks = P(b, blocks),
                                .kept = P(b, n->out[0]),
                                .k = (int32_t)C(b, ids)};
    return 0;
}

LF_EMIT(moe_sort)
{
    struct lf_k_moe_sort *k = args;
    int32_t ids = n->in[0];
    *k = (struct lf_k_moe_sort){.rows = R(b, ids),
                                .experts = R(b, n->out[SORT_OFFSETS]) - 1,
                                .ids = P(b, ids),
                                .row_of = P(b, n->out[SORT_ROW_OF]),
                                .place_of = P(b, n->out[SORT_PLACE]),
                                .offsets = P(b, n->out[SORT_OFFSETS]),
                                .k = (int32_t)C(b, ids)};
    return 0;
}

LF_EMIT(moe_linear)
{
    struct lf_k_grouped_gemm *k = args;
    int32_t x = n->in[MOEL_X], y = n->out[0], off = n->in[MOEL_OFFSETS];
    *k = (struct lf_k_grouped_gemm){.m = R(b, x),
                                    .n = C(b, y),
                                    .k = C(b, x),
                                    .groups = R(b, off) - 1,
                                    .offsets = P(b, off),
                                    .a = P(b, x),
                                    .b = P(b, n->in[MOEL_W]),
                                    .bias = n->a.no_bias ? NULL : P(b, n->in[MOEL_BIAS]),
                                    .c = P(b, y),
                                    .lda = LD(b, x),
                                    .ldc = LD(b, y),
                                    .tb = true,
                                    .ab_type = DT(b, x),
                                    .c_type = DT(b, y)};
    return 0;
}

LF_EMIT(moe_linear_dx)
{
    struct lf_k_grouped_gemm *k = args;
    int32_t dy = n->in[MOEDX_DY], dx = n->out[0], off = n->in[MOEDX_OFFSETS],
            res = n->in[MOEDX_RES];
    *k = (struct lf_k_grouped_gemm){.m = R(b, dy),
                                    .n = C(b, dx),
                                    .k = C(b, dy),
                                    .groups = R(b, off) - 1,
                                    .offsets = P(b, off),
                                    .a = P(b, dy),
                                    .b = P(b, n->in[MOEDX_W]),
                                    .residual = P(b, res),
                                    .c = P(b, dx),
                                    .lda = LD(b, dy),
                                    .ldc = LD(b, dx),
                                    .ldres = LD(b, res),
                                    .ab_type = DT(b, dy),
                                    .c_type = DT(b, dx)};
    return 0;
}

LF_EMIT(moe_linear_dw)
{
    struct lf_k_grouped_gemm *k = args;
    int32_t dy = n->in[MOEDW_DY], x = n->in[MOEDW_X], off = n->in[MOEDW_OFFSETS];
    *k = (struct lf_k_grouped_gemm){.m = R(b, dy),
                                    .n = C(b, dy),
                                    .k = C(b, x),
                                    .groups = R(b, off) - 1,
                                    .offsets = P(b, off),
                                    .a = P(b, dy),
                                    .b = P(b, x),
                                    .c = P(b, n->out[0]),
                                    .lda = LD(b, dy),
                                    .ldb = LD(b, x),
                                    .dw = true,
                                    .accumulate = b->acc,
                                    .ab_type = DT(b, dy),
                                    .c_type = LF_F32};
    return 0;
}

LF_EMIT(moe_colsum)
{
    struct lf_k_grouped_colsum *k = args;
    const int32_t dy = n->in[MOECS_DY], off = n->in[MOECS_OFFSETS];
    *k = (struct lf_k_grouped_colsum){.m = R(b, dy),
                                      .n = C(b, dy),
                                      .groups = R(b, off) - 1,
                                      .ld = LD(b, dy),
                                      .offsets = P(b, off),
                                      .dy = P(b, dy),
                                      .db = P(b, n->out[0]),
                                      .accumulate = b->acc,
                                      .dy_type = DT(b, dy)};
    return 0;
}

LF_EMIT(moe_combine)
{
    struct lf_k_moe_combine *k = args;
    int32_t x = n->in[COMB_X], y = n->out[0], res = n->in[COMB_RES];
    *k = (struct lf_k_moe_combine){.rows = R(b, y),
                                   .c = C(b, y),
                                   .ldx = LD(b, x),
                                   .ldres = LD(b, res),
                                   .ldy = LD(b, y),
                                   .x = P(b, x),
                                   .residual = P(b, res),
                                   .place_of = P(b, n->in[COMB_PLACE]),
                                   .weights = P(b, n->in[COMB_WEIGHTS]),
                                   .y = P(b, y),
                                   .k = (int32_t)C(b, n->in[COMB_PLACE]),
                                   .x_type = DT(b, x)};
    return DT(b, y) == DT(b, x) && (!res || DT(b, res) == DT(b, x)) ? 0 : LF_EINVAL;
}

LF_EMIT(moe_combine_bwd)
{
    struct lf_k_moe_combine_bwd *k = args;
    int32_t x = n->in[COMBB_X], dy = n->in[COMBB_DY], dx = n->out[0];
    *k = (struct lf_k_moe_combine_bwd){.rows = R(b, dy),
                                       .c = C(b, dy),
                                       .ldx = LD(b, x),
                                       .lddy = LD(b, dy),
                                       .lddx = LD(b, dx),
                                       .x = P(b, x),
                                       .dy = P(b, dy),
                                       .place_of = P(b, n->in[COMBB_PLACE]),
                                       .weights = P(b, n->in[COMBB_WEIGHTS]),
                                       .dx = P(b, dx),
                                       .dweights = P(b, n->out[1]),
                                       .k = (int32_t)C(b, n->in[COMBB_PLACE]),
                                       .x_type = DT(b, x)};
    return DT(b, n->out[1]) == LF_F32 ? 0 : LF_EINVAL;
}

LF_EMIT(moe_gain)
{
    struct lf_k_moe_gain *k = args;
    const int32_t x = n->in[GAIN_X], gain = n->in[GAIN_GAIN];
    *k = (struct lf_k_moe_gain){.rows = R(b, x),
                                .experts = C(b, gain),
                                .ids = P(b, n->in[GAIN_IDS]),
                                .x = P(b, x),
                                .gain = P(b, gain),
                                .y = P(b, n->out[0]),
                                .k = (int32_t)C(b, x)};
    return DT(b, n->out[0]) == LF_F32 && LD(b, x) == C(b, x) ? 0 : LF_EINVAL;
}

LF_EMIT(moe_gain_dw)
{
    struct lf_k_moe_gain_dw *k = args;
    const int32_t x = n->in[GAINDW_X], dy = n->in[GAINDW_DY], dgain = n->out[0];
    *k = (struct lf_k_moe_gain_dw){.rows = R(b, x),
                                   .experts = C(b, dgain),
                                   .ids = P(b, n->in[GAINDW_IDS]),
                                   .x = P(b, x),
                                   .dy = P(b, dy),
                                   .dgain = P(b, dgain),
                                   .k = (int32_t)C(b, x),
                                   .accumulate = lf_adds(b, dgain)};
    return LD(b, x) == C(b, x) && LD(b, dy) == C(b, dy) ? 0 : LF_EINVAL;
}

LF_EMIT(row_gate)
{
    struct lf_k_row_gate_fwd *k = args;
    int32_t x = n->in[GATE_X], y = n->out[0];
    *k = (struct lf_k_row_gate_fwd){.rows = R(b, x),
                                    .c = C(b, x),
                                    .ldx = LD(b, x),
                                    .ldy = LD(b, y),
                                    .x = P(b, x),
                                    .gate = P(b, n->in[GATE_GATE]),
                                    .y = P(b, y),
                                    .x_type = DT(b, x)};
    return 0;
}

LF_EMIT(row_gate_bwd)
{
    struct lf_k_row_gate_bwd *k = args;
    int32_t x = n->in[GATEB_X], dy = n->in[GATEB_DY], dx = n->out[0];
    *k = (struct lf_k_row_gate_bwd){.rows = R(b, x),
                                    .c = C(b, x),
                                    .ldx = LD(b, x),
                                    .lddy = LD(b, dy),
                                    .lddx = LD(b, dx),
                                    .x = P(b, x),
                                    .dy = P(b, dy),
                                    .gate = P(b, n->in[GATEB_GATE]),
                                    .dx = P(b, dx),
                                    .dgate = P(b, n->out[1]),
                                    .x_type = DT(b, x)};
    return DT(b, n->out[1]) == LF_F32 ? 0 : LF_EINVAL;
}

LF_EMIT(moe_balance)
{
    struct lf_k_moe_balance *k = args;
    (void)n;
    *k = (struct lf_k_moe_balance){.n_tensors = b->n_balanced,
                                   .t = b->opt_tensors ? b->opt_tensors + b->n_opt_tensors : NULL,
                                   .rec = b->rec};
    return 0;
}
