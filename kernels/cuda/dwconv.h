/* SPDX-License-Identifier: Apache-2.0
 *
 * Between dwconv.c and dwconv.cu.
 */
#ifndef LF_KERNELS_CUDA_DWCONV_H
#define LF_KERNELS_CUDA_DWCONV_H

#include "kernels/kernels.h"

/* y of x by filters: the forward, and the gradient of x with the taps in reverse. */
struct lf_cu_dwconv {
    int64_t rows, c, side, taps, ldx, ldy;
    const void *x;
    const float *w, *bias;
    void *y;
    bool reverse;
    uint8_t x_type;
};

#endif
