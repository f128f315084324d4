/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention's backward for 16-bit types (attn_bwd.h tells the plan): a block of four warps holds 64
 * rows of its own and walks tiles of 64 others. At most 128 channels of the gradients are in
 * registers, so wide heads take two blocks; where dk and dv of 128 fill them and sm_100's ptxas
 * would spill 1,260 bytes, a tile is taken in two halves, whose elements are added in the same
 * order. (sm_90 spills 68 bytes, reloaded 13 times a tile; halves would cost 16 ldmatrix more.)
 */
#include "kernels/cuda/attn_bwd.h"
#include "kernels/cuda/attn_mma.h"

/* delta[h][t] = do . o, a warp for each. work holds delta. */
LF_KERNEL(attn_bwd_delta, struct lf_k_attn_bwd, 256)
{
    const int64_t n = lf_index() / 32, t = n / a->heads, h = n % a->heads;
    const int lane = (int)threadIdx.x % 32;
    float sum = 0.0f;
    for (int64_t c = lane; t < a->rows && c < a->d; c += 32)
        sum = fmaf(lf_load(a->d_o, t * a->lddo + h * a->d + c, a->x_type),
                   lf_load(a->o, t * a->ldo + h * a->d + c, a->x_type), sum);
    sum = lf_warp_sum(sum);
    if (t < a->rows && lane == 0)
        ((float *)a->work)[h * a->rows + t] = sum;
}

struct bwd_block {
    const struct lf_k_attn_bwd *a;
    struct attn_call call;
    struct attn_doc doc;
    int row, lane;      /* first own row of this lane, as a row of the call */
    int first, last;    /* own rows of the warp in the document, as positions; none: last < first */
    float slope, *stat; /* keys: lse and delta of the tile's queries */
    float lse[2], delta[2]; /* queries: of the own rows */
};

/* Dropout's factors of this lane's elements, a bit each; keys: every element is another query's. */
LF_DEV uint32_t bwd_bits(const struct bwd_block *b, const struct attn_draws *d, int at, bool keys)
{
    uint32_t bits = 0;
    LF_ROLLED for (int i = 0; i < 32; i++)
    {
        const int own = b->row + 8 * (i >> 1 & 1) - b->doc.begin,
                  other = at + 8 * (i >> 2) + 2 * (b->lane & 3) + (i & 1);
        const int query = keys ? other : own, key = keys ? own : other;
        if (query < 0 || query >= b->doc.len || key < 0)
            continue;
        bits |=
            (uint32_t)(attn_keep(d, attn_draw_row(&b->a->drop, b->doc.begin + query), key) > 0.0f)
            << i;
    }
    return bits;
}

/* x, y of this warp's 16 rows against others at + col0 ..., 16 n of them, to p and ds. */
LF_DEV void bwd_elements(const struct bwd_block *b, float x[8][4], float y[8][4],
                         const struct attn_draws *draws, uint32_t bits, int at, int col0,
                         const int n, bool keys)
{
    bits >>= col0 / 2;
    LF_UNROLL for (int j = 0; j < 2 * n; j++)
    {
        LF_UNROLL for (int e = 0; e < 4; e++)
        {
            const int r = e >> 1, col = col0 + 8 * j + 2 * (b->lane & 3) + (e & 1),
                      own = b->row + 8 * r - b->doc.begin, other = at + col,
                      query = keys ? other : own, key = keys ? own : other;
            const bool visible = own >= b->first && own <= b->last && other < b->doc.len &&
                                 attn_visible(&b->call, query, key, b->doc.prefix);
            const float m = !draws ? 1.0f : bits >> (4 * j + e) & 1 ? draws->keep : 0.0f;
            attn_element(&b->call, &x[j][e], &y[j][e], visible, b->slope, query - key,
                         keys ? b->stat[col] : b->lse[r],
                         keys ? b->stat[ATTN_T + col] : b->delta[r], m);
        }
    }
}

/* acc += p (left operands) times channels c0 ... + cols - 1 of rows row0 ... of a tile, 16 n of
 * them. */
LF_DEV void bwd_add(float (*acc)[4], uint32_t p[4][4], const uint16_t *tile, int row0,
                    const int n16, int c0, int lane, const int cols, const int dp, const int type)
{
    LF_UNROLL for (int k = 0; k < n16; k++)
    {
        LF_UNROLL for (int n = 0; n < cols / 8; n += 2)
        {
            uint32_t b[4];
            attn_right(b, tile, row0 / 16 + k, c0 / 8 + n, lane, dp);
            attn_mma(acc[n], p[k], b, type);
            attn_mma(acc[n + 1], p[k], b + 2, type);
        }
    }
}

/* lse in base 2 and delta of queries t ... of head h. */
LF_DEV void bwd_stat(const struct lf_k_attn_bwd *a, int h, int64_t t, bool in, float *lse,
                     float *delta)
{
    *lse = in ? a->lse[h * a->rows + t] * ATTN_LOG2E : 0.0f;
    *delta = in ? ((const float *)a->work)[h * a->rows + t] : 0.0f;
}

/* Others [lo, hi) that some of own rows first ... last (positions in the document) meet; none: lo =
 * hi. */
LF_DEV void bwd_others(const struct bwd_block *b, int first, int last, bool keys, int *lo, int *hi)
{
    *lo = *hi = 0;
    if (first > last)
        return;
    if (keys) {
        attn_seen_by(&b->call, first, last, b->doc.len, b->doc.prefix, lo, hi);
    } else {
        const struct attn_span s = attn_span_of(&b->call, first, last, b->doc.len, b->doc.prefix);
        *lo = s.lo;
        *hi = s.hi;
    }
}

/* Ask for tile t of the others of head h. */
LF_DEV void bwd_fetch(const struct bwd_block *b, const struct attn_side *other, uint16_t *to,
                      float *stat, int t, int h, bool vec, bool keys, const int dp)
{
    const int64_t from = b->doc.begin + t * ATTN_T;
    const int n = b->doc.len - t * ATTN_T, d = (int)b->a->d, tid = (int)threadIdx.x;
    attn_fill(to, (const uint16_t *)other->x + from * other->ldx, other->ldx, n, d, vec, ATTN_T, dp,
              tid, 128);
    attn_fill(to + ATTN_T * dp, (const uint16_t *)other->y + from * other->ldy, other->ldy, n, d,
              vec, ATTN_T, dp, tid, 128);
    if (keys && tid < ATTN_T)
        bwd_stat(b->a, h, from + tid, tid < n, &stat[tid], &stat[ATTN_T + tid]);
}

/* A warp's step over the tile x0 of others at ... + 63. */
LF_DEV void bwd_step(const struct bwd_block *b, float (*ds)[4], float (*dv)[4], const uint16_t *own,
                     const uint16_t *x0, const struct attn_draws *draws, int at, int c0,
                     const bool keys, const int cols, const int dp, const int type)
{
    const int row0 = 16 * ((int)threadIdx.x / 32), tile = ATTN_T * dp,
              n = keys && dp > 64 && LF_ARCH >= 1000 ? 2 : 4;
    uint32_t bits = 0;
    if (draws)
        bits = bwd_bits(b, draws, at, keys);
    LF_ROLLED for (int col0 = 0; col0 < ATTN_T; col0 += 16 * n)
    {
        float x[8][4], y[8][4];
        uint32_t p[4][4];
        attn_scores_of(x, NULL, own, row0, x0, col0, n, b->lane, dp, type);
        attn_scores_of(y, NULL, own + tile, row0, x0 + tile, col0, n, b->lane, dp, type);
        bwd_elements(b, x, y, draws, bits, at, col0, n, keys);
        if (keys) {
            attn_as_left(p, x, n, type);
            bwd_add(dv, p, x0 + tile, col0, n, c0, b->lane, cols, dp, type);
        }
        attn_as_left(p, y, n, type);
        bwd_add(ds, p, x0, col0, n, c0, b->lane, cols, dp, type);
    }
}

/* Own rows' share of head h of one document. */
LF_DEV void bwd_head(struct bwd_block *b, float (*ds)[4], float (*dv)[4], uint16_t *smem, int h,
                     int g, int c0, bool vec, const bool keys, const int cols, const int dp,
                     const int type)
{
    const struct lf_k_attn_bwd *a = b->a;
    const int stages = dp > 128 ? 1 : 2, tile = ATTN_T * dp;
    const struct attn_side other = keys ? attn_query_side(a, h) : attn_key_side(a, g);
    const struct attn_draws draws = attn_draws_of(&a->drop, h);
    uint16_t *own = smem, *stage = smem + 2 * tile;
    float *stat = (float *)(stage + stages * 2 * tile);
    int lo, hi, wlo, whi;
    bwd_others(b, b->doc.first, b->doc.last, keys, &lo, &hi);
    bwd_others(b, b->first, b->last, keys, &wlo, &whi);
    if (!keys) {
        LF_UNROLL for (int r = 0; r < 2; r++)
        {
            const int t = b->row + 8 * r;
            bwd_stat(a, h, t, t - b->doc.begin >= b->doc.first && t - b->doc.begin <= b->doc.last,
                     &b->lse[r], &b->delta[r]);
        }
    }
    b->slope = a->alibi ? a->alibi[h] : 0.0f;
    const int t0 = lo / ATTN_T, t1 = (hi + ATTN_T - 1) / ATTN_T;
    for (int t = t0 - (stages - 1); t < t1; t++) {
        const int next = t + stages - 1, to = (next - t0) % stages;
        if (next < t1)
            bwd_fetch(b, &other, stage + to * 2 * tile, stat + to * 2 * ATTN_T, next, h, vec, keys,
                      dp);
        lf_cp_commit();
        if (t < t0)
            continue;
        if (stages == 2)
            lf_cp_wait(1);
        else
            lf_cp_wait(0);
        __syncthreads();
        const int at = t * ATTN_T, from = (t - t0) % stages;
        b->stat = stat + from * 2 * ATTN_T;
        if (wlo < at + ATTN_T && whi > at)
            bwd_step(b, ds, dv, own, stage + from * 2 * tile, a->drop.p > 0.0f ? &draws : NULL, at,
                     c0, keys, cols, dp, type);
        __syncthreads();
    }
}

LF_DEV void bwd_put(const struct lf_k_attn_bwd *a, float (*ds)[4], float (*dv)[4], int64_t t, int r,
                    int g, int c0, int lane, const bool keys, const int cols, const int type)
{
    const int d = (int)a->d;
    if (keys) {
        attn_put((uint16_t *)a->dk + t * a->lddk + g * d + c0, ds, r, 1.0f, d - c0, lane, cols,
                 type);
        attn_put((uint16_t *)a->dv + t * a->lddv + g * d + c0, dv, r, 1.0f, d - c0, lane, cols,
                 type);
    } else {
        attn_put((uint16_t *)a->dq + t * a->lddq + (int)blockIdx.y * d + c0, ds, r, 1.0f, d - c0,
                 lane, cols, type);
    }
}

LF_DEV void bwd_body(const struct lf_k_attn_bwd *a, const bool keys, const int dp, const int type)
{
    LF_SHARED(uint16_t, smem);
    const int cols = dp > 128 ? 128 : dp, tile = ATTN_T * dp, c0 = cols * (int)blockIdx.z;
    const int tid = (int)threadIdx.x, lane = tid % 32, d = (int)a->d, rows = (int)a->rows,
              r0 = 64 * (int)(keys ? blockIdx.x : gridDim.x - 1 - blockIdx.x), r1 = r0 + 64,
              w0 = r0 + 16 * (tid / 32), per = (int)(a->heads / a->groups), y = (int)blockIdx.y,
              g = keys ? y : y / per;
    const bool vec = d % 8 == 0 && lf_vec8(a->q, a->ldq, type) && lf_vec8(a->k, a->ldk, type) &&
                     lf_vec8(a->v, a->ldv, type) && lf_vec8(a->d_o, a->lddo, type);
    const struct attn_side mine = keys ? attn_key_side(a, g) : attn_query_side(a, y);
    float ds[16][4], dv[16][4];
    struct bwd_block b;
    b.a = a;
    b.call = attn_call_of(a->scale, a->softcap, a->window, a->causal, a->alibi != NULL);
    b.lane = lane;
    b.row = w0 + lane / 4;
    attn_fill(smem, (const uint16_t *)mine.x + r0 * mine.ldx, mine.ldx, rows - r0, d, vec, ATTN_T,
              dp, tid, 128);
    attn_fill(smem + tile, (const uint16_t *)mine.y + r0 * mine.ldy, mine.ldy, rows - r0, d, vec,
              ATTN_T, dp, tid, 128);
    lf_cp_commit();
    LF_UNROLL for (int i = 0; i < cols / 2; i++) ds[i / 4][i % 4] = dv[i / 4][i % 4] = 0.0f;

    for (int i = attn_find(a->cu_seqlens, (int)a->n_docs, r0);
         i < a->n_docs && a->cu_seqlens[i] < r1; i++) {
        if (!attn_doc_of(&b.doc, a->cu_seqlens, a->prefix, i, r0, r1, rows))
            continue;
        b.first = w0 - b.doc.begin > b.doc.first ? w0 - b.doc.begin : b.doc.first;
        b.last = w0 + 15 - b.doc.begin < b.doc.last ? w0 + 15 - b.doc.begin : b.doc.last;
        for (int h = keys ? g * per : y; h < (keys ? (g + 1) * per : y + 1); h++)
            bwd_head(&b, ds, dv, smem, h, g, c0, vec, keys, cols, dp, type);
    }
    lf_cp_wait(0);
    LF_UNROLL for (int r = 0; r < 2; r++)
    {
        if (b.row + 8 * r < rows)
            bwd_put(a, ds, dv, b.row + 8 * r, r, g, c0, lane, keys, cols, type);
    }
}

#define BWD(name, keys, dp, type)                                                                  \
    LF_KERNEL(name, struct lf_k_attn_bwd, 128)                                                     \
    {                                                                                              \
        bwd_body(a, keys, dp, type);                                                               \
    }
BWD(attn_dq_bf16_64, false, 64, LF_BF16)
BWD(attn_dq_f16_64, false, 64, LF_F16)
BWD(attn_dq_bf16_128, false, 128, LF_BF16)
BWD(attn_dq_f16_128, false, 128, LF_F16)
BWD(attn_dq_bf16_256, false, 256, LF_BF16)
BWD(attn_dq_f16_256, false, 256, LF_F16)
BWD(attn_dkv_bf16_64, true, 64, LF_BF16)
BWD(attn_dkv_f16_64, true, 64, LF_F16)
BWD(attn_dkv_bf16_128, true, 128, LF_BF16)
BWD(attn_dkv_f16_128, true, 128, LF_F16)
BWD(attn_dkv_bf16_256, true, 256, LF_BF16)
BWD(attn_dkv_f16_256, true, 256, LF_F16)
