/* SPDX-License-Identifier: Apache-2.0
 *
 * See texts.h. */
#include "engine/train/texts.h"

int64_t lf_texts_end(const int32_t *tokens, int64_t at, int64_t end, int64_t separator)
{
    while (at < end && tokens[at] != separator)
        at++;
    return at < end ? at + 1 : end;
}

int lf_texts_split(const lf_loader_batch *b, int64_t separator, int64_t most, int32_t *cu,
                   int32_t *positions, lf_err *err)
{
    const int64_t rows = (int64_t)b->B * b->T;
    int64_t n = 0;
    cu[0] = 0;
    for (int32_t s = 0; s < b->n_segs; s++) {
        const int64_t last = b->cu_seqlens[s + 1];
        for (int64_t at = b->cu_seqlens[s], end; at < last; at = end) {
            end = b->seg_doc[s] < 0 ? last : lf_texts_end(b->tokens, at, last, separator);
            if (n == most)
                return lf_fail(err, LF_EINVAL,
                               "a micro-batch has more than %lld texts, for which there is no "
                               "room: raise max_docs",
                               (long long)most);
            cu[++n] = (int32_t)end;
            for (int64_t r = at; r < end; r++)
                positions[r] = (int32_t)(r - at);
        }
    }
    for (int64_t i = n + 1; i <= most; i++)
        cu[i] = (int32_t)rows;
    return 0;
}
