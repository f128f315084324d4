/* SPDX-License-Identifier: Apache-2.0
 *
 * What the memory-bound kernels share on top of simd.h: loads and stores by storage type, the
 * activation functions and their derivatives, and the split of work over threads. Every operation
 * treats each lane by itself. So a value never depends on the place of its element in a vector, a
 * row or a thread's range.
 */
#ifndef LF_KERNELS_CPU_OPS_H
#define LF_KERNELS_CPU_OPS_H

#include <string.h>

#include "kernels/cpu/cpu.h"
#include "kernels/cpu/simd.h"

/* Storage types of the row-wise kernels. */
LF_INLINE bool lf_is_float(uint8_t t)
{
    return t == LF_F32 || t == LF_BF16;
}

/* Up to LF_VL elements from p + i; lanes >= n are 0. n == LF_VL is the common, unmasked case. */
LF_INLINE lf_v lf_get(const void *p, int64_t i, uint8_t t, int64_t n)
{
    if (t == LF_BF16) {
        const uint16_t *s = (const uint16_t *)p + i;
        return n >= LF_VL ? lf_v_load_bf16(s) : lf_v_load_bf16_n(s, (int)n);
    }
    const float *s = (const float *)p + i;
    return n >= LF_VL ? lf_v_load(s) : lf_v_load_n(s, (int)n);
}

LF_INLINE void lf_put(void *p, int64_t i, uint8_t t, int64_t n, lf_v v)
{
    if (t == LF_BF16) {
        uint16_t *d = (uint16_t *)p + i;
        if (n >= LF_VL)
            lf_v_store_bf16(d, v);
        else
            lf_v_store_bf16_n(d, v, (int)n);
        return;
    }
    float *d = (float *)p + i;
    if (n >= LF_VL)
        lf_v_store(d, v);
    else
        lf_v_store_n(d, v, (int)n);
}

/* The value after it was stored as type t and loaded again. */
LF_INLINE lf_v lf_round_to(lf_v v, uint8_t t)
{
    return t == LF_BF16 ? lf_vt_round(v, 1) : v;
}

/* Address of element i. Kernels take void pointers because the type is known at run time only. */
LF_INLINE const void *lf_at(const void *p, int64_t i, uint8_t t)
{
    return (const char *)p + i * (int64_t)lf_dtype_size((enum lf_dtype)t);
}
LF_INLINE void *lf_at_w(void *p, int64_t i, uint8_t t)
{
    return (char *)p + i * (int64_t)lf_dtype_size((enum lf_dtype)t);
}

/* For every vector of a row of length len: its start c and its valid lanes n. */
#define LF_EACH_VEC(c, n, len)                                                                     \
    for (int64_t c = 0, n = (len) < LF_VL ? (len) : LF_VL; c < (len);                              \
         c += LF_VL, n = (len)-c < LF_VL ? (len)-c : LF_VL)

/* The work function of kernels that need no workspace. */
#define LF_NO_WORK(name)                                                                           \
    size_t LF_SYM(name##_work)(const struct lf_k_##name *a, int threads)                           \
    {                                                                                              \
        (void)a;                                                                                   \
        (void)threads;                                                                             \
        return 0;                                                                                  \
    }

/* The number of threads that is worth waking for that many bytes of traffic. Results do not depend
 * on it. */
LF_INLINE int lf_team(const lf_queue *q, int64_t bytes)
{
    int t = lf_cpu_queue_threads(q);
    int64_t most = 1 + bytes / 65536;
    return most < t ? (int)most : t;
}

/* Items of a piece where the pieces of a thread are better few: about four for each, multiples of
 * grain. */
LF_INLINE int64_t lf_share(int64_t n, int64_t grain, int threads)
{
    const int64_t share = (n + 4 * threads - 1) / (4 * threads);
    return share <= grain ? grain : (share + grain - 1) / grain * grain;
}

/* Pieces [lo, hi) of [first, last), each of at most `most`, with a border of tasks before each. */
#define LF_EACH_PIECE(q, lo, hi, first, last, most)                                                \
    for (int64_t lo = (first), hi = 0; lo < (last) && (hi = lf_piece(q, lo, last, most)) > lo;     \
         lo = hi)

LF_INLINE int64_t lf_piece(const lf_queue *q, int64_t lo, int64_t last, int64_t most)
{
    lf_border(q);
    return last - lo < most ? last : lo + most;
}

/* Rows of c elements that take some tens of microseconds. */
LF_INLINE int64_t lf_few_rows(int64_t c)
{
    return 1 + 32768 / c;
}

/* ---- activations ---- */

#define LF_GELU_K       0.7978845608028654f /* sqrt(2 / pi) */
#define LF_GELU_C       0.044715f
#define LF_INV_SQRT2    0.7071067811865476f
#define LF_INV_SQRT_2PI 0.3989422804014327f

/* 0.5 (1 + tanh(u)) is sigmoid(2u), which stays accurate (relatively) for large negative u. */
LF_INLINE lf_v lf_gelu_tanh_gate(lf_v x)
{
    lf_v u = x * lf_v_set1(LF_GELU_K) * lf_v_fma(x * x, lf_v_set1(LF_GELU_C), lf_v_set1(1.0f));
    return lf_v_sigmoid(u + u);
}

LF_INLINE lf_v lf_act_f(uint8_t act, lf_v x)
{
    switch (act) {
    case LF_ACT_GELU:
        return lf_v_set1(0.5f) * x * (lf_v_set1(1.0f) + lf_v_erf(x * lf_v_set1(LF_INV_SQRT2)));
    case LF_ACT_GELU_TANH:
        return x * lf_gelu_tanh_gate(x);
    case LF_ACT_GELU_QUICK:
        return x * lf_v_sigmoid(x * lf_v_set1(1.702f));
    case LF_ACT_SILU:
        return x * lf_v_sigmoid(x);
    case LF_ACT_RELU:
        return lf_v_select(x < lf_v_set1(0.0f), lf_v_set1(0.0f), x);
    case LF_ACT_SIGMOID:
        return lf_v_sigmoid(x);
    case LF_ACT_TANH:
        return lf_v_tanh(x);
    default:
        return x;
    }
}

/* Value and derivative together, because they share the exponential. */
LF_INLINE lf_v lf_act_df(uint8_t act, lf_v x, lf_v *value)
{
    const lf_v one = lf_v_set1(1.0f);
    lf_v s;
    switch (act) {
    case LF_ACT_GELU: {
        lf_v phi = lf_v_exp(lf_v_set1(-0.5f) * x * x) * lf_v_set1(LF_INV_SQRT_2PI);
        s = lf_v_set1(0.5f) * (one + lf_v_erf(x * lf_v_set1(LF_INV_SQRT2)));
        *value = x * s;
        return lf_v_fma(x, phi, s);
    }
    case LF_ACT_GELU_TANH: {
        /* y = x s(2u), y' = s + x s (1 - s) 2u' */
        lf_v du = lf_v_set1(2.0f * LF_GELU_K) * lf_v_fma(x * x, lf_v_set1(3.0f * LF_GELU_C), one);
        s = lf_gelu_tanh_gate(x);
        *value = x * s;
        return lf_v_fma(x * s * (one - s), du, s);
    }
    case LF_ACT_GELU_QUICK:
        s = lf_v_sigmoid(x * lf_v_set1(1.702f));
        *value = x * s;
        return lf_v_fma(lf_v_set1(1.702f) * x * s, one - s, s);
    case LF_ACT_SILU:
        s = lf_v_sigmoid(x);
        *value = x * s;
        return lf_v_fma(x * s, one - s, s);
    case LF_ACT_RELU:
        *value = lf_v_select(x < lf_v_set1(0.0f), lf_v_set1(0.0f), x);
        return lf_v_select(x > lf_v_set1(0.0f), one, lf_v_set1(0.0f));
    case LF_ACT_SIGMOID:
        s = lf_v_sigmoid(x);
        *value = s;
        return s * (one - s);
    case LF_ACT_TANH:
        s = lf_v_tanh(x);
        *value = s;
        return (one - s) * (one + s);
    default:
        *value = x;
        return one;
    }
}

#endif
