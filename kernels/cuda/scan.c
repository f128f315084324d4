/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching conv.cu and scan.cu.
 */
#include <string.h>

#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/scan_args.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_SCAN(LF_CUDA_DECLARE)
LF_CU_NO_WORK(conv_fwd)
LF_CU_NO_WORK(conv_bwd)
LF_CU_NO_WORK(scan_gate_fwd)
LF_CU_NO_WORK(scan_gate_bwd)

enum { THREADS = 256, COLUMNS = 32, ROW_BLOCKS = 1024 };
static const struct lf_cu_dim block = {.x = THREADS};

static bool act_ok(uint8_t act)
{
    return act == LF_ACT_NONE || act == LF_ACT_SILU;
}

/* Columns, and rows, of which a block takes several where there are many. */
static struct lf_cu_dim grid_of(int64_t rows, int64_t c)
{
    return (struct lf_cu_dim){.x = rows ? lf_cu_blocks(c, THREADS) : 0,
                              .y = (unsigned)(rows < ROW_BLOCKS ? rows : ROW_BLOCKS)};
}

int lf_cuda_conv_fwd_check(const struct lf_k_conv_fwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->taps > 0 && a->taps <= LF_CONV_MOST_TAPS &&
                   a->n_docs >= 0 && a->ldx >= a->c && a->ldy >= a->c && act_ok(a->act) &&
                   lf_cu_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_conv_fwd(lf_queue *q, const struct lf_k_conv_fwd *a)
{
    const struct lf_cu_dim grid = grid_of(a->rows, a->c);
    const int rc = lf_cu_launch(q, LF_CU_FN_conv_fwd, grid, block, 0, a);
    return rc != 0 || !a->state || a->taps == 1
               ? rc
               : lf_cu_launch(q, LF_CU_FN_conv_keep, grid, block, 0, a);
}

int lf_cuda_conv_bwd_check(const struct lf_k_conv_bwd *a)
{
    return a->rows >= 0 && a->c > 0 && a->taps > 0 && a->taps <= LF_CONV_MOST_TAPS &&
                   a->n_docs >= 0 && a->ldx >= a->c && a->lddy >= a->c && a->lddx >= a->c &&
                   act_ok(a->act) && lf_cu_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_conv_bwd(lf_queue *q, const struct lf_k_conv_bwd *a)
{
    return lf_cu_launch(q, LF_CU_FN_conv_bwd, (struct lf_cu_dim){.x = lf_cu_blocks(a->c, COLUMNS)},
                        block, (size_t)(8 * (a->taps + 1) * 32) * sizeof(float), a);
}

int lf_cuda_scan_gate_fwd_check(const struct lf_k_scan_gate_fwd *a)
{
    return a->rows >= 0 && a->heads > 0 && a->width > 0 && a->lda >= a->heads * a->width &&
                   (!a->ldb || a->ldb >= a->heads) && a->low < a->high && lf_cu_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_scan_gate_fwd(lf_queue *q, const struct lf_k_scan_gate_fwd *a)
{
    return lf_cu_launch(q, LF_CU_FN_scan_gate_fwd, grid_of(a->rows, a->heads * a->width), block, 0,
                        a);
}

int lf_cuda_scan_gate_bwd_check(const struct lf_k_scan_gate_bwd *a)
{
    return a->rows >= 0 && a->heads > 0 && a->width > 0 && a->lda >= a->heads * a->width &&
                   a->ldda >= a->heads * a->width && (!a->ldb || a->ldb >= a->heads) &&
                   a->low < a->high && lf_cu_float(a->x_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}
int lf_cuda_scan_gate_bwd(lf_queue *q, const struct lf_k_scan_gate_bwd *a)
{
    const unsigned n = a->width > 1 ? (unsigned)a->heads : lf_cu_blocks(a->heads, COLUMNS);
    return lf_cu_launch(q, LF_CU_FN_scan_gate_bwd, (struct lf_cu_dim){.x = n}, block,
                        512 * sizeof(float), a);
}

/* ---- scan ---- */

static bool scan_ok(const struct lf_scan_in *a)
{
    const int64_t width = a->per_channel ? a->heads * a->dk : a->heads;
    return a->rows >= 0 && a->rows < INT32_MAX && a->heads > 0 && a->groups > 0 &&
           a->heads % a->groups == 0 && a->dk > 0 && a->dv > 0 && a->dk <= LF_SCAN_CUDA_D &&
           a->dv <= LF_SCAN_MOST_D && a->n_docs >= 0 && a->ldq >= a->groups * a->dk &&
           a->ldk >= a->groups * a->dk && a->ldv >= a->heads * a->dv &&
           (a->ldg == 0 || a->ldg >= width) && a->unit_eps >= 0.0f && lf_cu_float(a->x_type);
}

/* Floats of shared memory: what all kernels have, and what follows the triangles. */
static size_t shared_base(const struct lf_scan_in *a)
{
    return (size_t)(LF_SCAN_CHUNK *
                        (2 * (a->dk + 1) + (a->per_channel ? a->dk : 1) + 1 + LF_SCAN_TRI) +
                    LF_SCAN_CHUNK / 2 * (a->per_channel ? a->dk : 1));
}
static size_t shared_rows(const struct lf_scan_in *a)
{
    return (shared_base(a) + (size_t)((2 * LF_SCAN_CHUNK + a->dk) * LF_SCAN_COLS)) * sizeof(float);
}
static size_t shared_grads(const struct lf_scan_in *a, int cols)
{
    return (shared_base(a) + (size_t)((3 * LF_SCAN_CHUNK + 2 * a->dk) * LF_SCAN_LD(cols) +
                                      3 * LF_SCAN_CHUNK + a->dk)) *
           sizeof(float);
}

int lf_cuda_scan_fwd_check(const struct lf_k_scan_fwd *a)
{
    return scan_ok(&a->in) && a->ldo >= a->in.heads * a->in.dv ? LF_K_OK : LF_K_EINVAL;
}
size_t lf_cuda_scan_fwd_work(const struct lf_k_scan_fwd *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}

static struct lf_cu_dim spans_of(const struct lf_scan_in *a, int64_t spans)
{
    return (struct lf_cu_dim){.x = (unsigned)(a->rows ? spans : 0),
                              .y = (unsigned)a->heads,
                              .z = lf_cu_blocks(a->dv, LF_SCAN_COLS)};
}

int lf_cuda_scan_fwd(lf_queue *q, const struct lf_k_scan_fwd *a)
{
    const struct lf_scan_in *in = &a->in;
    const bool open = in->mode == LF_INVARIANT;
    const struct lf_cu_scan_fwd f = {.k = *a,
                                     .dkp = lf_scan_pad(in->dk),
                                     .dvp = lf_scan_pad(in->dv),
                                     .slot = lf_scan_slot(in),
                                     .head = lf_scan_head_floats(in, open),
                                     .open = open};
    struct lf_cu_dim grid = spans_of(in, a->state ? in->rows : in->n_docs + 1);
    const int rc = lf_cu_launch(q, LF_CU_FN_scan_fwd, grid, block, shared_rows(in), &f);
    grid.z = 1;
    return rc != 0 || !a->state || !open ? rc
                                         : lf_cu_launch(q, LF_CU_FN_scan_keep, grid, block, 0, &f);
}

int lf_cuda_scan_bwd_check(const struct lf_k_scan_bwd *a)
{
    const struct lf_scan_in *in = &a->in;
    const int64_t width = in->per_channel ? in->heads * in->dk : in->heads;
    return scan_ok(in) && a->lddo >= in->heads * in->dv && a->lddq >= in->groups * in->dk &&
                   a->lddk >= in->groups * in->dk && a->lddv >= in->heads * in->dv &&
                   (!a->dg || a->lddg >= width)
               ? LF_K_OK
               : LF_K_EINVAL;
}

/* Floats of the states of all chunks, of a row of values, of a row of keys. */
struct parts {
    size_t states, values, keys;
    int64_t chunks;
};
static struct parts parts_of(const struct lf_scan_in *a)
{
    struct parts p = {.chunks = a->rows / LF_SCAN_CHUNK + a->n_docs};
    p.states = (size_t)(p.chunks * a->heads * a->dk * a->dv);
    p.values = (size_t)(a->rows * a->heads * a->dv);
    p.keys = (size_t)(a->rows * a->heads * a->dk);
    return p;
}
size_t lf_cuda_scan_bwd_work(const struct lf_k_scan_bwd *a, int threads)
{
    const struct parts p = parts_of(&a->in);
    (void)threads;
    return (2 * p.states + 3 * p.values + 3 * p.keys) * sizeof(float);
}

int lf_cuda_scan_bwd(lf_queue *q, const struct lf_k_scan_bwd *a)
{
    const struct lf_scan_in *in = &a->in;
    const struct parts p = parts_of(in);
    struct lf_cu_scan_bwd b = {.k = *a, .states = a->work};
    if (a->work_bytes < lf_cuda_scan_bwd_work(a, 1))
        return LF_K_EINVAL;
    b.dstates = b.states + p.states;
    b.u = b.dstates + p.states;
    b.t = b.u + p.values;
    b.r = b.t + p.values;
    b.dq = b.r + p.values;
    b.dkr = b.dq + p.keys;
    b.dkc = b.dkr + p.keys;
    const struct lf_cu_scan_fwd f = {.k = {.in = *in}, .states = b.states, .u = b.u, .t = b.t};
    struct lf_cu_dim grid = spans_of(in, in->n_docs);
    int rc = lf_cu_launch(q, LF_CU_FN_scan_fwd, grid, block, shared_rows(in), &f);
    if (rc == 0)
        rc = lf_cu_launch(q, LF_CU_FN_scan_back, grid, block, shared_rows(in), &b);
    grid.z = 1;
    grid.x = (unsigned)(in->rows && in->n_docs ? p.chunks : 0);
    const bool few = shared_grads(in, LF_SCAN_COLS) > (size_t)q->dev->smem_optin;
    if (rc == 0)
        rc = lf_cu_launch(q, few ? LF_CU_FN_scan_grads_few : LF_CU_FN_scan_grads, grid, block,
                          shared_grads(in, few ? LF_SCAN_FEW : LF_SCAN_COLS), &b);
    grid = (struct lf_cu_dim){.x = (unsigned)in->rows, .y = (unsigned)in->groups};
    if (rc == 0)
        rc = lf_cu_launch(q, LF_CU_FN_scan_join, grid, (struct lf_cu_dim){.x = 64}, 0, &b);
    grid = (struct lf_cu_dim){.x = a->dskip ? (unsigned)in->heads : 0};
    return rc != 0 ? rc : lf_cu_launch(q, LF_CU_FN_scan_skip, grid, block, 32 * sizeof(float), &b);
}

/* ---- GPUs with less shared memory ---- */

/* 163 KiB (8.0) have room for whatever scan_ok takes; GPUs with less (8.6, 8.9, 12.0) have 99. */
enum { SHARED_ALL = 163 << 10, SHARED_LESS = 99 << 10 };

static int fwd_less(const struct lf_k_scan_fwd *a)
{
    return shared_rows(&a->in) <= SHARED_LESS ? lf_cuda_scan_fwd_check(a) : LF_K_EINVAL;
}
static int bwd_less(const struct lf_k_scan_bwd *a)
{
    return shared_rows(&a->in) <= SHARED_LESS && shared_grads(&a->in, LF_SCAN_FEW) <= SHARED_LESS
               ? lf_cuda_scan_bwd_check(a)
               : LF_K_EINVAL;
}

void lf_cuda_scan_limit(struct lf_kernels *k, size_t block_bytes)
{
    if (block_bytes >= SHARED_ALL)
        return;
    k->scan_fwd.check = fwd_less;
    k->scan_bwd.check = bwd_less;
}
