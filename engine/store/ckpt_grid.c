/* SPDX-License-Identifier: Apache-2.0
 *
 * The leaves of a tensor's hash. Which leaves there are follows from its shape alone, so that it
 * does not depend on who writes what. Equal shares of rows or columns, as tensor parallelism and
 * experts make them, hold whole leaves; ranges that end elsewhere ask lf_ckpt_cut.
 */
#include <string.h>

#include "engine/store/ckpt_priv.h"

#define MIN_WIDTH 32 /* columns of a leaf; below this rows are not cut */

static int lead_dims(const lf_ckpt_entry *e)
{
    return e->ndim > 1 ? e->ndim - 1 : 1;
}

struct lf_ckpt_grid lf_ckpt_grid_of(const lf_ckpt_entry *e)
{
    struct lf_ckpt_grid g = {.rows = 1, .cols = e->ndim > 1 ? e->shape[e->ndim - 1] : 1};
    for (int k = 0; k < lead_dims(e); k++)
        g.rows *= e->shape[k];
    g.band = g.block = g.rows;
    g.bands = g.blocks = g.across = 1;
    g.width = g.cols;
    if (g.rows * g.cols <= LF_CKPT_LEAF_ELEMS)
        return g;
    if (g.cols % LF_CKPT_ACROSS == 0 && g.cols / LF_CKPT_ACROSS >= MIN_WIDTH) {
        g.across = LF_CKPT_ACROSS;
        g.width = g.cols / LF_CKPT_ACROSS;
    }
    int64_t cut = 8;
    /* Large matrices one behind the other are experts: each is cut on its own. */
    if (e->ndim > 2 && e->shape[e->ndim - 2] * g.cols > LF_CKPT_LEAF_ELEMS)
        g.band = e->shape[e->ndim - 2];
    while (g.band % cut != 0)
        cut /= 2;
    g.band /= cut;
    while (g.band % 2 == 0 && g.band > LF_CKPT_LEAF_ELEMS / g.width)
        g.band /= 2;
    g.bands = g.rows / g.band;
    int64_t most = LF_CKPT_LEAF_ELEMS / g.width;
    g.block = g.band <= most ? g.band : most > 0 ? most : 1;
    g.blocks = (g.band - 1) / g.block + 1;
    return g;
}

size_t lf_ckpt_grid_leaves(const struct lf_ckpt_grid *g)
{
    return (size_t)(g->bands * g->blocks * g->across);
}

void lf_ckpt_grid_rows(const struct lf_ckpt_grid *g, int64_t k, int64_t row[2])
{
    int64_t band = k / g->blocks * g->band, in = k % g->blocks * g->block;
    row[0] = band + in;
    row[1] = band + (in + g->block < g->band ? in + g->block : g->band);
}

int64_t lf_ckpt_grid_block(const struct lf_ckpt_grid *g, int64_t row)
{
    return row / g->band * g->blocks + row % g->band / g->block;
}

int64_t lf_ckpt_rows_below(const lf_ckpt_entry *e, const int64_t *lo, const int64_t *hi,
                           int64_t row)
{
    int64_t all = 1, below = 1, count = 0; /* rows of the tensor, of the box, in inner dimensions */
    for (int k = 0; k < lead_dims(e); k++) {
        all *= e->shape[k];
        below *= hi[k] - lo[k];
    }
    if (row >= all)
        return below;
    for (int k = 0; k < lead_dims(e); k++) {
        all /= e->shape[k];
        below /= hi[k] - lo[k];
        int64_t x = row / all;
        row %= all;
        if (x < lo[k])
            return count;
        if (x >= hi[k])
            return count + (hi[k] - lo[k]) * below;
        count += (x - lo[k]) * below;
    }
    return count;
}

int64_t lf_ckpt_row_at(const lf_ckpt_entry *e, const int64_t *lo, const int64_t *hi, int64_t k)
{
    int64_t row = 0, stride = 1;
    for (int d = lead_dims(e) - 1; d >= 0; d--) {
        int64_t n = hi[d] - lo[d];
        row += (lo[d] + k % n) * stride;
        k /= n;
        stride *= e->shape[d];
    }
    return row;
}

int64_t lf_ckpt_box_cols(const lf_ckpt_entry *e, const int64_t *lo, const int64_t *hi,
                         int64_t *first)
{
    *first = e->ndim > 1 ? lo[e->ndim - 1] : 0;
    return e->ndim > 1 ? hi[e->ndim - 1] - lo[e->ndim - 1] : 1;
}

static int64_t clamp(int64_t v, const int64_t range[2])
{
    return v < range[0] ? range[0] : v > range[1] ? range[1] : v;
}

bool lf_ckpt_unit_next(struct lf_ckpt_unit *out, const struct lf_ckpt_grid *g,
                       const lf_ckpt_entry *e, const struct lf_ckpt_piece *part, int64_t *k)
{
    int64_t first, cols = lf_ckpt_box_cols(e, part->lo, part->hi, &first);
    while (*k < g->bands * g->blocks) {
        int64_t row[2], from, to;
        lf_ckpt_grid_rows(g, *k, row);
        from = lf_ckpt_rows_below(e, part->lo, part->hi, row[0]) * cols;
        to = lf_ckpt_rows_below(e, part->lo, part->hi, row[1]) * cols;
        *out = (struct lf_ckpt_unit){.block = (*k)++,
                                     .flat = {clamp(from, part->flat), clamp(to, part->flat)}};
        if (out->flat[0] == out->flat[1])
            continue;
        if (out->flat[1] - out->flat[0] == (row[1] - row[0]) * cols) {
            int64_t a = (first + g->width - 1) / g->width, b = (first + cols) / g->width;
            out->first = (int)a;
            out->n = b > a ? (int)(b - a) : 0;
        }
        return true;
    }
    return false;
}

int64_t lf_ckpt_cut(int ndim, const int64_t *shape, const int64_t *lo, const int64_t *hi,
                    int64_t at)
{
    static const int64_t zero[LF_CKPT_MAX_DIMS];
    lf_ckpt_entry e = {.ndim = ndim};
    memcpy(e.shape, shape, (size_t)ndim * sizeof *shape);
    lo = lo ? lo : zero;
    hi = hi ? hi : shape;
    struct lf_ckpt_grid g = lf_ckpt_grid_of(&e);
    int64_t first, row[2], cols = lf_ckpt_box_cols(&e, lo, hi, &first),
                           all = lf_ckpt_rows_below(&e, lo, hi, g.rows) * cols;
    if (at <= 0 || at >= all)
        return at <= 0 ? 0 : all;
    lf_ckpt_grid_rows(&g, lf_ckpt_grid_block(&g, lf_ckpt_row_at(&e, lo, hi, at / cols)), row);
    int64_t down = lf_ckpt_rows_below(&e, lo, hi, row[0]) * cols,
            up = lf_ckpt_rows_below(&e, lo, hi, row[1]) * cols;
    return at - down <= up - at ? down : up;
}

/* ---- hashes ---- */

int lf_ckpt_feed_init(struct lf_ckpt_feed *f, lf_err *err)
{
    *f = (struct lf_ckpt_feed){0};
    for (int i = 0; i < LF_CKPT_ACROSS; i++)
        if (!(f->sha[i] = lf_hash_create(err)))
            return LF_ENOMEM;
    return 0;
}

void lf_ckpt_feed_fini(struct lf_ckpt_feed *f)
{
    for (int i = 0; i < LF_CKPT_ACROSS; i++)
        lf_hash_destroy(f->sha[i]);
}

void lf_ckpt_feed_begin(struct lf_ckpt_feed *f, const struct lf_ckpt_grid *g, size_t elem,
                        const int64_t cols[2], int first, int n)
{
    f->row = (size_t)(cols[1] - cols[0]) * elem;
    f->skip = n ? (size_t)(first * g->width - cols[0]) * elem : 0;
    f->leaf = (size_t)g->width * elem;
    f->at = 0;
    f->n = n;
}

void lf_ckpt_feed_add(struct lf_ckpt_feed *f, const unsigned char *data, size_t n)
{
    if (f->n == 0)
        return;
    if (f->leaf == f->row) {
        lf_hash_update(f->sha[0], data, n);
        return;
    }
    const size_t end = f->skip + (size_t)f->n * f->leaf;
    for (size_t take; n; data += take, n -= take) {
        bool in = f->at >= f->skip && f->at < end;
        size_t i = in ? (f->at - f->skip) / f->leaf : 0;
        take = (in ? f->skip + (i + 1) * f->leaf : f->at < end ? f->skip : f->row) - f->at;
        take = take < n ? take : n;
        if (in)
            lf_hash_update(f->sha[i], data, take);
        f->at = f->at + take == f->row ? 0 : f->at + take;
    }
}

void lf_ckpt_feed_end(struct lf_ckpt_feed *f, uint8_t (*out)[LF_HASH_BYTES])
{
    for (int i = 0; i < f->n; i++)
        lf_hash_final(f->sha[i], out[i]);
}

int lf_ckpt_tensor_digest(uint8_t out[LF_HASH_BYTES], uint8_t (*leaves)[LF_HASH_BYTES], size_t n,
                          lf_err *err)
{
    if (n == 1) {
        memcpy(out, leaves[0], LF_HASH_BYTES);
        return 0;
    }
    uint8_t le[8];
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    for (int k = 0; k < 8; k++)
        le[k] = (uint8_t)((uint64_t)n >> (8 * k));
    lf_hash_update(h, "lf-grid-1", strlen("lf-grid-1"));
    lf_hash_update(h, le, sizeof le);
    lf_hash_update(h, leaves, n * LF_HASH_BYTES);
    lf_hash_final(h, out);
    lf_hash_destroy(h);
    return 0;
}
