/* SPDX-License-Identifier: Apache-2.0
 *
 * A training of a decoder, step by step, on the CPU or on CUDA (device.h): its losses, and its
 * state to go on from.
 */
#ifndef LF_TESTS_GOLDEN_GPU_CURVE_H
#define LF_TESTS_GOLDEN_GPU_CURVE_H

#include "engine/graph/exec.h"
#include "engine/model/decoder.h"
#include "tests/golden-gpu/device.h"
#include "tests/tap/tap.h"

enum { MAX_STEPS = 2000, MAX_ROWS = 1024 };

struct size {
    const char *ini;                /* INI-llama.ini and so on, below LF_SRCDIR/tests/golden-gpu */
    int steps, docs, length, micro; /* micro-batches of a step, documents and tokens of one */
    float lr;
    bool decay;                /* lr falls to 0 over the steps, so that runs end quietly */
    const unsigned char *text; /* bytes to learn, n_text of them; NULL: made-up tokens */
    size_t n_text;
};

/* One training from step `from` to `to`. */
struct job {
    bool cuda;
    enum lf_dtype compute;
    enum lf_fp8 fp8; /* with LF_BF16: of all layers */
    uint64_t seed;
    int from, to;
    const char *begin; /* masters and moments to begin with; NULL: initial ones */
    double loss[MAX_STEPS];
    char *end; /* masters and moments at the end; free() */
    size_t bytes;
};

void curve_train(struct job *j, const lf_model_config *c, const struct size *z);
/* Mean loss of the last quarter of the steps. */
double curve_last_quarter(const struct job *j);
/* Of losses from step `from` on, and of the state at the end. */
bool curve_same_bits(const struct job *a, const struct job *b, int from);

#endif
