/* SPDX-License-Identifier: Apache-2.0
 *
 * Philox (engine/base/rng.h) for many counters at a time. The words are those of lf_philox;
 * tests/op compares them.
 */
#ifndef LF_KERNELS_CPU_PHILOX_H
#define LF_KERNELS_CPU_PHILOX_H

#include "kernels/cpu/simd.h"

/* The high and low halves of the 64-bit products v * k. */
LF_INLINE void mul_hi_lo(lf_vu v, uint32_t k, lf_vu *hi, lf_vu *lo)
{
#if LF_AVX512
    const __m512i m = _mm512_set1_epi64((int64_t)k);
    __m512i even = _mm512_mul_epu32((__m512i)v, m),
            odd = _mm512_mul_epu32(_mm512_srli_epi64((__m512i)v, 32), m);
    *lo = (lf_vu)_mm512_mask_blend_epi32(0xaaaa, even, _mm512_slli_epi64(odd, 32));
    *hi = (lf_vu)_mm512_mask_blend_epi32(0xaaaa, _mm512_srli_epi64(even, 32), odd);
#elif LF_AVX2
    const __m256i m = _mm256_set1_epi64x((int64_t)k);
    __m256i even = _mm256_mul_epu32((__m256i)v, m),
            odd = _mm256_mul_epu32(_mm256_srli_epi64((__m256i)v, 32), m);
    *lo = (lf_vu)_mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
    *hi = (lf_vu)_mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
#elif LF_SVE
    *lo = v * k;
    *hi = (lf_vu)svmulh_n_u32_x(svptrue_b32(), v, k);
#elif LF_NEON
    const uint32x4_t low = vreinterpretq_u32_u64(vmull_n_u32(vget_low_u32((uint32x4_t)v), k)),
                     high = vreinterpretq_u32_u64(vmull_high_n_u32((uint32x4_t)v, k));
    *lo = (lf_vu)vuzp1q_u32(low, high);
    *hi = (lf_vu)vuzp2q_u32(low, high);
#else
    for (int i = 0; i < LF_VL; i++) {
        uint64_t p = (uint64_t)v[i] * k;
        (*hi)[i] = (uint32_t)(p >> 32);
        (*lo)[i] = (uint32_t)p;
    }
#endif
}

/* Counters b0 ... b0 + LF_VL - 1. Word w of counter b0 + l is word[4 l + w]. */
LF_INLINE void lf_philox_span(uint32_t word[4 * LF_VL], uint64_t seed, uint32_t site, uint64_t a,
                              uint32_t b0)
{
    const lf_vu zero = {0}, lane = (lf_vu)lf_vi_iota();
    lf_vu c[4] = {zero + (uint32_t)a, zero + (uint32_t)(a >> 32), lane + b0, zero + site};
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < 10; i++) {
        lf_vu h0, l0, h1, l1;
        mul_hi_lo(c[0], 0xD2511F53u, &h0, &l0);
        mul_hi_lo(c[2], 0xCD9E8D57u, &h1, &l1);
        c[0] = h1 ^ c[1] ^ k0;
        c[1] = l1;
        c[2] = h0 ^ c[3] ^ k1;
        c[3] = l0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    /* interleave words 0 1 and 2 3, then the pairs */
    const lf_vu by1 = (lane & 1u) * LF_VL + (lane >> 1),
                by2 = ((lane >> 1) & 1u) * LF_VL + (lane >> 2) * 2u + (lane & 1u);
    const lf_vu half = zero + LF_VL / 2;
    for (int h = 0; h < 2; h++) {
        lf_vi m = (lf_vi)(by1 + (h ? half : zero));
        lf_v x = lf_v_pick((lf_v)c[0], (lf_v)c[1], m), y = lf_v_pick((lf_v)c[2], (lf_v)c[3], m);
        lf_v lo = lf_v_pick(x, y, (lf_vi)by2), hi = lf_v_pick(x, y, (lf_vi)(by2 + half));
        memcpy(word + 2 * h * LF_VL, &lo, sizeof lo);
        memcpy(word + (2 * h + 1) * LF_VL, &hi, sizeof hi);
    }
}

#endif
