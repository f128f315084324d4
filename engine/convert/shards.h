/* SPDX-License-Identifier: Apache-2.0
 *
 * Import and export of tokenized data: Megatron-LM's .idx/.bin (store/megatron_data.h) to a
 * `shards` artifact and back, byte for byte. dtype, documents of several sequences and modes are
 * kept. Data streams: memory is the index and the longest document. The result becomes an artifact
 * when its manifest is linked, last. Parts that a killed conversion left are made again.
 */
#ifndef LF_CONVERT_SHARDS_H
#define LF_CONVERT_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"

struct lf_shards_opts {
    const char *from; /* NAME.idx, or a shards artifact */
    const char *out;  /* the new artifact: a new directory, or one without a manifest */
    /* import: the tokenizer of the data */
    const char *tokenizer_sha256; /* 64 hex; NULL: unknown (zeros are written) */
    int64_t vocab_size;           /* ids are below it */
    int64_t eod_id;               /* eos_id of the shards; -1: none */
    /* append eod_id to documents that do not end with it; needs eod_id >= 0 */
    bool append_eod;
    uint64_t shard_tokens; /* a shard ends when it has this many tokens */
    bool (*stop)(void);
    void (*warn)(void *arg, const char *text);
    void *arg;
};

struct lf_shards_result {
    uint64_t docs, seqs, tokens;
    uint64_t appended; /* end-of-document tokens that were added */
};

/* Converts .idx to shards, all in the split "train". LF_EFORMAT: an id is invalid or not below
 * vocab_size. LF_EINTR: stop() returned true; nothing is published. */
int lf_convert_shards_import(const struct lf_shards_opts *o, struct lf_shards_result *res,
                             lf_err *err);
/* Converts shards to SPLIT.bin and SPLIT.idx for every split, an artifact of kind "megatron". The
 * dtype is that of the original data, or Megatron's choice for the vocabulary. LF_ENOTSUP: the
 * shards have a loss mask, which the format cannot hold. */
int lf_convert_shards_export(const struct lf_shards_opts *o, struct lf_shards_result *res,
                             lf_err *err);

#endif
