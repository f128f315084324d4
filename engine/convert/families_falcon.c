/* SPDX-License-Identifier: Apache-2.0
 *
 * Falcon: 7B (one key head, one norm), 40B and the new decoder (groups; two norms or one), the
 * sequential RW form. */
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/families.h"

static const char *const switches[] = {"norm=layer", "norm_bias=yes", "position=rope", "mlp=plain",
                                       NULL};

static const struct lf_hf_key keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", NULL},
    {"hidden_size", LF_HF_NUMBER, "hidden", NULL},
    {"num_hidden_layers|n_layer", LF_HF_NUMBER, "layers", NULL},
    {"num_attention_heads|n_head", LF_HF_NUMBER, "heads", NULL},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"activation", LF_HF_ACT, "activation", "\"gelu\""},
    {"layer_norm_epsilon", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"bias", LF_HF_BOOL, "qkv_bias out_bias mlp_bias", "false"},
    {"hidden_dropout", LF_HF_NUMBER, "attn_dropout mlp_dropout", "0"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "true"},
    {"apply_residual_connection_post_layernorm", LF_HF_SAME, NULL, "false"},
    {"alibi", LF_HF_SAME, NULL, "false"}, /* its ALiBi is scaled with the scores, unlike BLOOM's */
    {"rotary", LF_HF_INERT, NULL, NULL},  /* the opposite of alibi */
    {0},
};

struct layout {
    bool new_decoder, multi_query, parallel;
    int64_t kv_heads, norms;
};

static int read_layout(lf_hf_reader *r, const lf_model_config *c, struct layout *l, lf_err *err)
{
    /* The authors' first files say by their type alone which decoder they have. */
    *l = (struct layout){
        strcmp(json_string_value(json_object_get(r->o, "model_type")), "RefinedWeb") == 0, true,
        true, -1, -1};
    int rc = lf_hf_get_bool(r, "new_decoder_architecture", &l->new_decoder, err);
    if (rc == 0)
        rc = lf_hf_get_bool(r, "multi_query", &l->multi_query, err);
    if (rc == 0)
        rc = lf_hf_get_bool(r, "parallel_attn", &l->parallel, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "num_ln_in_parallel_attn", &l->norms, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "n_head_kv", &l->kv_heads, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "num_kv_heads", &l->kv_heads, err);
    if (rc != 0)
        return rc;
    if (!l->new_decoder) /* num_kv_heads is only read by the new decoder */
        l->kv_heads = l->multi_query ? 1 : c->heads;
    if (l->kv_heads < 0)
        l->kv_heads = c->heads;
    if (l->norms < 0)
        l->norms = l->new_decoder ? 2 : 1;
    if ((l->norms != 1 && l->norms != 2) || (!l->new_decoder && l->norms == 2 && l->parallel))
        return lf_fail(err, LF_ENOTSUP, "%s: num_ln_in_parallel_attn = %lld is not supported",
                       r->path, (long long)l->norms);
    if (l->new_decoder && !l->parallel)
        return lf_fail(err, LF_ENOTSUP,
                       "%s: the new decoder without parallel_attn is not supported", r->path);
    return 0;
}

static int read_falcon(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    struct layout l;
    int64_t ffn = 4 * c->hidden;
    int rc = read_layout(r, c, &l, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "ffn_hidden_size", &ffn, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "ffn_hidden_size", "ffn", (double)ffn, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "num_kv_heads", "kv_heads", (double)l.kv_heads, err);
    if (rc == 0)
        rc = lf_hf_set(r, c, "parallel_attn", "parallel_block",
                       !l.parallel    ? "no"
                       : l.norms == 2 ? "two_norms"
                                      : "one_norm",
                       err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_falcon(const lf_model_config *c, json_t *o, lf_err *err)
{
    bool parallel = c->parallel_block != LF_PARALLEL_NO,
         two = c->parallel_block == LF_PARALLEL_TWO_NORMS;
    bool new_decoder = two || (c->kv_heads != 1 && c->kv_heads != c->heads);
    int rc = lf_hf_write_rope(c, o, err);
    int bad =
        rc != 0 || json_object_set_new(o, "new_decoder_architecture", json_boolean(new_decoder)) ||
        json_object_set_new(o, "multi_query", json_boolean(new_decoder || c->kv_heads == 1)) ||
        json_object_set_new(o, "num_kv_heads", json_integer(c->kv_heads)) ||
        json_object_set_new(o, "parallel_attn", json_boolean(parallel)) ||
        (new_decoder &&
         json_object_set_new(o, "num_ln_in_parallel_attn", json_integer(two ? 2 : 1))) ||
        json_object_set_new(o, "ffn_hidden_size", json_integer(c->ffn));
    return rc != 0 ? rc : bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

static const struct lf_map_row rows[] = {
    {"transformer.word_embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"transformer.h.{L}.input_layernorm.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}",
     "parallel_block!=two_norms"},
    {"transformer.h.{L}.post_attention_layernorm.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}",
     "parallel_block=no"},
    {"transformer.h.{L}.ln_attn.{P}", LF_MAP_COPY, "layers.{L}.attn_norm.{P}",
     "parallel_block=two_norms"},
    {"transformer.h.{L}.ln_mlp.{P}", LF_MAP_COPY, "layers.{L}.mlp_norm.{P}",
     "parallel_block=two_norms"},
    {"transformer.h.{L}.self_attention.query_key_value.{P}", LF_MAP_STACK,
     "groups=kv_heads layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"transformer.h.{L}.self_attention.dense.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"transformer.h.{L}.mlp.dense_h_to_4h.{P}", LF_MAP_COPY, "layers.{L}.mlp.up.{P}", NULL},
    {"transformer.h.{L}.mlp.dense_4h_to_h.{P}", LF_MAP_COPY, "layers.{L}.mlp.down.{P}", NULL},
    {"transformer.ln_f.{P}", LF_MAP_COPY, "final_norm.{P}", NULL},
    {"lm_head.weight", LF_MAP_COPY, "head.weight", NULL},
    {"lm_head.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"transformer.h.{L}.self_attention.rotary_emb.inv_freq", LF_MAP_IGNORED,
     "follows from rope_theta", NULL},
    {"transformer.h.{L}.self_attention.maybe_rotary.inv_freq", LF_MAP_IGNORED,
     "follows from rope_theta", NULL},
    {0},
};

const struct lf_hf_family lf_hf_falcon = {
    .name = "falcon",
    .also = "falcon-7b falcon-40b falcon-11b",
    .model_type = "falcon RefinedWebModel RefinedWeb",
    .architecture = "FalconForCausalLM",
    .classifier = "FalconForSequenceClassification",
    .prefix = "transformer.",
    .switches = switches,
    .keys = keys,
    .rows = rows,
    .read = read_falcon,
    .write = write_falcon,
    .tol_max = LF_HF_TOL_MAX,
    .tol_rms = LF_HF_TOL_RMS,
};
