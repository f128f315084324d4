/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that are weighted sums of rows, and columns with a gain.
 */
#include "kernels/cuda/dev.h"

/* A block for a row; its threads take columns, so that an entry of the matrix is read by all of
 * them at once. */
LF_KERNEL(mix_rows, struct lf_k_mix_rows, 128)
{
    for (int64_t r = blockIdx.x; r < a->rows; r += gridDim.x) {
        const int first = a->start[r], last = a->start[r + 1];
        for (int64_t c = threadIdx.x; c < a->c; c += blockDim.x) {
            float sum = a->accumulate ? lf_load(a->y, r * a->ldy + c, a->y_type) : 0.0f;
            for (int k = first; k < last; k++)
                sum = fmaf(a->weight[k],
                           lf_load(a->x, (int64_t)a->index[k] * a->ldx + c, a->x_type), sum);
            lf_store(a->y, r * a->ldy + c, a->y_type, sum);
        }
    }
}

/* x: columns, y: rows. */
LF_KERNEL(col_gate_fwd, struct lf_k_col_gate_fwd, 256)
{
    const int64_t c = lf_index();
    if (c >= a->c)
        return;
    const float gain = a->gain[a->one ? 0 : c];
    for (int64_t r = blockIdx.y; r < a->rows; r += gridDim.y)
        lf_store(a->y, r * a->ldy + c, a->x_type, gain * lf_load(a->x, r * a->ldx + c, a->x_type));
}

/* A block for 32 columns (x of its threads), its 8 warps for the rows of one residue each; the 8
 * sums are added in order, so the tree is a function of the number of rows alone. */
LF_KERNEL(col_gate_bwd, struct lf_k_col_gate_bwd, 256)
{
    LF_SHARED(float, part);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t c = (int64_t)blockIdx.x * 32 + lane;
    float sum = 0;
    if (c < a->c) {
        const float gain = a->gain[a->one ? 0 : c];
        for (int64_t r = warp; r < a->rows; r += 8) {
            const float dy = lf_load(a->dy, r * a->lddy + c, a->x_type);
            if (a->dgain)
                sum = fmaf(dy, lf_load(a->x, r * a->ldx + c, a->x_type), sum);
            if (a->dx)
                lf_store(a->dx, r * a->lddx + c, a->x_type, gain * dy);
        }
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    if (warp || c >= a->c || !a->dgain)
        return;
    for (int w = 1; w < 8; w++)
        sum = sum + part[32 * w + lane];
    a->dgain[c] = a->accumulate ? a->dgain[c] + sum : sum;
}
