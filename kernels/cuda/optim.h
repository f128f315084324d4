/* SPDX-License-Identifier: Apache-2.0
 *
 * Between optim.c and optim.cu. The table of tensors lies in device memory, so grids are fixed:
 * block b of n takes chunks b, b + n, ... of the concatenation of all tensors, each cut in chunks
 * of its own.
 */
#ifndef LF_KERNELS_CUDA_OPTIM_H
#define LF_KERNELS_CUDA_OPTIM_H

#include "kernels/kernels.h"

enum { LF_OPT_THREADS = 256, LF_OPT_CHUNK = 8 * LF_OPT_THREADS, LF_OPT_PARTS = 1024 };

#endif
