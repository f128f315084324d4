/* SPDX-License-Identifier: Apache-2.0
 *
 * Sizes of pictures to the inputs of a graph. */
#include "engine/model/sight.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/sight_priv.h"

/* ---- bounds ---- */

enum { TILE_PATCHES = 16 }; /* of a small tile: where nobody says how many there are */

static int64_t square(int64_t n)
{
    return n * n;
}

struct lf_decoder_media lf_sight_bounds(const lf_model_config *c, int64_t patches, int64_t tiles,
                                        int64_t rows)
{
    const lf_vision_config *v = &c->vision;
    const int64_t each = square(c->projector.merge), pool = square(c->projector.pool);
    struct lf_decoder_media m = {0};
    tiles = tiles > 0 ? tiles : (patches + TILE_PATCHES - 1) / TILE_PATCHES;
    m.vision.patches = patches = (patches + each - 1) / each * each;
    m.vision.rows = patches + lf_vision_tokens(v) * tiles;
    m.vision.images = tiles + 1; /* what is left over is a picture of its own */
    m.vision.max_image = m.vision.rows;
    if (v->windows) {
        m.vision.max_window = square(v->window);
        m.vision.windows = patches / each + 1;
    }
    m.vision.taps = lf_sight_taps(v, m.vision.rows, tiles);
    m.selected = patches;
    m.features = lf_decoder_selects(c) ? patches / each / pool : m.vision.rows / each;
    m.placed = c->projector.most_tiles ? LF_TAPS_BILINEAR * rows : rows;
    m.lines = rows;
    return m;
}

/* ---- the object: arrays behind each other in one block ---- */

void *lf_sight_carve(struct lf_sight_block *b, int64_t n, size_t size)
{
    void *p = b->at ? b->at + b->used : NULL;
    b->used += ((size_t)n * size + 63) / 64 * 64;
    return p;
}

void lf_sight_carve_matrix(struct lf_sight_block *b, struct lf_sight_matrix *m, const char *name,
                           int64_t rows, int64_t from, int64_t entries)
{
    *m = (struct lf_sight_matrix){.name = name, .rows = rows, .from = from, .most = entries};
    for (int k = 0; k < 2; k++) {
        m->start[k] = lf_sight_carve(b, (k ? from : rows) + 1, 4);
        m->index[k] = lf_sight_carve(b, entries, 4);
        m->weight[k] = lf_sight_carve(b, entries, 4);
    }
}

static size_t lay_out(lf_sight *s, struct lf_sight_block *b)
{
    const lf_vision_config *v = &s->c->vision;
    const struct lf_vision_rows *r = &s->m.vision;
    s->used.place = s->used.class = v->class_token;
    s->used.distill = v->distill_token;
    s->used.pos = v->positions > 0;
    s->used.select = lf_decoder_selects(s->c);
    s->used.lines = s->c->projector.newline;
    s->token = lf_sight_carve(b, s->rows, 4);
    s->places = lf_sight_carve(b, s->c->rope_sections.n ? 3 * s->rows : 0, 4);
    s->runs = lf_sight_carve(b, s->c->mask == LF_MASK_IMAGE_BLOCKS ? 2 * s->rows : 0, 4);
    s->order = lf_sight_carve(b, r->patches, 4);
    s->row_of = lf_sight_carve(b, r->patches, 4);
    s->turn = lf_sight_carve(b, v->rope ? 3 * r->rows : 0, 4);
    s->images = lf_sight_carve(b, r->images + 1, 4);
    s->windows = lf_sight_carve(b, v->windows ? r->windows + 1 : 0, 4);
    s->first = lf_sight_carve(b, r->images + 1, 4);
    s->tile = lf_sight_carve(b, r->images, sizeof *s->tile);
    s->picture = lf_sight_carve(b, r->images, sizeof *s->picture);
    s->pixels = lf_sight_carve(b, s->m.encoded ? 0 : r->patches * v->patch_dim, sizeof *s->pixels);
    s->encoded =
        lf_sight_carve(b, s->m.encoded ? (1 + v->taps.n) * r->rows * lf_vision_width(v) : 0,
                       lf_dtype_size(s->m.encoded_type));
    const int64_t dropped[2] = {r->rows, s->m.features};
    for (int k = 0; k < 2; k++) {
        s->sample[k] = lf_sight_carve(b, s->m.drops ? dropped[k] : 0, sizeof *s->sample[k]);
        s->offset[k] = lf_sight_carve(b, s->m.drops ? dropped[k] : 0, sizeof *s->offset[k]);
    }
    if (s->used.place)
        lf_sight_carve_matrix(b, &s->place, "vision.place", r->rows, r->patches, r->patches);
    if (s->used.class)
        lf_sight_carve_matrix(b, &s->class, "vision.class", r->rows, 1, r->images);
    if (s->used.distill)
        lf_sight_carve_matrix(b, &s->distill, "vision.distill", r->rows, 1, r->images);
    if (s->used.pos)
        lf_sight_carve_matrix(b, &s->pos, "vision.pos", r->rows, v->positions, r->taps);
    if (s->used.select)
        lf_sight_carve_matrix(b, &s->select, "media.select",
                              s->m.features * square(s->c->projector.merge), r->rows,
                              s->m.selected);
    lf_sight_carve_matrix(b, &s->put, "media.place", s->rows, s->m.features, s->m.placed);
    if (s->used.lines)
        lf_sight_carve_matrix(b, &s->lines, "media.lines", s->rows, 1, s->m.lines);
    if (s->m.own_rows)
        lf_sight_carve_matrix(b, &s->own_put, "media.place", s->m.own_rows, s->m.features,
                              s->m.placed);
    if (s->m.own_rows && s->used.lines)
        lf_sight_carve_matrix(b, &s->own_lines, "media.lines", s->m.own_rows, 1, s->m.lines);
    return b->used;
}

size_t lf_sight_bytes(const lf_model_config *c, const struct lf_decoder_media *m, int64_t rows)
{
    lf_sight s = {.c = c, .m = *m, .rows = rows};
    struct lf_sight_block b = {0};
    return lay_out(&s, &b) + sizeof s + sizeof *c;
}

lf_sight *lf_sight_create(const lf_model_config *c, const struct lf_decoder_media *m, int64_t rows,
                          lf_err *err)
{
    lf_sight *s = lf_calloc(1, sizeof *s, err);
    lf_model_config *copy = s ? lf_malloc(1, sizeof *copy, err) : NULL;
    if (!copy) {
        free(s);
        return NULL;
    }
    *copy = *c;
    *s = (lf_sight){.own = copy, .c = copy, .m = *m, .rows = rows};
    struct lf_sight_block b = {0};
    const size_t n = lay_out(s, &b);
    s->block = lf_calloc(n, 1, err);
    if (!s->block) {
        lf_sight_destroy(s);
        return NULL;
    }
    b = (struct lf_sight_block){.at = s->block};
    lay_out(s, &b);
    return s;
}

void lf_sight_destroy(lf_sight *s)
{
    if (!s)
        return;
    free(s->own);
    free(s->block);
    free(s);
}

const int32_t *lf_sight_token_rows(const lf_sight *s)
{
    return s->token;
}

const int32_t *lf_sight_patch_order(const lf_sight *s)
{
    return s->order;
}

const int32_t *lf_sight_places(const lf_sight *s)
{
    return s->c->rope_sections.n ? s->places : NULL;
}

const int32_t *lf_sight_runs(const lf_sight *s)
{
    return s->c->mask == LF_MASK_IMAGE_BLOCKS ? s->runs : NULL;
}

/* ---- matrices ---- */

void lf_sight_begin(struct lf_sight_matrix *m)
{
    m->n = m->row = 0;
    m->start[0][0] = 0;
}

void lf_sight_entry(struct lf_sight_matrix *m, int64_t index, double weight)
{
    if (m->n >= m->most)
        LF_BUG("%s: more than %lld entries", m->name, (long long)m->most);
    m->index[0][m->n] = (int32_t)index;
    m->weight[0][m->n++] = (float)weight;
}

void lf_sight_end_row(struct lf_sight_matrix *m)
{
    m->start[0][++m->row] = (int32_t)m->n;
}

/* The rest of its rows are empty; then its transpose, whose entries ascend in each row. */
void lf_sight_finish(struct lf_sight_matrix *m)
{
    int32_t *start = m->start[1];
    while (m->row < m->rows)
        lf_sight_end_row(m);
    memset(start, 0, (size_t)(m->from + 1) * 4);
    for (int64_t k = 0; k < m->n; k++)
        start[m->index[0][k] + 1]++;
    for (int64_t i = 0; i < m->from; i++)
        start[i + 1] += start[i];
    for (int64_t r = 0; r < m->rows; r++)
        for (int32_t k = m->start[0][r]; k < m->start[0][r + 1]; k++) {
            const int32_t to = start[m->index[0][k]]++;
            m->index[1][to] = (int32_t)r;
            m->weight[1][to] = m->weight[0][k];
        }
    for (int64_t i = m->from; i > 0; i--)
        start[i] = start[i - 1];
    start[0] = 0;
}

static void take_rows(struct lf_sight_matrix *to, const struct lf_sight_matrix *from,
                      const int32_t *row)
{
    lf_sight_begin(to);
    for (int64_t r = 0; r < to->rows; r++) {
        for (int32_t k = from->start[0][row[r]]; k < from->start[0][row[r] + 1]; k++)
            lf_sight_entry(to, from->index[0][k], (double)from->weight[0][k]);
        lf_sight_end_row(to);
    }
    lf_sight_finish(to);
}

void lf_sight_own(lf_sight *s, const int32_t *row)
{
    if (!s->m.own_rows)
        LF_BUG("this sight has all rows");
    take_rows(&s->own_put, &s->put, row);
    if (s->used.lines)
        take_rows(&s->own_lines, &s->lines, row);
}

static int write(lf_exec *ex, int chain, int slot, const char *name, const void *p, int64_t n,
                 lf_err *err)
{
    return lf_exec_write(ex, chain, slot, name, p, (size_t)n * 4, err);
}

int lf_sight_write_rows(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err)
{
    const int32_t *places = lf_sight_places(s), *runs = lf_sight_runs(s);
    int rc = places ? write(ex, chain, slot, "places", places, 3 * s->rows, err) : 0;
    return rc == 0 && runs ? write(ex, chain, slot, "runs", runs, 2 * s->rows, err) : rc;
}

int lf_sight_write_matrix(const struct lf_sight_at *a, const struct lf_sight_matrix *m, lf_err *err)
{
    int rc = 0;
    for (int k = 0; k < 2 && rc == 0; k++) {
        char name[64];
        const char *back = k ? "back." : "";
        snprintf(name, sizeof name, "%s.%sstart", m->name, back);
        rc = write(a->ex, a->chain, a->slot, name, m->start[k], (k ? m->from : m->rows) + 1, err);
        snprintf(name, sizeof name, "%s.%sindex", m->name, back);
        if (rc == 0)
            rc = write(a->ex, a->chain, a->slot, name, m->index[k], m->most, err);
        snprintf(name, sizeof name, "%s.%sweight", m->name, back);
        if (rc == 0)
            rc = write(a->ex, a->chain, a->slot, name, m->weight[k], m->most, err);
    }
    return rc;
}

/* A matrix that is an input where `used`. */
struct used_matrix {
    bool used;
    const struct lf_sight_matrix *m;
};

static int write_matrices(const struct lf_sight_at *a, const struct used_matrix *u, size_t n,
                          lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        if (u[i].used)
            rc = lf_sight_write_matrix(a, u[i].m, err);
    return rc;
}

int lf_sight_write_encoder(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err)
{
    const struct lf_sight_at a = {ex, chain, slot};
    const struct lf_vision_rows *r = &s->m.vision;
    const struct used_matrix u[] = {{s->used.place, &s->place},
                                    {s->used.class, &s->class},
                                    {s->used.distill, &s->distill},
                                    {s->used.pos, &s->pos}};
    int rc = lf_vision_by_pictures(&s->c->vision)
                 ? write(ex, chain, slot, "vision.cu_seqlens", s->images, r->images + 1, err)
                 : 0;
    if (rc == 0 && s->c->vision.windows)
        rc = write(ex, chain, slot, "vision.cu_windows", s->windows, r->windows + 1, err);
    if (rc == 0 && s->c->vision.rope)
        rc = write(ex, chain, slot, "vision.positions", s->turn, 3 * r->rows, err);
    return rc == 0 ? write_matrices(&a, u, sizeof u / sizeof *u, err) : rc;
}

int lf_sight_write(const lf_sight *s, lf_exec *ex, int chain, int slot, lf_err *err)
{
    const struct lf_sight_at a = {ex, chain, slot};
    const bool own = s->m.own_rows > 0;
    const struct used_matrix u[] = {{s->used.select, &s->select},
                                    {true, own ? &s->own_put : &s->put},
                                    {s->used.lines, own ? &s->own_lines : &s->lines}};
    const int rc = s->m.encoded ? 0 : lf_sight_write_encoder(s, ex, chain, slot, err);
    return rc == 0 ? write_matrices(&a, u, sizeof u / sizeof *u, err) : rc;
}
