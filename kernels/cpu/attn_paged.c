/* SPDX-License-Identifier: Apache-2.0
 *
 * The paged key/value cache: writing new rows into it, and attention over it. Attention runs the
 * same tile step as attn_fwd; a block is up to ATTN_QB (row, head) pairs of one sequence and one
 * group, so every tile is read once for all heads of the group. A page holds whole tiles, so a tile
 * never crosses a page.
 *
 * A lone row (decoding) is bound by reading the cache, in which the groups of a token lie side by
 * side: there a thread takes a range of groups and walks the tiles once for all of them, so that it
 * reads long runs of memory.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/attn.h"

LF_CPU_DECLARE(kv_write)
LF_CPU_DECLARE(attn_paged)

LF_NO_WORK(kv_write)

static bool cache_ok(int64_t page_tokens, int64_t max_pages, uint8_t t)
{
    return page_tokens > 0 && page_tokens % ATTN_T == 0 && max_pages > 0 && lf_is_float(t);
}

/* The distance of rows of pages that have `cols` columns. */
static int64_t apart(int64_t ld, int64_t cols)
{
    return ld ? ld : cols;
}
#define KEYS_APART(a)   apart((a)->ldkp, (a)->groups *(a)->d)
#define VALUES_APART(a) apart((a)->ldvp, (a)->groups *(a)->d_value)
#define PAGES_OK(a)                                                                                \
    (cache_ok((a)->page_tokens, (a)->max_pages, (a)->x_type) &&                                    \
     KEYS_APART(a) >= (a)->groups * (a)->d && VALUES_APART(a) >= (a)->groups * (a)->d_value)

int LF_SYM(kv_write_check)(const struct lf_k_kv_write *a)
{
    bool ok = a->rows >= 0 && a->groups > 0 && a->d > 0 && a->d_value > 0 && PAGES_OK(a) &&
              a->ldk >= a->groups * a->d && a->ldv >= a->groups * a->d_value;
    return ok ? LF_K_OK : LF_K_EINVAL;
}

static void write_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_kv_write *a = arg;
    (void)q;
    const uint8_t t = a->x_type;
    const int64_t kw = a->groups * a->d, vw = a->groups * a->d_value;
    const size_t size = lf_dtype_size((enum lf_dtype)t);
    for (int64_t r = lo; r < hi; r++) {
        if (a->seq[r] < 0)
            continue;
        int64_t page = a->table[a->seq[r] * a->max_pages + a->pos[r] / a->page_tokens];
        int64_t slot = page * a->page_tokens + a->pos[r] % a->page_tokens;
        memcpy(lf_at_w(a->k_pages, slot * KEYS_APART(a), t), lf_at(a->k, r * a->ldk, t),
               (size_t)kw * size);
        memcpy(lf_at_w(a->v_pages, slot * VALUES_APART(a), t), lf_at(a->v, r * a->ldv, t),
               (size_t)vw * size);
    }
}

int LF_SYM(kv_write)(lf_queue *q, const struct lf_k_kv_write *a)
{
    lf_deal(q,
            lf_team(q, a->rows * (a->groups * (a->d + a->d_value)) *
                           (int64_t)lf_dtype_size((enum lf_dtype)a->x_type) * 2),
            a->rows, lf_few_rows(a->groups * (a->d + a->d_value)), write_rows, a);
    return LF_K_OK;
}

/* ---- attention ---- */

int LF_SYM(attn_paged_check)(const struct lf_k_attn_paged *a)
{
    bool ok = a->rows >= 0 && attn_heads_ok(a->heads, a->groups, a->d, a->d_value) && PAGES_OK(a) &&
              a->ldq >= a->heads * a->d && a->ldo >= a->heads * a->d_value && a->softcap >= 0.0f &&
              attn_bias_ok(&a->bias);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

static size_t thread_floats(const struct lf_k_attn_paged *a, const struct attn_shape *s)
{
    size_t one = LF_SYM(attn_block_floats)(s, ATTN_QB),
           many = (size_t)a->groups * LF_SYM(attn_block_floats)(s, a->heads / a->groups);
    return (one > many ? one : many) + (size_t)(s->kd * ATTN_T + ATTN_T * s->dvp);
}

static struct attn_shape shape_of(const struct lf_k_attn_paged *a)
{
    return ATTN_SHAPE_OF(a, true);
}

size_t LF_SYM(attn_paged_work)(const struct lf_k_attn_paged *a, int threads)
{
    struct attn_shape s = shape_of(a);
    return (size_t)threads * thread_floats(a, &s) * sizeof(float);
}

/* What row r may see beyond its past. */
static struct attn_more row_more(const struct lf_k_attn_paged *a, int64_t r)
{
    return (struct attn_more){a->prefix ? a->prefix[a->seq[r]] : 0,
                              a->runs ? a->runs + 2 * r : NULL};
}

/* Keys that row r may see: up to its own, to its sequence's prefix or to the end of its run. */
static int64_t row_keys(const struct lf_k_attn_paged *a, int64_t r)
{
    const struct attn_more m = row_more(a, r);
    const int64_t own = (int64_t)a->pos[r] + 1, open = own > m.prefix ? own : m.prefix;
    return m.run && m.run[1] > open ? m.run[1] : open;
}

/* The row of the pages at which the tile from position j on begins. */
static int64_t tile_row(const struct lf_k_attn_paged *a, int64_t seq, int64_t j)
{
    int64_t page = a->table[seq * a->max_pages + j / a->page_tokens];
    return page * a->page_tokens + j % a->page_tokens;
}

/* The tile at position j for groups [g0, g1), in as many pieces as the packing of the tile before
 * it has steps. */
static struct attn_ahead ahead_of(const struct lf_k_attn_paged *a, const struct attn_shape *s,
                                  int64_t seq, int64_t j, int64_t len, int64_t g0, int64_t g1)
{
    const int64_t size = (int64_t)lf_dtype_size((enum lf_dtype)a->x_type), k = a->d * size,
                  v = a->d_value * size;
    struct attn_ahead w = {.p_bytes = (g1 - g0) * k,
                           .q_bytes = a->v_pages == a->k_pages ? 0 : (g1 - g0) * v,
                           .p_stride = KEYS_APART(a) * size,
                           .q_stride = VALUES_APART(a) * size,
                           .rows = len - j < ATTN_T ? len - j : ATTN_T};
    if (w.rows <= 0)
        return (struct attn_ahead){.rows = 0};
    const int64_t row = tile_row(a, seq, j), most = k > v ? k : v;
    const int64_t steps = (g1 - g0) * (ATTN_T / LF_VL) * ((s->kd + LF_VL - 1) / LF_VL);
    w.p = (const char *)a->k_pages + row * w.p_stride + g0 * k;
    w.q = (const char *)a->v_pages + row * w.q_stride + g0 * v;
    w.quota = (w.rows * (((g1 - g0) * most + 63) / 64) + steps - 1) / steps;
    return w;
}

/* Panels of one tile and group, then the step. */
static void paged_tile(const struct lf_k_attn_paged *a, const struct attn_shape *s,
                       struct attn_block *b, int64_t seq, int64_t j, int64_t hi, int64_t g,
                       float *kt, float *v, struct attn_ahead *ahead)
{
    const uint8_t t = a->x_type;
    const int64_t size = (int64_t)lf_dtype_size((enum lf_dtype)t),
                  keys = hi - j < ATTN_T ? hi - j : ATTN_T, row = tile_row(a, seq, j),
                  ldk = KEYS_APART(a), ldv = VALUES_APART(a);
    const struct attn_rows kr = {lf_at(a->k_pages, row * ldk + g * a->d, t), ldk * size, keys,
                                 a->d},
                           vr = {lf_at(a->v_pages, row * ldv + g * a->d_value, t), ldv * size, keys,
                                 a->d_value};
    LF_SYM(attn_pack_cols)(kt, &kr, s, ahead);
    /* Few rows: a copy would cost more than the long stride. Nor does one pay for channels of
     * keys, which are read just before. */
    if (t == LF_F32 && a->d_value == s->dvp && (b->n <= 2 * ATTN_MR || a->v_pages == a->k_pages)) {
        LF_SYM(attn_block_tile)(b, s, j, kt, (const float *)vr.src, ldv);
        return;
    }
    LF_SYM(attn_pack_rows)(v, &vr, ATTN_T, s);
    LF_SYM(attn_block_tile)(b, s, j, kt, v, s->dvp);
}

static float sink_of(const struct lf_k_attn_paged *a, int64_t h)
{
    return a->sinks ? a->sinks[h] : -INFINITY;
}

/* Rows [r0, r1) of one sequence, heads [h0, h1) of group g. */
static void paged_block(const struct lf_k_attn_paged *a, const struct attn_shape *s, int64_t r0,
                        int64_t r1, int64_t g, int64_t h0, int64_t h1, float *mem)
{
    const uint8_t t = a->x_type;
    float *kt = mem + LF_SYM(attn_block_floats)(s, ATTN_QB), *v = kt + s->kd * ATTN_T;
    struct attn_block b;
    int64_t lo = INT64_MAX, hi = 0, i = 0;
    LF_SYM(attn_block_init)(&b, mem, s, ATTN_QB);
    for (int64_t r = r0; r < r1; r++)
        for (int64_t h = h0; h < h1; h++) {
            LF_SYM(attn_block_add)
            (&b, s, lf_at(a->q, r * a->ldq + h * a->d, t), a->alibi ? a->alibi[h] : 0.0f, a->pos[r],
             row_keys(a, r), row_more(a, r));
            if (b.bias)
                b.bias[b.n - 1] = a->bias.table + h;
            lo = b.lo[b.n - 1] < lo ? b.lo[b.n - 1] : lo;
            hi = b.hi[b.n - 1] > hi ? b.hi[b.n - 1] : hi;
        }
    for (int64_t j = lo / ATTN_T * ATTN_T; j < hi; j += ATTN_T)
        paged_tile(a, s, &b, a->seq[r0], j, hi, g, kt, v, NULL);
    for (int64_t r = r0; r < r1; r++)
        for (int64_t h = h0; h < h1; h++)
            LF_SYM(attn_block_out)
    (&b, s, i++, sink_of(a, h), lf_at_w(a->o, r * a->ldo + h * a->d_value, t));
}

/* Row r, groups [g0, g1): tiles outside, groups inside. */
static void paged_row(const struct lf_k_attn_paged *a, const struct attn_shape *s, int64_t r,
                      int64_t g0, int64_t g1, float *mem)
{
    const uint8_t t = a->x_type;
    const int64_t per = a->heads / a->groups, seq = a->seq[r], len = row_keys(a, r);
    const size_t floats = LF_SYM(attn_block_floats)(s, per);
    float *kt = mem, *v = kt + s->kd * ATTN_T, *blocks = v + ATTN_T * s->dvp;
    struct attn_block b;
    int64_t lo = 0;
    for (int64_t g = g0; g < g1; g++) {
        LF_SYM(attn_block_init)(&b, blocks + (size_t)(g - g0) * floats, s, per);
        for (int64_t h = g * per; h < (g + 1) * per; h++) {
            LF_SYM(attn_block_add)
            (&b, s, lf_at(a->q, r * a->ldq + h * a->d, t), a->alibi ? a->alibi[h] : 0.0f, a->pos[r],
             len, row_more(a, r));
            if (b.bias)
                b.bias[b.n - 1] = a->bias.table + h;
        }
        lo = b.lo[0];
    }
    for (int64_t j = lo / ATTN_T * ATTN_T; j < len; j += ATTN_T) {
        struct attn_ahead ahead = ahead_of(a, s, seq, j + ATTN_T, len, g0, g1);
        for (int64_t g = g0; g < g1; g++) {
            LF_SYM(attn_block_init)(&b, blocks + (size_t)(g - g0) * floats, s, per);
            b.n = per;
            paged_tile(a, s, &b, seq, j, len, g, kt, v, &ahead);
        }
    }
    for (int64_t g = g0; g < g1; g++) {
        LF_SYM(attn_block_init)(&b, blocks + (size_t)(g - g0) * floats, s, per);
        for (int64_t h = 0; h < per; h++)
            LF_SYM(attn_block_out)
        (&b, s, h, sink_of(a, g * per + h),
         lf_at_w(a->o, r * a->ldo + (g * per + h) * a->d_value, t));
    }
}

/* End of the run of rows from r0 that share a sequence, at most `most` rows. */
static int64_t run_end(const struct lf_k_attn_paged *a, int64_t r0, int64_t most)
{
    int64_t r = r0 + 1;
    while (r < a->rows && r - r0 < most && a->seq[r] == a->seq[r0])
        r++;
    return r;
}

static void zero_row(const struct lf_k_attn_paged *a, int64_t r)
{
    memset(lf_at_w(a->o, r * a->ldo, a->x_type), 0,
           (size_t)(a->heads * a->d_value) * lf_dtype_size((enum lf_dtype)a->x_type));
}

/* Pieces of a run of rows that threads may take: ranges of groups for a lone row, else (group, part
 * of its heads). All heads of a lone row may be of one group: threads then have parts of them. */
struct pieces {
    int64_t n, hc, parts; /* pieces; heads in a part; parts of a group */
};

static struct pieces pieces_of(const struct lf_k_attn_paged *a, int64_t rows, int team)
{
    const int64_t per = a->heads / a->groups, want = (team + a->rows - 1) / a->rows;
    int64_t hc = per < ATTN_QB ? per : ATTN_QB;
    if (rows == 1 && a->groups == 1 && want > 1 && (per + want - 1) / want < hc)
        hc = (per + want - 1) / want < ATTN_MR ? ATTN_MR : (per + want - 1) / want;
    hc = hc < per ? hc : per;
    const int64_t parts = (per + hc - 1) / hc;
    struct pieces p = {a->groups * parts, hc, parts};
    if (rows == 1 && parts == 1)
        p.n = want < a->groups ? want : a->groups;
    return p;
}

static void run_piece(const struct lf_k_attn_paged *a, const struct attn_shape *s,
                      const struct pieces *p, int64_t r0, int64_t r1, int64_t i, float *mem)
{
    if (a->seq[r0] < 0) {
        for (int64_t r = r0; r < r1 && i == 0; r++)
            zero_row(a, r);
        return;
    }
    if (r1 - r0 == 1 && p->parts == 1) {
        paged_row(a, s, r0, a->groups * i / p->n, a->groups * (i + 1) / p->n, mem);
        return;
    }
    const int64_t per = a->heads / a->groups, g = i / p->parts, h0 = g * per + i % p->parts * p->hc;
    paged_block(a, s, r0, r1, g, h0, h0 + p->hc < (g + 1) * per ? h0 + p->hc : (g + 1) * per, mem);
}

struct paged {
    const struct lf_k_attn_paged *a;
    struct attn_shape s;
    int team;
    int64_t next;
};

/* Takes pieces, those of each run of rows one after the other. */
static void run_pieces(void *arg, int member)
{
    struct paged *w = arg;
    const struct lf_k_attn_paged *a = w->a;
    float *mem = (float *)a->work + (size_t)member * thread_floats(a, &w->s);
    int64_t mine = lf_take(&w->next), n = 0, r1;
    for (int64_t r0 = 0; r0 < a->rows; r0 = r1) {
        const int64_t per = a->heads / a->groups;
        r1 = run_end(a, r0, per < ATTN_QB ? ATTN_QB / per : 1);
        const struct pieces p = pieces_of(a, r1 - r0, w->team);
        for (; mine < n + p.n; mine = lf_take(&w->next))
            run_piece(a, &w->s, &p, r0, r1, mine - n, mem);
        n += p.n;
    }
}

int LF_SYM(attn_paged)(lf_queue *q, const struct lf_k_attn_paged *a)
{
    const int team = lf_team(q, a->rows * a->heads * (a->d + a->d_value) * 2048);
    if (a->rows == 0)
        return LF_K_OK;
    if (a->work_bytes < LF_SYM(attn_paged_work)(a, team))
        return LF_K_EINVAL;
    lf_team_call(q, team, run_pieces, &(struct paged){a, shape_of(a), team, 0});
    return LF_K_OK;
}
