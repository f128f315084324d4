/* SPDX-License-Identifier: Apache-2.0
 *
 * A picture's file to RGB bytes.
 *
 * What is read: JPEG (8 bits; grey, YCbCr, RGB, CMYK, YCCK), PNG (all types, interlaced too) and
 * WebP (lossy, lossless), each where its library was there at configure. What is told by its first
 * bytes and refused by name: GIF, BMP, TIFF, HEIC, AVIF and others, animated WebP, video and sound.
 * The pixels are those of Pillow 12.3 where its copies of the libraries decode alike, which the
 * golden files of tests/golden/media and `loong-flow doctor` check.
 *
 * The rules, in this order:
 *  - grey g becomes (g, g, g); 16-bit colour keeps its high byte; 16-bit grey is refused, because
 *    other programs clip it at 255 instead of scaling it (scale_grey16: its high byte);
 *  - CMYK is taken as Adobe writes it, inverted: with k = byte 4, red = round(c k / 255);
 *  - what is not opaque is laid on white: with t = 128 a c + 255 (32640 - 128 a) + 16384,
 *    red = (((t >> 8) + t) >> 8) >> 7, which is Pillow's alpha_composite;
 *  - EXIF orientation is applied (exif.h).
 * ICC profiles and gamma are ignored.
 */
#ifndef LF_MEDIA_IMAGE_H
#define LF_MEDIA_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define LF_IMAGE_MAX_PIXELS ((int64_t)1 << 28)
#define LF_IMAGE_MAX_SIDE   65500 /* what libjpeg can count */

typedef struct lf_image {
    uint8_t *rgb;       /* [h][w][3], owned */
    int32_t w, h;       /* pixels, after orientation */
    const char *format; /* "JPEG", "PNG", "WebP" */
    int orientation;    /* of the file's EXIF, 1 to 8; 1 when it has none */
    int64_t warnings;   /* what the decoder complained about and went on */
    bool truncated;     /* the file ended early: the last rows are grey, black or white */
} lf_image;

typedef struct lf_image_opts {
    bool ignore_exif;    /* leave the picture as it lies in the file */
    bool scale_grey16;   /* 16-bit grey: keep the high byte, instead of refusing it */
    bool keep_truncated; /* a file that ends early gives what there is, instead of an error */
    int64_t max_pixels;  /* 0: LF_IMAGE_MAX_PIXELS, which is also the most */
} lf_image_opts;

/* Reads the picture in the n bytes at `bytes`. opts NULL: all of it off. Sizes that a file declares
 * are judged before memory is asked for; beside the result (3 bytes a pixel) a decoder holds at
 * most 4 bytes a pixel, for a progressive JPEG 6 more.
 * LF_ENOTSUP: a format without a decoder here, named; LF_EFORMAT: broken, or not a picture;
 * LF_EINVAL: too large. Messages do not name the file: the caller puts that in front. */
int lf_image_decode(lf_image *out, const void *bytes, size_t n, const lf_image_opts *opts,
                    lf_err *err);
/* The same without the pixels: out->rgb is NULL. It reads what is before them, so damage behind
 * that is not seen; `warnings` and `truncated` are not known. */
int lf_image_probe(lf_image *out, const void *bytes, size_t n, const lf_image_opts *opts,
                   lf_err *err);
void lf_image_fini(lf_image *im); /* takes one that is zeroed or that failed, too */

/* Makes an image of w x h pixels with every pixel `fill`. */
int lf_image_create(lf_image *out, int32_t w, int32_t h, const uint8_t fill[3], lf_err *err);

#endif
