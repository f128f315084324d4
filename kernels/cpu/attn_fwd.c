/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over packed documents, forward. Documents are taken in batches that fit the panel
 * workspace; for a batch all key and value panels are made once per (document, group), then blocks
 * of query rows are handed to threads from a counter. Blocks write disjoint rows, so who computes
 * which block changes no bit.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/attn.h"

LF_CPU_DECLARE(attn_fwd)

enum { SPARE_TILES = 16 }; /* lets short documents share a batch */

int LF_SYM(attn_fwd_check)(const struct lf_k_attn_fwd *a)
{
    bool ok = a->rows >= 0 && attn_heads_ok(a->heads, a->groups, a->d, a->d_value) &&
              a->n_docs >= 0 && a->ldq >= a->heads * a->d && a->ldo >= a->heads * a->d_value &&
              a->ldk >= a->groups * a->d && a->ldv >= a->groups * a->d_value &&
              a->softcap >= 0.0f && lf_is_float(a->x_type) && a->rows < INT32_MAX &&
              attn_drop_ok(&a->drop, a->heads, a->rows) && attn_own_ok(&a->own, a->rows) &&
              attn_bias_ok(&a->bias) && ATTN_APART_OK(a);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

struct plan {
    const lf_queue *q;
    struct attn_shape s;
    int64_t cap; /* tiles that the panels hold, per group */
    int64_t kt_floats, tile_floats;
    float *panels, *blocks; /* blocks: one per thread */
    size_t block_floats;
};

static struct plan plan_of(const struct lf_k_attn_fwd *a)
{
    struct plan p = {.s = ATTN_SHAPE_OF(a, a->causal)};
    p.cap = attn_tiles(attn_key_rows(&a->own, a->rows)) + SPARE_TILES;
    p.kt_floats = p.s.kd * ATTN_T;
    p.tile_floats = p.kt_floats + (p.s.pairs ? ATTN_T / 2 : ATTN_T) * p.s.dvp;
    p.block_floats = LF_SYM(attn_block_floats)(&p.s, ATTN_QB);
    p.panels = (float *)a->work;
    if (p.panels)
        p.blocks = p.panels + p.cap * a->groups * p.tile_floats;
    return p;
}

size_t LF_SYM(attn_fwd_work)(const struct lf_k_attn_fwd *a, int threads)
{
    struct plan p = plan_of(a);
    return ((size_t)(p.cap * a->groups * p.tile_floats) + (size_t)threads * p.block_floats) *
           sizeof(float);
}

struct doc {
    int64_t row, len, prefix;
    const int32_t *runs; /* of its rows, or NULL */
    int64_t tile, tiles; /* those of its keys that are there */
};

/* Document i, cut to the rows there are; empty where no query is of it. */
static struct doc doc_at(const struct lf_k_attn_fwd *a, int64_t i)
{
    int64_t b = a->cu_seqlens[i], e = a->cu_seqlens[i + 1];
    e = e > a->rows ? a->rows : e;
    if (!attn_part_next(&a->own, i, b, e - b, &(struct attn_part){0}))
        e = b;
    const struct attn_there t = attn_there(&a->own, b, e > b ? e - b : 0);
    return (struct doc){b,
                        e > b ? e - b : 0,
                        a->prefix ? a->prefix[i] : 0,
                        a->runs ? a->runs + 2 * b : NULL,
                        t.from / ATTN_T,
                        attn_tiles(t.end - t.from)};
}

/* Documents whose panels are in memory together. */
struct batch {
    const struct lf_k_attn_fwd *a;
    const struct plan *p;
    int64_t d0, d1;
    int64_t next; /* block of rows */
};

/* Panels [lo, hi) of the batch: of each tile those of all groups. */
static void pack_panels(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct batch *b = arg;
    const struct lf_k_attn_fwd *a = b->a;
    const struct plan *p = b->p;
    const uint8_t t = a->x_type;
    const int64_t size = (int64_t)lf_dtype_size((enum lf_dtype)t);
    int64_t first = 0; /* panel of the document */
    (void)q;
    for (int64_t i = b->d0; i < b->d1 && first < hi; i++) {
        const struct doc d = doc_at(a, i);
        const int64_t n = d.tiles * a->groups, end = attn_there(&a->own, d.row, d.len).end;
        for (int64_t x = lo > first ? lo : first; x < hi && x < first + n; x++) {
            const int64_t j = (d.tile + (x - first) / a->groups) * ATTN_T,
                          g = (x - first) % a->groups, keys = end - j < ATTN_T ? end - j : ATTN_T,
                          at = attn_key_at(&a->own, d.row + j);
            float *dst = p->panels + x * p->tile_floats;
            const struct attn_rows k = {lf_at(a->k, at * a->ldk + g * a->d, t), a->ldk * size, keys,
                                        a->d};
            const struct attn_rows v = {lf_at(a->v, at * a->ldv + g * a->d_value, t), a->ldv * size,
                                        keys, a->d_value};
            LF_SYM(attn_pack_cols)(dst, &k, &p->s, NULL);
            LF_SYM(attn_pack_rows)(dst + p->kt_floats, &v, ATTN_T, &p->s);
        }
        first += n;
    }
}

/* Rows of one head: n of a document from position i0 on, of which the first is query row `row`;
 * tile0 is the document's first tile in the panels. */
struct rows {
    int64_t tile0, h, i0, n, row;
};

static void run_block(const struct lf_k_attn_fwd *a, const struct plan *p, struct doc d,
                      const struct rows *at, float *mem)
{
    const int64_t h = at->h, i0 = at->i0, all = attn_own_rows(&a->own, a->rows);
    const int64_t g = h / (a->heads / a->groups);
    const float slope = a->alibi ? a->alibi[h] : 0.0f, sink = a->sinks ? a->sinks[h] : -INFINITY;
    struct attn_block b;
    LF_SYM(attn_block_init)(&b, mem, &p->s, ATTN_QB);
    if (a->drop.p > 0.0f) {
        b.drop = &a->drop;
        b.drop_row = at->row;
        b.drop_head = h;
    }
    if (a->bias.place)
        b.places = (struct attn_places){a->bias.place + d.row, d.len};
    const bool in_place = a->x_type == LF_F32 || p->s.pairs;
    int64_t lo = d.len, hi = 0;
    if (in_place) {
        b.qa = lf_at(a->q, at->row * a->ldq + h * a->d, a->x_type);
        b.qs = a->ldq * (int64_t)lf_dtype_size((enum lf_dtype)a->x_type);
    }
    for (int64_t i = i0; i < i0 + at->n; i++) {
        const int64_t row = at->row + i - i0;
        const void *q = in_place ? NULL : lf_at(a->q, row * a->ldq + h * a->d, a->x_type);
        const struct attn_more more = {d.prefix, d.runs ? d.runs + 2 * i : NULL};
        LF_SYM(attn_block_add)(&b, &p->s, q, slope, i, d.len, more);
        if (b.bias)
            b.bias[b.n - 1] = a->bias.table + h;
        lo = b.lo[i - i0] < lo ? b.lo[i - i0] : lo;
        hi = b.hi[i - i0] > hi ? b.hi[i - i0] : hi;
    }
    for (int64_t t = lo / ATTN_T; t * ATTN_T < hi; t++) {
        lf_border(p->q);
        const float *kt = p->panels + ((at->tile0 + t - d.tile) * a->groups + g) * p->tile_floats;
        LF_SYM(attn_block_tile)(&b, &p->s, t * ATTN_T, kt, kt + p->kt_floats, p->s.dvp);
    }
    for (int64_t r = 0; r < at->n; r++) {
        void *o = lf_at_w(a->o, (at->row + r) * a->ldo + h * a->d_value, a->x_type);
        const float lse = LF_SYM(attn_block_out)(&b, &p->s, r, sink, o);
        if (a->lse)
            a->lse[h * all + at->row + r] = lse;
    }
}

/* Takes blocks of the batch, in the order (document, part of it, head, rows). */
static void run_blocks(void *arg, int member)
{
    struct batch *b = arg;
    const struct lf_k_attn_fwd *a = b->a;
    float *mem = b->p->blocks + (size_t)member * b->p->block_floats;
    int64_t n = 0, tile0 = 0, mine = lf_take(&b->next);
    for (int64_t i = b->d0; i < b->d1; i++) {
        struct doc d = doc_at(a, i);
        struct attn_part part = {0};
        while (attn_part_next(&a->own, i, d.row, d.len, &part)) {
            int64_t per_head = (part.n + ATTN_QB - 1) / ATTN_QB, end = n + per_head * a->heads;
            for (; mine < end; mine = lf_take(&b->next)) {
                const int64_t first = (mine - n) % per_head * ATTN_QB, left = part.n - first;
                const struct rows at = {.tile0 = tile0,
                                        .h = (mine - n) / per_head,
                                        .i0 = part.pos + first,
                                        .n = left < ATTN_QB ? left : ATTN_QB,
                                        .row = part.row + first};
                run_block(a, b->p, d, &at, mem);
            }
            n = end;
        }
        tile0 += d.tiles;
    }
}

/* Rows behind the last document, which ends at row `end`. */
static void pad_rows(const struct lf_k_attn_fwd *a, int64_t end)
{
    const int64_t rows = attn_own_rows(&a->own, a->rows);
    for (int64_t r = rows; r > 0 && attn_own_pads(&a->own, r - 1, end); r--) {
        memset(lf_at_w(a->o, (r - 1) * a->ldo, a->x_type), 0,
               (size_t)(a->heads * a->d_value) * lf_dtype_size((enum lf_dtype)a->x_type));
        for (int64_t h = 0; a->lse && h < a->heads; h++)
            a->lse[h * rows + r - 1] = -INFINITY;
    }
}

int LF_SYM(attn_fwd)(lf_queue *q, const struct lf_k_attn_fwd *a)
{
    struct plan p = plan_of(a);
    const int64_t own = attn_own_rows(&a->own, a->rows);
    const int team = lf_team(q, own * a->heads * (a->d + a->d_value) * 32);
    p.q = q;
    if (own == 0)
        return LF_K_OK;
    if (a->work_bytes < LF_SYM(attn_fwd_work)(a, team))
        return LF_K_EINVAL;
    for (int64_t d0 = 0, d1; d0 < a->n_docs; d0 = d1) {
        int64_t tiles = 0;
        for (d1 = d0; d1 < a->n_docs && tiles + doc_at(a, d1).tiles <= p.cap; d1++)
            tiles += doc_at(a, d1).tiles;
        struct batch b = {.a = a, .p = &p, .d0 = d0, .d1 = d1};
        lf_deal(q, team, tiles * a->groups, 1, pack_panels, &b);
        lf_team_call(q, team, run_blocks, &b);
    }
    pad_rows(a, attn_own_end(&a->own, a->cu_seqlens, a->n_docs));
    return LF_K_OK;
}
