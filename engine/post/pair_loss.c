/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses on judged answers: values and derivatives. */
#include "engine/post/pair_loss.h"

#include <math.h>

double lf_log_sigmoid(double x)
{
    return x >= 0 ? -log1p(exp(-x)) : x - log1p(exp(x));
}

double lf_sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

bool lf_pair_needs_reference(enum lf_pair_kind kind)
{
    return kind != LF_PAIR_ORPO && kind != LF_PAIR_SIMPO;
}

int lf_pair_check(const struct lf_pair_opts *o, lf_err *err)
{
    if (!(o->beta > 0))
        return lf_fail(err, LF_EINVAL, "beta must be positive");
    if (!(o->smoothing >= 0 && o->smoothing < 0.5))
        return lf_fail(err, LF_EINVAL, "label_smoothing must be at least 0 and below 0.5");
    if (o->smoothing > 0 && o->kind != LF_PAIR_SIGMOID && o->kind != LF_PAIR_ROBUST)
        return lf_fail(err, LF_EINVAL,
                       "label_smoothing belongs to loss = sigmoid and loss = robust");
    if (!(o->gamma >= 0) || (o->gamma > 0 && o->kind != LF_PAIR_SIMPO))
        return lf_fail(err, LF_EINVAL, "gamma belongs to loss = simpo and must not be negative");
    if (!(o->nll >= 0) || (o->nll > 0 && o->kind == LF_PAIR_ORPO))
        return lf_fail(err, LF_EINVAL,
                       "nll must not be negative, and loss = orpo has that term already");
    return 0;
}

/* Of a loss f(x) with x = k h: value, and df/dh in *slope. */
static double of_difference(const struct lf_pair_opts *o, double h, double *slope)
{
    const double s = o->smoothing, x = o->beta * h;
    double d;
    switch (o->kind) {
    case LF_PAIR_ROBUST:
        d = (-(1 - s) * lf_sigmoid(-x) - s * lf_sigmoid(x)) / (1 - 2 * s);
        *slope = o->beta * d;
        return (-(1 - s) * lf_log_sigmoid(x) + s * lf_log_sigmoid(-x)) / (1 - 2 * s);
    case LF_PAIR_HINGE:
        *slope = x < 1 ? -o->beta : 0;
        return x < 1 ? 1 - x : 0;
    case LF_PAIR_IPO:
        *slope = 2 * (h - 1 / (2 * o->beta));
        return (h - 1 / (2 * o->beta)) * (h - 1 / (2 * o->beta));
    case LF_PAIR_SIMPO:
        *slope = -o->beta * lf_sigmoid(o->gamma - x);
        return -lf_log_sigmoid(x - o->gamma);
    default:
        *slope = o->beta * (-(1 - s) * lf_sigmoid(-x) + s * lf_sigmoid(x));
        return -(1 - s) * lf_log_sigmoid(x) - s * lf_log_sigmoid(-x);
    }
}

/* log odds(a) and its derivative 1 / (1 - e^a); a < 0. */
static double log_odds(double a, double *slope)
{
    const double rest = -expm1(a); /* 1 - p */
    *slope = 1 / rest;
    return a - log(rest);
}

static void orpo(const struct lf_pair_opts *o, double ac, double ar, struct lf_pair_result *r,
                 double *dc, double *dr)
{
    double sc, sr, odds = log_odds(ac, &sc) - log_odds(ar, &sr),
                   slope = -o->beta * lf_sigmoid(-odds);
    r->loss = -ac - o->beta * lf_log_sigmoid(odds);
    *dc = -1 + slope * sc;
    *dr = -slope * sr;
}

struct lf_pair_result lf_pair_loss(const struct lf_pair_opts *o, const struct lf_answer *c,
                                   const struct lf_answer *r)
{
    const bool ref = lf_pair_needs_reference(o->kind), means = !ref || o->kind == LF_PAIR_IPO;
    const double nc = (double)c->n, nr = (double)r->n, kc = means ? 1 / nc : 1,
                 kr = means ? 1 / nr : 1;
    const double lc = c->logp - (ref ? c->ref : 0), lr = r->logp - (ref ? r->ref : 0);
    struct lf_pair_result out = {.nll = -c->logp / nc};
    out.reward_chosen = o->beta * (ref ? lc : lc / nc);
    out.reward_rejected = o->beta * (ref ? lr : lr / nr);
    double dc, dr;
    if (o->kind == LF_PAIR_ORPO) {
        orpo(o, lc / nc, lr / nr, &out, &dc, &dr);
    } else {
        out.loss = of_difference(o, kc * lc - kr * lr, &dc) + o->nll * out.nll;
        dr = -dc;
    }
    out.d_chosen = dc * kc - (o->kind == LF_PAIR_ORPO ? 0 : o->nll / nc);
    out.d_rejected = dr * kr;
    return out;
}

struct lf_kto_result lf_kto_loss(const struct lf_kto_opts *o, const struct lf_answer *a, bool good,
                                 double z)
{
    const double d = a->logp - a->ref, x = o->beta * (good ? d - z : z - d), p = lf_sigmoid(x),
                 w = good ? o->w_good : o->w_bad;
    const double slope = -w * p * lf_sigmoid(-x) * o->beta;
    return (struct lf_kto_result){
        .loss = w * lf_sigmoid(-x), .d_logp = good ? slope : -slope, .reward = o->beta * d};
}

double lf_kto_z(double sum, double n)
{
    return n > 0 && sum > 0 ? sum / n : 0;
}
