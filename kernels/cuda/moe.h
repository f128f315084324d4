/* SPDX-License-Identifier: Apache-2.0
 *
 * Between moe.c and moe.cu.
 */
#ifndef LF_KERNELS_CUDA_MOE_H
#define LF_KERNELS_CUDA_MOE_H

#include "kernels/kernels.h"

enum {
    LF_MOE_WARPS = 4,     /* warps of a block; each owns a row or a pair */
    LF_MOE_ROUTE_ROWS = 5 /* arrays, one value per expert, that a warp of moe_route holds */
};

#endif
