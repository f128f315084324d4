/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that divide experts, in lock step against one rank: every kind of router and expert, with
 * what else ranks divide, rows that all go to one rank, and experts that no row chooses. What moves
 * is counted; a rank with room for few rows takes them in several rounds.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/graph/priv.h"
#include "tests/layout/rig.h"
#include "tests/tap/tap.h"

#define DROPS "capacity_factor=0.75 "
#define AUX   "experts=8 experts_per_token=2 expert_ffn=64 router_aux=0.1 "

/* What routers are told before the first step, by a bias of their logits. */
enum loads { AS_THEY_ARE, TO_ONE_RANK, ONE_NEVER };

struct row {
    const char *name, *keys;
    struct rig_layout l;
    int64_t batch; /* 0: 11 */
    enum loads loads;
    bool rounds; /* more than one */
    bool modes;  /* in every mode, too */
    bool beside; /* something runs beside rows that come back */
    bool split;  /* the plans are those of ranks that do not split their passes */
    void (*set)(struct rig_case *k);
};

static void bf16(struct rig_case *k)
{
    k->c.compute = LF_BF16;
}
static void bf16_full(struct rig_case *k)
{
    k->c.compute = LF_BF16;
    k->c.recompute = LF_RECOMPUTE_FULL;
}
static void full(struct rig_case *k)
{
    k->c.recompute = LF_RECOMPUTE_FULL;
}
static void selective(struct rig_case *k)
{
    k->c.recompute = LF_RECOMPUTE_SELECTIVE;
}
static void frozen(struct rig_case *k)
{
    k->frozen = "layers.0.*";
}
static void full_frozen(struct rig_case *k)
{
    full(k);
    frozen(k);
}
static void frozen_experts(struct rig_case *k)
{
    k->frozen = "layers.*.moe.experts.*";
}
static void adapter(struct rig_case *k)
{
    k->adapted = true;
    k->c.clip = 0.004;
    k->adapter = (struct lf_adapter_config){.rank = 4, .alpha = 8, .n_targets = 2};
    strcpy(k->adapter.target[0], "qkv");
    strcpy(k->adapter.target[1], "o");
}
static void adapter_selective(struct rig_case *k)
{
    adapter(k);
    selective(k);
}
static void two(struct rig_case *k)
{
    k->c.micro_batch = 2;
    k->batch = 22;
    k->c.z_loss = 1e-3;
    k->c.entropy = true;
}
static void scaled(struct rig_case *k)
{
    k->c.scaler = (struct lf_scaler_opts){.dynamic = true, .start = 1024, .window = 100};
}

static const struct row rows[] = {
    {.name = "two ranks", .keys = AUX, .l = {.ranks = 2, .expert = 2}, .modes = true},
    {.name = "rounds",
     .keys = AUX,
     .l = {.ranks = 2, .expert = 2, .expert_room = 0.3},
     .rounds = true,
     .modes = true},
    {.name = "four ranks, all to one",
     .keys = AUX "router_linear_bias=yes ",
     .l = {.ranks = 4, .expert = 4},
     .loads = TO_ONE_RANK,
     .rounds = true,
     .modes = true},
    {.name = "an expert never chosen",
     .keys = AUX "router_linear_bias=yes expert_bias=yes ",
     .l = {.ranks = 2, .expert = 2},
     .loads = ONE_NEVER},
    {.name = "eight ranks of one expert", .keys = AUX, .l = {.ranks = 8, .expert = 8}},
    {.name = "expert 2 x 2, zero = 1",
     .keys = AUX "expert_bias=yes ",
     .l = {.ranks = 4, .expert = 2, .zero = 1},
     .modes = true},
    {.name = "expert 2 x 3", .keys = AUX, .l = {.ranks = 6, .expert = 2}},
    {.name = "expert 2 x 1, zero = 1", .keys = AUX, .l = {.ranks = 2, .expert = 2, .zero = 1}},
    {.name = "sigmoid, groups, balanced, shared",
     .keys = "experts=8 experts_per_token=2 expert_ffn=64 router_score=sigmoid router_bias=yes "
             "router_bias_rate=0.01 router_groups=4 router_top_groups=2 router_scale=1.5 "
             "router_renorm=yes shared_ffn=64 shared_gate=yes layer_mlps=d,m*",
     .l = {.ranks = 4, .expert = 4, .zero = 1},
     .modes = true,
     .beside = true},
    {.name = "plain experts, latent",
     .keys = AUX "mlp=plain activation=gelu_tanh expert_latent=32 ",
     .l = {.ranks = 2, .expert = 2, .expert_room = 0.5},
     .rounds = true},
    {.name = "weighed before",
     .keys = "experts=8 experts_per_token=1 expert_ffn=64 "
             "router_on_input=yes ",
     .l = {.ranks = 2, .expert = 2}},
    {.name = "bf16", .keys = AUX, .l = {.ranks = 4, .expert = 2, .zero = 1}, .set = bf16},
    {.name = "bf16, recompute = full, rounds",
     .keys = AUX,
     .l = {.ranks = 2, .expert = 2, .expert_room = 0.4},
     .rounds = true,
     .modes = true,
     .set = bf16_full},
    {.name = "recompute = full", .keys = AUX, .l = {.ranks = 2, .expert = 2}, .set = full},
    {.name = "recompute = full, weighed before, rounds",
     .keys = "experts=8 experts_per_token=1 expert_ffn=64 router_on_input=yes shared_ffn=64 ",
     .l = {.ranks = 2, .expert = 2, .expert_room = 0.4},
     .rounds = true,
     .modes = true,
     .set = full},
    {.name = "recompute = full, pipeline 2 x expert 2, other numbers of micro-batches, rounds",
     .keys = AUX "layers=4 shared_ffn=64 ",
     .l = {.ranks = 2, .expert = 2, .pipeline = 2, .chunks = 2, .expert_room = 0.4},
     .rounds = true,
     .modes = true,
     .set = full},
    {.name = "recompute = full, tensor 2, rows divided, x expert 4: folded, rounds, zero = 1",
     .keys = AUX "shared_ffn=64 ",
     .l = {.ranks = 2,
           .tensor = 2,
           .sequence = true,
           .expert = 4,
           .expert_tensor = 1,
           .zero = 1,
           .expert_room = 0.4},
     .rounds = true,
     .modes = true,
     .set = full},
    {.name = "recompute = full, context 2 x expert 4, beside a shared expert",
     .keys = AUX "shared_ffn=64 ",
     .l = {.ranks = 2, .context = 2, .expert = 4, .expert_room = 4},
     .modes = true,
     .beside = true,
     .set = full},
    {.name = "recompute = full, first layer frozen, zero = 2, rounds",
     .keys = AUX,
     .l = {.ranks = 4, .expert = 2, .zero = 2, .expert_room = 0.4},
     .rounds = true,
     .set = full_frozen},
    {.name = "recompute = selective, rounds",
     .keys = AUX,
     .l = {.ranks = 2, .expert = 2, .expert_room = 0.4},
     .rounds = true,
     .modes = true,
     .set = selective},
    {.name = "first layer frozen", .keys = AUX, .l = {.ranks = 2, .expert = 2}, .set = frozen},
    {.name = "experts frozen",
     .keys = AUX,
     .l = {.ranks = 2, .expert = 2, .expert_room = 0.4},
     .rounds = true,
     .set = frozen_experts},
    {.name = "adapters beside experts",
     .keys = AUX,
     .l = {.ranks = 2, .expert = 2},
     .set = adapter},
    {.name = "rows that nothing else reads backwards, rounds",
     .keys = AUX "block=post ",
     .l = {.ranks = 2, .expert = 2, .expert_room = 0.4},
     .rounds = true,
     .modes = true,
     .set = adapter_selective},
    {.name = "micro-batches of two, z-loss",
     .keys = AUX "experts=6 ",
     .l = {.ranks = 3, .expert = 3},
     .set = two},
    {.name = "pipeline 2 x expert 2",
     .keys = AUX "layers=4 ",
     .batch = 12,
     .l = {.ranks = 2, .expert = 2, .pipeline = 2},
     .modes = true},
    {.name = "pipeline 2 x expert 2, rounds, zero = 1",
     .keys = AUX "layers=4 ",
     .batch = 12,
     .l = {.ranks = 4, .expert = 2, .pipeline = 2, .zero = 1, .expert_room = 0.4},
     .rounds = true},
    {.name = "tensor 2 x expert 2",
     .keys = AUX "expert_bias=yes shared_ffn=64 ",
     .l = {.ranks = 2, .expert = 2, .tensor = 2},
     .modes = true,
     .beside = true},
    {.name = "tensor 2, rows divided, x expert 2, rounds, zero = 1",
     .keys = AUX,
     .l = {.ranks = 4, .expert = 2, .tensor = 2, .sequence = true, .zero = 1, .expert_room = 0.4},
     .rounds = true},
    {.name = "context 2 x expert 2: of one micro-batch",
     .keys = AUX,
     .l = {.ranks = 1, .context = 2, .expert = 2},
     .modes = true},
    {.name = "context 2, keys gathered beside experts, x expert 4",
     .keys = AUX "parallel_block=two_norms shared_ffn=64 ",
     .l = {.ranks = 2, .context = 2, .kind = LF_CONTEXT_GATHER, .expert = 4, .expert_room = 4},
     .modes = true,
     .beside = true},
    {.name = "context 2 x expert 4: of two, rounds, zero = 1",
     .keys = AUX "expert_bias=yes shared_ffn=64 ",
     .l = {.ranks = 4, .context = 2, .expert = 4, .zero = 1, .expert_room = 0.4},
     .rounds = true,
     .modes = true},
    {.name = "context 4 x expert 2: two groups in one",
     .keys = AUX,
     .l = {.ranks = 1, .context = 4, .expert = 2}},
    {.name = "tensor 2, rows divided, x context 2 x expert 2, zero = 1",
     .keys = AUX,
     .l = {.ranks = 1, .context = 2, .expert = 2, .tensor = 2, .sequence = true, .zero = 1}},
    {.name = "context 2 x pipeline 2 x expert 4, all to one",
     .keys = AUX "layers=4 router_linear_bias=yes ",
     .l = {.ranks = 2, .context = 2, .expert = 4, .pipeline = 2},
     .loads = TO_ONE_RANK,
     .rounds = true},
    {.name = "two chunks x expert 2, other numbers of micro-batches",
     .keys = AUX "layers=4 ",
     .l = {.ranks = 2, .expert = 2, .pipeline = 2, .chunks = 2},
     .modes = true},
    {.name = "zb-h1 x expert 2, rounds",
     .keys = AUX "layers=4 expert_bias=yes ",
     .l = {.ranks = 2,
           .expert = 2,
           .pipeline = 2,
           .schedule = LF_PIPE_ZB_H1 + 1,
           .expert_room = 0.4},
     .rounds = true,
     .modes = true},
    {.name = "zb-v x expert 2, rounds",
     .keys = AUX "layers=4 tied_head=yes ",
     .l =
         {.ranks = 2, .expert = 2, .pipeline = 2, .schedule = LF_PIPE_ZB_V + 1, .expert_room = 0.4},
     .rounds = true,
     .modes = true},
    {.name = "dualpipe-v x expert 2",
     .keys = AUX "layers=4 ",
     .l = {.ranks = 2, .expert = 2, .pipeline = 2, .schedule = LF_PIPE_DUALPIPE_V + 1}},
    {.name = "zero = 2 x expert 2 x 2, rounds",
     .keys = AUX "expert_bias=yes shared_ffn=64 ",
     .l = {.ranks = 4, .expert = 2, .zero = 2, .expert_room = 0.4},
     .rounds = true,
     .modes = true},
    {.name = "zero = 3 x expert 2 x 2, rounds, a gate",
     .keys = AUX "expert_bias=yes shared_ffn=64 shared_gate=yes router_linear_bias=yes ",
     .l = {.ranks = 4, .expert = 2, .zero = 3, .expert_room = 0.4},
     .rounds = true,
     .modes = true},
    {.name = "zero = 3 x expert 2 x 2, rounds, recompute = full",
     .keys = AUX,
     .l = {.ranks = 4, .expert = 2, .zero = 3, .expert_room = 0.4},
     .rounds = true,
     .modes = true,
     .set = bf16_full},
    {.name = "zero = 3 x expert 2 x 2, rounds, recompute = selective",
     .keys = AUX,
     .l = {.ranks = 4, .expert = 2, .zero = 3, .expert_room = 0.4},
     .rounds = true,
     .modes = true,
     .set = selective},
    {.name = "zero = 3 x expert 2 x 2, experts frozen",
     .keys = AUX,
     .l = {.ranks = 4, .expert = 2, .zero = 3},
     .modes = true,
     .set = frozen_experts},
    {.name = "zero = 2 x expert 2 x 2, beside a shared expert",
     .keys = AUX "shared_ffn=64 ",
     .l = {.ranks = 4, .expert = 2, .zero = 2},
     .modes = true,
     .beside = true},
    {.name = "zero = 2 x tensor 2 x expert 2 of the same ranks, rounds",
     .keys = AUX "expert_bias=yes shared_ffn=64 shared_gate=yes ",
     .l = {.ranks = 2, .tensor = 2, .expert = 2, .expert_tensor = 1, .zero = 2, .expert_room = 0.4},
     .rounds = true,
     .modes = true},
    {.name = "zero = 3 x tensor 2 x expert 2 x 2",
     .keys = AUX "expert_bias=yes ",
     .l = {.ranks = 4, .tensor = 2, .sequence = true, .expert = 2, .zero = 3}},
    {.name = "zero = 3 x expert 2, rounds",
     .keys = AUX,
     .l = {.ranks = 2, .expert = 2, .zero = 3, .expert_room = 0.4},
     .rounds = true,
     .modes = true},
    {.name = "zero = 3 x expert 2, beside a shared expert",
     .keys = AUX "shared_ffn=64 ",
     .l = {.ranks = 2, .expert = 2, .zero = 3},
     .modes = true,
     .beside = true},
    {.name = "zero = 3 x expert 2 x 2, bf16, recompute = full",
     .keys = AUX,
     .l = {.ranks = 4, .expert = 2, .zero = 3},
     .set = bf16_full},
    {.name = "zero = 3 x context 2 x expert 4",
     .keys = AUX,
     .l = {.ranks = 2, .context = 2, .expert = 4, .zero = 3},
     .rounds = true},
    {.name = "tensor 2, rows divided, x expert 4: folded",
     .keys = AUX,
     .rounds = true,
     .l = {.ranks = 2, .tensor = 2, .sequence = true, .expert = 4, .expert_tensor = 1},
     .modes = true},
    {.name = "tensor 2 x expert 2 of the same ranks, rounds, zero = 1",
     .keys = AUX "expert_bias=yes shared_ffn=64 shared_gate=yes ",
     .l = {.ranks = 2, .tensor = 2, .expert = 2, .expert_tensor = 1, .zero = 1, .expert_room = 0.4},
     .rounds = true,
     .modes = true},
    {.name = "the same ranks, beside a shared expert",
     .keys = AUX "shared_ffn=64 ",
     .l = {.ranks = 1, .tensor = 2, .expert = 2, .expert_tensor = 1},
     .modes = true,
     .beside = true},
    {.name = "tensor 2 x expert 2, all to one",
     .keys = AUX "router_linear_bias=yes ",
     .l = {.ranks = 1, .tensor = 2, .expert = 2, .expert_tensor = 1, .expert_room = 0.5},
     .loads = TO_ONE_RANK,
     .rounds = true},
    {.name = "tensor 2 x context 2 x expert 8, latent, zero = 3",
     .keys = AUX "mlp=plain activation=gelu_tanh expert_latent=32 ",
     .rounds = true,
     .l = {.ranks = 2,
           .tensor = 2,
           .sequence = true,
           .context = 2,
           .expert = 8,
           .expert_tensor = 1,
           .zero = 3}},
    {.name = "zb-h1 x expert 2, beside a shared expert",
     .keys = AUX "layers=4 shared_ffn=64 ",
     .l = {.ranks = 2, .expert = 2, .pipeline = 2, .schedule = LF_PIPE_ZB_H1 + 1},
     .beside = true,
     .split = true},
    {.name = "tensor 2 x pipeline 2 x expert 4, zb-h1",
     .keys = AUX "layers=4 ",
     .rounds = true,
     .l = {.ranks = 2,
           .tensor = 2,
           .pipeline = 2,
           .schedule = LF_PIPE_ZB_H1 + 1,
           .expert = 4,
           .expert_tensor = 1}},
    {.name = "tensor 2 x expert 4, weighed before, groups, balanced",
     .keys = "experts=8 experts_per_token=1 expert_ffn=64 router_on_input=yes router_bias=yes "
             "router_score=sigmoid router_bias_rate=0.01 router_groups=4 router_top_groups=2 ",
     .rounds = true,
     .l = {.ranks = 2, .tensor = 2, .expert = 4, .expert_tensor = 1}},
    {.name = "experts drop rows, two ranks",
     .keys = AUX DROPS,
     .l = {.ranks = 2, .expert = 2},
     .modes = true},
    {.name = "experts drop rows, four ranks, all to one, zero = 1",
     .keys = AUX DROPS "router_linear_bias=yes shared_ffn=64 ",
     .l = {.ranks = 4, .expert = 4, .zero = 1},
     .loads = TO_ONE_RANK},
    {.name = "experts drop rows, rounds, bf16",
     .keys = AUX DROPS "expert_bias=yes ",
     .l = {.ranks = 2, .expert = 2, .expert_room = 0.3},
     .rounds = true,
     .set = bf16},
    {.name = "experts drop rows, context 2 x expert 4",
     .keys = AUX DROPS,
     .l = {.ranks = 2, .context = 2, .expert = 4, .expert_room = 4},
     .modes = true},
    {.name = "experts drop rows, context 4, keys gathered, x expert 2",
     .keys = AUX DROPS,
     .l = {.ranks = 1, .context = 4, .kind = LF_CONTEXT_GATHER, .expert = 2, .expert_room = 4},
     .set = full},
    {.name = "experts drop rows, tensor 2, rows divided, x expert 4: folded",
     .keys = AUX DROPS,
     .l = {.ranks = 2,
           .tensor = 2,
           .sequence = true,
           .expert = 4,
           .expert_tensor = 1,
           .expert_room = 4}},
    {.name = "experts drop rows, weighed before, pipeline 2 x expert 2",
     .keys = "experts=8 experts_per_token=1 expert_ffn=64 router_on_input=yes layers=4 " DROPS,
     .batch = 12,
     .l = {.ranks = 2, .expert = 2, .pipeline = 2}},
    {.name = "experts drop rows, zero = 3 x expert 2 x 2",
     .keys = AUX DROPS,
     .l = {.ranks = 4, .expert = 2, .zero = 3},
     .modes = true},
    {.name = "a loss scale that changes",
     .keys = AUX,
     .l = {.ranks = 2, .expert = 2},
     .set = scaled},
};

/* ---- what routers are told ---- */

static enum loads loads;
static int beside;      /* returns of the plan that are late */
static int torn;        /* buckets that are summed before the last round has added to them */
static uint64_t hashes; /* of the plans of all ranks, added up */
static size_t saved;    /* the most bytes that a rank keeps from forward to backward */
int __real_lf_train_start(lf_trainer *t, bool *done, lf_err *err);
int __wrap_lf_train_start(lf_trainer *t, bool *done, lf_err *err);

static void look(const lf_plan *p, const struct lf_chain *c)
{
    size_t ready[64];
    if (p->n_buckets > 64 || !c->o.train)
        tap_bail("%zu buckets", p->n_buckets);
    size_t bytes = 0;
    for (size_t t = 1; t < c->g->n_t; t++)
        if (c->g->t[t].saved && !c->g->t[t].parent && c->g->t[t].role == LF_ROLE_ACT)
            bytes += (size_t)c->g->t[t].rows * (size_t)c->g->t[t].cols *
                     lf_dtype_size((enum lf_dtype)c->g->t[t].dtype);
    saved = bytes > saved ? bytes : saved;
    lf_plan_bucket_ready(p, c, ready);
    for (size_t k = 0; k < c->n_regions; k++) {
        beside += c->region[k].reader > 0;
        for (size_t i = 0; i < p->n_buckets; i++)
            torn += ready[i] > (size_t)c->region[k].first && ready[i] <= (size_t)c->region[k].last;
    }
}

int __wrap_lf_train_start(lf_trainer *t, bool *done, lf_err *err)
{
    int rc = __real_lf_train_start(t, done, err);
    beside = torn = 0;
    hashes += lf_plan_hash(t->m.plan);
    for (size_t c = 0; c < t->m.plan->n_c; c++)
        if (t->m.plan->c[c].o.train)
            look(t->m.plan, &t->m.plan->c[c]);
    for (int i = 0; i < lf_pstore_count(t->m.ps) && loads != AS_THEY_ARE && rc == 0; i++) {
        float bias[8] = {0};
        if (loads == TO_ONE_RANK)
            bias[2] = bias[3] = 50;
        else
            bias[5] = -50;
        if (strstr(lf_pstore_desc(t->m.ps, i)->name, "router.logit_bias"))
            rc = lf_pstore_write(t->m.ps, i, LF_F32, bias, err);
    }
    return rc;
}

/* ---- rows ---- */

/* In one round there are as many calls as planned; in several more. */
static bool moved(const struct row *r, const struct rig_seen *s, char *text, size_t cap)
{
    const uint64_t calls = s->rows.calls, planned = s->rows.planned_calls;
    const bool good = (r->rounds ? calls > planned : calls == planned) && !torn;
    if (!good)
        snprintf(text, cap,
                 "%llu calls of rows, planned are %llu; %d buckets are summed in a round",
                 (unsigned long long)calls, (unsigned long long)planned, torn);
    return good && s->rows.bytes > 0;
}

/* The largest error of the first gradient of a router or of experts, relative to its norm. */
static double worst_alone(const struct rig_seen *one, const struct rig_seen *s, int *n)
{
    double worst = 0;
    *n = 0;
    for (int i = 0; i < one->n && i < s->n; i++) {
        const struct rig_tensor *x = &one->t[i], *y = &s->t[i];
        double apart = 0, norm = 0;
        if (!strstr(x->name, ".moe.") || !x->v[RIG_GRAD] || !y->v[RIG_GRAD] || x->n != y->n)
            continue;
        for (int64_t e = 0; e < x->n; e++) {
            const double a = (double)x->v[RIG_GRAD][e], b = (double)y->v[RIG_GRAD][e];
            apart += (a - b) * (a - b);
            norm += a * a;
        }
        if (norm > 0 && sqrt(apart / norm) > worst)
            worst = sqrt(apart / norm);
        *n += norm > 0;
    }
    return worst;
}

static bool modes(const struct rig_case *k, const struct rig_seen *plain, char *text, size_t cap)
{
    bool good = true;
    for (int mode = 0; mode < 3 && good; mode++) {
        struct rig_case m = *k;
        struct rig_seen s = {0};
        lf_err err = LF_ERR_INIT;
        m.poison = mode != 1;
        m.no_reuse = mode == 1;
        m.late = mode == 2;
        m.turns = mode == 2 ? 11 : 0;
        good = rig_run(&m, &s, &err) == 0 && rig_equal(plain, &s, text, cap);
        if (err.rc)
            snprintf(text, cap, "%s", err.text);
        rig_fini(&s);
    }
    return good;
}

static void test_split(const struct rig_case *k)
{
    struct rig_case m = *k;
    struct rig_seen s = {0};
    lf_err err = LF_ERR_INIT;
    const uint64_t split = hashes;
    m.layout.schedule = 0;
    hashes = 0;
    tap_ok(rig_run(&m, &s, &err) == 0 && hashes == split, "the plans of passes that are not split");
    if (err.rc)
        tap_diag("%s", err.text);
    rig_fini(&s);
}

static bool repeats(const struct row *r)
{
    return r->set == full || r->set == bf16_full || r->set == full_frozen;
}

/* What is repeated are the same bits, rows of other ranks, too; that is what it saves. */
static void test_repeated(const struct rig_case *k, const struct rig_seen *full_seen, size_t kept)
{
    struct rig_case m = *k;
    struct rig_seen s = {0};
    lf_err err = LF_ERR_INIT;
    char text[1100] = "";
    m.c.recompute = LF_RECOMPUTE_NONE;
    saved = 0;
    const bool same = rig_run(&m, &s, &err) == 0 && rig_equal(full_seen, &s, text, sizeof text);
    tap_ok(same && s.rows.calls < full_seen->rows.calls && kept < saved / 3,
           "the bits of nothing repeated, with fewer calls of rows; kept are %zu bytes of %zu",
           kept, saved);
    if (text[0] || err.rc)
        tap_diag("%s", err.rc ? err.text : text);
    rig_fini(&s);
}

static void test_row(const struct row *r)
{
    struct rig_case k;
    struct rig_seen one = {0}, s = {0};
    lf_err err = LF_ERR_INIT;
    char text[1100] = "";
    rig_begin(&k);
    k.c.steps = 2;
    k.batch = r->batch ? r->batch : 11;
    k.layout = r->l;
    if (rig_model(&k, r->keys, &err))
        tap_bail("%s: %s", r->name, err.text);
    if (r->set)
        r->set(&k);
    loads = r->loads;
    const int alone = rig_alone(&k, &one, &err);
    hashes = saved = 0;
    if (alone || rig_run(&k, &s, &err))
        tap_bail("%s: %s", r->name, err.text);
    const size_t kept = saved;
    const struct rig_bounds b = rig_bounds(&k);
    const bool drops = s.told[RIG_TOLD - 1] > 0;
    tap_ok(rig_compare(&one, &s, &b, text, sizeof text) == 0 &&
               drops == (strstr(r->keys, DROPS) != NULL),
           "%s: what one rank computes%s", r->name, drops ? ", rows are dropped" : "");
    if (text[0])
        tap_diag("%s", text);
    int n;
    const double worst = worst_alone(&one, &s, &n);
    tap_ok((n > 0 || k.adapted) && (worst <= 1e-5 || k.c.compute != LF_F32),
           "gradients of %d tensors of routers and experts are apart by %.2g at most", n, worst);
    text[0] = '\0';
    if (r->beside)
        tap_ok(beside > 0, "%d times something runs beside rows that come back", beside);
    tap_ok(moved(r, &s, text, sizeof text), "%s", r->rounds ? "rows in rounds" : "one round");
    if (text[0])
        tap_diag("%s", text);
    text[0] = '\0';
    if (r->split)
        test_split(&k);
    if (repeats(r))
        test_repeated(&k, &s, kept);
    if (r->modes && !tap_ok(modes(&k, &s, text, sizeof text), "in every mode the same bits"))
        tap_diag("%s", text);
    rig_fini(&one);
    rig_fini(&s);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (argc < 2 || strcmp(argv[1], rows[i].name) == 0)
            TAP(3 + rows[i].modes + rows[i].beside + rows[i].split + repeats(&rows[i]),
                test_row(&rows[i]));
    return tap_done();
}
