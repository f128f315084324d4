/* SPDX-License-Identifier: Apache-2.0
 *
 * The directory of a zip file: names, places, sizes. Trust: the end record against the file, the
 * directory against the end record, each local header against the directory.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/le.h"
#include "engine/base/mem.h"
#include "engine/store/torch_file_priv.h"

#define END_BYTES   22
#define END64_BYTES 56
#define LOC64_BYTES 20
#define ENTRY_BYTES 46
#define LOCAL_BYTES 30
#define MAX_COMMENT 65535
#define MAX_DIR     ((int64_t)256 << 20)
#define MAX_RECORDS ((uint64_t)2 << 20) /* twice as many as tensors */

void lf_zip_fini(struct lf_zip *z)
{
    free(z->dir);
    free(z->records);
    memset(z, 0, sizeof *z);
}

struct where {
    uint64_t n, bytes, offset; /* of the directory */
    uint64_t limit;            /* it ends before this */
};

/* The zip64 end record, when the locator before the end record says that there is one. */
static int find_end64(struct where *w, const struct lf_st_file *f, int64_t end, lf_err *err)
{
    unsigned char loc[LOC64_BYTES], e[END64_BYTES];
    if (end < LOC64_BYTES)
        return 0;
    int rc = lf_io_pread_all(f->fd, loc, sizeof loc, end - LOC64_BYTES, f->path, err);
    if (rc < 0 || memcmp(loc, "PK\6\7", 4) != 0)
        return rc;
    uint64_t at = lf_get_le(loc + 8, 8);
    if (at > (uint64_t)end || (uint64_t)end - at < END64_BYTES + LOC64_BYTES)
        return lf_fail(err, LF_EFORMAT, "%s: its zip64 end record lies outside of the file",
                       f->path);
    rc = lf_io_pread_all(f->fd, e, sizeof e, (off_t)at, f->path, err);
    if (rc < 0)
        return rc;
    if (memcmp(e, "PK\6\6", 4) != 0 || lf_get_le(e + 16, 4) || lf_get_le(e + 20, 4) ||
        lf_get_le(e + 24, 8) != lf_get_le(e + 32, 8))
        return lf_fail(err, LF_EFORMAT, "%s: its zip64 end record is damaged", f->path);
    w->n = lf_get_le(e + 32, 8);
    w->bytes = lf_get_le(e + 40, 8);
    w->offset = lf_get_le(e + 48, 8);
    w->limit = at;
    return 0;
}

/* The end record is the last thing in the file but for a comment of up to 64 KiB. */
static int find_end(struct where *w, const struct lf_st_file *f, lf_err *err)
{
    int64_t n = f->bytes < END_BYTES + MAX_COMMENT ? f->bytes : END_BYTES + MAX_COMMENT, at = -1;
    unsigned char *tail = n < END_BYTES ? NULL : lf_malloc((size_t)n, 1, err);
    int rc = 0;
    if (!tail)
        return lf_fail(err, LF_EFORMAT, "%s: too short for a zip file (truncated?)", f->path);
    rc = lf_io_pread_all(f->fd, tail, (size_t)n, f->bytes - n, f->path, err);
    for (int64_t i = n - END_BYTES; rc == 0 && at < 0 && i >= 0; i--)
        if (memcmp(tail + i, "PK\5\6", 4) == 0 &&
            (int64_t)lf_get_le(tail + i + 20, 2) == n - END_BYTES - i)
            at = i;
    if (rc == 0 && at < 0)
        rc = lf_fail(err, LF_EFORMAT, "%s: a zip file without its directory (truncated?)", f->path);
    if (rc == 0) {
        const unsigned char *e = tail + at;
        *w = (struct where){lf_get_le(e + 10, 2), lf_get_le(e + 12, 4), lf_get_le(e + 16, 4),
                            (uint64_t)(f->bytes - n + at)};
        if (lf_get_le(e + 4, 2) != lf_get_le(e + 6, 2) ||
            lf_get_le(e + 8, 2) != lf_get_le(e + 10, 2))
            rc = lf_fail(err, LF_ENOTSUP, "%s: one volume of a divided zip file", f->path);
        else
            rc = find_end64(w, f, f->bytes - n + at, err);
    }
    free(tail);
    return rc;
}

/* Sizes that do not fit in 32 bits stand in field 1 of the extra data, those that are needed, in
 * this order. */
static bool zip64_sizes(const unsigned char *x, size_t n, uint64_t *usize, uint64_t *csize,
                        uint64_t *offset)
{
    uint64_t *const want[3] = {usize, csize, offset};
    while (n >= 4) {
        size_t len = (size_t)lf_get_le(x + 2, 2);
        if (len > n - 4)
            return false;
        if (lf_get_le(x, 2) == 1) {
            size_t at = 0;
            for (int i = 0; i < 3; i++)
                if (*want[i] == 0xFFFFFFFFu) {
                    if (len - at < 8)
                        return false;
                    *want[i] = lf_get_le(x + 4 + at, 8);
                    at += 8;
                }
            return true;
        }
        x += 4 + len;
        n -= 4 + len;
    }
    return *usize != 0xFFFFFFFFu && *csize != 0xFFFFFFFFu && *offset != 0xFFFFFFFFu;
}

/* Nothing is unpacked here; a name that leads elsewhere is a sign of an archive that was made to do
 * harm. */
static bool harmless_name(const char *name, size_t n)
{
    if (n == 0 || name[0] == '/' || memchr(name, '\0', n) || memchr(name, '\\', n))
        return false;
    for (size_t i = 0; i < n;) {
        const char *slash = memchr(name + i, '/', n - i);
        size_t len = slash ? (size_t)(slash - name) - i : n - i;
        if (len == 2 && name[i] == '.' && name[i + 1] == '.')
            return false;
        i += len + 1;
    }
    return true;
}

static int check_record(const unsigned char *e, const struct lf_zip_record *r,
                        const struct lf_st_file *f, uint64_t csize, uint64_t usize, lf_err *err)
{
    int len = r->name_len > 100 ? 100 : (int)r->name_len;
    bool unix_made = e[5] == 3;
    if (!harmless_name(r->name, r->name_len))
        return lf_fail(err, LF_EFORMAT,
                       "%s: record \"%.*s\" is named outside of its archive; refused", f->path, len,
                       r->name);
    if (unix_made && (lf_get_le(e + 38, 4) >> 16 & S_IFMT) == S_IFLNK)
        return lf_fail(err, LF_EFORMAT, "%s: record \"%.*s\" is a symbolic link; refused", f->path,
                       len, r->name);
    if (lf_get_le(e + 8, 2) & 1)
        return lf_fail(err, LF_ENOTSUP, "%s: record \"%.*s\" is encrypted", f->path, len, r->name);
    if (csize > INT64_MAX || (r->stored && csize != usize))
        return lf_fail(err, LF_EFORMAT, "%s: record \"%.*s\" has %llu stored bytes for %llu",
                       f->path, len, r->name, (unsigned long long)csize, (unsigned long long)usize);
    return 0;
}

static int parse_dir(struct lf_zip *z, const struct where *w, const struct lf_st_file *f,
                     lf_err *err)
{
    const unsigned char *p = (const unsigned char *)z->dir, *end = p + w->bytes;
    for (uint64_t i = 0; i < w->n; i++) {
        struct lf_zip_record *r = &z->records[i];
        if (end - p < ENTRY_BYTES || memcmp(p, "PK\1\2", 4) != 0)
            return lf_fail(err, LF_EFORMAT,
                           "%s: the zip directory is damaged at record %llu of %llu", f->path,
                           (unsigned long long)i, (unsigned long long)w->n);
        size_t name = (size_t)lf_get_le(p + 28, 2), extra = (size_t)lf_get_le(p + 30, 2),
               comment = (size_t)lf_get_le(p + 32, 2);
        uint64_t csize = lf_get_le(p + 20, 4), usize = lf_get_le(p + 24, 4),
                 offset = lf_get_le(p + 42, 4);
        if ((size_t)(end - p) - ENTRY_BYTES < name + extra + comment ||
            !zip64_sizes(p + ENTRY_BYTES + name, extra, &usize, &csize, &offset) ||
            offset > w->offset)
            return lf_fail(err, LF_EFORMAT,
                           "%s: the zip directory is damaged at record %llu of %llu", f->path,
                           (unsigned long long)i, (unsigned long long)w->n);
        *r = (struct lf_zip_record){(const char *)p + ENTRY_BYTES,
                                    (uint32_t)name,
                                    (int64_t)offset,
                                    (int64_t)csize,
                                    (uint32_t)lf_get_le(p + 16, 4),
                                    lf_get_le(p + 10, 2) == 0};
        int rc = check_record(p, r, f, csize, usize, err);
        if (rc < 0)
            return rc;
        p += ENTRY_BYTES + name + extra + comment;
    }
    return 0;
}

static int name_cmp(const char *a, size_t na, const char *b, size_t nb)
{
    int c = memcmp(a, b, na < nb ? na : nb);
    return c ? c : (na > nb) - (na < nb);
}

static int record_cmp(const void *a, const void *b)
{
    const struct lf_zip_record *x = a, *y = b;
    return name_cmp(x->name, x->name_len, y->name, y->name_len);
}

int lf_zip_load(struct lf_zip *out, const struct lf_st_file *f, lf_err *err)
{
    struct lf_zip z = {0};
    struct where w = {0};
    int rc = find_end(&w, f, err);
    if (rc < 0)
        return rc;
    if (w.offset > w.limit || w.bytes > w.limit - w.offset || w.bytes > (uint64_t)MAX_DIR ||
        w.n > MAX_RECORDS || w.n > w.bytes / ENTRY_BYTES)
        return lf_fail(
            err, LF_EFORMAT,
            "%s: its zip directory (%llu records, %llu bytes at %llu) does not fit in the file",
            f->path, (unsigned long long)w.n, (unsigned long long)w.bytes,
            (unsigned long long)w.offset);
    z.n = (size_t)w.n;
    z.end = (int64_t)w.offset;
    if (!(z.dir = lf_malloc((size_t)w.bytes, 1, err)) ||
        !(z.records = lf_calloc(z.n, sizeof *z.records, err)))
        rc = LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_pread_all(f->fd, z.dir, (size_t)w.bytes, (off_t)w.offset, f->path, err);
    if (rc == 0)
        rc = parse_dir(&z, &w, f, err);
    if (rc == 0 && z.n)
        qsort(z.records, z.n, sizeof *z.records, record_cmp);
    for (size_t i = 1; rc == 0 && i < z.n; i++)
        if (record_cmp(&z.records[i - 1], &z.records[i]) == 0)
            rc = lf_fail(err, LF_EFORMAT, "%s: record \"%.*s\" is there twice", f->path,
                         z.records[i].name_len > 100 ? 100 : (int)z.records[i].name_len,
                         z.records[i].name);
    if (rc < 0)
        lf_zip_fini(&z);
    else
        *out = z;
    return rc;
}

const struct lf_zip_record *lf_zip_find(const struct lf_zip *z, const char *name, size_t len)
{
    size_t lo = 0, hi = z->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        int c = name_cmp(name, len, z->records[mid].name, z->records[mid].name_len);
        if (c == 0)
            return &z->records[mid];
        if (c < 0)
            hi = mid;
        else
            lo = mid + 1;
    }
    return NULL;
}

int lf_zip_data(const struct lf_zip *z, const struct lf_zip_record *r, const struct lf_st_file *f,
                int64_t *offset, lf_err *err)
{
    unsigned char h[LOCAL_BYTES];
    char name[256];
    int len = r->name_len > 100 ? 100 : (int)r->name_len;
    if (!r->stored)
        return lf_fail(
            err, LF_ENOTSUP,
            "%s: record \"%.*s\" is compressed; torch.save stores its records, so store them "
            "again with it (or zip -0)",
            f->path, len, r->name);
    int rc = r->header > z->end - LOCAL_BYTES
                 ? LF_EFORMAT
                 : lf_io_pread_all(f->fd, h, sizeof h, (off_t)r->header, f->path, err);
    size_t name_len = rc == 0 ? (size_t)lf_get_le(h + 26, 2) : 0;
    int64_t at = r->header + LOCAL_BYTES;
    bool ok = rc == 0 && memcmp(h, "PK\3\4", 4) == 0 && name_len == r->name_len &&
              name_len <= sizeof name && (int64_t)name_len <= z->end - at &&
              lf_io_pread_all(f->fd, name, name_len, (off_t)at, f->path, err) == 0 &&
              memcmp(name, r->name, name_len) == 0;
    at += ok ? (int64_t)name_len + (int64_t)lf_get_le(h + 28, 2) : 0;
    if (!ok || at > z->end || r->bytes > z->end - at)
        return lf_fail(
            err, LF_EFORMAT,
            "%s: record \"%.*s\" is not where the zip directory says (truncated or damaged?)",
            f->path, len, r->name);
    *offset = at;
    return 0;
}

uint32_t lf_zip_crc(const void *data, size_t n)
{
    const unsigned char *p = data;
    uint32_t table[256], c = 0xFFFFFFFFu;
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int k = 0; k < 8; k++)
            v = v & 1 ? v >> 1 ^ 0xEDB88320u : v >> 1;
        table[i] = v;
    }
    for (size_t i = 0; i < n; i++)
        c = table[(c ^ p[i]) & 0xFF] ^ c >> 8;
    return ~c;
}
