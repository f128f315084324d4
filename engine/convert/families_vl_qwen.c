/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen2-VL, Qwen2.5-VL, Qwen3-VL, Qwen3.5 and 3.6, the last three with and without experts:
 * encoders with rotary positions of rows and columns, whose four neighbours become one row of a
 * decoder with three positions a token. */
#include <math.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families_vl.h"
#include "engine/convert/hf_priv.h"

#define FRAMES 2 /* of a patch: temporal_patch_size */

static int no_memory(lf_err *err)
{
    return lf_fail(err, LF_ENOMEM, "out of memory");
}

static const char *qwen2_family(json_t *config)
{
    (void)config;
    return "qwen2-vl";
}
static const char *qwen25_family(json_t *config)
{
    (void)config;
    return "qwen2.5-vl";
}
static const char *qwen3_family(json_t *config)
{
    (void)config;
    return "qwen3-vl";
}

/* ---- vision_config ---- */

#define VISION_KEYS                                                                                \
    {"depth", LF_HF_NUMBER, "vision.layers", NULL},                                                \
        {"num_heads", LF_HF_NUMBER, "vision.heads", NULL},                                         \
        {"in_channels|in_chans", LF_HF_SAME, NULL, "3"},                                           \
        {"spatial_merge_size", LF_HF_NUMBER, "projector.merge", NULL},                             \
        {"temporal_patch_size", LF_HF_SAME, NULL, "2"},                                            \
        {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},                            \
    {                                                                                              \
        "spatial_patch_size", LF_HF_INERT, NULL, NULL                                              \
    }

static const struct lf_hf_key qwen2_vision[] = {
    VISION_KEYS,
    {"embed_dim", LF_HF_NUMBER, "vision.hidden", NULL},
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"quick_gelu\""},
    {0},
};
static const struct lf_hf_key qwen25_vision[] = {
    VISION_KEYS,
    {"hidden_size", LF_HF_NUMBER, "vision.hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "vision.ffn", NULL},
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"silu\""},
    {"tokens_per_second", LF_HF_INERT, NULL, NULL}, /* of films */
    {0},
};
#define QWEN3_VISION                                                                               \
    VISION_KEYS, {"hidden_size", LF_HF_NUMBER, "vision.hidden", NULL},                             \
        {"intermediate_size", LF_HF_NUMBER, "vision.ffn", NULL},                                   \
        {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu_pytorch_tanh\""},                   \
    {                                                                                              \
        "num_position_embeddings", LF_HF_NUMBER, "vision.positions", NULL                          \
    }
static const struct lf_hf_key qwen3_vision[] = {QWEN3_VISION, {0}};
/* The encoder of Qwen3-VL, of which nothing is read but its end. */
static const struct lf_hf_key qwen35_vision[] = {
    QWEN3_VISION,
    {"deepstack_visual_indexes", LF_HF_UNREAD, NULL, "[]"},
    {0},
};

/* transformers 5 says what the class does anyway. */
static int read_axes(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *o = lf_hf_take(r, "rope_parameters"), *theta = json_object_get(o, "rope_theta");
    const char *type = json_string_value(json_object_get(o, "rope_type"));
    if (o && type && strcmp(type, "axial") != 0 && strcmp(type, "default") != 0)
        return lf_hf_bad_value(r, "rope_parameters", o, "is not supported", err);
    return json_is_number(theta) ? lf_hf_set_number(r, c, "rope_theta", "vision.rope_theta",
                                                    json_number_value(theta), err)
                                 : 0;
}

static int read_vision(lf_hf_reader *r, lf_model_config *c, const char *width, lf_err *err)
{
    int64_t patch = 0;
    int rc = lf_vl_side(r, "patch_size", 0, &patch, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "patch_size", "vision.patch_dim",
                              (double)(3 * FRAMES * patch * patch), err);
    if (rc == 0)
        rc = lf_vl_same(r, width, c->hidden, "hidden_size of the decoder", err);
    return rc != 0 ? rc : read_axes(r, c, err);
}

static int read_qwen2(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    double ratio = 4;
    int rc = read_vision(r, c, "hidden_size", err);
    if (rc == 0)
        rc = lf_hf_get_f64(r, "mlp_ratio", &ratio, err);
    return rc != 0 ? rc
                   : lf_hf_set_number(r, c, "mlp_ratio", "vision.ffn",
                                      floor(ratio * (double)c->vision.hidden), err);
}

/* A list of layers, which no file may lack. */
static int read_list(lf_hf_reader *r, lf_model_config *c, const char *key, const char *ours,
                     lf_err *err)
{
    json_t *list = lf_hf_take(r, key);
    if (!json_is_array(list))
        return lf_fail(err, LF_EFORMAT, "%s: %s is missing", r->path, key);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (!json_is_integer(json_array_get(list, i)))
            return lf_hf_bad_value(r, key, list, "is no list of layers", err);
    return lf_hf_set_list(r, c, key, ours, list, err);
}

/* window_size counts pixels. What does not fill a merged patch does not count. */
static int read_qwen25(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t window = 0;
    int rc = read_vision(r, c, "out_hidden_size", err);
    if (rc == 0)
        rc = lf_vl_side(r, "window_size", 0, &window, err);
    if (rc == 0) {
        const int64_t merged = lf_vl_patch(c, FRAMES) * c->projector.merge;
        rc = lf_hf_set_number(r, c, "window_size", "vision.window",
                              (double)(window / merged * c->projector.merge), err);
    }
    return rc != 0 ? rc : read_list(r, c, "fullatt_block_indexes", "vision.full_layers", err);
}

static int read_qwen3(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = read_vision(r, c, "out_hidden_size", err);
    return rc != 0 ? rc : read_list(r, c, "deepstack_visual_indexes", "vision.taps", err);
}

static int read_qwen35(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return read_vision(r, c, "out_hidden_size", err);
}

static json_t *whole_numbers(const lf_model_list *l)
{
    json_t *list = json_array();
    for (int64_t i = 0; i < l->n; i++)
        json_array_append_new(list, json_integer((json_int_t)l->v[i]));
    return list;
}

static int write_qwen2(const lf_model_config *c, json_t *o, lf_err *err)
{
    const lf_vision_config *v = &c->vision;
    if (json_object_set_new(o, "patch_size", json_integer(lf_vl_patch(c, FRAMES))) ||
        json_object_set_new(o, "hidden_size", json_integer(c->hidden)) ||
        json_object_set_new(o, "mlp_ratio",
                            v->ffn % v->hidden ? json_real((double)v->ffn / (double)v->hidden)
                                               : json_integer(v->ffn / v->hidden)))
        return no_memory(err);
    return 0;
}
static int write_qwen25(const lf_model_config *c, json_t *o, lf_err *err)
{
    const int64_t patch = lf_vl_patch(c, FRAMES);
    if (json_object_set_new(o, "patch_size", json_integer(patch)) ||
        json_object_set_new(o, "out_hidden_size", json_integer(c->hidden)) ||
        json_object_set_new(o, "window_size", json_integer(c->vision.window * patch)) ||
        json_object_set_new(o, "fullatt_block_indexes", whole_numbers(&c->vision.full_layers)))
        return no_memory(err);
    return 0;
}
static int write_qwen35(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (json_object_set_new(o, "patch_size", json_integer(lf_vl_patch(c, FRAMES))) ||
        json_object_set_new(o, "out_hidden_size", json_integer(c->hidden)))
        return no_memory(err);
    return 0;
}
static int write_qwen3(const lf_model_config *c, json_t *o, lf_err *err)
{
    const int rc = write_qwen35(c, o, err);
    if (rc == 0 &&
        json_object_set_new(o, "deepstack_visual_indexes", whole_numbers(&c->vision.taps)))
        return no_memory(err);
    return rc;
}

/* ---- tensors ---- */

#define BLOCK_ROWS                                                                                 \
    {"visual.patch_embed.proj.weight", LF_MAP_CONV_T, "vision.patch_embed.weight", NULL},          \
        {"visual.blocks.{L}.norm1.{P}", LF_MAP_COPY, "vision.layers.{L}.attn_norm.{P}", NULL},     \
        {"visual.blocks.{L}.attn.qkv.{P}", LF_MAP_STACK,                                           \
         "vision.layers.{L}.attn.q.{P} vision.layers.{L}.attn.k.{P} vision.layers.{L}.attn.v.{P}", \
         NULL},                                                                                    \
        {"visual.blocks.{L}.attn.proj.{P}", LF_MAP_COPY, "vision.layers.{L}.attn.o.{P}", NULL},    \
    {                                                                                              \
        "visual.blocks.{L}.norm2.{P}", LF_MAP_COPY, "vision.layers.{L}.mlp_norm.{P}", NULL         \
    }

static const struct lf_map_row qwen2_rows[] = {
    BLOCK_ROWS,
    {"visual.blocks.{L}.mlp.fc1.{P}", LF_MAP_COPY, "vision.layers.{L}.mlp.up.{P}", NULL},
    {"visual.blocks.{L}.mlp.fc2.{P}", LF_MAP_COPY, "vision.layers.{L}.mlp.down.{P}", NULL},
    {0},
};
static const struct lf_map_row qwen25_rows[] = {
    BLOCK_ROWS,
    {"visual.blocks.{L}.mlp.gate_proj.{P}", LF_MAP_COPY, "vision.layers.{L}.mlp.gate.{P}", NULL},
    {"visual.blocks.{L}.mlp.up_proj.{P}", LF_MAP_COPY, "vision.layers.{L}.mlp.up.{P}", NULL},
    {"visual.blocks.{L}.mlp.down_proj.{P}", LF_MAP_COPY, "vision.layers.{L}.mlp.down.{P}", NULL},
    {0},
};
static const struct lf_map_row qwen3_rows[] = {
    BLOCK_ROWS,
    {"visual.patch_embed.proj.bias", LF_MAP_COPY, "vision.patch_embed.bias", NULL},
    {"visual.pos_embed.weight", LF_MAP_COPY, "vision.pos_embed.weight", NULL},
    {"visual.blocks.{L}.mlp.linear_fc1.{P}", LF_MAP_COPY, "vision.layers.{L}.mlp.up.{P}", NULL},
    {"visual.blocks.{L}.mlp.linear_fc2.{P}", LF_MAP_COPY, "vision.layers.{L}.mlp.down.{P}", NULL},
    {0},
};
static const struct lf_map_row merger_rows[] = {
    {"visual.merger.ln_q.{P}", LF_MAP_COPY, "projector.norm.{P}", NULL},
    {"visual.merger.mlp.0.{P}", LF_MAP_COPY, "projector.fc1.{P}", NULL},
    {"visual.merger.mlp.2.{P}", LF_MAP_COPY, "projector.fc2.{P}", NULL},
    {0},
};
static const struct lf_map_row deep_rows[] = {
    {"visual.merger.norm.{P}", LF_MAP_COPY, "projector.norm.{P}", NULL},
    {"visual.merger.linear_fc1.{P}", LF_MAP_COPY, "projector.fc1.{P}", NULL},
    {"visual.merger.linear_fc2.{P}", LF_MAP_COPY, "projector.fc2.{P}", NULL},
    {"visual.deepstack_merger_list.{L}.norm.{P}", LF_MAP_COPY, "projector.deep.{L}.norm.{P}", NULL},
    {"visual.deepstack_merger_list.{L}.linear_fc1.{P}", LF_MAP_COPY, "projector.deep.{L}.fc1.{P}",
     NULL},
    {"visual.deepstack_merger_list.{L}.linear_fc2.{P}", LF_MAP_COPY, "projector.deep.{L}.fc2.{P}",
     NULL},
    {0},
};

#define TOWER_NAMES                                                                                \
    {                                                                                              \
        "visual.",                                                                                 \
        {                                                                                          \
            "model.visual.", "visual.", NULL                                                       \
        }                                                                                          \
    }
static const struct lf_hf_tower qwen2_tower = {.model_type = "qwen2_vl_vision qwen2_vl",
                                               .family = qwen2_family,
                                               .families = "qwen2-vl",
                                               .keys = qwen2_vision,
                                               .rows = qwen2_rows,
                                               .names = TOWER_NAMES,
                                               .read = read_qwen2,
                                               .write = write_qwen2};
static const struct lf_hf_tower qwen25_tower = {.model_type = "qwen2_5_vl_vision qwen2_5_vl",
                                                .family = qwen25_family,
                                                .families = "qwen2.5-vl",
                                                .keys = qwen25_vision,
                                                .rows = qwen25_rows,
                                                .names = TOWER_NAMES,
                                                .read = read_qwen25,
                                                .write = write_qwen25};
#define QWEN3_TOWER(type, which)                                                                   \
    {                                                                                              \
        .model_type = type "_vision " type, .family = qwen3_family, .families = "qwen3-vl",        \
        .keys = which##_vision, .rows = qwen3_rows,                                                \
        .names = {"visual.", {"visual.", "model.visual.", NULL}}, .read = read_##which,            \
        .write = write_##which                                                                     \
    }
static const struct lf_hf_tower qwen3_tower = QWEN3_TOWER("qwen3_vl", qwen3),
                                qwen3_moe_tower = QWEN3_TOWER("qwen3_vl_moe", qwen3),
                                qwen35_tower = QWEN3_TOWER("qwen3_5", qwen35),
                                qwen35_moe_tower = QWEN3_TOWER("qwen3_5_moe", qwen35);

static const struct lf_hf_tower *const qwen2_towers[] = {&qwen2_tower, NULL};
static const struct lf_hf_tower *const qwen25_towers[] = {&qwen25_tower, NULL};
static const struct lf_hf_tower *const qwen3_towers[] = {&qwen3_tower, NULL};
static const struct lf_hf_tower *const qwen3_moe_towers[] = {&qwen3_moe_tower, NULL};
static const struct lf_hf_tower *const qwen35_towers[] = {&qwen35_tower, NULL};
static const struct lf_hf_tower *const qwen35_moe_towers[] = {&qwen35_moe_tower, NULL};

/* Files of Qwen2-VL and 2.5 are of before text_config, those of Qwen3-VL are not. */
static const struct lf_hf_name old_names[] = {
    {"model.", {"model.language_model.", "model.", NULL}},
    {0},
};
static const struct lf_hf_name new_names[] = {
    {"model.", {"model.language_model.", NULL}},
    {0},
};

/* ---- families ---- */

static const struct lf_hf_key outer_keys[] = {
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"image_token_id", LF_HF_NUMBER, "image_token", NULL},
    {"video_token_id", LF_HF_INERT, NULL, NULL},
    {"vision_start_token_id", LF_HF_INERT, NULL, NULL},
    {"vision_end_token_id", LF_HF_INERT, NULL, NULL},
    {"vision_token_id", LF_HF_INERT, NULL, NULL},
    {0},
};

#define MERGER "projector.kind=mlp", "projector.norm_eps=1e-6"
static const char *const layer_switches[] = {MERGER, "projector.norm=layer", NULL};
static const char *const rms_switches[] = {MERGER, "projector.norm=rms", NULL};

#define NEEDS "vocab_size rms_norm_eps rope_theta max_position_embeddings num_key_value_heads"

/* Both have an encoder of their own and one kind of decoder. */
#define QWEN_VL(id, type, class, norm, encoder)                                                    \
    {                                                                                              \
        .name = id, .model_type = type, .architecture = class, .switches = norm,                   \
        .keys = outer_keys, .rows = merger_rows, .tol_max = LF_HF_TOL_MAX,                         \
        .tol_rms = LF_HF_TOL_RMS,                                                                  \
        .sight = &(const struct lf_hf_sight){.text = &lf_hf_qwen2,                                 \
                                             .text_type = type "_text " type,                      \
                                             .first = true,                                        \
                                             .flat = true,                                         \
                                             .text_needs = NEEDS,                                  \
                                             .tied = "false",                                      \
                                             .tied_either = true,                                  \
                                             .rope = LF_HF_ROPE_SECTIONS,                          \
                                             .towers = encoder,                                    \
                                             .names = old_names},                                  \
    }
const struct lf_hf_family lf_hf_qwen2_vl = QWEN_VL(
    "qwen2-vl", "qwen2_vl", "Qwen2VLForConditionalGeneration", layer_switches, qwen2_towers);
const struct lf_hf_family lf_hf_qwen25_vl = QWEN_VL(
    "qwen2.5-vl", "qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration", rms_switches, qwen25_towers);

/* Its decoder has no window, whatever the file says. */
static int read_no_window(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    if (c->sliding_window > 0)
        return lf_fail(err, LF_ENOTSUP, "%s: sliding_window: the class of this family has none",
                       r->path);
    return 0;
}

#define QWEN3_VL(id, type, class, ...)                                                             \
    {                                                                                              \
        .name = id, .model_type = type, .architecture = class, .switches = layer_switches,         \
        .keys = outer_keys, .rows = deep_rows, .read = read_no_window, .tol_max = LF_HF_TOL_MAX,   \
        .tol_rms = LF_HF_TOL_RMS,                                                                  \
        .sight = &(const struct lf_hf_sight){.text_type = type "_text",                            \
                                             .first = true,                                        \
                                             .tied = "false",                                      \
                                             .rope = LF_HF_ROPE_INTERLEAVED,                       \
                                             .names = new_names,                                   \
                                             __VA_ARGS__},                                         \
    }
const struct lf_hf_family lf_hf_qwen3_vl =
    QWEN3_VL("qwen3-vl", "qwen3_vl", "Qwen3VLForConditionalGeneration", .text = &lf_hf_qwen3,
             .text_needs = NEEDS " head_dim", .towers = qwen3_towers);

/* Its router always divides the weights of the chosen experts by their sum. */
const struct lf_hf_family lf_hf_qwen3_vl_moe = QWEN3_VL(
    "qwen3-vl-moe", "qwen3_vl_moe", "Qwen3VLMoeForConditionalGeneration", .text = &lf_hf_qwen3_moe,
    .text_needs = NEEDS " head_dim", .towers = qwen3_moe_towers,
    .text_defaults = "{\"norm_topk_prob\": true}", .text_must = "{\"norm_topk_prob\": true}",
    .turned_rows = lf_hf_qwen3_turned, .plain_rows = lf_hf_qwen3_plain);

/* Qwen3.5 and 3.6: the decoder is that of texts with three positions a token in its attention;
 * scans know none. The table of the decoder has the defaults of its class. */
const struct lf_hf_family lf_hf_qwen35_vl =
    QWEN3_VL("qwen3.5-vl", "qwen3_5", "Qwen3_5ForConditionalGeneration", .text = &lf_hf_qwen35,
             .towers = qwen35_towers);
const struct lf_hf_family lf_hf_qwen35_vl_moe = QWEN3_VL(
    "qwen3.5-vl-moe", "qwen3_5_moe", "Qwen3_5MoeForConditionalGeneration",
    .text = &lf_hf_qwen35_moe, .towers = qwen35_moe_towers, .plain_rows = lf_hf_qwen35_plain);
