/* SPDX-License-Identifier: Apache-2.0
 *
 * Manifests: made, published, read, compared with the files they list. Hashing by several threads
 * is artifact_hash.c.
 *
 * Invariants of publishing, in this order; a crash between any two leaves the artifact absent:
 *   1. every listed file has its length and is fsynced, here or by its writer;
 *   2. every directory that holds one, up to the artifact's own, is fsynced;
 *   3. manifest.json appears whole, by link(2), and its directory is fsynced (lf_io_publish).
 */
#include "engine/base/artifact.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/fence.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"

static int check_path(const char *path, lf_err *err)
{
    size_t n = strlen(path);
    if (n == 0 || n >= PATH_MAX / 2)
        return lf_fail(err, LF_EFORMAT, "artifact file path of %zu bytes; 1 to %d are possible", n,
                       PATH_MAX / 2 - 1);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)path[i] < 0x20 || path[i] == 0x7f)
            return lf_fail(err, LF_EFORMAT, "artifact file path with the control byte 0x%02x",
                           (unsigned char)path[i]);
    const char *p = path;
    for (;;) {
        size_t k = strcspn(p, "/");
        if (k == 0 || (k == 1 && p[0] == '.') || (k == 2 && p[0] == '.' && p[1] == '.'))
            return lf_fail(
                err, LF_EFORMAT,
                "artifact file path '%s' would leave its directory or is not in its simplest form",
                path);
        if (p[k] == 0)
            return 0;
        p += k + 1;
    }
}

/* Open path below dir without following any symbolic link; flags as for open(2). */
static int open_beneath(const char *dir, const char *path, int flags, lf_err *err)
{
    int rc = check_path(path, err);
    if (rc < 0)
        return rc;
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return lf_fail_errno(err, "cannot open the directory %s", dir);
    char name[NAME_MAX + 1];
    for (const char *p = path; p;) {
        size_t k = strcspn(p, "/");
        bool leaf = p[k] == 0;
        if (k > NAME_MAX) {
            close(fd);
            return lf_fail(err, LF_EFORMAT,
                           "artifact file path '%s' has a component above %d bytes", path,
                           NAME_MAX);
        }
        memcpy(name, p, k);
        name[k] = 0;
        int next =
            openat(fd, name,
                   (leaf ? flags : O_RDONLY | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
        int e = errno;
        close(fd);
        if (next < 0) {
            errno = e;
            if (e == ELOOP || e == ENOTDIR)
                return lf_fail(err, LF_EFORMAT,
                               "%s/%s: symbolic links are refused inside an artifact, and folders "
                               "must be folders",
                               dir, path);
            return lf_fail_errno(err, "cannot open %s/%s", dir, path);
        }
        fd = next;
        p = leaf ? NULL : p + k + 1;
    }
    return fd;
}

int lf_artifact_open_file(const char *dir, const char *path, lf_err *err)
{
    int fd = open_beneath(dir, path, O_RDONLY, err);
    struct stat st;
    if (fd < 0)
        return fd;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return lf_fail(err, LF_EFORMAT, "%s/%s is not a regular file", dir, path);
    }
    return fd;
}

int lf_artifact_init(lf_artifact *a, const char *kind, lf_err *err)
{
    char *k = lf_strdup(kind, err);
    json_t *meta = json_object();
    if (!k || !meta) {
        free(k);
        json_decref(meta);
        return lf_fail(err, LF_ENOMEM, "no memory for a manifest");
    }
    *a = (lf_artifact){.kind = k, .meta = meta};
    return 0;
}

void lf_artifact_fini(lf_artifact *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->n_files; i++)
        free(a->files[i].path);
    free(a->files);
    free(a->kind);
    json_decref(a->meta);
    *a = (lf_artifact){0};
}

/* Index of the first file whose path is not below `path`; files are sorted. */
static size_t lower_bound(const lf_artifact *a, const char *path)
{
    size_t lo = 0, hi = a->n_files;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (strcmp(a->files[mid].path, path) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const lf_artifact_file *lf_artifact_find(const lf_artifact *a, const char *path)
{
    size_t i = lower_bound(a, path);
    return i < a->n_files && strcmp(a->files[i].path, path) == 0 ? &a->files[i] : NULL;
}

int lf_artifact_add(lf_artifact *a, const char *path, int64_t bytes,
                    const uint8_t sha256[LF_HASH_BYTES], lf_err *err)
{
    int rc = check_path(path, err);
    if (rc < 0)
        return rc;
    if (bytes < 0)
        return lf_fail(err, LF_EFORMAT, "artifact file '%s' with a negative length", path);
    if (strcmp(path, LF_ARTIFACT_MANIFEST) == 0)
        return lf_fail(err, LF_EFORMAT, "a manifest cannot list itself (%s)", path);
    if (a->n_files >= LF_ARTIFACT_MAX_FILES)
        return lf_fail(err, LF_EFORMAT, "an artifact of more than %d files", LF_ARTIFACT_MAX_FILES);
    size_t i = lower_bound(a, path);
    if (i < a->n_files && strcmp(a->files[i].path, path) == 0)
        return lf_fail(err, LF_EEXIST, "artifact file '%s' is listed twice", path);
    if ((rc = lf_grow(&a->files, &a->cap_files, a->n_files, sizeof *a->files, err)) < 0)
        return rc;
    char *p = lf_strdup(path, err);
    if (!p)
        return LF_ENOMEM;
    memmove(&a->files[i + 1], &a->files[i], (a->n_files - i) * sizeof *a->files);
    a->files[i] = (lf_artifact_file){.path = p, .bytes = bytes};
    memcpy(a->files[i].sha256, sha256, LF_HASH_BYTES);
    a->n_files++;
    return 0;
}

int lf_artifact_add_synced(lf_artifact *a, const char *path, int64_t bytes,
                           const uint8_t sha256[LF_HASH_BYTES], lf_err *err)
{
    int rc = lf_artifact_add(a, path, bytes, sha256, err);
    if (rc == 0)
        a->files[lower_bound(a, path)].synced = true;
    return rc;
}

int lf_artifact_add_hashed(lf_artifact *a, const char *dir, const char *path, lf_err *err)
{
    lf_artifact_hash_job job = {.path = path};
    int rc = lf_artifact_hash_files(dir, &job, 1, 1, err);
    return rc < 0 ? rc : lf_artifact_add(a, path, job.bytes, job.sha256, err);
}

/* ---- publishing ---- */

static json_t *to_json(const lf_artifact *a)
{
    json_t *files = json_array();
    for (size_t i = 0; files && i < a->n_files; i++) {
        char hex[LF_HASH_HEX];
        lf_hash_hex(hex, a->files[i].sha256);
        if (json_array_append_new(files, json_pack("{s:s, s:I, s:s}", "path", a->files[i].path,
                                                   "bytes", (json_int_t)a->files[i].bytes,
                                                   "tree_sha256", hex)) < 0) {
            json_decref(files);
            return NULL;
        }
    }
    return files ? json_pack("{s:i, s:s, s:o, s:O}", "lf_manifest", 1, "kind", a->kind, "files",
                             files, "meta", a->meta)
                 : NULL;
}

/* The length of an open file, compared with what is listed. */
static int check_length(int fd, const char *dir, const lf_artifact_file *f, lf_err *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return lf_fail_errno(err, "cannot stat %s/%s", dir, f->path);
    if (!S_ISREG(st.st_mode))
        return lf_fail(err, LF_EFORMAT, "%s/%s is not a regular file", dir, f->path);
    if ((int64_t)st.st_size != f->bytes)
        return lf_fail(err, LF_EFORMAT, "%s/%s has %lld bytes, its manifest says %lld%s", dir,
                       f->path, (long long)st.st_size, (long long)f->bytes,
                       (int64_t)st.st_size < f->bytes ? " (cut short?)" : "");
    return 0;
}

/* fsync the directories between the artifact's own and a file, once for a run of files in the same
 * one. */
static int sync_parents(const char *dir, const char *path, const char *before, lf_err *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return 0;
    size_t n = (size_t)(slash - path);
    if (before && strncmp(before, path, n + 1) == 0 && !strchr(before + n + 1, '/'))
        return 0;
    char *p = lf_strndup(path, n, err);
    int rc = p ? 0 : LF_ENOMEM;
    while (rc == 0) {
        int fd = open_beneath(dir, p, O_RDONLY | O_DIRECTORY, err);
        rc = fd < 0 ? fd : lf_io_fsync(fd, p, err);
        if (fd >= 0)
            close(fd);
        char *up = strrchr(p, '/');
        if (!up)
            break;
        *up = 0;
    }
    free(p);
    return rc;
}

static int sync_files(const lf_artifact *a, const char *dir, lf_err *err)
{
    for (size_t i = 0; i < a->n_files; i++) {
        const lf_artifact_file *f = &a->files[i];
        int fd = open_beneath(dir, f->path, O_RDONLY, err);
        if (fd < 0)
            return fd;
        int rc = check_length(fd, dir, f, err);
        if (rc == 0 && !f->synced)
            rc = lf_io_fsync(fd, f->path, err);
        close(fd);
        if (rc < 0 || (rc = sync_parents(dir, f->path, i ? a->files[i - 1].path : NULL, err)) < 0)
            return rc;
    }
    return 0;
}

int lf_artifact_publish(lf_artifact *a, const char *dir, lf_err *err)
{
    char *path = lf_path_join(dir, LF_ARTIFACT_MANIFEST, err);
    json_t *doc = NULL;
    char *text = NULL;
    int rc = path ? 0 : LF_ENOMEM;
    if (rc < 0)
        goto out;
    if (!(doc = to_json(a)) || !(text = lf_json_dump(doc, err))) {
        rc = lf_fail(err, LF_ENOMEM,
                     "cannot form the manifest %s (no memory, or text that is not UTF-8)", path);
        goto out;
    }
    if (strlen(text) > LF_ARTIFACT_MAX_MANIFEST) {
        rc = lf_fail(err, LF_EINVAL, "the manifest %s would be too large to be read again", path);
        goto out;
    }
    if ((rc = sync_files(a, dir, err)) < 0 || (rc = lf_io_fsync_path(dir, err)) < 0)
        goto out;
    if ((rc = lf_fence_check(dir, err)) < 0)
        goto out;
    rc = lf_io_publish(path, text, strlen(text), LF_ARTIFACT_MODE, err);
out:
    free(text);
    json_decref(doc);
    free(path);
    return rc;
}

/* ---- reading ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int lf_artifact_parse_hex(uint8_t out[LF_HASH_BYTES], const char *hex, lf_err *err)
{
    uint8_t d[LF_HASH_BYTES];
    bool ok = strlen(hex) == 2 * LF_HASH_BYTES;
    for (size_t i = 0; ok && i < LF_HASH_BYTES; i++) {
        int hi = hex_digit(hex[2 * i]), lo = hex_digit(hex[2 * i + 1]);
        ok = hi >= 0 && lo >= 0;
        d[i] = ok ? (uint8_t)(hi * 16 + lo) : 0;
    }
    if (!ok)
        return lf_fail(err, LF_EFORMAT, "'%.80s' is not a SHA-256 of 64 lower-case hex digits",
                       hex);
    memcpy(out, d, sizeof d);
    return 0;
}

static int read_file_row(lf_artifact *a, json_t *row, lf_err *err)
{
    const char *path = NULL, *hex = NULL;
    int64_t bytes = 0;
    uint8_t sha[LF_HASH_BYTES];
    int rc;
    if (!json_is_object(row))
        return lf_fail(err, LF_EFORMAT, "an entry of \"files\" is no object");
    if ((rc = lf_json_get_str(&path, row, "path", true, "a file", err)) < 0 ||
        (rc = lf_json_get_i64(&bytes, row, "bytes", true, "a file", err)) < 0 ||
        (rc = lf_json_get_str(&hex, row, "tree_sha256", true, "a file", err)) < 0 ||
        (rc = lf_artifact_parse_hex(sha, hex, err)) < 0)
        return rc;
    if (a->n_files && strcmp(a->files[a->n_files - 1].path, path) >= 0)
        return lf_fail(err, LF_EFORMAT, "\"files\" is not sorted by path at '%.200s'", path);
    return lf_artifact_add(a, path, bytes, sha, err);
}

static int from_json(lf_artifact *a, json_t *doc, lf_err *err)
{
    int64_t version = 0;
    json_t *files = NULL, *meta = NULL;
    int rc;
    if (!json_is_object(doc))
        return lf_fail(err, LF_EFORMAT, "a manifest is one JSON object");
    if ((rc = lf_json_get_i64(&version, doc, "lf_manifest", true, "the manifest", err)) < 0)
        return rc;
    if (version != 1)
        return lf_fail(err, LF_ENOTSUP, "manifest version %lld; this program reads version 1",
                       (long long)version);
    if ((rc = lf_json_get_array(&files, doc, "files", true, "the manifest", err)) < 0 ||
        (rc = lf_json_get_object(&meta, doc, "meta", true, "the manifest", err)) < 0)
        return rc;
    for (size_t i = 0; i < json_array_size(files); i++)
        if ((rc = read_file_row(a, json_array_get(files, i), err)) < 0)
            return rc;
    json_decref(a->meta);
    a->meta = json_incref(meta);
    return 0;
}

int lf_artifact_load(lf_artifact *out, const char *dir, const char *kind, lf_err *err)
{
    char *path = lf_path_join(dir, LF_ARTIFACT_MANIFEST, err);
    json_t *doc = NULL;
    lf_artifact a = {0};
    const char *have = NULL;
    lf_err inner = LF_ERR_INIT;
    struct stat st;
    int rc = path ? 0 : LF_ENOMEM;
    if (rc < 0)
        goto out;
    if (lstat(path, &st) < 0) {
        rc = lf_fail_errno(err, "%s: no complete artifact there, its manifest %s cannot be read",
                           dir, path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = lf_fail(err, LF_EFORMAT, "%s is not a regular file", path);
        goto out;
    }
    if (!(doc = lf_json_load_file(path, LF_ARTIFACT_MAX_MANIFEST, &inner))) {
        rc = lf_fail(err, inner.rc, "%s", inner.text);
        goto out;
    }
    if ((rc = lf_json_get_str(&have, doc, "kind", true, "the manifest", &inner)) < 0 ||
        (rc = lf_artifact_init(&a, have, &inner)) < 0 || (rc = from_json(&a, doc, &inner)) < 0) {
        rc = lf_fail(err, rc, "%s: %.900s", path, inner.text);
        goto out;
    }
    if (kind && strcmp(kind, have) != 0) {
        rc = lf_fail(err, LF_EFORMAT, "%s holds an artifact of kind '%.100s', needed is '%s'", dir,
                     have, kind);
        goto out;
    }
    *out = a;
    a = (lf_artifact){0};
out:
    lf_artifact_fini(&a);
    json_decref(doc);
    free(path);
    return rc;
}

int lf_artifact_check_lengths(const lf_artifact *a, const char *dir, lf_err *err)
{
    for (size_t i = 0; i < a->n_files; i++) {
        int fd = open_beneath(dir, a->files[i].path, O_RDONLY, err);
        if (fd < 0)
            return fd;
        int rc = check_length(fd, dir, &a->files[i], err);
        close(fd);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int lf_artifact_state(enum lf_artifact_state *out, const char *dir, lf_err *err)
{
    lf_artifact a = {0};
    lf_err why = LF_ERR_INIT;
    enum lf_artifact_state s = LF_ARTIFACT_PRESENT;
    int rc = lf_artifact_load(&a, dir, NULL, &why);
    bool manifest = rc == 0;
    if (rc == 0)
        rc = lf_artifact_check_lengths(&a, dir, &why);
    lf_artifact_fini(&a);
    if (rc == LF_ENOENT)
        s = manifest ? LF_ARTIFACT_PURGED : LF_ARTIFACT_ABSENT;
    else if (rc == LF_EFORMAT || rc == LF_ENOTSUP)
        s = LF_ARTIFACT_BROKEN;
    else if (rc == LF_EIO && why.errnum == ENOTDIR)
        s = LF_ARTIFACT_ABSENT;
    else if (rc < 0)
        return lf_fail(err, rc, "%s", why.text);
    if (s == LF_ARTIFACT_PURGED || s == LF_ARTIFACT_BROKEN)
        lf_fail(err, rc, "%s", why.text);
    *out = s;
    return 0;
}

int lf_artifact_id(const lf_artifact *a, uint8_t out[LF_HASH_BYTES], lf_err *err)
{
    lf_hash *h = lf_hash_create(err);
    if (!h)
        return LF_ENOMEM;
    lf_hash_update(h, "lf-artifact-1", sizeof "lf-artifact-1");
    lf_hash_update(h, a->kind, strlen(a->kind) + 1);
    for (size_t i = 0; i < a->n_files; i++) {
        uint8_t le[8];
        for (int k = 0; k < 8; k++)
            le[k] = (uint8_t)((uint64_t)a->files[i].bytes >> (8 * k));
        lf_hash_update(h, a->files[i].path, strlen(a->files[i].path) + 1);
        lf_hash_update(h, le, sizeof le);
        lf_hash_update(h, a->files[i].sha256, LF_HASH_BYTES);
    }
    lf_hash_final(h, out);
    lf_hash_destroy(h);
    return 0;
}

int lf_artifact_remove(const char *dir, lf_err *err)
{
    char *path = lf_path_join(dir, LF_ARTIFACT_MANIFEST, err);
    if (!path)
        return LF_ENOMEM;
    int rc = 0;
    if (unlink(path) == 0)
        rc = lf_io_fsync_path(dir, err);
    else if (errno != ENOENT && errno != ENOTDIR)
        rc = lf_fail_errno(err, "cannot remove %s", path);
    if (rc == 0)
        rc = lf_io_remove_tree(dir, err);
    free(path);
    return rc;
}
