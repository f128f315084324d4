/* SPDX-License-Identifier: Apache-2.0
 *
 * Host side of attention: the checks and sizes that the launchers share.
 */
#ifndef LF_KERNELS_CUDA_ATTN_ARGS_H
#define LF_KERNELS_CUDA_ATTN_ARGS_H

#include "kernels/cuda/args.h"

enum { LF_CU_ATTN_MAX_D = 256, LF_CU_ATTN_MAX_HEADS = 65535 };

static inline bool lf_cu_attn_heads_ok(int64_t heads, int64_t groups, int64_t d, int64_t d_value)
{
    return heads > 0 && heads <= LF_CU_ATTN_MAX_HEADS && groups > 0 && heads % groups == 0 &&
           d > 0 && d % 2 == 0 && d <= LF_CU_ATTN_MAX_D && d_value > 0 &&
           d_value <= LF_CU_ATTN_MAX_D;
}
static inline bool lf_cu_attn_drop_ok(const struct lf_k_attn_drop *d, int64_t heads, int64_t rows)
{
    return d->p == 0.0f ||
           (d->p > 0.0f && d->p < 1.0f && d->head0 + heads <= 1024 && rows < (int64_t)1 << 24);
}
/* The channels of keys and of values, whichever are more: tiles of both are as wide. */
static inline int64_t lf_cu_attn_wide(int64_t d, int64_t d_value)
{
    return d > d_value ? d : d_value;
}
/* The channels of a tile of 16-bit rows, of heads of `wide` channels. */
static inline int64_t lf_cu_attn_dp(int64_t wide)
{
    return wide <= 64 ? 64 : wide <= 128 ? 128 : 256;
}
/* Bytes beside the tiles: a mask of 64 keys for each channel, and a flag. */
static inline size_t lf_cu_attn_mend_bytes(int64_t dp)
{
    return (size_t)dp * 8 + 16;
}
static inline size_t lf_cu_attn_f32_smem(int64_t wide)
{
    const int64_t dp = (wide + 63) / 64 * 64;
    return (size_t)(2 * 64 * (dp + 4) + 64 * 68) * sizeof(float);
}
static inline size_t lf_cu_attn_bwd_f32_smem(int64_t wide)
{
    const int64_t dp = (wide + 63) / 64 * 64;
    return (size_t)(4 * 32 * (dp + 4) + 2 * 32 * 33) * sizeof(float);
}

#endif
