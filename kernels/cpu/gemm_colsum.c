/* SPDX-License-Identifier: Apache-2.0
 *
 * Column sums (bias gradients). Tree over rows: each block of 64 rows is one ascending chain from
 * 0, block sums are added ascending to 0 or, accumulating, to what is there. Threads own columns,
 * so their number changes nothing.
 */
#include "config.h"

#include "kernels/cpu/gemm_int.h"
#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(colsum)
LF_CPU_DECLARE(grouped_colsum)

enum { ROW_BLOCK = 64, VECS = 4 };

int LF_SYM(colsum_check)(const struct lf_k_colsum *a)
{
    return a->rows >= 0 && a->n > 0 && a->ld >= a->n && lf_is_float(a->dy_type) ? LF_K_OK
                                                                                : LF_K_EINVAL;
}

LF_NO_WORK(colsum)
LF_NO_WORK(grouped_colsum)

int LF_SYM(grouped_colsum_check)(const struct lf_k_grouped_colsum *a)
{
    return a->m >= 0 && a->n > 0 && a->groups > 0 && a->ld >= a->n && lf_is_float(a->dy_type)
               ? LF_K_OK
               : LF_K_EINVAL;
}

/* Columns [c0, c0 + n), n <= VECS * LF_VL. */
LF_INLINE void strip(const struct lf_k_colsum *a, int64_t c0, int64_t n, const uint8_t type)
{
    lf_v total[VECS], part[VECS];
    int64_t w[VECS];
#pragma GCC unroll 4
    for (int v = 0; v < VECS; v++) {
        int64_t left = n - v * LF_VL;
        w[v] = left < 0 ? 0 : left < LF_VL ? left : LF_VL;
        total[v] = a->accumulate ? lf_get(a->db, c0 + v * LF_VL, LF_F32, w[v]) : lf_v_zero();
    }
    for (int64_t r0 = 0; r0 < a->rows; r0 += ROW_BLOCK) {
        int64_t r1 = r0 + ROW_BLOCK < a->rows ? r0 + ROW_BLOCK : a->rows;
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++)
            part[v] = lf_v_zero();
        for (int64_t r = r0; r < r1; r++)
#pragma GCC unroll 4
            for (int v = 0; v < VECS; v++)
                part[v] += lf_get(a->dy, r * a->ld + c0 + v * LF_VL, type, w[v]);
#pragma GCC unroll 4
        for (int v = 0; v < VECS; v++)
            total[v] += part[v];
    }
#pragma GCC unroll 4
    for (int v = 0; v < VECS; v++)
        lf_put(a->db, c0 + v * LF_VL, LF_F32, w[v], total[v]);
}

LF_INLINE void strip_of(const struct lf_k_colsum *a, int64_t c, int64_t step)
{
    const int64_t n = a->n - c < step ? a->n - c : step;
    if (a->dy_type == LF_BF16)
        strip(a, c, n, LF_BF16);
    else
        strip(a, c, n, LF_F32);
}

enum { STEP = VECS * LF_VL };

static void colsum_strips(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    (void)q;
    for (int64_t i = lo; i < hi; i++)
        strip_of(arg, i * STEP, STEP);
}

int LF_SYM(colsum)(lf_queue *q, const struct lf_k_colsum *a)
{
    if (LF_SYM(colsum_check)(a))
        return LF_K_EINVAL;
    lf_deal(q, lf_team(q, a->rows * a->n * 2), (a->n + STEP - 1) / STEP, 1, colsum_strips, a);
    return LF_K_OK;
}

/* Strips [lo, hi), those of each group one after the other. */
static void grouped_strips(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_grouped_colsum *a = arg;
    const int64_t strips = (a->n + STEP - 1) / STEP;
    (void)q;
    for (int64_t i = lo; i < hi; i++) {
        const int64_t g = i / strips, first = a->offsets[g];
        const struct lf_k_colsum one = {.rows = a->offsets[g + 1] - first,
                                        .n = a->n,
                                        .ld = a->ld,
                                        .dy = lf_at(a->dy, first * a->ld, a->dy_type),
                                        .db = a->db + g * a->n,
                                        .dy_type = a->dy_type,
                                        .accumulate = a->accumulate};
        strip_of(&one, i % strips * STEP, STEP);
    }
}

int LF_SYM(grouped_colsum)(lf_queue *q, const struct lf_k_grouped_colsum *a)
{
    if (LF_SYM(grouped_colsum_check)(a) || a->offsets[a->groups] > a->m)
        return LF_K_EINVAL;
    lf_deal(q, lf_team(q, (a->m + a->groups) * a->n * 2), a->groups * ((a->n + STEP - 1) / STEP), 1,
            grouped_strips, a);
    return LF_K_OK;
}
