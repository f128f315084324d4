/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of the BPE trainer share: word counts (wordcount.c), merge loop
 * (train_merge.c), vocabulary (train_vocab.c), the file (train_json.c).
 */
#ifndef LF_TEXT_TRAIN_PRIV_H
#define LF_TEXT_TRAIN_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/text/vocab/train_bpe.h"

typedef struct lf_word {
    uint64_t hash;
    size_t at; /* in text */
    uint64_t count;
    uint32_t len;
} lf_word;

struct lf_word_counts {
    lf_word *v;
    size_t n, cap;
    uint8_t *text;
    size_t text_len, text_cap;
    uint32_t *slots; /* index + 1 into v, 0 free */
    size_t mask;
};

int lf_word_counts_add(lf_word_counts *w, const uint8_t *p, size_t len, uint64_t count,
                       lf_err *err);

/* The new vocabulary: texts by id, in the alphabet of the model (for byte-level BPE characters that
 * stand for bytes).
 */
typedef struct lf_vocab {
    char **text; /* owned; NULL: an id without a token */
    size_t n, cap;
    uint32_t *slots; /* id + 1, 0 free */
    size_t mask;
} lf_vocab;
int lf_vocab_init(lf_vocab *v, size_t room, lf_err *err);
void lf_vocab_fini(lf_vocab *v);
int64_t lf_vocab_find(const lf_vocab *v, const char *text); /* id or -1 */
/* Returns the id of text, which is added when it is missing; negative on error. */
int64_t lf_vocab_add(lf_vocab *v, const char *text, lf_err *err);
/* Adds the next id, for a text that is not present yet, or for no text (NULL). */
int lf_vocab_push(lf_vocab *v, const char *text, lf_err *err);

/* Words as ids of a vocabulary. Word i is sym[start[i] .. start[i] + len[i]) and occurs count[i]
 * times. */
typedef struct lf_merge_words {
    uint32_t *sym;
    size_t *start;
    uint32_t *len;
    uint64_t *count;
    size_t n;
} lf_merge_words;
int lf_merge_words_init(lf_merge_words *m, size_t n_words, size_t n_symbols, lf_err *err);
void lf_merge_words_fini(lf_merge_words *m);

typedef struct lf_trained_merge {
    uint32_t a, b;
} lf_trained_merge;

typedef struct lf_merge_args {
    size_t vocab_size;      /* tokens at the end, the present ones included */
    uint64_t min_frequency; /* rarer pairs are not merged */
    /* may a pair become this token? NULL: every pair may */
    bool (*allow)(void *ctx, const char *text);
    void *allow_ctx;
    lf_bpe_progress_fn fn; /* may be NULL */
    void *arg;
} lf_merge_args;

/* Merges pairs of the words until the vocabulary is full or no pair is left. The words change.
 * *merges is in rank order; the caller frees it. */
int lf_merge_train(lf_vocab *v, lf_merge_words *w, const lf_merge_args *a,
                   lf_trained_merge **merges, size_t *n_merges, lf_err *err);

/* Appends the tokenizer.json; merges are in rank order. */
int lf_bpe_write_json(const lf_bpe_train_args *a, const lf_vocab *v, const lf_trained_merge *m,
                      size_t n_merges, lf_buf *out, lf_err *err);
/* Writes the UTF-8 of a byte's character to out, with NUL. */
void lf_byte_text(char out[3], uint8_t b);

#endif
