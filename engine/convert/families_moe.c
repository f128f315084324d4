/* SPDX-License-Identifier: Apache-2.0
 *
 * With experts: Mixtral, DeepSeek v1 (the dense one is a Llama), GLM-4.5 to 4.7, ERNIE 4.5,
 * MiniMax-M2. Those of Qwen are in families_qwen.c. */
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
    KIN_ATTENTION_ROWS, KIN_HEAD_ROWS, MIXTRAL_EXPERT_ROWS, {0}};

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
    if (!none && c->shared_ffn < 1)
        return lf_fail(err, LF_EINVAL, "shared_ffn = 0: a layer of this type has a shared expert");
    json_t *v = n > 0 ? json_integer(n) : json_incref(none);
    json_decref(none);
    if (c->expert_ffn < 1 || c->shared_ffn % c->expert_ffn) {
        json_decref(v);
        return lf_fail(err, LF_EINVAL, "shared_ffn = %lld is no multiple of expert_ffn = %lld",
                       (long long)c->shared_ffn, (long long)c->expert_ffn);
    }
    return json_object_set_new(o, key, v) ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

int lf_hf_read_deepseek(lf_hf_reader *r, lf_model_config *c, int64_t shared, int64_t dense,
                        lf_err *err)
{
    int rc = lf_hf_read_shared(r, c, "n_shared_experts", shared, err);
    return rc != 0 ? rc : lf_hf_read_dense_layers(r, c, "first_k_dense_replace", dense, err);
}

int lf_hf_write_deepseek(const lf_model_config *c, json_t *o, json_t *none, lf_err *err)
{
    int rc = lf_hf_write_shared(c, o, "n_shared_experts", none, err);
    return rc != 0 ? rc : lf_hf_write_dense_layers(c, o, "first_k_dense_replace", err);
}

static int read_deepseek(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_deepseek(r, c, 0, 0, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_deepseek(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_deepseek(c, o, json_null(), err);
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

/* ---- GLM-4.5, 4.6 and 4.7 ---- */

/* Halves of the turned part are pairs here, and not neighbours as in GLM-4. */
static const char *const glm_moe_switches[] = {"norm=rms",
                                               "position=rope",
                                               "rope_fraction=0.5",
                                               "mlp=glu",
                                               "router_score=sigmoid",
                                               "router_bias=yes",
                                               "shared_gate=no",
                                               NULL};

static const struct lf_hf_key glm_moe_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"use_qk_norm", LF_HF_BOOL, "qk_norm", "false"},
    {"n_routed_experts|num_local_experts", LF_HF_NUMBER, "experts", "128"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "8"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "1408"},
    {"n_group", LF_HF_NUMBER, "router_groups", "1"},
    {"topk_group", LF_HF_NUMBER, "router_top_groups", "1"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"routed_scaling_factor", LF_HF_NUMBER, "router_scale", "1"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"num_nextn_predict_layers|num_mtp_layers", LF_HF_NUMBER, "mtp_layers", "0"},
    {0},
};

static int read_glm_moe(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_deepseek(r, c, 1, 1, err);
    return rc != 0
               ? rc
               : lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = 10000, .part = true}, err);
}

static int write_glm_moe(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_deepseek(c, o, NULL, err);
    return rc != 0 ? rc : lf_hf_write_partial_rope(c, o, err);
}

static const struct lf_map_row glm_moe_rows[] = {
    KIN_ATTENTION_ROWS, KIN_QK_NORM_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, KIN_V3_ROWS, {0},
};

const struct lf_hf_family lf_hf_glm_moe = {
    .name = "glm4.5",
    .also = "glm4.6 glm4.7",
    .model_type = "glm4_moe",
    .architecture = "Glm4MoeForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = glm_moe_switches,
    .keys = glm_moe_keys,
    .rows = glm_moe_rows,
    .heads_are_layers = true,
    .read = read_glm_moe,
    .write = write_glm_moe,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- ERNIE 4.5 with experts ---- */

static const char *const ernie_moe_switches[] = {
    "norm=rms",          "position=rope",        "rope_interleaved=yes",
    "mlp=glu",           "router_score=softmax", "router_bias=yes",
    "router_renorm=yes", "shared_gate=no",       NULL};

static const struct lf_hf_key ernie_moe_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "4"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"use_bias", LF_HF_SAME, NULL, "false"}, /* experts would have one */
    {"moe_num_experts|num_experts", LF_HF_NUMBER, "experts", "64"},
    {"moe_k|num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "6"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "1536"},
    {"moe_norm_min", LF_HF_SAME, NULL, "1e-12"}, /* below any sum of chosen scores */
    {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.001"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"moe_capacity", LF_HF_INERT, NULL, NULL}, /* of the authors' training, here and below */
    {"moe_gate", LF_HF_UNREAD, NULL, "\"topk\""},
    {"moe_use_aux_free", LF_HF_UNREAD, NULL, "true"},
    {"num_nextn_predict_layers", LF_HF_NUMBER, "mtp_layers", "0"},
    {0},
};

/* Layers from one number to another have experts, in every model that is known to the last one. */
static int read_ernie_layers(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t first = 1, last = -1, step = 1;
    int rc = lf_hf_get_i64(r, "moe_layer_start_index", &first, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "moe_layer_end_index", &last, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "moe_layer_interval", &step, err);
    if (rc == 0 &&
        (step != 1 || (last != -1 && last != c->layers - 1) || first < 0 || first >= c->layers))
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: moe_layer_start_index, moe_layer_end_index and moe_layer_interval = "
                     "%lld, %lld, %lld: what is imported has experts in all layers from the first "
                     "to the last, which is %lld",
                     r->path, (long long)first, (long long)last, (long long)step,
                     (long long)c->layers - 1);
    return rc != 0 ? rc : lf_hf_read_dense_layers(r, c, "moe_layer_start_index", first, err);
}

static int read_ernie_moe(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = read_ernie_layers(r, c, err);
    rc = rc != 0 ? rc : lf_hf_read_shared(r, c, "moe_num_shared_experts", 2, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 500000, err);
}

static int write_ernie_moe(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_shared(c, o, "moe_num_shared_experts", json_integer(0), err);
    rc = rc != 0 ? rc : lf_hf_write_dense_layers(c, o, "moe_layer_start_index", err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

/* Heads for later tokens: their layers have no experts, and the norm behind them is the model's. */
#define ERNIE_HEAD(outside, ours)                                                                  \
    {                                                                                              \
        "model.mtp_" outside, LF_MAP_COPY, "layers.{H}." ours, NULL                                \
    }

/* The bias that chooses is a row by itself, beside the router. */
static const struct lf_map_row ernie_moe_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    KIN_EXPERT_ROWS,
    KIN_SHARED_ROWS,
    {"model.layers.{L}.mlp.moe_statics.e_score_correction_bias", LF_MAP_LEAD,
     "layers.{L}.moe.router.bias", NULL},
    ERNIE_HEAD("emb_norm.{M}.weight", "mtp.embed_norm.weight"),
    ERNIE_HEAD("hidden_norm.{M}.weight", "mtp.hidden_norm.weight"),
    ERNIE_HEAD("linear_proj.{M}.weight", "mtp.join.weight"),
    ERNIE_HEAD("block.{M}.input_layernorm.weight", "attn_norm.weight"),
    ERNIE_HEAD("block.{M}.self_attn.q_proj.weight", "attn.q.weight"),
    ERNIE_HEAD("block.{M}.self_attn.k_proj.weight", "attn.k.weight"),
    ERNIE_HEAD("block.{M}.self_attn.v_proj.weight", "attn.v.weight"),
    ERNIE_HEAD("block.{M}.self_attn.o_proj.weight", "attn.o.weight"),
    ERNIE_HEAD("block.{M}.post_attention_layernorm.weight", "mlp_norm.weight"),
    ERNIE_HEAD("block.{M}.mlp.gate_proj.weight", "mlp.gate.weight"),
    ERNIE_HEAD("block.{M}.mlp.up_proj.weight", "mlp.up.weight"),
    ERNIE_HEAD("block.{M}.mlp.down_proj.weight", "mlp.down.weight"),
    {"model.mtp_", LF_MAP_LEFT_OUT, KIN_MTP, "mtp_layers=0"},
    {0},
};

const struct lf_hf_family lf_hf_ernie_moe = {
    .name = "ernie4.5-moe",
    .model_type = "ernie4_5_moe",
    .architecture = "Ernie4_5_MoeForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = ernie_moe_switches,
    .keys = ernie_moe_keys,
    .rows = ernie_moe_rows,
    .mtp_mlp = LF_MTP_MLP_DENSE,
    .mtp_norm = LF_MTP_NORM_FINAL,
    .read = read_ernie_moe,
    .write = write_ernie_moe,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- MiniMax-M2 ---- */

static const char *const minimax_switches[] = {
    "norm=rms",        "position=rope",         "mlp=glu",
    "qk_norm=yes",     "qk_norm_all_heads=yes", "router_score=sigmoid",
    "router_bias=yes", "router_renorm=yes",     NULL};

static const struct lf_hf_key minimax_keys[] = {
    KIN_KEYS,
    {"intermediate_size", LF_HF_NUMBER, "expert_ffn", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "196608"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"num_local_experts|num_experts", LF_HF_NUMBER, "experts", "256"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "8"},
    {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.001"},
    {"router_jitter_noise", LF_HF_SAME, NULL, "0.0"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"scoring_func", LF_HF_UNREAD, NULL, "\"sigmoid\""}, /* of published files, from here on */
    {"use_routing_bias", LF_HF_UNREAD, NULL, "true"},
    {"use_qk_norm", LF_HF_UNREAD, NULL, "true"},
    {"qk_norm_type", LF_HF_UNREAD, NULL, "\"per_layer\""},
    {"shared_intermediate_size", LF_HF_UNREAD, NULL, "0"},
    {"attn_type_list", LF_HF_INERT, NULL, NULL}, /* full attention, in all that have the type */
    {"use_mtp", LF_HF_INERT, NULL, NULL},
    {"num_mtp_modules", LF_HF_INERT, NULL, NULL},
    {"mtp_transformer_layers", LF_HF_INERT, NULL, NULL},
    {0},
};

/* How many channels of a head turn, where partial_rotary_factor does not say it. */
static int read_minimax(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const int64_t all = lf_hf_head_dim(c);
    int64_t turned = all;
    int rc = lf_hf_get_i64(r, "rotary_dim", &turned, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "rotary_dim", "rope_fraction", (double)turned / (double)all,
                              err);
    return rc != 0 ? rc
                   : lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = 5000000, .part = true},
                                        err);
}

static int write_minimax(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (json_object_set_new(o, "rotary_dim", json_integer(lf_model_rope_dim(c))))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return lf_hf_write_partial_rope(c, o, err);
}

static const struct lf_map_row minimax_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_QK_NORM_ROWS,
    KIN_HEAD_ROWS,
    MIXTRAL_EXPERT_ROWS,
    {"model.layers.{L}.block_sparse_moe.e_score_correction_bias", LF_MAP_COPY,
     "layers.{L}.moe.router.bias", NULL},
    {0},
};

const struct lf_hf_family lf_hf_minimax = {
    .name = "minimax-m2",
    .model_type = "minimax_m2",
    .architecture = "MiniMaxM2ForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = minimax_switches,
    .keys = minimax_keys,
    .rows = minimax_rows,
    .read = read_minimax,
    .write = write_minimax,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
