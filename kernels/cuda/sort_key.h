/* SPDX-License-Identifier: Apache-2.0
 *
 * The key that sort.h sorts by and embed.cu adds up by.
 */
#ifndef LF_KERNELS_CUDA_SORT_KEY_H
#define LF_KERNELS_CUDA_SORT_KEY_H

#include "kernels/cuda/dev.h"

LF_DEV int64_t lf_sort_key(int32_t key, int64_t known)
{
    return known && key >= known ? 0 : key;
}

#endif
