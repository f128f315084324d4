/* SPDX-License-Identifier: Apache-2.0
 *
 * Pixels of a file to RGB; the rules stand in image.h. Integer arithmetic throughout: these are the
 * formulas that Pillow's results follow, so that they hold bit for bit.
 */
#include "engine/media/image_priv.h"

/* round(a b / 255) for bytes, without a division */
static inline uint8_t mul_255(unsigned a, unsigned b)
{
    unsigned t = a * b + 128;
    return (uint8_t)(((t >> 8) + t) >> 8);
}

static inline uint8_t on_white(unsigned c, unsigned alpha)
{
    unsigned k1 = 128 * alpha, k2 = 32640 - k1;
    unsigned t = c * k1 + 255 * k2 + 16384;
    return (uint8_t)((((t >> 8) + t) >> 8) >> 7);
}

static void grey(uint8_t *restrict rgb, const uint8_t *restrict px, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = px[i];
}

static void grey_alpha(uint8_t *restrict rgb, const uint8_t *restrict px, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        rgb[3 * i] = rgb[3 * i + 1] = rgb[3 * i + 2] = on_white(px[2 * i], px[2 * i + 1]);
}

static void rgb_alpha(uint8_t *restrict rgb, const uint8_t *restrict px, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        for (int c = 0; c < 3; c++)
            rgb[3 * i + c] = on_white(px[4 * i + c], px[4 * i + 3]);
}

/* The bytes are 255 - ink, so that 255 is no ink. What remains of the light is what the colour's
 * ink leaves of what the black ink leaves. */
static void cmyk(uint8_t *restrict rgb, const uint8_t *restrict px, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        unsigned light = px[4 * i + 3];
        for (int c = 0; c < 3; c++)
            rgb[3 * i + c] = (uint8_t)(light - mul_255(255u - px[4 * i + c], light));
    }
}

void lf_colour_rgb(uint8_t *rgb, const uint8_t *px, int64_t n, enum lf_raster_kind kind)
{
    switch (kind) {
    case LF_RASTER_GREY:
        return grey(rgb, px, n);
    case LF_RASTER_GREY_A:
        return grey_alpha(rgb, px, n);
    case LF_RASTER_RGBA:
        return rgb_alpha(rgb, px, n);
    case LF_RASTER_CMYK:
        return cmyk(rgb, px, n);
    case LF_RASTER_RGB:
        break; /* from_raster takes these as they are */
    }
    LF_BUG("colour: raster kind %d", (int)kind);
}
