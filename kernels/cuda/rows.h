/* SPDX-License-Identifier: Apache-2.0
 *
 * Between rows.c and rows.cu. A group of threads shares a row. The row's length alone chooses the
 * group: 8, 16 or 32 lanes, or a whole block. Thread i of a group holds in registers the eight
 * columns from 8 (i + k group) on, k = 0, 1, ...
 */
#ifndef LF_KERNELS_CUDA_ROWS_H
#define LF_KERNELS_CUDA_ROWS_H

#include "kernels/kernels.h"

enum {
    LF_NORM_FWD_VECS = 4, /* pieces of eight columns in a thread's registers */
    LF_NORM_FWD_FEW = 2,  /* where so many suffice: fewer registers, more rows under way */
    LF_NORM_BWD_VECS = 1,
    LF_NORM_BWD_WIDE = 2, /* rows beyond 4096 columns */
    LF_NORM_THREADS = 512,
    LF_NORM_SUM_X = 32, /* columns, and also parts, of a block that adds partial sums */
    LF_NORM_SUM_Y = 32,
    LF_ROW_THREADS = 128 /* threads of the kernels that give a row to a block and read it twice */
};

struct lf_cu_norm_fwd {
    struct lf_k_norm_fwd k;
    int group;
};
struct lf_cu_norm_bwd {
    struct lf_k_norm_bwd k;
    int group;
    int64_t block;  /* rows of a block */
    int64_t stride; /* floats between partial sums: part[block][dw, db][stride] */
};
/* dw[c] (+)= sum over blocks of part[block][0][c]; db[c] (+)= the same of part[block][1][c]. */
struct lf_cu_norm_sum {
    const float *part;
    float *dw, *db;
    int64_t c, blocks, stride;
    bool accumulate;
};

#endif
