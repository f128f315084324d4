/* SPDX-License-Identifier: Apache-2.0
 *
 * The bits of an f32 as an integer, and back. The functions compile for host and device.
 */
#ifndef LF_BASE_BITS_H
#define LF_BASE_BITS_H

#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define LF_BASE_INLINE static __host__ __device__ __forceinline__
#else
#define LF_BASE_INLINE static inline
#endif

LF_BASE_INLINE uint32_t lf_bits_of_f32(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

LF_BASE_INLINE float lf_f32_of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

#endif
