/* SPDX-License-Identifier: Apache-2.0
 *
 * Log-probabilities of a reference for every judged answer of a run's data. They are computed once
 * with the weights with which the run begins, so that preference training holds no second model.
 * They are an artifact of kind "reference":
 *
 *     logp.h5    f64 [n_docs] for each split and source k: train-k/logp is the sum of log p over
 *                the trained tokens of each document; train-k/other, only with mismatched answers,
 *                that of the document's prompt with the answer of another document. valid-k has the
 *                same. Documents that the data order leaves out have 0. Attribute id.
 *     meta       {"id", "weights": identity of the checkpoint, "numbers": kernels, threads, layout}
 *
 * id is a SHA-256 over what the values depend on: weights, documents, sequence length and the kinds
 * of segments. A start that ends while computing leaves partial.h5, from which the next start
 * continues. Another id is refused.
 */
#ifndef LF_POST_REFERENCE_H
#define LF_POST_REFERENCE_H

#include "engine/train/objective.h"

typedef struct lf_reference lf_reference;

struct lf_reference_opts {
    const char *from;        /* a finished one to use; NULL: that of this run, found or made */
    const char *const *dirs; /* out directories of earlier starts, oldest first */
    size_t n_dirs;
    int64_t seq_length;
    /* patches and tiles of a row, which leave units out too; 0: no pictures */
    int64_t row_patches, row_tiles;
    bool mismatched; /* answers of other documents too */
};

/* Collective. Reads the artifact, or, when fresh (the run begins with the present weights), makes
 * it at <out>/reference from output "lp" of the validation graph. LF_EINVAL: it has other weights
 * or data. LF_EINTR: a stop was requested; finished work is kept. */
int lf_reference_prepare(lf_reference **out, lf_trainer *t, const struct lf_reference_opts *o,
                         bool fresh, lf_err *err);
void lf_reference_destroy(lf_reference *r);
double lf_reference_logp(const lf_reference *r, bool valid, size_t source, int64_t doc,
                         bool mismatched);

/* Returns the sum of lp[rows] over the trained tokens of segment s, in f64 and in row order. *n
 * becomes their number. */
double lf_segment_logp(const float *lp, const lf_loader_batch *b, int32_t s, int64_t *n);

#endif
