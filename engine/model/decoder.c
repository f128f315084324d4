/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder as graphs. One block, switched by the description; attention is over packed documents or over the paged
 * cache. */
#include "engine/model/decoder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/model/decoder_priv.h"

lf_decoder *lf_decoder_create(const lf_model_config *c, int64_t positions, lf_err *err)
{
    if (c->vocab < 1) {
        lf_fail(err, LF_EINVAL, "[model] vocab is not known");
        return NULL;
    }
    if (positions < 1 || positions > c->max_positions) {
        lf_fail(err, LF_EINVAL, "sequences of %lld tokens, but [model] max_positions = %lld", (long long)positions,
                (long long)c->max_positions);
        return NULL;
    }
    lf_decoder *d = lf_calloc(1, sizeof(*d), err);
    if (!d)
        return NULL;
    d->c = *c;
    d->positions = positions;
    return d;
}

void lf_decoder_destroy(lf_decoder *d)
{
    free(d);
}

const lf_model_config *lf_decoder_config(const lf_decoder *d)
{
    return &d->c;
}

void lf_decoder_softcap(const lf_model_config *c, float *logits, int64_t n)
{
    if (!(c->logit_softcap > 0))
        return;
    float cap = (float)c->logit_softcap;
    for (int64_t i = 0; i < n; i++)
        logits[i] = cap * tanhf(logits[i] / cap);
}

/* ---- what one graph is made of ---- */

struct build {
    const lf_decoder *d;
    const lf_model_config *c;
    lf_graph *g;
    bool dropout;
    lf_val tokens, positions, samples, offsets;
    lf_val cos, sin, alibi;
    /* over documents */
    lf_val cu_seqlens;
    int64_t max_doc;
    /* over the cache */
    const struct lf_decoder_paged *paged;
    lf_val seq, table;
};

static void fill_cos(void *dst, const void *ctx)
{
    const lf_decoder *d = ctx;
    lf_model_rope_tables(&d->c, d->positions, dst, NULL);
}

static void fill_sin(void *dst, const void *ctx)
{
    const lf_decoder *d = ctx;
    lf_model_rope_tables(&d->c, d->positions, NULL, dst);
}

static void fill_slopes(void *dst, const void *ctx)
{
    const lf_decoder *d = ctx;
    lf_model_alibi_slopes(&d->c, dst);
}

static void begin(struct build *b, int64_t rows)
{
    const lf_model_config *c = b->c;
    b->tokens = lf_input(b->g, "tokens", LF_I32, rows, 1);
    b->positions = lf_input(b->g, "positions", LF_I32, rows, 1);
    b->samples = b->dropout ? lf_input(b->g, "samples", LF_I64, rows, 1) : LF_NONE;
    b->offsets = b->dropout ? lf_input(b->g, "offsets", LF_I32, rows, 1) : LF_NONE;
    if (c->position == LF_POS_ROPE) {
        int64_t half = lf_model_rope_dim(c) / 2;
        b->cos = lf_const(b->g, "rope.cos", LF_F32, b->d->positions, half, fill_cos, b->d);
        b->sin = lf_const(b->g, "rope.sin", LF_F32, b->d->positions, half, fill_sin, b->d);
    }
    if (c->position == LF_POS_ALIBI)
        b->alibi = lf_const(b->g, "alibi.slopes", LF_F32, 1, c->heads, fill_slopes, b->d);
}

/* "layers.L.part", or the part alone outside the layers. */
#define OUTSIDE (-1)
static const char *part_name(char buf[64], const char *part, int64_t l)
{
    if (l == OUTSIDE)
        snprintf(buf, 64, "%s", part);
    else
        snprintf(buf, 64, "layers.%lld.%s", (long long)l, part);
    return buf;
}

static lf_val drop(struct build *b, lf_val x, double p, const char *part, int64_t l)
{
    if (!b->dropout || !(p > 0))
        return x;
    char name[64];
    part_name(name, part, l);
    return lf_dropout(b->g, x, (float)p, name, b->samples, b->offsets);
}

static lf_val norm(struct build *b, lf_val x, const char *part, int64_t l)
{
    const lf_model_config *c = b->c;
    struct lf_norm_opts o = {
        .eps = (float)c->norm_eps, .w_offset = (float)c->norm_offset, .layer = c->norm == LF_NORM_LAYER};
    char name[64];
    part_name(name, part, l);
    lf_val w = lf_paramf(b->g, "%s.weight", name);
    return lf_norm(b->g, x, w, c->norm_bias ? lf_paramf(b->g, "%s.bias", name) : LF_NONE, &o);
}

/* y = x w^T (+ bias), both found under name. */
static lf_val linear(struct build *b, lf_val x, bool bias, const char *part, int64_t l)
{
    char name[64];
    part_name(name, part, l);
    lf_val w = lf_paramf(b->g, "%s.weight", name);
    return lf_linear(b->g, x, w, bias ? lf_paramf(b->g, "%s.bias", name) : LF_NONE);
}

static lf_val head_norm(struct build *b, lf_val x, int64_t heads, const char *part, int64_t l)
{
    struct lf_norm_opts o = {.eps = (float)b->c->norm_eps, .w_offset = (float)b->c->norm_offset, .heads = (int)heads};
    char name[64];
    return lf_norm(b->g, x, lf_paramf(b->g, "%s.weight", part_name(name, part, l)), LF_NONE, &o);
}

static lf_val rope(struct build *b, lf_val x, int64_t heads)
{
    struct lf_rope_opts o = {
        .heads = (int)heads, .rot = (int)lf_model_rope_dim(b->c), .interleaved = b->c->rope_interleaved};
    return lf_rope(b->g, x, b->positions, b->cos, b->sin, &o);
}

static lf_val paged_attention(struct build *b, lf_val q, lf_val k, lf_val v, const struct lf_attn_opts *o, int64_t l)
{
    const struct lf_decoder_paged *p = b->paged;
    int64_t rows = p->n_pages * p->page_tokens, cols = b->c->kv_heads * b->c->head_dim;
    char name[32];
    snprintf(name, sizeof(name), "kv.%lld.k", (long long)l);
    lf_val kp = lf_state(b->g, name, p->cache, rows, cols);
    snprintf(name, sizeof(name), "kv.%lld.v", (long long)l);
    lf_val vp = lf_state(b->g, name, p->cache, rows, cols);
    lf_kv_write(b->g, k, v, kp, vp, b->seq, b->positions, b->table, p->page_tokens, (int)b->c->kv_heads);
    return lf_attention_paged(b->g, q, kp, vp, b->seq, b->positions, b->table, b->alibi, p->page_tokens, o);
}

/* softmax(scale q k^T + mask) v, projected back; q and k normalised per head and turned before. */
static lf_val attention(struct build *b, lf_val h, int64_t l)
{
    const lf_model_config *c = b->c;
    int64_t H = c->heads, G = c->kv_heads, D = c->head_dim;
    lf_val qkv = linear(b, lf_tp_enter(b->g, h), c->qkv_bias, "attn.qkv", l);
    lf_val v = lf_slice(b->g, qkv, (H + G) * D, G * D);
    lf_val q, k;
    if (c->position == LF_POS_ROPE && !c->qk_norm) { /* q and k lie side by side: one pass turns both */
        lf_val qk = rope(b, lf_slice(b->g, qkv, 0, (H + G) * D), H + G);
        q = lf_slice(b->g, qk, 0, H * D);
        k = lf_slice(b->g, qk, H * D, G * D);
    } else {
        q = lf_slice(b->g, qkv, 0, H * D);
        k = lf_slice(b->g, qkv, H * D, G * D);
        if (c->qk_norm) {
            q = head_norm(b, q, H, "attn.q_norm", l);
            k = head_norm(b, k, G, "attn.k_norm", l);
        }
        if (c->position == LF_POS_ROPE) {
            q = rope(b, q, H);
            k = rope(b, k, G);
        }
    }
    struct lf_attn_opts o = {.heads = (int)H,
                             .groups = (int)G,
                             .scale = (float)(c->attn_scale > 0 ? c->attn_scale : 1 / sqrt((double)D)),
                             .softcap = (float)c->attn_softcap,
                             .window = (int32_t)lf_model_layer_window(c, l),
                             .causal = true,
                             .max_doc = b->max_doc};
    char site[64];
    if (b->dropout && c->attn_prob_dropout > 0) {
        o.dropout = (float)c->attn_prob_dropout;
        o.site = part_name(site, "attn.prob", l);
        o.sample = b->samples;
        o.position = b->offsets;
    }
    lf_val a = b->paged ? paged_attention(b, q, k, v, &o, l) : lf_attention(b->g, q, k, v, b->cu_seqlens, b->alibi, &o);
    return lf_tp_leave(b->g, linear(b, a, c->out_bias, "attn.o", l));
}

/* down(act(gate h) * up h), or down(act(up h)). */
static lf_val mlp(struct build *b, lf_val h, int64_t l)
{
    const lf_model_config *c = b->c;
    enum lf_act act = (enum lf_act)c->activation;
    lf_val u;
    h = lf_tp_enter(b->g, h);
    if (c->mlp == LF_MLP_GLU) {
        lf_val gu = linear(b, h, c->mlp_bias, "mlp.gate_up", l);
        u = lf_glu(b->g, lf_slice(b->g, gu, 0, c->ffn), lf_slice(b->g, gu, c->ffn, c->ffn), act);
    } else {
        u = lf_act(b->g, linear(b, h, c->mlp_bias, "mlp.up", l), act);
    }
    return lf_tp_leave(b->g, linear(b, u, c->mlp_bias, "mlp.down", l));
}

static lf_val block(struct build *b, lf_val x, int64_t l)
{
    const lf_model_config *c = b->c;
    lf_val h = norm(b, x, "attn_norm", l);
    lf_val a = drop(b, attention(b, h, l), c->attn_dropout, "attn", l);
    if (c->parallel_block == LF_PARALLEL_TWO_NORMS)
        h = norm(b, x, "mlp_norm", l);
    x = lf_add(b->g, x, a);
    if (c->parallel_block == LF_PARALLEL_NO)
        h = norm(b, x, "mlp_norm", l);
    return lf_add(b->g, x, drop(b, mlp(b, h, l), c->mlp_dropout, "mlp", l));
}

/* Tokens to the normalised last hidden state [R, C]. */
static lf_val trunk(struct build *b)
{
    const lf_model_config *c = b->c;
    lf_val wpe = c->position == LF_POS_LEARNED ? lf_param(b->g, "pos_embed.weight") : LF_NONE;
    lf_val x = lf_embed(b->g, b->tokens, b->positions, lf_param(b->g, "embed.weight"), wpe, (float)c->embed_scale,
                        (int32_t)c->position_offset);
    if (c->embed_norm)
        x = norm(b, x, "embed_norm", OUTSIDE);
    x = drop(b, x, c->embed_dropout, "embed", OUTSIDE);
    for (int64_t l = 0; l < c->layers; l++) {
        lf_block_begin(b->g, (int)l);
        x = block(b, x, l);
        lf_block_end(b->g);
    }
    return norm(b, x, "final_norm", OUTSIDE);
}

static lf_val head_weight(struct build *b)
{
    return lf_param(b->g, b->c->tied_head ? "embed.weight" : "head.weight");
}

static lf_val head_bias(struct build *b)
{
    return b->c->head_bias ? lf_param(b->g, "head.bias") : LF_NONE;
}

bool lf_decoder_has_dropout(const lf_model_config *c)
{
    return c->embed_dropout > 0 || c->attn_dropout > 0 || c->mlp_dropout > 0 ||
           c->attn_prob_dropout > 0;
}

/* One check at the end: a graph with a failure is of no use to anyone. */
static lf_graph *done(lf_graph *g, lf_err *err)
{
    if (!lf_graph_check(g, err))
        return g;
    lf_graph_destroy(g);
    return NULL;
}

static int begin_documents(struct build *b, const lf_decoder *d, lf_pstore *ps, const char *name,
                           const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    *b = (struct build){.d = d, .c = &d->c, .dropout = train && lf_decoder_has_dropout(&d->c)};
    b->g = lf_graph_create(ps, name, err);
    if (!b->g)
        return LF_ENOMEM;
    begin(b, r->rows);
    b->cu_seqlens = lf_input(b->g, "cu_seqlens", LF_I32, r->n_docs + 1, 1);
    b->max_doc = r->max_doc > 0 ? r->max_doc : r->rows;
    return 0;
}

static lf_graph *loss_graph(const lf_decoder *d, lf_pstore *ps, const char *name, const struct lf_decoder_rows *r,
                            bool train, bool score, lf_err *err)
{
    struct build b;
    if (begin_documents(&b, d, ps, name, r, train, err))
        return NULL;
    struct lf_xent_opts o = {
        .softcap = (float)d->c.logit_softcap, .want_loss = score, .want_lse = score, .want_argmax = score};
    lf_val x = trunk(&b);
    lf_xent(b.g, x, head_weight(&b), head_bias(&b), lf_input(b.g, "targets", LF_I32, r->rows, 1), &o);
    return done(b.g, err);
}

lf_graph *lf_decoder_loss_graph(const lf_decoder *d, lf_pstore *ps, const char *name, const struct lf_decoder_rows *r,
                                bool train, lf_err *err)
{
    return loss_graph(d, ps, name, r, train, false, err);
}

lf_graph *lf_decoder_score_graph(const lf_decoder *d, lf_pstore *ps, const char *name, const struct lf_decoder_rows *r,
                                 lf_err *err)
{
    return loss_graph(d, ps, name, r, false, true, err);
}

lf_graph *lf_decoder_logits_graph(const lf_decoder *d, lf_pstore *ps, const char *name, const struct lf_decoder_rows *r,
                                  lf_err *err)
{
    struct build b;
    if (begin_documents(&b, d, ps, name, r, false, err))
        return NULL;
    lf_val x = trunk(&b);
    lf_val logits = lf_linear(b.g, x, head_weight(&b), head_bias(&b));
    lf_pin_f32(b.g, logits);
    lf_output(b.g, logits, "logits");
    return done(b.g, err);
}

lf_graph *lf_decoder_paged_graph(const lf_decoder *d, lf_pstore *ps, const char *name, const struct lf_decoder_paged *p,
                                 lf_err *err)
{
    struct build b = {.d = d, .c = &d->c, .paged = p};
    b.g = lf_graph_create(ps, name, err);
    if (!b.g)
        return NULL;
    begin(&b, p->rows);
    b.seq = lf_input(b.g, "seq", LF_I32, p->rows, 1);
    b.table = lf_input(b.g, "table", LF_I32, p->n_seq, p->max_pages);
    lf_val x = lf_gather_rows(b.g, trunk(&b), lf_input(b.g, "select", LF_I32, p->n_select, 1));
    lf_val logits = lf_linear(b.g, x, head_weight(&b), head_bias(&b));
    lf_pin_f32(b.g, logits);
    lf_output(b.g, logits, "logits");
    return done(b.g, err);
}
