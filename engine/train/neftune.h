/* SPDX-License-Identifier: Apache-2.0
 *
 * NEFTune (Jain et al. 2023): in training, uniform noise is added to the embeddings.
 *
 *     x[r][c] += u,   u uniform in +-alpha / sqrt(L C)
 *
 * L is the number of tokens of r's document, and C the width of the embedding. The paper has one
 * document per row of a batch. Where a sequence holds several documents, L is the length of the
 * document. The length of the sequence would make the noise smaller by the square root of the
 * number of documents in it.
 */
#ifndef LF_TRAIN_NEFTUNE_H
#define LF_TRAIN_NEFTUNE_H

#include <stdint.h>

#define LF_SITE_NEFTUNE 0x4E454654u /* Philox site */

double lf_neftune_half_width(double alpha, int64_t length, int64_t width);

/* A micro-batch that gets noise; pointers are borrowed. */
struct lf_neftune {
    double alpha;
    int64_t rows, width;
    const int32_t *cu_seqlens; /* [n_docs + 1] */
    int64_t n_docs;
    const int64_t *sample_ids; /* [rows / row_tokens] */
    int64_t row_tokens;        /* rows of a sample */
    uint64_t seed;
    int threads;
};

/* Fills out[rows, width] with the noise; rows of no document get 0. Element (r, c) depends only on
 * seed, global sample of r, place of r in it, and c. */
void lf_neftune_fill(float *out, const struct lf_neftune *n);

#endif
