/* SPDX-License-Identifier: Apache-2.0
 *
 * Which form of the matrix product runs (gemm_args.h lists them). All give the same bits; tests ask
 * for each.
 */
#ifndef LF_KERNELS_CUDA_GEMM_FORM_H
#define LF_KERNELS_CUDA_GEMM_FORM_H

#include "kernels/cuda/gemm_args.h"
#include "kernels/cuda/queue.h"

/* Two families (gemm.cu, gemm_wgmma.cu). On a GPU each has its own bits, because their instructions
 * round differently inside. */
enum lf_mm_form {
    LF_MM_FORM_BIG,
    LF_MM_FORM_SMALL,
    LF_MM_FORM_SPLIT,
    LF_MM_FORM_ROWS,
    LF_MM_FORM_WG_BIG,
    LF_MM_FORM_WG_SPLIT,
    LF_MM_FORM_WG_ROWS,
    LF_MM_FORM_WG_ROWS_SPLIT,
    LF_MM_FORMS
};

/* Whether the form can run this product with its workspace. */
bool lf_cu_gemm_form_fits(const struct lf_k_gemm *g, enum lf_mm_form form);
/* Bytes that the split form needs. */
size_t lf_cu_gemm_split_bytes(const struct lf_k_gemm *g);
/* Runs it; the form must fit. */
int lf_cu_gemm_form_run(lf_queue *q, const struct lf_k_gemm *g, enum lf_mm_form form);

/* ---- the family of gemm_wgmma.cu ----
 *
 * LF_GEMM_CUDA=wgmma       our own bf16 and f16 products (not grouped ones) run there, on compute
 *                          capability 9.0
 * LF_GEMM_CUDA=mma, unset  they run in gemm.cu
 *
 * Which family is a question of the device and this word alone, except for operands that the copy
 * engine cannot read: rows that do not start at multiples of 16 bytes, or k along the row and K no
 * multiple of 8. Such a product runs in gemm.cu. K is looked at, not the distance of rows, so that
 * a matrix [*, K] and a padded view of it fare alike; a weight that is read by a training batch and
 * by a decoding step is the same matrix, so both fare alike too. */

/* Reads the word. LF_K_EDEVICE with one sentence in why when it is unknown or the device cannot. */
int lf_cu_wgmma_open(struct lf_cu_device *d, char *why, size_t cap);
/* Whether the product is one for this family. */
bool lf_cu_wgmma_takes(const struct lf_k_gemm *g);
/* What runs, when it takes it: by shape alone, and whether the workspace allows a split. */
enum lf_mm_form lf_cu_wgmma_form(const struct lf_k_gemm *g);
bool lf_cu_wgmma_fits(const struct lf_k_gemm *g, enum lf_mm_form form);
int lf_cu_wgmma_run(lf_queue *q, const struct lf_cu_gemm *a, enum lf_mm_form form);
/* Adds the chunks' sums of a->partial. */
int lf_cu_add_chunks(lf_queue *q, const struct lf_cu_gemm *a);

/* Whether rows that start at p, ld elements apart, can be read 16 bytes at a time. */
static inline bool lf_cu_vec16(const void *p, int64_t ld, uint8_t type)
{
    return (uintptr_t)p % 16 == 0 && ld * (int64_t)lf_dtype_size((enum lf_dtype)type) % 16 == 0;
}

#endif
