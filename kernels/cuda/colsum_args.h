/* SPDX-License-Identifier: Apache-2.0
 *
 * Column sums on the device. Tree over rows: 32 rows are one ascending chain, 8 of these sums are
 * added ascending (a block of 256 rows), blocks are added ascending; shapes alone fix it.
 */
#ifndef LF_KERNELS_CUDA_COLSUM_ARGS_H
#define LF_KERNELS_CUDA_COLSUM_ARGS_H

#include "kernels/kernels.h"

enum {
    LF_COLSUM_CHAIN = 32,
    LF_COLSUM_WARPS = 8,
    LF_COLSUM_ROWS = LF_COLSUM_CHAIN * LF_COLSUM_WARPS,
    LF_COLSUM_COLS = 64
};

/* partial [row blocks][n]: with more than one row block colsum writes there, and colsum_join
 * adds. */
struct lf_cu_colsum {
    struct lf_k_colsum s;
    float *partial;
};

#endif
