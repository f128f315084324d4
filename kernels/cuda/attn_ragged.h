/* SPDX-License-Identifier: Apache-2.0
 *
 * Between attn_cudnn.c and attn_ragged.cu: packed documents in the form that the library takes.
 */
#ifndef LF_KERNELS_CUDA_ATTN_RAGGED_H
#define LF_KERNELS_CUDA_ATTN_RAGGED_H

#include "kernels/kernels.h"

enum { LF_RAGGED_MOST = 9, LF_RAGGED_RESULTS = 3, LF_RAGGED_THREADS = 256 };

/* The distance between arrays of offsets. Each array starts at a multiple of 16 bytes. */
static inline int64_t lf_ragged_pitch(int64_t docs)
{
    return (docs + 2) / 2 * 2;
}

/* len[i] is the length of document i. offset[k * pitch + i] = cu[i] * ld[k] for i <= docs. Padding
 * rows of results become 0, those of lse -inf. */
struct lf_cu_attn_ragged {
    int64_t rows, docs, longest, heads, pitch;
    const int32_t *cu;
    int32_t *len;
    int64_t *offset;
    int64_t ld[LF_RAGGED_MOST];
    int64_t n; /* number of ld */
    void *result[LF_RAGGED_RESULTS];
    int64_t result_ld[LF_RAGGED_RESULTS], cols[LF_RAGGED_RESULTS];
    float *lse; /* [heads][rows] or NULL */
    uint8_t x_type;
};

#endif
