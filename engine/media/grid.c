/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes and tiles. Python divides integers as f64 and int() cuts: so do we.
 */
#include "engine/media/grid.h"

#include <math.h>
#include <stdbool.h>

#include "engine/media/image.h"

static int whole_size(lf_size *out, double w, double h, lf_size in, lf_err *err)
{
    if (!(w >= 1 && h >= 1 && w <= LF_IMAGE_MAX_SIDE && h <= LF_IMAGE_MAX_SIDE))
        return lf_fail(err, LF_EINVAL,
                       "a picture of %d x %d pixels would become %.0f x %.0f; a side has 1 to %d: "
                       "cut it into parts",
                       in.w, in.h, w, h, LF_IMAGE_MAX_SIDE);
    *out = (lf_size){(int32_t)w, (int32_t)h};
    return 0;
}

int lf_grid_shortest(lf_size *out, lf_size in, int32_t shortest, lf_err *err)
{
    double a = in.w <= in.h ? in.w : in.h, b = in.w <= in.h ? in.h : in.w;
    double longest = trunc((double)shortest * b / a);
    return in.w <= in.h ? whole_size(out, shortest, longest, in, err)
                        : whole_size(out, longest, shortest, in, err);
}

int lf_grid_smart(lf_size *out, lf_size in, int32_t f, int64_t min_pixels, int64_t max_pixels,
                  lf_err *err)
{
    double w = in.w, h = in.h, a = w < h ? w : h, b = w < h ? h : w;
    if (b / a > 200)
        return lf_fail(err, LF_EINVAL,
                       "a picture of %d x %d pixels is more than 200 times as long as wide; this "
                       "processor takes none such",
                       in.w, in.h);
    double to_w = rint(w / f) * f, to_h = rint(h / f) * f;
    if (to_w * to_h > (double)max_pixels) {
        double beta = sqrt(h * w / (double)max_pixels);
        to_h = fmax(f, floor(h / beta / f) * f);
        to_w = fmax(f, floor(w / beta / f) * f);
    } else if (to_w * to_h < (double)min_pixels) {
        double beta = sqrt((double)min_pixels / (h * w));
        to_h = ceil(h * beta / f) * f;
        to_w = ceil(w * beta / f) * f;
    }
    return whole_size(out, to_w, to_h, in, err);
}

static double naflex_side(double scale, int32_t side, int32_t patch)
{
    return fmax(patch, ceil(side * scale / patch) * patch);
}

int lf_grid_naflex(lf_size *out, lf_size in, int32_t patch, int32_t most, lf_err *err)
{
    const double eps = 1e-5;
    double lo = eps / 10, hi = 100;
    while (hi - lo >= eps) {
        double scale = (lo + hi) / 2;
        double h = naflex_side(scale, in.h, patch), w = naflex_side(scale, in.w, patch);
        if (h / patch * (w / patch) <= most)
            lo = scale;
        else
            hi = scale;
    }
    return whole_size(out, naflex_side(lo, in.w, patch), naflex_side(lo, in.h, patch), in, err);
}

/* Is g better than the best so far? Grids come in the order of their number of tiles. */
static bool better_grid(lf_size g, double difference, double least, lf_size in, lf_size tile)
{
    if (difference < least)
        return true;
    return difference == least && (double)in.w * in.h > 0.5 * ((double)tile.h * tile.w * g.w * g.h);
}

lf_size lf_grid_tiles(lf_size in, lf_size tile, int32_t least, int32_t most)
{
    double ratio = (double)in.w / in.h, nearest = INFINITY;
    lf_size best = {1, 1};
    for (int32_t n = least; n <= most; n++)
        for (int32_t cols = 1; cols <= n; cols++) {
            if (n % cols != 0)
                continue;
            lf_size g = {cols, n / cols};
            double difference = fabs(ratio - (double)g.w / g.h);
            if (better_grid(g, difference, nearest, in, tile)) {
                best = g;
                nearest = difference;
            }
        }
    return best;
}

lf_size lf_grid_anyres(lf_size in, const lf_size *sizes, int32_t n)
{
    double most = 0, least_waste = INFINITY, area = (double)in.w * in.h;
    lf_size best = sizes[0];
    for (int32_t i = 0; i < n; i++) {
        double sw = (double)sizes[i].w / in.w, sh = (double)sizes[i].h / in.h;
        double s = sw < sh ? sw : sh;
        double used = fmin(trunc(in.w * s) * trunc(in.h * s), area);
        double waste = (double)sizes[i].w * sizes[i].h - used;
        if (used > most || (used == most && waste < least_waste)) {
            best = sizes[i];
            most = used;
            least_waste = waste;
        }
    }
    return best;
}

int lf_grid_inside(lf_size *out, lf_size in, lf_size frame, lf_err *err)
{
    double sw = (double)frame.w / in.w, sh = (double)frame.h / in.h;
    return sw < sh ? whole_size(out, frame.w, fmin(ceil(in.h * sw), frame.h), in, err)
                   : whole_size(out, fmin(ceil(in.w * sh), frame.w), frame.h, in, err);
}

lf_size lf_grid_pan(lf_size *crop, lf_size in, double min_ratio, int32_t min_crop, int32_t most)
{
    bool wide = in.w >= in.h;
    double a = wide ? in.h : in.w, b = wide ? in.w : in.h;
    if (b / a < min_ratio)
        return (lf_size){0, 0};
    double n = fmin(floor(b / min_crop), floor(b / a + 0.5));
    n = fmin(fmax(n, 2), most);
    int32_t piece = (int32_t)ceil(b / n);
    *crop = wide ? (lf_size){piece, in.h} : (lf_size){in.w, piece};
    if (piece < min_crop || a < min_crop)
        return (lf_size){0, 0};
    return wide ? (lf_size){(int32_t)n, 1} : (lf_size){1, (int32_t)n};
}

enum { LONGEST = 4096 }; /* of Idefics 3, whatever its file says */

static double even(double n)
{
    return fmod(n, 2) > 0 ? n + 1 : n;
}

int lf_grid_longest(lf_size *out, lf_size in, int32_t longest, lf_err *err)
{
    double w = longest, h = longest, ratio = (double)in.w / in.h;
    if (in.w >= in.h)
        h = fmax(even(trunc(w / ratio)), 1);
    else
        w = fmax(even(trunc(h * ratio)), 1);
    ratio = w / h;
    if (w >= h && w > LONGEST) {
        w = LONGEST;
        h = fmax(trunc(w / ratio), 1);
    } else if (h > w && h > LONGEST) {
        h = LONGEST;
        w = fmax(trunc(h * ratio), 1);
    }
    return whole_size(out, w, h, in, err);
}

int lf_grid_split(lf_size *out, lf_size in, int32_t tile, lf_err *err)
{
    const double ratio = (double)in.w / in.h;
    double w = ceil((double)in.w / tile) * tile, h = ceil((double)in.h / tile) * tile;
    if (in.w >= in.h)
        h = ceil(trunc(w / ratio) / tile) * tile;
    else
        w = ceil(trunc(h * ratio) / tile) * tile;
    return whole_size(out, w, h, in, err);
}

int lf_grid_within(lf_size *out, lf_size in, lf_size most, int32_t f, lf_err *err)
{
    const double ratio = fmax((double)in.h / most.h, (double)in.w / most.w);
    const double w = ratio > 1 ? floor(in.w / ratio) : in.w,
                 h = ratio > 1 ? floor(in.h / ratio) : in.h;
    return whole_size(out, (floor((w - 1) / f) + 1) * f, (floor((h - 1) / f) + 1) * f, in, err);
}
