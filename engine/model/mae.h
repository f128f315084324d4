/* SPDX-License-Identifier: Apache-2.0
 *
 * A masked autoencoder (He et al. 2021, arXiv:2111.06377): an encoder of pictures (vision.h) that
 * sees some patches of each picture, and a light decoder that restores the others from them. The
 * encoder is what is wanted of it; the decoder ends with the training.
 *
 *     h = encoder(visible patches)         [E, C], with a class token where the family has one
 *     y = embed h                          [E, D]
 *     x = y where a patch is visible, mask_token where it is hidden       [R, D]
 *     x += positions                       fixed (sines and cosines) where the encoder has a table
 *     x = final_norm(layers x)             as those of the encoder, of other sizes
 *     p = pixels x                         of the hidden patches alone, [H, K]
 *
 * The loss is of the host (engine/train/mae.h). Logical tensors: vision.* of vision.h, and
 *
 *     mae.embed.{weight [D, C], bias [D]}              mae.mask_token.weight [1, D]
 *     mae.pos_embed.weight [T, D]                      frozen; T of the encoder
 *     mae.layers.N.*, mae.final_norm.*                 as vision.layers.N.*, vision.final_norm.*
 *     mae.pixels.{weight [K, D], bias [K]}
 *
 * Inputs of the graph beside those of the encoder, whose patches and rows are the visible ones;
 * matrices are compressed rows with their transpose (graph.h, lf_mix):
 *
 *     mae.place.* [R, E]           which row of the encoder a row of the decoder has
 *     mae.hidden.* [R, 1]          1 where a patch is hidden
 *     mae.pos.* [R, T]             the position of each row
 *     mae.select.* [H, R]          the rows of hidden patches
 *     mae.positions, mae.cu_seqlens    as of the encoder, over all patches
 *
 * Outputs: "pixels" f32 [H, K], and in training the input of its gradient "dpixels".
 */
#ifndef LF_MODEL_MAE_H
#define LF_MODEL_MAE_H

#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/model/sight.h"

/* The description of the decoder's layers: the switches of the encoder, sizes of mae.*. */
lf_vision_config lf_mae_layers(const lf_model_config *c);
/* Checks the description of such a model, and fills in mae.ffn. LF_EINVAL. */
int lf_mae_check(lf_model_config *c, lf_err *err);
/* The number of scalars of mae.*. */
int64_t lf_mae_param_count(const lf_model_config *c);
int lf_mae_declare(const lf_model_config *c, const lf_vision *layers, lf_pstore *ps, lf_err *err);

/* Static bounds of a graph. */
struct lf_mae_rows {
    struct lf_vision_rows encoder, decoder; /* of visible patches, of all */
    int64_t hidden;                         /* H */
};
/* How many of n patches are visible: floor of n (1 - ratio), but at least one, and not all. */
int64_t lf_mae_visible(int64_t n, double ratio);
/* For so many patches and pictures in a graph; 0 < ratio < 1. */
struct lf_mae_rows lf_mae_bounds(const lf_model_config *c, int64_t patches, int64_t tiles,
                                 double ratio);
/* LF_EINVAL: the model of d has no such decoder. */
lf_graph *lf_mae_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_mae_rows *r, bool train, lf_err *err);

/* Hides the patches of one picture: those with the largest noise (of equal ones the later), all but
 * lf_mae_visible(n, ratio). order: [n] room. */
void lf_mae_hide(bool *hidden, const uint32_t *noise, int64_t n, double ratio, uint64_t *order);

/* The pictures of a micro-batch as inputs of the graph. */
struct lf_mae_batch {
    int32_t n_tiles;
    const struct lf_sight_tile *tile;
    int32_t merge;      /* patches come in blocks of so many each way, as in lf_sight_batch */
    const bool *hidden; /* [patches] */
};
typedef struct lf_mae_sight lf_mae_sight;
/* Room for micro-batches of these bounds; nothing is allocated later. */
lf_mae_sight *lf_mae_sight_create(const lf_model_config *c, const struct lf_mae_rows *r,
                                  lf_err *err);
void lf_mae_sight_destroy(lf_mae_sight *s);
size_t lf_mae_sight_bytes(const lf_model_config *c, const struct lf_mae_rows *r);
/* LF_EINVAL: there is more than room for, or a picture of a single patch. */
int lf_mae_sight_fill(lf_mae_sight *s, const struct lf_mae_batch *b, lf_err *err);
/* The patches of the batch that the encoder takes and those that are restored, in the order of
 * their rows; *n: how many. */
const int32_t *lf_mae_sight_seen(const lf_mae_sight *s, int64_t *n);
const int32_t *lf_mae_sight_hidden(const lf_mae_sight *s, int64_t *n);
/* Writes all inputs but vision.pixels and dpixels. */
int lf_mae_sight_write(const lf_mae_sight *s, lf_exec *ex, int chain, int slot, lf_err *err);

#endif
