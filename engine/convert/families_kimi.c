/* SPDX-License-Identifier: Apache-2.0
 *
 * Kimi Linear: Kimi Delta Attention, and among it latent attention that does not turn. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/families_kin.h"

static const struct lf_hf_mixer mixers[] = {
    {"linear_attention", LF_MIXER_KDA}, {"full_attention", LF_MIXER_FULL}, {0}};

static const char *const switches[] = {"norm=rms",
                                       "position=rope",
                                       "layer_positions=n*",
                                       "mlp=glu",
                                       "activation=silu",
                                       "scan_gate=sigmoid",
                                       "scan_norm=before_gate",
                                       "router_score=sigmoid",
                                       "router_bias=yes",
                                       "shared_gate=no",
                                       NULL};

static const struct lf_hf_key keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"hidden_act", LF_HF_SAME, NULL, "\"silu\""}, /* of the convolutions too */
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_SAME, NULL, "false"},
    {"model_max_length|max_position_embeddings", LF_HF_NUMBER, "max_positions", "1048576"},
    {"kv_lora_rank", LF_HF_NUMBER, "kv_lora", "512"},
    {"q_lora_rank", LF_HF_NUMBER, "q_lora", "null"},
    {"qk_nope_head_dim", LF_HF_NUMBER, "nope_dim", "128"},
    {"qk_rope_head_dim", LF_HF_NUMBER, "rope_dim", "64"},
    {"v_head_dim", LF_HF_NUMBER, "v_dim", "128"},
    {"attention_bias", LF_HF_SAME, NULL, "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"num_experts|num_local_experts", LF_HF_NUMBER, "experts", "256"},
    {"num_experts_per_token|num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "8"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "1024"},
    {"num_expert_group|n_group", LF_HF_NUMBER, "router_groups", "1"},
    {"topk_group", LF_HF_NUMBER, "router_top_groups", "1"},
    {"moe_renormalize|norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"routed_scaling_factor", LF_HF_NUMBER, "router_scale", "2.446"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"head_dim", LF_HF_INERT, NULL, NULL}, /* follows from the others; nothing turns */
    {"qk_head_dim", LF_HF_INERT, NULL, NULL},
    {"rope_theta", LF_HF_INERT, NULL, NULL},
    {"rope_scaling", LF_HF_INERT, NULL, NULL},
    {"mla_use_nope", LF_HF_UNREAD, NULL, "true"},
    {"moe_layer_freq", LF_HF_UNREAD, NULL, "1"},
    {"moe_router_activation_func", LF_HF_UNREAD, NULL, "\"sigmoid\""},
    {"num_nextn_predict_layers", LF_HF_UNREAD, NULL, "0"},
    {"use_grouped_topk", LF_HF_UNREAD, NULL, "true"},
    {0},
};

#define OURS   "layers.{L}.scan."
#define THEIRS "model.layers.{L}.self_attn."

static const struct lf_map_row rows[] = {
    LATENT_ROWS,
    KIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    MIXTRAL_EXPERT_ROWS,
    {"model.layers.{L}.block_sparse_moe.gate.e_score_correction_bias", LF_MAP_COPY,
     "layers.{L}.moe.router.bias", NULL},
    {"model.layers.{L}.block_sparse_moe.shared_experts.gate_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.gate.weight", NULL},
    {"model.layers.{L}.block_sparse_moe.shared_experts.up_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.up.weight", NULL},
    {"model.layers.{L}.block_sparse_moe.shared_experts.down_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.down.weight", NULL},
    {THEIRS "q_proj.weight", LF_MAP_COPY, OURS "q.weight", NULL},
    {THEIRS "k_proj.weight", LF_MAP_COPY, OURS "k.weight", NULL},
    {THEIRS "v_proj.weight", LF_MAP_COPY, OURS "v.weight", NULL},
    {THEIRS "q_conv1d.weight", LF_MAP_DEPTHWISE, OURS "conv_q.weight", NULL},
    {THEIRS "k_conv1d.weight", LF_MAP_DEPTHWISE, OURS "conv_k.weight", NULL},
    {THEIRS "v_conv1d.weight", LF_MAP_DEPTHWISE, OURS "conv_v.weight", NULL},
    {THEIRS "f_a_proj.weight", LF_MAP_COPY, OURS "f_a.weight", NULL},
    {THEIRS "f_b_proj.weight", LF_MAP_COPY, OURS "f_b.weight", NULL},
    {THEIRS "g_a_proj.weight", LF_MAP_COPY, OURS "g_a.weight", NULL},
    {THEIRS "g_b_proj.weight", LF_MAP_COPY, OURS "g_b.weight", NULL},
    {THEIRS "b_proj.weight", LF_MAP_COPY, OURS "b.weight", NULL},
    {THEIRS "A_log", LF_MAP_INNER, OURS "a_log", NULL},
    {THEIRS "dt_bias", LF_MAP_COPY, OURS "dt_bias", NULL},
    {THEIRS "o_norm.weight", LF_MAP_COPY, OURS "norm.weight", NULL},
    {THEIRS "o_proj.weight", LF_MAP_COPY, OURS "o.weight", NULL},
    {0},
};

/* transformers writes the MLP of a layer without experts as if it had some. */
static void canon(char *out, size_t cap, const char *name)
{
    static const char sparse[] = ".block_sparse_moe.";
    static const char *const parts[] = {"gate_proj.", "up_proj.", "down_proj."};
    const char *at = strstr(name, sparse);
    bool dense = false;
    for (size_t i = 0; at && i < sizeof parts / sizeof *parts; i++)
        dense = dense || strncmp(at + sizeof sparse - 1, parts[i], strlen(parts[i])) == 0;
    if (dense)
        snprintf(out, cap, "%.*s.mlp.%s", (int)(at - name), name, at + sizeof sparse - 1);
    else
        snprintf(out, cap, "%s", name);
}

/* A list of layers, counted from 1, into letters. */
static int mark(const lf_hf_reader *r, const lf_model_config *c, json_t *list, char *text,
                char letter, lf_err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_int_t l = json_integer_value(json_array_get(list, i));
        if (l < 1 || l > c->layers)
            return lf_fail(err, LF_EFORMAT, "%s: linear_attn_config lists layer %lld of %lld",
                           r->path, (long long)l, (long long)c->layers);
        text[l - 1] = letter;
    }
    return 0;
}

/* full_attn_layers and kda_layers of linear_attn_config, where there is no layer_types. */
static int read_lists(lf_hf_reader *r, lf_model_config *c, json_t *linear, lf_err *err)
{
    json_t *full = json_object_get(linear, "full_attn_layers"),
           *kda = json_object_get(linear, "kda_layers");
    if (json_object_get(r->o, "layer_types") || !full || !kda)
        return lf_hf_read_mixers(r, c, mixers, "kkkkf,kkkf*", err);
    char *text = lf_calloc((size_t)c->layers + 1, 1, err);
    int rc = text ? mark(r, c, full, text, LF_MIXER_FULL, err) : LF_ENOMEM;
    rc = rc != 0 ? rc : mark(r, c, kda, text, LF_MIXER_KDA, err);
    if (rc == 0 && strlen(text) < (size_t)c->layers)
        rc = lf_fail(err, LF_EFORMAT, "%s: linear_attn_config does not say what layer %zu is",
                     r->path, strlen(text) + 1);
    rc = rc != 0 ? rc : lf_hf_set_letters(r, c, "linear_attn_config", "layer_mixers", text, err);
    free(text);
    return rc;
}

/* Sizes that linear_attn_config has, or else config.json itself. */
static const struct size {
    const char *inside, *outside;
    int64_t def;
    const char *ours[4];
} sizes[] = {
    {"head_dim", "linear_head_dim", 128, {"scan_key_dim", "scan_value_dim", "scan_rank", NULL}},
    {"num_heads", "linear_num_heads", 32, {"scan_heads", "scan_groups", NULL}},
    {"short_conv_kernel_size", "linear_conv_kernel_dim", 4, {"scan_conv", NULL}},
};

static int read_size(lf_hf_reader *r, lf_model_config *c, json_t *linear, const struct size *s,
                     lf_err *err)
{
    json_t *v = json_object_get(linear, s->inside);
    int64_t n = s->def;
    int rc = lf_hf_get_i64(r, s->outside, &n, err);
    if (json_is_integer(v))
        n = json_integer_value(v);
    for (const char *const *ours = s->ours; *ours && rc == 0; ours++)
        rc = lf_hf_set_number(r, c, s->outside, *ours, (double)n, err);
    return rc;
}

/* mlp_layer_types, or how many first layers have no experts. */
static int read_mlps(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return json_object_get(r->o, "mlp_layer_types")
               ? lf_hf_read_mlp_types(r, c, 0, err)
               : lf_hf_read_dense_layers(r, c, "first_k_dense_replace", 1, err);
}

static int read_kimi(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *linear = lf_hf_take(r, "linear_attn_config");
    const char *shared =
        json_object_get(r->o, "n_shared_experts") ? "n_shared_experts" : "num_shared_experts";
    int rc = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes && rc == 0; i++)
        rc = read_size(r, c, linear, &sizes[i], err);
    rc = rc != 0 ? rc : read_lists(r, c, linear, err);
    rc = rc != 0 ? rc : read_mlps(r, c, err);
    return rc != 0 ? rc : lf_hf_read_shared(r, c, shared, 1, err);
}

static int write_kimi(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *full = json_array(), *kda = json_array();
    int bad = !full || !kda;
    for (int64_t l = 0; l < c->layers && !bad; l++)
        bad = json_array_append_new(lf_model_layer_mixer(c, l) == LF_MIXER_KDA ? kda : full,
                                    json_integer(l + 1));
    json_t *linear =
        json_pack("{s:I, s:I, s:I, s:O, s:O}", "head_dim", (json_int_t)c->scan_key_dim, "num_heads",
                  (json_int_t)c->scan_heads, "short_conv_kernel_size", (json_int_t)c->scan_conv,
                  "full_attn_layers", full, "kda_layers", kda);
    bad = bad || json_object_set(o, "linear_attn_config", linear);
    json_decref(linear);
    json_decref(full);
    json_decref(kda);
    if (bad)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    int rc = lf_hf_write_dense_layers(c, o, "first_k_dense_replace", err);
    return rc != 0 ? rc : lf_hf_write_shared(c, o, "num_shared_experts", json_integer(0), err);
}

static const struct lf_hf_module modules[] = {
    {".f_a_proj.", ".forget_gate.f_a_proj."}, {".f_b_proj.", ".forget_gate.f_b_proj."}, {0}};

const struct lf_hf_family lf_hf_kimi_linear = {
    .modules = modules,
    .name = "kimi-linear",
    .model_type = "kimi_linear",
    .architecture = "KimiLinearForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = switches,
    .keys = keys,
    .rows = rows,
    .canon = canon,
    .read = read_kimi,
    .write = write_kimi,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
