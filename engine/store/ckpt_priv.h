/* SPDX-License-Identifier: Apache-2.0
 *
 * What the writer and the reader of checkpoints share: the description of tensors and pieces, its
 * JSON form, the identity.
 */
#ifndef LF_STORE_CKPT_PRIV_H
#define LF_STORE_CKPT_PRIV_H

#include "engine/store/ckpt.h"

#define LF_CKPT_KIND        "checkpoint"
#define LF_CKPT_STATE       "state.json"
#define LF_CKPT_INDEX       "index.h5"
#define LF_CKPT_STRUCTURE   "structure.h5" /* a temporary file */
#define LF_CKPT_MAX_TENSORS 1000000
#define LF_CKPT_MAX_PIECES  10000000
#define LF_CKPT_MAX_STATE   ((size_t)64 << 20)

struct lf_ckpt_piece {
    char *file; /* relative to the checkpoint */
    int64_t offset;
    int64_t lo[LF_CKPT_MAX_DIMS], hi[LF_CKPT_MAX_DIMS];
    int64_t flat[2];
};

struct lf_ckpt_rec {
    lf_ckpt_entry e; /* its name and kind point to the two below */
    char *name, *kind;
    uint64_t n_elems;
    uint8_t sha256[LF_HASH_BYTES]; /* tree hash of the row-major bytes */
    struct lf_ckpt_piece *pieces;
    size_t n_pieces;
};

struct lf_ckpt_meta {
    struct lf_ckpt_rec *recs; /* sorted by kind, name */
    size_t n_recs;
    int64_t step;
    uint8_t identity[LF_HASH_BYTES];
};

/* Checks name, kind, type and shape. *n_elems becomes the product of the shape; the bytes of the
 * tensor fit in int64_t. */
int lf_ckpt_check_entry(const lf_ckpt_entry *e, uint64_t *n_elems, lf_err *err);
int lf_ckpt_cmp(const lf_ckpt_entry *a, const lf_ckpt_entry *b); /* by kind, then name */
/* Checks that the pieces tile the tensor. */
int lf_ckpt_check_pieces(const struct lf_ckpt_rec *r, lf_err *err);
int lf_ckpt_make_identity(const struct lf_ckpt_meta *m, uint8_t out[LF_HASH_BYTES], lf_err *err);
/* Writes *m to the meta object of an artifact. lf_ckpt_meta_load reads it back, checks it and
 * computes the identity again. */
int lf_ckpt_meta_store(const struct lf_ckpt_meta *m, json_t *o, lf_err *err);
int lf_ckpt_meta_load(struct lf_ckpt_meta *out, json_t *o, lf_err *err);
void lf_ckpt_meta_fini(struct lf_ckpt_meta *m);
/* Returns the name of the dataset of piece i of a tensor; the caller frees it. */
char *lf_ckpt_dataset_name(const struct lf_ckpt_rec *r, size_t i, lf_err *err);
/* Writes dir/index.h5. */
int lf_ckpt_make_index(const struct lf_ckpt_meta *m, const char *dir, lf_err *err);
/* Removes what an interrupted save left in dir. LF_EEXIST: dir holds a manifest or foreign
 * files. */
int lf_ckpt_clean(const char *dir, lf_err *err);

#endif
