/* SPDX-License-Identifier: Apache-2.0
 *
 * Launching sample.cu.
 */
#include "kernels/cuda/sample.h"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/table.h"

LF_CUDA_DECLARE(sample)

enum { ALIGN = 256, ROWS_MOST = 65535 /* grid.y */ };

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static void *take(unsigned char *base, size_t *at, size_t bytes)
{
    void *p = base ? base + *at : NULL;
    *at += aligned(bytes);
    return p;
}

/* Pointers into the workspace, and its size; base NULL: the size alone. */
static size_t layout(struct lf_cu_sample *c, const struct lf_k_sample *a, unsigned char *base)
{
    const size_t rows = (size_t)a->rows;
    size_t at = 0;
    *c = (struct lf_cu_sample){.k = *a, .chunks = (int32_t)lf_cu_blocks(a->v, LF_CU_SAMPLE_CHUNK)};
    c->part = take(base, &at, rows * (size_t)c->chunks * sizeof *c->part);
    c->cut = take(base, &at, rows * sizeof *c->cut);
    c->bin_mass = take(base, &at, rows * LF_CU_SAMPLE_BINS * sizeof *c->bin_mass);
    c->bin_count = take(base, &at, rows * LF_CU_SAMPLE_BINS * sizeof *c->bin_count);
    c->value = take(base, &at, rows * LF_SAMPLE_SORTED * sizeof *c->value);
    c->id = take(base, &at, rows * LF_SAMPLE_SORTED * sizeof *c->id);
    return at;
}

size_t lf_cuda_sample_work(const struct lf_k_sample *a, int threads)
{
    struct lf_cu_sample c;
    (void)threads;
    return ALIGN + layout(&c, a, NULL);
}

int lf_cuda_sample_check(const struct lf_k_sample *a)
{
    return a->rows >= 0 && a->rows <= ROWS_MOST && a->v > 0 && a->v <= LF_SAMPLE_MOST_TOKENS &&
                   a->ldz >= a->v
               ? LF_K_OK
               : LF_K_EINVAL;
}

int lf_cuda_sample(lf_queue *q, const struct lf_k_sample *a)
{
    enum {
        CHUNK_BYTES = LF_CU_SAMPLE_CHUNK * sizeof(double),
        BIN_BYTES = LF_CU_SAMPLE_BINS * (sizeof(uint64_t) + sizeof(int32_t)),
        SORT_BYTES = LF_SAMPLE_SORTED * (sizeof(double) + sizeof(int32_t)),
        SCRATCH = 512
    };
    struct lf_cu_sample c;
    if (lf_cuda_sample_check(a) ||
        (a->rows > 0 && (!a->work || a->work_bytes < lf_cuda_sample_work(a, 1))))
        return LF_K_EINVAL;
    unsigned char *work = a->work;
    if (a->rows > 0)
        layout(&c, a, work + (ALIGN - (uintptr_t)work % ALIGN) % ALIGN);
    const struct lf_cu_dim rows = {.x = (unsigned)a->rows}, block = {.x = LF_CU_SAMPLE_THREADS};
    const struct lf_cu_dim chunks = {.x = a->rows ? (unsigned)c.chunks : 0, .y = (unsigned)a->rows};
    int rc = lf_cu_launch(q, LF_CU_FN_sample_max, chunks, block, CHUNK_BYTES + SCRATCH, &c);
    if (rc == 0)
        rc = lf_cu_launch(q, LF_CU_FN_sample_bins, chunks, block, CHUNK_BYTES + BIN_BYTES + SCRATCH,
                          &c);
    if (rc == 0)
        rc = lf_cu_launch(q, LF_CU_FN_sample_cut, rows, block,
                          LF_CU_SAMPLE_BINS * sizeof(int32_t) + SCRATCH, &c);
    if (rc == 0)
        rc = lf_cu_launch(q, LF_CU_FN_sample_gather, chunks, block, CHUNK_BYTES + SCRATCH, &c);
    if (rc == 0)
        rc = lf_cu_launch(q, LF_CU_FN_sample_pick, rows, block, SORT_BYTES + SCRATCH, &c);
    return rc;
}
