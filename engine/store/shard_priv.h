/* SPDX-License-Identifier: Apache-2.0
 *
 * What a shard may hold besides tokens and documents (shard_parts.c): the loss mask, and sequences inside documents.
 */
#ifndef LF_STORE_SHARD_PRIV_H
#define LF_STORE_SHARD_PRIV_H

#include "engine/store/h5.h"
#include "engine/store/shard.h"

/* While it is written. Nothing is kept for data that has neither. */
struct lf_shard_extra {
    bool any_mask, any_seqs, any_modes;
    uint8_t *mask; /* bits of the tokens so far; those of documents before the first mask are 1 */
    size_t mask_bytes;
    uint64_t *doc_seqs;  /* [n_docs + 1] */
    uint64_t *seq_first; /* [n_seqs] */
    int8_t *modes;       /* [n_seqs] */
    size_t n_docs, n_seqs, cap_docs, cap_seqs, cap_modes;
};
/* Take document number n_docs, which begins at n_tokens; offsets[n_docs + 1] are those of the ones before. */
int lf_shard_extra_add(struct lf_shard_extra *x, const lf_shard_doc *d, const uint64_t *offsets, size_t n_docs,
                       uint64_t n_tokens, lf_err *err);
int lf_shard_extra_put(struct lf_shard_extra *x, lf_h5 *f, uint64_t n_tokens, lf_err *err);
void lf_shard_extra_fini(struct lf_shard_extra *x);

/* As read. */
struct lf_shard_parts {
    uint8_t *mask;
    uint64_t *rank; /* [n_tokens / LF_SHARD_RANK + 1] set bits before each block */
    uint64_t *doc_seqs, *seq_offsets, n_seqs;
    int8_t *modes;
};
#define LF_SHARD_RANK 4096 /* tokens of a block */
int lf_shard_parts_rank(struct lf_shard_parts *p, uint64_t n_tokens, lf_err *err);
int lf_shard_parts_check(const struct lf_shard_parts *p, const uint64_t *offsets, uint64_t n_docs, const char *path,
                         lf_err *err);
void lf_shard_parts_fini(struct lf_shard_parts *p);
const struct lf_shard_parts *lf_shard_get_parts(const lf_shard *s);

#endif
