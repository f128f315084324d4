/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks in plans: backward passes in two segments, what they cost, bytes of several chunks in one
 * plan, and chunks whose matrices ranks divide.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/graph/priv.h"
#include "kernels/cuda/queue.h"
#include "tests/cuda/emu/run.h"
#include "tests/tap/tap.h"
#include "tests/unit/chunk_rig.h"

/* ---- segments ---- */

static const struct rig_way in_turn = {.name = "split, in turn",
                                       .n = 3,
                                       .end = {1, 3, 4},
                                       .micro = 2,
                                       .in_flight = true,
                                       .split = true};

static double runs_of(const struct lf_plan_cost *c)
{
    return c->run_fwd + c->run_input + c->run_weight;
}

/* FLOPs by segment are those of the passes, and chunks have together what the whole model has. */
static void test_cost(const struct rig_model *m)
{
    static struct rig_result whole, cut, again;
    struct rig_way w = in_turn;
    const struct rig_way one = rig_whole(&w);
    struct lf_plan_cost sum = {0};
    bool adds = true, parts = true;
    rig_run(m, &one, &whole);
    rig_run(m, &w, &cut);
    w.split = false;
    w.recompute = LF_RECOMPUTE_FULL;
    rig_run(m, &w, &again);
    for (int k = 0; k < w.n; k++) {
        const struct lf_plan_cost *c = &cut.cost[k], *a = &again.cost[k];
        sum.fwd_causal += c->fwd_causal;
        sum.bwd_causal += c->bwd_causal;
        sum.run_fwd += c->run_fwd;
        sum.run_input += c->run_input;
        sum.run_weight += c->run_weight;
        adds = adds && rig_near(runs_of(c), c->fwd_causal + c->bwd_causal) &&
               rig_near(runs_of(a), a->fwd_causal + a->bwd_causal + a->recompute) &&
               a->recompute > 0;
        parts = parts && c->run_input > 0 && c->run_weight > 0 && a->run_weight == 0;
    }
    const struct lf_plan_cost *c = &whole.cost[0];
    tap_ok(adds, "%s: FLOPs of segments are those of the passes", m->name);
    tap_ok(parts, "every chunk has both segments of a backward pass");
    tap_ok(rig_near(sum.fwd_causal, c->fwd_causal) && rig_near(sum.bwd_causal, c->bwd_causal) &&
               rig_near(sum.run_fwd, c->run_fwd) &&
               rig_near(sum.run_input + sum.run_weight, c->run_input) && c->run_weight == 0,
           "all chunks have those of the whole model");
    tap_ok(cut.cost[2].run_fwd > cut.cost[2].fwd_causal &&
               cut.cost[0].run_fwd == cut.cost[0].fwd_causal,
           "the backward pass of the loss is in the forward segment of the last chunk");
    rig_forget(&whole);
    rig_forget(&cut);
    rig_forget(&again);
}

/* Whatever a plan is split for, it is the same training. */
static void test_joined(const struct rig_model *m)
{
    static struct rig_result whole, cut;
    struct rig_way w = in_turn, uncut = in_turn;
    const struct rig_way one = rig_whole(&w);
    const char *name = "";
    w.joined = true;
    uncut.n = 0;
    rig_run(m, &one, &whole);
    rig_run(m, &w, &cut);
    tap_ok(rig_differing(m, &whole, &cut, &name) == 0, "%s: both segments at once: %s", m->name,
           name);
    rig_forget(&cut);
    rig_run(m, &uncut, &cut);
    tap_ok(cut.hash == whole.hash && cut.hash, "a split plan has the hash of one that is not");
    rig_forget(&cut);
    w.joined = false;
    w.zero = 1;
    rig_run(m, &w, &cut);
    tap_ok(!cut.error[0] && rig_differing(m, &whole, &cut, &name) == 0, "zero = 1: %s%s", cut.error,
           name);
    rig_forget(&cut);
    rig_forget(&whole);
}

static void refused(const struct rig_way *w, const char *text)
{
    static struct rig_result r;
    rig_run(rig_model("llama"), w, &r);
    tap_ok(strstr(r.error, text) != NULL, "refused: %s", r.error);
    rig_forget(&r);
}

static void test_segments_refused(void)
{
    struct rig_way w = in_turn;
    w.recompute = LF_RECOMPUTE_FULL;
    refused(&w, "recompute = full with a split backward pass");
    for (int zero = 2; zero <= 3; zero++) {
        char text[80];
        snprintf(text, sizeof text, "zero = %d with pipeline chunks or a split", zero);
        w = in_turn;
        w.zero = zero;
        refused(&w, text);
        w.n = 0;
        refused(&w, text);
        w = in_turn;
        w.zero = zero;
        w.split = false;
        refused(&w, text);
    }
}

/* y = (norm(x; n) w^T + n) w^T + n: the gradients of the biases n are added before that of the
 * norm's weight n, although the first segment needs the last one alone. out: the gradient of n. */
static void order_of(bool split, float out[32])
{
    static const struct lf_param_desc d[] = {
        {.name = "n", .ndim = 1, .dims = {32}, .init = LF_INIT_NORMAL, .init_std = 1},
        {.name = "w", .ndim = 2, .dims = {32, 32}, .init = LF_INIT_NORMAL, .init_std = 1}};
    static float x[32 * 32], dy[32 * 32];
    const struct lf_norm_opts rms = {.eps = 1e-5f};
    lf_err err = LF_ERR_INIT;
    lf_pstore *ps = lf_pstore_create(&err);
    if (lf_pstore_add(ps, &d[0], &err) < 0 || lf_pstore_add(ps, &d[1], &err) < 0)
        tap_bail("%s", err.text);
    lf_graph *g = lf_graph_create(ps, "order", &err);
    const lf_val n = lf_param(g, "n"), in = lf_cut_in(g, "x", 32, 32, "dx");
    const lf_val h = lf_linear(g, lf_norm(g, in, n, LF_NONE, &rms), lf_param(g, "w"), n);
    lf_cut_out(g, lf_linear(g, h, lf_param(g, "w"), n), "y", "dy");
    lf_plan *p = lf_plan_create(ps, &(struct lf_plan_opts){.threads = 1}, &err);
    lf_back *b = lf_back_cpu_create(lf_target_host()->isa, 1, &err);
    const struct lf_chain_opts o = {.train = true, .split = split};
    lf_exec *ex = NULL;
    if (p && b && lf_plan_add(p, g, &o, &err) == 0 && !lf_plan_finish(p, &err))
        ex = lf_exec_create(p, b, &(struct lf_exec_opts){.poison = true}, &err);
    for (int e = 0; e < 32 * 32; e++) {
        x[e] = sinf((float)e);
        dy[e] = cosf(3 * (float)e);
    }
    struct lf_pview v;
    if (!ex || lf_pstore_init(ps, 11, &err) || lf_exec_write(ex, 0, 0, "x", x, sizeof x, &err) ||
        lf_exec_write(ex, 0, 0, "dy", dy, sizeof dy, &err) ||
        lf_exec_run(ex, 0, LF_FWD, 0, LF_FIRST, &err) ||
        lf_exec_run(ex, 0, split ? LF_BWD_INPUT : LF_BWD, 0, LF_FIRST, &err) ||
        (split && lf_exec_run(ex, 0, LF_BWD_WEIGHT, 0, LF_FIRST, &err)) ||
        lf_pstore_view(ps, 0, LF_P_GRAD, &v) != 1)
        tap_bail("%s", err.text);
    memcpy(out, v.data, 32 * sizeof *out);
    if (!split)
        tap_rc(lf_exec_run(ex, 0, LF_BWD_INPUT, 0, LF_FIRST, &err), LF_EINVAL, &err,
               "has no such segment", "half of a backward pass that is not split");
    lf_exec_destroy(ex);
    lf_plan_destroy(p);
    lf_graph_destroy(g);
    lf_back_destroy(b);
    lf_pstore_destroy(ps);
}

static void test_order(void)
{
    float whole[32], split[32];
    order_of(false, whole);
    order_of(true, split);
    tap_mem(split, whole, sizeof whole, "one gradient from both segments: in the order of one");
}

/* ---- ranks that divide matrices ---- */

/* Plans chunk k of a rank of two; wide: the rows of what crosses. */
static lf_pstore *plan_divided(const struct rig_model *m, const struct rig_way *w, int k,
                               bool sequence, int64_t *wide)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    struct lf_decoder_chunk chunk[RIG_CHUNKS];
    const struct lf_layout l = {.tensor = 2, .tensor_rank = 1, .sequence = sequence};
    const struct lf_plan_opts o = {.threads = 1, .compute = LF_BF16};
    rig_configure(m, &c);
    rig_cut(w, 0, chunk);
    const struct lf_decoder_rows rows = {
        .rows = RIG_ROWS, .n_docs = RIG_DOCS, .chunk = w->n ? &chunk[k] : NULL};
    lf_decoder *d = lf_decoder_create(&c, 48, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    lf_plan *p = NULL;
    lf_graph *g = NULL;
    if (lf_pstore_set_layout(ps, &l, &err) ||
        lf_decoder_declare_chunks(d, ps, &chunk[k], 1, &err) ||
        !(g = lf_decoder_loss_graph(d, ps, "train", &rows, true, &err)) ||
        !(p = lf_plan_create(ps, &o, &err)) ||
        lf_plan_add(p, g, &(struct lf_chain_opts){.train = true, .split = true, .chunk = k + 1},
                    &err) < 0 ||
        lf_plan_finish(p, &err))
        tap_bail("%s, chunk %d: %s", m->name, k, err.text);
    *wide = 0;
    const lf_graph *is = p->c[0].g;
    for (size_t i = 1; i < is->n_t; i++)
        if (is->t[i].cut && is->t[i].rows > 2) { /* not the balance of experts */
            *wide = *wide && *wide != is->t[i].rows ? -1 : is->t[i].rows;
            if (is->t[i].dtype != LF_BF16)
                *wide = -1;
        }
    lf_plan_destroy(p);
    lf_graph_destroy(g);
    lf_decoder_destroy(d);
    return ps;
}

/* What the check after differentiation derives for chunks is what it derives for the whole
 * model. */
static void test_layout(const struct rig_model *m, bool sequence)
{
    const struct rig_way whole = {.n = 0}, cut = {.n = 4, .end = {1, 2, 3, 4}}, *w = &cut;
    int64_t wide;
    bool same = true, rows = true;
    lf_pstore *all = plan_divided(m, &whole, 0, sequence, &wide);
    for (int k = 0; k < w->n; k++) {
        lf_pstore *ps = plan_divided(m, w, k, sequence, &wide);
        rows = rows && wide == (sequence ? RIG_ROWS / 2 : RIG_ROWS);
        for (size_t i = 0; i < ps->n_p; i++) {
            const int at = lf_pstore_find(all, ps->p[i].d.name);
            const struct lf_pgroup *is = &ps->g[ps->p[i].group], *was = &all->g[all->p[at].group];
            same =
                same && is->place == was->place && memcmp(is->sum, was->sum, sizeof is->sum) == 0;
        }
        lf_pstore_destroy(ps);
    }
    tap_ok(same, "%s, two ranks%s: places and sums of the whole model", m->name,
           sequence ? ", rows divided" : "");
    tap_ok(rows, "and what crosses has a rank's rows, in bf16");
    lf_pstore_destroy(all);
}

/* What crosses is whole on every rank: added to a partial sum it would count twice. */
static void test_counted_twice(void)
{
    static const struct lf_param_desc d = {
        .name = "w", .ndim = 2, .dims = {32, 32}, .shard = LF_SHARD_COLS};
    static const struct lf_param_desc u = {
        .name = "u", .ndim = 2, .dims = {32, 32}, .shard = LF_SHARD_ROWS};
    lf_err err = LF_ERR_INIT;
    for (int wrong = 0; wrong < 2; wrong++) {
        lf_pstore *ps = lf_pstore_create(&err);
        if (lf_pstore_set_layout(ps, &(struct lf_layout){.tensor = 2, .tensor_rank = 1}, &err) ||
            lf_pstore_add(ps, &u, &err) < 0 || lf_pstore_add(ps, &d, &err) < 0)
            tap_bail("%s", err.text);
        lf_graph *g = lf_graph_create(ps, "sum", &err);
        const lf_val x = lf_cut_in(g, "x", RIG_ROWS, 32, "dx");
        const lf_val h = lf_linear(g, lf_tp_enter(g, x), lf_param(g, "u"), LF_NONE),
                     part = lf_linear(g, h, lf_param(g, "w"), LF_NONE);
        const lf_val y =
            wrong ? lf_tp_leave(g, lf_add(g, x, part)) : lf_add(g, x, lf_tp_leave(g, part));
        lf_cut_out(g, y, "x", "dy");
        lf_plan *p = lf_plan_create(ps, &(struct lf_plan_opts){.threads = 1}, &err);
        if (!p)
            tap_bail("%s", err.text);
        const int rc = lf_plan_add(p, g, &(struct lf_chain_opts){.train = true}, &err);
        tap_rc(rc, wrong ? LF_EINVAL : 0, &err, "add does not add up",
               wrong ? "what crosses in a partial sum" : "behind the sum");
        lf_plan_destroy(p);
        lf_graph_destroy(g);
        lf_pstore_destroy(ps);
    }
}

/* On each of two ranks chunks have the bits of the whole model on two ranks. An embedding whose
 * rows ranks divide is summed in f32, and its readers in one graph see it before it is rounded. So
 * with bf16 the first chunk has a layer. */
static void test_divided(const struct rig_model *m, bool sequence, enum lf_dtype compute)
{
    static struct rig_result whole[2], cut[2];
    struct rig_way w = {.n = 4,
                        .end = {compute == LF_BF16, 2, 2, 4},
                        .micro = 2,
                        .in_flight = true,
                        .split = true,
                        .together = compute == LF_F32,
                        .compute = compute,
                        .tensor = 2,
                        .sequence = sequence};
    struct rig_way one = rig_whole(&w);
    const char *name = "";
    one.tensor = w.tensor;
    one.sequence = w.sequence;
    rig_run(m, &one, whole);
    rig_run(m, &w, cut);
    int bad = 0;
    bool sums = true;
    for (int r = 0; r < 2; r++) {
        bad += whole[r].error[0] || cut[r].error[0] ||
               rig_differing(m, &whole[r], &cut[r], &name) != 0;
        sums = sums && rig_same_record(&cut[r], &whole[r]);
    }
    tap_ok(bad == 0, "%s, %s, two ranks%s: gradients of the whole model on two ranks %s%s%s",
           m->name, compute ? "bf16" : "f32", sequence ? ", rows divided" : "", whole[0].error,
           cut[0].error, name);
    tap_ok(sums, "loss and sums too");
    for (int r = 0; r < 2; r++) {
        rig_forget(&whole[r]);
        rig_forget(&cut[r]);
    }
}

static void test_all_divided(const char *name, bool sequence)
{
    test_divided(rig_model(name), sequence, LF_F32);
    test_divided(rig_model(name), sequence, LF_BF16);
}

/* ---- bytes ---- */

/* Chunks of one plan have what each saves, and the transients of the largest. */
static void test_bytes(const struct rig_model *m, bool split)
{
    static struct rig_result apart, together, alone;
    struct rig_way w = in_turn;
    const char *name = "";
    size_t saved = 0, rest = 0, grads = 0, wide = 0;
    w.split = split;
    rig_run(m, &w, &apart);
    w.no_reuse = true;
    rig_run(m, &w, &alone);
    for (int k = 0; k < w.n; k++)
        wide += alone.bytes[k].arena;
    rig_forget(&alone);
    w.together = true;
    rig_run(m, &w, &alone);
    w.no_reuse = false;
    rig_run(m, &w, &together);
    for (int k = 0; k < w.n; k++) {
        const struct lf_plan_bytes *b = &apart.bytes[k];
        saved += b->saved;
        grads += b->grads;
        rest = b->arena - b->saved > rest ? b->arena - b->saved : rest;
    }
    const struct lf_plan_bytes *b = &together.bytes[0];
    tap_ok(b->saved == saved && b->arena == saved + rest,
           "%s%s: %zu bytes saved and %zu transient, of plans apart %zu and %zu", m->name,
           split ? ", split" : "", b->saved, b->arena - b->saved, saved, rest);
    tap_ok(b->grads == grads && b->largest_live <= b->arena &&
               (double)b->arena <= 1.05 * (double)b->largest_live,
           "as many gradients; %zu live of %zu in the arena", b->largest_live, b->arena);
    tap_ok(rig_differing(m, &together, &alone, &name) == 0 && alone.bytes[0].arena == wide &&
               wide > b->arena,
           "the bits of a plan in which every tensor has its own bytes %s", name);
    rig_forget(&apart);
    rig_forget(&together);
    rig_forget(&alone);
}

/* What a chain saves is in each slot, and what the second segment reads is saved. */
static void test_slots(void)
{
    static struct rig_result few, more, split;
    struct rig_way w = {.n = 2, .end = {2, 4}, .micro = 1, .in_flight = true};
    rig_run(rig_model("llama"), &w, &more); /* chunk 0 has two slots, chunk 1 one */
    w.in_flight = false;
    rig_run(rig_model("llama"), &w, &few);
    w.split = true;
    rig_run(rig_model("llama"), &w, &split);
    tap_ok(more.bytes[0].saved == 2 * few.bytes[0].saved &&
               more.bytes[0].arena - more.bytes[0].saved == few.bytes[0].arena - few.bytes[0].saved,
           "two slots save twice %zu bytes", few.bytes[0].saved);
    /* of each of two layers the gradients of the outputs of qkv, o, gate and up, and down */
    const size_t dy = (size_t)2 * RIG_ROWS * sizeof(float) * (64 + 32 + 96 + 32);
    tap_ok(split.bytes[0].saved >= few.bytes[0].saved &&
               split.bytes[0].saved <= few.bytes[0].saved + dy,
           "split it saves %zu more, of at most %zu", split.bytes[0].saved - few.bytes[0].saved,
           dy);
    rig_forget(&few);
    rig_forget(&more);
    rig_forget(&split);
}

/* ---- the emulated GPU ---- */

static struct lf_cu cu;

static lf_back *open_cuda(int threads, lf_err *err)
{
    return lf_back_cuda_create(&(struct lf_cuda_opts){.threads = threads, .driver = &cu}, err);
}

/* A second rank with the same gradients, on the stream for sums. */
static int twice(void *user, float *grads, size_t n, lf_err *err)
{
    const lf_back *b = user;
    lf_queue q = *b->queue;
    const struct lf_k_axpby a = {.n = (int64_t)n,
                                 .a = grads,
                                 .y = grads,
                                 .alpha = 2,
                                 .a_type = LF_F32,
                                 .b_type = LF_F32,
                                 .y_type = LF_F32};
    q.stream = b->comm_stream;
    return b->kernels->axpby.run(&q, &a) ? lf_fail(err, LF_EDEVICE, "a sum") : 0;
}

/* Recorded segments, each a second time; and sums of buckets that no chunk alone completes. */
static void test_device(void)
{
    static struct rig_result whole, cut;
    const struct rig_model *m = rig_model("llama");
    struct rig_way w = {.n = 2,
                        .end = {2, 4},
                        .micro = 5,
                        .in_flight = true,
                        .split = true,
                        .together = true,
                        .open = open_cuda};
    const struct rig_way one = {.micro = w.micro, .open = open_cuda},
                         sums = {.micro = w.micro, .open = open_cuda, .reduce = twice};
    const char *name = "";
    rig_run(m, &one, &whole);
    rig_run(m, &w, &cut);
    tap_ok(!cut.error[0] && rig_differing(m, &whole, &cut, &name) == 0,
           "chunks on the emulated GPU, split: %s%s", cut.error, name);
    rig_forget(&whole);
    rig_forget(&cut);
    rig_run(m, &sums, &whole);
    w.split = false;
    w.reduce = twice;
    w.early = true;
    for (int i = 0; i < 3; i++) {
        static const char *const what[] = {"of one plan", "of plans apart", "split"};
        w.together = i == 0;
        w.split = w.joined = i == 2;
        rig_run(m, &w, &cut);
        tap_ok(!cut.error[0] && rig_differing(m, &whole, &cut, &name) == 0,
               "early sums, chunks %s: %s%s", what[i], cut.error, name);
        rig_forget(&cut);
    }
    rig_forget(&whole);
}

int main(void)
{
    char text[300];
    lf_emu_driver(&cu);
    TAP(4, test_device());
    tap_ok(lf_emu_leaks(text, sizeof text) == 0, "nothing is left behind: %s", text);
    TAP(4, test_cost(rig_model("llama")));
    TAP(4, test_cost(rig_model("mixtral")));
    TAP(3, test_joined(rig_model("llama")));
    TAP(3, test_joined(rig_model("deepseek-moe")));
    TAP(7, test_segments_refused());
    TAP(2, test_order());
    TAP(2, test_counted_twice());
    TAP(2, test_layout(rig_model("llama"), false));
    TAP(2, test_layout(rig_model("llama"), true));
    TAP(2, test_layout(rig_model("gpt2"), true));
    TAP(2, test_layout(rig_model("mixtral"), false));
    for (int i = 0; i < 2; i++) {
        TAP(3, test_bytes(rig_model("llama"), i));
        TAP(3, test_bytes(rig_model("gpt2"), i));
        TAP(3, test_bytes(rig_model("mixtral"), i));
    }
    TAP(2, test_slots());
    /* with divided rows there is no whole model of the last one to compare with */
    static const char *const divided[] = {"llama", "gpt2",   "gemma2",   "qwen",   "chatglm-6b",
                                          "lora",  "policy", "opt-350m", "mixtral"};
    for (size_t i = 0; i < sizeof divided / sizeof *divided; i++)
        TAP(4, test_all_divided(divided[i], false));
    for (size_t i = 0; i < sizeof divided / sizeof *divided - 1; i++)
        TAP(4, test_all_divided(divided[i], true));
    return tap_done();
}
