/* SPDX-License-Identifier: Apache-2.0
 *
 * C twins of the warp-wide instructions in dev.h, and half precision.
 */
#include "tests/cuda/emu/emu.h"

uint16_t lf_f_f16(float x)
{
    const uint32_t u = lf_f_u32(x);
    const uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    const float m = fabsf(x);
    if (x != x)
        return 0x7fff;
    if (m >= 65520.0f)
        return (uint16_t)(sign | 0x7c00);
    if (m < 0x1p-14f) /* subnormal: a multiple of 2^-24, rounded by adding */
        return (uint16_t)(sign | (uint16_t)(lf_f_u32(m + 0x1p-1f) - lf_f_u32(0x1p-1f)));
    const uint32_t a = u & 0x7fffffffu, r = a + 0xfffu + (a >> 13 & 1u);
    return (uint16_t)(sign | (r - (112u << 23)) >> 13);
}

static void ldmatrix(uint32_t r[4], const void *row, bool trans)
{
    const unsigned char *all = lf_emu_exchange(&row, sizeof row);
    const unsigned l = lf_emu.lane;
    for (unsigned i = 0; i < 4; i++) {
        uint16_t e[2];
        for (unsigned k = 0; k < 2; k++) {
            const unsigned y = trans ? 2 * (l % 4) + k : l / 4, x = trans ? l / 4 : 2 * (l % 4) + k;
            const uint16_t *p;
            memcpy(&p, all + 64 * (8 * i + y), sizeof p);
            e[k] = p[x];
        }
        r[i] = (uint32_t)e[1] << 16 | e[0];
    }
}

void lf_ldmatrix4(uint32_t r[4], const void *row)
{
    ldmatrix(r, row, false);
}
void lf_ldmatrix4_trans(uint32_t r[4], const void *row)
{
    ldmatrix(r, row, true);
}

struct fragments {
    uint32_t a[4], b[2];
};

static float half_of(uint32_t two, unsigned k, bool bf16)
{
    const uint16_t h = (uint16_t)(k ? two >> 16 : two);
    return bf16 ? lf_bf16_f(h) : lf_f16_f(h);
}

/* Rows g and g + 8 of a, from the four lanes that hold them. */
static void rows_of(float row[2][16], const unsigned char *all, unsigned g, bool bf16)
{
    for (unsigned k = 0; k < 16; k++) {
        struct fragments f;
        memcpy(&f, all + 64 * (g * 4 + k % 8 / 2), sizeof f);
        for (unsigned i = 0; i < 2; i++)
            row[i][k] = half_of(f.a[i + 2 * (k >= 8)], k % 2, bf16);
    }
}

static void column_of(float col[16], const unsigned char *all, unsigned j, bool bf16)
{
    for (unsigned k = 0; k < 16; k++) {
        struct fragments f;
        memcpy(&f, all + 64 * (j * 4 + k % 8 / 2), sizeof f);
        col[k] = half_of(f.b[k >= 8], k % 2, bf16);
    }
}

static void mma(float d[4], const uint32_t a[4], const uint32_t b[2], bool bf16)
{
    const struct fragments mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const unsigned char *all = lf_emu_exchange(&mine, sizeof mine);
    const unsigned g = lf_emu.lane / 4, t = lf_emu.lane % 4;
    float row[2][16], col[2][16];
    rows_of(row, all, g, bf16);
    column_of(col[0], all, 2 * t, bf16);
    column_of(col[1], all, 2 * t + 1, bf16);
    for (unsigned i = 0; i < 4; i++) {
        float sum = 0;
        for (unsigned k = 0; k < 16; k++)
            sum += row[i / 2][k] * col[i % 2][k];
        d[i] += sum;
    }
}

void lf_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma(d, a, b, true);
}
void lf_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma(d, a, b, false);
}
