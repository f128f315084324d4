/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoders of pictures that are models of their own: those of CLIP and SigLIP, DINOv2, masked
 * autoencoders, and ViT and DeiT, which tell classes of pictures. */
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_vl.h"
#include "engine/convert/hf_priv.h"
#include "engine/model/vision.h"

/* ---- CLIP, SigLIP ---- */

/* transformers 4 had the tower in an object of its class. */
#define TOWER_NAME(part)                                                                           \
    {                                                                                              \
        "vision_tower." part,                                                                      \
        {                                                                                          \
            part, "vision_model." part, NULL                                                       \
        }                                                                                          \
    }
static const struct lf_hf_name tower_names[] = {
    TOWER_NAME("embeddings."),     TOWER_NAME("encoder."),
    TOWER_NAME("pre_layrnorm."), /* so they write */
    TOWER_NAME("post_layernorm."), {0},
};
static const struct lf_hf_name pair_names[] = {
    {"vision_tower.", {"vision_model.", NULL}},
    {0},
};

static const char *const clip_kept[] = {"visual_projection.", NULL};
static const char *const siglip_kept[] = {"head.", "vision_model.head.", NULL};
static const char *const siglip2_pair_kept[] = {"text_model.", "vision_model.head.", "logit_scale",
                                                "logit_bias", NULL};

#define LONE(id, type, arch, ...)                                                                  \
    {                                                                                              \
        .name = id, .model_type = type, .architecture = arch, .tol_max = LF_HF_TOL_MAX,            \
        .tol_rms = LF_HF_TOL_RMS, .lone = &(const struct lf_hf_lone)                               \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

const struct lf_hf_family lf_hf_clip_vision =
    LONE("clip-vision", "clip_vision_model", "CLIPVisionModel", .tower = &lf_hf_tower_clip,
         .names = tower_names, .kept = clip_kept);
/* A head pools for a classifier, and nothing here reads it. */
const struct lf_hf_family lf_hf_siglip_vision =
    LONE("siglip-vision", "siglip_vision_model", "SiglipVisionModel", .tower = &lf_hf_tower_siglip,
         .ignore = "vision_use_head", .names = tower_names, .kept = siglip_kept);

const struct lf_hf_family lf_hf_siglip2_pair = LONE(
    "siglip2", "siglip2", "Siglip2Model", .tower = &lf_hf_tower_siglip2, .nested = "vision_config",
    .ignore = "vision_use_head", .names = pair_names, .kept = siglip2_pair_kept);
const struct lf_hf_family lf_hf_siglip2_vision = LONE(
    "siglip2-vision", "siglip2_vision_model", "Siglip2VisionModel", .tower = &lf_hf_tower_siglip2,
    .ignore = "vision_use_head", .names = tower_names, .kept = siglip_kept);

/* ---- DINOv2 ---- */

static const char *dinov2_family(json_t *config)
{
    return json_is_true(json_object_get(config, "use_swiglu_ffn")) ? "dinov2-swiglu" : "dinov2";
}

static const struct lf_hf_key dinov2_keys[] = {
    {"hidden_size", LF_HF_NUMBER, "vision.hidden", "768"},
    {"num_hidden_layers", LF_HF_NUMBER, "vision.layers", "12"},
    {"num_attention_heads", LF_HF_NUMBER, "vision.heads", "12"},
    {"num_channels", LF_HF_SAME, NULL, "3"},
    {"hidden_dropout_prob", LF_HF_SAME, NULL, "0.0"},
    {"attention_probs_dropout_prob", LF_HF_SAME, NULL, "0.0"},
    {"drop_path_rate", LF_HF_SAME, NULL, "0.0"},
    {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},
    {"layer_norm_eps", LF_HF_NUMBER, "vision.norm_eps", "1e-6"},
    {"layerscale_value", LF_HF_NUMBER, "vision.layer_scale_init", "1.0"},
    {"qkv_bias", LF_HF_BOOL, "vision.qkv_bias", "true"},
    /* Its token stands for hidden patches, which nothing here has. */
    {"use_mask_token", LF_HF_INERT, NULL, "false"},
    /* What a detector would read. */
    {"apply_layernorm", LF_HF_INERT, NULL, NULL},
    {"reshape_hidden_states", LF_HF_INERT, NULL, NULL},
    {"out_features", LF_HF_INERT, NULL, NULL},
    {"out_indices", LF_HF_INERT, NULL, NULL},
    {"stage_names", LF_HF_INERT, NULL, NULL},
    {0},
};

#define DINO "encoder.layer.{L}."
#define OURS "vision.layers.{L}."
static const struct lf_map_row dinov2_rows[] = {
    {"embeddings.cls_token", LF_MAP_LEAD, "vision.class_token.weight", NULL},
    {"embeddings.position_embeddings", LF_MAP_LEAD, "vision.pos_embed.weight", NULL},
    {"embeddings.patch_embeddings.projection.weight", LF_MAP_CONV, "vision.patch_embed.weight",
     NULL},
    {"embeddings.patch_embeddings.projection.bias", LF_MAP_COPY, "vision.patch_embed.bias", NULL},
    {DINO "norm1.{P}", LF_MAP_COPY, OURS "attn_norm.{P}", NULL},
    {DINO "attention.attention.query.{P}", LF_MAP_COPY, OURS "attn.q.{P}", NULL},
    {DINO "attention.attention.key.{P}", LF_MAP_COPY, OURS "attn.k.{P}", NULL},
    {DINO "attention.attention.value.{P}", LF_MAP_COPY, OURS "attn.v.{P}", NULL},
    {DINO "attention.output.dense.{P}", LF_MAP_COPY, OURS "attn.o.{P}", NULL},
    {DINO "layer_scale1.lambda1", LF_MAP_COPY, OURS "attn_scale", NULL},
    {DINO "norm2.{P}", LF_MAP_COPY, OURS "mlp_norm.{P}", NULL},
    {DINO "mlp.fc1.{P}", LF_MAP_COPY, OURS "mlp.up.{P}", "vision.mlp=plain"},
    {DINO "mlp.fc2.{P}", LF_MAP_COPY, OURS "mlp.down.{P}", "vision.mlp=plain"},
    {DINO "mlp.weights_in.{P}", LF_MAP_STACK, OURS "mlp.gate.{P} " OURS "mlp.up.{P}",
     "vision.mlp=glu"},
    {DINO "mlp.weights_out.{P}", LF_MAP_COPY, OURS "mlp.down.{P}", "vision.mlp=glu"},
    {DINO "layer_scale2.lambda1", LF_MAP_COPY, OURS "mlp_scale", NULL},
    {"layernorm.{P}", LF_MAP_COPY, "vision.final_norm.{P}", NULL},
    {0},
};
static const char *const dinov2_kept[] = {"embeddings.mask_token", NULL};

/* The inner width for a ratio: a gated MLP has two thirds of it, to the next multiple of 8. */
static int64_t width_of(int64_t hidden, int64_t ratio, bool gated)
{
    return gated ? (hidden * ratio * 2 / 3 + 7) / 8 * 8 : hidden * ratio;
}

/* A gated MLP has silu, whatever this says. */
static const struct lf_hf_key dinov2_act[] = {
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu\""}, {0}};

static int read_dinov2(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool gated = false;
    int64_t ratio = 4;
    int rc = lf_hf_get_bool(r, "use_swiglu_ffn", &gated, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "mlp_ratio", &ratio, err);
    if (rc == 0 && (ratio < 1 || ratio > 64))
        rc = lf_fail(err, LF_ENOTSUP, "%s: mlp_ratio = %lld", r->path, (long long)ratio);
    if (gated)
        (void)lf_hf_take(r, "hidden_act");
    else if (rc == 0)
        rc = lf_hf_read_keys(r, dinov2_act, c, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "mlp_ratio", "vision.ffn",
                              (double)width_of(c->vision.hidden, ratio, gated), err);
    return rc != 0 ? rc : lf_vl_read_patches(r, c, 224, 1, err);
}

static int write_dinov2(const lf_model_config *c, json_t *o, lf_err *err)
{
    const bool gated = c->vision.mlp == LF_MLP_GLU;
    int64_t ratio = 1;
    while (ratio < 64 && width_of(c->vision.hidden, ratio, gated) < c->vision.ffn)
        ratio++;
    if (width_of(c->vision.hidden, ratio, gated) != c->vision.ffn)
        return lf_fail(err, LF_EINVAL, "vision.ffn = %lld is no multiple of vision.hidden",
                       (long long)c->vision.ffn);
    int rc = gated ? 0 : lf_hf_write_keys(dinov2_act, c, o, err);
    if (rc == 0 && (json_object_set_new(o, "mlp_ratio", json_integer(ratio)) ||
                    json_object_set_new(o, "use_swiglu_ffn", json_boolean(gated))))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc != 0 ? rc : lf_vl_write_patches(c, o, 1, false, err);
}

static const struct lf_hf_tower dinov2_tower = {.model_type = "dinov2",
                                                .family = dinov2_family,
                                                .families = "dinov2 dinov2-swiglu",
                                                .keys = dinov2_keys,
                                                .rows = dinov2_rows,
                                                .read = read_dinov2,
                                                .write = write_dinov2};
const struct lf_hf_family lf_hf_dinov2 =
    LONE("dinov2", "dinov2", "Dinov2Model", .tower = &dinov2_tower, .kept = dinov2_kept);

/* ---- masked autoencoders ---- */

static const char *mae_family(json_t *config)
{
    (void)config;
    return "vit-mae";
}

/* How training hides patches is of the run, and changes no tensor. */
#define MAE_KEYS                                                                                   \
    {"hidden_size", LF_HF_NUMBER, "vision.hidden", "768"},                                         \
        {"num_hidden_layers", LF_HF_NUMBER, "vision.layers", "12"},                                \
        {"num_attention_heads", LF_HF_NUMBER, "vision.heads", "12"},                               \
        {"intermediate_size", LF_HF_NUMBER, "vision.ffn", "3072"},                                 \
        {"num_channels", LF_HF_SAME, NULL, "3"}, {"hidden_dropout_prob", LF_HF_SAME, NULL, "0.0"}, \
        {"attention_probs_dropout_prob", LF_HF_SAME, NULL, "0.0"},                                 \
        {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},                            \
        {"layer_norm_eps", LF_HF_NUMBER, "vision.norm_eps", "1e-12"},                              \
        {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu\""},                                \
        {"qkv_bias", LF_HF_BOOL, "vision.qkv_bias", "true"},                                       \
        {"mask_ratio", LF_HF_INERT, NULL, NULL},                                                   \
    {                                                                                              \
        "norm_pix_loss", LF_HF_INERT, NULL, NULL                                                   \
    }

static const struct lf_hf_key mae_keys[] = {
    MAE_KEYS,
    {"decoder_hidden_size", LF_HF_NUMBER, "mae.hidden", "512"},
    {"decoder_num_hidden_layers", LF_HF_NUMBER, "mae.layers", "8"},
    {"decoder_num_attention_heads", LF_HF_NUMBER, "mae.heads", "16"},
    {"decoder_intermediate_size", LF_HF_NUMBER, "mae.ffn", "2048"},
    {0},
};
static const struct lf_hf_key mae_encoder_keys[] = {
    MAE_KEYS,
    {"decoder_hidden_size", LF_HF_INERT, NULL, NULL},
    {"decoder_num_hidden_layers", LF_HF_INERT, NULL, NULL},
    {"decoder_num_attention_heads", LF_HF_INERT, NULL, NULL},
    {"decoder_intermediate_size", LF_HF_INERT, NULL, NULL},
    {0},
};

#define MAE_LAYERS(theirs, ours)                                                                   \
    {theirs "layernorm_before.{P}", LF_MAP_COPY, ours "attn_norm.{P}", NULL},                      \
        {theirs "attention.attention.query.{P}", LF_MAP_COPY, ours "attn.q.{P}", NULL},            \
        {theirs "attention.attention.key.{P}", LF_MAP_COPY, ours "attn.k.{P}", NULL},              \
        {theirs "attention.attention.value.{P}", LF_MAP_COPY, ours "attn.v.{P}", NULL},            \
        {theirs "attention.output.dense.{P}", LF_MAP_COPY, ours "attn.o.{P}", NULL},               \
        {theirs "layernorm_after.{P}", LF_MAP_COPY, ours "mlp_norm.{P}", NULL},                    \
        {theirs "intermediate.dense.{P}", LF_MAP_COPY, ours "mlp.up.{P}", NULL},                   \
    {                                                                                              \
        theirs "output.dense.{P}", LF_MAP_COPY, ours "mlp.down.{P}", NULL                          \
    }

static const struct lf_map_row mae_rows[] = {
    {"vit.embeddings.cls_token", LF_MAP_LEAD, "vision.class_token.weight", NULL},
    {"vit.embeddings.position_embeddings", LF_MAP_LEAD, "vision.pos_embed.weight", NULL},
    {"vit.embeddings.patch_embeddings.projection.weight", LF_MAP_CONV, "vision.patch_embed.weight",
     NULL},
    {"vit.embeddings.patch_embeddings.projection.bias", LF_MAP_COPY, "vision.patch_embed.bias",
     NULL},
    MAE_LAYERS("vit.encoder.layer.{L}.", OURS),
    {"vit.layernorm.{P}", LF_MAP_COPY, "vision.final_norm.{P}", NULL},
    {"decoder.decoder_embed.{P}", LF_MAP_COPY, "mae.embed.{P}", NULL},
    {"decoder.mask_token", LF_MAP_LEAD, "mae.mask_token.weight", NULL},
    {"decoder.decoder_pos_embed", LF_MAP_LEAD, "mae.pos_embed.weight", NULL},
    MAE_LAYERS("decoder.decoder_layers.{L}.", "mae.layers.{L}."),
    {"decoder.decoder_norm.{P}", LF_MAP_COPY, "mae.final_norm.{P}", NULL},
    {"decoder.decoder_pred.{P}", LF_MAP_PIXELS, "mae.pixels.{P}", NULL},
    {0},
};
/* transformers 5 writes the decoder's layers under a new name. */
static const struct lf_hf_name mae_names[] = {
    {"decoder.decoder_layers.",
     {"decoder.decoder_encoder.layer.", "decoder.decoder_layers.", NULL}},
    {0},
};
static const struct lf_hf_name mae_encoder_names[] = {
    {"vit.", {"", NULL}},
    {0},
};

static int read_mae(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_vl_read_patches(r, c, 224, 1, err);
}

static int write_mae(const lf_model_config *c, json_t *o, lf_err *err)
{
    return lf_vl_write_patches(c, o, 1, false, err);
}

#define MAE_TOWER(table)                                                                           \
    {                                                                                              \
        .model_type = "vit_mae", .family = mae_family, .families = "vit-mae", .keys = table,       \
        .rows = mae_rows, .read = read_mae, .write = write_mae                                     \
    }
static const struct lf_hf_tower mae_tower = MAE_TOWER(mae_keys),
                                mae_encoder_tower = MAE_TOWER(mae_encoder_keys);
const struct lf_hf_family lf_hf_mae_encoder =
    LONE("vit-mae-encoder", "vit_mae", "ViTMAEModel", .tower = &mae_encoder_tower,
         .class = "ViTMAEModel", .names = mae_encoder_names);
const struct lf_hf_family lf_hf_mae =
    LONE("vit-mae", "vit_mae", "ViTMAEForPreTraining", .tower = &mae_tower,
         .beside = LF_BESIDE_RESTORING, .names = mae_names);

/* ---- ViT, DeiT ---- */

static const char *vit_family(json_t *config)
{
    return strcmp(json_string_value(json_object_get(config, "model_type")), "deit") == 0 ? "deit"
                                                                                         : "vit";
}

/* A pooler is of the class without a head, and no class with one reads it. */
static const struct lf_hf_key vit_keys[] = {
    {"hidden_size", LF_HF_NUMBER, "vision.hidden", "768"},
    {"num_hidden_layers", LF_HF_NUMBER, "vision.layers", "12"},
    {"num_attention_heads", LF_HF_NUMBER, "vision.heads", "12"},
    {"intermediate_size", LF_HF_NUMBER, "vision.ffn", "3072"},
    {"num_channels", LF_HF_SAME, NULL, "3"},
    {"hidden_dropout_prob", LF_HF_SAME, NULL, "0.0"},
    {"attention_probs_dropout_prob", LF_HF_SAME, NULL, "0.0"},
    {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},
    {"layer_norm_eps", LF_HF_NUMBER, "vision.norm_eps", "1e-12"},
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu\""},
    {"qkv_bias", LF_HF_BOOL, "vision.qkv_bias", "true"},
    {"encoder_stride", LF_HF_INERT, NULL, NULL},
    {"pooler_act", LF_HF_INERT, NULL, NULL},
    {"pooler_output_size", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_map_row vit_rows[] = {
    {"vit.embeddings.cls_token", LF_MAP_LEAD, "vision.class_token.weight", NULL},
    {"vit.embeddings.distillation_token", LF_MAP_LEAD, "vision.distill_token.weight",
     "vision.distill_token=yes"},
    {"vit.embeddings.position_embeddings", LF_MAP_LEAD, "vision.pos_embed.weight", NULL},
    {"vit.embeddings.patch_embeddings.projection.weight", LF_MAP_CONV, "vision.patch_embed.weight",
     NULL},
    {"vit.embeddings.patch_embeddings.projection.bias", LF_MAP_COPY, "vision.patch_embed.bias",
     NULL},
    MAE_LAYERS("vit.encoder.layer.{L}.", OURS),
    {"vit.layernorm.{P}", LF_MAP_COPY, "vision.final_norm.{P}", NULL},
    {"classifier.{P}", LF_MAP_COPY, "classes.{P}", "classes.read=class"},
    {"cls_classifier.{P}", LF_MAP_COPY, "classes.{P}", "classes.read=both"},
    {"distillation_classifier.{P}", LF_MAP_COPY, "classes.distill.{P}", "classes.read=both"},
    {0},
};
static const struct lf_hf_name vit_names[] = {{0}};
static const struct lf_hf_name deit_names[] = {
    {"vit.", {"deit.", NULL}},
    {0},
};
static const struct lf_hf_name vit_encoder_names[] = {
    {"vit.", {"", NULL}},
    {0},
};
static const char *const vit_kept[] = {"pooler.", NULL};

/* The tokens before the patches have positions too. */
static int read_vit(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_vl_read_patches(r, c, 224, lf_vision_tokens(&c->vision), err);
}

static int write_vit(const lf_model_config *c, json_t *o, lf_err *err)
{
    return lf_vl_write_patches(c, o, lf_vision_tokens(&c->vision), false, err);
}

#define VIT_TOWER(type, of)                                                                        \
    {                                                                                              \
        .model_type = type, .family = vit_family, .families = of, .keys = vit_keys,                \
        .rows = vit_rows, .read = read_vit, .write = write_vit                                     \
    }
/* An encoder that a masked autoencoder made is a ViT: its fixed positions are as good as learned.
 */
static const struct lf_hf_tower vit_tower = VIT_TOWER("vit", "vit vit-mae"),
                                deit_tower = VIT_TOWER("deit", "deit");
const struct lf_hf_family lf_hf_vit =
    LONE("vit", "vit", "ViTForImageClassification", .tower = &vit_tower,
         .class = "ViTForImageClassification", .names = vit_names, .beside = LF_BESIDE_CLASSES);
const struct lf_hf_family lf_hf_vit_encoder =
    LONE("vit-encoder", "vit", "ViTModel", .tower = &vit_tower, .class = "ViTModel",
         .names = vit_encoder_names, .kept = vit_kept);
const struct lf_hf_family lf_hf_deit =
    LONE("deit", "deit", "DeiTForImageClassification", .tower = &deit_tower,
         .class = "DeiTForImageClassification", .names = deit_names, .beside = LF_BESIDE_CLASSES);
const struct lf_hf_family lf_hf_deit_taught =
    LONE("deit-taught", "deit", "DeiTForImageClassificationWithTeacher", .tower = &deit_tower,
         .class = "DeiTForImageClassificationWithTeacher", .names = deit_names,
         .beside = LF_BESIDE_CLASSES, .reads = LF_CLASS_BOTH);
