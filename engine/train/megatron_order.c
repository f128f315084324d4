/* SPDX-License-Identifier: Apache-2.0
 *
 * Megatron-LM's sample order; the rule stands in the header.
 */
#include "engine/train/megatron_order.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/mt19937.h"
#include "engine/base/str.h"

struct lf_megatron_order {
    uint32_t T;
    uint64_t epochs, n_docs, n; /* n_docs: entries of the document index; n: samples */
    uint32_t *docs;             /* [n_docs] */
    uint32_t *samples;          /* [n + 1][2] place in docs, token in that sequence */
    uint32_t *shuffle;          /* [n] */
    uint32_t *len;              /* [end - begin] of the part's sequences, from `begin` */
    uint64_t begin, part;
};

/* ---- split ---- */

int lf_megatron_parse_split(double bounds[4], const char *text, lf_err *err)
{
    double v[3] = {0};
    char field[64];
    const char *p = text;
    for (int i = 0; i < 3; i++) {
        size_t n = strcspn(p, ",/");
        snprintf(field, sizeof field, "%.*s", (int)(n < 63 ? n : 63), p + strspn(p, " "));
        if (n >= sizeof field || lf_parse_f64(&v[i], field, NULL) < 0 || v[i] < 0)
            return lf_fail(err, LF_EINVAL, "split \"%s\": up to three shares such as 949,50,1",
                           text);
        p += n;
        if (!*p)
            break;
        p += i < 2;
    }
    if (*p || !(v[0] + v[1] + v[2] > 0) || !isfinite(v[0] + v[1] + v[2]))
        return lf_fail(err, LF_EINVAL,
                       "split \"%s\": up to three shares such as 949,50,1, not all 0", text);
    lf_megatron_normalize(v, 3);
    bounds[0] = 0;
    for (int i = 0; i < 3; i++)
        bounds[i + 1] = bounds[i] + v[i];
    return 0;
}

void lf_megatron_split_range(uint64_t *begin, uint64_t *end, const double bounds[4],
                             enum lf_megatron_part part, uint64_t n)
{
    uint64_t b = (uint64_t)rint(bounds[part] * (double)n),
             e = (uint64_t)rint(bounds[part + 1] * (double)n);
    /* Shares add up to 1 but for rounding, which may lead past the end. */
    *end = e < n ? e : n;
    *begin = b < *end ? b : *end;
}

/* ---- building ---- */

struct count {
    uint64_t epochs, before_last; /* samples of all epochs but the last */
    bool apart;                   /* the last one is shuffled apart */
};

/* tokens of an epoch; samples 0: one epoch. */
static struct count count_epochs(uint64_t tokens, uint64_t T, uint64_t samples)
{
    struct count c = {.epochs = 1};
    if (samples)
        c.epochs = (samples * T + 1 + tokens - 1) / tokens;
    if (c.epochs == 1)
        return c;
    uint64_t per_epoch = (tokens - 1) / T;
    c.before_last = ((c.epochs - 1) * tokens - 1) / T;
    c.apart = samples - c.before_last < (uint64_t)(0.80 * (double)per_epoch);
    return c;
}

/* `epochs` times the part's sequences, shuffled, to v. */
static void fill_docs(lf_mt19937 *m, uint32_t *v, uint64_t begin, uint64_t n, uint64_t epochs)
{
    for (uint64_t e = 0; e < epochs; e++)
        for (uint64_t i = 0; i < n; i++)
            v[e * n + i] = (uint32_t)(begin + i);
    lf_mt19937_shuffle_u32(m, v, epochs * n);
}

static void fill_samples(lf_megatron_order *o)
{
    uint64_t at = 0, off = 0;
    o->samples[0] = o->samples[1] = 0;
    for (uint64_t i = 1; i <= o->n; i++) {
        uint64_t left = o->T;
        /* On to the token that is this sample's last and the next one's first: it exists, so `at`
         * stays inside. */
        for (uint64_t len; off + left >= (len = o->len[o->docs[at] - o->begin]); off = 0) {
            left -= len - off;
            at++;
        }
        off += left;
        o->samples[2 * i] = (uint32_t)at;
        o->samples[2 * i + 1] = (uint32_t)off;
    }
}

static void fill_range(lf_mt19937 *m, uint32_t *v, uint64_t first, uint64_t end)
{
    for (uint64_t i = first; i < end; i++)
        v[i] = (uint32_t)i;
    lf_mt19937_shuffle_u32(m, v + first, end - first);
}

static int fill(lf_megatron_order *o, const struct count *c, uint32_t seed, lf_err *err)
{
    lf_mt19937 m;
    if (!(o->docs = lf_malloc((size_t)o->n_docs, sizeof *o->docs, err)) ||
        !(o->samples = lf_malloc((size_t)o->n + 1, 2 * sizeof *o->samples, err)) ||
        !(o->shuffle = lf_malloc((size_t)o->n, sizeof *o->shuffle, err)))
        return LF_ENOMEM;
    lf_mt19937_seed(&m, seed);
    uint64_t first = c->apart ? c->epochs - 1 : c->epochs, cut = c->apart ? c->before_last : o->n;
    fill_docs(&m, o->docs, o->begin, o->part, first);
    if (c->apart)
        fill_docs(&m, o->docs + first * o->part, o->begin, o->part, 1);
    fill_samples(o);
    fill_range(&m, o->shuffle, 0, cut);
    fill_range(&m, o->shuffle, cut, o->n);
    return 0;
}

int lf_megatron_order_build(lf_megatron_order **out, const lf_megatron_order_args *a, lf_err *err)
{
    uint64_t tokens = 0, n = a->end - a->begin;
    if (a->begin > a->end || a->end > a->n_seqs || a->T < 2)
        return lf_fail(err, LF_EINVAL, "sequences %llu to %llu of %llu in samples of %u tokens",
                       (unsigned long long)a->begin, (unsigned long long)a->end,
                       (unsigned long long)a->n_seqs, a->T);
    for (uint64_t i = a->begin; i < a->end; i++)
        tokens += a->lengths[i];
    if (tokens <= a->T)
        return lf_fail(err, LF_EINVAL, "its %llu tokens do not fill one sample of %u + 1",
                       (unsigned long long)tokens, a->T);
    if (a->samples > ((uint64_t)1 << 62) / a->T || n > INT32_MAX)
        return lf_fail(err, LF_EINVAL, "%llu samples of %llu sequences: more than the index holds",
                       (unsigned long long)a->samples, (unsigned long long)n);
    struct count c = count_epochs(tokens, a->T, a->samples);
    uint64_t total;
    /* Beyond this the position in an epoch leaves 32 bits (Megatron then has 64-bit indices, of the
     * same order). */
    if (__builtin_mul_overflow(c.epochs, tokens, &total) || c.epochs > UINT32_MAX / n ||
        total / a->T > UINT32_MAX - 2)
        return lf_fail(err, LF_ENOTSUP,
                       "%llu epochs of %llu sequences: the index would have more than 2^32 entries",
                       (unsigned long long)c.epochs, (unsigned long long)n);
    lf_megatron_order *o = lf_calloc(1, sizeof *o, err);
    if (!o)
        return LF_ENOMEM;
    *o = (lf_megatron_order){.T = a->T,
                             .epochs = c.epochs,
                             .n_docs = c.epochs * n,
                             .n = (total - 1) / a->T,
                             .begin = a->begin,
                             .part = n};
    int rc = LF_ENOMEM;
    if ((o->len = lf_malloc((size_t)n, sizeof *o->len, err))) {
        memcpy(o->len, a->lengths + a->begin, (size_t)n * sizeof *o->len);
        rc = fill(o, &c, a->seed, err);
    }
    if (rc < 0)
        lf_megatron_order_destroy(o);
    else
        *out = o;
    return rc;
}

void lf_megatron_order_destroy(lf_megatron_order *o)
{
    if (!o)
        return;
    free(o->docs);
    free(o->samples);
    free(o->shuffle);
    free(o->len);
    free(o);
}

uint64_t lf_megatron_order_count(const lf_megatron_order *o)
{
    return o->n;
}
uint64_t lf_megatron_order_epochs(const lf_megatron_order *o)
{
    return o->epochs;
}
size_t lf_megatron_order_bytes(const lf_megatron_order *o)
{
    return sizeof(uint32_t) * (size_t)(o->n_docs + 2 * (o->n + 1) + o->n + o->part);
}
const uint32_t *lf_megatron_document_index(const lf_megatron_order *o, uint64_t *n)
{
    *n = o->n_docs;
    return o->docs;
}
const uint32_t *lf_megatron_sample_index(const lf_megatron_order *o)
{
    return o->samples;
}
const uint32_t *lf_megatron_shuffle_index(const lf_megatron_order *o)
{
    return o->shuffle;
}

int lf_megatron_order_pieces(const lf_megatron_order *o, uint64_t i, lf_megatron_piece_fn fn,
                             void *user, lf_err *err)
{
    if (i >= o->n)
        return lf_fail(err, LF_EINVAL, "sample %llu of %llu", (unsigned long long)i,
                       (unsigned long long)o->n);
    uint64_t s = o->shuffle[i], at = o->samples[2 * s], off = o->samples[2 * s + 1];
    uint32_t left = o->T + 1;
    for (; left > 0; at++, off = 0) {
        uint64_t seq = o->docs[at], have = o->len[seq - o->begin] - off;
        uint32_t take = have < left ? (uint32_t)have : left;
        int rc = take ? fn(user, seq, off, take, err) : 0;
        if (rc < 0)
            return rc;
        left -= take;
    }
    return 0;
}

/* ---- several datasets ---- */

/* numpy adds up to 128 numbers in eight interleaved sums and more of them by halves. */
static double numpy_sum(const double *w, size_t n)
{
    double r[8], sum = 0;
    if (n > 128) {
        size_t half = n / 2 - n / 2 % 8;
        return numpy_sum(w, half) + numpy_sum(w + half, n - half);
    }
    size_t i = 0;
    if (n >= 8) {
        memcpy(r, w, sizeof r);
        for (i = 8; i < n - n % 8; i++)
            r[i % 8] += w[i];
        sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    }
    for (; i < n; i++)
        sum += w[i];
    return sum;
}

void lf_megatron_normalize(double *w, size_t n)
{
    double sum = numpy_sum(w, n);
    for (size_t i = 0; i < n; i++)
        w[i] /= sum;
}

uint64_t lf_megatron_source_samples(uint64_t samples, double w, double surplus)
{
    return (uint64_t)ceil(ceil((double)samples * w) * (1 + surplus));
}

size_t lf_megatron_blend_choose(const double *w, size_t n, uint64_t i, const uint64_t *taken)
{
    double at = i > 1 ? (double)i : 1, top = w[0] * at - (double)taken[0];
    size_t best = 0;
    for (size_t k = 1; k < n; k++) {
        double e = w[k] * at - (double)taken[k];
        if (e > top) {
            top = e;
            best = k;
        }
    }
    return best;
}
