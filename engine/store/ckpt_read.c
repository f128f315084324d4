/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading checkpoints. Order of trust: the manifest's own consistency (tiling, identity), then the
 * tree hash of every file, then each file's HDF5 structure against the pieces; after that, reads
 * are preads inside checked ranges.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/store/ckpt_priv.h"

#define BLOCK_BYTES ((size_t)1 << 20)

struct lf_ckpt {
    char *dir;
    lf_artifact a;
    struct lf_ckpt_meta meta;
    json_t *state;
    int *fds; /* [a.n_files], opened for those with pieces */
};

/* ---- reading ranges ---- */

static int piece_fd(const lf_ckpt *c, const struct lf_ckpt_piece *p)
{
    return c->fds[lf_artifact_find(&c->a, p->file) - c->a.files];
}

/* Elements [lo, hi) of a piece's flattened box, as far as the piece has them; returns how many, or
 * negative. */
static int64_t read_run(const lf_ckpt *c, const struct lf_ckpt_piece *p, int64_t lo, int64_t hi,
                        size_t elem, unsigned char *dst, lf_err *err)
{
    int64_t a = lo > p->flat[0] ? lo : p->flat[0], b = hi < p->flat[1] ? hi : p->flat[1];
    if (a >= b)
        return 0;
    int rc = lf_io_pread_all(piece_fd(c, p), dst + (size_t)(a - lo) * elem, (size_t)(b - a) * elem,
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

int lf_ckpt_read(const lf_ckpt *c, const lf_ckpt_entry *e, const int64_t *lo, const int64_t *hi,
                 void *dst, lf_err *err)
{
    static const int64_t zero[LF_CKPT_MAX_DIMS];
    const struct lf_ckpt_rec *r =
        (const struct lf_ckpt_rec *)(const void *)e; /* e is its first member */
    int64_t want = 1, have = 0;
    lo = lo ? lo : zero;
    hi = hi ? hi : e->shape;
    for (int k = 0; k < e->ndim; k++) {
        if (lo[k] < 0 || lo[k] >= hi[k] || hi[k] > e->shape[k])
            return lf_fail(err, LF_EINVAL,
                           "tensor %s (%s): %lld to %lld of dimension %d, which has %lld", e->name,
                           e->kind, (long long)lo[k], (long long)hi[k], k, (long long)e->shape[k]);
        want *= hi[k] - lo[k];
    }
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

int lf_ckpt_read_flat(const lf_ckpt *c, const lf_ckpt_entry *e, int64_t first, int64_t n, void *dst,
                      lf_err *err)
{
    const struct lf_ckpt_rec *r = (const struct lf_ckpt_rec *)(const void *)e;
    size_t elem = lf_h5_type_bytes(e->dtype);
    unsigned char *to = dst;
    if (first < 0 || n < 0 || (uint64_t)n > r->n_elems ||
        (uint64_t)first > r->n_elems - (uint64_t)n)
        return lf_fail(err, LF_EINVAL, "tensor %s (%s): elements %lld and %lld more of %llu",
                       e->name, e->kind, (long long)first, (long long)n,
                       (unsigned long long)r->n_elems);
    if (e->ndim == 1 && n)
        return lf_ckpt_read(c, e, &first, &(int64_t){first + n}, dst, err);
    /* Boxes: the rest of a row of the last dimension, whole rows of one row of the dimension above,
     * and so on up. */
    while (n) {
        int64_t lo[LF_CKPT_MAX_DIMS] = {0}, hi[LF_CKPT_MAX_DIMS] = {0}, left = first, inner = 1;
        int d = e->ndim - 1;
        for (int k = e->ndim - 1; k >= 0; k--) {
            lo[k] = left % e->shape[k];
            hi[k] = lo[k] + 1;
            left /= e->shape[k];
        }
        for (; d > 0 && lo[d] == 0 && inner * e->shape[d] <= n; d--) {
            inner *= e->shape[d];
            hi[d] = e->shape[d];
        }
        int64_t rows = least(n / inner, e->shape[d] - lo[d]);
        hi[d] = lo[d] + rows;
        int rc = lf_ckpt_read(c, e, lo, hi, to, err);
        if (rc < 0)
            return rc;
        to += (size_t)(rows * inner) * elem;
        first += rows * inner;
        n -= rows * inner;
    }
    return 0;
}

const uint8_t *lf_ckpt_tensor_hash(const lf_ckpt_entry *e)
{
    return ((const struct lf_ckpt_rec *)(const void *)e)->sha256; /* e is its first member */
}

/* ---- checking ---- */

static int open_files(lf_ckpt *c, lf_err *err)
{
    for (size_t i = 0; i < c->meta.n_recs; i++) {
        const struct lf_ckpt_rec *r = &c->meta.recs[i];
        int64_t elem = (int64_t)lf_h5_type_bytes(r->e.dtype);
        for (size_t k = 0; k < r->n_pieces; k++) {
            const struct lf_ckpt_piece *p = &r->pieces[k];
            const lf_artifact_file *f = lf_artifact_find(&c->a, p->file);
            if (!f)
                return lf_fail(
                    err, LF_EFORMAT,
                    "%s: tensor %s (%s) lies in %.200s, which the manifest does not list", c->dir,
                    r->name, r->kind, p->file);
            if (p->offset > f->bytes || (p->flat[1] - p->flat[0]) > (f->bytes - p->offset) / elem)
                return lf_fail(err, LF_EFORMAT, "%s: tensor %s (%s) reaches beyond the end of %s",
                               c->dir, r->name, r->kind, p->file);
            int *fd = &c->fds[f - c->a.files];
            if (*fd < 0 && (*fd = lf_artifact_open_file(c->dir, p->file, err)) < 0)
                return *fd;
        }
    }
    return 0;
}

/* Does the tensor give its hash? Read through the pieces, as a user would. */
static int check_tensor(const lf_ckpt *c, const struct lf_ckpt_rec *r, lf_err *err)
{
    uint8_t have[LF_HASH_BYTES];
    size_t elem = lf_h5_type_bytes(r->e.dtype);
    unsigned char *buf = lf_malloc(BLOCK_BYTES, 1, err);
    lf_tree_hash *h = lf_tree_hash_create(err);
    int rc = buf && h ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < r->n_pieces && rc == 0; i++) {
        const struct lf_ckpt_piece *p = &r->pieces[i];
        int64_t step = (int64_t)(BLOCK_BYTES / elem);
        for (int64_t at = p->flat[0]; at < p->flat[1] && rc == 0; at += step) {
            int64_t n = read_run(c, p, at, at + step, elem, buf, err);
            rc = n < 0 ? (int)n : lf_tree_hash_update(h, buf, (size_t)n * elem, err);
        }
    }
    if (rc == 0)
        rc = lf_tree_hash_final(h, have, err);
    if (rc == 0 && memcmp(have, r->sha256, sizeof have) != 0)
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: tensor %s (%s) in %s is damaged: its bytes do not match their hash",
                     c->dir, r->name, r->kind, r->pieces[0].file);
    lf_tree_hash_destroy(h);
    free(buf);
    return rc;
}

/* The hash of a file is wrong: name the tensor, when it is one that lies in one box. */
static void name_damage(const lf_ckpt *c, lf_err *err)
{
    for (size_t i = 0; i < c->meta.n_recs; i++) {
        const struct lf_ckpt_rec *r = &c->meta.recs[i];
        lf_err e = LF_ERR_INIT;
        bool whole = memcmp(r->pieces[0].hi, r->e.shape, (size_t)r->e.ndim * sizeof(int64_t)) == 0;
        if (whole && check_tensor(c, r, &e) == LF_EFORMAT) {
            lf_err_prefix(err, "tensor %s (%s)", r->name, r->kind);
            return;
        }
    }
}

/* Piece k of tensor r as HDF5 sees it in file f. */
static int check_dataset(lf_h5 *f, const struct lf_ckpt_rec *r, size_t k, lf_err *err)
{
    const struct lf_ckpt_piece *p = &r->pieces[k];
    lf_h5_dataset d = {0};
    char *name = lf_ckpt_dataset_name(r, k, err);
    int rc = name ? lf_h5_stat(f, name, &d, err) : LF_ENOMEM;
    if (rc == 0) {
        bool ok = d.type == r->e.dtype && d.n_extents == 1 &&
                  d.n_elems == (uint64_t)(p->flat[1] - p->flat[0]) &&
                  d.extents[0].offset == (uint64_t)p->offset;
        if (ok && r->n_pieces == 1)
            ok = d.ndim == r->e.ndim &&
                 memcmp(d.dims, r->e.shape, (size_t)d.ndim * sizeof(int64_t)) == 0;
        if (!ok)
            rc = lf_fail(err, LF_EFORMAT,
                         "tensor %s (%s): %s and the manifest disagree on its type, shape or place",
                         r->name, r->kind, p->file);
        lf_h5_dataset_fini(&d);
    }
    free(name);
    return rc;
}

static int check_structure(const lf_ckpt *c, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < c->a.n_files && rc == 0; i++) {
        lf_h5 *f = NULL;
        char *path = NULL;
        if (c->fds[i] < 0)
            continue;
        if (!(path = lf_path_join(c->dir, c->a.files[i].path, err)))
            return LF_ENOMEM;
        rc = lf_h5_open(&f, path, err);
        for (size_t t = 0; t < c->meta.n_recs && rc == 0; t++)
            for (size_t k = 0; k < c->meta.recs[t].n_pieces && rc == 0; k++)
                if (strcmp(c->meta.recs[t].pieces[k].file, c->a.files[i].path) == 0)
                    rc = check_dataset(f, &c->meta.recs[t], k, err);
        lf_h5_close(f, NULL);
        free(path);
    }
    if (rc < 0)
        lf_err_prefix(err, "%s", c->dir);
    return rc;
}

static int load_state(lf_ckpt *c, lf_err *err)
{
    if (!lf_artifact_find(&c->a, LF_CKPT_STATE))
        return lf_fail(err, LF_EFORMAT, "%s has no %s", c->dir, LF_CKPT_STATE);
    lf_err why = LF_ERR_INIT;
    char *path = lf_path_join(c->dir, LF_CKPT_STATE, err);
    if (!path)
        return LF_ENOMEM;
    c->state = lf_json_load_file(path, LF_CKPT_MAX_STATE, &why);
    free(path);
    if (!c->state)
        return lf_fail(err, why.rc, "%s", why.text);
    const json_t *step = json_object_get(c->state, "step");
    if (!json_is_integer(step) || json_integer_value(step) != c->meta.step)
        return lf_fail(err, LF_EFORMAT, "%s: %s and the manifest disagree on the step", c->dir,
                       LF_CKPT_STATE);
    return 0;
}

static int check_all(lf_ckpt *c, int threads, lf_err *err)
{
    int rc = lf_artifact_check_lengths(&c->a, c->dir, err);
    if (rc < 0)
        return rc;
    if (!(c->fds = lf_malloc(c->a.n_files, sizeof *c->fds, err)))
        return LF_ENOMEM;
    for (size_t i = 0; i < c->a.n_files; i++)
        c->fds[i] = -1;
    if ((rc = open_files(c, err)) < 0)
        return rc;
    if ((rc = lf_artifact_check_hashes(&c->a, c->dir, threads, err)) < 0) {
        if (rc == LF_EFORMAT)
            name_damage(c, err);
        return rc;
    }
    return (rc = check_structure(c, err)) < 0 ? rc : load_state(c, err);
}

int lf_ckpt_open(lf_ckpt **out, const char *dir, int threads, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    lf_ckpt *c = lf_calloc(1, sizeof *c, err);
    if (!c)
        return LF_ENOMEM;
    int rc = LF_ENOMEM;
    if (!(c->dir = lf_strdup(dir, err)) ||
        (rc = lf_artifact_load(&c->a, dir, LF_CKPT_KIND, err)) < 0)
        goto out;
    if ((rc = lf_ckpt_meta_load(&c->meta, c->a.meta, &why)) < 0) {
        rc = lf_fail(err, rc == LF_EINVAL ? LF_EFORMAT : rc, "%s/manifest.json: %.900s", dir,
                     why.text);
        goto out;
    }
    if ((rc = check_all(c, threads, err)) < 0)
        goto out;
    *out = c;
    c = NULL;
out:
    lf_ckpt_close(c);
    return rc;
}

void lf_ckpt_close(lf_ckpt *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->fds && i < c->a.n_files; i++)
        if (c->fds[i] >= 0)
            close(c->fds[i]);
    free(c->fds);
    json_decref(c->state);
    lf_ckpt_meta_fini(&c->meta);
    lf_artifact_fini(&c->a);
    free(c->dir);
    free(c);
}

size_t lf_ckpt_n_entries(const lf_ckpt *c)
{
    return c->meta.n_recs;
}
const lf_ckpt_entry *lf_ckpt_entry_at(const lf_ckpt *c, size_t i)
{
    return &c->meta.recs[i].e;
}
json_t *lf_ckpt_state(const lf_ckpt *c)
{
    return c->state;
}
const uint8_t *lf_ckpt_identity(const lf_ckpt *c)
{
    return c->meta.identity;
}
int64_t lf_ckpt_step(const lf_ckpt *c)
{
    return c->meta.step;
}
const char *lf_ckpt_dir(const lf_ckpt *c)
{
    return c->dir;
}

const lf_ckpt_entry *lf_ckpt_find(const lf_ckpt *c, const char *name, const char *kind)
{
    const lf_ckpt_entry want = {.name = name, .kind = kind};
    size_t lo = 0, hi = c->meta.n_recs;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int d = lf_ckpt_cmp(&c->meta.recs[mid].e, &want);
        if (d == 0)
            return &c->meta.recs[mid].e;
        if (d < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}
