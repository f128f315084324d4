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
 *   affine:    mean = 0, rstd = 1 (Touvron et al. 2021, ResMLP)
 *
 * Row (t, h), t < rows, h < heads, stands at base + t * ld + h * c. heads is 1 for hidden rows and
 * larger for QK-norm inside qkv rows. The heads share w and b [c]. With each, w and b are [heads *
 * c]: channel i of head h has those at h * c + i, so that heads are groups of the channels of a row
 * (the gated norm of Mamba-2: Dao and Gu 2024, arXiv:2405.21060). With delta NULL, s = x and `sum`
 * is not written. Otherwise sum[r] is s rounded to x_type (sum may alias x or delta), and the
 * statistics use that rounded s. mean (LayerNorm only) and rstd: f32 [rows * heads], NULL when no
 * backward follows. y may be x.
 *
 * Rows that ranks have parts of, heads 1 and no delta: with `squares` the call writes sum_c (x -
 * mean)^2 of each row there, and no y. With `total`, their sum over the ranks, rstd = 1/sqrt(total
 * / all + eps), where `all` counts the columns of all ranks. LayerNorm needs a mean before that:
 * with `sums` the call writes sum_c x of each row there, and nothing else. With `total_x`, their
 * sum over the ranks, mean = total_x / all. */
struct lf_k_norm_fwd {
    int64_t rows, heads, c;
    const void *x, *delta, *w, *b;
    void *sum, *y;
    float *mean, *rstd;
    int64_t ldx, lddelta, ldsum, ldy;
    float eps, w_offset;
    bool layer;  /* LayerNorm, else RMSNorm */
    bool affine; /* with layer: y = s w + b */
    bool each;   /* each head has its own w and b */
    uint8_t x_type, y_type, w_type;
    float *sums, *squares;        /* [rows], or NULL */
    const float *total_x, *total; /* [rows], or NULL */
    int64_t all;
};
/* Does a call have what it needs, if it is about parts of rows? */
static inline bool lf_norm_part_fits(const struct lf_k_norm_fwd *a)
{
    const int asked = (a->sums != NULL) + (a->squares != NULL) + (a->total != NULL);
    if (a->affine)
        return a->layer && asked == 0 && !a->total_x;
    if (asked == 0)
        return a->total_x == NULL;
    return asked == 1 && a->heads == 1 && !a->delta &&
           a->layer == (a->sums != NULL || a->total_x != NULL) && !(a->sums && a->total_x) &&
           ((!a->total && !a->total_x) || a->all >= a->c);
}
/* dx = dres + d(norm)/dx^T dy dw (+)= sum_r dy * xhat db (+)= sum_r dy x is the normalised input s
 * of the forward. dres (x_type) is the gradient that arrives on the residual path; it may be NULL.
 * dx may alias dres or dy. dw and db are f32, [c] or with each [heads * c], and may be NULL.
 *
 * Of rows that ranks have parts of: with `dots` the call writes sum_c g xhat of each row there,
 * where g = dy (w + w_offset), beside dw and db, and no dx. Behind it stands sum_c g where the norm
 * is a LayerNorm, so that dots is [rows, 2]. With `total`, their sum over the ranks, dx = dres +
 * rstd (g - total[r][1] / all - xhat total[r][0] / all), without the first quotient of an RMSNorm.
 */
struct lf_k_norm_bwd {
    int64_t rows, heads, c;
    const void *x, *dy, *dres, *w;
    const float *mean, *rstd;
    void *dx;
    float *dw, *db;
    int64_t ldx, lddy, lddres, lddx;
    float w_offset;
    bool layer, affine, each, accumulate;
    uint8_t x_type, dy_type, w_type; /* dx has x_type */
    float *dots;                     /* [rows, 1 or 2], or NULL */
    const float *total;              /* as dots */
    int64_t all;
    void *work;
    size_t work_bytes;
};
static inline bool lf_norm_bwd_part_fits(const struct lf_k_norm_bwd *a)
{
    return !(a->dots || a->total) ||
           (a->heads == 1 && (!a->dots || (!a->dx && !a->total)) && (!a->total || a->all >= a->c));
}

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
