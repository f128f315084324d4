/* SPDX-License-Identifier: Apache-2.0
 *
 * See seq2seq.h. */
#include "engine/train/seq2seq.h"

#include <math.h>
#include <string.h>

#include "engine/base/rng.h"

/* ---- lengths ---- */

static int32_t clamp(int32_t x, int32_t lo, int32_t hi)
{
    return x < lo ? lo : x > hi ? hi : x;
}

/* Of a text of n tokens: how many are taken out by span corruption, and in how many spans. */
static int32_t span_noise(const lf_seq2seq *s, int32_t n, int32_t *spans)
{
    if (n < 2) { /* something of a text stays */
        *spans = 0;
        return 0;
    }
    const int32_t noise = clamp((int32_t)rint(n * s->share), 1, n - 1),
                  most = noise < n - noise ? noise : n - noise;
    *spans = clamp((int32_t)rint(noise / s->mean), 1, most);
    return noise;
}

static int32_t fill_noise(const lf_seq2seq *s, int32_t n)
{
    return (int32_t)ceil(n * s->share);
}

/* The most tokens that the source of a text of n has. */
static int32_t source_most(const lf_seq2seq *s, int32_t n)
{
    int32_t spans;
    if (s->kind == LF_SEQ2SEQ_DENOISE) /* no more spans than tokens are taken out */
        return n + 1 + (s->begin >= 0);
    const int32_t noise = span_noise(s, n, &spans);
    return n - noise + spans + 1;
}

int32_t lf_seq2seq_target(const lf_seq2seq *s, int32_t n)
{
    int32_t spans;
    if (s->kind == LF_SEQ2SEQ_DENOISE)
        return n + 1 + (s->begin >= 0);
    const int32_t noise = span_noise(s, n, &spans);
    return noise + spans + 1;
}

static bool fits(const lf_seq2seq *s, int32_t T, int32_t n)
{
    return source_most(s, n) <= s->source_length && lf_seq2seq_target(s, n) <= T;
}

/* Both lengths grow with the text: a token more is one more of noise or of text, and a span more
 * comes with a token of noise. */
int32_t lf_seq2seq_text(const lf_seq2seq *s, int32_t T)
{
    int32_t lo = 0, hi = s->source_length + T; /* lo fits, hi does not */
    while (lo + 1 < hi) {
        const int32_t mid = lo + (hi - lo) / 2;
        if (fits(s, T, mid))
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/* ---- checks ---- */

static int check_token(const char *name, int64_t token, int64_t vocab, lf_err *err)
{
    return token >= 0 && (vocab == 0 || token < vocab)
               ? 0
               : lf_fail(err, LF_EINVAL, "%s = %lld: the vocabulary has %lld words", name,
                         (long long)token, (long long)vocab);
}

static int check_span(const lf_seq2seq *s, int32_t T, int64_t vocab, lf_err *err)
{
    int32_t spans;
    int rc = check_token("sentinel_token", s->sentinel, vocab, err);
    if (rc != 0)
        return rc;
    span_noise(s, lf_seq2seq_text(s, T), &spans);
    if (s->n_sentinels < 1 || s->n_sentinels > s->sentinel + 1)
        return lf_fail(err, LF_EINVAL,
                       "sentinels = %d: they are sentinel_token = %d and the numbers below it",
                       s->n_sentinels, s->sentinel);
    if (spans > s->n_sentinels)
        return lf_fail(err, LF_EINVAL,
                       "a text of %d tokens (of source_length = %d, seq_length = %d) loses %d "
                       "spans, and there are sentinels = %d; make source_length less or "
                       "span_length more",
                       lf_seq2seq_text(s, T), s->source_length, T, spans, s->n_sentinels);
    return 0;
}

static int check_denoise(const lf_seq2seq *s, int64_t vocab, lf_err *err)
{
    if (!(s->random >= 0 && s->random <= 1))
        return lf_fail(err, LF_EINVAL, "mask_random = %g: a share of the spans, 0 to 1", s->random);
    int rc = check_token("mask_token", s->mask_token, vocab, err);
    if (rc == 0 && s->begin >= 0)
        rc = check_token("begin_token", s->begin, vocab, err);
    for (size_t i = 0; i < s->n_ends && rc == 0; i++)
        rc = check_token("sentence_ends", s->ends[i], vocab, err);
    return rc;
}

int lf_seq2seq_check(const lf_seq2seq *s, int32_t T, int64_t vocab, lf_err *err)
{
    if (s->source_length < 2)
        return lf_fail(err, LF_EINVAL, "source_length = %d: a source has 2 tokens or more",
                       s->source_length);
    if (s->kind == LF_SEQ2SEQ_PAIRS)
        return 0;
    if (!(s->share > 0 && s->share < 1))
        return lf_fail(err, LF_EINVAL, "mask_share = %g: it is above 0 and below 1", s->share);
    if (!(s->mean >= 1))
        return lf_fail(err, LF_EINVAL, "span_length = %g: spans have a token or more", s->mean);
    if (lf_seq2seq_text(s, T) < 2)
        return lf_fail(err, LF_EINVAL,
                       "source_length = %d and seq_length = %d have no room for a text of two "
                       "tokens with what stands for those that are taken out",
                       s->source_length, T);
    return s->kind == LF_SEQ2SEQ_SPAN ? check_span(s, T, vocab, err) : check_denoise(s, vocab, err);
}

/* ---- draws ---- */

struct draws {
    uint64_t seed, sample;
    uint32_t site, four[4], i;
};

static struct draws draws_of(const struct lf_seq2seq_row *r, uint32_t site)
{
    return (struct draws){
        .seed = r->seed, .sample = (uint64_t)r->sample, .site = site + (uint32_t)r->valid};
}

static uint32_t draw(struct draws *d)
{
    if (d->i % 4 == 0)
        lf_philox(d->four, d->seed, d->site, d->sample, d->i / 4);
    return d->four[d->i++ % 4];
}

/* A number below n. */
static int32_t draw_below(struct draws *d, int32_t n)
{
    return (int32_t)(((uint64_t)draw(d) * (uint64_t)n) >> 32);
}

/* Which of the places that follow are chosen: each choice of `wanted` of `places` is equally
 * likely (Knuth, The Art of Computer Programming 2, algorithm S of 3.4.2). */
struct choice {
    struct draws d;
    int32_t places, wanted;
};

static bool choose(struct choice *c)
{
    const bool yes = draw_below(&c->d, c->places) < c->wanted;
    c->places--;
    c->wanted -= yes;
    return yes;
}

/* ---- span corruption ---- */

/* The length of the next part, of `wanted` + 1 parts of `places` + 1 tokens. */
static int32_t next_part(struct choice *c)
{
    int32_t n = 1;
    for (; c->places > 0 && !choose(c); n++)
        ;
    return n;
}

static void put(int32_t *to, int32_t *n, const int32_t *from, int32_t count)
{
    memcpy(to + *n, from, (size_t)count * sizeof *to);
    *n += count;
}

static void corrupt_spans(const lf_seq2seq *s, struct lf_seq2seq_row *r)
{
    int32_t spans, at = 0;
    const int32_t noise = span_noise(s, r->n, &spans);
    struct choice text = {draws_of(r, LF_SITE_SPAN_TEXT), r->n - noise - 1, spans - 1},
                  taken = {draws_of(r, LF_SITE_SPAN_NOISE), noise - 1, spans - 1};
    if (spans == 0)
        put(r->source, &r->n_source, r->text, r->n);
    for (int32_t k = 0; k < spans; k++) {
        const int32_t stays = next_part(&text), goes = next_part(&taken),
                      sentinel = s->sentinel - k;
        put(r->source, &r->n_source, r->text + at, stays);
        put(r->source, &r->n_source, &sentinel, 1);
        put(r->target, &r->n_target, &sentinel, 1);
        put(r->target, &r->n_target, r->text + at + stays, goes);
        at += stays + goes;
    }
}

/* ---- denoising ---- */

static bool ends_sentence(const lf_seq2seq *s, int32_t token)
{
    for (size_t i = 0; i < s->n_ends; i++)
        if (s->ends[i] == token)
            return true;
    return false;
}

/* The text with its sentences in another order, in out[n]; begin[n + 1] is scratch. A sentence ends
 * behind a token of `ends` that no other follows. */
static void shuffle_sentences(const lf_seq2seq *s, const struct lf_seq2seq_row *r, int32_t *out,
                              int32_t *begin, int32_t *order)
{
    struct draws d = draws_of(r, LF_SITE_FILL_ORDER);
    int32_t n = 0, put_n = 0;
    for (int32_t i = 0; i < r->n; i++)
        if (i == 0 || (ends_sentence(s, r->text[i - 1]) && !ends_sentence(s, r->text[i])))
            begin[n++] = i;
    begin[n] = r->n;
    for (int32_t i = 0; i < n; i++)
        order[i] = i;
    for (int32_t i = n - 1; i > 0; i--) { /* Fisher and Yates */
        const int32_t j = draw_below(&d, i + 1), was = order[i];
        order[i] = order[j];
        order[j] = was;
    }
    for (int32_t i = 0; i < n; i++)
        put(out, &put_n, r->text + begin[order[i]], begin[order[i] + 1] - begin[order[i]]);
}

/* exp(-mean) is far from the least number that a double has up to this mean. */
#define MEAN_MOST 500.0

/* By inversion. */
static int32_t draw_poisson_few(struct draws *d, double mean, int32_t most)
{
    const double u = (double)draw(d) * (1.0 / 4294967296.0);
    double p = exp(-mean), sum = p;
    int32_t n = 0;
    while (u >= sum && n < most) {
        n++;
        p *= mean / n;
        sum += p;
    }
    return n;
}

/* The sum of numbers that have Poisson distributions has one of the sum of their means. */
static int32_t draw_poisson(struct draws *d, double mean, int32_t most)
{
    int32_t n = 0;
    for (; mean > MEAN_MOST; mean -= MEAN_MOST)
        n += draw_poisson_few(d, MEAN_MOST, most - n);
    return n + draw_poisson_few(d, mean, most - n);
}

/* Lengths of spans with the sum `noise`; returns their number. */
static int32_t draw_lengths(const lf_seq2seq *s, const struct lf_seq2seq_row *r, int32_t noise,
                            int32_t *length)
{
    struct draws d = draws_of(r, LF_SITE_FILL_LENGTH);
    int32_t spans = 0, left = noise;
    while (left > 0) {
        const int32_t n = draw_poisson(&d, s->mean, left);
        length[spans] = spans == noise - 1 ? left : n;
        left -= length[spans++];
    }
    return spans;
}

/* Where the units of text[n] that are taken out together begin, in start[units + 1]: words, or
 * tokens. scratch [n]. */
static int32_t find_units(const lf_seq2seq *s, const int32_t *text, int32_t n, uint8_t *scratch,
                          int32_t *start)
{
    int32_t units = 0;
    if (s->words)
        lf_mlm_words(s->words, text, n, scratch);
    for (int32_t i = 0; i < n; i++)
        if (i == 0 || !s->words || scratch[i])
            start[units++] = i;
    start[units] = n;
    return units;
}

/* What stands for the next span. */
static int32_t stand_in(const lf_seq2seq *s, const struct lf_seq2seq_row *r, struct draws *d)
{
    if (!(s->random > 0))
        return s->mask_token;
    const uint32_t any = draw(d), word = draw(d);
    return (double)any < s->random * 4294967296.0
               ? (int32_t)(((uint64_t)word * (uint64_t)r->vocab) >> 32)
               : s->mask_token;
}

static void corrupt_denoise(const lf_seq2seq *s, struct lf_seq2seq_row *r)
{
    int32_t *text = r->work, *length = r->work + r->n, *start = r->work + 2 * r->n + 1, at = 0,
            k = 0;
    shuffle_sentences(s, r, text, length, start);
    /* nothing of lengths is known yet: their place has room for the marks of words */
    const int32_t units = find_units(s, text, r->n, (uint8_t *)length, start),
                  noise = fill_noise(s, units), spans = draw_lengths(s, r, noise, length);
    struct choice c = {draws_of(r, LF_SITE_FILL_PLACE), units - noise + spans, spans};
    struct draws word = draws_of(r, LF_SITE_FILL_WORD);
    if (s->begin >= 0) {
        put(r->source, &r->n_source, &s->begin, 1);
        put(r->target, &r->n_target, &s->begin, 1);
    }
    while (c.places > 0)
        if (choose(&c)) {
            const int32_t token = stand_in(s, r, &word);
            put(r->source, &r->n_source, &token, 1);
            at += length[k++];
        } else {
            put(r->source, &r->n_source, text + start[at], start[at + 1] - start[at]);
            at++;
        }
    put(r->target, &r->n_target, r->text, r->n);
}

void lf_seq2seq_corrupt(const lf_seq2seq *s, struct lf_seq2seq_row *r)
{
    r->n_source = r->n_target = 0;
    if (s->kind == LF_SEQ2SEQ_SPAN)
        corrupt_spans(s, r);
    else
        corrupt_denoise(s, r);
    put(r->source, &r->n_source, &r->eos, 1);
    put(r->target, &r->n_target, &r->eos, 1);
}
