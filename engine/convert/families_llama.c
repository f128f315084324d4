/* SPDX-License-Identifier: Apache-2.0
 *
 * Llama 1 to 3.2, CodeLlama and what has their shape: RMSNorm, rotary positions, gated MLP, q, k
 * and v apart. IQuest-Coder is that with other defaults; CWM has a window in most layers. */
#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

#define LLAMA_SWITCHES "norm=rms", "position=rope", "mlp=glu"

static const char *const llama_switches[] = {LLAMA_SWITCHES, NULL};

static const struct lf_hf_key llama_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"max_sequence_length", LF_HF_INERT, NULL, NULL},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"is_llama_config", LF_HF_UNREAD, NULL, "true"}, /* SmolLM2, here and below */
    {"rope_interleaved", LF_HF_UNREAD, NULL, "false"},
    {"activation", LF_HF_UNREAD, NULL, "\"swiglu\""}, /* Falcon 3 */
    {0},
};

static const struct lf_map_row llama_rows[] = {
    KIN_INPUT_ROWS,
    {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight",
     NULL},
    {"model.layers.{L}.mlp.gate_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.gate.{P}", NULL},
    {"model.layers.{L}.mlp.up_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"model.layers.{L}.mlp.down_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"model.norm.weight", LF_MAP_COPY, "final_norm.weight", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"model.layers.{L}.self_attn.rotary_emb.inv_freq", LF_MAP_IGNORED, "follows from rope_theta",
     NULL},
    {0},
};

static int read_llama(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 10000, err);
}

const struct lf_hf_family lf_hf_llama = {
    .name = "llama",
    .also = "llama1 llama2 llama3 llama3.1 llama3.2 codellama yi deepseek deepseek-coder",
    .model_type = "llama",
    .architecture = "LlamaForCausalLM",
    .classifier = "LlamaForSequenceClassification",
    .prefix = "model.",
    .switches = llama_switches,
    .keys = llama_keys,
    .rows = llama_rows,
    .read = read_llama,
    .write = lf_hf_write_rope,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- IQuest-Coder and CWM ---- */

#define LATER_KEYS                                                                                 \
    KIN_SIZES, {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},                             \
        {"head_dim", LF_HF_NUMBER, "head_dim", "128"},                                             \
        {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},                      \
        {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},                                        \
        {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},                                             \
        {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},                             \
    {                                                                                              \
        "tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"                                    \
    }

static const struct lf_hf_key iquest_keys[] = {
    LATER_KEYS,
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"use_sliding_window", LF_HF_UNREAD, NULL, "false"},
    {"sliding_window", LF_HF_INERT, NULL, NULL}, /* of published files; the class has no window */
    {"max_window_layers", LF_HF_INERT, NULL, NULL},
    {0},
};

const struct lf_hf_family lf_hf_iquestcoder = {
    .name = "iquestcoder",
    .model_type = "iquestcoder",
    .architecture = "LlamaForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = llama_switches,
    .keys = iquest_keys,
    .rows = llama_rows,
    .read = read_llama,
    .write = lf_hf_write_rope,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

static const struct lf_hf_key cwm_keys[] = {
    LATER_KEYS,
    {"attention_bias", LF_HF_UNREAD, NULL, "false"}, /* of files that name what Llama has */
    {0},
};

/* Where nobody says how positions turn, the class scales them, and its base stands against a
 * rope_theta. */
static json_t *cwm_rope(const lf_hf_reader *r)
{
    json_t *a = json_object_get(r->o, "rope_scaling"),
           *b = json_object_get(r->o, "rope_parameters");
    const bool empty = json_is_object(a) && json_object_size(a) == 0;
    if ((a && !json_is_null(a) && !empty) || (b && !json_is_null(b)))
        return NULL;
    return json_pack("{s:s, s:f, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "rope_theta", 1e6,
                     "factor", 16.0, "high_freq_factor", 4.0, "low_freq_factor", 1.0,
                     "original_max_position_embeddings", 8192);
}

static int read_cwm(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t window;
    json_t *usual = cwm_rope(r);
    int rc = lf_hf_get_window(r, 8192, &window, err);
    if (rc == 0)
        rc = lf_hf_read_layers(r, c, window, false,
                               &(struct lf_hf_slide){.period = 4, .exception = LF_HF_FIRST}, err);
    if (rc == 0)
        rc = lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = 1000000, .params = usual}, err);
    json_decref(usual);
    return rc;
}

/* Without any scaling named, the class would scale; and it takes no null for the token that a text
 * begins with, so where none is known that is no token. */
static int write_cwm(const lf_model_config *c, json_t *o, lf_err *err)
{
    const int64_t window = c->sliding_window > 0 ? c->sliding_window : 8192;
    int rc = lf_hf_write_rope(c, o, err),
        bad = json_object_set_new(o, "sliding_window", json_integer(window)) ||
              json_object_set_new(o, "bos_token_id", json_integer(-1));
    if (c->rope_scaling == LF_ROPE_PLAIN)
        bad = bad || json_object_set_new(o, "rope_parameters",
                                         json_pack("{s:s, s:f}", "rope_type", "default",
                                                   "rope_theta", c->rope_theta));
    if (rc == 0 && bad)
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc != 0 ? rc : lf_hf_write_layers(c, o, err);
}

const struct lf_hf_family lf_hf_cwm = {
    .name = "cwm",
    .model_type = "cwm",
    .architecture = "CwmForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = llama_switches,
    .keys = cwm_keys,
    .rows = llama_rows,
    .read = read_cwm,
    .write = write_cwm,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
