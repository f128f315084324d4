/* SPDX-License-Identifier: Apache-2.0
 *
 * gemm_blaslt.h against the toolkit's own header: compiled only where there is one, never called.
 */
#pragma GCC diagnostic push /* what the toolkit's headers do */
#pragma GCC diagnostic ignored "-Wundef"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#include <cublasLt.h>
#pragma GCC diagnostic pop

#include "kernels/cuda/gemm_blaslt.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(LF_LT_COMPUTE_32F, CUBLAS_COMPUTE_32F);
SAME(LF_LT_R_32F, CUDA_R_32F);
SAME(LF_LT_R_16F, CUDA_R_16F);
SAME(LF_LT_R_16BF, CUDA_R_16BF);
SAME(LF_LT_R_8F_E4M3, CUDA_R_8F_E4M3);
SAME(LF_LT_R_8F_E5M2, CUDA_R_8F_E5M2);
SAME(LF_LT_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
SAME(LF_LT_DESC_B_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
#if CUBLAS_VERSION >= 120900
SAME(LF_LT_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
SAME(LF_LT_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_DESC_B_SCALE_MODE);
SAME(LF_LT_SCALE_SCALAR, CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F);
SAME(LF_LT_SCALE_VEC128, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
SAME(LF_LT_SCALE_BLK128, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
#endif
SAME(LF_LT_OP_N, CUBLAS_OP_N);
SAME(LF_LT_OP_T, CUBLAS_OP_T);
SAME(LF_LT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(LF_LT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(LF_LT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(LF_LT_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(LF_LT_DESC_BIAS_TYPE, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(LF_LT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BIAS);
SAME(LF_LT_PREF_WORKSPACE, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(LF_LT_PREF_REDUCTION, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(LF_LT_PREF_ALIGN_A, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(LF_LT_PREF_ALIGN_B, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(LF_LT_PREF_ALIGN_C, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(LF_LT_PREF_ALIGN_D, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(LF_LT_REDUCTION_COMPUTE_TYPE, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
_Static_assert(sizeof(struct lf_lt_algo) == sizeof(cublasLtMatmulAlgo_t), "algorithm");
_Static_assert(sizeof(struct lf_lt_heuristic) == sizeof(cublasLtMatmulHeuristicResult_t) &&
                   offsetof(struct lf_lt_heuristic, work) ==
                       offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
                   offsetof(struct lf_lt_heuristic, state) ==
                       offsetof(cublasLtMatmulHeuristicResult_t, state),
               "heuristic");
