/* SPDX-License-Identifier: Apache-2.0
 *
 * Heads with channels of their own and channels that all share, and products of single heads, from
 * the builder's function to the kernel's arguments.
 */
#include "engine/graph/ops_emit.h"
#include "engine/graph/ops_vjp.h"

lf_val lf_heads_join(lf_graph *g, lf_val x, lf_val z, int heads)
{
    const int32_t in[] = {x.id, z.id};
    const struct lf_attr a = {.heads = heads};
    return lf_graph_op(g, LF_OP_HEADS_JOIN, in, 2, &a);
}

lf_val lf_heads_linear(lf_graph *g, lf_val x, lf_val w, const struct lf_heads_linear_opts *o)
{
    const int32_t in[] = {x.id, w.id};
    const struct lf_attr a = {
        .heads = o->heads, .at = o->rows, .pos_offset = o->first, .inverse = o->transposed};
    return lf_graph_op(g, LF_OP_HEADS_LINEAR, in, 2, &a);
}

LF_EMIT(heads_linear)
{
    struct lf_k_gemm_heads *k = args;
    const int32_t x = n->in[HEADL_X], w = n->in[HEADL_W], y = n->out[0];
    const int64_t cols = C(b, w);
    const uint8_t type = DT(b, w);
    *k = (struct lf_k_gemm_heads){.rows = R(b, x),
                                  .heads = n->a.heads,
                                  .k = n->a.inverse ? n->a.at : cols,
                                  .n = n->a.inverse ? cols : n->a.at,
                                  .x = P(b, x),
                                  .w = (const char *)P(b, w) +
                                       (size_t)(n->a.pos_offset * cols) *
                                           lf_dtype_size((enum lf_dtype)type),
                                  .y = P(b, y),
                                  .ldx = LD(b, x),
                                  .ldw = cols,
                                  .ldy = LD(b, y),
                                  .tb = !n->a.inverse,
                                  .x_type = type};
    k->tail = C(b, x) / n->a.heads - k->k;
    return 0;
}

LF_VJP(heads_join)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t in[] = {lf_ad_grad_of(ad, n.out[0])};
    const int32_t out[] = {slot_or_scratch(ad, n.in[JOIN_X]), slot_or_scratch(ad, n.in[JOIN_Z])};
    emit(ad, LF_OP_HEADS_SPLIT, &n.a, in, 1, out, 2);
    lf_ad_contribute(ad, n.in[JOIN_X], out[JOIN_X]);
    lf_ad_contribute(ad, n.in[JOIN_Z], out[JOIN_Z]);
    return ad->g->err.rc;
}

LF_EMIT(heads_join)
{
    struct lf_k_heads_join *k = args;
    const int32_t x = n->in[JOIN_X], z = n->in[JOIN_Z], y = n->out[0];
    *k = (struct lf_k_heads_join){.rows = R(b, x),
                                  .heads = n->a.heads,
                                  .a = C(b, x) / n->a.heads,
                                  .b = C(b, z),
                                  .ldx = LD(b, x),
                                  .ldz = LD(b, z),
                                  .ldy = LD(b, y),
                                  .x = P(b, x),
                                  .z = P(b, z),
                                  .y = P(b, y),
                                  .x_type = DT(b, y)};
    return 0;
}

LF_EMIT(heads_split)
{
    struct lf_k_heads_split *k = args;
    const int32_t dy = n->in[0], dx = n->out[JOIN_X], dz = n->out[JOIN_Z];
    *k = (struct lf_k_heads_split){.rows = R(b, dy),
                                   .heads = n->a.heads,
                                   .a = C(b, dx) / n->a.heads,
                                   .b = C(b, dz),
                                   .lddy = LD(b, dy),
                                   .lddx = LD(b, dx),
                                   .lddz = LD(b, dz),
                                   .dy = P(b, dy),
                                   .dx = P(b, dx),
                                   .dz = P(b, dz),
                                   .x_type = DT(b, dy)};
    return 0;
}
