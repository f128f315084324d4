/* SPDX-License-Identifier: Apache-2.0
 *
 * The emulator's host side: running a grid, and a driver table with emulated GPUs behind it.
 */
#ifndef LF_KERNELS_CUDA_EMU_RUN_H
#define LF_KERNELS_CUDA_EMU_RUN_H

#include "kernels/cuda/driver.h"
#include "kernels/cuda/emu/emu.h"

/* Runs `entry` for every thread of the grid. A misuse (barrier not met by all, too many threads) ends the process with
 * a message that names the kernel and the block. */
void lf_emu_run(const char *name, void (*entry)(const void *args), const void *args, struct lf_emu_uint3 grid,
                struct lf_emu_uint3 block, size_t smem);

/* A driver whose GPUs are emulated (compute capability `sm`, "90"). */
void lf_emu_driver(struct lf_cu *out);

#endif
