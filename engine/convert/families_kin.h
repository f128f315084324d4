/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that the relatives of Llama share: keys of config.json and names of tensors. */
#ifndef LF_CONVERT_FAMILIES_KIN_H
#define LF_CONVERT_FAMILIES_KIN_H

#include "engine/convert/families.h"

#define KIN_SIZES                                                                                  \
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL}, {"hidden_size", LF_HF_NUMBER, "hidden", NULL},    \
        {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},                                          \
        {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},                                       \
        {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},                                      \
        {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},                                       \
    {                                                                                              \
        "initializer_range", LF_HF_NUMBER, "init_std", "0.02"                                      \
    }

#define KIN_KEYS                                                                                   \
    KIN_SIZES, {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},                                 \
    {                                                                                              \
        "tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"                                    \
    }

#define KIN_QKVO_ROWS                                                                              \
    {"model.layers.{L}.self_attn.q_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.q.{P}", NULL},         \
        {"model.layers.{L}.self_attn.k_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.k.{P}", NULL},     \
        {"model.layers.{L}.self_attn.v_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.v.{P}", NULL},     \
    {                                                                                              \
        "model.layers.{L}.self_attn.o_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL        \
    }

#define KIN_INPUT_ROWS                                                                             \
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},                              \
        {"model.layers.{L}.input_layernorm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight",    \
         NULL},                                                                                    \
        KIN_QKVO_ROWS

#define KIN_ATTENTION_ROWS                                                                         \
    KIN_INPUT_ROWS,                                                                                \
    {                                                                                              \
        "model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY,                           \
            "layers.{L}.mlp_norm.weight", NULL                                                     \
    }

/* The norms of block = out. */
#define KIN_OUT_ATTENTION_ROWS                                                                     \
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL}, KIN_QKVO_ROWS,               \
        {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY,                          \
         "layers.{L}.attn_norm.weight", NULL},                                                     \
    {                                                                                              \
        "model.layers.{L}.post_feedforward_layernorm.weight", LF_MAP_COPY,                         \
            "layers.{L}.mlp_norm.weight", NULL                                                     \
    }

#define KIN_QK_NORM_ROWS                                                                           \
    {"model.layers.{L}.self_attn.q_norm.weight", LF_MAP_COPY, "layers.{L}.attn.q_norm.weight",     \
     NULL},                                                                                        \
    {                                                                                              \
        "model.layers.{L}.self_attn.k_norm.weight", LF_MAP_COPY, "layers.{L}.attn.k_norm.weight",  \
            NULL                                                                                   \
    }

#define KIN_MLP_ROWS                                                                               \
    {"model.layers.{L}.mlp.gate_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.gate.{P}", NULL},          \
        {"model.layers.{L}.mlp.up_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},          \
    {                                                                                              \
        "model.layers.{L}.mlp.down_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL         \
    }

#define KIN_EXPERT_MATRICES                                                                        \
    {"model.layers.{L}.mlp.experts.{E}.gate_proj.weight", LF_MAP_EXPERT,                           \
     "layers.{L}.moe.experts.gate.weight", NULL},                                                  \
        {"model.layers.{L}.mlp.experts.{E}.up_proj.weight", LF_MAP_EXPERT,                         \
         "layers.{L}.moe.experts.up.weight", NULL},                                                \
    {                                                                                              \
        "model.layers.{L}.mlp.experts.{E}.down_proj.weight", LF_MAP_EXPERT,                        \
            "layers.{L}.moe.experts.down.weight", NULL                                             \
    }

#define KIN_EXPERT_ROWS                                                                            \
    {"model.layers.{L}.mlp.gate.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL},       \
        KIN_EXPERT_MATRICES

/* All experts in one tensor for each layer, gate above up; kind: are their matrices turned? */
#define KIN_FUSED_EXPERT_ROWS(kind)                                                                \
    {"model.layers.{L}.mlp.gate.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL},       \
        {"model.layers.{L}.mlp.experts.gate_up_proj", kind,                                        \
         "blocks=experts layers.{L}.moe.experts.gate.weight layers.{L}.moe.experts.up.weight",     \
         NULL},                                                                                    \
    {                                                                                              \
        "model.layers.{L}.mlp.experts.down_proj", kind,                                            \
            "blocks=experts layers.{L}.moe.experts.down.weight", NULL                              \
    }

#define KIN_SHARED_ROWS                                                                            \
    {"model.layers.{L}.mlp.shared_experts.gate_proj.weight", LF_MAP_COPY,                          \
     "layers.{L}.moe.shared.gate.weight", NULL},                                                   \
        {"model.layers.{L}.mlp.shared_experts.up_proj.weight", LF_MAP_COPY,                        \
         "layers.{L}.moe.shared.up.weight", NULL},                                                 \
    {                                                                                              \
        "model.layers.{L}.mlp.shared_experts.down_proj.weight", LF_MAP_COPY,                       \
            "layers.{L}.moe.shared.down.weight", NULL                                              \
    }

/* Experts under the names of Mixtral. */
#define MIXTRAL_EXPERT_ROWS                                                                        \
    {"model.layers.{L}.block_sparse_moe.gate.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", \
     NULL},                                                                                        \
        {"model.layers.{L}.block_sparse_moe.experts.{E}.w1.weight", LF_MAP_EXPERT,                 \
         "layers.{L}.moe.experts.gate.weight", NULL},                                              \
        {"model.layers.{L}.block_sparse_moe.experts.{E}.w3.weight", LF_MAP_EXPERT,                 \
         "layers.{L}.moe.experts.up.weight", NULL},                                                \
    {                                                                                              \
        "model.layers.{L}.block_sparse_moe.experts.{E}.w2.weight", LF_MAP_EXPERT,                  \
            "layers.{L}.moe.experts.down.weight", NULL                                             \
    }

/* Multi-head latent attention. */
#define LATENT_ROWS                                                                                \
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},                              \
        {"model.layers.{L}.input_layernorm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight",    \
         NULL},                                                                                    \
        {"model.layers.{L}.self_attn.q_proj.weight", LF_MAP_COPY, "layers.{L}.attn.q.weight",      \
         NULL},                                                                                    \
        {"model.layers.{L}.self_attn.q_a_proj.weight", LF_MAP_COPY, "layers.{L}.attn.q_a.weight",  \
         NULL},                                                                                    \
        {"model.layers.{L}.self_attn.q_a_layernorm.weight", LF_MAP_COPY,                           \
         "layers.{L}.attn.q_a_norm.weight", NULL},                                                 \
        {"model.layers.{L}.self_attn.q_b_proj.weight", LF_MAP_COPY, "layers.{L}.attn.q_b.weight",  \
         NULL},                                                                                    \
        {"model.layers.{L}.self_attn.kv_a_proj_with_mqa.weight", LF_MAP_COPY,                      \
         "layers.{L}.attn.kv_a.weight", NULL},                                                     \
        {"model.layers.{L}.self_attn.kv_a_layernorm.weight", LF_MAP_COPY,                          \
         "layers.{L}.attn.kv_a_norm.weight", NULL},                                                \
        {"model.layers.{L}.self_attn.kv_b_proj.weight", LF_MAP_STACK,                              \
         "groups=heads layers.{L}.attn.k_b.weight layers.{L}.attn.v_b.weight", NULL},              \
        {"model.layers.{L}.self_attn.o_proj.weight", LF_MAP_COPY, "layers.{L}.attn.o.weight",      \
         NULL},                                                                                    \
    {                                                                                              \
        "model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY,                           \
            "layers.{L}.mlp_norm.weight", NULL                                                     \
    }

#define KIN_MTP "heads of multi-token prediction"

/* Experts since DeepSeek-V3: a bias chooses. Behind the last layer stand heads that know later
 * tokens, with copies of embedding and head. */
#define KIN_V3_ROWS                                                                                \
    KIN_EXPERT_ROWS, KIN_SHARED_ROWS,                                                              \
        {"model.layers.{L}.mlp.gate.e_score_correction_bias", LF_MAP_COPY,                         \
         "layers.{L}.moe.router.bias", NULL},                                                      \
        {"model.layers.{H}.enorm.weight", LF_MAP_COPY, "layers.{H}.mtp.embed_norm.weight", NULL},  \
        {"model.layers.{H}.hnorm.weight", LF_MAP_COPY, "layers.{H}.mtp.hidden_norm.weight", NULL}, \
        {"model.layers.{H}.eh_proj.weight", LF_MAP_COPY, "layers.{H}.mtp.join.weight", NULL},      \
        {"model.layers.{H}.shared_head.norm.weight", LF_MAP_COPY,                                  \
         "layers.{H}.mtp.final_norm.weight", NULL},                                                \
        {"model.layers.{H}.embed_tokens.weight", LF_MAP_TIED, "embed.weight", NULL},               \
        {"model.layers.{H}.shared_head.head.weight", LF_MAP_TIED, "head.weight", "tied_head=no"},  \
        {"model.layers.{H}.shared_head.head.weight", LF_MAP_TIED, "embed.weight",                  \
         "tied_head=yes"},                                                                         \
    {                                                                                              \
        "model.layers.{N}.", LF_MAP_LEFT_OUT, KIN_MTP, "mtp_layers=0"                              \
    }

/* The one head that knows a later token, apart from the layers: what joins it, and a layer that
 * attends, without its queries and experts. */
#define MTP_LAYER(outside, ours) "mtp.layers.{M}." outside, LF_MAP_COPY, "layers.{H}." ours, NULL
#define KIN_MTP_ROWS                                                                               \
    {"mtp.fc.weight", LF_MAP_COPY, "layers.{N}.mtp.join.weight", NULL},                            \
        {"mtp.pre_fc_norm_embedding.weight", LF_MAP_COPY, "layers.{N}.mtp.embed_norm.weight",      \
         NULL},                                                                                    \
        {"mtp.pre_fc_norm_hidden.weight", LF_MAP_COPY, "layers.{N}.mtp.hidden_norm.weight", NULL}, \
        {"mtp.norm.weight", LF_MAP_COPY, "layers.{N}.mtp.final_norm.weight", NULL},                \
        {MTP_LAYER("input_layernorm.weight", "attn_norm.weight")},                                 \
        {MTP_LAYER("post_attention_layernorm.weight", "mlp_norm.weight")},                         \
        {MTP_LAYER("self_attn.k_proj.{P}", "attn.k.{P}")},                                         \
        {MTP_LAYER("self_attn.v_proj.{P}", "attn.v.{P}")},                                         \
        {MTP_LAYER("self_attn.o_proj.{P}", "attn.o.{P}")},                                         \
        {MTP_LAYER("self_attn.q_norm.weight", "attn.q_norm.weight")},                              \
        {MTP_LAYER("self_attn.k_norm.weight", "attn.k_norm.weight")},                              \
        {MTP_LAYER("mlp.gate_proj.{P}", "mlp.gate.{P}")},                                          \
        {MTP_LAYER("mlp.up_proj.{P}", "mlp.up.{P}")},                                              \
        {MTP_LAYER("mlp.down_proj.{P}", "mlp.down.{P}")},                                          \
    {                                                                                              \
        "mtp.", LF_MAP_LEFT_OUT, KIN_MTP, "mtp_layers=0"                                           \
    }

#define KIN_HEAD_ROWS                                                                              \
    {"model.norm.weight", LF_MAP_COPY, "final_norm.weight", NULL},                                 \
        {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},                                      \
        {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},                          \
    {                                                                                              \
        "model.layers.{L}.self_attn.rotary_emb.inv_freq", LF_MAP_IGNORED,                          \
            "follows from rope_theta", NULL                                                        \
    }

/* Gemma 3n and 4: norms on either side, last layers that read the keys and values of others,
 * channels of a token for each layer. */
#define GEMMA_LATE_SHARED "layers that read the keys and values of others have none"
#define GEMMA_LATE_ROWS                                                                            \
    KIN_INPUT_ROWS, KIN_QK_NORM_ROWS,                                                              \
        {"model.layers.{L}.self_attn.k_proj.{P}", LF_MAP_IGNORED, GEMMA_LATE_SHARED,               \
         "kv_shared_layers!=0"},                                                                   \
        {"model.layers.{L}.self_attn.v_proj.{P}", LF_MAP_IGNORED, GEMMA_LATE_SHARED,               \
         "kv_shared_layers!=0"},                                                                   \
        {"model.layers.{L}.self_attn.k_norm.weight", LF_MAP_IGNORED, GEMMA_LATE_SHARED,            \
         "kv_shared_layers!=0"},                                                                   \
        {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY,                          \
         "layers.{L}.attn_post_norm.weight", NULL},                                                \
        {"model.layers.{L}.pre_feedforward_layernorm.weight", LF_MAP_COPY,                         \
         "layers.{L}.mlp_norm.weight", NULL},                                                      \
        {"model.layers.{L}.mlp.gate_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.gate.weight",       \
         NULL},                                                                                    \
        {"model.layers.{L}.mlp.up_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.up.weight", NULL},    \
        {"model.layers.{L}.mlp.down_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight",       \
         NULL},                                                                                    \
        {"model.layers.{L}.post_feedforward_layernorm.weight", LF_MAP_COPY,                        \
         "layers.{L}.mlp_post_norm.weight", NULL},                                                 \
        {"model.layers.{L}.per_layer_input_gate.weight", LF_MAP_COPY,                              \
         "layers.{L}.per_layer.in.weight", NULL},                                                  \
        {"model.layers.{L}.per_layer_projection.weight", LF_MAP_COPY,                              \
         "layers.{L}.per_layer.out.weight", NULL},                                                 \
        {"model.layers.{L}.post_per_layer_input_norm.weight", LF_MAP_COPY,                         \
         "layers.{L}.per_layer.norm.weight", NULL},                                                \
        {"model.embed_tokens_per_layer.weight", LF_MAP_COPY, "per_layer.embed.weight", NULL},      \
        {"model.per_layer_model_projection.weight", LF_MAP_COPY, "per_layer.project.weight",       \
         NULL},                                                                                    \
        {"model.per_layer_projection_norm.weight", LF_MAP_COPY, "per_layer.norm.weight", NULL},    \
        {"model.norm.weight", LF_MAP_COPY, "final_norm.weight", NULL},                             \
        {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},                                      \
    {                                                                                              \
        "lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"                             \
    }

/* Experts of Granite: gate above up in one tensor, expert by expert. */
#define GRANITE_EXPERT_ROWS                                                                        \
    {"model.layers.{L}.block_sparse_moe.router.layer.weight", LF_MAP_COPY,                         \
     "layers.{L}.moe.router.weight", NULL},                                                        \
        {"model.layers.{L}.block_sparse_moe.input_linear.weight", LF_MAP_STACK,                    \
         "blocks=experts layers.{L}.moe.experts.gate.weight layers.{L}.moe.experts.up.weight",     \
         NULL},                                                                                    \
    {                                                                                              \
        "model.layers.{L}.block_sparse_moe.output_linear.weight", LF_MAP_STACK,                    \
            "blocks=experts layers.{L}.moe.experts.down.weight", NULL                              \
    }

/* no_rope_layers: 1 for each layer that turns; without it, all but each n-th do, as
 * no_rope_layer_interval says. empty: so do files with an empty list. */
int lf_hf_read_no_rope(lf_hf_reader *r, lf_model_config *c, bool empty, lf_err *err);
int lf_hf_write_no_rope(const lf_model_config *c, json_t *o, lf_err *err);
/* rope_parameters of Ministral 3 and Mistral 4, which have all of it: how heads turn, and by how
 * much queries grow. */
int lf_hf_read_growing_rope(lf_hf_reader *r, lf_model_config *c, double theta, lf_err *err);
int lf_hf_write_growing_rope(const lf_model_config *c, json_t *o, lf_err *err);
/* logits_scaling of Granite, which divides logits; that, and attention_multiplier. */
int lf_hf_read_logits_scaling(lf_hf_reader *r, lf_model_config *c, lf_err *err);
int lf_hf_write_granite_scales(const lf_model_config *c, json_t *o, lf_err *err);
/* rope_parameters with one object per kind of layer, of which those with a window turn plainly;
 * theta, local: the bases of both where it is absent (OLMo 3, Mellum). */
int lf_hf_read_rope_kinds(lf_hf_reader *r, lf_model_config *c, double theta, double local,
                          lf_err *err);
/* Width of a head while config.json is read, where it may still follow from the others. */
int64_t lf_hf_head_dim(const lf_model_config *c);
/* Shared experts are one MLP as wide as all of them together; key says how many, def where it is
 * absent. */
int lf_hf_read_shared(lf_hf_reader *r, lf_model_config *c, const char *key, int64_t def,
                      lf_err *err);
/* none: what is written where there are none; taken. NULL: the class has one in each layer with
 * experts, and a model without is refused. */
int lf_hf_write_shared(const lf_model_config *c, json_t *o, const char *key, json_t *none,
                       lf_err *err);
/* Both for classes that say n_shared_experts and first_k_dense_replace; shared, dense: where these
 * are absent. */
int lf_hf_read_deepseek(lf_hf_reader *r, lf_model_config *c, int64_t shared, int64_t dense,
                        lf_err *err);
int lf_hf_write_deepseek(const lf_model_config *c, json_t *o, json_t *none, lf_err *err);

#endif
