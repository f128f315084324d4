/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading and writing records by their tables; see fields.h for what counts as given.
 */
#include "config.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/io.h"
#include "engine/base/json.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/record/fields.h"
#include "flow/record/record.h"

#define RECORD_MAX_BYTES ((size_t)64 << 20) /* a claim lists what may be gone on from */

/* Members are reached by their offsets; what lies there has the type that the row says. */
#define AT(type, rec, f)  ((type *)(void *)((char *)(rec) + (f)->at))
#define CAT(type, rec, f) ((type const *)(const void *)((const char *)(rec) + (f)->at))

typedef LF_ROWS(
    void) rows_of; /* any LF_ROWS; copied in and out, for its pointer has another type */

/* Where a value stands, for messages: from the file inwards. */
struct place {
    const char *what; /* the file; of the outermost */
    const struct place *in;
    const char *name; /* NULL: an element */
    size_t i;
};

static size_t *count_at(void *rec, const struct lf_field *f)
{
    return (size_t *)(void *)((char *)rec + f->n_at);
}

/* The structs of a list, whichever kind it is. */
static const char *elements(const void *rec, const struct lf_field *f, size_t *n)
{
    if (f->type == LF_FIELD_LIST) {
        rows_of r;
        memcpy(&r, CAT(char, rec, f), sizeof r);
        *n = r.n;
        return r.v;
    }
    const char *v = *CAT(char *, rec, f);
    *n = v != NULL ? *(const size_t *)(const void *)((const char *)rec + f->n_at) : 0;
    return v;
}

/* ---- what is expected ---- */

static void place_text(lf_buf *b, const struct place *p)
{
    if (p->in != NULL)
        place_text(b, p->in);
    if (p->in == NULL)
        lf_buf_addf(b, "%s: ", p->what);
    else if (p->name == NULL)
        lf_buf_addf(b, "[%zu]", p->i);
    else
        lf_buf_addf(b, "%s%s", p->in->in != NULL ? "." : "", p->name);
}

/* "FILE: stages[3].deps: TEXT" */
static int refuse(const struct place *p, const char *text, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    place_text(&b, p);
    int rc =
        lf_fail(err, LF_EFORMAT, "%s%s%s", b.data, b.len > 0 && p->in != NULL ? ": " : "", text);
    lf_buf_fini(&b);
    return rc;
}

static bool fits_table(const json_t *v, const struct lf_fields *t)
{
    return t->list ? json_is_array(v) && json_array_size(v) == t->n : json_is_object(v);
}

#define IS(t)  (1u << JSON_##t)
#define NUMBER (IS(INTEGER) | IS(REAL))
#define FLAG   (IS(TRUE) | IS(FALSE))
/* Of each type of field: which types of JSON it may have, and what a strict table says of
 * others. */
static const struct {
    unsigned types;
    const char *words;
} expected[] = {[LF_FIELD_INT] = {NUMBER, "must be a number"},
                [LF_FIELD_I64] = {NUMBER, "must be a number"},
                [LF_FIELD_REAL] = {NUMBER, "must be a number"},
                [LF_FIELD_BOOL] = {FLAG, "must be true or false"},
                [LF_FIELD_TRI] = {FLAG, "must be true or false"},
                [LF_FIELD_CHARS] = {IS(STRING), "must be a text"},
                [LF_FIELD_TEXT] = {IS(STRING), "must be a text"},
                [LF_FIELD_MAY_INT] = {IS(INTEGER), "must be an integer"},
                [LF_FIELD_MAY_REAL] = {NUMBER, "must be a number"},
                [LF_FIELD_MAY_FLAG] = {FLAG, "must be true or false"},
                [LF_FIELD_TEXTS] = {IS(ARRAY), "must be a list of texts"},
                [LF_FIELD_PAIRS] = {IS(OBJECT), "must be an object of texts"},
                [LF_FIELD_LISTS] = {IS(OBJECT), "must be an object of lists"},
                [LF_FIELD_RAW] = {~0u, NULL},
                [LF_FIELD_RECORD] = {IS(OBJECT), "must be an object"},
                [LF_FIELD_PART] = {IS(OBJECT), "must be an object"},
                [LF_FIELD_ROWS] = {IS(ARRAY), "must be a list"},
                [LF_FIELD_NAMED] = {IS(OBJECT), "must be an object"},
                [LF_FIELD_LIST] = {IS(ARRAY), "must be a list"},
                [LF_FIELD_BASE] = {0, NULL}};

static bool fits(const json_t *v, const struct lf_field *f)
{
    return v != NULL && (expected[f->type].types >> json_typeof(v) & 1) != 0;
}

/* ---- reading ---- */

static int read_record(void *rec, const struct lf_fields *t, json_t *o, const struct place *p,
                       lf_err *err);

static int64_t whole(const json_t *v, int64_t none)
{
    return v == NULL            ? none
           : json_is_integer(v) ? json_integer_value(v)
                                : (int64_t)json_real_value(v);
}

static void read_chars(char *out, size_t cap, const json_t *v)
{
    size_t n = json_string_length(v);
    if (n >= cap)
        n = cap - 1;
    memcpy(out, n > 0 ? json_string_value(v) : "", n);
    out[n] = '\0';
}

/* An element that is no text is "" where that is not refused. */
static int read_texts(lf_texts *out, const json_t *v, bool strict, const struct place *p,
                      lf_err *err)
{
    int rc = 0;
    out->given = true;
    for (size_t i = 0; rc == 0 && i < json_array_size(v); i++) {
        const char *s = json_string_value(json_array_get(v, i));
        rc = s == NULL && strict ? refuse(p, "must be a list of texts", err)
                                 : lf_texts_add(out, s != NULL ? s : "", err);
    }
    return rc;
}

static int read_pairs(lf_pairs *out, json_t *o, bool strict, const struct place *p, lf_err *err)
{
    const char *k;
    json_t *v;
    int rc = 0;
    out->given = true;
    json_object_foreach(o, k, v)
    {
        const char *s = json_string_value(v);
        if (rc == 0)
            rc = s == NULL && strict ? refuse(p, "must be an object of texts", err)
                                     : lf_pairs_add(out, k, s != NULL ? s : "", err);
    }
    return rc;
}

static int read_lists(lf_lists *out, json_t *o, bool strict, const struct place *p, lf_err *err)
{
    const char *k;
    json_t *v;
    int rc = 0;
    out->given = true;
    json_object_foreach(o, k, v)
    {
        struct place at = {.in = p, .name = k};
        if (rc == 0 && strict && !json_is_array(v))
            rc = refuse(&at, "must be a list of texts", err);
        lf_texts *t = rc == 0 ? lf_lists_add(out, k, err) : NULL;
        if (rc == 0)
            rc = t == NULL ? LF_ENOMEM : read_texts(t, v, strict, &at, err);
    }
    return rc;
}

static int read_part(void *rec, const struct lf_field *f, json_t *v, const struct place *p,
                     lf_err *err)
{
    void *part = lf_calloc(1, f->sub->size, err);
    *AT(void *, rec, f) = part;
    return part != NULL ? read_record(part, f->sub, v, p, err) : LF_ENOMEM;
}

static int read_list(void *rec, const struct lf_field *f, json_t *v, const struct place *p,
                     lf_err *err)
{
    rows_of none = {.given = true};
    int rc = 0;
    memcpy(AT(char, rec, f), &none, sizeof none);
    for (size_t i = 0; rc == 0 && i < json_array_size(v); i++) {
        struct place at = {.in = p, .i = i};
        void *row = lf_rows_add(AT(char, rec, f), f->sub->size, err);
        rc = row == NULL ? LF_ENOMEM : read_record(row, f->sub, json_array_get(v, i), &at, err);
    }
    return rc;
}

static int read_rows(void *rec, const struct lf_field *f, json_t *v, const struct place *p,
                     lf_err *err)
{
    const size_t n = json_array_size(v);
    char *rows = lf_calloc(n + 1, f->sub->size, err);
    *AT(void *, rec, f) = rows;
    int rc = rows != NULL ? 0 : LF_ENOMEM;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct place at = {.in = p, .i = i};
        rc = read_record(rows + i * f->sub->size, f->sub, json_array_get(v, i), &at, err);
        *count_at(rec, f) = i + 1;
    }
    return rc;
}

static int read_named(void *rec, const struct lf_field *f, json_t *v, const struct place *p,
                      lf_err *err)
{
    char *rows = lf_calloc(json_object_size(v) + 1, f->sub->size, err);
    *AT(void *, rec, f) = rows;
    int rc = rows != NULL ? 0 : LF_ENOMEM;
    const char *name;
    json_t *o;
    json_object_foreach(v, name, o)
    {
        if (rc < 0)
            break;
        struct place at = {.in = p, .name = name};
        char *row = rows + (*count_at(rec, f))++ * f->sub->size;
        rc = read_record(row, f->sub, o, &at, err);
        char *copy = lf_strdup(name, err), *had;
        memcpy(&had, row, sizeof had); /* a row may have its name inside as well */
        free(had);
        memcpy(row, &copy, sizeof copy);
        if (rc == 0 && copy == NULL)
            rc = LF_ENOMEM;
    }
    return rc;
}

/* v fits, or is NULL: not given. */
static int read_field(void *rec, const struct lf_field *f, json_t *v, bool strict,
                      const struct place *p, lf_err *err)
{
    if (v == NULL && f->type >= LF_FIELD_TEXT && f->type != LF_FIELD_RECORD)
        return 0;
    switch (f->type) {
    case LF_FIELD_INT:
        *AT(int, rec, f) = (int)whole(v, f->none);
        return 0;
    case LF_FIELD_I64:
        *AT(int64_t, rec, f) = whole(v, f->none);
        return 0;
    case LF_FIELD_REAL:
        *AT(double, rec, f) = v != NULL ? json_number_value(v) : (double)f->none;
        return 0;
    case LF_FIELD_BOOL:
        *AT(bool, rec, f) = json_is_true(v);
        return 0;
    case LF_FIELD_TRI:
        *AT(int, rec, f) = v != NULL ? json_is_true(v) : -1;
        return 0;
    case LF_FIELD_MAY_INT:
        *AT(lf_int, rec, f) = lf_int_of(json_integer_value(v));
        return 0;
    case LF_FIELD_MAY_REAL:
        *AT(lf_real, rec, f) = (lf_real){.v = json_number_value(v),
                                         .given = true,
                                         .whole = json_is_integer(v),
                                         .exact = json_integer_value(v)};
        return 0;
    case LF_FIELD_MAY_FLAG:
        *AT(lf_flag, rec, f) = lf_flag_of(json_is_true(v));
        return 0;
    case LF_FIELD_TEXT:
        return lf_text_set(AT(char *, rec, f), json_string_value(v), f->key, err);
    case LF_FIELD_CHARS:
        read_chars(AT(char, rec, f), f->cap, v);
        return 0;
    case LF_FIELD_TEXTS:
        return read_texts(AT(lf_texts, rec, f), v, strict, p, err);
    case LF_FIELD_PAIRS:
        return read_pairs(AT(lf_pairs, rec, f), v, strict, p, err);
    case LF_FIELD_LISTS:
        return read_lists(AT(lf_lists, rec, f), v, strict, p, err);
    case LF_FIELD_RAW:
        *AT(json_t *, rec, f) = json_incref(v);
        return 0;
    case LF_FIELD_MARK:
    case LF_FIELD_BASE:
        return 0;
    case LF_FIELD_RECORD:
        return v == NULL && f->sub->strict ? 0 : read_record(AT(char, rec, f), f->sub, v, p, err);
    case LF_FIELD_PART:
        return read_part(rec, f, v, p, err);
    case LF_FIELD_LIST:
        return read_list(rec, f, v, p, err);
    case LF_FIELD_ROWS:
        return read_rows(rec, f, v, p, err);
    case LF_FIELD_NAMED:
        return read_named(rec, f, v, p, err);
    }
    return 0;
}

static bool has_row(const struct lf_fields *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].key, name) == 0)
            return true;
    return false;
}

/* The members that no row has taken. */
static int keep_more(void *rec, const struct lf_fields *t, json_t *o, lf_err *err)
{
    const char *k;
    json_t *v, *more = json_object();
    int rc = more == NULL ? LF_ENOMEM : 0;
    json_object_foreach(o, k, v)
    {
        if (rc == 0 && (json_is_null(v) || !has_row(t, k)) && json_object_set(more, k, v) < 0)
            rc = LF_ENOMEM;
    }
    if (rc < 0) {
        json_decref(more);
        return lf_fail(err, rc, "out of memory");
    }
    *(json_t **)(void *)((char *)rec + t->more) = more;
    return 0;
}

static int read_row(void *rec, const struct lf_fields *t, const struct lf_field *f, json_t *v,
                    const struct place *p, lf_err *err)
{
    struct place at = {.in = p, .name = f->key};
    if (t->strict && (v == NULL || json_is_null(v)))
        return f->needed ? refuse(&at, "is missing", err) : 0;
    if (t->strict && !fits(v, f))
        return refuse(&at, expected[f->type].words, err);
    return read_field(rec, f, fits(v, f) ? v : NULL, t->strict, &at, err);
}

static int read_record(void *rec, const struct lf_fields *t, json_t *o, const struct place *p,
                       lf_err *err)
{
    int rc = 0;
    size_t taken = 0;
    memset(rec, 0, t->size);
    if (t->strict && !fits_table(o, t))
        return refuse(p, t->list ? "must be a list of its fields" : "must be an object", err);
    for (size_t i = 0; rc == 0 && i < t->n; i++) {
        json_t *v = t->list ? json_array_get(o, i) : json_object_get(o, t->rows[i].key);
        taken += v != NULL && !json_is_null(v);
        rc = read_row(rec, t, &t->rows[i], v, p, err);
    }
    if (t->given != LF_FIELD_NONE)
        *(bool *)(void *)((char *)rec + t->given) = true;
    if (rc == 0 && t->more != LF_FIELD_NONE && taken < json_object_size(o))
        rc = keep_more(rec, t, o, err);
    return rc;
}

int lf_fields_read(void *rec, const struct lf_fields *t, json_t *o, const char *what, lf_err *err)
{
    struct place file = {.what = what};
    int rc = read_record(rec, t, o, &file, err);
    if (rc < 0)
        lf_fields_fini(rec, t);
    return rc;
}

int lf_fields_parse(void *rec, const struct lf_fields *t, const char *text, size_t len,
                    const char *what, lf_err *err)
{
    memset(rec, 0, t->size);
    json_t *o = lf_json_load_text(text, len, what, err);
    if (o == NULL)
        return err != NULL && err->rc != 0 ? err->rc : LF_EFORMAT;
    int rc = lf_fields_read(rec, t, o, what, err);
    json_decref(o);
    return rc;
}

/* ---- writing ---- */

/* A list or an object that is complete, or nothing. */
static json_t *whole_or_none(json_t *v, bool ok)
{
    if (ok)
        return v;
    json_decref(v);
    return NULL;
}

json_t *lf_texts_json(const lf_texts *l)
{
    json_t *a = json_array();
    bool ok = a != NULL;
    for (size_t i = 0; ok && i < l->n; i++)
        ok = json_array_append_new(a, json_string(l->v[i])) == 0;
    return whole_or_none(a, ok);
}

static json_t *pairs_json(const lf_pairs *p)
{
    json_t *o = json_object();
    bool ok = o != NULL;
    for (size_t i = 0; ok && i < p->n; i++)
        ok = json_object_set_new(o, p->v[i].name, json_string(p->v[i].value)) == 0;
    return whole_or_none(o, ok);
}

static json_t *lists_json(const lf_lists *l)
{
    json_t *o = json_object();
    bool ok = o != NULL;
    for (size_t i = 0; ok && i < l->n; i++)
        ok = json_object_set_new(o, l->v[i].name, lf_texts_json(&l->v[i].values)) == 0;
    return whole_or_none(o, ok);
}

/* A list of objects, or an object of them. */
static json_t *rows_json(const void *rec, const struct lf_field *f, lf_err *err)
{
    size_t n;
    const char *row = elements(rec, f, &n), *name;
    json_t *all = f->type == LF_FIELD_NAMED ? json_object() : json_array();
    bool ok = all != NULL;
    for (size_t i = 0; ok && i < n; i++, row += f->sub->size) {
        json_t *o = lf_fields_json(row, f->sub, err);
        memcpy(&name, row, sizeof name);
        ok = (f->type == LF_FIELD_NAMED ? json_object_set_new(all, name, o)
                                        : json_array_append_new(all, o)) == 0;
    }
    return whole_or_none(all, ok);
}

static bool given(const void *rec, const struct lf_field *f)
{
    switch (f->type) {
    case LF_FIELD_INT:
        return *CAT(int, rec, f) != (int)f->none;
    case LF_FIELD_I64:
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
    case LF_FIELD_BASE:
        return true;
    case LF_FIELD_MAY_INT:
        return CAT(lf_int, rec, f)->given;
    case LF_FIELD_MAY_REAL:
        return CAT(lf_real, rec, f)->given;
    case LF_FIELD_MAY_FLAG:
        return CAT(lf_flag, rec, f)->given;
    case LF_FIELD_TEXTS:
    case LF_FIELD_PAIRS:
    case LF_FIELD_LISTS:
    case LF_FIELD_LIST:
        return CAT(lf_texts, rec, f)->given; /* any LF_ROWS has it there */
    case LF_FIELD_RECORD:
        return f->sub->given == LF_FIELD_NONE || *(CAT(bool, rec, f) + f->sub->given);
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
        return json_integer(*CAT(int64_t, rec, f));
    case LF_FIELD_REAL:
        return json_real(*CAT(double, rec, f));
    case LF_FIELD_BOOL:
        return json_boolean(*CAT(bool, rec, f));
    case LF_FIELD_TRI:
        return json_boolean(*CAT(int, rec, f) > 0);
    case LF_FIELD_MAY_INT:
        return json_integer(CAT(lf_int, rec, f)->v);
    case LF_FIELD_MAY_REAL: {
        const lf_real *r = CAT(lf_real, rec, f);
        return r->whole ? json_integer(r->exact) : json_real(r->v);
    }
    case LF_FIELD_MAY_FLAG:
        return json_boolean(CAT(lf_flag, rec, f)->v);
    case LF_FIELD_TEXT:
        return json_string(*CAT(char *, rec, f));
    case LF_FIELD_CHARS:
        return json_string(CAT(char, rec, f));
    case LF_FIELD_TEXTS:
        return lf_texts_json(CAT(lf_texts, rec, f));
    case LF_FIELD_PAIRS:
        return pairs_json(CAT(lf_pairs, rec, f));
    case LF_FIELD_LISTS:
        return lists_json(CAT(lf_lists, rec, f));
    case LF_FIELD_RAW:
        return json_incref(*CAT(json_t *, rec, f));
    case LF_FIELD_MARK:
        return json_integer(1);
    case LF_FIELD_RECORD:
    case LF_FIELD_BASE:
        return lf_fields_json(CAT(char, rec, f), f->sub, err);
    case LF_FIELD_PART:
        return lf_fields_json(*CAT(void *, rec, f), f->sub, err);
    case LF_FIELD_ROWS:
    case LF_FIELD_NAMED:
    case LF_FIELD_LIST:
        return rows_json(rec, f, err);
    }
    return NULL;
}

static bool left_out(const void *rec, const struct lf_fields *t, const struct lf_field *f)
{
    return !t->list && (f->opt || (t->sparse && f->type >= LF_FIELD_TEXT)) && !given(rec, f);
}

static bool add_field(json_t *o, const void *rec, const struct lf_fields *t,
                      const struct lf_field *f, lf_err *err)
{
    if (left_out(rec, t, f))
        return true;
    json_t *v = field_json(rec, f, err);
    bool ok = true;
    if (f->type == LF_FIELD_BASE) {
        ok = v != NULL && json_object_update(o, v) == 0;
        json_decref(v);
    } else {
        ok = (t->list ? json_array_append_new(o, v) : json_object_set_new(o, f->key, v)) == 0;
    }
    if (!ok)
        lf_fail(err, LF_ENOMEM, "out of memory (or text that is not UTF-8) at \"%s\"", f->key);
    return ok;
}

json_t *lf_fields_json(const void *rec, const struct lf_fields *t, lf_err *err)
{
    if (t->bare)
        return field_json(rec, t->rows, err);
    json_t *o = t->list ? json_array() : json_object(),
           *more = t->more == LF_FIELD_NONE
                       ? NULL
                       : *(json_t *const *)(const void *)((const char *)rec + t->more);
    bool ok = o != NULL && (more == NULL || json_object_update(o, more) == 0);
    if (!ok)
        lf_fail(err, LF_ENOMEM, "out of memory");
    for (size_t i = 0; ok && i < t->n; i++)
        ok = add_field(o, rec, t, &t->rows[i], err);
    return whole_or_none(o, ok);
}

char *lf_fields_text(const void *rec, const struct lf_fields *t, lf_err *err)
{
    json_t *o = lf_fields_json(rec, t, err);
    char *text = o != NULL ? lf_json_dump(o, err) : NULL;
    json_decref(o);
    return text;
}

int lf_fields_copy(void *out, const void *rec, const struct lf_fields *t, lf_err *err)
{
    memset(out, 0, t->size);
    json_t *o = lf_fields_json(rec, t, err);
    int rc = o == NULL ? LF_ENOMEM : lf_fields_read(out, t, o, "a copy", err);
    json_decref(o);
    return rc;
}

bool lf_fields_same(const void *a, const void *b, const struct lf_fields *t)
{
    json_t *x = lf_fields_json(a, t, NULL), *y = lf_fields_json(b, t, NULL);
    bool same = x != NULL && y != NULL && json_equal(x, y) == 1;
    json_decref(x);
    json_decref(y);
    return same;
}

/* ---- freeing ---- */

static void fini_elements(void *rec, const struct lf_field *f)
{
    size_t n;
    char *rows = (char *)(uintptr_t)elements(rec, f, &n);
    for (size_t i = 0; i < n; i++) {
        char *row = rows + i * f->sub->size, *name, *none = NULL;
        if (f->type == LF_FIELD_NAMED) {
            memcpy(&name, row, sizeof name);
            free(name);
            memcpy(row, &none, sizeof none);
        }
        lf_fields_fini(row, f->sub);
    }
    free(rows);
}

static void fini_field(void *rec, const struct lf_field *f)
{
    switch (f->type) {
    case LF_FIELD_TEXT:
        free(*AT(char *, rec, f));
        break;
    case LF_FIELD_TEXTS:
        lf_texts_fini(AT(lf_texts, rec, f));
        break;
    case LF_FIELD_PAIRS:
        lf_pairs_fini(AT(lf_pairs, rec, f));
        break;
    case LF_FIELD_LISTS:
        lf_lists_fini(AT(lf_lists, rec, f));
        break;
    case LF_FIELD_RAW:
        json_decref(*AT(json_t *, rec, f));
        break;
    case LF_FIELD_RECORD:
    case LF_FIELD_BASE:
        lf_fields_fini(AT(char, rec, f), f->sub);
        break;
    case LF_FIELD_PART:
        lf_fields_free(*AT(void *, rec, f), f->sub);
        break;
    case LF_FIELD_ROWS:
    case LF_FIELD_NAMED:
    case LF_FIELD_LIST:
        fini_elements(rec, f);
        break;
    default:
        break;
    }
}

void lf_fields_fini(void *rec, const struct lf_fields *t)
{
    for (size_t i = 0; i < t->n; i++)
        fini_field(rec, &t->rows[i]);
    if (t->more != LF_FIELD_NONE)
        json_decref(*(json_t **)(void *)((char *)rec + t->more));
    memset(rec, 0, t->size);
}

void lf_fields_free(void *rec, const struct lf_fields *t)
{
    if (rec != NULL)
        lf_fields_fini(rec, t);
    free(rec);
}

int lf_fields_take(void *rec, const struct lf_fields *t, json_t *o, lf_err *err)
{
    memset(rec, 0, t->size);
    if (o == NULL)
        return err != NULL && err->rc != 0 ? err->rc : LF_EIO;
    int rc = lf_fields_read(rec, t, o, "a record", err);
    json_decref(o);
    return rc;
}

int lf_fields_list(void *rows, const struct lf_fields *t, json_t *list, lf_err *err)
{
    const struct lf_field f = {.type = LF_FIELD_LIST, .sub = t};
    const struct place p = {.what = "a list"};
    if (list == NULL)
        return err != NULL && err->rc != 0 ? err->rc : LF_EIO;
    int rc = read_list(rows, &f, list, &p, err);
    json_decref(list);
    if (rc < 0)
        lf_fields_list_fini(rows, t);
    return rc;
}

int lf_texts_take(lf_texts *out, json_t *list, lf_err *err)
{
    if (list == NULL)
        return err != NULL && err->rc != 0 ? err->rc : LF_EIO;
    int rc = read_texts(out, list, false, NULL, err);
    json_decref(list);
    return rc;
}

void lf_fields_list_fini(void *rows, const struct lf_fields *t)
{
    const struct lf_field f = {.type = LF_FIELD_LIST, .sub = t};
    const rows_of none = {.v = NULL};
    fini_elements(rows, &f);
    memcpy(rows, &none, sizeof none);
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
        rc = lf_fields_read(rec, t, o, path, err);
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
    char *path = lf_path_join(dir, name, err), *text = NULL;
    if (path != NULL)
        text = lf_fields_text(rec, t, err);
    int rc = text == NULL ? LF_ENOMEM : lf_io_publish(path, text, strlen(text), 0640, err);
    free(text);
    free(path);
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
