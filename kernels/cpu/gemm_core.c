/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts about matrix products that do not depend on the instruction set.
 */
#include "config.h"

#include "kernels/kernels.h"

/* The widest panel of any instruction set is 32 columns; K is padded to pairs for bf16. */
size_t lf_cpu_gemm_packed_bytes(int64_t n, int64_t k, enum lf_dtype ab_type)
{
    size_t cols = ((size_t)n + 31) / 32 * 32;
    return ab_type == LF_BF16 ? cols * (((size_t)k + 1) / 2 * 2) * 2 : cols * (size_t)k * 4;
}
