/* SPDX-License-Identifier: Apache-2.0
 *
 * Routing: scores and the choice of experts, its backward with the load-balancing loss, sums of a
 * micro-batch, the bias rule. Rows are independent of each other and of threads; sums over rows run
 * over each expert's column in row order.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(moe_route)
LF_CPU_DECLARE(moe_route_bwd)
LF_CPU_DECLARE(moe_stats)
LF_CPU_DECLARE(moe_balance)

LF_NO_WORK(moe_route)
LF_NO_WORK(moe_route_bwd)
LF_NO_WORK(moe_stats)
LF_NO_WORK(moe_balance)

#define TINY 1e-20f /* keeps a row whose sigmoids are all 0 finite */

static bool sizes_ok(int64_t rows, int64_t experts, int32_t k)
{
    return rows >= 0 && experts > 0 && experts <= LF_MOE_MAX_EXPERTS && k > 0 && k <= experts;
}

/* ---- forward ---- */

int LF_SYM(moe_route_check)(const struct lf_k_moe_route *a)
{
    bool groups = a->groups <= 1 ||
                  (a->experts % a->groups == 0 && a->top_groups > 0 && a->top_groups <= a->groups &&
                   a->experts / a->groups * a->top_groups >= a->k);
    return sizes_ok(a->rows, a->experts, a->k) && groups && a->ldlogits >= a->experts ? LF_K_OK
                                                                                      : LF_K_EINVAL;
}

/* s = softmax(l); *entropy = lse - sum s l. */
static void softmax(const float *l, int64_t e, float *s, float *entropy)
{
    lf_v top = lf_v_set1(-INFINITY), sum = lf_v_zero(), sl = lf_v_zero();
    LF_EACH_VEC(c, n, e)
    top = lf_v_max(
        lf_v_select(lf_vi_iota() < (int32_t)n, lf_v_load_n(l + c, (int)n), lf_v_set1(-INFINITY)),
        top);
    const float max = lf_v_hmax(top);
    LF_EACH_VEC(c, n, e)
    {
        lf_v x = lf_v_exp(lf_v_load_n(l + c, (int)n) - lf_v_set1(max));
        x = lf_v_select(lf_vi_iota() < (int32_t)n, x, lf_v_zero());
        sum += x;
        lf_v_store_n(s + c, x, (int)n);
    }
    const float total = lf_v_hsum(sum);
    const lf_v inv = lf_v_set1(1.0f / total);
    LF_EACH_VEC(c, n, e)
    {
        lf_v x = lf_v_load_n(s + c, (int)n) * inv, d = lf_v_load_n(l + c, (int)n) - lf_v_set1(max);
        lf_v_store_n(s + c, x, (int)n);
        sl += lf_v_select(x > lf_v_zero(), x * d, lf_v_zero()); /* 0 log 0 = 0, not 0 * -inf */
    }
    *entropy = logf(total) - lf_v_hsum(sl);
}

static float sum_of(const float *s, int64_t e)
{
    lf_v sum = lf_v_zero();
    LF_EACH_VEC(c, n, e) sum += lf_v_load_n(s + c, (int)n);
    return lf_v_hsum(sum);
}

static void sigmoids(const float *l, int64_t e, float *s)
{
    LF_EACH_VEC(c, n, e) lf_v_store_n(s + c, lf_v_sigmoid(lf_v_load_n(l + c, (int)n)), (int)n);
}

static float entropy_of(const float *s, int64_t e)
{
    const float inv = 1.0f / (sum_of(s, e) + TINY);
    float h = 0;
    for (int64_t i = 0; i < e; i++) {
        float p = s[i] * inv;
        h -= p > 0.0f ? p * logf(p) : 0.0f;
    }
    return h;
}

/* NaN is better than anything, so that it is chosen and seen. */
LF_INLINE bool better(float v, float best)
{
    return v > best || (v != v && best == best);
}

/* Index of the best of v[0..n) that is not taken (taken NULL: of all), -1 when all are. */
static int64_t best_of(const float *v, const bool *taken, int64_t n)
{
    int64_t b = -1;
    for (int64_t i = 0; i < n; i++)
        if (!(taken && taken[i]) && (b < 0 || better(v[i], v[b])))
            b = i;
    return b;
}

/* What a group is worth: its best choice, or the sum of its two best. */
static float worth(const float *v, int64_t n, bool two)
{
    int64_t b = best_of(v, NULL, n);
    float second = -INFINITY;
    for (int64_t i = 0; two && i < n; i++)
        if (i != b && better(v[i], second))
            second = v[i];
    return two && n > 1 ? v[b] + second : v[b];
}

/* taken[] of every expert outside the worthiest groups. */
static void close_groups(const struct lf_k_moe_route *a, const float *choice, bool *taken)
{
    const int64_t size = a->experts / a->groups;
    float w[LF_MOE_MAX_EXPERTS];
    bool open[LF_MOE_MAX_EXPERTS] = {false};
    for (int64_t g = 0; g < a->groups; g++)
        w[g] = worth(choice + g * size, size, a->sigmoid);
    for (int32_t i = 0; i < a->top_groups; i++)
        open[best_of(w, open, a->groups)] = true;
    for (int64_t e = 0; e < a->experts; e++)
        taken[e] = !open[e / size];
}

static void choose(const struct lf_k_moe_route *a, const float *score, int32_t *ids, float *weights)
{
    bool taken[LF_MOE_MAX_EXPERTS];
    float biased[LF_MOE_MAX_EXPERTS];
    const float *choice = a->bias ? biased : score;
    for (int64_t e = 0; a->bias && e < a->experts; e++)
        biased[e] = score[e] + a->bias[e];
    memset(taken, 0, sizeof *taken * (size_t)a->experts);
    if (a->groups > 1)
        close_groups(a, choice, taken);
    float sum = 0;
    for (int32_t j = 0; j < a->k; j++) {
        int64_t e = best_of(choice, taken, a->experts);
        taken[e] = true;
        ids[j] = (int32_t)e;
        sum += score[e];
    }
    const float f = a->renorm ? a->scale / (sum + TINY) : a->scale;
    for (int32_t j = 0; j < a->k; j++)
        weights[j] = score[ids[j]] * f;
}

static void route_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_moe_route *a = arg;
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        float own[LF_MOE_MAX_EXPERTS], h = 0;
        float *s = a->scores ? a->scores + r * a->experts : own;
        if (a->sigmoid)
            sigmoids(a->logits + r * a->ldlogits, a->experts, s);
        else
            softmax(a->logits + r * a->ldlogits, a->experts, s, &h);
        if (a->entropy)
            a->entropy[r] = a->sigmoid ? entropy_of(s, a->experts) : h;
        choose(a, s, a->ids + r * a->k, a->weights + r * a->k);
    }
}

int LF_SYM(moe_route)(lf_queue *q, const struct lf_k_moe_route *a)
{
    lf_deal(q, lf_team(q, a->rows * a->experts * (16 + 4 * a->k)), a->rows,
            lf_few_rows(a->experts * (4 + a->k)), route_rows, a);
    return LF_K_OK;
}

/* ---- backward ---- */

int LF_SYM(moe_route_bwd_check)(const struct lf_k_moe_route_bwd *a)
{
    bool aux = !a->load || (a->layers > 0 && a->cu_seqlens && a->n_docs > 0 && a->rec);
    return sizes_ok(a->rows, a->experts, a->k) && aux && a->lddlogits >= a->experts ? LF_K_OK
                                                                                    : LF_K_EINVAL;
}

LF_INLINE int64_t real_rows(const int32_t *cu, int64_t n_docs, int64_t rows)
{
    int64_t n = cu[n_docs];
    return n < 0 ? 0 : n < rows ? n : rows;
}

/* d loss / d P_e times the number of rows and layers: what one row's share of e adds to the
 * loss. */
static void aux_slopes(const struct lf_k_moe_route_bwd *a, int64_t n, float *slope)
{
    const double rows = (double)n * a->layers;
    const double f = n ? (double)a->aux * (double)a->rec->inv_batches * (double)a->rec->loss_scale *
                             (double)a->experts / (rows * rows)
                       : 0;
    for (int64_t e = 0; e < a->experts; e++)
        slope[e] = (float)(f * (double)a->load[e]);
}

/* ds: gradient of the scores. */
static void score_grad(const struct lf_k_moe_route_bwd *a, int64_t r, const float *slope, float *ds)
{
    const int64_t E = a->experts;
    const float *s = a->scores + r * E, *w = a->weights + r * a->k, *dw = a->dweights + r * a->k;
    const int32_t *id = a->ids + r * a->k;
    if (!slope) {
        memset(ds, 0, sizeof *ds * (size_t)E);
    } else if (!a->sigmoid) {
        memcpy(ds, slope, sizeof *ds * (size_t)E);
    } else { /* shares s / sum s */
        const float inv = 1.0f / (sum_of(s, E) + TINY);
        float mean = 0;
        for (int64_t e = 0; e < E; e++)
            mean += slope[e] * s[e] * inv;
        for (int64_t e = 0; e < E; e++)
            ds[e] = (slope[e] - mean) * inv;
    }
    float sum = 0, dot = 0;
    for (int32_t j = 0; j < a->k; j++) {
        sum += s[id[j]];
        dot += dw[j] * w[j];
    }
    for (int32_t j = 0; j < a->k; j++)
        ds[id[j]] += a->renorm ? (a->scale * dw[j] - dot) / (sum + TINY) : a->scale * dw[j];
}

struct route_bwd {
    const struct lf_k_moe_route_bwd *a;
    int64_t real; /* rows that are of documents */
    float slope[LF_MOE_MAX_EXPERTS];
};

static void route_bwd_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct route_bwd *job = arg;
    const struct lf_k_moe_route_bwd *a = job->a;
    const int64_t E = a->experts;
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        float ds[LF_MOE_MAX_EXPERTS], *dl = a->dlogits + r * a->lddlogits;
        const float *s = a->scores + r * E;
        score_grad(a, r, r < job->real ? job->slope : NULL, ds);
        float dot = 0;
        for (int64_t e = 0; e < E && !a->sigmoid; e++)
            dot += ds[e] * s[e];
        for (int64_t e = 0; e < E; e++)
            dl[e] = s[e] * (a->sigmoid ? ds[e] * (1.0f - s[e]) : ds[e] - dot);
    }
}

int LF_SYM(moe_route_bwd)(lf_queue *q, const struct lf_k_moe_route_bwd *a)
{
    struct route_bwd job = {.a = a,
                            .real = a->load ? real_rows(a->cu_seqlens, a->n_docs, a->rows) : 0};
    if (a->load)
        aux_slopes(a, job.real, job.slope);
    lf_deal(q, lf_team(q, a->rows * a->experts * 16), a->rows, lf_few_rows(a->experts * 4),
            route_bwd_rows, &job);
    return LF_K_OK;
}

/* ---- sums ---- */

int LF_SYM(moe_stats_check)(const struct lf_k_moe_stats *a)
{
    return sizes_ok(a->rows, a->experts, a->k) && a->layers >= 0 && a->n_docs > 0 ? LF_K_OK
                                                                                  : LF_K_EINVAL;
}

/* Pairs of each expert, exact in f32 up to 2^24 of them. */
static void count_pairs(const struct lf_k_moe_stats *a, int64_t n, float *count)
{
    int64_t c[LF_MOE_MAX_EXPERTS] = {0};
    for (int64_t i = 0; i < n * a->k; i++)
        c[a->ids[i]]++;
    for (int64_t e = 0; e < a->experts; e++)
        count[e] = (float)c[e];
}

struct shares {
    const struct lf_k_moe_stats *a;
    int64_t n; /* rows */
    float *sum;
};

/* Columns [lo, hi) of the sums over rows of shares, in row order. */
static void share_columns(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct shares *job = arg;
    const struct lf_k_moe_stats *a = job->a;
    const int64_t E = a->experts;
    double s[LF_MOE_MAX_EXPERTS] = {0};
    (void)q;
    for (int64_t r = 0; r < job->n; r++) {
        const float inv = 1.0f / (sum_of(a->scores + r * E, E) + TINY);
        for (int64_t e = lo; e < hi; e++)
            s[e] += (double)(a->scores[r * E + e] * inv);
    }
    for (int64_t e = lo; e < hi; e++)
        job->sum[e] = (float)s[e];
}

/* Every piece adds up all of a row to know its share, so there is one for a thread. */
static void share_sums(lf_queue *q, const struct lf_k_moe_stats *a, int64_t n, float *sum)
{
    const int team = lf_team(q, n * a->experts * 4);
    const int64_t each = ((a->experts + team - 1) / team + 15) / 16 * 16;
    lf_deal(q, team, a->experts, each, share_columns, &(struct shares){a, n, sum});
}

static void tell(const struct lf_k_moe_stats *a, int64_t n, const float *count)
{
    double h = 0, top = 0, loss = 0, over = 0;
    for (int64_t r = 0; r < n; r++)
        h += (double)a->entropy[r];
    for (int64_t e = 0; e < a->experts; e++) {
        top = (double)count[e] > top ? (double)count[e] : top;
        loss += (double)a->load[e] * (double)a->load[a->experts + e];
        if (a->capacity > 0 && (double)count[e] > (double)a->capacity)
            over += (double)count[e] - (double)a->capacity;
    }
    a->rec->router_entropy += h / (double)n;
    a->rec->router_load += top * (double)a->experts / ((double)n * a->k);
    a->rec->router_dropped += over / ((double)n * a->k);
    if (a->layers > 0)
        a->rec->router_aux +=
            (double)a->experts * loss / ((double)n * a->layers * (double)n * a->layers);
}

int LF_SYM(moe_stats)(lf_queue *q, const struct lf_k_moe_stats *a)
{
    const int64_t E = a->experts, n = real_rows(a->cu_seqlens, a->n_docs, a->rows);
    float count[LF_MOE_MAX_EXPERTS], sum[LF_MOE_MAX_EXPERTS];
    count_pairs(a, n, count);
    share_sums(q, a, n, sum);
    for (int64_t e = 0; e < E; e++) {
        a->load[e] = (a->prev ? a->prev[e] : 0.0f) + count[e];
        a->load[E + e] = (a->prev ? a->prev[E + e] : 0.0f) + sum[e];
        if (a->counts)
            a->counts[e] = (a->accumulate ? a->counts[e] : 0.0f) + count[e];
    }
    if (a->rec && n > 0)
        tell(a, n, count);
    if (a->rec)
        a->rec->router_seen++;
    return LF_K_OK;
}

/* ---- the bias rule ---- */

int LF_SYM(moe_balance_check)(const struct lf_k_moe_balance *a)
{
    return a->n_tensors >= 0 ? LF_K_OK : LF_K_EINVAL;
}

int LF_SYM(moe_balance)(lf_queue *q, const struct lf_k_moe_balance *a)
{
    (void)q;
    for (int64_t i = 0; i < a->n_tensors && !a->rec->skip; i++) {
        const struct lf_opt_tensor *t = &a->t[i];
        float *bias = t->master;
        double sum = 0;
        for (int64_t e = 0; e < t->n; e++)
            sum += (double)t->grad[e];
        const double mean = sum / (double)t->n;
        for (int64_t e = 0; e < t->n; e++)
            bias[e] += (double)t->grad[e] < mean   ? t->lr_scale
                       : (double)t->grad[e] > mean ? -t->lr_scale
                                                   : 0.0f;
    }
    return LF_K_OK;
}
