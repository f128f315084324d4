/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma 1, 2 and the text model of Gemma 3: norms of (1 + w), scaled embeddings; from 2 on norms
 * behind the branches too, soft caps (2) or norms of query and key (3), and layers with a window
 * between those without. VaultGemma is Gemma 2 without norms behind the branches. */
#include <math.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

#define GEMMA_SWITCHES "norm=rms", "norm_offset=1", "position=rope", "mlp=glu"
static const char *const gemma_switches[] = {GEMMA_SWITCHES, "activation=gelu_tanh", NULL};
static const char *const gemma2_switches[] = {GEMMA_SWITCHES, "block=sandwich", NULL};
static const char *const vault_switches[] = {GEMMA_SWITCHES, NULL};
static const char *const gemma3_switches[] = {GEMMA_SWITCHES, "block=sandwich", "qk_norm=yes",
                                              NULL};

#define GEMMA_KEYS                                                                                 \
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL}, {"hidden_size", LF_HF_NUMBER, "hidden", NULL},    \
        {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},                                          \
        {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},                                       \
        {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},                                      \
        {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},                                        \
        {"head_dim", LF_HF_NUMBER, "head_dim", "256"},                                             \
        {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},                              \
        {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},                             \
        {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},                                   \
        {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},                                  \
        {"use_bidirectional_attention", LF_HF_SAME, NULL, "false"},                                \
    {                                                                                              \
        "cache_implementation", LF_HF_INERT, NULL, NULL                                            \
    }

/* Gemma 1: hidden_act of the first files says gelu, by mistake; the models were trained with its
 * tanh form, which hidden_activation says. */
static const struct lf_hf_key gemma_keys[] = {
    GEMMA_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "16"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "8192"},
    {"hidden_act", LF_HF_INERT, NULL, NULL},
    {"hidden_activation", LF_HF_ACT, "activation", "null"},
    {0},
};
static const struct lf_hf_key gemma2_keys[] = {
    GEMMA_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "4"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "8192"},
    {"hidden_act", LF_HF_INERT, NULL, NULL},
    {"hidden_activation", LF_HF_ACT, "activation", "\"gelu_pytorch_tanh\""},
    {"attn_logit_softcapping", LF_HF_NUMBER, "attn_softcap", "50"},
    {"final_logit_softcapping", LF_HF_NUMBER, "logit_softcap", "30"},
    {"sliding_window", LF_HF_NUMBER, "sliding_window", "4096"},
    {"sliding_window_size", LF_HF_INERT, NULL, NULL}, /* the same number, which no one reads */
    {0},
};
static const struct lf_hf_key gemma3_keys[] = {
    GEMMA_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "4"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"hidden_activation", LF_HF_ACT, "activation", "\"gelu_pytorch_tanh\""},
    {"attn_logit_softcapping", LF_HF_SAME, NULL, "null"}, /* the class has it and caps nothing */
    {"final_logit_softcapping", LF_HF_NUMBER, "logit_softcap", "null"},
    {"sliding_window", LF_HF_NUMBER, "sliding_window", "4096"},
    {0},
};

static int set_embed_scale(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_set_number(r, c, "hidden_size", "embed_scale", sqrt((double)c->hidden), err);
}

/* hidden_act says what hidden_activation says. gelu: what this means there, NULL: whatever. */
static int check_act(lf_hf_reader *r, const lf_model_config *c, const char *gelu, lf_err *err)
{
    const char *theirs = json_string_value(lf_hf_take(r, "hidden_act"));
    const bool plain = !theirs || strcmp(theirs, "gelu") == 0;
    const char *ours = plain ? gelu : lf_hf_act_from(theirs);
    lf_model_config d = *c;
    if (plain && !gelu)
        return 0;
    if (ours && lf_hf_set(r, &d, "hidden_act", "activation", ours, err) == 0 &&
        d.activation == c->activation)
        return 0;
    return lf_fail(err, LF_ENOTSUP,
                   "%s: hidden_act = %.40s and hidden_activation say different things", r->path,
                   theirs ? theirs : "gelu");
}

/* transformers 4 reads hidden_activation, 5 hidden_act; gelu means its tanh form, as does absence.
 */
static int read_gemma1(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = check_act(r, c, "gelu_tanh", err);
    if (rc == 0)
        rc = set_embed_scale(r, c, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

/* What scales q.k is 1/sqrt(query_pre_attn_scalar). */
static int read_attn_scale(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    double x = 256;
    int rc = lf_hf_get_f64(r, "query_pre_attn_scalar", &x, err);
    if (rc == 0 && !(x > 0))
        rc = lf_fail(err, LF_EFORMAT, "%s: query_pre_attn_scalar = %g", r->path, x);
    return rc != 0
               ? rc
               : lf_hf_set_number(r, c, "query_pre_attn_scalar", "attn_scale", pow(x, -0.5), err);
}

/* As lf_hf_read_layers takes it. */
static int64_t window_of(const lf_model_config *c)
{
    return c->sliding_window > 0 ? c->sliding_window : -1;
}

static int read_gemma2(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = check_act(r, c, NULL, err);
    if (rc == 0)
        rc = set_embed_scale(r, c, err);
    if (rc == 0)
        rc = lf_hf_read_rope(r, c, 10000, err);
    if (rc == 0)
        rc = read_attn_scale(r, c, err);
    return rc != 0 ? rc
                   : lf_hf_read_layers(r, c, window_of(c), false,
                                       &(struct lf_hf_slide){.period = 2}, err);
}

/* rope_parameters of transformers 5 has one object per kind of layer and reads nothing beside them;
 * older files say rope_theta, rope_scaling and rope_local_base_freq. */
static int read_gemma3_rope(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    double local = 10000;
    json_t *both = lf_hf_take(r, "rope_parameters"), *v, *empty = json_object();
    const char *key;
    int rc = empty ? lf_hf_get_f64(r, "rope_local_base_freq", &local, err)
                   : lf_fail(err, LF_ENOMEM, "out of memory");
    json_object_foreach(both, key, v) if (rc == 0 && strcmp(key, "full_attention") != 0 &&
                                          strcmp(key, "sliding_attention") != 0) rc =
        lf_fail(err, LF_ENOTSUP,
                "%s: rope_parameters: '%.60s' stands beside full_attention and sliding_attention, "
                "where no one reads it",
                r->path, key);
    v = json_object_get(r->o, "rope_scaling");
    if (rc == 0 && json_object_get(v, "type") && !json_object_get(v, "rope_type"))
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: type of rope_scaling, which no one reads here: it is rope_type", r->path);
    if (rc == 0)
        rc = lf_hf_read_local_rope(r, json_object_get(both, "sliding_attention"), &local, err);
    if (rc == 0 && c->sliding_window > 0)
        rc = lf_hf_set_number(r, c, "rope_local_base_freq", "rope_local_theta", local, err);
    if (rc == 0) {
        v = json_object_get(both, "full_attention");
        json_t *params = !both ? NULL : json_is_object(v) ? v : empty;
        const struct lf_hf_rope as = {.theta = 1000000, .original = -1, .params = params};
        rc = lf_hf_read_rope_as(r, c, &as, err);
    }
    json_decref(empty);
    return rc;
}

/* Files of transformers 5 name the pattern by a key of its own, which its class does not read:
 * there layer_types says it. */
static int read_pattern(lf_hf_reader *r, int64_t *out, lf_err *err)
{
    *out = 6;
    int rc = lf_hf_get_period(r, "sliding_window_pattern", out, err);
    int64_t own = *out;
    if (rc == 0)
        rc = lf_hf_get_i64(r, "_sliding_window_pattern", &own, err);
    if (rc == 0 && own != *out && !json_is_array(json_object_get(r->o, "layer_types")))
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: _sliding_window_pattern = %lld, which no one reads: give layer_types",
                     r->path, (long long)own);
    return rc;
}

static int read_gemma3(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    struct lf_hf_slide by = {0};
    int rc = set_embed_scale(r, c, err);
    if (rc == 0)
        rc = read_pattern(r, &by.period, err);
    if (rc == 0)
        rc = lf_hf_read_layers(r, c, window_of(c), false, &by, err);
    if (rc == 0)
        rc = read_gemma3_rope(r, c, err);
    return rc != 0 ? rc : read_attn_scale(r, c, err);
}

/* transformers reads hidden_act alone in new versions, hidden_activation in old ones, and takes
 * gelu for its tanh form. */
static int write_gemma(const lf_model_config *c, json_t *o, lf_err *err)
{
    const char *act = json_string_value(json_object_get(o, "hidden_activation"));
    json_t *name = json_string(act && strcmp(act, "gelu") == 0 ? "gelu_python" : act ? act : "");
    int bad = !name || json_object_set(o, "hidden_act", name) ||
              json_object_set(o, "hidden_activation", name);
    json_decref(name);
    if (bad)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return lf_hf_write_rope(c, o, err);
}

/* Which layers slide: by layer_types, but for the pattern that the class has by itself. The class
 * needs a window where no layer has one, too. */
static int write_windows(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (c->sliding_window == 0 && json_object_set_new(o, "sliding_window", json_integer(4096)))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return lf_hf_write_layers(c, o, err);
}

/* query_pre_attn_scalar is an int there, and so a scale that none gives cannot be written. */
static int write_scale(const lf_model_config *c, json_t *o, lf_err *err)
{
    double x = c->attn_scale > 0 ? 1 / (c->attn_scale * c->attn_scale) : (double)c->head_dim;
    if (fabs(x - round(x)) > 1e-6)
        return lf_fail(
            err, LF_EINVAL,
            "attn_scale = %g is 1/sqrt of no whole number, which query_pre_attn_scalar is",
            c->attn_scale);
    int rc = lf_hf_write_rope(c, o, err);
    if (rc == 0 &&
        json_object_set_new(o, "query_pre_attn_scalar", json_integer((json_int_t)round(x))))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

static int write_gemma2(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = write_scale(c, o, err);
    const bool own = c->sliding_window > 0 && lf_model_layers_are(c, lf_model_layer_mixer, "wf*");
    return rc != 0 || own ? rc : write_windows(c, o, err);
}

static int write_gemma3(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (c->attn_softcap > 0)
        return lf_fail(err, LF_EINVAL,
                       "attn_softcap: transformers leaves it out in models of type gemma3_text");
    if (c->sliding_window > 0 && !(c->rope_local_theta > 0))
        return lf_fail(err, LF_EINVAL,
                       "rope_local_theta = 0: models of type gemma3_text have one for windows");
    int rc = write_scale(c, o, err);
    if (rc == 0 && c->sliding_window > 0 &&
        json_object_set_new(o, "rope_local_base_freq", json_real(c->rope_local_theta)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    const int64_t period = lf_hf_full_period(c, 6);
    if (rc == 0 && (c->sliding_window == 0 || period == 0))
        return write_windows(c, o, err);
    if (rc == 0 && json_object_set_new(o, "sliding_window_pattern", json_integer(period)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

#define GEMMA_ROWS                                                                                 \
    KIN_INPUT_ROWS, KIN_QK_NORM_ROWS,                                                              \
        {"model.layers.{L}.mlp.gate_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.gate.weight",       \
         NULL},                                                                                    \
        {"model.layers.{L}.mlp.up_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.up.weight", NULL},    \
        {"model.layers.{L}.mlp.down_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight",       \
         NULL},                                                                                    \
        {"model.norm.weight", LF_MAP_COPY, "final_norm.weight", NULL},                             \
        {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},                                      \
        {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},                          \
    {                                                                                              \
        "model.layers.{L}.self_attn.rotary_emb.inv_freq", LF_MAP_IGNORED,                          \
            "follows from rope_theta", NULL                                                        \
    }

static const struct lf_map_row gemma_rows[] = {
    GEMMA_ROWS,
    {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight",
     NULL},
    {0},
};
static const struct lf_map_row gemma2_rows[] = {
    GEMMA_ROWS,
    {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY,
     "layers.{L}.attn_post_norm.weight", NULL},
    {"model.layers.{L}.pre_feedforward_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight",
     NULL},
    {"model.layers.{L}.post_feedforward_layernorm.weight", LF_MAP_COPY,
     "layers.{L}.mlp_post_norm.weight", NULL},
    {0},
};

static const struct lf_map_row vault_rows[] = {
    GEMMA_ROWS,
    {"model.layers.{L}.pre_feedforward_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight",
     NULL},
    {0},
};

const struct lf_hf_family lf_hf_gemma = {
    .name = "gemma",
    .model_type = "gemma",
    .architecture = "GemmaForCausalLM",
    .classifier = "GemmaForSequenceClassification",
    .prefix = "model.",
    .switches = gemma_switches,
    .keys = gemma_keys,
    .rows = gemma_rows,
    .read = read_gemma1,
    .write = write_gemma,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
const struct lf_hf_family lf_hf_gemma2 = {
    .name = "gemma2",
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .classifier = "Gemma2ForSequenceClassification",
    .prefix = "model.",
    .switches = gemma2_switches,
    .keys = gemma2_keys,
    .rows = gemma2_rows,
    .read = read_gemma2,
    .write = write_gemma2,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
const struct lf_hf_family lf_hf_vaultgemma = {
    .name = "vaultgemma",
    .model_type = "vaultgemma",
    .architecture = "VaultGemmaForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = vault_switches,
    .keys = gemma2_keys,
    .rows = vault_rows,
    .read = read_gemma2,
    .write = write_gemma2,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
const struct lf_hf_family lf_hf_gemma3 = {
    .name = "gemma3",
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .classifier = "Gemma3TextForSequenceClassification",
    .prefix = "model.",
    .switches = gemma3_switches,
    .keys = gemma3_keys,
    .rows = gemma2_rows,
    .read = read_gemma3,
    .write = write_gemma3,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
