/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of tensors from their parts. */
#include "engine/convert/move.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

/* Sources are read in pieces of this many elements, so that gathering and casting need little
 * memory. */
#define PIECE_ELEMS ((int64_t)1 << 16)

/* A read of a source costs as much as copying about so many elements: shorter pieces that are not
 * further apart than FAR are read together with what lies between them. */
#define LONG ((int64_t)512)
#define FAR  (8 * LONG)

/* Transposing goes by so many rows of the source and elements of each. They fit into a cache, and
 * not all begin in the same set of it, as they would at a distance of a power of two. */
#define LINES 32
#define SPAN  2016

struct work {
    const struct lf_move *m;
    char *raw;  /* [PIECE_ELEMS] of a source's type */
    char *some; /* [PIECE_ELEMS] of ours */
    size_t size;
};

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Row number p of all rows of a segment, in the tensor whose pieces are step apart. */
static int64_t place(int64_t at, int64_t n, int64_t step, int64_t p)
{
    return at + p / n * step + p % n;
}

/* How many rows of a segment lie before row x of the tensor. */
static int64_t rows_before(const struct lf_map_seg *s, int64_t x)
{
    const int64_t past = x - s->at;
    return past <= 0 ? 0
                     : least(past / s->step * s->n + least(past % s->step, s->n), s->n * s->times);
}

/* Where the run of rows ends that begins with row p. */
static int64_t run_end(int64_t n, int64_t step, int64_t p, int64_t end)
{
    return step == n ? end : least(end, (p / n + 1) * n);
}

static int need(char **buf, lf_err *err)
{
    if (!*buf)
        *buf = lf_malloc((size_t)PIECE_ELEMS, sizeof(double), err);
    return *buf ? 0 : LF_ENOMEM;
}

/* Elements of a source, cast on the way. */
static int read_cast(struct work *w, int src, int64_t first, int64_t n, char *dst, lf_err *err)
{
    const struct lf_move_source *f = w->m->from;
    const enum lf_st_dtype from = f->dtype(f->ctx, src);
    if (from == w->m->dtype)
        return f->read(f->ctx, src, first, n, dst, err);
    int rc = need(&w->raw, err);
    for (int64_t at = 0; at < n && rc == 0; at += PIECE_ELEMS) {
        int64_t k = least(n - at, PIECE_ELEMS);
        rc = f->read(f->ctx, src, first + at, k, w->raw, err);
        if (rc == 0)
            rc = lf_move_cast(w->m->dtype, dst + (size_t)at * w->size, from, w->raw, k, err);
    }
    return rc;
}

/* Pieces of n bytes, from `from` apart to `to` apart. dst may begin where src does, if its pieces
 * are not further apart. */
static void copy_pieces(char *dst, size_t to, const char *src, size_t from, size_t n,
                        int64_t pieces)
{
    if (n == 2)
        for (int64_t i = 0; i < pieces; i++)
            memcpy(dst + (size_t)i * to, src + (size_t)i * from, 2);
    else if (n == 4)
        for (int64_t i = 0; i < pieces; i++)
            memcpy(dst + (size_t)i * to, src + (size_t)i * from, 4);
    else
        for (int64_t i = 0; i < pieces; i++)
            memmove(dst + (size_t)i * to, src + (size_t)i * from, n);
}

/* `pieces` whole pieces of a segment, which begin at element first of its source. */
static int gather(struct work *w, const struct lf_map_seg *s, int64_t first, int64_t pieces,
                  char *dst, lf_err *err)
{
    const struct lf_move_source *f = w->m->from;
    const enum lf_st_dtype from = f->dtype(f->ctx, s->src);
    const size_t size = lf_st_dtype_bytes(from), n = (size_t)s->n * size;
    int rc = need(&w->raw, err);
    if (rc == 0)
        rc = f->read(f->ctx, s->src, first, (pieces - 1) * s->src_step + s->n, w->raw, err);
    if (rc != 0)
        return rc;
    if (from == w->m->dtype) {
        copy_pieces(dst, n, w->raw, (size_t)s->src_step * size, n, pieces);
        return 0;
    }
    copy_pieces(w->raw, n, w->raw, (size_t)s->src_step * size, n, pieces);
    return lf_move_cast(w->m->dtype, dst, from, w->raw, pieces * s->n, err);
}

/* Elements [p, end) of all of a segment, which counts elements, side by side. base: element of the
 * source that its places are counted from. */
static int read_elems(struct work *w, const struct lf_map_seg *s, int64_t base, int64_t p,
                      int64_t end, char *dst, lf_err *err)
{
    const bool together = s->n < LONG && s->src_step <= FAR;
    int rc = 0;
    for (int64_t k; p < end && rc == 0; p += k, dst += (size_t)k * w->size) {
        const int64_t first = base + place(s->src_at, s->n, s->src_step, p);
        const int64_t pieces = least((end - p) / s->n, PIECE_ELEMS / s->src_step);
        k = run_end(s->n, s->src_step, p, end) - p;
        if (!together || k == end - p || p % s->n || pieces < 2) {
            rc = read_cast(w, s->src, first, k, dst, err);
            continue;
        }
        k = pieces * s->n;
        rc = gather(w, s, first, pieces, dst, err);
    }
    return rc;
}

/* ---- segments that are rows of both sides ---- */

/* Elements [p, end) of a segment, to where they belong in dst, which begins with element first. */
static int scatter(struct work *w, const struct lf_map_seg *s, int64_t p, int64_t end,
                   int64_t first, char *dst, lf_err *err)
{
    int rc = 0;
    for (int64_t k; p < end && rc == 0; p += k) {
        char *to = dst + (size_t)(place(s->at, s->n, s->step, p) - first) * w->size;
        k = run_end(s->n, s->step, p, end) - p;
        if (s->n >= LONG || k == end - p || p % s->n || end - p < s->n * 2) {
            rc = read_elems(w, s, 0, p, p + k, to, err);
            continue;
        }
        k = least(end - p, PIECE_ELEMS) / s->n;
        rc = need(&w->some, err);
        if (rc == 0)
            rc = read_elems(w, s, 0, p, p + k * s->n, w->some, err);
        if (rc == 0)
            copy_pieces(to, (size_t)s->step * w->size, w->some, (size_t)s->n * w->size,
                        (size_t)s->n * w->size, k);
        k *= s->n;
    }
    return rc;
}

static int read_straight(struct work *w, int64_t first, int64_t n, char *dst, lf_err *err)
{
    const struct lf_map_parts *parts = w->m->parts;
    const int64_t width = parts->width;
    int rc = 0;
    for (size_t i = 0; i < parts->n && rc == 0; i++) {
        struct lf_map_seg s = parts->segs[i]; /* of elements instead of rows */
        s.at *= width;
        s.n *= width;
        s.src_at *= width;
        s.step *= width;
        s.src_step *= width;
        rc = scatter(w, &s, rows_before(&s, first), rows_before(&s, first + n), first, dst, err);
    }
    return rc;
}

/* ---- transposed blocks ---- */

/* Lines of a source that become columns: of its rows `line` to `line + lines`, the elements of
 * place x to x + span. */
struct tile {
    const struct lf_map_seg *s;
    int64_t block;
    int64_t line, lines, x, span;
};

/* Row number i of this tensor's block, and column number i, that a tile writes. */
static int64_t tile_row(const struct work *w, const struct tile *t, int64_t i)
{
    return w->m->parts->blocks.cut_columns ? t->x + i
                                           : place(t->s->at, t->s->n, t->s->step, t->x + i);
}

static int64_t tile_col(const struct work *w, const struct tile *t, int64_t i)
{
    return w->m->parts->blocks.cut_columns ? place(t->s->at, t->s->n, t->s->step, t->line + i)
                                           : t->line + i;
}

/* Line number i of a tile. */
static int read_line(struct work *w, const struct tile *t, int64_t i, char *dst, lf_err *err)
{
    const struct lf_map_parts *p = w->m->parts;
    const struct lf_map_seg *s = t->s;
    const int64_t width = p->blocks.src_width;
    if (!p->blocks.cut_columns)
        return read_elems(w, s, (t->block * p->width + t->line + i) * width, t->x, t->x + t->span,
                          dst, err);
    const int64_t row =
        t->block * s->n * s->times + place(s->src_at, s->n, s->src_step, t->line + i);
    return read_cast(w, s->src, row * width + t->x, t->span, dst, err);
}

/* Puts a tile into dst, which holds elements [first, first + n) of the block. */
static void put_tile(const struct work *w, const struct tile *t, int64_t first, int64_t n,
                     char *dst)
{
    const int64_t width = w->m->parts->width, size = (int64_t)w->size;
    int64_t col[LINES];
    for (int64_t l = 0; l < t->lines; l++)
        col[l] = tile_col(w, t, l);
    for (int64_t i = 0; i < t->span; i++) {
        const int64_t row = tile_row(w, t, i) * width - first;
        const char *from = w->some + i * size;
        const bool whole = row >= 0 && row + width <= n;
        if (whole && size == 2)
            for (int64_t l = 0; l < t->lines; l++)
                memcpy(dst + (row + col[l]) * 2, from + l * SPAN * 2, 2);
        else if (whole && size == 4)
            for (int64_t l = 0; l < t->lines; l++)
                memcpy(dst + (row + col[l]) * 4, from + l * SPAN * 4, 4);
        else
            for (int64_t l = 0; l < t->lines; l++)
                if (row + col[l] >= 0 && row + col[l] < n)
                    memcpy(dst + (row + col[l]) * size, from + l * SPAN * size, w->size);
    }
}

/* Elements [first, first + n) of a block. */
static int read_block(struct work *w, int64_t block, int64_t first, int64_t n, char *dst,
                      lf_err *err)
{
    const struct lf_map_parts *p = w->m->parts;
    const int64_t r0 = first / p->width, r1 = (first + n - 1) / p->width + 1;
    int rc = need(&w->some, err);
    for (size_t i = 0; i < p->n; i++) {
        const struct lf_map_seg *s = &p->segs[i];
        const bool cut = p->blocks.cut_columns;
        const int64_t end = cut ? r1 : rows_before(s, r1), lines = cut ? s->n * s->times : p->width;
        struct tile t = {.s = s, .block = block};
        for (t.x = cut ? r0 : rows_before(s, r0); t.x < end; t.x += SPAN) {
            t.span = least(SPAN, end - t.x);
            for (t.line = 0; t.line < lines && rc == 0; t.line += LINES) {
                t.lines = least(LINES, lines - t.line);
                for (int64_t l = 0; l < t.lines && rc == 0; l++)
                    rc = read_line(w, &t, l, w->some + (size_t)(l * SPAN) * w->size, err);
                if (rc == 0)
                    put_tile(w, &t, first, n, dst);
            }
        }
    }
    return rc;
}

static int read_blocks(struct work *w, int64_t first, int64_t n, char *dst, lf_err *err)
{
    const int64_t each = w->m->parts->blocks.rows * w->m->parts->width;
    int rc = 0;
    for (int64_t at = first, k; at < first + n && rc == 0; at += k) {
        const int64_t block = at / each;
        k = least(first + n, (block + 1) * each) - at;
        rc = read_block(w, block, at - block * each, k, dst + (size_t)(at - first) * w->size, err);
    }
    return rc;
}

/* ---- the whole ---- */

static int64_t elements(int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int k = 0; k < ndim; k++)
        n *= shape[k];
    return n;
}

void lf_move_to_ours(struct lf_move *m, const lf_map *map, size_t i)
{
    m->parts = &map->of_ours[i];
    m->elems = elements(map->ours[i].ndim, map->ours[i].shape);
}

void lf_move_to_item(struct lf_move *m, const lf_map *map, size_t i)
{
    m->parts = &map->of_item[i];
    m->elems = elements(map->items[i].ndim, map->items[i].shape);
}

int lf_move_block(struct lf_move *m, int64_t first, int64_t n, void *dst, lf_err *err)
{
    struct work w = {.m = m, .size = lf_st_dtype_bytes(m->dtype)};
    int rc = 0;
    if (n > 0)
        rc = m->parts->blocks.n ? read_blocks(&w, first, n, dst, err)
                                : read_straight(&w, first, n, dst, err);
    free(w.raw);
    free(w.some);
    if (rc == 0)
        atomic_fetch_add(&m->nonfinite, lf_st_count_nonfinite(m->dtype, dst, n));
    return rc;
}
