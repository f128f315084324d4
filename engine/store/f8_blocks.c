/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of 8-bit floats: geometry, scales, values, codes. */
#include "engine/store/f8_blocks.h"

#include <string.h>

#include "engine/base/bf16.h"
#include "engine/base/f8.h"

#define ABS_BITS 0x7fffffffu
#define INF_BITS 0x7f800000u
#define NAN_CODE 0x7fu
#define MAX_CODE 0x7eu
#define MOST_BY  0x1p+120f /* so that 1 / by is a normal number, in bf16 too */

/* ---- geometry ---- */

static int64_t parts(int64_t n, int64_t of)
{
    return n / of + (n % of != 0);
}

bool lf_f8_grid_of(struct lf_f8_grid *out, int ndim, const int64_t *shape, int64_t rows,
                   int64_t cols)
{
    if (ndim < 2 || ndim > 3)
        return false;
    struct lf_f8_grid g = {.matrices = ndim == 3 ? shape[0] : 1,
                           .height = shape[ndim - 2],
                           .width = shape[ndim - 1],
                           .rows = rows,
                           .cols = cols};
    if (g.matrices < 1 || g.height < 1 || g.width < 1)
        return false;
    g.down = parts(g.height, rows);
    g.across = parts(g.width, cols);
    *out = g;
    return true;
}

int64_t lf_f8_scales_shape(const struct lf_f8_grid *g, int ndim, int64_t *shape)
{
    if (ndim == 3)
        shape[0] = g->matrices;
    shape[ndim - 2] = g->down;
    shape[ndim - 1] = g->across;
    return g->matrices * g->down * g->across;
}

int64_t lf_f8_band(const struct lf_f8_grid *g, int64_t row, int64_t end, int64_t *block)
{
    const int64_t matrix = row / g->height, in = row % g->height, band = in / g->rows;
    int64_t last = (band + 1) * g->rows;
    last = matrix * g->height + (last < g->height ? last : g->height);
    *block = (matrix * g->down + band) * g->across;
    return last < end ? last : end;
}

/* ---- scales ---- */

bool lf_f8_is_scale(enum lf_st_dtype t)
{
    return t == LF_ST_F32 || t == LF_ST_BF16 || t == LF_ST_F8_E8M0 || t == LF_ST_U8;
}

float lf_f8_scale_of(enum lf_st_dtype t, const void *src, int64_t i)
{
    uint16_t h;
    uint32_t u;
    if (t == LF_ST_F32) {
        memcpy(&u, (const char *)src + 4 * i, 4);
        return lf_f32_of_bits(u);
    }
    if (t != LF_ST_BF16)
        return lf_f32_of_e8m0(((const uint8_t *)src)[i]);
    memcpy(&h, (const char *)src + 2 * i, 2);
    return lf_f32_of_bf16(h);
}

void lf_f8_scale_put(enum lf_st_dtype t, void *dst, int64_t i, float scale)
{
    const uint16_t h = lf_bf16_of(scale);
    if (t == LF_ST_F32)
        memcpy((char *)dst + 4 * i, &scale, 4);
    else if (t == LF_ST_BF16)
        memcpy((char *)dst + 2 * i, &h, 2);
    else
        ((uint8_t *)dst)[i] = lf_e8m0_up(scale);
}

bool lf_f8_scale_is_plain(float scale)
{
    const float x = scale < 0 ? -scale : scale;
    return x >= 0x1p-100f && x <= 0x1p+100f;
}

void lf_f8_values(uint16_t out[256], float scale)
{
    for (int k = 0; k < 256; k++) {
        const bool nan = (k & 0x7f) == NAN_CODE;
        out[k] = nan ? (uint16_t)(0x7fc0 | (k & 0x80) << 8)
                     : lf_bf16_of(lf_f32_of_e4m3((uint8_t)k) * scale);
    }
}

/* ---- out again ---- */

/* The loops below have no branches, so that compilers make vectors of them: each of both bodies is
 * compiled for what every processor has, and for AVX2. */
#define BODY static inline __attribute__((always_inline))
#if defined(__x86_64__)
#define WIDE __attribute__((target("avx2")))
static bool is_wide(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2");
}
#else
#define WIDE
static bool is_wide(void)
{
    return false;
}
#endif

/* yes where x is less than `than` as a signed number, which SSE2 can compare, else no. A mask does
 * it, as compilers would make a branch of a choice. */
BODY uint32_t less(uint32_t x, uint32_t than, uint32_t yes, uint32_t no)
{
    const uint32_t mask = -(uint32_t)((int32_t)x < (int32_t)than);
    return (yes & mask) | (no & ~mask);
}

/* The code nearest to v * by: lf_e4m3_of of a finite v, else NaN with its sign. */
BODY uint32_t code_of(float v, float by)
{
    const uint32_t u = lf_bits_of_f32(v), x = lf_bits_of_f32(v * by), a = x & ABS_BITS,
                   small = lf_bits_of_f32(lf_f32_of_bits(a) + 16384.0f) - 0x46800000u,
                   normal = ((a + 0x7ffffu + (a >> 20 & 1)) >> 20) - (120 << 3);
    uint32_t k = less(a, 0x3c800000u, small, normal);
    k = less(a, 0x43e00000u, k, less(a, INF_BITS + 1, MAX_CODE, NAN_CODE));
    return less(u & ABS_BITS, INF_BITS, k | (x >> 24 & 0x80), NAN_CODE | (u >> 24 & 0x80));
}

/* Bits of what a code is with a plain scale, as lf_f8_values says, in f32. */
BODY uint32_t value_of(uint32_t k, float scale)
{
    const uint32_t sign = (k & 0x80) << 24, m = k & 0x7f,
                   low = lf_bits_of_f32((float)(int32_t)m * 0x1p-9f),
                   one = sign | less(m, 8, low, (m + (120 << 3)) << 20),
                   x = lf_bits_of_f32(lf_f32_of_bits(one) * scale);
    return less(m, NAN_CODE, (x + 0x7fffu + (x >> 16 & 1)) & 0xffff0000u, sign | 0x7fc00000u);
}

BODY float largest_of(const float *v, int64_t n)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) { /* bits of positive numbers are in their order */
        const uint32_t u = lf_bits_of_f32(v[i]) & ABS_BITS;
        const int32_t finite = (int32_t)less(u, INF_BITS, u, 0);
        most = finite > most ? finite : most;
    }
    return lf_f32_of_bits((uint32_t)most);
}

/* Not 0: a value is no code's. */
BODY uint32_t others_of(const struct lf_f8_block *b, const float *v, int64_t n)
{
    const float by = b->by, scale = b->scale;
    uint32_t other = 0;
    for (int64_t i = 0; i < n; i++)
        other |= value_of(code_of(v[i], by), scale) ^ lf_bits_of_f32(v[i]);
    return other;
}

BODY void codes_of(uint8_t *dst, const float *v, float by, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = (uint8_t)code_of(v[i], by);
}

WIDE static float wide_largest(const float *v, int64_t n)
{
    return largest_of(v, n);
}

WIDE static uint32_t wide_others(const struct lf_f8_block *b, const float *v, int64_t n)
{
    return others_of(b, v, n);
}

WIDE static void wide_codes(uint8_t *dst, const float *v, float by, int64_t n)
{
    codes_of(dst, v, by, n);
}

static uint32_t listed_others(const struct lf_f8_block *b, const uint16_t *value,
                              const uint8_t *codes, const float *v, int64_t n)
{
    uint32_t other = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t k = codes ? codes[i] : code_of(v[i], b->by);
        other |= (uint32_t)value[k] << 16 ^ lf_bits_of_f32(v[i]);
    }
    return other;
}

void lf_f8_look(struct lf_f8_block *b, const uint16_t *value, const uint8_t *codes, const float *v,
                int64_t n)
{
    const bool wide = is_wide();
    const float most = wide ? wide_largest(v, n) : largest_of(v, n);
    b->most = most > b->most ? most : b->most;
    if (b->changed)
        return;
    b->changed = value  ? listed_others(b, value, codes, v, n) != 0
                 : wide ? wide_others(b, v, n) != 0
                        : others_of(b, v, n) != 0;
}

void lf_f8_settle(struct lf_f8_block *b, enum lf_st_dtype t)
{
    char stored[sizeof(float)];
    if (!b->changed)
        return;
    b->by = b->most > 0 ? LF_F8_MAX * (1 / b->most) : 1; /* rounded twice, as torch does */
    b->by = b->by < MOST_BY ? b->by : MOST_BY;
    b->scale = 1 / b->by;
    if (t == LF_ST_F32)
        return;
    lf_f8_scale_put(t, stored, 0, b->scale);
    b->scale = lf_f8_scale_of(t, stored, 0);
    b->by = 1 / b->scale;
}

void lf_f8_encode(const struct lf_f8_block *b, uint8_t *dst, const uint8_t *codes, const float *v,
                  int64_t n)
{
    if (codes && !b->changed)
        memcpy(dst, codes, (size_t)n);
    else if (is_wide())
        wide_codes(dst, v, b->by, n);
    else
        codes_of(dst, v, b->by, n);
}
