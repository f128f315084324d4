/* SPDX-License-Identifier: Apache-2.0
 *
 * Companions of weights that came as 8-bit floats with a scale for each block or for all of it
 * (engine/store/f8_blocks.h). The weights of a checkpoint are bf16 or f32, whatever they came as;
 * so that they can go out as they came, a checkpoint has beside them
 *
 *     kind "scale"  scales/NAME  the scales of the outside matrix NAME: f32, bf16, or u8, powers of
 *                                two; where NAME is X.weight also scales/X.activation_scale, of
 *                                what it multiplies. One number is [1] here
 *     kind "code"   codes/NAME   u8, its 8-bit floats, where they do not follow from values and
 *                                scales: where a scale is so small, large or odd that two codes
 *                                have the same value
 *     state "quant"              {"family": whose NAMEs these are, "rows", "cols": of a block,
 *                                "powers": the outside type of u8 scales, "dims": dimensions, 0
 *                                or 1, of scales of one number, "config":
 *                                quantization_config of the release, "dtype", "dtypes": the types
 *                                of its other tensors, and of those that have another one}
 *
 * NAME is the outside one, so companions are the same whatever the layout of ranks is.
 *
 * They are carried and not referred to: 4 bytes for each block of 16,384 weights, 0.01 % of a
 * checkpoint in bf16. So a checkpoint stays whole when the one that training began with is moved or
 * removed. No stage reads or trains them. What makes a new checkpoint of an old one takes them
 * along; who exports finds out, block by block, whether a scale still holds.
 */
#ifndef LF_MODEL_SCALES_H
#define LF_MODEL_SCALES_H

#include "engine/base/mem.h"
#include "engine/store/ckpt.h"

#define LF_SCALES_STATE "quant"
#define LF_SCALES_KIND  "scale"
#define LF_SCALES_AT    "scales/"
#define LF_CODES_KIND   "code"
#define LF_CODES_AT     "codes/"

/* Companions in memory. */
struct lf_scales {
    json_t *state;           /* owned; NULL: there are none */
    lf_ckpt_tensor *tensors; /* [n], each with fill, for a writer; in the arena */
    size_t n;
};
/* Is the entry a companion? */
bool lf_scales_is(const lf_ckpt_entry *e);
/* Reads the companions of c into a; out may hold others, whose state is dropped. A checkpoint
 * without companions gives none. */
int lf_scales_read(struct lf_scales *out, const lf_ckpt *c, lf_arena *a, lf_err *err);
void lf_scales_fini(struct lf_scales *s);
/* Sets out to the list t with the companions behind it, in a. */
int lf_scales_append(const struct lf_scales *s, const lf_ckpt_tensor **t, size_t *n, lf_arena *a,
                     lf_err *err);
/* Puts the state, if there is one, into that of a checkpoint. Not 0: out of memory. */
int lf_scales_tell(const struct lf_scales *s, json_t *state);

#endif
