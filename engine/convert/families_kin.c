/* SPDX-License-Identifier: Apache-2.0
 *
 * Kin of Llama with other names, fusions, biases or positions: Mistral, InternLM2 and 3, Seed-OSS,
 * ERNIE 4.5, Nemotron, Ministral 3. */
#include <math.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

static const char *const switches[] = {"norm=rms", "position=rope", "mlp=glu", NULL};

static int read_rope(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 10000, err);
}

int64_t lf_hf_head_dim(const lf_model_config *c)
{
    return c->head_dim ? c->head_dim : c->hidden / c->heads;
}

static const struct lf_map_row plain_rows[] = {
    KIN_ATTENTION_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, {0}};

/* ---- Mistral ---- */

static const struct lf_hf_key mistral_keys[] = {
    KIN_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {0},
};

/* An absent sliding_window means 4096, null means none. */
static int read_mistral(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t window;
    int rc = lf_hf_get_window(r, 4096, &window, err);
    if (rc == 0 && window >= 0)
        rc = lf_hf_set_number(r, c, "sliding_window", "sliding_window", (double)window, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_mistral(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (json_object_set_new(o, "sliding_window",
                            c->sliding_window > 0 ? json_integer(c->sliding_window) : json_null()))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return lf_hf_write_rope(c, o, err);
}

const struct lf_hf_family lf_hf_mistral = {
    .name = "mistral",
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .classifier = "MistralForSequenceClassification",
    .prefix = "model.",
    .switches = switches,
    .keys = mistral_keys,
    .rows = plain_rows,
    .read = read_mistral,
    .write = write_mistral,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- InternLM2 and 2.5 ---- */

static const struct lf_hf_key internlm2_keys[] = {
    KIN_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"bias", LF_HF_BOOL, "qkv_bias out_bias", "true"},
    {0},
};

static const struct lf_map_row internlm2_rows[] = {
    {"model.tok_embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.layers.{L}.attention_norm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight", NULL},
    {"model.layers.{L}.attention.wqkv.{P}", LF_MAP_STACK,
     "groups=kv_heads layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"model.layers.{L}.attention.wo.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"model.layers.{L}.ffn_norm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight", NULL},
    {"model.layers.{L}.feed_forward.w1.weight", LF_MAP_COPY, "layers.{L}.mlp.gate.weight", NULL},
    {"model.layers.{L}.feed_forward.w3.weight", LF_MAP_COPY, "layers.{L}.mlp.up.weight", NULL},
    {"model.layers.{L}.feed_forward.w2.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight", NULL},
    {"model.norm.weight", LF_MAP_COPY, "final_norm.weight", NULL},
    {"output.weight", LF_MAP_COPY, "head.weight", NULL},
    {"output.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"model.layers.{L}.attention.rotary_emb.inv_freq", LF_MAP_IGNORED, "follows from rope_theta",
     NULL},
    {0},
};

/* The published code knows "type" only. */
static int write_internlm2(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_rope(c, o, err);
    json_t *s = rc != 0 ? NULL : json_object_get(o, "rope_scaling");
    if (s && (json_object_set(s, "type", json_object_get(s, "rope_type")) ||
              json_object_del(s, "rope_type")))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

const struct lf_hf_family lf_hf_internlm2 = {
    .name = "internlm2",
    .also = "internlm2.5",
    .model_type = "internlm2",
    .architecture = "InternLM2ForCausalLM",
    .prefix = "model.",
    .switches = switches,
    .keys = internlm2_keys,
    .rows = internlm2_rows,
    .read = read_rope,
    .write = write_internlm2,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- InternLM3 ---- */

/* head_dim where the file has none is that of the heads. bias: all linear layers but q, k and v. */
static const struct lf_hf_key internlm3_keys[] = {
    KIN_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "32768"},
    {"qkv_bias", LF_HF_BOOL, "qkv_bias", "false"},
    {"bias", LF_HF_BOOL, "out_bias mlp_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {0},
};

const struct lf_hf_family lf_hf_internlm3 = {
    .name = "internlm3",
    .model_type = "internlm3",
    .architecture = "InternLM3ForCausalLM",
    .prefix = "model.",
    .switches = switches,
    .keys = internlm3_keys,
    .rows = plain_rows,
    .read = read_rope,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Seed-OSS ---- */

static const struct lf_hf_key seed_keys[] = {
    KIN_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "524288"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias", "true"},
    {"attention_out_bias", LF_HF_BOOL, "out_bias", "false"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {"residual_dropout", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0.1"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0.1"},
    {0},
};

const struct lf_hf_family lf_hf_seed_oss = {
    .name = "seed-oss",
    .model_type = "seed_oss",
    .architecture = "SeedOssForCausalLM",
    .classifier = "SeedOssForSequenceClassification",
    .prefix = "model.",
    .switches = switches,
    .keys = seed_keys,
    .rows = plain_rows,
    .read = read_rope,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- ERNIE 4.5 without experts ---- */

static const char *const ernie_switches[] = {"norm=rms", "position=rope", "rope_interleaved=yes",
                                             "mlp=glu", NULL};

static const struct lf_hf_key ernie_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "2"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"use_bias", LF_HF_BOOL, "qkv_bias out_bias mlp_bias", "false"},
    {0},
};

static int read_ernie(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 500000, err);
}

const struct lf_hf_family lf_hf_ernie = {
    .name = "ernie4.5",
    .model_type = "ernie4_5",
    .architecture = "Ernie4_5ForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = ernie_switches,
    .keys = ernie_keys,
    .rows = plain_rows,
    .read = read_ernie,
    .write = lf_hf_write_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Nemotron 3 and 4, Minitron ---- */

/* Norms multiply by their weight + 1; the MLP is plain, with the square of relu. */
static const char *const nemotron_switches[] = {"norm=layer",    "norm_bias=yes", "norm_offset=1",
                                                "position=rope", "mlp=plain",     NULL};

static const struct lf_hf_key nemotron_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"hidden_act", LF_HF_ACT, "activation", "\"relu2\""},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "4096"},
    {"norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.0134"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"mlp_bias", LF_HF_BOOL, "mlp_bias", "false"},
    {0},
};

static const struct lf_map_row nemotron_rows[] = {
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.layers.{L}.input_layernorm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    KIN_QKVO_ROWS,
    {"model.layers.{L}.post_attention_layernorm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}", NULL},
    {"model.layers.{L}.mlp.up_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"model.layers.{L}.mlp.down_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"model.norm.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

static int read_nemotron(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_hf_set_number(r, c, "partial_rotary_factor", "rope_fraction", 0.5, err);
    return rc != 0
               ? rc
               : lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = 10000, .part = true}, err);
}

const struct lf_hf_family lf_hf_nemotron = {
    .name = "nemotron",
    .model_type = "nemotron",
    .architecture = "NemotronForCausalLM",
    .classifier = "NemotronForSequenceClassification",
    .prefix = "model.",
    .switches = nemotron_switches,
    .keys = nemotron_keys,
    .rows = nemotron_rows,
    .read = read_nemotron,
    .write = lf_hf_write_partial_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Ministral 3 ---- */

static const struct lf_hf_key ministral3_keys[] = {
    KIN_SIZES,
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "262144"},
    {"sliding_window", LF_HF_NUMBER, "sliding_window", "null"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {0},
};

/* The class needs all of it in rope_parameters: the rotary positions, and by how much queries grow
 * with each further length of the first training. */
int lf_hf_read_growing_rope(lf_hf_reader *r, lf_model_config *c, double theta, lf_err *err)
{
    json_t *s = lf_hf_take(r, "rope_parameters"),
           *beta = json_object_get(s, "llama_4_scaling_beta"),
           *n = json_object_get(s, "original_max_position_embeddings"),
           *mine = json_is_object(s) ? json_deep_copy(s) : NULL;
    int rc = 0;
    if (!mine || !json_is_number(beta) || !json_is_integer(n))
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: rope_parameters has no llama_4_scaling_beta or "
                     "original_max_position_embeddings, which this class reads",
                     r->path);
    /* of latent attention: which part of a head turns, as its widths say */
    json_t *part = c->kv_lora ? json_object_get(mine, "partial_rotary_factor") : NULL;
    const double turns = (double)c->rope_dim / (double)(c->nope_dim + c->rope_dim);
    if (rc == 0 && part && !(fabs(json_number_value(part) - turns) < 1e-9))
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: partial_rotary_factor is not %g, which is the part of a head that turns",
                     r->path, turns);
    if (part)
        json_object_del(mine, "partial_rotary_factor");
    json_object_del(mine, "llama_4_scaling_beta");
    json_object_del(mine, "max_position_embeddings");
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "original_max_position_embeddings", "rope_original_positions",
                              json_number_value(n), err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "llama_4_scaling_beta", "query_growth", json_number_value(beta),
                              err);
    const char *type = json_string_value(json_object_get(mine, "rope_type"));
    type = type ? type : json_string_value(json_object_get(mine, "type"));
    if (!type || strcmp(type, "yarn") != 0)
        json_object_del(mine, "original_max_position_embeddings"); /* of no scaling */
    if (rc == 0)
        rc = lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = theta, .params = mine}, err);
    json_decref(mine);
    return rc;
}

static int read_ministral3(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_growing_rope(r, c, 1000000, err);
}

int lf_hf_write_growing_rope(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_rope(c, o, err);
    if (rc != 0)
        return rc;
    json_t *was = json_object_get(o, "rope_scaling"),
           *s = was ? json_deep_copy(was) : json_pack("{s:s}", "rope_type", "default");
    int bad = !s || json_object_set_new(s, "rope_theta", json_real(c->rope_theta)) ||
              json_object_set_new(s, "llama_4_scaling_beta", json_real(c->query_growth)) ||
              json_object_set_new(s, "original_max_position_embeddings",
                                  json_integer(c->rope_original_positions)) ||
              json_object_set(o, "rope_parameters", s);
    json_decref(s);
    json_object_del(o, "rope_scaling");
    json_object_del(o, "rope_theta");
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

const struct lf_hf_family lf_hf_ministral3 = {
    .name = "ministral3",
    .model_type = "ministral3",
    .architecture = "Ministral3ForCausalLM",
    .classifier = "Ministral3ForSequenceClassification",
    .prefix = "model.",
    .switches = switches,
    .keys = ministral3_keys,
    .rows = plain_rows,
    .read = read_ministral3,
    .write = lf_hf_write_growing_rope,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
