/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT and Llama models of Megatron-LM (its legacy checkpoints, merged by
 * engine/store/megatron_ckpt.h). Their "config.json" is the training arguments, most of which say
 * nothing about the model: unknown ones are passed over, those that make another model are rows.
 * Names of the older classes and of Megatron core's local and fused layers are brought to one
 * form. */
#include <stdio.h>
#include <string.h>

#include "engine/convert/families.h"

static const struct lf_hf_key keys[] = {
    {"padded_vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"ffn_hidden_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_layers|encoder_num_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"kv_channels", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", NULL},
    {"norm_epsilon|layernorm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"init_method_std", LF_HF_NUMBER, "init_std", "0.02"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0.1"},
    {"hidden_dropout", LF_HF_NUMBER, "embed_dropout attn_dropout mlp_dropout", "0.1"},
    {"untie_embeddings_and_output_weights", LF_HF_NOT, "tied_head", "false"},
    {"qk_layernorm", LF_HF_BOOL, "qk_norm", "false"},
    {"num_experts", LF_HF_SAME, NULL, "0"},
    {"multi_latent_attention", LF_HF_SAME, NULL, "false"},
    {"apply_residual_connection_post_layernorm", LF_HF_SAME, NULL, "false"},
    {"apply_layernorm_1p", LF_HF_SAME, NULL, "false"},
    {"squared_relu", LF_HF_SAME, NULL, "false"},
    {"use_rope_scaling", LF_HF_SAME, NULL, "false"},
    {"num_tokentypes", LF_HF_SAME, NULL, "0"},
    {0},
};

struct args {
    bool swiglu, bias, qkv_bias, openai_gelu, bias_gelu, rope, groups, interleaved;
    int64_t n_groups;
    double base, percent;
};

static int read_args(lf_hf_reader *r, struct args *a, lf_err *err)
{
    const struct {
        const char *name;
        bool *to;
    } flags[] = {{"swiglu", &a->swiglu},
                 {"add_bias_linear", &a->bias},
                 {"add_qkv_bias", &a->qkv_bias},
                 {"openai_gelu", &a->openai_gelu},
                 {"bias_gelu_fusion", &a->bias_gelu},
                 {"use_rotary_position_embeddings", &a->rope},
                 {"group_query_attention", &a->groups},
                 {"rotary_interleaved", &a->interleaved}};
    int rc = 0;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0] && rc == 0; i++)
        rc = lf_hf_get_bool(r, flags[i].name, flags[i].to, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "num_query_groups", &a->n_groups, err);
    if (rc == 0)
        rc = lf_hf_get_f64(r, "rotary_base", &a->base, err);
    return rc != 0 ? rc : lf_hf_get_f64(r, "rotary_percent", &a->percent, err);
}

static int set_position(lf_hf_reader *r, lf_model_config *c, struct args *a, lf_err *err)
{
    const char *type = json_string_value(lf_hf_take(r, "position_embedding_type"));
    if (type && strcmp(type, "rope") == 0)
        a->rope = true;
    else if (type && strcmp(type, "learned_absolute") != 0)
        return lf_fail(err, LF_ENOTSUP, "%s: position_embedding_type = %.40s is not supported",
                       r->path, type);
    if (!a->rope)
        return lf_hf_set(r, c, "position_embedding_type", "position", "learned", err);
    int rc = lf_hf_set(r, c, "position_embedding_type", "position", "rope", err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "rotary_base", "rope_theta", a->base, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "rotary_percent", "rope_fraction", a->percent, err);
    return rc != 0 ? rc
                   : lf_hf_set(r, c, "rotary_interleaved", "rope_interleaved",
                               a->interleaved ? "yes" : "no", err);
}

static int read_megatron(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    struct args a = {.bias = true, .bias_gelu = true, .base = 10000, .percent = 1};
    const char *norm = json_string_value(lf_hf_take(r, "normalization"));
    bool rms = norm && strcmp(norm, "RMSNorm") == 0;
    int rc = read_args(r, &a, err);
    if (rc == 0)
        rc = set_position(r, c, &a, err);
    const char *const set[][3] = {
        {"normalization", "norm", rms ? "rms" : "layer"},
        {"normalization", "norm_bias", rms ? "no" : "yes"},
        {"swiglu", "mlp", a.swiglu ? "glu" : "plain"},
        /* the fused bias-gelu kernel computes the tanh form */
        {"swiglu", "activation",
         a.swiglu                                   ? "silu"
         : a.openai_gelu || (a.bias && a.bias_gelu) ? "gelu_tanh"
                                                    : "gelu"},
        {"add_bias_linear", "out_bias", a.bias ? "yes" : "no"},
        {"add_bias_linear", "mlp_bias", a.bias ? "yes" : "no"},
        {"add_qkv_bias", "qkv_bias", a.bias || a.qkv_bias ? "yes" : "no"},
        {"init_method_std", "init", "residual_scaled"},
    };
    for (size_t i = 0; i < sizeof set / sizeof set[0] && rc == 0; i++)
        rc = lf_hf_set(r, c, set[i][0], set[i][1], set[i][2], err);
    if (rc == 0 && a.groups && a.n_groups > 0)
        rc = lf_hf_set_number(r, c, "num_query_groups", "kv_heads", (double)a.n_groups, err);
    return rc;
}

static const struct lf_map_row rows[] = {
    {"embedding.word_embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"embedding.position_embeddings.weight", LF_MAP_COPY, "pos_embed.weight", NULL},
    {"decoder.layers.{L}.input_layernorm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {"decoder.layers.{L}.self_attention.linear_qkv.{P}", LF_MAP_STACK,
     "groups=kv_heads layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"decoder.layers.{L}.self_attention.q_layernorm.weight", LF_MAP_COPY,
     "layers.{L}.attn.q_norm.weight", NULL},
    {"decoder.layers.{L}.self_attention.k_layernorm.weight", LF_MAP_COPY,
     "layers.{L}.attn.k_norm.weight", NULL},
    {"decoder.layers.{L}.self_attention.linear_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}",
     NULL},
    {"decoder.layers.{L}.pre_mlp_layernorm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}", NULL},
    {"decoder.layers.{L}.mlp.linear_fc1.{P}", LF_MAP_STACK,
     "layers.{L}.mlp.gate.{P} layers.{L}.mlp.up.{P}", "mlp=glu"},
    {"decoder.layers.{L}.mlp.linear_fc1.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", "mlp=plain"},
    {"decoder.layers.{L}.mlp.linear_fc2.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"decoder.final_layernorm.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"output_layer.weight", LF_MAP_COPY, "head.weight", NULL},
    {"output_layer.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"rotary_pos_emb.inv_freq", LF_MAP_IGNORED, "follows from rotary_base", NULL},
    {0},
};

/* Names of one form from those of another, in this order. */
static const struct {
    const char *from, *to;
} forms[] = {
    {"model.", ""},  /* the checkpoint's own level, at the beginning */
    {"module.", ""}, /* wrappers of old versions */
    {"language_model.embedding.", "embedding."},
    {"language_model.encoder.", "decoder."},
    {"language_model.transformer.", "decoder."},
    {"language_model.", ""},
    {"word_embeddings_for_head.weight", "output_layer.weight"},
    {".attention.", ".self_attention."},
    {".self_attention.query_key_value.", ".self_attention.linear_qkv."},
    {".self_attention.dense.", ".self_attention.linear_proj."},
    {".mlp.dense_h_to_4h.", ".mlp.linear_fc1."},
    {".mlp.dense_4h_to_h.", ".mlp.linear_fc2."},
    {".self_attention.linear_qkv.layer_norm_",
     ".input_layernorm."}, /* norms that lie in the layer behind them */
    {".mlp.linear_fc1.layer_norm_", ".pre_mlp_layernorm."},
    {".post_attention_layernorm.", ".pre_mlp_layernorm."},
    {".post_attention_norm.", ".pre_mlp_layernorm."},
    {".input_norm.", ".input_layernorm."},
    {"decoder.final_norm.", "decoder.final_layernorm."},
};

static void canon(char *out, size_t cap, const char *name)
{
    char was[512];
    snprintf(out, cap, "%s", name);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        const char *at = strstr(out, forms[i].from);
        if (!at || (forms[i].from[0] != '.' && at != out))
            continue;
        snprintf(was, sizeof was, "%.*s%s%s", (int)(at - out), out, forms[i].to,
                 at + strlen(forms[i].from));
        snprintf(out, cap, "%s", was);
    }
}

const struct lf_hf_family lf_hf_megatron = {
    .name = "megatron",
    .model_type = "megatron",
    .loose = true,
    .keys = keys,
    .rows = rows,
    .canon = canon,
    .read = read_megatron,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
