/* SPDX-License-Identifier: Apache-2.0
 *
 * Log-probabilities of a reference policy, of every judged answer of a run's data, computed once
 * with the weights the run begins with: the second model that preference training would otherwise
 * hold. An artifact of kind "reference":
 *
 *     logp.h5    f64 [n_docs] for each split and source k: train-k/logp (sum of log p over the
 *                trained tokens of each document) and, with strangers' answers, train-k/other (of
 *                the document's prompt with a stranger's answer); the same under valid-k. 0 for
 *                what the data order leaves out. Attribute id.
 *     meta       {"id", "weights": identity of the checkpoint, "numbers": kernels, threads, layout}
 *
 * id is a SHA-256 over what the values depend on: weights, documents, sequence length and which
 * segments there are. A run that is cut off while computing leaves partial.h5, from which the next
 * start goes on; another id is refused.
 */
#ifndef LF_POST_REFERENCE_H
#define LF_POST_REFERENCE_H

#include "engine/train/objective.h"

typedef struct lf_reference lf_reference;

struct lf_reference_opts {
    const char *from;        /* a finished one to use; NULL: of this run, found again or made */
    const char *const *dirs; /* out directories of earlier starts, oldest first */
    size_t n_dirs;
    int64_t seq_length;
    bool mismatched; /* strangers' answers too */
};

/* Collective. Reads it, or makes it at <out>/reference when fresh (the weights are those the run
 * begins with), from output "lp" of the validation graph. LF_EINVAL: it is of other weights or
 * data; LF_EINTR: asked to stop, what was done is kept. */
int lf_reference_prepare(lf_reference **out, lf_trainer *t, const struct lf_reference_opts *o,
                         bool fresh, lf_err *err);
void lf_reference_destroy(lf_reference *r);
double lf_reference_logp(const lf_reference *r, bool valid, size_t source, int64_t doc,
                         bool mismatched);

/* Sum of lp [rows] over the trained tokens of segment s; *n: how many. f64, in row order. */
double lf_segment_logp(const float *lp, const lf_loader_batch *b, int32_t s, int64_t *n);

#endif
