/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a matrix in memory for the copy engine of a GPU (compute capability 9.0): a
 * CUtensorMap. The driver makes it (TensorMapEncodeTiled). It is part of a kernel's arguments. Host
 * and kernel do not look inside.
 */
#ifndef LF_KERNELS_CUDA_TENSOR_MAP_H
#define LF_KERNELS_CUDA_TENSOR_MAP_H

#include <stdint.h>

struct __attribute__((aligned(128))) lf_cu_tensor_map {
    uint64_t opaque[16];
};

#endif
