/* SPDX-License-Identifier: Apache-2.0
 *
 * Between embed.c and embed.cu.
 */
#ifndef LF_KERNELS_CUDA_EMBED_H
#define LF_KERNELS_CUDA_EMBED_H

#include "kernels/kernels.h"

/* table[index[r] + offset] += scale * dy[r] over rows r; an index from known on is 0 where known >
 * 0. order: the rows sorted by (index, row). */
struct lf_cu_embed_add {
    int64_t n, c, limit, known;
    const int32_t *order, *index;
    const void *dy;
    float *table;
    float scale;
    int32_t offset;
    uint8_t dy_type;
};

#endif
