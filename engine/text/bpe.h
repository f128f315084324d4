/* SPDX-License-Identifier: Apache-2.0
 *
 * The BPE model: bytes of one word -> ids. Merging repeats "merge the pair with the lowest rank, leftmost first", as
 * the tokenizers library does; short words by scanning, long ones with a heap in O(n log n). A word cache in the
 * caller's lf_bpe_state makes repeated words cost one look-up; it is bounded and never changes a result.
 */
#ifndef LF_TEXT_BPE_H
#define LF_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/text/tokenizer.h"

/* One merge of the table: open addressing on key = left id << 32 | right id; LF_BPE_EMPTY marks a free slot. */
#define LF_BPE_EMPTY UINT64_MAX
typedef struct lf_bpe_merge {
    uint64_t key;
    uint32_t rank;
    uint32_t id;
} lf_bpe_merge;

/* Whole-word look-up for ignore_merges: bytes -> id. */
typedef struct lf_bpe_word {
    const uint8_t *bytes; /* NULL: free slot */
    uint32_t len;
    uint32_t id;
} lf_bpe_word;

typedef struct lf_bpe {
    lf_bpe_merge *merges; /* owned, power of two slots */
    size_t merge_mask;
    lf_bpe_word *words; /* owned, NULL unless ignore_merges; bytes borrowed */
    size_t word_mask;
    int32_t byte_id[256]; /* -1: the vocabulary lacks that byte */
    int64_t unk;          /* id for such bytes, -1: they are an error */
    bool fuse_unk;
} lf_bpe;

/* Room for n merges; add in rank order (a later one for the same pair replaces the earlier). */
int lf_bpe_init(lf_bpe *b, size_t n_merges, lf_err *err);
void lf_bpe_add_merge(lf_bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);
int lf_bpe_init_words(lf_bpe *b, size_t n_words, lf_err *err);
void lf_bpe_add_word(lf_bpe *b, const uint8_t *bytes, uint32_t len, uint32_t id);
void lf_bpe_fini(lf_bpe *b);

typedef struct lf_bpe_state lf_bpe_state; /* one thread's cache and scratch */
lf_bpe_state *lf_bpe_state_create(lf_err *err);
void lf_bpe_state_destroy(lf_bpe_state *s);

/* Append the ids of one word (n >= 1 bytes of valid UTF-8). `end` is the end of readable memory behind the word. */
int lf_bpe_encode(const lf_bpe *b, lf_bpe_state *s, const uint8_t *word, size_t n, const uint8_t *end, bool cache,
                  lf_ids *out, lf_err *err);

uint64_t lf_bpe_hash(const uint8_t *p, size_t n);

#endif
