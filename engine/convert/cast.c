/* SPDX-License-Identifier: Apache-2.0
 *
 * Floating-point types into one another. */
#include <string.h>

#include "engine/base/bf16.h"
#include "engine/base/f16.h"
#include "engine/convert/move.h"

/* To nearest even; overflow gives infinity, NaN stays NaN. */
static uint16_t f16_of_f64(double x)
{
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    uint16_t sign = (uint16_t)(u >> 48 & 0x8000);
    int e = (int)(u >> 52 & 2047) - 1023;
    uint64_t m = u & 0xfffffffffffff;
    if (e == 1024)
        return (uint16_t)(sign | 0x7c00 | (m ? 0x200 : 0));
    if (e > 15)
        return sign | 0x7c00;
    int drop = e >= -14 ? 42 : 42 + (-14 - e); /* mantissa bits that go */
    if (drop > 54)
        return sign;
    m |= (uint64_t)1 << 52;
    uint64_t keep = m >> drop, rest = m & (((uint64_t)1 << drop) - 1),
             half = (uint64_t)1 << (drop - 1);
    keep += rest > half || (rest == half && (keep & 1));
    /* keep has its leading one at bit 10 for normal numbers; a carry moves into the exponent, as it
     * should. */
    return (uint16_t)(sign | (e >= -14 ? ((uint64_t)(e + 14) << 10) + keep : keep));
}

static uint16_t bf16_of_f64(double x)
{
    float f = (float)x;
    uint32_t u = lf_bits_of_f32(f);
    /* Rounding twice goes wrong only where f lies half way between two bf16 and is not exact: step
     * to the side of x. */
    if ((u & 0xffff) == 0x8000 && (double)f != x) /* NOLINT: exactness is the question */
        u += ((x < 0 ? -x : x) > (double)(f < 0 ? -f : f)) ? 1 : (uint32_t)-1;
    return lf_bf16_of(lf_f32_of_bits(u));
}

static double get(enum lf_st_dtype t, const void *src, int64_t i)
{
    uint16_t h;
    uint32_t u;
    double d;
    switch (t) {
    case LF_ST_F16:
        memcpy(&h, (const char *)src + 2 * i, 2);
        return (double)lf_f32_of_f16(h);
    case LF_ST_BF16:
        memcpy(&h, (const char *)src + 2 * i, 2);
        return (double)lf_f32_of_bf16(h);
    case LF_ST_F32:
        memcpy(&u, (const char *)src + 4 * i, 4);
        return (double)lf_f32_of_bits(u);
    default:
        memcpy(&d, (const char *)src + 8 * i, 8);
        return d;
    }
}

static void put(enum lf_st_dtype t, void *dst, int64_t i, double x)
{
    uint16_t h = t == LF_ST_F16 ? f16_of_f64(x) : bf16_of_f64(x);
    float f = (float)x;
    if (t == LF_ST_F32)
        memcpy((char *)dst + 4 * i, &f, 4);
    else if (t == LF_ST_F64)
        memcpy((char *)dst + 8 * i, &x, 8);
    else
        memcpy((char *)dst + 2 * i, &h, 2);
}

static bool aligned(const void *p, size_t to)
{
    return (uintptr_t)p % to == 0;
}

/* Most weights, and exact. */
static void widen(float *dst, const uint16_t *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = lf_f32_of_bf16(src[i]);
}

static bool is_float(enum lf_st_dtype t)
{
    return t == LF_ST_F16 || t == LF_ST_BF16 || t == LF_ST_F32 || t == LF_ST_F64;
}

int lf_move_cast(enum lf_st_dtype to, void *dst, enum lf_st_dtype from, const void *src, int64_t n,
                 lf_err *err)
{
    if (!is_float(to) || !is_float(from))
        return lf_fail(err, LF_ENOTSUP, "weights of type %s cannot be made %s",
                       lf_st_dtype_name(from), lf_st_dtype_name(to));
    if (to == from)
        memcpy(dst, src, (size_t)n * lf_st_dtype_bytes(to));
    else if (to == LF_ST_F32 && from == LF_ST_BF16 && aligned(dst, 4) && aligned(src, 2))
        widen(dst, src, n);
    else
        for (int64_t i = 0; i < n; i++)
            put(to, dst, i, get(from, src, i));
    return 0;
}
