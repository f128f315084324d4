/* SPDX-License-Identifier: Apache-2.0
 *
 * Activation functions and their derivatives on the device (enum lf_act of kernels.h).
 */
#ifndef LF_KERNELS_CUDA_ACT_H
#define LF_KERNELS_CUDA_ACT_H

#include "kernels/cuda/dev.h"

LF_DEV float lf_sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* ln(1 + e^x) */
LF_DEV float lf_softplus(float x)
{
    return fmaxf(x, 0.0f) + log1pf(expf(-fabsf(x)));
}

/* Phi(x). erfc stays accurate (relatively) where x is far below zero. */
LF_DEV float lf_gauss_cdf(float x)
{
    return 0.5f * erfcf(-0.7071067811865476f * x);
}

/* 0.5 (1 + tanh(u)) as sigmoid(2 u), which stays accurate where u is far below zero. u = sqrt(2 /
 * pi) (x + 0.044715 x^3). */
LF_DEV float lf_gelu_gate(float x)
{
    return lf_sigmoid(2.0f * 0.7978845608028654f * x * fmaf(x * x, 0.044715f, 1.0f));
}

LF_DEV float lf_act(int act, float x)
{
    switch (act) {
    case LF_ACT_GELU:
        return x * lf_gauss_cdf(x);
    case LF_ACT_GELU_TANH:
        return x * lf_gelu_gate(x);
    case LF_ACT_GELU_QUICK:
        return x * lf_sigmoid(1.702f * x);
    case LF_ACT_SILU:
        return x * lf_sigmoid(x);
    case LF_ACT_RELU:
        return x < 0.0f ? 0.0f : x; /* NaN stays NaN */
    case LF_ACT_SIGMOID:
        return lf_sigmoid(x);
    case LF_ACT_TANH:
        return tanhf(x);
    default:
        return x;
    }
}

/* Returns act'(x). *value becomes act(x), which shares the exponential. */
LF_DEV float lf_act_slope(int act, float x, float *value)
{
    float s;
    switch (act) {
    case LF_ACT_GELU:
        s = lf_gauss_cdf(x);
        *value = x * s;
        return fmaf(x, 0.3989422804014327f * expf(-0.5f * x * x), s);
    case LF_ACT_GELU_TANH:
        s = lf_gelu_gate(x);
        *value = x * s;
        return fmaf(x * s * (1.0f - s),
                    2.0f * 0.7978845608028654f * fmaf(x * x, 3.0f * 0.044715f, 1.0f), s);
    case LF_ACT_GELU_QUICK:
        s = lf_sigmoid(1.702f * x);
        *value = x * s;
        return fmaf(1.702f * x * s, 1.0f - s, s);
    case LF_ACT_SILU:
        s = lf_sigmoid(x);
        *value = x * s;
        return fmaf(x * s, 1.0f - s, s);
    case LF_ACT_RELU:
        *value = x < 0.0f ? 0.0f : x;
        return x > 0.0f ? 1.0f : 0.0f;
    case LF_ACT_SIGMOID:
        s = lf_sigmoid(x);
        *value = s;
        return s * (1.0f - s);
    case LF_ACT_TANH:
        s = tanhf(x);
        *value = s;
        return (1.0f - s) * (1.0f + s);
    default:
        *value = x;
        return 1.0f;
    }
}

/* One branch for eight elements. In CALL(act) act is a constant. */
#define LF_ACT_CASES(act, CALL)                                                                    \
    switch (act) {                                                                                 \
    case LF_ACT_GELU:                                                                              \
        CALL(LF_ACT_GELU);                                                                         \
        break;                                                                                     \
    case LF_ACT_GELU_TANH:                                                                         \
        CALL(LF_ACT_GELU_TANH);                                                                    \
        break;                                                                                     \
    case LF_ACT_GELU_QUICK:                                                                        \
        CALL(LF_ACT_GELU_QUICK);                                                                   \
        break;                                                                                     \
    case LF_ACT_SILU:                                                                              \
        CALL(LF_ACT_SILU);                                                                         \
        break;                                                                                     \
    case LF_ACT_RELU:                                                                              \
        CALL(LF_ACT_RELU);                                                                         \
        break;                                                                                     \
    case LF_ACT_SIGMOID:                                                                           \
        CALL(LF_ACT_SIGMOID);                                                                      \
        break;                                                                                     \
    case LF_ACT_TANH:                                                                              \
        CALL(LF_ACT_TANH);                                                                         \
        break;                                                                                     \
    default:                                                                                       \
        CALL(LF_ACT_NONE);                                                                         \
        break;                                                                                     \
    }

/* y[j] = act(x[j]); y may be x. */
LF_DEV void lf_act8(float y[8], const float x[8], int act)
{
#define LF_ACT8(k) LF_UNROLL for (int j = 0; j < 8; j++) y[j] = lf_act(k, x[j])
    LF_ACT_CASES(act, LF_ACT8)
#undef LF_ACT8
}

/* value[j] = act(x[j]), slope[j] = act'(x[j]) */
LF_DEV void lf_act_slope8(float value[8], float slope[8], const float x[8], int act)
{
#define LF_ACT8(k) LF_UNROLL for (int j = 0; j < 8; j++) slope[j] = lf_act_slope(k, x[j], &value[j])
    LF_ACT_CASES(act, LF_ACT8)
#undef LF_ACT8
}

#endif
