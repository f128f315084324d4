/* SPDX-License-Identifier: Apache-2.0
 *
 * Hunyuan with and without experts: queries and keys are normalised behind the rotary positions. */
#include <math.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

static const char *const switches[] = {"norm=rms",    "position=rope",          "mlp=glu",
                                       "qk_norm=yes", "qk_norm_after_rope=yes", NULL};
static const char *const moe_switches[] = {
    "norm=rms",          "position=rope",          "mlp=glu",
    "qk_norm=yes",       "qk_norm_after_rope=yes", "router_score=softmax",
    "router_renorm=yes", "shared_gate=no",         NULL};

#define HUNYUAN_KEYS                                                                               \
    KIN_SIZES, {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},                                 \
        {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},                                 \
        {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},                                 \
        {"head_dim", LF_HF_NUMBER, "head_dim", "null"},                                            \
        {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},                        \
        {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},                              \
        {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},                             \
        {"eod_token_id", LF_HF_INERT, NULL,                                                        \
         NULL}, /* of files that were published, from here on */                                   \
        {"attention_head_dim", LF_HF_INERT, NULL, NULL},                                           \
        {"org_vocab_size", LF_HF_INERT, NULL, NULL}, {"use_cla", LF_HF_UNREAD, NULL, "false"},     \
        {"use_qk_norm", LF_HF_UNREAD, NULL, "true"}, {"mlp_bias", LF_HF_UNREAD, NULL, "false"},    \
        {"norm_type", LF_HF_UNREAD, NULL, "\"rms\""},                                              \
        {"use_rotary_pos_emb", LF_HF_UNREAD, NULL, "true"},                                        \
    {                                                                                              \
        "position_embedding_xdrope", LF_HF_UNREAD, NULL, "false"                                   \
    }

static const struct lf_hf_key hunyuan_keys[] = {HUNYUAN_KEYS, {0}};

static const struct lf_hf_key hunyuan_moe_keys[] = {
    HUNYUAN_KEYS,
    {"intermediate_size", LF_HF_NUMBER, "expert_ffn shared_ffn", NULL},
    {"num_experts|num_local_experts", LF_HF_NUMBER, "experts", "1"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"use_mixed_mlp_moe", LF_HF_UNREAD, NULL, "true"},
    {"moe_drop_tokens", LF_HF_UNREAD, NULL, "false"},
    {"moe_layer_num_skipped", LF_HF_UNREAD, NULL, "0"},
    {"routed_scaling_factor", LF_HF_UNREAD, NULL, "false"},
    {"norm_topk_prob", LF_HF_UNREAD, NULL, "true"},
    {0},
};

/* "dynamic" with an alpha is a larger base once and for all: theta alpha^(D / (D - 2)). Its other
 * members are those of another rule, which the class does not read then. */
static int read_alpha(lf_hf_reader *r, lf_model_config *c, bool *found, lf_err *err)
{
    json_t *s = json_object_get(r->o, "rope_parameters");
    s = json_is_object(s) ? s : json_object_get(r->o, "rope_scaling");
    const char *type = json_string_value(json_object_get(s, "rope_type"));
    type = type ? type : json_string_value(json_object_get(s, "type"));
    const double alpha = json_number_value(json_object_get(s, "alpha")),
                 d = (double)lf_hf_head_dim(c);
    double theta = 10000;
    json_t *inside = json_object_get(s, "rope_theta");
    *found = type && strcmp(type, "dynamic") == 0 && alpha > 0;
    int rc = *found ? lf_hf_get_f64(r, "rope_theta", &theta, err) : 0;
    if (rc != 0 || !*found)
        return rc;
    (void)lf_hf_take(r, "rope_parameters");
    (void)lf_hf_take(r, "rope_scaling");
    theta = json_is_number(inside) ? json_number_value(inside) : theta;
    return lf_hf_set_number(r, c, "alpha", "rope_theta", theta * pow(alpha, d / (d - 2)), err);
}

static int read_hunyuan(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool found = false;
    int rc = read_alpha(r, c, &found, err);
    return rc != 0 || found ? rc : lf_hf_read_rope(r, c, 10000, err);
}

/* One number for all layers, which files may say for each. */
static int read_topk(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *v = lf_hf_take(r, "moe_topk"), *first = json_is_array(v) ? json_array_get(v, 0) : v;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (!json_equal(json_array_get(v, i), first))
            return lf_fail(err, LF_ENOTSUP, "%s: moe_topk is not the same in all layers", r->path);
    if (!v)
        v = lf_hf_take(r, "num_experts_per_tok"), first = v;
    if (v && !json_is_integer(first))
        return lf_fail(err, LF_EFORMAT, "%s: moe_topk is no whole number", r->path);
    return lf_hf_set_number(r, c, "moe_topk", "experts_per_token",
                            v ? (double)json_integer_value(first) : 1, err);
}

/* Lists of files that were published, which the class does not read: what they say must be so. */
static int check_list(lf_hf_reader *r, const char *key, int64_t must, lf_err *err)
{
    json_t *v = lf_hf_take(r, key);
    const size_t n = json_is_array(v) ? json_array_size(v) : v ? 1 : 0;
    for (size_t i = 0; i < n; i++) {
        json_t *x = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(x) || json_integer_value(x) != must)
            return lf_fail(err, LF_ENOTSUP, "%s: %s is not %lld", r->path, key, (long long)must);
    }
    return 0;
}

static int read_hunyuan_moe(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = read_topk(r, c, err);
    rc = rc != 0 ? rc : check_list(r, "num_shared_expert", 1, err);
    rc = rc != 0 ? rc : check_list(r, "moe_intermediate_size", c->expert_ffn, err);
    return rc != 0 ? rc : read_hunyuan(r, c, err);
}

static int write_hunyuan_moe(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (c->shared_ffn != c->expert_ffn)
        return lf_fail(err, LF_EINVAL, "shared_ffn = %lld: the shared expert is as wide as others",
                       (long long)c->shared_ffn);
    if (json_object_set_new(o, "moe_topk", json_integer(c->experts_per_token)))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return lf_hf_write_rope(c, o, err);
}

#define HUNYUAN_NORM_ROWS                                                                          \
    {"model.layers.{L}.self_attn.query_layernorm.weight", LF_MAP_COPY,                             \
     "layers.{L}.attn.q_norm.weight", NULL},                                                       \
    {                                                                                              \
        "model.layers.{L}.self_attn.key_layernorm.weight", LF_MAP_COPY,                            \
            "layers.{L}.attn.k_norm.weight", NULL                                                  \
    }

static const struct lf_map_row hunyuan_rows[] = {
    KIN_ATTENTION_ROWS, HUNYUAN_NORM_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, {0}};

static const struct lf_map_row hunyuan_moe_rows[] = {
    KIN_ATTENTION_ROWS,
    HUNYUAN_NORM_ROWS,
    KIN_HEAD_ROWS,
    {"model.layers.{L}.mlp.gate.wg.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL},
    KIN_EXPERT_MATRICES,
    {"model.layers.{L}.mlp.shared_mlp.gate_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.gate.weight", NULL},
    {"model.layers.{L}.mlp.shared_mlp.up_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.up.weight", NULL},
    {"model.layers.{L}.mlp.shared_mlp.down_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.down.weight", NULL},
    {0},
};

const struct lf_hf_family lf_hf_hunyuan = {
    .name = "hunyuan",
    .model_type = "hunyuan_v1_dense",
    .architecture = "HunYuanDenseV1ForCausalLM",
    .classifier = "HunYuanDenseV1ForSequenceClassification",
    .prefix = "model.",
    .switches = switches,
    .keys = hunyuan_keys,
    .rows = hunyuan_rows,
    .read = read_hunyuan,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

const struct lf_hf_family lf_hf_hunyuan_moe = {
    .name = "hunyuan-moe",
    .model_type = "hunyuan_v1_moe",
    .architecture = "HunYuanMoEV1ForCausalLM",
    .classifier = "HunYuanMoEV1ForSequenceClassification",
    .prefix = "model.",
    .switches = moe_switches,
    .keys = hunyuan_moe_keys,
    .rows = hunyuan_moe_rows,
    .read = read_hunyuan_moe,
    .write = write_hunyuan_moe,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
