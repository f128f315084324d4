/* SPDX-License-Identifier: Apache-2.0
 *
 * Drawing tokens: sample.h tells the launches, kernels/sampling.h the arithmetic. Sums are of
 * integers and orders are total (descending logit, then ascending id), so no result depends on
 * which block or thread came first.
 */
#include "kernels/cuda/dev.h"
#include "kernels/cuda/sample.h"
#include "kernels/sampling.h"

#define LF_INF                                                                                     \
    ((double)INFINITY) /* in f64, where a float beside a double would be promoted silently */

/* Scratch of a block, in front of what else it keeps in shared memory; 512 bytes. */
struct scratch {
    uint64_t mass[16]; /* of warps */
    double max[16];
    int32_t arg[16];
    uint64_t rest;
    int32_t found, likely;
};

LF_DEV bool cuts(const struct lf_sample_row *q)
{
    return q->top_k > 0 || q->top_p < 1.0 || q->min_x > -LF_INF;
}

/* fabs, because isfinite is not the same in C and C++. */
LF_DEV bool finite_one(double x)
{
    return fabs(x) < LF_INF;
}

/* v [LF_CU_SAMPLE_CHUNK]: the chunk's logits with what the row's list makes of them; -inf beyond
 * the end. */
LF_DEV void load_chunk(const struct lf_cu_sample *a, double *v, int64_t r, int chunk)
{
    const struct lf_sample_row *q = a->k.row + r;
    const float *z = a->k.z + r * a->k.ldz;
    const int first = chunk * LF_CU_SAMPLE_CHUNK, t = (int)threadIdx.x;
    LF_UNROLL for (int i = t; i < LF_CU_SAMPLE_CHUNK; i += LF_CU_SAMPLE_THREADS)
    {
        v[i] = first + i < a->k.v ? (double)z[first + i] : -LF_INF;
    }
    __syncthreads();
    if (q->list_n == 0)
        return;
    for (int i = t; i < q->list_n; i += LF_CU_SAMPLE_THREADS) {
        const struct lf_sample_token e = a->k.list[q->list_at + i];
        const int at = e.id - first;
        if (at >= 0 && at < LF_CU_SAMPLE_CHUNK)
            v[at] = lf_sample_adjusted(v[at], e.bias, e.count, q->repetition, q->presence,
                                       q->frequency);
    }
    __syncthreads();
}

/* Largest value of a block, and the lowest arg that has it, in every thread. */
LF_DEV double block_best(double max, int *arg, struct scratch *s)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    LF_UNROLL for (int m = 16; m; m >>= 1)
    {
        const double o = lf_shfl_xor_d(max, m);
        const int b = lf_shfl_xor_i(*arg, m);
        if (o > max || (o == max && b < *arg)) {
            max = o;
            *arg = b;
        }
    }
    if (lane == 0) {
        s->max[warp] = max;
        s->arg[warp] = *arg;
    }
    __syncthreads();
    for (int w = 0; w < LF_CU_SAMPLE_THREADS / 32; w++)
        if (s->max[w] > max || (s->max[w] == max && s->arg[w] < *arg)) {
            max = s->max[w];
            *arg = s->arg[w];
        }
    __syncthreads();
    return max;
}

/* The row's largest logit and its lowest id, of the parts; -inf: none is finite. */
LF_DEV double row_best(const struct lf_cu_sample *a, int64_t r, int *arg, struct scratch *s)
{
    const int t = (int)threadIdx.x;
    const struct lf_cu_sample_part *p = a->part + r * a->chunks;
    *arg = t < a->chunks ? p[t].arg : 0x7fffffff;
    return block_best(t < a->chunks ? p[t].max : -LF_INF, arg, s);
}

/* Sum over the threads up to this one; *total over all. */
LF_DEV uint64_t block_scan(uint64_t v, uint64_t *total, struct scratch *s)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    LF_UNROLL for (int d = 1; d < 32; d <<= 1)
    {
        const uint64_t o = lf_shfl_u64(v, lane >= d ? lane - d : lane);
        v += lane >= d ? o : 0;
    }
    if (lane == 31)
        s->mass[warp] = v;
    __syncthreads();
    *total = 0;
    for (int w = 0; w < LF_CU_SAMPLE_THREADS / 32; w++) {
        v += w < warp ? s->mass[w] : 0;
        *total += s->mass[w];
    }
    __syncthreads();
    return v;
}

/* Bin of LF_SAMPLE_FAR <= x <= 0; does not fall where x falls. */
LF_DEV int bin_of(double x)
{
    const int b = (int)lf_sample_mul(x, LF_CU_SAMPLE_BINS / LF_SAMPLE_FAR);
    return b < LF_CU_SAMPLE_BINS ? b : LF_CU_SAMPLE_BINS - 1;
}

LF_KERNEL(sample_max, struct lf_cu_sample, LF_CU_SAMPLE_THREADS)
{
    LF_SHARED(struct scratch, s);
    double *v = (double *)(void *)(s + 1), max = -LF_INF;
    const int64_t r = blockIdx.y;
    const int chunk = (int)blockIdx.x, t = (int)threadIdx.x;
    int arg = 0x7fffffff;
    if (!a->k.row[r].on)
        return;
    load_chunk(a, v, r, chunk);
    for (int i = t; i < LF_CU_SAMPLE_CHUNK; i += LF_CU_SAMPLE_THREADS)
        if (finite_one(v[i]) && v[i] > max) {
            max = v[i];
            arg = chunk * LF_CU_SAMPLE_CHUNK + i;
        }
    max = block_best(max, &arg, s);
    if (t == 0) {
        struct lf_cu_sample_part *p = a->part + r * a->chunks + chunk;
        p->max = max;
        p->arg = arg;
    }
    if (chunk == 0)
        for (int b = t; b < LF_CU_SAMPLE_BINS; b += LF_CU_SAMPLE_THREADS) {
            a->bin_mass[r * LF_CU_SAMPLE_BINS + b] = 0;
            a->bin_count[r * LF_CU_SAMPLE_BINS + b] = 0;
        }
}

/* A block's bins, added to the row's. */
LF_DEV void give_bins(const struct lf_cu_sample *a, int64_t r, const uint64_t *mass,
                      const int32_t *count)
{
    for (int b = (int)threadIdx.x; b < LF_CU_SAMPLE_BINS; b += LF_CU_SAMPLE_THREADS)
        if (count[b]) {
            lf_add_u64(a->bin_mass + r * LF_CU_SAMPLE_BINS + b, mass[b]);
            lf_add_i32(a->bin_count + r * LF_CU_SAMPLE_BINS + b, count[b]);
        }
}

LF_KERNEL_PER_SM(sample_bins, struct lf_cu_sample, LF_CU_SAMPLE_THREADS, 2)
{
    LF_SHARED(struct scratch, s);
    double *v = (double *)(void *)(s + 1);
    uint64_t *mass = (uint64_t *)(void *)(v + LF_CU_SAMPLE_CHUNK), sum = 0, total;
    int32_t *count = (int32_t *)(void *)(mass + LF_CU_SAMPLE_BINS);
    const int64_t r = blockIdx.y;
    const int chunk = (int)blockIdx.x, t = (int)threadIdx.x;
    const struct lf_sample_row *q = a->k.row + r;
    const double shift = lf_sample_shift(a->k.v), scale = q->scale;
    const bool cut = cuts(q);
    int arg;
    if (!q->on || scale == 0.0)
        return;
    const double max = row_best(a, r, &arg, s);
    for (int b = t; cut && b < LF_CU_SAMPLE_BINS; b += LF_CU_SAMPLE_THREADS) {
        mass[b] = 0;
        count[b] = 0;
    }
    load_chunk(a, v, r, chunk); /* and its barrier */
    for (int i = t; i < LF_CU_SAMPLE_CHUNK; i += LF_CU_SAMPLE_THREADS) {
        const double x = finite_one(v[i]) ? lf_sample_x(v[i], max, scale) : -LF_INF;
        if (x < LF_SAMPLE_FAR)
            continue;
        const uint64_t w = lf_sample_mass(x, shift);
        sum += w;
        if (cut) {
            lf_add_u64(mass + bin_of(x), w);
            lf_add_i32(count + bin_of(x), 1);
        }
    }
    block_scan(sum, &total, s); /* with a barrier */
    if (t == 0)
        a->part[r * a->chunks + chunk].mass = total;
    if (cut)
        give_bins(a, r, mass, count);
}

/* Each thread has a few bins in a row: the sums up to each of them. */
enum { OWN = LF_CU_SAMPLE_BINS / LF_CU_SAMPLE_THREADS };

LF_KERNEL_PER_SM(sample_cut, struct lf_cu_sample, LF_CU_SAMPLE_THREADS, 2)
{
    LF_SHARED(struct scratch, s);
    int32_t *upto = (int32_t *)(void *)(s + 1); /* [bins] tokens */
    const int64_t r = blockIdx.x, at = r * LF_CU_SAMPLE_BINS + OWN * (int64_t)threadIdx.x;
    const struct lf_sample_row *q = a->k.row + r;
    const int t = (int)threadIdx.x;
    uint64_t total, tokens = 0, mass = 0, all;
    if (!q->on || q->scale == 0.0 || !cuts(q))
        return;
    block_scan(t < a->chunks ? a->part[r * a->chunks + t].mass : 0, &total, s);
    for (int i = 0; i < OWN; i++) {
        tokens += (uint64_t)a->bin_count[at + i];
        mass += a->bin_mass[at + i];
    }
    uint64_t count = block_scan(tokens, &all, s) - tokens, run = block_scan(mass, &all, s) - mass;
    const bool by_mass = q->top_k == 0 && q->top_p < 1.0 && total > 0;
    const uint64_t enough = by_mass ? lf_sample_share(q->top_p, total) : 0, k = (uint64_t)q->top_k;
    if (t == 0) /* min-p; the mass of top-k is wanted whole where top-p is a share of it */
        s->likely = q->min_x > LF_SAMPLE_FAR && (q->top_k == 0 || q->top_p >= 1.0)
                        ? bin_of(q->min_x)
                        : LF_CU_SAMPLE_BINS - 1;
    if (t == 0)
        s->found = LF_CU_SAMPLE_BINS - 1;
    __syncthreads();
    for (int i = 0; i < OWN; i++) {
        const uint64_t n = (uint64_t)a->bin_count[at + i], m = a->bin_mass[at + i];
        if ((k > 0 && count < k && k <= count + n) ||
            (by_mass && run < enough && enough <= run + m))
            s->found = OWN * t + i; /* one thread at most */
        count += n;
        run += m;
        upto[OWN * t + i] = (int32_t)count;
    }
    __syncthreads();
    if (t == 0) {
        struct lf_cu_sample_cut *c = a->cut + r;
        c->total = total;
        c->last = s->found < s->likely ? s->found : s->likely;
        c->n = upto[c->last];
        c->filled = 0;
    }
}

LF_KERNEL(sample_gather, struct lf_cu_sample, LF_CU_SAMPLE_THREADS)
{
    LF_SHARED(struct scratch, s);
    double *v = (double *)(void *)(s + 1);
    const int64_t r = blockIdx.y;
    const int chunk = (int)blockIdx.x, t = (int)threadIdx.x;
    const struct lf_sample_row *q = a->k.row + r;
    struct lf_cu_sample_cut *c = a->cut + r;
    int arg;
    if (!q->on || q->scale == 0.0 || !cuts(q) || c->n > LF_SAMPLE_SORTED)
        return;
    const double max = row_best(a, r, &arg, s);
    load_chunk(a, v, r, chunk);
    for (int i = t; i < LF_CU_SAMPLE_CHUNK; i += LF_CU_SAMPLE_THREADS) {
        const double x = finite_one(v[i]) ? lf_sample_x(v[i], max, q->scale) : -LF_INF;
        if (x < LF_SAMPLE_FAR || bin_of(x) > c->last)
            continue;
        const int64_t at = r * LF_SAMPLE_SORTED + lf_add_i32(&c->filled, 1);
        a->value[at] = v[i];
        a->id[at] = chunk * LF_CU_SAMPLE_CHUNK + i;
    }
}

/* ---- picking ---- */

/* Columns of a chunk and gathered tokens of a thread. */
enum {
    SHARE = LF_CU_SAMPLE_CHUNK / LF_CU_SAMPLE_THREADS,
    EACH = LF_SAMPLE_SORTED / LF_CU_SAMPLE_THREADS
};

/* Without a cut: the chunk, then the token at which the running mass passes u of the whole. */
LF_DEV int pick_plain(const struct lf_cu_sample *a, int64_t r, double max, double u, double *v,
                      struct scratch *s)
{
    const int t = (int)threadIdx.x;
    const double shift = lf_sample_shift(a->k.v), scale = a->k.row[r].scale;
    uint64_t total, own = t < a->chunks ? a->part[r * a->chunks + t].mass : 0, w[SHARE];
    uint64_t upto = block_scan(own, &total, s);
    const uint64_t place = lf_sample_place(u, total);
    if (upto - own <= place && place < upto) {
        s->found = t;
        s->rest = place - (upto - own);
    }
    __syncthreads();
    const int chunk = s->found;
    const uint64_t rest = s->rest;
    load_chunk(a, v, r, chunk);
    own = 0;
    LF_UNROLL for (int i = 0; i < SHARE; i++)
    {
        const double l = v[SHARE * t + i], x = finite_one(l) ? lf_sample_x(l, max, scale) : -LF_INF;
        w[i] = x < LF_SAMPLE_FAR ? 0 : lf_sample_mass(x, shift);
        own += w[i];
    }
    upto = block_scan(own, &total, s);
    if (upto - own <= rest && rest < upto) {
        uint64_t run = upto - own;
        int before = 0;
        LF_UNROLL for (int i = 0; i < SHARE; i++)
        {
            run += w[i];
            before += run <= rest;
        }
        s->found = chunk * LF_CU_SAMPLE_CHUNK + SHARE * t + before;
    }
    __syncthreads();
    return s->found;
}

/* Bitonic sort into draw order; n is a power of two. */
LF_DEV void sort_draw_order(double *v, int32_t *id, int n)
{
    for (int k = 2; k <= n; k <<= 1)
        for (int j = k >> 1; j; j >>= 1) {
            for (int p = (int)threadIdx.x; p < n / 2; p += LF_CU_SAMPLE_THREADS) {
                const int i = 2 * p - (p & (j - 1)), o = i + j;
                const bool later = v[i] < v[o] || (v[i] == v[o] && id[i] > id[o]);
                if (later != ((i & k) != 0)) {
                    const double x = v[i];
                    const int32_t d = id[i];
                    v[i] = v[o];
                    id[i] = id[o];
                    v[o] = x;
                    id[o] = d;
                }
            }
            __syncthreads();
        }
}

/* Sum of an integer over the block. */
LF_DEV int block_count(int n, struct scratch *s)
{
    uint64_t total;
    block_scan((uint64_t)n, &total, s);
    return (int)total;
}

/* v, in draw order, becomes the mass up to each of n tokens. */
LF_DEV void running_mass(double *v, int n, double max, double scale, double shift,
                         struct scratch *s)
{
    const int from = EACH * (int)threadIdx.x;
    uint64_t own = 0, total, run, w[EACH];
    LF_UNROLL for (int i = 0; i < EACH; i++)
    {
        w[i] = from + i < n ? lf_sample_mass(lf_sample_x(v[from + i], max, scale), shift) : 0;
        own += w[i];
    }
    run = block_scan(own, &total, s) - own; /* with a barrier: all have read v */
    LF_UNROLL for (int i = 0; i < EACH; i++)
    {
        run += w[i];
        if (from + i < n)
            memcpy(v + from + i, &run, sizeof run);
    }
    __syncthreads();
}

LF_DEV uint64_t mass_at(const double *v, int i)
{
    uint64_t m;
    memcpy(&m, v + i, sizeof m);
    return m;
}

/* How many of n running masses are less than m. */
LF_DEV int below(const double *run, int n, uint64_t m, struct scratch *s)
{
    int c = 0;
    for (int i = (int)threadIdx.x; i < n; i += LF_CU_SAMPLE_THREADS)
        c += mass_at(run, i) < m;
    return block_count(c, s);
}

/* With a cut: what was gathered, in draw order; how many of them each cut leaves. */
LF_DEV int pick_sorted(const struct lf_cu_sample *a, int64_t r, double max, double u, double *v,
                       struct scratch *s)
{
    const struct lf_sample_row *q = a->k.row + r;
    const struct lf_cu_sample_cut *c = a->cut + r;
    const int n = c->n, t = (int)threadIdx.x;
    int32_t *id = (int32_t *)(void *)(v + LF_SAMPLE_SORTED);
    int padded = 1, top = 0, likely = 0;
    if (n > LF_SAMPLE_SORTED)
        return LF_SAMPLE_HOST;
    while (padded < n)
        padded <<= 1;
    for (int i = t; i < padded; i += LF_CU_SAMPLE_THREADS) {
        v[i] = i < n ? a->value[r * LF_SAMPLE_SORTED + i] : -LF_INF;
        id[i] = i < n ? a->id[r * LF_SAMPLE_SORTED + i] : 0x7fffffff;
    }
    __syncthreads();
    sort_draw_order(v, id, padded);
    const double kth = q->top_k > 0 && q->top_k <= n ? v[q->top_k - 1] : -LF_INF;
    for (int i = t; i < n; i += LF_CU_SAMPLE_THREADS) {
        top += v[i] >= kth;
        likely += lf_sample_x(v[i], max, q->scale) >= q->min_x;
    }
    top = block_count(top, s);
    likely = block_count(likely, s);
    running_mass(v, n, max, q->scale, lf_sample_shift(a->k.v), s);
    int kept = top < likely ? top : likely;
    if (q->top_p < 1.0) {
        const uint64_t whole = q->top_k > 0 ? mass_at(v, top - 1) : c->total;
        const int enough = below(v, n, lf_sample_share(q->top_p, whole), s) + 1;
        kept = enough < kept ? enough : kept;
    }
    return id[below(v, kept, lf_sample_place(u, mass_at(v, kept - 1)) + 1, s)];
}

/* The list of a row tells of its new token. */
LF_DEV void note(const struct lf_cu_sample *a, const struct lf_sample_row *q, int token,
                 struct scratch *s)
{
    struct lf_sample_token *list = a->k.list + q->list_at;
    if (threadIdx.x == 0)
        s->found = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < q->list_n; i += LF_CU_SAMPLE_THREADS)
        if (list[i].id == token) {
            list[i].count = list[i].count < 0 ? 1 : list[i].count + 1;
            s->found = 1;
        }
    __syncthreads();
    if (threadIdx.x == 0 && !s->found) {
        list[q->list_n].bias = 0.0;
        list[q->list_n].id = token;
        list[q->list_n].count = 1;
    }
}

LF_KERNEL(sample_pick, struct lf_cu_sample, LF_CU_SAMPLE_THREADS)
{
    LF_SHARED(struct scratch, s);
    double *v = (double *)(void *)(s + 1);
    const int64_t r = blockIdx.x;
    const struct lf_sample_row *q = a->k.row + r;
    int token = LF_SAMPLE_NONE;
    if (q->on) {
        int arg;
        const double max = row_best(a, r, &arg, s),
                     u = lf_philox_f64(q->seed, LF_SITE_SAMPLE, q->index);
        if (max == -LF_INF)
            token = LF_SAMPLE_EMPTY;
        else if (q->scale == 0.0)
            token = arg;
        else
            token = cuts(q) ? pick_sorted(a, r, max, u, v, s) : pick_plain(a, r, max, u, v, s);
    }
    if (threadIdx.x == 0) {
        a->k.out[r].token = token;
        a->k.out[r].logp = token >= 0 ? a->k.z[r * a->k.ldz + token] - a->k.lse[r] : 0.0f;
    }
    if (q->on != LF_SAMPLE_NOTE)
        return;
    __syncthreads(); /* all have read what stood there */
    if (threadIdx.x == 0)
        s->arg[0] = token;
    __syncthreads();
    token = s->arg[0];
    if (token >= 0)
        note(a, q, token, s);
}
