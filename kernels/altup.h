/* SPDX-License-Identifier: Apache-2.0
 *
 * The argument structs of what a row's own numbers decide: streams mixed by coefficients of the
 * row, magnitudes matched, gates cut by their distribution; a part of kernels.h, which includes it.
 */
#ifndef LF_KERNELS_ALTUP_H
#define LF_KERNELS_ALTUP_H

#include <stdbool.h>
#include <stdint.h>

/* Streams of `c` channels side by side in a row, mixed by coefficients of the row (AltUp; Baykal et
 * al. 2023):
 *     y[r][q] = sum over p of k[r][q][p] x[r][p],  k[r][q][p] = w[r][q from + p] + offset
 * for `to` streams q of `from` streams p; k is 0 for q < first and for p >= read. w NULL: k is the
 * offset. back: y has `from` streams, and x `to`: y[r][p] = sum over q of k[r][q][p] x[r][q], which
 * is the gradient by x. Sums are in ascending order. w has x_type. */
#define LF_MOST_STREAMS 8
struct lf_k_altup_mix {
    int64_t rows, c, ldx, ldw, ldy;
    const void *x, *w;
    void *y;
    float offset;
    int32_t from, to, first, read;
    bool back;
    uint8_t x_type; /* of x, w and y */
};
/* dw[r][q from + p] = dy[r][q] . x[r][p], and 0 where k is: the gradient by w. */
struct lf_k_altup_mix_dw {
    int64_t rows, c, ldx, lddy, lddw;
    const void *x, *dy;
    void *dw;
    int32_t from, to, first, read;
    uint8_t x_type; /* of all */
};

/* Each of `parts` equal parts x_i of a row takes the magnitude of the row `like`, both of c
 * channels:
 *     y_i = x_i sqrt(mean(like^2) / max(mean(x_i^2), eps)) */
struct lf_k_match_rms_fwd {
    int64_t rows, c, ldx, ldlike, ldy;
    const void *x, *like;
    void *y;
    float eps;
    int32_t parts;
    uint8_t x_type; /* of all */
};
/* dx by each part, and dlike, the sum over the parts; where like is 0 nothing flows back to it. dx
 * may be dy. */
struct lf_k_match_rms_bwd {
    int64_t rows, c, ldx, ldlike, lddy, lddx, lddlike;
    const void *x, *like, *dy;
    void *dx, *dlike;
    float eps;
    int32_t parts;
    uint8_t x_type; /* of all */
};

/* y = max(x - (mean + k std), 0), mean and standard deviation over the c channels of the row: of
 * normally distributed ones a share remains that k decides (Gemma 3n). y may be x. */
struct lf_k_gauss_topk_fwd {
    int64_t rows, c, ldx, ldy;
    const void *x;
    void *y;
    float k;
    uint8_t x_type;
};
/* dx = dy' - sum(dy') / c (1 + k (x - mean) / std), dy' = dy where y > 0 and else 0; where std is 0
 * the fraction counts as 0. dx may be dy. */
struct lf_k_gauss_topk_bwd {
    int64_t rows, c, ldx, lddy, lddx;
    const void *x, *dy;
    void *dx;
    float k;
    uint8_t x_type;
};

#endif
