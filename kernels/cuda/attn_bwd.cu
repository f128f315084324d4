/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention's backward for 16-bit types (attn_bwd.h tells the plan): a block of four warps holds 64
 * rows of its own and walks tiles of 64 others. At most 128 channels of the gradients are in
 * registers, so wide heads take two blocks; where dk and dv of 128 fill them and sm_100's ptxas
 * would spill 1,260 bytes, a tile is taken in two halves, whose elements are added in the same
 * order. (sm_90 spills 68 bytes, reloaded 13 times a tile; halves would cost 16 ldmatrix more.)
 */
#include "kernels/cuda/attn_bwd_mma.h"

/* delta[h][t] = do . o, a warp for each. work holds delta. */
LF_KERNEL(attn_bwd_delta, struct lf_k_attn_bwd, 256)
{
    const int64_t n = lf_index() / 32, t = n / a->heads, h = n % a->heads;
    const int lane = (int)threadIdx.x % 32;
    float sum = 0.0f;
    for (int64_t c = lane; t < a->rows && c < a->d_value; c += 32)
        sum = fmaf(lf_load(a->d_o, t * a->lddo + h * a->d_value + c, a->x_type),
                   lf_load(a->o, t * a->ldo + h * a->d_value + c, a->x_type), sum);
    sum = lf_warp_sum(sum);
    if (t < a->rows && lane == 0)
        ((float *)a->work)[h * a->rows + t] = sum;
}

/* A warp for each row and head. */
LF_KERNEL(attn_sinks_bwd, struct lf_k_attn_sinks_bwd, 256)
{
    const int64_t n = lf_index() / 32, t = n / a->heads, h = n % a->heads;
    const int lane = (int)threadIdx.x % 32;
    float sum = 0.0f;
    for (int64_t c = lane; t < a->rows && c < a->d_value; c += 32)
        sum = fmaf(lf_load(a->d_o, t * a->lddo + h * a->d_value + c, a->x_type),
                   lf_load(a->o, t * a->ldo + h * a->d_value + c, a->x_type), sum);
    sum = lf_warp_sum(sum);
    if (t < a->rows && lane == 0) {
        const float lse = a->lse[h * a->rows + t];
        a->ds[t * a->ldds + h] = lse == -INFINITY ? 0.0f : -expf(a->sinks[h] - lse) * sum;
    }
}

/* acc += p (left operands) times channels c0 ... + cols - 1 of rows row0 ... of a tile, 16 n of
 * them. */
LF_DEV void bwd_add(float (*acc)[4], uint32_t p[4][4], const uint16_t *tile, int row0,
                    const int n16, int c0, int lane, const int cols, const int dp, const int type)
{
    LF_UNROLL for (int k = 0; k < n16; k++)
    {
        LF_UNROLL for (int n = 0; n < cols / 8; n += 2)
        {
            uint32_t b[4];
            attn_right(b, tile, row0 / 16 + k, c0 / 8 + n, lane, dp);
            attn_mma(acc[n], p[k], b, type);
            attn_mma(acc[n + 1], p[k], b + 2, type);
        }
    }
}

/* A warp's step over the tile x0 of others at ... + 63. */
LF_DEV void bwd_step(const struct bwd_block *b, float (*ds)[4], float (*dv)[4], const uint16_t *own,
                     const uint16_t *x0, const struct attn_draws *draws, int at, int c0,
                     const bool keys, const int cols, const int dp, const int type)
{
    const int row0 = 16 * ((int)threadIdx.x / 32), tile = ATTN_T * dp,
              n = keys && dp > 64 && LF_ARCH >= 1000 ? 2 : 4;
    uint32_t bits = 0;
    if (draws)
        bits = bwd_bits(b, draws, at, keys);
    LF_ROLLED for (int col0 = 0; col0 < ATTN_T; col0 += 16 * n)
    {
        float x[8][4], y[8][4];
        uint32_t p[4][4];
        attn_scores_of(x, NULL, own, row0, x0, col0, n, b->lane, dp, type);
        attn_scores_of(y, NULL, own + tile, row0, x0 + tile, col0, n, b->lane, dp, type);
        bwd_elements(b, x, y, draws, bits, at, col0, n, keys, false);
        if (keys) {
            attn_as_left(p, x, n, type);
            bwd_add(dv, p, x0 + tile, col0, n, c0, b->lane, cols, dp, type);
        }
        attn_as_left(p, y, n, type);
        bwd_add(ds, p, x0, col0, n, c0, b->lane, cols, dp, type);
    }
}

enum { BWD_THREADS = 128, BWD_OWN = 64, BWD_BOX = 0, BWD_STEP_ROWS = 16 };
#define BWD_LANDED() ((void)0)
#include "kernels/cuda/attn_bwd_body.h"

#define BWD(name, keys, dp, type)                                                                  \
    LF_KERNEL(name, struct lf_k_attn_bwd, 128)                                                     \
    {                                                                                              \
        LF_SHARED(uint16_t, smem);                                                                 \
        bwd_body(a, smem, keys, dp, type);                                                         \
    }
BWD(attn_dq_bf16_64, false, 64, LF_BF16)
BWD(attn_dq_f16_64, false, 64, LF_F16)
BWD(attn_dq_bf16_128, false, 128, LF_BF16)
BWD(attn_dq_f16_128, false, 128, LF_F16)
BWD(attn_dq_bf16_256, false, 256, LF_BF16)
BWD(attn_dq_f16_256, false, 256, LF_F16)
BWD(attn_dkv_bf16_64, true, 64, LF_BF16)
BWD(attn_dkv_f16_64, true, 64, LF_F16)
BWD(attn_dkv_bf16_128, true, 128, LF_BF16)
BWD(attn_dkv_f16_128, true, 128, LF_F16)
BWD(attn_dkv_bf16_256, true, 256, LF_BF16)
BWD(attn_dkv_f16_256, true, 256, LF_F16)
