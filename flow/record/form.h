/* SPDX-License-Identifier: Apache-2.0
 *
 * Records as structs. A form says for each member of a JSON object which field of a struct holds
 * it; one function reads, one writes and one frees by it, so that the compiler knows the names of
 * fields and the name of a member stands in one place.
 *
 * A value that a file does not have is not given: NULL, or `given` is false and the rest is zero.
 * Members that no row names, such as those of files that another version has written, are kept in
 * the struct where its form has a place for them, and are written again.
 */
#ifndef LF_FLOW_FORM_H
#define LF_FLOW_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

struct json_t;

/* ---- values ---- */

typedef struct lf_int {
    int64_t v;
    bool given;
} lf_int;

typedef struct lf_real {
    double v;
    bool given;
    bool whole; /* the file has the integer `exact` here */
    int64_t exact;
} lf_real;

typedef struct lf_flag {
    bool v;
    bool given;
} lf_flag;

/* A list of structs of type T; what holds any such list has the same layout. */
#define LF_ROWS(T)                                                                                 \
    struct {                                                                                       \
        T *v;                                                                                      \
        size_t n, cap;                                                                             \
        bool given;                                                                                \
    }

typedef LF_ROWS(char *) lf_texts; /* ["text", ...] */

typedef struct lf_pair {
    char *name, *value;
} lf_pair;
typedef LF_ROWS(lf_pair) lf_pairs; /* {"name": "value", ...} in the order of the file */

typedef struct lf_list {
    char *name;
    lf_texts values;
} lf_list;
typedef LF_ROWS(lf_list) lf_lists; /* {"name": ["text", ...], ...} in the order of the file */

static inline lf_int lf_int_of(int64_t v)
{
    return (lf_int){.v = v, .given = true};
}

static inline int64_t lf_int_or(lf_int i, int64_t def)
{
    return i.given ? i.v : def;
}

static inline lf_real lf_real_of(double v)
{
    return (lf_real){.v = v, .given = true};
}

static inline lf_flag lf_flag_of(bool v)
{
    return (lf_flag){.v = v, .given = true};
}

/* A copy of v (NULL: not given) in place of what was there. LF_ENOMEM, also for a text that is not
 * UTF-8, which JSON cannot hold; key names it in messages. */
int lf_text_set(char **out, const char *v, const char *key, lf_err *err);
bool lf_text_same(const char *a, const char *b); /* NULL is the same as NULL only */

int lf_texts_add(lf_texts *t, const char *v, lf_err *err); /* copies */
int lf_texts_copy(lf_texts *out, const lf_texts *from, lf_err *err);
bool lf_texts_same(const lf_texts *a, const lf_texts *b); /* b NULL: never */
bool lf_texts_has(const lf_texts *t, const char *v);
void lf_texts_fini(lf_texts *t);

int lf_pairs_add(lf_pairs *p, const char *name, const char *value, lf_err *err); /* copies */
int lf_pairs_copy(lf_pairs *out, const lf_pairs *from, lf_err *err);
/* In place of the value of this name, where there is one. */
int lf_pairs_set(lf_pairs *p, const char *name, const char *value, lf_err *err);
const char *lf_pairs_get(const lf_pairs *p, const char *name); /* NULL: none */

/* The list of a name, which is made when it is not there; NULL with err. */
lf_texts *lf_lists_add(lf_lists *l, const char *name, lf_err *err);
const lf_texts *lf_lists_get(const lf_lists *l, const char *name); /* NULL: none */

/* One more element, zeroed, at the end of an LF_ROWS of elements of this size; NULL with err. */
void *lf_rows_add(void *rows, size_t size, lf_err *err);

/* ---- forms ---- */

enum lf_form_type {
    LF_FORM_TEXT,    /* char * */
    LF_FORM_INT,     /* lf_int */
    LF_FORM_REAL,    /* lf_real */
    LF_FORM_FLAG,    /* lf_flag */
    LF_FORM_TEXTS,   /* lf_texts */
    LF_FORM_PAIRS,   /* lf_pairs */
    LF_FORM_LISTS,   /* lf_lists */
    LF_FORM_OBJECT,  /* a struct by its form, in place */
    LF_FORM_OBJECTS, /* LF_ROWS of structs */
    LF_FORM_JSON     /* struct json_t *, as it is */
};

typedef struct lf_form_field {
    const char *name;
    enum lf_form_type type;
    size_t at;
    const struct lf_form *form; /* of OBJECT and OBJECTS */
    bool needed;                /* a record without it is refused */
} lf_form_field;

#define LF_FORM_NONE SIZE_MAX

typedef struct lf_form {
    const lf_form_field *fields;
    size_t n;
    size_t size;  /* of the struct */
    size_t given; /* where its `bool given` is, LF_FORM_NONE: it is always given */
    size_t more;  /* where its `struct json_t *more` is, LF_FORM_NONE: the rest is ignored */
    bool list;    /* in JSON it is a list of the fields in their order instead of an object */
} lf_form;

/* out: zeroed; empty after a failure. LF_EFORMAT names `what` (the file), the member and what is
 * wrong with it. */
int lf_form_read(void *out, const lf_form *f, struct json_t *o, const char *what, lf_err *err);
/* New reference, NULL when there is no memory. */
struct json_t *lf_texts_json(const lf_texts *t);
/* New reference, NULL with err. */
struct json_t *lf_form_json(const void *v, const lf_form *f, lf_err *err);
/* Frees what the fields hold, and zeroes the struct. */
void lf_form_fini(void *v, const lf_form *f);
/* out: zeroed; empty after a failure. */
int lf_form_copy(void *out, const void *from, const lf_form *f, lf_err *err);

#endif
