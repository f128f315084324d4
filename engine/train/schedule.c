/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate schedules and the batch ramp. */
#include "engine/train/schedule.h"

#include <math.h>

int lf_schedule_check(const lf_schedule *s, lf_err *err)
{
    if (!(s->peak > 0))
        return lf_fail(err, LF_EINVAL, "lr must be above 0");
    if (s->min < 0 || s->min > s->peak)
        return lf_fail(err, LF_EINVAL, "min_lr = %g is not within 0 and lr = %g", s->min, s->peak);
    if (s->warmup < 0 || s->total < 1 || s->warmup > s->total)
        return lf_fail(err, LF_EINVAL,
                       "the warm-up of %lld samples is longer than the schedule of %lld",
                       (long long)s->warmup, (long long)s->total);
    if (s->kind != LF_SCHED_WSD)
        return 0;
    if (s->decay < 0 || s->warmup + s->decay > s->total)
        return lf_fail(err, LF_EINVAL,
                       "warm-up (%lld) and decay (%lld samples) do not fit in the schedule of %lld",
                       (long long)s->warmup, (long long)s->decay, (long long)s->total);
    if (s->tail == LF_TAIL_EXP && !(s->min > 0))
        return lf_fail(err, LF_EINVAL, "an exponential decay needs min_lr above 0");
    return 0;
}

static double cosine(double from, double to, double u)
{
    return to + (from - to) * 0.5 * (1 + cos(M_PI * u));
}

static double tail(const lf_schedule *s, double x)
{
    double v = (x - (double)(s->total - s->decay)) / (double)s->decay;
    switch (s->tail) {
    case LF_TAIL_LINEAR:
        return s->peak + (s->min - s->peak) * v;
    case LF_TAIL_COSINE:
        return cosine(s->peak, s->min, v);
    case LF_TAIL_EXP:
        return s->peak * pow(s->min / s->peak, v);
    case LF_TAIL_SQRT:
        return s->peak + (s->min - s->peak) * sqrt(v);
    }
    return s->peak;
}

double lf_schedule_lr(const lf_schedule *s, int64_t samples)
{
    if (samples > s->total)
        samples = s->total;
    double x = (double)samples;
    if (samples < s->warmup)
        return s->peak * x / (double)s->warmup;
    if (samples == s->warmup && s->warmup > 0)
        return s->peak;
    double u = s->total > s->warmup ? (x - (double)s->warmup) / (double)(s->total - s->warmup) : 1;
    switch (s->kind) {
    case LF_SCHED_CONSTANT:
        return s->peak;
    case LF_SCHED_LINEAR:
        return s->peak + (s->min - s->peak) * u;
    case LF_SCHED_COSINE:
        return cosine(s->peak, s->min, u);
    case LF_SCHED_INVERSE_SQRT:
        return fmax(s->min, s->peak * sqrt((s->warmup > 1 ? (double)s->warmup : 1) / fmax(x, 1)));
    case LF_SCHED_WSD:
        return s->decay > 0 && samples > s->total - s->decay ? tail(s, x) : s->peak;
    }
    return s->peak;
}

int64_t lf_ramp_samples(const lf_ramp_row *rows, size_t n, int64_t at)
{
    size_t i = n - 1;
    while (i > 0 && rows[i].from_sample > at)
        i--;
    return rows[i].samples;
}

/* Whole rows at a time: a run may have millions of steps. Walks until `steps` or `samples` is
 * reached. */
static void walk(const lf_ramp_row *rows, size_t n, int64_t steps, int64_t samples,
                 int64_t *out_steps, int64_t *out_samples)
{
    int64_t at = 0, done = 0;
    for (size_t i = 0; i < n && done < steps && at < samples; i++) {
        int64_t end = i + 1 < n ? rows[i + 1].from_sample : INT64_MAX;
        if (end > samples)
            end = samples;
        if (at >= end)
            continue;
        int64_t k = (end - at) / rows[i].samples + ((end - at) % rows[i].samples != 0);
        if (k > steps - done)
            k = steps - done;
        done += k;
        at += k * rows[i].samples;
    }
    *out_steps = done;
    *out_samples = at;
}

int64_t lf_ramp_samples_of_steps(const lf_ramp_row *rows, size_t n, int64_t steps)
{
    int64_t s, x;
    walk(rows, n, steps, INT64_MAX, &s, &x);
    return x;
}

int64_t lf_ramp_steps_to(const lf_ramp_row *rows, size_t n, int64_t samples)
{
    int64_t s, x;
    walk(rows, n, INT64_MAX, samples, &s, &x);
    return s;
}

double lf_average_share(const struct lf_average *a, int64_t step)
{
    const double k = (double)(step - a->start);
    if (!(a->decay > 0))
        return 0;
    if (k <= 0)
        return 1;
    return a->warmup ? fmax(1 - a->decay, 9 / (10 + k)) : 1 - a->decay;
}
