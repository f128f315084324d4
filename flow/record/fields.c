/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing records by their tables; see fields.h for what counts as given.
 */
#include "config.h"

#include "flow/record/fields.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "flow/record/record.h"

#define RECORD_MAX_BYTES ((size_t)64 << 20) /* a claim lists what may be gone on from */

/* Members are reached by their offsets; what lies there has the type that the row says. */
#define AT(type, rec, f)  ((type *)(void *)((char *)(rec) + (f)->at))
#define CAT(type, rec, f) ((type const *)(const void *)((const char *)(rec) + (f)->at))

static size_t *count_at(void *rec, const struct lf_field *f)
{
    return (size_t *)(void *)((char *)rec + f->n_at);
}

static size_t count_of(const void *rec, const struct lf_field *f)
{
    return *(const size_t *)(const void *)((const char *)rec + f->n_at);
}

/* ---- reading ---- */

static int64_t whole(const json_t *v, int64_t none)
{
    if (json_is_integer(v))
        return json_integer_value(v);
    return json_is_real(v) ? (int64_t)json_real_value(v) : none;
}

static int read_text(const char **out, const json_t *v, lf_err *err)
{
    *out = json_is_string(v) ? lf_strdup(json_string_value(v), err) : NULL;
    return json_is_string(v) && *out == NULL ? LF_ENOMEM : 0;
}

static void read_chars(char *out, size_t cap, const json_t *v)
{
    const char *s = json_string_value(v);
    size_t n = s != NULL ? strlen(s) : 0;
    if (n >= cap)
        n = cap - 1;
    memcpy(out, s != NULL ? s : "", n);
    out[n] = '\0';
}

/* An element that is no text is "". */
static int read_texts(lf_texts *out, const json_t *v, lf_err *err)
{
    int rc = 0;
    *out = (lf_texts){.given = json_is_array(v)};
    for (size_t i = 0; rc == 0 && i < json_array_size(v); i++) {
        const char *s = json_string_value(json_array_get(v, i));
        rc = lf_texts_add(out, s != NULL ? s : "", err);
    }
    return rc;
}

static int read_part(void *rec, const struct lf_field *f, const json_t *v, lf_err *err)
{
    if (!json_is_object(v))
        return 0;
    void *part = lf_calloc(1, f->sub->size, err);
    *AT(void *, rec, f) = part;
    return part != NULL ? lf_fields_read(part, f->sub, v, err) : LF_ENOMEM;
}

static int read_rows(void *rec, const struct lf_field *f, const json_t *v, lf_err *err)
{
    const size_t n = json_array_size(v);
    if (!json_is_array(v))
        return 0;
    char *rows = lf_calloc(n + 1, f->sub->size, err);
    *AT(void *, rec, f) = rows;
    int rc = rows != NULL ? 0 : LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        rc = lf_fields_read(rows + i * f->sub->size, f->sub, json_array_get(v, i), err);
        *count_at(rec, f) = i + 1;
    }
    return rc;
}

static int read_named(void *rec, const struct lf_field *f, const json_t *v, lf_err *err)
{
    if (!json_is_object(v))
        return 0;
    char *rows = lf_calloc(json_object_size(v) + 1, f->sub->size, err);
    *AT(void *, rec, f) = rows;
    int rc = rows != NULL ? 0 : LF_ENOMEM;
    const char *name;
    json_t *o;
    json_object_foreach((json_t *)(uintptr_t)v, name, o)
    {
        if (rc < 0)
            break;
        char *row = rows + (*count_at(rec, f))++ * f->sub->size;
        rc = lf_fields_read(row, f->sub, o, err);
        char *copy = lf_strdup(name, err), *had;
        memcpy(&had, row, sizeof had); /* a row may have its name inside as well */
        free(had);
        memcpy(row, &copy, sizeof copy);
        if (rc == 0 && copy == NULL)
            rc = LF_ENOMEM;
    }
    return rc;
}

static int read_field(void *rec, const struct lf_field *f, const json_t *v, lf_err *err)
{
    switch (f->type) {
    case LF_FIELD_INT:
        *AT(int, rec, f) = (int)whole(v, f->none);
        return 0;
    case LF_FIELD_I64:
        *AT(int64_t, rec, f) = whole(v, f->none);
        return 0;
    case LF_FIELD_U64:
        *AT(uint64_t, rec, f) = (uint64_t)whole(v, f->none);
        return 0;
    case LF_FIELD_REAL:
        *AT(double, rec, f) = json_is_number(v) ? json_number_value(v) : (double)f->none;
        return 0;
    case LF_FIELD_BOOL:
        *AT(bool, rec, f) = json_is_true(v);
        return 0;
    case LF_FIELD_TRI:
        *AT(int, rec, f) = json_is_boolean(v) ? json_is_true(v) : -1;
        return 0;
    case LF_FIELD_TEXT:
        return read_text(AT(const char *, rec, f), v, err);
    case LF_FIELD_CHARS:
        read_chars(AT(char, rec, f), f->cap, v);
        return 0;
    case LF_FIELD_TEXTS:
        return read_texts(AT(lf_texts, rec, f), v, err);
    case LF_FIELD_RAW:
        *AT(json_t *, rec, f) = json_incref((json_t *)(uintptr_t)v);
        return 0;
    case LF_FIELD_MARK:
        return 0;
    case LF_FIELD_RECORD:
        return lf_fields_read(AT(char, rec, f), f->sub, v, err);
    case LF_FIELD_PART:
        return read_part(rec, f, v, err);
    case LF_FIELD_ROWS:
        return read_rows(rec, f, v, err);
    case LF_FIELD_NAMED:
        return read_named(rec, f, v, err);
    }
    return 0;
}

int lf_fields_read(void *rec, const struct lf_fields *t, const json_t *o, lf_err *err)
{
    int rc = 0;
    memset(rec, 0, t->size);
    for (size_t i = 0; rc == 0 && i < t->n; i++)
        rc = read_field(rec, &t->rows[i], json_object_get(o, t->rows[i].key), err);
    if (rc < 0)
        lf_fields_fini(rec, t);
    return rc;
}

/* ---- writing ---- */

static json_t *texts_json(const lf_texts *l)
{
    json_t *a = json_array();
    for (size_t i = 0; a != NULL && i < l->n; i++)
        if (json_array_append_new(a, json_string(l->v[i])) < 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

/* A list of objects, or an object of them. */
static json_t *rows_json(const void *rec, const struct lf_field *f, lf_err *err)
{
    const bool named = f->type == LF_FIELD_NAMED;
    const char *rows = *CAT(char *, rec, f);
    json_t *all = named ? json_object() : json_array();
    for (size_t i = 0; all != NULL && i < count_of(rec, f); i++) {
        const char *row = rows + i * f->sub->size, *name;
        json_t *o = lf_fields_json(row, f->sub, err);
        memcpy(&name, row, sizeof name);
        if ((named ? json_object_set_new(all, name, o) : json_array_append_new(all, o)) < 0) {
            json_decref(all);
            return NULL;
        }
    }
    return all;
}

static bool given(const void *rec, const struct lf_field *f)
{
    switch (f->type) {
    case LF_FIELD_INT:
        return *CAT(int, rec, f) != (int)f->none;
    case LF_FIELD_I64:
    case LF_FIELD_U64:
        return *CAT(int64_t, rec, f) != f->none;
    case LF_FIELD_REAL: {
        const double v = *CAT(double, rec, f), none = (double)f->none;
        return v < none || v > none;
    }
    case LF_FIELD_BOOL:
        return *CAT(bool, rec, f);
    case LF_FIELD_TRI:
        return *CAT(int, rec, f) >= 0;
    case LF_FIELD_CHARS:
        return *CAT(char, rec, f) != '\0';
    case LF_FIELD_MARK:
    case LF_FIELD_RECORD:
        return true;
    case LF_FIELD_TEXTS:
        return CAT(lf_texts, rec, f)->given;
    case LF_FIELD_TEXT:
    case LF_FIELD_RAW:
    case LF_FIELD_PART:
    case LF_FIELD_ROWS:
    case LF_FIELD_NAMED:
        return *CAT(void *, rec, f) != NULL;
    }
    return false;
}

static json_t *field_json(const void *rec, const struct lf_field *f, lf_err *err)
{
    switch (f->type) {
    case LF_FIELD_INT:
        return json_integer(*CAT(int, rec, f));
    case LF_FIELD_I64:
    case LF_FIELD_U64:
        return json_integer(*CAT(int64_t, rec, f));
    case LF_FIELD_REAL:
        return json_real(*CAT(double, rec, f));
    case LF_FIELD_BOOL:
        return json_boolean(*CAT(bool, rec, f));
    case LF_FIELD_TRI:
        return json_boolean(*CAT(int, rec, f) > 0);
    case LF_FIELD_TEXT:
        return json_string(*CAT(char *, rec, f));
    case LF_FIELD_CHARS:
        return json_string(CAT(char, rec, f));
    case LF_FIELD_TEXTS:
        return texts_json(CAT(lf_texts, rec, f));
    case LF_FIELD_RAW:
        return json_incref(*CAT(json_t *, rec, f));
    case LF_FIELD_MARK:
        return json_integer(1);
    case LF_FIELD_RECORD:
        return lf_fields_json(CAT(char, rec, f), f->sub, err);
    case LF_FIELD_PART:
        return lf_fields_json(*CAT(void *, rec, f), f->sub, err);
    case LF_FIELD_ROWS:
    case LF_FIELD_NAMED:
        return rows_json(rec, f, err);
    }
    return NULL;
}

json_t *lf_fields_json(const void *rec, const struct lf_fields *t, lf_err *err)
{
    json_t *o = json_object();
    for (size_t i = 0; o != NULL && i < t->n; i++) {
        const struct lf_field *f = &t->rows[i];
        if (f->opt && !given(rec, f))
            continue;
        if (json_object_set_new(o, f->key, field_json(rec, f, err)) < 0) {
            json_decref(o);
            o = NULL;
            lf_fail(err, LF_ENOMEM, "cannot write \"%s\" of a record", f->key);
            return NULL;
        }
    }
    if (o == NULL)
        lf_fail(err, LF_ENOMEM, "out of memory");
    return o;
}

json_t *lf_fields_member(const void *rec, const struct lf_fields *t, const char *key, lf_err *err)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].key, key) == 0)
            return field_json(rec, &t->rows[i], err);
    return NULL;
}

/* ---- freeing ---- */

static void free_rows(void *rec, const struct lf_field *f)
{
    char *rows = *AT(char *, rec, f);
    for (size_t i = 0; rows != NULL && i < count_of(rec, f); i++) {
        if (f->type == LF_FIELD_NAMED) {
            char *name, *none = NULL;
            memcpy(&name, rows + i * f->sub->size, sizeof name);
            free(name);
            memcpy(rows + i * f->sub->size, &none, sizeof none);
        }
        lf_fields_fini(rows + i * f->sub->size, f->sub);
    }
    free(rows);
}

void lf_fields_fini(void *rec, const struct lf_fields *t)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct lf_field *f = &t->rows[i];
        if (f->type == LF_FIELD_TEXT)
            free(*AT(char *, rec, f));
        else if (f->type == LF_FIELD_TEXTS)
            lf_texts_fini(AT(lf_texts, rec, f));
        else if (f->type == LF_FIELD_RAW)
            json_decref(*AT(json_t *, rec, f));
        else if (f->type == LF_FIELD_RECORD)
            lf_fields_fini(AT(char, rec, f), f->sub);
        else if (f->type == LF_FIELD_PART)
            lf_fields_free(*AT(void *, rec, f), f->sub);
        else if (f->type == LF_FIELD_ROWS || f->type == LF_FIELD_NAMED)
            free_rows(rec, f);
    }
    memset(rec, 0, t->size);
}

void lf_fields_free(void *rec, const struct lf_fields *t)
{
    if (rec != NULL)
        lf_fields_fini(rec, t);
    free(rec);
}

/* ---- files ---- */

int lf_fields_load(void *out_ptr, const struct lf_fields *t, const char *dir, const char *name,
                   lf_err *err)
{
    char path[PATH_MAX];
    void *rec = NULL;
    struct stat st;
    memcpy(out_ptr, &rec, sizeof rec);
    int rc = lf_path_set(path, err, "%s/%s", dir, name);
    if (rc < 0)
        return rc;
    if (lstat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : lf_fail_errno(err, "%s", path);
    json_t *o = lf_json_load_file(path, RECORD_MAX_BYTES, err);
    if (o == NULL)
        return err != NULL && err->rc != 0 ? err->rc : LF_EFORMAT;
    if (!json_is_object(o))
        rc = lf_fail(err, LF_EFORMAT, "%s: not an object", path);
    else if ((rec = lf_calloc(1, t->size, err)) == NULL)
        rc = LF_ENOMEM;
    else
        rc = lf_fields_read(rec, t, o, err);
    json_decref(o);
    if (rc < 0)
        free(rec);
    else
        memcpy(out_ptr, &rec, sizeof rec);
    return rc;
}

int lf_fields_publish(const char *dir, const char *name, const struct lf_fields *t, const void *rec,
                      lf_err *err)
{
    json_t *o = lf_fields_json(rec, t, err);
    int rc = o != NULL ? lf_record_publish(dir, name, o, err) : LF_ENOMEM;
    json_decref(o);
    return rc;
}

int lf_fields_replace(const char *path, int mode, const struct lf_fields *t, const void *rec,
                      lf_err *err)
{
    json_t *o = lf_fields_json(rec, t, err);
    char *text = o != NULL ? json_dumps(o, JSON_COMPACT) : NULL;
    int rc = text != NULL ? lf_io_replace(path, text, strlen(text), mode, err)
                          : lf_fail(err, LF_ENOMEM, "out of memory");
    free(text);
    json_decref(o);
    return rc;
}
