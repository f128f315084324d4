/* SPDX-License-Identifier: Apache-2.0
 *
 * What the structs of records hold beside plain C: numbers and flags that may not be given, lists
 * and maps of texts.
 *
 * A value that a file does not have is not given: NULL, or `given` is false and the rest is zero.
 */
#ifndef LF_FLOW_VALUES_H
#define LF_FLOW_VALUES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

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
void lf_pairs_fini(lf_pairs *p);

/* The list of a name, which is made when it is not there; NULL with err. */
lf_texts *lf_lists_add(lf_lists *l, const char *name, lf_err *err);
const lf_texts *lf_lists_get(const lf_lists *l, const char *name); /* NULL: none */
void lf_lists_fini(lf_lists *l);

/* One more element, zeroed, at the end of an LF_ROWS of elements of this size; NULL with err. */
void *lf_rows_add(void *rows, size_t size, lf_err *err);

#endif
