/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen: 1 (fused q, k, v, published with code of its own), 1.5 to 2.5, 3, and the three with
 * experts. */
#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

/* ---- Qwen 1 ---- */

static const char *const qwen1_switches[] = {"norm=rms",        "position=rope", "mlp=glu",
                                             "activation=silu", "qkv_bias=yes",  NULL};

static const struct lf_hf_key qwen1_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"kv_channels", LF_HF_NUMBER, "head_dim", "128"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "8192"},
    {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-6"},
    {"rotary_emb_base", LF_HF_NUMBER, "rope_theta", "10000"},
    {"rotary_pct", LF_HF_NUMBER, "rope_fraction", "1"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"emb_dropout_prob", LF_HF_NUMBER, "embed_dropout", "0"},
    {"attn_dropout_prob", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"no_bias", LF_HF_SAME, NULL, "true"},
    {"scale_attn_weights", LF_HF_SAME, NULL, "true"},
    {"bf16", LF_HF_INERT, NULL, NULL}, /* how the published code runs, here and below */
    {"fp16", LF_HF_INERT, NULL, NULL},
    {"fp32", LF_HF_INERT, NULL, NULL},
    {"softmax_in_fp32", LF_HF_INERT, NULL, NULL},
    {"use_cache_quantization", LF_HF_INERT, NULL, NULL},
    {"use_cache_kernel", LF_HF_INERT, NULL, NULL},
    {0},
};

/* intermediate_size counts gate and up. seq_length is the length of training: beyond it queries
 * grow by its logarithm, and the base of the angles would depend on how much follows. */
static int read_qwen1(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t ffn = 0, trained = 2048;
    bool logn = true, ntk = true;
    int rc = lf_hf_get_i64(r, "intermediate_size", &ffn, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "seq_length", &trained, err);
    if (rc == 0)
        rc = lf_hf_get_bool(r, "use_logn_attn", &logn, err);
    if (rc == 0)
        rc = lf_hf_get_bool(r, "use_dynamic_ntk", &ntk, err);
    if (rc == 0 && (ffn < 2 || ffn % 2))
        rc = lf_fail(err, LF_EFORMAT, "%s: intermediate_size = %lld is not twice the width of w1",
                     r->path, (long long)ffn);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "intermediate_size", "ffn", (double)(ffn / 2), err);
    if (rc == 0 && logn)
        rc = lf_hf_set_number(r, c, "seq_length", "logn_length", (double)trained, err);
    if (rc == 0 && ntk) {
        rc = lf_hf_set(r, c, "use_dynamic_ntk", "rope_scaling", "dynamic", err);
        rc = rc != 0 ? rc
                     : lf_hf_set_number(r, c, "seq_length", "rope_original_positions",
                                        (double)trained, err);
    }
    return rc;
}

static int write_qwen1(const lf_model_config *c, json_t *o, lf_err *err)
{
    bool ntk = c->rope_scaling == LF_ROPE_DYNAMIC, logn = c->logn_length > 0;
    int64_t trained = logn ? c->logn_length : ntk ? c->rope_original_positions : c->max_positions;
    if (json_object_set_new(o, "intermediate_size", json_integer(2 * c->ffn)) ||
        json_object_set_new(o, "seq_length", json_integer(trained)) ||
        json_object_set_new(o, "use_logn_attn", json_boolean(logn)) ||
        json_object_set_new(o, "use_dynamic_ntk", json_boolean(ntk)))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return 0;
}

static const struct lf_map_row qwen1_rows[] = {
    {"transformer.wte.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"transformer.h.{L}.ln_1.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight", NULL},
    {"transformer.h.{L}.attn.c_attn.{P}", LF_MAP_STACK,
     "layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"transformer.h.{L}.attn.c_proj.weight", LF_MAP_COPY, "layers.{L}.attn.o.weight", NULL},
    {"transformer.h.{L}.ln_2.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight", NULL},
    {"transformer.h.{L}.mlp.w2.weight", LF_MAP_COPY, "layers.{L}.mlp.gate.weight", NULL},
    {"transformer.h.{L}.mlp.w1.weight", LF_MAP_COPY, "layers.{L}.mlp.up.weight", NULL},
    {"transformer.h.{L}.mlp.c_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight", NULL},
    {"transformer.ln_f.weight", LF_MAP_COPY, "final_norm.weight", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"transformer.rotary_emb.inv_freq", LF_MAP_IGNORED, "follows from rotary_emb_base", NULL},
    {0},
};

const struct lf_hf_family lf_hf_qwen1 = {
    .name = "qwen1",
    .also = "qwen",
    .model_type = "qwen",
    .architecture = "QWenLMHeadModel",
    .prefix = "transformer.",
    .switches = qwen1_switches,
    .keys = qwen1_keys,
    .rows = qwen1_rows,
    .read = read_qwen1,
    .write = write_qwen1,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- Qwen 1.5, 2, 2.5, 3 ---- */

#define QWEN_KEYS                                                                                  \
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL}, {"hidden_size", LF_HF_NUMBER, "hidden", NULL},    \
        {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},                                          \
        {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},                                       \
        {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},                                      \
        {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},                                 \
        {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},                                       \
        {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "32768"},                       \
        {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-6"},                                        \
        {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},                                   \
        {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},                             \
        {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},                                 \
    {                                                                                              \
        "use_mrope", LF_HF_UNREAD, NULL, "false"                                                   \
    }

static const char *const qwen2_switches[] = {"norm=rms", "position=rope", "mlp=glu", "qkv_bias=yes",
                                             NULL};
static const char *const qwen3_switches[] = {"norm=rms", "position=rope", "mlp=glu", "qk_norm=yes",
                                             NULL};
static const struct lf_hf_key qwen2_keys[] = {
    QWEN_KEYS, {"head_dim", LF_HF_NUMBER, "head_dim", "null"}, {0}};
static const struct lf_hf_key qwen3_keys[] = {
    QWEN_KEYS,
    {"head_dim", LF_HF_NUMBER, "head_dim", "128"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {0}};

/* sliding_window counts only when use_sliding_window says so. */
static int read_use(lf_hf_reader *r, bool *use, int64_t *window, int64_t *layers, lf_err *err)
{
    *use = false;
    *layers = 28;
    int rc = lf_hf_get_bool(r, "use_sliding_window", use, err);
    if (rc == 0)
        rc = lf_hf_get_window(r, 4096, window, err);
    return rc != 0 ? rc : lf_hf_get_i64(r, "max_window_layers", layers, err);
}

/* It slides from layer max_window_layers on. */
static int read_qwen2(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool use;
    int64_t window;
    struct lf_hf_slide by = {0};
    int rc = read_use(r, &use, &window, &by.from, err);
    rc = rc != 0 ? rc : lf_hf_read_layers(r, c, use ? window : -1, true, &by, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

/* Every second layer below max_window_layers. */
static int read_qwen2_moe(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool use;
    int64_t window, below;
    int rc = read_use(r, &use, &window, &below, err);
    struct lf_hf_slide by = {.below = below, .period = 2};
    if (below < 1) /* none */
        by.from = c->layers;
    rc = rc != 0 ? rc : lf_hf_read_layers(r, c, use ? window : -1, !use, &by, err);
    if (rc == 0)
        rc = lf_hf_read_mlp_layers(r, c, 0, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

/* All layers, whatever max_window_layers and layer_types say. */
static int read_qwen3_moe(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool use;
    int64_t window, unread;
    int rc = read_use(r, &use, &window, &unread, err);
    rc = rc != 0 ? rc
                 : lf_hf_read_layers(r, c, use ? window : -1, true,
                                     &(struct lf_hf_slide){.only = true}, err);
    if (rc == 0)
        rc = lf_hf_read_mlp_layers(r, c, 0, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_qwen2(const lf_model_config *c, json_t *o, lf_err *err)
{
    bool use = c->sliding_window > 0;
    if (json_object_set_new(o, "use_sliding_window", json_boolean(use)) ||
        json_object_set_new(o, "sliding_window",
                            use ? json_integer(c->sliding_window) : json_null()) ||
        json_object_set_new(o, "max_window_layers",
                            json_integer(use ? lf_hf_full_from(c) : c->layers)))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    int rc = use ? lf_hf_write_layers(c, o, err)
                 : 0; /* Qwen2-MoE's class makes others of the same keys */
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

static int write_qwen3_moe(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (c->sliding_window > 0 && !lf_model_layers_are(c, lf_model_layer_mixer, "w*"))
        return lf_fail(err, LF_EINVAL,
                       "layer_mixers = %s: every layer of a model of type qwen3_moe has the window",
                       c->layer_mixers.text);
    int rc = write_qwen2(c, o, err);
    return rc != 0 ? rc : lf_hf_write_mlp_layers(c, o, err);
}

static int write_qwen2_moe(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = write_qwen2(c, o, err);
    return rc != 0 ? rc : lf_hf_write_mlp_layers(c, o, err);
}

#define QWEN_ATTENTION                                                                             \
    KIN_INPUT_ROWS, KIN_QK_NORM_ROWS,                                                              \
        {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY,                          \
         "layers.{L}.mlp_norm.weight", NULL},                                                      \
        {"model.norm.weight", LF_MAP_COPY, "final_norm.weight", NULL},                             \
        {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},                                      \
        {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},                          \
        {"model.layers.{L}.mlp.gate_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.gate.weight",       \
         NULL},                                                                                    \
        {"model.layers.{L}.mlp.up_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.up.weight", NULL},    \
        {"model.layers.{L}.mlp.down_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight",       \
         NULL},                                                                                    \
    {                                                                                              \
        "model.layers.{L}.self_attn.rotary_emb.inv_freq", LF_MAP_IGNORED,                          \
            "follows from rope_theta", NULL                                                        \
    }

#define QWEN_EXPERTS                                                                               \
    {"model.layers.{L}.mlp.gate.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL},       \
        {"model.layers.{L}.mlp.experts.{E}.gate_proj.weight", LF_MAP_EXPERT,                       \
         "layers.{L}.moe.experts.gate.weight", NULL},                                              \
        {"model.layers.{L}.mlp.experts.{E}.up_proj.weight", LF_MAP_EXPERT,                         \
         "layers.{L}.moe.experts.up.weight", NULL},                                                \
    {                                                                                              \
        "model.layers.{L}.mlp.experts.{E}.down_proj.weight", LF_MAP_EXPERT,                        \
            "layers.{L}.moe.experts.down.weight", NULL                                             \
    }

static const struct lf_map_row qwen2_rows[] = {QWEN_ATTENTION, {0}};

const struct lf_hf_family lf_hf_qwen2 = {
    .name = "qwen2",
    .also = "qwen1.5 qwen2.5",
    .model_type = "qwen2",
    .architecture = "Qwen2ForCausalLM",
    .classifier = "Qwen2ForSequenceClassification",
    .prefix = "model.",
    .switches = qwen2_switches,
    .keys = qwen2_keys,
    .rows = qwen2_rows,
    .read = read_qwen2,
    .write = write_qwen2,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

const struct lf_hf_family lf_hf_qwen3 = {
    .name = "qwen3",
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .classifier = "Qwen3ForSequenceClassification",
    .prefix = "model.",
    .switches = qwen3_switches,
    .keys = qwen3_keys,
    .rows = qwen2_rows,
    .read = read_qwen2,
    .write = write_qwen2,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- MiMo ---- */

/* Qwen2 with a head that predicts more tokens. */
static const struct lf_hf_key mimo_keys[] = {
    QWEN_KEYS,
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias", "true"},
    {"num_nextn_predict_layers", LF_HF_NUMBER, "mtp_layers", "0"},
    {0}};

#define MIMO(outside, ours)                                                                        \
    {                                                                                              \
        "model.mtp_layers.{M}." outside, LF_MAP_COPY, "layers.{H}." ours, NULL                     \
    }

static const struct lf_map_row mimo_rows[] = {
    QWEN_ATTENTION,
    MIMO("token_layernorm.weight", "mtp.embed_norm.weight"),
    MIMO("hidden_layernorm.weight", "mtp.hidden_norm.weight"),
    MIMO("input_proj.weight", "mtp.join.weight"),
    MIMO("final_layernorm.weight", "mtp.final_norm.weight"),
    MIMO("input_layernorm.weight", "attn_norm.weight"),
    MIMO("self_attn.q_proj.{P}", "attn.q.{P}"),
    MIMO("self_attn.k_proj.{P}", "attn.k.{P}"),
    MIMO("self_attn.v_proj.{P}", "attn.v.{P}"),
    MIMO("self_attn.o_proj.{P}", "attn.o.{P}"),
    MIMO("post_attention_layernorm.weight", "mlp_norm.weight"),
    MIMO("mlp.gate_proj.weight", "mlp.gate.weight"),
    MIMO("mlp.up_proj.weight", "mlp.up.weight"),
    MIMO("mlp.down_proj.weight", "mlp.down.weight"),
    {"model.mtp_layers.", LF_MAP_LEFT_OUT, "heads of multi-token prediction", "mtp_layers=0"},
    {0}};

const struct lf_hf_family lf_hf_mimo = {
    .name = "mimo",
    .model_type = "mimo",
    .architecture = "MiMoForCausalLM",
    .prefix = "model.",
    .switches = qwen2_switches,
    .keys = mimo_keys,
    .rows = mimo_rows,
    .mtp_join = LF_MTP_HIDDEN_EMBED,
    .read = read_qwen2,
    .write = write_qwen2,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- with experts ---- */

#define QWEN_MOE_KEYS                                                                              \
    {"num_experts|num_local_experts", LF_HF_NUMBER, "experts", NULL},                              \
        {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", NULL},                          \
        {"moe_intermediate_size", LF_HF_NUMBER, "expert_ffn", NULL},                               \
        {"norm_topk_prob", LF_HF_BOOL, "router_renorm", "false"},                                  \
        {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.001"},                             \
    {                                                                                              \
        "output_router_logits", LF_HF_INERT, NULL, NULL                                            \
    }

static const char *const qwen2_moe_switches[] = {
    "norm=rms", "position=rope", "mlp=glu", "router_score=softmax", "shared_gate=yes", NULL};
static const char *const qwen3_moe_switches[] = {"norm=rms",    "position=rope",        "mlp=glu",
                                                 "qk_norm=yes", "router_score=softmax", NULL};
static const struct lf_hf_key qwen2_moe_keys[] = {
    QWEN_KEYS,
    QWEN_MOE_KEYS,
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"qkv_bias", LF_HF_BOOL, "qkv_bias", "true"},
    {"shared_expert_intermediate_size", LF_HF_NUMBER, "shared_ffn", NULL},
    {0}};
static const struct lf_hf_key qwen3_moe_keys[] = {
    QWEN_KEYS,
    QWEN_MOE_KEYS,
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "false"},
    {0}};

static const struct lf_map_row qwen2_moe_rows[] = {
    QWEN_ATTENTION,
    QWEN_EXPERTS,
    {"model.layers.{L}.mlp.shared_expert.gate_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.gate.weight", NULL},
    {"model.layers.{L}.mlp.shared_expert.up_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.up.weight", NULL},
    {"model.layers.{L}.mlp.shared_expert.down_proj.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared.down.weight", NULL},
    {"model.layers.{L}.mlp.shared_expert_gate.weight", LF_MAP_COPY,
     "layers.{L}.moe.shared_gate.weight", NULL},
    {0},
};
static const struct lf_map_row qwen3_moe_rows[] = {QWEN_ATTENTION, QWEN_EXPERTS, {0}};

/* All experts in one tensor, turned as published or not (Qwen3-VL). */
const struct lf_map_row lf_hf_qwen3_turned[] = {
    QWEN_ATTENTION, KIN_FUSED_EXPERT_ROWS(LF_MAP_STACK_T), {0}};
const struct lf_map_row lf_hf_qwen3_plain[] = {
    QWEN_ATTENTION, KIN_FUSED_EXPERT_ROWS(LF_MAP_STACK), {0}};

const struct lf_hf_family lf_hf_qwen2_moe = {
    .name = "qwen2-moe",
    .also = "qwen1.5-moe",
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .classifier = "Qwen2MoeForSequenceClassification",
    .prefix = "model.",
    .switches = qwen2_moe_switches,
    .keys = qwen2_moe_keys,
    .rows = qwen2_moe_rows,
    .read = read_qwen2_moe,
    .write = write_qwen2_moe,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

const struct lf_hf_family lf_hf_qwen3_moe = {
    .name = "qwen3-moe",
    .model_type = "qwen3_moe",
    .architecture = "Qwen3MoeForCausalLM",
    .classifier = "Qwen3MoeForSequenceClassification",
    .prefix = "model.",
    .switches = qwen3_moe_switches,
    .keys = qwen3_moe_keys,
    .rows = qwen3_moe_rows,
    .read = read_qwen3_moe,
    .write = write_qwen3_moe,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
