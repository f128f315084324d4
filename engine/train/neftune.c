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

void lf_neftune_fill(float *out, const struct lf_neftune *n)
{
    const int32_t *cu = n->cu_seqlens;
    const int64_t width = n->width;
    memset(out, 0, (size_t)(n->rows * width) * sizeof(*out));
#pragma omp parallel for schedule(static) num_threads(n->threads)
    for (int64_t d = 0; d < n->n_docs; d++) {
        const double half = lf_neftune_half_width(n->alpha, cu[d + 1] - cu[d], width);
        for (int64_t r = cu[d]; r < cu[d + 1]; r++)
            fill_row(out + r * width, half, width, n->seed,
                     (uint64_t)n->sample_ids[r / n->row_tokens], r % n->row_tokens);
    }
}
