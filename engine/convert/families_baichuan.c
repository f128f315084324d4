/* SPDX-License-Identifier: Apache-2.0
 *
 * Baichuan 1 and 2, 7B and 13B: fused q, k, v; ALiBi in the larger, a normalised head in the second
 * generation. */
#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

static const char *const switches[] = {"norm=rms", "position=rope", "mlp=glu", NULL};

static const struct lf_hf_key baichuan_keys[] = {
    KIN_KEYS, {"gradient_checkpointing", LF_HF_INERT, NULL, NULL}, {0}};

/* The same model_type for four models. The 13B ones have ALiBi, and model_max_length where the
 * others have max_position_embeddings. The second generation normalises the rows of the head; it
 * has 125,696 tokens, and what we write says it by z_loss_weight, which its class of configuration
 * has. */
static int read_baichuan(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool rope = json_object_get(r->o, "max_position_embeddings") != NULL;
    bool second = json_object_get(r->o, "z_loss_weight") != NULL || c->vocab == 125696;
    int64_t longest = 4096;
    double z = 0;
    int rc = lf_hf_get_i64(r, "model_max_length", &longest, err);
    if (rc == 0)
        rc = lf_hf_get_i64(r, "max_position_embeddings", &longest, err);
    if (rc == 0)
        rc = lf_hf_get_f64(r, "z_loss_weight", &z, err);
    rc = rc != 0 ? rc
                 : lf_hf_set_number(r, c, "max_position_embeddings", "max_positions",
                                    (double)longest, err);
    rc = rc != 0
             ? rc
             : lf_hf_set(r, c, "max_position_embeddings", "position", rope ? "rope" : "alibi", err);
    return rc != 0 ? rc : lf_hf_set(r, c, "z_loss_weight", "norm_head", second ? "yes" : "no", err);
}

static int write_baichuan(const lf_model_config *c, json_t *o, lf_err *err)
{
    bool rope = c->position == LF_POS_ROPE;
    if (json_object_set_new(o, rope ? "max_position_embeddings" : "model_max_length",
                            json_integer(c->max_positions)) ||
        (c->norm_head && json_object_set_new(o, "z_loss_weight", json_integer(0))))
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return 0;
}

static const struct lf_map_row baichuan_rows[] = {
    {"model.embed_tokens.weight", LF_MAP_COPY, "embed.weight", NULL},
    {"model.layers.{L}.input_layernorm.weight", LF_MAP_COPY, "layers.{L}.attn_norm.weight", NULL},
    {"model.layers.{L}.self_attn.W_pack.weight", LF_MAP_STACK,
     "layers.{L}.attn.q.weight layers.{L}.attn.k.weight layers.{L}.attn.v.weight", NULL},
    {"model.layers.{L}.self_attn.o_proj.weight", LF_MAP_COPY, "layers.{L}.attn.o.weight", NULL},
    {"model.layers.{L}.post_attention_layernorm.weight", LF_MAP_COPY, "layers.{L}.mlp_norm.weight",
     NULL},
    KIN_MLP_ROWS,
    KIN_HEAD_ROWS,
    {0},
};

const struct lf_hf_family lf_hf_baichuan = {
    .name = "baichuan",
    .also = "baichuan2 baichuan-7b baichuan-13b baichuan2-7b baichuan2-13b",
    .model_type = "baichuan",
    .architecture = "BaichuanForCausalLM",
    .prefix = "model.",
    .switches = switches,
    .keys = baichuan_keys,
    .rows = baichuan_rows,
    .read = read_baichuan,
    .write = write_baichuan,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
