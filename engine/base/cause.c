/* SPDX-License-Identifier: Apache-2.0
 *
 * The file in which a start says why it ended: see cause.h.
 */
#include "config.h"

#include "engine/base/cause.h"

#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/utf8.h"

#define MAX_BYTES ((size_t)64 << 10)

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static const struct {
    int errnum;
    const char *cls;
} by_errno[] = {{ENOSPC, "disk"},       {EDQUOT, "disk"},       {EFBIG, "disk"},
                {EROFS, "filesystem"},  {ESTALE, "filesystem"}, {EIO, "filesystem"},
                {EACCES, "filesystem"}, {EPERM, "filesystem"},  {EKEYEXPIRED, "filesystem"},
                {ENOMEM, "oom"}};

static const struct {
    int rc;
    const char *cls;
} by_code[] = {{LF_EINVAL, "config"}, {LF_ENOTSUP, "config"},    {LF_EEXIST, "config"},
               {LF_ENOMEM, "oom"},    {LF_EFORMAT, "bad_input"}, {LF_ENOENT, "bad_input"},
               {LF_ECOMM, "rank"},    {LF_ENUMERIC, "diverged"}};

/* Memory of a device is not that of the host: more of the latter does not help. */
static const char *memory_of(const char *text)
{
    static const char *const device[] = {"CUDA", "cuda", "GPU"};
    for (size_t i = 0; i < COUNT(device); i++)
        if (strstr(text, device[i]))
            return "oom_device";
    return "oom";
}

const char *lf_cause_class(const lf_err *err)
{
    for (size_t i = 0; err->errnum != 0 && i < COUNT(by_errno); i++)
        if (by_errno[i].errnum == err->errnum)
            return by_errno[i].cls;
    for (size_t i = 0; i < COUNT(by_code); i++)
        if (by_code[i].rc == err->rc)
            return err->rc == LF_ENOMEM ? memory_of(err->text) : by_code[i].cls;
    return "";
}

const char *lf_cause_signal(int sig)
{
    switch (sig) {
    case SIGSEGV:
    case SIGABRT:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
        return "crash";
    case SIGXFSZ:
        return "disk";
    case SIGXCPU:
        return "timeout";
    default:
        return "rank";
    }
}

/* A rank that hangs is none that ended. */
static bool by_watchdog(const char *dir)
{
    lf_cause c;
    return lf_cause_load(&c, dir, NULL) == 0 && strcmp(c.by, LF_CAUSE_WATCH) == 0 &&
           strcmp(c.cls, "rank") == 0;
}

/* over: in the place of what the watchdog said. */
static void record(const char *by, const char *cls, const char *reason, bool over)
{
    const char *dir = getenv(LF_CAUSE_DIR_ENV);
    if (!dir || dir[0] == '\0')
        return;
    char *path = lf_path_join(dir, LF_CAUSE_FILE, NULL);
    char line[sizeof((lf_cause *)0)->reason];
    snprintf(line, sizeof line, "%s", reason);
    for (size_t n = strlen(line), i = lf_utf8_check(line, n); i < n;
         i += lf_utf8_check(line + i, n - i))
        line[i] =
            /* JSON takes no byte that is not UTF-8, such as half of a character that was cut */
            '?';
    json_t *o =
        json_pack("{s:i, s:s, s:s, s:s}", "lf_cause", 1, "class", cls, "reason", line, "by", by);
    char *text = o ? lf_json_dump(o, NULL) : NULL;
    if (path && text && lf_io_publish(path, text, strlen(text), 0640, NULL) != 0 && over &&
        by_watchdog(dir))
        lf_io_replace(path, text, strlen(text), 0640, NULL);
    free(text);
    free(path);
    json_decref(o);
}

void lf_cause_say(const char *by, const char *cls, const char *reason)
{
    record(by, cls, reason, false);
}

void lf_cause_saw(const char *by, const char *cls, const char *reason)
{
    record(by, cls, reason, true);
}

int lf_cause_load(lf_cause *out, const char *dir, lf_err *err)
{
    const char *cls = NULL, *reason = NULL, *by = NULL;
    char *path = lf_path_join(dir, LF_CAUSE_FILE, err);
    json_t *o = path ? lf_json_load_file(path, MAX_BYTES, err) : NULL;
    int rc = o ? 0 : err && err->rc ? err->rc : LF_EFORMAT;
    if (rc == 0)
        rc = lf_json_get_str(&cls, o, "class", true, path, err);
    if (rc == 0)
        rc = lf_json_get_str(&reason, o, "reason", true, path, err);
    if (rc == 0)
        rc = lf_json_get_str(&by, o, "by", true, path, err);
    if (rc == 0) {
        snprintf(out->cls, sizeof out->cls, "%s", cls);
        snprintf(out->reason, sizeof out->reason, "%s", reason);
        snprintf(out->by, sizeof out->by, "%s", by);
    }
    json_decref(o);
    free(path);
    return rc;
}
