/* SPDX-License-Identifier: Apache-2.0
 *
 * What absorbed decoding of latents is made of, on every instruction set. gemm_heads: both forms
 * against the formula in f64, over odd shapes, and bitwise over threads and over how many rows
 * there are. The paged cache whose values are channels of the keys: against the formula in f64, and
 * bitwise against a cache that keeps the values a second time. All of it together: against the
 * attention of expanded keys and values, in f64.
 */
#include "config.h"

#include "tests/op/op_test.h"

static lf_queue *queue[4];

static const char *type_name(int type)
{
    return type == LF_BF16 ? "bf16" : "f32";
}

/* ---- products of heads ---- */

struct hcase {
    int64_t rows, heads, k, n, tail;
    bool tb;
};
static const struct hcase hcases[] = {
    {1, 1, 1, 1, 0, true},       {1, 4, 10, 20, 6, false},  {3, 3, 20, 12, 0, true},
    {1, 2, 128, 512, 64, false}, {1, 2, 512, 128, 0, true}, {300, 3, 17, 33, 5, false},
    {270, 2, 40, 70, 2, true},   {0, 2, 4, 4, 1, true},
};

struct heads {
    struct op_buf x, w, y, work;
    struct lf_k_gemm_heads a;
};

static void open_heads(struct heads *h, const struct lf_kernels *k, const struct hcase *c, int type,
                       int threads)
{
    const int64_t ldx = c->heads * (c->k + c->tail) + 3, ldy = c->heads * (c->n + c->tail) + 5,
                  ldw = c->tb ? c->k : c->n;
    h->x = op_random(c->rows * ldx, type, 1, 1);
    h->w = op_random(c->heads * c->k * c->n, type, 2, 1);
    h->y = op_random(c->rows * ldy, type, 3, 1);
    h->a = (struct lf_k_gemm_heads){.rows = c->rows,
                                    .heads = c->heads,
                                    .k = c->k,
                                    .n = c->n,
                                    .tail = c->tail,
                                    .x = h->x.p,
                                    .w = h->w.p,
                                    .y = h->y.p,
                                    .ldx = ldx,
                                    .ldw = ldw,
                                    .ldy = ldy,
                                    .tb = c->tb,
                                    .x_type = (uint8_t)type};
    h->a.work_bytes = k->gemm_heads.work(&h->a, threads);
    h->work = op_alloc(h->a.work_bytes);
    h->a.work = h->work.p;
}

static void close_heads(struct heads *h)
{
    struct op_buf *all[] = {&h->x, &h->w, &h->y, &h->work};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        op_free(all[i]);
}

/* Column j of head g in row r. turn: with the matrix of the next head. */
static double head_value(const struct heads *h, int64_t r, int64_t g, int64_t j, bool turn,
                         double *scale)
{
    const struct lf_k_gemm_heads *a = &h->a;
    const int64_t from = r * a->ldx + g * (a->k + a->tail), w = (turn ? g + 1 : g) % a->heads;
    double sum = 0;
    *scale = 0;
    if (j >= a->n)
        return op_get(h->x.p, from + a->k + j - a->n, a->x_type);
    for (int64_t i = 0; i < a->k; i++) {
        const int64_t at = a->tb ? (w * a->n + j) * a->ldw + i : (w * a->k + i) * a->ldw + j;
        const double v = op_get(h->x.p, from + i, a->x_type) * op_get(h->w.p, at, a->x_type);
        sum += v;
        *scale += fabs(v);
    }
    return sum;
}

/* The largest error, in units of what is allowed. What is between rows must be as it was. */
static double heads_error(const struct heads *h, bool turn)
{
    const struct lf_k_gemm_heads *a = &h->a;
    const int64_t wide = a->n + a->tail;
    struct op_buf was = op_random(a->rows * a->ldy, a->x_type, 3, 1);
    double most = 0, scale;
    for (int64_t r = 0; r < a->rows; r++)
        for (int64_t c = 0; c < a->ldy; c++) {
            const double got = op_get(h->y.p, r * a->ldy + c, a->x_type);
            scale = 0;
            const double want = c < a->heads * wide
                                    ? head_value(h, r, c / wide, c % wide, turn, &scale)
                                    : op_get(was.p, r * a->ldy + c, a->x_type);
            const double limit = 1e-6 * scale + op_eps(a->x_type) * fabs(want) + 1e-300;
            most = tap_worse(most, fabs(got - want) / limit);
        }
    op_free(&was);
    return most;
}

static void test_heads(const struct lf_kernels *k, const struct hcase *c, int type)
{
    struct heads h[3];
    bool ok = true, same = true;
    for (int t = 0; t < 3; t++) {
        open_heads(&h[t], k, c, type, t + 1);
        ok = ok && k->gemm_heads.check(&h[t].a) == 0 &&
             k->gemm_heads.run(queue[t + 1], &h[t].a) == 0 && op_guards_intact(&h[t].y) &&
             op_guards_intact(&h[t].work);
        same = same && memcmp(h[0].y.p, h[t].y.p, h[0].y.bytes) == 0;
    }
    const double error = heads_error(&h[0], false);
    tap_ok(ok && same && error <= 1,
           "%lld rows, %lld heads, %lld by %lld, %lld more, %s %s: error / limit %.3f",
           (long long)c->rows, (long long)c->heads, (long long)c->k, (long long)c->n,
           (long long)c->tail, k->family, type_name(type), error);
    tap_ok(c->rows == 0 || c->heads == 1 || heads_error(&h[0], true) > 1,
           "the matrix of another head is seen");
    if (c->rows > 1) { /* the last row alone */
        struct lf_k_gemm_heads a = h[1].a;
        const size_t size = lf_dtype_size((enum lf_dtype)type);
        struct op_buf y = op_alloc((size_t)a.ldy * size);
        a.rows = 1;
        a.x = (const char *)a.x + (size_t)((c->rows - 1) * a.ldx) * size;
        a.y = y.p;
        same = k->gemm_heads.run(queue[2], &a) == 0 &&
               memcmp(y.p, (char *)h[0].y.p + (size_t)((c->rows - 1) * a.ldy) * size,
                      (size_t)(c->heads * (c->n + c->tail)) * size) == 0;
        op_free(&y);
    }
    tap_ok(same, "a row has its bits alone");
    struct lf_k_gemm_heads bad = h[0].a;
    bad.ldy = c->heads * (c->n + c->tail) - 1;
    ok = k->gemm_heads.check(&bad) != 0;
    bad = h[0].a;
    bad.ldw--;
    ok = ok && k->gemm_heads.check(&bad) != 0;
    bad = h[0].a;
    bad.work_bytes = 0;
    ok = ok && k->gemm_heads.run(queue[1], &bad) == LF_K_EINVAL;
    tap_ok(ok, "rows that are too short, and too little workspace, are refused");
    for (int t = 0; t < 3; t++)
        close_heads(&h[t]);
}

/* ---- a cache of latents ---- */

enum { PAGE = 64, PAGES = 3, LENGTH = 150, SEQS = 2, STEP = 4 };
#define SCALE 0.25

/* Two sequences of LENGTH tokens, and queries of STEP rows: two at the end of the first one, the
 * last of the second, one that belongs to none. */
struct cache {
    int64_t heads, latent, rest;
    int type;
    struct op_buf c, r, pages, values, q, o, at;
    int32_t *seq, *pos, *table; /* [SEQS LENGTH] of writing, then [STEP] of reading */
};

static void open_cache(struct cache *u, int64_t heads, int64_t latent, int64_t rest, int type)
{
    const int64_t n = SEQS * LENGTH, cells = SEQS * PAGES * PAGE;
    const size_t size = lf_dtype_size((enum lf_dtype)type);
    static const int32_t seqs[STEP] = {0, 0, -1, 1}, places[STEP] = {97, LENGTH - 1, 0, 70};
    *u = (struct cache){.heads = heads, .latent = latent, .rest = rest, .type = type};
    u->c = op_random(n * latent, type, 1, 1);
    u->r = op_random(n * rest, type, 2, 1);
    u->q = op_random(STEP * heads * (latent + rest), type, 3, 1);
    u->o = op_alloc((size_t)(STEP * heads * latent) * size);
    u->pages = op_alloc((size_t)(cells * (latent + rest)) * size);
    u->values = op_alloc((size_t)(cells * latent) * size);
    u->at = op_alloc((size_t)(2 * (n + STEP) + SEQS * PAGES) * sizeof(int32_t));
    memset(u->pages.p, 0xff, u->pages.bytes);
    memset(u->values.p, 0xff, u->values.bytes);
    u->seq = u->at.p;
    u->pos = u->seq + n + STEP;
    u->table = u->pos + n + STEP;
    for (int32_t i = 0; i < n; i++) {
        u->seq[i] = i / LENGTH;
        u->pos[i] = i % LENGTH;
    }
    memcpy(u->seq + n, seqs, sizeof seqs);
    memcpy(u->pos + n, places, sizeof places);
    for (int32_t i = 0; i < SEQS * PAGES; i++)
        u->table[i] = (5 * i + 2) % (SEQS * PAGES);
}

static void close_cache(struct cache *u)
{
    struct op_buf *all[] = {&u->c, &u->r, &u->pages, &u->values, &u->q, &u->o, &u->at};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        op_free(all[i]);
}

static bool fill_cache(const struct lf_kernels *k, struct cache *u)
{
    const int64_t wide = u->latent + u->rest;
    struct lf_k_kv_write w = {.rows = SEQS * LENGTH,
                              .groups = 1,
                              .d = u->latent,
                              .d_value = u->rest,
                              .page_tokens = PAGE,
                              .max_pages = PAGES,
                              .k = u->c.p,
                              .v = u->r.p,
                              .ldk = u->latent,
                              .ldv = u->rest,
                              .ldkp = wide,
                              .ldvp = wide,
                              .k_pages = u->pages.p,
                              .v_pages = (char *)u->pages.p +
                                         (size_t)u->latent * lf_dtype_size((enum lf_dtype)u->type),
                              .seq = u->seq,
                              .pos = u->pos,
                              .table = u->table,
                              .x_type = (uint8_t)u->type};
    bool ok = k->kv_write.check(&w) == 0 && k->kv_write.run(queue[2], &w) == 0;
    w.v_pages = u->values.p; /* a second time, apart from the keys */
    w.v = u->c.p;
    w.d_value = w.ldv = w.ldvp = u->latent;
    w.k_pages = u->pages.p;
    ok = ok && k->kv_write.run(queue[1], &w) == 0;
    w.ldkp = u->latent - 1;
    return ok && k->kv_write.check(&w) != 0;
}

/* values: the pages of the values; their rows are ld apart. */
static bool read_cache(const struct lf_kernels *k, struct cache *u, const void *values, int64_t ld,
                       int threads)
{
    const int64_t n = SEQS * LENGTH, wide = u->latent + u->rest;
    struct lf_k_attn_paged a = {.rows = STEP,
                                .heads = u->heads,
                                .groups = 1,
                                .d = wide,
                                .d_value = u->latent,
                                .page_tokens = PAGE,
                                .max_pages = PAGES,
                                .q = u->q.p,
                                .k_pages = u->pages.p,
                                .v_pages = values,
                                .o = u->o.p,
                                .ldq = u->heads * wide,
                                .ldo = u->heads * u->latent,
                                .ldkp = wide,
                                .ldvp = ld,
                                .seq = u->seq + n,
                                .pos = u->pos + n,
                                .table = u->table,
                                .scale = SCALE,
                                .x_type = (uint8_t)u->type};
    bool ok = true;
    for (int64_t r = 0; r < STEP && ok; r += threads > 2 ? 1 : STEP) { /* alone, or all of them */
        const size_t size = lf_dtype_size((enum lf_dtype)u->type);
        struct lf_k_attn_paged b = a;
        b.rows = threads > 2 ? 1 : STEP;
        b.q = (const char *)a.q + (size_t)(r * a.ldq) * size;
        b.o = (char *)a.o + (size_t)(r * a.ldo) * size;
        b.seq += r;
        b.pos += r;
        b.work_bytes = k->attn_paged.work(&b, threads);
        struct op_buf work = op_alloc(b.work_bytes);
        b.work = work.p;
        ok = k->attn_paged.check(&b) == 0 && k->attn_paged.run(queue[threads], &b) == 0 &&
             op_guards_intact(&work) && op_guards_intact(&u->o);
        op_free(&work);
    }
    return ok;
}

/* Row r, head h of the formula: e^(scale q . [c | r]) over the tokens that it sees, times c. */
static void attend(const struct cache *u, int64_t r, int64_t h, double *out)
{
    const int64_t n = SEQS * LENGTH, wide = u->latent + u->rest, seq = u->seq[n + r],
                  first = seq * LENGTH, q = (r * u->heads + h) * wide;
    double all = 0;
    memset(out, 0, (size_t)u->latent * sizeof *out);
    for (int64_t j = first; seq >= 0 && j <= first + u->pos[n + r]; j++) {
        double s = 0;
        for (int64_t i = 0; i < wide; i++)
            s += op_get(u->q.p, q + i, u->type) *
                 (i < u->latent ? op_get(u->c.p, j * u->latent + i, u->type)
                                : op_get(u->r.p, j * u->rest + i - u->latent, u->type));
        const double p = exp(SCALE * s);
        all += p;
        for (int64_t i = 0; i < u->latent; i++)
            out[i] += p * op_get(u->c.p, j * u->latent + i, u->type);
    }
    for (int64_t i = 0; i < u->latent && all > 0; i++)
        out[i] /= all;
}

static void test_cache(const struct lf_kernels *k, int64_t heads, int64_t latent, int64_t rest,
                       int type)
{
    struct cache u;
    open_cache(&u, heads, latent, rest, type);
    const size_t bytes = u.o.bytes;
    unsigned char *first = malloc(bytes + 1);
    double *want = malloc((size_t)latent * sizeof *want), most = 0, planted = 0;
    if (!first || !want)
        tap_bail("no memory");
    bool ok = fill_cache(k, &u) && read_cache(k, &u, u.values.p, latent, 1);
    memcpy(first, u.o.p, bytes);
    for (int threads = 1; threads <= 3; threads++) {
        memset(u.o.p, 0x5a, bytes);
        ok = ok && read_cache(k, &u, u.pages.p, latent + rest, threads) &&
             memcmp(first, u.o.p, bytes) == 0;
    }
    tap_ok(ok, "%lld heads over latents of %lld and %lld: the bits of values apart, %s %s",
           (long long)heads, (long long)latent, (long long)rest, k->family, type_name(type));
    for (int64_t r = 0; r < STEP; r++)
        for (int64_t h = 0; h < heads; h++) {
            attend(&u, r, h, want);
            for (int64_t i = 0; i < latent; i++) {
                const double got = op_get(u.o.p, (r * heads + h) * latent + i, type),
                             limit = type == LF_BF16 ? 2e-2 : 1e-5;
                most = tap_worse(most, fabs(got - want[i]) / limit);
                planted = tap_worse(planted, fabs(got - want[(i + 1) % latent]) / limit);
            }
        }
    tap_ok(most <= 1 && planted > 1, "and those of the formula: error / limit %.3f", most);
    free(first);
    free(want);
    close_cache(&u);
}

/* ---- absorbed and expanded ---- */

enum { H = 3, NOPE = 10, ROPE = 6, LATENT = 20, VALUE = 12, WIDE = LATENT + ROPE };

static double f32(const struct op_buf *b, int64_t i)
{
    return op_get(b->p, i, LF_F32);
}

/* Head h of the last row over expanded keys [Wk c | r] and values Wv c, in f64. */
static void expanded(const struct cache *u, const struct op_buf *q, const struct op_buf *w,
                     int64_t h, double out[VALUE])
{
    const int64_t x = ((STEP - 1) * H + h) * (NOPE + ROPE), wk = h * NOPE * LATENT,
                  wv = (H * NOPE + h * VALUE) * LATENT,
                  last = LENGTH + u->pos[SEQS * LENGTH + STEP - 1];
    double all = 0;
    memset(out, 0, VALUE * sizeof *out);
    for (int64_t j = LENGTH; j <= last; j++) {
        double s = 0;
        for (int i = 0; i < NOPE; i++)
            for (int l = 0; l < LATENT; l++)
                s += f32(q, x + i) * f32(w, wk + i * LATENT + l) * f32(&u->c, j * LATENT + l);
        for (int i = 0; i < ROPE; i++)
            s += f32(q, x + NOPE + i) * f32(&u->r, j * ROPE + i);
        const double p = exp(SCALE * s);
        all += p;
        for (int i = 0; i < VALUE; i++)
            for (int l = 0; l < LATENT; l++)
                out[i] += p * f32(w, wv + i * LATENT + l) * f32(&u->c, j * LATENT + l);
    }
    for (int i = 0; i < VALUE; i++)
        out[i] /= all;
}

static bool product(const struct lf_kernels *k, struct lf_k_gemm_heads *a)
{
    a->rows = STEP;
    a->heads = H;
    a->work_bytes = k->gemm_heads.work(a, 2);
    struct op_buf work = op_alloc(a->work_bytes);
    a->work = work.p;
    const bool ok = k->gemm_heads.run(queue[2], a) == 0;
    op_free(&work);
    return ok;
}

static void test_absorbed(const struct lf_kernels *k)
{
    struct cache u;
    open_cache(&u, H, LATENT, ROPE, LF_F32);
    struct op_buf q = op_random(STEP * H * (NOPE + ROPE), LF_F32, 7, 1),
                  w = op_random(H * (NOPE + VALUE) * LATENT, LF_F32, 8, 1),
                  y = op_alloc(STEP * H * VALUE * sizeof(float));
    struct lf_k_gemm_heads in = {.k = NOPE,
                                 .n = LATENT,
                                 .tail = ROPE,
                                 .x = q.p,
                                 .w = w.p,
                                 .y = u.q.p,
                                 .ldx = H * (NOPE + ROPE),
                                 .ldw = LATENT,
                                 .ldy = H * WIDE},
                           out = {.k = LATENT,
                                  .n = VALUE,
                                  .x = u.o.p,
                                  .w = (float *)w.p + H * NOPE * LATENT,
                                  .y = y.p,
                                  .ldx = H * LATENT,
                                  .ldw = LATENT,
                                  .ldy = H * VALUE,
                                  .tb = true};
    double want[H][VALUE], most = 0, other = 0;
    const bool ok = fill_cache(k, &u) && product(k, &in) && read_cache(k, &u, u.pages.p, WIDE, 2) &&
                    product(k, &out);
    for (int h = 0; h < H; h++)
        expanded(&u, &q, &w, h, want[h]);
    for (int h = 0; h < H; h++)
        for (int i = 0; i < VALUE; i++) {
            const double got = f32(&y, ((STEP - 1) * H + h) * VALUE + i);
            most = tap_worse(most, fabs(got - want[h][i]));
            other = tap_worse(other, fabs(got - want[(h + 1) % H][i]));
        }
    tap_ok(ok && most < 2e-5 && other > 1e-2,
           "absorbed is expanded: %.1e apart, and %.1e from another head, %s", most, other,
           k->family);
    op_free(&q), op_free(&w), op_free(&y);
    close_cache(&u);
}

int main(void)
{
    for (int t = 1; t <= 3; t++)
        queue[t] = op_queue_create(t);
    for (int i = 0; i < OP_BACKENDS; i++) {
        const struct lf_kernels *k = op_kernels(i);
        for (int type = LF_F32; k && type <= LF_BF16; type++) {
            for (size_t n = 0; n < sizeof hcases / sizeof *hcases; n++)
                TAP(4, test_heads(k, &hcases[n], type));
            TAP(2, test_cache(k, 1, 2, 2, type));
            TAP(2, test_cache(k, 5, 20, 6, type));
            TAP(2, test_cache(k, 16, 512, 64, type));
            TAP(2, test_cache(k, 64, 48, 16, type)); /* more heads than a block has rows */
        }
        if (k)
            TAP(1, test_absorbed(k));
    }
    for (int t = 1; t <= 3; t++)
        op_queue_destroy(queue[t]);
    return tap_done();
}
