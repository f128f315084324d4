/* SPDX-License-Identifier: Apache-2.0
 *
 * What image.c asks of a decoder, one per library.
 */
#ifndef LF_MEDIA_IMAGE_PRIV_H
#define LF_MEDIA_IMAGE_PRIV_H

#include "engine/media/image.h"

enum lf_raster_kind {
    LF_RASTER_GREY,
    LF_RASTER_GREY_A,
    LF_RASTER_RGB,
    LF_RASTER_RGBA,
    LF_RASTER_CMYK
};

/* Pixels as they lie in the file, 8 bits per channel, channels interleaved. */
typedef struct lf_raster {
    uint8_t *px; /* [h][w][channels of kind], from lf_calloc; freed by image.c, after errors too */
    int32_t w, h;
    enum lf_raster_kind kind;
    int orientation; /* 1 to 8, 0: none found */
    int64_t warnings;
    bool truncated;
    bool size_only; /* set before: w, h and orientation are all that is asked for */
} lf_raster;

/* Bytes per pixel. */
size_t lf_raster_channels(enum lf_raster_kind kind);

/* Judges w x h, then asks for the memory of r->kind; sets px, w, h. With size_only px stays NULL,
 * and the decoder is done. */
int lf_raster_alloc(lf_raster *r, int64_t w, int64_t h, const lf_image_opts *o, lf_err *err);

/* Each reads a whole file and fills *r, which is zeroed but for size_only. Without its library it
 * returns LF_ENOTSUP and names the package. version: of the library in use, NULL: not built in. */
int lf_jpeg_decode(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o, lf_err *err);
int lf_png_decode(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o, lf_err *err);
int lf_webp_decode(lf_raster *r, const uint8_t *p, size_t n, const lf_image_opts *o, lf_err *err);
const char *lf_jpeg_version(char buf[32]);
const char *lf_png_version(char buf[32]);
const char *lf_webp_version(char buf[32]);

/* image.c: decoder i of check.h; NULL: it is not built in. */
const char *lf_decoder_version(const char **format, int i, char buf[32]);

/* colour.c: [n] pixels of `kind` to [n][3]. */
void lf_colour_rgb(uint8_t *rgb, const uint8_t *px, int64_t n, enum lf_raster_kind kind);
/* orient.c: turns and mirrors the image in place of im->rgb, so that `orientation` becomes 1. */
int lf_orient(lf_image *im, int orientation, lf_err *err);

#endif
