/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over packed documents in f32, for comparisons rather than speed: the same walk as
 * attn_fwd.cu with fused multiply-adds.
 */
#include "kernels/cuda/attn_f32.h"

LF_KERNEL(attn_fwd_f32, struct lf_k_attn_fwd, ATTN_F32_THREADS)
{
    LF_SHARED(float, smem);
    const int d = (int)a->d, e = (int)a->d_value, dp = attn_f32_padded(d, e), h = (int)blockIdx.y,
              g = h / (int)(a->heads / a->groups);
    const int tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16, rows = (int)a->rows,
              r0 = ATTN_F32_ROWS * (int)(gridDim.x - 1 - blockIdx.x), r1 = r0 + ATTN_F32_ROWS,
              row = r0 + 4 * ty;
    const struct attn_f32_space w = attn_f32_space_of(smem, dp);
    const struct attn_call call =
        attn_call_of(a->scale, a->softcap, a->window, a->causal, a->alibi != NULL);
    const struct attn_draws draws = attn_draws_of(&a->drop, h);
    const float *k = (const float *)a->k + g * d, *v = (const float *)a->v + g * e;
    struct attn_row r[4];
    float o[4][16];
    attn_f32_fill(w.q, w.ld, (const float *)a->q + r0 * a->ldq + h * d, a->ldq, rows - r0,
                  ATTN_F32_ROWS, d, dp);
    LF_UNROLL for (int i = 0; i < 64; i++) o[i / 16][i % 16] = 0.0f;
    LF_UNROLL for (int i = 0; i < 4; i++)
    {
        attn_row_clear(&r[i]);
        r[i].slope = a->alibi ? a->alibi[h] : 0.0f;
    }
    for (int n = attn_find(a->cu_seqlens, (int)a->n_docs, r0);
         n < a->n_docs && a->cu_seqlens[n] < r1; n++) {
        struct attn_doc doc;
        if (!attn_doc_of(&doc, a->cu_seqlens, a->prefix, n, r0, r1, rows))
            continue;
        const struct attn_span all = attn_span_of(&call, &doc, doc.first, doc.last, a->runs);
        LF_UNROLL for (int i = 0; i < 4; i++)
            attn_row_enter(&r[i], &call, &doc, row + i, a->runs, &a->drop);
        for (int key = all.lo / ATTN_T * ATTN_T; key < all.hi; key += ATTN_T) {
            float s[4][4], was[4], now[4];
            const int64_t first = doc.begin + key;
            __syncthreads();
            attn_f32_fill(w.kv, w.ld, k + first * a->ldk, a->ldk, doc.len - key, ATTN_T, d, dp);
            __syncthreads();
            attn_f32_dots(s, w.q, 4 * ty, w.kv, tx, w.ld, dp);
            attn_f32_softmax(s, r, &call, a->drop.p > 0.0f ? &draws : NULL, key, w.p, was, now);
            __syncthreads();
            attn_f32_fill(w.kv, w.ld, v + first * a->ldv, a->ldv, doc.len - key, ATTN_T, e, dp);
            __syncthreads();
            attn_f32_values(o, w.p, w.kv, w.ld, dp, was, now);
        }
    }
    LF_UNROLL for (int i = 0; i < 4; i++)
    {
        if (row + i >= rows)
            continue;
        attn_f32_put((float *)a->o + (row + i) * a->ldo + h * e, o[i],
                     attn_close(&r[i], a->sinks, h), e);
        if (a->lse && tx == 0)
            a->lse[(int64_t)h * rows + row + i] = attn_lse(&r[i]);
    }
}
