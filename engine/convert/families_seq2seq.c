/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoder-decoders: T5, T5 v1.1 and mT5, UMT5, whose positions are distances, and BART. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/convert/families.h"
#include "engine/model/config.h"
#include "kernels/kernels.h"

/* ---- T5 ---- */

#define T5 "norm=rms", "position=relative", "attn_scale=1"
static const char *const t5_switches[] = {T5, NULL};
static const char *const umt5_switches[] = {T5, "relative_each_layer=yes", NULL};

/* n_positions: no class reads it, and no table has so many rows; published files say with it how
 * long texts were in training. Of the places where transformers drops out, two have no key here:
 * within the MLP, and behind the last norm. */
#define T5_KEYS(vocab, ffn, layers, heads)                                                         \
    {"vocab_size", LF_HF_NUMBER, "vocab", vocab}, {"d_model", LF_HF_NUMBER, "hidden", "512"},      \
        {"d_kv", LF_HF_NUMBER, "head_dim", "64"}, {"d_ff", LF_HF_NUMBER, "ffn", ffn},              \
        {"num_layers", LF_HF_NUMBER, "encoder_layers", layers},                                    \
        {"num_heads", LF_HF_NUMBER, "heads", heads},                                               \
        {"n_positions", LF_HF_NUMBER, "max_positions", "512"},                                     \
        {"relative_attention_num_buckets", LF_HF_NUMBER, "relative_buckets", "32"},                \
        {"relative_attention_max_distance", LF_HF_NUMBER, "relative_distance", "128"},             \
        {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-6"},                                  \
        {"dropout_rate", LF_HF_NUMBER, "embed_dropout attn_dropout mlp_dropout attn_prob_dropout", \
         "0.1"},                                                                                   \
        {"decoder_start_token_id", LF_HF_NUMBER, "decoder_start", "0"},                            \
        {"initializer_factor", LF_HF_NUMBER, "init_std", "1"},                                     \
        {"classifier_dropout", LF_HF_INERT, NULL, NULL}, /* of heads, which have none here */      \
        {"dense_act_fn", LF_HF_INERT, NULL, NULL},       /* both follow from feed_forward_proj */  \
    {                                                                                              \
        "is_gated_act", LF_HF_INERT, NULL, NULL                                                    \
    }

static const struct lf_hf_key t5_keys[] = {T5_KEYS("32128", "2048", "6", "8"), {0}};
static const struct lf_hf_key mt5_keys[] = {T5_KEYS("250112", "1024", "8", "6"), {0}};

#define STACK(theirs, ours, mlp)                                                                   \
    {theirs "block.{L}.layer.0.layer_norm.weight", LF_MAP_COPY,                                    \
     ours "layers.{L}.attn_norm.weight", NULL},                                                    \
        {theirs "block.{L}.layer.0.SelfAttention.q.weight", LF_MAP_COPY,                           \
         ours "layers.{L}.attn.q.weight", NULL},                                                   \
        {theirs "block.{L}.layer.0.SelfAttention.k.weight", LF_MAP_COPY,                           \
         ours "layers.{L}.attn.k.weight", NULL},                                                   \
        {theirs "block.{L}.layer.0.SelfAttention.v.weight", LF_MAP_COPY,                           \
         ours "layers.{L}.attn.v.weight", NULL},                                                   \
        {theirs "block.{L}.layer.0.SelfAttention.o.weight", LF_MAP_COPY,                           \
         ours "layers.{L}.attn.o.weight", NULL},                                                   \
        {theirs "block.0.layer.0.SelfAttention.relative_attention_bias.weight", LF_MAP_COPY,       \
         ours "relative.weight", "relative_each_layer=no"},                                        \
        {theirs "block.{L}.layer.0.SelfAttention.relative_attention_bias.weight", LF_MAP_COPY,     \
         ours "layers.{L}.attn.relative.weight", "relative_each_layer=yes"},                       \
        {theirs "block.{L}.layer." mlp ".layer_norm.weight", LF_MAP_COPY,                          \
         ours "layers.{L}.mlp_norm.weight", NULL},                                                 \
        {theirs "block.{L}.layer." mlp ".DenseReluDense.wi.weight", LF_MAP_COPY,                   \
         ours "layers.{L}.mlp.up.weight", "mlp=plain"},                                            \
        {theirs "block.{L}.layer." mlp ".DenseReluDense.wi_0.weight", LF_MAP_COPY,                 \
         ours "layers.{L}.mlp.gate.weight", "mlp=glu"},                                            \
        {theirs "block.{L}.layer." mlp ".DenseReluDense.wi_1.weight", LF_MAP_COPY,                 \
         ours "layers.{L}.mlp.up.weight", "mlp=glu"},                                              \
        {theirs "block.{L}.layer." mlp ".DenseReluDense.wo.weight", LF_MAP_COPY,                   \
         ours "layers.{L}.mlp.down.weight", NULL},                                                 \
    {                                                                                              \
        theirs "final_layer_norm.weight", LF_MAP_COPY, ours "final_norm.weight", NULL              \
    }

#define CROSS "decoder.block.{L}.layer.1."
static const struct lf_map_row t5_rows[] = {
    {"shared.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"encoder.embed_tokens.weight", LF_MAP_TIED, "embed.weight", NULL},
    {"decoder.embed_tokens.weight", LF_MAP_TIED, "embed.weight", NULL},
    STACK("encoder.", "encoder.", "1"),
    STACK("decoder.", "", "2"),
    {CROSS "layer_norm.weight", LF_MAP_COPY, "layers.{L}.cross_norm.weight", NULL},
    {CROSS "EncDecAttention.q.weight", LF_MAP_COPY, "layers.{L}.cross.q.weight", NULL},
    {CROSS "EncDecAttention.k.weight", LF_MAP_COPY, "layers.{L}.cross.k.weight", NULL},
    {CROSS "EncDecAttention.v.weight", LF_MAP_COPY, "layers.{L}.cross.v.weight", NULL},
    {CROSS "EncDecAttention.o.weight", LF_MAP_COPY, "layers.{L}.cross.o.weight", NULL},
    {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", LF_MAP_IGNORED,
     "the first files have it, and nothing ever read it", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

/* "relu", "gated-gelu", "gated-silu" ...; the gelu of gated ones is approximated by tanh. */
static int read_mlp(lf_hf_reader *r, lf_model_config *c, const char *def, lf_err *err)
{
    const char key[] = "feed_forward_proj";
    json_t *v = lf_hf_take(r, key);
    const char *text = v ? json_string_value(v) : def;
    const bool gated = text && lf_str_has_prefix(text, "gated-");
    const char *act = gated && strcmp(text, "gated-gelu") == 0 ? "gelu_tanh"
                      : text ? lf_hf_act_from(gated ? text + strlen("gated-") : text)
                             : NULL;
    if (!act)
        return lf_fail(err, LF_ENOTSUP, "%s: %s = %.60s is not known", r->path, key,
                       text ? text : "no text");
    const int rc = lf_hf_set(r, c, key, "mlp", gated ? "glu" : "plain", err);
    return rc != 0 ? rc : lf_hf_set(r, c, key, "activation", act, err);
}

static int write_mlp(const lf_model_config *c, json_t *o, lf_err *err)
{
    static const char *const acts[] = {"none", "gelu", "gelu_tanh", "gelu_quick",
                                       "silu", "relu", "relu2"};
    const bool gated = c->mlp == LF_MLP_GLU;
    char text[64];
    if (c->activation < 0 || (size_t)c->activation >= sizeof acts / sizeof *acts)
        return lf_fail(err, LF_EINVAL, "activation: feed_forward_proj has no name for it");
    const char *act = lf_hf_act_to(acts[c->activation]);
    snprintf(text, sizeof text, "%s%s", gated ? "gated-" : "",
             gated && c->activation == LF_ACT_GELU_TANH ? "gelu"
             : act                                      ? act
                                                        : "");
    return json_object_set_new(o, "feed_forward_proj", json_string(text))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

static int read_decoder_layers(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t n = c->encoder_layers;
    const int rc = lf_hf_get_i64(r, "num_decoder_layers", &n, err);
    return rc != 0 ? rc : lf_hf_set_number(r, c, "num_decoder_layers", "layers", (double)n, err);
}

/* scaled: the head reads what the last norm gives over sqrt(d_model). Whether the head is the
 * embedding is what tensors say (lf_hf_settle_tie): transformers writes true whatever it is. */
static int read_head(lf_hf_reader *r, lf_model_config *c, bool scaled, bool tied, lf_err *err)
{
    int rc = lf_hf_set(r, c, "tie_word_embeddings", "tied_head", tied ? "yes" : "no", err);
    return rc != 0 ? rc
                   : lf_hf_set_number(r, c, "scale_decoder_outputs", "logit_scale",
                                      scaled ? 1 / sqrt((double)c->hidden) : 1, err);
}

static int read_t5(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool tied = true, scaled;
    int rc = read_decoder_layers(r, c, err);
    rc = rc != 0 ? rc : read_mlp(r, c, "relu", err);
    rc = rc != 0 ? rc : lf_hf_get_bool(r, "tie_word_embeddings", &tied, err);
    scaled = tied;
    rc = rc != 0 ? rc : lf_hf_get_bool(r, "scale_decoder_outputs", &scaled, err);
    return rc != 0 ? rc : read_head(r, c, scaled, tied, err);
}

static int read_later(lf_hf_reader *r, lf_model_config *c, bool scaled, lf_err *err)
{
    bool tied = true;
    int rc = read_decoder_layers(r, c, err);
    rc = rc != 0 ? rc : read_mlp(r, c, "gated-gelu", err);
    rc = rc != 0 ? rc : lf_hf_get_bool(r, "tie_word_embeddings", &tied, err);
    return rc != 0 ? rc : read_head(r, c, scaled, tied, err);
}

static int read_mt5(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return read_later(r, c, false, err);
}

static int read_umt5(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return read_later(r, c, true, err);
}

/* A description without an encoder, such as that of a decoder by itself, is no such model. */
static int need_encoder(const lf_model_config *c, lf_err *err)
{
    return lf_model_is_seq2seq(c)
               ? 0
               : lf_fail(err, LF_EINVAL, "encoder_layers = 0: its class has an encoder");
}

static int write_later(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (need_encoder(c, err))
        return LF_EINVAL;
    const int rc = write_mlp(c, o, err);
    const int bad = json_object_set_new(o, "num_decoder_layers", json_integer(c->layers)) ||
                    json_object_set_new(o, "is_encoder_decoder", json_true()) ||
                    json_object_set_new(o, "tie_word_embeddings", json_boolean(c->tied_head));
    return rc != 0 ? rc : bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static int write_t5(const lf_model_config *c, json_t *o, lf_err *err)
{
    const bool scaled = fabs(c->logit_scale - 1) > 0;
    const int rc = write_later(c, o, err);
    return rc == 0 && json_object_set_new(o, "scale_decoder_outputs", json_boolean(scaled))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : rc;
}

const struct lf_hf_family lf_hf_t5 = {
    .name = "t5",
    .also = "t5-v1.1",
    .model_type = "t5",
    .architecture = "T5ForConditionalGeneration",
    .native = true,
    .switches = t5_switches,
    .keys = t5_keys,
    .rows = t5_rows,
    .tie_by_tensors = true,
    .read = read_t5,
    .write = write_t5,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
const struct lf_hf_family lf_hf_mt5 = {
    .name = "mt5",
    .model_type = "mt5",
    .architecture = "MT5ForConditionalGeneration",
    .native = true,
    .switches = t5_switches,
    .keys = mt5_keys,
    .rows = t5_rows,
    .tie_by_tensors = true,
    .read = read_mt5,
    .write = write_later,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
const struct lf_hf_family lf_hf_umt5 = {
    .name = "umt5",
    .model_type = "umt5",
    .architecture = "UMT5ForConditionalGeneration",
    .native = true,
    .switches = umt5_switches,
    .keys = mt5_keys,
    .rows = t5_rows,
    .tie_by_tensors = true,
    .read = read_umt5,
    .write = write_later,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- BART ---- */

static const char *const bart_switches[] = {
    "norm=layer",    "norm_bias=yes",    "norm_eps=1e-5",     "block=post", "embed_norm=yes",
    "final_norm=no", "position=learned", "position_offset=2", "mlp=plain",  "qkv_bias=yes",
    "out_bias=yes",  "mlp_bias=yes",     "head_bias=yes",     NULL};

/* activation_dropout is within the MLP, where no key here drops out. Layers are never left out,
 * which is what the class does where nothing is said. */
static const struct lf_hf_key bart_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "50265"},
    {"d_model", LF_HF_NUMBER, "hidden", "1024"},
    {"encoder_layers", LF_HF_NUMBER, "encoder_layers", "12"},
    {"encoder_ffn_dim", LF_HF_NUMBER, "encoder_ffn", "4096"},
    {"encoder_attention_heads", LF_HF_NUMBER, "encoder_heads", "16"},
    {"decoder_layers", LF_HF_NUMBER, "layers", "12"},
    {"decoder_ffn_dim", LF_HF_NUMBER, "ffn", "4096"},
    {"decoder_attention_heads", LF_HF_NUMBER, "heads", "16"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "1024"},
    {"activation_function", LF_HF_ACT, "activation", "\"gelu\""},
    {"dropout", LF_HF_NUMBER, "embed_dropout attn_dropout mlp_dropout", "0.1"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0.0"},
    {"activation_dropout", LF_HF_INERT, NULL, NULL},
    {"encoder_layerdrop", LF_HF_UNREAD, NULL, "0.0"},
    {"decoder_layerdrop", LF_HF_UNREAD, NULL, "0.0"},
    {"init_std", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"decoder_start_token_id", LF_HF_NUMBER, "decoder_start", "2"},
    {"classifier_dropout|classif_dropout", LF_HF_INERT, NULL, NULL}, /* of heads */
    {"num_hidden_layers", LF_HF_INERT, NULL, NULL}, /* another name of encoder_layers */
    {"normalize_before", LF_HF_UNREAD, NULL, "false"},
    {"normalize_embedding", LF_HF_UNREAD, NULL, "true"},
    {"add_final_layer_norm", LF_HF_UNREAD, NULL, "false"},
    {"add_bias_logits", LF_HF_UNREAD, NULL, "false"},
    {"static_position_embeddings", LF_HF_UNREAD, NULL, "false"},
    {0},
};

#define BART_STACK(theirs, ours)                                                                   \
    {theirs "embed_positions.weight", LF_MAP_COPY, ours "pos_embed.weight", NULL},                 \
        {theirs "layernorm_embedding.{P}", LF_MAP_COPY, ours "embed_norm.{P}", NULL},              \
        {theirs "layers.{L}.self_attn.q_proj.{P}", LF_MAP_COPY, ours "layers.{L}.attn.q.{P}",      \
         NULL},                                                                                    \
        {theirs "layers.{L}.self_attn.k_proj.{P}", LF_MAP_COPY, ours "layers.{L}.attn.k.{P}",      \
         NULL},                                                                                    \
        {theirs "layers.{L}.self_attn.v_proj.{P}", LF_MAP_COPY, ours "layers.{L}.attn.v.{P}",      \
         NULL},                                                                                    \
        {theirs "layers.{L}.self_attn.out_proj.{P}", LF_MAP_COPY, ours "layers.{L}.attn.o.{P}",    \
         NULL},                                                                                    \
        {theirs "layers.{L}.self_attn_layer_norm.{P}", LF_MAP_COPY,                                \
         ours "layers.{L}.attn_norm.{P}", NULL},                                                   \
        {theirs "layers.{L}.fc1.{P}", LF_MAP_COPY, ours "layers.{L}.mlp.up.{P}", NULL},            \
        {theirs "layers.{L}.fc2.{P}", LF_MAP_COPY, ours "layers.{L}.mlp.down.{P}", NULL},          \
    {                                                                                              \
        theirs "layers.{L}.final_layer_norm.{P}", LF_MAP_COPY, ours "layers.{L}.mlp_norm.{P}",     \
            NULL                                                                                   \
    }

#define BART_CROSS "model.decoder.layers.{L}.encoder_attn"
static const struct lf_map_row bart_rows[] = {
    {"model.shared.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.encoder.embed_tokens.weight", LF_MAP_TIED, "embed.weight", NULL},
    {"model.decoder.embed_tokens.weight", LF_MAP_TIED, "embed.weight", NULL},
    BART_STACK("model.encoder.", "encoder."),
    BART_STACK("model.decoder.", ""),
    {BART_CROSS ".q_proj.{P}", LF_MAP_COPY, "layers.{L}.cross.q.{P}", NULL},
    {BART_CROSS ".k_proj.{P}", LF_MAP_COPY, "layers.{L}.cross.k.{P}", NULL},
    {BART_CROSS ".v_proj.{P}", LF_MAP_COPY, "layers.{L}.cross.v.{P}", NULL},
    {BART_CROSS ".out_proj.{P}", LF_MAP_COPY, "layers.{L}.cross.o.{P}", NULL},
    {BART_CROSS "_layer_norm.{P}", LF_MAP_COPY, "layers.{L}.cross_norm.{P}", NULL},
    {"final_logits_bias", LF_MAP_LEAD, "head.bias", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

static int read_bart(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool scaled = false;
    const int rc = lf_hf_get_bool(r, "scale_embedding", &scaled, err);
    return rc != 0 || !scaled ? rc
                              : lf_hf_set_number(r, c, "scale_embedding", "embed_scale",
                                                 sqrt((double)c->hidden), err);
}

static int write_bart(const lf_model_config *c, json_t *o, lf_err *err)
{
    const bool scaled = fabs(c->embed_scale - 1) > 0;
    if (need_encoder(c, err))
        return LF_EINVAL;
    return json_object_set_new(o, "scale_embedding", json_boolean(scaled)) ||
                   json_object_set_new(o, "is_encoder_decoder", json_true())
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

const struct lf_hf_family lf_hf_bart = {
    .name = "bart",
    .model_type = "bart",
    .architecture = "BartForConditionalGeneration",
    .native = true,
    .switches = bart_switches,
    .keys = bart_keys,
    .rows = bart_rows,
    .read = read_bart,
    .write = write_bart,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
