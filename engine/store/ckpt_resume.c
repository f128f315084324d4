/* SPDX-License-Identifier: Apache-2.0
 *
 * Going on with a save that did not end. Its data files come over as links, so nothing is copied; a
 * run that was given up but still lives and writes to them writes the same bytes. Structure (what
 * HDF5 has put around the tensors) is made anew and laid over, so nothing of the old one is
 * believed; units of work are believed when their hashes are right.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/store/ckpt_write_priv.h"

#define COPY_BYTES ((size_t)64 << 10)

/* ---- what the bytes of this save are a function of ---- */

static void add_number(lf_hash *h, int64_t v)
{
    char text[32];
    lf_hash_update(h, text, (size_t)snprintf(text, sizeof text, "%lld ", (long long)v));
}

static int make_key(lf_ckpt_writer *w, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    lf_hash_update(h, "lf-ckpt-2", sizeof "lf-ckpt-2"); /* units of work were others before */
    lf_hash_update(h, w->resume.key, strlen(w->resume.key));
    for (size_t i = 0; i < w->meta.n_recs; i++) {
        const struct lf_ckpt_rec *r = &w->meta.recs[i];
        lf_hash_update(h, r->kind, strlen(r->kind) + 1);
        lf_hash_update(h, r->name, strlen(r->name) + 1);
        add_number(h, (int64_t)r->e.dtype);
        for (int k = 0; k < r->e.ndim; k++)
            add_number(h, r->e.shape[k]);
        for (size_t k = 0; k < r->n_pieces; k++) {
            lf_hash_update(h, r->pieces[k].file, strlen(r->pieces[k].file) + 1);
            add_number(h, r->pieces[k].flat[1]);
        }
    }
    lf_hash_final(h, digest);
    lf_hash_destroy(h);
    lf_hash_hex(w->key, digest);
    return 0;
}

int lf_ckpt_resume_begin(lf_ckpt_writer *w, lf_err *err)
{
    const char *from = NULL;
    lf_partial_part *parts = lf_calloc(w->n_work, sizeof *parts, err);
    int rc = parts ? make_key(w, err) : LF_ENOMEM;
    if (rc == 0)
        lf_partial_find(&from, parts, w->n_work, &w->resume, w->key);
    for (size_t i = 0; i < w->n_files && from && rc == 0; i++)
        if (!lf_partial_link(from, w->dir, w->files[i]) && i == 0)
            from = NULL; /* no links on this file system, or nothing there: all of it again */
    atomic_store(&w->reused, 0);
    for (size_t i = 0; i < w->n_work && rc == 0; i++) {
        parts[i].have = parts[i].have && from;
        w->work[i].left = parts[i].have;
        memcpy(w->work[i].sha256, parts[i].sha256, LF_HASH_BYTES);
    }
    if (rc == 0)
        rc = lf_partial_begin(&w->progress, w->dir, w->key, parts, w->n_work, err);
    free(parts);
    return rc;
}

/* ---- structure ---- */

struct extent {
    int64_t from, to;
};

static int cmp_extent(const void *a, const void *b)
{
    const struct extent *x = a, *y = b;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Where tensors lie in data file i, ascending, and the end of the file behind them. */
static struct extent *extents(const lf_ckpt_writer *w, size_t i, int64_t end, size_t *n,
                              lf_err *err)
{
    size_t most = 1;
    for (size_t r = 0; r < w->meta.n_recs; r++)
        most += w->meta.recs[r].n_pieces;
    struct extent *v = lf_calloc(most, sizeof *v, err);
    *n = 0;
    for (size_t r = 0; r < w->meta.n_recs && v; r++)
        for (size_t k = 0; k < w->meta.recs[r].n_pieces; k++) {
            const struct lf_ckpt_piece *p = &w->meta.recs[r].pieces[k];
            int64_t bytes =
                (p->flat[1] - p->flat[0]) * (int64_t)lf_h5_type_bytes(w->meta.recs[r].e.dtype);
            if (strcmp(p->file, w->files[i]) == 0)
                v[(*n)++] = (struct extent){p->offset, p->offset + bytes};
        }
    if (v) {
        qsort(v, *n, sizeof *v, cmp_extent);
        v[(*n)++] = (struct extent){end, end};
    }
    return v;
}

static int copy_range(int to, int from, int64_t at, int64_t end, const char *path, lf_err *err)
{
    unsigned char buf[COPY_BYTES];
    int rc = 0;
    for (size_t n; at < end && rc == 0; at += (int64_t)n) {
        n = end - at < (int64_t)sizeof buf ? (size_t)(end - at) : sizeof buf;
        rc = lf_io_pread_all(from, buf, n, at, path, err);
        if (rc == 0)
            rc = lf_io_pwrite_all(to, buf, n, at, path, err);
    }
    return rc;
}

int lf_ckpt_resume_file(lf_ckpt_writer *w, size_t i, const char *path, lf_err *err)
{
    struct stat st;
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW),
        rc = fd < 0 ? lf_fail_errno(err, "cannot open %s", path) : 0;
    if (rc == 0 && (fstat(fd, &st) < 0 || ftruncate(w->fds[i], st.st_size) < 0))
        rc = lf_fail_errno(err, "cannot look at %s", path);
    struct extent *v = rc != 0 ? NULL : extents(w, i, (int64_t)st.st_size, &n, err);
    if (rc == 0 && !v)
        rc = LF_ENOMEM;
    int64_t at = 0;
    for (size_t k = 0; k < n && rc == 0; k++) {
        rc = copy_range(w->fds[i], fd, at, v[k].from, path, err);
        at = v[k].to;
    }
    free(v);
    if (fd >= 0)
        close(fd);
    if (rc == 0 && unlink(path) < 0)
        rc = lf_fail_errno(err, "cannot remove %s", path);
    return rc;
}

/* ---- units of work ---- */

bool lf_ckpt_resume_work(lf_ckpt_writer *w, const struct lf_ckpt_work *k, struct lf_ckpt_feed *f,
                         unsigned char *buf)
{
    struct lf_ckpt_rec *r = &w->meta.recs[k->rec];
    size_t at = lf_ckpt_work_at(w, k), left = lf_ckpt_work_bytes(w, k);
    uint8_t digest[LF_HASH_BYTES];
    int rc = 0;
    lf_ckpt_work_begin(f, w, k);
    for (size_t n; left && rc == 0; at += n, left -= n) {
        off_t offset;
        const char *file;
        n = left < LF_CKPT_FILL_BYTES ? left : LF_CKPT_FILL_BYTES;
        int fd = lf_ckpt_place(w, k->rec, at, &n, &offset, &file);
        rc = lf_io_pread_all(fd, buf, n, offset, file, NULL);
        if (rc == 0)
            lf_ckpt_feed_add(f, buf, n);
    }
    lf_ckpt_feed_end(f, &r->leaves[k->leaf]);
    return rc == 0 && k->u.n > 0 &&
           lf_ckpt_tensor_digest(digest, &r->leaves[k->leaf], (size_t)k->u.n, NULL) == 0 &&
           memcmp(digest, k->sha256, LF_HASH_BYTES) == 0;
}
