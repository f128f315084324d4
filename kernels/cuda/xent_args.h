/* SPDX-License-Identifier: Apache-2.0
 *
 * The fused output layer on the device: what host and device agree on. Rows go in chunks whose size
 * the shapes fix. For each chunk gemm makes the f32 logits; xent_rows reduces each row and turns it
 * into dlogits in place (bf16, f16: in the front half of the row); gemm makes dx and dw from the
 * dlogits. Then the next chunk overwrites them.
 *
 * The reduction of a row is the same in xent_rows and logit_stats. Thread t of LF_XENT_THREADS
 * takes the elements 4 t ... 4 t + 3 of every LF_XENT_STEP columns counted from column 0,
 * ascending, with a running maximum. A tree adds the threads.
 *
 * Where ranks divide the vocabulary, xent_parts reduces the columns that are here, the ranks give
 * each other these parts, and xent_joined combines those of a row in the order of the ranks. The
 * sums of a row then start with each rank's columns, so they have other bits than one GPU's, but
 * the same on all ranks.
 */
#ifndef LF_KERNELS_CUDA_XENT_ARGS_H
#define LF_KERNELS_CUDA_XENT_ARGS_H

#include "kernels/kernels.h"

enum { LF_XENT_THREADS = 256, LF_XENT_STEP = 4 * LF_XENT_THREADS };

struct lf_cu_xent_row {
    float loss, lse, entropy;
    int32_t argmax, target;
};

/* What a rank knows of a row: the largest of its logits and that one's column, counted in all
 * columns; sums of e^(z - max) and of that times (z - max); the target's logit, 0 elsewhere. */
struct lf_cu_xent_part {
    float max, sum, bent, target;
    int32_t arg;
};

struct lf_cu_xent {
    struct lf_k_linear_xent x; /* with v_all, where one rank has all columns, too */
    int64_t r0, rows, ldz;     /* of this chunk; ldz in f32 elements */
    float *z;
    struct lf_cu_xent_row *out;
    struct lf_cu_xent_part *parts; /* [ranks, rows], or NULL */
    int rank, ranks;
    bool grad;
};

#endif
