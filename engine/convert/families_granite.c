/* SPDX-License-Identifier: Apache-2.0
 *
 * Granite 3 with and without experts, Granite with windows, HyperCLOVA X, and Cohere's Command:
 * numbers that multiply parts of the model. */
#include <math.h>
#include <stdlib.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
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

#define GRANITE_SHARED_ROWS                                                                        \
    {"model.layers.{L}.shared_mlp.input_linear.weight", LF_MAP_STACK,                              \
     "layers.{L}.moe.shared.gate.weight layers.{L}.moe.shared.up.weight", NULL},                   \
    {                                                                                              \
        "model.layers.{L}.shared_mlp.output_linear.weight", LF_MAP_COPY,                           \
            "layers.{L}.moe.shared.down.weight", NULL                                              \
    }

static const struct lf_map_row shared_rows[] = {
    KIN_ATTENTION_ROWS, KIN_HEAD_ROWS, GRANITE_EXPERT_ROWS, GRANITE_SHARED_ROWS, {0},
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

/* ---- Granite with windows (Swash) ---- */

static const char *const swa_switches[] = {"norm=rms", "position=rope", "mlp=glu", "attn_sinks=yes",
                                           NULL};
static const char *const moe_swa_switches[] = {
    "norm=rms",          "position=rope",  "mlp=glu",        "router_score=softmax",
    "router_renorm=yes", "shared_gate=no", "attn_sinks=yes", NULL};

static const struct lf_hf_key swa_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "4"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "8192"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"embedding_multiplier", LF_HF_NUMBER, "embed_scale", "1.0"},
    {"residual_multiplier", LF_HF_NUMBER, "residual_scale", "1.0"},
    {"attention_multiplier", LF_HF_NUMBER, "attn_scale", "1.0"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {0},
};

/* The letter of a layer whose base is theta. Of two bases rope_theta is that of the file, or else
 * the first. */
static int base_letter(lf_hf_reader *r, lf_model_config *c, json_t *theta, char *out, lf_err *err)
{
    const double x = json_number_value(theta);
    if (!json_is_number(theta) || x < 0)
        return lf_fail(err, LF_EFORMAT, "%s: layer_rope_theta holds what is no base", r->path);
    if (!(x > 0))
        *out = LF_TURN_NONE;
    else if (!(fabs(x - c->rope_theta) > 0))
        *out = LF_TURN_ROPE;
    else if (c->rope_local_theta > 0 && fabs(x - c->rope_local_theta) > 0)
        return lf_fail(err, LF_ENOTSUP, "%s: layer_rope_theta has more than two bases", r->path);
    else {
        *out = LF_TURN_LOCAL;
        return lf_hf_set_number(r, c, "layer_rope_theta", "rope_local_theta", x, err);
    }
    return 0;
}

/* Does a layer turn by rope_theta? If not, it is set to what the first one that turns has. */
static int choose_base(lf_hf_reader *r, lf_model_config *c, json_t *list, lf_err *err)
{
    double first = 0;
    for (size_t l = json_array_size(list); l-- > 0;) {
        const double x = json_number_value(json_array_get(list, l));
        if (!(fabs(x - c->rope_theta) > 0))
            return 0;
        first = x > 0 ? x : first;
    }
    return first > 0 ? lf_hf_set_number(r, c, "layer_rope_theta", "rope_theta", first, err) : 0;
}

/* layer_rope_theta: the base by which each layer turns, 0: it does not turn. */
static int read_bases(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *list = lf_hf_take(r, "layer_rope_theta");
    if (!list)
        return 0;
    if (!json_is_array(list) || (int64_t)json_array_size(list) != c->layers)
        return lf_fail(err, LF_EFORMAT, "%s: layer_rope_theta does not list %lld layers", r->path,
                       (long long)c->layers);
    char *letters = lf_calloc((size_t)c->layers + 1, 1, err);
    int rc = letters ? choose_base(r, c, list, err) : LF_ENOMEM;
    for (int64_t l = 0; l < c->layers && rc == 0; l++)
        rc = base_letter(r, c, json_array_get(list, (size_t)l), &letters[l], err);
    if (rc == 0 && c->rope_local_theta > 0 && c->rope_scaling != LF_ROPE_PLAIN)
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: layer_rope_theta has two bases, both of which rope_scaling would scale",
                     r->path);
    rc =
        rc != 0 ? rc : lf_hf_set_letters(r, c, "layer_rope_theta", "layer_positions", letters, err);
    free(letters);
    return rc;
}

static int read_swa_layers(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const struct lf_hf_slide by = {.period = 4, .exception = LF_HF_FIRST};
    int64_t window;
    int rc = lf_hf_get_window(r, 128, &window, err);
    rc = rc != 0 ? rc : lf_hf_read_layers(r, c, window, false, &by, err);
    return rc != 0 ? rc : read_bases(r, c, err);
}

static int write_swa_layers(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *list = json_array();
    int bad = !list;
    for (int64_t l = 0; l < c->layers && !bad; l++) {
        const char turn = lf_model_layer_position(c, l);
        bad = json_array_append_new(list, json_real(turn == LF_TURN_NONE    ? 0
                                                    : turn == LF_TURN_LOCAL ? c->rope_local_theta
                                                                            : c->rope_theta));
    }
    bad = bad || json_object_set(o, "layer_rope_theta", list) ||
          json_object_set_new(o, "sliding_window",
                              json_integer(c->sliding_window > 0 ? c->sliding_window : 128));
    json_decref(list);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : lf_hf_write_layers(c, o, err);
}

static int read_swa(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = read_granite(r, c, err);
    return rc != 0 ? rc : read_swa_layers(r, c, err);
}

static int write_swa(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = write_granite(c, o, err);
    return rc != 0 ? rc : write_swa_layers(c, o, err);
}

static int read_moe_swa(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = read_shared(r, c, err);
    return rc != 0 ? rc : read_swa_layers(r, c, err);
}

static int write_moe_swa(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = write_shared(c, o, err);
    return rc != 0 ? rc : write_swa_layers(c, o, err);
}

#define SINK_ROW                                                                                   \
    {                                                                                              \
        "model.layers.{L}.self_attn.sinks", LF_MAP_COPY, "layers.{L}.attn.sinks", NULL             \
    }

static const struct lf_map_row swa_rows[] = {
    KIN_ATTENTION_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, SINK_ROW, {0}};

static const struct lf_map_row moe_swa_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_HEAD_ROWS,
    SINK_ROW,
    GRANITE_SHARED_ROWS,
    {"model.layers.{L}.block_sparse_moe.router.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight",
     NULL},
    {"model.layers.{L}.block_sparse_moe.experts.gate_up_proj", LF_MAP_STACK,
     "blocks=experts layers.{L}.moe.experts.gate.weight layers.{L}.moe.experts.up.weight", NULL},
    {"model.layers.{L}.block_sparse_moe.experts.down_proj", LF_MAP_STACK,
     "blocks=experts layers.{L}.moe.experts.down.weight", NULL},
    {0},
};

const struct lf_hf_family lf_hf_granite_swa = {
    .name = "granite-swa",
    .model_type = "granite_swa",
    .architecture = "GraniteSWAForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = swa_switches,
    .keys = swa_keys,
    .rows = swa_rows,
    .read = read_swa,
    .write = write_swa,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

const struct lf_hf_family lf_hf_granite_moe_swa = {
    .name = "granite-moe-swa",
    .model_type = "granitemoe_swa",
    .architecture = "GraniteMoeSWAForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = moe_swa_switches,
    .keys = granite_moe_keys,
    .rows = moe_swa_rows,
    .read = read_moe_swa,
    .write = write_moe_swa,
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
