/* SPDX-License-Identifier: Apache-2.0
 *
 * One layer of the decoder, switched by the description: attention over packed documents or over
 * the paged cache, the MLP, and how both join the residual stream. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/graph/adapter.h"
#include "engine/model/decoder_priv.h"

/* "layers.L.part", or the part alone outside the layers, of the stack that is built. */
static const char *part_name(const struct lf_dec_build *b, char buf[64], const char *part,
                             int64_t l)
{
    if (l == LF_DEC_OUTSIDE)
        snprintf(buf, 64, "%s%s", b->stack, part);
    else
        snprintf(buf, 64, "%slayers.%lld.%s", b->stack, (long long)l, part);
    return buf;
}

lf_val lf_dec_dropout(struct lf_dec_build *b, lf_val x, double p, const char *part, int64_t l)
{
    if (!b->dropout || !(p > 0))
        return x;
    char name[64];
    part_name(b, name, part, l);
    return lf_dropout(b->g, x, (float)p, name, b->samples, b->offsets);
}

lf_val lf_dec_norm(struct lf_dec_build *b, lf_val x, const char *part, int64_t l)
{
    const lf_model_config *c = b->c;
    struct lf_norm_opts o = {.eps = (float)c->norm_eps,
                             .w_offset = (float)c->norm_offset,
                             .layer = c->norm == LF_NORM_LAYER};
    char name[64];
    part_name(b, name, part, l);
    lf_val w = c->norm_weight ? lf_paramf(b->g, "%s.weight", name) : LF_NONE;
    return lf_norm(b->g, x, w, c->norm_bias ? lf_paramf(b->g, "%s.bias", name) : LF_NONE, &o);
}

lf_val lf_dec_linear(struct lf_dec_build *b, lf_val x, bool bias, const char *part, int64_t l)
{
    char name[64];
    part_name(b, name, part, l);
    return lf_dec_linear_with(b, x, bias ? lf_paramf(b->g, "%s.bias", name) : LF_NONE, part, l);
}

lf_val lf_dec_linear_with(struct lf_dec_build *b, lf_val x, lf_val v, const char *part, int64_t l)
{
    char name[64];
    part_name(b, name, part, l);
    lf_val w = lf_paramf(b->g, "%s.weight", name);
    const struct lf_adapter_drop drop = {.p = b->dropout ? (float)b->d->adapter_dropout : 0,
                                         .sample = b->samples,
                                         .position = b->offsets};
    return b->adapter_off ? lf_linear(b->g, x, w, v) : lf_linear_adapted(b->g, x, w, v, &drop);
}

/* Each head divided by the root of the mean of its squares. */
static lf_val unit_norm(struct lf_dec_build *b, lf_val x, int64_t heads)
{
    const struct lf_norm_opts o = {.eps = (float)b->c->norm_eps, .heads = (int)heads};
    return lf_norm(b->g, x, LF_NONE, LF_NONE, &o);
}

static lf_val head_norm(struct lf_dec_build *b, lf_val x, int64_t heads, const char *part,
                        int64_t l)
{
    struct lf_norm_opts o = {.eps = (float)b->c->norm_eps,
                             .w_offset = (float)b->c->norm_offset,
                             .heads = b->c->qk_norm_all_heads ? 1 : (int)heads,
                             .divided = b->c->qk_norm_all_heads};
    char name[64];
    return lf_norm(b->g, x, lf_paramf(b->g, "%s.weight", part_name(b, name, part, l)), LF_NONE, &o);
}

/* ---- positions ---- */

/* Positions that something turns by: rope2d counts to one more than the tokens of a document
 * without prefix; of longrope the short table comes first. */
static int64_t table_rows(const lf_decoder *d)
{
    return d->positions + lf_decoder_switch(d) + (d->c.position == LF_POS_ROPE2D ? 1 : 0);
}

static void fill_rope(void *dst, const void *ctx)
{
    const struct lf_dec_table *t = ctx;
    const int64_t first = lf_decoder_switch(t->d), half = lf_model_table_dim(&t->d->c, t->what) / 2;
    const unsigned what = t->what | (first ? LF_ROPE_LONG : 0);
    float *rest = (float *)dst + first * half;
    lf_model_rope_tables(&t->d->c, first, t->what, t->sin ? NULL : dst, t->sin ? dst : NULL);
    lf_model_rope_tables(&t->d->c, table_rows(t->d) - first, what, t->sin ? NULL : rest,
                         t->sin ? rest : NULL);
}

/* Which of a token's three positions a pair turns by (config.h, rope_sections). */
static void fill_axis(void *dst, const void *ctx)
{
    const lf_model_config *c = &((const lf_decoder *)ctx)->c;
    const double *n = c->rope_sections.v;
    int32_t *axis = dst;
    for (int64_t i = 0; i < lf_model_rope_dim(c) / 2; i++) {
        const int64_t k = i % 3;
        if (c->rope_sections_interleaved)
            axis[i] = k > 0 && (double)i < 3 * n[k] ? (int32_t)k : 0;
        else
            axis[i] = (double)i < n[0] ? 0 : (double)i < n[0] + n[1] ? 1 : 2;
    }
}

lf_val lf_dec_rope(struct lf_dec_build *b, lf_val x, const struct lf_dec_turn *t)
{
    static const char *const names[4][2] = {{"rope.cos", "rope.sin"},
                                            {"rope.local.cos", "rope.local.sin"},
                                            {"rope.q.cos", "rope.q.sin"},
                                            {"rope.q.local.cos", "rope.q.local.sin"}};
    const bool two = b->c->position == LF_POS_ROPE2D; /* a head is two that turn apart */
    struct lf_rope_opts o = {.position2 = b->blocks,
                             .heads = (int)t->heads * (two ? 2 : 1),
                             .first = (int)t->first,
                             .rot = (int)lf_model_layer_rope_dim(b->c, t->layer),
                             .interleaved = b->c->rope_interleaved};
    unsigned what = lf_model_layer_local(b->c, t->layer) ? LF_ROPE_LOCAL : 0;
    if (t->query && lf_dec_logn(b->d))
        what |= LF_ROPE_QUERY;
    lf_val table[2], turns = b->turns.id ? b->turns : b->positions;
    if (b->c->rope_sections.n) {
        o.axis = lf_const(b->g, "rope.axis", LF_I32, o.rot / 2, 1, fill_axis, b->d);
        turns = b->places;
    }
    for (int k = 0; k < 2; k++)
        table[k] = lf_const(b->g, names[what][k], LF_F32, table_rows(b->d), o.rot / 2, fill_rope,
                            &b->d->table[what][k]);
    return lf_rope(b->g, x, turns, table[0], table[1], &o);
}

static void fill_growth(void *dst, const void *ctx)
{
    const struct lf_dec_growth *t = ctx;
    const int64_t half = t->d->c.head_dim / 2;
    float *v = dst;
    for (int64_t p = 0; p < t->d->positions; p++)
        for (int64_t i = 0; i < half; i++)
            v[p * half + i] = t->sin ? 0 : (float)lf_model_query_growth(&t->d->c, t->nope, p);
}

/* Turning by no angle, with an amplitude: all channels of a head, in pairs, times a number of the
 * position. */
lf_val lf_dec_grow(struct lf_dec_build *b, lf_val q, int64_t l)
{
    static const char *const names[2][2] = {{"growth.cos", "growth.sin"},
                                            {"growth.nope.cos", "growth.nope.sin"}};
    const lf_model_config *c = b->c;
    const bool nope = lf_model_layer_position(c, l) == LF_TURN_NONE;
    const bool grows = nope ? c->nope_growth > 0 && b->d->positions >= c->nope_growth_length
                            : c->query_growth > 0 && lf_dec_logn(b->d);
    const struct lf_rope_opts o = {.heads = (int)c->heads, .rot = (int)c->head_dim};
    lf_val table[2];
    if (!grows)
        return q;
    for (int k = 0; k < 2; k++)
        table[k] = lf_const(b->g, names[nope][k], LF_F32, b->d->positions, c->head_dim / 2,
                            fill_growth, &b->d->growth[nope][k]);
    return lf_rope(b->g, q, b->positions, table[0], table[1], &o);
}

/* ---- attention ---- */

static lf_val paged_attention(struct lf_dec_build *b, const struct lf_dec_heads *h,
                              const struct lf_attn_opts *o, int64_t l)
{
    const struct lf_decoder_paged *p = b->paged;
    const int64_t rows = p->n_pages * p->page_tokens, groups = lf_model_layer_kv_heads(b->c, l),
                  of = lf_model_layer_keys(b->c, l);
    char name[32];
    snprintf(name, sizeof(name), "kv.%lld.k", (long long)of);
    lf_val kp = lf_state(b->g, name, p->cache, rows, groups * lf_model_layer_head_dim(b->c, l));
    snprintf(name, sizeof(name), "kv.%lld.v", (long long)of);
    lf_val vp = lf_state(b->g, name, p->cache, rows, groups * lf_model_layer_value_dim(b->c, l));
    const struct lf_kv_cache cache = {kp, vp, b->seq, b->positions, b->table, p->page_tokens, 0};
    if (of == l)
        lf_kv_write(b->g, h->k, h->v, &cache, (int)groups);
    return lf_attention_paged(b->g, h->q, &cache, b->alibi, o);
}

static bool turns(const struct lf_dec_build *b, int64_t l)
{
    return b->c->position == LF_POS_ROPE2D ||
           (b->c->position == LF_POS_ROPE && lf_model_layer_position(b->c, l) != LF_TURN_NONE);
}

/* Queries, and keys where the layer has any, as their projection gave them: normalised per head and
 * turned. */
static void make_ready(struct lf_dec_build *b, lf_val *q, lf_val *k, int64_t l)
{
    const lf_model_config *c = b->c;
    const int64_t H = c->heads, G = lf_model_layer_kv_heads(c, l);
    for (int step = 0; step < 3; step++) {
        if (step == 1 && turns(b, l)) {
            *q = lf_dec_rope(b, *q, &(struct lf_dec_turn){.heads = H, .layer = l, .query = true});
            if (k->id)
                *k = lf_dec_rope(b, *k, &(struct lf_dec_turn){.heads = G, .layer = l});
        }
        if (step == (c->qk_norm_after_rope ? 2 : 0) && c->qk_norm) {
            *q = head_norm(b, *q, H, "attn.q_norm", l);
            if (k->id)
                *k = head_norm(b, *k, G, "attn.k_norm", l);
        }
    }
    if (!turns(b, l)) {
        *q = lf_dec_grow(b, *q, l);
    } else if (c->qk_unit_norm) {
        *q = unit_norm(b, *q, H);
        if (k->id)
            *k = unit_norm(b, *k, G);
    }
}

/* The values of layer l, of the projection of all three. */
static lf_val values(struct lf_dec_build *b, lf_val qkv, int64_t l)
{
    const lf_model_config *c = b->c;
    const int64_t H = c->heads, G = lf_model_layer_kv_heads(c, l),
                  D = lf_model_layer_head_dim(c, l);
    const int64_t at = lf_model_layer_has_values(c, l) ? H + G : H;
    lf_val v = lf_slice(b->g, qkv, at * D, G * D);
    return c->v_norm ? unit_norm(b, v, G) : v;
}

/* Queries, keys and values of layer l; q and k normalised per head and turned. */
static struct lf_dec_heads plain_heads(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const lf_model_config *c = b->c;
    const int64_t H = c->heads, G = lf_model_layer_kv_heads(c, l),
                  D = lf_model_layer_head_dim(c, l);
    const bool own = lf_model_layer_keys(c, l) == l;
    const char kind = lf_model_layer_mixer(c, l);
    lf_val *shared = b->shared[kind == LF_MIXER_WINDOW];
    lf_val qkv = lf_dec_linear(b, lf_tp_enter(b->g, x), c->qkv_bias, "attn.qkv", l);
    struct lf_dec_heads h = {.k = LF_NONE};
    if (own && turns(b, l) && !c->qk_norm && !c->qk_unit_norm && !lf_dec_logn(b->d)) {
        /* q and k lie side by side: one pass turns both */
        lf_val qk = lf_dec_rope(b, lf_slice(b->g, qkv, 0, (H + G) * D),
                                &(struct lf_dec_turn){.heads = H + G, .layer = l});
        h.q = lf_slice(b->g, qk, 0, H * D);
        h.k = lf_slice(b->g, qk, H * D, G * D);
    } else {
        h.q = lf_slice(b->g, qkv, 0, H * D);
        h.k = own ? lf_slice(b->g, qkv, H * D, G * D) : LF_NONE;
        make_ready(b, &h.q, &h.k, l);
    }
    const int64_t made = !own ? 0 : lf_model_layer_has_values(c, l) ? 2 : 1;
    h.v = own ? values(b, qkv, l) : shared[1];
    h.gate = c->attn_gate ? lf_slice(b->g, qkv, (H + made * G) * D, H * D) : LF_NONE;
    if (!own)
        h.k = shared[0];
    if (kind == LF_MIXER_WINDOW || kind == LF_MIXER_FULL) { /* others share with no layer */
        shared[0] = h.k;
        shared[1] = h.v;
    }
    return h;
}

/* With attn_gate the result times sigmoid of a linear function of x, which lies behind the values
 * in the projection. */
static lf_val gate_heads(struct lf_dec_build *b, lf_val a, lf_val gate)
{
    return gate.id ? lf_glu(b->g, gate, a, LF_ACT_SIGMOID) : a;
}

/* softmax(scale q k^T + mask) v, projected back. */
static lf_val attention(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const lf_model_config *c = b->c;
    /* Of a layer that sees both ways without a window nothing is hidden; of one with a window runs
     * say what is seen behind a token. */
    const bool both = c->mask == LF_MASK_BOTH, windowed = lf_model_layer_window(c, l) > 0;
    struct lf_attn_opts o = {.heads = (int)c->heads,
                             .groups = (int)lf_model_layer_kv_heads(c, l),
                             .scale = (float)lf_model_layer_attn_scale(c, l),
                             .softcap = (float)c->attn_softcap,
                             .window = (int32_t)(lf_model_layer_window(c, l) -
                                                 lf_model_layer_chunk(c, l)), /* < 0: a chunk */
                             .causal = !both || windowed,
                             .prefix = b->prefix,
                             .runs = both && !windowed ? LF_NONE : b->runs,
                             .max_doc = b->max_doc};
    if (c->position == LF_POS_RELATIVE)
        o.bias = c->relative_each_layer ? lf_dec_relative(b, l) : b->relative;
    if (c->attn_sinks)
        o.sinks = lf_paramf(b->g, "layers.%lld.attn.sinks", (long long)l);
    char site[64];
    if (b->dropout && c->attn_prob_dropout > 0) {
        o.dropout = (float)c->attn_prob_dropout;
        o.site = part_name(b, site, "attn.prob", l);
        o.sample = b->samples;
        o.position = b->offsets;
    }
    lf_val a;
    if (b->paged && b->paged->latent) {
        a = lf_dec_absorbed(b, x, &o, l);
    } else {
        const struct lf_dec_heads h =
            c->kv_lora ? lf_dec_latent_heads(b, x, l) : plain_heads(b, x, l);
        a = b->paged ? paged_attention(b, &h, &o, l)
                     : lf_attention(b->g, h.q, h.k, h.v, b->cu_seqlens, b->alibi, &o);
        a = gate_heads(b, a, h.gate);
    }
    return lf_tp_leave(b->g, lf_dec_linear(b, a, c->out_bias, "attn.o", l));
}

/* What mixes the tokens in layer l. */
static lf_val mixer(struct lf_dec_build *b, lf_val h, int64_t l)
{
    const lf_model_config *c = b->c;
    lf_val a = LF_NONE, s = LF_NONE;
    if (lf_model_layer_mixer(c, l) == LF_MIXER_CONV)
        return lf_dec_short_conv(b, h, l);
    if (lf_model_layer_attends(c, l))
        a = lf_dec_scaled(b, attention(b, lf_dec_scaled(b, h, c->attn_in_scale), l),
                          c->attn_out_scale);
    if (lf_model_layer_scans(c, l))
        s = lf_dec_scaled(b, lf_dec_scan(b, lf_dec_scaled(b, h, c->scan_in_scale), l),
                          c->scan_out_scale);
    return a.id && s.id ? lf_add(b->g, a, s) : a.id ? a : s;
}

lf_val lf_dec_glu(struct lf_dec_build *b, lf_val gate, lf_val up)
{
    const struct lf_glu_opts o = {.act = (enum lf_act)b->c->activation,
                                  .limit = (float)b->c->glu_limit,
                                  .up_offset = (float)b->c->glu_up_offset};
    return lf_glu_cut(b->g, gate, up, &o);
}

lf_val lf_dec_act(struct lf_dec_build *b, lf_val u)
{
    return b->c->activation == LF_MODEL_RELU2
               ? lf_glu(b->g, u, lf_act(b->g, u, LF_ACT_RELU), LF_ACT_RELU) /* its square */
               : lf_act(b->g, u, (enum lf_act)b->c->activation);
}

static lf_val number_of_act(struct lf_dec_build *b, const char *name, int64_t l)
{
    return lf_paramf(b->g, "layers.%lld.mlp.act.%s", (long long)l, name);
}

/* The activation of mlp = plain, which may have numbers of its own. */
static lf_val plain_act(struct lf_dec_build *b, lf_val u, int64_t l)
{
    if (b->c->activation == LF_MODEL_XIELU)
        return lf_xielu(b->g, u,
                        &(struct lf_xielu_vals){
                            number_of_act(b, "positive", l), number_of_act(b, "negative", l),
                            number_of_act(b, "beta", l), number_of_act(b, "eps", l)});
    return lf_dec_act(b, u);
}

/* down(act(gate h) * up h), or down(act(up h)). */
static lf_val dense_mlp(struct lf_dec_build *b, lf_val h, int64_t l)
{
    const lf_model_config *c = b->c;
    const int64_t ffn = lf_model_layer_ffn(c, l);
    lf_val u;
    h = lf_tp_enter(b->g, h);
    if (c->mlp == LF_MLP_GLU) {
        lf_val gu = lf_dec_linear(b, h, c->mlp_bias, "mlp.gate_up", l);
        lf_val gate = lf_dec_scaled(b, lf_slice(b->g, gu, 0, ffn), c->mlp_gate_scale);
        if (lf_model_layer_sparsity(c, l) > 0)
            gate =
                lf_gauss_topk(b->g, gate, (float)lf_model_quantile(lf_model_layer_sparsity(c, l)));
        u = lf_dec_glu(b, gate, lf_slice(b->g, gu, ffn, ffn));
    } else {
        u = plain_act(b, lf_dec_linear(b, h, c->mlp_bias, "mlp.up", l), l);
    }
    u = lf_tp_leave(b->g, lf_dec_linear(b, u, c->mlp_bias, "mlp.down", l));
    return lf_dec_scaled(b, u, c->mlp_out_scale);
}

/* What the MLP of layer l adds: h is the stream x behind the branch's norm. An MLP and experts side
 * by side have a norm each behind them, and experts one of their own before them. */
static lf_val mlp(struct lf_dec_build *b, lf_val x, lf_val h, int64_t l)
{
    if (lf_model_layer_mlp(b->c, l) == LF_MLP_EXPERTS)
        return lf_dec_moe(b, x, h, l);
    const lf_val dense = dense_mlp(b, h, l);
    if (lf_model_layer_mlp(b->c, l) != LF_MLP_BOTH)
        return dense;
    const lf_val chosen = lf_dec_moe(b, x, lf_dec_norm(b, x, "moe.norm", l), l);
    return lf_add(b->g, lf_dec_norm(b, dense, "mlp.out_norm", l),
                  lf_dec_norm(b, chosen, "moe.out_norm", l));
}

lf_val lf_dec_scaled(struct lf_dec_build *b, lf_val x, double alpha)
{
    return fabs(alpha - 1) > 0 ? lf_scale(b->g, x, (float)alpha) : x;
}

/* What a branch adds. */
static lf_val scaled(struct lf_dec_build *b, lf_val f)
{
    return lf_dec_scaled(b, f, b->c->residual_scale);
}

/* Where residual_factors has those of a branch: of the stream, and behind it of what is added. */
static int64_t factors_of(const struct lf_dec_build *b, const char *branch, int64_t l)
{
    return strcmp(branch, "mlp") == 0 ? 4 : lf_model_layer_attends(b->c, l) ? 0 : 2;
}

/* The branch result f joins the residual stream x; h is what the branch read. */
static lf_val join(struct lf_dec_build *b, lf_val x, lf_val h, lf_val f, double p,
                   const char *branch, int64_t l)
{
    const lf_model_config *c = b->c;
    const enum lf_model_block block = lf_model_layer_block(c, l);
    char part[32];
    if (block == LF_BLOCK_SANDWICH) {
        snprintf(part, sizeof(part), "%s_post_norm", branch);
        f = lf_dec_norm(b, f, part, l);
    }
    snprintf(part, sizeof(part), "%s_norm", branch);
    if (block == LF_BLOCK_OUT)
        f = lf_dec_norm(b, f, part, l);
    const double *by = c->residual_factors.n
                           ? c->residual_factors.v + factors_of(b, branch, l)
                           : (const double[]){c->residual_alpha, c->residual_scale};
    f = lf_dec_dropout(b, lf_dec_scaled(b, f, by[1]), p, branch, l);
    if (block == LF_BLOCK_ALPHA)
        x = lf_scale(b->g, h, (float)by[0]);
    x = lf_add(b->g, x, f);
    return block == LF_BLOCK_POST ? lf_dec_norm(b, x, part, l) : x;
}

/* x + attn(norm x) + mlp(norm x), with one norm or two. */
static lf_val parallel_block(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const lf_model_config *c = b->c;
    lf_val h = lf_dec_norm(b, x, "attn_norm", l);
    lf_val a = lf_dec_dropout(b, scaled(b, mixer(b, h, l)), c->attn_dropout, "attn", l);
    if (c->parallel_block == LF_PARALLEL_TWO_NORMS)
        h = lf_dec_norm(b, x, "mlp_norm", l);
    const lf_val read = x;
    x = lf_add(b->g, x, a);
    const lf_val f = scaled(b, mlp(b, read, h, l));
    return lf_add(b->g, x, lf_dec_dropout(b, f, c->mlp_dropout, "mlp", l));
}

/* Attention or another mixer, then the MLP. */
static lf_val branches(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const lf_model_config *c = b->c;
    const enum lf_model_block block = lf_model_layer_block(c, l);
    const bool post = block == LF_BLOCK_POST || block == LF_BLOCK_OUT; /* norms stand behind */
    if (lf_model_layer_mixer(c, l) != LF_MIXER_NONE) {
        const bool bare = post || (l == 0 && !c->first_norm);
        const lf_val h = bare ? x : lf_dec_norm(b, x, "attn_norm", l);
        x = join(b, x, h, mixer(b, h, l), c->attn_dropout, "attn", l);
        if (c->laurel_rank)
            x = lf_dec_laurel(b, x, h, l);
    }
    if (lf_model_is_seq2seq(c)) { /* the decoder of one: its encoder's description is none */
        const lf_val h = post ? x : lf_dec_norm(b, x, "cross_norm", l);
        x = join(b, x, h, lf_dec_cross(b, h, l), c->attn_dropout, "cross", l);
    }
    if (lf_model_layer_mlp(c, l) == LF_MLP_NONE)
        return x;
    const lf_val h = post ? x : lf_dec_norm(b, x, "mlp_norm", l);
    return join(b, x, h, mlp(b, x, h, l), c->mlp_dropout, "mlp", l);
}

/* Layer l between prediction and correction of streams; x and the result are [R, N C]. */
static lf_val altup_block(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const lf_val predicted = lf_dec_altup_predict(b, x, l),
                 first = lf_dec_altup_first(b, predicted);
    x = lf_dec_altup_correct(b, predicted, first, branches(b, first, l), l);
    return b->c->per_layer_dim ? lf_dec_altup_add_per_layer(b, x, l) : x;
}

lf_val lf_dec_block(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const lf_model_config *c = b->c;
    if (c->altup_streams)
        return altup_block(b, x, l);
    x = c->parallel_block != LF_PARALLEL_NO ? parallel_block(b, x, l) : branches(b, x, l);
    if (c->per_layer_dim)
        x = lf_add(b->g, x, lf_dec_read_per_layer(b, x, l));
    return c->layer_gain ? lf_col_gate(b->g, x, lf_paramf(b->g, "layers.%lld.gain", (long long)l))
                         : x;
}
