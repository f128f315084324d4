/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit floats (Micikevicius et al. 2022, "FP8 formats for deep learning"). Widening is exact.
 * Narrowing rounds to nearest even and saturates: a value beyond the largest one, infinity
 * included, becomes the largest one. NaN stays NaN.
 *
 *           exponent  fraction  largest       smallest normal  step below it  infinity  NaN
 *     e4m3      4         3     448 (0x7e)    2^-6             2^-9           none      0x7f, 0xff
 *     e5m2      5         2     57344 (0x7b)  2^-14            2^-16          0x7c      0x7d..0x7f
 *
 * e8m0 (OCP Microscaling Formats, v1.0) is a scale and no number of a tensor: byte b is 2^(b -
 * 127), 255 is NaN.
 *
 * Kernels use the inline functions too.
 */
#ifndef LF_BASE_F8_H
#define LF_BASE_F8_H

#include "engine/base/bits.h"

LF_BASE_INLINE float lf_f32_of_e4m3(uint8_t b)
{
    const uint32_t sign = (uint32_t)(b & 0x80) << 24, e = b >> 3 & 15, m = b & 7;
    if ((b & 0x7f) == 0x7f)
        return lf_f32_of_bits(sign | 0x7fc00000u);
    if (e == 0)
        return lf_f32_of_bits(sign | lf_bits_of_f32((float)m * 0x1p-9f));
    return lf_f32_of_bits(sign | (e + 120) << 23 | m << 20);
}

LF_BASE_INLINE float lf_f32_of_e5m2(uint8_t b)
{
    const uint32_t sign = (uint32_t)(b & 0x80) << 24, e = b >> 2 & 31, m = b & 3;
    if (e == 31)
        return lf_f32_of_bits(sign | (m ? 0x7fc00000u : 0x7f800000u));
    if (e == 0)
        return lf_f32_of_bits(sign | lf_bits_of_f32((float)m * 0x1p-16f));
    return lf_f32_of_bits(sign | (e + 112) << 23 | m << 21);
}

LF_BASE_INLINE float lf_f32_of_e8m0(uint8_t b)
{
    return lf_f32_of_bits(b == 255 ? 0x7fc00000u : b ? (uint32_t)b << 23 : 0x00400000u);
}

/* The least power of two that is not below x, of a finite x > 0; where there is none, the largest
 * or the smallest one. */
LF_BASE_INLINE uint8_t lf_e8m0_up(float x)
{
    const uint32_t u = lf_bits_of_f32(x), e = u >> 23, more = (u & 0x7fffffu) != 0;
    if (e == 0) /* 2^-127 is 0x400000 */
        return u > 0x400000u;
    return (uint8_t)(e + more < 254 ? e + more : 254);
}

/* Below the smallest normal value, rounding is done by adding a power of two whose unit in the last
 * place is the step. Above it, rounding is done by adding half of the fraction's last place to the
 * bits; a carry goes into the exponent. */
LF_BASE_INLINE uint8_t lf_e4m3_of(float x)
{
    const uint32_t u = lf_bits_of_f32(x), sign = u >> 24 & 0x80, a = u & 0x7fffffffu;
    if (a >= 0x43e00000u) /* 448 */
        return (uint8_t)(sign | (a > 0x7f800000u ? 0x7f : 0x7e));
    if (a < 0x3c800000u) /* 2^-6 */
        return (uint8_t)(sign | (lf_bits_of_f32(lf_f32_of_bits(a) + 16384.0f) - 0x46800000u));
    return (uint8_t)(sign | (((a + 0x7ffffu + (a >> 20 & 1)) >> 20) - (120 << 3)));
}

LF_BASE_INLINE uint8_t lf_e5m2_of(float x)
{
    const uint32_t u = lf_bits_of_f32(x), sign = u >> 24 & 0x80, a = u & 0x7fffffffu;
    if (a >= 0x47600000u) /* 57344 */
        return (uint8_t)(sign | (a > 0x7f800000u ? 0x7f : 0x7b));
    if (a < 0x38800000u) /* 2^-14 */
        return (uint8_t)(sign | (lf_bits_of_f32(lf_f32_of_bits(a) + 128.0f) - 0x43000000u));
    return (uint8_t)(sign | (((a + 0xfffffu + (a >> 21 & 1)) >> 21) - (112 << 2)));
}

#endif
