/* SPDX-License-Identifier: Apache-2.0
 *
 * How a set of tensors is made; for the readers of engine/store only.
 */
#ifndef LF_STORE_TENSORS_PRIV_H
#define LF_STORE_TENSORS_PRIV_H

#include "engine/base/str.h"
#include "engine/store/tensors.h"

struct lf_st_file {
    char *path; /* for messages */
    int fd;
    int64_t bytes;
};

struct lf_st_meta {
    char *key, *value;
};

struct lf_st {
    struct lf_st_file *files;
    size_t n_files, cap_files;
    lf_st_entry *entries; /* names are owned */
    size_t n_entries, cap_entries;
    const lf_st_entry **by_name; /* [n_entries], sorted by name; made by lf_st_seal */
    struct lf_st_meta *meta;
    size_t n_meta, cap_meta;
};

lf_st *lf_st_create(lf_err *err);
/* Takes fd (also on failure); finds its length. Returns the index of the file or a negative lf_rc. */
int lf_st_add_file(lf_st *s, int fd, const char *path, lf_err *err);
/* An entry of this dtype and shape whose sizes are computed and whose name is copied; the caller then says where it
 * lies. NULL with err set: too many, a bad name, sizes beyond 2^62. Borrowed until the next add. */
lf_st_entry *lf_st_add_entry(lf_st *s, const char *name, enum lf_st_dtype dtype, int ndim, const int64_t *shape,
                             lf_err *err);
int lf_st_add_meta(lf_st *s, const char *key, const char *value, lf_err *err);
/* Sort entries by file and offset, index the names, refuse a name that is there twice. */
int lf_st_seal(lf_st *s, lf_err *err);

/* ---- members of a JSON object, one at a time ----
 *
 * A header may have 100 MB, and JSON made of nothing but brackets takes fifty times its size once it is parsed. So
 * objects are walked in place and only strings and values below LF_JSCAN_VALUE bytes are given to the JSON library. */
#define LF_JSCAN_VALUE ((size_t)4096)

typedef struct lf_jscan {
    const char *text, *p, *end; /* the whole text (for positions), where it stands, its end */
    const char *what;           /* names the text in messages */
    bool begun;
    lf_buf key;        /* of the member found last; no NUL inside */
    const char *value; /* of the same, in place: value_len bytes, no space around it */
    size_t value_len;
} lf_jscan;

/* text[0..len) is an object, perhaps with white space around it. fini(zeroed) is legal. */
void lf_jscan_init(lf_jscan *j, const char *text, size_t len, const char *what);
void lf_jscan_fini(lf_jscan *j);
/* 1: key and value are those of the next member; 0: the object, and the text, have ended; negative: not JSON. */
int lf_jscan_next(lf_jscan *j, lf_err *err);
/* The value as a string (out is cleared first); LF_EFORMAT when it is none. */
int lf_jscan_string(const lf_jscan *j, lf_buf *out, lf_err *err);

#endif
