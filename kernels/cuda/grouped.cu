/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of rows with a matrix of their group (experts), over the 64 x 64 tiles of gemm. Which
 * group a tile belongs to is known on the device only: the grid is sized by a bound, each block
 * finds its group in `offsets`, blocks without one leave at once. An element has the bits of gemm
 * over its group alone.
 */
#include "kernels/cuda/gemm_end.h"
#include "kernels/cuda/gemm_ffma.h"
#include "kernels/cuda/gemm_mma.h"

/* A block's tile: its group, the group's rows, and the tile's place in the group's product. */
struct where {
    int64_t group, first, count, row0, col0;
};

/* Finds row tile `t` over all groups; false: there are fewer. Every warp searches for itself, 32
 * groups at a time. */
LF_DEV bool find_rows(const struct lf_k_grouped_gemm *g, int64_t t, struct where *w)
{
    const int lane = (int)threadIdx.x % 32;
    int64_t before = 0;
    for (int64_t base = 0; base < g->groups; base += 32) {
        const int64_t e = base + lane;
        const int from = e < g->groups ? g->offsets[e] : 0,
                  to = e < g->groups ? g->offsets[e + 1] : 0;
        int end =
            (to - from + LF_MM_SMALL - 1) / LF_MM_SMALL; /* becomes the tiles up to this group */
        LF_UNROLL for (int m = 1; m < 32; m <<= 1)
        {
            const int o = lf_shfl_i(end, lane >= m ? lane - m : lane);
            end += lane >= m ? o : 0;
        }
        const unsigned beyond = lf_ballot(before + end > t);
        if (beyond) {
            const int hit = lf_popc(~beyond & (beyond - 1u)); /* lowest lane */
            const int start = lf_shfl_i(end, hit ? hit - 1 : 0);
            w->group = base + hit;
            w->first = lf_shfl_i(from, hit);
            w->count = lf_shfl_i(to, hit) - w->first;
            w->row0 = (t - before - (hit ? start : 0)) * LF_MM_SMALL;
            return true;
        }
        before += lf_shfl_i(end, 31);
    }
    return false;
}

LF_DEV const void *at(const void *p, int64_t i, int type)
{
    return type == LF_F32 ? (const void *)((const float *)p + i)
                          : (const void *)((const uint16_t *)p + i);
}

/* The block's own product as a gemm; false: none. */
LF_DEV bool product(const struct lf_cu_grouped *a, struct where *w, struct lf_k_gemm *p)
{
    const struct lf_k_grouped_gemm *g = &a->g;
    const int64_t t = blockIdx.x / (unsigned)a->tiles_n;
    w->col0 = (int64_t)(blockIdx.x % (unsigned)a->tiles_n) * LF_MM_SMALL;
    p->bias = NULL;
    p->pre = NULL;
    p->residual = NULL;
    p->act = LF_ACT_NONE;
    p->accumulate = g->dw && g->accumulate;
    p->c_type = g->c_type;
    p->bias_type = LF_F32;
    p->lda = g->lda;
    p->ta = g->dw;
    if (g->dw) {
        const int64_t per = (g->n + LF_MM_SMALL - 1) / LF_MM_SMALL;
        w->group = t / per;
        w->row0 = t % per * LF_MM_SMALL;
        w->first = g->offsets[w->group];
        w->count = g->offsets[w->group + 1] - w->first;
        p->m = g->n;
        p->n = g->k;
        p->k = w->count;
        p->tb = false;
        p->ldb = g->ldb;
        p->ldc = g->k;
        p->b = at(g->b, w->first * g->ldb, g->ab_type);
        p->c = (float *)g->c + w->group * g->n * g->k;
    } else {
        if (!find_rows(g, t, w))
            return false;
        p->m = w->count;
        p->n = g->n;
        p->k = g->k;
        p->tb = g->tb;
        p->ldb = g->tb ? g->k : g->n;
        p->ldc = g->ldc;
        p->ldres = g->ldres;
        p->b = at(g->b, w->group * g->n * g->k, g->ab_type);
        p->c = g->c_type == LF_F32 ? (void *)((float *)g->c + w->first * g->ldc)
                                   : (void *)((uint16_t *)g->c + w->first * g->ldc);
        if (g->bias)
            p->bias = g->bias + w->group * g->n;
        if (g->residual)
            p->residual = at(g->residual, w->first * g->ldres, g->c_type);
    }
    p->a = at(g->a, w->first * g->lda, g->ab_type);
    return true;
}

LF_DEV void grouped_half(const struct lf_cu_grouped *a, uint16_t *smem, const int TYPE)
{
    struct where w;
    struct lf_k_gemm p;
    float tot[4][4][4];
    int wm, wn;
    if (!product(a, &w, &p))
        return;
    lf_mm_tile(tot, &wm, &wn, &p, w.row0, w.col0, 0, (int)p.k, a->vec_a, a->vec_b, !p.ta, p.tb,
               smem, 2, LF_MM_SMALL, LF_MM_SMALL_THREADS, TYPE);
    lf_mm_put((float *)(void *)smem, tot, wm, wn, 2, LF_MM_PITCH_SMALL);
    lf_gemm_tile_end(&p, NULL, (const float *)(void *)smem, w.row0, w.col0, LF_MM_SMALL,
                     LF_MM_PITCH_SMALL);
}

LF_KERNEL(grouped_bf16, struct lf_cu_grouped, LF_MM_SMALL_THREADS)
{
    LF_SHARED(uint16_t, smem);
    grouped_half(a, smem, LF_BF16);
}
LF_KERNEL(grouped_f16, struct lf_cu_grouped, LF_MM_SMALL_THREADS)
{
    LF_SHARED(uint16_t, smem);
    grouped_half(a, smem, LF_F16);
}
LF_KERNEL(grouped_f32, struct lf_cu_grouped, 256)
{
    LF_SHARED(float, smem);
    struct where w;
    struct lf_k_gemm p;
    float tot[8][8];
    if (!product(a, &w, &p))
        return;
    lf_ff_tile(tot, &p, w.row0, w.col0, 0, (int)p.k, a->vec_a, a->vec_b, smem, 4);
    lf_ff_put_sums(smem, tot, 4);
    lf_gemm_tile_end(&p, NULL, smem, w.row0, w.col0, LF_MM_SMALL, LF_MM_PITCH_SMALL);
}
