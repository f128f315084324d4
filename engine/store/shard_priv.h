/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a shard besides tokens and documents: loss mask and sequences inside documents
 * (shard_parts.c); margins, labels and other columns of rows (shard_rows.c); pictures
 * (shard_media.c, shard_media_write.c).
 */
#ifndef LF_STORE_SHARD_PRIV_H
#define LF_STORE_SHARD_PRIV_H

#include <stdio.h>

#include "engine/store/h5.h"
#include "engine/store/shard.h"

/* Mask and sequences while a shard is written. Data without them takes no memory. */
struct lf_shard_extra {
    bool any_mask, any_seqs, any_modes;
    uint8_t *mask; /* bits of the tokens so far; 1 for documents before the first one with a mask */
    size_t mask_bytes;
    uint64_t *doc_seqs;  /* [n_docs + 1] */
    uint64_t *seq_first; /* [n_seqs] */
    int8_t *modes;       /* [n_seqs] */
    size_t n_docs, n_seqs, cap_docs, cap_seqs, cap_modes;
};
/* Takes document number n_docs, which begins at token n_tokens. offsets[n_docs + 1] are those of
 * the documents before it. */
int lf_shard_extra_add(struct lf_shard_extra *x, const lf_shard_doc *d, const uint64_t *offsets,
                       size_t n_docs, uint64_t n_tokens, lf_err *err);
int lf_shard_extra_put(struct lf_shard_extra *x, lf_h5 *f, uint64_t n_tokens, lf_err *err);
void lf_shard_extra_fini(struct lf_shard_extra *x);

/* Margins, labels and other columns while a shard is written. */
struct lf_shard_rows {
    bool any_margin;
    float *margin;         /* [n_docs / 2], rounded up */
    uint8_t *label;        /* [n_docs] */
    uint64_t *rest_offset; /* [n_docs + 1] */
    char *rest;
    size_t cap_margin, cap_label, cap_offset, cap_rest;
};
/* Takes document number `doc`. */
int lf_shard_rows_add(struct lf_shard_rows *x, enum lf_rows rows, const lf_shard_doc *d, size_t doc,
                      lf_err *err);
int lf_shard_rows_put(const struct lf_shard_rows *x, enum lf_rows rows, lf_h5 *f, size_t n_docs,
                      lf_err *err);
void lf_shard_rows_fini(struct lf_shard_rows *x);

/* Pictures while a shard is written. Their bytes wait in a file without a name, because HDF5 takes
 * a list whose length is known. */
struct lf_shard_pics {
    const char *beside;  /* the shard's path; borrowed */
    FILE *bytes;         /* NULL: no picture yet */
    uint64_t *doc_media; /* [n_docs + 1] */
    uint32_t *use, *place;
    int32_t *grid;
    uint64_t *offset; /* [n + 1] */
    uint8_t *kind, *sha;
    uint32_t *wh;
    uint32_t *slot; /* [n_slots], a power of 2: hash table over sha; 0: empty, else picture + 1 */
    size_t n, n_uses, n_slots;
    size_t cap_docs, cap_use, cap_place, cap_grid, cap_offset, cap_kind, cap_sha, cap_wh;
};
/* Takes the pictures of document number n_docs, which has n_tokens tokens. */
int lf_shard_pics_add(struct lf_shard_pics *x, const lf_shard_doc *d, size_t n_docs, lf_err *err);
/* Makes the datasets. *at becomes where the bytes go in the file once it is closed. */
int lf_shard_pics_put(struct lf_shard_pics *x, lf_h5 *f, size_t n_docs, uint64_t *at, lf_err *err);
int lf_shard_pics_copy(struct lf_shard_pics *x, const char *path, uint64_t at, lf_err *err);
void lf_shard_pics_fini(struct lf_shard_pics *x);
int lf_shard_pics_attrs(const lf_shard_info *info, lf_h5 *f, lf_err *err);

/* Pictures of a shard that is read. */
struct lf_shard_media {
    uint64_t *doc_media, *offset, n, n_uses;
    uint32_t *use, *place, *wh;
    int32_t *grid;
    uint8_t *kind, *sha;
    lf_h5_dataset bytes;
};
int lf_shard_media_attrs(lf_shard_info *info, char *owned[2], const char *path, lf_h5 *f,
                         lf_err *err);
int lf_shard_media_open(lf_shard *s, lf_h5 *f, lf_err *err);
void lf_shard_media_fini(struct lf_shard_media *m);
struct lf_shard_media *lf_shard_get_media(const lf_shard *s);
const char *lf_shard_path(const lf_shard *s);

/* Elements [first, first + n) of a dataset as raw bytes. */
int lf_shard_read_raw(const lf_shard *s, const lf_h5_dataset *d, uint64_t first, size_t n,
                      void *dst, lf_err *err);
/* A whole dataset of n elements in memory; its length is bounded by the file's. */
int lf_shard_read_all(const lf_shard *s, lf_h5 *f, const char *name, enum lf_h5_type type,
                      uint64_t n, void *out_ptr, lf_err *err);

/* All parts of a shard that is read. */
struct lf_shard_parts {
    uint8_t *mask;
    uint64_t *rank; /* [n_tokens / LF_SHARD_RANK + 1] set bits before each block */
    uint64_t *doc_seqs, *seq_offsets, n_seqs;
    int8_t *modes;
    float *margin;
    uint8_t *label;
    uint64_t *rest_offset;
    char *rest;
};
#define LF_SHARD_RANK 4096 /* tokens of a block */
int lf_shard_parts_rank(struct lf_shard_parts *p, uint64_t n_tokens, lf_err *err);
int lf_shard_parts_check(const struct lf_shard_parts *p, const uint64_t *offsets, uint64_t n_docs,
                         const char *path, lf_err *err);
void lf_shard_parts_fini(struct lf_shard_parts *p);
/* Parses the value of the attribute lf_rows. */
int lf_shard_rows_parse(enum lf_rows *out, const char *name, const char *path, lf_err *err);
/* Checks the values of margin, label and rest_offset as `rows` demands. */
int lf_shard_rows_check(const struct lf_shard_parts *p, enum lf_rows rows, uint64_t n_docs,
                        const char *path, lf_err *err);
const struct lf_shard_parts *lf_shard_get_parts(const lf_shard *s);

#endif
