/* SPDX-License-Identifier: Apache-2.0
 *
 * A golden file of a decoder family in memory, and its Hugging Face names as ours. Shared by the
 * tests of tests/golden.
 */
#ifndef LF_TESTS_GOLDEN_H
#define LF_TESTS_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "engine/graph/pstore.h"
#include "engine/model/config.h"

typedef struct golden {
    int64_t T, V;
    int32_t *tokens, *targets, *positions; /* [T] */
    int32_t cu_seqlens[3];
    int64_t trained;
    double *logits; /* [T, V] */
    double loss, loss_curve[10], norm_curve[10];
    double bf16_rms, bf16_loss;
    double lr, beta1, beta2, eps, weight_decay, clip;
    void *file; /* hid_t of the open file, for weights and gradients */
    char *family;
} golden;

/* Bails out (TAP) on any failure. name: "gpt2", ...; the file is read from
 * $LF_SRCDIR/tests/golden/model. */
golden *golden_open(const char *name);
void golden_close(golden *g);
/* The description of the model that the file holds, as [model] keys. */
void golden_config(const char *name, lf_model_config *out);
/* What `kind` ("weights", "grads") holds for our tensor `name` with `n` elements, f32 in our
 * layout; false when the file has none. */
bool golden_tensor(const golden *g, const char *kind, const char *name, float *dst, int64_t rows,
                   int64_t cols);
/* Every tensor of the store from the file; tensors that the file lacks (a flipped switch added
 * them) get small random values. Returns how many it lacked. */
int golden_load(const golden *g, lf_pstore *ps);

#endif
