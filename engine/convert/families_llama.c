/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama 1 to 3.2, CodeLlama and what has their shape: RMSNorm, rotary positions, gated MLP, q, k
 * and v apart. */
#include "engine/convert/families.h"

#define LLAMA_SWITCHES "norm=rms", "position=rope", "mlp=glu"

static const char *const llama_switches[] = {LLAMA_SWITCHES, NULL};

static const struct lf_hf_key llama_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"max_sequence_length", LF_HF_INERT, NULL, NULL},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"is_llama_config", LF_HF_UNREAD, NULL, "true"}, /* SmolLM2, here and below */
    {"rope_interleaved", LF_HF_UNREAD, NULL, "false"},
    {"activation", LF_HF_UNREAD, NULL, "\"swiglu\""}, /* Falcon 3 */
    {0},
};

static const struct lf_map_row llama_rows[] = {
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.layers.{L}.input_layernorm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight", NULL},
    {"model.layers.{L}.self_attn.q_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.q.{P}", NULL},
    {"model.layers.{L}.self_attn.k_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.k.{P}", NULL},
    {"model.layers.{L}.self_attn.v_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.v.{P}", NULL},
    {"model.layers.{L}.self_attn.o_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight",
     NULL},
    {"model.layers.{L}.mlp.gate_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.gate.{P}", NULL},
    {"model.layers.{L}.mlp.up_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"model.layers.{L}.mlp.down_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"model.norm.weight", LF_MAP_COPY, "final_norm.weight", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"model.layers.{L}.self_attn.rotary_emb.inv_freq", LF_MAP_IGNORED, "follows from rope_theta",
     NULL},
    {0},
};

static int read_llama(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 10000, err);
}

const struct lf_hf_family lf_hf_llama = {
    .name = "llama",
    .also = "llama1 llama2 llama3 llama3.1 llama3.2 codellama yi deepseek deepseek-coder",
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .classifier = "LlamaForSequenceClassification",
    .prefix = "model.",
    .switches = llama_switches,
    .keys = llama_keys,
    .rows = llama_rows,
    .read = read_llama,
    .write = lf_hf_write_rope,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
