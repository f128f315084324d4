/* SPDX-License-Identifier: Apache-2.0
 *
 * What the copy engine of a GPU (compute capability 9.0) is told of a matrix in memory: a
 * CUtensorMap, made by the driver (TensorMapEncodeTiled), part of a kernel's arguments, opaque to
 * both.
 */
#ifndef LF_KERNELS_CUDA_TENSOR_MAP_H
#define LF_KERNELS_CUDA_TENSOR_MAP_H

#include <stdint.h>

struct __attribute__((aligned(128))) lf_cu_tensor_map {
    uint64_t opaque[16];
};

#endif
