/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32 as gzip, zip and parquet have it (RFC 1952: polynomial 0xEDB88320, reflected), eight bytes
 * a step. The tables are the caller's: 8 KiB, made once.
 */
#ifndef LF_BASE_CRC32_H
#define LF_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

typedef struct lf_crc32 {
    uint32_t t[8][256];
} lf_crc32;

void lf_crc32_init(lf_crc32 *c);
/* The checksum of what crc is that of, and n bytes behind it; 0 is that of nothing. */
uint32_t lf_crc32_add(const lf_crc32 *c, uint32_t crc, const void *data, size_t n);

#endif
