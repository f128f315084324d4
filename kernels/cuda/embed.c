/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching embed.cu.
 */
#include "kernels/cuda/embed.h"
#include "kernels/cuda/args.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/sort.h"
#include "kernels/cuda/table.h"

LF_CUDA_LIST_EMBED(LF_CUDA_DECLARE)

LF_CU_NO_WORK(embed_fwd)

enum { DIGIT = 10, MOST_KEYS = 1 << (2 * DIGIT) };

int lf_cuda_embed_fwd_check(const struct lf_k_embed_fwd *a)
{
    bool ok = a->rows >= 0 && a->c > 0 && a->v > 0 && a->max_pos >= 0 && lf_cu_float(a->w_type) &&
              lf_cu_float(a->y_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}
int lf_cuda_embed_fwd(lf_queue *q, const struct lf_k_embed_fwd *a)
{
    const int64_t n = a->rows * ((a->c + 7) / 8), most = 65536 * 256;
    return lf_cu_launch(q, LF_CU_FN_embed_fwd,
                        (struct lf_cu_dim){.x = lf_cu_blocks(n < most ? n : most, 256)},
                        (struct lf_cu_dim){.x = 256}, 0, a);
}

int lf_cuda_embed_bwd_check(const struct lf_k_embed_bwd *a)
{
    bool ok = a->rows >= 0 && a->rows <= INT32_MAX && a->c > 0 && a->v > 0 && a->v < MOST_KEYS &&
              a->v0 >= 0 && a->v0 <= INT32_MAX && a->max_pos >= 0 && a->max_pos < MOST_KEYS &&
              lf_cu_float(a->dy_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* Two orders of the rows, counts, first places. */
size_t lf_cuda_embed_bwd_work(const struct lf_k_embed_bwd *a, int threads)
{
    (void)threads;
    return (size_t)(2 * a->rows + LF_SORT_BINS * lf_cu_n_tiles(a->rows) + LF_SORT_BINS + 1) *
           sizeof(int32_t);
}

/* The rows sorted by the table row they go to, in one pass or two; the result is work's first or
 * second part. */
static int sort_rows(lf_queue *q, const struct lf_k_embed_bwd *a, struct lf_cu_embed_add *add)
{
    int32_t *work = a->work, *low = work, *high = work + a->rows;
    struct lf_cu_sort s = {.n = a->rows,
                           .key = add->index,
                           .out = low,
                           .count = high + a->rows,
                           .limit = add->limit,
                           .known = add->known,
                           .offset = add->offset,
                           .bins =
                               add->limit < LF_SORT_BINS ? (int32_t)add->limit + 1 : LF_SORT_BINS};
    s.first = s.count + LF_SORT_BINS * lf_cu_n_tiles(a->rows);
    add->order = low;
    int rc = lf_cu_sort(q, &s);
    if (rc != 0 || add->limit < LF_SORT_BINS)
        return rc;
    s.order = low;
    s.out = high;
    s.shift = DIGIT;
    s.bins = (int32_t)(add->limit >> DIGIT) + 1;
    add->order = high;
    return lf_cu_sort(q, &s);
}

static int add_rows(lf_queue *q, const struct lf_k_embed_bwd *a, float *table, int64_t limit,
                    const int32_t *index, int32_t offset, float scale)
{
    struct lf_cu_embed_add add = {.n = a->rows,
                                  .c = a->c,
                                  .limit = limit,
                                  .known = table == a->dwte ? a->known : 0,
                                  .index = index,
                                  .dy = a->dy,
                                  .table = table,
                                  .scale = scale,
                                  .offset = offset,
                                  .dy_type = a->dy_type};
    const int64_t eights = (a->c + 7) / 8, block = eights < 256 ? (eights + 31) / 32 * 32 : 256;
    int rc = 0;
    if (!table)
        return LF_K_OK;
    if (!a->accumulate)
        rc = lf_cu_result(q,
                          q->dev->cu.MemsetD8Async((lf_cu_ptr)(uintptr_t)table, 0,
                                                   (size_t)(limit * a->c) * 4, q->stream),
                          "embed_bwd");
    if (rc != 0 || !a->rows)
        return rc;
    rc = sort_rows(q, a, &add);
    if (rc != 0)
        return rc;
    return lf_cu_launch(
        q, LF_CU_FN_embed_add,
        (struct lf_cu_dim){.x = (unsigned)a->rows, .y = lf_cu_blocks(eights, block)},
        (struct lf_cu_dim){.x = (unsigned)block}, 0, &add);
}

int lf_cuda_embed_bwd(lf_queue *q, const struct lf_k_embed_bwd *a)
{
    if (a->work_bytes < lf_cuda_embed_bwd_work(a, 1))
        return LF_K_EINVAL;
    int rc = add_rows(q, a, a->dwte, a->v, a->token, -(int32_t)a->v0, a->scale);
    return rc != 0 ? rc : add_rows(q, a, a->dwpe, a->max_pos, a->position, a->pos_offset, 1.0f);
}
