/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the decoder: which rows of the encoder become a feature, which token has which feature,
 * and the positions of tokens. */
#include <math.h>

#include "engine/model/sight_priv.h"

/* ---- features ---- */

/* Patches each way that become one feature. */
static int64_t cell(const lf_model_config *c)
{
    return c->projector.merge * c->projector.pool;
}

/* The encoder's row of a patch of tile n. */
static int64_t row_at(const lf_sight *s, const struct lf_sight_batch *b, int64_t n, int64_t row,
                      int64_t col)
{
    return s->row_of[s->first[n] + row * b->tile[n].w + col];
}

static void select_cell(lf_sight *s, const struct lf_sight_batch *b, int64_t n, int64_t i,
                        int64_t j)
{
    const int64_t side = cell(s->c), pool = s->c->projector.pool;
    for (int64_t k = 0; k < side * side; k++) {
        const int64_t row = row_at(s, b, n, i * side + k / side, j * side + k % side);
        lf_sight_entry(&s->select, row, 1 / (double)(pool * pool));
        if (pool == 1)
            lf_sight_end_row(&s->select);
    }
    if (pool > 1)
        lf_sight_end_row(&s->select);
}

static void select_all(lf_sight *s, const struct lf_sight_batch *b)
{
    const int64_t side = cell(s->c);
    lf_sight_begin(&s->select);
    for (int n = 0; n < b->n_tiles; n++)
        for (int64_t i = 0; i < b->tile[n].h / side; i++)
            for (int64_t j = 0; j < b->tile[n].w / side; j++)
                select_cell(s, b, n, i, j);
    lf_sight_finish(&s->select);
}

/* The feature of cell (i, j) of tile n. */
static int64_t feature_at(const lf_sight *s, const struct lf_sight_batch *b, int64_t n, int64_t i,
                          int64_t j)
{
    const int64_t side = cell(s->c);
    if (s->used.select) /* in the order of select_all */
        return s->first[n] / (side * side) + i * (b->tile[n].w / side) + j;
    return row_at(s, b, n, i * side, j * side) / (side * side);
}

/* ---- the tokens of a picture ---- */

/* Where the rows of a picture go, or only how many there are (s NULL). */
struct walk {
    lf_sight *s;
    const lf_model_config *c;
    const struct lf_sight_batch *b;
    int64_t row; /* the next token to look at */
    int64_t n;   /* rows of this picture so far */
    bool short_of;
};

/* This token has what was entered. */
static void done(struct walk *w, int32_t token)
{
    lf_sight *s = w->s;
    lf_sight_end_row(&s->put);
    if (s->used.lines)
        lf_sight_end_row(&s->lines);
    s->token[w->row++] = token;
}

/* Up to the next token of a picture; what is before it has no feature. */
static void skip_text(struct walk *w)
{
    while (w->row < w->b->rows && w->b->tokens[w->row] != w->c->image_token)
        done(w, w->b->tokens[w->row]);
}

/* Is there a token for one more row of the picture? */
static bool next(struct walk *w)
{
    w->n++;
    if (w->s)
        skip_text(w);
    w->short_of = w->s && w->row >= w->b->rows;
    return w->s && !w->short_of;
}

static void put_newline(struct walk *w)
{
    if (!next(w))
        return;
    lf_sight_entry(&w->s->lines, 0, 1);
    done(w, -1);
}

static void put_tile(struct walk *w, int64_t n)
{
    const int64_t side = cell(w->c);
    if (w->c->projector.keep_class && next(w)) { /* it stands before the first patch */
        lf_sight_entry(&w->s->put, row_at(w->s, w->b, n, 0, 0) - 1, 1);
        done(w, -1);
    }
    for (int64_t i = 0; i < w->b->tile[n].h / side; i++)
        for (int64_t j = 0; j < w->b->tile[n].w / side; j++)
            if (next(w)) {
                lf_sight_entry(&w->s->put, feature_at(w->s, w->b, n, i, j), 1);
                done(w, -1);
            }
}

/* Tiles beside each other, as a grid of features. */
struct mosaic {
    int64_t tile, cols, side; /* first tile, tiles in a row, features of a tile's side */
    int64_t top, left, h, w;  /* what the picture fills of it */
};

static struct mosaic mosaic_of(const struct walk *w, const struct lf_sight_picture *p)
{
    const int64_t side = w->b->tile[p->tile].h / cell(w->c), H = side * p->rows, W = side * p->cols;
    struct mosaic m = {.tile = p->tile + 1, .cols = p->cols, .side = side, .h = H, .w = W};
    const double from_w = p->from_w, from_h = p->from_h;
    if (from_w / from_h > (double)W / (double)H) {
        const double h = round(from_h * ((double)W / from_w) * 1e7) / 1e7;
        m.top = (H - (int64_t)h) / 2;
        m.h = H - 2 * m.top;
    } else {
        const double wide = round(from_w * ((double)H / from_h) * 1e7) / 1e7;
        m.left = (W - (int64_t)wide) / 2;
        m.w = W - 2 * m.left;
    }
    return m;
}

static int64_t mosaic_feature(const struct walk *w, const struct mosaic *m, int64_t y, int64_t x)
{
    y += m->top;
    x += m->left;
    const int64_t n = m->tile + y / m->side * m->cols + x / m->side;
    return feature_at(w->s, w->b, n, y % m->side, x % m->side);
}

struct tap {
    int64_t at[2];
    double w[2];
};

/* Half-pixel centres, clamped at the border: PyTorch's bilinear resampling. */
static struct tap tap_of(int64_t i, int64_t n, int64_t from)
{
    double src = ((double)i + 0.5) * (double)from / (double)n - 0.5;
    src = src < 0 ? 0 : src;
    const int64_t low = (int64_t)src, high = low + 1 < from ? low + 1 : low;
    const double d = src - (double)low;
    return (struct tap){{low, high}, {1 - d, d}};
}

static void put_resampled(struct walk *w, const struct mosaic *m, const struct tap *y,
                          const struct tap *x)
{
    if (!next(w))
        return;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 2; k++)
            lf_sight_entry(&w->s->put, mosaic_feature(w, m, y->at[i], x->at[k]), y->w[i] * x->w[k]);
    done(w, -1);
}

/* Row by row with a newline behind each, shrunk where there are more than most_tiles allows. */
static void put_mosaic(struct walk *w, const struct mosaic *m)
{
    const int64_t most = w->c->projector.most_tiles;
    const double ratio =
        most ? sqrt((double)(m->h * m->w) / (double)(most * m->side * m->side)) : 1;
    const bool shrunk = ratio > 1.1;
    const int64_t H = shrunk ? (int64_t)floor((double)m->h / ratio) : m->h,
                  W = shrunk ? (int64_t)floor((double)m->w / ratio) : m->w;
    for (int64_t i = 0; i < H; i++) {
        for (int64_t j = 0; j < W; j++) {
            const struct tap y = tap_of(i, H, m->h), x = tap_of(j, W, m->w);
            if (shrunk)
                put_resampled(w, m, &y, &x);
            else if (next(w)) {
                lf_sight_entry(&w->s->put, mosaic_feature(w, m, i, j), 1);
                done(w, -1);
            }
        }
        put_newline(w);
    }
}

static void put_picture(struct walk *w, const struct lf_sight_picture *p)
{
    w->n = 0;
    if (w->c->projector.newline && p->cols) {
        const struct mosaic m = mosaic_of(w, p);
        put_tile(w, p->tile);
        put_mosaic(w, &m);
        return;
    }
    for (int32_t k = 0; k < p->tiles; k++)
        put_tile(w, p->tile + k);
    if (w->c->projector.newline)
        put_newline(w);
}

int64_t lf_sight_tokens(const lf_model_config *c, const struct lf_sight_batch *b,
                        const struct lf_sight_picture *p, lf_err *err)
{
    struct walk w = {.c = c, .b = b};
    for (int32_t k = 0; k < p->tiles; k++)
        if (b->tile[p->tile + k].h % cell(c) || b->tile[p->tile + k].w % cell(c))
            return lf_fail(err, LF_EINVAL,
                           "a picture of %d x %d patches, of which %lld x %lld become one row",
                           b->tile[p->tile + k].w, b->tile[p->tile + k].h, (long long)cell(c),
                           (long long)cell(c));
    put_picture(&w, p);
    return w.n;
}

/* ---- positions ---- */

struct turns {
    const lf_model_config *c;
    const struct lf_sight_batch *b;
    int32_t *places, cur;
    int64_t row;
};

static void text_until(struct turns *t, int64_t end)
{
    for (; t->row < end; t->row++) {
        if (t->b->positions[t->row] == 0)
            t->cur = 0;
        for (int k = 0; k < 3; k++)
            t->places[3 * t->row + k] = t->cur;
        t->cur++;
    }
}

static void picture_here(struct turns *t, const struct lf_sight_picture *p)
{
    const int64_t side = cell(t->c);
    if (t->b->positions[t->row] == 0)
        t->cur = 0;
    for (int32_t k = 0; k < p->tiles; k++) {
        const struct lf_sight_tile *tile = &t->b->tile[p->tile + k];
        const int32_t h = (int32_t)(tile->h / side), w = (int32_t)(tile->w / side);
        for (int32_t i = 0; i < h * w && t->row < t->b->rows; i++, t->row++) {
            int32_t *at = t->places + 3 * t->row;
            at[0] = t->cur;
            at[1] = t->cur + i / w;
            at[2] = t->cur + i % w;
        }
        t->cur += h > w ? h : w;
    }
}

int32_t lf_sight_turns(const lf_model_config *c, const struct lf_sight_batch *b, int32_t *places)
{
    struct turns t = {.c = c, .b = b, .places = places};
    for (int i = 0; i < b->n_pictures; i++) {
        int64_t r = t.row;
        while (r < b->rows && b->tokens[r] != c->image_token)
            r++;
        text_until(&t, r);
        if (r < b->rows)
            picture_here(&t, &b->picture[i]);
    }
    text_until(&t, b->rows);
    return t.cur;
}

/* ---- all ---- */

static int too_few(const struct lf_sight_batch *b, const struct walk *w, lf_err *err)
{
    int64_t there = 0;
    for (int64_t r = 0; r < b->rows; r++)
        there += b->tokens[r] == w->c->image_token;
    return lf_fail(err, LF_EINVAL,
                   "%d pictures do not have as many rows as there are tokens %lld (%lld): another "
                   "processor made the data",
                   b->n_pictures, (long long)w->c->image_token, (long long)there);
}

int lf_sight_place(lf_sight *s, const struct lf_sight_batch *b, lf_err *err)
{
    struct walk w = {.s = s, .c = s->c, .b = b};
    if (s->used.select)
        select_all(s, b);
    lf_sight_begin(&s->put);
    if (s->used.lines)
        lf_sight_begin(&s->lines);
    for (int i = 0; i < b->n_pictures; i++) {
        put_picture(&w, &b->picture[i]);
        if (w.short_of)
            return too_few(b, &w, err);
    }
    skip_text(&w);
    if (w.row < b->rows)
        return too_few(b, &w, err);
    lf_sight_finish(&s->put);
    if (s->used.lines)
        lf_sight_finish(&s->lines);
    if (s->c->rope_sections.n)
        lf_sight_turns(s->c, b, s->places);
    if (s->c->mask == LF_MASK_IMAGE_BLOCKS)
        lf_decoder_runs(b->tokens, b->positions, b->rows, s->c->image_token, s->runs);
    return 0;
}

int lf_sight_fill(lf_sight *s, const struct lf_sight_batch *b, lf_err *err)
{
    if (s->rows != b->rows)
        LF_BUG("%lld rows for a sight of %lld", (long long)b->rows, (long long)s->rows);
    int rc = lf_sight_rows(s, b, err);
    return rc != 0 ? rc : lf_sight_place(s, b, err);
}
