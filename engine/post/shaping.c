/* SPDX-License-Identifier: Apache-2.0
 *
 * Shaping of scores: see shaping.h. */
#include "engine/post/shaping.h"

#include <math.h>

int lf_shaping_check(const struct lf_shaping *s, lf_err *err)
{
    if (s->missing == LF_MISSING_PENALTY && !(s->missing_value >= 0))
        return lf_fail(
            err, LF_EINVAL,
            "the penalty for a missing end token is %g: it is subtracted, so it must be 0 or more",
            s->missing_value);
    if (s->overlong_buffer < 0 || s->overlong_buffer > s->overlong_max)
        return lf_fail(err, LF_EINVAL, "an overlong buffer of %lld tokens does not fit %lld",
                       (long long)s->overlong_buffer, (long long)s->overlong_max);
    if (!(s->clip >= 0))
        return lf_fail(err, LF_EINVAL, "scores cannot be clipped to %g", s->clip);
    return 0;
}

void lf_running_add(struct lf_running *r, double x)
{
    double d = x - r->mean;
    r->n++;
    r->mean += d / (double)r->n;
    r->m2 += d * (x - r->mean);
}

double lf_running_std(const struct lf_running *r)
{
    return r->n > 1 && r->m2 > 0 ? sqrt(r->m2 / (double)(r->n - 1)) : 1;
}

static double missing(const struct lf_shaping *s, double score)
{
    switch (s->missing) {
    case LF_MISSING_PENALTY:
        return score - s->missing_value;
    case LF_MISSING_REPLACE:
        return s->missing_value;
    case LF_MISSING_SCALE:
        return score * s->missing_value;
    default:
        return score;
    }
}

double lf_shape(const struct lf_shaping *s, const struct lf_running *r, double score,
                int64_t length, bool ended)
{
    if (!ended)
        score = missing(s, score);
    int64_t over = s->overlong_buffer > 0 ? length - (s->overlong_max - s->overlong_buffer) : 0;
    if (over > 0)
        score -= (double)(over < s->overlong_buffer ? over : s->overlong_buffer) /
                 (double)s->overlong_buffer * s->overlong_factor;
    if (s->scale)
        score /= lf_running_std(r);
    return s->clip > 0 ? fmin(fmax(score, -s->clip), s->clip) : score;
}
