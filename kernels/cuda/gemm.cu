/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products: the forms of gemm_args.h over the tiles of gemm_mma.h and gemm_ffma.h.
 */
#include "kernels/cuda/gemm_end.h"
#include "kernels/cuda/gemm_ffma.h"
#include "kernels/cuda/gemm_mma.h"

LF_DEV void mma_big(const struct lf_cu_gemm *a, uint16_t *smem, bool A_FAST, bool B_FAST,
                    const int TYPE)
{
    int64_t tm, tn;
    int wm, wn;
    float tot[4][4][4];
    lf_tile_of(blockIdx.x, a->tiles_m, a->tiles_n, &tm, &tn);
    lf_mm_tile(tot, &wm, &wn, &a->g, tm * LF_MM_BIG, tn * LF_MM_BIG, 0, (int)a->g.k, a->vec_a,
               a->vec_b, A_FAST, B_FAST, smem, 4, LF_MM_BIG, LF_MM_BIG_THREADS, TYPE);
    lf_mm_put((float *)(void *)smem, tot, wm, wn, 4, LF_MM_PITCH_BIG);
    lf_gemm_tile_end(&a->g, NULL, (const float *)(void *)smem, tm * LF_MM_BIG, tn * LF_MM_BIG,
                     LF_MM_BIG, LF_MM_PITCH_BIG);
}

#define BIG(name, type, a_fast, b_fast)                                                            \
    LF_KERNEL(gemm_##name, struct lf_cu_gemm, LF_MM_BIG_THREADS)                                   \
    {                                                                                              \
        LF_SHARED(uint16_t, smem);                                                                 \
        mma_big(a, smem, a_fast, b_fast, type);                                                    \
    }
BIG(bf16_nt, LF_BF16, true, true)
BIG(bf16_nn, LF_BF16, true, false)
BIG(bf16_tn, LF_BF16, false, false)
BIG(f16_nt, LF_F16, true, true)
BIG(f16_nn, LF_F16, true, false)
BIG(f16_tn, LF_F16, false, false)

/* k of this block: all of it, or with partial sums the chunk of blockIdx.y. */
LF_DEV void chunk_of(const struct lf_cu_gemm *a, int *k0, int *k1, float **partial)
{
    *k0 = 0;
    *k1 = (int)a->g.k;
    *partial = NULL;
    if (a->partial) {
        *k0 = (int)blockIdx.y * LF_MM_CHUNK;
        *k1 = *k1 - *k0 < LF_MM_CHUNK ? *k1 : *k0 + LF_MM_CHUNK;
        *partial = a->partial + blockIdx.y * a->g.m * a->g.n;
    }
}

LF_DEV void mma_small(const struct lf_cu_gemm *a, uint16_t *smem, const int TYPE)
{
    int64_t tm, tn;
    int wm, wn, k0, k1;
    float tot[4][4][4], *partial;
    lf_tile_of(blockIdx.x, a->tiles_m, a->tiles_n, &tm, &tn);
    chunk_of(a, &k0, &k1, &partial);
    lf_mm_tile(tot, &wm, &wn, &a->g, tm * LF_MM_SMALL, tn * LF_MM_SMALL, k0, k1, a->vec_a, a->vec_b,
               !a->g.ta, a->g.tb, smem, 2, LF_MM_SMALL, LF_MM_SMALL_THREADS, TYPE);
    lf_mm_put((float *)(void *)smem, tot, wm, wn, 2, LF_MM_PITCH_SMALL);
    lf_gemm_tile_end(&a->g, partial, (const float *)(void *)smem, tm * LF_MM_SMALL,
                     tn * LF_MM_SMALL, LF_MM_SMALL, LF_MM_PITCH_SMALL);
}

LF_KERNEL(gemm_bf16_small, struct lf_cu_gemm, LF_MM_SMALL_THREADS)
{
    LF_SHARED(uint16_t, smem);
    mma_small(a, smem, LF_BF16);
}
LF_KERNEL(gemm_f16_small, struct lf_cu_gemm, LF_MM_SMALL_THREADS)
{
    LF_SHARED(uint16_t, smem);
    mma_small(a, smem, LF_F16);
}

LF_DEV void f32_tile(const struct lf_cu_gemm *a, float *smem, const int R)
{
    int64_t tm, tn;
    int k0, k1;
    float tot[8][8], *partial;
    lf_tile_of(blockIdx.x, a->tiles_m, a->tiles_n, &tm, &tn);
    chunk_of(a, &k0, &k1, &partial);
    lf_ff_tile(tot, &a->g, tm * 16 * R, tn * 16 * R, k0, k1, a->vec_a, a->vec_b, smem, R);
    lf_ff_put_sums(smem, tot, R);
    lf_gemm_tile_end(&a->g, partial, smem, tm * 16 * R, tn * 16 * R, 16 * R, 16 * R + 8);
}

LF_KERNEL(gemm_f32_big, struct lf_cu_gemm, 256)
{
    LF_SHARED(float, smem);
    f32_tile(a, smem, 8);
}
LF_KERNEL_PER_SM(gemm_f32_small, struct lf_cu_gemm, 256, 3)
{
    LF_SHARED(float, smem);
    f32_tile(a, smem, 4);
}

/* Adds the chunks' sums ascending; a thread per pair of columns. */
LF_KERNEL(gemm_join, struct lf_cu_gemm, 256)
{
    const int64_t pairs = (a->g.n + 1) / 2, chunks = (a->g.k + LF_MM_CHUNK - 1) / LF_MM_CHUNK;
    for (int64_t i = lf_index(); i < a->g.m * pairs; i += lf_threads()) {
        const int64_t r = i / pairs, c = i % pairs * 2, at = r * a->g.n + c;
        float x0 = 0.0f, x1 = 0.0f;
        for (int64_t k = 0; k < chunks; k++) {
            const float *p = a->partial + k * a->g.m * a->g.n + at;
            x0 += p[0];
            x1 += c + 1 < a->g.n ? p[1] : 0.0f;
        }
        lf_gemm_end(&a->g, r, c, x0, x1);
    }
}

/* What follows product + bias when a library made that: act, residual. A thread per pair of
 * columns. */
LF_KERNEL(gemm_post, struct lf_cu_gemm, 256)
{
    const int64_t pairs = (a->g.n + 1) / 2;
    for (int64_t i = lf_index(); i < a->g.m * pairs; i += lf_threads()) {
        const int64_t r = i / pairs, c = i % pairs * 2, at = r * a->ldsrc + c;
        const float x0 = lf_load(a->src, at, a->g.c_type);
        lf_gemm_end(&a->g, r, c, x0, c + 1 < a->g.n ? lf_load(a->src, at + 1, a->g.c_type) : 0.0f);
    }
}

/* ---- rows ---- */

/* One stage of a warp: 16 rows of w and the rows of x, 64 k of each, 128 bytes a row; piece c of
 * row r lies at place c ^ (r % 8), so that eight rows meet eight 16-byte columns. */
LF_DEV void rows_fetch(uint16_t *stage, const struct lf_cu_gemm *a, int64_t col0, int k)
{
    const struct lf_k_gemm *g = &a->g;
    const int lane = (int)threadIdx.x % 32;
    LF_UNROLL for (int i = 0; i < LF_MM_ROWS_COLS * 8 / 32; i++)
    {
        const int row = i * 4 + lane / 8, c = lane % 8, kc = k + 8 * c,
                  at = row * LF_MM_ROWS_BK + (c ^ (row & 7)) * 8;
        const int left = g->k - kc < 8 ? (int)(g->k - kc) : 8;
        lf_mm_piece(stage + at, (const uint16_t *)g->b + (col0 + row) * g->ldb + kc,
                    col0 + row < g->n ? left : 0, true);
        lf_mm_piece(stage + LF_MM_ROWS_COLS * LF_MM_ROWS_BK + at,
                    (const uint16_t *)g->a + row * g->lda + kc, row < g->m ? left : 0, true);
    }
}

LF_DEV void rows_stage(float acc[2][4], const uint16_t *stage, const int TYPE)
{
    const int l = (int)threadIdx.x % 32;
    const uint16_t *x = stage + LF_MM_ROWS_COLS * LF_MM_ROWS_BK;
    LF_UNROLL for (int ks = 0; ks < LF_MM_ROWS_BK / 16; ks++)
    {
        uint32_t fa[4], fb[4];
        const int ra = l % 16, rb = l / 16 * 8 + l % 8;
        lf_ldmatrix4(fa, x + ra * LF_MM_ROWS_BK + ((2 * ks + l / 16) ^ (ra & 7)) * 8);
        lf_ldmatrix4(fb, stage + rb * LF_MM_ROWS_BK + ((2 * ks + l / 8 % 2) ^ (rb & 7)) * 8);
        lf_mm_mma(acc[0], fa, fb, TYPE);
        lf_mm_mma(acc[1], fa, fb + 2, TYPE);
    }
}

/* Sums of a chunk: [16][16] of shared memory. */
LF_DEV void rows_keep(float *sums, float acc[2][4])
{
    const int gr = (int)threadIdx.x % 32 / 4, t = (int)threadIdx.x % 4;
    LF_UNROLL for (int j = 0; j < 2; j++)
    {
        LF_UNROLL for (int e = 0; e < 4; e++)
        {
            sums[(gr + e / 2 * 8) * LF_MM_ROWS_COLS + 8 * j + 2 * t + e % 2] = acc[j][e];
            acc[j][e] = 0.0f;
        }
    }
}

/* 16 columns of up to 16 rows. Warp w takes chunks w, w + warps, ... in a pipeline of its own; the
 * block adds the chunks' sums ascending. */
LF_DEV void rows(const struct lf_cu_gemm *a, uint16_t *smem, const int TYPE)
{
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32,
              per = LF_MM_CHUNK / LF_MM_ROWS_BK;
    const int chunks = (int)((a->g.k + LF_MM_CHUNK - 1) / LF_MM_CHUNK),
              size = LF_MM_SMEM_ROWS_WARP / LF_MM_ROWS_STAGES / 2;
    const int steps = warp < chunks ? ((chunks - warp + warps - 1) / warps) * per : 0;
    const int64_t col0 = (int64_t)blockIdx.x * LF_MM_ROWS_COLS;
    uint16_t *ring = smem + warp * (LF_MM_SMEM_ROWS_WARP / 2);
    float *sums = (float *)(void *)(smem + warps * (LF_MM_SMEM_ROWS_WARP / 2)), acc[2][4];
    LF_UNROLL for (int i = 0; i < 8; i++) acc[i / 4][i % 4] = 0.0f;
    for (int s = 0; s < steps + LF_MM_ROWS_STAGES - 1; s++) {
        if (s < steps)
            rows_fetch(ring + s % LF_MM_ROWS_STAGES * size, a, col0,
                       (warp + s / per * warps) * LF_MM_CHUNK + s % per * LF_MM_ROWS_BK);
        lf_cp_commit();
        const int at = s - (LF_MM_ROWS_STAGES - 1);
        if (at < 0)
            continue;
        lf_cp_wait(LF_MM_ROWS_STAGES - 1);
        __syncwarp();
        const int k = (warp + at / per * warps) * LF_MM_CHUNK + at % per * LF_MM_ROWS_BK;
        if (k < a->g.k)
            rows_stage(acc, ring + at % LF_MM_ROWS_STAGES * size, TYPE);
        __syncwarp(); /* its place is filled by the next turn */
        if ((at + 1) % per == 0)
            rows_keep(sums + (warp + at / per * warps) * LF_MM_ROWS * LF_MM_ROWS_COLS, acc);
    }
    lf_cp_wait(0);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < LF_MM_ROWS * LF_MM_ROWS_COLS / 2; i += (int)blockDim.x) {
        float x0 = 0.0f, x1 = 0.0f;
        for (int c = 0; c < chunks; c++) {
            x0 += sums[c * LF_MM_ROWS * LF_MM_ROWS_COLS + 2 * i];
            x1 += sums[c * LF_MM_ROWS * LF_MM_ROWS_COLS + 2 * i + 1];
        }
        lf_gemm_end(&a->g, i / (LF_MM_ROWS_COLS / 2), col0 + i % (LF_MM_ROWS_COLS / 2) * 2, x0, x1);
    }
}

LF_KERNEL(gemm_bf16_rows, struct lf_cu_gemm, 32 * LF_MM_ROWS_WARPS)
{
    LF_SHARED(uint16_t, smem);
    rows(a, smem, LF_BF16);
}
LF_KERNEL(gemm_f16_rows, struct lf_cu_gemm, 32 * LF_MM_ROWS_WARPS)
{
    LF_SHARED(uint16_t, smem);
    rows(a, smem, LF_F16);
}
