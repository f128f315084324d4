/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams mixed by coefficients of their row, magnitudes matched, gates cut. Where a row is summed
 * over, a block has it: a thread's columns in ascending order, then the tree of lf_block_sum.
 */
#include "kernels/cuda/each.h"

LF_KERNEL(altup_mix, struct lf_k_altup_mix, 256)
{
    const int t = a->x_type, in = a->back ? a->to : a->from, out = a->back ? a->from : a->to;
    const bool vec = lf_vec8(a->x, a->ldx, t) && lf_vec8(a->y, a->ldy, t) && a->c % 8 == 0;
    LF_EACH_EIGHT(r, at, a->rows, a->c)
    {
        const int n = lf_eight(a->c, at);
        for (int o = 0; o < out; o++) {
            float y[8] = {0, 0, 0, 0, 0, 0, 0, 0}, x[8];
            for (int i = 0; i < in; i++) {
                const int q = a->back ? i : o, p = a->back ? o : i;
                float k = a->offset;
                if (a->w)
                    k += lf_load(a->w, r * a->ldw + q * a->from + p, t);
                if (q < a->first || p >= a->read)
                    k = 0.0f;
                lf_load_n(x, a->x, r * a->ldx + i * a->c + at, t, n, vec);
                LF_UNROLL for (int j = 0; j < 8; j++) y[j] = fmaf(k, x[j], y[j]);
            }
            lf_store_n(a->y, r * a->ldy + o * a->c + at, t, y, n, vec);
        }
    }
}

/* x . y of c elements, in every thread of the block. */
LF_DEV float row_dot(const void *x, int64_t x0, const void *y, int64_t y0, int64_t c, int t,
                     float *scratch)
{
    float s = 0.0f;
    for (int64_t i = threadIdx.x; i < c; i += blockDim.x)
        s = fmaf(lf_load(x, x0 + i, t), lf_load(y, y0 + i, t), s);
    return lf_block_sum(s, scratch);
}

LF_KERNEL(altup_mix_dw, struct lf_k_altup_mix_dw, 256)
{
    LF_SHARED(float, scratch);
    const int t = a->x_type;
    for (int64_t r = blockIdx.x; r < a->rows; r += gridDim.x)
        for (int q = 0; q < a->to; q++)
            for (int p = 0; p < a->from; p++) {
                const float s = row_dot(a->dy, r * a->lddy + q * a->c, a->x, r * a->ldx + p * a->c,
                                        a->c, t, scratch);
                if (threadIdx.x == 0)
                    lf_store(a->dw, r * a->lddw + q * a->from + p, t,
                             q < a->first || p >= a->read ? 0.0f : s);
            }
}

/* ---- magnitudes ---- */

LF_KERNEL(match_rms_fwd, struct lf_k_match_rms_fwd, 256)
{
    LF_SHARED(float, scratch);
    const int t = a->x_type;
    const float inv = 1.0f / (float)a->c;
    for (int64_t r = blockIdx.x; r < a->rows; r += gridDim.x) {
        const int64_t l0 = r * a->ldlike;
        const float want = sqrtf(row_dot(a->like, l0, a->like, l0, a->c, t, scratch) * inv);
        for (int i = 0; i < a->parts; i++) {
            const int64_t x0 = r * a->ldx + i * a->c, y0 = r * a->ldy + i * a->c;
            const float square = row_dot(a->x, x0, a->x, x0, a->c, t, scratch) * inv,
                        f = want / sqrtf(fmaxf(square, a->eps));
            for (int64_t c = threadIdx.x; c < a->c; c += blockDim.x)
                lf_store(a->y, y0 + c, t, lf_load(a->x, x0 + c, t) * f);
        }
    }
}

LF_KERNEL(match_rms_bwd, struct lf_k_match_rms_bwd, 256)
{
    LF_SHARED(float, scratch);
    const int t = a->x_type;
    const float inv = 1.0f / (float)a->c;
    for (int64_t r = blockIdx.x; r < a->rows; r += gridDim.x) {
        const int64_t l0 = r * a->ldlike;
        const float want = sqrtf(row_dot(a->like, l0, a->like, l0, a->c, t, scratch) * inv);
        float along = 0.0f; /* the gradient by `want` */
        for (int i = 0; i < a->parts; i++) {
            const int64_t x0 = r * a->ldx + i * a->c, d0 = r * a->lddy + i * a->c,
                          dx0 = r * a->lddx + i * a->c;
            const float square = row_dot(a->x, x0, a->x, x0, a->c, t, scratch) * inv,
                        dyx = row_dot(a->dy, d0, a->x, x0, a->c, t, scratch),
                        has = sqrtf(fmaxf(square, a->eps)), f = want / has,
                        g = square > a->eps ? -f * dyx * inv / square : 0.0f;
            for (int64_t c = threadIdx.x; c < a->c; c += blockDim.x)
                lf_store(a->dx, dx0 + c, t,
                         fmaf(lf_load(a->x, x0 + c, t), g, lf_load(a->dy, d0 + c, t) * f));
            along += dyx / has;
        }
        const float f = want > 0.0f ? along * inv / want : 0.0f;
        for (int64_t c = threadIdx.x; c < a->c; c += blockDim.x)
            lf_store(a->dlike, r * a->lddlike + c, t, lf_load(a->like, l0 + c, t) * f);
    }
}

/* ---- cut gates ---- */

struct spread {
    float mean, std, cut;
};

/* Mean and standard deviation of a row, and what is cut off. */
LF_DEV struct spread spread_of(const void *x, int64_t x0, int64_t c, float k, int t, float *scratch)
{
    struct spread s;
    float sum = 0.0f, squares = 0.0f;
    for (int64_t i = threadIdx.x; i < c; i += blockDim.x)
        sum += lf_load(x, x0 + i, t);
    s.mean = lf_block_sum(sum, scratch) / (float)c;
    for (int64_t i = threadIdx.x; i < c; i += blockDim.x) {
        const float d = lf_load(x, x0 + i, t) - s.mean;
        squares = fmaf(d, d, squares);
    }
    s.std = sqrtf(lf_block_sum(squares, scratch) / (float)c);
    s.cut = s.mean + k * s.std;
    return s;
}

LF_KERNEL(gauss_topk_fwd, struct lf_k_gauss_topk_fwd, 256)
{
    LF_SHARED(float, scratch);
    const int t = a->x_type;
    for (int64_t r = blockIdx.x; r < a->rows; r += gridDim.x) {
        const struct spread s = spread_of(a->x, r * a->ldx, a->c, a->k, t, scratch);
        for (int64_t c = threadIdx.x; c < a->c; c += blockDim.x) {
            const float d = lf_load(a->x, r * a->ldx + c, t) - s.cut;
            lf_store(a->y, r * a->ldy + c, t, d < 0.0f ? 0.0f : d); /* NaN stays NaN */
        }
    }
}

LF_KERNEL(gauss_topk_bwd, struct lf_k_gauss_topk_bwd, 256)
{
    LF_SHARED(float, scratch);
    const int t = a->x_type;
    for (int64_t r = blockIdx.x; r < a->rows; r += gridDim.x) {
        const int64_t x0 = r * a->ldx, d0 = r * a->lddy;
        const struct spread s = spread_of(a->x, x0, a->c, a->k, t, scratch);
        float sum = 0.0f;
        for (int64_t c = threadIdx.x; c < a->c; c += blockDim.x)
            sum += lf_load(a->x, x0 + c, t) - s.cut > 0.0f ? lf_load(a->dy, d0 + c, t) : 0.0f;
        const float share = lf_block_sum(sum, scratch) / (float)a->c,
                    slope = s.std > 0.0f ? share * a->k / s.std : 0.0f;
        for (int64_t c = threadIdx.x; c < a->c; c += blockDim.x) {
            const float x = lf_load(a->x, x0 + c, t),
                        dy = x - s.cut > 0.0f ? lf_load(a->dy, d0 + c, t) : 0.0f;
            lf_store(a->dx, r * a->lddx + c, t, dy - fmaf(x - s.mean, slope, share));
        }
    }
}
