/* SPDX-License-Identifier: Apache-2.0
 *
 * The pieces of attention for 16-bit types on Hopper's tensor cores: those of attn_mma.h whose
 * products a warpgroup makes. A warp still owns 16 rows and its lanes hold the same elements. Tiles
 * lie in boxes of 64 channels (attn_place), which is the 128-byte swizzle, and start at multiples
 * of 1024 bytes. The products are asynchronous (dev_hopper.h): what follows them waits.
 */
#ifndef LF_KERNELS_CUDA_ATTN_WG_H
#define LF_KERNELS_CUDA_ATTN_WG_H

#include "kernels/cuda/attn_mma.h"
#include "kernels/cuda/dev_hopper.h"

enum { ATTN_WG_ROWS = 64, ATTN_WG_ALIGN = 1024 };

/* Shared memory from the first place at which a tile may start. */
LF_DEV uint16_t *attn_wg_aligned(unsigned char *smem)
{
    return (uint16_t *)(void *)(smem + (ATTN_WG_ALIGN - lf_smem_addr(smem) % ATTN_WG_ALIGN) %
                                           ATTN_WG_ALIGN);
}

/* Rows from row0 on of a tile with boxes of `box` rows; the sum runs over channels 16 k ... */
LF_DEV uint64_t attn_wg_rows(const uint16_t *tile, int row0, int k, const int box)
{
    return LF_WG_DESC(lf_smem_addr(tile) + (k / 4 * box + row0) * 128 + k % 4 * 32, 16, 1024);
}
/* Channels of a tile of ATTN_T rows; the sum runs over rows 16 k ... */
LF_DEV uint64_t attn_wg_channels(const uint16_t *tile, int k)
{
    return LF_WG_DESC(lf_smem_addr(tile) + k * 16 * 128, ATTN_T * 128, 1024);
}

/* s[64 x 64] = the warpgroup's rows (from row0 on of a tile with boxes of `box` rows) times the
 * rows of a tile, transposed. */
LF_DEV void attn_wg_scores(float s[8][4], const uint16_t *own, int row0, const int box,
                           const uint16_t *tile, const int dp, const int type)
{
    LF_UNROLL for (int k = 0; k < dp / 16; k++)
        lf_wgmma_64(&s[0][0], attn_wg_rows(own, row0, k, box), attn_wg_rows(tile, 0, k, ATTN_T),
                    k > 0, false, false, type);
}

/* acc = p times a tile (+ acc where `add`); p has a column for each row of the tile. */
LF_DEV void attn_wg_product(float (*acc)[4], uint32_t p[4][4], const uint16_t *tile, bool add,
                            const int dp, const int type)
{
    LF_UNROLL for (int k = 0; k < 4; k++)
    {
        if (dp == 64)
            lf_wgmma_reg_64(&acc[0][0], p[k], attn_wg_channels(tile, k), add || k > 0, true, type);
        else
            lf_wgmma_reg_128(&acc[0][0], p[k], attn_wg_channels(tile, k), add || k > 0, true, type);
    }
}

#endif
