/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 of several messages of one length at once, one in each lane of a vector register: where
 * the processor has no SHA instructions that is three to five times as fast as one message after
 * the other. The leaves of a tree hash (hash.h) are such messages.
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

/* How many lanes pay off on this machine: 16 (AVX-512), 8 (AVX2), 0: use one message at a time (SHA
 * instructions, or no wide vectors). */
int lf_sha_lanes_best(void);
/* lanes: 8 or 16 and not beyond what the processor has (lf_sha_lanes_max). */
void lf_sha_lanes_init(lf_sha_lanes *s, int lanes);
/* The widest that the processor can run, 0, 8 or 16, whether it pays off or not. */
int lf_sha_lanes_max(void);
/* n more bytes, a multiple of 64, of every message; that of lane i lies at data + i * stride. */
void lf_sha_lanes_update(lf_sha_lanes *s, const uint8_t *data, size_t stride, size_t n);
void lf_sha_lanes_final(lf_sha_lanes *s, uint8_t (*out)[32]); /* [lanes][32] */

#endif
