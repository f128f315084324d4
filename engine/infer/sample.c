/* SPDX-License-Identifier: Apache-2.0
 *
 * Sampling on the host: see sample.h for the order of operations. A draw without top-k, top-p or min-p needs no sorting: mass is
 * walked in the order of a partial selection only when a cut asks for it. A draw that nothing bends (raw) reads the logits twice at most
 * and writes nothing: training by reinforcement makes one for every token.
 */
#include "engine/infer/sample.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/rng.h"

enum { SEEN_PROMPT = 1, SEEN_OUTPUT = 2, FORBIDDEN = 4, ALLOWED = 8 };
enum { BLOCK = 64 }; /* logits whose mass is kept as one number */

struct lf_sampler {
    int64_t vocab;
    uint8_t *flags;   /* [vocab] SEEN_*, FORBIDDEN */
    int32_t *count;   /* [vocab] times in the output */
    double *work;     /* [vocab] adjusted logits */
    int32_t *ids;     /* [vocab] candidates in draw order */
    double *probs;    /* [vocab] of ids[], or masses of blocks */
    size_t kept;
    bool forbids;     /* is some token FORBIDDEN? */
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
        return lf_fail(err, LF_EINVAL, "repetition_penalty must be above 0, not %g", p->repetition_penalty);
    if (!isfinite(p->presence_penalty) || !isfinite(p->frequency_penalty))
        return lf_fail(err, LF_EINVAL, "presence_penalty and frequency_penalty must be finite");
    if (p->top_k < 0)
        return lf_fail(err, LF_EINVAL, "top_k must be 0 (off) or more, not %lld", (long long)p->top_k);
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
    return (((uint64_t)out[0] << 32) | out[1]) >> 1; /* 63 bits: JSON readers have signed integers */
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
    s->flags = lf_calloc(n, sizeof *s->flags, err);
    s->count = lf_calloc(n, sizeof *s->count, err);
    s->work = lf_calloc(n, sizeof *s->work, err);
    s->ids = lf_calloc(n, sizeof *s->ids, err);
    s->probs = lf_calloc(n, sizeof *s->probs, err);
    s->touched = lf_calloc(n, sizeof *s->touched, err);
    if (!s->flags || !s->count || !s->work || !s->ids || !s->probs || !s->touched) {
        lf_sampler_destroy(s);
        return NULL;
    }
    return s;
}

void lf_sampler_destroy(lf_sampler *s)
{
    if (!s)
        return;
    free(s->flags);
    free(s->count);
    free(s->work);
    free(s->ids);
    free(s->probs);
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
    s->forbids = false;
    s->limits = (lf_sample_limits){0};
    for (size_t i = 0; i < n; i++)
        touch(s, prompt[i], SEEN_PROMPT);
}

void lf_sampler_limit(lf_sampler *s, const lf_sample_limits *l)
{
    s->limits = *l;
    for (size_t i = 0; i < l->n_allowed; i++)
        touch(s, l->allowed[i], ALLOWED);
}

void lf_sampler_forbid_bad(lf_sampler *s, const int32_t *output, size_t n)
{
    const lf_sample_limits *l = &s->limits;
    for (size_t i = 0; i < l->n_bad; i++) {
        size_t head = l->bad_len[i] - 1;
        if (head <= n && (head == 0 || memcmp(output + (n - head), l->bad[i], head * sizeof *output) == 0))
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
    /* A token stays in touched[] even with no flag left only if it keeps a flag; compact the list. */
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
        double l = s->work[t];
        if (s->flags[t] & (SEEN_PROMPT | SEEN_OUTPUT))
            l = l > 0 ? l / p->repetition_penalty : l * p->repetition_penalty;
        if (s->flags[t] & SEEN_OUTPUT)
            l -= p->presence_penalty + p->frequency_penalty * s->count[t];
        s->work[t] = (s->flags[t] & FORBIDDEN) ? -HUGE_VAL : l;
    }
}

/* Is candidate a before b in draw order? */
static bool before(const double *l, int32_t a, int32_t b) { return l[a] > l[b] || (l[a] == l[b] && a < b); }

/* Heap with the first in draw order at the root, so that tokens come out one by one in draw order. */
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
        s->probs[0] = 1;
        s->kept = 1;
    }
    return best;
}

/* Candidates in draw order into ids/probs, cut by top-k, top-p and min-p; probabilities renormalised. The heap lives in the tail of
 * ids[]: popped tokens are written from the front, and the heap shrinks from the back, so nothing overlaps. */
static void select_kept(lf_sampler *s, const lf_sample_params *p)
{
    const double *l = s->work;
    size_t n = 0;
    double max = -INFINITY;
    for (int64_t i = 0; i < s->vocab; i++) {
        if (!isfinite(l[i]))
            continue;
        s->ids[n++] = (int32_t)i;
        max = l[i] > max ? l[i] : max;
    }
    s->kept = 0;
    if (n == 0)
        return;
    bool cut = p->top_k > 0 || p->top_p < 1 || p->min_p > 0;
    double total = 0;
    for (size_t i = 0; i < n; i++)
        total += s->probs[i] = exp(l[s->ids[i]] - max);
    if (!cut) { /* ids ascending; the order of the walk does not matter for the distribution */
        for (size_t i = 0; i < n; i++)
            s->probs[i] /= total;
        s->kept = n;
        return;
    }
    for (size_t i = n / 2; i-- > 0;)
        sift(l, s->ids, n, i);
    /* Pop in draw order. A popped token leaves the heap's root; the heap's last takes its place. Popped ones wait at the back. */
    size_t heap = n, popped = 0;
    double kth = -INFINITY;
    while (heap > 0) {
        int32_t t = s->ids[0];
        if (p->top_k > 0 && popped >= (size_t)p->top_k && l[t] < kth)
            break;
        if (p->top_k == 0 && exp(l[t] - max) < p->min_p)
            break; /* with top-k, top-p wants the mass of all k first */
        s->ids[0] = s->ids[--heap];
        sift(l, s->ids, heap, 0);
        s->ids[heap] = t; /* the freed slot at the back: reversed draw order */
        kth = l[t];
        popped++;
        /* Without top-k the mass is known at once; with it the mass of the kept set is needed first. */
        if (p->top_k == 0 && p->top_p < 1) {
            double mass = exp(l[t] - max) + (popped > 1 ? s->probs[popped - 2] : 0);
            s->probs[popped - 1] = mass; /* running mass, replaced below */
            if (mass >= p->top_p * total)
                break;
        }
    }
    /* Reverse the back part into the front. */
    for (size_t i = 0; i < popped / 2; i++) {
        int32_t t = s->ids[n - 1 - i];
        s->ids[n - 1 - i] = s->ids[n - popped + i];
        s->ids[n - popped + i] = t;
    }
    memmove(s->ids, s->ids + (n - popped), popped * sizeof *s->ids);
    double mass = 0;
    for (size_t i = 0; i < popped; i++)
        mass += s->probs[i] = exp(l[s->ids[i]] - max);
    size_t keep = popped;
    if (p->top_k > 0) {
        double run = 0;
        for (keep = 0; keep < popped && run < p->top_p * mass && s->probs[keep] >= p->min_p; keep++)
            run += s->probs[keep];
        mass = run;
    }
    for (size_t i = 0; i < keep; i++)
        s->probs[i] /= mass;
    s->kept = keep;
}

/* ---- draws that nothing bends ---- */

static bool is_raw(const lf_sampler *s, const lf_sample_params *p)
{
    bool cut = p->top_k > 0 || p->top_p < 1 || p->min_p > 0;
    bool penalty = p->repetition_penalty != 1.0 || p->presence_penalty != 0 || p->frequency_penalty != 0;
    return p->temperature > 0 && !cut && !penalty && !s->forbids && s->limits.n_bias == 0 && s->limits.n_allowed == 0;
}

/* e^x for x <= 0 (NaN and what is below -700 become 1e-304), relative error below 1e-11, four orders below that of a logit: x = k ln 2 + r,
 * Taylor's series of e^r, k added to the exponent's bits. No branch and no call, so that compilers make vectors of it. */
static inline double exp_negative(double x)
{
    const double shift = 0x1.8p52; /* adding it leaves k in the low bits */
    double t, k, r, y;
    uint64_t bits, low;
    const int64_t keep = -(int64_t)(x > -700); /* all ones or none */
    memcpy(&bits, &x, sizeof bits);
    bits = (bits & (uint64_t)keep) | (0xc085e00000000000u & ~(uint64_t)keep); /* -700 */
    memcpy(&x, &bits, sizeof x);
    t = x * 0x1.71547652b82fep0 + shift;
    k = t - shift;
    r = x - k * 0x1.62e42feep-1 - k * 0x1.a39ef35793c76p-33;
    y = 1.0 / 40320 + r * (1.0 / 362880);
    y = 1.0 / 720 + r * (1.0 / 5040 + r * y);
    y = 1.0 / 24 + r * (1.0 / 120 + r * y);
    y = 1 + r * (1 + r * (0.5 + r * (1.0 / 6 + r * y)));
    memcpy(&bits, &y, sizeof bits);
    memcpy(&low, &t, sizeof low);
    bits += low << 52;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* e[i] = exp((logits[at + i] - max) * scale) of a block, 0 in effect beyond the end; their sum. */
static double block_mass(double e[BLOCK], const float *logits, int64_t vocab, int64_t at, float max, double scale)
{
    double sum[4] = {0};
    float x[BLOCK];
    int64_t n = vocab - at < BLOCK ? vocab - at : BLOCK;
    for (int64_t i = 0; i < BLOCK; i++)
        x[i] = i < n ? logits[at + i] : -INFINITY;
#pragma omp simd
    for (int64_t i = 0; i < BLOCK; i++)
        e[i] = exp_negative(((double)x[i] - (double)max) * scale);
    for (int64_t i = 0; i < BLOCK; i += 4)
        for (int64_t k = 0; k < 4; k++)
            sum[k] += e[i + k];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* The token at which the running mass passes u of the whole. */
static int32_t draw_raw(lf_sampler *s, double temperature, const float *logits, float max, double u)
{
    const double scale = 1 / temperature;
    double e[BLOCK], total = 0, run = 0;
    int64_t n = (s->vocab + BLOCK - 1) / BLOCK, b = 0;
    for (int64_t i = 0; i < n; i++)
        total += s->probs[i] = block_mass(e, logits, s->vocab, i * BLOCK, max, scale);
    u *= total;
    while (b < n - 1 && u >= run + s->probs[b])
        run += s->probs[b++];
    block_mass(e, logits, s->vocab, b * BLOCK, max, scale);
    int32_t last = -1;
    for (int64_t i = b * BLOCK; i < s->vocab && i < (b + 1) * BLOCK; i++) {
        if (!isfinite(logits[i]))
            continue;
        last = (int32_t)i;
        run += e[i - b * BLOCK];
        if (u < run)
            return last;
    }
    for (int64_t i = b * BLOCK; last < 0 && i-- > 0;) /* u met the rounding of the last sum */
        last = isfinite(logits[i]) ? (int32_t)i : -1;
    return last;
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

int32_t lf_sampler_draw(lf_sampler *s, const lf_sample_params *p, const float *logits, uint64_t seed, uint64_t index)
{
    float max = is_raw(s, p) ? largest(logits, s->vocab) : INFINITY;
    if (isfinite(max)) {
        s->kept = 0;
        return draw_raw(s, p->temperature, logits, max, lf_rng_f64(seed, LF_SITE_SAMPLE, index));
    }
    adjust(s, p, logits);
    if (p->temperature <= 0)
        return greedy(s);
    if (p->temperature != 1.0)
        for (int64_t i = 0; i < s->vocab; i++)
            s->work[i] /= p->temperature;
    select_kept(s, p);
    if (s->kept == 0)
        return -1;
    double u = lf_rng_f64(seed, LF_SITE_SAMPLE, index), run = 0;
    for (size_t i = 0; i < s->kept; i++) {
        run += s->probs[i];
        if (u < run)
            return s->ids[i];
    }
    return s->ids[s->kept - 1]; /* u met the rounding of the last sum */
}

size_t lf_sampler_kept(const lf_sampler *s, const int32_t **ids, const double **probs)
{
    *ids = s->ids;
    *probs = s->probs;
    return s->kept;
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
