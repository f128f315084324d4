/* SPDX-License-Identifier: Apache-2.0
 *
 * Between scan.c and the .cu files of convolutions and scans.
 *
 * A block has 32 columns of the values of a head, so that S of the block lies in shared memory; the
 * triangles of a chunk are formed by each of these blocks. Its 8 warps have the rows of one residue
 * each, its lanes the columns.
 */
#ifndef LF_KERNELS_CUDA_SCAN_ARGS_H
#define LF_KERNELS_CUDA_SCAN_ARGS_H

#include "kernels/kernels.h"

enum {
    LF_SCAN_THREADS = 256,
    LF_SCAN_COLS = 32,
    LF_SCAN_TRI = LF_SCAN_CHUNK + 1, /* row distance of a triangle in shared memory */
    LF_SCAN_FEW = 16,                /* columns at a time where shared memory is short */
    LF_SCAN_CUDA_D = 128             /* widest key head: what shared memory has room for */
};

/* Row distance of so many columns that lanes read downwards. */
#define LF_SCAN_LD(cols) ((cols) + 1)

struct lf_cu_scan_fwd {
    struct lf_k_scan_fwd k;       /* o NULL: the backward wants states, u and t */
    int64_t dkp, dvp, slot, head; /* padded widths; floats of a slot, of a head in it */
    bool open;                    /* slots keep the rows of the open chunk */
    float *states, *u, *t;        /* [chunks][H][dk][dv], [R][H][dv], [R][H][dv] */
};
struct lf_cu_scan_bwd {
    struct lf_k_scan_bwd k;
    float *states, *u, *t;
    float *dstates, *r;    /* dS+ of chunks; R of the contract */
    float *dq, *dkr, *dkc; /* [R][H][dk] */
};

#endif
