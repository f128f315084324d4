/* SPDX-License-Identifier: Apache-2.0
 *
 * Kin of Llama with other names, fusions or positions: Mistral, InternLM2. */
#include "engine/convert/families_kin.h"
#include "engine/base/json.h"

static const char *const switches[] = {"norm=rms", "position=rope", "mlp=glu", NULL};

static int read_rope(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    return lf_hf_read_rope(r, c, 10000, err);
}

/* ---- Mistral ---- */

static const struct lf_hf_key mistral_keys[] = {
    KIN_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {0},
};

/* An absent sliding_window means 4096, null means none. */
static int read_mistral(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    int64_t window;
    int rc = lf_hf_get_window(r, 4096, &window, err);
    if (rc == 0 && window >= 0)
        rc = lf_hf_set_number(r, c, "sliding_window", "sliding_window", (double)window, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 10000, err);
}

static int write_mistral(const lf_model_config *c, json_t *o, lf_err *err)
{
    if (json_object_set_new(o, "sliding_window",
                            c->sliding_window > 0 ? json_integer(c->sliding_window) : json_null()))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return lf_hf_write_rope(c, o, err);
}

static const struct lf_map_row mistral_rows[] = {
    KIN_ATTENTION_ROWS, KIN_MLP_ROWS, KIN_HEAD_ROWS, {0}};

const struct lf_hf_family lf_hf_mistral = {
    .name = "mistral",
    .model_type = "mistral",
    .architecture = "MistralForCausalLM",
    .classifier = "MistralForSequenceClassification",
    .prefix = "model.",
    .switches = switches,
    .keys = mistral_keys,
    .rows = mistral_rows,
    .read = read_mistral,
    .write = write_mistral,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};

/* ---- InternLM2 and 2.5 ---- */

static const struct lf_hf_key internlm2_keys[] = {
    KIN_KEYS,
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "null"},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "2048"},
    {"bias", LF_HF_BOOL, "qkv_bias out_bias", "true"},
    {0},
};

static const struct lf_map_row internlm2_rows[] = {
    {"model.tok_embeddings.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.layers.{L}.attention_norm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight", NULL},
    {"model.layers.{L}.attention.wqkv.{P}", LF_MAP_STACK,
     "groups=kv_heads layers.{L}.attn.q.{P} layers.{L}.attn.k.{P} layers.{L}.attn.v.{P}", NULL},
    {"model.layers.{L}.attention.wo.{P}", LF_MAP_COPY, "layers.{L}.attn.o.{P}", NULL},
    {"model.layers.{L}.ffn_norm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight", NULL},
    {"model.layers.{L}.feed_forward.w1.weight", LF_MAP_COPY, "layers.{L}.mlp.gate.weight", NULL},
    {"model.layers.{L}.feed_forward.w3.weight", LF_MAP_COPY, "layers.{L}.mlp.up.weight", NULL},
    {"model.layers.{L}.feed_forward.w2.weight", LF_MAP_COPY, "layers.{L}.mlp.down.weight", NULL},
    {"model.norm.weight", LF_MAP_COPY, "final_norm.weight", NULL},
    {"output.weight", LF_MAP_COPY, "head.weight", NULL},
    {"output.weight", LF_MAP_TIED, "embed.weight", "tied_head=yes"},
    {"model.layers.{L}.attention.rotary_emb.inv_freq", LF_MAP_IGNORED, "follows from rope_theta",
     NULL},
    {0},
};

/* The published code knows "type" only. */
static int write_internlm2(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_rope(c, o, err);
    json_t *s = rc != 0 ? NULL : json_object_get(o, "rope_scaling");
    if (s && (json_object_set(s, "type", json_object_get(s, "rope_type")) ||
              json_object_del(s, "rope_type")))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

const struct lf_hf_family lf_hf_internlm2 = {
    .name = "internlm2",
    .also = "internlm2.5",
    .model_type = "internlm2",
    .architecture = "InternLM2ForCausalLM",
    .prefix = "model.",
    .switches = switches,
    .keys = internlm2_keys,
    .rows = internlm2_rows,
    .read = read_rope,
    .write = write_internlm2,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
