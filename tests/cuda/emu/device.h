/* SPDX-License-Identifier: Apache-2.0
 *
 * The C twins of dev.h and dev_hopper.h; dev.h includes this file.
 */
#ifndef LF_TESTS_CUDA_EMU_DEVICE_H
#define LF_TESTS_CUDA_EMU_DEVICE_H

#include "tests/cuda/emu/emu.h"
#include "tests/cuda/emu/hopper.h"

#endif
