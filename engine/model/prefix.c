/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefixes of documents and the two positions that count from them. */
#include "engine/model/decoder.h"

void lf_decoder_prefixes(const int32_t *targets, const int32_t *cu_seqlens, int64_t n_docs, int32_t *prefix)
{
    for (int64_t d = 0; d < n_docs; d++) {
        const int32_t first = cu_seqlens[d], end = cu_seqlens[d + 1];
        int32_t r = first;
        while (r < end && targets[r] < 0)
            r++;
        prefix[d] = r < end ? r - first : 0;
    }
}

void lf_decoder_turn(int64_t position, int64_t prefix, int32_t *turn, int32_t *block)
{
    const int64_t last = prefix > 0 ? prefix - 1 : 0;
    *turn = (int32_t)(position < last ? position : last);
    *block = (int32_t)(position < prefix ? 0 : position - prefix + 1);
}

void lf_decoder_turns(const int32_t *cu_seqlens, int64_t n_docs, const int32_t *prefix, int64_t rows, int32_t *turns,
                      int32_t *blocks)
{
    for (int64_t d = 0; d < n_docs; d++)
        for (int64_t r = cu_seqlens[d]; r < cu_seqlens[d + 1]; r++)
            lf_decoder_turn(r - cu_seqlens[d], prefix[d], &turns[r], &blocks[r]);
    for (int64_t r = cu_seqlens[n_docs]; r < rows; r++) /* padding */
        turns[r] = blocks[r] = 0;
}
