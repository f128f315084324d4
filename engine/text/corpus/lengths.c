/* SPDX-License-Identifier: Apache-2.0
 *
 * Lengths in bins: adding, percentiles, the JSON object, the table for people.
 */
#include "engine/text/corpus/lengths.h"

#include <stdio.h>

/* 0 .. 15 have a bin of their own; above, a factor of 2 has 16. */
static int bin_of(uint64_t v)
{
    if (v < LF_HIST_SUB)
        return (int)v;
    int top = 63 - __builtin_clzll(v); /* >= 4 */
    return (top - 3) * LF_HIST_SUB + (int)(v >> (top - 4) & (LF_HIST_SUB - 1));
}

static uint64_t bin_begin(int b)
{
    if (b < 2 * LF_HIST_SUB)
        return (uint64_t)b;
    int top = b / LF_HIST_SUB + 3;
    return (1ull << top) + ((uint64_t)(b % LF_HIST_SUB) << (top - 4));
}

void lf_hist_add(struct lf_hist *h, uint64_t v)
{
    h->min = h->n == 0 || v < h->min ? v : h->min;
    h->max = v > h->max ? v : h->max;
    h->bin[bin_of(v)]++;
    h->sum += v;
    h->n++;
}

uint64_t lf_hist_percentile(const struct lf_hist *h, double p)
{
    uint64_t seen = 0, want = (uint64_t)(p / 100 * (double)h->n);
    for (int b = 0; b < 61 * LF_HIST_SUB; b++) {
        seen += h->bin[b];
        if (seen > want) {
            uint64_t v = bin_begin(b);
            return v < h->min ? h->min : v;
        }
    }
    return h->max;
}

json_t *lf_hist_json(const struct lf_hist *h, const char *unit)
{
    static const int percent[] = {1, 5, 25, 50, 75, 95, 99};
    json_t *o = json_pack("{s:s,s:I,s:I,s:f}", "unit", unit, "min", (json_int_t)h->min, "max",
                          (json_int_t)h->max, "mean", h->n ? (double)h->sum / (double)h->n : 0.0);
    json_t *bins = json_array();
    char name[8];
    for (int k = 0; o && k < 7; k++) {
        snprintf(name, sizeof name, "p%d", percent[k]);
        json_object_set_new(o, name, json_integer((json_int_t)lf_hist_percentile(h, percent[k])));
    }
    for (int top = -1; top < 60; top++) { /* 0, then [2^top, 2^(top + 1)) */
        uint64_t from = top < 0 ? 0 : 1ull << top, to = 1ull << (top + 1), n = 0;
        for (int b = bin_of(from); b < bin_of(to); b++)
            n += h->bin[b];
        if (n)
            json_array_append_new(bins, json_pack("{s:I,s:I,s:I}", "from", (json_int_t)from, "to",
                                                  (json_int_t)to, "rows", (json_int_t)n));
    }
    if (o)
        json_object_set_new(o, "histogram", bins);
    return o;
}

/* ---- for people ---- */

static long long num(const json_t *o, const char *key)
{
    return (long long)json_integer_value(json_object_get(o, key));
}

void lf_lengths_text(const json_t *l, lf_buf *out)
{
    const json_t *bins = json_object_get(l, "histogram"), *b;
    long long most = 1;
    size_t i;
    lf_buf_addf(out,
                "lengths in %s: mean %.1f, least %lld, most %lld\n  p1 %lld  p5 %lld  p25 %lld  "
                "p50 %lld  p75 %lld  "
                "p95 %lld  p99 %lld\n",
                json_string_value(json_object_get(l, "unit")),
                json_real_value(json_object_get(l, "mean")), num(l, "min"), num(l, "max"),
                num(l, "p1"), num(l, "p5"), num(l, "p25"), num(l, "p50"), num(l, "p75"),
                num(l, "p95"), num(l, "p99"));
    json_array_foreach(bins, i, b) most = num(b, "rows") > most ? num(b, "rows") : most;
    json_array_foreach(bins, i, b)
    {
        int width = (int)(40 * num(b, "rows") / most);
        lf_buf_addf(out, "  %12lld and more %10lld  %.*s\n", num(b, "from"), num(b, "rows"),
                    width ? width : 1, "########################################");
    }
}
