/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching elementwise.cu.
 */
#include "kernels/cuda/elementwise.h"
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_ELEMENTWISE(LF_CUDA_DECLARE)

LF_CU_NO_WORK(fill)
LF_CU_NO_WORK(axpby)
LF_CU_NO_WORK(act_fwd)
LF_CU_NO_WORK(act_bwd)
LF_CU_NO_WORK(glu_fwd)
LF_CU_NO_WORK(glu_bwd)
LF_CU_NO_WORK(gather_rows)
LF_CU_NO_WORK(dropout)

enum { THREADS = 256, BLOCKS = 65536 };

/* One thread for `n` pieces of work, each of eight elements or of 16 bytes; beyond BLOCKS, threads
 * take several. */
static int launch(lf_queue *q, enum lf_cu_fn fn, int64_t n, const void *args)
{
    const int64_t b = (n + THREADS - 1) / THREADS;
    return lf_cu_launch(q, fn, (struct lf_cu_dim){.x = (unsigned)(b < BLOCKS ? b : BLOCKS)},
                        (struct lf_cu_dim){.x = THREADS}, 0, args);
}

static int64_t eights(int64_t rows, int64_t c)
{
    return rows * ((c + 7) / 8);
}

static bool act_ok(int64_t rows, int64_t c, uint8_t act, uint8_t type)
{
    return rows >= 0 && c > 0 && act <= LF_ACT_TANH && lf_cu_float(type);
}

int lf_cuda_fill_check(const struct lf_k_fill *a)
{
    return lf_cu_float(a->y_type) && a->n >= 0 ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_fill(lf_queue *q, const struct lf_k_fill *a)
{
    return launch(q, LF_CU_FN_fill, eights(1, a->n), a);
}

int lf_cuda_axpby_check(const struct lf_k_axpby *a)
{
    bool ok =
        lf_cu_float(a->a_type) && lf_cu_float(a->b_type) && lf_cu_float(a->y_type) && a->n >= 0;
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_axpby(lf_queue *q, const struct lf_k_axpby *a)
{
    return launch(q, LF_CU_FN_axpby, eights(1, a->n), a);
}

int lf_cuda_act_fwd_check(const struct lf_k_act_fwd *a)
{
    bool ok = act_ok(a->rows, a->c, a->act, a->x_type) && a->ldx >= a->c && a->ldy >= a->c;
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_act_fwd(lf_queue *q, const struct lf_k_act_fwd *a)
{
    return launch(q, LF_CU_FN_act_fwd, eights(a->rows, a->c), a);
}

int lf_cuda_act_bwd_check(const struct lf_k_act_bwd *a)
{
    bool ok = act_ok(a->rows, a->c, a->act, a->x_type) && a->ldx >= a->c && a->lddy >= a->c &&
              a->lddx >= a->c;
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_act_bwd(lf_queue *q, const struct lf_k_act_bwd *a)
{
    return launch(q, LF_CU_FN_act_bwd, eights(a->rows, a->c), a);
}

int lf_cuda_glu_fwd_check(const struct lf_k_glu_fwd *a)
{
    bool ok = act_ok(a->rows, a->c, a->act, a->x_type) && a->ldg >= a->c && a->ldu >= a->c &&
              a->ldy >= a->c;
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_glu_fwd(lf_queue *q, const struct lf_k_glu_fwd *a)
{
    return launch(q, LF_CU_FN_glu_fwd, eights(a->rows, a->c), a);
}

int lf_cuda_glu_bwd_check(const struct lf_k_glu_bwd *a)
{
    bool ok = act_ok(a->rows, a->c, a->act, a->x_type) && a->ldg >= a->c && a->ldu >= a->c &&
              a->lddy >= a->c && a->lddg >= a->c && a->lddu >= a->c;
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_glu_bwd(lf_queue *q, const struct lf_k_glu_bwd *a)
{
    return launch(q, LF_CU_FN_glu_bwd, eights(a->rows, a->c), a);
}

int lf_cuda_gather_rows_check(const struct lf_k_gather_rows *a)
{
    bool ok =
        a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && a->x_type < LF_DTYPE_COUNT;
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_gather_rows(lf_queue *q, const struct lf_k_gather_rows *a)
{
    const struct lf_cu_gather g = {*a, (int)lf_dtype_size((enum lf_dtype)a->x_type)};
    return launch(q, LF_CU_FN_gather_rows, a->rows * ((a->c * g.size + 15) / 16), &g);
}

int lf_cuda_dropout_check(const struct lf_k_dropout *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->ldx >= a->c && a->ldy >= a->c && a->c0 % 4 == 0 &&
              lf_cu_float(a->x_type) && a->p >= 0.0f && a->p < 1.0f;
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_dropout(lf_queue *q, const struct lf_k_dropout *a)
{
    return launch(q, LF_CU_FN_dropout, eights(a->rows, a->c), a);
}
