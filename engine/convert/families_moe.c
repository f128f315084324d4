/* SPDX-License-Identifier: Apache-2.0
 *
 * With experts: Mixtral, DeepSeek v1 (the dense one is a Llama). Those of Qwen are in
 * families_qwen.c. */
#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

/* ---- Mixtral ---- */

static const char *const mixtral_switches[] = {
    "norm=rms", "position=rope", "mlp=glu", "router_score=softmax", "router_renorm=yes", NULL};

static const struct lf_hf_key mixtral_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn expert_ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"sliding_window", LF_HF_NUMBER, "sliding_window", "null"},
    {"num_local_experts", LF_HF_NUMBER, "experts", "8"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "2"},
    {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.001"},
    {"router_jitter_noise", LF_HF_SAME, NULL, "0.0"},
    {"output_router_logits", LF_HF_INERT, NULL,
     NULL}, /* whether the reference adds the auxiliary loss by itself */
    {0},
};

static int read_mixtral(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 1000000, err);
}

static const struct lf_map_row mixtral_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_HEAD_ROWS,
    {"model.layers.{L}.block_sparse_moe.gate.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight",
     NULL},
    {"model.layers.{L}.block_sparse_moe.experts.{E}.w1.weight", LF_MAP_EXPERT,
     "layers.{L}.moe.experts.gate.weight", NULL},
    {"model.layers.{L}.block_sparse_moe.experts.{E}.w3.weight", LF_MAP_EXPERT,
     "layers.{L}.moe.experts.up.weight", NULL},
    {"model.layers.{L}.block_sparse_moe.experts.{E}.w2.weight", LF_MAP_EXPERT,
     "layers.{L}.moe.experts.down.weight", NULL},
    {0},
};

const struct lf_hf_family lf_hf_mixtral = {
    .name = "mixtral",
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .classifier = "MixtralForSequenceClassification",
    .prefix = "model.",
    .switches = mixtral_switches,
    .keys = mixtral_keys,
    .rows = mixtral_rows,
    .read = read_mixtral,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- DeepSeek v1 ---- */

static const char *const deepseek_switches[] = {
    "norm=rms", "position=rope", "mlp=glu", "router_score=softmax", "shared_gate=no", NULL};

static const struct lf_hf_key deepseek_keys[] = {
    KIN_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"n_routed_experts", LF_HF_NUMBER, "experts", NULL},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", NULL},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", NULL},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "false"},
    {"aux_loss_alpha", LF_HF_NUMBER, "router_aux", "0.001"},
    {"moe_layer_freq", LF_HF_SAME, NULL, "1"},
    {"scoring_func", LF_HF_SAME, NULL, "\"softmax\""},
    {"seq_aux", LF_HF_INERT, NULL, NULL}, /* over what the auxiliary loss of training is balanced */
    {0},
};

int lf_hf_read_shared(lf_hf_reader *r, lf_model_config *c, const char *key, int64_t def,
                      lf_err *err)
{
    int64_t shared = def;
    int rc = lf_hf_get_i64(r, key, &shared, err);
    return rc != 0 ? rc
                   : lf_hf_set_number(r, c, key, "shared_ffn",
                                      (double)shared * (double)c->expert_ffn, err);
}

int lf_hf_write_shared(const lf_model_config *c, json_t *o, const char *key, json_t *none,
                       lf_err *err)
{
    const int64_t n = c->expert_ffn > 0 ? c->shared_ffn / c->expert_ffn : 0;
    json_t *v = n > 0 ? json_integer(n) : json_incref(none);
    json_decref(none);
    if (c->expert_ffn < 1 || c->shared_ffn % c->expert_ffn) {
        json_decref(v);
        return lf_fail(err, LF_EINVAL, "shared_ffn = %lld is no multiple of expert_ffn = %lld",
                       (long long)c->shared_ffn, (long long)c->expert_ffn);
    }
    return json_object_set_new(o, key, v) ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static int read_deepseek(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_shared(r, c, "n_shared_experts", 0, err);
    rc = rc != 0 ? rc : lf_hf_read_dense_layers(r, c, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_deepseek(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_shared(c, o, "n_shared_experts", json_null(), err);
    rc = rc != 0 ? rc : lf_hf_write_dense_layers(c, o, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row deepseek_rows[] = {
    KIN_ATTENTION_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, KIN_EXPERT_ROWS, KIN_SHARED_ROWS, {0},
};

const struct lf_hf_family lf_hf_deepseek = {
    .name = "deepseek-moe",
    .model_type = "deepseek",
    .architecture = "DeepseekForCausalLM",
    .prefix = "model.",
    .switches = deepseek_switches,
    .keys = deepseek_keys,
    .rows = deepseek_rows,
    .read = read_deepseek,
    .write = write_deepseek,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
