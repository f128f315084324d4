/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over packed documents, forward, for 16-bit types. A block takes 16 rows a warp of one
 * head, wherever documents begin, and walks the documents that these rows lie in; in each, the
 * tiles of keys that some row sees, the next one on its way (cp.async) while the present one is
 * worked on. Later rows of a document see more keys, so blocks run from the last rows to the first.
 */
#include "kernels/cuda/attn_fwd.h"

/* The rows' share of one document. */
LF_DEV void fwd_document(const struct fwd_block *b, const struct attn_doc doc,
                         const struct attn_draws *draws, float (*o)[4], struct attn_row r[2],
                         const uint32_t (*q)[4], const int dp, const int threads, const int type)
{
    const int tile = ATTN_T * dp, row = b->w0 + b->lane / 4;
    const struct attn_span all = attn_span_of(&b->call, &doc, doc.first, doc.last, b->a->runs);
    const int from = b->w0 - doc.begin > doc.first ? b->w0 - doc.begin : doc.first,
              to = b->w0 + 15 - doc.begin < doc.last ? b->w0 + 15 - doc.begin : doc.last;
    struct attn_span mine = {0, 0, 0, 0};
    if (from <= to)
        mine = attn_span_of(&b->call, &doc, from, to, b->a->runs);
    const bool full = to - from == 15;
    attn_row_enter(&r[0], &b->call, &doc, row, b->a->runs, &b->a->drop);
    attn_row_enter(&r[1], &b->call, &doc, row + 8, b->a->runs, &b->a->drop);
    const int t0 = all.lo / ATTN_T, t1 = (all.hi + ATTN_T - 1) / ATTN_T;
    for (int t = t0 - 1; t < t1; t++) {
        const int at = (t - t0) & 1, key = t * ATTN_T;
        if (t + 1 < t1)
            fwd_fetch(b, &doc, b->stage + (at ^ 1) * 2 * tile, t + 1, dp, 0, threads);
        lf_cp_commit();
        if (t < t0)
            continue;
        lf_cp_wait(1);
        uint16_t *ks = b->stage + at * 2 * tile, *vs = ks + tile;
        const bool edge = b->r0 < doc.begin || b->r1 > doc.begin + doc.len || all.all_lo > key ||
                          all.all_hi < key + ATTN_T;
        __syncthreads();
        const bool bad = edge && fwd_mend(b, vs, b->broken, dp, 0, threads, type);
        if (mine.lo < key + ATTN_T && mine.hi > key)
            attn_step(o, r, q, b->queries, b->w0 - b->r0, ks, vs, &b->call, draws, key,
                      full && mine.all_lo <= key && mine.all_hi >= key + ATTN_T,
                      bad ? b->mended : NULL, b->lane, dp, type);
        __syncthreads();
        if (b->tid == 0)
            *b->broken = 0;
    }
}

LF_DEV void fwd_body(const struct lf_k_attn_fwd *a, const int dp, const int warps,
                     const bool q_in_registers, const int type)
{
    LF_SHARED(uint16_t, smem);
    struct fwd_block b = fwd_block_of(a, smem, dp, warps, 2, q_in_registers, type);
    const int threads = 32 * warps, d = (int)a->d, h = (int)blockIdx.y, rows = (int)a->rows;
    uint32_t q[8][4];
    float o[32][4];
    struct attn_row r[2];
    struct attn_doc doc;
    const struct attn_draws draws = attn_draws_of(&a->drop, h);

    attn_fill(smem, (const uint16_t *)a->q + (int64_t)b.r0 * a->ldq + h * d, a->ldq, rows - b.r0, d,
              b.vec, 16 * warps, dp, b.tid, threads);
    lf_cp_commit();
    if (b.tid == 0)
        *b.broken = 0;
    lf_cp_wait(0);
    __syncthreads();
    if (q_in_registers) {
        LF_UNROLL for (int i = 0; i < dp / 16; i++)
            attn_left(q[i], smem, b.w0 - b.r0, i, b.lane, dp);
        __syncthreads();
    }
    fwd_clear(&b, o, r, dp);
    for (int i = attn_find(a->cu_seqlens, (int)a->n_docs, b.r0);
         i < a->n_docs && a->cu_seqlens[i] < b.r1; i++)
        if (attn_doc_of(&doc, a->cu_seqlens, a->prefix, i, b.r0, b.r1, rows))
            fwd_document(&b, doc, a->drop.p > 0.0f ? &draws : NULL, o, r, q_in_registers ? q : NULL,
                         dp, threads, type);
    fwd_put(&b, o, r, dp, type);
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
