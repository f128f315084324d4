/* SPDX-License-Identifier: Apache-2.0
 *
 * Backends of whole-model tests: the CPU, or CUDA: on the emulator, with LF_REQUIRE_GPU=1 in the
 * environment on GPU 0.
 */
#ifndef LF_TESTS_GOLDEN_GPU_DEVICE_H
#define LF_TESTS_GOLDEN_GPU_DEVICE_H

#include "engine/graph/plan.h"

/* Is a real GPU asked for? */
bool golden_on_gpu(void);
/* Bails out where a GPU is required and missing. */
lf_back *golden_cuda_back(lf_err *err);
const struct lf_target *golden_cuda_target(void);
/* Threads of the CPU's side, which no bit depends on: all processors beside a real GPU, whose tests
 * are larger. */
int golden_cpu_threads(void);
/* Whether there is a cuBLASLt for this GPU, without which there are no 8-bit products; on the
 * emulator there is. */
bool golden_has_blaslt(void);
/* The emulated cuBLASLt for a backend on the emulator, which has none otherwise. */
void golden_emulate_blaslt(lf_back *b);

#endif
