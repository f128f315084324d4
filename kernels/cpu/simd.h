/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of the instruction set that this file is compiled for. lf_v is LF_VL floats (plain and
 * NEON 4, AVX2 8, AVX-512 16, SVE as its name says); lf_vi and lf_vu are LF_VL 32-bit integers.
 * Plain arithmetic and comparison use C operators on them. A comparison gives an lf_vi of 0 or -1.
 * Rules:
 *   - Conversions to bf16 round to nearest even and keep subnormals; NaN stays NaN. The bits are
 *     the same on every instruction set.
 *   - lf_v_fma rounds twice on plain, once on all others. That is part of what a kernel family is.
 *   - A function gives the same result in each lane position and in masked tails.
 *   - The *_n forms are for tails. They touch exactly n elements (0 <= n <= LF_VL). Lanes beyond n
 *     load as 0.
 *   - lf_v_hsum adds halves: lane i with lane i + VL/2, and so on down to one lane.
 * Accuracy (largest error in tests/op/simd_test.c): exp, tanh, erf 2 ulp.
 */
#ifndef LF_CPU_SIMD_H
#define LF_CPU_SIMD_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/cpu/isa.h"

#if LF_AVX2
#include <immintrin.h>
#elif LF_NEON
#include <arm_neon.h>
#elif LF_SVE
#include <arm_sve.h>
#if __ARM_FEATURE_SVE_BITS != 32 * LF_VL
#error "code for SVE is compiled for the vector length in its name: -msve-vector-bits"
#endif
#endif

#define LF_INLINE static inline __attribute__((always_inline, unused))

typedef float lf_v __attribute__((vector_size(4 * LF_VL)));
typedef int32_t lf_vi __attribute__((vector_size(4 * LF_VL)));
typedef uint32_t lf_vu __attribute__((vector_size(4 * LF_VL)));
#if LF_SVE
typedef lf_vu lf_vh; /* bf16 in the low halves */
#else
typedef uint16_t lf_vh __attribute__((vector_size(2 * LF_VL)));
#endif

/* ---- scalars ---- */

LF_INLINE float lf_bf16_to_f32(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

LF_INLINE uint16_t lf_f32_to_bf16(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* ---- basics ---- */

LF_INLINE lf_v lf_v_zero(void)
{
    return (lf_v){0};
}

LF_INLINE lf_v lf_v_set1(float x)
{
#if LF_AVX512
    return (lf_v)_mm512_set1_ps(x);
#elif LF_AVX2
    return (lf_v)_mm256_set1_ps(x);
#elif LF_SVE
    return (lf_v)svdup_f32(x);
#else
    return (lf_v){x, x, x, x};
#endif
}

LF_INLINE lf_vi lf_vi_set1(int32_t x)
{
#if LF_AVX512
    return (lf_vi)_mm512_set1_epi32(x);
#elif LF_AVX2
    return (lf_vi)_mm256_set1_epi32(x);
#elif LF_SVE
    return (lf_vi)svdup_s32(x);
#else
    return (lf_vi){x, x, x, x};
#endif
}

/* 0, 1, 2, ... */
LF_INLINE lf_vi lf_vi_iota(void)
{
#if LF_VL == 16
    return (lf_vi){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif LF_VL == 8
    return (lf_vi){0, 1, 2, 3, 4, 5, 6, 7};
#else
    return (lf_vi){0, 1, 2, 3};
#endif
}

LF_INLINE lf_v lf_v_fma(lf_v a, lf_v b, lf_v c) /* a * b + c */
{
#if LF_AVX512
    return (lf_v)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif LF_AVX2
    return (lf_v)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif LF_SVE
    return (lf_v)svmla_f32_x(svptrue_b32(), c, a, b);
#elif LF_NEON
    return (lf_v)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
    return a * b + c;
#endif
}

/* c + the two products of each lane, a pair of bf16 in a and b. A kernel family has its rounding:
 * x86 adds one product after the other, to nearest; ARM adds the sum of both, both sums to odd.
 * Both flush subnormals. Only with LF_BF16_DOT; else it is not called. */
LF_INLINE lf_v lf_v_dot(lf_v a, lf_v b, lf_v c)
{
#if LF_AVX512 && LF_BF16_DOT
    return (lf_v)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
#elif LF_SVE && LF_BF16_DOT
    return (lf_v)svbfdot_f32(c, svreinterpret_bf16_f32(a), svreinterpret_bf16_f32(b));
#elif LF_BF16_DOT
    return (lf_v)vbfdotq_f32((float32x4_t)c, (bfloat16x8_t)a, (bfloat16x8_t)b);
#else
    (void)a, (void)b;
    return c;
#endif
}

/* Lanes of mask are 0 or -1 (the result of a comparison). */
LF_INLINE lf_v lf_v_select(lf_vi mask, lf_v yes, lf_v no)
{
    return (lf_v)(((lf_vi)yes & mask) | ((lf_vi)no & ~mask));
}
LF_INLINE lf_vi lf_vi_select(lf_vi mask, lf_vi yes, lf_vi no)
{
    return (yes & mask) | (no & ~mask);
}

/* a > b ? a : b. The result is b when either is NaN (as maxps does). */
LF_INLINE lf_v lf_v_max(lf_v a, lf_v b)
{
#if LF_AVX512
    return (lf_v)_mm512_max_ps((__m512)a, (__m512)b);
#elif LF_AVX2
    return (lf_v)_mm256_max_ps((__m256)a, (__m256)b);
#else
    return lf_v_select(a > b, a, b);
#endif
}

/* Lane l of the result is lane idx[l] of a followed by b. clang's shuffle needs an index that is a
 * constant before unrolling; the index here becomes one only after it. So clang gets the plain
 * form. */
LF_INLINE lf_v lf_v_pick(lf_v a, lf_v b, lf_vi idx)
{
#ifdef __clang__
    lf_v out = a;
    for (int l = 0; l < LF_VL; l++)
        out[l] = idx[l] < LF_VL ? a[idx[l]] : b[idx[l] - LF_VL];
    return out;
#else
    return __builtin_shuffle(a, b, idx);
#endif
}

/* a < b ? a : b. The result is b when either is NaN. */
LF_INLINE lf_v lf_v_min(lf_v a, lf_v b)
{
#if LF_AVX512
    return (lf_v)_mm512_min_ps((__m512)a, (__m512)b);
#elif LF_AVX2
    return (lf_v)_mm256_min_ps((__m256)a, (__m256)b);
#else
    return lf_v_select(a < b, a, b);
#endif
}

LF_INLINE lf_v lf_v_sqrt(lf_v a)
{
#if LF_AVX512
    return (lf_v)_mm512_sqrt_ps((__m512)a);
#elif LF_AVX2
    return (lf_v)_mm256_sqrt_ps((__m256)a);
#elif LF_SVE
    return (lf_v)svsqrt_f32_x(svptrue_b32(), a);
#elif LF_NEON
    return (lf_v)vsqrtq_f32((float32x4_t)a);
#else
    return (lf_v){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])};
#endif
}

LF_INLINE lf_v lf_v_abs(lf_v a)
{
    return (lf_v)((lf_vi)a & lf_vi_set1(0x7fffffff));
}
LF_INLINE lf_v lf_v_copysign(lf_v mag, lf_v sign)
{
    return (lf_v)(((lf_vi)mag & lf_vi_set1(0x7fffffff)) | ((lf_vi)sign & lf_vi_set1(INT32_MIN)));
}
LF_INLINE lf_v lf_v_from_int(lf_vi a)
{
    return __builtin_convertvector(a, lf_v);
}

/* ---- loads and stores, f32 ---- */

LF_INLINE lf_v lf_v_load(const float *p)
{
    lf_v v;
    memcpy(&v, p, sizeof v);
    return v;
}

LF_INLINE void lf_v_store(float *p, lf_v v)
{
    memcpy(p, &v, sizeof v);
}

LF_INLINE lf_v lf_v_load_n(const float *p, int n)
{
#if LF_AVX512
    return (lf_v)_mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
#elif LF_AVX2
    return (lf_v)_mm256_maskload_ps(p, (__m256i)(lf_vi_iota() < lf_vi_set1(n)));
#elif LF_SVE
    return (lf_v)svld1_f32(svwhilelt_b32_s32(0, n), p);
#else
    lf_v v = {0};
    memcpy(&v, p, (size_t)n * sizeof *p);
    return v;
#endif
}

LF_INLINE void lf_v_store_n(float *p, lf_v v, int n)
{
#if LF_AVX512
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), (__m512)v);
#elif LF_AVX2
    _mm256_maskstore_ps(p, (__m256i)(lf_vi_iota() < lf_vi_set1(n)), (__m256)v);
#elif LF_SVE
    svst1_f32(svwhilelt_b32_s32(0, n), p, v);
#else
    memcpy(p, &v, (size_t)n * sizeof *p);
#endif
}

/* ---- loads and stores, bf16 ---- */

LF_INLINE lf_v lf_v_from_bf16(lf_vh h)
{
#if LF_AVX512
    return (lf_v)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#elif LF_AVX2
    return (lf_v)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16);
#elif LF_SVE
    return (lf_v)(h << 16);
#else
    return (lf_v)(__builtin_convertvector(h, lf_vu) << 16);
#endif
}

LF_INLINE lf_vh lf_v_to_bf16(lf_v v)
{
    lf_vu u = (lf_vu)v;
    lf_vu r = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
#if LF_AVX512
    __mmask16 nan = _mm512_cmp_ps_mask((__m512)v, (__m512)v, _CMP_UNORD_Q);
    __m512i quiet = _mm512_or_si512((__m512i)(u >> 16), _mm512_set1_epi32(0x40));
    return (lf_vh)_mm512_cvtepi32_epi16(_mm512_mask_mov_epi32((__m512i)r, nan, quiet));
#else
    lf_vi nan = v != v;
    r = (lf_vu)lf_vi_select(nan, (lf_vi)((u >> 16) | 0x40u), (lf_vi)r);
#if LF_AVX2
    __m256i two = _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)r, (__m256i)r), 0xd8);
    return (lf_vh)_mm256_castsi256_si128(two);
#elif LF_SVE
    return r;
#else
    return __builtin_convertvector(r, lf_vh);
#endif
#endif
}

LF_INLINE lf_v lf_v_load_bf16(const uint16_t *p)
{
#if LF_SVE
    lf_vh h = (lf_vh)svld1uh_u32(svptrue_b32(), p);
#else
    lf_vh h;
    memcpy(&h, p, sizeof h);
#endif
    return lf_v_from_bf16(h);
}

LF_INLINE void lf_v_store_bf16(uint16_t *p, lf_v v)
{
    lf_vh h = lf_v_to_bf16(v);
#if LF_SVE
    svst1h_u32(svptrue_b32(), p, h);
#else
    memcpy(p, &h, sizeof h);
#endif
}

LF_INLINE lf_v lf_v_load_bf16_n(const uint16_t *p, int n)
{
#if LF_AVX512
    return lf_v_from_bf16((lf_vh)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1u), p));
#elif LF_SVE
    return lf_v_from_bf16((lf_vh)svld1uh_u32(svwhilelt_b32_s32(0, n), p));
#else
    lf_vh h = {0};
    memcpy(&h, p, (size_t)n * sizeof *p);
    return lf_v_from_bf16(h);
#endif
}

LF_INLINE void lf_v_store_bf16_n(uint16_t *p, lf_v v, int n)
{
    lf_vh h = lf_v_to_bf16(v);
#if LF_AVX512
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1u), (__m256i)h);
#elif LF_SVE
    svst1h_u32(svwhilelt_b32_s32(0, n), p, h);
#else
    memcpy(p, &h, (size_t)n * sizeof *p);
#endif
}

/* lf_v_store_bf16 for factors of lf_v_dot, which flushes subnormals: so may this. */
LF_INLINE void lf_v_store_factors(uint16_t *p, lf_v v)
{
#if LF_AVX512 && LF_BF16_DOT
    __m256i h = (__m256i)_mm512_cvtneps_pbh((__m512)v);
    memcpy(p, &h, sizeof h);
#else
    lf_v_store_bf16(p, v);
#endif
}

/* ---- by type: element i of an f32 or bf16 array. In hot loops `bf16` should be a constant after
 * inlining. ---- */

LF_INLINE lf_v lf_vt_load(const void *p, int64_t i, int bf16)
{
    return bf16 ? lf_v_load_bf16((const uint16_t *)p + i) : lf_v_load((const float *)p + i);
}
LF_INLINE lf_v lf_vt_load_n(const void *p, int64_t i, int bf16, int n)
{
    return bf16 ? lf_v_load_bf16_n((const uint16_t *)p + i, n)
                : lf_v_load_n((const float *)p + i, n);
}
LF_INLINE void lf_vt_store(void *p, int64_t i, int bf16, lf_v v)
{
    if (bf16)
        lf_v_store_bf16((uint16_t *)p + i, v);
    else
        lf_v_store((float *)p + i, v);
}
LF_INLINE void lf_vt_store_n(void *p, int64_t i, int bf16, lf_v v, int n)
{
    if (bf16)
        lf_v_store_bf16_n((uint16_t *)p + i, v, n);
    else
        lf_v_store_n((float *)p + i, v, n);
}
LF_INLINE float lf_st_load(const void *p, int64_t i, int bf16)
{
    return bf16 ? lf_bf16_to_f32(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}
LF_INLINE void lf_st_store(void *p, int64_t i, int bf16, float f)
{
    if (bf16)
        ((uint16_t *)p)[i] = lf_f32_to_bf16(f);
    else
        ((float *)p)[i] = f;
}
/* Rounded to bf16 and back, or unchanged: the value that storing and loading again would give. */
LF_INLINE lf_v lf_vt_round(lf_v v, int bf16)
{
    return bf16 ? lf_v_from_bf16(lf_v_to_bf16(v)) : v;
}

/* ---- horizontal ---- */

#if LF_AVX2
/* The last three halvings, and the first one where there are 16 lanes. */
#define LF_HALVES(op)                                                                              \
    __m128 x = op(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));                         \
    x = op(x, _mm_movehl_ps(x, x));                                                                \
    return _mm_cvtss_f32(op(x, _mm_shuffle_ps(x, x, 1)));
#endif

LF_INLINE float lf_v_hsum(lf_v v)
{
#if LF_AVX512
    __m256 y =
        _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
    LF_HALVES(_mm_add_ps)
#elif LF_AVX2
    __m256 y = (__m256)v;
    LF_HALVES(_mm_add_ps)
#else
#pragma GCC unroll 4
    for (int s = LF_VL / 2; s > 0; s /= 2)
        v += lf_v_pick(v, v, lf_vi_iota() + lf_vi_set1(s));
    return v[0];
#endif
}

LF_INLINE float lf_v_hmax(lf_v v)
{
#if LF_AVX512
    __m256 y =
        _mm256_max_ps(_mm512_castps512_ps256((__m512)v), _mm512_extractf32x8_ps((__m512)v, 1));
    LF_HALVES(_mm_max_ps)
#elif LF_AVX2
    __m256 y = (__m256)v;
    LF_HALVES(_mm_max_ps)
#else
#pragma GCC unroll 4
    for (int s = LF_VL / 2; s > 0; s /= 2)
        v = lf_v_max(v, lf_v_pick(v, v, lf_vi_iota() + lf_vi_set1(s)));
    return v[0];
#endif
}

/* Exchanges lane j of r[i] with lane i of r[j]: at each step blocks of s x s change places across
 * the diagonal. */
LF_INLINE void lf_v_transpose(lf_v r[LF_VL])
{
    const lf_vi lane = lf_vi_iota();
#pragma GCC unroll 4
    for (int s = LF_VL / 2; s > 0; s /= 2) {
        const lf_vi up = (lane & lf_vi_set1(s)) != lf_vi_set1(0);
        const lf_vi low = lf_vi_select(up, lane + lf_vi_set1(LF_VL - s), lane);
        const lf_vi high = lf_vi_select(up, lane + lf_vi_set1(LF_VL), lane + lf_vi_set1(s));
#pragma GCC unroll 16
        for (int i = 0; i < LF_VL; i++) {
            if (i & s)
                continue;
            lf_v a = r[i], b = r[i + s];
            r[i] = lf_v_pick(a, b, low);
            r[i + s] = lf_v_pick(a, b, high);
        }
    }
}

/* ---- functions ---- */

/* e^x: x = n ln2 + r; a polynomial gives e^r. Multiplying by 2^n in two steps keeps subnormal
 * results right. */
LF_INLINE lf_v lf_v_exp(lf_v x)
{
    /* 1.5 * 2^23: adding it leaves the integer part in the low bits */
    const lf_v magic = lf_v_set1(12582912.0f);
    x = lf_v_max(lf_v_set1(-104.0f), lf_v_min(lf_v_set1(89.0f), x));
    lf_v t = lf_v_fma(x, lf_v_set1(1.44269504f), magic);
    lf_v n = t - magic;
    /* the high part of ln2 has 15 bits, so n times it is exact */
    lf_v r = lf_v_fma(n, lf_v_set1(-0.693145752f), x);
    r = lf_v_fma(n, lf_v_set1(-1.42860682e-6f), r);
    lf_v p = lf_v_set1(1.38131e-3f);
    p = lf_v_fma(p, r, lf_v_set1(8.36942e-3f));
    p = lf_v_fma(p, r, lf_v_set1(4.166846e-2f));
    p = lf_v_fma(p, r, lf_v_set1(0.16666515f));
    p = lf_v_fma(p, r, lf_v_set1(0.49999993f));
    p = lf_v_fma(p * r, r, r) + lf_v_set1(1.0f);
#if LF_AVX512
    /* p 2^n rounded once, with the bits of the two steps below */
    return (lf_v)_mm512_scalef_ps((__m512)p, (__m512)n);
#else
    lf_vi ni = (lf_vi)t - (lf_vi)magic, n1 = ni >> 1, n2 = ni - n1;
    return p * (lf_v)((n1 + 127) << 23) * (lf_v)((n2 + 127) << 23);
#endif
}

/* Below 0.64 it is an odd polynomial, above 1 - 2 / (e^2|x| + 1). */
LF_INLINE lf_v lf_v_tanh(lf_v x)
{
    lf_v a = lf_v_abs(x), s = x * x;
    lf_v p = lf_v_set1(-5.60390547e-3f);
    p = lf_v_fma(p, s, lf_v_set1(2.05517107e-2f));
    p = lf_v_fma(p, s, lf_v_set1(-5.37141042e-2f));
    p = lf_v_fma(p, s, lf_v_set1(0.133311528f));
    p = lf_v_fma(p, s, lf_v_set1(-0.333332721f));
    p = lf_v_fma(p * s, a, a);
    lf_v big = lf_v_set1(1.0f) - lf_v_set1(2.0f) / (lf_v_exp(a + a) + lf_v_set1(1.0f));
    return lf_v_copysign(lf_v_select(a < lf_v_set1(0.64f), p, big), x);
}

/* Below 0.93 it is an odd polynomial, above 1 - e^(-t q(t)) with t q(t) = -ln erfc(t). From 4 on, t
 * is 4. */
LF_INLINE lf_v lf_v_erf(lf_v x)
{
    lf_v a = lf_v_abs(x), s = x * x;
    lf_v p = lf_v_set1(-5.88677357e-4f);
    p = lf_v_fma(p, s, lf_v_set1(4.97311668e-3f));
    p = lf_v_fma(p, s, lf_v_set1(-2.67533344e-2f));
    p = lf_v_fma(p, s, lf_v_set1(0.112814665f));
    p = lf_v_fma(p, s, lf_v_set1(-0.376124627f));
    p = lf_v_fma(p, s, lf_v_set1(0.128379145f));
    p = lf_v_fma(p, a, a);
    lf_v t = lf_v_min(lf_v_set1(4.0f), a);
    lf_v q = lf_v_set1(1.04331144e-5f);
    q = lf_v_fma(q, t, lf_v_set1(-3.14858114e-4f));
    q = lf_v_fma(q, t, lf_v_set1(3.61034195e-3f));
    q = lf_v_fma(q, t, lf_v_set1(-2.36945659e-2f));
    q = lf_v_fma(q, t, lf_v_set1(0.106159049f));
    q = lf_v_fma(q, t, lf_v_set1(0.635198034f));
    q = lf_v_fma(q, t, lf_v_set1(1.12863708f));
    lf_v big = lf_v_set1(1.0f) - lf_v_exp(-q * t);
    return lf_v_copysign(lf_v_select(a < lf_v_set1(0.93f), p, big), x);
}

/* 1 / (1 + e^-x) */
LF_INLINE lf_v lf_v_sigmoid(lf_v x)
{
    return lf_v_set1(1.0f) / (lf_v_set1(1.0f) + lf_v_exp(-x));
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + e), e = e^-|x|, and ln(1 + e) = 2 atanh(z), z = e / (2 + e) <=
 * 1/3. Eight terms of the series leave less than 2e-9 of it. */
LF_INLINE lf_v lf_v_softplus(lf_v x)
{
    static const float term[] = {1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7,
                                 1.0f / 5,  1.0f / 3,  1.0f};
    const lf_v e = lf_v_exp(-lf_v_abs(x)), z = e / (lf_v_set1(2.0f) + e), y = z * z;
    lf_v p = lf_v_set1(1.0f / 15);
    for (size_t i = 0; i < sizeof term / sizeof *term; i++)
        p = lf_v_fma(p, y, lf_v_set1(term[i]));
    return lf_v_fma(z + z, p, lf_v_max(x, lf_v_zero()));
}

#endif
