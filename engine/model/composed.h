/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder that sees: an encoder of pictures (vision.h), a projector, and where their rows enter
 * the decoder. Any encoder goes with any projector and any decoder of config.h.
 *
 *     h = encoder(pixels)                  rows of patches, [R, C]; with vision.read_states C is
 *                                          that of all of them here
 *     h = select h                         without class tokens (but for keep_class), or means of
 *                                          k x k patches
 *     h = norm h                           projector.norm, of each patch
 *     h = m m rows of h side by side       projector.merge
 *     h = norm h                           or of the merged patches (norm_merged)
 *     h = reduce h                         projector.reduce, without a bias
 *     f = fc2 act(fc1 h), or fc1 h         features, [F, E]
 *     x += place f + lines newline         at the tokens -1, which embed to zeros
 *     x += place deep_i                    behind decoder layer i: what taps[i] of the encoder
 *                                          gave, by a projector of its own (Qwen3-VL, deepstack)
 *
 * Logical tensors: vision.* of vision.h;
 *
 *     projector.norm.{weight,bias}     [C], or [m m C] with norm_merged
 *     projector.reduce.weight          [C, m m C]
 *     projector.fc1.{weight,bias}      [hidden or E, m m C], [hidden or E, C] behind reduce
 *     projector.fc2.{weight,bias}      [E, hidden]            of kind mlp
 *     projector.newline.weight         [1, E]
 *     projector.deep.N.*               the same, its norm over merged patches
 *
 * Inputs of the graph beside those of vision.h; matrices are compressed rows with their transpose:
 *
 *     media.select.* [m m F, R]   with class tokens and merge, or with pool
 *     media.place.* [rows, F]     which feature a token is
 *     media.lines.* [rows, 1]     1 where a token is a newline
 *     places i32 [rows, 3]        with rope_sections: a token's time, row and column
 *     runs i32 [rows, 2]          with mask = image_blocks (decoder.h)
 *     media.samples i64 [F, 1], media.offsets i32 [F, 1]   with drops: samples and offsets of
 *                                 features (decoder.h), for dropout of what adapters read
 *
 * or, where features are given (struct lf_decoder_media), in place of pictures and places:
 *
 *     media.features f32 [rows, E], media.deep.N f32 [rows, C]
 *
 * or, where the encoder's rows are given (`encoded`), in place of those of vision.h:
 *
 *     media.encoded [R, C], media.encoded.N [R, C]     in the compute type: h above, and what
 *                                                      taps[N] gave
 */
#ifndef LF_MODEL_COMPOSED_H
#define LF_MODEL_COMPOSED_H

#include "engine/model/decoder.h"

/* A graph of the encoder alone: outputs "encoded" [R, C] and "encoded.N" [R, C] in the compute
 * type, rounded as in a graph that reads them. */
lf_graph *lf_decoder_encoder_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                   const struct lf_decoder_media *m, lf_err *err);
/* A graph of the encoder and the projector alone, whose rows are the tokens of pictures in their
 * order: outputs "features" [rows, E] and "deep.N" [rows, C], f32. */
lf_graph *lf_decoder_features_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                    int64_t rows, const struct lf_decoder_media *m, lf_err *err);

#endif
