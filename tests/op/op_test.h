/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel tests share: deterministic data, buffers with sentinels on both sides, bf16
 * conversion written independently of the kernels, and the comparison with an f64 reference.
 *
 * A test loops over every instruction set that this processor has, or runs on the CUDA kernels
 * (op_cuda.h):
 *
 *     for (int i = 0; i < OP_BACKENDS; i++) {
 *         const struct lf_kernels *k = op_kernels(i);
 *         if (!k) continue;
 *         ...
 *     }
 */
#ifndef LF_TESTS_OP_TEST_H
#define LF_TESTS_OP_TEST_H

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "tests/op/op_cuda.h"
#include "tests/tap/tap.h"

#define OP_FN static inline __attribute__((unused))

/* ---- numbers ---- */

/* Uniform in [-1, 1): a function of (seed, i) alone. */
OP_FN double op_rand(uint64_t seed, int64_t i)
{
    uint64_t z =
        seed * 0x9E3779B97F4A7C15u + (uint64_t)i * 0xD1B54A32D192ED03u + 0x632BE59BD9B4E019u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return (double)(z >> 11) * (2.0 / 9007199254740992.0) - 1.0;
}

/* Nearest bf16, ties to even, by arithmetic on the value (not by the bit trick of the kernels). */
OP_FN uint16_t op_to_bf16(double x)
{
    float f = (float)x;
    uint32_t u;
    memcpy(&u, &f, 4);
    uint16_t low = (uint16_t)(u >> 16);
    if (f != f)
        return (uint16_t)(low | 0x40);
    if (low == 0xff7f || low == 0x7f7f ||
        (low & 0x7fff) == 0x7f80) { /* last finite value and infinity */
        uint32_t rest = u & 0xffff;
        return (uint16_t)(low + ((low & 0x7fff) != 0x7f80 && rest >= 0x8000));
    }
    uint32_t a = (uint32_t)low << 16, b = a + 0x10000;
    float fa, fb;
    memcpy(&fa, &a, 4);
    memcpy(&fb, &b, 4);
    double da = fabs((double)f - (double)fa), db = fabs((double)fb - (double)f);
    return da < db || (da == db && !(low & 1)) ? low : (uint16_t)(low + 1);
}

OP_FN double op_from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return (double)f;
}

/* binary16, by arithmetic. */
OP_FN double op_from_f16(uint16_t h)
{
    const int e = h >> 10 & 31, m = h & 1023;
    const double v = e == 31 ? (m ? (double)NAN : (double)INFINITY)
                     : e     ? ldexp(1024 + m, e - 25)
                             : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

/* Nearest, ties to even (rint's mode). */
OP_FN uint16_t op_to_f16(double x)
{
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    const double v = fabs(x);
    int e;
    if (isnan(x))
        return 0x7e00;
    if (v >= 65520)
        return (uint16_t)(sign | 0x7c00);
    frexp(v, &e); /* v in [2^(e-1), 2^e) */
    const int shift = v < 0x1p-14 ? 24 : 11 - e;
    const double n = rint(ldexp(v, shift));
    return (uint16_t)(sign + (v < 0x1p-14 ? (int)n : ((e + 13) << 10) + (int)n));
}

OP_FN double op_get(const void *p, int64_t i, int type)
{
    if (type == LF_BF16)
        return op_from_bf16(((const uint16_t *)p)[i]);
    if (type == LF_F16)
        return op_from_f16(((const uint16_t *)p)[i]);
    return type == LF_F64 ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

OP_FN void op_set(void *p, int64_t i, int type, double x)
{
    if (type == LF_BF16)
        ((uint16_t *)p)[i] = op_to_bf16(x);
    else if (type == LF_F16)
        ((uint16_t *)p)[i] = op_to_f16(x);
    else if (type == LF_F64)
        ((double *)p)[i] = x;
    else
        ((float *)p)[i] = (float)x;
}

/* Half a unit in the last place, relative. */
OP_FN double op_eps(int type)
{
    return type == LF_BF16  ? 1.0 / 256
           : type == LF_F16 ? 1.0 / 2048
           : type == LF_F64 ? 1.2e-16
                            : 6.0e-8;
}

/* ---- buffers ---- */

#define OP_GUARD 256
struct op_buf {
    unsigned char *base;
    void *p; /* 64-byte aligned */
    size_t bytes;
};

/* The data ends exactly at the trailing sentinel, so that a read or write past the end meets it (or
 * the sanitizer). */
OP_FN struct op_buf op_alloc(size_t bytes)
{
    struct op_buf b = {.bytes = bytes};
    b.base = op_memory(bytes + 2 * OP_GUARD);
    if (!b.base)
        tap_bail("no memory for %zu bytes", bytes);
    memset(b.base, 0xA5, bytes + 2 * OP_GUARD);
    b.p = b.base + OP_GUARD;
    return b;
}

/* n elements of `type`, uniform in [-scale, scale). */
OP_FN struct op_buf op_random(int64_t n, int type, uint64_t seed, double scale)
{
    struct op_buf b = op_alloc((size_t)n * lf_dtype_size((enum lf_dtype)type));
    for (int64_t i = 0; i < n; i++)
        op_set(b.p, i, type, scale * op_rand(seed, i));
    return b;
}

OP_FN bool op_guards_intact(const struct op_buf *b)
{
    for (size_t i = 0; i < OP_GUARD; i++)
        if (b->base[i] != 0xA5 || b->base[OP_GUARD + b->bytes + i] != 0xA5)
            return false;
    return true;
}

OP_FN void op_free(struct op_buf *b)
{
    op_memory_free(b->base);
    *b = (struct op_buf){0};
}

/* ---- comparison ---- */

struct op_diff {
    int64_t bad; /* first element out of tolerance, -1: none */
    double got, want, limit;
    double worst; /* largest error / limit */
};

/* |got - want| <= tol * scale[i] (scale NULL: max(|want|, floor 1)) + eps(type) * |want|; NaN
 * agrees with NaN only. */
OP_FN struct op_diff op_compare(const void *got, int type, const double *want, const double *scale,
                                int64_t n, double tol)
{
    struct op_diff d = {.bad = -1};
    for (int64_t i = 0; i < n; i++) {
        double g = op_get(got, i, type), w = want[i];
        double limit = tol * (scale ? scale[i] : fmax(fabs(w), 1.0)) + op_eps(type) * fabs(w);
        double e = fabs(g - w);
        bool ok = (isnan(g) && isnan(w)) || g == w || e <= limit;
        if (!isnan(e) && limit > 0 && e / limit > d.worst)
            d.worst = e / limit;
        if (!ok && d.bad < 0) {
            d.bad = i;
            d.got = g;
            d.want = w;
            d.limit = limit;
        }
    }
    return d;
}

/* One TAP point; says which element, both values and the limit. */
OP_FN bool op_ok(struct op_diff d, const char *name)
{
    bool ok = tap_ok(d.bad < 0, "%s", name);
    if (!ok)
        tap_diag("element %lld: got %.9g, want %.9g, limit %.3g", (long long)d.bad, d.got, d.want,
                 d.limit);
    return ok;
}

/* Proves that the comparison can fail: perturbs element i of `got` by 100 limits and expects it to
 * be found. Restores it. */
OP_FN void op_prove(void *got, int type, const double *want, const double *scale, int64_t n,
                    double tol, int64_t i)
{
    double old = op_get(got, i, type);
    double limit =
        tol * (scale ? scale[i] : fmax(fabs(want[i]), 1.0)) + op_eps(type) * fabs(want[i]);
    op_set(got, i, type, want[i] + 100 * limit + 1e-30);
    struct op_diff d = op_compare(got, type, want, scale, n, tol);
    tap_ok(d.bad == i, "a planted error in element %lld is found", (long long)i);
    op_set(got, i, type, old);
}

#endif
