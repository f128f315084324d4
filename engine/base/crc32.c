/* SPDX-License-Identifier: Apache-2.0
 *
 * See crc32.h.
 */
#include "config.h"

#include "engine/base/crc32.h"

#include <string.h>

void lf_crc32_init(lf_crc32 *c)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t v = i;
        for (int k = 0; k < 8; k++)
            v = v >> 1 ^ (v & 1 ? 0xEDB88320u : 0);
        c->t[0][i] = v;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            c->t[k][i] = c->t[k - 1][i] >> 8 ^ c->t[0][c->t[k - 1][i] & 0xFF];
}

uint32_t lf_crc32_add(const lf_crc32 *c, uint32_t crc, const void *data, size_t n)
{
    const uint32_t(*t)[256] = c->t;
    const uint8_t *p = data;
    uint32_t v = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint32_t a, b;
        memcpy(&a, p, 4);
        memcpy(&b, p + 4, 4);
        a ^= v;
        v = t[7][a & 0xFF] ^ t[6][a >> 8 & 0xFF] ^ t[5][a >> 16 & 0xFF] ^ t[4][a >> 24] ^
            t[3][b & 0xFF] ^ t[2][b >> 8 & 0xFF] ^ t[1][b >> 16 & 0xFF] ^ t[0][b >> 24];
    }
    for (; n > 0; n--, p++)
        v = v >> 8 ^ t[0][(v ^ *p) & 0xFF];
    return ~v;
}
