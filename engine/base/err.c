/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording and wording failures.
 */
#include "config.h"

#include "engine/base/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LF_SANITIZERS
/* Blocks that other libraries forget; ours are watched. Weak: a test may say more. */
const char *__lsan_default_suppressions(void);
__attribute__((weak)) const char *__lsan_default_suppressions(void)
{
    return "leak:libpmix\nleak:libucp\nleak:libucs\nleak:libuct\n";
}
#endif

/* One line is the promise of lf_err.text: control characters from outside would break logs and
 * terminals. */
static void flatten(char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = ' ';
}

static int record(lf_err *err, int rc, int errnum, const char *file, int line)
{
    err->rc = rc;
    err->errnum = errnum;
    err->file = file;
    err->line = line;
    flatten(err->text);
    return rc;
}

int lf_fail_at(lf_err *err, int rc, const char *file, int line, const char *fmt, ...)
{
    if (!err || err->rc != 0)
        return rc;
    int saved = errno;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    errno = saved;
    return record(err, rc, 0, file, line);
}

static int rc_of_errno(int e)
{
    switch (e) {
    case ENOMEM:
        return LF_ENOMEM;
    case ENOENT:
        return LF_ENOENT;
    case EEXIST:
        return LF_EEXIST;
    default:
        return LF_EIO;
    }
}

int lf_fail_errno_at(lf_err *err, const char *file, int line, const char *fmt, ...)
{
    int e = errno, rc = rc_of_errno(e);
    if (!err || err->rc != 0)
        return rc;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n;
    if (used < sizeof err->text)
        snprintf(err->text + used, sizeof err->text - used, ": %s", strerror(e));
    errno = e;
    return record(err, rc, e, file, line);
}

int lf_err_prefix(lf_err *err, const char *fmt, ...)
{
    if (!err)
        return LF_EINVAL;
    char text[sizeof err->text];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t used = n < 0 ? 0 : (size_t)n;
    if (used < sizeof text) {
        /* A cut text is better than none: the message is bounded by design. */
        size_t room = sizeof text - used - 1, len = strlen(err->text);
        size_t sep = room < 2 ? room : 2, body = len < room - sep ? len : room - sep;
        memcpy(text + used, ": ", sep);
        memcpy(text + used + sep, err->text, body);
        text[used + sep + body] = '\0';
    }
    memcpy(err->text, text, sizeof text);
    flatten(err->text);
    return err->rc;
}

void lf_err_clear(lf_err *err)
{
    if (err)
        memset(err, 0, sizeof *err);
}

const char *lf_rc_name(int rc)
{
    static const char *const names[] = {
        "ok",   "invalid", "no memory", "io",     "format", "not supported", "device",
        "comm", "stopped", "missing",   "exists", "busy",   "numeric"};
    int i = -rc;
    return i >= 0 && (size_t)i < sizeof names / sizeof names[0] ? names[i] : "unknown";
}

void lf_bug_at(const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "loong-flow bug at %s:%d: ", file, line);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
    abort();
}
