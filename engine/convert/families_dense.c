/* SPDX-License-Identifier: Apache-2.0
 *
 * Dense kin of Llama and of Nemotron with switches that others have too: Arcee, Apertus, Jais 2,
 * Helium, Ministral, StableLM, nanochat. */
#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

static const char *const switches[] = {"norm=rms", "position=rope", "mlp=glu", NULL};

static const struct lf_map_row plain_rows[] = {
    KIN_ATTENTION_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, {0}};

static int read_rope(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 10000, err);
}

/* For classes that scale by numbers of their own where the file has no object that says how. */
static int read_said_rope(lf_hf_reader *r, lf_model_config *c, double theta, lf_err *err)
{
    if (!json_is_object(json_object_get(r->o, "rope_parameters")) &&
        !json_is_object(json_object_get(r->o, "rope_scaling")))
        return lf_fail(err, LF_ENOTSUP,
                       "%s: it has neither rope_parameters nor rope_scaling, and its class would "
                       "take a scaling of its own; say which it is, {\"rope_type\": \"default\"} "
                       "for none",
                       r->path);
    return lf_hf_read_rope(r, c, theta, err);
}

static int write_said_rope(const lf_model_config *c, json_t *o, lf_err *err)
{
    const int rc = lf_hf_write_rope(c, o, err);
    if (rc == 0 && !json_object_get(o, "rope_scaling") &&
        json_object_set_new(o, "rope_scaling", json_pack("{s:s}", "rope_type", "default")))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

/* Those of KIN_SIZES, and an activation of its own. */
#define PLAIN_SIZES                                                                                \
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL}, {"hidden_size", LF_HF_NUMBER, "hidden", NULL},    \
        {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},                                          \
        {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},                                       \
        {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},                                      \
    {                                                                                              \
        "initializer_range", LF_HF_NUMBER, "init_std", "0.02"                                      \
    }

/* ---- Arcee (AFM) ---- */

static const char *const arcee_switches[] = {"norm=rms", "position=rope", "mlp=plain", NULL};

static const struct lf_hf_key arcee_keys[] = {
    PLAIN_SIZES,
    {"hidden_act", LF_HF_ACT, "activation", "\"relu2\""},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "4096"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {0},
};

#define PLAIN_MLP_ROWS                                                                             \
    {"model.layers.{L}.mlp.up_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},              \
    {                                                                                              \
        "model.layers.{L}.mlp.down_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL         \
    }

static const struct lf_map_row arcee_rows[] = {
    KIN_ATTENTION_ROWS, PLAIN_MLP_ROWS, KIN_HEAD_ROWS, {0}};

const struct lf_hf_family lf_hf_arcee = {
    .name = "arcee",
    .model_type = "arcee",
    .architecture = "ArceeForCausalLM",
    .classifier = "ArceeForSequenceClassification",
    .prefix = "model.",
    .switches = arcee_switches,
    .keys = arcee_keys,
    .rows = arcee_rows,
    .read = read_rope,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Apertus ---- */

static const char *const apertus_switches[] = {"norm=rms", "position=rope", "mlp=plain",
                                               "qk_norm=yes", NULL};

static const struct lf_hf_key apertus_keys[] = {
    PLAIN_SIZES,
    {"hidden_act", LF_HF_ACT, "activation", "\"xielu\""},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "65536"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"mlp_bias", LF_HF_UNREAD, NULL, "false"}, /* of published files, from here on */
    {"qk_norm", LF_HF_UNREAD, NULL, "true"},
    {"post_norm", LF_HF_UNREAD, NULL, "false"},
    {0},
};

static const struct lf_map_row apertus_rows[] = {
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.layers.{L}.attention_layernorm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight",
     NULL},
    KIN_QKVO_ROWS,
    {"model.layers.{L}.feedforward_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight",
     NULL},
    {"model.layers.{L}.mlp.act_fn.alpha_p", LF_MAP_COPY, "layers.{L}.mlp.act.positive", NULL},
    {"model.layers.{L}.mlp.act_fn.alpha_n", LF_MAP_COPY, "layers.{L}.mlp.act.negative", NULL},
    {"model.layers.{L}.mlp.act_fn.beta", LF_MAP_SCALAR, "layers.{L}.mlp.act.beta", NULL},
    {"model.layers.{L}.mlp.act_fn.eps", LF_MAP_SCALAR, "layers.{L}.mlp.act.eps", NULL},
    KIN_QK_NORM_ROWS,
    PLAIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    {0},
};

static int read_apertus(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return read_said_rope(r, c, 12000000, err);
}

const struct lf_hf_family lf_hf_apertus = {
    .name = "apertus",
    .model_type = "apertus",
    .architecture = "ApertusForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = apertus_switches,
    .keys = apertus_keys,
    .rows = apertus_rows,
    .read = read_apertus,
    .write = write_said_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Jais 2 ---- */

static const char *const jais_switches[] = {"norm=layer", "norm_bias=yes", "position=rope",
                                            "mlp=plain", NULL};

static const struct lf_hf_key jais_keys[] = {
    PLAIN_SIZES,
    {"hidden_act", LF_HF_ACT, "activation", "\"relu2\""},
    {"layer_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "8192"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "true"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "true"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {0},
};

/* Names of layer norms, which have biases. */
#define LAYER_NORM_ROWS                                                                            \
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},                              \
        {"model.layers.{L}.input_layernorm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},   \
        KIN_QKVO_ROWS,                                                                             \
        {"model.layers.{L}.post_attention_layernorm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}",  \
         NULL},                                                                                    \
        {"model.norm.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},                                   \
        {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},                                      \
    {                                                                                              \
        "lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"                             \
    }

static const struct lf_map_row jais_rows[] = {LAYER_NORM_ROWS, PLAIN_MLP_ROWS, {0}};

const struct lf_hf_family lf_hf_jais2 = {
    .name = "jais2",
    .model_type = "jais2",
    .architecture = "Jais2ForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = jais_switches,
    .keys = jais_keys,
    .rows = jais_rows,
    .read = read_rope,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Helium ---- */

static const char *const helium_switches[] = {"norm=rms", "position=rope", "rope_interleaved=yes",
                                              "mlp=glu", NULL};

static const struct lf_hf_key helium_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-8"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "20"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "4096"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias", "false"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {0},
};

static int read_helium(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 100000, err);
}

const struct lf_hf_family lf_hf_helium = {
    .name = "helium",
    .model_type = "helium",
    .architecture = "HeliumForCausalLM",
    .classifier = "HeliumForSequenceClassification",
    .prefix = "model.",
    .switches = helium_switches,
    .keys = helium_keys,
    .rows = plain_rows,
    .read = read_helium,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Ministral (8B) ---- */

static const struct lf_hf_key ministral_keys[] = {
    KIN_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {0},
};

/* All layers have the window, if layer_types says nothing else. */
static int read_ministral(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t window;
    int rc = lf_hf_get_window(r, 4096, &window, err);
    rc = rc != 0 ? rc : lf_hf_read_layers(r, c, window, window < 0, &(struct lf_hf_slide){0}, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

/* sliding_window and, where there is one, layer_types. */
static int write_windows(const lf_model_config *c, json_t *o, lf_err *err)
{
    const bool any = c->sliding_window > 0;
    if (json_object_set_new(o, "sliding_window",
                            any ? json_integer(c->sliding_window) : json_null()))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return lf_hf_write_layers(c, o, err);
}

static int write_ministral(const lf_model_config *c, json_t *o, lf_err *err)
{
    const int rc = write_windows(c, o, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

const struct lf_hf_family lf_hf_ministral = {
    .name = "ministral",
    .model_type = "ministral",
    .architecture = "MinistralForCausalLM",
    .classifier = "MinistralForSequenceClassification",
    .prefix = "model.",
    .switches = switches,
    .keys = ministral_keys,
    .rows = plain_rows,
    .read = read_ministral,
    .write = write_ministral,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- StableLM ---- */

static const char *const stable_switches[] = {
    "norm=layer", "norm_bias=yes", "position=rope", "rope_fraction=0.25", "mlp=glu", NULL};

static const struct lf_hf_key stable_keys[] = {
    KIN_SIZES,
    {"layer_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "32"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "4096"},
    {"use_qkv_bias", LF_HF_BOOL, "qkv_bias", "false"},
    {"qk_layernorm", LF_HF_SAME, NULL, "false"}, /* a norm of each head with its own weights */
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"hidden_dropout", LF_HF_NUMBER, "mlp_dropout", "0"},
    {0},
};

static int read_stable(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool parallel = false;
    int rc = lf_hf_get_bool(r, "use_parallel_residual", &parallel, err);
    if (rc == 0)
        rc = lf_hf_set(r, c, "use_parallel_residual", "parallel_block",
                       parallel ? "one_norm" : "no", err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "partial_rotary_factor", "rope_fraction", 0.25, err);
    return rc != 0
               ? rc
               : lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = 10000, .part = true}, err);
}

static int write_stable(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (json_object_set_new(o, "use_parallel_residual",
                            json_boolean(c->parallel_block == LF_PARALLEL_ONE_NORM)))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return lf_hf_write_partial_rope(c, o, err);
}

static const struct lf_map_row stable_rows[] = {LAYER_NORM_ROWS, KIN_MLP_ROWS, {0}};

const struct lf_hf_family lf_hf_stablelm = {
    .name = "stablelm",
    .model_type = "stablelm",
    .architecture = "StableLmForCausalLM",
    .classifier = "StableLmForSequenceClassification",
    .prefix = "model.",
    .switches = stable_switches,
    .keys = stable_keys,
    .rows = stable_rows,
    .read = read_stable,
    .write = write_stable,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- nanochat: no norm has a weight, and heads turn the other way ---- */

static const char *const nano_switches[] = {
    "norm=rms",  "norm_weight=no",     "embed_norm=yes",   "position=rope",
    "mlp=plain", "rope_backwards=yes", "qk_unit_norm=yes", NULL};

static const struct lf_hf_key nano_keys[] = {
    PLAIN_SIZES,
    {"hidden_act", LF_HF_ACT, "activation", "\"relu2\""},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"final_logit_softcapping", LF_HF_NUMBER, "logit_softcap", "15.0"},
    {0},
};

static const struct lf_map_row nano_rows[] = {
    {"model.layers.{L}.mlp.fc1.weight", LF_MAP_COPY, "layers.{L}.mlp.up.weight", NULL},
    {"model.layers.{L}.mlp.fc2.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight", NULL},
    KIN_INPUT_ROWS,
    KIN_HEAD_ROWS,
    {0},
};

const struct lf_hf_family lf_hf_nanochat = {
    .name = "nanochat",
    .model_type = "nanochat",
    .architecture = "NanoChatForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = nano_switches,
    .keys = nano_keys,
    .rows = nano_rows,
    .read = read_rope,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
