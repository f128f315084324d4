/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checkpoint writer decides once, when it is created: the files, the pieces of each tensor's
 * part, and the units of work. A unit is what the part has of one row block of leaves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/store/ckpt_write_priv.h"

#define ARENA_ALIGN ((size_t)64)
#define MAX_PARTS   100000 /* what a file name has digits for */

/* Elements of a piece, all but the last of a tensor's part. */
uint64_t lf_ckpt_piece_elems(const lf_ckpt_writer *w, const struct lf_ckpt_rec *r, uint64_t all)
{
    uint64_t n = w->piece_bytes > 0 ? (uint64_t)w->piece_bytes / lf_h5_type_bytes(r->e.dtype) : all;
    return n < 1 ? 1 : n < all ? n : all;
}

/* ---- create ---- */

/* The part of a tensor as a piece without a file. */
static int part_of(struct lf_ckpt_piece *p, const lf_ckpt_tensor *t, lf_err *err)
{
    int64_t volume = 1;
    bool whole = true, ok = true;
    *p = (struct lf_ckpt_piece){.flat = {t->flat[0], t->flat[1]}};
    for (int k = 0; k < t->ndim; k++)
        whole = whole && t->hi[k] == 0;
    for (int k = 0; k < t->ndim && ok; k++) {
        p->lo[k] = whole ? 0 : t->lo[k];
        p->hi[k] = whole ? t->shape[k] : t->hi[k];
        ok = p->lo[k] >= 0 && p->lo[k] < p->hi[k] && p->hi[k] <= t->shape[k];
        volume *= p->hi[k] - p->lo[k];
    }
    if (ok && p->flat[1] == 0)
        p->flat[1] = volume;
    if (ok && p->flat[0] >= 0 && p->flat[0] < p->flat[1] && p->flat[1] <= volume)
        return 0;
    return lf_fail(err, LF_EINVAL, "tensor %s (%s): its part lies outside it, or is empty", t->name,
                   t->kind);
}

size_t lf_ckpt_arena_bytes(size_t n)
{
    return n > SIZE_MAX - (ARENA_ALIGN - 1) ? SIZE_MAX : (n + ARENA_ALIGN - 1) & ~(ARENA_ALIGN - 1);
}

size_t lf_ckpt_snapshot_bytes(const lf_ckpt_tensor *tensors, size_t n)
{
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        struct lf_ckpt_piece p;
        size_t b = lf_h5_type_bytes(tensors[i].dtype);
        if (tensors[i].fill)
            continue;
        for (int k = 0; k < tensors[i].ndim; k++) /* so that the part's size cannot overflow */
            if (tensors[i].shape[k] < 0 || !lf_size_mul(&b, b, (size_t)tensors[i].shape[k]))
                return SIZE_MAX;
        if (part_of(&p, &tensors[i], NULL) == 0)
            b = (size_t)(p.flat[1] - p.flat[0]) * lf_h5_type_bytes(tensors[i].dtype);
        if (!lf_size_add(&total, total, lf_ckpt_arena_bytes(b)))
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
    struct lf_ckpt_source *s = &w->sources[w->meta.n_recs - 1];
    *s = (struct lf_ckpt_source){.fill = t->fill, .user = t->user, .fetch = t->fetch};
    if ((rc = part_of(&s->part, t, err)) < 0)
        return rc;
    if (t->fetch && !w->arena)
        return lf_fail(err, LF_EINVAL,
                       "tensor %s (%s) is in a device's memory, so it needs a snapshot", t->name,
                       t->kind);
    if (w->meta.n_recs > 1 && lf_ckpt_cmp(&r[-1].e, &r->e) == 0)
        return lf_fail(err, LF_EEXIST, "tensor %s (%s) is given twice", t->name, t->kind);
    return 0;
}

static int add_file(lf_ckpt_writer *w, size_t *cap, lf_err *err)
{
    int rc = lf_grow(&w->files, cap, w->n_files, sizeof *w->files, err);
    if (rc == 0) {
        if (w->parts > 1)
            snprintf(w->files[w->n_files], sizeof *w->files, "data-%05d-%05zu.h5", w->part,
                     w->n_files);
        else
            snprintf(w->files[w->n_files], sizeof *w->files, "data-%05zu.h5", w->n_files);
        w->n_files++;
    }
    return rc;
}

static int plan_pieces(lf_ckpt_writer *w, size_t rec, int64_t file_bytes, int64_t *fill,
                       size_t *cap, lf_err *err)
{
    struct lf_ckpt_rec *r = &w->meta.recs[rec];
    const struct lf_ckpt_piece *part = &w->sources[rec].part;
    uint64_t all = (uint64_t)(part->flat[1] - part->flat[0]), step = lf_ckpt_piece_elems(w, r, all),
             n = (all - 1) / step + 1;
    int64_t elem = (int64_t)lf_h5_type_bytes(r->e.dtype);
    if (n > LF_CKPT_MAX_PIECES)
        return lf_fail(err, LF_EINVAL, "tensor %s in pieces of %llu elements: too many pieces",
                       r->name, (unsigned long long)step);
    if (!(r->pieces = lf_calloc((size_t)n, sizeof *r->pieces, err)))
        return LF_ENOMEM;
    for (; r->n_pieces < n; r->n_pieces++) {
        struct lf_ckpt_piece *p = &r->pieces[r->n_pieces];
        uint64_t lo = r->n_pieces * step, hi = lo + step < all ? lo + step : all;
        int64_t bytes = (int64_t)(hi - lo) * elem;
        if (w->n_files == 0 || (file_bytes > 0 && *fill > 0 && *fill + bytes > file_bytes)) {
            int rc = add_file(w, cap, err);
            if (rc < 0)
                return rc;
            *fill = 0;
        }
        *fill += bytes;
        *p = *part;
        p->at = w->n_files - 1;
        p->flat[0] = part->flat[0] + (int64_t)lo;
        p->flat[1] = part->flat[0] + (int64_t)hi;
        if (!(p->file = lf_strdup(w->files[p->at], err)))
            return LF_ENOMEM;
    }
    return 0;
}

/* The units of a tensor's part, and room for the hashes of the leaves that are whole in it. */
static int plan_units(lf_ckpt_writer *w, size_t rec, size_t *cap, lf_err *err)
{
    struct lf_ckpt_rec *r = &w->meta.recs[rec];
    const struct lf_ckpt_grid g = lf_ckpt_grid_of(&r->e);
    struct lf_ckpt_unit u;
    int64_t k = 0;
    while (lf_ckpt_unit_next(&u, &g, &r->e, &w->sources[rec].part, &k)) {
        int rc = lf_grow(&w->work, cap, w->n_work, sizeof *w->work, err);
        if (rc < 0)
            return rc;
        w->work[w->n_work++] = (struct lf_ckpt_work){.rec = rec, .u = u, .leaf = r->n_leaves};
        r->n_leaves += (size_t)u.n;
    }
    r->leaves = lf_calloc(r->n_leaves, sizeof *r->leaves, err);
    return r->leaves ? 0 : LF_ENOMEM;
}

static int take_all(lf_ckpt_writer *w, const lf_ckpt_tensor *tensors, size_t n, int64_t file_bytes,
                    lf_err *err)
{
    int64_t fill = 0;
    size_t cap = 0, cap_work = 0;
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
        rc = lf_ckpt_check_names(&w->meta, err);
    for (size_t i = 0; i < n && rc == 0; i++)
        if ((rc = plan_pieces(w, i, file_bytes, &fill, &cap, err)) == 0)
            rc = plan_units(w, i, &cap_work, err);
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
    const int parts = o->parts > 1 ? o->parts : 1;
    if (parts > MAX_PARTS || o->part < 0 || o->part >= parts || (parts > 1 && o->resume.key))
        return lf_fail(err, LF_EINVAL,
                       "part %d of %d of a checkpoint is not possible, or not with resume", o->part,
                       o->parts);
    if ((n < 1 && parts == 1) || n > LF_CKPT_MAX_TENSORS)
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
    w->meta.version = LF_CKPT_VERSION;
    w->part = o->part;
    w->parts = parts;
    w->run = o->run;
    w->threads = o->threads < 1                     ? 1
                 : o->threads > LF_CKPT_MAX_THREADS ? LF_CKPT_MAX_THREADS
                                                    : o->threads;
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
    free(w->work);
    free(w->dir);
    free(w->state);
    free(w->receipt);
    json_decref(w->ended);
    free(w);
}
