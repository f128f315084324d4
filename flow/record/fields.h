/* SPDX-License-Identifier: Apache-2.0
 *
 * Records as structs. A table says for every member of a record its name on disk, its type and its
 * place in the struct; one function reads by the table, one writes, one frees. So a member has one
 * spelling, which the compiler checks, and JSON ends at the file. Included by the *_json.c files.
 *
 * Members that a table does not know, and values of another type than the table's, are passed over:
 * other versions may have written them. Such a member is "not given", like one that is missing: a
 * text, a list or a nested record is then NULL, a number is the row's `none` (0 unless the row says
 * otherwise), a flag is false. A row that is `opt` is not written while it is not given.
 */
#ifndef LF_FLOW_FIELDS_H
#define LF_FLOW_FIELDS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "flow/record/form.h"

enum lf_field_type {
    LF_FIELD_INT,    /* int */
    LF_FIELD_I64,    /* int64_t */
    LF_FIELD_U64,    /* uint64_t */
    LF_FIELD_REAL,   /* double */
    LF_FIELD_BOOL,   /* bool */
    LF_FIELD_TRI,    /* int: -1 not given, else a flag */
    LF_FIELD_TEXT,   /* const char *; owned in a record that was read */
    LF_FIELD_CHARS,  /* char [cap]; what does not fit is cut off */
    LF_FIELD_TEXTS,  /* lf_texts: a list of texts */
    LF_FIELD_RAW,    /* json_t *: what other programs put in, passed on as it is */
    LF_FIELD_MARK,   /* no member: the number 1, which says what the file is */
    LF_FIELD_RECORD, /* struct m: an object */
    LF_FIELD_PART,   /* struct *m: an object that may be missing */
    LF_FIELD_ROWS,   /* struct *m and size_t n_m: a list of objects */
    LF_FIELD_NAMED   /* the same, as an object; the first member of a row, a text, is its name */
};

struct lf_field {
    const char *key;
    enum lf_field_type type;
    size_t at, n_at;             /* offsets of the member, and of its count */
    size_t cap;                  /* of chars */
    const struct lf_fields *sub; /* of what it contains */
    bool opt;
    int64_t none; /* of numbers: not given */
};

struct lf_fields {
    const struct lf_field *rows;
    size_t n;
    size_t size; /* of the struct */
};

/* The type of a row follows from that of the member. */
#define LF_FIELD_OF(x)                                                                             \
    _Generic((x), int                                                                              \
             : LF_FIELD_INT, int64_t                                                               \
             : LF_FIELD_I64, uint64_t                                                              \
             : LF_FIELD_U64, double                                                                \
             : LF_FIELD_REAL, bool                                                                 \
             : LF_FIELD_BOOL, const char *                                                         \
             : LF_FIELD_TEXT, char *                                                              \
             : LF_FIELD_TEXT, lf_texts                                                            \
             : LF_FIELD_TEXTS, json_t *                                                            \
             : LF_FIELD_RAW)
/* Beginnings of rows: {LF_FIELD(struct lf_x, step), .opt = true, .none = -1}. */
#define LF_FIELD_AS(S, m, name)                                                                    \
    .key = (name), .type = LF_FIELD_OF(((S *)0)->m), .at = offsetof(S, m)
#define LF_FIELD(S, m) LF_FIELD_AS(S, m, #m)
#define LF_FIELD_BUF(S, m, name)                                                                   \
    .key = (name), .type = LF_FIELD_CHARS, .at = offsetof(S, m), .cap = sizeof(((S *)0)->m)
#define LF_FIELD_MAYBE(S, m) .key = #m, .type = LF_FIELD_TRI, .at = offsetof(S, m), .opt = true
#define LF_FIELD_SUB(S, m, kind, table)                                                            \
    .key = #m, .type = (kind), .at = offsetof(S, m), .sub = (table)
#define LF_FIELD_SUBS(S, m, kind, table) LF_FIELD_SUB(S, m, kind, table), .n_at = offsetof(S, n_##m)
#define LF_FIELD_KIND(name)                                                                        \
    {                                                                                              \
        .key = (name), .type = LF_FIELD_MARK                                                       \
    }
#define LF_FIELDS(S, table)                                                                        \
    {                                                                                              \
        .rows = (table), .n = sizeof(table) / sizeof(table)[0], .size = sizeof(S)                  \
    }

/* o: an object, or anything else, which gives a record with nothing in it. rec is overwritten; on
 * failure (memory) it is empty. */
int lf_fields_read(void *rec, const struct lf_fields *t, const json_t *o, lf_err *err);
/* New reference; NULL with err. */
json_t *lf_fields_json(const void *rec, const struct lf_fields *t, lf_err *err);
/* The one member of this name. New reference. */
json_t *lf_fields_member(const void *rec, const struct lf_fields *t, const char *key, lf_err *err);
/* What a record that was read owns. */
void lf_fields_fini(void *rec, const struct lf_fields *t);
void lf_fields_free(void *rec,
                    const struct lf_fields *t); /* and the record itself; NULL is legal */

/* A record of its own from dir/name into the pointer at out_ptr: NULL when there is no such file.
 * One that cannot be read is an error, never "not there". */
int lf_fields_load(void *out_ptr, const struct lf_fields *t, const char *dir, const char *name,
                   lf_err *err);
/* Publish it with link(2); LF_EEXIST when it is there. */
int lf_fields_publish(const char *dir, const char *name, const struct lf_fields *t, const void *rec,
                      lf_err *err);
/* Put it in the place of what is there, members in the order of the table. */
int lf_fields_replace(const char *path, int mode, const struct lf_fields *t, const void *rec,
                      lf_err *err);

#endif
