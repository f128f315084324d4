/* SPDX-License-Identifier: Apache-2.0
 *
 * FLOPs of one node: 2 M N K per matrix product, attention as the products of the keys a query
 * sees. "full" counts every key of a document of max_doc tokens for every query, causal (or
 * windowed) the keys that the mask leaves on average. Norms, activations and element-wise ops are
 * not counted, as is usual. And bytes: what a node moves if every operand moves once.
 */
#include "engine/graph/priv.h"

static double area(const lf_graph *g, int32_t t)
{
    return (double)g->t[t].rows * (double)g->t[t].cols;
}

LF_FLOPS(linear)
{
    (void)full;
    return 2.0 * (double)g->t[n->in[LINEAR_X]].rows * area(g, n->in[LINEAR_W]);
}

LF_FLOPS(linear_dx)
{
    (void)full;
    return 2.0 * (double)g->t[n->in[LDX_DY]].rows * area(g, n->in[LDX_W]);
}

LF_FLOPS(linear_dw)
{
    (void)full;
    return 2.0 * area(g, n->in[LDW_DY]) * (double)g->t[n->in[LDW_X]].cols;
}

/* Both factors are transposed. */
LF_FLOPS(linear_dw_fp8)
{
    (void)full;
    return 2.0 * area(g, n->in[LDW_DY]) * (double)g->t[n->in[LDW_X]].rows;
}

LF_FLOPS(xent)
{
    (void)full;
    double one = 2.0 * (double)g->t[n->in[XENT_X]].rows * area(g, n->in[XENT_W]);
    return one * (1.0 + (n->out[XENT_DX] ? 1.0 : 0.0) + (n->out[XENT_DW] ? 1.0 : 0.0));
}

LF_FLOPS(logp)
{
    (void)full;
    return 2.0 * (double)g->t[n->in[LOGP_X]].rows * area(g, n->in[LOGP_W]);
}

/* dX and dW; that it forms the logits again is the price of not holding them. */
LF_FLOPS(logp_bwd)
{
    return lf_flops_logp(g, n, full) *
           ((n->out[LOGPB_DX] ? 1.0 : 0.0) + (n->out[LOGPB_DW] ? 1.0 : 0.0));
}

/* Mean number of keys a query of a document of T tokens sees. */
static double keys_seen(const lf_graph *g, const struct lf_node *n, bool full)
{
    double t = n->a.max_doc > 0 ? (double)n->a.max_doc : (double)g->t[n->in[ATTN_K]].rows;
    double w = n->a.window > 0 && (double)n->a.window < t ? (double)n->a.window : t;
    if (n->a.window < 0 && -(double)n->a.window < t) /* chunks are documents of their own */
        w = t = -(double)n->a.window;
    if (full || !n->a.causal)
        return t;
    return w * (w + 1) / 2 / t + (t - w) / t * w;
}

LF_FLOPS(attn)
{
    return 2.0 * (area(g, n->in[ATTN_Q]) + area(g, n->out[ATTN_O])) * keys_seen(g, n, full);
}

LF_FLOPS(attn_bwd)
{
    return 4.0 * (area(g, n->in[ATTNB_Q]) + area(g, n->in[ATTNB_O])) * keys_seen(g, n, full);
}

LF_FLOPS(heads_linear)
{
    (void)full;
    return 2.0 * (double)g->t[n->in[HEADL_X]].rows * n->a.heads * n->a.at *
           (double)g->t[n->in[HEADL_W]].cols;
}

LF_FLOPS(moe_linear)
{
    (void)full;
    return 2.0 * area(g, n->in[MOEL_X]) * (double)g->t[n->out[0]].cols;
}

LF_FLOPS(moe_linear_dx)
{
    (void)full;
    return 2.0 * area(g, n->in[MOEDX_DY]) * (double)g->t[n->in[MOEDX_W]].cols;
}

LF_FLOPS(moe_linear_dw)
{
    (void)full;
    return 2.0 * area(g, n->in[MOEDW_DY]) * (double)g->t[n->in[MOEDW_X]].cols;
}

/* Rows that an op picks from a table, or stores into one: as many as it has rows itself. */
static double picked(const lf_graph *g, int32_t table, int32_t rows)
{
    const struct lf_tensor *t = &g->t[table];
    double all = (double)lf_tensor_bytes(t), some = (double)g->t[rows].rows * (double)t->cols *
                                                    (double)lf_dtype_size((enum lf_dtype)t->dtype);
    return some < all ? some : all;
}

/* Bytes of an input that the node reads. */
static double read_of(const lf_graph *g, const struct lf_node *n, int k)
{
    const bool table = (n->op == LF_OP_EMBED && (k == EMBED_WTE || k == EMBED_WPE)) ||
                       (n->op == LF_OP_KV_WRITE && (k == KVW_KP || k == KVW_VP)) ||
                       (n->op == LF_OP_ROPE && (k == ROPE_COS || k == ROPE_SIN)) ||
                       (n->op == LF_OP_GATHER && k == 0);
    const struct lf_tensor *t = &g->t[n->in[k]];
    if (table)
        return picked(g, n->in[k], n->op == LF_OP_GATHER ? n->out[0] : n->in[0]);
    if (n->op == LF_OP_HEADS_LINEAR && k == HEADL_W) /* rows of its heads; others are another's */
        return (double)n->a.heads * n->a.at * (double)t->cols *
               (double)lf_dtype_size((enum lf_dtype)t->dtype);
    if (n->op == LF_OP_ATTN_PAGED && k == PAGED_VP && /* values that are channels of the keys */
        lf_root_of(g, n->in[k]) == lf_root_of(g, n->in[PAGED_KP]))
        return 0;
    return (double)lf_tensor_bytes(t);
}

double lf_node_traffic(const lf_graph *g, const struct lf_node *n)
{
    double sum = 0;
    for (int k = 0; k < LF_MAX_IN; k++)
        sum += n->in[k] ? read_of(g, n, k) : 0.0;
    for (int k = 0; k < LF_MAX_OUT; k++)
        sum += n->out[k] ? (double)lf_tensor_bytes(&g->t[n->out[k]]) : 0.0;
    return sum;
}
