/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing the next token from a row of logits, on the host.
 *
 * Order of operations, which is that of Hugging Face transformers:
 *   1. logit bias; tokens not allowed   added; -inf
 *   2. repetition penalty r             l > 0 ? l / r : l * r, once per distinct token of prompt
 *                                       and output (Keskar et al. 2019)
 *   3. presence and frequency penalty   l -= presence * [count > 0] + frequency * count, for tokens
 *                                       of the output only (OpenAI)
 *   4. temperature                      x = (l - max l) / temperature. 0 means greedy: the largest
 *                                       logit, the lowest id on ties; 5-7 do not apply
 *   5. top-k                            keep the k largest; ties with the k-th are kept
 *   6. top-p                            keep the smallest set of the most probable tokens whose
 *                                       mass reaches p, at least one (Holtzman et al. 2020)
 *   7. min-p                            keep p_i >= min_p * p_max, that is x_i >= ln min_p
 *   8. draw                             inverse of the cumulative distribution at u, with tokens in
 *                                       order of descending logit, then id; where 5-7 are off
 *                                       nothing is sorted, and the order is that of ascending ids
 * u is Philox(seed of the sequence, LF_SITE_SAMPLE, index of the output token). It depends on
 * nothing else, so results do not change with batch, order or threads. Masses are integers
 * (kernels/sampling.h), so sums do not depend on an order, and a GPU that adds in parallel
 * (lf_k_sample) gets the same token.
 */
#ifndef LF_INFER_SAMPLE_H
#define LF_INFER_SAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"
#include "kernels/kernels.h"
#include "kernels/sampling.h"

typedef struct lf_sample_params {
    double temperature;        /* >= 0; 0 = greedy */
    double top_p;              /* (0, 1]; 1 = off */
    double min_p;              /* [0, 1]; 0 = off */
    double repetition_penalty; /* > 0; 1 = off */
    double presence_penalty;   /* 0 = off */
    double frequency_penalty;  /* 0 = off */
    int64_t top_k;             /* 0 = off */
} lf_sample_params;

#define LF_SAMPLE_DEFAULTS                                                                         \
    {                                                                                              \
        1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0                                                            \
    }

/* The limits of one request on single tokens; borrowed until the next lf_sampler_begin. All zero:
 * none. */
typedef struct lf_sample_limits {
    const int32_t *bias_ids; /* [n_bias] */
    const double *bias;      /* [n_bias] added to their logits */
    size_t n_bias;
    const int32_t *allowed; /* [n_allowed] the only tokens that may be drawn; 0: all */
    size_t n_allowed;
    /* [n_bad] token sequences that must not appear in the output: the last token of one is
     * forbidden */
    const int32_t *const *bad;
    const size_t *bad_len; /* [n_bad] where the output ends in the rest of it */
    size_t n_bad;
} lf_sample_limits;

/* Checks ranges. LF_EINVAL: the message names the parameter. */
int lf_sample_check(const lf_sample_params *p, lf_err *err);

/* Returns the seed of one output sequence: a hash of the run's seed, the request's id and the index
 * of the sample. */
uint64_t lf_sample_seed(uint64_t run_seed, const char *request_id, uint32_t sample_index);

/* Scratch memory for one vocabulary size, reused from token to token; one thread uses it. */
typedef struct lf_sampler lf_sampler;
lf_sampler *lf_sampler_create(int64_t vocab, lf_err *err);
size_t lf_sampler_bytes(int64_t vocab); /* that it takes */
void lf_sampler_destroy(lf_sampler *s);
/* Begins a sequence. prompt[n] counts for the repetition penalty only. */
void lf_sampler_begin(lf_sampler *s, const int32_t *prompt, size_t n);
/* Sets the limits; after begin, before the first draw. */
void lf_sampler_limit(lf_sampler *s, const lf_sample_limits *l);
/* Forbids, until lf_sampler_allow_all, the tokens that would complete a bad sequence behind
 * output[n]. */
void lf_sampler_forbid_bad(lf_sampler *s, const int32_t *output, size_t n);
/* Records a token of the output, drawn or forced, before the next draw. */
void lf_sampler_accept(lf_sampler *s, int32_t token);
/* Forbids tokens in the next draws, such as end tokens by min_tokens. lf_sampler_allow_all undoes
 * it. */
void lf_sampler_forbid(lf_sampler *s, const int32_t *tokens, size_t n);
void lf_sampler_allow_all(lf_sampler *s);
/* Draws output token number `index` from logits[vocab], which do not change. Returns the id, or -1
 * when no logit is finite. */
int32_t lf_sampler_draw(lf_sampler *s, const lf_sample_params *p, const float *logits,
                        uint64_t seed, uint64_t index);

/* Describes the same draw for lf_k_sample: *row without list_at, and penalties, biases and
 * forbidden tokens as list[cap]. Returns the number of entries of the list. -1: the kernel cannot
 * make this draw (allowed tokens, a token with two biases, a longer list), and *row does not
 * change. */
int64_t lf_sampler_row(const lf_sampler *s, const lf_sample_params *p, uint64_t seed,
                       uint64_t index, struct lf_sample_row *row, struct lf_sample_token *list,
                       size_t cap);

/* Returns the distribution of the last draw, for tests: the number of kept tokens, their ids in
 * draw order and their probabilities, borrowed until the next call. A greedy draw keeps one token.
 * A draw without cuts, penalties, limits and forbidden tokens makes no list and gives 0. */
size_t lf_sampler_kept(const lf_sampler *s, const int32_t **ids, const double **probs);

/* Finds the n largest logits: ids in order of descending logit, then ascending id. Returns their
 * number (<= n). */
size_t lf_top_logits(const float *logits, int64_t vocab, size_t n, int32_t *ids);

#endif
