/* SPDX-License-Identifier: Apache-2.0
 *
 * The TAP printer behind tap.h. State lives in this file because a test program is one TAP stream.
 */
#include "tests/tap/tap.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "engine/base/io.h"

static struct {
    int n, failed;
    int miscounts; /* of n: points of tap_end_at, which count for no call */
    int open[8];   /* the points before each call of TAP that has not returned, outermost first */
    size_t n_open;
    char tmpdir[512];
} tap;

static void print_line(FILE *f, const char *s)
{
    for (; *s; s++)
        fputc(*s == '\n' || *s == '#' ? ' ' : *s, f);
    fputc('\n', f);
}

bool tap_ok_at(const char *file, int line, bool ok, const char *fmt, ...)
{
    char name[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    printf("%s %d - ", ok ? "ok" : "not ok", ++tap.n);
    print_line(stdout, name);
    if (!ok) {
        tap.failed++;
        printf("#   failed at %s:%d\n", file, line);
    }
    fflush(stdout);
    return ok;
}

bool tap_i64_at(const char *file, int line, int64_t got, int64_t want, const char *name)
{
    bool ok = tap_ok_at(file, line, got == want, "%s", name);
    if (!ok)
        tap_diag("got  %" PRId64 "\nwant %" PRId64, got, want);
    return ok;
}

bool tap_f64_at(const char *file, int line, double got, double want, double tol, const char *name)
{
    bool ok = got == want || fabs(got - want) <= tol;
    tap_ok_at(file, line, ok, "%s", name);
    if (!ok)
        tap_diag("got  %.17g\nwant %.17g\ntolerance %.3g, off by %.3g", got, want, tol,
                 fabs(got - want));
    return ok;
}

bool tap_str_at(const char *file, int line, const char *got, const char *want, const char *name)
{
    bool ok = got && want ? strcmp(got, want) == 0 : got == want;
    tap_ok_at(file, line, ok, "%s", name);
    if (!ok)
        tap_diag("got  %s%s%s\nwant %s%s%s", got ? "\"" : "", got ? got : "NULL", got ? "\"" : "",
                 want ? "\"" : "", want ? want : "NULL", want ? "\"" : "");
    return ok;
}

bool tap_mem_at(const char *file, int line, const void *got, const void *want, size_t n,
                const char *name)
{
    bool ok = n == 0 || memcmp(got, want, n) == 0;
    tap_ok_at(file, line, ok, "%s", name);
    if (!ok) {
        const unsigned char *g = got, *w = want;
        size_t at = 0;
        while (g[at] == w[at])
            at++;
        size_t first = at < 4 ? 0 : at - 4, last = at + 12 < n ? at + 12 : n;
        printf("#   differs first at byte %zu of %zu; from byte %zu:\n#   got ", at, n, first);
        for (size_t i = first; i < last; i++)
            printf(" %02x", g[i]);
        printf("\n#   want");
        for (size_t i = first; i < last; i++)
            printf(" %02x", w[i]);
        printf("\n");
        fflush(stdout);
    }
    return ok;
}

bool tap_rc_at(const char *file, int line, int rc, int want, lf_err *err, const char *contains,
               const char *name)
{
    bool ok = rc == want;
    if (ok && want != 0 && contains)
        ok = err && strstr(err->text, contains);
    tap_ok_at(file, line, ok, "%s", name);
    if (!ok) {
        tap_diag("got  %d (%s) %s", rc, lf_rc_name(rc), err ? err->text : "");
        tap_diag("want %d (%s) %s", want, lf_rc_name(want), contains && want ? contains : "");
    }
    lf_err_clear(err);
    return ok;
}

void tap_begin(void)
{
    if (tap.n_open == sizeof tap.open / sizeof *tap.open)
        tap_bail("TAP within TAP within TAP ...: too deep");
    tap.open[tap.n_open++] = tap.n - tap.miscounts;
}

void tap_end_at(const char *file, int line, int want, bool least, const char *call)
{
    const int got = tap.n - tap.miscounts - tap.open[--tap.n_open];
    if (got == want || (least && got > want))
        return;
    tap.miscounts++;
    tap_ok_at(file, line, false, "%s makes %s%d points: %d were seen", call,
              least ? "at least " : "", want, got);
}

void tap_diag(const char *fmt, ...)
{
    char text[8192];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *s = text, *end; s; s = end) {
        end = strchr(s, '\n');
        if (end)
            *end++ = '\0';
        printf("#   %s\n", s);
    }
    fflush(stdout);
}

void tap_skip(int n, const char *reason)
{
    for (int i = 0; i < n; i++) {
        printf("ok %d # SKIP ", ++tap.n);
        print_line(stdout, reason);
    }
    fflush(stdout);
}

void tap_skip_all(const char *reason)
{
    printf("1..0 # SKIP ");
    print_line(stdout, reason);
    exit(0);
}

void tap_bail(const char *fmt, ...)
{
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    printf("Bail out! ");
    print_line(stdout, text);
    exit(1);
}

/* As tests/tap/shm.sh has it. */
static const char *base_dir(void)
{
    const char *base = getenv("TMPDIR"), *disk = getenv("LF_TEST_ON_DISK");
    static const char memory[] = "/dev/shm";
    struct statvfs s;
    if (!(disk && disk[0]) && access(memory, W_OK) == 0 && statvfs(memory, &s) == 0 &&
        !(s.f_flag & ST_NOEXEC) && (uint64_t)s.f_bavail * s.f_frsize > (uint64_t)4 << 30)
        return memory;
    return base && base[0] ? base : "/tmp";
}

const char *tap_tmpdir(void)
{
    if (!tap.tmpdir[0]) {
        int n = snprintf(tap.tmpdir, sizeof tap.tmpdir, "%s/lf-test-XXXXXX", base_dir());
        if (n < 0 || (size_t)n >= sizeof tap.tmpdir || !mkdtemp(tap.tmpdir))
            tap_bail("no temporary directory: %s", tap.tmpdir);
    }
    return tap.tmpdir;
}

int tap_done(void)
{
    if (tap.n_open > 0)
        tap_ok_at(__FILE__, __LINE__, false, "a call of TAP did not return to main");
    if (tap.n == 0) /* which a harness would take for a test that was skipped */
        tap_ok_at(__FILE__, __LINE__, false, "no point was made");
    printf("1..%d\n", tap.n);
    if (tap.failed)
        printf("# %d of %d failed\n", tap.failed, tap.n);
    if (tap.tmpdir[0]) {
        lf_err err = LF_ERR_INIT;
        if (tap.failed || getenv("LF_KEEP"))
            printf("# files kept in %s\n", tap.tmpdir);
        else if (lf_io_remove_tree(tap.tmpdir, &err) < 0)
            printf("# %s\n", err.text);
    }
    fflush(stdout);
    return tap.failed || ferror(stdout) ? 1 : 0;
}
