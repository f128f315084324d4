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

/* A box of elements in a file and where they go in the row-major tensor: element (i0, i1, ...) lies
 * at file offset `offset` + sum(i * src) elements and belongs to element `first` + sum(i * dst) of
 * the tensor. */
struct lf_st_piece {
    int file, ndim;
    int64_t offset; /* bytes */
    int64_t first;  /* elements */
    int64_t n[LF_ST_MAX_DIMS], src[LF_ST_MAX_DIMS], dst[LF_ST_MAX_DIMS];
};

struct lf_st_rec {
    lf_st_entry e;          /* name is owned; e must be first */
    int64_t place;          /* offset, or that of the first piece */
    size_t piece, n_pieces; /* of lf_st.pieces; none when e.offset says all */
};

struct lf_st {
    struct lf_st_file *files;
    size_t n_files, cap_files;
    struct lf_st_rec *recs;
    size_t n_recs, cap_recs;
    struct lf_st_piece *pieces;
    size_t n_pieces, cap_pieces;
    const lf_st_entry **by_name; /* [n_recs], sorted by name; made by lf_st_seal */
    struct lf_st_meta *meta;
    size_t n_meta, cap_meta;
};

lf_st *lf_st_create(lf_err *err);
/* Takes fd (also on failure); finds its length. Returns the index of the file or a negative
 * lf_rc. */
int lf_st_add_file(lf_st *s, int fd, const char *path, lf_err *err);
/* An entry of this dtype and shape whose sizes are computed and whose name is copied; the caller
 * then says where it lies. NULL with err set: too many, a bad name, sizes beyond 2^62. Borrowed
 * until the next add. */
lf_st_entry *lf_st_add_entry(lf_st *s, const char *name, enum lf_st_dtype dtype, int ndim,
                             const int64_t *shape, lf_err *err);
/* The entry added last lies here, in one run of bytes. */
void lf_st_place(lf_st *s, int file, int64_t offset);
/* Or: this is one of its pieces (all pieces of an entry are added before the next entry). What is
 * one run after all becomes lf_st_place's form when the set is sealed. Sizes were checked by the
 * caller: every element lies in the file and in the tensor. */
int lf_st_add_piece(lf_st *s, const struct lf_st_piece *p, lf_err *err);
int lf_st_add_meta(lf_st *s, const char *key, const char *value, lf_err *err);
/* Sort entries by file and offset, find aliases, index the names, refuse a name that is there
 * twice. */
int lf_st_seal(lf_st *s, lf_err *err);

/* ---- opening ---- */

/* A kind of file, as the Hugging Face libraries name it in a directory. */
struct lf_st_kind {
    const char *one, *index;
    /* add the tensors of one file; takes fd */
    int (*add)(lf_st *s, int fd, const char *path, lf_err *err);
};
int lf_st_open_kind(lf_st **out, const struct lf_st_kind *kind, const char *path, lf_err *err);

/* ---- members of a JSON object, one at a time ----
 *
 * A header may have 100 MB, and JSON made of nothing but brackets takes fifty times its size once
 * it is parsed. So objects are walked in place and only strings and values below LF_JSCAN_VALUE
 * bytes are given to the JSON library. */
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
/* 1: key and value are those of the next member; 0: the object, and the text, have ended; negative:
 * not JSON. */
int lf_jscan_next(lf_jscan *j, lf_err *err);
/* The value as a string (out is cleared first); LF_EFORMAT when it is none. */
int lf_jscan_string(const lf_jscan *j, lf_buf *out, lf_err *err);

#endif
