/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing safetensors: where every tensor goes is decided at create, then bytes run through one
 * sink after the other.
 *
 * States of a file: (1) nothing, (2) NAME.tmp, being written, (3) NAME.tmp, complete and synced,
 * (4) NAME. All files are in (3) before one goes to (4); the index goes last, so a directory with
 * an index has every file that it names.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/store/safetensors.h"
#include "engine/store/safetensors_priv.h"

#define FILE_MODE 0640

/* ---- planning ---- */

static int cmp_name(const void *a, const void *b)
{
    return strcmp((*(struct lf_st_out_tensor *const *)a)->d.name,
                  (*(struct lf_st_out_tensor *const *)b)->d.name);
}

static int take_tensor(lf_st_writer *w, size_t i, const lf_st_decl *d, lf_err *err)
{
    struct lf_st_out_tensor *t = &w->tensors[i];
    int64_t bytes = (int64_t)lf_st_dtype_bytes(d->dtype);
    size_t len = strlen(d->name);
    if (len == 0 || len > LF_ST_MAX_NAME || lf_utf8_check(d->name, len) < len ||
        strcmp(d->name, "__metadata__") == 0)
        return lf_fail(err, LF_EINVAL, "\"%.100s\" cannot be the name of a tensor in safetensors",
                       d->name);
    if (!bytes || d->ndim < 0 || d->ndim > LF_ST_MAX_DIMS)
        return lf_fail(err, LF_EINVAL, "tensor %.200s: unknown type, or %d dimensions", d->name,
                       d->ndim);
    for (int k = 0; k < d->ndim; k++)
        if (d->shape[k] < 0 || __builtin_mul_overflow(bytes, d->shape[k], &bytes))
            return lf_fail(err, LF_EINVAL, "tensor %.200s has a shape that no file can hold",
                           d->name);
    t->d = *d;
    t->bytes = bytes;
    if (!(t->d.name = lf_strdup(d->name, err)))
        return LF_ENOMEM;
    w->n++;
    return 0;
}

/* Tensors [first, end) that have no file yet get the next one. */
static void close_file(lf_st_writer *w, size_t first, size_t end)
{
    for (size_t i = first; i < end; i++)
        if (w->tensors[i].file == SIZE_MAX)
            w->tensors[i].file = w->n_files;
    w->n_files++;
}

/* Cut as split_state_dict_into_shards_factory of the hub library does: the file that is being
 * filled gets its number when it is full; a tensor larger than max_file gets a number, and a file,
 * at once and does not end the other. */
static void cut(lf_st_writer *w, int64_t max_file)
{
    int64_t used = 0;
    size_t first = 0, open = 0; /* of the file being filled: its first tensor, how many tensors */
    for (size_t i = 0; i < w->n; i++) {
        struct lf_st_out_tensor *t = &w->tensors[i];
        t->file = SIZE_MAX;
        if (max_file > 0 && t->bytes > max_file) {
            t->file = w->n_files++;
            continue;
        }
        if (max_file > 0 && used + t->bytes > max_file) {
            close_file(w, first, i);
            first = i;
            open = 0;
            used = 0;
        }
        open++;
        used += t->bytes;
    }
    if (open || w->n_files == 0)
        close_file(w, first, w->n);
}

static int name_file(lf_st_writer *w, struct lf_st_out_file *f, const char *suffix, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s%s", w->stem, suffix);
    f->name = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    if (!f->name || !(f->path = lf_path_join(w->dir, f->name, err)))
        return LF_ENOMEM;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s.tmp", f->path);
    f->tmp = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    if (!f->tmp)
        return LF_ENOMEM;
    if (lf_io_exists(f->path))
        return lf_fail(err, LF_EEXIST, "%s is there already and is not written over", f->path);
    return 0;
}

/* Files, in a file types from the end of the enumeration, in a type names. */
static int cmp_layout(const void *a, const void *b)
{
    const struct lf_st_out_tensor *x = *(struct lf_st_out_tensor *const *)a,
                                  *y = *(struct lf_st_out_tensor *const *)b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->d.dtype != y->d.dtype)
        return x->d.dtype > y->d.dtype ? -1 : 1;
    return strcmp(x->d.name, y->d.name);
}

static int plan(lf_st_writer *w, int64_t max_file, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < w->n; i++)
        w->order[i] = &w->tensors[i];
    qsort(w->order, w->n, sizeof(struct lf_st_out_tensor *), cmp_name);
    for (size_t i = 1; i < w->n; i++)
        if (strcmp(w->order[i - 1]->d.name, w->order[i]->d.name) == 0)
            return lf_fail(err, LF_EINVAL, "tensor %.200s is declared twice", w->order[i]->d.name);
    cut(w, max_file);
    qsort(w->order, w->n, sizeof(struct lf_st_out_tensor *), cmp_layout);
    if (!(w->files = lf_calloc(w->n_files, sizeof *w->files, err)))
        return LF_ENOMEM;
    for (size_t f = 0, i = 0; f < w->n_files && rc == 0; f++) {
        char suffix[64] = ".safetensors";
        if (w->n_files > 1)
            snprintf(suffix, sizeof suffix, "-%05zu-of-%05zu.safetensors", f + 1, w->n_files);
        w->files[f].first = i;
        while (i < w->n && w->order[i]->file == f)
            i++;
        w->files[f].end = i;
        rc = name_file(w, &w->files[f], suffix, err);
    }
    if (rc == 0 && w->n_files > 1)
        rc = name_file(w, &w->index, ".safetensors.index.json", err);
    return rc;
}

/* ---- bytes ---- */

static int open_file(lf_st_writer *w, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    int rc = lf_st_header_text(&b, w, &w->files[w->file], err);
    if (rc == 0)
        rc = lf_sink_create(&w->sink, w->files[w->file].tmp, FILE_MODE, err);
    if (rc == 0)
        rc = lf_sink_put(w->sink, b.data, b.len, err);
    lf_buf_fini(&b);
    return rc;
}

static int close_sink(lf_st_writer *w, lf_err *err)
{
    struct lf_st_out_file *f = &w->files[w->file];
    lf_sink *k = w->sink;
    w->sink = NULL;
    int rc = lf_sink_finish(k, &f->bytes, f->sha256, err);
    f->written = rc == 0;
    if (rc == 0 && w->progress >= 0)
        lf_partial_add(w->progress, w->file, f->sha256);
    w->file++;
    return rc;
}

/* Go on to the next byte that the caller owes: end tensors that are complete (empty ones at once),
 * files that are. */
static int settle(lf_st_writer *w, lf_err *err)
{
    int rc = 0;
    while (rc == 0 && w->file < w->n_files) {
        const struct lf_st_out_file *f = &w->files[w->file];
        if (!w->sink && f->written) { /* taken over */
            w->at = f->end;
            w->file++;
        } else if (!w->sink) {
            rc = open_file(w, err);
        } else if (w->at == f->end) {
            rc = close_sink(w, err);
        } else if (w->done == w->order[w->at]->bytes) {
            const struct lf_st_out_tensor *t = w->order[w->at];
            if (w->hash_tensors && !t->known)
                rc = lf_tree_hash_final(w->hash, w->hashes[t - w->tensors], err);
            w->at++;
            w->done = 0;
        } else {
            break;
        }
    }
    w->failed |= rc < 0;
    return rc;
}

size_t lf_st_writer_next(const lf_st_writer *w)
{
    return w->at < w->n ? (size_t)(w->order[w->at] - w->tensors) : w->n;
}

void lf_st_writer_know(lf_st_writer *w, size_t tensor, const uint8_t sha256[LF_HASH_BYTES])
{
    memcpy(w->hashes[tensor], sha256, LF_HASH_BYTES);
    w->tensors[tensor].known = true;
}

const uint8_t *lf_st_writer_hash(const lf_st_writer *w, size_t tensor)
{
    return w->hashes[tensor];
}

int lf_st_writer_put(lf_st_writer *w, const void *data, size_t bytes, lf_err *err)
{
    if (w->failed)
        return lf_fail(err, LF_EINVAL, "%s: writing has failed before", w->dir);
    if (w->at == w->n || bytes > (uint64_t)(w->order[w->at]->bytes - w->done))
        return lf_fail(err, LF_EINVAL, "%s: %zu bytes are more than %.200s has left", w->dir, bytes,
                       w->at < w->n ? w->order[w->at]->d.name : "the last tensor");
    int rc = lf_sink_put(w->sink, data, bytes, err);
    if (rc == 0 && w->hash_tensors && !w->order[w->at]->known)
        rc = lf_tree_hash_update(w->hash, data, bytes, err);
    w->failed |= rc < 0;
    if (rc < 0)
        return rc;
    w->done += (int64_t)bytes;
    return settle(w, err);
}

/* ---- create ---- */

int lf_st_writer_create(lf_st_writer **out, const char *dir, const lf_st_decl *tensors, size_t n,
                        const lf_st_write_options *o, lf_err *err)
{
    static const lf_st_write_options none;
    o = o ? o : &none;
    lf_st_writer *w = lf_calloc(1, sizeof *w, err);
    if (!w)
        return LF_ENOMEM;
    int rc = LF_ENOMEM;
    w->hash_tensors = o->hash_tensors;
    w->progress = -1;
    if (!(w->dir = lf_strdup(dir, err)) ||
        !(w->stem = lf_strdup(o->stem ? o->stem : "model", err)) ||
        !(w->format = lf_strdup(o->format ? o->format : "pt", err)) ||
        !(w->tensors = lf_calloc(n, sizeof *w->tensors, err)) ||
        !(w->order = lf_calloc(n, sizeof(struct lf_st_out_tensor *), err)) ||
        !(w->hashes = lf_calloc(n, LF_HASH_BYTES, err)) || !(w->hash = lf_tree_hash_create(err)))
        goto out;
    rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = take_tensor(w, i, &tensors[i], err);
    if (rc == 0)
        rc = plan(w, o->max_file, err);
    if (rc == 0 && o->resume.key)
        rc = lf_st_resume_begin(w, &o->resume, err);
    if (rc == 0)
        rc = settle(w, err);
out:
    if (rc < 0)
        lf_st_writer_destroy(w);
    else
        *out = w;
    return rc;
}

/* ---- publishing ---- */

static int write_index(lf_st_writer *w, lf_err *err)
{
    lf_buf b;
    lf_sink *k = NULL;
    lf_buf_init(&b);
    int rc = lf_st_index_text(&b, w, err);
    if (rc == 0)
        rc = lf_sink_create(&k, w->index.tmp, FILE_MODE, err);
    if (rc == 0 && (rc = lf_sink_put(k, b.data, b.len, err)) < 0) {
        lf_sink_destroy(k);
        k = NULL;
    }
    if (rc == 0)
        rc = lf_sink_finish(k, &w->index.bytes, w->index.sha256, err);
    w->index.written = rc == 0;
    lf_buf_fini(&b);
    return rc;
}

static int publish(struct lf_st_out_file *f, lf_err *err)
{
    int rc = lf_io_publish_tmp(f->tmp, f->path, err);
    f->published = rc == 0;
    f->written &= rc < 0;
    return rc;
}

static int report(const lf_st_writer *w, lf_st_written **files, size_t *n_files, lf_err *err)
{
    size_t n = w->n_files + (w->n_files > 1);
    lf_st_written *v = lf_calloc(n, sizeof *v, err);
    for (size_t i = 0; i < n && v; i++) {
        const struct lf_st_out_file *f = i < w->n_files ? &w->files[i] : &w->index;
        v[i].bytes = f->bytes;
        memcpy(v[i].sha256, f->sha256, LF_HASH_BYTES);
        if (!(v[i].name = lf_strdup(f->name, err))) {
            lf_st_written_free(v, n);
            v = NULL;
        }
    }
    if (!v)
        return LF_ENOMEM;
    *files = v;
    *n_files = n;
    return 0;
}

int lf_st_writer_finish(lf_st_writer *w, lf_st_written **files, size_t *n_files, lf_err *err)
{
    int rc = 0;
    if (w->failed || w->finished)
        return lf_fail(err, LF_EINVAL, "%s: nothing to finish: writing has %s", w->dir,
                       w->failed ? "failed" : "ended");
    if (w->at < w->n)
        return lf_fail(err, LF_EINVAL, "%s: tensor %.200s was not written in full", w->dir,
                       w->order[w->at]->d.name);
    lf_st_written *v = NULL;
    size_t n = 0;
    if (w->n_files > 1)
        rc = write_index(w, err);
    if (rc == 0 && files)
        rc = report(w, &v, &n, err);
    if (rc == 0 && w->progress >= 0)
        rc = lf_partial_end(w->dir, err);
    for (size_t f = 0; f < w->n_files && rc == 0; f++)
        rc = publish(&w->files[f], err);
    if (rc == 0 && w->n_files > 1)
        rc = publish(&w->index, err);
    if (rc < 0) {
        w->failed = true;
        lf_st_written_free(v, n);
        return rc;
    }
    w->finished = true;
    if (files) {
        *files = v;
        *n_files = n;
    }
    return 0;
}

void lf_st_written_free(lf_st_written *files, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(files[i].name);
    free(files);
}

int64_t lf_st_writer_reused(const lf_st_writer *w)
{
    return w->reused;
}

void lf_st_writer_keep(lf_st_writer *w)
{
    w->keep = w->progress >= 0;
}

static void drop_file(struct lf_st_out_file *f, bool keep_tmp, bool keep)
{
    if (f->written && !keep_tmp)
        unlink(f->tmp);
    if (f->published && !keep)
        unlink(f->path);
    free(f->name);
    free(f->path);
    free(f->tmp);
}

void lf_st_writer_destroy(lf_st_writer *w)
{
    int e = errno;
    if (!w)
        return;
    lf_sink_destroy(w->sink);
    if (w->progress >= 0) {
        close(w->progress);
        if (!w->finished && !w->keep)
            lf_partial_end(w->dir, NULL);
    }
    drop_file(&w->index, false, w->finished);
    for (size_t i = 0; i < w->n_files && w->files; i++)
        drop_file(&w->files[i], w->keep, w->finished);
    for (size_t i = 0; i < w->n; i++)
        free((char *)(uintptr_t)w->tensors[i].d.name);
    lf_tree_hash_destroy(w->hash);
    free(w->hashes);
    free(w->files);
    free(w->order);
    free(w->tensors);
    free(w->format);
    free(w->stem);
    free(w->dir);
    free(w);
    errno = e;
}
