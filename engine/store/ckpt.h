/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: an artifact of kind "checkpoint" (base/artifact.h).
 *
 *   data-NNNNN.h5   tensors as contiguous datasets /<kind>/<name>, e.g. /weight/model/embed.weight
 *   data-RRRRR-NNNNN.h5   the same, of writer RRRRR where several have written
 *   index.h5        every global tensor as a virtual dataset, for other tools; exists only with
 *                   several data files
 *   state.json      everything that is no tensor: cursor, RNG, schedule, step, fingerprint; kept
 *                   exactly (reals with 17 digits)
 *   leaves.bin      the hashes of the leaves of all tensors that have several, 32 bytes each, in
 *                   the order of the manifest; exists when there is such a tensor
 *   manifest.json   files, and meta = {"identity_version":2, "identity", "step",
 *                     "tensors":[{"name","kind","dtype","shape","sha256",
 *                       "pieces":[{"file","offset","lo","hi","flat"}]}]}   sorted by kind, name
 *
 * A piece holds the elements [flat[0], flat[1]) of the row-major flattened box lo..hi of the global
 * tensor, at byte `offset` of `file`. The pieces of a tensor tile it; those of one box follow each
 * other. A tensor of several pieces has the datasets /pieces/<kind>/<name>/NNNNN instead of one of
 * its own, numbered over the files of one writer. Readers request boxes of global tensors, so a
 * reader with another layout reads other ranges of the same files.
 *
 * Leaves: a tensor of at most 1,048,576 elements is one leaf. A larger one is a matrix of rows of
 * its last dimension, or several where the last two dimensions alone are larger (experts). The rows
 * of a matrix are cut into 8 equal bands (4, 2 or 1 where they do not divide), bands into halves
 * while a leaf would be too large, then into blocks of as many rows as a leaf can have; rows of at
 * least 256 columns, a multiple of 8, into eighths. So the leaves follow from the shape alone, and
 * equal shares of rows or columns hold whole leaves. A leaf's hash is SHA-256 over its rows, the
 * tensor's is that of its only leaf, or SHA-256 over "lf-grid-1", the number of leaves (u64le) and
 * their hashes in the order of row blocks, then columns.
 *
 * Identity: SHA-256 over "lf-ckpt-2" and, in (kind, name) order, each tensor's name, kind, dtype,
 * shape and hash. It depends neither on who wrote, nor on the layout of the files, nor on
 * state.json. Checkpoints without "identity_version" have the first form: "lf-ckpt-1", and for each
 * tensor the tree hash of its row-major bytes. They are read and verified as before.
 *
 * Crash states: (1) there is no directory; (2) the directory has no manifest, so there is no
 * checkpoint; (3) the manifest exists, so the checkpoint is complete and durable. Removing goes
 * (3) -> (2) -> (1). A save never touches another checkpoint.
 *
 * Several writers: each is created with its number and with its part of every tensor that it has
 * one of, and saves to the same directory. They do not talk. When a writer's files are durable,
 * its receipt says what is in them. Whoever has all receipts publishes.
 */
#ifndef LF_STORE_CKPT_H
#define LF_STORE_CKPT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/hash.h"
#include "engine/store/h5.h"
#include "engine/store/partial.h"

#define LF_CKPT_MAX_DIMS 6

/* what a tensor is, wherever its elements are */
typedef struct lf_ckpt_entry {
    const char *name, *kind;
    enum lf_h5_type dtype;
    int ndim;
    int64_t shape[LF_CKPT_MAX_DIMS];
} lf_ckpt_entry;

/* ---- writing ---- */

typedef struct lf_ckpt_tensor {
    const char *name; /* "model/embed.weight": components of [A-Za-z0-9_.-] separated by '/' */
    const char *kind; /* "weight", "master", "adam_m", "adam_v", "ema", ...: [a-z0-9_]+ */
    enum lf_h5_type dtype;
    int ndim;                        /* 1 .. LF_CKPT_MAX_DIMS (a scalar is [1]) */
    int64_t shape[LF_CKPT_MAX_DIMS]; /* of the global tensor */
    /* The part that this writer has: elements [flat[0], flat[1]) of the row-major flattened box
     * [lo, hi). hi all 0: the box is the tensor; flat[1] = 0: the range is the box. */
    int64_t lo[LF_CKPT_MAX_DIMS], hi[LF_CKPT_MAX_DIMS], flat[2];
    const void *data; /* of the part, in order; borrowed, read by lf_ckpt_save_begin */
    /* Used instead of data, for models larger than memory: writes elements [first, first + n) of
     * the part, in its dtype, to dst. Each element is requested once, in blocks of at most 8 MiB.
     * Several threads call it at the same time, with an arena in the background, where no snapshot
     * is made of it: the values must not change. */
    int (*fill)(void *user, int64_t first, int64_t n, void *dst, lf_err *err);
    void *user;
    /* For data in a device's memory: copies it to the host, on the thread of lf_ckpt_save_begin.
     * Needs an arena. */
    int (*fetch)(void *user, void *dst, const void *src, size_t bytes, lf_err *err);
} lf_ckpt_tensor;

typedef struct lf_ckpt_writer lf_ckpt_writer;

typedef struct lf_ckpt_result {
    uint8_t identity[LF_HASH_BYTES];
    int64_t bytes;        /* of all files */
    int64_t reused_bytes; /* of tensors that an earlier save had written */
    double snapshot_s;    /* time for which the caller waited */
    double write_s;       /* time in the background */
    /* Leaves that no writer had whole, so that publishing read them again. See lf_ckpt_cut. */
    int64_t split_leaves;
} lf_ckpt_result;

/* Where a flat range of the box [lo, hi) of a tensor may end so that it splits no leaf: of all such
 * positions (0 and the box's volume are two), the one nearest to `at`, the lower one of two. It
 * grows with `at`, so the ends of shares that are cut at 1/d, 2/d ... are in order. lo = hi = NULL
 * is the whole tensor. A range that ends elsewhere is legal; then publishing reads the leaf again.
 */
int64_t lf_ckpt_cut(int ndim, const int64_t *shape, const int64_t *lo, const int64_t *hi,
                    int64_t at);

/* Returns the bytes of host memory that a snapshot of these parts needs, or SIZE_MAX on overflow.
 * Those with fill need none. */
size_t lf_ckpt_snapshot_bytes(const lf_ckpt_tensor *tensors, size_t n);

typedef struct lf_ckpt_options {
    /* snapshot memory of lf_ckpt_snapshot_bytes(), borrowed until destroy; NULL: no snapshot,
     * and lf_ckpt_save_begin returns only when everything is durable */
    void *arena;
    int threads;         /* that write and hash; 0 = 1 */
    int64_t file_bytes;  /* a new data file begins above this; 0: one file */
    int64_t piece_bytes; /* a tensor is cut into pieces of at most this; 0 = never */
    /* For long saves with fill (without arena). A save that was killed or stopped (fill returned
     * LF_EINTR) is continued: what it had written is not requested again. The key stands for
     * everything that the bytes are a function of. Borrowed until destroy. */
    lf_resume resume;
    /* This is writer `part` of `parts`, which save the same tensors. 0 and 0 or 1: it is the only
     * one, and a save that ends is a checkpoint. Not with resume. */
    int part, parts;
    /* With several parts: equal on all writers that save together, and another one after each
     * start. Receipts of different runs are not published together. */
    uint64_t run;
} lf_ckpt_options;

/* The caller owns the tensors and their memory, which must stay in place until destroy; names are
 * copied. Tensors with fill are written without a snapshot. n may be 0 with several parts.
 * LF_EINVAL: a part that lies outside its tensor. */
int lf_ckpt_writer_create(lf_ckpt_writer **out, const lf_ckpt_tensor *tensors, size_t n,
                          const lf_ckpt_options *o, lf_err *err);
/* Begins a save. It first waits for the previous save; when that failed, its failure is returned
 * and this save is not begun. Then it copies the tensors and starts writing to the new directory
 * dir, whose parents are made. Remains of a save without manifest are removed first. LF_EEXIST: dir
 * holds a checkpoint, or anything that is not part of one. state is a borrowed JSON object with an
 * integer "step"; it cannot hold NaN or infinity. Its members LF_CKPT_ENDED (engine/train/early.h)
 * and LF_CKPT_IMPATIENT (engine/train/best.h) enter the manifest too. With several parts only the
 * step of state is used, and only remains of this part are removed. */
#define LF_CKPT_ENDED     "ended"
#define LF_CKPT_IMPATIENT "out_of_patience"
int lf_ckpt_save_begin(lf_ckpt_writer *w, const char *dir, const json_t *state, lf_err *err);
/* Waits for the current save, if any, and returns its outcome once: 1 when it has completed, 0 when
 * there was none, negative when it failed. out (may be NULL) is set on 1. With several parts, 1
 * means that this part is durable: out has no identity, and lf_ckpt_save_receipt says what there
 * is. A part that failed has removed its own files, and the message names the one that could not be
 * written. */
int lf_ckpt_save_wait(lf_ckpt_writer *w, lf_ckpt_result *out, lf_err *err);
/* Would lf_ckpt_save_wait return at once? true also when there is no save. */
bool lf_ckpt_save_idle(lf_ckpt_writer *w);
/* After lf_ckpt_save_wait has returned 1: the receipt of this part, text that ends with NUL;
 * borrowed until the next save begins. NULL with one part. */
const char *lf_ckpt_save_receipt(const lf_ckpt_writer *w);
/* Waits for the current save. A failure that lf_ckpt_save_wait has not returned is lost. w may be
 * NULL. */
void lf_ckpt_writer_destroy(lf_ckpt_writer *w);

struct lf_ckpt_parts {
    const char *const *receipts; /* [n], of all parts, in any order */
    size_t n;
    const json_t *state; /* as for lf_ckpt_save_begin */
    /* Every tensor of the model, in any order: those of the parts must be these, with their type
     * and shape. NULL: not known, and a tensor of which no part has anything is not missed. */
    const struct lf_ckpt_entry *tensors;
    size_t n_tensors;
    int threads; /* that hash; 0 = all processors */
};
/* Makes the checkpoint in dir of what its parts have written. Checked before: the receipts are of
 * this directory and step and of one save of one run, each part once; all say the same type and
 * shape of a tensor; its pieces tile it; each file has its length. Leaves that were split are read
 * from the files. On failure, LF_EFORMAT where the receipts do not fit, nothing is published and
 * the parts stay: lf_ckpt_discard removes them. out may be NULL. */
int lf_ckpt_publish(const char *dir, const struct lf_ckpt_parts *parts, lf_ckpt_result *out,
                    lf_err *err);
/* Removes what a save without a manifest has left in dir, and dir. For one process, when no part is
 * being written any more. LF_EEXIST: dir holds a checkpoint or foreign files. */
int lf_ckpt_discard(const char *dir, lf_err *err);

/* ---- reading ---- */

typedef struct lf_ckpt lf_ckpt;

/* Opens the checkpoint in dir and checks all of it: lengths, the tree hash of every file, and the
 * pieces against the HDF5 structure of each file. LF_ENOENT: there is no checkpoint. LF_EFORMAT:
 * the message names the damaged file, and the tensor where it is known. `threads` threads hash; 0
 * means all processors. */
int lf_ckpt_open(lf_ckpt **out, const char *dir, int threads, lf_err *err);
enum lf_ckpt_check {
    LF_CKPT_CHECK_ALL, /* as lf_ckpt_open */
    /* Lengths and HDF5 structure are checked at opening, and the leaves that a read needs when it
     * reads them. For one of many readers. */
    LF_CKPT_CHECK_STRUCTURE,
    /* Leaves and lengths alone, when a read needs them; nothing else is read of a data file. For
     * the other readers. */
    LF_CKPT_CHECK_READS
};
/* The manifest, state.json and leaves.bin are checked in every mode. A read that checks costs at
 * least the leaves that it touches, or the whole tensor once for a checkpoint with an identity of
 * the first form; in memory it needs 1 MiB beside dst. */
int lf_ckpt_open_checked(lf_ckpt **out, const char *dir, enum lf_ckpt_check check, int threads,
                         lf_err *err);
void lf_ckpt_close(lf_ckpt *c);
/* The threads that it was opened for, 1 or more. Reading may go on in several at a time. */
int lf_ckpt_threads(const lf_ckpt *c);
size_t lf_ckpt_n_entries(const lf_ckpt *c);
/* borrowed; sorted by kind, name */
const lf_ckpt_entry *lf_ckpt_entry_at(const lf_ckpt *c, size_t i);
/* NULL: none */
const lf_ckpt_entry *lf_ckpt_find(const lf_ckpt *c, const char *name, const char *kind);
/* Exchanges every tensor of kind "ema" with that of kind "weight" and the same name, so that all
 * that reads weights from c reads averages where there are some; the identity becomes that of what
 * c now says. Right after opening. LF_ENOENT: c has no averages. */
int lf_ckpt_averages(lf_ckpt *c, lf_err *err);
/* Reads elements [first, first + n) of a tensor, flattened row-major, to dst, in the stored dtype.
 * Thread-safe. */
int lf_ckpt_read_flat(const lf_ckpt *c, const lf_ckpt_entry *e, int64_t first, int64_t n, void *dst,
                      lf_err *err);
/* Reads elements [flat[0], flat[1]) of the row-major flattened box [lo, hi) of a tensor to dst, in
 * the stored dtype: what a part of that description holds. flat = NULL: all of the box; lo = hi =
 * NULL: the box is the tensor. Thread-safe. LF_EFORMAT, where reads are checked: the bytes are
 * damaged, and dst holds anything. */
int lf_ckpt_read_part(const lf_ckpt *c, const lf_ckpt_entry *e, const int64_t *lo,
                      const int64_t *hi, const int64_t *flat, void *dst, lf_err *err);
/* the tensor's hash in the identity [LF_HASH_BYTES], borrowed; comparable between checkpoints of
 * the same form */
const uint8_t *lf_ckpt_tensor_hash(const lf_ckpt_entry *e);
/* Sets out to the tree hash (hash.h) of the tensor's row-major bytes. false: the checkpoint does
 * not have it. */
bool lf_ckpt_tensor_tree_hash(const lf_ckpt *c, const lf_ckpt_entry *e, uint8_t out[LF_HASH_BYTES]);
/* Reads the box [lo, hi) of a tensor to dst, row-major, in the stored dtype. lo = hi = NULL reads
 * all of it. Thread-safe. */
int lf_ckpt_read(const lf_ckpt *c, const lf_ckpt_entry *e, const int64_t *lo, const int64_t *hi,
                 void *dst, lf_err *err);
json_t *lf_ckpt_state(const lf_ckpt *c);           /* borrowed */
const uint8_t *lf_ckpt_identity(const lf_ckpt *c); /* [LF_HASH_BYTES], borrowed */
int lf_ckpt_identity_version(const lf_ckpt *c);    /* 1 or 2 */
/* Does hex name the tensors of c, as an identity of either form? Its own costs nothing, the other
 * form reads all of them. Returns 1, 0 or a failure. */
int lf_ckpt_is(const lf_ckpt *c, const char *hex, lf_err *err);
int64_t lf_ckpt_step(const lf_ckpt *c);
const char *lf_ckpt_dir(const lf_ckpt *c); /* borrowed */

/* ---- directories of checkpoints ---- */

/* Returns OUT/checkpoints/step-NNNNNNNN; the caller frees it. */
char *lf_ckpt_step_dir(const char *out_dir, int64_t step, lf_err *err);

typedef void (*lf_ckpt_report)(void *user, const char *dir, const char *text);

struct lf_ckpt_search {
    const char *const *out_dirs;
    size_t n;
    int64_t max_step; /* < 0: no bound */
    lf_ckpt_report report;
    void *user; /* of report */
};

/* Finds the complete checkpoint with the greatest step among the `checkpoints` directories of
 * out_dirs and their `checkpoint`, the final one. On equal steps the later directory counts.
 * Incomplete checkpoints are skipped. Broken ones (bad manifest, purged, wrong length) are skipped
 * and passed to report. A checkpoint that cannot be looked at (such as LF_EIO) ends the search with
 * that error: it may be whole, and an older one would lose its steps. *dir is owned by the caller,
 * or NULL when there is none. Only lf_ckpt_open checks hashes; on its LF_EFORMAT the caller
 * searches again with max_step one below. */
int lf_ckpt_find_newest(char **dir, int64_t *step, const struct lf_ckpt_search *s, lf_err *err);

/* Deletes checkpoints of out_dir/checkpoints. The keep_last newest stay, and those whose step is a
 * multiple of keep_every (0: none), and always the newest complete one. Remains without a manifest
 * that are older than the newest checkpoint are removed. */
int lf_ckpt_retain(const char *out_dir, int keep_last, int64_t keep_every, lf_err *err);

#endif
