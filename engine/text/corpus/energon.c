/* SPDX-License-Identifier: Apache-2.0
 *
 * What .nv-meta says: the class of the samples, the archives of a split, what is left out.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/yaml.h"
#include "engine/text/chat/shape.h"
#include "engine/text/corpus/energon_priv.h"

#define META       ".nv-meta"
#define META_BYTES ((size_t)64 << 20)

/* ---- files ---- */

static char *meta_path(const char *dir, const char *name, lf_err *err)
{
    char *meta = lf_path_join(dir, META, err);
    char *path = meta ? lf_path_join(meta, name, err) : NULL;
    free(meta);
    return path;
}

bool lf_energon_is(const char *dir)
{
    char *path = lf_path_join(dir, META, NULL);
    const bool is = path && lf_io_exists(path);
    free(path);
    return is;
}

/* The class is looked for in the text: such a file may have what the reader of YAML does not. */
bool lf_energon_is_mix(const char *path)
{
    static const char key[] = "__class__:";
    char head[1 << 14];
    FILE *f = lf_str_has_suffix(path, ".yaml") || lf_str_has_suffix(path, ".yml")
                  ? fopen(path, "re")
                  : NULL;
    if (!f)
        return false;
    const size_t n = fread(head, 1, sizeof head - 1, f);
    fclose(f);
    head[n] = 0;
    for (const char *p = head; (p = strstr(p, key));) {
        p += strlen(key);
        p += strspn(p, " \"'");
        if (strncmp(p, "Metadataset", strlen("Metadataset")) == 0)
            return true;
    }
    return false;
}

bool lf_energon_is_index(const char *path)
{
    static const char end[] = ".idx";
    const size_t n = strlen(path) - (lf_str_has_suffix(path, end) ? strlen(end) : 0);
    char *rows = path[n] ? lf_strndup(path, n, NULL) : NULL;
    const bool is = rows &&
                    (lf_str_has_suffix(rows, ".jsonl") || lf_str_has_suffix(rows, ".ndjson")) &&
                    lf_io_exists(rows);
    free(rows);
    return is;
}

/* The object in the first of the files that is there; *path: its name, owned. */
static int load(json_t **out, char **path, const char *dir, const char *const names[2], lf_err *err)
{
    for (int i = 0; i < 2 && names[i]; i++) {
        free(*path);
        *path = meta_path(dir, names[i], err);
        if (!*path)
            return LF_ENOMEM;
        if (i == 0 && names[1] && !lf_io_exists(*path))
            continue;
        *out = lf_str_has_suffix(names[i], ".json") ? lf_json_load_file(*path, META_BYTES, err)
                                                    : lf_yaml_load_file(*path, META_BYTES, err);
        if (!*out)
            return err->rc;
        return json_is_object(*out)
                   ? 0
                   : lf_fail(err, LF_EFORMAT, "%s: it is no mapping of keys to values", *path);
    }
    return lf_fail(err, LF_ENOENT, "%s/" META " has neither %s nor %s; energon prepare writes them",
                   dir, names[0], names[1]);
}

static int no_memory(const char *path, lf_err *err)
{
    return lf_fail(err, LF_ENOMEM, "%s: no memory for what it says", path);
}

/* ---- dataset.yaml ---- */

static const struct {
    const char *name;
    enum lf_energon_class is;
    const char *fields[5]; /* that a field_map may have */
} classes[] = {
    {"CrudeWebdataset", LF_ENERGON_CRUDE, {NULL}},
    {"TextSample", LF_ENERGON_PLAIN_TEXT, {"text"}},
    {"CaptioningSample", LF_ENERGON_CAPTION, {"image", "caption"}},
    {"OCRSample", LF_ENERGON_OCR, {"image", "text"}},
    {"VQASample", LF_ENERGON_VQA, {"image", "context", "answers", "answer_weights"}},
    {"MultiMixQASample", LF_ENERGON_MIX, {"image", "messages", "system"}},
    {"InterleavedSample", LF_ENERGON_INTERLEAVE, {NULL}},
};
#define N_CLASSES (sizeof classes / sizeof classes[0])

static int find_class(lf_energon *e, const json_t *root, lf_err *err)
{
    const json_t *type = json_object_get(root, "sample_type");
    const char *name = json_string_value(json_object_get(type ? type : root, "__class__"));
    if (!name)
        return lf_fail(err, LF_EFORMAT, "%s: sample_type has no __class__, which says what it is",
                       e->about);
    for (size_t i = 0; i < N_CLASSES; i++)
        if (strcmp(name, classes[i].name) == 0 && (i == 0) == (type == NULL)) {
            e->is = classes[i].is;
            return 0;
        }
    return lf_fail(err, LF_ENOTSUP,
                   "%s: samples of class %.80s are not read; those of CrudeWebdataset, TextSample, "
                   "CaptioningSample, OCRSample, VQASample, MultiMixQASample and "
                   "InterleavedSample (as sample_type) are",
                   e->about, name);
}

static int check_fields(const lf_energon *e, lf_err *err)
{
    const char *const *known = classes[e->is].fields, *key;
    json_t *v;
    json_object_foreach(e->fields, key, v)
    {
        bool fine = key[0] == '_' && key[1] == '_';
        for (size_t i = 0; i < 5 && known[i]; i++)
            fine = fine || strcmp(known[i], key) == 0;
        if (!fine)
            return lf_fail(err, LF_ENOTSUP,
                           "%s: field_map has %.80s, which samples of class %s have no row for; "
                           "leave it out of the map",
                           e->about, key, classes[e->is].name);
        if (!json_is_string(v) || json_string_length(v) == 0)
            return lf_fail(err, LF_EFORMAT, "%s: %.80s of field_map names no part", e->about, key);
    }
    /* what a row cannot do without */
    for (size_t i = 0; i < 3 && known[i]; i++) {
        const bool needed = e->is != LF_ENERGON_MIX || strcmp(known[i], "messages") == 0;
        if (needed && !json_object_get(e->fields, known[i]))
            return lf_fail(err, LF_EFORMAT, "%s: field_map does not say what %s is", e->about,
                           known[i]);
    }
    return 0;
}

/* The class is one that the loader makes. */
static int check_loader(const lf_energon *e, lf_err *err)
{
    const bool inter = e->loader == LF_ENERGON_INTERLEAVED;
    const char *name = inter ? "interleaved" : "texts",
               *makes = classes[inter ? LF_ENERGON_INTERLEAVE : LF_ENERGON_MIX].name;
    if (strcmp(classes[e->is].name, makes) == 0)
        return 0;
    return lf_fail(err, LF_EINVAL, "%s: sample_loader = %s makes samples of class %s, not %s",
                   e->about, name, makes, classes[e->is].name);
}

static int read_dataset(lf_energon *e, const json_t *root, lf_err *err)
{
    const json_t *loader = json_object_get(root, "sample_loader");
    json_t *map = json_object_get(root, "field_map");
    int rc = find_class(e, root, err);
    if (rc < 0 || e->is == LF_ENERGON_CRUDE) {
        e->loader = LF_ENERGON_NONE;
        return rc;
    }
    if (loader && e->loader != LF_ENERGON_NONE)
        return check_loader(e, err);
    if (loader)
        return lf_fail(err, LF_ENOTSUP,
                       "%s: its samples are loaded by code (sample_loader: %.80s), which is not "
                       "run; if it does what interleaved or texts does (lf-tokenize(1)), say so "
                       "with sample_loader, else write field_map or an archive with .json",
                       e->about, json_string_value(loader) ? json_string_value(loader) : "");
    e->loader = LF_ENERGON_NONE;
    if (!json_is_object(map) || !classes[e->is].fields[0])
        return lf_fail(err, LF_EFORMAT, "%s: it has no field_map%s", e->about,
                       json_is_object(map) ? " that gives a text and its pictures" : "");
    e->fields = json_incref(map);
    return check_fields(e, err);
}

/* ---- split.yaml, .info.json ---- */

/* A list of texts with braces; what the split leaves out is not in it. */
static int add_names(json_t *out, const json_t *list, const char *path, const char *what,
                     lf_err *err)
{
    json_t *v;
    size_t i;
    if (list && !json_is_null(list) && !json_is_array(list))
        return lf_fail(err, LF_EFORMAT, "%s: %s is no list", path, what);
    json_array_foreach(list, i, v)
    {
        int rc = json_is_string(v)
                     ? lf_energon_braces(out, json_string_value(v), path, err)
                     : lf_fail(err, LF_EFORMAT, "%s: %s has something that is no text", path, what);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int read_excluded(lf_energon *e, const json_t *root, const char *path, lf_err *err)
{
    json_t *names = json_array(), *v;
    size_t i;
    e->excluded = json_object();
    int rc = names && e->excluded ? 0 : no_memory(path, err);
    if (rc == 0)
        rc = add_names(names, json_object_get(root, "exclude"), path, "exclude", err);
    json_array_foreach(names, i, v)
    {
        if (rc == 0 && json_object_set_new(e->excluded, json_string_value(v), json_true()) != 0)
            rc = no_memory(path, err);
    }
    json_decref(names);
    return rc;
}

/* The archives of the split that are not left out, each with its samples. */
static int read_archives(lf_energon *e, const json_t *root, const char *split, const char *path,
                         lf_err *err)
{
    char known[300];
    json_t *all = json_array(), *v;
    size_t i;
    json_t *parts = json_object_get(root, "split_parts");
    const json_t *mine = json_object_get(parts, split);
    e->archives = json_array();
    int rc = all && e->archives ? 0 : no_memory(path, err);
    lf_shape_column_list(known, sizeof known, parts);
    if (rc == 0 && !mine)
        rc = lf_fail(err, LF_EINVAL, "%s: no split is called \"%.80s\"; there are %s", path, split,
                     known[0] ? known : "none");
    if (rc == 0)
        rc = add_names(all, mine, path, split, err);
    json_array_foreach(all, i, v)
    {
        const char *name = json_string_value(v);
        if (rc < 0 || json_object_get(e->excluded, name))
            continue;
        if (!json_object_get(e->counts, name))
            rc = lf_fail(err, LF_EFORMAT,
                         "%s: %.200s has no number of samples in .info; run energon prepare again",
                         path, name);
        else if (name[0] == '/' || strstr(name, "../"))
            rc = lf_fail(err, LF_EFORMAT, "%s: %.200s is outside of the folder", path, name);
        else if (json_array_append(e->archives, v) != 0)
            rc = no_memory(path, err);
    }
    if (rc == 0 && json_array_size(e->archives) == 0)
        rc = lf_fail(err, LF_EINVAL, "%s: split %s has no archive", path, split);
    json_decref(all);
    return rc;
}

/* Counts are numbers in JSON and texts in YAML; from here on they are numbers. */
static int read_counts(lf_energon *e, const json_t *root, const char *path, lf_err *err)
{
    json_t *from = json_object_get(root, "shard_counts"), *v;
    const char *key;
    e->counts = json_object();
    if (!json_is_object(from))
        return lf_fail(err, LF_EFORMAT, "%s: it has no shard_counts", path);
    json_object_foreach(from, key, v)
    {
        int64_t n = json_integer_value(v);
        if (json_is_string(v) && lf_parse_i64(&n, json_string_value(v), NULL) < 0)
            n = -1;
        if (n < 0 || (!json_is_string(v) && !json_is_integer(v)))
            return lf_fail(err, LF_EFORMAT, "%s: %.200s has no number of samples", path, key);
        if (json_object_set_new(e->counts, key, json_integer(n)) != 0)
            return no_memory(path, err);
    }
    return 0;
}

/* ---- folders ---- */

static int read_dataset_file(lf_energon *e, const char *dir, lf_err *err)
{
    static const char *const names[2] = {"dataset.yaml", NULL};
    json_t *root = NULL;
    int rc = load(&root, &e->about, dir, names, err);
    if (rc == 0)
        rc = read_dataset(e, root, err);
    json_decref(root);
    return rc;
}

static int read_split(lf_energon *e, const char *dir, const char *split, lf_err *err)
{
    static const char *const infos[2] = {".info.json", ".info.yaml"}, *const splits[2] = {
                                                                          "split.yaml",
                                                                          "split.json"};
    json_t *root = NULL;
    char *path = NULL;
    int rc = load(&root, &path, dir, infos, err);
    if (rc == 0)
        rc = read_counts(e, root, path, err);
    json_decref(root);
    root = NULL;
    if (rc == 0)
        rc = load(&root, &path, dir, splits, err);
    if (rc == 0)
        rc = read_excluded(e, root, path, err);
    if (rc == 0)
        rc = read_archives(e, root, split, path, err);
    json_decref(root);
    free(path);
    return rc;
}

int lf_energon_open(lf_energon **out, const char *dir, const lf_energon_opts *o, lf_err *err)
{
    lf_err why = LF_ERR_INIT;
    if (!err)
        err = &why;
    lf_energon *e = lf_calloc(1, sizeof *e, err);
    if (!e)
        return LF_ENOMEM;
    e->loader = o->loader;
    int rc = read_dataset_file(e, dir, err);
    if (rc == 0)
        rc = read_split(e, dir, o->split, err);
    if (rc < 0)
        lf_energon_close(e);
    else
        *out = e;
    return rc;
}

void lf_energon_close(lf_energon *e)
{
    if (!e)
        return;
    free(e->about);
    json_decref(e->fields);
    json_decref(e->archives);
    json_decref(e->counts);
    json_decref(e->excluded);
    free(e);
}

size_t lf_energon_archives(const lf_energon *e)
{
    return json_array_size(e->archives);
}

const char *lf_energon_archive(const lf_energon *e, size_t i)
{
    return json_string_value(json_array_get(e->archives, i));
}

uint64_t lf_energon_samples(const lf_energon *e, size_t i)
{
    return (uint64_t)json_integer_value(json_object_get(e->counts, lf_energon_archive(e, i)));
}

bool lf_energon_excluded(const lf_energon *e, size_t i, const char *key)
{
    if (json_object_size(e->excluded) == 0)
        return false;
    char *name = lf_path_join(lf_energon_archive(e, i), key, NULL);
    const bool is = name && json_object_get(e->excluded, name);
    free(name);
    return is;
}

void lf_energon_identity(const lf_energon *e, lf_buf *out)
{
    char *fields = e->fields ? lf_json_dump(e->fields, NULL) : NULL,
         *excluded = lf_json_dump(e->excluded, NULL);
    lf_buf_addf(out, "energon=%d %d %s %s\n", (int)e->is, (int)e->loader, fields ? fields : "",
                excluded ? excluded : "");
    free(fields);
    free(excluded);
}

/* ---- members ---- */

bool lf_energon_member(const char *name)
{
    const size_t first = strcspn(name, "/");
    const char *base = strrchr(name, '/');
    base = base ? base + 1 : name;
    const bool meta =
        first >= 4 && strncmp(name, "__", 2) == 0 && strncmp(name + first - 2, "__", 2) == 0;
    return !meta && base[0] != '.' && strchr(base, '.') != NULL;
}

bool lf_energon_by_parts(const lf_energon *e)
{
    return e->is != LF_ENERGON_CRUDE;
}

bool lf_energon_wants(const lf_energon *e, const char *part)
{
    const size_t n = strlen(part);
    const char *key;
    json_t *v;
    if (!e->fields) /* with a loader JSON says which */
        return true;
    json_object_foreach(e->fields, key, v)
    {
        for (const char *p = json_string_value(v); *p; p += strcspn(p, ","), p += *p == ',') {
            const size_t name = strcspn(p, "[,");
            if (name == n && memcmp(p, part, n) == 0)
                return true;
        }
    }
    return false;
}

enum lf_energon_part lf_energon_part_kind(const char *part)
{
    static const char *const json[] = {"json", "jsn"}, *const texts[] = {"txt", "text",
                                                                         "transcript"};
    const char *dot = strrchr(part, '.');
    dot = dot ? dot + 1 : part;
    for (size_t i = 0; i < sizeof json / sizeof json[0]; i++)
        if (strcasecmp(dot, json[i]) == 0)
            return LF_ENERGON_JSON;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (strcasecmp(dot, texts[i]) == 0)
            return LF_ENERGON_TEXT;
    return LF_ENERGON_PICTURE;
}
