/* SPDX-License-Identifier: Apache-2.0
 *
 * MiniMax-Text-01: lightning attention, softmax attention among it, and experts. */
#include <stdio.h>

#include "engine/base/json.h"
#include "engine/convert/families_kin.h"

static const struct lf_hf_mixer mixers[] = {
    {"linear_attention", LF_MIXER_LIGHTNING}, {"full_attention", LF_MIXER_FULL}, {0}};

static const char *const switches[] = {"norm=rms",
                                       "position=rope",
                                       "mlp=glu",
                                       "block=alpha",
                                       "router_score=softmax",
                                       "router_renorm=yes",
                                       "scan_gate=sigmoid",
                                       "scan_norm=before_gate",
                                       "scan_norm_parts=1",
                                       "scan_norm_eps=1e-6",
                                       NULL};

static const struct lf_hf_key keys[] = {
    {"vocab_size", LF_HF_NUMBER, "vocab", "32000"},
    {"hidden_size", LF_HF_NUMBER, "hidden", "4096"},
    {"intermediate_size", LF_HF_NUMBER, "ffn expert_ffn", "14336"},
    {"num_hidden_layers", LF_HF_NUMBER, "layers", "32"},
    {"num_attention_heads", LF_HF_NUMBER, "heads scan_heads scan_groups", "32"},
    {"num_key_value_heads", LF_HF_NUMBER, "kv_heads", "8"},
    {"head_dim", LF_HF_NUMBER, "head_dim", "null"},
    {"hidden_act", LF_HF_ACT, "activation", "\"silu\""},
    {"max_position_embeddings", LF_HF_NUMBER, "max_positions", "131072"},
    {"rms_norm_eps", LF_HF_NUMBER, "norm_eps", "1e-5"},
    {"initializer_range", LF_HF_NUMBER, "init_std", "0.02"},
    {"attention_dropout", LF_HF_NUMBER, "attn_prob_dropout", "0"},
    {"tie_word_embeddings", LF_HF_BOOL, "tied_head", "false"},
    {"sliding_window", LF_HF_UNREAD, NULL, "null"},
    {"num_local_experts", LF_HF_NUMBER, "experts", "8"},
    {"num_experts_per_tok", LF_HF_NUMBER, "experts_per_token", "2"},
    {"router_aux_loss_coef", LF_HF_NUMBER, "router_aux", "0.001"},
    {"router_jitter_noise", LF_HF_SAME, NULL, "0.0"},
    {"output_router_logits", LF_HF_INERT, NULL, NULL},
    {"block_size", LF_HF_INERT, NULL, NULL}, /* rows of a chunk, which change no result */
    {0},
};

#define DERIVED "it follows from the number of the head and of the layer"

static const struct lf_map_row rows[] = {
    KIN_ATTENTION_ROWS,
    KIN_HEAD_ROWS,
    MIXTRAL_EXPERT_ROWS,
    {"model.layers.{L}.self_attn.qkv_proj.weight", LF_MAP_STACK,
     "groups=scan_heads layers.{L}.scan.q.weight layers.{L}.scan.k.weight "
     "layers.{L}.scan.v.weight",
     NULL},
    {"model.layers.{L}.self_attn.output_gate.weight", LF_MAP_COPY, "layers.{L}.scan.z.weight",
     NULL},
    {"model.layers.{L}.self_attn.norm.weight", LF_MAP_COPY, "layers.{L}.scan.norm.weight", NULL},
    {"model.layers.{L}.self_attn.out_proj.weight", LF_MAP_COPY, "layers.{L}.scan.o.weight", NULL},
    {"model.layers.{L}.self_attn.slope_rate", LF_MAP_IGNORED, DERIVED, NULL},
    {"model.layers.{L}.self_attn.query_decay", LF_MAP_IGNORED, DERIVED, NULL},
    {"model.layers.{L}.self_attn.key_decay", LF_MAP_IGNORED, DERIVED, NULL},
    {"model.layers.{L}.self_attn.diagonal_decay", LF_MAP_IGNORED, DERIVED, NULL},
    {0},
};

/* In the order of residual_factors. */
static const char *const factors[] = {"full_attn_alpha_factor",   "full_attn_beta_factor",
                                      "linear_attn_alpha_factor", "linear_attn_beta_factor",
                                      "mlp_alpha_factor",         "mlp_beta_factor"};
enum { FACTORS = sizeof factors / sizeof *factors };

static int read_factors(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    char text[FACTORS * 26] = "";
    int rc = 0;
    for (size_t i = 0, at = 0; i < FACTORS && rc == 0; i++) {
        double x = 1;
        rc = lf_hf_get_f64(r, factors[i], &x, err);
        if (rc == 0 && !(x > 0 && x <= 1e6))
            rc =
                lf_fail(err, LF_ENOTSUP, "%s: %s = %g is outside 0 to 1e6", r->path, factors[i], x);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%.17g", i ? "," : "", x);
    }
    return rc != 0 ? rc : lf_hf_set(r, c, factors[0], "residual_factors", text, err);
}

static int read_lightning(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    const double width = (double)lf_hf_head_dim(c);
    int rc = lf_hf_set_number(r, c, "head_dim", "scan_key_dim", width, err);
    rc = rc != 0 ? rc : lf_hf_set_number(r, c, "head_dim", "scan_value_dim", width, err);
    rc = rc != 0 ? rc : lf_hf_read_mixers(r, c, mixers, "fl*", err);
    rc = rc != 0 ? rc : read_factors(r, c, err);
    return rc != 0 ? rc : lf_hf_read_rope(r, c, 1000000, err);
}

static int write_lightning(const lf_model_config *c, json_t *o, lf_err *err)
{
    for (size_t i = 0; i < FACTORS; i++) {
        const double same = i % 2 ? c->residual_scale : c->residual_alpha,
                     x = c->residual_factors.n ? c->residual_factors.v[i] : same;
        if (json_object_set_new(o, factors[i], json_real(x)))
            return lf_fail(err, LF_ENOMEM, "out of memory");
    }
    int rc = lf_hf_write_mixers(c, o, mixers, err);
    return rc != 0 ? rc : lf_hf_write_rope(c, o, err);
}

const struct lf_hf_family lf_hf_minimax_text = {
    .name = "minimax-text",
    .model_type = "minimax",
    .architecture = "MiniMaxForCausalLM",
    .native = true,
    .prefix = "model.",
    .switches = switches,
    .keys = keys,
    .rows = rows,
    .read = read_lightning,
    .write = write_lightning,
    .tol_max = 1e-4,
    .tol_rms = 1e-5,
};
