/* SPDX-License-Identifier: Apache-2.0
 *
 * An emulated cuBLASLt for tests: plain loops over columns, in the stream's queue.
 */
#ifndef LF_KERNELS_CUDA_EMU_BLASLT_H
#define LF_KERNELS_CUDA_EMU_BLASLT_H

#include "kernels/cuda/gemm_blaslt.h"

void lf_emu_blaslt(struct lf_lt *out);
struct lf_emu_blaslt_counts {
    int products, asked; /* calls so far: matrix products, algorithms */
};
/* refuse: every later call for an algorithm or a product fails. */
struct lf_emu_blaslt_counts lf_emu_blaslt_counts(bool refuse);

#endif
