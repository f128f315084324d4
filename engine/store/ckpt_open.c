/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening checkpoints. Order of trust: the manifest's own consistency (tiling, identity), then the
 * tree hash of every file, then each file's HDF5 structure against the pieces. A reader that hashes
 * what it reads needs only the first, and the hashes of leaves that the manifest's own give.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/store/ckpt_priv.h"

/* ---- files ---- */

static int bind_piece(lf_ckpt *c, const struct lf_ckpt_rec *r, struct lf_ckpt_piece *p, lf_err *err)
{
    int64_t elem = (int64_t)lf_h5_type_bytes(r->e.dtype);
    const lf_artifact_file *f = lf_artifact_find(&c->a, p->file);
    if (!f)
        return lf_fail(err, LF_EFORMAT,
                       "%s: tensor %s (%s) lies in %.200s, which the manifest does not list",
                       c->dir, r->name, r->kind, p->file);
    if (p->offset > f->bytes || (p->flat[1] - p->flat[0]) > (f->bytes - p->offset) / elem)
        return lf_fail(err, LF_EFORMAT, "%s: tensor %s (%s) reaches beyond the end of %s", c->dir,
                       r->name, r->kind, p->file);
    p->at = (size_t)(f - c->a.files);
    return 0;
}

int lf_ckpt_bind(lf_ckpt *c, lf_err *err)
{
    int rc = 0;
    if (!(c->fds = lf_malloc(c->a.n_files, sizeof *c->fds, err)))
        return LF_ENOMEM;
    for (c->n_fds = 0; c->n_fds < c->a.n_files; c->n_fds++)
        atomic_init(&c->fds[c->n_fds], -1);
    for (size_t i = 0; i < c->meta.n_recs; i++)
        for (size_t k = 0; k < c->meta.recs[i].n_pieces && rc == 0; k++)
            rc = bind_piece(c, &c->meta.recs[i], &c->meta.recs[i].pieces[k], err);
    return rc;
}

int lf_ckpt_fd(const lf_ckpt *c, size_t file, lf_err *err)
{
    const lf_artifact_file *f = &c->a.files[file];
    struct stat st;
    int none = -1, fd = atomic_load(&c->fds[file]);
    if (fd >= 0)
        return fd;
    if ((fd = lf_artifact_open_file(c->dir, f->path, err)) < 0)
        return fd;
    if (fstat(fd, &st) < 0 || (int64_t)st.st_size != f->bytes) {
        close(fd);
        return lf_fail(err, LF_EFORMAT, "%s/%s has not the %lld bytes that its manifest says",
                       c->dir, f->path, (long long)f->bytes);
    }
    if (atomic_compare_exchange_strong(&c->fds[file], &none, fd))
        return fd;
    close(fd); /* another thread was first */
    return none;
}

/* Opens every file that holds tensors. */
static int open_files(lf_ckpt *c, lf_err *err)
{
    int fd = 0;
    for (size_t i = 0; i < c->meta.n_recs; i++)
        for (size_t k = 0; k < c->meta.recs[i].n_pieces && fd >= 0; k++)
            fd = lf_ckpt_fd(c, c->meta.recs[i].pieces[k].at, err);
    return fd < 0 ? fd : 0;
}

/* ---- leaves ---- */

/* Hashes of the leaves of a tensor, from the file that holds all of them. */
static int load_rec_leaves(struct lf_ckpt_rec *r, const lf_buf *b, size_t *at, lf_err *err)
{
    uint8_t have[LF_HASH_BYTES];
    const struct lf_ckpt_grid g = lf_ckpt_grid_of(&r->e);
    r->n_leaves = lf_ckpt_grid_leaves(&g);
    if (r->n_leaves == 1)
        return 0;
    if (r->n_leaves > (b->len - *at) / LF_HASH_BYTES)
        return lf_fail(err, LF_EFORMAT, "it ends before tensor %s (%s)", r->name, r->kind);
    if (!(r->leaves = lf_calloc(r->n_leaves, sizeof *r->leaves, err)))
        return LF_ENOMEM;
    memcpy(r->leaves, b->data + *at, r->n_leaves * LF_HASH_BYTES);
    *at += r->n_leaves * LF_HASH_BYTES;
    int rc = lf_ckpt_tensor_digest(have, r->leaves, r->n_leaves, err);
    if (rc == 0 && memcmp(have, r->sha256, sizeof have) != 0)
        rc = lf_fail(err, LF_EFORMAT, "its hashes of tensor %s (%s) are not those of the manifest",
                     r->name, r->kind);
    return rc;
}

static int load_leaves(lf_ckpt *c, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    const lf_artifact_file *f = lf_artifact_find(&c->a, LF_CKPT_LEAVES);
    char *path = lf_path_join(c->dir, LF_CKPT_LEAVES, err);
    size_t at = 0;
    lf_buf b;
    lf_buf_init(&b);
    int rc = path ? 0 : LF_ENOMEM;
    if (rc == 0 && f)
        rc = lf_io_read_file(path, (size_t)f->bytes, &b, &why);
    for (size_t i = 0; i < c->meta.n_recs && rc == 0; i++)
        rc = load_rec_leaves(&c->meta.recs[i], &b, &at, &why);
    if (rc == 0 && at != b.len)
        rc = lf_fail(&why, LF_EFORMAT, "it has %zu bytes too many", b.len - at);
    if (rc < 0 && path)
        rc = lf_fail(err, rc, "%s: %.900s", path, why.text);
    lf_buf_fini(&b);
    free(path);
    return rc;
}

/* ---- checks ---- */

/* The hash of a file is wrong: name the tensor. */
static void name_damage(const lf_ckpt *c, lf_err *err)
{
    for (size_t i = 0; i < c->meta.n_recs; i++) {
        const struct lf_ckpt_rec *r = &c->meta.recs[i];
        lf_err e = LF_ERR_INIT;
        if (lf_ckpt_check_tensor(c, r, &e) == LF_EFORMAT) {
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
        if (ok && lf_ckpt_one_piece(r))
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

/* A piece and where it belongs. */
struct place {
    size_t file, rec, piece;
};

static int cmp_place(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->file < y->file ? -1 : x->file > y->file;
}

static struct place *all_places(const lf_ckpt *c, size_t *n, lf_err *err)
{
    *n = 0;
    for (size_t t = 0; t < c->meta.n_recs; t++)
        *n += c->meta.recs[t].n_pieces;
    struct place *v = lf_calloc(*n, sizeof *v, err);
    size_t at = 0;
    for (size_t t = 0; t < c->meta.n_recs && v; t++)
        for (size_t k = 0; k < c->meta.recs[t].n_pieces; k++)
            v[at++] = (struct place){c->meta.recs[t].pieces[k].at, t, k};
    if (v)
        qsort(v, *n, sizeof *v, cmp_place);
    return v;
}

static int check_structure(const lf_ckpt *c, lf_err *err)
{
    size_t n;
    struct place *v = all_places(c, &n, err);
    int rc = v ? 0 : LF_ENOMEM;
    for (size_t i = 0, end; i < n && rc == 0; i = end) {
        lf_h5 *f = NULL;
        char *path = lf_path_join(c->dir, c->a.files[v[i].file].path, err);
        rc = path ? lf_h5_open(&f, path, err) : LF_ENOMEM;
        for (end = i; end < n && v[end].file == v[i].file && rc == 0; end++)
            rc = check_dataset(f, &c->meta.recs[v[end].rec], v[end].piece, err);
        lf_h5_close(f, NULL);
        free(path);
    }
    free(v);
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

/* The files that every reader reads whole. */
static int check_small(const lf_ckpt *c, lf_err *err)
{
    static const char *const names[] = {LF_CKPT_STATE, LF_CKPT_LEAVES};
    int rc = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names && rc == 0; i++) {
        const lf_artifact_file *f = lf_artifact_find(&c->a, names[i]);
        lf_artifact_hash_job job = {.path = names[i]};
        if (!f || (rc = lf_artifact_hash_files(c->dir, &job, 1, 1, err)) < 0)
            continue;
        if (job.bytes != f->bytes || memcmp(job.sha256, f->sha256, LF_HASH_BYTES) != 0)
            rc = lf_fail(err, LF_EFORMAT,
                         "%s/%s: its bytes do not match the hash in the manifest (damaged file)",
                         c->dir, names[i]);
    }
    return rc;
}

/* Lengths, and hashes as far as the mode wants. */
static int check_files(lf_ckpt *c, enum lf_ckpt_check check, int threads, lf_err *err)
{
    int rc = check == LF_CKPT_CHECK_READS ? 0 : lf_artifact_check_lengths(&c->a, c->dir, err);
    if (rc == 0)
        rc = lf_ckpt_bind(c, err);
    if (rc == 0 && check == LF_CKPT_CHECK_ALL) {
        if ((rc = open_files(c, err)) < 0 ||
            (rc = lf_artifact_check_hashes(&c->a, c->dir, threads, err)) == 0)
            return rc;
        if (rc == LF_EFORMAT && (c->meta.version == 1 || load_leaves(c, NULL) == 0))
            name_damage(c, err);
        return rc;
    }
    return rc < 0 ? rc : check_small(c, err);
}

static int check_all(lf_ckpt *c, enum lf_ckpt_check check, int threads, lf_err *err)
{
    int rc = check_files(c, check, threads, err);
    c->verify = check != LF_CKPT_CHECK_ALL;
    if (rc == 0 && !(c->checked = lf_calloc(c->meta.n_recs, sizeof *c->checked, err)))
        rc = LF_ENOMEM;
    if (rc == 0 && c->meta.version > 1)
        rc = load_leaves(c, err);
    if (rc == 0 && check != LF_CKPT_CHECK_READS)
        rc = check_structure(c, err);
    return rc < 0 ? rc : load_state(c, err);
}

int lf_ckpt_open_checked(lf_ckpt **out, const char *dir, enum lf_ckpt_check check, int threads,
                         lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    lf_ckpt *c = lf_calloc(1, sizeof *c, err);
    if (!c)
        return LF_ENOMEM;
    int rc = LF_ENOMEM;
    c->threads = threads > 0 ? threads : lf_ncpu();
    if (!(c->dir = lf_strdup(dir, err)) ||
        (rc = lf_artifact_load(&c->a, dir, LF_CKPT_KIND, err)) < 0)
        goto out;
    if ((rc = lf_ckpt_meta_load(&c->meta, c->a.meta, &why)) < 0) {
        rc = lf_fail(err, rc == LF_EINVAL ? LF_EFORMAT : rc, "%s/manifest.json: %.900s", dir,
                     why.text);
        goto out;
    }
    if ((rc = check_all(c, check, threads, err)) < 0)
        goto out;
    *out = c;
    c = NULL;
out:
    lf_ckpt_close(c);
    return rc;
}

int lf_ckpt_threads(const lf_ckpt *c)
{
    return c->threads;
}

int lf_ckpt_open(lf_ckpt **out, const char *dir, int threads, lf_err *err)
{
    return lf_ckpt_open_checked(out, dir, LF_CKPT_CHECK_ALL, threads, err);
}

void lf_ckpt_close(lf_ckpt *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_fds; i++)
        if (atomic_load(&c->fds[i]) >= 0)
            close(atomic_load(&c->fds[i]));
    free(c->fds);
    free(c->checked);
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
int lf_ckpt_identity_version(const lf_ckpt *c)
{
    return c->meta.version;
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

/* Their values; names and kinds stay, and so does the order of the list. */
static void exchange(struct lf_ckpt_rec *a, struct lf_ckpt_rec *b)
{
    struct lf_ckpt_rec was = *a;
    char *const kind = b->kind;
    *a = *b;
    a->kind = was.kind;
    a->e.kind = was.kind;
    was.kind = kind;
    was.e.kind = kind;
    *b = was;
}

int lf_ckpt_averages(lf_ckpt *c, lf_err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < c->meta.n_recs; i++) {
        struct lf_ckpt_rec *r = &c->meta.recs[i];
        if (strcmp(r->kind, "ema") != 0)
            continue;
        const lf_ckpt_entry *e = lf_ckpt_find(c, r->name, "weight");
        if (!e)
            return lf_fail(err, LF_EFORMAT, "%s: %s has an average and no weights", c->dir,
                           r->name);
        exchange(r, &c->meta.recs[(const struct lf_ckpt_rec *)e - c->meta.recs]);
        n++;
    }
    return n > 0 ? lf_ckpt_make_identity(&c->meta, c->meta.identity, err)
                 : lf_fail(err, LF_ENOENT,
                           "%s holds no averages of weights (ema): its stage was run without ema",
                           c->dir);
}
