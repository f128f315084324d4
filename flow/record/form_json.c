/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs from and to JSON by their forms.
 */
#include "config.h"

#include "flow/record/form.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/utf8.h"

typedef LF_ROWS(void) rows; /* any LF_ROWS */

/* Where a value stands, for messages: from the file inwards. */
struct place {
    const char *what; /* the file; of the outermost */
    const struct place *in;
    const char *name; /* NULL: an element */
    size_t i;
};

/* ---- values ---- */

int lf_text_set(char **out, const char *v, const char *key, lf_err *err)
{
    char *copy = NULL;
    if (v != NULL && lf_utf8_check(v, strlen(v)) != strlen(v))
        return lf_fail(err, LF_ENOMEM, "out of memory (or text that is not UTF-8) at \"%s\"", key);
    if (v != NULL && (copy = lf_strdup(v, err)) == NULL)
        return LF_ENOMEM;
    free(*out);
    *out = copy;
    return 0;
}

bool lf_text_same(const char *a, const char *b)
{
    return a != NULL && b != NULL ? strcmp(a, b) == 0 : a == b;
}

/* An LF_ROWS of elements of type T is used through this one, whose pointer is of another type: so
 * it is copied in and out. */
void *lf_rows_add(void *list, size_t size, lf_err *err)
{
    rows r;
    memcpy(&r, list, sizeof r);
    void *e = NULL;
    if (lf_grow(&r.v, &r.cap, r.n, size, err) == 0) {
        e = (char *)r.v + r.n++ * size;
        memset(e, 0, size);
        r.given = true;
    }
    memcpy(list, &r, sizeof r);
    return e;
}

int lf_texts_add(lf_texts *t, const char *v, lf_err *err)
{
    char *copy = NULL;
    int rc = lf_text_set(&copy, v, "a list", err);
    char **e = rc == 0 ? lf_rows_add(t, sizeof *t->v, err) : NULL;
    if (e == NULL) {
        free(copy);
        return LF_ENOMEM;
    }
    *e = copy;
    return 0;
}

int lf_texts_copy(lf_texts *out, const lf_texts *from, lf_err *err)
{
    memset(out, 0, sizeof *out);
    out->given = from->given;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->n; i++)
        rc = lf_texts_add(out, from->v[i], err);
    if (rc < 0)
        lf_texts_fini(out);
    return rc;
}

bool lf_texts_same(const lf_texts *a, const lf_texts *b)
{
    bool same = b != NULL && a->n == b->n;
    for (size_t i = 0; same && i < a->n; i++)
        same = strcmp(a->v[i], b->v[i]) == 0;
    return same;
}

bool lf_texts_has(const lf_texts *t, const char *v)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->v[i], v) == 0)
            return true;
    return false;
}

void lf_texts_fini(lf_texts *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->v[i]);
    free(t->v);
    memset(t, 0, sizeof *t);
}

int lf_pairs_add(lf_pairs *p, const char *name, const char *value, lf_err *err)
{
    lf_pair *e = lf_rows_add(p, sizeof *p->v, err);
    int rc = e == NULL ? LF_ENOMEM : lf_text_set(&e->name, name, name, err);
    return rc == 0 ? lf_text_set(&e->value, value, name, err) : rc;
}

int lf_pairs_set(lf_pairs *p, const char *name, const char *value, lf_err *err)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->v[i].name, name) == 0)
            return lf_text_set(&p->v[i].value, value, name, err);
    return lf_pairs_add(p, name, value, err);
}

const char *lf_pairs_get(const lf_pairs *p, const char *name)
{
    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->v[i].name, name) == 0)
            return p->v[i].value;
    return NULL;
}

int lf_pairs_copy(lf_pairs *out, const lf_pairs *from, lf_err *err)
{
    memset(out, 0, sizeof *out);
    out->given = from->given;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->n; i++)
        rc = lf_pairs_add(out, from->v[i].name, from->v[i].value, err);
    return rc;
}

static void pairs_fini(lf_pairs *p)
{
    for (size_t i = 0; i < p->n; i++) {
        free(p->v[i].name);
        free(p->v[i].value);
    }
    free(p->v);
    memset(p, 0, sizeof *p);
}

const lf_texts *lf_lists_get(const lf_lists *l, const char *name)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->v[i].name, name) == 0)
            return &l->v[i].values;
    return NULL;
}

static lf_texts *new_list(lf_lists *l, const char *name, lf_err *err)
{
    lf_list *e = lf_rows_add(l, sizeof *l->v, err);
    if (e == NULL || lf_text_set(&e->name, name, name, err) < 0)
        return NULL;
    e->values.given = true;
    return &e->values;
}

lf_texts *lf_lists_add(lf_lists *l, const char *name, lf_err *err)
{
    for (size_t i = 0; i < l->n; i++)
        if (strcmp(l->v[i].name, name) == 0)
            return &l->v[i].values;
    return new_list(l, name, err);
}

static void lists_fini(lf_lists *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].name);
        lf_texts_fini(&l->v[i].values);
    }
    free(l->v);
    memset(l, 0, sizeof *l);
}

/* ---- reading ---- */

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

/* Memory and text that is not UTF-8 fail with words of their own. */
static int read_texts(lf_texts *out, json_t *v, const struct place *p, lf_err *err)
{
    if (!json_is_array(v))
        return refuse(p, "must be a list of texts", err);
    out->given = true;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(v); i++) {
        const char *t = json_string_value(json_array_get(v, i));
        rc = t == NULL ? refuse(p, "must be a list of texts", err) : lf_texts_add(out, t, err);
    }
    return rc;
}

static int read_pairs(lf_pairs *out, json_t *o, const struct place *p, lf_err *err)
{
    const char *k;
    json_t *v;
    if (!json_is_object(o))
        return refuse(p, "must be an object of texts", err);
    out->given = true;
    int rc = 0;
    json_object_foreach(o, k, v)
    {
        const char *t = json_string_value(v);
        if (rc == 0)
            rc = t == NULL ? refuse(p, "must be an object of texts", err)
                           : lf_pairs_add(out, k, t, err);
    }
    return rc;
}

static int read_lists(lf_lists *out, json_t *o, const struct place *p, lf_err *err)
{
    const char *k;
    json_t *v;
    if (!json_is_object(o))
        return refuse(p, "must be an object of lists", err);
    out->given = true;
    int rc = 0;
    json_object_foreach(o, k, v)
    {
        struct place at = {.in = p, .name = k};
        lf_texts *t = rc == 0 ? new_list(out, k, err) : NULL;
        if (rc == 0)
            rc = t == NULL ? LF_ENOMEM : read_texts(t, v, &at, err);
    }
    return rc;
}

static int read_form(char *out, const lf_form *f, json_t *o, const struct place *p, lf_err *err);

static int read_rows(void *out, const lf_form *f, json_t *v, const struct place *p, lf_err *err)
{
    if (!json_is_array(v))
        return refuse(p, "must be a list", err);
    ((rows *)out)->given = true;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(v); i++) {
        struct place at = {.in = p, .i = i};
        char *e = lf_rows_add(out, f->size, err);
        rc = e == NULL ? LF_ENOMEM : read_form(e, f, json_array_get(v, i), &at, err);
    }
    return rc;
}

static int read_field(char *out, const lf_form_field *d, json_t *v, const struct place *p,
                      lf_err *err)
{
    switch (d->type) {
    case LF_FORM_TEXT:
        if (!json_is_string(v))
            return refuse(p, "must be a text", err);
        return lf_text_set((char **)(void *)out, json_string_value(v), d->name, err);
    case LF_FORM_INT:
        if (!json_is_integer(v))
            return refuse(p, "must be an integer", err);
        *(lf_int *)(void *)out = lf_int_of(json_integer_value(v));
        return 0;
    case LF_FORM_REAL:
        if (!json_is_number(v))
            return refuse(p, "must be a number", err);
        *(lf_real *)(void *)out = (lf_real){.v = json_number_value(v),
                                            .given = true,
                                            .whole = json_is_integer(v),
                                            .exact = json_integer_value(v)};
        return 0;
    case LF_FORM_FLAG:
        if (!json_is_boolean(v))
            return refuse(p, "must be true or false", err);
        *(lf_flag *)(void *)out = lf_flag_of(json_is_true(v));
        return 0;
    case LF_FORM_TEXTS:
        return read_texts((lf_texts *)(void *)out, v, p, err);
    case LF_FORM_PAIRS:
        return read_pairs((lf_pairs *)(void *)out, v, p, err);
    case LF_FORM_LISTS:
        return read_lists((lf_lists *)(void *)out, v, p, err);
    case LF_FORM_OBJECT:
        return read_form(out, d->form, v, p, err);
    case LF_FORM_OBJECTS:
        return read_rows(out, d->form, v, p, err);
    default:
        *(json_t **)(void *)out = json_incref(v);
        return 0;
    }
}

static bool is_named(const lf_form *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->fields[i].name, name) == 0)
            return true;
    return false;
}

/* The members that no field has taken. */
static int keep_more(char *out, const lf_form *f, json_t *o, lf_err *err)
{
    const char *k;
    json_t *v, *more = json_object();
    int rc = more == NULL ? LF_ENOMEM : 0;
    json_object_foreach(o, k, v)
    {
        if (rc == 0 && (json_is_null(v) || !is_named(f, k)) && json_object_set(more, k, v) < 0)
            rc = LF_ENOMEM;
    }
    if (rc < 0) {
        json_decref(more);
        return lf_fail(err, rc, "out of memory");
    }
    *(json_t **)(void *)(out + f->more) = more;
    return 0;
}

static int read_form(char *out, const lf_form *f, json_t *o, const struct place *p, lf_err *err)
{
    if (f->list ? !json_is_array(o) || json_array_size(o) != f->n : !json_is_object(o))
        return refuse(p, f->list ? "must be a list of its fields" : "must be an object", err);
    if (f->given != LF_FORM_NONE)
        *(bool *)(void *)(out + f->given) = true;
    int rc = 0;
    size_t taken = 0;
    for (size_t i = 0; rc == 0 && i < f->n; i++) {
        const lf_form_field *d = &f->fields[i];
        json_t *v = f->list ? json_array_get(o, i) : json_object_get(o, d->name);
        struct place at = {.in = p, .name = d->name};
        bool there = v != NULL && !json_is_null(v);
        if (!there && d->needed)
            rc = refuse(&at, "is missing", err);
        else if (there)
            rc = read_field(out + d->at, d, v, &at, err);
        taken += there ? 1 : 0;
    }
    if (rc == 0 && f->more != LF_FORM_NONE && taken < json_object_size(o))
        rc = keep_more(out, f, o, err);
    return rc;
}

int lf_form_read(void *out, const lf_form *f, json_t *o, const char *what, lf_err *err)
{
    struct place file = {.what = what};
    int rc = read_form(out, f, o, &file, err);
    if (rc < 0)
        lf_form_fini(out, f);
    return rc;
}

/* ---- writing ---- */

json_t *lf_texts_json(const lf_texts *t)
{
    json_t *a = json_array();
    for (size_t i = 0; a != NULL && i < t->n; i++)
        if (json_array_append_new(a, json_string(t->v[i])) < 0) {
            json_decref(a);
            a = NULL;
        }
    return a;
}

static json_t *write_pairs(const lf_pairs *p)
{
    json_t *o = json_object();
    for (size_t i = 0; o != NULL && i < p->n; i++)
        if (json_object_set_new(o, p->v[i].name, json_string(p->v[i].value)) < 0) {
            json_decref(o);
            o = NULL;
        }
    return o;
}

static json_t *write_lists(const lf_lists *l)
{
    json_t *o = json_object();
    for (size_t i = 0; o != NULL && i < l->n; i++)
        if (json_object_set_new(o, l->v[i].name, lf_texts_json(&l->v[i].values)) < 0) {
            json_decref(o);
            o = NULL;
        }
    return o;
}

static json_t *write_form(const char *v, const lf_form *f);

static json_t *write_rows(const rows *r, const lf_form *f)
{
    json_t *a = json_array();
    rows all;
    memcpy(&all, r, sizeof all);
    for (size_t i = 0; a != NULL && i < all.n; i++)
        if (json_array_append_new(a, write_form((const char *)all.v + i * f->size, f)) < 0) {
            json_decref(a);
            a = NULL;
        }
    return a;
}

static bool is_given(const char *v, const lf_form_field *d)
{
    switch (d->type) {
    case LF_FORM_TEXT:
        return *(char *const *)(const void *)v != NULL;
    case LF_FORM_INT:
        return ((const lf_int *)(const void *)v)->given;
    case LF_FORM_REAL:
        return ((const lf_real *)(const void *)v)->given;
    case LF_FORM_FLAG:
        return ((const lf_flag *)(const void *)v)->given;
    case LF_FORM_OBJECT:
        return d->form->given == LF_FORM_NONE || *(const bool *)(const void *)(v + d->form->given);
    case LF_FORM_JSON:
        return *(json_t *const *)(const void *)v != NULL;
    default:
        return ((const rows *)(const void *)v)->given;
    }
}

static json_t *write_real(const lf_real *r)
{
    return r->whole ? json_integer(r->exact) : json_real(r->v);
}

static json_t *write_field(const char *v, const lf_form_field *d)
{
    switch (d->type) {
    case LF_FORM_TEXT:
        return json_string(*(char *const *)(const void *)v);
    case LF_FORM_INT:
        return json_integer(((const lf_int *)(const void *)v)->v);
    case LF_FORM_REAL:
        return write_real((const lf_real *)(const void *)v);
    case LF_FORM_FLAG:
        return json_boolean(((const lf_flag *)(const void *)v)->v);
    case LF_FORM_TEXTS:
        return lf_texts_json((const lf_texts *)(const void *)v);
    case LF_FORM_PAIRS:
        return write_pairs((const lf_pairs *)(const void *)v);
    case LF_FORM_LISTS:
        return write_lists((const lf_lists *)(const void *)v);
    case LF_FORM_OBJECT:
        return write_form(v, d->form);
    case LF_FORM_OBJECTS:
        return write_rows((const rows *)(const void *)v, d->form);
    default:
        return json_incref(*(json_t *const *)(const void *)v);
    }
}

static json_t *write_form(const char *v, const lf_form *f)
{
    json_t *o = f->list ? json_array() : json_object();
    json_t *more = f->more != LF_FORM_NONE ? *(json_t *const *)(const void *)(v + f->more) : NULL;
    bool bad = o == NULL || (more != NULL && json_object_update(o, more) < 0);
    for (size_t i = 0; !bad && i < f->n; i++) {
        const lf_form_field *d = &f->fields[i];
        if (!is_given(v + d->at, d) && !f->list)
            continue;
        json_t *j = write_field(v + d->at, d);
        bad = (f->list ? json_array_append_new(o, j) : json_object_set_new(o, d->name, j)) < 0;
    }
    if (bad) {
        json_decref(o);
        return NULL;
    }
    return o;
}

json_t *lf_form_json(const void *v, const lf_form *f, lf_err *err)
{
    json_t *o = write_form(v, f);
    if (o == NULL)
        lf_fail(err, LF_ENOMEM, "out of memory (or text that is not UTF-8)");
    return o;
}

/* ---- the rest ---- */

static void fini_field(char *v, const lf_form_field *d)
{
    rows r;
    switch (d->type) {
    case LF_FORM_TEXT:
        free(*(char **)(void *)v);
        break;
    case LF_FORM_TEXTS:
        lf_texts_fini((lf_texts *)(void *)v);
        break;
    case LF_FORM_PAIRS:
        pairs_fini((lf_pairs *)(void *)v);
        break;
    case LF_FORM_LISTS:
        lists_fini((lf_lists *)(void *)v);
        break;
    case LF_FORM_OBJECT:
        lf_form_fini(v, d->form);
        break;
    case LF_FORM_OBJECTS:
        memcpy(&r, v, sizeof r);
        for (size_t i = 0; i < r.n; i++)
            lf_form_fini((char *)r.v + i * d->form->size, d->form);
        free(r.v);
        break;
    case LF_FORM_JSON:
        json_decref(*(json_t **)(void *)v);
        break;
    default:
        break;
    }
}

void lf_form_fini(void *v, const lf_form *f)
{
    for (size_t i = 0; i < f->n; i++)
        fini_field((char *)v + f->fields[i].at, &f->fields[i]);
    if (f->more != LF_FORM_NONE)
        json_decref(*(json_t **)(void *)((char *)v + f->more));
    memset(v, 0, f->size);
}

int lf_form_copy(void *out, const void *from, const lf_form *f, lf_err *err)
{
    json_t *o = lf_form_json(from, f, err);
    int rc = o == NULL ? LF_ENOMEM : lf_form_read(out, f, o, "a copy", err);
    json_decref(o);
    return rc;
}
