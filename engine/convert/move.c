/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of tensors from their parts. */
#include "engine/convert/move.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"

/* Sources are read in pieces of this many elements, so that a cast needs little memory. */
#define PIECE_ELEMS ((int64_t)1 << 16)

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Elements of a source, cast on the way. */
static int read_cast(const struct lf_move *m, int src, int64_t first, int64_t n, void *dst,
                     lf_err *err)
{
    enum lf_st_dtype from = m->from->dtype(m->from->ctx, src);
    size_t size = lf_st_dtype_bytes(m->dtype);
    if (from == m->dtype)
        return m->from->read(m->from->ctx, src, first, n, dst, err);
    void *buf = lf_malloc((size_t)least(n, PIECE_ELEMS), lf_st_dtype_bytes(from), err);
    int rc = buf ? 0 : LF_ENOMEM;
    for (int64_t at = 0; at < n && rc == 0; at += PIECE_ELEMS) {
        int64_t k = least(n - at, PIECE_ELEMS);
        rc = m->from->read(m->from->ctx, src, first + at, k, buf, err);
        if (rc == 0)
            rc = lf_move_cast(m->dtype, (char *)dst + (size_t)at * size, from, buf, k, err);
    }
    free(buf);
    return rc;
}

/* Segments are rows of both sides: the block is a few runs. */
static int read_straight(const struct lf_move *m, int64_t first, int64_t n, char *dst, lf_err *err)
{
    size_t size = lf_st_dtype_bytes(m->dtype);
    int rc = 0;
    for (size_t i = 0; i < m->parts->n && rc == 0; i++) {
        const struct lf_map_seg *s = &m->parts->segs[i];
        int64_t lo = most(first, s->at * m->width),
                hi = least(first + n, (s->at + s->n) * m->width);
        if (lo < hi)
            rc = read_cast(m, s->src, s->src_at * m->width + (lo - s->at * m->width), hi - lo,
                           dst + (size_t)(lo - first) * size, err);
    }
    return rc;
}

/* Rows [row, row + k) of this tensor, columns [c0, c1), from source rows: line j of the source is
 * column j here. */
struct tile {
    int src;
    int64_t first;          /* element of the source that its lines are counted from */
    int64_t line, lines;    /* rows of the source that are read */
    int64_t from, n;        /* the part of each */
    int64_t to_row, to_col; /* where its first element goes */
};

/* Element (line + j, from + i) of the source goes to (to_row + i, to_col + j), as far as that lies
 * in [first, first + n). */
static int read_tile(const struct lf_move *m, const struct tile *t, int64_t first, int64_t n,
                     char *dst, void *buf, lf_err *err)
{
    size_t size = lf_st_dtype_bytes(m->dtype);
    int rc = 0;
    for (int64_t j = 0; j < t->lines && rc == 0; j++) {
        rc =
            read_cast(m, t->src, t->first + (t->line + j) * m->src_width + t->from, t->n, buf, err);
        for (int64_t i = 0; i < t->n && rc == 0; i++) {
            int64_t at = (t->to_row + i) * m->width + t->to_col + j - first;
            if (at >= 0 && at < n)
                memcpy(dst + (size_t)at * size, (const char *)buf + (size_t)i * size, size);
        }
    }
    return rc;
}

/* Elements [first, first + n) of block number `block`. */
static int read_turned(const struct lf_move *m, int64_t block, int64_t first, int64_t n, char *dst,
                       lf_err *err)
{
    int64_t r0 = first / m->width, r1 = (first + n - 1) / m->width + 1;
    void *buf = lf_malloc((size_t)(r1 - r0), lf_st_dtype_bytes(m->dtype), err);
    int rc = buf ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < m->parts->n && rc == 0; i++) {
        const struct lf_map_seg *s = &m->parts->segs[i];
        int64_t lo = most(r0, s->at), hi = least(r1, s->at + s->n);
        struct tile t = {s->src, block * s->n * m->src_width, s->src_at, s->n, r0, r1 - r0, r0,
                         s->at};
        if (!m->cut_columns) {
            if (lo >= hi)
                continue;
            t = (struct tile){.src = s->src,
                              .first = block * m->width * m->src_width,
                              .lines = m->width,
                              .from = s->src_at + lo - s->at,
                              .n = hi - lo,
                              .to_row = lo};
        }
        rc = read_tile(m, &t, first, n, dst, buf, err);
    }
    free(buf);
    return rc;
}

static int read_blocks(const struct lf_move *m, int64_t first, int64_t n, char *dst, lf_err *err)
{
    const struct lf_map_blocks *b = &m->parts->blocks;
    const int64_t each = b->n ? b->rows * m->width : first + n;
    const size_t size = lf_st_dtype_bytes(m->dtype);
    int rc = 0;
    for (int64_t at = first, k; at < first + n && rc == 0; at += k) {
        const int64_t block = at / each;
        k = least(first + n, (block + 1) * each) - at;
        rc = read_turned(m, block, at - block * each, k, dst + (size_t)(at - first) * size, err);
    }
    return rc;
}

int lf_move_block(struct lf_move *m, int64_t first, int64_t n, void *dst, lf_err *err)
{
    int rc = 0;
    if (n > 0)
        rc = m->parts->turned ? read_blocks(m, first, n, dst, err)
                              : read_straight(m, first, n, dst, err);
    if (rc == 0)
        atomic_fetch_add(&m->nonfinite, lf_st_count_nonfinite(m->dtype, dst, n));
    return rc;
}
