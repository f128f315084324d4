/* SPDX-License-Identifier: Apache-2.0
 *
 * StarCoder (GPT-2's shape with one key head and linear layers) and StarCoder 2 (rotary, groups,
 * biases everywhere). */
#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

/* ---- StarCoder ---- */

static const char *const bigcode_switches[] = {
    "norm=layer",   "norm_bias=yes", "position=learned",     "mlp=plain", "qkv_bias=yes",
    "out_bias=yes", "mlp_bias=yes",  "init=residual_scaled", NULL};

static const struct lf_hf_key bigcode_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"n_positions", LF_HF_NUMBER, "max_positions", "1024"},
    {"n_embd", LF_HF_NUMBER, "hidden", NULL},
    {"n_layer", LF_HF_NUMBER, "layers", NULL},
    {"n_head", LF_HF_NUMBER, "heads", NULL},
    {"activation_function", LF_HF_ACT, "activation", "\"gelu_pytorch_tanh\""},
    {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"resid_pdrop", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0.1"},
    {"embd_pdrop", LF_HF_NUMBER, "embed_dropout", "0.1"},
    {"attn_pdrop", LF_HF_NUMBER, "attn_prob_dropout", "0.1"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"scale_attn_weights", LF_HF_SAME, NULL, "true"},
    {"attention_softmax_in_fp32", LF_HF_INERT, NULL,
     NULL}, /* precision and batching of the reference, here and below */
    {"scale_attention_softmax_in_fp32", LF_HF_INERT, NULL, NULL},
    {"inference_runner", LF_HF_INERT, NULL, NULL},
    {"runner_max_sequence_length", LF_HF_INERT, NULL, NULL},
    {"max_batch_size", LF_HF_INERT, NULL, NULL},
    {"max_sequence_length", LF_HF_INERT, NULL, NULL},
    {"pad_key_length", LF_HF_INERT, NULL, NULL},
    {"pre_allocate_kv_cache", LF_HF_INERT, NULL, NULL},
    {"validate_runner_input", LF_HF_INERT, NULL, NULL},
    {"num_key_value_heads", LF_HF_INERT, NULL, NULL}, /* multi_query says it */
    {"summary_type", LF_HF_INERT, NULL, NULL},
    {"summary_use_proj", LF_HF_INERT, NULL, NULL},
    {"summary_activation", LF_HF_INERT, NULL, NULL},
    {"summary_proj_to_labels", LF_HF_INERT, NULL, NULL},
    {"summary_first_dropout", LF_HF_INERT, NULL, NULL},
    {0},
};

static int read_bigcode(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool one = true;
    int64_t ffn = 4 * c->hidden;
    int rc = lf_hf_get_bool(r, "multi_query", &one, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "multi_query", "kv_heads", (double)(one ? 1 : c->heads), err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "n_inner", &ffn, err);
    return rc != 0 ? rc : lf_hf_set_number(r, c, "n_inner", "ffn", (double)ffn, err);
}

static int write_bigcode(const lf_model_config *c, json_t *o, lf_err *err)
{
    int bad = json_object_set_new(o, "n_inner", json_integer(c->ffn)) ||
              json_object_set_new(o, "multi_query", json_boolean(c->kv_heads == 1));
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static const struct lf_map_row bigcode_rows[] = {
    {"transformer.wte.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"transformer.wpe.weight", LF_MAP_COPY, "pos_embed.weight", NULL},
    {"transformer.h.{L}.ln_1.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {"transformer.h.{L}.attn.c_attn.{P}", LF_MAP_STACK,
     "groups=kv_heads layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"transformer.h.{L}.attn.c_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"transformer.h.{L}.ln_2.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}", NULL},
    {"transformer.h.{L}.mlp.c_fc.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"transformer.h.{L}.mlp.c_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"transformer.ln_f.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"transformer.h.{L}.attn.bias", LF_MAP_IGNORED, "the causal mask", NULL},
    {"transformer.h.{L}.attn.masked_bias", LF_MAP_IGNORED, "the value behind the causal mask",
     NULL},
    {0},
};

const struct lf_hf_family lf_hf_bigcode = {
    .name = "starcoder",
    .also = "gpt_bigcode",
    .model_type = "gpt_bigcode",
    .architecture = "GPTBigCodeForCausalLM",
    .classifier = "GPTBigCodeForSequenceClassification",
    .prefix = "transformer.",
    .switches = bigcode_switches,
    .keys = bigcode_keys,
    .rows = bigcode_rows,
    .read = read_bigcode,
    .write = write_bigcode,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- StarCoder 2 ---- */

static const char *const starcoder2_switches[] = {"norm=layer", "norm_bias=yes", "position=rope",
                                                  "mlp=plain", NULL};

static const struct lf_hf_key starcoder2_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "2"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "4096"},
    {"hidden_act", LF_HF_ACT, "activation", "\"gelu_pytorch_tanh\""},
    {"norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"use_bias", LF_HF_BOOL, "qkv_bias out_bias mlp_bias", "true"},
    {"sliding_window", LF_HF_NUMBER, "sliding_window", "null"},
    {"residual_dropout", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0"},
    {"embedding_dropout", LF_HF_NUMBER, "embed_dropout", "0"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.018042"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"norm_type", LF_HF_SAME, NULL, "\"layer_norm\""},
    {"mlp_type", LF_HF_SAME, NULL, "\"default\""},
    {"activation_function", LF_HF_INERT, NULL, NULL}, /* left over from StarCoder, here and below */
    {"layer_norm_epsilon", LF_HF_INERT, NULL, NULL},
    {"scale_attn_weights", LF_HF_INERT, NULL, NULL},
    {"attention_softmax_in_fp32", LF_HF_INERT, NULL, NULL},
    {"scale_attention_softmax_in_fp32", LF_HF_INERT, NULL, NULL},
    {0},
};

static int read_starcoder2(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 10000, err);
}

static const struct lf_map_row starcoder2_rows[] = {
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.layers.{L}.input_layernorm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    KIN_QKVO_ROWS,
    {"model.layers.{L}.post_attention_layernorm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}", NULL},
    {"model.layers.{L}.mlp.c_fc.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"model.layers.{L}.mlp.c_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"model.norm.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

const struct lf_hf_family lf_hf_starcoder2 = {
    .name = "starcoder2",
    .model_type = "starcoder2",
    .architecture = "Starcoder2ForCausalLM",
    .classifier = "Starcoder2ForSequenceClassification",
    .prefix = "model.",
    .switches = starcoder2_switches,
    .keys = starcoder2_keys,
    .rows = starcoder2_rows,
    .read = read_starcoder2,
    .write = lf_hf_write_rope,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
