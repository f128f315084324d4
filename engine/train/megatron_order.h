/* SPDX-License-Identifier: Apache-2.0
 *
 * The sample order of Megatron-LM's GPT pretraining data, bit for bit, so that a run begun with
 * Megatron-LM continues here on the same samples. The rule is that of Megatron Core 0.16:
 * GPTDataset, BlendedDataset and their builder (tests/golden/megatron compares with megatron-core
 * 0.16.1). Sequences have T + 1 tokens; the last one is the first of the next sequence:
 *
 *   split      "949,50,1" normalised to 1 and summed up; part p is the sequences [rint(b[p] n),
 *              rint(b[p + 1] n))
 *   epochs     E = least number >= 1 with E tokens >= samples T + 1
 *   last one   with E > 1 the last epoch is shuffled separately when it supplies fewer than
 *              int(0.8 samples-per-epoch) samples
 *   RNG        numpy RandomState(seed), one stream for everything below (base/mt19937.h)
 *   document index   the sequences of the part, E times over, shuffled; or E - 1 times, shuffled,
 *              then once, shuffled
 *   sample index     sample i begins T tokens after sample i - 1, in the sequences in that order;
 *              (E tokens - 1) / T samples
 *   shuffle index    0 .. samples - 1 shuffled; or the samples of the first E - 1 epochs, shuffled,
 *              then the rest, shuffled
 *   blend      weights w (normalised twice, like Megatron's); sample i takes the next sample of the
 *              dataset with the largest w max(i, 1) - taken, the first of equals. Dataset k must
 *              give ceil(ceil(samples w) (1 + surplus)) samples; Megatron's surplus is 0.005.
 *              Without weights every dataset is one epoch, and w is its share of the samples.
 *
 * Not implemented: padding ids that are masked from the loss (a tokenizer with a pad token);
 * reset_position_ids, reset_attention_mask, eod_mask_loss (all off by default in Megatron);
 * fill-in-the-middle and instruction data.
 */
#ifndef LF_TRAIN_MEGATRON_ORDER_H
#define LF_TRAIN_MEGATRON_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_megatron_part { LF_MEGATRON_TRAIN, LF_MEGATRON_VALID, LF_MEGATRON_TEST };

/* Parses three shares, of which the last one or two may be missing: "949,50,1", "1". bounds[0] =
 * 0. */
int lf_megatron_parse_split(double bounds[4], const char *text, lf_err *err);
/* Finds which of n sequences belong to the part; *begin == *end: none. */
void lf_megatron_split_range(uint64_t *begin, uint64_t *end, const double bounds[4],
                             enum lf_megatron_part part, uint64_t n);

/* ---- one dataset ---- */
typedef struct lf_megatron_order lf_megatron_order;

typedef struct lf_megatron_order_args {
    /* [n_seqs] tokens of every sequence of the dataset; borrowed during build */
    const uint32_t *lengths;
    uint64_t n_seqs;
    uint64_t begin, end; /* the sequences of the part */
    uint32_t T;          /* seq_length */
    uint64_t samples;    /* the least number of samples; 0: one epoch */
    uint32_t seed;
} lf_megatron_order_args;

/* LF_EINVAL: an epoch has no sample, or an index has more than 2^32 entries. */
int lf_megatron_order_build(lf_megatron_order **out, const lf_megatron_order_args *a, lf_err *err);
void lf_megatron_order_destroy(lf_megatron_order *o);
/* the number of samples, at least `samples` */
uint64_t lf_megatron_order_count(const lf_megatron_order *o);
uint64_t lf_megatron_order_epochs(const lf_megatron_order *o);
size_t lf_megatron_order_bytes(const lf_megatron_order *o); /* memory held */

/* Calls fn for the parts of sample i in order, with the sequence, the first token in it and the
 * number of tokens, T + 1 in all. A negative return of fn ends the call and is returned. */
typedef int (*lf_megatron_piece_fn)(void *user, uint64_t seq, uint64_t first, uint32_t n,
                                    lf_err *err);
int lf_megatron_order_pieces(const lf_megatron_order *o, uint64_t i, lf_megatron_piece_fn fn,
                             void *user, lf_err *err);

/* The three indices, for tests: document index [epochs * sequences], sample index [count + 1][2],
 * shuffle index [count]. */
const uint32_t *lf_megatron_document_index(const lf_megatron_order *o, uint64_t *n);
const uint32_t *lf_megatron_sample_index(const lf_megatron_order *o);
const uint32_t *lf_megatron_shuffle_index(const lf_megatron_order *o);

/* ---- several ---- */
/* w / sum(w), with the sum in numpy's order of additions. */
void lf_megatron_normalize(double *w, size_t n);
uint64_t lf_megatron_source_samples(uint64_t samples, double w, double surplus);
/* Returns the dataset of sample i. taken[n] is how many samples each has given before. */
size_t lf_megatron_blend_choose(const double *w, size_t n, uint64_t i, const uint64_t *taken);

#endif
