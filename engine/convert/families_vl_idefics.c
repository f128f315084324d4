/* SPDX-License-Identifier: Apache-2.0
 *
 * Idefics 3 and SmolVLM: SigLIP for pictures of any grid, patches of a square side by side, one
 * matrix, and a Llama. */
#include "engine/base/json.h"
#include "engine/convert/families_vl.h"
#include "engine/convert/hf_priv.h"

static const char *idefics3_family(json_t *config)
{
    (void)config;
    return "idefics3";
}

/* How pictures are cut is said again by preprocessor_config.json. */
static const struct lf_hf_key vision_keys[] = {
    {"hidden_size", LF_HF_NUMBER, "vision.hidden", "1152"},
    {"intermediate_size", LF_HF_NUMBER, "vision.ffn", "3072"},
    {"num_hidden_layers", LF_HF_NUMBER, "vision.layers", "12"},
    {"num_attention_heads", LF_HF_NUMBER, "vision.heads", "16"},
    {"num_channels", LF_HF_SAME, NULL, "3"},
    {"attention_dropout", LF_HF_SAME, NULL, "0"},
    {"initializer_range", LF_HF_NUMBER, "vision.init_std", "0.02"},
    {"hidden_act", LF_HF_ACT, "vision.activation", "\"gelu_pytorch_tanh\""},
    {"layer_norm_eps", LF_HF_NUMBER, "vision.norm_eps", "1e-6"},
    {"max_image_size", LF_HF_INERT, NULL, NULL},
    {"size", LF_HF_INERT, NULL, NULL},
    {"use_base_siglip", LF_HF_INERT, NULL, NULL},
    {"projection_class", LF_HF_INERT, NULL, NULL},
    {"ignore_index", LF_HF_INERT, NULL, NULL},
    {"tie_word_embeddings", LF_HF_INERT, NULL, NULL},
    {0},
};

static int read_vision(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_vl_read_patches(r, c, 0, 0, err);
}
static int write_vision(const lf_model_config *c, json_t *o, lf_err *err)
{
    return lf_vl_write_patches(c, o, 0, false, err);
}

/* The class takes vision_config for its own, whatever model_type that says. */
#define TOWER(type)                                                                                \
    {                                                                                              \
        .model_type = type "_vision " type " siglip_vision_model", .family = idefics3_family,      \
        .families = "idefics3", .keys = vision_keys, .rows = lf_vl_siglip_rows,                    \
        .names = {"vision_tower.", {"model.vision_model.", NULL}}, .read = read_vision,            \
        .write = write_vision                                                                      \
    }
static const struct lf_hf_tower idefics3 = TOWER("idefics3"), smolvlm = TOWER("smolvlm");
static const struct lf_hf_tower *const idefics3_towers[] = {&idefics3, NULL};
static const struct lf_hf_tower *const smolvlm_towers[] = {&smolvlm, NULL};

static const struct lf_hf_key outer_keys[] = {
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"image_token_id", LF_HF_NUMBER, "image_token", NULL},
    {"scale_factor", LF_HF_NUMBER, "projector.merge", "2"},
    {"vocab_size", LF_HF_INERT, NULL, NULL},
    {"hidden_size", LF_HF_INERT, NULL, NULL},
    {"use_reentrant_checkpointing", LF_HF_INERT, NULL, NULL},
    {"_pad_token_id", LF_HF_INERT, NULL, NULL}, /* so the class saves pad_token_id */
    {0},
};

static const struct lf_map_row outer_rows[] = {
    {"connector.modality_projection.proj.weight", LF_MAP_COPY, "projector.fc1.weight", NULL},
    {0},
};

static const struct lf_hf_name names[] = {
    {"model.", {"model.text_model.", NULL}},
    {"connector.", {"model.connector.", NULL}},
    {0},
};

static const char *const switches[] = {"projector.kind=linear", "projector.bias=no", NULL};

/* text_config of published files has what their authors' own program says of a resampler and of
 * norms, which the class, a plain Llama, does not read. */
#define IDEFICS3(id, type, class, encoder)                                                         \
    {                                                                                              \
        .name = id, .model_type = type, .architecture = class, .switches = switches,               \
        .keys = outer_keys, .rows = outer_rows, .tol_max = LF_HF_TOL_MAX,                          \
        .tol_rms = LF_HF_TOL_RMS,                                                                  \
        .sight = &(const struct lf_hf_sight){                                                      \
            .text = &lf_hf_llama,                                                                  \
            .text_type = "llama",                                                                  \
            .first = true,                                                                         \
            .text_defaults = LF_VL_LLAMA,                                                          \
            .text_needs = "rms_norm_eps",                                                          \
            .text_ignore = "is_llama_config perceiver_config pixel_shuffle_factor",                \
            .text_unread = "{\"qk_layer_norms\": false, \"use_resampler\": false, "                \
                           "\"rope_interleaved\": false}",                                         \
            .tied = "false",                                                                       \
            .towers = encoder,                                                                     \
            .names = names},                                                                       \
    }
const struct lf_hf_family lf_hf_idefics3 =
    IDEFICS3("idefics3", "idefics3", "Idefics3ForConditionalGeneration", idefics3_towers);
const struct lf_hf_family lf_hf_smolvlm =
    IDEFICS3("smolvlm", "smolvlm", "SmolVLMForConditionalGeneration", smolvlm_towers);
