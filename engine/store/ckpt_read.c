/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading tensors of an open checkpoint: preads inside ranges that opening has checked. Where reads
 * are checked, a request is walked by row blocks: the leaves that it touches are read in bands of
 * 1 MiB, hashed, and what is wanted of them is copied out.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/store/ckpt_priv.h"

#define BLOCK_BYTES ((size_t)1 << 20)

/* ---- reading boxes ---- */

/* Elements [lo, hi) of a piece's flattened box, as far as the piece has them; returns how many, or
 * negative. */
static int64_t read_run(const lf_ckpt *c, const struct lf_ckpt_piece *p, int64_t lo, int64_t hi,
                        size_t elem, unsigned char *dst, lf_err *err)
{
    int64_t a = lo > p->flat[0] ? lo : p->flat[0], b = hi < p->flat[1] ? hi : p->flat[1];
    if (a >= b)
        return 0;
    int fd = lf_ckpt_fd(c, p->at, err);
    if (fd < 0)
        return fd;
    int rc = lf_io_pread_all(fd, dst + (size_t)(a - lo) * elem, (size_t)(b - a) * elem,
                             (off_t)(p->offset + (a - p->flat[0]) * (int64_t)elem), p->file, err);
    return rc < 0 ? rc : b - a;
}

/* The part of box [lo, hi) that piece p has; returns elements read, or negative. Runs are as long
 * as both the piece's box and the wanted box are contiguous. */
static int64_t read_piece(const lf_ckpt *c, const lf_ckpt_entry *e, const struct lf_ckpt_piece *p,
                          const int64_t *lo, const int64_t *hi, unsigned char *dst, lf_err *err)
{
    int64_t at[LF_CKPT_MAX_DIMS] = {0}, a[LF_CKPT_MAX_DIMS] = {0},
            b[LF_CKPT_MAX_DIMS] = {0};                              /* common box [a, b) */
    int64_t ps[LF_CKPT_MAX_DIMS] = {0}, ds[LF_CKPT_MAX_DIMS] = {0}; /* strides: piece, dst */
    int64_t total = 0, pn = 1, dn = 1;
    size_t elem = lf_h5_type_bytes(e->dtype);
    int d = e->ndim - 1;
    for (int k = e->ndim - 1; k >= 0; k--) {
        a[k] = at[k] = lo[k] > p->lo[k] ? lo[k] : p->lo[k];
        b[k] = hi[k] < p->hi[k] ? hi[k] : p->hi[k];
        if (a[k] >= b[k])
            return 0;
        ps[k] = pn;
        ds[k] = dn;
        pn *= p->hi[k] - p->lo[k];
        dn *= hi[k] - lo[k];
    }
    while (d > 0 && b[d] - a[d] == p->hi[d] - p->lo[d] && b[d] - a[d] == hi[d] - lo[d])
        d--;
    int64_t run = (b[d] - a[d]) * ps[d];
    for (;;) {
        int64_t src = 0, to = 0;
        for (int k = 0; k < e->ndim; k++) {
            src += (at[k] - p->lo[k]) * ps[k];
            to += (at[k] - lo[k]) * ds[k];
        }
        int64_t n = read_run(c, p, src, src + run, elem, dst + (size_t)to * elem, err);
        if (n < 0)
            return n;
        total += n;
        int k = d - 1;
        for (; k >= 0 && ++at[k] == b[k]; k--)
            at[k] = a[k];
        if (k < 0)
            return total;
    }
}

/* The box [lo, hi), which lies inside the tensor, unchecked. */
static int read_box(const lf_ckpt *c, const struct lf_ckpt_rec *r, const int64_t *lo,
                    const int64_t *hi, void *dst, lf_err *err)
{
    const lf_ckpt_entry *e = &r->e;
    int64_t want = 1, have = 0;
    for (int k = 0; k < e->ndim; k++)
        want *= hi[k] - lo[k];
    for (size_t i = 0; i < r->n_pieces; i++) {
        int64_t n = read_piece(c, e, &r->pieces[i], lo, hi, dst, err);
        if (n < 0) {
            lf_err_prefix(err, "%s: tensor %s (%s)", c->dir, e->name, e->kind);
            return (int)n;
        }
        have += n;
    }
    if (have != want)
        return lf_fail(err, LF_EFORMAT, "%s: tensor %s (%s) has %lld of %lld elements", c->dir,
                       e->name, e->kind, (long long)have, (long long)want);
    return 0;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* The largest box of a row-major array that starts at element `first` and is at most n elements in
 * order: whole rows of the last dimensions that fit, else some of one. Returns how many. */
static int64_t box_from(const int64_t *dims, int ndim, int64_t first, int64_t n, int64_t *lo,
                        int64_t *hi)
{
    int64_t left = first, inner = 1;
    int d = ndim - 1;
    for (int k = ndim - 1; k >= 0; k--) {
        lo[k] = left % dims[k];
        hi[k] = lo[k] + 1;
        left /= dims[k];
    }
    for (; d > 0 && lo[d] == 0 && inner * dims[d] <= n; d--) {
        inner *= dims[d];
        hi[d] = dims[d];
    }
    int64_t rows = least(n / inner, dims[d] - lo[d]);
    hi[d] = lo[d] + rows;
    return rows * inner;
}

/* Elements [flat[0], flat[1]) of a box, unchecked: boxes of it, one behind the other. */
static int read_range(const lf_ckpt *c, const struct lf_ckpt_rec *r, const struct lf_ckpt_piece *p,
                      unsigned char *to, lf_err *err)
{
    int64_t dims[LF_CKPT_MAX_DIMS];
    size_t elem = lf_h5_type_bytes(r->e.dtype);
    for (int k = 0; k < r->e.ndim; k++)
        dims[k] = p->hi[k] - p->lo[k];
    for (int64_t at = p->flat[0], n; at < p->flat[1]; at += n, to += (size_t)n * elem) {
        int64_t lo[LF_CKPT_MAX_DIMS] = {0}, hi[LF_CKPT_MAX_DIMS] = {0};
        n = box_from(dims, r->e.ndim, at, p->flat[1] - at, lo, hi);
        for (int k = 0; k < r->e.ndim; k++) {
            lo[k] += p->lo[k];
            hi[k] += p->lo[k];
        }
        int rc = read_box(c, r, lo, hi, to, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- reading leaves ---- */

/* What a caller wants of a tensor, and where it goes. */
struct want {
    const struct lf_ckpt_piece *part;
    unsigned char *dst;
};

/* Some rows and columns of a tensor that have been read. */
struct chunk {
    int64_t rows[2], cols[2];
    const unsigned char *data;
};

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void copy_wanted(const struct want *w, const lf_ckpt_entry *e, const struct chunk *h)
{
    const struct lf_ckpt_piece *p = w->part;
    size_t elem = lf_h5_type_bytes(e->dtype);
    int64_t first, width = lf_ckpt_box_cols(e, p->lo, p->hi, &first);
    int64_t a = most(h->cols[0], first), b = least(h->cols[1], first + width);
    int64_t row = lf_ckpt_rows_below(e, p->lo, p->hi, h->rows[0]);
    for (int64_t x = h->rows[0]; x < h->rows[1] && a < b; x++) {
        int64_t next = lf_ckpt_rows_below(e, p->lo, p->hi, x + 1);
        if (next > row) {
            int64_t at = row * width - first, from = most(at + a, p->flat[0]),
                    to = least(at + b, p->flat[1]);
            if (from < to)
                memcpy(w->dst + (size_t)(from - p->flat[0]) * elem,
                       h->data + (size_t)((x - h->rows[0]) * (h->cols[1] - h->cols[0]) +
                                          (from - at - h->cols[0])) *
                                     elem,
                       (size_t)(to - from) * elem);
        }
        row = next;
    }
}

/* Reads and hashes leaves across[0] .. + across[1] of row block k. w may be NULL. */
static int walk_block(const lf_ckpt *c, const struct lf_ckpt_rec *r, int64_t k, const int across[2],
                      const struct want *w, struct lf_ckpt_feed *f, lf_err *err)
{
    const struct lf_ckpt_grid g = lf_ckpt_grid_of(&r->e);
    const int last = r->e.ndim - 1, lead = last > 0 ? last : 1;
    size_t elem = lf_h5_type_bytes(r->e.dtype);
    int64_t row[2], cols[2] = {across[0] * g.width, (across[0] + across[1]) * g.width},
                    at_once = (int64_t)(BLOCK_BYTES / elem);
    unsigned char *buf = lf_malloc(BLOCK_BYTES, 1, err);
    int rc = buf ? 0 : LF_ENOMEM;
    lf_ckpt_grid_rows(&g, k, row);
    lf_ckpt_feed_begin(f, &g, elem, cols, across[0], across[1]);
    for (int64_t x = row[0], n; x < row[1] && rc == 0; x += n) {
        int64_t lo[LF_CKPT_MAX_DIMS] = {0}, hi[LF_CKPT_MAX_DIMS] = {0}, width;
        n = box_from(r->e.shape, lead, x, least(row[1] - x, most(at_once / (cols[1] - cols[0]), 1)),
                     lo, hi);
        for (int64_t y = cols[0]; y < cols[1] && rc == 0; y += width) {
            width = least(cols[1] - y, at_once);
            if (last > 0) {
                lo[last] = y;
                hi[last] = y + width;
            }
            if ((rc = read_box(c, r, lo, hi, buf, err)) < 0)
                break;
            lf_ckpt_feed_add(f, buf, (size_t)(n * width) * elem);
            if (w)
                copy_wanted(w, &r->e, &(struct chunk){{x, x + n}, {y, y + width}, buf});
        }
    }
    free(buf);
    return rc;
}

int lf_ckpt_hash_leaves(const lf_ckpt *c, const struct lf_ckpt_rec *r, int64_t k,
                        const int across[2], uint8_t (*out)[LF_HASH_BYTES], lf_err *err)
{
    struct lf_ckpt_feed f;
    int rc = lf_ckpt_feed_init(&f, err);
    if (rc == 0)
        rc = walk_block(c, r, k, across, NULL, &f, err);
    if (rc == 0)
        lf_ckpt_feed_end(&f, out);
    lf_ckpt_feed_fini(&f);
    return rc;
}

static int damaged(const lf_ckpt *c, const struct lf_ckpt_rec *r, const char *file, lf_err *err)
{
    return lf_fail(err, LF_EFORMAT,
                   "%s: tensor %s (%s) in %s is damaged: its bytes do not match their hash", c->dir,
                   r->name, r->kind, file);
}

/* The file in which a leaf begins. */
static const char *file_of(const struct lf_ckpt_rec *r, int64_t row, int64_t col)
{
    for (size_t i = 0; i < r->n_pieces; i++) {
        const struct lf_ckpt_piece *p = &r->pieces[i];
        int64_t first, width = lf_ckpt_box_cols(&r->e, p->lo, p->hi, &first),
                       k = lf_ckpt_rows_below(&r->e, p->lo, p->hi, row),
                       at = k * width + col - first;
        if (lf_ckpt_rows_below(&r->e, p->lo, p->hi, row + 1) > k && col >= first &&
            col < first + width && at >= p->flat[0] && at < p->flat[1])
            return p->file;
    }
    return r->pieces[0].file;
}

/* The leaves of one row block that a part touches, checked. */
static int read_block(const lf_ckpt *c, const struct lf_ckpt_rec *r, int64_t k,
                      const struct want *w, struct lf_ckpt_feed *f, lf_err *err)
{
    const struct lf_ckpt_grid g = lf_ckpt_grid_of(&r->e);
    const struct lf_ckpt_piece *p = w->part;
    int64_t row[2], first, width = lf_ckpt_box_cols(&r->e, p->lo, p->hi, &first);
    lf_ckpt_grid_rows(&g, k, row);
    if (lf_ckpt_rows_below(&r->e, p->lo, p->hi, row[0]) ==
        lf_ckpt_rows_below(&r->e, p->lo, p->hi, row[1]))
        return 0;
    uint8_t have[LF_CKPT_ACROSS][LF_HASH_BYTES];
    int across[2] = {(int)(first / g.width)};
    across[1] = (int)((first + width - 1) / g.width) + 1 - across[0];
    int rc = walk_block(c, r, k, across, w->dst ? w : NULL, f, err);
    if (rc < 0)
        return rc;
    lf_ckpt_feed_end(f, have);
    for (int i = 0; i < across[1]; i++)
        if (memcmp(have[i], lf_ckpt_leaf_hash(r, (size_t)(k * g.across + across[0] + i)),
                   LF_HASH_BYTES) != 0)
            return damaged(c, r, file_of(r, row[0], (across[0] + i) * g.width), err);
    return 0;
}

/* All leaves that a part touches, checked. */
static int read_leaves(const lf_ckpt *c, const struct lf_ckpt_rec *r, const struct want *w,
                       lf_err *err)
{
    const struct lf_ckpt_grid g = lf_ckpt_grid_of(&r->e);
    const struct lf_ckpt_piece *p = w->part;
    int64_t first, width = lf_ckpt_box_cols(&r->e, p->lo, p->hi, &first);
    int64_t from = lf_ckpt_row_at(&r->e, p->lo, p->hi, p->flat[0] / width),
            to = lf_ckpt_row_at(&r->e, p->lo, p->hi, (p->flat[1] - 1) / width);
    struct lf_ckpt_feed f;
    int rc = lf_ckpt_feed_init(&f, err);
    for (int64_t k = lf_ckpt_grid_block(&g, from); k <= lf_ckpt_grid_block(&g, to) && rc == 0; k++)
        rc = read_block(c, r, k, w, &f, err);
    lf_ckpt_feed_fini(&f);
    return rc;
}

/* ---- both forms of the identity ---- */

/* The tree hash of the row-major bytes. */
static int tree_hash(uint8_t out[LF_HASH_BYTES], const lf_ckpt *c, const struct lf_ckpt_rec *r,
                     lf_err *err)
{
    size_t elem = lf_h5_type_bytes(r->e.dtype);
    unsigned char *buf = lf_malloc(BLOCK_BYTES, 1, err);
    lf_tree_hash *h = lf_tree_hash_create(err);
    struct lf_ckpt_piece p = {.flat = {0, 0}};
    int rc = buf && h ? 0 : LF_ENOMEM;
    memcpy(p.hi, r->e.shape, sizeof p.hi);
    while (rc == 0 && p.flat[1] < (int64_t)r->n_elems) {
        p.flat[0] = p.flat[1];
        p.flat[1] = least(p.flat[0] + (int64_t)(BLOCK_BYTES / elem), (int64_t)r->n_elems);
        rc = read_range(c, r, &p, buf, err);
        if (rc == 0)
            rc = lf_tree_hash_update(h, buf, (size_t)(p.flat[1] - p.flat[0]) * elem, err);
    }
    if (rc == 0)
        rc = lf_tree_hash_final(h, out, err);
    lf_tree_hash_destroy(h);
    free(buf);
    return rc;
}

static int check_tree(const lf_ckpt *c, const struct lf_ckpt_rec *r, lf_err *err)
{
    uint8_t have[LF_HASH_BYTES];
    int rc = tree_hash(have, c, r, err);
    if (rc == 0 && memcmp(have, r->sha256, sizeof have) != 0)
        rc = damaged(c, r, r->pieces[0].file, err);
    return rc;
}

/* The hash of the leaves. */
static int grid_hash(uint8_t out[LF_HASH_BYTES], const lf_ckpt *c, const struct lf_ckpt_rec *r,
                     lf_err *err)
{
    const struct lf_ckpt_grid g = lf_ckpt_grid_of(&r->e);
    size_t n = lf_ckpt_grid_leaves(&g);
    uint8_t(*leaves)[LF_HASH_BYTES] = lf_calloc(n, sizeof *leaves, err);
    int rc = leaves ? 0 : LF_ENOMEM;
    for (int64_t k = 0; k < g.bands * g.blocks && rc == 0; k++)
        rc = lf_ckpt_hash_leaves(c, r, k, (const int[2]){0, g.across}, &leaves[k * g.across], err);
    if (rc == 0)
        rc = lf_ckpt_tensor_digest(out, leaves, n, err);
    free(leaves);
    return rc;
}

int lf_ckpt_is(const lf_ckpt *c, const char *hex, lf_err *err)
{
    char own[LF_HASH_HEX];
    struct lf_ckpt_meta m = c->meta;
    uint8_t id[LF_HASH_BYTES] = {0};
    int rc = 0;
    lf_hash_hex(own, c->meta.identity);
    if (strcmp(own, hex) == 0)
        return 1;
    m.version = c->meta.version == 1 ? 2 : 1;
    if (!(m.recs = lf_calloc(m.n_recs, sizeof *m.recs, err)))
        return LF_ENOMEM;
    memcpy(m.recs, c->meta.recs, m.n_recs * sizeof *m.recs); /* all but the hash is borrowed */
    for (size_t i = 0; i < m.n_recs && rc == 0; i++)
        rc = m.version == 1 ? tree_hash(m.recs[i].sha256, c, &m.recs[i], err)
                            : grid_hash(m.recs[i].sha256, c, &m.recs[i], err);
    if (rc == 0)
        rc = lf_ckpt_make_identity(&m, id, err);
    free(m.recs);
    lf_hash_hex(own, id);
    return rc < 0 ? rc : strcmp(own, hex) == 0;
}

int lf_ckpt_check_tensor(const lf_ckpt *c, const struct lf_ckpt_rec *r, lf_err *err)
{
    struct lf_ckpt_piece all = {.flat = {0, (int64_t)r->n_elems}};
    if (c->meta.version == 1)
        return check_tree(c, r, err);
    memcpy(all.hi, r->e.shape, sizeof all.hi);
    return read_leaves(c, r, &(struct want){&all, NULL}, err);
}

/* A tensor whose hash was right once is not hashed for every read. */
static int check_once(const lf_ckpt *c, const struct lf_ckpt_rec *r, lf_err *err)
{
    atomic_bool *done = &c->checked[r - c->meta.recs];
    int rc = atomic_load(done) ? 0 : check_tree(c, r, err);
    if (rc == 0)
        atomic_store(done, true);
    return rc;
}

/* ---- requests ---- */

int lf_ckpt_read_part(const lf_ckpt *c, const lf_ckpt_entry *e, const int64_t *lo,
                      const int64_t *hi, const int64_t *flat, void *dst, lf_err *err)
{
    const struct lf_ckpt_rec *r =
        (const struct lf_ckpt_rec *)(const void *)e; /* e is its first member */
    struct lf_ckpt_piece p = {.flat = {0, 1}};
    for (int k = 0; k < e->ndim; k++) {
        p.lo[k] = lo ? lo[k] : 0;
        p.hi[k] = hi ? hi[k] : e->shape[k];
        if (p.lo[k] < 0 || p.lo[k] >= p.hi[k] || p.hi[k] > e->shape[k])
            return lf_fail(err, LF_EINVAL,
                           "tensor %s (%s): %lld to %lld of dimension %d, which has %lld", e->name,
                           e->kind, (long long)p.lo[k], (long long)p.hi[k], k,
                           (long long)e->shape[k]);
        p.flat[1] *= p.hi[k] - p.lo[k];
    }
    if (flat && (flat[0] < 0 || flat[0] > flat[1] || flat[1] > p.flat[1]))
        return lf_fail(err, LF_EINVAL, "tensor %s (%s): elements %lld to %lld of a box of %lld",
                       e->name, e->kind, (long long)flat[0], (long long)flat[1],
                       (long long)p.flat[1]);
    if (flat) {
        p.flat[0] = flat[0];
        p.flat[1] = flat[1];
    }
    if (p.flat[0] == p.flat[1])
        return 0;
    if (c->verify && c->meta.version > 1)
        return read_leaves(c, r, &(struct want){&p, dst}, err);
    int rc = c->verify ? check_once(c, r, err) : 0;
    return rc < 0 ? rc : read_range(c, r, &p, dst, err);
}

int lf_ckpt_read(const lf_ckpt *c, const lf_ckpt_entry *e, const int64_t *lo, const int64_t *hi,
                 void *dst, lf_err *err)
{
    return lf_ckpt_read_part(c, e, lo, hi, NULL, dst, err);
}

int lf_ckpt_read_flat(const lf_ckpt *c, const lf_ckpt_entry *e, int64_t first, int64_t n, void *dst,
                      lf_err *err)
{
    int64_t flat[2] = {first, 0};
    if (first < 0 || n < 0 || __builtin_add_overflow(first, n, &flat[1]))
        return lf_fail(err, LF_EINVAL, "tensor %s (%s): %lld elements from %lld on", e->name,
                       e->kind, (long long)n, (long long)first);
    return lf_ckpt_read_part(c, e, NULL, NULL, flat, dst, err);
}

const uint8_t *lf_ckpt_tensor_hash(const lf_ckpt_entry *e)
{
    return ((const struct lf_ckpt_rec *)(const void *)e)->sha256;
}

bool lf_ckpt_tensor_tree_hash(const lf_ckpt *c, const lf_ckpt_entry *e, uint8_t out[LF_HASH_BYTES])
{
    const struct lf_ckpt_rec *r = (const struct lf_ckpt_rec *)(const void *)e;
    uint64_t bytes = r->n_elems * lf_h5_type_bytes(e->dtype);
    if (c->meta.version == 1)
        memcpy(out, r->sha256, LF_HASH_BYTES);
    return c->meta.version == 1 || (r->n_leaves == 1 && bytes <= LF_HASH_LEAF &&
                                    lf_tree_hash_root(out, bytes, r->sha256, 1, NULL) == 0);
}
