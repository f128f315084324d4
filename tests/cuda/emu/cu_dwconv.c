/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/cuda/emu/twin.h"

#include "kernels/cuda/dwconv.cu"
