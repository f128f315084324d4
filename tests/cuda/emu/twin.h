/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands first in a C file that includes device code: names the header from which
 * kernels/cuda/dev.h takes the meaning of its names on a CPU.
 */
#ifndef LF_TESTS_CUDA_EMU_TWIN_H
#define LF_TESTS_CUDA_EMU_TWIN_H

#define LF_CUDA_TWIN "tests/cuda/emu/device.h"

#endif
