/* SPDX-License-Identifier: Apache-2.0
 *
 * Publishing JSON records and event files.
 */
#include "config.h"

#include "flow/record/record.h"

#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "db/event.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/utf8.h"

int lf_record_publish(const char *dir, const char *name, const json_t *o, lf_err *err)
{
    char *path = lf_path_join(dir, name, err);
    char *text = path != NULL ? lf_json_dump(o, err) : NULL;
    int rc = text == NULL ? LF_ENOMEM : lf_io_publish(path, text, strlen(text), 0640, err);
    free(text);
    free(path);
    return rc;
}

int lf_record_event(const lf_origin *from, const char *kind, json_t *data, lf_err *err)
{
    if (data == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory for an event");
    char *spool = lf_path_join(from->dir, "spool", err);
    int rc = spool == NULL ? LF_ENOMEM : 0;
    if (rc == 0) {
        lf_event ev = {.run = from->run,
                       .stage = from->stage,
                       .attempt = from->attempt,
                       .epoch = from->epoch,
                       .kind = kind,
                       .data = data};
        rc = lf_event_write(spool, &ev, 0750, 0640, err);
    }
    free(spool);
    json_decref(data);
    return rc;
}

int lf_json_set_new(json_t *o, const char *key, json_t *v, lf_err *err)
{
    if (v == NULL || json_object_set_new(o, key, v) < 0)
        return lf_fail(err, LF_ENOMEM, "out of memory (or text that is not UTF-8) at \"%s\"", key);
    return 0;
}

int lf_json_push_new(json_t *a, json_t *v, lf_err *err)
{
    if (v == NULL || json_array_append_new(a, v) < 0)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    return 0;
}

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
