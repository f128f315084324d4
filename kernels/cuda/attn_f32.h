/* SPDX-License-Identifier: Apache-2.0
 *
 * The pieces of attention in f32. A block of 256 threads takes 64 query rows. Thread (ty, tx) =
 * (tid / 16, tid % 16) holds:
 *   scores    rows 4 ty ... 4 ty + 3, keys tx + 16 j of a tile
 *   outputs   the same rows, channels 64 j + 4 tx ... 64 j + 4 tx + 3
 * dp is the number of channels of keys or of values, whichever are more, rounded up to a multiple
 * of 64 (attn_f32_padded).
 */
#ifndef LF_KERNELS_CUDA_ATTN_F32_H
#define LF_KERNELS_CUDA_ATTN_F32_H

#include "kernels/cuda/attn_dev.h"

enum { ATTN_F32_THREADS = 256, ATTN_F32_ROWS = 64, ATTN_F32_P = ATTN_T + 4 };

LF_DEV int attn_f32_padded(int d, int d_value)
{
    return ((d > d_value ? d : d_value) + 63) / 64 * 64;
}

/* Shared memory in floats: queries [64][dp + 4], one tile of keys or values [64][dp + 4],
 * probabilities [64][68]. The four extra floats put the rows into different banks. */
struct attn_f32_space {
    float *q, *kv, *p;
    int ld;
};
LF_DEV struct attn_f32_space attn_f32_space_of(float *smem, int dp)
{
    struct attn_f32_space s;
    s.ld = dp + 4;
    s.q = smem;
    s.kv = s.q + ATTN_F32_ROWS * s.ld;
    s.p = s.kv + ATTN_T * s.ld;
    return s;
}

/* Copies rows 0 ... n - 1 of src to dst [rows][ldd]. Each row has dp channels in dst and d in src.
 * The rest of dst becomes 0. */
LF_DEV void attn_f32_fill(float *dst, int ldd, const float *src, int64_t ld, int n, int rows, int d,
                          int dp)
{
    const bool vec = (uintptr_t)src % 16 == 0 && ld % 4 == 0 && d % 4 == 0;
    if (vec) {
        for (int i = (int)threadIdx.x; i < rows * (dp / 4); i += (int)blockDim.x) {
            const int r = i / (dp / 4), c = i % (dp / 4) * 4;
            struct lf_u4 u = {{0, 0, 0, 0}};
            if (r < n && c < d)
                u = *(const struct lf_u4 *)(src + r * ld + c);
            *(struct lf_u4 *)(dst + r * ldd + c) = u;
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < rows * dp; i += (int)blockDim.x)
        dst[i / dp * ldd + i % dp] = i / dp < n && i % dp < d ? src[i / dp * ld + i % dp] : 0.0f;
}

LF_DEV void attn_f32_load4(float v[4], const float *p)
{
    const struct lf_u4 u = *(const struct lf_u4 *)p;
    LF_UNROLL for (int e = 0; e < 4; e++) v[e] = lf_u32_f(u.x[e]);
}

/* s[i][j] = row (r0 + i) of a . row (c0 + 16 j) of b, one chain over the channels. Rows are ld
 * apart. */
LF_DEV void attn_f32_dots(float s[4][4], const float *a, int r0, const float *b, int c0, int ld,
                          int dp)
{
    LF_UNROLL for (int e = 0; e < 16; e++) s[e / 4][e % 4] = 0.0f;
    LF_ROLLED for (int c = 0; c < dp; c += 4)
    {
        float x[4][4], y[4][4];
        LF_UNROLL for (int i = 0; i < 4; i++)
        {
            attn_f32_load4(x[i], a + (r0 + i) * ld + c);
            attn_f32_load4(y[i], b + (c0 + 16 * i) * ld + c);
        }
        LF_UNROLL for (int e = 0; e < 4; e++)
        {
            LF_UNROLL for (int i = 0; i < 16; i++) s[i / 4][i % 4] =
                fmaf(x[i / 4][e], y[i % 4][e], s[i / 4][i % 4]);
        }
    }
}

/* Bends and masks the scores, takes the softmax of the tile alone, combines it with the rows and
 * writes the probabilities to shared memory. */
LF_DEV void attn_f32_softmax(float s[4][4], struct attn_row r[4], const struct attn_call *c,
                             const struct attn_draws *draws, int key0, float *p, float was[4],
                             float now[4])
{
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    float cap;
    LF_UNROLL for (int i = 0; i < 4; i++)
    {
        float m = -INFINITY, sum = 0.0f;
        LF_UNROLL for (int j = 0; j < 4; j++)
        {
            const int key = key0 + tx + 16 * j;
            if (c->bent)
                s[i][j] = attn_bend(c, s[i][j], r[i].slope, r[i].pos - key, &cap);
            if (key < r[i].lo || key >= r[i].hi)
                s[i][j] = -INFINITY;
            m = fmaxf(m, s[i][j]);
        }
        LF_UNROLL for (int x = 8; x; x >>= 1) m = fmaxf(m, lf_shfl_xor(m, x));
        m *= c->sl;
        const float base = m == -INFINITY ? 0.0f : m;
        LF_UNROLL for (int j = 0; j < 4; j++)
        {
            s[i][j] = lf_exp2(fmaf(s[i][j], c->sl, -base));
            sum += s[i][j];
        }
        LF_UNROLL for (int x = 8; x; x >>= 1) sum += lf_shfl_xor(sum, x);
        attn_combine(&r[i], m, sum, &was[i], &now[i]);
        LF_UNROLL for (int j = 0; j < 4; j++)
        {
            const int key = key0 + tx + 16 * j;
            if (draws)
                s[i][j] *= attn_keep(draws, r[i].draw, key);
            p[(4 * ty + i) * ATTN_F32_P + tx + 16 * j] = s[i][j];
        }
    }
}

/* o[i][j] = was o + now (p v). p v is the sum of 4 rows over the tile's keys, ascending. A value
 * with probability 0 is left out, whatever it is, because a key that the row does not see may hold
 * NaN. */
LF_DEV void attn_f32_values(float o[4][16], const float *p, const float *v, int ld, int dp,
                            const float was[4], const float now[4])
{
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    LF_UNROLL for (int j = 0; j < 4; j++)
    {
        if (64 * j >= dp)
            continue;
        float x[4][4];
        LF_UNROLL for (int e = 0; e < 16; e++) x[e / 4][e % 4] = 0.0f;
        LF_ROLLED for (int k = 0; k < ATTN_T; k++)
        {
            float w[4];
            attn_f32_load4(w, v + k * ld + 64 * j + 4 * tx);
            LF_UNROLL for (int i = 0; i < 4; i++)
            {
                const float q = p[(4 * ty + i) * ATTN_F32_P + k];
                LF_UNROLL for (int e = 0; e < 4; e++) x[i][e] =
                    q != 0.0f ? fmaf(q, w[e], x[i][e]) : x[i][e];
            }
        }
        LF_UNROLL for (int e = 0; e < 16; e++) o[e / 4][4 * j + e % 4] =
            fmaf(x[e / 4][e % 4], now[e / 4], o[e / 4][4 * j + e % 4] * was[e / 4]);
    }
}

LF_DEV void attn_f32_put(float *dst, const float o[16], float scale, int d)
{
    const int tx = (int)threadIdx.x % 16;
    LF_UNROLL for (int e = 0; e < 16; e++)
    {
        const int c = e / 4 * 64 + 4 * tx + e % 4;
        if (c < d)
            dst[c] = o[e] * scale;
    }
}

#endif
