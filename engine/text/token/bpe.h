/* SPDX-License-Identifier: Apache-2.0
 *
 * The BPE model turns the bytes of one word into ids. It merges the pair with the lowest rank,
 * leftmost first, and repeats, as the tokenizers and sentencepiece libraries do. Short words are
 * scanned; long ones take a heap and O(n log n). A word cache in the caller's lf_bpe_state makes a
 * repeated word cost one look-up. The cache is bounded and never changes a result.
 *
 * The first symbols are bytes (byte-level BPE) or characters (lf_bpe_chars: SentencePiece's kind,
 * with byte fallback). A text of characters is first cut between any two characters that no merge
 * could join (`pairs`). What lies between two cuts does not depend on the rest, so a whole line is
 * as cheap as its words.
 */
#ifndef LF_TEXT_BPE_H
#define LF_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/text/token/tokenizer.h"
#include "engine/text/token/vtrie.h"

/* One merge of the table: open addressing on key = left id << 32 | right id; LF_BPE_EMPTY marks a
 * free slot. */
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

/* Characters as first symbols. */
typedef struct lf_bpe_chars {
    int32_t ascii[128]; /* id of the character, -1 none */
    struct lf_bpe_char {
        uint32_t c; /* 0: free */
        int32_t id;
    } * others; /* owned, power of two */
    size_t mask;
    bool cut; /* pairs may be used */
    /* owned: a set of hashed character pairs; it holds every pair that a merge joins, and perhaps
     * more */
    uint64_t *pairs;
    size_t pair_mask; /* bits - 1 */
    bool ascii_pairs[128][128];
    bool fallback;         /* every byte has a token: unknown characters become bytes */
    int32_t byte_tok[256]; /* -1 none */
    bool fuse_unk;         /* runs of unk in a word become one */
    /* owned, NULL none: prefix of symbols behind the first, suffix of the last */
    char *prefix, *suffix;
    const lf_vtrie *user; /* borrowed, NULL none: texts that are one symbol and never merge */
    /* owned: code points of symbols without a token, which have the ids first_phantom, .. */
    uint32_t *phantom;
    uint32_t first_phantom, n_phantom;
    /* owned, [first_phantom], NULL none: tokens that are split again at the end */
    uint8_t *unused;
} lf_bpe_chars;

typedef struct lf_bpe {
    lf_bpe_merge *merges; /* owned, power of two slots */
    size_t merge_mask;
    lf_bpe_word *words; /* owned, NULL unless ignore_merges or affixes; bytes borrowed */
    size_t word_mask;
    int32_t byte_id[256]; /* -1: the vocabulary lacks that byte */
    int64_t unk;          /* id for such bytes, -1: they are an error */
    bool fuse_unk;
    bool ignore_merges;  /* a word that is a token is that token */
    lf_bpe_chars *chars; /* owned, NULL: byte-level */
} lf_bpe;

/* Makes room for n merges. They are added in rank order; a later one for the same pair replaces the
 * earlier one. */
int lf_bpe_init(lf_bpe *b, size_t n_merges, lf_err *err);
void lf_bpe_add_merge(lf_bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t id);
int lf_bpe_init_words(lf_bpe *b, size_t n_words, lf_err *err);
void lf_bpe_add_word(lf_bpe *b, const uint8_t *bytes, uint32_t len, uint32_t id);
void lf_bpe_fini(lf_bpe *b);

/* Makes characters the first symbols: lf_bpe_chars_init, then every token of one character is
 * added, then the pairs that merges join. */
int lf_bpe_chars_init(lf_bpe *b, size_t n_chars, size_t n_merges, lf_err *err);
void lf_bpe_add_char(lf_bpe *b, uint32_t c, int32_t id);
int32_t lf_bpe_find_char(const lf_bpe *b, uint32_t c); /* -1 none */
/* Adds the pair of the last character of a merge's left half and the first character of its right
 * half. Both are non-empty valid UTF-8. */
void lf_bpe_add_pair(lf_bpe *b, const uint8_t *left, size_t n_left, const uint8_t *right);

typedef struct lf_bpe_state lf_bpe_state; /* one thread's cache and scratch for one model */
lf_bpe_state *lf_bpe_state_create(const lf_bpe *b, lf_err *err); /* borrows b */
void lf_bpe_state_destroy(lf_bpe_state *s);

/* Appends the ids of one word of n >= 1 bytes of valid UTF-8. Memory is readable up to `end`. */
int lf_bpe_encode(lf_bpe_state *s, const uint8_t *word, size_t n, const uint8_t *end, bool cache,
                  lf_ids *out, lf_err *err);

/* For bpe.c and bpe_chars.c only. lf_bpe_char_symbols writes the first symbols of a word of
 * characters to sym, which has room for n + 1, and returns their number, negative on error.
 */
int64_t lf_bpe_char_symbols(const lf_bpe *b, const uint8_t *word, size_t n, uint32_t *sym,
                            lf_err *err);
int64_t lf_bpe_find_word(const lf_bpe *b, const uint8_t *p, size_t n); /* -1 none */
bool lf_bpe_may_join(const lf_bpe_chars *c, uint32_t left, uint32_t right);

uint64_t lf_bpe_hash(const uint8_t *p, size_t n);

#endif
