/* SPDX-License-Identifier: Apache-2.0
 *
 * An adapter put into its base: W' = W + scale * B A (engine/graph/adapter.h), each element summed
 * in f64 in ascending order of rank, with magnitudes its rows brought to their lengths in f64 too,
 * rounded once to f32 and once more to the type that is written. Streams: besides A and B a few MiB
 * per thread are held, whatever the size of the model.
 */
#ifndef LF_MODEL_MERGE_H
#define LF_MODEL_MERGE_H

#include "engine/model/adapter.h"

struct lf_merge_opts {
    const char *base, *adapter; /* directories of checkpoints */
    const char *out;            /* new checkpoint */
    bool bf16;                  /* write bf16, else f32 */
    int threads;
    /* of the new checkpoint; NULL: the adapter's without what makes it one. Borrowed */
    json_t *state;
};

/* LF_EINVAL: an adapter of another base, or of a model that it does not fit. Nothing is published
 * then. */
int lf_adapter_merge(const struct lf_merge_opts *o, uint8_t identity[LF_HASH_BYTES], lf_err *err);

#endif
