/* SPDX-License-Identifier: Apache-2.0
 *
 * Depthwise convolution over pictures. Sums over rows have 8 parts, a warp each, which are added in
 * order: the tree is a function of the number of squares alone.
 */
#include "kernels/cuda/dev.h"
#include "kernels/cuda/dwconv.h"

/* x: columns, y: rows. */
LF_KERNEL(dwconv_filter, struct lf_cu_dwconv, 256)
{
    const int64_t c = lf_index(), k = a->taps, half = k / 2, square = a->side * a->side,
                  end = a->rows / square * square;
    if (c >= a->c)
        return;
    for (int64_t r = blockIdx.y; r < a->rows; r += gridDim.y) {
        const int64_t at = r % square, i = at / a->side, j = at % a->side;
        float sum = a->bias ? a->bias[c] : 0.0f;
        for (int64_t u = 0; u < k && r < end; u++) {
            if (i + u < half || i + u - half >= a->side)
                continue;
            for (int64_t v = 0; v < k; v++) {
                const int64_t t = u * k + v;
                if (j + v >= half && j + v - half < a->side)
                    sum = fmaf(a->w[c * k * k + (a->reverse ? k * k - 1 - t : t)],
                               lf_load(a->x, (r + (u - half) * a->side + v - half) * a->ldx + c,
                                       a->x_type),
                               sum);
            }
        }
        lf_store(a->y, r * a->ldy + c, a->x_type, r < end ? sum : 0.0f);
    }
}

/* A block for 32 columns (x) and one row of taps (y), a warp for an eighth of the squares. */
LF_KERNEL(dwconv_bwd, struct lf_k_dwconv_bwd, 256)
{
    LF_SHARED(float, part); /* [8][K + 1][32] */
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t c = (int64_t)blockIdx.x * 32 + lane, u = blockIdx.y, k = a->taps, half = k / 2,
                  square = a->side * a->side, squares = a->rows / square, each = (squares + 7) / 8,
                  lo = warp * each * square,
                  hi = ((warp + 1) * each < squares ? (warp + 1) * each : squares) * square;
    float dw[LF_DWCONV_MOST_TAPS], db = 0.0f;
    for (int v = 0; v < LF_DWCONV_MOST_TAPS; v++)
        dw[v] = 0.0f;
    for (int64_t r = lo; c < a->c && r < hi; r++) {
        const int64_t at = r % square, i = at / a->side + u - half, j = at % a->side - half;
        const float dy = lf_load(a->dy, r * a->lddy + c, a->x_type);
        db = db + dy;
        if (i < 0 || i >= a->side)
            continue;
        const int64_t from = r - at + i * a->side + j;
        LF_UNROLL
        for (int v = 0; v < LF_DWCONV_MOST_TAPS; v++)
            if (v < k && j + v >= 0 && j + v < a->side)
                dw[v] = fmaf(dy, lf_load(a->x, (from + v) * a->ldx + c, a->x_type), dw[v]);
    }
    LF_UNROLL
    for (int v = 0; v < LF_DWCONV_MOST_TAPS; v++)
        if (v < k)
            part[(warp * (k + 1) + v) * 32 + lane] = dw[v];
    part[(warp * (k + 1) + k) * 32 + lane] = db;
    __syncthreads();
    if (c >= a->c)
        return;
    for (int64_t v = warp; v <= k; v += 8) {
        float *to = v < k ? a->dw : u == 0 ? a->dbias : 0;
        const int64_t at = v < k ? c * k * k + u * k + v : c;
        float sum = part[v * 32 + lane];
        for (int w = 1; w < 8; w++)
            sum = sum + part[(w * (k + 1) + v) * 32 + lane];
        if (to)
            to[at] = a->accumulate ? to[at] + sum : sum;
    }
}

/* x: columns of y, y: its rows. */
LF_KERNEL(turn_rows, struct lf_k_turn_rows, 256)
{
    const int64_t i = lf_index(), end = a->rows / a->each * a->c;
    if (i >= a->each)
        return;
    for (int64_t r = blockIdx.y; r < a->y_rows; r += gridDim.y) {
        const int64_t from = (r / a->c * a->each + i) * a->ldx + r % a->c;
        lf_store(a->y, r * a->ldy + i, a->x_type, r < end ? lf_load(a->x, from, a->x_type) : 0.0f);
    }
}
