/* SPDX-License-Identifier: Apache-2.0
 *
 * What a decoder is: sizes and switches, read from an INI section [model], and what follows from them by arithmetic
 * (parameter count, FLOPs). One struct covers GPT-2, Llama 1/2/3, Mistral and Qwen 1.5/2/2.5/3; a family is a list of
 * `key = value` presets applied before the explicit keys. No tensors here: see decoder.h.
 *
 *     [model]
 *     preset = llama3-8b        # a file of models/ by name, or a path to an INI file; or
 *     family = llama3           # the switches of a family, no sizes
 *     layers = 4                # explicit keys override either
 *
 * An unknown key, a bad value, or switches that contradict each other are errors naming the key and file:line.
 */
#ifndef LF_MODEL_CONFIG_H
#define LF_MODEL_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/ini.h"
#include "engine/base/json.h"
#include "engine/base/str.h"

enum lf_model_norm { LF_NORM_RMS = 0, LF_NORM_LAYER };
enum lf_model_position { LF_POS_ROPE = 0, LF_POS_LEARNED, LF_POS_ALIBI, LF_POS_NONE };
enum lf_model_rope_scaling { LF_ROPE_PLAIN = 0, LF_ROPE_LINEAR, LF_ROPE_LLAMA3 };
enum lf_model_mlp { LF_MLP_GLU = 0, LF_MLP_PLAIN };
enum lf_model_parallel { LF_PARALLEL_NO = 0, LF_PARALLEL_ONE_NORM, LF_PARALLEL_TWO_NORMS };
enum lf_model_init { LF_MINIT_NORMAL = 0, LF_MINIT_RESIDUAL_SCALED };

#define LF_MODEL_MAX_KEYS 56
#define LF_MODEL_ORIGIN   120

typedef struct lf_model_config {
    char family[24]; /* "gpt2", "llama", ...; "custom" when none was named */

    int64_t layers;        /* L */
    int64_t hidden;        /* C */
    int64_t heads;         /* H query heads */
    int64_t kv_heads;      /* G key/value heads; 0 in a file = heads */
    int64_t head_dim;      /* D; 0 in a file = hidden / heads */
    int64_t ffn;           /* inner width of the MLP */
    int64_t vocab;         /* V; 0 = taken from the data's tokenizer by the stage */
    int64_t max_positions; /* longest position + 1 the model is meant for; rows of a learned position table */

    int norm; /* enum lf_model_norm */
    double norm_eps;
    double norm_offset; /* the norm multiplies by (weight + offset); 0 for the families here */
    bool norm_bias;     /* layer only */
    bool embed_norm;    /* a norm right after the embedding (BLOOM) */

    int position;            /* enum lf_model_position */
    int64_t position_offset; /* added to positions before the learned table (OPT: 2) */
    double rope_theta;
    double rope_fraction;  /* part of head_dim that turns */
    bool rope_interleaved; /* pairs (2i, 2i+1) instead of (i, i + D/2) */
    int rope_scaling;      /* enum lf_model_rope_scaling */
    double rope_factor;
    double rope_low_freq_factor, rope_high_freq_factor; /* llama3 */
    int64_t rope_original_positions;                    /* llama3 */

    int activation; /* enum lf_act */
    int mlp;        /* enum lf_model_mlp: down(act(gate x) * up x), or down(act(up x)) */
    bool qkv_bias, out_bias, mlp_bias, head_bias;
    bool qk_norm;   /* RMSNorm of each query and key head before RoPE (Qwen3) */
    bool tied_head; /* head.weight is embed.weight */

    int64_t sliding_window;    /* key j visible to query i iff i - j < window; 0 = off */
    int64_t max_window_layers; /* layers below this index attend in full (Qwen2); 0: all slide */

    int parallel_block;   /* enum lf_model_parallel: x + attn(norm x) + mlp(norm x) */
    double attn_scale;    /* of q.k; 0 = 1/sqrt(head_dim) */
    double attn_softcap;  /* 0 = off */
    double logit_softcap; /* 0 = off */
    double embed_scale;   /* multiplies the token embedding */

    double embed_dropout, attn_dropout, mlp_dropout; /* attn, mlp: on the branch before it joins the residual */
    double attn_prob_dropout;                        /* on the attention probabilities (GPT-2's attn_pdrop) */

    double init_std;
    int init; /* enum lf_model_init: residual_scaled divides init_std of attn.o and mlp.down by sqrt(2 layers) */

    char origin[LF_MODEL_MAX_KEYS][LF_MODEL_ORIGIN]; /* "file:line" of each key, "" = default */
} lf_model_config;

/* Every key at its default; sizes are 0 and must be given. */
void lf_model_config_defaults(lf_model_config *c);
/* Set one key from text. `where` ("run.ini:12") goes into messages and is kept as the key's origin. LF_EINVAL: unknown
 * key (with the nearest known one), bad value. `family` and `preset` are not keys here. */
int lf_model_config_set(lf_model_config *c, const char *key, const char *value, const char *where, lf_err *err);
/* Apply the switches of a family. LF_EINVAL with the list of families when unknown. */
int lf_model_config_family(lf_model_config *c, const char *family, const char *where, lf_err *err);
/* Read section `section` of ini: preset or family first, then the explicit keys; fill in derived sizes; check. */
int lf_model_config_from_ini(lf_model_config *out, const lf_ini *ini, const char *section, lf_err *err);
/* The same from a file; section [model]. */
int lf_model_config_load(lf_model_config *out, const char *path, lf_err *err);
/* Fill kv_heads and head_dim when 0, then refuse what contradicts itself. vocab may be 0. */
int lf_model_config_finish(lf_model_config *c, lf_err *err);

/* Object of key -> canonical text, `family` included; from_json accepts what to_json made and checks. The form that
 * checkpoints carry. Returns owned. */
json_t *lf_model_config_to_json(const lf_model_config *c, lf_err *err);
int lf_model_config_from_json(lf_model_config *out, json_t *o, const char *what, lf_err *err);
/* Equal in everything that shapes tensors or numbers? *key (may be NULL) names the first difference, borrowed,
 * constant. */
bool lf_model_config_equal(const lf_model_config *a, const lf_model_config *b, const char **key);

/* Channels that RoPE turns: even. 0 when position is not rope. */
int64_t lf_model_rope_dim(const lf_model_config *c);
/* cos and sin tables f32 [positions, rot/2], computed in f64; either may be NULL.
 *     freq_i = theta^(-2i/rot); linear: freq / factor;
 *     llama3: wavelength = 2 pi / freq; longer than original/low: freq / factor; shorter than original/high: freq;
 * between: (1 - s) freq / factor + s freq with s = (original/wavelength - low) / (high - low)        (Llama 3.1
 * release) */
void lf_model_rope_tables(const lf_model_config *c, int64_t positions, float *cos_out, float *sin_out);
/* ALiBi slopes f32 [heads] (Press, Smith, Lewis 2022): 2^(-8k/n) for n = power of two heads, the rest from 2n odd ones.
 */
void lf_model_alibi_slopes(const lf_model_config *c, float *slopes);
/* Window of layer i: 0 = none. */
int64_t lf_model_layer_window(const lf_model_config *c, int64_t layer);

/* Exact number of trainable scalars; a tied head counts once. */
int64_t lf_model_param_count(const lf_model_config *c);
/* Scalars of weights that multiply every token (linear layers and head; no embeddings, norms, biases). */
int64_t lf_model_matmul_params(const lf_model_config *c);
/* FLOPs of a training step per token at sequence length T: 6 matmul_params + attention, where attention is
 * 12 L H D p with p the mean number of keys of a query: full convention p = T, causal p = T/2 (less in windowed
 * layers). Forward alone is a third. */
double lf_model_train_flops_per_token(const lf_model_config *c, int64_t seq_length, bool causal);

#endif
