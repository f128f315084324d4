/* SPDX-License-Identifier: Apache-2.0
 *
 * CLIP and SigLIP whole: towers of pictures and texts that share a space (engine/model/dual.h). */
#include "engine/base/json.h"
#include "engine/convert/families_vl.h"

/* ---- texts ---- */

/* dropout: of files that transformers 4 wrote, where no class reads it. */
#define TEXT_KEYS(words, hidden_, ffn_, heads_, positions, act, eps)                               \
    {"vocab_size", LF_HF_NUMBER, "vocab", words},                                                  \
        {"hidden_size", LF_HF_NUMBER, "hidden", hidden_},                                          \
        {"intermediate_size", LF_HF_NUMBER, "ffn", ffn_},                                          \
        {"num_hidden_layers", LF_HF_NUMBER, "layers", "12"},                                       \
        {"num_attention_heads", LF_HF_NUMBER, "heads", heads_},                                    \
        {"max_position_embeddings", LF_HF_NUMBER, "max_positions", positions},                     \
        {"hidden_act", LF_HF_ACT, "activation", act},                                              \
        {"layer_norm_eps", LF_HF_NUMBER, "norm_eps", eps},                                         \
        {"attention_dropout", LF_HF_SAME, NULL, "0.0"}, {"dropout", LF_HF_UNREAD, NULL, "0"},      \
        {"initializer_factor", LF_HF_INERT, NULL, NULL},                                           \
        {"projection_dim", LF_HF_INERT, NULL, NULL},                                               \
    {                                                                                              \
        "tie_word_embeddings", LF_HF_INERT, NULL, NULL                                             \
    }

static const struct lf_hf_key clip_text_keys[] = {
    TEXT_KEYS("49408", "512", "2048", "8", "77", "\"quick_gelu\"", "1e-5"),
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"eos_token_id", LF_HF_NUMBER, "dual.end_token", "49407"},
    {0},
};
static const struct lf_hf_key siglip_text_keys[] = {
    TEXT_KEYS("32000", "768", "3072", "12", "64", "\"gelu_pytorch_tanh\"", "1e-6"),
    {"initializer_range", LF_HF_INERT, NULL, NULL},
    {"pad_token_id", LF_HF_NUMBER, "dual.pad_token", "1"},
    {0},
};

#define TEXT_SWITCHES                                                                              \
    "norm=layer", "norm_bias=yes", "position=learned", "mlp=plain", "qkv_bias=yes",                \
        "out_bias=yes", "mlp_bias=yes", "tied_head=yes"
static const char *const clip_text_switches[] = {TEXT_SWITCHES, NULL};
static const char *const siglip_text_switches[] = {TEXT_SWITCHES, "mask=both", NULL};

#define LAYER "text_model.encoder.layers.{L}."
#define OURS  "layers.{L}."
static const struct lf_map_row text_rows[] = {
    {"text_model.embeddings.token_embedding.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"text_model.embeddings.position_embedding.weight", LF_MAP_COPY, "pos_embed.weight", NULL},
    {"text_model.embeddings.position_ids", LF_MAP_IGNORED, "0, 1, 2 ...", NULL},
    {LAYER "layer_norm1.{P}", LF_MAP_COPY, OURS "attn_norm.{P}", NULL},
    {LAYER "self_attn.q_proj.{P}", LF_MAP_COPY, OURS "attn.q.{P}", NULL},
    {LAYER "self_attn.k_proj.{P}", LF_MAP_COPY, OURS "attn.k.{P}", NULL},
    {LAYER "self_attn.v_proj.{P}", LF_MAP_COPY, OURS "attn.v.{P}", NULL},
    {LAYER "self_attn.out_proj.{P}", LF_MAP_COPY, OURS "attn.o.{P}", NULL},
    {LAYER "layer_norm2.{P}", LF_MAP_COPY, OURS "mlp_norm.{P}", NULL},
    {LAYER "mlp.fc1.{P}", LF_MAP_COPY, OURS "mlp.up.{P}", NULL},
    {LAYER "mlp.fc2.{P}", LF_MAP_COPY, OURS "mlp.down.{P}", NULL},
    {"text_model.final_layer_norm.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {0},
};

/* Files of before the token had its right number say 2: the class then reads a text at its largest
 * number, which the end has in their vocabulary. */
static int read_clip_text(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return c->dual.end_token == 2
               ? lf_hf_set_number(r, c, "eos_token_id", "dual.end_token", (double)c->vocab - 1, err)
               : 0;
}

/* A text without the token is read at its first one by the class, and here at its last one. */
static int write_clip_text(const lf_model_config *c, json_t *o, lf_err *err)
{
    (void)o;
    return c->dual.end_token < 0
               ? lf_fail(err, LF_EINVAL,
                         "dual.end_token is not set: a CLIPModel reads a text at its first "
                         "eos_token_id, so train with captions that end with a token")
               : 0;
}

static int read_siglip_text(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t n = c->hidden;
    const int rc = lf_hf_get_i64(r, "projection_size", &n, err);
    return rc != 0 ? rc : lf_hf_set_number(r, c, "projection_size", "dual.dim", (double)n, err);
}

static int write_siglip_text(const lf_model_config *c, json_t *o, lf_err *err)
{
    return json_object_set_new(o, "projection_size", json_integer(c->dual.dim))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

static const struct lf_hf_family clip_text = {.name = "clip-text",
                                              .model_type = "clip_text_model",
                                              .switches = clip_text_switches,
                                              .keys = clip_text_keys,
                                              .rows = text_rows,
                                              .read = read_clip_text,
                                              .write = write_clip_text};
static const struct lf_hf_family siglip_text = {.name = "siglip-text",
                                                .model_type = "siglip_text_model",
                                                .switches = siglip_text_switches,
                                                .keys = siglip_text_keys,
                                                .rows = text_rows,
                                                .read = read_siglip_text,
                                                .write = write_siglip_text};

/* ---- both ---- */

static const struct lf_hf_key clip_keys[] = {
    {"projection_dim", LF_HF_NUMBER, "dual.dim", "512"},
    {"logit_scale_init_value", LF_HF_NUMBER, "dual.scale_init", "2.6592"},
    {"initializer_factor", LF_HF_INERT, NULL, "1.0"},
    {"tie_word_embeddings", LF_HF_INERT, NULL, NULL},
    {0},
};
static const struct lf_hf_key siglip_keys[] = {
    {"initializer_factor", LF_HF_INERT, NULL, "1.0"},
    {"tie_word_embeddings", LF_HF_INERT, NULL, NULL},
    {0},
};

static const char *const clip_switches[] = {"dual.read=class", NULL};
/* SigLIP begins with a scale of 10 and a bias of -10 (Zhai et al. 2023, section 3.2). */
static const char *const siglip_switches[] = {"dual.read=attention",
                                              "dual.text_bias=yes",
                                              "dual.bias=yes",
                                              "dual.padded=yes",
                                              "dual.scale_init=2.302585092994046",
                                              "dual.bias_init=-10",
                                              NULL};

static const struct lf_map_row clip_rows[] = {
    {"visual_projection.weight", LF_MAP_COPY, "dual.image.weight", NULL},
    {"text_projection.weight", LF_MAP_COPY, "dual.text.weight", NULL},
    {"logit_scale", LF_MAP_SCALAR, "dual.scale", NULL},
    {0},
};
#define HEAD "vision_model.head."
static const struct lf_map_row siglip_rows[] = {
    {HEAD "probe", LF_MAP_LEAD, "dual.pool.probe.weight", NULL},
    {HEAD "attention.in_proj_weight", LF_MAP_STACK,
     "dual.pool.q.weight dual.pool.k.weight dual.pool.v.weight", NULL},
    {HEAD "attention.in_proj_bias", LF_MAP_STACK,
     "dual.pool.q.bias dual.pool.k.bias dual.pool.v.bias", NULL},
    {HEAD "attention.out_proj.{P}", LF_MAP_COPY, "dual.pool.o.{P}", NULL},
    {HEAD "layernorm.{P}", LF_MAP_COPY, "dual.pool.norm.{P}", NULL},
    {HEAD "mlp.fc1.{P}", LF_MAP_COPY, "dual.pool.up.{P}", NULL},
    {HEAD "mlp.fc2.{P}", LF_MAP_COPY, "dual.pool.down.{P}", NULL},
    {"text_model.head.{P}", LF_MAP_COPY, "dual.text.{P}", NULL},
    {"logit_scale", LF_MAP_COPY, "dual.scale", NULL},
    {"logit_bias", LF_MAP_COPY, "dual.bias", NULL},
    {0},
};

static const struct lf_hf_name none[] = {{0}};
static const struct lf_hf_name tower_name = {"vision_tower.", {"vision_model.", NULL}};
static const struct lf_hf_tower *const clip_towers[] = {&lf_hf_tower_clip, NULL},
                                       *const siglip_towers[] = {&lf_hf_tower_siglip, NULL};

/* The text tower has no head, so nothing is tied; the class says what is said of all models. */
#define SIGHT(of, type, ...)                                                                       \
    &(const struct lf_hf_sight)                                                                    \
    {                                                                                              \
        .text = &of, .text_type = type, .first = true, .tied = "true", .tower_name = &tower_name,  \
        .names = none, __VA_ARGS__                                                                 \
    }
const struct lf_hf_family lf_hf_clip = {
    .name = "clip",
    .model_type = "clip",
    .architecture = "CLIPModel",
    .switches = clip_switches,
    .keys = clip_keys,
    .rows = clip_rows,
    .sight = SIGHT(clip_text, "clip_text_model", .towers = clip_towers, .dicts = true),
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS};
const struct lf_hf_family lf_hf_siglip = {
    .name = "siglip",
    .model_type = "siglip",
    .architecture = "SiglipModel",
    .switches = siglip_switches,
    .keys = siglip_keys,
    .rows = siglip_rows,
    .sight = SIGHT(siglip_text, "siglip_text_model", .towers = siglip_towers,
                   .vision_must = "{\"vision_use_head\": true}"),
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS};
