/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of device functions, X(file, name). kernels/cuda/file.cu defines LF_KERNEL(name, ...).
 * Each group of files has a section. LF_CU_FILES names the .cu files themselves.
 */
#ifndef LF_KERNELS_CUDA_FNS_H
#define LF_KERNELS_CUDA_FNS_H

#define LF_CU_FNS_ELEMENTWISE(X)                                                                   \
    X(elementwise, fill)                                                                           \
    X(elementwise, axpby)                                                                          \
    X(elementwise, act_fwd)                                                                        \
    X(elementwise, act_bwd)                                                                        \
    X(elementwise, glu_fwd)                                                                        \
    X(elementwise, glu_bwd)                                                                        \
    X(elementwise, gather_rows)                                                                    \
    X(elementwise, dropout)

#define LF_CU_FNS_ROWS(X)                                                                          \
    X(rows, norm_fwd)                                                                              \
    X(rows, norm_fwd_few)                                                                          \
    X(rows, norm_bwd)                                                                              \
    X(rows, norm_bwd_wide)                                                                         \
    X(rows, norm_bwd_sum)                                                                          \
    X(rows, unit_rows_fwd)                                                                         \
    X(rows, unit_rows_bwd)                                                                         \
    X(rows, row_gate_fwd)                                                                          \
    X(rows, row_gate_bwd)

#define LF_CU_FNS_EMBED(X)                                                                         \
    X(sort, sort_count)                                                                            \
    X(sort, sort_tiles)                                                                            \
    X(sort, sort_bins)                                                                             \
    X(sort, sort_place)                                                                            \
    X(embed, embed_fwd)                                                                            \
    X(embed, embed_add)

#define LF_CU_FNS_OPTIM(X)                                                                         \
    X(optim, grad_norm)                                                                            \
    X(optim, grad_norm_end)                                                                        \
    X(optim, adamw)                                                                                \
    X(optim, moe_balance)                                                                          \
    X(optim, sum_ranks)

#define LF_CU_FNS_MOE(X)                                                                           \
    X(moe, moe_route)                                                                              \
    X(moe, moe_route_bwd)                                                                          \
    X(moe, moe_stats)                                                                              \
    X(moe, moe_keep)                                                                               \
    X(moe, moe_sort)                                                                               \
    X(moe, moe_combine)                                                                            \
    X(moe, moe_combine_bwd)                                                                        \
    X(moe, moe_gain)                                                                               \
    X(moe, moe_gain_dw)                                                                            \
    X(moe, moe_stats_end)

#define LF_CU_FNS_GEMM(X)                                                                          \
    X(gemm, gemm_bf16_nt)                                                                          \
    X(gemm, gemm_bf16_nn)                                                                          \
    X(gemm, gemm_bf16_tn)                                                                          \
    X(gemm, gemm_f16_nt)                                                                           \
    X(gemm, gemm_f16_nn)                                                                           \
    X(gemm, gemm_f16_tn)                                                                           \
    X(gemm, gemm_bf16_small)                                                                       \
    X(gemm, gemm_f16_small)                                                                        \
    X(gemm, gemm_f32_big)                                                                          \
    X(gemm, gemm_f32_small)                                                                        \
    X(gemm, gemm_join)                                                                             \
    X(gemm, gemm_post)                                                                             \
    X(gemm, gemm_bf16_rows)                                                                        \
    X(gemm, gemm_f16_rows)                                                                         \
    X(gemm_wgmma, gemm_wg_bf16_nt)                                                                 \
    X(gemm_wgmma, gemm_wg_bf16_nn)                                                                 \
    X(gemm_wgmma, gemm_wg_bf16_tn)                                                                 \
    X(gemm_wgmma, gemm_wg_bf16_tt)                                                                 \
    X(gemm_wgmma, gemm_wg_f16_nt)                                                                  \
    X(gemm_wgmma, gemm_wg_f16_nn)                                                                  \
    X(gemm_wgmma, gemm_wg_f16_tn)                                                                  \
    X(gemm_wgmma, gemm_wg_f16_tt)                                                                  \
    X(gemm_wgmma, gemm_wg_bf16_rows16)                                                             \
    X(gemm_wgmma, gemm_wg_bf16_rows64)                                                             \
    X(gemm_wgmma, gemm_wg_f16_rows16)                                                              \
    X(gemm_wgmma, gemm_wg_f16_rows64)                                                              \
    X(colsum, colsum)                                                                              \
    X(colsum, colsum_join)                                                                         \
    X(colsum, grouped_colsum)                                                                      \
    X(grouped, grouped_bf16)                                                                       \
    X(grouped, grouped_f16)                                                                        \
    X(grouped, grouped_f32)

#define LF_CU_FNS_XENT(X)                                                                          \
    X(xent, xent_rows)                                                                             \
    X(xent, xent_parts)                                                                            \
    X(xent, xent_joined)                                                                           \
    X(xent, xent_sums)                                                                             \
    X(xent, logit_stats)

#define LF_CU_FNS_ATTN(X)                                                                          \
    X(attn_fwd, attn_fwd_bf16_64)                                                                  \
    X(attn_fwd, attn_fwd_f16_64)                                                                   \
    X(attn_fwd, attn_fwd_bf16_128)                                                                 \
    X(attn_fwd, attn_fwd_f16_128)                                                                  \
    X(attn_fwd, attn_fwd_bf16_256)                                                                 \
    X(attn_fwd, attn_fwd_f16_256)                                                                  \
    X(attn_bwd, attn_bwd_delta)                                                                    \
    X(attn_bwd, attn_sinks_bwd)                                                                    \
    X(attn_bwd, attn_dq_bf16_64)                                                                   \
    X(attn_bwd, attn_dq_f16_64)                                                                    \
    X(attn_bwd, attn_dq_bf16_128)                                                                  \
    X(attn_bwd, attn_dq_f16_128)                                                                   \
    X(attn_bwd, attn_dq_bf16_256)                                                                  \
    X(attn_bwd, attn_dq_f16_256)                                                                   \
    X(attn_bwd, attn_dkv_bf16_64)                                                                  \
    X(attn_bwd, attn_dkv_f16_64)                                                                   \
    X(attn_bwd, attn_dkv_bf16_128)                                                                 \
    X(attn_bwd, attn_dkv_f16_128)                                                                  \
    X(attn_bwd, attn_dkv_bf16_256)                                                                 \
    X(attn_bwd, attn_dkv_f16_256)                                                                  \
    X(attn_fwd_wgmma, attn_fwd_wg_bf16_64)                                                         \
    X(attn_fwd_wgmma, attn_fwd_wg_f16_64)                                                          \
    X(attn_fwd_wgmma, attn_fwd_wg_bf16_128)                                                        \
    X(attn_fwd_wgmma, attn_fwd_wg_f16_128)                                                         \
    X(attn_bwd_wgmma, attn_dq_wg_bf16_64)                                                          \
    X(attn_bwd_wgmma, attn_dq_wg_f16_64)                                                           \
    X(attn_bwd_wgmma, attn_dq_wg_bf16_128)                                                         \
    X(attn_bwd_wgmma, attn_dq_wg_f16_128)                                                          \
    X(attn_bwd_wgmma, attn_dkv_wg_bf16_64)                                                         \
    X(attn_bwd_wgmma, attn_dkv_wg_f16_64)                                                          \
    X(attn_bwd_wgmma, attn_dkv_wg_bf16_128)                                                        \
    X(attn_bwd_wgmma, attn_dkv_wg_f16_128)                                                         \
    X(attn_bwd_f32, attn_dq_f32)                                                                   \
    X(attn_bwd_f32, attn_dkv_f32)                                                                  \
    X(attn_f32, attn_fwd_f32)                                                                      \
    X(attn_ragged, attn_ragged)

#define LF_CU_FNS_CACHE(X)                                                                         \
    X(rope, rope)                                                                                  \
    X(rope, heads_join)                                                                            \
    X(rope, heads_split)                                                                           \
    X(rope, kv_write)                                                                              \
    X(attn_paged, attn_paged_bf16_64)                                                              \
    X(attn_paged, attn_paged_f16_64)                                                               \
    X(attn_paged, attn_paged_bf16_128)                                                             \
    X(attn_paged, attn_paged_f16_128)                                                              \
    X(attn_paged, attn_paged_bf16_256)                                                             \
    X(attn_paged, attn_paged_f16_256)                                                              \
    X(attn_paged, attn_paged_f32)                                                                  \
    X(attn_paged, attn_split_bf16_64)                                                              \
    X(attn_paged, attn_split_f16_64)                                                               \
    X(attn_paged, attn_split_bf16_128)                                                             \
    X(attn_paged, attn_split_f16_128)                                                              \
    X(attn_paged, attn_split_bf16_256)                                                             \
    X(attn_paged, attn_split_f16_256)                                                              \
    X(attn_paged, attn_join)

#define LF_CU_FNS_DORA(X)                                                                          \
    X(dora, dora_norm)                                                                             \
    X(dora, dora_fwd)                                                                              \
    X(dora, dora_bwd)                                                                              \
    X(dora, root)

#define LF_CU_FNS_MIX(X)                                                                           \
    X(mix, mix_rows)                                                                               \
    X(mix, col_gate_fwd)                                                                           \
    X(mix, col_gate_bwd)

#define LF_CU_FNS_ALTUP(X)                                                                         \
    X(altup, altup_mix)                                                                            \
    X(altup, altup_mix_dw)                                                                         \
    X(altup, match_rms_fwd)                                                                        \
    X(altup, match_rms_bwd)                                                                        \
    X(altup, gauss_topk_fwd)                                                                       \
    X(altup, gauss_topk_bwd)

#define LF_CU_FNS_XIELU(X)                                                                         \
    X(xielu, xielu_fwd)                                                                            \
    X(xielu, xielu_bwd)                                                                            \
    X(xielu, xielu_sum)

#define LF_CU_FNS_DWCONV(X)                                                                        \
    X(dwconv, dwconv_filter)                                                                       \
    X(dwconv, dwconv_bwd)                                                                          \
    X(dwconv, turn_rows)

#define LF_CU_FNS_SCAN(X)                                                                          \
    X(conv, conv_fwd)                                                                              \
    X(conv, conv_keep)                                                                             \
    X(conv, conv_bwd)                                                                              \
    X(conv, scan_gate_fwd)                                                                         \
    X(conv, scan_gate_bwd)                                                                         \
    X(scan, scan_fwd)                                                                              \
    X(scan, scan_keep)                                                                             \
    X(scan, scan_back)                                                                             \
    X(scan, scan_grads)                                                                            \
    X(scan, scan_grads_few)                                                                        \
    X(scan, scan_join)                                                                             \
    X(scan, scan_skip)

#define LF_CU_FNS_FP8(X)                                                                           \
    X(fp8, quantise_most)                                                                          \
    X(fp8, quantise)

#define LF_CU_FNS_SAMPLE(X)                                                                        \
    X(sample, sample_max)                                                                          \
    X(sample, sample_bins)                                                                         \
    X(sample, sample_cut)                                                                          \
    X(sample, sample_gather)                                                                       \
    X(sample, sample_pick)

#define LF_CU_FNS(X)                                                                               \
    LF_CU_FNS_ELEMENTWISE(X)                                                                       \
    LF_CU_FNS_ROWS(X)                                                                              \
    LF_CU_FNS_EMBED(X)                                                                             \
    LF_CU_FNS_OPTIM(X)                                                                             \
    LF_CU_FNS_MOE(X)                                                                               \
    LF_CU_FNS_GEMM(X)                                                                              \
    LF_CU_FNS_XENT(X)                                                                              \
    LF_CU_FNS_ATTN(X)                                                                              \
    LF_CU_FNS_CACHE(X)                                                                             \
    LF_CU_FNS_DORA(X)                                                                              \
    LF_CU_FNS_MIX(X)                                                                               \
    LF_CU_FNS_ALTUP(X)                                                                             \
    LF_CU_FNS_XIELU(X)                                                                             \
    LF_CU_FNS_DWCONV(X)                                                                            \
    LF_CU_FNS_SCAN(X)                                                                              \
    LF_CU_FNS_FP8(X)                                                                               \
    LF_CU_FNS_SAMPLE(X)

#define LF_CU_FILES(X)                                                                             \
    X(attn_f32)                                                                                    \
    X(attn_fwd)                                                                                    \
    X(attn_paged)                                                                                  \
    X(attn_ragged)                                                                                 \
    X(colsum)                                                                                      \
    X(conv)                                                                                        \
    X(attn_bwd)                                                                                    \
    X(attn_fwd_wgmma)                                                                              \
    X(attn_bwd_wgmma)                                                                              \
    X(attn_bwd_f32)                                                                                \
    X(dora)                                                                                        \
    X(elementwise)                                                                                 \
    X(embed)                                                                                       \
    X(fp8)                                                                                         \
    X(gemm)                                                                                        \
    X(gemm_wgmma)                                                                                  \
    X(grouped)                                                                                     \
    X(mix)                                                                                         \
    X(altup)                                                                                       \
    X(xielu)                                                                                       \
    X(dwconv)                                                                                      \
    X(moe)                                                                                         \
    X(optim)                                                                                       \
    X(rope)                                                                                        \
    X(rows)                                                                                        \
    X(sample)                                                                                      \
    X(scan)                                                                                        \
    X(sort)                                                                                        \
    X(xent)

#endif
