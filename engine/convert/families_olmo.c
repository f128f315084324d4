/* SPDX-License-Identifier: Apache-2.0
 *
 * OLMo 2 and 3, OLMoE, FlexOlmo: norms behind the branches, one norm over all heads of queries and
 * of keys. OLMo: norms without weights before the branches. OLMo Hybrid: scans of the delta rule
 * among attention as in OLMo 2, with norms before theirs.
 */
#include <math.h>

#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

static const char *const olmo2_switches[] = {"norm=rms",  "position=rope", "mlp=glu",
                                             "block=out", "qk_norm=yes",   "qk_norm_all_heads=yes",
                                             NULL};

#define OLMO_KEYS                                                                                  \
    KIN_SIZES, {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},                                 \
        {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},                                 \
        {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},                                 \
        {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},                              \
    {                                                                                              \
        "attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"                                \
    }

static const struct lf_hf_key olmo2_keys[] = {
    OLMO_KEYS,
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {0},
};

static int read_rope(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 10000, err);
}

static const struct lf_map_row olmo2_rows[] = {
    KIN_OUT_ATTENTION_ROWS, KIN_QK_NORM_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, {0},
};

const struct lf_hf_family lf_hf_olmo2 = {
    .name = "olmo2",
    .model_type = "olmo2",
    .architecture = "Olmo2ForCausalLM",
    .classifier = "Olmo2ForSequenceClassification",
    .prefix = "model.",
    .switches = olmo2_switches,
    .keys = olmo2_keys,
    .rows = olmo2_rows,
    .read = read_rope,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- OLMo 3 ---- */

#define OLMO3_THETA 500000

/* rope_scaling of older files is that of layers that attend in full. */
int lf_hf_read_rope_kinds(lf_hf_reader *r, lf_model_config *c, double theta, double local,
                          lf_err *err)
{
    json_t *both = lf_hf_take(r, "rope_parameters"),
           *window = json_object_get(both, "sliding_attention");
    const struct lf_hf_rope as = {.theta = theta,
                                  .params = json_object_get(both, "full_attention")};
    if (both && (!as.params || !window || json_object_size(both) != 2))
        return lf_fail(err, LF_ENOTSUP,
                       "%s: rope_parameters says no more and no less than full_attention and "
                       "sliding_attention",
                       r->path);
    int rc = lf_hf_read_local_rope(r, window, &local, err);
    rc = rc != 0 ? rc : lf_hf_read_rope_as(r, c, &as, err);
    if (rc == 0 && both && !c->rope_truncate)
        rc =
            lf_fail(err, LF_ENOTSUP,
                    "%s: truncate of full_attention, which no one reads there: transformers rounds "
                    "the ends of the ramp",
                    r->path);
    if (rc == 0 && c->sliding_window > 0 &&
        (c->rope_scaling != LF_ROPE_PLAIN || fabs(local - c->rope_theta) > 0))
        rc = lf_hf_set_number(r, c, "sliding_attention", "rope_local_theta", local, err);
    return rc;
}

static int read_olmo3(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t window;
    int rc = lf_hf_get_window(r, 4096, &window, err);
    rc = rc != 0 ? rc
                 : lf_hf_read_layers(r, c, window, false, &(struct lf_hf_slide){.period = 4}, err);
    return rc != 0 ? rc : lf_hf_read_rope_kinds(r, c, OLMO3_THETA, OLMO3_THETA, err);
}

static int write_olmo3(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_rope_kinds(c, o, err);
    if (rc == 0 &&
        json_object_set_new(o, "sliding_window",
                            c->sliding_window > 0 ? json_integer(c->sliding_window) : json_null()))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc != 0 ? rc : lf_hf_write_layers(c, o, err);
}

const struct lf_hf_family lf_hf_olmo3 = {
    .name = "olmo3",
    .model_type = "olmo3",
    .architecture = "Olmo3ForCausalLM",
    .classifier = "Olmo3ForSequenceClassification",
    .prefix = "model.",
    .switches = olmo2_switches,
    .keys = olmo2_keys,
    .rows = olmo2_rows,
    .read = read_olmo3,
    .write = write_olmo3,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- OLMoE ---- */

static const char *const olmoe_switches[] = {
    "norm=rms",    "position=rope",         "mlp=glu",
    "qk_norm=yes", "qk_norm_all_heads=yes", "router_score=softmax",
    NULL};

static const struct lf_hf_key olmoe_keys[] = {
    OLMO_KEYS,
    {"intermediate_size", LF_HF_NUMBER, "expert_ffn", NULL},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "4096"},
    {"clip_qkv", LF_HF_SAME, NULL, "null"},
    {"num_experts|num_local_experts", LF_HF_NUMBER, "experts", "64"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "8"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "false"},
    {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.01"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_map_row olmoe_rows[] = {
    KIN_ATTENTION_ROWS, KIN_QK_NORM_ROWS, KIN_EXPERT_ROWS, KIN_HEAD_ROWS, {0}};

const struct lf_hf_family lf_hf_olmoe = {
    .name = "olmoe",
    .model_type = "olmoe",
    .architecture = "OlmoeForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = olmoe_switches,
    .keys = olmoe_keys,
    .rows = olmoe_rows,
    .read = read_rope,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- FlexOlmo: the block of OLMo 2, with experts ---- */

static const char *const flex_switches[] = {"norm=rms",
                                            "position=rope",
                                            "mlp=glu",
                                            "block=out",
                                            "qk_norm=yes",
                                            "qk_norm_all_heads=yes",
                                            "router_score=softmax",
                                            NULL};

static const struct lf_hf_key flex_keys[] = {
    OLMO_KEYS,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"}, /* where absent, others than OLMo 2's */
    {"intermediate_size", LF_HF_NUMBER, "expert_ffn", NULL},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "4096"},
    {"num_experts|num_local_experts", LF_HF_NUMBER, "experts", "7"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "5"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "false"},
    {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.01"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {0},
};

static int read_flex(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 500000, err);
}

static const struct lf_map_row flex_rows[] = {
    KIN_OUT_ATTENTION_ROWS, KIN_QK_NORM_ROWS, KIN_EXPERT_ROWS, KIN_HEAD_ROWS, {0}};

const struct lf_hf_family lf_hf_flex_olmo = {
    .name = "flex-olmo",
    .model_type = "flex_olmo",
    .architecture = "FlexOlmoForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = flex_switches,
    .keys = flex_keys,
    .rows = flex_rows,
    .read = read_flex,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- OLMo Hybrid: scans with a gated delta rule, whose norms stand before them ---- */

static const struct lf_hf_mixer hybrid_mixers[] = {
    {"linear_attention", LF_MIXER_DELTA}, {"full_attention", LF_MIXER_FULL}, {0}};

static const char *const hybrid_switches[] = {"norm=rms",           "mlp=glu",
                                              "activation=silu",    "block=out_attention",
                                              "qk_norm=yes",        "qk_norm_all_heads=yes",
                                              "scan_gate=silu",     "scan_norm=before_gate",
                                              "scan_norm_eps=1e-5", NULL};

/* What scans begin with is of no use to a model that is there. */
static const struct lf_hf_key hybrid_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "100352"},
    {"hidden_size", LF_HF_NUMBER, "hidden", "3840"},
    {"intermediate_size", LF_HF_NUMBER, "ffn", "11008"},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", "32"},
    {"num_attention_heads", LF_HF_NUMBER, "heads", "30"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"hidden_act", LF_HF_SAME, NULL, "\"silu\""}, /* of the convolutions too */
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "65536"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"linear_conv_kernel_dim", LF_HF_NUMBER, "scan_conv", "4"},
    {"linear_a_log_min", LF_HF_INERT, NULL, NULL},
    {"linear_a_log_max", LF_HF_INERT, NULL, NULL},
    {"linear_dt_min", LF_HF_INERT, NULL, NULL},
    {"linear_dt_max", LF_HF_INERT, NULL, NULL},
    {"linear_dt_init_floor", LF_HF_INERT, NULL, NULL},
    {0},
};

/* Sizes of scans, which follow from those of attention where they are not given. */
static int read_hybrid_scan(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t groups = c->heads, heads = c->heads;
    int rc = lf_hf_get_i64(r, "linear_num_key_heads", &groups, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "linear_num_value_heads", &heads, err);
    if (rc == 0 && (groups < 1 || heads < 1))
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: linear_num_key_heads and linear_num_value_heads are 1 "
                     "or more",
                     r->path);
    int64_t keys = rc == 0 ? (int64_t)(0.75 * (double)c->hidden / (double)groups) : 0;
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "linear_key_head_dim", &keys, err);
    int64_t values = 2 * keys;
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "linear_value_head_dim", &values, err);
    const struct {
        const char *theirs, *ours;
        int64_t n;
    } sizes[] = {{"linear_num_key_heads", "scan_groups", groups},
                 {"linear_num_value_heads", "scan_heads", heads},
                 {"linear_key_head_dim", "scan_key_dim", keys},
                 {"linear_value_head_dim", "scan_value_dim", values}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && rc == 0; i++)
        rc = lf_hf_set_number(r, c, sizes[i].theirs, sizes[i].ours, (double)sizes[i].n, err);
    return rc;
}

/* A base that is null, as it is published, says that heads do not turn; one that is absent is that
 * of the class. */
static int read_hybrid_rope(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *params = json_object_get(r->o, "rope_parameters"),
           *scaling = json_object_get(r->o, "rope_scaling"),
           *first = json_object_size(scaling) ? scaling : params, /* in the class, too */
               *theta = json_object_get(first, "rope_theta");
    const bool turns = !json_is_null(theta ? theta : json_object_get(r->o, "rope_theta"));
    if (!turns && first != params && json_object_size(params) && !json_equal(params, scaling))
        return lf_fail(err, LF_EFORMAT, "%s: rope_scaling and rope_parameters say different things",
                       r->path);
    int rc = lf_hf_set(r, c, "rope_theta", "position", turns ? "rope" : "none", err);
    if (rc != 0 || turns)
        return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
    static const char *const unread[] = {"rope_theta", "rope_scaling", "rope_parameters"};
    for (size_t i = 0; i < sizeof unread / sizeof *unread; i++)
        lf_hf_take(r, unread[i]);
    return 0;
}

static int read_hybrid(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    static const char *const few[] = {"f", "gf", "ggf"}; /* at least one layer attends */
    bool twice = true;
    int rc = lf_hf_read_mixers(
        r, c, hybrid_mixers, c->layers >= 1 && c->layers <= 3 ? few[c->layers - 1] : "gggf*", err);
    rc = rc != 0 ? rc : read_hybrid_scan(r, c, err);
    rc = rc != 0 ? rc : lf_hf_get_bool(r, "linear_allow_neg_eigval", &twice, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "linear_allow_neg_eigval", "scan_strength", twice ? 2 : 1, err);
    return rc != 0 ? rc : read_hybrid_rope(r, c, err);
}

static int write_hybrid(const lf_model_config *c, json_t *o, lf_err *err)
{
    const bool twice = c->scan_strength > 1.5, turns = c->position == LF_POS_ROPE;
    int rc = lf_hf_write_mixers(c, o, hybrid_mixers, err);
    if (rc == 0 &&
        (json_object_set_new(o, "linear_num_key_heads", json_integer(c->scan_groups)) ||
         json_object_set_new(o, "linear_num_value_heads", json_integer(c->scan_heads)) ||
         json_object_set_new(o, "linear_key_head_dim", json_integer(c->scan_key_dim)) ||
         json_object_set_new(o, "linear_value_head_dim", json_integer(c->scan_value_dim)) ||
         json_object_set_new(o, "linear_allow_neg_eigval", json_boolean(twice)) ||
         (!turns &&
          json_object_set_new(o, "rope_parameters",
                              json_pack("{s:s, s:n}", "rope_type", "default", "rope_theta")))))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc != 0 || !turns ? rc : lf_hf_write_rope(c, o, err);
}

#define OURS   "layers.{L}.scan."
#define THEIRS "model.layers.{L}.linear_attn."

/* Which norm of a layer is called how depends on what mixes its tokens. */
static const struct lf_map_row hybrid_rows[] = {
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},
    KIN_QKVO_ROWS,
    KIN_QK_NORM_ROWS,
    KIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight",
     "mixer=f"},
    {"model.layers.{L}.post_feedforward_layernorm.weight", LF_MAP_COPY,
     "layers.{L}.mlp_norm.weight", "mixer=f"},
    {"model.layers.{L}.attention_layer_norm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight",
     "mixer=g"},
    {"model.layers.{L}.feedforward_layer_norm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight",
     "mixer=g"},
    {"model.layers.{L}.feedforward_layer_norm.weight", LF_MAP_TIED, "layers.{L}.attn_norm.weight",
     "mixer=f"}, /* as transformers saves it, which renames by the name alone */
    {THEIRS "q_proj.weight", LF_MAP_COPY, OURS "q.weight", NULL},
    {THEIRS "k_proj.weight", LF_MAP_COPY, OURS "k.weight", NULL},
    {THEIRS "v_proj.weight", LF_MAP_COPY, OURS "v.weight", NULL},
    {THEIRS "g_proj.weight", LF_MAP_COPY, OURS "z.weight", NULL},
    {THEIRS "a_proj.weight", LF_MAP_COPY, OURS "a.weight", NULL},
    {THEIRS "b_proj.weight", LF_MAP_COPY, OURS "b.weight", NULL},
    {THEIRS "q_conv1d.weight", LF_MAP_DEPTHWISE, OURS "conv_q.weight", NULL},
    {THEIRS "k_conv1d.weight", LF_MAP_DEPTHWISE, OURS "conv_k.weight", NULL},
    {THEIRS "v_conv1d.weight", LF_MAP_DEPTHWISE, OURS "conv_v.weight", NULL},
    {THEIRS "A_log", LF_MAP_COPY, OURS "a_log", NULL},
    {THEIRS "dt_bias", LF_MAP_COPY, OURS "dt_bias", NULL},
    {THEIRS "o_norm.weight", LF_MAP_COPY, OURS "norm.weight", NULL},
    {THEIRS "o_proj.weight", LF_MAP_COPY, OURS "o.weight", NULL},
    {0},
};

const struct lf_hf_family lf_hf_olmo_hybrid = {
    .name = "olmo-hybrid",
    .model_type = "olmo_hybrid",
    .architecture = "OlmoHybridForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = hybrid_switches,
    .keys = hybrid_keys,
    .rows = hybrid_rows,
    .read = read_hybrid,
    .write = write_hybrid,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- OLMo, the first ---- */

static const char *const olmo_switches[] = {"norm=layer",    "norm_weight=no", "norm_eps=1e-5",
                                            "position=rope", "mlp=glu",        NULL};

static const struct lf_hf_key olmo_keys[] = {
    KIN_SIZES,
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"clip_qkv", LF_HF_SAME, NULL, "null"}, /* OLMo 7B of April 2024 has a limit */
    {0},
};

static const struct lf_map_row olmo_rows[] = {KIN_ATTENTION_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, {0}};

const struct lf_hf_family lf_hf_olmo = {
    .name = "olmo",
    .model_type = "olmo",
    .architecture = "OlmoForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = olmo_switches,
    .keys = olmo_keys,
    .rows = olmo_rows,
    .read = read_rope,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
