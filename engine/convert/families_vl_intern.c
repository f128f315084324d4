/* SPDX-License-Identifier: Apache-2.0
 *
 * InternVL in the form of transformers: InternViT, whose branches are scaled, a norm over four
 * patches side by side, and a decoder whose family text_config names. */
#include <math.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_vl.h"
#include "engine/convert/hf_priv.h"

static int no_memory(lf_err *err)
{
    return lf_fail(err, LF_ENOMEM, "out of memory");
}

/* ---- InternViT ---- */

/* Both names stand for the same table of switches but for norm and qk_norm, which follow. */
static const char *internvit_family(json_t *config)
{
    const char *norm = json_string_value(json_object_get(config, "norm_type"));
    return norm && strcmp(norm, "rms_norm") == 0 ? "internvit-rms" : "internvit";
}

static const struct lf_hf_key internvit_keys[] = {
    {"hidden_size", LF_HF_NUMBER, "vision.hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "vision.ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "vision.layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "vision.heads", NULL},
    {"attention_bias", LF_HF_BOOL, "vision.qkv_bias", "false"},
    {"use_qk_norm", LF_HF_BOOL, "vision.qk_norm", "false"},
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu\""},
    {"layer_norm_eps", LF_HF_NUMBER, "vision.norm_eps", "1e-6"},
    {"layer_scale_init_value", LF_HF_NUMBER, "vision.layer_scale_init", "0.1"},
    {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},
    /* The mean is of a classifier: with it there is no last norm. */
    {"use_mean_pooling", LF_HF_NOT, "vision.final_norm", "true"},
    {"num_channels", LF_HF_SAME, NULL, "3"},
    {"use_mask_token", LF_HF_SAME, NULL, "false"},
    {"use_absolute_position_embeddings", LF_HF_SAME, NULL, "true"},
    {"hidden_dropout_prob", LF_HF_SAME, NULL, "0"},
    {"attention_dropout", LF_HF_SAME, NULL, "0"},
    {"projection_dropout", LF_HF_SAME, NULL, "0"},
    {"initializer_factor", LF_HF_INERT, NULL, NULL},
    {"dropout", LF_HF_UNREAD, NULL, "0"},
    {0},
};

#define ENCODER "vision_tower.encoder.layer.{L}."
#define OURS    "vision.layers.{L}."
static const struct lf_map_row internvit_rows[] = {
    {"vision_tower.embeddings.patch_embeddings.projection.weight", LF_MAP_CONV,
     "vision.patch_embed.weight", NULL},
    {"vision_tower.embeddings.patch_embeddings.projection.bias", LF_MAP_COPY,
     "vision.patch_embed.bias", NULL},
    {"vision_tower.embeddings.position_embeddings", LF_MAP_LEAD, "vision.pos_embed.weight", NULL},
    {"vision_tower.embeddings.cls_token", LF_MAP_LEAD, "vision.class_token.weight", NULL},
    {ENCODER "layernorm_before.{P}", LF_MAP_COPY, OURS "attn_norm.{P}", NULL},
    {ENCODER "attention.q_proj.{P}", LF_MAP_COPY, OURS "attn.q.{P}", NULL},
    {ENCODER "attention.k_proj.{P}", LF_MAP_COPY, OURS "attn.k.{P}", NULL},
    {ENCODER "attention.v_proj.{P}", LF_MAP_COPY, OURS "attn.v.{P}", NULL},
    {ENCODER "attention.q_norm.{P}", LF_MAP_COPY, OURS "attn.q_norm.{P}", NULL},
    {ENCODER "attention.k_norm.{P}", LF_MAP_COPY, OURS "attn.k_norm.{P}", NULL},
    {ENCODER "attention.projection_layer.{P}", LF_MAP_COPY, OURS "attn.o.{P}", NULL},
    {ENCODER "lambda_1", LF_MAP_COPY, OURS "attn_scale", NULL},
    {ENCODER "layernorm_after.{P}", LF_MAP_COPY, OURS "mlp_norm.{P}", NULL},
    {ENCODER "mlp.fc1.{P}", LF_MAP_COPY, OURS "mlp.up.{P}", NULL},
    {ENCODER "mlp.fc2.{P}", LF_MAP_COPY, OURS "mlp.down.{P}", NULL},
    {ENCODER "lambda_2", LF_MAP_COPY, OURS "mlp_scale", NULL},
    {"vision_tower.layernorm.{P}", LF_MAP_COPY, "vision.final_norm.{P}", NULL},
    {0},
};

static int read_internvit(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *v = lf_hf_take(r, "norm_type");
    const char *norm = v ? json_string_value(v) : "layer_norm";
    const bool rms = norm && strcmp(norm, "rms_norm") == 0;
    if (!norm || (!rms && strcmp(norm, "layer_norm") != 0))
        return lf_hf_bad_value(r, "norm_type", v, "is not supported", err);
    /* Their norms of queries and keys do not take layer_norm_eps, and their last norm is no RMS
     * norm; ours are all alike. */
    if (c->vision.qk_norm && fabs(c->vision.norm_eps - 1e-6) > 0)
        return lf_fail(err, LF_ENOTSUP, "%s: layer_norm_eps = %g with use_qk_norm is not supported",
                       r->path, c->vision.norm_eps);
    if (c->vision.final_norm && rms)
        return lf_fail(err, LF_ENOTSUP,
                       "%s: use_mean_pooling = false with norm_type = rms_norm is not supported",
                       r->path);
    return lf_vl_read_patches(r, c, 0, 1, err);
}

static int write_internvit(const lf_model_config *c, json_t *o, lf_err *err)
{
    const char *norm = c->vision.norm == LF_NORM_RMS ? "rms_norm" : "layer_norm";
    int rc = json_object_set_new(o, "norm_type", json_string(norm)) ? no_memory(err) : 0;
    return rc != 0 ? rc : lf_vl_write_patches(c, o, 1, true, err);
}

static const struct lf_hf_tower internvit = {
    .model_type = "internvl_vision",
    .family = internvit_family,
    .families = "internvit internvit-rms",
    .keys = internvit_keys,
    .rows = internvit_rows,
    .names = {"vision_tower.", {"model.vision_tower.", "vision_tower.", NULL}},
    .read = read_internvit,
    .write = write_internvit};
static const struct lf_hf_tower *const towers[] = {&internvit, NULL};

/* ---- the model ---- */

static const struct lf_hf_key intern_keys[] = {
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"image_token_id|image_token_index", LF_HF_NUMBER, "image_token", NULL},
    {"projector_hidden_act", LF_HF_ACT, "projector.activation", "\"gelu\""},
    {"image_seq_length", LF_HF_INERT, NULL, NULL},
    {"ignore_index", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_map_row intern_rows[] = {
    {"multi_modal_projector.layer_norm.{P}", LF_MAP_COPY, "projector.norm.{P}", NULL},
    {"multi_modal_projector.linear_1.{P}", LF_MAP_COPY, "projector.fc1.{P}", NULL},
    {"multi_modal_projector.linear_2.{P}", LF_MAP_COPY, "projector.fc2.{P}", NULL},
    {0},
};

/* The last layer is read behind the last norm, where there is one, all others before it. */
static int read_states(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *v = json_object_get(r->o, "vision_feature_layer");
    const bool last = !v || (json_is_integer(v) && json_integer_value(v) == -1);
    int rc = lf_vl_read_layer(r, c, "vision_feature_layer", -1, err);
    if (rc == 0 && last && c->vision.final_norm)
        rc = lf_hf_set(r, c, "vision_feature_layer", "vision.read_norm", "yes", err);
    return rc;
}

static int read_intern(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    double ratio = 0.5;
    int rc = lf_hf_get_f64(r, "downsample_ratio", &ratio, err);
    if (rc == 0 && fabs(ratio - 0.5) > 0)
        rc = lf_fail(err, LF_ENOTSUP, "%s: downsample_ratio = %g is not supported; it is 0.5",
                     r->path, ratio);
    if (rc == 0)
        rc = read_states(r, c, err);
    if (rc == 0)
        rc = lf_vl_read_select(r, c, "default", err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "hidden_size", "projector.hidden", (double)c->hidden, err);
    return rc;
}

static int write_intern(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = json_object_set_new(o, "downsample_ratio", json_real(0.5)) ? no_memory(err) : 0;
    if (rc == 0)
        rc = lf_vl_write_layer(c, o, err);
    return rc != 0 ? rc : lf_vl_write_select(c, o, err);
}

static const char *const intern_switches[] = {
    "projector.kind=mlp",        "projector.merge=2",       "projector.norm=layer",
    "projector.norm_merged=yes", "projector.norm_eps=1e-5", NULL};

#define INTERN(decoder, ...)                                                                       \
    {                                                                                              \
        .name = "internvl-" #decoder, .model_type = "internvl",                                    \
        .architecture = "InternVLForConditionalGeneration", .switches = intern_switches,           \
        .keys = intern_keys, .rows = intern_rows, .read = read_intern, .write = write_intern,      \
        .tol_max = LF_HF_TOL_MAX, .tol_rms = LF_HF_TOL_RMS, .sight = &(const struct lf_hf_sight)   \
        {                                                                                          \
            .text = &lf_hf_##decoder, .text_type = #decoder, .tied = "true", .towers = towers,     \
            .names = lf_vl_llava_names, __VA_ARGS__                                                \
        }                                                                                          \
    }

const struct lf_hf_family lf_hf_internvl_qwen2 = INTERN(qwen2, .first = true);
const struct lf_hf_family lf_hf_internvl_qwen3 = INTERN(qwen3, );
const struct lf_hf_family lf_hf_internvl_llama = INTERN(llama, .text_defaults = LF_VL_LLAMA);
