/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching sort.cu.
 */
#include "kernels/cuda/sort.h"
#include "kernels/cuda/queue.h"

int lf_cu_sort(lf_queue *q, const struct lf_cu_sort *s)
{
    struct lf_cu_sort a = *s;
    const size_t counts = LF_SORT_WARPS * (size_t)a.bins * sizeof(int32_t);
    const struct lf_cu_dim block = {.x = LF_SORT_THREADS};
    a.tiles = (int32_t)lf_cu_n_tiles(a.n);
    int rc = lf_cu_launch(q, LF_CU_FN_sort_count, (struct lf_cu_dim){.x = (unsigned)a.tiles}, block,
                          counts, &a);
    if (rc == 0)
        rc = lf_cu_launch(q, LF_CU_FN_sort_tiles,
                          (struct lf_cu_dim){.x = lf_cu_blocks(a.bins, LF_SORT_WARPS)}, block, 0,
                          &a);
    if (rc == 0)
        rc = lf_cu_launch(q, LF_CU_FN_sort_bins, (struct lf_cu_dim){.x = 1},
                          (struct lf_cu_dim){.x = LF_SORT_BINS}, 32 * sizeof(int32_t), &a);
    if (rc == 0)
        rc = lf_cu_launch(q, LF_CU_FN_sort_place, (struct lf_cu_dim){.x = (unsigned)a.tiles}, block,
                          counts, &a);
    return rc;
}
