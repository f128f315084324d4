/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching xent.cu and the products around it.
 */
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"
#include "kernels/cuda/xent_args.h"

LF_CUDA_DECLARE(gemm)
LF_CUDA_DECLARE(colsum)
LF_CUDA_DECLARE(linear_xent)
LF_CUDA_DECLARE(logit_stats)

_Static_assert(sizeof(struct lf_cu_xent_part) == LF_XENT_PART,
               "plans count what ranks exchange of a row");

enum {
    LOGITS_MIB = 1024,
    ROWS_LEAST = 128,
    ROWS_MOST = 4096,
    ALIGN = 256,
    SCRATCH = 16 * LF_XENT_THREADS / 32
};

struct layout {
    int64_t rows, ld;                         /* of a chunk; ld in f32 elements */
    size_t logits, outs, parts, product, all; /* bytes */
};

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static const void *at(const void *p, int64_t i, uint8_t type)
{
    return p ? (const char *)p + i * (int64_t)lf_dtype_size((enum lf_dtype)type) : NULL;
}

static struct lf_k_gemm logits_gemm(const struct lf_k_linear_xent *a, int64_t r0, int64_t rows,
                                    float *z, int64_t ld)
{
    return (struct lf_k_gemm){.m = rows,
                              .n = a->v,
                              .k = a->k,
                              .a = at(a->x, r0 * a->ldx, a->x_type),
                              .b = a->w,
                              .c = z,
                              .bias = a->bias,
                              .lda = a->ldx,
                              .ldb = a->ldw,
                              .ldc = ld,
                              .tb = true,
                              .ab_type = a->x_type,
                              .c_type = LF_F32,
                              .bias_type = a->x_type,
                              .mode = a->mode};
}

static struct lf_k_gemm dx_gemm(const struct lf_k_linear_xent *a, int64_t r0, int64_t rows,
                                const void *dz, int64_t ld)
{
    char *dx = a->dx;
    return (struct lf_k_gemm){
        .m = rows,
        .n = a->k,
        .k = a->v,
        .a = dz,
        .b = a->w,
        .c = dx ? dx + r0 * a->lddx * (int64_t)lf_dtype_size((enum lf_dtype)a->x_type) : NULL,
        .lda = ld,
        .ldb = a->ldw,
        .ldc = a->lddx,
        .ab_type = a->x_type,
        .c_type = a->x_type,
        .mode = a->mode};
}

static struct lf_k_gemm dw_gemm(const struct lf_k_linear_xent *a, int64_t r0, int64_t rows,
                                const void *dz, int64_t ld)
{
    return (struct lf_k_gemm){.m = a->v,
                              .n = a->k,
                              .k = rows,
                              .a = dz,
                              .b = at(a->x, r0 * a->ldx, a->x_type),
                              .c = a->dw,
                              .lda = ld,
                              .ldb = a->ldx,
                              .ldc = a->k,
                              .ta = true,
                              .accumulate = a->accumulate || r0 > 0,
                              .ab_type = a->x_type,
                              .c_type = LF_F32,
                              .mode = a->mode};
}

static struct lf_k_colsum db_colsum(const struct lf_k_linear_xent *a, int64_t r0, int64_t rows,
                                    const void *dz, int64_t ld)
{
    return (struct lf_k_colsum){.rows = rows,
                                .n = a->v,
                                .dy = dz,
                                .ld = ld,
                                .dy_type = a->x_type,
                                .db = a->db,
                                .accumulate = a->accumulate || r0 > 0};
}

/* Row distance of dlogits in elements of x_type. */
static int64_t dz_ld(const struct lf_k_linear_xent *a, int64_t ldz)
{
    return a->x_type == LF_F32 ? ldz : 2 * ldz;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Workspace of the products over `rows` rows. */
static size_t product_work(const struct lf_k_linear_xent *a, int64_t rows, int64_t ldz)
{
    const int64_t ld = dz_ld(a, ldz);
    const struct lf_k_gemm z = logits_gemm(a, 0, rows, NULL, ldz),
                           dx = dx_gemm(a, 0, rows, NULL, ld), dw = dw_gemm(a, 0, rows, NULL, ld);
    const struct lf_k_colsum db = db_colsum(a, 0, rows, NULL, ld);
    return most(most(lf_cuda_gemm_work(&z, 1), lf_cuda_gemm_work(&dx, 1)),
                most(lf_cuda_gemm_work(&dw, 1), lf_cuda_colsum_work(&db, 1)));
}

static struct layout layout_of(const struct lf_k_linear_xent *a)
{
    struct layout l = {.ld = (a->v + 15) / 16 * 16};
    l.rows = ((int64_t)LOGITS_MIB << 20) / (4 * l.ld) / ROWS_LEAST * ROWS_LEAST;
    l.rows = l.rows < ROWS_LEAST ? ROWS_LEAST : l.rows > ROWS_MOST ? ROWS_MOST : l.rows;
    l.rows = a->rows < l.rows ? a->rows : l.rows;
    if (l.rows == 0)
        return l;
    l.logits = aligned((size_t)(l.rows * l.ld) * sizeof(float));
    l.outs = aligned((size_t)l.rows * sizeof(struct lf_cu_xent_row));
    l.parts =
        a->with ? aligned((size_t)(l.rows * a->with->ranks) * sizeof(struct lf_cu_xent_part)) : 0;
    l.product = most(product_work(a, l.rows, l.ld),
                     a->rows % l.rows ? product_work(a, a->rows % l.rows, l.ld) : 0);
    l.all = ALIGN + l.logits + l.outs + l.parts + l.product;
    return l;
}

int64_t lf_cuda_xent_rows(const struct lf_k_linear_xent *a)
{
    return layout_of(a).rows;
}

size_t lf_cuda_linear_xent_work(const struct lf_k_linear_xent *a, int threads)
{
    (void)threads;
    return layout_of(a).all;
}

int lf_cuda_linear_xent_check(const struct lf_k_linear_xent *a)
{
    const bool ok = a->rows >= 0 && a->k > 0 && a->v > 0 && a->v_real >= (a->with ? 0 : 1) &&
                    a->v_real <= a->v && a->v <= INT32_MAX - LF_XENT_STEP && a->k <= INT32_MAX &&
                    lf_cu_float(a->x_type) && a->ldx >= a->k && a->ldw >= a->k && a->softcap >= 0 &&
                    a->inv_temperature >= 0 && a->head <= LF_MORE_HEADS && !a->w_packed;
    return ok && (!a->dx || a->lddx >= a->k) ? LF_K_OK : LF_K_EINVAL;
}

static int backward(lf_queue *q, const struct lf_cu_xent *c, void *work, size_t bytes)
{
    const struct lf_k_linear_xent *a = &c->x;
    const int64_t ld = dz_ld(a, c->ldz);
    int rc = LF_K_OK;
    if (a->dx) {
        struct lf_k_gemm g = dx_gemm(a, c->r0, c->rows, c->z, ld);
        g.work = work;
        g.work_bytes = bytes;
        rc = lf_cuda_gemm(q, &g);
    }
    if (rc == 0 && a->dw) {
        struct lf_k_gemm g = dw_gemm(a, c->r0, c->rows, c->z, ld);
        g.work = work;
        g.work_bytes = bytes;
        rc = lf_cuda_gemm(q, &g);
    }
    if (rc == 0 && a->db) {
        struct lf_k_colsum s = db_colsum(a, c->r0, c->rows, c->z, ld);
        s.work = work;
        s.work_bytes = bytes;
        rc = lf_cuda_colsum(q, &s);
    }
    return rc;
}

static int each_row(lf_queue *q, enum lf_cu_fn fn, const struct lf_cu_xent *c)
{
    return lf_cu_launch(q, fn, (struct lf_cu_dim){.x = (unsigned)c->rows},
                        (struct lf_cu_dim){.x = LF_XENT_THREADS}, SCRATCH, c);
}

/* Each rank's parts of the chunk's rows, then those of all, then what follows from them. */
static int divided_rows(lf_queue *q, const struct lf_cu_xent *c, const struct lf_k_ranks *w)
{
    int rc = each_row(q, LF_CU_FN_xent_parts, c);
    if (rc == 0 && (!w->gather || w->gather(w->user, c->parts, (size_t)c->rows * sizeof *c->parts)))
        rc = LF_K_EINVAL;
    return rc != 0 ? rc : each_row(q, LF_CU_FN_xent_joined, c);
}

static int chunk(lf_queue *q, struct lf_cu_xent *c, const struct lf_k_ranks *with, void *work,
                 size_t bytes)
{
    const bool sums = c->x.rec && !c->x.dlogp && !c->x.dentropy;
    struct lf_k_gemm g = logits_gemm(&c->x, c->r0, c->rows, c->z, c->ldz);
    g.work = work;
    g.work_bytes = bytes;
    int rc = lf_cuda_gemm(q, &g);
    if (rc == 0)
        rc = with ? divided_rows(q, c, with) : each_row(q, LF_CU_FN_xent_rows, c);
    if (rc == 0 && sums)
        rc = lf_cu_launch(q, LF_CU_FN_xent_sums, (struct lf_cu_dim){.x = 1},
                          (struct lf_cu_dim){.x = LF_XENT_THREADS},
                          3 * LF_XENT_THREADS * sizeof(double), c);
    return rc != 0 ? rc : backward(q, c, work, bytes);
}

static int zero(lf_queue *q, void *p, size_t bytes)
{
    return lf_cu_result(q, q->dev->cu.MemsetD8Async((lf_cu_ptr)(uintptr_t)p, 0, bytes, q->stream),
                        "memset");
}

/* No rows: gradients that are overwritten become 0. */
static int clear(lf_queue *q, const struct lf_k_linear_xent *a)
{
    int rc =
        a->dw && !a->accumulate ? zero(q, a->dw, (size_t)(a->v * a->k) * sizeof(float)) : LF_K_OK;
    return rc == 0 && a->db && !a->accumulate ? zero(q, a->db, (size_t)a->v * sizeof(float)) : rc;
}

int lf_cuda_linear_xent(lf_queue *q, const struct lf_k_linear_xent *a)
{
    const struct layout l = layout_of(a);
    if (lf_cuda_linear_xent_check(a) || (a->rows > 0 && (!a->work || a->work_bytes < l.all)))
        return LF_K_EINVAL;
    if (a->rows == 0)
        return clear(q, a);
    unsigned char *w = (unsigned char *)a->work + (ALIGN - (uintptr_t)a->work % ALIGN) % ALIGN;
    struct lf_cu_xent c = {.x = *a,
                           .ldz = l.ld,
                           .z = (float *)(void *)w,
                           .out = (struct lf_cu_xent_row *)(void *)(w + l.logits),
                           .rank = a->with ? a->with->rank : 0,
                           .ranks = a->with ? a->with->ranks : 1,
                           .grad = a->dx || a->dw || a->db};
    int rc = LF_K_OK;
    c.x.with = NULL; /* of the host */
    c.x.v_all = a->with ? a->v_all : a->v_real;
    if (a->with)
        c.parts = (struct lf_cu_xent_part *)(void *)(w + l.logits + l.outs);
    for (int64_t r0 = 0; r0 < a->rows && rc == 0; r0 += l.rows) {
        c.r0 = r0;
        c.rows = a->rows - r0 < l.rows ? a->rows - r0 : l.rows;
        rc = chunk(q, &c, a->with, w + l.logits + l.outs + l.parts, l.product);
    }
    return rc;
}

size_t lf_cuda_logit_stats_work(const struct lf_k_logit_stats *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}

int lf_cuda_logit_stats_check(const struct lf_k_logit_stats *a)
{
    return a->rows >= 0 && a->rows <= INT32_MAX && a->v_real > 0 &&
                   a->v_real <= INT32_MAX - LF_XENT_STEP && a->ldz >= a->v_real &&
                   a->softcap >= 0 && a->inv_temperature >= 0
               ? LF_K_OK
               : LF_K_EINVAL;
}

int lf_cuda_logit_stats(lf_queue *q, const struct lf_k_logit_stats *a)
{
    if (lf_cuda_logit_stats_check(a))
        return LF_K_EINVAL;
    return lf_cu_launch(q, LF_CU_FN_logit_stats, (struct lf_cu_dim){.x = (unsigned)a->rows},
                        (struct lf_cu_dim){.x = LF_XENT_THREADS}, SCRATCH, a);
}
