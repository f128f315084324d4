/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a decoder: sizes and switches, read from an INI section [model], and numbers
 * that follow from them (parameter count, FLOPs). One struct describes every decoder of families.c.
 * A family is a list of `key = value` that is applied before the explicit keys. Tensors are in
 * decoder.h.
 *
 *     [model]
 *     preset = llama3-8b        # a file of models/ by name, or a path to an INI file; or
 *     family = llama3           # the switches of a family, no sizes
 *     layers = 4                # explicit keys override either
 *
 * Unknown keys, bad values, and switches that contradict each other are errors. The message names
 * the key and file:line.
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
enum lf_model_block {
    LF_BLOCK_PRE = 0,
    LF_BLOCK_POST,
    LF_BLOCK_SANDWICH,
    LF_BLOCK_ALPHA,
    LF_BLOCK_OUT,
    LF_BLOCK_OUT_ATTENTION
};
/* Numbers of residual_factors. */
#define LF_MODEL_RESIDUAL_FACTORS 6
enum lf_model_position {
    LF_POS_ROPE = 0,
    LF_POS_LEARNED,
    LF_POS_ALIBI,
    LF_POS_NONE,
    LF_POS_ROPE2D,
    LF_POS_RELATIVE
};
enum lf_model_mask { LF_MASK_CAUSAL = 0, LF_MASK_PREFIX, LF_MASK_IMAGE_BLOCKS, LF_MASK_BOTH };
enum lf_model_rope_scaling {
    LF_ROPE_PLAIN = 0,
    LF_ROPE_LINEAR,
    LF_ROPE_LLAMA3,
    LF_ROPE_YARN,
    LF_ROPE_LONGROPE,
    LF_ROPE_DYNAMIC,
    LF_ROPE_PROPORTIONAL
};
/* x max(x, 0), square of relu: an activation of [model] beyond those of enum lf_act (kernels.h)
 * to LF_ACT_RELU, which are all that [model] names. */
#define LF_MODEL_RELU2 6
/* xIELU, with two trained numbers of each layer (lf_xielu of engine/graph/graph.h) */
#define LF_MODEL_XIELU 7
enum lf_model_mlp { LF_MLP_GLU = 0, LF_MLP_PLAIN };
enum lf_model_parallel { LF_PARALLEL_NO = 0, LF_PARALLEL_ONE_NORM, LF_PARALLEL_TWO_NORMS };
enum lf_model_router { LF_ROUTER_SOFTMAX = 0, LF_ROUTER_SIGMOID };
/* What multiplies the output of a scan, and where its RMS norm stands: none, before, behind. */
enum lf_model_scan_gate { LF_SCAN_UNGATED = 0, LF_SCAN_SILU, LF_SCAN_SIGMOID };
enum lf_model_scan_norm { LF_SCAN_NO_NORM = 0, LF_SCAN_NORM_FIRST, LF_SCAN_GATE_FIRST };
/* The columns of scan_scales: gate, values, keys, queries, steps. */
enum { LF_SCALE_Z = 0, LF_SCALE_V, LF_SCALE_K, LF_SCALE_Q, LF_SCALE_A, LF_SCAN_SCALES };
enum lf_model_init { LF_MINIT_NORMAL = 0, LF_MINIT_RESIDUAL_SCALED, LF_MINIT_T5 };
enum lf_model_output { LF_OUTPUT_TOKENS = 0, LF_OUTPUT_SCORE, LF_OUTPUT_LABELS };
/* What a label is of; which token of a text its labels are read at; what is between. */
enum lf_model_labels_of { LF_LABELS_OF_TEXT = 0, LF_LABELS_OF_TOKEN, LF_LABELS_OF_SPAN };
enum lf_model_label_row { LF_LABEL_LAST = 0, LF_LABEL_FIRST };
enum lf_model_label_head {
    LF_LABEL_PLAIN = 0,
    LF_LABEL_TANH,
    LF_LABEL_RELU,
    LF_LABEL_TRANSFORM,
    LF_LABEL_GELU
};
enum lf_model_mtp_join { LF_MTP_EMBED_HIDDEN = 0, LF_MTP_HIDDEN_EMBED };
enum lf_model_mtp_mlp { LF_MTP_MLP_LAST = 0, LF_MTP_MLP_DENSE };
enum lf_model_mtp_norm { LF_MTP_NORM_OWN = 0, LF_MTP_NORM_FINAL };
/* Where the norm of a merge stands: of all merged patches together, behind the product, of each
 * patch. */
enum lf_merge_norm { LF_MERGE_TOGETHER = 0, LF_MERGE_BEHIND, LF_MERGE_EACH };
enum lf_projector_kind { LF_PROJECTOR_LINEAR = 0, LF_PROJECTOR_MLP };
enum lf_projector_norm { LF_PROJECTOR_NO_NORM = 0, LF_PROJECTOR_RMS, LF_PROJECTOR_LAYER };
enum lf_model_score_init { LF_SINIT_SQRT = 0, LF_SINIT_INVERSE, LF_SINIT_STD, LF_SINIT_ZERO };

#define LF_MODEL_MAX_KEYS    256
#define LF_MODEL_ORIGIN      120
#define LF_MODEL_MAX_TAPS    16  /* of an encoder */
#define LF_MODEL_MAX_FACTORS 128 /* most pairs of channels that turn */
#define LF_MODEL_PATTERN     512

/* What the layers are, in letters from the first layer on: runs between commas, each of which
 * repeats its letters N times with *N, and to the last layer with * alone. "wwwwwf*" is a full
 * layer behind every five with a window, "d*3,m*" three dense layers and then experts. Finished
 * descriptions have the shortest such text, and "" where it says what holds without it. */
struct lf_model_pattern {
    char text[LF_MODEL_PATTERN];
};
/* The letters: of layer_mixers, what mixes tokens: attention, over all tokens before, over those in
 * a window, over those in the same chunk; a scan (kernels/scan.h), which is
 * Mamba-2's, Gated DeltaNet, Kimi Delta Attention or lightning attention; attention and Mamba-2
 * side by side; a short convolution; nothing; */
enum {
    LF_MIXER_FULL = 'f',
    LF_MIXER_WINDOW = 'w',
    LF_MIXER_CHUNK = 'h',
    LF_MIXER_NONE = 'n',
    LF_MIXER_SSD = 's',
    LF_MIXER_DELTA = 'g',
    LF_MIXER_KDA = 'k',
    LF_MIXER_LIGHTNING = 'l',
    LF_MIXER_BOTH = 'b',
    LF_MIXER_CONV = 'c'
};
/* of layer_mlps: an MLP, experts, both side by side (moe.c), nothing; */
enum { LF_MLP_DENSE = 'd', LF_MLP_EXPERTS = 'm', LF_MLP_BOTH = 'b', LF_MLP_NONE = 'n' };
/* of layer_positions: how queries and keys turn. */
enum { LF_TURN_ROPE = 'r', LF_TURN_LOCAL = 'l', LF_TURN_NONE = 'n' };

/* A list of numbers, as the text "1.0,1.2,...". */
typedef struct lf_model_list {
    int64_t n;
    double v[LF_MODEL_MAX_FACTORS];
} lf_model_list;
/* Is x in the list? */
bool lf_model_list_has(const lf_model_list *l, int64_t x);

/* An encoder of pictures (vision.h), of a model that sees: keys vision.*. */
typedef struct lf_vision_config {
    int family; /* of vision.c, from 1 on; 0: it sees nothing, and no other key is read */
    int64_t layers, hidden, heads, head_dim, ffn;
    int64_t patch_dim; /* K */
    bool patch_bias, class_token;
    bool distill_token;   /* a second one behind it, which learns what a teacher says (DeiT) */
    int64_t positions;    /* T, rows of the table; 0: none */
    bool fixed_positions; /* the table is sines and cosines (pstore.h), and frozen (MAE) */
    /* rotary positions of two axes: the first half of a head's pairs turns by the patch's row, the
     * second by its column, with the frequencies rope_theta^(-4 j / head_dim) (Qwen2-VL) */
    bool rope;
    double rope_theta;
    /* columns turn by frequencies of their own, half a step below those of rows:
     * rope_theta^(-(4 j + 2) / head_dim) (Pixtral) */
    bool rope_own;
    bool rope_interleaved; /* pairs (2i, 2i + 1) of a head instead of (i, i + head_dim / 2) */
    /* rows and columns turn as if the side of the positions' square had so many patches (EVA-02,
     * which was first trained on that grid); 0: by their numbers */
    int64_t rope_side;
    /* a picture of another grid than the table's takes for each patch the position that lies at the
     * same share of the side, and nothing between two (Idefics 3) */
    bool buckets;
    /* ... or a mean of those around it, weighed by their distance over as much of the table as a
     * patch covers: bilinear with antialias (SigLIP 2) */
    bool smooth_positions;
    int norm; /* enum lf_model_norm; layer has a bias */
    double norm_eps;
    bool pre_norm, final_norm;
    bool qkv_bias, bias; /* of q, k, v; of the other linear layers of its blocks */
    bool bare_keys;      /* keys have no bias, though qkv_bias is set (EVA) */
    bool qk_norm;        /* RMS norms of queries and keys, over all heads together (InternViT) */
    /* a norm of all heads together before attn.o, and one before mlp.down (sub-LN, EVA-02) */
    bool attn_inner_norm, mlp_inner_norm;
    bool layer_scale; /* Touvron et al. 2021, CaiT */
    int mlp;          /* enum lf_model_mlp */
    int activation;   /* enum lf_act */
    bool windows;     /* attention within windows, but for full_layers (Qwen2.5-VL) */
    int64_t window;   /* patches of a window's side, a multiple of projector.merge */
    lf_model_list full_layers;
    /* Stages (Liu et al. 2021, Swin; 2022, ConvNeXt): layers, widths and heads of each, of which
     * the last are hidden and heads; ffn is of the last, and of others as many times their width.
     * Empty: there is one stage. From one to the next 2 x 2 patches become one, by a norm
     * (merge_norm, enum lf_merge_norm) and a product, which has a bias with merge_bias */
    lf_model_list stage_layers, stage_widths, stage_heads;
    int merge_norm;
    bool merge_bias;
    int64_t grid; /* with stages: all pictures have so many patches a side */
    /* attention within windows, which lie half a window further in every second layer of a stage,
     * with a number of each head for how far a key is from the query, up and sideways (Swin) */
    bool shifted;
    /* side of a convolution of each channel by itself, in place of attention (ConvNeXt); 0: there
     * is none */
    int64_t conv_taps;
    bool mix_patches; /* a matrix over the patches of a picture in place of attention (ResMLP) */
    bool affine;      /* with norm = layer: x w + b, which normalises nothing */
    /* the cosine of queries and keys times a number of the head, and an MLP of two layers makes the
     * numbers of distances (Liu et al. 2022, Swin v2) */
    bool cosine;
    bool out_norm; /* norms stand behind attention and MLP, before their results are added */
    /* with cosine: the side of the windows by which distances are measured, of each stage; 0 or
     * none: its own */
    lf_model_list trained_windows;
    double init_std, layer_scale_init;
    /* What of it is read: the stream behind so many layers (0: all; LLaVA reads the last but one),
     * without final_norm unless all layers run and read_norm is set. Tensors that nothing reads
     * are kept for export, and frozen. */
    int64_t read_layers;
    bool read_norm;
    /* or the stream behind so many layers each, 0: what enters the first, side by side in this
     * order; the most of them are read_layers (LLaVA with several layers, VipLLaVA) */
    lf_model_list read_states;
    lf_model_list taps; /* ascending; what these layers give enters the first decoder layers */
} lf_vision_config;

/* From rows of the encoder to rows of the decoder's embedding (composed.h): keys projector.*. */
typedef struct lf_projector_config {
    int kind;         /* enum lf_projector_kind; mlp: linear, activation, linear */
    int64_t merge;    /* m: m x m patches become one row, side by side */
    int64_t pool;     /* k: k x k patches become one row, their mean (Gemma 3) */
    int norm;         /* enum lf_projector_norm, before the linear layers */
    bool norm_merged; /* of all m x m patches together, and not of each */
    double norm_eps, norm_offset;
    bool reduce;    /* a matrix takes merged patches back to the width of one (Mistral 3) */
    int64_t hidden; /* inner width of mlp; 0 in a file: its input's width */
    int activation;
    bool bias;
    /* the class token of a picture goes on too, before its patches (LLaVA, select strategy full) */
    bool keep_class;
    bool newline; /* a learned row behind each row of patches (LLaVA-NeXT) */
    /* with newline: more patches than those of so many tiles are shrunk to as many (anyres_max_9
     * of LLaVA-OneVision); 0: never */
    int64_t most_tiles;
} lf_projector_config;

/* The decoder of a masked autoencoder (mae.h), which the encoder of pictures is trained with: keys
 * mae.*. A model that has one is these two and nothing else: no projector, no text decoder. */
typedef struct lf_mae_config {
    int64_t layers; /* 0: there is none */
    int64_t hidden, heads;
    int64_t ffn; /* 0 in a file: 4 hidden */
} lf_mae_config;

/* Classes of pictures, which an encoder of its own tells (classes.h): keys classes.*. A model that
 * has them is the encoder and its heads and nothing else. */
enum lf_class_read { LF_CLASS_FIRST = 0, LF_CLASS_MEAN, LF_CLASS_BOTH };
extern const char *const lf_class_reads[]; /* their names; NULL ends */
typedef struct lf_classes_config {
    int64_t labels;  /* N; 0: there are none */
    int read;        /* enum lf_class_read: the class token, the mean of the patches, both tokens */
    double norm_eps; /* of a norm behind that; 0: there is none */
    bool norm;       /* what is read is normalised by constants before the heads */
} lf_classes_config;

/* Towers of pictures and texts that share a space (dual.h): keys dual.*. The text tower is the
 * model without its head, and there is no projector. */
enum lf_dual_read { LF_DUAL_CLASS = 0, LF_DUAL_ATTENTION };
typedef struct lf_dual_config {
    int64_t dim;    /* D; 0: there are none */
    int read;       /* enum lf_dual_read: pictures at the class token, or by an attention head */
    bool text_bias; /* of the projection of texts */
    bool bias;      /* added to what a picture and a text are to each other */
    bool padded;    /* texts are filled up to max_positions */
    int64_t pad_token;
    int64_t end_token; /* a text is read at its first token of this number; -1: at its last one */
    double scale_init, bias_init; /* what both numbers are at first; the scale is an exponent */
} lf_dual_config;

typedef struct lf_model_config {
    char family[24]; /* "gpt2", "llama", ...; "custom" when none was named */

    int64_t layers; /* L */
    /* Attention over all tokens before, over sliding_window of them, over those of the same
     * attn_chunk, another mixer, or none; where it is "", all are w with sliding_window, else f */
    struct lf_model_pattern layer_mixers;
    struct lf_model_pattern
        layer_mlps; /* dense, experts, both, or none; "": all m with experts, else d */
    /* With position = rope: turned by rope_theta (r), by rope_local_theta (l), or not at all (n);
     * "": l with rope_local_theta and a window, else r */
    struct lf_model_pattern layer_positions;
    int64_t hidden;   /* C */
    int64_t heads;    /* H query heads; 0: no layer attends */
    int64_t kv_heads; /* G key/value heads; 0 in a file = heads */
    int64_t head_dim; /* D; 0 in a file = hidden / heads */
    /* Multi-head latent attention (mla.c): keys and values are made of a latent of kv_lora
     * channels; 0: of x, and nothing below is read but at its default. A head's key has nope_dim
     * channels of its own and rope_dim that turn and that all heads share: D = nope_dim + rope_dim,
     * G = H */
    int64_t kv_lora;
    int64_t q_lora; /* queries are made of a latent too; 0: of x */
    int64_t nope_dim, rope_dim;
    int64_t v_dim;          /* E: channels of a head's value */
    double mla_norm_eps;    /* of the norms of both latents */
    double rope_mscale_all; /* yarn: scores times (0.1 rope_mscale_all log(factor) + 1)^2; 0: 1 */
    int64_t ffn;            /* inner width of the MLP; 0: no layer has one */
    int64_t vocab;          /* V; 0 = the stage takes it from the tokenizer of the data */
    /* longest position + 1 that the model is made for; rows of a learned position table */
    int64_t max_positions;

    /* E: width of the embedding and of the input of the head, with projections to and from C; 0 = C
     * (OPT-350m: 512) */
    int64_t embed_dim;
    /* With embed_dim: positions, types of tokens and embed_norm are of the narrow embedding, too;
     * embed_in, which then has a bias, is behind them; head_transform leads back to E, and other
     * heads read C. There is no embed_out (ELECTRA) */
    bool embed_narrow;

    int block; /* enum lf_model_block: where the norms of a layer stand, see decoder.h */
    double residual_alpha; /* block = alpha; 0 in a file = sqrt(2 layers) */
    double residual_scale; /* multiplies what attention and MLP add to the stream (Granite) */
    /* block = alpha: factors of h and of f(h) in place of both, for attention, for other mixers,
     * for the MLP (MiniMax-Text-01); empty: none */
    lf_model_list residual_factors;
    bool final_norm; /* a norm after the last layer */

    int norm; /* enum lf_model_norm */
    double norm_eps;
    double norm_offset; /* the norm multiplies by (weight + offset): 1 in Gemma, else 0 */
    bool norm_weight;   /* no: norms of the stream multiply by nothing (OLMo, nanochat) */
    bool norm_bias;     /* layer only */
    bool embed_norm;    /* a norm right after the embedding (BLOOM) */
    /* no: the attention of the first layer reads the stream as it is (ModernBERT) */
    bool first_norm;

    int position;            /* enum lf_model_position */
    int64_t position_offset; /* added to positions before the learned table (OPT: 2) */
    /* types of tokens, each with a row that is added to the embedding: which text of a pair it is
     * of (BERT); 0: none */
    int64_t token_types;
    double rope_theta;
    /* of layers with the position l, to which rope_scaling does not apply (Gemma 3); 0 =
     * rope_theta */
    double rope_local_theta;
    /* share of head_dim that turns; with rope_scaling = proportional, of the pairs of layers with
     * the position r that turn at all */
    double rope_fraction;
    bool rope_interleaved; /* pairs (2i, 2i+1) instead of (i, i + D/2) */
    bool rope_backwards;   /* they turn by -p f, the other way (nanochat) */
    int rope_scaling;      /* enum lf_model_rope_scaling */
    double rope_factor;
    double rope_low_freq_factor, rope_high_freq_factor; /* llama3 */
    double rope_beta_fast, rope_beta_slow;              /* yarn: turns over the original length */
    bool rope_truncate; /* yarn: the ends of the ramp are whole pairs */
    /* yarn, longrope: multiplies cos and sin; 0 = the rule of the scaling, see
     * lf_model_rope_tables */
    double rope_attn_factor;
    lf_model_list rope_short_factors, rope_long_factors; /* longrope: divisors of the frequencies */
    /* llama3, yarn, longrope, dynamic: the sequence length of the first training */
    int64_t rope_original_positions;
    /* n > 0: the query of position i >= n is multiplied by log(i + 1) / log(n) (Qwen 1); 0 = off */
    int64_t logn_length;
    /* b > 0: the query of position i is multiplied by 1 + b log(1 + floor(i / n)), n =
     * rope_original_positions, in layers that turn (Ministral 3); 0 = off */
    double query_growth;
    /* the same in layers that do not turn (layer_positions n), with (i + 1) / n and n =
     * nope_growth_length (Llama 4) */
    double nope_growth;
    int64_t nope_growth_length;

    int activation; /* enum lf_act, or LF_MODEL_RELU2, LF_MODEL_XIELU with mlp = plain */
    int mlp;        /* enum lf_model_mlp: down(act(gate x) * up x), or down(act(up x)) */
    /* of gated MLPs, and experts: n > 0 cuts gate x to at most n and up x to [-n, n]; what is added
     * to up x behind that. A gradient is 0 where its value was cut (gpt-oss) */
    double glu_limit, glu_up_offset;
    double mlp_gate_scale; /* multiplies gate x of layers without experts (Falcon-H1) */
    double mlp_out_scale;  /* what these layers add */
    bool qkv_bias, out_bias, mlp_bias, head_bias;
    /* attention times sigmoid(x attn.gate) before the projection back (Qwen3-Next) */
    bool attn_gate;
    bool qk_norm; /* RMSNorm of each query and key head before RoPE (Qwen3) */
    /* with qk_norm: one norm over all heads of a token, with a weight for each channel (OLMo 2); it
     * stands behind RoPE (Hunyuan) */
    bool qk_norm_all_heads, qk_norm_after_rope;
    /* RMS norms without weights of each query and key head behind RoPE, in layers that turn (Llama
     * 4) */
    bool qk_unit_norm;
    /* Gemma 4: values are normalised per head, without a weight; layers without a window have no
     * projection of values, which are what keys are before norm and rope */
    bool v_norm, keys_as_values;
    /* So many last layers make no keys and values: each reads those of the last layer before them
     * of its own mixer (f or w). Their MLP has the inner width kv_shared_ffn; 0 = ffn */
    int64_t kv_shared_layers, kv_shared_ffn;
    /* P > 0: behind its MLP a layer reads P channels of its own that a token has (per_layer.c);
     * tokens from per_layer_vocab on read those of token 0, 0 = all tokens have their own */
    int64_t per_layer_dim, per_layer_vocab;
    /* N > 0: streams side by side, of which layers compute the first (altup.c) */
    int64_t altup_streams;
    int64_t laurel_rank; /* > 0: a low-rank branch beside each mixer (altup.c) */
    /* of each layer, as far as the list goes: the share of its MLP's gate that is cut off by mean
     * and standard deviation of the row, before the activation; 0: nothing is */
    lf_model_list gate_sparsity;
    bool layer_gain; /* what a layer gives is multiplied by a frozen number of it */
    bool tied_head;  /* head.weight is embed.weight */
    bool norm_head;  /* logits = x . w_v / |w_v| (Baichuan 2) */
    /* the head reads norm(act(W x + b)) with a square W, b with head_transform_bias (BERT) */
    bool head_transform, head_transform_bias;
    /* enum lf_model_output; score: one number per token, x . score.weight, in place of the head
     * over the vocabulary (reward models, critics); labels: `labels` numbers (labels.c); the keys
     * of that head then have no effect */
    int output;
    /* With output = labels: N numbers of each text, token or span. Those of a text are read at one
     * of its tokens; a span has two of each token, whether it begins there and whether it ends */
    int64_t labels;
    int labels_of;  /* enum lf_model_labels_of */
    int label_row;  /* enum lf_model_label_row, of labels_of = text */
    int label_head; /* enum lf_model_label_head: what stands before the last matrix */
    bool label_bias;
    /* besides tokens, of encoders: of each pair of texts two numbers, whether the second follows
     * the first (nsp.c) */
    bool nsp_head;
    /* of encoders that tell replaced tokens: the second encoder that makes the replacements, with
     * the embedding of this one (electra.h); generator_layers = 0: there is none */
    int64_t generator_layers, generator_hidden, generator_heads, generator_ffn;
    /* Heads of multi-token prediction (mtp.c), which stand behind the layers as layers L, L + 1 ...
     * of the kind of the last one; 0: none */
    int64_t mtp_layers;
    int mtp_join; /* enum lf_model_mtp_join: what comes first of what such a head reads */
    int mtp_mlp;  /* enum lf_model_mtp_mlp: of its layer: as in the last one, or without experts */
    int mtp_norm; /* enum lf_model_mtp_norm: behind it: one of its own, or the model's final norm */

    /* enum lf_model_mask; prefix: the first tokens of a document see each other, in windowed layers
     * too; image_blocks: a token of a picture sees the picture's tokens behind it, in windowed
     * layers too (Gemma 3); both: all tokens of a document see each other (encoders of texts). See
     * decoder.h */
    int mask;
    /* key j visible to query i iff i - j < window, with mask = both iff |i - j| < window; 0 = off
     */
    int64_t sliding_window;
    int64_t attn_chunk; /* n of layers with h: key j visible to query i iff i / n = j / n */
    /* of the layers with a window, where theirs differ; 0 = kv_heads, head_dim. The window's
     * head_dim needs rope_local_theta where positions turn */
    int64_t window_kv_heads, window_head_dim;

    /* Mixers that scan (mixer.c): H heads of Dv channels, of which H / G in a row share a key head
     * of Dk. Without layers of theirs nothing below is read */
    int64_t scan_heads;      /* H */
    int64_t scan_groups;     /* G; 0 in a file = scan_heads */
    int64_t scan_key_dim;    /* Dk; of Mamba-2 the size of the state, N */
    int64_t scan_value_dim;  /* Dv */
    int64_t scan_conv;       /* taps of the convolution before it, or of the mixer c; 0: none */
    bool scan_conv_bias;     /* of the convolution */
    bool scan_bias;          /* of the projections to and from it */
    int scan_gate;           /* enum lf_model_scan_gate */
    int scan_norm;           /* enum lf_model_scan_norm */
    int64_t scan_norm_parts; /* its norm is over so many parts of a row; 0: over each head, and all
                                heads have one weight */
    double scan_norm_eps;    /* 0 in a file = norm_eps */
    int64_t scan_rank;       /* k: inner width of the projections to decays and to the gate */
    double scan_step_min, scan_step_max; /* but for l: where steps are cut; 0 = above nothing is */
    /* of layers with g and k: multiplies how strongly a token writes, a sigmoid; above 1 the state
     * may change its sign along a key (OLMo Hybrid: 2) */
    double scan_strength;
    /* multiply what the projection gives; all 1 where it is empty (Falcon-H1) */
    lf_model_list scan_scales;
    double scan_in_scale, scan_out_scale; /* s, b: multiply what the scan reads and gives */
    double attn_in_scale, attn_out_scale; /* likewise of attention */

    int parallel_block;  /* enum lf_model_parallel: x + attn(norm x) + mlp(norm x) */
    double attn_scale;   /* of q.k; 0: see lf_model_layer_attn_scale */
    double attn_softcap; /* 0 = off */
    bool attn_sinks; /* a learned score of each head that joins the softmax and weighs nothing */
    double logit_softcap; /* 0 = off */
    double logit_scale;   /* multiplies the logits, before logit_softcap (Cohere, Granite) */
    double embed_scale;   /* multiplies the token embedding */

    /* attn, mlp: on the branch before it joins the residual */
    double embed_dropout, attn_dropout, mlp_dropout;
    double attn_prob_dropout; /* on the attention probabilities (GPT-2's attn_pdrop) */

    /* Mixture of experts: in a MoE layer the MLP is
     *     sum over the experts_per_token chosen experts of weight * MLP_e(x)
     *     + shared MLP(x), times sigmoid(g . x) with shared_gate
     * where the MLPs have a gate as `mlp` says */
    int64_t experts;           /* E; 0: none, and nothing below is read */
    int64_t experts_per_token; /* k */
    int64_t expert_ffn;        /* inner width of an expert; 0 in a file = ffn */
    /* width of what the chosen experts read and give, with projections of all of x to it and back
     * (Nemotron 3); 0 = hidden */
    int64_t expert_latent;
    int64_t shared_ffn; /* of the shared expert; 0 = none */
    bool shared_gate;
    bool expert_bias;        /* gate, up and down of each expert have a bias */
    bool router_linear_bias; /* logits of experts have a trained bias */
    /* the router reads the stream through an RMS norm of its own, over sqrt(hidden) (Gemma 4); the
     * weight of an expert is multiplied by a trained number of it, last of all */
    bool router_norm, expert_gain;
    int router_score; /* enum lf_model_router */
    /* weights of the chosen experts are made to sum to 1 (before router_scale) */
    bool router_renorm;
    /* the weight of the one chosen expert multiplies what it reads, not what it gives (Llama 4) */
    bool router_on_input;
    double router_scale;
    /* 1: every expert can be chosen; else see kernels.h, moe_route */
    int64_t router_groups, router_top_groups;
    bool router_bias; /* a bias that affects the choice only, */
    /* moved by this much against the load after each optimizer step; 0 = held */
    double router_bias_rate;
    /* coefficient of the load-balancing loss of a micro-batch (kernels.h, moe_route_bwd). The
     * reported loss does not contain it. Its mean over micro-batches and ranks counts, so it
     * depends on how a batch is divided */
    double router_aux;
    /* in training on tokens an expert takes at most so many times the mean number of rows of an
     * expert in a micro-batch, rounded up; it drops those behind, in the order of the rows
     * (kernels.h, moe_keep). Graphs that are not trained on tokens drop nothing: validation,
     * generate, eval, score, and the objectives of rm, dpo and ppo. 0: nothing is dropped */
    double capacity_factor;

    double init_std;
    /* enum lf_model_init: the standard deviation of matrices is init_std; residual_scaled divides
     * that of attn.o and mlp.down by sqrt(2 layers); t5 has init_std for embedding and head,
     * init_std / sqrt(n) for others of n columns (hidden for tables by distance), and for those of
     * queries init_std / sqrt(n head_dim); norms begin with init_std (transformers, T5:
     * initializer_factor) */
    int init;
    /* enum lf_model_score_init: standard deviation of score.weight [1, E] at first: 1/sqrt(E + 1)
     * (Stiennon et al. 2020, as their code has it), 1/(E + 1) (as their paper has it; OpenRLHF),
     * init_std (transformers), 0 */
    int score_init;

    /* M-RoPE (Wang et al. 2024, Qwen2-VL): a token has three positions, and so many pairs of a head
     * turn by each: time, row, column. interleaved: pairs 1, 4, 7 ... turn by the row and 2, 5, 8
     * ... by the column as long as they have some, all others by time (Qwen3-VL) */
    lf_model_list rope_sections;
    bool rope_sections_interleaved;

    lf_vision_config vision;
    lf_projector_config projector;
    lf_mae_config mae;
    lf_classes_config classes;
    lf_dual_config dual;
    /* with mask = prefix: the prefix has the last token of a prompt, which predicts the first that
     * is trained; else it ends before that one */
    bool prefix_last;
    int64_t image_token; /* stands where a picture's row goes; its embedding is not read */

    /* Encoder-decoders (seq2seq.c): so many layers, which see all of the source text, stand before
     * the decoder, and each of its layers attends to what they give, between its mixer and its MLP.
     * Both stacks have one embedding; all else is of each, and described by the same keys. 0: it is
     * a decoder alone, and the next three are not read */
    int64_t encoder_layers;
    int64_t encoder_heads, encoder_ffn; /* 0 in a file = heads, ffn */
    int64_t decoder_start;              /* the token before the first of a target */
    /* position = relative: scores get a number of the head and of the bucket of the distance, from
     * a table that all layers of a stack share, or that each layer has (lf_model_relative_bucket;
     * Raffel et al. 2020, T5) */
    int64_t relative_buckets, relative_distance;
    bool relative_each_layer;

    char origin[LF_MODEL_MAX_KEYS][LF_MODEL_ORIGIN]; /* "file:line" of each key, "" = default */
} lf_model_config;

/* Sets every key to its default. Sizes are 0 and must be given. */
void lf_model_config_defaults(lf_model_config *c);
/* Sets one key from text. `where` ("run.ini:12") goes into messages and is kept as the origin of
 * the key. `family` and `preset` are not keys here. LF_EINVAL: the key is unknown (the message has
 * the nearest known one), or the value is bad. */
int lf_model_config_set(lf_model_config *c, const char *key, const char *value, const char *where,
                        lf_err *err);
/* Is the value of the key a real number? false: a count, or no number. */
bool lf_model_key_is_real(const char *key);
/* Applies the switches of a family. LF_EINVAL: the family is unknown; the message lists all. */
int lf_model_config_family(lf_model_config *c, const char *family, const char *where, lf_err *err);
/* Reads a section of ini: preset or family first, then the explicit keys. Fills in derived sizes
 * and checks. */
int lf_model_config_from_ini(lf_model_config *out, const lf_ini *ini, const char *section,
                             lf_err *err);
/* The same from a file; section [model]. */
int lf_model_config_load(lf_model_config *out, const char *path, lf_err *err);
/* Fills kv_heads, head_dim and residual_alpha where they are 0, then refuses contradictions. vocab
 * may be 0. */
int lf_model_config_finish(lf_model_config *c, lf_err *err);

/* Is it an encoder that is trained to restore pictures (mae.h), without a text decoder? Then all
 * keys but vision.* and mae.* are at their defaults, and sizes of the text decoder are 0. */
bool lf_model_restores(const lf_model_config *c);
/* Is it an encoder that tells classes of pictures (classes.h), without a text decoder? Then all
 * keys but vision.* and classes.* are at their defaults. */
bool lf_model_classifies(const lf_model_config *c);
/* Is it towers of pictures and texts that share a space (dual.h)? */
bool lf_model_is_dual(const lf_model_config *c);
/* Restores it or classifies, or is it an encoder alone, so that it reads and writes no text? */
bool lf_model_sees_alone(const lf_model_config *c);
/* Is it an encoder of pictures and nothing else? All keys but vision.* are at their defaults, and
 * sizes of a text decoder are 0. */
bool lf_model_is_encoder(const lf_model_config *c);
/* What goes along with an encoder. */
enum lf_model_beside { LF_BESIDE_NOTHING = 0, LF_BESIDE_RESTORING, LF_BESIDE_CLASSES };
/* The description of the encoder of c alone, all of which is read, with what restores pictures or
 * tells their classes where c has that and it is asked for. */
lf_model_config lf_model_encoder_of(const lf_model_config *c, enum lf_model_beside beside);
/* Is it an encoder-decoder, with encoder_layers? */
bool lf_model_is_seq2seq(const lf_model_config *c);
/* Layers as a pipeline counts them: those of the encoder of an encoder-decoder, then all others. */
int64_t lf_model_depth(const lf_model_config *c);
/* The description of the layers of its encoder, as an encoder of texts (mask = both). */
lf_model_config lf_model_source_of(const lf_model_config *c);
/* The bucket of a key that is `far` behind the query (before it: far < 0), of position = relative.
 * With B buckets (mask = both: B / 2 for keys behind the query, from B / 2 on, and as many for all
 * others; else B, and a key behind it counts as distance 0), E = B / 2 and the distance n: n where
 * n < E, else
 *     min(E + floor(log(n / E) / log(relative_distance / E) (B - E)), B - 1)        in f32 */
int32_t lf_model_relative_bucket(const lf_model_config *c, int64_t far);
/* LF_EINVAL: it is one of these, so it predicts no tokens. */
int lf_model_need_text(const lf_model_config *c, lf_err *err);
/* LF_EINVAL: its tokens see what follows them (mask = both), so none predicts the next one. */
int lf_model_need_next(const lf_model_config *c, lf_err *err);
/* labels.c: gives the model output = labels, `labels` numbers of each `of` (enum
 * lf_model_labels_of), with the head that transformers has for them in its family. LF_EINVAL: a
 * span has two. */
int lf_model_give_labels(lf_model_config *c, int64_t labels, int of, lf_err *err);
/* The same where the model has no such labels: one that has them keeps its head. */
int lf_model_want_labels(lf_model_config *c, int64_t labels, int of, lf_err *err);
/* Which row of a document of rows [first, end) has the labels of the text. */
static inline int64_t lf_model_label_at(const lf_model_config *c, int64_t first, int64_t end)
{
    return c->label_row == LF_LABEL_FIRST ? first : end - 1;
}
/* Does it tell of pairs of texts whether the second follows the first? */
static inline bool lf_model_tells_pairs(const lf_model_config *c)
{
    return c->nsp_head && c->output == LF_OUTPUT_TOKENS && c->mask == LF_MASK_BOTH;
}
/* Is there a matrix of its own, with tanh, relu or gelu, before the last one? */
static inline bool lf_model_label_inner(const lf_model_config *c)
{
    return c->label_head == LF_LABEL_TANH || c->label_head == LF_LABEL_RELU ||
           c->label_head == LF_LABEL_GELU;
}
/* Is a text read at its last token, as scores are and labels of decoders? */
static inline bool lf_model_reads_end(const lf_model_config *c)
{
    return c->output == LF_OUTPUT_SCORE ||
           (c->output == LF_OUTPUT_LABELS && c->labels_of == LF_LABELS_OF_TEXT &&
            c->label_row == LF_LABEL_LAST);
}
/* Numbers of a row of the output, where these are not logits of tokens. */
static inline int64_t lf_model_scores(const lf_model_config *c)
{
    return c->output == LF_OUTPUT_LABELS ? c->labels : 1;
}
/* Is the transform before the head over the vocabulary read? */
bool lf_model_transforms(const lf_model_config *c);
/* LF_EINVAL: heads of some layer have more channels than attention on the target takes (struct
 * lf_target). */
int lf_model_heads_fit(const lf_model_config *c, int64_t most, const char *target, lf_err *err);
/* Returns an object of key -> canonical text, with `family`, as checkpoints hold it; the caller
 * owns it. lf_model_config_from_json reads such an object and checks it. */
json_t *lf_model_config_to_json(const lf_model_config *c, lf_err *err);
int lf_model_config_from_json(lf_model_config *out, json_t *o, const char *what, lf_err *err);
/* Has that object the text for this key? */
bool lf_model_config_is(const lf_model_config *c, const char *key, const char *text);
/* Are both equal in everything that affects tensors or numbers? *key (may be NULL) names the first
 * difference; it is a constant string. */
bool lf_model_config_equal(const lf_model_config *a, const lf_model_config *b, const char **key);

/* Width of the embedding: embed_dim, or hidden. */
int64_t lf_model_embed_width(const lf_model_config *c);
/* Width of positions, types of tokens and the norm of the embedding. */
int64_t lf_model_bottom_width(const lf_model_config *c);
/* Width of what scores, labels and vectors of texts are made of; and of what the transform before
 * the head over the vocabulary gives. */
int64_t lf_model_top_width(const lf_model_config *c);
int64_t lf_model_transform_width(const lf_model_config *c);
/* Width of merged patches, and of what the linear layers of a projector read. */
int64_t lf_model_merged_width(const lf_model_config *c);
int64_t lf_model_projected_width(const lf_model_config *c);
/* Returns the number of channels that RoPE turns, which is even: of a head, or with rope2d of each
 * half of a head. 0 with other positions. */
int64_t lf_model_rope_dim(const lf_model_config *c);
/* The same of a head of layer l. */
int64_t lf_model_layer_rope_dim(const lf_model_config *c, int64_t layer);
/* cos and sin tables f32 [positions, rot/2], computed in f64; either may be NULL. what:
 * LF_ROPE_LOCAL for the layers with the position l; LF_ROPE_QUERY for
 * queries, which logn_length or query_growth multiplies as well; LF_ROPE_LONG for the long factors
 * of longrope.
 *     freq_i = theta^(-2i/rot)            linear: freq / factor
 *     llama3: wavelength = 2 pi / freq; longer than original/low: freq / factor; shorter than
 *             original/high: freq; between: (1 - s) freq / factor + s freq with
 *             s = (original/wavelength - low) / (high - low)
 *     yarn (Peng et al. 2023): pair i turns r times over the original length at
 *             i = d(r) = rot log(original / (2 pi r)) / (2 log theta); below floor
 *             d(beta_fast) freq, above ceil d(beta_slow) freq / factor, linear between; without
 *             rope_truncate there is neither floor nor ceil; cos and sin times attn_factor, by
 *             default 0.1 log(factor) + 1
 *     longrope (Phi-3): freq / short_factors[i], or / long_factors[i] for all tokens of a
 *             document that is longer than original (decoder.h); times attn_factor, by default
 *             sqrt(1 + log(factor) / log(original)) with factor = max_positions / original of
 *             the release
 *     proportional (Gemma 4): rot is head_dim; freq for i < floor(rope_fraction rot / 2), over
 *             factor, and 0 for the pairs behind
 *     dynamic (NTK by length): plain; lf_decoder_create refuses positions beyond the original,
 *             where the angles of a token would depend on how many follow it */
enum { LF_ROPE_LOCAL = 1, LF_ROPE_QUERY = 2, LF_ROPE_LONG = 4 };
/* What query_growth multiplies the query of position p by, or with nope what nope_growth does. */
double lf_model_query_growth(const lf_model_config *c, bool nope, int64_t p);
void lf_model_rope_tables(const lf_model_config *c, int64_t positions, unsigned what,
                          float *cos_out, float *sin_out);
/* Channels that turn by the tables of `what`: rot. */
int64_t lf_model_table_dim(const lf_model_config *c, unsigned what);
/* ALiBi slopes f32 [heads] (Press, Smith, Lewis 2022): 2^(-8k/n) for n = power of two heads, the
 * rest from 2n odd ones.
 */
void lf_model_alibi_slopes(const lf_model_config *c, float *slopes);

/* ---- layers (layers.c) ---- */

/* The letter of a layer. Layers behind the last one, those of mtp_layers, are of its kind, but that
 * mtp_mlp = dense has no experts there. */
char lf_model_layer_mixer(const lf_model_config *c, int64_t layer);
char lf_model_layer_mlp(const lf_model_config *c, int64_t layer);
char lf_model_layer_position(const lf_model_config *c, int64_t layer);
/* The block of a layer: what `block` says, of out_attention out or pre. */
enum lf_model_block lf_model_layer_block(const lf_model_config *c, int64_t layer);
/* Returns the text of a pattern for letters [n], one for each layer. */
int lf_model_pattern_of(struct lf_model_pattern *out, const char *letters, int64_t n, lf_err *err);
/* Has every layer the letter that the pattern gives it? what: one of the three above. */
bool lf_model_layers_are(const lf_model_config *c, char (*what)(const lf_model_config *, int64_t),
                         const char *pattern);
int64_t lf_model_count_layers(const lf_model_config *c,
                              char (*what)(const lf_model_config *, int64_t), char letter);
/* Has layer i attention? Has it a scan? b has both. */
bool lf_model_layer_attends(const lf_model_config *c, int64_t layer);
bool lf_model_layer_scans(const lf_model_config *c, int64_t layer);
/* Does any layer attend? Does any carry a state through a document (all but f, w, n)? */
bool lf_model_attends(const lf_model_config *c);
bool lf_model_recurs(const lf_model_config *c);
/* Returns the window of layer i; 0 = none. */
int64_t lf_model_layer_window(const lf_model_config *c, int64_t layer);
/* Returns the size of the chunks within which layer i attends; 0 = it has none. */
int64_t lf_model_layer_chunk(const lf_model_config *c, int64_t layer);
/* Does layer i turn by rope_local_theta? */
bool lf_model_layer_local(const lf_model_config *c, int64_t layer);
/* Heads of keys and values, and the width of a head, of a layer that attends. */
int64_t lf_model_layer_kv_heads(const lf_model_config *c, int64_t layer);
int64_t lf_model_layer_head_dim(const lf_model_config *c, int64_t layer);
/* Channels of a head's value: v_dim, or those of its key. */
int64_t lf_model_layer_value_dim(const lf_model_config *c, int64_t layer);
/* What multiplies q . k: attn_scale, or 1/sqrt of the head's width times what rope_mscale_all
 * says. */
double lf_model_layer_attn_scale(const lf_model_config *c, int64_t layer);
/* Has layer l experts? Has it an MLP that all tokens take? How many layers have them, or it? */
bool lf_model_layer_moe(const lf_model_config *c, int64_t layer);
bool lf_model_layer_dense(const lf_model_config *c, int64_t layer);
int64_t lf_model_moe_layers(const lf_model_config *c);
int64_t lf_model_dense_layers(const lf_model_config *c);
/* Is some MLP without experts, in the layers or in heads of mtp_layers? */
bool lf_model_has_dense(const lf_model_config *c);
/* The inner width of that MLP. */
int64_t lf_model_layer_ffn(const lf_model_config *c, int64_t layer);
/* The share of gate_sparsity of layer l. Its quantile: below what, in standard deviations, that
 * share of a normal distribution lies. */
double lf_model_layer_sparsity(const lf_model_config *c, int64_t layer);
double lf_model_quantile(double share);
/* The layer whose keys and values layer l reads: l itself, but for kv_shared_layers; -1: there is
 * none. */
int64_t lf_model_layer_keys(const lf_model_config *c, int64_t layer);
/* Has layer l a projection of values? */
bool lf_model_layer_has_values(const lf_model_config *c, int64_t layer);

/* Returns the number of scalars in the matrices of the MLP of a MoE layer: all of them, or with
 * `active` those that multiply one token. */
int64_t lf_model_moe_params(const lf_model_config *c, bool active);
/* Returns the number of its scalars that are in no matrix: biases of router and experts. */
int64_t lf_model_moe_vectors(const lf_model_config *c);
/* Returns the number of scalars in the matrices that multiply a token in a head of mtp_layers, but
 * for the head over the vocabulary. */
int64_t lf_model_mtp_matmul_params(const lf_model_config *c);
/* Returns the exact number of scalars; a tied head counts once. */
int64_t lf_model_param_count(const lf_model_config *c);
/* Returns the number of scalars that multiply a token: linear layers, head and the chosen experts,
 * without embeddings, norms, biases and the heads of mtp_layers.
 */
int64_t lf_model_matmul_params(const lf_model_config *c);
/* Returns the mean number of keys of a query times H (D + E) / 2, summed over the layers from
 * `from` on that attend: products q.k and p v take 4 FLOPs of each together. Of a scan it is a
 * quarter of the FLOPs of a token (ops_scan.c), whatever the length. Of an encoder-decoder, here
 * and below, a source counts as long as its target; the encoder counts where from is 0. */
double lf_model_attention_work(const lf_model_config *c, int64_t seq_length, bool causal,
                               int64_t from);
/* Returns the FLOPs of a training step of all weights (flops.h: of what is trained) per token at
 * sequence length T: 6 matmul_params + attention.
 * Attention is 6 H (D + E) p in each layer that attends, where p is the mean number of keys of a
 * query: p = T without causal, p = T/2 with causal, less in windowed layers. The forward pass alone
 * is a third. */
double lf_model_train_flops_per_token(const lf_model_config *c, int64_t seq_length, bool causal);

#endif
