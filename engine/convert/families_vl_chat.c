/* SPDX-License-Identifier: Apache-2.0
 *
 * InternVL in the form of its authors (model_type internvl_chat): the same model as that of
 * families_vl_intern.c under other names, with a decoder whose family llm_config names. */
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

static bool is_rms(json_t *config)
{
    const char *norm = json_string_value(json_object_get(config, "norm_type"));
    return !norm || strcmp(norm, "rms_norm") == 0; /* as the class has it */
}

static const char *chat_vit_family(json_t *config)
{
    return is_rms(config) ? "internvit-rms" : "internvit";
}

static const struct lf_hf_key chat_vit_keys[] = {
    {"hidden_size", LF_HF_NUMBER, "vision.hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "vision.ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "vision.layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "vision.heads", NULL},
    {"qkv_bias", LF_HF_BOOL, "vision.qkv_bias", "false"},
    {"qk_normalization", LF_HF_BOOL, "vision.qk_norm", "true"},
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu\""},
    {"layer_norm_eps", LF_HF_NUMBER, "vision.norm_eps", "1e-6"},
    {"initializer_factor", LF_HF_NUMBER, "vision.layer_scale_init", "0.1"},
    {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},
    {"num_channels", LF_HF_SAME, NULL, "3"},
    {"dropout", LF_HF_SAME, NULL, "0"},
    {"attention_dropout", LF_HF_SAME, NULL, "0"},
    {"drop_path_rate", LF_HF_INERT, NULL, NULL}, /* of their training, here and below */
    {"use_flash_attn", LF_HF_INERT, NULL, NULL},
    {0},
};

#define LAYER "vision_model.encoder.layers.{L}."
#define OURS  "vision.layers.{L}."
static const struct lf_map_row chat_vit_rows[] = {
    {"vision_model.embeddings.patch_embedding.weight", LF_MAP_CONV, "vision.patch_embed.weight",
     NULL},
    {"vision_model.embeddings.patch_embedding.bias", LF_MAP_COPY, "vision.patch_embed.bias", NULL},
    {"vision_model.embeddings.position_embedding", LF_MAP_LEAD, "vision.pos_embed.weight", NULL},
    {"vision_model.embeddings.class_embedding", LF_MAP_LEAD, "vision.class_token.weight", NULL},
    {LAYER "norm1.{P}", LF_MAP_COPY, OURS "attn_norm.{P}", NULL},
    {LAYER "attn.qkv.{P}", LF_MAP_STACK, OURS "attn.q.{P} " OURS "attn.k.{P} " OURS "attn.v.{P}",
     NULL},
    {LAYER "attn.q_norm.{P}", LF_MAP_COPY, OURS "attn.q_norm.{P}", NULL},
    {LAYER "attn.k_norm.{P}", LF_MAP_COPY, OURS "attn.k_norm.{P}", NULL},
    {LAYER "attn.proj.{P}", LF_MAP_COPY, OURS "attn.o.{P}", NULL},
    {LAYER "ls1", LF_MAP_COPY, OURS "attn_scale", NULL},
    {LAYER "norm2.{P}", LF_MAP_COPY, OURS "mlp_norm.{P}", NULL},
    {LAYER "mlp.fc1.{P}", LF_MAP_COPY, OURS "mlp.up.{P}", NULL},
    {LAYER "mlp.fc2.{P}", LF_MAP_COPY, OURS "mlp.down.{P}", NULL},
    {LAYER "ls2", LF_MAP_COPY, OURS "mlp_scale", NULL},
    {0},
};

static int read_chat_vit(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *v = lf_hf_take(r, "norm_type");
    const char *norm = json_string_value(v);
    if (v && (!norm || (!is_rms(r->o) && strcmp(norm, "layer_norm") != 0)))
        return lf_hf_bad_value(r, "norm_type", v, "is not supported", err);
    return lf_vl_read_patches(r, c, 0, 1, err);
}

static int write_chat_vit(const lf_model_config *c, json_t *o, lf_err *err)
{
    const char *norm = c->vision.norm == LF_NORM_RMS ? "rms_norm" : "layer_norm";
    int rc = json_object_set_new(o, "norm_type", json_string(norm)) ? no_memory(err) : 0;
    return rc != 0 ? rc : lf_vl_write_patches(c, o, 1, false, err);
}

static const struct lf_hf_tower chat_vit = {.model_type =
                                                "intern_vit_6b", /* so they call all sizes of it */
                                            .family = chat_vit_family,
                                            .families = "internvit internvit-rms",
                                            .keys = chat_vit_keys,
                                            .rows = chat_vit_rows,
                                            .names = {"vision_model.", {"vision_model.", NULL}},
                                            .read = read_chat_vit,
                                            .write = write_chat_vit};
static const struct lf_hf_tower *const towers[] = {&chat_vit, NULL};

/* ---- the model ---- */

#define WORD_KEY "img_context_token_id"

/* Their files say nowhere which token stands for a picture's row: a program asks the tokenizer for
 * it, and sets this key. */
static const struct lf_hf_key chat_keys[] = {
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {WORD_KEY, LF_HF_NUMBER, "image_token", NULL},
    {"use_backbone_lora", LF_HF_SAME, NULL, "0"},
    {"use_llm_lora", LF_HF_SAME, NULL, "0"},
    {"hidden_size", LF_HF_INERT, NULL, NULL}, /* that of llm_config again */
    /* how pictures are cut, and how prompts are written */
    {"force_image_size", LF_HF_INERT, NULL, NULL},
    {"dynamic_image_size", LF_HF_INERT, NULL, NULL},
    {"use_thumbnail", LF_HF_INERT, NULL, NULL},
    {"min_dynamic_patch", LF_HF_INERT, NULL, NULL},
    {"max_dynamic_patch", LF_HF_INERT, NULL, NULL},
    {"pad2square", LF_HF_INERT, NULL, NULL},
    {"image_fold", LF_HF_INERT, NULL, NULL},
    {"template", LF_HF_INERT, NULL, NULL},
    {"system_message", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_map_row chat_rows[] = {
    {"mlp1.0.{P}", LF_MAP_COPY, "projector.norm.{P}", NULL},
    {"mlp1.1.{P}", LF_MAP_COPY, "projector.fc1.{P}", NULL},
    {"mlp1.3.{P}", LF_MAP_COPY, "projector.fc2.{P}", NULL},
    {0},
};

/* Version 1, which the class takes where the file says nothing, turns the picture over. */
static int check_shuffle(lf_hf_reader *r, lf_err *err)
{
    double ratio = 0.5;
    json_t *v = lf_hf_take(r, "ps_version");
    const char *version = json_string_value(v);
    const int rc = lf_hf_get_f64(r, "downsample_ratio", &ratio, err);
    if (rc == 0 && fabs(ratio - 0.5) > 0)
        return lf_fail(err, LF_ENOTSUP, "%s: downsample_ratio = %g is not supported; it is 0.5",
                       r->path, ratio);
    if (rc == 0 && v && !version)
        return lf_hf_bad_value(r, "ps_version", v, "is not a version, such as \"v2\"", err);
    if (rc == 0 && (!version || strcmp(version, "v2") != 0))
        return lf_fail(err, LF_ENOTSUP, "%s: ps_version = %.20s is not supported; it is v2",
                       r->path, version ? version : "v1");
    return rc;
}

static int read_chat(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = check_shuffle(r, err);
    if (rc == 0)
        rc = lf_vl_read_layer(r, c, "select_layer", -1, err);
    return rc != 0
               ? rc
               : lf_hf_set_number(r, c, "hidden_size", "projector.hidden", (double)c->hidden, err);
}

static int write_chat(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *more = json_pack("{s:f, s:s, s:I}", "downsample_ratio", 0.5, "ps_version", "v2",
                             "select_layer", (json_int_t)lf_vl_layer(c));
    const int bad = !more || json_object_update(o, more);
    json_decref(more);
    return bad ? no_memory(err) : 0;
}

static const char *const chat_switches[] = {
    "projector.kind=mlp",        "projector.merge=2",
    "projector.norm=layer",      "projector.norm_merged=yes",
    "projector.norm_eps=1e-5",   "projector.bias=yes",
    "projector.activation=gelu", NULL};

static const struct lf_hf_name chat_names[] = {
    {"model.", {"language_model.model.", NULL}},
    {"lm_head.", {"language_model.lm_head.", NULL}},
    {"output.", {"language_model.output.", NULL}}, /* the head of InternLM2 */
    {0},
};

#define CHAT(decoder, ...)                                                                         \
    {                                                                                              \
        .name = "internvl-chat-" #decoder, .model_type = "internvl_chat",                          \
        .architecture = "InternVLChatModel", .switches = chat_switches, .keys = chat_keys,         \
        .rows = chat_rows, .read = read_chat, .write = write_chat, .tol_max = LF_HF_TOL_MAX,       \
        .tol_rms = LF_HF_TOL_RMS, .sight = &(const struct lf_hf_sight)                             \
        {                                                                                          \
            .text = &lf_hf_##decoder, .text_type = #decoder, .text_key = "llm_config",             \
            .text_ignore = "attn_implementation moe_config", .tied = "false", .tied_inner = true,  \
            .token_key = WORD_KEY, .token_word = "<IMG_CONTEXT>", .towers = towers,                \
            .names = chat_names, __VA_ARGS__                                                       \
        }                                                                                          \
    }

const struct lf_hf_family lf_hf_internvl_chat_qwen2 = CHAT(qwen2, );
const struct lf_hf_family lf_hf_internvl_chat_qwen3 = CHAT(qwen3, );
const struct lf_hf_family lf_hf_internvl_chat_llama = CHAT(llama, );
const struct lf_hf_family lf_hf_internvl_chat_internlm2 = CHAT(internlm2, );
