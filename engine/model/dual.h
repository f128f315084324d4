/* SPDX-License-Identifier: Apache-2.0
 *
 * Two towers that put pictures and texts into one space, where those that belong together lie
 * close: CLIP (Radford et al. 2021, arXiv:2103.00020) and SigLIP (Zhai et al. 2023,
 * arXiv:2303.15343). An encoder of pictures (vision.h), and the layers of a text model (decoder.h)
 * without its head, whose mask is causal or both. Keys dual.* of [model].
 *
 *     h = encoder(patches)            [R, C], behind its last norm
 *     v = P h                         read = class: of the class token, without a bias
 *     v = a + mlp(norm a)             read = attention: a = o(attention of a learned query, the
 *                                     probe, to all patches of its picture)
 *     t = Q x (+ b)                   x behind the last norm, of the first token end_token of a
 *                                     text, or of its last one
 *     z = e^s cos(v, t) (+ b')        of a picture and a text
 *
 * A text that is longer than max_positions loses the tokens before its last one. With padded every
 * text is filled up to max_positions with pad_token, and its last token is of these (so SigLIP was
 * trained). Logical tensors, vision.* of vision.h and those of
 * decoder.h beside, D = dual.dim, E the width of texts:
 *
 *     dual.image.weight [D, C]                     read = class
 *     dual.pool.probe.weight [1, C]                read = attention, where D = C
 *     dual.pool.{q,k,v,o}.{weight [C, C], bias}
 *     dual.pool.norm.{weight,bias} [C]
 *     dual.pool.up.{weight [F, C], bias}, dual.pool.down.{weight [C, F], bias}
 *     dual.text.{weight [D, E], bias [D]}          the bias with text_bias
 *     dual.scale [1], dual.bias [1]                s; b' with bias
 *
 * Inputs of the graph beside those of the encoder and tokens, positions and cu_seqlens of
 * decoder.h, matrices as compressed rows with their transpose (graph.h, lf_mix); P pictures and P
 * texts at most, T = P max_positions:
 *
 *     dual.read.* [P, R]              which row of the encoder a picture is read at    class
 *     dual.probe.* [P, 1]             1                                                attention
 *     dual.queries i32 [images + 1, 1]   the queries of a picture                      attention
 *     dual.end.* [P, T]               where a text is read
 *     dual.one.* [1, 1]               1
 *
 * Outputs, f32: "image" [P, D], "text" [P, D], "scale" [1, 1] and "bias" [1, 1]; in training the
 * inputs of their gradients are "dimage", "dtext", "dscale" and "dbias".
 */
#ifndef LF_MODEL_DUAL_H
#define LF_MODEL_DUAL_H

#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/model/sight.h"

/* Checks dual.* of a description whose other keys are checked. LF_EINVAL. */
int lf_dual_check(const lf_model_config *c, lf_err *err);
/* The number of scalars of dual.*. */
int64_t lf_dual_param_count(const lf_model_config *c);
int lf_dual_declare(const lf_model_config *c, lf_pstore *ps, lf_err *err);

/* Reads s and b from a store, 0 where there is no b. kept (may be NULL): which of both this rank
 * keeps; v is 0 of the others. */
int lf_dual_numbers(const lf_pstore *ps, double v[2], bool kept[2], lf_err *err);

/* Static bounds of a graph, and which towers it has. */
struct lf_dual_rows {
    struct lf_decoder_media media; /* of the encoder (lf_sight_bounds) */
    int64_t pairs;                 /* P, of pictures and of texts */
    bool no_pictures, no_texts;
};
/* tiles 0: as lf_sight_bounds says. */
struct lf_dual_rows lf_dual_bounds(const lf_model_config *c, int64_t patches, int64_t tiles);
/* The scale and the bias are outputs where both towers are there. LF_EINVAL: the model of d has no
 * two towers. */
lf_graph *lf_dual_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                        const struct lf_dual_rows *r, bool train, lf_err *err);

/* The pictures and texts of a micro-batch as inputs of the graph. */
typedef struct lf_dual_sight lf_dual_sight;
struct lf_dual_text {
    const int32_t *tokens;
    int64_t n;
};
/* Room for micro-batches of these bounds; nothing is allocated later. */
lf_dual_sight *lf_dual_sight_create(const lf_model_config *c, const struct lf_dual_rows *r,
                                    lf_err *err);
void lf_dual_sight_destroy(lf_dual_sight *s);
size_t lf_dual_sight_bytes(const lf_model_config *c, const struct lf_dual_rows *r);
/* Of b tiles and merge are read. LF_EINVAL: there is more than room for. */
int lf_dual_sight_fill(lf_dual_sight *s, const struct lf_sight_batch *b, lf_err *err);
/* The same from files, with pixels normalised. */
int lf_dual_sight_fill_media(lf_dual_sight *s, const struct lf_sight_media *in, lf_err *err);
/* LF_EINVAL: there are more texts than room, one is empty, or has a token that is no word; the
 * message has its number, from 0. */
int lf_dual_sight_texts(lf_dual_sight *s, const struct lf_dual_text *texts, int64_t n, lf_err *err);
/* Which patch of the batch comes so manieth into the encoder. */
const int32_t *lf_dual_sight_order(const lf_dual_sight *s);
/* Writes vision.pixels after lf_dual_sight_fill_media. */
int lf_dual_sight_write_pixels(const lf_dual_sight *s, lf_exec *ex, int chain, int slot,
                               lf_err *err);
/* Writes all other inputs but the gradients, of the towers that there are. */
int lf_dual_sight_write(const lf_dual_sight *s, lf_exec *ex, int chain, int slot, lf_err *err);

#endif
