/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a checkpoint writer, for ckpt_plan.c (what goes where), ckpt_write.c (writing) and
 * ckpt_resume.c (continuing a save that was cut off).
 */
#ifndef LF_STORE_CKPT_WRITE_PRIV_H
#define LF_STORE_CKPT_WRITE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/store/ckpt_priv.h"
#include "engine/store/partial.h"

/* Bytes of one call of fill, of several units together where they are smaller. Long blocks read
 * transposed tensors with fewer reads. */
#define LF_CKPT_FILL_BYTES ((size_t)8 << 20)

#define LF_CKPT_MAX_THREADS 64

struct lf_ckpt_work {
    size_t rec;
    struct lf_ckpt_unit u;
    size_t leaf;                   /* index of its first hash among those of the tensor's part */
    bool left;                     /* the record of an earlier save says that it is written ... */
    uint8_t sha256[LF_HASH_BYTES]; /* ... and that this is the digest of its leaves */
};

struct lf_ckpt_source { /* of a tensor that is not in host memory */
    int (*fill)(void *user, int64_t first, int64_t n, void *dst, lf_err *err);
    void *user;
    /* for a device's memory */
    int (*fetch)(void *user, void *dst, const void *src, size_t bytes, lf_err *err);
    struct lf_ckpt_piece part; /* box and range, without a file */
};

struct lf_ckpt_writer {
    struct lf_ckpt_meta meta;
    struct lf_ckpt_source *sources; /* [n_recs]; fill NULL: the tensor is in memory */
    const unsigned char **live;     /* [n_recs] the caller's tensors */
    const unsigned char **from;     /* [n_recs] what is written: the snapshot, or live */
    char (*files)[48];
    size_t n_files;
    int *fds;
    struct lf_ckpt_work *work;
    size_t n_work;
    int part, parts; /* parts 1: alone */
    uint64_t run;
    int64_t piece_bytes; /* as given; 0 = whole tensors */
    unsigned char *arena;
    int threads;

    /* of the current save: */
    pthread_t thread;
    bool pending; /* begun, not yet waited for */
    atomic_bool done;
    char *dir, *state;
    json_t *ended; /* members of state that say how its run ended early; NULL: none was saved yet */
    char *receipt; /* of the last save that has ended, with several parts */
    int64_t saves; /* begun so far */
    lf_ckpt_result result;
    int rc;
    lf_err err;
    /* of its helper threads: */
    atomic_size_t next;
    atomic_bool failed;
    pthread_mutex_t lock; /* guards err while helpers run */

    /* the record for a later start, kept with resume.key: */
    lf_resume resume;
    char key[LF_HASH_HEX];
    int progress; /* -1: none */
    atomic_llong reused;
};

/* Bytes of the part of tensor `rec`, and the first byte of a unit in it. */
static inline size_t lf_ckpt_part_bytes(const lf_ckpt_writer *w, size_t rec)
{
    const int64_t *flat = w->sources[rec].part.flat;
    return (size_t)(flat[1] - flat[0]) * lf_h5_type_bytes(w->meta.recs[rec].e.dtype);
}
static inline size_t lf_ckpt_work_at(const lf_ckpt_writer *w, const struct lf_ckpt_work *k)
{
    return (size_t)(k->u.flat[0] - w->sources[k->rec].part.flat[0]) *
           lf_h5_type_bytes(w->meta.recs[k->rec].e.dtype);
}
static inline size_t lf_ckpt_work_bytes(const lf_ckpt_writer *w, const struct lf_ckpt_work *k)
{
    return (size_t)(k->u.flat[1] - k->u.flat[0]) * lf_h5_type_bytes(w->meta.recs[k->rec].e.dtype);
}

/* What n bytes of a tensor take of a snapshot. */
size_t lf_ckpt_arena_bytes(size_t n);
/* Elements of a piece of a part of `all`, all but the last. */
uint64_t lf_ckpt_piece_elems(const lf_ckpt_writer *w, const struct lf_ckpt_rec *r, uint64_t all);
/* Begins to hash the leaves of a unit. */
void lf_ckpt_work_begin(struct lf_ckpt_feed *f, const lf_ckpt_writer *w,
                        const struct lf_ckpt_work *k);

/* Finds where bytes [at, at + *n) of a tensor's part lie: the file and the offset in it. *n is
 * reduced to the bytes that lie in one piece. */
int lf_ckpt_place(const lf_ckpt_writer *w, size_t rec, size_t at, size_t *n, off_t *offset,
                  const char **file);

/* Called before the first file is made: takes over what an earlier save of the same bytes has left,
 * and begins a record. */
int lf_ckpt_resume_begin(lf_ckpt_writer *w, lf_err *err);
/* Data file i exists already. It gets the structure of `path`, a new file of the same plan, and
 * `path` is removed.
 */
int lf_ckpt_resume_file(lf_ckpt_writer *w, size_t i, const char *path, lf_err *err);
/* Does the file hold the unit that the record names? Then its hashes are set. buf has
 * LF_CKPT_FILL_BYTES bytes. */
bool lf_ckpt_resume_work(lf_ckpt_writer *w, const struct lf_ckpt_work *k, struct lf_ckpt_feed *f,
                         unsigned char *buf);

#endif
