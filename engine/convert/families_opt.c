/* SPDX-License-Identifier: Apache-2.0
 *
 * OPT, its 350M variant (norms behind the branches, a narrow embedding) and Galactica; BioGPT. */
#include <math.h>

#include "engine/base/json.h"
#include "engine/convert/families.h"

static const char *const opt_switches[] = {"norm=layer",
                                           "norm_bias=yes",
                                           "norm_eps=1e-5",
                                           "position=learned",
                                           "position_offset=2",
                                           "mlp=plain",
                                           NULL};

static const struct lf_hf_key opt_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"ffn_dim", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"activation_function", LF_HF_ACT, "activation", "\"relu\""},
    {"enable_bias", LF_HF_BOOL, "qkv_bias out_bias mlp_bias", "true"},
    {"dropout", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0.1"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"activation_dropout", LF_HF_SAME, NULL, "0"},
    {"layerdrop", LF_HF_SAME, NULL, "0"},
    {"init_std", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"layer_norm_elementwise_affine", LF_HF_SAME, NULL, "true"},
    {"learned_embeddings", LF_HF_SAME, NULL, "true"}, /* Galactica's files */
    {"scale_embeddings", LF_HF_SAME, NULL, "false"},
    {0},
};

static int read_opt(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t proj = c->hidden;
    bool before = true, removed = false;
    int rc = lf_hf_get_i64(r, "word_embed_proj_dim", &proj, err);
    if (rc == 0)
        rc = lf_hf_get_bool(r, "do_layer_norm_before", &before, err);
    if (rc == 0)
        rc = lf_hf_get_bool(r, "_remove_final_layer_norm", &removed, err);
    if (rc == 0 && proj != c->hidden)
        rc = lf_hf_set_number(r, c, "word_embed_proj_dim", "embed_dim", (double)proj, err);
    if (rc == 0 && !before)
        rc = lf_hf_set(r, c, "do_layer_norm_before", "block", "post", err);
    if (rc == 0 && (!before || removed))
        rc = lf_hf_set(r, c, "do_layer_norm_before", "final_norm", "no", err);
    return rc;
}

static int write_opt(const lf_model_config *c, json_t *o, lf_err *err)
{
    bool before = c->block == LF_BLOCK_PRE;
    int bad =
        json_object_set_new(o, "word_embed_proj_dim", json_integer(lf_model_embed_width(c))) ||
        json_object_set_new(o, "do_layer_norm_before", json_boolean(before)) ||
        json_object_set_new(o, "_remove_final_layer_norm", json_boolean(before && !c->final_norm));
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static const struct lf_map_row opt_rows[] = {
    {"model.decoder.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.decoder.embed_positions.weight", LF_MAP_COPY, "pos_embed.weight", NULL},
    {"model.decoder.project_in.weight", LF_MAP_COPY, "embed_in.weight", NULL},
    {"model.decoder.project_out.weight", LF_MAP_COPY, "embed_out.weight", NULL},
    {"model.decoder.layers.{L}.self_attn_layer_norm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}",
     NULL},
    {"model.decoder.layers.{L}.self_attn.q_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.q.{P}", NULL},
    {"model.decoder.layers.{L}.self_attn.k_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.k.{P}", NULL},
    {"model.decoder.layers.{L}.self_attn.v_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.v.{P}", NULL},
    {"model.decoder.layers.{L}.self_attn.out_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"model.decoder.layers.{L}.final_layer_norm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}", NULL},
    {"model.decoder.layers.{L}.fc1.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"model.decoder.layers.{L}.fc2.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"model.decoder.final_layer_norm.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

const struct lf_hf_family lf_hf_opt = {
    .name = "opt",
    .also = "galactica opt-350m",
    .model_type = "opt",
    .architecture = "OPTForCausalLM",
    .classifier = "OPTForSequenceClassification",
    .prefix = "model.",
    .switches = opt_switches,
    .keys = opt_keys,
    .rows = opt_rows,
    .read = read_opt,
    .write = write_opt,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- BioGPT ---- */

static const char *const biogpt_switches[] = {
    "norm=layer",   "norm_bias=yes", "norm_eps=1e-5", "position=learned", "position_offset=2",
    "qkv_bias=yes", "out_bias=yes",  "mlp_bias=yes",  "mlp=plain",        NULL};

static const struct lf_hf_key biogpt_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "1024"},
    {"hidden_act", LF_HF_ACT, "activation", "\"gelu\""},
    {"hidden_dropout_prob", LF_HF_NUMBER, "embed_dropout attn_dropout mlp_dropout", "0.1"},
    {"attention_probs_dropout_prob", LF_HF_NUMBER, "attn_prob_dropout", "0.1"},
    {"activation_dropout", LF_HF_SAME, NULL, "0.0"},
    {"layerdrop", LF_HF_SAME, NULL, "0.0"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"layer_norm_eps", LF_HF_INERT, NULL, NULL}, /* the class has its own */
    {0},
};

/* scale_embedding: the embedding is times sqrt(hidden_size). */
static int read_biogpt(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool scaled = true;
    int rc = lf_hf_get_bool(r, "scale_embedding", &scaled, err);
    return rc != 0 || !scaled ? rc
                              : lf_hf_set_number(r, c, "scale_embedding", "embed_scale",
                                                 sqrt((double)c->hidden), err);
}

static int write_biogpt(const lf_model_config *c, json_t *o, lf_err *err)
{
    return json_object_set_new(o, "scale_embedding", json_boolean(c->embed_scale > 1))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

#define BIO "biogpt.layers.{L}."
static const struct lf_map_row biogpt_rows[] = {
    {"biogpt.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"biogpt.embed_positions.weight", LF_MAP_COPY, "pos_embed.weight", NULL},
    {BIO "self_attn_layer_norm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {BIO "self_attn.q_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.q.{P}", NULL},
    {BIO "self_attn.k_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.k.{P}", NULL},
    {BIO "self_attn.v_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.v.{P}", NULL},
    {BIO "self_attn.out_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {BIO "final_layer_norm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}", NULL},
    {BIO "fc1.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {BIO "fc2.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"biogpt.layer_norm.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"output_projection.weight", LF_MAP_COPY, "head.weight", NULL},
    {"output_projection.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

const struct lf_hf_family lf_hf_biogpt = {
    .name = "biogpt",
    .model_type = "biogpt",
    .architecture = "BioGptForCausalLM",
    .classifier = "BioGptForSequenceClassification",
    .prefix = "biogpt.",
    .switches = biogpt_switches,
    .keys = biogpt_keys,
    .rows = biogpt_rows,
    .read = read_biogpt,
    .write = write_biogpt,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
