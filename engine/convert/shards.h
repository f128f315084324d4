/* SPDX-License-Identifier: Apache-2.0
 *
 * Tokenized data of other programs in and out: Megatron-LM's .idx/.bin (store/megatron_data.h) to a
 * `shards` artifact and back, byte for byte: dtype, documents of several sequences and modes are
 * kept. Streams: memory is the index and the longest document. What is made becomes an artifact
 * when its manifest is linked, last; what a killed run left is made again.
 */
#ifndef LF_CONVERT_SHARDS_H
#define LF_CONVERT_SHARDS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"

struct lf_shards_opts {
    const char *from; /* NAME.idx, or a shards artifact */
    const char *out;  /* the artifact that is made: new, or without a manifest */
    /* import: what the data was made with */
    const char *tokenizer_sha256; /* 64 hex; NULL: not known (zeros are written) */
    int64_t vocab_size;           /* ids are below it */
    int64_t eod_id;               /* the shards' eos_id; -1: none */
    bool append_eod;              /* end documents with eod_id that do not; needs eod_id >= 0 */
    uint64_t shard_tokens;        /* a shard is closed when it has this many */
    bool (*stop)(void);
    void (*warn)(void *arg, const char *text);
    void *arg;
};

struct lf_shards_result {
    uint64_t docs, seqs, tokens;
    uint64_t appended; /* end-of-document tokens that were added */
};

/* .idx to shards, all in the split "train". LF_EFORMAT: an id that is none or is not below
 * vocab_size. LF_EINTR: stop() said so; nothing is published then. */
int lf_convert_shards_import(const struct lf_shards_opts *o, struct lf_shards_result *res,
                             lf_err *err);
/* Shards to SPLIT.bin and SPLIT.idx for every split, an artifact of kind "megatron". The dtype is
 * the one the data came with, or Megatron's choice for the vocabulary. LF_ENOTSUP: a loss mask,
 * which the format has no place for. */
int lf_convert_shards_export(const struct lf_shards_opts *o, struct lf_shards_result *res,
                             lf_err *err);

#endif
