/* SPDX-License-Identifier: Apache-2.0
 *
 * The plan of a redistribution, for reshard*.c and their test. */
#ifndef LF_POST_RESHARD_PRIV_H
#define LF_POST_RESHARD_PRIV_H

#include "engine/post/reshard.h"

/* What a rank keeps of a tensor: elements flat[0] <= e < flat[1] of the flattened box. Dimensions
 * stand at the end: a matrix has [0, 1) first. */
struct lf_reshard_region {
    int64_t lo[3], hi[3], flat[2];
};
/* A tensor on one rank. */
struct lf_reshard_entry {
    struct lf_reshard_region from, to;
};

/* A part of a tensor from one rank to another, or from a store of a rank to its other one. */
struct lf_reshard_piece {
    int tensor; /* of `from` */
    int into;   /* of `to` */
    enum lf_pkind kind;
    enum lf_dtype dtype;
    bool frozen;
    struct lf_reshard_region from, to; /* the boxes, as few dimensions as their runs allow */
};

/* All parts from one rank to one other, in the order of their message. */
struct lf_reshard_pair {
    struct lf_reshard_piece *v;
    size_t n, cap;
};

/* Elements that lie side by side in both boxes. */
struct lf_reshard_run {
    const struct lf_reshard_piece *piece;
    int64_t at; /* in what the sender keeps, from its first element on */
    int64_t to; /* in the receiver's flattened box */
    int64_t count;
};

/* A place in the parts of a pair. */
struct lf_reshard_cursor {
    const struct lf_reshard_pair *pair;
    bool trained;
    size_t piece;
    int64_t row;  /* of the piece's rows: e * rows + o */
    int64_t done; /* elements of the row */
};

/* Calls fn, if any, for the next runs, of at most cap bytes together. Returns their bytes; 0: there
 * are no more. */
typedef int (*lf_reshard_fn)(void *user, const struct lf_reshard_run *run, size_t offset,
                             lf_err *err);
size_t lf_reshard_take(struct lf_reshard_cursor *c, size_t cap, lf_reshard_fn fn, void *user,
                       int *rc, lf_err *err);

/* The entry of tensor i; `into` is its number in `to`. */
void lf_reshard_entry_of(struct lf_reshard_entry *e, const lf_pstore *from, const lf_pstore *to,
                         int i, int into);
/* Of the entries [rank * n + tensor] of all ranks: what rank `me` sends to and receives from each
 * (pairs of [ranks]; its own copies are in both). node[rank]: a number for each node. */
struct lf_reshard_all {
    const struct lf_reshard_entry *entry;
    const int *node;
    int ranks;
};
int lf_reshard_pairs(const struct lf_reshard_all *all, lf_pstore *from, lf_pstore *to, int me,
                     struct lf_reshard_pair *send, struct lf_reshard_pair *recv, lf_err *err);

#define LF_RESHARD_WINDOW ((size_t)1 << 20) /* bytes */

/* Of lf_reshard_fn: runs between a store and a message. Rows of a matrix whose columns are divided
 * are short runs, and a copy from or to a device takes long however short it is. So short runs go
 * through a window: elements [first, end) of what this rank keeps of a tensor, in memory of the
 * host. */
struct lf_reshard_io {
    lf_pstore *ps;
    char *buf;          /* the message */
    char *window;       /* [room] */
    size_t room;        /* LF_RESHARD_WINDOW */
    float *wide;        /* for writing: as many elements of fp16 as f32 */
    int tensor;         /* of ps, that is in the window */
    int64_t first, end; /* equal: nothing is */
    bool changed;       /* since it was read from the store */
};
int lf_reshard_read(void *io, const struct lf_reshard_run *run, size_t offset, lf_err *err);
/* Until lf_reshard_flush some of what was written may be in the window alone. */
int lf_reshard_write(void *io, const struct lf_reshard_run *run, size_t offset, lf_err *err);
int lf_reshard_flush(struct lf_reshard_io *io, lf_err *err);

#endif
