/* SPDX-License-Identifier: Apache-2.0
 *
 * Reference log-probabilities: found, computed by passes over the data, kept. */
#include "engine/post/reference.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/store/h5.h"

/* Steps of a pass between two savings of what is done. */
#define EVERY 64

enum { LOGP, OTHER, VALUES };

struct set { /* one split of one source */
    bool valid;
    size_t source;
    uint64_t n;
    int64_t done;           /* samples of the pass */
    double *value[VALUES];  /* [n]; OTHER only with strangers' answers */
    double *recent[VALUES]; /* of this rank, since the last pause */
};

struct lf_reference {
    struct set *set;
    size_t n_sets, n_train;
    int n_values;
    char id[LF_HASH_HEX];
    float *lp;
    /* while preparing */
    lf_trainer *t;
    struct set *now;
    char *dir;
};

void lf_reference_destroy(lf_reference *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n_sets; i++)
        for (int v = 0; v < VALUES; v++) {
            free(r->set[i].value[v]);
            free(r->set[i].recent[v]);
        }
    free(r->set);
    free(r->lp);
    free(r->dir);
    free(r);
}

double lf_segment_logp(const float *lp, const lf_loader_batch *b, int32_t s, int64_t *n)
{
    double sum = 0;
    *n = 0;
    for (int32_t i = b->cu_seqlens[s]; i < b->cu_seqlens[s + 1]; i++)
        if (b->targets[i] >= 0) {
            sum += (double)lp[i];
            ++*n;
        }
    return sum;
}

double lf_reference_logp(const lf_reference *r, bool valid, size_t source, int64_t doc,
                         bool mismatched)
{
    return r->set[(valid ? r->n_train : 0) + source].value[mismatched ? OTHER : LOGP][doc];
}

static int make_sets(lf_reference *r, lf_trainer *t, const struct lf_reference_opts *o, lf_err *err)
{
    r->n_train = lf_train_n_sources(t, false);
    r->n_sets = r->n_train + lf_train_n_sources(t, true);
    r->n_values = o->mismatched ? VALUES : 1;
    r->set = lf_calloc(r->n_sets, sizeof(*r->set), err);
    for (size_t i = 0; r->set && i < r->n_sets; i++) {
        struct set *s = &r->set[i];
        s->valid = i >= r->n_train;
        s->source = s->valid ? i - r->n_train : i;
        s->n = lf_shardset_get_info(lf_train_source_set(t, s->source, s->valid))->n_docs;
        for (int v = 0; v < r->n_values; v++)
            if (!(s->value[v] = lf_calloc(s->n + 1, sizeof(double), err)) ||
                !(s->recent[v] = lf_calloc(s->n + 1, sizeof(double), err)))
                return LF_ENOMEM;
    }
    return r->set ? 0 : LF_ENOMEM;
}

static int make_id(lf_reference *r, const struct lf_reference_opts *o, lf_err *err)
{
    uint8_t digest[LF_HASH_BYTES];
    char text[160];
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    const char *weights = lf_train_init_id(r->t);
    snprintf(text, sizeof(text), "lf-reference-1 T %lld strangers %d ", (long long)o->seq_length,
             o->mismatched);
    lf_hash_update(h, text, strlen(text) + 1);
    if (o->row_patches) { /* which units there are, as seq_length does */
        snprintf(text, sizeof(text), "pictures patches %lld tiles %lld", (long long)o->row_patches,
                 (long long)o->row_tiles);
        lf_hash_update(h, text, strlen(text) + 1);
    }
    lf_hash_update(h, weights, strlen(weights) + 1);
    for (size_t i = 0; i < r->n_sets; i++)
        lf_hash_update(h,
                       lf_shardset_id(lf_train_source_set(r->t, r->set[i].source, r->set[i].valid)),
                       LF_HASH_BYTES);
    lf_hash_final(h, digest);
    lf_hash_destroy(h);
    lf_hash_hex(r->id, digest);
    return 0;
}

/* ---- files ---- */

static const char *dataset(char *buf, size_t cap, const struct set *s, int v)
{
    snprintf(buf, cap, "%s-%zu/%s", s->valid ? "valid" : "train", s->source,
             v == OTHER ? "other" : "logp");
    return buf;
}

static int write_h5(const lf_reference *r, const char *path, lf_err *err)
{
    char name[64];
    lf_h5 *f = NULL;
    unlink(path);
    int rc = lf_h5_create(&f, path, err);
    if (rc != 0)
        return rc;
    rc = lf_h5_put_attr_str(f, "lf_format", "lf-reference-1", err);
    if (rc == 0)
        rc = lf_h5_put_attr_str(f, "id", r->id, err);
    for (size_t i = 0; i < r->n_sets && rc == 0; i++) {
        const struct set *s = &r->set[i];
        snprintf(name, sizeof(name), "done.%zu", i);
        rc = lf_h5_put_attr_i64(f, name, s->done, err);
        for (int v = 0; v < r->n_values && rc == 0; v++)
            rc = lf_h5_put(f, dataset(name, sizeof(name), s, v), LF_H5_F64, s->value[v], s->n, err);
    }
    int closed = lf_h5_close(f, rc != 0 ? NULL : err);
    if (rc == 0)
        rc = closed;
    return rc != 0 ? rc : lf_io_fsync_path(path, err);
}

static int read_values(lf_h5 *f, int fd, const char *path, const char *name, double *to, uint64_t n,
                       lf_err *err)
{
    lf_h5_dataset d = {0};
    int rc = lf_h5_stat(f, name, &d, err);
    if (rc == 0 && (d.type != LF_H5_F64 || d.n_elems != n))
        rc = lf_fail(err, LF_EFORMAT, "%s: %s does not hold %llu f64", path, name,
                     (unsigned long long)n);
    for (size_t i = 0; i < d.n_extents && rc == 0; i++)
        rc = lf_io_pread_all(fd, to + d.extents[i].first, (size_t)d.extents[i].n * sizeof(*to),
                             (off_t)d.extents[i].offset, path, err);
    lf_h5_dataset_fini(&d);
    return rc;
}

/* 1: read; 0: of another id (its own in *other, owned). */
static int read_h5(lf_reference *r, const char *path, char **other, lf_err *err)
{
    char name[64];
    lf_h5 *f = NULL;
    int rc = lf_h5_open(&f, path, err), fd = rc != 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    if (rc == 0 && fd < 0)
        rc = lf_fail_errno(err, "%s", path);
    if (rc == 0)
        rc = lf_h5_get_attr_str(f, "id", other, err);
    bool same = rc == 0 && strcmp(*other, r->id) == 0;
    for (size_t i = 0; i < r->n_sets && same && rc == 0; i++) {
        struct set *s = &r->set[i];
        snprintf(name, sizeof(name), "done.%zu", i);
        rc = lf_h5_get_attr_i64(f, name, &s->done, err);
        for (int v = 0; v < r->n_values && rc == 0; v++)
            rc =
                read_values(f, fd, path, dataset(name, sizeof(name), s, v), s->value[v], s->n, err);
    }
    if (fd >= 0)
        close(fd);
    lf_h5_close(f, NULL);
    return rc != 0 ? rc : same;
}

static int save_partial(lf_reference *r, lf_err *err)
{
    char *tmp = lf_path_join(r->dir, "partial.h5.tmp", err),
         *path = lf_path_join(r->dir, "partial.h5", err);
    int rc = tmp && path ? write_h5(r, tmp, err) : LF_ENOMEM;
    if (rc == 0 && rename(tmp, path) != 0)
        rc = lf_fail_errno(err, "%s", path);
    free(tmp);
    free(path);
    return rc;
}

static int describe(const lf_reference *r, json_t *meta, lf_err *err)
{
    const struct lf_json_member m[] = {
        {"id", json_string(r->id)},
        {"weights", json_string(lf_train_init_id(r->t))},
        {"numbers", json_incref(lf_train_numbers(r->t))},
    };
    return lf_json_set(meta, m, sizeof m / sizeof m[0], "reference", err);
}

static int publish(lf_reference *r, lf_err *err)
{
    lf_artifact a = {0};
    char *path = lf_path_join(r->dir, "logp.h5", err),
         *partial = lf_path_join(r->dir, "partial.h5", err);
    int rc = path && partial ? lf_io_mkdirs(r->dir, 0777, err) : LF_ENOMEM;
    if (rc == 0)
        rc = write_h5(r, path, err);
    if (rc == 0)
        rc = lf_artifact_init(&a, "reference", err);
    if (rc == 0)
        rc = lf_artifact_add_hashed(&a, r->dir, "logp.h5", err);
    if (rc == 0)
        rc = describe(r, a.meta, err);
    if (rc == 0)
        rc = lf_artifact_publish(&a, r->dir, err);
    if (rc == 0)
        unlink(partial);
    lf_artifact_fini(&a);
    free(path);
    free(partial);
    return rc;
}

/* A finished one in dir: 1 read, 0 there is none. */
static int read_finished(lf_reference *r, const char *dir, lf_err *err)
{
    enum lf_artifact_state st;
    lf_artifact a = {0};
    char *path = NULL, *other = NULL;
    int rc = lf_artifact_state(&st, dir, err);
    if (rc != 0 || st == LF_ARTIFACT_ABSENT)
        return rc;
    if (st != LF_ARTIFACT_PRESENT)
        return lf_err_prefix(err, "reference log-probabilities %s", dir);
    rc = lf_artifact_load(&a, dir, "reference", err);
    if (rc == 0)
        rc = lf_artifact_check_hashes(&a, dir, 1, err);
    if (rc == 0)
        rc = (path = lf_path_join(dir, "logp.h5", err)) ? read_h5(r, path, &other, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_fail(err, LF_EINVAL,
                     "%s holds reference log-probabilities of other weights, other data or another "
                     "seq_length (or max_patches) than this run's",
                     dir);
    else if (rc == 1 && !json_equal(json_object_get(a.meta, "numbers"), lf_train_numbers(r->t)))
        lf_train_log(r->t, 1,
                     "%s was computed with other kernels, threads or layout; log-ratios begin near "
                     "0, perhaps not at it",
                     dir);
    lf_artifact_fini(&a);
    free(path);
    free(other);
    return rc;
}

/* Take up what a start had done. */
static int read_partial(lf_reference *r, const char *dir, lf_err *err)
{
    char *path = lf_path_join(dir, "partial.h5", err), *other = NULL;
    int rc = !path ? LF_ENOMEM : lf_io_exists(path) ? read_h5(r, path, &other, err) : 0;
    if (rc == LF_EFORMAT) { /* it was being written on a file system that keeps no order */
        lf_train_log(r->t, 1, "passing over %s: %s", path, err ? err->text : "damaged");
        if (err)
            *err = (lf_err)LF_ERR_INIT;
        rc = 0;
    }
    free(path);
    free(other);
    return rc;
}

/* Rank 0: 1 when a finished one was read. */
static int find(lf_reference *r, const struct lf_reference_opts *o, bool fresh, lf_err *err)
{
    if (o->from) {
        int rc = read_finished(r, o->from, err);
        return rc != 0 ? rc
                       : lf_fail(err, LF_ENOENT, "there are no reference log-probabilities at %s",
                                 o->from);
    }
    int rc = read_finished(r, r->dir, err);
    for (size_t i = o->n_dirs; i-- > 0 && rc == 0;) {
        char *dir = lf_path_join(o->dirs[i], "reference", err);
        rc = dir ? read_finished(r, dir, err) : LF_ENOMEM;
        if (rc == 1) /* outputs of a run lie below its own out */
            rc = publish(r, err) ? (err ? err->rc : LF_EIO) : 1;
        free(dir);
    }
    if (rc != 0)
        return rc;
    if (!fresh)
        return lf_fail(err, LF_ENOENT,
                       "the reference log-probabilities of this run are gone and its weights have "
                       "moved on; make them again from "
                       "its init_from with mode = reference and give them as reference");
    rc = read_partial(r, r->dir, err);
    for (size_t i = o->n_dirs; i-- > 0 && rc == 0;) {
        char *dir = lf_path_join(o->dirs[i], "reference", err);
        rc = dir ? read_partial(r, dir, err) : LF_ENOMEM;
        free(dir);
    }
    return rc < 0 ? rc : 0;
}

/* ---- computing ---- */

static int visit(void *user, const struct lf_train_view *v, lf_err *err)
{
    lf_reference *r = user;
    if (!r->lp)
        r->lp = lf_malloc((size_t)v->rows, sizeof(*r->lp), err);
    int rc = lf_train_view_read(v, "lp", r->lp, sizeof(*r->lp), err);
    for (int32_t s = 0; s < v->batch->n_segs && rc == 0; s++) {
        int64_t n, doc = v->batch->seg_doc[s];
        if (doc >= 0)
            r->now->recent[v->batch->seg_mismatched[s] ? OTHER : LOGP][doc] =
                lf_segment_logp(r->lp, v->batch, s, &n);
    }
    return rc;
}

/* One rank visits a document: adding up is exact. With another number of ranks a few are visited
 * again after a restart. */
static int between(void *user, int64_t done, lf_err *err)
{
    lf_reference *r = user;
    struct set *s = r->now;
    int rc = 0;
    for (int v = 0; v < r->n_values && rc == 0; v++) {
        rc = lf_train_add_up(r->t, s->recent[v], s->n, err);
        for (uint64_t d = 0; d < s->n && rc == 0; d++) {
            if (s->recent[v][d] < 0 || s->recent[v][d] > 0)
                s->value[v][d] = s->recent[v][d];
            s->recent[v][d] = 0;
        }
    }
    s->done = done;
    if (rc == 0 && lf_train_first_rank(r->t))
        rc = save_partial(r, err);
    return rc != 0 || !lf_train_asked_to_stop(r->t)
               ? rc
               : lf_fail(err, LF_EINTR, "stopped while computing reference log-probabilities");
}

static int compute(lf_reference *r, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < r->n_sets && rc == 0; i++) {
        r->now = &r->set[i];
        lf_train_log(r->t, 2, "reference log-probabilities of %s (%s split), from sample %lld",
                     lf_train_source_dir(r->t, r->now->source, r->now->valid),
                     r->now->valid ? "valid" : "train", (long long)r->now->done);
        const struct lf_train_over o = {.source = r->now->source,
                                        .valid = r->now->valid,
                                        .from = r->now->done,
                                        .every = EVERY,
                                        .user = r,
                                        .visit = visit,
                                        .between = between};
        rc = lf_train_over(r->t, &o, err);
    }
    return rc;
}

static int share(lf_reference *r, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < r->n_sets && rc == 0; i++) {
        rc = lf_train_share(r->t, &r->set[i].done, sizeof(r->set[i].done), err);
        for (int v = 0; v < r->n_values && rc == 0; v++)
            rc = lf_train_share(r->t, r->set[i].value[v], r->set[i].n * sizeof(double), err);
    }
    return rc;
}

int lf_reference_prepare(lf_reference **out, lf_trainer *t, const struct lf_reference_opts *o,
                         bool fresh, lf_err *err)
{
    int64_t have = 0;
    lf_reference *r = lf_calloc(1, sizeof(*r), err);
    int rc = r ? 0 : LF_ENOMEM;
    if (r)
        r->t = t;
    if (rc == 0)
        rc = (r->dir = lf_path_join(lf_train_out(t), "reference", err)) ? make_sets(r, t, o, err)
                                                                        : LF_ENOMEM;
    if (rc == 0 && lf_train_first_rank(t)) {
        rc = make_id(r, o, err);
        if (rc == 0)
            rc = find(r, o, fresh, err);
        have = rc == 1;
        rc = rc < 0 ? rc : 0;
        if (rc == 0 && !have)
            rc = lf_io_mkdirs(r->dir, 0777, err);
    }
    rc = lf_train_agree(t, rc, err);
    if (rc == 0)
        rc = lf_train_share(t, &have, sizeof(have), err);
    if (rc == 0)
        rc = share(r, err);
    if (rc == 0 && !have)
        rc = compute(r, err);
    if (rc == 0 && !have)
        rc = lf_train_agree(t, lf_train_first_rank(t) ? publish(r, err) : 0, err);
    if (rc != 0) {
        lf_reference_destroy(r);
        return rc;
    }
    for (size_t i = 0; i < r->n_sets; i++)
        for (int v = 0; v < VALUES; v++) {
            free(r->set[i].recent[v]);
            r->set[i].recent[v] = NULL;
        }
    *out = r;
    return 0;
}
