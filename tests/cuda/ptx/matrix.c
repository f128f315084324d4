/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrices of a warp: mma.sync.m16n8k16 (PTX ISA 9.7.14.5.8, "Matrix Fragments for mma.m16n8k16
 * with floating point type") and ldmatrix (9.7.14.5.15). The manual leaves order and rounding of
 * the sums open; here they are made in f64, in ascending k, with c first, and rounded to f32 once.
 */
#include "tests/cuda/ptx/ins.h"

static double half(const struct ptx_warp *w, const struct ptx_ins *i, unsigned operand,
                   unsigned lane, unsigned k)
{
    const uint32_t two = ((ptx_w *)PTX_O(w, i, operand))[lane];
    const uint32_t h = k ? two >> 16 : two & 0xffff;
    if (i->imm) {
        const uint32_t u = h << 16;
        float f;
        memcpy(&f, &u, sizeof f);
        return f;
    }
    return lf_ptx_widen(h, 0);
}

/* With groupID = lane / 4 and t = lane % 4, element e of a lane's fragment, two in a register, the
 * lower half first:
 *   A, e of 8: row groupID, and groupID + 8 unless e < 2 or 4 <= e < 6; column 2 t + e % 2, and 8
 *   more for e >= 4 B, e of 4: row 2 t + e % 2, and 8 more for e >= 2; column groupID C and D, e of
 *   4: row groupID, and 8 more for e >= 2; column 2 t + e % 2 */
static void mma(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    double a[16][16], b[16][8], d[16][8];
    (void)m;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        const unsigned group = l / 4, t = l % 4;
        for (unsigned e = 0; e < 8; e++)
            a[group + (e < 2 || (e >= 4 && e < 6) ? 0 : 8)][2 * t + e % 2 + (e >= 4 ? 8 : 0)] =
                half(w, i, 4 + e / 2, l, e % 2);
        for (unsigned e = 0; e < 4; e++) {
            b[2 * t + e % 2 + (e >= 2 ? 8 : 0)][group] = half(w, i, 8 + e / 2, l, e % 2);
            d[group + (e >= 2 ? 8 : 0)][2 * t + e % 2] = ((ptx_f *)PTX_O(w, i, 10 + e))[l];
        }
    }
    for (unsigned r = 0; r < 16; r++)
        for (unsigned k = 0; k < 16; k++)
            for (unsigned c = 0; c < 8; c++)
                d[r][c] += a[r][k] * b[k][c];
    for (unsigned l = 0; l < PTX_LANES; l++)
        for (unsigned e = 0; e < 4; e++) {
            const float f = (float)d[l / 4 + (e >= 2 ? 8 : 0)][2 * (l % 4) + e % 2];
            ((ptx_w *)PTX_O(w, i, e))[l] = 0x7fffffffu;
            if (f == f)
                ((ptx_f *)PTX_O(w, i, e))[l] = f;
        }
}

/* Lane l gives the address of row l % 8 of matrix l / 8, 16 bytes; it receives of each matrix the
 * elements 2 (l % 4) and + 1 of row l / 4, or with .trans those of the transposed matrix. */
static void ldmatrix(struct ptx_warp *w, const struct ptx_ins *i, uint32_t m)
{
    const unsigned n = i->nd;
    uint16_t x[4][8][8];
    (void)m;
    for (unsigned l = 0; l < 8 * n; l++) {
        const uint32_t a = ((ptx_w *)PTX_O(w, i, n))[l] + (uint32_t)i->imm;
        memcpy(x[l / 8][l % 8],
               lf_ptx_at(w, (struct ptx_ins *)(uintptr_t)i, (int)l, a, 16, PTX_SHARED), 16);
    }
    for (unsigned l = 0; l < PTX_LANES; l++)
        for (unsigned k = 0; k < n; k++) {
            const unsigned r = l / 4, c = 2 * (l % 4);
            const uint32_t lo = i->sign ? x[k][c][r] : x[k][r][c],
                           hi = i->sign ? x[k][c + 1][r] : x[k][r][c + 1];
            ((ptx_w *)PTX_O(w, i, k))[l] = hi << 16 | lo;
        }
}

bool lf_ptx_decode_matrix(struct ptx_parser *p, const char *op, struct ptx_ins *i)
{
    static const struct ptx_row rows[] = {
        {"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", mma, "WWWWwwwwwwwwww"},
        {"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", mma, "WWWWwwwwwwwwww"},
        {"ldmatrix.sync.aligned.m8n8.x4.shared.b16", ldmatrix, "WWWWs"},
        {"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", ldmatrix, "WWWWs"},
        {"ldmatrix.sync.aligned.m8n8.x2.shared.b16", ldmatrix, "WWs"},
        {"ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", ldmatrix, "WWs"},
    };
    if (!lf_ptx_decode_row(p, op, i, rows, sizeof rows / sizeof *rows))
        return false;
    i->kind = PTX_CONVERGE; /* .aligned: all lanes of the warp */
    if (i->fn == ldmatrix) {
        i->sign = strstr(op, ".trans") != NULL;
    } else {
        i->imm = strstr(op, ".bf16") != NULL;
    }
    return true;
}
