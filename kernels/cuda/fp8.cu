/* SPDX-License-Identifier: Apache-2.0
 *
 * Quantising to 8-bit floats (kernels.h, quantise): x is read once (twice with one scale for the
 * tensor), the copy and the transposed copy are written in pieces of 8 and 16 bytes. Magnitudes are
 * compared as bits, which order as the numbers do with NaN above all, so the order of a maximum
 * changes nothing.
 */
#include "kernels/cuda/each.h"
#include "kernels/cuda/fp8.h"

#ifdef __CUDACC__
#include <cuda_fp8.h>
/* lo in the low byte */
LF_DEV uint32_t f8_pair(float lo, float hi, bool e4m3)
{
    return __nv_cvt_float2_to_fp8x2(make_float2(lo, hi), __NV_SATFINITE,
                                    e4m3 ? __NV_E4M3 : __NV_E5M2);
}
#else
#include "engine/base/f8.h"
LF_DEV uint32_t f8_pair(float lo, float hi, bool e4m3)
{
    return e4m3 ? (uint32_t)lf_e4m3_of(hi) << 8 | lf_e4m3_of(lo)
                : (uint32_t)lf_e5m2_of(hi) << 8 | lf_e5m2_of(lo);
}
#endif

LF_DEV uint64_t f8_eight(const float v[8], bool e4m3)
{
    const uint32_t lo = f8_pair(v[0], v[1], e4m3) | f8_pair(v[2], v[3], e4m3) << 16;
    const uint32_t hi = f8_pair(v[4], v[5], e4m3) | f8_pair(v[6], v[7], e4m3) << 16;
    return (uint64_t)hi << 32 | lo;
}

LF_DEV int larger(int a, int b)
{
    return a > b ? a : b;
}
LF_DEV int magnitude(float x)
{
    return (int)(lf_f_u32(x) & 0x7fffffffu);
}

/* Over a block of LF_QUANT_THREADS, in every thread; scratch: 32 words, free again on return. */
LF_DEV int block_largest(int v, int *scratch)
{
    const int lane = (int)threadIdx.x % 32;
    LF_UNROLL for (int m = 16; m; m >>= 1) v = larger(v, lf_shfl_xor_i(v, m));
    if (lane == 0)
        scratch[threadIdx.x / 32] = v;
    __syncthreads();
    v = lane < LF_QUANT_THREADS / 32 ? scratch[lane] : 0;
    LF_UNROLL for (int m = 16; m; m >>= 1) v = larger(v, lf_shfl_xor_i(v, m));
    __syncthreads();
    return v;
}

struct f8_scale {
    float up, s; /* 2^e and 2^-e */
};
LF_DEV struct f8_scale scale_of(int most, bool e4m3)
{
    const int least = 0x21800000, a = larger(most, least); /* 2^-60 */
    const int e = (e4m3 ? 8 : 15) + 127 - (a >> 23) -
                  ((a & 0x7fffff) > 0x600000 ? 1 : 0); /* 448 = 1.75 2^8 */
    const uint32_t nan = 0x7fc00000u;
    struct f8_scale r;
    r.up = lf_u32_f(most >= 0x7f800000 ? nan : (uint32_t)(127 + e) << 23);
    r.s = lf_u32_f(most >= 0x7f800000 ? nan : (uint32_t)(127 - e) << 23);
    return r;
}

LF_KERNEL(quantise_most, struct lf_cu_quantise, LF_QUANT_THREADS)
{
    LF_SHARED(int, scratch);
    const struct lf_k_quantise *k = &a->k;
    int most = 0;
    LF_EACH_EIGHT(r, at, k->rows, k->cols)
    {
        float v[8];
        lf_load_n(v, k->x, r * k->ldx + at, k->x_type, lf_eight(k->cols, at), a->vec_x);
        LF_UNROLL for (int i = 0; i < 8; i++) most = larger(most, magnitude(v[i]));
    }
    most = block_largest(most, scratch);
    if (threadIdx.x == 0)
        a->most[blockIdx.x] = most;
}

/* A thread's part of the tile: rows row ... row + 7 of columns col ... col + 7; 0 outside of the
 * matrix. Lanes 0 to 15 have 128 columns of 8 rows, lanes 16 to 31 those of the next 8. */
struct part {
    int64_t row, col;
    int rows, cols; /* inside of the matrix, 0 to 8 */
    float v[8][8];
};

LF_DEV void part_load(struct part *p, const struct lf_cu_quantise *a)
{
    const struct lf_k_quantise *k = &a->k;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    p->row =
        (int64_t)(blockIdx.x / (unsigned)a->across) * LF_FP8_BLOCK + 16 * warp + 8 * (lane / 16);
    p->col = (int64_t)(blockIdx.x % (unsigned)a->across) * LF_FP8_BLOCK + 8 * (lane % 16);
    p->rows = p->row < k->rows ? lf_eight(k->rows, p->row) : 0;
    p->cols = p->col < k->cols ? lf_eight(k->cols, p->col) : 0;
    LF_UNROLL for (int r = 0; r < 8; r++)
    {
        lf_load_n(p->v[r], k->x, (p->row + r) * k->ldx + p->col, k->x_type,
                  r < p->rows ? p->cols : 0, a->vec_x);
    }
}

/* A place in a row of scales of squares: n of them, rounded up to a multiple of 4. */
LF_DEV int64_t pitch_of(int64_t cols)
{
    return ((cols + LF_FP8_BLOCK - 1) / LF_FP8_BLOCK + 3) / 4 * 4;
}

/* One factor for the tile. */
LF_DEV float tile_scale(const struct lf_cu_quantise *a, const struct part *p, int *scratch)
{
    const struct lf_k_quantise *k = &a->k;
    int most = 0;
    if (k->scaling == LF_FP8_TENSOR) {
        for (int i = (int)threadIdx.x; i < a->n_most; i += LF_QUANT_THREADS)
            most = larger(most, a->most[i]);
    } else {
        LF_UNROLL for (int r = 0; r < 8; r++)
        {
            LF_UNROLL for (int c = 0; c < 8; c++) most = larger(most, magnitude(p->v[r][c]));
        }
    }
    const struct f8_scale f = scale_of(block_largest(most, scratch), k->q_type == LF_E4M3);
    const int64_t i = blockIdx.x / (unsigned)a->across, j = blockIdx.x % (unsigned)a->across;
    if (threadIdx.x == 0 && k->scaling == LF_FP8_BLK128) {
        if (k->scale)
            k->scale[i * pitch_of(k->cols) + j] = f.s;
        if (k->scale_t)
            k->scale_t[j * pitch_of(k->rows) + i] = f.s;
    }
    if (threadIdx.x == 0 && blockIdx.x == 0 && k->scaling == LF_FP8_TENSOR && k->scale)
        k->scale[0] = f.s;
    return f.up;
}

/* A factor for each of the thread's rows: over 16 lanes. */
LF_DEV void row_scales(float up[8], const struct lf_cu_quantise *a, const struct part *p)
{
    const struct lf_k_quantise *k = &a->k;
    LF_UNROLL for (int r = 0; r < 8; r++)
    {
        int most = 0;
        LF_UNROLL for (int c = 0; c < 8; c++) most = larger(most, magnitude(p->v[r][c]));
        LF_UNROLL for (int m = 8; m; m >>= 1) most = larger(most, lf_shfl_xor_i(most, m));
        const struct f8_scale f = scale_of(most, k->q_type == LF_E4M3);
        up[r] = f.up;
        if (threadIdx.x % 16 == 0 && r < p->rows && k->scale)
            k->scale[p->col / LF_FP8_BLOCK * k->rows + p->row + r] = f.s;
    }
}

/* And for each of its columns: over both halves of 8 warps, through maxima [8][128]. */
LF_DEV void col_scales(float up[8], const struct lf_cu_quantise *a, const struct part *p,
                       int *maxima)
{
    const struct lf_k_quantise *k = &a->k;
    const int lane = (int)threadIdx.x % 32, at = lane % 16 * 8;
    LF_UNROLL for (int c = 0; c < 8; c++)
    {
        int most = 0;
        LF_UNROLL for (int r = 0; r < 8; r++) most = larger(most, magnitude(p->v[r][c]));
        most = larger(most, lf_shfl_xor_i(most, 16));
        if (lane < 16)
            maxima[(int)threadIdx.x / 32 * LF_FP8_BLOCK + at + c] = most;
    }
    __syncthreads();
    LF_UNROLL for (int c = 0; c < 8; c++)
    {
        int most = 0;
        LF_UNROLL for (int w = 0; w < 8; w++) most =
            larger(most, maxima[w * LF_FP8_BLOCK + at + c]);
        const struct f8_scale f = scale_of(most, k->q_type == LF_E4M3);
        up[c] = f.up;
        if (threadIdx.x < 16 && c < p->cols && k->scale_t)
            k->scale_t[p->row / LF_FP8_BLOCK * k->cols + p->col + c] = f.s;
    }
}

LF_DEV void put_eight(uint8_t *to, uint64_t eight, int n, bool vec)
{
    if (vec && n == 8) {
        *(uint64_t *)(void *)to = eight;
        return;
    }
    for (int i = 0; i < n; i++)
        to[i] = (uint8_t)(eight >> (8 * i));
}

/* The transposed tile passes through shared memory as [128 columns][16 pieces of 8 rows]; piece u
 * of column c lies at place u ^ (c / 8 % 16), so that 16 lanes meet all banks on the way in, and
 * rows go out 16 bytes a thread. */
LF_DEV void store_transposed(const struct lf_cu_quantise *a, const struct part *p,
                             const float up[8], uint64_t *tile)
{
    const struct lf_k_quantise *k = &a->k;
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32,
              unit = 2 * warp + lane / 16;
    LF_UNROLL for (int c = 0; c < 8; c++)
    {
        float v[8];
        LF_UNROLL for (int r = 0; r < 8; r++) v[r] = p->v[r][c] * up[c];
        tile[(lane % 16 * 8 + c) * 16 + (unit ^ (lane % 16))] = f8_eight(v, k->q_type == LF_E4M3);
    }
    __syncthreads();
    const int64_t row0 = p->row - 8 * unit, col0 = p->col - lane % 16 * 8;
    const int piece = (int)threadIdx.x % 8;
    const int64_t row = row0 + 16 * piece;
    for (int c = (int)threadIdx.x / 8; c < LF_FP8_BLOCK; c += LF_QUANT_THREADS / 8) {
        const int n = row < k->rows ? (int)(k->rows - row < 16 ? k->rows - row : 16) : 0,
                  x = c / 8 % 16;
        if (col0 + c >= k->cols || n == 0)
            continue;
        const uint64_t lo = tile[c * 16 + (2 * piece ^ x)],
                       hi = tile[c * 16 + ((2 * piece + 1) ^ x)];
        uint8_t *to = (uint8_t *)k->qt + (col0 + c) * k->rows + row;
        if (a->vec_qt && n == 16) {
            struct lf_u4 w;
            w.x[0] = (uint32_t)lo;
            w.x[1] = (uint32_t)(lo >> 32);
            w.x[2] = (uint32_t)hi;
            w.x[3] = (uint32_t)(hi >> 32);
            *(struct lf_u4 *)(void *)to = w;
            continue;
        }
        put_eight(to, lo, n < 8 ? n : 8, false);
        put_eight(to + 8, hi, n - 8, false);
    }
}

LF_KERNEL(quantise, struct lf_cu_quantise, LF_QUANT_THREADS)
{
    LF_SHARED(uint64_t, tile);
    int *maxima = (int *)(void *)(tile + LF_FP8_BLOCK * LF_FP8_BLOCK / 8),
        *scratch = maxima + 8 * LF_FP8_BLOCK;
    const struct lf_k_quantise *k = &a->k;
    struct part p;
    float row_up[8], col_up[8];
    part_load(&p, a);
    if (k->scaling == LF_FP8_VEC128) {
        row_scales(row_up, a, &p);
        col_scales(col_up, a, &p, maxima);
    } else {
        const float up = tile_scale(a, &p, scratch);
        LF_UNROLL for (int i = 0; i < 8; i++) row_up[i] = col_up[i] = up;
    }
    if (k->q) {
        LF_UNROLL for (int r = 0; r < 8; r++)
        {
            float v[8];
            LF_UNROLL for (int c = 0; c < 8; c++) v[c] = p.v[r][c] * row_up[r];
            if (r < p.rows)
                put_eight((uint8_t *)k->q + (p.row + r) * k->cols + p.col,
                          f8_eight(v, k->q_type == LF_E4M3), p.cols, a->vec_q);
        }
    }
    if (k->qt)
        store_transposed(a, &p, col_up, tile);
}
