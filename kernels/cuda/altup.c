/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching altup.cu.
 */
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_ALTUP(LF_CUDA_DECLARE)
LF_CUDA_LIST_ALTUP(LF_CU_NO_WORK)

enum { THREADS = 256, BLOCKS = 65536, SCRATCH = 32 * sizeof(float) };

/* A block for a row; beyond BLOCKS, blocks take several. */
static int by_rows(lf_queue *q, enum lf_cu_fn fn, int64_t rows, const void *args)
{
    return lf_cu_launch(q, fn, (struct lf_cu_dim){.x = (unsigned)(rows < BLOCKS ? rows : BLOCKS)},
                        (struct lf_cu_dim){.x = THREADS}, SCRATCH, args);
}

static bool counts_ok(int64_t rows, int64_t c, int32_t from, int32_t to)
{
    return rows >= 0 && c > 0 && from > 0 && from <= LF_MOST_STREAMS && to > 0 &&
           to <= LF_MOST_STREAMS;
}

int lf_cuda_altup_mix_check(const struct lf_k_altup_mix *a)
{
    const int32_t in = a->back ? a->to : a->from, out = a->back ? a->from : a->to;
    bool ok = counts_ok(a->rows, a->c, a->from, a->to) && a->ldx >= in * a->c &&
              a->ldy >= out * a->c && (!a->w || a->ldw >= (int64_t)a->from * a->to) &&
              lf_cu_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_altup_mix(lf_queue *q, const struct lf_k_altup_mix *a)
{
    const int64_t n = (a->rows * ((a->c + 7) / 8) + THREADS - 1) / THREADS;
    return lf_cu_launch(q, LF_CU_FN_altup_mix,
                        (struct lf_cu_dim){.x = (unsigned)(n < BLOCKS ? n : BLOCKS)},
                        (struct lf_cu_dim){.x = THREADS}, 0, a);
}

int lf_cuda_altup_mix_dw_check(const struct lf_k_altup_mix_dw *a)
{
    bool ok = counts_ok(a->rows, a->c, a->from, a->to) && a->ldx >= a->from * a->c &&
              a->lddy >= a->to * a->c && a->lddw >= (int64_t)a->from * a->to &&
              lf_cu_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_altup_mix_dw(lf_queue *q, const struct lf_k_altup_mix_dw *a)
{
    return by_rows(q, LF_CU_FN_altup_mix_dw, a->rows, a);
}

int lf_cuda_match_rms_fwd_check(const struct lf_k_match_rms_fwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->parts > 0 && a->ldx >= a->parts * a->c &&
              a->ldy >= a->parts * a->c && a->ldlike >= a->c && a->eps > 0 &&
              lf_cu_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_match_rms_fwd(lf_queue *q, const struct lf_k_match_rms_fwd *a)
{
    return by_rows(q, LF_CU_FN_match_rms_fwd, a->rows, a);
}

int lf_cuda_match_rms_bwd_check(const struct lf_k_match_rms_bwd *a)
{
    const int64_t all = a->parts * a->c;
    bool ok = a->rows >= 0 && a->c > 0 && a->parts > 0 && a->ldx >= all && a->lddy >= all &&
              a->lddx >= all && a->ldlike >= a->c && a->lddlike >= a->c && a->eps > 0 &&
              lf_cu_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_match_rms_bwd(lf_queue *q, const struct lf_k_match_rms_bwd *a)
{
    return by_rows(q, LF_CU_FN_match_rms_bwd, a->rows, a);
}

int lf_cuda_gauss_topk_fwd_check(const struct lf_k_gauss_topk_fwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && lf_cu_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_gauss_topk_fwd(lf_queue *q, const struct lf_k_gauss_topk_fwd *a)
{
    return by_rows(q, LF_CU_FN_gauss_topk_fwd, a->rows, a);
}

int lf_cuda_gauss_topk_bwd_check(const struct lf_k_gauss_topk_bwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->lddy >= a->c && a->lddx >= a->c &&
                   lf_cu_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_gauss_topk_bwd(lf_queue *q, const struct lf_k_gauss_topk_bwd *a)
{
    return by_rows(q, LF_CU_FN_gauss_topk_bwd, a->rows, a);
}
