/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over packed documents, forward, for 16-bit types. A block takes 16 rows a warp of one
 * head, wherever documents begin, and walks the documents that these rows lie in; in each, the
 * tiles of keys that some row sees, the next one on its way (cp.async) while the present one is
 * worked on. Later rows of a document see more keys, so blocks run from the last rows to the first.
 */
#include "kernels/cuda/attn_mma.h"

/* A block: its rows, and where their operands lie. Shared memory holds two stages of keys and
 * values; queries before them, or at their place until they are in registers. */
struct fwd_block {
    const struct lf_k_attn_fwd *a;
    struct attn_call call;
    const uint16_t *k, *v; /* of the group's head */
    uint16_t *queries, *stage;
    uint64_t *mended;
    int *broken;
    int r0, r1, w0; /* rows of the block, first row of the warp */
    int tid, lane;
    bool vec;
};

LF_DEV struct fwd_block fwd_block_of(const struct lf_k_attn_fwd *a, uint16_t *smem, const int dp,
                                     const int warps, const bool q_in_registers, const int type)
{
    struct fwd_block b;
    const int d = (int)a->d, h = (int)blockIdx.y, g = h / (int)(a->heads / a->groups);
    b.a = a;
    b.call = attn_call_of(a->scale, a->softcap, a->window, a->causal, a->alibi != NULL);
    b.k = (const uint16_t *)a->k + g * d;
    b.v = (const uint16_t *)a->v + g * d;
    b.queries = smem;
    b.stage = q_in_registers ? smem : smem + 16 * warps * dp;
    b.mended = (uint64_t *)(b.stage + 4 * ATTN_T * dp);
    b.broken = (int *)(b.mended + dp);
    b.r0 = 16 * warps * (int)(gridDim.x - 1 - blockIdx.x);
    b.r1 = b.r0 + 16 * warps;
    b.tid = (int)threadIdx.x;
    b.lane = b.tid % 32;
    b.w0 = b.r0 + 16 * (b.tid / 32);
    b.vec = d % 8 == 0 && lf_vec8(a->q, a->ldq, type) && lf_vec8(a->k, a->ldk, type) &&
            lf_vec8(a->v, a->ldv, type);
    return b;
}

/* Ask for tile t of the document. */
LF_DEV void fwd_fetch(const struct fwd_block *b, const struct attn_doc *doc, uint16_t *to, int t,
                      const int dp, const int threads)
{
    const int n = doc->len - t * ATTN_T, d = (int)b->a->d;
    const int64_t first = doc->begin + t * ATTN_T;
    attn_fill(to, b->k + first * b->a->ldk, b->a->ldk, n, d, b->vec, ATTN_T, dp, b->tid, threads);
    attn_fill(to + ATTN_T * dp, b->v + first * b->a->ldv, b->a->ldv, n, d, b->vec, ATTN_T, dp,
              b->tid, threads);
}

/* Where some row does not see all of a tile: take numbers that are not finite out of its values and
 * note them, for they would reach rows that do not see them as 0 * NaN. True: there were some. */
LF_DEV bool fwd_mend(const struct fwd_block *b, uint16_t *vs, const int dp, const int threads,
                     const int type)
{
    if (attn_tile_broken(vs, type, ATTN_T, dp, b->tid, threads))
        *b->broken = 1;
    __syncthreads();
    const bool bad = *b->broken;
    if (bad) {
        attn_mend(vs, b->mended, type, dp, b->tid, threads);
        __syncthreads();
    }
    return bad;
}

/* The rows' share of one document. */
LF_DEV void fwd_document(const struct fwd_block *b, const struct attn_doc doc,
                         const struct attn_draws *draws, float (*o)[4], struct attn_row r[2],
                         const uint32_t (*q)[4], const int dp, const int threads, const int type)
{
    const int tile = ATTN_T * dp, row = b->w0 + b->lane / 4;
    const struct attn_span all = attn_span_of(&b->call, doc.first, doc.last, doc.len, doc.prefix);
    const int from = b->w0 - doc.begin > doc.first ? b->w0 - doc.begin : doc.first,
              to = b->w0 + 15 - doc.begin < doc.last ? b->w0 + 15 - doc.begin : doc.last;
    struct attn_span mine = {0, 0, 0, 0};
    if (from <= to)
        mine = attn_span_of(&b->call, from, to, doc.len, doc.prefix);
    const bool full = to - from == 15;
    attn_row_enter(&r[0], &b->call, &doc, row, &b->a->drop);
    attn_row_enter(&r[1], &b->call, &doc, row + 8, &b->a->drop);
    const int t0 = all.lo / ATTN_T, t1 = (all.hi + ATTN_T - 1) / ATTN_T;
    for (int t = t0 - 1; t < t1; t++) {
        const int at = (t - t0) & 1, key = t * ATTN_T;
        if (t + 1 < t1)
            fwd_fetch(b, &doc, b->stage + (at ^ 1) * 2 * tile, t + 1, dp, threads);
        lf_cp_commit();
        if (t < t0)
            continue;
        lf_cp_wait(1);
        uint16_t *ks = b->stage + at * 2 * tile, *vs = ks + tile;
        const bool edge = b->r0 < doc.begin || b->r1 > doc.begin + doc.len || all.all_lo > key ||
                          all.all_hi < key + ATTN_T;
        __syncthreads();
        const bool bad = edge && fwd_mend(b, vs, dp, threads, type);
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
    struct fwd_block b = fwd_block_of(a, smem, dp, warps, q_in_registers, type);
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
    LF_UNROLL for (int n = 0; n < dp / 8; n++)
    {
        LF_UNROLL for (int e = 0; e < 4; e++) o[n][e] = 0.0f;
    }
    attn_row_clear(&r[0]);
    attn_row_clear(&r[1]);
    r[0].slope = r[1].slope = a->alibi ? a->alibi[h] : 0.0f;
    for (int i = attn_find(a->cu_seqlens, (int)a->n_docs, b.r0);
         i < a->n_docs && a->cu_seqlens[i] < b.r1; i++)
        if (attn_doc_of(&doc, a->cu_seqlens, a->prefix, i, b.r0, b.r1, rows))
            fwd_document(&b, doc, a->drop.p > 0.0f ? &draws : NULL, o, r, q_in_registers ? q : NULL,
                         dp, threads, type);
    LF_UNROLL for (int i = 0; i < 2; i++)
    {
        const int t = b.w0 + b.lane / 4 + 8 * i;
        if (t < rows) {
            attn_put((uint16_t *)a->o + (int64_t)t * a->ldo + h * d, o, i, attn_inverse(r[i].l), d,
                     b.lane, dp, type);
            if (a->lse && b.lane % 4 == 0)
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
