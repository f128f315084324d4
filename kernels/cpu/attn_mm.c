/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix product and the panels of attention. The product holds ATTN_MR rows by up to NV_MAX
 * vectors of C in registers; every element is one ascending chain, so blocking changes no bit.
 */
#include "config.h"

#include "kernels/cpu/attn.h"

#if LF_REGS == 32
#define NV_MAX 4
#else
#define NV_MAX 2
#endif

/* mr and nv are constants of each copy. */
LF_INLINE void mm_regs(const struct attn_mm *g, const int mr, const int nv, const bool pairs,
                       const char *a, const float *b, float *c, const float *corr)
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
                acc[r][v] = pairs ? lf_v_dot(av, bv[v], acc[r][v]) : lf_v_fma(av, bv[v], acc[r][v]);
        }
        b += ldb;
    }
#pragma GCC unroll 6
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 4
        for (int v = 0; v < nv; v++)
            lf_v_store(c + r * ldc + v * LF_VL, acc[r][v]);
}

typedef void mm_fn(const struct attn_mm *g, const char *a, const float *b, float *c,
                   const float *corr);

#define MM_ONE(p, mr, nv)                                                                          \
    static void mm_##p##_##mr##_##nv(const struct attn_mm *g, const char *a, const float *b,       \
                                     float *c, const float *corr)                                  \
    {                                                                                              \
        mm_regs(g, mr, nv, p, a, b, c, corr);                                                      \
    }
#define MM_ROWS(p, nv)                                                                             \
    MM_ONE(p, 1, nv)                                                                               \
    MM_ONE(p, 2, nv) MM_ONE(p, 3, nv) MM_ONE(p, 4, nv) MM_ONE(p, 5, nv) MM_ONE(p, 6, nv)
#define MM_NAMES(p, nv)                                                                            \
    {                                                                                              \
        mm_##p##_1_##nv, mm_##p##_2_##nv, mm_##p##_3_##nv, mm_##p##_4_##nv, mm_##p##_5_##nv,       \
            mm_##p##_6_##nv                                                                        \
    }
#if NV_MAX == 4
#define MM_ALL(p) MM_ROWS(p, 1) MM_ROWS(p, 2) MM_ROWS(p, 3) MM_ROWS(p, 4)
#define MM_TABLE(p)                                                                                \
    {                                                                                              \
        MM_NAMES(p, 1), MM_NAMES(p, 2), MM_NAMES(p, 3), MM_NAMES(p, 4)                             \
    }
#else
#define MM_ALL(p) MM_ROWS(p, 1) MM_ROWS(p, 2)
#define MM_TABLE(p)                                                                                \
    {                                                                                              \
        MM_NAMES(p, 1), MM_NAMES(p, 2)                                                             \
    }
#endif

MM_ALL(0)
#if LF_BF16_DOT
MM_ALL(1)
static mm_fn *const mm_table[2][NV_MAX][ATTN_MR] = {MM_TABLE(0), MM_TABLE(1)};
#else
static mm_fn *const mm_table[1][NV_MAX][ATTN_MR] = {MM_TABLE(0)};
#endif

void LF_SYM(attn_mm)(const struct attn_mm *g)
{
    for (int64_t c = 0; c < g->n; c += NV_MAX * LF_VL) {
        int64_t nv = (g->n - c) / LF_VL < NV_MAX ? (g->n - c) / LF_VL : NV_MAX;
        mm_fn *const *row = mm_table[g->pairs ? LF_BF16_DOT : 0][nv - 1];
        for (int64_t r = 0; r < g->m; r += ATTN_MR) {
            int64_t mr = g->m - r < ATTN_MR ? g->m - r : ATTN_MR;
            row[mr - 1](g, (const char *)g->a + r * g->ars, g->b + c, g->c + r * g->ldc + c,
                        g->corr + (g->corr ? r : 0));
        }
    }
}

/* ---- panels ---- */

/* LF_VL units of a row from unit u on, n of them: f32 (bf16 widened), or pairs of bf16 as they
 * stand. */
LF_INLINE lf_v row_units(const void *row, int64_t u, int64_t n, uint8_t x_type, bool pairs)
{
    return pairs ? lf_get(row, u, LF_F32, n) : lf_get(row, u, x_type, n);
}

LF_INLINE void pack_cols(float *dst, const void *src, int64_t stride, int64_t n, int64_t units,
                         uint8_t x_type, bool pairs, struct attn_ahead *ahead)
{
    for (int64_t j = 0; j < ATTN_T; j += LF_VL)
        for (int64_t u = 0; u < units; u += LF_VL) {
            const int64_t m = units - u < LF_VL ? units - u : LF_VL;
            lf_v r[LF_VL];
            if (ahead)
                attn_ask(ahead);
            if (j + LF_VL <= n && m == LF_VL) {
#pragma GCC unroll 16
                for (int i = 0; i < LF_VL; i++)
                    r[i] = row_units((const char *)src + (j + i) * stride, u, LF_VL, x_type, pairs);
            } else {
#pragma GCC unroll 16
                for (int i = 0; i < LF_VL; i++)
                    r[i] = j + i < n ? row_units((const char *)src + (j + i) * stride, u, m, x_type,
                                                 pairs)
                                     : lf_v_zero();
            }
            lf_v_transpose(r);
            if (m == LF_VL) {
#pragma GCC unroll 16
                for (int i = 0; i < LF_VL; i++)
                    lf_v_store(dst + (u + i) * ATTN_T + j, r[i]);
            } else {
#pragma GCC unroll 16
                for (int i = 0; i < LF_VL; i++)
                    if (i < m)
                        lf_v_store(dst + (u + i) * ATTN_T + j, r[i]);
            }
        }
}

void LF_SYM(attn_pack_cols)(float *dst, const struct attn_rows *r, const struct attn_shape *s,
                            struct attn_ahead *ahead)
{
    if (s->x_type == LF_F32)
        pack_cols(dst, r->src, r->stride, r->n, r->d, LF_F32, false, ahead);
    else if (LF_BF16_DOT && s->pairs)
        pack_cols(dst, r->src, r->stride, r->n, r->d / 2, LF_BF16, true, ahead);
    else
        pack_cols(dst, r->src, r->stride, r->n, r->d, LF_BF16, false, ahead);
}

/* Two bf16 rows interleaved: channel c of the even row low, of the odd row high. */
LF_INLINE void pack_row_pair(float *dst, const void *even, const void *odd, int64_t d)
{
    LF_EACH_VEC(c, n, d)
    {
        lf_vu lo = (lf_vu)lf_get(even, c, LF_BF16, n) >> 16;
        lf_vu hi = odd ? (lf_vu)lf_get(odd, c, LF_BF16, n) : (lf_vu){0};
        lf_put(dst, c, LF_F32, n, (lf_v)(lo | hi));
    }
}

void LF_SYM(attn_pack_rows)(float *dst, const struct attn_rows *r, int64_t pad,
                            const struct attn_shape *s)
{
    const int64_t n = r->n, d = r->d, dp = attn_dp(d), step = s->pairs ? 2 : 1;
    for (int64_t j = 0; j < pad; j += step) {
        float *out = dst + j / step * dp;
        const char *row = (const char *)r->src + j * r->stride;
        if (j >= n)
            memset(out, 0, (size_t)dp * sizeof *out);
        else if (s->pairs)
            pack_row_pair(out, row, j + 1 < n ? row + r->stride : NULL, d);
        else if (s->x_type == LF_F32)
            LF_EACH_VEC(c, m, d) lf_put(out, c, LF_F32, m, lf_get(row, c, LF_F32, m));
        else
            LF_EACH_VEC(c, m, d) lf_put(out, c, LF_F32, m, lf_get(row, c, LF_BF16, m));
        if (j < n && d < dp)
            memset(out + d, 0, (size_t)(dp - d) * sizeof *out);
    }
}
