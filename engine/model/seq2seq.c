/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoder-decoders (Vaswani et al. 2017): a stack that reads the source text whole, and a decoder
 * whose layers attend to what it gives. The encoder is a description of its own, made from the
 * model's, and the graph of its layers is that of any other; what this file has is what stands
 * between both, and positions by distance (Raffel et al. 2020, T5). */
#include <math.h>
#include <stdio.h>

#include "engine/model/config_priv.h"
#include "engine/model/decoder_priv.h"

/* ---- description ---- */

bool lf_model_is_seq2seq(const lf_model_config *c)
{
    return c->encoder_layers > 0;
}

int64_t lf_model_depth(const lf_model_config *c)
{
    return c->encoder_layers + c->layers;
}

lf_model_config lf_model_source_of(const lf_model_config *c)
{
    lf_model_config e = *c;
    e.layers = c->encoder_layers;
    e.encoder_layers = e.encoder_heads = e.encoder_ffn = 0;
    e.mask = LF_MASK_BOTH;
    e.ffn = c->encoder_ffn;
    if (c->encoder_heads) {
        e.heads = e.kv_heads = c->encoder_heads;
        e.head_dim = c->heads * c->head_dim / c->encoder_heads;
    }
    return e;
}

static bool all_attend(const lf_model_config *c)
{
    return lf_model_layers_are(c, lf_model_layer_mixer, "f*") &&
           lf_model_layers_are(c, lf_model_layer_mlp, "d*");
}

static int fail(const lf_model_config *c, const char *key, const char *why, lf_err *err)
{
    return lf_fail(err, LF_EINVAL, "%s: [model] %s: %s", lf_model_origin(c, key), key, why);
}

/* What no encoder-decoder has so far. */
static int check_without(const lf_model_config *c, lf_err *err)
{
    const struct {
        const char *key;
        bool set;
    } without[] = {
        {"layer_mixers", !all_attend(c)},
        {"kv_heads", c->kv_heads != c->heads},
        {"kv_lora", c->kv_lora > 0},
        {"embed_dim", c->embed_dim > 0},
        {"block", c->block != LF_BLOCK_PRE && c->block != LF_BLOCK_POST},
        {"parallel_block", c->parallel_block != LF_PARALLEL_NO},
        {"first_norm", !c->first_norm},
        {"position", c->position != LF_POS_LEARNED && c->position != LF_POS_RELATIVE &&
                         c->position != LF_POS_NONE},
        {"token_types", c->token_types > 0},
        {"activation", c->activation == LF_MODEL_XIELU},
        {"attn_gate", c->attn_gate},
        {"attn_sinks", c->attn_sinks},
        {"qk_norm", c->qk_norm},
        {"v_norm", c->v_norm},
        {"kv_shared_layers", c->kv_shared_layers > 0},
        {"per_layer_dim", c->per_layer_dim > 0},
        {"altup_streams", c->altup_streams > 0},
        {"laurel_rank", c->laurel_rank > 0},
        {"gate_sparsity", c->gate_sparsity.n > 0},
        {"layer_gain", c->layer_gain},
        {"head_transform", c->head_transform},
        {"output", c->output != LF_OUTPUT_TOKENS},
        {"mtp_layers", c->mtp_layers > 0},
        {"mask", c->mask != LF_MASK_CAUSAL},
        {"vision.family", c->vision.family > 0},
    };
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (without[i].set)
            return fail(c, without[i].key,
                        "does not go with encoder_layers: no layer of an "
                        "encoder-decoder reads it",
                        err);
    return 0;
}

static int check_relative(const lf_model_config *c, lf_err *err)
{
    if (c->position != LF_POS_RELATIVE)
        return 0;
    if (!lf_model_is_seq2seq(c))
        return fail(c, "position", "relative is of encoder-decoders (encoder_layers)", err);
    if (c->relative_buckets < 4 || c->relative_buckets % 4)
        return fail(c, "relative_buckets",
                    "half of them are for keys behind the query, and half of those for a distance "
                    "each: it is a multiple of 4",
                    err);
    return c->relative_distance > c->relative_buckets / 2
               ? 0
               : fail(c, "relative_distance",
                      "is not beyond half of relative_buckets, which have a distance each", err);
}

int lf_model_check_seq2seq(const lf_model_config *c, lf_err *err)
{
    static const char *const of_encoder[] = {"encoder_heads", "encoder_ffn", "decoder_start"},
                             *const of_relative[] = {"relative_buckets", "relative_distance",
                                                     "relative_each_layer"};
    const bool both = lf_model_is_seq2seq(c);
    for (int i = 0; i < 3; i++) {
        if (!both && lf_model_by_hand(c, of_encoder[i]))
            return fail(c, of_encoder[i], "nothing reads it without encoder_layers", err);
        if (c->position != LF_POS_RELATIVE && lf_model_by_hand(c, of_relative[i]))
            return fail(c, of_relative[i], "nothing reads it without position = relative", err);
    }
    if (both && c->encoder_heads && c->heads * c->head_dim % (2 * c->encoder_heads))
        return fail(c, "encoder_heads",
                    "they do not divide the channels of heads into heads of an "
                    "even width",
                    err);
    if (both && c->vocab && c->decoder_start >= c->vocab)
        return fail(c, "decoder_start", "is no token of the vocabulary", err);
    const int rc = both ? check_without(c, err) : 0;
    return rc != 0 ? rc : check_relative(c, err);
}

/* ---- numbers ---- */

static int64_t relative_params(const lf_model_config *c)
{
    return c->position == LF_POS_RELATIVE
               ? c->relative_buckets * c->heads * (c->relative_each_layer ? c->layers : 1)
               : 0;
}

int64_t lf_model_seq2seq_matrices(const lf_model_config *c)
{
    if (!lf_model_is_seq2seq(c))
        return 0;
    lf_model_config e = lf_model_source_of(c);
    return lf_model_matmul_params(&e) - c->vocab * c->hidden +
           c->layers * 4 * c->hidden * c->heads * c->head_dim;
}

int64_t lf_model_seq2seq_params(const lf_model_config *c)
{
    if (!lf_model_is_seq2seq(c))
        return 0;
    lf_model_config e = lf_model_source_of(c);
    const int64_t norm = c->hidden * (c->norm_bias ? 2 : 1), q = c->heads * c->head_dim,
                  cross = norm + (c->qkv_bias ? 3 * q : 0) + (c->out_bias ? c->hidden : 0);
    e.tied_head = true;
    e.head_bias = false;
    /* its matrices are counted with those that multiply */
    return lf_model_param_count(&e) - lf_model_matmul_params(&e) + c->layers * cross +
           relative_params(c) + relative_params(&e);
}

double lf_model_seq2seq_attention(const lf_model_config *c, int64_t seq_length, int64_t from)
{
    if (!lf_model_is_seq2seq(c))
        return 0;
    const lf_model_config e = lf_model_source_of(c);
    return (from > 0 ? 0 : lf_model_attention_work(&e, seq_length, false, 0)) +
           (double)((c->layers - from) * c->heads * c->head_dim) * (double)seq_length;
}

/* ---- positions by distance ---- */

int32_t lf_model_relative_bucket(const lf_model_config *c, int64_t far)
{
    const bool both = c->mask == LF_MASK_BOTH;
    const int64_t buckets = both ? c->relative_buckets / 2 : c->relative_buckets,
                  exact = buckets / 2, first = both && far > 0 ? buckets : 0,
                  n = both      ? (far < 0 ? -far : far)
                      : far < 0 ? -far
                                : 0;
    if (n < exact)
        return (int32_t)(first + n);
    /* in f32, as transformers has it */
    const float share =
        logf((float)n / (float)exact) / (float)log((double)c->relative_distance / (double)exact);
    const int64_t more = (int64_t)(share * (float)(buckets - exact));
    return (int32_t)(first + (exact + more < buckets - 1 ? exact + more : buckets - 1));
}

/* From the distance relative_distance on all have the last bucket. */
static int64_t reach(const lf_model_config *c)
{
    return c->relative_distance + 1;
}

static void fill_buckets(void *dst, const void *ctx)
{
    const lf_model_config *c = ctx;
    int32_t *row = dst;
    for (int64_t i = 0; i < 2 * reach(c) - 1; i++)
        row[i] = lf_model_relative_bucket(c, i - (reach(c) - 1));
}

lf_val lf_dec_relative(struct lf_dec_build *b, int64_t l)
{
    char name[64];
    snprintf(name, sizeof name, "%srelative.buckets", b->stack);
    const lf_val buckets = lf_const(b->g, name, LF_I32, 2 * reach(b->c) - 1, 1, fill_buckets, b->c);
    const lf_val table = l == LF_DEC_OUTSIDE ? lf_paramf(b->g, "%srelative.weight", b->stack)
                                             : lf_paramf(b->g, "%slayers.%lld.attn.relative.weight",
                                                         b->stack, (long long)l);
    /* the rows are looked up as those of positions are */
    const lf_val bias = lf_embed(b->g, buckets, buckets, LF_NONE, table, 1, 0);
    lf_pin_f32(b->g, bias);
    return bias;
}

lf_val lf_dec_shared_relative(struct lf_dec_build *b, struct lf_dec_span own)
{
    return b->c->position == LF_POS_RELATIVE && !b->c->relative_each_layer && own.begin < own.end
               ? lf_dec_relative(b, LF_DEC_OUTSIDE)
               : LF_NONE;
}

/* ---- chunks ---- */

static int64_t clamped(int64_t l, int64_t n)
{
    return l < 0 ? 0 : l < n ? l : n;
}

struct lf_dec_span lf_dec_span(const lf_model_config *c, const struct lf_decoder_chunk *k,
                               bool source)
{
    const int64_t first = source ? 0 : c->encoder_layers,
                  n = source ? c->encoder_layers : c->layers;
    return (struct lf_dec_span){clamped(k->begin - first, n), clamped(k->end - first, n)};
}

bool lf_decoder_has_layers(const lf_model_config *c, const struct lf_decoder_chunk *k, bool source)
{
    const struct lf_dec_span own = lf_dec_span(c, k, source);
    return own.begin < own.end;
}

bool lf_decoder_reads_source(const lf_model_config *c, const struct lf_decoder_chunk *k)
{
    return k->first || lf_dec_source_crosses(c, k->begin);
}

int lf_decoder_spread(const lf_model_config *c, struct lf_decoder_spread out[LF_DECODER_SPREAD])
{
    if (c->position != LF_POS_RELATIVE || c->relative_each_layer)
        return 0;
    const lf_model_config e = lf_model_source_of(c);
    out[0] =
        (struct lf_decoder_spread){"encoder.relative.weight", c->relative_buckets * e.heads, true};
    out[1] = (struct lf_decoder_spread){"relative.weight", c->relative_buckets * c->heads, false};
    return 2;
}

bool lf_dec_ends_source(const lf_model_config *c, const struct lf_decoder_chunk *k)
{
    return k->begin <= c->encoder_layers && c->encoder_layers < k->end;
}

bool lf_dec_source_crosses(const lf_model_config *c, int64_t cut)
{
    return lf_model_is_seq2seq(c) && cut < lf_model_depth(c);
}

/* ---- the encoder ---- */

/* Blocks of a graph have numbers; a decoder's layers take those from 0 on, encoders of pictures
 * those from 1 << 20 on. */
enum { FIRST_BLOCK = 1 << 24 };

struct lf_dec_build lf_dec_source(const struct lf_dec_build *b, const struct lf_dec_source *s)
{
    struct lf_dec_build e = *b;
    e.c = &b->d->source;
    e.stack = "encoder.";
    e.rows = s->rows;
    e.max_doc = s->max_doc > 0 ? s->max_doc : s->rows;
    e.noise = false;
    e.paged = NULL;
    e.media = NULL;
    if (e.chunk.first) {
        e.tokens = lf_input(b->g, "source_tokens", LF_I32, s->rows, 1);
        e.positions = lf_input(b->g, "source_positions", LF_I32, s->rows, 1);
    }
    e.samples = b->dropout ? lf_input(b->g, "source_samples", LF_I64, s->rows, 1) : LF_NONE;
    e.offsets = b->dropout ? lf_input(b->g, "source_offsets", LF_I32, s->rows, 1) : LF_NONE;
    e.cu_seqlens = lf_input(b->g, "source_cu_seqlens", LF_I32, s->n_docs + 1, 1);
    return e;
}

lf_val lf_dec_encode(struct lf_dec_build *e)
{
    const lf_model_config *c = &e->d->c;
    const struct lf_dec_span own = lf_dec_span(c, &e->chunk, true);
    const bool gradient = e->differentiated && !e->chunk.frozen_before;
    lf_val x = e->chunk.first
                   ? lf_dec_bottom(e)
                   : lf_cut_in(e->g, "source", e->rows, c->hidden, gradient ? "dsource" : NULL);
    e->relative = lf_dec_shared_relative(e, own);
    for (int64_t l = own.begin; l < own.end; l++) {
        lf_block_begin(e->g, FIRST_BLOCK + (int)l);
        x = lf_dec_block(e, x, l);
        lf_block_end(e->g);
    }
    return lf_dec_ends_source(c, &e->chunk) && e->c->final_norm
               ? lf_dec_norm(e, x, "final_norm", LF_DEC_OUTSIDE)
               : x;
}

/* ---- attention to it ---- */

/* Of the source: keys and values of decoder layer l, side by side. memory has entered: all layers
 * read the same copy, so that its gradient is summed over ranks once. */
static lf_val source_heads(struct lf_dec_build *b, lf_val memory, int64_t l)
{
    return lf_dec_linear(b, memory, b->c->qkv_bias, "cross.kv", l);
}

/* The cache that has them, while texts are generated; pos: what a row sees up to. */
static struct lf_kv_cache source_cache(struct lf_dec_build *b, lf_val seq, lf_val pos, int64_t l)
{
    const struct lf_decoder_paged *p = b->paged;
    const int64_t rows = p->n_source_pages * p->page_tokens, width = b->c->heads * b->c->head_dim;
    char name[32];
    struct lf_kv_cache c = {
        .seq = seq, .pos = pos, .table = b->source_table, .page_tokens = p->page_tokens};
    snprintf(name, sizeof name, "kv.%lld.ck", (long long)l);
    c.k_pages = lf_state(b->g, name, p->cache, rows, width);
    snprintf(name, sizeof name, "kv.%lld.cv", (long long)l);
    c.v_pages = lf_state(b->g, name, p->cache, rows, width);
    return c;
}

lf_val lf_dec_cross(struct lf_dec_build *b, lf_val h, int64_t l)
{
    const lf_model_config *c = b->c;
    const int64_t width = c->heads * c->head_dim;
    struct lf_attn_opts o = {.heads = (int)c->heads,
                             .groups = (int)c->heads,
                             .scale = (float)lf_model_layer_attn_scale(c, l),
                             .softcap = (float)c->attn_softcap};
    const lf_val q = lf_dec_linear(b, lf_tp_enter(b->g, h), c->qkv_bias, "cross.q", l);
    lf_val a;
    char site[64];
    if (b->paged) { /* the last token of the source, and so all of them */
        const struct lf_kv_cache cache = source_cache(b, b->seq, b->source_last, l);
        o.causal = true;
        a = lf_attention_paged(b->g, q, &cache, LF_NONE, &o);
    } else {
        const lf_val kv = source_heads(b, b->memory, l);
        if (b->dropout && c->attn_prob_dropout > 0) {
            snprintf(site, sizeof site, "layers.%lld.cross.prob", (long long)l);
            o.dropout = (float)c->attn_prob_dropout;
            o.site = site;
            o.sample = b->samples;
            o.position = b->offsets;
        }
        o.max_doc = b->max_source;
        o.cu_queries = b->cu_seqlens;
        a = lf_attention(b->g, q, lf_slice(b->g, kv, 0, width), lf_slice(b->g, kv, width, width),
                         b->source_cu, LF_NONE, &o);
    }
    return lf_tp_leave(b->g, lf_dec_linear(b, a, c->out_bias, "cross.o", l));
}

void lf_dec_keep_source(struct lf_dec_build *b, const struct lf_dec_build *e, lf_val memory)
{
    const int64_t width = b->c->heads * b->c->head_dim;
    const lf_val seq = lf_input(b->g, "source_seq", LF_I32, e->rows, 1);
    memory = lf_tp_enter(b->g, memory);
    for (int64_t l = 0; l < b->c->layers; l++) {
        const lf_val kv = source_heads(b, memory, l);
        const struct lf_kv_cache cache = source_cache(b, seq, e->positions, l);
        lf_kv_write(b->g, lf_slice(b->g, kv, 0, width), lf_slice(b->g, kv, width, width), &cache,
                    (int)b->c->heads);
    }
}
