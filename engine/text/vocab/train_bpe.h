/* SPDX-License-Identifier: Apache-2.0
 *
 * Training of a byte-level BPE tokenizer. The result depends on the word counts alone, and not on
 * threads, the order of documents or hashing. Merges and vocabulary equal those of the tokenizers
 * library's BpeTrainer with initial_alphabet = ByteLevel.alphabet(). The pair with the highest
 * count is merged next; on a tie the smaller pair of ids. Ids are the special tokens, then the 256
 * bytes in the order of their characters, then the merges. (The library counts pairs in 32 bits,
 * which wrap; this code counts in 64.)
 */
#ifndef LF_TEXT_TRAIN_BPE_H
#define LF_TEXT_TRAIN_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "engine/text/token/tokenizer.h"

enum lf_bpe_pattern { LF_BPE_LLAMA3, LF_BPE_GPT2, LF_BPE_QWEN2 };
enum lf_bpe_normalizer { LF_BPE_NONE, LF_BPE_NFC, LF_BPE_NFKC };

typedef struct lf_bpe_train_args {
    enum lf_bpe_pattern pattern;
    enum lf_bpe_normalizer normalizer;
    const char *const *specials;
    size_t n_specials;
    size_t vocab_size;      /* special tokens and bytes included; at least 256 + n_specials */
    uint64_t min_frequency; /* a rarer pair is not merged; 0 and 1 are the same */
} lf_bpe_train_args;

/* Returns a tokenizer with the pattern and the normaliser and without merges, which cuts text into
 * words. The caller owns it. */
lf_tokenizer *lf_bpe_train_cutter(const lf_bpe_train_args *a, lf_err *err);

/* Words and their counts, one object for each thread. */
typedef struct lf_word_counts lf_word_counts;
lf_word_counts *lf_word_counts_create(lf_err *err);
void lf_word_counts_destroy(lf_word_counts *w);
/* Counts the words of a text. s is a state of the cutter that only this thread uses. */
int lf_word_counts_text(lf_word_counts *w, lf_tok_state *s, const char *text, size_t len,
                        unsigned flags, uint64_t *replaced, lf_err *err);
size_t lf_word_counts_size(const lf_word_counts *w);
/* Adds the counts of from to w. */
int lf_word_counts_merge(lf_word_counts *w, const lf_word_counts *from, lf_err *err);

/* Writes the counts as bytes, which another process on the same type of machine adds to its
 * counts. */
int lf_word_counts_pack(const lf_word_counts *w, lf_buf *out, lf_err *err);
int lf_word_counts_unpack(lf_word_counts *w, const char *data, size_t len, lf_err *err);

/* Called now and then with the number of merges so far. A negative return ends training with that
 * code. */
typedef int (*lf_bpe_progress_fn)(void *arg, size_t done, size_t total);

/* Trains a tokenizer and appends its tokenizer.json to json. *n_vocab (may be NULL) becomes its
 * number of tokens, below vocab_size when the text has too few pairs. */
int lf_bpe_train(const lf_bpe_train_args *a, const lf_word_counts *words, lf_bpe_progress_fn fn,
                 void *arg, lf_buf *json, size_t *n_vocab, lf_err *err);

#endif
