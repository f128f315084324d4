/* SPDX-License-Identifier: Apache-2.0
 *
 * The set itself: types, entries, looking up.
 */
#include "engine/store/tensors.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"
#include "engine/store/tensors_priv.h"

/* ---- types ---- */

static const struct {
    const char *name;
    unsigned char bytes;
} DTYPES[LF_ST_N_DTYPES] = {
    [LF_ST_BOOL] = {"BOOL", 1},       [LF_ST_U8] = {"U8", 1},
    [LF_ST_I8] = {"I8", 1},           [LF_ST_F8_E5M2] = {"F8_E5M2", 1},
    [LF_ST_F8_E4M3] = {"F8_E4M3", 1}, [LF_ST_F8_E8M0] = {"F8_E8M0", 1},
    [LF_ST_I16] = {"I16", 2},         [LF_ST_U16] = {"U16", 2},
    [LF_ST_F16] = {"F16", 2},         [LF_ST_BF16] = {"BF16", 2},
    [LF_ST_I32] = {"I32", 4},         [LF_ST_U32] = {"U32", 4},
    [LF_ST_F32] = {"F32", 4},         [LF_ST_F64] = {"F64", 8},
    [LF_ST_I64] = {"I64", 8},         [LF_ST_U64] = {"U64", 8},
};

size_t lf_st_dtype_bytes(enum lf_st_dtype t)
{
    return t > 0 && t < LF_ST_N_DTYPES ? DTYPES[t].bytes : 0;
}

const char *lf_st_dtype_name(enum lf_st_dtype t)
{
    return t > 0 && t < LF_ST_N_DTYPES ? DTYPES[t].name : "?";
}

int lf_st_dtype_parse(enum lf_st_dtype *out, const char *name, lf_err *err)
{
    for (int t = 1; t < LF_ST_N_DTYPES; t++)
        if (strcmp(name, DTYPES[t].name) == 0) {
            *out = (enum lf_st_dtype)t;
            return 0;
        }
    return lf_fail(
        err, LF_ENOTSUP,
        "dtype \"%.100s\" is not one that is read here (BOOL, U8 to U64, I8 to I64, F8_E4M3, "
        "F8_E5M2, F8_E8M0, F16, BF16, F32, F64)",
        name);
}

/* ---- making ---- */

lf_st *lf_st_create(lf_err *err)
{
    return lf_calloc(1, sizeof(lf_st), err);
}

void lf_st_close(lf_st *s)
{
    if (!s)
        return;
    for (size_t i = 0; i < s->n_files; i++) {
        close(s->files[i].fd);
        free(s->files[i].path);
    }
    for (size_t i = 0; i < s->n_recs; i++) {
        if (s->recs[i].scale)
            free((char *)(uintptr_t)s->recs[i].scale->rec.e.name);
        if (s->recs[i].scale)
            free((char *)(uintptr_t)s->recs[i].scale->act.e.name);
        free(s->recs[i].scale);
        if (!s->recs[i].hidden)
            free((char *)(uintptr_t)s->recs[i].e.name);
    }
    for (size_t i = 0; i < s->n_meta; i++) {
        free(s->meta[i].key);
        free(s->meta[i].value);
    }
    free(s->files);
    free(s->recs);
    free(s->pieces);
    free(s->by_name);
    free(s->meta);
    free(s);
}

int lf_st_add_file(lf_st *s, int fd, const char *path, lf_err *err)
{
    struct stat st;
    char *copy = NULL;
    int rc = lf_grow(&s->files, &s->cap_files, s->n_files, sizeof *s->files, err);
    if (rc == 0 && fstat(fd, &st) < 0)
        rc = lf_fail_errno(err, "cannot look at %s", path);
    if (rc == 0 && !(copy = lf_strdup(path, err)))
        rc = LF_ENOMEM;
    if (rc < 0) {
        close(fd);
        return rc;
    }
    s->files[s->n_files] = (struct lf_st_file){copy, fd, st.st_size};
    return (int)s->n_files++;
}

/* Elements and bytes of a shape; false beyond 2^62, so that sums of a few stay in range. */
static bool sizes(lf_st_entry *e)
{
    int64_t n = 1;
    bool zero = false;
    for (int k = 0; k < e->ndim; k++) {
        if (e->shape[k] < 0)
            return false;
        zero |= e->shape[k] == 0;
    }
    for (int k = 0; k < e->ndim && !zero; k++)
        if (__builtin_mul_overflow(n, e->shape[k], &n))
            return false;
    e->elems = zero ? 0 : n;
    return !__builtin_mul_overflow(e->elems, (int64_t)lf_st_dtype_bytes(e->dtype), &e->bytes) &&
           e->bytes < (int64_t)1 << 62;
}

lf_st_entry *lf_st_add_entry(lf_st *s, const char *name, enum lf_st_dtype dtype, int ndim,
                             const int64_t *shape, lf_err *err)
{
    size_t len = strlen(name);
    lf_st_entry e = {.dtype = dtype, .ndim = ndim, .offset = -1, .alias_of = -1};
    if (len == 0 || len > LF_ST_MAX_NAME || lf_utf8_check(name, len) != len) {
        lf_fail(err, LF_EFORMAT,
                "a tensor's name has %zu bytes or is not UTF-8; 1 to %d bytes are allowed", len,
                LF_ST_MAX_NAME);
        return NULL;
    }
    if (s->n_recs >= LF_ST_MAX_TENSORS) {
        lf_fail(err, LF_EFORMAT, "more than %zu tensors", LF_ST_MAX_TENSORS);
        return NULL;
    }
    if (ndim < 0 || ndim > LF_ST_MAX_DIMS) {
        lf_fail(err, LF_ENOTSUP, "tensor %.200s has %d dimensions; at most %d are read", name, ndim,
                LF_ST_MAX_DIMS);
        return NULL;
    }
    if (ndim)
        memcpy(e.shape, shape, (size_t)ndim * sizeof *shape);
    if (!sizes(&e)) {
        lf_fail(err, LF_EFORMAT, "tensor %.200s has a shape that no file can hold", name);
        return NULL;
    }
    if (lf_grow(&s->recs, &s->cap_recs, s->n_recs, sizeof *s->recs, err) < 0 ||
        !(e.name = lf_strdup(name, err)))
        return NULL;
    s->recs[s->n_recs] = (struct lf_st_rec){.e = e};
    return &s->recs[s->n_recs++].e;
}

void lf_st_place(lf_st *s, int file, int64_t offset)
{
    struct lf_st_rec *r = &s->recs[s->n_recs - 1];
    r->e.file = file;
    r->e.offset = r->place = offset;
}

int lf_st_add_piece(lf_st *s, const struct lf_st_piece *p, lf_err *err)
{
    struct lf_st_rec *r = &s->recs[s->n_recs - 1];
    int rc = lf_grow(&s->pieces, &s->cap_pieces, s->n_pieces, sizeof *s->pieces, err);
    if (rc < 0)
        return rc;
    if (r->n_pieces == 0) {
        r->piece = s->n_pieces;
        r->e.file = p->file;
        r->place = p->offset;
    }
    s->pieces[s->n_pieces++] = *p;
    r->n_pieces++;
    return 0;
}

int lf_st_add_meta(lf_st *s, const char *key, const char *value, lf_err *err)
{
    if (lf_st_meta(s, key))
        return 0;
    int rc = lf_grow(&s->meta, &s->cap_meta, s->n_meta, sizeof *s->meta, err);
    if (rc < 0)
        return rc;
    struct lf_st_meta m = {lf_strdup(key, err), lf_strdup(value, err)};
    if (!m.key || !m.value) {
        free(m.key);
        free(m.value);
        return LF_ENOMEM;
    }
    s->meta[s->n_meta++] = m;
    return 0;
}

/* Fewer dimensions that say the same, those with the widest steps in the file first: so reading
 * goes forward. */
static void simplify(struct lf_st_piece *p)
{
    int n = 0;
    for (int k = 0; k < p->ndim; k++) {
        if (p->n[k] == 1)
            continue;
        int at = n++;
        int64_t len = p->n[k], src = p->src[k], dst = p->dst[k];
        for (; at > 0 && p->src[at - 1] < src; at--) {
            p->n[at] = p->n[at - 1];
            p->src[at] = p->src[at - 1];
            p->dst[at] = p->dst[at - 1];
        }
        p->n[at] = len;
        p->src[at] = src;
        p->dst[at] = dst;
    }
    p->ndim = n;
    for (int k = n - 1; k > 0; k--) /* k - 1 goes on where k ends: one dimension */
        if (p->src[k - 1] == p->n[k] * p->src[k] && p->dst[k - 1] == p->n[k] * p->dst[k]) {
            p->n[k - 1] *= p->n[k];
            p->src[k - 1] = p->src[k];
            p->dst[k - 1] = p->dst[k];
            for (int m = k; m + 1 < p->ndim; m++) {
                p->n[m] = p->n[m + 1];
                p->src[m] = p->src[m + 1];
                p->dst[m] = p->dst[m + 1];
            }
            p->ndim--;
        }
}

static void simplify_rec(lf_st *s, struct lf_st_rec *r)
{
    for (size_t i = 0; i < r->n_pieces; i++)
        simplify(&s->pieces[r->piece + i]);
    const struct lf_st_piece *p = &s->pieces[r->piece];
    bool run =
        r->n_pieces == 1 && (p->ndim == 0 || (p->ndim == 1 && p->src[0] == 1 && p->dst[0] == 1));
    if (run) {
        r->e.offset = p->offset;
        r->n_pieces = 0;
    }
}

static int by_place(const void *a, const void *b)
{
    const struct lf_st_rec *x = a, *y = b;
    if (x->e.file != y->e.file)
        return x->e.file < y->e.file ? -1 : 1;
    if (x->place != y->place)
        return x->place < y->place ? -1 : 1;
    if (x->e.bytes != y->e.bytes)
        return x->e.bytes < y->e.bytes ? -1 : 1;
    return strcmp(x->e.name, y->e.name);
}

/* The same bytes in the same order, seen in the same shape. */
static bool same_bytes(const lf_st *s, const struct lf_st_rec *x, const struct lf_st_rec *y)
{
    bool same = x->e.bytes && !x->scale && !y->scale && x->e.file == y->e.file &&
                x->e.offset == y->e.offset && x->e.dtype == y->e.dtype && x->e.ndim == y->e.ndim &&
                memcmp(x->e.shape, y->e.shape, sizeof x->e.shape) == 0 &&
                x->n_pieces == y->n_pieces;
    for (size_t i = 0; same && i < x->n_pieces; i++) {
        const struct lf_st_piece *p = &s->pieces[x->piece + i], *q = &s->pieces[y->piece + i];
        size_t bytes = (size_t)p->ndim * sizeof p->n[0];
        same = p->file == q->file && p->offset == q->offset && p->first == q->first &&
               p->ndim == q->ndim && memcmp(p->n, q->n, bytes) == 0 &&
               memcmp(p->src, q->src, bytes) == 0 && memcmp(p->dst, q->dst, bytes) == 0;
    }
    return same;
}

/* Those that share bytes lie beside each other: same place, same length, then by name. */
static void find_aliases(lf_st *s)
{
    for (size_t i = 1; i < s->n_recs; i++) {
        const struct lf_st_rec *a = &s->recs[i - 1];
        if (same_bytes(s, a, &s->recs[i]))
            s->recs[i].e.alias_of = a->e.alias_of >= 0 ? a->e.alias_of : (int)(i - 1);
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const lf_st_entry *const *)a)[0]->name,
                  ((const lf_st_entry *const *)b)[0]->name);
}

int lf_st_seal(lf_st *s, lf_err *err)
{
    for (size_t i = 0; i < s->n_recs; i++)
        if (s->recs[i].n_pieces)
            simplify_rec(s, &s->recs[i]);
    if (s->n_recs)
        qsort(s->recs, s->n_recs, sizeof *s->recs, by_place);
    find_aliases(s);
    free(s->by_name);
    s->by_name = lf_malloc(s->n_recs, sizeof *s->by_name, err);
    if (!s->by_name)
        return LF_ENOMEM;
    for (size_t i = 0; i < s->n_recs; i++)
        s->by_name[i] = &s->recs[i].e;
    if (s->n_recs)
        qsort(s->by_name, s->n_recs, sizeof *s->by_name, by_name);
    for (size_t i = 1; i < s->n_recs; i++)
        if (strcmp(s->by_name[i - 1]->name, s->by_name[i]->name) == 0)
            return lf_fail(err, LF_EFORMAT, "tensor %.200s is there twice: in %.200s and in %.200s",
                           s->by_name[i]->name, lf_st_file_at(s, (size_t)s->by_name[i - 1]->file),
                           lf_st_file_at(s, (size_t)s->by_name[i]->file));
    return 0;
}

/* ---- a part of a set ---- */

const struct lf_st_prefix *lf_st_prefix_of(const struct lf_st_prefix *p, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (lf_str_has_prefix(name, p[i].from))
            return &p[i];
    return NULL;
}

static void drop_rec(struct lf_st_rec *r)
{
    free((char *)(uintptr_t)r->e.name);
    *r = (struct lf_st_rec){0};
}

int lf_st_keep(lf_st *s, const struct lf_st_prefix *p, size_t n, lf_err *err)
{
    const size_t all = s->n_recs;
    int rc = 0;
    s->n_recs = 0;
    for (size_t i = 0; i < all; i++) {
        struct lf_st_rec r = s->recs[i];
        const struct lf_st_prefix *row = lf_st_prefix_of(p, n, r.e.name);
        char *name = NULL;
        if (row && rc == 0) {
            lf_buf b;
            lf_buf_init(&b);
            lf_buf_addf(&b, "%s%s", row->to, r.e.name + strlen(row->from));
            rc = (name = lf_buf_steal(&b, err)) ? 0 : LF_ENOMEM;
        }
        drop_rec(&r);
        if (!name)
            continue;
        s->recs[s->n_recs] = s->recs[i];
        s->recs[s->n_recs].e.name = name;
        s->recs[s->n_recs++].e.alias_of = -1;
    }
    return rc != 0 ? rc : lf_st_seal(s, err);
}

/* ---- looking up ---- */

size_t lf_st_n_entries(const lf_st *s)
{
    return s->n_recs;
}

const lf_st_entry *lf_st_entry_at(const lf_st *s, size_t i)
{
    return &s->recs[i].e;
}

static int name_cmp(const void *key, const void *elem)
{
    return strcmp(key, (*(const lf_st_entry *const *)elem)->name);
}

const lf_st_entry *lf_st_find(const lf_st *s, const char *name)
{
    const lf_st_entry **hit = NULL;
    if (s->n_recs)
        hit = bsearch(name, s->by_name, s->n_recs, sizeof *s->by_name, name_cmp);
    return hit ? *hit : NULL;
}

size_t lf_st_n_files(const lf_st *s)
{
    return s->n_files;
}

const char *lf_st_file_at(const lf_st *s, size_t i)
{
    return s->files[i].path;
}

const char *lf_st_meta(const lf_st *s, const char *key)
{
    for (size_t i = 0; i < s->n_meta; i++)
        if (strcmp(s->meta[i].key, key) == 0)
            return s->meta[i].value;
    return NULL;
}
