/* SPDX-License-Identifier: Apache-2.0
 *
 * Paths, names and text for records.
 */
#include "config.h"

#include "flow/record/record.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/utf8.h"

int lf_path_set(char out[PATH_MAX], lf_err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(out, PATH_MAX, fmt, ap);
    va_end(ap);
    return n >= 0 && n < PATH_MAX ? 0
                                  : lf_fail(err, LF_EINVAL, "%.200s...: the path is too long", out);
}

int lf_path_plain(const char *path, const char *what, lf_err *err)
{
    for (const char *p = path; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return lf_fail(err, LF_EINVAL,
                           "%s: a control character (byte 0x%02x) in the path %s; rename it", what,
                           (unsigned)(unsigned char)*p, path);
    return 0;
}

char *lf_text_clean(char *text)
{
    size_t n = strlen(text);
    for (size_t i = lf_utf8_check(text, n); i < n; i += lf_utf8_check(text + i, n - i))
        text[i] = '?';
    return text;
}

void lf_record_user(char *buf, size_t cap)
{
    const struct passwd *pw = getpwuid(geteuid());
    if (pw != NULL)
        snprintf(buf, cap, "%s", pw->pw_name);
    else
        snprintf(buf, cap, "uid%u", (unsigned)geteuid());
}

void lf_record_host(char *buf, size_t cap)
{
    if (gethostname(buf, cap) < 0)
        snprintf(buf, cap, "unknown");
    buf[cap - 1] = '\0';
}
