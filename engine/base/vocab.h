/* SPDX-License-Identifier: Apache-2.0
 *
 * How the vocabulary of a model and that of its data fit together. The pipeline reader and the
 * training stages ask the same question, before and after the tokenizer is there.
 */
#ifndef LF_BASE_VOCAB_H
#define LF_BASE_VOCAB_H

#include <stdint.h>

/* Matrices are padded to a multiple of this at most. */
#define LF_VOCAB_PADDING 1024

/* The percentage of the rows of a model's embedding that no token of the data uses. It is 0 where
 * padding explains them, that is, where rows <= tokens rounded up to a multiple of
 * LF_VOCAB_PADDING, where it is a quarter or less, and where tokens are not known (<= 0). */
static inline int lf_vocab_unused(int64_t rows, int64_t tokens)
{
    if (tokens <= 0 || rows - tokens <= rows / 4)
        return 0;
    const int64_t padded = (tokens + LF_VOCAB_PADDING - 1) / LF_VOCAB_PADDING * LF_VOCAB_PADDING;
    return rows <= padded ? 0 : (int)(100 * ((double)(rows - tokens) / (double)rows));
}

#endif
