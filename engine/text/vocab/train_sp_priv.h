/* SPDX-License-Identifier: Apache-2.0
 *
 * Declarations that the files of the SentencePiece-style trainers share: train_sp.c (words,
 * characters, bpe), train_seed.c, train_unigram.c, sp_write.c.
 */
#ifndef LF_TEXT_TRAIN_SP_PRIV_H
#define LF_TEXT_TRAIN_SP_PRIV_H

#include "engine/text/vocab/train_priv.h"
#include "engine/text/vocab/train_sp.h"

#define LF_SP_SPACE     "\xE2\x96\x81" /* U+2581 */
#define LF_SP_MAX_PIECE 64

/* Words over the characters that get pieces. Any other character divides a word. words.sym holds
 * indices into chars. */
typedef struct lf_sp_words {
    uint32_t *chars; /* code points, by falling count, then by code point */
    uint64_t *counts;
    size_t n_chars;
    lf_merge_words words;
} lf_sp_words;

/* A candidate: len characters from words.sym[at]. */
typedef struct lf_sp_cand {
    uint64_t count; /* its count in the text */
    double score;   /* log p */
    uint32_t at;
    uint32_t len;
} lf_sp_cand;

/* Finds the single characters, then the `most` substrings of 2 .. max_piece characters that occur
 * at least twice, those with the greatest count * length. The caller frees *out. */
int lf_sp_seed(lf_sp_cand **out, size_t *n, const lf_sp_words *w, size_t max_piece, size_t most,
               lf_err *err);
/* Runs EM and pruning. out gets at most `room` pieces. */
int lf_sp_unigram(lf_sp_vocab *out, const lf_sp_train_args *a, const lf_sp_words *w, size_t room,
                  lf_bpe_progress_fn fn, void *arg, lf_err *err);
/* Counts the words of a text in which spaces are U+2581. Words are cut before each space, between
 * letters, digits and other characters, and around control characters, which are never part of a
 * piece. */
int lf_sp_cut_words(lf_word_counts *w, const uint8_t *cls, const uint8_t *p, size_t n,
                    uint64_t count, lf_err *err);
void lf_sp_add_char(lf_buf *out, uint32_t c); /* UTF-8 of one character, appended */
/* These append fields of a tokenizer.model: a piece, and the size of the vocabulary. A protobuf
 * message may be written in parts, so they also extend an existing file. */
int lf_sp_add_piece(lf_buf *out, const char *text, float score, int type, lf_err *err);
int lf_sp_add_size(lf_buf *out, size_t n, lf_err *err);
/* UTF-8 of len characters of w from sym[at], appended. */
void lf_sp_text(lf_buf *out, const lf_sp_words *w, size_t at, size_t len);

#endif
