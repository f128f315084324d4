/* SPDX-License-Identifier: Apache-2.0
 *
 * Gemma 3 with its encoder: means of k x k patches, a norm of (1 + w), one matrix; the tokens of a
 * picture see each other. */
#include <math.h>

#include "engine/base/json.h"
#include "engine/convert/families_vl.h"
#include "engine/convert/hf_priv.h"

static const struct lf_hf_key gemma3_keys[] = {
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"image_token_index|image_token_id", LF_HF_NUMBER, "image_token", NULL},
    {"boi_token_index|boi_token_id", LF_HF_INERT, NULL, NULL},
    {"eoi_token_index|eoi_token_id", LF_HF_INERT, NULL, NULL},
    {"initializer_range", LF_HF_INERT, NULL, NULL},
    {0},
};

static const struct lf_map_row gemma3_rows[] = {
    {"multi_modal_projector.mm_soft_emb_norm.weight", LF_MAP_COPY, "projector.norm.weight", NULL},
    {"multi_modal_projector.mm_input_projection_weight", LF_MAP_STACK_T, "projector.fc1.weight",
     NULL},
    {0},
};

/* The side of a picture in patches. */
static int64_t side_of(const lf_model_config *c)
{
    return llround(sqrt((double)c->vision.positions));
}

/* The norm takes the eps of the encoder. */
static int read_gemma3(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t tokens = 256;
    int rc = lf_hf_get_i64(r, "mm_tokens_per_image", &tokens, err);
    const int64_t rows = tokens > 0 ? llround(floor(sqrt((double)tokens))) : 0;
    if (rc == 0 && (rows < 1 || rows * rows != tokens || side_of(c) % rows))
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: mm_tokens_per_image = %lld: pictures of %lld x %lld patches are not cut "
                     "in so many squares",
                     r->path, (long long)tokens, (long long)side_of(c), (long long)side_of(c));
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "mm_tokens_per_image", "projector.pool",
                              (double)(side_of(c) / rows), err);
    if (rc == 0)
        rc =
            lf_hf_set_number(r, c, "layer_norm_eps", "projector.norm_eps", c->vision.norm_eps, err);
    return rc;
}

static int write_gemma3(const lf_model_config *c, json_t *o, lf_err *err)
{
    const int64_t rows = side_of(c) / c->projector.pool;
    return json_object_set_new(o, "mm_tokens_per_image", json_integer(rows * rows))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

static const char *const gemma3_switches[] = {"mask=image_blocks",       "projector.kind=linear",
                                              "projector.bias=no",       "projector.norm=rms",
                                              "projector.norm_offset=1", NULL};
static const struct lf_hf_tower *const siglip_only[] = {&lf_hf_tower_siglip, NULL};

const struct lf_hf_family lf_hf_gemma3_vl = {
    .name = "gemma3-vl",
    .model_type = "gemma3",
    .architecture = "Gemma3ForConditionalGeneration",
    .switches = gemma3_switches,
    .keys = gemma3_keys,
    .rows = gemma3_rows,
    .read = read_gemma3,
    .write = write_gemma3,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
    .sight = &(const struct lf_hf_sight){.text = &lf_hf_gemma3,
                                         .text_type = "gemma3_text",
                                         .first = true,
                                         .text_defaults =
                                             "{\"vocab_size\": 262208, \"hidden_size\": 2304, "
                                             "\"intermediate_size\": 9216, "
                                             "\"num_hidden_layers\": 26, "
                                             "\"num_attention_heads\": 8}",
                                         .tied = "true",
                                         .towers = siglip_only,
                                         .names = lf_vl_llava_names},
};
