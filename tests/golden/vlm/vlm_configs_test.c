/* SPDX-License-Identifier: Apache-2.0
 *
 * config.json of models that see: what is refused and by which name, and what means the same
 * model. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/convert/families.h"
#include "tests/tap/tap.h"

/* change: members that replace those of the golden config.json, at any depth; null takes one out.
 * Expected: a part of the message; NULL: the same model; "*": another model. */
static const struct {
    const char *name, *change, *expected;
} rows[] = {
    /* what of the encoder is read */
    {"llava", "{\"vision_feature_layer\": [-2, -1]}", "*"},
    {"llava", "{\"vision_feature_layer\": [-2]}", NULL},
    {"llava", "{\"vision_feature_layer\": [-2, \"-1\"]}", "vision_feature_layer = \"-1\""},
    {"llava", "{\"vision_feature_layer\": [-2, 4]}", "vision_feature_layer = 4"},
    {"llava", "{\"vision_feature_layer\": [0, 0]}", "= 0 names no layer"},
    {"llava", "{\"vision_feature_layer\": []}", "vision_feature_layer = []"},
    {"llava-layers", "{\"vision_feature_layer\": [-1, -4]}", NULL},
    {"llava-layers", "{\"vision_feature_layer\": [0, 3]}", "*"},
    {"vipllava", "{\"vision_feature_layers\": null, \"vision_feature_layer\": [2, 1, 2]}", NULL},
    {"vipllava", "{\"vision_feature_layer\": [2, 1, 2]}", "are both given"},
    {"vipllava", "{\"vision_feature_layers\": null}", "vision_feature_layer = -5"},
    {"vipllava", "{\"vision_feature_layers\": -2}", "*"},
    {"vipllava", "{\"projector_layernorm_eps\": 1e-6}", "*"},
    {"vipllava", "{\"projector_layernorm_eps\": null}", NULL},
    {"vipllava", "{\"vision_config\": {\"model_type\": \"siglip_vision_model\"}}",
     "known: clip_vision_model"},
    {"llava", "{\"vision_feature_layer\": 0}", "vision_feature_layer = 0"},
    {"llava", "{\"vision_feature_layer\": 4}", "vision_feature_layer = 4"},
    {"llava", "{\"vision_feature_layer\": 2}", NULL},
    {"llava", "{\"vision_feature_layer\": null}", NULL},
    {"llava", "{\"vision_feature_layer\": -1}", "*"},
    {"llava", "{\"vision_feature_select_strategy\": null}", NULL},
    {"llava", "{\"vision_feature_select_strategy\": \"full\"}", "*"},
    {"llava", "{\"vision_feature_select_strategy\": \"cls\"}",
     "vision_feature_select_strategy = cls"},
    {"llava-full", "{\"vision_feature_select_strategy\": \"default\"}", "*"},
    {"llava-next", "{\"vision_feature_select_strategy\": \"full\"}", "projector.keep_class"},
    {"internvl", "{\"vision_feature_select_strategy\": \"full\"}", "projector.keep_class"},
    {"llava-siglip", "{\"vision_feature_select_strategy\": \"default\"}",
     "vision_feature_select_strategy = default"},
    {"llava-onevision",
     "{\"vision_feature_layer\": null, \"vision_feature_select_strategy\": null}", NULL},
    /* the parts */
    {"llava", "{\"text_config\": null}", "text_config is missing"},
    {"llava", "{\"vision_config\": null}", "vision_config is missing"},
    {"llava", "{\"text_config\": {\"model_type\": \"phi\"}}",
     "'phi' (text_config) is not known; known: llama, mistral, qwen2"},
    {"llava", "{\"vision_config\": {\"model_type\": \"dinov2\"}}",
     "'dinov2' is not known for an encoder here; known: clip_vision_model, siglip_vision_model"},
    {"llava", "{\"text_config\": {\"model_type\": null}}", NULL},
    {"llava", "{\"vision_config\": {\"model_type\": null}}", NULL},
    {"llava", "{\"switch\": 1}", "key 'switch'"},
    {"llava", "{\"text_config\": {\"switch\": 1}}", "text_config: key 'switch'"},
    {"llava", "{\"vision_config\": {\"switch\": 1}}", "vision_config: key 'switch'"},
    /* classes have defaults that no model was made with */
    {"llava", "{\"vision_config\": {\"hidden_size\": null}}",
     "vision_config: hidden_size is missing"},
    {"llava", "{\"vision_config\": {\"patch_size\": null}}", "patch_size is missing"},
    {"llava", "{\"vision_config\": {\"image_size\": null}}", "image_size is missing"},
    {"llava", "{\"image_token_index\": null}", "image_token_index|image_token_id is missing"},
    {"llava", "{\"image_token_index\": null, \"image_token_id\": 60}", NULL},
    {"llava", "{\"text_config\": {\"num_hidden_layers\": null}}", "*"}, /* as LLaVA 1.5 does */
    {"qwen2-vl", "{\"rope_theta\": null}", "rope_theta is missing"},
    {"qwen2-vl", "{\"rms_norm_eps\": null}", "rms_norm_eps is missing"},
    {"qwen3-vl", "{\"text_config\": {\"head_dim\": null}}", "head_dim is missing"},
    /* encoders */
    {"llava", "{\"vision_config\": {\"num_channels\": 4}}", "num_channels = 4"},
    {"llava", "{\"vision_config\": {\"patch_size\": [4, 2]}}", "patch_size = [4,2]"},
    {"llava", "{\"vision_config\": {\"patch_size\": [4, 4]}}", NULL},
    {"llava", "{\"vision_config\": {\"image_size\": 14}}", NULL}, /* the rest is cut off */
    {"llava", "{\"vision_config\": {\"attention_dropout\": 0.1}}", "attention_dropout = 0.1"},
    {"llava", "{\"vision_config\": {\"hidden_act\": \"mish\"}}", "hidden_act = \"mish\""},
    {"llava", "{\"vision_config\": {\"hidden_act\": \"gelu\"}}", "*"},
    {"llava-siglip", "{\"vision_config\": {\"vision_use_head\": true}}", "vision_use_head = true"},
    {"internvl", "{\"vision_config\": {\"norm_type\": \"batch\"}}", "norm_type = \"batch\""},
    {"internvl", "{\"vision_config\": {\"norm_type\": null}}", NULL},
    {"internvl", "{\"vision_config\": {\"use_mask_token\": true}}", "use_mask_token = true"},
    {"internvl", "{\"vision_config\": {\"use_mean_pooling\": false}}", "*"},
    {"internvl-rms", "{\"vision_config\": {\"use_mean_pooling\": false}}", "use_mean_pooling"},
    {"internvl-rms", "{\"vision_config\": {\"layer_norm_eps\": 1e-5}}", "layer_norm_eps = 1e-05"},
    {"internvl", "{\"vision_config\": {\"use_absolute_position_embeddings\": false}}",
     "use_absolute_position_embeddings = false"},
    {"qwen2-vl", "{\"vision_config\": {\"temporal_patch_size\": 1}}", "temporal_patch_size = 1"},
    {"qwen2-vl", "{\"vision_config\": {\"hidden_size\": 48}}", "hidden_size = 48"},
    {"qwen2-vl", "{\"vision_config\": {\"in_chans\": null, \"in_channels\": 3}}", NULL},
    {"qwen2-vl", "{\"vision_config\": {\"model_type\": \"qwen2_vl\"}}", NULL},
    {"qwen2-vl",
     "{\"vision_config\": {\"rope_parameters\": {\"rope_type\": \"axial\", "
     "\"rope_theta\": 10000.0}}}",
     NULL},
    {"qwen2-vl",
     "{\"vision_config\": {\"rope_parameters\": {\"rope_type\": \"yarn\", "
     "\"rope_theta\": 10000.0}}}",
     "rope_parameters = "},
    {"qwen2.5-vl", "{\"vision_config\": {\"window_size\": null}}", "window_size is missing"},
    {"qwen2.5-vl", "{\"vision_config\": {\"window_size\": 9}}", NULL},
    {"qwen2.5-vl", "{\"vision_config\": {\"fullatt_block_indexes\": null}}",
     "fullatt_block_indexes is missing"},
    {"qwen2.5-vl", "{\"vision_config\": {\"out_hidden_size\": 16}}", "out_hidden_size = 16"},
    {"qwen3-vl", "{\"vision_config\": {\"deepstack_visual_indexes\": null}}",
     "deepstack_visual_indexes is missing"},
    {"qwen3-vl", "{\"vision_config\": {\"deepstack_visual_indexes\": [2, 0]}}", "taps"},
    {"qwen3-vl", "{\"vision_config\": {\"deepstack_visual_indexes\": [0, 1.5]}}",
     "deepstack_visual_indexes = [0,1.5]"},
    {"internvl", "{\"vision_config\": {\"dropout\": 0.1}}", "dropout = 0.1"},
    /* projectors */
    {"llava", "{\"multimodal_projector_bias\": false}", "*"},
    {"llava", "{\"projector_hidden_act\": \"mish\"}", "projector_hidden_act = \"mish\""},
    {"internvl", "{\"downsample_ratio\": 0.25}", "downsample_ratio = 0.25"},
    {"paligemma", "{\"projection_dim\": 48}", "projection_dim = 48"},
    {"llava-onevision", "{\"vision_aspect_ratio\": \"square\"}",
     "vision_aspect_ratio = \"square\""},
    {"llava-onevision", "{\"vision_aspect_ratio\": null}", "*"}, /* nine */
    {"llava-next", "{\"use_image_newline_parameter\": false}", "use_image_newline_parameter"},
    /* decoders: three positions, masks */
    {"qwen2-vl", "{\"rope_scaling\": null}", "has no mrope_section"},
    {"qwen2-vl", "{\"rope_scaling\": {\"mrope_section\": null}}", "has no mrope_section"},
    {"qwen2-vl", "{\"rope_scaling\": {\"mrope_section\": [1, 1, 1]}}", "rope_sections"},
    {"qwen2-vl", "{\"rope_scaling\": {\"mrope_interleaved\": true}}", "mrope_interleaved = true"},
    {"qwen2-vl", "{\"rope_scaling\": {\"type\": null, \"rope_type\": \"default\"}}", NULL},
    {"qwen2-vl", "{\"rope_scaling\": {\"rope_theta\": 7.0}}", "*"},
    {"qwen3-vl", "{\"text_config\": {\"rope_scaling\": {\"mrope_interleaved\": false}}}",
     "mrope_interleaved = false"},
    {"qwen3-vl", "{\"text_config\": {\"rope_scaling\": {\"mrope_interleaved\": null}}}", NULL},
    {"qwen3-vl",
     "{\"text_config\": {\"use_sliding_window\": true, \"sliding_window\": 8, "
     "\"max_window_layers\": 0}}",
     "sliding_window"},
    {"paligemma", "{\"text_config\": {\"use_bidirectional_attention\": false}}",
     "use_bidirectional_attention = false"},
    {"paligemma", "{\"text_config\": {\"use_bidirectional_attention\": true}}", NULL},
    {"gemma3", "{\"mm_tokens_per_image\": 16}", "mm_tokens_per_image = 16"},
    {"gemma3", "{\"mm_tokens_per_image\": 8}", "mm_tokens_per_image = 8"},
    {"gemma3", "{\"mm_tokens_per_image\": 36}", "*"},
    {"gemma3", "{\"text_config\": {\"num_attention_heads\": null}}", "*"}, /* as Gemma 3 4B does */
    {"paligemma2", "{\"text_config\": {\"max_position_embeddings\": 8192}}", "*"},
    /* experts */
    {"qwen3-vl-moe", "{\"text_config\": {\"norm_topk_prob\": false}}", "norm_topk_prob = false"},
    {"qwen3-vl-moe", "{\"text_config\": {\"norm_topk_prob\": null}}", NULL},
    {"qwen3-vl-moe", "{\"text_config\": {\"num_experts\": null}}",
     "num_experts|num_local_experts is missing"},
    {"qwen3-vl-moe", "{\"text_config\": {\"mlp_only_layers\": [1]}}", "*"},
    {"qwen3-vl-moe", "{\"vision_config\": {\"model_type\": \"qwen3_vl_moe_vision\"}}", NULL},
    {"qwen3-vl-moe", "{\"vision_config\": {\"model_type\": \"qwen3_vl\"}}",
     "known: qwen3_vl_moe_vision"},
    /* Qwen3.5: nothing but the end of the encoder is read */
    {"qwen3.5-vl", "{\"vision_config\": {\"deepstack_visual_indexes\": null}}", NULL},
    {"qwen3.5-vl", "{\"vision_config\": {\"deepstack_visual_indexes\": [0]}}",
     "deepstack_visual_indexes = [0]"},
    {"qwen3.5-vl", "{\"vision_config\": {\"model_type\": \"qwen3_5_vision\"}}", NULL},
    {"qwen3.5-vl", "{\"vision_config\": {\"model_type\": \"qwen3_vl\"}}", "known: qwen3_5_vision"},
    {"qwen3.5-vl", "{\"text_config\": {\"rope_parameters\": {\"mrope_section\": null}}}",
     "has no mrope_section"},
    {"qwen3.5-vl", "{\"text_config\": {\"rope_parameters\": {\"mrope_section\": [2, 1, 1]}}}",
     "rope_sections"},
    {"qwen3.5-vl", "{\"text_config\": {\"rope_parameters\": {\"mrope_interleaved\": false}}}",
     "mrope_interleaved = false"},
    {"qwen3.5-vl", "{\"text_config\": {\"attn_output_gate\": false}}", "attn_output_gate = false"},
    {"qwen3.5-vl", "{\"text_config\": {\"mtp_num_hidden_layers\": 0}}", NULL},
    {"qwen3.5-vl-moe", "{\"vision_config\": {\"model_type\": \"qwen3_5\"}}",
     "known: qwen3_5_moe_vision"},
    {"qwen3.5-vl-moe", "{\"text_config\": {\"num_experts\": null, \"num_local_experts\": 4}}",
     NULL},
    /* Idefics 3 and SmolVLM */
    {"idefics3", "{\"scale_factor\": 3}", "*"},
    {"idefics3", "{\"scale_factor\": null}", NULL},
    {"idefics3", "{\"text_config\": {\"qk_layer_norms\": true}}", "qk_layer_norms = true"},
    {"idefics3", "{\"text_config\": {\"use_resampler\": true}}", "use_resampler = true"},
    {"idefics3", "{\"text_config\": {\"qk_layer_norms\": null, \"use_resampler\": null}}", NULL},
    {"idefics3", "{\"text_config\": {\"rms_norm_eps\": null}}", "rms_norm_eps is missing"},
    {"idefics3", "{\"text_config\": {\"perceiver_config\": {\"resampler_depth\": 6}}}", NULL},
    {"idefics3", "{\"vision_config\": {\"model_type\": \"idefics3_vision\"}}", NULL},
    {"idefics3", "{\"vision_config\": {\"model_type\": \"smolvlm_vision\"}}",
     "known: idefics3_vision"},
    {"idefics3", "{\"vision_config\": {\"image_size\": null}}", "image_size is missing"},
    {"idefics3", "{\"vision_config\": {\"intermediate_size\": null}}", "*"}, /* as SmolVLM does */
    {"idefics3", "{\"vision_config\": {\"layer_norm_eps\": 1e-5}}", "*"},
    {"idefics3",
     "{\"model_type\": \"smolvlm\", \"vision_config\": {\"model_type\": \"smolvlm_vision\"}}",
     NULL},
    /* as SmolVLM is published: all that a class of transformers 4 had */
    {"idefics3",
     "{\"hidden_size\": 24, \"text_config\": {\"min_length\": 0, \"num_beams\": 1, "
     "\"length_penalty\": 1.0, \"pruned_heads\": {}, \"tf_legacy_loss\": false}, "
     "\"vision_config\": {\"model_type\": \"siglip_vision_model\", \"ignore_index\": -100}}",
     NULL},
    /* Pixtral, Mistral 3 */
    {"pixtral", "{\"vision_feature_select_strategy\": null}", "vision_feature_select_strategy"},
    {"pixtral", "{\"vision_config\": {\"head_dim\": 16}}", "head_dim = 16"},
    {"pixtral", "{\"vision_config\": {\"head_dim\": null, \"image_size\": 12}}", NULL},
    {"pixtral", "{\"vision_config\": {\"hidden_act\": null}}", "*"},
    {"pixtral", "{\"vision_config\": {\"rope_theta\": null}}", "*"},
    {"pixtral",
     "{\"vision_config\": {\"rope_theta\": null, \"rope_parameters\": {\"rope_type\": "
     "\"axial\", \"rope_theta\": 100.0}}}",
     NULL},
    {"pixtral", "{\"vision_config\": {\"rope_parameters\": {\"rope_type\": \"yarn\"}}}",
     "rope_parameters = "},
    {"mistral3", "{\"tie_word_embeddings\": null}", NULL},
    {"mistral3", "{\"spatial_merge_size\": 1}", "projector.reduce"},
    {"mistral3", "{\"spatial_merge_size\": null}", NULL},
    {"internvl", "{\"vision_feature_layer\": [-1, -2]}", "vision_feature_layer = [-1,-2]"},
    {"mistral3", "{\"vision_feature_layer\": [-1, -2]}", "vision_feature_layer = [-1,-2]"},
    {"mistral3", "{\"multimodal_projector_bias\": true}", "*"},
    {"mistral3", "{\"text_config\": {\"model_type\": \"ministral3\"}}",
     "'ministral3' (text_config) is not known; known: mistral"},
    {"mistral3", "{\"vision_config\": {\"model_type\": \"clip_vision_model\"}}", "known: pixtral"},
    /* who says that the head is the embedding */
    {"llava", "{\"tie_word_embeddings\": true}", "*"},
    {"llava", "{\"text_config\": {\"tie_word_embeddings\": true}}", "*"},
    {"llava-siglip", "{\"tie_word_embeddings\": false}", NULL},
    {"llava-next",
     "{\"tie_word_embeddings\": false, \"text_config\": {\"tie_word_embeddings\": true}}", NULL},
    {"paligemma", "{\"tie_word_embeddings\": false}", "*"},
    {"paligemma", "{\"tie_word_embeddings\": true}", NULL},
    {"internvl", "{\"tie_word_embeddings\": null}", "*"},
    {"internvl",
     "{\"tie_word_embeddings\": null, \"text_config\": {\"tie_word_embeddings\": false}}", NULL},
    /* InternVL as its authors have it */
    {"internvl", "{\"model_type\": \"internvl_chat\"}", "llm_config is missing"},
    {"internvl-chat", "{\"llm_config\": {\"model_type\": \"phi3\"}}",
     "'phi3' (llm_config) is not known; known: qwen2, qwen3, llama, internlm2"},
    {"internvl-chat", "{\"llm_config\": null}", "llm_config is missing"},
    {"internvl-chat", "{\"ps_version\": null}", "ps_version = v1"},
    {"internvl-chat", "{\"ps_version\": \"v1\"}", "ps_version = v1"},
    {"internvl-chat", "{\"ps_version\": 2}", "ps_version = 2 is not a version"},
    {"internvl-chat", "{\"downsample_ratio\": 0.25}", "downsample_ratio = 0.25"},
    {"internvl-chat", "{\"select_layer\": -2}", "*"},
    {"internvl-chat", "{\"select_layer\": null}", NULL},
    {"internvl-chat", "{\"select_layer\": 3}", "select_layer = 3, of 2 layers"},
    {"internvl-chat", "{\"use_llm_lora\": 16}", "use_llm_lora = 16"},
    {"internvl-chat", "{\"max_dynamic_patch\": 6, \"image_fold\": 1}", NULL},
    {"internvl-chat", "{\"tie_word_embeddings\": true}", "llm_config says something else"},
    {"internvl-chat", "{\"tie_word_embeddings\": false}", NULL},
    {"internvl-chat", "{\"llm_config\": {\"tie_word_embeddings\": true}}", "*"},
    {"internvl-chat", "{\"llm_config\": {\"moe_config\": 1}}", NULL},
    {"internvl-chat", "{\"vision_config\": {\"norm_type\": null}}", "*"},
    {"internvl-chat", "{\"vision_config\": {\"norm_type\": \"batch\"}}", "norm_type = \"batch\""},
    {"internvl-chat", "{\"vision_config\": {\"qk_normalization\": null}}", "*"},
    {"internvl-chat", "{\"vision_config\": {\"drop_path_rate\": 0.0}}", NULL},
    {"internvl-chat-internlm2", "{\"vision_config\": {\"norm_type\": null}}", NULL},
    {"internvl-chat-internlm2", "{\"llm_config\": {\"bias\": true}}", "*"},
    /* another head */
    {"llava", "{\"architectures\": [\"LlavaForSequenceClassification\"], \"num_labels\": 1}",
     "a classifier that sees"},
};

static const char *source(void)
{
    const char *src = getenv("LF_SRCDIR");
    return src ? src : ".";
}

static void change(json_t *o, json_t *by)
{
    const char *key;
    json_t *v;
    json_object_foreach(by, key, v)
    {
        json_t *have = json_object_get(o, key);
        if (json_is_null(v))
            json_object_del(o, key);
        else if (json_is_object(v) && json_is_object(have))
            change(have, v);
        else
            json_object_set(o, key, v);
    }
}

/* A key that no file has is put there by an import. */
static int read_config(lf_model_config *c, json_t *o, lf_err *err)
{
    const struct lf_hf_family *f = lf_hf_family_of(o, "config.json", err);
    if (f && lf_hf_lacks_token(f, o))
        json_object_set_new(o, f->sight->token_key, json_integer(60));
    return f ? lf_hf_config_read(c, f, o, "config.json", err) : err->rc;
}

static void test_row(size_t i)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config was, is;
    char path[4096];
    const char *want = rows[i].expected, *key = "";
    snprintf(path, sizeof path, "%s/tests/golden/vlm/%s/config.json", source(), rows[i].name);
    json_t *o = lf_json_load_file(path, 1 << 20, &err), *by = json_loads(rows[i].change, 0, NULL);
    if (!o || !by || read_config(&was, o, &err))
        tap_bail("%s, row %zu: %s", rows[i].name, i, err.text);
    change(o, by);
    const int rc = read_config(&is, o, &err);
    const bool same = rc == 0 && lf_model_config_equal(&was, &is, &key);
    const bool right = !want ? same
                       : strcmp(want, "*") == 0
                           ? rc == 0 && !same
                           : rc < 0 && strstr(err.text, want) && !strchr(err.text, '\n');
    tap_ok(right, "%s: %s: %s", rows[i].name, rows[i].change,
           rc < 0 ? err.text
           : same ? "the same model"
                  : key);
    json_decref(o);
    json_decref(by);
}

/* What transformers writes for them itself (save_pretrained) means the same models. */
static void test_saved(void)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config was, is;
    char path[4096];
    const char *name, *key = "";
    json_t *o;
    snprintf(path, sizeof path, "%s/tests/golden/vlm/saved.json", source());
    json_t *all = lf_json_load_file(path, 1 << 20, &err);
    if (json_object_size(all) < 16)
        tap_bail("%s: %s", path, err.text);
    json_object_foreach(all, name, o)
    {
        snprintf(path, sizeof path, "%s/tests/golden/vlm/%s/config.json", source(), name);
        json_t *golden = lf_json_load_file(path, 1 << 20, &err);
        const int rc = !golden || read_config(&was, golden, &err) ? -1 : read_config(&is, o, &err);
        tap_ok(rc == 0 && lf_model_config_equal(&was, &is, &key),
               "%s: as transformers 5.23 saves it, the same model %s%s", name, key,
               rc < 0 ? err.text : "");
        json_decref(golden);
        lf_err_clear(&err);
    }
    json_decref(all);
}

int main(void)
{
    const int n = (int)(sizeof rows / sizeof *rows);
    for (int i = 0; i < n; i++)
        TAP(1, test_row((size_t)i));
    TAP(21, test_saved());
    return tap_done();
}
