/* SPDX-License-Identifier: Apache-2.0
 *
 * The Mersenne Twister MT19937 (Matsumoto and Nishimura, ACM TOMACS 8, 1998). The shuffle has the
 * bits of numpy's RandomState, with which Megatron-LM orders its samples. Seeding and f64 have the
 * bits of Python's random.Random, with which lm-evaluation-harness resamples. Only these two
 * formats use it; all other random numbers come from base/rng.h.
 *
 *   seed       init_genrand of the reference code: s[0] = seed, s[i] = 1812433253 (s[i-1] xor
 *              s[i-1] >> 30) + i
 *   seed_key   init_by_array of the reference code; Random(i) for an integer i >= 0 has its 32-bit
 *              words, lowest first, as key
 *   f64        53 bits: (27 upper bits * 2^26 + 26 upper bits of the next) / 2^53
 *   below      masked rejection: a draw is cut to the bits of `max` and repeated while it is above
 *              max; a draw has 32 bits while max < 2^32, else 64 bits, the upper half first
 *   shuffle    for i = n - 1 .. 1: swap element i with element below(i)
 */
#ifndef LF_BASE_MT19937_H
#define LF_BASE_MT19937_H

#include <stddef.h>
#include <stdint.h>

typedef struct lf_mt19937 {
    uint32_t s[624];
    int at; /* index in s of the next word */
} lf_mt19937;

void lf_mt19937_seed(lf_mt19937 *m, uint32_t seed);
void lf_mt19937_seed_key(lf_mt19937 *m, const uint32_t *key, int n); /* n >= 1 */
double lf_mt19937_f64(lf_mt19937 *m);                                /* [0, 1) */
uint32_t lf_mt19937_u32(lf_mt19937 *m);
uint64_t lf_mt19937_below(lf_mt19937 *m, uint64_t max); /* uniform in 0 .. max, both included */
void lf_mt19937_shuffle_u32(lf_mt19937 *m, uint32_t *v, uint64_t n);
void lf_mt19937_shuffle_u64(lf_mt19937 *m, uint64_t *v, uint64_t n);

#endif
