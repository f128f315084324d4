/* SPDX-License-Identifier: Apache-2.0
 *
 * Records as structs. A table says for every member of a record its name on disk, its type and its
 * place in the struct; one function reads by the table, one writes, one frees. So a member has one
 * spelling, which the compiler checks, and JSON ends here and at the *_json.c files.
 *
 * A value that a record does not have is "not given": a text, a list or a nested record is NULL or
 * says so, a plain number is the row's `none` (0 unless the row says otherwise), a flag is false. A
 * row that is `opt` is not written while it is not given.
 *
 * What a reader does with what it does not expect is a property of the table:
 *   plain    values of another type count as not given, and members without a row are passed over:
 *            other versions may have written them
 *   strict   values of another type, and a row that is `needed` and missing, are LF_EFORMAT with
 *            the file and the member's place in it; null is missing
 *   more     members without a row are kept in the struct and are written again
 * and so is what a writer leaves out:
 *   sparse   whatever can say that it is not given is not written then, as if its row were opt;
 *            plain numbers and bools are
 */
#ifndef LF_FLOW_FIELDS_H
#define LF_FLOW_FIELDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "flow/record/values.h"

struct json_t;

enum lf_field_type {
    LF_FIELD_INT,   /* int */
    LF_FIELD_I64,   /* int64_t, uint64_t */
    LF_FIELD_REAL,  /* double */
    LF_FIELD_BOOL,  /* bool */
    LF_FIELD_TRI,   /* int: -1 not given, else a flag */
    LF_FIELD_CHARS, /* char [cap]; what does not fit is cut off */
    LF_FIELD_MARK,  /* no member: the number 1, which says what the file is */
    /* What follows can say that it is not given. */
    LF_FIELD_TEXT,     /* char *; owned in a record that was read */
    LF_FIELD_MAY_INT,  /* lf_int */
    LF_FIELD_MAY_REAL, /* lf_real */
    LF_FIELD_MAY_FLAG, /* lf_flag */
    LF_FIELD_TEXTS,    /* lf_texts */
    LF_FIELD_PAIRS,    /* lf_pairs */
    LF_FIELD_LISTS,    /* lf_lists */
    LF_FIELD_RAW,      /* struct json_t *: what other programs put in, passed on as it is */
    LF_FIELD_RECORD,   /* struct m: an object; not given where its table says so */
    LF_FIELD_PART,     /* struct *m: an object that may be missing */
    LF_FIELD_ROWS,     /* struct *m and size_t n_m: a list of objects */
    LF_FIELD_NAMED,    /* the same, as an object; the first member of a row, a text, is its name */
    LF_FIELD_LIST,     /* LF_ROWS of structs: a list of objects */
    LF_FIELD_BASE      /* struct m: its members stand among those of this record; written only */
};

struct lf_field {
    const char *key;
    enum lf_field_type type;
    size_t at, n_at;             /* offsets of the member, and of its count */
    size_t cap;                  /* of chars */
    const struct lf_fields *sub; /* of what it contains */
    bool opt;
    bool needed;  /* of strict tables */
    int64_t none; /* of plain numbers: not given */
};

#define LF_FIELD_NONE SIZE_MAX

struct lf_fields {
    const struct lf_field *rows;
    size_t n;
    size_t size;         /* of the struct */
    size_t given;        /* where its `bool given` is, LF_FIELD_NONE: it has none */
    size_t more;         /* where its `struct json_t *more` is, LF_FIELD_NONE: it has none */
    bool strict, sparse; /* see above */
    bool list;           /* on disk it is a list of the fields in their order, not an object */
    bool bare;           /* it is written as the value of its one row */
};

/* The type of a row follows from that of the member. */
#define LF_FIELD_OF(x)                                                                             \
    _Generic((x), int                                                                              \
             : LF_FIELD_INT, int64_t                                                               \
             : LF_FIELD_I64, uint64_t                                                              \
             : LF_FIELD_I64, double                                                                \
             : LF_FIELD_REAL, bool                                                                 \
             : LF_FIELD_BOOL, const char *                                                         \
             : LF_FIELD_TEXT, char *                                                               \
             : LF_FIELD_TEXT, lf_int                                                               \
             : LF_FIELD_MAY_INT, lf_real                                                           \
             : LF_FIELD_MAY_REAL, lf_flag                                                          \
             : LF_FIELD_MAY_FLAG, lf_texts                                                         \
             : LF_FIELD_TEXTS, lf_pairs                                                            \
             : LF_FIELD_PAIRS, lf_lists                                                            \
             : LF_FIELD_LISTS, struct json_t *                                                     \
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
/* Rows of records and lists by their tables, with what else they say behind it. */
#define LF_RECORD(S, m, table, ...)                                                                \
    {                                                                                              \
        LF_FIELD_SUB(S, m, LF_FIELD_RECORD, &table), __VA_ARGS__                                   \
    }
#define LF_LIST(S, m, table, ...)                                                                  \
    {                                                                                              \
        LF_FIELD_SUB(S, m, LF_FIELD_LIST, &table), __VA_ARGS__                                     \
    }
/* Rows of up to 60 members that have the same name on disk: LF_MEMBERS(struct lf_x, step, saved).
 * A row is made with each further look of the preprocessor at what it has not made yet. */
#define LF_MEMBERS(S, ...)        LF_LOOK_64(LF_MEMBERS_(LF_ROW, S, __VA_ARGS__))
#define LF_MEMBERS_OPT(S, ...)    LF_LOOK_64(LF_MEMBERS_(LF_ROW_OPT, S, __VA_ARGS__))
#define LF_MEMBERS_NEEDED(S, ...) LF_LOOK_64(LF_MEMBERS_(LF_ROW_NEEDED, S, __VA_ARGS__))
#define LF_ROW(S, m)                                                                               \
    {                                                                                              \
        LF_FIELD(S, m)                                                                             \
    }
#define LF_ROW_OPT(S, m)                                                                           \
    {                                                                                              \
        LF_FIELD(S, m), .opt = true                                                                \
    }
#define LF_ROW_NEEDED(S, m)                                                                        \
    {                                                                                              \
        LF_FIELD(S, m), .needed = true                                                             \
    }
#define LF_MEMBERS_(row, S, m, ...)                                                                \
    row(S, m) __VA_OPT__(, LF_MEMBERS_ON LF_PARENS(row, S, __VA_ARGS__))
#define LF_MEMBERS_ON() LF_MEMBERS_
#define LF_PARENS       ()
#define LF_LOOK_64(...) LF_LOOK_16(LF_LOOK_16(LF_LOOK_16(LF_LOOK_16(__VA_ARGS__))))
#define LF_LOOK_16(...) LF_LOOK_4(LF_LOOK_4(LF_LOOK_4(LF_LOOK_4(__VA_ARGS__))))
#define LF_LOOK_4(...)  LF_LOOK_1(LF_LOOK_1(LF_LOOK_1(LF_LOOK_1(__VA_ARGS__))))
#define LF_LOOK_1(...)  __VA_ARGS__

/* Tables of a struct, from its rows: plain ones; sparse ones; strict and sparse ones with a `more`,
 * PART of those that have a `given` too; bare ones. */
#define LF_FIELDS_TABLE(S, given_at, more_at, ...)                                                 \
    .rows = (const struct lf_field[]){__VA_ARGS__},                                                \
    .n = sizeof((const struct lf_field[]){__VA_ARGS__}) / sizeof(struct lf_field),                 \
    .size = sizeof(S), .given = (given_at), .more = (more_at)
#define LF_FIELDS(S, ...)                                                                          \
    {                                                                                              \
        LF_FIELDS_TABLE(S, LF_FIELD_NONE, LF_FIELD_NONE, __VA_ARGS__)                              \
    }
#define LF_FIELDS_SHOWN(S, ...)                                                                    \
    {                                                                                              \
        LF_FIELDS_TABLE(S, LF_FIELD_NONE, LF_FIELD_NONE, __VA_ARGS__), .sparse = true              \
    }
#define LF_FIELDS_KEPT(S, ...)                                                                     \
    {                                                                                              \
        LF_FIELDS_TABLE(S, LF_FIELD_NONE, offsetof(S, more), __VA_ARGS__), .strict = true,         \
                                                                           .sparse = true          \
    }
#define LF_FIELDS_PART(S, ...)                                                                     \
    {                                                                                              \
        LF_FIELDS_TABLE(S, offsetof(S, given), offsetof(S, more), __VA_ARGS__), .strict = true,    \
                                                                                .sparse = true     \
    }
#define LF_FIELDS_BARE(S, ...)                                                                     \
    {                                                                                              \
        LF_FIELDS_TABLE(S, LF_FIELD_NONE, LF_FIELD_NONE, __VA_ARGS__), .bare = true                \
    }

/* o: of a plain table an object, or anything else, which gives a record with nothing in it. rec is
 * overwritten; on failure (memory, or what a strict table refuses) it is empty. what: the file, for
 * messages. */
int lf_fields_read(void *rec, const struct lf_fields *t, struct json_t *o, const char *what,
                   lf_err *err);
/* The same from text. */
int lf_fields_parse(void *rec, const struct lf_fields *t, const char *text, size_t len,
                    const char *what, lf_err *err);
/* New reference; NULL with err. */
struct json_t *lf_fields_json(const void *rec, const struct lf_fields *t, lf_err *err);
struct json_t *lf_texts_json(const lf_texts *t); /* NULL when there is no memory */
/* A copy that owns what it points to. */
int lf_fields_copy(void *out, const void *rec, const struct lf_fields *t, lf_err *err);
bool lf_fields_same(const void *a, const void *b, const struct lf_fields *t);
/* Canonical text: sorted keys, compact; owned, NULL with err. */
char *lf_fields_text(const void *rec, const struct lf_fields *t, lf_err *err);
/* A record from an object, which is taken; NULL: err says why there is none. */
int lf_fields_take(void *rec, const struct lf_fields *t, struct json_t *o, lf_err *err);
/* An LF_ROWS of records from a list of objects, which is taken; NULL: err says why there is
 * none. */
int lf_fields_list(void *rows, const struct lf_fields *t, struct json_t *list, lf_err *err);
/* The texts of a list, which is taken; NULL: err says why there is none. */
int lf_texts_take(lf_texts *out, struct json_t *list, lf_err *err);
void lf_fields_list_fini(void *rows, const struct lf_fields *t);
/* A member as the cell of a table for people: "-" where it would not be written. Owned. */
char *lf_fields_cell(const void *rec, const struct lf_fields *t, const char *key, lf_err *err);

/* ---- values that other programs put in, and objects of them */

char *lf_raw_cell(const struct json_t *o, const char *key, lf_err *err);
bool lf_raw_number(double *out, const struct json_t *o, const char *key); /* false: it has none */
void lf_raw_free(struct json_t *v);

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
