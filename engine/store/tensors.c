/* SPDX-License-Identifier: Apache-2.0
 *
 * The set itself: types, entries, looking up, reading ranges.
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
    [LF_ST_BOOL] = {"BOOL", 1},       [LF_ST_U8] = {"U8", 1},           [LF_ST_I8] = {"I8", 1},
    [LF_ST_F8_E5M2] = {"F8_E5M2", 1}, [LF_ST_F8_E4M3] = {"F8_E4M3", 1}, [LF_ST_I16] = {"I16", 2},
    [LF_ST_U16] = {"U16", 2},         [LF_ST_F16] = {"F16", 2},         [LF_ST_BF16] = {"BF16", 2},
    [LF_ST_I32] = {"I32", 4},         [LF_ST_U32] = {"U32", 4},         [LF_ST_F32] = {"F32", 4},
    [LF_ST_F64] = {"F64", 8},         [LF_ST_I64] = {"I64", 8},         [LF_ST_U64] = {"U64", 8},
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
    return lf_fail(err, LF_ENOTSUP,
                   "dtype \"%.100s\" is not one that is read here (BOOL, U8 to U64, I8 to I64, F8_E4M3, "
                   "F8_E5M2, F16, BF16, F32, F64)",
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
    for (size_t i = 0; i < s->n_entries; i++)
        free((char *)(uintptr_t)s->entries[i].name);
    for (size_t i = 0; i < s->n_meta; i++) {
        free(s->meta[i].key);
        free(s->meta[i].value);
    }
    free(s->files);
    free(s->entries);
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
    return !__builtin_mul_overflow(e->elems, (int64_t)lf_st_dtype_bytes(e->dtype), &e->bytes) && e->bytes < (int64_t)1
                                                                                                                << 62;
}

lf_st_entry *lf_st_add_entry(lf_st *s, const char *name, enum lf_st_dtype dtype, int ndim, const int64_t *shape,
                             lf_err *err)
{
    size_t len = strlen(name);
    lf_st_entry e = {.dtype = dtype, .ndim = ndim, .offset = -1, .alias_of = -1};
    if (len == 0 || len > LF_ST_MAX_NAME || lf_utf8_check(name, len) != len) {
        lf_fail(err, LF_EFORMAT, "a tensor's name has %zu bytes or is not UTF-8; 1 to %d bytes are allowed", len,
                LF_ST_MAX_NAME);
        return NULL;
    }
    if (s->n_entries >= LF_ST_MAX_TENSORS) {
        lf_fail(err, LF_EFORMAT, "more than %zu tensors", LF_ST_MAX_TENSORS);
        return NULL;
    }
    if (ndim < 0 || ndim > LF_ST_MAX_DIMS) {
        lf_fail(err, LF_ENOTSUP, "tensor %.200s has %d dimensions; at most %d are read", name, ndim, LF_ST_MAX_DIMS);
        return NULL;
    }
    if (ndim)
        memcpy(e.shape, shape, (size_t)ndim * sizeof *shape);
    if (!sizes(&e)) {
        lf_fail(err, LF_EFORMAT, "tensor %.200s has a shape that no file can hold", name);
        return NULL;
    }
    if (lf_grow(&s->entries, &s->cap_entries, s->n_entries, sizeof *s->entries, err) < 0 ||
        !(e.name = lf_strdup(name, err)))
        return NULL;
    s->entries[s->n_entries] = e;
    return &s->entries[s->n_entries++];
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

static int by_place(const void *a, const void *b)
{
    const lf_st_entry *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const lf_st_entry *const *)a)[0]->name, ((const lf_st_entry *const *)b)[0]->name);
}

int lf_st_seal(lf_st *s, lf_err *err)
{
    if (s->n_entries)
        qsort(s->entries, s->n_entries, sizeof *s->entries, by_place);
    free(s->by_name);
    s->by_name = lf_malloc(s->n_entries, sizeof *s->by_name, err);
    if (!s->by_name)
        return LF_ENOMEM;
    for (size_t i = 0; i < s->n_entries; i++)
        s->by_name[i] = &s->entries[i];
    if (s->n_entries)
        qsort(s->by_name, s->n_entries, sizeof *s->by_name, by_name);
    for (size_t i = 1; i < s->n_entries; i++)
        if (strcmp(s->by_name[i - 1]->name, s->by_name[i]->name) == 0)
            return lf_fail(err, LF_EFORMAT, "tensor %.200s is there twice: in %.200s and in %.200s",
                           s->by_name[i]->name, lf_st_file_at(s, (size_t)s->by_name[i - 1]->file),
                           lf_st_file_at(s, (size_t)s->by_name[i]->file));
    return 0;
}

/* ---- looking up ---- */

size_t lf_st_n_entries(const lf_st *s)
{
    return s->n_entries;
}

const lf_st_entry *lf_st_entry_at(const lf_st *s, size_t i)
{
    return &s->entries[i];
}

static int name_cmp(const void *key, const void *elem)
{
    return strcmp(key, (*(const lf_st_entry *const *)elem)->name);
}

const lf_st_entry *lf_st_find(const lf_st *s, const char *name)
{
    const lf_st_entry **hit = NULL;
    if (s->n_entries)
        hit = bsearch(name, s->by_name, s->n_entries, sizeof *s->by_name, name_cmp);
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

/* ---- reading ---- */

int lf_st_read(const lf_st *s, const lf_st_entry *e, int64_t first, int64_t n, void *dst, lf_err *err)
{
    int64_t elem = (int64_t)lf_st_dtype_bytes(e->dtype);
    if (first < 0 || n < 0 || first > e->elems || n > e->elems - first)
        return lf_fail(err, LF_EINVAL, "tensor %.200s: elements %lld to %lld of %lld", e->name, (long long)first,
                       (long long)first + (long long)n, (long long)e->elems);
    if (n == 0)
        return 0;
    const struct lf_st_file *f = &s->files[e->file];
    int rc = lf_io_pread_all(f->fd, dst, (size_t)(n * elem), (off_t)(e->offset + first * elem), f->path, err);
    return rc < 0 ? lf_err_prefix(err, "tensor %.200s", e->name) : 0;
}

static void advise(const lf_st *s, const lf_st_entry *e, int64_t first, int64_t n, int advice)
{
    int64_t elem = (int64_t)lf_st_dtype_bytes(e->dtype);
    if (e->offset >= 0 && n > 0 && first >= 0 && first <= e->elems && n <= e->elems - first)
        (void)posix_fadvise(s->files[e->file].fd, (off_t)(e->offset + first * elem), (off_t)(n * elem), advice);
}

void lf_st_prefetch(const lf_st *s, const lf_st_entry *e, int64_t first, int64_t n)
{
    advise(s, e, first, n, POSIX_FADV_WILLNEED);
}

void lf_st_drop(const lf_st *s, const lf_st_entry *e, int64_t first, int64_t n)
{
    advise(s, e, first, n, POSIX_FADV_DONTNEED);
}

/* All ones in the exponent. `mask` in the type's own width; data need not be aligned. */
#define COUNT(type, mask)                                                                                              \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        type v;                                                                                                        \
        memcpy(&v, p + (size_t)i * sizeof v, sizeof v);                                                                \
        count += (v & (mask)) == (mask);                                                                               \
    }

int64_t lf_st_count_nonfinite(enum lf_st_dtype t, const void *data, int64_t n)
{
    const unsigned char *p = data;
    int64_t count = 0;
    switch (t) {
    case LF_ST_F16:
        COUNT(uint16_t, 0x7C00u)
        break;
    case LF_ST_BF16:
        COUNT(uint16_t, 0x7F80u)
        break;
    case LF_ST_F32:
        COUNT(uint32_t, 0x7F800000u)
        break;
    case LF_ST_F64:
        COUNT(uint64_t, 0x7FF0000000000000ull)
        break;
    case LF_ST_F8_E5M2:
        COUNT(uint8_t, 0x7Cu)
        break;
    case LF_ST_F8_E4M3: /* no infinity; NaN is all ones below the sign */
        COUNT(uint8_t, 0x7Fu)
        break;
    default:
        break;
    }
    return count;
}
