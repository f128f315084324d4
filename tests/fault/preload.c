/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD library: writes down every change that the process makes to files below LF_TRACE_ROOT
 * (trace.h). A call succeeds first, then it is written down, both under one lock, so the trace has
 * the order of the calls.
 */
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "tests/fault/trace.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int trace_fd = -2;
static char root[PATH_MAX];
static size_t root_len;

#define REAL(name)                                                                                 \
    static __typeof__(name) *real;                                                                 \
    if (!real)                                                                                     \
    *(void **)&real = dlsym(RTLD_NEXT, #name)

static void start(void)
{
    if (trace_fd != -2)
        return;
    const char *file = getenv("LF_TRACE"), *dir = getenv("LF_TRACE_ROOT");
    trace_fd = -1;
    if (!file || !dir || !realpath(dir, root))
        return;
    root_len = strlen(root);
    trace_fd =
        (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static void put(const void *p, size_t n)
{
    for (const char *c = p; n > 0;) {
        ssize_t k = syscall(SYS_write, trace_fd, c, n);
        if (k <= 0)
            abort();
        c += k;
        n -= (size_t)k;
    }
}

static void record(uint32_t op, const char *path, const char *path2, uint64_t ino, int64_t offset,
                   const void *data, size_t len)
{
    struct trace_rec r = {op,
                          path ? (uint32_t)strlen(path) : 0,
                          path2 ? (uint32_t)strlen(path2) : 0,
                          (uint32_t)len,
                          ino,
                          offset};
    put(&r, sizeof r);
    put(path, r.path_len);
    put(path2, r.path2_len);
    put(data, len);
}

/* Path of dirfd + name relative to the root, into buf; NULL when it lies elsewhere. The last
 * component need not exist. */
static const char *below(int dirfd, const char *name, char buf[PATH_MAX])
{
    char dir[PATH_MAX], full[2 * PATH_MAX];
    start();
    if (trace_fd < 0 || !name)
        return NULL;
    if (name[0] == '/') {
        snprintf(full, sizeof full, "%s", name);
    } else if (dirfd == AT_FDCWD) {
        if (!getcwd(dir, sizeof dir))
            return NULL;
        snprintf(full, sizeof full, "%s/%s", dir, name);
    } else {
        char link[64];
        snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
        ssize_t n = readlink(link, dir, sizeof dir - 1);
        if (n < 0)
            return NULL;
        dir[n] = 0;
        snprintf(full, sizeof full, "%s/%s", dir, name);
    }
    size_t len = strlen(full);
    while (len > 1 && full[len - 1] == '/')
        full[--len] = 0;
    /* the directory is resolved, the last name is kept (it may be a link or missing) */
    char *slash = strrchr(full, '/'), parent[PATH_MAX], *base = slash + 1;
    if (!slash || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
        return NULL;
    *slash = 0;
    if (!realpath(full[0] ? full : "/", parent))
        return NULL;
    if (strncmp(parent, root, root_len) != 0 || (parent[root_len] && parent[root_len] != '/'))
        return NULL;
    const char *rel = parent + root_len + (parent[root_len] == '/');
    if ((size_t)snprintf(buf, PATH_MAX, "%s%s%s", rel, *rel ? "/" : "", base) >= PATH_MAX)
        abort();
    return buf;
}

static const char *fd_path(int fd, char buf[PATH_MAX])
{
    char link[64];
    start();
    if (trace_fd < 0)
        return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, buf, PATH_MAX - 1);
    if (n < 0)
        return NULL;
    buf[n] = 0;
    if (strncmp(buf, root, root_len) != 0 || (buf[root_len] && buf[root_len] != '/'))
        return NULL;
    return buf[root_len] ? buf + root_len + 1 : "";
}

static uint64_t ino_of(int fd, int *dir)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        abort();
    if (dir)
        *dir = S_ISDIR(st.st_mode);
    return st.st_ino;
}

static uint64_t ino_at(int dirfd, const char *name)
{
    struct stat st;
    return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
}

/* ---- open ---- */

static int traced_open(int dirfd, const char *name, int flags, mode_t mode)
{
    char buf[PATH_MAX];
    pthread_mutex_lock(&lock);
    const char *rel = flags & (O_CREAT | O_TRUNC) ? below(dirfd, name, buf) : NULL;
    int existed = rel && ino_at(dirfd, name) != 0;
    int fd = (int)syscall(SYS_openat, dirfd, name, flags, mode), e = errno;
    if (fd >= 0 && rel) {
        if (!existed)
            record(TRACE_CREATE, rel, NULL, ino_of(fd, NULL), 0, NULL, 0);
        else if (flags & O_TRUNC)
            record(TRACE_TRUNCATE, NULL, NULL, ino_of(fd, NULL), 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    errno = e;
    return fd;
}

#define MODE(flags)                                                                                \
    mode_t mode = 0;                                                                               \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                       \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode = va_arg(ap, mode_t);                                                                 \
        va_end(ap);                                                                                \
    }

int open(const char *name, int flags, ...)
{
    MODE(flags) return traced_open(AT_FDCWD, name, flags, mode);
}
int open64(const char *name, int flags, ...)
{
    MODE(flags) return traced_open(AT_FDCWD, name, flags, mode);
}
int openat(int d, const char *name, int flags, ...)
{
    MODE(flags) return traced_open(d, name, flags, mode);
}
int openat64(int d, const char *name, int flags, ...)
{
    MODE(flags) return traced_open(d, name, flags, mode);
}
int creat(const char *name, mode_t mode)
{
    return traced_open(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode);
}
int __open_2(const char *name, int flags);
int __open64_2(const char *name, int flags);
int __openat_2(int d, const char *name, int flags);
int __openat64_2(int d, const char *name, int flags);
int __open_2(const char *name, int flags)
{
    return traced_open(AT_FDCWD, name, flags, 0);
}
int __open64_2(const char *name, int flags)
{
    return traced_open(AT_FDCWD, name, flags, 0);
}
int __openat_2(int d, const char *name, int flags)
{
    return traced_open(d, name, flags, 0);
}
int __openat64_2(int d, const char *name, int flags)
{
    return traced_open(d, name, flags, 0);
}

/* ---- data ---- */

static void wrote(int fd, int64_t offset, const void *data, size_t n)
{
    char buf[PATH_MAX];
    if (fd_path(fd, buf))
        record(TRACE_WRITE, NULL, NULL, ino_of(fd, NULL), offset, data, n);
}

ssize_t write(int fd, const void *data, size_t n)
{
    pthread_mutex_lock(&lock);
    ssize_t k = syscall(SYS_write, fd, data, n);
    int e = errno;
    if (k > 0)
        wrote(fd, (int64_t)lseek(fd, 0, SEEK_CUR) - k, data, (size_t)k);
    pthread_mutex_unlock(&lock);
    errno = e;
    return k;
}

static ssize_t traced_pwrite(int fd, const void *data, size_t n, off_t off)
{
    pthread_mutex_lock(&lock);
    ssize_t k = syscall(SYS_pwrite64, fd, data, n, off);
    int e = errno;
    if (k > 0)
        wrote(fd, off, data, (size_t)k);
    pthread_mutex_unlock(&lock);
    errno = e;
    return k;
}
ssize_t pwrite(int fd, const void *data, size_t n, off_t off)
{
    return traced_pwrite(fd, data, n, off);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t off)
{
    return traced_pwrite(fd, data, n, off);
}

static int traced_truncate(int fd, off_t len)
{
    char buf[PATH_MAX];
    pthread_mutex_lock(&lock);
    int rc = (int)syscall(SYS_ftruncate, fd, len), e = errno;
    if (rc == 0 && fd_path(fd, buf))
        record(TRACE_TRUNCATE, NULL, NULL, ino_of(fd, NULL), len, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = e;
    return rc;
}
int ftruncate(int fd, off_t len)
{
    return traced_truncate(fd, len);
}
int ftruncate64(int fd, off64_t len)
{
    return traced_truncate(fd, len);
}

/* Which line of the code this fsync is: the two innermost callers outside this library, as offsets
 * into their program. */
static uint64_t call_site(void)
{
    void *frames[8];
    Dl_info here, there;
    uint64_t site = 0;
    int n = backtrace(frames, 8), taken = 0;
    if (!dladdr(*(void **)&(void *){(void *)call_site}, &here))
        return 0;
    for (int i = 0; i < n && taken < 2; i++)
        if (dladdr(frames[i], &there) && there.dli_fbase != here.dli_fbase) {
            site = site * 1000003u + (uint64_t)((char *)frames[i] - (char *)there.dli_fbase);
            taken++;
        }
    return site;
}

static int traced_fsync(int fd)
{
    char buf[PATH_MAX];
    int rc = 0, dir = 0;
    pthread_mutex_lock(&lock);
    const char *rel = fd_path(fd, buf);
    if (rel) {
        uint64_t ino = ino_of(fd, &dir);
        record(TRACE_FSYNC, dir ? (*rel ? rel : ".") : NULL, NULL, ino, (int64_t)call_site(), NULL,
               0);
    }
    pthread_mutex_unlock(&lock);
    if (!rel)
        rc = (int)syscall(SYS_fsync, fd);
    return rc;
}
int fsync(int fd)
{
    return traced_fsync(fd);
}
int fdatasync(int fd)
{
    return traced_fsync(fd);
}

/* ---- names ---- */

static int traced_link(int d1, const char *a, int d2, const char *b, int flags)
{
    char buf[PATH_MAX];
    pthread_mutex_lock(&lock);
    int rc = (int)syscall(SYS_linkat, d1, a, d2, b, flags), e = errno;
    const char *rel = rc == 0 ? below(d2, b, buf) : NULL;
    if (rel)
        record(TRACE_LINK, NULL, rel, ino_at(d2, b), 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = e;
    return rc;
}
int link(const char *a, const char *b)
{
    return traced_link(AT_FDCWD, a, AT_FDCWD, b, 0);
}
int linkat(int d1, const char *a, int d2, const char *b, int flags)
{
    return traced_link(d1, a, d2, b, flags);
}

static int traced_unlink(int d, const char *name, int flags)
{
    char buf[PATH_MAX];
    pthread_mutex_lock(&lock);
    const char *rel = below(d, name, buf);
    int rc = (int)syscall(SYS_unlinkat, d, name, flags), e = errno;
    if (rc == 0 && rel)
        record(flags & AT_REMOVEDIR ? TRACE_RMDIR : TRACE_UNLINK, rel, NULL, 0, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = e;
    return rc;
}
int unlink(const char *name)
{
    return traced_unlink(AT_FDCWD, name, 0);
}
int unlinkat(int d, const char *name, int flags)
{
    return traced_unlink(d, name, flags);
}
int rmdir(const char *name)
{
    return traced_unlink(AT_FDCWD, name, AT_REMOVEDIR);
}
int remove(const char *name)
{
    struct stat st;
    return traced_unlink(AT_FDCWD, name,
                         lstat(name, &st) == 0 && S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0);
}

static int traced_rename(int d1, const char *a, int d2, const char *b)
{
    char from[PATH_MAX], to[PATH_MAX];
    pthread_mutex_lock(&lock);
    const char *x = below(d1, a, from);
    int rc = (int)syscall(SYS_renameat, d1, a, d2, b), e = errno;
    const char *y = rc == 0 ? below(d2, b, to) : NULL;
    if (x && y)
        record(TRACE_RENAME, x, y, ino_at(d2, b), 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = e;
    return rc;
}
int rename(const char *a, const char *b)
{
    return traced_rename(AT_FDCWD, a, AT_FDCWD, b);
}
int renameat(int d1, const char *a, int d2, const char *b)
{
    return traced_rename(d1, a, d2, b);
}

static int traced_mkdir(int d, const char *name, mode_t mode)
{
    char buf[PATH_MAX];
    pthread_mutex_lock(&lock);
    int rc = (int)syscall(SYS_mkdirat, d, name, mode), e = errno;
    const char *rel = rc == 0 ? below(d, name, buf) : NULL;
    if (rel)
        record(TRACE_MKDIR, rel, NULL, ino_at(d, name), 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    errno = e;
    return rc;
}
int mkdir(const char *name, mode_t mode)
{
    return traced_mkdir(AT_FDCWD, name, mode);
}
int mkdirat(int d, const char *name, mode_t mode)
{
    return traced_mkdir(d, name, mode);
}

/* Changes that are not modelled must not pass unseen. */
static void refuse(int fd, const char *what)
{
    char buf[PATH_MAX];
    if (fd_path(fd, buf)) {
        dprintf(2, "trace: %s on %s is not modelled\n", what, buf);
        abort();
    }
}
int posix_fallocate(int fd, off_t a, off_t n)
{
    refuse(fd, "posix_fallocate");
    REAL(posix_fallocate);
    return real(fd, a, n);
}
ssize_t writev(int fd, const struct iovec *v, int n)
{
    refuse(fd, "writev");
    return syscall(SYS_writev, fd, v, n);
}

/* A promise of the traced program: access("/lf-trace-mark/TEXT"). */
int access(const char *name, int mode)
{
    static const char prefix[] = "/lf-trace-mark/";
    pthread_mutex_lock(&lock);
    start();
    if (trace_fd >= 0 && strncmp(name, prefix, sizeof prefix - 1) == 0)
        record(TRACE_MARK, name + sizeof prefix - 1, NULL, 0, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return (int)syscall(SYS_faccessat, AT_FDCWD, name, mode);
}
