/* SPDX-License-Identifier: Apache-2.0
 *
 * The f64 reference of attention, written from the formulas of kernels.h without tiles, panels or
 * online softmax, and the cases that the attention tests share.
 */
#ifndef LF_TESTS_ATTN_REF_H
#define LF_TESTS_ATTN_REF_H

#include "engine/base/rng.h"
#include "tests/op/op_test.h"

struct attn_case {
    const char *name;
    int64_t rows, heads, groups, d, n_docs;
    int32_t cu[12];
    bool causal, alibi;
    int32_t window;
    double softcap;
    /* of the probabilities; sample of row r: 3 + r / 40, position r % 40, seed 77, site 5 */
    double drop;
    bool open;          /* with prefixes */
    int32_t prefix[12]; /* of each document */
    /* pairs of rows of the call: the first, the one behind the last; 0 ends. {-1, 1}: the window is
     * of both sides */
    int32_t runs[12];
    int64_t d_value; /* channels of a value; 0: d */
    bool sinks;
};
OP_FN int64_t attn_ref_e(const struct attn_case *c)
{
    return c->d_value ? c->d_value : c->d;
}

static const struct attn_case attn_cases[] = {
    {"one row", 1, 1, 1, 2, 1, {0, 1}, true, false, 0, 0, 0, false, {0}, {0}, 0, false},
    {"padding only", 5, 2, 1, 4, 2, {0, 0, 0}, true, false, 0, 0, 0, false, {0}, {0}, 0, false},
    {"causal, two tiles",
     131,
     2,
     2,
     64,
     1,
     {0, 131},
     true,
     false,
     0,
     0,
     0,
     false,
     {0},
     {0},
     0,
     false},
    {"documents of every size, padding",
     200,
     2,
     2,
     16,
     8,
     {0, 1, 1, 64, 129, 131, 190, 190, 193},
     true,
     false,
     0,
     0,
     0,
     false,
     {0},
     {0},
     0,
     false},
    {"grouped heads",
     150,
     6,
     2,
     80,
     2,
     {0, 70, 149},
     true,
     false,
     0,
     0,
     0,
     false,
     {0},
     {0},
     0,
     false},
    {"window", 210, 2, 1, 18, 2, {0, 180, 210}, true, false, 37, 0, 0, false, {0}, {0}, 0, false},
    {"chunks", 210, 2, 1, 18, 2, {0, 180, 210}, true, false, -37, 0, 0, false, {0}, {0}, 0, false},
    {"chunks of tiles, prefixes, sinks, values wider than keys",
     200,
     4,
     2,
     16,
     2,
     {0, 130, 199},
     true,
     false,
     -64,
     0,
     0,
     true,
     {70, 3},
     {0},
     24,
     true},
    {"window of one", 70, 1, 1, 8, 1, {0, 70}, true, false, 1, 0, 0, false, {0}, {0}, 0, false},
    {"alibi and softcap",
     140,
     4,
     2,
     32,
     2,
     {0, 100, 140},
     true,
     true,
     0,
     3.0,
     0,
     false,
     {0},
     {0},
     0,
     false},
    {"both directions",
     133,
     2,
     1,
     96,
     3,
     {0, 65, 66, 133},
     false,
     false,
     0,
     0,
     0,
     false,
     {0},
     {0},
     0,
     false},
    {"both directions, a vision head",
     70,
     2,
     2,
     72,
     2,
     {0, 30, 69},
     false,
     false,
     0,
     0,
     0,
     false,
     {0},
     {0},
     0,
     false},
    {"both directions, window, alibi",
     133,
     2,
     2,
     10,
     2,
     {0, 130, 133},
     false,
     true,
     21,
     0,
     0,
     false,
     {0},
     {0},
     0,
     false},
    {"all masks, wide head",
     97,
     3,
     1,
     256,
     2,
     {0, 90, 95},
     true,
     true,
     33,
     5.0,
     0,
     false,
     {0},
     {0},
     0,
     false},
    {"head 128", 96, 2, 1, 128, 1, {0, 96}, true, false, 0, 0, 0, false, {0}, {0}, 0, false},
    {"dropout",
     150,
     4,
     2,
     32,
     3,
     {0, 100, 131, 149},
     true,
     false,
     0,
     0,
     0.25,
     false,
     {0},
     {0},
     0,
     false},
    {"prefixes of every size",
     220,
     2,
     1,
     32,
     6,
     {0, 100, 101, 131, 131, 203, 215},
     true,
     false,
     0,
     0,
     0,
     true,
     {70, 0, 30, 5, 64, 12},
     {0},
     0,
     false},
    {"prefix beyond its document, grouped heads",
     150,
     6,
     2,
     18,
     2,
     {0, 90, 149},
     true,
     false,
     0,
     0,
     0,
     true,
     {200, 1},
     {0},
     0,
     false},
    {"prefix, window, softcap",
     140,
     2,
     2,
     16,
     2,
     {0, 130, 140},
     true,
     false,
     50,
     4.0,
     0,
     true,
     {97, 3},
     {0},
     0,
     false},
    {"prefix, dropout",
     140,
     4,
     2,
     32,
     2,
     {0, 110, 140},
     true,
     false,
     0,
     0,
     0.25,
     true,
     {40, 9},
     {0},
     0,
     false},
    {"runs at the ends of documents, grouped heads",
     200,
     4,
     2,
     32,
     3,
     {0, 70, 131, 195},
     true,
     false,
     0,
     0,
     0,
     false,
     {0},
     {0, 9, 61, 70, 70, 90, 121, 131, 150, 195},
     0,
     false},
    {"runs longer than a window, side by side, softcap",
     210,
     2,
     1,
     18,
     2,
     {0, 180, 210},
     true,
     false,
     37,
     3.0,
     0,
     false,
     {0},
     {11, 75, 75, 80, 101, 103, 170, 180, 180, 210},
     0,
     false},
    {"a run of several tiles, a window of eight",
     230,
     2,
     2,
     64,
     1,
     {0, 230},
     true,
     false,
     8,
     0,
     0,
     false,
     {0},
     {61, 203, 210, 219},
     0,
     false},
    {"runs, prefix, wide head",
     97,
     3,
     1,
     256,
     2,
     {0, 80, 95},
     true,
     false,
     33,
     5.0,
     0,
     true,
     {12, 3},
     {5, 20, 31, 76, 84, 95},
     0,
     false},
    {"runs, dropout",
     140,
     4,
     2,
     32,
     2,
     {0, 110, 140},
     true,
     false,
     20,
     0,
     0.25,
     false,
     {0},
     {30, 100, 110, 112},
     0,
     false},
    {"dropout, both directions, window, alibi, softcap",
     140,
     3,
     3,
     18,
     2,
     {0, 130, 140},
     false,
     true,
     75,
     4.0,
     0.6,
     false,
     {0},
     {0},
     0,
     false},
    {"keys wider than values",
     90,
     2,
     2,
     192,
     2,
     {0, 70, 88},
     true,
     false,
     0,
     0,
     0,
     false,
     {0},
     {0},
     128,
     false},
    {"values wider than keys, grouped heads, window, alibi, softcap",
     140,
     4,
     2,
     18,
     2,
     {0, 100, 138},
     true,
     true,
     37,
     3.0,
     0,
     false,
     {0},
     {0},
     40,
     false},
    {"values of an odd number of channels, prefix, runs",
     150,
     3,
     3,
     10,
     2,
     {0, 80, 148},
     true,
     false,
     0,
     0,
     0,
     true,
     {12, 3},
     {5, 20, 31, 76, 84, 95},
     5,
     false},
    {"keys wider than values, both directions, window, dropout",
     130,
     2,
     1,
     72,
     2,
     {0, 120, 130},
     false,
     false,
     60,
     0,
     0.25,
     false,
     {0},
     {0},
     23,
     false},
    {"few keys' channels, values of 256, grouped heads",
     80,
     4,
     1,
     64,
     1,
     {0, 77},
     true,
     false,
     0,
     0,
     0,
     false,
     {0},
     {0},
     256,
     false},
    {"sinks, documents, padding",
     200,
     4,
     4,
     64,
     6,
     {0, 1, 64, 129, 131, 190, 193},
     true,
     false,
     0,
     0,
     0,
     false,
     {0},
     {0},
     0,
     true},
    {"sinks, grouped heads, window",
     150,
     8,
     2,
     80,
     2,
     {0, 140, 149},
     true,
     false,
     21,
     0,
     0,
     false,
     {0},
     {0},
     0,
     true},
    {"sinks, alibi, softcap, prefix, runs, values wider than keys",
     140,
     4,
     2,
     18,
     2,
     {0, 100, 138},
     true,
     true,
     37,
     3.0,
     0,
     true,
     {12, 3},
     {5, 20, 31, 76, 104, 115},
     40,
     true},
    {"sinks, dropout, wide head",
     97,
     4,
     1,
     256,
     2,
     {0, 90, 95},
     true,
     false,
     0,
     0,
     0.25,
     false,
     {0},
     {0},
     0,
     true},
};
enum { ATTN_CASES = sizeof attn_cases / sizeof *attn_cases };

/* Are runs given to the kernels? A run of one row says nothing, but it is given. */
OP_FN bool attn_ref_runs(const struct attn_case *c)
{
    return c->runs[1] > 0;
}
/* The run of row i of document n, as positions. */
OP_FN void attn_ref_run(const struct attn_case *c, int64_t n, int64_t i, int32_t run[2])
{
    const int32_t first = c->cu[n], row = first + (int32_t)i;
    run[0] = (int32_t)i;
    run[1] = (int32_t)i + 1;
    if (c->runs[0] < 0) {
        const int32_t length = c->cu[n + 1] - first, past = (int32_t)i - c->window + 1,
                      behind = (int32_t)i + c->window;
        run[0] = past > 0 ? past : 0;
        run[1] = behind < length ? behind : length;
        return;
    }
    for (int k = 0; k < 12 && c->runs[k + 1] > 0; k += 2)
        if (c->runs[k] <= row && row < c->runs[k + 1]) {
            run[0] = c->runs[k] - first;
            run[1] = c->runs[k + 1] - first;
        }
}

enum { ATTN_REF_SEED = 77, ATTN_REF_SITE = 5, ATTN_REF_ROW = 40 };

/* 1 / (1 - p) or 0: of query row r, head h, key j of its document. */
OP_FN double attn_ref_keep(const struct attn_case *c, int64_t r, int64_t h, int64_t j)
{
    uint32_t w[4];
    if (c->drop == 0)
        return 1;
    uint64_t a = (uint64_t)(3 + r / ATTN_REF_ROW) + ((uint64_t)(r % ATTN_REF_ROW) << 40);
    lf_philox(w, ATTN_REF_SEED, ATTN_REF_SITE, a, (uint32_t)(h << 22) + (uint32_t)(j / 4));
    return (double)lf_u01(w[j % 4]) >= (double)(float)c->drop ? 1 / (1 - (double)(float)c->drop)
                                                              : 0;
}

OP_FN double attn_ref_slope(const struct attn_case *c, int64_t h)
{
    return c->alibi ? 1.0 / (double)(int64_t)(4 << h) : 0.0;
}
/* Among the scores, above all of them, below, and far above. */
OP_FN double attn_ref_sink(const struct attn_case *c, int64_t h)
{
    static const double s[] = {0.75, 6, -4, 20};
    return c->sinks ? s[h % 4] : (double)-INFINITY;
}
/* What the kernels read beside tensors, in memory that they can reach. */
struct attn_given {
    struct op_buf mem;
    const int32_t *cu, *prefix, *runs;
    const float *alibi, *sinks;
    struct lf_k_attn_drop drop;
};
OP_FN struct attn_given attn_give(const struct attn_case *c)
{
    struct space {
        struct lf_step_record rec;
        int64_t sample[256];
        int32_t position[256], cu[12], prefix[12], runs[512];
        float alibi[8], sinks[8];
    };
    struct attn_given g = {.mem = op_alloc(sizeof(struct space))};
    struct space *s = g.mem.p;
    memset(s, 0, sizeof *s);
    for (int64_t r = 0; r < c->rows; r++) {
        s->sample[r] = 3 + r / ATTN_REF_ROW;
        s->position[r] = (int32_t)(r % ATTN_REF_ROW);
    }
    s->rec.seed = ATTN_REF_SEED;
    for (int64_t h = 0; h < c->heads; h++)
        s->alibi[h] = (float)attn_ref_slope(c, h);
    for (int64_t h = 0; h < c->heads; h++)
        s->sinks[h] = (float)attn_ref_sink(c, h);
    for (int64_t n = 0; n <= c->n_docs; n++)
        s->cu[n] = c->cu[n];
    for (int64_t n = 0; n < c->n_docs; n++)
        s->prefix[n] = c->prefix[n];
    for (int64_t r = 0; r < 2 * c->rows; r++) /* of padding: nobody reads them */
        s->runs[r] = r % 2 ? INT32_MAX : INT32_MIN;
    for (int64_t n = 0; n < c->n_docs; n++)
        for (int64_t i = 0; i < c->cu[n + 1] - c->cu[n]; i++)
            attn_ref_run(c, n, i, s->runs + 2 * (c->cu[n] + i));
    g.cu = s->cu;
    g.runs = attn_ref_runs(c) ? s->runs : NULL;
    g.prefix = c->open ? s->prefix : NULL;
    g.alibi = c->alibi ? s->alibi : NULL;
    g.sinks = c->sinks ? s->sinks : NULL;
    g.drop = (struct lf_k_attn_drop){.p = (float)c->drop,
                                     .site = ATTN_REF_SITE,
                                     .sample = s->sample,
                                     .position = s->position,
                                     .rec = &s->rec};
    return g;
}
OP_FN double attn_ref_scale(const struct attn_case *c)
{
    return (double)(float)(1.5 / sqrt((double)c->d));
}

OP_FN bool attn_ref_visible(const struct attn_case *c, int64_t n, int64_t i, int64_t j)
{
    int32_t run[2];
    if (c->runs[0] < 0)
        return (i < j ? j - i : i - j) < c->window;
    attn_ref_run(c, n, i, run);
    const bool same_prefix = c->open && i < c->prefix[n] && j < c->prefix[n],
               same_run = j >= run[0] && j < run[1];
    return (!c->causal || j <= i || (c->open && j < c->prefix[n]) || same_run) &&
           (c->window == 0 || same_prefix ||
            (c->window > 0 ? i - j < c->window : j >= i - i % -c->window));
}

/* Score of query i, key j of one document; *slope_cap: derivative of the softcap. q, k: rows of the
 * head, [D]. */
OP_FN double attn_ref_score(const struct attn_case *c, const double *q, const double *k, int64_t h,
                            int64_t i, int64_t j, double *slope_cap)
{
    double s = 0;
    for (int64_t x = 0; x < c->d; x++)
        s += q[x] * k[x];
    s *= attn_ref_scale(c);
    *slope_cap = 1;
    if (c->softcap > 0) {
        double t = tanh(s / c->softcap);
        s = c->softcap * t;
        *slope_cap = 1 - t * t;
    }
    return s - attn_ref_slope(c, h) * (double)(i - j);
}

/* One sink that differs by d, for differences. */
struct attn_moved {
    int64_t head;
    double d;
};
/* Dense arrays: q [rows][H][D], o [rows][H][E], k [rows][G][D], v [rows][G][E], lse [H][rows]. */
OP_FN void attn_ref_fwd_moved(const struct attn_case *c, const double *q, const double *k,
                              const double *v, const struct attn_moved *by, double *o, double *lse)
{
    const int64_t hd = c->heads * c->d, gd = c->groups * c->d, E = attn_ref_e(c);
    for (int64_t i = 0; i < c->rows * c->heads * E; i++)
        o[i] = 0;
    for (int64_t i = 0; i < c->rows * c->heads; i++)
        lse[i] = -INFINITY;
    for (int64_t n = 0; n < c->n_docs; n++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t i = 0, r0 = c->cu[n], len = c->cu[n + 1] - r0; i < len; i++) {
                const double sink = attn_ref_sink(c, h) + (by->head == h ? by->d : 0);
                double cap, m = sink, l = 0, *out = o + ((r0 + i) * c->heads + h) * E;
                const int64_t g = h / (c->heads / c->groups);
                const double *qi = q + (r0 + i) * hd + h * c->d;
                for (int64_t j = 0; j < len; j++)
                    if (attn_ref_visible(c, n, i, j))
                        m = fmax(
                            m, attn_ref_score(c, qi, k + (r0 + j) * gd + g * c->d, h, i, j, &cap));
                for (int64_t j = 0; j < len; j++) {
                    if (!attn_ref_visible(c, n, i, j))
                        continue;
                    double p =
                        exp(attn_ref_score(c, qi, k + (r0 + j) * gd + g * c->d, h, i, j, &cap) - m);
                    l += p;
                    p *= attn_ref_keep(c, r0 + i, h, j);
                    for (int64_t x = 0; x < E; x++)
                        out[x] += p * v[((r0 + j) * c->groups + g) * E + x];
                }
                l += c->sinks ? exp(sink - m) : 0;
                for (int64_t x = 0; x < E; x++)
                    out[x] /= l;
                lse[h * c->rows + r0 + i] = m + log(l);
            }
}

OP_FN void attn_ref_fwd(const struct attn_case *c, const double *q, const double *k,
                        const double *v, double *o, double *lse)
{
    attn_ref_fwd_moved(c, q, k, v, &(struct attn_moved){-1, 0}, o, lse);
}

/* Analytic backward; the a* arrays receive the sums of absolute terms, the scale of rounding
 * errors. */
struct attn_grads {
    double *dq, *dk, *dv, *aq, *ak, *av;
};
OP_FN void attn_ref_bwd(const struct attn_case *c, const double *q, const double *k,
                        const double *v, const double *o, const double *go, const double *lse,
                        const struct attn_grads *r)
{
    const int64_t d = c->d, hd = c->heads * d, gd = c->groups * d, E = attn_ref_e(c);
    const double scale = attn_ref_scale(c);
    for (int64_t i = 0; i < c->rows * hd; i++)
        r->dq[i] = r->aq[i] = 0;
    for (int64_t i = 0; i < c->rows * gd; i++)
        r->dk[i] = r->ak[i] = 0;
    for (int64_t i = 0; i < c->rows * c->groups * E; i++)
        r->dv[i] = r->av[i] = 0;
    for (int64_t n = 0; n < c->n_docs; n++)
        for (int64_t h = 0; h < c->heads; h++)
            for (int64_t i = 0, r0 = c->cu[n], len = c->cu[n + 1] - r0; i < len; i++) {
                const int64_t g = h / (c->heads / c->groups), at = (r0 + i) * hd + h * d,
                              out = ((r0 + i) * c->heads + h) * E;
                double delta = 0, adelta = 0;
                for (int64_t x = 0; x < E; x++) {
                    delta += go[out + x] * o[out + x];
                    adelta += fabs(go[out + x] * o[out + x]);
                }
                for (int64_t j = 0; j < len; j++) {
                    if (!attn_ref_visible(c, n, i, j))
                        continue;
                    const int64_t kt = (r0 + j) * gd + g * d, vt = ((r0 + j) * c->groups + g) * E;
                    double cap, dp = 0, adp = 0;
                    double p = exp(attn_ref_score(c, q + at, k + kt, h, i, j, &cap) -
                                   lse[h * c->rows + r0 + i]);
                    for (int64_t x = 0; x < E; x++) {
                        dp += go[out + x] * v[vt + x];
                        adp += fabs(go[out + x] * v[vt + x]);
                    }
                    const double m = attn_ref_keep(c, r0 + i, h, j);
                    double ds = p * (m * dp - delta) * scale * cap,
                           ads = p * (m * adp + adelta) * scale;
                    p *= m;
                    for (int64_t x = 0; x < d; x++) {
                        r->dq[at + x] += ds * k[kt + x];
                        r->aq[at + x] += ads * fabs(k[kt + x]);
                        r->dk[kt + x] += ds * q[at + x];
                        r->ak[kt + x] += ads * fabs(q[at + x]);
                    }
                    for (int64_t x = 0; x < E; x++) {
                        r->dv[vt + x] += p * go[out + x];
                        r->av[vt + x] += p * fabs(go[out + x]);
                    }
                }
            }
}

#endif
