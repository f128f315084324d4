/* SPDX-License-Identifier: Apache-2.0
 *
 * LFM2 with and without experts: short convolutions, and attention among them. */
#include <stdlib.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/families_kin.h"

static const struct lf_hf_mixer mixers[] = {
    {"conv", LF_MIXER_CONV}, {"full_attention", LF_MIXER_FULL}, {0}};

#define LFM_KEYS                                                                                   \
    {"vocab_size", LF_HF_NUMBER, "vocab", "65536"}, {"hidden_size", LF_HF_NUMBER, "hidden", NULL}, \
        {"num_hidden_layers", LF_HF_NUMBER, "layers", "32"},                                       \
        {"num_attention_heads", LF_HF_NUMBER, "heads", "32"},                                      \
        {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},                                    \
        {"head_dim", LF_HF_NUMBER, "head_dim", "null"},                                            \
        {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "128000"},                      \
        {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},                                   \
        {"norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},                                            \
        {"tie_word_embeddings|tie_embedding", LF_HF_BOOL, "tied_head", "true"},                    \
        {"conv_bias", LF_HF_BOOL, "scan_conv_bias scan_bias", "false"},                            \
    {                                                                                              \
        "conv_L_cache", LF_HF_NUMBER, "scan_conv", "3"                                             \
    }

#define LFM_ROWS                                                                                   \
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},                              \
        {"model.layers.{L}.operator_norm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight",      \
         NULL},                                                                                    \
        {"model.layers.{L}.ffn_norm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight", NULL},     \
        {"model.layers.{L}.self_attn.q_proj.weight", LF_MAP_COPY, "layers.{L}.attn.q.weight",      \
         NULL},                                                                                    \
        {"model.layers.{L}.self_attn.k_proj.weight", LF_MAP_COPY, "layers.{L}.attn.k.weight",      \
         NULL},                                                                                    \
        {"model.layers.{L}.self_attn.v_proj.weight", LF_MAP_COPY, "layers.{L}.attn.v.weight",      \
         NULL},                                                                                    \
        {"model.layers.{L}.self_attn.out_proj.weight", LF_MAP_COPY, "layers.{L}.attn.o.weight",    \
         NULL},                                                                                    \
        {"model.layers.{L}.self_attn.q_layernorm.weight", LF_MAP_COPY,                             \
         "layers.{L}.attn.q_norm.weight", NULL},                                                   \
        {"model.layers.{L}.self_attn.k_layernorm.weight", LF_MAP_COPY,                             \
         "layers.{L}.attn.k_norm.weight", NULL},                                                   \
        {"model.layers.{L}.conv.in_proj.{P}", LF_MAP_STACK,                                        \
         "layers.{L}.conv.b.{P} layers.{L}.conv.c.{P} layers.{L}.conv.x.{P}", NULL},               \
        {"model.layers.{L}.conv.conv.weight", LF_MAP_DEPTHWISE, "layers.{L}.conv.filter.weight",   \
         NULL},                                                                                    \
        {"model.layers.{L}.conv.conv.bias", LF_MAP_COPY, "layers.{L}.conv.filter.bias", NULL},     \
        {"model.layers.{L}.conv.out_proj.{P}", LF_MAP_COPY, "layers.{L}.conv.o.{P}", NULL},        \
        {"model.layers.{L}.feed_forward.w1.weight", LF_MAP_COPY, "layers.{L}.mlp.gate.weight",     \
         NULL},                                                                                    \
        {"model.layers.{L}.feed_forward.w3.weight", LF_MAP_COPY, "layers.{L}.mlp.up.weight",       \
         NULL},                                                                                    \
        {"model.layers.{L}.feed_forward.w2.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight",     \
         NULL},                                                                                    \
        {"model.embedding_norm.weight", LF_MAP_COPY, "final_norm.weight", NULL},                   \
        {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},                                      \
    {                                                                                              \
        "lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"                             \
    }

/* ---- LFM2 ---- */

static const char *const lfm2_switches[] = {"norm=rms",        "position=rope", "mlp=glu",
                                            "activation=silu", "qk_norm=yes",   NULL};

/* From block_dim on: what published files say and the class does not read. */
static const struct lf_hf_key lfm2_keys[] = {
    LFM_KEYS,
    {"block_dim", LF_HF_INERT, NULL, NULL},
    {"block_mlp_init_scale", LF_HF_INERT, NULL, NULL},
    {"block_norm_eps", LF_HF_INERT, NULL, NULL},
    {"block_out_init_scale", LF_HF_INERT, NULL, NULL},
    {"block_use_swiglu", LF_HF_UNREAD, NULL, "true"},
    {"block_use_xavier_init", LF_HF_INERT, NULL, NULL},
    {"conv_dim", LF_HF_INERT, NULL, NULL},
    {"conv_dim_out", LF_HF_INERT, NULL, NULL},
    {"conv_use_xavier_init", LF_HF_INERT, NULL, NULL},
    {"num_heads", LF_HF_INERT, NULL, NULL},
    {"theta", LF_HF_INERT, NULL, NULL},
    {"use_pos_enc", LF_HF_UNREAD, NULL, "true"},
    {0},
};

static const struct lf_map_row lfm2_rows[] = {LFM_ROWS, {0}};

/* The width of the MLP: block_ff_dim or intermediate_size, two thirds of which times a factor are
 * rounded up to a multiple, unless block_auto_adjust_ff_dim says that they are not. */
static int read_ffn(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t ffn = 12288, multiple = 256;
    double factor = json_is_null(json_object_get(r->o, "block_ffn_dim_multiplier")) ? -1 : 1;
    bool adjust = true;
    int rc = lf_hf_get_i64(r, "intermediate_size", &ffn, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "block_ff_dim", &ffn, err);
    rc = rc != 0 ? rc : lf_hf_get_bool(r, "block_auto_adjust_ff_dim", &adjust, err);
    rc = rc != 0 ? rc : lf_hf_get_f64(r, "block_ffn_dim_multiplier", &factor, err);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "block_multiple_of", &multiple, err);
    if (rc == 0 && (ffn < 1 || ffn > 1 << 24 || multiple < 1 || multiple > 1 << 24 || factor > 1e6))
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: intermediate_size = %lld, block_multiple_of = %lld, "
                     "block_ffn_dim_multiplier = %g give no width",
                     r->path, (long long)ffn, (long long)multiple, factor);
    if (rc == 0 && adjust)
        ffn = ffn * 2 / 3;
    if (rc == 0 && adjust && factor >= 0)
        ffn = ((int64_t)(factor * (double)ffn) + multiple - 1) / multiple * multiple;
    return rc != 0 ? rc : lf_hf_set_number(r, c, "intermediate_size", "ffn", (double)ffn, err);
}

/* layer_types, or else full_attn_idxs, without which all layers attend. */
static int read_lfm2(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *list = lf_hf_take(r, "full_attn_idxs");
    int rc = read_ffn(r, c, err);
    if (rc == 0 && list && !json_object_get(r->o, "layer_types")) {
        char *text = lf_calloc((size_t)c->layers + 1, 1, err);
        rc = text ? 0 : LF_ENOMEM;
        for (int64_t l = 0; l < c->layers && rc == 0; l++)
            text[l] = LF_MIXER_CONV;
        for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
            const json_int_t l = json_integer_value(json_array_get(list, i));
            if (l >= 0 && l < c->layers) /* there is none behind the last */
                text[l] = LF_MIXER_FULL;
        }
        rc = rc != 0 ? rc : lf_hf_set_letters(r, c, "full_attn_idxs", "layer_mixers", text, err);
        free(text);
    } else if (rc == 0) {
        rc = lf_hf_read_mixers(r, c, mixers, "f*", err);
    }
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 1000000, err);
}

static int write_lfm2(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (json_object_set_new(o, "intermediate_size", json_integer(c->ffn)) ||
        json_object_set_new(o, "block_auto_adjust_ff_dim", json_false()))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    int rc = lf_hf_write_mixers(c, o, mixers, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

const struct lf_hf_family lf_hf_lfm2 = {
    .name = "lfm2",
    .model_type = "lfm2",
    .architecture = "Lfm2ForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = lfm2_switches,
    .keys = lfm2_keys,
    .rows = lfm2_rows,
    .read = read_lfm2,
    .write = write_lfm2,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- with experts ---- */

static const char *const lfm2_moe_switches[] = {
    "norm=rms",    "position=rope",        "mlp=glu", "activation=silu",
    "qk_norm=yes", "router_score=sigmoid", NULL};

static const struct lf_hf_key lfm2_moe_keys[] = {
    LFM_KEYS,
    {"intermediate_size", LF_HF_NUMBER, "ffn", "7168"},
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "1792"},
    {"num_experts|num_local_experts", LF_HF_NUMBER, "experts", "32"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "4"},
    {"use_expert_bias", LF_HF_BOOL, "router_bias", "true"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"routed_scaling_factor", LF_HF_NUMBER, "router_scale", "1"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_map_row lfm2_moe_rows[] = {
    LFM_ROWS,
    {"model.layers.{L}.feed_forward.gate.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight",
     NULL},
    {"model.layers.{L}.feed_forward.expert_bias", LF_MAP_COPY, "layers.{L}.moe.router.bias", NULL},
    {"model.layers.{L}.feed_forward.experts.{E}.w1.weight", LF_MAP_EXPERT,
     "layers.{L}.moe.experts.gate.weight", NULL},
    {"model.layers.{L}.feed_forward.experts.{E}.w3.weight", LF_MAP_EXPERT,
     "layers.{L}.moe.experts.up.weight", NULL},
    {"model.layers.{L}.feed_forward.experts.{E}.w2.weight", LF_MAP_EXPERT,
     "layers.{L}.moe.experts.down.weight", NULL},
    {0},
};

static int read_lfm2_moe(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    if (!json_is_array(json_object_get(r->o, "layer_types")))
        return lf_fail(err, LF_EFORMAT, "%s: there is no layer_types, which this class needs",
                       r->path);
    int rc = lf_hf_read_mixers(r, c, mixers, "f*", err);
    rc = rc != 0 ? rc : lf_hf_read_dense_layers(r, c, "num_dense_layers", 2, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 1000000, err);
}

static int write_lfm2_moe(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_mixers(c, o, mixers, err);
    rc = rc != 0 ? rc : lf_hf_write_dense_layers(c, o, "num_dense_layers", err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

const struct lf_hf_family lf_hf_lfm2_moe = {
    .name = "lfm2-moe",
    .model_type = "lfm2_moe",
    .architecture = "Lfm2MoeForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = lfm2_moe_switches,
    .keys = lfm2_moe_keys,
    .rows = lfm2_moe_rows,
    .read = read_lfm2_moe,
    .write = write_lfm2_moe,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
