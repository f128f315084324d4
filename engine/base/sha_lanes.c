/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 in the lanes of AVX2 and AVX-512 registers.
 */
#include "engine/base/sha_lanes.h"

#include <string.h>

#include "engine/base/err.h"

#if defined(__x86_64__)
#include <cpuid.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

typedef uint32_t v8 __attribute__((vector_size(32)));
typedef uint32_t v16 __attribute__((vector_size(64)));

#define LANES  8
#define VEC    v8
#define NAME   compress8
#define TARGET __attribute__((target("avx2")))
#include "engine/base/sha_lanes_body.inc"

#define LANES  16
#define VEC    v16
#define NAME   compress16
#define TARGET __attribute__((target("avx512f,avx512bw")))
#include "engine/base/sha_lanes_body.inc"

int lf_sha_lanes_max(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
        return 16;
    return __builtin_cpu_supports("avx2") ? 8 : 0;
}

/* Leaf 7, EBX bit 29. */
static int has_sha_instructions(void)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
}

int lf_sha_lanes_best(void)
{
    return has_sha_instructions() ? 0 : lf_sha_lanes_max();
}

void lf_sha_lanes_update(lf_sha_lanes *s, const uint8_t *data, size_t stride, size_t n)
{
    if (n % 64)
        LF_BUG("%zu bytes are no whole blocks", n);
    if (s->lanes == 16)
        compress16(s->h, data, stride, n);
    else
        compress8(s->h, data, stride, n);
    s->bytes += n;
}

#else

int lf_sha_lanes_max(void)
{
    return 0;
}

int lf_sha_lanes_best(void)
{
    return 0;
}

void lf_sha_lanes_update(lf_sha_lanes *s, const uint8_t *data, size_t stride, size_t n)
{
    (void)data;
    (void)stride;
    LF_BUG("%d lanes, %zu bytes, but there are no lanes on this machine", s->lanes, n);
}

#endif

void lf_sha_lanes_init(lf_sha_lanes *s, int lanes)
{
    static const uint32_t first[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    s->bytes = 0;
    s->lanes = lanes;
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < LF_SHA_MAX_LANES; k++)
            s->h[i][k] = first[i];
}

void lf_sha_lanes_final(lf_sha_lanes *s, uint8_t (*out)[32])
{
    uint8_t end[64] = {0x80};
    uint64_t bits = s->bytes * 8;
    for (int i = 0; i < 8; i++)
        end[63 - i] = (uint8_t)(bits >> (8 * i));
    lf_sha_lanes_update(s, end, 0, sizeof end);
    for (int k = 0; k < s->lanes; k++)
        for (int i = 0; i < 32; i++)
            out[k][i] = (uint8_t)(s->h[i / 4][k] >> (24 - 8 * (i % 4)));
}
