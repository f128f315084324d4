/* SPDX-License-Identifier: Apache-2.0
 *
 * gpt-oss: a sink for each head, every other layer with a window, experts with biases whose gated
 * unit is cut. Files have all experts in one tensor: turned and with gate and up by turns in bf16,
 * or, as published, in blocks of 4-bit floats whose rows are those of the matrices. */
#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

static const char *const oss_switches[] = {"norm=rms",          "position=rope",
                                           "mlp=glu",           "activation=gelu_quick",
                                           "glu_up_offset=1",   "attn_sinks=yes",
                                           "expert_bias=yes",   "router_linear_bias=yes",
                                           "router_renorm=yes", "router_scale=1",
                                           "shared_gate=no",    "router_score=softmax",
                                           "router_bias=no",    NULL};

static const struct lf_hf_key oss_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "201088"},
    {"hidden_size", LF_HF_NUMBER, "hidden", "2880"},
    {"intermediate_size", LF_HF_NUMBER, "ffn expert_ffn", "2880"},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", "36"},
    {"num_attention_heads", LF_HF_NUMBER, "heads", "64"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "64"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "true"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"num_local_experts|num_experts", LF_HF_NUMBER, "experts", "128"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "4"},
    {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.001"},
    {"swiglu_limit", LF_HF_NUMBER, "glu_limit", "7"},
    {"swiglu_alpha", LF_HF_SAME, NULL, "1.702"},
    {"hidden_act", LF_HF_INERT, NULL, "\"silu\""}, /* the class has its own */
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    /* of published files: what other keys say too */
    {"experts_per_token", LF_HF_INERT, NULL, NULL},
    {"initial_context_length", LF_HF_INERT, NULL, NULL},
    {0},
};

/* Where nobody says how positions turn, the class scales them. An empty rope_scaling says nothing
 * there, an empty rope_parameters that they are not scaled. */
static json_t *usual_rope(const lf_hf_reader *r)
{
    json_t *a = json_object_get(r->o, "rope_scaling"),
           *b = json_object_get(r->o, "rope_parameters");
    const bool empty = json_is_object(a) && json_object_size(a) == 0;
    if ((a && !json_is_null(a) && !empty) || (b && !json_is_null(b)))
        return NULL;
    return json_loads("{\"rope_type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": 32.0, "
                      "\"beta_slow\": 1.0, \"truncate\": false, "
                      "\"original_max_position_embeddings\": 4096}",
                      0, NULL);
}

static int read_oss(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    static const struct lf_hf_slide by = {.period = 2};
    int64_t window;
    int rc = lf_hf_get_window(r, 128, &window, err);
    if (rc == 0)
        rc = lf_hf_read_layers(r, c, window, false, &by, err);
    json_t *usual = usual_rope(r);
    if (rc == 0)
        rc = lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = 150000, .params = usual}, err);
    json_decref(usual);
    return rc;
}

static int write_oss(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_rope(c, o, err);
    if (rc == 0 && c->rope_scaling == LF_ROPE_PLAIN) {
        json_t *plain =
            json_pack("{s: s, s: f}", "rope_type", "default", "rope_theta", c->rope_theta);
        if (!plain || json_object_set(o, "rope_parameters", plain))
            rc = lf_fail(err, LF_ENOMEM, "out of memory");
        json_decref(plain);
    }
    if (rc == 0 && c->sliding_window > 0 &&
        json_object_set_new(o, "sliding_window", json_integer(c->sliding_window)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc != 0 ? rc : lf_hf_write_layers(c, o, err);
}

#define OSS_EXPERT "model.layers.{L}.mlp.experts."
#define OSS_OURS   "layers.{L}.moe.experts."
#define OSS_ROWS                                                                                   \
    KIN_ATTENTION_ROWS, KIN_HEAD_ROWS,                                                             \
        {"model.layers.{L}.self_attn.sinks", LF_MAP_COPY, "layers.{L}.attn.sinks", NULL},          \
        {"model.layers.{L}.mlp.router.weight", LF_MAP_COPY, "layers.{L}.moe.router.weight", NULL}, \
        {"model.layers.{L}.mlp.router.bias", LF_MAP_COPY, "layers.{L}.moe.router.logit_bias",      \
         NULL},                                                                                    \
        {OSS_EXPERT "gate_up_proj_bias", LF_MAP_STACK,                                             \
         "blocks=experts groups=expert_ffn " OSS_OURS "gate.bias " OSS_OURS "up.bias", NULL},      \
    {                                                                                              \
        OSS_EXPERT "down_proj_bias", LF_MAP_COPY, OSS_OURS "down.bias", NULL                       \
    }
#define OSS_MATRICES(kind, end)                                                                    \
    {OSS_EXPERT "gate_up_proj" end, kind,                                                          \
     "blocks=experts groups=expert_ffn " OSS_OURS "gate.weight " OSS_OURS "up.weight", NULL},      \
    {                                                                                              \
        OSS_EXPERT "down_proj" end, kind, "blocks=experts " OSS_OURS "down.weight", NULL           \
    }

static const struct lf_map_row oss_rows[] = {OSS_ROWS, OSS_MATRICES(LF_MAP_STACK_T, ""), {0}};
static const struct lf_map_row oss_packed[] = {
    OSS_ROWS, OSS_MATRICES(LF_MAP_STACK, LF_HF_MX_BLOCKS), {0}};

const struct lf_hf_family lf_hf_gpt_oss = {
    .name = "gpt-oss",
    .model_type = "gpt_oss",
    .architecture = "GptOssForCausalLM",
    .classifier = "GptOssForSequenceClassification",
    .prefix = "model.",
    .switches = oss_switches,
    .keys = oss_keys,
    .rows = oss_rows,
    .packed_rows = oss_packed,
    .read = read_oss,
    .write = write_oss,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
