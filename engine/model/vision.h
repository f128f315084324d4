/* SPDX-License-Identifier: Apache-2.0
 *
 * The vision core: an encoder of pictures (Dosovitskiy et al. 2021, ViT), for every family of
 * vision.c. It takes rows of pixels, one for each patch (engine/media makes them), and gives one
 * row for each patch and class token. Pictures of any sizes lie behind each other in one matrix, as
 * documents do in a decoder, and attention stays within a picture:
 *
 *     x = pixels w^T (+ b)                 patch_embed; a convolution whose stride is its size
 *     x = class token before each picture  class_token, with a second one behind it
 *                                          where there is a distill_token
 *     x += positions                       a table, learned or fixed (fixed_positions: sines and
 *                                          cosines, frozen), resampled to the grid of a picture, or
 *                                          read at the nearest smaller share of a side (buckets)
 *                                          or around it (smooth_positions)
 *     x = norm x                           pre_norm
 *     x += scale attn(norm x)              layers; scale: layer_scale, else 1
 *     x += scale mlp(norm x)
 *     x = norm x                           final_norm
 *     x = x of several layers side by side read_states
 *
 * With stages (Liu et al. 2021, arXiv:2103.14030, Swin) widths and rows change between layers; all
 * pictures have grid x grid patches. Positions are added behind pre_norm, and behind the last layer
 * of each stage but the last
 *
 *     x = norm [x of 2 x 2 patches] w^T    merge_norm = together; norm behind w^T with behind; of
 *                                          each patch with each
 *
 * shifted: attention is within windows (vision_priv.h) with scores q . k / sqrt(D) + t, t a number
 * of the head by how far the key is up and sideways. cosine (Liu et al. 2022, arXiv:2111.09883):
 * with scores exp(min(s, ln 100)) q . k / (|q| |k|) + 16 sigmoid(m), s a number of the head and m
 * of an MLP with relu of logarithms of the distances. Windows that were moved have parts that do
 * not see each other; transformers adds -100 to their scores, -200 with cosine, and nothing here is
 * computed of them. out_norm: x += scale norm attn(x), and so the MLP.
 *
 * conv_taps (Liu et al. 2022, arXiv:2201.03545, ConvNeXt): a layer is one branch, with a
 * convolution of K x K of each channel by itself (kernels/dwconv.h) in place of attention
 *
 *     x += scale mlp(norm conv x)
 *
 * mix_patches (Touvron et al. 2021, arXiv:2105.03404, ResMLP): in place of attention a matrix over
 * the patches of a picture, all of which have grid x grid: y[p, c] = sum over q of w[p, q] x[q, c]
 * + b[p]. affine: norms are x w + b, and normalise nothing.
 *
 * Logical tensors, matrices [out, in] row-major, each behind a prefix such as "vision." (group in
 * brackets: its members lie next to each other in the store):
 *
 *     patch_embed.{weight [C, K], bias [C]}            {class,distill}_token.weight [1, C]
 *     pos_embed.weight [T, C]                          {pre,final}_norm.{weight,bias} [C]
 *     layers.N.attn_norm.{weight,bias} [C]             layers.N.mlp_norm.{weight,bias} [C]
 *     layers.N.attn.{q,k,v}.{weight,bias} [C, C]       (group layers.N.attn.qkv; with bare_keys
 *                                                      no group, and no attn.k.bias)
 *     layers.N.attn.{q,k}_norm.weight [C]              over all heads together
 *     layers.N.attn.o.{weight,bias} [C, C]             (here and below: bias only with bias)
 *     layers.N.mlp.{gate,up}.{weight,bias} [F, C]      (group layers.N.mlp.gate_up; plain: only up)
 *     layers.N.mlp.down.{weight,bias} [C, F]
 *     layers.N.attn.distances.weight [(2 w - 1)^2, H]  shifted, w the side of a window
 *     layers.N.attn.distances.up.{weight [512, 2], bias [512]}, .down.weight [H, 512]
 *                                                      cosine, in place of it; and
 *     layers.N.attn.temperature.weight [H, 1]
 *     layers.N.conv.{weight [C, K K], bias [C]}        conv_taps
 *     layers.N.mix.{weight [P, P], bias [P]}           mix_patches, P the patches of a picture
 *     layers.N.merge_norm.{weight,bias}                of 4 C, the next stage's C, or C
 *     layers.N.merge.{weight,bias} [C', 4 C]           N the last layer of a stage
 *     layers.N.attn.inner_norm.{weight,bias} [C]       attn_inner_norm
 *     layers.N.mlp.inner_norm.{weight,bias} [F]        mlp_inner_norm
 *     layers.N.{attn,mlp}_scale [C]                    layer_scale
 *
 * Inputs of the graph, named behind the same prefix. P patches, R rows of the stream; without a
 * class token R = P. A matrix is compressed rows with their transpose (graph.h, lf_mix): i32 start,
 * i32 index, f32 weight, and the same three of the transpose as back.start, back.index,
 * back.weight.
 *
 *     pixels f32 [P, K]           K = channels x frames x patch side squared
 *     place.* [R, P]              the row of each patch in the stream      with class_token
 *     class.* [R, 1]              1 in the rows of class tokens            with class_token
 *     distill.* [R, 1]            1 in the rows behind them                with distill_token
 *     pos.* [R, T]                the learned position of each row: one entry of weight 1, or
 *                                 several where the table is resampled     with positions
 *     positions i32 [R, 3]        frame, row and column of each patch      with rope
 *                                 (0 of class tokens, which do not turn)
 *     cu_seqlens i32 [images + 1, 1]  without shifted, conv_taps, mix_patches
 *     cu_windows i32 [windows + 1, 1]  windows of rows, within pictures    with windows
 *     path.start, path.index i32   the identity as a matrix; not with stages  with drop_path
 *     path.N.{attn,mlp} f32 [R, 1] what each row of a branch is multiplied with, R of the stage
 *     samples i64 [R, 1], offsets i32 [R, 1]   as of decoder.h: which sample has the picture, and
 *                                 how many of its rows stand before     with drop
 */
#ifndef LF_MODEL_VISION_H
#define LF_MODEL_VISION_H

#include "engine/graph/graph.h"
#include "engine/model/config.h"

/* The names of the families, from 1 on in lf_vision_config.family, "none" first; NULL ends. */
extern const char *const lf_vision_families[];
/* The switches of a family by its number; sizes are 0. */
void lf_vision_family(lf_vision_config *c, int family);
/* The number of a family by its name; 0: there is none. */
int lf_vision_family_of(const char *name);
/* Refuses sizes that are missing and switches that contradict each other, by name. */
int lf_vision_check(const lf_vision_config *c, lf_err *err);
/* Is there attention; and does it see a picture as one document, whose rows the input cu_seqlens
 * counts? */
bool lf_vision_attends(const lf_vision_config *c);
static inline bool lf_vision_by_pictures(const lf_vision_config *c)
{
    return lf_vision_attends(c) && !c->shifted;
}
/* Fills in what is 0: layers, hidden and heads of stages, head_dim. trained_windows that are all 0
 * become none. */
void lf_vision_settle(lf_vision_config *c);
/* What lf_vision_check refuses of stages and of keys that nothing reads without them. */
int lf_vision_check_stages(const lf_vision_config *c, lf_err *err);
enum { LF_VISION_STAGES = 8 };      /* at most */
enum { LF_VISION_DISTANCES = 512 }; /* inner width of the MLP of distances */
/* What its numbers, and those that cosines are multiplied by, are at most. */
#define LF_VISION_MOST_DISTANCE    16.0f
#define LF_VISION_MOST_TEMPERATURE 100.0
/* A stage: its layers are first ... first + layers - 1. */
struct lf_vision_stage {
    int64_t first, layers;
    int64_t width, heads, head_dim, ffn;
    int64_t side; /* rows of a picture's side in it; 0 without stages */
};
/* How many there are, which one has a layer, and one of them, counted from 0. */
int64_t lf_vision_stages(const lf_vision_config *c);
int64_t lf_vision_stage_at(const lf_vision_config *c, int64_t layer);
struct lf_vision_stage lf_vision_stage_of(const lf_vision_config *c, int64_t s);
/* Rows of a picture before its patches: class token and distill token. */
int64_t lf_vision_tokens(const lf_vision_config *c);
/* Patches of the side of the square that has positions; 0: there is none. */
int64_t lf_vision_table_side(const lf_vision_config *c);
/* Columns of what the encoder gives: C, or those of all read_states. */
int64_t lf_vision_width(const lf_vision_config *c);
/* Returns the number of scalars. */
int64_t lf_vision_param_count(const lf_vision_config *c);
enum { LF_VISION_SIDES = 4096 };     /* patches of a picture's side, at most */
enum { LF_VISION_SMOOTH_SIDE = 64 }; /* of the table's side with smooth_positions */
typedef struct lf_vision lf_vision;
/* c and prefix are copied. sides: one more than the largest row or column of a patch that is fed,
 * the length of the rotary tables. It must outlive every plan with its graphs. */
lf_vision *lf_vision_create(const lf_vision_config *c, const char *prefix, int64_t sides,
                            lf_err *err);
void lf_vision_destroy(lf_vision *v);
/* Graphs of v read the inputs of `of`, in place of inputs behind a prefix of their own: two
 * encoders of the same pictures. */
void lf_vision_share_inputs(lf_vision *v, const lf_vision *of);
int lf_vision_declare(const lf_vision *v, lf_pstore *ps, lf_err *err);
/* layers.* and final_norm.* alone. */
int lf_vision_declare_layers(const lf_vision *v, lf_pstore *ps, lf_err *err);

/* Static bounds of a graph. */
struct lf_vision_rows {
    int64_t patches, rows;
    int64_t images, max_image; /* most pictures, the longest in rows */
    int64_t windows, max_window;
    int64_t taps;     /* entries of pos.*: R where positions are not resampled, 4 R bilinear, 16 R
                   * bicubic, more with smooth_positions */
    int stack;        /* of several of them in a graph, which this is: from 0 on */
    bool adapter_off; /* as of lf_decoder_rows */
    float drop;       /* dropout of what adapters read; 0: none */
    /* stochastic depth (Huang et al. 2016, arXiv:1603.09382): branches of layers are multiplied row
     * by row with the inputs path.*, which are 0 or 1 / (1 - p) for all rows of a picture */
    bool drop_path;
};
/* With stages: pictures that there is room for, rows of a stage, and of what the encoder gives.
 * Picture i has the rows from i side^2 on, of its sides row by row. Without, the last is rows. */
int64_t lf_vision_pictures(const lf_vision_config *c, const struct lf_vision_rows *r);
int64_t lf_vision_stage_rows(const lf_vision_config *c, const struct lf_vision_rows *r, int64_t s);
int64_t lf_vision_end_rows(const lf_vision_config *c, const struct lf_vision_rows *r);
/* Appends the encoder to g and returns its rows [R, lf_vision_width]. deep[i] is what the layer
 * tap[i] gives, counted from 0; tap ascends (deep features of Qwen3-VL). */
lf_val lf_vision_encode(const lf_vision *v, lf_graph *g, const struct lf_vision_rows *r,
                        const int64_t *tap, int n_tap, lf_val *deep);

/* The layers and final_norm alone, on rows x [R, C] that come from elsewhere (mae.h): of the inputs
 * cu_seqlens, and positions and cu_windows where the description has them. */
lf_val lf_vision_layers(const lf_vision *v, lf_graph *g, const struct lf_vision_rows *r, lf_val x);

#endif
