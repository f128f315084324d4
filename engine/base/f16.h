/* SPDX-License-Identifier: Apache-2.0
 *
 * binary16 (IEEE 754): widening is exact, narrowing rounds to nearest even, overflows to infinity from 65520 on and keeps NaN quiet.
 */
#ifndef LF_BASE_F16_H
#define LF_BASE_F16_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline float lf_f32_of_f16(uint16_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const float v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf((float)(1024 + m), e - 25) : ldexpf((float)m, -24);
    return h & 0x8000 ? -v : v;
}

static inline uint16_t lf_f16_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    const uint32_t sign = u >> 16 & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) /* 65520 */
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) /* below 2^-14: a multiple of 2^-24 */
        return (uint16_t)(sign | (uint32_t)lrintf(fabsf(x) * 16777216.0f));
    return (uint16_t)(sign | ((a + 0xfffu + (a >> 13 & 1u)) - 0x38000000u) >> 13);
}

#endif
