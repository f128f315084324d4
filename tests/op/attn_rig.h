/* SPDX-License-Identifier: Apache-2.0
 *
 * What tests of attn_fwd and attn_bwd share: operands of a case with gaps between rows, the
 * reference's results, one call, the largest error.
 */
#ifndef LF_TESTS_ATTN_RIG_H
#define LF_TESTS_ATTN_RIG_H

#include "tests/op/attn_ref.h"

/* Rows are wider than their content: some so that 16-bit rows do not even start on a pair, some so
 * that vectors fit. */
OP_FN int64_t gap_of(const struct attn_case *c)
{
    return c->rows % 2 ? 3 : 8;
}
struct data {
    struct op_buf q, k, v, go; /* with gaps */
    double *dq, *dk, *dv, *dgo, *o, *lse;
    struct attn_grads g;
    int64_t ldq, ldk, ldv, ldo;
    /* queries that are some rows of the keys (lf_k_attn_own), and what drop knows of them */
    struct lf_k_attn_own own;
    const int64_t *sample;
    const int32_t *position;
};
/* Rows of queries, o and lse. */
OP_FN int64_t queries_of(const struct attn_case *c, const struct data *t)
{
    return t->own.first ? t->own.n : c->rows;
}
OP_FN struct lf_k_attn_drop drop_of(const struct attn_given *given, const struct data *t)
{
    struct lf_k_attn_drop d = given->drop;
    d.sample = t->own.first ? t->sample : d.sample;
    d.position = t->own.first ? t->position : d.position;
    return d;
}

OP_FN double *dense(const struct op_buf *b, int64_t rows, int64_t width, int64_t ld, int type)
{
    double *p = malloc((size_t)(rows * width + 1) * sizeof *p);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < width; c++)
            p[r * width + c] = op_get(b->p, r * ld + c, type);
    return p;
}

OP_FN double *doubles(int64_t n)
{
    return calloc((size_t)n + 1, sizeof(double));
}

OP_FN struct data data_make(const struct attn_case *c, int type)
{
    const int64_t hd = c->heads * c->d, gd = c->groups * c->d, he = c->heads * attn_ref_e(c),
                  ge = c->groups * attn_ref_e(c), gap = gap_of(c);
    struct data t = {.ldq = hd + gap, .ldk = gd + gap, .ldv = ge + gap, .ldo = he + gap};
    t.q = op_random(c->rows * t.ldq, type, 1, 2.0);
    t.k = op_random(c->rows * t.ldk, type, 2, 2.0);
    t.v = op_random(c->rows * t.ldv, type, 3, 1.0);
    t.go = op_random(c->rows * t.ldo, type, 4, 1.0);
    t.dq = dense(&t.q, c->rows, hd, t.ldq, type);
    t.dk = dense(&t.k, c->rows, gd, t.ldk, type);
    t.dv = dense(&t.v, c->rows, ge, t.ldv, type);
    t.dgo = dense(&t.go, c->rows, he, t.ldo, type);
    t.o = doubles(c->rows * he);
    t.lse = doubles(c->rows * c->heads);
    attn_ref_fwd(c, t.dq, t.dk, t.dv, t.o, t.lse);
    t.g = (struct attn_grads){doubles(c->rows * hd), doubles(c->rows * gd), doubles(c->rows * ge),
                              doubles(c->rows * hd), doubles(c->rows * gd), doubles(c->rows * ge)};
    attn_ref_bwd(c, t.dq, t.dk, t.dv, t.o, t.dgo, t.lse, &t.g);
    /* f16 has no small numbers: probabilities and their gradients below 2^-14 are rounded to
     * multiples of 2^-24 */
    for (int64_t i = 0; type == LF_F16 && i < c->rows * gd; i++)
        t.g.ak[i] += 0.02;
    for (int64_t i = 0; type == LF_F16 && i < c->rows * ge; i++)
        t.g.av[i] += 0.02;
    for (int64_t i = 0; type == LF_F16 && i < c->rows * hd; i++)
        t.g.aq[i] += 0.02;
    return t;
}

OP_FN void data_free(struct data *t)
{
    double *p[] = {t->dq,   t->dk,   t->dv,   t->dgo,  t->o,    t->lse,
                   t->g.dq, t->g.dk, t->g.dv, t->g.aq, t->g.ak, t->g.av};
    for (size_t i = 0; i < sizeof p / sizeof *p; i++)
        free(p[i]);
    op_free(&t->q);
    op_free(&t->k);
    op_free(&t->v);
    op_free(&t->go);
}

/* Largest error over limit of a strided result; < 0: gaps were written. */
OP_FN double worst(const struct op_buf *b, int64_t rows, int64_t width, int64_t ld, int type,
                   const double *want, const double *scale, double tol)
{
    double w = op_guards_intact(b) ? 0 : -1;
    for (int64_t r = 0; r < rows && w >= 0; r++) {
        struct op_diff d =
            op_compare((char *)b->p + (size_t)(r * ld) * lf_dtype_size((enum lf_dtype)type), type,
                       want + r * width, scale ? scale + r * width : NULL, width, tol);
        w = d.bad >= 0 && d.worst < 2 ? 2 : fmax(w, d.worst);
        for (int64_t g = width; g < ld && r + 1 < rows; g++)
            for (size_t k = 0; k < lf_dtype_size((enum lf_dtype)type); k++)
                if (((unsigned char *)
                         b->p)[(size_t)(r * ld + g) * lf_dtype_size((enum lf_dtype)type) + k] !=
                    0xA5)
                    return -1;
    }
    return w;
}

OP_FN double op_tolerance(int type, double bf16, double f32)
{
    return type == LF_BF16 ? bf16 : type == LF_F16 ? bf16 / 8 : f32;
}

OP_FN bool within(double w, const char *what, const char *name, const char *family, int type)
{
    return tap_ok(w >= 0 && w <= 1, "%s: %s, %s, %s: worst error / limit %.3f", what, name, family,
                  type == LF_BF16  ? "bf16"
                  : type == LF_F16 ? "f16"
                                   : "f32",
                  w);
}

/* No document of the case is longer. */
OP_FN int64_t longest_of(const struct attn_case *c)
{
    int64_t most = 1;
    for (int64_t n = 0; n < c->n_docs; n++)
        most = c->cu[n + 1] - c->cu[n] > most ? c->cu[n + 1] - c->cu[n] : most;
    return most;
}

/* out: o, lse. */
OP_FN bool forward(const struct lf_kernels *k, const struct attn_case *c, int type,
                   const struct data *t, int threads, struct op_buf out[2])
{
    struct attn_given given = attn_give(c);
    const int64_t rows = queries_of(c, t);
    out[0] = op_alloc((size_t)(rows * t->ldo) * lf_dtype_size((enum lf_dtype)type));
    out[1] = op_alloc((size_t)(rows * c->heads) * 4);
    struct lf_k_attn_fwd a = {.rows = c->rows,
                              .heads = c->heads,
                              .groups = c->groups,
                              .d = c->d,
                              .d_value = attn_ref_e(c),
                              .n_docs = c->n_docs,
                              .max_doc = longest_of(c),
                              .q = t->q.p,
                              .k = t->k.p,
                              .v = t->v.p,
                              .o = out[0].p,
                              .lse = out[1].p,
                              .ldq = t->ldq,
                              .ldk = t->ldk,
                              .ldv = t->ldv,
                              .ldo = t->ldo,
                              .cu_seqlens = given.cu,
                              .prefix = given.prefix,
                              .runs = given.runs,
                              .alibi = given.alibi,
                              .sinks = given.sinks,
                              .scale = (float)attn_ref_scale(c),
                              .softcap = (float)c->softcap,
                              .drop = drop_of(&given, t),
                              .window = c->window,
                              .causal = c->causal,
                              .x_type = (uint8_t)type,
                              .own = t->own};
    a.work_bytes = k->attn_fwd.work(&a, threads);
    struct op_buf work = op_alloc(a.work_bytes);
    a.work = work.p;
    lf_queue *q = op_queue_create(threads);
    bool ran = k->attn_fwd.check(&a) == 0 && k->attn_fwd.run(q, &a) == 0 && op_guards_intact(&work);
    op_queue_destroy(q);
    op_free(&work);
    op_free(&given.mem);
    return ran;
}

/* o and lse as the forward stored them. */
OP_FN void saved(const struct attn_case *c, int type, const struct data *t, struct op_buf *o,
                 struct op_buf *lse)
{
    const int64_t he = c->heads * attn_ref_e(c), rows = queries_of(c, t);
    *o = op_alloc((size_t)(rows * t->ldo) * lf_dtype_size((enum lf_dtype)type));
    *lse = op_alloc((size_t)(rows * c->heads) * 4);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t x = 0; x < he; x++)
            op_set(o->p, r * t->ldo + x, type, t->o[r * he + x]);
    for (int64_t i = 0; i < rows * c->heads; i++)
        op_set(lse->p, i, LF_F32, t->lse[i]);
}

/* ds: what each row adds to the gradient of the sinks, rows c->heads + 1 apart. */
OP_FN bool sinks_backward(const struct lf_kernels *k, const struct attn_case *c, int type,
                          const struct data *t, int threads, struct op_buf *ds)
{
    struct attn_given given = attn_give(c);
    struct op_buf o, lse;
    saved(c, type, t, &o, &lse);
    *ds = op_alloc((size_t)(c->rows * (c->heads + 1)) * sizeof(float));
    struct lf_k_attn_sinks_bwd a = {.rows = c->rows,
                                    .heads = c->heads,
                                    .d_value = attn_ref_e(c),
                                    .ldo = t->ldo,
                                    .lddo = t->ldo,
                                    .ldds = c->heads + 1,
                                    .o = o.p,
                                    .d_o = t->go.p,
                                    .lse = lse.p,
                                    .sinks = given.sinks,
                                    .ds = ds->p,
                                    .x_type = (uint8_t)type};
    lf_queue *q = op_queue_create(threads);
    bool ran = k->attn_sinks_bwd.check(&a) == 0 && k->attn_sinks_bwd.run(q, &a) == 0;
    op_queue_destroy(q);
    op_free(&o);
    op_free(&lse);
    op_free(&given.mem);
    return ran;
}

OP_FN bool backward(const struct lf_kernels *k, const struct attn_case *c, int type,
                    const struct data *t, int threads, struct op_buf out[3])
{
    const size_t whole = lf_dtype_size((enum lf_dtype)type), size = t->own.first ? 4 : whole;
    struct attn_given given = attn_give(c);
    struct op_buf o, lse;
    saved(c, type, t, &o, &lse);
    out[0] = op_alloc((size_t)(queries_of(c, t) * t->ldq) * whole);
    out[1] = op_alloc((size_t)(c->rows * t->ldk) * size);
    out[2] = op_alloc((size_t)(c->rows * t->ldv) * size);
    struct lf_k_attn_bwd a = {.rows = c->rows,
                              .heads = c->heads,
                              .groups = c->groups,
                              .d = c->d,
                              .d_value = attn_ref_e(c),
                              .n_docs = c->n_docs,
                              .max_doc = longest_of(c),
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
                              .ldv = t->ldv,
                              .ldo = t->ldo,
                              .lddo = t->ldo,
                              .lddq = t->ldq,
                              .lddk = t->ldk,
                              .lddv = t->ldv,
                              .cu_seqlens = given.cu,
                              .prefix = given.prefix,
                              .runs = given.runs,
                              .alibi = given.alibi,
                              .scale = (float)attn_ref_scale(c),
                              .softcap = (float)c->softcap,
                              .drop = drop_of(&given, t),
                              .window = c->window,
                              .causal = c->causal,
                              .x_type = (uint8_t)type,
                              .own = t->own};
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

#endif
