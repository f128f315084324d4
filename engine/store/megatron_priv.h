/* SPDX-License-Identifier: Apache-2.0
 *
 * What the reader and the writer of Megatron indexed datasets share.
 */
#ifndef LF_STORE_MEGATRON_PRIV_H
#define LF_STORE_MEGATRON_PRIV_H

#include <stddef.h>
#include <stdint.h>

#include "engine/base/err.h"

#define LF_MEGATRON_MAGIC  "MMIDIDX\0" /* 9 bytes, with the NUL that ends the literal */
#define LF_MEGATRON_HEADER 34

/* "NAME.bin" and "NAME.idx" (owned) of NAME, NAME.bin or NAME.idx. */
int lf_megatron_names(char **bin, char **idx, const char *path, lf_err *err);

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
