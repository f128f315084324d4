/* SPDX-License-Identifier: Apache-2.0
 *
 * Training of a byte-level BPE tokenizer. The result is a function of the word counts alone: not of
 * threads, of the order of documents or of hashing. Merges and vocabulary equal those of the
 * tokenizers library's BpeTrainer with initial_alphabet = ByteLevel.alphabet(): the pair with the
 * highest count is merged next, ties go to the smaller pair of ids; ids are special tokens, the 256
 * bytes in order of their characters, then merges. (The library counts pairs in 32 bits and wraps;
 * here they are 64.)
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
    uint64_t min_frequency; /* a pair seen less often is not merged; 0 and 1 are the same */
} lf_bpe_train_args;

/* The tokenizer with the pattern and normaliser but no merges, which cuts text into words; returns
 * owned. */
lf_tokenizer *lf_bpe_train_cutter(const lf_bpe_train_args *a, lf_err *err);

/* Words and how often they were seen; one for each thread, summed by lf_bpe_train. */
typedef struct lf_word_counts lf_word_counts;
lf_word_counts *lf_word_counts_create(lf_err *err);
void lf_word_counts_destroy(lf_word_counts *w);
/* Count the words of a text; s is a state of the cutter, used by this thread only. */
int lf_word_counts_text(lf_word_counts *w, lf_tok_state *s, const char *text, size_t len,
                        unsigned flags, uint64_t *replaced, lf_err *err);
size_t lf_word_counts_size(const lf_word_counts *w);
/* Add from's counts to w. */
int lf_word_counts_merge(lf_word_counts *w, const lf_word_counts *from, lf_err *err);

/* As bytes, to be added to the counts of another process of this machine type. */
int lf_word_counts_pack(const lf_word_counts *w, lf_buf *out, lf_err *err);
int lf_word_counts_unpack(lf_word_counts *w, const char *data, size_t len, lf_err *err);

/* Called now and then with the merges found so far; a negative return ends training with it. */
typedef int (*lf_bpe_progress_fn)(void *arg, size_t done, size_t total);

/* Train and write a tokenizer.json into json (appended). *n_vocab (may be NULL): tokens in it,
 * fewer than vocab_size when the text has no more pairs. */
int lf_bpe_train(const lf_bpe_train_args *a, const lf_word_counts *words, lf_bpe_progress_fn fn,
                 void *arg, lf_buf *json, size_t *n_vocab, lf_err *err);

#endif
