/* SPDX-License-Identifier: Apache-2.0
 *
 * Scoring in packed batches and the sums of evaluation. Everything is f64 in a fixed order.
 */
#include "engine/infer/score.h"

#include <math.h>
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/base/utf8.h"

typedef struct batch {
    int32_t *token, *target, *position, *cu, *argmax;
    float *loss;
    size_t used; /* rows */
    int64_t docs;
    int32_t *source, *source_position, *source_cu; /* of an encoder-decoder */
    size_t source_used;
} batch;

static int batch_create(batch *b, const lf_score_model *m, lf_err *err)
{
    size_t rows = (size_t)m->rows;
    *b = (batch){0};
    b->token = lf_calloc(rows, sizeof *b->token, err);
    b->target = lf_calloc(rows, sizeof *b->target, err);
    b->position = lf_calloc(rows, sizeof *b->position, err);
    b->argmax = lf_calloc(rows, sizeof *b->argmax, err);
    b->loss = lf_calloc(rows, sizeof *b->loss, err);
    b->cu = lf_calloc((size_t)m->max_docs + 1, sizeof *b->cu, err);
    b->source = lf_calloc((size_t)m->source_rows, sizeof *b->source, err);
    b->source_position = lf_calloc((size_t)m->source_rows, sizeof *b->source_position, err);
    b->source_cu = lf_calloc((size_t)m->max_docs + 1, sizeof *b->source_cu, err);
    if (!b->source || !b->source_position || !b->source_cu)
        return LF_ENOMEM;
    return b->token && b->target && b->position && b->argmax && b->loss && b->cu ? 0 : LF_ENOMEM;
}

static void batch_destroy(batch *b)
{
    free(b->token);
    free(b->target);
    free(b->position);
    free(b->argmax);
    free(b->loss);
    free(b->cu);
    free(b->source);
    free(b->source_position);
    free(b->source_cu);
}

/* Rows of a decoder that an item takes, and rows of sources. */
static size_t item_rows(const lf_score_model *m, const lf_score_item *it)
{
    return m->source_rows > 0 ? it->n - it->first : it->n - 1;
}
static size_t item_source(const lf_score_model *m, const lf_score_item *it)
{
    return m->source_rows > 0 ? it->first : 0;
}

/* What the decoder reads is what it says, one token later. */
static void batch_add_pair(batch *b, const lf_score_model *m, const lf_score_item *it)
{
    const size_t n = it->n - it->first;
    for (size_t i = 0; i < n; i++) {
        b->token[b->used + i] = i == 0 ? m->decoder_start : it->tokens[it->first + i - 1];
        b->target[b->used + i] = it->tokens[it->first + i];
        b->position[b->used + i] = (int32_t)i;
    }
    for (size_t i = 0; i < it->first; i++) {
        b->source[b->source_used + i] = it->tokens[i];
        b->source_position[b->source_used + i] = (int32_t)i;
    }
    b->used += n;
    b->source_used += it->first;
    b->cu[++b->docs] = (int32_t)b->used;
    b->source_cu[b->docs] = (int32_t)b->source_used;
}

static void batch_add(batch *b, const lf_score_item *it)
{
    for (size_t i = 0; i + 1 < it->n; i++) {
        b->token[b->used + i] = it->tokens[i];
        b->target[b->used + i] = i + 1 >= it->first ? it->tokens[i + 1] : -1;
        b->position[b->used + i] = (int32_t)i;
    }
    b->used += it->n - 1;
    b->cu[++b->docs] = (int32_t)b->used;
}

static int check_item(const lf_score_model *m, const lf_score_item *it, size_t index, lf_err *err)
{
    const size_t most = (size_t)m->max_context;
    if (it->first < 1 || it->first >= it->n || item_rows(m, it) > most || item_source(m, it) > most)
        return lf_fail(err, LF_EINVAL,
                       "item %zu: scoring tokens %zu to %zu does not fit the context of %lld",
                       index, it->first, it->n, (long long)m->max_context);
    for (size_t i = 0; i < it->n; i++)
        if (it->tokens[i] < 0 || it->tokens[i] >= m->vocab)
            return lf_fail(err, LF_EINVAL,
                           "item %zu: token %d is outside the model's vocabulary of %lld", index,
                           (int)it->tokens[i], (long long)m->vocab);
    return 0;
}

static int batch_score(const batch *b, bool pairs, const lf_score_item *items, size_t first,
                       lf_score *out, lf_err *err)
{
    for (int64_t d = 0; d < b->docs; d++) {
        const lf_score_item *it = &items[first + (size_t)d];
        lf_score s = {0, true, it->n - it->first};
        for (size_t t = it->first; t < it->n; t++) {
            size_t r = (size_t)b->cu[d] + t - (pairs ? it->first : 1);
            if (!isfinite(b->loss[r]))
                return lf_fail(err, LF_ENUMERIC,
                               "item %zu: the log-probability of token %zu is not finite; the "
                               "weights are damaged or "
                               "diverged",
                               first + (size_t)d, t);
            s.ll -= (double)b->loss[r];
            s.greedy = s.greedy && b->argmax[r] == it->tokens[t];
        }
        out[first + (size_t)d] = s;
    }
    return 0;
}

/* Fill a batch with whole items from `at` on; returns how many. */
static size_t batch_fill(batch *b, const lf_score_model *m, const lf_score_item *items, size_t at,
                         size_t n_items)
{
    size_t n = 0;
    b->used = b->source_used = 0;
    b->docs = 0;
    for (; at + n < n_items && b->docs < m->max_docs &&
           b->used + item_rows(m, &items[at + n]) <= (size_t)m->rows &&
           b->source_used + item_source(m, &items[at + n]) <= (size_t)m->source_rows;
         n++)
        if (m->source_rows > 0)
            batch_add_pair(b, m, &items[at + n]);
        else
            batch_add(b, &items[at + n]);
    for (size_t i = b->source_used; i < (size_t)m->source_rows; i++)
        b->source[i] = b->source_position[i] = 0;
    for (size_t i = b->used; i < (size_t)m->rows; i++) {
        b->token[i] = b->position[i] = 0;
        b->target[i] = -1;
    }
    for (int64_t d = b->docs + 1; d <= m->max_docs; d++)
        b->cu[d] = (int32_t)b->used;
    for (int64_t d = b->docs + 1; d <= m->max_docs; d++)
        b->source_cu[d] = (int32_t)b->source_used;
    return n;
}

int lf_score_run(const lf_score_model *m, const lf_score_item *items, size_t n_items, lf_score *out,
                 const struct lf_score_watch *w, lf_err *err)
{
    const struct lf_score_watch watch = w ? *w : (struct lf_score_watch){0};
    batch b;
    int rc = m->rows < m->max_context
                 ? lf_fail(err, LF_EINVAL, "a batch of %lld rows is smaller than the context",
                           (long long)m->rows)
                 : 0;
    for (size_t i = 0; rc == 0 && i < n_items; i++)
        rc = check_item(m, &items[i], i, err);
    if (rc != 0)
        return rc;
    rc = batch_create(&b, m, err);
    for (size_t at = 0; rc == 0 && at < n_items;) {
        if (watch.stop && watch.stop()) {
            rc = lf_fail(err, LF_EINTR, "stopped after %zu of %zu items", at, n_items);
            break;
        }
        size_t n = batch_fill(&b, m, items, at, n_items);
        const struct lf_score_rows in = {b.token, b.target, b.position,        b.cu,
                                         b.docs,  b.source, b.source_position, b.source_cu};
        rc = m->forward(m->ctx, &in, b.loss, b.argmax, err);
        if (rc == 0)
            rc = batch_score(&b, m->source_rows > 0, items, at, out, err);
        at += n;
        if (rc == 0 && watch.progress)
            watch.progress(watch.arg, at);
    }
    batch_destroy(&b);
    return rc;
}

size_t lf_rolling_windows(size_t n, size_t max_len, size_t context_len, lf_window *out, size_t cap)
{
    if (n == 0 || max_len == 0 || context_len < 1 || context_len > max_len)
        return 0;
    size_t k = 0, predicted = n < max_len ? n : max_len;
    if (k < cap)
        out[k] = (lf_window){0, predicted + 1, predicted};
    k++;
    while (predicted < n) {
        size_t most = max_len - context_len + 1;
        size_t len = n - predicted < most ? n - predicted : most;
        size_t end = predicted + len; /* in tokens; in the sequence with the prefix one more */
        if (k < cap)
            out[k] = (lf_window){end - max_len, end + 1, len};
        k++;
        predicted = end;
    }
    return k;
}

size_t lf_best_choice(const double *ll, const double *norm, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if ((norm ? ll[i] / norm[i] : ll[i]) > (norm ? ll[best] / norm[best] : ll[best]))
            best = i;
    return best;
}

void lf_mean_stderr(const double *v, size_t n, double *mean, double *stderr_out)
{
    double sum = 0, sq = 0;
    for (size_t i = 0; i < n; i++)
        sum += v[i];
    *mean = n ? sum / (double)n : 0;
    for (size_t i = 0; i < n; i++)
        sq += (v[i] - *mean) * (v[i] - *mean);
    *stderr_out = n > 1 ? sqrt(sq / (double)(n - 1) / (double)n) : 0;
}

/* Ratio R = sum a / sum w with the standard error of a ratio estimator over documents. */
static double ratio(const double *a, const double *w, size_t n, double *se)
{
    double sa = 0, sw = 0, sq = 0;
    for (size_t i = 0; i < n; i++) {
        sa += a[i];
        sw += w[i];
    }
    double r = sw > 0 ? sa / sw : 0;
    for (size_t i = 0; i < n; i++)
        sq += (a[i] - r * w[i]) * (a[i] - r * w[i]);
    *se = n > 1 && sw > 0 ? sqrt(sq * (double)n / (double)(n - 1)) / sw : 0;
    return r;
}

void lf_ratio_perplexity(const double *ll, const double *weight, size_t n, double *ppl,
                         double *stderr_out)
{
    double se, r = ratio(ll, weight, n, &se);
    *ppl = exp(-r);
    *stderr_out = *ppl * se;
}

void lf_ratio_bits(const double *ll, const double *weight, size_t n, double *bits,
                   double *stderr_out)
{
    double se, r = ratio(ll, weight, n, &se);
    *bits = -r / M_LN2;
    *stderr_out = se / M_LN2;
}

/* Length of the white space at s as Python's str regards it, 0 when there is none. */
static size_t space_len(const char *s, size_t n)
{
    const unsigned char *u = (const unsigned char *)s;
    if ((u[0] >= 9 && u[0] <= 13) || (u[0] >= 0x1c && u[0] <= 0x20))
        return 1;
    if (n >= 2 && u[0] == 0xC2 && (u[1] == 0x85 || u[1] == 0xA0))
        return 2;
    if (n < 3)
        return 0;
    unsigned cp = ((unsigned)(u[0] & 15) << 12) | ((unsigned)(u[1] & 63) << 6) | (u[2] & 63u);
    bool three = (u[0] & 0xF0) == 0xE0 && (u[1] & 0xC0) == 0x80 && (u[2] & 0xC0) == 0x80;
    bool space = cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 ||
                 cp == 0x202F || cp == 0x205F || cp == 0x3000;
    return three && space ? 3 : 0;
}

size_t lf_rstrip_len(const char *text, size_t len)
{
    size_t end = 0;
    for (size_t i = 0; i < len;) {
        size_t s = space_len(text + i, len - i);
        i += s ? s : 1;
        if (s == 0)
            end = i;
    }
    return end;
}

size_t lf_lstrip_len(const char *text, size_t len)
{
    size_t i = 0, s;
    while (i < len && (s = space_len(text + i, len - i)) > 0)
        i += s;
    return i;
}

size_t lf_count_words(const char *text, size_t len)
{
    size_t words = 1;
    for (size_t i = 0; i < len;) {
        size_t s = space_len(text + i, len - i);
        if (s == 0) {
            i++;
            continue;
        }
        words++;
        while (i < len && (s = space_len(text + i, len - i)) > 0)
            i += s;
    }
    return words;
}

size_t lf_count_chars(const char *text, size_t len)
{
    size_t n = 0;
    for (size_t i = 0; i < len; n++) {
        size_t k = lf_utf8_len(text + i, len - i);
        i += k ? k : 1;
    }
    return n;
}
