/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantising to 8-bit floats on the device: what host and device agree on. A block of 256 threads
 * takes a tile of 128 x 128. With one scale for the whole tensor, quantise_most runs first. It
 * leaves the largest magnitude of each of its blocks in the workspace.
 */
#ifndef LF_KERNELS_CUDA_FP8_H
#define LF_KERNELS_CUDA_FP8_H

#include "kernels/kernels.h"

enum {
    LF_QUANT_THREADS = 256,
    LF_QUANT_MOST_BLOCKS = 1024, /* blocks of quantise_most, at most */
    LF_QUANT_SMEM = LF_FP8_BLOCK * LF_FP8_BLOCK + 8 * LF_FP8_BLOCK * 4 +
                    128 /* transposed tile, maxima, scratch */
};

struct lf_cu_quantise {
    struct lf_k_quantise k;
    int32_t *most;  /* bits of magnitudes [n_most] */
    int32_t n_most; /* blocks of quantise_most */
    int32_t across; /* tiles from left to right */
    bool vec_x, vec_q, vec_qt;
};

#endif
