/* SPDX-License-Identifier: Apache-2.0
 *
 * GLM-4 as transformers has it (9b, 0414), ChatGLM 2 and 3 (and GLM-4-9B as it was first
 * published), ChatGLM-6B. */
#include <math.h>

#include "engine/base/json.h"
#include "engine/convert/families.h"

/* ---- GLM-4 ---- */

static const char *const glm_switches[] = {
    "norm=rms", "position=rope", "rope_interleaved=yes", "rope_fraction=0.5", "mlp=glu", NULL};
static const char *const glm4_switches[] = {"norm=rms",
                                            "position=rope",
                                            "rope_interleaved=yes",
                                            "rope_fraction=0.5",
                                            "mlp=glu",
                                            "block=sandwich",
                                            NULL};

static const struct lf_hf_key glm_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "2"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1.5625e-07"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias", "true"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {0},
};

static int read_glm(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = 10000, .part = true}, err);
}

/* Rows of the first, then the second; shared by all whose gate and up are one tensor. */
static const struct lf_map_row glm_rows[] = {
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.layers.{L}.input_layernorm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight", NULL},
    {"model.layers.{L}.self_attn.q_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.q.{P}", NULL},
    {"model.layers.{L}.self_attn.k_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.k.{P}", NULL},
    {"model.layers.{L}.self_attn.v_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.v.{P}", NULL},
    {"model.layers.{L}.self_attn.o_proj.weight", LF_MAP_COPY, "layers.{L}.attn.o.weight", NULL},
    {"model.layers.{L}.post_self_attn_layernorm.weight", LF_MAP_COPY,
     "layers.{L}.attn_post_norm.weight", NULL},
    {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight",
     NULL},
    {"model.layers.{L}.post_mlp_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_post_norm.weight",
     NULL},
    {"model.layers.{L}.mlp.gate_up_proj.weight", LF_MAP_STACK,
     "layers.{L}.mlp.gate.weight layers.{L}.mlp.up.weight", NULL},
    {"model.layers.{L}.mlp.down_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight", NULL},
    {"model.norm.weight", LF_MAP_COPY, "final_norm.weight", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

const struct lf_hf_family lf_hf_glm = {
    .name = "glm",
    .also = "glm4-9b",
    .model_type = "glm",
    .architecture = "GlmForCausalLM",
    .classifier = "GlmForSequenceClassification",
    .prefix = "model.",
    .switches = glm_switches,
    .keys = glm_keys,
    .rows = glm_rows,
    .read = read_glm,
    .write = lf_hf_write_partial_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

const struct lf_hf_family lf_hf_glm4 = {
    .name = "glm4",
    .also = "glm4-0414",
    .model_type = "glm4",
    .architecture = "Glm4ForCausalLM",
    .classifier = "Glm4ForSequenceClassification",
    .prefix = "model.",
    .switches = glm4_switches,
    .keys = glm_keys,
    .rows = glm_rows,
    .read = read_glm,
    .write = lf_hf_write_partial_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- ChatGLM 2 and 3 ---- */

static const char *const chatglm_switches[] = {"norm=rms",
                                               "position=rope",
                                               "rope_interleaved=yes",
                                               "rope_fraction=0.5",
                                               "activation=silu",
                                               "mlp=glu",
                                               NULL};

static const struct lf_hf_key chatglm_keys[] = {
    {"padded_vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"vocab_size", LF_HF_INERT, NULL, NULL}, /* without the padding */
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"ffn_hidden_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_hidden_layers", LF_HF_INERT, NULL, NULL}, /* the same number */
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"kv_channels", LF_HF_NUMBER, "head_dim", "128"},
    {"multi_query_attention", LF_HF_SAME, NULL, "true"},
    {"multi_query_group_num", LF_HF_NUMBER, "kv_heads", NULL},
    {"seq_length", LF_HF_NUMBER, "max_positions", "2048"},
    {"layernorm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"add_bias_linear", LF_HF_BOOL, "out_bias mlp_bias", "false"},
    {"add_qkv_bias", LF_HF_BOOL, "qkv_bias", "false"},
    {"hidden_dropout", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"rmsnorm", LF_HF_SAME, NULL, "true"},
    {"post_layer_norm", LF_HF_SAME, NULL, "true"}, /* a norm after the last layer */
    {"apply_residual_connection_post_layernorm", LF_HF_SAME, NULL, "false"},
    {"original_rope", LF_HF_SAME, NULL, "true"},
    {"quantization_bit", LF_HF_SAME, NULL, "0"},
    {"pre_seq_len", LF_HF_SAME, NULL,
     "null"}, /* prompt tuning; for the published code 0 is not none */
    {"prefix_projection", LF_HF_INERT, NULL, NULL}, /* of pre_seq_len */
    {"apply_query_key_layer_scaling", LF_HF_INERT, NULL,
     "true"}, /* cancels; precision and speed of the reference, here and below */
    {"attention_softmax_in_fp32", LF_HF_INERT, NULL, "true"},
    {"bias_dropout_fusion", LF_HF_INERT, NULL, "true"},
    {"classifier_dropout", LF_HF_INERT, NULL, NULL},
    {"interleaved_qkv", LF_HF_SAME, NULL, "false"},
    {0},
};

/* rope_ratio multiplies the base. A bias on all linears is one on q, k and v too. */
static int read_chatglm(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    double ratio = 1;
    int rc = lf_hf_get_f64(r, "rope_ratio", &ratio, err);
    if (rc == 0 && c->out_bias)
        rc = lf_hf_set(r, c, "add_bias_linear", "qkv_bias", "yes", err);
    return rc != 0 ? rc : lf_hf_set_number(r, c, "rope_ratio", "rope_theta", 10000 * ratio, err);
}

static int write_chatglm(const lf_model_config *c, json_t *o, lf_err *err)
{
    double ratio = c->rope_theta / 10000;
    bool whole = fabs(ratio - round(ratio)) <= 0;
    if (json_object_set_new(o, "rope_ratio",
                            whole ? json_integer((json_int_t)ratio) : json_real(ratio)) ||
        json_object_set_new(o, "num_hidden_layers", json_integer(c->layers)))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return 0;
}

static const struct lf_map_row chatglm_rows[] = {
    {"transformer.embedding.word_embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"transformer.encoder.layers.{L}.input_layernorm.weight", LF_MAP_COPY,
     "layers.{L}.attn_norm.weight", NULL},
    {"transformer.encoder.layers.{L}.self_attention.query_key_value.{P}", LF_MAP_STACK,
     "layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"transformer.encoder.layers.{L}.self_attention.dense.{P}", LF_MAP_COPY,
     "layers.{L}.attn.o.{P}", NULL},
    {"transformer.encoder.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY,
     "layers.{L}.mlp_norm.weight", NULL},
    {"transformer.encoder.layers.{L}.mlp.dense_h_to_4h.{P}", LF_MAP_STACK,
     "layers.{L}.mlp.gate.{P} layers.{L}.mlp.up.{P}", NULL},
    {"transformer.encoder.layers.{L}.mlp.dense_4h_to_h.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}",
     NULL},
    {"transformer.encoder.final_layernorm.weight", LF_MAP_COPY, "final_norm.weight", NULL},
    {"transformer.output_layer.weight", LF_MAP_COPY, "head.weight", NULL},
    {"transformer.output_layer.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"transformer.rotary_pos_emb.inv_freq", LF_MAP_IGNORED, "follows from rope_ratio", NULL},
    {0},
};

const struct lf_hf_family lf_hf_chatglm = {
    .name = "chatglm3",
    .also = "chatglm2 glm4-9b-chat",
    .model_type = "chatglm",
    .needs = "multi_query_group_num",
    .architecture = "ChatGLMModel",
    .prefix = "transformer.",
    .switches = chatglm_switches,
    .keys = chatglm_keys,
    .rows = chatglm_rows,
    .read = read_chatglm,
    .write = write_chatglm,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- ChatGLM-6B ---- */

static const char *const chatglm6b_switches[] = {
    "norm=layer",   "norm_bias=yes",    "position=rope2d",      "mask=prefix",
    "block=alpha",  "mlp=plain",        "qkv_bias=yes",         "out_bias=yes",
    "mlp_bias=yes", "rope_theta=10000", "activation=gelu_tanh", NULL};

static const struct lf_hf_key chatglm6b_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"num_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"max_sequence_length", LF_HF_NUMBER, "max_positions", "2048"},
    {"layernorm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"inner_hidden_size", LF_HF_NUMBER, "ffn", NULL},
    {"position_encoding_2d", LF_HF_SAME, NULL, "true"},
    {"quantization_bit", LF_HF_SAME, NULL, "0"},
    {"pre_seq_len", LF_HF_SAME, NULL,
     "null"}, /* prompt tuning; for the published code 0 is not none */
    {"prefix_projection", LF_HF_INERT, NULL, NULL}, /* of pre_seq_len */
    {0},
};

static const struct lf_map_row chatglm6b_rows[] = {
    {"transformer.word_embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"transformer.layers.{L}.input_layernorm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {"transformer.layers.{L}.attention.query_key_value.{P}", LF_MAP_STACK,
     "groups=kv_heads layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"transformer.layers.{L}.attention.dense.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"transformer.layers.{L}.post_attention_layernorm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}",
     NULL},
    {"transformer.layers.{L}.mlp.dense_h_to_4h.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"transformer.layers.{L}.mlp.dense_4h_to_h.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"transformer.final_layernorm.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"transformer.layers.{L}.attention.rotary_emb.inv_freq", LF_MAP_IGNORED,
     "theta is always 10000", NULL},
    {0},
};

const struct lf_hf_family lf_hf_chatglm6b = {
    .name = "chatglm-6b",
    .also = "chatglm",
    .model_type = "chatglm",
    .needs = "position_encoding_2d",
    .architecture = "ChatGLMModel",
    .prefix = "transformer.",
    .switches = chatglm6b_switches,
    .keys = chatglm6b_keys,
    .rows = chatglm6b_rows,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
