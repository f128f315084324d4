/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the encoder: the order of patches, class tokens, windows, learned positions. */
#include <math.h>
#include <string.h>

#include "engine/model/sight_priv.h"

/* ---- learned positions ---- */

/* The cubic convolution kernel with a = -0.75 at the distances 1 + t, t, 1 - t, 2 - t. */
static void cubic(double t, double w[4])
{
    const double a = -0.75;
    const double x[4] = {1 + t, t, 1 - t, 2 - t};
    for (int k = 0; k < 4; k++) {
        const double d = x[k];
        w[k] = d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1
                      : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
    }
}

struct tap {
    int64_t at[LF_VISION_SMOOTH_SIDE];
    double w[LF_VISION_SMOOTH_SIDE];
    int n;
};

static int64_t clamped(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* Where position i of n lies in a table of `side`. */
static struct tap bicubic(int64_t i, int64_t n, int64_t side)
{
    const double src = ((double)i + 0.5) * (double)side / (double)n - 0.5, low = floor(src);
    struct tap t = {.n = 4};
    cubic(src - low, t.w);
    for (int k = 0; k < 4; k++)
        t.at[k] = clamped((int64_t)low - 1 + k, side);
    return t;
}

/* Corners lie on corners. The arithmetic is in f32, as in transformers. */
static struct tap bilinear(int64_t i, int64_t n, int64_t side)
{
    const float src = n > 1 ? (float)i * ((float)(side - 1) / (float)(n - 1)) : 0;
    const int64_t low = (int64_t)src;
    const double d = (double)(src - (float)low);
    return (struct tap){.at = {low, clamped(low + 1, side)}, .w = {1 - d, d}, .n = 2};
}

/* What PyTorch does with antialias, but for its rounding. */
static struct tap smooth(int64_t i, int64_t n, int64_t side)
{
    const double scale = (double)side / (double)n, reach = fmax(scale, 1),
                 at = scale * ((double)i + 0.5);
    const int64_t first = (int64_t)fmax(at - reach + 0.5, 0),
                  end = (int64_t)fmin(at + reach + 0.5, (double)side);
    struct tap t = {0};
    double sum = 0;
    for (int64_t k = first; k < end; k++) {
        const double w = 1 - fabs((double)k - at + 0.5) / reach;
        if (!(w > 0))
            continue;
        t.at[t.n] = k;
        t.w[t.n++] = w;
        sum += w;
    }
    for (int k = 0; k < t.n; k++)
        t.w[k] /= sum;
    return t;
}

/* Where the share i / n of a side lies among `side` equal parts of it. The arithmetic is that of
 * transformers, in f32 but for the borders, which are rounded to it. */
static int64_t bucket(int64_t i, int64_t n, int64_t side)
{
    const double part = 1.0 / (double)side;
    const float most = (float)(1.0 - 1e-6), share = (float)i * (1.0f / (float)n),
                x = share < most ? share : most;
    int64_t k = 0;
    while (k < side - 1 && (float)(part + (double)k * part) <= x)
        k++;
    return k;
}

/* Encoders that turn by rows and columns alone, with a table beside it (Qwen3-VL). */
static bool has_corners(const lf_vision_config *v)
{
    return v->rope && !v->class_token;
}

static struct tap resampled(const lf_vision_config *v, int64_t i, int64_t n)
{
    const int64_t side = lf_vision_table_side(v);
    return v->smooth_positions ? smooth(i, n, side)
           : has_corners(v)    ? bilinear(i, n, side)
                               : bicubic(i, n, side);
}

/* With smooth_positions a side of n patches has at most 2 S + 3 n entries, S being that of the
 * table, and h + w <= h w + 1. */
int64_t lf_sight_taps(const lf_vision_config *v, int64_t rows, int64_t tiles)
{
    const int64_t side = lf_vision_table_side(v);
    if (!v->smooth_positions)
        return rows * (v->buckets ? 1 : has_corners(v) ? LF_TAPS_BILINEAR : LF_TAPS_BICUBIC);
    const int64_t most = tiles * (4 * side * side + 6 * side) + rows * (6 * side + 9);
    return most < rows * side * side ? most : rows * side * side;
}

int lf_sight_check_turn(const lf_vision_config *v, const struct lf_sight_tile *t, lf_err *err)
{
    const int64_t side = lf_vision_table_side(v);
    if (v->grid && (t->h != v->grid || t->w != v->grid))
        return lf_fail(err, LF_EINVAL,
                       "a picture of %d x %d patches: pictures of this encoder have the "
                       "%lld x %lld patches of vision.grid; let the processor make them so large",
                       t->w, t->h, (long long)v->grid, (long long)v->grid);
    if (!v->rope_side || (t->h == side && t->w == side))
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "a picture of %d x %d patches: with vision.rope_side pictures have the %lld x "
                   "%lld patches of vision.positions; let the processor make them so large",
                   t->w, t->h, (long long)side, (long long)side);
}

void lf_sight_position(struct lf_sight_matrix *pos, const lf_vision_config *v,
                       const struct lf_sight_tile *t, int64_t row, int64_t col)
{
    const bool corners = has_corners(v);
    const int64_t first = lf_vision_tokens(v), side = lf_vision_table_side(v);
    if (v->buckets) {
        lf_sight_entry(pos, first + bucket(row, t->h, side) * side + bucket(col, t->w, side), 1);
        return;
    }
    if (!corners && t->h == side && t->w == side) {
        lf_sight_entry(pos, first + row * side + col, 1);
        return;
    }
    const struct tap y = resampled(v, row, t->h), x = resampled(v, col, t->w);
    for (int i = 0; i < y.n; i++)
        for (int k = 0; k < x.n; k++)
            lf_sight_entry(pos, first + y.at[i] * side + x.at[k], y.w[i] * x.w[k]);
}

/* ---- rows ---- */

struct rows {
    lf_sight *s;
    const struct lf_sight_batch *b;
    const struct lf_sight_tile *t; /* this tile */
    int64_t patch, row;            /* how many there are so far */
    int64_t first_patch;           /* of this tile */
    int64_t block;                 /* patches each way that lie behind each other */
};

/* The row of one that is no patch: number k of those before them. */
static void add_token(struct rows *r, int k)
{
    lf_sight *s = r->s;
    struct lf_sight_matrix *const learned[] = {&s->class, &s->distill};
    if (s->c->vision.rope)
        memset(s->turn + 3 * r->row, 0, 3 * sizeof *s->turn);
    lf_sight_entry(learned[k], 0, 1);
    for (int i = 0; i < 1 + s->used.distill; i++)
        lf_sight_end_row(learned[i]);
    lf_sight_end_row(&s->place);
    if (s->used.pos) {
        lf_sight_entry(&s->pos, k, 1);
        lf_sight_end_row(&s->pos);
    }
    r->row++;
}

/* Patch (row, col) of the tile, which is number k of it in the batch. */
static void add_patch(struct rows *r, int64_t k, int64_t row, int64_t col)
{
    lf_sight *s = r->s;
    s->order[r->patch] = (int32_t)(r->first_patch + k);
    s->row_of[r->first_patch + row * r->t->w + col] = (int32_t)r->row;
    if (s->used.place) {
        lf_sight_entry(&s->place, r->patch, 1);
        lf_sight_end_row(&s->place);
        lf_sight_end_row(&s->class);
    }
    if (s->used.distill)
        lf_sight_end_row(&s->distill);
    if (s->used.pos) {
        lf_sight_position(&s->pos, &s->c->vision, r->t, row, col);
        lf_sight_end_row(&s->pos);
    }
    if (s->c->vision.rope) {
        int32_t *turn = s->turn + 3 * r->row;
        turn[0] = 0;
        turn[1] = (int32_t)row;
        turn[2] = (int32_t)col;
    }
    r->patch++;
    r->row++;
}

/* The number in the batch of patch (row, col) of the tile. */
static int64_t number_of(const struct rows *r, int64_t row, int64_t col)
{
    const int64_t m = r->b->merge;
    return (row / m * (r->t->w / m) + col / m) * m * m + row % m * m + col % m;
}

/* The m x m patches of block (i, j), which lie behind each other in the encoder. */
static void add_block(struct rows *r, int64_t i, int64_t j)
{
    const int64_t m = r->block;
    for (int64_t k = 0; k < m * m; k++) {
        const int64_t row = i * m + k / m, col = j * m + k % m;
        add_patch(r, number_of(r, row, col), row, col);
    }
}

static void end_window(struct rows *r)
{
    r->s->windows[++r->s->n_windows] = (int32_t)r->row;
}

/* Windows row by row, and blocks row by row in each; those at the edges are smaller. */
static void add_windows(struct rows *r)
{
    const int64_t m = r->block, side = r->s->c->vision.window / m, H = r->t->h / m, W = r->t->w / m;
    for (int64_t y = 0; y < H; y += side)
        for (int64_t x = 0; x < W; x += side) {
            for (int64_t i = y; i < y + side && i < H; i++)
                for (int64_t j = x; j < x + side && j < W; j++)
                    add_block(r, i, j);
            end_window(r);
        }
}

static void add_tile(struct rows *r, int64_t n)
{
    lf_sight *s = r->s;
    const int64_t m = r->block;
    r->t = &r->b->tile[n];
    s->first[n] = (int32_t)r->patch;
    r->first_patch = r->patch;
    for (int k = 0; k < (int)lf_vision_tokens(&s->c->vision); k++)
        add_token(r, k);
    if (s->c->vision.windows)
        add_windows(r);
    else
        for (int64_t i = 0; i < r->t->h / m; i++)
            for (int64_t j = 0; j < r->t->w / m; j++)
                add_block(r, i, j);
    s->images[n + 1] = (int32_t)r->row;
}

/* Rows behind the last picture are a picture that nothing reads, in windows of the usual size. */
static void pad(struct rows *r)
{
    lf_sight *s = r->s;
    const struct lf_vision_rows *v = &s->m.vision;
    for (int64_t i = r->patch; i < v->patches; i++)
        s->order[i] = (int32_t)i;
    for (int64_t i = 3 * r->row; s->c->vision.rope && i < 3 * v->rows; i++)
        s->turn[i] = 0;
    for (int64_t i = r->b->n_tiles + 1; i <= v->images; i++)
        s->images[i] = (int32_t)v->rows;
    while (s->c->vision.windows && r->row < v->rows) {
        r->row += v->max_window;
        r->row = r->row < v->rows ? r->row : v->rows;
        end_window(r);
    }
    for (int64_t i = s->n_windows + 1; s->c->vision.windows && i <= v->windows; i++)
        s->windows[i] = (int32_t)v->rows;
}

static int check(const lf_sight *s, const struct lf_sight_batch *b, lf_err *err)
{
    const struct lf_vision_rows *v = &s->m.vision;
    int64_t patches = 0;
    if (b->n_tiles > v->images - 1)
        return lf_fail(err, LF_EINVAL, "%d tiles of pictures, but there is room for %lld",
                       b->n_tiles, (long long)v->images - 1);
    for (int i = 0; i < b->n_tiles; i++) {
        const struct lf_sight_tile *t = &b->tile[i];
        const int64_t side = s->c->projector.merge * s->c->projector.pool;
        if (t->h < 1 || t->w < 1 || t->h % side || t->w % side || t->h % b->merge ||
            t->w % b->merge)
            return lf_fail(err, LF_EINVAL,
                           "a picture of %d x %d patches, of which %lld x %lld become one row",
                           t->w, t->h, (long long)side, (long long)side);
        if (t->h > LF_VISION_SIDES || t->w > LF_VISION_SIDES)
            return lf_fail(err, LF_EINVAL, "a picture of %d x %d patches; a side has at most %d",
                           t->w, t->h, LF_VISION_SIDES);
        const int rc = lf_sight_check_turn(&s->c->vision, t, err);
        if (rc != 0)
            return rc;
        patches += (int64_t)t->h * t->w;
    }
    if (patches > v->patches)
        return lf_fail(err, LF_EINVAL, "%lld patches of pictures, but there is room for %lld",
                       (long long)patches, (long long)v->patches);
    return 0;
}

/* Patches that become one row lie behind each other, unless others choose them; without such rows
 * the order is that of the batch. */
static int64_t block_of(const lf_sight *s, const struct lf_sight_batch *b)
{
    const int64_t merge = s->c->projector.merge;
    return merge > 1 && !s->used.select && !b->as_given ? merge : b->merge;
}

int lf_sight_rows(lf_sight *s, const struct lf_sight_batch *b, lf_err *err)
{
    struct rows r = {.s = s, .b = b, .block = block_of(s, b)};
    enum { MATRICES = 4 };
    struct lf_sight_matrix *const m[MATRICES] = {&s->place, &s->class, &s->distill, &s->pos};
    const bool used[MATRICES] = {s->used.place, s->used.class, s->used.distill, s->used.pos};
    const int rc = check(s, b, err);
    if (rc != 0)
        return rc;
    for (int k = 0; k < MATRICES; k++)
        if (used[k])
            lf_sight_begin(m[k]);
    s->images[0] = 0;
    s->n_windows = 0;
    if (s->c->vision.windows)
        s->windows[0] = 0;
    for (int i = 0; i < b->n_tiles; i++)
        add_tile(&r, i);
    s->first[b->n_tiles] = (int32_t)r.patch;
    pad(&r);
    for (int k = 0; k < MATRICES; k++)
        if (used[k])
            lf_sight_finish(m[k]);
    return 0;
}
