/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams mixed by coefficients of their row, magnitudes matched, gates cut. A row is one thread's,
 * so threads change no bit.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(altup_mix)
LF_CPU_DECLARE(altup_mix_dw)
LF_CPU_DECLARE(match_rms_fwd)
LF_CPU_DECLARE(match_rms_bwd)
LF_CPU_DECLARE(gauss_topk_fwd)
LF_CPU_DECLARE(gauss_topk_bwd)

LF_NO_WORK(altup_mix)
LF_NO_WORK(altup_mix_dw)
LF_NO_WORK(match_rms_fwd)
LF_NO_WORK(match_rms_bwd)
LF_NO_WORK(gauss_topk_fwd)
LF_NO_WORK(gauss_topk_bwd)

/* piece: fn(a, lo, hi, type) of some rows; fn is compiled for each type. */
#define PIECE(piece, fn, args)                                                                     \
    static void piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)                        \
    {                                                                                              \
        const struct args *a = arg;                                                                \
        (void)q;                                                                                   \
        if (a->x_type == LF_BF16)                                                                  \
            fn(a, lo, hi, LF_BF16);                                                                \
        else                                                                                       \
            fn(a, lo, hi, LF_F32);                                                                 \
    }

static bool counts_ok(int64_t rows, int64_t c, int32_t from, int32_t to)
{
    return rows >= 0 && c > 0 && from > 0 && from <= LF_MOST_STREAMS && to > 0 &&
           to <= LF_MOST_STREAMS;
}

int LF_SYM(altup_mix_check)(const struct lf_k_altup_mix *a)
{
    const int32_t in = a->back ? a->to : a->from, out = a->back ? a->from : a->to;
    bool ok = counts_ok(a->rows, a->c, a->from, a->to) && a->ldx >= in * a->c &&
              a->ldy >= out * a->c && (!a->w || a->ldw >= (int64_t)a->from * a->to) &&
              lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* The coefficients of row r as k[output][input]. */
LF_INLINE void coefficients(const struct lf_k_altup_mix *a, int64_t r,
                            float k[LF_MOST_STREAMS][LF_MOST_STREAMS], uint8_t t)
{
    for (int32_t s = 0; s < a->to; s++)
        for (int32_t p = 0; p < a->from; p++) {
            float v = a->offset;
            if (a->w)
                v += lf_st_load(a->w, r * a->ldw + s * a->from + p, t == LF_BF16);
            k[a->back ? p : s][a->back ? s : p] = s < a->first || p >= a->read ? 0.0f : v;
        }
}

LF_INLINE void mix_streams(const struct lf_k_altup_mix *a, int64_t lo, int64_t hi, uint8_t t)
{
    const int32_t in = a->back ? a->to : a->from, out = a->back ? a->from : a->to;
    float k[LF_MOST_STREAMS][LF_MOST_STREAMS];
    lf_v x[LF_MOST_STREAMS];
    for (int64_t r = lo; r < hi; r++) {
        coefficients(a, r, k, t);
        LF_EACH_VEC(c, n, a->c)
        {
            for (int32_t i = 0; i < in; i++)
                x[i] = lf_get(a->x, r * a->ldx + i * a->c + c, t, n);
            for (int32_t o = 0; o < out; o++) {
                lf_v s = lf_v_zero();
                for (int32_t i = 0; i < in; i++)
                    s = lf_v_fma(lf_v_set1(k[o][i]), x[i], s);
                lf_put(a->y, r * a->ldy + o * a->c + c, t, n, s);
            }
        }
    }
}

PIECE(mix_streams_piece, mix_streams, lf_k_altup_mix)

int LF_SYM(altup_mix)(lf_queue *q, const struct lf_k_altup_mix *a)
{
    lf_deal(q, lf_team(q, a->rows * (a->c * 4 * (a->from + a->to))), a->rows, lf_few_rows(a->c),
            mix_streams_piece, a);
    return LF_K_OK;
}

int LF_SYM(altup_mix_dw_check)(const struct lf_k_altup_mix_dw *a)
{
    bool ok = counts_ok(a->rows, a->c, a->from, a->to) && a->ldx >= a->from * a->c &&
              a->lddy >= a->to * a->c && a->lddw >= (int64_t)a->from * a->to &&
              lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* x . y of c_all elements. */
LF_INLINE float dot(const void *x, int64_t x0, const void *y, int64_t y0, int64_t c_all, uint8_t t)
{
    lf_v s = lf_v_zero();
    LF_EACH_VEC(c, n, c_all) s = lf_v_fma(lf_get(x, x0 + c, t, n), lf_get(y, y0 + c, t, n), s);
    return lf_v_hsum(s);
}

LF_INLINE void gradients_of_mix(const struct lf_k_altup_mix_dw *a, int64_t lo, int64_t hi,
                                uint8_t t)
{
    for (int64_t r = lo; r < hi; r++)
        for (int32_t s = 0; s < a->to; s++)
            for (int32_t p = 0; p < a->from; p++)
                lf_st_store(a->dw, r * a->lddw + s * a->from + p, t == LF_BF16,
                            s < a->first || p >= a->read ? 0.0f
                                                         : dot(a->dy, r * a->lddy + s * a->c, a->x,
                                                               r * a->ldx + p * a->c, a->c, t));
}

PIECE(gradients_of_mix_piece, gradients_of_mix, lf_k_altup_mix_dw)

int LF_SYM(altup_mix_dw)(lf_queue *q, const struct lf_k_altup_mix_dw *a)
{
    lf_deal(q, lf_team(q, a->rows * (a->c * 8 * a->from * a->to)), a->rows,
            lf_few_rows(a->c * a->from), gradients_of_mix_piece, a);
    return LF_K_OK;
}

/* ---- magnitudes ---- */

int LF_SYM(match_rms_fwd_check)(const struct lf_k_match_rms_fwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->parts > 0 && a->ldx >= a->parts * a->c &&
              a->ldy >= a->parts * a->c && a->ldlike >= a->c && a->eps > 0 &&
              lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

LF_INLINE void match_rows(const struct lf_k_match_rms_fwd *a, int64_t lo, int64_t hi, uint8_t t)
{
    const float inv = 1.0f / (float)a->c;
    for (int64_t r = lo; r < hi; r++) {
        const int64_t l0 = r * a->ldlike;
        const float want = sqrtf(dot(a->like, l0, a->like, l0, a->c, t) * inv);
        for (int32_t i = 0; i < a->parts; i++) {
            const int64_t x0 = r * a->ldx + i * a->c, y0 = r * a->ldy + i * a->c;
            const float has = sqrtf(fmaxf(dot(a->x, x0, a->x, x0, a->c, t) * inv, a->eps));
            const lf_v f = lf_v_set1(want / has);
            LF_EACH_VEC(c, n, a->c) lf_put(a->y, y0 + c, t, n, lf_get(a->x, x0 + c, t, n) * f);
        }
    }
}

PIECE(match_rows_piece, match_rows, lf_k_match_rms_fwd)

int LF_SYM(match_rms_fwd)(lf_queue *q, const struct lf_k_match_rms_fwd *a)
{
    lf_deal(q, lf_team(q, a->rows * (a->c * 12 * a->parts)), a->rows, lf_few_rows(a->c * a->parts),
            match_rows_piece, a);
    return LF_K_OK;
}

int LF_SYM(match_rms_bwd_check)(const struct lf_k_match_rms_bwd *a)
{
    const int64_t all = a->parts * a->c;
    bool ok = a->rows >= 0 && a->c > 0 && a->parts > 0 && a->ldx >= all && a->lddy >= all &&
              a->lddx >= all && a->ldlike >= a->c && a->lddlike >= a->c && a->eps > 0 &&
              lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

LF_INLINE void match_rows_bwd(const struct lf_k_match_rms_bwd *a, int64_t lo, int64_t hi, uint8_t t)
{
    const float inv = 1.0f / (float)a->c;
    for (int64_t r = lo; r < hi; r++) {
        const int64_t l0 = r * a->ldlike;
        const float want = sqrtf(dot(a->like, l0, a->like, l0, a->c, t) * inv);
        float along = 0.0f; /* the gradient by `want` */
        for (int32_t i = 0; i < a->parts; i++) {
            const int64_t x0 = r * a->ldx + i * a->c, d0 = r * a->lddy + i * a->c,
                          dx0 = r * a->lddx + i * a->c;
            const float square = dot(a->x, x0, a->x, x0, a->c, t) * inv,
                        has = sqrtf(fmaxf(square, a->eps)), dyx = dot(a->dy, d0, a->x, x0, a->c, t);
            const lf_v f = lf_v_set1(want / has),
                       g = lf_v_set1(square > a->eps ? -(want / has) * dyx * inv / square : 0.0f);
            LF_EACH_VEC(c, n, a->c)
            lf_put(a->dx, dx0 + c, t, n,
                   lf_v_fma(lf_get(a->x, x0 + c, t, n), g, lf_get(a->dy, d0 + c, t, n) * f));
            along += dyx / has;
        }
        const lf_v f = lf_v_set1(want > 0.0f ? along * inv / want : 0.0f);
        LF_EACH_VEC(c, n, a->c)
        lf_put(a->dlike, r * a->lddlike + c, t, n, lf_get(a->like, l0 + c, t, n) * f);
    }
}

PIECE(match_rows_bwd_piece, match_rows_bwd, lf_k_match_rms_bwd)

int LF_SYM(match_rms_bwd)(lf_queue *q, const struct lf_k_match_rms_bwd *a)
{
    lf_deal(q, lf_team(q, a->rows * (a->c * 24 * a->parts)), a->rows, lf_few_rows(a->c * a->parts),
            match_rows_bwd_piece, a);
    return LF_K_OK;
}

/* ---- cut gates ---- */

/* Mean and standard deviation of a row, and what is cut off. */
struct spread {
    float mean, std, cut;
};

LF_INLINE struct spread spread_of(const void *x, int64_t x0, int64_t c_all, float k, uint8_t t)
{
    lf_v sum = lf_v_zero(), squares = lf_v_zero();
    LF_EACH_VEC(c, n, c_all) sum += lf_get(x, x0 + c, t, n);
    struct spread s = {.mean = lf_v_hsum(sum) / (float)c_all};
    LF_EACH_VEC(c, n, c_all)
    {
        lf_v d = lf_get(x, x0 + c, t, n) - lf_v_set1(s.mean);
        if (n < LF_VL) { /* lanes behind the end are zeros, whose distance is not */
            float lane[LF_VL];
            lf_v_store(lane, d);
            d = lf_v_load_n(lane, (int)n);
        }
        squares = lf_v_fma(d, d, squares);
    }
    s.std = sqrtf(lf_v_hsum(squares) / (float)c_all);
    s.cut = s.mean + k * s.std;
    return s;
}

int LF_SYM(gauss_topk_fwd_check)(const struct lf_k_gauss_topk_fwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && lf_is_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

LF_INLINE void cut_rows(const struct lf_k_gauss_topk_fwd *a, int64_t lo, int64_t hi, uint8_t t)
{
    for (int64_t r = lo; r < hi; r++) {
        const struct spread s = spread_of(a->x, r * a->ldx, a->c, a->k, t);
        LF_EACH_VEC(c, n, a->c)
        {
            const lf_v d = lf_get(a->x, r * a->ldx + c, t, n) - lf_v_set1(s.cut);
            lf_put(a->y, r * a->ldy + c, t, n,
                   lf_v_select(d < lf_v_zero(), lf_v_zero(), d)); /* NaN stays NaN */
        }
    }
}

PIECE(cut_rows_piece, cut_rows, lf_k_gauss_topk_fwd)

int LF_SYM(gauss_topk_fwd)(lf_queue *q, const struct lf_k_gauss_topk_fwd *a)
{
    lf_deal(q, lf_team(q, a->rows * (a->c * 16)), a->rows, lf_few_rows(a->c), cut_rows_piece, a);
    return LF_K_OK;
}

int LF_SYM(gauss_topk_bwd_check)(const struct lf_k_gauss_topk_bwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->lddy >= a->c && a->lddx >= a->c &&
                   lf_is_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

/* dy where something is left. */
LF_INLINE lf_v kept(lf_v x, lf_v dy, float cut)
{
    return lf_v_select(x - lf_v_set1(cut) > lf_v_zero(), dy, lf_v_zero());
}

LF_INLINE void cut_rows_bwd(const struct lf_k_gauss_topk_bwd *a, int64_t lo, int64_t hi, uint8_t t)
{
    for (int64_t r = lo; r < hi; r++) {
        const int64_t x0 = r * a->ldx, d0 = r * a->lddy;
        const struct spread s = spread_of(a->x, x0, a->c, a->k, t);
        lf_v sum = lf_v_zero();
        LF_EACH_VEC(c, n, a->c)
        sum += kept(lf_get(a->x, x0 + c, t, n), lf_get(a->dy, d0 + c, t, n), s.cut);
        const float share = lf_v_hsum(sum) / (float)a->c;
        const lf_v slope = lf_v_set1(s.std > 0.0f ? share * a->k / s.std : 0.0f);
        LF_EACH_VEC(c, n, a->c)
        {
            const lf_v x = lf_get(a->x, x0 + c, t, n), dy = lf_get(a->dy, d0 + c, t, n);
            lf_put(a->dx, r * a->lddx + c, t, n,
                   kept(x, dy, s.cut) - lf_v_fma(x - lf_v_set1(s.mean), slope, lf_v_set1(share)));
        }
    }
}

PIECE(cut_rows_bwd_piece, cut_rows_bwd, lf_k_gauss_topk_bwd)

int LF_SYM(gauss_topk_bwd)(lf_queue *q, const struct lf_k_gauss_topk_bwd *a)
{
    lf_deal(q, lf_team(q, a->rows * (a->c * 28)), a->rows, lf_few_rows(a->c), cut_rows_bwd_piece,
            a);
    return LF_K_OK;
}
