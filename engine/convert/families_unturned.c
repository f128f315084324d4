/* SPDX-License-Identifier: Apache-2.0
 *
 * Some of whose layers have no rotary positions: SmolLM3, EXAONE 4, K-EXAONE, Cohere's Command
 * R7B, Trinity, Flint. */
#include <math.h>
#include <stdlib.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/families_kin.h"

/* Layers that turn, from what on says for each. */
static int set_turns(lf_hf_reader *r, lf_model_config *c, const char *theirs,
                     bool (*on)(const void *ctx, const lf_model_config *c, int64_t l),
                     const void *ctx, lf_err *err)
{
    struct lf_model_pattern p;
    char *letters = lf_calloc((size_t)c->layers + 1, 1, err);
    int rc = letters ? 0 : LF_ENOMEM;
    for (int64_t l = 0; l < c->layers && rc == 0; l++)
        letters[l] = on(ctx, c, l) ? LF_TURN_ROPE : LF_TURN_NONE;
    rc = rc != 0 ? rc : lf_model_pattern_of(&p, letters, c->layers, err);
    rc = rc != 0 ? rc : lf_hf_set(r, c, theirs, "layer_positions", p.text, err);
    free(letters);
    return rc;
}

static bool turns(const lf_model_config *c, int64_t l)
{
    return lf_model_layer_position(c, l) == LF_TURN_ROPE;
}

/* ---- SmolLM3 ---- */

static const char *const smollm3_switches[] = {"norm=rms", "position=rope", "mlp=glu", NULL};

static const struct lf_hf_key smollm3_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "4"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "32768"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"use_sliding_window", LF_HF_SAME, NULL, "false"},
    {"sliding_window", LF_HF_INERT, NULL, NULL},
    {"max_window_layers", LF_HF_INERT, NULL, NULL},
    {0},
};

struct smol {
    json_t *list;
    int64_t every;
};

/* 1: the layer turns. Without a list all do but each every-th. */
static bool smol_turns(const void *ctx, const lf_model_config *c, int64_t l)
{
    const struct smol *s = ctx;
    (void)c;
    return s->list ? json_integer_value(json_array_get(s->list, (size_t)l)) != 0
                   : (l + 1) % s->every != 0;
}

int lf_hf_read_no_rope(lf_hf_reader *r, lf_model_config *c, bool empty, lf_err *err)
{
    struct smol s = {lf_hf_take(r, "no_rope_layers"), 4};
    int rc = lf_hf_get_period(r, "no_rope_layer_interval", &s.every, err);
    if (empty && json_is_array(s.list) && json_array_size(s.list) == 0)
        s.list = NULL;
    if (rc == 0 && s.list && json_array_size(s.list) != (size_t)c->layers)
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: no_rope_layers has not one number for each of %lld layers", r->path,
                     (long long)c->layers);
    for (size_t i = 0; rc == 0 && i < json_array_size(s.list); i++)
        if (!json_is_integer(json_array_get(s.list, i)))
            rc = lf_fail(err, LF_EFORMAT, "%s: no_rope_layers holds what is no whole number",
                         r->path);
    return rc != 0 ? rc : set_turns(r, c, "no_rope_layers", smol_turns, &s, err);
}

static int read_smollm3(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_layers(r, c, -1, true, &(struct lf_hf_slide){0}, err);
    rc = rc != 0 ? rc : lf_hf_read_no_rope(r, c, false, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 2000000, err);
}

int lf_hf_write_no_rope(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *list = json_array();
    int bad = !list;
    for (int64_t l = 0; l < c->layers && !bad; l++)
        bad = json_array_append_new(list, json_integer(turns(c, l)));
    bad = bad || json_object_set(o, "no_rope_layers", list);
    json_decref(list);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static int write_smollm3(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_no_rope(c, o, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row plain_rows[] = {
    KIN_ATTENTION_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, {0}};

const struct lf_hf_family lf_hf_smollm3 = {
    .name = "smollm3",
    .model_type = "smollm3",
    .architecture = "SmolLM3ForCausalLM",
    .classifier = "SmolLM3ForSequenceClassification",
    .prefix = "model.",
    .switches = smollm3_switches,
    .keys = smollm3_keys,
    .rows = plain_rows,
    .read = read_smollm3,
    .write = write_smollm3,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Command R7B ---- */

static const char *const cohere2_switches[] = {"norm=layer",
                                               "norm_bias=no",
                                               "position=rope",
                                               "rope_interleaved=yes",
                                               "mlp=glu",
                                               "parallel_block=one_norm",
                                               NULL};

static const struct lf_hf_key cohere2_keys[] = {
    KIN_SIZES,
    {"layer_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"}, /* of files that the class wrote */
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "8192"},
    {"logit_scale", LF_HF_NUMBER, "logit_scale", "0.0625"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"cache_implementation", LF_HF_INERT, NULL, NULL}, /* of published files, from here on */
    {"layer_switch", LF_HF_INERT, NULL, NULL},
    {"order_of_interleaved_layers", LF_HF_UNREAD, NULL, "\"local_attn_first\""},
    {"position_embedding_type", LF_HF_UNREAD, NULL, "\"rope_gptj\""},
    {"rotary_pct", LF_HF_UNREAD, NULL, "1.0"},
    {"use_embedding_sharing", LF_HF_INERT, NULL, NULL},
    {"use_gated_activation", LF_HF_UNREAD, NULL, "true"},
    {"use_parallel_block", LF_HF_UNREAD, NULL, "true"},
    {"use_parallel_embedding", LF_HF_INERT, NULL, NULL},
    {"use_qk_norm", LF_HF_UNREAD, NULL, "false"},
    {0},
};

/* Layers with a window turn, the others do not. */
static bool window_turns(const void *ctx, const lf_model_config *c, int64_t l)
{
    (void)ctx;
    return lf_model_layer_window(c, l) > 0;
}

static int read_windows(lf_hf_reader *r, lf_model_config *c, int64_t *window, lf_err *err)
{
    struct lf_hf_slide by = {.period = 4};
    int rc = lf_hf_get_window(r, 4096, window, err);
    rc = rc != 0 ? rc : lf_hf_get_period(r, "sliding_window_pattern", &by.period, err);
    return rc != 0 ? rc : lf_hf_read_layers(r, c, *window, *window < 0, &by, err);
}

static int read_cohere2(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t window;
    int rc = read_windows(r, c, &window, err);
    rc = rc != 0 ? rc : set_turns(r, c, "layer_types", window_turns, NULL, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

/* no window: what the class takes where no layer has one. */
static int write_windows(const lf_model_config *c, json_t *o, json_t *none, lf_err *err)
{
    json_t *window = c->sliding_window > 0 ? json_integer(c->sliding_window) : json_incref(none);
    json_decref(none);
    if (json_object_set_new(o, "sliding_window", window))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    int rc = lf_hf_write_layers(c, o, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

static int write_cohere2(const lf_model_config *c, json_t *o, lf_err *err)
{
    return write_windows(c, o, json_integer(4096), err);
}

const struct lf_hf_family lf_hf_cohere2 = {
    .name = "cohere2",
    .model_type = "cohere2",
    .architecture = "Cohere2ForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = cohere2_switches,
    .keys = cohere2_keys,
    .rows = plain_rows,
    .read = read_cohere2,
    .write = write_cohere2,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- EXAONE 4 ---- */

static const char *const exaone_switches[] = {"norm=rms",  "position=rope", "mlp=glu",
                                              "block=out", "qk_norm=yes",   NULL};

static const struct lf_hf_key exaone_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "32"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {0},
};

/* Where there is a window, in some layer or in none, layers without it do not turn. */
static int read_exaone(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t window;
    if (json_is_string(json_object_get(r->o, "sliding_window_pattern")) &&
        json_is_array(json_object_get(r->o, "layer_types")))
        (void)lf_hf_take(r, "sliding_window_pattern"); /* the list says it, layer by layer */
    json_t *letters = json_object_get(r->left, "sliding_window_pattern");
    if (json_is_string(letters))
        return lf_fail(err, LF_ENOTSUP, "%s: sliding_window_pattern = %s: give layer_types",
                       r->path, json_string_value(letters));
    int rc = lf_hf_get_window(r, 4096, &window, err);
    struct lf_hf_slide by = {.period = 4};
    if (rc == 0 && window < 0)
        (void)lf_hf_take(r, "sliding_window_pattern"); /* the class writes 0 beside no window */
    else if (rc == 0 && letters)
        rc = lf_hf_get_period(r, "sliding_window_pattern", &by.period, err);
    rc = rc != 0 ? rc : lf_hf_read_layers(r, c, window, window < 0, &by, err);
    if (rc == 0 && window >= 0)
        rc = set_turns(r, c, "sliding_window", window_turns, NULL, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_exaone(const lf_model_config *c, json_t *o, lf_err *err)
{
    const bool all = lf_model_count_layers(c, lf_model_layer_position, LF_TURN_ROPE) == c->layers;
    return write_windows(c, o, all ? json_null() : json_integer(4096), err);
}

static const struct lf_map_row exaone_rows[] = {
    KIN_OUT_ATTENTION_ROWS, KIN_QK_NORM_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, {0}};

const struct lf_hf_family lf_hf_exaone4 = {
    .name = "exaone4",
    .model_type = "exaone4",
    .architecture = "Exaone4ForCausalLM",
    .classifier = "Exaone4ForSequenceClassification",
    .prefix = "model.",
    .switches = exaone_switches,
    .keys = exaone_keys,
    .rows = exaone_rows,
    .read = read_exaone,
    .write = write_exaone,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- K-EXAONE ---- */

static const char *const exaone_moe_switches[] = {
    "norm=rms",        "position=rope",  "mlp=glu", "qk_norm=yes", "router_score=sigmoid",
    "router_bias=yes", "shared_gate=no", NULL};

static const struct lf_hf_key exaone_moe_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "32"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"num_experts", LF_HF_NUMBER, "experts", "64"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "8"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "1024"},
    {"n_group", LF_HF_NUMBER, "router_groups", "1"},
    {"topk_group", LF_HF_NUMBER, "router_top_groups", "1"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"routed_scaling_factor", LF_HF_NUMBER, "router_scale", "2.5"},
    {"scoring_func", LF_HF_UNREAD, NULL, "\"sigmoid\""}, /* of published files, from here on */
    {"topk_method", LF_HF_UNREAD, NULL, "\"noaux_tc\""},
    {"first_last_k_dense_replace", LF_HF_UNREAD, NULL, "1"},
    {"num_nextn_predict_layers", LF_HF_NUMBER, "mtp_layers", "0"},
    {"mtp_layer_types", LF_HF_UNREAD, NULL, "[\"full_attention\"]"}, /* as its last layer */
    {"mtp_sliding_windows", LF_HF_UNREAD, NULL, "[0]"},
    {"mtp_share_layers", LF_HF_UNREAD, NULL, "false"},
    {"mtp_loss_scaling_factor", LF_HF_INERT, NULL, NULL},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {0},
};

/* What a list of published files, which the class does not read, says of layer l. */
static json_t *moe_of(const lf_model_config *c, int64_t l)
{
    return json_boolean(lf_model_layer_moe(c, l));
}

static json_t *window_of(const lf_model_config *c, int64_t l)
{
    return json_integer(lf_model_layer_window(c, l));
}

static int check_list(lf_hf_reader *r, const lf_model_config *c, const char *key,
                      json_t *(*of)(const lf_model_config *c, int64_t l), lf_err *err)
{
    json_t *list = lf_hf_take(r, key);
    bool same = !list || (int64_t)json_array_size(list) == c->layers;
    for (int64_t l = 0; l < c->layers && list && same; l++) {
        json_t *want = of(c, l);
        same = json_equal(json_array_get(list, (size_t)l), want);
        json_decref(want);
    }
    return same ? 0
                : lf_fail(err, LF_ENOTSUP,
                          "%s: %s says something else than the keys that the class of this family "
                          "reads (layer_types, mlp_layer_types)",
                          r->path, key);
}

static int read_exaone_moe(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t dense = 1;
    int rc = lf_hf_get_i64(r, "first_k_dense_replace", &dense, err);
    rc = rc != 0 ? rc : lf_hf_read_mlp_types(r, c, dense, err);
    rc = rc != 0 ? rc : lf_hf_read_shared(r, c, "num_shared_experts", 1, err);
    rc = rc != 0 ? rc : read_exaone(r, c, err);
    rc = rc != 0 ? rc : check_list(r, c, "is_moe_layer", moe_of, err);
    rc = rc != 0 ? rc : check_list(r, c, "sliding_windows", window_of, err);
    if (rc == 0 && lf_model_layer_mixer(c, c->layers - 1) != LF_MIXER_FULL)
        c->mtp_layers = 0; /* heads see all, and ours are as the last layer: they are left out */
    return rc;
}

static int write_exaone_moe(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_shared(c, o, "num_shared_experts", NULL, err);
    rc = rc != 0 ? rc : lf_hf_write_mlp_types(c, o, err);
    return rc != 0 ? rc : write_windows(c, o, json_integer(4096), err); /* null is refused there */
}

static const struct lf_map_row exaone_moe_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_QK_NORM_ROWS,
    KIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    KIN_EXPERT_ROWS,
    KIN_SHARED_ROWS,
    {"model.layers.{L}.mlp.e_score_correction_bias", LF_MAP_COPY, "layers.{L}.moe.router.bias",
     NULL},
    KIN_MTP_ROWS,
    {MTP_LAYER("self_attn.q_proj.weight", "attn.q.weight")},
    {0},
};

const struct lf_hf_family lf_hf_exaone_moe = {
    .name = "exaone-moe",
    .model_type = "exaone_moe",
    .architecture = "ExaoneMoeForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = exaone_moe_switches,
    .keys = exaone_moe_keys,
    .rows = exaone_moe_rows,
    .mtp_mlp = LF_MTP_MLP_DENSE,
    .read = read_exaone_moe,
    .write = write_exaone_moe,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Trinity ---- */

static const char *const afmoe_switches[] = {"norm=rms",
                                             "position=rope",
                                             "mlp=glu",
                                             "block=sandwich",
                                             "qk_norm=yes",
                                             "attn_gate=yes",
                                             "router_score=sigmoid",
                                             "router_renorm=yes",
                                             "router_bias=yes",
                                             "shared_gate=no",
                                             NULL};

static const struct lf_hf_key afmoe_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "16384"},
    {"attention_bias", LF_HF_SAME, NULL, "false"}, /* the gate would have none */
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"num_experts", LF_HF_NUMBER, "experts", "64"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "6"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "1408"},
    {"route_scale", LF_HF_NUMBER, "router_scale", "1"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"load_balance_coeff", LF_HF_INERT, NULL, NULL}, /* of published files, from here on */
    {"use_grouped_mm", LF_HF_INERT, NULL, NULL},
    {"score_func", LF_HF_UNREAD, NULL, "\"sigmoid\""},
    {"route_norm", LF_HF_UNREAD, NULL, "true"},
    {"n_group", LF_HF_UNREAD, NULL, "1"},
    {"topk_group", LF_HF_UNREAD, NULL, "1"},
    {"num_expert_groups", LF_HF_UNREAD, NULL, "1"},
    {"num_limited_groups", LF_HF_UNREAD, NULL, "1"},
    {0},
};

/* Where no layer has experts, they are not there, whatever their number. */
static int drop_experts(const lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    if (!c->experts || lf_model_moe_layers(c) > 0)
        return 0;
    const int rc = lf_model_config_set(c, "experts", "0", r->path, err);
    return rc != 0 ? rc : lf_model_config_set(c, "layer_mlps", "", r->path, err);
}

/* mup_enabled: the embedding is times sqrt(hidden_size). */
static int read_afmoe(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    struct lf_hf_slide by = {.period = 4};
    int64_t window;
    bool scaled = false;
    int rc = lf_hf_get_window(r, 1024, &window, err);
    rc = rc != 0 ? rc : lf_hf_get_period(r, "global_attn_every_n_layers", &by.period, err);
    rc = rc != 0 ? rc : lf_hf_read_layers(r, c, window, false, &by, err);
    rc = rc != 0 ? rc : set_turns(r, c, "layer_types", window_turns, NULL, err);
    rc = rc != 0 ? rc : lf_hf_get_bool(r, "mup_enabled", &scaled, err);
    if (rc == 0 && scaled)
        rc = lf_hf_set_number(r, c, "mup_enabled", "embed_scale", sqrt((double)c->hidden), err);
    rc = rc != 0 ? rc : lf_hf_read_dense_layers(r, c, "num_dense_layers", 1, err);
    rc = rc != 0 ? rc : drop_experts(r, c, err);
    if (!c->experts)
        (void)lf_hf_take(r, "num_shared_experts"); /* they stand beside experts alone */
    else
        rc = rc != 0 ? rc : lf_hf_read_shared(r, c, "num_shared_experts", 2, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_afmoe(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = c->experts ? lf_hf_write_shared(c, o, "num_shared_experts", NULL, err) : 0;
    rc = rc != 0 ? rc : lf_hf_write_dense_layers(c, o, "num_dense_layers", err);
    if (rc == 0 && json_object_set_new(o, "mup_enabled", json_boolean(c->embed_scale > 1)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc != 0 ? rc : write_windows(c, o, json_integer(1024), err);
}

#define TRINITY "model.layers.{L}."
static const struct lf_map_row afmoe_rows[] = {
    KIN_INPUT_ROWS,
    KIN_QK_NORM_ROWS,
    KIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    KIN_EXPERT_MATRICES,
    KIN_SHARED_ROWS,
    {TRINITY "post_attention_layernorm.weight", LF_MAP_COPY, "layers.{L}.attn_post_norm.weight",
     NULL},
    {TRINITY "pre_mlp_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight", NULL},
    {TRINITY "post_mlp_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_post_norm.weight", NULL},
    {TRINITY "self_attn.gate_proj.weight", LF_MAP_COPY, "layers.{L}.attn.gate.weight", NULL},
    {TRINITY "mlp.router.gate.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL},
    {TRINITY "mlp.expert_bias", LF_MAP_COPY, "layers.{L}.moe.router.bias", NULL},
    {0},
};

const struct lf_hf_family lf_hf_afmoe = {
    .name = "trinity",
    .model_type = "afmoe",
    .architecture = "AfmoeForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = afmoe_switches,
    .keys = afmoe_keys,
    .rows = afmoe_rows,
    .read = read_afmoe,
    .write = write_afmoe,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Flint ---- */

static const char *const flint_switches[] = {
    "norm=rms",       "position=rope",  "mlp=glu",
    "qk_norm=yes",    "attn_sinks=yes", "router_score=sigmoid",
    "router_bias=no", "shared_gate=no", NULL};

static const struct lf_hf_key flint_keys[] = {
    KIN_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "4"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "262144"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"num_experts", LF_HF_NUMBER, "experts", "256"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "6"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "512"},
    {"shared_expert_intermediate_size", LF_HF_NUMBER, "shared_ffn", "1024"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.0005"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {0},
};

/* Without lists the first two layers have no experts, and they, the second of every four and the
 * last one attend in full. */
static int read_flint(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const struct lf_hf_slide by = {
        .from = 2, .below = c->layers - 1, .period = 4, .exception = LF_HF_SECOND};
    int64_t window;
    int rc = lf_hf_get_window(r, 513, &window, err);
    rc = rc != 0 ? rc : lf_hf_read_layers(r, c, window, false, &by, err);
    rc = rc != 0 ? rc : set_turns(r, c, "layer_types", window_turns, NULL, err);
    rc = rc != 0 ? rc : lf_hf_read_mlp_layers(r, c, 2, err);
    rc = rc != 0 ? rc : drop_experts(r, c, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_flint(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (c->experts && c->shared_ffn < 1)
        return lf_fail(err, LF_EINVAL, "shared_ffn = 0: a layer of this type has a shared expert");
    int rc = lf_hf_write_mlp_layers(c, o, err);
    return rc != 0 ? rc : write_windows(c, o, json_integer(513), err);
}

static const struct lf_map_row flint_rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_QK_NORM_ROWS,
    KIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    KIN_EXPERT_ROWS,
    {"model.layers.{L}.self_attn.softmax_offset", LF_MAP_COPY, "layers.{L}.attn.sinks", NULL},
    {"model.layers.{L}.mlp.shared_expert.gate_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.gate.weight", NULL},
    {"model.layers.{L}.mlp.shared_expert.up_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.up.weight", NULL},
    {"model.layers.{L}.mlp.shared_expert.down_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.down.weight", NULL},
    {0},
};

const struct lf_hf_family lf_hf_flint = {
    .name = "flint",
    .model_type = "flint",
    .architecture = "FlintForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = flint_switches,
    .keys = flint_keys,
    .rows = flint_rows,
    .read = read_flint,
    .write = write_flint,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
