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

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
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

/* Pieces of n bytes, which are `from` apart, to places `to` apart. dst may begin where src does, if
 * its pieces are not further apart. Single elements are most: of two tensors that alternate. */
static void copy_pieces(char *dst, size_t to, const char *src, size_t from, size_t n,
                        int64_t pieces)
{
    if (n == 2 && to == 2 && from == 4)
        for (int64_t i = 0; i < pieces; i++)
            memmove(dst + i * 2, src + i * 4, 2);
    else if (n == 2)
        for (int64_t i = 0; i < pieces; i++)
            memmove(dst + (size_t)i * to, src + (size_t)i * from, 2);
    else if (n == 4)
        for (int64_t i = 0; i < pieces; i++)
            memmove(dst + (size_t)i * to, src + (size_t)i * from, 4);
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

/* Lines of sources that become columns `line` to `line + lines` of this tensor: their elements of
 * place x to x + span become rows from `row` + x on. */
struct tile {
    const struct lf_map_seg
        *s; /* whose columns of the source are rows here; NULL with cut_columns */
    int64_t block, row;
    int64_t line, lines, x, span;
};

/* The segment that row (or column) x of a tensor belongs to, and which of all its rows that is. */
static const struct lf_map_seg *seg_of(const struct lf_map_parts *p, int64_t x, int64_t *which)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct lf_map_seg *s = &p->segs[i];
        const int64_t k = rows_before(s, x);
        if (k < s->n * s->times && place(s->at, s->n, s->step, k) == x) {
            *which = k;
            return s;
        }
    }
    LF_BUG("row %lld is in no segment", (long long)x);
}

/* Lines of a block of a source: those of all segments that read it. */
static int64_t lines_of(const struct lf_map_parts *p, int src)
{
    int64_t n = 0;
    for (size_t i = 0; i < p->n; i++)
        n += p->segs[i].src == src ? p->segs[i].n * p->segs[i].times : 0;
    return n;
}

/* Line number i of a tile. */
static int read_line(struct work *w, const struct tile *t, int64_t i, char *dst, lf_err *err)
{
    const struct lf_map_parts *p = w->m->parts;
    const int64_t width = p->blocks.src_width;
    int64_t k;
    if (t->s)
        return read_elems(w, t->s, (t->block * p->width + t->line + i) * width, t->x,
                          t->x + t->span, dst, err);
    const struct lf_map_seg *s = seg_of(p, t->line + i, &k);
    k = t->block * lines_of(p, s->src) + place(s->src_at, s->n, s->src_step, k);
    return read_cast(w, s->src, k * width + t->x, t->span, dst, err);
}

#define LOW_HALVES 0x0000ffff0000ffffu
#define LOW_HALF   0x00000000ffffffffu

/* Exchanges what b has where mask is set for what a has so many bits higher. */
static inline void exchange(uint64_t *a, uint64_t *b, int bits, uint64_t mask)
{
    const uint64_t t = (*a >> bits ^ *b) & mask;
    *b ^= t;
    *a ^= t << bits;
}

/* 8 / size rows and columns, the first element of a word in its lowest bits, as on every host that
 * this runs on. from, to: bytes between lines. */
static inline void turn_square(char *dst, int64_t to, const char *src, int64_t from, int64_t size)
{
    const int n = (int)(8 / size);
    uint64_t v[4];
    for (int i = 0; i < n; i++)
        memcpy(&v[i], src + i * from, 8);
    if (n == 4) {
        exchange(&v[0], &v[1], 16, LOW_HALVES);
        exchange(&v[2], &v[3], 16, LOW_HALVES);
        exchange(&v[0], &v[2], 32, LOW_HALF);
        exchange(&v[1], &v[3], 32, LOW_HALF);
    } else {
        exchange(&v[0], &v[1], 32, LOW_HALF);
    }
    for (int i = 0; i < n; i++)
        memcpy(dst + i * to, &v[i], 8);
}

/* Element (l, i) of lines that are SPAN apart to element (i, l) of rows that are `width` apart. */
static inline void turn_whole(char *dst, int64_t width, const char *src, int64_t rows,
                              int64_t lines, int64_t size)
{
    const int64_t n = 8 / size, r = rows / n * n, k = lines / n * n;
    for (int64_t i = 0; i < r; i += n)
        for (int64_t l = 0; l < k; l += n)
            turn_square(dst + (i * width + l) * size, width * size, src + (l * SPAN + i) * size,
                        SPAN * size, size);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t l = i < r ? k : 0; l < lines; l++)
            memcpy(dst + (i * width + l) * size, src + (l * SPAN + i) * size, (size_t)size);
}

/* Puts a tile into dst, which holds elements [first, first + n) of the block. Rows that lie in it
 * wholly are most. */
static void put_tile(const struct work *w, const struct tile *t, int64_t first, int64_t n,
                     char *dst)
{
    const int64_t width = w->m->parts->width, size = (int64_t)w->size, row = t->row + t->x;
    const int64_t lo = least(most((first + width - 1) / width - row, 0), t->span),
                  hi = most(least((first + n) / width - row, t->span), lo);
    for (int64_t i = lo ? 0 : hi; i < t->span; i = i + 1 == lo ? hi : i + 1) {
        const int64_t at = (row + i) * width + t->line - first;
        for (int64_t l = 0; l < t->lines; l++)
            if (at + l >= 0 && at + l < n)
                memcpy(dst + (at + l) * size, w->some + (l * SPAN + i) * size, w->size);
    }
    if (lo == hi)
        return;
    dst += ((row + lo) * width + t->line - first) * size;
    if (size == 2)
        turn_whole(dst, width, w->some + lo * 2, hi - lo, t->lines, 2);
    else
        turn_whole(dst, width, w->some + lo * 4, hi - lo, t->lines, 4);
}

/* The tiles from t->x to end that have elements [first, first + n) of the block. */
static int read_tiles(struct work *w, struct tile *t, int64_t end, int64_t first, int64_t n,
                      char *dst, lf_err *err)
{
    const int64_t width = w->m->parts->width;
    int rc = need(&w->some, err);
    for (; t->x < end && rc == 0; t->x += SPAN) {
        t->span = least(SPAN, end - t->x);
        for (t->line = 0; t->line < width && rc == 0; t->line += LINES) {
            t->lines = least(LINES, width - t->line);
            for (int64_t l = 0; l < t->lines && rc == 0; l++)
                rc = read_line(w, t, l, w->some + (size_t)(l * SPAN) * w->size, err);
            if (rc == 0)
                put_tile(w, t, first, n, dst);
        }
    }
    return rc;
}

/* Elements [first, first + n) of a block. */
static int read_block(struct work *w, int64_t block, int64_t first, int64_t n, char *dst,
                      lf_err *err)
{
    const struct lf_map_parts *p = w->m->parts;
    const int64_t r0 = first / p->width, r1 = (first + n - 1) / p->width + 1;
    struct tile t = {.block = block, .x = r0};
    int rc = 0;
    if (p->blocks.cut_columns)
        return read_tiles(w, &t, r1, first, n, dst, err);
    for (size_t i = 0; i < p->n && rc == 0; i++) {
        const struct lf_map_seg *s = &p->segs[i];
        t = (struct tile){.s = s, .block = block, .row = s->at, .x = rows_before(s, r0)};
        rc = read_tiles(w, &t, rows_before(s, r1), first, n, dst, err);
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
