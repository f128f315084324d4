/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that are weighted sums of rows, and columns with a gain. A row of the first, and a column of
 * the gradient of a gain, is one thread's and adds in ascending order: threads change no bit.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(mix_rows)
LF_CPU_DECLARE(col_gate_fwd)
LF_CPU_DECLARE(col_gate_bwd)

LF_NO_WORK(mix_rows)
LF_NO_WORK(col_gate_fwd)
LF_NO_WORK(col_gate_bwd)

int LF_SYM(mix_rows_check)(const struct lf_k_mix_rows *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && lf_is_float(a->x_type) &&
                   lf_is_float(a->y_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

LF_INLINE void mix_row(const struct lf_k_mix_rows *a, int64_t r, uint8_t x_type)
{
    LF_EACH_VEC(c, n, a->c)
    {
        const int64_t to = r * a->ldy + c;
        lf_v sum = a->accumulate ? lf_get(a->y, to, a->y_type, n) : lf_v_zero();
        for (int32_t k = a->start[r]; k < a->start[r + 1]; k++)
            sum = lf_v_fma(lf_v_set1(a->weight[k]),
                           lf_get(a->x, a->index[k] * a->ldx + c, x_type, n), sum);
        lf_put(a->y, to, a->y_type, n, sum);
    }
}

static void mix_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_mix_rows *a = arg;
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        if (a->x_type == LF_BF16)
            mix_row(a, r, LF_BF16);
        else
            mix_row(a, r, LF_F32);
    }
}

int LF_SYM(mix_rows)(lf_queue *q, const struct lf_k_mix_rows *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 16), a->rows, lf_few_rows(a->c), mix_piece, a);
    return LF_K_OK;
}

/* Are numbers of heads, where each says so, of whole heads? */
static bool heads_ok(int64_t each, int64_t c, bool one)
{
    return each == 0 || (each > 0 && c % each == 0 && !one);
}

int LF_SYM(col_gate_fwd_check)(const struct lf_k_col_gate_fwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && lf_is_float(a->x_type) &&
                   heads_ok(a->each, a->c, a->one)
               ? LF_K_OK
               : LF_K_EINVAL;
}

/* Of a vector of columns from c on. */
LF_INLINE lf_v gain_at(const float *gain, bool one, int64_t c, int64_t n)
{
    return one ? lf_v_set1(gain[0]) : lf_get(gain, c, LF_F32, n);
}

LF_INLINE void gate_rows(const struct lf_k_col_gate_fwd *a, int64_t lo, int64_t hi, uint8_t t)
{
    for (int64_t r = lo; r < hi; r++)
        LF_EACH_VEC(c, n, a->c)
    lf_put(a->y, r * a->ldy + c, t, n,
           gain_at(a->gain, a->one, c, n) * lf_get(a->x, r * a->ldx + c, t, n));
}

/* What the number of a head multiplies by. */
static float head_factor(float gain, float most)
{
    return expf(gain < most ? gain : most);
}

LF_INLINE void gate_heads(const struct lf_k_col_gate_fwd *a, int64_t lo, int64_t hi, uint8_t t)
{
    for (int64_t h = 0; h < a->c / a->each; h++) {
        const lf_v by = lf_v_set1(head_factor(a->gain[h], a->most));
        for (int64_t r = lo; r < hi; r++)
            LF_EACH_VEC(c, n, a->each)
        lf_put(a->y, r * a->ldy + h * a->each + c, t, n,
               by * lf_get(a->x, r * a->ldx + h * a->each + c, t, n));
    }
}

static void gate_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_col_gate_fwd *a = arg;
    (void)q;
    if (a->each && a->x_type == LF_BF16)
        gate_heads(a, lo, hi, LF_BF16);
    else if (a->each)
        gate_heads(a, lo, hi, LF_F32);
    else if (a->x_type == LF_BF16)
        gate_rows(a, lo, hi, LF_BF16);
    else
        gate_rows(a, lo, hi, LF_F32);
}

int LF_SYM(col_gate_fwd)(lf_queue *q, const struct lf_k_col_gate_fwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 8), a->rows, lf_few_rows(a->c), gate_piece, a);
    return LF_K_OK;
}

int LF_SYM(col_gate_bwd_check)(const struct lf_k_col_gate_bwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->lddy >= a->c && a->lddx >= a->c &&
                   lf_is_float(a->x_type) && !(a->one && a->dgain) &&
                   heads_ok(a->each, a->c, a->one)
               ? LF_K_OK
               : LF_K_EINVAL;
}

/* All rows of a vector of columns: x is read before dx, which may be dy, is written. */
LF_INLINE void gate_columns(lf_queue *q, const struct lf_k_col_gate_bwd *a, int64_t c, int64_t n,
                            uint8_t t)
{
    const lf_v gain = gain_at(a->gain, a->one, c, n);
    lf_v sum = a->dgain && a->accumulate ? lf_get(a->dgain, c, LF_F32, n) : lf_v_zero();
    LF_EACH_PIECE(q, lo, hi, 0, a->rows, lf_few_rows(LF_VL))
    for (int64_t r = lo; r < hi; r++) {
        const lf_v dy = lf_get(a->dy, r * a->lddy + c, t, n);
        if (a->dgain)
            sum = lf_v_fma(dy, lf_get(a->x, r * a->ldx + c, t, n), sum);
        if (a->dx)
            lf_put(a->dx, r * a->lddx + c, t, n, gain * dy);
    }
    if (a->dgain)
        lf_put(a->dgain, c, LF_F32, n, sum);
}

/* Columns [lo, hi). */
static void gate_bwd_columns(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_col_gate_bwd *a = arg;
    for (int64_t c = lo; c < hi; c += LF_VL) {
        const int64_t n = a->c - c < LF_VL ? a->c - c : LF_VL;
        if (a->x_type == LF_BF16)
            gate_columns(q, a, c, n, LF_BF16);
        else
            gate_columns(q, a, c, n, LF_F32);
    }
}

/* All rows of a head: x is read before dx, which may be dy, is written. */
LF_INLINE void gate_head(lf_queue *q, const struct lf_k_col_gate_bwd *a, int64_t h, uint8_t t)
{
    const float by = head_factor(a->gain[h], a->most);
    float sum = 0;
    LF_EACH_PIECE(q, lo, hi, 0, a->rows, lf_few_rows(a->each))
    for (int64_t r = lo; r < hi; r++) {
        lf_v row = lf_v_zero();
        LF_EACH_VEC(c, n, a->each)
        {
            const int64_t at = h * a->each + c;
            const lf_v dy = lf_get(a->dy, r * a->lddy + at, t, n);
            if (a->dgain)
                row = lf_v_fma(dy, lf_get(a->x, r * a->ldx + at, t, n), row);
            if (a->dx)
                lf_put(a->dx, r * a->lddx + at, t, n, lf_v_set1(by) * dy);
        }
        sum += lf_v_hsum(row);
    }
    if (a->dgain)
        a->dgain[h] =
            (a->accumulate ? a->dgain[h] : 0.0f) + (a->gain[h] <= a->most ? by * sum : 0.0f);
}

static void gate_bwd_heads(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_col_gate_bwd *a = arg;
    for (int64_t h = lo; h < hi; h++) {
        if (a->x_type == LF_BF16)
            gate_head(q, a, h, LF_BF16);
        else
            gate_head(q, a, h, LF_F32);
    }
}

int LF_SYM(col_gate_bwd)(lf_queue *q, const struct lf_k_col_gate_bwd *a)
{
    const int team = lf_team(q, a->rows * a->c * 16);
    if (a->each) {
        lf_deal(q, team, a->c / a->each, 1, gate_bwd_heads, a);
        return LF_K_OK;
    }
    lf_deal(q, team, a->c, lf_share(a->c, 64, team), gate_bwd_columns, a);
    return LF_K_OK;
}
