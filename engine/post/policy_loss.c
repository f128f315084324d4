/* SPDX-License-Identifier: Apache-2.0
 *
 * Policy and value losses: see policy_loss.h. */
#include "engine/post/policy_loss.h"

#include <math.h>

#define MAX_LOG_RATIO 20.0

int lf_pg_opts_check(const struct lf_pg_opts *o, lf_err *err)
{
    if (!(o->clip_low >= 0) || !(o->clip_high >= 0))
        return lf_fail(err, LF_EINVAL, "clip_low = %g, clip_high = %g: both must be 0 or more",
                       o->clip_low, o->clip_high);
    if (o->dual_clip < 0 || (o->dual_clip > 0 && !(o->dual_clip > 1)))
        return lf_fail(err, LF_EINVAL, "dual_clip = %g: it must be above 1, or 0 for none",
                       o->dual_clip);
    if (o->agg == LF_AGG_CONST && !(o->agg_length > 0))
        return lf_fail(err, LF_EINVAL, "aggregation = const needs a length to divide by");
    return 0;
}

void lf_pg_sums_begin(struct lf_pg_sums *s)
{
    *s = (struct lf_pg_sums){.ratio_min = INFINITY, .ratio_max = -INFINITY};
}

void lf_pg_sums_add(struct lf_pg_sums *to, const struct lf_pg_sums *m)
{
    to->loss += m->loss;
    to->pg += m->pg;
    to->kl += m->kl;
    to->entropy += m->entropy;
    to->ratio += m->ratio;
    to->ratio_sq += m->ratio_sq;
    to->ratio_min = fmin(to->ratio_min, m->ratio_min);
    to->ratio_max = fmax(to->ratio_max, m->ratio_max);
    to->approx_kl += m->approx_kl;
    to->diff += m->diff;
    to->mult += m->mult;
    to->gen_kl += m->gen_kl;
    to->js += m->js;
    to->diff_max = fmax(to->diff_max, m->diff_max);
    to->clip_low += m->clip_low;
    to->clip_high += m->clip_high;
    to->clip_dual += m->clip_dual;
    to->tokens += m->tokens;
}

/* w_t of every token of a sequence of `length` tokens. */
static double weight(const struct lf_pg_opts *o, const struct lf_pg_norm *norm, int64_t length)
{
    switch (o->agg) {
    case LF_AGG_SEQ_MEAN_TOKEN_MEAN:
        return 1 / ((double)norm->sequences * (double)length);
    case LF_AGG_SEQ_MEAN_TOKEN_SUM:
        return 1 / (double)norm->sequences;
    case LF_AGG_CONST:
        return 1 / ((double)norm->sequences * o->agg_length);
    default:
        return 1 / (double)norm->tokens;
    }
}

double lf_pg_aggregate(const struct lf_pg_opts *o, const struct lf_seqs *s,
                       const struct lf_pg_norm *norm, const double *x)
{
    double sum = 0;
    for (size_t i = 0; i < s->n; i++) {
        double part = 0;
        for (int64_t t = s->first[i]; t < s->first[i + 1]; t++)
            part += lf_seqs_on(s, t) ? x[t] : 0;
        sum += part * weight(o, norm, lf_seqs_length(s, i));
    }
    return sum;
}

/* The clipped surrogate of one token and its slope in r. */
static double surrogate(const struct lf_pg_opts *o, double a, double r, double *slope,
                        struct lf_pg_sums *sums)
{
    double lo = 1 - o->clip_low, hi = 1 + o->clip_high, clipped = fmin(fmax(r, lo), hi),
           loss = -a * r;
    *slope = -a;
    if (-a * clipped >
        loss) { /* the bound is the larger loss: what stands outside of it has no slope */
        loss = -a * clipped;
        *slope = 0;
        if (r < lo)
            sums->clip_low++;
        else
            sums->clip_high++;
    }
    if (o->dual_clip > 0 && a < 0 && loss > -a * o->dual_clip) {
        loss = -a * o->dual_clip;
        *slope = 0;
        sums->clip_dual++;
    }
    return loss;
}

static double log_ratio(const struct lf_pg_batch *b, int64_t t)
{
    return fmin(fmax(b->lp[t] - b->old[t], -MAX_LOG_RATIO), MAX_LOG_RATIO);
}

/* d x_t / d lp_t. */
static double open_ratio(const struct lf_pg_batch *b, int64_t t)
{
    return fabs(b->lp[t] - b->old[t]) <= MAX_LOG_RATIO;
}

static int check_token(const struct lf_pg_opts *o, const struct lf_pg_batch *b, size_t i, int64_t t,
                       lf_err *err)
{
    const char *what = !isfinite(b->lp[t])                      ? "log-probability"
                       : !isfinite(b->old[t])                   ? "log-probability of the rollout"
                       : !isfinite(b->adv[t])                   ? "advantage"
                       : o->kl_coef > 0 && !isfinite(b->ref[t]) ? "log-probability of the reference"
                       : b->entropy && !isfinite(b->entropy[t]) ? "entropy"
                                                                : NULL;
    return what ? lf_fail(err, LF_ENUMERIC, "sequence %zu, token %lld: the %s is not finite", i,
                          (long long)(t - b->s.first[i]), what)
                : 0;
}

static const struct lf_kl_opts raw_k3 = {LF_KL_K3, false, MAX_LOG_RATIO, 0};

static double jensen_shannon(double lp, double old)
{
    const double top = fmax(lp, old), m = top + (log1p(exp(fmin(lp, old) - top)) -
                                                 log(2)); /* equal: exactly 0 in the end */
    return 0.5 * (lf_kl(&raw_k3, m, lp) + lf_kl(&raw_k3, m, old));
}

/* What is the same for every way to form ratios: KL, entropy, metrics of a token. Returns its part
 * of the loss. */
static double extras(const struct lf_pg_opts *o, const struct lf_pg_batch *b, int64_t t, double w,
                     double *dlp, double *dentropy, struct lf_pg_sums *s)
{
    double loss = 0, x = b->lp[t] - b->old[t];
    if (o->kl_coef > 0) {
        double kl = lf_kl(&o->kl, b->lp[t], b->ref[t]);
        s->kl += kl;
        loss += o->kl_coef * kl;
        dlp[t] += w * o->kl_coef * lf_kl_grad(&o->kl, b->lp[t], b->ref[t]);
    }
    if (b->entropy) {
        s->entropy += b->entropy[t];
        loss -= o->entropy_coef * b->entropy[t];
    }
    if (dentropy)
        dentropy[t] = -w * o->entropy_coef;
    s->approx_kl += 0.5 * x * x;
    s->diff += fabs(x);
    s->gen_kl += lf_kl(&raw_k3, b->old[t], b->lp[t]);
    s->js += jensen_shannon(b->lp[t], b->old[t]);
    s->mult += exp(fmin(fabs(x), MAX_LOG_RATIO));
    s->diff_max = fmax(s->diff_max, fabs(x));
    s->tokens++;
    return loss;
}

static void note_ratio(struct lf_pg_sums *s, double r)
{
    s->ratio += r;
    s->ratio_sq += r * r;
    s->ratio_min = fmin(s->ratio_min, r);
    s->ratio_max = fmax(s->ratio_max, r);
}

/* One ratio per sequence: its slope goes to every token, `share` of it to each. */
static double sequence_ratio(const struct lf_pg_opts *o, const struct lf_pg_batch *b, size_t i,
                             int64_t length, double *share)
{
    double x = 0;
    for (int64_t t = b->s.first[i]; t < b->s.first[i + 1]; t++)
        x += lf_seqs_on(&b->s, t) ? log_ratio(b, t) : 0;
    *share = o->ratio == LF_RATIO_SEQUENCE ? 1 / (double)length : 1;
    x = fmin(fmax(x * *share, -MAX_LOG_RATIO), MAX_LOG_RATIO);
    return exp(x);
}

/* Where the derivatives go, [tokens]; dentropy may be NULL. */
struct slopes {
    double *dlp, *dentropy;
};

static int one_sequence(const struct lf_pg_opts *o, const struct lf_pg_batch *b,
                        const struct lf_pg_norm *norm, size_t i, const struct slopes *d,
                        struct lf_pg_sums *s, lf_err *err)
{
    double *dlp = d->dlp, *dentropy = d->dentropy;
    const int64_t length = lf_seqs_length(&b->s, i);
    const double w = length ? weight(o, norm, length) : 0;
    double share = 1, of_all = 0, all = 1;
    for (int64_t t = b->s.first[i]; t < b->s.first[i + 1]; t++) {
        int rc = lf_seqs_on(&b->s, t) ? check_token(o, b, i, t, err) : 0;
        if (rc != 0)
            return rc;
    }
    if (o->ratio != LF_RATIO_TOKEN && length)
        all = sequence_ratio(o, b, i, length, &share);
    for (int64_t t = b->s.first[i]; t < b->s.first[i + 1]; t++) {
        dlp[t] = 0;
        if (dentropy)
            dentropy[t] = 0;
        if (!lf_seqs_on(&b->s, t))
            continue;
        double r = o->ratio == LF_RATIO_TOKEN ? exp(log_ratio(b, t)) : all, slope;
        double loss = surrogate(o, b->adv[t], r, &slope, s);
        if (o->ratio == LF_RATIO_TOKEN)
            dlp[t] = w * slope * r * open_ratio(b, t);
        else
            of_all += w * slope * r;
        note_ratio(s, r);
        s->pg += w * loss;
        s->loss += w * (loss + extras(o, b, t, w, dlp, dentropy, s));
    }
    for (int64_t t = b->s.first[i]; o->ratio != LF_RATIO_TOKEN && t < b->s.first[i + 1]; t++)
        if (lf_seqs_on(&b->s, t))
            dlp[t] += of_all * share * open_ratio(b, t);
    return 0;
}

int lf_pg_loss(const struct lf_pg_opts *o, const struct lf_pg_batch *b,
               const struct lf_pg_norm *norm, double *dlp, double *dentropy,
               struct lf_pg_sums *sums, lf_err *err)
{
    const struct slopes d = {dlp, dentropy};
    struct lf_pg_sums s;
    lf_pg_sums_begin(&s);
    for (size_t i = 0; i < b->s.n; i++) {
        int rc = one_sequence(o, b, norm, i, &d, &s, err);
        if (rc != 0)
            return rc;
    }
    *sums = s;
    return 0;
}

static int value_token(double v, double old, double ret, double clip, double *slope, bool *clipped,
                       double *loss)
{
    double d = v - ret, bounded = clip > 0 ? fmin(fmax(v, old - clip), old + clip) : v,
           c = bounded - ret;
    *clipped = c * c > d * d;
    *loss = 0.5 * (*clipped ? c * c : d * d);
    *slope = *clipped ? 0 : d; /* where the bounded one is larger, v is outside the bounds */
    return isfinite(v) && isfinite(old) && isfinite(ret) ? 0 : LF_ENUMERIC;
}

int lf_value_loss(const struct lf_value_batch *b, double clip, const struct lf_pg_norm *norm,
                  double *dvalue, struct lf_value_sums *sums, lf_err *err)
{
    const struct lf_seqs *s = &b->s;
    struct lf_value_sums all = {0};
    const double w = 1 / (double)norm->tokens;
    for (size_t i = 0; i < s->n; i++)
        for (int64_t t = s->first[i]; t < s->first[i + 1]; t++) {
            double slope, loss;
            bool clipped;
            dvalue[t] = 0;
            if (!lf_seqs_on(s, t))
                continue;
            if (value_token(b->value[t], b->old[t], b->ret[t], clip, &slope, &clipped, &loss))
                return lf_fail(err, LF_ENUMERIC,
                               "sequence %zu, token %lld: value or return is not finite", i,
                               (long long)(t - s->first[i]));
            dvalue[t] = w * slope;
            all.loss += w * loss;
            all.clipped += clipped;
            all.value += b->value[t];
            all.tokens++;
        }
    *sums = all;
    return 0;
}
