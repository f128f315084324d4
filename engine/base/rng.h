/* SPDX-License-Identifier: Apache-2.0
 *
 * Counter-based random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011). A value is a pure function of (seed, site, a, b), so it never depends on
 * ranks, threads, slots or launch order. By convention site is the kind of random decision, a the
 * global sample id, and b the position or element / 4. Kernels use the inline functions too; the
 * rest is for the host.
 */
#ifndef LF_BASE_RNG_H
#define LF_BASE_RNG_H

#include <stdint.h>

#ifdef __CUDACC__
#define LF_RNG_INLINE static __host__ __device__ __forceinline__
#else
#define LF_RNG_INLINE static inline
#endif

/* key = (seed lo, seed hi); counter = (a lo, a hi, b, site). */
LF_RNG_INLINE void lf_philox(uint32_t out[4], uint64_t seed, uint32_t site, uint64_t a, uint32_t b)
{
    uint32_t c0 = (uint32_t)a, c1 = (uint32_t)(a >> 32), c2 = b, c3 = site;
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
    for (int i = 0; i < 10; i++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Uniform in [0, 1) with 24 bits. */
LF_RNG_INLINE float lf_u01(uint32_t x)
{
    return (float)(x >> 8) * (1.0f / 16777216.0f);
}

/* Element i of the stream of lf_rng_f64, for kernels: 53 bits of two words. The third word of the
 * counter is 1, which keeps this kind of stream apart from the others (rng.c). */
LF_RNG_INLINE double lf_philox_f64(uint64_t seed, uint32_t site, uint64_t i)
{
    uint32_t r[4];
    lf_philox(r, seed, site, i / 2, 1);
    const uint32_t hi = i % 2 ? r[2] : r[0], lo = i % 2 ? r[3] : r[1];
    return (double)(int64_t)(((uint64_t)hi << 32 | lo) >> 11) * (1.0 / 9007199254740992.0);
}

/* Element i of a stream of uniform u32, of uniform doubles in [0, 1), or of standard normals
 * (Box-Muller in f64). */
uint32_t lf_rng_u32(uint64_t seed, uint32_t site, uint64_t i);
double lf_rng_f64(uint64_t seed, uint32_t site, uint64_t i);
double lf_rng_normal(uint64_t seed, uint32_t site, uint64_t i);

/* Elements 2 * pair and 2 * pair + 1 of the normals, which come from one draw: half the work. */
void lf_rng_normal_pair(double out[2], uint64_t seed, uint32_t site, uint64_t pair);

/* Element i of the pseudo-random permutation of 0..n-1 that (seed, site) gives. It is a
 * cycle-walking Feistel network, so there is no table. n >= 1, i < n. */
uint64_t lf_rng_permute(uint64_t seed, uint32_t site, uint64_t n, uint64_t i);

#endif
