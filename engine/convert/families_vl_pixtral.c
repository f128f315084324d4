/* SPDX-License-Identifier: Apache-2.0
 *
 * Pixtral's encoder, which LLaVA's class takes too, and Mistral 3: the same, whose patches are
 * normed, taken m x m together and brought back to the width of one. */
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_vl.h"
#include "engine/convert/hf_priv.h"

static int no_memory(lf_err *err)
{
    return lf_fail(err, LF_ENOMEM, "out of memory");
}

/* ---- the encoder ---- */

static const char *pixtral_family(json_t *config)
{
    (void)config;
    return "pixtral";
}

/* Published files leave out what is as in the class. image_size is of the processor. */
static const struct lf_hf_key pixtral_keys[] = {
    {"hidden_size", LF_HF_NUMBER, "vision.hidden", "1024"},
    {"intermediate_size", LF_HF_NUMBER, "vision.ffn", "4096"},
    {"num_hidden_layers", LF_HF_NUMBER, "vision.layers", "24"},
    {"num_attention_heads", LF_HF_NUMBER, "vision.heads", "16"},
    {"num_channels", LF_HF_SAME, NULL, "3"},
    {"attention_dropout", LF_HF_SAME, NULL, "0"},
    {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu\""},
    {"image_size", LF_HF_INERT, NULL, NULL},
    {"tie_word_embeddings", LF_HF_INERT, NULL, NULL},
    {"vocab_size", LF_HF_INERT, NULL, NULL},
    {0},
};

#define LAYER "vision_tower.transformer.layers.{L}."
#define OURS  "vision.layers.{L}."
static const struct lf_map_row pixtral_rows[] = {
    {"vision_tower.patch_conv.weight", LF_MAP_CONV, "vision.patch_embed.weight", NULL},
    {"vision_tower.ln_pre.weight", LF_MAP_COPY, "vision.pre_norm.weight", NULL},
    {LAYER "attention_norm.weight", LF_MAP_COPY, OURS "attn_norm.weight", NULL},
    {LAYER "attention.q_proj.weight", LF_MAP_COPY, OURS "attn.q.weight", NULL},
    {LAYER "attention.k_proj.weight", LF_MAP_COPY, OURS "attn.k.weight", NULL},
    {LAYER "attention.v_proj.weight", LF_MAP_COPY, OURS "attn.v.weight", NULL},
    {LAYER "attention.o_proj.weight", LF_MAP_COPY, OURS "attn.o.weight", NULL},
    {LAYER "ffn_norm.weight", LF_MAP_COPY, OURS "mlp_norm.weight", NULL},
    {LAYER "feed_forward.gate_proj.weight", LF_MAP_COPY, OURS "mlp.gate.weight", NULL},
    {LAYER "feed_forward.up_proj.weight", LF_MAP_COPY, OURS "mlp.up.weight", NULL},
    {LAYER "feed_forward.down_proj.weight", LF_MAP_COPY, OURS "mlp.down.weight", NULL},
    {0},
};

/* rope_theta, or rope_parameters {"rope_type": "axial", "rope_theta"}. */
static int read_rope(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *o = lf_hf_take(r, "rope_parameters"), *within = json_object_get(o, "rope_theta");
    const char *type = json_string_value(json_object_get(o, "rope_type"));
    double theta = 10000;
    int rc = 0;
    if (o && type && strcmp(type, "axial") != 0 && strcmp(type, "default") != 0)
        return lf_hf_bad_value(r, "rope_parameters", o, "is not supported", err);
    rc = lf_hf_get_f64(r, "rope_theta", &theta, err);
    if (rc == 0 && json_is_number(within))
        theta = json_number_value(within);
    return rc != 0 ? rc : lf_hf_set_number(r, c, "rope_theta", "vision.rope_theta", theta, err);
}

static int read_pixtral(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const int64_t heads = c->vision.heads, width = c->vision.hidden;
    int64_t patch = 0;
    int rc = lf_vl_side(r, "patch_size", 16, &patch, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "patch_size", "vision.patch_dim", (double)(3 * patch * patch),
                              err);
    if (rc == 0)
        rc = lf_vl_same(r, "head_dim", heads > 0 ? width / heads : 0, "hidden_size / heads", err);
    return rc != 0 ? rc : read_rope(r, c, err);
}

static int write_pixtral(const lf_model_config *c, json_t *o, lf_err *err)
{
    const lf_vision_config *v = &c->vision;
    return json_object_set_new(o, "patch_size", json_integer(lf_vl_patch(c, 1))) ||
                   json_object_set_new(o, "head_dim", json_integer(v->head_dim)) ||
                   json_object_set_new(o, "rope_theta", json_real(v->rope_theta))
               ? no_memory(err)
               : 0;
}

const struct lf_hf_tower lf_hf_tower_pixtral = {
    .model_type = "pixtral",
    .family = pixtral_family,
    .families = "pixtral",
    .keys = pixtral_keys,
    .rows = pixtral_rows,
    .names = {"vision_tower.", {"model.vision_tower.", "vision_tower.", NULL}},
    .read = read_pixtral,
    .write = write_pixtral};

/* ---- Mistral 3 ---- */

static const struct lf_hf_key mistral3_keys[] = {
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"image_token_index|image_token_id", LF_HF_NUMBER, "image_token", NULL},
    {"projector_hidden_act", LF_HF_ACT, "projector.activation", "\"gelu\""},
    {"multimodal_projector_bias", LF_HF_BOOL, "projector.bias", "false"},
    {"spatial_merge_size", LF_HF_NUMBER, "projector.merge", "2"},
    {"vocab_size", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_map_row mistral3_rows[] = {
    {"multi_modal_projector.norm.weight", LF_MAP_COPY, "projector.norm.weight", NULL},
    {"multi_modal_projector.patch_merger.merging_layer.weight", LF_MAP_CELLS,
     "projector.reduce.weight", NULL},
    {"multi_modal_projector.linear_1.{P}", LF_MAP_COPY, "projector.fc1.{P}", NULL},
    {"multi_modal_projector.linear_2.{P}", LF_MAP_COPY, "projector.fc2.{P}", NULL},
    {0},
};

/* The norm takes the eps of the decoder, and the projector is as wide inside as it. */
static int read_mistral3(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = lf_vl_read_layer(r, c, "vision_feature_layer", -1, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "rms_norm_eps", "projector.norm_eps", c->norm_eps, err);
    return rc != 0
               ? rc
               : lf_hf_set_number(r, c, "hidden_size", "projector.hidden", (double)c->hidden, err);
}

static const char *const mistral3_switches[] = {"projector.kind=mlp", "projector.norm=rms",
                                                "projector.reduce=yes", NULL};
static const struct lf_hf_tower *const pixtral_only[] = {&lf_hf_tower_pixtral, NULL};

/* The class ties the head where no one says it; it does not where a file has two different
 * matrices, as the published ones have, so a head of its own is what goes without saying here. */
const struct lf_hf_family lf_hf_mistral3 = {
    .name = "mistral3",
    .model_type = "mistral3",
    .architecture = "Mistral3ForConditionalGeneration",
    .switches = mistral3_switches,
    .keys = mistral3_keys,
    .rows = mistral3_rows,
    .read = read_mistral3,
    .write = lf_vl_write_layer,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
    .sight = &(const struct lf_hf_sight){.text = &lf_hf_mistral,
                                         .text_type = "mistral",
                                         .first = true,
                                         .text_defaults = LF_VL_MISTRAL,
                                         .text_needs = "rms_norm_eps rope_theta",
                                         .tied = "false",
                                         .towers = pixtral_only,
                                         .names = lf_vl_llava_names},
};
