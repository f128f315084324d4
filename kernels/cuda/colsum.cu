/* SPDX-License-Identifier: Apache-2.0
 *
 * Column sums (colsum_args.h states the tree).
 */
#include "kernels/cuda/colsum_args.h"
#include "kernels/cuda/dev.h"

/* Columns c and c + 1 of a row, 0 beyond the last. */
LF_DEV void two(float v[2], const struct lf_k_colsum *s, int64_t r, int64_t c)
{
    const int64_t i = r * s->ld + c;
    if (s->dy_type != LF_F32 && c + 1 < s->n &&
        ((uintptr_t)((const uint16_t *)s->dy + i) & 3) == 0) {
        const uint32_t u = *(const uint32_t *)((const uint16_t *)s->dy + i);
        v[0] = s->dy_type == LF_BF16 ? lf_bf16_f((uint16_t)u) : lf_f16_f((uint16_t)u);
        v[1] =
            s->dy_type == LF_BF16 ? lf_bf16_f((uint16_t)(u >> 16)) : lf_f16_f((uint16_t)(u >> 16));
        return;
    }
    v[0] = c < s->n ? lf_load(s->dy, i, s->dy_type) : 0.0f;
    v[1] = c + 1 < s->n ? lf_load(s->dy, i + 1, s->dy_type) : 0.0f;
}

LF_DEV void finish(const struct lf_k_colsum *s, int64_t c, float v)
{
    s->db[c] = s->accumulate ? s->db[c] + v : v;
}

/* The sum of the rows r0 ... r0 + LF_COLSUM_ROWS - 1 of column c0 + threadIdx.x; 0 in threads
 * without one. sums: [warps][64]. */
LF_DEV float block_sum(const struct lf_k_colsum *s, float *sums, int64_t c0, int64_t r0)
{
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, i = (int)threadIdx.x;
    const int64_t first = r0 + warp * LF_COLSUM_CHAIN;
    const int64_t end = first + LF_COLSUM_CHAIN < s->rows ? first + LF_COLSUM_CHAIN : s->rows;
    float x = 0.0f, y = 0.0f, t = 0.0f;
    for (int64_t r = first; r < end; r++) {
        float v[2];
        two(v, s, r, c0 + 2 * lane);
        x += v[0];
        y += v[1];
    }
    sums[warp * LF_COLSUM_COLS + 2 * lane] = x;
    sums[warp * LF_COLSUM_COLS + 2 * lane + 1] = y;
    __syncthreads();
    if (i >= LF_COLSUM_COLS || c0 + i >= s->n)
        return 0.0f;
    for (int w = 0; w < LF_COLSUM_WARPS; w++)
        t += sums[w * LF_COLSUM_COLS + i];
    return t;
}

LF_KERNEL(colsum, struct lf_cu_colsum, 32 * LF_COLSUM_WARPS)
{
    LF_SHARED(float, sums);
    const int64_t c0 = (int64_t)blockIdx.x * LF_COLSUM_COLS;
    const int i = (int)threadIdx.x;
    const float t = block_sum(&a->s, sums, c0, (int64_t)blockIdx.y * LF_COLSUM_ROWS);
    if (i >= LF_COLSUM_COLS || c0 + i >= a->s.n)
        return;
    if (a->partial)
        a->partial[blockIdx.y * a->s.n + c0 + i] = t;
    else
        finish(&a->s, c0 + i, t);
}

/* A block for 64 columns of a group, whose rows it takes as colsum and colsum_join do. */
LF_KERNEL(grouped_colsum, struct lf_k_grouped_colsum, 32 * LF_COLSUM_WARPS)
{
    LF_SHARED(float, sums);
    const int64_t c0 = (int64_t)blockIdx.x * LF_COLSUM_COLS, g = blockIdx.y,
                  from = a->offsets[g] * a->ld;
    const int i = (int)threadIdx.x;
    struct lf_k_colsum s;
    float t = 0.0f;
    s.rows = a->offsets[g + 1] - a->offsets[g];
    s.n = a->n;
    s.ld = a->ld;
    s.dy_type = a->dy_type;
    s.dy = a->dy_type == LF_F32 ? (const void *)((const float *)a->dy + from)
                                : (const void *)((const uint16_t *)a->dy + from);
    s.db = a->db + g * a->n;
    s.accumulate = a->accumulate;
    for (int64_t r0 = 0; r0 < s.rows; r0 += LF_COLSUM_ROWS) {
        t += block_sum(&s, sums, c0, r0);
        __syncthreads();
    }
    if (i < LF_COLSUM_COLS && c0 + i < a->n)
        finish(&s, c0 + i, t);
}

LF_KERNEL(colsum_join, struct lf_cu_colsum, 256)
{
    const int64_t c = lf_index(), blocks = (a->s.rows + LF_COLSUM_ROWS - 1) / LF_COLSUM_ROWS;
    if (c >= a->s.n)
        return;
    float t = 0.0f;
    for (int64_t b = 0; b < blocks; b++)
        t += a->partial[b * a->s.n + c];
    finish(&a->s, c, t);
}
