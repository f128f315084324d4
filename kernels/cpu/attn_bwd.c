/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over packed documents, backward. The probabilities are made again from lse:
 *     p = exp(score - lse)      dv_j = sum_i p_ij do_i      dp_ij = do_i . v_j      delta_i = do_i
 *                               . o_i
 *     ds_ij = p_ij (dp_ij - delta_i) * scale (* softcap slope)      dq_i = sum_j ds_ij k_j
 *       dk_j = sum_i ds_ij q_i
 * With dropout m_ij: dv_j = sum_i m_ij p_ij do_i, and m_ij dp_ij stands for dp_ij; delta_i is as it
 * was. The gradient of a bias is that of the scores behind scale and softcap, p_ij (dp_ij -
 * delta_i), added up by j - i, or by the rows of the table where places stand for both.
 * One thread does a whole (document, group): heads ascending, in each the key tiles ascending,
 * in each the query blocks ascending. All sums therefore run in one order, whatever the threads;
 * threads draw (document, group) from a counter. Where there is a bias whose gradient is wanted,
 * one thread does a group of all documents, as that gradient is a sum over them.
 */
#include "config.h"

#include <math.h>

#include "kernels/cpu/attn.h"

LF_CPU_DECLARE(attn_bwd)
LF_CPU_DECLARE(attn_sinks_bwd)

LF_NO_WORK(attn_sinks_bwd)

int LF_SYM(attn_bwd_check)(const struct lf_k_attn_bwd *a)
{
    const int64_t hd = a->heads * a->d, gd = a->groups * a->d, he = a->heads * a->d_value,
                  ge = a->groups * a->d_value;
    bool ok = a->rows >= 0 && attn_heads_ok(a->heads, a->groups, a->d, a->d_value) &&
              a->n_docs >= 0 && a->ldq >= hd && a->ldo >= he && a->lddo >= he && a->lddq >= hd &&
              a->ldk >= gd && a->ldv >= ge && a->lddk >= gd && a->lddv >= ge &&
              a->softcap >= 0.0f && lf_is_float(a->x_type) && a->rows < INT32_MAX &&
              attn_drop_ok(&a->drop, a->heads, a->rows) && attn_own_ok(&a->own, a->rows) &&
              attn_bias_ok(&a->bias) && ATTN_APART_OK(a) && (a->bias.reach || !a->dbias);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

/* One thread's memory for a document of up to `rows` rows of keys and queries, in floats. */
struct space {
    const lf_queue *q;
    float *kt, *vt,
        *kr; /* panels of keys and values: [tile][kd][64], [tile][kdv][64], [tile][64 / ku][dp] */
    float *qr, *dor;     /* row panels of q, [rows / ku][dp], and do, [rows / ku][dvp], of a head */
    float *dq, *dk, *dv; /* running gradients [rows][dp]; dv: [rows][dvp] */
    float *delta;        /* [rows] */
    float *s, *dp;       /* [ATTN_QB][64] scores -> p; dp -> ds */
    float *pc, *dsc;     /* with pairs: p and ds as pairs of rows, [ATTN_QB / 2][64] */
    /* with dbias: sums of a head's gradients of scores by j - i, [2 rows + 64]; with places by rows
     * of the table, [2 reach] */
    float *far;
};

static size_t far_floats(const struct lf_k_attn_bwd *a, int64_t rows)
{
    return (size_t)(2 * (a->bias.place ? a->bias.reach : rows) + ATTN_T);
}

static size_t space_init(struct space *w, const struct lf_k_attn_bwd *a, const struct attn_shape *s,
                         float *mem)
{
    const size_t rows = (size_t)(attn_tiles(attn_key_rows(&a->own, a->rows)) * ATTN_T),
                 dp = (size_t)s->dp,
                 own = (size_t)(attn_tiles(attn_own_rows(&a->own, a->rows)) * ATTN_T),
                 e = (size_t)s->dvp, block = ATTN_QB * ATTN_T;
    float **field[] = {&w->kt, &w->vt,    &w->kr, &w->qr, &w->dor, &w->dq,  &w->dk,
                       &w->dv, &w->delta, &w->s,  &w->dp, &w->pc,  &w->dsc, &w->far};
    const size_t size[] = {rows * (size_t)s->kd,
                           rows * (size_t)s->kdv,
                           rows * dp,
                           own * dp,
                           own * e,
                           own * dp,
                           rows * dp,
                           rows * e,
                           own,
                           block,
                           block,
                           block,
                           block,
                           a->dbias ? far_floats(a, (int64_t)rows) : 0};
    size_t n = 0;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        *field[i] = mem ? mem + n : NULL;
        n += size[i];
    }
    return n;
}

static struct attn_shape shape_of(const struct lf_k_attn_bwd *a)
{
    return ATTN_SHAPE_OF(a, a->causal);
}

size_t LF_SYM(attn_bwd_work)(const struct lf_k_attn_bwd *a, int threads)
{
    struct attn_shape s = shape_of(a);
    struct space w;
    return (size_t)threads * space_init(&w, a, &s, NULL) * sizeof(float);
}

struct doc {
    int64_t row, len, prefix;
    const int32_t *runs;     /* of its rows, or NULL */
    struct attn_there there; /* its keys that are there, from a tile on */
    struct attn_part part;   /* the queries that are looked at */
    bool apart;              /* they have an axis of their own */
};

static struct doc doc_at(const struct lf_k_attn_bwd *a, int64_t i)
{
    int64_t b = a->cu_seqlens[i], e = a->cu_seqlens[i + 1];
    e = e > a->rows ? a->rows : e;
    int64_t lo, hi;
    attn_key_span(&a->own, a->rows, b, e, &lo, &hi);
    e = lo < hi ? e : b;
    return (struct doc){.row = b,
                        .len = e > b ? e - b : 0,
                        .there = attn_there(&a->own, b, e > b ? e - b : 0),
                        .prefix = a->prefix ? a->prefix[i] : 0,
                        .runs = a->runs ? a->runs + 2 * b : NULL,
                        .apart = a->own.cu != NULL};
}

static void pack_keys(const struct lf_k_attn_bwd *a, const struct attn_shape *s,
                      const struct space *w, struct doc d, int64_t g)
{
    const uint8_t t = a->x_type;
    const int64_t size = (int64_t)lf_dtype_size((enum lf_dtype)t), ku = s->pairs ? 2 : 1;
    const int64_t row0 = attn_key_at(&a->own, d.row + d.there.from),
                  rows = d.there.end - d.there.from;
    for (int64_t j = 0; j < rows; j += ATTN_T) {
        int64_t n = rows - j < ATTN_T ? rows - j : ATTN_T;
        const struct attn_rows k = {lf_at(a->k, (row0 + j) * a->ldk + g * a->d, t), a->ldk * size,
                                    n, a->d},
                               v = {lf_at(a->v, (row0 + j) * a->ldv + g * a->d_value, t),
                                    a->ldv * size, n, a->d_value};
        LF_SYM(attn_pack_cols)(w->kt + j * s->kd, &k, s, NULL);
        LF_SYM(attn_pack_cols)(w->vt + j * s->kdv, &v, s, NULL);
        LF_SYM(attn_pack_rows)(w->kr + j / ku * s->dp, &k, ATTN_T, s);
    }
}

/* do . o of a row and head. */
static float row_delta(const void *o, const void *go, int64_t d_value, uint8_t t)
{
    lf_v sum = lf_v_zero();
    LF_EACH_VEC(c, n, d_value) sum = lf_v_fma(lf_get(o, c, t, n), lf_get(go, c, t, n), sum);
    return lf_v_hsum(sum);
}

/* Row panels of q and do, delta, and a cleared dq for one head and part. */
static void pack_head(const struct lf_k_attn_bwd *a, const struct attn_shape *s,
                      const struct space *w, struct doc d, int64_t h)
{
    const uint8_t t = a->x_type;
    const int64_t size = (int64_t)lf_dtype_size((enum lf_dtype)t), n = d.part.n, row = d.part.row,
                  even = (n + 1) / 2 * 2;
    const struct attn_rows q = {lf_at(a->q, row * a->ldq + h * a->d, t), a->ldq * size, n, a->d},
                           d_o = {lf_at(a->d_o, row * a->lddo + h * a->d_value, t), a->lddo * size,
                                  n, a->d_value};
    LF_SYM(attn_pack_rows)(w->qr, &q, s->pairs ? even : n, s);
    LF_SYM(attn_pack_rows)(w->dor, &d_o, s->pairs ? even : n, s);
    for (int64_t i = 0; i < n; i++)
        w->delta[i] =
            row_delta(lf_at(a->o, (row + i) * a->ldo + h * a->d_value, t),
                      lf_at(a->d_o, (row + i) * a->lddo + h * a->d_value, t), a->d_value, t);
    memset(w->dq, 0, (size_t)(n * s->dp) * sizeof(float));
}

/* One tile of keys against one block of query rows of head h. */
struct pair {
    int64_t h, i0, nq, j0; /* rows i0 .. i0 + nq, keys from j0, in the document */
    int64_t at;            /* i0 in the part of the document */
    bool open;             /* some rows may see keys behind their own: of a prefix, or of a run */
};

/* Adds gradients of the scores of query i, of keys [lo, hi) of the tile, to the rows of the table
 * that the scores had numbers of. */
static void add_by_place(const struct lf_k_attn_bwd *a, float *far, const struct attn_places *p,
                         const struct pair *b, int64_t i, const float *ds)
{
    const int64_t end = p->len - b->j0 < ATTN_T ? p->len - b->j0 : ATTN_T;
    for (int64_t c = 0; c < end; c++)
        far[attn_bias_row(a->bias.reach, (int64_t)p->place[b->j0 + c] - p->place[i])] += ds[c];
}

/* p and ds of the block from its scores and dp, rounded as products will read them. */
static void block_grads(const struct lf_k_attn_bwd *a, const struct attn_shape *s,
                        const struct space *w, struct doc d, const struct pair *b)
{
    const float slope = a->alibi ? a->alibi[b->h] : 0.0f;
    const bool bf = s->x_type == LF_BF16;
    const struct attn_places places = {a->bias.place ? a->bias.place + d.row : NULL, d.len};
    float add[ATTN_T], grads[ATTN_T] = {0};
    for (int64_t r = 0; r < b->nq; r++) {
        const int64_t i = b->i0 + r, at = b->at + r, row = d.part.row + at;
        int64_t lo, hi;
        const struct attn_more more = {d.prefix, d.runs ? d.runs + 2 * i : NULL};
        attn_range(s, i, d.len, more, &lo, &hi);
        lo -= b->j0;
        hi -= b->j0;
        if (s->reach)
            attn_bias_tile(add, a->bias.table + b->h, s, &places, i, b->j0);
        const lf_v lse = lf_v_set1(a->lse[b->h * attn_own_rows(&a->own, a->rows) + row]),
                   delta = lf_v_set1(w->delta[at]), scale = lf_v_set1(s->scale);
        float *ps = w->s + r * ATTN_T, *pd = w->dp + r * ATTN_T, keep[ATTN_T];
        float *far = !a->dbias ? NULL : places.place ? grads : w->far + (b->j0 - i + d.len - 1);
        const bool drop = a->drop.p > 0.0f;
        if (drop)
            LF_SYM(attn_drop_tile)(keep, &a->drop, row, b->h, b->j0);
        for (int64_t c = 0; c < ATTN_T; c += LF_VL) {
            lf_v p = lf_v_zero(), ds = p;
            if (lo < c + LF_VL && hi > c) {
                lf_v slope_cap = lf_v_set1(1.0f);
                p = lf_v_exp(attn_score(s, lf_v_load(ps + c), slope, s->reach ? add + c : NULL, i,
                                        b->j0 + c, &slope_cap) -
                             lse);
                if (lo > c || hi < c + LF_VL) {
                    lf_vi lane = lf_vi_iota() + lf_vi_set1((int32_t)c);
                    p = lf_v_select((lane >= lf_vi_set1((int32_t)lo)) &
                                        (lane < lf_vi_set1((int32_t)hi)),
                                    p, lf_v_zero());
                }
                if (drop) {
                    lf_v m = lf_v_load(keep + c);
                    ds = p * (lf_v_load(pd + c) * m - delta);
                    p *= m;
                } else {
                    ds = p * (lf_v_load(pd + c) - delta);
                }
                if (far)
                    lf_v_store(far + c, places.place ? ds : lf_v_load(far + c) + ds);
                ds *= scale;
                if (s->softcap > 0.0f)
                    ds *= slope_cap;
            }
            lf_v_store(ps + c, lf_vt_round(p, bf));
            lf_v_store(pd + c, lf_vt_round(ds, bf));
        }
        if (far == grads)
            add_by_place(a, w->far, &places, b, i, grads);
    }
}

/* pairs: [r][64] f32 (already rounded) -> pairs of rows [r / 2][64]; with `rows_too`, also in place
 * as bf16 rows of pairs of columns. */
static void to_pairs(float *dst, float *src, int64_t nq, bool rows_too)
{
    for (int64_t r = 0; r < nq; r += 2)
        for (int64_t c = 0; c < ATTN_T; c += LF_VL) {
            lf_vu lo = (lf_vu)lf_v_load(src + r * ATTN_T + c) >> 16;
            lf_vu hi = r + 1 < nq ? (lf_vu)lf_v_load(src + (r + 1) * ATTN_T + c) & 0xffff0000u
                                  : (lf_vu){0};
            lf_v_store(dst + r / 2 * ATTN_T + c, (lf_v)(lo | hi));
        }
    for (int64_t r = 0; rows_too && r < nq; r++)
        for (int64_t c = 0; c < ATTN_T; c += LF_VL)
            lf_v_store_bf16((uint16_t *)(void *)(src + r * ATTN_T) + c,
                            lf_v_load(src + r * ATTN_T + c));
}

/* Rows of a block whose causal diagonal crosses the tile go strip by strip, each over the keys that
 * it can see. */
static bool on_diagonal(const struct attn_shape *s, const struct pair *b)
{
    return s->causal && !b->open && b->i0 < b->j0 + ATTN_T;
}

/* C = A B over the tile's columns; a strip of a diagonal block leaves columns beyond its last row's
 * key alone. */
static void mm_scores(struct attn_mm *g, const struct attn_shape *s, const struct pair *b)
{
    if (!on_diagonal(s, b)) {
        LF_SYM(attn_mm)(g);
        return;
    }
    struct attn_mm t = *g;
    for (int64_t r = 0; r < b->nq; r += ATTN_MR) {
        int64_t cols = (b->i0 + r + ATTN_MR - b->j0 + 15) / 16 * 16;
        t.m = b->nq - r < ATTN_MR ? b->nq - r : ATTN_MR;
        t.n = cols < ATTN_T ? cols : ATTN_T;
        t.a = (const char *)g->a + r * g->ars;
        t.c = g->c + r * g->ldc;
        LF_SYM(attn_mm)(&t);
    }
}

/* dq += ds K: a strip of a diagonal block stops at its last row's key. */
static void mm_query(struct attn_mm *g, const struct attn_shape *s, const struct pair *b,
                     int64_t ku)
{
    if (!on_diagonal(s, b)) {
        LF_SYM(attn_mm)(g);
        return;
    }
    struct attn_mm t = *g;
    for (int64_t r = 0; r < b->nq; r += ATTN_MR) {
        int64_t keys = b->i0 + r + ATTN_MR - b->j0;
        t.m = b->nq - r < ATTN_MR ? b->nq - r : ATTN_MR;
        t.k = (keys < ATTN_T ? keys + ku - 1 : ATTN_T) / ku;
        t.a = (const char *)g->a + r * g->ars;
        t.c = g->c + r * g->ldc;
        LF_SYM(attn_mm)(&t);
    }
}

/* dv += p^T do, dk += ds^T q: a strip of keys of a diagonal block starts at its first key's row. */
static void mm_keys(struct attn_mm *g, const struct attn_shape *s, const struct pair *b, int64_t ku)
{
    if (!on_diagonal(s, b)) {
        LF_SYM(attn_mm)(g);
        return;
    }
    struct attn_mm t = *g;
    for (int64_t j = 0; j < ATTN_T; j += ATTN_MR) {
        int64_t row = b->j0 + j - b->i0, first = row > 0 ? row / ku : 0;
        if (first >= g->k)
            break;
        t.m = ATTN_T - j < ATTN_MR ? ATTN_T - j : ATTN_MR;
        t.k = g->k - first;
        t.a = (const char *)g->a + j * g->ars + first * g->acs;
        t.b = g->b + first * g->ldb;
        t.c = g->c + j * g->ldc;
        LF_SYM(attn_mm)(&t);
    }
}

static void block_products(const struct lf_k_attn_bwd *a, const struct attn_shape *s,
                           const struct space *w, struct doc d, const struct pair *b)
{
    const uint8_t t = a->x_type;
    /* j0 here counts from the first key that is there */
    const int64_t dp = s->dp, dvp = s->dvp, ku = s->pairs ? 2 : 1, at = b->at,
                  j0 = b->j0 - d.there.from, row = d.part.row + at;
    struct attn_mm g = {.m = b->nq,
                        .n = ATTN_T,
                        .k = s->kd,
                        .a = w->qr + at * dp,
                        .ars = dp * 4,
                        .acs = 4,
                        .b = w->kt + j0 * s->kd,
                        .ldb = ATTN_T,
                        .c = w->s,
                        .ldc = ATTN_T,
                        .pairs = s->pairs,
                        .init = ATTN_ZERO};
    if (s->pairs) {
        g.a = lf_at(a->q, row * a->ldq + b->h * a->d, t);
        g.ars = a->ldq * 2;
    }
    mm_scores(&g, s, b);
    g.a = w->dor + at * dvp;
    g.ars = dvp * 4;
    if (s->pairs) {
        g.a = lf_at(a->d_o, row * a->lddo + b->h * a->d_value, t);
        g.ars = a->lddo * 2;
    }
    g.k = s->kdv;
    g.b = w->vt + j0 * s->kdv;
    g.c = w->dp;
    mm_scores(&g, s, b);
    block_grads(a, s, w, d, b);
    if (s->pairs) {
        to_pairs(w->pc, w->s, b->nq, false);
        to_pairs(w->dsc, w->dp, b->nq, true);
    }
    struct attn_mm gk = {.m = ATTN_T,
                         .n = dvp,
                         .k = (b->nq + ku - 1) / ku,
                         .a = s->pairs ? w->pc : w->s,
                         .ars = 4,
                         .acs = ATTN_T * 4,
                         .b = w->dor + at / ku * dvp,
                         .ldb = dvp,
                         .c = w->dv + j0 * dvp,
                         .ldc = dvp,
                         .pairs = s->pairs,
                         .init = ATTN_ADD};
    mm_keys(&gk, s, b, ku);
    gk.a = s->pairs ? w->dsc : w->dp;
    gk.n = gk.ldb = gk.ldc = dp;
    gk.b = w->qr + at / ku * dp;
    gk.c = w->dk + j0 * dp;
    mm_keys(&gk, s, b, ku);
    struct attn_mm gq = {.m = b->nq,
                         .n = dp,
                         .k = ATTN_T / ku,
                         .a = w->dp,
                         .ars = ATTN_T * 4,
                         .acs = 4,
                         .b = w->kr + j0 / ku * dp,
                         .ldb = dp,
                         .c = w->dq + at * dp,
                         .ldc = dp,
                         .pairs = s->pairs,
                         .init = ATTN_ADD};
    mm_query(&gq, s, b, ku);
}

/* Rows of d channels of a running gradient to storage. */
static void put_rows(void *dst, int64_t ld, const float *src, int64_t rows, int64_t d,
                     uint8_t x_type)
{
    for (int64_t r = 0; r < rows; r++) {
        const float *row = src + r * attn_dp(d);
        if (x_type == LF_F32)
            LF_EACH_VEC(c, n, d) lf_put(dst, r * ld + c, LF_F32, n, lf_v_load(row + c));
        else
            LF_EACH_VEC(c, n, d) lf_put(dst, r * ld + c, LF_BF16, n, lf_v_load(row + c));
    }
}

/* The rows [*first, *end) of the part that see some key of the tile at j0. Pairs of rows stay
 * together. */
static void rows_seeing(const struct attn_shape *s, const struct doc *d, int64_t j0, int64_t *first,
                        int64_t *end)
{
    if (d->apart) {
        *first = 0;
        *end = d->part.n;
        return;
    }
    const int64_t last = j0 + ATTN_T - 1;
    *first = s->causal && j0 >= d->prefix ? j0 : 0;
    *end = attn_past(s, last, d->len);
    if (j0 < d->prefix && *end < d->prefix)
        *end = d->prefix < d->len ? d->prefix : d->len;
    if (d->runs && d->runs[2 * j0] < *first)
        *first = d->runs[2 * j0] > 0 ? d->runs[2 * j0] / 2 * 2 : 0;
    const int64_t pos = d->part.pos, past = pos + d->part.n;
    *first = *first > pos ? pos + (*first - pos) / 2 * 2 : pos;
    *end = *end < past ? *end : past;
}

/* Does one of these rows see keys behind its own? */
static bool sees_ahead(const struct doc *d, int64_t i0, int64_t n)
{
    bool ahead = false;
    for (int64_t i = i0; d->runs && i < i0 + n && !ahead; i++)
        ahead = d->runs[2 * i + 1] > i + 1;
    return ahead;
}

/* One head's queries of a part of a document: their dq, and what they add to dk and dv. */
static void run_part(const struct lf_k_attn_bwd *a, const struct attn_shape *s,
                     const struct space *w, struct doc d, int64_t h)
{
    const uint8_t t = a->x_type;
    pack_head(a, s, w, d, h);
    for (int64_t j0 = d.there.from; j0 < d.there.end; j0 += ATTN_T) {
        int64_t first, end;
        rows_seeing(s, &d, j0, &first, &end);
        for (int64_t i0 = first; i0 < end; i0 += ATTN_QB) {
            const int64_t nq = end - i0 < ATTN_QB ? end - i0 : ATTN_QB;
            lf_border(w->q);
            struct pair b = {.h = h,
                             .i0 = i0,
                             .nq = nq,
                             .j0 = j0,
                             .at = i0 - d.part.pos,
                             .open = j0 < d.prefix || sees_ahead(&d, i0, nq)};
            block_products(a, s, w, d, &b);
        }
    }
    put_rows(lf_at_w(a->dq, d.part.row * a->lddq + h * a->d, t), a->lddq, w->dq, d.part.n, s->d, t);
}

static void zero_rows(void *p, int64_t ld, int64_t width, int64_t lo, int64_t hi, uint8_t t)
{
    for (int64_t r = lo; r < hi; r++)
        memset(lf_at_w(p, r * ld, t), 0, (size_t)width * lf_dtype_size((enum lf_dtype)t));
}

/* Of a document's keys; those before the first whole tile that is there get zeros. */
static void put_grads(const struct lf_k_attn_bwd *a, const struct attn_shape *s,
                      const struct space *w, struct doc d, int64_t g)
{
    const uint8_t t = a->own.first ? LF_F32 : a->x_type;
    const int64_t n = d.there.end - d.there.from;
    int64_t lo, hi;
    attn_key_span(&a->own, a->rows, d.row, d.row + d.len, &lo, &hi);
    void *dk = lf_at_w(a->dk, g * a->d, t), *dv = lf_at_w(a->dv, g * a->d_value, t);
    zero_rows(dk, a->lddk, a->d, lo, hi - n, t);
    zero_rows(dv, a->lddv, a->d_value, lo, hi - n, t);
    put_rows(lf_at_w(dk, (hi - n) * a->lddk, t), a->lddk, w->dk, n, s->d, t);
    put_rows(lf_at_w(dv, (hi - n) * a->lddv, t), a->lddv, w->dv, n, s->dv, t);
}

/* Adds the sums by j - i, of a document of len keys, to the rows of the table that they go by; with
 * places they are by those rows. */
static void fold_bias(const struct lf_k_attn_bwd *a, const struct space *w, int64_t len, int64_t h)
{
    const int64_t most = a->bias.place ? a->bias.reach - 1 : len - 1;
    for (int64_t x = 0; x < 2 * most + 1; x++)
        a->dbias[attn_bias_row(a->bias.reach, x - most) * a->heads + h] += w->far[x];
}

static void run_group(const struct lf_k_attn_bwd *a, const struct attn_shape *s,
                      const struct space *w, struct doc d, int64_t i, int64_t g)
{
    const int64_t per = a->heads / a->groups,
                  rows = attn_tiles(d.there.end - d.there.from) * ATTN_T;
    if (attn_part_next(&a->own, i, d.row, d.len, &(struct attn_part){0}))
        pack_keys(a, s, w, d, g);
    memset(w->dk, 0, (size_t)(rows * s->dp) * sizeof(float));
    memset(w->dv, 0, (size_t)(rows * s->dvp) * sizeof(float));
    for (int64_t h = g * per; h < (g + 1) * per; h++) {
        d.part = (struct attn_part){0};
        if (a->dbias)
            memset(w->far, 0, far_floats(a, d.len) * sizeof(float));
        while (attn_part_next(&a->own, i, d.row, d.len, &d.part))
            run_part(a, s, w, d, h);
        if (a->dbias)
            fold_bias(a, w, d.len, h);
    }
    put_grads(a, s, w, d, g);
}

struct bwd {
    lf_queue *q;
    const struct lf_k_attn_bwd *a;
    struct attn_shape s;
    int64_t next;
};

/* Is there anything to do for document i? */
static bool has_rows(const struct lf_k_attn_bwd *a, const struct doc *d, int64_t i)
{
    return d->len > 0 || (d->apart && attn_part_apart(&a->own, i, &(struct attn_part){0}));
}

/* Takes groups of heads, those of each document one after the other. */
static void run_groups(void *arg, int member)
{
    struct bwd *b = arg;
    const struct lf_k_attn_bwd *a = b->a;
    struct space w;
    const size_t floats = space_init(&w, a, &b->s, NULL);
    space_init(&w, a, &b->s, (float *)a->work + (size_t)member * floats);
    w.q = b->q;
    int64_t mine = lf_take(&b->next), n = 0;
    for (int64_t i = 0; i < a->n_docs; i++) {
        struct doc d = doc_at(a, i);
        if (!has_rows(a, &d, i))
            continue;
        for (; mine < n + a->groups; mine = lf_take(&b->next))
            run_group(a, &b->s, &w, d, i, mine - n);
        n += a->groups;
    }
}

/* The same, each group of all documents one after the other. */
static void run_whole_groups(void *arg, int member)
{
    struct bwd *b = arg;
    const struct lf_k_attn_bwd *a = b->a;
    const int64_t per = a->heads / a->groups;
    struct space w;
    const size_t floats = space_init(&w, a, &b->s, NULL);
    space_init(&w, a, &b->s, (float *)a->work + (size_t)member * floats);
    w.q = b->q;
    for (int64_t g = lf_take(&b->next); g < a->groups; g = lf_take(&b->next)) {
        for (int64_t r = 0; r < 2 * a->bias.reach - 1; r++)
            for (int64_t h = g * per; h < (g + 1) * per; h++)
                a->dbias[r * a->heads + h] = 0;
        for (int64_t i = 0; i < a->n_docs; i++) {
            struct doc d = doc_at(a, i);
            if (has_rows(a, &d, i))
                run_group(a, &b->s, &w, d, i, g);
        }
    }
}

int LF_SYM(attn_bwd)(lf_queue *q, const struct lf_k_attn_bwd *a)
{
    struct bwd b = {.q = q, .a = a, .s = shape_of(a)};
    const int64_t own = attn_own_rows(&a->own, a->rows);
    const int team = lf_team(q, own * a->heads * (a->d + a->d_value) * 32);
    if (a->rows == 0 && own == 0 && !a->dbias)
        return LF_K_OK;
    if (a->work_bytes < LF_SYM(attn_bwd_work)(a, team))
        return LF_K_EINVAL;
    lf_team_call(q, team, a->dbias ? run_whole_groups : run_groups, &b);
    const int64_t first = a->cu_seqlens[a->n_docs], /* row after the last document */
        end = attn_own_end(&a->own, a->cu_seqlens, a->n_docs);
    const uint8_t t = a->own.first ? LF_F32 : a->x_type;
    int64_t pads = own;
    while (pads > 0 && attn_own_pads(&a->own, pads - 1, end))
        pads--;
    zero_rows(a->dq, a->lddq, a->heads * a->d, pads, own, a->x_type);
    int64_t lo, hi;
    attn_key_span(&a->own, a->rows, first, a->rows, &lo, &hi);
    zero_rows(a->dk, a->lddk, a->groups * a->d, lo, hi, t);
    zero_rows(a->dv, a->lddv, a->groups * a->d_value, lo, hi, t);
    return LF_K_OK;
}

int LF_SYM(attn_sinks_bwd_check)(const struct lf_k_attn_sinks_bwd *a)
{
    const int64_t he = a->heads * a->d_value;
    bool ok = a->rows >= 0 && a->heads > 0 && a->d_value > 0 && a->ldo >= he && a->lddo >= he &&
              a->ldds >= a->heads && lf_is_float(a->x_type);
    return ok ? LF_K_OK : LF_K_EINVAL;
}

static void sinks_rows(lf_queue *q, const void *arg, int64_t lo, int64_t hi)
{
    const struct lf_k_attn_sinks_bwd *a = arg;
    (void)q;
    const uint8_t t = a->x_type;
    for (int64_t r = lo; r < hi; r++) {
        for (int64_t h = 0; h < a->heads; h++) {
            const float lse = a->lse[h * a->rows + r];
            a->ds[r * a->ldds + h] =
                lse == -INFINITY
                    ? 0.0f
                    : -expf(a->sinks[h] - lse) *
                          row_delta(lf_at(a->o, r * a->ldo + h * a->d_value, t),
                                    lf_at(a->d_o, r * a->lddo + h * a->d_value, t), a->d_value, t);
        }
    }
}

int LF_SYM(attn_sinks_bwd)(lf_queue *q, const struct lf_k_attn_sinks_bwd *a)
{
    lf_deal(q, lf_team(q, a->rows * a->heads * a->d_value * 2), a->rows,
            lf_few_rows(a->heads * a->d_value), sinks_rows, a);
    return LF_K_OK;
}
