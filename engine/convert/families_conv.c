/* SPDX-License-Identifier: Apache-2.0
 *
 * ConvNeXt (Liu et al. 2022), which tells classes of pictures by convolutions. */
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_vl.h"
#include "engine/convert/hf_priv.h"
#include "engine/model/vision.h"

static const char *convnext_family(json_t *config)
{
    (void)config;
    return "convnext";
}

/* Norms behind layers have eps 1e-6 whatever layer_norm_eps says, which is of the norm behind the
 * mean of a picture. */
static const struct lf_hf_key convnext_keys[] = {
    {"num_channels", LF_HF_SAME, NULL, "3"},
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu\""},
    {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},
    {"layer_norm_eps", LF_HF_NUMBER, "classes.norm_eps", "1e-12"},
    /* Of training; here it is drop_path of the stage. */
    {"drop_path_rate", LF_HF_INERT, NULL, NULL},
    /* What a detector would read. */
    {"out_features", LF_HF_INERT, NULL, NULL},
    {"out_indices", LF_HF_INERT, NULL, NULL},
    {"stage_names", LF_HF_INERT, NULL, NULL},
    {0},
};

#define STAGE "convnext.encoder.stages.{S}.layers.{B}."
#define NEXT  "convnext.encoder.stages.{T}.downsampling_layer."
#define OURS  "vision.layers.{L}."
static const struct lf_map_row convnext_rows[] = {
    {"convnext.embeddings.patch_embeddings.weight", LF_MAP_CONV, "vision.patch_embed.weight", NULL},
    {"convnext.embeddings.patch_embeddings.bias", LF_MAP_COPY, "vision.patch_embed.bias", NULL},
    {"convnext.embeddings.layernorm.{P}", LF_MAP_COPY, "vision.pre_norm.{P}", NULL},
    {STAGE "dwconv.weight", LF_MAP_PLANE, OURS "conv.weight", NULL},
    {STAGE "dwconv.bias", LF_MAP_COPY, OURS "conv.bias", NULL},
    {STAGE "layernorm.{P}", LF_MAP_COPY, OURS "mlp_norm.{P}", NULL},
    {STAGE "pwconv1.{P}", LF_MAP_COPY, OURS "mlp.up.{P}", NULL},
    {STAGE "pwconv2.{P}", LF_MAP_COPY, OURS "mlp.down.{P}", NULL},
    {STAGE "layer_scale_parameter", LF_MAP_COPY, OURS "mlp_scale", NULL},
    {NEXT "0.{P}", LF_MAP_COPY, OURS "merge_norm.{P}", NULL},
    {NEXT "1.weight", LF_MAP_MERGE, OURS "merge.weight", NULL},
    {NEXT "1.bias", LF_MAP_COPY, OURS "merge.bias", NULL},
    {"convnext.layernorm.{P}", LF_MAP_COPY, "classes.norm.{P}", NULL},
    {"classifier.{P}", LF_MAP_COPY, "classes.{P}", NULL},
    {0},
};

/* A list of a number for each stage, or that of the class where the file has none. */
static int read_stages(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
                       const char *def, lf_err *err)
{
    json_t *list = lf_hf_take(r, theirs);
    if (!list)
        return lf_hf_set(r, c, theirs, ours, def, err);
    return json_is_array(list) && json_array_size(list) > 0
               ? lf_hf_set_list(r, c, theirs, ours, list, err)
               : lf_fail(err, LF_EFORMAT, "%s: %s is no list of numbers", r->path, theirs);
}

static int read_sizes(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t image = 0, patch = 1;
    int rc = lf_vl_side(r, "patch_size", 4, &patch, err);
    if (rc == 0)
        rc = lf_vl_side(r, "image_size", 224, &image, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "patch_size", "vision.patch_dim", (double)(3 * patch * patch),
                              err);
    return rc != 0
               ? rc
               : lf_hf_set_number(r, c, "image_size", "vision.grid", (double)(image / patch), err);
}

/* Without a first value there are no numbers that scale a layer. */
static int read_scale(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    static const char key[] = "layer_scale_init_value";
    double init = 1e-6;
    const int rc = lf_hf_get_f64(r, key, &init, err);
    return rc != 0    ? rc
           : init > 0 ? lf_hf_set_number(r, c, key, "vision.layer_scale_init", init, err)
                      : lf_hf_set(r, c, key, "vision.layer_scale", "no", err);
}

static int read_convnext(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const lf_vision_config *v = &c->vision;
    int64_t stages;
    int rc = read_stages(r, c, "hidden_sizes", "vision.stage_widths", "96,192,384,768", err);
    if (rc == 0)
        rc = read_stages(r, c, "depths", "vision.stage_layers", "3,3,9,3", err);
    stages = v->stage_layers.n;
    if (rc == 0)
        rc = lf_hf_get_i64(r, "num_stages", &stages, err);
    if (rc == 0 && (stages != v->stage_layers.n || stages != v->stage_widths.n))
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: num_stages = %lld, but depths has %lld numbers and hidden_sizes %lld",
                     r->path, (long long)stages, (long long)v->stage_layers.n,
                     (long long)v->stage_widths.n);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "hidden_sizes", "vision.ffn", 4 * v->stage_widths.v[stages - 1],
                              err);
    if (rc == 0)
        rc = read_scale(r, c, err);
    return rc != 0 ? rc : read_sizes(r, c, err);
}

static json_t *list_of(const lf_model_list *l)
{
    json_t *a = json_array();
    for (int64_t i = 0; a && i < l->n; i++)
        if (json_array_append_new(a, json_integer((json_int_t)l->v[i]))) {
            json_decref(a);
            return NULL;
        }
    return a;
}

static int write_convnext(const lf_model_config *c, json_t *o, lf_err *err)
{
    const lf_vision_config *v = &c->vision;
    const int64_t patch = lf_vl_patch(c, 1);
    if (!(c->classes.norm_eps > 0))
        return lf_fail(err, LF_EINVAL,
                       "classes.norm_eps: ConvNeXt has a norm behind the mean of a picture");
    if (v->ffn != 4 * v->hidden || v->conv_taps != 7)
        return lf_fail(err, LF_EINVAL,
                       "vision.ffn = %lld and vision.conv_taps = %lld: ConvNeXt has an MLP of four "
                       "times its width and convolutions of 7 x 7",
                       (long long)v->ffn, (long long)v->conv_taps);
    const int bad = json_object_set_new(o, "hidden_sizes", list_of(&v->stage_widths)) ||
                    json_object_set_new(o, "depths", list_of(&v->stage_layers)) ||
                    json_object_set_new(o, "num_stages", json_integer(v->stage_layers.n)) ||
                    json_object_set_new(o, "layer_scale_init_value",
                                        json_real(v->layer_scale ? v->layer_scale_init : 0)) ||
                    json_object_set_new(o, "patch_size", json_integer(patch)) ||
                    json_object_set_new(o, "image_size", json_integer(patch * v->grid));
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static const struct lf_hf_tower convnext_tower = {.model_type = "convnext",
                                                  .family = convnext_family,
                                                  .families = "convnext",
                                                  .keys = convnext_keys,
                                                  .rows = convnext_rows,
                                                  .read = read_convnext,
                                                  .write = write_convnext};
static const struct lf_hf_lone convnext_lone = {.tower = &convnext_tower,
                                                .class = "ConvNextForImageClassification",
                                                .beside = LF_BESIDE_CLASSES,
                                                .reads = LF_CLASS_MEAN};
const struct lf_hf_family lf_hf_convnext = {.name = "convnext",
                                            .model_type = "convnext",
                                            .architecture = "ConvNextForImageClassification",
                                            .tol_max = LF_HF_TOL_MAX,
                                            .tol_rms = LF_HF_TOL_RMS,
                                            .lone = &convnext_lone};
