/* SPDX-License-Identifier: Apache-2.0
 *
 * The argument structs of normalisation; a part of kernels.h, which includes it. */
#ifndef LF_KERNELS_NORM_H
#define LF_KERNELS_NORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* s = x (+ delta) y = (s - mean) * rstd * (w + w_offset) + b
 *   RMSNorm:   mean = 0, rstd = 1/sqrt(mean(s^2) + eps)
 *   LayerNorm: rstd = 1/sqrt(var + eps), with the biased variance
 *
 * Row (t, h), t < rows, h < heads, stands at base + t * ld + h * c. heads is 1 for hidden rows and
 * larger for QK-norm inside qkv rows. The heads share w and b [c]. With each, w and b are [heads *
 * c]: channel i of head h has those at h * c + i, so that heads are groups of the channels of a row
 * (the gated norm of Mamba-2: Dao and Gu 2024, arXiv:2405.21060). With delta NULL, s = x and `sum`
 * is not written. Otherwise sum[r] is s rounded to x_type (sum may alias x or delta), and the
 * statistics use that rounded s. mean (LayerNorm only) and rstd: f32 [rows * heads], NULL when no
 * backward follows. y may be x.
 *
 * RMSNorm of rows that ranks have parts of, heads 1: with `squares` the call writes sum_c x^2 of
 * each row there, and no y. With `total`, their sum over the ranks, rstd = 1/sqrt(total / all +
 * eps), where `all` counts the columns of all ranks. */
struct lf_k_norm_fwd {
    int64_t rows, heads, c;
    const void *x, *delta, *w, *b;
    void *sum, *y;
    float *mean, *rstd;
    int64_t ldx, lddelta, ldsum, ldy;
    float eps, w_offset;
    bool layer; /* LayerNorm, else RMSNorm */
    bool each;  /* each head has its own w and b */
    uint8_t x_type, y_type, w_type;
    float *squares;     /* [rows], or NULL */
    const float *total; /* [rows], or NULL */
    int64_t all;
};
/* dx = dres + d(norm)/dx^T dy dw (+)= sum_r dy * xhat db (+)= sum_r dy x is the normalised input s
 * of the forward. dres (x_type) is the gradient that arrives on the residual path; it may be NULL.
 * dx may alias dres or dy. dw and db are f32, [c] or with each [heads * c], and may be NULL.
 *
 * Of rows that ranks have parts of: with `dots` the call writes sum_c dy (w + w_offset) xhat of
 * each row there, beside dw, and no dx. With `total`, their sum over the ranks, dx = dres + rstd
 * (dy (w + w_offset) - xhat total / all). */
struct lf_k_norm_bwd {
    int64_t rows, heads, c;
    const void *x, *dy, *dres, *w;
    const float *mean, *rstd;
    void *dx;
    float *dw, *db;
    int64_t ldx, lddy, lddres, lddx;
    float w_offset;
    bool layer, each, accumulate;
    uint8_t x_type, dy_type, w_type; /* dx has x_type */
    float *dots;                     /* [rows], or NULL */
    const float *total;              /* [rows], or NULL */
    int64_t all;
    void *work;
    size_t work_bytes;
};

/* y[r] = x[r] / max(|x[r]|, 1e-12). |x[r]| is the Euclidean norm of the row. The output layer of
 * Baichuan 2 needs it (NormHead). x [R, C] is f32 and dense. */
struct lf_k_unit_rows_fwd {
    int64_t rows, c;
    const float *x;
    void *y;
    uint8_t y_type;
};
/* dx (+)= (dy - y (y . dy)) / |x| per row, y = x / |x| in f32; dy / 1e-12 where |x| < 1e-12. */
struct lf_k_unit_rows_bwd {
    int64_t rows, c;
    const float *x, *dy;
    float *dx;
    bool accumulate;
};

#endif
