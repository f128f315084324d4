/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention's backward in f32 (attn_bwd.h tells the plan): tiles of 32 own and 32 other rows;
 * thread (ty, tx) = (tid / 16, tid % 16) holds own rows 2 ty, 2 ty + 1, others tx and tx + 16, and
 * channels 64 j + 4 tx ... + 3 of the gradients.
 */
#include "kernels/cuda/attn_bwd.h"
#include "kernels/cuda/attn_f32.h"

enum { BT = 32, BLD = BT + 1 };

/* x[i][j] = own row 2 ty + i . other row tx + 16 j */
LF_DEV void bwd_f32_dots(float x[2][2], const float *own, const float *other, int ld, int dp)
{
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    x[0][0] = x[0][1] = x[1][0] = x[1][1] = 0.0f;
    LF_ROLLED for (int c = 0; c < dp; c += 4)
    {
        float u[2][4], w[2][4];
        LF_UNROLL for (int i = 0; i < 2; i++)
        {
            attn_f32_load4(u[i], own + (2 * ty + i) * ld + c);
            attn_f32_load4(w[i], other + (tx + 16 * i) * ld + c);
        }
        LF_UNROLL for (int e = 0; e < 16; e++) x[e >> 1 & 1][e & 1] =
            fmaf(u[e >> 1 & 1][e >> 2], w[e & 1][e >> 2], x[e >> 1 & 1][e & 1]);
    }
}

/* acc[i] += sum over the tile's others of p[own row][other] * other row */
LF_DEV void bwd_f32_add(float acc[2][16], const float *p, const float *other, int ld, int dp)
{
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    LF_UNROLL for (int j = 0; j < 4; j++)
    {
        if (64 * j >= dp)
            continue;
        LF_ROLLED for (int k = 0; k < BT; k++)
        {
            float w[4];
            attn_f32_load4(w, other + k * ld + 64 * j + 4 * tx);
            LF_UNROLL for (int e = 0; e < 8; e++)
            {
                acc[e / 4][4 * j + e % 4] =
                    fmaf(p[(2 * ty + e / 4) * BLD + k], w[e % 4], acc[e / 4][4 * j + e % 4]);
            }
        }
    }
}

LF_DEV void bwd_f32_body(const struct lf_k_attn_bwd *a, const bool keys)
{
    LF_SHARED(float, smem);
    const int d = (int)a->d, e = (int)a->d_value, dp = attn_f32_padded(d, e), ld = dp + 4,
              rows = (int)a->rows, r0 = BT * (int)blockIdx.x, r1 = r0 + BT,
              per = (int)(a->heads / a->groups), g = keys ? (int)blockIdx.y : (int)blockIdx.y / per,
              tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    const struct attn_side mine = keys ? attn_key_side(a, g) : attn_query_side(a, (int)blockIdx.y);
    const struct attn_call call =
        attn_call_of(a->scale, a->softcap, a->window, a->causal, a->alibi != NULL);
    float *own = smem, *own_y = own + BT * ld, *other_x = own_y + BT * ld,
          *other_y = other_x + BT * ld, *p = other_y + BT * ld, *ds = p + BT * BLD, gx[2][16],
          gy[2][16];
    attn_f32_fill(own, ld, (const float *)mine.x + r0 * mine.ldx, mine.ldx, rows - r0, BT, mine.dx,
                  dp);
    attn_f32_fill(own_y, ld, (const float *)mine.y + r0 * mine.ldy, mine.ldy, rows - r0, BT,
                  mine.dy, dp);
    LF_UNROLL for (int i = 0; i < 32; i++) gx[i / 16][i % 16] = gy[i / 16][i % 16] = 0.0f;
    for (int n = attn_find(a->cu_seqlens, (int)a->n_docs, r0);
         n < a->n_docs && a->cu_seqlens[n] < r1; n++) {
        struct attn_doc doc;
        if (!attn_doc_of(&doc, a->cu_seqlens, a->prefix, n, r0, r1, rows))
            continue;
        for (int h = keys ? g * per : (int)blockIdx.y;
             h < (keys ? (g + 1) * per : (int)blockIdx.y + 1); h++) {
            const struct attn_side side = keys ? attn_query_side(a, h) : attn_key_side(a, g);
            const struct attn_draws draws = attn_draws_of(&a->drop, h);
            const float slope = a->alibi ? a->alibi[h] : 0.0f;
            struct attn_span s = attn_span_of(&call, &doc, doc.first, doc.last, a->runs);
            if (keys)
                attn_seen_by(&call, &doc, doc.first, doc.last, a->runs, &s.lo, &s.hi);
            for (int at = s.lo / BT * BT; at < s.hi; at += BT) {
                const int64_t from = doc.begin + at;
                float x[2][2], y[2][2];
                __syncthreads();
                attn_f32_fill(other_x, ld, (const float *)side.x + from * side.ldx, side.ldx,
                              doc.len - at, BT, side.dx, dp);
                attn_f32_fill(other_y, ld, (const float *)side.y + from * side.ldy, side.ldy,
                              doc.len - at, BT, side.dy, dp);
                __syncthreads();
                bwd_f32_dots(x, own, other_x, ld, dp);
                bwd_f32_dots(y, own_y, other_y, ld, dp);
                LF_UNROLL for (int n4 = 0; n4 < 4; n4++)
                {
                    const int i = n4 >> 1, j = n4 & 1, mine_at = r0 + 2 * ty + i - doc.begin,
                              o = at + tx + 16 * j, query = keys ? o : mine_at,
                              key = keys ? mine_at : o;
                    const bool visible = mine_at >= doc.first && mine_at <= doc.last &&
                                         o < doc.len &&
                                         attn_visible(&call, &doc, query, key,
                                                      attn_end(&call, &doc, query, a->runs));
                    const int64_t t = doc.begin + query;
                    float lse = 0.0f, delta = 0.0f, m = 1.0f;
                    if (visible) {
                        lse = a->lse[h * a->rows + t] * ATTN_LOG2E;
                        delta = ((const float *)a->work)[h * a->rows + t];
                        if (a->drop.p > 0.0f)
                            m = attn_keep(&draws, attn_draw_row(&a->drop, t), key);
                    }
                    attn_element(&call, &x[i][j], &y[i][j], visible, slope, query - key, lse, delta,
                                 m);
                    p[(2 * ty + i) * BLD + tx + 16 * j] = x[i][j];
                    ds[(2 * ty + i) * BLD + tx + 16 * j] = y[i][j];
                }
                __syncthreads();
                bwd_f32_add(gx, ds, other_x, ld, dp);
                if (keys)
                    bwd_f32_add(gy, p, other_y, ld, dp);
            }
        }
    }
    LF_UNROLL for (int i = 0; i < 2; i++)
    {
        const int64_t t = r0 + 2 * ty + i;
        if (t >= rows)
            continue;
        if (keys) {
            attn_f32_put((float *)a->dk + t * a->lddk + g * d, gx[i], 1.0f, d);
            attn_f32_put((float *)a->dv + t * a->lddv + g * e, gy[i], 1.0f, e);
        } else {
            attn_f32_put((float *)a->dq + t * a->lddq + (int)blockIdx.y * d, gx[i], 1.0f, d);
        }
    }
}

LF_KERNEL(attn_dq_f32, struct lf_k_attn_bwd, 256)
{
    bwd_f32_body(a, false);
}
LF_KERNEL(attn_dkv_f32, struct lf_k_attn_bwd, 256)
{
    bwd_f32_body(a, true);
}
