/* SPDX-License-Identifier: Apache-2.0
 *
 * Between optim.c and optim.cu. The table of tensors lies in device memory, so the host does not
 * know the sizes and grids are fixed. All tensors are cut into pieces and counted through; a piece
 * has elements of one tensor. Block b of n takes the pieces b, b + n, ... AdamW's pieces have
 * LF_OPT_CHUNK elements, those of the norm LF_NORM_BLOCK.
 */
#ifndef LF_KERNELS_CUDA_OPTIM_H
#define LF_KERNELS_CUDA_OPTIM_H

#include "kernels/kernels.h"

enum { LF_OPT_THREADS = 256, LF_OPT_CHUNK = 8 * LF_OPT_THREADS, LF_OPT_BLOCKS = 1024 };

#endif
