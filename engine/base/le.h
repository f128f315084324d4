/* SPDX-License-Identifier: Apache-2.0
 *
 * Unsigned integers of n bytes, n <= 8, in little-endian order, as files hold them. p may have any
 * alignment.
 */
#ifndef LF_BASE_LE_H
#define LF_BASE_LE_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t lf_get_le(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static inline void lf_put_le(uint8_t *p, uint64_t v, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

#endif
