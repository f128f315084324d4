/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of a bf16 or f16 matrix product on Hopper's tensor cores, device side: the ring of stages
 * between the copy engine and the warpgroups that multiply. Arguments named in capitals are
 * constants at every call.
 *
 * A tile lies in shared memory as boxes of the copy engine. A row of a box is 64 elements (128
 * bytes) with its 16-byte pieces permuted (128-byte swizzle). With k along the row, one box has all
 * lanes. With lanes along the row, each 64 lanes have a box of LF_WG_BK k. Elements outside of the
 * matrix become zeros.
 */
#ifndef LF_KERNELS_CUDA_GEMM_WG_H
#define LF_KERNELS_CUDA_GEMM_WG_H

#include "kernels/cuda/dev_hopper.h"
#include "kernels/cuda/gemm_args.h"

enum { LF_WG_BOX = 64 * LF_WG_BK * 2 }; /* bytes of 64 lanes of a stage, either way */

struct lf_wg_ring {
    unsigned char *stage;
    uint64_t *full, *empty; /* one barrier of each kind per stage */
    int at;                 /* the stage that comes next */
    unsigned parity;        /* parity of that stage's phase; it changes at every turn of the ring */
};

/* The ring at the start of shared memory, rounded up to the alignment of a swizzled tile. *rest
 * becomes the memory after it. */
LF_DEV struct lf_wg_ring lf_wg_ring(unsigned char *smem, unsigned char **rest, const int STAGES,
                                    const int BYTES, const int READERS)
{
    struct lf_wg_ring r;
    r.stage = smem + (LF_WG_ALIGN - lf_smem_addr(smem) % LF_WG_ALIGN) % LF_WG_ALIGN;
    r.full = (uint64_t *)(void *)(r.stage + STAGES * BYTES);
    r.empty = r.full + STAGES;
    r.at = 0;
    r.parity = 0;
    *rest = (unsigned char *)(r.empty + STAGES);
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            lf_mbar_init(&r.full[i], 1);
            lf_mbar_init(&r.empty[i], READERS); /* warps */
        }
        lf_mbar_init_fence();
    }
    __syncthreads();
    return r;
}

LF_DEV void lf_wg_next(struct lf_wg_ring *r, const int STAGES)
{
    if (++r->at == STAGES) {
        r->at = 0;
        r->parity ^= 1;
    }
}

/* One thread calls it. Brings an operand's part of a stage: LANES lanes from `lane` on, LF_WG_BK of
 * k. */
LF_DEV void lf_wg_fetch(unsigned char *dst, const struct lf_cu_tensor_map *m, int lane, int k,
                        uint64_t *full, const bool BY_LANES, const int LANES)
{
    if (!BY_LANES) {
        lf_tma_2d(dst, m, k, lane, full);
        return;
    }
    LF_UNROLL for (int i = 0; i < LANES / 64; i++)
        lf_tma_2d(dst + i * LF_WG_BOX, m, lane + 64 * i, k, full);
}

/* The descriptor of k step ks of an operand's part of a stage. */
LF_DEV uint64_t lf_wg_desc(const unsigned char *tile, int ks, const bool BY_LANES)
{
    return LF_WG_DESC(lf_smem_addr(tile) + (BY_LANES ? ks * 16 * 128 : ks * 32),
                      BY_LANES ? LF_WG_BOX : 16, 1024);
}

#endif
