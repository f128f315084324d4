/* SPDX-License-Identifier: Apache-2.0
 *
 * The Mersenne Twister MT19937 (Matsumoto and Nishimura, ACM TOMACS 8, 1998) with the shuffle of
 * numpy's RandomState, bit for bit: what Megatron-LM orders its samples with; and the seeding and
 * random() of Python's random.Random, which lm-evaluation-harness resamples with. Nothing of ours
 * draws from it (base/rng.h does).
 *
 *   seed       init_genrand of the reference code: s[0] = seed, s[i] = 1812433253 (s[i-1] xor
 *              s[i-1] >> 30) + i
 *   seed_key   init_by_array of the reference code; Random(i) for an integer i >= 0 has its 32-bit
 *              words, lowest first, as key
 *   f64        53 bits: (27 upper bits * 2^26 + 26 upper bits of the next) / 2^53
 *   below      masked rejection: draws are cut to the bits of `max` until one is not above it; one
 *              32-bit draw each while max < 2^32, else two, the first of which gives the upper half
 *   shuffle    for i = n - 1 .. 1: swap element i with element below(i)
 */
#ifndef LF_BASE_MT19937_H
#define LF_BASE_MT19937_H

#include <stddef.h>
#include <stdint.h>

typedef struct lf_mt19937 {
    uint32_t s[624];
    int at; /* next of s to hand out */
} lf_mt19937;

void lf_mt19937_seed(lf_mt19937 *m, uint32_t seed);
void lf_mt19937_seed_key(lf_mt19937 *m, const uint32_t *key, int n); /* n >= 1 */
double lf_mt19937_f64(lf_mt19937 *m);                                /* [0, 1) */
uint32_t lf_mt19937_u32(lf_mt19937 *m);
uint64_t lf_mt19937_below(lf_mt19937 *m, uint64_t max); /* uniform in 0 .. max, both included */
void lf_mt19937_shuffle_u32(lf_mt19937 *m, uint32_t *v, uint64_t n);
void lf_mt19937_shuffle_u64(lf_mt19937 *m, uint64_t *v, uint64_t n);

#endif
