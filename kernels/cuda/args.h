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

/* Pages whose keys and values lie apart, without gaps. */
#define LF_CU_PAGES_DENSE(a)                                                                       \
    ((!(a)->ldkp || (a)->ldkp == (a)->groups * (a)->d) &&                                          \
     (!(a)->ldvp || (a)->ldvp == (a)->groups * (a)->d_value))

/* The work function of kernels that need no workspace. */
#define LF_CU_NO_WORK(name)                                                                        \
    size_t lf_cuda_##name##_work(const struct lf_k_##name *a, int threads)                         \
    {                                                                                              \
        (void)a;                                                                                   \
        (void)threads;                                                                             \
        return 0;                                                                                  \
    }

#endif
