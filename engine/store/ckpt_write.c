/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving checkpoints: snapshot on the caller's time, everything else on a thread of its own and its
 * helpers.
 *
 * Where each tensor goes is decided once, at create; a save fills in offsets and hashes. The work
 * is cut into leaves of the tree hash (64 MiB of one tensor); a helper takes a leaf, and hashes and
 * writes it block by block while the block is in its cache. Signals stay with the main thread, so a
 * file-size limit arrives here as EFBIG and becomes an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/store/ckpt_write_priv.h"

#define ARENA_ALIGN ((size_t)64)
#define BLOCK_BYTES ((size_t)1 << 20)
#define MAX_THREADS 64

/* Elements of a piece, all but the last of a tensor. */
static uint64_t piece_elems(const lf_ckpt_writer *w, const struct lf_ckpt_rec *r)
{
    uint64_t n =
        w->piece_bytes > 0 ? (uint64_t)w->piece_bytes / lf_h5_type_bytes(r->e.dtype) : r->n_elems;
    return n < 1 ? 1 : n < r->n_elems ? n : r->n_elems;
}

/* ---- create ---- */

size_t lf_ckpt_snapshot_bytes(const lf_ckpt_tensor *tensors, size_t n)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        size_t b = lf_h5_type_bytes(tensors[i].dtype);
        for (int k = 0; k < tensors[i].ndim; k++)
            if (tensors[i].shape[k] < 0 || !lf_size_mul(&b, b, (size_t)tensors[i].shape[k]))
                return SIZE_MAX;
        if (!lf_size_add(&b, b, ARENA_ALIGN - 1) ||
            !lf_size_add(&total, total, b & ~(ARENA_ALIGN - 1)))
            return SIZE_MAX;
    }
    return total;
}

static int cmp_tensor(const void *a, const void *b)
{
    const lf_ckpt_tensor *const *x = a, *const *y = b;
    int c = strcmp((*x)->kind, (*y)->kind);
    return c ? c : strcmp((*x)->name, (*y)->name);
}

static int take_tensor(lf_ckpt_writer *w, const lf_ckpt_tensor *t, lf_err *err)
{
    struct lf_ckpt_rec *r = &w->meta.recs[w->meta.n_recs++];
    lf_ckpt_entry e = {.name = t->name, .kind = t->kind, .dtype = t->dtype, .ndim = t->ndim};
    memcpy(e.shape, t->shape, sizeof e.shape);
    int rc = lf_ckpt_check_entry(&e, &r->n_elems, err);
    if (rc < 0)
        return rc;
    if (!(r->name = lf_strdup(t->name, err)) || !(r->kind = lf_strdup(t->kind, err)))
        return LF_ENOMEM;
    r->e = e;
    r->e.name = r->name;
    r->e.kind = r->kind;
    w->live[w->meta.n_recs - 1] = t->data;
    w->sources[w->meta.n_recs - 1] = (struct lf_ckpt_source){t->fill, t->user, t->fetch};
    if (t->fetch && !w->arena)
        return lf_fail(err, LF_EINVAL,
                       "tensor %s (%s) is in a device's memory, so it needs a snapshot", t->name,
                       t->kind);
    if (t->fill && w->arena)
        return lf_fail(err, LF_EINVAL,
                       "tensor %s (%s) is not in memory, so there is no snapshot of it", t->name,
                       t->kind);
    if (w->meta.n_recs > 1 && lf_ckpt_cmp(&r[-1].e, &r->e) == 0)
        return lf_fail(err, LF_EEXIST, "tensor %s (%s) is given twice", t->name, t->kind);
    return 0;
}

/* A tensor "a" beside a tensor "a/b" would need a dataset and a group of one name. */
static int check_prefixes(const lf_ckpt_writer *w, lf_err *err)
{
    for (size_t i = 0; i < w->meta.n_recs; i++) {
        const lf_ckpt_entry *e = &w->meta.recs[i].e;
        for (size_t k = i + 1; k < w->meta.n_recs && strcmp(w->meta.recs[k].e.kind, e->kind) == 0;
             k++) {
            size_t n = strlen(e->name);
            const char *other = w->meta.recs[k].e.name;
            if (strncmp(e->name, other, n) != 0)
                break;
            if (other[n] == '/')
                return lf_fail(err, LF_EINVAL,
                               "tensors %s and %s: one name is a folder of the other", e->name,
                               other);
        }
    }
    return 0;
}

static int add_file(lf_ckpt_writer *w, size_t *cap, lf_err *err)
{
    int rc = lf_grow(&w->files, cap, w->n_files, sizeof *w->files, err);
    if (rc == 0) {
        snprintf(w->files[w->n_files], sizeof *w->files, "data-%05zu.h5", w->n_files);
        w->n_files++;
    }
    return rc;
}

static int plan_pieces(lf_ckpt_writer *w, struct lf_ckpt_rec *r, int64_t file_bytes, int64_t *fill,
                       size_t *cap, lf_err *err)
{
    uint64_t step = piece_elems(w, r), n = (r->n_elems - 1) / step + 1;
    int64_t elem = (int64_t)lf_h5_type_bytes(r->e.dtype);
    if (n > LF_CKPT_MAX_PIECES)
        return lf_fail(err, LF_EINVAL, "tensor %s in pieces of %llu elements: too many pieces",
                       r->name, (unsigned long long)step);
    if (!(r->pieces = lf_calloc((size_t)n, sizeof *r->pieces, err)))
        return LF_ENOMEM;
    for (; r->n_pieces < n; r->n_pieces++) {
        struct lf_ckpt_piece *p = &r->pieces[r->n_pieces];
        uint64_t lo = r->n_pieces * step, hi = lo + step < r->n_elems ? lo + step : r->n_elems;
        int64_t bytes = (int64_t)(hi - lo) * elem;
        if (w->n_files == 0 || (file_bytes > 0 && *fill > 0 && *fill + bytes > file_bytes)) {
            int rc = add_file(w, cap, err);
            if (rc < 0)
                return rc;
            *fill = 0;
        }
        *fill += bytes;
        for (int k = 0; k < r->e.ndim; k++)
            p->hi[k] = r->e.shape[k];
        p->flat[0] = (int64_t)lo;
        p->flat[1] = (int64_t)hi;
        if (!(p->file = lf_strdup(w->files[w->n_files - 1], err)))
            return LF_ENOMEM;
    }
    return 0;
}

static int plan_leaves(lf_ckpt_writer *w, lf_err *err)
{
    size_t n = 0;
    for (size_t i = 0; i < w->meta.n_recs; i++)
        n += (lf_ckpt_rec_bytes(&w->meta.recs[i]) - 1) / LF_HASH_LEAF + 1;
    if (!(w->leaves = lf_calloc(n, sizeof *w->leaves, err)))
        return LF_ENOMEM;
    for (size_t i = 0; i < w->meta.n_recs; i++)
        for (size_t k = 0; k * LF_HASH_LEAF < lf_ckpt_rec_bytes(&w->meta.recs[i]); k++)
            w->leaves[w->n_leaves++] = (struct lf_ckpt_leaf){.rec = i, .index = k};
    return 0;
}

static int take_all(lf_ckpt_writer *w, const lf_ckpt_tensor *tensors, size_t n, int64_t file_bytes,
                    lf_err *err)
{
    int64_t fill = 0;
    size_t cap = 0;
    int rc = LF_ENOMEM;
    const lf_ckpt_tensor **sorted = lf_calloc(n, sizeof *sorted, err);
    if (!sorted || !(w->meta.recs = lf_calloc(n, sizeof *w->meta.recs, err)) ||
        !(w->sources = lf_calloc(n, sizeof *w->sources, err)) ||
        !(w->live = lf_calloc(n, sizeof *w->live, err)) ||
        !(w->from = lf_calloc(n, sizeof *w->from, err)))
        goto out;
    for (size_t i = 0; i < n; i++)
        sorted[i] = &tensors[i];
    qsort(sorted, n, sizeof *sorted, cmp_tensor);
    rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = take_tensor(w, sorted[i], err);
    if (rc == 0)
        rc = check_prefixes(w, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = plan_pieces(w, &w->meta.recs[i], file_bytes, &fill, &cap, err);
    if (rc == 0)
        rc = plan_leaves(w, err);
    if (rc == 0 && !(w->fds = lf_malloc(w->n_files, sizeof *w->fds, err)))
        rc = LF_ENOMEM;
    for (size_t i = 0; i < w->n_files && rc == 0; i++)
        w->fds[i] = -1;
out:
    free(sorted);
    return rc;
}

int lf_ckpt_writer_create(lf_ckpt_writer **out, const lf_ckpt_tensor *tensors, size_t n,
                          const lf_ckpt_options *o, lf_err *err)
{
    if (n < 1 || n > LF_CKPT_MAX_TENSORS)
        return lf_fail(err, LF_EINVAL, "a checkpoint of %zu tensors; 1 to %d are possible", n,
                       LF_CKPT_MAX_TENSORS);
    lf_ckpt_writer *w = lf_calloc(1, sizeof *w, err);
    if (!w)
        return LF_ENOMEM;
    pthread_mutex_init(&w->lock, NULL);
    atomic_init(&w->done, true);
    w->arena = o->arena;
    w->piece_bytes = o->piece_bytes;
    w->resume = o->resume;
    w->progress = -1;
    w->threads = o->threads < 1 ? 1 : o->threads > MAX_THREADS ? MAX_THREADS : o->threads;
    int rc = take_all(w, tensors, n, o->file_bytes, err);
    if (rc < 0) {
        lf_ckpt_writer_destroy(w);
        return rc;
    }
    *out = w;
    return 0;
}

void lf_ckpt_writer_destroy(lf_ckpt_writer *w)
{
    if (!w)
        return;
    lf_ckpt_save_wait(w, NULL, NULL);
    lf_ckpt_meta_fini(&w->meta);
    pthread_mutex_destroy(&w->lock);
    free(w->sources);
    free(w->live);
    free(w->from);
    free(w->files);
    free(w->fds);
    free(w->leaves);
    free(w->dir);
    free(w->state);
    json_decref(w->ended);
    free(w);
}

/* ---- the background: tensors ---- */

int lf_ckpt_place(const lf_ckpt_writer *w, const struct lf_ckpt_rec *r, size_t at, size_t *n,
                  off_t *offset, const char **file)
{
    size_t elem = lf_h5_type_bytes(r->e.dtype), step = (size_t)piece_elems(w, r) * elem;
    const struct lf_ckpt_piece *p = &r->pieces[at / step];
    size_t in = at % step, room = (size_t)(p->flat[1] - p->flat[0]) * elem - in;
    *n = *n < room ? *n : room;
    *offset = (off_t)p->offset + (off_t)in;
    *file = p->file;
    return w->fds[strtoul(p->file + strlen("data-"), NULL, 10)];
}

/* Bytes [at, at + n) of a tensor to the pieces they belong to. */
static int write_block(const lf_ckpt_writer *w, const struct lf_ckpt_rec *r,
                       const unsigned char *data, size_t at, size_t n, lf_err *err)
{
    for (size_t k; n; data += k, at += k, n -= k) {
        off_t offset;
        const char *file;
        k = n;
        int fd = lf_ckpt_place(w, r, at, &k, &offset, &file),
            rc = lf_io_pwrite_all(fd, data, k, offset, file, err);
        if (rc < 0)
            return lf_err_prefix(err, "%s: tensor %s (%s)", w->dir, r->name, r->kind);
    }
    return 0;
}

/* buf: LF_CKPT_FILL_BYTES of this helper's own, made when first needed. */
static int save_leaf(lf_ckpt_writer *w, struct lf_ckpt_leaf *leaf, lf_hash *sha,
                     unsigned char **buf, lf_err *err)
{
    const struct lf_ckpt_rec *r = &w->meta.recs[leaf->rec];
    const struct lf_ckpt_source *s = &w->sources[leaf->rec];
    size_t at = leaf->index * LF_HASH_LEAF, left = lf_ckpt_leaf_bytes(r, at),
           elem = lf_h5_type_bytes(r->e.dtype);
    size_t block = s->fill ? LF_CKPT_FILL_BYTES : BLOCK_BYTES;
    if ((s->fill || leaf->left) && !*buf && !(*buf = lf_malloc(LF_CKPT_FILL_BYTES, 1, err)))
        return LF_ENOMEM;
    if (leaf->left && lf_ckpt_resume_leaf(w, leaf, sha, *buf)) {
        atomic_fetch_add(&w->reused, (long long)left);
        return 0;
    }
    int rc = 0;
    while (left && rc == 0) {
        size_t n = left < block ? left : block;
        const unsigned char *data = s->fill ? *buf : w->from[leaf->rec] + at;
        if (s->fill &&
            (rc = s->fill(s->user, (int64_t)(at / elem), (int64_t)(n / elem), *buf, err)) < 0)
            break;
        lf_hash_update(sha, data, n);
        rc = write_block(w, r, data, at, n, err);
        at += n;
        left -= n;
    }
    lf_hash_final(sha, leaf->sha256);
    if (rc == 0 && w->progress >= 0)
        lf_partial_add(w->progress, (size_t)(leaf - w->leaves), leaf->sha256);
    return rc;
}

static void *helper(void *arg)
{
    lf_ckpt_writer *w = arg;
    lf_err err = LF_ERR_INIT;
    unsigned char *buf = NULL;
    lf_hash *sha = lf_hash_create(&err);
    int rc = sha ? 0 : LF_ENOMEM;
    size_t i;
    while (rc == 0 && !atomic_load(&w->failed) &&
           (i = atomic_fetch_add(&w->next_leaf, 1)) < w->n_leaves)
        rc = save_leaf(w, &w->leaves[i], sha, &buf, &err);
    lf_hash_destroy(sha);
    free(buf);
    if (rc < 0) {
        atomic_store(&w->failed, true);
        pthread_mutex_lock(&w->lock);
        if (w->err.rc == 0)
            w->err = err;
        pthread_mutex_unlock(&w->lock);
    }
    return NULL;
}

static int save_tensors(lf_ckpt_writer *w)
{
    pthread_t tid[MAX_THREADS];
    int started = 0;
    atomic_store(&w->next_leaf, 0);
    atomic_store(&w->failed, false);
    for (int i = 1; i < w->threads; i++)
        if (pthread_create(&tid[started], NULL, helper, w) == 0)
            started++;
    helper(w);
    for (int i = 0; i < started; i++)
        pthread_join(tid[i], NULL);
    return w->err.rc;
}

/* Tree hash of each tensor from its leaves, then the identity. */
static int finish_hashes(lf_ckpt_writer *w, lf_err *err)
{
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    for (size_t i = 0, leaf = 0; i < w->meta.n_recs; i++) {
        struct lf_ckpt_rec *r = &w->meta.recs[i];
        uint8_t le[8];
        for (int k = 0; k < 8; k++)
            le[k] = (uint8_t)((uint64_t)lf_ckpt_rec_bytes(r) >> (8 * k));
        lf_hash_update(h, "lf-tree-1", strlen("lf-tree-1"));
        lf_hash_update(h, le, sizeof le);
        for (; leaf < w->n_leaves && w->leaves[leaf].rec == i; leaf++)
            lf_hash_update(h, w->leaves[leaf].sha256, LF_HASH_BYTES);
        lf_hash_final(h, r->sha256);
    }
    lf_hash_destroy(h);
    return lf_ckpt_make_identity(&w->meta, w->meta.identity, err);
}

/* ---- the background: files ---- */

static int put_pieces(lf_ckpt_writer *w, lf_h5 *f, const char *file, lf_err *err)
{
    for (size_t i = 0; i < w->meta.n_recs; i++) {
        struct lf_ckpt_rec *r = &w->meta.recs[i];
        for (size_t k = 0; k < r->n_pieces; k++) {
            struct lf_ckpt_piece *p = &r->pieces[k];
            if (strcmp(p->file, file) != 0)
                continue;
            int64_t flat = p->flat[1] - p->flat[0];
            uint64_t at = 0;
            char *name = lf_ckpt_dataset_name(r, k, err);
            int rc = name ? 0 : LF_ENOMEM;
            if (rc == 0)
                rc = r->n_pieces == 1
                         ? lf_h5_put_extent(f, name, r->e.dtype, r->e.ndim, r->e.shape, &at, err)
                         : lf_h5_put_extent(f, name, r->e.dtype, 1, &flat, &at, err);
            free(name);
            if (rc < 0)
                return rc;
            p->offset = (int64_t)at;
        }
    }
    return 0;
}

/* The structure of a data file, with the places of its tensors. */
static int make_structure(lf_ckpt_writer *w, size_t i, const char *path, lf_err *err)
{
    lf_h5 *f = NULL;
    int rc = lf_h5_create(&f, path, err);
    if (rc == 0 && (rc = lf_h5_put_attr_str(f, "lf_format", "lf-ckpt-1", err)) == 0)
        rc = put_pieces(w, f, w->files[i], err);
    int rc2 = lf_h5_close(f, rc < 0 ? NULL : err);
    return rc < 0 ? rc : rc2;
}

static int make_data_file(lf_ckpt_writer *w, size_t i, lf_err *err)
{
    char *path = lf_path_join(w->dir, w->files[i], err),
         *apart = lf_path_join(w->dir, LF_CKPT_STRUCTURE, err);
    int rc = path && apart ? 0 : LF_ENOMEM;
    bool there = rc == 0 && lf_io_exists(path); /* taken over: dir was empty */
    if (rc == 0)
        rc = make_structure(w, i, there ? apart : path, err);
    if (rc == 0 && (w->fds[i] = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW)) < 0)
        rc = lf_fail_errno(err, "cannot open %s", path);
    if (rc == 0 && there)
        rc = lf_ckpt_resume_file(w, i, apart, err);
    free(path);
    free(apart);
    return rc;
}

static int make_state(const lf_ckpt_writer *w, lf_err *err)
{
    char *path = lf_path_join(w->dir, LF_CKPT_STATE, err);
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, LF_ARTIFACT_MODE) : -1;
    int rc = 0;
    if (!path)
        rc = LF_ENOMEM;
    else if (fd < 0)
        rc = lf_fail_errno(err, "cannot create %s", path);
    else
        rc = lf_io_write_all(fd, w->state, strlen(w->state), path, err);
    if (fd >= 0 && close(fd) < 0 && rc == 0)
        rc = lf_fail_errno(err, "cannot write %s", path);
    free(path);
    return rc;
}

static int close_files(lf_ckpt_writer *w, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < w->n_files; i++) {
        if (w->fds[i] >= 0 && close(w->fds[i]) < 0 && rc == 0)
            rc = lf_fail_errno(err, "cannot write %s/%s", w->dir, w->files[i]);
        w->fds[i] = -1;
    }
    if (w->progress >= 0)
        close(w->progress);
    w->progress = -1;
    return rc;
}

/* Hash what was written (from the page cache) and make it a checkpoint. */
static int publish(lf_ckpt_writer *w, lf_err *err)
{
    lf_artifact a = {0};
    size_t n = w->n_files + 1 + (w->n_files > 1);
    lf_artifact_hash_job *jobs = lf_calloc(n, sizeof *jobs, err);
    int rc = jobs ? lf_artifact_init(&a, LF_CKPT_KIND, err) : LF_ENOMEM;
    if (rc < 0)
        goto out;
    for (size_t i = 0; i < w->n_files; i++)
        jobs[i].path = w->files[i];
    jobs[w->n_files].path = LF_CKPT_STATE;
    if (w->n_files > 1)
        jobs[w->n_files + 1].path = LF_CKPT_INDEX;
    rc = lf_artifact_hash_files(w->dir, jobs, n, w->threads, err);
    for (size_t i = 0; i < n && rc == 0; i++) {
        w->result.bytes += jobs[i].bytes;
        rc = lf_artifact_add(&a, jobs[i].path, jobs[i].bytes, jobs[i].sha256, err);
    }
    if (rc == 0 && json_object_update(a.meta, w->ended))
        rc = lf_fail(err, LF_ENOMEM, "no memory for the description of a checkpoint");
    if (rc == 0 && (rc = lf_ckpt_meta_store(&w->meta, a.meta, err)) == 0)
        rc = lf_artifact_publish(&a, w->dir, err);
out:
    free(jobs);
    lf_artifact_fini(&a);
    return rc;
}

static int save_all(lf_ckpt_writer *w)
{
    lf_err *err = &w->err;
    int rc = lf_io_mkdirs(w->dir, 0750, err);
    if (rc == 0 && w->resume.key)
        rc = lf_ckpt_resume_begin(w, err);
    for (size_t i = 0; i < w->n_files && rc == 0; i++)
        rc = make_data_file(w, i, err);
    if (rc == 0)
        rc = save_tensors(w);
    int rc2 = close_files(w, rc < 0 ? NULL : err);
    rc = rc < 0 ? rc : rc2;
    w->result.reused_bytes = (int64_t)atomic_load(&w->reused);
    if (rc == 0 && w->resume.key)
        rc = lf_partial_end(w->dir, err);
    if (rc < 0 || (rc = finish_hashes(w, err)) < 0 || (rc = make_state(w, err)) < 0)
        return rc;
    if (w->n_files > 1 && (rc = lf_ckpt_make_index(&w->meta, w->dir, err)) < 0)
        return rc;
    if ((rc = publish(w, err)) == 0)
        memcpy(w->result.identity, w->meta.identity, LF_HASH_BYTES);
    return rc;
}

static void *save_thread(void *arg)
{
    lf_ckpt_writer *w = arg;
    double t0 = lf_now_s();
    w->rc = save_all(w);
    bool keep = w->resume.key && w->rc == LF_EINTR; /* for the run that goes on */
    if (w->rc < 0 && !keep &&
        lf_ckpt_clean(w->dir, NULL) ==
            0) /* give the space back; a crash here leaves no manifest either */
        rmdir(w->dir);
    w->result.write_s = lf_now_s() - t0;
    atomic_store(&w->done, true);
    return NULL;
}

/* ---- the caller's side ---- */

/* What the manifest says too; a copy, as the writer has a thread of its own. */
static json_t *endings_of(const json_t *state)
{
    static const char *const names[] = {LF_CKPT_ENDED, LF_CKPT_IMPATIENT};
    json_t *o = json_object();
    int bad = o == NULL;
    for (size_t i = 0; !bad && i < sizeof names / sizeof names[0]; i++) {
        json_t *is = json_object_get(state, names[i]);
        bad = is != NULL && json_object_set_new(o, names[i], json_deep_copy(is));
    }
    if (!bad)
        return o;
    json_decref(o);
    return NULL;
}

static int check_state(lf_ckpt_writer *w, const json_t *state, lf_err *err)
{
    const json_t *step = json_object_get(state, "step");
    if (!json_is_object(state) || !json_is_integer(step) || json_integer_value(step) < 0)
        return lf_fail(
            err, LF_EINVAL,
            "a checkpoint's state is a JSON object with an integer \"step\" of at least 0");
    char *text = lf_json_dump(state, err);
    if (!text)
        return LF_EINVAL;
    if (strlen(text) > LF_CKPT_MAX_STATE) {
        free(text);
        return lf_fail(err, LF_EINVAL, "a checkpoint's state of more than %zu bytes",
                       LF_CKPT_MAX_STATE);
    }
    free(w->state);
    w->state = text;
    json_decref(w->ended);
    w->ended = endings_of(state);
    if (!w->ended)
        return lf_fail(err, LF_ENOMEM, "no memory for the description of a checkpoint");
    w->meta.step = json_integer_value(step);
    return 0;
}

static int snapshot(lf_ckpt_writer *w, lf_err *err)
{
    size_t at = 0;
    int rc = 0;
    for (size_t i = 0; i < w->meta.n_recs && rc == 0; i++) {
        const struct lf_ckpt_source *s = &w->sources[i];
        size_t n = lf_ckpt_rec_bytes(&w->meta.recs[i]);
        w->from[i] = w->live[i];
        if (w->arena) {
            if (s->fetch)
                rc = s->fetch(s->user, w->arena + at, w->live[i], n, err);
            else
                memcpy(w->arena + at, w->live[i], n);
            w->from[i] = w->arena + at;
            at += (n + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
        }
    }
    return rc;
}

static int start_save(lf_ckpt_writer *w, lf_err *err)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    atomic_store(&w->done, false);
    int e = pthread_create(&w->thread, NULL, save_thread, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (e) {
        atomic_store(&w->done, true);
        return lf_fail(err, LF_ENOMEM, "cannot start the checkpoint thread: %s", strerror(e));
    }
    w->pending = true;
    return 0;
}

int lf_ckpt_save_begin(lf_ckpt_writer *w, const char *dir, const json_t *state, lf_err *err)
{
    int rc = lf_ckpt_save_wait(w, NULL, err);
    if (rc < 0 || (rc = check_state(w, state, err)) < 0 || (rc = lf_ckpt_clean(dir, err)) < 0)
        return rc;
    double t0 = lf_now_s();
    char *d = lf_strdup(dir, err);
    if (!d)
        return LF_ENOMEM;
    free(w->dir);
    w->dir = d;
    w->result = (lf_ckpt_result){0};
    w->rc = 0;
    lf_err_clear(&w->err);
    if ((rc = snapshot(w, err)) < 0 || (rc = start_save(w, err)) < 0)
        return rc;
    if (!w->arena) {
        pthread_join(w->thread, NULL);
        w->pending = false;
        w->result.snapshot_s = lf_now_s() - t0;
        if (w->rc < 0)
            return lf_fail(err, w->rc, "%s", w->err.text);
        w->rc = 1; /* for lf_ckpt_save_wait to deliver */
        return 0;
    }
    w->result.snapshot_s = lf_now_s() - t0;
    return 0;
}

int lf_ckpt_save_wait(lf_ckpt_writer *w, lf_ckpt_result *out, lf_err *err)
{
    if (w->pending) {
        pthread_join(w->thread, NULL);
        w->pending = false;
        w->rc = w->rc < 0 ? w->rc : 1;
    }
    int rc = w->rc;
    w->rc = 0;
    if (rc < 0)
        return lf_fail(err, rc, "%s", w->err.text);
    if (rc == 1 && out)
        *out = w->result;
    return rc;
}

bool lf_ckpt_save_idle(lf_ckpt_writer *w)
{
    return atomic_load(&w->done);
}
