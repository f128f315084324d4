/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention of new rows over the paged cache. A block takes 64 slots, the (row, head) pairs of one
 * group of heads and of neighbouring rows of one sequence, so that a tile of keys is read once for
 * all of them: a decoded row fills a slot for each head of the group, a piece of a prompt fills all
 * 64. Tiles go through the step of attn_fwd, in ascending order from the sequence's first key, and
 * a slot's sums know nothing of other slots: the bits are those of training. A page holds whole
 * tiles, so a tile lies in one page.
 *
 * Where few rows would leave a GPU idle, several blocks share out the tiles of a run (attn_split):
 * each leaves a tile's part in the workspace, maximum, sum and p v, and attn_join combines them in
 * ascending order, with the same bits.
 *
 * Where sequences begin only the device knows. The grid has a block for each row; the one of a row
 * that leads a run works for it, the others end at once. A row leads where its neighbour before is
 * of another sequence, and at multiples of the rows that 64 slots have room for.
 */
#include "kernels/cuda/attn_f32.h"
#include "kernels/cuda/attn_mma.h"

enum { PAGED_SLOTS = 64 };

struct paged_run {
    int row, seq;
    int g, head, heads; /* group, the first of its heads and how many of them */
    int slots;          /* in use; slot i: row + i / heads, head + i % heads */
};

/* false: another block's row. */
LF_DEV bool paged_run_of(struct paged_run *u, const struct lf_k_attn_paged *a)
{
    const int per = (int)(a->heads / a->groups), most = per < PAGED_SLOTS ? per : PAGED_SLOTS,
              parts = (per + most - 1) / most, part = (int)blockIdx.y % parts,
              room = PAGED_SLOTS / most;
    const int row = (int)blockIdx.x, seq = a->seq[row], end = (row / room + 1) * room;
    int r = row + 1;
    if (row % room && a->seq[row - 1] == seq)
        return false;
    while (r < end && r < a->rows && a->seq[r] == seq)
        r++;
    u->row = row;
    u->seq = seq;
    u->g = (int)blockIdx.y / parts;
    u->head = u->g * per + part * most;
    u->heads = per - part * most < most ? per - part * most : most;
    u->slots = (r - row) * u->heads;
    return true;
}

LF_DEV void paged_range(const struct lf_k_attn_paged *a, const struct attn_call *c,
                        const struct paged_run *u, int row, int *lo, int *hi)
{
    attn_range(c, a->pos[row], INT32_MAX, a->prefix ? a->prefix[u->seq] : 0,
               a->runs ? a->runs + 2 * row : NULL, lo, hi);
}

/* What slots [from, to) see; nothing where none of them is in use or the rows belong to no
 * sequence. */
LF_DEV struct attn_span paged_span(const struct lf_k_attn_paged *a, const struct attn_call *c,
                                   const struct paged_run *u, int from, int to)
{
    struct attn_span s = {INT32_MAX, 0, 0, INT32_MAX};
    const int last = to < u->slots ? to : u->slots;
    if (from >= last || u->seq < 0)
        return (struct attn_span){0, 0, 0, 0};
    for (int r = u->row + from / u->heads; r <= u->row + (last - 1) / u->heads; r++) {
        int lo, hi;
        paged_range(a, c, u, r, &lo, &hi);
        s.lo = lo < s.lo ? lo : s.lo;
        s.hi = hi > s.hi ? hi : s.hi;
        s.all_lo = lo > s.all_lo ? lo : s.all_lo;
        s.all_hi = hi < s.all_hi ? hi : s.all_hi;
    }
    return s;
}

LF_DEV void paged_enter(struct attn_row *r, const struct lf_k_attn_paged *a,
                        const struct attn_call *c, const struct paged_run *u, int slot)
{
    attn_row_clear(r);
    if (slot >= u->slots || u->seq < 0)
        return;
    r->pos = a->pos[u->row + slot / u->heads];
    r->slope = a->alibi ? a->alibi[u->head + slot % u->heads] : 0.0f;
    paged_range(a, c, u, u->row + slot / u->heads, &r->lo, &r->hi);
}

/* Where a slot's row of d channels lies in a tensor of rows ld apart. */
LF_DEV int64_t paged_slot_at(const struct paged_run *u, int slot, int64_t ld, int64_t d)
{
    return (u->row + slot / u->heads) * ld + (u->head + slot % u->heads) * d;
}
/* Where the tile from position `key` on lies in the pages, in rows of one group. */
LF_DEV int64_t paged_tile_at(const struct lf_k_attn_paged *a, const struct paged_run *u, int key)
{
    const int64_t page = a->table[u->seq * a->max_pages + key / a->page_tokens];
    return (page * a->page_tokens + key % a->page_tokens) * a->groups + u->g;
}

/* ---- 16-bit types ---- */

/* A block and its place in shared memory, which is laid out as in attn_fwd.cu. */
struct paged_block {
    const struct lf_k_attn_paged *a;
    struct attn_call call;
    struct paged_run run;
    uint16_t *queries, *stage;
    uint64_t *mended;
    int *broken;
    int slot0, tid, lane; /* first slot of the warp */
    bool vec;
};
enum { PAGED_THREADS = 2 * PAGED_SLOTS };

/* false: nothing to do. */
LF_DEV bool paged_block_of(struct paged_block *b, const struct lf_k_attn_paged *a, uint16_t *smem,
                           const int dp, const bool q_in_registers, const int type)
{
    b->a = a;
    b->call = attn_call_of(a->scale, a->softcap, a->window, true, a->alibi != NULL);
    b->queries = smem;
    b->stage = q_in_registers ? smem : smem + PAGED_SLOTS * dp;
    b->mended = (uint64_t *)(b->stage + 4 * ATTN_T * dp);
    b->broken = (int *)(b->mended + dp);
    b->tid = (int)threadIdx.x;
    b->lane = b->tid % 32;
    b->slot0 = b->tid / 32 * 16;
    b->vec = a->d % 8 == 0 && a->d_value % 8 == 0 && lf_vec8(a->q, a->ldq, type) &&
             lf_vec8(a->k_pages, a->groups * a->d, type) &&
             lf_vec8(a->v_pages, a->groups * a->d_value, type);
    return paged_run_of(&b->run, a);
}

LF_DEV void paged_queries(const struct paged_block *b, const int dp)
{
    const int d = (int)b->a->d;
    LF_ROLLED for (int i = b->tid; i < PAGED_SLOTS * dp / 8; i += PAGED_THREADS)
    {
        const int slot = i / (dp / 8), c = i % (dp / 8);
        const int n = slot < b->run.slots ? d - 8 * c : 0; /* channels that exist */
        const uint16_t *src = (const uint16_t *)b->a->q +
                              (n > 0 ? paged_slot_at(&b->run, slot, b->a->ldq, d) + 8 * c : 0);
        uint16_t *dst = b->queries + attn_chunk(slot, c, dp);
        if (b->vec && n > 0) {
            *(struct lf_u4 *)dst = *(const struct lf_u4 *)src;
        } else {
            LF_ROLLED for (int e = 0; e < 8; e++) dst[e] = e < n ? src[e] : 0;
        }
    }
}

/* Ask for the tile from position `key` on. Nobody sees keys from hi on: their slots of the page may
 * hold anything. */
LF_DEV void paged_fetch(const struct paged_block *b, uint16_t *to, int key, int hi, const int dp)
{
    const int64_t from = paged_tile_at(b->a, &b->run, key), groups = b->a->groups;
    const int d = (int)b->a->d, e = (int)b->a->d_value;
    attn_fill(to, (const uint16_t *)b->a->k_pages + from * d, groups * d, hi - key, d, b->vec,
              ATTN_T, dp, b->tid, PAGED_THREADS);
    attn_fill(to + ATTN_T * dp, (const uint16_t *)b->a->v_pages + from * e, groups * e, hi - key, e,
              b->vec, ATTN_T, dp, b->tid, PAGED_THREADS);
}

/* As fwd_mend of attn_fwd.cu. */
LF_DEV bool paged_mend(const struct paged_block *b, uint16_t *vs, const int dp, const int type)
{
    if (attn_tile_broken(vs, type, ATTN_T, dp, b->tid, PAGED_THREADS))
        *b->broken = 1;
    __syncthreads();
    const bool bad = *b->broken;
    if (bad) {
        attn_mend(vs, b->mended, type, dp, b->tid, PAGED_THREADS);
        __syncthreads();
    }
    return bad;
}

/* Where the part of a tile lies in the workspace: d_value numbers, p v, and the tile's maximum and
 * sum (attn_dev.h). */
LF_DEV float *paged_part_at(const struct lf_k_attn_paged *a, int64_t row, int64_t head, int tile)
{
    const int64_t tiles = a->max_pages * a->page_tokens / ATTN_T;
    return (float *)a->work + ((row * a->heads + head) * tiles + tile) * (a->d_value + 2);
}

/* A warp's part of one tile, for paged_join; r: the rows, which stay without a sum. */
LF_DEV void paged_part(const struct paged_block *b, const struct attn_row rows[2],
                       const uint32_t (*q)[4], const uint16_t *ks, const uint16_t *vs, int key0,
                       bool whole, const uint64_t *mended, const int dp, const int type)
{
    struct attn_row r[2];
    float s[8][4], was[2], now[2], *to[2];
    uint32_t p[4][4];
    uint64_t sees[2];
    LF_UNROLL for (int h = 0; h < 2; h++)
    {
        const int slot = b->slot0 + b->lane / 4 + 8 * h;
        r[h] = rows[h];
        to[h] = slot < b->run.slots
                    ? paged_part_at(b->a, b->run.row + slot / b->run.heads,
                                    b->run.head + slot % b->run.heads, key0 / ATTN_T)
                    : NULL;
    }
    attn_scores(s, q, b->queries, b->slot0, ks, b->lane, dp, type);
    if (!whole || b->call.bent)
        attn_mask(s, r, &b->call, key0, whole, b->lane);
    attn_softmax(s, r, &b->call, was,
                 now); /* rows that were empty: their maximum and sum are the tile's */
    attn_as_left(p, s, 4, type);
    attn_sees(sees, r, key0);
    LF_UNROLL for (int n = 0; n < dp / 8; n += 4)
    {
        float x[4][4];
        attn_product(x, p, vs, n, b->lane, dp, type);
        LF_UNROLL for (int e = 0; e < 16; e++)
        {
            const int c = 8 * (n + e / 4) + 2 * (b->lane & 3) + (e & 1), h = e % 4 >> 1;
            if (to[h] && c < b->a->d_value)
                to[h][c] =
                    mended && (mended[c] & sees[h]) ? lf_u32_f(0x7fffffffu) : x[e / 4][e % 4];
        }
    }
    LF_UNROLL for (int h = 0; h < 2; h++)
    {
        if (to[h] && b->lane % 4 == 0) {
            to[h][b->a->d_value] = r[h].m;
            to[h][b->a->d_value + 1] = r[h].l;
        }
    }
}

/* The tiles that some slot sees, the next one on its way while the present one is worked on: all of
 * them into o, or, of blocks that share them out (o NULL), every one of this block's to the
 * workspace. */
LF_DEV void paged_walk(const struct paged_block *b, float (*o)[4], struct attn_row r[2],
                       const uint32_t (*q)[4], const int dp, const int type)
{
    const int tile = ATTN_T * dp, stride = o ? 1 : (int)gridDim.z;
    const struct attn_span all = paged_span(b->a, &b->call, &b->run, 0, PAGED_SLOTS),
                           mine = paged_span(b->a, &b->call, &b->run, b->slot0, b->slot0 + 16);
    const int t0 = all.lo / ATTN_T + (o ? 0 : (int)blockIdx.z),
              t1 = all.hi / ATTN_T + (all.hi % ATTN_T > 0);
    for (int t = t0 - stride, at = 1; t < t1; t += stride, at ^= 1) {
        const int key = t * ATTN_T, next = key + stride * ATTN_T;
        if (t + stride < t1)
            paged_fetch(b, b->stage + (at ^ 1) * 2 * tile, next, all.hi, dp);
        lf_cp_commit();
        if (t < t0)
            continue;
        lf_cp_wait(1);
        uint16_t *ks = b->stage + at * 2 * tile, *vs = ks + tile;
        __syncthreads();
        const bool bad =
            (all.all_lo > key || all.all_hi < key + ATTN_T) && paged_mend(b, vs, dp, type);
        const bool whole =
            b->slot0 + 16 <= b->run.slots && mine.all_lo <= key && mine.all_hi >= key + ATTN_T;
        if (mine.lo < key + ATTN_T && mine.hi > key) {
            if (o)
                attn_step(o, r, q, b->queries, b->slot0, ks, vs, &b->call, NULL, key, whole,
                          bad ? b->mended : NULL, b->lane, dp, type);
            else
                paged_part(b, r, q, ks, vs, key, whole, bad ? b->mended : NULL, dp, type);
        }
        __syncthreads();
        if (b->tid == 0)
            *b->broken = 0;
    }
}

/* What both ways have in common: false, nothing to do. */
LF_DEV bool paged_begin(struct paged_block *b, struct attn_row r[2], uint32_t (*q)[4],
                        const struct lf_k_attn_paged *a, uint16_t *smem, const int dp,
                        const bool q_in_registers, const int type)
{
    if (!paged_block_of(b, a, smem, dp, q_in_registers, type))
        return false;
    paged_queries(b, dp);
    if (b->tid == 0)
        *b->broken = 0;
    __syncthreads();
    if (q_in_registers) {
        LF_UNROLL for (int i = 0; i < dp / 16; i++) attn_left(q[i], smem, b->slot0, i, b->lane, dp);
        __syncthreads();
    }
    LF_UNROLL for (int i = 0; i < 2; i++)
        paged_enter(&r[i], a, &b->call, &b->run, b->slot0 + b->lane / 4 + 8 * i);
    return true;
}

LF_DEV void paged_body(const struct lf_k_attn_paged *a, const int dp, const bool q_in_registers,
                       const int type)
{
    LF_SHARED(uint16_t, smem);
    struct paged_block b;
    uint32_t q[8][4];
    float o[32][4];
    struct attn_row r[2];
    if (!paged_begin(&b, r, q, a, smem, dp, q_in_registers, type))
        return;
    LF_UNROLL for (int n = 0; n < dp / 8; n++)
    {
        LF_UNROLL for (int e = 0; e < 4; e++) o[n][e] = 0.0f;
    }
    paged_walk(&b, o, r, q_in_registers ? q : NULL, dp, type);
    LF_UNROLL for (int i = 0; i < 2; i++)
    {
        const int slot = b.slot0 + b.lane / 4 + 8 * i;
        if (slot < b.run.slots)
            attn_put((uint16_t *)a->o + paged_slot_at(&b.run, slot, a->ldo, a->d_value), o, i,
                     attn_close(&r[i], a->sinks, b.run.head + slot % b.run.heads), (int)a->d_value,
                     b.lane, dp, type);
    }
}

/* One of gridDim.z blocks that share out the tiles of their rows' context. */
LF_DEV void paged_split_body(const struct lf_k_attn_paged *a, const int dp,
                             const bool q_in_registers, const int type)
{
    LF_SHARED(uint16_t, smem);
    struct paged_block b;
    uint32_t q[8][4];
    struct attn_row r[2];
    if (paged_begin(&b, r, q, a, smem, dp, q_in_registers, type))
        paged_walk(&b, NULL, r, q_in_registers ? q : NULL, dp, type);
}

LF_KERNEL(attn_paged_bf16_64, struct lf_k_attn_paged, 128)
{
    paged_body(a, 64, true, LF_BF16);
}
LF_KERNEL(attn_paged_f16_64, struct lf_k_attn_paged, 128)
{
    paged_body(a, 64, true, LF_F16);
}
LF_KERNEL(attn_paged_bf16_128, struct lf_k_attn_paged, 128)
{
    paged_body(a, 128, true, LF_BF16);
}
LF_KERNEL(attn_paged_f16_128, struct lf_k_attn_paged, 128)
{
    paged_body(a, 128, true, LF_F16);
}
LF_KERNEL(attn_paged_bf16_256, struct lf_k_attn_paged, 128)
{
    paged_body(a, 256, false, LF_BF16);
}
LF_KERNEL(attn_paged_f16_256, struct lf_k_attn_paged, 128)
{
    paged_body(a, 256, false, LF_F16);
}

LF_KERNEL(attn_split_bf16_64, struct lf_k_attn_paged, 128)
{
    paged_split_body(a, 64, true, LF_BF16);
}
LF_KERNEL(attn_split_f16_64, struct lf_k_attn_paged, 128)
{
    paged_split_body(a, 64, true, LF_F16);
}
LF_KERNEL(attn_split_bf16_128, struct lf_k_attn_paged, 128)
{
    paged_split_body(a, 128, true, LF_BF16);
}
LF_KERNEL(attn_split_f16_128, struct lf_k_attn_paged, 128)
{
    paged_split_body(a, 128, true, LF_F16);
}
LF_KERNEL(attn_split_bf16_256, struct lf_k_attn_paged, 128)
{
    paged_split_body(a, 256, false, LF_BF16);
}
LF_KERNEL(attn_split_f16_256, struct lf_k_attn_paged, 128)
{
    paged_split_body(a, 256, false, LF_F16);
}

/* The parts of a row's tiles, joined as attn_step joins them. A block for each row and head,
 * threads for its channels.
 */
LF_KERNEL(attn_join, struct lf_k_attn_paged, 128)
{
    const int row = (int)blockIdx.x, head = (int)blockIdx.y, d = (int)a->d_value, seq = a->seq[row];
    const struct attn_call call =
        attn_call_of(a->scale, a->softcap, a->window, true, a->alibi != NULL);
    int lo = 0, hi = 0;
    if (seq >= 0)
        attn_range(&call, a->pos[row], INT32_MAX, a->prefix ? a->prefix[seq] : 0,
                   a->runs ? a->runs + 2 * row : NULL, &lo, &hi);
    const int t0 = lo / ATTN_T, t1 = hi / ATTN_T + (hi % ATTN_T > 0);
    for (int c = (int)threadIdx.x; c < d; c += 128) {
        struct attn_row r;
        float o = 0.0f;
        attn_row_clear(&r);
        for (int t = t0; t < t1; t++) {
            const float *part = paged_part_at(a, row, head, t), x = part[c];
            float was, now;
            attn_combine(&r, part[d], part[d + 1], &was, &now);
            o = fmaf(x, now, o * was);
        }
        lf_store(a->o, row * a->ldo + head * d + c, a->x_type, o * attn_close(&r, a->sinks, head));
    }
}

/* ---- f32 ---- */

LF_KERNEL(attn_paged_f32, struct lf_k_attn_paged, ATTN_F32_THREADS)
{
    LF_SHARED(float, smem);
    const int d = (int)a->d, e = (int)a->d_value, dp = attn_f32_padded(d, e),
              tx = (int)threadIdx.x % 16, ty = (int)threadIdx.x / 16;
    const struct attn_f32_space w = attn_f32_space_of(smem, dp);
    const struct attn_call call =
        attn_call_of(a->scale, a->softcap, a->window, true, a->alibi != NULL);
    struct paged_run run;
    struct attn_row r[4];
    float o[4][16];
    if (!paged_run_of(&run, a))
        return;
    for (int i = (int)threadIdx.x; i < PAGED_SLOTS * dp; i += ATTN_F32_THREADS) {
        const int slot = i / dp, c = i % dp;
        w.q[slot * w.ld + c] = slot < run.slots && c < d
                                   ? ((const float *)a->q)[paged_slot_at(&run, slot, a->ldq, d) + c]
                                   : 0.0f;
    }
    LF_UNROLL for (int i = 0; i < 64; i++) o[i / 16][i % 16] = 0.0f;
    LF_UNROLL for (int i = 0; i < 4; i++) paged_enter(&r[i], a, &call, &run, 4 * ty + i);
    const struct attn_span all = paged_span(a, &call, &run, 0, PAGED_SLOTS);
    const bool busy = (int)threadIdx.x / 32 * 8 < run.slots; /* the same for a warp */
    for (int key = all.lo / ATTN_T * ATTN_T; key < all.hi; key += ATTN_T) {
        float s[4][4], was[4], now[4];
        const int64_t from = paged_tile_at(a, &run, key);
        __syncthreads();
        attn_f32_fill(w.kv, w.ld, (const float *)a->k_pages + from * d, a->groups * d, all.hi - key,
                      ATTN_T, d, dp);
        __syncthreads();
        if (busy) {
            attn_f32_dots(s, w.q, 4 * ty, w.kv, tx, w.ld, dp);
            attn_f32_softmax(s, r, &call, NULL, key, w.p, was, now);
        }
        __syncthreads();
        attn_f32_fill(w.kv, w.ld, (const float *)a->v_pages + from * e, a->groups * e, all.hi - key,
                      ATTN_T, e, dp);
        __syncthreads();
        if (busy)
            attn_f32_values(o, w.p, w.kv, w.ld, dp, was, now);
    }
    LF_UNROLL for (int i = 0; i < 4; i++)
    {
        if (4 * ty + i < run.slots)
            attn_f32_put((float *)a->o + paged_slot_at(&run, 4 * ty + i, a->ldo, e), o[i],
                         attn_close(&r[i], a->sinks, run.head + (4 * ty + i) % run.heads), e);
    }
}
