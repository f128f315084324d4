/* SPDX-License-Identifier: Apache-2.0
 *
 * Noise on embeddings: see neftune.h. */
#include "engine/train/neftune.h"

#include <math.h>
#include <string.h>

#include "engine/base/rng.h"

double lf_neftune_half_width(double alpha, int64_t length, int64_t width)
{
    return alpha / sqrt((double)length * (double)width);
}

static void fill_row(float *x, double half, int64_t width, uint64_t seed, uint64_t sample,
                     int64_t place)
{
    const int64_t words = (width + 3) / 4;
    for (int64_t c = 0; c < width; c += 4) {
        uint32_t w[4];
        lf_philox(w, seed, LF_SITE_NEFTUNE, sample, (uint32_t)(place * words + c / 4));
        for (int64_t k = 0; k < 4 && c + k < width; k++)
            x[c + k] = (float)(half * (2.0 * (double)lf_u01(w[k]) - 1.0));
    }
}

void lf_neftune_fill(float *out, double alpha, int64_t rows, int64_t width,
                     const int32_t *cu_seqlens, int64_t n_docs, const int64_t *sample_ids,
                     int64_t row_tokens, uint64_t seed, int threads)
{
    memset(out, 0, (size_t)(rows * width) * sizeof(*out));
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t d = 0; d < n_docs; d++) {
        const double half = lf_neftune_half_width(alpha, cu_seqlens[d + 1] - cu_seqlens[d], width);
        for (int64_t r = cu_seqlens[d]; r < cu_seqlens[d + 1]; r++)
            fill_row(out + r * width, half, width, seed, (uint64_t)sample_ids[r / row_tokens],
                     r % row_tokens);
    }
}
