/* SPDX-License-Identifier: Apache-2.0
 *
 * Making a checkpoint of what its writers have written: their tensors put together and checked, the
 * leaves that none of them had whole, the identity, then leaves.bin, state.json, index.h5 and, at
 * the end, the manifest.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/store/ckpt_priv.h"

/* ---- tensors ---- */

static int cmp_rec(const void *a, const void *b)
{
    const struct lf_ckpt_rec *const *x = a, *const *y = b;
    return lf_ckpt_cmp(&(*x)->e, &(*y)->e);
}

/* By box, then by range. */
static int cmp_piece(const void *a, const void *b)
{
    const struct lf_ckpt_piece *x = a, *y = b;
    for (int k = 0; k < LF_CKPT_MAX_DIMS; k++) {
        if (x->lo[k] != y->lo[k])
            return x->lo[k] < y->lo[k] ? -1 : 1;
        if (x->hi[k] != y->hi[k])
            return x->hi[k] < y->hi[k] ? -1 : 1;
    }
    return x->flat[0] < y->flat[0] ? -1 : x->flat[0] > y->flat[0];
}

/* The parts of one tensor; together they are it. */
static int join(struct lf_ckpt_rec *r, struct lf_ckpt_rec *const *parts, size_t n, lf_err *err)
{
    size_t pieces = 0;
    for (size_t i = 0; i < n; i++) {
        const lf_ckpt_entry *e = &parts[i]->e;
        if (e->dtype != parts[0]->e.dtype || e->ndim != parts[0]->e.ndim ||
            memcmp(e->shape, parts[0]->e.shape, sizeof e->shape) != 0)
            return lf_fail(err, LF_EFORMAT,
                           "tensor %s (%s): its parts in %s and %s are not of one type and shape",
                           e->name, e->kind, parts[0]->pieces[0].file, parts[i]->pieces[0].file);
        pieces += parts[i]->n_pieces;
    }
    r->e = parts[0]->e;
    r->n_elems = parts[0]->n_elems;
    if (!(r->name = lf_strdup(r->e.name, err)) || !(r->kind = lf_strdup(r->e.kind, err)) ||
        !(r->pieces = lf_calloc(pieces, sizeof *r->pieces, err)))
        return LF_ENOMEM;
    r->e.name = r->name;
    r->e.kind = r->kind;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < parts[i]->n_pieces; k++) {
            struct lf_ckpt_piece *p = &r->pieces[r->n_pieces];
            *p = parts[i]->pieces[k];
            if (!(p->file = lf_strdup(p->file, err)))
                return LF_ENOMEM;
            r->n_pieces++;
        }
    qsort(r->pieces, r->n_pieces, sizeof *r->pieces, cmp_piece);
    return lf_ckpt_check_pieces(r, err);
}

/* ---- leaves ---- */

/* The hashes that the writer of a part made of the leaves that are whole in it. */
static int take_leaves(struct lf_ckpt_rec *r, const struct lf_ckpt_grid *g,
                       const struct lf_ckpt_rec *part, bool *have, lf_err *err)
{
    struct lf_ckpt_piece box = part->pieces[0];
    struct lf_ckpt_unit u;
    size_t at = 0;
    int64_t k = 0;
    bool fits = true;
    box.flat[1] = part->pieces[part->n_pieces - 1].flat[1];
    while (fits && lf_ckpt_unit_next(&u, g, &r->e, &box, &k)) {
        size_t n = (size_t)u.n, leaf = (size_t)(u.block * g->across + u.first);
        fits = n <= part->n_leaves - at;
        for (size_t i = 0; i < n && fits; i++) {
            memcpy(r->leaves[leaf + i], part->leaves[at + i], LF_HASH_BYTES);
            have[leaf + i] = true;
        }
        at += n;
    }
    return fits && at == part->n_leaves
               ? 0
               : lf_fail(err, LF_EFORMAT,
                         "tensor %s (%s): %zu hashes of leaves do not fit its part in %s",
                         r->e.name, r->e.kind, part->n_leaves, part->pieces[0].file);
}

/* The leaves that were cut between parts, from the files. */
static int read_leaves(const lf_ckpt *c, struct lf_ckpt_rec *r, const struct lf_ckpt_grid *g,
                       const bool *have, int64_t *split, lf_err *err)
{
    int rc = 0;
    for (int64_t k = 0; k < g->bands * g->blocks && rc == 0; k++) {
        const bool *h = &have[k * g->across];
        for (int i = 0, n; i < g->across && rc == 0; i += n) {
            for (n = 1; i + n < g->across && h[i + n] == h[i];)
                n++;
            if (h[i])
                continue;
            rc = lf_ckpt_hash_leaves(c, r, k, (const int[2]){i, n}, &r->leaves[k * g->across + i],
                                     err);
            *split += n;
        }
    }
    return rc;
}

static int tensor_hash(const lf_ckpt *c, struct lf_ckpt_rec *r, struct lf_ckpt_rec *const *parts,
                       size_t n, int64_t *split, lf_err *err)
{
    const struct lf_ckpt_grid g = lf_ckpt_grid_of(&r->e);
    r->n_leaves = lf_ckpt_grid_leaves(&g);
    bool *have = lf_calloc(r->n_leaves, sizeof *have, err);
    int rc = have ? 0 : LF_ENOMEM;
    if (rc == 0 && !(r->leaves = lf_calloc(r->n_leaves, sizeof *r->leaves, err)))
        rc = LF_ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = take_leaves(r, &g, parts[i], have, err);
    if (rc == 0)
        rc = read_leaves(c, r, &g, have, split, err);
    if (rc == 0)
        rc = lf_ckpt_tensor_digest(r->sha256, r->leaves, r->n_leaves, err);
    free(have);
    return rc;
}

/* ---- all of it ---- */

static int cmp_entry(const void *a, const void *b)
{
    const lf_ckpt_entry *const *x = a, *const *y = b;
    return lf_ckpt_cmp(*x, *y);
}

/* Are the tensors those that the caller expects? */
static int check_expected(const struct lf_ckpt_meta *m, const struct lf_ckpt_publication *p,
                          lf_err *err)
{
    const lf_ckpt_entry **v = lf_calloc(p->n_tensors, sizeof *v, err);
    int rc = v ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < p->n_tensors && v; i++)
        v[i] = &p->tensors[i];
    if (v)
        qsort(v, p->n_tensors, sizeof *v, cmp_entry);
    for (size_t i = 0, k = 0; rc == 0 && (i < p->n_tensors || k < m->n_recs); i++, k++) {
        const lf_ckpt_entry *want = i < p->n_tensors ? v[i] : NULL,
                            *is = k < m->n_recs ? &m->recs[k].e : NULL;
        int d = !want ? 1 : !is ? -1 : lf_ckpt_cmp(want, is);
        if (d != 0)
            rc = lf_fail(err, LF_EFORMAT, "tensor %s (%s) is %s", d < 0 ? want->name : is->name,
                         d < 0 ? want->kind : is->kind,
                         d < 0 ? "in no part" : "none of this model's");
        else if (want->dtype != is->dtype || want->ndim != is->ndim ||
                 memcmp(want->shape, is->shape, (size_t)is->ndim * sizeof *is->shape) != 0)
            rc = lf_fail(err, LF_EFORMAT, "tensor %s (%s) is not of the model's type and shape",
                         is->name, is->kind);
    }
    free(v);
    return rc;
}

/* Every tensor of the parts, sorted. */
static struct lf_ckpt_rec **all_recs(const struct lf_ckpt_publication *p, size_t *n, lf_err *err)
{
    *n = 0;
    for (size_t i = 0; i < p->n; i++)
        *n += p->receipts[i].meta.n_recs;
    struct lf_ckpt_rec **v = lf_calloc(*n, sizeof *v, err);
    size_t at = 0;
    for (size_t i = 0; i < p->n && v; i++)
        for (size_t k = 0; k < p->receipts[i].meta.n_recs; k++)
            v[at++] = &p->receipts[i].meta.recs[k];
    if (v)
        qsort(v, *n, sizeof *v, cmp_rec);
    return v;
}

/* The parts [first, the result) are of one tensor. */
static size_t same_rec(struct lf_ckpt_rec *const *v, size_t first, size_t n)
{
    size_t end = first + 1;
    while (end < n && cmp_rec(&v[first], &v[end]) == 0)
        end++;
    return end;
}

static int describe(lf_ckpt *c, const struct lf_ckpt_publication *p, struct lf_ckpt_rec *const *v,
                    size_t n, lf_ckpt_result *out, lf_err *err)
{
    int rc = 0;
    if (!(c->meta.recs = lf_calloc(n, sizeof *c->meta.recs, err)))
        return LF_ENOMEM;
    for (size_t i = 0, end; i < n && rc == 0; i = end) {
        end = same_rec(v, i, n);
        rc = join(&c->meta.recs[c->meta.n_recs++], &v[i], end - i, err);
    }
    if (rc == 0 && (rc = lf_ckpt_check_names(&c->meta, err)) == 0 && p->tensors)
        rc = check_expected(&c->meta, p, err);
    if (rc == 0)
        rc = lf_ckpt_bind(c, err);
    for (size_t i = 0, t = 0, end; i < n && rc == 0; i = end, t++) {
        end = same_rec(v, i, n);
        rc = tensor_hash(c, &c->meta.recs[t], &v[i], end - i, &out->split_leaves, err);
    }
    return rc < 0 ? rc : lf_ckpt_make_identity(&c->meta, c->meta.identity, err);
}

static int add_files(lf_artifact *a, const struct lf_ckpt_publication *p, lf_ckpt_result *out,
                     lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < p->n; i++)
        for (size_t k = 0; k < p->receipts[i].n_files && rc == 0; k++) {
            const struct lf_ckpt_file *f = &p->receipts[i].files[k];
            rc = p->durable ? lf_artifact_add_synced(a, f->path, f->bytes, f->sha256, err)
                            : lf_artifact_add(a, f->path, f->bytes, f->sha256, err);
            out->bytes += f->bytes;
        }
    return rc;
}

/* A small file of the checkpoint, hashed and listed. data NULL: it is there already. */
static int add_small(lf_ckpt *c, const char *name, const lf_buf *data, int64_t *bytes, lf_err *err)
{
    lf_artifact_hash_job job = {.path = name};
    char *path = lf_path_join(c->dir, name, err);
    int rc = path ? 0 : LF_ENOMEM;
    if (rc == 0 && data)
        rc = lf_io_write_file(path, data->data, data->len, LF_ARTIFACT_MODE, err);
    if (rc == 0 && (rc = lf_artifact_hash_files(c->dir, &job, 1, 1, err)) == 0)
        rc = lf_artifact_add(&c->a, name, job.bytes, job.sha256, err);
    *bytes += job.bytes;
    free(path);
    return rc;
}

static int add_leaves(lf_ckpt *c, int64_t *bytes, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < c->meta.n_recs; i++)
        if (c->meta.recs[i].n_leaves > 1)
            lf_buf_add(&b, c->meta.recs[i].leaves, c->meta.recs[i].n_leaves * LF_HASH_BYTES);
    int rc = lf_buf_check(&b, err);
    if (rc == 0 && b.len)
        rc = add_small(c, LF_CKPT_LEAVES, &b, bytes, err);
    lf_buf_fini(&b);
    return rc;
}

static int add_others(lf_ckpt *c, const struct lf_ckpt_publication *p, int64_t *bytes, lf_err *err)
{
    lf_buf state;
    int rc = add_leaves(c, bytes, err);
    lf_buf_init(&state);
    lf_buf_adds(&state, p->state);
    if (rc == 0 && (rc = lf_buf_check(&state, err)) == 0)
        rc = add_small(c, LF_CKPT_STATE, &state, bytes, err);
    lf_buf_fini(&state);
    if (rc == 0 && lf_ckpt_n_data_files(&c->a) > 1 &&
        (rc = lf_ckpt_make_index(&c->meta, c->dir, err)) == 0)
        rc = add_small(c, LF_CKPT_INDEX, NULL, bytes, err);
    return rc;
}

/* Left by another save: of none of the parts. */
static bool is_stale(void *arg, const char *name)
{
    return !lf_artifact_find(arg, name);
}

int lf_ckpt_publish_parts(const struct lf_ckpt_publication *p, lf_ckpt_result *out, lf_err *err)
{
    size_t n = 0;
    lf_ckpt_result res = {0};
    lf_ckpt *c = lf_calloc(1, sizeof *c, err);
    struct lf_ckpt_rec **v = c ? all_recs(p, &n, err) : NULL;
    int rc = LF_ENOMEM;
    if (!v || !(c->dir = lf_strdup(p->dir, err)) ||
        (rc = lf_artifact_init(&c->a, LF_CKPT_KIND, err)) < 0)
        goto out;
    c->meta.version = LF_CKPT_VERSION;
    c->meta.step = p->step;
    if (n == 0)
        rc = lf_fail(err, LF_EFORMAT, "%s: no part holds any tensor", p->dir);
    if (rc == 0 && (rc = add_files(&c->a, p, &res, err)) == 0)
        rc = describe(c, p, v, n, &res, err);
    if (rc == 0 && p->durable && (rc = lf_artifact_check_lengths(&c->a, p->dir, err)) == 0)
        rc = lf_ckpt_clean(p->dir, is_stale, &c->a, err);
    if (rc == 0)
        rc = add_others(c, p, &res.bytes, err);
    if (rc == 0 && p->members && json_object_update(c->a.meta, (json_t *)(uintptr_t)p->members))
        rc = lf_fail(err, LF_ENOMEM, "no memory for the description of a checkpoint");
    if (rc == 0 && (rc = lf_ckpt_meta_store(&c->meta, c->a.meta, err)) == 0)
        rc = lf_artifact_publish(&c->a, p->dir, err);
    memcpy(res.identity, c->meta.identity, LF_HASH_BYTES);
    if (rc == 0)
        *out = res;
out:
    free(v);
    lf_ckpt_close(c);
    return rc;
}

/* ---- the state ---- */

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

int lf_ckpt_state_text(char **out, json_t **members, int64_t *at, const json_t *state, lf_err *err)
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
    if (!(*members = endings_of(state))) {
        free(text);
        return lf_fail(err, LF_ENOMEM, "no memory for the description of a checkpoint");
    }
    *out = text;
    *at = json_integer_value(step);
    return 0;
}

/* ---- several parts ---- */

static int check_together(const struct lf_ckpt_receipt *r, size_t n, const char *dir, int64_t step,
                          lf_err *err)
{
    bool *seen = lf_calloc(n, sizeof *seen, err);
    int rc = seen ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++) {
        if (strcmp(r[i].dir, dir) != 0 || r[i].step != step || r[i].run != r[0].run ||
            r[i].saves != r[0].saves)
            rc = lf_fail(err, LF_EFORMAT,
                         "the receipt of part %d is of another save: step %lld in %.300s",
                         r[i].part, (long long)r[i].step, r[i].dir);
        else if ((size_t)r[i].parts != n || seen[r[i].part])
            rc = lf_fail(err, LF_EFORMAT, "%zu receipts, that of part %d of %d %s", n, r[i].part,
                         r[i].parts, (size_t)r[i].parts != n ? "among them" : "twice");
        else
            seen[r[i].part] = true;
    }
    free(seen);
    return rc;
}

/* Is this a file that publishing makes? */
static bool is_publishers(void *arg, const char *name)
{
    (void)arg;
    return strncmp(name, "data-", 5) != 0;
}

static int parse_all(struct lf_ckpt_receipt *r, const struct lf_ckpt_parts *parts, lf_err *err)
{
    int rc = parts->n ? 0 : lf_fail(err, LF_EINVAL, "there are no receipts");
    for (size_t i = 0; i < parts->n && rc == 0; i++)
        rc = parts->receipts[i]
                 ? lf_ckpt_receipt_parse(&r[i], parts->receipts[i], err)
                 : lf_fail(err, LF_EINVAL, "there is no receipt %zu of %zu", i, parts->n);
    return rc;
}

int lf_ckpt_publish(const char *dir, const struct lf_ckpt_parts *parts, lf_ckpt_result *out,
                    lf_err *err)
{
    struct lf_ckpt_receipt *r = lf_calloc(parts->n, sizeof *r, err);
    struct lf_ckpt_publication p = {.dir = dir,
                                    .receipts = r,
                                    .n = parts->n,
                                    .tensors = parts->tensors,
                                    .n_tensors = parts->n_tensors,
                                    .threads = parts->threads,
                                    .durable = true};
    char *text = NULL;
    json_t *members = NULL;
    lf_ckpt_result res = {0};
    int rc = r ? lf_ckpt_state_text(&text, &members, &p.step, parts->state, err) : LF_ENOMEM;
    p.state = text;
    p.members = members;
    if (rc == 0 && (rc = parse_all(r, parts, err)) == 0)
        rc = check_together(r, parts->n, dir, p.step, err);
    if (rc == 0 && (rc = lf_ckpt_publish_parts(&p, &res, err)) < 0)
        (void)lf_ckpt_clean(dir, is_publishers, NULL, NULL);
    if (rc == 0 && out)
        *out = res;
    if (rc < 0)
        lf_err_prefix(err, "publishing %s", dir);
    for (size_t i = 0; i < parts->n && r; i++)
        lf_ckpt_receipt_fini(&r[i]);
    free(r);
    free(text);
    json_decref(members);
    return rc;
}

int lf_ckpt_discard(const char *dir, lf_err *err)
{
    int rc = lf_ckpt_clean(dir, NULL, NULL, err);
    if (rc == 0)
        (void)rmdir(dir);
    return rc;
}
