/* SPDX-License-Identifier: Apache-2.0
 *
 * cuBLASLt for products in mode LF_FAST: one table of the functions of libcublasLt.so that are
 * called, loaded at run time. Types and constants restate its binary interface (cublasLt.h of CUDA
 * 12 and 13). blaslt_check.c compares them where the header is found. Every call returns a
 * cublasStatus_t; 0 is success.
 */
#ifndef LF_KERNELS_CUDA_GEMM_BLASLT_H
#define LF_KERNELS_CUDA_GEMM_BLASLT_H

#include "kernels/cuda/queue.h"

enum { /* cublasComputeType_t, cudaDataType_t, cublasOperation_t */
       LF_LT_COMPUTE_32F = 68,
       LF_LT_R_32F = 0,
       LF_LT_R_16F = 2,
       LF_LT_R_16BF = 14,
       LF_LT_R_8F_E4M3 = 28,
       LF_LT_R_8F_E5M2 = 29,
       LF_LT_OP_N = 0,
       LF_LT_OP_T = 1
};
enum { /* attributes of the product, and of the preference */
       LF_LT_DESC_TRANSA = 3,
       LF_LT_DESC_TRANSB = 4,
       LF_LT_DESC_EPILOGUE = 7,
       LF_LT_DESC_BIAS_POINTER = 8,
       LF_LT_DESC_A_SCALE_POINTER = 17,
       LF_LT_DESC_B_SCALE_POINTER = 18,
       LF_LT_DESC_BIAS_TYPE = 26,
       LF_LT_DESC_A_SCALE_MODE = 31, /* CUDA 12.8 */
       LF_LT_DESC_B_SCALE_MODE = 32,
       LF_LT_SCALE_SCALAR = 0,
       LF_LT_SCALE_VEC128 = 4, /* CUDA 12.9, sm_90 */
       LF_LT_SCALE_BLK128 = 5,
       LF_LT_EPILOGUE_BIAS = 4,
       LF_LT_PREF_WORKSPACE = 1,
       LF_LT_PREF_REDUCTION = 3,
       LF_LT_PREF_ALIGN_A = 5,
       LF_LT_PREF_ALIGN_B = 6,
       LF_LT_PREF_ALIGN_C = 7,
       LF_LT_PREF_ALIGN_D = 8,
       LF_LT_REDUCTION_COMPUTE_TYPE = 2
};
struct lf_lt_algo {
    uint64_t data[8];
};
struct lf_lt_heuristic {
    struct lf_lt_algo algo;
    size_t work;
    int state;
    float waves;
    int reserved[4];
};

#define LF_LT_LIST(X)                                                                              \
    X(Create, (void **handle))                                                                     \
    X(Destroy, (void *handle))                                                                     \
    X(MatmulDescCreate, (void **op, int compute, int scale))                                       \
    X(MatmulDescDestroy, (void *op))                                                               \
    X(MatmulDescSetAttribute, (void *op, int what, const void *value, size_t bytes))               \
    X(MatrixLayoutCreate, (void **l, int type, uint64_t rows, uint64_t cols, int64_t ld))          \
    X(MatrixLayoutDestroy, (void *l))                                                              \
    X(MatmulPreferenceCreate, (void **p))                                                          \
    X(MatmulPreferenceDestroy, (void *p))                                                          \
    X(MatmulPreferenceSetAttribute, (void *p, int what, const void *value, size_t bytes))          \
    X(MatmulAlgoGetHeuristic, (void *handle, void *op, void *a, void *b, void *c, void *d,         \
                               void *p, int want, struct lf_lt_heuristic *out, int *got))          \
    X(Matmul, (void *handle, void *op, const void *alpha, const void *a, void *la, const void *b,  \
               void *lb, const void *beta, const void *c, void *lc, void *d, void *ld,             \
               const struct lf_lt_algo *algo, void *work, size_t bytes, lf_cu_stream s))

struct lf_lt {
#define LF_LT_MEMBER(name, args) int(*name) args;
    LF_LT_LIST(LF_LT_MEMBER)
#undef LF_LT_MEMBER
    size_t (*GetVersion)(void);
    void *library; /* of dlopen, or NULL */
};

/* Workspace that the library's algorithms may use, and the number of multiply-adds of a product
 * from which on they get it. */
enum { LF_LT_WORK_MIB = 32 };
#define LF_LT_WORK_FROM 1e8

/* Runs g when the library is there and has an algorithm for it. *done says whether it ran. If not,
 * nothing is queued. */
int lf_blaslt_gemm(lf_queue *q, const struct lf_k_gemm *g, bool *done);
/* The same for 8-bit factors. Only the library multiplies them. */
int lf_blaslt_gemm_fp8(lf_queue *q, const struct lf_k_gemm_fp8 *f, bool *done);
/* Takes this table in place of the library's (tests). NULL: as if there were no library. */
int lf_blaslt_use(struct lf_cu_device *d, const struct lf_lt *lt);
void lf_blaslt_close(struct lf_cu_device *d);
/* The implementation of products in a mode, for plans and fingerprints: "own", or with LF_FAST and
 * the library "cublasLt 130100". Where LF_GEMM_CUDA chose our other family (gemm_form.h): "own
 * wgmma", "cublasLt 130100, own wgmma". */
const char *lf_cuda_gemm_algorithm(struct lf_cu_device *d, enum lf_numeric mode);

#endif
