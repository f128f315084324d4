/* SPDX-License-Identifier: Apache-2.0
 *
 * Features: what an encoder of pictures says about each picture of some shards, computed once, so
 * that training with a frozen encoder reads them in place of running it. One HDF5 file:
 *
 *   sha256      u8 [32 k]            of the file of picture i
 *   grid        i32 [4 k]            tiles, rows and columns of patches of a tile, and 1 where the
 *                                    picture is alone in its document, which some processors ask
 *   offsets     u64 [k + 1]          picture i is rows [offsets[i], offsets[i + 1])
 *   rows        f32 or bf16 [n, W]   tile by tile, in the encoder's order; W = (1 + taps) C: its
 *                                    output, then that of each tap (Qwen3-VL), C wide each
 *   attributes  lf_format = "lf-features-1"; encoder_sha256 (lf_encoder_identity) and
 *               processor_sha256 (lf_loader_media_source), 64 hex each; precision "f32", "bf16" or
 *               "fp16", in which it was computed. fp16 is stored as f32, the others as themselves:
 *               no bit is lost
 *
 * A set is the `features` artifact: a directory of such files with a manifest. A picture is found
 * by its file's hash and its grid, so a set serves any shards with the same pictures and the same
 * processor. Files are not trusted: structure and lengths are checked at open. After open there is
 * no HDF5 call and no allocation; reads are preads, from any number of threads.
 */
#ifndef LF_STORE_FEATURES_H
#define LF_STORE_FEATURES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/hash.h"
#include "engine/store/h5.h"

#define LF_FEATURES_FORMAT "lf-features-1"

struct lf_features_key {
    uint8_t sha256[LF_HASH_BYTES];
    int32_t tiles, grid_h, grid_w, alone;
};

/* ---- keys in order, each once ---- */

struct lf_features_keys {
    struct lf_features_key *v;
    size_t n, cap;
    uint32_t *slot; /* [n_slots], a power of 2; 0: empty, else key + 1 */
    size_t n_slots;
};
/* Returns the number of the key, or LF_ENOENT. */
int64_t lf_features_find(const struct lf_features_keys *k, const struct lf_features_key *key);
/* Adds it where it is new. Returns its number, or a negative lf_rc. */
int64_t lf_features_add(struct lf_features_keys *k, const struct lf_features_key *key, lf_err *err);
void lf_features_keys_fini(struct lf_features_keys *k);

/* ---- one file ---- */

struct lf_features_info {
    char encoder_sha256[LF_HASH_HEX], processor_sha256[LF_HASH_HEX];
    char precision[8];
    int64_t width; /* W */
};
/* The type in which rows of this precision are stored. LF_EINVAL: there is no such precision. */
int lf_features_type(enum lf_h5_type *out, const char *precision, lf_err *err);

typedef struct lf_features_writer lf_features_writer;
struct lf_features_stat {
    int64_t bytes;
    uint8_t sha256[LF_HASH_BYTES]; /* tree hash */
};
/* Creates the file of these pictures; class_rows: rows of a tile beside those of its patches. The
 * bytes of a file depend on info, keys and rows alone. LF_EEXIST: path exists. */
int lf_features_create(lf_features_writer **out, const char *path,
                       const struct lf_features_info *info, const struct lf_features_keys *keys,
                       int class_rows, lf_err *err);
/* What a file of these pictures takes; row_bytes: of a row as it is stored. */
int64_t lf_features_bytes(const struct lf_features_keys *keys, size_t row_bytes, int class_rows);
/* Writes the rows of picture i, as they are stored. Each picture is written once, in any order. */
int lf_features_put(const lf_features_writer *w, size_t i, const void *rows, lf_err *err);
/* Completes, fsyncs and hashes the file, and frees w in every case. */
int lf_features_finish(lf_features_writer *w, struct lf_features_stat *stat, lf_err *err);
/* Unlinks the file and frees w, which may be NULL. */
void lf_features_abort(lf_features_writer *w);

/* ---- sets ---- */

typedef struct lf_features lf_features;
/* Opens the files of n artifacts, which agree on info. LF_ENOENT: there is no such artifact.
 * LF_EFORMAT: a file has another length than its manifest says, or does not hold what it says. */
int lf_features_open(lf_features **out, const char *const *dirs, size_t n, lf_err *err);
void lf_features_close(lf_features *f); /* NULL is fine */
const struct lf_features_info *lf_features_get_info(const lf_features *f);
/* The rows of a picture; LF_ENOENT: it has none. *number is for lf_features_read. */
int64_t lf_features_rows(const lf_features *f, const struct lf_features_key *key, size_t *number);
/* Reads them as they are stored. Thread-safe. */
int lf_features_read(const lf_features *f, size_t number, void *dst, lf_err *err);

#endif
