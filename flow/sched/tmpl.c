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

/* ---- values ---- */

static lf_tmpl_value *add(lf_tmpl_values *v, const char *name, lf_err *err)
{
    lf_tmpl_value *e = lf_rows_add(v, sizeof *e, err);
    return e != NULL && lf_text_set(&e->name, name, name, err) == 0 ? e : NULL;
}

static int add_text(lf_tmpl_values *v, const char *name, const char *text, bool raw, lf_err *err)
{
    lf_tmpl_value *e = add(v, name, err);
    if (e == NULL)
        return LF_ENOMEM;
    e->raw = raw;
    return text != NULL ? lf_texts_add(&e->texts, text, err) : 0;
}

static int add_list(lf_tmpl_values *v, const char *name, const lf_texts *list, bool raw,
                    lf_err *err)
{
    lf_tmpl_value *e = add(v, name, err);
    if (e == NULL)
        return LF_ENOMEM;
    e->raw = raw;
    e->list = true;
    return lf_texts_copy(&e->texts, list, err);
}

int lf_tmpl_text(lf_tmpl_values *v, const char *name, const char *text, lf_err *err)
{
    return add_text(v, name, text, false, err);
}

int lf_tmpl_int(lf_tmpl_values *v, const char *name, lf_int number, lf_err *err)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)number.v);
    return add_text(v, name, number.given ? text : NULL, true, err);
}

int lf_tmpl_list(lf_tmpl_values *v, const char *name, const lf_texts *list, lf_err *err)
{
    return add_list(v, name, list, false, err);
}

int lf_tmpl_raw(lf_tmpl_values *v, const char *name, const lf_texts *lines, lf_err *err)
{
    return add_list(v, name, lines, true, err);
}

int lf_tmpl_flag(lf_tmpl_values *v, const char *name, bool flag, lf_err *err)
{
    return add_text(v, name, flag ? "" : NULL, true, err);
}

const lf_tmpl_value *lf_tmpl_find(const lf_tmpl_values *v, const char *name)
{
    for (size_t i = 0; i < v->n; i++)
        if (strcmp(v->v[i].name, name) == 0)
            return &v->v[i];
    return NULL;
}

void lf_tmpl_values_fini(lf_tmpl_values *v)
{
    for (size_t i = 0; i < v->n; i++) {
        free(v->v[i].name);
        lf_texts_fini(&v->v[i].texts);
    }
    free(v->v);
    memset(v, 0, sizeof *v);
}

/* ---- one line ---- */

/* The name of the placeholder that begins at p ('@'), 0 when there is none. */
static size_t name_at(const char *p, const char *end)
{
    size_t n = 0;
    while (p + 1 + n < end && strchr(NAME_CHARS, p[1 + n]) != NULL && p[1 + n] != '\0')
        n++;
    return n > 0 && p + 1 + n < end && p[1 + n] == '@' ? n : 0;
}

static int unknown(const struct place *at, const char *name, const lf_tmpl_values *values,
                   lf_err *err)
{
    const char *names[MAX_NAMES];
    size_t n = 0;
    for (; n < values->n && n < MAX_NAMES; n++)
        names[n] = values->v[n].name;
    const char *near = lf_nearest(name, names, n);
    return lf_fail(err, LF_EINVAL, "%s:%d: unknown placeholder @%s@%s%s%s", at->path, at->line,
                   name, near != NULL ? "; did you mean @" : "", near != NULL ? near : "",
                   near != NULL ? "@?" : "");
}

static int find_value(const lf_tmpl_value **out, const char *p, size_t n, const struct place *at,
                      const lf_tmpl_values *values, lf_err *err)
{
    char name[64];
    if (n >= sizeof name)
        return lf_fail(err, LF_EINVAL, "%s:%d: the name of a placeholder is too long", at->path,
                       at->line);
    memcpy(name, p, n);
    name[n] = '\0';
    *out = lf_tmpl_find(values, name);
    return *out != NULL ? 0 : unknown(at, name, values, err);
}

/* How often a line appears: 0 when a value is absent, else the length of its list, else 1. */
static int count(size_t *times, const char *p, const char *end, const struct place *at,
                 const lf_tmpl_values *values, lf_err *err)
{
    const lf_tmpl_value *list = NULL;
    *times = 1;
    for (; (p = memchr(p, '@', (size_t)(end - p))) != NULL; p++) {
        const lf_tmpl_value *v = NULL;
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
        if (!v->texts.given)
            *times = 0;
        if (!v->texts.given || !v->list)
            continue;
        if (list != NULL && list != v)
            return lf_fail(err, LF_EINVAL, "%s:%d: two lists in one line", at->path, at->line);
        list = v;
    }
    if (list != NULL && *times > 0)
        *times = list->texts.n;
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

static int put_value(lf_buf *out, const lf_tmpl_value *v, size_t i, const struct place *at,
                     lf_err *err)
{
    return put_text(out, v->texts.v[v->list ? i : 0], v->raw, at, err);
}

static int put_line(lf_buf *out, const char *p, const char *end, size_t i, const struct place *at,
                    const lf_tmpl_values *values, lf_err *err)
{
    int rc = 0;
    for (; p < end && rc == 0; p++) {
        const char *at_sign = memchr(p, '@', (size_t)(end - p));
        const char *plain_end = at_sign != NULL ? at_sign : end;
        lf_buf_add(out, p, (size_t)(plain_end - p));
        if ((p = plain_end) == end)
            break;
        size_t n = name_at(p, end);
        const lf_tmpl_value *v = NULL;
        if (p + 1 < end && p[1] == '@') {
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

int lf_tmpl_render(lf_buf *out, const char *text, size_t len, const char *path,
                   const lf_tmpl_values *values, lf_err *err)
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

void lf_tmpl_fini(lf_tmpl *t)
{
    lf_buf_fini(&t->text);
    free(t->path);
    t->path = NULL;
}

int lf_tmpl_file(lf_buf *out, lf_tmpl *t, const char *name, const char *project,
                 const lf_site *site, const lf_tmpl_values *values, lf_err *err)
{
    int rc = 0;
    if (t->path == NULL) {
        lf_buf_fini(&t->text);
        rc = lf_tmpl_load(&t->text, &t->path, name, project, site, err);
    }
    return rc == 0 ? lf_tmpl_render(out, t->text.data, t->text.len, t->path, values, err) : rc;
}
