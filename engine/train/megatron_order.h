/* SPDX-License-Identifier: Apache-2.0
 *
 * The sample order of Megatron-LM's GPT pretraining data, replayed bit for bit, so that a run begun
 * there goes on here on the same samples. The rule is that of Megatron Core 0.16 (GPTDataset,
 * BlendedDataset and their builder; held to megatron-core 0.16.1, tests/golden/megatron), over
 * sequences of T + 1 tokens, the last of which is the first of the next:
 *
 *   split      "949,50,1" normalised to 1 and summed up; part p is the sequences [rint(b[p] n),
 *              rint(b[p + 1] n))
 *   epochs     E = least number >= 1 with E tokens >= samples T + 1
 *   last one   with E > 1: it is shuffled apart from the others when it supplies fewer than
 *              int(0.8 samples-per-epoch) samples
 *   RNG        numpy RandomState(seed), one stream through what follows (base/mt19937.h)
 *   document index   the sequences of the part, E times over, shuffled; or E - 1 times, shuffled,
 *              then once, shuffled
 *   sample index     sample i begins T tokens after sample i - 1, in the sequences in that order;
 *              (E tokens - 1) / T samples
 *   shuffle index    0 .. samples - 1 shuffled; or the samples of the first E - 1 epochs, shuffled,
 *              then the rest, shuffled
 *   blend      weights w (normalised twice, as there); sample i takes the dataset with the largest
 *              w max(i, 1) - taken, the first of equals, and its next sample. Dataset k is asked
 *              for ceil(ceil(samples w) (1 + surplus)) samples; surplus is 0.005 there. Without
 *              weights every dataset is one epoch and w is its share of the samples.
 *
 * What is not replayed: padding ids masked from the loss (a tokenizer with a pad token),
 * reset_position_ids, reset_attention_mask, eod_mask_loss (all off by default there),
 * fill-in-the-middle and instruction data.
 */
#ifndef LF_TRAIN_MEGATRON_ORDER_H
#define LF_TRAIN_MEGATRON_ORDER_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_megatron_part { LF_MEGATRON_TRAIN, LF_MEGATRON_VALID, LF_MEGATRON_TEST };

/* Three shares as text, one or two of which may be left out at the end: "949,50,1", "1". bounds[0]
 * = 0. */
int lf_megatron_parse_split(double bounds[4], const char *text, lf_err *err);
/* Which of n sequences are the part's; *begin == *end: none. */
void lf_megatron_split_range(uint64_t *begin, uint64_t *end, const double bounds[4],
                             enum lf_megatron_part part, uint64_t n);

/* ---- one dataset ---- */
typedef struct lf_megatron_order lf_megatron_order;

typedef struct lf_megatron_order_args {
    /* [n_seqs] tokens of every sequence of the dataset; borrowed during build */
    const uint32_t *lengths;
    uint64_t n_seqs;
    uint64_t begin, end; /* those that belong to the part */
    uint32_t T;          /* seq_length */
    uint64_t samples;    /* asked for; 0: one epoch */
    uint32_t seed;
} lf_megatron_order_args;

/* LF_EINVAL: no sample in an epoch, or an index of more than 2^32 entries. */
int lf_megatron_order_build(lf_megatron_order **out, const lf_megatron_order_args *a, lf_err *err);
void lf_megatron_order_destroy(lf_megatron_order *o);
/* samples; at least those asked for */
uint64_t lf_megatron_order_count(const lf_megatron_order *o);
uint64_t lf_megatron_order_epochs(const lf_megatron_order *o);
size_t lf_megatron_order_bytes(const lf_megatron_order *o); /* memory held */

/* The pieces of sample i in order: the callback gets sequence, first token in it and their number,
 * T + 1 in all. It stops at a negative return, which is passed on. */
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
/* The dataset of sample i; taken[n]: how many each has given before. */
size_t lf_megatron_blend_choose(const double *w, size_t n, uint64_t i, const uint64_t *taken);

#endif
