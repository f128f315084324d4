/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes of pictures: an encoder (vision.h) with a linear head over what it gives (Dosovitskiy et
 * al. 2021, arXiv:2010.11929, ViT), and no text decoder. Keys classes.* of [model].
 *
 *     h = encoder(patches)                     [R, C], behind its last norm
 *     s = h of the class token                 read = class, one row for each picture
 *         mean of h over the patches           read = mean
 *     s = norm s                               classes.norm_eps > 0: a layer norm (ConvNeXt)
 *     z = W s + b                              [pictures, N]
 *
 * With norm (a linear probe) what is read is normalised before the head, s' = (s - m) r, by
 * constants: mean and 1 / sqrt(variance + 1e-6) of s over the pictures that are trained on
 * (engine/post/class_train.h). That is batch normalisation without weight and bias whose batch is
 * all of them, as that of the probes of MAE and MoCo v3 tends to.
 *
 * With read = both (DeiT, Touvron et al. 2021, arXiv:2012.12877) the row of the distill token has a
 * head of its own, d = W' s' + b', which learns what a teacher says; a picture is told by
 * (z + d) / 2. Logical tensors: vision.* of vision.h, and
 *
 *     classes.{weight [N, C], bias [N]}        classes.distill.{weight [N, C], bias [N]}
 *     classes.norm.{weight,bias} [C]           classes.norm_eps
 *     classes.shift.weight [1, C], classes.gain [C]    frozen: -m and r              norm
 *
 * Inputs of the graph beside those of the encoder, a matrix as compressed rows with its transpose
 * (graph.h, lf_mix), of P pictures at most and R rows of the encoder:
 *
 *     classes.read.* [P, R]                    which rows of the encoder a picture is told by
 *     classes.second.* [P, R]                  the row of its distill token           read = both
 *     classes.ones.* [P, 1]                    1 for each picture                     norm
 *
 * Outputs: "score" f32 [P, N] and, with read = both, "distilled" f32 [P, N]; in training the inputs
 * of their gradients "dscore" and "ddistilled". Graphs without training have "features" f32 [P, C],
 * s, with norm.
 */
#ifndef LF_MODEL_CLASSES_H
#define LF_MODEL_CLASSES_H

#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "engine/model/sight.h"

#define LF_CLASSES_SHIFT "classes.shift.weight"
#define LF_CLASSES_GAIN  "classes.gain"
/* Checks the description of such a model. LF_EINVAL. */
int lf_classes_check(lf_model_config *c, lf_err *err);
/* The number of scalars of classes.*. */
int64_t lf_classes_param_count(const lf_model_config *c);
int lf_classes_declare(const lf_model_config *c, lf_pstore *ps, lf_err *err);

/* Static bounds of a graph. */
struct lf_classes_rows {
    struct lf_decoder_media media; /* of the encoder (lf_sight_bounds) */
    int64_t pictures;              /* P; tiles of a picture count as pictures */
};
struct lf_classes_rows lf_classes_bounds(const lf_model_config *c, int64_t patches, int64_t tiles);
/* The matrix classes.read of a graph. */
struct lf_mix lf_classes_read(lf_graph *g, const lf_model_config *c,
                              const struct lf_classes_rows *r);
/* LF_EINVAL: the model of d tells no classes. */
lf_graph *lf_classes_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                           const struct lf_classes_rows *r, bool train, lf_err *err);

/* The pictures of a micro-batch as inputs of the graph. */
typedef struct lf_classes_sight lf_classes_sight;
/* Room for micro-batches of these bounds; nothing is allocated later. */
lf_classes_sight *lf_classes_sight_create(const lf_model_config *c, const struct lf_classes_rows *r,
                                          lf_err *err);
void lf_classes_sight_destroy(lf_classes_sight *s);
size_t lf_classes_sight_bytes(const lf_model_config *c, const struct lf_classes_rows *r);
/* Of b tiles and merge are read. LF_EINVAL: there is more than room for. */
int lf_classes_sight_fill(lf_classes_sight *s, const struct lf_sight_batch *b, lf_err *err);
/* The same from files, with pixels normalised: rows of texts are not looked at. */
int lf_classes_sight_fill_media(lf_classes_sight *s, const struct lf_sight_media *in, lf_err *err);
/* Stochastic depth, of a graph whose rows have drop_path: writes what each row of each branch is
 * multiplied with. keep [layers, 2, pictures]: 0 or 1 / (1 - p) for a picture, attention first;
 * with conv_taps the first is not read. */
int lf_classes_sight_write_paths(lf_classes_sight *s, lf_exec *ex, int chain, int slot,
                                 const float *keep, lf_err *err);
/* Which patch of the batch comes so manieth into the encoder. */
const int32_t *lf_classes_sight_order(const lf_classes_sight *s);
/* Writes vision.pixels after lf_classes_sight_fill_media. */
int lf_classes_sight_write_pixels(const lf_classes_sight *s, lf_exec *ex, int chain, int slot,
                                  lf_err *err);
/* Writes all other inputs but the gradients. */
int lf_classes_sight_write(const lf_classes_sight *s, lf_exec *ex, int chain, int slot,
                           lf_err *err);

#endif
