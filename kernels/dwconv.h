/* SPDX-License-Identifier: Apache-2.0
 *
 * The argument structs of a depthwise convolution over pictures, and of pictures whose rows become
 * columns; a part of kernels.h, which includes it. */
#ifndef LF_KERNELS_DWCONV_H
#define LF_KERNELS_DWCONV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows are squares of side S, row by row, one behind the other; channels stand in columns. With K
 * an odd number and h = K / 2, for each square, row i, column j and channel c of it
 *
 *     y[i, j, c] = bias[c] + sum over u, v < K of w[c, K u + v] x[i + u - h, j + v - h, c]
 *
 * where x is 0 outside of the square. Sums are f32 and ascend in u, then v. Rows behind the last
 * whole square give 0. (ConvNeXt: Liu et al. 2022, section 2.5.) */
enum { LF_DWCONV_MOST_TAPS = 15 }; /* K */
struct lf_k_dwconv_fwd {
    int64_t rows, c, side, taps, ldx, ldy;
    const void *x;
    const float *w;    /* [C, K K] */
    const float *bias; /* [C] or NULL */
    void *y;           /* not x */
    uint8_t x_type;
};
/*     dx[i, j, c] = sum over u, v of w[c, K K - 1 - (K u + v)] dy[i + u - h, j + v - h, c]
 *     dw[c, K u + v] (+)= sum over squares, i, j of dy[i, j, c] x[i + u - h, j + v - h, c]
 *     dbias[c] (+)= sum over squares, i, j of dy[i, j, c]
 * Rows behind the last whole square are left out, and their dx is 0. dx, dw, dbias may be NULL; dx
 * is neither x nor dy. */
struct lf_k_dwconv_bwd {
    int64_t rows, c, side, taps, ldx, lddy, lddx;
    const void *x, *dy;
    const float *w;
    void *dx;
    float *dw, *dbias;
    bool accumulate; /* of dw, dbias */
    uint8_t x_type;
};

/* Matrices of `each` rows, one behind the other, each transposed by itself:
 *
 *     y[p c + j, i] = x[p each + i, j]        i < each, j < c
 *
 * Rows of x behind the last whole matrix are not read, and those of y up to y_rows are 0. */
struct lf_k_turn_rows {
    int64_t rows, c, each, y_rows, ldx, ldy;
    const void *x;
    void *y; /* not x */
    uint8_t x_type;
};

#endif
