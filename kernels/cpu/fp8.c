/* SPDX-License-Identifier: Apache-2.0
 *
 * 8-bit matrices on the CPU, which has no products of them: quantising by tiles of 128 x 128, and
 * the product as one of bf16, in which every value with its scale is exact (kernels.h). It serves
 * tests and loss curves, not speed.
 */
#include "config.h"

#include "engine/base/f8.h"
#include "kernels/cpu/ops.h"

LF_CPU_DECLARE(gemm)
LF_CPU_DECLARE(quantise)
LF_CPU_DECLARE(gemm_fp8)

LF_NO_WORK(quantise)

enum { B = LF_FP8_BLOCK, ALIGN = 64 };
#define LEAST 0x21800000u /* 2^-60 */

static int64_t blocks(int64_t n)
{
    return (n + B - 1) / B;
}

/* 2^e for a block whose largest |x| has these bits, and its inverse s. */
static void scale_of(uint32_t most, uint8_t type, float *up, float *s)
{
    const uint32_t a = most < LEAST ? LEAST : most;
    const int top = type == LF_E4M3 ? 8 : 15; /* the largest value is 1.75 2^top */
    const int e = top + 127 - (int)(a >> 23) - ((a & 0x7fffffu) > 0x600000u ? 1 : 0);
    *up = most >= 0x7f800000u ? lf_f32_of_bits(0x7fc00000u)
                              : lf_f32_of_bits((uint32_t)(127 + e) << 23);
    *s = most >= 0x7f800000u ? *up : lf_f32_of_bits((uint32_t)(127 - e) << 23);
}

static float value(const void *x, int64_t i, uint8_t type)
{
    return type == LF_F32 ? ((const float *)x)[i]
                          : lf_f32_of_bits((uint32_t)((const uint16_t *)x)[i] << 16);
}

/* Largest magnitude as bits, which order as numbers do, NaN above all. */
static uint32_t larger(uint32_t most, float x)
{
    const uint32_t a = lf_bits_of_f32(x) & 0x7fffffffu;
    return a > most ? a : most;
}

struct most {
    const struct lf_k_quantise *a;
    uint32_t *most; /* of all pieces so far */
};

static void most_of_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct most *job = arg;
    const struct lf_k_quantise *a = job->a;
    uint32_t most = 0, seen = __atomic_load_n(job->most, __ATOMIC_RELAXED);
    (void)q;
    for (int64_t r = lo; r < hi; r++)
        for (int64_t c = 0; c < a->cols; c++)
            most = larger(most, value(a->x, r * a->ldx + c, a->x_type));
    while (most > seen && !__atomic_compare_exchange_n(job->most, &seen, most, true,
                                                       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

static uint32_t largest(lf_queue *q, const struct lf_k_quantise *a)
{
    uint32_t most = 0;
    lf_deal(q, lf_team(q, a->rows * a->cols * 4), a->rows, lf_few_rows(a->cols), most_of_rows,
            &(struct most){a, &most});
    return most;
}

struct tile {
    int64_t row, col, rows, cols; /* where it begins, what it has */
    float x[B][B];
    float row_up[B], col_up[B]; /* 2^e of the row's block in q, of the column's in qt */
};

static void scale_rows(const struct lf_k_quantise *a, struct tile *t)
{
    for (int64_t r = 0; r < t->rows; r++) {
        uint32_t most = 0;
        float s;
        for (int64_t c = 0; c < t->cols; c++)
            most = larger(most, t->x[r][c]);
        scale_of(most, a->q_type, &t->row_up[r], &s);
        if (a->scale)
            a->scale[t->col / B * a->rows + t->row + r] = s;
    }
}

static void scale_cols(const struct lf_k_quantise *a, struct tile *t)
{
    for (int64_t c = 0; c < t->cols; c++) {
        uint32_t most = 0;
        float s;
        for (int64_t r = 0; r < t->rows; r++)
            most = larger(most, t->x[r][c]);
        scale_of(most, a->q_type, &t->col_up[c], &s);
        if (a->scale_t)
            a->scale_t[t->row / B * a->cols + t->col + c] = s;
    }
}

static void scale_square(const struct lf_k_quantise *a, struct tile *t)
{
    uint32_t most = 0;
    float up, s;
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->cols; c++)
            most = larger(most, t->x[r][c]);
    scale_of(most, a->q_type, &up, &s);
    for (int64_t i = 0; i < B; i++)
        t->row_up[i] = t->col_up[i] = up;
    if (a->scale)
        a->scale[t->row / B * ((blocks(a->cols) + 3) / 4 * 4) + t->col / B] = s;
    if (a->scale_t)
        a->scale_t[t->col / B * ((blocks(a->rows) + 3) / 4 * 4) + t->row / B] = s;
}

static uint8_t narrow(float x, uint8_t type)
{
    return type == LF_E4M3 ? lf_e4m3_of(x) : lf_e5m2_of(x);
}

static void store(const struct lf_k_quantise *a, const struct tile *t)
{
    uint8_t *q = a->q, *qt = a->qt;
    for (int64_t r = 0; r < t->rows && q; r++)
        for (int64_t c = 0; c < t->cols; c++)
            q[(t->row + r) * a->cols + t->col + c] = narrow(t->x[r][c] * t->row_up[r], a->q_type);
    for (int64_t c = 0; c < t->cols && qt; c++)
        for (int64_t r = 0; r < t->rows; r++)
            qt[(t->col + c) * a->rows + t->row + r] = narrow(t->x[r][c] * t->col_up[c], a->q_type);
}

static void one_tile(const struct lf_k_quantise *a, struct tile *t, float up)
{
    for (int64_t r = 0; r < t->rows; r++)
        for (int64_t c = 0; c < t->cols; c++)
            t->x[r][c] = value(a->x, (t->row + r) * a->ldx + t->col + c, a->x_type);
    for (int64_t i = 0; i < B; i++)
        t->row_up[i] = t->col_up[i] = up;
    if (a->scaling == LF_FP8_VEC128) {
        scale_rows(a, t);
        scale_cols(a, t);
    } else if (a->scaling == LF_FP8_BLK128) {
        scale_square(a, t);
    }
    store(a, t);
}

int LF_SYM(quantise_check)(const struct lf_k_quantise *a)
{
    return a->rows >= 0 && a->cols > 0 && a->ldx >= a->cols && lf_is_float(a->x_type) &&
                   a->scaling <= LF_FP8_BLK128 && (a->q_type == LF_E4M3 || a->q_type == LF_E5M2)
               ? LF_K_OK
               : LF_K_EINVAL;
}

struct tiles {
    const struct lf_k_quantise *a;
    float up; /* 2^e of the tensor */
};

static void quantise_tiles(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct tiles *job = arg;
    const struct lf_k_quantise *a = job->a;
    const int64_t across = blocks(a->cols);
    (void)q;
    for (int64_t i = lo; i < hi; i++) {
        struct tile t;
        t.row = i / across * B;
        t.col = i % across * B;
        t.rows = a->rows - t.row < B ? a->rows - t.row : B;
        t.cols = a->cols - t.col < B ? a->cols - t.col : B;
        one_tile(a, &t, job->up);
    }
}

int LF_SYM(quantise)(lf_queue *q, const struct lf_k_quantise *a)
{
    if (LF_SYM(quantise_check)(a))
        return LF_K_EINVAL;
    float up = 1, s = 1;
    if (a->scaling == LF_FP8_TENSOR) {
        scale_of(largest(q, a), a->q_type, &up, &s);
        if (a->scale)
            a->scale[0] = s;
    }
    lf_deal(q, lf_team(q, a->rows * a->cols * 8), blocks(a->rows) * blocks(a->cols), 1,
            quantise_tiles, &(struct tiles){a, up});
    return LF_K_OK;
}

/* ---- the product ---- */

static size_t wide_bytes(int64_t rows, int64_t k)
{
    return ((size_t)rows * (size_t)k * sizeof(uint16_t) + ALIGN - 1) / ALIGN * ALIGN;
}

static struct lf_k_gemm wide_gemm(const struct lf_k_gemm_fp8 *a)
{
    struct lf_k_gemm g = a->gemm;
    g.ab_type = LF_BF16;
    g.b_packed = NULL;
    return g;
}

size_t LF_SYM(gemm_fp8_work)(const struct lf_k_gemm_fp8 *a, int threads)
{
    const struct lf_k_gemm g = wide_gemm(a);
    return wide_bytes(g.m, g.k) + wide_bytes(g.n, g.k) + LF_SYM(gemm_work)(&g, threads);
}

static bool types_fit(const struct lf_k_gemm_fp8 *a)
{
    const bool known = (a->a_type == LF_E4M3 || a->a_type == LF_E5M2) &&
                       (a->b_type == LF_E4M3 || a->b_type == LF_E5M2);
    const int s = a->a_scaling, z = a->b_scaling;
    return known && (a->a_type == LF_E4M3 || a->b_type == LF_E4M3) && s <= LF_FP8_BLK128 &&
           z <= LF_FP8_BLK128 && (s == LF_FP8_TENSOR) == (z == LF_FP8_TENSOR) &&
           (s != LF_FP8_BLK128 || z != LF_FP8_BLK128);
}

int LF_SYM(gemm_fp8_check)(const struct lf_k_gemm_fp8 *a)
{
    const struct lf_k_gemm g = wide_gemm(a);
    const int64_t grain = a->a_scaling == LF_FP8_TENSOR ? 16 : B;
    const bool shape =
        g.m % grain == 0 && g.n % grain == 0 && g.k % grain == 0 && g.lda == g.k && g.ldb == g.k;
    return types_fit(a) && shape && !g.ta && g.tb && g.mode == LF_FAST ? LF_SYM(gemm_check)(&g)
                                                                       : LF_K_EINVAL;
}

struct wide {
    uint16_t *to;
    const uint8_t *from;
    const float *scale;
    int64_t rows, k;
    uint8_t scaling;
    float table[256]; /* of the type's codes */
};

/* Values of rows [lo, hi) with their scales, as bf16. */
static void widen_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct wide *w = arg;
    const int64_t k = w->k, pitch = (blocks(k) + 3) / 4 * 4;
    (void)q;
    for (int64_t r = lo; r < hi; r++)
        for (int64_t c = 0; c < k; c++) {
            const float s = w->scaling == LF_FP8_TENSOR   ? w->scale[0]
                            : w->scaling == LF_FP8_VEC128 ? w->scale[c / B * w->rows + r]
                                                          : w->scale[r / B * pitch + c / B];
            w->to[r * k + c] = (uint16_t)(lf_bits_of_f32(w->table[w->from[r * k + c]] * s) >> 16);
        }
}

static void widen(lf_queue *q, struct wide w, uint8_t type)
{
    for (int i = 0; i < 256; i++)
        w.table[i] = type == LF_E4M3 ? lf_f32_of_e4m3((uint8_t)i) : lf_f32_of_e5m2((uint8_t)i);
    lf_deal(q, lf_team(q, w.rows * w.k * 3), w.rows, lf_few_rows(w.k), widen_rows, &w);
}

int LF_SYM(gemm_fp8)(lf_queue *q, const struct lf_k_gemm_fp8 *a)
{
    struct lf_k_gemm g = wide_gemm(a);
    const size_t a_bytes = wide_bytes(g.m, g.k), b_bytes = wide_bytes(g.n, g.k);
    if (LF_SYM(gemm_fp8_check)(a) || g.work_bytes < LF_SYM(gemm_fp8_work)(a, q->threads))
        return LF_K_EINVAL;
    uint16_t *wa = g.work, *wb = (void *)((char *)g.work + a_bytes);
    widen(q, (struct wide){wa, g.a, a->a_scale, g.m, g.k, a->a_scaling, {0}}, a->a_type);
    widen(q, (struct wide){wb, g.b, a->b_scale, g.n, g.k, a->b_scaling, {0}}, a->b_type);
    g.a = wa;
    g.b = wb;
    g.work = (char *)g.work + a_bytes + b_bytes;
    g.work_bytes -= a_bytes + b_bytes;
    return LF_SYM(gemm)(q, &g);
}
