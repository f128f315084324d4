/* SPDX-License-Identifier: Apache-2.0
 *
 * Decoders that mix attention with scans of the delta rule: Qwen3-Next, Qwen3.5 and Qwen3.6. Their
 * attention has a gate, a part of each head turns, and all norms but that of the scan multiply by
 * their weight + 1. */
#include "engine/convert/families_kin.h"
#include "engine/convert/families_vl.h"

static const struct lf_hf_mixer mixers[] = {
    {"linear_attention", LF_MIXER_DELTA}, {"full_attention", LF_MIXER_FULL}, {0}};

#define DELTA_KEYS                                                                                 \
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL}, {"hidden_size", LF_HF_NUMBER, "hidden", NULL},    \
        {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},                                       \
        {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},                                      \
        {"hidden_act", LF_HF_SAME, NULL, "\"silu\""}, /* of the convolutions too */                \
        {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "32768"},                       \
        {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},                                   \
        {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},                                        \
        {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},                                 \
        {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},                              \
        {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},                             \
        {"head_dim", LF_HF_NUMBER, "head_dim", "256"},                                             \
        {"linear_conv_kernel_dim", LF_HF_NUMBER, "scan_conv", "4"},                                \
        {"linear_key_head_dim", LF_HF_NUMBER, "scan_key_dim", "128"},                              \
        {"linear_value_head_dim", LF_HF_NUMBER, "scan_value_dim", "128"},                          \
        {"linear_num_key_heads", LF_HF_NUMBER, "scan_groups", "16"},                               \
    {                                                                                              \
        "linear_num_value_heads", LF_HF_NUMBER, "scan_heads", "32"                                 \
    }

#define EXPERT_KEYS                                                                                \
    {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", "512"},                                  \
        {"shared_expert_intermediate_size", LF_HF_NUMBER, "shared_ffn", "512"},                    \
        {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.001"},                             \
    {                                                                                              \
        "output_router_logits", LF_HF_INERT, NULL, NULL                                            \
    }

#define DELTA_SWITCHES                                                                             \
    "norm=rms", "norm_offset=1", "position=rope", "mlp=glu", "activation=silu", "qk_norm=yes",     \
        "attn_gate=yes", "scan_gate=silu", "scan_norm=before_gate"

/* queries and the gate of each head by turns */
#define DELTA_ROWS                                                                                 \
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},                              \
        {"model.layers.{L}.input_layernorm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight",    \
         NULL},                                                                                    \
        {"model.layers.{L}.self_attn.q_proj.{P}", LF_MAP_STACK,                                    \
         "groups=heads layers.{L}.attn.q.{P} layers.{L}.attn.gate.{P}", NULL},                     \
        {"model.layers.{L}.self_attn.k_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.k.{P}", NULL},     \
        {"model.layers.{L}.self_attn.v_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.v.{P}", NULL},     \
        {"model.layers.{L}.self_attn.o_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},     \
        KIN_QK_NORM_ROWS,                                                                          \
        {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY,                          \
         "layers.{L}.mlp_norm.weight", NULL},                                                      \
        {"model.layers.{L}.linear_attn.conv1d.weight", LF_MAP_DEPTHWISE,                           \
         "layers.{L}.scan.conv_q.weight layers.{L}.scan.conv_k.weight "                            \
         "layers.{L}.scan.conv_v.weight",                                                          \
         NULL},                                                                                    \
        {"model.layers.{L}.linear_attn.A_log", LF_MAP_COPY, "layers.{L}.scan.a_log", NULL},        \
        {"model.layers.{L}.linear_attn.dt_bias", LF_MAP_COPY, "layers.{L}.scan.dt_bias", NULL},    \
        {"model.layers.{L}.linear_attn.norm.weight", LF_MAP_COPY, "layers.{L}.scan.norm.weight",   \
         NULL},                                                                                    \
        {"model.layers.{L}.linear_attn.out_proj.weight", LF_MAP_COPY, "layers.{L}.scan.o.weight",  \
         NULL},                                                                                    \
        KIN_MLP_ROWS, KIN_HEAD_ROWS, MTP_ROWS

/* The head that knows a later token. */
#define MTP_ROWS                                                                                   \
    KIN_MTP_ROWS,                                                                                  \
        {"mtp.layers.{M}.self_attn.q_proj.{P}", LF_MAP_STACK,                                      \
         "groups=heads layers.{H}.attn.q.{P} layers.{H}.attn.gate.{P}", NULL},                     \
        {MTP_LAYER("mlp.gate.weight", "moe.router.weight")},                                       \
        {"mtp.layers.{M}.mlp.experts.{E}.gate_proj.weight", LF_MAP_EXPERT,                         \
         "layers.{H}.moe.experts.gate.weight", NULL},                                              \
        {"mtp.layers.{M}.mlp.experts.{E}.up_proj.weight", LF_MAP_EXPERT,                           \
         "layers.{H}.moe.experts.up.weight", NULL},                                                \
        {"mtp.layers.{M}.mlp.experts.{E}.down_proj.weight", LF_MAP_EXPERT,                         \
         "layers.{H}.moe.experts.down.weight", NULL},                                              \
        {MTP_LAYER("mlp.shared_expert.gate_proj.weight", "moe.shared.gate.weight")},               \
        {MTP_LAYER("mlp.shared_expert.up_proj.weight", "moe.shared.up.weight")},                   \
        {MTP_LAYER("mlp.shared_expert.down_proj.weight", "moe.shared.down.weight")},               \
    {                                                                                              \
        MTP_LAYER("mlp.shared_expert_gate.weight", "moe.shared_gate.weight")                       \
    }

#define SHARED_ROWS                                                                                \
    {"model.layers.{L}.mlp.shared_expert.gate_proj.weight", LF_MAP_COPY,                           \
     "layers.{L}.moe.shared.gate.weight", NULL},                                                   \
        {"model.layers.{L}.mlp.shared_expert.up_proj.weight", LF_MAP_COPY,                         \
         "layers.{L}.moe.shared.up.weight", NULL},                                                 \
        {"model.layers.{L}.mlp.shared_expert.down_proj.weight", LF_MAP_COPY,                       \
         "layers.{L}.moe.shared.down.weight", NULL},                                               \
    {                                                                                              \
        "model.layers.{L}.mlp.shared_expert_gate.weight", LF_MAP_COPY,                             \
            "layers.{L}.moe.shared_gate.weight", NULL                                              \
    }

/* ---- Qwen3-Next ---- */

static const char *const next_switches[] = {DELTA_SWITCHES, "router_score=softmax",
                                            "shared_gate=yes", NULL};

static const struct lf_hf_key next_keys[] = {
    DELTA_KEYS,
    EXPERT_KEYS,
    {"intermediate_size", LF_HF_NUMBER, "ffn", "5632"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "2"},
    {"num_experts|num_local_experts", LF_HF_NUMBER, "experts", "512"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "10"},
    {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "true"},
    {"num_nextn_predict_layers", LF_HF_NUMBER, "mtp_layers", "0"}, /* published files lack it */
    {0},
};

/* The projections of a scan lie side by side for each head of keys, those of the gates too. */
static const struct lf_map_row next_rows[] = {
    DELTA_ROWS,
    KIN_EXPERT_ROWS,
    SHARED_ROWS,
    {"model.layers.{L}.linear_attn.in_proj_qkvz.weight", LF_MAP_STACK,
     "groups=scan_groups layers.{L}.scan.q.weight layers.{L}.scan.k.weight "
     "layers.{L}.scan.v.weight layers.{L}.scan.z.weight",
     NULL},
    {"model.layers.{L}.linear_attn.in_proj_ba.weight", LF_MAP_STACK,
     "groups=scan_groups layers.{L}.scan.b.weight layers.{L}.scan.a.weight", NULL},
    {0},
};

static int read_mixers(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_interval(r, c, mixers, "full_attention_interval", 4, err);
}

static int read_next(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = read_mixers(r, c, err);
    rc = rc != 0 ? rc : lf_hf_read_mlp_layers(r, c, 0, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "partial_rotary_factor", "rope_fraction", 0.25, err);
    return rc != 0
               ? rc
               : lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = 10000, .part = true}, err);
}

static int write_next(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_mixers(c, o, mixers, err);
    rc = rc != 0 ? rc : lf_hf_write_mlp_layers(c, o, err);
    return rc != 0 ? rc : lf_hf_write_partial_rope(c, o, err);
}

const struct lf_hf_family lf_hf_qwen3_next = {
    .name = "qwen3-next",
    .model_type = "qwen3_next",
    .architecture = "Qwen3NextForCausalLM",
    .classifier = "Qwen3NextForSequenceClassification",
    .prefix = "model.",
    .switches = next_switches,
    .keys = next_keys,
    .rows = next_rows,
    .unsaid_head = true,
    .read = read_next,
    .write = write_next,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Qwen3.5 and 3.6, the decoders of texts ---- */

#define QWEN35_KEYS                                                                                \
    DELTA_KEYS, {"attn_output_gate", LF_HF_UNREAD, NULL, "true"},                                  \
        {"mamba_ssm_dtype", LF_HF_INERT, NULL, NULL},                                              \
        {"mlp_only_layers", LF_HF_UNREAD, NULL, "[]"},                                             \
        {"mtp_num_hidden_layers", LF_HF_INERT, NULL, NULL},                                        \
    {                                                                                              \
        "mtp_use_dedicated_embeddings", LF_HF_INERT, NULL, NULL                                    \
    }

#define QWEN35_ROWS                                                                                \
    DELTA_ROWS,                                                                                    \
        {"model.layers.{L}.linear_attn.in_proj_qkv.weight", LF_MAP_STACK,                          \
         "layers.{L}.scan.q.weight layers.{L}.scan.k.weight layers.{L}.scan.v.weight", NULL},      \
        {"model.layers.{L}.linear_attn.in_proj_z.weight", LF_MAP_COPY, "layers.{L}.scan.z.weight", \
         NULL},                                                                                    \
        {"model.layers.{L}.linear_attn.in_proj_a.weight", LF_MAP_COPY, "layers.{L}.scan.a.weight", \
         NULL},                                                                                    \
    {                                                                                              \
        "model.layers.{L}.linear_attn.in_proj_b.weight", LF_MAP_COPY, "layers.{L}.scan.b.weight",  \
            NULL                                                                                   \
    }

static const char *const qwen35_switches[] = {DELTA_SWITCHES, NULL};

static const struct lf_hf_key qwen35_keys[] = {
    QWEN35_KEYS,
    {"intermediate_size", LF_HF_NUMBER, "ffn", "12288"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "4"},
    {0},
};

static const struct lf_map_row qwen35_rows[] = {QWEN35_ROWS, {0}};

/* Texts turn by one position, whatever share of a head pictures would turn by another. */
static int read_qwen35(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *s = lf_hf_take(r, "rope_parameters"),
           *mine = json_is_object(s) ? json_deep_copy(s) : NULL;
    const struct lf_hf_rope as = {.theta = 10000, .part = true, .params = mine};
    json_object_del(mine, "mrope_section");
    json_object_del(mine, "mrope_interleaved");
    int rc = read_mixers(r, c, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "partial_rotary_factor", "rope_fraction", 0.25, err);
    rc = rc != 0 ? rc : lf_hf_read_rope_as(r, c, &as, err);
    json_decref(mine);
    return rc;
}

static int write_qwen35(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_mixers(c, o, mixers, err);
    return rc != 0 ? rc : lf_hf_write_partial_rope(c, o, err);
}

const struct lf_hf_family lf_hf_qwen35 = {
    .name = "qwen3.5",
    .model_type = "qwen3_5_text",
    .architecture = "Qwen3_5ForCausalLM",
    .classifier = "Qwen3_5TextForSequenceClassification",
    .prefix = "model.",
    .switches = qwen35_switches,
    .keys = qwen35_keys,
    .rows = qwen35_rows,
    .read = read_qwen35,
    .write = write_qwen35,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* with experts, whose chosen weights always sum to one */
static const char *const qwen35_moe_switches[] = {DELTA_SWITCHES, "router_score=softmax",
                                                  "router_renorm=yes", "shared_gate=yes", NULL};

static const struct lf_hf_key qwen35_moe_keys[] = {
    QWEN35_KEYS,
    EXPERT_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "2"},
    {"num_experts|num_local_experts", LF_HF_NUMBER, "experts", "256"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "8"},
    {0},
};

static const struct lf_map_row qwen35_moe_rows[] = {QWEN35_ROWS, KIN_EXPERT_ROWS, SHARED_ROWS, {0}};

const struct lf_map_row lf_hf_qwen35_plain[] = {
    QWEN35_ROWS,
    SHARED_ROWS,
    KIN_FUSED_EXPERT_ROWS(LF_MAP_STACK),
    {0},
};

const struct lf_hf_family lf_hf_qwen35_moe = {
    .name = "qwen3.5-moe",
    .model_type = "qwen3_5_moe_text",
    .architecture = "Qwen3_5MoeForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = qwen35_moe_switches,
    .keys = qwen35_moe_keys,
    .rows = qwen35_moe_rows,
    .read = read_qwen35,
    .write = write_qwen35,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
