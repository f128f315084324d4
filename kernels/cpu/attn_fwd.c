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
              attn_drop_ok(&a->drop, a->heads, a->rows);
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
    p.cap = attn_tiles(a->rows) + SPARE_TILES;
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
};

/* Document i, cut to the rows there are. */
static struct doc doc_at(const struct lf_k_attn_fwd *a, int64_t i)
{
    int64_t b = a->cu_seqlens[i], e = a->cu_seqlens[i + 1];
    e = e > a->rows ? a->rows : e;
    return (struct doc){b, e > b ? e - b : 0, a->prefix ? a->prefix[i] : 0,
                        a->runs ? a->runs + 2 * b : NULL};
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
        const int64_t n = attn_tiles(d.len) * a->groups;
        for (int64_t x = lo > first ? lo : first; x < hi && x < first + n; x++) {
            const int64_t j = (x - first) / a->groups * ATTN_T, g = (x - first) % a->groups,
                          keys = d.len - j < ATTN_T ? d.len - j : ATTN_T;
            float *dst = p->panels + x * p->tile_floats;
            const struct attn_rows k = {lf_at(a->k, (d.row + j) * a->ldk + g * a->d, t),
                                        a->ldk * size, keys, a->d};
            const struct attn_rows v = {lf_at(a->v, (d.row + j) * a->ldv + g * a->d_value, t),
                                        a->ldv * size, keys, a->d_value};
            LF_SYM(attn_pack_cols)(dst, &k, &p->s, NULL);
            LF_SYM(attn_pack_rows)(dst + p->kt_floats, &v, ATTN_T, &p->s);
        }
        first += n;
    }
}

/* Rows [i0, i1) of a document for one head; tile0 is the document's first tile in the panels. */
static void run_block(const struct lf_k_attn_fwd *a, const struct plan *p, struct doc d,
                      int64_t tile0, int64_t h, int64_t i0, int64_t i1, float *mem)
{
    const int64_t g = h / (a->heads / a->groups);
    const float slope = a->alibi ? a->alibi[h] : 0.0f, sink = a->sinks ? a->sinks[h] : -INFINITY;
    struct attn_block b;
    LF_SYM(attn_block_init)(&b, mem, &p->s, ATTN_QB);
    if (a->drop.p > 0.0f) {
        b.drop = &a->drop;
        b.drop_row = d.row + i0;
        b.drop_head = h;
    }
    const bool in_place = a->x_type == LF_F32 || p->s.pairs;
    int64_t lo = d.len, hi = 0;
    if (in_place) {
        b.qa = lf_at(a->q, (d.row + i0) * a->ldq + h * a->d, a->x_type);
        b.qs = a->ldq * (int64_t)lf_dtype_size((enum lf_dtype)a->x_type);
    }
    for (int64_t i = i0; i < i1; i++) {
        const void *q = in_place ? NULL : lf_at(a->q, (d.row + i) * a->ldq + h * a->d, a->x_type);
        const struct attn_more more = {d.prefix, d.runs ? d.runs + 2 * i : NULL};
        LF_SYM(attn_block_add)(&b, &p->s, q, slope, i, d.len, more);
        lo = b.lo[i - i0] < lo ? b.lo[i - i0] : lo;
        hi = b.hi[i - i0] > hi ? b.hi[i - i0] : hi;
    }
    for (int64_t t = lo / ATTN_T; t * ATTN_T < hi; t++) {
        lf_border(p->q);
        const float *kt = p->panels + ((tile0 + t) * a->groups + g) * p->tile_floats;
        LF_SYM(attn_block_tile)(&b, &p->s, t * ATTN_T, kt, kt + p->kt_floats, p->s.dvp);
    }
    for (int64_t i = i0; i < i1; i++) {
        float lse =
            LF_SYM(attn_block_out)(&b, &p->s, i - i0, sink,
                                   lf_at_w(a->o, (d.row + i) * a->ldo + h * a->d_value, a->x_type));
        if (a->lse)
            a->lse[h * a->rows + d.row + i] = lse;
    }
}

/* Takes blocks of the batch, in the order (document, head, rows). */
static void run_blocks(void *arg, int member)
{
    struct batch *b = arg;
    float *mem = b->p->blocks + (size_t)member * b->p->block_floats;
    int64_t n = 0, tile0 = 0, mine = lf_take(&b->next);
    for (int64_t i = b->d0; i < b->d1; i++) {
        struct doc d = doc_at(b->a, i);
        int64_t per_head = (d.len + ATTN_QB - 1) / ATTN_QB, end = n + per_head * b->a->heads;
        for (; mine < end; mine = lf_take(&b->next)) {
            int64_t h = (mine - n) / per_head, i0 = (mine - n) % per_head * ATTN_QB;
            run_block(b->a, b->p, d, tile0, h, i0, i0 + ATTN_QB < d.len ? i0 + ATTN_QB : d.len,
                      mem);
        }
        n = end;
        tile0 += attn_tiles(d.len);
    }
}

/* Rows after the last document, from `first` on. */
static void pad_rows(const struct lf_k_attn_fwd *a, int64_t first)
{
    for (int64_t r = first; r < a->rows; r++) {
        memset(lf_at_w(a->o, r * a->ldo, a->x_type), 0,
               (size_t)(a->heads * a->d_value) * lf_dtype_size((enum lf_dtype)a->x_type));
        for (int64_t h = 0; a->lse && h < a->heads; h++)
            a->lse[h * a->rows + r] = -INFINITY;
    }
}

int LF_SYM(attn_fwd)(lf_queue *q, const struct lf_k_attn_fwd *a)
{
    struct plan p = plan_of(a);
    const int team = lf_team(q, a->rows * a->heads * (a->d + a->d_value) * 32);
    p.q = q;
    if (a->rows == 0)
        return LF_K_OK;
    if (a->work_bytes < LF_SYM(attn_fwd_work)(a, team))
        return LF_K_EINVAL;
    for (int64_t d0 = 0, d1; d0 < a->n_docs; d0 = d1) {
        int64_t tiles = 0;
        for (d1 = d0; d1 < a->n_docs && tiles + attn_tiles(doc_at(a, d1).len) <= p.cap; d1++)
            tiles += attn_tiles(doc_at(a, d1).len);
        struct batch b = {.a = a, .p = &p, .d0 = d0, .d1 = d1};
        lf_deal(q, team, tiles * a->groups, 1, pack_panels, &b);
        lf_team_call(q, team, run_blocks, &b);
    }
    pad_rows(a, a->cu_seqlens[a->n_docs]);
    return LF_K_OK;
}
