/* SPDX-License-Identifier: Apache-2.0
 *
 * Floating point (PTX ISA 9.7.3) and its comparisons (9.7.6). An f32 result that is NaN is the one
 * that a device gives, 0x7fffffff. Approximations are computed in f64 and truncated.
 */
#include <fenv.h>

#include "tests/cuda/ptx/ins.h"

static inline float bits_f(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint32_t f_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

#define NAN_F(x) ((x) != (x) ? bits_f(0x7fffffffu) : (x))
#define NAN_G(x) (x)

#define LANES(statement)                                                                           \
    if (m == ~0u) {                                                                                \
        _Pragma("GCC ivdep") for (int l = 0; l < PTX_LANES; l++)                                   \
        {                                                                                          \
            statement;                                                                             \
        }                                                                                          \
    } else {                                                                                       \
        for (int l = 0; l < PTX_LANES; l++)                                                        \
            if (m >> l & 1) {                                                                      \
                statement;                                                                         \
            }                                                                                      \
    }
#define ONE(name, T, value)                                                                        \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        T *d = PTX_O(w, i, 0);                                                                     \
        const T *pa = PTX_O(w, i, 1);                                                              \
        LANES(const T a = pa[l]; const T r = value; d[l] = r)                                      \
    }
#define TWO(name, T, value, canon)                                                                 \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        T *d = PTX_O(w, i, 0);                                                                     \
        const T *pa = PTX_O(w, i, 1), *pb = PTX_O(w, i, 2);                                        \
        LANES(const T a = pa[l]; const T b = pb[l]; const T r = value; d[l] = canon(r))            \
    }
#define THREE(attribute, name, T, value, canon)                                                    \
    attribute static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)            \
    {                                                                                              \
        T *d = PTX_O(w, i, 0);                                                                     \
        const T *pa = PTX_O(w, i, 1), *pb = PTX_O(w, i, 2), *pc = PTX_O(w, i, 3);                  \
        LANES(const T a = pa[l]; const T b = pb[l]; const T c = pc[l]; const T r = value;          \
              d[l] = canon(r))                                                                     \
    }

TWO(add_f, ptx_f, a + b, NAN_F)
TWO(sub_f, ptx_f, a - b, NAN_F)
TWO(mul_f, ptx_f, a *b, NAN_F)
TWO(div_f, ptx_f, a / b, NAN_F)
TWO(add_g, ptx_g, a + b, NAN_G)
TWO(sub_g, ptx_g, a - b, NAN_G)
TWO(mul_g, ptx_g, a *b, NAN_G)
TWO(div_g, ptx_g, a / b, NAN_G)
ONE(sqrt_f, ptx_f, NAN_F(sqrtf(a)))
ONE(sqrt_g, ptx_g, NAN_G(sqrt(a)))
ONE(rcp_f, ptx_f, NAN_F(1.0f / a))
ONE(rcp_g, ptx_g, NAN_G(1.0 / a))
ONE(neg_f, ptx_f, -a)
ONE(neg_g, ptx_g, -a)
ONE(abs_f, ptx_f, fabsf(a))
ONE(abs_g, ptx_g, fabs(a))

/* With the processor's instruction where it has one; the library's otherwise, which is as exact. */
THREE(, fma_f_any, ptx_f, fmaf(a, b, c), NAN_F)
THREE(, fma_g_any, ptx_g, fma(a, b, c), NAN_G)
#ifdef __x86_64__
#define WITH_FMA __attribute__((target("avx2,fma")))
THREE(WITH_FMA, fma_f_fast, ptx_f, __builtin_fmaf(a, b, c), NAN_F)
THREE(WITH_FMA, fma_g_fast, ptx_g, __builtin_fma(a, b, c), NAN_G)
#endif

/* fma.rm and the like: the rounding mode of the processor around the function. */
#define DIRECTED(name, fn, mode)                                                                   \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        const int old = fegetround();                                                              \
        fesetround(mode);                                                                          \
        fn(w, i, m);                                                                               \
        fesetround(old);                                                                           \
    }
DIRECTED(fma_rm, fma_f_any, FE_DOWNWARD)
DIRECTED(fma_rp, fma_f_any, FE_UPWARD)
DIRECTED(fma_rz, fma_f_any, FE_TOWARDZERO)
DIRECTED(add_rz, add_f, FE_TOWARDZERO)

/* One NaN is ignored; -0 is less than +0 (9.7.3.11, .12). */
TWO(min_f, ptx_f, a != a ? b : b != b ? a : a == b ? (signbit(a) ? a : b) : a < b ? a : b, NAN_F)
TWO(max_f, ptx_f, a != a ? b : b != b ? a : a == b ? (signbit(a) ? b : a) : a > b ? a : b, NAN_F)
TWO(min_g, ptx_g, a != a ? b : b != b ? a : a == b ? (signbit(a) ? a : b) : a < b ? a : b, NAN_G)
TWO(max_g, ptx_g, a != a ? b : b != b ? a : a == b ? (signbit(a) ? b : a) : a > b ? a : b, NAN_G)

#define AS_IS(x) (x)
/* copysign d, a, b: the sign of a, the value of b (9.7.3.2). */
TWO(copysign_f, ptx_f, copysignf(b, a), AS_IS)
TWO(copysign_g, ptx_g, copysign(b, a), AS_IS)

/* ---- approximations ---- */

/* f64 to f32 towards zero, so that the result is not what a correctly rounded library gives. */
static float truncated(double x)
{
    const float f = (float)x;
    if (x != x || isinf(x) || (double)f == x || fabs((double)f) <= fabs(x))
        return NAN_F(f);
    return bits_f(f_bits(f) - 1);
}
static float flushed(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}

ONE(ex2, ptx_f, truncated(exp2(a)))
ONE(ex2_ftz, ptx_f, flushed(truncated(exp2(flushed(a)))))
ONE(lg2, ptx_f, truncated(log2(a)))
ONE(lg2_ftz, ptx_f, flushed(truncated(log2(flushed(a)))))
ONE(rcp_approx, ptx_f, truncated(1.0 / (double)a))
ONE(rcp_approx_ftz, ptx_f, flushed(truncated(1.0 / (double)flushed(a))))
ONE(rsqrt, ptx_f, truncated(1.0 / sqrt(a)))
ONE(rsqrt_ftz, ptx_f, flushed(truncated(1.0 / sqrt(flushed(a)))))
ONE(sqrt_approx, ptx_f, truncated(sqrt(a)))
ONE(sqrt_approx_ftz, ptx_f, flushed(truncated(sqrt(flushed(a)))))
ONE(sin_approx, ptx_f, truncated(sin(a)))
ONE(sin_approx_ftz, ptx_f, flushed(truncated(sin(flushed(a)))))
ONE(cos_approx, ptx_f, truncated(cos(a)))
ONE(cos_approx_ftz, ptx_f, flushed(truncated(cos(flushed(a)))))

/* ---- comparisons: ordered ones are false with a NaN, those with u are true ---- */

#define COMPARE(name, T, test)                                                                     \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        const T *pa = PTX_O(w, i, 1), *pb = PTX_O(w, i, 2);                                        \
        uint32_t r = 0;                                                                            \
        for (int l = 0; l < PTX_LANES; l++) {                                                      \
            const T a = pa[l], b = pb[l];                                                          \
            r |= (uint32_t)((test) != 0) << l;                                                     \
        }                                                                                          \
        ptx_set_pred(w, i->o[0], m, r);                                                            \
    }
#define COMPARISONS(x, T)                                                                          \
    COMPARE(eq_##x, T, a == b)                                                                     \
    COMPARE(ne_##x, T, a<b || a> b)                                                                \
    COMPARE(lt_##x, T, a < b)                                                                      \
    COMPARE(le_##x, T, a <= b)                                                                     \
    COMPARE(gt_##x, T, a > b)                                                                      \
    COMPARE(ge_##x, T, a >= b)                                                                     \
    COMPARE(equ_##x, T, !(a < b || a > b))                                                         \
    COMPARE(neu_##x, T, a != b)                                                                    \
    COMPARE(ltu_##x, T, !(a >= b))                                                                 \
    COMPARE(leu_##x, T, !(a > b))                                                                  \
    COMPARE(gtu_##x, T, !(a <= b))                                                                 \
    COMPARE(geu_##x, T, !(a < b))                                                                  \
    COMPARE(num_##x, T, a == a && b == b)                                                          \
    COMPARE(nan_##x, T, a != a || b != b)
COMPARISONS(f, ptx_f)
COMPARISONS(g, ptx_g)

#define SETP(x, type, sig)                                                                         \
    {"setp.eq" type, eq_##x, sig}, {"setp.ne" type, ne_##x, sig}, {"setp.lt" type, lt_##x, sig},   \
        {"setp.le" type, le_##x, sig}, {"setp.gt" type, gt_##x, sig},                              \
        {"setp.ge" type, ge_##x, sig}, {"setp.equ" type, equ_##x, sig},                            \
        {"setp.neu" type, neu_##x, sig}, {"setp.ltu" type, ltu_##x, sig},                          \
        {"setp.leu" type, leu_##x, sig}, {"setp.gtu" type, gtu_##x, sig},                          \
        {"setp.geu" type, geu_##x, sig}, {"setp.num" type, num_##x, sig},                          \
    {                                                                                              \
        "setp.nan" type, nan_##x, sig                                                              \
    }
/* Without .rn the compiler may contract, which this one does not do. */
#define ROUNDED(op, fn)                                                                            \
    {op ".rn.f32", fn##_f, "Www"}, {op ".f32", fn##_f, "Www"}, {op ".rn.f64", fn##_g, "Ddd"},      \
    {                                                                                              \
        op ".f64", fn##_g, "Ddd"                                                                   \
    }

static const struct ptx_row rows[] = {
    ROUNDED("add", add),
    {"add.rz.f32", add_rz, "Www"},
    ROUNDED("sub", sub),
    ROUNDED("mul", mul),
    {"div.rn.f32", div_f, "Www"},
    {"div.rn.f64", div_g, "Ddd"},
    {"sqrt.rn.f32", sqrt_f, "Ww"},
    {"sqrt.rn.f64", sqrt_g, "Dd"},
    {"rcp.rn.f32", rcp_f, "Ww"},
    {"rcp.rn.f64", rcp_g, "Dd"},
    {"neg.f32", neg_f, "Ww"},
    {"neg.f64", neg_g, "Dd"},
    {"abs.f32", abs_f, "Ww"},
    {"abs.f64", abs_g, "Dd"},
    {"min.f32", min_f, "Www"},
    {"max.f32", max_f, "Www"},
    {"min.f64", min_g, "Ddd"},
    {"max.f64", max_g, "Ddd"},
    {"copysign.f32", copysign_f, "Www"},
    {"copysign.f64", copysign_g, "Ddd"},
    {"fma.rn.f32", fma_f_any, "Wwww"},
    {"fma.rn.f64", fma_g_any, "Dddd"},
    {"fma.rm.f32", fma_rm, "Wwww"},
    {"fma.rp.f32", fma_rp, "Wwww"},
    {"fma.rz.f32", fma_rz, "Wwww"},
    {"ex2.approx.f32", ex2, "Ww"},
    {"ex2.approx.ftz.f32", ex2_ftz, "Ww"},
    {"lg2.approx.f32", lg2, "Ww"},
    {"lg2.approx.ftz.f32", lg2_ftz, "Ww"},
    {"rcp.approx.f32", rcp_approx, "Ww"},
    {"rcp.approx.ftz.f32", rcp_approx_ftz, "Ww"},
    {"rsqrt.approx.f32", rsqrt, "Ww"},
    {"rsqrt.approx.ftz.f32", rsqrt_ftz, "Ww"},
    {"sqrt.approx.f32", sqrt_approx, "Ww"},
    {"sqrt.approx.ftz.f32", sqrt_approx_ftz, "Ww"},
    {"sin.approx.f32", sin_approx, "Ww"},
    {"sin.approx.ftz.f32", sin_approx_ftz, "Ww"},
    {"cos.approx.f32", cos_approx, "Ww"},
    {"cos.approx.ftz.f32", cos_approx_ftz, "Ww"},
    SETP(f, ".f32", "Pww"),
    SETP(g, ".f64", "Pdd"),
};

bool lf_ptx_decode_float(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    if (!lf_ptx_decode_row(p, op, i, rows, sizeof rows / sizeof *rows))
        return false;
    i->passes_on = true;
#ifdef __x86_64__
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2"))
        i->fn = i->fn == fma_f_any ? fma_f_fast : i->fn == fma_g_any ? fma_g_fast : i->fn;
#endif
    return true;
}
