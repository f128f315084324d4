/* SPDX-License-Identifier: Apache-2.0
 *
 * Decays of a scan and the strength of its writes. Rows are independent; the backward gives a
 * thread whole heads, so the sums over rows have one order.
 */
#include "config.h"

#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(scan_gate_fwd)
LF_CPU_DECLARE(scan_gate_bwd)

LF_NO_WORK(scan_gate_fwd)
LF_NO_WORK(scan_gate_bwd)

int LF_SYM(scan_gate_fwd_check)(const struct lf_k_scan_gate_fwd *a)
{
    return a->rows >= 0 && a->heads > 0 && a->width > 0 && a->lda >= a->heads * a->width &&
                   (!a->ldb || a->ldb >= a->heads) && a->low < a->high && lf_is_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

int LF_SYM(scan_gate_bwd_check)(const struct lf_k_scan_gate_bwd *a)
{
    return a->rows >= 0 && a->heads > 0 && a->width > 0 && a->lda >= a->heads * a->width &&
                   a->ldda >= a->heads * a->width && (!a->ldb || a->ldb >= a->heads) &&
                   a->low < a->high && lf_is_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

/* n channels from i on, of head h where a head has several. */
LF_INLINE lf_v rate_of(const float *a_log, int64_t width, int64_t h, int64_t i, int64_t n)
{
    return -lf_v_exp(width > 1 ? lf_v_set1(a_log[h]) : lf_get(a_log, i, LF_F32, n));
}

LF_INLINE lf_v cut(lf_v s, float low, float high)
{
    return lf_v_min(lf_v_max(s, lf_v_set1(low)), lf_v_set1(high));
}

static void gate_row(const struct lf_k_scan_gate_fwd *a, int64_t r)
{
    const int64_t hw = a->heads * a->width, parts = a->width > 1 ? a->heads : 1, len = hw / parts;
    for (int64_t h = 0; h < parts; h++)
        LF_EACH_VEC(c, n, len)
        {
            const int64_t i = h * len + c;
            const lf_v s = cut(lf_v_softplus(lf_get(a->a, r * a->lda + i, a->x_type, n) +
                                             lf_get(a->bias, i, LF_F32, n)),
                               a->low, a->high);
            lf_put(a->g, r * hw + i, LF_F32, n, rate_of(a->a_log, a->width, h, i, n) * s);
            if (a->beta && !a->b)
                lf_put(a->beta, r * hw + i, LF_F32, n, s);
        }
    LF_EACH_VEC(c, n, a->beta && a->b ? a->heads : 0)
    lf_put(a->beta, r * a->heads + c, LF_F32, n,
           lf_v_set1(a->strength) * lf_v_sigmoid(lf_get(a->b, r * a->ldb + c, a->x_type, n)));
}

static void gate_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    (void)q;
    for (int64_t r = lo; r < hi; r++)
        gate_row(arg, r);
}

int LF_SYM(scan_gate_fwd)(lf_queue *q, const struct lf_k_scan_gate_fwd *a)
{
    const int64_t hw = a->heads * a->width;
    lf_deal(q, lf_team(q, a->rows * hw * 16), a->rows, lf_few_rows(hw * 2), gate_rows, a);
    return LF_K_OK;
}

/* All rows of n channels from i on: da, dbias. Returns the sums of dg g. */
LF_INLINE lf_v channels_bwd(lf_queue *q, const struct lf_k_scan_gate_bwd *a, int64_t h, int64_t i,
                            int64_t n)
{
    const uint8_t t = a->x_type;
    const lf_v rate = rate_of(a->a_log, a->width, h, i, n), bias = lf_get(a->bias, i, LF_F32, n);
    lf_v sum = lf_v_zero(), log = sum;
    LF_EACH_PIECE(q, lo, hi, 0, a->rows, lf_few_rows(2 * LF_VL))
    for (int64_t r = lo; r < hi; r++) {
        const int64_t at = r * a->heads * a->width + i;
        const lf_v x = lf_get(a->a, r * a->lda + i, t, n) + bias, s = lf_v_softplus(x),
                   kept = cut(s, a->low, a->high),
                   dg = a->dg ? lf_get(a->dg, at, LF_F32, n) : lf_v_zero();
        lf_v ds = rate * dg;
        if (!a->b && a->dbeta)
            ds += lf_get(a->dbeta, at, LF_F32, n);
        const lf_v da = lf_v_select(s == kept, ds * lf_v_sigmoid(x), lf_v_zero());
        log = lf_v_fma(dg * rate, kept, log);
        sum += da;
        if (a->da)
            lf_put(a->da, r * a->ldda + i, t, n, da);
    }
    if (a->dbias)
        lf_put(a->dbias, i, LF_F32, n, a->accumulate ? lf_get(a->dbias, i, LF_F32, n) + sum : sum);
    return log;
}

/* Heads [lo, hi) as one part (a channel each), or one head of several channels. */
static void heads_bwd(lf_queue *q, const struct lf_k_scan_gate_bwd *a, int64_t lo, int64_t hi)
{
    const bool wide = a->width > 1;
    const int64_t first = lo * a->width, len = (hi - lo) * a->width;
    double all = 0;
    LF_EACH_VEC(c, n, len)
    {
        const lf_v log = channels_bwd(q, a, lo, first + c, n);
        for (int64_t l = 0; l < n; l++) {
            all = wide ? all + (double)log[l] : (double)log[l];
            float *to = a->da_log ? a->da_log + (wide ? lo : first + c + l) : NULL;
            if (to && (!wide || c + l == len - 1))
                *to = (float)(a->accumulate ? (double)*to + all : all);
        }
    }
    for (int64_t r = 0; r < a->rows && a->b && a->db; r++)
        LF_EACH_VEC(c, n, hi - lo)
        {
            const lf_v s = lf_v_sigmoid(lf_get(a->b, r * a->ldb + lo + c, a->x_type, n));
            const lf_v d = a->dbeta ? lf_v_set1(a->strength) *
                                          lf_get(a->dbeta, r * a->heads + lo + c, LF_F32, n)
                                    : lf_v_zero();
            lf_put(a->db, r * a->lddb + lo + c, a->x_type, n, d * s * (lf_v_set1(1.0f) - s));
        }
}

static void gate_bwd_heads(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    heads_bwd(q, arg, lo, hi);
}

int LF_SYM(scan_gate_bwd)(lf_queue *q, const struct lf_k_scan_gate_bwd *a)
{
    const int team = lf_team(q, a->rows * a->heads * a->width * 16);
    lf_deal(q, team, a->heads, a->width > 1 ? 1 : lf_share(a->heads, LF_VL, team), gate_bwd_heads,
            a);
    return LF_K_OK;
}
