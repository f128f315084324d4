/* SPDX-License-Identifier: Apache-2.0
 *
 * How the readers of engine/store make a set of tensors.
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

/* A box of elements in a file, and their place in the row-major tensor. Element (i0, i1, ...) of
 * the box lies sum(i * src) elements behind file offset `offset` and is element `first` + sum(i *
 * dst) of the tensor. */
struct lf_st_piece {
    int file, ndim;
    int64_t offset; /* bytes */
    int64_t first;  /* elements */
    int64_t n[LF_ST_MAX_DIMS], src[LF_ST_MAX_DIMS], dst[LF_ST_MAX_DIMS];
};

struct lf_st_rec {
    lf_st_entry e;             /* name is owned; e must be first */
    int64_t place;             /* offset, or that of the first piece */
    size_t piece, n_pieces;    /* a range of lf_st.pieces; empty when e.offset is enough */
    struct lf_st_scale *scale; /* owned; not NULL: e is what 8- or 4-bit floats times these are */
    bool hidden;               /* moved to the scale of another one */
};

/* The scales of a matrix's blocks of rows x cols, or (rows 0) of blocks of 32 4-bit floats. */
struct lf_st_scale {
    struct lf_st_rec rec;
    struct lf_st_rec act; /* of what the matrix multiplies; name NULL: none */
    int64_t rows, cols;
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
/* Adds the file open at fd and finds its length. It takes ownership of fd, also on failure. Returns
 * the index of the file or a negative lf_rc. */
int lf_st_add_file(lf_st *s, int fd, const char *path, lf_err *err);
/* Adds an entry of this dtype and shape. The name is copied and the sizes are computed; the caller
 * then tells the place of the bytes. Returns NULL with err set when there are too many entries, the
 * name is bad, or sizes are beyond 2^62. The entry is borrowed until the next add. */
lf_st_entry *lf_st_add_entry(lf_st *s, const char *name, enum lf_st_dtype dtype, int ndim,
                             const int64_t *shape, lf_err *err);
/* Says that the entry added last lies at this place, in one run of bytes. */
void lf_st_place(lf_st *s, int file, int64_t offset);
/* Or adds one piece of that entry; all pieces of an entry are added before the next entry. When the
 * pieces turn out to be one run, lf_st_seal turns them into the form of lf_st_place. The caller has
 * checked that every element lies in the file and in the tensor. */
int lf_st_add_piece(lf_st *s, const struct lf_st_piece *p, lf_err *err);
int lf_st_add_meta(lf_st *s, const char *key, const char *value, lf_err *err);
/* Completes the set: sorts entries by file and offset, finds aliases, indexes the names, and
 * refuses a name that occurs twice. */
int lf_st_seal(lf_st *s, lf_err *err);

/* lf_st_read of a tensor with scales: of 8-bit floats, of 4-bit floats. */
int lf_st_read_scaled(const lf_st *s, const struct lf_st_rec *r, int64_t first, int64_t n,
                      void *dst, lf_err *err);
int lf_st_read_mxfp4(const lf_st *s, const struct lf_st_rec *r, int64_t first, int64_t n, void *dst,
                     lf_err *err);
/* Finds the scales of entry `of`, which is of `what`: the entry called `stem` + suffix. */
int lf_st_find_scale(const lf_st *s, const struct lf_st_rec *of, const char *what, int stem,
                     const char *suffix, const lf_st_entry **out, lf_err *err);
/* Makes `e` the scales of r, whose values are bf16 from then on. */
int lf_st_take_scale(struct lf_st_rec *r, const lf_st_entry *e, int64_t rows, int64_t cols,
                     lf_err *err);
/* Drops the entries that became scales, and seals the set again. */
int lf_st_drop_scales(lf_st *s, lf_err *err);

/* ---- opening ---- */

/* A kind of file, with the names that the Hugging Face libraries give it in a directory. */
struct lf_st_kind {
    const char *one, *index;
    /* add the tensors of one file; takes fd */
    int (*add)(lf_st *s, int fd, const char *path, lf_err *err);
};
int lf_st_open_kind(lf_st **out, const struct lf_st_kind *kind, const char *path, lf_err *err);

/* ---- members of a JSON object, one at a time ----
 *
 * A header may have 100 MB, and JSON that consists of brackets takes fifty times its size once
 * parsed. So objects are read in place, and only strings and values below LF_JSCAN_VALUE bytes go
 * to the JSON library. */
#define LF_JSCAN_VALUE ((size_t)4096)

typedef struct lf_jscan {
    const char *text, *p, *end; /* the whole text (for positions), the current place, the end */
    const char *what;           /* names the text in messages */
    bool begun;
    lf_buf key;        /* of the member found last; no NUL inside */
    const char *value; /* value of that member, in place: value_len bytes without space around it */
    size_t value_len;
} lf_jscan;

/* text[0..len) is an object, perhaps with white space around it. lf_jscan_fini takes a zeroed
 * struct too. */
void lf_jscan_init(lf_jscan *j, const char *text, size_t len, const char *what);
void lf_jscan_fini(lf_jscan *j);
/* Moves to the next member. Returns 1 with key and value set, 0 when object and text have ended, or
 * a negative code when the text is not JSON. */
int lf_jscan_next(lf_jscan *j, lf_err *err);
/* Sets out to the value, which is a string. LF_EFORMAT: it is not a string. */
int lf_jscan_string(const lf_jscan *j, lf_buf *out, lf_err *err);

#endif
