/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-Neo: GPT-2's block with separate projections without biases, scores that nothing divides, and
 * layers with a window by turns. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/convert/families.h"

static const char *const switches[] = {"norm=layer",   "norm_bias=yes", "position=learned",
                                       "mlp=plain",    "qkv_bias=no",   "out_bias=yes",
                                       "mlp_bias=yes", "attn_scale=1",  NULL};

static const struct lf_hf_key keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "50257"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"hidden_size", LF_HF_NUMBER, "hidden", "2048"},
    {"num_layers|num_hidden_layers", LF_HF_NUMBER, "layers", "24"},
    {"num_heads|num_attention_heads", LF_HF_NUMBER, "heads", "16"},
    {"activation_function", LF_HF_ACT, "activation", "\"gelu_new\""},
    {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"resid_dropout", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0"},
    {"embed_dropout", LF_HF_NUMBER, "embed_dropout", "0"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"attention_layers", LF_HF_INERT, NULL, NULL}, /* the class makes it of attention_types */
    {"classifier_dropout", LF_HF_INERT, NULL, NULL},
    {"summary_type", LF_HF_INERT, NULL, NULL}, /* of classification heads, here and below */
    {"summary_use_proj", LF_HF_INERT, NULL, NULL},
    {"summary_activation", LF_HF_INERT, NULL, NULL},
    {"summary_proj_to_labels", LF_HF_INERT, NULL, NULL},
    {"summary_first_dropout", LF_HF_INERT, NULL, NULL},
    {0},
};

/* One entry of attention_types, [kinds, times], from layer *l on. */
static int read_run(const lf_hf_reader *r, const lf_model_config *c, json_t *run, char *letters,
                    int64_t *l, lf_err *err)
{
    json_t *kinds = json_array_get(run, 0);
    const json_int_t times = json_integer_value(json_array_get(run, 1));
    if (!json_is_array(kinds) || json_array_size(kinds) == 0 || times < 1)
        return lf_fail(err, LF_EFORMAT, "%s: attention_types is no list of kinds and times",
                       r->path);
    for (json_int_t t = 0; t < times; t++)
        for (size_t i = 0; i < json_array_size(kinds); i++) {
            const char *kind = json_string_value(json_array_get(kinds, i));
            const bool local = kind && strcmp(kind, "local") == 0;
            if (!local && !(kind && strcmp(kind, "global") == 0))
                return lf_fail(err, LF_ENOTSUP, "%s: attention_types: '%.40s' is not supported",
                               r->path, kind ? kind : "?");
            if (*l == c->layers)
                return lf_fail(err, LF_EFORMAT, "%s: attention_types names more than %lld layers",
                               r->path, (long long)c->layers);
            letters[(*l)++] = local ? LF_MIXER_WINDOW : LF_MIXER_FULL;
        }
    return 0;
}

static int read_layers(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *types = lf_hf_take(r, "attention_types"),
           *usual = json_loads("[[[\"global\", \"local\"], 12]]", 0, NULL);
    char *letters = lf_calloc((size_t)c->layers + 1, 1, err);
    int64_t l = 0, window = 256;
    int rc = letters && usual ? 0 : LF_ENOMEM;
    types = types ? types : usual;
    for (size_t i = 0; i < json_array_size(types) && rc == 0; i++)
        rc = read_run(r, c, json_array_get(types, i), letters, &l, err);
    if (rc == 0 && l != c->layers)
        rc = lf_fail(err, LF_EFORMAT, "%s: attention_types names %lld layers of %lld", r->path,
                     (long long)l, (long long)c->layers);
    rc = rc != 0 ? rc : lf_hf_get_i64(r, "window_size", &window, err);
    if (rc == 0 && strchr(letters, LF_MIXER_WINDOW))
        rc = lf_hf_set_number(r, c, "window_size", "sliding_window", (double)window, err);
    rc = rc != 0 ? rc : lf_hf_set_letters(r, c, "attention_types", "layer_mixers", letters, err);
    json_decref(usual);
    free(letters);
    return rc;
}

static int read_neo(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t n = 4 * c->hidden;
    int rc = lf_hf_get_i64(r, "intermediate_size", &n, err);
    rc = rc != 0 ? rc : lf_hf_set_number(r, c, "intermediate_size", "ffn", (double)n, err);
    return rc != 0 ? rc : read_layers(r, c, err);
}

static int write_neo(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *kinds = json_array();
    int bad = !kinds;
    for (int64_t l = 0; l < c->layers && !bad; l++)
        bad = json_array_append_new(
            kinds, json_string(lf_model_layer_window(c, l) > 0 ? "local" : "global"));
    bad = bad || json_object_set_new(o, "attention_types", json_pack("[[O, i]]", kinds, 1)) ||
          json_object_set_new(o, "window_size",
                              json_integer(c->sliding_window ? c->sliding_window : 256)) ||
          json_object_set_new(o, "intermediate_size", json_integer(c->ffn));
    json_decref(kinds);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static const struct lf_map_row rows[] = {
    {"transformer.wte.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"transformer.wpe.weight", LF_MAP_COPY, "pos_embed.weight", NULL},
    {"transformer.h.{L}.ln_1.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {"transformer.h.{L}.attn.attention.q_proj.weight", LF_MAP_COPY, "layers.{L}.attn.q.weight",
     NULL},
    {"transformer.h.{L}.attn.attention.k_proj.weight", LF_MAP_COPY, "layers.{L}.attn.k.weight",
     NULL},
    {"transformer.h.{L}.attn.attention.v_proj.weight", LF_MAP_COPY, "layers.{L}.attn.v.weight",
     NULL},
    {"transformer.h.{L}.attn.attention.out_proj.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"transformer.h.{L}.ln_2.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}", NULL},
    {"transformer.h.{L}.mlp.c_fc.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"transformer.h.{L}.mlp.c_proj.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"transformer.ln_f.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"transformer.h.{L}.attn.attention.bias", LF_MAP_IGNORED, "the mask", NULL},
    {"transformer.h.{L}.attn.attention.masked_bias", LF_MAP_IGNORED, "the value behind the mask",
     NULL},
    {0},
};

const struct lf_hf_family lf_hf_gpt_neo = {
    .name = "gpt-neo",
    .model_type = "gpt_neo",
    .architecture = "GPTNeoForCausalLM",
    .classifier = "GPTNeoForSequenceClassification",
    .prefix = "transformer.",
    .switches = switches,
    .keys = keys,
    .rows = rows,
    .read = read_neo,
    .write = write_neo,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
