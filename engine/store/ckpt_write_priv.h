/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer of checkpoints, for ckpt_write.c (what is written when) and ckpt_resume.c (what need
 * not be).
 */
#ifndef LF_STORE_CKPT_WRITE_PRIV_H
#define LF_STORE_CKPT_WRITE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/store/ckpt_priv.h"
#include "engine/store/partial.h"

#define LF_CKPT_FILL_BYTES                                                                         \
    ((size_t)4 << 20) /* of one call of fill: what is transposed is read with fewer, longer reads */

struct lf_ckpt_leaf { /* of a tensor's tree hash */
    size_t rec, index;
    uint8_t sha256[LF_HASH_BYTES];
    bool left; /* an earlier save has written it, by its own account */
};

struct lf_ckpt_source { /* of a tensor that is not in memory */
    int (*fill)(void *user, int64_t first, int64_t n, void *dst, lf_err *err);
    void *user;
    /* of a device's memory */
    int (*fetch)(void *user, void *dst, const void *src, size_t bytes, lf_err *err);
};

struct lf_ckpt_writer {
    struct lf_ckpt_meta meta;
    struct lf_ckpt_source *sources; /* [n_recs] fill NULL: in memory */
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

    /* one save */
    pthread_t thread;
    bool pending; /* begun, not yet waited for */
    atomic_bool done;
    char *dir, *state;
    lf_ckpt_result result;
    int rc;
    lf_err err;
    /* its helpers */
    atomic_size_t next_leaf;
    atomic_bool failed;
    pthread_mutex_t lock; /* guards err while helpers run */

    /* what is kept of it for a later one, with resume.key */
    lf_resume resume;
    char key[LF_HASH_HEX];
    int progress; /* -1: none */
    atomic_llong reused;
};

static inline size_t lf_ckpt_rec_bytes(const struct lf_ckpt_rec *r)
{
    return (size_t)r->n_elems * lf_h5_type_bytes(r->e.dtype);
}

/* Bytes of a leaf of this tensor that begins at byte `at`. */
static inline size_t lf_ckpt_leaf_bytes(const struct lf_ckpt_rec *r, size_t at)
{
    size_t left = lf_ckpt_rec_bytes(r) - at;
    return left < LF_HASH_LEAF ? left : LF_HASH_LEAF;
}

/* Where bytes [at, at + *n) of a tensor lie: the file, the offset there, and in *n as many as lie
 * in one piece. */
int lf_ckpt_place(const lf_ckpt_writer *w, const struct lf_ckpt_rec *r, size_t at, size_t *n,
                  off_t *offset, const char **file);

/* Before the first file is made: take over what an earlier save of the same bytes has left, and
 * begin a record. */
int lf_ckpt_resume_begin(lf_ckpt_writer *w, lf_err *err);
/* Data file i is there already: give it the structure that `path` has (a new one of the same plan),
 * which is removed.
 */
int lf_ckpt_resume_file(lf_ckpt_writer *w, size_t i, const char *path, lf_err *err);
/* Does the file hold the leaf that the record says? buf: LF_CKPT_FILL_BYTES. */
bool lf_ckpt_resume_leaf(lf_ckpt_writer *w, const struct lf_ckpt_leaf *leaf, lf_hash *sha,
                         unsigned char *buf);

#endif
