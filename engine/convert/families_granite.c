/* SPDX-License-Identifier: Apache-2.0
 *
 * Granite 3 with and without experts, HyperCLOVA X, and Cohere's Command: numbers that multiply
 * parts of the model. */
#include <math.h>

#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

/* ---- Granite ---- */

static const char *const switches[] = {"norm=rms", "position=rope", "mlp=glu", NULL};
static const char *const moe_switches[] = {
    "norm=rms", "position=rope", "mlp=glu", "router_score=softmax", "router_renorm=yes", NULL};

#define GRANITE_KEYS                                                                               \
    KIN_KEYS, {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},                           \
        {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},                        \
        {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},                              \
        {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},                             \
        {"embedding_multiplier", LF_HF_NUMBER, "embed_scale", "1.0"},                              \
        {"residual_multiplier", LF_HF_NUMBER, "residual_scale", "1.0"},                            \
    {                                                                                              \
        "attention_multiplier", LF_HF_NUMBER, "attn_scale", "1.0"                                  \
    }

static const struct lf_hf_key granite_keys[] = {
    GRANITE_KEYS,
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {0},
};

static const struct lf_hf_key granite_moe_keys[] = {
    GRANITE_KEYS,
    {"intermediate_size", LF_HF_NUMBER, "expert_ffn", NULL},
    {"num_local_experts", LF_HF_NUMBER, "experts", "8"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "2"},
    {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.001"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {0},
};

/* Scores that 0 multiplies are all alike; attn_scale = 0 is the usual scale. */
static int check_multiplier(const lf_hf_reader *r, const lf_model_config *c, lf_err *err)
{
    const json_t *x = json_object_get(r->o, "attention_multiplier");
    return c->heads && json_is_number(x) && !(json_number_value(x) > 0)
               ? lf_fail(err, LF_ENOTSUP,
                         "%s: attention_multiplier = %g multiplies the scores of attention; it is "
                         "above 0",
                         r->path, json_number_value(x))
               : 0;
}

int lf_hf_read_logits_scaling(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    double by = 1;
    int rc = check_multiplier(r, c, err);
    rc = rc != 0 ? rc : lf_hf_get_f64(r, "logits_scaling", &by, err);
    if (rc == 0 && !(by > 0))
        rc = lf_fail(err, LF_ENOTSUP, "%s: logits_scaling = %g divides the logits", r->path, by);
    return rc != 0 ? rc : lf_hf_set_number(r, c, "logits_scaling", "logit_scale", 1 / by, err);
}

static int read_granite(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_logits_scaling(r, c, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

/* The number whose reciprocal is x to the last bit, where there is one. */
static double reciprocal(double x)
{
    const double y = 1 / x, around[] = {y, nextafter(y, 0), nextafter(y, HUGE_VAL)};
    for (int i = 0; i < 3; i++)
        if (1 / around[i] == x) /* NOLINT: to the last bit */
            return around[i];
    return y;
}

int lf_hf_write_granite_scales(const lf_model_config *c, json_t *o, lf_err *err)
{
    const double attn =
        c->attn_scale > 0 || !c->heads ? c->attn_scale : 1 / sqrt((double)c->head_dim);
    if (json_object_set_new(o, "logits_scaling", json_real(reciprocal(c->logit_scale))) ||
        json_object_set_new(o, "attention_multiplier", json_real(attn)))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return 0;
}

static int write_granite(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_granite_scales(c, o, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row granite_rows[] = {
    KIN_ATTENTION_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, {0}};

static const struct lf_map_row granite_moe_rows[] = {
    KIN_ATTENTION_ROWS, KIN_HEAD_ROWS, GRANITE_EXPERT_ROWS, {0}};

const struct lf_hf_family lf_hf_granite = {
    .name = "granite",
    .model_type = "granite",
    .architecture = "GraniteForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = switches,
    .keys = granite_keys,
    .rows = granite_rows,
    .read = read_granite,
    .write = write_granite,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

const struct lf_hf_family lf_hf_granite_moe = {
    .name = "granite-moe",
    .model_type = "granitemoe",
    .architecture = "GraniteMoeForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = moe_switches,
    .keys = granite_moe_keys,
    .rows = granite_moe_rows,
    .read = read_granite,
    .write = write_granite,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Granite 3 with a shared expert ---- */

static const char *const shared_switches[] = {
    "norm=rms",          "position=rope",  "mlp=glu", "router_score=softmax",
    "router_renorm=yes", "shared_gate=no", NULL};

static int read_shared(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t shared = 0;
    int rc = lf_hf_get_i64(r, "shared_intermediate_size", &shared, err);
    if (rc == 0 && shared < 0)
        rc = lf_fail(err, LF_EFORMAT, "%s: shared_intermediate_size = %lld", r->path,
                     (long long)shared);
    if (rc == 0 && shared > 0)
        rc = lf_hf_set_number(r, c, "shared_intermediate_size", "shared_ffn", (double)shared, err);
    return rc != 0 ? rc : read_granite(r, c, err);
}

static int write_shared(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (json_object_set_new(o, "shared_intermediate_size", json_integer(c->shared_ffn)))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return write_granite(c, o, err);
}

static const struct lf_map_row shared_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_HEAD_ROWS,
    GRANITE_EXPERT_ROWS,
    {"model.layers.{L}.shared_mlp.input_linear.weight", LF_MAP_STACK,
     "layers.{L}.moe.shared.gate.weight layers.{L}.moe.shared.up.weight", NULL},
    {"model.layers.{L}.shared_mlp.output_linear.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.down.weight", NULL},
    {0},
};

const struct lf_hf_family lf_hf_granite_shared = {
    .name = "granite-moe-shared",
    .model_type = "granitemoeshared",
    .architecture = "GraniteMoeSharedForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = shared_switches,
    .keys = granite_moe_keys,
    .rows = shared_rows,
    .read = read_shared,
    .write = write_shared,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Command ---- */

/* Attention and MLP side by side read one LayerNorm without bias. */
static const char *const cohere_switches[] = {"norm=layer",
                                              "norm_bias=no",
                                              "position=rope",
                                              "rope_interleaved=yes",
                                              "mlp=glu",
                                              "parallel_block=one_norm",
                                              NULL};

static const struct lf_hf_key cohere_keys[] = {
    KIN_SIZES,
    {"layer_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "8192"},
    {"logit_scale", LF_HF_NUMBER, "logit_scale", "0.0625"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"use_qk_norm", LF_HF_SAME, NULL, "false"}, /* Command R+: LayerNorms of queries and keys */
    {"model_max_length", LF_HF_INERT, NULL, NULL},
    {0},
};

static int read_cohere(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 500000, err);
}

const struct lf_hf_family lf_hf_cohere = {
    .name = "cohere",
    .model_type = "cohere",
    .architecture = "CohereForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = cohere_switches,
    .keys = cohere_keys,
    .rows = granite_rows,
    .read = read_cohere,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- HyperCLOVA X ---- */

static const struct lf_hf_key clova_keys[] = {
    KIN_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"embedding_multiplier", LF_HF_NUMBER, "embed_scale", "1.0"},
    {"residual_multiplier", LF_HF_NUMBER, "residual_scale", "1.0"},
    {"attention_multiplier", LF_HF_NUMBER, "attn_scale", "null"},
    {"logits_scaling", LF_HF_NUMBER, "logit_scale", "1.0"}, /* multiplies, unlike Granite's */
    {0},
};

/* use_post_norm: a norm behind each branch, too. */
static int read_clova(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool post = true;
    int rc = check_multiplier(r, c, err);
    rc = rc != 0 ? rc : lf_hf_get_bool(r, "use_post_norm", &post, err);
    rc = rc != 0 ? rc : lf_hf_set(r, c, "use_post_norm", "block", post ? "sandwich" : "pre", err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_clova(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (json_object_set_new(o, "use_post_norm", json_boolean(c->block == LF_BLOCK_SANDWICH)))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row clova_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    {"model.layers.{L}.post_norm1.weight", LF_MAP_COPY, "layers.{L}.attn_post_norm.weight", NULL},
    {"model.layers.{L}.post_norm2.weight", LF_MAP_COPY, "layers.{L}.mlp_post_norm.weight", NULL},
    {0},
};

const struct lf_hf_family lf_hf_clova = {
    .name = "hyperclovax",
    .model_type = "hyperclovax",
    .architecture = "HyperCLOVAXForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = switches,
    .keys = clova_keys,
    .rows = clova_rows,
    .read = read_clova,
    .write = write_clova,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
