/* SPDX-License-Identifier: Apache-2.0
 *
 * The two forms of a torch file: where the objects' pickle is, and where the bytes of each storage
 * are.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/store/torch_file_priv.h"

/* Bytes of one element of a storage; an untyped one is counted in bytes. */
static int64_t elem_bytes(const struct lf_pv_storage *st)
{
    return st->dtype ? (int64_t)lf_st_dtype_bytes(st->dtype) : 1;
}

/* Storages by key, each key once, so that files with many tensors in one storage are looked at
 * once. */
static int key_cmp(const void *a, const void *b)
{
    const lf_pv *x = (*(struct lf_pv_storage *const *)a)->key,
                *y = (*(struct lf_pv_storage *const *)b)->key;
    int c = memcmp(x->u.text, y->u.text, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

static struct lf_pv_storage **sorted_storages(const struct lf_torch *t, size_t *n, lf_err *err)
{
    *n = lf_pickle_n_storages(t->pickle);
    struct lf_pv_storage **v = lf_malloc(*n, sizeof *v, err);
    for (size_t i = 0; v && i < *n; i++)
        v[i] = lf_pickle_storage(t->pickle, i);
    if (v && *n)
        qsort(v, *n, sizeof *v, key_cmp);
    return v;
}

/* Two names of one storage agree on what it is. */
static int copy_place(struct lf_pv_storage *to, const struct lf_pv_storage *from, const char *path,
                      lf_err *err)
{
    if (to->elems != from->elems || to->dtype != from->dtype)
        return lf_fail(err, LF_EFORMAT, "%s: storage %.*s is named with two lengths or types", path,
                       to->key->n > 100 ? 100 : (int)to->key->n, to->key->u.text);
    to->file = from->file;
    to->offset = from->offset;
    return 0;
}

static int place_cmp(const void *a, const void *b)
{
    const struct lf_pv_storage *x = *(struct lf_pv_storage *const *)a,
                               *y = *(struct lf_pv_storage *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->elems > y->elems) - (x->elems < y->elems);
}

/* Storages of different keys share no byte. v is sorted by key; it is sorted by place
 * afterwards. */
static int check_overlap(struct lf_pv_storage **v, size_t n, const char *path, lf_err *err)
{
    size_t m = 0;
    for (size_t i = 0; i < n; i++)
        if (v[i]->elems && (i == 0 || key_cmp(&v[i - 1], &v[i]) != 0))
            v[m++] = v[i];
    if (m)
        qsort(v, m, sizeof *v, place_cmp);
    for (size_t i = 1; i < m; i++)
        if (v[i]->offset < v[i - 1]->offset + v[i - 1]->elems * elem_bytes(v[i - 1]))
            return lf_fail(err, LF_EFORMAT, "%s: storages %.*s and %.*s overlap", path,
                           v[i - 1]->key->n > 100 ? 100 : (int)v[i - 1]->key->n,
                           v[i - 1]->key->u.text, v[i]->key->n > 100 ? 100 : (int)v[i]->key->n,
                           v[i]->key->u.text);
    return 0;
}

/* ---- zip ---- */

/* The one record that is called data.pkl; *prefix: bytes of its name up to and with the slash. */
static int find_objects(const struct lf_zip *z, const struct lf_zip_record **out, size_t *prefix,
                        const char *path, lf_err *err)
{
    static const char want[] = "data.pkl";
    const struct lf_zip_record *hit = NULL;
    for (size_t i = 0; i < z->n; i++) {
        const struct lf_zip_record *r = &z->records[i];
        size_t n = sizeof want - 1;
        if (r->name_len < n || memcmp(r->name + r->name_len - n, want, n) != 0 ||
            (r->name_len > n && r->name[r->name_len - n - 1] != '/'))
            continue;
        if (hit)
            return lf_fail(err, LF_EFORMAT, "%s: two records are called data.pkl", path);
        hit = r;
        *prefix = r->name_len - n;
    }
    if (!hit)
        return lf_fail(err, LF_EFORMAT, "%s is a zip file without data.pkl: not one of torch.save",
                       path);
    *out = hit;
    return 0;
}

static int read_record(char **out, const struct lf_zip *z, const struct lf_zip_record *r,
                       const struct lf_st_file *f, lf_err *err)
{
    int64_t at = 0;
    if (r->bytes > (int64_t)LF_PICKLE_MAX)
        return lf_fail(err, LF_EFORMAT, "%s: its %.*s has %lld bytes; at most %zu are read",
                       f->path, r->name_len > 100 ? 100 : (int)r->name_len, r->name,
                       (long long)r->bytes, LF_PICKLE_MAX);
    int rc = lf_zip_data(z, r, f, &at, err);
    if (rc < 0)
        return rc;
    char *text = lf_malloc((size_t)r->bytes, 1, err);
    rc = text ? lf_io_pread_all(f->fd, text, (size_t)r->bytes, (off_t)at, f->path, err) : LF_ENOMEM;
    if (rc == 0 && lf_zip_crc(text, (size_t)r->bytes) != r->crc)
        rc =
            lf_fail(err, LF_EFORMAT, "%s: record %.*s is damaged: its bytes do not match their CRC",
                    f->path, r->name_len > 100 ? 100 : (int)r->name_len, r->name);
    if (rc < 0)
        free(text);
    else
        *out = text;
    return rc;
}

/* PREFIX + tail, or NULL. */
static const struct lf_zip_record *find_beside(const struct lf_zip *z,
                                               const struct lf_zip_record *r, size_t prefix,
                                               const char *tail, const lf_pv *key, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_add(&b, r->name, prefix);
    lf_buf_adds(&b, tail);
    if (key)
        lf_buf_add(&b, key->u.text, key->n);
    const struct lf_zip_record *hit =
        lf_buf_check(&b, err) == 0 ? lf_zip_find(z, b.data, b.len) : NULL;
    lf_buf_fini(&b);
    return hit;
}

static int check_byteorder(const struct lf_zip *z, const struct lf_zip_record *objects,
                           size_t prefix, const struct lf_st_file *f, lf_err *err)
{
    char *text = NULL;
    const struct lf_zip_record *r = find_beside(z, objects, prefix, "byteorder", NULL, err);
    if (!r)
        /* not written before 2.1, which was always this machine's order; see the magic of
         * storages */
        return 0;
    int rc = read_record(&text, z, r, f, err);
    if (rc == 0 && (r->bytes != 6 || memcmp(text, "little", 6) != 0))
        rc = lf_fail(err, LF_ENOTSUP, "%s was written on a big-endian machine; it is not read here",
                     f->path);
    free(text);
    return rc;
}

static int place_zip(const struct lf_torch *t, const struct lf_zip *z,
                     const struct lf_zip_record *objects, size_t prefix, int file,
                     const struct lf_st_file *f, lf_err *err)
{
    size_t n = 0;
    struct lf_pv_storage **v = sorted_storages(t, &n, err);
    int rc = v ? 0 : LF_ENOMEM;
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct lf_pv_storage *st = v[i];
        if (i && key_cmp(&v[i - 1], &v[i]) == 0) {
            rc = copy_place(st, v[i - 1], f->path, err);
            continue;
        }
        int len = st->key->n > 100 ? 100 : (int)st->key->n;
        const struct lf_zip_record *r = find_beside(z, objects, prefix, "data/", st->key, err);
        if (!r)
            rc = lf_fail(err, LF_EFORMAT, "%s: storage %.*s has no record in the archive", f->path,
                         len, st->key->u.text);
        else
            rc = lf_zip_data(z, r, f, &st->offset, err);
        if (rc == 0 && r->bytes != st->elems * elem_bytes(st))
            rc = lf_fail(err, LF_EFORMAT,
                         "%s: storage %.*s should have %lld bytes and its record has %lld", f->path,
                         len, st->key->u.text, (long long)(st->elems * elem_bytes(st)),
                         (long long)r->bytes);
        st->file = file;
    }
    if (rc == 0)
        rc = check_overlap(v, n, f->path, err);
    free(v);
    return rc;
}

int lf_torch_load_zip(struct lf_torch *out, lf_st *s, int file, lf_err *err)
{
    const struct lf_st_file *f = &s->files[file];
    struct lf_torch t = {0};
    struct lf_zip z = {0};
    const struct lf_zip_record *objects = NULL;
    size_t prefix = 0;
    char what[512];
    snprintf(what, sizeof what, "%.400s: data.pkl", f->path);
    int rc = lf_zip_load(&z, f, err);
    if (rc == 0)
        rc = find_objects(&z, &objects, &prefix, f->path, err);
    if (rc == 0)
        rc = check_byteorder(&z, objects, prefix, f, err);
    if (rc == 0)
        rc = read_record(&t.text, &z, objects, f, err);
    if (rc == 0)
        rc = lf_pickle_load(&t.pickle, t.text, (size_t)objects->bytes, NULL, what, err);
    if (rc == 0)
        rc = place_zip(&t, &z, objects, prefix, file, f, err);
    lf_zip_fini(&z);
    if (rc < 0)
        lf_torch_fini(&t);
    else
        *out = t;
    return rc;
}

/* ---- the older form ---- */

/* The pickle at *at, of a length that only running it tells: its text is read in ever larger
 * pieces. */
static int load_at(struct lf_torch *out, const struct lf_st_file *f, int64_t *at, const char *name,
                   lf_err *err)
{
    char what[512];
    snprintf(what, sizeof what, "%.400s: %s at byte %lld", f->path, name, (long long)*at);
    for (size_t want = (size_t)64 << 10;; want *= 8) {
        struct lf_torch t = {0};
        int64_t left = f->bytes - *at;
        size_t n = want < LF_PICKLE_MAX ? want : LF_PICKLE_MAX, used = 0;
        bool all = (int64_t)n >= left || n == LF_PICKLE_MAX;
        lf_err e = LF_ERR_INIT;
        n = (int64_t)n > left ? (size_t)left : n;
        t.text = lf_malloc(n, 1, err);
        int rc = t.text ? lf_io_pread_all(f->fd, t.text, n, (off_t)*at, f->path, err) : LF_ENOMEM;
        if (rc < 0) {
            lf_torch_fini(&t);
            return rc;
        }
        rc = lf_pickle_load(&t.pickle, t.text, n, &used, what, &e);
        if (rc == 0) {
            *at += (int64_t)used;
            *out = t;
            return 0;
        }
        lf_torch_fini(&t);
        if (used <= n || all)
            return lf_fail(err, e.rc, "%s", e.text);
    }
}

/* Magic number, protocol, and the machine that wrote it. */
static int check_head(const struct lf_st_file *f, int64_t *at, lf_err *err)
{
    static const unsigned char magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9,
                                          0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};
    unsigned char head[2 + sizeof magic] = {0};
    struct lf_torch t = {0};
    int64_t v = 0;
    int rc = f->bytes < (int64_t)sizeof head
                 ? LF_EFORMAT
                 : lf_io_pread_all(f->fd, head, sizeof head, 0, f->path, err);
    if (rc < 0 || memcmp(head + 2, magic, sizeof magic) != 0)
        return lf_fail(err, LF_EFORMAT, "%s is a pickle, but not one that torch.save wrote",
                       f->path);
    *at = sizeof head;
    rc = load_at(&t, f, at, "protocol", err);
    if (rc == 0 && (!lf_pv_i64(lf_pickle_root(t.pickle), &v) || v != 1001))
        rc = lf_fail(err, LF_ENOTSUP, "%s: protocol %lld of torch.save; 1001 is read", f->path,
                     (long long)v);
    lf_torch_fini(&t);
    if (rc == 0)
        rc = load_at(&t, f, at, "system", err);
    if (rc == 0 && (!lf_pv_i64(lf_pv_get(lf_pickle_root(t.pickle), "little_endian"), &v) || v != 1))
        rc = lf_fail(err, LF_ENOTSUP, "%s was written on a big-endian machine; it is not read here",
                     f->path);
    lf_torch_fini(&t);
    return rc;
}

/* keys: the list of keys in the order of the bytes that begin at `at`. */
static int place_legacy(const struct lf_torch *t, const lf_pv *keys, int64_t at, int file,
                        const struct lf_st_file *f, lf_err *err)
{
    size_t n = 0;
    struct lf_pv_storage **v = sorted_storages(t, &n, err);
    int rc = v ? 0 : LF_ENOMEM;
    if (rc == 0 && keys->type != LF_PV_LIST)
        rc = lf_fail(err, LF_EFORMAT, "%s: the list of storages is no list", f->path);
    for (uint32_t i = 0; rc == 0 && i < keys->n; i++) {
        const lf_pv *key = keys->u.items[i];
        struct lf_pv_storage probe = {.key = key}, *want = &probe, **hit = NULL;
        unsigned char count[8];
        int len = key->n > 100 ? 100 : (int)key->n;
        if (key->type == LF_PV_STR && n)
            hit = bsearch(&want, v, n, sizeof *v, key_cmp);
        if (!hit) {
            rc = lf_fail(err, LF_EFORMAT, "%s: storage number %u of its list is used by no tensor",
                         f->path, i);
            break;
        }
        if (!lf_torch_inside(f, at, 8) ||
            lf_io_pread_all(f->fd, count, 8, (off_t)at, f->path, err) < 0) {
            rc = lf_fail(err, LF_EFORMAT, "%s ends before storage %.*s (truncated?)", f->path, len,
                         key->u.text);
            break;
        }
        uint64_t have = 0;
        for (int k = 7; k >= 0; k--)
            have = have << 8 | count[k];
        int64_t bytes = (*hit)->elems * elem_bytes(*hit);
        if (have != (uint64_t)(*hit)->elems)
            rc = lf_fail(err, LF_EFORMAT, "%s: storage %.*s should have %lld elements and has %llu",
                         f->path, len, key->u.text, (long long)(*hit)->elems,
                         (unsigned long long)have);
        else if (!lf_torch_inside(f, at + 8, bytes))
            rc = lf_fail(err, LF_EFORMAT, "%s ends inside of storage %.*s (truncated?)", f->path,
                         len, key->u.text);
        (*hit)->file = file;
        (*hit)->offset = at + 8;
        at += 8 + bytes;
    }
    /* Storages that are named more often: bsearch found one of them. */
    for (size_t i = 0; rc == 0 && i < n;) {
        size_t end = i, hit = i;
        for (; end < n && key_cmp(&v[i], &v[end]) == 0; end++)
            hit = v[end]->offset >= 0 ? end : hit;
        if (v[hit]->offset < 0)
            rc = lf_fail(err, LF_EFORMAT, "%s: storage %.*s has no bytes in the file", f->path,
                         v[i]->key->n > 100 ? 100 : (int)v[i]->key->n, v[i]->key->u.text);
        for (; i < end && rc == 0; i++)
            rc = copy_place(v[i], v[hit], f->path, err);
    }
    free(v);
    return rc;
}

int lf_torch_load_legacy(struct lf_torch *out, lf_st *s, int file, lf_err *err)
{
    const struct lf_st_file *f = &s->files[file];
    struct lf_torch t = {0}, keys = {0};
    int64_t at = 0;
    int rc = check_head(f, &at, err);
    if (rc == 0)
        rc = load_at(&t, f, &at, "objects", err);
    if (rc == 0)
        rc = load_at(&keys, f, &at, "list of storages", err);
    if (rc == 0)
        rc = place_legacy(&t, lf_pickle_root(keys.pickle), at, file, f, err);
    lf_torch_fini(&keys);
    if (rc < 0)
        lf_torch_fini(&t);
    else
        *out = t;
    return rc;
}
