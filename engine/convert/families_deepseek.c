/* SPDX-License-Identifier: Apache-2.0
 *
 * DeepSeek with multi-head latent attention: V2, V2-Lite; V3, R1, Moonlight and Kimi K2, which have
 * one class; GLM-4.7-Flash, Youtu-LLM and Mistral 4, which attend like V3; MiniCPM 3. The first
 * generation is in families_llama.c and families_moe.c. */
#include <math.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

/* Defaults of the class: ranks of keys with values and of queries, widths without position and of
 * values. */
#define LATENT_KEYS(kv, q, nope, v)                                                                \
    {"kv_lora_rank", LF_HF_NUMBER, "kv_lora", kv}, {"q_lora_rank", LF_HF_NUMBER, "q_lora", q},     \
        {"qk_nope_head_dim", LF_HF_NUMBER, "nope_dim", nope},                                      \
        {"qk_rope_head_dim", LF_HF_NUMBER, "rope_dim", "64"},                                      \
        {"v_head_dim", LF_HF_NUMBER, "v_dim", v},                                                  \
        {"head_dim", LF_HF_INERT, NULL, NULL}, /* both follow from the others */                   \
        {"qk_head_dim", LF_HF_INERT, NULL, NULL}, {"attention_bias", LF_HF_SAME, NULL, "false"},   \
        {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},                             \
        {"output_router_logits", LF_HF_INERT, NULL, NULL},                                         \
        {"moe_layer_freq", LF_HF_UNREAD, NULL, "1"}, {"ep_size", LF_HF_INERT, NULL, NULL},         \
    { /* the auxiliary loss of the authors' training is over sequences */                          \
        "seq_aux", LF_HF_INERT, NULL, NULL                                                         \
    }

/* ---- V2 ---- */

static const char *const v2_switches[] = {"norm=rms",
                                          "position=rope",
                                          "mlp=glu",
                                          "rope_interleaved=yes",
                                          "router_bias=no",
                                          "router_score=softmax",
                                          "router_renorm=no",
                                          "shared_gate=no",
                                          NULL};

static const struct lf_hf_key v2_keys[] = {
    KIN_KEYS,
    LATENT_KEYS("512", "1536", "128", "128"),
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"mlp_bias", LF_HF_SAME, NULL, "false"},
    {"n_routed_experts", LF_HF_NUMBER, "experts", "64"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", NULL},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "1407"},
    /* published code scales where this is false, the class of transformers always */
    {"norm_topk_prob", LF_HF_SAME, NULL, "false"},
    {"routed_scaling_factor", LF_HF_NUMBER, "router_scale", "1"},
    {"scoring_func", LF_HF_UNREAD, NULL, "\"softmax\""},
    {"aux_loss_alpha", LF_HF_NUMBER, "router_aux", "0"},
    {0},
};

/* n_group and topk_group count where topk_method says so. */
static int read_v2(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t groups = 1, top = 1;
    json_t *method = lf_hf_take(r, "topk_method");
    const char *name = method ? json_string_value(method) : "greedy";
    int rc = lf_hf_get_i64(r, "n_group", &groups, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "topk_group", &top, err);
    if (rc != 0)
        return rc;
    if (!name || (strcmp(name, "greedy") != 0 && strcmp(name, "group_limited_greedy") != 0))
        return lf_fail(err, LF_ENOTSUP,
                       "%s: topk_method is neither greedy nor group_limited_greedy", r->path);
    if (strcmp(name, "greedy") == 0)
        groups = top = 1;
    rc = lf_hf_set_number(r, c, "n_group", "router_groups", (double)groups, err);
    rc = rc != 0 ? rc : lf_hf_set_number(r, c, "topk_group", "router_top_groups", (double)top, err);
    rc = rc != 0 ? rc : lf_hf_read_deepseek(r, c, 2, 0, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_v2(const lf_model_config *c, json_t *o, lf_err *err)
{
    const bool groups = c->router_groups > 1;
    if (json_object_set_new(o, "topk_method",
                            json_string(groups ? "group_limited_greedy" : "greedy")) ||
        json_object_set_new(o, "n_group", json_integer(c->router_groups)) ||
        json_object_set_new(o, "topk_group", json_integer(c->router_top_groups)))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    int rc = lf_hf_write_deepseek(c, o, json_null(), err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row v2_rows[] = {
    LATENT_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, KIN_EXPERT_ROWS, KIN_SHARED_ROWS, {0},
};

const struct lf_hf_family lf_hf_deepseek_v2 = {
    .name = "deepseek-v2",
    .model_type = "deepseek_v2",
    .architecture = "DeepseekV2ForCausalLM",
    .classifier = "DeepseekV2ForSequenceClassification",
    .prefix = "model.",
    .switches = v2_switches,
    .keys = v2_keys,
    .rows = v2_rows,
    .read = read_v2,
    .write = write_v2,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- V3 ---- */

static const char *const v3_switches[] = {"norm=rms",
                                          "position=rope",
                                          "mlp=glu",
                                          "router_bias=yes",
                                          "router_score=sigmoid",
                                          "shared_gate=no",
                                          NULL};

static const struct lf_hf_key v3_keys[] = {
    KIN_KEYS,
    LATENT_KEYS("512", "1536", "128", "128"),
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "4096"},
    {"rope_interleave", LF_HF_BOOL, "rope_interleaved", "true"},
    {"n_routed_experts", LF_HF_NUMBER, "experts", "256"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "8"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "2048"},
    {"n_group", LF_HF_NUMBER, "router_groups", "8"},
    {"topk_group", LF_HF_NUMBER, "router_top_groups", "4"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"routed_scaling_factor", LF_HF_NUMBER, "router_scale", "2.5"},
    {"scoring_func", LF_HF_UNREAD, NULL, "\"sigmoid\""},
    {"topk_method", LF_HF_UNREAD, NULL, "\"noaux_tc\""},
    {"aux_loss_alpha", LF_HF_INERT, NULL, NULL},
    {"num_nextn_predict_layers|num_mtp_layers", LF_HF_NUMBER, "mtp_layers", "0"},
    {0},
};

static int read_v3(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_deepseek(r, c, 1, 3, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_v3(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_deepseek(c, o, NULL, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row v3_rows[] = {
    LATENT_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, KIN_V3_ROWS, {0},
};

const struct lf_hf_family lf_hf_deepseek_v3 = {
    .name = "deepseek-v3",
    .also = "moonlight kimi-k2",
    .model_type = "deepseek_v3 kimi_k2",
    .architecture = "DeepseekV3ForCausalLM",
    .classifier = "DeepseekV3ForSequenceClassification",
    .prefix = "model.",
    .switches = v3_switches,
    .keys = v3_keys,
    .rows = v3_rows,
    .heads_are_layers = true,
    .read = read_v3,
    .write = write_v3,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- GLM-4.7-Flash ---- */

static const struct lf_hf_key glm_lite_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    LATENT_KEYS("512", "768", "192", "256"),
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "20"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "202752"},
    {"rope_interleave", LF_HF_BOOL, "rope_interleaved", "true"},
    {"partial_rotary_factor", LF_HF_UNREAD, NULL, "1.0"}, /* with another one it does not run */
    {"n_routed_experts|num_local_experts", LF_HF_NUMBER, "experts", "64"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "4"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "1536"},
    {"n_group", LF_HF_NUMBER, "router_groups", "1"},
    {"topk_group", LF_HF_NUMBER, "router_top_groups", "1"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"routed_scaling_factor", LF_HF_NUMBER, "router_scale", "1.8"},
    {"topk_method", LF_HF_UNREAD, NULL, "\"noaux_tc\""}, /* of published files, from here on */
    {"scoring_func", LF_HF_UNREAD, NULL, "\"sigmoid\""},
    {"first_k_dense_replace", LF_HF_UNREAD, NULL, "1"}, /* mlp_layer_types says it */
    {"num_nextn_predict_layers|num_mtp_layers", LF_HF_NUMBER, "mtp_layers", "0"},
    {0},
};

static int read_glm_lite(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_shared(r, c, "n_shared_experts", 1, err);
    rc = rc != 0 ? rc : lf_hf_read_mlp_types(r, c, 1, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_glm_lite(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_shared(c, o, "n_shared_experts", NULL, err);
    rc = rc != 0 ? rc : lf_hf_write_mlp_types(c, o, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

const struct lf_hf_family lf_hf_glm_lite = {
    .name = "glm4.7-flash",
    .model_type = "glm4_moe_lite",
    .architecture = "Glm4MoeLiteForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = v3_switches,
    .keys = glm_lite_keys,
    .rows = v3_rows,
    .heads_are_layers = true,
    .read = read_glm_lite,
    .write = write_glm_lite,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Mistral 4 ---- */

static const char *const mistral4_switches[] = {"norm=rms",
                                                "position=rope",
                                                "mlp=glu",
                                                "router_bias=no",
                                                "router_score=softmax",
                                                "shared_gate=no",
                                                NULL};

static const struct lf_hf_key mistral4_keys[] = {
    KIN_KEYS,
    LATENT_KEYS("256", "1024", "64", "128"),
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "32"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "1048576"},
    {"rope_interleave", LF_HF_BOOL, "rope_interleaved", "true"},
    {"n_routed_experts|num_local_experts", LF_HF_NUMBER, "experts", "128"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "4"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "2048"},
    /* a group would be worth its two best experts, not the best as in [model] with softmax */
    {"n_group", LF_HF_SAME, NULL, "1"},
    {"topk_group", LF_HF_SAME, NULL, "1"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"routed_scaling_factor", LF_HF_NUMBER, "router_scale", "1"},
    {0},
};

static int read_mistral4(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_deepseek(r, c, 1, 0, err);
    return rc != 0 ? rc : lf_hf_read_growing_rope(r, c, 10000, err);
}

static int write_mistral4(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_deepseek(c, o, NULL, err);
    return rc != 0 ? rc : lf_hf_write_growing_rope(c, o, err);
}

/* Experts in one tensor each of gate above up, and of down, as the class has them. */
static const struct lf_map_row mistral4_rows[] = {
    LATENT_ROWS,
    KIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    KIN_SHARED_ROWS,
    {"model.layers.{L}.mlp.gate.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL},
    {"model.layers.{L}.mlp.experts.gate_up_proj", LF_MAP_STACK,
     "blocks=experts layers.{L}.moe.experts.gate.weight layers.{L}.moe.experts.up.weight", NULL},
    {"model.layers.{L}.mlp.experts.down_proj", LF_MAP_STACK,
     "blocks=experts layers.{L}.moe.experts.down.weight", NULL},
    {0},
};

const struct lf_hf_family lf_hf_mistral4 = {
    .name = "mistral4",
    .model_type = "mistral4",
    .architecture = "Mistral4ForCausalLM",
    .classifier = "Mistral4ForSequenceClassification",
    .prefix = "model.",
    .switches = mistral4_switches,
    .keys = mistral4_keys,
    .rows = mistral4_rows,
    .read = read_mistral4,
    .write = write_mistral4,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Youtu-LLM ---- */

static const char *const youtu_switches[] = {"norm=rms", "position=rope", "mlp=glu", NULL};

static const struct lf_hf_key youtu_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},
    {"initializer_range", LF_HF_NUMBER, "init_std", "null"},
    {"embedding_initializer_range", LF_HF_INERT, NULL, NULL},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    LATENT_KEYS("512", "1536", "128", "128"),
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "16"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"rope_interleave", LF_HF_BOOL, "rope_interleaved", "true"},
    {"mlp_bias", LF_HF_UNREAD, NULL, "false"},
    {0},
};

static int read_youtu(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 10000, err);
}

static const struct lf_map_row youtu_rows[] = {LATENT_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, {0}};

const struct lf_hf_family lf_hf_youtu = {
    .name = "youtu",
    .model_type = "youtu",
    .architecture = "YoutuForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = youtu_switches,
    .keys = youtu_keys,
    .rows = youtu_rows,
    .read = read_youtu,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- MiniCPM 3 ---- */

static const struct lf_hf_key minicpm_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "40"},
    {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.1"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "32768"},
    {"kv_lora_rank", LF_HF_NUMBER, "kv_lora", "256"},
    {"q_lora_rank", LF_HF_NUMBER, "q_lora", "768"},
    {"qk_nope_head_dim", LF_HF_NUMBER, "nope_dim", "64"},
    {"qk_rope_head_dim", LF_HF_NUMBER, "rope_dim", "32"},
    {"v_head_dim", LF_HF_NUMBER, "v_dim", "null"},
    {"head_dim", LF_HF_INERT, NULL, NULL}, /* both follow from the others */
    {"qk_head_dim", LF_HF_INERT, NULL, NULL},
    {"attention_bias", LF_HF_SAME, NULL, "false"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"scale_emb", LF_HF_NUMBER, "embed_scale", "12"},
    {0},
};

/* What branches add is times scale_depth / sqrt(layers), and what the head reads is divided by
 * hidden_size / dim_model_base; null: by 1. */
static int read_minicpm(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const double root = sqrt((double)c->layers), width = (double)c->hidden;
    double depth = json_object_get(r->o, "scale_depth") ? root : 1.4,
           base = json_object_get(r->o, "dim_model_base") ? width : 256;
    int rc = lf_hf_get_f64(r, "scale_depth", &depth, err);
    rc = rc != 0 ? rc : lf_hf_get_f64(r, "dim_model_base", &base, err);
    if (rc == 0 && !(base > 0))
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: dim_model_base = %g: what the head reads is divided by "
                     "hidden_size / dim_model_base",
                     r->path, base);
    rc = rc != 0 ? rc : lf_hf_set_number(r, c, "scale_depth", "residual_scale", depth / root, err);
    rc = rc != 0 ? rc : lf_hf_set_number(r, c, "dim_model_base", "logit_scale", base / width, err);
    if (rc == 0 && c->v_dim == 0 && c->heads > 0)
        rc = lf_hf_set_number(r, c, "v_head_dim", "v_dim", (double)(c->hidden / c->heads), err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

/* The number that gives x to the last bit where it is divided by `by`, if there is one. */
static double times(double x, double by)
{
    const double y = x * by, around[] = {y, nextafter(y, 0), nextafter(y, HUGE_VAL)};
    for (int i = 0; i < 3; i++)
        if (around[i] / by == x) /* NOLINT: to the last bit */
            return around[i];
    return y;
}

static int write_minicpm(const lf_model_config *c, json_t *o, lf_err *err)
{
    const double base = rint(c->logit_scale * (double)c->hidden);
    if (fabs(base / (double)c->hidden - c->logit_scale) > 0 || base < 1)
        return lf_fail(err, LF_EINVAL,
                       "logit_scale = %.17g: in models of type minicpm3 it is a whole number over "
                       "hidden = %lld",
                       c->logit_scale, (long long)c->hidden);
    if (json_object_set_new(o, "scale_depth",
                            json_real(times(c->residual_scale, sqrt((double)c->layers)))) ||
        json_object_set_new(o, "dim_model_base", json_integer((json_int_t)base)))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return lf_hf_write_rope(c, o, err);
}

const struct lf_hf_family lf_hf_minicpm3 = {
    .name = "minicpm3",
    .model_type = "minicpm3",
    .architecture = "MiniCPM3ForCausalLM",
    .classifier = "MiniCPM3ForSequenceClassification",
    .prefix = "model.",
    .switches = youtu_switches,
    .keys = minicpm_keys,
    .rows = youtu_rows,
    .read = read_minicpm,
    .write = write_minicpm,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
