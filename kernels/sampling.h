/* SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of drawing a token, in one text for hosts and GPUs. Every program that follows it
 * gets the same token, in whatever order it adds. Every operation is rounded as written (no fused
 * multiply-add). Masses are integers, whose sums do not depend on the order:
 *
 *     x_i = (l_i - max l) / temperature
 *     w_i = e^(x_i) 2^b, to the nearest integer
 *
 * l are the f64 logits after limits and penalties; a logit that is not finite has no mass. b is
 * lf_sample_shift(vocabulary), so that sums stay below 2^63.
 *
 * With 2^18 tokens b is 44. A token 2^45 times less likely than the likeliest one is then never
 * drawn. All roundings together move less than 1e-8 of the mass, far below what the rounding of f32
 * logits moves. engine/infer/sample.h says how the masses are used. kernels.h, "sampling", has the
 * argument structs.
 */
#ifndef LF_KERNELS_SAMPLING_H
#define LF_KERNELS_SAMPLING_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "engine/base/rng.h"

#ifdef __CUDACC__
#define LF_SAMPLE_FN static __device__ __forceinline__
LF_SAMPLE_FN double lf_sample_mul(double a, double b)
{
    return __dmul_rn(a, b);
}
LF_SAMPLE_FN double lf_sample_add(double a, double b)
{
    return __dadd_rn(a, b);
}
#else /* compiled with -ffp-contract=off */
#define LF_SAMPLE_FN static inline __attribute__((unused))
LF_SAMPLE_FN double lf_sample_mul(double a, double b)
{
    return a * b;
}
LF_SAMPLE_FN double lf_sample_add(double a, double b)
{
    return a + b;
}
#endif

#define LF_SITE_SAMPLE 0x53414d50u /* Philox site of sampling */
/* Below this x a mass is 0, whatever the vocabulary. */
#define LF_SAMPLE_FAR (-40.0)

/* b in the form that lf_sample_mass takes: 1.5 2^52 + b. */
LF_SAMPLE_FN double lf_sample_shift(int64_t vocab)
{
    int b = 51;
    while (b > 1 && vocab > (int64_t)1 << (62 - b))
        b--;
    return 0x1.8p52 + b;
}

/* a + b c */
LF_SAMPLE_FN double lf_sample_horner(double a, double b, double c)
{
    return lf_sample_add(a, lf_sample_mul(b, c));
}

/* The mass w of x <= 0; 0 for NaN and for x below LF_SAMPLE_FAR. x = k ln 2 + r with |r| <= ln 2 /
 * 2. e^r is Taylor's series, with a relative error below 3e-10, three orders below that of a logit.
 * Adding shift leaves k + b in the low bits, which are then added to the exponent of e^r. Adding
 * 2^52 leaves the integer in the mantissa. There is no branch and no call, so that compilers
 * vectorise it. */
LF_SAMPLE_FN uint64_t lf_sample_mass(double x, double shift)
{
    const int64_t keep = -(int64_t)(x > -60); /* all ones or none */
    double t, k, r, y;
    uint64_t bits, low;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits & (uint64_t)keep) | (0xc04e000000000000u & ~(uint64_t)keep); /* -60 */
    memcpy(&x, &bits, sizeof x);
    t = lf_sample_horner(shift, x, 0x1.71547652b82fep0);
    k = lf_sample_add(t, -shift);
    r = lf_sample_horner(x, k, -0x1.62e42fefa39efp-1);
    y = lf_sample_horner(1.0 / 5040, r, 1.0 / 40320);
    y = lf_sample_horner(1.0 / 720, r, y);
    y = lf_sample_horner(1.0 / 120, r, y);
    y = lf_sample_horner(1.0 / 24, r, y);
    y = lf_sample_horner(1.0 / 6, r, y);
    y = lf_sample_horner(0.5, r, y);
    y = lf_sample_horner(1, r, y);
    y = lf_sample_horner(1, r, y);
    memcpy(&bits, &y, sizeof bits);
    memcpy(&low, &t, sizeof low);
    bits += low << 52;
    memcpy(&y, &bits, sizeof y);
    y = lf_sample_add(y, 0x1p52);
    memcpy(&bits, &y, sizeof bits);
    return bits - 0x4330000000000000u;
}

/* x of a finite logit l. scale is 1 / temperature, cut off at the largest double. */
LF_SAMPLE_FN double lf_sample_x(double l, double max, double scale)
{
    return lf_sample_mul(lf_sample_add(l, -max), scale);
}

/* A logit after a request's changes. bias comes first (-inf forbids the token). The repetition
 * penalty applies where count >= 0, the presence and frequency penalties where count > 0. count is
 * that of struct lf_sample_token. */
LF_SAMPLE_FN double lf_sample_adjusted(double l, double bias, int32_t count, double repetition,
                                       double presence, double frequency)
{
    l = lf_sample_add(l, bias);
    if (count >= 0)
        l = l > 0 ? l / repetition : lf_sample_mul(l, repetition);
    if (count > 0)
        l = lf_sample_add(l, -lf_sample_add(presence, lf_sample_mul(frequency, (double)count)));
    return l;
}

/* The least mass that is the share p of total >= 1. The result is 1 ... total. */
LF_SAMPLE_FN uint64_t lf_sample_share(double p, uint64_t total)
{
    const double d = ceil(lf_sample_mul(p, (double)(int64_t)total));
    const uint64_t n = (uint64_t)(int64_t)d;
    return n < 1 ? 1 : n < total ? n : total;
}

/* u in [0, 1) of mass >= 1. The token drawn is the first whose running mass is larger than this. */
LF_SAMPLE_FN uint64_t lf_sample_place(double u, uint64_t mass)
{
    const uint64_t n = (uint64_t)(int64_t)lf_sample_mul(u, (double)(int64_t)mass);
    return n < mass ? n : mass - 1;
}

#endif
