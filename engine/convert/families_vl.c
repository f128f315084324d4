/* SPDX-License-Identifier: Apache-2.0
 *
 * LLaVA and its relatives: an encoder of CLIP or SigLIP, a projector of one or two linear layers,
 * and a decoder whose family text_config names. */
#include "engine/convert/families_vl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/hf_priv.h"

static int no_memory(lf_err *err)
{
    return lf_fail(err, LF_ENOMEM, "out of memory");
}

/* ---- what towers share ---- */

int lf_vl_side(lf_hf_reader *r, const char *key, int64_t def, int64_t *out, lf_err *err)
{
    json_t *v = lf_hf_take(r, key), *a = json_array_get(v, 0), *b = json_array_get(v, 1);
    const bool pair = json_array_size(v) == 2 && json_is_integer(a) && json_equal(a, b);
    if (!v && def > 0)
        *out = def;
    else if (!v)
        return lf_fail(err, LF_EFORMAT, "%s: %s is missing", r->path, key);
    else if (!pair && !json_is_integer(v))
        return lf_hf_bad_value(r, key, v, "is no side of a square", err);
    else
        *out = json_integer_value(pair ? a : v);
    if (*out < 1 || *out > 1 << 20)
        return lf_fail(err, LF_EFORMAT, "%s: %s = %lld", r->path, key, (long long)*out);
    return 0;
}

int lf_vl_read_patches(lf_hf_reader *r, lf_model_config *c, int64_t def_image, int64_t more,
                       lf_err *err)
{
    int64_t image = 0, patch = 1;
    int rc = lf_vl_side(r, "patch_size", 0, &patch, err);
    if (rc == 0)
        rc = lf_vl_side(r, "image_size", def_image, &image, err);
    const int64_t side = image / patch;
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "patch_size", "vision.patch_dim", (double)(3 * patch * patch),
                              err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "image_size", "vision.positions", (double)(side * side + more),
                              err);
    return rc;
}

int64_t lf_vl_patch(const lf_model_config *c, int64_t frames)
{
    return llround(sqrt((double)c->vision.patch_dim / 3 / (double)frames));
}

static json_t *side_of(int64_t n, bool pair)
{
    return pair ? json_pack("[I, I]", (json_int_t)n, (json_int_t)n) : json_integer(n);
}

int lf_vl_write_patches(const lf_model_config *c, json_t *o, int64_t more, bool pair, lf_err *err)
{
    const int64_t patch = lf_vl_patch(c, 1),
                  side = llround(sqrt((double)(c->vision.positions - more)));
    if (json_object_set_new(o, "patch_size", side_of(patch, pair)) ||
        json_object_set_new(o, "image_size", side_of(patch * side, pair)))
        return no_memory(err);
    return 0;
}

/* ---- CLIP, SigLIP ---- */

static const char *clip_family(json_t *config)
{
    (void)config;
    return "clip";
}

static const char *siglip_family(json_t *config)
{
    (void)config;
    return "siglip";
}
static const char *siglip2_family(json_t *config)
{
    (void)config;
    return "siglip2";
}

#define TOWER_KEYS                                                                                 \
    {"hidden_size", LF_HF_NUMBER, "vision.hidden", NULL},                                          \
        {"intermediate_size", LF_HF_NUMBER, "vision.ffn", NULL},                                   \
        {"num_hidden_layers", LF_HF_NUMBER, "vision.layers", NULL},                                \
        {"num_attention_heads", LF_HF_NUMBER, "vision.heads", NULL},                               \
        {"num_channels", LF_HF_SAME, NULL, "3"}, {"attention_dropout", LF_HF_SAME, NULL, "0"},     \
        {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},                            \
        {"initializer_factor", LF_HF_INERT, NULL, NULL},                                           \
        {"projection_dim", LF_HF_INERT, NULL, NULL}, {"vocab_size", LF_HF_INERT, NULL, NULL},      \
        {"dropout", LF_HF_UNREAD, NULL, "0"}, {"num_image_tokens", LF_HF_INERT, NULL, NULL},       \
        {"projector_hidden_act", LF_HF_INERT, NULL, NULL},                                         \
    {                                                                                              \
        "num_positions", LF_HF_INERT, NULL, NULL                                                   \
    }

static const struct lf_hf_key clip_keys[] = {
    TOWER_KEYS,
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"quick_gelu\""},
    {"layer_norm_eps", LF_HF_NUMBER, "vision.norm_eps", "1e-5"},
    {0},
};
static const struct lf_hf_key siglip_keys[] = {
    TOWER_KEYS,
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu_pytorch_tanh\""},
    {"layer_norm_eps", LF_HF_NUMBER, "vision.norm_eps", "1e-6"},
    /* The head pools for a classifier. With one its tensors would have no place. */
    {"vision_use_head", LF_HF_SAME, NULL, "false"},
    {0},
};

/* Where a file says nothing it is the base model, for which the class was made. */
static const struct lf_hf_key siglip2_keys[] = {
    {"hidden_size", LF_HF_NUMBER, "vision.hidden", "768"},
    {"intermediate_size", LF_HF_NUMBER, "vision.ffn", "3072"},
    {"num_hidden_layers", LF_HF_NUMBER, "vision.layers", "12"},
    {"num_attention_heads", LF_HF_NUMBER, "vision.heads", "12"},
    {"num_patches", LF_HF_NUMBER, "vision.positions", "256"},
    {"num_channels", LF_HF_SAME, NULL, "3"},
    {"attention_dropout", LF_HF_SAME, NULL, "0.0"},
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu_pytorch_tanh\""},
    {"layer_norm_eps", LF_HF_NUMBER, "vision.norm_eps", "1e-6"},
    {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},
    {"initializer_factor", LF_HF_INERT, NULL, NULL},
    {"vision_use_head", LF_HF_SAME, NULL, "false"}, /* as of SigLIP */
    {0},
};

#define TOWER_ROWS                                                                                 \
    {"vision_tower.embeddings.position_embedding.weight", LF_MAP_COPY, "vision.pos_embed.weight",  \
     NULL},                                                                                        \
        {"vision_tower.embeddings.position_ids", LF_MAP_IGNORED, "0, 1, 2 ...", NULL},             \
        {"vision_tower.encoder.layers.{L}.layer_norm1.{P}", LF_MAP_COPY,                           \
         "vision.layers.{L}.attn_norm.{P}", NULL},                                                 \
        {"vision_tower.encoder.layers.{L}.self_attn.q_proj.{P}", LF_MAP_COPY,                      \
         "vision.layers.{L}.attn.q.{P}", NULL},                                                    \
        {"vision_tower.encoder.layers.{L}.self_attn.k_proj.{P}", LF_MAP_COPY,                      \
         "vision.layers.{L}.attn.k.{P}", NULL},                                                    \
        {"vision_tower.encoder.layers.{L}.self_attn.v_proj.{P}", LF_MAP_COPY,                      \
         "vision.layers.{L}.attn.v.{P}", NULL},                                                    \
        {"vision_tower.encoder.layers.{L}.self_attn.out_proj.{P}", LF_MAP_COPY,                    \
         "vision.layers.{L}.attn.o.{P}", NULL},                                                    \
        {"vision_tower.encoder.layers.{L}.layer_norm2.{P}", LF_MAP_COPY,                           \
         "vision.layers.{L}.mlp_norm.{P}", NULL},                                                  \
        {"vision_tower.encoder.layers.{L}.mlp.fc1.{P}", LF_MAP_COPY,                               \
         "vision.layers.{L}.mlp.up.{P}", NULL},                                                    \
        {"vision_tower.encoder.layers.{L}.mlp.fc2.{P}", LF_MAP_COPY,                               \
         "vision.layers.{L}.mlp.down.{P}", NULL},                                                  \
    {                                                                                              \
        "vision_tower.post_layernorm.{P}", LF_MAP_COPY, "vision.final_norm.{P}", NULL              \
    }

static const struct lf_map_row clip_rows[] = {
    TOWER_ROWS,
    {"vision_tower.embeddings.patch_embedding.weight", LF_MAP_CONV, "vision.patch_embed.weight",
     NULL},
    {"vision_tower.embeddings.class_embedding", LF_MAP_VECTOR, "vision.class_token.weight", NULL},
    {"vision_tower.pre_layrnorm.{P}", LF_MAP_COPY, "vision.pre_norm.{P}", NULL}, /* so they write */
    {0},
};
const struct lf_map_row lf_vl_siglip_rows[] = {
    TOWER_ROWS,
    {"vision_tower.embeddings.patch_embedding.weight", LF_MAP_CONV, "vision.patch_embed.weight",
     NULL},
    {"vision_tower.embeddings.patch_embedding.bias", LF_MAP_COPY, "vision.patch_embed.bias", NULL},
    {0},
};

/* A matrix, as a picture comes as patches. */
static const struct lf_map_row siglip2_rows[] = {
    TOWER_ROWS,
    {"vision_tower.embeddings.patch_embedding.{P}", LF_MAP_COPY, "vision.patch_embed.{P}", NULL},
    {0},
};

static int read_clip(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_vl_read_patches(r, c, 0, 1, err);
}
static int write_clip(const lf_model_config *c, json_t *o, lf_err *err)
{
    return lf_vl_write_patches(c, o, 1, false, err);
}
/* Files of PaliGemma for pictures of 224 leave image_size out. */
static int read_siglip(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_vl_read_patches(r, c, 224, 0, err);
}
static int write_siglip(const lf_model_config *c, json_t *o, lf_err *err)
{
    return lf_vl_write_patches(c, o, 0, false, err);
}

static int read_siglip2(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t patch = 0;
    const int rc = lf_vl_side(r, "patch_size", 16, &patch, err);
    return rc != 0 ? rc
                   : lf_hf_set_number(r, c, "patch_size", "vision.patch_dim",
                                      (double)(3 * patch * patch), err);
}
static int write_siglip2(const lf_model_config *c, json_t *o, lf_err *err)
{
    return json_object_set_new(o, "patch_size", json_integer(lf_vl_patch(c, 1))) ? no_memory(err)
                                                                                 : 0;
}

#define NESTED                                                                                     \
    {                                                                                              \
        "vision_tower.",                                                                           \
        {                                                                                          \
            "model.vision_tower.vision_model.", "model.vision_tower.",                             \
                "vision_tower.vision_model.", "vision_tower.", NULL                                \
        }                                                                                          \
    }

const struct lf_hf_tower lf_hf_tower_clip = {.model_type = "clip_vision_model",
                                             .family = clip_family,
                                             .families = "clip",
                                             .keys = clip_keys,
                                             .rows = clip_rows,
                                             .names = NESTED,
                                             .read = read_clip,
                                             .write = write_clip};
const struct lf_hf_tower lf_hf_tower_siglip = {.model_type = "siglip_vision_model",
                                               .family = siglip_family,
                                               .families = "siglip",
                                               .keys = siglip_keys,
                                               .rows = lf_vl_siglip_rows,
                                               .names = NESTED,
                                               .read = read_siglip,
                                               .write = write_siglip};

const struct lf_hf_tower lf_hf_tower_siglip2 = {.model_type = "siglip2_vision_model",
                                                .family = siglip2_family,
                                                .families = "siglip2",
                                                .keys = siglip2_keys,
                                                .rows = siglip2_rows,
                                                .names = NESTED,
                                                .read = read_siglip2,
                                                .write = write_siglip2};

/* ---- what is read of a tower ---- */

static const char feature_layer[] = "vision_feature_layer";

/* How many layers a number stands behind; negative numbers count from the
 * end, and 0 is what enters the first layer. */
static int states_of(const lf_hf_reader *r, const lf_model_config *c, const char *key, json_t *v,
                     int64_t *out, lf_err *err)
{
    const int64_t at = json_integer_value(v), n = at < 0 ? c->vision.layers + 1 + at : at;
    if (!json_is_integer(v))
        return lf_hf_bad_value(r, key, v, "is not one layer", err);
    if (n < 0 || n > c->vision.layers)
        return lf_fail(err, LF_ENOTSUP, "%s: %s = %lld, of %lld layers", r->path, key,
                       (long long)at, (long long)c->vision.layers);
    *out = n;
    return 0;
}

/* The states of layers are taken before the last norm. */
static int read_to(lf_hf_reader *r, lf_model_config *c, const char *key, int64_t layers,
                   lf_err *err)
{
    if (layers == 0)
        return lf_fail(err, LF_ENOTSUP, "%s: %s = 0 names no layer", r->path, key);
    const int rc = lf_hf_set(r, c, key, "vision.read_norm", "no", err);
    return rc != 0 ? rc
                   : lf_hf_set_number(r, c, key, "vision.read_layers",
                                      layers == c->vision.layers ? 0 : (double)layers, err);
}

int lf_vl_read_layer(lf_hf_reader *r, lf_model_config *c, const char *key, int64_t def, lf_err *err)
{
    json_t *v = lf_hf_take(r, key), *at = v ? json_incref(v) : json_integer(def);
    int64_t layers = 0;
    int rc = at ? states_of(r, c, key, at, &layers, err) : no_memory(err);
    json_decref(at);
    return rc != 0 ? rc : read_to(r, c, key, layers, err);
}

static int read_list(lf_hf_reader *r, lf_model_config *c, json_t *list, lf_err *err)
{
    json_t *states = json_array();
    int64_t most = 0, n = 0;
    int rc = states ? 0 : no_memory(err);
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        rc = states_of(r, c, feature_layer, json_array_get(list, i), &n, err);
        most = rc == 0 && n > most ? n : most;
        if (rc == 0 && json_array_append_new(states, json_integer(n)))
            rc = no_memory(err);
    }
    if (rc == 0)
        rc = read_to(r, c, feature_layer, most, err);
    if (rc == 0)
        rc = lf_hf_set_list(r, c, feature_layer, "vision.read_states", states, err);
    json_decref(states);
    return rc;
}

/* A list of one layer means that layer. */
int lf_vl_read_layers(lf_hf_reader *r, lf_model_config *c, const char *def, lf_err *err)
{
    json_t *v = lf_hf_take(r, feature_layer),
           *at = v ? json_incref(v) : json_loads(def, JSON_DECODE_ANY, NULL);
    int64_t layers = 0;
    int rc = at ? 0 : no_memory(err);
    if (rc == 0 && json_array_size(at) > 1) {
        rc = read_list(r, c, at, err);
    } else if (rc == 0) {
        json_t *one = json_array_size(at) ? json_array_get(at, 0) : at;
        rc = states_of(r, c, feature_layer, one, &layers, err);
        rc = rc != 0 ? rc : read_to(r, c, feature_layer, layers, err);
    }
    json_decref(at);
    return rc;
}

int64_t lf_vl_layer(const lf_model_config *c)
{
    return (c->vision.read_layers ? c->vision.read_layers : c->vision.layers) - c->vision.layers -
           1;
}

int lf_vl_write_layer(const lf_model_config *c, json_t *o, lf_err *err)
{
    const lf_model_list *states = &c->vision.read_states;
    json_t *v = states->n ? json_array() : json_integer(lf_vl_layer(c));
    int bad = !v;
    for (int64_t i = 0; i < states->n && !bad; i++)
        bad =
            json_array_append_new(v, json_integer((json_int_t)states->v[i] - c->vision.layers - 1));
    bad = bad || json_object_set(o, feature_layer, v);
    json_decref(v);
    return bad ? no_memory(err) : 0;
}

int lf_vl_read_select(lf_hf_reader *r, lf_model_config *c, const char *def, lf_err *err)
{
    static const char key[] = "vision_feature_select_strategy";
    json_t *v = lf_hf_take(r, key);
    const char *how = v ? json_string_value(v) : def;
    const bool full = how && strcmp(how, "full") == 0;
    if (full || (how && strcmp(how, "default") == 0 && c->vision.class_token))
        return lf_hf_set(r, c, key, "projector.keep_class",
                         full && c->vision.class_token ? "yes" : "no", err);
    return lf_fail(err, LF_ENOTSUP,
                   "%s: %s = %.40s is not supported with an encoder that has %s "
                   "class token",
                   r->path, key, how ? how : "?", c->vision.class_token ? "a" : "no");
}

int lf_vl_write_select(const lf_model_config *c, json_t *o, lf_err *err)
{
    const bool full = !c->vision.class_token || c->projector.keep_class;
    return json_object_set_new(o, "vision_feature_select_strategy",
                               json_string(full ? "full" : "default"))
               ? no_memory(err)
               : 0;
}

int lf_vl_same(lf_hf_reader *r, const char *key, int64_t want, const char *what, lf_err *err)
{
    json_t *v = lf_hf_take(r, key);
    if (!v || (json_is_integer(v) && json_integer_value(v) == want))
        return 0;
    return lf_fail(err, LF_EFORMAT, "%s: %s = %lld, but %s is %lld", r->path, key,
                   (long long)json_integer_value(v), what, (long long)want);
}

/* ---- LLaVA 1.5, NeXT, OneVision ---- */

const struct lf_hf_name lf_vl_llava_names[] = {
    {"model.", {"model.language_model.", "language_model.model.", NULL}},
    {"lm_head.", {"lm_head.", "language_model.lm_head.", NULL}},
    {"multi_modal_projector.", {"model.multi_modal_projector.", "multi_modal_projector.", NULL}},
    {"image_newline", {"model.image_newline", "image_newline", NULL}},
    {0},
};

static const struct lf_map_row llava_rows[] = {
    {"multi_modal_projector.linear_1.{P}", LF_MAP_COPY, "projector.fc1.{P}", NULL},
    {"multi_modal_projector.linear_2.{P}", LF_MAP_COPY, "projector.fc2.{P}", NULL},
    {"image_newline", LF_MAP_VECTOR, "projector.newline.weight", NULL},
    {0},
};

#define LLAVA_KEYS(tied)                                                                           \
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", tied},                                        \
        {"image_token_index|image_token_id", LF_HF_NUMBER, "image_token", NULL},                   \
        {"projector_hidden_act", LF_HF_ACT, "projector.activation", "\"gelu\""},                   \
        {"multimodal_projector_bias", LF_HF_BOOL, "projector.bias", "true"},                       \
        {"vocab_size", LF_HF_INERT, NULL, NULL}, {"ignore_index", LF_HF_INERT, NULL, NULL},        \
    {                                                                                              \
        "image_seq_length", LF_HF_INERT, NULL, NULL                                                \
    }

static const struct lf_hf_key llava_keys[] = {LLAVA_KEYS("false"), {0}};
/* How a picture is cut in tiles is said again by preprocessor_config.json. */
static const struct lf_hf_key next_keys[] = {
    LLAVA_KEYS("false"),
    {"image_grid_pinpoints", LF_HF_INERT, NULL, NULL},
    {"use_image_newline_parameter", LF_HF_SAME, NULL, "true"},
    {0},
};
static const struct lf_hf_key onevision_keys[] = {
    LLAVA_KEYS("false"),
    {"image_grid_pinpoints", LF_HF_INERT, NULL, NULL},
    {"use_image_newline_parameter", LF_HF_SAME, NULL, "true"},
    {"video_token_index|video_token_id", LF_HF_INERT, NULL, NULL},
    {0},
};

/* The projector is as wide inside as the decoder. */
static int read_kin(lf_hf_reader *r, lf_model_config *c, const char *layer, const char *select,
                    lf_err *err)
{
    int rc = lf_vl_read_layers(r, c, layer, err);
    if (rc == 0)
        rc = lf_vl_read_select(r, c, select, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "hidden_size", "projector.hidden", (double)c->hidden, err);
    return rc;
}
static int read_llava(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return read_kin(r, c, "-2", "default", err);
}
/* "anyres_max_9": more than so many tiles are shrunk to as many. */
static int read_onevision(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    static const char max[] = "anyres_max_";
    json_t *v = lf_hf_take(r, "vision_aspect_ratio");
    const char *how = v ? json_string_value(v) : "anyres_max_9";
    int64_t most = 0;
    if (!how || !lf_str_has_prefix(how, max) || lf_parse_i64(&most, how + strlen(max), NULL) ||
        most < 1)
        return lf_hf_bad_value(r, "vision_aspect_ratio", v, "is not supported", err);
    int rc =
        lf_hf_set_number(r, c, "vision_aspect_ratio", "projector.most_tiles", (double)most, err);
    return rc != 0 ? rc : read_kin(r, c, "-1", "full", err);
}
static int write_llava(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_vl_write_layer(c, o, err);
    return rc != 0 ? rc : lf_vl_write_select(c, o, err);
}

static int write_onevision(const lf_model_config *c, json_t *o, lf_err *err)
{
    char how[40];
    snprintf(how, sizeof how, "anyres_max_%lld", (long long)c->projector.most_tiles);
    int rc = json_object_set_new(o, "vision_aspect_ratio", json_string(how)) ? no_memory(err) : 0;
    return rc != 0 ? rc : write_llava(c, o, err);
}

static const char *const llava_switches[] = {"projector.kind=mlp", NULL};
static const char *const next_switches[] = {"projector.kind=mlp", "projector.newline=yes", NULL};
static const struct lf_hf_tower *const clip_first[] = {&lf_hf_tower_clip, &lf_hf_tower_siglip,
                                                       NULL};
static const struct lf_hf_tower *const llava_towers[] = {&lf_hf_tower_clip, &lf_hf_tower_siglip,
                                                         &lf_hf_tower_pixtral, NULL};
static const struct lf_hf_tower *const siglip_first[] = {&lf_hf_tower_siglip, &lf_hf_tower_clip,
                                                         NULL};

#define SIGHT(decoder, type, ...)                                                                  \
    (&(const struct lf_hf_sight){.text = &lf_hf_##decoder,                                         \
                                 .text_type = type,                                                \
                                 .tied = "false",                                                  \
                                 .names = lf_vl_llava_names,                                       \
                                 __VA_ARGS__})
#define LLAVA(decoder, ...)                                                                        \
    {                                                                                              \
        .name = "llava-" #decoder, .model_type = "llava",                                          \
        .architecture = "LlavaForConditionalGeneration", .switches = llava_switches,               \
        .keys = llava_keys, .rows = llava_rows, .read = read_llava, .write = write_llava,          \
        .tol_max = LF_HF_TOL_MAX, .tol_rms = LF_HF_TOL_RMS,                                        \
        .sight =                                                                                   \
            SIGHT(decoder, #decoder, .tied_either = true, .towers = llava_towers, __VA_ARGS__)     \
    }
#define LLAVA_NEXT(decoder, ...)                                                                   \
    {                                                                                              \
        .name = "llava-next-" #decoder, .model_type = "llava_next",                                \
        .architecture = "LlavaNextForConditionalGeneration", .switches = next_switches,            \
        .keys = next_keys, .rows = llava_rows, .read = read_llava, .write = write_llava,           \
        .tol_max = LF_HF_TOL_MAX, .tol_rms = LF_HF_TOL_RMS,                                        \
        .sight = SIGHT(decoder, #decoder, .towers = clip_first, __VA_ARGS__)                       \
    }

const struct lf_hf_family lf_hf_llava_llama =
    LLAVA(llama, .first = true, .text_defaults = LF_VL_LLAMA);
const struct lf_hf_family lf_hf_llava_mistral = LLAVA(mistral, .text_defaults = LF_VL_MISTRAL);
const struct lf_hf_family lf_hf_llava_qwen2 = LLAVA(qwen2, );
const struct lf_hf_family lf_hf_llava_next_llama =
    LLAVA_NEXT(llama, .first = true, .text_defaults = LF_VL_LLAMA);
const struct lf_hf_family lf_hf_llava_next_mistral =
    LLAVA_NEXT(mistral, .text_defaults = LF_VL_MISTRAL);
const struct lf_hf_family lf_hf_llava_next_qwen2 = LLAVA_NEXT(qwen2, );

const struct lf_hf_family lf_hf_onevision = {
    .name = "llava-onevision",
    .model_type = "llava_onevision",
    .architecture = "LlavaOnevisionForConditionalGeneration",
    .switches = next_switches,
    .keys = onevision_keys,
    .rows = llava_rows,
    .read = read_onevision,
    .write = write_onevision,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
    .sight = SIGHT(qwen2, "qwen2", .first = true, .tied_either = true, .towers = siglip_first),
};

/* ---- VipLLaVA ---- */

static const struct lf_hf_key vip_keys[] = {
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"image_token_index|image_token_id", LF_HF_NUMBER, "image_token", NULL},
    {"projector_hidden_act", LF_HF_ACT, "projector.activation", "\"gelu\""},
    {"projector_layernorm_eps", LF_HF_NUMBER, "projector.norm_eps", "1e-5"},
    {"vocab_size", LF_HF_INERT, NULL, NULL},
    {"ignore_index", LF_HF_INERT, NULL, NULL},
    {"image_seq_length", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_map_row vip_rows[] = {
    {"multi_modal_projector.projector_layernorm.{P}", LF_MAP_COPY, "projector.norm.{P}", NULL},
    {"multi_modal_projector.linear_1.{P}", LF_MAP_COPY, "projector.fc1.{P}", NULL},
    {"multi_modal_projector.linear_2.{P}", LF_MAP_COPY, "projector.fc2.{P}", NULL},
    {0},
};

/* Published files call the layers vision_feature_layers. */
static int read_vip(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    static const char plural[] = "vision_feature_layers";
    json_t *v = lf_hf_take(r, plural);
    if (v && json_object_get(r->o, feature_layer))
        return lf_fail(err, LF_EFORMAT, "%s: %s and %s are both given", r->path, feature_layer,
                       plural);
    if (v && json_object_set(r->o, feature_layer, v))
        return no_memory(err);
    const int rc = lf_vl_read_layers(r, c, "[-2, -5, -8, -11, 6]", err);
    return rc != 0
               ? rc
               : lf_hf_set_number(r, c, "hidden_size", "projector.hidden", (double)c->hidden, err);
}

static const char *const vip_switches[] = {"projector.kind=mlp", "projector.norm=layer", NULL};
/* The class leaves out the first row of whatever encoder it has. */
static const struct lf_hf_tower *const clip_only[] = {&lf_hf_tower_clip, NULL};

const struct lf_hf_family lf_hf_vipllava = {
    .name = "vipllava",
    .model_type = "vipllava",
    .architecture = "VipLlavaForConditionalGeneration",
    .switches = vip_switches,
    .keys = vip_keys,
    .rows = vip_rows,
    .read = read_vip,
    .write = lf_vl_write_layer,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
    .sight =
        SIGHT(llama, "llama", .first = true, .text_defaults = LF_VL_LLAMA, .towers = clip_only),
};

/* ---- PaliGemma ---- */

static const struct lf_hf_key paligemma_keys[] = {
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"image_token_index|image_token_id", LF_HF_NUMBER, "image_token", NULL},
    {"vocab_size", LF_HF_INERT, NULL, NULL},
    {"hidden_size", LF_HF_INERT, NULL, NULL},
    {"ignore_index", LF_HF_INERT, NULL, NULL},
    {"num_image_tokens", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_map_row paligemma_rows[] = {
    {"multi_modal_projector.linear.{P}", LF_MAP_COPY, "projector.fc1.{P}", NULL},
    {0},
};

static int read_paligemma(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_vl_same(r, "projection_dim", c->hidden, "hidden_size of text_config", err);
}

static int write_paligemma(const lf_model_config *c, json_t *o, lf_err *err)
{
    return json_object_set_new(o, "projection_dim", json_integer(c->hidden)) ? no_memory(err) : 0;
}

static const char *const paligemma_switches[] = {"mask=prefix", "projector.kind=linear",
                                                 "prefix_last=yes", NULL};
static const struct lf_hf_tower *const siglip_only[] = {&lf_hf_tower_siglip, NULL};

#define PALIGEMMA(id, decoder, ...)                                                                \
    {                                                                                              \
        .name = id, .model_type = "paligemma",                                                     \
        .architecture = "PaliGemmaForConditionalGeneration", .switches = paligemma_switches,       \
        .keys = paligemma_keys, .rows = paligemma_rows, .read = read_paligemma,                    \
        .write = write_paligemma, .tol_max = LF_HF_TOL_MAX, .tol_rms = LF_HF_TOL_RMS,              \
        .sight = &(const struct lf_hf_sight)                                                       \
        {                                                                                          \
            .text = &lf_hf_##decoder, .text_type = #decoder, .text_ignore = "num_image_tokens",    \
            .text_must = "{\"use_bidirectional_attention\": true}", .tied = "true",                \
            .towers = siglip_only, .names = lf_vl_llava_names, __VA_ARGS__                         \
        }                                                                                          \
    }

const struct lf_hf_family lf_hf_paligemma = PALIGEMMA("paligemma", gemma, .first = true);
const struct lf_hf_family lf_hf_paligemma2 = PALIGEMMA("paligemma2", gemma2, );
