/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixture of experts: routing with its backward, sums of a micro-batch, what experts have room
 * for, the order by expert, the weighted sum of what experts gave. A warp owns a row; sums over
 * rows are f64 and follow a tree fixed by the shapes.
 */
#include "kernels/cuda/act.h"
#include "kernels/cuda/each.h"
#include "kernels/cuda/moe.h"

#define TINY 1e-20f /* keeps a row whose sigmoids are all 0 finite */

LF_DEV int64_t warp_row(void)
{
    return (int64_t)blockIdx.x * LF_MOE_WARPS + threadIdx.x / 32;
}

/* for every expert of this lane */
#define EACH_LANE(e, n) for (int e = (int)threadIdx.x % 32; e < (n); e += 32)

LF_DEV float row_sum(const float *s, int n)
{
    float v = 0.0f;
    EACH_LANE(e, n) v += s[e];
    return lf_warp_sum(v);
}

/* ---- routing ---- */

/* Whether (v, i) comes before (w, j): NaN first, so that it is chosen and seen, then larger, then
 * the lower index; -1 is no candidate. */
LF_DEV bool before(float v, int i, float w, int j)
{
    if (i < 0 || j < 0)
        return i >= 0;
    if ((v != v) != (w != w))
        return v != v;
    if (v != v || v == w)
        return i < j;
    return v > w;
}

/* Index of the best of v[0 .. n) that is not taken, in every lane. */
LF_DEV int best_of(const float *v, const int *taken, int n)
{
    float top = 0.0f;
    int at = -1;
    EACH_LANE(e, n)
    {
        if (!taken[e] && before(v[e], e, top, at)) {
            top = v[e];
            at = e;
        }
    }
    LF_UNROLL for (int m = 16; m; m >>= 1)
    {
        const float w = lf_shfl_xor(top, m);
        const int j = lf_shfl_xor_i(at, m);
        if (before(w, j, top, at)) {
            top = w;
            at = j;
        }
    }
    return at;
}

/* score = softmax(l); the entropy. */
LF_DEV float softmax(const float *l, int n, float *score)
{
    float top = -INFINITY, sum = 0.0f, sl = 0.0f;
    EACH_LANE(e, n) top = fmaxf(top, l[e]);
    top = lf_warp_max(top);
    EACH_LANE(e, n)
    {
        score[e] = expf(l[e] - top);
        sum += score[e];
    }
    sum = lf_warp_sum(sum);
    EACH_LANE(e, n)
    {
        score[e] *= 1.0f / sum;
        sl = score[e] > 0.0f ? fmaf(score[e], l[e] - top, sl) : sl; /* 0 log 0 = 0, not 0 * -inf */
    }
    return logf(sum) - lf_warp_sum(sl);
}

LF_DEV float sigmoids(const float *l, int n, float *score)
{
    float h = 0.0f;
    EACH_LANE(e, n) score[e] = lf_sigmoid(l[e]);
    const float inv = 1.0f / (row_sum(score, n) + TINY);
    EACH_LANE(e, n)
    {
        const float p = score[e] * inv;
        h = p > 0.0f ? fmaf(-p, logf(p), h) : h;
    }
    return lf_warp_sum(h);
}

/* What a group is worth: its best choice, or the sum of its two best. One lane does it. */
LF_DEV float worth(const float *v, int n, bool two)
{
    float top = v[0], second = -INFINITY;
    for (int i = 1; i < n; i++) {
        const bool first = before(v[i], i, top, 0);
        const float lower = first ? top : v[i];
        top = first ? v[i] : top;
        if (lower > second || (lower != lower && second == second))
            second = lower;
    }
    return two && n > 1 ? top + second : top;
}

/* taken[] of every expert outside the worthiest groups. w, shut: room for the groups. */
LF_DEV void close_groups(const struct lf_k_moe_route *a, const float *choice, int *taken, float *w,
                         int *shut)
{
    const int size = (int)a->experts / a->groups;
    EACH_LANE(g, a->groups)
    {
        w[g] = worth(choice + g * size, size, a->sigmoid);
        shut[g] = 0;
    }
    __syncwarp();
    for (int i = 0; i < a->top_groups; i++) {
        const int g = best_of(w, shut, a->groups);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            shut[g] = 1;
        __syncwarp();
    }
    EACH_LANE(e, (int)a->experts) taken[e] = !shut[e / size];
    __syncwarp();
}

LF_KERNEL_PER_SM(moe_route, struct lf_k_moe_route, 32 * LF_MOE_WARPS, 8)
{
    LF_SHARED(float, shared);
    const int64_t r = warp_row();
    const int n = (int)a->experts, lane = (int)threadIdx.x % 32;
    float *score = shared + (int64_t)LF_MOE_ROUTE_ROWS * n * (threadIdx.x / 32),
          *choice = score + n, *w = choice + n;
    int *taken = (int *)(void *)(w + n), *shut = taken + n;
    if (r >= a->rows)
        return;
    const float *l = a->logits + r * a->ldlogits;
    const float h = a->sigmoid ? sigmoids(l, n, score) : softmax(l, n, score);
    EACH_LANE(e, n)
    {
        choice[e] = score[e] + (a->bias ? a->bias[e] : 0.0f);
        taken[e] = 0;
        if (a->scores)
            a->scores[r * n + e] = score[e];
    }
    if (a->entropy && lane == 0)
        a->entropy[r] = h;
    __syncwarp();
    if (a->groups > 1)
        close_groups(a, choice, taken, w, shut);
    float sum = 0.0f;
    for (int j = 0; j < a->k; j++) {
        const int e = best_of(choice, taken, n);
        __syncwarp();
        sum += score[e];
        if (lane == 0) {
            taken[e] = 1;
            a->ids[r * a->k + j] = e;
        }
        __syncwarp();
    }
    const float f = a->renorm ? a->scale / (sum + TINY) : a->scale;
    EACH_LANE(j, a->k) a->weights[r * a->k + j] = score[a->ids[r * a->k + j]] * f;
}

/* ---- its backward ---- */

LF_DEV int64_t real_rows(const int32_t *cu, int64_t n_docs, int64_t rows)
{
    const int64_t n = cu[n_docs];
    return n < 0 ? 0 : n < rows ? n : rows;
}

/* ds = gradient of the scores by the balancing loss, for a row that is not padding. */
LF_DEV void aux_grad(const struct lf_k_moe_route_bwd *a, int64_t real, const float *s, float *ds)
{
    const int n = (int)a->experts;
    const double rows = (double)real * a->layers;
    const double f = (double)a->aux * (double)a->rec->inv_batches * (double)a->rec->loss_scale *
                     (double)n / (rows * rows);
    float mean = 0.0f, inv = 1.0f;
    EACH_LANE(e, n) ds[e] = (float)(f * (double)a->load[e]);
    if (!a->sigmoid)
        return;
    inv = 1.0f / (row_sum(s, n) + TINY); /* shares s / sum s */
    EACH_LANE(e, n) mean = fmaf(ds[e] * s[e], inv, mean);
    mean = lf_warp_sum(mean);
    EACH_LANE(e, n) ds[e] = (ds[e] - mean) * inv;
}

LF_KERNEL(moe_route_bwd, struct lf_k_moe_route_bwd, 32 * LF_MOE_WARPS)
{
    LF_SHARED(float, shared);
    const int64_t r = warp_row();
    const int n = (int)a->experts;
    float *ds = shared + (int64_t)n * (threadIdx.x / 32), sum = 0.0f, dot = 0.0f;
    if (r >= a->rows)
        return;
    const float *s = a->scores + r * n, *w = a->weights + r * a->k, *dw = a->dweights + r * a->k;
    const int32_t *id = a->ids + r * a->k;
    const int64_t real = a->load ? real_rows(a->cu_seqlens, a->n_docs, a->rows) : 0;
    EACH_LANE(e, n) ds[e] = 0.0f;
    if (r < real)
        aux_grad(a, real, s, ds);
    EACH_LANE(j, a->k)
    {
        sum += s[id[j]];
        dot = fmaf(dw[j], w[j], dot);
    }
    sum = lf_warp_sum(sum);
    dot = lf_warp_sum(dot);
    __syncwarp();
    EACH_LANE(j, a->k) /* ids of a row differ */
    ds[id[j]] += a->renorm ? fmaf(a->scale, dw[j], -dot) / (sum + TINY) : a->scale * dw[j];
    __syncwarp();
    dot = 0.0f;
    EACH_LANE(e, n) dot = a->sigmoid ? 0.0f : fmaf(ds[e], s[e], dot);
    dot = lf_warp_sum(dot);
    EACH_LANE(e, n)
    a->dlogits[r * a->lddlogits + e] = s[e] * (a->sigmoid ? ds[e] * (1.0f - s[e]) : ds[e] - dot);
}

/* ---- sums of a micro-batch ---- */

/* A block for 32 experts: lane = expert, warp w takes rows w, w + 32, ... */
LF_KERNEL(moe_stats, struct lf_k_moe_stats, 1024)
{
    LF_SHARED(double, part);
    const int n = (int)a->experts, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int e = (int)blockIdx.x * 32 + lane;
    const int64_t real = real_rows(a->cu_seqlens, a->n_docs, a->rows);
    double share = 0.0, count = 0.0;
    for (int64_t r = warp; r < real; r += 32) {
        const float inv = 1.0f / (row_sum(a->scores + r * n, n) + TINY);
        share += e < n ? (double)(a->scores[r * n + e] * inv) : 0.0;
        for (int j = 0; j < a->k; j++)
            count += a->ids[r * a->k + j] == e ? 1.0 : 0.0;
    }
    part[threadIdx.x] = share;
    part[1024 + threadIdx.x] = count;
    __syncthreads();
    if (warp > 0 || e >= n)
        return;
    share = count = 0.0;
    for (int w = 0; w < 32; w++) {
        share += part[32 * w + lane];
        count += part[1024 + 32 * w + lane];
    }
    a->load[e] = (a->prev ? a->prev[e] : 0.0f) + (float)count;
    a->load[n + e] = (a->prev ? a->prev[n + e] : 0.0f) + (float)share;
    if (a->counts)
        a->counts[e] = (a->accumulate ? a->counts[e] : 0.0f) + (float)count;
}

/* One warp, after moe_stats: the record. */
LF_KERNEL(moe_stats_end, struct lf_k_moe_stats, 32)
{
    const int n = (int)a->experts;
    const int64_t real = real_rows(a->cu_seqlens, a->n_docs, a->rows);
    double h = 0.0, loss = 0.0, over = 0.0;
    float top = 0.0f;
    for (int64_t r = threadIdx.x; r < real; r += 32)
        h += (double)a->entropy[r];
    EACH_LANE(e, n)
    {
        const float count = a->load[e] - (a->prev ? a->prev[e] : 0.0f); /* whole numbers, exact */
        top = fmaxf(top, count);
        over += a->capacity > 0 && count > (float)a->capacity ? (double)(count - (float)a->capacity)
                                                              : 0.0;
        loss += (double)a->load[e] * (double)a->load[n + e];
    }
    h = lf_warp_sum_d(h);
    loss = lf_warp_sum_d(loss);
    over = lf_warp_sum_d(over);
    top = lf_warp_max(top);
    if (threadIdx.x)
        return;
    struct lf_step_record *rec = a->rec;
    rec->router_seen++;
    if (!real)
        return;
    const double rows = (double)real * a->layers;
    rec->router_entropy += h / (double)real;
    rec->router_load += (double)top * n / ((double)real * a->k);
    rec->router_dropped += over / ((double)real * a->k);
    if (a->layers > 0)
        rec->router_aux += (double)n * loss / (rows * rows);
}

/* ---- order ---- */

/* Pairs of n experts, in one block: every warp has a consecutive part [lo, hi) of them. */
struct pairs {
    const int32_t *ids;
    int64_t lo, hi;
    int n;
};

LF_DEV struct pairs pairs_of(const int32_t *ids, int64_t m, int n)
{
    const int64_t per = (m + 1023) / 1024 * 32, lo = (int64_t)(threadIdx.x / 32) * per;
    struct pairs p;
    p.ids = ids;
    p.lo = lo;
    p.hi = lo + per < m ? lo + per : m;
    p.n = n;
    return p;
}

/* The warps count their pairs. counts [33, n]: how many pairs of each expert are before those of a
 * warp, and behind that how many there are. */
LF_DEV void count_pairs(const struct pairs *p, int *counts)
{
    const int n = p->n, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int *mine = counts + warp * n, *first = counts + 32 * n;
    EACH_LANE(e, n) mine[e] = 0;
    __syncwarp();
    for (int64_t i = p->lo; i < p->hi; i += 32) {
        const int e = i + lane < p->hi ? p->ids[i + lane] : -1;
        const unsigned same = lf_match_any(e);
        if (e >= 0 && !(same & ((1u << lane) - 1u)))
            mine[e] += lf_popc(same);
        __syncwarp();
    }
    __syncthreads();
    if ((int)threadIdx.x < n) { /* places within the expert; its total */
        int at = 0;
        for (int w = 0; w < 32; w++) {
            const int c = counts[w * n + (int)threadIdx.x];
            counts[w * n + (int)threadIdx.x] = at;
            at += c;
        }
        first[threadIdx.x] = at;
    }
    __syncthreads();
}

/* Row `row` of a micro-batch among this call's rows, -1 where it is not. */
LF_DEV int64_t own_row(const struct lf_k_moe_keep *a, int64_t row)
{
    int64_t at = row - a->first;
    if (a->blocks) {
        const int64_t each = (a->own + a->block - 1) / a->block, last = a->first + a->rows - 1;
        int64_t lo = a->first / a->own * each + a->first % a->own / a->block,
                hi = last / a->own * each + last % a->own / a->block;
        while (lo < hi) { /* the last block that begins at this row or before it */
            const int64_t mid = (lo + hi + 1) / 2;
            if (a->blocks[mid] <= row)
                lo = mid;
            else
                hi = mid - 1;
        }
        const int64_t in = row - a->blocks[lo], before = lo % each * a->block,
                      left = a->own - before, n = left < a->block ? left : a->block;
        at = in >= 0 && in < n ? lo / each * a->own + before + in - a->first : -1;
    }
    return at >= 0 && at < a->rows ? at : -1;
}

/* Lanes of equal experts take consecutive numbers, as in moe_sort. */
LF_KERNEL_PER_SM(moe_keep, struct lf_k_moe_keep, 1024, 1)
{
    LF_SHARED(int, counts);
    const int n = (int)a->experts, lane = (int)threadIdx.x % 32;
    const struct pairs p = pairs_of(a->all, a->all_rows * a->k, n);
    int *mine = counts + (int)threadIdx.x / 32 * n;
    count_pairs(&p, counts);
    for (int64_t i = p.lo; i < p.hi; i += 32) {
        const int e = i + lane < p.hi ? a->all[i + lane] : -1;
        const unsigned same = lf_match_any(e), below = same & ((1u << lane) - 1u);
        const int number = e >= 0 ? mine[e] + lf_popc(below) : 0;
        __syncwarp();
        if (e >= 0 && !below)
            mine[e] += lf_popc(same);
        __syncwarp();
        const int64_t r = e >= 0 ? own_row(a, (i + lane) / a->k) : -1;
        if (r >= 0)
            a->kept[r * a->k + (i + lane) % a->k] = number < a->capacity ? e : -1;
    }
}

/* One block: every warp counts and places a consecutive part of the pairs; lanes of equal experts
 * take consecutive places. Integers only. */
LF_KERNEL_PER_SM(moe_sort, struct lf_k_moe_sort, 1024, 1)
{
    LF_SHARED(int, counts);
    const int n = (int)a->experts, lane = (int)threadIdx.x % 32;
    const int64_t m = a->rows * a->k;
    const struct pairs p = pairs_of(a->ids, m, n);
    int *mine = counts + (int)threadIdx.x / 32 * n, *first = counts + 32 * n;
    count_pairs(&p, counts);
    if (threadIdx.x == 0) {
        int at = 0;
        for (int e = 0; e < n; e++) {
            const int c = first[e];
            first[e] = at;
            at += c;
        }
        first[n] = at;
    }
    __syncthreads();
    for (int e = (int)threadIdx.x; e <= n; e += (int)blockDim.x)
        a->offsets[e] = first[e];
    for (int64_t i = first[n] + (int64_t)threadIdx.x; i < m; i += blockDim.x)
        a->row_of[i] = -1;
    for (int64_t i = p.lo; i < p.hi; i += 32) {
        const int e = i + lane < p.hi ? a->ids[i + lane] : -1;
        const unsigned same = lf_match_any(e), below = same & ((1u << lane) - 1u);
        const int at = e >= 0 ? first[e] + mine[e] + lf_popc(below) : 0;
        __syncwarp();
        if (e >= 0 && !below)
            mine[e] += lf_popc(same);
        __syncwarp();
        if (e >= 0) {
            a->place_of[i + lane] = at;
            a->row_of[at] = (int)((i + lane) / a->k);
        } else if (i + lane < p.hi) {
            a->place_of[i + lane] = -1;
        }
    }
}

/* ---- what experts gave ---- */

LF_KERNEL(moe_combine, struct lf_k_moe_combine, 256)
{
    const int t = a->x_type;
    const bool vec =
        lf_vec8(a->x, a->ldx, t) && lf_vec8(a->residual, a->ldres, t) && lf_vec8(a->y, a->ldy, t);
    LF_EACH_EIGHT(r, at, a->rows, a->c)
    {
        const int n = lf_eight(a->c, at);
        float s[8] = {0, 0, 0, 0, 0, 0, 0, 0}, x[8];
        for (int j = 0; j < a->k; j++) {
            const int64_t i = r * a->k + j;
            const float w = a->weights ? a->weights[i] : 1.0f;
            if (a->place_of[i] < 0)
                continue;
            lf_load_n(x, a->x, a->place_of[i] * a->ldx + at, t, n, vec);
            LF_UNROLL for (int u = 0; u < 8; u++) s[u] = fmaf(w, x[u], s[u]);
        }
        if (a->residual) {
            lf_load_n(x, a->residual, r * a->ldres + at, t, n, vec);
            LF_UNROLL for (int u = 0; u < 8; u++) s[u] += x[u];
        }
        lf_store_n(a->y, r * a->ldy + at, t, s, n, vec);
    }
}

/* A warp for each pair. */
LF_KERNEL(moe_combine_bwd, struct lf_k_moe_combine_bwd, 32 * LF_MOE_WARPS)
{
    const int t = a->x_type, lane = (int)threadIdx.x % 32;
    const int64_t i = warp_row();
    const bool vec =
        lf_vec8(a->x, a->ldx, t) && lf_vec8(a->dy, a->lddy, t) && lf_vec8(a->dx, a->lddx, t);
    if (i >= a->rows * a->k)
        return;
    const int64_t place = a->place_of[i], r = i / a->k;
    const float w = a->weights ? a->weights[i] : 1.0f;
    float dot = 0.0f;
    for (int64_t at = 8 * (int64_t)lane; at < a->c && place >= 0; at += 256) {
        const int n = lf_eight(a->c, at);
        float x[8], g[8];
        lf_load_n(x, a->x, place * a->ldx + at, t, n, vec);
        lf_load_n(g, a->dy, r * a->lddy + at, t, n, vec);
        LF_UNROLL for (int u = 0; u < 8; u++)
        {
            dot = fmaf(g[u], x[u], dot);
            g[u] *= w;
        }
        lf_store_n(a->dx, place * a->lddx + at, t, g, n, vec);
    }
    dot = lf_warp_sum(dot);
    if (lane == 0 && a->dweights)
        a->dweights[i] = dot;
}

/* ---- numbers of experts ---- */

LF_KERNEL(moe_gain, struct lf_k_moe_gain, 256)
{
    for (int64_t i = lf_index(); i < a->rows * a->k; i += lf_threads())
        a->y[i] = a->gain[a->ids[i]] * a->x[i];
}

/* A warp for each expert looks through all pairs. */
LF_KERNEL(moe_gain_dw, struct lf_k_moe_gain_dw, 32 * LF_MOE_WARPS)
{
    const int64_t e = warp_row();
    const int lane = (int)threadIdx.x % 32;
    double sum = 0;
    if (e >= a->experts)
        return;
    for (int64_t i = lane; i < a->rows * a->k; i += 32)
        if (a->ids[i] == e)
            sum += (double)a->dy[i] * (double)a->x[i];
    sum = lf_warp_sum_d(sum);
    if (lane == 0)
        a->dgain[e] = (a->accumulate ? a->dgain[e] : 0.0f) + (float)sum;
}
