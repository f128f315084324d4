/* SPDX-License-Identifier: Apache-2.0
 *
 * Packing of matrix operands into panels (gemm_int.h), and the gemm_pack kernel. Two cases: k
 * contiguous in memory (square blocks are transposed in registers) and lanes contiguous (rows are
 * copied, several panels at a time so that memory is read along its rows). Stores may run over into
 * the next unit of the same panel, which is written afterwards; the end of a panel is stored
 * exactly.
 */
#include "config.h"

#include "kernels/cpu/gemm_int.h"
#include "kernels/cpu/gemm_units.h"

LF_CPU_DECLARE(gemm_pack)

enum { AHEAD = 512 }; /* bytes of a row to prefetch ahead: about a memory latency */

/* One panel, k contiguous. w lanes are real; lanes up to `width` repeat the last one. src points at
 * (lane 0, k0). */
LF_INLINE void panel_k_fast(const enum lf_unit u, uint32_t *dst, const char *src, int64_t ld,
                            int64_t w, int width, int64_t kn)
{
    const int epu = u == LF_UNIT_PAIR ? 2 : 1;
    const int64_t units = lf_units(kn, u), size = units * width, esize = u == LF_UNIT_F32 ? 4 : 2;
    for (int64_t l0 = 0; l0 < width; l0 += LF_VL) {
        int64_t off[LF_VL];
        for (int i = 0; i < LF_VL; i++)
            off[i] = min64(l0 + i, w - 1) * ld * esize;
        int64_t ow = min64(width - l0, LF_VL);
        for (int64_t k = 0; k < units; k += LF_VL) {
            lf_vu r[LF_VL];
            const int64_t left = kn - k * epu;
            const char *p = src + k * epu * esize;
            int64_t ahead = k * epu + AHEAD / esize;
            if (ahead >= kn)
                ahead += min64(width, LF_VL) * ld - kn; /* the start of the rows that come next */
            if (left >= LF_VL * epu) {
#pragma GCC unroll 16
                for (int i = 0; i < LF_VL; i++) {
                    r[i] = load_units(u, p + off[i], 0, LF_VL * epu);
                    __builtin_prefetch(src + off[i] + ahead * esize);
                }
            } else {
                for (int i = 0; i < LF_VL; i++)
                    r[i] = load_units(u, p + off[i], 0, left);
            }
            transpose(r);
            int64_t at = k * width + l0;
            if (k + LF_VL <= units && at + (LF_VL - 1) * width + LF_VL <= size) {
#pragma GCC unroll 16
                for (int i = 0; i < LF_VL; i++)
                    if (ow == LF_VL || width <= LF_VL)
                        memcpy(dst + at + i * width, &r[i], sizeof r[i]);
                    else
                        store_words(dst + at + i * width, r[i], ow);
            } else {
                for (int i = 0; i < LF_VL && k + i < units; i++)
                    store_words(dst + at + i * width, r[i], min64(ow, size - (at + i * width)));
            }
        }
    }
}

/* LF_VL lanes of one unit row at p, whose second bf16 row is `ld` elements on (0: none, zeros). n
 * lanes are real. */
LF_INLINE lf_vu load_lanes(const enum lf_unit u, const char *p, int64_t ld, const int64_t n)
{
    const int m = (int)(n < 0 ? 0 : n < LF_VL ? n : LF_VL), bf16 = u != LF_UNIT_F32;
    lf_vu x = (lf_vu)(m == LF_VL ? lf_vt_load(p, 0, bf16) : lf_vt_load_n(p, 0, bf16, m));
    if (u != LF_UNIT_PAIR)
        return x;
    if (!ld)
        return x >> 16;
    return (x >> 16) | (lf_vu)(m == LF_VL ? lf_vt_load(p, ld, 1) : lf_vt_load_n(p, ld, 1, m));
}

/* Unit rows [k, end) of a panel `w` lanes wide with n <= w real ones, from src (unit row k) to d;
 * `exact`: the last store may not run over. Constant w and n make constant masks. */
LF_INLINE void rows_l_fast(const enum lf_unit u, uint32_t *d, const char *src, int64_t ld,
                           const int64_t w, const int64_t n, int64_t rows, bool exact, bool odd)
{
    const int64_t row_bytes = ld * (u == LF_UNIT_F32 ? 4 : 2) * (u == LF_UNIT_PAIR ? 2 : 1);
    const char *next = src + 8 * row_bytes;
    for (int64_t i = 0; i < rows; i++) {
        const bool end = i == rows - 1;
        const int64_t second = end && odd ? 0 : ld;
        __builtin_prefetch(next + n * (u == LF_UNIT_F32 ? 4 : 2) - 1, 0, 2);
        if (w > LF_VL && u == LF_UNIT_F32)
            __builtin_prefetch(next, 0, 2);
        if (u == LF_UNIT_PAIR)
            __builtin_prefetch(next + row_bytes / 2 + n * 2 - 1, 0, 2);
#pragma GCC unroll 2
        for (int64_t v = 0; v < w; v += LF_VL) {
            lf_vu x = load_lanes(u, src + v * (u == LF_UNIT_F32 ? 4 : 2), second, n - v);
            if (w >= v + LF_VL || (w < LF_VL && !(end && exact)))
                memcpy(d + v, &x, sizeof x);
            else
                store_words(d + v, x, w - v);
        }
        d += w;
        src += row_bytes;
        next += row_bytes;
    }
}

/* All panels of `lanes` lanes, lanes contiguous; src points at (lane 0, k0). Stores of a panel
 * narrower than a vector run over into its next unit row, so w lanes need LF_VL - w <= w; smaller
 * panels store exactly. */
LF_INLINE void panels_l_fast(const enum lf_unit u, uint32_t *dst, const char *src, int64_t ld,
                             int64_t lanes, const int64_t width, bool narrow, int64_t kn)
{
    const int epu = u == LF_UNIT_PAIR ? 2 : 1;
    const int64_t units = lf_units(kn, u), esize = u == LF_UNIT_F32 ? 4 : 2, block = 8;
    for (int64_t kb = 0; kb < units; kb += block)
        for (int64_t p = 0, l = 0; l < lanes; p++, l += width) {
            const int64_t n = min64(lanes - l, width), w = narrow ? n : width,
                          rows = min64(block, units - kb);
            const bool last = kb + rows == units, odd = last && units * epu > kn;
            uint32_t *d = dst + p * units * width + kb * w;
            const char *s = src + (kb * epu * ld + l) * esize;
            if (n == width)
                rows_l_fast(u, d, s, ld, width, width, rows, last, odd);
            else if (w == width)
                rows_l_fast(u, d, s, ld, width, n, rows, last, odd);
            else if (w >= LF_VL) /* tiles of more rows than a vector has lanes */
                rows_l_fast(u, d, s, ld, w, w, rows, last, odd);
            else
                for (int64_t i = 0; i < rows; i++)
                    store_words(
                        d + i * w,
                        load_lanes(u, s + i * epu * ld * esize, odd && i == rows - 1 ? 0 : ld, n),
                        w);
        }
}

LF_INLINE void pack_any(const enum lf_unit u, uint32_t *dst, const struct lf_operand *o, int64_t l0,
                        int64_t lanes, int width, bool narrow, int64_t k0, int64_t kn)
{
    const int64_t esize = u == LF_UNIT_F32 ? 4 : 2, units = lf_units(kn, u);
    if (!o->k_fast) {
        const char *src = (const char *)o->p + (k0 * o->ld + l0) * esize;
        if (width == LF_MR)
            panels_l_fast(u, dst, src, o->ld, lanes, LF_MR, narrow, kn);
        else if (width == LF_NR)
            panels_l_fast(u, dst, src, o->ld, lanes, LF_NR, narrow, kn);
        else
            panels_l_fast(u, dst, src, o->ld, lanes, width, narrow, kn);
        return;
    }
    for (int64_t p = 0, l = 0; l < lanes; p++, l += width) {
        const char *src = (const char *)o->p + ((l0 + l) * o->ld + k0) * esize;
        int64_t n = min64(lanes - l, width);
        uint32_t *d = dst + p * units * width;
        if (n == LF_MR && width == LF_MR)
            panel_k_fast(u, d, src, o->ld, LF_MR, LF_MR, kn);
        else if (n == LF_NR && width == LF_NR)
            panel_k_fast(u, d, src, o->ld, LF_NR, LF_NR, kn);
        else
            panel_k_fast(u, d, src, o->ld, n, narrow ? (int)n : width, kn);
    }
}

void LF_SYM(pack)(uint32_t *dst, const struct lf_operand *o, int64_t l0, int64_t lanes, int width,
                  bool narrow, int64_t k0, int64_t kn)
{
    if (o->unit == LF_UNIT_F32)
        pack_any(LF_UNIT_F32, dst, o, l0, lanes, width, narrow, k0, kn);
#if LF_BF16_DOT
    else
        pack_any(LF_UNIT_PAIR, dst, o, l0, lanes, width, narrow, k0, kn);
#else
    else
        pack_any(LF_UNIT_BF16_AS_F32, dst, o, l0, lanes, width, narrow, k0, kn);
#endif
}

/* ---- the kernel gemm_pack ---- */

int LF_SYM(gemm_pack_check)(const struct lf_k_gemm_pack *a)
{
    bool types = (a->src_type == LF_F32 || a->src_type == LF_BF16) &&
                 (a->ab_type == LF_F32 || a->ab_type == LF_BF16) &&
                 !(a->src_type == LF_BF16 && a->ab_type == LF_F32);
    bool sizes = a->n > 0 && a->k > 0 && a->ldb >= (a->tb ? a->k : a->n) &&
                 a->packed_bytes >= lf_cpu_gemm_packed_bytes(a->n, a->k, (enum lf_dtype)a->ab_type);
    return types && sizes ? LF_K_OK : LF_K_EINVAL;
}

size_t LF_SYM(gemm_pack_work)(const struct lf_k_gemm_pack *a, int threads)
{
    (void)a;
    (void)threads;
    return 0;
}

/* bf16 panel through a small tile [lane][k] in bf16: rounds f32 sources, and keeps bf16 elements
 * where units would be f32. */
static void pack_bf16_panel(const struct lf_k_gemm_pack *a, int64_t n0, int64_t k0, int64_t kn,
                            unsigned char *dst)
{
    enum { TILE_K = 64 };
    uint16_t tile[LF_NR * TILE_K];
    const int64_t lanes = min64(a->n - n0, LF_NR);
    for (int64_t kb = 0; kb < kn; kb += TILE_K) {
        int64_t m = min64(kn - kb, TILE_K);
        for (int64_t l = 0; l < LF_NR; l++)
            for (int64_t k = 0; k < m; k++) {
                int64_t col = n0 + min64(l, lanes - 1), row = k0 + kb + k;
                int64_t i = a->tb ? col * a->ldb + row : row * a->ldb + col;
                tile[l * TILE_K + k] = a->src_type == LF_BF16
                                           ? ((const uint16_t *)a->b)[i]
                                           : lf_f32_to_bf16(((const float *)a->b)[i]);
            }
        if (LF_BF16_DOT) {
            uint32_t *d = (uint32_t *)dst + kb / 2 * LF_NR;
            struct lf_operand o = {.p = tile, .ld = TILE_K, .k_fast = true, .unit = LF_UNIT_PAIR};
            LF_SYM(pack)(d, &o, 0, LF_NR, LF_NR, false, 0, m);
        } else {
            uint16_t *d = (uint16_t *)dst + kb * LF_NR;
            for (int64_t k = 0; k < m; k++)
                for (int64_t l = 0; l < LF_NR; l++)
                    d[k * LF_NR + l] = tile[l * TILE_K + k];
        }
    }
}

/* Panels [lo, hi), those of each chunk one after the other. */
static void pack_panels(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_gemm_pack *a = arg;
    const bool direct = a->ab_type == LF_F32 || (a->src_type == LF_BF16 && LF_BF16_DOT);
    const enum lf_unit u = lf_unit_of(a->ab_type);
    const int64_t esize = a->ab_type == LF_F32 || LF_BF16_DOT ? 4 : 2; /* bytes of a stored unit */
    const int64_t units = lf_units(a->k, u), chunk = lf_k_chunk(units),
                  panels = (a->n + LF_NR - 1) / LF_NR;
    const int epu = u == LF_UNIT_PAIR ? 2 : 1;
    const struct lf_operand o = {.p = a->b, .ld = a->ldb, .k_fast = a->tb, .unit = u};
    (void)q;
    for (int64_t i = lo; i < hi; i++) {
        const int64_t c = i / panels * chunk, p = i % panels, cu = min64(units - c, chunk),
                      kn = min64(a->k - c * epu, cu * epu);
        unsigned char *d = (unsigned char *)a->packed + (c * panels + p * cu) * LF_NR * esize;
        if (direct)
            LF_SYM(pack)
        ((uint32_t *)(void *)d, &o, p * LF_NR, min64(a->n - p * LF_NR, LF_NR), LF_NR, false,
         c * epu, kn);
        else pack_bf16_panel(a, p * LF_NR, c * epu, kn, d);
    }
}

int LF_SYM(gemm_pack)(lf_queue *q, const struct lf_k_gemm_pack *a)
{
    if (LF_SYM(gemm_pack_check)(a))
        return LF_K_EINVAL;
    const int64_t units = lf_units(a->k, lf_unit_of(a->ab_type)), chunk = lf_k_chunk(units);
    lf_deal(q, q->threads, (units + chunk - 1) / chunk * ((a->n + LF_NR - 1) / LF_NR), 1,
            pack_panels, a);
    return LF_K_OK;
}
