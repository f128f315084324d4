/* SPDX-License-Identifier: Apache-2.0
 *
 * Training graphs of small decoders: gradients against finite differences, memory reuse against
 * none, recomputation, accumulation, slots, frozen parts, precision, the optimizer.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/graph/priv.h"
#include "tests/unit/graph_util.h"

static lf_err err = LF_ERR_INIT;

struct run {
    struct lf_step_record rec;
    float *grad;
    size_t n;
    struct lf_plan_bytes bytes;
    struct lf_plan_cost cost;
};

/* Two micro-batches, so that reuse between them and accumulation are part of it. */
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
    lf_plan_cost(u.p, u.train, &r.cost);
    gu_close(&u);
    return r;
}

static void test_reuse(const struct gu_model *m, const struct gu_opts *base, const char *name)
{
    struct gu_opts plain = *base, poison = *base, apart = *base;
    poison.poison = true;
    apart.plan.no_reuse = true;
    struct run a = one_run(m, &plain), b = one_run(m, &poison), c = one_run(m, &apart);
    tap_ok(isfinite(a.rec.loss_sum) && a.rec.loss_sum > 0, "%s: loss is a number (%.6f)", name,
           a.rec.loss_sum / (double)a.rec.tokens);
    tap_ok(a.n > 0 && a.n == b.n && a.n == c.n, "%s: %zu gradient elements", name, a.n);
    tap_mem(b.grad, a.grad, a.n * 4, "poisoned run has the same gradients");
    tap_mem(c.grad, a.grad, a.n * 4, "plan without reuse has the same gradients");
    tap_ok(memcmp(&a.rec, &b.rec, sizeof a.rec) == 0 && memcmp(&a.rec, &c.rec, sizeof a.rec) == 0,
           "%s: and the same sums", name);
    tap_ok((double)a.bytes.arena <= 1.05 * (double)a.bytes.largest_live,
           "%s: arena %zu within 1.05 of the largest live set %zu", name, a.bytes.arena,
           a.bytes.largest_live);
    tap_ok(a.bytes.arena < c.bytes.arena, "%s: reuse saves memory (%zu, %zu)", name, a.bytes.arena,
           c.bytes.arena);
    free(a.grad);
    free(b.grad);
    free(c.grad);
}

/* Planted faults: a saved tensor placed on a neighbour it lives with, and one that is given up a
 * node too early. */
static int32_t some_saved(const lf_graph *g, int skip)
{
    for (size_t t = 1; t < g->n_t; t++)
        if (g->t[t].root == (int32_t)t && g->t[t].saved && g->t[t].role == LF_ROLE_ACT &&
            skip-- == 0)
            return (int32_t)t;
    return 0;
}

static void tamper_offset(lf_plan *p)
{
    lf_graph *g = p->c[0].g;
    g->t[some_saved(g, 4)].off = g->t[some_saved(g, 6)].off;
}

static void tamper_life(lf_plan *p)
{
    lf_graph *g = p->c[0].g;
    g->t[some_saved(g, 4)].last--;
}

static void test_planted(void)
{
    struct gu_opts o = gu_f32;
    struct run good = one_run(&gu_llama, &o), r;
    o.tamper = tamper_offset;
    r = one_run(&gu_llama, &o);
    tap_ok(memcmp(r.grad, good.grad, good.n * 4) != 0, "two live tensors in one place are noticed");
    free(r.grad);
    o.tamper = tamper_life;
    o.poison = true;
    r = one_run(&gu_llama, &o);
    tap_ok(memcmp(r.grad, good.grad, good.n * 4) != 0, "a tensor given up too early is noticed");
    free(r.grad);
    free(good.grad);
}

static void test_recompute(const struct gu_model *m, const struct gu_opts *base, const char *name)
{
    struct run r[3];
    for (int how = 0; how < 3; how++) {
        struct gu_opts o = *base;
        o.recompute = (enum lf_recompute)how;
        o.poison = how == 2;
        r[how] = one_run(m, &o);
    }
    for (int how = 1; how < 3; how++) {
        tap_ok(memcmp(&r[0].rec, &r[how].rec, sizeof r[0].rec) == 0,
               "%s, recompute %d: losses are the same bits", name, how);
        tap_mem(r[how].grad, r[0].grad, r[0].n * 4, "gradients are the same bits");
        tap_ok(r[how].bytes.saved < r[how - 1].bytes.saved,
               "%s, recompute %d: saved %zu, before %zu", name, how, r[how].bytes.saved,
               r[how - 1].bytes.saved);
    }
    tap_ok(r[1].cost.recompute == 0 && r[2].cost.recompute > 0,
           "%s: selective repeats no product, full does", name);
    for (int how = 0; how < 3; how++)
        free(r[how].grad);
}

static void test_accumulation(void)
{
    struct gu_model big = gu_llama;
    big.rows = 2 * gu_llama.rows;
    struct gu_batch one, half[2];
    struct gu u, v;
    size_t n = 0;
    gu_batch_make(&half[0], &gu_llama, gu_llama.rows, 0);
    gu_batch_make(&half[1], &gu_llama, gu_llama.rows, 1);
    memset(&one, 0, sizeof one);
    for (int h = 0; h < 2; h++) {
        size_t at = (size_t)(h * gu_llama.rows);
        memcpy(one.token + at, half[h].token, (size_t)gu_llama.rows * 4);
        memcpy(one.target + at, half[h].target, (size_t)gu_llama.rows * 4);
        memcpy(one.position + at, half[h].position, (size_t)gu_llama.rows * 4);
        memcpy(one.sample + at, half[h].sample, (size_t)gu_llama.rows * 8);
        for (int i = 0; i < 3; i++)
            one.cu[3 * h + i] = half[h].cu[i] + (int32_t)at;
    }
    one.cu[6] = (int32_t)big.rows;
    gu_open(&u, &gu_llama, &gu_f32);
    gu_open(&v, &big, &gu_f32);
    gu_record(&u, half[0].trained + half[1].trained, 0);
    gu_record(&v, half[0].trained + half[1].trained, 0);
    for (int h = 0; h < 2; h++) {
        gu_feed(&u, u.train, 0, &half[h]);
        gu_fwd_bwd(&u, 0, h == 0 ? LF_FIRST : LF_ACCUM);
    }
    gu_feed(&v, v.train, 0, &one);
    gu_fwd_bwd(&v, 0, LF_FIRST);
    struct lf_step_record ru = gu_result(&u), rv = gu_result(&v);
    float *gu_ = gu_grads(&u, &n), *gv = gu_grads(&v, &n);
    tap_f64(ru.loss_sum / rv.loss_sum, 1.0, 1e-6,
            "two micro-batches have the loss of one big batch");
    tap_f64(gu_rel_diff(gu_, gv, n), 0.0, 1e-6, "and its gradients");
    /* The first micro-batch overwrites: running the same again leaves no trace of the old
     * gradients. */
    for (int h = 0; h < 2; h++) {
        gu_feed(&u, u.train, 0, &half[h]);
        gu_fwd_bwd(&u, 0, h == 0 ? LF_FIRST : LF_ACCUM);
    }
    float *again = gu_grads(&u, &n);
    tap_mem(again, gu_, n * 4, "the first micro-batch overwrites the gradients of the step before");
    free(gu_);
    free(gv);
    free(again);
    gu_close(&u);
    gu_close(&v);
}

static void test_slots(void)
{
    struct gu_opts two = gu_f32;
    two.slots = 2;
    two.poison = true;
    struct gu_batch b[2];
    struct gu u;
    size_t n = 0;
    struct run seq = one_run(&gu_llama, &gu_f32);
    gu_open(&u, &gu_llama, &two);
    gu_record(&u, seq.rec.tokens > 0 ? (int)seq.rec.tokens : 1, 0);
    for (uint32_t i = 0; i < 2; i++) {
        gu_batch_make(&b[i], &gu_llama, gu_llama.rows, i);
        gu_feed(&u, u.train, (int)i, &b[i]);
    }
    const struct lf_program_item prog[] = {{u.train, LF_FWD, 0, LF_FIRST},
                                           {u.train, LF_FWD, 1, LF_ACCUM},
                                           {u.train, LF_BWD, 0, LF_FIRST},
                                           {u.train, LF_BWD, 1, LF_ACCUM}};
    tap_rc(lf_exec_run_program(u.ex, prog, 4, &err), 0, &err, NULL, "two micro-batches in flight");
    float *g = gu_grads(&u, &n);
    tap_mem(g, seq.grad, n * 4, "slots give the gradients of one after the other, bit for bit");
    free(g);
    free(seq.grad);
    gu_close(&u);
}

static double loss_of(struct gu *u, const struct gu_batch *b)
{
    gu_record(u, b->trained, 0);
    gu_feed(u, u->train, 0, b);
    if (lf_exec_run(u->ex, u->train, LF_FWD, 0, LF_FIRST, &err))
        tap_bail("forward: %s", err.text);
    struct lf_step_record r = gu_result(u);
    return r.loss_sum / (double)r.tokens;
}

/* Directional derivative of the f32 loss per logical tensor: central differences along the
 * gradient's own direction, with a step found by halving until two estimates agree, so that neither
 * truncation nor f32 rounding decides. */
static void test_finite_differences(const struct gu_model *m, const char *name)
{
    struct gu u;
    struct gu_batch b;
    gu_open(&u, m, &gu_f32);
    gu_batch_make(&b, m, m->rows, 0);
    gu_record(&u, b.trained, 0);
    gu_feed(&u, u.train, 0, &b);
    gu_fwd_bwd(&u, 0, LF_FIRST);
    int bad = 0, count = lf_pstore_count(u.ps);
    size_t total = 0, at = 0;
    float *grads =
        gu_grads(&u, &total); /* now: the loss node of every later run writes the head's again */
    for (int i = 0; i < count; i++) {
        struct lf_pview w, g;
        if (lf_pstore_view(u.ps, i, LF_P_MASTER, &w) != 1 ||
            lf_pstore_view(u.ps, i, LF_P_GRAD, &g) != 1)
            tap_bail("tensor %d has no weight or gradient", i);
        size_t n = w.bytes / 4;
        float *w0 = malloc(w.bytes), *dir = malloc(w.bytes), *w1 = malloc(w.bytes);
        memcpy(w0, w.data, w.bytes);
        memcpy(dir, grads + at, g.bytes);
        at += n;
        double norm = 0, best = INFINITY;
        for (size_t e = 0; e < n; e++)
            norm += (double)dir[e] * (double)dir[e];
        norm = sqrt(norm);
        for (double h = 0.05; h > 0.001 && best > 1e-3; h /= 2) {
            double l[2];
            for (int s = 0; s < 2; s++) {
                for (size_t e = 0; e < n; e++)
                    w1[e] = (float)((double)w0[e] + (s ? -h : h) * (double)dir[e] / norm);
                lf_pstore_write(u.ps, i, LF_F32, w1, &err);
                l[s] = loss_of(&u, &b);
            }
            double rel = fabs((l[0] - l[1]) / (2 * h) - norm) / (norm + 1e-3);
            best = rel < best ? rel : best;
        }
        if (!(best < 2e-3)) {
            bad++;
            tap_diag("%s: |grad| %.6g, finite differences off by %.3g", w.name, norm, best);
        }
        lf_pstore_write(u.ps, i, LF_F32, w0, &err);
        free(w0);
        free(w1);
        free(dir);
    }
    tap_i64(bad, 0, name);
    free(grads);
    gu_close(&u);
}

/* Fusion changes no result beyond rounding, whichever patterns a target has. */
static void test_fusion(const struct gu_model *m, const char *name)
{
    struct lf_target t = *lf_target_host();
    struct gu_opts o = gu_f32;
    struct run ref = one_run(m, &o);
    static const uint32_t patterns[] = {0,
                                        LF_FUSE_ACT,
                                        LF_FUSE_RESIDUAL,
                                        LF_FUSE_NORM,
                                        LF_FUSE_NORM | LF_FUSE_NORM_BWD,
                                        LF_FUSE_DROPOUT | LF_FUSE_NORM};
    int nodes = ref.cost.nodes_fwd + ref.cost.nodes_bwd;
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        t.fuse = patterns[i];
        o.plan.target = &t;
        o.poison = i % 2;
        struct run r = one_run(m, &o);
        tap_ok(
            fabs(r.rec.loss_sum / ref.rec.loss_sum - 1) < 1e-6 &&
                gu_rel_diff(r.grad, ref.grad, r.n) < 2e-6 &&
                r.cost.nodes_fwd + r.cost.nodes_bwd > nodes,
            "%s, patterns %#x: loss and gradients within rounding (%.2g), %d nodes instead of %d",
            name, patterns[i], gu_rel_diff(r.grad, ref.grad, r.n),
            r.cost.nodes_fwd + r.cost.nodes_bwd, nodes);
        free(r.grad);
    }
    free(ref.grad);
}

static void test_frozen(void)
{
    struct gu u, all;
    struct gu_opts o = gu_f32;
    struct lf_plan_cost cost, cost_all;
    struct lf_plan_bytes bytes, bytes_all;
    gu_open(&all, &gu_llama, &o);
    o.freeze = "layers.";
    o.optimizer = true;
    gu_open(&u, &gu_llama, &o);
    lf_plan_cost(u.p, u.train, &cost);
    lf_plan_cost(all.p, all.train, &cost_all);
    lf_plan_bytes(u.p, &bytes);
    lf_plan_bytes(all.p, &bytes_all);
    tap_ok(cost.bwd_causal < 0.75 * cost_all.bwd_causal,
           "frozen layers have no dW (%g of %g FLOPs)", cost.bwd_causal, cost_all.bwd_causal);
    tap_ok(bytes.grads < bytes_all.grads / 2, "and no gradients in memory");
    int dw = 0;
    for (size_t i = 0; i < u.p->c[0].g->n_n; i++)
        dw += u.p->c[0].g->n[i].op == LF_OP_LINEAR_DW;
    tap_i64(dw, 0, "no dW node is left");
    gu_close(&u);
    o.freeze = "embed";
    gu_open(&u, &gu_llama, &o);
    int eb = 0;
    for (size_t i = 0; i < u.p->c[0].g->n_n; i++)
        eb += u.p->c[0].g->n[i].op == LF_OP_EMBED_BWD;
    tap_i64(eb, 0, "a frozen embedding has no backward node");
    gu_close(&u);
    gu_close(&all);
}

static void test_bf16(void)
{
    struct gu u;
    struct gu_opts o = gu_bf16;
    o.optimizer = true;
    o.valid = true;
    gu_open(&u, &gu_llama, &o);
    const lf_graph *g = u.p->c[0].g;
    int casts = 0, copies = 0, same = 0;
    for (size_t i = 0; i < g->n_n; i++)
        casts += g->n[i].op == LF_OP_CAST;
    for (size_t i = 1; i < g->n_t; i++)
        copies += g->t[i].role == LF_ROLE_PARAM && g->t[i].pkind == LF_P_COPY;
    for (size_t i = 1; i < g->n_t; i++)
        for (size_t k = i + 1; k < g->n_t; k++)
            same += g->t[i].role == LF_ROLE_PARAM && g->t[i].pkind == LF_P_COPY &&
                    g->t[k].role == LF_ROLE_PARAM && g->t[k].pkind == LF_P_COPY &&
                    g->t[i].group == g->t[k].group;
    tap_i64(casts, 0, "bf16 needs no cast between its own nodes");
    tap_ok(copies == 2 + 4 * gu_llama.layers && same == 0,
           "one shared bf16 copy per weight group (%d)", copies);
    struct run f = one_run(&gu_llama, &gu_f32), h = one_run(&gu_llama, &gu_bf16);
    tap_f64(h.rec.loss_sum / f.rec.loss_sum, 1.0, 0.01, "bf16 loss is near the f32 loss");
    tap_f64(gu_rel_diff(h.grad, f.grad, f.n), 0.0, 0.05, "bf16 gradients are near the f32 ones");
    tap_ok(gu_rel_diff(h.grad, f.grad, f.n) > 1e-4, "and they are not the same");
    free(f.grad);
    free(h.grad);
    gu_close(&u);
}

static void test_optimizer(const struct gu_opts *base, const char *name)
{
    struct gu u;
    struct gu_opts o = *base;
    struct gu_batch b;
    double first = 0, last = 0;
    o.optimizer = o.valid = true;
    struct gu_model m = gu_llama;
    gu_open(&u, &m, &o);
    gu_batch_make(&b, &m, m.rows, 0);
    for (int s = 0; s < 12; s++) {
        struct lf_step_record rec = {.step = (uint64_t)s,
                                     .lr = 0.01f,
                                     .bias_corr1 = 1 - powf(0.9f, (float)(s + 1)),
                                     .bias_corr2 = 1 - powf(0.95f, (float)(s + 1)),
                                     .clip_norm = 1,
                                     .loss_scale = 1,
                                     .inv_tokens = 1.0f / (float)b.trained};
        lf_exec_record_write(u.ex, &rec, &err);
        gu_feed(&u, u.train, 0, &b);
        gu_fwd_bwd(&u, 0, LF_FIRST);
        if (lf_exec_run(u.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err))
            tap_bail("optimizer: %s", err.text);
        lf_exec_record_read(u.ex, &rec, &err);
        last = rec.loss_sum / (double)rec.tokens;
        first = s == 0 ? last : first;
        if (s == 0)
            tap_ok(rec.grad_norm > 0 && rec.skip == 0, "%s: gradient norm %.4f", name,
                   (double)rec.grad_norm);
    }
    tap_ok(last < 0.6 * first, "%s: twelve steps on one batch bring the loss from %.3f to %.3f",
           name, first, last);
    /* The validation graph shares bytes with training and sees the new weights. */
    double train = loss_of(&u, &b);
    gu_record(&u, b.trained, 0);
    gu_feed(&u, u.valid, 0, &b);
    tap_rc(lf_exec_run(u.ex, u.valid, LF_FWD, 0, LF_FIRST, &err), 0, &err, NULL,
           "validation graph");
    struct lf_step_record r = gu_result(&u);
    tap_f64(r.loss_sum / (double)r.tokens, train, 0.0,
            "validation has the training graph's loss, bit for bit");
    if (o.plan.compute == LF_BF16) { /* the copy that adamw kept is the rounded master */
        int bad = 0;
        for (int i = 0; i < lf_pstore_count(u.ps); i++) {
            struct lf_pview w, c;
            if (lf_pstore_view(u.ps, i, LF_P_COPY, &c) != 1)
                continue;
            lf_pstore_view(u.ps, i, LF_P_MASTER, &w);
            for (size_t e = 0; e < c.bytes / 2; e++) {
                uint32_t bits;
                memcpy(&bits, (const float *)w.data + e, 4);
                bad += ((const uint16_t *)c.data)[e] !=
                       (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
            }
        }
        tap_i64(bad, 0, "copies are the rounded masters after the optimizer");
    }
    /* A non-finite loss leaves everything as it was. */
    float *w0 = malloc((size_t)lf_pstore_elements(u.ps) * 4);
    struct lf_pview w;
    lf_pstore_view(u.ps, 1, LF_P_MASTER, &w);
    memcpy(w0, w.data, w.bytes);
    b.token[3] = -5; /* NaN row */
    gu_record(&u, b.trained, 0.01f);
    gu_feed(&u, u.train, 0, &b);
    gu_fwd_bwd(&u, 0, LF_FIRST);
    lf_exec_run(u.ex, LF_CHAIN_OPT, LF_OPT, 0, LF_FIRST, &err);
    r = gu_result(&u);
    tap_i64(r.skip, 1, "a NaN sets the skip flag");
    tap_mem(w.data, w0, w.bytes, "and the weights stay");
    free(w0);
    gu_close(&u);
}

int main(void)
{
    struct gu_model split = gu_llama, par = gu_gpt2;
    split.split_qkv = true;
    par.parallel = true;
    par.dropout = 0;
    TAP(7, test_reuse(&gu_llama, &gu_f32, "llama"));
    TAP(7, test_reuse(&gu_gpt2, &gu_f32, "gpt2"));
    TAP(7, test_reuse(&gu_qwen, &gu_f32, "qwen"));
    TAP(7, test_reuse(&split, &gu_f32, "llama, q k v apart"));
    TAP(7, test_reuse(&par, &gu_f32, "parallel block"));
    TAP(7, test_reuse(&gu_llama, &gu_bf16, "llama bf16"));
    TAP(7, test_reuse(&gu_gpt2, &gu_bf16, "gpt2 bf16"));
    TAP(2, test_planted());
    TAP(7, test_recompute(&gu_llama, &gu_f32, "llama"));
    TAP(7, test_recompute(&gu_gpt2, &gu_f32, "gpt2"));
    TAP(7, test_recompute(&gu_qwen, &gu_bf16, "qwen bf16"));
    TAP(7, test_recompute(&gu_gpt2, &gu_bf16, "gpt2 bf16"));
    TAP(3, test_accumulation());
    TAP(2, test_slots());
    TAP(1, test_finite_differences(&gu_llama, "llama: gradients agree with finite differences"));
    TAP(1, test_finite_differences(&gu_gpt2, "gpt2: gradients agree with finite differences"));
    TAP(1, test_finite_differences(&gu_qwen, "qwen: gradients agree with finite differences"));
    TAP(1,
        test_finite_differences(&par, "parallel block: gradients agree with finite differences"));
    TAP(6, test_fusion(&gu_llama, "llama"));
    TAP(6, test_fusion(&gu_gpt2, "gpt2"));
    TAP(6, test_fusion(&par, "parallel block"));
    TAP(4, test_frozen());
    TAP(5, test_bf16());
    TAP(6, test_optimizer(&gu_f32, "f32"));
    TAP(7, test_optimizer(&gu_bf16, "bf16"));
    return tap_done();
}
