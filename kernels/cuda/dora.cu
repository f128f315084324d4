/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight-decomposed adapters: lengths of adapted rows, and the columns of a product scaled to
 * trained lengths.
 */
#include "kernels/cuda/dev.h"

/* A block for a row: its elements of B stay in registers of nobody, they are read by all threads at
 * once (one address, one access). */
LF_KERNEL(dora_norm, struct lf_k_dora_norm, 256)
{
    LF_SHARED(float, scratch);
    for (int64_t r = blockIdx.x; r < a->rows; r += gridDim.x) {
        float sum = 0;
        for (int64_t c = threadIdx.x; c < a->c; c += blockDim.x) {
            float ba = 0;
            for (int64_t j = 0; j < a->rank; j++)
                ba = fmaf(lf_load(a->b, r * a->rank + j, a->w_type),
                          lf_load(a->a, j * a->c + c, a->w_type), ba);
            const float v = fmaf(a->scale, ba, lf_load(a->w, r * a->c + c, a->w_type));
            sum = fmaf(v, v, sum);
        }
        sum = lf_block_sum(sum, scratch);
        if (threadIdx.x == 0)
            a->norm[r] = a->squares ? sum : sqrtf(sum);
    }
}

LF_KERNEL(root, struct lf_k_root, 256)
{
    const int64_t i = lf_index();
    if (i < a->n)
        a->y[i] = sqrtf(a->x[i]);
}

/* m / norm. A weight of zeros has no direction: its row stays as it is. */
LF_DEV float dora_ratio(const float *m, const float *norm, int64_t c)
{
    return norm[c] > 0 ? m[c] / norm[c] : 1.0f;
}

/* x: columns, y: rows. */
LF_KERNEL_PER_SM(dora_fwd, struct lf_k_dora_fwd, 256, 6)
{
    const int64_t c = lf_index();
    if (c >= a->c)
        return;
    const float s = a->m ? dora_ratio(a->m, a->norm, c) : 1.0f,
                bias = a->m && a->bias ? a->bias[c] : 0.0f;
    for (int64_t r = blockIdx.y; r < a->rows; r += gridDim.y) {
        const float base = lf_load(a->base, r * a->ldbase + c, a->x_type);
        float y = base;
        if (a->m)
            y = fmaf(s, lf_load(a->lora, r * a->ldlora + c, a->x_type),
                     fmaf(s - 1.0f, base - bias, y));
        if (a->rest)
            y = y + lf_load(a->rest, r * a->ldrest + c, a->x_type);
        lf_store(a->y, r * a->ldy + c, a->x_type, y);
    }
}

/* A block for 32 columns (x of its threads), its 8 warps for the rows of one residue each; the 8
 * sums are added in order, so the tree is a function of the number of rows alone. */
LF_KERNEL(dora_bwd, struct lf_k_dora_bwd, 256)
{
    LF_SHARED(float, part);
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t c = (int64_t)blockIdx.x * 32 + lane;
    float sum = 0;
    if (c < a->c) {
        const float s = dora_ratio(a->m, a->norm, c), bias = a->bias ? a->bias[c] : 0.0f;
        for (int64_t r = warp; r < a->rows; r += 8) {
            const float dy = lf_load(a->dy, r * a->lddy + c, a->x_type);
            if (a->dm)
                sum = fmaf(dy,
                           lf_load(a->base, r * a->ldbase + c, a->x_type) - bias +
                               lf_load(a->lora, r * a->ldlora + c, a->x_type),
                           sum);
            if (a->dx)
                lf_store(a->dx, r * a->lddx + c, a->x_type, s * dy);
        }
    }
    part[threadIdx.x] = sum;
    __syncthreads();
    if (warp || c >= a->c || !a->dm)
        return;
    for (int w = 1; w < 8; w++)
        sum = sum + part[32 * w + lane];
    sum = a->norm[c] > 0 ? sum / a->norm[c] : 0.0f;
    a->dm[c] = a->accumulate ? a->dm[c] + sum : sum;
}
