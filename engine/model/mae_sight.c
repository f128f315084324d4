/* SPDX-License-Identifier: Apache-2.0
 *
 * From pictures and what is hidden of them to the inputs of the graph. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/mae.h"
#include "engine/model/sight_priv.h"

/* ---- bounds ---- */

int64_t lf_mae_visible(int64_t n, double ratio)
{
    const int64_t v = (int64_t)((double)n * (1 - ratio)), most = n - 1;
    return v < 1 ? 1 : v > most ? most : v;
}

/* Of rows for so many patches in so many pictures. */
static struct lf_vision_rows rows_of(const lf_vision_config *v, int64_t patches, int64_t tiles)
{
    struct lf_vision_rows r = {.patches = patches, .images = tiles + 1};
    r.rows = r.max_image = patches + (v->class_token ? tiles : 0);
    r.taps = lf_sight_taps(v, r.rows, r.rows); /* some rows of a picture, not all */
    return r;
}

/* A picture keeps at most a patch more than its share, where that is less than one; and hides at
 * most a patch more than its share. */
struct lf_mae_rows lf_mae_bounds(const lf_model_config *c, int64_t patches, int64_t tiles,
                                 double ratio)
{
    const double n = (double)patches, small = (double)tiles * fmax(0, 2 * ratio - 1);
    const int64_t seen = (int64_t)(n * (1 - ratio) + small) + 1, hidden = (int64_t)(n * ratio);
    struct lf_mae_rows r = {.encoder = rows_of(&c->vision, seen < patches ? seen : patches, tiles),
                            .decoder = rows_of(&c->vision, patches, tiles),
                            .hidden = hidden + tiles < patches ? hidden + tiles : patches};
    r.decoder.stack = 1;
    return r;
}

/* ---- which patches are hidden ---- */

static int ascending(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

void lf_mae_hide(bool *hidden, const uint32_t *noise, int64_t n, double ratio, uint64_t *order)
{
    const int64_t visible = lf_mae_visible(n, ratio);
    for (int64_t i = 0; i < n; i++)
        order[i] = (uint64_t)noise[i] << 32 | (uint64_t)i;
    qsort(order, (size_t)n, sizeof *order, ascending);
    for (int64_t i = 0; i < n; i++)
        hidden[order[i] & UINT32_MAX] = i >= visible;
}

/* ---- the object ---- */

/* vision.place, .class, .pos; mae.place, .hidden, .pos, .select */
enum { PLACE, CLASS, POS, FROM, HIDDEN, AT, SELECT, N_MATRICES };

struct lf_mae_sight {
    lf_model_config c;
    struct lf_mae_rows r;
    struct lf_sight_matrix m[N_MATRICES]; /* those that the description has not have no rows */
    int32_t *seen, *restored;             /* [patches of the encoder], [hidden] */
    int64_t n_seen, n_restored;
    int32_t *images[2], *turn[2]; /* of the encoder, of the decoder */
    char *block;
};

static size_t lay_out(lf_mae_sight *s, struct lf_sight_block *b)
{
    const lf_vision_config *v = &s->c.vision;
    const struct lf_vision_rows *e = &s->r.encoder, *d = &s->r.decoder;
    s->seen = lf_sight_carve(b, e->patches, 4);
    s->restored = lf_sight_carve(b, s->r.hidden, 4);
    for (int k = 0; k < 2; k++) {
        const struct lf_vision_rows *r = k ? d : e;
        s->images[k] = lf_sight_carve(b, r->images + 1, 4);
        s->turn[k] = lf_sight_carve(b, v->rope ? 3 * r->rows : 0, 4);
    }
    if (v->class_token) {
        lf_sight_carve_matrix(b, &s->m[PLACE], "vision.place", e->rows, e->patches, e->patches);
        lf_sight_carve_matrix(b, &s->m[CLASS], "vision.class", e->rows, 1, e->images);
    }
    if (v->positions) {
        lf_sight_carve_matrix(b, &s->m[POS], "vision.pos", e->rows, v->positions, e->taps);
        lf_sight_carve_matrix(b, &s->m[AT], "mae.pos", d->rows, v->positions, d->taps);
    }
    lf_sight_carve_matrix(b, &s->m[FROM], "mae.place", d->rows, e->rows, e->rows);
    lf_sight_carve_matrix(b, &s->m[HIDDEN], "mae.hidden", d->rows, 1, s->r.hidden);
    lf_sight_carve_matrix(b, &s->m[SELECT], "mae.select", s->r.hidden, d->rows, s->r.hidden);
    return b->used;
}

size_t lf_mae_sight_bytes(const lf_model_config *c, const struct lf_mae_rows *r)
{
    lf_mae_sight s = {.c = *c, .r = *r};
    struct lf_sight_block b = {0};
    return lay_out(&s, &b) + sizeof s;
}

lf_mae_sight *lf_mae_sight_create(const lf_model_config *c, const struct lf_mae_rows *r,
                                  lf_err *err)
{
    lf_mae_sight *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return NULL;
    *s = (lf_mae_sight){.c = *c, .r = *r};
    struct lf_sight_block b = {0};
    s->block = lf_calloc(lay_out(s, &b), 1, err);
    if (!s->block) {
        free(s);
        return NULL;
    }
    b = (struct lf_sight_block){.at = s->block};
    lay_out(s, &b);
    return s;
}

void lf_mae_sight_destroy(lf_mae_sight *s)
{
    if (s)
        free(s->block);
    free(s);
}

const int32_t *lf_mae_sight_seen(const lf_mae_sight *s, int64_t *n)
{
    *n = s->n_seen;
    return s->seen;
}

const int32_t *lf_mae_sight_hidden(const lf_mae_sight *s, int64_t *n)
{
    *n = s->n_restored;
    return s->restored;
}

/* ---- filling ---- */

struct fill {
    lf_mae_sight *s;
    const struct lf_sight_tile *t; /* this tile */
    int64_t patch;                 /* of the batch */
    int64_t row[2];                /* of the encoder, of the decoder, so far */
};

static void end_row(struct fill *f)
{
    lf_sight_end_row(&f->s->m[FROM]);
    lf_sight_end_row(&f->s->m[HIDDEN]);
    f->row[1]++;
}

static void add_class(struct fill *f)
{
    lf_mae_sight *s = f->s;
    struct lf_sight_matrix *const pos[] = {&s->m[POS], &s->m[AT]};
    lf_sight_entry(&s->m[CLASS], 0, 1);
    lf_sight_end_row(&s->m[CLASS]);
    lf_sight_end_row(&s->m[PLACE]);
    for (int k = 0; k < 2 && s->c.vision.positions; k++) {
        lf_sight_entry(pos[k], 0, 1);
        lf_sight_end_row(pos[k]);
    }
    for (int k = 0; k < 2 && s->c.vision.rope; k++)
        memset(s->turn[k] + 3 * f->row[k], 0, 3 * sizeof *s->turn[k]);
    lf_sight_entry(&s->m[FROM], f->row[0]++, 1);
    end_row(f);
}

/* Where patch (row, col) stands, in the encoder (k = 0) or in the decoder. */
static void add_position(struct fill *f, int k, int64_t row, int64_t col)
{
    lf_mae_sight *s = f->s;
    struct lf_sight_matrix *pos = k ? &s->m[AT] : &s->m[POS];
    if (s->c.vision.positions) {
        lf_sight_position(pos, &s->c.vision, f->t, row, col);
        lf_sight_end_row(pos);
    }
    if (s->c.vision.rope) {
        int32_t *turn = s->turn[k] + 3 * f->row[k];
        turn[0] = 0;
        turn[1] = (int32_t)row;
        turn[2] = (int32_t)col;
    }
}

static void add_seen(struct fill *f, int64_t row, int64_t col)
{
    lf_mae_sight *s = f->s;
    if (s->c.vision.class_token) {
        lf_sight_entry(&s->m[PLACE], s->n_seen, 1);
        lf_sight_end_row(&s->m[PLACE]);
        lf_sight_end_row(&s->m[CLASS]);
    }
    add_position(f, 0, row, col);
    s->seen[s->n_seen++] = (int32_t)f->patch;
    lf_sight_entry(&s->m[FROM], f->row[0]++, 1);
}

static void add_hidden(struct fill *f)
{
    lf_mae_sight *s = f->s;
    lf_sight_entry(&s->m[HIDDEN], 0, 1);
    lf_sight_entry(&s->m[SELECT], f->row[1], 1);
    lf_sight_end_row(&s->m[SELECT]);
    s->restored[s->n_restored++] = (int32_t)f->patch;
}

/* Patch k of a tile stands in its block of m x m, row by row. */
static void add_tile(struct fill *f, const struct lf_mae_batch *b, int32_t n)
{
    const int64_t m = b->merge, each = m * m;
    f->t = &b->tile[n];
    if (f->s->c.vision.class_token)
        add_class(f);
    for (int64_t k = 0; k < (int64_t)f->t->h * f->t->w; k++, f->patch++) {
        const int64_t block = k / each, across = f->t->w / m, in = k % each,
                      row = block / across * m + in / m, col = block % across * m + in % m;
        if (b->hidden[f->patch])
            add_hidden(f);
        else
            add_seen(f, row, col);
        add_position(f, 1, row, col);
        end_row(f);
    }
    for (int k = 0; k < 2; k++)
        f->s->images[k][n + 1] = (int32_t)f->row[k];
}

/* Rows behind the last picture are a picture that nothing reads. */
static void pad(struct fill *f, int32_t n_tiles)
{
    lf_mae_sight *s = f->s;
    for (int k = 0; k < 2; k++) {
        const struct lf_vision_rows *r = k ? &s->r.decoder : &s->r.encoder;
        for (int64_t i = n_tiles + 1; i <= r->images; i++)
            s->images[k][i] = (int32_t)r->rows;
        if (s->c.vision.rope)
            memset(s->turn[k] + 3 * f->row[k], 0, (size_t)(r->rows - f->row[k]) * 3 * 4);
    }
}

static int check(const lf_mae_sight *s, const struct lf_mae_batch *b, lf_err *err)
{
    int64_t patches = 0, hidden = 0;
    for (int32_t i = 0; i < b->n_tiles; i++) {
        const struct lf_sight_tile *t = &b->tile[i];
        if (t->h < 1 || t->w < 1 || t->h % b->merge || t->w % b->merge || t->h > LF_VISION_SIDES ||
            t->w > LF_VISION_SIDES)
            return lf_fail(err, LF_EINVAL, "a picture of %d x %d patches in blocks of %d x %d",
                           t->w, t->h, b->merge, b->merge);
        if ((int64_t)t->h * t->w < 2)
            return lf_fail(err, LF_EINVAL,
                           "a picture of a single patch, of which nothing can be hidden: take "
                           "smaller patches or larger pictures");
        const int rc = lf_sight_check_turn(&s->c.vision, t, err);
        if (rc != 0)
            return rc;
        patches += (int64_t)t->h * t->w;
    }
    for (int64_t i = 0; i < patches && patches <= s->r.decoder.patches; i++)
        hidden += b->hidden[i];
    if (b->n_tiles > s->r.decoder.images - 1 || patches > s->r.decoder.patches ||
        hidden > s->r.hidden || patches - hidden > s->r.encoder.patches)
        return lf_fail(err, LF_EINVAL,
                       "%lld patches in %d pictures, %lld of them hidden, but there is room for "
                       "%lld in %lld: raise max_patches or max_tiles",
                       (long long)patches, b->n_tiles, (long long)hidden,
                       (long long)s->r.decoder.patches, (long long)s->r.decoder.images - 1);
    return 0;
}

int lf_mae_sight_fill(lf_mae_sight *s, const struct lf_mae_batch *b, lf_err *err)
{
    struct fill f = {.s = s};
    const int rc = check(s, b, err);
    if (rc != 0)
        return rc;
    s->n_seen = s->n_restored = 0;
    s->images[0][0] = s->images[1][0] = 0;
    for (int i = 0; i < N_MATRICES; i++)
        if (s->m[i].rows)
            lf_sight_begin(&s->m[i]);
    for (int32_t i = 0; i < b->n_tiles; i++)
        add_tile(&f, b, i);
    pad(&f, b->n_tiles);
    for (int i = 0; i < N_MATRICES; i++)
        if (s->m[i].rows)
            lf_sight_finish(&s->m[i]);
    return 0;
}

static int write(const struct lf_sight_at *a, const char *name, const int32_t *v, int64_t n,
                 lf_err *err)
{
    return lf_exec_write(a->ex, a->chain, a->slot, name, v, (size_t)n * sizeof *v, err);
}

int lf_mae_sight_write(const lf_mae_sight *s, lf_exec *ex, int chain, int slot, lf_err *err)
{
    const struct lf_sight_at a = {ex, chain, slot};
    int rc = 0;
    for (int k = 0; k < 2 && rc == 0; k++) {
        const struct lf_vision_rows *r = k ? &s->r.decoder : &s->r.encoder;
        rc =
            write(&a, k ? "mae.cu_seqlens" : "vision.cu_seqlens", s->images[k], r->images + 1, err);
        if (rc == 0 && s->c.vision.rope)
            rc = write(&a, k ? "mae.positions" : "vision.positions", s->turn[k], 3 * r->rows, err);
    }
    for (int i = 0; i < N_MATRICES && rc == 0; i++)
        if (s->m[i].rows)
            rc = lf_sight_write_matrix(&a, &s->m[i], err);
    return rc;
}
