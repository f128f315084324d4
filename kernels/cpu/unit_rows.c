/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a matrix scaled to length one, and the gradient of that. Each row is one thread's, and
 * its sums run in one order, so threads change no bit.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(unit_rows_fwd)
LF_CPU_DECLARE(unit_rows_bwd)

LF_NO_WORK(unit_rows_fwd)
LF_NO_WORK(unit_rows_bwd)

static const float SHORTEST = 1e-12f;

int LF_SYM(unit_rows_fwd_check)(const struct lf_k_unit_rows_fwd *a)
{
    return a->rows >= 0 && a->c > 0 && lf_is_float(a->y_type) ? LF_K_OK : LF_K_EINVAL;
}

int LF_SYM(unit_rows_bwd_check)(const struct lf_k_unit_rows_bwd *a)
{
    return a->rows >= 0 && a->c > 0 ? LF_K_OK : LF_K_EINVAL;
}

static float dot(const float *x, const float *y, int64_t len)
{
    lf_v acc = lf_v_zero(), acc1 = acc;
    int64_t c = 0;
    for (; c + 2 * LF_VL <= len; c += 2 * LF_VL) {
        acc = lf_v_fma(lf_v_load(x + c), lf_v_load(y + c), acc);
        acc1 = lf_v_fma(lf_v_load(x + c + LF_VL), lf_v_load(y + c + LF_VL), acc1);
    }
    for (; c < len; c += LF_VL) {
        int64_t n = len - c < LF_VL ? len - c : LF_VL;
        acc = lf_v_fma(lf_get(x, c, LF_F32, n), lf_get(y, c, LF_F32, n), acc);
    }
    return lf_v_hsum(acc + acc1);
}

static void fwd_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_unit_rows_fwd *a = arg;
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        const float *x = a->x + r * a->c;
        const lf_v inv = lf_v_set1(1.0f / fmaxf(sqrtf(dot(x, x, a->c)), SHORTEST));
        LF_EACH_VEC(c, n, a->c)
        lf_put(a->y, r * a->c + c, a->y_type, n, lf_get(x, c, LF_F32, n) * inv);
    }
}

int LF_SYM(unit_rows_fwd)(lf_queue *q, const struct lf_k_unit_rows_fwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 8), a->rows, lf_few_rows(a->c), fwd_piece, a);
    return LF_K_OK;
}

static void bwd_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_unit_rows_bwd *a = arg;
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        const float *x = a->x + r * a->c, *dy = a->dy + r * a->c;
        float *dx = a->dx + r * a->c;
        const float length = sqrtf(dot(x, x, a->c)), inv = 1.0f / fmaxf(length, SHORTEST);
        /* the part of dy along y changes the length only, which y does not have; a short row
         * keeps it */
        const lf_v along = lf_v_set1(length < SHORTEST ? 0.0f : dot(x, dy, a->c) * inv * inv),
                   scale = lf_v_set1(inv);
        LF_EACH_VEC(c, n, a->c)
        {
            lf_v g = (lf_get(dy, c, LF_F32, n) - lf_get(x, c, LF_F32, n) * along) * scale;
            lf_put(dx, c, LF_F32, n, a->accumulate ? lf_get(dx, c, LF_F32, n) + g : g);
        }
    }
}

int LF_SYM(unit_rows_bwd)(lf_queue *q, const struct lf_k_unit_rows_bwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 16), a->rows, lf_few_rows(a->c), bwd_piece, a);
    return LF_K_OK;
}
