/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a shard besides tokens and documents: loss mask and sequences inside documents
 * (shard_parts.c); margins, labels and other columns of rows (shard_rows.c).
 */
#ifndef LF_STORE_SHARD_PRIV_H
#define LF_STORE_SHARD_PRIV_H

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
