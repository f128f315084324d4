/* SPDX-License-Identifier: Apache-2.0
 *
 * Micro kernels: LF_MR or fewer rows by LF_NR columns held in registers over one chunk of K. One
 * function per row count, so that a narrow tile costs what its rows cost; every element is the same
 * ascending chain whichever function computes it.
 */
#include "config.h"

#include "kernels/cpu/gemm_int.h"
#include "kernels/cpu/gemm_units.h"

/* Up to 6 rows the loads of B run far enough ahead by themselves and the hardware prefetcher
 * streams: asking for lines only takes its place (measured: -25 % at 4 rows). With more rows
 * multiply-adds fill the window, so lines are asked for early from memory into L2 and once more,
 * shortly before their use, into L1. */
LF_INLINE void prefetch_b(const int m, const char *p, const int64_t b_step)
{
    if (LF_VL == 16 && m <= 6)
        return;
    for (int64_t i = 0; i < b_step && LF_VL == 16; i += 64) {
        __builtin_prefetch(p + 64 * b_step + i, 0, 2);
        __builtin_prefetch(p + 6 * b_step + i);
    }
    if (LF_VL < 16 && m < 6) /* clang wants the level as a literal */
        __builtin_prefetch(p + 8 * b_step, 0, 2);
    else if (LF_VL < 16)
        __builtin_prefetch(p + 8 * b_step, 0, 3);
}

/* kind: F32 units, PAIR units, or WIDE: f32 times bf16 elements of B that are widened as they are
 * read. */
enum kind { F32, PAIR, WIDE };

LF_INLINE void micro(const int m, const enum kind kind, int64_t units, const uint32_t *a0,
                     const void *b0, float *c, int64_t ldc, bool add, const void *next)
{
    const char *far = next ? next : a0;
    const int64_t b_step = LF_NR * (kind == WIDE ? 2 : 4);
    const int64_t step = next ? 64 : 0;
    lf_v x[LF_MR], y[LF_MR];
    const float *a = (const float *)a0;
    const char *b = b0;
#pragma GCC unroll 16
    for (int i = 0; i < m; i++) {
        x[i] = y[i] = lf_v_zero();
        __builtin_prefetch(c + i * ldc, 1);
        __builtin_prefetch(c + i * ldc + LF_NR - 1, 1);
    }
    for (int64_t k = 0; k < units; k++) {
        lf_v p = lf_vt_load(b, 0, kind == WIDE), r = lf_vt_load(b, LF_VL, kind == WIDE);
        prefetch_b(m, b, b_step);
#pragma GCC unroll 16
        for (int i = 0; i < m; i++) {
            lf_v v = lf_v_set1(a[i]);
            x[i] = lf_unit_madd(kind == PAIR, v, p, x[i]);
            y[i] = lf_unit_madd(kind == PAIR, v, r, y[i]);
        }
        __builtin_prefetch(far, 0, 2);
        far += step;
        a += m;
        b += b_step;
    }
    if (add) {
#pragma GCC unroll 16
        for (int i = 0; i < m; i++) {
            x[i] = lf_v_load(c + i * ldc) + x[i];
            y[i] = lf_v_load(c + i * ldc + LF_VL) + y[i];
        }
    }
#pragma GCC unroll 16
    for (int i = 0; i < m; i++) {
        lf_v_store(c + i * ldc, x[i]);
        lf_v_store(c + i * ldc + LF_VL, y[i]);
    }
}

#define MICRO(type, pair, m)                                                                       \
    static void type##_##m(int64_t units, const uint32_t *a, const void *b, float *c, int64_t ldc, \
                           bool add, const void *next)                                             \
    {                                                                                              \
        micro(m, pair, units, a, b, c, ldc, add, next);                                            \
    }
#define ENTRY(type, pair, m) [m] = type##_##m,
/* clang-format off */
#if LF_MR == 14
#define EACH(X, t, p)                                                      \
    X(t, p, 1) X(t, p, 2) X(t, p, 3) X(t, p, 4) X(t, p, 5) X(t, p, 6)      \
    X(t, p, 7) X(t, p, 8) X(t, p, 9) X(t, p, 10) X(t, p, 11) X(t, p, 12)   \
    X(t, p, 13) X(t, p, 14)
#elif LF_MR == 12
#define EACH(X, t, p)                                                      \
    X(t, p, 1) X(t, p, 2) X(t, p, 3) X(t, p, 4) X(t, p, 5) X(t, p, 6)      \
    X(t, p, 7) X(t, p, 8) X(t, p, 9) X(t, p, 10) X(t, p, 11) X(t, p, 12)
#elif LF_MR == 6
#define EACH(X, t, p)                                                      \
    X(t, p, 1) X(t, p, 2) X(t, p, 3) X(t, p, 4) X(t, p, 5) X(t, p, 6)
#else
#define EACH(X, t, p) X(t, p, 1) X(t, p, 2) X(t, p, 3) X(t, p, 4)
#endif
/* clang-format on */

EACH(MICRO, f32, F32)
lf_micro *const LF_SYM(micro_f32)[LF_MR + 1] = {EACH(ENTRY, f32, F32)};
#if LF_BF16_DOT
EACH(MICRO, pair, PAIR)
lf_micro *const LF_SYM(micro_pair)[LF_MR + 1] = {EACH(ENTRY, pair, PAIR)};
#else
EACH(MICRO, wide, WIDE)
lf_micro *const LF_SYM(micro_wide)[LF_MR + 1] = {EACH(ENTRY, wide, WIDE)};
#endif
