/* SPDX-License-Identifier: Apache-2.0
 *
 * Continuable line files: see lines.h. The kept prefix is verified line by line before anything is
 * appended behind it.
 */
#include "engine/infer/lines.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"

#define SYNC_BYTES   ((size_t)1 << 20)
#define SYNC_SECONDS 1.0

struct lf_lines {
    int fd;
    char *part, *final;
    lf_buf pending;
    size_t unsynced; /* bytes written since */
    double synced;
};

/* Scan a part file: bytes of whole, accepted lines and their number. A missing file has none. */
static int scan(const char *path, const struct lf_lines_place *at, size_t *n, off_t *bytes,
                lf_err *err)
{
    *n = 0;
    *bytes = 0;
    FILE *f = fopen(path, "re");
    if (!f)
        return lf_io_exists(path) ? lf_fail_errno(err, "cannot open %s", path) : 0;
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    int rc = 0;
    while (rc == 0 && (len = getline(&line, &cap, f)) > 0 && line[len - 1] == '\n') {
        if ((size_t)len > LF_LINE_MAX)
            rc = lf_fail(err, LF_EFORMAT, "%s: line %zu is longer than %zu bytes", path, *n + 1,
                         LF_LINE_MAX);
        else if (at->check(at->arg, *n, line, (size_t)len - 1, err) < 0)
            rc = lf_err_prefix(err, "%s: line %zu", path, *n + 1);
        if (rc == 0) {
            ++*n;
            *bytes += len;
        }
    }
    if (rc == 0 && ferror(f))
        rc = lf_fail_errno(err, "cannot read %s", path);
    free(line);
    fclose(f);
    return rc;
}

/* A finished file of another directory whose manifest says that its bytes are others. */
static bool damaged(const char *dir, const char *name)
{
    lf_artifact a = {0};
    uint8_t is[LF_HASH_BYTES];
    char *path = NULL;
    bool bad = false;
    const lf_artifact_file *f =
        lf_artifact_load(&a, dir, NULL, NULL) == 0 ? lf_artifact_find(&a, name) : NULL;
    if (f && asprintf(&path, "%s/%s", dir, name) >= 0) {
        bad = lf_tree_hash_file(is, NULL, path, NULL) == 0 && memcmp(is, f->sha256, sizeof is) != 0;
        free(path);
    }
    lf_artifact_fini(&a);
    return bad;
}

static int copy_prefix(int to, const char *to_path, const char *from_path, off_t bytes, lf_err *err)
{
    int rc = 0, fd = open(from_path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        rc = lf_fail_errno(err, "cannot open %s", from_path);
    char *mem = lf_malloc(1, SYNC_BYTES, err);
    if (!mem)
        rc = LF_ENOMEM;
    for (off_t at = 0; rc == 0 && at < bytes;) {
        size_t n = bytes - at < (off_t)SYNC_BYTES ? (size_t)(bytes - at) : SYNC_BYTES;
        rc = lf_io_pread_all(fd, mem, n, at, from_path, err);
        if (rc == 0)
            rc = lf_io_pwrite_all(to, mem, n, at, to_path, err);
        at += (off_t)n;
    }
    free(mem);
    if (fd >= 0)
        close(fd);
    return rc;
}

/* The longest acceptable prefix among part and finished files, own ones (a crash may come between
 * the last line and the manifest) and those of earlier starts. */
static int find_longest(lf_lines *l, const struct lf_lines_place *at, size_t *best_n,
                        off_t *best_bytes, char **best_path, lf_err *err)
{
    int rc = scan(l->part, at, best_n, best_bytes, err);
    for (size_t i = 0; rc == 0 && i < 2 * at->n_from + 1; i++) {
        char *path = NULL;
        size_t n, k = i / 2;
        off_t bytes;
        if (k < at->n_from && i % 2 && damaged(at->from[k], at->name))
            continue;
        if ((k == at->n_from
                 ? asprintf(&path, "%s", l->final)
                 : asprintf(&path, "%s/%s%s", at->from[k], at->name, i % 2 ? "" : ".part")) < 0)
            return lf_fail(err, LF_ENOMEM, "out of memory");
        rc = scan(path, at, &n, &bytes, err);
        if (rc == 0 && n > *best_n) {
            *best_n = n;
            *best_bytes = bytes;
            free(*best_path);
            *best_path = path;
            path = NULL;
        }
        free(path);
    }
    return rc;
}

int lf_lines_open(lf_lines **out, const struct lf_lines_place *at, size_t *n_kept, lf_err *err)
{
    char *best_path = NULL;
    size_t n = 0;
    off_t bytes = 0;
    lf_lines *l = lf_calloc(1, sizeof *l, err);
    if (!l)
        return LF_ENOMEM;
    l->fd = -1;
    l->synced = lf_now_s();
    lf_buf_init(&l->pending);
    int rc = lf_io_mkdirs(at->dir, 0750, err);
    if (rc == 0 && (asprintf(&l->part, "%s/%s.part", at->dir, at->name) < 0 ||
                    asprintf(&l->final, "%s/%s", at->dir, at->name) < 0))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0)
        rc = find_longest(l, at, &n, &bytes, &best_path, err);
    if (rc == 0 && (l->fd = open(l->part, O_RDWR | O_CREAT | O_CLOEXEC, 0640)) < 0)
        rc = lf_fail_errno(err, "cannot write %s", l->part);
    if (rc == 0 && best_path)
        rc = copy_prefix(l->fd, l->part, best_path, bytes, err);
    if (rc == 0 && ftruncate(l->fd, bytes) != 0)
        rc = lf_fail_errno(err, "cannot truncate %s", l->part);
    if (rc == 0 && lseek(l->fd, bytes, SEEK_SET) < 0)
        rc = lf_fail_errno(err, "cannot seek in %s", l->part);
    if (rc == 0)
        rc = lf_io_fsync_parent(
            l->part, err); /* the name; a copied prefix is synced with the first line behind it */
    free(best_path);
    if (rc != 0) {
        lf_lines_close(l);
        return rc;
    }
    *n_kept = n;
    *out = l;
    return 0;
}

static int flush(lf_lines *l, lf_err *err)
{
    int rc = lf_io_write_all(l->fd, l->pending.data, l->pending.len, l->part, err);
    if (rc == 0)
        lf_buf_clear(&l->pending);
    return rc;
}

int lf_lines_sync(lf_lines *l, lf_err *err)
{
    int rc = flush(l, err);
    if (rc == 0)
        rc = lf_io_fsync(l->fd, l->part, err);
    l->synced = lf_now_s();
    l->unsynced = 0;
    return rc;
}

int lf_lines_append(lf_lines *l, const char *line, size_t len, lf_err *err)
{
    lf_buf_add(&l->pending, line, len);
    int rc = lf_buf_check(&l->pending, err);
    if (rc == 0)
        rc = flush(l, err); /* a killed process loses nothing, a killed machine a second */
    l->unsynced += len;
    if (rc == 0 && (l->unsynced > SYNC_BYTES || lf_now_s() - l->synced > SYNC_SECONDS))
        rc = lf_lines_sync(l, err);
    return rc;
}

/* Do two files hold the same bytes? */
static int compare(bool *same, const char *a, const char *b, lf_err *err)
{
    FILE *x = fopen(a, "re"), *y = fopen(b, "re");
    int cx = 0, cy = 0, rc = x && y ? 0 : lf_fail_errno(err, "cannot open %s", x ? b : a);
    while (rc == 0 && cx == cy && cx != EOF) {
        cx = getc(x);
        cy = getc(y);
    }
    if (rc == 0 && (ferror(x) || ferror(y)))
        rc = lf_fail_errno(err, "cannot read %s", ferror(x) ? a : b);
    *same = cx == cy;
    if (x)
        fclose(x);
    if (y)
        fclose(y);
    return rc;
}

int lf_lines_finish(lf_lines *l, lf_err *err)
{
    bool same = false;
    int rc = flush(l, err);
    if (rc != 0)
        return rc;
    if (!lf_io_exists(l->final))
        return lf_io_publish_tmp(l->part, l->final, err); /* which syncs the file first */
    rc = compare(&same, l->part, l->final, err);
    if (rc == 0 && !same)
        rc = lf_fail(err, LF_EEXIST, "%s is there already and holds other lines", l->final);
    if (rc == 0)
        rc = lf_io_fsync_path(l->final, err);
    if (rc == 0 && unlink(l->part) != 0)
        rc = lf_fail_errno(err, "cannot remove %s", l->part);
    return rc != 0 ? rc : lf_io_fsync_parent(l->final, err);
}

void lf_lines_close(lf_lines *l)
{
    if (!l)
        return;
    if (l->fd >= 0)
        close(l->fd);
    free(l->part);
    free(l->final);
    lf_buf_fini(&l->pending);
    free(l);
}
