/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of bt_loss.h. */
#include "engine/post/bt_loss.h"

#include <math.h>
#include <stddef.h>

/* log(1 + e^-x) without overflow on either side. */
static double minus_log_sigmoid(double x)
{
    return log1p(exp(-fabs(x))) + fmax(-x, 0);
}

static double sigmoid(double x)
{
    return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x));
}

double lf_bt_pair(double c, double r, double margin, double centre, double *dc, double *dr)
{
    const double x = c - r - margin, wrong = sigmoid(-x), pull = 2 * centre * (c + r);
    *dc = -wrong + pull;
    *dr = wrong + pull;
    return minus_log_sigmoid(x) + centre * (c + r) * (c + r);
}

static void add_pair(lf_bt_sums *s, double c, double r, double loss)
{
    const double low = fmin(c, r), high = fmax(c, r);
    s->min = s->pairs ? fmin(s->min, low) : low;
    s->max = s->pairs ? fmax(s->max, high) : high;
    s->pairs++;
    s->loss += loss;
    s->correct += c > r;
    s->margin += c - r;
    s->reward += c + r;
    s->reward_sq += c * c + r * r;
    s->chosen += c;
    s->rejected += r;
}

void lf_bt_loss(lf_bt_sums *sums, const struct lf_bt_pairs *p, double centre,
                const struct lf_bt_slopes *d)
{
    for (int64_t i = 0; i < p->n; i++) {
        const double c = (double)p->chosen[i], r = (double)p->rejected[i],
                     m = p->margin ? (double)p->margin[i] : 0;
        double dc, dr;
        add_pair(sums, c, r, lf_bt_pair(c, r, m, centre, &dc, &dr));
        if (!d)
            continue;
        d->chosen[i] = (float)(d->scale * dc);
        d->rejected[i] = (float)(d->scale * dr);
    }
}

void lf_bt_sums_add(lf_bt_sums *to, const lf_bt_sums *from)
{
    if (!from->pairs)
        return;
    to->min = to->pairs ? fmin(to->min, from->min) : from->min;
    to->max = to->pairs ? fmax(to->max, from->max) : from->max;
    to->pairs += from->pairs;
    to->loss += from->loss;
    to->correct += from->correct;
    to->margin += from->margin;
    to->reward += from->reward;
    to->reward_sq += from->reward_sq;
    to->chosen += from->chosen;
    to->rejected += from->rejected;
}

void lf_bt_sums_means(lf_bt_means *out, const lf_bt_sums *s)
{
    const double n = s->pairs ? (double)s->pairs : (double)NAN, mean = s->reward / (2 * n);
    *out = (lf_bt_means){.loss = s->loss / n,
                         .accuracy = s->correct / n,
                         .margin = s->margin / n,
                         .chosen = s->chosen / n,
                         .rejected = s->rejected / n,
                         .reward = mean,
                         .reward_std = sqrt(fmax(s->reward_sq / (2 * n) - mean * mean, 0)),
                         .min = s->pairs ? s->min : (double)NAN,
                         .max = s->pairs ? s->max : (double)NAN};
    if (!s->pairs)
        out->reward_std = (double)NAN;
}
