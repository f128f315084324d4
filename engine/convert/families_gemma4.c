/* SPDX-License-Identifier: Apache-2.0
 *
 * The text model of Gemma 4: plain norms, layers with a window whose heads are narrower than those
 * of the others, values that are normalised and may be the keys, last layers that read the keys and
 * values of others, channels of a token for each layer, experts beside the MLP, a number that
 * multiplies each layer. */
#include <math.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

static const char *const gemma4_switches[] = {
    "norm=rms",    "norm_offset=0", "position=rope", "mlp=glu",        "block=sandwich",
    "qk_norm=yes", "v_norm=yes",    "attn_scale=1",  "layer_gain=yes", NULL};

#define GEMMA4_KEYS                                                                                \
    {"vocab_size", LF_HF_NUMBER, "vocab", "262144"},                                               \
        {"hidden_size", LF_HF_NUMBER, "hidden", "2304"},                                           \
        {"intermediate_size", LF_HF_NUMBER, "ffn", "9216"},                                        \
        {"num_hidden_layers", LF_HF_NUMBER, "layers", "30"},                                       \
        {"num_attention_heads", LF_HF_NUMBER, "heads", "8"},                                       \
        {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},                                        \
        {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},                              \
        {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},                             \
        {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},                                   \
        {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},                                  \
        {"hidden_activation", LF_HF_ACT, "activation", "\"gelu_pytorch_tanh\""},                   \
        {"final_logit_softcapping", LF_HF_NUMBER, "logit_softcap", "null"},                        \
        {"num_kv_shared_layers", LF_HF_NUMBER, "kv_shared_layers", "0"},                           \
        {"attention_k_eq_v", LF_HF_BOOL, "keys_as_values", "false"},                               \
    {                                                                                              \
        "cache_implementation", LF_HF_INERT, NULL, NULL                                            \
    }
static const struct lf_hf_key gemma4_keys[] = {
    GEMMA4_KEYS,
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"sliding_window", LF_HF_NUMBER, "sliding_window", "512"},
    {0},
};
static const struct lf_hf_key unified_keys[] = {
    GEMMA4_KEYS,
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "262144"},
    {"sliding_window", LF_HF_NUMBER, "sliding_window", "1024"},
    {"enable_moe_block", LF_HF_UNREAD, NULL, "false"}, /* of published files, from here on */
    {"hidden_size_per_layer_input", LF_HF_UNREAD, NULL, "0"},
    {"vocab_size_per_layer_input", LF_HF_INERT, NULL, NULL},
    {0},
};

/* Sizes of layers with a window, and of the others. */
struct heads {
    int64_t window_dim, full_dim, window_groups, full_groups;
};

/* The layers that attend in full, which all differ from those with a window in the same way. */
static int read_overrides(const lf_hf_reader *r, const lf_model_config *c, json_t *all,
                          struct heads *h, lf_err *err)
{
    json_t *first = NULL, *v;
    const char *key;
    int64_t n = 0;
    if (!json_is_object(all))
        return lf_fail(err, LF_EFORMAT, "%s: per_layer_config is not an object", r->path);
    json_object_foreach(all, key, v)
    {
        int64_t l = -1;
        if (lf_parse_i64(&l, key, NULL) != 0 || l < 0 || l >= c->layers ||
            lf_model_layer_window(c, l) > 0 || (first && !json_equal(first, v)))
            return lf_fail(err, LF_ENOTSUP,
                           "%s: per_layer_config: '%.40s' is no full_attention layer that is like "
                           "the others",
                           r->path, key);
        first = first ? first : v;
        n++;
    }
    for (int64_t l = 0; l < c->layers; l++)
        n -= lf_model_layer_window(c, l) == 0;
    if (n != 0 && first)
        return lf_fail(err, LF_ENOTSUP,
                       "%s: per_layer_config names some full_attention layers and not others",
                       r->path);
    json_object_foreach(first, key, v)
    {
        int64_t *to = strcmp(key, "head_dim") == 0              ? &h->full_dim
                      : strcmp(key, "num_key_value_heads") == 0 ? &h->full_groups
                                                                : NULL;
        if (!to || !json_is_integer(v))
            return lf_fail(err, LF_ENOTSUP, "%s: per_layer_config: '%.60s' is not supported",
                           r->path, key);
        *to = json_integer_value(v);
    }
    return 0;
}

/* Files of transformers 5.23 have per_layer_config in place of global_head_dim and
 * num_global_key_value_heads. */
static int read_heads(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    struct heads h = {256, 512, 4, 0};
    json_t *all = lf_hf_take(r, "per_layer_config");
    int rc = lf_hf_get_i64(r, "head_dim", &h.window_dim, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "num_key_value_heads", &h.window_groups, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "global_head_dim", &h.full_dim, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "num_global_key_value_heads", &h.full_groups, err);
    if (rc == 0 && (all || !c->keys_as_values))
        h.full_groups = 0; /* which the class does not read then */
    if (rc == 0 && all) {
        h.full_dim = h.window_dim;
        rc = read_overrides(r, c, all, &h, err);
    }
    if (rc == 0 && h.full_groups == 0)
        h.full_groups = h.window_groups;
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "global_head_dim", "head_dim", (double)h.full_dim, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "num_key_value_heads", "kv_heads", (double)h.full_groups, err);
    if (rc == 0 && c->sliding_window > 0 && h.window_dim != h.full_dim)
        rc = lf_hf_set_number(r, c, "head_dim", "window_head_dim", (double)h.window_dim, err);
    if (rc == 0 && c->sliding_window > 0 && h.window_groups != h.full_groups)
        rc = lf_hf_set_number(r, c, "num_key_value_heads", "window_kv_heads",
                              (double)h.window_groups, err);
    return rc;
}

static int read_rope(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *both = lf_hf_take(r, "rope_parameters"),
           *usual =
               both ? json_incref(both)
                    : json_pack("{s:{s:s, s:f, s:f}}", "full_attention", "rope_type",
                                "proportional", "partial_rotary_factor", 0.25, "rope_theta", 1e6),
           *full = json_object_get(usual, "full_attention");
    const char *type = json_string_value(json_object_get(full, "rope_type"));
    const struct lf_hf_rope as = {
        .theta = 1e6, .part = type && strcmp(type, "proportional") == 0, .params = full};
    double local = 10000;
    int rc = usual ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0 && !json_is_object(full))
        rc = lf_fail(err, LF_EFORMAT, "%s: rope_parameters has no full_attention", r->path);
    if (rc == 0 && c->sliding_window > 0)
        rc = lf_hf_read_local_rope(r, json_object_get(both, "sliding_attention"), &local, err);
    if (rc == 0 && c->sliding_window > 0)
        rc = lf_hf_set_number(r, c, "sliding_attention", "rope_local_theta", local, err);
    rc = rc != 0 ? rc : lf_hf_read_rope_as(r, c, &as, err);
    json_decref(usual);
    return rc;
}

/* Channels of a token for each layer, whose table has a row for each token of the vocabulary. */
static int read_per_layer(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t width = 256, rows = 262144;
    json_t *given = json_object_get(r->o, "hidden_size_per_layer_input");
    if (json_is_null(given))
        width = 0;
    int rc = lf_hf_get_i64(r, "hidden_size_per_layer_input", &width, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "vocab_size_per_layer_input", &rows, err);
    if (rc == 0 && width && rows != c->vocab)
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: vocab_size_per_layer_input = %lld, but vocab_size = %lld: tokens without "
                     "channels of their own are not supported",
                     r->path, (long long)rows, (long long)c->vocab);
    return rc != 0 ? rc
                   : lf_hf_set_number(r, c, "hidden_size_per_layer_input", "per_layer_dim",
                                      (double)width, err);
}

static int read_experts(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    static const char *const keys[][3] = {{"num_experts", "experts"},
                                          {"top_k_experts", "experts_per_token"},
                                          {"moe_intermediate_size", "expert_ffn"}};
    static const char *const settings[][2] = {{"layer_mlps", "b*"},
                                              {"router_renorm", "yes"},
                                              {"router_norm", "yes"},
                                              {"expert_gain", "yes"}};
    bool on = false;
    int rc = lf_hf_get_bool(r, "enable_moe_block", &on, err);
    for (size_t i = 0; i < sizeof keys / sizeof *keys && rc == 0; i++) {
        int64_t n = 0;
        rc = lf_hf_get_i64(r, keys[i][0], &n, err); /* read by nobody without experts */
        if (rc == 0 && on && n < 1)
            rc = lf_fail(err, LF_EFORMAT, "%s: enable_moe_block needs %s", r->path, keys[i][0]);
        if (rc == 0 && on)
            rc = lf_hf_set_number(r, c, keys[i][0], keys[i][1], (double)n, err);
    }
    for (size_t i = 0; i < sizeof settings / sizeof *settings && rc == 0 && on; i++)
        rc = lf_hf_set(r, c, "enable_moe_block", settings[i][0], settings[i][1], err);
    return rc;
}

/* vision: tokens of pictures see each other, of which the text model has none. */
static int read_mask(lf_hf_reader *r, lf_err *err)
{
    json_t *v = lf_hf_take(r, "use_bidirectional_attention");
    const char *text = json_string_value(v);
    if (!v || (text && strcmp(text, "vision") == 0))
        return 0;
    return lf_fail(err, LF_ENOTSUP,
                   "%s: use_bidirectional_attention is neither null nor vision: a decoder sees "
                   "what is before a token alone",
                   r->path);
}

/* The class makes the last layer attend in full, whatever layer_types says. */
static int read_layers(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const int64_t window = c->sliding_window > 0 ? c->sliding_window : -1;
    int rc = lf_hf_read_layers(r, c, window, false, &(struct lf_hf_slide){.period = 6}, err);
    if (rc != 0 || !lf_model_layer_window(c, c->layers - 1))
        return rc;
    return lf_fail(err, LF_ENOTSUP,
                   "%s: layer_types: the last layer slides, which the class turns into "
                   "full_attention: say so",
                   r->path);
}

/* What both classes have. */
static int read_common(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool wide = false;
    int rc = lf_hf_set_number(r, c, "hidden_size", "embed_scale", sqrt((double)c->hidden), err);
    if (rc == 0)
        rc = read_layers(r, c, err);
    if (rc == 0)
        rc = read_heads(r, c, err);
    if (rc == 0)
        rc = read_rope(r, c, err);
    if (rc == 0)
        rc = read_mask(r, err);
    if (rc == 0)
        rc = lf_hf_get_bool(r, "use_double_wide_mlp", &wide, err);
    if (rc == 0 && wide && c->kv_shared_layers)
        rc =
            lf_hf_set_number(r, c, "use_double_wide_mlp", "kv_shared_ffn", 2 * (double)c->ffn, err);
    return rc;
}

static int read_gemma4(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = read_common(r, c, err);
    if (rc == 0)
        rc = read_per_layer(r, c, err);
    return rc != 0 ? rc : read_experts(r, c, err);
}

static int add_sizes(json_t *o, json_t *sizes, lf_err *err)
{
    const int bad = !sizes || json_object_update(o, sizes);
    json_decref(sizes);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static int write_common(const lf_model_config *c, json_t *o, lf_err *err)
{
    const int64_t groups = c->window_kv_heads ? c->window_kv_heads : c->kv_heads,
                  dim = c->window_head_dim ? c->window_head_dim : c->head_dim;
    int rc = add_sizes(o,
                       json_pack("{s:I, s:I, s:I, s:b, s:n}", "head_dim", (json_int_t)dim,
                                 "global_head_dim", (json_int_t)c->head_dim, "num_key_value_heads",
                                 (json_int_t)groups, "use_double_wide_mlp", c->kv_shared_ffn > 0,
                                 "use_bidirectional_attention"),
                       err);
    if (rc == 0 && c->keys_as_values)
        rc = add_sizes(o, json_pack("{s:I}", "num_global_key_value_heads", (json_int_t)c->kv_heads),
                       err);
    if (rc == 0 && c->sliding_window == 0)
        rc = add_sizes(o, json_pack("{s:i}", "sliding_window", 512), err);
    if (rc == 0)
        rc = lf_hf_write_rope_kinds(c, o, err);
    return rc != 0 ? rc : lf_hf_write_layers(c, o, err);
}

static int write_gemma4(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = write_common(c, o, err);
    if (rc == 0)
        rc = add_sizes(o,
                       json_pack("{s:I, s:I, s:b}", "hidden_size_per_layer_input",
                                 (json_int_t)c->per_layer_dim, "vocab_size_per_layer_input",
                                 (json_int_t)c->vocab, "enable_moe_block", c->experts > 0),
                       err);
    if (rc == 0 && c->experts)
        rc = add_sizes(o,
                       json_pack("{s:I, s:I, s:I}", "num_experts", (json_int_t)c->experts,
                                 "top_k_experts", (json_int_t)c->experts_per_token,
                                 "moe_intermediate_size", (json_int_t)c->expert_ffn),
                       err);
    return rc;
}

#define OF_LAYER "model.layers.{L}."
static const struct lf_map_row gemma4_rows[] = {
    GEMMA_LATE_ROWS,
    {OF_LAYER "post_feedforward_layernorm_1.weight", LF_MAP_COPY, "layers.{L}.mlp.out_norm.weight",
     NULL},
    {OF_LAYER "pre_feedforward_layernorm_2.weight", LF_MAP_COPY, "layers.{L}.moe.norm.weight",
     NULL},
    {OF_LAYER "post_feedforward_layernorm_2.weight", LF_MAP_COPY, "layers.{L}.moe.out_norm.weight",
     NULL},
    {OF_LAYER "router.proj.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL},
    {OF_LAYER "router.scale", LF_MAP_COPY, "layers.{L}.moe.router.norm.weight", NULL},
    {OF_LAYER "router.per_expert_scale", LF_MAP_COPY, "layers.{L}.moe.router.gain", NULL},
    {OF_LAYER "experts.gate_up_proj", LF_MAP_STACK,
     "blocks=experts layers.{L}.moe.experts.gate.weight layers.{L}.moe.experts.up.weight", NULL},
    {OF_LAYER "experts.down_proj", LF_MAP_STACK,
     "blocks=experts layers.{L}.moe.experts.down.weight", NULL},
    {OF_LAYER "layer_scalar", LF_MAP_COPY, "layers.{L}.gain", NULL},
    {0},
};

const struct lf_hf_family lf_hf_gemma4 = {
    .name = "gemma4",
    .model_type = "gemma4_text",
    .architecture = "Gemma4ForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = gemma4_switches,
    .keys = gemma4_keys,
    .rows = gemma4_rows,
    .read = read_gemma4,
    .write = write_gemma4,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* The text model of Gemma 4 12B, whose class has neither experts nor channels for each layer. */
const struct lf_hf_family lf_hf_gemma4_unified = {
    .name = "gemma4-unified",
    .model_type = "gemma4_unified_text",
    .architecture = "Gemma4UnifiedForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = gemma4_switches,
    .keys = unified_keys,
    .rows = gemma4_rows,
    .read = read_common,
    .write = write_common,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
