/* SPDX-License-Identifier: Apache-2.0
 *
 * What processor.c would make of a picture, by its size alone. It follows that file kind by kind;
 * the tests compare both.
 */
#include "engine/media/processor.h"

#include <string.h>

/* The tiles so far: how many, and the size that all of them have. */
struct plan {
    int64_t n;
    lf_size size, layout;
};

static int too_large(lf_size s, lf_err *err)
{
    return lf_fail(err, LF_EINVAL,
                   "it would have %d x %d pixels; at most %lld are possible, and %d a side", s.w,
                   s.h, (long long)LF_IMAGE_MAX_PIXELS, LF_IMAGE_MAX_SIDE);
}

static int check_size(lf_size s, lf_err *err)
{
    bool fits = s.w >= 1 && s.h >= 1 && s.w <= LF_IMAGE_MAX_SIDE && s.h <= LF_IMAGE_MAX_SIDE &&
                (int64_t)s.w * s.h <= LF_IMAGE_MAX_PIXELS;
    return fits ? 0 : too_large(s, err);
}

/* `count` tiles of this size, which must be that of the tiles before. */
static int add(struct plan *t, const lf_processor *p, lf_size size, int64_t count, lf_err *err)
{
    int rc = check_size(size, err);
    if (rc < 0)
        return rc;
    if (t->n == 0)
        t->size = size;
    if (t->size.w != size.w || t->size.h != size.h)
        return lf_fail(err, LF_EINVAL,
                       "%s makes tiles of %d x %d and of %d x %d pixels of this picture; "
                       "crop_size would make them equal",
                       p->class_name, t->size.w, t->size.h, size.w, size.h);
    t->n += count;
    return 0;
}

static int fit(struct plan *t, const lf_processor *p, lf_size from, int64_t count, lf_err *err)
{
    lf_size to = lf_processor_fitted(p, from);
    int rc = 0;
    if (p->do_resize && p->shortest > 0)
        rc = lf_grid_shortest(&to, from, p->shortest, err);
    if (rc == 0)
        rc = check_size(to, err);
    return rc < 0 ? rc : add(t, p, p->do_crop ? p->crop : to, count, err);
}

static int fit_square(struct plan *t, const lf_processor *p, lf_size from, lf_err *err)
{
    int32_t side = from.w > from.h ? from.w : from.h;
    return fit(t, p, (lf_size){side, side}, 1, err);
}

/* The pieces of a row or column, of which the last may be smaller. */
static int fit_pieces(struct plan *t, const lf_processor *p, lf_size from, lf_size piece,
                      lf_err *err)
{
    const lf_size n = {(from.w + piece.w - 1) / piece.w, (from.h + piece.h - 1) / piece.h};
    int rc = 0;
    t->layout = n;
    if ((int64_t)n.w * n.h > LF_TILES_MAX)
        return lf_fail(
            err, LF_EINVAL,
            "%s cuts a picture of %d x %d pixels into %d x %d tiles; at most %d are made",
            p->class_name, from.w, from.h, n.w, n.h, LF_TILES_MAX);
    for (int last_y = 0; last_y < 2; last_y++)
        for (int last_x = 0; last_x < 2 && rc == 0; last_x++) {
            lf_size size = {last_x ? from.w - (n.w - 1) * piece.w : piece.w,
                            last_y ? from.h - (n.h - 1) * piece.h : piece.h};
            int64_t count = (last_x ? 1 : (int64_t)n.w - 1) * (last_y ? 1 : (int64_t)n.h - 1);
            if (count > 0)
                rc = fit(t, p, size, count, err);
        }
    return rc;
}

static int plan_tiles(struct plan *t, const lf_processor *p, lf_size from, lf_err *err)
{
    if (!p->do_tiles)
        return fit(t, p, from, 1, err);
    lf_size g = lf_grid_tiles(from, p->size, p->min_tiles, p->max_tiles);
    int rc = check_size((lf_size){g.w * p->size.w, g.h * p->size.h}, err);
    if (rc == 0)
        rc = fit_pieces(t, p, (lf_size){g.w * p->size.w, g.h * p->size.h}, p->size, err);
    return rc == 0 && t->n > 1 ? fit(t, p, from, 1, err) : rc;
}

static int plan_anyres(struct plan *t, const lf_processor *p, lf_size from, bool alone, lf_err *err)
{
    if (p->tile_alone && !alone)
        return fit_square(t, p, from, err);
    lf_size whole = p->shortest > 0 ? (lf_size){p->shortest, p->shortest} : p->size, inside;
    int32_t piece = p->crop.h > 0 ? p->crop.h : whole.h;
    lf_size frame = lf_grid_anyres(from, p->pinpoints, p->n_pinpoints);
    int rc = fit(t, p, whole, 1, err);
    if (rc == 0)
        rc = lf_grid_inside(&inside, from, frame, err);
    return rc < 0 ? rc : fit_pieces(t, p, frame, (lf_size){piece, piece}, err);
}

static int plan_pan(struct plan *t, const lf_processor *p, lf_size from, lf_err *err)
{
    lf_size crop, g = {0, 0};
    if (p->do_tiles)
        g = lf_grid_pan(&crop, from, p->pan_min_ratio, p->pan_min_crop, p->pan_max);
    int rc = fit(t, p, from, 1, err);
    return rc == 0 && g.w > 0 ? fit_pieces(t, p, from, crop, err) : rc;
}

static int plan_split(struct plan *t, const lf_processor *p, lf_size from, lf_err *err)
{
    lf_size to;
    int rc = lf_processor_split(&to, p, from, err);
    if (rc == 0)
        rc = check_size(to, err);
    if (rc == 0 && p->do_tiles)
        rc = lf_grid_split(&to, to, p->tile, err);
    if (rc == 0)
        rc = check_size(to, err);
    if (rc == 0 && p->do_tiles && (to.w > p->tile || to.h > p->tile))
        rc = fit_pieces(t, p, to, (lf_size){p->tile, p->tile}, err);
    return rc < 0 ? rc : fit(t, p, to, 1, err);
}

static int plan_kind(struct plan *t, const lf_processor *p, lf_size from, bool alone, lf_err *err)
{
    lf_size to = from;
    int rc = 0;
    switch (p->kind) {
    case LF_PROC_FIT:
        return p->pad_square ? fit_square(t, p, from, err) : fit(t, p, from, 1, err);
    case LF_PROC_NAFLEX:
        rc = lf_grid_naflex(&to, from, p->patches.side, p->max_patches, err);
        return rc < 0 ? rc : add(t, p, p->do_resize ? to : from, 1, err);
    case LF_PROC_SMART:
        if (p->do_resize)
            rc = lf_grid_smart(&to, from, p->patches.side * p->patches.merge, p->min_pixels,
                               p->max_pixels, err);
        return rc < 0 ? rc : add(t, p, to, 1, err);
    case LF_PROC_TILES:
        return plan_tiles(t, p, from, err);
    case LF_PROC_ANYRES:
        return plan_anyres(t, p, from, alone, err);
    case LF_PROC_PAN:
        return plan_pan(t, p, from, err);
    case LF_PROC_SPLIT:
        return plan_split(t, p, from, err);
    case LF_PROC_WITHIN:
        if (p->do_resize)
            rc = lf_grid_within(&to, from, p->size, p->patches.side * p->patches.merge, err);
        return rc < 0 ? rc : add(t, p, to, 1, err);
    }
    LF_BUG("processor kind %d", (int)p->kind);
}

int lf_processor_plan(lf_pixels *out, const lf_processor *p, lf_size from, bool alone, lf_err *err)
{
    struct plan t = {0};
    const int32_t side = p->patches.side, unit = side * p->patches.merge;
    int rc = plan_kind(&t, p, from, alone, err);
    if (rc < 0)
        return rc;
    if (!lf_processor_divides(p, t.size.w) || !lf_processor_divides(p, t.size.h))
        return lf_fail(err, LF_EINVAL,
                       "%s makes pictures of %d x %d pixels, which do not divide into patches "
                       "of %d (patch_size times merge_size)",
                       p->class_name, t.size.w, t.size.h, unit);
    *out = (lf_pixels){.tiles = (int32_t)t.n,
                       .grid_h = t.size.h / side,
                       .grid_w = t.size.w / side,
                       .row_bytes = 3 * side * side,
                       .layout = t.layout,
                       .from = from};
    return 0;
}
