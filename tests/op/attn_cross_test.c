/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention whose queries are rows of another axis (cross attention), and with a bias by distance,
 * against the formulas in f64: forward, backward, the gradient of the bias; the same bits for any
 * number of threads, and over a paged cache. On CPUs alone. */
#include "config.h"

#include "tests/op/op_test.h"

enum { DOCS = 4, HEADS = 4, GROUPS = 2, D = 8, E = 6, GAP = 3, PAGE = LF_ATTN_TILE };

/* Queries of document i are rows [cq[i], cq[i + 1]); behind the last one are 5 rows of padding. */
struct one {
    const char *name;
    int32_t cq[DOCS + 1], ck[DOCS + 1];
    bool apart, causal;
    int64_t reach;
    double softcap;
    bool places; /* of keys and queries, and not where they stand, decide the bias */
};
static const struct one cases[] = {
    {"cross", {0, 13, 17, 67, 67}, {0, 70, 70, 200, 205}, true, false, 0, 0, false},
    {"cross, softcap", {0, 1, 1, 130, 190}, {0, 3, 8, 9, 75}, true, false, 0, 2, false},
    {"bias, causal", {0, 150, 150, 151, 190}, {0, 150, 150, 151, 190}, false, true, 9, 0, false},
    {"bias, both ways",
     {0, 150, 150, 151, 190},
     {0, 150, 150, 151, 190},
     false,
     false,
     9,
     0,
     false},
    {"bias beyond documents",
     {0, 20, 50, 51, 67},
     {0, 20, 50, 51, 67},
     false,
     false,
     400,
     3,
     false},
    {"bias by places", {0, 150, 150, 151, 190}, {0, 150, 150, 151, 190}, false, false, 85, 0, true},
};
enum { CASES = sizeof cases / sizeof *cases, PAD = 5 };

static int64_t rows_of(const int32_t *cu)
{
    return cu[DOCS] + PAD;
}

struct state {
    const struct one *c;
    int type;
    int64_t nq, nk, ldq, ldk, ldv, ldo, table; /* rows, row distances, rows of the table */
    struct op_buf q, k, v, go, bias;
    int32_t *place; /* [nk], or NULL */
    double *o, *dq, *dk, *dv, *dbias, *lse;
};

static double get(const struct op_buf *b, int64_t ld, int64_t row, int64_t col, int type)
{
    return op_get(b->p, row * ld + col, type);
}

static double *zeros(int64_t n)
{
    double *p = calloc((size_t)n + 1, sizeof *p);
    if (!p)
        tap_bail("no memory");
    return p;
}

static int64_t bias_row(const struct one *c, int64_t far)
{
    const int64_t most = c->reach - 1;
    return most + (far < -most ? -most : far > most ? most : far);
}

/* How far key j is behind query i, rows of one document. */
static int64_t far_of(const struct state *s, int64_t qi, int64_t kj)
{
    return s->place ? (int64_t)s->place[kj] - s->place[qi] : kj - qi;
}

static const double scale = 0.4;

/* The score of query i and key j of a document, and its derivative by scale q . k. */
static double score(const struct state *s, int64_t h, int64_t qi, int64_t kj, double *slope)
{
    const struct one *c = s->c;
    double dot = 0;
    for (int64_t x = 0; x < D; x++)
        dot += get(&s->q, s->ldq, qi, h * D + x, s->type) *
               get(&s->k, s->ldk, kj, h / (HEADS / GROUPS) * D + x, s->type);
    double v = scale * dot;
    *slope = 1;
    if (c->softcap > 0) {
        const double t = tanh(v / c->softcap);
        *slope = 1 - t * t;
        v = c->softcap * t;
    }
    return c->reach ? v + op_get(s->bias.p, bias_row(c, far_of(s, qi, kj)) * HEADS + h, LF_F32) : v;
}

/* One query and head: o, lse and all gradients that it has a part in. */
static void reference_row(struct state *s, int64_t doc, int64_t i, int64_t h)
{
    const struct one *c = s->c;
    const int64_t g = h / (HEADS / GROUPS), qi = c->cq[doc] + i, k0 = c->ck[doc],
                  all = c->ck[doc + 1] - k0, keys = c->causal && i + 1 < all ? i + 1 : all;
    double *p = zeros(keys), *slope = zeros(keys), top = -HUGE_VAL, sum = 0, delta = 0;
    for (int64_t j = 0; j < keys; j++)
        top = fmax(top, p[j] = score(s, h, qi, k0 + j, &slope[j]));
    for (int64_t j = 0; j < keys; j++)
        sum += p[j] = exp(p[j] - top);
    s->lse[h * s->nq + qi] = keys ? top + log(sum) : -HUGE_VAL;
    for (int64_t j = 0; j < keys; j++)
        for (int64_t x = 0; x < E; x++)
            s->o[(qi * HEADS + h) * E + x] +=
                p[j] / sum * get(&s->v, s->ldv, k0 + j, g * E + x, s->type);
    for (int64_t x = 0; x < E; x++)
        delta += s->o[(qi * HEADS + h) * E + x] * get(&s->go, s->ldo, qi, h * E + x, s->type);
    for (int64_t j = 0; j < keys; j++) {
        double dp = 0;
        for (int64_t x = 0; x < E; x++) {
            const double go = get(&s->go, s->ldo, qi, h * E + x, s->type);
            dp += go * get(&s->v, s->ldv, k0 + j, g * E + x, s->type);
            s->dv[((k0 + j) * GROUPS + g) * E + x] += p[j] / sum * go;
        }
        const double ds = p[j] / sum * (dp - delta);
        if (c->reach)
            s->dbias[bias_row(c, far_of(s, qi, k0 + j)) * HEADS + h] += ds;
        for (int64_t x = 0; x < D; x++) {
            s->dq[(qi * HEADS + h) * D + x] +=
                ds * scale * slope[j] * get(&s->k, s->ldk, k0 + j, g * D + x, s->type);
            s->dk[((k0 + j) * GROUPS + g) * D + x] +=
                ds * scale * slope[j] * get(&s->q, s->ldq, qi, h * D + x, s->type);
        }
    }
    free(p);
    free(slope);
}

static struct state state_make(const struct one *c, int type)
{
    struct state s = {.c = c, .type = type, .nq = rows_of(c->cq), .nk = rows_of(c->ck)};
    s.ldq = HEADS * D + GAP;
    s.ldk = GROUPS * D + GAP;
    s.ldv = GROUPS * E + GAP;
    s.ldo = HEADS * E + GAP;
    s.table = c->reach ? 2 * c->reach - 1 : 0;
    s.q = op_random(s.nq * s.ldq, type, 1, 2);
    s.k = op_random(s.nk * s.ldk, type, 2, 2);
    s.v = op_random(s.nk * s.ldv, type, 3, 1);
    s.go = op_random(s.nq * s.ldo, type, 4, 1);
    s.bias = op_random(s.table * HEADS, LF_F32, 5, 2);
    s.place = c->places ? calloc((size_t)s.nk, sizeof *s.place) : NULL;
    for (int64_t i = 0; s.place && i < s.nk; i++) /* cells of rows of 7, which are 13 apart */
        s.place[i] = -(int32_t)(i % 49 / 7 * 13 + i % 7);
    s.o = zeros(s.nq * HEADS * E);
    s.dq = zeros(s.nq * HEADS * D);
    s.dk = zeros(s.nk * GROUPS * D);
    s.dv = zeros(s.nk * GROUPS * E);
    s.dbias = zeros(s.table * HEADS);
    s.lse = zeros(s.nq * HEADS);
    for (int64_t i = 0; i < s.nq * HEADS; i++)
        s.lse[i] = -HUGE_VAL;
    for (int64_t doc = 0; doc < DOCS; doc++)
        for (int64_t i = 0; i < c->cq[doc + 1] - c->cq[doc]; i++)
            for (int64_t h = 0; h < HEADS; h++)
                reference_row(&s, doc, i, h);
    return s;
}

static void state_free(struct state *s)
{
    struct op_buf *b[] = {&s->q, &s->k, &s->v, &s->go, &s->bias};
    double *p[] = {s->o, s->dq, s->dk, s->dv, s->dbias, s->lse};
    free(s->place);
    for (size_t i = 0; i < sizeof b / sizeof *b; i++)
        op_free(b[i]);
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        free(p[i]);
}

/* out: o, lse, dq, dk, dv, dbias. */
enum { O, LSE, DQ, DK, DV, DBIAS, OUTS };

static struct lf_k_attn_own own_of(const struct state *s)
{
    return s->c->apart ? (struct lf_k_attn_own){.n = s->nq, .cu = s->c->cq}
                       : (struct lf_k_attn_own){0};
}

static bool forward(const struct lf_kernels *k, const struct state *s, int threads,
                    struct op_buf out[])
{
    const size_t size = lf_dtype_size((enum lf_dtype)s->type);
    out[O] = op_alloc((size_t)(s->nq * s->ldo) * size);
    out[LSE] = op_alloc((size_t)(s->nq * HEADS) * 4);
    struct lf_k_attn_fwd a = {.rows = s->nk,
                              .heads = HEADS,
                              .groups = GROUPS,
                              .d = D,
                              .d_value = E,
                              .n_docs = DOCS,
                              .q = s->q.p,
                              .k = s->k.p,
                              .v = s->v.p,
                              .o = out[O].p,
                              .lse = out[LSE].p,
                              .ldq = s->ldq,
                              .ldk = s->ldk,
                              .ldv = s->ldv,
                              .ldo = s->ldo,
                              .cu_seqlens = s->c->ck,
                              .scale = (float)scale,
                              .softcap = (float)s->c->softcap,
                              .causal = s->c->causal,
                              .x_type = (uint8_t)s->type,
                              .own = own_of(s),
                              .bias = {s->bias.p, s->c->reach, s->place}};
    a.work_bytes = k->attn_fwd.work(&a, threads);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    lf_queue *q = op_queue_create(threads);
    const bool ran =
        k->attn_fwd.check(&a) == 0 && k->attn_fwd.run(q, &a) == 0 && op_guards_intact(&work);
    op_queue_destroy(q);
    op_free(&work);
    return ran;
}

/* From o and lse of the reference, rounded as they are stored. */
static bool backward(const struct lf_kernels *k, const struct state *s, int threads,
                     struct op_buf out[])
{
    const size_t size = lf_dtype_size((enum lf_dtype)s->type);
    struct op_buf o = op_alloc((size_t)(s->nq * s->ldo) * size),
                  lse = op_alloc((size_t)(s->nq * HEADS) * 4);
    for (int64_t r = 0; r < s->nq; r++)
        for (int64_t x = 0; x < HEADS * E; x++)
            op_set(o.p, r * s->ldo + x, s->type, s->o[r * HEADS * E + x]);
    for (int64_t i = 0; i < s->nq * HEADS; i++)
        op_set(lse.p, i, LF_F32, s->lse[i]);
    out[DQ] = op_alloc((size_t)(s->nq * s->ldq) * size);
    out[DK] = op_alloc((size_t)(s->nk * s->ldk) * size);
    out[DV] = op_alloc((size_t)(s->nk * s->ldv) * size);
    out[DBIAS] = op_alloc((size_t)(s->table * HEADS) * 4);
    struct lf_k_attn_bwd a = {.rows = s->nk,
                              .heads = HEADS,
                              .groups = GROUPS,
                              .d = D,
                              .d_value = E,
                              .n_docs = DOCS,
                              .q = s->q.p,
                              .k = s->k.p,
                              .v = s->v.p,
                              .o = o.p,
                              .d_o = s->go.p,
                              .lse = lse.p,
                              .dq = out[DQ].p,
                              .dk = out[DK].p,
                              .dv = out[DV].p,
                              .ldq = s->ldq,
                              .ldk = s->ldk,
                              .ldv = s->ldv,
                              .ldo = s->ldo,
                              .lddo = s->ldo,
                              .lddq = s->ldq,
                              .lddk = s->ldk,
                              .lddv = s->ldv,
                              .cu_seqlens = s->c->ck,
                              .scale = (float)scale,
                              .softcap = (float)s->c->softcap,
                              .causal = s->c->causal,
                              .x_type = (uint8_t)s->type,
                              .own = own_of(s),
                              .bias = {s->bias.p, s->c->reach, s->place},
                              .dbias = s->c->reach ? out[DBIAS].p : NULL};
    a.work_bytes = k->attn_bwd.work(&a, threads);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    lf_queue *q = op_queue_create(threads);
    const bool ran =
        k->attn_bwd.check(&a) == 0 && k->attn_bwd.run(q, &a) == 0 && op_guards_intact(&work);
    op_queue_destroy(q);
    op_free(&work);
    op_free(&o);
    op_free(&lse);
    return ran;
}

/* Largest error over the largest element, row by row of `width` numbers. */
static double error(const struct op_buf *b, int64_t rows, int64_t width, int64_t ld, int type,
                    const double *want)
{
    double worst = op_guards_intact(b) ? 0 : HUGE_VAL, most = 1e-30;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t x = 0; x < width; x++) {
            const double w = want[r * width + x], g = op_get(b->p, r * ld + x, type);
            if (isinf(w) || !isfinite(g)) {
                worst = isinf(w) && g <= w ? worst : HUGE_VAL;
                continue;
            }
            worst = fmax(worst, fabs(g - w));
            most = fmax(most, fabs(w));
        }
    return worst / most;
}

static void test_case(const struct lf_kernels *k, const struct state *s)
{
    struct op_buf out[OUTS] = {{0}}, again[OUTS] = {{0}};
    /* 1 - t^2 of a softcap cancels: 3.9e-6 was measured, and 5e-7 without */
    const double tol = s->type != LF_F32 ? 1.5e-2 : s->c->softcap > 0 ? 8e-6 : 2e-6;
    const char *type = s->type == LF_F32 ? "f32" : "bf16", *name = s->c->name;
    const bool ran = forward(k, s, 1, out) && backward(k, s, 1, out);
    const double e[] = {error(&out[O], s->nq, HEADS * E, s->ldo, s->type, s->o),
                        error(&out[LSE], HEADS, s->nq, s->nq, LF_F32, s->lse),
                        error(&out[DQ], s->nq, HEADS * D, s->ldq, s->type, s->dq),
                        error(&out[DK], s->nk, GROUPS * D, s->ldk, s->type, s->dk),
                        error(&out[DV], s->nk, GROUPS * E, s->ldv, s->type, s->dv),
                        error(&out[DBIAS], s->table, HEADS, HEADS, LF_F32, s->dbias)};
    double worst = 0;
    for (int i = 0; i < OUTS; i++)
        worst = fmax(worst, e[i]);
    tap_ok(ran && worst <= tol,
           "%s, %s, %s: o %.1e, lse %.1e, dq %.1e, dk %.1e, dv %.1e, dbias %.1e", name, k->family,
           type, e[O], e[LSE], e[DQ], e[DK], e[DV], e[DBIAS]);
    bool same = forward(k, s, 3, again) && backward(k, s, 3, again);
    for (int i = 0; i < OUTS; i++) {
        same = same && memcmp(out[i].p, again[i].p, out[i].bytes) == 0;
        op_free(&out[i]);
        op_free(&again[i]);
    }
    tap_ok(same, "%s, %s, %s: three threads give the bits of one", name, k->family, type);
}

/* Every row of a document over a cache has the bits of the forward pass: with a bias, causal; or of
 * a query of another axis, whose position is that of the last key. */
static void test_paged(const struct lf_kernels *k, const struct state *s)
{
    const struct one *c = s->c;
    const size_t size = lf_dtype_size((enum lf_dtype)s->type);
    struct op_buf whole[OUTS] = {{0}}, o = op_alloc((size_t)(s->nq * s->ldo) * size),
                  kp = op_alloc((size_t)(DOCS * 3 * PAGE * GROUPS * D) * size),
                  vp = op_alloc((size_t)(DOCS * 3 * PAGE * GROUPS * E) * size);
    int32_t *seq = calloc((size_t)(s->nq + s->nk), 4), *pos = calloc((size_t)(s->nq + s->nk), 4),
            table[DOCS * 3];
    for (int i = 0; i < DOCS * 3; i++)
        table[i] = DOCS * 3 - 1 - i;
    struct lf_k_kv_write w = {.rows = s->nk,
                              .groups = GROUPS,
                              .d = D,
                              .d_value = E,
                              .page_tokens = PAGE,
                              .max_pages = 3,
                              .k = s->k.p,
                              .v = s->v.p,
                              .ldk = s->ldk,
                              .ldv = s->ldv,
                              .k_pages = kp.p,
                              .v_pages = vp.p,
                              .seq = seq,
                              .pos = pos,
                              .table = table,
                              .x_type = (uint8_t)s->type};
    struct lf_k_attn_paged a = {.rows = s->nq,
                                .heads = HEADS,
                                .groups = GROUPS,
                                .d = D,
                                .d_value = E,
                                .page_tokens = PAGE,
                                .max_pages = 3,
                                .q = s->q.p,
                                .k_pages = kp.p,
                                .v_pages = vp.p,
                                .o = o.p,
                                .ldq = s->ldq,
                                .ldo = s->ldo,
                                .seq = seq + s->nk,
                                .pos = pos + s->nk,
                                .table = table,
                                .scale = (float)scale,
                                .softcap = (float)c->softcap,
                                .x_type = (uint8_t)s->type,
                                .bias = {s->bias.p, c->reach, NULL}};
    for (int64_t i = 0; i < s->nk + s->nq; i++)
        seq[i] = -1;
    for (int64_t d = 0; d < DOCS; d++) {
        for (int64_t i = c->ck[d]; i < c->ck[d + 1]; i++) {
            seq[i] = (int32_t)d;
            pos[i] = (int32_t)(i - c->ck[d]);
        }
        for (int64_t i = c->cq[d]; i < c->cq[d + 1] && c->ck[d + 1] > c->ck[d]; i++) {
            seq[s->nk + i] = (int32_t)d;
            pos[s->nk + i] = c->apart ? c->ck[d + 1] - c->ck[d] - 1 : (int32_t)(i - c->cq[d]);
        }
    }
    a.work_bytes = k->attn_paged.work(&a, 2);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    lf_queue *q = op_queue_create(2);
    bool same = forward(k, s, 1, whole) && k->kv_write.check(&w) == 0 &&
                k->kv_write.run(q, &w) == 0 && k->attn_paged.check(&a) == 0 &&
                k->attn_paged.run(q, &a) == 0 && op_guards_intact(&work);
    op_queue_destroy(q);
    for (int64_t r = 0; r < s->nq && same; r++)
        same = memcmp((char *)o.p + (size_t)(r * s->ldo) * size,
                      (char *)whole[O].p + (size_t)(r * s->ldo) * size,
                      (size_t)(HEADS * E) * size) == 0;
    tap_ok(same, "%s, %s, %s: over a cache every row has the same bits", c->name, k->family,
           s->type == LF_F32 ? "f32" : "bf16");
    free(seq);
    free(pos);
    op_free(&work);
    op_free(&o);
    op_free(&kp);
    op_free(&vp);
    op_free(&whole[O]);
    op_free(&whole[LSE]);
}

/* What contradicts itself is refused. */
static void test_refused(const struct lf_kernels *k)
{
    static const int32_t cu[] = {0, 1};
    const float table[3] = {0};
    const struct lf_k_attn_fwd good = {.rows = 1,
                                       .heads = 1,
                                       .groups = 1,
                                       .d = 8,
                                       .d_value = 8,
                                       .n_docs = 1,
                                       .ldq = 8,
                                       .ldk = 8,
                                       .ldv = 8,
                                       .ldo = 8,
                                       .scale = 1,
                                       .own = {.n = 1, .cu = cu}};
    struct lf_k_attn_fwd bad[6];
    int wrong = k->attn_fwd.check(&good) != 0;
    for (int i = 0; i < 6; i++)
        bad[i] = good;
    bad[0].causal = true;
    bad[1].window = 4;
    bad[2].runs = cu;
    bad[3].bias = (struct lf_k_attn_bias){table, 2, NULL};
    bad[4].own.first = cu;
    bad[5].own = (struct lf_k_attn_own){0};
    bad[5].bias = (struct lf_k_attn_bias){NULL, 2, NULL};
    for (int i = 0; i < 6; i++)
        wrong += k->attn_fwd.check(&bad[i]) == 0;
    tap_ok(wrong == 0, "masks by position of queries with another axis are refused: %s", k->family);
}

int main(void)
{
    for (int n = 0; n < CASES; n++)
        for (int type = LF_F32; type <= LF_BF16; type++) {
            struct state s = state_make(&cases[n], type);
            for (int i = 0; i < OP_BACKENDS; i++) {
                if (!op_kernels(i))
                    continue;
                TAP(2, test_case(op_kernels(i), &s));
                if (cases[n].causal || cases[n].apart)
                    TAP(1, test_paged(op_kernels(i), &s));
            }
            state_free(&s);
        }
    for (int i = 0; i < OP_BACKENDS; i++)
        if (op_kernels(i))
            TAP(1, test_refused(op_kernels(i)));
    return tap_done();
}
