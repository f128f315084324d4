/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention's backward for 16-bit types on compute capability 9.0, keys and values of up to 128
 * channels (attn_bwd.h tells the plan). Two warpgroups of a block hold 64 own rows each; while one
 * turns its products into elements, the tensor cores work for the other. Compiled for sm_90a; for
 * other GPUs this file is empty.
 */
#include "kernels/cuda/attn_bwd_mma.h"
#include "kernels/cuda/attn_wg.h"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum {
    BWD_THREADS = 256,
    BWD_OWN = 2 * ATTN_WG_ROWS,
    BWD_BOX = ATTN_T,
    BWD_STEP_ROWS = ATTN_WG_ROWS
};
#define BWD_LANDED() lf_proxy_fence()

/* Whether all of the warp's rows are in the document and see, or are seen by, all others of the
 * tile at. */
LF_DEV bool sees_all(const struct bwd_block *b, int at, const bool keys)
{
    const int q0 = keys ? at : b->first, q1 = keys ? at + ATTN_T - 1 : b->last,
              k0 = keys ? b->first : at, k1 = keys ? b->last : at + ATTN_T - 1;
    return b->last - b->first == 15 && at + ATTN_T <= b->doc.len &&
           (!b->call.causal || k1 <= q0 || k1 < b->doc.prefix) && k0 >= attn_first(&b->call, q1);
}

/* A warpgroup's step over the tile x0 of others at ... + 63. */
LF_DEV void bwd_step(const struct bwd_block *b, float (*ds)[4], float (*dv)[4], const uint16_t *own,
                     const uint16_t *x0, const struct attn_draws *draws, int at, int c0,
                     const bool keys, const int cols, const int dp, const int type)
{
    const int row0 = (int)threadIdx.x / LF_WG * ATTN_WG_ROWS, tile = ATTN_T * dp;
    float x[8][4], y[8][4];
    uint32_t p[4][4], s[4][4], bits = 0;
    if (draws)
        bits = bwd_bits(b, draws, at, keys);
    lf_wgmma_fence();
    attn_wg_scores(x, own, row0, BWD_OWN, x0, dp, type);
    attn_wg_scores(y, own + BWD_OWN * dp, row0, BWD_OWN, x0 + tile, dp, type);
    lf_wgmma_commit();
    lf_wgmma_wait(0);
    LF_WGMMA_HOLD(&x[0][0], 32);
    LF_WGMMA_HOLD(&y[0][0], 32);
    if (!draws && sees_all(b, at, keys))
        bwd_elements(b, x, y, NULL, 0, at, 0, 4, keys, true);
    else
        bwd_elements(b, x, y, draws, bits, at, 0, 4, keys, false);
    attn_as_left(s, y, 4, type);
    LF_WGMMA_HOLD(&ds[0][0], dp / 2);
    if (keys) {
        attn_as_left(p, x, 4, type);
        LF_WGMMA_HOLD(&dv[0][0], dp / 2);
    }
    lf_wgmma_fence();
    if (keys)
        attn_wg_product(dv, p, x0 + tile, true, dp, type);
    attn_wg_product(ds, s, x0, true, dp, type);
    lf_wgmma_commit();
    lf_wgmma_wait(0);
    LF_WGMMA_HOLD(&ds[0][0], dp / 2);
    if (keys)
        LF_WGMMA_HOLD(&dv[0][0], dp / 2);
    (void)c0;
    (void)cols;
}

#include "kernels/cuda/attn_bwd_body.h"

#define BWD(name, keys, dp, type)                                                                  \
    LF_KERNEL_PER_SM(name, struct lf_k_attn_bwd, BWD_THREADS, 1)                                   \
    {                                                                                              \
        LF_SHARED(unsigned char, smem);                                                            \
        bwd_body(a, attn_wg_aligned(smem), keys, dp, type);                                        \
    }
BWD(attn_dq_wg_bf16_64, false, 64, LF_BF16)
BWD(attn_dq_wg_f16_64, false, 64, LF_F16)
BWD(attn_dq_wg_bf16_128, false, 128, LF_BF16)
BWD(attn_dq_wg_f16_128, false, 128, LF_F16)
BWD(attn_dkv_wg_bf16_64, true, 64, LF_BF16)
BWD(attn_dkv_wg_f16_64, true, 64, LF_F16)
BWD(attn_dkv_wg_bf16_128, true, 128, LF_BF16)
BWD(attn_dkv_wg_f16_128, true, 128, LF_F16)

#endif
