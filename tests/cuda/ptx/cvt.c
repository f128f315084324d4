/* SPDX-License-Identifier: Apache-2.0
 *
 * cvt (PTX ISA 9.7.9.21). A source register may be wider than its type, whose low bits count then;
 * a wider destination is extended by the sign of its type.
 */
#include <fenv.h>
#include <stdio.h>

#include "tests/cuda/ptx/ins.h"

enum kind { UNSIGNED, SIGNED, FLOAT, BF16, PACKED };
struct type {
    const char *name;
    enum kind kind;
    uint8_t bytes;
};
static const struct type types[] = {
    {"u8", UNSIGNED, 1}, {"u16", UNSIGNED, 2}, {"u32", UNSIGNED, 4}, {"u64", UNSIGNED, 8},
    {"s8", SIGNED, 1},   {"s16", SIGNED, 2},   {"s32", SIGNED, 4},   {"s64", SIGNED, 8},
    {"f16", FLOAT, 2},   {"f32", FLOAT, 4},    {"f64", FLOAT, 8},    {"bf16", BF16, 2}};

enum rounding { NONE, RN, RZ, RM, RP, RNI, RZI, RMI, RPI };
enum { SAT = 256, FTZ = 512 };

static uint32_t f_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static float bits_f(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* ---- small floats ---- */

struct small {
    int e, m;            /* bits of exponent and mantissa */
    uint32_t most, over; /* code of the largest finite value, and what lies beyond it becomes */
    uint32_t nan;
    bool infinite;
};
static const struct small f16 = {5, 10, 0x7bff, 0x7c00, 0x7fff, true},
                          bf16 = {8, 7, 0x7f7f, 0x7f80, 0x7fff, true},
                          e4m3 = {4, 3, 0x7e, 0x7e, 0x7f, false},
                          e5m2 = {5, 2, 0x7b, 0x7b, 0x7f, true};

/* Nearest, ties to even. e4m3 and e5m2 are for .satfinite: beyond the range is the largest value
 * (9.7.9.21 ".satfinite"). */
static uint32_t narrow(float x, const struct small *t)
{
    const uint32_t u = f_bits(x), a = u & 0x7fffffffu, sign = u >> 31 << (t->e + t->m);
    const int bias = (1 << (t->e - 1)) - 1, e = a >> 23 ? (int)(a >> 23) - 127 : -126,
              low = 1 - bias;
    if (a > 0x7f800000u)
        return t->nan;
    const uint32_t m = (a & 0x7fffff) | (a >> 23 ? 0x800000u : 0);
    int drop = 23 - t->m + (e < low ? low - e : 0);
    if (drop > 25)
        drop = 25;
    const uint32_t q = (m + (1u << (drop - 1)) - 1 + (m >> drop & 1)) >> drop;
    uint32_t code = e < low ? q : q + ((uint32_t)(e - low) << t->m);
    if (code > t->most)
        code = t->over;
    return sign | code;
}

static float widen(uint32_t c, const struct small *t)
{
    const int bias = (1 << (t->e - 1)) - 1, e = c >> t->m & ((1 << t->e) - 1),
              top = (1 << t->e) - 1;
    const uint32_t m = c & ((1u << t->m) - 1), sign = c >> (t->e + t->m) & 1;
    if (e == top && t->infinite)
        return bits_f(m ? 0x7fffffffu : sign << 31 | 0x7f800000u);
    if (!t->infinite && (c & 0x7f) == t->nan)
        return bits_f(0x7fffffffu);
    if (e)
        return bits_f(sign << 31 | (uint32_t)(e - bias + 127) << 23 | m << (23 - t->m));
    const float v = (float)m * bits_f((uint32_t)(1 - bias - t->m + 127) << 23);
    return sign ? -v : v;
}

float lf_ptx_widen(uint32_t code, int kind)
{
    static const struct small *const kinds[] = {&f16, &bf16, &e4m3, &e5m2};
    return widen(code, kinds[kind]);
}

/* cvt.rn.T.f32 d, a, b: a becomes the upper half, b the lower. */
#define PACK(name, t, T, half)                                                                     \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        T *d = PTX_O(w, i, 0);                                                                     \
        const ptx_f *a = PTX_O(w, i, 1), *b = PTX_O(w, i, 2);                                      \
        for (int l = 0; l < PTX_LANES; l++)                                                        \
            if (m >> l & 1)                                                                        \
                d[l] = (T)(narrow(a[l], &t) << half | narrow(b[l], &t));                           \
    }
PACK(pack_f16, f16, ptx_w, 16)
PACK(pack_bf16, bf16, ptx_w, 16)
PACK(pack_e4m3, e4m3, ptx_h, 8)
PACK(pack_e5m2, e5m2, ptx_h, 8)

static const struct ptx_row packed[] = {
    {"cvt.rn.f16x2.f32", pack_f16, "Www"},
    {"cvt.rn.bf16x2.f32", pack_bf16, "Www"},
    {"cvt.rn.satfinite.e4m3x2.f32", pack_e4m3, "Hww"},
    {"cvt.rn.satfinite.e5m2x2.f32", pack_e5m2, "Hww"},
};

/* ---- one value ---- */

struct value {
    uint64_t u; /* integers, sign extended */
    double f;
};

static struct value read_value(const unsigned char *at, const struct type *t)
{
    struct value v = {0, 0};
    memcpy(&v.u, at, t->bytes);
    if (t->kind == SIGNED)
        v.u = (uint64_t)((int64_t)(v.u << (64 - 8 * t->bytes)) >> (64 - 8 * t->bytes));
    else if (t->kind == BF16)
        v.f = bits_f((uint32_t)v.u << 16);
    else if (t->kind == FLOAT && t->bytes == 2)
        v.f = widen((uint32_t)v.u, &f16);
    else if (t->kind == FLOAT && t->bytes == 4)
        v.f = bits_f((uint32_t)v.u);
    else if (t->kind == FLOAT)
        memcpy(&v.f, &v.u, sizeof v.f);
    return v;
}

/* Out of range is the nearest end. NaN: 0, but with 64 bits on either side 2^63 (9.7.9.21,
 * "float-to-integer"). */
static uint64_t to_integer(double f, enum rounding r, const struct type *t, const struct type *from)
{
    const int bits = 8 * t->bytes;
    if (f != f)
        return from->bytes == 8 || t->bytes == 8 ? 1ULL << (bits - 1) : 0;
    f = r == RNI ? nearbyint(f) : r == RMI ? floor(f) : r == RPI ? ceil(f) : trunc(f);
    const bool sign = t->kind == SIGNED;
    const double most = ldexp(1, sign ? bits - 1 : bits), least = sign ? -most : 0;
    if (f >= most)
        return sign ? (1ULL << (bits - 1)) - 1 : ~0ULL >> (64 - bits);
    if (f <= least)
        return sign ? 1ULL << (bits - 1) : 0;
    return sign ? (uint64_t)(int64_t)f : (uint64_t)f;
}

static double integral(double f, enum rounding r)
{
    return r == RNI   ? nearbyint(f)
           : r == RMI ? floor(f)
           : r == RPI ? ceil(f)
           : r == RZI ? trunc(f)
                      : f;
}

static uint64_t float_bits(double f, const struct type *t)
{
    uint64_t u = 0;
    if (t->bytes == 8)
        memcpy(&u, &f, sizeof u);
    else if (t->bytes == 4)
        u = f != f ? 0x7fffffffu : f_bits((float)f);
    else
        u = narrow((float)f, t->kind == BF16 ? &bf16 : &f16);
    return u;
}

/* An integer to f32 is rounded once, so not by way of f64. */
static uint64_t integer_to_float(uint64_t u, const struct type *from, const struct type *t)
{
    if (t->bytes == 8)
        return float_bits(from->kind == SIGNED ? (double)(int64_t)u : (double)u, t);
    return f_bits(from->kind == SIGNED ? (float)(int64_t)u : (float)u);
}

static uint64_t converted(const unsigned char *at, const struct type *from, const struct type *to,
                          int how)
{
    struct value v = read_value(at, from);
    const bool from_float = from->kind >= FLOAT, to_float = to->kind >= FLOAT;
    const enum rounding r = (enum rounding)(how & 255);
    if (!from_float)
        return to_float ? integer_to_float(v.u, from, to) : v.u;
    if (how & FTZ && from->bytes == 4 && fabs(v.f) < 0x1p-126)
        v.f = copysign(0, v.f);
    if (!to_float)
        return to_integer(v.f, r, to, from);
    v.f = integral(v.f, r);
    if (how & SAT) /* [0, 1], NaN is 0 */
        v.f = v.f > 0 ? (v.f < 1 ? v.f : 1) : 0;
    return float_bits(v.f, to);
}

static void general(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    const struct type *to = &types[i->size], *from = &types[i->space];
    const unsigned out = i->reg, in = i->vec;
    for (unsigned l = 0; l < PTX_LANES; l++)
        if (m >> l & 1) {
            uint64_t u = converted((unsigned char *)PTX_O(w, i, 1) + l * in, from, to, (int)i->imm);
            const unsigned shift = 64 - 8 * to->bytes;
            u = to->kind == SIGNED ? (uint64_t)((int64_t)(u << shift) >> shift)
                                   : u << shift >> shift;
            memcpy((unsigned char *)PTX_O(w, i, 0) + l * out, &u, out);
        }
}

/* ---- the frequent ones ---- */

#define FAST(name, D, S)                                                                           \
    static void name(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)                      \
    {                                                                                              \
        D *d = PTX_O(w, i, 0);                                                                     \
        const S *s = PTX_O(w, i, 1);                                                               \
        if (m == ~0u)                                                                              \
            for (int l = 0; l < PTX_LANES; l++)                                                    \
                d[l] = (D)s[l];                                                                    \
        else                                                                                       \
            for (int l = 0; l < PTX_LANES; l++)                                                    \
                if (m >> l & 1)                                                                    \
                    d[l] = (D)s[l];                                                                \
    }
FAST(s64_s32, ptx_sd, ptx_sw)
FAST(u64_u32, ptx_d, ptx_w)
FAST(u32_u64, ptx_w, ptx_d)
FAST(u32_u16, ptx_w, ptx_h)
FAST(u16_u32, ptx_h, ptx_w)
FAST(f32_s32, ptx_f, ptx_sw)
FAST(f32_u32, ptx_f, ptx_w)
static const struct {
    const char *op;
    ptx_fn *fn;
    uint8_t to, from;
} fast[] = {{"cvt.s64.s32", s64_s32, 8, 4},   {"cvt.u64.u32", u64_u32, 8, 4},
            {"cvt.u32.u64", u32_u64, 4, 8},   {"cvt.u32.u16", u32_u16, 4, 2},
            {"cvt.u16.u32", u16_u32, 2, 4},   {"cvt.rn.f32.s32", f32_s32, 4, 4},
            {"cvt.rn.f32.u32", f32_u32, 4, 4}};

static int type_of(const char *name, size_t n)
{
    for (size_t k = 0; k < sizeof types / sizeof *types; k++)
        if (strlen(types[k].name) == n && strncmp(types[k].name, name, n) == 0)
            return (int)k;
    return -1;
}

/* cvt[.rounding][.ftz][.sat].to.from */
static bool parts(const char *op, int *how, int *to, int *from)
{
    static const char *const words[] = {"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"};
    *how = 0;
    *to = *from = -1;
    for (const char *s = op + 3; *s;) {
        const size_t n = strcspn(++s, ".");
        const int t = type_of(s, n);
        int k = 0;
        while (k < 8 && !(strlen(words[k]) == n && strncmp(words[k], s, n) == 0))
            k++;
        if (t >= 0 && *to < 0)
            *to = t;
        else if (t >= 0 && *from < 0)
            *from = t;
        else if (t >= 0 || *to >= 0)
            return false;
        else if (k < 8 && !(*how & 255))
            *how |= k + 1;
        else if (n == 3 && strncmp(s, "sat", 3) == 0)
            *how |= SAT;
        else if (n == 3 && strncmp(s, "ftz", 3) == 0)
            *how |= FTZ;
        else
            return false;
        s += n;
    }
    return *from >= 0;
}

/* Forms whose rounding `general` does: nearest where it rounds, or to an integer. */
static bool meant(int how, const struct type *to, const struct type *from)
{
    const int r = how & 255;
    const bool tf = to->kind >= FLOAT, ff = from->kind >= FLOAT;
    if (!tf && !ff)
        return !r && !(how & SAT);
    if (tf && !ff)
        return r == RN && to->bytes >= 4 && !(how & SAT);
    if (!tf)
        return r >= RNI;
    if (from->bytes > to->bytes || (from->bytes == to->bytes && from->kind != to->kind))
        return r == RN && from->bytes == 4 + 4 * (to->bytes == 4);
    return r == NONE || r >= RNI;
}

bool lf_ptx_decode_cvt(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    int how, to, from;
    uint8_t out, in;
    if (strncmp(op, "cvt.", 4) != 0)
        return false;
    i->passes_on = true;
    if (lf_ptx_decode_row(p, op, i, packed, sizeof packed / sizeof *packed))
        return true;
    if (!parts(op, &how, &to, &from) || !meant(how, &types[to], &types[from]) ||
        lf_ptx_operands(p) != 2)
        return false;
    lf_ptx_new_operands(i, 1, 2);
    i->o[0] = lf_ptx_slot_wide(p, 0, types[to].bytes, &out);
    i->o[1] = lf_ptx_slot_wide(p, 1, types[from].bytes, &in);
    i->size = (uint8_t)to;
    i->space = (uint8_t)from;
    i->reg = out;
    i->vec = in;
    i->imm = how;
    i->fn = general;
    for (size_t k = 0; k < sizeof fast / sizeof *fast; k++)
        if (strcmp(fast[k].op, op) == 0 && fast[k].to == out && fast[k].from == in)
            i->fn = fast[k].fn;
    return true;
}
