/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling on the host: see sample.h for the order of operations. A draw without top-k, top-p or
 * min-p needs no sorting: mass is walked in the order of a partial selection only when a cut asks
 * for it. A draw that nothing bends (raw) reads the logits twice at most and writes nothing:
 * training by reinforcement makes one for every token.
 */
#include "engine/infer/sample.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"

enum { SEEN_PROMPT = 1, SEEN_OUTPUT = 2, FORBIDDEN = 4, ALLOWED = 8, BIASED = 16 };
enum { BLOCK = 64 }; /* logits whose mass is kept as one number */

struct lf_sampler {
    int64_t vocab;
    uint8_t *flags; /* [vocab] SEEN_*, FORBIDDEN */
    int32_t *count; /* [vocab] times in the output */
    double *work;   /* [vocab] adjusted logits; lf_sampler_kept: probabilities of ids[] */
    int32_t *ids;   /* [vocab] candidates in draw order */
    uint64_t *mass; /* [vocab] of ids[], or of blocks */
    double shift;   /* lf_sample_shift */
    size_t kept;
    uint64_t total;   /* mass of what is kept */
    bool forbids;     /* is some token FORBIDDEN? */
    bool twice;       /* is a token biased twice? */
    int32_t *touched; /* ids whose flags or count are set, for a cheap reset */
    size_t n_touched;
    lf_sample_limits limits;
};

int lf_sample_check(const lf_sample_params *p, lf_err *err)
{
    if (!(p->temperature >= 0) || !isfinite(p->temperature))
        return lf_fail(err, LF_EINVAL, "temperature must be 0 or more, not %g", p->temperature);
    if (!(p->top_p > 0 && p->top_p <= 1))
        return lf_fail(err, LF_EINVAL, "top_p must be above 0 and at most 1, not %g", p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return lf_fail(err, LF_EINVAL, "min_p must be from 0 to 1, not %g", p->min_p);
    if (!(p->repetition_penalty > 0) || !isfinite(p->repetition_penalty))
        return lf_fail(err, LF_EINVAL, "repetition_penalty must be above 0, not %g",
                       p->repetition_penalty);
    if (!isfinite(p->presence_penalty) || !isfinite(p->frequency_penalty))
        return lf_fail(err, LF_EINVAL, "presence_penalty and frequency_penalty must be finite");
    if (p->top_k < 0)
        return lf_fail(err, LF_EINVAL, "top_k must be 0 (off) or more, not %lld",
                       (long long)p->top_k);
    return 0;
}

uint64_t lf_sample_seed(uint64_t run_seed, const char *request_id, uint32_t sample_index)
{
    /* FNV-1a over the id, then Philox mixes it with the run's seed and the sample's index. */
    uint64_t h = 0xcbf29ce484222325u;
    for (const unsigned char *c = (const unsigned char *)request_id; *c; c++)
        h = (h ^ *c) * 0x100000001b3u;
    uint32_t out[4];
    lf_philox(out, run_seed, LF_SITE_SAMPLE, h, sample_index);
    return (((uint64_t)out[0] << 32) | out[1]) >>
           1; /* 63 bits: JSON readers have signed integers */
}

lf_sampler *lf_sampler_create(int64_t vocab, lf_err *err)
{
    if (vocab <= 0 || vocab > INT32_MAX) {
        lf_fail(err, LF_EINVAL, "sampler: vocabulary size %lld", (long long)vocab);
        return NULL;
    }
    lf_sampler *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return NULL;
    size_t n = (size_t)vocab;
    s->vocab = vocab;
    s->shift = lf_sample_shift(vocab);
    s->flags = lf_calloc(n, sizeof *s->flags, err);
    s->count = lf_calloc(n, sizeof *s->count, err);
    s->work = lf_calloc(n, sizeof *s->work, err);
    s->ids = lf_calloc(n, sizeof *s->ids, err);
    s->mass = lf_calloc(n, sizeof *s->mass, err);
    s->touched = lf_calloc(n, sizeof *s->touched, err);
    if (!s->flags || !s->count || !s->work || !s->ids || !s->mass || !s->touched) {
        lf_sampler_destroy(s);
        return NULL;
    }
    return s;
}

size_t lf_sampler_bytes(int64_t vocab)
{
    const lf_sampler *s = NULL;
    return (size_t)vocab * (sizeof *s->flags + sizeof *s->count + sizeof *s->work + sizeof *s->ids +
                            sizeof *s->mass + sizeof *s->touched);
}

void lf_sampler_destroy(lf_sampler *s)
{
    if (!s)
        return;
    free(s->flags);
    free(s->count);
    free(s->work);
    free(s->ids);
    free(s->mass);
    free(s->touched);
    free(s);
}

static void touch(lf_sampler *s, int32_t token, uint8_t flag)
{
    if (token < 0 || token >= s->vocab)
        return;
    if (!s->flags[token])
        s->touched[s->n_touched++] = token;
    s->flags[token] |= flag;
}

void lf_sampler_begin(lf_sampler *s, const int32_t *prompt, size_t n)
{
    for (size_t i = 0; i < s->n_touched; i++) {
        s->flags[s->touched[i]] = 0;
        s->count[s->touched[i]] = 0;
    }
    s->n_touched = 0;
    s->forbids = s->twice = false;
    s->limits = (lf_sample_limits){0};
    for (size_t i = 0; i < n; i++)
        touch(s, prompt[i], SEEN_PROMPT);
}

void lf_sampler_limit(lf_sampler *s, const lf_sample_limits *l)
{
    s->limits = *l;
    for (size_t i = 0; i < l->n_allowed; i++)
        touch(s, l->allowed[i], ALLOWED);
    for (size_t i = 0; i < l->n_bias; i++) {
        const int32_t t = l->bias_ids[i];
        s->twice = s->twice || (t >= 0 && t < s->vocab && s->flags[t] & BIASED);
        touch(s, t, BIASED);
    }
}

void lf_sampler_forbid_bad(lf_sampler *s, const int32_t *output, size_t n)
{
    const lf_sample_limits *l = &s->limits;
    for (size_t i = 0; i < l->n_bad; i++) {
        size_t head = l->bad_len[i] - 1;
        if (head <= n &&
            (head == 0 || memcmp(output + (n - head), l->bad[i], head * sizeof *output) == 0))
            lf_sampler_forbid(s, &l->bad[i][head], 1);
    }
}

void lf_sampler_accept(lf_sampler *s, int32_t token)
{
    touch(s, token, SEEN_OUTPUT);
    if (token >= 0 && token < s->vocab)
        s->count[token]++;
}

void lf_sampler_forbid(lf_sampler *s, const int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++)
        touch(s, tokens[i], FORBIDDEN);
    s->forbids = s->forbids || n > 0;
}

void lf_sampler_allow_all(lf_sampler *s)
{
    /* A token stays in touched[] even with no flag left only if it keeps a flag; compact the
     * list. */
    size_t k = 0;
    for (size_t i = 0; i < s->n_touched; i++) {
        int32_t t = s->touched[i];
        s->flags[t] &= (uint8_t)~FORBIDDEN;
        if (s->flags[t])
            s->touched[k++] = t;
    }
    s->n_touched = k;
    s->forbids = false;
}

/* lf_sample_token.count of a token. */
static int32_t counted(const lf_sampler *s, int32_t t)
{
    return s->flags[t] & SEEN_OUTPUT ? s->count[t] : s->flags[t] & SEEN_PROMPT ? 0 : -1;
}

static void adjust(lf_sampler *s, const lf_sample_params *p, const float *logits)
{
    for (int64_t i = 0; i < s->vocab; i++)
        s->work[i] = (double)logits[i];
    for (size_t i = 0; i < s->limits.n_bias; i++)
        if (s->limits.bias_ids[i] >= 0 && s->limits.bias_ids[i] < s->vocab)
            s->work[s->limits.bias_ids[i]] += s->limits.bias[i];
    for (int64_t i = 0; s->limits.n_allowed > 0 && i < s->vocab; i++)
        if (!(s->flags[i] & ALLOWED))
            s->work[i] = -HUGE_VAL;
    for (size_t i = 0; i < s->n_touched; i++) {
        int32_t t = s->touched[i];
        double l = lf_sample_adjusted(s->work[t], 0, counted(s, t), p->repetition_penalty,
                                      p->presence_penalty, p->frequency_penalty);
        s->work[t] = (s->flags[t] & FORBIDDEN) ? -HUGE_VAL : l;
    }
}

/* Is candidate a before b in draw order? */
static bool before(const double *l, int32_t a, int32_t b)
{
    return l[a] > l[b] || (l[a] == l[b] && a < b);
}

/* Heap with the first in draw order at the root, so that tokens come out one by one in draw
 * order. */
static void sift(const double *l, int32_t *h, size_t n, size_t i)
{
    for (;;) {
        size_t best = i, c = 2 * i + 1;
        if (c < n && before(l, h[c], h[best]))
            best = c;
        if (c + 1 < n && before(l, h[c + 1], h[best]))
            best = c + 1;
        if (best == i)
            return;
        int32_t t = h[i];
        h[i] = h[best];
        h[best] = t;
        i = best;
    }
}

static int32_t greedy(lf_sampler *s)
{
    int32_t best = -1;
    for (int64_t i = 0; i < s->vocab; i++)
        if (isfinite(s->work[i]) && (best < 0 || s->work[i] > s->work[best]))
            best = (int32_t)i;
    s->kept = 0;
    if (best >= 0) {
        s->ids[0] = best;
        s->kept = s->mass[0] = s->total = 1;
    }
    return best;
}

static double scale_of(const lf_sample_params *p)
{
    return p->temperature > 0 ? fmin(1 / p->temperature, DBL_MAX) : 0;
}

static bool cuts(const lf_sample_params *p)
{
    return p->top_k > 0 || p->top_p < 1 || p->min_p > 0;
}

/* Finite logits into ids, the others -inf; *max is the largest. */
static size_t candidates(lf_sampler *s, double *max)
{
    size_t n = 0;
    *max = -INFINITY;
    for (int64_t i = 0; i < s->vocab; i++) {
        if (!isfinite(s->work[i])) {
            s->work[i] = -INFINITY;
            continue;
        }
        s->ids[n++] = (int32_t)i;
        *max = s->work[i] > *max ? s->work[i] : *max;
    }
    return n;
}

/* Masses of all tokens; their sum. */
static uint64_t all_masses(lf_sampler *s, double max, double scale)
{
    const double shift = s->shift, *l = s->work;
    uint64_t *mass = s->mass, sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < s->vocab; i++)
        sum += mass[i] = lf_sample_mass(lf_sample_x(l[i], max, scale), shift);
    return sum;
}

/* Moves the first of the n candidates in draw order to the front of ids: the k largest and ties
 * with the k-th, or, where there is no top-k, as many as top-p or min-p may keep. Returns how many.
 * Popped ones leave the heap's root for the slot that is free at its end, so they stand behind it,
 * the last one first. */
static size_t first_ones(lf_sampler *s, const lf_sample_params *p, size_t n, double max,
                         double scale)
{
    const double *l = s->work, min_x = log(p->min_p);
    const uint64_t enough =
        p->top_k == 0 && p->top_p < 1 ? lf_sample_share(p->top_p, s->total) : UINT64_MAX;
    size_t heap = n, popped = 0;
    uint64_t run = 0;
    double kth = -INFINITY;
    for (size_t i = n / 2; i-- > 0;)
        sift(l, s->ids, n, i);
    while (heap > 0) {
        const int32_t t = s->ids[0];
        const double x = lf_sample_x(l[t], max, scale);
        if (p->top_k > 0 && popped >= (size_t)p->top_k && l[t] < kth)
            break;
        if (p->top_k == 0 && (x < min_x || run >= enough))
            break; /* with top-k, top-p wants the mass of all k first */
        s->ids[0] = s->ids[--heap];
        sift(l, s->ids, heap, 0);
        s->ids[heap] = t;
        kth = l[t];
        popped++;
        if (p->top_k == 0)
            run += lf_sample_mass(x, s->shift);
    }
    for (size_t i = 0; i < popped / 2; i++) {
        int32_t t = s->ids[n - 1 - i];
        s->ids[n - 1 - i] = s->ids[n - popped + i];
        s->ids[n - popped + i] = t;
    }
    memmove(s->ids, s->ids + (n - popped), popped * sizeof *s->ids);
    return popped;
}

/* What may be drawn into ids and mass: of ascending id without a cut, else in draw order. */
static void select_kept(lf_sampler *s, const lf_sample_params *p)
{
    const double scale = scale_of(p);
    double max;
    size_t n = candidates(s, &max);
    s->kept = n;
    if (n == 0)
        return;
    if (!cuts(p) || (p->top_k == 0 && p->top_p < 1))
        s->total = all_masses(s, max, scale);
    if (!cuts(p)) {
        for (size_t i = 0; i < n; i++)
            s->mass[i] = s->mass[s->ids[i]];
        return;
    }
    const double min_x = log(p->min_p);
    uint64_t enough = UINT64_MAX;
    n = first_ones(s, p, n, max, scale);
    s->total = 0;
    for (size_t i = 0; i < n; i++)
        s->total += s->mass[i] =
            lf_sample_mass(lf_sample_x(s->work[s->ids[i]], max, scale), s->shift);
    s->kept = n;
    if (p->top_k == 0)
        return;
    if (p->top_p < 1)
        enough = lf_sample_share(p->top_p, s->total);
    s->total = 0;
    for (s->kept = 0; s->kept < n && s->total < enough; s->kept++) {
        if (lf_sample_x(s->work[s->ids[s->kept]], max, scale) < min_x)
            break;
        s->total += s->mass[s->kept];
    }
}

/* ---- draws that nothing bends ---- */

static bool is_raw(const lf_sampler *s, const lf_sample_params *p)
{
    bool penalty =
        p->repetition_penalty != 1.0 || p->presence_penalty != 0 || p->frequency_penalty != 0;
    return p->temperature > 0 && !cuts(p) && !penalty && !s->forbids && s->limits.n_bias == 0 &&
           s->limits.n_allowed == 0;
}

/* w[i] of logit at + i of a block, 0 beyond the end; their sum. */
static uint64_t block_mass(uint64_t w[BLOCK], const float *logits, int64_t vocab, int64_t at,
                           float max, double scale, double shift)
{
    uint64_t sum = 0;
    float x[BLOCK];
    int64_t n = vocab - at < BLOCK ? vocab - at : BLOCK;
    for (int64_t i = 0; i < BLOCK; i++)
        x[i] = i < n ? logits[at + i] : -INFINITY;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < BLOCK; i++)
        sum += w[i] = lf_sample_mass(lf_sample_x((double)x[i], (double)max, scale), shift);
    return sum;
}

/* The first token whose running mass is beyond the place of u. No logit is +inf. */
static int32_t draw_raw(lf_sampler *s, double scale, const float *logits, float max, double u)
{
    uint64_t w[BLOCK], total = 0, run = 0;
    int64_t n = (s->vocab + BLOCK - 1) / BLOCK, b = 0, i = 0;
    for (int64_t k = 0; k < n; k++)
        total += s->mass[k] = block_mass(w, logits, s->vocab, k * BLOCK, max, scale, s->shift);
    const uint64_t place = lf_sample_place(u, total);
    while (place >= run + s->mass[b])
        run += s->mass[b++];
    block_mass(w, logits, s->vocab, b * BLOCK, max, scale, s->shift);
    while (place >= run + w[i])
        run += w[i++];
    return (int32_t)(b * BLOCK + i);
}

static float largest(const float *logits, int64_t vocab)
{
    float lane[8], max = -INFINITY; /* lanes, because one comparison would wait for the other */
    int64_t i = 0;
    for (int k = 0; k < 8; k++)
        lane[k] = -INFINITY;
    for (; i + 8 <= vocab; i += 8)
        for (int k = 0; k < 8; k++)
            lane[k] = logits[i + k] > lane[k] ? logits[i + k] : lane[k];
    for (; i < vocab; i++)
        max = logits[i] > max ? logits[i] : max;
    for (int k = 0; k < 8; k++)
        max = lane[k] > max ? lane[k] : max;
    return max;
}

int32_t lf_sampler_draw(lf_sampler *s, const lf_sample_params *p, const float *logits,
                        uint64_t seed, uint64_t index)
{
    float max = is_raw(s, p) ? largest(logits, s->vocab) : INFINITY;
    if (isfinite(max)) {
        s->kept = 0;
        return draw_raw(s, scale_of(p), logits, max, lf_rng_f64(seed, LF_SITE_SAMPLE, index));
    }
    adjust(s, p, logits);
    if (p->temperature <= 0)
        return greedy(s);
    select_kept(s, p);
    if (s->kept == 0)
        return -1;
    uint64_t run = 0, place = lf_sample_place(lf_rng_f64(seed, LF_SITE_SAMPLE, index), s->total);
    size_t i = 0;
    while (place >= run + s->mass[i])
        run += s->mass[i++];
    return s->ids[i];
}

size_t lf_sampler_kept(const lf_sampler *s, const int32_t **ids, const double **probs)
{
    for (size_t i = 0; i < s->kept; i++)
        s->work[i] = (double)s->mass[i] / (double)s->total;
    *ids = s->ids;
    *probs = s->work;
    return s->kept;
}

/* ---- the same for the kernel ---- */

/* Entry k of a list of at most cap. */
static bool add_entry(struct lf_sample_token *list, size_t cap, size_t k, const lf_sampler *s,
                      int32_t t, double bias, bool penalty)
{
    if (k >= cap)
        return false;
    list[k] = (struct lf_sample_token){s->flags[t] & FORBIDDEN ? -HUGE_VAL : bias, t,
                                       penalty ? counted(s, t) : -1};
    return true;
}

int64_t lf_sampler_row(const lf_sampler *s, const lf_sample_params *p, uint64_t seed,
                       uint64_t index, struct lf_sample_row *row, struct lf_sample_token *list,
                       size_t cap)
{
    const lf_sample_limits *l = &s->limits;
    const bool penalty =
        p->repetition_penalty != 1.0 || p->presence_penalty != 0 || p->frequency_penalty != 0;
    size_t n = 0;
    if (l->n_allowed > 0 || s->twice)
        return -1;
    for (size_t i = 0; i < l->n_bias; i++)
        if (l->bias_ids[i] >= 0 && l->bias_ids[i] < s->vocab &&
            !add_entry(list, cap, n++, s, l->bias_ids[i], l->bias[i], penalty))
            return -1;
    for (size_t i = 0; (penalty || s->forbids) && i < s->n_touched; i++) {
        const int32_t t = s->touched[i];
        const bool bent =
            s->flags[t] & FORBIDDEN || (penalty && s->flags[t] & (SEEN_PROMPT | SEEN_OUTPUT));
        if (bent && !(s->flags[t] & BIASED) && !add_entry(list, cap, n++, s, t, 0, penalty))
            return -1;
    }
    *row = (struct lf_sample_row){.seed = seed,
                                  .index = index,
                                  .scale = scale_of(p),
                                  .top_p = p->top_p,
                                  .min_x = log(p->min_p),
                                  .repetition = p->repetition_penalty,
                                  .presence = p->presence_penalty,
                                  .frequency = p->frequency_penalty,
                                  .top_k = (int32_t)(p->top_k < s->vocab ? p->top_k : s->vocab),
                                  .list_n = (int32_t)n,
                                  .on = 1};
    return (int64_t)n;
}

size_t lf_top_logits(const float *logits, int64_t vocab, size_t n, int32_t *ids)
{
    size_t k = 0;
    for (int64_t i = 0; n > 0 && i < vocab; i++) {
        float l = logits[i];
        if (!isfinite(l) || (k == n && !(l > logits[ids[n - 1]])))
            continue;
        size_t at = k < n ? k++ : n - 1;
        while (at > 0 && logits[ids[at - 1]] < l) {
            ids[at] = ids[at - 1];
            at--;
        }
        ids[at] = (int32_t)i;
    }
    return k;
}
