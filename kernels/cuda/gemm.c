/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching gemm.cu: which form runs, by the shape alone. gemm_pack has no place here: tensor cores
 * read weights as they lie, so a plan for this backend asks for no panels, and a product that
 * brings some is refused.
 */
#include "kernels/cuda/args.h"
#include "kernels/cuda/gemm_args.h"
#include "kernels/cuda/gemm_blaslt.h"
#include "kernels/cuda/gemm_form.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_DECLARE(gemm)

enum {
    BIG_TILES = 100,   /* so many big tiles fill a GPU */
    SPLIT_TILES = 264, /* fewer small tiles than this leave one idle */
    SPLIT_CHUNKS = 64,
    SPLIT_MIB = 64,
    ROWS_K = 16384, /* sums of so many chunks fit into shared memory beside the pipelines */
    JOIN_THREADS = 256,
    JOIN_BLOCKS = 4096
};

static int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static int64_t chunks_of(const struct lf_k_gemm *g)
{
    return div_up(g->k, LF_MM_CHUNK);
}

size_t lf_cu_gemm_split_bytes(const struct lf_k_gemm *g)
{
    return (size_t)chunks_of(g) * (size_t)g->m * (size_t)g->n * sizeof(float);
}

static bool split_shape(const struct lf_k_gemm *g)
{
    return chunks_of(g) <= SPLIT_CHUNKS && lf_cu_gemm_split_bytes(g) <= (size_t)SPLIT_MIB << 20;
}

static bool rows_shape(const struct lf_k_gemm *g)
{
    return g->ab_type != LF_F32 && !g->ta && g->tb && g->m <= LF_MM_ROWS && g->k <= ROWS_K;
}

bool lf_cu_gemm_form_fits(const struct lf_k_gemm *g, enum lf_mm_form form)
{
    switch (form) {
    case LF_MM_FORM_BIG:
        return g->ab_type == LF_F32 || !(g->ta && g->tb);
    case LF_MM_FORM_SPLIT:
        return split_shape(g) && g->work && (uintptr_t)g->work % 8 == 0 &&
               g->work_bytes >= lf_cu_gemm_split_bytes(g);
    case LF_MM_FORM_ROWS:
        return rows_shape(g) && lf_cu_vec16(g->a, g->lda, g->ab_type) &&
               lf_cu_vec16(g->b, g->ldb, g->ab_type);
    case LF_MM_FORM_SMALL:
        return true;
    default:
        return lf_cu_wgmma_fits(g, form);
    }
}

/* By shape; what runs may be less when pointers or the workspace do not allow it. */
static enum lf_mm_form wanted(const struct lf_k_gemm *g)
{
    if (rows_shape(g))
        return LF_MM_FORM_ROWS;
    if (div_up(g->m, LF_MM_BIG) * div_up(g->n, LF_MM_BIG) >= BIG_TILES)
        return LF_MM_FORM_BIG;
    const int64_t small = div_up(g->m, LF_MM_SMALL) * div_up(g->n, LF_MM_SMALL);
    return small < SPLIT_TILES && chunks_of(g) > 1 && split_shape(g) ? LF_MM_FORM_SPLIT
                                                                     : LF_MM_FORM_SMALL;
}

/* Up to 16 rows are read through by our own product, which takes the weights once. */
static bool for_library(const struct lf_k_gemm *g)
{
    return g->mode == LF_FAST && !rows_shape(g) && g->m > 0;
}

/* Whether an operand's or the result's rows have no whole number of 16 bytes. cublasLt is slow
 * there (an output layer of 50257 entries ran at 117 TFLOP/s on an H200, one of 151936 at 510). */
static bool uneven(const struct lf_k_gemm *g)
{
    return ((g->ta ? g->m : g->k) | (g->tb ? g->k : g->n) | g->n) % 8 != 0;
}

size_t lf_cuda_gemm_work(const struct lf_k_gemm *g, int threads)
{
    (void)threads;
    const size_t own = wanted(g) == LF_MM_FORM_SPLIT ? lf_cu_gemm_split_bytes(g) : 0,
                 lt = (size_t)LF_LT_WORK_MIB << 20;
    return for_library(g) && own < lt &&
                   (double)g->m * (double)g->n * (double)g->k >= LF_LT_WORK_FROM
               ? lt
               : own;
}

int lf_cuda_gemm_check(const struct lf_k_gemm *g)
{
    const bool types = lf_cu_float(g->ab_type) && lf_cu_float(g->c_type) &&
                       (!g->bias || lf_cu_float(g->bias_type)) && g->act <= LF_ACT_RELU &&
                       !g->b_packed;
    const bool sizes = g->m >= 0 && g->n > 0 && g->k > 0 && g->m <= INT32_MAX &&
                       g->n <= INT32_MAX && g->k <= INT32_MAX && g->lda >= (g->ta ? g->m : g->k) &&
                       g->ldb >= (g->tb ? g->k : g->n) && g->ldc >= g->n &&
                       (!g->pre || g->ldpre >= g->n) && (!g->residual || g->ldres >= g->n);
    const bool plain = g->c_type == LF_F32 && !g->bias && !g->pre && !g->act && !g->residual;
    return types && sizes && (!g->accumulate || plain) ? LF_K_OK : LF_K_EINVAL;
}

static int launch_tiles(lf_queue *q, struct lf_cu_gemm *a, bool big)
{
    static const enum lf_cu_fn half[2][3] = {
        {LF_CU_FN_gemm_bf16_nt, LF_CU_FN_gemm_bf16_nn, LF_CU_FN_gemm_bf16_tn},
        {LF_CU_FN_gemm_f16_nt, LF_CU_FN_gemm_f16_nn, LF_CU_FN_gemm_f16_tn}};
    const struct lf_k_gemm *g = &a->g;
    const int64_t size = big ? LF_MM_BIG : LF_MM_SMALL;
    const bool f16 = g->ab_type == LF_F16;
    enum lf_cu_fn fn = f16 ? LF_CU_FN_gemm_f16_small : LF_CU_FN_gemm_bf16_small;
    unsigned threads = big ? LF_MM_BIG_THREADS : LF_MM_SMALL_THREADS;
    size_t smem = big ? LF_MM_SMEM_BIG : LF_MM_SMEM_SMALL;
    if (g->ab_type == LF_F32) {
        fn = big ? LF_CU_FN_gemm_f32_big : LF_CU_FN_gemm_f32_small;
        threads = 256;
        smem = big ? LF_MM_SMEM_BIG : LF_MM_SMEM_F32_SMALL;
    } else if (big) {
        fn = half[f16][g->ta ? 2 : g->tb ? 0 : 1];
    }
    a->tiles_m = (int32_t)div_up(g->m, size);
    a->tiles_n = (int32_t)div_up(g->n, size);
    const int64_t blocks = (int64_t)a->tiles_m * a->tiles_n;
    if (blocks > INT32_MAX)
        return LF_K_EINVAL;
    return lf_cu_launch(
        q, fn,
        (struct lf_cu_dim){.x = (unsigned)blocks, .y = a->partial ? (unsigned)chunks_of(g) : 1},
        (struct lf_cu_dim){.x = threads}, smem, a);
}

int lf_cu_add_chunks(lf_queue *q, const struct lf_cu_gemm *a)
{
    const int64_t blocks = div_up(a->g.m * div_up(a->g.n, 2), JOIN_THREADS);
    return lf_cu_launch(
        q, LF_CU_FN_gemm_join,
        (struct lf_cu_dim){.x = (unsigned)(blocks < JOIN_BLOCKS ? blocks : JOIN_BLOCKS)},
        (struct lf_cu_dim){.x = JOIN_THREADS}, 0, a);
}

static int launch_split(lf_queue *q, struct lf_cu_gemm *a)
{
    a->partial = a->g.work;
    const int rc = launch_tiles(q, a, false);
    return rc != 0 ? rc : lf_cu_add_chunks(q, a);
}

static int launch_rows(lf_queue *q, const struct lf_cu_gemm *a)
{
    const int64_t chunks = chunks_of(&a->g),
                  warps = chunks < LF_MM_ROWS_WARPS ? chunks : LF_MM_ROWS_WARPS;
    return lf_cu_launch(q,
                        a->g.ab_type == LF_F16 ? LF_CU_FN_gemm_f16_rows : LF_CU_FN_gemm_bf16_rows,
                        (struct lf_cu_dim){.x = lf_cu_blocks(a->g.n, LF_MM_ROWS_COLS)},
                        (struct lf_cu_dim){.x = (unsigned)(32 * warps)},
                        (size_t)(warps * LF_MM_SMEM_ROWS_WARP + chunks * LF_MM_SMEM_ROWS_CHUNK), a);
}

int lf_cu_gemm_form_run(lf_queue *q, const struct lf_k_gemm *g, enum lf_mm_form form)
{
    struct lf_cu_gemm a = {.g = *g,
                           .vec_a = lf_cu_vec16(g->a, g->lda, g->ab_type),
                           .vec_b = lf_cu_vec16(g->b, g->ldb, g->ab_type)};
    switch (form) {
    case LF_MM_FORM_ROWS:
        return launch_rows(q, &a);
    case LF_MM_FORM_SPLIT:
        return launch_split(q, &a);
    case LF_MM_FORM_BIG:
    case LF_MM_FORM_SMALL:
        return launch_tiles(q, &a, form == LF_MM_FORM_BIG);
    default:
        return lf_cu_wgmma_run(q, &a, form);
    }
}

int lf_cuda_gemm(lf_queue *q, const struct lf_k_gemm *g)
{
    if (lf_cuda_gemm_check(g))
        return LF_K_EINVAL;
    if (g->m == 0)
        return LF_K_OK;
    const bool wgmma = q->dev->wgmma && lf_cu_wgmma_takes(g);
    if (for_library(g) && !(wgmma && uneven(g))) {
        bool done = false;
        const int rc = lf_blaslt_gemm(q, g, &done);
        if (rc != 0 || done)
            return rc;
    }
    if (wgmma)
        return lf_cu_gemm_form_run(q, g, lf_cu_wgmma_form(g));
    enum lf_mm_form form = wanted(g);
    if (!lf_cu_gemm_form_fits(g, form))
        form = LF_MM_FORM_SMALL;
    return lf_cu_gemm_form_run(q, g, form);
}
