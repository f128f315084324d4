/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-NeoX and Pythia, GPT-J, CodeGen, BLOOM: the biased LayerNorm models with fused or parallel
 * blocks; MPT, which is of their time and has no bias. */
#include <math.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families.h"

static int no_memory(int failed, lf_err *err)
{
    return failed ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* ---- GPT-NeoX, Pythia ---- */

static const char *const neox_switches[] = {"norm=layer", "norm_bias=yes", "position=rope",
                                            "mlp=plain",  "mlp_bias=yes",  NULL};

static const struct lf_hf_key neox_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"intermediate_size", LF_HF_NUMBER, "ffn", NULL},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"hidden_act", LF_HF_ACT, "activation", "\"gelu\""},
    {"layer_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"rotary_pct", LF_HF_NUMBER, "rope_fraction", "0.25"},
    {"attention_bias", LF_HF_BOOL, "qkv_bias out_bias", "true"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"hidden_dropout", LF_HF_NUMBER, "embed_dropout attn_dropout mlp_dropout", "0"},
    {"attention_probs_dropout_prob", LF_HF_UNREAD, NULL, "0"}, /* GPT-NeoX-20B, here and below */
    {"hidden_dropout_prob", LF_HF_UNREAD, NULL, "0"},
    {"classifier_dropout", LF_HF_INERT, NULL, NULL},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {0},
};

/* A name of other families, which the class does not read. */
static int check_unread(lf_hf_reader *r, const char *key, double value, const char *own,
                        lf_err *err)
{
    double x = value;
    int rc = lf_hf_get_f64(r, key, &x, err);
    if (rc == 0 && fabs(x - value) > 0)
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: %s = %g, which models of type gpt_neox do not read: %s says %g", r->path,
                     key, x, own, value);
    return rc;
}

static int read_neox(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool parallel = true;
    double theta = 10000;
    int rc = lf_hf_get_bool(r, "use_parallel_residual", &parallel, err);
    if (rc == 0)
        rc = lf_hf_set(r, c, "use_parallel_residual", "parallel_block",
                       parallel ? "two_norms" : "no", err);
    if (rc == 0)
        rc = lf_hf_get_f64(r, "rotary_emb_base", &theta, err);
    if (rc == 0)
        rc = check_unread(r, "rope_theta", theta, "rotary_emb_base", err);
    if (rc == 0)
        rc = check_unread(r, "partial_rotary_factor", c->rope_fraction, "rotary_pct", err);
    return rc != 0
               ? rc
               : lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = theta, .part = true}, err);
}

static int write_neox(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (c->parallel_block == LF_PARALLEL_ONE_NORM)
        return lf_fail(err, LF_EINVAL,
                       "parallel_block = one_norm: models of type gpt_neox have two norms");
    int rc = lf_hf_write_rope(c, o, err);
    return rc != 0
               ? rc
               : no_memory(json_object_set_new(o, "rotary_emb_base", json_real(c->rope_theta)) ||
                               json_object_set_new(
                                   o, "use_parallel_residual",
                                   json_boolean(c->parallel_block == LF_PARALLEL_TWO_NORMS)),
                           err);
}

static const struct lf_map_row neox_rows[] = {
    {"gpt_neox.embed_in.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"gpt_neox.layers.{L}.input_layernorm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {"gpt_neox.layers.{L}.attention.query_key_value.{P}", LF_MAP_STACK,
     "groups=kv_heads layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"gpt_neox.layers.{L}.attention.dense.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"gpt_neox.layers.{L}.post_attention_layernorm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}",
     NULL},
    {"gpt_neox.layers.{L}.mlp.dense_h_to_4h.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"gpt_neox.layers.{L}.mlp.dense_4h_to_h.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"gpt_neox.final_layer_norm.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"embed_out.weight", LF_MAP_COPY, "head.weight", NULL},
    {"embed_out.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"gpt_neox.layers.{L}.attention.bias", LF_MAP_IGNORED, "the causal mask", NULL},
    {"gpt_neox.layers.{L}.attention.masked_bias", LF_MAP_IGNORED,
     "the value behind the causal mask", NULL},
    {"gpt_neox.layers.{L}.attention.rotary_emb.inv_freq", LF_MAP_IGNORED,
     "follows from rotary_emb_base", NULL},
    {0},
};

const struct lf_hf_family lf_hf_neox = {
    .name = "gpt-neox",
    .also = "gpt_neox neox pythia",
    .model_type = "gpt_neox",
    .architecture = "GPTNeoXForCausalLM",
    .classifier = "GPTNeoXForSequenceClassification",
    .prefix = "gpt_neox.",
    .switches = neox_switches,
    .keys = neox_keys,
    .rows = neox_rows,
    .read = read_neox,
    .write = write_neox,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- GPT-J ---- */

static const char *const gptj_switches[] = {
    "norm=layer", "norm_bias=yes", "position=rope", "rope_interleaved=yes",
    "mlp=plain",  "mlp_bias=yes",  "head_bias=yes", "parallel_block=one_norm",
    NULL};

static const struct lf_hf_key gptj_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"n_positions", LF_HF_NUMBER, "max_positions", "2048"},
    {"n_ctx", LF_HF_INERT, NULL, NULL},
    {"n_embd", LF_HF_NUMBER, "hidden", NULL},
    {"n_layer", LF_HF_NUMBER, "layers", NULL},
    {"n_head", LF_HF_NUMBER, "heads", NULL},
    {"activation_function", LF_HF_ACT, "activation", "\"gelu_new\""},
    {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"resid_pdrop", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0"},
    {"embd_pdrop", LF_HF_NUMBER, "embed_dropout", "0"},
    {"attn_pdrop", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"scale_attn_weights", LF_HF_SAME, NULL, "true"},
    {"rotary", LF_HF_SAME, NULL, "true"},
    {"summary_type", LF_HF_INERT, NULL, NULL},
    {"summary_use_proj", LF_HF_INERT, NULL, NULL},
    {"summary_activation", LF_HF_INERT, NULL, NULL},
    {"summary_proj_to_labels", LF_HF_INERT, NULL, NULL},
    {"summary_first_dropout", LF_HF_INERT, NULL, NULL},
    {0},
};

/* rotary_dim counts channels of a head. */
static int read_gptj(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t rot = 64, ffn = 4 * c->hidden;
    if (json_is_null(json_object_get(r->o, "rotary_dim")))
        return lf_fail(err, LF_EFORMAT, "%s: rotary_dim = null says nothing", r->path);
    int rc = lf_hf_get_i64(r, "rotary_dim", &rot, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "n_inner", &ffn, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "n_inner", "ffn", (double)ffn, err);
    if (rc == 0 && (c->heads < 1 || c->hidden / c->heads < 1))
        rc = lf_fail(err, LF_EFORMAT, "%s: n_embd and n_head contradict each other", r->path);
    return rc != 0 ? rc
                   : lf_hf_set_number(r, c, "rotary_dim", "rope_fraction",
                                      (double)rot / (double)(c->hidden / c->heads), err);
}

static int write_gptj(const lf_model_config *c, json_t *o, lf_err *err)
{
    return no_memory(json_object_set_new(o, "n_inner", json_integer(c->ffn)) ||
                         json_object_set_new(o, "rotary_dim", json_integer(lf_model_rope_dim(c))),
                     err);
}

#define GPTJ_ROWS                                                                                  \
    {"transformer.wte.weight", LF_MAP_COPY, "embed.weight", NULL},                                 \
        {"transformer.h.{L}.ln_1.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},             \
        {"transformer.h.{L}.attn.out_proj.weight", LF_MAP_COPY, "layers.{L}.attn.o.weight", NULL}, \
        {"transformer.h.{L}.mlp.fc_in.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},           \
        {"transformer.h.{L}.mlp.fc_out.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},        \
        {"transformer.ln_f.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},                             \
        {"lm_head.{P}", LF_MAP_COPY, "head.{P}", NULL},                                            \
        {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},                          \
        {"transformer.h.{L}.attn.bias", LF_MAP_IGNORED, "the causal mask", NULL},                  \
        {"transformer.h.{L}.attn.masked_bias", LF_MAP_IGNORED, "the value behind the causal mask", \
         NULL},                                                                                    \
    {                                                                                              \
        "transformer.h.{L}.attn.embed_positions", LF_MAP_IGNORED,                                  \
            "sines and cosines that follow from rotary_dim", NULL                                  \
    }

static const struct lf_map_row gptj_rows[] = {
    GPTJ_ROWS,
    {"transformer.h.{L}.attn.q_proj.weight", LF_MAP_COPY, "layers.{L}.attn.q.weight", NULL},
    {"transformer.h.{L}.attn.k_proj.weight", LF_MAP_COPY, "layers.{L}.attn.k.weight", NULL},
    {"transformer.h.{L}.attn.v_proj.weight", LF_MAP_COPY, "layers.{L}.attn.v.weight", NULL},
    {0},
};

const struct lf_hf_family lf_hf_gptj = {
    .name = "gpt-j",
    .also = "gptj",
    .model_type = "gptj",
    .architecture = "GPTJForCausalLM",
    .classifier = "GPTJForSequenceClassification",
    .prefix = "transformer.",
    .switches = gptj_switches,
    .keys = gptj_keys,
    .rows = gptj_rows,
    .read = read_gptj,
    .write = write_gptj,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- CodeGen: GPT-J, whose queries, values and keys lie in four parts ---- */

static int read_codegen(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int rc = read_gptj(r, c, err);
    if (rc == 0 && c->heads % 4)
        rc = lf_fail(err, LF_EFORMAT, "%s: n_head = %lld: models of type codegen have four parts",
                     r->path, (long long)c->heads);
    return rc;
}

static int write_codegen(const lf_model_config *c, json_t *o, lf_err *err)
{
    return c->heads % 4 ? lf_fail(err, LF_EINVAL,
                                  "heads = %lld: models of type codegen have four "
                                  "parts",
                                  (long long)c->heads)
                        : write_gptj(c, o, err);
}

static const struct lf_map_row codegen_rows[] = {
    {"transformer.h.{L}.attn.qkv_proj.weight", LF_MAP_STACK,
     "groups=4 layers.{L}.attn.q.weight layers.{L}.attn.v.weight layers.{L}.attn.k.weight", NULL},
    {"transformer.h.{L}.attn.causal_mask", LF_MAP_IGNORED, "the causal mask", NULL},
    GPTJ_ROWS,
    {0},
};

const struct lf_hf_family lf_hf_codegen = {
    .name = "codegen",
    .model_type = "codegen",
    .architecture = "CodeGenForCausalLM",
    .native = true,
    .prefix = "transformer.",
    .switches = gptj_switches,
    .keys = gptj_keys,
    .rows = codegen_rows,
    .read = read_codegen,
    .write = write_codegen,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- BLOOM ---- */

static const char *const bloom_switches[] = {
    "norm=layer",   "norm_bias=yes", "embed_norm=yes", "position=alibi",       "mlp=plain",
    "qkv_bias=yes", "out_bias=yes",  "mlp_bias=yes",   "activation=gelu_tanh", NULL};

static const struct lf_hf_key bloom_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size|n_embed", LF_HF_NUMBER, "hidden", NULL},
    {"n_layer|num_hidden_layers", LF_HF_NUMBER, "layers", NULL},
    {"n_head|num_attention_heads", LF_HF_NUMBER, "heads", NULL},
    {"seq_length", LF_HF_NUMBER, "max_positions",
     "2048"}, /* what it was trained at; ALiBi has no bound */
    {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"hidden_dropout", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"apply_residual_connection_post_layernorm", LF_HF_SAME, NULL, "false"},
    {"attention_softmax_in_fp32", LF_HF_INERT, NULL,
     NULL}, /* how its kernels were fused, here and below */
    {"bias_dropout_fusion", LF_HF_INERT, NULL, NULL},
    {"masked_softmax_fusion", LF_HF_INERT, NULL, NULL},
    {"offset_alibi", LF_HF_INERT, NULL, NULL},
    {"skip_bias_add", LF_HF_INERT, NULL, NULL},
    {"skip_bias_add_qkv", LF_HF_INERT, NULL, NULL},
    {"slow_but_exact", LF_HF_SAME, NULL, "false"}, /* leaves out biases, with pretraining_tp */
    {0},
};

static int read_bloom(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t n = 4 * c->hidden;
    int rc = lf_hf_get_i64(r, "n_inner", &n, err);
    if (rc == 0 && n != 4 * c->hidden)
        return lf_fail(
            err, LF_ENOTSUP,
            "%s: n_inner is not four times the width, which models of type bloom always have",
            r->path);
    return rc != 0 ? rc : lf_hf_set_number(r, c, "n_inner", "ffn", (double)n, err);
}

static const struct lf_map_row bloom_rows[] = {
    {"transformer.word_embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"transformer.word_embeddings_layernorm.{P}", LF_MAP_COPY, "embed_norm.{P}", NULL},
    {"transformer.h.{L}.input_layernorm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}", NULL},
    {"transformer.h.{L}.self_attention.query_key_value.{P}", LF_MAP_STACK,
     "groups=kv_heads layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"transformer.h.{L}.self_attention.dense.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"transformer.h.{L}.post_attention_layernorm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}",
     NULL},
    {"transformer.h.{L}.mlp.dense_h_to_4h.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"transformer.h.{L}.mlp.dense_4h_to_h.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"transformer.ln_f.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

const struct lf_hf_family lf_hf_bloom = {
    .name = "bloom",
    .model_type = "bloom",
    .architecture = "BloomForCausalLM",
    .classifier = "BloomForSequenceClassification",
    .prefix = "transformer.",
    .switches = bloom_switches,
    .keys = bloom_keys,
    .rows = bloom_rows,
    .read = read_bloom,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};

/* ---- MPT ---- */

static const char *const mpt_switches[] = {"norm=layer", "position=alibi", "mlp=plain",
                                           "activation=gelu", NULL};

static const struct lf_hf_key mpt_keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "50368"},
    {"d_model", LF_HF_NUMBER, "hidden", "2048"},
    {"n_layers", LF_HF_NUMBER, "layers", "24"},
    {"n_heads", LF_HF_NUMBER, "heads", "16"},
    {"max_seq_len", LF_HF_NUMBER, "max_positions", "2048"},
    {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"no_bias", LF_HF_SAME, NULL, "true"},
    {"logit_scale", LF_HF_SAME, NULL, "null"},
    {"expansion_ratio", LF_HF_UNREAD, NULL, "4"}, /* the class has these, whatever the file says */
    {"resid_pdrop", LF_HF_UNREAD, NULL, "0"},
    {"emb_pdrop", LF_HF_UNREAD, NULL, "0"},
    {"embedding_fraction", LF_HF_UNREAD, NULL, "1.0"},
    {"learned_pos_emb", LF_HF_INERT, NULL, NULL}, /* there are none beside ALiBi */
    {"norm_type", LF_HF_INERT, NULL, NULL},
    {"init_device", LF_HF_INERT, NULL, NULL},
    {"init_config", LF_HF_INERT, NULL, NULL},
    {"tokenizer_name", LF_HF_INERT, NULL, NULL},
    {"verbose", LF_HF_INERT, NULL, NULL},
    {0},
};

/* What attn_config must say where it says it, because the class computes nothing else. */
static const struct mpt_must {
    const char *key, *json;
} mpt_musts[] = {
    {"attn_type", "\"multihead_attention\""},
    {"alibi", "true"},
    {"alibi_bias_max", "8"},
    {"attn_uses_sequence_id", "false"},
    {"qk_ln", "false"},
    {"prefix_lm", "false"},
    {"clip_qkv", "null"},
};

static bool same_value(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b)
               ? fabs(json_number_value(a) - json_number_value(b)) <= 0
               : json_equal(a, b);
}

static int check_mpt_musts(lf_hf_reader *r, const json_t *attn, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < sizeof mpt_musts / sizeof *mpt_musts && rc == 0; i++) {
        json_t *v = json_object_get(attn, mpt_musts[i].key),
               *must = json_loads(mpt_musts[i].json, JSON_DECODE_ANY, NULL);
        if (!must)
            rc = lf_fail(err, LF_ENOMEM, "out of memory");
        else if (v && !same_value(v, must))
            rc = lf_fail(err, LF_ENOTSUP,
                         "%s: %s of attn_config is not %s, and nothing else is supported", r->path,
                         mpt_musts[i].key, mpt_musts[i].json);
        json_decref(must);
    }
    return rc;
}

/* Keys of attn_config that are read, are of no use, or stand in mpt_musts. transformers writes the
 * keys of any config.json there, too. */
static bool known_of_attention(const char *key)
{
    static const char *const read[] = {"attn_pdrop", "softmax_scale", "attn_impl",
                                       "tie_word_embeddings"};
    bool known = lf_hf_is_inert(key);
    for (size_t i = 0; i < sizeof read / sizeof *read; i++)
        known = known || strcmp(key, read[i]) == 0;
    for (size_t i = 0; i < sizeof mpt_musts / sizeof *mpt_musts; i++)
        known = known || strcmp(key, mpt_musts[i].key) == 0;
    return known;
}

/* attn_pdrop is of probabilities and of both branches. */
static int read_mpt_attention(lf_hf_reader *r, lf_model_config *c, json_t *attn, lf_err *err)
{
    static const char *const dropouts[] = {"attn_prob_dropout", "attn_dropout", "mlp_dropout"};
    json_t *p = json_object_get(attn, "attn_pdrop"),
           *scale = json_object_get(attn, "softmax_scale"), *v;
    const char *key;
    if ((p && !json_is_number(p)) || (scale && !json_is_null(scale) && !json_is_number(scale)) ||
        (json_is_number(scale) && !(json_number_value(scale) > 0)))
        return lf_fail(err, LF_EFORMAT,
                       "%s: attn_config: attn_pdrop is a number, and softmax_scale one above 0 or "
                       "null",
                       r->path);
    int rc = 0;
    for (size_t i = 0; i < sizeof dropouts / sizeof *dropouts && rc == 0 && p; i++)
        rc = lf_hf_set_number(r, c, "attn_pdrop", dropouts[i], json_number_value(p), err);
    if (rc == 0 && json_is_number(scale))
        rc = lf_hf_set_number(r, c, "softmax_scale", "attn_scale", json_number_value(scale), err);
    rc = rc != 0 ? rc : check_mpt_musts(r, attn, err);
    json_object_foreach(attn, key, v)
    {
        if (rc == 0 && !json_is_null(v) && !known_of_attention(key))
            rc = lf_fail(err, LF_ENOTSUP, "%s: '%.60s' of attn_config is not known", r->path, key);
    }
    return rc;
}

static int read_mpt(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    json_t *attn = lf_hf_take(r, "attn_config");
    int rc = lf_hf_set_number(r, c, "d_model", "ffn", 4 * (double)c->hidden, err);
    if (rc == 0 && attn && !json_is_object(attn))
        rc = lf_fail(err, LF_EFORMAT, "%s: attn_config is not an object", r->path);
    return rc != 0 || !attn ? rc : read_mpt_attention(r, c, attn, err);
}

static int write_mpt(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *a =
        json_pack("{s:s, s:b, s:b, s:n}", "attn_impl", "torch", "alibi", 1, "qk_ln", 0, "clip_qkv");
    const double p = c->attn_prob_dropout;
    int bad = !a || json_object_set_new(a, "attn_pdrop", p > 0 ? json_real(p) : json_integer(0));
    if (!bad && c->attn_scale > 0)
        bad = json_object_set_new(a, "softmax_scale", json_real(c->attn_scale));
    bad = bad || json_object_set(o, "attn_config", a);
    json_decref(a);
    return no_memory(bad, err);
}

#define MPT "transformer.blocks.{L}."

static const struct lf_map_row mpt_rows[] = {
    {"transformer.wte.weight", LF_MAP_COPY, "embed.weight", NULL},
    {MPT "norm_1.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight", NULL},
    {MPT "attn.Wqkv.weight", LF_MAP_STACK,
     "layers.{L}.attn.q.weight layers.{L}.attn.k.weight layers.{L}.attn.v.weight", NULL},
    {MPT "attn.out_proj.weight", LF_MAP_COPY, "layers.{L}.attn.o.weight", NULL},
    {MPT "norm_2.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight", NULL},
    {MPT "ffn.up_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.up.weight", NULL},
    {MPT "ffn.down_proj.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight", NULL},
    {"transformer.norm_f.weight", LF_MAP_COPY, "final_norm.weight", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {0},
};

const struct lf_hf_family lf_hf_mpt = {
    .name = "mpt",
    .model_type = "mpt",
    .architecture = "MptForCausalLM",
    .classifier = "MptForSequenceClassification",
    .prefix = "transformer.",
    .switches = mpt_switches,
    .keys = mpt_keys,
    .rows = mpt_rows,
    .read = read_mpt,
    .write = write_mpt,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
