/* SPDX-License-Identifier: Apache-2.0
 *
 * Host streams over Philox. The counter's third word tells the kinds of stream apart (0 u32, 1 f64,
 * 2 normal, from 2^31 the rounds of the permutation), so that no two kinds share numbers.
 */
#include "engine/base/rng.h"

#include <math.h>

enum { KIND_U32 = 0, KIND_NORMAL = 2, FEISTEL_ROUNDS = 8 };
#define KIND_FEISTEL 0x80000000u

uint32_t lf_rng_u32(uint64_t seed, uint32_t site, uint64_t i)
{
    uint32_t r[4];
    lf_philox(r, seed, site, i / 4, KIND_U32);
    return r[i % 4];
}

/* 53 bits. */
static double unit_f64(uint32_t hi, uint32_t lo)
{
    uint64_t v = ((uint64_t)hi << 32 | lo) >> 11;
    return (double)v * 0x1p-53;
}

double lf_rng_f64(uint64_t seed, uint32_t site, uint64_t i)
{
    return lf_philox_f64(seed, site, i); /* kind 1 */
}

struct polar {
    double radius, angle;
};

static struct polar draw_polar(uint64_t seed, uint32_t site, uint64_t pair)
{
    uint32_t r[4];
    lf_philox(r, seed, site, pair, KIND_NORMAL);
    const double u = 1.0 - unit_f64(r[0], r[1]); /* (0, 1]: the logarithm is finite */
    return (struct polar){sqrt(-2.0 * log(u)), 6.283185307179586476925 * unit_f64(r[2], r[3])};
}

double lf_rng_normal(uint64_t seed, uint32_t site, uint64_t i)
{
    const struct polar p = draw_polar(seed, site, i / 2);
    return p.radius * (i % 2 ? sin(p.angle) : cos(p.angle));
}

void lf_rng_normal_pair(double out[2], uint64_t seed, uint32_t site, uint64_t pair)
{
    const struct polar p = draw_polar(seed, site, pair);
    out[0] = p.radius * cos(p.angle);
    out[1] = p.radius * sin(p.angle);
}

/* A balanced Feistel network over 2*half bits; the walk repeats it until the value falls below n.
 * The domain is less than 4n, so it takes fewer than 4 turns on average. */
uint64_t lf_rng_permute(uint64_t seed, uint32_t site, uint64_t n, uint64_t i)
{
    unsigned half = 1;
    if (n <= 1)
        return 0;
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    uint64_t mask = half == 32 ? 0xffffffffu : ((uint64_t)1 << half) - 1;
    uint64_t v = i;
    do {
        uint64_t left = v >> half, right = v & mask;
        for (uint32_t round = 0; round < FEISTEL_ROUNDS; round++) {
            uint32_t r[4];
            lf_philox(r, seed, site, right, KIND_FEISTEL + round);
            uint64_t next = (left ^ r[0]) & mask;
            left = right;
            right = next;
        }
        v = left << half | right;
    } while (v >= n);
    return v;
}
