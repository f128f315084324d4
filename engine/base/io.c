/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: whole reads, full writes, durable publication, directory trees.
 */
#include "engine/base/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/mem.h"

int lf_io_read_file(const char *path, size_t max_bytes, lf_buf *out, lf_err *err)
{
    struct stat st;
    int rc = 0;
    /* On the stack: most files are small, and memory of that size that is freed makes malloc tidy
     * up all of its own each time. */
    char chunk[16 << 10];
    size_t total = 0, keep = out->len;
    /* Non-blocking, so that a FIFO given by mistake is refused below instead of waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return lf_fail_errno(err, "cannot open %s", path);
    if (fstat(fd, &st) < 0) {
        rc = lf_fail_errno(err, "cannot look at %s", path);
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        rc = lf_fail(err, LF_EINVAL, "%s is not a regular file", path);
        goto out;
    }
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            rc = lf_fail_errno(err, "cannot read %s", path);
            goto out;
        }
        if (n == 0)
            break;
        if ((size_t)n > max_bytes - total) {
            rc = lf_fail(err, LF_EFORMAT, "%s is larger than %zu bytes", path, max_bytes);
            goto out;
        }
        total += (size_t)n;
        lf_buf_add(out, chunk, (size_t)n);
    }
    rc = lf_buf_check(out, err);
    if (rc < 0)
        lf_err_prefix(err, "%s", path);
out:
    if (rc < 0 && out->cap) {
        out->len = keep;
        out->data[keep] = '\0';
    }
    close(fd);
    return rc;
}

int lf_io_write_all(int fd, const void *data, size_t n, const char *path, lf_err *err)
{
    const char *p = data;
    while (n) {
        ssize_t w = write(fd, p, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            if (w == 0)
                errno = ENOSPC;
            return lf_fail_errno(err, "cannot write %s", path);
        }
        p += w;
        n -= (size_t)w;
    }
    return 0;
}

int lf_io_pwrite_all(int fd, const void *data, size_t n, off_t offset, const char *path,
                     lf_err *err)
{
    const char *p = data;
    while (n) {
        ssize_t w = pwrite(fd, p, n, offset);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            if (w == 0)
                errno = ENOSPC;
            return lf_fail_errno(err, "cannot write %zu bytes at %lld of %s", n, (long long)offset,
                                 path);
        }
        p += w;
        offset += w;
        n -= (size_t)w;
    }
    return 0;
}

int lf_io_pread_all(int fd, void *data, size_t n, off_t offset, const char *path, lf_err *err)
{
    char *p = data;
    while (n) {
        ssize_t r = pread(fd, p, n, offset);
        if (r < 0 && errno == EINTR)
            continue;
        if (r < 0)
            return lf_fail_errno(err, "cannot read %zu bytes at %lld of %s", n, (long long)offset,
                                 path);
        if (r == 0)
            return lf_fail(err, LF_EFORMAT, "%s ends at byte %lld, %zu bytes too early", path,
                           (long long)offset, n);
        p += r;
        offset += r;
        n -= (size_t)r;
    }
    return 0;
}

int lf_io_fsync(int fd, const char *path, lf_err *err)
{
    int r;
    do
        r = fsync(fd);
    while (r < 0 && errno == EINTR);
    return r < 0 ? lf_fail_errno(err, "cannot sync %s to disk", path) : 0;
}

static int fsync_name(const char *path, int flags, lf_err *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    if (fd < 0)
        return lf_fail_errno(err, "cannot open %s to sync it", path);
    int rc = lf_io_fsync(fd, path, err);
    close(fd);
    return rc;
}

int lf_io_fsync_path(const char *path, lf_err *err)
{
    return fsync_name(path, 0, err);
}

/* Owned directory part of path: "." for a bare name, "/" kept. */
static char *parent_of(const char *path, lf_err *err)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n ? lf_strndup(path, n, err) : lf_strdup(".", err);
}

int lf_io_fsync_parent(const char *path, lf_err *err)
{
    char *dir = parent_of(path, err);
    if (!dir)
        return LF_ENOMEM;
    int rc = fsync_name(dir, O_DIRECTORY, err);
    free(dir);
    return rc;
}

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int make_dir(const char *path, mode_t mode, lf_err *err)
{
    if (mkdir(path, mode) == 0)
        return lf_io_fsync_parent(path, err);
    /* EROFS, EACCES: some systems answer so for a directory that exists. */
    int e = errno;
    if (is_dir(path))
        return 0;
    errno = e == EEXIST ? ENOTDIR : e;
    return lf_fail_errno(err, "cannot make directory %s", path);
}

/* From the end, because nearly always all of it is there, or all but the last name. */
static int make_dirs(char *path, mode_t mode, lf_err *err)
{
    char *slash = strrchr(path, '/');
    int rc = 0;
    if (is_dir(path))
        return 0;
    if (slash && slash != path) {
        *slash = '\0';
        rc = make_dirs(path, mode, err);
        *slash = '/';
    }
    return rc == 0 ? make_dir(path, mode, err) : rc;
}

int lf_io_mkdirs(const char *path, mode_t mode, lf_err *err)
{
    char *p = lf_strdup(path, err);
    if (!p)
        return LF_ENOMEM;
    int rc = p[0] ? make_dirs(p, mode, err) : lf_fail(err, LF_EINVAL, "empty directory name");
    free(p);
    return rc;
}

bool lf_io_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

int64_t lf_io_size(const char *path, lf_err *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return lf_fail_errno(err, "cannot look at %s", path);
    return st.st_size;
}

/* A name beside path that no other process uses: pid alone repeats on another node. */
static char *tmp_name(const char *path, lf_err *err)
{
    struct timespec ts;
    char host[65] = "";
    lf_buf b;
    lf_buf_init(&b);
    clock_gettime(CLOCK_REALTIME, &ts);
    if (gethostname(host, sizeof host - 1) < 0)
        host[0] = '\0';
    unsigned long long h = 1469598103934665603ull;
    for (const char *s = host; *s; s++)
        h = (h ^ (unsigned char)*s) * 1099511628211ull;
    lf_buf_addf(&b, "%s.%llx-%lx-%llx.tmp", path, h & 0xffffffff, (long)getpid(),
                (unsigned long long)ts.tv_sec * 1000000000ull + (unsigned long long)ts.tv_nsec);
    char *name = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return name;
}

/* A new synced file with this content at an unused name; *name is owned, and set only on success.
 * Failures name path: whoever asked for that knows nothing of another name. */
static int write_tmp(char **name, const char *path, const void *data, size_t n, mode_t mode,
                     lf_err *err)
{
    int fd = -1, rc = 0;
    char *tmp = tmp_name(path, err);
    if (!tmp)
        return LF_ENOMEM;
    fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0) {
        rc = lf_fail_errno(err, "cannot create %s", path);
        free(tmp);
        return rc;
    }
    rc = lf_io_write_all(fd, data, n, path, err);
    if (rc == 0)
        rc = lf_io_fsync(fd, path, err);
    if (close(fd) < 0 && rc == 0)
        rc = lf_fail_errno(err, "cannot close %s", path);
    if (rc < 0) {
        unlink(tmp);
        free(tmp);
        return rc;
    }
    *name = tmp;
    return 0;
}

int lf_io_write_file(const char *path, const void *data, size_t n, mode_t mode, lf_err *err)
{
    if (unlink(path) < 0 && errno != ENOENT)
        return lf_fail_errno(err, "cannot replace %s", path);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (fd < 0)
        return lf_fail_errno(err, "cannot create %s", path);
    int rc = lf_io_write_all(fd, data, n, path, err);
    if (close(fd) < 0 && rc == 0)
        rc = lf_fail_errno(err, "cannot close %s", path);
    return rc;
}

/* link(2) may succeed on an NFS server while the answer is lost and the retry says EEXIST: the link
 * count of the temporary file tells (open(2), "O_EXCL"). */
static int link_new(const char *tmp, const char *path, lf_err *err)
{
    struct stat a, b;
    if (link(tmp, path) == 0)
        return 0;
    int e = errno;
    if (e == EEXIST && stat(tmp, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
        a.st_dev == b.st_dev)
        return 0;
    errno = e;
    if (e == EEXIST)
        return lf_fail(err, LF_EEXIST, "%s exists already and is left as it is", path);
    return lf_fail_errno(err, "cannot publish %s", path);
}

int lf_io_publish(const char *path, const void *data, size_t n, mode_t mode, lf_err *err)
{
    char *tmp = NULL;
    int rc = write_tmp(&tmp, path, data, n, mode, err);
    if (rc < 0)
        return rc;
    rc = link_new(tmp, path, err);
    if (unlink(tmp) < 0 && rc == 0)
        rc = lf_fail_errno(err, "cannot remove %s", tmp);
    if (rc == 0)
        rc = lf_io_fsync_parent(path, err);
    free(tmp);
    return rc;
}

/* Is name one that tmp_name made of base? */
static bool is_tmp_of(const char *name, const char *base)
{
    const size_t n = strlen(name), b = strlen(base);
    return n > b + 5 && strncmp(name, base, b) == 0 && name[b] == '.' &&
           strcmp(name + n - 4, ".tmp") == 0;
}

int lf_io_tidy(const char *path, lf_err *err)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? lf_strndup(path, (size_t)(slash - path) + 1, err) : lf_strdup(".", err);
    DIR *d = dir ? opendir(dir) : NULL;
    int rc = !dir                   ? LF_ENOMEM
             : d || errno == ENOENT ? 0
                                    : lf_fail_errno(err, "cannot list %s", dir);
    for (struct dirent *e; d && rc == 0 && (e = readdir(d));)
        if (is_tmp_of(e->d_name, slash ? slash + 1 : path) &&
            unlinkat(dirfd(d), e->d_name, 0) < 0 && errno != ENOENT)
            rc = lf_fail_errno(err, "cannot remove %s%s", dir, e->d_name);
    if (d)
        closedir(d);
    free(dir);
    return rc;
}

int lf_io_publish_tmp(const char *tmp_path, const char *path, lf_err *err)
{
    int rc = lf_io_fsync_path(tmp_path, err);
    if (rc == 0)
        rc = link_new(tmp_path, path, err);
    if (rc == 0)
        rc = lf_io_fsync_parent(
            path, err); /* before the old name goes: it may hold what was promised already */
    if (rc == 0 && unlink(tmp_path) < 0)
        rc = lf_fail_errno(err, "cannot remove %s", tmp_path);
    return rc;
}

int lf_io_replace(const char *path, const void *data, size_t n, mode_t mode, lf_err *err)
{
    char *tmp = NULL;
    int rc = write_tmp(&tmp, path, data, n, mode, err);
    if (rc < 0)
        return rc;
    if (rename(tmp, path) < 0) {
        rc = lf_fail_errno(err, "cannot replace %s", path);
        unlink(tmp);
    } else {
        rc = lf_io_fsync_parent(path, err);
    }
    free(tmp);
    return rc;
}

/* Remove everything in the directory open at fd (taken). depth bounds open descriptors. */
static int remove_inside(int fd, const char *path, int depth, lf_err *err)
{
    int rc = 0;
    DIR *d = fdopendir(fd);
    if (!d) {
        rc = lf_fail_errno(err, "cannot list %s", path);
        close(fd);
        return rc;
    }
    if (depth > 64)
        rc = lf_fail(err, LF_EINVAL, "%s lies more than 64 directories deep", path);
    while (rc == 0) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e) {
            if (errno)
                rc = lf_fail_errno(err, "cannot list %s", path);
            break;
        }
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (unlinkat(dirfd(d), e->d_name, 0) == 0 || errno == ENOENT)
            continue;
        int e_unlink = errno;
        int sub = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        char *name = lf_path_join(path, e->d_name, err);
        if (!name) {
            rc = LF_ENOMEM;
        } else if (sub < 0) {
            if (errno == ENOTDIR || errno == ELOOP)
                errno = e_unlink;
            rc = lf_fail_errno(err, "cannot remove %s", name);
        } else {
            rc = remove_inside(sub, name, depth + 1, err);
            sub = -1;
            if (rc == 0 && unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR) < 0)
                rc = lf_fail_errno(err, "cannot remove %s", name);
        }
        if (sub >= 0)
            close(sub);
        free(name);
    }
    closedir(d);
    return rc;
}

int lf_io_remove_tree(const char *path, lf_err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENOENT)
            return 0;
        if ((errno == ENOTDIR || errno == ELOOP) && unlink(path) == 0)
            return 0;
        return lf_fail_errno(err, "cannot remove %s", path);
    }
    int rc = remove_inside(fd, path, 0, err);
    if (rc == 0 && rmdir(path) < 0)
        rc = lf_fail_errno(err, "cannot remove %s", path);
    return rc;
}

char *lf_path_join(const char *dir, const char *name, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_adds(&b, dir);
    if (b.len && b.data[b.len - 1] != '/')
        lf_buf_addc(&b, '/');
    lf_buf_adds(&b, name);
    char *p = lf_buf_steal(&b, err);
    lf_buf_fini(&b);
    return p;
}

/* ---- taking a file over ---- */

#define COPY_BYTES ((size_t)4 << 20)

static int copy_bytes(int in, int out, const char *from, const char *to, lf_err *err)
{
    char *buf = lf_malloc(COPY_BYTES, 1, err);
    int rc = buf ? 0 : LF_ENOMEM;
    while (rc == 0) {
        ssize_t n = read(in, buf, COPY_BYTES);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            rc = lf_fail_errno(err, "cannot read %s", from);
        if (n <= 0)
            break;
        rc = lf_io_write_all(out, buf, (size_t)n, to, err);
    }
    free(buf);
    return rc == 0 ? lf_io_fsync(out, to, err) : rc;
}

int lf_io_copy(const char *from, const char *to, mode_t mode, lf_err *err)
{
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), rc = 0;
    if (in < 0)
        return lf_fail_errno(err, "cannot open %s", from);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (out < 0) {
        rc = lf_fail_errno(err, "cannot create %s", to);
    } else {
        rc = copy_bytes(in, out, from, to, err);
        if (close(out) < 0 && rc == 0)
            rc = lf_fail_errno(err, "cannot close %s", to);
        if (rc < 0)
            unlink(to);
    }
    close(in);
    return rc;
}

int lf_io_link_or_copy(const char *from, const char *to, mode_t mode, lf_err *err)
{
    if (link(from, to) == 0)
        return 0;
    if (errno == ENOENT || errno == EEXIST)
        return lf_fail_errno(err, "cannot link %s to %s", from, to);
    return lf_io_copy(from, to, mode, err);
}
