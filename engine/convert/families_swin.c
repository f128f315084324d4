/* SPDX-License-Identifier: Apache-2.0
 *
 * Swin and Swin v2: classes of pictures, and the encoders alone. */
#include <math.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_vl.h"
#include "engine/convert/hf_priv.h"
#include "engine/model/vision.h"

static const char *swin_family(json_t *config)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    return type && strcmp(type, "swinv2") == 0 ? "swinv2" : "swin";
}

/* Stochastic depth is of the run, and changes no tensor. */
static const struct lf_hf_key swin_keys[] = {
    {"num_channels", LF_HF_SAME, NULL, "3"},
    {"hidden_dropout_prob", LF_HF_SAME, NULL, "0.0"},
    {"attention_probs_dropout_prob", LF_HF_SAME, NULL, "0.0"},
    {"drop_path_rate", LF_HF_INERT, NULL, NULL},
    {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},
    {"layer_norm_eps", LF_HF_NUMBER, "vision.norm_eps", "1e-5"},
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu\""},
    {"qkv_bias", LF_HF_BOOL, "vision.qkv_bias", "true"},
    {"window_size", LF_HF_NUMBER, "vision.window", "7"},
    {"encoder_stride", LF_HF_INERT, NULL, NULL},
    {"path_norm", LF_HF_INERT, NULL, NULL},
    /* What follows from the others. */
    {"hidden_size", LF_HF_INERT, NULL, NULL},
    {"num_layers", LF_HF_INERT, NULL, NULL},
    /* What a detector would read. */
    {"out_features", LF_HF_INERT, NULL, NULL},
    {"out_indices", LF_HF_INERT, NULL, NULL},
    {"stage_names", LF_HF_INERT, NULL, NULL},
    {0},
};

#define SWIN "swin.encoder.layers.{S}.blocks.{B}."
#define OURS "vision.layers.{L}."
static const char follows[] = "it follows from the side of a window";
static const struct lf_map_row swin_rows[] = {
    {"swin.embeddings.patch_embeddings.projection.weight", LF_MAP_CONV, "vision.patch_embed.weight",
     NULL},
    {"swin.embeddings.patch_embeddings.projection.bias", LF_MAP_COPY, "vision.patch_embed.bias",
     NULL},
    {"swin.embeddings.norm.{P}", LF_MAP_COPY, "vision.pre_norm.{P}", NULL},
    {"swin.embeddings.position_embeddings", LF_MAP_LEAD, "vision.pos_embed.weight", NULL},
    {SWIN "layernorm_before.{P}", LF_MAP_COPY, OURS "attn_norm.{P}", NULL},
    {SWIN "attention.self.query.{P}", LF_MAP_COPY, OURS "attn.q.{P}", NULL},
    {SWIN "attention.self.key.{P}", LF_MAP_COPY, OURS "attn.k.{P}", NULL},
    {SWIN "attention.self.value.{P}", LF_MAP_COPY, OURS "attn.v.{P}", NULL},
    {SWIN "attention.self.relative_position_bias_table", LF_MAP_COPY, OURS "attn.distances.weight",
     NULL},
    {SWIN "attention.self.continuous_position_bias_mlp.0.{P}", LF_MAP_COPY,
     OURS "attn.distances.up.{P}", NULL},
    {SWIN "attention.self.continuous_position_bias_mlp.2.weight", LF_MAP_COPY,
     OURS "attn.distances.down.weight", NULL},
    {SWIN "attention.self.logit_scale", LF_MAP_DEPTHWISE, OURS "attn.temperature.weight", NULL},
    {SWIN "attention.self.relative_position_index", LF_MAP_IGNORED, follows, NULL},
    {SWIN "attention.self.relative_coords_table", LF_MAP_IGNORED, follows, "vision.cosine=yes"},
    {SWIN "attention.output.dense.{P}", LF_MAP_COPY, OURS "attn.o.{P}", NULL},
    {SWIN "layernorm_after.{P}", LF_MAP_COPY, OURS "mlp_norm.{P}", NULL},
    {SWIN "intermediate.dense.{P}", LF_MAP_COPY, OURS "mlp.up.{P}", NULL},
    {SWIN "output.dense.{P}", LF_MAP_COPY, OURS "mlp.down.{P}", NULL},
    {"swin.encoder.layers.{S}.downsample.norm.{P}", LF_MAP_COPY, OURS "merge_norm.{P}", NULL},
    {"swin.encoder.layers.{S}.downsample.reduction.weight", LF_MAP_COPY, OURS "merge.weight", NULL},
    {"swin.layernorm.{P}", LF_MAP_COPY, "vision.final_norm.{P}", NULL},
    {"classifier.{P}", LF_MAP_COPY, "classes.{P}", NULL},
    {0},
};

/* Names of the rows are those of Swin. */
static const struct lf_hf_name swin_names[] = {{0}};
static const struct lf_hf_name swinv2_names[] = {
    {"swin.", {"swinv2.", NULL}},
    {0},
};
static const struct lf_hf_name encoder_names[] = {
    {"swin.", {"", NULL}},
    {0},
};
/* It stands for hidden patches, which nothing here has. */
static const char *const encoder_kept[] = {"embeddings.mask_token", NULL};

/* ---- config.json ---- */

enum { EMBED = 96 }; /* embed_dim of the classes of transformers */

/* A list of whole numbers; `def` is JSON. The caller owns it. */
static json_t *list_of(lf_hf_reader *r, const char *key, const char *def, lf_err *err)
{
    json_t *v = lf_hf_take(r, key), *list = v ? json_incref(v) : json_loads(def, 0, NULL);
    bool ok = json_is_array(list) && json_array_size(list) > 0;
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = json_is_integer(json_array_get(list, i));
    if (ok)
        return list;
    lf_hf_bad_value(r, key, list, "is no list of whole numbers, one for each stage", err);
    json_decref(list);
    return NULL;
}

static int read_list(lf_hf_reader *r, lf_model_config *c, const char *key, const char *ours,
                     const char *def, lf_err *err)
{
    json_t *list = list_of(r, key, def, err);
    const int rc = list ? lf_hf_set_list(r, c, key, ours, list, err) : LF_EFORMAT;
    json_decref(list);
    return rc;
}

/* From stage to stage they double. */
static int read_widths(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t width = EMBED;
    json_t *list = json_array();
    int rc = lf_hf_get_i64(r, "embed_dim", &width, err);
    if (rc == 0 && (width < 1 || width > 1 << 16))
        rc = lf_fail(err, LF_EFORMAT, "%s: embed_dim = %lld", r->path, (long long)width);
    for (int64_t s = 0; s < c->vision.stage_layers.n; s++)
        json_array_append_new(list, json_integer(width << (s < 16 ? s : 16)));
    if (rc == 0)
        rc = lf_hf_set_list(r, c, "embed_dim", "vision.stage_widths", list, err);
    json_decref(list);
    return rc;
}

static int read_ffn(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const lf_model_list *w = &c->vision.stage_widths;
    double ratio = 4;
    int rc = lf_hf_get_f64(r, "mlp_ratio", &ratio, err);
    for (int64_t s = 0; s < w->n && rc == 0; s++)
        if (ratio * w->v[s] < 1 || ratio * w->v[s] != floor(ratio * w->v[s]))
            rc = lf_fail(err, LF_ENOTSUP,
                         "%s: mlp_ratio = %g is no whole number of channels in stage %lld", r->path,
                         ratio, (long long)s + 1);
    return rc != 0 ? rc
                   : lf_hf_set_number(r, c, "mlp_ratio", "vision.ffn", ratio * w->v[w->n - 1], err);
}

/* The side of a picture in patches, and whether each of them has a learned position. */
static int read_grid(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t image = 0, patch = 1;
    bool learned = false;
    int rc = lf_vl_side(r, "image_size", 224, &image, err);
    if (rc == 0)
        rc = lf_vl_side(r, "patch_size", 4, &patch, err);
    if (rc == 0 && image % patch)
        rc = lf_fail(err, LF_ENOTSUP, "%s: image_size = %lld is no multiple of patch_size = %lld",
                     r->path, (long long)image, (long long)patch);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "patch_size", "vision.patch_dim", (double)(3 * patch * patch),
                              err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "image_size", "vision.grid", (double)(image / patch), err);
    if (rc == 0)
        rc = lf_hf_get_bool(r, "use_absolute_embeddings", &learned, err);
    if (rc == 0 && learned && c->vision.cosine)
        return lf_hf_bad_value(r, "use_absolute_embeddings", json_true(),
                               "is no model: the class adds a row of positions more than there are "
                               "patches, and stops",
                               err);
    if (rc == 0 && learned)
        rc = lf_hf_set_number(r, c, "use_absolute_embeddings", "vision.positions",
                              (double)(c->vision.grid * c->vision.grid), err);
    return rc;
}

static int read_swin(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = read_list(r, c, "depths", "vision.stage_layers", "[2, 2, 6, 2]", err);
    if (rc == 0)
        rc = read_list(r, c, "num_heads", "vision.stage_heads", "[3, 6, 12, 24]", err);
    if (rc == 0)
        rc = read_widths(r, c, err);
    if (rc == 0)
        rc = read_ffn(r, c, err);
    if (rc == 0)
        rc = read_grid(r, c, err);
    /* norms of patches and of merges have no other, whatever layer_norm_eps says */
    if (rc == 0 && fabs(c->vision.norm_eps - 1e-5) > 1e-12)
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: layer_norm_eps = %g: norms of merges have 1e-5 there, and all have one "
                     "here",
                     r->path, c->vision.norm_eps);
    /* keys never have a bias in v2, which is worth saying only where the others have one */
    if (rc == 0 && c->vision.bare_keys && !c->vision.qkv_bias)
        rc = lf_hf_set(r, c, "qkv_bias", "vision.bare_keys", "no", err);
    if (rc != 0 || !c->vision.cosine)
        return rc;
    return read_list(r, c, "pretrained_window_sizes", "vision.trained_windows", "[0, 0, 0, 0]",
                     err);
}

static json_t *whole_numbers(const lf_model_list *l)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < l->n; i++)
        json_array_append_new(list, json_integer((json_int_t)l->v[i]));
    return list;
}

/* What a file of the class cannot say. */
static int check_writable(const lf_vision_config *v, lf_err *err)
{
    bool doubles = true;
    for (int64_t s = 1; s < v->stage_widths.n; s++)
        doubles = doubles && fabs(v->stage_widths.v[s] - 2 * v->stage_widths.v[s - 1]) < 0.5;
    if (!doubles)
        return lf_fail(err, LF_EINVAL,
                       "vision.stage_widths: widths double from stage to stage in "
                       "a file of this class");
    return fabs(v->norm_eps - 1e-5) > 1e-12
               ? lf_fail(err, LF_EINVAL,
                         "vision.norm_eps = %g, but norms of merges have 1e-5 in "
                         "this class",
                         v->norm_eps)
               : 0;
}

static int write_swin(const lf_model_config *c, json_t *o, lf_err *err)
{
    const lf_vision_config *v = &c->vision;
    const int64_t patch = lf_vl_patch(c, 1), n = v->stage_layers.n;
    const int rc = check_writable(v, err);
    if (rc != 0)
        return rc;
    int bad = json_object_set_new(o, "embed_dim", json_integer((json_int_t)v->stage_widths.v[0])) ||
              json_object_set_new(o, "depths", whole_numbers(&v->stage_layers)) ||
              json_object_set_new(o, "num_heads", whole_numbers(&v->stage_heads)) ||
              json_object_set_new(o, "hidden_size", json_integer(v->hidden)) ||
              json_object_set_new(o, "num_layers", json_integer(n)) ||
              json_object_set_new(o, "mlp_ratio", json_real((double)v->ffn / (double)v->hidden)) ||
              json_object_set_new(o, "patch_size", json_integer(patch)) ||
              json_object_set_new(o, "image_size", json_integer(patch * v->grid)) ||
              json_object_set_new(o, "use_absolute_embeddings", json_boolean(v->positions > 0));
    if (v->cosine) {
        lf_model_list t = v->trained_windows;
        t.n = n; /* zeros where there is none */
        bad = bad || json_object_set_new(o, "pretrained_window_sizes", whole_numbers(&t));
    }
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* ---- families ---- */

#define TOWER(type)                                                                                \
    {                                                                                              \
        .model_type = type, .family = swin_family, .families = type, .keys = swin_keys,            \
        .rows = swin_rows, .read = read_swin, .write = write_swin                                  \
    }
static const struct lf_hf_tower swin_tower = TOWER("swin"), swinv2_tower = TOWER("swinv2");

#define LONE(id, type, arch, ...)                                                                  \
    {                                                                                              \
        .name = id, .model_type = type, .architecture = arch, .tol_max = LF_HF_TOL_MAX,            \
        .tol_rms = LF_HF_TOL_RMS, .lone = &(const struct lf_hf_lone)                               \
        {                                                                                          \
            .class = arch, __VA_ARGS__                                                             \
        }                                                                                          \
    }
const struct lf_hf_family lf_hf_swin =
    LONE("swin", "swin", "SwinForImageClassification", .tower = &swin_tower, .names = swin_names,
         .beside = LF_BESIDE_CLASSES, .reads = LF_CLASS_MEAN);
const struct lf_hf_family lf_hf_swin_encoder =
    LONE("swin-encoder", "swin", "SwinModel", .tower = &swin_tower, .names = encoder_names,
         .kept = encoder_kept);
const struct lf_hf_family lf_hf_swinv2 =
    LONE("swinv2", "swinv2", "Swinv2ForImageClassification", .tower = &swinv2_tower,
         .names = swinv2_names, .beside = LF_BESIDE_CLASSES, .reads = LF_CLASS_MEAN);
const struct lf_hf_family lf_hf_swinv2_encoder =
    LONE("swinv2-encoder", "swinv2", "Swinv2Model", .tower = &swinv2_tower, .names = encoder_names,
         .kept = encoder_kept);
