/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the BPE trainer: word counts (wordcount.c), the merge loop (train_bpe.c), the file
 * (train_json.c).
 */
#ifndef LF_TEXT_TRAIN_PRIV_H
#define LF_TEXT_TRAIN_PRIV_H

#include <stddef.h>
#include <stdint.h>

#include "engine/text/train_bpe.h"

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

int lf_word_counts_add(lf_word_counts *w, const uint8_t *p, size_t len, uint64_t count, lf_err *err);

/* The vocabulary being made: texts in the byte alphabet's characters, by id. */
typedef struct lf_vocab {
    char **text; /* owned */
    size_t n, cap;
    uint32_t *slots; /* id + 1, 0 free */
    size_t mask;
} lf_vocab;

typedef struct lf_trained_merge {
    uint32_t a, b;
} lf_trained_merge;

/* Write tokenizer.json; merges in rank order. */
int lf_bpe_write_json(const lf_bpe_train_args *a, const lf_vocab *v, const lf_trained_merge *m, size_t n_merges,
                      lf_buf *out, lf_err *err);
/* UTF-8 of a byte's character into out (3 bytes with NUL). */
void lf_byte_text(char out[3], uint8_t b);

#endif
