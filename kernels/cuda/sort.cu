/* SPDX-License-Identifier: Apache-2.0
 *
 * One pass of a stable counting sort (sort.h).
 */
#include "kernels/cuda/dev.h"
#include "kernels/cuda/sort.h"
#include "kernels/cuda/sort_key.h"

LF_DEV int sort_item(const struct lf_cu_sort *a, int64_t i)
{
    return a->order ? a->order[i] : (int)i;
}

LF_DEV int sort_bin(const struct lf_cu_sort *a, int item)
{
    const int64_t k = lf_sort_key(a->key[item], a->known) + a->offset;
    return (int)((k >= 0 && k < a->limit ? k : a->limit) >> a->shift) & (LF_SORT_BINS - 1);
}

/* The part of the tile that is this warp's. */
LF_DEV void warp_part(const struct lf_cu_sort *a, int64_t *lo, int64_t *hi)
{
    *lo =
        (int64_t)blockIdx.x * LF_SORT_TILE + (int)threadIdx.x / 32 * (LF_SORT_TILE / LF_SORT_WARPS);
    *hi = *lo + LF_SORT_TILE / LF_SORT_WARPS;
    *hi = *hi < a->n ? *hi : a->n;
}

/* counts[w][bin] of every warp of the block; all bins of all warps are set. */
LF_DEV void count_warps(const struct lf_cu_sort *a, int *counts)
{
    const int lane = (int)threadIdx.x % 32;
    int *mine = counts + (int)threadIdx.x / 32 * a->bins;
    int64_t lo, hi;
    warp_part(a, &lo, &hi);
    for (int i = lane; i < a->bins; i += 32)
        mine[i] = 0;
    __syncwarp();
    for (int64_t i = lo; i < hi; i += 32) {
        const int bin = i + lane < hi ? sort_bin(a, sort_item(a, i + lane)) : -1;
        const unsigned same = lf_match_any(bin);
        if (bin >= 0 && !(same & ((1u << lane) - 1u))) /* the lowest of them */
            mine[bin] += lf_popc(same);
        __syncwarp();
    }
    __syncthreads();
}

LF_KERNEL(sort_count, struct lf_cu_sort, LF_SORT_THREADS)
{
    LF_SHARED(int, counts);
    count_warps(a, counts);
    for (int b = (int)threadIdx.x; b < a->bins; b += LF_SORT_THREADS) {
        int n = 0;
        for (int w = 0; w < LF_SORT_WARPS; w++)
            n += counts[w * a->bins + b];
        a->count[(int64_t)b * a->tiles + blockIdx.x] = n;
    }
}

/* Inclusive sum over the lanes up to this one. */
LF_DEV int warp_scan(int v)
{
    const int lane = (int)threadIdx.x % 32;
    LF_UNROLL for (int m = 1; m < 32; m *= 2)
    {
        const int o = lf_shfl_i(v, lane - m);
        v += lane >= m ? o : 0;
    }
    return v;
}

/* A warp for each bin: count becomes what the tiles before hold, first[bin] the bin's total. */
LF_KERNEL(sort_tiles, struct lf_cu_sort, LF_SORT_THREADS)
{
    const int bin = (int)(blockIdx.x * LF_SORT_WARPS + threadIdx.x / 32),
              lane = (int)threadIdx.x % 32;
    if (bin >= a->bins)
        return;
    int *count = a->count + (int64_t)bin * a->tiles, before = 0;
    for (int t = 0; t < a->tiles; t += 32) {
        const int v = t + lane < a->tiles ? count[t + lane] : 0, up_to = warp_scan(v);
        if (t + lane < a->tiles)
            count[t + lane] = before + up_to - v;
        before += lf_shfl_i(up_to, 31);
    }
    if (lane == 0)
        a->first[bin] = before;
}

/* One block: totals become first places. */
LF_KERNEL(sort_bins, struct lf_cu_sort, LF_SORT_BINS)
{
    LF_SHARED(int, warps);
    const int b = (int)threadIdx.x, v = b < a->bins ? a->first[b] : 0, up_to = warp_scan(v);
    if (b % 32 == 31)
        warps[b / 32] = up_to;
    __syncthreads();
    int before = up_to - v;
    for (int w = 0; w < b / 32; w++)
        before += warps[w];
    if (b < a->bins)
        a->first[b] = before;
    if (b == 0)
        a->first[a->bins] = (int)a->n;
}

LF_KERNEL(sort_place, struct lf_cu_sort, LF_SORT_THREADS)
{
    LF_SHARED(int, counts);
    const int lane = (int)threadIdx.x % 32;
    int *mine = counts + (int)threadIdx.x / 32 * a->bins;
    int64_t lo, hi;
    count_warps(a, counts);
    for (int b = (int)threadIdx.x; b < a->bins; b += LF_SORT_THREADS) {
        int at = a->first[b] + a->count[(int64_t)b * a->tiles + blockIdx.x];
        for (int w = 0; w < LF_SORT_WARPS; w++) {
            const int n = counts[w * a->bins + b];
            counts[w * a->bins + b] = at;
            at += n;
        }
    }
    __syncthreads();
    warp_part(a, &lo, &hi);
    for (int64_t i = lo; i < hi; i += 32) {
        const int item = i + lane < hi ? sort_item(a, i + lane) : -1,
                  bin = item >= 0 ? sort_bin(a, item) : -1;
        const unsigned same = lf_match_any(bin), below = same & ((1u << lane) - 1u);
        const int at = bin >= 0 ? mine[bin] + lf_popc(below) : 0;
        __syncwarp();
        if (bin >= 0 && !below)
            mine[bin] += lf_popc(same);
        __syncwarp();
        if (bin >= 0 && a->out)
            a->out[at] = item;
        if (bin >= 0 && a->place)
            a->place[item] = at;
        if (bin >= 0 && a->row)
            a->row[at] = item / a->per_row;
    }
}
