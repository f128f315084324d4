/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise ops from the builder's function to the kernel's arguments, each as a whole. Only
 * their rows (ops.c) and shape rules (ops_shape.c) stand elsewhere. A new op begins here or in a
 * file like this one.
 */
#include "engine/graph/ops_emit.h"
#include "engine/graph/ops_vjp.h"

lf_val lf_act(lf_graph *g, lf_val x, enum lf_act act)
{
    const struct lf_attr a = {.act = (uint8_t)act};
    return act == LF_ACT_NONE ? x : lf_graph_op(g, LF_OP_ACT, &x.id, 1, &a);
}

LF_VJP(act)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t in[] = {n.in[0], lf_ad_grad_of(ad, n.out[0])};
    int32_t dx = lf_ad_slot(ad, n.in[0]);
    emit(ad, LF_OP_ACT_BWD, &n.a, in, 2, &dx, 1);
    lf_ad_contribute(ad, n.in[0], dx);
    return ad->g->err.rc;
}

LF_EMIT(act)
{
    struct lf_k_act_fwd *k = args;
    int32_t x = n->in[0], y = n->out[0];
    *k = (struct lf_k_act_fwd){.rows = R(b, x),
                               .c = C(b, x),
                               .ldx = LD(b, x),
                               .ldy = LD(b, y),
                               .x = P(b, x),
                               .y = P(b, y),
                               .act = n->a.act,
                               .x_type = DT(b, x)};
    return 0;
}

LF_EMIT(act_bwd)
{
    struct lf_k_act_bwd *k = args;
    int32_t x = n->in[ACTB_X], dy = n->in[ACTB_DY], dx = n->out[0];
    *k = (struct lf_k_act_bwd){.rows = R(b, x),
                               .c = C(b, x),
                               .ldx = LD(b, x),
                               .lddy = LD(b, dy),
                               .lddx = LD(b, dx),
                               .x = P(b, x),
                               .dy = P(b, dy),
                               .dx = P(b, dx),
                               .act = n->a.act,
                               .x_type = DT(b, x)};
    return 0;
}

lf_val lf_xielu(lf_graph *g, lf_val x, const struct lf_xielu_vals *p)
{
    const int32_t in[] = {x.id, p->positive.id, p->negative.id, p->beta.id, p->eps.id};
    return lf_graph_op(g, LF_OP_XIELU, in, 5, NULL);
}

LF_VJP(xielu)
{
    const struct lf_node n = ad->g->n[node];
    int32_t in[XIELUB_DY + 1];
    const int32_t x = n.in[XIELU_X];
    const int32_t out[] = {slot_or_scratch(ad, x), param_grad(ad, n.in[XIELU_POSITIVE]),
                           param_grad(ad, n.in[XIELU_NEGATIVE])};
    for (int i = XIELU_X; i < XIELUB_DY; i++)
        in[i] = n.in[i];
    in[XIELUB_DY] = lf_ad_grad_of(ad, n.out[0]);
    emit(ad, LF_OP_XIELU_BWD, NULL, in, XIELUB_DY + 1, out, 3);
    lf_ad_contribute(ad, x, out[XIELUB_DX]);
    return ad->g->err.rc;
}

static struct lf_xielu numbers_of(const struct lf_bind *b, const struct lf_node *n)
{
    return (struct lf_xielu){P(b, n->in[XIELU_POSITIVE]), P(b, n->in[XIELU_NEGATIVE]),
                             P(b, n->in[XIELU_BETA]), P(b, n->in[XIELU_EPS])};
}

LF_EMIT(xielu)
{
    struct lf_k_xielu_fwd *k = args;
    const int32_t x = n->in[XIELU_X], y = n->out[0];
    *k = (struct lf_k_xielu_fwd){.rows = R(b, x),
                                 .c = C(b, x),
                                 .ldx = LD(b, x),
                                 .ldy = LD(b, y),
                                 .x = P(b, x),
                                 .p = numbers_of(b, n),
                                 .y = P(b, y),
                                 .x_type = DT(b, x)};
    return 0;
}

LF_EMIT(xielu_bwd)
{
    struct lf_k_xielu_bwd *k = args;
    const int32_t x = n->in[XIELU_X], dy = n->in[XIELUB_DY], dx = n->out[XIELUB_DX],
                  up = n->out[XIELUB_DPOSITIVE], down = n->out[XIELUB_DNEGATIVE];
    *k = (struct lf_k_xielu_bwd){.rows = R(b, x),
                                 .c = C(b, x),
                                 .ldx = LD(b, x),
                                 .lddy = LD(b, dy),
                                 .lddx = dx ? LD(b, dx) : C(b, x),
                                 .x = P(b, x),
                                 .dy = P(b, dy),
                                 .p = numbers_of(b, n),
                                 .dx = P(b, dx),
                                 .dpositive = P(b, up),
                                 .dnegative = P(b, down),
                                 .accumulate = lf_adds(b, up ? up : down),
                                 .x_type = DT(b, x)};
    return 0;
}

lf_val lf_glu_cut(lf_graph *g, lf_val gate, lf_val up, const struct lf_glu_opts *o)
{
    const int32_t in[] = {gate.id, up.id};
    const struct lf_attr a = {.act = (uint8_t)o->act, .limit = o->limit, .up_offset = o->up_offset};
    return lf_graph_op(g, LF_OP_GLU, in, 2, &a);
}

lf_val lf_glu(lf_graph *g, lf_val gate, lf_val up, enum lf_act act)
{
    return lf_glu_cut(g, gate, up, &(struct lf_glu_opts){.act = act});
}

LF_VJP(glu)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t in[] = {n.in[0], n.in[1], lf_ad_grad_of(ad, n.out[0])};
    const int32_t out[] = {slot_or_scratch(ad, n.in[0]), slot_or_scratch(ad, n.in[1])};
    emit(ad, LF_OP_GLU_BWD, &n.a, in, 3, out, 2);
    lf_ad_contribute(ad, n.in[0], out[0]);
    lf_ad_contribute(ad, n.in[1], out[1]);
    return ad->g->err.rc;
}

LF_EMIT(glu)
{
    struct lf_k_glu_fwd *k = args;
    int32_t y = n->out[0];
    *k = (struct lf_k_glu_fwd){.rows = R(b, y),
                               .c = C(b, y),
                               .ldg = LD(b, n->in[0]),
                               .ldu = LD(b, n->in[1]),
                               .ldy = LD(b, y),
                               .gate = P(b, n->in[0]),
                               .up = P(b, n->in[1]),
                               .y = P(b, y),
                               .limit = n->a.limit,
                               .up_offset = n->a.up_offset,
                               .act = n->a.act,
                               .x_type = DT(b, y)};
    return 0;
}

LF_EMIT(glu_bwd)
{
    struct lf_k_glu_bwd *k = args;
    int32_t dy = n->in[GLUB_DY];
    *k = (struct lf_k_glu_bwd){.rows = R(b, dy),
                               .c = C(b, dy),
                               .ldg = LD(b, n->in[0]),
                               .ldu = LD(b, n->in[1]),
                               .lddy = LD(b, dy),
                               .lddg = LD(b, n->out[0]),
                               .lddu = LD(b, n->out[1]),
                               .gate = P(b, n->in[0]),
                               .up = P(b, n->in[1]),
                               .dy = P(b, dy),
                               .dgate = P(b, n->out[0]),
                               .dup = P(b, n->out[1]),
                               .limit = n->a.limit,
                               .up_offset = n->a.up_offset,
                               .act = n->a.act,
                               .x_type = DT(b, dy)};
    return 0;
}
