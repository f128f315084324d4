/* SPDX-License-Identifier: Apache-2.0
 *
 * attn_fwd and attn_bwd against the f64 reference over masks, document layouts, head sizes, types
 * and instruction sets; thread counts bit for bit; the backward also against finite differences of
 * the reference forward.
 */
#include "config.h"

#include "tests/op/attn_rig.h"

#ifdef OP_CUDA
enum { MOST_THREADS = 1 }; /* the order of threads is LF_EMU_ORDER's */
#else
enum { MOST_THREADS = 3 };
#endif

static void test_forward(const struct lf_kernels *k, const struct attn_case *c, int type,
                         const struct data *t)
{
    struct op_buf one[2], many[2];
    tap_ok(forward(k, c, type, t, 1, one), "attn_fwd runs: %s", c->name);
    within(worst(&one[0], c->rows, c->heads * attn_ref_e(c), t->ldo, type, t->o, NULL,
                 op_tolerance(type, 1.0 / 256, 4e-6)),
           "o", c->name, k->family, type);
    within(worst(&one[1], c->heads, c->rows, c->rows, LF_F32, t->lse, NULL, 4e-6), "lse", c->name,
           k->family, type);
    for (int threads = 2; threads <= MOST_THREADS; threads++) {
        bool same = forward(k, c, type, t, threads, many);
        for (int i = 0; i < 2; i++) {
            same = same && memcmp(one[i].p, many[i].p, one[i].bytes) == 0;
            op_free(&many[i]);
        }
        tap_ok(same, "attn_fwd: same bits with %d threads", threads);
    }
    op_free(&one[0]);
    op_free(&one[1]);
}

static void test_backward(const struct lf_kernels *k, const struct attn_case *c, int type,
                          const struct data *t)
{
    const int64_t hd = c->heads * c->d, gd = c->groups * c->d, ge = c->groups * attn_ref_e(c);
    const double tol = op_tolerance(type, 1.0 / 128, 2e-5);
    struct op_buf one[3], many[3];
    tap_ok(backward(k, c, type, t, 1, one), "attn_bwd runs: %s", c->name);
    within(worst(&one[0], c->rows, hd, t->ldq, type, t->g.dq, t->g.aq, tol), "dq", c->name,
           k->family, type);
    within(worst(&one[1], c->rows, gd, t->ldk, type, t->g.dk, t->g.ak, tol), "dk", c->name,
           k->family, type);
    within(worst(&one[2], c->rows, ge, t->ldv, type, t->g.dv, t->g.av, tol), "dv", c->name,
           k->family, type);
    for (int threads = 2; threads <= MOST_THREADS; threads++) {
        bool same = backward(k, c, type, t, threads, many);
        for (int i = 0; i < 3; i++) {
            same = same && memcmp(one[i].p, many[i].p, one[i].bytes) == 0;
            op_free(&many[i]);
        }
        tap_ok(same, "attn_bwd: same bits with %d threads", threads);
    }
    for (int i = 0; i < 3; i++)
        op_free(&one[i]);
}

/* Runs of one row each change no bit. */
static void test_alone(const struct lf_kernels *k, const struct attn_case *c, int type,
                       const struct data *t)
{
    struct attn_case alone = *c;
    struct op_buf o[2][2], g[2][3];
    alone.runs[1] = 1;
    bool same = forward(k, c, type, t, 1, o[0]) && forward(k, &alone, type, t, 1, o[1]) &&
                backward(k, c, type, t, 1, g[0]) && backward(k, &alone, type, t, 1, g[1]);
    for (int i = 0; i < 2; i++)
        same = same && memcmp(o[0][i].p, o[1][i].p, o[0][i].bytes) == 0;
    for (int i = 0; i < 3; i++)
        same = same && memcmp(g[0][i].p, g[1][i].p, g[0][i].bytes) == 0;
    tap_ok(same, "runs of one row change no bit: %s, %s", c->name, k->family);
    for (int i = 0; i < 2; i++) {
        op_free(&o[i][0]);
        op_free(&o[i][1]);
        for (int j = 0; j < 3; j++)
            op_free(&g[i][j]);
    }
}

/* A number below n. */
static int32_t pick(uint64_t seed, int64_t *draw, int32_t n)
{
    return (int32_t)((op_rand(seed, (*draw)++) + 1) / 2 * n) % n;
}

/* A case with random documents, runs, window and heads. */
static struct attn_case random_runs(uint64_t seed)
{
    struct attn_case c = {.name = "random runs", .n_docs = 3, .causal = true};
    int64_t draw = 0;
    for (int n = 0; n < 3; n++)
        c.cu[n + 1] = c.cu[n] + pick(seed, &draw, 75);
    c.rows = c.cu[3] + 1 + pick(seed, &draw, 5);
    c.groups = 1 + pick(seed, &draw, 2);
    c.heads = c.groups * (1 + pick(seed, &draw, 2));
    c.d = 2 + 2 * pick(seed, &draw, 20);
    c.window = pick(seed, &draw, 2) ? 1 + pick(seed, &draw, 30) : 0;
    c.window = seed % 3 ? c.window : -c.window; /* chunks */
    c.d_value = pick(seed, &draw, 2) ? 1 + pick(seed, &draw, 50) : 0;
    for (int i = 0, k = 0, at = 0; i < 6; i++) { /* some touch, some are empty */
        const int n = i / 2;
        at = at > c.cu[n] ? at : c.cu[n];
        const int first = at + pick(seed, &draw, 2) * pick(seed, &draw, c.cu[n + 1] - at + 1),
                  end = first + pick(seed, &draw, c.cu[n + 1] - first + 1);
        if (end > first) {
            c.runs[k++] = first;
            c.runs[k++] = end;
        }
        at = end;
    }
    return c;
}

static void every_random(void)
{
    for (uint64_t seed = 1; seed <= (OP_BACKENDS > 1 ? 8 : 3); seed++) {
        const struct attn_case c = random_runs(seed);
        const int type = seed % 2 ? LF_F32 : LF_BF16;
        struct data t = data_make(&c, type);
        for (int i = 0; i < OP_BACKENDS; i++)
            if (op_kernels(i)) {
                TAP(2 + MOST_THREADS, test_forward(op_kernels(i), &c, type, &t));
                TAP(3 + MOST_THREADS, test_backward(op_kernels(i), &c, type, &t));
            }
        data_free(&t);
    }
}

/* Windows of both sides, which runs that overlap say: within a tile, wider than one, wider than a
 * document, of the row alone. */
static void every_both(void)
{
    static const int32_t windows[] = {5, 37, 100, 1};
    for (int n = 0; n < 4; n++) {
        const struct attn_case c = {.name = "window of both sides",
                                    .rows = 210,
                                    .heads = 2,
                                    .groups = 1 + n % 2,
                                    .d = 18,
                                    .n_docs = 3,
                                    .cu = {0, 150, 151, 207},
                                    .causal = true,
                                    .window = windows[n],
                                    .runs = {-1, 1}};
        const int type = n % 2 ? LF_BF16 : LF_F32;
        struct data t = data_make(&c, type);
        for (int i = 0; i < OP_BACKENDS; i++)
            if (op_kernels(i)) {
                TAP(2 + MOST_THREADS, test_forward(op_kernels(i), &c, type, &t));
                TAP(3 + MOST_THREADS, test_backward(op_kernels(i), &c, type, &t));
            }
        data_free(&t);
    }
}

/* d(sum go * o) / d(x[i]) of the reference by central differences. */
static double numeric(const struct attn_case *c, const struct data *t, double *x, int64_t i)
{
    const int64_t n = c->rows * c->heads * attn_ref_e(c);
    const double h = 1e-5, old = x[i];
    double *o = doubles(n), *lse = doubles(c->rows * c->heads), side[2];
    for (int s = 0; s < 2; s++) {
        x[i] = old + (s ? h : -h);
        attn_ref_fwd(c, t->dq, t->dk, t->dv, o, lse);
        side[s] = 0;
        for (int64_t e = 0; e < n; e++)
            side[s] += t->dgo[e] * o[e];
    }
    x[i] = old;
    free(o);
    free(lse);
    return (side[1] - side[0]) / (2 * h);
}

static void test_differences(const struct lf_kernels *k, const struct attn_case *c,
                             const struct data *t)
{
    const int64_t width[3] = {c->heads * c->d, c->groups * c->d, c->groups * attn_ref_e(c)},
                  ld[3] = {t->ldq, t->ldk, t->ldv};
    double *x[3] = {t->dq, t->dk, t->dv}, *scale[3] = {t->g.aq, t->g.ak, t->g.av}, w = 0,
           planted = 0;
    struct op_buf out[3];
    backward(k, c, LF_F32, t, 1, out);
    for (int f = 0; f < 3; f++)
        for (int64_t s = 0; s < 5; s++) {
            int64_t i = (s * 7919 + 13 * f) % (c->cu[c->n_docs] * width[f]);
            double want = numeric(c, t, x[f], i),
                   got = op_get(out[f].p, i / width[f] * ld[f] + i % width[f], LF_F32);
            double limit = 2e-5 * scale[f][i] + 1e-7;
            w = tap_worse(w, fabs(got - want) / limit);
            planted = tap_worse(planted, fabs(got * 1.01 + 1e-3 - want) / limit);
        }
    tap_ok(w <= 1, "attn_bwd agrees with finite differences: %s, %s: worst error / limit %.3f",
           c->name, k->family, w);
    tap_ok(planted > 1, "a gradient wrong by 1 %% would not agree");
    for (int f = 0; f < 3; f++)
        op_free(&out[f]);
}

/* The gradient of the sinks: row by row against the formula, and its sum over rows against
 * differences of the reference forward. */
static void test_sinks(const struct lf_kernels *k, const struct attn_case *c, int type,
                       const struct data *t)
{
    const int64_t H = c->heads, E = attn_ref_e(c);
    const double tol = op_tolerance(type, 1.0 / 128, 2e-5), h = 1e-5;
    double *want = doubles(c->rows * H), *scale = doubles(c->rows * H), far = 0, planted = 0;
    struct op_buf one, many;
    tap_ok(sinks_backward(k, c, type, t, 1, &one), "attn_sinks_bwd runs: %s", c->name);
    for (int64_t r = 0; r < c->cu[c->n_docs]; r++)
        for (int64_t i = r * H; i < (r + 1) * H; i++) {
            const double p = exp(attn_ref_sink(c, i - r * H) - t->lse[(i - r * H) * c->rows + r]);
            for (int64_t x = i * E; x < (i + 1) * E; x++) {
                want[i] -= p * t->dgo[x] * t->o[x];
                /* f16 rounds small numbers to multiples of 2^-24 */
                scale[i] += p * fabs(t->dgo[x]) * fmax(fabs(t->o[x]), type == LF_F16 ? 1e-4 : 0);
            }
        }
    within(worst(&one, c->rows, H, H + 1, LF_F32, want, scale, tol), "ds", c->name, k->family,
           type);
    for (int64_t s = 0; s < H; s++) {
        double got = 0, limit = 1e-6, side[2] = {0, 0};
        for (int64_t r = 0; r < c->rows; r++) {
            got += op_get(one.p, r * (H + 1) + s, LF_F32);
            limit += tol * scale[r * H + s];
        }
        for (int v = 0; v < 2; v++) {
            double *o = doubles(c->rows * H * E), *lse = doubles(c->rows * H);
            attn_ref_fwd_moved(c, t->dq, t->dk, t->dv, &(struct attn_moved){s, v ? h : -h}, o, lse);
            for (int64_t i = 0; i < c->rows * H * E; i++)
                side[v] += t->dgo[i] * o[i];
            free(o);
            free(lse);
        }
        const double slope = (side[1] - side[0]) / (2 * h);
        far = tap_worse(far, fabs(got - slope) / limit);
        planted = tap_worse(planted, fabs(-got - slope) / limit);
    }
    tap_ok(far <= 1, "attn_sinks_bwd agrees with finite differences: %s: worst error / limit %.3f",
           c->name, far);
    tap_ok(planted > 1, "a gradient of the other sign would not agree");
    bool same = sinks_backward(k, c, type, t, MOST_THREADS, &many);
    tap_ok(same && memcmp(one.p, many.p, one.bytes) == 0, "attn_sinks_bwd: same bits with threads");
    free(want);
    free(scale);
    op_free(&one);
    op_free(&many);
}

/* A key and value that are NaN leave every earlier row of the document and every other document as
 * they were. */
static void test_future(const struct lf_kernels *k, int type)
{
    enum { R = 200, D = 32, H = 2 };
    struct op_buf docs = op_alloc(3 * sizeof(int32_t));
    int32_t *cu = docs.p;
    cu[0] = 0;
    cu[1] = 150;
    cu[2] = R;
    struct op_buf q = op_random(R * H * D, type, 1, 2.0), kk = op_random(R * H * D, type, 2, 2.0),
                  v = op_random(R * H * D, type, 3, 1.0);
    struct op_buf o[2] = {op_alloc(q.bytes), op_alloc(q.bytes)};
    const size_t row = q.bytes / R;
    lf_queue *qu = op_queue_create(2);
    struct lf_k_attn_fwd a = {.rows = R,
                              .heads = H,
                              .groups = H,
                              .d = D,
                              .d_value = D,
                              .n_docs = 2,
                              .q = q.p,
                              .k = kk.p,
                              .v = v.p,
                              .ldq = H * D,
                              .ldk = H * D,
                              .ldv = H * D,
                              .ldo = H * D,
                              .cu_seqlens = cu,
                              .scale = 0.2f,
                              .causal = true,
                              .x_type = (uint8_t)type};
    a.work_bytes = k->attn_fwd.work(&a, 2);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    a.o = o[0].p;
    k->attn_fwd.run(qu, &a);
    for (int at = 97; at <= 98; at++) {
        for (int64_t i = 0; i < H * D; i++) {
            op_set(kk.p, at * H * D + i, type, NAN);
            op_set(v.p, at * H * D + i, type, NAN);
        }
    }
    a.o = o[1].p;
    k->attn_fwd.run(qu, &a);
    tap_ok(memcmp(o[0].p, o[1].p, 97 * row) == 0 &&
               memcmp((char *)o[0].p + 150 * row, (char *)o[1].p + 150 * row, 50 * row) == 0,
           "a later NaN changes no earlier bit: %s, %s", k->family,
           type == LF_BF16  ? "bf16"
           : type == LF_F16 ? "f16"
                            : "f32");
    tap_ok(isnan(op_get(o[1].p, 97 * H * D, type)) && isnan(op_get(o[1].p, 149 * H * D + 5, type)),
           "and reaches the rows that see it");
    op_queue_destroy(qu);
    op_free(&work);
    op_free(&docs);
    op_free(&q);
    op_free(&kk);
    op_free(&v);
    op_free(&o[0]);
    op_free(&o[1]);
}

/* A sink that is NaN or infinite reaches the rows of its head that see a key, and changes no bit of
 * other heads. */
static void test_broken_sink(const struct lf_kernels *k, int type, float value)
{
    enum { R = 40, D = 16, H = 2, PADDING = 3 };
    struct op_buf mem = op_alloc(2 * sizeof(int32_t) + H * sizeof(float)),
                  q = op_random(R * H * D, type, 1, 2.0),
                  o[2] = {op_alloc(q.bytes), op_alloc(q.bytes)};
    int32_t *cu = mem.p;
    float *sinks = (float *)(cu + 2);
    int wrong = 0, finite = 0;
    cu[0] = 0;
    cu[1] = R - PADDING;
    struct lf_k_attn_fwd a = {.rows = R,
                              .heads = H,
                              .groups = H,
                              .d = D,
                              .d_value = D,
                              .n_docs = 1,
                              .q = q.p,
                              .k = q.p,
                              .v = q.p,
                              .ldq = H * D,
                              .ldk = H * D,
                              .ldv = H * D,
                              .ldo = H * D,
                              .cu_seqlens = cu,
                              .sinks = sinks,
                              .scale = 0.2f,
                              .causal = true,
                              .x_type = (uint8_t)type};
    a.work_bytes = k->attn_fwd.work(&a, 2);
    struct op_buf work = op_alloc(a.work_bytes);
    lf_queue *qu = op_queue_create(2);
    a.work = work.p;
    for (int i = 0; i < 2; i++) {
        sinks[0] = 0.5f;
        sinks[1] = i ? value : 0.25f;
        a.o = o[i].p;
        k->attn_fwd.run(qu, &a);
    }
    for (int64_t i = 0; i < R * H * D; i++) {
        const double was = op_get(o[0].p, i, type), is = op_get(o[1].p, i, type);
        const bool sees = i / D % H == 1 && i / (H * D) < R - PADDING;
        finite += sees && !isnan(is);
        wrong += !sees && memcmp(&was, &is, sizeof was) != 0;
    }
    tap_ok(finite == 0 && wrong == 0,
           "a sink of %g reaches all rows of its head and no other: %s, %s (%d stay, %d change)",
           (double)value, k->family,
           type == LF_BF16  ? "bf16"
           : type == LF_F16 ? "f16"
                            : "f32",
           finite, wrong);
    op_queue_destroy(qu);
    op_free(&work);
    op_free(&mem);
    op_free(&q);
    op_free(&o[0]);
    op_free(&o[1]);
}

#ifdef OP_CUDA
/* The kernels of compute capability 9.0: the same cases, and the forward has the bits of the other
 * kernels, which generation computes with. */
static void test_wgmma(const struct attn_case *c, int type, const struct data *t)
{
    const struct lf_kernels *k = op_kernels(0);
    struct op_buf own[2], wg[2];
    const bool ran = forward(k, c, type, t, 1, own);
    op_wgmma(true);
    TAP(3, test_forward(k, c, type, t));
    TAP(4, test_backward(k, c, type, t));
    tap_ok(forward(k, c, type, t, 1, wg) && ran && memcmp(own[0].p, wg[0].p, own[0].bytes) == 0 &&
               memcmp(own[1].p, wg[1].p, own[1].bytes) == 0,
           "wgmma: the bits of mma: %s, %s", c->name, type == LF_BF16 ? "bf16" : "f16");
    op_wgmma(false);
    for (int i = 0; i < 2; i++) {
        op_free(&own[i]);
        op_free(&wg[i]);
    }
}

static void every_wgmma(void)
{
    for (int n = 0; n < ATTN_CASES; n++) {
        const int type = n % 4 == 1 ? LF_F16 : LF_BF16;
        if (attn_cases[n].d > 128 || attn_cases[n].d_value > 128)
            continue;
        struct data t = data_make(&attn_cases[n], type);
        TAP(8, test_wgmma(&attn_cases[n], type, &t));
        data_free(&t);
    }
    op_wgmma(true);
    TAP(2, test_future(op_kernels(0), LF_BF16));
    TAP(2, test_future(op_kernels(0), LF_F16));
    op_wgmma(false);
}
#endif

#ifndef OP_CUDA
/* Heads as wide as those of a cache that keeps the latent of multi-head latent attention. */
static void every_latent(void)
{
    static const struct attn_case c = {.name = "latent",
                                       .rows = 70,
                                       .heads = 8,
                                       .groups = 1,
                                       .d = 576,
                                       .d_value = 512,
                                       .n_docs = 1,
                                       .cu = {0, 70},
                                       .causal = true};
    struct data t = data_make(&c, LF_F32);
    for (int i = 0; i < OP_BACKENDS; i++)
        if (op_kernels(i)) {
            TAP(2 + MOST_THREADS, test_forward(op_kernels(i), &c, LF_F32, &t));
            TAP(3 + MOST_THREADS, test_backward(op_kernels(i), &c, LF_F32, &t));
        }
    data_free(&t);
}
#endif

#ifndef OP_CUDA
/* ---- queries that are some of the rows ---- */

/* Every other block of rows. */
struct some {
    struct data d;
    int32_t *first, *position;
    int64_t *sample;
};

/* Where query row r stands among all. */
static int64_t place_of(const struct some *s, int64_t r)
{
    return s->first[r / s->d.own.block] + r % s->d.own.block;
}

static struct op_buf some_rows(const struct some *s, const struct op_buf *all, size_t row)
{
    struct op_buf b = op_alloc((size_t)s->d.own.n * row);
    for (int64_t r = 0; r < s->d.own.n; r++)
        memcpy((char *)b.p + (size_t)r * row, (char *)all->p + (size_t)place_of(s, r) * row, row);
    return b;
}

static struct some some_make(const struct attn_case *c, int type, const struct data *t,
                             int64_t block, int part)
{
    const size_t size = lf_dtype_size((enum lf_dtype)type);
    const int64_t he = c->heads * attn_ref_e(c), n = (c->rows + block - 1) / block;
    struct some s = {.d = *t,
                     .first = calloc((size_t)n + 1, sizeof *s.first),
                     .position = calloc((size_t)c->rows + 1, sizeof *s.position),
                     .sample = calloc((size_t)c->rows + 1, sizeof *s.sample)};
    s.d.own = (struct lf_k_attn_own){.first = s.first, .block = block};
    for (int64_t i = part; i < n; i += 2) {
        s.first[s.d.own.n / block] = (int32_t)(i * block);
        s.d.own.n += c->rows - i * block < block ? c->rows - i * block : block;
    }
    s.d.q = some_rows(&s, &t->q, (size_t)t->ldq * size);
    s.d.go = some_rows(&s, &t->go, (size_t)t->ldo * size);
    s.d.o = doubles(s.d.own.n * he);
    s.d.lse = doubles(s.d.own.n * c->heads);
    for (int64_t r = 0; r < s.d.own.n; r++) {
        const int64_t at = place_of(&s, r);
        s.sample[r] = 3 + at / ATTN_REF_ROW;
        s.position[r] = (int32_t)(at % ATTN_REF_ROW);
        memcpy(s.d.o + r * he, t->o + at * he, (size_t)he * sizeof(double));
        for (int64_t h = 0; h < c->heads; h++)
            s.d.lse[h * s.d.own.n + r] = t->lse[h * c->rows + at];
    }
    s.d.sample = s.sample;
    s.d.position = s.position;
    return s;
}

static void some_free(struct some *s)
{
    free(s->first);
    free(s->position);
    free(s->sample);
    free(s->d.o);
    free(s->d.lse);
    op_free(&s->d.q);
    op_free(&s->d.go);
}

/* Have rows, of `width` elements, the bits of those among all? */
static bool same_rows(const struct some *s, const struct op_buf *own, const struct op_buf *all,
                      size_t width, size_t row)
{
    bool same = op_guards_intact(own);
    for (int64_t r = 0; r < s->d.own.n && same; r++)
        same = memcmp((char *)own->p + (size_t)r * row,
                      (char *)all->p + (size_t)place_of(s, r) * row, width) == 0;
    return same;
}

static bool same_lse(const struct some *s, const struct attn_case *c, const struct op_buf *own,
                     const struct op_buf *all)
{
    bool same = true;
    for (int64_t h = 0; h < c->heads; h++)
        for (int64_t r = 0; r < s->d.own.n && same; r++)
            same = memcmp((float *)own->p + h * s->d.own.n + r,
                          (float *)all->p + h * c->rows + place_of(s, r), sizeof(float)) == 0;
    return same;
}

/* Adds what a part gives to a gradient of keys or values, whose gaps stay. */
static void add_part(struct op_buf *sum, const struct op_buf *part, const struct lf_k_attn_own *own,
                     const struct attn_case *c, int64_t width, int64_t ld, bool first)
{
    const int64_t rows = own->keys ? own->keys : c->rows;
    for (int64_t r = 0; first && r < c->rows; r++)
        memset((float *)sum->p + r * ld, 0, (size_t)width * sizeof(float));
    for (int64_t r = 0; r < rows; r++)
        for (int64_t x = 0; x < width; x++)
            ((float *)sum->p)[(own->key0 + r) * ld + x] += ((float *)part->p)[r * ld + x];
}

/* Leaves of the keys those that a window of these queries reaches, and of those the rows of whole
 * tiles. */
static void keep_near(struct some *s, const struct attn_case *c, const struct data *t, int type)
{
    struct lf_k_attn_own *own = &s->d.own;
    const int64_t w = c->window < 0 ? -c->window : c->window, row = own->first[0],
                  reach = w + LF_ATTN_TILE - 2;
    const size_t size = lf_dtype_size((enum lf_dtype)type), k = (size_t)t->ldk * size,
                 v = (size_t)t->ldv * size;
    own->key0 = reach < row ? row - reach : 0;
    own->keys = row + own->n - own->key0;
    s->d.k = op_alloc((size_t)own->keys * k);
    s->d.v = op_alloc((size_t)own->keys * v);
    memcpy(s->d.k.p, (char *)t->k.p + (size_t)own->key0 * k, (size_t)own->keys * k);
    memcpy(s->d.v.p, (char *)t->v.p + (size_t)own->key0 * v, (size_t)own->keys * v);
}

/* Two calls, each with every other block of the queries: rows have the bits that they have among
 * all, and what the calls add to the gradients of keys and values is all of these. near: each has
 * the keys alone that its queries see. */
static void test_some(const struct lf_kernels *k, const struct attn_case *c, int type,
                      const struct data *t, bool near)
{
    const size_t size = lf_dtype_size((enum lf_dtype)type);
    const int64_t gd = c->groups * c->d, e = attn_ref_e(c), ge = c->groups * e;
    const int64_t block = near               ? (c->rows + 1) / 2
                          : c->rows % 7 == 0 ? 7
                          : c->rows % 5 == 0 ? 5
                                             : 3;
    const double tol = op_tolerance(type, 1.0 / 128, 2e-5);
    struct op_buf all[2], grads[3], o[2], g[3],
        dk = op_alloc((size_t)(c->rows * t->ldk) * sizeof(float)),
        dv = op_alloc((size_t)(c->rows * t->ldv) * sizeof(float));
    bool same = forward(k, c, type, t, 1, all) && backward(k, c, type, t, 1, grads);
    for (int part = 0; part < 2; part++) {
        struct some s = some_make(c, type, t, block, part);
        if (near)
            keep_near(&s, c, t, type);
        same = same && forward(k, c, type, &s.d, 2, o) && backward(k, c, type, &s.d, 2, g);
        same =
            same &&
            same_rows(&s, &o[0], &all[0], (size_t)(c->heads * e) * size, (size_t)t->ldo * size) &&
            same_lse(&s, c, &o[1], &all[1]) &&
            same_rows(&s, &g[0], &grads[0], (size_t)(c->heads * c->d) * size,
                      (size_t)t->ldq * size);
        add_part(&dk, &g[1], &s.d.own, c, gd, t->ldk, part == 0);
        add_part(&dv, &g[2], &s.d.own, c, ge, t->ldv, part == 0);
        if (near) {
            op_free(&s.d.k);
            op_free(&s.d.v);
        }
        for (int i = 0; i < 3; i++) {
            op_free(&g[i]);
            if (i < 2)
                op_free(&o[i]);
        }
        some_free(&s);
    }
    tap_ok(same, "blocks of %lld of the rows%s: the bits of o, lse and dq: %s, %s",
           (long long)block, near ? ", and keys that they see" : "", c->name, k->family);
    within(tap_worse(worst(&dk, c->rows, gd, t->ldk, LF_F32, t->g.dk, t->g.ak, tol),
                     worst(&dv, c->rows, ge, t->ldv, LF_F32, t->g.dv, t->g.av, tol)),
           "dk, dv of both", c->name, k->family, type);
    for (int i = 0; i < 3; i++) {
        op_free(&grads[i]);
        if (i < 2)
            op_free(&all[i]);
    }
    op_free(&dk);
    op_free(&dv);
}
#endif

#ifndef OP_CUDA
static void every_near(void)
{
    static const struct attn_case cases[] = {{.name = "window",
                                              .rows = 301,
                                              .heads = 4,
                                              .groups = 2,
                                              .d = 16,
                                              .n_docs = 3,
                                              .cu = {0, 20, 275, 290},
                                              .window = 9,
                                              .causal = true},
                                             {.name = "chunks",
                                              .rows = 300,
                                              .heads = 2,
                                              .groups = 2,
                                              .d = 8,
                                              .d_value = 6,
                                              .n_docs = 4,
                                              .cu = {0, 3, 70, 148, 300},
                                              .window = -13,
                                              .causal = true}};
    for (int n = 0; n < 4; n++) {
        const struct attn_case *c = &cases[n / 2];
        const int type = n % 2 ? LF_BF16 : LF_F32;
        struct data t = data_make(c, type);
        for (int i = 0; i < OP_BACKENDS; i++)
            if (op_kernels(i))
                TAP(2, test_some(op_kernels(i), c, type, &t, true));
        data_free(&t);
    }
}
#endif

/* Sizes that are no heads are refused. */
static void test_refused(const struct lf_kernels *k)
{
    static const int64_t size[][2] = {{7, 8}, {0, 8}, {8, 0}, {8, -2}, {8, 1 << 20}, {1 << 20, 8}};
    struct lf_k_attn_fwd f = {.rows = 1,
                              .heads = 1,
                              .groups = 1,
                              .d = 8,
                              .d_value = 6,
                              .n_docs = 1,
                              .ldq = 8,
                              .ldk = 8,
                              .ldv = 6,
                              .ldo = 6,
                              .scale = 1};
    int wrong = k->attn_fwd.check(&f) != 0;
    for (size_t i = 0; i < sizeof size / sizeof *size; i++) {
        struct lf_k_attn_fwd bad = f;
        bad.d = size[i][0];
        bad.d_value = size[i][1];
        bad.ldq = bad.ldk = bad.ldv = bad.ldo = 1 << 21;
        wrong += k->attn_fwd.check(&bad) == 0;
    }
    f.d_value = 7; /* rows of v and o have too few channels */
    wrong += k->attn_fwd.check(&f) == 0;
    tap_ok(wrong == 0, "head sizes that cannot be are refused: %s", k->family);
}

int main(void)
{
    for (int n = 0; n < ATTN_CASES; n++)
        for (int type = LF_F32; type <= OP_LAST_FLOAT; type++) {
            const struct attn_case *c = &attn_cases[n];
            if (type == LF_F16 && n % 3 != 2) /* the emulator is slow; bf16 goes the same ways */
                continue;
            struct data t = data_make(c, type);
            for (int i = 0; i < OP_BACKENDS; i++) {
                const struct lf_kernels *k = op_kernels(i);
                if (!k)
                    continue;
                TAP(2 + MOST_THREADS, test_forward(k, c, type, &t));
                TAP(3 + MOST_THREADS, test_backward(k, c, type, &t));
#ifndef OP_CUDA
                TAP(2, test_some(k, c, type, &t, false));
#endif
                if (type == LF_F32 && c->cu[c->n_docs] > 0)
                    TAP(2, test_differences(k, c, &t));
                if (c->sinks)
                    TAP(5, test_sinks(k, c, type, &t));
                if (n % 3 == 2 && type != LF_F16 && !attn_ref_runs(c))
                    TAP(1, test_alone(k, c, type, &t));
            }
            data_free(&t);
        }
    every_random();
#ifndef OP_CUDA
    every_near();
#endif
    every_both();
#ifndef OP_CUDA
    every_latent();
#endif
    for (int i = 0; i < OP_BACKENDS; i++)
        if (op_kernels(i))
            TAP(1, test_refused(op_kernels(i)));
    for (int i = 0; i < OP_BACKENDS; i++)
        for (int type = LF_F32; type <= OP_LAST_FLOAT; type++)
            if (op_kernels(i)) {
                TAP(2, test_future(op_kernels(i), type));
                TAP(1, test_broken_sink(op_kernels(i), type, NAN));
                TAP(1, test_broken_sink(op_kernels(i), type, INFINITY));
            }
#ifdef OP_CUDA
    if (op_wgmma(true))
        every_wgmma();
    else
        tap_ok(true, "attention of compute capability 9.0 # SKIP not here");
#endif
    return tap_done();
}
