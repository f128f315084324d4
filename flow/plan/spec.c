/* SPDX-License-Identifier: Apache-2.0
 *
 * Spec ids and the cached hashes of outside files.
 */
#include "config.h"

#include "flow/plan/spec.h"

#include <dirent.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/hash.h"
#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/record/record.h"

#define CACHE_MAX_BYTES ((size_t)64 << 20)
#define RACY_S          2.0
#define TREE_MAX_DEPTH  32

struct hasher {
    lf_names names; /* of the stages */
    json_t *cache;  /* {path: {"size","mtime_ns","ctime_ns","inode","at","sha256"}} */
    bool dirty;
};

/* ---- outside files ---- */

static json_int_t time_ns(const struct timespec *t)
{
    return (json_int_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static const char *cached(const struct hasher *h, const char *path, const struct stat *st)
{
    json_t *e = json_object_get(h->cache, path);
    const char *hex = json_string_value(json_object_get(e, "sha256"));
    if (hex == NULL || strlen(hex) != LF_HASH_HEX - 1)
        return NULL;
    /* The time of change too: a person can set the other back. */
    if (json_integer_value(json_object_get(e, "size")) != st->st_size ||
        json_integer_value(json_object_get(e, "mtime_ns")) != time_ns(&st->st_mtim) ||
        json_integer_value(json_object_get(e, "ctime_ns")) != time_ns(&st->st_ctim) ||
        json_integer_value(json_object_get(e, "inode")) != (json_int_t)st->st_ino)
        return NULL;
    json_int_t newest = time_ns(&st->st_mtim) > time_ns(&st->st_ctim) ? time_ns(&st->st_mtim)
                                                                      : time_ns(&st->st_ctim);
    if (json_number_value(json_object_get(e, "at")) - 1e-9 * (double)newest < RACY_S)
        return NULL;
    return hex;
}

static int hash_file(char hex[LF_HASH_HEX], struct hasher *h, const char *path,
                     const struct stat *st, lf_err *err)
{
    const char *known = cached(h, path, st);
    if (known != NULL) {
        memcpy(hex, known, LF_HASH_HEX);
        return 0;
    }
    double at = lf_wall_s();
    uint8_t digest[LF_HASH_BYTES];
    int64_t bytes = 0;
    int rc = lf_tree_hash_file(digest, &bytes, path, err);
    if (rc < 0)
        return rc;
    lf_hash_hex(hex, digest);
    json_t *e = json_pack("{s:I, s:I, s:I, s:I, s:f, s:s}", "size", (json_int_t)bytes, "mtime_ns",
                          time_ns(&st->st_mtim), "ctime_ns", time_ns(&st->st_ctim), "inode",
                          (json_int_t)st->st_ino, "at", at, "sha256", hex);
    h->dirty = true;
    return lf_json_set_new(h->cache, path, e, err);
}

static int hash_path(lf_buf *out, struct hasher *h, const char *path, const char *rel, int depth,
                     lf_err *err);

/* Hidden files are left out, as the stages that read directories do. */
static int not_hidden(const struct dirent *d)
{
    return d->d_name[0] != '.';
}

static int hash_dir(lf_buf *out, struct hasher *h, const char *path, const char *rel, int depth,
                    lf_err *err)
{
    if (depth > TREE_MAX_DEPTH)
        return lf_fail(err, LF_EINVAL, "%s: directories are nested more than %d deep", path,
                       TREE_MAX_DEPTH);
    struct dirent **list = NULL;
    int n = scandir(path, &list, not_hidden, alphasort);
    if (n < 0)
        return lf_fail_errno(err, "cannot list %s", path);
    int rc = 0;
    for (int i = 0; i < n; i++) {
        lf_buf p, r;
        lf_buf_init(&p);
        lf_buf_init(&r);
        lf_buf_addf(&p, "%s/%s", path, list[i]->d_name);
        lf_buf_addf(&r, "%s/%s", rel, list[i]->d_name);
        if (rc == 0)
            rc = hash_path(out, h, p.data, r.data, depth + 1, err);
        lf_buf_fini(&p);
        lf_buf_fini(&r);
        free(list[i]);
    }
    free(list);
    return rc;
}

/* One line per file: name below the input, then the hash of what it holds. */
static int hash_path(lf_buf *out, struct hasher *h, const char *path, const char *rel, int depth,
                     lf_err *err)
{
    struct stat st;
    int rc = lf_path_plain(path, "input", err); /* the list below is one of lines */
    if (rc < 0)
        return rc;
    if (stat(path, &st) < 0)
        return lf_fail_errno(err, "input %s", path);
    if (S_ISDIR(st.st_mode))
        return hash_dir(out, h, path, rel, depth, err);
    if (!S_ISREG(st.st_mode))
        return lf_fail(err, LF_EINVAL, "input %s is neither a file nor a directory", path);
    char hex[LF_HASH_HEX];
    rc = hash_file(hex, h, path, &st, err);
    if (rc == 0)
        lf_buf_addf(out, "%s %s\n", rel, hex);
    return rc;
}

/* What an option names. A Megatron index, NAME.idx, stands for the tokens in NAME.bin. */
static int hash_input(lf_buf *out, struct hasher *h, const char *path, const char *rel, lf_err *err)
{
    int rc = hash_path(out, h, path, rel, 0, err);
    if (rc < 0 || !lf_str_has_suffix(path, ".idx"))
        return rc;
    lf_buf bin;
    struct stat st;
    lf_buf_init(&bin);
    lf_buf_add(&bin, path, strlen(path) - strlen("idx"));
    lf_buf_adds(&bin, "bin");
    rc = lf_buf_check(&bin, err);
    if (rc == 0 && stat(bin.data, &st) == 0)
        rc = hash_path(out, h, bin.data, "bin", 0, err);
    lf_buf_fini(&bin);
    return rc;
}

static int hash_outside(lf_buf *out, struct hasher *h, const char *project, const char *text,
                        lf_err *err)
{
    lf_buf path, list;
    lf_buf_init(&path);
    lf_buf_init(&list);
    if (text[0] != '/')
        lf_buf_addf(&path, "%s/", project);
    lf_buf_adds(&path, text);
    struct stat st;
    int rc = 0;
    if (stat(path.data, &st) == 0) {
        rc = hash_input(&list, h, path.data, "", err);
    } else {
        glob_t g;
        memset(&g, 0, sizeof g);
        if (glob(path.data, 0, NULL, &g) != 0)
            rc = lf_fail(err, LF_ENOENT, "input %s does not exist", path.data);
        for (size_t i = 0; rc == 0 && i < g.gl_pathc; i++) {
            const char *base = strrchr(g.gl_pathv[i], '/');
            rc = hash_input(&list, h, g.gl_pathv[i], base != NULL ? base + 1 : g.gl_pathv[i], err);
        }
        globfree(&g);
    }
    uint8_t digest[LF_HASH_BYTES];
    if (rc == 0)
        rc = lf_buf_check(&list, err);
    if (rc == 0)
        rc = lf_hash_buf(digest, list.data, list.len, err);
    if (rc == 0) {
        char hex[LF_HASH_HEX];
        lf_hash_hex(hex, digest);
        lf_buf_addf(out, "sha256:%s", hex);
    }
    lf_buf_fini(&path);
    lf_buf_fini(&list);
    return rc;
}

/* ---- spec of a stage ---- */

static int spec_of_refs(lf_buf *out, const struct hasher *h, const json_t *doc, const json_t *input,
                        lf_err *err)
{
    const char *p = json_string_value(json_object_get(input, "text"));
    const json_t *refs = json_object_get(input, "refs");
    for (size_t i = 0; i < json_array_size(refs); i++) {
        const char *d = strstr(p, "${stage:"), *close = d != NULL ? strchr(d, '}') : NULL;
        const json_t *ref = json_array_get(refs, i);
        const json_t *st = lf_names_stage(&h->names, doc, json_object_get(ref, "stage"));
        const char *id = json_string_value(json_object_get(st, "spec_id"));
        if (close == NULL || id == NULL)
            return lf_fail(err, LF_EFORMAT, "plan document: a reference and its text disagree");
        lf_buf_add(out, p, (size_t)(d - p));
        lf_buf_addf(out, "stage:%s.%s", id, json_string_value(json_object_get(ref, "output")));
        p = close + 1;
    }
    lf_buf_adds(out, p);
    return 0;
}

/* The name under which an option enters the spec id: the one it had before it was renamed. */
static const char *hash_name(const json_t *stage, const char *option)
{
    const char *was = json_string_value(json_object_get(json_object_get(stage, "renamed"), option));
    return was != NULL ? was : option;
}

static int spec_inputs(json_t *into, struct hasher *h, const json_t *doc, const json_t *stage,
                       const char *project, lf_err *err)
{
    const json_t *inputs = json_object_get(stage, "inputs");
    const json_t *types = json_object_get(stage, "types");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(inputs); i++) {
        const json_t *in = json_array_get(inputs, i);
        const char *opt = json_string_value(json_object_get(in, "option"));
        const char *text = json_string_value(json_object_get(in, "text"));
        if (json_is_false(json_object_get(in, "identity")))
            continue; /* it changes what is looked at on the way, not what comes out */
        json_t *list = json_object_get(into, hash_name(stage, opt));
        if (list == NULL) {
            list = json_array();
            rc = lf_json_set_new(into, hash_name(stage, opt), list, err);
        }
        lf_buf b;
        lf_buf_init(&b);
        if (rc == 0 && json_array_size(json_object_get(in, "refs")) > 0)
            rc = spec_of_refs(&b, h, doc, in, err);
        else if (rc == 0 && json_object_get(types, opt) != NULL &&
                 !json_is_true(json_object_get(in, "word")))
            rc = hash_outside(&b, h, project, text, err);
        else if (rc == 0)
            lf_buf_adds(&b, text);
        if (rc == 0)
            rc = lf_json_push_new(list, json_stringn(b.data, b.len), err);
        lf_buf_fini(&b);
    }
    return rc;
}

/* The identity options by the names that are hashed, new; NULL with err. */
static json_t *spec_options(const json_t *stage, lf_err *err)
{
    json_t *identity = json_object_get(stage, "identity"), *out = json_object(), *v;
    const char *k;
    int rc = out == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
    json_object_foreach(identity, k, v)
    {
        if (rc == 0)
            rc = lf_json_set_new(out, hash_name(stage, k), json_incref(v), err);
    }
    if (rc == 0)
        return out;
    json_decref(out);
    return NULL;
}

static int spec_one(json_t *stage, struct hasher *h, const json_t *doc, const char *project,
                    lf_err *err)
{
    json_t *options = spec_options(stage, err);
    if (options == NULL)
        return LF_ENOMEM;
    json_t *inputs = json_object();
    json_t *spec =
        json_pack("{s:O, s:O, s:o, s:O}", "kind", json_object_get(stage, "kind"), "spec_version",
                  json_object_get(stage, "spec_version"), "options", options, "inputs", inputs);
    int rc = spec == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
    if (rc == 0)
        rc = spec_inputs(inputs, h, doc, stage, project, err);
    json_t *model = json_object_get(stage, "model");
    if (rc == 0 && model != NULL)
        rc = lf_json_set_new(spec, "model", json_incref(model), err);
    char *text = rc == 0 ? lf_json_dump(spec, err) : NULL;
    uint8_t digest[LF_HASH_BYTES];
    if (rc == 0)
        rc = text == NULL ? LF_ENOMEM : lf_hash_buf(digest, text, strlen(text), err);
    if (rc == 0) {
        char hex[LF_HASH_HEX];
        lf_hash_hex(hex, digest);
        rc = lf_json_set_new(stage, "spec_id", json_string(hex), err);
    }
    if (rc == 0)
        rc = lf_json_set_new(stage, "spec", json_incref(spec), err);
    free(text);
    json_decref(spec);
    json_decref(inputs);
    return rc;
}

int lf_spec_assign(json_t *doc, const char *project, const char *cache_path, lf_err *err)
{
    struct hasher h = {.cache = NULL};
    if (cache_path != NULL && lf_io_exists(cache_path))
        h.cache = lf_json_load_file(cache_path, CACHE_MAX_BYTES,
                                    NULL); /* a damaged cache is an empty cache */
    if (!json_is_object(h.cache)) {
        json_decref(h.cache);
        h.cache = json_object();
    }
    json_t *stages = json_object_get(doc, "stages");
    int rc = h.cache == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
    if (rc == 0)
        rc = lf_names_of_stages(&h.names, doc, err);
    for (size_t i = 0; rc == 0 && i < json_array_size(stages); i++) {
        json_t *st = json_array_get(stages, i);
        rc = spec_one(st, &h, doc, project, err);
        if (rc < 0)
            lf_err_prefix(err, "stage %s", json_string_value(json_object_get(st, "name")));
    }
    if (rc == 0 && h.dirty && cache_path != NULL) {
        char *text = lf_json_dump(h.cache, NULL);
        if (text != NULL)
            (void)lf_io_replace(cache_path, text, strlen(text), 0644,
                                NULL); /* only a cache: a failure costs time */
        free(text);
    }
    lf_names_fini(&h.names);
    json_decref(h.cache);
    return rc;
}

/* ---- differences ---- */

/* Specs have hash names, users know the option by its name of today: array of names, in place. */
static int todays_names(json_t *out, const json_t *stage, lf_err *err)
{
    const char *name;
    json_t *was;
    int rc = 0;
    json_object_foreach(json_object_get(stage, "renamed"), name, was)
    {
        for (size_t i = 0; rc == 0 && i < json_array_size(out); i++)
            if (json_equal(json_array_get(out, i), was) &&
                json_array_set_new(out, i, json_string(name)) != 0)
                rc = lf_fail(err, LF_ENOMEM, "out of memory");
    }
    return rc;
}

/* Adds the names that are in only one object or differ; of two objects that name each once. */
static int diff_objects(json_t *out, json_t *a, json_t *b, const char *prefix, lf_err *err)
{
    const char *k;
    json_t *v;
    int rc = 0;
    json_object_foreach(a, k, v)
    {
        if (rc == 0 && !json_equal(v, json_object_get(b, k)))
            rc = lf_json_push_new(out, json_sprintf("%s%s", prefix, k), err);
    }
    json_object_foreach(b, k, v)
    {
        if (rc == 0 && json_object_get(a, k) == NULL)
            rc = lf_json_push_new(out, json_sprintf("%s%s", prefix, k), err);
    }
    return rc;
}

json_t *lf_spec_diff(const json_t *a, const json_t *b, lf_err *err)
{
    const json_t *sa = json_object_get(a, "spec"), *sb = json_object_get(b, "spec");
    json_t *out = json_array();
    int rc = out == NULL ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
    static const char *const scalar[] = {"kind", "spec_version"};
    for (size_t i = 0; rc == 0 && i < 2; i++)
        if (!json_equal(json_object_get(sa, scalar[i]), json_object_get(sb, scalar[i])))
            rc = lf_json_push_new(out, json_string(scalar[i]), err);
    if (rc == 0)
        rc = diff_objects(out, json_object_get(sa, "options"), json_object_get(sb, "options"), "",
                          err);
    if (rc == 0)
        rc = diff_objects(out, json_object_get(sa, "inputs"), json_object_get(sb, "inputs"), "",
                          err);
    if (rc == 0)
        rc = todays_names(out, b, err);
    if (rc == 0)
        rc = todays_names(out, a, err);
    if (rc == 0)
        rc = diff_objects(out, json_object_get(sa, "model"), json_object_get(sb, "model"), "model.",
                          err);
    if (rc < 0) {
        json_decref(out);
        return NULL;
    }
    return out;
}
