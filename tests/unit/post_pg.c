/* SPDX-License-Identifier: Apache-2.0
 *
 * Policy-gradient arithmetic: published values to 1e-6, gradients by finite differences,
 * micro-batches against the whole. */
#include <math.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/post/policy_loss.h"
#include "engine/post/shaping.h"
#include "tests/tap/tap.h"

#define TOL    1e-6
#define LEN(a) (sizeof(a) / sizeof *(a))

static const struct lf_kl_opts k1 = {LF_KL_K1, false, 0, 0}, k2 = {LF_KL_K2, false, 0, 0},
                               k3 = {LF_KL_K3, false, 0, 0};

static void kl_values(void)
{
    static const double lp[] = {-1, -1, -2}, ref[] = {-1.5, -.5, -2.2};
    static const double want[3][3] = {
        {.5, .125, .106531}, {-.5, .125, .148721}, {.2, .02, .018731}};
    for (int i = 0; i < 3; i++) {
        tap_f64(lf_kl(&k1, lp[i], ref[i]), want[i][0], TOL, "k1");
        tap_f64(lf_kl(&k2, lp[i], ref[i]), want[i][1], TOL, "k2");
        tap_f64(lf_kl(&k3, lp[i], ref[i]), want[i][2], TOL, "k3");
    }
    static const double far_ref[] = {0, -15, -30}, w1[] = {-1, 14, 29}, w2[] = {.5, 98, 420.5},
                        w3[] = {.7182818, 13.0000008, 28};
    for (int i = 0; i < 3; i++) {
        tap_f64(lf_kl(&k1, -1, far_ref[i]), w1[i], TOL, "k1 far away");
        tap_f64(lf_kl(&k2, -1, far_ref[i]), w2[i], TOL, "k2 far away");
        tap_f64(lf_kl(&k3, -1, far_ref[i]), w3[i], TOL, "k3 far away");
    }
    struct lf_kl_opts bound = {LF_KL_K3, false, LF_KL_CLAMP_IN, LF_KL_CLAMP_OUT};
    tap_f64(lf_kl(&bound, -1, -15), 10, 0, "the estimate is clamped to 10");
    tap_f64(lf_kl(&bound, -1, 0), exp(1) - 2, TOL, "a small one is not");
    tap_f64(lf_kl_grad(&bound, -1, -15), 0, 0, "a clamped estimate has no slope");
    bound.kind = LF_KL_K1;
    tap_ok(isnan(lf_kl(&bound, -1, NAN)) && isnan(lf_kl(&bound, NAN, -1)),
           "what is no number is not clamped to one");
    bound.clamp_out = 0;
    tap_f64(lf_kl(&bound, -1, -30), 20, 0, "its input is clamped to 20");
    tap_f64(lf_kl(&k1, -.7, -.7), 0, 0, "the same policy: exactly 0 (k1)");
    tap_f64(lf_kl(&k3, -.7, -.7), 0, 0, "the same policy: exactly 0 (k3)");
}

static void kl_gradients(void)
{
    const double h = 1e-5;
    struct lf_kl_opts all[] = {k1, k2, k3, {LF_KL_K3, false, 20, 10}};
    for (size_t i = 0; i < LEN(all); i++) {
        double slope = (lf_kl(&all[i], -1 + h, -1.6) - lf_kl(&all[i], -1 - h, -1.6)) / (2 * h);
        tap_f64(lf_kl_grad(&all[i], -1, -1.6), slope, 1e-8, "slope of an estimator");
    }
    struct lf_kl_opts s = {LF_KL_K3, true, 0, 0};
    tap_f64(lf_kl(&s, -1, -1.5), lf_kl(&k3, -1, -1.5), 0, "straight-through has the value of k3");
    tap_f64(lf_kl_grad(&s, -1, -1.5), .5, 1e-12, "and the slope of k2");
}

static void kl_control(void)
{
    struct lf_kl_control c = {true, .15, 6, 1e4};
    static const double kl[] = {12, 6.6, 3}, want[] = {.150768, .15115396608, .15038005776};
    lf_err err = LF_ERR_INIT;
    for (int i = 0; i < 3; i++) {
        lf_kl_control_update(&c, kl[i], 256);
        tap_f64(c.beta, want[i], 1e-9, "adaptive coefficient");
    }
    c.adaptive = false;
    lf_kl_control_update(&c, 100, 256);
    tap_f64(c.beta, want[2], 1e-9, "a fixed one stays");
    tap_rc(lf_kl_control_check(&(struct lf_kl_control){true, .1, 0, 1}, &err), LF_EINVAL, &err,
           "target", "adaptive without a target");
}

static const int64_t one4[] = {0, 4}, one3[] = {0, 3};

/* How far the trained policy is from the generator: NeMo-RL's three numbers. */
static void mismatch(void)
{
    static const double lp[] = {-1, -2, -.5, -3}, old[] = {-1.5, -2, -.9, -2.7}, adv[4] = {0};
    const struct lf_pg_opts o = {.clip_low = .2, .clip_high = .2};
    const struct lf_pg_norm norm = {4, 1};
    struct lf_pg_batch b = {{1, one4, NULL}, lp, old, NULL, NULL, adv};
    struct lf_pg_sums s;
    double dlp[4];
    lf_err err = LF_ERR_INIT;
    tap_rc(lf_pg_loss(&o, &b, &norm, dlp, NULL, &s, &err), 0, &err, NULL, "loss");
    tap_f64(s.gen_kl, 0.2813641890, 1e-9, "gen_kl_error");
    tap_f64(s.js, 0.0620059394, 1e-9, "js_divergence");
    tap_f64(s.mult, 5.4904047759, 1e-9, "token_mult_prob_error");
    b.lp = old;
    tap_rc(lf_pg_loss(&o, &b, &norm, dlp, NULL, &s, &err), 0, &err, NULL, "loss");
    tap_ok(s.gen_kl == 0 && s.js == 0 && s.mult == 4,
           "the same policy: exactly 0, 0 and 1 of each token");
}

static void gae(void)
{
    static const double r[] = {-.01, .02, -.03, .5}, v[] = {.1, .2, .3, .4};
    static const double lambda[] = {.95, 1, 0};
    static const double want[3][4] = {
        {.3529125, .27675, .165, .1}, {.38, .29, .17, .1}, {.09, .12, .07, .1}};
    static const double ret[] = {.4529125, .47675, .465, .5};
    struct lf_seqs s = {1, one4, NULL};
    double a[4], q[4];
    for (int k = 0; k < 3; k++) {
        lf_gae(a, q, &s, r, v, 1, lambda[k]);
        for (int t = 0; t < 4; t++)
            tap_f64(a[t], want[k][t], TOL, "advantage");
        for (int t = 0; k == 0 && t < 4; t++)
            tap_f64(q[t], ret[t], TOL, "return");
    }
    static const double biased[] = {1.321573, .542798, -.599867, -1.264504},
                        unbiased[] = {1.144516, .470077, -.519500, -1.095093};
    for (int b = 0; b < 2; b++) {
        lf_gae(a, NULL, &s, r, v, 1, .95);
        lf_whiten(a, &s, b, false);
        for (int t = 0; t < 4; t++)
            tap_f64(a[t], b ? biased[t] : unbiased[t], TOL,
                    b ? "whitened, biased" : "whitened, unbiased");
    }
    static const double rn[] = {0, 0, 5}, vn[] = {1, 2, 3}, wn[] = {1, 1, 2};
    struct lf_seqs s3 = {1, one3, NULL};
    lf_gae(a, NULL, &s3, rn, vn, 1, 0);
    for (int t = 0; t < 3; t++)
        tap_f64(a[t], wn[t], TOL, "NeMo's case");
}

/* Tokens of a tool in the middle: as if they were not there. */
static void gae_masks(void)
{
    static const double r[] = {-.01, .02, 7, 8, -.03, .5}, v[] = {.1, .2, -9, 9, .3, .4};
    static const double r0[] = {-.01, .02, -.03, .5}, v0[] = {.1, .2, .3, .4};
    static const uint8_t mask[] = {1, 1, 0, 0, 1, 1};
    static const int64_t first[] = {0, 6};
    static const int at[] = {0, 1, 4, 5};
    struct lf_seqs s = {1, first, mask}, s0 = {1, one4, NULL};
    double a[6], q[6], a0[4], q0[4];
    lf_gae(a, q, &s, r, v, .9, .95);
    lf_gae(a0, q0, &s0, r0, v0, .9, .95);
    for (int k = 0; k < 4; k++) {
        tap_f64(a[at[k]], a0[k], 1e-15, "a masked stretch is stepped over");
        tap_f64(q[at[k]], q0[k], 1e-15, "in returns too");
    }
    tap_f64(a[2], 0, 0, "and gets nothing");
    tap_i64(lf_seqs_tokens(&s), 4, "tokens with mask 1");
    static const uint8_t tail[] = {1, 1, 1, 0, 0, 0};
    struct lf_seqs st = {1, first, tail};
    double w[6], score = 2, kl[] = {1, 2, 3, 4, 5, 6};
    lf_token_rewards(w, &st, &score, kl, .1);
    tap_f64(w[2], 2 - .3, 1e-12, "the score is on the last valid token");
    tap_f64(w[3], 0, 0, "not behind it");
    lf_gae(a, NULL, &st, w, NULL, 1, 1);
    tap_f64(a[0], 2 - .6, 1e-12, "without values and with lambda 1: what is to come (REINFORCE++)");
}

static void whitening(void)
{
    double x[9];
    static const int64_t first[] = {0, 3, 6, 9};
    static const double biased[] = {.0508, .4381, .8254}, unbiased[] = {.1394, .5046, .8697};
    struct lf_seqs s = {3, first, NULL};
    for (int b = 0; b < 2; b++) {
        for (int i = 0; i < 9; i++)
            x[i] = 1.2 + .1 * i;
        lf_whiten(x, &s, b, true);
        for (int i = 0; i < 3; i++)
            tap_f64(x[i], b ? biased[i] : unbiased[i], 5e-5, "grid of the HF blog, mean kept");
    }
    uint8_t mask[9] = {1, 1, 0, 1, 1, 1, 1, 1, 0};
    double y[9], sum = 0, squares = 0;
    s.mask = mask;
    for (int i = 0; i < 9; i++)
        y[i] = mask[i] ? i * i : 1e9;
    lf_whiten(y, &s, true, false);
    for (int i = 0; i < 9; i++)
        if (mask[i]) {
            sum += y[i];
            squares += y[i] * y[i];
        }
    tap_f64(sum, 0, 1e-12, "mean 0 over valid tokens only");
    tap_f64(squares / 7, 1, 1e-12, "variance 1");
    tap_f64(y[2], 1e9, 0, "others are left alone");
    double same[] = {3, 3, 3, 3};
    lf_whiten(same, &(struct lf_seqs){1, one4, NULL}, false, false);
    tap_f64(same[0], 0, 0, "equal numbers become 0, not NaN");
}

static void groups(void)
{
    static const double r[] = {1, 0, 0, 1};
    double a[8];
    lf_err err = LF_ERR_INIT;
    tap_i64(lf_group_advantage(a, r, 4, 4, LF_GROUP_GRPO, 1e-4, &err), 0, "no flat group");
    tap_f64(a[0], .8658754298, 1e-9, "GRPO, eps 1e-4");
    tap_f64(a[1], -.8658754298, 1e-9, "GRPO, eps 1e-4, the other sign");
    lf_group_advantage(a, r, 4, 4, LF_GROUP_GRPO, 1e-6, &err);
    tap_f64(a[3], .8660239038, 1e-9, "GRPO, eps 1e-6");
    lf_group_advantage(a, r, 4, 4, LF_GROUP_RLOO, 0, &err);
    tap_f64(a[0], 2. / 3, 1e-12, "RLOO");
    tap_f64(a[2], -2. / 3, 1e-12, "RLOO, the other sign");
    lf_group_advantage(a, r, 4, 4, LF_GROUP_CENTRE, 0, &err);
    tap_f64(a[0], .5, 1e-12, "Dr. GRPO: no division");
    static const double flat[] = {.3, .3, .3, .3, 1, 0, 0, 1};
    tap_i64(lf_group_advantage(a, flat, 8, 4, LF_GROUP_GRPO, 1e-4, &err), 1,
            "a group of equal rewards is counted");
    tap_ok(a[0] == 0 && a[3] == 0 && fabs(a[4]) > .8, "and is exactly 0, the other is not");
    tap_rc((int)lf_group_advantage(a, r, 4, 3, LF_GROUP_GRPO, 0, &err), LF_EINVAL, &err,
           "groups of 3", "groups that do not fit");
    tap_rc((int)lf_group_advantage(a, r, 4, 1, LF_GROUP_RLOO, 0, &err), LF_EINVAL, &err,
           "2 or more", "nobody left to leave out");
}

/* ---- losses ---- */

static struct lf_pg_opts plain(void)
{
    return (struct lf_pg_opts){.clip_low = .2, .clip_high = .2, .kl = {LF_KL_K3, false, 0, 0}};
}

static double loss_of(const struct lf_pg_opts *o, const struct lf_seqs *s, const double *ratio,
                      const double *adv, double *dlp, struct lf_pg_sums *sums)
{
    double lp[16], old[16];
    lf_err err = LF_ERR_INIT;
    int64_t n = s->first[s->n];
    for (int64_t t = 0; t < n; t++) {
        old[t] = -1;
        lp[t] = -1 + log(ratio[t]);
    }
    struct lf_pg_batch b = {.s = *s, .lp = lp, .old = old, .adv = adv};
    struct lf_pg_norm norm = {lf_seqs_tokens(s), (int64_t)s->n};
    if (lf_pg_loss(o, &b, &norm, dlp, NULL, sums, &err))
        tap_bail("loss: %s", err.text);
    return sums->loss;
}

static void clipping(void)
{
    struct lf_pg_opts o = plain();
    struct lf_pg_sums sums;
    static const double r[] = {.5, 1, 1.5}, a[] = {1, -1, 2};
    double d[4];
    struct lf_seqs s = {1, one3, NULL};
    tap_f64(loss_of(&o, &s, r, a, d, &sums), -.63333333, TOL, "mean of -.5, 1, -2.4");
    tap_f64(sums.clip_high, 1, 0, "one clipped above");
    tap_f64(sums.clip_low, 0, 0, "none below: the ratio fell although the advantage is positive");
    tap_f64(d[2], 0, 0, "a clipped token has no slope");
    tap_f64(d[0], -.5 / 3, 1e-12, "the others have -A r / n");
    static const int64_t first[] = {0, 1};
    static const double five[] = {5}, minus[] = {-1};
    struct lf_seqs one = {1, first, NULL};
    o.dual_clip = 3;
    tap_f64(loss_of(&o, &one, five, minus, d, &sums), 3, 1e-9, "dual clip");
    tap_f64(d[0], 0, 0, "has no slope");
    tap_f64(sums.clip_dual, 1, 0, "and is counted");
    o.dual_clip = 0;
    tap_f64(loss_of(&o, &one, five, minus, d, &sums), 5, 1e-9, "without it");
    static const double low[] = {.5};
    tap_f64(loss_of(&o, &one, low, minus, d, &sums), .8, 1e-9, "clipped below");
    tap_f64(sums.clip_low, 1, 0, "and counted there");
    o.clip_high = .28;
    static const double high[] = {1.25}, plus[] = {1};
    tap_f64(loss_of(&o, &one, high, plus, d, &sums), -1.25, 1e-9, "a higher upper bound (DAPO)");
}

static void sequence_ratios(void)
{
    static const double x[] = {.1, -.2, .3}, a[] = {1, 1, 1};
    double r[3], d[3];
    struct lf_pg_sums sums;
    struct lf_pg_opts o = plain();
    struct lf_seqs s = {1, one3, NULL};
    for (int i = 0; i < 3; i++)
        r[i] = exp(x[i]);
    o.ratio = LF_RATIO_SEQUENCE;
    o.agg = LF_AGG_SEQ_MEAN_TOKEN_MEAN;
    tap_f64(loss_of(&o, &s, r, a, d, &sums), -1.0689391057, 1e-9, "GSPO ratio");
    tap_f64(d[0], -1.0689391057 / 3, 1e-9, "each token has its share of the slope");
    o.ratio = LF_RATIO_TRAJECTORY;
    o.clip_high = 1;
    tap_f64(loss_of(&o, &s, r, a, d, &sums), -exp(.2), 1e-9, "ratio of the whole trajectory");
}

static void aggregation(void)
{
    static const int64_t first[] = {0, 4, 6};
    static const double x[] = {1, 1, 1, 1, 2, 2}, want[] = {8. / 6, 1.5, 4, .5};
    static const char *const names[] = {"token-mean", "seq-mean-token-mean", "seq-mean-token-sum",
                                        "const"};
    struct lf_seqs s = {2, first, NULL};
    struct lf_pg_norm norm = {6, 2};
    for (int k = 0; k < 4; k++) {
        struct lf_pg_opts o = {.agg = (enum lf_pg_agg)k, .agg_length = 8};
        tap_f64(lf_pg_aggregate(&o, &s, &norm, x), want[k], TOL, names[k]);
        double ones[6] = {1, 1, 1, 1, 1, 1}, a[6], d[6];
        struct lf_pg_sums sums;
        for (int t = 0; t < 6; t++)
            a[t] = -x[t];
        tap_f64(loss_of(&o, &s, ones, a, d, &sums), want[k], TOL,
                "the loss aggregates in the same way");
    }
}

enum { N = 23, SEQS = 4 };
static const int64_t rnd_first[SEQS + 1] = {0, 5, 6, 14, 23};
static const uint8_t rnd_mask[N] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1,
                                    1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0};

struct rnd {
    double lp[N], old[N], ref[N], entropy[N], adv[N], dlp[N], dh[N];
};

static void rnd_fill(struct rnd *q, uint64_t seed)
{
    for (int t = 0; t < N; t++) {
        q->old[t] = -3 * lf_rng_f64(seed, 1, (uint64_t)t) - .01;
        q->lp[t] = q->old[t] + .4 * lf_rng_normal(seed, 2, (uint64_t)t);
        q->ref[t] = q->old[t] + .3 * lf_rng_normal(seed, 3, (uint64_t)t);
        q->entropy[t] = 2 * lf_rng_f64(seed, 4, (uint64_t)t);
        q->adv[t] = lf_rng_normal(seed, 5, (uint64_t)t);
    }
}

static double rnd_loss(struct rnd *q, const struct lf_pg_opts *o, size_t from, size_t to,
                       double *dlp, double *dh, struct lf_pg_sums *sums)
{
    struct lf_seqs all = {SEQS, rnd_first, rnd_mask}, s = {to - from, rnd_first + from, rnd_mask};
    struct lf_pg_batch b = {s, q->lp, q->old, q->ref, q->entropy, q->adv};
    struct lf_pg_norm norm = {lf_seqs_tokens(&all), SEQS};
    lf_err err = LF_ERR_INIT;
    if (lf_pg_loss(o, &b, &norm, dlp, dh, sums, &err))
        tap_bail("loss of a micro-batch: %s", err.text);
    return sums->loss;
}

/* Every setting: derivatives against differences of the loss itself. */
static void gradients(void)
{
    struct rnd q;
    double worst = 0, none[N], h = 1e-6;
    struct lf_pg_sums sums;
    for (int k = 0; k < 3 * 4 * 2 * 3; k++) {
        struct lf_pg_opts o = {.ratio = (enum lf_pg_ratio)(k % 3),
                               .agg = (enum lf_pg_agg)(k / 3 % 4),
                               .agg_length = 9,
                               .clip_low = .2,
                               .clip_high = .3,
                               .dual_clip = k / 12 % 2 ? 1.6 : 0,
                               .kl_coef = .3,
                               .entropy_coef = .07,
                               .kl = {(enum lf_kl_kind)(k / 24), false, 0, 0}};
        rnd_fill(&q, 10 + (uint64_t)k);
        rnd_loss(&q, &o, 0, SEQS, q.dlp, q.dh, &sums);
        for (int t = 0; t < N; t++) {
            double keep = q.lp[t], up, down, scale;
            q.lp[t] = keep + h;
            up = rnd_loss(&q, &o, 0, SEQS, none, NULL, &sums);
            q.lp[t] = keep - h;
            down = rnd_loss(&q, &o, 0, SEQS, none, NULL, &sums);
            q.lp[t] = keep;
            scale = fmax(1e-2, fabs(q.dlp[t]));
            worst = tap_worse(worst, fabs((up - down) / (2 * h) - q.dlp[t]) / scale);
            keep = q.entropy[t];
            q.entropy[t] = keep + h;
            up = rnd_loss(&q, &o, 0, SEQS, none, NULL, &sums);
            q.entropy[t] = keep;
            rnd_loss(&q, &o, 0, SEQS, none, NULL, &sums);
            worst = tap_worse(worst, fabs((up - sums.loss) / h - q.dh[t]) / 1e-2);
        }
    }
    tap_ok(worst < 1e-6, "derivatives equal differences over 72 settings (worst %.2g)", worst);
    tap_ok(q.dlp[8] == 0 && q.dlp[9] == 0 && q.dlp[22] == 0 && q.dh[8] == 0,
           "masked tokens have none");
}

static void micro_batches(void)
{
    struct rnd q;
    struct lf_pg_sums whole, part, parts;
    double d[N], dh[N], all[N], allh[N], worst = 0;
    for (int k = 0; k < 12; k++) {
        struct lf_pg_opts o = {.ratio = (enum lf_pg_ratio)(k % 3),
                               .agg = (enum lf_pg_agg)(k / 3),
                               .agg_length = 9,
                               .clip_low = .2,
                               .clip_high = .3,
                               .kl_coef = .1,
                               .entropy_coef = .01,
                               .kl = k3};
        rnd_fill(&q, 3);
        rnd_loss(&q, &o, 0, SEQS, all, allh, &whole);
        lf_pg_sums_begin(&parts);
        for (size_t i = 0; i < SEQS; i++) {
            rnd_loss(&q, &o, i, i + 1, d, dh, &part);
            lf_pg_sums_add(&parts, &part);
        }
        worst = tap_worse(worst, fabs(parts.loss - whole.loss));
        for (int t = 0; t < N; t++)
            worst = tap_worse(worst, fabs(d[t] - all[t]) + fabs(dh[t] - allh[t]));
    }
    tap_ok(worst < 1e-14, "one sequence at a time gives the loss and gradients of all (worst %.2g)",
           worst);
    tap_f64(parts.ratio_max, whole.ratio_max, 0, "and the extremes");
    tap_i64(parts.tokens, whole.tokens, "and the counts");
}

static void same_policy(void)
{
    struct rnd q;
    struct lf_pg_sums sums;
    struct lf_pg_opts o = {.clip_low = .2, .clip_high = .2, .kl_coef = .1, .kl = k3};
    rnd_fill(&q, 4);
    memcpy(q.lp, q.old, sizeof q.lp);
    memcpy(q.ref, q.old, sizeof q.ref);
    rnd_loss(&q, &o, 0, SEQS, q.dlp, NULL, &sums);
    tap_ok(sums.ratio_min == 1 && sums.ratio_max == 1,
           "the same log-probabilities: every ratio is exactly 1");
    tap_ok(sums.kl == 0 && sums.approx_kl == 0 && sums.diff_max == 0, "and every KL exactly 0");
    q.lp[1] += 1e-3;
    rnd_loss(&q, &o, 0, SEQS, q.dlp, NULL, &sums);
    tap_ok(sums.ratio_max > 1 && sums.kl > 0, "one that differs is seen");
    lf_err err = LF_ERR_INIT;
    struct lf_pg_norm norm = {19, SEQS};
    struct lf_pg_batch b = {{SEQS, rnd_first, rnd_mask}, q.lp, q.old, q.ref, NULL, q.adv};
    q.lp[7] = NAN;
    tap_rc(lf_pg_loss(&o, &b, &norm, q.dlp, NULL, &sums, &err), LF_ENUMERIC, &err,
           "sequence 2, token 1", "a NaN is named");
    q.lp[7] = -1;
    q.lp[8] = NAN;
    tap_rc(lf_pg_loss(&o, &b, &norm, q.dlp, NULL, &sums, &err), 0, &err, NULL,
           "one under the mask is not looked at");
}

static void value_loss(void)
{
    static const int64_t first[] = {0, 1};
    struct lf_seqs s = {1, first, NULL};
    struct lf_pg_norm norm = {1, 1};
    struct lf_value_sums sums;
    double d, v = 1, old = .5, ret = .9;
    lf_err err = LF_ERR_INIT;
    lf_value_loss(&(struct lf_value_batch){s, &v, &old, &ret}, .2, &norm, &d, &sums, &err);
    tap_f64(sums.loss, .02, 1e-12, "clipped value loss");
    tap_f64(d, 0, 0, "without slope");
    tap_f64(sums.clipped, 1, 0, "counted");
    lf_value_loss(&(struct lf_value_batch){s, &v, &old, &ret}, 0, &norm, &d, &sums, &err);
    tap_f64(sums.loss, .005, 1e-12, "without a clip");
    tap_f64(d, .1, 1e-12, "slope V - R");
    struct rnd q;
    double worst = 0, none[N], h = 1e-6;
    struct lf_seqs all = {SEQS, rnd_first, rnd_mask};
    norm = (struct lf_pg_norm){19, SEQS};
    rnd_fill(&q, 8);
    lf_value_loss(&(struct lf_value_batch){all, q.lp, q.old, q.ref}, .15, &norm, q.dlp, &sums,
                  &err);
    for (int t = 0; t < N; t++) {
        struct lf_value_sums up, down;
        double keep = q.lp[t];
        q.lp[t] = keep + h;
        lf_value_loss(&(struct lf_value_batch){all, q.lp, q.old, q.ref}, .15, &norm, none, &up,
                      &err);
        q.lp[t] = keep - h;
        lf_value_loss(&(struct lf_value_batch){all, q.lp, q.old, q.ref}, .15, &norm, none, &down,
                      &err);
        q.lp[t] = keep;
        worst = tap_worse(worst, fabs((up.loss - down.loss) / (2 * h) - q.dlp[t]));
    }
    tap_ok(worst < 1e-8, "its derivatives equal differences (worst %.2g)", worst);
}

static void critic_quality(void)
{
    static const double ret[] = {1, 2, 3, 4}, good[] = {1, 2, 3, 4}, shifted[] = {2, 3, 4, 5},
                        bad[] = {0, 0, 0, 0}, flat[] = {1, 1, 1, 1};
    struct lf_seqs s = {1, one4, NULL};
    tap_f64(lf_explained_variance(&s, ret, good), 1, 1e-12, "a perfect critic explains all");
    tap_f64(lf_explained_variance(&s, ret, shifted), 1, 1e-12,
            "a constant error explains all variance");
    tap_f64(lf_explained_variance(&s, ret, bad), 0, 1e-12, "a constant one nothing");
    tap_ok(isnan(lf_explained_variance(&s, flat, good)), "returns that do not vary: not a number");
}

static void shaping(void)
{
    struct lf_running run = {0};
    struct lf_shaping s = {.missing = LF_MISSING_PENALTY, .missing_value = 1};
    lf_err err = LF_ERR_INIT;
    tap_f64(lf_shape(&s, &run, .5, 10, false), -.5, 1e-12, "penalty without an end token");
    tap_f64(lf_shape(&s, &run, .5, 10, true), .5, 1e-12, "none with one");
    s.missing = LF_MISSING_REPLACE;
    s.missing_value = -1;
    tap_f64(lf_shape(&s, &run, .5, 10, false), -1, 0, "replaced");
    s.missing = LF_MISSING_SCALE;
    s.missing_value = .5;
    tap_f64(lf_shape(&s, &run, .5, 10, false), .25, 0, "scaled");
    s = (struct lf_shaping){.overlong_max = 100, .overlong_buffer = 20, .overlong_factor = 1};
    static const int64_t len[] = {80, 85, 90, 100, 130};
    static const double want[] = {0, -.25, -.5, -1, -1};
    for (int i = 0; i < 5; i++)
        tap_f64(lf_shape(&s, &run, 0, len[i], true), want[i], 1e-12, "soft overlong punishment");
    s = (struct lf_shaping){.clip = 5};
    tap_f64(lf_shape(&s, &run, 9, 1, true), 5, 0, "clipped");
    tap_f64(lf_shape(&s, &run, -9, 1, true), -5, 0, "clipped below");
    s = (struct lf_shaping){.scale = true};
    tap_f64(lf_shape(&s, &run, 9, 1, true), 9, 0, "no scale before there is one");
    for (int i = 0; i < 5; i++)
        lf_running_add(&run, i);
    tap_f64(run.mean, 2, 1e-12, "running mean");
    tap_f64(lf_running_std(&run), sqrt(2.5), 1e-12, "running standard deviation");
    tap_f64(lf_shape(&s, &run, 9, 1, true), 9 / sqrt(2.5), 1e-12, "scaled by it");
    tap_rc(lf_shaping_check(&(struct lf_shaping){.overlong_max = 5, .overlong_buffer = 6}, &err),
           LF_EINVAL, &err, "buffer of 6", "buffer");
}

static void options(void)
{
    lf_err err = LF_ERR_INIT;
    struct lf_pg_opts o = plain();
    tap_rc(lf_pg_opts_check(&o, &err), 0, &err, NULL, "plain options");
    o.dual_clip = .5;
    tap_rc(lf_pg_opts_check(&o, &err), LF_EINVAL, &err, "dual_clip", "dual clip below 1");
    o = plain();
    o.agg = LF_AGG_CONST;
    tap_rc(lf_pg_opts_check(&o, &err), LF_EINVAL, &err, "length", "const without a length");
}

int main(void)
{
    TAP(25, kl_values());
    TAP(6, kl_gradients());
    TAP(5, kl_control());
    TAP(6, mismatch());
    TAP(27, gae());
    TAP(13, gae_masks());
    TAP(10, whitening());
    TAP(11, groups());
    TAP(12, clipping());
    TAP(3, sequence_ratios());
    TAP(8, aggregation());
    TAP(2, gradients());
    TAP(3, micro_batches());
    TAP(5, same_policy());
    TAP(6, value_loss());
    TAP(4, critic_quality());
    TAP(16, shaping());
    TAP(3, options());
    return tap_done();
}
