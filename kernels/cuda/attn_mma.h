/* SPDX-License-Identifier: Apache-2.0
 *
 * The pieces of attention for 16-bit types on tensor cores. A warp owns 16 query rows. With g =
 * lane / 4 and t = lane % 4, a lane holds rows g and g + 8 and columns 2t and 2t + 1 of every 16 x
 * 8 result.
 *
 * Tiles of rows lie in shared memory as [rows][dp]. dp is 64, 128 or 256 channels; heads of other
 * sizes are padded with zeros. Chunk c (16 bytes) of row r lies at place c ^ (r % 8). So the eight
 * rows that ldmatrix reads together lie in different banks.
 */
#ifndef LF_KERNELS_CUDA_ATTN_MMA_H
#define LF_KERNELS_CUDA_ATTN_MMA_H

#include "kernels/cuda/attn_dev.h"

/* The place of a chunk of 8 channels of a row in a tile. */
LF_DEV int attn_chunk(int row, int chunk, int dp)
{
    return row * dp + ((chunk ^ (row & 7)) << 3);
}

/* The same in a tile of boxes, which the tensor cores of compute capability 9.0 read (attn_wg.h):
 * 64 channels of all `box` rows, then the next 64. box 0: rows of dp channels. Either way eight
 * rows of a chunk lie in different banks. */
LF_DEV int attn_place(int row, int chunk, const int dp, const int box)
{
    return box ? (chunk / 8 * box + row) * 64 + (((chunk & 7) ^ (row & 7)) << 3)
               : attn_chunk(row, chunk, dp);
}

/* Copies rows 0 ... n - 1 of src (ld apart, d channels) into a tile of `rows` rows. The rest of the
 * tile becomes 0. vec: src, ld and d allow 16-byte copies, which have landed after lf_cp_wait. The
 * caller is thread `tid` of `threads`. box: as in attn_place. */
LF_DEV void attn_fill_in(uint16_t *tile, const uint16_t *src, int64_t ld, int n, int d, bool vec,
                         const int rows, const int dp, const int box, int tid, const int threads)
{
    if (vec) {
        LF_UNROLL for (int i = 0; i < rows * dp / 8 / threads; i++)
        {
            const int at = i * threads + tid, r = at / (dp / 8), c = at % (dp / 8);
            const bool ok = r < n && 8 * c < d;
            lf_cp_async16(tile + attn_place(r, c, dp, box), ok ? src + r * ld + 8 * c : src, ok);
        }
        return;
    }
    LF_ROLLED for (int i = 2 * tid; i < rows * dp; i += 2 * threads)
    {
        const int r = i / dp, c = i % dp;
        uint16_t *dst = tile + attn_place(r, c / 8, dp, box) + c % 8;
        dst[0] = r < n && c < d ? src[r * ld + c] : 0;
        dst[1] = r < n && c + 1 < d ? src[r * ld + c + 1] : 0;
    }
}
LF_DEV void attn_fill(uint16_t *tile, const uint16_t *src, int64_t ld, int n, int d, bool vec,
                      const int rows, const int dp, int tid, const int threads)
{
    attn_fill_in(tile, src, ld, n, d, vec, rows, dp, 0, tid, threads);
}

/* Whether one of two elements is infinite or NaN. */
LF_DEV bool attn_broken(uint32_t two, int type)
{
    const uint32_t e = type == LF_BF16 ? 0x7f80 : 0x7c00;
    return (two & e) == e || (two >> 16 & e) == e;
}

/* Whether this thread's part of a tile has such elements. Call it after a barrier. */
LF_DEV bool attn_tile_broken(const uint16_t *tile, int type, const int rows, const int dp, int tid,
                             const int threads)
{
    bool any = false;
    LF_UNROLL for (int i = 0; i < rows * dp / 8 / threads; i++)
    {
        const struct lf_u4 u = ((const struct lf_u4 *)tile)[i * threads + tid];
        LF_UNROLL for (int k = 0; k < 4; k++) any = any || attn_broken(u.x[k], type);
    }
    return any;
}

/* For a tile of values with such elements in keys that not every row sees. 0 (the probability of a
 * key that is not seen) times NaN would reach every row. So these elements become 0, and mask[c]
 * notes their keys in channel c, for attn_poison. */
LF_DEV void attn_mend_in(uint16_t *tile, uint64_t *mask, int type, const int dp, const int box,
                         int tid, const int threads)
{
    LF_ROLLED for (int c = tid; c < dp; c += threads)
    {
        uint64_t m = 0;
        LF_ROLLED for (int r = 0; r < ATTN_T; r++)
        {
            uint16_t *e = tile + attn_place(r, c / 8, dp, box) + c % 8;
            if (attn_broken(*e, type)) {
                *e = 0;
                m |= (uint64_t)1 << r;
            }
        }
        mask[c] = m;
    }
}
LF_DEV void attn_mend(uint16_t *tile, uint64_t *mask, int type, const int dp, int tid,
                      const int threads)
{
    attn_mend_in(tile, mask, type, dp, 0, tid, threads);
}

LF_DEV void attn_mma(float d[4], const uint32_t a[4], const uint32_t b[2], const int type)
{
    if (type == LF_BF16)
        lf_mma_bf16(d, a, b);
    else
        lf_mma_f16(d, a, b);
}
LF_DEV uint32_t attn_pack(float lo, float hi, const int type)
{
    return type == LF_BF16 ? lf_pack_bf16(lo, hi) : lf_pack_f16(lo, hi);
}

/* Left operand: rows row0 ... row0 + 15 of a tile, channels 16 k ... 16 k + 15. */
LF_DEV void attn_left(uint32_t a[4], const uint16_t *tile, int row0, int k, int lane, const int dp)
{
    lf_ldmatrix4(a, tile + attn_chunk(row0 + (lane & 15), 2 * k + (lane >> 4), dp));
}
/* Right operands of a product with the transposed tile. Rows row0 ... row0 + 15 are the columns of
 * the result (b[0], b[1] the first eight, b[2], b[3] the others). The sum runs over channels 16 k
 * ... 16 k + 15. */
LF_DEV void attn_right_t(uint32_t b[4], const uint16_t *tile, int row0, int k, int lane,
                         const int dp)
{
    lf_ldmatrix4(
        b, tile + attn_chunk(row0 + (lane & 7) + (lane >> 4 << 3), 2 * k + (lane >> 3 & 1), dp));
}
/* Right operands of a product with the tile. The sum runs over rows 16 k ... 16 k + 15. Channels 8
 * c ... 8 c + 15 are the columns of the result. */
LF_DEV void attn_right(uint32_t b[4], const uint16_t *tile, int k, int c, int lane, const int dp)
{
    lf_ldmatrix4_trans(b, tile + attn_chunk(16 * k + (lane & 15), c + (lane >> 4), dp));
}

/* s[16 x 16 n] = rows times the rows of the tile from col0 on, transposed. The left operands are
 * a[k] or, where a is NULL, rows of a_tile from row0 on. */
LF_DEV void attn_scores_of(float s[8][4], const uint32_t (*a)[4], const uint16_t *a_tile, int row0,
                           const uint16_t *tile, int col0, const int n, int lane, const int dp,
                           const int type)
{
    LF_UNROLL for (int j = 0; j < 2 * n; j++)
    {
        LF_UNROLL for (int e = 0; e < 4; e++) s[j][e] = 0.0f;
    }
    LF_UNROLL for (int k = 0; k < dp / 16; k++)
    {
        uint32_t mine[4];
        if (a) {
            LF_UNROLL for (int e = 0; e < 4; e++) mine[e] = a[k][e];
        } else {
            attn_left(mine, a_tile, row0, k, lane, dp);
        }
        LF_UNROLL for (int j = 0; j < n; j++)
        {
            uint32_t b[4];
            attn_right_t(b, tile, col0 + 16 * j, k, lane, dp);
            attn_mma(s[2 * j], mine, b, type);
            attn_mma(s[2 * j + 1], mine, b + 2, type);
        }
    }
}
/* The scores of all 64 columns. */
LF_DEV void attn_scores(float s[8][4], const uint32_t (*a)[4], const uint16_t *a_tile, int row0,
                        const uint16_t *tile, int lane, const int dp, const int type)
{
    attn_scores_of(s, a, a_tile, row0, tile, 0, 4, lane, dp, type);
}

/* Results as left operands of the next product. p[k], k < n, covers columns 16 k ... 16 k + 15. */
LF_DEV void attn_as_left(uint32_t p[4][4], float s[8][4], const int n, const int type)
{
    LF_UNROLL for (int k = 0; k < n; k++)
    {
        p[k][0] = attn_pack(s[2 * k][0], s[2 * k][1], type);
        p[k][1] = attn_pack(s[2 * k][2], s[2 * k][3], type);
        p[k][2] = attn_pack(s[2 * k + 1][0], s[2 * k + 1][1], type);
        p[k][3] = attn_pack(s[2 * k + 1][2], s[2 * k + 1][3], type);
    }
}

/* Bends and masks the scores of keys key0 ... key0 + 63. */
LF_DEV void attn_mask(float s[8][4], const struct attn_row r[2], const struct attn_call *c,
                      int key0, bool whole, int lane)
{
    float cap;
    LF_UNROLL for (int j = 0; j < 8; j++)
    {
        LF_UNROLL for (int e = 0; e < 4; e++)
        {
            const int key = key0 + 8 * j + 2 * (lane & 3) + (e & 1);
            const struct attn_row *row = &r[e >> 1];
            if (c->bent)
                s[j][e] = attn_bend(c, s[j][e], row->slope, row->pos - key, &cap);
            if (!whole && (key < row->lo || key >= row->hi))
                s[j][e] = -INFINITY;
        }
    }
}

/* The elements of this lane's part of a tile that dropout keeps. Bit 4 j + e stands for s[j][e]. It
 * is computed before the scores, when registers are free. */
LF_DEV uint32_t attn_draw_bits(const struct attn_row r[2], const struct attn_draws *d, int key0,
                               int lane)
{
    uint32_t bits = 0;
    LF_ROLLED for (int i = 0; i < 16; i++)
    {
        uint32_t w[4];
        lf_philox(w, d->seed, d->site, i & 1 ? r[1].draw : r[0].draw,
                  d->b + (uint32_t)((key0 + 8 * (i >> 1) + (lane & 2) * 2) / 4));
        const uint32_t kept = (uint32_t)(lf_u01(lane & 1 ? w[2] : w[0]) >= d->p) |
                              (uint32_t)(lf_u01(lane & 1 ? w[3] : w[1]) >= d->p) << 1;
        bits |= kept << (4 * (i >> 1) + 2 * (i & 1));
    }
    return bits;
}
LF_DEV void attn_drop_scores(float s[8][4], const struct attn_draws *d, uint32_t bits)
{
    LF_UNROLL for (int i = 0; i < 32; i++) s[i / 4][i % 4] *= bits >> i & 1 ? d->keep : 0.0f;
}

/* Turns scores into the probabilities of the tile alone. Combines maximum and sum with the rows.
 * was and now become the weights of the result so far and of this tile. */
LF_DEV void attn_softmax(float s[8][4], struct attn_row r[2], const struct attn_call *c,
                         float was[2], float now[2])
{
    LF_UNROLL for (int h = 0; h < 2; h++)
    {
        float m = -INFINITY, sum = 0.0f;
        LF_UNROLL for (int j = 0; j < 8; j++) m = fmaxf(m, fmaxf(s[j][2 * h], s[j][2 * h + 1]));
        m = fmaxf(m, lf_shfl_xor(m, 1));
        m = fmaxf(m, lf_shfl_xor(m, 2)) * c->sl;
        const float base = m == -INFINITY ? 0.0f : m;
        LF_UNROLL for (int j = 0; j < 8; j++)
        {
            LF_UNROLL for (int e = 2 * h; e < 2 * h + 2; e++)
            {
                s[j][e] = lf_exp2(fmaf(s[j][e], c->sl, -base));
                sum += s[j][e];
            }
        }
        sum += lf_shfl_xor(sum, 1);
        sum += lf_shfl_xor(sum, 2);
        attn_combine(&r[h], m, sum, &was[h], &now[h]);
    }
}

/* o = o * was, where the maximum of some row moved. Elsewhere was is exactly 1. */
LF_DEV void attn_rescale(float (*o)[4], const float was[2], const int dp)
{
    if (!lf_ballot(was[0] != 1.0f || was[1] != 1.0f))
        return;
    LF_UNROLL for (int n = 0; n < dp / 8; n++)
    {
        LF_UNROLL for (int e = 0; e < 4; e++) o[n][e] *= was[e >> 1];
    }
}

/* x = p v for channels 8 n ... 8 n + 31 of a tile of values. */
LF_DEV void attn_product(float x[4][4], uint32_t p[4][4], const uint16_t *tile, int n, int lane,
                         const int dp, const int type)
{
    LF_UNROLL for (int e = 0; e < 16; e++) x[e / 4][e % 4] = 0.0f;
    LF_UNROLL for (int k = 0; k < 4; k++)
    {
        LF_UNROLL for (int h = 0; h < 4; h += 2)
        {
            uint32_t b[4];
            attn_right(b, tile, k, n + h, lane, dp);
            attn_mma(x[h], p[k], b, type);
            attn_mma(x[h + 1], p[k], b + 2, type);
        }
    }
}

/* o += now * (p v) for a tile of values. */
LF_DEV void attn_values(float (*o)[4], uint32_t p[4][4], const uint16_t *tile, const float now[2],
                        int lane, const int dp, const int type)
{
    LF_UNROLL for (int n = 0; n < dp / 8; n += 4)
    {
        float x[4][4];
        attn_product(x, p, tile, n, lane, dp, type);
        LF_UNROLL for (int e = 0; e < 16; e++) o[n + e / 4][e % 4] =
            fmaf(x[e / 4][e % 4], now[e % 4 >> 1], o[n + e / 4][e % 4]);
    }
}

/* The keys of a tile that each of the two rows sees, one bit per key. */
LF_DEV void attn_sees(uint64_t sees[2], const struct attn_row r[2], int key0)
{
    LF_UNROLL for (int h = 0; h < 2; h++)
    {
        const int lo = r[h].lo > key0 ? r[h].lo - key0 : 0, hi = r[h].hi - key0;
        sees[h] =
            hi <= lo || lo >= ATTN_T
                ? 0
                : ~(uint64_t)0 << lo & (hi >= ATTN_T ? ~(uint64_t)0 : ((uint64_t)1 << hi) - 1);
    }
}

/* Makes NaN of the rows that see an element that attn_mend took out. */
LF_DEV void attn_poison(float (*o)[4], const struct attn_row r[2], int key0, const uint64_t *mask,
                        int lane, const int dp)
{
    uint64_t sees[2];
    attn_sees(sees, r, key0);
    LF_UNROLL for (int n = 0; n < dp / 8; n++)
    {
        LF_UNROLL for (int e = 0; e < 4; e++)
        {
            if (mask[8 * n + 2 * (lane & 3) + (e & 1)] & sees[e >> 1])
                o[n][e] = lf_u32_f(0x7fffffffu);
        }
    }
}

/* A warp's step over one tile: keys key0 ... key0 + 63 of a document. whole: all 16 rows see all of
 * the keys. draws NULL: no dropout. mended: the mask of attn_mend, or NULL. */
LF_DEV void attn_step(float (*o)[4], struct attn_row r[2], const uint32_t (*q)[4],
                      const uint16_t *q_tile, int row0, const uint16_t *ks, const uint16_t *vs,
                      const struct attn_call *c, const struct attn_draws *draws, int key0,
                      bool whole, const uint64_t *mended, int lane, const int dp, const int type)
{
    float s[8][4], was[2], now[2];
    uint32_t p[4][4], bits = 0;
    if (draws)
        bits = attn_draw_bits(r, draws, key0, lane);
    attn_scores(s, q, q_tile, row0, ks, lane, dp, type);
    if (!whole || c->bent)
        attn_mask(s, r, c, key0, whole, lane);
    attn_softmax(s, r, c, was, now);
    if (draws)
        attn_drop_scores(s, draws, bits);
    attn_as_left(p, s, 4, type);
    attn_rescale(o, was, dp);
    attn_values(o, p, vs, now, lane, dp, type);
    if (mended)
        attn_poison(o, r, key0, mended, lane, dp);
}

/* Writes this lane's part of one row, divided by the row's sum, to dst (a row of d channels). */
LF_DEV void attn_put(uint16_t *dst, float (*o)[4], int half, float scale, int d, int lane,
                     const int dp, const int type)
{
    const bool pairs = (uintptr_t)dst % 4 == 0;
    LF_UNROLL for (int n = 0; n < dp / 8; n++)
    {
        const int c = 8 * n + 2 * (lane & 3);
        const uint32_t two = attn_pack(o[n][2 * half] * scale, o[n][2 * half + 1] * scale, type);
        if (c >= d)
            continue;
        if (pairs && c + 1 < d) {
            *(uint32_t *)(dst + c) = two;
        } else {
            dst[c] = (uint16_t)two;
            if (c + 1 < d)
                dst[c + 1] = (uint16_t)(two >> 16);
        }
    }
}

#endif
