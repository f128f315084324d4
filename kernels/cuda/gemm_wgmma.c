/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching gemm_wgmma.cu: whether that family is wanted, which of its forms runs, and the tensor
 * maps.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/gemm_form.h"

/* FEW_COLUMNS: with fewer, too few blocks would read the weights of up to 16 rows (on an H200
 * gemm.cu took 0.023 instead of 0.036 ms for 1536 x 8960, but 0.084 instead of 0.062 ms for 22016 x
 * 4096). */
enum { FEW_ROWS = 64, FEW_TILES = 64, SPLIT_TILES = 100, FEW_COLUMNS = 8192 };

static int64_t div_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

int lf_cu_wgmma_open(struct lf_cu_device *d, char *why, size_t cap)
{
    const char *s = getenv("LF_GEMM_CUDA");
    const bool asked = s && strcmp(s, "wgmma") == 0, mma = s && strcmp(s, "mma") == 0;
    d->wgmma = false;
    if (s && *s && !asked && !mma) {
        snprintf(why, cap, "LF_GEMM_CUDA is one of mma, wgmma");
        return LF_K_EDEVICE;
    }
    d->wgmma = !mma && d->sm == 90 && lf_cu_has(d, LF_CU_FN_gemm_wg_bf16_nt);
    if (d->wgmma || !asked)
        return LF_K_OK;
    if (d->sm != 90)
        snprintf(why, cap, "LF_GEMM_CUDA=wgmma needs compute capability 9.0, this GPU has %d.%d",
                 d->sm / 10, d->sm % 10);
    else
        snprintf(
            why, cap,
            "LF_GEMM_CUDA=wgmma: this build has no code for it (NVCC_GENCODE without compute_90)");
    return LF_K_EDEVICE;
}

bool lf_cu_wgmma_takes(const struct lf_k_gemm *g)
{
    return g->ab_type != LF_F32 && lf_cu_vec16(g->a, g->lda, g->ab_type) &&
           lf_cu_vec16(g->b, g->ldb, g->ab_type) && g->m <= INT32_MAX - LF_WG_M &&
           g->n <= INT32_MAX - LF_WG_N && g->k <= INT32_MAX - LF_WG_BK;
}

static bool rows_shape(const struct lf_k_gemm *g)
{
    return !g->ta && g->tb && g->m <= FEW_ROWS;
}

static int64_t chunks_of(const struct lf_k_gemm *g)
{
    return div_up(g->k, LF_MM_CHUNK);
}

bool lf_cu_wgmma_fits(const struct lf_k_gemm *g, enum lf_mm_form form)
{
    const bool rows = form == LF_MM_FORM_WG_ROWS || form == LF_MM_FORM_WG_ROWS_SPLIT;
    const bool split = form == LF_MM_FORM_WG_SPLIT || form == LF_MM_FORM_WG_ROWS_SPLIT;
    return lf_cu_wgmma_takes(g) && (!rows || rows_shape(g)) &&
           (!split || lf_cu_gemm_form_fits(g, LF_MM_FORM_SPLIT));
}

enum lf_mm_form lf_cu_wgmma_form(const struct lf_k_gemm *g)
{
    const bool rows = rows_shape(g);
    if (rows && g->n < FEW_COLUMNS && lf_cu_gemm_form_fits(g, LF_MM_FORM_ROWS))
        return LF_MM_FORM_ROWS;
    const int64_t tiles =
        rows ? div_up(g->n, LF_WG_ROWS_N) : div_up(g->m, LF_WG_M) * div_up(g->n, LF_WG_N);
    const enum lf_mm_form split = rows ? LF_MM_FORM_WG_ROWS_SPLIT : LF_MM_FORM_WG_SPLIT;
    if (tiles < (rows ? FEW_TILES : SPLIT_TILES) && chunks_of(g) > 1 && lf_cu_wgmma_fits(g, split))
        return split;
    return rows ? LF_MM_FORM_WG_ROWS : LF_MM_FORM_WG_BIG;
}

/* A matrix of `rows` rows of `width` elements, read in boxes of 64 elements by `high` rows. */
static int encode(lf_queue *q, struct lf_cu_tensor_map *map, const void *p, int64_t width,
                  int64_t rows, int64_t ld, uint8_t type, uint32_t high)
{
    const uint64_t dims[2] = {(uint64_t)width, (uint64_t)rows}, stride = (uint64_t)ld * 2;
    const uint32_t box[2] = {64, high}, steps[2] = {1, 1};
    return q->dev->cu.TensorMapEncodeTiled(
        map, type == LF_F16 ? LF_CU_TENSOR_F16 : LF_CU_TENSOR_BF16, 2, (void *)(uintptr_t)p, dims,
        &stride, box, steps, 0, LF_CU_TENSOR_SWIZZLE_128B, LF_CU_TENSOR_L2_256B, 0);
}

/* Boxes of `lanes` lanes with k along the row, or of 64 lanes with lanes along it. */
static int encode_both(lf_queue *q, struct lf_cu_gemm_wg *w, uint32_t lanes_a, uint32_t lanes_b)
{
    const struct lf_k_gemm *g = &w->m.g;
    int rc = g->ta ? encode(q, &w->a, g->a, g->m, g->k, g->lda, g->ab_type, LF_WG_BK)
                   : encode(q, &w->a, g->a, g->k, g->m, g->lda, g->ab_type, lanes_a);
    if (rc == 0)
        rc = g->tb ? encode(q, &w->b, g->b, g->k, g->n, g->ldb, g->ab_type, lanes_b)
                   : encode(q, &w->b, g->b, g->n, g->k, g->ldb, g->ab_type, LF_WG_BK);
    return lf_cu_result(q, rc, "cuTensorMapEncodeTiled");
}

static int launch_big(lf_queue *q, struct lf_cu_gemm_wg *w)
{
    static const enum lf_cu_fn fn[2][2][2] = {
        {{LF_CU_FN_gemm_wg_bf16_nn, LF_CU_FN_gemm_wg_bf16_nt},
         {LF_CU_FN_gemm_wg_bf16_tn, LF_CU_FN_gemm_wg_bf16_tt}},
        {{LF_CU_FN_gemm_wg_f16_nn, LF_CU_FN_gemm_wg_f16_nt},
         {LF_CU_FN_gemm_wg_f16_tn, LF_CU_FN_gemm_wg_f16_tt}}};
    const struct lf_k_gemm *g = &w->m.g;
    w->m.tiles_m = (int32_t)div_up(g->m, LF_WG_M);
    w->m.tiles_n = (int32_t)div_up(g->n, LF_WG_N);
    const int64_t items = (int64_t)w->m.tiles_m * w->m.tiles_n * (w->m.partial ? chunks_of(g) : 1);
    if (items > INT32_MAX / 2)
        return LF_K_EINVAL;
    w->items = (int32_t)items;
    const int64_t blocks = items < q->dev->n_sm ? items : q->dev->n_sm;
    const int rc = encode_both(q, w, LF_WG_M, LF_WG_N);
    return rc != 0 ? rc
                   : lf_cu_launch(q, fn[g->ab_type == LF_F16][g->ta][g->tb],
                                  (struct lf_cu_dim){.x = (unsigned)blocks},
                                  (struct lf_cu_dim){.x = LF_WG_THREADS}, LF_WG_SMEM, w);
}

static int launch_rows(lf_queue *q, struct lf_cu_gemm_wg *w)
{
    const struct lf_k_gemm *g = &w->m.g;
    const bool f16 = g->ab_type == LF_F16, few = g->m <= 16;
    const enum lf_cu_fn fn = few ? f16 ? LF_CU_FN_gemm_wg_f16_rows16 : LF_CU_FN_gemm_wg_bf16_rows16
                             : f16 ? LF_CU_FN_gemm_wg_f16_rows64
                                   : LF_CU_FN_gemm_wg_bf16_rows64;
    const struct lf_cu_dim grid = {.x = (unsigned)div_up(g->n, LF_WG_ROWS_N),
                                   .y = w->m.partial ? (unsigned)chunks_of(g) : 1};
    const int rc = encode_both(q, w, few ? 16 : 64, LF_WG_ROWS_N);
    return rc != 0 ? rc
                   : lf_cu_launch(q, fn, grid, (struct lf_cu_dim){.x = LF_WG_ROWS_THREADS},
                                  few ? LF_WG_ROWS_SMEM(16) : LF_WG_ROWS_SMEM(64), w);
}

int lf_cu_wgmma_run(lf_queue *q, const struct lf_cu_gemm *a, enum lf_mm_form form)
{
    struct lf_cu_gemm_wg w = {.m = *a};
    const bool split = form == LF_MM_FORM_WG_SPLIT || form == LF_MM_FORM_WG_ROWS_SPLIT;
    if (split)
        w.m.partial = a->g.work;
    const int rc = form == LF_MM_FORM_WG_BIG || form == LF_MM_FORM_WG_SPLIT ? launch_big(q, &w)
                                                                            : launch_rows(q, &w);
    return rc || !split ? rc : lf_cu_add_chunks(q, &w.m);
}
