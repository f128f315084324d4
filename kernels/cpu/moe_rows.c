/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows to their experts and back: what experts have room for, the stable order by expert, the
 * weighted sum of what the experts gave, the gate of a shared expert. (The copy into expert order
 * is gather_rows.)
 */
#include "config.h"

#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(moe_keep)
LF_CPU_DECLARE(moe_sort)
LF_CPU_DECLARE(moe_combine)
LF_CPU_DECLARE(moe_combine_bwd)
LF_CPU_DECLARE(moe_gain)
LF_CPU_DECLARE(moe_gain_dw)
LF_CPU_DECLARE(row_gate_fwd)
LF_CPU_DECLARE(row_gate_bwd)

LF_NO_WORK(moe_keep)
LF_NO_WORK(moe_sort)
LF_NO_WORK(moe_combine)
LF_NO_WORK(moe_combine_bwd)
LF_NO_WORK(moe_gain)
LF_NO_WORK(moe_gain_dw)
LF_NO_WORK(row_gate_fwd)
LF_NO_WORK(row_gate_bwd)

int LF_SYM(moe_keep_check)(const struct lf_k_moe_keep *a)
{
    bool ok = a->rows >= 0 && a->first >= 0 && a->first + a->rows <= a->all_rows && a->k > 0 &&
              a->k <= a->experts && a->experts <= LF_MOE_MAX_EXPERTS && a->capacity > 0 &&
              (!a->blocks || (a->block > 0 && a->own > 0));
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* Where row j of the order of ranks stands in that of rows. */
static int64_t row_at(const struct lf_k_moe_keep *a, int64_t j)
{
    if (!a->blocks)
        return j;
    const int64_t each = (a->own + a->block - 1) / a->block, in = j % a->own;
    return a->blocks[j / a->own * each + in / a->block] + in % a->block;
}

/* One thread counts the pairs of all rows up to the last of its own. */
int LF_SYM(moe_keep)(lf_queue *q, const struct lf_k_moe_keep *a)
{
    (void)q;
    int64_t seen[LF_MOE_MAX_EXPERTS] = {0}, at = 0;
    for (int64_t i = 0; i < a->rows; i++) {
        const int64_t row = row_at(a, a->first + i);
        for (; at < row * a->k; at++)
            seen[a->all[at]]++;
        for (int32_t s = 0; s < a->k; s++, at++) {
            const int32_t e = a->all[at];
            a->kept[i * a->k + s] = seen[e]++ < a->capacity ? e : -1;
        }
    }
    return LF_K_OK;
}

int LF_SYM(moe_sort_check)(const struct lf_k_moe_sort *a)
{
    bool ok = a->rows >= 0 && a->k > 0 && a->experts > 0 && a->experts <= LF_MOE_MAX_EXPERTS &&
              a->k <= a->experts && a->rows <= INT32_MAX / a->k;
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* A counting sort by one thread: two passes over ids, nothing beside the products that follow. */
int LF_SYM(moe_sort)(lf_queue *q, const struct lf_k_moe_sort *a)
{
    (void)q;
    int32_t at[LF_MOE_MAX_EXPERTS] = {0};
    const int64_t m = a->rows * a->k;
    for (int64_t i = 0; i < m; i++)
        if (a->ids[i] >= 0)
            at[a->ids[i]]++;
    a->offsets[0] = 0;
    for (int64_t e = 0; e < a->experts; e++) {
        a->offsets[e + 1] = a->offsets[e] + at[e];
        at[e] = a->offsets[e];
    }
    for (int64_t r = 0, i = 0; r < a->rows; r++)
        for (int32_t j = 0; j < a->k; j++, i++) {
            a->place_of[i] = a->ids[i] < 0 ? -1 : at[a->ids[i]]++;
            if (a->ids[i] >= 0)
                a->row_of[a->place_of[i]] = (int32_t)r;
        }
    for (int64_t p = a->offsets[a->experts]; p < m; p++)
        a->row_of[p] = -1;
    return LF_K_OK;
}

int LF_SYM(moe_combine_check)(const struct lf_k_moe_combine *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->k > 0 && a->ldx >= a->c && a->ldy >= a->c &&
              (!a->residual || a->ldres >= a->c) && lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

LF_INLINE void combine_rows(const struct lf_k_moe_combine *a, int64_t lo, int64_t hi,
                            const uint8_t t)
{
    for (int64_t r = lo; r < hi; r++) {
        const int32_t *place = a->place_of + r * a->k;
        const float *w = a->weights ? a->weights + r * a->k : NULL;
        LF_EACH_VEC(c, n, a->c)
        {
            lf_v s = lf_v_zero();
            for (int32_t j = 0; j < a->k; j++) {
                if (place[j] < 0)
                    continue;
                lf_v x = lf_get(a->x, place[j] * a->ldx + c, t, n);
                s = w ? lf_v_fma(lf_v_set1(w[j]), x, s) : s + x;
            }
            if (a->residual)
                s += lf_get(a->residual, r * a->ldres + c, t, n);
            lf_put(a->y, r * a->ldy + c, t, n, s);
        }
    }
}

static void combine_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_moe_combine *a = arg;
    (void)q;
    if (a->x_type == LF_BF16)
        combine_rows(a, lo, hi, LF_BF16);
    else
        combine_rows(a, lo, hi, LF_F32);
}

int LF_SYM(moe_combine)(lf_queue *q, const struct lf_k_moe_combine *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 4 * (a->k + 1)), a->rows, lf_few_rows(a->c),
            combine_piece, a);
    return LF_K_OK;
}

int LF_SYM(moe_combine_bwd_check)(const struct lf_k_moe_combine_bwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->k > 0 && a->ldx >= a->c && a->lddy >= a->c &&
              a->lddx >= a->c && lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* dx = s * dy over a row; the sum of dy * x. */
LF_INLINE float scale_dot(void *dx, int64_t dx0, const void *dy, int64_t dy0, const void *x,
                          int64_t x0, int64_t c_all, float s, const uint8_t t)
{
    lf_v dot = lf_v_zero();
    LF_EACH_VEC(c, n, c_all)
    {
        lf_v g = lf_get(dy, dy0 + c, t, n);
        dot = lf_v_fma(g, lf_get(x, x0 + c, t, n), dot);
        lf_put(dx, dx0 + c, t, n, lf_v_set1(s) * g);
    }
    return lf_v_hsum(dot);
}

LF_INLINE void combine_bwd_rows(const struct lf_k_moe_combine_bwd *a, int64_t lo, int64_t hi,
                                const uint8_t t)
{
    for (int64_t i = lo * a->k; i < hi * a->k; i++) {
        const float w = a->weights ? a->weights[i] : 1.0f;
        const float dot = a->place_of[i] < 0 ? 0.0f
                                             : scale_dot(a->dx, a->place_of[i] * a->lddx, a->dy,
                                                         i / a->k * a->lddy, a->x,
                                                         a->place_of[i] * a->ldx, a->c, w, t);
        if (a->dweights)
            a->dweights[i] = dot;
    }
}

static void combine_bwd_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_moe_combine_bwd *a = arg;
    (void)q;
    if (a->x_type == LF_BF16)
        combine_bwd_rows(a, lo, hi, LF_BF16);
    else
        combine_bwd_rows(a, lo, hi, LF_F32);
}

int LF_SYM(moe_combine_bwd)(lf_queue *q, const struct lf_k_moe_combine_bwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 12 * a->k), a->rows, lf_few_rows(a->c),
            combine_bwd_piece, a);
    return LF_K_OK;
}

/* ---- numbers of experts ---- */

static bool pairs_ok(int64_t rows, int64_t experts, int32_t k)
{
    return rows >= 0 && k > 0 && k <= experts && experts <= LF_MOE_MAX_EXPERTS &&
           rows <= INT32_MAX / k;
}

int LF_SYM(moe_gain_check)(const struct lf_k_moe_gain *a)
{
    return pairs_ok(a->rows, a->experts, a->k) ? LF_K_OK : LF_K_EINVAL;
}

int LF_SYM(moe_gain)(lf_queue *q, const struct lf_k_moe_gain *a)
{
    (void)q; /* k numbers a row: nothing beside the products of experts */
    for (int64_t i = 0; i < a->rows * a->k; i++)
        a->y[i] = a->gain[a->ids[i]] * a->x[i];
    return LF_K_OK;
}

int LF_SYM(moe_gain_dw_check)(const struct lf_k_moe_gain_dw *a)
{
    return pairs_ok(a->rows, a->experts, a->k) ? LF_K_OK : LF_K_EINVAL;
}

int LF_SYM(moe_gain_dw)(lf_queue *q, const struct lf_k_moe_gain_dw *a)
{
    double sum[LF_MOE_MAX_EXPERTS] = {0};
    (void)q;
    for (int64_t i = 0; i < a->rows * a->k; i++)
        sum[a->ids[i]] += (double)a->dy[i] * (double)a->x[i];
    for (int64_t e = 0; e < a->experts; e++)
        a->dgain[e] = (a->accumulate ? a->dgain[e] : 0.0f) + (float)sum[e];
    return LF_K_OK;
}

/* ---- the gate of a shared expert ---- */

int LF_SYM(row_gate_fwd_check)(const struct lf_k_row_gate_fwd *a)
{
    bool ok =
        a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

LF_INLINE float sigmoid1(float x)
{
    float s[LF_VL];
    lf_v_store(s, lf_v_sigmoid(lf_v_set1(x)));
    return s[0];
}

static void row_gate_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_row_gate_fwd *a = arg;
    const uint8_t t = a->x_type;
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        const lf_v s = lf_v_set1(sigmoid1(a->gate[r]));
        LF_EACH_VEC(c, n, a->c)
        lf_put(a->y, r * a->ldy + c, t, n, s * lf_get(a->x, r * a->ldx + c, t, n));
    }
}

int LF_SYM(row_gate_fwd)(lf_queue *q, const struct lf_k_row_gate_fwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 8), a->rows, lf_few_rows(a->c), row_gate_piece, a);
    return LF_K_OK;
}

int LF_SYM(row_gate_bwd_check)(const struct lf_k_row_gate_bwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->lddy >= a->c && a->lddx >= a->c &&
              lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

static void row_gate_bwd_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_row_gate_bwd *a = arg;
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        const float s = sigmoid1(a->gate[r]);
        const float dot =
            scale_dot(a->dx, r * a->lddx, a->dy, r * a->lddy, a->x, r * a->ldx, a->c, s, a->x_type);
        a->dgate[r] = s * (1.0f - s) * dot;
    }
}

int LF_SYM(row_gate_bwd)(lf_queue *q, const struct lf_k_row_gate_bwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 12), a->rows, lf_few_rows(a->c), row_gate_bwd_piece, a);
    return LF_K_OK;
}
