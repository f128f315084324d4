/* SPDX-License-Identifier: Apache-2.0
 *
 * Products of very few rows with weights stored [N, K] and not packed (decoding): blocks of weights
 * are transposed in registers and multiplied at once, never written. The chain of an element is
 * that of the micro kernels.
 */
#include "config.h"

#include "kernels/cpu/gemm_int.h"
#include "kernels/cpu/gemm_units.h"

/* Read lanes [l0, l0 + lanes) once along their rows, so that the hardware prefetcher streams them
 * into L2 at the speed of memory. The loads that follow run down 16 rows at once and would stop at
 * the number of outstanding L1 misses, half that speed. */
void LF_SYM(stream_in)(const struct lf_operand *o, int64_t l0, int64_t lanes, int64_t k0,
                       int64_t kn)
{
    const int64_t esize = o->unit == LF_UNIT_F32 ? 4 : 2;
    for (int64_t l = l0; o->k_fast && l < l0 + lanes; l++) {
        const volatile char *row = (const volatile char *)o->p + (l * o->ld + k0) * esize;
        for (int64_t i = 0; i < kn * esize; i += 64)
            (void)row[i];
    }
}

/* One block of LF_VL lanes by up to LF_VL units at p onto acc. */
LF_INLINE void stream_block(const int m, const enum lf_unit u, const float *a, const char *p,
                            const int64_t *off, int64_t left, lf_v *acc)
{
    const int epu = u == LF_UNIT_PAIR ? 2 : 1;
    lf_vu x[LF_VL];
    if (left >= LF_VL * epu) {
#pragma GCC unroll 16
        for (int i = 0; i < LF_VL; i++)
            x[i] = load_units(u, p + off[i], 0, LF_VL * epu);
        transpose(x);
#pragma GCC unroll 16
        for (int i = 0; i < LF_VL; i++)
#pragma GCC unroll 4
            for (int r = 0; r < m; r++)
                acc[r] =
                    lf_unit_madd(u == LF_UNIT_PAIR, lf_v_set1(a[i * m + r]), (lf_v)x[i], acc[r]);
        return;
    }
    for (int i = 0; i < LF_VL; i++)
        x[i] = load_units(u, p + off[i], 0, left);
    transpose(x);
    for (int i = 0; i * epu < left; i++)
#pragma GCC unroll 4
        for (int r = 0; r < m; r++)
            acc[r] = lf_unit_madd(u == LF_UNIT_PAIR, lf_v_set1(a[i * m + r]), (lf_v)x[i], acc[r]);
}

/* t[m][LF_NR] = a[units][m] times `lanes` <= LF_NR lanes from src (lane 0, k0). Both halves of the
 * panel advance together: two chains hide each other's latency. */
LF_INLINE void stream(const int m, const enum lf_unit u, const float *a, const char *src,
                      int64_t ld, int64_t lanes, int64_t kn, float *t)
{
    const int epu = u == LF_UNIT_PAIR ? 2 : 1;
    const int64_t units = lf_units(kn, u), esize = u == LF_UNIT_F32 ? 4 : 2;
    int64_t off[LF_NR];
    lf_v lo[LF_STREAM_ROWS], hi[LF_STREAM_ROWS];
    for (int i = 0; i < LF_NR; i++)
        off[i] = min64(i, lanes - 1) * ld * esize;
#pragma GCC unroll 4
    for (int r = 0; r < m; r++)
        lo[r] = hi[r] = lf_v_zero();
    for (int64_t k = 0; k < units; k += LF_VL) {
        stream_block(m, u, a + k * m, src + k * epu * esize, off, kn - k * epu, lo);
        stream_block(m, u, a + k * m, src + k * epu * esize, off + LF_VL, kn - k * epu, hi);
    }
#pragma GCC unroll 4
    for (int r = 0; r < m; r++) {
        lf_v_store(t + r * LF_NR, lo[r]);
        lf_v_store(t + r * LF_NR + LF_VL, hi[r]);
    }
}

LF_INLINE void stream_m(const enum lf_unit u, int m, const float *a, const char *src, int64_t ld,
                        int64_t lanes, int64_t kn, float *t)
{
    switch (m) {
    case 1:
        stream(1, u, a, src, ld, lanes, kn, t);
        break;
    case 2:
        stream(2, u, a, src, ld, lanes, kn, t);
        break;
    case 3:
        stream(3, u, a, src, ld, lanes, kn, t);
        break;
    default:
        stream(4, u, a, src, ld, lanes, kn, t);
        break;
    }
}

void LF_SYM(stream_tile)(const struct lf_operand *o, int m, const uint32_t *a, int64_t l0,
                         int64_t lanes, int64_t k0, int64_t kn, float *t)
{
    const char *src = (const char *)o->p + (l0 * o->ld + k0) * (o->unit == LF_UNIT_F32 ? 4 : 2);
    const float *f = (const float *)a;
    if (o->unit == LF_UNIT_F32)
        stream_m(LF_UNIT_F32, m, f, src, o->ld, lanes, kn, t);
    else
        stream_m(LF_BF16_DOT ? LF_UNIT_PAIR : LF_UNIT_BF16_AS_F32, m, f, src, o->ld, lanes, kn, t);
}
