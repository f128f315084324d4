/* SPDX-License-Identifier: Apache-2.0
 *
 * bf16 is the upper half of an f32. Widening is exact. Narrowing rounds to nearest even; a NaN
 * becomes a quiet NaN.
 */
#ifndef LF_BASE_BF16_H
#define LF_BASE_BF16_H

#include "engine/base/bits.h"

static inline uint16_t lf_bf16_of(float x)
{
    const uint32_t u = lf_bits_of_f32(x);
    /* quiet NaN */
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

static inline float lf_f32_of_bf16(uint16_t h)
{
    return lf_f32_of_bits((uint32_t)h << 16);
}

#endif
