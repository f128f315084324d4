/* SPDX-License-Identifier: Apache-2.0
 *
 * The process: stop requests, clocks, log lines, progress. The state below belongs to the process,
 * not to a caller: signal handlers and the terminal exist once.
 */
#include "engine/base/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/busy.h"
#include "engine/base/cause.h"
#include "engine/base/fence.h"
#include "engine/base/mem.h"
#include "engine/base/quota.h"
#include "engine/base/str.h"
#include "engine/base/warned.h"

enum { STOP_FILE = -1, STOP_FENCE = -2 };

static struct {
    volatile sig_atomic_t signum; /* 0: none, STOP_FILE, STOP_FENCE, or the signal */
    char *path;
    _Atomic int64_t next_look_ms;
} stop;

static struct {
    char program[64];
    int threshold;
    atomic_bool line_open; /* a progress line stands on the terminal without its newline */
} console = {.program = "loong-flow", .threshold = 2};

static void on_signal(int sig)
{
    if (stop.signum == 0)
        stop.signum = sig;
}

int lf_stop_install(const char *stop_path, lf_err *err)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGUSR2};
    struct sigaction sa;
    char *path = NULL;
    if (stop_path && !(path = lf_strdup(stop_path, err)))
        return LF_ENOMEM;
    free(stop.path);
    stop.path = path;
    stop.signum = 0;
    atomic_store(&stop.next_look_ms, 0);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        memset(&sa, 0, sizeof sa);
        sa.sa_handler = on_signal;
        /* The second SIGINT finds the default action again. */
        sa.sa_flags = SA_RESTART | (signals[i] == SIGINT ? (int)SA_RESETHAND : 0);
        sigemptyset(&sa.sa_mask);
        if (sigaction(signals[i], &sa, NULL) < 0)
            return lf_fail_errno(err, "cannot catch signal %d", signals[i]);
    }
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = SIG_IGN;
    sigemptyset(&sa.sa_mask);
    /* A pipe nobody reads and a file that may not grow (ulimit -f) are errors of write(2) with a
     * name, not ends. */
    if (sigaction(SIGPIPE, &sa, NULL) < 0 || sigaction(SIGXFSZ, &sa, NULL) < 0)
        return lf_fail_errno(err, "cannot ignore SIGPIPE and SIGXFSZ");
    return 0;
}

static int64_t coarse_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

bool lf_stop_requested(void)
{
    if (stop.signum)
        return true;
    int64_t now = coarse_ms(), due = atomic_load_explicit(&stop.next_look_ms, memory_order_relaxed);
    if (now < due || !atomic_compare_exchange_strong(&stop.next_look_ms, &due, now + 1000))
        return false;
    struct stat st;
    if (stop.path && stat(stop.path, &st) == 0 && stop.signum == 0)
        stop.signum = STOP_FILE;
    if (lf_fence_closed() && stop.signum == 0)
        stop.signum = STOP_FENCE;
    return stop.signum != 0;
}

const char *lf_stop_reason(void)
{
    switch (stop.signum) {
    case 0:
        return NULL;
    case STOP_FILE:
        return "stop file";
    case STOP_FENCE:
        return "a newer start has taken over";
    case SIGTERM:
        return "SIGTERM";
    case SIGUSR2:
        return "SIGUSR2";
    default:
        return "SIGINT";
    }
}

static double clock_s(clockid_t id)
{
    struct timespec ts;
    clock_gettime(id, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

double lf_now_s(void)
{
    return clock_s(CLOCK_MONOTONIC);
}
double lf_wall_s(void)
{
    return clock_s(CLOCK_REALTIME);
}

const char *lf_time_iso(char buf[21], double wall_s)
{
    struct tm tm;
    /* Years outside 0..9999 do not fit the form. */
    time_t t = wall_s > -62167219200.0 && wall_s < 253402300800.0
                   ? (time_t)wall_s - (wall_s < (double)(time_t)wall_s)
                   : 0;
    gmtime_r(&t, &tm);
    strftime(buf, 21, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return buf;
}

int64_t lf_rss_peak_bytes(void)
{
    struct rusage ru;
    return getrusage(RUSAGE_SELF, &ru) == 0 ? (int64_t)ru.ru_maxrss * 1024 : -1;
}

int64_t lf_rss_bytes(void)
{
    long long pages = -1;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f)
        return -1;
    int got = fscanf(f, "%*d %lld", &pages);
    fclose(f);
    return got == 1 ? (int64_t)pages * sysconf(_SC_PAGESIZE) : -1;
}

void lf_log_init(const char *program, int threshold)
{
    snprintf(console.program, sizeof console.program, "%s", program);
    console.threshold = threshold;
}

/* One write(2) per line, so lines of several ranks on one file do not mix. */
static void put(const char *text, size_t n)
{
    while (n) {
        ssize_t w = write(STDERR_FILENO, text, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0)
            return; /* nowhere left to report it */
        text += w;
        n -= (size_t)w;
    }
}

void lf_log(int level, const char *fmt, ...)
{
    static const char *const prefix[] = {"error: ", "warning: ", "", "debug: "};
    if (level > console.threshold)
        return;
    int saved = errno;
    char line[4096];
    bool open = atomic_exchange(&console.line_open, false);
    int n = snprintf(line, sizeof line, "%s%s: %s", open ? "\r\033[K" : "", console.program,
                     prefix[level < 0   ? 0
                            : level > 3 ? 3
                                        : level]);
    size_t used = (size_t)n;
    va_list ap;
    va_start(ap, fmt);
    n = vsnprintf(line + used, sizeof line - used, fmt, ap);
    va_end(ap);
    const char *said = line + used;
    used += n < 0 ? 0 : (size_t)n;
    if (used > sizeof line - 2)
        used = sizeof line - 2;
    line[used] = '\0';
    if (level == 1)
        lf_warned_note(said);
    line[used++] = '\n';
    put(line, used);
    errno = saved;
}

/* The reader sees the old file or the new one. It is a help for people that is gone after a power
 * cut, so nothing waits for the disk. */
static void keep_progress(lf_progress *p, double now)
{
    const char *dir = getenv(LF_CAUSE_DIR_ENV), *rank = getenv("PMIX_RANK");
    const double per_s = now > p->t0 ? (p->done - p->done_at_start) / (now - p->t0) : 0;
    char path[PATH_MAX], tmp[PATH_MAX], text[400];
    p->kept = now;
    if (!dir || dir[0] == '\0' || (rank && strcmp(rank, "0") != 0))
        return;
    int n = snprintf(path, sizeof path, "%s/" LF_PROGRESS_FILE, dir),
        m = snprintf(tmp, sizeof tmp, "%s/." LF_PROGRESS_FILE ".%ld", dir, (long)getpid()),
        len = snprintf(text, sizeof text,
                       "{\"what\":\"%s\",\"unit\":\"%s\",\"done\":%.17g,\"total\":%.17g,"
                       "\"per_s\":%.9g,\"t\":%.3f}",
                       p->what, p->unit, p->done, p->total, per_s, lf_wall_s());
    if (n <= 0 || n >= PATH_MAX || m >= PATH_MAX || len <= 0 || len >= (int)sizeof text)
        return;
    int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0)
        return;
    bool whole = write(fd, text, (size_t)len) == len;
    if (close(fd) < 0 || !whole || rename(tmp, path) < 0)
        unlink(tmp);
}

static void tell_busy(void)
{
    char text[256];
    if (lf_busy_look(text, sizeof text))
        lf_log(2, "%s", text);
}

void lf_progress_begin(lf_progress *p, const char *what, const char *unit, double done,
                       double total)
{
    *p = (lf_progress){
        .what = what, .unit = unit, .total = total, .done = done, .done_at_start = done};
    p->t0 = lf_now_s();
    p->last = p->t0;
    p->tty = isatty(STDERR_FILENO) == 1;
    keep_progress(p, p->t0);
    tell_busy();
}

static void progress_text(const lf_progress *p, double now, char *text, size_t cap)
{
    char done[32], total[40] = "", rate[32], left[48] = "", num[32];
    double elapsed = now - p->t0, per_s = elapsed > 0 ? (p->done - p->done_at_start) / elapsed : 0;
    lf_fmt_count(done, sizeof done, p->done);
    lf_fmt_count(rate, sizeof rate, per_s >= 10 ? (double)(int64_t)per_s : per_s);
    if (p->total > 0) {
        snprintf(total, sizeof total, " of %s", lf_fmt_count(num, sizeof num, p->total));
        if (per_s > 0)
            snprintf(left, sizeof left, ", %s left",
                     lf_fmt_duration(num, sizeof num, (p->total - p->done) / per_s));
    }
    snprintf(text, cap, "%s %s%s %s, %s/s%s", p->what, done, total, p->unit, rate, left);
}

void lf_progress_update(lf_progress *p, double done)
{
    double now = lf_now_s();
    p->done = done;
    if (now - p->kept >= 1.0) {
        keep_progress(p, now);
        tell_busy();
    }
    if (now - p->last < (p->tty ? 0.2 : 10.0))
        return;
    p->last = now;
    char text[256], line[400];
    progress_text(p, now, text, sizeof text);
    if (!p->tty) {
        lf_log(2, "%s", text);
        return;
    }
    if (console.threshold < 2)
        return;
    int n = snprintf(line, sizeof line, "\r\033[K%s: %s", console.program, text);
    put(line, (size_t)n);
    atomic_store(&console.line_open, true);
}

void lf_progress_end(lf_progress *p)
{
    char text[256], num[32];
    double now = lf_now_s();
    keep_progress(p, now);
    progress_text(p, now, text, sizeof text);
    char *left = strstr(text, " left");
    if (left && (left = strrchr(text, ',')))
        *left = '\0';
    lf_log(2, "%s in %s", text, lf_fmt_duration(num, sizeof num, now - p->t0));
}

bool lf_wants_colour(int fd)
{
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fd) && (no == NULL || no[0] == '\0') && term != NULL && strcmp(term, "dumb") != 0;
}

int lf_ncpu(void)
{
    cpu_set_t set;
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const int quota = lf_cpu_quota("");
    int n = online > 0 && online < 1 << 20 ? (int)online : 1;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        n = CPU_COUNT(&set);
    return quota > 0 && quota < n ? quota : n;
}
