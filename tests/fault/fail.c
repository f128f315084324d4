/* SPDX-License-Identifier: Apache-2.0
 *
 * LD_PRELOAD library: makes the n-th change that a process makes to files below a directory fail,
 * or kills the process there.
 *
 *   LF_FAIL_ROOT     count calls on files below this directory
 *   LF_FAIL_PROGRAM  only in processes whose command line contains this; unset: in all
 *   LF_FAIL_AFTER    the number of the call, from 1; 0 or unset: none, only count
 *   LF_FAIL_ACTION   enospc   this call and every later one that needs space fail, a write after
 *                    half of its bytes
 *                    eio      this call alone fails, nothing of it is done
 *                    kill     the process is killed before the call
 *                    erofs    this call and every later one fail, as on a filesystem that is
 *                             mounted read-only
 *                    killall  so are its parent (the wrapper of a stage) and the parent of that
 *                             (loong-flow), all before it
 *                    term     the process gets SIGTERM, the call is done
 *                    stop     the process is stopped before the call, which is done when it gets
 *                             SIGCONT
 *   LF_FAIL_MATCH    count only calls whose "name path" fits this pattern of fnmatch(3), as in
 *                    "link *manifest.json"
 *   LF_FAIL_SIZE     count only calls on files that have at least so many bytes
 *   LF_FAIL_ONCE     a file that the first process to reach its call makes; where it exists nothing
 *                    fails any more
 *   LF_FAIL_LOG      a file to which every counted call is added as "number name path"
 *   LF_FAIL_DELAY    microseconds that every counted call takes longer, to make a short stage one
 *                    that can be hit
 *   LF_FAIL_CLOCK    seconds that the clock of the day is ahead (of every process, whatever
 *                    LF_FAIL_PROGRAM says)
 *   LF_FAIL_LOCKS    set: every lock of a file (fcntl, flock) fails with ENOLCK, as where no lock
 *                    daemon runs
 *
 * Counted are calls that make, fill, cut, name, rename or sync a file or directory, and with eio
 * and kill those that remove one.
 */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum action { NONE, ENOSPC_STAYS, EIO_ONCE, KILL, KILL_ALL, TERM, READ_ONLY, STOP };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char root[PATH_MAX];
static size_t root_len;
static enum action action;
static long after, calls, delay_us, min_size;
static int full, read_only, log_fd = -1, started, no_locks;

static int read_file(const char *path, char *buf, size_t cap)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
    ssize_t n = fd < 0 ? -1 : syscall(SYS_read, fd, buf, cap - 1);
    if (fd >= 0)
        syscall(SYS_close, fd);
    buf[n > 0 ? n : 0] = 0;
    return (int)n;
}

static int my_program(const char *want)
{
    char line[8192];
    int n = read_file("/proc/self/cmdline", line, sizeof line);
    for (int i = 0; i < n; i++)
        line[i] = line[i] ? line[i] : ' ';
    return strstr(line, want) != NULL;
}

static void start(void)
{
    static const char *const names[] = {"none",    "enospc", "eio",   "kill",
                                        "killall", "term",   "erofs", "stop"};
    const char *dir = getenv("LF_FAIL_ROOT"), *program = getenv("LF_FAIL_PROGRAM"),
               *n = getenv("LF_FAIL_AFTER");
    const char *what = getenv("LF_FAIL_ACTION"), *file = getenv("LF_FAIL_LOG");
    started = 1;
    no_locks = getenv("LF_FAIL_LOCKS") != NULL;
    if (!dir || !realpath(dir, root) || (program && !my_program(program)))
        return;
    root_len = strlen(root);
    after = n ? strtol(n, NULL, 10) : 0;
    min_size = getenv("LF_FAIL_SIZE") ? strtol(getenv("LF_FAIL_SIZE"), NULL, 10) : 0;
    delay_us = getenv("LF_FAIL_DELAY") ? strtol(getenv("LF_FAIL_DELAY"), NULL, 10) : 0;
    for (int i = 0; what && i < (int)(sizeof names / sizeof names[0]); i++)
        if (strcmp(what, names[i]) == 0)
            action = (enum action)i;
    if (file)
        log_fd = (int)syscall(SYS_openat, AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC,
                              0600);
}

static const char *fd_path(int fd, char buf[PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, buf, PATH_MAX - 1);
    buf[n > 0 ? n : 0] = 0;
    return buf;
}

/* Absolute path of a name, its directory resolved. */
static const char *name_path(int dirfd, const char *name, char buf[PATH_MAX])
{
    char dir[PATH_MAX], full_name[2 * PATH_MAX + 2], parent[PATH_MAX];
    if (name[0] == '/')
        snprintf(full_name, sizeof full_name, "%s", name);
    else if (dirfd == AT_FDCWD)
        snprintf(full_name, sizeof full_name, "%s/%s", getcwd(dir, sizeof dir) ? dir : "", name);
    else
        snprintf(full_name, sizeof full_name, "%s/%s", fd_path(dirfd, dir), name);
    char *slash = strrchr(full_name, '/');
    *slash = 0;
    buf[0] = 0;
    if (realpath(full_name[0] ? full_name : "/", parent) &&
        snprintf(buf, PATH_MAX, "%s/%s", parent, slash + 1) >= PATH_MAX)
        buf[0] = 0;
    return buf;
}

static int below_root(const char *path)
{
    return root_len && strncmp(path, root, root_len) == 0 &&
           (path[root_len] == '/' || path[root_len] == 0);
}

static pid_t parent_of(pid_t pid)
{
    char file[64], text[512];
    snprintf(file, sizeof file, "/proc/%d/stat", (int)pid);
    if (read_file(file, text, sizeof text) <= 0)
        return 0;
    const char *end = strrchr(text, ')');
    return end ? (pid_t)strtol(end + 4, NULL, 10) : 0;
}

static int first_to_come(void)
{
    const char *once = getenv("LF_FAIL_ONCE");
    return !once ||
           syscall(SYS_openat, AT_FDCWD, once, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600) >= 0;
}

static void die(void)
{
    pid_t wrapper = getppid(), driver = wrapper > 1 ? parent_of(wrapper) : 0;
    if (action == KILL_ALL && driver > 1)
        kill(driver, SIGKILL);
    if (action == KILL_ALL && wrapper > 1)
        kill(wrapper, SIGKILL);
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

static int large_enough(const char *path)
{
    struct stat st;
    return min_size <= 0 ||
           (syscall(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 && st.st_size >= min_size);
}

/* One call on path. Returns 0 to go on, or the errno that it fails with. Under the lock. */
static int count(const char *what, const char *path, int needs_space)
{
    char line[PATH_MAX + 64];
    if (!below_root(path) || (action == ENOSPC_STAYS && !needs_space))
        return 0;
    snprintf(line, sizeof line, "%s %s", what, path + root_len);
    if (getenv("LF_FAIL_MATCH") && fnmatch(getenv("LF_FAIL_MATCH"), line, 0) != 0)
        return 0;
    if (!large_enough(path))
        return 0;
    calls++;
    if (delay_us > 0)
        usleep((useconds_t)delay_us);
    if (log_fd >= 0) {
        int n = snprintf(line, sizeof line, "%ld %s %s\n", calls, what, path + root_len);
        syscall(SYS_write, log_fd, line, (size_t)n);
    }
    if (full)
        return ENOSPC;
    if (read_only)
        return EROFS;
    if (calls != after || action == NONE || !first_to_come())
        return 0;
    if (action == KILL || action == KILL_ALL)
        die();
    if (action == TERM) {
        kill(getpid(), SIGTERM);
        return 0;
    }
    if (action ==
        /* to this thread: another one would be stopped a moment later, and the call done by then */
        STOP) {
        syscall(SYS_tgkill, getpid(), (pid_t)syscall(SYS_gettid), SIGSTOP);
        return 0;
    }
    full = action == ENOSPC_STAYS;
    read_only = action == READ_ONLY;
    return action == EIO_ONCE ? EIO : action == READ_ONLY ? EROFS : ENOSPC;
}

static int count_fd(const char *what, int fd, int needs_space)
{
    char buf[PATH_MAX];
    if (!started)
        start();
    return root_len ? count(what, fd_path(fd, buf), needs_space) : 0;
}

static int count_name(const char *what, int dirfd, const char *name, int needs_space)
{
    char buf[PATH_MAX];
    if (!started)
        start();
    return root_len ? count(what, name_path(dirfd, name, buf), needs_space) : 0;
}

/* Runs `call` unless `counted` fails. */
#define GUARD(type, counted, call)                                                                 \
    pthread_mutex_lock(&lock);                                                                     \
    int e = (counted);                                                                             \
    pthread_mutex_unlock(&lock);                                                                   \
    if (e) {                                                                                       \
        errno = e;                                                                                 \
        return (type)-1;                                                                           \
    }                                                                                              \
    return (type)(call)

/* ---- open ---- */

static int guarded_open(int d, const char *name, int flags, mode_t mode)
{
    struct stat st;
    int makes =
        (flags & O_TRUNC) || ((flags & O_CREAT) && syscall(SYS_newfstatat, d, name, &st, 0) != 0);
    GUARD(int, makes ? count_name("open", d, name, 1) : 0,
          syscall(SYS_openat, d, name, flags, mode));
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
    MODE(flags) return guarded_open(AT_FDCWD, name, flags, mode);
}
int open64(const char *name, int flags, ...)
{
    MODE(flags) return guarded_open(AT_FDCWD, name, flags, mode);
}
int openat(int d, const char *name, int flags, ...)
{
    MODE(flags) return guarded_open(d, name, flags, mode);
}
int openat64(int d, const char *name, int flags, ...)
{
    MODE(flags) return guarded_open(d, name, flags, mode);
}
int __open_2(const char *name, int flags);
int __open64_2(const char *name, int flags);
int __openat_2(int d, const char *name, int flags);
int __openat64_2(int d, const char *name, int flags);
int __open_2(const char *name, int flags)
{
    return guarded_open(AT_FDCWD, name, flags, 0);
}
int __open64_2(const char *name, int flags)
{
    return guarded_open(AT_FDCWD, name, flags, 0);
}
int __openat_2(int d, const char *name, int flags)
{
    return guarded_open(d, name, flags, 0);
}
int __openat64_2(int d, const char *name, int flags)
{
    return guarded_open(d, name, flags, 0);
}

/* ---- data ---- */

/* A full disk takes the first half. */
static size_t fitting(int e, size_t n)
{
    return e == ENOSPC && full == 1 ? (full = 2, n / 2) : 0;
}

ssize_t write(int fd, const void *data, size_t n)
{
    pthread_mutex_lock(&lock);
    int e = count_fd("write", fd, 1);
    size_t half = fitting(e, n);
    pthread_mutex_unlock(&lock);
    if (e && !half) {
        errno = e;
        return -1;
    }
    return syscall(SYS_write, fd, data, e ? half : n);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    pthread_mutex_lock(&lock);
    int e = count_fd("pwrite", fd, 1);
    size_t half = fitting(e, n);
    pthread_mutex_unlock(&lock);
    if (e && !half) {
        errno = e;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, data, e ? half : n, at);
}
ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at)
{
    return pwrite(fd, data, n, at);
}
ssize_t writev(int fd, const struct iovec *v, int n)
{
    GUARD(ssize_t, count_fd("writev", fd, 1), syscall(SYS_writev, fd, v, n));
}
int ftruncate(int fd, off_t n)
{
    GUARD(int, count_fd("ftruncate", fd, 1), syscall(SYS_ftruncate, fd, n));
}
int ftruncate64(int fd, off64_t n)
{
    return ftruncate(fd, n);
}
int fsync(int fd)
{
    GUARD(int, count_fd("fsync", fd, 1), syscall(SYS_fsync, fd));
}
int fdatasync(int fd)
{
    GUARD(int, count_fd("fdatasync", fd, 1), syscall(SYS_fdatasync, fd));
}
int posix_fallocate(int fd, off_t at, off_t n)
{
    pthread_mutex_lock(&lock);
    int e = count_fd("posix_fallocate", fd, 1);
    pthread_mutex_unlock(&lock);
    return e ? e : syscall(SYS_fallocate, fd, 0, at, n) == 0 ? 0 : errno;
}

/* ---- names ---- */

int linkat(int d1, const char *a, int d2, const char *b, int flags)
{
    GUARD(int, count_name("link", d2, b, 1), syscall(SYS_linkat, d1, a, d2, b, flags));
}
int link(const char *a, const char *b)
{
    return linkat(AT_FDCWD, a, AT_FDCWD, b, 0);
}
int renameat(int d1, const char *a, int d2, const char *b)
{
    GUARD(int, count_name("rename", d2, b, 1), syscall(SYS_renameat, d1, a, d2, b));
}
int rename(const char *a, const char *b)
{
    return renameat(AT_FDCWD, a, AT_FDCWD, b);
}
int mkdirat(int d, const char *name, mode_t mode)
{
    struct stat st; /* a directory that is there needs nothing */
    int makes = syscall(SYS_newfstatat, d, name, &st, 0) != 0;
    GUARD(int, makes ? count_name("mkdir", d, name, 1) : 0, syscall(SYS_mkdirat, d, name, mode));
}
int mkdir(const char *name, mode_t mode)
{
    return mkdirat(AT_FDCWD, name, mode);
}
int unlinkat(int d, const char *name, int flags)
{
    struct stat st;
    int there = syscall(SYS_newfstatat, d, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    GUARD(int, there ? count_name("unlink", d, name, 0) : 0, syscall(SYS_unlinkat, d, name, flags));
}
int unlink(const char *name)
{
    return unlinkat(AT_FDCWD, name, 0);
}
int rmdir(const char *name)
{
    return unlinkat(AT_FDCWD, name, AT_REMOVEDIR);
}

/* ---- time ---- */

static time_t clock_off(void)
{
    static time_t off;
    static int known;
    if (!known) {
        const char *s = getenv("LF_FAIL_CLOCK");
        off = s ? (time_t)strtol(s, NULL, 10) : 0;
        known = 1;
    }
    return off;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    int rc = (int)syscall(SYS_clock_gettime, id, t);
    if (rc == 0 && id == CLOCK_REALTIME)
        t->tv_sec += clock_off();
    return rc;
}

time_t time(time_t *out)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = t.tv_sec;
    return t.tv_sec;
}

/* ---- locks ---- */

static int is_lock(int cmd)
{
    return cmd == F_SETLK || cmd == F_SETLKW || cmd == F_OFD_SETLK || cmd == F_OFD_SETLKW;
}

static int guarded_fcntl(int fd, int cmd, void *arg)
{
    if (!started)
        start();
    if (no_locks && is_lock(cmd)) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_fcntl, fd, cmd, arg);
}
#define ARG                                                                                        \
    va_list ap;                                                                                    \
    va_start(ap, cmd);                                                                             \
    void *arg = va_arg(ap, void *);                                                                \
    va_end(ap);
int fcntl(int fd, int cmd, ...)
{
    ARG return guarded_fcntl(fd, cmd, arg);
}
int fcntl64(int fd, int cmd, ...);
int fcntl64(int fd, int cmd, ...)
{
    ARG return guarded_fcntl(fd, cmd, arg);
}
int flock(int fd, int op);
int flock(int fd, int op)
{
    if (!started)
        start();
    if (no_locks) {
        errno = ENOLCK;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, op);
}
