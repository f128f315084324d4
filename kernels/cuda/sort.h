/* SPDX-License-Identifier: Apache-2.0
 *
 * Stable sorting by counting, of items whose keys are integers, in one pass of at most 1024 bins.
 * All arithmetic is on integers, so the order is a function of the keys. A block counts and places
 * a tile of items. Warps own consecutive parts of the tile. In a warp, lanes with equal keys take
 * consecutive places.
 */
#ifndef LF_KERNELS_CUDA_SORT_H
#define LF_KERNELS_CUDA_SORT_H

#include "kernels/kernels.h"

enum {
    LF_SORT_BINS = 1024,
    LF_SORT_TILE = 2048,
    LF_SORT_THREADS = 256,
    LF_SORT_WARPS = LF_SORT_THREADS / 32
};

/* The key of item i is key[i] + offset where that lies in [0, limit), else limit; a key[i] from
 * known on counts as 0 where known > 0. The pass sorts by (key >> shift) & 1023. */
struct lf_cu_sort {
    int64_t n;
    const int32_t *key, *order; /* order: the items before the pass; NULL: 0, 1, ... */
    int32_t *out;               /* the items after the pass, or NULL */
    int32_t *place, *row;       /* place[item]; row[place] = item / per_row; or NULL */
    int32_t *count;             /* [bins, tiles], work */
    int32_t *first;             /* [bins + 1]: the first place of each bin, n at the end */
    int64_t limit, known;
    int32_t offset, shift, bins, tiles, per_row;
};

static inline int64_t lf_cu_n_tiles(int64_t n)
{
    return (n + LF_SORT_TILE - 1) / LF_SORT_TILE;
}

#ifndef __CUDACC__
struct lf_queue;
/* Queues one pass. The caller gives n, key, order, out, place, row, count, first, limit, offset,
 * shift, bins and per_row. */
int lf_cu_sort(struct lf_queue *q, const struct lf_cu_sort *s);
#endif

#endif
