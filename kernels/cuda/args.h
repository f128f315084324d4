/* SPDX-License-Identifier: Apache-2.0
 *
 * Host-side checks that launchers share.
 */
#ifndef LF_KERNELS_CUDA_ARGS_H
#define LF_KERNELS_CUDA_ARGS_H

#include "kernels/kernels.h"

/* Storage types of activations. */
static inline bool lf_cu_float(uint8_t t)
{
    return t == LF_F32 || t == LF_BF16 || t == LF_F16;
}

#endif
