/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention's forward for 16-bit types on compute capability 9.0, keys and values of up to 128
 * channels; the numeric contract is that of attn_dev.h. Two warpgroups of a block hold 64 rows
 * each. The scores of the next tile are under way while the present ones become probabilities, so a
 * tile's keys are needed one step before its values: three stages, and one barrier a tile. Compiled
 * for sm_90a; for other GPUs this file is empty.
 */
#include "kernels/cuda/attn_fwd.h"
#include "kernels/cuda/attn_wg.h"

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)

enum { STAGES = 3, WARPS = 8, THREADS = 32 * WARPS, OWN = 16 * WARPS };

/* The keys that rows first ... last of the call see in the document; none: lo = hi. */
LF_DEV struct attn_span span_of(const struct fwd_block *b, const struct attn_doc *doc, int first,
                                int last)
{
    const int from = first - doc->begin > doc->first ? first - doc->begin : doc->first,
              to = last - doc->begin < doc->last ? last - doc->begin : doc->last;
    struct attn_span none = {0, 0, 0, 0};
    return from <= to ? attn_span_of(&b->call, doc, from, to, b->a->runs) : none;
}
LF_DEV bool meets(const struct attn_span *s, int key)
{
    return s->lo < key + ATTN_T && s->hi > key;
}

/* Starts the scores of a tile. */
LF_DEV void ask_scores(const struct fwd_block *b, float s[8][4], int row0, const uint16_t *ks,
                       const int dp, const int type)
{
    lf_wgmma_fence();
    attn_wg_scores(s, b->queries, row0, OWN, ks, dp, type);
    lf_wgmma_commit();
}

/* The tile's share of the rows, from its scores; the scores of another tile may be under way and
 * are finished afterwards. whole: the warp's rows see all of the keys. */
LF_DEV void add_tile(const struct fwd_block *b, float s[8][4], float (*o)[4], struct attn_row r[2],
                     const struct attn_draws *draws, const uint16_t *vs, int key, bool whole,
                     const uint64_t *mended, const int dp, const int type)
{
    float x[16][4], was[2], now[2];
    uint32_t p[4][4], bits = 0;
    if (draws)
        bits = attn_draw_bits(r, draws, key, b->lane);
    if (!whole || b->call.bent)
        attn_mask(s, r, &b->call, key, whole, b->lane);
    attn_softmax(s, r, &b->call, was, now);
    if (draws)
        attn_drop_scores(s, draws, bits);
    attn_as_left(p, s, 4, type);
    lf_wgmma_fence();
    attn_wg_product(x, p, vs, false, dp, type);
    lf_wgmma_commit();
    attn_rescale(o, was, dp);
    lf_wgmma_wait(0);
    LF_WGMMA_HOLD(&x[0][0], dp / 2);
    LF_UNROLL for (int i = 0; i < dp / 2; i++) o[i / 4][i % 4] =
        fmaf(x[i / 4][i % 4], now[i % 4 >> 1], o[i / 4][i % 4]);
    if (mended)
        attn_poison(o, r, key, mended, b->lane, dp);
}

/* The rows' share of one document. Every thread of the block calls it. */
LF_DEV void fwd_document(const struct fwd_block *b, const struct attn_doc doc,
                         const struct attn_draws *draws, float (*o)[4], struct attn_row r[2],
                         const int dp, const int type)
{
    const int tile = ATTN_T * dp, row = b->w0 + b->lane / 4, row0 = b->tid / LF_WG * ATTN_WG_ROWS,
              g0 = b->r0 + row0;
    const struct attn_span all = attn_span_of(&b->call, &doc, doc.first, doc.last, b->a->runs),
                           group = span_of(b, &doc, g0, g0 + ATTN_WG_ROWS - 1),
                           mine = span_of(b, &doc, b->w0, b->w0 + 15);
    const bool full =
        b->w0 - doc.begin >= doc.first && b->w0 + 15 - doc.begin <= doc.last; /* all 16 rows */
    const int t0 = all.lo / ATTN_T, t1 = (all.hi + ATTN_T - 1) / ATTN_T;
    float s[8][4], next[8][4];
    attn_row_enter(&r[0], &b->call, &doc, row, b->a->runs, &b->a->drop);
    attn_row_enter(&r[1], &b->call, &doc, row + 8, b->a->runs, &b->a->drop);
    if (t0 >= t1)
        return;
    __syncthreads(); /* the stages are free */
    fwd_fetch(b, &doc, b->stage, t0, dp, ATTN_T, THREADS);
    lf_cp_commit();
    if (t0 + 1 < t1)
        fwd_fetch(b, &doc, b->stage + 2 * tile, t0 + 1, dp, ATTN_T, THREADS);
    lf_cp_commit();
    lf_cp_wait(1);
    lf_proxy_fence();
    if (b->tid == 0)
        b->broken[0] = b->broken[1] = 0;
    __syncthreads();
    LF_UNROLL for (int i = 0; i < 32; i++) s[i / 4][i % 4] = next[i / 4][i % 4] = 0.0f;
    if (meets(&group, t0 * ATTN_T)) {
        LF_WGMMA_HOLD(&s[0][0], 32);
        ask_scores(b, s, row0, b->stage, dp, type);
        lf_wgmma_wait(0);
        LF_WGMMA_HOLD(&s[0][0], 32);
    }
    LF_ROLLED for (int t = t0; t < t1; t++)
    {
        const int key = t * ATTN_T, at = (t - t0) % STAGES;
        const bool edge = b->r0 < doc.begin || b->r1 > doc.begin + doc.len || all.all_lo > key ||
                          all.all_hi < key + ATTN_T;
        uint16_t *vs = b->stage + at * 2 * tile + tile;
        lf_cp_wait(0);
        lf_proxy_fence();
        __syncthreads(); /* tile t + 1 has landed, and nobody reads tile t - 1 any more */
        if (t + 2 < t1)
            fwd_fetch(b, &doc, b->stage + (at + 2) % STAGES * 2 * tile, t + 2, dp, ATTN_T, THREADS);
        lf_cp_commit();
        if (b->tid == 0)
            b->broken[(t - t0 + 1) & 1] = 0;
        const bool bad =
            edge && fwd_mend(b, vs, &b->broken[(t - t0) & 1], dp, ATTN_T, THREADS, type);
        if (bad) {
            lf_proxy_fence();
            __syncthreads();
        }
        if (t + 1 < t1 && meets(&group, key + ATTN_T)) {
            LF_WGMMA_HOLD(&next[0][0], 32);
            ask_scores(b, next, row0, b->stage + (at + 1) % STAGES * 2 * tile, dp, type);
        }
        if (meets(&group, key))
            add_tile(b, s, o, r, draws, vs, key,
                     full && mine.all_lo <= key && mine.all_hi >= key + ATTN_T,
                     bad ? b->mended : NULL, dp, type);
        lf_wgmma_wait(0);
        LF_WGMMA_HOLD(&next[0][0], 32);
        LF_UNROLL for (int i = 0; i < 32; i++) s[i / 4][i % 4] = next[i / 4][i % 4];
    }
}

LF_DEV void fwd_body(const struct lf_k_attn_fwd *a, unsigned char *smem, const int dp,
                     const int type)
{
    const struct fwd_block b =
        fwd_block_of(a, attn_wg_aligned(smem), dp, WARPS, STAGES, false, type);
    const int d = (int)a->d, h = (int)blockIdx.y, rows = (int)a->rows;
    float o[16][4];
    struct attn_row r[2];
    struct attn_doc doc;
    const struct attn_draws draws = attn_draws_of(&a->drop, h);
    attn_fill_in(b.queries, (const uint16_t *)a->q + (int64_t)b.r0 * a->ldq + h * d, a->ldq,
                 rows - b.r0, d, b.vec, OWN, dp, OWN, b.tid, THREADS);
    lf_cp_commit(); /* landed with the first tile */
    fwd_clear(&b, o, r, dp);
    for (int i = attn_find(a->cu_seqlens, (int)a->n_docs, b.r0);
         i < a->n_docs && a->cu_seqlens[i] < b.r1; i++)
        if (attn_doc_of(&doc, a->cu_seqlens, a->prefix, i, b.r0, b.r1, rows))
            fwd_document(&b, doc, a->drop.p > 0.0f ? &draws : NULL, o, r, dp, type);
    lf_cp_wait(0);
    fwd_put(&b, o, r, dp, type);
}

#define FWD(name, dp, type)                                                                        \
    LF_KERNEL_PER_SM(name, struct lf_k_attn_fwd, THREADS, 1)                                       \
    {                                                                                              \
        LF_SHARED(unsigned char, smem);                                                            \
        fwd_body(a, smem, dp, type);                                                               \
    }
FWD(attn_fwd_wg_bf16_64, 64, LF_BF16)
FWD(attn_fwd_wg_f16_64, 64, LF_F16)
FWD(attn_fwd_wg_bf16_128, 128, LF_BF16)
FWD(attn_fwd_wg_f16_128, 128, LF_F16)

#endif
