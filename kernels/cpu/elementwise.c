/* SPDX-License-Identifier: Apache-2.0
 *
 * Element-wise kernels: activations, gated units, scaled sums and casts, fill, row gather, dropout.
 * All stream their operands once; threads own contiguous ranges of rows or elements.
 */
#include "config.h"

#include "kernels/cpu/attn.h"
#include "kernels/cpu/ops.h"
#include "kernels/cpu/philox.h"

LF_CPU_DECLARE(act_fwd)
LF_CPU_DECLARE(act_bwd)
LF_CPU_DECLARE(glu_fwd)
LF_CPU_DECLARE(glu_bwd)
LF_CPU_DECLARE(axpby)
LF_CPU_DECLARE(fill)
LF_CPU_DECLARE(gather_rows)
LF_CPU_DECLARE(dropout)

LF_NO_WORK(act_fwd)
LF_NO_WORK(act_bwd)
LF_NO_WORK(glu_fwd)
LF_NO_WORK(glu_bwd)
LF_NO_WORK(axpby)
LF_NO_WORK(fill)
LF_NO_WORK(gather_rows)
LF_NO_WORK(dropout)

static bool act_known(uint8_t act)
{
    return act <= LF_ACT_TANH;
}

int LF_SYM(act_fwd_check)(const struct lf_k_act_fwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && act_known(a->act) &&
              lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* The activation and the type are constants of each copy, so the loop has neither branch. */
LF_INLINE void act_rows(const struct lf_k_act_fwd *a, int64_t r0, int64_t r1, uint8_t act,
                        uint8_t t)
{
    for (int64_t r = r0; r < r1; r++) {
        const void *x = lf_at(a->x, r * a->ldx, t);
        void *y = lf_at_w(a->y, r * a->ldy, t);
        LF_EACH_VEC(c, n, a->c) lf_put(y, c, t, n, lf_act_f(act, lf_get(x, c, t, n)));
    }
}

#define LF_ACT_SWITCH(call)                                                                        \
    switch (a->act) {                                                                              \
    case LF_ACT_NONE:                                                                              \
        call(LF_ACT_NONE);                                                                         \
        break;                                                                                     \
    case LF_ACT_GELU:                                                                              \
        call(LF_ACT_GELU);                                                                         \
        break;                                                                                     \
    case LF_ACT_GELU_TANH:                                                                         \
        call(LF_ACT_GELU_TANH);                                                                    \
        break;                                                                                     \
    case LF_ACT_GELU_QUICK:                                                                        \
        call(LF_ACT_GELU_QUICK);                                                                   \
        break;                                                                                     \
    case LF_ACT_SILU:                                                                              \
        call(LF_ACT_SILU);                                                                         \
        break;                                                                                     \
    case LF_ACT_RELU:                                                                              \
        call(LF_ACT_RELU);                                                                         \
        break;                                                                                     \
    case LF_ACT_SIGMOID:                                                                           \
        call(LF_ACT_SIGMOID);                                                                      \
        break;                                                                                     \
    default:                                                                                       \
        call(LF_ACT_TANH);                                                                         \
        break;                                                                                     \
    }
#define LF_TYPE_SPLIT(fn, act)                                                                     \
    (a->x_type == LF_BF16 ? fn(a, lo, hi, act, LF_BF16) : fn(a, lo, hi, act, LF_F32))

static void act_fwd_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_act_fwd *a = arg;
    (void)q;
#define CALL(k) LF_TYPE_SPLIT(act_rows, k)
    LF_ACT_SWITCH(CALL)
#undef CALL
}

int LF_SYM(act_fwd)(lf_queue *q, const struct lf_k_act_fwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 16), a->rows, lf_few_rows(a->c), act_fwd_piece, a);
    return LF_K_OK;
}

int LF_SYM(act_bwd_check)(const struct lf_k_act_bwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->lddy >= a->c && a->lddx >= a->c &&
              act_known(a->act) && lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

LF_INLINE void act_rows_bwd(const struct lf_k_act_bwd *a, int64_t r0, int64_t r1, uint8_t act,
                            uint8_t t)
{
    for (int64_t r = r0; r < r1; r++) {
        const void *x = lf_at(a->x, r * a->ldx, t), *dy = lf_at(a->dy, r * a->lddy, t);
        void *dx = lf_at_w(a->dx, r * a->lddx, t);
        LF_EACH_VEC(c, n, a->c)
        {
            lf_v value, d = lf_act_df(act, lf_get(x, c, t, n), &value);
            lf_put(dx, c, t, n, lf_get(dy, c, t, n) * d);
        }
    }
}

static void act_bwd_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_act_bwd *a = arg;
    (void)q;
#define CALL(k) LF_TYPE_SPLIT(act_rows_bwd, k)
    LF_ACT_SWITCH(CALL)
#undef CALL
}

int LF_SYM(act_bwd)(lf_queue *q, const struct lf_k_act_bwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 16), a->rows, lf_few_rows(a->c), act_bwd_piece, a);
    return LF_K_OK;
}

/* Values beyond a limit become the limit; NaN stays. */
LF_INLINE lf_v cut_above(lf_v x, lf_v limit)
{
    return lf_v_select(x > limit, limit, x);
}
LF_INLINE lf_v cut_below(lf_v x, lf_v limit)
{
    return lf_v_select(x < limit, limit, x);
}

/* What a gated unit multiplies: up, cut and moved. */
LF_INLINE lf_v glu_up(lf_v u, lf_v limit, lf_v offset)
{
    return cut_below(cut_above(u, limit), -limit) + offset;
}
static lf_v glu_limit(float limit)
{
    return lf_v_set1(limit > 0.0f ? limit : INFINITY);
}

int LF_SYM(glu_fwd_check)(const struct lf_k_glu_fwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->ldg >= a->c && a->ldu >= a->c && a->ldy >= a->c &&
              act_known(a->act) && lf_is_float(a->x_type) && a->limit >= 0.0f &&
              isfinite(a->up_offset);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

LF_INLINE void glu_rows(const struct lf_k_glu_fwd *a, int64_t r0, int64_t r1, uint8_t act,
                        uint8_t t)
{
    const bool plain = !(a->limit > 0.0f) && a->up_offset == 0.0f;
    const lf_v limit = glu_limit(a->limit), offset = lf_v_set1(a->up_offset);
    for (int64_t r = r0; r < r1; r++) {
        const void *g = lf_at(a->gate, r * a->ldg, t), *u = lf_at(a->up, r * a->ldu, t);
        void *y = lf_at_w(a->y, r * a->ldy, t);
        LF_EACH_VEC(c, n, a->c)
        {
            const lf_v gate = lf_get(g, c, t, n), up = lf_get(u, c, t, n);
            lf_put(y, c, t, n,
                   plain ? lf_act_f(act, gate) * up
                         : lf_act_f(act, cut_above(gate, limit)) * glu_up(up, limit, offset));
        }
    }
}

static void glu_fwd_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_glu_fwd *a = arg;
    (void)q;
#define CALL(k) LF_TYPE_SPLIT(glu_rows, k)
    LF_ACT_SWITCH(CALL)
#undef CALL
}

int LF_SYM(glu_fwd)(lf_queue *q, const struct lf_k_glu_fwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 16), a->rows, lf_few_rows(a->c), glu_fwd_piece, a);
    return LF_K_OK;
}

int LF_SYM(glu_bwd_check)(const struct lf_k_glu_bwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->ldg >= a->c && a->ldu >= a->c && a->lddy >= a->c &&
              a->lddg >= a->c && a->lddu >= a->c && act_known(a->act) && lf_is_float(a->x_type) &&
              a->limit >= 0.0f && isfinite(a->up_offset);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

LF_INLINE void glu_rows_bwd(const struct lf_k_glu_bwd *a, int64_t r0, int64_t r1, uint8_t act,
                            uint8_t t)
{
    const bool plain = !(a->limit > 0.0f) && a->up_offset == 0.0f;
    const lf_v limit = glu_limit(a->limit), offset = lf_v_set1(a->up_offset), none = lf_v_zero();
    for (int64_t r = r0; r < r1; r++) {
        const void *g = lf_at(a->gate, r * a->ldg, t), *u = lf_at(a->up, r * a->ldu, t),
                   *dy = lf_at(a->dy, r * a->lddy, t);
        void *dg = lf_at_w(a->dgate, r * a->lddg, t), *du = lf_at_w(a->dup, r * a->lddu, t);
        LF_EACH_VEC(c, n, a->c)
        {
            const lf_v gate = lf_get(g, c, t, n), up = lf_get(u, c, t, n), dv = lf_get(dy, c, t, n);
            lf_v value, d = lf_act_df(act, plain ? gate : cut_above(gate, limit), &value);
            if (plain) {
                lf_put(dg, c, t, n, dv * up * d);
                lf_put(du, c, t, n, dv * value);
            } else {
                const lf_v of_gate = dv * glu_up(up, limit, offset) * d;
                lf_put(dg, c, t, n, lf_v_select(gate > limit, none, of_gate));
                lf_put(du, c, t, n, lf_v_select((up > limit) | (up < -limit), none, dv * value));
            }
        }
    }
}

static void glu_bwd_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_glu_bwd *a = arg;
    (void)q;
#define CALL(k) LF_TYPE_SPLIT(glu_rows_bwd, k)
    LF_ACT_SWITCH(CALL)
#undef CALL
}

int LF_SYM(glu_bwd)(lf_queue *q, const struct lf_k_glu_bwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 20), a->rows, lf_few_rows(a->c), glu_bwd_piece, a);
    return LF_K_OK;
}

/* ---- sums, casts, fill ---- */

int LF_SYM(axpby_check)(const struct lf_k_axpby *a)
{
    bool ok =
        a->n >= 0 && lf_is_float(a->a_type) && lf_is_float(a->b_type) && lf_is_float(a->y_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

enum { ADD_PIECE = 32768 };

LF_INLINE void axpby_range(const struct lf_k_axpby *a, int64_t lo, int64_t hi, uint8_t at,
                           uint8_t bt, uint8_t yt)
{
    const lf_v al = lf_v_set1(a->alpha), be = lf_v_set1(a->beta);
    if (!a->b) {
        for (int64_t i = lo; i < hi; i += LF_VL) {
            int64_t n = hi - i < LF_VL ? hi - i : LF_VL;
            lf_put(a->y, i, yt, n, lf_get(a->a, i, at, n) * al);
        }
        return;
    }
    for (int64_t i = lo; i < hi; i += LF_VL) {
        int64_t n = hi - i < LF_VL ? hi - i : LF_VL;
        lf_put(a->y, i, yt, n, lf_get(a->a, i, at, n) * al + lf_get(a->b, i, bt, n) * be);
    }
}

static void axpby_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_axpby *a = arg;
    (void)q;
    switch ((a->a_type == LF_BF16) | (a->b_type == LF_BF16) << 1 | (a->y_type == LF_BF16) << 2) {
    case 0:
        axpby_range(a, lo, hi, LF_F32, LF_F32, LF_F32);
        break;
    case 1:
        axpby_range(a, lo, hi, LF_BF16, LF_F32, LF_F32);
        break;
    case 2:
        axpby_range(a, lo, hi, LF_F32, LF_BF16, LF_F32);
        break;
    case 3:
        axpby_range(a, lo, hi, LF_BF16, LF_BF16, LF_F32);
        break;
    case 4:
        axpby_range(a, lo, hi, LF_F32, LF_F32, LF_BF16);
        break;
    case 5:
        axpby_range(a, lo, hi, LF_BF16, LF_F32, LF_BF16);
        break;
    case 6:
        axpby_range(a, lo, hi, LF_F32, LF_BF16, LF_BF16);
        break;
    default:
        axpby_range(a, lo, hi, LF_BF16, LF_BF16, LF_BF16);
        break;
    }
}

int LF_SYM(axpby)(lf_queue *q, const struct lf_k_axpby *a)
{
    lf_deal(q, lf_team(q, a->n * 12), a->n, ADD_PIECE, axpby_piece, a);
    return LF_K_OK;
}

int LF_SYM(fill_check)(const struct lf_k_fill *a)
{
    return a->n >= 0 && lf_is_float(a->y_type) ? LF_K_OK : LF_K_EINVAL;
}

static void fill_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_fill *a = arg;
    const lf_v v = lf_v_set1(a->value);
    (void)q;
    for (int64_t i = lo; i < hi; i += LF_VL)
        lf_put(a->y, i, a->y_type, hi - i < LF_VL ? hi - i : LF_VL, v);
}

int LF_SYM(fill)(lf_queue *q, const struct lf_k_fill *a)
{
    lf_deal(q, lf_team(q, a->n * 4), a->n, ADD_PIECE, fill_piece, a);
    return LF_K_OK;
}

int LF_SYM(gather_rows_check)(const struct lf_k_gather_rows *a)
{
    bool ok =
        a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && a->x_type < LF_DTYPE_COUNT;
    return ok ? LF_K_OK : LF_K_EINVAL;
}

static void gather_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_gather_rows *a = arg;
    const size_t bytes = (size_t)a->c * lf_dtype_size((enum lf_dtype)a->x_type);
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        void *y = lf_at_w(a->y, r * a->ldy, a->x_type);
        if (a->index[r] < 0)
            memset(y, 0, bytes);
        else
            memcpy(y, lf_at(a->x, a->index[r] * a->ldx, a->x_type), bytes);
    }
}

int LF_SYM(gather_rows)(lf_queue *q, const struct lf_k_gather_rows *a)
{
    const int64_t bytes = a->c * (int64_t)lf_dtype_size((enum lf_dtype)a->x_type);
    lf_deal(q, lf_team(q, a->rows * bytes * 2), a->rows, lf_few_rows(a->c), gather_piece, a);
    return LF_K_OK;
}

/* ---- dropout ---- */

int LF_SYM(dropout_check)(const struct lf_k_dropout *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && a->c0 % 4 == 0 &&
              lf_is_float(a->x_type) && a->p >= 0.0f && a->p < 1.0f;
    return ok ? LF_K_OK : LF_K_EINVAL;
}

enum { DROP_SPAN = 4 * LF_VL };

/* Scales of DROP_SPAN consecutive elements, a counter for each four of them: 1/(1-p) or 0. */
static void drop_scales(float scale[DROP_SPAN], uint64_t seed, uint32_t site, uint64_t a,
                        uint32_t b0, float p, float keep)
{
    uint32_t word[DROP_SPAN];
    lf_philox_span(word, seed, site, a, b0);
    for (int c = 0; c < DROP_SPAN; c += LF_VL) { /* as lf_u01: 24 bits, exact */
        lf_vu w = (lf_vu)lf_v_load((const float *)(const void *)(word + c));
        lf_v u = lf_v_from_int((lf_vi)(w >> 8)) * lf_v_set1(1.0f / 16777216.0f);
        lf_v_store(scale + c, lf_v_select(u >= lf_v_set1(p), lf_v_set1(keep), lf_v_zero()));
    }
}

void LF_SYM(attn_drop_tile)(float *scale, const struct lf_k_attn_drop *drop, int64_t row, int64_t h,
                            int64_t key0)
{
    const uint64_t a =
        (uint64_t)drop->sample[row] + ((uint64_t)(uint32_t)drop->position[row] << 40);
    const float keep = 1.0f / (1.0f - drop->p);
    for (int64_t c = 0; c < ATTN_T; c += DROP_SPAN)
        drop_scales(scale + c, drop->rec->seed, drop->site, a,
                    ((uint32_t)(drop->head0 + h) << 22) + (uint32_t)((key0 + c) / 4), drop->p,
                    keep);
}

static void dropout_piece(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_dropout *a = arg;
    const float keep = 1.0f / (1.0f - a->p);
    const uint32_t groups = (uint32_t)(((a->c_all ? a->c_all : a->c) + 3) / 4);
    const uint8_t t = a->x_type;
    float scale[DROP_SPAN];
    (void)q;
    for (int64_t r = lo; r < hi; r++) {
        const void *x = lf_at(a->x, r * a->ldx, t),
                   *res = a->residual ? lf_at(a->residual, r * a->ldres, t) : NULL;
        void *y = lf_at_w(a->y, r * a->ldy, t);
        for (int64_t c0 = 0; c0 < a->c; c0 += DROP_SPAN) {
            int64_t len = a->c - c0 < DROP_SPAN ? a->c - c0 : DROP_SPAN;
            drop_scales(scale, a->rec->seed, a->site, (uint64_t)a->sample[r],
                        (uint32_t)a->position[r] * groups + (uint32_t)((a->c0 + c0) / 4), a->p,
                        keep);
            LF_EACH_VEC(c, n, len)
            {
                lf_v s = lf_v_load(scale + c), v = lf_get(x, c0 + c, t, n) * s;
                /* a dropped element is 0 even where x is not finite */
                v = lf_v_select(s == lf_v_set1(0.0f), s, v);
                if (res)
                    v += lf_get(res, c0 + c, t, n);
                lf_put(y, c0 + c, t, n, v);
            }
        }
    }
}

int LF_SYM(dropout)(lf_queue *q, const struct lf_k_dropout *a)
{
    lf_deal(q, lf_team(q, a->rows * a->c * 16), a->rows, lf_few_rows(a->c), dropout_piece, a);
    return LF_K_OK;
}
