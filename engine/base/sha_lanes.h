/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 of several messages of equal length at once, one in each lane of a vector register. On a
 * processor without SHA instructions this is three to five times as fast as one message after the
 * other. The leaves of a tree hash (hash.h) are such messages.
 */
#ifndef LF_BASE_SHA_LANES_H
#define LF_BASE_SHA_LANES_H

#include <stddef.h>
#include <stdint.h>

#define LF_SHA_MAX_LANES 16

typedef struct lf_sha_lanes {
    uint32_t h[8][LF_SHA_MAX_LANES];
    uint64_t bytes; /* of each message so far */
    int lanes;
} lf_sha_lanes;

/* Returns how many lanes are fastest on this machine: 16 (AVX-512) or 8 (AVX2). 0 means one message
 * at a time, because of SHA instructions or the lack of wide vectors. */
int lf_sha_lanes_best(void);
/* lanes is 8 or 16, and at most lf_sha_lanes_max(). */
void lf_sha_lanes_init(lf_sha_lanes *s, int lanes);
/* Returns the most lanes that the processor can run: 0, 8 or 16. */
int lf_sha_lanes_max(void);
/* Takes n more bytes of every message, a multiple of 64. Those of lane i lie at data + i *
 * stride. */
void lf_sha_lanes_update(lf_sha_lanes *s, const uint8_t *data, size_t stride, size_t n);
void lf_sha_lanes_final(lf_sha_lanes *s, uint8_t (*out)[32]); /* [lanes][32] */

#endif
