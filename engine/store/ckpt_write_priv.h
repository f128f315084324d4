/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a checkpoint writer, for ckpt_write.c (writing) and ckpt_resume.c (continuing a save
 * that was cut off).
 */
#ifndef LF_STORE_CKPT_WRITE_PRIV_H
#define LF_STORE_CKPT_WRITE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/store/ckpt_priv.h"
#include "engine/store/partial.h"

/* Bytes of one call of fill. Long blocks read transposed tensors with fewer reads. */
#define LF_CKPT_FILL_BYTES ((size_t)4 << 20)

struct lf_ckpt_leaf { /* one leaf of a tensor's tree hash */
    size_t rec, index;
    uint8_t sha256[LF_HASH_BYTES];
    bool left; /* the record of an earlier save says that it is written */
};

struct lf_ckpt_source { /* of a tensor that is not in host memory */
    int (*fill)(void *user, int64_t first, int64_t n, void *dst, lf_err *err);
    void *user;
    /* for a device's memory */
    int (*fetch)(void *user, void *dst, const void *src, size_t bytes, lf_err *err);
};

struct lf_ckpt_writer {
    struct lf_ckpt_meta meta;
    struct lf_ckpt_source *sources; /* [n_recs]; fill NULL: the tensor is in memory */
    const unsigned char **live;     /* [n_recs] the caller's tensors */
    const unsigned char **from;     /* [n_recs] what is written: the snapshot, or live */
    char (*files)[32];
    size_t n_files;
    int *fds;
    struct lf_ckpt_leaf *leaves;
    size_t n_leaves;
    int64_t piece_bytes; /* as given; 0 = whole tensors */
    unsigned char *arena;
    int threads;

    /* of the current save: */
    pthread_t thread;
    bool pending; /* begun, not yet waited for */
    atomic_bool done;
    char *dir, *state;
    json_t *ended; /* members of state that say how its run ended early; NULL: none was saved yet */
    lf_ckpt_result result;
    int rc;
    lf_err err;
    /* of its helper threads: */
    atomic_size_t next_leaf;
    atomic_bool failed;
    pthread_mutex_t lock; /* guards err while helpers run */

    /* the record for a later start, kept with resume.key: */
    lf_resume resume;
    char key[LF_HASH_HEX];
    int progress; /* -1: none */
    atomic_llong reused;
};

static inline size_t lf_ckpt_rec_bytes(const struct lf_ckpt_rec *r)
{
    return (size_t)r->n_elems * lf_h5_type_bytes(r->e.dtype);
}

/* Returns the bytes of the leaf of this tensor that begins at byte `at`. */
static inline size_t lf_ckpt_leaf_bytes(const struct lf_ckpt_rec *r, size_t at)
{
    size_t left = lf_ckpt_rec_bytes(r) - at;
    return left < LF_HASH_LEAF ? left : LF_HASH_LEAF;
}

/* Finds where bytes [at, at + *n) of a tensor lie: the file and the offset in it. *n is reduced to
 * the bytes that lie in one piece. */
int lf_ckpt_place(const lf_ckpt_writer *w, const struct lf_ckpt_rec *r, size_t at, size_t *n,
                  off_t *offset, const char **file);

/* Called before the first file is made: takes over what an earlier save of the same bytes has left,
 * and begins a record. */
int lf_ckpt_resume_begin(lf_ckpt_writer *w, lf_err *err);
/* Data file i exists already. It gets the structure of `path`, a new file of the same plan, and
 * `path` is removed.
 */
int lf_ckpt_resume_file(lf_ckpt_writer *w, size_t i, const char *path, lf_err *err);
/* Does the file hold the leaf that the record names? buf has LF_CKPT_FILL_BYTES bytes. */
bool lf_ckpt_resume_leaf(lf_ckpt_writer *w, const struct lf_ckpt_leaf *leaf, lf_hash *sha,
                         unsigned char *buf);

#endif
