/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the CUDA backend.
 */
#include "kernels/cuda/table.h"
#include "kernels/cuda/queue.h"

LF_CUDA_LIST(LF_CUDA_DECLARE)

#define ROW(k) .k = {lf_cuda_##k, lf_cuda_##k##_check, lf_cuda_##k##_work},
const struct lf_kernels lf_cuda_kernels = {.family = "cuda", LF_CUDA_LIST(ROW)};
