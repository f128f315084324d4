/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder of Llama 4: layers that attend within chunks and turn, with norms of queries and keys
 * that have no weights; among them layers that see all and do not turn, whose queries grow with
 * their position; one expert of several beside a shared one, which reads its input weighed. Files
 * have all experts in one tensor, turned. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/families_kin.h"

static const char *const switches[] = {"norm=rms",
                                       "position=rope",
                                       "rope_interleaved=yes",
                                       "mlp=glu",
                                       "router_score=sigmoid",
                                       "router_on_input=yes",
                                       "router_renorm=no",
                                       "router_bias=no",
                                       "router_scale=1",
                                       "shared_gate=no",
                                       NULL};

static const struct lf_hf_key keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "202048"},
    {"hidden_size", LF_HF_NUMBER, "hidden", "5120"},
    {"intermediate_size", LF_HF_NUMBER, "expert_ffn shared_ffn", "8192"},
    {"intermediate_size_mlp", LF_HF_NUMBER, "ffn", "16384"},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", "48"},
    {"num_attention_heads", LF_HF_NUMBER, "heads", "40"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"use_qk_norm", LF_HF_BOOL, "qk_unit_norm", "true"},
    {"num_local_experts", LF_HF_NUMBER, "experts", "16"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "1"},
    /* the class adds no loss of the balance, and no noise */
    {"router_aux_loss_coef", LF_HF_INERT, NULL, NULL},
    {"router_jitter_noise", LF_HF_INERT, NULL, NULL},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"for_llm_compressor", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_hf_mixer mixers[] = {
    {"chunked_attention", LF_MIXER_CHUNK}, {"full_attention", LF_MIXER_FULL}, {0}};

/* Without a list of kinds, layers that turn attend within chunks, and the others see all. */
static int read_kinds(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    struct lf_model_pattern p;
    char *letters = lf_calloc((size_t)c->layers + 1, 1, err);
    int rc = letters ? 0 : LF_ENOMEM;
    for (int64_t l = 0; l < c->layers && rc == 0; l++)
        letters[l] = lf_model_layer_position(c, l) == LF_TURN_NONE ? LF_MIXER_FULL : LF_MIXER_CHUNK;
    rc = rc != 0 ? rc : lf_model_pattern_of(&p, letters, c->layers, err);
    rc = rc != 0 ? rc : lf_hf_read_mixers(r, c, mixers, p.text, err);
    free(letters);
    return rc;
}

/* The class reads it where nothing attends within chunks, too. */
static int read_chunk(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const bool none = json_is_null(json_object_get(r->o, "attention_chunk_size"));
    int64_t n = 8192;
    int rc = lf_hf_get_i64(r, "attention_chunk_size", &n, err);
    if (rc != 0 || !lf_model_count_layers(c, lf_model_layer_mixer, LF_MIXER_CHUNK))
        return rc;
    if (none)
        return lf_fail(err, LF_EFORMAT, "%s: attention_chunk_size = null says nothing", r->path);
    return lf_hf_set_number(r, c, "attention_chunk_size", "attn_chunk", (double)n, err);
}

/* The layers that have experts: a list, or each n-th. */
static int read_experts(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *list = lf_hf_take(r, "moe_layers");
    int64_t every = 1;
    int rc = list ? 0 : lf_hf_get_period(r, "interleave_moe_layer_step", &every, err);
    if (list)
        (void)lf_hf_take(r, "interleave_moe_layer_step"); /* which the class does not read then */
    if (rc == 0 && list && !json_is_array(list))
        rc = lf_fail(err, LF_EFORMAT, "%s: moe_layers is not a list", r->path);
    char *letters = rc == 0 ? lf_calloc((size_t)c->layers + 1, 1, err) : NULL;
    if (!letters)
        return rc != 0 ? rc : LF_ENOMEM;
    for (int64_t l = 0; l < c->layers; l++)
        letters[l] = !list && (l + 1) % every == 0 ? LF_MLP_EXPERTS : LF_MLP_DENSE;
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        const json_t *of = json_array_get(list, i);
        const int64_t l = json_is_integer(of) ? json_integer_value(of) : -1;
        if (l < 0 || l >= c->layers)
            rc = lf_fail(err, LF_EFORMAT, "%s: moe_layers names a layer that is none of %lld",
                         r->path, (long long)c->layers);
        else
            letters[l] = LF_MLP_EXPERTS;
    }
    rc = rc != 0 ? rc : lf_hf_set_letters(r, c, "moe_layers", "layer_mlps", letters, err);
    free(letters);
    return rc;
}

/* attn_temperature_tuning, which files also have as a number: does anything grow? */
static int read_growth(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *tuning = lf_hf_take(r, "attn_temperature_tuning");
    double by = 0.1;
    int64_t n = 8192;
    if (tuning && !json_is_boolean(tuning) && !json_is_integer(tuning))
        return lf_fail(err, LF_EFORMAT, "%s: attn_temperature_tuning is neither true nor false",
                       r->path);
    const bool off =
        json_is_false(tuning) || (json_is_integer(tuning) && json_integer_value(tuning) == 0);
    int rc = lf_hf_get_f64(r, "attn_scale", &by, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "floor_scale", &n, err);
    rc = rc != 0 ? rc : lf_hf_set_number(r, c, "floor_scale", "nope_growth_length", (double)n, err);
    return rc != 0 || off ? rc : lf_hf_set_number(r, c, "attn_scale", "nope_growth", by, err);
}

static int read_llama4(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_read_no_rope(r, c, true, err);
    rc = rc != 0 ? rc : read_kinds(r, c, err);
    rc = rc != 0 ? rc : read_chunk(r, c, err);
    rc = rc != 0 ? rc : read_experts(r, c, err);
    rc = rc != 0 ? rc : read_growth(r, c, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 500000, err);
}

static int write_llama4(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *list = json_array();
    int bad = !list;
    for (int64_t l = 0; l < c->layers && !bad; l++)
        if (lf_model_layer_moe(c, l))
            bad = json_array_append_new(list, json_integer(l));
    const bool grows = c->nope_growth > 0;
    bad = bad || json_object_set(o, "moe_layers", list) ||
          json_object_set_new(o, "attn_temperature_tuning", json_boolean(grows)) ||
          json_object_set_new(o, "attention_chunk_size",
                              json_integer(c->attn_chunk ? c->attn_chunk : 8192)) ||
          json_object_set_new(o, "floor_scale", json_integer(c->nope_growth_length)) ||
          (grows && json_object_set_new(o, "attn_scale", json_real(c->nope_growth)));
    json_decref(list);
    if (bad)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    int rc = lf_hf_write_mixers(c, o, mixers, err);
    rc = rc != 0 ? rc : lf_hf_write_no_rope(c, o, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

#define FEED   "model.layers.{L}.feed_forward."
#define SHARED "layers.{L}.moe.shared."
#define OURS   "layers.{L}.moe.experts."
static const struct lf_map_row rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_HEAD_ROWS,
    {FEED "gate_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.gate.weight", NULL},
    {FEED "up_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.up.weight", NULL},
    {FEED "down_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight", NULL},
    {FEED "router.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL},
    {FEED "shared_expert.gate_proj.weight", LF_MAP_COPY, SHARED "gate.weight", NULL},
    {FEED "shared_expert.up_proj.weight", LF_MAP_COPY, SHARED "up.weight", NULL},
    {FEED "shared_expert.down_proj.weight", LF_MAP_COPY, SHARED "down.weight", NULL},
    {FEED "experts.gate_up_proj", LF_MAP_STACK_T,
     "blocks=experts " OURS "gate.weight " OURS "up.weight", NULL},
    {FEED "experts.down_proj", LF_MAP_STACK_T, "blocks=experts " OURS "down.weight", NULL},
    {0},
};

const struct lf_hf_family lf_hf_llama4 = {
    .name = "llama4",
    .model_type = "llama4_text",
    .architecture = "Llama4ForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = switches,
    .keys = keys,
    .rows = rows,
    .read = read_llama4,
    .write = write_llama4,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
