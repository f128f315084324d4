/* SPDX-License-Identifier: Apache-2.0
 *
 * What each kind of processor does to a picture.
 */
#include "engine/media/processor.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

static const uint8_t black[3] = {0};

/* The pictures that one picture becomes. */
struct tiles {
    lf_image *v;
    size_t n, cap;
    lf_size layout;
};

static void tiles_fini(struct tiles *t)
{
    for (size_t i = 0; i < t->n; i++)
        lf_image_fini(&t->v[i]);
    free(t->v);
}

/* Takes *im over, also on failure. */
static int add(struct tiles *t, lf_image *im, lf_err *err)
{
    int rc = lf_grow(&t->v, &t->cap, t->n, sizeof *t->v, err);
    if (rc < 0) {
        lf_image_fini(im);
        return rc;
    }
    t->v[t->n++] = *im;
    *im = (lf_image){0};
    return 0;
}

/* ---- steps ---- */

static lf_size size_of(const lf_image *im)
{
    return (lf_size){im->w, im->h};
}

static int resize(lf_image *out, const lf_processor *p, const lf_image *im, lf_size to, lf_err *err)
{
    return lf_resize(out, im, to.w, to.h, p->filter, p->manner, err);
}

/* What part of `in` an axis of `out` shows: `in` begins at `at` of `out`, which may be negative. */
static void overlap(int32_t *from, int32_t *to, int32_t *n, int32_t at, int32_t in, int32_t out)
{
    *from = at < 0 ? -at : 0;
    *to = at > 0 ? at : 0;
    int32_t room = out - *to, left = in - *from;
    *n = room < left ? room : left;
}

/* A picture of `size` in which `in` begins at (x, y); the rest is `fill`. */
static int place(lf_image *out, const lf_image *in, lf_size size, lf_size at, const uint8_t fill[3],
                 lf_err *err)
{
    int32_t fx, fy, tx, ty, nx, ny;
    int rc = lf_image_create(out, size.w, size.h, fill, err);
    if (rc < 0)
        return rc;
    overlap(&fx, &tx, &nx, at.w, in->w, size.w);
    overlap(&fy, &ty, &ny, at.h, in->h, size.h);
    for (int32_t y = 0; nx > 0 && y < ny; y++)
        memcpy(out->rgb + 3 * ((int64_t)(ty + y) * size.w + tx),
               in->rgb + 3 * ((int64_t)(fy + y) * in->w + fx), 3 * (size_t)nx);
    return 0;
}

static int pad_square(lf_image *out, const lf_processor *p, const lf_image *im, lf_err *err)
{
    uint8_t fill[3];
    int32_t side = im->w > im->h ? im->w : im->h;
    for (int c = 0; c < 3; c++) {
        double v = p->mean[c] * 255;
        fill[c] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
    return place(out, im, (lf_size){side, side}, (lf_size){(side - im->w) / 2, (side - im->h) / 2},
                 fill, err);
}

/* Where a picture of n pixels begins in its centred crop. An odd pixel that lacks comes first in
 * the PIL processors, last in the others. */
static int32_t crop_at(const lf_processor *p, int32_t n, int32_t crop)
{
    if (n >= crop)
        return -((n - crop) / 2);
    return (crop - n + (p->manner == LF_RESIZE_PIL)) / 2;
}

static int center_crop(lf_image *out, const lf_processor *p, const lf_image *im, lf_err *err)
{
    return place(out, im, p->crop,
                 (lf_size){crop_at(p, im->w, p->crop.w), crop_at(p, im->h, p->crop.h)}, black, err);
}

lf_size lf_processor_fitted(const lf_processor *p, lf_size from)
{
    if (p->kind == LF_PROC_SPLIT)
        return (lf_size){p->tile, p->tile};
    return p->do_resize ? p->size : from;
}

/* Resize and crop, as the file says; every tile of every kind but two goes through this. */
static int fit(struct tiles *t, const lf_processor *p, const lf_image *im, lf_err *err)
{
    lf_image sized = {0}, cropped = {0};
    lf_size to = lf_processor_fitted(p, size_of(im));
    int rc = 0;
    if (p->do_resize && p->shortest > 0)
        rc = lf_grid_shortest(&to, size_of(im), p->shortest, err);
    if (rc == 0)
        rc = resize(&sized, p, im, to, err);
    if (rc == 0 && p->do_crop) {
        rc = center_crop(&cropped, p, &sized, err);
        lf_image_fini(&sized);
        sized = cropped;
    }
    return rc < 0 ? rc : add(t, &sized, err);
}

static int fit_square(struct tiles *t, const lf_processor *p, const lf_image *im, lf_err *err)
{
    lf_image square = {0};
    int rc = pad_square(&square, p, im, err);
    if (rc == 0)
        rc = fit(t, p, &square, err);
    lf_image_fini(&square);
    return rc;
}

/* Cuts `im` into pieces of `piece` row by row, the last ones smaller, and fits each. */
static int fit_pieces(struct tiles *t, const lf_processor *p, const lf_image *im, lf_size piece,
                      lf_err *err)
{
    int rc = 0;
    t->layout = (lf_size){(im->w + piece.w - 1) / piece.w, (im->h + piece.h - 1) / piece.h};
    if ((int64_t)t->layout.w * t->layout.h > LF_TILES_MAX)
        return lf_fail(
            err, LF_EINVAL,
            "%s cuts a picture of %d x %d pixels into %d x %d tiles; at most %d are made",
            p->class_name, im->w, im->h, t->layout.w, t->layout.h, LF_TILES_MAX);
    for (int32_t y = 0; rc == 0 && y < im->h; y += piece.h)
        for (int32_t x = 0; rc == 0 && x < im->w; x += piece.w) {
            lf_image one = {0};
            lf_size size = {im->w - x < piece.w ? im->w - x : piece.w,
                            im->h - y < piece.h ? im->h - y : piece.h};
            rc = place(&one, im, size, (lf_size){-x, -y}, black, err);
            if (rc == 0)
                rc = fit(t, p, &one, err);
            lf_image_fini(&one);
        }
    return rc;
}

/* ---- kinds ---- */

static int run_fit(struct tiles *t, const lf_processor *p, const lf_image *im, bool alone,
                   lf_err *err)
{
    (void)alone;
    return p->pad_square ? fit_square(t, p, im, err) : fit(t, p, im, err);
}

static int resize_to(struct tiles *t, const lf_processor *p, const lf_image *im, lf_size to,
                     lf_err *err)
{
    lf_image out = {0};
    int rc = resize(&out, p, im, p->do_resize ? to : size_of(im), err);
    return rc < 0 ? rc : add(t, &out, err);
}

static int run_naflex(struct tiles *t, const lf_processor *p, const lf_image *im, bool alone,
                      lf_err *err)
{
    (void)alone;
    lf_size to;
    int rc = lf_grid_naflex(&to, size_of(im), p->patches.side, p->max_patches, err);
    return rc < 0 ? rc : resize_to(t, p, im, to, err);
}

static int run_smart(struct tiles *t, const lf_processor *p, const lf_image *im, bool alone,
                     lf_err *err)
{
    (void)alone;
    lf_size to = size_of(im);
    int rc = !p->do_resize ? 0
                           : lf_grid_smart(&to, to, p->patches.side * p->patches.merge,
                                           p->min_pixels, p->max_pixels, err);
    return rc < 0 ? rc : resize_to(t, p, im, to, err);
}

static int run_tiles(struct tiles *t, const lf_processor *p, const lf_image *im, bool alone,
                     lf_err *err)
{
    (void)alone;
    if (!p->do_tiles)
        return fit(t, p, im, err);
    lf_size g = lf_grid_tiles(size_of(im), p->size, p->min_tiles, p->max_tiles);
    lf_image sized = {0};
    int rc = resize(&sized, p, im, (lf_size){g.w * p->size.w, g.h * p->size.h}, err);
    if (rc == 0)
        rc = fit_pieces(t, p, &sized, p->size, err);
    lf_image_fini(&sized);
    return rc == 0 && t->n > 1 ? fit(t, p, im, err) : rc;
}

static int anyres_pieces(struct tiles *t, const lf_processor *p, const lf_image *im, lf_size piece,
                         lf_err *err)
{
    lf_size frame = lf_grid_anyres(size_of(im), p->pinpoints, p->n_pinpoints), to;
    lf_image sized = {0}, framed = {0};
    int rc = lf_grid_inside(&to, size_of(im), frame, err);
    if (rc == 0)
        rc = resize(&sized, p, im, to, err);
    if (rc == 0)
        rc = place(&framed, &sized, frame, (lf_size){(frame.w - to.w) / 2, (frame.h - to.h) / 2},
                   black, err);
    if (rc == 0)
        rc = fit_pieces(t, p, &framed, piece, err);
    lf_image_fini(&sized);
    lf_image_fini(&framed);
    return rc;
}

static int run_anyres(struct tiles *t, const lf_processor *p, const lf_image *im, bool alone,
                      lf_err *err)
{
    if (p->tile_alone && !alone)
        return fit_square(t, p, im, err);
    lf_size whole = p->shortest > 0 ? (lf_size){p->shortest, p->shortest} : p->size;
    int32_t piece = p->crop.h > 0 ? p->crop.h : whole.h;
    lf_image base = {0};
    int rc = resize(&base, p, im, whole, err);
    if (rc == 0)
        rc = fit(t, p, &base, err);
    lf_image_fini(&base);
    return rc < 0 ? rc : anyres_pieces(t, p, im, (lf_size){piece, piece}, err);
}

static int run_pan(struct tiles *t, const lf_processor *p, const lf_image *im, bool alone,
                   lf_err *err)
{
    (void)alone;
    lf_size crop, g = {0, 0};
    if (p->do_tiles)
        g = lf_grid_pan(&crop, size_of(im), p->pan_min_ratio, p->pan_min_crop, p->pan_max);
    int rc = fit(t, p, im, err);
    return rc == 0 && g.w > 0 ? fit_pieces(t, p, im, crop, err) : rc;
}

int lf_processor_split(lf_size *out, const lf_processor *p, lf_size from, lf_err *err)
{
    int rc = 0;
    *out = from;
    if (p->do_resize && p->longest > 0)
        rc = lf_grid_longest(out, from, p->longest, err);
    else if (p->do_resize)
        *out = p->size;
    return rc;
}

/* Resized twice, as in transformers: to the longest side, then to whole tiles, of which all of the
 * picture is made too. */
static int run_split(struct tiles *t, const lf_processor *p, const lf_image *im, bool alone,
                     lf_err *err)
{
    lf_image sized = {0}, whole = {0};
    lf_size to;
    int rc = lf_processor_split(&to, p, size_of(im), err);
    (void)alone;
    if (rc == 0)
        rc = resize(&sized, p, im, to, err);
    if (rc == 0 && p->do_tiles)
        rc = lf_grid_split(&to, to, p->tile, err);
    if (rc == 0)
        rc = resize(&whole, p, &sized, to, err);
    lf_image_fini(&sized);
    if (rc == 0 && p->do_tiles && (to.w > p->tile || to.h > p->tile))
        rc = fit_pieces(t, p, &whole, (lf_size){p->tile, p->tile}, err);
    if (rc == 0)
        rc = fit(t, p, &whole, err);
    lf_image_fini(&whole);
    return rc;
}

static int run_within(struct tiles *t, const lf_processor *p, const lf_image *im, bool alone,
                      lf_err *err)
{
    (void)alone;
    lf_size to = size_of(im);
    int rc = !p->do_resize
                 ? 0
                 : lf_grid_within(&to, to, p->size, p->patches.side * p->patches.merge, err);
    return rc < 0 ? rc : resize_to(t, p, im, to, err);
}

/* ---- rows ---- */

/* Where patches of a tile are merged, those that a side has are as many as merge divides. What is
 * left over of a patch is cut off by LF_PROC_SPLIT, and is in no picture of the others. */
bool lf_processor_divides(const lf_processor *p, int32_t pixels)
{
    const int32_t side = p->patches.side, merge = p->patches.merge;
    if (pixels < side * merge)
        return false;
    return merge == 1 ||
           (p->kind == LF_PROC_SPLIT ? pixels / side % merge == 0 : pixels % (side * merge) == 0);
}

static int check_tiles(const struct tiles *t, const lf_processor *p, lf_err *err)
{
    int32_t unit = p->patches.side * p->patches.merge;
    const lf_image *a = &t->v[0];
    if (!lf_processor_divides(p, a->w) || !lf_processor_divides(p, a->h))
        return lf_fail(err, LF_EINVAL,
                       "%s makes pictures of %d x %d pixels, which do not divide into patches "
                       "of %d (patch_size times merge_size)",
                       p->class_name, a->w, a->h, unit);
    for (size_t i = 1; i < t->n; i++)
        if (t->v[i].w != a->w || t->v[i].h != a->h)
            return lf_fail(err, LF_EINVAL,
                           "%s makes tiles of %d x %d and of %d x %d pixels of this picture; "
                           "crop_size would make them equal",
                           p->class_name, a->w, a->h, t->v[i].w, t->v[i].h);
    return 0;
}

static int make_rows(lf_pixels *x, const struct tiles *t, const lf_processor *p, lf_err *err)
{
    int rc = check_tiles(t, p, err);
    if (rc < 0)
        return rc;
    int32_t side = p->patches.side;
    x->tiles = (int32_t)t->n;
    x->grid_h = t->v[0].h / side;
    x->grid_w = t->v[0].w / side;
    x->row_bytes = 3 * side * side;
    x->layout = t->layout;
    size_t bytes = (size_t)x->grid_h * (size_t)x->grid_w * (size_t)x->row_bytes;
    x->rows = lf_malloc(t->n, bytes, err);
    if (x->rows == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < t->n; i++)
        lf_patch_rows(x->rows + i * bytes, &t->v[i], &p->patches);
    return 0;
}

static int make_tiles(struct tiles *t, const lf_processor *p, const lf_image *im, bool alone,
                      lf_err *err)
{
    static int (*const run[])(struct tiles *, const lf_processor *, const lf_image *, bool,
                              lf_err *) = {
        [LF_PROC_FIT] = run_fit,     [LF_PROC_NAFLEX] = run_naflex, [LF_PROC_SMART] = run_smart,
        [LF_PROC_TILES] = run_tiles, [LF_PROC_ANYRES] = run_anyres, [LF_PROC_PAN] = run_pan,
        [LF_PROC_SPLIT] = run_split, [LF_PROC_WITHIN] = run_within};
    return run[p->kind](t, p, im, alone, err);
}

int lf_processor_tile(lf_image *out, const lf_processor *p, const lf_image *im, bool alone,
                      lf_err *err)
{
    struct tiles t = {0};
    int rc = make_tiles(&t, p, im, alone, err);
    if (rc == 0 && t.n != 1)
        rc = lf_fail(err, LF_ENOTSUP, "%s makes %zu tiles of it, and one is changed here alone",
                     p->class_name, t.n);
    if (rc == 0) {
        *out = t.v[0];
        t.n = 0;
    }
    tiles_fini(&t);
    return rc;
}

int lf_processor_rows(lf_pixels *out, const lf_processor *p, const lf_image *tile, lf_size from,
                      lf_err *err)
{
    lf_image one = *tile;
    const struct tiles t = {.v = &one, .n = 1};
    lf_pixels x = {.from = from};
    const int rc = make_rows(&x, &t, p, err);
    if (rc == 0)
        *out = x;
    return rc;
}

int lf_processor_run(lf_pixels *out, const lf_processor *p, const lf_image *im, bool alone,
                     lf_err *err)
{
    struct tiles t = {0};
    lf_pixels x = {.from = size_of(im)};
    int rc = make_tiles(&t, p, im, alone, err);
    if (rc == 0)
        rc = make_rows(&x, &t, p, err);
    tiles_fini(&t);
    if (rc == 0)
        *out = x;
    return rc;
}

void lf_pixels_fini(lf_pixels *x)
{
    free(x->rows);
    *x = (lf_pixels){0};
}

static int64_t n_rows(const lf_pixels *x)
{
    return (int64_t)x->tiles * x->grid_h * x->grid_w;
}

int64_t lf_pixels_floats(const lf_processor *p, const lf_pixels *x)
{
    return n_rows(x) * x->row_bytes * p->patches.times;
}

void lf_pixels_normalize(float *dst, const lf_processor *p, const lf_pixels *x)
{
    lf_norm_rows(dst, x->rows, n_rows(x), &p->patches, p->table);
}
