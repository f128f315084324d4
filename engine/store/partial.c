/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/store/partial.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"

#define MAGIC     "lf-partial-1 "
#define MAX_BYTES ((size_t)1 << 30)

static bool parse_hex(uint8_t out[LF_HASH_BYTES], const char *s)
{
    for (int i = 0; i < LF_HASH_BYTES; i++) {
        int v = 0;
        for (int k = 0; k < 2; k++) {
            const char *digit = strchr("0123456789abcdef", s[2 * i + k]);
            if (!s[2 * i + k] || !digit)
                return false;
            v = 16 * v + (int)(digit - "0123456789abcdef");
        }
        out[i] = (uint8_t)v;
    }
    return s[2 * LF_HASH_BYTES] == '\n';
}

/* Complete lines that make sense; the others are as if they were not there. */
static size_t parse(const char *text, lf_partial_part *parts, size_t n)
{
    size_t found = 0;
    for (const char *line = strchr(text, '\n'); line && line[1]; line = strchr(line + 1, '\n')) {
        char *end;
        lf_partial_part p = {.have = true};
        errno = 0;
        uintmax_t i = strtoumax(line + 1, &end, 10);
        if (errno || end == line + 1 || *end != ' ' || i >= n || !parse_hex(p.sha256, end + 1))
            continue;
        found += !parts[i].have;
        parts[i] = p;
    }
    return found;
}

static size_t read_record(const char *dir, const char *key, lf_partial_part *parts, size_t n)
{
    lf_buf b;
    size_t found = 0, magic = strlen(MAGIC), len = strlen(key);
    char *path = lf_path_join(dir, LF_PARTIAL_FILE, NULL);
    lf_buf_init(&b);
    if (path && lf_io_read_file(path, MAX_BYTES, &b, NULL) == 0 && b.len > magic + len &&
        memcmp(b.data, MAGIC, magic) == 0 && memcmp(b.data + magic, key, len) == 0 &&
        b.data[magic + len] == '\n')
        found = parse(b.data, parts, n);
    lf_buf_fini(&b);
    free(path);
    return found;
}

void lf_partial_find(const char **dir, lf_partial_part *parts, size_t n, const lf_resume *r,
                     const char *key)
{
    size_t most = 0;
    lf_partial_part *p = lf_calloc(n ? n : 1, sizeof *p, NULL);
    *dir = NULL;
    for (size_t i = 0; i < r->n_dirs && p; i++) {
        memset(p, 0, n * sizeof *p);
        size_t found = read_record(r->dirs[i], key, p, n);
        if (found && found >= most) {
            most = found;
            *dir = r->dirs[i];
            memcpy(parts, p, n * sizeof *p);
        }
    }
    free(p);
}

static void add_line(lf_buf *b, size_t part, const uint8_t sha256[LF_HASH_BYTES])
{
    char hex[LF_HASH_HEX];
    lf_hash_hex(hex, sha256);
    lf_buf_addf(b, "%zu %s\n", part, hex);
}

int lf_partial_begin(int *fd, const char *dir, const char *key, const lf_partial_part *parts,
                     size_t n, lf_err *err)
{
    lf_buf b;
    char *path = lf_path_join(dir, LF_PARTIAL_FILE, err);
    lf_buf_init(&b);
    lf_buf_addf(&b, MAGIC "%s\n", key);
    for (size_t i = 0; i < n; i++)
        if (parts[i].have)
            add_line(&b, i, parts[i].sha256);
    int rc = path ? lf_buf_check(&b, err) : LF_ENOMEM, f = -1;
    if (rc == 0 &&
        (f = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, LF_ARTIFACT_MODE)) < 0)
        rc = lf_fail_errno(err, "cannot create %s", path);
    if (rc == 0)
        rc = lf_io_write_all(f, b.data, b.len, path, err);
    if (rc != 0 && f >= 0)
        close(f);
    if (rc == 0)
        *fd = f;
    lf_buf_fini(&b);
    free(path);
    return rc;
}

void lf_partial_add(int fd, size_t part, const uint8_t sha256[LF_HASH_BYTES])
{
    lf_buf b;
    lf_buf_init(&b);
    add_line(&b, part, sha256);
    if (lf_buf_check(&b, NULL) == 0)
        (void)lf_io_write_all(fd, b.data, b.len, LF_PARTIAL_FILE, NULL);
    lf_buf_fini(&b);
}

int lf_partial_end(const char *dir, lf_err *err)
{
    char *path = lf_path_join(dir, LF_PARTIAL_FILE, err);
    int rc = path ? 0 : LF_ENOMEM;
    if (path && unlink(path) < 0 && errno != ENOENT)
        rc = lf_fail_errno(err, "cannot remove %s", path);
    free(path);
    return rc;
}

int lf_partial_set_aside(char **left, const char *dir, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "%s.left", dir);
    char *to = lf_buf_steal(&b, err), *record = lf_path_join(dir, LF_PARTIAL_FILE, err),
         *manifest = lf_path_join(dir, LF_ARTIFACT_MANIFEST, err);
    int rc = to && record && manifest ? 0 : LF_ENOMEM;
    lf_buf_fini(&b);
    if (rc == 0 && lf_io_exists(record) && !lf_io_exists(manifest)) {
        rc = lf_io_remove_tree(to, err);
        if (rc == 0 && rename(dir, to) < 0)
            rc = lf_fail_errno(err, "cannot rename %s to %s", dir, to);
    }
    free(record);
    free(manifest);
    if (rc != 0)
        free(to);
    else
        *left = to;
    return rc;
}

bool lf_partial_link(const char *from, const char *to, const char *name)
{
    char *a = lf_path_join(from, name, NULL), *b = lf_path_join(to, name, NULL);
    bool ok = a && b && linkat(AT_FDCWD, a, AT_FDCWD, b, 0) == 0;
    free(a);
    free(b);
    return ok;
}
