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

static void make_grey(lf_image *im)
{
    for (int64_t i = 0; i < bytes_of(im); i += 3)
        memset(im->rgb + i, grey(im->rgb + i), 3);
}

/* ---- hue ---- */

/* In bytes, as Pillow's mode HSV: the hue of 255 steps of the circle, cut. */
struct hsv {
    uint8_t h, s, v;
};

static uint8_t cut_byte(double x)
{
    return x <= 0 ? 0 : x >= 255 ? 255 : (uint8_t)x;
}

static struct hsv hsv_of(const uint8_t *p)
{
    const uint8_t high = p[0] > p[1] ? (p[0] > p[2] ? p[0] : p[2]) : (p[1] > p[2] ? p[1] : p[2]),
                  low = p[0] < p[1] ? (p[0] < p[2] ? p[0] : p[2]) : (p[1] < p[2] ? p[1] : p[2]);
    if (high == low)
        return (struct hsv){0, 0, high};
    const float range = (float)(high - low), r = (float)(high - p[0]) / range,
                g = (float)(high - p[1]) / range, b = (float)(high - p[2]) / range;
    const double from = p[0] == high   ? (double)(b - g)
                        : p[1] == high ? 2.0 + (double)r - (double)b
                                       : 4.0 + (double)g - (double)r;
    const float h = (float)fmod((double)(float)from / 6.0 + 1.0, 1.0);
    return (struct hsv){cut_byte((double)h * 255.0),
                        cut_byte((double)(range / (float)high) * 255.0), high};
}

static void rgb_of(uint8_t *p, struct hsv x)
{
    if (!x.s) {
        memset(p, x.v, 3);
        return;
    }
    const double at = x.h * 6.0 / 255.0, s = x.s / 255.0, v = x.v, sector = floor(at),
                 f = at - sector;
    const uint8_t a = cut_byte(round(v * (1.0 - s))), b = cut_byte(round(v * (1.0 - s * f))),
                  c = cut_byte(round(v * (1.0 - s * (1.0 - f))));
    const uint8_t of[6][3] = {{x.v, c, a}, {b, x.v, a}, {a, x.v, c},
                              {a, b, x.v}, {c, a, x.v}, {x.v, a, b}};
    memcpy(p, of[(int)sector % 6], 3);
}

static void turn_hue(lf_image *im, double by)
{
    const int steps = (int)(by * 255);
    for (int64_t i = 0; i < bytes_of(im); i += 3) {
        struct hsv x = hsv_of(im->rgb + i);
        x.h = (uint8_t)(x.h + steps);
        rgb_of(im->rgb + i, x);
    }
}

/* ---- blur ---- */

int lf_augment_blur_side(lf_size of)
{
    const int32_t shorter = of.w < of.h ? of.w : of.h, side = shorter / 10 + (shorter / 10 + 1) % 2;
    return side < 3 ? 3 : side;
}

/* Place i of n where a row is mirrored at its ends. */
static int64_t mirrored(int64_t i, int64_t n)
{
    i = i < 0 ? -i : i;
    return i < n ? i : 2 * (n - 1) - i;
}

/* Along a row of n places, `step` numbers apart. */
static void blur_line(double *to, const double *from, int64_t n, int64_t step, const double *weight,
                      int side)
{
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        for (int k = 0; k < side; k++)
            sum += weight[k] * from[mirrored(i + k - side / 2, n) * step];
        to[i * step] = sum;
    }
}

int lf_augment_blur(lf_image *im, int side, double deviation, lf_err *err)
{
    const int64_t n = bytes_of(im), stride = 3 * (int64_t)im->w;
    if (side / 2 >= im->w || side / 2 >= im->h) /* too small to be mirrored */
        return 0;
    double *weight = lf_calloc((size_t)side + 2 * (size_t)n, sizeof *weight, err), sum = 0;
    if (!weight)
        return LF_ENOMEM;
    double *from = weight + side, *to = from + n;
    for (int k = 0; k < side; k++)
        sum += weight[k] = exp(-0.5 * pow((k - side / 2) / deviation, 2));
    for (int k = 0; k < side; k++)
        weight[k] /= sum;
    for (int64_t i = 0; i < n; i++)
        from[i] = im->rgb[i];
    for (int64_t y = 0; y < im->h; y++)
        for (int c = 0; c < 3; c++)
            blur_line(to + y * stride + c, from + y * stride + c, im->w, 3, weight, side);
    for (int64_t x = 0; x < stride; x++)
        blur_line(from + x, to + x, im->h, stride, weight, side);
    for (int64_t i = 0; i < n; i++)
        im->rgb[i] = cut_byte(nearbyint(from[i]));
    free(weight);
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
        break;
    case LF_AUG_HUE:
        turn_hue(im, magnitude);
        break;
    case LF_AUG_GREY:
        make_grey(im);
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
