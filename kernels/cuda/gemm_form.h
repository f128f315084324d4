/* SPDX-License-Identifier: Apache-2.0
 *
 * The form of the matrix product that runs (gemm_args.h lists the forms). Tests ask for each form.
 */
#ifndef LF_KERNELS_CUDA_GEMM_FORM_H
#define LF_KERNELS_CUDA_GEMM_FORM_H

#include "kernels/cuda/gemm_args.h"
#include "kernels/cuda/queue.h"

/* Two families (gemm.cu, gemm_wgmma.cu) of other instructions. All forms give the same bits: the
 * two instructions of compute capability 9.0 round alike, which tests/op/gemm_test asks a GPU. */
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

/* Whether the form can run this product with the workspace that the product has. */
bool lf_cu_gemm_form_fits(const struct lf_k_gemm *g, enum lf_mm_form form);
/* Bytes that the split form needs. */
size_t lf_cu_gemm_split_bytes(const struct lf_k_gemm *g);
/* Runs the product; the form must fit. */
int lf_cu_gemm_form_run(lf_queue *q, const struct lf_k_gemm *g, enum lf_mm_form form);

/* ---- the family of gemm_wgmma.cu ----
 *
 *   LF_GEMM_CUDA unset    our own bf16 and f16 products (not grouped ones) run there where the GPU
 *                         is of compute capability 9.0 and this build has code for it
 *   LF_GEMM_CUDA=wgmma    likewise; anything else is refused
 *   LF_GEMM_CUDA=mma      they run in gemm.cu
 *
 * Operands with rows that do not start at multiples of 16 bytes, which the copy engine cannot read,
 * run there too. */

/* Reads the word. Returns LF_K_EDEVICE with one sentence in why when the word is unknown or the
 * device cannot run it. */
int lf_cu_wgmma_open(struct lf_cu_device *d, char *why, size_t cap);
/* Whether the product is one for this family. */
bool lf_cu_wgmma_takes(const struct lf_k_gemm *g);
/* The form that runs where the device has this family and it takes the product; for few rows by few
 * columns a form of the other. The shape alone decides, and whether the workspace allows a
 * split. */
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
