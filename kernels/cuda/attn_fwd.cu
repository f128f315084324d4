/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over packed documents, forward, for 16-bit types. A block takes 16 rows a warp of one head, wherever
 * documents begin, and walks the documents that these rows lie in; in each, the tiles of keys that some row sees, the
 * next one on its way (cp.async) while the present one is worked on. Later rows of a document see more keys, so blocks
 * run from the last rows to the first.
 */
#include "kernels/cuda/attn_mma.h"

LF_DEV void fwd_body(const struct lf_k_attn_fwd *a, const int dp, const int warps, const bool q_in_registers,
                     const int type)
{
    LF_SHARED(uint16_t, smem);
    const int threads = 32 * warps, tid = (int)threadIdx.x, lane = tid % 32, warp = tid / 32, tile = ATTN_T * dp;
    const int d = (int)a->d, h = (int)blockIdx.y, g = h / (int)(a->heads / a->groups);
    const int rows = (int)a->rows, r0 = 16 * warps * (int)(gridDim.x - 1 - blockIdx.x), r1 = r0 + 16 * warps,
              w0 = r0 + 16 * warp, row = w0 + lane / 4;
    const bool vec =
        d % 8 == 0 && lf_vec8(a->q, a->ldq, type) && lf_vec8(a->k, a->ldk, type) && lf_vec8(a->v, a->ldv, type);
    const struct attn_call call = attn_call_of(a->scale, a->softcap, a->window, a->causal, a->alibi != NULL);
    const struct attn_draws draws = attn_draws_of(&a->drop, h);
    const uint16_t *k = (const uint16_t *)a->k + g * d, *v = (const uint16_t *)a->v + g * d;
    /* shared memory: two stages of keys and values; queries before them, or at their place until they are in registers
     */
    uint16_t *stage = q_in_registers ? smem : smem + 16 * warps * dp;
    uint64_t *mended = (uint64_t *)(stage + 4 * tile);
    int *broken = (int *)(mended + dp);
    uint32_t q[8][4];
    float o[32][4];
    struct attn_row r[2];

    attn_fill(smem, (const uint16_t *)a->q + (int64_t)r0 * a->ldq + h * d, a->ldq, rows - r0, d, vec, 16 * warps, dp,
              tid, threads);
    lf_cp_commit();
    if (tid == 0)
        *broken = 0;
    lf_cp_wait(0);
    __syncthreads();
    if (q_in_registers) {
        LF_UNROLL for (int i = 0; i < dp / 16; i++) attn_left(q[i], smem, 16 * warp, i, lane, dp);
        __syncthreads();
    }
    LF_UNROLL for (int n = 0; n < dp / 8; n++)
    {
        LF_UNROLL for (int e = 0; e < 4; e++) o[n][e] = 0.0f;
    }
    attn_row_clear(&r[0]);
    attn_row_clear(&r[1]);
    r[0].slope = r[1].slope = a->alibi ? a->alibi[h] : 0.0f;

    for (int i = attn_find(a->cu_seqlens, (int)a->n_docs, r0); i < a->n_docs && a->cu_seqlens[i] < r1; i++) {
        struct attn_doc doc;
        if (!attn_doc_of(&doc, a->cu_seqlens, a->prefix, i, r0, r1, rows))
            continue;
        const struct attn_span all = attn_span_of(&call, doc.first, doc.last, doc.len, doc.prefix);
        const int from = w0 - doc.begin > doc.first ? w0 - doc.begin : doc.first,
                  to = w0 + 15 - doc.begin < doc.last ? w0 + 15 - doc.begin : doc.last;
        struct attn_span mine = {0, 0, 0, 0};
        if (from <= to)
            mine = attn_span_of(&call, from, to, doc.len, doc.prefix);
        const bool full = to - from == 15;
        attn_row_enter(&r[0], &call, &doc, row, &a->drop);
        attn_row_enter(&r[1], &call, &doc, row + 8, &a->drop);
        const int t0 = all.lo / ATTN_T, t1 = (all.hi + ATTN_T - 1) / ATTN_T;
        for (int t = t0 - 1; t < t1; t++) {
            const int at = (t - t0) & 1, key = t * ATTN_T;
            if (t + 1 < t1) {
                const int n = doc.len - key - ATTN_T;
                const int64_t first = doc.begin + key + ATTN_T;
                attn_fill(stage + (at ^ 1) * 2 * tile, k + first * a->ldk, a->ldk, n, d, vec, ATTN_T, dp, tid, threads);
                attn_fill(stage + (at ^ 1) * 2 * tile + tile, v + first * a->ldv, a->ldv, n, d, vec, ATTN_T, dp, tid,
                          threads);
            }
            lf_cp_commit();
            if (t < t0)
                continue;
            lf_cp_wait(1);
            uint16_t *ks = stage + at * 2 * tile, *vs = ks + tile;
            const bool edge =
                r0 < doc.begin || r1 > doc.begin + doc.len || all.all_lo > key || all.all_hi < key + ATTN_T;
            __syncthreads();
            bool bad = false;
            if (edge) {
                if (attn_tile_broken(vs, type, ATTN_T, dp, tid, threads))
                    *broken = 1;
                __syncthreads();
                bad = *broken;
                if (bad) {
                    attn_mend(vs, mended, type, dp, tid, threads);
                    __syncthreads();
                }
            }
            if (mine.lo < key + ATTN_T && mine.hi > key)
                attn_step(o, r, q_in_registers ? q : NULL, smem, 16 * warp, ks, vs, &call,
                          a->drop.p > 0.0f ? &draws : NULL, key,
                          full && mine.all_lo <= key && mine.all_hi >= key + ATTN_T, bad ? mended : NULL, lane, dp,
                          type);
            __syncthreads();
            if (tid == 0)
                *broken = 0;
        }
    }
    LF_UNROLL for (int i = 0; i < 2; i++)
    {
        const int t = row + 8 * i;
        if (t < rows) {
            attn_put((uint16_t *)a->o + (int64_t)t * a->ldo + h * d, o, i, attn_inverse(r[i].l), d, lane, dp, type);
            if (a->lse && lane % 4 == 0)
                a->lse[(int64_t)h * rows + t] = attn_lse(&r[i]);
        }
    }
}

LF_KERNEL(attn_fwd_bf16_64, struct lf_k_attn_fwd, 256)
{
    fwd_body(a, 64, 8, true, LF_BF16);
}
LF_KERNEL(attn_fwd_f16_64, struct lf_k_attn_fwd, 256)
{
    fwd_body(a, 64, 8, true, LF_F16);
}
LF_KERNEL(attn_fwd_bf16_128, struct lf_k_attn_fwd, 256)
{
    fwd_body(a, 128, 8, true, LF_BF16);
}
LF_KERNEL(attn_fwd_f16_128, struct lf_k_attn_fwd, 256)
{
    fwd_body(a, 128, 8, true, LF_F16);
}
LF_KERNEL(attn_fwd_bf16_256, struct lf_k_attn_fwd, 128)
{
    fwd_body(a, 256, 4, false, LF_BF16);
}
LF_KERNEL(attn_fwd_f16_256, struct lf_k_attn_fwd, 128)
{
    fwd_body(a, 256, 4, false, LF_F16);
}
