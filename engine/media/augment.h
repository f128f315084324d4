/* SPDX-License-Identifier: Apache-2.0
 *
 * Augmentation of pictures for training: the box that is cut out, the mirror, and operations on
 * colours and shapes (RandAugment, Cubuk et al. 2019, arXiv:1909.13719). Pixels are those of
 * torchvision 0.29 on pictures of Pillow 12.3, byte for byte, for the same box and the same
 * magnitudes (tests/golden/media/augment.h5). Every random decision is a function of (seed, sample,
 * picture in the sample, number of the draw), so neither ranks nor threads nor resumes change it,
 * and an epoch, which has other samples, decides anew.
 *
 *     box      RandomResizedCrop: up to 10 times a share of the area, uniform in crop_scale, and a
 *              ratio of sides, log-uniform in 3/4 .. 4/3; the first box that fits, else the largest
 *              of the nearest ratio in the middle. Bicubic with antialias to the size of the model
 *     flip     left to right, half of the time
 *     ops      `ops` of the 14 of RandAugment, each with level `magnitude` of 30, its sign random
 *              where it has one: angle 30 degrees, shear 0.3, translation 150/331 of the side,
 *              factors 1 +- 0.9 at level 30. Pixels that come from outside are `fill`
 *     views    of a picture that comes twice (loader.h, repeats = 2), each in the share given of
 *              the pictures (Chen, Xie, He 2021, arXiv:2104.02057): colours jittered (brightness
 *              and contrast by 0.6 .. 1.4, saturation by 0.8 .. 1.2, hue by -0.1 .. 0.1, in random
 *              order), grey, blurred by 0.1 .. 2 pixels, colours from 128 on inverted
 */
#ifndef LF_MEDIA_AUGMENT_H
#define LF_MEDIA_AUGMENT_H

#include "engine/media/grid.h"
#include "engine/media/image.h"

#define LF_SITE_AUGMENT 0x4155472Eu /* Philox site of everything here */

enum lf_augment_op {
    LF_AUG_IDENTITY,
    LF_AUG_SHEAR_X, /* tangent of the angle */
    LF_AUG_SHEAR_Y,
    LF_AUG_TRANSLATE_X, /* pixels, cut to whole ones */
    LF_AUG_TRANSLATE_Y,
    LF_AUG_ROTATE,     /* degrees, against the clock */
    LF_AUG_BRIGHTNESS, /* of these four the magnitude is the factor less 1 */
    LF_AUG_COLOR,
    LF_AUG_CONTRAST,
    LF_AUG_SHARPNESS,
    LF_AUG_POSTERIZE, /* bits of each colour that stay */
    LF_AUG_SOLARIZE,  /* colours from this one on are inverted */
    LF_AUG_AUTOCONTRAST,
    LF_AUG_EQUALIZE,
    LF_AUG_OPS,              /* of RandAugment; these two are of views alone */
    LF_AUG_HUE = LF_AUG_OPS, /* a share of the circle, -0.5 to 0.5 */
    LF_AUG_GREY
};

struct lf_augment {
    uint64_t seed;
    double crop_scale; /* the least share of the area; 0: the processor's own resize and crop */
    bool flip;
    int ops, magnitude; /* 0 operations; level of 30 */
    /* shares of the pictures, of both views, or of the first and of the second; 0: not done */
    double jitter, grey, blur[2], solarize[2];
    uint8_t fill[3]; /* the loader's: what normalises to 0 */
};

/* Draws of one picture, one behind the other: the words of Philox (engine/base/rng.h) at a = sample
 * ^ picture 2^44, b = n / 4. A sample is below 2^44, a picture below 2^20. */
typedef struct lf_draws {
    uint64_t seed, sample;
    uint32_t site, picture, n; /* n: draws so far */
    uint32_t four[4];
} lf_draws;
lf_draws lf_draws_of(uint64_t seed, uint32_t site, int64_t sample, uint32_t picture);
uint32_t lf_draw(lf_draws *d);
double lf_draw_u01(lf_draws *d);                 /* in [0, 1), 32 bits */
uint32_t lf_draw_below(lf_draws *d, uint32_t n); /* floor of n u */
double lf_draw_normal(lf_draws *d);              /* Box-Muller of two draws */
double lf_draw_beta(lf_draws *d, double alpha);  /* of Beta(alpha, alpha), by Joehnk 1964 */

/* A box of pixels. */
struct lf_cutout {
    int32_t x, y, w, h;
};
/* The box of a picture of this size; scale: as crop_scale. */
struct lf_cutout lf_augment_box(lf_draws *d, lf_size of, double scale);
/* The box as a picture of size `to`, bicubically as Pillow does it. */
int lf_augment_cut(lf_image *out, const lf_image *in, const struct lf_cutout *box, lf_size to,
                   lf_err *err);
void lf_augment_flip(lf_image *im);
/* Applies one operation in place. */
int lf_augment_apply(lf_image *im, enum lf_augment_op op, double magnitude, const uint8_t fill[3],
                     lf_err *err);
/* What RandAugment gives an operation at a level, without its sign. */
double lf_augment_magnitude(enum lf_augment_op op, int level, lf_size of);
/* A Gaussian of this deviation over `side` pixels each way, odd, mirrored at the border without
 * the pixel there, rounded once; side < 2 (w, h). */
int lf_augment_blur(lf_image *im, int side, double deviation, lf_err *err);
/* The side for a picture: a tenth of its shorter one, odd, at least 3 (23 of 224). */
int lf_augment_blur_side(lf_size of);
/* Mirror, operations and what is of views, in place, as the draws say. */
int lf_augment_change(lf_image *im, const struct lf_augment *a, lf_draws *d, lf_err *err);

#endif
