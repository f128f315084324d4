/* SPDX-License-Identifier: Apache-2.0
 *
 * Tiles of a bf16 or f16 matrix product on tensor cores, device side. Arguments named in capitals
 * are constants at every call, so the compiler makes one straight loop of each call.
 *
 * Shared memory holds, per stage, a tile of A and a tile of B, LF_MM_BK deep, in the order of
 * memory. "k contiguous": a row of the tile is 32 k of one lane. "Lanes contiguous": a row is the
 * lanes of one k. A lane is a row of A or a column of B.
 *
 * ldmatrix reads eight rows of 16 bytes at once. There is no conflict when the eight fall into
 * eight different 16-byte columns of the 128 bytes of banks. Piece c of row r therefore lies at
 * this place:
 *   k contiguous      c ^ (r / 2 % 4). A row has 64 bytes, so the rows r, r + 2, r + 4, r + 6 start
 *                     at the same bank; r % 2 chooses the half of the banks.
 *   lanes contiguous  c ^ (r % 8). A row is a multiple of 128 bytes.
 * Copies into shared memory write whole rows, so neither order makes them conflict.
 */
#ifndef LF_KERNELS_CUDA_GEMM_MMA_H
#define LF_KERNELS_CUDA_GEMM_MMA_H

#include "kernels/cuda/dev.h"
#include "kernels/cuda/gemm_args.h"

/* The pieces of eight elements that a thread copies of one operand's tile. Both orders have two. */
enum { LF_MM_PIECES = 2 };

struct lf_mm_src {
    const uint16_t *p[LF_MM_PIECES];
    int lanes[LF_MM_PIECES]; /* lanes contiguous: how many are left from p on */
    int k[LF_MM_PIECES];     /* k of the piece's first element */
    int at[LF_MM_PIECES];    /* its place in the tile */
    int64_t step;            /* of p per stage */
};

/* The sources of this thread's pieces of the tile: lanes from lane0 on of `count`, k from k0 on. */
LF_DEV void lf_mm_src_init(struct lf_mm_src *s, const void *base, int64_t ld, bool k_fast,
                           int64_t lane0, int64_t count, int k0, const int LANES, const int THREADS)
{
    LF_UNROLL for (int i = 0; i < LF_MM_PIECES; i++)
    {
        const int j = (int)threadIdx.x + i * THREADS;
        const int row = k_fast ? j / 4 : j / (LANES / 8), c = k_fast ? j % 4 : j % (LANES / 8);
        const int64_t lane = lane0 + (k_fast ? row : 8 * c);
        s->k[i] = k0 + (k_fast ? 8 * c : row);
        s->p[i] = (const uint16_t *)base + (k_fast ? lane * ld + s->k[i] : s->k[i] * ld + lane);
        s->lanes[i] = lane < count ? (int)(count - lane < LANES ? count - lane : LANES) : 0;
        s->at[i] =
            k_fast ? row * LF_MM_BK + (c ^ (row >> 1 & 3)) * 8 : row * LANES + (c ^ (row & 7)) * 8;
    }
    s->step = k_fast ? LF_MM_BK : LF_MM_BK * ld;
}

/* Copies eight elements into shared memory. Those from `left` on become zeros. vec: src is a
 * multiple of 16 bytes. */
LF_DEV void lf_mm_piece(uint16_t *dst, const uint16_t *src, int left, bool vec)
{
    if (vec && (left <= 0 || left >= 8)) {
        lf_cp_async16(dst, src, left > 0);
        return;
    }
    for (int i = 0; i < 8; i++)
        dst[i] = i < left ? src[i] : (uint16_t)0;
}

/* Starts copying the next stage. k_end is the end of this product's K. */
LF_DEV void lf_mm_fetch(uint16_t *tile, struct lf_mm_src *s, bool k_fast, bool vec, int k_end)
{
    LF_UNROLL for (int i = 0; i < LF_MM_PIECES; i++)
    {
        const int left =
            k_fast ? (s->lanes[i] ? k_end - s->k[i] : 0) : (s->k[i] < k_end ? s->lanes[i] : 0);
        lf_mm_piece(tile + s->at[i], s->p[i], left, vec);
        s->p[i] += s->step;
        s->k[i] += LF_MM_BK;
    }
}

/* 16 x 16 of A at lane m, k step ks of the stage. */
LF_DEV void lf_mm_frag_a(uint32_t r[4], const uint16_t *tile, int m, int ks, bool k_fast,
                         const int LANES)
{
    const int l = (int)threadIdx.x % 32;
    if (k_fast) {
        const int row = m + l % 16, c = 2 * ks + l / 16;
        lf_ldmatrix4(r, tile + row * LF_MM_BK + (c ^ (row >> 1 & 3)) * 8);
    } else {
        const int row = 16 * ks + l / 16 * 8 + l % 8, c = m / 8 + l / 8 % 2;
        lf_ldmatrix4_trans(r, tile + row * LANES + (c ^ (row & 7)) * 8);
    }
}

/* 16 k x 16 columns of B at lane n. r[0] and r[1] are the first eight columns, r[2] and r[3] the
 * others. */
LF_DEV void lf_mm_frag_b(uint32_t r[4], const uint16_t *tile, int n, int ks, bool k_fast,
                         const int LANES)
{
    const int l = (int)threadIdx.x % 32;
    if (k_fast) {
        const int row = n + l / 16 * 8 + l % 8, c = 2 * ks + l / 8 % 2;
        lf_ldmatrix4(r, tile + row * LF_MM_BK + (c ^ (row >> 1 & 3)) * 8);
    } else {
        const int row = 16 * ks + l / 8 % 2 * 8 + l % 8, c = n / 8 + l / 16;
        lf_ldmatrix4_trans(r, tile + row * LANES + (c ^ (row & 7)) * 8);
    }
}

LF_DEV void lf_mm_mma(float d[4], const uint32_t a[4], const uint32_t b[2], const int TYPE)
{
    if (TYPE == LF_BF16)
        lf_mma_bf16(d, a, b);
    else
        lf_mma_f16(d, a, b);
}

/* Multiplies a warp's MI x 16 rows by 4 x 8 columns of one stage. */
LF_DEV void lf_mm_stage(float acc[4][4][4], const uint16_t *ta, const uint16_t *tb, int m, int n,
                        bool a_fast, bool b_fast, const int MI, const int LANES, const int TYPE)
{
    LF_UNROLL for (int ks = 0; ks < LF_MM_BK / 16; ks++)
    {
        uint32_t fa[4][4], fb[2][4];
        LF_UNROLL for (int j = 0; j < 2; j++)
            lf_mm_frag_b(fb[j], tb, n + 16 * j, ks, b_fast, LANES);
        LF_UNROLL for (int i = 0; i < MI; i++)
            lf_mm_frag_a(fa[i], ta, m + 16 * i, ks, a_fast, LANES);
        LF_UNROLL for (int i = 0; i < MI; i++)
        {
            LF_UNROLL for (int j = 0; j < 4; j++)
                lf_mm_mma(acc[i][j], fa[i], &fb[j / 2][j % 2 * 2], TYPE);
        }
    }
}

/* Computes a block's tile of LANES x LANES at (row0, col0), k in [k0, k1). tot[i][j] are the m16n8
 * pieces of this warp. *wm and *wn become its first row and column in the tile. */
LF_DEV void lf_mm_tile(float tot[4][4][4], int *wm, int *wn, const struct lf_k_gemm *g,
                       int64_t row0, int64_t col0, int k0, int k1, bool vec_a, bool vec_b,
                       bool a_fast, bool b_fast, uint16_t *smem, const int MI, const int LANES,
                       const int THREADS, const int TYPE)
{
    const int warp = (int)threadIdx.x / 32, across = LANES / 32, tile = LANES * LF_MM_BK;
    const int steps = (k1 - k0 + LF_MM_BK - 1) / LF_MM_BK;
    float acc[4][4][4];
    struct lf_mm_src sa, sb;
    lf_mm_src_init(&sa, g->a, g->lda, a_fast, row0, g->m, k0, LANES, THREADS);
    lf_mm_src_init(&sb, g->b, g->ldb, b_fast, col0, g->n, k0, LANES, THREADS);
    *wm = warp / across * 16 * MI;
    *wn = warp % across * 32;
    LF_UNROLL for (int i = 0; i < 4 * 4 * 4; i++) tot[i / 16][i / 4 % 4][i % 4] =
        acc[i / 16][i / 4 % 4][i % 4] = 0.0f;
    for (int s = 0; s < LF_MM_STAGES - 1; s++) {
        if (s < steps) {
            lf_mm_fetch(smem + 2 * s * tile, &sa, a_fast, vec_a, k1);
            lf_mm_fetch(smem + (2 * s + 1) * tile, &sb, b_fast, vec_b, k1);
        }
        lf_cp_commit();
    }
    for (int s = 0; s < steps; s++) {
        const int next = s + LF_MM_STAGES - 1, at = s % LF_MM_STAGES, to = next % LF_MM_STAGES;
        lf_cp_wait(LF_MM_STAGES - 2);
        /* stage s is whole, and every thread is done with stage s - 1, whose place is filled now */
        __syncthreads();
        if (next < steps) {
            lf_mm_fetch(smem + 2 * to * tile, &sa, a_fast, vec_a, k1);
            lf_mm_fetch(smem + (2 * to + 1) * tile, &sb, b_fast, vec_b, k1);
        }
        lf_cp_commit();
        lf_mm_stage(acc, smem + 2 * at * tile, smem + (2 * at + 1) * tile, *wm, *wn, a_fast, b_fast,
                    MI, LANES, TYPE);
        if ((s + 1) % (LF_MM_CHUNK / LF_MM_BK) == 0 || s + 1 == steps) {
            LF_UNROLL for (int i = 0; i < 16 * MI; i++)
            {
                tot[i / 16][i / 4 % 4][i % 4] += acc[i / 16][i / 4 % 4][i % 4];
                acc[i / 16][i / 4 % 4][i % 4] = 0.0f;
            }
        }
    }
    lf_cp_wait(0);
}

/* Writes a warp's pieces into the tile of sums. With rows 8 banks apart, the 16 lanes of half a
 * warp store 128 different bytes. */
LF_DEV void lf_mm_put(float *tile, const float tot[4][4][4], int wm, int wn, const int MI,
                      const int PITCH)
{
    const int gr = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    __syncthreads(); /* the pipeline has been read */
    LF_UNROLL for (int i = 0; i < MI; i++)
    {
        LF_UNROLL for (int j = 0; j < 4; j++)
        {
            LF_UNROLL for (int h = 0; h < 2; h++)
            {
                float *p = tile + (wm + 16 * i + 8 * h + gr) * PITCH + wn + 8 * j + 2 * t;
                p[0] = tot[i][j][2 * h];
                p[1] = tot[i][j][2 * h + 1];
            }
        }
    }
    __syncthreads();
}

#endif
