/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that the CUDA backend implements, X(name), a section per group. When a plan is bound,
 * a kernel without a line here is refused by name.
 */
#ifndef LF_KERNELS_CUDA_TABLE_H
#define LF_KERNELS_CUDA_TABLE_H

#define LF_CUDA_LIST_ELEMENTWISE(X)                                                                \
    X(fill)                                                                                        \
    X(axpby)                                                                                       \
    X(act_fwd)                                                                                     \
    X(act_bwd)                                                                                     \
    X(glu_fwd)                                                                                     \
    X(glu_bwd)                                                                                     \
    X(gather_rows)                                                                                 \
    X(dropout)

#define LF_CUDA_LIST_ROWS(X)                                                                       \
    X(norm_fwd)                                                                                    \
    X(norm_bwd)                                                                                    \
    X(unit_rows_fwd)                                                                               \
    X(unit_rows_bwd)                                                                               \
    X(row_gate_fwd)                                                                                \
    X(row_gate_bwd)

#define LF_CUDA_LIST_EMBED(X)                                                                      \
    X(embed_fwd)                                                                                   \
    X(embed_bwd)

#define LF_CUDA_LIST_OPTIM(X)                                                                      \
    X(grad_norm)                                                                                   \
    X(adamw)                                                                                       \
    X(moe_balance)                                                                                 \
    X(sum_ranks)

#define LF_CUDA_LIST_MOE(X)                                                                        \
    X(moe_route)                                                                                   \
    X(moe_route_bwd)                                                                               \
    X(moe_stats)                                                                                   \
    X(moe_keep)                                                                                    \
    X(moe_sort)                                                                                    \
    X(moe_combine)                                                                                 \
    X(moe_combine_bwd)                                                                             \
    X(moe_gain)                                                                                    \
    X(moe_gain_dw)

#define LF_CUDA_LIST_GEMM(X)                                                                       \
    X(gemm)                                                                                        \
    X(colsum)                                                                                      \
    X(grouped_colsum)                                                                              \
    X(grouped_gemm)

#define LF_CUDA_LIST_XENT(X)                                                                       \
    X(linear_xent)                                                                                 \
    X(logit_stats)

#define LF_CUDA_LIST_ATTN(X)                                                                       \
    X(attn_fwd)                                                                                    \
    X(attn_bwd)                                                                                    \
    X(attn_sinks_bwd)

#define LF_CUDA_LIST_CACHE(X)                                                                      \
    X(rope)                                                                                        \
    X(heads_join)                                                                                  \
    X(heads_split)                                                                                 \
    X(kv_write)                                                                                    \
    X(attn_paged)

#define LF_CUDA_LIST_MIX(X)                                                                        \
    X(mix_rows)                                                                                    \
    X(col_gate_fwd)                                                                                \
    X(col_gate_bwd)

#define LF_CUDA_LIST_ALTUP(X)                                                                      \
    X(altup_mix)                                                                                   \
    X(altup_mix_dw)                                                                                \
    X(match_rms_fwd)                                                                               \
    X(match_rms_bwd)                                                                               \
    X(gauss_topk_fwd)                                                                              \
    X(gauss_topk_bwd)

#define LF_CUDA_LIST_XIELU(X)                                                                      \
    X(xielu_fwd)                                                                                   \
    X(xielu_bwd)

#define LF_CUDA_LIST_DWCONV(X)                                                                     \
    X(dwconv_fwd)                                                                                  \
    X(dwconv_bwd)                                                                                  \
    X(turn_rows)

#define LF_CUDA_LIST_SCAN(X)                                                                       \
    X(conv_fwd)                                                                                    \
    X(conv_bwd)                                                                                    \
    X(scan_gate_fwd)                                                                               \
    X(scan_gate_bwd)                                                                               \
    X(scan_fwd)                                                                                    \
    X(scan_bwd)

#define LF_CUDA_LIST_DORA(X)                                                                       \
    X(dora_norm)                                                                                   \
    X(dora_fwd)                                                                                    \
    X(dora_bwd)                                                                                    \
    X(root)

#define LF_CUDA_LIST_FP8(X)                                                                        \
    X(quantise)                                                                                    \
    X(gemm_fp8)

#define LF_CUDA_LIST_SAMPLE(X) X(sample)

#define LF_CUDA_LIST(X)                                                                            \
    LF_CUDA_LIST_ELEMENTWISE(X)                                                                    \
    LF_CUDA_LIST_ROWS(X)                                                                           \
    LF_CUDA_LIST_EMBED(X)                                                                          \
    LF_CUDA_LIST_OPTIM(X)                                                                          \
    LF_CUDA_LIST_MOE(X)                                                                            \
    LF_CUDA_LIST_GEMM(X)                                                                           \
    LF_CUDA_LIST_XENT(X)                                                                           \
    LF_CUDA_LIST_ATTN(X)                                                                           \
    LF_CUDA_LIST_CACHE(X)                                                                          \
    LF_CUDA_LIST_DORA(X)                                                                           \
    LF_CUDA_LIST_MIX(X)                                                                            \
    LF_CUDA_LIST_ALTUP(X)                                                                          \
    LF_CUDA_LIST_XIELU(X)                                                                          \
    LF_CUDA_LIST_DWCONV(X)                                                                         \
    LF_CUDA_LIST_SCAN(X)                                                                           \
    LF_CUDA_LIST_FP8(X)                                                                            \
    LF_CUDA_LIST_SAMPLE(X)

#endif
