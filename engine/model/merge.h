/* SPDX-License-Identifier: Apache-2.0
 *
 * Merges an adapter into its base: W' = W + scale * B A (engine/graph/adapter.h). Each element is
 * summed in f64 in ascending order of rank; with magnitudes the rows get their lengths in f64 too.
 * The result is rounded once to f32 and once more to the type that is written. Tensors stream:
 * memory is A, B and a few MiB per thread, whatever the size of the model.
 */
#ifndef LF_MODEL_MERGE_H
#define LF_MODEL_MERGE_H

#include "engine/model/adapter.h"

struct lf_merge_opts {
    const char *base, *adapter; /* directories of checkpoints */
    const char *out;            /* new checkpoint */
    bool bf16;                  /* write bf16, else f32 */
    int threads;
    /* state of the new checkpoint, borrowed; NULL: that of the adapter without the parts that make
     * it an adapter */
    json_t *state;
};

/* LF_EINVAL: the adapter has another base or does not fit the model; nothing is published. */
int lf_adapter_merge(const struct lf_merge_opts *o, uint8_t identity[LF_HASH_BYTES], lf_err *err);

#endif
