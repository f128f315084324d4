/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix product and the panels of attention. The product holds ATTN_MR rows by up to NV_MAX vectors of C in
 * registers; every element is one ascending chain, so blocking changes no bit.
 */
#include "config.h"

#include "kernels/cpu/attn.h"

#if LF_CPU_ISA >= 2
#define NV_MAX 4
#else
#define NV_MAX 2
#endif

LF_INLINE lf_v mm_step(lf_v a, lf_v b, lf_v c, const bool pairs)
{
#if LF_CPU_ISA >= 3
    if (pairs)
        return (lf_v)_mm512_dpbf16_ps((__m512)c, (__m512bh)a, (__m512bh)b);
#endif
    (void)pairs;
    return lf_v_fma(a, b, c);
}

/* mr and nv are constants of each copy. */
LF_INLINE void mm_regs(const struct attn_mm *g, const int mr, const int nv, const bool pairs, const char *a,
                       const float *b, float *c, const float *corr)
{
    lf_v acc[ATTN_MR][NV_MAX];
    const int64_t ars = g->ars, acs = g->acs, ldb = g->ldb, ldc = g->ldc;
    const char *ap[ATTN_MR];
#pragma GCC unroll 6
    for (int r = 0; r < mr; r++) {
        ap[r] = a + r * ars;
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++) {
            if (g->init == ATTN_ZERO)
                acc[r][v] = lf_v_zero();
            else if (g->init == ATTN_ADD)
                acc[r][v] = lf_v_load(c + r * ldc + v * LF_VL);
            else
                acc[r][v] = lf_v_load(c + r * ldc + v * LF_VL) * lf_v_set1(corr[r]);
        }
    }
    for (int64_t k = 0; k < g->k; k++) {
        lf_v bv[NV_MAX];
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            bv[v] = lf_v_load(b + v * LF_VL);
#pragma GCC unroll 6
        for (int r = 0; r < mr; r++) {
            float s;
            memcpy(&s, ap[r], sizeof s);
            ap[r] += acs;
            lf_v av = lf_v_set1(s);
#pragma GCC unroll 4
            for (int v = 0; v < nv; v++)
                acc[r][v] = mm_step(av, bv[v], acc[r][v], pairs);
        }
        b += ldb;
    }
#pragma GCC unroll 6
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            lf_v_store(c + r * ldc + v * LF_VL, acc[r][v]);
}

typedef void mm_fn(const struct attn_mm *g, const char *a, const float *b, float *c, const float *corr);

#define MM_ONE(p, mr, nv)                                                                                              \
    static void mm_##p##_##mr##_##nv(const struct attn_mm *g, const char *a, const float *b, float *c,                 \
                                     const float *corr)                                                                \
    {                                                                                                                  \
        mm_regs(g, mr, nv, p, a, b, c, corr);                                                                          \
    }
#define MM_ROWS(p, nv)                                                                                                 \
    MM_ONE(p, 1, nv) MM_ONE(p, 2, nv) MM_ONE(p, 3, nv) MM_ONE(p, 4, nv) MM_ONE(p, 5, nv) MM_ONE(p, 6, nv)
#define MM_NAMES(p, nv)                                                                                                \
    {                                                                                                                  \
        mm_##p##_1_##nv, mm_##p##_2_##nv, mm_##p##_3_##nv, mm_##p##_4_##nv, mm_##p##_5_##nv, mm_##p##_6_##nv           \
    }
#if NV_MAX == 4
#define MM_ALL(p) MM_ROWS(p, 1) MM_ROWS(p, 2) MM_ROWS(p, 3) MM_ROWS(p, 4)
#define MM_TABLE(p)                                                                                                    \
    {                                                                                                                  \
        MM_NAMES(p, 1), MM_NAMES(p, 2), MM_NAMES(p, 3), MM_NAMES(p, 4)                                                 \
    }
#else
#define MM_ALL(p) MM_ROWS(p, 1) MM_ROWS(p, 2)
#define MM_TABLE(p)                                                                                                    \
    {                                                                                                                  \
        MM_NAMES(p, 1), MM_NAMES(p, 2)                                                                                 \
    }
#endif

MM_ALL(0)
#if LF_CPU_ISA >= 3
MM_ALL(1)
static mm_fn *const mm_table[2][NV_MAX][ATTN_MR] = {MM_TABLE(0), MM_TABLE(1)};
#else
static mm_fn *const mm_table[1][NV_MAX][ATTN_MR] = {MM_TABLE(0)};
#endif

void LF_SYM(attn_mm)(const struct attn_mm *g)
{
    for (int64_t c = 0; c < g->n; c += NV_MAX * LF_VL) {
        int64_t nv = (g->n - c) / LF_VL < NV_MAX ? (g->n - c) / LF_VL : NV_MAX;
        mm_fn *const *row = mm_table[g->pairs ? LF_CPU_ISA >= 3 : 0][nv - 1];
        for (int64_t r = 0; r < g->m; r += ATTN_MR) {
            int64_t mr = g->m - r < ATTN_MR ? g->m - r : ATTN_MR;
            row[mr - 1](g, (const char *)g->a + r * g->ars, g->b + c, g->c + r * g->ldc + c,
                        g->corr + (g->corr ? r : 0));
        }
    }
}

/* ---- panels ---- */

/* One unit of a row: an f32 (bf16 widened), or the pair of bf16 at 2u. */
LF_INLINE uint32_t unit_of(const void *row, int64_t u, uint8_t x_type, bool pairs)
{
    uint32_t w;
    if (pairs || x_type == LF_F32) {
        memcpy(&w, (const char *)row + 4 * u, sizeof w);
        return w;
    }
    uint16_t h;
    memcpy(&h, (const char *)row + 2 * u, sizeof h);
    return (uint32_t)h << 16;
}

void LF_SYM(attn_pack_cols)(float *dst, const void *src, int64_t stride, int64_t n, int64_t d, uint8_t x_type)
{
    const bool pairs = attn_pairs(x_type);
    const int64_t units = pairs ? d / 2 : d;
    for (int64_t j = 0; j < n; j++) {
        const char *row = (const char *)src + j * stride;
        for (int64_t u = 0; u < units; u++) {
            uint32_t w = unit_of(row, u, x_type, pairs);
            memcpy(dst + u * ATTN_T + j, &w, sizeof w);
        }
    }
    if (n < ATTN_T)
        for (int64_t u = 0; u < units; u++)
            memset(dst + u * ATTN_T + n, 0, (size_t)(ATTN_T - n) * sizeof *dst);
}

/* Two bf16 rows interleaved: channel c of the even row low, of the odd row high. */
static void pack_row_pair(float *dst, const uint16_t *even, const uint16_t *odd, int64_t d)
{
    for (int64_t c = 0; c < d; c++) {
        uint32_t w = (uint32_t)even[c] | (odd ? (uint32_t)odd[c] << 16 : 0u);
        memcpy(dst + c, &w, sizeof w);
    }
}

void LF_SYM(attn_pack_rows)(float *dst, const void *src, int64_t stride, int64_t n, int64_t pad, int64_t d,
                            uint8_t x_type)
{
    const bool pairs = attn_pairs(x_type);
    const int64_t dp = attn_dp(d), step = pairs ? 2 : 1;
    for (int64_t j = 0; j < pad; j += step) {
        float *out = dst + j / step * dp;
        const char *row = (const char *)src + j * stride;
        if (j >= n)
            memset(out, 0, (size_t)dp * sizeof *out);
        else if (pairs)
            pack_row_pair(out, (const uint16_t *)row, j + 1 < n ? (const uint16_t *)(row + stride) : NULL, d);
        else
            LF_EACH_VEC(c, m, d) lf_put(out, c, LF_F32, m, lf_get(row, c, x_type, m));
        if (j < n && d < dp)
            memset(out + d, 0, (size_t)(dp - d) * sizeof *out);
    }
}
