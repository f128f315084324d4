/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes advantages from rewards. Everything is arithmetic on arrays in f64, without models or
 * files.
 *
 * A batch of n sequences is flat: the tokens of sequence i are [first[i], first[i + 1]). mask is u8
 * per token; NULL means all 1. Tokens with mask 0, such as the output of a tool, are skipped and
 * get 0. A group is `group` sequences that follow each other: the samples of a prompt.
 */
#ifndef LF_POST_ADVANTAGE_H
#define LF_POST_ADVANTAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

struct lf_seqs {
    size_t n;
    const int64_t *first; /* [n + 1] */
    const uint8_t *mask;  /* [first[n]] or NULL */
};
static inline bool lf_seqs_on(const struct lf_seqs *s, int64_t t)
{
    return !s->mask || s->mask[t];
}
int64_t lf_seqs_tokens(const struct lf_seqs *s);           /* with mask 1 */
int64_t lf_seqs_length(const struct lf_seqs *s, size_t i); /* of sequence i, with mask 1 */
/* last token of sequence i with mask 1; -1: none */
int64_t lf_seqs_last(const struct lf_seqs *s, size_t i);

/* Token rewards: reward[t] = -beta * kl[t] (kl NULL: 0), plus score[i] on the last token of
 * sequence i. That is the end token where there is one, as in OpenRLHF, verl, NeMo-RL and DS-Chat
 * (in TRL it is the token behind). */
void lf_token_rewards(double *reward, const struct lf_seqs *s, const double *score,
                      const double *kl, double beta);

/* Generalised advantage estimation (Schulman et al. 2016), from the end of each sequence, where V
 * is 0:
 *     delta_t = r_t + gamma V_{t+1} - V_t
 *     A_t     = delta_t + gamma lambda A_{t+1}
 *     R_t     = A_t + V_t
 * value NULL means 0 everywhere; with lambda = 1 A is then the discounted sum of future rewards
 * (REINFORCE++). ret may be NULL. */
void lf_gae(double *adv, double *ret, const struct lf_seqs *s, const double *reward,
            const double *value, double gamma, double lambda);

/* x = (x - mean) / sqrt(max(var, 1e-8)) over all tokens with mask 1 of the whole batch, never of
 * one rank or micro-batch. biased: var is divided by n (OpenRLHF), else by n - 1 (verl, TRL).
 * keep_mean: the mean is added again (rewards). s may describe sequences of one token. */
void lf_whiten(double *x, const struct lf_seqs *s, bool biased, bool keep_mean);

enum lf_group_kind {
    LF_GROUP_GRPO = 0, /* (r - mean) / (std + eps), std of the group, unbiased (Shao et al. 2024) */
    LF_GROUP_CENTRE,   /* r - mean (Dr. GRPO, Liu et al. 2025; REINFORCE++-baseline) */
    LF_GROUP_RLOO      /* r - mean of the others (Ahmadian et al. 2024) */
};
/* Computes adv[i] of sequence i from score[i]; n is a multiple of group. A group whose scores are
 * all equal gets exactly 0. Returns the number of such groups. LF_EINVAL: sizes do not fit, or RLOO
 * with a group of one. */
int64_t lf_group_advantage(double *adv, const double *score, size_t n, size_t group,
                           enum lf_group_kind kind, double eps, lf_err *err);
/* Are all scores of a group equal? Such a group has no gradient. */
bool lf_group_flat(const double *score, size_t group);

/* Gives every token of sequence i the value of_seq[i]. */
void lf_spread(double *adv, const struct lf_seqs *s, const double *of_seq);

/* Returns 1 - Var(R - V) / Var(R) over tokens: the share of the returns that the critic explains.
 * NaN when the returns do not vary. */
double lf_explained_variance(const struct lf_seqs *s, const double *ret, const double *value);

#endif
