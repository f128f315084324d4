/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints: an artifact of kind "checkpoint" (base/artifact.h).
 *
 *   data-NNNNN.h5   tensors as contiguous datasets /<kind>/<name>, e.g. /weight/model/embed.weight
 *   index.h5        only with several data files: every global tensor as a virtual dataset, for
 *                   other tools
 *   state.json      what is no tensor: cursor, RNG, schedule, step, fingerprint; kept exactly
 *                   (reals with 17 digits)
 *   manifest.json   files, and meta = {"identity", "step",
 *                     "tensors":[{"name","kind","dtype","shape","sha256",
 *                       "pieces":[{"file","offset","lo","hi","flat"}]}]}   sorted by kind, name
 *
 * A piece is the elements [flat[0], flat[1]) of the row-major flattened box lo..hi of the global
 * tensor, at byte `offset` of `file`; the pieces of a tensor tile it, those of one box following
 * each other. A tensor of several pieces has the datasets /pieces/<kind>/<name>/NNNNN instead of
 * one of its own. Readers ask for boxes of global tensors, so another layout reads other ranges of
 * the same files.
 *
 * Identity: SHA-256 over "lf-ckpt-1" and, in (kind, name) order, each tensor's name, kind, dtype,
 * shape and the tree hash of its row-major bytes. It does not depend on the layout of the files,
 * nor on state.json.
 *
 * Crash states: (1) no directory, (2) directory without manifest = not there, (3) manifest =
 * complete and durable. Removing goes (3) -> (2) -> (1). A save never touches another checkpoint.
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
    /* Instead of data, for models larger than memory: elements [first, first + n) of the tensor, in
     * its dtype, into dst. Each element is asked for once, in blocks of at most 4 MiB, by several
     * threads at a time. */
    int (*fill)(void *user, int64_t first, int64_t n, void *dst, lf_err *err);
    void *user;
    /* data is memory of a device: fetch copies it to the host, on the thread of lf_ckpt_save_begin.
     * Needs an arena. */
    int (*fetch)(void *user, void *dst, const void *src, size_t bytes, lf_err *err);
} lf_ckpt_tensor;

typedef struct lf_ckpt_writer lf_ckpt_writer;

typedef struct lf_ckpt_result {
    uint8_t identity[LF_HASH_BYTES];
    int64_t bytes;        /* of all files */
    int64_t reused_bytes; /* of tensors that an earlier save had written */
    double snapshot_s;    /* the caller was held up */
    double write_s;       /* in the background */
} lf_ckpt_result;

/* Bytes of host memory a snapshot of these tensors needs (SIZE_MAX on overflow). */
size_t lf_ckpt_snapshot_bytes(const lf_ckpt_tensor *tensors, size_t n);

typedef struct lf_ckpt_options {
    /* snapshot memory of lf_ckpt_snapshot_bytes(), borrowed until destroy; NULL: no snapshot,
     * and lf_ckpt_save_begin returns only when everything is durable */
    void *arena;
    int threads;         /* that write and hash; 0 = 1 */
    int64_t file_bytes;  /* a data file is closed above this; 0 = one file */
    int64_t piece_bytes; /* a tensor is cut into pieces of at most this; 0 = never */
    /* For long saves with fill (no arena): what such a save had written when it was killed or
     * stopped (LF_EINTR of fill) is not asked for again. The key says what the bytes are a function
     * of. Borrowed until destroy. */
    lf_resume resume;
} lf_ckpt_options;

/* The tensors and their memory stay the caller's and must stay where they are; names are copied.
 * Tensors with fill are written without a snapshot: LF_EINVAL together with an arena. */
int lf_ckpt_writer_create(lf_ckpt_writer **out, const lf_ckpt_tensor *tensors, size_t n,
                          const lf_ckpt_options *o, lf_err *err);
/* Wait for the save before (its failure is returned here, and this save is not begun), copy the
 * tensors, start writing to the new directory dir (parents are made; a left-over without manifest
 * is removed first; LF_EEXIST when it holds a checkpoint or anything that is not part of one).
 * state: JSON object, borrowed, must hold an integer "step"; NaN and infinity cannot be in it. */
int lf_ckpt_save_begin(lf_ckpt_writer *w, const char *dir, const json_t *state, lf_err *err);
/* Wait for the save under way, if any; deliver its outcome once. out (may be NULL) is set when one
 * has completed: returns 1 then, 0 when there was nothing to wait for, negative when the save
 * failed. */
int lf_ckpt_save_wait(lf_ckpt_writer *w, lf_ckpt_result *out, lf_err *err);
/* Has the save under way ended (so that wait would not block)? true when there is none. */
bool lf_ckpt_save_idle(lf_ckpt_writer *w);
/* Waits; a failure nobody asked for is lost, so call lf_ckpt_save_wait first. destroy(NULL) is
 * legal. */
void lf_ckpt_writer_destroy(lf_ckpt_writer *w);

/* ---- reading ---- */

typedef struct lf_ckpt lf_ckpt;

typedef struct lf_ckpt_entry {
    const char *name, *kind;
    enum lf_h5_type dtype;
    int ndim;
    int64_t shape[LF_CKPT_MAX_DIMS];
} lf_ckpt_entry;

/* Open the checkpoint in dir and check it in full: lengths, the tree hash of every file, pieces
 * against each file's HDF5 structure. LF_ENOENT: no checkpoint there; LF_EFORMAT names the file
 * (and the tensor) that is damaged. threads: for hashing; 0 = all processors. */
int lf_ckpt_open(lf_ckpt **out, const char *dir, int threads, lf_err *err);
void lf_ckpt_close(lf_ckpt *c);
size_t lf_ckpt_n_entries(const lf_ckpt *c);
/* borrowed; sorted by kind, name */
const lf_ckpt_entry *lf_ckpt_entry_at(const lf_ckpt *c, size_t i);
/* NULL: none */
const lf_ckpt_entry *lf_ckpt_find(const lf_ckpt *c, const char *name, const char *kind);
/* Elements [first, first + n) of a tensor, flattened row-major, into dst, in the stored dtype.
 * Thread-safe. */
int lf_ckpt_read_flat(const lf_ckpt *c, const lf_ckpt_entry *e, int64_t first, int64_t n, void *dst,
                      lf_err *err);
/* tree hash of its bytes [LF_HASH_BYTES], borrowed */
const uint8_t *lf_ckpt_tensor_hash(const lf_ckpt_entry *e);
/* The box [lo, hi) of a tensor into dst, row-major, in the stored dtype; lo = hi = NULL: all of it.
 * Thread-safe. */
int lf_ckpt_read(const lf_ckpt *c, const lf_ckpt_entry *e, const int64_t *lo, const int64_t *hi,
                 void *dst, lf_err *err);
json_t *lf_ckpt_state(const lf_ckpt *c);           /* borrowed */
const uint8_t *lf_ckpt_identity(const lf_ckpt *c); /* [LF_HASH_BYTES], borrowed */
int64_t lf_ckpt_step(const lf_ckpt *c);
const char *lf_ckpt_dir(const lf_ckpt *c); /* borrowed */

/* ---- directories of checkpoints ---- */

/* OUT/checkpoints/step-NNNNNNNN as an owned string. */
char *lf_ckpt_step_dir(const char *out_dir, int64_t step, lf_err *err);

typedef void (*lf_ckpt_report)(void *user, const char *dir, const char *text);

struct lf_ckpt_search {
    const char *const *out_dirs;
    size_t n;
    int64_t max_step; /* < 0: no bound */
    lf_ckpt_report report;
    void *user; /* of report */
};

/* The complete checkpoint with the greatest step among the `checkpoints` directories (and
 * `checkpoint`, the final one) of out_dirs; on equal steps the later directory wins. Incomplete
 * ones are skipped; broken ones (bad manifest, purged, wrong length) are skipped and told to
 * report. One that could not be looked at (LF_EIO and the like) ends the search with that error: it
 * may be whole, and going back behind it would lose its steps. *dir is owned, or NULL when there is
 * none. Hashes are checked by lf_ckpt_open later, so on its LF_EFORMAT call this again with
 * max_step one below. */
int lf_ckpt_find_newest(char **dir, int64_t *step, const struct lf_ckpt_search *s, lf_err *err);

/* Delete checkpoints of out_dir/checkpoints except the keep_last newest and those whose step is a
 * multiple of keep_every (0: none). Never deletes the newest complete one. Left-overs without
 * manifest older than the newest are removed. */
int lf_ckpt_retain(const char *out_dir, int keep_last, int64_t keep_every, lf_err *err);

#endif
