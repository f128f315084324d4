/* SPDX-License-Identifier: Apache-2.0
 *
 * Values for tests of collectives: their f32 sums depend on the order. Every rank makes those of
 * all, so their bits are mixed by two products (splitmix64), not by the engine's rounds.
 */
#ifndef LF_TESTS_COMM_VALUE_H
#define LF_TESTS_COMM_VALUE_H

#include <stddef.h>
#include <stdint.h>

/* rank -1: one more of them, such as a seed */
static inline double comm_value(int rank, size_t i)
{
    uint64_t x = ((uint64_t)(rank + 2) << 40 | i) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    x ^= x >> 31;
    return ((double)(x >> 11) * 0x1p-53 - 0.5) * (rank % 2 ? 1e6 : 1.0);
}

#endif
