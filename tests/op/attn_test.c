/* SPDX-License-Identifier: Apache-2.0
 *
 * attn_fwd and attn_bwd against the f64 reference over masks, document layouts, head sizes, types and instruction sets;
 * thread counts bit for bit; the backward also against finite differences of the reference forward.
 */
#include "config.h"

#include "tests/op/attn_ref.h"

/* Rows are wider than their content: some so that 16-bit rows do not even start on a pair, some so that vectors fit. */
static int64_t gap_of(const struct attn_case *c)
{
    return c->rows % 2 ? 3 : 8;
}
#ifdef OP_CUDA
enum { MOST_THREADS = 1 }; /* the order of threads is LF_EMU_ORDER's */
#else
enum { MOST_THREADS = 3 };
#endif

struct data {
    struct op_buf q, k, v, go; /* with gaps */
    double *dq, *dk, *dv, *dgo, *o, *lse;
    struct attn_grads g;
    int64_t ldq, ldk;
};

static double *dense(const struct op_buf *b, int64_t rows, int64_t width, int64_t ld, int type)
{
    double *p = malloc((size_t)(rows * width + 1) * sizeof *p);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++)
            p[r * width + c] = op_get(b->p, r * ld + c, type);
    return p;
}

static double *doubles(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

static struct data data_make(const struct attn_case *c, int type)
{
    const int64_t hd = c->heads * c->d, gd = c->groups * c->d;
    struct data t = {.ldq = hd + gap_of(c), .ldk = gd + gap_of(c)};
    t.q = op_random(c->rows * t.ldq, type, 1, 2.0);
    t.k = op_random(c->rows * t.ldk, type, 2, 2.0);
    t.v = op_random(c->rows * t.ldk, type, 3, 1.0);
    t.go = op_random(c->rows * t.ldq, type, 4, 1.0);
    t.dq = dense(&t.q, c->rows, hd, t.ldq, type);
    t.dk = dense(&t.k, c->rows, gd, t.ldk, type);
    t.dv = dense(&t.v, c->rows, gd, t.ldk, type);
    t.dgo = dense(&t.go, c->rows, hd, t.ldq, type);
    t.o = doubles(c->rows * hd);
    t.lse = doubles(c->rows * c->heads);
    attn_ref_fwd(c, t.dq, t.dk, t.dv, t.o, t.lse);
    t.g = (struct attn_grads){doubles(c->rows * hd), doubles(c->rows * gd), doubles(c->rows * gd),
                              doubles(c->rows * hd), doubles(c->rows * gd), doubles(c->rows * gd)};
    attn_ref_bwd(c, t.dq, t.dk, t.dv, t.o, t.dgo, t.lse, &t.g);
    /* f16 has no small numbers: probabilities and their gradients below 2^-14 are rounded to multiples of 2^-24 */
    for (int64_t i = 0; type == LF_F16 && i < c->rows * gd; i++) {
        t.g.ak[i] += 0.02;
        t.g.av[i] += 0.02;
    }
    for (int64_t i = 0; type == LF_F16 && i < c->rows * hd; i++)
        t.g.aq[i] += 0.02;
    return t;
}

static void data_free(struct data *t)
{
    double *p[] = {t->dq, t->dk, t->dv, t->dgo, t->o, t->lse, t->g.dq, t->g.dk, t->g.dv, t->g.aq, t->g.ak, t->g.av};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        free(p[i]);
    op_free(&t->q);
    op_free(&t->k);
    op_free(&t->v);
    op_free(&t->go);
}

/* Largest error over limit of a strided result; < 0: gaps were written. */
static double worst(const struct op_buf *b, int64_t rows, int64_t width, int64_t ld, int type, const double *want,
                    const double *scale, double tol)
{
    double w = op_guards_intact(b) ? 0 : -1;
    for (int64_t r = 0; r < rows && w >= 0; r++) {
        struct op_diff d = op_compare((char *)b->p + (size_t)(r * ld) * lf_dtype_size((enum lf_dtype)type), type,
                                      want + r * width, scale ? scale + r * width : NULL, width, tol);
        w = d.bad >= 0 && d.worst < 2 ? 2 : fmax(w, d.worst);
        for (int64_t g = width; g < ld && r + 1 < rows; g++)
            for (size_t k = 0; k < lf_dtype_size((enum lf_dtype)type); k++)
                if (((unsigned char *)b->p)[(size_t)(r * ld + g) * lf_dtype_size((enum lf_dtype)type) + k] != 0xA5)
                    return -1;
    }
    return w;
}

static double op_tolerance(int type, double bf16, double f32)
{
    return type == LF_BF16 ? bf16 : type == LF_F16 ? bf16 / 8 : f32;
}

static bool within(double w, const char *what, const char *name, const char *family, int type)
{
    return tap_ok(w >= 0 && w <= 1, "%s: %s, %s, %s: worst error / limit %.3f", what, name, family,
                  type == LF_BF16  ? "bf16"
                  : type == LF_F16 ? "f16"
                                   : "f32",
                  w);
}

static void test_forward(const struct lf_kernels *k, const struct attn_case *c, int type, const struct data *t)
{
    const int64_t hd = c->heads * c->d;
    struct attn_given given = attn_give(c);
    struct op_buf first = {0}, first_lse = {0};
    for (int threads = 1; threads <= MOST_THREADS; threads++) {
        struct op_buf o = op_alloc((size_t)(c->rows * t->ldq) * lf_dtype_size((enum lf_dtype)type)),
                      lse = op_alloc((size_t)(c->rows * c->heads) * 4);
        struct lf_k_attn_fwd a = {.rows = c->rows,
                                  .heads = c->heads,
                                  .groups = c->groups,
                                  .d = c->d,
                                  .n_docs = c->n_docs,
                                  .q = t->q.p,
                                  .k = t->k.p,
                                  .v = t->v.p,
                                  .o = o.p,
                                  .lse = lse.p,
                                  .ldq = t->ldq,
                                  .ldk = t->ldk,
                                  .ldv = t->ldk,
                                  .ldo = t->ldq,
                                  .cu_seqlens = given.cu,
                                  .prefix = given.prefix,
                                  .alibi = given.alibi,
                                  .scale = (float)attn_ref_scale(c),
                                  .softcap = (float)c->softcap,
                                  .drop = given.drop,
                                  .window = c->window,
                                  .causal = c->causal,
                                  .x_type = (uint8_t)type};
        a.work_bytes = k->attn_fwd.work(&a, threads);
        struct op_buf work = op_alloc(a.work_bytes);
        a.work = work.p;
        lf_queue *q = op_queue_create(threads);
        bool ran = k->attn_fwd.check(&a) == 0 && k->attn_fwd.run(q, &a) == 0 && op_guards_intact(&work);
        op_queue_destroy(q);
        op_free(&work);
        if (threads == 1) {
            tap_ok(ran, "attn_fwd runs: %s", c->name);
            within(worst(&o, c->rows, hd, t->ldq, type, t->o, NULL, op_tolerance(type, 1.0 / 256, 4e-6)), "o", c->name,
                   k->family, type);
            within(worst(&lse, c->heads, c->rows, c->rows, LF_F32, t->lse, NULL, 4e-6), "lse", c->name, k->family,
                   type);
            first = o;
            first_lse = lse;
            continue;
        }
        tap_ok(ran && memcmp(first.p, o.p, o.bytes) == 0 && memcmp(first_lse.p, lse.p, lse.bytes) == 0,
               "attn_fwd: same bits with %d threads", threads);
        op_free(&o);
        op_free(&lse);
    }
    op_free(&first);
    op_free(&first_lse);
    op_free(&given.mem);
}

/* o and lse as the forward stored them. */
static void saved(const struct attn_case *c, int type, const struct data *t, struct op_buf *o, struct op_buf *lse)
{
    const int64_t hd = c->heads * c->d;
    *o = op_alloc((size_t)(c->rows * t->ldq) * lf_dtype_size((enum lf_dtype)type));
    *lse = op_alloc((size_t)(c->rows * c->heads) * 4);
    for (int64_t r = 0; r < c->rows; r++)
        for (int64_t x = 0; x < hd; x++)
            op_set(o->p, r * t->ldq + x, type, t->o[r * hd + x]);
    for (int64_t i = 0; i < c->rows * c->heads; i++)
        op_set(lse->p, i, LF_F32, t->lse[i]);
}

static bool backward(const struct lf_kernels *k, const struct attn_case *c, int type, const struct data *t, int threads,
                     struct op_buf out[3])
{
    const size_t size = lf_dtype_size((enum lf_dtype)type);
    struct attn_given given = attn_give(c);
    struct op_buf o, lse;
    saved(c, type, t, &o, &lse);
    out[0] = op_alloc((size_t)(c->rows * t->ldq) * size);
    out[1] = op_alloc((size_t)(c->rows * t->ldk) * size);
    out[2] = op_alloc((size_t)(c->rows * t->ldk) * size);
    struct lf_k_attn_bwd a = {.rows = c->rows,
                              .heads = c->heads,
                              .groups = c->groups,
                              .d = c->d,
                              .n_docs = c->n_docs,
                              .q = t->q.p,
                              .k = t->k.p,
                              .v = t->v.p,
                              .o = o.p,
                              .d_o = t->go.p,
                              .lse = lse.p,
                              .dq = out[0].p,
                              .dk = out[1].p,
                              .dv = out[2].p,
                              .ldq = t->ldq,
                              .ldk = t->ldk,
                              .ldv = t->ldk,
                              .ldo = t->ldq,
                              .lddo = t->ldq,
                              .lddq = t->ldq,
                              .lddk = t->ldk,
                              .lddv = t->ldk,
                              .cu_seqlens = given.cu,
                              .prefix = given.prefix,
                              .alibi = given.alibi,
                              .scale = (float)attn_ref_scale(c),
                              .softcap = (float)c->softcap,
                              .drop = given.drop,
                              .window = c->window,
                              .causal = c->causal,
                              .x_type = (uint8_t)type};
    a.work_bytes = k->attn_bwd.work(&a, threads);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    lf_queue *q = op_queue_create(threads);
    bool ran = k->attn_bwd.check(&a) == 0 && k->attn_bwd.run(q, &a) == 0 && op_guards_intact(&work);
    op_queue_destroy(q);
    op_free(&work);
    op_free(&o);
    op_free(&lse);
    op_free(&given.mem);
    return ran;
}

static void test_backward(const struct lf_kernels *k, const struct attn_case *c, int type, const struct data *t)
{
    const int64_t hd = c->heads * c->d, gd = c->groups * c->d;
    const double tol = op_tolerance(type, 1.0 / 128, 2e-5);
    struct op_buf one[3], many[3];
    tap_ok(backward(k, c, type, t, 1, one), "attn_bwd runs: %s", c->name);
    within(worst(&one[0], c->rows, hd, t->ldq, type, t->g.dq, t->g.aq, tol), "dq", c->name, k->family, type);
    within(worst(&one[1], c->rows, gd, t->ldk, type, t->g.dk, t->g.ak, tol), "dk", c->name, k->family, type);
    within(worst(&one[2], c->rows, gd, t->ldk, type, t->g.dv, t->g.av, tol), "dv", c->name, k->family, type);
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

/* d(sum go * o) / d(x[i]) of the reference by central differences. */
static double numeric(const struct attn_case *c, const struct data *t, double *x, int64_t i)
{
    const int64_t n = c->rows * c->heads * c->d;
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

static void test_differences(const struct lf_kernels *k, const struct attn_case *c, const struct data *t)
{
    const int64_t width[3] = {c->heads * c->d, c->groups * c->d, c->groups * c->d}, ld[3] = {t->ldq, t->ldk, t->ldk};
    double *x[3] = {t->dq, t->dk, t->dv}, *scale[3] = {t->g.aq, t->g.ak, t->g.av}, w = 0, planted = 0;
    struct op_buf out[3];
    backward(k, c, LF_F32, t, 1, out);
    for (int f = 0; f < 3; f++)
        for (int64_t s = 0; s < 5; s++) {
            int64_t i = (s * 7919 + 13 * f) % (c->cu[c->n_docs] * width[f]);
            double want = numeric(c, t, x[f], i), got = op_get(out[f].p, i / width[f] * ld[f] + i % width[f], LF_F32);
            double limit = 2e-5 * scale[f][i] + 1e-7;
            w = fmax(w, fabs(got - want) / limit);
            planted = fmax(planted, fabs(got * 1.01 + 1e-3 - want) / limit);
        }
    tap_ok(w <= 1, "attn_bwd agrees with finite differences: %s, %s: worst error / limit %.3f", c->name, k->family, w);
    tap_ok(planted > 1, "a gradient wrong by 1 %% would not agree");
    for (int f = 0; f < 3; f++)
        op_free(&out[f]);
}

/* A key and value that are NaN leave every earlier row of the document and every other document as they were. */
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
                test_forward(k, c, type, &t);
                test_backward(k, c, type, &t);
                if (type == LF_F32 && c->cu[c->n_docs] > 0)
                    test_differences(k, c, &t);
            }
            data_free(&t);
        }
    for (int i = 0; i < OP_BACKENDS; i++)
        for (int type = LF_F32; type <= OP_LAST_FLOAT; type++)
            if (op_kernels(i))
                test_future(op_kernels(i), type);
    return tap_done();
}
