/* SPDX-License-Identifier: Apache-2.0
 *
 * To which size, and into how many tiles, a processor brings a picture of w x h pixels. Arithmetic
 * on sizes alone, in f64 and in the order of transformers 5.23, so that borderline sizes come out
 * alike. No picture is needed: a plan can ask too.
 */
#ifndef LF_MEDIA_GRID_H
#define LF_MEDIA_GRID_H

#include <stdint.h>

#include "engine/base/err.h"

typedef struct lf_size {
    int32_t w, h;
} lf_size;

/* The shorter side becomes `shortest`, the other trunc(shortest long / short). */
int lf_grid_shortest(lf_size *out, lf_size in, int32_t shortest, lf_err *err);

/* Qwen's: both sides multiples of f, the area between min and max pixels, the shape nearly kept.
 * LF_EINVAL: one side is more than 200 times the other. */
int lf_grid_smart(lf_size *out, lf_size in, int32_t f, int64_t min_pixels, int64_t max_pixels,
                  lf_err *err);

/* SigLIP2's: the largest picture of at most `most` patches of `patch` pixels a side that keeps the
 * shape, by a search for the scale; each side is a multiple of patch. */
int lf_grid_naflex(lf_size *out, lf_size in, int32_t patch, int32_t most, lf_err *err);

/* InternVL's: how many columns and rows of tiles of `tile` pixels, at least `least` and at most
 * `most` together: the ratio nearest to the picture's, and of equals the larger one when the
 * picture fills more than half of it. */
lf_size lf_grid_tiles(lf_size in, lf_size tile, int32_t least, int32_t most);

/* LLaVA's: which of n given sizes loses the fewest pixels, then wastes the fewest; and how large
 * the picture becomes in it. n > 0. */
lf_size lf_grid_anyres(lf_size in, const lf_size *sizes, int32_t n);
int lf_grid_inside(lf_size *out, lf_size in, lf_size frame, lf_err *err);

/* Gemma 3's pan and scan: columns and rows of crops, {0, 0} when the picture is not long enough for
 * it, and in *crop the size of each but the last, which ends with the picture. */
lf_size lf_grid_pan(lf_size *crop, lf_size in, double min_ratio, int32_t min_crop, int32_t most);

/* Idefics 3's: the longer side becomes `longest`, the other is rounded down and made even, and what
 * is longer than 4096 is shrunk to that. */
int lf_grid_longest(lf_size *out, lf_size in, int32_t longest, lf_err *err);
/* Then both sides become multiples of a tile's: the longer one at once, the other from what the
 * shape makes of it. */
int lf_grid_split(lf_size *out, lf_size in, int32_t tile, lf_err *err);

/* Pixtral's: a picture that is larger than `most` is shrunk into it, and each side is filled up to
 * a multiple of f. */
int lf_grid_within(lf_size *out, lf_size in, lf_size most, int32_t f, lf_err *err);

#endif
