/* SPDX-License-Identifier: Apache-2.0
 *
 * OLMo 2 and 3, OLMoE, FlexOlmo: norms behind the branches, one norm over all heads of queries and
 * of keys.
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

/* rope_parameters has one object per kind of layer; rope_scaling of older files is that of layers
 * that attend in full. Layers with a window turn plainly. */
static int read_olmo3_rope(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *both = lf_hf_take(r, "rope_parameters"),
           *window = json_object_get(both, "sliding_attention");
    const struct lf_hf_rope as = {.theta = OLMO3_THETA,
                                  .params = json_object_get(both, "full_attention")};
    double local = OLMO3_THETA;
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
    return rc != 0 ? rc : read_olmo3_rope(r, c, err);
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
