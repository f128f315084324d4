/* SPDX-License-Identifier: Apache-2.0
 *
 * Graphs with 8-bit products: gradients near those of f32 (and planted faults that take them away
 * from there), memory reuse and recomputation bit for bit, copies of weights that follow the
 * optimizer, what stays as it is, refusals.
 *
 * How near: rounding to e4m3 is off by 2^-4 at most, by about 2.6 % of the value in the mean
 * square; e5m2 by twice that. An element of a product is a sum over independent errors of both
 * factors, so a product is off by about 4 % (forward) or 6 % (backward) of its size. The gradient
 * of the first of L layers has seen about 8 L products: with L = 3 errors of 5 % add up to 25 %,
 * which is a cosine of 0.97.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"
#include "tests/unit/graph_util.h"

#define LEAST_COSINE 0.97

static lf_err err = LF_ERR_INIT;

/* Every size a multiple of 128. */
static const struct gu_model wide = {.layers = 2,
                                     .c = 128,
                                     .heads = 4,
                                     .groups = 2,
                                     .d = 32,
                                     .ffn = 128,
                                     .vocab = 67,
                                     .max_pos = 64,
                                     .rope = true,
                                     .glu = true,
                                     .rows = 128};

static struct gu_opts opts_of(enum lf_fp8 fp8)
{
    return (struct gu_opts){.plan = {.threads = 1, .compute = LF_BF16, .fp8 = fp8, .mode = LF_FAST},
                            .fp8 = "layers.*"};
}

struct run {
    struct lf_step_record rec;
    float *grad;
    size_t n;
    struct lf_plan_bytes bytes;
};

static struct run one_run(const struct gu_model *m, const struct gu_opts *o)
{
    struct gu u;
    struct run r;
    struct gu_batch b[2];
    gu_open(&u, m, o);
    for (uint32_t i = 0; i < 2; i++)
        gu_batch_make(&b[i], m, m->rows, i);
    gu_record(&u, b[0].trained + b[1].trained, 0.01f);
    for (int i = 0; i < 2; i++) {
        gu_feed(&u, u.train, 0, &b[i]);
        gu_fwd_bwd(&u, 0, i == 0 ? LF_FIRST : LF_ACCUM);
    }
    r.rec = gu_result(&u);
    r.grad = gu_grads(&u, &r.n);
    lf_plan_bytes(u.p, &r.bytes);
    gu_close(&u);
    return r;
}

static double cosine(const float *a, const float *b, size_t n)
{
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < n; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

/* The scale of another tensor; a weight in the place of its transpose. */
static void tamper_scales(lf_plan *p)
{
    lf_graph *g = p->c[0].g;
    for (size_t i = 0; i < g->n_n; i++)
        if (g->n[i].op == LF_OP_LINEAR_FP8) {
            g->n[i].in[LINEAR_WS] = g->n[i].in[LINEAR_XS];
            return;
        }
}

static void tamper_transpose(lf_plan *p)
{
    lf_graph *g = p->c[0].g;
    for (size_t i = g->n_fwd; i < g->n_n; i++)
        if (g->n[i].op == LF_OP_LINEAR_DX_FP8 &&
            g->t[g->n[i].in[LDX_W]].rows == g->t[g->n[i].in[LDX_W]].cols) {
            g->t[g->n[i].in[LDX_W]].pkind = LF_P_Q;
            return;
        }
}

static void test_near(const struct gu_model *m, enum lf_fp8 fp8, const char *name)
{
    struct gu_opts o = opts_of(fp8), bf = o, f32 = o;
    bf.plan.fp8 = f32.plan.fp8 = LF_FP8_OFF;
    f32.plan.compute = LF_F32;
    struct run a = one_run(m, &o), b = one_run(m, &bf), c = one_run(m, &f32);
    const double near = cosine(a.grad, c.grad, a.n), bf16 = cosine(b.grad, c.grad, a.n);
    tap_ok(near > LEAST_COSINE && near < bf16 && bf16 > 0.999,
           "%s: gradients with cosine %.4f to those of f32 (bf16: %.6f)", name, near, bf16);
    tap_ok(fabs(a.rec.loss_sum / c.rec.loss_sum - 1) < 0.02 &&
               memcmp(&a.rec.loss_sum, &b.rec.loss_sum, 8) != 0,
           "%s: loss %.5f, f32 %.5f", name, a.rec.loss_sum / (double)a.rec.tokens,
           c.rec.loss_sum / (double)c.rec.tokens);
    tap_ok(a.bytes.saved < b.bytes.saved, "%s: saved for the backward %zu bytes, bf16 %zu", name,
           a.bytes.saved, b.bytes.saved);
    void (*const faults[])(lf_plan *) = {tamper_scales, tamper_transpose};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        o.tamper = faults[i];
        struct run f = one_run(m, &o);
        const double far = cosine(f.grad, c.grad, f.n);
        tap_ok(!(far > LEAST_COSINE), "%s: planted fault %zu is seen (cosine %.3f)", name, i, far);
        free(f.grad);
    }
    free(a.grad);
    free(b.grad);
    free(c.grad);
}

static void same(const struct run *a, const struct run *b, const char *name, const char *what)
{
    tap_ok(a->n == b->n && memcmp(a->grad, b->grad, a->n * 4) == 0 &&
               memcmp(&a->rec, &b->rec, sizeof a->rec) == 0,
           "%s: %s changes no bit", name, what);
}

static void test_bits(const struct gu_model *m, enum lf_fp8 fp8, const char *name)
{
    const struct gu_opts o = opts_of(fp8);
    struct gu_opts x = o;
    struct run a = one_run(m, &o), b;
    x.poison = true;
    b = one_run(m, &x);
    same(&b, &a, name, "poison");
    free(b.grad);
    x = o;
    x.plan.no_reuse = true;
    b = one_run(m, &x);
    same(&b, &a, name, "a plan without reuse");
    free(b.grad);
    x = o;
    x.plan.threads = 2;
    b = one_run(m, &x);
    same(&b, &a, name, "the number of threads");
    free(b.grad);
    size_t saved = a.bytes.saved;
    for (int how = LF_RECOMPUTE_SELECTIVE; how <= LF_RECOMPUTE_FULL; how++) {
        x = o;
        x.recompute = (enum lf_recompute)how;
        x.poison = true;
        b = one_run(m, &x);
        same(&b, &a, name,
             how == LF_RECOMPUTE_FULL ? "full recomputation" : "selective recomputation");
        tap_ok(b.bytes.saved < saved, "%s: and saves %zu bytes instead of %zu", name, b.bytes.saved,
               saved);
        saved = b.bytes.saved;
        free(b.grad);
    }
    free(a.grad);
}

static double loss_of(struct gu *u, int chain)
{
    struct gu_batch b;
    gu_batch_make(&b, &u->m, u->m.rows, 5);
    gu_record(u, b.trained, 0.01f);
    gu_feed(u, chain, 0, &b);
    if (lf_exec_run(u->ex, chain, LF_FWD, 0, LF_FIRST, &err))
        tap_bail("forward: %s", err.text);
    return gu_result(u).loss_sum;
}

/* After a step the copies are those of the new masters: another store that is given them computes
 * the same bits. */
static void test_step(enum lf_fp8 fp8, const char *name)
{
    const struct gu_model *m = fp8 == LF_FP8_BLOCKS ? &wide : &gu_llama;
    struct gu_opts o = opts_of(fp8);
    struct gu u, v;
    struct gu_batch b;
    o.optimizer = true;
    o.valid = true;
    gu_open(&u, m, &o);
    gu_open(&v, m, &o);
    gu_batch_make(&b, m, m->rows, 0);
    const double before = loss_of(&u, u.valid);
    for (int i = 0; i < 2; i++) {
        gu_record(&u, b.trained, 0.01f);
        gu_feed(&u, u.train, 0, &b);
        gu_fwd_bwd(&u, 0, LF_FIRST);
        if (lf_exec_run(u.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err))
            tap_bail("step: %s", err.text);
    }
    for (int i = 0; i < lf_pstore_count(u.ps); i++) {
        struct lf_pview w;
        if (lf_pstore_view(u.ps, i, LF_P_MASTER, &w) != 1 ||
            lf_pstore_write(v.ps, i, LF_F32, w.data, &err))
            tap_bail("copying weights: %s", err.text);
    }
    const double after = loss_of(&u, u.valid), other = loss_of(&v, v.valid);
    tap_ok(memcmp(&after, &other, sizeof after) == 0 && fabs(after - before) > 1e-3,
           "%s: after two steps a fresh store with the new masters has the same loss (%.6f, before "
           "%.6f)",
           name, after, before);
    struct lf_pview copy;
    const int i = lf_pstore_find(u.ps, "layers.0.down.weight");
    tap_ok(lf_pstore_view(u.ps, i, LF_P_COPY, &copy) == 0,
           "%s: there is no bf16 copy beside the 8-bit one", name);
    gu_close(&u);
    gu_close(&v);
}

static int count_ops(const lf_plan *p, enum lf_op op, int block)
{
    int n = 0;
    for (size_t i = 0; i < p->c[0].g->n_n; i++)
        n += p->c[0].g->n[i].op == op && (block < 0 || p->c[0].g->n[i].block == block);
    return n;
}

static void test_chosen(void)
{
    struct gu_opts o = opts_of(LF_FP8_TENSORS);
    struct gu u;
    gu_open(&u, &gu_llama, &o);
    tap_ok(count_ops(u.p, LF_OP_LINEAR_FP8, -1) == 12 && count_ops(u.p, LF_OP_LINEAR, -1) == 0 &&
               count_ops(u.p, LF_OP_LINEAR_DX_FP8, -1) == 12 &&
               count_ops(u.p, LF_OP_LINEAR_DW_FP8, -1) == 12,
           "all twelve linear layers, three products each");
    tap_ok(count_ops(u.p, LF_OP_QUANTISE, -1) == 24,
           "one quantising node for each input and each gradient: %d",
           count_ops(u.p, LF_OP_QUANTISE, -1));
    gu_close(&u);
    o.fp8 = "layers.1.*";
    gu_open(&u, &gu_llama, &o);
    tap_ok(count_ops(u.p, LF_OP_LINEAR_FP8, 1) == 4 && count_ops(u.p, LF_OP_LINEAR_FP8, -1) == 4 &&
               count_ops(u.p, LF_OP_LINEAR, -1) == 8,
           "only the marked layer");
    gu_close(&u);
    o.fp8 = "layers.*";
    o.freeze = "layers.";
    o.optimizer = true;
    gu_open(&u, &gu_llama, &o);
    struct lf_pview w;
    const int i = lf_pstore_find(u.ps, "layers.0.down.weight");
    tap_ok(count_ops(u.p, LF_OP_LINEAR_DX_FP8, -1) == 12 &&
               count_ops(u.p, LF_OP_LINEAR_DW_FP8, -1) == 0 &&
               lf_pstore_view(u.ps, i, LF_P_MASTER, &w) == 0 &&
               lf_pstore_view(u.ps, i, LF_P_COPY, &w) == 1,
           "frozen weights: no dW, the 8-bit copies come from the bf16 ones");
    tap_ok(isfinite(loss_of(&u, u.train)), "and it runs");
    gu_close(&u);
}

static void refused(const struct lf_plan_opts *po, const struct gu_model *m, const char *mark,
                    const char *says, const char *name)
{
    lf_pstore *ps = gu_store(m, &err);
    lf_pstore_fp8_matching(ps, mark, true);
    lf_plan *p = lf_plan_create(ps, po, &err);
    if (p) {
        lf_graph *g = gu_graph(m, ps, "train", true, &err);
        if (lf_plan_add(p, g, &(struct lf_chain_opts){.train = true}, &err) >= 0)
            lf_plan_finish(p, &err);
        lf_graph_destroy(g);
    }
    tap_rc(err.rc, err.rc ? err.rc : LF_ENOTSUP, &err, says, name);
    lf_plan_destroy(p);
    lf_pstore_destroy(ps);
}

static void test_refused(void)
{
    const struct lf_plan_opts ok = opts_of(LF_FP8_TENSORS).plan;
    struct lf_plan_opts o = ok;
    o.target = lf_target_find("sm_80");
    refused(&o, &gu_llama, "layers.*", "from sm_89 on", "a GPU without 8-bit tensor cores");
    o.target = lf_target_find("sm_89");
    lf_pstore *ps = gu_store(&gu_llama, &err);
    lf_plan *p = lf_plan_create(ps, &o, &err);
    tap_rc(p ? 0 : err.rc, 0, &err, NULL, "one with them is taken");
    lf_plan_destroy(p);
    lf_pstore_destroy(ps);
    o.target = lf_target_find("sm_100");
    o.fp8 = LF_FP8_BLOCKS;
    refused(&o, &wide, "layers.*", "take fp8_scaling = tensor", "scales of blocks beyond sm_90");
    o = ok;
    o.mode = LF_INVARIANT;
    refused(&o, &gu_llama, "layers.*", "no invariant mode", "invariant mode");
    o = ok;
    refused(&o, &gu_llama, "nothing*", "is marked", "nothing marked");
    o.fp8 = LF_FP8_BLOCKS;
    refused(&o, &gu_llama, "layers.*", "multiple of 128", "sizes that blocks do not divide");
    struct gu_model odd = gu_llama;
    odd.ffn = 40;
    o.fp8 = LF_FP8_TENSORS;
    refused(&o, &odd, "layers.*", "layers.0.down.weight [32, 40]",
            "a size that is no multiple of 16, by its name");
}

int main(void)
{
    TAP(5, test_near(&gu_llama, LF_FP8_TENSORS, "llama, tensors"));
    TAP(5, test_near(&wide, LF_FP8_BLOCKS, "llama, blocks"));
    TAP(7, test_bits(&gu_llama, LF_FP8_TENSORS, "llama, tensors"));
    TAP(7, test_bits(&gu_gpt2, LF_FP8_TENSORS, "gpt2, tensors"));
    TAP(7, test_bits(&wide, LF_FP8_BLOCKS, "llama, blocks"));
    TAP(2, test_step(LF_FP8_TENSORS, "tensors"));
    TAP(2, test_step(LF_FP8_BLOCKS, "blocks"));
    TAP(5, test_chosen());
    TAP(7, test_refused());
    return tap_done();
}
