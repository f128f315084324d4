/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of texts (lf-score, give = embeddings) as an HDF5 file:
 *
 *   embedding   f32 [rows, width], in the order of scores.jsonl; NAN where a row has an error
 *   attributes  lf_format = "lf-embeddings-1"
 */
#ifndef LF_STAGES_SCORE_VECTORS_H
#define LF_STAGES_SCORE_VECTORS_H

#include <stdint.h>

#include "engine/base/err.h"

struct lf_score_vectors {
    const char *lines, *file; /* what is read, and what is made anew */
    int64_t rows, width;      /* both at least 1 */
};
int lf_score_write_vectors(const struct lf_score_vectors *s, lf_err *err);

#endif
