/* SPDX-License-Identifier: Apache-2.0
 *
 * Between xielu.c and xielu.cu.
 */
#ifndef LF_KERNELS_CUDA_XIELU_H
#define LF_KERNELS_CUDA_XIELU_H

#include "kernels/kernels.h"

struct lf_cu_xielu_sum {
    struct lf_k_xielu_bwd k;
    int64_t blocks; /* of xielu_bwd; each left two sums in work */
};

#endif
