/* SPDX-License-Identifier: Apache-2.0
 *
 * Templates of job scripts: line by line.
 */
#include "config.h"

#include "flow/sched/tmpl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "flow/plan/conf.h"
#include "flow/record/record.h"

#define TEMPLATE_MAX_BYTES ((size_t)1 << 20)
#define NAME_CHARS         "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
#define MAX_NAMES          128

struct place {
    const char *path;
    int line;
};

/* ---- one line ---- */

/* The name of the placeholder that begins at p ('@'), 0 when there is none. */
static size_t name_at(const char *p, const char *end)
{
    size_t n = 0;
    while (p + 1 + n < end && strchr(NAME_CHARS, p[1 + n]) != NULL && p[1 + n] != '\0')
        n++;
    return n > 0 && p + 1 + n < end && p[1 + n] == '@' ? n : 0;
}

static int unknown(const struct place *at, const char *name, json_t *values, lf_err *err)
{
    const char *names[MAX_NAMES], *k;
    json_t *v;
    size_t n = 0;
    json_object_foreach(values, k, v)
    {
        if (n < MAX_NAMES)
            names[n++] = k;
    }
    const char *near = lf_nearest(name, names, n);
    return lf_fail(err, LF_EINVAL, "%s:%d: unknown placeholder @%s@%s%s%s", at->path, at->line,
                   name, near != NULL ? "; did you mean @" : "", near != NULL ? near : "",
                   near != NULL ? "@?" : "");
}

static int find_value(const json_t **out, const char *p, size_t n, const struct place *at,
                      json_t *values, lf_err *err)
{
    char name[64];
    if (n >= sizeof name)
        return lf_fail(err, LF_EINVAL, "%s:%d: the name of a placeholder is too long", at->path,
                       at->line);
    memcpy(name, p, n);
    name[n] = '\0';
    *out = json_object_get(values, name);
    return *out != NULL ? 0 : unknown(at, name, values, err);
}

static const json_t *list_of(const json_t *v)
{
    return json_is_array(v) ? v : json_object_get(v, "raw");
}

/* How often a line appears: 0 when a value is absent, else the length of its list, else 1. */
static int count(size_t *times, const char *p, const char *end, const struct place *at,
                 json_t *values, lf_err *err)
{
    const json_t *list = NULL;
    *times = 1;
    for (; p < end; p++) {
        const json_t *v = NULL;
        if (*p != '@')
            continue;
        if (p + 1 < end && p[1] == '@') {
            p++;
            continue;
        }
        size_t n = name_at(p, end);
        if (n == 0)
            continue;
        int rc = find_value(&v, p + 1, n, at, values, err);
        if (rc < 0)
            return rc;
        p += n + 1;
        if (json_is_null(v) || json_is_false(v))
            *times = 0;
        if (list_of(v) == NULL)
            continue;
        if (list != NULL && list != list_of(v))
            return lf_fail(err, LF_EINVAL, "%s:%d: two lists in one line", at->path, at->line);
        list = list_of(v);
    }
    if (list != NULL && *times > 0)
        *times = json_array_size(list);
    return 0;
}

static int put_text(lf_buf *out, const char *text, bool raw, const struct place *at, lf_err *err)
{
    for (const char *c = text; *c != '\0'; c++)
        if (((unsigned char)*c < 0x20 && !(raw && *c == '\t')) || *c == 0x7f)
            return lf_fail(err, LF_EINVAL, "%s:%d: a value has a control character in it (byte %d)",
                           at->path, at->line, (unsigned char)*c);
    if (raw)
        lf_buf_adds(out, text);
    else
        lf_buf_add_shell(out, text);
    return 0;
}

static int put_value(lf_buf *out, const json_t *v, size_t i, const struct place *at, lf_err *err)
{
    const json_t *list = list_of(v);
    const json_t *one = list != NULL ? json_array_get(list, i) : v;
    if (json_is_integer(one))
        lf_buf_addf(out, "%lld", (long long)json_integer_value(one));
    else if (json_is_string(one) && strlen(json_string_value(one)) == json_string_length(one))
        return put_text(out, json_string_value(one), json_is_object(v), at, err);
    else if (!json_is_true(one))
        return lf_fail(err, LF_EINVAL, "%s:%d: a value is not a text or a number", at->path,
                       at->line);
    return 0;
}

static int put_line(lf_buf *out, const char *p, const char *end, size_t i, const struct place *at,
                    json_t *values, lf_err *err)
{
    int rc = 0;
    for (; p < end && rc == 0; p++) {
        size_t n = *p == '@' ? name_at(p, end) : 0;
        const json_t *v = NULL;
        if (*p == '@' && p + 1 < end && p[1] == '@') {
            lf_buf_addc(out, *p++);
        } else if (n == 0) {
            lf_buf_addc(out, *p);
        } else {
            rc = find_value(&v, p + 1, n, at, values, err);
            if (rc == 0)
                rc = put_value(out, v, i, at, err);
            p += n + 1;
        }
    }
    lf_buf_addc(out, '\n');
    return rc;
}

int lf_tmpl_render(lf_buf *out, const char *text, size_t len, const char *path, json_t *values,
                   lf_err *err)
{
    struct place at = {.path = path, .line = 0};
    int rc = 0;
    for (const char *p = text, *stop = text + len; p < stop && rc == 0;) {
        const char *end = memchr(p, '\n', (size_t)(stop - p));
        size_t times = 0;
        if (end == NULL)
            end = stop;
        at.line++;
        if (memchr(p, '\0', (size_t)(end - p)) != NULL ||
            memchr(p, '\r', (size_t)(end - p)) != NULL)
            return lf_fail(err, LF_EINVAL, "%s:%d: a NUL or carriage return", path, at.line);
        rc = count(&times, p, end, &at, values, err);
        for (size_t i = 0; i < times && rc == 0; i++)
            rc = put_line(out, p, end, i, &at, values, err);
        p = end + 1;
    }
    return rc == 0 ? lf_buf_check(out, err) : rc;
}

/* ---- where it is ---- */

static int trusted_ids(uid_t *ids, size_t cap, const lf_site *site)
{
    size_t n = 0;
    for (size_t i = 0; i < site->trust.n && n < cap; i++) {
        const struct passwd *pw = getpwnam(site->trust.v[i]);
        if (pw != NULL)
            ids[n++] = pw->pw_uid;
    }
    return (int)n;
}

/* 1 read, 0 not there. */
static int try_file(lf_buf *text, char **found, const char *path, const lf_site *site, lf_err *err)
{
    struct stat st;
    uid_t ids[64];
    const char *why = NULL;
    if (stat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : lf_fail_errno(err, "template %s", path);
    int n = trusted_ids(ids, sizeof ids / sizeof ids[0], site);
    if (!lf_owner_allowed(st.st_uid, st.st_mode, geteuid(), ids, (size_t)n, &why))
        return lf_fail(err, LF_EINVAL, "template %s: refused: %s (owner uid %u, mode %04o)", path,
                       why, (unsigned)st.st_uid, (unsigned)st.st_mode & 07777u);
    int rc = lf_io_read_file(path, TEMPLATE_MAX_BYTES, text, err);
    if (rc < 0)
        return rc;
    *found = lf_strdup(path, err);
    return *found != NULL ? 1 : LF_ENOMEM;
}

/* Beside this program: a build directory, a bundle, an installation. */
static int try_near(lf_buf *text, char **found, const char *name, const lf_site *site, lf_err *err)
{
    static const char *const subs[] = {"/templates/", "/../templates/",
                                       "/../share/loong-flow/templates/"};
    char self[PATH_MAX], path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0)
        return 0;
    self[n] = '\0';
    *strrchr(self, '/') = '\0';
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof subs / sizeof subs[0]; i++)
        if (lf_path_set(path, NULL, "%s%s%s", self, subs[i], name) == 0)
            rc = try_file(text, found, path, site, err);
    return rc;
}

int lf_tmpl_load(lf_buf *text, char **path, const char *name, const char *project,
                 const lf_site *site, lf_err *err)
{
    char p[PATH_MAX];
    const char *dir = site->templates, *env = getenv("LF_TEMPLATES_DIR");
    int rc = lf_path_set(p, err, "%s/.loong/templates/%s", project, name);
    if (rc == 0)
        rc = try_file(text, path, p, site, err);
    if (rc == 0 && dir != NULL && (rc = lf_path_set(p, err, "%s/%s", dir, name)) == 0)
        rc = try_file(text, path, p, site, err);
    if (rc == 0 && env != NULL && env[0] == '/' &&
        (rc = lf_path_set(p, err, "%s/%s", env, name)) == 0)
        rc = try_file(text, path, p, site, err);
    if (rc == 0)
        rc = try_near(text, path, name, site, err);
    if (rc == 0 && (rc = lf_path_set(p, err, "%s/templates/%s", LF_DATADIR, name)) == 0)
        rc = try_file(text, path, p, site, err);
    if (rc == 0)
        return lf_fail(err, LF_ENOENT,
                       "the template %s is neither in the project nor installed in %s/templates",
                       name, LF_DATADIR);
    return rc < 0 ? rc : 0;
}

int lf_tmpl_file(lf_buf *out, const char *name, const char *project, const lf_site *site,
                 json_t *values, lf_err *err)
{
    lf_buf text;
    char *path = NULL;
    lf_buf_init(&text);
    int rc = lf_tmpl_load(&text, &path, name, project, site, err);
    if (rc == 0)
        rc = lf_tmpl_render(out, text.data, text.len, path, values, err);
    lf_buf_fini(&text);
    free(path);
    return rc;
}
