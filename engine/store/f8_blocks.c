/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of 8-bit floats: geometry, scales, values, codes. */
#include "engine/store/f8_blocks.h"

#include <string.h>

#include "engine/base/bf16.h"
#include "engine/base/f8.h"

#define ABS_BITS 0x7fffffffu
#define INF_BITS 0x7f800000u
#define NAN_CODE 0x7f
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

/* The code nearest to v * by. */
static uint8_t code_of(float v, float by)
{
    const uint32_t u = lf_bits_of_f32(v);
    return (u & ABS_BITS) >= INF_BITS ? (uint8_t)(NAN_CODE | (u >> 24 & 0x80)) : lf_e4m3_of(v * by);
}

static float largest(const float *v, int64_t n)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) { /* bits of positive numbers are in their order */
        uint32_t u = lf_bits_of_f32(v[i]) & ABS_BITS;
        u = u < INF_BITS ? u : 0;
        most = u > most ? u : most;
    }
    return lf_f32_of_bits(most);
}

void lf_f8_look(struct lf_f8_block *b, const uint16_t *value, const uint8_t *codes, const float *v,
                int64_t n)
{
    const float most = largest(v, n);
    uint32_t other = !value;
    b->most = most > b->most ? most : b->most;
    for (int64_t i = 0; i < n && value && !b->changed; i++) {
        const uint8_t k = codes ? codes[i] : code_of(v[i], b->by);
        other |= (uint32_t)value[k] << 16 ^ lf_bits_of_f32(v[i]);
    }
    b->changed = b->changed || other != 0;
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
    else
        for (int64_t i = 0; i < n; i++)
            dst[i] = code_of(v[i], b->by);
}
