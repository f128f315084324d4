/* SPDX-License-Identifier: Apache-2.0
 *
 * Causal convolutions, decays and scans, from the builder's function to the kernel's arguments.
 */
#include <math.h>

#include "engine/graph/ops_emit.h"
#include "engine/graph/ops_rule.h"
#include "engine/graph/ops_vjp.h"

/* A parameter of this shape, or none where it may be absent. */
static bool is_param(const lf_graph *g, int32_t t, int64_t rows, int64_t cols, bool absent)
{
    const struct lf_tensor *x = &g->t[t];
    return t ? x->role == LF_ROLE_PARAM && x->rows == rows && x->cols == cols : absent;
}

static bool is_index(const lf_graph *g, int32_t t, int64_t rows)
{
    const struct lf_tensor *x = &g->t[t];
    return t && x->dtype == LF_I32 && !x->parent && x->cols == 1 && (!rows || x->rows == rows);
}

/* cu_seqlens, or a state with the rows' places. cu is the first slot; state, seq, pos follow. */
static int check_rows(lf_graph *g, const struct lf_node *n, int cu, int64_t rows, int64_t cols)
{
    const int32_t *in = n->in + cu;
    if (!in[1])
        return is_index(g, in[0], 0) && g->t[in[0]].rows > 1
                   ? 0
                   : bad(g, n, cu, "cu_seqlens must be an i32 input [n_docs + 1, 1]");
    if (g->t[in[1]].role != LF_ROLE_STATE || g->t[in[1]].cols != cols)
        return bad(g, n, cu + 1, "it is no state of these sizes");
    if (!is_index(g, in[2], rows) || !is_index(g, in[3], rows))
        return bad(g, n, cu + 2, "seq and pos must be i32 [R, 1]");
    return 0;
}

static int make(lf_graph *g, struct lf_node *n, int slot, int64_t cols, bool f32)
{
    const int64_t rows = g->t[n->in[0]].rows;
    n->out[slot] = lf_tensor_new(g, LF_F32, LF_ROLE_ACT, rows, cols, "%s%s.%zu",
                                 lf_op_table[n->op].name, slot ? ".beta" : "", g->n_n - 1);
    if (n->out[slot] && f32) {
        g->t[n->out[slot]].fixed = true;
        g->t[n->out[slot]].grad_f32 = true;
    }
    return n->out[slot] ? 0 : g->err.rc;
}

/* Nothing flows back from rows of sequences, because what came before is gone. */
static int forward_only(struct lf_ad *ad, const struct lf_node *n)
{
    return lf_graph_fail(ad->g, LF_EINVAL, "%s continues sequences and has no gradient",
                         lf_op_table[n->op].name);
}

/* ---- convolution ---- */

lf_val lf_conv(lf_graph *g, lf_val x, lf_val w, lf_val bias, lf_val cu_seqlens, enum lf_act act,
               const struct lf_slots *s)
{
    const int32_t in[] = {x.id,
                          w.id,
                          bias.id,
                          s ? 0 : cu_seqlens.id,
                          s ? s->state.id : 0,
                          s ? s->seq.id : 0,
                          s ? s->pos.id : 0};
    const struct lf_attr a = {.act = (uint8_t)act};
    return lf_graph_op(g, LF_OP_CONV, in, 7, &a);
}

LF_SHAPE(conv)
{
    if (!is_value(g, n->in[CONV_X]))
        return bad(g, n, CONV_X, "an activation is needed here");
    const struct lf_tensor *x = &g->t[n->in[CONV_X]];
    const int64_t taps = g->t[n->in[CONV_W]].cols;
    if (taps < 1 || taps > LF_CONV_MOST_TAPS || !is_param(g, n->in[CONV_W], x->cols, taps, false))
        return bad(g, n, CONV_W, "w must be a parameter [C, K] with K of 1 to 8");
    if (!is_param(g, n->in[CONV_BIAS], 1, x->cols, true))
        return bad(g, n, CONV_BIAS, "bias must be a parameter [1, C]");
    if (n->a.act != LF_ACT_NONE && n->a.act != LF_ACT_SILU)
        return bad(g, n, CONV_X, "the activation must be none or silu");
    return check_rows(g, n, CONV_CU, x->rows, (taps - 1) * x->cols) ? g->err.rc
                                                                    : make(g, n, 0, x->cols, false);
}

LF_VJP(conv)
{
    const struct lf_node n = ad->g->n[node];
    if (n.in[CONV_STATE])
        return forward_only(ad, &n);
    const int32_t in[] = {n.in[CONV_X], n.in[CONV_W], n.in[CONV_BIAS], n.in[CONV_CU],
                          lf_ad_grad_of(ad, n.out[0])};
    const int32_t out[] = {slot_or_scratch(ad, n.in[CONV_X]), param_grad(ad, n.in[CONV_W]),
                           param_grad(ad, n.in[CONV_BIAS])};
    emit(ad, LF_OP_CONV_BWD, &n.a, in, 5, out, 3);
    lf_ad_contribute(ad, n.in[CONV_X], out[CONVB_DX]);
    return ad->g->err.rc;
}

LF_EMIT(conv)
{
    struct lf_k_conv_fwd *k = args;
    const int32_t x = n->in[CONV_X], y = n->out[0], cu = n->in[CONV_CU];
    *k = (struct lf_k_conv_fwd){.rows = R(b, x),
                                .c = C(b, x),
                                .taps = C(b, n->in[CONV_W]),
                                .n_docs = cu ? T(b, cu)->rows - 1 : 0,
                                .ldx = LD(b, x),
                                .ldy = LD(b, y),
                                .x = P(b, x),
                                .w = P(b, n->in[CONV_W]),
                                .bias = P(b, n->in[CONV_BIAS]),
                                .y = P(b, y),
                                .cu_seqlens = P(b, cu),
                                .state = P(b, n->in[CONV_STATE]),
                                .seq = P(b, n->in[CONV_SEQ]),
                                .pos = P(b, n->in[CONV_POS]),
                                .act = n->a.act,
                                .x_type = DT(b, x)};
    return 0;
}

LF_EMIT(conv_bwd)
{
    struct lf_k_conv_bwd *k = args;
    const int32_t x = n->in[CONVB_X], dy = n->in[CONVB_DY], dx = n->out[CONVB_DX],
                  dw = n->out[CONVB_DW];
    *k = (struct lf_k_conv_bwd){.rows = R(b, x),
                                .c = C(b, x),
                                .taps = C(b, n->in[CONVB_W]),
                                .n_docs = T(b, n->in[CONVB_CU])->rows - 1,
                                .ldx = LD(b, x),
                                .lddy = LD(b, dy),
                                .lddx = dx ? LD(b, dx) : C(b, x),
                                .x = P(b, x),
                                .dy = P(b, dy),
                                .w = P(b, n->in[CONVB_W]),
                                .bias = P(b, n->in[CONVB_BIAS]),
                                .dx = P(b, dx),
                                .dw = P(b, dw),
                                .dbias = P(b, n->out[CONVB_DBIAS]),
                                .cu_seqlens = P(b, n->in[CONVB_CU]),
                                .accumulate = lf_adds(b, dw ? dw : n->out[CONVB_DBIAS]),
                                .act = n->a.act,
                                .x_type = DT(b, x)};
    return 0;
}

/* ---- decays ---- */

struct lf_scan_gates lf_scan_gate(lf_graph *g, lf_val a, lf_val b, lf_val a_log, lf_val bias,
                                  const struct lf_scan_gate_opts *o)
{
    const int32_t in[] = {a.id, b.id, a_log.id, bias.id};
    const struct lf_attr at = {
        .heads = o->heads, .low = o->low, .high = o->high, .strength = o->strength};
    const lf_val v = lf_graph_op(g, LF_OP_SCAN_GATE, in, 4, &at);
    return v.id ? (struct lf_scan_gates){v, {g->n[g->t[v.id].producer].out[SGATE_BETA]}}
                : (struct lf_scan_gates){LF_NONE, LF_NONE};
}

LF_SHAPE(scan_gate)
{
    const int64_t h = n->a.heads;
    if (!is_value(g, n->in[SGATE_A]) || h < 1 || g->t[n->in[SGATE_A]].cols % h)
        return bad(g, n, SGATE_A, "an activation with columns for each head is needed here");
    const struct lf_tensor *a = &g->t[n->in[SGATE_A]];
    const int32_t b = n->in[SGATE_B];
    if (b ? !is_value(g, b) || g->t[b].rows != a->rows || g->t[b].cols != h : a->cols != h)
        return bad(g, n, SGATE_B, "b must be [R, heads]; without it a head has one column of a");
    if (!is_param(g, n->in[SGATE_LOG], 1, h, false) ||
        !is_param(g, n->in[SGATE_BIAS], 1, a->cols, false))
        return bad(g, n, SGATE_LOG, "a_log [1, heads] and bias [1, columns of a] are parameters");
    if (!(n->a.low < n->a.high))
        return bad(g, n, SGATE_A, "the lowest step must be below the highest");
    if (b && !(n->a.strength > 0))
        return bad(g, n, SGATE_B, "what sigmoid(b) is multiplied by must be above 0");
    const int64_t cols = a->cols;
    return make(g, n, SGATE_G, cols, true) || make(g, n, SGATE_BETA, h, true) ? g->err.rc : 0;
}

LF_VJP(scan_gate)
{
    const struct lf_node n = ad->g->n[node];
    const int32_t b = n.in[SGATE_B];
    const int32_t in[] = {n.in[SGATE_A],
                          b,
                          n.in[SGATE_LOG],
                          n.in[SGATE_BIAS],
                          lf_ad_grad_of(ad, n.out[SGATE_G]),
                          lf_ad_grad_of(ad, n.out[SGATE_BETA])};
    const int32_t out[] = {slot_or_scratch(ad, n.in[SGATE_A]), b ? slot_or_scratch(ad, b) : 0,
                           param_grad(ad, n.in[SGATE_LOG]), param_grad(ad, n.in[SGATE_BIAS])};
    emit(ad, LF_OP_SCAN_GATE_BWD, &n.a, in, 6, out, 4);
    lf_ad_contribute(ad, n.in[SGATE_A], out[SGATEB_DA]);
    if (b)
        lf_ad_contribute(ad, b, out[SGATEB_DB]);
    return ad->g->err.rc;
}

LF_EMIT(scan_gate)
{
    struct lf_k_scan_gate_fwd *k = args;
    const int32_t a = n->in[SGATE_A], bb = n->in[SGATE_B];
    *k = (struct lf_k_scan_gate_fwd){.rows = R(b, a),
                                     .heads = n->a.heads,
                                     .width = C(b, a) / n->a.heads,
                                     .lda = LD(b, a),
                                     .ldb = LD(b, bb),
                                     .a = P(b, a),
                                     .b = P(b, bb),
                                     .a_log = P(b, n->in[SGATE_LOG]),
                                     .bias = P(b, n->in[SGATE_BIAS]),
                                     .g = P(b, n->out[SGATE_G]),
                                     .beta = P(b, n->out[SGATE_BETA]),
                                     .low = n->a.low,
                                     .high = n->a.high,
                                     .strength = n->a.strength,
                                     .x_type = DT(b, a)};
    return 0;
}

LF_EMIT(scan_gate_bwd)
{
    struct lf_k_scan_gate_bwd *k = args;
    const int32_t a = n->in[SGATE_A], bb = n->in[SGATE_B], da = n->out[SGATEB_DA],
                  dlog = n->out[SGATEB_DLOG], dbias = n->out[SGATEB_DBIAS];
    *k = (struct lf_k_scan_gate_bwd){.rows = R(b, a),
                                     .heads = n->a.heads,
                                     .width = C(b, a) / n->a.heads,
                                     .lda = LD(b, a),
                                     .ldb = LD(b, bb),
                                     .ldda = da ? LD(b, da) : C(b, a),
                                     .lddb = LD(b, n->out[SGATEB_DB]),
                                     .a = P(b, a),
                                     .b = P(b, bb),
                                     .a_log = P(b, n->in[SGATE_LOG]),
                                     .bias = P(b, n->in[SGATE_BIAS]),
                                     .dg = P(b, n->in[SGATEB_DG]),
                                     .dbeta = P(b, n->in[SGATEB_DBETA]),
                                     .da = P(b, da),
                                     .db = P(b, n->out[SGATEB_DB]),
                                     .da_log = P(b, dlog),
                                     .dbias = P(b, dbias),
                                     .low = n->a.low,
                                     .high = n->a.high,
                                     .strength = n->a.strength,
                                     .accumulate = lf_adds(b, dlog ? dlog : dbias),
                                     .x_type = DT(b, a)};
    return 0;
}

/* ---- scan ---- */

static struct lf_attr scan_attr(const struct lf_scan_opts *o)
{
    return (struct lf_attr){.heads = o->heads,
                            .groups = o->groups,
                            .scale = o->scale,
                            .eps = o->unit_eps,
                            .delta = o->delta,
                            .per_channel = o->per_channel};
}

lf_val lf_scan(lf_graph *g, const struct lf_scan_in_vals *v, lf_val cu_seqlens,
               const struct lf_scan_opts *o, const struct lf_slots *s)
{
    const int32_t in[] = {v->q.id,
                          v->k.id,
                          v->v.id,
                          v->g.id,
                          v->beta.id,
                          v->skip.id,
                          s ? 0 : cu_seqlens.id,
                          s ? s->state.id : 0,
                          s ? s->seq.id : 0,
                          s ? s->pos.id : 0};
    const struct lf_attr a = scan_attr(o);
    return lf_graph_op(g, LF_OP_SCAN, in, 10, &a);
}

/* The part of the kernel's arguments that a state's size follows from. */
static struct lf_scan_in sizes(const struct lf_attr *a, int64_t dk, int64_t dv, uint8_t mode)
{
    return (struct lf_scan_in){.heads = a->heads,
                               .groups = a->groups,
                               .dk = dk,
                               .dv = dv,
                               .scale = a->scale,
                               .unit_eps = a->eps,
                               .delta = a->delta,
                               .per_channel = a->per_channel,
                               .mode = mode};
}

int64_t lf_scan_own_slot(const lf_graph *g, const struct lf_node *n, const struct lf_attr *own)
{
    const int64_t dk = g->t[n->in[SCAN_Q]].cols / n->a.groups,
                  dv = g->t[n->in[SCAN_V]].cols / n->a.heads;
    const struct lf_scan_in whole = sizes(&n->a, dk, dv, LF_FAST),
                            fast = sizes(own, dk, dv, LF_FAST),
                            open = sizes(own, dk, dv, LF_INVARIANT);
    const bool is_fast = g->t[n->in[SCAN_STATE]].cols == lf_scan_slot(&whole);
    return lf_scan_slot(is_fast ? &fast : &open);
}

lf_val lf_scan_state(lf_graph *g, const char *name, int64_t sequences, int64_t dk, int64_t dv,
                     const struct lf_scan_opts *o, enum lf_numeric mode)
{
    const struct lf_attr a = scan_attr(o);
    const struct lf_scan_in in = sizes(&a, dk, dv, (uint8_t)mode);
    const lf_val v = lf_state(g, name, LF_F32, sequences, lf_scan_slot(&in));
    if (v.id)
        g->t[v.id].pinned = true;
    return v;
}

/* Widths of heads, which must divide columns. */
static int scan_heads(lf_graph *g, const struct lf_node *n, int64_t *dk, int64_t *dv)
{
    const struct lf_attr *a = &n->a;
    const struct lf_tensor *q = &g->t[n->in[SCAN_Q]], *k = &g->t[n->in[SCAN_K]],
                           *v = &g->t[n->in[SCAN_V]];
    if (a->groups < 1 || a->heads < 1 || a->heads % a->groups || q->cols % a->groups ||
        v->cols % a->heads)
        return bad(g, n, SCAN_Q, "its columns, those of v and the heads do not divide");
    if (k->cols != q->cols || k->rows != q->rows || v->rows != q->rows)
        return bad(g, n, SCAN_K, "q and k must have one shape, and v as many rows");
    *dk = q->cols / a->groups;
    *dv = v->cols / a->heads;
    if (*dk > LF_SCAN_MOST_D || *dv > LF_SCAN_MOST_D)
        return bad(g, n, SCAN_Q, "a head may have 256 channels at most");
    return 0;
}

LF_SHAPE(scan)
{
    int64_t dk = 0, dv = 0;
    for (int k = SCAN_Q; k <= SCAN_V; k++)
        if (!is_value(g, n->in[k]))
            return bad(g, n, k, "an activation is needed here");
    if (scan_heads(g, n, &dk, &dv))
        return g->err.rc;
    const struct lf_tensor *q = &g->t[n->in[SCAN_Q]], *v = &g->t[n->in[SCAN_V]],
                           *d = &g->t[n->in[SCAN_G]], *beta = &g->t[n->in[SCAN_BETA]];
    const int64_t width = n->a.heads * (n->a.per_channel ? dk : 1), rows = q->rows, cols = v->cols;
    if (!is_value(g, n->in[SCAN_G]) || d->cols != width ||
        (d->rows != rows && (d->rows != 1 || d->role != LF_ROLE_CONST)))
        return bad(g, n, SCAN_G, "g must be f32 [R, heads (x Dk)], or a constant of one row");
    if (n->in[SCAN_BETA] &&
        (!is_value(g, n->in[SCAN_BETA]) || beta->rows != rows || beta->cols != n->a.heads))
        return bad(g, n, SCAN_BETA, "beta must be f32 [R, heads]");
    if (!is_param(g, n->in[SCAN_SKIP], 1, n->a.heads, true))
        return bad(g, n, SCAN_SKIP, "skip must be a parameter [1, heads]");
    const struct lf_scan_in open = sizes(&n->a, dk, dv, LF_INVARIANT),
                            fast = sizes(&n->a, dk, dv, LF_FAST);
    const int64_t have = n->in[SCAN_STATE] ? g->t[n->in[SCAN_STATE]].cols : 0;
    return check_rows(g, n, SCAN_CU, rows, have == lf_scan_slot(&fast) ? have : lf_scan_slot(&open))
               ? g->err.rc
               : make(g, n, 0, cols, false);
}

LF_VJP(scan)
{
    const struct lf_node n = ad->g->n[node];
    if (n.in[SCAN_STATE])
        return forward_only(ad, &n);
    int32_t in[8], out[6];
    for (int k = SCAN_Q; k <= SCAN_CU; k++)
        in[k] = n.in[k];
    in[SCANB_DO] = lf_ad_grad_of(ad, n.out[0]);
    for (int k = SCAN_Q; k <= SCAN_V; k++)
        out[k] = slot_or_scratch(ad, n.in[k]);
    for (int k = SCAN_G; k <= SCAN_BETA; k++)
        out[k] = n.in[k] && lf_ad_wants(ad, n.in[k]) ? lf_ad_slot(ad, n.in[k]) : 0;
    out[SCANB_DSKIP] = param_grad(ad, n.in[SCAN_SKIP]);
    emit(ad, LF_OP_SCAN_BWD, &n.a, in, 8, out, 6);
    for (int k = SCAN_Q; k <= SCAN_BETA; k++)
        lf_ad_contribute(ad, n.in[k], out[k]);
    return ad->g->err.rc;
}

static struct lf_scan_in scan_in(const struct lf_bind *b, const struct lf_node *n)
{
    const int32_t q = n->in[SCAN_Q], v = n->in[SCAN_V], g = n->in[SCAN_G], cu = n->in[SCAN_CU];
    struct lf_scan_in in =
        sizes(&n->a, C(b, q) / n->a.groups, C(b, v) / n->a.heads, (uint8_t)b->numeric);
    in.rows = R(b, q);
    in.n_docs = cu ? T(b, cu)->rows - 1 : 0;
    in.ldq = LD(b, q);
    in.ldk = LD(b, n->in[SCAN_K]);
    in.ldv = LD(b, v);
    in.ldg = T(b, g)->role == LF_ROLE_CONST ? 0 : LD(b, g);
    in.ldbeta = LD(b, n->in[SCAN_BETA]);
    in.q = P(b, q);
    in.k = P(b, n->in[SCAN_K]);
    in.v = P(b, v);
    in.g = P(b, g);
    in.beta = P(b, n->in[SCAN_BETA]);
    in.skip = P(b, n->in[SCAN_SKIP]);
    in.cu_seqlens = P(b, cu);
    in.x_type = DT(b, q);
    return in;
}

LF_EMIT(scan)
{
    struct lf_k_scan_fwd *k = args;
    const int32_t o = n->out[0], state = n->in[SCAN_STATE];
    *k = (struct lf_k_scan_fwd){.in = scan_in(b, n),
                                .o = P(b, o),
                                .ldo = LD(b, o),
                                .state = P(b, state),
                                .seq = P(b, n->in[SCAN_SEQ]),
                                .pos = P(b, n->in[SCAN_POS])};
    return !state || C(b, state) == lf_scan_slot(&k->in) ? 0 : LF_EINVAL;
}

LF_EMIT(scan_bwd)
{
    struct lf_k_scan_bwd *k = args;
    const int32_t *d = n->out, d_o = n->in[SCANB_DO];
    *k = (struct lf_k_scan_bwd){.in = scan_in(b, n),
                                .d_o = P(b, d_o),
                                .dq = P(b, d[SCANB_DQ]),
                                .dk = P(b, d[SCANB_DK]),
                                .dv = P(b, d[SCANB_DV]),
                                .dg = P(b, d[SCANB_DG]),
                                .dbeta = P(b, d[SCANB_DBETA]),
                                .dskip = P(b, d[SCANB_DSKIP]),
                                .lddo = LD(b, d_o),
                                .lddq = LD(b, d[SCANB_DQ]),
                                .lddk = LD(b, d[SCANB_DK]),
                                .lddv = LD(b, d[SCANB_DV]),
                                .lddg = LD(b, d[SCANB_DG]),
                                .lddbeta = LD(b, d[SCANB_DBETA]),
                                .accumulate = lf_adds(b, d[SCANB_DSKIP])};
    return 0;
}

/* Multiply-adds of a row: `states` products with S of each head, and as many halves of a chunk's
 * square for keys and for values. */
static double row_work(const lf_graph *g, const struct lf_node *n, double states, double halves)
{
    const double h = n->a.heads, dk = (double)(g->t[n->in[SCAN_Q]].cols / n->a.groups),
                 dv = (double)(g->t[n->in[SCAN_V]].cols / n->a.heads);
    return 2 * (double)g->t[n->in[SCAN_Q]].rows * h *
           (states * dk * dv + halves * (LF_SCAN_CHUNK + 1) / 2.0 * (dk + dv));
}

LF_FLOPS(scan)
{
    (void)full;
    return n->a.delta ? row_work(g, n, 3, 2) : row_work(g, n, 2, 1);
}

/* States that are formed again are not counted, as nothing is that recomputation repeats. */
LF_FLOPS(scan_bwd)
{
    (void)full;
    return n->a.delta ? row_work(g, n, 6, 4) : row_work(g, n, 4, 2);
}
