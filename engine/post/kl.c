/* SPDX-License-Identifier: Apache-2.0
 *
 * KL estimators and their coefficient: see kl.h. */
#include "engine/post/kl.h"

#include <math.h>

#define MAX_ERROR 0.2 /* of one update of the controller */

/* NaN stays NaN, of which fmin and fmax would make a bound. */
static double clamp(double x, double bound)
{
    return !(bound > 0) ? x : x < -bound ? -bound : x > bound ? bound : x;
}

static bool held(double x, double bound)
{
    return bound > 0 && !(fabs(x) <= bound);
}

static double estimate(enum lf_kl_kind kind, double k1)
{
    switch (kind) {
    case LF_KL_K2:
        return 0.5 * k1 * k1;
    case LF_KL_K3:
        return expm1(-k1) + k1;
    default:
        return k1;
    }
}

double lf_kl(const struct lf_kl_opts *o, double lp, double ref)
{
    return clamp(estimate(o->kind, clamp(lp - ref, o->clamp_in)), o->clamp_out);
}

double lf_kl_grad(const struct lf_kl_opts *o, double lp, double ref)
{
    const double k1 = lp - ref;
    if (o->straight)
        return clamp(k1, o->clamp_in);
    if (held(k1, o->clamp_in) || held(estimate(o->kind, k1), o->clamp_out))
        return 0;
    switch (o->kind) {
    case LF_KL_K2:
        return k1;
    case LF_KL_K3:
        return -expm1(-k1);
    default:
        return 1;
    }
}

int lf_kl_control_check(const struct lf_kl_control *c, lf_err *err)
{
    if (!(c->beta >= 0) || !isfinite(c->beta))
        return lf_fail(err, LF_EINVAL, "the KL coefficient is %g: it must be 0 or more", c->beta);
    if (c->adaptive && (!(c->beta > 0) || !(c->target > 0) || !(c->horizon > 0)))
        return lf_fail(err, LF_EINVAL,
                       "an adaptive KL coefficient needs a beginning, a target and a horizon above "
                       "0 (%g, %g, %g)",
                       c->beta, c->target, c->horizon);
    return 0;
}

void lf_kl_control_update(struct lf_kl_control *c, double kl, int64_t n)
{
    if (c->adaptive)
        c->beta *= 1 + clamp(kl / c->target - 1, MAX_ERROR) * (double)n / c->horizon;
}
