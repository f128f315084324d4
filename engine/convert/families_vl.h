/* SPDX-License-Identifier: Apache-2.0
 *
 * What families of models that see share: towers, and hooks for what tables cannot say. */
#ifndef LF_CONVERT_FAMILIES_VL_H
#define LF_CONVERT_FAMILIES_VL_H

#include "engine/convert/families.h"

/* The decoder of Qwen3 with experts, which are one tensor of all of them: families_qwen.c. */
extern const struct lf_map_row lf_hf_qwen3_turned[], lf_hf_qwen3_plain[], lf_hf_qwen35_plain[];

/* Encoders of square pictures with a learned position for each patch. */
extern const struct lf_hf_tower lf_hf_tower_clip, lf_hf_tower_siglip;
/* The same for pictures of any grid (NaFlex), a model of its own. */
extern const struct lf_hf_tower lf_hf_tower_siglip2;
/* An encoder of pictures of any grid (families_vl_pixtral.c). */
extern const struct lf_hf_tower lf_hf_tower_pixtral;

extern const struct lf_map_row lf_vl_siglip_rows[]; /* the tensors of SigLIP */

/* Reads a number, or a list of two equal ones. def 0: it must be there. */
int lf_vl_side(lf_hf_reader *r, const char *key, int64_t def, int64_t *out, lf_err *err);
/* patch_size, and the positions of image_size (def_image 0: it must be there) besides `more`. */
int lf_vl_read_patches(lf_hf_reader *r, lf_model_config *c, int64_t def_image, int64_t more,
                       lf_err *err);
/* image_size and patch_size. pair: as lists of two. */
int lf_vl_write_patches(const lf_model_config *c, json_t *o, int64_t more, bool pair, lf_err *err);
/* The side of the patches of a model: its rows have `frames` frames of three colours. */
int64_t lf_vl_patch(const lf_model_config *c, int64_t frames);

/* Which layer is read: def where the key is missing. */
int lf_vl_read_layer(lf_hf_reader *r, lf_model_config *c, const char *key, int64_t def,
                     lf_err *err);
/* The same of vision_feature_layer where the class takes a list, whose layers lie side by side.
 * def: JSON. */
int lf_vl_read_layers(lf_hf_reader *r, lf_model_config *c, const char *def, lf_err *err);
/* Which one it is, counted from the end. */
int64_t lf_vl_layer(const lf_model_config *c);
int lf_vl_write_layer(const lf_model_config *c, json_t *o, lf_err *err);
/* vision_feature_select_strategy: which rows of an encoder go on, all or those of patches. */
int lf_vl_read_select(lf_hf_reader *r, lf_model_config *c, const char *def, lf_err *err);
int lf_vl_write_select(const lf_model_config *c, json_t *o, lf_err *err);
/* A width of the projector that transformers takes from elsewhere. */
int lf_vl_same(lf_hf_reader *r, const char *key, int64_t want, const char *what, lf_err *err);

/* What the classes of decoders take for keys that published files leave out. */
#define LF_VL_LLAMA                                                                                \
    "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 11008, "                \
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32}"
#define LF_VL_MISTRAL                                                                              \
    "{\"vocab_size\": 32000, \"hidden_size\": 4096, \"intermediate_size\": 14336, "                \
    "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8}"

/* Names of tensors outside of the encoder: as transformers 5 has them, and as it was before. */
extern const struct lf_hf_name lf_vl_llava_names[];

#endif
