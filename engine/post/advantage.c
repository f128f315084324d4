/* SPDX-License-Identifier: Apache-2.0
 *
 * Advantage estimators: see advantage.h. */
#include "engine/post/advantage.h"

#include <math.h>

#define MIN_VARIANCE 1e-8

int64_t lf_seqs_length(const struct lf_seqs *s, size_t i)
{
    int64_t n = 0;
    for (int64_t t = s->first[i]; t < s->first[i + 1]; t++)
        n += lf_seqs_on(s, t);
    return n;
}

int64_t lf_seqs_tokens(const struct lf_seqs *s)
{
    int64_t n = 0;
    for (size_t i = 0; i < s->n; i++)
        n += lf_seqs_length(s, i);
    return n;
}

int64_t lf_seqs_last(const struct lf_seqs *s, size_t i)
{
    for (int64_t t = s->first[i + 1] - 1; t >= s->first[i]; t--)
        if (lf_seqs_on(s, t))
            return t;
    return -1;
}

void lf_token_rewards(double *reward, const struct lf_seqs *s, const double *score,
                      const double *kl, double beta)
{
    for (int64_t t = s->first[0]; t < s->first[s->n]; t++)
        reward[t] = kl && lf_seqs_on(s, t) ? -beta * kl[t] : 0;
    for (size_t i = 0; i < s->n; i++) {
        int64_t last = lf_seqs_last(s, i);
        if (last >= 0)
            reward[last] += score[i];
    }
}

void lf_gae(double *adv, double *ret, const struct lf_seqs *s, const double *reward,
            const double *value, double gamma, double lambda)
{
    for (size_t i = 0; i < s->n; i++) {
        double next_v = 0, next_a = 0;
        for (int64_t t = s->first[i + 1] - 1; t >= s->first[i]; t--) {
            adv[t] = 0;
            if (ret != 0)
                ret[t] = 0;
            if (!lf_seqs_on(s, t)) /* carries what comes behind it */
                continue;
            double v = value ? value[t] : 0;
            next_a = reward[t] + gamma * next_v - v + gamma * lambda * next_a;
            next_v = v;
            adv[t] = next_a;
            if (ret != 0)
                ret[t] = next_a + v;
        }
    }
}

static double mean_of(const double *x, const struct lf_seqs *s, int64_t n)
{
    double sum = 0;
    for (int64_t t = s->first[0]; t < s->first[s->n]; t++)
        sum += lf_seqs_on(s, t) ? x[t] : 0;
    return sum / (double)n;
}

static double squares_about(const double *x, const struct lf_seqs *s, double mean)
{
    double sum = 0;
    for (int64_t t = s->first[0]; t < s->first[s->n]; t++)
        sum += lf_seqs_on(s, t) ? (x[t] - mean) * (x[t] - mean) : 0;
    return sum;
}

void lf_whiten(double *x, const struct lf_seqs *s, bool biased, bool keep_mean)
{
    int64_t n = lf_seqs_tokens(s);
    if (n < 1)
        return;
    double mean = mean_of(x, s, n), by = biased || n < 2 ? (double)n : (double)(n - 1);
    double scale = 1 / sqrt(fmax(squares_about(x, s, mean) / by, MIN_VARIANCE));
    for (int64_t t = s->first[0]; t < s->first[s->n]; t++)
        if (lf_seqs_on(s, t))
            x[t] = (x[t] - mean) * scale + (keep_mean ? mean : 0);
}

bool lf_group_flat(const double *score, size_t group)
{
    for (size_t k = 1; k < group; k++)
        if (score[k] < score[0] || score[k] > score[0])
            return false;
    return true;
}

static void one_group(double *adv, const double *score, size_t group, enum lf_group_kind kind,
                      double eps)
{
    double sum = 0, squares = 0;
    for (size_t k = 0; k < group; k++)
        sum += score[k];
    double mean = sum / (double)group;
    for (size_t k = 0; k < group; k++)
        squares += (score[k] - mean) * (score[k] - mean);
    double std = sqrt(squares / (double)(group - 1)); /* not flat: group > 1 */
    for (size_t k = 0; k < group; k++)
        adv[k] = kind == LF_GROUP_GRPO   ? (score[k] - mean) / (std + eps)
                 : kind == LF_GROUP_RLOO ? score[k] - (sum - score[k]) / (double)(group - 1)
                                         : score[k] - mean;
}

int64_t lf_group_advantage(double *adv, const double *score, size_t n, size_t group,
                           enum lf_group_kind kind, double eps, lf_err *err)
{
    int64_t flat = 0;
    if (group < 1 || n % group)
        return lf_fail(err, LF_EINVAL, "%zu sequences are not groups of %zu", n, group);
    if (kind == LF_GROUP_RLOO && group < 2)
        return lf_fail(err, LF_EINVAL, "leave-one-out needs groups of 2 or more samples");
    for (size_t i = 0; i < n; i += group) {
        if (!lf_group_flat(score + i, group)) {
            one_group(adv + i, score + i, group, kind, eps);
            continue;
        }
        flat++;
        for (size_t k = 0; k < group; k++)
            adv[i + k] = 0;
    }
    return flat;
}

void lf_spread(double *adv, const struct lf_seqs *s, const double *of_seq)
{
    for (size_t i = 0; i < s->n; i++)
        for (int64_t t = s->first[i]; t < s->first[i + 1]; t++)
            adv[t] = lf_seqs_on(s, t) ? of_seq[i] : 0;
}

double lf_explained_variance(const struct lf_seqs *s, const double *ret, const double *value)
{
    int64_t n = lf_seqs_tokens(s);
    double sum = 0, left = 0;
    if (n < 1)
        return NAN;
    for (int64_t t = s->first[0]; t < s->first[s->n]; t++)
        sum += lf_seqs_on(s, t) ? ret[t] - value[t] : 0;
    for (int64_t t = s->first[0]; t < s->first[s->n]; t++) {
        double d = lf_seqs_on(s, t) ? ret[t] - value[t] - sum / (double)n : 0;
        left += d * d;
    }
    double all = squares_about(ret, s, mean_of(ret, s, n));
    return all > 0 ? 1 - left / all : (double)NAN;
}
