/* SPDX-License-Identifier: Apache-2.0
 *
 * The other kernels that the CPU backend implements: rows of the table in table.c.
 */
#ifndef LF_CPU_TABLE_KERN_H
#define LF_CPU_TABLE_KERN_H

#define LF_CPU_KERN_LIST(X)                                                                        \
    X(act_fwd)                                                                                     \
    X(act_bwd)                                                                                     \
    X(glu_fwd)                                                                                     \
    X(glu_bwd)                                                                                     \
    X(axpby)                                                                                       \
    X(fill)                                                                                        \
    X(gather_rows)                                                                                 \
    X(dropout)                                                                                     \
    X(norm_fwd)                                                                                    \
    X(norm_bwd)                                                                                    \
    X(unit_rows_fwd)                                                                               \
    X(unit_rows_bwd)                                                                               \
    X(embed_fwd)                                                                                   \
    X(embed_bwd)                                                                                   \
    X(rope)                                                                                        \
    X(grad_norm)                                                                                   \
    X(adamw)                                                                                       \
    X(attn_fwd)                                                                                    \
    X(attn_bwd)                                                                                    \
    X(kv_write)                                                                                    \
    X(attn_paged)                                                                                  \
    X(moe_route)                                                                                   \
    X(moe_route_bwd)                                                                               \
    X(moe_stats)                                                                                   \
    X(moe_sort)                                                                                    \
    X(moe_combine)                                                                                 \
    X(moe_combine_bwd)                                                                             \
    X(row_gate_fwd)                                                                                \
    X(row_gate_bwd)                                                                                \
    X(moe_balance)                                                                                 \
    X(dora_norm)                                                                                   \
    X(dora_fwd)                                                                                    \
    X(dora_bwd)

#endif
