/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: an artifact of kind "checkpoint" (base/artifact.h).
 *
 *   data-NNNNN.h5   tensors as contiguous datasets /<kind>/<name>, e.g. /weight/model/embed.weight
 *   index.h5        every global tensor as a virtual dataset, for other tools; exists only with
 *                   several data files
 *   state.json      everything that is no tensor: cursor, RNG, schedule, step, fingerprint; kept
 *                   exactly (reals with 17 digits)
 *   manifest.json   files, and meta = {"identity", "step",
 *                     "tensors":[{"name","kind","dtype","shape","sha256",
 *                       "pieces":[{"file","offset","lo","hi","flat"}]}]}   sorted by kind, name
 *
 * A piece holds the elements [flat[0], flat[1]) of the row-major flattened box lo..hi of the global
 * tensor, at byte `offset` of `file`. The pieces of a tensor tile it; those of one box follow each
 * other. A tensor of several pieces has the datasets /pieces/<kind>/<name>/NNNNN instead of one of
 * its own. Readers request boxes of global tensors, so a reader with another layout reads other
 * ranges of the same files.
 *
 * Identity: SHA-256 over "lf-ckpt-1" and, in (kind, name) order, each tensor's name, kind, dtype,
 * shape and the tree hash of its row-major bytes. It depends neither on the layout of the files nor
 * on state.json.
 *
 * Crash states: (1) there is no directory; (2) the directory has no manifest, so there is no
 * checkpoint; (3) the manifest exists, so the checkpoint is complete and durable. Removing goes
 * (3) -> (2) -> (1). A save never touches another checkpoint.
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

/* ---- writing ---- */

typedef struct lf_ckpt_tensor {
    const char *name; /* "model/embed.weight": components of [A-Za-z0-9_.-] separated by '/' */
    const char *kind; /* "weight", "master", "adam_m", "adam_v", ...: [a-z0-9_]+ */
    enum lf_h5_type dtype;
    int ndim; /* 1 .. LF_CKPT_MAX_DIMS (a scalar is [1]) */
    int64_t shape[LF_CKPT_MAX_DIMS];
    const void *data; /* row-major, whole tensor; borrowed, read by lf_ckpt_save_begin */
    /* Used instead of data, for models larger than memory: writes elements [first, first + n) of
     * the tensor, in its dtype, to dst. Each element is requested once, in blocks of at most 4 MiB.
     * Several threads call it at the same time. */
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
} lf_ckpt_result;

/* Returns the bytes of host memory that a snapshot of these tensors needs, or SIZE_MAX on
 * overflow. */
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
} lf_ckpt_options;

/* The caller owns the tensors and their memory, which must stay in place until destroy; names are
 * copied. Tensors with fill are written without a snapshot. LF_EINVAL: fill together with an
 * arena. */
int lf_ckpt_writer_create(lf_ckpt_writer **out, const lf_ckpt_tensor *tensors, size_t n,
                          const lf_ckpt_options *o, lf_err *err);
/* Begins a save. It first waits for the previous save; when that failed, its failure is returned
 * and this save is not begun. Then it copies the tensors and starts writing to the new directory
 * dir, whose parents are made. Remains of a save without manifest are removed first. LF_EEXIST: dir
 * holds a checkpoint, or anything that is not part of one. state is a borrowed JSON object with an
 * integer "step"; it cannot hold NaN or infinity. Its members LF_CKPT_ENDED (engine/train/early.h)
 * and LF_CKPT_IMPATIENT (engine/train/best.h) enter the manifest too. */
#define LF_CKPT_ENDED     "ended"
#define LF_CKPT_IMPATIENT "out_of_patience"
int lf_ckpt_save_begin(lf_ckpt_writer *w, const char *dir, const json_t *state, lf_err *err);
/* Waits for the current save, if any, and returns its outcome once: 1 when it has completed, 0 when
 * there was none, negative when it failed. out (may be NULL) is set on 1. */
int lf_ckpt_save_wait(lf_ckpt_writer *w, lf_ckpt_result *out, lf_err *err);
/* Would lf_ckpt_save_wait return at once? true also when there is no save. */
bool lf_ckpt_save_idle(lf_ckpt_writer *w);
/* Waits for the current save. A failure that lf_ckpt_save_wait has not returned is lost. w may be
 * NULL. */
void lf_ckpt_writer_destroy(lf_ckpt_writer *w);

/* ---- reading ---- */

typedef struct lf_ckpt lf_ckpt;

typedef struct lf_ckpt_entry {
    const char *name, *kind;
    enum lf_h5_type dtype;
    int ndim;
    int64_t shape[LF_CKPT_MAX_DIMS];
} lf_ckpt_entry;

/* Opens the checkpoint in dir and checks all of it: lengths, the tree hash of every file, and the
 * pieces against the HDF5 structure of each file. LF_ENOENT: there is no checkpoint. LF_EFORMAT:
 * the message names the damaged file, and the tensor where it is known. `threads` threads hash; 0
 * means all processors. */
int lf_ckpt_open(lf_ckpt **out, const char *dir, int threads, lf_err *err);
void lf_ckpt_close(lf_ckpt *c);
size_t lf_ckpt_n_entries(const lf_ckpt *c);
/* borrowed; sorted by kind, name */
const lf_ckpt_entry *lf_ckpt_entry_at(const lf_ckpt *c, size_t i);
/* NULL: none */
const lf_ckpt_entry *lf_ckpt_find(const lf_ckpt *c, const char *name, const char *kind);
/* Reads elements [first, first + n) of a tensor, flattened row-major, to dst, in the stored dtype.
 * Thread-safe. */
int lf_ckpt_read_flat(const lf_ckpt *c, const lf_ckpt_entry *e, int64_t first, int64_t n, void *dst,
                      lf_err *err);
/* the tree hash of the tensor's bytes [LF_HASH_BYTES], borrowed */
const uint8_t *lf_ckpt_tensor_hash(const lf_ckpt_entry *e);
/* Reads the box [lo, hi) of a tensor to dst, row-major, in the stored dtype. lo = hi = NULL reads
 * all of it. Thread-safe. */
int lf_ckpt_read(const lf_ckpt *c, const lf_ckpt_entry *e, const int64_t *lo, const int64_t *hi,
                 void *dst, lf_err *err);
json_t *lf_ckpt_state(const lf_ckpt *c);           /* borrowed */
const uint8_t *lf_ckpt_identity(const lf_ckpt *c); /* [LF_HASH_BYTES], borrowed */
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
