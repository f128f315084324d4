/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products of compute capability 9.0: the forms "big" and "rows" of gemm_args.h
 * (lf_cu_gemm_wg), in the same K order as those of gemm.cu. Compiled for sm_90a; for other GPUs
 * this file is empty.
 */
#include "kernels/cuda/gemm_end.h"
#include "kernels/cuda/gemm_wg.h"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* What a block computes at a time. */
struct item {
    int64_t row0, col0;
    int k0, k1;
    float *partial;
};

LF_DEV void chunk_of(struct item *t, const struct lf_cu_gemm *m, int64_t chunk)
{
    t->k0 = 0;
    t->k1 = (int)m->g.k;
    t->partial = NULL;
    if (m->partial) {
        t->k0 = (int)chunk * LF_MM_CHUNK;
        t->k1 = t->k1 - t->k0 < LF_MM_CHUNK ? t->k1 : t->k0 + LF_MM_CHUNK;
        t->partial = m->partial + chunk * m->g.m * m->g.n;
    }
}

LF_DEV struct item item_of(const struct lf_cu_gemm *m, int i)
{
    const int tiles = m->tiles_m * m->tiles_n;
    int64_t tm, tn;
    struct item t;
    lf_tile_of(i % tiles, m->tiles_m, m->tiles_n, &tm, &tn);
    t.row0 = tm * LF_WG_M;
    t.col0 = tn * LF_WG_N;
    chunk_of(&t, m, i / tiles);
    return t;
}

/* One thread keeps the ring full, from tile to tile. */
LF_DEV void big_bring(const struct lf_cu_gemm_wg *a, struct lf_wg_ring r, const bool A_LANES,
                      const bool B_LANES)
{
    lf_tma_prefetch_map(&a->a);
    lf_tma_prefetch_map(&a->b);
    LF_ROLLED for (int i = (int)blockIdx.x; i < a->items; i += (int)gridDim.x)
    {
        const struct item t = item_of(&a->m, i);
        LF_ROLLED for (int k = t.k0; k < t.k1; k += LF_WG_BK)
        {
            unsigned char *stage = r.stage + r.at * LF_WG_STAGE;
            uint64_t *full = &r.full[r.at];
            lf_mbar_wait(&r.empty[r.at], r.parity ^ 1);
            lf_mbar_arrive_expect(full, LF_WG_STAGE);
            lf_wg_fetch(stage, &a->a, (int)t.row0, k, full, A_LANES, LF_WG_M);
            lf_wg_fetch(stage + LF_WG_STAGE_A, &a->b, (int)t.col0, k, full, B_LANES, LF_WG_N);
            lf_wg_next(&r, LF_WG_STAGES);
        }
    }
}

/* This warp has read the stage. */
LF_DEV void give_back(const struct lf_wg_ring *r, int stage)
{
    if (stage >= 0 && threadIdx.x % 32 == 0)
        lf_mbar_arrive(&r->empty[stage]);
}

/* tot = the sums of 64 rows of a tile. One stage's products are under way while the next is waited
 * for. */
LF_DEV void big_sums(float tot[96], const struct item *t, struct lf_wg_ring *r, int wg,
                     const bool A_LANES, const bool B_LANES, const int TYPE)
{
    float acc[96];
    LF_UNROLL for (int i = 0; i < 96; i++) tot[i] = acc[i] = 0.0f;
    LF_ROLLED for (int k = t->k0; k < t->k1;)
    {
        const int end = t->k1 - k < LF_MM_CHUNK ? t->k1 : k + LF_MM_CHUNK;
        bool add = false;
        int before = -1;
        LF_ROLLED for (; k < end; k += LF_WG_BK)
        {
            const unsigned char *ta = r->stage + r->at * LF_WG_STAGE + wg * LF_WG_BOX;
            const unsigned char *tb = r->stage + r->at * LF_WG_STAGE + LF_WG_STAGE_A;
            lf_mbar_wait(&r->full[r->at], r->parity);
            LF_WGMMA_HOLD(acc, 96);
            lf_wgmma_fence();
            LF_UNROLL for (int ks = 0; ks < LF_WG_BK / 16; ks++)
                lf_wgmma_192(acc, lf_wg_desc(ta, ks, A_LANES), lf_wg_desc(tb, ks, B_LANES),
                             add || ks > 0, A_LANES, B_LANES, TYPE);
            lf_wgmma_commit();
            lf_wgmma_wait(1);
            give_back(r, before);
            before = r->at;
            add = true;
            lf_wg_next(r, LF_WG_STAGES);
        }
        lf_wgmma_wait(0);
        LF_WGMMA_HOLD(acc, 96);
        give_back(r, before);
        LF_UNROLL for (int i = 0; i < 96; i++) tot[i] += acc[i];
    }
}

/* Rows r0 ... of m, LF_END_ROWS of them STEP apart, from `from` with rows of PITCH. */
LF_DEV void put_rows(const struct lf_cu_gemm *m, float *partial, const float *from, int64_t r0,
                     int64_t c, const int STEP, const int PITCH)
{
    float x[LF_END_ROWS][2];
    LF_UNROLL for (int j = 0; j < LF_END_ROWS; j++)
    {
        x[j][0] = from[j * STEP * PITCH];
        x[j][1] = from[j * STEP * PITCH + 1];
    }
    if (!partial) {
        lf_gemm_end_rows(&m->g, r0, c, x, STEP, LF_END_ROWS);
        return;
    }
    LF_UNROLL for (int j = 0; j < LF_END_ROWS; j++)
    {
        const int64_t r = r0 + j * STEP;
        lf_put2(partial, r * m->g.n + c, LF_F32, x[j],
                r >= m->g.m || c >= m->g.n ? 0
                : m->g.n - c < 2           ? 1
                                           : 2);
    }
}

/* A warp's 16 rows go out, LF_WG_PIECE columns at a time, through shared memory of its own; rows 8
 * banks apart. */
LF_DEV void big_out(const struct lf_cu_gemm *m, const struct item *t, float *out,
                    const float tot[96], int64_t row0)
{
    const int lane = (int)threadIdx.x % 32, g = lane / 4, q = lane % 4;
    LF_ROLLED for (int piece = 0; piece < LF_WG_N / LF_WG_PIECE; piece++)
    {
        const int64_t c = t->col0 + piece * LF_WG_PIECE + lane % 16 * 2;
        if (t->col0 + piece * LF_WG_PIECE >= m->g.n)
            break;
        __syncwarp();
        LF_UNROLL for (int p = 0; p < LF_WG_N / LF_WG_PIECE; p++)
        {
            if (p != piece)
                continue;
            LF_UNROLL for (int i = 0; i < LF_WG_PIECE / 2; i += 2)
            {
                float *to = out + (g + i / 2 % 2 * 8) * LF_WG_PITCH + i / 4 * 8 + 2 * q;
                to[0] = tot[p * (LF_WG_PIECE / 2) + i];
                to[1] = tot[p * (LF_WG_PIECE / 2) + i + 1];
            }
        }
        __syncwarp();
        LF_ROLLED for (int r = lane / 16; r < 16; r += 2 * LF_END_ROWS) put_rows(
            m, t->partial, out + r * LF_WG_PITCH + lane % 16 * 2, row0 + r, c, 2, LF_WG_PITCH);
    }
}

LF_DEV void big(const struct lf_cu_gemm_wg *a, unsigned char *smem, const bool A_LANES,
                const bool B_LANES, const int TYPE)
{
    unsigned char *rest;
    struct lf_wg_ring r = lf_wg_ring(smem, &rest, LF_WG_STAGES, LF_WG_STAGE, 2 * LF_WG / 32);
    const int wg = (int)threadIdx.x / LF_WG, warp = (int)threadIdx.x / 32;
    if (wg == 2) {
        lf_regs_less(24);
        if (threadIdx.x % LF_WG == 0)
            big_bring(a, r, A_LANES, B_LANES);
    } else {
        float tot[96], *out = (float *)(void *)(rest + warp * LF_WG_OUT_WARP);
        lf_regs_more(240);
        LF_ROLLED for (int i = (int)blockIdx.x; i < a->items; i += (int)gridDim.x)
        {
            const struct item t = item_of(&a->m, i);
            big_sums(tot, &t, &r, wg, A_LANES, B_LANES, TYPE);
            big_out(&a->m, &t, out, tot, t.row0 + 16 * warp);
        }
    }
}

#define BIG(name, type, a_lanes, b_lanes)                                                          \
    LF_KERNEL_PER_SM(gemm_wg_##name, struct lf_cu_gemm_wg, LF_WG_THREADS, 1)                       \
    {                                                                                              \
        LF_SHARED(unsigned char, smem);                                                            \
        big(a, smem, a_lanes, b_lanes, type);                                                      \
    }
BIG(bf16_nt, LF_BF16, false, false)
BIG(bf16_nn, LF_BF16, false, true)
BIG(bf16_tn, LF_BF16, true, true)
BIG(bf16_tt, LF_BF16, true, false)
BIG(f16_nt, LF_F16, false, false)
BIG(f16_nn, LF_F16, false, true)
BIG(f16_tn, LF_F16, true, true)
BIG(f16_tt, LF_F16, true, false)

/* ---- rows ---- */

LF_DEV void rows_bring(const struct lf_cu_gemm_wg *a, const struct item *t, struct lf_wg_ring r,
                       const int X)
{
    lf_tma_prefetch_map(&a->a);
    lf_tma_prefetch_map(&a->b);
    LF_ROLLED for (int k = t->k0; k < t->k1; k += LF_WG_BK)
    {
        unsigned char *stage = r.stage + r.at * LF_WG_ROWS_STAGE(X);
        uint64_t *full = &r.full[r.at];
        lf_mbar_wait(&r.empty[r.at], r.parity ^ 1);
        lf_mbar_arrive_expect(full, LF_WG_ROWS_STAGE(X));
        lf_wg_fetch(stage, &a->b, (int)t->col0, k, full, false, LF_WG_ROWS_N);
        lf_wg_fetch(stage + LF_WG_STAGE_W, &a->a, 0, k, full, false, X);
        lf_wg_next(&r, LF_WG_ROWS_STAGES(X));
    }
}

LF_DEV void rows_sums(float tot[], const struct item *t, struct lf_wg_ring r, const int X,
                      const int TYPE)
{
    float acc[32];
    LF_UNROLL for (int i = 0; i < X / 2; i++) tot[i] = acc[i] = 0.0f;
    LF_ROLLED for (int k = t->k0; k < t->k1;)
    {
        const int end = t->k1 - k < LF_MM_CHUNK ? t->k1 : k + LF_MM_CHUNK;
        bool add = false;
        int before = -1;
        LF_ROLLED for (; k < end; k += LF_WG_BK)
        {
            const unsigned char *w = r.stage + r.at * LF_WG_ROWS_STAGE(X), *x = w + LF_WG_STAGE_W;
            lf_mbar_wait(&r.full[r.at], r.parity);
            LF_WGMMA_HOLD(acc, X / 2);
            lf_wgmma_fence();
            LF_UNROLL for (int ks = 0; ks < LF_WG_BK / 16; ks++)
            {
                if (X == 16)
                    lf_wgmma_16(acc, lf_wg_desc(w, ks, false), lf_wg_desc(x, ks, false),
                                add || ks > 0, false, false, TYPE);
                else
                    lf_wgmma_64(acc, lf_wg_desc(w, ks, false), lf_wg_desc(x, ks, false),
                                add || ks > 0, false, false, TYPE);
            }
            lf_wgmma_commit();
            lf_wgmma_wait(1);
            give_back(&r, before);
            before = r.at;
            add = true;
            lf_wg_next(&r, LF_WG_ROWS_STAGES(X));
        }
        lf_wgmma_wait(0);
        LF_WGMMA_HOLD(acc, X / 2);
        give_back(&r, before);
        LF_UNROLL for (int i = 0; i < X / 2; i++) tot[i] += acc[i];
    }
}

/* A warp's 16 columns go out through shared memory, [X][LF_WG_ROWS_PITCH]. */
LF_DEV void rows_out(const struct lf_cu_gemm *m, const struct item *t, float *out,
                     const float tot[], const int X)
{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              q = lane % 4;
    const int64_t c = t->col0 + 16 * warp + lane % 8 * 2;
    out += warp * X * LF_WG_ROWS_PITCH;
    LF_UNROLL for (int i = 0; i < X / 2; i++)
        out[(i / 4 * 8 + 2 * q + i % 2) * LF_WG_ROWS_PITCH + g + i / 2 % 2 * 8] = tot[i];
    __syncwarp();
    LF_ROLLED for (int r = lane / 8; r < X; r += 4 * LF_END_ROWS) put_rows(
        m, t->partial, out + r * LF_WG_ROWS_PITCH + lane % 8 * 2, r, c, 4, LF_WG_ROWS_PITCH);
}

/* LF_WG_ROWS_N columns of up to X rows: four warps multiply, a fifth brings tiles. */
LF_DEV void rows(const struct lf_cu_gemm_wg *a, unsigned char *smem, const int X, const int TYPE)
{
    unsigned char *rest;
    const struct lf_wg_ring r =
        lf_wg_ring(smem, &rest, LF_WG_ROWS_STAGES(X), LF_WG_ROWS_STAGE(X), LF_WG / 32);
    float tot[32];
    struct item t;
    t.row0 = 0;
    t.col0 = (int64_t)blockIdx.x * LF_WG_ROWS_N;
    chunk_of(&t, &a->m, blockIdx.y);
    if (threadIdx.x >= LF_WG) {
        if (threadIdx.x == LF_WG)
            rows_bring(a, &t, r, X);
    } else {
        rows_sums(tot, &t, r, X, TYPE);
    }
    __syncthreads(); /* every stage has been read: their place serves again */
    if (threadIdx.x < LF_WG)
        rows_out(&a->m, &t, (float *)(void *)r.stage, tot, X);
}

#define ROWS(name, type, x)                                                                        \
    LF_KERNEL_PER_SM(gemm_wg_##name, struct lf_cu_gemm_wg, LF_WG_ROWS_THREADS, 2)                  \
    {                                                                                              \
        LF_SHARED(unsigned char, smem);                                                            \
        rows(a, smem, x, type);                                                                    \
    }
ROWS(bf16_rows16, LF_BF16, 16)
ROWS(bf16_rows64, LF_BF16, 64)
ROWS(f16_rows16, LF_F16, 16)
ROWS(f16_rows64, LF_F16, 64)

#endif
