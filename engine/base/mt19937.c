/* SPDX-License-Identifier: Apache-2.0
 *
 * MT19937 and the shuffle that goes with it.
 */
#include "engine/base/mt19937.h"

enum { N = 624, M = 397 };

void lf_mt19937_seed(lf_mt19937 *m, uint32_t seed)
{
    m->s[0] = seed;
    for (uint32_t i = 1; i < N; i++)
        m->s[i] = 1812433253u * (m->s[i - 1] ^ m->s[i - 1] >> 30) + i;
    m->at = N;
}

void lf_mt19937_seed_key(lf_mt19937 *m, const uint32_t *key, int n)
{
    uint32_t *s = m->s;
    int i = 1, j = 0;
    lf_mt19937_seed(m, 19650218u);
    for (int k = N > n ? N : n; k > 0; k--) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1664525u) + key[j] + (uint32_t)j;
        if (++i == N) {
            s[0] = s[N - 1];
            i = 1;
        }
        j = j + 1 == n ? 0 : j + 1;
    }
    for (int k = N - 1; k > 0; k--) {
        s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1566083941u) - (uint32_t)i;
        if (++i == N) {
            s[0] = s[N - 1];
            i = 1;
        }
    }
    s[0] = 0x80000000u;
    m->at = N;
}

static uint32_t twist(uint32_t hi, uint32_t lo)
{
    uint32_t y = (hi & 0x80000000u) | (lo & 0x7fffffffu);
    return y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
}

static void next_state(uint32_t *s)
{
    for (int i = 0; i < N; i++)
        s[i] = s[(i + M) % N] ^ twist(s[i], s[(i + 1) % N]);
}

uint32_t lf_mt19937_u32(lf_mt19937 *m)
{
    if (m->at == N) {
        next_state(m->s);
        m->at = 0;
    }
    uint32_t y = m->s[m->at++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

uint64_t lf_mt19937_below(lf_mt19937 *m, uint64_t max)
{
    if (max == 0)
        return 0;
    uint64_t mask = UINT64_MAX >> __builtin_clzll(max), v;
    do {
        v = lf_mt19937_u32(m);
        if (max > UINT32_MAX)
            v = v << 32 | lf_mt19937_u32(m);
        v &= mask;
    } while (v > max);
    return v;
}

void lf_mt19937_shuffle_u32(lf_mt19937 *m, uint32_t *v, uint64_t n)
{
    for (uint64_t i = n; i-- > 1;) {
        uint64_t j = lf_mt19937_below(m, i);
        uint32_t t = v[i];
        v[i] = v[j];
        v[j] = t;
    }
}

void lf_mt19937_shuffle_u64(lf_mt19937 *m, uint64_t *v, uint64_t n)
{
    for (uint64_t i = n; i-- > 1;) {
        uint64_t j = lf_mt19937_below(m, i), t = v[i];
        v[i] = v[j];
        v[j] = t;
    }
}

double lf_mt19937_f64(lf_mt19937 *m)
{
    uint32_t a = lf_mt19937_u32(m) >> 5, b = lf_mt19937_u32(m) >> 6;
    return ((double)a * 67108864.0 + (double)b) * (1.0 / 9007199254740992.0);
}
