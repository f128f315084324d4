/* SPDX-License-Identifier: Apache-2.0
 *
 * Units of a matrix operand in registers: loading along k, storing, transposing blocks of LF_VL x
 * LF_VL, and multiplying. kernels/cpu/gemm_int.h says what a unit is.
 */
#ifndef LF_CPU_GEMM_UNITS_H
#define LF_CPU_GEMM_UNITS_H

#include "kernels/cpu/gemm_int.h"

LF_INLINE int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* a * b + c, where a and b are units (an f32, or a pair of bf16 each) and c is f32. */
LF_INLINE lf_v lf_unit_madd(const bool pair, lf_v a, lf_v b, lf_v c)
{
    return pair ? lf_v_dot(a, b, c) : lf_v_fma(a, b, c);
}

/* LF_VL consecutive units from element i of p. `left` elements may be read; the rest is 0. */
LF_INLINE lf_vu load_units(const enum lf_unit u, const void *p, int64_t i, int64_t left)
{
    if (u == LF_UNIT_F32)
        return (lf_vu)(left >= LF_VL ? lf_v_load((const float *)p + i)
                                     : lf_v_load_n((const float *)p + i, (int)left));
    if (u == LF_UNIT_BF16_AS_F32) {
        const uint16_t *q = (const uint16_t *)p + i;
        return (lf_vu)(left >= LF_VL ? lf_v_load_bf16(q) : lf_v_load_bf16_n(q, (int)left));
    }
    lf_vu v = {0};
    const uint16_t *q = (const uint16_t *)p + i;
#if LF_AVX512
    if (left >= 2 * LF_VL)
        memcpy(&v, q, sizeof v);
    else
        v = (lf_vu)_mm512_maskz_loadu_epi16((__mmask32)((1ull << left) - 1), q);
#else
    memcpy(&v, q, (size_t)min64(left, 2 * LF_VL) * 2);
#endif
    return v;
}

LF_INLINE void store_words(uint32_t *p, lf_vu v, int64_t room)
{
    if (room >= LF_VL)
        memcpy(p, &v, sizeof v);
    else
        lf_v_store_n((float *)p, (lf_v)v, (int)room);
}

/* Exchange lane j of r[i] with lane i of r[j]. */
LF_INLINE void transpose(lf_vu r[LF_VL])
{
#if LF_AVX512
    __m512i t[16], x[16];
#pragma GCC unroll 16
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32((__m512i)r[2 * i], (__m512i)r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32((__m512i)r[2 * i], (__m512i)r[2 * i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        x[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        x[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        x[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        x[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(x[i], x[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_i32x4(x[i], x[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_i32x4(x[8 + i], x[12 + i], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        r[i] = (lf_vu)_mm512_shuffle_i32x4(t[i], t[8 + i], 0x88);
        r[8 + i] = (lf_vu)_mm512_shuffle_i32x4(t[i], t[8 + i], 0xdd);
        r[4 + i] = (lf_vu)_mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0x88);
        r[12 + i] = (lf_vu)_mm512_shuffle_i32x4(t[4 + i], t[12 + i], 0xdd);
    }
#elif LF_AVX2
    __m256 t[8], x[8];
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_ps((__m256)r[2 * i], (__m256)r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps((__m256)r[2 * i], (__m256)r[2 * i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 2; i++) {
        x[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        x[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        x[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        x[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        r[i] = (lf_vu)_mm256_permute2f128_ps(x[i], x[4 + i], 0x20);
        r[4 + i] = (lf_vu)_mm256_permute2f128_ps(x[i], x[4 + i], 0x31);
    }
#else
    lf_v t[LF_VL];
    memcpy(t, r, sizeof t);
    lf_v_transpose(t);
    memcpy(r, t, sizeof t);
#endif
}

#endif
