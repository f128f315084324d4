/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2, and GPT-SW3, which is a GPT-2 by another name; the first GPT. Learned positions,
 * LayerNorm, Conv1D weights [in, out]. */
#include <stdio.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families.h"
#include "kernels/kernels.h"

/* ---- GPT-2 ---- */

static const char *const gpt2_switches[] = {
    "norm=layer",   "norm_bias=yes", "position=learned",     "mlp=plain", "qkv_bias=yes",
    "out_bias=yes", "mlp_bias=yes",  "init=residual_scaled", NULL};

static const struct lf_hf_key gpt2_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"n_positions", LF_HF_NUMBER, "max_positions", "1024"},
    {"n_ctx", LF_HF_INERT, NULL, NULL}, /* the same number in old files */
    {"n_embd", LF_HF_NUMBER, "hidden", NULL},
    {"n_layer", LF_HF_NUMBER, "layers", NULL},
    {"n_head", LF_HF_NUMBER, "heads", NULL},
    {"activation_function", LF_HF_ACT, "activation", "\"gelu_new\""},
    {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"resid_pdrop", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0.1"},
    {"embd_pdrop", LF_HF_NUMBER, "embed_dropout", "0.1"},
    {"attn_pdrop", LF_HF_NUMBER, "attn_prob_dropout", "0.1"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"n_special", LF_HF_UNREAD, NULL, "0"}, /* of the first files, here and below */
    {"predict_special_tokens", LF_HF_UNREAD, NULL, "true"},
    {"scale_attn_weights", LF_HF_SAME, NULL, "true"},
    {"scale_attn_by_inverse_layer_idx", LF_HF_SAME, NULL, "false"},
    {"reorder_and_upcast_attn", LF_HF_INERT, NULL,
     NULL},                                    /* precision of the reference, not the function */
    {"summary_type", LF_HF_INERT, NULL, NULL}, /* of classification heads, here and below */
    {"summary_use_proj", LF_HF_INERT, NULL, NULL},
    {"summary_activation", LF_HF_INERT, NULL, NULL},
    {"summary_proj_to_labels", LF_HF_INERT, NULL, NULL},
    {"summary_first_dropout", LF_HF_INERT, NULL, NULL},
    {0},
};

/* n_inner: null means four times the width. */
static int read_n_inner(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t n = 4 * c->hidden;
    int rc = lf_hf_get_i64(r, "n_inner", &n, err);
    return rc != 0 ? rc : lf_hf_set_number(r, c, "n_inner", "ffn", (double)n, err);
}

static int write_n_inner(const lf_model_config *c, json_t *o, lf_err *err)
{
    return json_object_set_new(o, "n_inner", json_integer(c->ffn))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

static const struct lf_map_row gpt2_rows[] = {
    {"transformer.wte.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"transformer.wpe.weight", LF_MAP_COPY, "pos_embed.weight", NULL},
    {"transformer.h.{L}.ln_1.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {"transformer.h.{L}.attn.c_attn.{P}", LF_MAP_STACK_T,
     "layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"transformer.h.{L}.attn.c_proj.{P}", LF_MAP_STACK_T, "layers.{L}.attn.o.{P}", NULL},
    {"transformer.h.{L}.ln_2.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}", NULL},
    {"transformer.h.{L}.mlp.c_fc.{P}", LF_MAP_STACK_T, "layers.{L}.mlp.up.{P}", NULL},
    {"transformer.h.{L}.mlp.c_proj.{P}", LF_MAP_STACK_T, "layers.{L}.mlp.down.{P}", NULL},
    {"transformer.ln_f.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"transformer.h.{L}.attn.bias", LF_MAP_IGNORED, "the causal mask", NULL},
    {"transformer.h.{L}.attn.masked_bias", LF_MAP_IGNORED, "the value behind the causal mask",
     NULL},
    {0},
};

const struct lf_hf_family lf_hf_gpt2 = {
    .name = "gpt2",
    .also = "gpt3",
    .model_type = "gpt2 gpt-sw3",
    .architecture = "GPT2LMHeadModel",
    .classifier = "GPT2ForSequenceClassification",
    .prefix = "transformer.",
    .switches = gpt2_switches,
    .keys = gpt2_keys,
    .rows = gpt2_rows,
    .read = read_n_inner,
    .write = write_n_inner,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- GPT ---- */

static const char *const gpt_switches[] = {
    "norm=layer",   "norm_bias=yes", "position=learned", "block=post", "final_norm=no",
    "qkv_bias=yes", "out_bias=yes",  "mlp_bias=yes",     "mlp=plain",  NULL};

static const struct lf_hf_key gpt_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "40478"},
    {"n_positions", LF_HF_NUMBER, "max_positions", "512"},
    {"n_ctx", LF_HF_INERT, NULL, NULL}, /* the same number in the published file */
    {"n_embd", LF_HF_NUMBER, "hidden", "768"},
    {"n_layer", LF_HF_NUMBER, "layers", "12"},
    {"n_head", LF_HF_NUMBER, "heads", "12"},
    {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"resid_pdrop", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0.1"},
    {"embd_pdrop", LF_HF_NUMBER, "embed_dropout", "0.1"},
    {"attn_pdrop", LF_HF_NUMBER, "attn_prob_dropout", "0.1"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"n_special", LF_HF_UNREAD, NULL, "0"}, /* of the published file, here and below */
    {"predict_special_tokens", LF_HF_UNREAD, NULL, "true"},
    {"summary_type", LF_HF_INERT, NULL, NULL}, /* of classification heads, here and below */
    {"summary_use_proj", LF_HF_INERT, NULL, NULL},
    {"summary_activation", LF_HF_INERT, NULL, NULL},
    {"summary_proj_to_labels", LF_HF_INERT, NULL, NULL},
    {"summary_first_dropout", LF_HF_INERT, NULL, NULL},
    {0},
};

/* afn: the names that the class has, of which gelu is the approximation by tanh. */
static const struct {
    const char *theirs, *ours;
    int act;
} gpt_acts[] = {{"gelu", "gelu_tanh", LF_ACT_GELU_TANH},
                {"relu", "relu", LF_ACT_RELU},
                {"silu", "silu", LF_ACT_SILU},
                {"swish", "silu", LF_ACT_SILU}};
#define GPT_ACTS (sizeof gpt_acts / sizeof *gpt_acts)

/* The MLP has four times the width. */
static int read_gpt(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const json_t *v = lf_hf_take(r, "afn");
    const char *afn = v ? json_string_value(v) : "gelu", *act = NULL;
    for (size_t i = 0; i < GPT_ACTS && afn; i++)
        if (strcmp(gpt_acts[i].theirs, afn) == 0)
            act = gpt_acts[i].ours;
    if (!act)
        return lf_fail(err, LF_ENOTSUP, "%s: afn = %.40s: the class has gelu, relu, silu and swish",
                       r->path, afn ? afn : "no word");
    int rc = lf_hf_set(r, c, "afn", "activation", act, err);
    return rc != 0 ? rc : lf_hf_set_number(r, c, "n_embd", "ffn", 4.0 * (double)c->hidden, err);
}

static int write_gpt(const lf_model_config *c, json_t *o, lf_err *err)
{
    const char *afn = NULL;
    for (size_t i = GPT_ACTS; i-- > 0;)
        if (gpt_acts[i].act == (int)c->activation)
            afn = gpt_acts[i].theirs;
    if (!afn)
        return lf_fail(err, LF_EINVAL,
                       "activation: models of type openai-gpt have gelu_tanh, relu or silu");
    if (c->ffn != 4 * c->hidden)
        return lf_fail(err, LF_EINVAL,
                       "ffn = %lld: in models of type openai-gpt it is four times hidden = %lld",
                       (long long)c->ffn, (long long)c->hidden);
    return json_object_set_new(o, "afn", json_string(afn))
               ? lf_fail(err, LF_ENOMEM, "out of memory")
               : 0;
}

#define GPT_LAYER "transformer.h.{L}."
static const struct lf_map_row gpt_rows[] = {
    {"transformer.tokens_embed.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"transformer.positions_embed.weight", LF_MAP_COPY, "pos_embed.weight", NULL},
    {"transformer.position_ids", LF_MAP_IGNORED, "the numbers 0, 1, 2 ...", NULL},
    {GPT_LAYER "attn.c_attn.{P}", LF_MAP_STACK_T,
     "layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {GPT_LAYER "attn.c_proj.{P}", LF_MAP_STACK_T, "layers.{L}.attn.o.{P}", NULL},
    {GPT_LAYER "ln_1.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {GPT_LAYER "mlp.c_fc.{P}", LF_MAP_STACK_T, "layers.{L}.mlp.up.{P}", NULL},
    {GPT_LAYER "mlp.c_proj.{P}", LF_MAP_STACK_T, "layers.{L}.mlp.down.{P}", NULL},
    {GPT_LAYER "ln_2.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {GPT_LAYER "attn.bias", LF_MAP_IGNORED, "the causal mask", NULL},
    {0},
};

const struct lf_hf_family lf_hf_gpt = {
    .name = "gpt",
    .model_type = "openai-gpt",
    .architecture = "OpenAIGPTLMHeadModel",
    .classifier = "OpenAIGPTForSequenceClassification",
    .prefix = "transformer.",
    .switches = gpt_switches,
    .keys = gpt_keys,
    .rows = gpt_rows,
    .read = read_gpt,
    .write = write_gpt,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
