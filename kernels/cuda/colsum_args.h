/* SPDX-License-Identifier: Apache-2.0
 *
 * Column sums on the device. The tree over rows depends on the shapes alone:
 *   32 rows     one ascending chain
 *   256 rows    (a block) the sums of 8 chains, added in ascending order
 *   all rows    the sums of the blocks, added in ascending order
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

/* partial [row blocks][n]. With more than one row block colsum writes its sums there, and
 * colsum_join adds them. */
struct lf_cu_colsum {
    struct lf_k_colsum s;
    float *partial;
};

#endif
