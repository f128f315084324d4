/* SPDX-License-Identifier: Apache-2.0
 *
 * See made_by.h.
 */
#include "config.h"

#include "stages/made_by.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/artifact.h"
#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/sys.h"

#define RECORD_MAX ((size_t)16 << 20)
#define READ_MAX                                                                                   \
    ((int64_t)64 << 20) /* bytes of what a path names that are read; beyond them lengths count */
#define DEPTH_MAX 16

/* ---- the identity of what a path names ---- */

struct digest {
    lf_hash *h;
    int64_t left; /* bytes that may still be read */
};

static int add_file(struct digest *d, const char *path, int64_t bytes, lf_err *err)
{
    lf_buf text;
    lf_buf_init(&text);
    int rc = 0;
    lf_hash_update(d->h, &bytes, sizeof bytes);
    if (bytes <= d->left) {
        rc = lf_io_read_file(path, (size_t)READ_MAX, &text, err);
        lf_hash_update(d->h, text.data, text.len);
        d->left -= bytes;
    }
    lf_buf_fini(&text);
    return rc;
}

static int add_tree(struct digest *d, const char *path, int depth, lf_err *err);

static int add_dir(struct digest *d, const char *path, int depth, lf_err *err)
{
    struct dirent **list = NULL;
    int n = scandir(path, &list, NULL, alphasort),
        rc = n < 0 ? lf_fail_errno(err, "cannot list %s", path) : 0;
    for (int i = 0; i < n; i++) {
        const char *name = list[i]->d_name;
        char *sub = rc == 0 && name[0] != '.' ? lf_path_join(path, name, err) : NULL;
        if (sub) {
            lf_hash_update(d->h, name, strlen(name) + 1);
            rc = add_tree(d, sub, depth + 1, err);
        } else if (rc == 0 && name[0] != '.') {
            rc = LF_ENOMEM;
        }
        free(sub);
        free(list[i]);
    }
    free(list);
    return rc;
}

static int add_tree(struct digest *d, const char *path, int depth, lf_err *err)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return 0; /* a dangling link: whoever reads it will say so */
    if (S_ISDIR(st.st_mode))
        return depth < DEPTH_MAX ? add_dir(d, path, depth, err) : 0;
    return S_ISREG(st.st_mode) ? add_file(d, path, (int64_t)st.st_size, err) : 0;
}

/* Megatron's NAME.idx and NAME.bin are one thing under either name. */
static int add_pair(struct digest *d, const char *path, bool *pair, lf_err *err)
{
    static const char *const ends[] = {".idx", ".bin"};
    size_t n = strlen(path);
    *pair = n > 4 && (strcmp(path + n - 4, ends[0]) == 0 || strcmp(path + n - 4, ends[1]) == 0);
    int rc = 0;
    for (size_t i = 0; *pair && rc == 0 && i < 2; i++) {
        char *part = lf_strdup(path, err);
        if (!part)
            return LF_ENOMEM;
        memcpy(part + n - 4, ends[i], 4);
        rc = add_tree(d, part, 0, err);
        free(part);
    }
    return rc;
}

/* A finished artifact has an identity; of anything else lengths and, while they are short, contents
 * are one. */
static int identity(uint8_t out[LF_HASH_BYTES], const char *path, lf_err *err)
{
    lf_artifact a = {0};
    if (lf_artifact_load(&a, path, NULL, NULL) == 0) {
        int rc = lf_artifact_id(&a, out, err);
        lf_artifact_fini(&a);
        return rc;
    }
    struct digest d = {.h = lf_hash_create(err), .left = READ_MAX};
    bool pair = false;
    int rc = d.h ? add_pair(&d, path, &pair, err) : LF_ENOMEM;
    if (rc == 0 && !pair)
        rc = add_tree(&d, path, 0, err);
    if (d.h)
        lf_hash_final(d.h, out);
    lf_hash_destroy(d.h);
    return rc;
}

/* The values of a path option, a line each: words as they are, what is there by its identity. */
static int add_paths(lf_buf *text, const lf_optset *o, const lf_opt *opt, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < lf_optset_count(o, opt->name); i++) {
        const char *path = lf_optset_str_at(o, opt->name, i);
        uint8_t digest[LF_HASH_BYTES];
        char hex[LF_HASH_HEX];
        lf_buf_adds(text, i > 0 ? "\n" : "");
        if (!lf_io_exists(path) || lf_opt_choice_index(opt, path) >= 0) {
            lf_buf_adds(text, path);
            continue;
        }
        rc = identity(digest, path, err);
        lf_hash_hex(hex, digest);
        lf_buf_adds(text, hex);
    }
    return rc;
}

/* ---- the record ---- */

static int describe(json_t **out, const lf_optset *o, const lf_opt_table *t, lf_err *err)
{
    json_t *options = json_object();
    int rc = options ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    for (size_t i = 0; rc == 0 && i < t->n_opts; i++) {
        const lf_opt *opt = &t->opts[i];
        lf_buf text;
        if (opt->cls == LF_OPT_OPERATIONAL || !lf_optset_has_value(o, opt->name))
            continue;
        lf_buf_init(&text);
        rc = opt->type == LF_OPT_PATH ? add_paths(&text, o, opt, err)
                                      : lf_optset_canonical(o, opt->name, &text, err);
        rc = rc == 0 ? lf_buf_check(&text, err) : rc;
        if (rc == 0 &&
            json_object_set_new(options, opt->name, json_stringn_nocheck(text.data, text.len)))
            rc = lf_fail(err, LF_ENOMEM, "out of memory");
        lf_buf_fini(&text);
    }
    json_t *rec = rc == 0 ? json_pack("{s:i, s:s, s:i, s:O}", "lf_made_by", 1, "stage", t->stage,
                                      "spec_version", t->spec_version, "options", options)
                          : NULL;
    json_decref(options);
    if (rc == 0 && !rec)
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    *out = rec;
    return rc;
}

static const char *shown(const json_t *v)
{
    const char *s = json_string_value(v);
    return s ? s : "not given";
}

#define SHOWN 6 /* options that differ are named; a few tell what happened */

static void tell(lf_buf *out, const lf_opt *opt, const json_t *x, const json_t *y)
{
    lf_buf_adds(out, out->len > 0 ? "; " : "");
    if (opt->type == LF_OPT_PATH && x && y)
        lf_buf_addf(out, "%s has other contents", opt->name);
    else if (opt->type == LF_OPT_PATH)
        lf_buf_addf(out, "%s was %s", opt->name, x ? "given and is not" : "not given");
    else
        lf_buf_addf(out, "%s was %.200s, is %.200s", opt->name, shown(x), shown(y));
}

/* The options of the table that differ, in words; "" where none does. */
static void difference(lf_buf *out, const json_t *was, const json_t *is, const lf_opt_table *t)
{
    const json_t *a = json_object_get(was, "options"), *b = json_object_get(is, "options");
    int found = 0;
    for (size_t i = 0; i < t->n_opts; i++) {
        const lf_opt *opt = &t->opts[i];
        const json_t *x = json_object_get(a, opt->name), *y = json_object_get(b, opt->name);
        if (!x && opt->was) /* the record is from before the option was renamed */
            x = json_object_get(a, opt->was);
        if (!x && !y)
            continue;
        if (x && y && json_equal(x, y))
            continue;
        if (found++ < SHOWN)
            tell(out, opt, x, y);
    }
    if (found > SHOWN)
        lf_buf_addf(out, ", and %d more differ", found - SHOWN);
    if (out->len == 0 && !json_equal(json_object_get(was, "stage"), json_object_get(is, "stage")))
        lf_buf_addf(out, "lf-%.40s made it", shown(json_object_get(was, "stage")));
    else if (out->len == 0 &&
             !json_equal(json_object_get(was, "spec_version"), json_object_get(is, "spec_version")))
        lf_buf_addf(out, "it was made by another version of lf-%s", t->stage);
}

static int compare(const char *dir, const char *path, const json_t *is, const lf_opt_table *t,
                   bool whole, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    json_t *was = lf_json_load_file(path, RECORD_MAX, &why);
    lf_buf text;
    lf_buf_init(&text);
    int rc = 0;
    if (!was && why.rc == LF_ENOENT && whole)
        lf_log(1, "%s does not say with which options it was made", dir);
    else if (!was && why.rc != LF_ENOENT)
        rc = lf_fail(err, why.rc, "%s", why.text);
    if (was)
        difference(&text, was, is, t);
    if (was && text.len > 0)
        rc = lf_fail(err, LF_EEXIST,
                     "%s was %s with other options (%s); use another out, or remove it", dir,
                     whole ? "made" : "begun", text.data);
    lf_buf_fini(&text);
    json_decref(was);
    return rc;
}

/* Whole or not there. Its name becomes durable with that of the artifact beside it, whose making
 * syncs the directory before the manifest can be there. */
static int write_record(const char *path, const json_t *is, lf_err *err)
{
    lf_buf tmp;
    lf_buf_init(&tmp);
    lf_buf_addf(&tmp, "%s.new.tmp", path); /* lf_io_tidy removes what a kill leaves */
    char *text = lf_json_dump(is, err);
    int rc = text ? lf_buf_check(&tmp, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_write_file(tmp.data, text, strlen(text), LF_ARTIFACT_MODE, err);
    if (rc == 0)
        rc = lf_io_fsync_path(tmp.data, err);
    if (rc == 0 && rename(tmp.data, path) < 0)
        rc = lf_fail_errno(err, "cannot write %s", path);
    if (rc < 0 && tmp.len > 0)
        unlink(tmp.data);
    free(text);
    lf_buf_fini(&tmp);
    return rc;
}

/* Does any file of the directory hold something? */
static bool begun(const char *dir)
{
    struct dirent **list = NULL;
    int n = scandir(dir, &list, NULL, NULL);
    bool any = false;
    for (int i = 0; i < n; i++) {
        struct stat st;
        char *path = lf_path_join(dir, list[i]->d_name, NULL);
        any = any || (path && stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0);
        free(path);
        free(list[i]);
    }
    free(list);
    return any;
}

static char *record_path(const char *out, const char *name, lf_err *err)
{
    char hidden[80];
    snprintf(hidden, sizeof hidden, ".%.60s.made_by.json", name);
    return lf_path_join(out, hidden, err);
}

void lf_made_by_forget(const char *out, const char *name)
{
    char *dir = lf_path_join(out, name, NULL), *path = record_path(out, name, NULL);
    if (dir && path && !lf_io_exists(dir))
        unlink(path);
    free(dir);
    free(path);
}

int lf_made_by(const lf_optset *o, const lf_opt_table *t, const char *out, const char *name,
               enum lf_made_by_rule rule, lf_err *err)
{
    enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
    json_t *is = NULL;
    lf_err why = LF_ERR_INIT;
    if (!out)
        return 0;
    char *dir = lf_path_join(out, name, err), *path = record_path(out, name, err);
    int rc = dir && path ? describe(&is, o, t, err) : LF_ENOMEM;
    if (rc == 0)
        rc = lf_io_tidy(path, err); /* out is this process's alone */
    if (rc == 0 && (rc = lf_artifact_state(&st, dir, &why)) < 0)
        rc = lf_fail(err, rc, "%s", why.text);
    const bool whole = st == LF_ARTIFACT_PRESENT;
    if (rc == 0 && (whole || (rule == LF_MADE_BY_BEGUN && begun(dir))))
        rc = compare(dir, path, is, t, whole, err);
    if (rc == 0 && !whole)
        rc = write_record(path, is, err);
    json_decref(is);
    free(dir);
    free(path);
    return rc;
}

int lf_made_already(bool *done, const lf_optset *o, const lf_opt_table *t, const char *out,
                    const char *name, lf_err *err)
{
    enum lf_artifact_state st = LF_ARTIFACT_ABSENT;
    char *dir = lf_path_join(out, name, err);
    int rc = dir ? lf_io_mkdirs(out, 0750, err) : LF_ENOMEM;
    rc = rc < 0 ? rc : lf_made_by(o, t, out, name, LF_MADE_BY_WHOLE, err);
    if (rc == 0)
        rc = lf_artifact_state(&st, dir, err);
    *done = st == LF_ARTIFACT_PRESENT;
    if (rc == 0 && *done)
        lf_log(2, "%s is complete already", dir);
    free(dir);
    return rc;
}
