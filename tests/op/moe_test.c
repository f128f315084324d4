/* SPDX-License-Identifier: Apache-2.0
 *
 * Routing, balancing and the way of rows to experts and back, on every instruction set and on CUDA:
 * values against an f64 reference, the backward against finite differences of that reference, and
 * what must hold exactly: ties, NaN, empty experts, padding, threads.
 */
#include "config.h"

#include <stdio.h>

#include "tests/op/op_test.h"

struct rcase {
    int64_t rows, experts;
    int k, groups, top_groups;
    bool sigmoid, renorm, bias;
    double scale;
    int64_t pad; /* rows of padding at the end */
};

static const struct rcase cases[] = {
    {37, 8, 2, 1, 1, false, true, false, 1, 0},   {64, 60, 4, 1, 1, false, false, false, 1, 5},
    {19, 128, 8, 1, 1, false, true, false, 1, 3}, {33, 64, 6, 1, 1, false, false, false, 1.5, 0},
    {41, 32, 6, 8, 4, true, true, true, 2.5, 7},  {16, 32, 3, 4, 2, false, false, false, 16, 1},
    {9, 5, 5, 1, 1, false, true, false, 1, 0},    {7, 1, 1, 1, 1, false, true, false, 1, 0},
    {23, 17, 3, 1, 1, true, true, true, 1, 22},   {12, 6, 2, 6, 3, true, false, false, 1, 12},
};
enum { N_CASES = sizeof cases / sizeof *cases, LAYERS = 3 };

/* Zeros that kernels may read and write, until the test ends. */
static void *zeros(size_t bytes)
{
    static struct op_buf kept[64];
    static int n;
    if (!bytes) { /* give all back */
        while (n)
            op_free(&kept[--n]);
        return NULL;
    }
    if (n == 64)
        tap_bail("too many pieces");
    kept[n] = op_alloc(bytes);
    return memset(kept[n++].p, 0, bytes);
}

static struct lf_step_record *record(struct lf_step_record r)
{
    struct lf_step_record *p = zeros(sizeof *p);
    *p = r;
    return p;
}

/* ---- the reference ---- */

static void ref_scores(const struct rcase *t, const double *l, double *s)
{
    double top = -INFINITY, sum = 0;
    for (int64_t e = 0; e < t->experts; e++)
        top = fmax(top, l[e]);
    for (int64_t e = 0; e < t->experts; e++)
        sum += exp(l[e] - top);
    for (int64_t e = 0; e < t->experts; e++)
        s[e] = t->sigmoid ? 1 / (1 + exp(-l[e])) : exp(l[e] - top) / sum;
}

static int ref_best(const double *v, const bool *out, int64_t n)
{
    int b = -1;
    for (int64_t i = 0; i < n; i++)
        if (!out[i] && (b < 0 || v[i] > v[b]))
            b = (int)i;
    return b;
}

static void ref_choose(const struct rcase *t, const double *s, const float *bias, int32_t *ids)
{
    double v[256], w[256];
    bool out[256] = {false}, open[256] = {false};
    int64_t size = t->experts / t->groups;
    for (int64_t e = 0; e < t->experts; e++)
        v[e] = s[e] + (bias ? (double)bias[e] : 0);
    for (int g = 0; g < t->groups && t->groups > 1; g++) {
        double a = -INFINITY, b = -INFINITY;
        for (int64_t i = g * size; i < (g + 1) * size; i++) {
            b = fmax(b, fmin(a, v[i]));
            a = fmax(a, v[i]);
        }
        w[g] = t->sigmoid && size > 1 ? a + b : a;
    }
    for (int i = 0; i < t->top_groups && t->groups > 1; i++)
        open[ref_best(w, open, t->groups)] = true;
    for (int64_t e = 0; e < t->experts && t->groups > 1; e++)
        out[e] = !open[e / size];
    for (int j = 0; j < t->k; j++) {
        ids[j] = ref_best(v, out, t->experts);
        out[ids[j]] = true;
    }
}

static void ref_weights(const struct rcase *t, const double *s, const int32_t *ids, double *w)
{
    double sum = 0;
    for (int j = 0; j < t->k; j++)
        sum += s[ids[j]];
    for (int j = 0; j < t->k; j++)
        w[j] = t->scale * s[ids[j]] / (t->renorm ? sum : 1);
}

/* One row's part of sum dweights . weights + slope . shares, ids held. */
static double ref_objective(const struct rcase *t, const double *l, const int32_t *ids,
                            const float *dw, const double *slope)
{
    double s[256], w[64], sum = 0, f = 0;
    ref_scores(t, l, s);
    ref_weights(t, s, ids, w);
    for (int j = 0; j < t->k; j++)
        f += (double)dw[j] * w[j];
    for (int64_t e = 0; e < t->experts; e++)
        sum += s[e];
    for (int64_t e = 0; e < t->experts && slope; e++)
        f += slope[e] * s[e] / sum;
    return f;
}

/* ---- routing ---- */

struct rdata {
    struct op_buf logits, bias, ids, weights, scores, entropy, dweights, dlogits, load, counts;
    int32_t *cu;
    struct lf_k_moe_route fwd;
};

static void route_setup(struct rdata *d, const struct rcase *t)
{
    const int64_t n = t->rows * t->experts, m = t->rows * t->k;
    *d = (struct rdata){.logits = op_random(n, LF_F32, 11, 3),
                        .bias = op_random(t->experts, LF_F32, 12, 0.2)};
    d->ids = op_alloc((size_t)m * 4);
    d->weights = op_alloc((size_t)m * 4);
    d->scores = op_alloc((size_t)n * 4);
    d->entropy = op_alloc((size_t)t->rows * 4);
    d->dweights = op_random(m, LF_F32, 13, 1);
    d->dlogits = op_alloc((size_t)n * 4);
    d->load = op_random(2 * t->experts, LF_F32, 14, 1);
    d->counts = op_random(t->experts, LF_F32, 15, 1);
    d->cu = zeros(3 * sizeof *d->cu);
    d->cu[1] = (int32_t)((t->rows - t->pad) / 2);
    d->cu[2] = (int32_t)(t->rows - t->pad);
    d->fwd = (struct lf_k_moe_route){.rows = t->rows,
                                     .experts = t->experts,
                                     .ldlogits = t->experts,
                                     .logits = d->logits.p,
                                     .bias = t->bias ? d->bias.p : NULL,
                                     .ids = d->ids.p,
                                     .weights = d->weights.p,
                                     .scores = d->scores.p,
                                     .entropy = d->entropy.p,
                                     .k = t->k,
                                     .groups = t->groups,
                                     .top_groups = t->top_groups,
                                     .scale = (float)t->scale,
                                     .sigmoid = t->sigmoid,
                                     .renorm = t->renorm};
}

static void route_teardown(struct rdata *d)
{
    op_free(&d->logits), op_free(&d->bias), op_free(&d->ids), op_free(&d->weights),
        op_free(&d->scores);
    op_free(&d->entropy), op_free(&d->dweights), op_free(&d->dlogits), op_free(&d->load),
        op_free(&d->counts);
}

static void test_route(const struct lf_kernels *k, lf_queue *q, const struct rcase *t,
                       struct rdata *d, const char *name)
{
    double *s = calloc((size_t)(t->rows * t->experts), sizeof *s),
           *w = calloc((size_t)(t->rows * t->k), sizeof *w);
    double *h = calloc((size_t)t->rows, sizeof *h), l[256];
    bool same = true;
    if (k->moe_route.check(&d->fwd) || k->moe_route.run(q, &d->fwd))
        tap_bail("moe_route refuses %s", name);
    for (int64_t r = 0; r < t->rows; r++) {
        int32_t ids[64];
        double *row = s + r * t->experts, sum = 0;
        for (int64_t e = 0; e < t->experts; e++)
            l[e] = op_get(d->logits.p, r * t->experts + e, LF_F32);
        ref_scores(t, l, row);
        ref_choose(t, row, d->fwd.bias, ids);
        ref_weights(t, row, ids, w + r * t->k);
        same = same && !memcmp(ids, (int32_t *)d->ids.p + r * t->k, sizeof *ids * (size_t)t->k);
        for (int64_t e = 0; e < t->experts; e++)
            sum += row[e];
        for (int64_t e = 0; e < t->experts; e++)
            h[r] -= row[e] / sum * log(row[e] / sum);
    }
    tap_ok(same, "%s: the experts of every row", name);
    op_ok(op_compare(d->scores.p, LF_F32, s, NULL, t->rows * t->experts, 1e-6), "scores");
    op_ok(op_compare(d->weights.p, LF_F32, w, NULL, t->rows * t->k, 3e-6), "weights");
    op_ok(op_compare(d->entropy.p, LF_F32, h, NULL, t->rows, 1e-5), "entropy");
    op_prove(d->weights.p, LF_F32, w, NULL, t->rows * t->k, 3e-6, t->rows * t->k - 1);
    tap_ok(op_guards_intact(&d->ids) && op_guards_intact(&d->weights) &&
               op_guards_intact(&d->scores) && op_guards_intact(&d->entropy),
           "nothing outside is written");
    free(s), free(w), free(h);
}

static void test_route_bwd(const struct lf_kernels *k, lf_queue *q, const struct rcase *t,
                           struct rdata *d, bool aux)
{
    const struct lf_step_record *rec =
        record((struct lf_step_record){.inv_batches = 0.25f, .loss_scale = 8});
    const int64_t real = t->rows - t->pad, E = t->experts;
    const struct lf_k_moe_route_bwd b = {.rows = t->rows,
                                         .experts = E,
                                         .n_docs = 2,
                                         .lddlogits = E,
                                         .ids = d->ids.p,
                                         .cu_seqlens = d->cu,
                                         .weights = d->weights.p,
                                         .scores = d->scores.p,
                                         .dweights = d->dweights.p,
                                         .load = aux ? d->load.p : NULL,
                                         .dlogits = d->dlogits.p,
                                         .k = t->k,
                                         .layers = LAYERS,
                                         .scale = (float)t->scale,
                                         .aux = 0.5f,
                                         .sigmoid = t->sigmoid,
                                         .renorm = t->renorm,
                                         .rec = rec};
    if (k->moe_route_bwd.check(&b) || k->moe_route_bwd.run(q, &b))
        tap_bail("moe_route_bwd");
    double *want = calloc((size_t)(t->rows * E), sizeof *want), l[256], slope[256];
    for (int64_t e = 0; e < E; e++) /* d (E sum f P) / d P_e, P_e a mean over rows and layers */
        slope[e] = 0.5 * 0.25 * 8 * (double)E * op_get(d->load.p, e, LF_F32) /
                   pow((double)(LAYERS * real), 2);
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t e = 0; e < E; e++) {
            const double step = 1e-5;
            const double *sl = aux && r < real ? slope : NULL;
            const int32_t *ids = (int32_t *)d->ids.p + r * t->k;
            const float *dw = (float *)d->dweights.p + r * t->k;
            for (int64_t i = 0; i < E; i++)
                l[i] = op_get(d->logits.p, r * E + i, LF_F32);
            l[e] += step;
            double up = ref_objective(t, l, ids, dw, sl);
            l[e] -= 2 * step;
            want[r * E + e] = (up - ref_objective(t, l, ids, dw, sl)) / (2 * step);
        }
    op_ok(op_compare(d->dlogits.p, LF_F32, want, NULL, t->rows * E, 2e-5 * fmax(1, t->scale)),
          aux ? "backward with balancing loss" : "backward");
    op_prove(d->dlogits.p, LF_F32, want, NULL, t->rows * E, 2e-5 * fmax(1, t->scale),
             t->rows * E / 2);
    tap_ok(op_guards_intact(&d->dlogits), "nothing outside is written");
    free(want);
}

static void test_stats(const struct lf_kernels *k, lf_queue *q, const struct rcase *t,
                       struct rdata *d)
{
    const int64_t E = t->experts, real = t->rows - t->pad;
    struct lf_step_record *rec = record((struct lf_step_record){
        .router_seen = 3, .router_aux = 1, .router_load = 1, .router_entropy = 1});
    double want[512] = {0}, counts[256], h = 0, top = 0, loss = 0, over = 0;
    for (int64_t e = 0; e < E; e++)
        counts[e] = op_get(d->counts.p, e, LF_F32);
    struct op_buf load = op_alloc((size_t)E * 8);
    struct lf_k_moe_stats a = {.rows = t->rows,
                               .experts = E,
                               .n_docs = 2,
                               .ids = d->ids.p,
                               .cu_seqlens = d->cu,
                               .scores = d->scores.p,
                               .entropy = d->entropy.p,
                               .prev = d->load.p,
                               .load = load.p,
                               .counts = d->counts.p,
                               .capacity = (real * t->k + E - 1) / E,
                               .k = t->k,
                               .layers = LAYERS,
                               .accumulate = true,
                               .rec = rec};
    for (int64_t r = 0; r < real; r++) {
        double sum = 0;
        for (int64_t e = 0; e < E; e++)
            sum += op_get(d->scores.p, r * E + e, LF_F32);
        for (int64_t e = 0; e < E; e++)
            want[E + e] += op_get(d->scores.p, r * E + e, LF_F32) / sum;
        for (int j = 0; j < t->k; j++)
            want[((int32_t *)d->ids.p)[r * t->k + j]] += 1;
        h += op_get(d->entropy.p, r, LF_F32);
    }
    for (int64_t e = 0; e < E; e++) {
        counts[e] += want[e];
        top = fmax(top, want[e]);
        over += fmax(0, want[e] - (double)a.capacity);
        want[e] += op_get(d->load.p, e, LF_F32);
        want[E + e] += op_get(d->load.p, E + e, LF_F32);
        loss += want[e] * want[E + e];
    }
    if (k->moe_stats.check(&a) || k->moe_stats.run(q, &a))
        tap_bail("moe_stats");
    op_ok(op_compare(load.p, LF_F32, want, NULL, 2 * E, 1e-6),
          "loads and shares, added to those before");
    op_ok(op_compare(d->counts.p, LF_F32, counts, NULL, E, 1e-6), "counts, accumulated");
    tap_i64(rec->router_seen, 4, "one more layer was seen");
    loss *= (double)E / pow((double)(real * LAYERS), 2);
    double e1 =
        real ? fabs(rec->router_aux - 1 - loss) / (1 + fabs(loss)) : fabs(rec->router_aux - 1);
    double e2 = fabs(rec->router_entropy - 1 - (real ? h / (double)real : 0));
    double e3 = fabs(rec->router_load - 1 - (real ? top * (double)E / (double)(real * t->k) : 0));
    tap_ok(e1 < 1e-5 && e2 < 1e-5 && e3 < 1e-5,
           "balancing loss, entropy, busiest expert (%.1e %.1e %.1e)", e1, e2, e3);
    over = real ? over / (double)(real * t->k) : 0;
    /* what was counted before is no whole number here */
    tap_ok(fabs(rec->router_dropped - over) < 1e-6, "%.3g of the pairs are beyond the mean", over);
    op_free(&load);
}

/* The example that transformers' documentation of the loss is built on: even routing gives k,
 * everything to one expert E k / k = E. */
static void test_loss_bounds(const struct lf_kernels *k, lf_queue *q)
{
    enum { R = 8, E = 4 };
    float(*scores)[R * E] = zeros(2 * sizeof *scores), *entropy = zeros(R * sizeof *entropy),
                       *load = zeros(2 * E * sizeof *load);
    int32_t(*ids)[R] = zeros(2 * sizeof *ids), *cu = zeros(2 * sizeof *cu);
    cu[1] = R;
    for (int i = 0; i < R * E; i++) {
        scores[0][i] = 0.25f;
        scores[1][i] = i % E == 0 ? 1.0f : 0.0f;
        ids[0][i / E] = i / E % E;
        ids[1][i / E] = 0;
    }
    for (int one = 0; one < 2; one++) {
        struct lf_step_record *rec = record((struct lf_step_record){0});
        const struct lf_k_moe_stats a = {.rows = R,
                                         .experts = E,
                                         .n_docs = 1,
                                         .ids = ids[one],
                                         .cu_seqlens = cu,
                                         .scores = scores[one],
                                         .entropy = entropy,
                                         .load = load,
                                         .k = 1,
                                         .layers = 1,
                                         .rec = rec};
        k->moe_stats.run(q, &a);
        tap_ok(fabs(rec->router_aux - (one ? E : 1)) < 1e-6, "the loss of %s routing",
               one ? "collapsed" : "even");
    }
}

static void test_edges(const struct lf_kernels *k, lf_queue *q)
{
    enum { E = 20, K = 3 };
    float *l = zeros(3 * E * sizeof *l), *w = zeros(3 * K * sizeof *w);
    int32_t *ids = zeros(3 * K * sizeof *ids);
    for (int i = 0; i < 3 * E; i++)
        l[i] = i < E ? 1.0f : i == E + 7 ? NAN : (float)(i % 5);
    for (int e = 0; e < E; e++)
        l[2 * E + e] = -INFINITY;
    l[2 * E + 4] = 0;
    const struct lf_k_moe_route a = {.rows = 3,
                                     .experts = E,
                                     .ldlogits = E,
                                     .logits = l,
                                     .ids = ids,
                                     .weights = w,
                                     .k = K,
                                     .groups = 1,
                                     .top_groups = 1,
                                     .scale = 1,
                                     .renorm = true};
    k->moe_route.run(q, &a);
    tap_ok(ids[0] == 0 && ids[1] == 1 && ids[2] == 2, "ties go to the lower expert");
    bool valid = true;
    for (int i = 0; i < 3; i++)
        valid = valid && ids[K + i] >= 0 && ids[K + i] < E && ids[K + i] != ids[K + (i + 1) % 3];
    tap_ok(valid && w[K] != w[K], "a NaN gives experts that exist and a weight that is NaN");
    tap_ok(ids[2 * K] == 4 && w[2 * K] == 1.0f && w[2 * K + 1] == 0.0f,
           "an expert alone against -inf");
    struct lf_k_moe_route s = a;
    s.sigmoid = true;
    k->moe_route.run(q, &s);
    tap_ok(ids[K] == 7 && w[K] != w[K], "a NaN sigmoid is chosen, so that it is seen");
    s.k = E + 1;
    tap_ok(k->moe_route.check(&s) != 0, "more experts for a row than there are: refused");
    s = a;
    s.groups = 4;
    s.top_groups = 1;
    s.k = 6;
    tap_ok(k->moe_route.check(&s) != 0, "groups too small for k: refused");
}

/* ---- what experts have room for ---- */

/* Ranks one after the other, each block by block, of which the last may end early. */
static int64_t row_of_order(const struct lf_k_moe_keep *a, int64_t j)
{
    int64_t at = 0;
    for (int64_t b = 0; a->blocks; b++)
        for (int64_t r = 0; r < a->block && (at % a->own > 0 || r == 0); r++, at++)
            if (at == j)
                return a->blocks[b] + r;
    return j;
}

/* Rows `first` and following of all, or those of blocks that are dealt. */
static void test_keep(const struct lf_kernels *k, lf_queue *q, const struct lf_k_moe_keep *of)
{
    struct lf_k_moe_keep a = *of;
    const int64_t m = a.all_rows * a.k;
    struct op_buf kept = op_alloc((size_t)(a.rows * a.k) * 4);
    int32_t *all = zeros((size_t)m * 4), *got = kept.p;
    for (int64_t i = 0; i < m; i++) /* of a row all others; few to the last */
        all[i] = (int32_t)((int64_t)(op_rand(9, i / a.k) * 0.5 * (double)a.experts + i % a.k +
                                     (double)(a.experts / 2)) %
                           a.experts);
    if (of->blocks) {
        const int64_t each = (a.own + a.block - 1) / a.block;
        const size_t bytes = (size_t)(a.all_rows / a.own * each) * sizeof *of->blocks;
        a.blocks = memcpy(zeros(bytes), of->blocks, bytes);
    }
    a.all = all;
    a.kept = got;
    if (k->moe_keep.check(&a) || k->moe_keep.run(q, &a))
        tap_bail("moe_keep");
    bool ok = true;
    int64_t dropped = 0;
    for (int64_t i = 0; i < a.rows * a.k && ok; i++) {
        const int64_t j = a.first + i / a.k, row = row_of_order(&a, j);
        int64_t before = 0;
        for (int64_t p = 0; p < row * a.k + i % a.k; p++)
            before += all[p] == all[row * a.k + i % a.k];
        ok = got[i] == (before < a.capacity ? all[row * a.k + i % a.k] : -1);
        dropped += got[i] < 0;
    }
    tap_ok(ok,
           "rows %lld to %lld of %lld%s: an expert takes its first %lld pairs, %lld are dropped",
           (long long)a.first, (long long)(a.first + a.rows), (long long)a.all_rows,
           a.blocks ? " in blocks" : "", (long long)a.capacity, (long long)dropped);
    a.capacity = 0;
    tap_ok(op_guards_intact(&kept) && k->moe_keep.check(&a) != 0,
           "nothing outside is written; no room at all is refused");
    op_free(&kept), zeros(0);
}

static void test_keeps(const struct lf_kernels *k, lf_queue *q)
{
    static const int32_t blocks[] = {0, 16, 40, 56, 8, 24, 32, 48}; /* two ranks with four each */
    static const int32_t shorter[] = {8, 16, 51, 0, 24, 48, 32, 40, 54}; /* three with 8, 8, 3 */
    const struct lf_k_moe_keep all = {
        .rows = 701, .all_rows = 701, .experts = 10, .capacity = 150, .k = 3};
    struct lf_k_moe_keep part = all, dealt = {.all_rows = 64,
                                              .experts = 4,
                                              .block = 8,
                                              .own = 32,
                                              .capacity = 20,
                                              .blocks = blocks,
                                              .k = 2};
    test_keep(k, q, &all);
    part.rows = 233;
    part.first = 300;
    test_keep(k, q, &part);
    dealt.rows = 32;
    test_keep(k, q, &dealt);
    dealt.first = 32;
    test_keep(k, q, &dealt);
    dealt.first = 44; /* begins and ends within a block */
    dealt.rows = 8;
    test_keep(k, q, &dealt);
    dealt.all_rows = 57;
    dealt.own = dealt.rows = 19;
    dealt.blocks = shorter;
    for (dealt.first = 0; dealt.first < 57; dealt.first += 19)
        test_keep(k, q, &dealt);
    test_keep(
        k, q,
        &(struct lf_k_moe_keep){.rows = 1, .all_rows = 1, .experts = 1, .capacity = 1, .k = 1});
}

/* ---- order ---- */

static void test_sort(const struct lf_kernels *k, lf_queue *q, int64_t rows, int kk,
                      int64_t experts, int how)
{
    const int64_t m = rows * kk;
    struct op_buf row_of = op_alloc((size_t)m * 4), place = op_alloc((size_t)m * 4),
                  off = op_alloc((size_t)(experts + 1) * 4);
    int32_t *ids = zeros((size_t)(m + 1) * 4), *p = place.p, *r = row_of.p, *o = off.p;
    int64_t n = 0;
    for (int64_t i = 0; i < m; i++) /* random; only odd experts; all to the last; some to none */
        ids[i] =
            how == 2 ? (int32_t)experts - 1 : (int32_t)((op_rand(5, i) + 1) / 2 * (double)experts);
    for (int64_t i = 0; i < m && how == 1; i++)
        ids[i] = ids[i] | 1;
    for (int64_t i = 0; i < m && how == 3; i++)
        ids[i] = i % 3 ? ids[i] : -1;
    for (int64_t i = 0; i < m; i++)
        n += ids[i] >= 0;
    const struct lf_k_moe_sort a = {.rows = rows,
                                    .experts = experts,
                                    .ids = ids,
                                    .row_of = r,
                                    .place_of = p,
                                    .offsets = o,
                                    .k = kk};
    if (k->moe_sort.check(&a) || k->moe_sort.run(q, &a))
        tap_bail("moe_sort");
    bool ok = o[0] == 0 && o[experts] == n;
    for (int64_t i = n; i < m && ok; i++)
        ok = r[i] == -1;
    for (int64_t i = 0; i < m && ok; i++) {
        ok = ids[i] < 0 ? p[i] == -1
                        : p[i] >= o[ids[i]] && p[i] < o[ids[i] + 1] && r[p[i]] == i / kk;
        for (int64_t j = 0; j < i && ids[i] >= 0 && ok; j++) /* stable */
            ok = ids[i] != ids[j] || p[j] < p[i];
    }
    tap_ok(ok, "%lld pairs in expert order, those of an expert in row order (%d)", (long long)n,
           how);
    tap_ok(op_guards_intact(&row_of) && op_guards_intact(&place) && op_guards_intact(&off),
           "nothing outside is written");
    op_free(&row_of), op_free(&place), op_free(&off), zeros(0);
}

/* ---- the sum and its backward ---- */

static void test_combine(const struct lf_kernels *k, lf_queue *q, int64_t rows, int kk, int64_t c,
                         int type, bool residual)
{
    const int64_t m = rows * kk, ldx = c + 3, ldy = c + 1;
    struct op_buf x = op_random(m * ldx, type, 1, 1), dy = op_random(rows * ldy, type, 2, 1),
                  w = op_random(m, LF_F32, 3, 1);
    struct op_buf y = op_random(rows * ldy, type, 4, 1),
                  dx = op_alloc((size_t)(m * ldx) * lf_dtype_size((enum lf_dtype)type));
    struct op_buf dw = op_alloc((size_t)m * 4);
    int32_t *place = zeros((size_t)m * 4);
    double *want = calloc((size_t)(m * ldx + rows * ldy), sizeof *want),
           *wdw = calloc((size_t)m, sizeof *wdw);
    for (int64_t i = 0; i < m; i++)
        place[i] = i % 5 == 3 ? -1 : (int32_t)((i * 7 + 3) % m); /* 7 divides no m used here */
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < ldy; i++) {
            double s = residual || i >= c ? op_get(y.p, r * ldy + i, type) : 0;
            for (int j = 0; j < kk && i < c; j++)
                s += place[r * kk + j] < 0 ? 0
                                           : op_get(w.p, r * kk + j, LF_F32) *
                                                 op_get(x.p, place[r * kk + j] * ldx + i, type);
            want[r * ldy + i] = s;
        }
    const struct lf_k_moe_combine f = {.rows = rows,
                                       .c = c,
                                       .ldx = ldx,
                                       .ldres = ldy,
                                       .ldy = ldy,
                                       .x = x.p,
                                       .residual = residual ? y.p : NULL,
                                       .place_of = place,
                                       .weights = w.p,
                                       .y = y.p,
                                       .k = kk,
                                       .x_type = (uint8_t)type};
    if (k->moe_combine.check(&f) || k->moe_combine.run(q, &f))
        tap_bail("moe_combine");
    op_ok(op_compare(y.p, type, want, NULL, rows * ldy, 2e-6),
          residual ? "combine + residual" : "combine");
    op_prove(y.p, type, want, NULL, rows * ldy, 2e-6, c - 1);
    memset(dx.p, 0, dx.bytes);
    memset(want, 0, (size_t)(m * ldx) * sizeof *want);
    for (int64_t i = 0; i < m; i++)
        for (int64_t e = 0; e < c && place[i] >= 0; e++) {
            double g = op_get(dy.p, i / kk * ldy + e, type);
            want[place[i] * ldx + e] = op_get(w.p, i, LF_F32) * g;
            wdw[i] += g * op_get(x.p, place[i] * ldx + e, type);
        }
    const struct lf_k_moe_combine_bwd b = {.rows = rows,
                                           .c = c,
                                           .ldx = ldx,
                                           .lddy = ldy,
                                           .lddx = ldx,
                                           .x = x.p,
                                           .dy = dy.p,
                                           .place_of = place,
                                           .weights = w.p,
                                           .dx = dx.p,
                                           .dweights = dw.p,
                                           .k = kk,
                                           .x_type = (uint8_t)type};
    if (k->moe_combine_bwd.check(&b) || k->moe_combine_bwd.run(q, &b))
        tap_bail("moe_combine_bwd");
    op_ok(op_compare(dx.p, type, want, NULL, m * ldx, 2e-6), "its dx");
    op_ok(op_compare(dw.p, LF_F32, wdw, NULL, m, 3e-6 * (double)c), "its dweights");
    op_prove(dw.p, LF_F32, wdw, NULL, m, 3e-6 * (double)c, m - 1);
    tap_ok(op_guards_intact(&y) && op_guards_intact(&dx) && op_guards_intact(&dw),
           "nothing outside is written");
    op_free(&x), op_free(&dy), op_free(&w), op_free(&y), op_free(&dx), op_free(&dw);
    zeros(0), free(want), free(wdw);
}

static void test_gate(const struct lf_kernels *k, lf_queue *q, int64_t rows, int64_t c, int type)
{
    struct op_buf x = op_random(rows * c, type, 1, 1), dy = op_random(rows * c, type, 2, 1),
                  g = op_random(rows, LF_F32, 3, 4);
    struct op_buf y = op_alloc(x.bytes), dg = op_alloc((size_t)rows * 4);
    double *want = calloc((size_t)(rows * c), sizeof *want),
           *wdg = calloc((size_t)rows, sizeof *wdg);
    const struct lf_k_row_gate_fwd f = {.rows = rows,
                                        .c = c,
                                        .ldx = c,
                                        .ldy = c,
                                        .x = x.p,
                                        .gate = g.p,
                                        .y = y.p,
                                        .x_type = (uint8_t)type};
    if (k->row_gate_fwd.check(&f) || k->row_gate_fwd.run(q, &f))
        tap_bail("row_gate_fwd");
    for (int64_t i = 0; i < rows * c; i++)
        want[i] = op_get(x.p, i, type) / (1 + exp(-op_get(g.p, i / c, LF_F32)));
    op_ok(op_compare(y.p, type, want, NULL, rows * c, 1e-6), "gate of a row");
    for (int64_t i = 0; i < rows * c;
         i++) { /* finite differences of the reference along the gate */
        const double v = op_get(g.p, i / c, LF_F32), d = op_get(dy.p, i, type), e = 1e-5;
        wdg[i / c] +=
            d * op_get(x.p, i, type) * (1 / (1 + exp(-v - e)) - 1 / (1 + exp(-v + e))) / (2 * e);
        want[i] = d / (1 + exp(-v));
    }
    const struct lf_k_row_gate_bwd b = {.rows = rows,
                                        .c = c,
                                        .ldx = c,
                                        .lddy = c,
                                        .lddx = c,
                                        .x = x.p,
                                        .dy = dy.p,
                                        .gate = g.p,
                                        .dx = dy.p,
                                        .dgate = dg.p,
                                        .x_type = (uint8_t)type};
    if (k->row_gate_bwd.check(&b) || k->row_gate_bwd.run(q, &b))
        tap_bail("row_gate_bwd");
    op_ok(op_compare(dy.p, type, want, NULL, rows * c, 1e-6), "its dx, in place of dy");
    op_ok(op_compare(dg.p, LF_F32, wdg, NULL, rows, 3e-6 * (double)c), "its dgate");
    op_prove(dg.p, LF_F32, wdg, NULL, rows, 3e-6 * (double)c, 0);
    tap_ok(op_guards_intact(&y) && op_guards_intact(&dy) && op_guards_intact(&dg),
           "nothing outside is written");
    op_free(&x), op_free(&dy), op_free(&g), op_free(&y), op_free(&dg), free(want), free(wdg);
}

/* Weights times numbers of their experts; one expert has no pair. */
static void test_gain(const struct lf_kernels *k, lf_queue *q, int64_t rows, int kk,
                      int64_t experts)
{
    const int64_t m = rows * kk;
    struct op_buf x = op_random(m, LF_F32, 1, 1), dy = op_random(m, LF_F32, 2, 1),
                  gain = op_random(experts, LF_F32, 3, 1), y = op_alloc((size_t)m * 4),
                  dg = op_alloc((size_t)experts * 4);
    int32_t *ids = zeros((size_t)m * 4);
    double *want = calloc((size_t)(m + experts), sizeof *want), *wdg = want + m;
    for (int64_t i = 0; i < m; i++)
        ids[i] = (int32_t)((i * 7 + i / kk) % (experts - 1));
    for (int64_t e = 0; e < experts; e++) {
        op_set(dg.p, e, LF_F32, 0.5);
        wdg[e] = 0.5;
    }
    for (int64_t i = 0; i < m; i++) {
        want[i] = op_get(gain.p, ids[i], LF_F32) * op_get(x.p, i, LF_F32);
        wdg[ids[i]] += op_get(dy.p, i, LF_F32) * op_get(x.p, i, LF_F32);
    }
    const struct lf_k_moe_gain f = {
        .rows = rows, .experts = experts, .ids = ids, .x = x.p, .gain = gain.p, .y = y.p, .k = kk};
    const struct lf_k_moe_gain_dw b = {.rows = rows,
                                       .experts = experts,
                                       .ids = ids,
                                       .x = x.p,
                                       .dy = dy.p,
                                       .dgain = dg.p,
                                       .k = kk,
                                       .accumulate = true};
    if (k->moe_gain.check(&f) || k->moe_gain.run(q, &f) || k->moe_gain_dw.check(&b) ||
        k->moe_gain_dw.run(q, &b))
        tap_bail("moe_gain");
    op_ok(op_compare(y.p, LF_F32, want, NULL, m, 2e-7), "weights times numbers of experts");
    op_ok(op_compare(dg.p, LF_F32, wdg, NULL, experts, 1e-6), "the gradient of the numbers");
    op_prove(dg.p, LF_F32, wdg, NULL, experts, 1e-6, 0);
    tap_ok(op_guards_intact(&y) && op_guards_intact(&dg), "nothing outside is written");
    op_free(&x), op_free(&dy), op_free(&gain), op_free(&y), op_free(&dg);
    zeros(0), free(want);
}

static void test_balance(const struct lf_kernels *k, lf_queue *q)
{
    float *bias = zeros(16), *counts = zeros(16), *other = zeros(4), *one = zeros(4);
    struct lf_opt_tensor *t = zeros(2 * sizeof *t);
    memcpy(bias, (const float[]){0, 1, -1, 0.5f}, 16);
    memcpy(counts, (const float[]){10, 2, 6, 6}, 16);
    *other = 3;
    *one = 7;
    t[0] = (struct lf_opt_tensor){.n = 4, .master = bias, .grad = counts, .lr_scale = 0.125f};
    t[1] = (struct lf_opt_tensor){.n = 1, .master = other, .grad = one, .lr_scale = 1};
    struct lf_step_record *rec = record((struct lf_step_record){.skip = 1});
    const struct lf_k_moe_balance a = {.n_tensors = 2, .t = t, .rec = rec};
    k->moe_balance.run(q, &a);
    tap_ok(bias[0] == 0 && bias[1] == 1, "a step that is skipped changes no bias");
    rec->skip = 0;
    k->moe_balance.run(q, &a);
    tap_ok(bias[0] == -0.125f && bias[1] == 1.125f && bias[2] == -1 && bias[3] == 0.5f &&
               other[0] == 3,
           "busy experts go down by the rate, idle ones up, those at the mean stay");
    zeros(0);
}

/* Rows and sums do not depend on threads. */
static void test_threads(const struct lf_kernels *k)
{
    const struct rcase t = {700, 48, 5, 1, 1, false, true, false, 1, 20};
    lf_queue *q[2] = {op_queue_create(1), op_queue_create(OP_THREADS)};
    struct rdata d[2];
    float(*load)[96] = zeros(2 * sizeof *load);
    struct lf_step_record *rec = zeros(2 * sizeof *rec);
    for (int i = 0; i < 2; i++) {
        route_setup(&d[i], &t);
        k->moe_route.run(q[i], &d[i].fwd);
        const struct lf_k_moe_stats a = {.rows = t.rows,
                                         .experts = t.experts,
                                         .n_docs = 2,
                                         .ids = d[i].ids.p,
                                         .cu_seqlens = d[i].cu,
                                         .scores = d[i].scores.p,
                                         .entropy = d[i].entropy.p,
                                         .load = load[i],
                                         .k = t.k,
                                         .layers = 1,
                                         .rec = &rec[i]};
        k->moe_stats.run(q[i], &a);
    }
    tap_ok(!memcmp(d[0].ids.p, d[1].ids.p, d[0].ids.bytes) &&
               !memcmp(d[0].weights.p, d[1].weights.p, d[0].weights.bytes) &&
               !memcmp(load[0], load[1], sizeof load[0]) &&
               !memcmp(&rec[0], &rec[1], sizeof rec[0]),
           "1 and 3 threads: the same bits");
    for (int i = 0; i < 2; i++) {
        route_teardown(&d[i]);
        op_queue_destroy(q[i]);
    }
    zeros(0);
}

int main(void)
{
    lf_queue *q = op_queue_create(2);
    for (int b = 0; b < OP_BACKENDS; b++) {
        const struct lf_kernels *k = op_kernels(b);
        if (!k)
            continue;
        for (size_t i = 0; i < N_CASES; i++) {
            struct rdata d;
            char name[96];
            snprintf(name, sizeof name, "%s %lld rows, %d of %lld%s", k->family,
                     (long long)cases[i].rows, cases[i].k, (long long)cases[i].experts,
                     cases[i].sigmoid ? ", sigmoid" : "");
            route_setup(&d, &cases[i]);
            TAP(6, test_route(k, q, &cases[i], &d, name));
            TAP(3, test_route_bwd(k, q, &cases[i], &d, false));
            TAP(3, test_route_bwd(k, q, &cases[i], &d, true));
            TAP(5, test_stats(k, q, &cases[i], &d));
            route_teardown(&d);
            zeros(0);
        }
        TAP(2, test_loss_bounds(k, q));
        TAP(6, test_edges(k, q));
        TAP(18, test_keeps(k, q));
        for (int how = 0; how < 4; how++) {
            TAP(2, test_sort(k, q, 1, 1, 1, how == 1 ? 0 : how));
            TAP(2, test_sort(k, q, 53, 4, 60, how));
            TAP(2, test_sort(k, q, 300, 2, 8, how));
            TAP(2, test_sort(k, q, 701, 3, 10, how));
        }
        TAP(4, test_gain(k, q, 5, 2, 4));
        TAP(4, test_gain(k, q, 300, 8, 70));
        for (int type = LF_F32; type <= OP_LAST_FLOAT; type++) {
            TAP(6, test_combine(k, q, 5, 2, 33, type, false));
            TAP(6, test_combine(k, q, 17, 4, 64, type, true));
            TAP(6, test_combine(k, q, 1, 8, 1, type, false));
            TAP(5, test_gate(k, q, 13, 37, type));
        }
        TAP(2, test_balance(k, q));
        TAP(1, test_threads(k));
    }
    op_queue_destroy(q);
    return tap_done();
}
