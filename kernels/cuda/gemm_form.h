/* SPDX-License-Identifier: Apache-2.0
 *
 * Which form of the matrix product runs (gemm_args.h lists them). All give the same bits; tests ask for each.
 */
#ifndef LF_KERNELS_CUDA_GEMM_FORM_H
#define LF_KERNELS_CUDA_GEMM_FORM_H

#include "kernels/cuda/queue.h"

enum lf_mm_form { LF_MM_FORM_BIG, LF_MM_FORM_SMALL, LF_MM_FORM_SPLIT, LF_MM_FORM_ROWS, LF_MM_FORMS };

/* Whether the form can run this product with its workspace. */
bool lf_cu_gemm_form_fits(const struct lf_k_gemm *g, enum lf_mm_form form);
/* Bytes that the split form needs. */
size_t lf_cu_gemm_split_bytes(const struct lf_k_gemm *g);
/* Runs it; the form must fit. */
int lf_cu_gemm_form_run(lf_queue *q, const struct lf_k_gemm *g, enum lf_mm_form form);

/* Whether rows that start at p, ld elements apart, can be read 16 bytes at a time. */
static inline bool lf_cu_vec16(const void *p, int64_t ld, uint8_t type)
{
    return (uintptr_t)p % 16 == 0 && ld * (int64_t)lf_dtype_size((enum lf_dtype)type) % 16 == 0;
}

#endif
