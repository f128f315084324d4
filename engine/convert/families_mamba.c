/* SPDX-License-Identifier: Apache-2.0
 *
 * Models with Mamba-2 layers: Mamba-2 itself, Bamba, Granite 4, Nemotron-H, Falcon-H1. Their
 * projections and convolutions are one tensor each, [gate; x; B; C; dt] and [x; B; C], which are
 * z, v, k, q and a of ours (engine/model/mixer.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/families_kin.h"

/* ---- what they share ---- */

#define MAMBA "norm=rms", "activation=silu", "mlp=glu", "scan_gate=silu", "scan_norm=after_gate"

/* Files without it have no upper end of steps: it is infinite. */
#define STEP_LIMIT "time_step_limit"

#define MAMBA_ROWS(layer)                                                                          \
    {layer ".in_proj.{P}", LF_MAP_STACK,                                                           \
     "layers.{L}.scan.z.{P} layers.{L}.scan.v.{P} layers.{L}.scan.k.{P} layers.{L}.scan.q.{P} "    \
     "layers.{L}.scan.a.{P}",                                                                      \
     NULL},                                                                                        \
        {layer ".conv1d.weight", LF_MAP_DEPTHWISE,                                                 \
         "layers.{L}.scan.conv_v.weight layers.{L}.scan.conv_k.weight "                            \
         "layers.{L}.scan.conv_q.weight",                                                          \
         NULL},                                                                                    \
        {layer ".conv1d.bias", LF_MAP_STACK,                                                       \
         "layers.{L}.scan.conv_v.bias layers.{L}.scan.conv_k.bias layers.{L}.scan.conv_q.bias",    \
         NULL},                                                                                    \
        {layer ".dt_bias", LF_MAP_COPY, "layers.{L}.scan.dt_bias", NULL},                          \
        {layer ".A_log", LF_MAP_COPY, "layers.{L}.scan.a_log", NULL},                              \
        {layer ".D", LF_MAP_COPY, "layers.{L}.scan.skip", NULL},                                   \
        {layer ".norm.weight", LF_MAP_COPY, "layers.{L}.scan.norm.weight", NULL},                  \
    {                                                                                              \
        layer ".out_proj.{P}", LF_MAP_COPY, "layers.{L}.scan.o.{P}", NULL                          \
    }

/* The keys of Bamba and those after it. */
#define MAMBA_KEYS                                                                                 \
    {"mamba_n_heads", LF_HF_NUMBER, "scan_heads", "128"},                                          \
        {"mamba_n_groups", LF_HF_NUMBER, "scan_groups", "1"},                                      \
        {"mamba_d_state", LF_HF_NUMBER, "scan_key_dim", "256"},                                    \
        {"mamba_d_conv", LF_HF_NUMBER, "scan_conv", "4"},                                          \
        {"mamba_conv_bias", LF_HF_BOOL, "scan_conv_bias", "true"},                                 \
        {"mamba_proj_bias", LF_HF_BOOL, "scan_bias", "false"},                                     \
        {"mamba_chunk_size", LF_HF_INERT, NULL, NULL},                                             \
        {"num_logits_to_keep", LF_HF_INERT, NULL, NULL},                                           \
        {"hidden_act", LF_HF_SAME, NULL, "\"silu\""}, /* of the convolution too */                 \
        {"vocab_size", LF_HF_NUMBER, "vocab", NULL},                                               \
        {"hidden_size", LF_HF_NUMBER, "hidden", NULL},                                             \
        {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},                                       \
        {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},                                      \
        {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},                                   \
        {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},                                 \
        {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},                             \
    {                                                                                              \
        "attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"                                 \
    }

/* How a class says the width of its scans. */
struct width {
    const char *head;  /* key of the width of a head */
    int64_t head_def;  /* where it is absent; 0: it follows from the others */
    const char *times; /* all heads are so many times as wide as the stream, by default twice */
    const char *whole; /* width of all heads, which goes before `times`; NULL: there is none */
    int64_t whole_def;
};

static const struct width mamba2_width = {"head_dim", 64, "expand", NULL, 0},
                          hybrid_width = {"mamba_d_head", 0, "mamba_expand", NULL, 0},
                          falcon_width = {"mamba_d_head", 0, "mamba_expand", "mamba_d_ssm", 1024};

static int read_width(lf_hf_reader *r, lf_model_config *c, const struct width *w, lf_err *err)
{
    const char *word = json_string_value(json_object_get(r->o, w->head));
    int64_t head = w->head_def, times = 2, whole = 0;
    int rc = 0;
    if (w->whole && !json_object_get(r->o, w->whole))
        whole = w->whole_def;
    if (word && strcmp(word, "auto") == 0)
        lf_hf_take(r, w->head);
    else
        rc = lf_hf_get_i64(r, w->head, &head, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, w->times, &times, err);
    if (rc == 0 && w->whole)
        rc = lf_hf_get_i64(r, w->whole, &whole, err);
    if (rc != 0)
        return rc;
    if (whole == 0)
        whole = times * c->hidden;
    if (c->scan_heads < 1 || c->scan_groups < 1 || c->scan_key_dim < 1 || c->scan_conv < 1)
        return lf_fail(err, LF_EFORMAT,
                       "%s: heads, groups, states and taps of Mamba-2 are 1 or more", r->path);
    if (head == 0)
        head = whole / c->scan_heads;
    if (head < 1 || head * c->scan_heads != whole)
        return lf_fail(err, LF_EFORMAT,
                       "%s: %s: %lld heads of Mamba-2 are not %lld channels together", r->path,
                       w->head, (long long)c->scan_heads, (long long)whole);
    return lf_hf_set_number(r, c, w->head, "scan_value_dim", (double)head, err);
}

static int write_width(const lf_model_config *c, json_t *o, const struct width *w, lf_err *err)
{
    const int64_t whole = c->scan_heads * c->scan_value_dim;
    if (!w->whole && whole % c->hidden)
        return lf_fail(err, LF_EINVAL,
                       "scan_heads * scan_value_dim = %lld: in this family it is a multiple of "
                       "hidden = %lld (%s)",
                       (long long)whole, (long long)c->hidden, w->times);
    int bad = json_object_set_new(o, w->head, json_integer(c->scan_value_dim));
    if (w->whole)
        bad = bad || json_object_set_new(o, w->whole, json_integer(whole));
    else
        bad = bad || json_object_set_new(o, w->times, json_integer(whole / c->hidden));
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* A number that may be infinite, as transformers writes it (source.c makes the same of files that
 * say so in their own way). */
static double number_or_inf(json_t *v)
{
    const char *word = json_string_value(json_object_get(v, "__float__"));
    if (json_is_number(v))
        return json_number_value(v);
    return word && strcmp(word, "Infinity") == 0 ? INFINITY : NAN;
}

/* [least, most]: steps are cut there. */
static int read_steps(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const bool there = json_object_get(r->o, STEP_LIMIT);
    json_t *v = lf_hf_take(r, STEP_LIMIT);
    const double least = number_or_inf(json_array_get(v, 0)),
                 most = number_or_inf(json_array_get(v, 1));
    if (!there)
        return 0;
    if (json_array_size(v) != 2 || !(least >= 0) || !(most > least) || isinf(least))
        return lf_fail(err, LF_EFORMAT,
                       "%s: %s is not the least and the most that a step is, [0.0, Infinity]",
                       r->path, STEP_LIMIT);
    int rc = lf_hf_set_number(r, c, STEP_LIMIT, "scan_step_min", least, err);
    return rc != 0
               ? rc
               : lf_hf_set_number(r, c, STEP_LIMIT, "scan_step_max", isinf(most) ? 0 : most, err);
}

static int write_steps(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *most = c->scan_step_max > 0 ? json_real(c->scan_step_max)
                                        : json_pack("{s:s}", "__float__", "Infinity");
    int bad =
        !most || json_object_set_new(o, STEP_LIMIT, json_pack("[f, o]", c->scan_step_min, most));
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* Norms of scans are over a group of heads each. */
static int read_scan(lf_hf_reader *r, lf_model_config *c, const struct width *w, lf_err *err)
{
    int rc = read_width(r, c, w, err);
    if (rc == 0 && c->scan_norm)
        rc = lf_hf_set_number(r, c, "n_groups", "scan_norm_parts", (double)c->scan_groups, err);
    return rc != 0 ? rc : read_steps(r, c, err);
}

static int write_scan(const lf_model_config *c, json_t *o, const struct width *w, lf_err *err)
{
    int rc = write_width(c, o, w, err);
    return rc != 0 ? rc : write_steps(c, o, err);
}

/* ---- Mamba-2 ---- */

static const char *const mamba2_switches[] = {
    MAMBA, "position=none", "layer_mixers=s*", "layer_mlps=n*", "heads=0", "ffn=0", NULL};

static const struct lf_hf_key mamba2_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_heads", LF_HF_NUMBER, "scan_heads", "128"},
    {"n_groups", LF_HF_NUMBER, "scan_groups", "8"},
    {"state_size", LF_HF_NUMBER, "scan_key_dim", "128"},
    {"conv_kernel", LF_HF_NUMBER, "scan_conv", "4"},
    {"use_conv_bias", LF_HF_BOOL, "scan_conv_bias", "true"},
    {"use_bias", LF_HF_BOOL, "scan_bias", "false"},
    {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.1"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    /* nothing in it counts tokens */
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "1048576"},
    {"hidden_act", LF_HF_SAME, NULL, "\"silu\""},
    {"residual_in_fp32", LF_HF_INERT, NULL, "true"},
    {"chunk_size", LF_HF_INERT, NULL, NULL},
    {"time_step_rank", LF_HF_INERT, NULL, NULL}, /* the class does not read it, here and below */
    {"intermediate_size", LF_HF_INERT, NULL, NULL},
    {"norm_before_gate", LF_HF_INERT, NULL, NULL},
    {"rms_norm", LF_HF_UNREAD, NULL, "true"},
    {"rescale_prenorm_residual", LF_HF_INERT, NULL, NULL}, /* of initial values, as these */
    {"time_step_min", LF_HF_INERT, NULL, NULL},
    {"time_step_max", LF_HF_INERT, NULL, NULL},
    {"time_step_floor", LF_HF_INERT, NULL, NULL},
    {"time_step_scale", LF_HF_INERT, NULL, NULL},
    {"time_step_init_scheme", LF_HF_INERT, NULL, NULL},
    {0},
};

static int read_mamba2(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return read_scan(r, c, &mamba2_width, err);
}

static int write_mamba2(const lf_model_config *c, json_t *o, lf_err *err)
{
    return write_scan(c, o, &mamba2_width, err);
}

static const struct lf_map_row mamba2_rows[] = {
    {"backbone.embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"backbone.layers.{L}.norm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight", NULL},
    MAMBA_ROWS("backbone.layers.{L}.mixer"),
    {"backbone.norm_f.weight", LF_MAP_COPY, "final_norm.weight", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

const struct lf_hf_family lf_hf_mamba2 = {
    .name = "mamba2",
    .model_type = "mamba2",
    .architecture = "Mamba2ForCausalLM",
    .native = true,
    .prefix = "backbone.",
    .switches = mamba2_switches,
    .keys = mamba2_keys,
    .rows = mamba2_rows,
    .read = read_mamba2,
    .write = write_mamba2,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Bamba ---- */

static const char *const bamba_switches[] = {MAMBA, "position=rope", "layer_mlps=d*", NULL};

static const struct lf_hf_key bamba_keys[] = {
    MAMBA_KEYS,
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "262144"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"attn_rotary_emb", LF_HF_INERT, NULL, NULL}, /* the class does not read it */
    {"z_loss_coefficient", LF_HF_INERT, NULL, NULL},
    {0},
};

/* Which layers attend. A list that names none is as good as no list. */
static int read_attending(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    static const char key[] = "attn_layer_indices";
    json_t *list = lf_hf_take(r, key);
    if (list && !json_is_array(list))
        return lf_fail(err, LF_EFORMAT, "%s: %s is not a list", r->path, key);
    char *letters = lf_calloc((size_t)c->layers + 1, 1, err);
    int rc = letters ? 0 : LF_ENOMEM;
    for (int64_t l = 0; l < c->layers && rc == 0; l++)
        letters[l] = LF_MIXER_SSD;
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        const json_int_t l = json_integer_value(json_array_get(list, i));
        if (!json_is_integer(json_array_get(list, i)))
            rc = lf_fail(err, LF_EFORMAT, "%s: %s holds what is no whole number", r->path, key);
        else if (l >= 0 && l < c->layers) /* there is none behind the last */
            letters[l] = LF_MIXER_FULL;
    }
    rc = rc != 0 ? rc : lf_hf_set_letters(r, c, key, "layer_mixers", letters, err);
    free(letters);
    return rc;
}

static int write_attending(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *list = json_array();
    int bad = !list;
    for (int64_t l = 0; l < c->layers && !bad; l++)
        if (lf_model_layer_mixer(c, l) == LF_MIXER_FULL)
            bad = json_array_append_new(list, json_integer(l));
    bad = bad || json_object_set(o, "attn_layer_indices", list);
    json_decref(list);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* Half of a head turns, whatever partial_rotary_factor says beside rope_parameters. */
static int read_bamba(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    static const char part[] = "partial_rotary_factor";
    const bool own = json_object_get(json_object_get(r->o, "rope_parameters"), part) ||
                     json_object_get(json_object_get(r->o, "rope_scaling"), part);
    int rc = read_attending(r, c, err);
    rc = rc != 0 ? rc : read_scan(r, c, &hybrid_width, err);
    rc = rc != 0
             ? rc
             : lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = 10000, .part = true}, err);
    return rc != 0 || own ? rc : lf_hf_set_number(r, c, part, "rope_fraction", 0.5, err);
}

static int write_bamba(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = write_attending(c, o, err);
    rc = rc != 0 ? rc : write_scan(c, o, &hybrid_width, err);
    rc = rc != 0 ? rc : lf_hf_write_rope(c, o, err);
    if (rc == 0 && !json_object_get(o, "rope_scaling") &&
        json_object_set_new(o, "rope_scaling", json_pack("{s:s}", "rope_type", "default")))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0 && json_object_set_new(json_object_get(o, "rope_scaling"), "partial_rotary_factor",
                                       json_real(c->rope_fraction)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

/* Layers of Bamba and Falcon-H1. */
#define BAMBA_ROWS                                                                                 \
    KIN_INPUT_ROWS, MAMBA_ROWS("model.layers.{L}.mamba"),                                          \
        {"model.layers.{L}.pre_ff_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight",    \
         NULL},                                                                                    \
        {"model.layers.{L}.feed_forward.gate_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.gate.{P}",    \
         NULL},                                                                                    \
        {"model.layers.{L}.feed_forward.up_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL}, \
        {"model.layers.{L}.feed_forward.down_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}",    \
         NULL},                                                                                    \
        {"model.final_layernorm.weight", LF_MAP_COPY, "final_norm.weight", NULL},                  \
        {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},                                      \
    {                                                                                              \
        "lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"                             \
    }

static const struct lf_map_row bamba_rows[] = {BAMBA_ROWS, {0}};

const struct lf_hf_family lf_hf_bamba = {
    .name = "bamba",
    .model_type = "bamba",
    .architecture = "BambaForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = bamba_switches,
    .keys = bamba_keys,
    .rows = bamba_rows,
    .read = read_bamba,
    .write = write_bamba,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Granite 4 ---- */

static const char *const granite_switches[] = {MAMBA, "router_score=softmax", "router_renorm=yes",
                                               NULL};

static const struct lf_hf_key granite_keys[] = {
    MAMBA_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},
    {"embedding_multiplier", LF_HF_NUMBER, "embed_scale", "1.0"},
    {"residual_multiplier", LF_HF_NUMBER, "residual_scale", "1.0"},
    {"attention_multiplier", LF_HF_NUMBER, "attn_scale", "1.0"},
    {"num_local_experts", LF_HF_NUMBER, "experts", "8"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "2"},
    {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.001"},
    {"normalization_function", LF_HF_UNREAD, NULL, "\"rmsnorm\""},
    {"init_method", LF_HF_INERT, NULL, NULL},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"mlp_bias", LF_HF_UNREAD, NULL, "false"},
    {0},
};

/* The first name of a letter is written. Those of transformers 5 are read too. */
static const struct lf_hf_mixer granite_mixers[] = {{"mamba", LF_MIXER_SSD},
                                                    {"attention", LF_MIXER_FULL},
                                                    {"linear_attention", LF_MIXER_SSD},
                                                    {"full_attention", LF_MIXER_FULL},
                                                    {0}};

/* Without experts the shared one is the MLP, and intermediate_size is of none. */
static int read_granite_mlps(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t ffn = 11008, shared = 1024;
    int rc = lf_hf_get_i64(r, "intermediate_size", &ffn, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "shared_intermediate_size", &shared, err);
    if (rc == 0 && shared < 1)
        rc = lf_fail(err, LF_EFORMAT, "%s: shared_intermediate_size = %lld", r->path,
                     (long long)shared);
    if (rc == 0 && c->experts == 0)
        return lf_hf_set_number(r, c, "shared_intermediate_size", "ffn", (double)shared, err);
    rc = rc != 0 ? rc : lf_hf_set_number(r, c, "intermediate_size", "expert_ffn", (double)ffn, err);
    return rc != 0 ? rc
                   : lf_hf_set_number(r, c, "shared_intermediate_size", "shared_ffn",
                                      (double)shared, err);
}

/* Only the word rope makes queries and keys turn. */
static int read_granite_turns(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    static const char *const unread[] = {"rope_theta", "rope_scaling", "rope_parameters",
                                         "partial_rotary_factor"};
    const char *word = json_string_value(lf_hf_take(r, "position_embedding_type"));
    const bool turns = word && strcmp(word, "rope") == 0;
    for (size_t i = 0; i < sizeof unread / sizeof *unread && !turns; i++)
        lf_hf_take(r, unread[i]);
    int rc = lf_hf_set(r, c, "position_embedding_type", "position", turns ? "rope" : "none", err);
    return rc != 0 || !turns ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int read_granite(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_logits_scaling(r, c, err);
    rc = rc != 0 ? rc : lf_hf_read_mixers(r, c, granite_mixers, "s*", err);
    rc = rc != 0 ? rc : read_scan(r, c, &hybrid_width, err);
    rc = rc != 0 ? rc : read_granite_mlps(r, c, err);
    return rc != 0 ? rc : read_granite_turns(r, c, err);
}

static int write_granite(const lf_model_config *c, json_t *o, lf_err *err)
{
    const bool turns = c->position == LF_POS_ROPE;
    const int64_t ffn = c->experts ? c->expert_ffn : c->ffn,
                  shared = c->experts ? c->shared_ffn : c->ffn;
    int rc = lf_hf_write_granite_scales(c, o, err);
    rc = rc != 0 ? rc : lf_hf_write_mixers(c, o, granite_mixers, err);
    rc = rc != 0 ? rc : write_scan(c, o, &hybrid_width, err);
    if (rc == 0 &&
        (json_object_set_new(o, "intermediate_size", json_integer(ffn)) ||
         json_object_set_new(o, "shared_intermediate_size", json_integer(shared)) ||
         json_object_set_new(o, "position_embedding_type", json_string(turns ? "rope" : "nope"))))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc != 0 || !turns ? rc : lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row granite_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_HEAD_ROWS,
    MAMBA_ROWS("model.layers.{L}.mamba"),
    GRANITE_EXPERT_ROWS,
    {"model.layers.{L}.shared_mlp.input_linear.weight", LF_MAP_STACK,
     "layers.{L}.moe.shared.gate.weight layers.{L}.moe.shared.up.weight", NULL},
    {"model.layers.{L}.shared_mlp.output_linear.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.down.weight", NULL},
    {"model.layers.{L}.shared_mlp.input_linear.weight", LF_MAP_STACK,
     "layers.{L}.mlp.gate.weight layers.{L}.mlp.up.weight", NULL},
    {"model.layers.{L}.shared_mlp.output_linear.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight",
     NULL},
    {0},
};

const struct lf_hf_family lf_hf_granite_hybrid = {
    .name = "granite-hybrid",
    .model_type = "granitemoehybrid",
    .architecture = "GraniteMoeHybridForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = granite_switches,
    .keys = granite_keys,
    .rows = granite_rows,
    .read = read_granite,
    .write = write_granite,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Nemotron-H ---- */

/* A layer is a mixer or an MLP alone. */
static const char *const nemotron_switches[] = {"norm=rms",
                                                "position=none",
                                                "mlp=plain",
                                                "scan_gate=silu",
                                                "scan_norm=after_gate",
                                                "router_bias=yes",
                                                "router_score=sigmoid",
                                                "shared_gate=no",
                                                NULL};

static const struct lf_hf_key nemotron_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", "21504"},
    {"num_attention_heads", LF_HF_NUMBER, "heads", "32"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "4096"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"mlp_hidden_act", LF_HF_ACT, "activation", "\"relu2\""},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"mamba_num_heads", LF_HF_NUMBER, "scan_heads", "128"},
    {"mamba_head_dim", LF_HF_NUMBER, "scan_value_dim", "64"},
    {"ssm_state_size", LF_HF_NUMBER, "scan_key_dim", "128"},
    {"n_groups|mamba_n_groups", LF_HF_NUMBER, "scan_groups", "8"},
    {"conv_kernel|mamba_d_conv", LF_HF_NUMBER, "scan_conv", "4"},
    {"use_conv_bias|mamba_conv_bias", LF_HF_BOOL, "scan_conv_bias", "true"},
    {"use_bias", LF_HF_BOOL, "scan_bias", "false"},
    {"mamba_hidden_act", LF_HF_SAME, NULL, "\"silu\""},
    /* the class cuts steps there, and not where time_step_limit says */
    {"time_step_min|mamba_dt_min", LF_HF_NUMBER, "scan_step_min", "0.001"},
    {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"n_routed_experts|num_local_experts", LF_HF_NUMBER, "experts", "8"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "2"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "7688"},
    {"moe_shared_expert_intermediate_size", LF_HF_NUMBER, "shared_ffn", "7688"},
    {"moe_latent_size", LF_HF_NUMBER, "expert_latent", "null"},
    {"n_group", LF_HF_NUMBER, "router_groups", "1"},
    {"topk_group", LF_HF_NUMBER, "router_top_groups", "1"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"routed_scaling_factor", LF_HF_NUMBER, "router_scale", "1.0"},
    {"sliding_window", LF_HF_SAME, NULL, "null"},
    {"hidden_dropout", LF_HF_UNREAD, NULL, "0.0"},
    {"num_nextn_predict_layers", LF_HF_INERT, NULL, "0"},
    {"mtp_layers_block_type", LF_HF_INERT, NULL, NULL},
    {"mtp_hybrid_override_pattern", LF_HF_INERT, NULL, NULL},
    {"num_hidden_layers", LF_HF_INERT, NULL, NULL}, /* the list of layers says it */
    {"residual_in_fp32", LF_HF_INERT, NULL, NULL},
    {"n_shared_experts", LF_HF_INERT, NULL, NULL}, /* the class does not read it, here and below */
    {"moe_shared_expert_overlap", LF_HF_INERT, NULL, NULL},
    {"time_step_limit|mamba_dt_limit", LF_HF_INERT, NULL, NULL},
    {"expand|mamba_expand", LF_HF_INERT, NULL, NULL},
    {"mamba_proj_bias", LF_HF_INERT, NULL, NULL},
    {"attention_head_dim", LF_HF_INERT, NULL, NULL},
    {"rms_norm_eps", LF_HF_INERT, NULL, NULL},
    {"norm_eps", LF_HF_INERT, NULL, NULL},
    {"rope_theta", LF_HF_INERT, NULL, NULL},
    {"rope_scaling", LF_HF_INERT, NULL, NULL},
    {"rope_parameters", LF_HF_INERT, NULL, NULL},
    {"partial_rotary_factor", LF_HF_INERT, NULL, NULL},
    {"time_step_max|mamba_dt_max", LF_HF_INERT, NULL, NULL}, /* of initial values, as these */
    {"time_step_floor|mamba_dt_init_floor", LF_HF_INERT, NULL, NULL},
    {"rescale_prenorm_residual", LF_HF_INERT, NULL, NULL},
    {"chunk_size|mamba_chunk_size", LF_HF_INERT, NULL, NULL}, /* how it runs, as these */
    {"mamba_ssm_cache_dtype", LF_HF_INERT, NULL, NULL},
    {"use_mamba_kernels", LF_HF_INERT, NULL, NULL},
    {"num_logits_to_keep", LF_HF_INERT, NULL, NULL},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {0},
};

/* Blocks by name; the first of each kind is written. */
static const struct block {
    const char *name;
    char mixer, mlp;
} blocks[] = {
    {"M", LF_MIXER_SSD, LF_MLP_NONE},
    {"*", LF_MIXER_FULL, LF_MLP_NONE},
    {"-", LF_MIXER_NONE, LF_MLP_DENSE},
    {"E", LF_MIXER_NONE, LF_MLP_EXPERTS},
    {"linear_attention", LF_MIXER_SSD, LF_MLP_NONE},
    {"full_attention", LF_MIXER_FULL, LF_MLP_NONE},
    {"mamba", LF_MIXER_SSD, LF_MLP_NONE},
    {"attention", LF_MIXER_FULL, LF_MLP_NONE},
    {"mlp", LF_MIXER_NONE, LF_MLP_DENSE},
    {"moe", LF_MIXER_NONE, LF_MLP_EXPERTS},
};

/* The block of this name, or, where it is NULL, of this kind. NULL: there is none. */
static const struct block *block_of(const char *name, char mixer, char mlp)
{
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        if (name ? strcmp(blocks[i].name, name) == 0
                 : blocks[i].mixer == mixer && blocks[i].mlp == mlp)
            return &blocks[i];
    return NULL;
}

/* The letters of both patterns from a list of names. */
static int letters_of(const lf_hf_reader *r, json_t *list, char *mixers, char *mlps, lf_err *err)
{
    for (size_t l = 0; l < json_array_size(list); l++) {
        const char *name = json_string_value(json_array_get(list, l));
        const struct block *k = name ? block_of(name, 0, 0) : NULL;
        if (!k)
            return lf_fail(err, LF_ENOTSUP, "%s: a block of the kind '%.40s' is not supported",
                           r->path, name ? name : "?");
        mixers[l] = k->mixer;
        mlps[l] = k->mlp;
    }
    return 0;
}

/* A text of letters as a list of them. */
static json_t *split(const char *text)
{
    json_t *list = json_array();
    int bad = !list;
    for (; *text && !bad; text++)
        bad = json_array_append_new(list, json_stringn(text, 1));
    if (bad) {
        json_decref(list);
        list = NULL;
    }
    return list;
}

static int set_blocks(lf_hf_reader *r, lf_model_config *c, json_t *list, lf_err *err)
{
    const size_t n = json_array_size(list);
    int rc = lf_hf_set_number(r, c, "layers_block_type", "layers", (double)n, err);
    if (rc != 0)
        return rc;
    char *letters = lf_calloc(2 * (n + 1), 1, err);
    if (!letters)
        return LF_ENOMEM;
    char *mlps = letters + n + 1;
    rc = letters_of(r, list, letters, mlps, err);
    rc = rc != 0 ? rc : lf_hf_set_letters(r, c, "layers_block_type", "layer_mixers", letters, err);
    rc = rc != 0 ? rc : lf_hf_set_letters(r, c, "layers_block_type", "layer_mlps", mlps, err);
    if (rc == 0 && !strchr(mlps, LF_MLP_EXPERTS)) /* defaults of the class for what is not there */
        c->experts = c->experts_per_token = c->expert_ffn = c->shared_ffn = c->expert_latent = 0;
    if (rc == 0 && !strchr(mlps, LF_MLP_DENSE))
        c->ffn = 0;
    free(letters);
    return rc;
}

/* A list of names goes before the text of letters. */
static int read_nemotron(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *a = lf_hf_take(r, "layers_block_type"), *b = lf_hf_take(r, "layer_types"),
           *text = lf_hf_take(r, "hybrid_override_pattern"), *list = a ? a : b;
    if (a && b && !json_equal(a, b))
        return lf_fail(err, LF_EFORMAT, "%s: layer_types contradicts layers_block_type", r->path);
    if (list && !json_is_array(list))
        return lf_fail(err, LF_EFORMAT, "%s: layers_block_type is not a list", r->path);
    if (!list && !json_string_value(text))
        return lf_fail(err, LF_EFORMAT,
                       "%s: neither layers_block_type nor hybrid_override_pattern lists the layers",
                       r->path);
    list = list ? json_incref(list) : split(json_string_value(text));
    if (!list)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    int rc = set_blocks(r, c, list, err);
    json_decref(list);
    if (rc == 0 && (c->scan_groups < 1 || c->scan_conv < 1))
        rc = lf_fail(err, LF_EFORMAT, "%s: n_groups and conv_kernel are 1 or more", r->path);
    return rc != 0
               ? rc
               : lf_hf_set_number(r, c, "n_groups", "scan_norm_parts", (double)c->scan_groups, err);
}

static int write_nemotron(const lf_model_config *c, json_t *o, lf_err *err)
{
    static const char *const of_experts[] = {
        "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size",
        "moe_shared_expert_intermediate_size", "moe_latent_size"};
    lf_buf b;
    lf_buf_init(&b);
    int rc = 0;
    for (int64_t l = 0; l < c->layers && rc == 0; l++) {
        const struct block *k =
            block_of(NULL, lf_model_layer_mixer(c, l), lf_model_layer_mlp(c, l));
        if (k)
            lf_buf_adds(&b, k->name);
        else
            rc = lf_fail(err, LF_EINVAL,
                         "layer %lld: in this family a layer is Mamba-2, attention or an MLP alone "
                         "(layer_mixers, layer_mlps)",
                         (long long)l);
    }
    rc = rc != 0 ? rc : lf_buf_check(&b, err);
    if (rc == 0 && (json_object_set_new(o, "hybrid_override_pattern", json_string(b.data)) ||
                    json_object_set_new(o, "num_hidden_layers", json_integer(c->layers))))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    lf_buf_fini(&b);
    /* sizes of what no layer has: the class has others for them, and 0 is none */
    for (size_t i = 0; i < sizeof of_experts / sizeof *of_experts && !c->experts; i++)
        json_object_del(o, of_experts[i]);
    return rc;
}

static const struct lf_map_row nemotron_rows[] = {
    {"backbone.embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"backbone.layers.{L}.norm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight", NULL},
    {"backbone.layers.{L}.norm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight", NULL},
    MAMBA_ROWS("backbone.layers.{L}.mixer"),
    {"backbone.layers.{L}.mixer.q_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.q.{P}", NULL},
    {"backbone.layers.{L}.mixer.k_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.k.{P}", NULL},
    {"backbone.layers.{L}.mixer.v_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.v.{P}", NULL},
    {"backbone.layers.{L}.mixer.o_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"backbone.layers.{L}.mixer.up_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"backbone.layers.{L}.mixer.down_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"backbone.layers.{L}.mixer.gate.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL},
    {"backbone.layers.{L}.mixer.gate.e_score_correction_bias", LF_MAP_COPY,
     "layers.{L}.moe.router.bias", NULL},
    {"backbone.layers.{L}.mixer.experts.{E}.up_proj.weight", LF_MAP_EXPERT,
     "layers.{L}.moe.experts.up.weight", NULL},
    {"backbone.layers.{L}.mixer.experts.{E}.down_proj.weight", LF_MAP_EXPERT,
     "layers.{L}.moe.experts.down.weight", NULL},
    {"backbone.layers.{L}.mixer.shared_experts.up_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.up.weight", NULL},
    {"backbone.layers.{L}.mixer.shared_experts.down_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.down.weight", NULL},
    {"backbone.layers.{L}.mixer.fc1_latent_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.latent_in.weight", NULL},
    {"backbone.layers.{L}.mixer.fc2_latent_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.latent_out.weight", NULL},
    {"backbone.norm_f.weight", LF_MAP_COPY, "final_norm.weight", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"mtp.", LF_MAP_LEFT_OUT, KIN_MTP, NULL},
    {0},
};

static const struct lf_hf_module nemotron_modules[] = {{"backbone.", "model."}, {0}};

const struct lf_hf_family lf_hf_nemotron_h = {
    .modules = nemotron_modules,
    .name = "nemotron-h",
    .model_type = "nemotron_h",
    .architecture = "NemotronHForCausalLM",
    .native = true,
    .prefix = "backbone.",
    .switches = nemotron_switches,
    .keys = nemotron_keys,
    .rows = nemotron_rows,
    .read = read_nemotron,
    .write = write_nemotron,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Falcon-H1 ---- */

/* Attention and Mamba-2 side by side in every layer. */
static const char *const falcon_switches[] = {
    "norm=rms",       "position=rope",   "activation=silu", "mlp=glu",
    "scan_gate=silu", "layer_mixers=b*", "layer_mlps=d*",   NULL};

static const struct lf_hf_key falcon_keys[] = {
    MAMBA_KEYS,
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "8192"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"lm_head_multiplier", LF_HF_NUMBER, "logit_scale", "1.0"},
    {"embedding_multiplier", LF_HF_NUMBER, "embed_scale", "1.0"},
    {"attention_in_multiplier", LF_HF_NUMBER, "attn_in_scale", "1.0"},
    {"attention_out_multiplier", LF_HF_NUMBER, "attn_out_scale", "1.0"},
    {"ssm_in_multiplier", LF_HF_NUMBER, "scan_in_scale", "1.0"},
    {"ssm_out_multiplier", LF_HF_NUMBER, "scan_out_scale", "1.0"},
    {"mamba_use_mlp", LF_HF_UNREAD, NULL, "true"},
    {"attn_layer_indices", LF_HF_UNREAD, NULL, "null"},
    {"mlp_expansion_factor", LF_HF_INERT, NULL, NULL}, /* the class does not read it, as these */
    {"residual_in_fp32", LF_HF_INERT, NULL, NULL},
    {"time_step_rank", LF_HF_INERT, NULL, NULL},
    {"time_step_min", LF_HF_INERT, NULL, NULL},
    {"time_step_max", LF_HF_INERT, NULL, NULL},
    {"time_step_floor", LF_HF_INERT, NULL, NULL},
    {0},
};

/* The norm of scans is there where mamba_rms_norm says so. */
static int read_falcon_norm(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool norm = false, first = true;
    int rc = lf_hf_get_bool(r, "mamba_rms_norm", &norm, err);
    rc = rc != 0 ? rc : lf_hf_get_bool(r, "mamba_norm_before_gate", &first, err);
    if (rc != 0 || !norm)
        return rc;
    return lf_hf_set(r, c, "mamba_rms_norm", "scan_norm", first ? "before_gate" : "after_gate",
                     err);
}

/* [gate, down] and [z, x, B, C, dt]. */
static int read_multipliers(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    static const char mlp[] = "mlp_multipliers", ssm[] = "ssm_multipliers";
    static const char *const ours[] = {"mlp_gate_scale", "mlp_out_scale"};
    json_t *a = lf_hf_take(r, mlp), *b = lf_hf_take(r, ssm);
    bool bad = (a && json_array_size(a) != 2) || (b && json_array_size(b) != LF_SCAN_SCALES),
         ones = true;
    for (size_t i = 0; i < json_array_size(a); i++)
        bad = bad || !json_is_number(json_array_get(a, i));
    for (size_t i = 0; i < json_array_size(b); i++) {
        bad = bad || !json_is_number(json_array_get(b, i));
        ones = ones && fabs(json_number_value(json_array_get(b, i)) - 1) <= 0;
    }
    if (bad)
        return lf_fail(err, LF_EFORMAT, "%s: %s are 2 numbers, %s are %d", r->path, mlp, ssm,
                       LF_SCAN_SCALES);
    int rc = 0;
    for (size_t i = 0; i < json_array_size(a) && rc == 0; i++)
        rc = lf_hf_set_number(r, c, mlp, ours[i], json_number_value(json_array_get(a, i)), err);
    return rc != 0 || ones ? rc : lf_hf_set_list(r, c, ssm, "scan_scales", b, err);
}

/* Keys are multiplied there, which is a scale of q . k. */
static int read_key_scale(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    static const char key[] = "key_multiplier";
    double by = 1;
    int rc = lf_hf_get_f64(r, key, &by, err);
    if (rc == 0 && !(by > 0))
        rc =
            lf_fail(err, LF_ENOTSUP, "%s: %s = %g is a scale that turns queries", r->path, key, by);
    if (rc != 0 || fabs(by - 1) <= 0)
        return rc;
    return lf_hf_set_number(r, c, key, "attn_scale", by / sqrt((double)lf_hf_head_dim(c)), err);
}

static int read_falcon(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool out = false;
    int rc = lf_hf_get_bool(r, "projectors_bias", &out, err);
    if (rc == 0 && out != c->scan_bias)
        rc =
            lf_fail(err, LF_ENOTSUP,
                    "%s: projectors_bias and mamba_proj_bias differ; a scan has biases of both its "
                    "projections, or of none",
                    r->path);
    rc = rc != 0 ? rc : read_falcon_norm(r, c, err);
    rc = rc != 0 ? rc : read_scan(r, c, &falcon_width, err);
    rc = rc != 0 ? rc : read_multipliers(r, c, err);
    rc = rc != 0 ? rc : read_key_scale(r, c, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

/* The number that gives x to the last bit when divided by d, where there is one. */
static double dividend(double x, double d)
{
    const double y = x * d, around[] = {y, nextafter(y, 0), nextafter(y, HUGE_VAL)};
    for (int i = 0; i < 3; i++)
        if (around[i] / d == x) /* NOLINT: to the last bit */
            return around[i];
    return y;
}

static int write_falcon(const lf_model_config *c, json_t *o, lf_err *err)
{
    const double ones[LF_SCAN_SCALES] = {1, 1, 1, 1, 1},
                 *s = c->scan_scales.n ? c->scan_scales.v : ones,
                 key = c->attn_scale > 0 ? dividend(c->attn_scale, sqrt((double)c->head_dim)) : 1;
    int rc = write_scan(c, o, &falcon_width, err);
    json_t *more = json_pack(
        "{s:b, s:b, s:b, s:[f,f], s:[f,f,f,f,f], s:f}", "projectors_bias", c->scan_bias,
        "mamba_rms_norm", c->scan_norm != LF_SCAN_NO_NORM, "mamba_norm_before_gate",
        c->scan_norm == LF_SCAN_NORM_FIRST, "mlp_multipliers", c->mlp_gate_scale, c->mlp_out_scale,
        "ssm_multipliers", s[0], s[1], s[2], s[3], s[4], "key_multiplier", key);
    if (rc == 0 && (!more || json_object_update(o, more)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    json_decref(more);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row falcon_rows[] = {BAMBA_ROWS, {0}};

const struct lf_hf_family lf_hf_falcon_h1 = {
    .name = "falcon-h1",
    .model_type = "falcon_h1",
    .architecture = "FalconH1ForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = falcon_switches,
    .keys = falcon_keys,
    .rows = falcon_rows,
    .read = read_falcon,
    .write = write_falcon,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
