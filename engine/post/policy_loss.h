/* SPDX-License-Identifier: Apache-2.0
 *
 * The clipped surrogate of PPO (Schulman et al. 2017) and its successors, and the loss of the
 * critic: log-probabilities in, sums and gradients out. Arithmetic in f64 on arrays; a model's
 * graph makes lp and takes dlp.
 *
 * With x_t = clamp(lp_t - old_t, +-20) of token t:
 *     ratio   token       r_t = exp(x_t)
 *             sequence    r_t = exp(mean of x over the sequence)   (GSPO, Zheng et al. 2025)
 *             trajectory  r_t = exp(sum of x over the sequence)    (RLOO)
 *     loss_t  max(-A_t r_t, -A_t clip(r_t, 1 - clip_low, 1 + clip_high))
 *             + kl_coef KL(lp_t, ref_t) - entropy_coef H_t
 *             dual clip: where A_t < 0 the maximum is at most -A_t dual_clip
 *     loss    sum of w_t loss_t, where w_t follows from the aggregation over the whole mini-batch:
 *             token-mean          1 / tokens                        (DAPO)
 *             seq-mean-token-mean 1 / (sequences * tokens of its sequence)   (GRPO)
 *             seq-mean-token-sum  1 / sequences
 *             const               1 / (sequences * agg_length)      (Dr. GRPO)
 * A micro-batch uses the counts of its mini-batch (struct lf_pg_norm), so that losses and gradients
 * of micro-batches add up to those of the mini-batch, however it is divided.
 */
#ifndef LF_POST_POLICY_LOSS_H
#define LF_POST_POLICY_LOSS_H

#include "engine/post/advantage.h"
#include "engine/post/kl.h"

enum lf_pg_ratio { LF_RATIO_TOKEN = 0, LF_RATIO_SEQUENCE, LF_RATIO_TRAJECTORY };
enum lf_pg_agg {
    LF_AGG_TOKEN_MEAN = 0,
    LF_AGG_SEQ_MEAN_TOKEN_MEAN,
    LF_AGG_SEQ_MEAN_TOKEN_SUM,
    LF_AGG_CONST
};

struct lf_pg_opts {
    enum lf_pg_ratio ratio;
    enum lf_pg_agg agg;
    double agg_length;          /* of LF_AGG_CONST, > 0 */
    double clip_low, clip_high; /* >= 0 */
    double dual_clip;           /* > 1, or 0: off */
    double kl_coef;             /* 0: no KL in the loss, ref is not read */
    struct lf_kl_opts kl;
    double entropy_coef; /* 0: none */
};

/* The counts of the mini-batch that one optimizer step trains. */
struct lf_pg_norm {
    int64_t tokens, sequences;
};

/* Sums over tokens, which can be added before they are divided. All but loss are plain sums over
 * `tokens` tokens with mask 1. */
struct lf_pg_sums {
    /* loss: aggregated; pg: its clipped surrogate alone; kl, entropy: plain sums */
    double loss, pg, kl, entropy;
    double ratio, ratio_sq; /* of r_t */
    double ratio_min, ratio_max;
    double approx_kl;      /* (lp - old)^2 / 2 */
    double diff, diff_max; /* |lp - old| */
    double mult; /* exp |lp - old|, at most e^20: NeMo-RL's token_mult_prob_error times tokens */
    /* Estimates of the distance of the trained policy P from the generator G, over tokens that G
     * drew, as in NeMo-RL. With k(a, b) = exp(b - a) - 1 - (b - a) and the mixture m = log((p + q)
     * / 2) of lp and old, gen_kl is k(old, lp) for KL(G || P), and js is (k(m, lp) + k(m, old)) / 2
     * for the Jensen-Shannon divergence */
    double gen_kl, js;
    double clip_low, clip_high, clip_dual; /* tokens whose loss a bound decided */
    int64_t tokens;
};
void lf_pg_sums_begin(struct lf_pg_sums *s);
void lf_pg_sums_add(struct lf_pg_sums *to, const struct lf_pg_sums *more);

struct lf_pg_batch {
    struct lf_seqs s; /* of the micro-batch */
    const double *lp, *old;
    const double *ref;     /* read with kl_coef > 0 */
    const double *entropy; /* read where it is not NULL */
    const double *adv;
};
/* Computes dlp[t] = d loss / d lp_t and dentropy[t] = d loss / d H_t (may be NULL); both are 0
 * where the mask is 0. *sums is set to the sums of this batch. LF_ENUMERIC: a number is not finite;
 * the message has sequence and token. */
int lf_pg_loss(const struct lf_pg_opts *o, const struct lf_pg_batch *b,
               const struct lf_pg_norm *norm, double *dlp, double *dentropy,
               struct lf_pg_sums *sums, lf_err *err);
/* Checks ranges. LF_EINVAL: the message names the option. */
int lf_pg_opts_check(const struct lf_pg_opts *o, lf_err *err);

/* Returns the aggregation alone: the sum of w_t x_t. */
double lf_pg_aggregate(const struct lf_pg_opts *o, const struct lf_seqs *s,
                       const struct lf_pg_norm *norm, const double *x);

struct lf_value_sums {
    double loss, clipped, value;
    int64_t tokens;
};
struct lf_value_batch {
    struct lf_seqs s;                /* of the micro-batch */
    const double *value, *old, *ret; /* V, V of the rollout, R */
};
/* The loss is 0.5 max((V - R)^2, (clip(V, old +- clip) - R)^2) per token, with the mean over
 * norm->tokens; clip 0: none. dvalue[t] = d loss / d V_t. */
int lf_value_loss(const struct lf_value_batch *b, double clip, const struct lf_pg_norm *norm,
                  double *dvalue, struct lf_value_sums *sums, lf_err *err);

#endif
