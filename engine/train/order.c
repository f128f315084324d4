/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of training samples, as pure functions of a few integers.
 *
 * Blend: Tijdeman's algorithm for the chairman assignment problem (Discrete Mathematics 32, 1980):
 * at every step, among the datasets that are behind enough to be eligible, take the one whose
 * deadline comes first. With K datasets no count is ever off its exact share by 1 - 1/(2K - 2) or
 * more. The state repeats after `total` samples, so any place is found by at most that many integer
 * steps.
 */
#include <math.h>
#include <string.h>

#include "engine/base/rng.h"
#include "engine/train/loader_priv.h"

enum { SITE_EPOCH = 0x10ad0001, SITE_SHUFFLE = 0x10ad0002 };

static uint32_t gcd(uint32_t a, uint32_t b)
{
    while (b) {
        uint32_t t = a % b;
        a = b;
        b = t;
    }
    return a;
}

/* weight * scale as whole numbers, if they are: so that 1:1:1 and 0.7:0.3 are exact. */
static bool whole_weights(uint32_t *w, const double *weight, size_t n, double scale)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++) {
        double v = weight[k] * scale, r = nearbyint(v);
        if (r < 1 || r > LF_LOADER_WEIGHT_TOTAL || fabs(v - r) > 1e-9 * r)
            return false;
        w[k] = (uint32_t)r;
        sum += r;
    }
    return sum <= LF_LOADER_WEIGHT_TOTAL;
}

/* Shares of LF_LOADER_WEIGHT_TOTAL by largest remainder, ties to the earlier one. */
static void rounded_weights(uint32_t *w, const double *weight, size_t n, double sum)
{
    double rest[LF_LOADER_MAX_SOURCES];
    uint32_t given = 0;
    for (size_t k = 0; k < n; k++) {
        double v = weight[k] / sum * LF_LOADER_WEIGHT_TOTAL;
        w[k] = (uint32_t)v;
        rest[k] = v - (double)w[k];
        given += w[k];
    }
    for (; given < LF_LOADER_WEIGHT_TOTAL; given++) {
        size_t best = 0;
        for (size_t k = 1; k < n; k++)
            if (rest[k] > rest[best])
                best = k;
        w[best]++;
        rest[best] = -1;
    }
}

int lf_blend_weights(uint32_t *w, uint32_t *total, const double *weight, size_t n, lf_err *err)
{
    double sum = 0, scale = 1;
    bool whole = false;
    if (n < 1 || n > LF_LOADER_MAX_SOURCES)
        return lf_fail(err, LF_EINVAL, "%zu datasets; 1 to %d are possible", n,
                       LF_LOADER_MAX_SOURCES);
    for (size_t k = 0; k < n; k++) {
        if (!(weight[k] > 0) || !isfinite(weight[k]))
            return lf_fail(err, LF_EINVAL, "the weight of dataset %zu is %g; weights are positive",
                           k, weight[k]);
        sum += weight[k];
    }
    if (!isfinite(sum))
        return lf_fail(err, LF_EINVAL, "the weights of the datasets overflow");
    for (int i = 0; i <= 6 && !whole; i++, scale *= 10)
        whole = whole_weights(w, weight, n, scale);
    if (!whole)
        rounded_weights(w, weight, n, sum);
    uint32_t g = 0;
    for (size_t k = 0; k < n; k++) {
        if (w[k] == 0)
            return lf_fail(err, LF_EINVAL,
                           "the weight of dataset %zu is %g of %g: less than 1 sample in 10^6", k,
                           weight[k], sum);
        g = gcd(w[k], g);
    }
    *total = 0;
    for (size_t k = 0; k < n; k++) {
        w[k] /= g;
        *total += w[k];
    }
    return 0;
}

/* With c = 2K - 2, t = i + 1, x = count: eligible when t w/W - x >= 1/c, that is c (t w - W x) >=
 * W; the deadline is where t' w/W - x reaches 1 - 1/c, so compare (c - 1 + c x) / w. Counts are
 * taken within one period, so nothing overflows. */
size_t lf_blend_choose(const uint32_t *w, size_t n, uint32_t total, uint64_t i,
                       const uint64_t *count)
{
    if (n == 1)
        return 0;
    int64_t c = 2 * (int64_t)n - 2, t = (int64_t)(i % total) + 1;
    uint64_t period = i / total;
    size_t best = n;
    int64_t best_num = 0;
    for (size_t k = 0; k < n; k++) {
        int64_t x = (int64_t)(count[k] - period * w[k]), num = c - 1 + c * x;
        if (c * (t * w[k] - (int64_t)total * x) < (int64_t)total)
            continue;
        if (best == n || num * w[best] < best_num * w[k]) {
            best = k;
            best_num = num;
        }
    }
    if (best == n)
        LF_BUG("blend: nobody eligible at sample %llu", (unsigned long long)i);
    return best;
}

static void blend_counts(uint64_t *count, const uint32_t *w, size_t n, uint32_t total, uint64_t i)
{
    uint64_t period = i / total;
    for (size_t k = 0; k < n; k++)
        count[k] = period * w[k];
    for (uint64_t j = period * total; j < i; j++)
        count[lf_blend_choose(w, n, total, j, count)]++;
}

void lf_blend_at(const uint32_t *w, size_t n, uint32_t total, uint64_t i, size_t *source,
                 uint64_t *index)
{
    uint64_t count[LF_LOADER_MAX_SOURCES];
    blend_counts(count, w, n, total, i);
    *source = lf_blend_choose(w, n, total, i, count);
    *index = count[*source];
}

/* ---- samples ---- */

/* Samples that are repeated stand this far apart, so that neighbours, which are mixed with each
 * other, are two. */
enum { APART = 2 };

void lf_walker_seek(struct lf_walker *w, const struct lf_order *o, int64_t sample)
{
    w->sample = sample;
    /* a choice depends on all before it, in floating point: they are made again */
    if (o->megatron) {
        memset(w->count, 0, sizeof w->count);
        if (o->n_sources == 1)
            w->count[0] = (uint64_t)sample;
        for (uint64_t i = 0; o->n_sources > 1 && i < (uint64_t)sample; i++)
            w->count[lf_megatron_blend_choose(o->mw, o->n_sources, i, w->count)]++;
    } else if (o->mode == LF_LOADER_TRAIN)
        blend_counts(w->count, o->w, o->n_sources, o->total,
                     o->repeats > 1 ? (uint64_t)sample / (APART * o->repeats) * APART
                                    : (uint64_t)sample);
}

/* Choice i of the sources, before which `count` were made. */
static size_t next_choice(const struct lf_order *o, uint64_t i, uint64_t *count, uint64_t *sequence,
                          uint64_t *epoch)
{
    uint32_t key[4];
    const size_t k = lf_blend_choose(o->w, o->n_sources, o->total, i, count);
    const uint64_t j = count[k]++;
    *epoch = j / o->n[k];
    lf_philox(key, o->seed, SITE_EPOCH, *epoch, (uint32_t)k);
    *sequence = lf_rng_permute((uint64_t)key[1] << 32 | key[0], SITE_SHUFFLE, o->n[k], j % o->n[k]);
    return k;
}

/* Sample i with repeats; w->count is of the choices before its group. */
static size_t next_repeated(struct lf_walker *w, const struct lf_order *o, uint64_t i,
                            uint64_t *sequence, uint64_t *epoch)
{
    const uint64_t span = (uint64_t)APART * o->repeats, at = i % span;
    uint64_t count[LF_LOADER_MAX_SOURCES];
    size_t k = 0;
    memcpy(count, w->count, o->n_sources * sizeof *count);
    for (uint64_t j = 0; j <= at % APART; j++)
        k = next_choice(o, i / span * APART + j, count, sequence, epoch);
    if (at + 1 == span)
        memcpy(w->count, count, o->n_sources * sizeof *count);
    return k;
}

void lf_walker_next(struct lf_walker *w, const struct lf_order *o, size_t *source,
                    uint64_t *sequence, uint64_t *epoch)
{
    uint64_t i = (uint64_t)w->sample++;
    uint64_t e = 0;
    size_t k = 0;
    if (o->mode == LF_LOADER_VALID) {
        while (i >= o->n[k])
            i -= o->n[k++];
        *sequence = i;
    } else if (o->megatron) {
        k = o->n_sources > 1 ? lf_megatron_blend_choose(o->mw, o->n_sources, i, w->count) : 0;
        *sequence = w->count[k]++;
    } else if (o->repeats > 1) {
        k = next_repeated(w, o, i, sequence, &e);
    } else {
        k = next_choice(o, i, w->count, sequence, &e);
    }
    *source = k;
    if (epoch)
        *epoch = e;
}

/* ---- optimizer steps ---- */

int64_t lf_deal_count(int64_t n, int64_t B, int64_t rank, int64_t ranks)
{
    int64_t micros = (n + B - 1) / B;
    return (micros - rank + ranks - 1) / ranks;
}

int lf_loader_check_batch(int64_t n, int64_t B, int64_t ranks, lf_err *err)
{
    if (n <= 0 || n % B != 0 || n > INT32_MAX)
        return lf_fail(
            err, LF_EINVAL,
            "a batch of %lld sequences is not a positive multiple of the micro-batch (%lld)",
            (long long)n, (long long)B);
    if (n / B < ranks)
        return lf_fail(err, LF_EINVAL,
                       "a batch of %lld sequences in micro-batches of %lld has work for %lld "
                       "ranks, there are %lld; "
                       "take a smaller micro_batch or fewer ranks",
                       (long long)n, (long long)B, (long long)(n / B), (long long)ranks);
    return 0;
}

int lf_order_check(const struct lf_order *o, int64_t B, int64_t ranks, lf_err *err)
{
    if (o->n_ramp == 0 || o->ramp[0].from_sample != 0)
        return lf_fail(err, LF_EINVAL, "the batch schedule must have a row from sample 0");
    for (size_t r = 0; r < o->n_ramp; r++) {
        int rc = lf_loader_check_batch(o->ramp[r].samples, B, ranks, err);
        if (rc != 0)
            return rc;
        if (o->repeats > 1 && o->ramp[r].samples % (APART * (int64_t)o->repeats))
            return lf_fail(
                err, LF_EINVAL,
                "a batch of %lld samples is not a multiple of %d: repeats = %u has pairs "
                "of samples that often in it",
                (long long)o->ramp[r].samples, (int)(APART * o->repeats), o->repeats);
        if (r && o->ramp[r].from_sample <= o->ramp[r - 1].from_sample)
            return lf_fail(err, LF_EINVAL,
                           "the rows of the batch schedule are not ascending at sample %lld",
                           (long long)o->ramp[r].from_sample);
    }
    return 0;
}

/* Batch size of a step that begins at this sample. */
static int64_t batch_at(const struct lf_order *o, int64_t sample)
{
    size_t r = 0;
    while (r + 1 < o->n_ramp && o->ramp[r + 1].from_sample <= sample)
        r++;
    int64_t left = o->n_samples - sample, n = o->ramp[r].samples;
    return left < n ? left : n;
}

int lf_stepper_seek(struct lf_stepper *s, const struct lf_order *o, int64_t sample, lf_err *err)
{
    int64_t at = 0, number = 0;
    if (sample < 0 || sample > o->n_samples)
        return lf_fail(err, LF_EINVAL, "there is no sample %lld in the data order",
                       (long long)sample);
    for (size_t r = 0; r < o->n_ramp; r++) {
        int64_t n = o->ramp[r].samples,
                end = r + 1 < o->n_ramp ? o->ramp[r + 1].from_sample : INT64_MAX;
        if (at >= end)
            continue;
        int64_t steps = end == INT64_MAX ? INT64_MAX / n : (end - at - 1) / n + 1;
        if ((sample - at) / n < steps) {
            number += (sample - at) / n;
            if ((sample - at) % n != 0 && sample != o->n_samples)
                break;
            *s = (struct lf_stepper){.number = number, .first = sample, .n = batch_at(o, sample)};
            return 0;
        }
        at += steps * n;
        number += steps;
    }
    return lf_fail(err, LF_EINVAL,
                   "sample %lld is not where an optimizer step begins in this batch schedule; a "
                   "changed batch size needs a "
                   "schedule row from that sample on",
                   (long long)sample);
}

static bool skipped(const struct lf_order *o, int64_t number)
{
    size_t lo = 0, hi = o->n_skip;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (o->skip[mid] < number)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < o->n_skip && o->skip[lo] == number;
}

void lf_stepper_next(struct lf_stepper *s, const struct lf_order *o)
{
    s->number++;
    s->first += s->n;
    s->n = batch_at(o, s->first);
}

bool lf_stepper_settle(struct lf_stepper *s, const struct lf_order *o)
{
    while (s->n > 0 && skipped(o, s->number))
        lf_stepper_next(s, o);
    return s->n > 0;
}
