/* SPDX-License-Identifier: Apache-2.0
 *
 * The builder's operations: each gathers operands and attributes and lets the op's shape rule check
 * them.
 */
#include "engine/graph/priv.h"

static bool owned(lf_graph *g, const int32_t *in, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (in[i] < 0 || (size_t)in[i] >= g->n_t) {
            lf_graph_fail(g, LF_EINVAL, "a value of another graph was passed in");
            return false;
        }
    return true;
}

lf_val lf_graph_op(lf_graph *g, enum lf_op op, const int32_t *in, size_t n_in,
                   const struct lf_attr *a)
{
    if (g->err.rc || !owned(g, in, n_in))
        return LF_NONE;
    int32_t i = lf_node_new(g, op, in, n_in, a);
    return i < 0 ? LF_NONE : (lf_val){g->n[i].out[0]};
}

/* Ops without row distances read whole tensors: a slice is copied together first. */
static int32_t dense(lf_graph *g, lf_val v)
{
    if (g->err.rc || v.id <= 0 || (size_t)v.id >= g->n_t || !g->t[v.id].parent)
        return v.id;
    return lf_graph_op(g, LF_OP_COPY, &v.id, 1, NULL).id;
}

lf_val lf_embed(lf_graph *g, lf_val token, lf_val position, lf_val wte, lf_val wpe, float scale,
                int32_t pos_offset)
{
    const int32_t in[] = {token.id, position.id, wte.id, wpe.id};
    const struct lf_attr a = {.scale = scale, .pos_offset = pos_offset};
    return lf_graph_op(g, LF_OP_EMBED, in, 4, &a);
}

lf_val lf_embed_some(lf_graph *g, lf_val token, lf_val wte, float scale, int64_t rows, int64_t all)
{
    const int32_t in[] = {token.id, 0, wte.id, 0};
    const struct lf_attr a = {.scale = scale, .v_real = rows, .v_all = all};
    return lf_graph_op(g, LF_OP_EMBED, in, 4, &a);
}

lf_val lf_linear(lf_graph *g, lf_val x, lf_val w, lf_val bias)
{
    const int32_t in[] = {x.id, w.id, bias.id};
    return lf_graph_op(g, LF_OP_LINEAR, in, 3, NULL);
}

/* Over the ranks: of each row the sum of x (layer), or of the squares of x less its mean. */
static int32_t sum_of_parts(lf_graph *g, int32_t x, int32_t total_x, bool layer)
{
    const int32_t in[] = {x, total_x};
    const struct lf_attr a = {.layer = layer};
    return lf_tp_leave(g, lf_graph_op(g, LF_OP_NORM_PART, in, 2, &a)).id;
}

lf_val lf_norm(lf_graph *g, lf_val x, lf_val w, lf_val b, const struct lf_norm_opts *o)
{
    int32_t in[] = {x.id, 0, w.id, b.id, 0, 0};
    const struct lf_attr a = {.eps = o->eps,
                              .w_offset = o->w_offset,
                              .layer = o->layer,
                              .affine = o->affine,
                              .each = o->each,
                              .heads = o->heads > 0 ? o->heads : 1};
    if (o->divided && g->ps->layout.tensor > 1) {
        in[NORM_TOTAL_X] = o->layer ? sum_of_parts(g, x.id, 0, true) : 0;
        in[NORM_TOTAL] = sum_of_parts(g, x.id, in[NORM_TOTAL_X], false);
    }
    return lf_graph_op(g, LF_OP_NORM, in, 6, &a);
}

lf_val lf_unit_rows(lf_graph *g, lf_val w)
{
    return lf_graph_op(g, LF_OP_UNIT_ROWS, &w.id, 1, NULL);
}

lf_val lf_rope(lf_graph *g, lf_val x, lf_val position, lf_val cos_table, lf_val sin_table,
               const struct lf_rope_opts *o)
{
    const int32_t in[] = {x.id,         position.id,     cos_table.id,
                          sin_table.id, o->position2.id, o->axis.id};
    const struct lf_attr a = {
        .heads = o->heads, .at = o->first, .rot = o->rot, .interleaved = o->interleaved};
    return lf_graph_op(g, LF_OP_ROPE, in, 6, &a);
}

static struct lf_attr attn_attr(const struct lf_attn_opts *o)
{
    return (struct lf_attr){.heads = o->heads,
                            .groups = o->groups,
                            .scale = o->scale,
                            .softcap = o->softcap,
                            .window = o->window,
                            .causal = o->causal,
                            .max_doc = o->max_doc};
}

lf_val lf_attention(lf_graph *g, lf_val q, lf_val k, lf_val v, lf_val cu_seqlens, lf_val alibi,
                    const struct lf_attn_opts *o)
{
    const bool drop = o->dropout != 0; /* a NaN too, which the shape rule refuses */
    const int32_t in[] = {q.id,
                          k.id,
                          v.id,
                          cu_seqlens.id,
                          alibi.id,
                          drop ? o->sample.id : 0,
                          drop ? o->position.id : 0,
                          o->prefix.id,
                          o->runs.id,
                          o->sinks.id,
                          0,
                          o->bias.id,
                          o->cu_queries.id,
                          o->place.id};
    struct lf_attr a = attn_attr(o);
    a.p = o->dropout;
    a.site = drop ? lf_name_site(o->site) : 0;
    a.whole = g->whole;
    return lf_graph_op(g, LF_OP_ATTN, in, 14, &a);
}

/* Columns [first, first + cols) of the one state of a cache of latents. */
static int32_t page_part(lf_graph *g, const struct lf_kv_cache *c, int64_t first, int64_t cols)
{
    const lf_val p = c->k_pages;
    if (g->err.rc || (p.id && first >= 0 && cols > 0 && first + cols <= g->t[p.id].cols))
        return lf_tensor_view(g, p.id, first, cols);
    lf_graph_fail(g, LF_EINVAL, "pages %s: columns [%lld, +%lld) of a latent", g->t[p.id].name,
                  (long long)first, (long long)cols);
    return 0;
}

void lf_kv_write(lf_graph *g, lf_val k, lf_val v, const struct lf_kv_cache *c, int groups)
{
    const int64_t all = c->latent && !g->err.rc ? g->t[c->k_pages.id].cols : 0;
    const int32_t kp = c->latent ? page_part(g, c, 0, c->latent) : c->k_pages.id,
                  vp = c->latent ? page_part(g, c, c->latent, all - c->latent) : c->v_pages.id;
    const int32_t in[] = {k.id, v.id, kp, vp, c->seq.id, c->pos.id, c->table.id};
    const struct lf_attr a = {.page_tokens = c->page_tokens, .groups = groups};
    lf_graph_op(g, LF_OP_KV_WRITE, in, 7, &a);
}

lf_val lf_attention_paged(lf_graph *g, lf_val q, const struct lf_kv_cache *c, lf_val alibi,
                          const struct lf_attn_opts *o)
{
    const int32_t vp = c->latent ? page_part(g, c, 0, c->latent) : c->v_pages.id;
    const int32_t in[] = {q.id,     c->k_pages.id, vp,         c->seq.id,   c->pos.id, c->table.id,
                          alibi.id, o->prefix.id,  o->runs.id, o->sinks.id, o->bias.id};
    struct lf_attr a = attn_attr(o);
    a.page_tokens = c->page_tokens;
    if (!o->causal)
        lf_graph_fail(g, LF_EINVAL, "attention_paged: attention over a cache is causal");
    return lf_graph_op(g, LF_OP_ATTN_PAGED, in, 11, &a);
}

lf_val lf_add(lf_graph *g, lf_val a, lf_val b)
{
    const int32_t in[] = {dense(g, a), dense(g, b)};
    return lf_graph_op(g, LF_OP_ADD, in, 2, NULL);
}

lf_val lf_scale(lf_graph *g, lf_val x, float alpha)
{
    const int32_t in[] = {dense(g, x)};
    const struct lf_attr a = {.scale = alpha};
    return lf_graph_op(g, LF_OP_SCALE, in, 1, &a);
}

lf_val lf_dropout(lf_graph *g, lf_val x, float p, const char *name, lf_val sample, lf_val position)
{
    const int32_t in[] = {x.id, 0, sample.id, position.id};
    const struct lf_attr a = {.p = p, .site = lf_name_site(name)};
    if (!(p < 0 || p > 0)) /* p is 0, or NaN, which the shape rule refuses */
        return p == p
                   ? x
                   : (lf_graph_fail(g, LF_EINVAL, "dropout %s: p is not a number", name), LF_NONE);
    return lf_graph_op(g, LF_OP_DROPOUT, in, 4, &a);
}

lf_val lf_gather_rows(lf_graph *g, lf_val x, lf_val index)
{
    const int32_t in[] = {x.id, index.id};
    return lf_graph_op(g, LF_OP_GATHER, in, 2, NULL);
}

void lf_xent(lf_graph *g, lf_val x, lf_val w, lf_val bias, lf_val target,
             const struct lf_xent_opts *o)
{
    const int32_t in[] = {x.id, w.id, bias.id, target.id};
    const struct lf_attr a = {
        .softcap = o->softcap, .v_real = o->v_real, .entropy = o->want_entropy, .head = o->head};
    lf_graph_op(g, LF_OP_XENT, in, 4, &a);
    if (g->err.rc)
        return;
    g->xent = (int32_t)g->n_n - 1;
    const int32_t *out = g->n[g->xent].out;
    if (o->want_loss)
        lf_output(g, (lf_val){out[XENT_LOSS]}, "loss");
    if (o->want_lse)
        lf_output(g, (lf_val){out[XENT_LSE]}, "lse");
    if (o->want_argmax)
        lf_output(g, (lf_val){out[XENT_ARGMAX]}, "argmax");
    if (o->want_entropy)
        lf_output(g, (lf_val){out[XENT_ENTROPY]}, "entropy");
}

struct lf_logps lf_logp(lf_graph *g, lf_val x, lf_val w, lf_val bias, lf_val target,
                        const struct lf_logp_opts *o)
{
    const int32_t in[] = {x.id, w.id, bias.id, target.id};
    const struct lf_attr a = {.softcap = o->softcap,
                              .v_real = o->v_real,
                              .scale = o->inv_temperature,
                              .entropy = o->want_entropy};
    lf_val logp = lf_graph_op(g, LF_OP_LOGP, in, 4, &a);
    if (!logp.id)
        return (struct lf_logps){LF_NONE, LF_NONE};
    return (struct lf_logps){logp, (lf_val){g->n[g->t[logp.id].producer].out[LOGP_ENTROPY]}};
}
