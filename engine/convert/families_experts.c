/* SPDX-License-Identifier: Apache-2.0
 *
 * Experts as in DeepSeek-V3 beside the attention of others: dots.llm1, Solar Open, Hy3; experts of
 * a softmax: the texts of Aria, Mellum 2. */
#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

/* ---- dots.llm1 ---- */

static const char *const dots_switches[] = {
    "norm=rms",        "position=rope",  "mlp=glu", "qk_norm=yes", "router_score=sigmoid",
    "router_bias=yes", "shared_gate=no", NULL};

static const struct lf_hf_key dots_keys[] = {
    KIN_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "32"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"n_routed_experts|num_local_experts", LF_HF_NUMBER, "experts", NULL},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", NULL},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "1408"},
    {"n_group", LF_HF_NUMBER, "router_groups", "1"},
    {"topk_group", LF_HF_NUMBER, "router_top_groups", "1"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "false"},
    {"routed_scaling_factor", LF_HF_NUMBER, "router_scale", "1"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"scoring_func", LF_HF_UNREAD, NULL, "\"noaux_tc\""}, /* of published files, from here on */
    {"topk_method", LF_HF_UNREAD, NULL, "\"noaux_tc\""},
    {"moe_layer_freq", LF_HF_UNREAD, NULL, "1"},
    {"ep_size", LF_HF_INERT, NULL, NULL},
    {"aux_loss_alpha", LF_HF_INERT, NULL, NULL},
    {"seq_aux", LF_HF_INERT, NULL, NULL},
    {0},
};

/* Layers from max_window_layers on have the window, where layer_types says nothing else. */
static int read_dots(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t window;
    struct lf_hf_slide by = {.from = 62};
    int rc = lf_hf_get_window(r, 4096, &window, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "max_window_layers", &by.from, err);
    rc = rc != 0 ? rc : lf_hf_read_layers(r, c, window, window < 0, &by, err);
    rc = rc != 0 ? rc : lf_hf_read_deepseek(r, c, 0, 0, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_dots(const lf_model_config *c, json_t *o, lf_err *err)
{
    const bool any = c->sliding_window > 0;
    if (json_object_set_new(o, "sliding_window",
                            any ? json_integer(c->sliding_window) : json_null()))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    int rc = lf_hf_write_layers(c, o, err);
    rc = rc != 0 ? rc : lf_hf_write_deepseek(c, o, NULL, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row dots_rows[] = {
    KIN_ATTENTION_ROWS, KIN_QK_NORM_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, KIN_V3_ROWS, {0},
};

const struct lf_hf_family lf_hf_dots1 = {
    .name = "dots1",
    .model_type = "dots1",
    .architecture = "Dots1ForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = dots_switches,
    .keys = dots_keys,
    .rows = dots_rows,
    .read = read_dots,
    .write = write_dots,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Solar Open ---- */

static const char *const solar_switches[] = {
    "norm=rms",        "position=rope",  "mlp=glu",     "router_score=sigmoid",
    "router_bias=yes", "shared_gate=no", "layer_mlps=", NULL};

static const struct lf_hf_key solar_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"n_routed_experts|num_local_experts", LF_HF_NUMBER, "experts", "128"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "8"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "1280"},
    {"n_group", LF_HF_NUMBER, "router_groups", "1"},
    {"topk_group", LF_HF_NUMBER, "router_top_groups", "1"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"routed_scaling_factor", LF_HF_NUMBER, "router_scale", "1"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"intermediate_size", LF_HF_INERT, NULL, NULL}, /* of published files, from here on */
    {"first_k_dense_replace", LF_HF_UNREAD, NULL, "0"},
    {"use_qk_norm", LF_HF_UNREAD, NULL, "false"},
    {0},
};

/* No layer is dense; [model] wants a width for it all the same. */
static int read_solar(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_set_number(r, c, "moe_intermediate_size", "ffn", (double)c->expert_ffn, err);
    rc = rc != 0 ? rc : lf_hf_read_shared(r, c, "n_shared_experts", 1, err);
    return rc != 0 ? rc
                   : lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = 1000000, .part = true},
                                        err);
}

static int write_solar(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_shared(c, o, "n_shared_experts", NULL, err);
    return rc != 0 ? rc : lf_hf_write_partial_rope(c, o, err);
}

static const struct lf_map_row solar_rows[] = {KIN_ATTENTION_ROWS, KIN_HEAD_ROWS, KIN_V3_ROWS, {0}};

const struct lf_hf_family lf_hf_solar_open = {
    .name = "solar-open",
    .model_type = "solar_open",
    .architecture = "SolarOpenForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = solar_switches,
    .keys = solar_keys,
    .rows = solar_rows,
    .read = read_solar,
    .write = write_solar,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Hy3 ---- */

static const char *const hy3_switches[] = {
    "norm=rms",          "position=rope",   "mlp=glu",        "qk_norm=yes", "router_score=sigmoid",
    "router_renorm=yes", "router_bias=yes", "shared_gate=no", NULL};

static const struct lf_hf_key hy3_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"mlp_bias", LF_HF_SAME, NULL, "false"}, /* shared experts would have one */
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"num_experts|num_local_experts", LF_HF_NUMBER, "experts", "192"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "8"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "1536"},
    {"router_scaling_factor", LF_HF_NUMBER, "router_scale", "2.826"},
    {"enable_moe_fp32_combine", LF_HF_INERT, NULL, NULL}, /* where a sum is rounded */
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"num_nextn_predict_layers", LF_HF_INERT, NULL, NULL}, /* of published files */
    {0},
};

static int read_hy3(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_shared(r, c, "num_shared_experts", 1, err);
    rc = rc != 0 ? rc : lf_hf_read_mlp_types(r, c, 1, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 11158840, err);
}

static int write_hy3(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_shared(c, o, "num_shared_experts", NULL, err);
    rc = rc != 0 ? rc : lf_hf_write_mlp_types(c, o, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row hy3_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_QK_NORM_ROWS,
    KIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    KIN_EXPERT_MATRICES,
    {"model.layers.{L}.mlp.router.gate.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL},
    {"model.layers.{L}.mlp.expert_bias", LF_MAP_COPY, "layers.{L}.moe.router.bias", NULL},
    {"model.layers.{L}.mlp.shared_mlp.gate_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.gate.weight", NULL},
    {"model.layers.{L}.mlp.shared_mlp.up_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.up.weight", NULL},
    {"model.layers.{L}.mlp.shared_mlp.down_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.down.weight", NULL},
    {"model.layers.{N}.", LF_MAP_LEFT_OUT, KIN_MTP, NULL},
    {0},
};

const struct lf_hf_family lf_hf_hy3 = {
    .name = "hy3",
    .model_type = "hy_v3",
    .architecture = "HYV3ForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = hy3_switches,
    .keys = hy3_keys,
    .rows = hy3_rows,
    .read = read_hy3,
    .write = write_hy3,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Aria's decoder of texts ---- */

static const char *const aria_switches[] = {
    "norm=rms",        "position=rope",        "mlp=glu",
    "activation=silu", "router_score=softmax", "router_renorm=yes",
    "shared_gate=no",  "router_bias=no",       NULL};

static const struct lf_hf_key aria_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "32000"},
    {"hidden_size", LF_HF_NUMBER, "hidden", "4096"},
    {"intermediate_size", LF_HF_NUMBER, "expert_ffn", "4096"},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", "32"},
    {"num_attention_heads", LF_HF_NUMBER, "heads", "32"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"hidden_act", LF_HF_SAME, NULL, "\"silu\""}, /* of the shared experts alone */
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"mlp_bias", LF_HF_SAME, NULL, "false"}, /* of the shared experts alone */
    {"moe_num_experts", LF_HF_NUMBER, "experts", "8"},
    {"moe_topk", LF_HF_NUMBER, "experts_per_token", "2"},
    {"pretraining_tp", LF_HF_INERT, NULL, NULL},
    {"moe_z_loss_coeff", LF_HF_INERT, NULL, NULL}, /* of losses that the class does not have */
    {"moe_aux_loss_coeff", LF_HF_INERT, NULL, NULL},
    {0},
};

static int read_aria(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_shared(r, c, "moe_num_shared_experts", 2, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_aria(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_shared(c, o, "moe_num_shared_experts", NULL, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row aria_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_HEAD_ROWS,
    KIN_SHARED_ROWS,
    {"model.layers.{L}.mlp.router.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL},
    {"model.layers.{L}.mlp.experts.fc1.weight", LF_MAP_STACK_T,
     "blocks=experts layers.{L}.moe.experts.gate.weight layers.{L}.moe.experts.up.weight", NULL},
    {"model.layers.{L}.mlp.experts.fc2.weight", LF_MAP_STACK_T,
     "blocks=experts layers.{L}.moe.experts.down.weight", NULL},
    {0},
};

const struct lf_hf_family lf_hf_aria_text = {
    .name = "aria-text",
    .model_type = "aria_text",
    .architecture = "AriaTextForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = aria_switches,
    .keys = aria_keys,
    .rows = aria_rows,
    .read = read_aria,
    .write = write_aria,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Mellum 2 ---- */

static const char *const mellum_switches[] = {"norm=rms",    "position=rope",        "mlp=glu",
                                              "qk_norm=yes", "router_score=softmax", NULL};

static const struct lf_hf_key mellum_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "98304"},
    {"hidden_size", LF_HF_NUMBER, "hidden", "2304"},
    {"intermediate_size", LF_HF_NUMBER, "ffn", "7168"},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", "28"},
    {"num_attention_heads", LF_HF_NUMBER, "heads", "32"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "4"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"num_experts|num_local_experts", LF_HF_NUMBER, "experts", "64"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "8"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "896"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.001"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    /* the head for a later token, which the class does not load and no one here either */
    {"num_mtp_layers|num_nextn_predict_layers", LF_HF_INERT, NULL, NULL},
    {"mtp_layer_types", LF_HF_INERT, NULL, NULL},
    {"mtp_mlp_layer_types", LF_HF_INERT, NULL, NULL},
    {0},
};

/* rope_theta and rope_scaling by themselves are read by no one: rope_parameters has an object for
 * each kind of layer. */
static int read_mellum(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t window;
    const bool said = json_object_get(r->o, "rope_theta") || json_object_get(r->o, "rope_scaling");
    int rc = said ? lf_fail(err, LF_ENOTSUP,
                            "%s: rope_theta and rope_scaling stand outside of rope_parameters, "
                            "where the class of this family does not read them",
                            r->path)
                  : lf_hf_get_window(r, 1024, &window, err);
    rc = rc != 0
             ? rc
             : lf_hf_read_layers(r, c, window, true, &(struct lf_hf_slide){.from = c->layers}, err);
    rc = rc != 0 ? rc : lf_hf_read_mlp_types(r, c, 0, err);
    return rc != 0 ? rc : lf_hf_read_rope_kinds(r, c, 500000, 10000, err);
}

static int write_mellum(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_rope_kinds(c, o, err);
    if (rc == 0 &&
        json_object_set_new(o, "sliding_window",
                            c->sliding_window > 0 ? json_integer(c->sliding_window) : json_null()))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    rc = rc != 0 ? rc : lf_hf_write_mlp_types(c, o, err);
    return rc != 0 ? rc : lf_hf_write_layers(c, o, err);
}

static const struct lf_map_row mellum_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_QK_NORM_ROWS,
    KIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    KIN_EXPERT_ROWS,
    {"mtp.", LF_MAP_LEFT_OUT, "a head for later tokens, which the class does not load", NULL},
    {0},
};

const struct lf_hf_family lf_hf_mellum = {
    .name = "mellum",
    .model_type = "mellum",
    .architecture = "MellumForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = mellum_switches,
    .keys = mellum_keys,
    .rows = mellum_rows,
    .read = read_mellum,
    .write = write_mellum,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
