/* SPDX-License-Identifier: Apache-2.0
 *
 * binary16 of IEEE 754. Widening is exact. Narrowing rounds to nearest even; values from 65520 on
 * become infinity, and a NaN becomes a quiet NaN.
 */
#ifndef LF_BASE_F16_H
#define LF_BASE_F16_H

#include <math.h>

#include "engine/base/bits.h"

static inline float lf_f32_of_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023;
    if (e == 31)
        return lf_f32_of_bits(sign | 0x7f800000u | m << 13);
    if (e == 0) /* a multiple of 2^-24, 0 too */
        return lf_f32_of_bits(sign | lf_bits_of_f32((float)m * 0x1p-24f));
    return lf_f32_of_bits(sign | (e + 112) << 23 | m << 13);
}

static inline uint16_t lf_f16_of(float x)
{
    const uint32_t u = lf_bits_of_f32(x), sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) /* 65520 */
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) /* below 2^-14: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint32_t)lrintf(fabsf(x) * 16777216.0f));
    return (uint16_t)(sign | ((a + 0xfffu + (a >> 13 & 1u)) - 0x38000000u) >> 13);
}

#endif
