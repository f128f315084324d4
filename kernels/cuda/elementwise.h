/* SPDX-License-Identifier: Apache-2.0
 *
 * The argument structs of elementwise.cu that hold more than the struct of kernels.h.
 */
#ifndef LF_KERNELS_CUDA_ELEMENTWISE_H
#define LF_KERNELS_CUDA_ELEMENTWISE_H

#include "kernels/kernels.h"

struct lf_cu_gather {
    struct lf_k_gather_rows k;
    int size; /* bytes of an element */
};

#endif
