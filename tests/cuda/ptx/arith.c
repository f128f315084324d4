/* SPDX-License-Identifier: Apache-2.0
 *
 * Integers, logic, comparisons and moves (PTX ISA 9.7.1, 9.7.2, 9.7.6, 9.7.8, 9.7.9). An
 * instruction is known by its whole text.
 */
#include "tests/cuda/ptx/ins.h"

/* Every active lane; whole warps without a test, so that the compiler makes vectors of it. */
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

#define ONE(name, R, A, value)                                                                     \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        R *d = PTX_O(w, i, 0);                                                                     \
        const A *pa = PTX_O(w, i, 1);                                                              \
        LANES(const A a = pa[l]; d[l] = (R)(value))                                                \
    }
#define TWO(name, R, A, B, value)                                                                  \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        R *d = PTX_O(w, i, 0);                                                                     \
        const A *pa = PTX_O(w, i, 1);                                                              \
        const B *pb = PTX_O(w, i, 2);                                                              \
        LANES(const A a = pa[l]; const B b = pb[l]; d[l] = (R)(value))                             \
    }
#define THREE(name, R, A, B, C, value)                                                             \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        R *d = PTX_O(w, i, 0);                                                                     \
        const A *pa = PTX_O(w, i, 1);                                                              \
        const B *pb = PTX_O(w, i, 2);                                                              \
        const C *pc = PTX_O(w, i, 3);                                                              \
        LANES(const A a = pa[l]; const B b = pb[l]; const C c = pc[l]; d[l] = (R)(value))          \
    }
#define COMPARE(name, A, test)                                                                     \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        const A *pa = PTX_O(w, i, 1), *pb = PTX_O(w, i, 2);                                        \
        uint32_t r = 0;                                                                            \
        for (int l = 0; l < PTX_LANES; l++) {                                                      \
            const A a = pa[l], b = pb[l];                                                          \
            r |= (uint32_t)(test) << l;                                                            \
        }                                                                                          \
        ptx_set_pred(w, i->o[0], m, r);                                                            \
    }

/* ---- by type: U unsigned, S signed, of n bits ---- */

/* Sums and products wrap, so one function serves both signs (9.7.1.1 ... 9.7.1.4). */
#define WRAPPING(n, U)                                                                             \
    TWO(add##n, U, U, U, a + b)                                                                    \
    TWO(sub##n, U, U, U, a - b)                                                                    \
    TWO(mul##n, U, U, U, (uint64_t)a *b)                                                           \
    THREE(mad##n, U, U, U, U, (uint64_t)a *b + c)                                                  \
    TWO(and##n, U, U, U, a &b)                                                                     \
    TWO(or ##n, U, U, U, a | b)                                                                    \
    TWO(xor##n, U, U, U, a ^ b)                                                                    \
    ONE(not ##n, U, U, ~a)                                                                         \
    ONE(cnot##n, U, U, a == 0)                                                                     \
    ONE(neg##n, U, U, (U)0 - a)                                                                    \
    ONE(mov##n, U, U, a)                                                                           \
    TWO(shl##n, U, U, ptx_w, b > n - 1 ? 0 : (U)(a << b))                                          \
    COMPARE(eq##n, U, a == b)                                                                      \
    COMPARE(ne##n, U, a != b)
WRAPPING(16, ptx_h)
WRAPPING(32, ptx_w)
WRAPPING(64, ptx_d)

/* Shifts by more than the width give zeros, or the sign (9.7.8.8). */
#define ORDERED(x, n, T)                                                                           \
    TWO(min_##x##n, T, T, T, a < b ? a : b)                                                        \
    TWO(max_##x##n, T, T, T, a > b ? a : b)                                                        \
    COMPARE(lt_##x##n, T, a < b)                                                                   \
    COMPARE(le_##x##n, T, a <= b)                                                                  \
    COMPARE(gt_##x##n, T, a > b)                                                                   \
    COMPARE(ge_##x##n, T, a >= b)
ORDERED(u, 16, ptx_h)
ORDERED(u, 32, ptx_w)
ORDERED(u, 64, ptx_d)
ORDERED(s, 16, ptx_sh)
ORDERED(s, 32, ptx_sw)
ORDERED(s, 64, ptx_sd)

TWO(shr_u16, ptx_h, ptx_h, ptx_w, b > 15 ? 0 : a >> b)
TWO(shr_u32, ptx_w, ptx_w, ptx_w, b > 31 ? 0 : a >> b)
TWO(shr_u64, ptx_d, ptx_d, ptx_w, b > 63 ? 0 : a >> b)
TWO(shr_s16, ptx_sh, ptx_sh, ptx_w, a >> (b > 15 ? 15 : b))
TWO(shr_s32, ptx_sw, ptx_sw, ptx_w, a >> (b > 31 ? 31 : b))
TWO(shr_s64, ptx_sd, ptx_sd, ptx_w, a >> (b > 63 ? 63 : b))

TWO(wide_u16, ptx_w, ptx_h, ptx_h, (uint32_t)a *b)
TWO(wide_s16, ptx_sw, ptx_sh, ptx_sh, (int32_t)a *b)
TWO(wide_u32, ptx_d, ptx_w, ptx_w, (uint64_t)a *b)
TWO(wide_s32, ptx_sd, ptx_sw, ptx_sw, (int64_t)a *b)
THREE(mad_wide_u32, ptx_d, ptx_w, ptx_w, ptx_d, (uint64_t)a *b + c)
THREE(mad_wide_s32, ptx_d, ptx_sw, ptx_sw, ptx_d, (uint64_t)((int64_t)a *b) + c)
TWO(hi_u32, ptx_w, ptx_w, ptx_w, (uint64_t)a *b >> 32)
TWO(hi_s32, ptx_w, ptx_sw, ptx_sw, (uint64_t)((int64_t)a *b) >> 32)
TWO(hi_u64, ptx_d, ptx_d, ptx_d, (unsigned __int128)a *b >> 64)
TWO(hi_s64, ptx_d, ptx_sd, ptx_sd, (unsigned __int128)((__int128)a *b) >> 64)

ONE(abs_s16, ptx_h, ptx_sh, a < 0 ? 0u - (uint32_t)a : (uint32_t)a)
ONE(abs_s32, ptx_w, ptx_sw, a < 0 ? 0u - (uint32_t)a : (uint32_t)a)
ONE(abs_s64, ptx_d, ptx_sd, a < 0 ? 0u - (uint64_t)a : (uint64_t)a)
ONE(popc32, ptx_w, ptx_w, __builtin_popcount(a))
ONE(popc64, ptx_w, ptx_d, __builtin_popcountll(a))
ONE(clz32, ptx_w, ptx_w, a ? __builtin_clz(a) : 32)
ONE(clz64, ptx_w, ptx_d, a ? __builtin_clzll(a) : 64)

static uint64_t reversed(uint64_t a, int n)
{
    uint64_t r = 0;
    for (int k = 0; k < n; k++)
        r |= (a >> k & 1) << (n - 1 - k);
    return r;
}
ONE(brev32, ptx_w, ptx_w, reversed(a, 32))
ONE(brev64, ptx_d, ptx_d, reversed(a, 64))

/* Quotients; the result of a division by zero is unspecified (9.7.1.8), so it ends the process. */
#define DIVIDE(name, T, value)                                                                     \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        T *d = PTX_O(w, i, 0);                                                                     \
        const T *pa = PTX_O(w, i, 1), *pb = PTX_O(w, i, 2);                                        \
        for (int l = 0; l < PTX_LANES; l++)                                                        \
            if (m >> l & 1) {                                                                      \
                const T a = pa[l], b = pb[l];                                                      \
                if (!b)                                                                            \
                    lf_ptx_fail(w, i, l, "a division by zero");                                    \
                d[l] = (T)(value);                                                                 \
            }                                                                                      \
    }
DIVIDE(div_u16, ptx_h, a / b)
DIVIDE(div_u32, ptx_w, a / b)
DIVIDE(div_u64, ptx_d, a / b)
DIVIDE(div_s16, ptx_sh, a / b)
DIVIDE(div_s32, ptx_sw, (int64_t)a / b)
DIVIDE(div_s64, ptx_sd, b == -1 ? (ptx_sd)(0 - (uint64_t)a) : a / b)
DIVIDE(rem_u16, ptx_h, a % b)
DIVIDE(rem_u32, ptx_w, a % b)
DIVIDE(rem_u64, ptx_d, a % b)
DIVIDE(rem_s16, ptx_sh, a % b)
DIVIDE(rem_s32, ptx_sw, (int64_t)a % b)
DIVIDE(rem_s64, ptx_sd, b == -1 ? 0 : a % b)

/* Bit fields (9.7.1.19, .20): position and length are the low 8 bits; the sign is the field's
 * highest bit that exists.
 */
static uint64_t field(uint64_t a, unsigned pos, unsigned len, unsigned bits, bool sign)
{
    const unsigned top = bits - 1, at = pos + len - 1 < top ? pos + len - 1 : top;
    const uint64_t s = sign && len ? (a >> at & 1) : 0;
    uint64_t d = 0;
    for (unsigned k = 0; k < bits; k++)
        d |= (k < len && pos + k <= top ? a >> (pos + k) & 1 : s) << k;
    return d;
}
THREE(bfe_u32, ptx_w, ptx_w, ptx_w, ptx_w, field(a, b & 255, c & 255, 32, false))
THREE(bfe_s32, ptx_w, ptx_w, ptx_w, ptx_w, field(a, b & 255, c & 255, 32, true))
THREE(bfe_u64, ptx_d, ptx_d, ptx_w, ptx_w, field(a, b & 255, c & 255, 64, false))
THREE(bfe_s64, ptx_d, ptx_d, ptx_w, ptx_w, field(a, b & 255, c & 255, 64, true))

/* bfi f, a, b, c, d: the low d bits of a into b from bit c on. */
static uint64_t insert(uint64_t a, uint64_t b, unsigned pos, unsigned len, unsigned bits)
{
    for (unsigned k = 0; k < len && pos + k < bits; k++)
        b = (b & ~(1ULL << (pos + k))) | (a >> k & 1) << (pos + k);
    return b;
}
#define BFI(name, T, bits)                                                                         \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        T *f = PTX_O(w, i, 0);                                                                     \
        const T *a = PTX_O(w, i, 1), *b = PTX_O(w, i, 2);                                          \
        const ptx_w *c = PTX_O(w, i, 3), *d = PTX_O(w, i, 4);                                      \
        LANES(f[l] = (T)insert(a[l], b[l], c[l] & 255, d[l] & 255, bits))                          \
    }
BFI(bfi32, ptx_w, 32)
BFI(bfi64, ptx_d, 64)

/* shf.l d, a, b, c: the high word of {b, a} << c; shf.r: the low word of {b, a} >> c (9.7.8.7). */
static uint32_t funnel(uint32_t a, uint32_t b, unsigned n, bool left)
{
    const uint64_t x = (uint64_t)b << 32 | a;
    return left ? (uint32_t)(n == 32 ? a : x << n >> 32) : (uint32_t)(x >> n);
}
THREE(shf_l_wrap, ptx_w, ptx_w, ptx_w, ptx_w, funnel(a, b, c & 31, true))
THREE(shf_r_wrap, ptx_w, ptx_w, ptx_w, ptx_w, funnel(a, b, c & 31, false))
THREE(shf_l_clamp, ptx_w, ptx_w, ptx_w, ptx_w, funnel(a, b, c < 32 ? c : 32, true))
THREE(shf_r_clamp, ptx_w, ptx_w, ptx_w, ptx_w, funnel(a, b, c < 32 ? c : 32, false))

/* Bytes 7..0 of {b, a} by four selectors; bit 3 of one copies the sign of its byte (9.7.9.7). */
static uint32_t permuted(uint32_t a, uint32_t b, uint32_t c)
{
    const uint64_t x = (uint64_t)b << 32 | a;
    uint32_t d = 0;
    for (int k = 0; k < 4; k++) {
        const uint32_t s = c >> 4 * k & 15, byte = x >> 8 * (s & 7) & 255;
        d |= (s & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * k;
    }
    return d;
}
THREE(prmt, ptx_w, ptx_w, ptx_w, ptx_w, permuted(a, b, c))

/* Any function of three bits: bit (a << 2 | b << 1 | c) of the table (9.7.8.6: ta 0xf0, tb 0xcc, tc
 * 0xaa). */
static void lop3(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    ptx_w *d = PTX_O(w, i, 0);
    const ptx_w *a = PTX_O(w, i, 1), *b = PTX_O(w, i, 2), *c = PTX_O(w, i, 3), *t = PTX_O(w, i, 4);
    for (int l = 0; l < PTX_LANES; l++)
        if (m >> l & 1) {
            uint32_t r = 0;
            for (int k = 0; k < 32; k++)
                r |= (t[l] >> ((a[l] >> k & 1) << 2 | (b[l] >> k & 1) << 1 | (c[l] >> k & 1)) & 1)
                     << k;
            d[l] = r;
        }
}

/* ---- predicates: 32 at once ---- */

#define PREDICATE(name, value)                                                                     \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        const uint32_t a = ptx_pred(w, i->o[1]), b = ptx_pred(w, i->o[i->n > 2 ? 2 : 1]);          \
        (void)b;                                                                                   \
        ptx_set_pred(w, i->o[0], m, value);                                                        \
    }
PREDICATE(and_p, a &b)
PREDICATE(or_p, a | b)
PREDICATE(xor_p, a ^ b)
PREDICATE(not_p, ~a)
PREDICATE(mov_p, a)

/* selp d, a, b, p: a where p is true (9.7.6.4); only what is taken has to be defined. */
#define SELECT(name, T)                                                                            \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        T *d = PTX_O(w, i, 0);                                                                     \
        const T *a = PTX_O(w, i, 1), *b = PTX_O(w, i, 2);                                          \
        const uint32_t p = ptx_pred(w, i->o[3]);                                                   \
        uint32_t *def = w->defined;                                                                \
        const uint32_t known =                                                                     \
            def[i->o[3] / 64] & ((p & def[i->o[1] / 64]) | (~p & def[i->o[2] / 64]));              \
        def[i->o[0] / 64] = (def[i->o[0] / 64] & ~m) | (known & m);                                \
        LANES(d[l] = p >> l & 1 ? a[l] : b[l])                                                     \
    }
SELECT(selp16, ptx_h)
SELECT(selp32, ptx_w)
SELECT(selp64, ptx_d)

#define SAME3(op, fn, n, sig)                                                                      \
    {op ".u" #n, fn, sig}, {op ".s" #n, fn, sig},                                                  \
    {                                                                                              \
        op ".b" #n, fn, sig                                                                        \
    }
#define BY_SIZE(op, fn, sig_h, sig_w, sig_d)                                                       \
    SAME3(op, fn##16, 16, sig_h), SAME3(op, fn##32, 32, sig_w), SAME3(op, fn##64, 64, sig_d)
#define BY_SIGN(op, fn, sig_h, sig_w, sig_d)                                                       \
    {op ".u16", fn##u16, sig_h}, {op ".u32", fn##u32, sig_w}, {op ".u64", fn##u64, sig_d},         \
        {op ".s16", fn##s16, sig_h}, {op ".s32", fn##s32, sig_w},                                  \
    {                                                                                              \
        op ".s64", fn##s64, sig_d                                                                  \
    }

static const struct ptx_row rows[] = {
    BY_SIZE("add", add, "Hhh", "Www", "Ddd"),
    BY_SIZE("sub", sub, "Hhh", "Www", "Ddd"),
    BY_SIZE("mul.lo", mul, "Hhh", "Www", "Ddd"),
    BY_SIZE("mad.lo", mad, "Hhhh", "Wwww", "Dddd"),
    BY_SIZE("and", and, "Hhh", "Www", "Ddd"),
    BY_SIZE("or", or, "Hhh", "Www", "Ddd"),
    BY_SIZE("xor", xor, "Hhh", "Www", "Ddd"),
    BY_SIZE("not", not, "Hh", "Ww", "Dd"),
    BY_SIZE("cnot", cnot, "Hh", "Ww", "Dd"),
    BY_SIZE("neg", neg, "Hh", "Ww", "Dd"),
    BY_SIZE("shl", shl, "Hhw", "Www", "Ddw"),
    BY_SIZE("setp.eq", eq, "Phh", "Pww", "Pdd"),
    BY_SIZE("setp.ne", ne, "Phh", "Pww", "Pdd"),
    BY_SIGN("min", min_, "Hhh", "Www", "Ddd"),
    BY_SIGN("max", max_, "Hhh", "Www", "Ddd"),
    BY_SIGN("shr", shr_, "Hhw", "Www", "Ddw"),
    BY_SIGN("div", div_, "Hhh", "Www", "Ddd"),
    BY_SIGN("rem", rem_, "Hhh", "Www", "Ddd"),
    BY_SIGN("setp.lt", lt_, "Phh", "Pww", "Pdd"),
    BY_SIGN("setp.le", le_, "Phh", "Pww", "Pdd"),
    BY_SIGN("setp.gt", gt_, "Phh", "Pww", "Pdd"),
    BY_SIGN("setp.ge", ge_, "Phh", "Pww", "Pdd"),
    {"setp.lo.u32", lt_u32, "Pww"},
    {"setp.hi.u32", gt_u32, "Pww"},
    {"shr.b16", shr_u16, "Hhw"},
    {"shr.b32", shr_u32, "Www"},
    {"shr.b64", shr_u64, "Ddw"},
    {"mul.wide.u16", wide_u16, "Whh"},
    {"mul.wide.s16", wide_s16, "Whh"},
    {"mul.wide.u32", wide_u32, "Dww"},
    {"mul.wide.s32", wide_s32, "Dww"},
    {"mad.wide.u32", mad_wide_u32, "Dwwd"},
    {"mad.wide.s32", mad_wide_s32, "Dwwd"},
    {"mul.hi.u32", hi_u32, "Www"},
    {"mul.hi.s32", hi_s32, "Www"},
    {"mul.hi.u64", hi_u64, "Ddd"},
    {"mul.hi.s64", hi_s64, "Ddd"},
    {"abs.s16", abs_s16, "Hh"},
    {"abs.s32", abs_s32, "Ww"},
    {"abs.s64", abs_s64, "Dd"},
    {"popc.b32", popc32, "Ww"},
    {"popc.b64", popc64, "Wd"},
    {"clz.b32", clz32, "Ww"},
    {"clz.b64", clz64, "Wd"},
    {"brev.b32", brev32, "Ww"},
    {"brev.b64", brev64, "Dd"},
    {"bfe.u32", bfe_u32, "Wwww"},
    {"bfe.s32", bfe_s32, "Wwww"},
    {"bfe.u64", bfe_u64, "Ddww"},
    {"bfe.s64", bfe_s64, "Ddww"},
    {"bfi.b32", bfi32, "Wwwww"},
    {"bfi.b64", bfi64, "Dddww"},
    {"shf.l.wrap.b32", shf_l_wrap, "Wwww"},
    {"shf.r.wrap.b32", shf_r_wrap, "Wwww"},
    {"shf.l.clamp.b32", shf_l_clamp, "Wwww"},
    {"shf.r.clamp.b32", shf_r_clamp, "Wwww"},
    {"prmt.b32", prmt, "Wwww"},
    {"lop3.b32", lop3, "Wwwww"},
    {"and.pred", and_p, "Ppp"},
    {"or.pred", or_p, "Ppp"},
    {"xor.pred", xor_p, "Ppp"},
    {"not.pred", not_p, "Pp"},
    {"mov.pred", mov_p, "Pp"},
    SAME3("mov", mov16, 16, "Hh"),
    SAME3("mov", mov32, 32, "Ww"),
    SAME3("mov", mov64, 64, "Dd"),
    {"mov.f32", mov32, "Ww"},
    {"mov.f64", mov64, "Dd"},
};
static const struct ptx_row selects[] = {
    SAME3("selp", selp16, 16, "Hhhp"), SAME3("selp", selp32, 32, "Wwwp"),
    SAME3("selp", selp64, 64, "Dddp"), {"selp.f32", selp32, "Wwwp"},
    {"selp.f64", selp64, "Dddp"},
};

/* mov between a register and the vector of its parts, the first the lowest (9.7.9.4). */
static void join(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    const unsigned part = i->size;
    for (unsigned l = 0; l < PTX_LANES; l++)
        for (unsigned k = 0; m >> l & 1 && k < i->vec; k++)
            memcpy((char *)PTX_O(w, i, 0) + l * part * i->vec + k * part,
                   (char *)PTX_O(w, i, 1 + k) + l * part, part);
}
static void split(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    const unsigned part = i->size;
    for (unsigned l = 0; l < PTX_LANES; l++)
        for (unsigned k = 0; m >> l & 1 && k < i->vec; k++)
            if (i->o[k])
                memcpy((char *)PTX_O(w, i, k) + l * part,
                       (char *)PTX_O(w, i, i->vec) + l * part * i->vec + k * part, part);
}

static bool decode_vector_mov(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    if (strncmp(op, "mov.b", 5) != 0 || lf_ptx_operands(p) < 3)
        return false;
    const bool joins = !lf_ptx_operand(p, 0)->group;
    const int n = lf_ptx_operands(p) - 1;
    const unsigned whole = op[5] == '3' ? 4 : 8, part = whole / (unsigned)n;
    if (part < 2 || part * (unsigned)n != whole)
        return false;
    i->vec = (uint8_t)n;
    i->size = (uint8_t)part;
    i->fn = joins ? join : split;
    i->passes_on = true;
    lf_ptx_new_operands(i, joins ? 1 : (unsigned)n, (unsigned)n + 1);
    for (int k = 0; k <= n; k++) {
        if (lf_ptx_operand(p, k)->sink) /* _: nowhere */
            continue;
        i->o[k] = lf_ptx_slot(p, k, k == (joins ? 0 : n) ? whole : part);
    }
    return true;
}

bool lf_ptx_decode_arith(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    if (decode_vector_mov(p, op, i))
        return true;
    if (lf_ptx_decode_row(p, op, i, selects, sizeof selects / sizeof *selects))
        return i->own_defined = true;
    if (!lf_ptx_decode_row(p, op, i, rows, sizeof rows / sizeof *rows))
        return false;
    i->passes_on = true;
    return true;
}
