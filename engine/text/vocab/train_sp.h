/* SPDX-License-Identifier: Apache-2.0
 *
 * Training of SentencePiece-style vocabularies: words begin at a space, which is written U+2581; a
 * character without a piece is its UTF-8 bytes (byte fallback); text is not normalised; every text
 * gets one space in front.
 *
 *   bpe      merges of characters by falling count (train_merge.c); the score of a piece is minus
 *            its rank
 *   unigram  T. Kudo, "Subword Regularization" (2018): seeds are the frequent substrings
 *            (train_seed.c); EM finds the probability of each piece; the quarter of the pieces that
 *            costs least is removed, repeatedly; scores are log p
 *
 * Ids: <unk>, <s>, </s>, further special tokens, the bytes <0x00> .. <0xFF>, then pieces by falling
 * score; of bpe the single characters come last. The result depends on the word counts alone, and
 * not on threads or their order, because expected counts are summed as integers. sp_write.c writes
 * tokenizer.json and tokenizer.model, which encode alike in the tokenizers and sentencepiece
 * libraries.
 */
#ifndef LF_TEXT_TRAIN_SP_H
#define LF_TEXT_TRAIN_SP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/base/str.h"
#include "engine/text/token/spm_read.h"
#include "engine/text/vocab/train_bpe.h"

enum lf_sp_kind { LF_SP_BPE, LF_SP_UNIGRAM };

typedef struct lf_sp_piece {
    char *text; /* owned, UTF-8 */
    float score;
    int type; /* enum lf_spm_type */
} lf_sp_piece;

typedef struct lf_sp_vocab {
    enum lf_sp_kind kind;
    lf_sp_piece *v; /* by id */
    size_t n, cap;
} lf_sp_vocab;
void lf_sp_vocab_fini(lf_sp_vocab *v);
int lf_sp_vocab_add(lf_sp_vocab *v, const char *text, float score, int type, lf_err *err);

typedef struct lf_sp_train_args {
    enum lf_sp_kind kind;
    const char *const *specials; /* after <unk>, <s>, </s>; those three are ignored here */
    size_t n_specials;
    size_t vocab_size;      /* everything included */
    uint64_t min_frequency; /* bpe: a rarer pair is not merged */
    /* the most frequent characters get pieces until they make up this share of the text */
    double coverage;
    size_t max_piece; /* characters of the longest piece, at most 64 */
    int threads;
} lf_sp_train_args;

/* Returns the number of ids before the pieces: special tokens and bytes. */
size_t lf_sp_fixed_ids(const lf_sp_train_args *a);

/* Counts the words of a text. Words are cut before spaces and between letters, digits and other
 * characters, so that no piece mixes these. cls is the table of uniclass.h. */
int lf_sp_count_words(lf_word_counts *w, const uint8_t *cls, const char *text, size_t len,
                      bool strict, uint64_t *replaced, lf_err *err);

/* Trains a vocabulary and fills out on success, with fewer pieces than vocab_size when the text has
 * no more. LF_EINVAL: vocab_size has no room for the characters. */
int lf_sp_train(lf_sp_vocab *out, const lf_sp_train_args *a, const lf_word_counts *words,
                lf_bpe_progress_fn fn, void *arg, lf_err *err);

/* Both append the file to out. */
int lf_sp_write_json(const lf_sp_vocab *v, lf_buf *out, lf_err *err);
int lf_sp_write_model(const lf_sp_vocab *v, lf_buf *out, lf_err *err);

#endif
