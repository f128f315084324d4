/* SPDX-License-Identifier: Apache-2.0
 *
 * Weight-decomposed adapters: lengths of adapted rows, and the columns of a product scaled to
 * trained lengths. A length is one thread's, and so is a column of the gradient, whose rows are
 * added in ascending order: threads change no bit.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(dora_norm)
LF_CPU_DECLARE(dora_fwd)
LF_CPU_DECLARE(dora_bwd)
LF_CPU_DECLARE(root)

LF_NO_WORK(dora_norm)
LF_NO_WORK(dora_fwd)
LF_NO_WORK(dora_bwd)
LF_NO_WORK(root)

int LF_SYM(dora_norm_check)(const struct lf_k_dora_norm *a)
{
    return a->rows >= 0 && a->c > 0 && a->rank >= 0 && lf_is_float(a->w_type) ? LF_K_OK
                                                                              : LF_K_EINVAL;
}

int LF_SYM(dora_fwd_check)(const struct lf_k_dora_fwd *a)
{
    return a->rows >= 0 && a->c > 0 && lf_is_float(a->x_type) && a->ldbase >= a->c &&
                   a->ldlora >= a->c && a->ldy >= a->c
               ? LF_K_OK
               : LF_K_EINVAL;
}

int LF_SYM(dora_bwd_check)(const struct lf_k_dora_bwd *a)
{
    return a->rows >= 0 && a->c > 0 && lf_is_float(a->x_type) && a->lddy >= a->c &&
                   a->ldbase >= a->c && a->ldlora >= a->c
               ? LF_K_OK
               : LF_K_EINVAL;
}

int LF_SYM(root_check)(const struct lf_k_root *a)
{
    return a->n >= 0 ? LF_K_OK : LF_K_EINVAL;
}

static float scalar(const void *p, int64_t i, uint8_t t)
{
    if (t == LF_F32)
        return ((const float *)p)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static void norm_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_dora_norm *a = arg;
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        lf_v sum = lf_v_zero();
        LF_EACH_VEC(c, n, a->c)
        {
            lf_v ba = lf_v_zero();
            for (int64_t j = 0; j < a->rank; j++)
                ba = lf_v_fma(lf_v_set1(scalar(a->b, r * a->rank + j, a->w_type)),
                              lf_get(a->a, j * a->c + c, a->w_type, n), ba);
            const lf_v v =
                lf_v_fma(lf_v_set1(a->scale), ba, lf_get(a->w, r * a->c + c, a->w_type, n));
            sum = lf_v_fma(v, v, sum);
        }
        const float square = lf_v_hsum(sum);
        a->norm[r] = a->squares ? square : sqrtf(square);
    }
}

int LF_SYM(dora_norm)(lf_queue *q, const struct lf_k_dora_norm *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 4 * (1 + a->rank)), a->rows,
            lf_few_rows(a->c * (1 + a->rank)), norm_rows, a);
    return LF_K_OK;
}

int LF_SYM(root)(lf_queue *q, const struct lf_k_root *a)
{
    (void)q; /* as many as a weight has rows: one thread does it as soon as several have met */
    for (int64_t i = 0; i < a->n; i++)
        a->y[i] = sqrtf(a->x[i]);
    return LF_K_OK;
}

/* m / norm. A weight of zeros has no direction: its row stays as it is. */
static lf_v ratio(const float *m, const float *norm, int64_t c, int64_t n)
{
    const lf_v d = lf_get(norm, c, LF_F32, n), one = lf_v_set1(1.0f);
    const lf_v safe = lf_v_select(d > lf_v_zero(), d, one);
    return lf_v_select(d > lf_v_zero(), lf_get(m, c, LF_F32, n) / safe, one);
}

static void fwd_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_dora_fwd *a = arg;
    (void)q;
    const uint8_t t = a->x_type;
    for (int64_t r = lo; r < hi; r++)
        LF_EACH_VEC(c, n, a->c)
        {
            const lf_v base = lf_get(a->base, r * a->ldbase + c, t, n);
            lf_v y = base;
            if (a->m) {
                const lf_v s = ratio(a->m, a->norm, c, n),
                           bias = a->bias ? lf_get(a->bias, c, LF_F32, n) : lf_v_zero();
                y = y + (s - lf_v_set1(1.0f)) * (base - bias) +
                    s * lf_get(a->lora, r * a->ldlora + c, t, n);
            }
            if (a->rest)
                y = y + lf_get(a->rest, r * a->ldrest + c, t, n);
            lf_put(a->y, r * a->ldy + c, t, n, y);
        }
}

int LF_SYM(dora_fwd)(lf_queue *q, const struct lf_k_dora_fwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 16), a->rows, lf_few_rows(a->c), fwd_rows, a);
    return LF_K_OK;
}

static void bwd_columns(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_dora_bwd *a = arg;
    const uint8_t t = a->x_type;
    (void)q;
    for (int64_t c = lo; c < hi; c += LF_VL) {
        const int64_t n = a->c - c < LF_VL ? a->c - c : LF_VL;
        const lf_v s = ratio(a->m, a->norm, c, n),
                   bias = a->bias ? lf_get(a->bias, c, LF_F32, n) : lf_v_zero(),
                   norm = lf_get(a->norm, c, LF_F32, n), zero = lf_v_zero();
        lf_v sum = zero;
        for (int64_t r = 0; r < a->rows; r++) {
            const lf_v dy = lf_get(a->dy, r * a->lddy + c, t, n);
            sum = lf_v_fma(dy,
                           lf_get(a->base, r * a->ldbase + c, t, n) - bias +
                               lf_get(a->lora, r * a->ldlora + c, t, n),
                           sum);
            if (a->dx)
                lf_put(a->dx, r * a->lddx + c, t, n, s * dy);
        }
        if (a->dm) {
            sum = lf_v_select(norm > zero, sum / lf_v_select(norm > zero, norm, lf_v_set1(1.0f)),
                              zero);
            lf_put(a->dm, c, LF_F32, n, a->accumulate ? lf_get(a->dm, c, LF_F32, n) + sum : sum);
        }
    }
}

int LF_SYM(dora_bwd)(lf_queue *q, const struct lf_k_dora_bwd *a)
{
    const int team = lf_team(q, a->rows * a->c * 16);
    lf_deal(q, team, a->c, lf_share(a->c, 64, team), bwd_columns, a);
    return LF_K_OK;
}
