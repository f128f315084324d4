/* SPDX-License-Identifier: Apache-2.0
 *
 * Saving checkpoints: snapshot on the caller's time, everything else on a thread of its own and its
 * helpers.
 *
 * Where each tensor goes is decided once, at create (ckpt_plan.c); a save fills in offsets and
 * hashes. A helper takes a unit of work, which is a row block of one tensor, and hashes and writes
 * it block by block while the block is in its cache. Then the only writer publishes; one of several
 * makes its files durable and a receipt. Signals stay with the main thread, so a file-size limit
 * arrives here as EFBIG and becomes an error.
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

#define BLOCK_BYTES ((size_t)1 << 20)

/* ---- the background: tensors ---- */

int lf_ckpt_place(const lf_ckpt_writer *w, size_t rec, size_t at, size_t *n, off_t *offset,
                  const char **file)
{
    const struct lf_ckpt_rec *r = &w->meta.recs[rec];
    const int64_t *flat = w->sources[rec].part.flat;
    size_t elem = lf_h5_type_bytes(r->e.dtype),
           step = (size_t)lf_ckpt_piece_elems(w, r, (uint64_t)(flat[1] - flat[0])) * elem;
    const struct lf_ckpt_piece *p = &r->pieces[at / step];
    size_t in = at % step, room = (size_t)(p->flat[1] - p->flat[0]) * elem - in;
    *n = *n < room ? *n : room;
    *offset = (off_t)p->offset + (off_t)in;
    *file = p->file;
    return w->fds[p->at];
}

/* Bytes [at, at + n) of a tensor's part to the pieces they belong to. */
static int write_block(const lf_ckpt_writer *w, size_t rec, const unsigned char *data, size_t at,
                       size_t n, lf_err *err)
{
    const struct lf_ckpt_rec *r = &w->meta.recs[rec];
    for (size_t k; n; data += k, at += k, n -= k) {
        off_t offset;
        const char *file;
        k = n;
        int fd = lf_ckpt_place(w, rec, at, &k, &offset, &file),
            rc = lf_io_pwrite_all(fd, data, k, offset, file, err);
        if (rc < 0)
            return lf_err_prefix(err, "%s: tensor %s (%s)", w->dir, r->name, r->kind);
    }
    return 0;
}

void lf_ckpt_work_begin(struct lf_ckpt_feed *f, const lf_ckpt_writer *w,
                        const struct lf_ckpt_work *k)
{
    const lf_ckpt_entry *e = &w->meta.recs[k->rec].e;
    const struct lf_ckpt_piece *part = &w->sources[k->rec].part;
    const struct lf_ckpt_grid g = lf_ckpt_grid_of(e);
    int64_t first, n = lf_ckpt_box_cols(e, part->lo, part->hi, &first);
    lf_ckpt_feed_begin(f, &g, lf_h5_type_bytes(e->dtype), (const int64_t[2]){first, first + n},
                       k->u.first, k->u.n);
}

/* What a helper has asked fill for: bytes [lo, hi) of the part of tensor rec. */
struct filled {
    unsigned char *buf; /* LF_CKPT_FILL_BYTES, made when first needed */
    size_t rec, lo, hi;
};

/* Sets data to bytes [at, at + n) of a tensor's part. What is to come up to `end` is asked for
 * together with them. */
static int get_bytes(const lf_ckpt_writer *w, size_t rec, const size_t at[2], size_t end,
                     struct filled *b, const unsigned char **data, lf_err *err)
{
    const struct lf_ckpt_source *s = &w->sources[rec];
    const size_t elem = lf_h5_type_bytes(w->meta.recs[rec].e.dtype);
    if (!s->fill) {
        *data = w->from[rec] + at[0];
        return 0;
    }
    if (b->rec != rec || at[0] < b->lo || at[1] > b->hi) {
        const size_t n = end - at[0] < LF_CKPT_FILL_BYTES ? end - at[0] : LF_CKPT_FILL_BYTES;
        b->hi = 0;
        int rc = s->fill(s->user, (int64_t)(at[0] / elem), (int64_t)(n / elem), b->buf, err);
        if (rc < 0)
            return rc;
        *b = (struct filled){b->buf, rec, at[0], at[0] + n};
    }
    *data = b->buf + (at[0] - b->lo);
    return 0;
}

/* end: of the work of this tensor that the helper has taken, in bytes. */
static int save_work(lf_ckpt_writer *w, const struct lf_ckpt_work *k, size_t end,
                     struct lf_ckpt_feed *f, struct filled *b, lf_err *err)
{
    struct lf_ckpt_rec *r = &w->meta.recs[k->rec];
    const bool fill = w->sources[k->rec].fill != NULL;
    size_t at = lf_ckpt_work_at(w, k), left = lf_ckpt_work_bytes(w, k);
    const size_t block = fill ? LF_CKPT_FILL_BYTES : BLOCK_BYTES;
    if ((fill || k->left) && !b->buf && !(b->buf = lf_malloc(LF_CKPT_FILL_BYTES, 1, err)))
        return LF_ENOMEM;
    if (k->left) {
        b->hi = 0;
        if (lf_ckpt_resume_work(w, k, f, b->buf)) {
            atomic_fetch_add(&w->reused, (long long)left);
            return 0;
        }
    }
    int rc = 0;
    lf_ckpt_work_begin(f, w, k);
    while (left && rc == 0) {
        const size_t n = left < block ? left : block;
        const unsigned char *data = NULL;
        rc = get_bytes(w, k->rec, (const size_t[2]){at, at + n}, end, b, &data, err);
        if (rc < 0)
            break;
        lf_ckpt_feed_add(f, data, n);
        rc = write_block(w, k->rec, data, at, n, err);
        at += n;
        left -= n;
    }
    lf_ckpt_feed_end(f, &r->leaves[k->leaf]);
    if (rc == 0 && w->progress >= 0) {
        uint8_t digest[LF_HASH_BYTES];
        rc = lf_ckpt_tensor_digest(digest, &r->leaves[k->leaf], (size_t)k->u.n, err);
        if (rc == 0)
            lf_partial_add(w->progress, (size_t)(k - w->work), digest);
    }
    return rc;
}

/* How many of the works from i on a helper takes at once: one, or as many as one call of fill
 * gives. *end: where they end, in bytes of the tensor's part. */
static size_t works_at(const lf_ckpt_writer *w, size_t i, size_t *end)
{
    const struct lf_ckpt_work *k = &w->work[i];
    const size_t at = lf_ckpt_work_at(w, k);
    size_t n = 1;
    *end = at + lf_ckpt_work_bytes(w, k);
    if (!w->sources[k->rec].fill || k->left)
        return 1;
    for (; i + n < w->n_work && k[n].rec == k->rec && !k[n].left; n++) {
        const size_t bytes = lf_ckpt_work_bytes(w, &k[n]);
        if (lf_ckpt_work_at(w, &k[n]) != *end || *end + bytes - at > LF_CKPT_FILL_BYTES)
            break;
        *end += bytes;
    }
    return n;
}

static void *helper(void *arg)
{
    lf_ckpt_writer *w = arg;
    lf_err err = LF_ERR_INIT;
    struct filled b = {0};
    struct lf_ckpt_feed feed;
    int rc = lf_ckpt_feed_init(&feed, &err);
    size_t i = 0, n, end;
    while (rc == 0 && !atomic_load(&w->failed) && (i = atomic_load(&w->next)) < w->n_work) {
        n = works_at(w, i, &end);
        if (!atomic_compare_exchange_strong(&w->next, &i, i + n))
            continue;
        for (size_t k = i; k < i + n && rc == 0 && !atomic_load(&w->failed); k++)
            rc = save_work(w, &w->work[k], end, &feed, &b, &err);
    }
    lf_ckpt_feed_fini(&feed);
    free(b.buf);
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
    pthread_t tid[LF_CKPT_MAX_THREADS];
    int started = 0;
    atomic_store(&w->next, 0);
    atomic_store(&w->failed, false);
    for (int i = 1; i < w->threads; i++)
        if (pthread_create(&tid[started], NULL, helper, w) == 0)
            started++;
    helper(w);
    for (int i = 0; i < started; i++)
        pthread_join(tid[i], NULL);
    return w->err.rc;
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
                rc = lf_ckpt_one_piece(r)
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

/* The receipt of this save. Its tensors are the writer's own. */
static int make_receipt(struct lf_ckpt_receipt *r, lf_ckpt_writer *w, lf_err *err)
{
    lf_artifact_hash_job *jobs = lf_calloc(w->n_files, sizeof *jobs, err);
    int rc = jobs ? 0 : LF_ENOMEM;
    *r = (struct lf_ckpt_receipt){.dir = w->dir,
                                  .step = w->meta.step,
                                  .part = w->part,
                                  .parts = w->parts,
                                  .run = w->run,
                                  .saves = w->saves,
                                  .meta = w->meta};
    if (rc == 0 && !(r->files = lf_calloc(w->n_files, sizeof *r->files, err)))
        rc = LF_ENOMEM;
    for (size_t i = 0; i < w->n_files && rc == 0; i++)
        jobs[i].path = w->files[i];
    if (rc == 0) /* from the page cache */
        rc = lf_artifact_hash_files(w->dir, jobs, w->n_files, w->threads, err);
    for (; r->n_files < w->n_files && rc == 0; r->n_files++) {
        struct lf_ckpt_file *f = &r->files[r->n_files];
        *f = (struct lf_ckpt_file){.path = w->files[r->n_files], .bytes = jobs[r->n_files].bytes};
        memcpy(f->sha256, jobs[r->n_files].sha256, LF_HASH_BYTES);
        w->result.bytes += f->bytes;
    }
    free(jobs);
    return rc;
}

/* One of several writers: durable files, and a receipt for who publishes. */
static int finish_part(lf_ckpt_writer *w, const struct lf_ckpt_receipt *r, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < w->n_files && rc == 0; i++) {
        char *path = lf_path_join(w->dir, w->files[i], err);
        rc = path ? lf_io_fsync_path(path, err) : LF_ENOMEM;
        free(path);
    }
    if (rc == 0 && !(w->receipt = lf_ckpt_receipt_text(r, err)))
        rc = LF_ENOMEM;
    return rc;
}

/* The only writer: a checkpoint. */
static int finish_whole(lf_ckpt_writer *w, struct lf_ckpt_receipt *r, lf_err *err)
{
    lf_ckpt_result res = {0};
    int rc = lf_ckpt_publish_parts(&(struct lf_ckpt_publication){.dir = w->dir,
                                                                 .state = w->state,
                                                                 .members = w->ended,
                                                                 .receipts = r,
                                                                 .n = 1,
                                                                 .step = w->meta.step,
                                                                 .threads = w->threads},
                                   &res, err);
    w->result.bytes = res.bytes;
    memcpy(w->result.identity, res.identity, LF_HASH_BYTES);
    return rc;
}

static int save_all(lf_ckpt_writer *w)
{
    struct lf_ckpt_receipt r = {0};
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
    if (rc == 0 && (rc = make_receipt(&r, w, err)) == 0)
        rc = w->parts > 1 ? finish_part(w, &r, err) : finish_whole(w, &r, err);
    free(r.files); /* all else in it is the writer's */
    return rc;
}

/* Is this a data file of the writer? */
static bool is_mine(void *arg, const char *name)
{
    const lf_ckpt_writer *w = arg;
    return lf_ckpt_file_part(name) == w->part;
}

/* What an earlier save left, or a failed one. Several writers do not touch each other's files. */
static int clean(lf_ckpt_writer *w, const char *dir, lf_err *err)
{
    return lf_ckpt_clean(dir, w->parts > 1 ? is_mine : NULL, w, err);
}

static void *save_thread(void *arg)
{
    lf_ckpt_writer *w = arg;
    double t0 = lf_now_s();
    w->rc = save_all(w);
    bool keep = w->resume.key && w->rc == LF_EINTR; /* for the run that goes on */
    /* Give the space back; a crash here leaves no manifest either. */
    if (w->rc < 0 && !keep && clean(w, w->dir, NULL) == 0 && w->parts == 1)
        rmdir(w->dir);
    w->result.write_s = lf_now_s() - t0;
    atomic_store(&w->done, true);
    return NULL;
}

/* ---- the caller's side ---- */

static int check_state(lf_ckpt_writer *w, const json_t *state, lf_err *err)
{
    char *text = NULL;
    json_t *ended = NULL;
    int rc = lf_ckpt_state_text(&text, &ended, &w->meta.step, state, err);
    if (rc < 0)
        return rc;
    free(w->state);
    w->state = text;
    json_decref(w->ended);
    w->ended = ended;
    return 0;
}

static int snapshot(lf_ckpt_writer *w, lf_err *err)
{
    size_t at = 0;
    int rc = 0;
    for (size_t i = 0; i < w->meta.n_recs && rc == 0; i++) {
        const struct lf_ckpt_source *s = &w->sources[i];
        size_t n = lf_ckpt_part_bytes(w, i);
        w->from[i] = w->live[i];
        if (w->arena && !s->fill) {
            if (s->fetch)
                rc = s->fetch(s->user, w->arena + at, w->live[i], n, err);
            else
                memcpy(w->arena + at, w->live[i], n);
            w->from[i] = w->arena + at;
            at += lf_ckpt_arena_bytes(n);
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
    w->saves++; /* a save that fails on one writer is one of all */
    if (rc < 0 || (rc = check_state(w, state, err)) < 0 || (rc = clean(w, dir, err)) < 0)
        return rc;
    double t0 = lf_now_s();
    char *d = lf_strdup(dir, err);
    if (!d)
        return LF_ENOMEM;
    free(w->dir);
    w->dir = d;
    w->result = (lf_ckpt_result){0};
    free(w->receipt);
    w->receipt = NULL;
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

const char *lf_ckpt_save_receipt(const lf_ckpt_writer *w)
{
    return w->receipt;
}
