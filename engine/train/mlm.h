/* SPDX-License-Identifier: Apache-2.0
 *
 * Masked language modelling (Devlin et al. 2019, BERT): a share of the tokens of a sample is
 * hidden, and the encoder says what they were. Of the hidden ones a share `random` is replaced by
 * any word of the vocabulary, a share `kept` stays as it is, and mask_token stands for the others.
 * The loss is the mean over hidden tokens.
 *
 * With whole words (Devlin et al.'s later models) all tokens of a word are hidden together; words
 * are those of the tokenizer's own marks (engine/text/token/tokenizer.h), cut where a sample or a
 * document begins and by tokens that are never hidden. What stands for a hidden token is drawn for
 * each by itself.
 *
 * What is hidden is a function of seed, global sample and place of the token, or of the first one
 * of its word, in it. So a text is
 * hidden otherwise whenever it comes again, and neither ranks nor micro-batches nor resumes change
 * it. A validation hides the same tokens each time.
 */
#ifndef LF_TRAIN_MLM_H
#define LF_TRAIN_MLM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

/* Philox sites: which tokens are hidden, and what stands for them; those of validation are the next
 * numbers. */
#define LF_SITE_MLM      0x4D4C4D00u
#define LF_SITE_MLM_WORD 0x4D4C4D10u

typedef struct lf_mlm {
    double share;        /* of tokens that are hidden; 0 < it < 1 */
    double random, kept; /* of those; their sum is at most 1 */
    int32_t mask_token;
    /* [n_spared] tokens that are never hidden, such as those of formats, in ascending order */
    const int32_t *spared;
    size_t n_spared;
    bool whole_words;
    /* with whole_words: [n_marks] bits of lf_tokenizer_word_marks; may be NULL as long as nothing
     * is read */
    const uint8_t *marks;
    size_t n_marks;
} lf_mlm;

/* LF_EINVAL: shares that are none, or tokens that a vocabulary of so many words (0: unknown) lacks.
 * Messages use the names of the options of lf-pretrain. */
int lf_mlm_check(const lf_mlm *m, int64_t vocab, lf_err *err);
/* Is the token never hidden? */
bool lf_mlm_spares(const lf_mlm *m, int32_t token);

/* Which of n tokens, a document or what a sample has of it, begin a word, with whole_words. */
void lf_mlm_words(const lf_mlm *m, const int32_t *tokens, int64_t n, uint8_t *begins);

/* A sample of n rows. targets: of a token that may be hidden the token itself, else -1. */
struct lf_mlm_row {
    uint64_t seed;
    bool valid;
    int64_t sample; /* global */
    int64_t vocab;
    int64_t n;
    int32_t *tokens, *targets;
    const uint8_t *begins; /* [n] of lf_mlm_words; NULL: each token is a word */
};
/* Hides tokens in place, of a sample where any may be hidden at least one; the targets of all
 * others become -1. Returns how many are hidden. */
int64_t lf_mlm_hide(const lf_mlm *m, const struct lf_mlm_row *row);

#endif
