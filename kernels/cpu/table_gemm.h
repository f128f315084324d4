/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix-product kernels that the CPU backend implements: rows of the table in table.c.
 */
#ifndef LF_CPU_TABLE_GEMM_H
#define LF_CPU_TABLE_GEMM_H

#define LF_CPU_GEMM_LIST(X)                                                                        \
    X(gemm)                                                                                        \
    X(gemm_pack) X(colsum) X(linear_xent) X(logit_stats) X(grouped_gemm) X(quantise) X(gemm_fp8)

#endif
