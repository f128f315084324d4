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

/* What a lane gives to a product, and behind it in the same slot what it gets. */
struct fragments {
    uint32_t a[4], b[2];
    uint32_t made; /* are the sums there? */
};
enum { SLOT = 64, SUMS = 32 };
_Static_assert(sizeof(struct fragments) <= SUMS && SUMS + 4 * sizeof(float) <= SLOT, "a slot");

static float half_of(uint32_t two, unsigned k, bool bf16)
{
    const uint16_t h = (uint16_t)(k ? two >> 16 : two);
    return bf16 ? lf_bf16_f(h) : lf_f16_f(h);
}

/* The sums of all lanes, by the first one that comes: as many lanes hold each row and each column
 * as would convert it otherwise. Each sum begins with 0 and takes its 16 products in their
 * order. */
static void multiply(unsigned char *all, bool bf16)
{
    float row[16][16], col[16][8], sum[16][8]; /* [row][k], [k][column] */
    memset(sum, 0, sizeof sum);
    for (unsigned l = 0; l < 32; l++) {
        struct fragments f;
        memcpy(&f, all + SLOT * l, sizeof f);
        for (unsigned e = 0; e < 4; e++) {
            const unsigned k = l % 4 * 2 + e % 2 + e / 2 * 8;
            row[l / 4][k] = half_of(f.a[e / 2 * 2], e % 2, bf16);
            row[l / 4 + 8][k] = half_of(f.a[e / 2 * 2 + 1], e % 2, bf16);
            col[k][l / 4] = half_of(f.b[e / 2], e % 2, bf16);
        }
    }
    for (unsigned i = 0; i < 16; i++)
        for (unsigned k = 0; k < 16; k++)
            for (unsigned j = 0; j < 8; j++)
                sum[i][j] += row[i][k] * col[k][j];
    for (unsigned l = 0; l < 32; l++) {
        const float *up = &sum[l / 4][l % 4 * 2], *down = &sum[l / 4 + 8][l % 4 * 2];
        const float d[4] = {up[0], up[1], down[0], down[1]};
        const uint32_t made = 1;
        memcpy(all + SLOT * l + offsetof(struct fragments, made), &made, sizeof made);
        memcpy(all + SLOT * l + SUMS, d, sizeof d);
    }
}

static void mma(float d[4], const uint32_t a[4], const uint32_t b[2], bool bf16)
{
    struct fragments mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}, 0};
    unsigned char *all = lf_emu_exchange(&mine, sizeof mine), *slot = all + SLOT * lf_emu.lane;
    float sum[4];
    memcpy(&mine, slot, sizeof mine);
    if (!mine.made)
        multiply(all, bf16);
    memcpy(sum, slot + SUMS, sizeof sum);
    for (unsigned i = 0; i < 4; i++)
        d[i] += sum[i];
}

void lf_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma(d, a, b, true);
}
void lf_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    mma(d, a, b, false);
}
