/* SPDX-License-Identifier: Apache-2.0
 *
 * The text model of Gemma 3n: plain norms, values that are normalised, last layers that read the
 * keys and values of others, channels of a token for each layer, several streams (AltUp), a
 * low-rank branch beside attention (LAuReL), gates of the first layers that are cut. */
#include <math.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

static const char *const switches[] = {"norm=rms",   "norm_offset=0",  "position=rope",
                                       "mlp=glu",    "block=sandwich", "qk_norm=yes",
                                       "v_norm=yes", "attn_scale=1",   NULL};

static const struct lf_hf_key keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "262400"},
    {"hidden_size", LF_HF_NUMBER, "hidden", "2048"},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", "35"},
    {"num_attention_heads", LF_HF_NUMBER, "heads", "8"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "2"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "256"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"hidden_activation", LF_HF_ACT, "activation", "\"gelu_pytorch_tanh\""},
    {"final_logit_softcapping", LF_HF_NUMBER, "logit_softcap", "30"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "32768"},
    {"sliding_window", LF_HF_NUMBER, "sliding_window", "512"},
    {"num_kv_shared_layers", LF_HF_NUMBER, "kv_shared_layers", "15"},
    {"altup_num_inputs", LF_HF_NUMBER, "altup_streams", "4"},
    {"laurel_rank", LF_HF_NUMBER, "laurel_rank", "64"},
    {"altup_active_idx", LF_HF_SAME, NULL, "0"},
    {"altup_correct_scale", LF_HF_SAME, NULL, "true"},
    /* the class cuts coefficients in place to this, which published ones are far below */
    {"altup_coef_clip", LF_HF_INERT, NULL, "120.0"},
    {"altup_lr_multiplier", LF_HF_INERT, NULL, NULL}, /* published files have both */
    {"query_pre_attn_scalar", LF_HF_INERT, NULL, NULL},
    {"cache_implementation", LF_HF_INERT, NULL, NULL},
    {0},
};

/* A width for each layer, or one for all. */
static int read_ffn(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *given = lf_hf_take(r, "intermediate_size"), *first = json_array_get(given, 0);
    for (size_t i = 0; i < json_array_size(given); i++)
        if (!json_equal(first, json_array_get(given, i)))
            return lf_fail(err, LF_ENOTSUP,
                           "%s: intermediate_size has several widths: layers of one model have one",
                           r->path);
    if (json_is_array(given) && (int64_t)json_array_size(given) != c->layers)
        return lf_fail(err, LF_EFORMAT, "%s: intermediate_size has %zu widths for %lld layers",
                       r->path, json_array_size(given), (long long)c->layers);
    if (json_is_array(given))
        given = first;
    if (given && !json_is_integer(given))
        return lf_fail(err, LF_EFORMAT, "%s: intermediate_size is no number of channels", r->path);
    return lf_hf_set_number(r, c, "intermediate_size", "ffn",
                            given ? (double)json_integer_value(given) : 16384, err);
}

/* The first ten of more than ten layers are cut by 0.95 where the file does not say. */
static int read_sparsity(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *given = lf_hf_take(r, "activation_sparsity_pattern"), *list = json_array();
    const size_t all = (size_t)c->layers;
    size_t n = 0;
    int rc = list ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0 && given && (!json_is_array(given) || json_array_size(given) != all))
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: activation_sparsity_pattern is no list of a share for each layer",
                     r->path);
    for (size_t i = 0; i < all && rc == 0; i++) {
        json_t *share = given ? json_incref(json_array_get(given, i))
                              : json_real(i < 10 && all > 10 ? 0.95 : 0);
        n = json_number_value(share) > 0 ? i + 1 : n;
        if (json_array_append_new(list, share))
            rc = lf_fail(err, LF_ENOMEM, "out of memory");
    }
    while (rc == 0 && json_array_size(list) > n)
        json_array_remove(list, n);
    if (rc == 0 && n)
        rc = lf_hf_set_list(r, c, "activation_sparsity_pattern", "gate_sparsity", list, err);
    json_decref(list);
    return rc;
}

/* Files of transformers 5 have rope_parameters with an object per kind of layer; published ones
 * say rope_theta, rope_scaling and rope_local_base_freq. */
static int read_rope(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *both = lf_hf_take(r, "rope_parameters"),
           *full = json_object_get(both, "full_attention");
    double local = 10000;
    int rc = lf_hf_get_f64(r, "rope_local_base_freq", &local, err);
    if (rc == 0 && both && !json_is_object(full))
        rc = lf_fail(err, LF_EFORMAT, "%s: rope_parameters has no full_attention", r->path);
    if (rc == 0)
        rc = lf_hf_read_local_rope(r, json_object_get(both, "sliding_attention"), &local, err);
    if (rc == 0 && c->sliding_window > 0)
        rc = lf_hf_set_number(r, c, "rope_local_base_freq", "rope_local_theta", local, err);
    const struct lf_hf_rope as = {.theta = 1000000, .original = -1, .params = full};
    return rc != 0 ? rc : lf_hf_read_rope_as(r, c, &as, err);
}

static int read_per_layer(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t width = 256, rows = 262144;
    int rc = lf_hf_get_i64(r, "hidden_size_per_layer_input", &width, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "vocab_size_per_layer_input", &rows, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "hidden_size_per_layer_input", "per_layer_dim", (double)width,
                              err);
    return rc != 0 || rows == c->vocab ? rc
                                       : lf_hf_set_number(r, c, "vocab_size_per_layer_input",
                                                          "per_layer_vocab", (double)rows, err);
}

static int read_gemma3n(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const int64_t window = c->sliding_window > 0 ? c->sliding_window : -1;
    int rc = lf_hf_set_number(r, c, "hidden_size", "embed_scale", sqrt((double)c->hidden), err);
    if (rc == 0)
        rc = read_ffn(r, c, err);
    if (rc == 0)
        rc = lf_hf_read_layers(r, c, window, false, &(struct lf_hf_slide){.period = 5}, err);
    if (rc == 0)
        rc = read_rope(r, c, err);
    if (rc == 0)
        rc = read_per_layer(r, c, err);
    return rc != 0 ? rc : read_sparsity(r, c, err);
}

/* A list of a width and a share for each layer. */
static json_t *lists_of(const lf_model_config *c)
{
    json_t *widths = json_array(), *shares = json_array();
    int bad = !widths || !shares;
    for (int64_t l = 0; l < c->layers && !bad; l++)
        bad = json_array_append_new(widths, json_integer(c->ffn)) ||
              json_array_append_new(shares, json_real(lf_model_layer_sparsity(c, l)));
    json_t *o =
        bad ? NULL
            : json_pack("{s:O, s:O, s:I, s:I}", "intermediate_size", widths,
                        "activation_sparsity_pattern", shares, "hidden_size_per_layer_input",
                        (json_int_t)c->per_layer_dim, "vocab_size_per_layer_input",
                        (json_int_t)(c->per_layer_vocab ? c->per_layer_vocab : c->vocab));
    json_decref(widths);
    json_decref(shares);
    return o;
}

/* What a model without it cannot be written as. */
static int check_parts(const lf_model_config *c, lf_err *err)
{
    const struct {
        const char *key;
        bool set;
    } always[] = {{"altup_streams", c->altup_streams > 0},
                  {"laurel_rank", c->laurel_rank > 0},
                  {"per_layer_dim", c->per_layer_dim > 0},
                  {"logit_softcap", c->logit_softcap > 0}};
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (!always[i].set)
            return lf_fail(err, LF_EINVAL, "%s = 0: models of type gemma3n_text always have one",
                           always[i].key);
    return c->hidden % c->heads == 0
               ? 0
               : lf_fail(err, LF_EINVAL,
                         "heads = %lld do not divide hidden = %lld, as they do in "
                         "models of type gemma3n_text",
                         (long long)c->heads, (long long)c->hidden);
}

static int write_gemma3n(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (check_parts(c, err) != 0)
        return LF_EINVAL;
    json_t *lists = lists_of(c);
    const int bad =
        !lists || json_object_update(o, lists) ||
        (c->sliding_window == 0 && json_object_set_new(o, "sliding_window", json_integer(512)));
    json_decref(lists);
    int rc = bad ? lf_fail(err, LF_ENOMEM, "out of memory") : lf_hf_write_rope_kinds(c, o, err);
    return rc != 0 ? rc : lf_hf_write_layers(c, o, err);
}

#define OF_LAYER "model.layers.{L}."
/* Streams count from 1 here, and there those beside the first do from 0. */
#define STREAM(theirs, ours)                                                                       \
    {"model.altup_projections." theirs ".weight", LF_MAP_COPY, "altup.in." ours ".weight", NULL},  \
    {                                                                                              \
        "model.altup_unembed_projections." theirs ".weight", LF_MAP_COPY,                          \
            "altup.out." ours ".weight", NULL                                                      \
    }
static const struct lf_map_row rows[] = {
    GEMMA_LATE_ROWS,
    {OF_LAYER "laurel.linear_left.weight", LF_MAP_COPY, "layers.{L}.laurel.in.weight", NULL},
    {OF_LAYER "laurel.linear_right.weight", LF_MAP_COPY, "layers.{L}.laurel.out.weight", NULL},
    {OF_LAYER "laurel.post_laurel_norm.weight", LF_MAP_COPY, "layers.{L}.laurel.norm.weight", NULL},
    {OF_LAYER "altup.router_norm.weight", LF_MAP_COPY, "layers.{L}.altup.norm.weight", NULL},
    {OF_LAYER "altup.modality_router.weight", LF_MAP_COPY, "layers.{L}.altup.router.weight", NULL},
    {OF_LAYER "altup.prediction_coefs.weight", LF_MAP_COPY, "layers.{L}.altup.predict.weight",
     NULL},
    {OF_LAYER "altup.correction_coefs.weight", LF_MAP_COPY, "layers.{L}.altup.correct.weight",
     NULL},
    {OF_LAYER "altup.correct_output_scale", LF_MAP_COPY, "layers.{L}.altup.gain", NULL},
    STREAM("0", "1"),
    STREAM("1", "2"),
    STREAM("2", "3"),
    STREAM("3", "4"),
    STREAM("4", "5"),
    STREAM("5", "6"),
    STREAM("6", "7"),
    {0},
};

const struct lf_hf_family lf_hf_gemma3n = {
    .name = "gemma3n",
    .model_type = "gemma3n_text",
    .architecture = "Gemma3nForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = switches,
    .keys = keys,
    .rows = rows,
    .read = read_gemma3n,
    .write = write_gemma3n,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
