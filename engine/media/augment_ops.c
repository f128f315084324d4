/* SPDX-License-Identifier: Apache-2.0
 *
 * Colours, with the arithmetic of Pillow's ImageEnhance and ImageOps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/media/augment_priv.h"

static int64_t bytes_of(const lf_image *im)
{
    return 3 * (int64_t)im->w * im->h;
}

static uint8_t grey(const uint8_t *p)
{
    return (uint8_t)((p[0] * 19595u + p[1] * 38470u + p[2] * 7471u + 0x8000u) >> 16);
}

/* Image.blend: from a value that means nothing of the picture towards it, and beyond. */
static uint8_t blend(uint8_t none, uint8_t is, float factor)
{
    const float x = (float)none + factor * (float)((int)is - (int)none);
    return x <= 0 ? 0 : x >= 255 ? 255 : (uint8_t)x;
}

static void brighten(lf_image *im, float factor)
{
    for (int64_t i = 0; i < bytes_of(im); i++)
        im->rgb[i] = blend(0, im->rgb[i], factor);
}

static void saturate(lf_image *im, float factor)
{
    for (int64_t i = 0; i < bytes_of(im); i += 3) {
        const uint8_t g = grey(im->rgb + i);
        for (int c = 0; c < 3; c++)
            im->rgb[i + c] = blend(g, im->rgb[i + c], factor);
    }
}

static void contrast(lf_image *im, float factor)
{
    const int64_t n = bytes_of(im);
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i += 3)
        sum += grey(im->rgb + i);
    const uint8_t mean = (uint8_t)((double)sum / (double)(n / 3) + 0.5);
    for (int64_t i = 0; i < n; i++)
        im->rgb[i] = blend(mean, im->rgb[i], factor);
}

/* The mean of the 3 x 3 around a pixel, in which it counts 5 times; s / 13 is never half of an odd
 * number, so integers round as Pillow's floats do. */
static uint8_t smooth(const uint8_t *p, int64_t stride)
{
    int s = 4 * p[0];
    for (int64_t y = -1; y <= 1; y++)
        for (int64_t x = -3; x <= 3; x += 3)
            s += p[y * stride + x];
    return (uint8_t)((2 * s + 13) / 26);
}

static int sharpen(lf_image *im, float factor, lf_err *err)
{
    const int64_t n = bytes_of(im), stride = 3 * (int64_t)im->w;
    uint8_t *was = lf_malloc((size_t)n, 1, err);
    if (!was)
        return LF_ENOMEM;
    memcpy(was, im->rgb, (size_t)n);
    for (int64_t y = 0; y < im->h; y++)
        for (int64_t x = 0; x < im->w; x++) {
            const bool inner = x > 0 && y > 0 && x < im->w - 1 && y < im->h - 1;
            for (int64_t c = 0; c < 3 && inner; c++) { /* a border is smooth as it is */
                const int64_t i = y * stride + 3 * x + c;
                im->rgb[i] = blend(smooth(was + i, stride), was[i], factor);
            }
        }
    free(was);
    return 0;
}

/* ---- tables of colours ---- */

static void count(int64_t of[256], const lf_image *im, int c)
{
    memset(of, 0, 256 * sizeof *of);
    for (int64_t i = c; i < bytes_of(im); i += 3)
        of[im->rgb[i]]++;
}

static void stretch(uint8_t to[256], const int64_t of[256])
{
    int low = 0, high = 255;
    while (low < 255 && !of[low])
        low++;
    while (high > 0 && !of[high])
        high--;
    if (high <= low)
        return;
    const double scale = 255.0 / (high - low), offset = -low * scale;
    for (int i = 0; i < 256; i++) {
        const double x = i * scale + offset;
        to[i] = x < 0 ? 0 : x > 255 ? 255 : (uint8_t)x;
    }
}

static void equalize(uint8_t to[256], const int64_t of[256])
{
    int64_t sum = 0, last = 0, kinds = 0, n;
    for (int i = 0; i < 256; i++)
        if (of[i]) {
            sum += of[i];
            last = of[i];
            kinds++;
        }
    const int64_t step = (sum - last) / 255;
    if (kinds <= 1 || !step)
        return;
    n = step / 2;
    for (int i = 0; i < 256; i++) {
        to[i] = (uint8_t)(n / step > 255 ? 255 : n / step);
        n += of[i];
    }
}

static void by_table(lf_image *im, enum lf_augment_op op, double v)
{
    for (int c = 0; c < 3; c++) {
        uint8_t to[256];
        int64_t of[256];
        for (int i = 0; i < 256; i++)
            to[i] = (uint8_t)(op == LF_AUG_POSTERIZE              ? i & ~((1 << (8 - (int)v)) - 1)
                              : op == LF_AUG_SOLARIZE && !(i < v) ? 255 - i
                                                                  : i);
        count(of, im, c);
        if (op == LF_AUG_AUTOCONTRAST)
            stretch(to, of);
        if (op == LF_AUG_EQUALIZE)
            equalize(to, of);
        for (int64_t i = c; i < bytes_of(im); i += 3)
            im->rgb[i] = to[im->rgb[i]];
    }
}

int lf_augment_apply(lf_image *im, enum lf_augment_op op, double magnitude, const uint8_t fill[3],
                     lf_err *err)
{
    const float factor = (float)(1 + magnitude);
    switch (op) {
    case LF_AUG_IDENTITY:
    case LF_AUG_OPS:
        break;
    case LF_AUG_BRIGHTNESS:
        brighten(im, factor);
        break;
    case LF_AUG_COLOR:
        saturate(im, factor);
        break;
    case LF_AUG_CONTRAST:
        contrast(im, factor);
        break;
    case LF_AUG_SHARPNESS:
        return sharpen(im, factor, err);
    case LF_AUG_POSTERIZE:
    case LF_AUG_SOLARIZE:
    case LF_AUG_AUTOCONTRAST:
    case LF_AUG_EQUALIZE:
        by_table(im, op, magnitude);
        break;
    default:
        return lf_augment_shape(im, op, magnitude, fill, err);
    }
    return 0;
}
