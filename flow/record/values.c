/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts, and lists and maps of them.
 */
#include "config.h"

#include "flow/record/values.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/utf8.h"

typedef LF_ROWS(void) rows; /* any LF_ROWS */

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

void lf_pairs_fini(lf_pairs *p)
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

void lf_lists_fini(lf_lists *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i].name);
        lf_texts_fini(&l->v[i].values);
    }
    free(l->v);
    memset(l, 0, sizeof *l);
}
