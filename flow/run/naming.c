/* SPDX-License-Identifier: Apache-2.0
 *
 * Short names of runs.
 */
#include "config.h"

#include "flow/run/naming.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/record/record.h"

enum { BASE_MAX = 64, NUMBER_MAX = 999999999 };

/* The name of a pipeline as a part of a file name, which never begins with a '.' or a '-'. */
static void base_of(char base[BASE_MAX + 1], const char *pipeline)
{
    size_t n = 0;
    for (const char *p = pipeline; *p != '\0' && n < BASE_MAX; p++) {
        bool plain = strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", *p);
        bool inside = n > 0 && (*p == '-' || *p == '.');
        base[n++] = (char)(plain || inside ? *p : '_');
    }
    base[n] = '\0';
    if (n == 0)
        snprintf(base, BASE_MAX + 1, "run");
}

int lf_naming_number(const char *short_name, const char *pipeline)
{
    char base[BASE_MAX + 1];
    int64_t n = 0;
    base_of(base, pipeline);
    size_t len = strlen(base);
    const char *digits = short_name + len + 1;
    if (strncmp(short_name, base, len) != 0 || short_name[len] != '-' || digits[0] == '\0' ||
        strspn(digits, "0123456789") != strlen(digits) || lf_parse_i64(&n, digits, NULL) < 0)
        return 0;
    return n > 0 && n <= NUMBER_MAX ? (int)n : 0;
}

int lf_naming_list(lf_texts *out, const lf_project *p, lf_err *err)
{
    char dir[PATH_MAX];
    *out = (lf_texts){.given = true};
    int rc = lf_path_set(dir, err, "%s/names", p->dot);
    DIR *d = rc == 0 ? opendir(dir) : NULL;
    if (rc == 0 && d == NULL && errno != ENOENT)
        rc = lf_fail_errno(err, "cannot list %s", dir);
    for (const struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL && rc == 0;
         e = readdir(d))
        if (e->d_name[0] != '.' && !lf_str_has_suffix(e->d_name, ".tmp")) /* being published */
            rc = lf_texts_add(out, e->d_name, err);
    if (d != NULL)
        closedir(d);
    if (rc < 0)
        lf_texts_fini(out);
    return rc;
}

int lf_naming_id(char id[LF_ULID_SIZE], const lf_project *p, const char *short_name, lf_err *err)
{
    char path[PATH_MAX];
    lf_buf b;
    if (short_name[0] == '\0' || short_name[0] == '.' || strchr(short_name, '/') != NULL ||
        lf_path_set(path, NULL, "%s/names/%s", p->dot, short_name) < 0 || !lf_io_exists(path))
        return LF_ENOENT;
    lf_buf_init(&b);
    int rc = lf_io_read_file(path, 256, &b, err);
    if (rc == 0 && !lf_ulid_valid(b.data))
        rc = lf_fail(err, LF_EFORMAT, "%s does not hold the id of a run", path);
    if (rc == 0)
        memcpy(id, b.data, LF_ULID_SIZE);
    lf_buf_fini(&b);
    return rc;
}

/* The length of NAME in NAME-N, 0: the word has another form. */
static size_t base_length(const char *word)
{
    const char *dash = strrchr(word, '-');
    const bool number =
        dash != NULL && dash[1] != '\0' && strspn(dash + 1, "0123456789") == strlen(dash + 1);
    return number ? (size_t)(dash - word) : 0;
}

int lf_naming_looks(bool *out, const lf_project *p, const char *word, lf_err *err)
{
    const size_t n = base_length(word);
    lf_texts names;
    *out = false;
    int rc = n > 0 ? lf_naming_list(&names, p, err) : 0;
    for (size_t i = 0; rc == 0 && n > 0 && i < names.n && !*out; i++)
        *out = base_length(names.v[i]) == n && strncmp(names.v[i], word, n) == 0;
    if (rc == 0 && n > 0)
        lf_texts_fini(&names);
    return rc;
}

static int highest(int *out, const lf_project *p, const char *pipeline, lf_err *err)
{
    lf_texts names;
    int rc = lf_naming_list(&names, p, err);
    *out = 0;
    for (size_t i = 0; rc == 0 && i < names.n; i++) {
        int n = lf_naming_number(names.v[i], pipeline);
        *out = n > *out ? n : *out;
    }
    if (rc == 0)
        lf_texts_fini(&names);
    return rc;
}

int lf_naming_take(char **out, const lf_project *p, const char *pipeline, const char *id,
                   lf_err *err)
{
    char base[BASE_MAX + 1], path[PATH_MAX];
    int n = 0;
    base_of(base, pipeline);
    int rc = lf_path_set(path, err, "%s/names", p->dot);
    if (rc == 0)
        rc = lf_io_mkdirs(path, 0755, err);
    if (rc == 0)
        rc = highest(&n, p, pipeline, err);
    while (rc == 0 && n < NUMBER_MAX) {
        lf_err e = LF_ERR_INIT;
        rc = lf_path_set(path, err, "%s/names/%s-%d", p->dot, base, ++n);
        if (rc < 0)
            break;
        rc = lf_io_publish(path, id, strlen(id), 0644, &e);
        if (rc == 0) {
            *out = lf_strdup(strrchr(path, '/') + 1, err);
            return *out != NULL ? 0 : LF_ENOMEM;
        }
        rc = rc == LF_EEXIST ? 0 : lf_fail(err, rc, "%s", e.text); /* another one was first */
        if (rc < 0 && err != NULL)
            err->errnum = e.errnum; /* a full disk is said as such (lf_run_freeze) */
    }
    return rc == 0 ? lf_fail(err, LF_EINVAL, "%s: no free number", path) : rc;
}

void lf_naming_drop(const lf_project *p, const char *short_name)
{
    char path[PATH_MAX];
    if (short_name != NULL && lf_path_set(path, NULL, "%s/names/%s", p->dot, short_name) == 0)
        unlink(path);
}

const char *lf_run_label(const lf_run *r)
{
    return r->plan != NULL && r->plan->short_name != NULL ? r->plan->short_name : r->id;
}
