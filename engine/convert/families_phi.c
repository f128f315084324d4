/* SPDX-License-Identifier: Apache-2.0
 *
 * Phi-1/1.5/2 (parallel block, partial rotary, biases) and Phi-3/3.5/4 (Llama's shape with stacked
 * projections). */
#include "engine/base/json.h"
#include "engine/convert/families.h"

static const char *const phi_switches[] = {"norm=layer",
                                           "norm_bias=yes",
                                           "position=rope",
                                           "mlp=plain",
                                           "qkv_bias=yes",
                                           "out_bias=yes",
                                           "mlp_bias=yes",
                                           "head_bias=yes",
                                           "parallel_block=one_norm",
                                           "rope_fraction=0.5",
                                           NULL};

static const struct lf_hf_key phi_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"hidden_act", LF_HF_ACT, "activation", "\"gelu_new\""},
    {"layer_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"resid_pdrop", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0"},
    {"embd_pdrop", LF_HF_NUMBER, "embed_dropout", "0"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"qk_layernorm", LF_HF_SAME, NULL, "false"},
    {0},
};

static const struct lf_map_row phi_rows[] = {
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.layers.{L}.input_layernorm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {"model.layers.{L}.self_attn.q_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.q.{P}", NULL},
    {"model.layers.{L}.self_attn.k_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.k.{P}", NULL},
    {"model.layers.{L}.self_attn.v_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.v.{P}", NULL},
    {"model.layers.{L}.self_attn.dense.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"model.layers.{L}.mlp.fc1.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"model.layers.{L}.mlp.fc2.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"model.final_layernorm.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"lm_head.{P}", LF_MAP_COPY, "head.{P}", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"model.layers.{L}.self_attn.rotary_emb.inv_freq", LF_MAP_IGNORED, "follows from rope_theta",
     NULL},
    {0},
};

static int read_phi(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = 10000, .part = true}, err);
}

const struct lf_hf_family lf_hf_phi = {
    .name = "phi2",
    .also = "phi phi1.5",
    .model_type = "phi",
    .architecture = "PhiForCausalLM",
    .classifier = "PhiForSequenceClassification",
    .prefix = "model.",
    .switches = phi_switches,
    .keys = phi_keys,
    .rows = phi_rows,
    .read = read_phi,
    .write = lf_hf_write_partial_rope,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

static const char *const phi3_switches[] = {"norm=rms", "position=rope", "mlp=glu", NULL};

static const struct lf_hf_key phi3_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "4096"},
    {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"sliding_window", LF_HF_NUMBER, "sliding_window", "null"},
    {"resid_pdrop", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0"},
    {"embd_pdrop", LF_HF_NUMBER, "embed_dropout", "0"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"attention_bias", LF_HF_SAME, NULL, "false"},
    {"mlp_bias", LF_HF_SAME, NULL, "false"},
    {"lm_head_bias", LF_HF_UNREAD, NULL, "false"}, /* Phi-4-mini, here and below */
    {"full_attn_mod", LF_HF_UNREAD, NULL, "1"},
    {"interpolate_factor", LF_HF_UNREAD, NULL, "1"},
    {0},
};

static const struct lf_map_row phi3_rows[] = {
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.layers.{L}.input_layernorm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight", NULL},
    {"model.layers.{L}.self_attn.qkv_proj.weight", LF_MAP_STACK,
     "layers.{L}.attn.q.weight layers.{L}.attn.k.weight layers.{L}.attn.v.weight", NULL},
    {"model.layers.{L}.self_attn.o_proj.weight", LF_MAP_COPY, "layers.{L}.attn.o.weight", NULL},
    {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight",
     NULL},
    {"model.layers.{L}.mlp.gate_up_proj.weight", LF_MAP_STACK,
     "layers.{L}.mlp.gate.weight layers.{L}.mlp.up.weight", NULL},
    {"model.layers.{L}.mlp.down_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight", NULL},
    {"model.norm.weight", LF_MAP_COPY, "final_norm.weight", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"model.layers.{L}.self_attn.rotary_emb.inv_freq", LF_MAP_IGNORED, "follows from rope_theta",
     NULL},
    {0},
};

/* Old files call longrope yarn. */
static int read_phi3(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const struct lf_hf_rope as = {
        .theta = 10000, .part = true, .original = 4096, .longrope = "yarn"};
    return lf_hf_read_rope_as(r, c, &as, err);
}

static int write_phi3(const lf_model_config *c, json_t *o, lf_err *err)
{
    int64_t n = c->rope_scaling == LF_ROPE_LONGROPE ? c->rope_original_positions : c->max_positions;
    if (c->rope_scaling != LF_ROPE_PLAIN && c->rope_scaling != LF_ROPE_LONGROPE)
        return lf_fail(err, LF_EINVAL, "rope_scaling: models of type phi3 have longrope or none");
    int rc = lf_hf_write_partial_rope(c, o, err);
    if (rc == 0 && json_object_set_new(o, "original_max_position_embeddings", json_integer(n)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

const struct lf_hf_family lf_hf_phi3 = {
    .name = "phi3",
    .also = "phi3.5 phi4",
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .classifier = "Phi3ForSequenceClassification",
    .prefix = "model.",
    .switches = phi3_switches,
    .keys = phi3_keys,
    .rows = phi3_rows,
    .read = read_phi3,
    .write = write_phi3,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
