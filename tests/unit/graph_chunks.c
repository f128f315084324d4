/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder cut into chunks has the bits of the whole model: loss and every gradient, for the
 * switches of all families, in f32 and bf16, with dropout, recomputation, adapters, experts and
 * several micro-batches in flight. Only a tied embedding, whose gradient is made in two chunks, is
 * added in another order.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/tap/tap.h"
#include "tests/unit/chunk_rig.h"

static const struct rig_model models[] = {
    {.name = "llama"},
    {.name = "gpt2",
     .set = {"norm=layer", "norm_bias=yes", "mlp=plain", "activation=gelu", "qkv_bias=yes",
             "out_bias=yes", "mlp_bias=yes", "position=learned", "embed_dropout=0.1",
             "attn_dropout=0.1", "mlp_dropout=0.1", "attn_prob_dropout=0.1"}},
    {.name = "gpt2, tied",
     .set = {"norm=layer", "norm_bias=yes", "mlp=plain", "position=learned", "tied_head=yes"}},
    {.name = "gpt-j, parallel",
     .set = {"parallel_block=one_norm", "rope_interleaved=yes", "rope_fraction=0.5",
             "head_bias=yes"}},
    {.name = "gpt-neox, two norms", .set = {"parallel_block=two_norms", "kv_heads=4"}},
    {.name = "bloom",
     .set = {"position=alibi", "embed_norm=yes", "norm=layer", "norm_bias=yes", "tied_head=yes"}},
    {.name = "opt-350m",
     .set = {"block=post", "embed_dim=24", "final_norm=no", "position=learned", "position_offset=2",
             "tied_head=yes"}},
    {.name = "mistral", .set = {"sliding_window=6"}},
    {.name = "qwen",
     .set = {"logn_length=8", "qkv_bias=yes", "kv_heads=4", "max_window_layers=2",
             "sliding_window=5"}},
    {.name = "qwen3", .set = {"qk_norm=yes", "tied_head=yes"}},
    {.name = "gemma2",
     .set = {"block=sandwich", "norm_offset=1", "attn_softcap=5", "logit_softcap=3",
             "embed_scale=5.6", "sliding_window=6", "window_pattern=2", "tied_head=yes"}},
    {.name = "gemma3",
     .set = {"block=sandwich", "norm_offset=1", "qk_norm=yes", "sliding_window=6",
             "window_pattern=3", "rope_local_theta=100", "rope_scaling=linear", "rope_factor=8"}},
    {.name = "chatglm-6b",
     .set = {"block=alpha", "norm=layer", "norm_bias=yes", "position=rope2d", "mask=prefix",
             "mlp=plain", "activation=gelu", "qkv_bias=yes", "kv_heads=4"}},
    {.name = "baichuan2", .set = {"norm_head=yes"}},
    {.name = "phi3, longrope",
     .set = {"rope_scaling=longrope", "rope_original_positions=16",
             "rope_short_factors=1,1.1,1.2,1.3", "rope_long_factors=2,3,4,5"}},
    {.name = "mixtral",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "router_aux=0.1"}},
    {.name = "deepseek-moe",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "shared_ffn=16", "dense_layers=1",
             "router_aux=0.1", "router_scale=2", "router_renorm=no"}},
    {.name = "qwen2-moe, sparse",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "shared_ffn=16",
             "shared_gate=yes", "moe_period=2", "router_aux=0.1"}},
    {.name = "experts before dense layers",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "mlp_layers=1,3",
             "router_aux=0.1"}},
    {.name = "deepseek-v3",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "shared_ffn=16",
             "router_score=sigmoid", "router_bias=yes", "router_bias_rate=0.01"}},
    {.name = "noise", .set = {"embed_norm=yes"}, .noise = true},
    {.name = "lora", .set = {"qkv_bias=yes"}, .lora = 3, .lora_dropout = 0.1},
    {.name = "dora", .lora = -3},
    {.name = "lora of one layer", .lora = 3, .targets = "layers.1.*"},
    {.name = "policy", .set = {"attn_dropout=0.1"}, .head = RIG_LOGP},
    {.name = "reward model", .set = {"output=score"}, .head = RIG_SCORE},
    {.name = "scoring", .set = {"tied_head=yes"}, .head = RIG_SCORING},
    {.name = "logits", .set = {"norm_head=yes"}, .head = RIG_LOGITS},
};
enum { N_MODELS = sizeof models / sizeof *models };

static const struct rig_way ways[] = {
    {.name = "two, uneven", .n = 2, .end = {1, 4}, .micro = 3, .in_flight = true, .plain = true},
    {.name = "three, none in the middle", .n = 3, .end = {2, 2, 4}, .micro = 3, .compute = LF_BF16},
    {.name = "a layer each",
     .n = 4,
     .end = {1, 2, 3, 4},
     .micro = 3,
     .in_flight = true,
     .compute = LF_BF16,
     .recompute = LF_RECOMPUTE_SELECTIVE},
    {.name = "ends alone",
     .n = 4,
     .end = {0, 3, 4, 4},
     .micro = 3,
     .in_flight = true,
     .recompute = LF_RECOMPUTE_FULL},
    {.name = "split",
     .n = 3,
     .end = {1, 3, 4},
     .micro = 3,
     .in_flight = true,
     .split = true,
     .compute = LF_BF16},
    {.name = "uncut and split", .micro = 3, .in_flight = true, .split = true},
    {.name = "in one plan",
     .n = 4,
     .end = {1, 2, 3, 4},
     .micro = 3,
     .in_flight = true,
     .together = true,
     .recompute = LF_RECOMPUTE_SELECTIVE},
    {.name = "in one plan and split",
     .n = 3,
     .end = {2, 2, 4},
     .micro = 3,
     .split = true,
     .together = true,
     .recompute = LF_RECOMPUTE_SELECTIVE},
};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* ---- comparing ---- */

static bool is_tied(const struct rig_model *m, const char *name)
{
    lf_model_config c;
    rig_configure(m, &c);
    return c.tied_head && strcmp(name, "embed.weight") == 0;
}

/* Of a tied embedding: what both chunks have, that of the head first. */
static double error_of_sum(const struct rig_result *r, const struct rig_tensor *want)
{
    const struct rig_tensor *head = rig_find(r, want->name, true),
                            *embed = rig_find(r, want->name, false);
    double diff = 0, norm = 0;
    if (!head || !embed || head->n != want->n || embed->n != want->n)
        return (double)INFINITY;
    for (int64_t e = 0; e < want->n; e++) {
        const double sum = (double)(head == embed ? head->grad[e] : head->grad[e] + embed->grad[e]);
        diff += (sum - (double)want->grad[e]) * (sum - (double)want->grad[e]);
        norm += (double)want->grad[e] * (double)want->grad[e];
    }
    return sqrt(diff / norm);
}

/* The number of tensors whose gradients differ in a bit; *name becomes the first of them. */
static int differing(const struct rig_model *m, const struct rig_result *whole,
                     const struct rig_result *cut, const char **name)
{
    int bad = 0;
    for (int i = 0; i < whole->n_t; i++) {
        const struct rig_tensor *want = &whole->t[i], *is = rig_find(cut, want->name, true);
        const bool same =
            is_tied(m, want->name)
                ? error_of_sum(cut, want) <= 1e-6
                : is && is->n == want->n &&
                      memcmp(is->grad, want->grad, (size_t)want->n * sizeof *want->grad) == 0;
        if (!same && !bad++)
            *name = want->name;
    }
    return bad;
}

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

static bool same_record(const struct rig_result *a, const struct rig_result *b)
{
    double any = b->rec.loss_sum;
    for (size_t i = 0; i < sizeof b->out / sizeof *b->out; i++)
        any += fabs(b->out[i]);
    return any > 0 && a->rec.loss_sum == b->rec.loss_sum && a->rec.tokens == b->rec.tokens &&
           a->rec.correct == b->rec.correct && a->rec.router_aux == b->rec.router_aux &&
           near(a->rec.router_entropy, b->rec.router_entropy) &&
           near(a->rec.router_load, b->rec.router_load) &&
           a->rec.router_seen == b->rec.router_seen && memcmp(a->out, b->out, sizeof a->out) == 0;
}

static struct rig_way whole_way(const struct rig_way *w)
{
    return (struct rig_way){
        .micro = w->micro, .compute = w->compute, .fp8 = w->fp8, .fp8_edges = w->fp8_edges};
}

static void compare(const struct rig_model *m, const struct rig_way *w,
                    const struct rig_result *whole)
{
    static struct rig_result cut;
    const char *name = "";
    rig_run(m, w, &cut);
    const bool ran = !whole->error[0] && !cut.error[0];
    if (tap_ok(ran, "%s, %s: runs%s%s%s", m->name, w->name, ran ? "" : ": ", whole->error,
               cut.error)) {
        const int bad = differing(m, whole, &cut, &name);
        tap_ok(bad == 0 && (whole->n_t > 0) == (m->head < RIG_SCORING),
               "every gradient has the bits of the whole model: %d of %d differ %s", bad,
               whole->n_t, name);
        tap_ok(same_record(&cut, whole), "loss and sums too: %.17g, %.17g", cut.rec.loss_sum,
               whole->rec.loss_sum);
        bool ends = true;
        for (int k = 0; k < w->n; k++)
            ends = ends && cut.tokens[k] == (k == 0) &&
                   cut.targets[k] == (k == w->n - 1 && m->head != RIG_LOGITS);
        tap_ok(ends, "the first chunk alone reads tokens, the last alone targets");
    } else {
        for (int i = 0; i < 3; i++)
            tap_ok(0, "not run");
    }
    rig_forget(&cut);
}

static void test_model(const struct rig_model *m)
{
    static struct rig_result f32, bf16;
    const struct rig_way a = whole_way(&ways[0]), b = whole_way(&ways[1]);
    rig_run(m, &a, &f32);
    rig_run(m, &b, &bf16);
    for (int i = 0; i < N_WAYS; i++)
        compare(m, &ways[i], ways[i].compute == LF_BF16 ? &bf16 : &f32);
    rig_forget(&f32);
    rig_forget(&bf16);
}

/* ---- the test itself, and what is refused ---- */

/* What is lost between chunks is seen. */
static void test_can_fail(void)
{
    static struct rig_result whole, cut;
    static const char *const what[] = {"", "gradients of x", "the balance of experts", "x"};
    const struct rig_model *m = &models[15];
    const char *name;
    for (int spoil = 1; spoil <= 3; spoil++) {
        struct rig_way w = ways[0];
        const struct rig_way one = whole_way(&w);
        w.spoil = spoil;
        rig_run(m, &one, &whole);
        rig_run(m, &w, &cut);
        tap_ok(differing(m, &whole, &cut, &name) > 3, "%s: %s that are lost show", m->name,
               what[spoil]);
        rig_forget(&whole);
        rig_forget(&cut);
    }
}

static void test_refused(void)
{
    static const struct lf_decoder_chunk bad[] = {{.begin = 2, .end = 5},
                                                  {.begin = 3, .end = 2},
                                                  {.begin = -1, .end = 2},
                                                  {.begin = 1, .end = 4, .first = true},
                                                  {.begin = 0, .end = 3, .last = true}};
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    rig_configure(&models[0], &c);
    lf_decoder *d = lf_decoder_create(&c, 48, &err);
    lf_pstore *ps = lf_pstore_create(&err);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct lf_decoder_rows rows = {
            .rows = RIG_ROWS, .n_docs = RIG_DOCS, .chunk = &bad[i]};
        tap_rc(lf_decoder_declare_chunks(d, ps, &bad[i], 1, &err), LF_EINVAL, &err,
               "the model has 4 layers", "a chunk that is not of the model");
        tap_ok(!lf_decoder_loss_graph(d, ps, "train", &rows, true, &err) && err.rc == LF_EINVAL,
               "nor is its graph");
        err = (lf_err)LF_ERR_INIT;
    }
    tap_i64(lf_pstore_count(ps), 0, "nothing was declared");
    lf_pstore_destroy(ps);
    lf_decoder_destroy(d);
}

/* Chunks declare what the whole model has, in its order, each tensor once but for tied ones. */
static void test_tensors(const struct rig_model *m)
{
    lf_err err = LF_ERR_INIT;
    lf_model_config c;
    struct lf_decoder_chunk chunk[RIG_CHUNKS];
    struct lf_decoder_tied tied[LF_DECODER_TIED];
    rig_configure(m, &c);
    lf_decoder *d = lf_decoder_create(&c, 48, &err);
    lf_pstore *all = lf_pstore_create(&err), *both = lf_pstore_create(&err);
    const int n = rig_cut(&ways[2], 0, chunk), n_tied = lf_decoder_tied(d, chunk, n, tied);
    if (lf_decoder_declare(d, all, &err) || lf_decoder_declare_chunks(d, both, chunk, n, &err))
        tap_bail("%s", err.text);
    bool order = lf_pstore_count(all) == lf_pstore_count(both);
    for (int i = 0; i < lf_pstore_count(all) && order; i++)
        order = strcmp(lf_pstore_desc(all, i)->name, lf_pstore_desc(both, i)->name) == 0 &&
                lf_pstore_desc(all, i)->init_std == lf_pstore_desc(both, i)->init_std;
    tap_ok(order, "%s: all chunks in one store are the whole model", m->name);
    int count = 0;
    for (int k = 0; k < n; k++) {
        lf_pstore *ps = lf_pstore_create(&err);
        if (lf_decoder_declare_chunks(d, ps, &chunk[k], 1, &err))
            tap_bail("%s", err.text);
        count += lf_pstore_count(ps);
        if (n_tied && (k == tied[0].owner || k == tied[0].other))
            count -= lf_pstore_find(ps, tied[0].name) >= 0 && k == tied[0].other;
        lf_pstore_destroy(ps);
    }
    tap_i64(count, lf_pstore_count(all), "each tensor is in one chunk, but for what is listed");
    tap_ok(n_tied == (c.tied_head && c.output == LF_OUTPUT_TOKENS) &&
               (!n_tied || (tied[0].owner == 0 && tied[0].other == n - 1)) &&
               lf_decoder_tied(d, &chunk[1], 2, tied) == 0,
           "a tied embedding belongs to the first chunk");
    lf_pstore_destroy(all);
    lf_pstore_destroy(both);
    lf_decoder_destroy(d);
}

/* Layers are counted in the whole model; a chunk of edges alone multiplies in bf16. */
static void test_fp8(void)
{
    const struct rig_model m = {.name = "llama, fp8", .set = {"hidden=32", "ffn=64", "kv_heads=4"}};
    const struct rig_way w = {.name = "edges apart",
                              .n = 3,
                              .end = {1, 3, 4},
                              .micro = 2,
                              .in_flight = true,
                              .compute = LF_BF16,
                              .fp8 = LF_FP8_TENSORS,
                              .fp8_edges = 1},
                         one = whole_way(&w);
    struct rig_way none = one;
    static struct rig_result whole, plain;
    const char *name;
    none.fp8 = LF_FP8_OFF;
    rig_run(&m, &one, &whole);
    rig_run(&m, &none, &plain);
    tap_ok(!whole.error[0] && differing(&m, &whole, &plain, &name) > 3,
           "8-bit products change bits: %s", whole.error);
    compare(&m, &w, &whole);
    rig_forget(&whole);
    rig_forget(&plain);
}

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
    const struct rig_way one = whole_way(&w);
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
        adds = adds && near(runs_of(c), c->fwd_causal + c->bwd_causal) &&
               near(runs_of(a), a->fwd_causal + a->bwd_causal + a->recompute) && a->recompute > 0;
        parts = parts && c->run_input > 0 && c->run_weight > 0 && a->run_weight == 0;
    }
    const struct lf_plan_cost *c = &whole.cost[0];
    tap_ok(adds, "%s: FLOPs of segments are those of the passes", m->name);
    tap_ok(parts, "every chunk has both segments of a backward pass");
    tap_ok(near(sum.fwd_causal, c->fwd_causal) && near(sum.bwd_causal, c->bwd_causal) &&
               near(sum.run_fwd, c->run_fwd) &&
               near(sum.run_input + sum.run_weight, c->run_input) && c->run_weight == 0,
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
    const struct rig_way one = whole_way(&w);
    const char *name = "";
    w.joined = true;
    uncut.n = 0;
    rig_run(m, &one, &whole);
    rig_run(m, &w, &cut);
    tap_ok(differing(m, &whole, &cut, &name) == 0, "%s: both segments at once: %s", m->name, name);
    rig_forget(&cut);
    rig_run(m, &uncut, &cut);
    tap_ok(cut.hash == whole.hash && cut.hash, "a split plan has the hash of one that is not");
    rig_forget(&cut);
    w.joined = false;
    w.zero = 1;
    rig_run(m, &w, &cut);
    tap_ok(!cut.error[0] && differing(m, &whole, &cut, &name) == 0, "zero = 1: %s%s", cut.error,
           name);
    rig_forget(&cut);
    rig_forget(&whole);
}

static void refused(const struct rig_way *w, const char *text)
{
    static struct rig_result r;
    rig_run(&models[0], w, &r);
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

/* ---- bytes ---- */

/* Chunks of one plan have what each saves, and the transients of the largest. */
static void test_bytes(const struct rig_model *m, bool split)
{
    static struct rig_result apart, together;
    struct rig_way w = in_turn;
    size_t saved = 0, rest = 0, grads = 0;
    w.split = split;
    rig_run(m, &w, &apart);
    w.together = true;
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
    rig_forget(&apart);
    rig_forget(&together);
}

/* What a chain saves is in each slot, and what the second segment reads is saved. */
static void test_slots(void)
{
    static struct rig_result few, more, split;
    struct rig_way w = {.n = 2, .end = {2, 4}, .micro = 1, .in_flight = true};
    rig_run(&models[0], &w, &more); /* chunk 0 has two slots, chunk 1 one */
    w.in_flight = false;
    rig_run(&models[0], &w, &few);
    w.split = true;
    rig_run(&models[0], &w, &split);
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

int main(void)
{
    TAP(4, test_cost(&models[0]));
    TAP(4, test_cost(&models[15]));
    TAP(3, test_joined(&models[0]));
    TAP(3, test_joined(&models[16]));
    TAP(7, test_segments_refused());
    for (int i = 0; i < 2; i++) {
        TAP(2, test_bytes(&models[0], i));
        TAP(2, test_bytes(&models[1], i));
        TAP(2, test_bytes(&models[15], i));
    }
    TAP(2, test_slots());
    TAP(3, test_can_fail());
    TAP(11, test_refused());
    for (int i = 0; i < N_MODELS; i++)
        TAP(3, test_tensors(&models[i]));
    TAP(5, test_fp8());
    for (int i = 0; i < N_MODELS; i++)
        TAP(4 * N_WAYS, test_model(&models[i]));
    return tap_done();
}
