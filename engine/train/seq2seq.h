/* SPDX-License-Identifier: Apache-2.0
 *
 * Samples of encoder-decoders: a source, which the encoder reads, and a target, which the decoder
 * says. There are three kinds.
 *
 *   pairs    what a document has before its first trained token is the source, the rest the target
 *   span     span corruption (Raffel et al. 2020, T5): spans of a text are taken out. In the source
 *            each is one sentinel, another for each; the target is the sentinels with what they
 *            stand for
 *   denoise  text infilling and sentence permutation (Lewis et al. 2020, BART): the sentences of a
 *            text are shuffled, and spans of it become one mask_token each, or one is put between
 *            two words, a span of none. The target is the text
 *
 * For span and denoise a text is what a row of the loader holds of tokens, across documents, as in
 * the training of both models. Spans are those of T5's random_spans_noise_mask,
 *
 *   noise = max(1, min(n - 1, round(share n))),  spans = max(1, round(noise / mean)),
 *
 * where round goes to even numbers; noise and the other tokens are each divided into that many
 * parts of at least one token, all divisions being equally likely, and the parts alternate, the
 * first being of text. So a text of n tokens always has a source of n - noise + spans + 1 tokens
 * and a target of noise + spans + 1, the token of the end of a text counted.
 *
 * Denoising takes out ceil(share n) tokens. Lengths of spans are drawn from a Poisson distribution
 * until they have that sum; the last is cut, and no more spans are drawn than tokens are taken out.
 * All orders of these spans and of the tokens that stay are equally likely. With `words` all of
 * this is of whole words (mlm.h) in place of tokens. With `random` any word of the vocabulary
 * stands for such a share of the spans in place of mask_token. (fairseq has both, as --mask-random
 * and as the words of --mask-length span-poisson.)
 *
 * What is drawn is a function of seed, global sample and number of the draw. So a text is corrupted
 * otherwise whenever it comes again, and neither ranks nor micro-batches nor resumes change it.
 */
#ifndef LF_TRAIN_SEQ2SEQ_H
#define LF_TRAIN_SEQ2SEQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "engine/train/mlm.h"

/* Philox sites; those of validation are the next numbers. Draw i of a sample is word i % 4 of
 * counter i / 4. */
#define LF_SITE_SPAN_TEXT   0x53505400u /* where parts of text end */
#define LF_SITE_SPAN_NOISE  0x53505410u /* where spans end */
#define LF_SITE_FILL_LENGTH 0x46494C00u /* lengths of spans */
#define LF_SITE_FILL_PLACE  0x46494C10u /* which of spans and tokens is next */
#define LF_SITE_FILL_ORDER  0x46494C20u /* the order of sentences */
#define LF_SITE_FILL_WORD   0x46494C30u /* what stands for a span; two numbers each */

enum lf_seq2seq_kind { LF_SEQ2SEQ_PAIRS, LF_SEQ2SEQ_SPAN, LF_SEQ2SEQ_DENOISE };

typedef struct lf_seq2seq {
    enum lf_seq2seq_kind kind;
    int32_t source_length; /* rows of the encoder per sample */
    /* span, denoise: share of the tokens that is taken out, 0 < it < 1; mean length of spans */
    double share, mean;
    int32_t sentinel, n_sentinels; /* span: the first one; the others are the numbers below it */
    int32_t mask_token;            /* denoise */
    int32_t begin;                 /* denoise: first token of source and target; -1: none */
    double random;                 /* denoise: share of spans that any word stands for */
    const lf_mlm *words; /* denoise: whose marks say where words begin; borrowed; NULL: tokens */
    /* denoise: [n_ends] tokens that end a sentence, ascending; none: sentences stay in order */
    const int32_t *ends;
    size_t n_ends;
} lf_seq2seq;

/* Returns how many tokens of text a row corrupts so that neither its source nor its target, of at
 * most T tokens, is too long. Less than 2: there is no room for any. */
int32_t lf_seq2seq_text(const lf_seq2seq *s, int32_t T);
/* Returns the length of the target of a text of n tokens. */
int32_t lf_seq2seq_target(const lf_seq2seq *s, int32_t n);
/* LF_EINVAL: shares, lengths or tokens that are none of a vocabulary of so many words (0: unknown),
 * for rows of T tokens of target. Messages use the names of options. */
int lf_seq2seq_check(const lf_seq2seq *s, int32_t T, int64_t vocab, lf_err *err);

/* A text of n >= 1 tokens that is corrupted. */
struct lf_seq2seq_row {
    uint64_t seed;
    bool valid;
    int64_t sample; /* global */
    int32_t eos;    /* ends source and target */
    int64_t vocab;  /* with random: words that may stand for a span */
    const int32_t *text;
    int32_t n;
    int32_t *work;            /* [3 n + 2] */
    int32_t *source, *target; /* with room for what lf_seq2seq_text promises */
    int32_t n_source, n_target;
};
void lf_seq2seq_corrupt(const lf_seq2seq *s, struct lf_seq2seq_row *r);

#endif
