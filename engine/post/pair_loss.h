/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses that train a policy on answers that people or a model have judged, without a reward model.
 * Everything is arithmetic on log-probabilities in f64. Graphs (engine/graph) give the
 * log-probabilities and take the gradients.
 *
 * A pair has a better answer c and a worse one r. For an answer of n tokens (without the prompt) l
 * is the sum of log p, l_ref that of the reference, and a = l / n the mean.
 *
 *     h = (l_c - l_ref_c) - (l_r - l_ref_r)        x = beta h        s = label smoothing
 *
 *     sigmoid  -(1 - s) log sig(x) - s log sig(-x)
 *              Rafailov et al. 2023; with s > 0 cDPO, Mitchell 2023
 *     robust   (-(1 - s) log sig(x) + s log sig(-x)) / (1 - 2 s)
 *              Chowdhury et al. 2024, s < 1/2
 *     hinge    max(0, 1 - x)
 *              Zhao et al. 2023 (SLiC) with this x
 *     ipo      (h_a - 1 / (2 beta))^2, h_a as h with means a
 *              Azar et al. 2023, with means as in the authors' code
 *     orpo     -a_c - beta log sig(o), o = log odds(a_c) - log odds(a_r), odds(a) = e^a / (1 - e^a)
 *              Hong et al. 2024
 *     simpo    -log sig(beta (a_c - a_r) - gamma)
 *              Meng et al. 2024; gamma is the whole margin
 *
 * orpo and simpo have no reference. `nll` adds nll * -a_c to the others (RPO, Pang et al. 2024);
 * with nll = 1 it is the first term of orpo. NLL is the mean over the tokens of the answer, then
 * over pairs, so it does not depend on the pairs that share a micro-batch. (TRL averages over the
 * tokens of a micro-batch, and in orpo over prompt and answer.)
 *
 * With a label instead of a pair (KTO, Ethayarajh et al. 2024), with d = l - l_ref:
 *
 *     good     w_good (1 - sig(beta (d - z)))
 *     bad      w_bad (1 - sig(beta (z - d)))
 *     z = max(0, mean of d over prompts with the answer of another document), over the whole
 *     optimizer step, without a gradient
 *
 * The loss of a step is the mean over its pairs or answers. The caller scales by 1 / their number.
 */
#ifndef LF_POST_PAIR_LOSS_H
#define LF_POST_PAIR_LOSS_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/err.h"

enum lf_pair_kind {
    LF_PAIR_SIGMOID,
    LF_PAIR_ROBUST,
    LF_PAIR_HINGE,
    LF_PAIR_IPO,
    LF_PAIR_ORPO,
    LF_PAIR_SIMPO
};

struct lf_pair_opts {
    enum lf_pair_kind kind;
    double beta;
    double smoothing; /* sigmoid, robust */
    double gamma;     /* simpo */
    double nll;       /* all but orpo */
};

struct lf_answer {
    double logp; /* l */
    double ref;  /* l_ref; not read by orpo and simpo */
    int64_t n;   /* tokens, >= 1 */
};

struct lf_pair_result {
    double loss;
    double d_chosen, d_rejected; /* d loss / d l, the same for every token of the answer */
    double reward_chosen, reward_rejected; /* beta (l - l_ref), or beta a without a reference */
    double nll;                            /* -a_c */
};

/* LF_EINVAL: beta is not positive, smoothing is outside [0, 1/2) or given to a kind without
 * smoothing, or gamma or nll is negative. */
int lf_pair_check(const struct lf_pair_opts *o, lf_err *err);
bool lf_pair_needs_reference(enum lf_pair_kind kind);
struct lf_pair_result lf_pair_loss(const struct lf_pair_opts *o, const struct lf_answer *chosen,
                                   const struct lf_answer *rejected);

struct lf_kto_opts {
    double beta, w_good, w_bad;
};
struct lf_kto_result {
    double loss, d_logp;
    double reward; /* beta d */
};
struct lf_kto_result lf_kto_loss(const struct lf_kto_opts *o, const struct lf_answer *a, bool good,
                                 double z);
/* Returns z from the sum of d over n prompts with the answers of other documents. */
double lf_kto_z(double sum, double n);

/* log sig(x) and sig(x), without overflow. */
double lf_log_sigmoid(double x);
double lf_sigmoid(double x);

#endif
