/* SPDX-License-Identifier: Apache-2.0
 *
 * Decisions, and what moves pixels; augment_ops.c changes colours. */
#include "engine/media/augment.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"
#include "engine/media/augment_priv.h"
#include "engine/media/resize.h"

/* ---- draws ---- */

lf_draws lf_draws_of(uint64_t seed, uint32_t site, int64_t sample, uint32_t picture)
{
    return (lf_draws){.seed = seed, .site = site, .sample = (uint64_t)sample, .picture = picture};
}

uint32_t lf_draw(lf_draws *d)
{
    if (d->n % 4 == 0)
        lf_philox(d->four, d->seed, d->site, d->sample ^ (uint64_t)d->picture << 44, d->n / 4);
    return d->four[d->n++ % 4];
}

double lf_draw_u01(lf_draws *d)
{
    return (double)lf_draw(d) * (1.0 / 4294967296.0);
}

uint32_t lf_draw_below(lf_draws *d, uint32_t n)
{
    return (uint32_t)((uint64_t)lf_draw(d) * n >> 32);
}

double lf_draw_normal(lf_draws *d)
{
    const double u = 1 - lf_draw_u01(d), v = lf_draw_u01(d);
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

double lf_draw_beta(lf_draws *d, double alpha)
{
    for (int i = 0; i < 4096; i++) {
        const double u = lf_draw_u01(d), v = lf_draw_u01(d), x = pow(u, 1 / alpha),
                     y = pow(v, 1 / alpha);
        if (x + y <= 1 && x + y > 0)
            return x / (x + y);
        if (x + y <= 1 && u > 0 && v > 0) /* both are too small for numbers, but not their ratio */
            return 1 / (1 + exp((log(v) - log(u)) / alpha));
    }
    return 0.5;
}

/* ---- the box ---- */

static double between(lf_draws *d, double low, double high)
{
    return low + (high - low) * lf_draw_u01(d);
}

struct lf_cutout lf_augment_box(lf_draws *d, lf_size of, double scale)
{
    const double area = (double)of.w * of.h, least = 3.0 / 4, most = 4.0 / 3;
    struct lf_cutout b;
    for (int i = 0; i < 10; i++) {
        const double target = area * between(d, scale, 1),
                     ratio = exp(between(d, log(least), log(most)));
        b.w = (int32_t)nearbyint(sqrt(target * ratio));
        b.h = (int32_t)nearbyint(sqrt(target / ratio));
        if (b.w > 0 && b.w <= of.w && b.h > 0 && b.h <= of.h) {
            b.y = (int32_t)lf_draw_below(d, (uint32_t)(of.h - b.h + 1));
            b.x = (int32_t)lf_draw_below(d, (uint32_t)(of.w - b.w + 1));
            return b;
        }
    }
    const double ratio = (double)of.w / of.h;
    b.w = ratio > most ? (int32_t)nearbyint(of.h * most) : of.w;
    b.h = ratio < least ? (int32_t)nearbyint(of.w / least) : of.h;
    b.x = (of.w - b.w) / 2;
    b.y = (of.h - b.h) / 2;
    return b;
}

int lf_augment_cut(lf_image *out, const lf_image *in, const struct lf_cutout *box, lf_size to,
                   lf_err *err)
{
    static const uint8_t black[3] = {0};
    lf_image part = {0};
    int rc = lf_image_create(&part, box->w, box->h, black, err);
    for (int32_t y = 0; y < box->h && rc == 0; y++)
        memcpy(part.rgb + 3 * (int64_t)y * box->w,
               in->rgb + 3 * ((int64_t)(box->y + y) * in->w + box->x), 3 * (size_t)box->w);
    if (rc == 0)
        rc = lf_resize(out, &part, to.w, to.h, LF_BICUBIC, LF_RESIZE_PIL, err);
    lf_image_fini(&part);
    return rc;
}

void lf_augment_flip(lf_image *im)
{
    for (int32_t y = 0; y < im->h; y++) {
        uint8_t *row = im->rgb + 3 * (int64_t)y * im->w;
        for (int32_t a = 0, b = im->w - 1; a < b; a++, b--)
            for (int c = 0; c < 3; c++) {
                const uint8_t t = row[3 * a + c];
                row[3 * a + c] = row[3 * b + c];
                row[3 * b + c] = t;
            }
    }
}

/* ---- shapes ---- */

/* Where a pixel of the result comes from: (m0 x + m1 y + m2, m3 x + m4 y + m5) of its centre. */
struct affine {
    double m[6];
};

/* Numbers of 16.16, as Pillow makes them. */
static int64_t fixed(double v)
{
    const double x = v * 65536.0 + 0.5;
    return x < 0 ? (int64_t)floor(x) : (int64_t)x;
}

static void take(uint8_t *to, const lf_image *from, int64_t x, int64_t y)
{
    if (x >= 0 && x < from->w && y >= 0 && y < from->h)
        memcpy(to, from->rgb + 3 * (y * from->w + x), 3);
}

/* The nearest pixel, in the fixed point of Pillow. */
static void turned(lf_image *to, const lf_image *from, const struct affine *a)
{
    const double *m = a->m;
    const int64_t a0 = fixed(m[0]), a1 = fixed(m[1]), a3 = fixed(m[3]), a4 = fixed(m[4]);
    int64_t x0 = fixed(m[2] + m[0] * 0.5 + m[1] * 0.5), y0 = fixed(m[5] + m[3] * 0.5 + m[4] * 0.5);
    for (int32_t y = 0; y < to->h; y++, x0 += a1, y0 += a4)
        for (int32_t x = 0; x < to->w; x++)
            take(to->rgb + 3 * ((int64_t)y * to->w + x), from, (x0 + x * a0) >> 16,
                 (y0 + x * a3) >> 16);
}

/* Without a turn Pillow goes along the axes in floating point. */
static void moved(lf_image *to, const lf_image *from, const struct affine *a)
{
    double at = a->m[5] + a->m[4] * 0.5;
    for (int32_t y = 0; y < to->h; y++, at += a->m[4]) {
        double along = a->m[2] + a->m[0] * 0.5;
        for (int32_t x = 0; x < to->w; x++, along += a->m[0])
            take(to->rgb + 3 * ((int64_t)y * to->w + x), from, along < 0 ? -1 : (int64_t)along,
                 at < 0 ? -1 : (int64_t)at);
    }
}

static int transform(lf_image *im, const struct affine *a, const uint8_t fill[3], lf_err *err)
{
    lf_image to = {0};
    int rc = lf_image_create(&to, im->w, im->h, fill, err);
    if (rc != 0)
        return rc;
    /* exactly 0, as there */
    if (!(fabs(a->m[1]) > 0) && !(fabs(a->m[3]) > 0))
        moved(&to, im, a);
    else
        turned(&to, im, a);
    free(im->rgb);
    im->rgb = to.rgb;
    return 0;
}

/* The inverse of a shear by the angles of these tangents, as torchvision forms it, around (0, 0).
 */
static struct affine sheared(double x, double y)
{
    const double degrees = 180 / 3.14159265358979323846, sx = (atan(x) * degrees) * (1 / degrees),
                 sy = (atan(y) * degrees) * (1 / degrees);
    const double a = cos(-sy) / cos(sy), b = -cos(-sy) * tan(sx) / cos(sy), c = sin(-sy) / cos(sy),
                 d = -sin(-sy) * tan(sx) / cos(sy) + 1;
    return (struct affine){{d, -b, 0, -c, a, 0}};
}

static double rounded(double x)
{
    return nearbyint(x * 1e15) / 1e15;
}

/* Around the middle, as Pillow's rotate. */
static struct affine rotated(double degrees, lf_size of)
{
    const double r = -degrees * (3.14159265358979323846 / 180), cx = of.w / 2.0, cy = of.h / 2.0;
    struct affine a = {{rounded(cos(r)), rounded(sin(r)), 0, rounded(-sin(r)), rounded(cos(r)), 0}};
    a.m[2] = a.m[0] * -cx + a.m[1] * -cy + cx;
    a.m[5] = a.m[3] * -cx + a.m[4] * -cy + cy;
    return a;
}

int lf_augment_shape(lf_image *im, enum lf_augment_op op, double v, const uint8_t fill[3],
                     lf_err *err)
{
    struct affine a = {{1, 0, 0, 0, 1, 0}};
    double turn = fmod(v, 360);
    switch (op) {
    case LF_AUG_SHEAR_X:
        a = sheared(v, 0);
        break;
    case LF_AUG_SHEAR_Y:
        a = sheared(0, v);
        break;
    case LF_AUG_TRANSLATE_X:
        a.m[2] = -trunc(v);
        break;
    case LF_AUG_TRANSLATE_Y:
        a.m[5] = -trunc(v);
        break;
    default:
        if (!(fabs(turn) > 0))
            return 0;
        a = rotated(turn < 0 ? turn + 360 : turn, (lf_size){im->w, im->h});
    }
    return transform(im, &a, fill, err);
}

/* ---- RandAugment ---- */

double lf_augment_magnitude(enum lf_augment_op op, int level, lf_size of)
{
    const double share = level / 30.0;
    switch (op) {
    case LF_AUG_SHEAR_X:
    case LF_AUG_SHEAR_Y:
        return 0.3 * share;
    case LF_AUG_TRANSLATE_X:
        return 150.0 / 331 * of.w * share;
    case LF_AUG_TRANSLATE_Y:
        return 150.0 / 331 * of.h * share;
    case LF_AUG_ROTATE:
        return 30 * share;
    case LF_AUG_BRIGHTNESS:
    case LF_AUG_COLOR:
    case LF_AUG_CONTRAST:
    case LF_AUG_SHARPNESS:
        return 0.9 * share;
    case LF_AUG_POSTERIZE:
        return 8 - nearbyint(4 * share);
    case LF_AUG_SOLARIZE:
        return 255 * (1 - share);
    default:
        return 0;
    }
}

/* Brightness, contrast, saturation and hue, in any of their orders. */
static int jitter(lf_image *im, lf_draws *d, lf_err *err)
{
    static const uint8_t none[3] = {0};
    struct {
        enum lf_augment_op op;
        double by;
    } all[] = {{LF_AUG_BRIGHTNESS, between(d, -0.4, 0.4)},
               {LF_AUG_CONTRAST, between(d, -0.4, 0.4)},
               {LF_AUG_COLOR, between(d, -0.2, 0.2)},
               {LF_AUG_HUE, between(d, -0.1, 0.1)}};
    for (uint32_t left = 4; left > 0; left--) {
        const uint32_t i = lf_draw_below(d, left);
        const int rc = lf_augment_apply(im, all[i].op, all[i].by, none, err);
        if (rc != 0)
            return rc;
        all[i] = all[left - 1];
    }
    return 0;
}

/* What views have. The draws of a picture are as many whatever is done. */
static int change_view(lf_image *im, const struct lf_augment *a, lf_draws *d, lf_err *err)
{
    static const uint8_t none[3] = {0};
    const int view = (int)(d->sample / 2 % 2);
    const double u[] = {lf_draw_u01(d), lf_draw_u01(d), lf_draw_u01(d), lf_draw_u01(d)};
    const double deviation = between(d, 0.1, 2);
    int rc = 0;
    if (u[0] < a->jitter)
        rc = jitter(im, d, err);
    if (rc == 0 && u[1] < a->grey)
        rc = lf_augment_apply(im, LF_AUG_GREY, 0, none, err);
    if (rc == 0 && u[2] < a->blur[view])
        rc = lf_augment_blur(im, lf_augment_blur_side((lf_size){im->w, im->h}), deviation, err);
    if (rc == 0 && u[3] < a->solarize[view])
        rc = lf_augment_apply(im, LF_AUG_SOLARIZE, 128, none, err);
    return rc;
}

static bool has_views(const struct lf_augment *a)
{
    return a->jitter > 0 || a->grey > 0 || a->blur[0] > 0 || a->blur[1] > 0 || a->solarize[0] > 0 ||
           a->solarize[1] > 0;
}

int lf_augment_change(lf_image *im, const struct lf_augment *a, lf_draws *d, lf_err *err)
{
    if (a->flip && lf_draw_below(d, 2))
        lf_augment_flip(im);
    for (int i = 0; i < a->ops; i++) {
        const enum lf_augment_op op = (enum lf_augment_op)lf_draw_below(d, LF_AUG_OPS);
        const bool minus = lf_draw_below(d, 2),
                   has_sign = op >= LF_AUG_SHEAR_X && op <= LF_AUG_SHARPNESS;
        const double v = lf_augment_magnitude(op, a->magnitude, (lf_size){im->w, im->h});
        const int rc = lf_augment_apply(im, op, minus && has_sign ? -v : v, a->fill, err);
        if (rc != 0)
            return rc;
    }
    return has_views(a) ? change_view(im, a, d, err) : 0;
}
