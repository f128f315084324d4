/* SPDX-License-Identifier: Apache-2.0
 *
 * From pictures to the rows of a patch embedding, and from bytes to normalised floats.
 *
 * A picture of gh P x gw P pixels has gh gw patches. Their order: blocks of m x m patches row by
 * row, and in a block row by row; m = 1 is plain row-major. A row of bytes is one patch, as (c, y,
 * x) or as (y, x, c) with the last letter fastest; the GEMM's matrix is then the convolution's
 * weight as it lies in a file. A row of floats repeats each channel's patch t times, (c, t, y, x):
 * the frames of a still picture. Bytes are stored once.
 *
 * Since a float depends on channel c and byte x alone, it comes from a table of 3 x 256:
 *   torchvision  y = (f32(x) - m) / s, m = f32(f32(mean) f32(1 / f)), s = f32(f32(std) f32(1 / f))
 *   PIL          y = (f32(f64(x) f) - f32(mean)) / f32(std)
 * with f the rescale factor, 1 / 255. The two differ by up to 2.4e-7.
 */
#ifndef LF_MEDIA_PATCH_H
#define LF_MEDIA_PATCH_H

#include "engine/media/image.h"
#include "engine/media/resize.h"

enum lf_patch_order { LF_PATCH_CYX, LF_PATCH_YXC };

typedef struct lf_patches {
    int32_t side;  /* P, pixels */
    int32_t merge; /* m */
    int32_t times; /* t; 1 with LF_PATCH_YXC */
    enum lf_patch_order order;
} lf_patches;

/* dst: [gh gw][3 P P] with gh = h / P and gw = w / P, multiples of m. What is left over at the
 * right and below is in no patch, as in a convolution of stride P. */
void lf_patch_rows(uint8_t *dst, const lf_image *im, const lf_patches *p);

void lf_norm_table(float table[3][256], const double mean[3], const double std[3], double factor,
                   enum lf_resize_manner manner);
/* dst: [n_rows][3 t P P], rows: [n_rows][3 P P]. */
void lf_norm_rows(float *dst, const uint8_t *rows, int64_t n_rows, const lf_patches *p,
                  const float table[3][256]);

#endif
