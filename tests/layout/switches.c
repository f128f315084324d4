/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of switches, and of pairs that are refused.
 */
#include "tests/layout/switches.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tap/tap.h"

/* ---- what values set ---- */

static void ranks(struct rig_case *k, int v)
{
    k->layout.ranks = v;
}
static void zero(struct rig_case *k, int v)
{
    k->layout.zero = v;
}
static void inner(struct rig_case *k, int v)
{
    k->layout.zero_inner = v;
}
static void tensor(struct rig_case *k, int v)
{
    k->layout.tensor = v;
}
static void rows(struct rig_case *k, int v)
{
    k->layout.tensor = v;
    k->layout.sequence = true;
}
static void context(struct rig_case *k, int v)
{
    k->layout.context = v;
}
enum { ROUNDS = 100 }; /* a rank takes less than its share of rows at once */
static void expert(struct rig_case *k, int v)
{
    k->layout.expert = v % ROUNDS;
    k->layout.expert_room = v / ROUNDS ? 0.4 : 0;
}
static void gather(struct rig_case *k, int v)
{
    k->layout.context = v;
    k->layout.kind = LF_CONTEXT_GATHER;
}
/* Heads of keys are 2. */
static void both(struct rig_case *k, int v)
{
    k->layout.context = v;
    k->layout.kind = LF_CONTEXT_BOTH;
}
/* Four layers, for as many parts, so that some have none where stages says so. */
enum { PIPE_2 = 20, PIPE_4 = 40, GPIPE = 1, CHUNKS, ZB, UNEVEN, ZBV, DUAL };
static void pipeline(struct rig_case *k, int v)
{
    static const int schedule[] = {[GPIPE] = LF_PIPE_GPIPE + 1,
                                   [ZB] = LF_PIPE_ZB_H1 + 1,
                                   [UNEVEN] = 0,
                                   [ZBV] = LF_PIPE_ZB_V + 1,
                                   [DUAL] = LF_PIPE_DUALPIPE_V + 1};
    k->layout.pipeline = v / 10;
    k->layout.schedule = schedule[v % 10];
    k->layout.chunks = v % 10 == CHUNKS ? 2 : 0;
    k->layout.stages = v == PIPE_4 + UNEVEN   ? "2,0,2,0"
                       : v == PIPE_4 + CHUNKS ? "1,1,0,1,0,0,1,0"
                                              : NULL;
}
static void poison(struct rig_case *k, int v)
{
    k->poison = v;
}
static void no_reuse(struct rig_case *k, int v)
{
    k->no_reuse = v;
}
static void late(struct rig_case *k, int v)
{
    k->late = v;
}
static void turns(struct rig_case *k, int v)
{
    k->turns = (uint64_t)v;
}
static void packing(struct rig_case *k, int v)
{
    k->c.packing = (enum lf_pack_policy)v;
}
static void batch(struct rig_case *k, int v)
{
    k->batch = v;
}
static void micro(struct rig_case *k, int v)
{
    k->c.micro_batch = v;
    k->batch *= v;
}
static void recompute(struct rig_case *k, int v)
{
    k->c.recompute = (enum lf_recompute)v;
}
static void freeze(struct rig_case *k, int v)
{
    k->frozen = v ? "layers.0.*" : NULL;
}
static void z_loss(struct rig_case *k, int v)
{
    k->c.z_loss = 1e-3 * v;
    k->c.entropy = v;
}
static void mtp(struct rig_case *k, int v)
{
    k->c.mtp_weight = 0.3 * v;
}
/* Encoders of texts say tokens that are hidden. */
static void hidden(struct rig_case *k, int v)
{
    static const lf_mlm some = {.share = 0.3, .random = 0.1, .kept = 0.1, .mask_token = 1};
    k->c.mlm = v ? &some : NULL;
}
static void noise(struct rig_case *k, int v)
{
    k->c.neftune_alpha = v;
}
/* A power of two: no bit of the gradient changes. */
static void scale(struct rig_case *k, int v)
{
    k->c.scaler.start = v;
}

enum { BF16 = 1, BF16_STATE };
static void types(struct rig_case *k, int v)
{
    k->c.compute = LF_BF16;
    if (v == BF16_STATE) {
        k->c.adam.moments = k->c.adam.masters = LF_BF16;
        k->c.adam.stochastic = true;
    }
}

enum { LORA = 1, LORA_SOME, LORA_PARTS, DORA, DORA_SOME };
static void adapter(struct rig_case *k, int v)
{
    /* a group as a whole, or by members: ranks divide the rows of a group's members one by one */
    static const char *const targets[][2] = {
        [LORA_SOME] = {"qkv", "o"}, [LORA_PARTS] = {"q", "o"}, [DORA_SOME] = {"qkv", "o"}};
    k->adapted = true;
    k->c.clip = 0.004; /* B begins with zeros, so that gradients are smaller */
    k->adapter = (struct lf_adapter_config){.rank = 4, .alpha = 8, .dora = v >= DORA};
    if (v == LORA || v == DORA)
        return;
    k->adapter.dropout = 0.1;
    k->adapter.n_targets = 2;
    for (int i = 0; i < 2; i++)
        strcpy(k->adapter.target[i], targets[v][i]);
}

static void stacks(struct rig_case *k, int v)
{
    if (v > 1)
        rig_two_stacks(k);
}

/* Not by key, which is refused where the layer has experts alone and reads no width. */
static void shared_width(struct rig_case *k, int v)
{
    k->c.model.kv_shared_ffn = v;
}

/* ---- the tables ---- */

#define USUAL(text)                                                                                \
    {                                                                                              \
        text, NULL, NULL, 0                                                                        \
    }
#define KEYS(text, keys)                                                                           \
    {                                                                                              \
        text, keys, NULL, 0                                                                        \
    }
#define SET(text, fn, v)                                                                           \
    {                                                                                              \
        text, NULL, fn, v                                                                          \
    }
#define PARTS(text, v)                                                                             \
    {                                                                                              \
        text, "layers=4", pipeline, v                                                              \
    }
#define EXPERTS "experts=4 experts_per_token=2 expert_ffn=64 "

const struct sw sw_table[] = {
    /* how ranks divide the work: SW_LAYOUT */
    {"ranks",
     {SET("1", ranks, 1), SET("2", ranks, 2), SET("3", ranks, 3), SET("4", ranks, 4),
      SET("8", ranks, 8)}},
    {"zero", {USUAL("0"), SET("1", zero, 1), SET("2", zero, 2), SET("3", zero, 3)}},
    {"zero_inner", {USUAL("all"), SET("2", inner, 2)}},
    {"tensor", /* rows: sequence too */
     {USUAL("1"), SET("2", tensor, 2), SET("2rows", rows, 2), SET("4", tensor, 4),
      SET("8", tensor, 8), SET("4rows", rows, 4), SET("8rows", rows, 8)}},
    {"context", /* gather: keys and values come to a rank's rows */
     {USUAL("1"), SET("2", context, 2), SET("4", context, 4), SET("2gather", gather, 2),
      SET("4gather", gather, 4), SET("4both", both, 4)}},
    {"expert", {USUAL("1"), SET("2rounds", expert, ROUNDS + 2), SET("2", expert, 2)}},
    {"pipeline", /* with order of passes, chunks and parts */
     {USUAL("1"), PARTS("2chunks", PIPE_2 + CHUNKS), PARTS("4zb", PIPE_4 + ZB),
      PARTS("4uneven", PIPE_4 + UNEVEN), PARTS("2zbv", PIPE_2 + ZBV), PARTS("2dual", PIPE_2 + DUAL),
      PARTS("2gpipe", PIPE_2 + GPIPE), PARTS("2", PIPE_2), PARTS("2zb", PIPE_2 + ZB),
      PARTS("4", PIPE_4), PARTS("4chunks", PIPE_4 + CHUNKS)}},
    /* modes */
    {"mode",
     {USUAL("plain"), SET("poison", poison, 1), SET("no_reuse", no_reuse, 1),
      SET("late", late, 1)}},
    {"turns", {USUAL("fixed"), SET("drawn", turns, 13)}},
    /* families */
    {"head",
     {USUAL("untied"), KEYS("tied", "tied_head=yes"), KEYS("unit", "norm_head=yes"),
      KEYS("biased", "head_bias=yes")}},
    {"biases",
     {USUAL("none"), KEYS("qkv", "qkv_bias=yes"),
      KEYS("all", "qkv_bias=yes out_bias=yes mlp_bias=yes")}},
    {"kv_heads",
     {USUAL("2"), KEYS("4", "kv_heads=4 head_dim=16"),
      KEYS("1", "kv_heads=1 init=residual_scaled")}},
    {"qk_norm",
     {USUAL("no"), KEYS("yes", "qk_norm=yes"),
      KEYS("all_heads", "qk_norm=yes qk_norm_all_heads=yes")}},
    {"norm",
     {USUAL("rms"), KEYS("layer", "norm=layer norm_bias=yes final_norm=no"),
      KEYS("offset", "norm_offset=1")}},
    {"block",
     {USUAL("pre"), KEYS("post", "block=post"), KEYS("sandwich", "block=sandwich"),
      KEYS("alpha", "block=alpha")}},
    {"parallel",
     {USUAL("no"), KEYS("one_norm", "parallel_block=one_norm"),
      KEYS("two_norms", "parallel_block=two_norms")}},
    {"keys",
     {USUAL("own"),
      KEYS("sinks", "attn_sinks=yes"),
      {"shared", "kv_shared_layers=1 v_norm=yes", shared_width, 64}}},
    {"softcap", {USUAL("no"), KEYS("yes", "attn_softcap=5 logit_softcap=4 attn_scale=0.2")}},
    {"window",
     {USUAL("no"), KEYS("all", "sliding_window=5"),
      KEYS("pattern", "sliding_window=5 layer_mixers=wf*")}},
    {"position",
     {USUAL("rope"),
      KEYS("half", "rope_fraction=0.5 rope_interleaved=yes rope_scaling=yarn rope_factor=4 "
                   "rope_original_positions=16"),
      KEYS("learned", "position=learned"), KEYS("alibi", "position=alibi"),
      KEYS("none", "position=none"), KEYS("rope2d", "position=rope2d")}},
    /* behind layers, heads and positions, which go by it */
    {"stacks", {USUAL("one"), SET("two", stacks, 2)}},
    {"mask", {USUAL("causal"), KEYS("prefix", "mask=prefix"), {"both", "mask=both", hidden, 1}}},
    {"embed",
     {USUAL("plain"), KEYS("narrow", "embed_dim=32"),
      KEYS("scaled", "embed_scale=8 embed_norm=yes")}},
    /* not xielu: its derivative jumps between eps = -1e-6 and 0, and a rounding may cross that */
    {"mlp",
     {USUAL("glu"), KEYS("plain", "mlp=plain activation=gelu_tanh"),
      KEYS("aux", EXPERTS "router_aux=0.05 router_renorm=yes expert_bias=yes "
                          "router_linear_bias=yes layer_mlps=b,m*"),
      KEYS("balanced", EXPERTS "router_score=sigmoid router_bias=yes router_bias_rate=0.01 "
                               "router_groups=2 router_top_groups=1 router_scale=1.5 "
                               "router_renorm=yes shared_ffn=64 shared_gate=yes "
                               "capacity_factor=0.8 layer_mlps=d,m*")}},
    {"dropout",
     {USUAL("no"),
      KEYS("yes", "embed_dropout=0.1 attn_dropout=0.1 mlp_dropout=0.1 attn_prob_dropout=0.1")}},
    {"mtp", {USUAL("no"), {"1", "mtp_layers=1", mtp, 1}, {"2", "mtp_layers=2", mtp, 1}}},
    /* training */
    {"packing", {USUAL("concat"), SET("bfd", packing, LF_PACK_BFD)}},
    {"batch", {SET("8", batch, 8), SET("11", batch, 11)}},
    {"micro_batch", {USUAL("1"), SET("2", micro, 2)}},
    {"types", {USUAL("f32"), SET("bf16", types, BF16), SET("bf16_state", types, BF16_STATE)}},
    {"adapter",
     {USUAL("none"), SET("lora", adapter, LORA), SET("lora_some", adapter, LORA_SOME),
      SET("lora_parts", adapter, LORA_PARTS), SET("dora", adapter, DORA),
      SET("dora_some", adapter, DORA_SOME)}},
    {"recompute",
     {USUAL("none"), SET("selective", recompute, LF_RECOMPUTE_SELECTIVE),
      SET("full", recompute, LF_RECOMPUTE_FULL)}},
    {"freeze", {USUAL("nothing"), SET("layer", freeze, 1)}},
    {"z_loss", {USUAL("no"), SET("yes", z_loss, 1)}},
    {"noise", {USUAL("no"), SET("yes", noise, 5)}},
    {"loss_scale", {USUAL("1"), SET("1024", scale, 1024)}},
};
const int sw_n = sizeof sw_table / sizeof sw_table[0];

#define BY_PIPELINE(b, says)                                                                       \
    {"pipeline=2chunks", b, says, NULL}, {"pipeline=4zb", b, says, NULL},                          \
        {"pipeline=4uneven", b, says, NULL}, {"pipeline=2zbv", b, says, NULL},                     \
        {"pipeline=2dual", b, says, NULL}, {"pipeline=2gpipe", b, says, NULL},                     \
        {"pipeline=2", b, says, NULL}, {"pipeline=2zb", b, says, NULL},                            \
        {"pipeline=4", b, says, NULL},                                                             \
    {                                                                                              \
        "pipeline=4chunks", b, says, NULL                                                          \
    }
/* What no encoder-decoder has. */
#define BY_STACKS(a, says)                                                                         \
    {                                                                                              \
        a, "stacks=two", says, NULL                                                                \
    }
#define NO_STACKS(a) BY_STACKS(a, "does not go with encoder_layers")
#define NO_SOURCES   "the rows of sources are not divided; take context = 1"
#define BY_PARTS     "gradients and weights would be moved for each micro-batch; take zero = 1"
#define BY_MTP(a, says)                                                                            \
    {a, "mtp=1", says, NULL},                                                                      \
    {                                                                                              \
        a, "mtp=2", says, NULL                                                                     \
    }
#define BY_EXPERT(b, says, with)                                                                   \
    {"expert=2", b, says, with},                                                                   \
    {                                                                                              \
        "expert=2rounds", b, says, with                                                            \
    }
#define BY_HEADS     "(context); take a context that divides heads"
#define SIDE_BY_SIDE "attention and MLP side by side read x normalised: block = pre only"

const struct sw_refusal sw_refusals[] = {
    {"zero=0", "zero_inner=2", "zero_inner = 2: nothing is divided with zero = 0", NULL},
    BY_EXPERT("ranks=1", "expert = 2: the 1 rank that shares", NULL),
    BY_EXPERT("ranks=3", "expert = 2: the 3 ranks that share", NULL),
    BY_EXPERT("zero_inner=2", "the ranks with the same experts are in several", "mlp=aux"),
    BY_EXPERT("mlp=glu", "the model has none", NULL),
    BY_EXPERT("mlp=plain", "the model has none", NULL),
    BY_EXPERT("biases=all", "experts have a bias by expert_bias", "mlp=aux"),
    BY_EXPERT("adapter=dora", "takes in the experts", "mlp=aux"),
    {"ranks=3", "zero_inner=2", "zero_inner = 2: 3 ranks cannot form such groups", "zero=1"},
    {"tensor=4", "context=4", BY_HEADS, NULL},
    {"tensor=4rows", "context=4", BY_HEADS, NULL},
    {"tensor=8", "context=2", BY_HEADS, NULL},
    {"tensor=8", "context=4", BY_HEADS, NULL},
    {"tensor=8rows", "context=2", BY_HEADS, NULL},
    {"tensor=8rows", "context=4", "the 4 rows of a micro-batch", NULL},
    /* more ranks than a process takes, beside others */
    {"tensor=4", "context=4gather", NULL, NULL},
    {"tensor=4", "context=4both", NULL, NULL},
    {"tensor=4rows", "context=4gather", NULL, NULL},
    {"tensor=4rows", "context=4both", NULL, NULL},
    {"tensor=8", "context=2gather", NULL, NULL},
    {"tensor=8", "context=4gather", NULL, NULL},
    {"tensor=8", "context=4both", NULL, NULL},
    {"tensor=8rows", "context=2gather", NULL, NULL},
    {"tensor=8rows", "context=4gather", "the 4 rows of a micro-batch", NULL},
    {"tensor=8rows", "context=4both", "the 4 rows of a micro-batch", NULL},
    {"position=rope2d", "mask=causal", "rope2d counts from the end of the prefix", NULL},
    {"position=alibi", "mask=prefix", "a prefix looks ahead", NULL},
    {"position=rope2d", "mask=both", "rope2d counts from the end of the prefix", NULL},
    {"position=alibi", "mask=both", "ALiBi is a penalty for distance", NULL},
    {"block=post", "parallel=one_norm", SIDE_BY_SIDE, NULL},
    {"block=post", "parallel=two_norms", SIDE_BY_SIDE, NULL},
    {"block=sandwich", "parallel=one_norm", SIDE_BY_SIDE, NULL},
    {"block=sandwich", "parallel=two_norms", SIDE_BY_SIDE, NULL},
    {"block=alpha", "parallel=one_norm", SIDE_BY_SIDE, NULL},
    {"block=alpha", "parallel=two_norms", SIDE_BY_SIDE, NULL},
    {"parallel=one_norm", "mlp=aux", "an MLP and experts have norms of their own", NULL},
    {"parallel=two_norms", "mlp=aux", "an MLP and experts have norms of their own", NULL},
    {"window=pattern", "keys=shared", "finds no layer of its kind", NULL},
    {"types=bf16_state", "keys=sinks", "rounded at random together", "tensor=2"},
    {"biases=all", "mlp=aux", "experts have a bias by expert_bias", NULL},
    {"biases=all", "mlp=balanced", "experts have a bias by expert_bias", NULL},
    {"adapter=dora", "mlp=aux", "takes in the experts", NULL},
    {"adapter=dora", "mlp=balanced", "takes in the experts", NULL},
    {"types=bf16_state", "adapter=lora", "masters = bf16 is for training of all weights", NULL},
    {"types=bf16_state", "adapter=lora_some", "masters = bf16 is for training of all weights",
     NULL},
    {"types=bf16_state", "adapter=lora_parts", "masters = bf16 is for training of all weights",
     NULL},
    {"types=bf16_state", "adapter=dora", "masters = bf16 is for training of all weights", NULL},
    {"types=bf16_state", "adapter=dora_some", "masters = bf16 is for training of all weights",
     NULL},
    BY_PIPELINE("keys=shared", "take pipeline = 1"),
    BY_PIPELINE("zero=2", BY_PARTS),
    BY_PIPELINE("zero=3", BY_PARTS),
    BY_STACKS("context=2", NO_SOURCES),
    BY_STACKS("context=4", NO_SOURCES),
    BY_STACKS("context=2gather", NO_SOURCES),
    BY_STACKS("context=4gather", NO_SOURCES),
    BY_STACKS("context=4both", NO_SOURCES),
    BY_STACKS("expert=2", "the model has none"),
    BY_STACKS("expert=2rounds", "the model has none"),
    NO_STACKS("kv_heads=4"),
    NO_STACKS("kv_heads=1"),
    NO_STACKS("qk_norm=yes"),
    NO_STACKS("qk_norm=all_heads"),
    NO_STACKS("block=sandwich"),
    NO_STACKS("block=alpha"),
    NO_STACKS("parallel=one_norm"),
    NO_STACKS("parallel=two_norms"),
    NO_STACKS("keys=sinks"),
    NO_STACKS("keys=shared"),
    NO_STACKS("window=all"),
    NO_STACKS("window=pattern"),
    NO_STACKS("position=half"),
    NO_STACKS("position=alibi"),
    BY_STACKS("position=rope2d", "it needs mask = prefix"),
    NO_STACKS("mask=prefix"),
    NO_STACKS("mask=both"),
    NO_STACKS("embed=narrow"),
    NO_STACKS("mlp=aux"),
    NO_STACKS("mlp=balanced"),
    NO_STACKS("mtp=1"),
    NO_STACKS("mtp=2"),
    BY_STACKS("noise=yes", "noise on the embeddings of sources is not there yet"),
    BY_MTP("position=learned", "does not go with mtp_layers"),
    BY_MTP("position=rope2d", "it needs mask = prefix"),
    BY_MTP("mask=prefix", "does not go with mtp_layers"),
    BY_MTP("mask=both", "does not go with mtp_layers"),
    BY_MTP("keys=shared", "does not go with mtp_layers"),
    BY_MTP("embed=narrow", "does not go with mtp_layers"),
    BY_MTP("embed=scaled", "does not go with mtp_layers"),
    BY_MTP("norm=layer", "does not go with mtp_layers"),
    {"pipeline=2dual", "ranks=3", "needs 4; take a larger batch, or zb-v", NULL},
    {"pipeline=2dual", "ranks=4", "needs 4; take a larger batch, or zb-v", NULL},
    {"pipeline=2dual", "ranks=8", "needs 4; take a larger batch, or zb-v", NULL},
    {"pipeline=2zbv", "recompute=full", "recompute = full with a split backward pass", NULL},
    {"pipeline=2dual", "recompute=full", "recompute = full with a split backward pass", NULL},
    {"pipeline=2zb", "recompute=full", "recompute = full with a split backward pass", NULL},
    {"pipeline=4zb", "recompute=full", "recompute = full with a split backward pass", NULL},
};
const size_t sw_n_refusals = sizeof sw_refusals / sizeof sw_refusals[0];

/* ---- rows ---- */

static int count(const struct sw *s)
{
    int n = 0;
    while (n < COVER_VALUES && s->v[n].name)
        n++;
    return n;
}

/* "zero=3" -> switch and value. */
static void find(const char *text, int *s, int *v)
{
    const char *value = strchr(text, '=');
    for (*s = 0; value && *s < sw_n; (*s)++) {
        const size_t n = strlen(sw_table[*s].name);
        if (n != (size_t)(value - text) || memcmp(text, sw_table[*s].name, n) != 0)
            continue;
        for (*v = 0; *v < count(&sw_table[*s]); (*v)++)
            if (strcmp(sw_table[*s].v[*v].name, value + 1) == 0)
                return;
    }
    tap_bail("no switch has the value %s", text);
}

void sw_put(uint8_t *row, const char *text)
{
    int s, v;
    find(text, &s, &v);
    row[s] = (uint8_t)v;
}

/* By how many ranks a layout with the value has more. */
static uint8_t ranks_of(const struct sw_value *v)
{
    struct rig_case k = {.layout = {.ranks = 1}};
    if (v->set)
        v->set(&k, v->value);
    return (uint8_t)rig_all_ranks(&k.layout);
}

struct cover sw_cover(struct cover_pair *pairs)
{
    struct cover c = {.n = sw_n, .refused = pairs, .n_refused = sw_n_refusals};
    for (int s = 0; s < sw_n; s++)
        c.values[s] = (uint8_t)count(&sw_table[s]);
    for (int s = 0; s < SW_LAYOUT; s++)
        for (int v = 0; v < c.values[s]; v++)
            c.cost[s][v] = ranks_of(&sw_table[s].v[v]);
    for (size_t i = 0; i < sw_n_refusals; i++) {
        int a, va, b, vb;
        find(sw_refusals[i].a, &a, &va);
        find(sw_refusals[i].b, &b, &vb);
        pairs[i] = a < b ? (struct cover_pair){(uint8_t)a, (uint8_t)va, (uint8_t)b, (uint8_t)vb}
                         : (struct cover_pair){(uint8_t)b, (uint8_t)vb, (uint8_t)a, (uint8_t)va};
    }
    return c;
}

void sw_first(struct cover *c, struct cover_pair *pairs, const char *name, int n)
{
    int s = 0;
    size_t left = 0;
    while (strcmp(sw_table[s].name, name) != 0)
        s++;
    c->values[s] = (uint8_t)n;
    for (size_t i = 0; i < c->n_refused; i++)
        if ((pairs[i].a != s || pairs[i].va < n) && (pairs[i].b != s || pairs[i].vb < n))
            pairs[left++] = pairs[i];
    c->n_refused = left;
}

const char *sw_text(const uint8_t *row, char *text, size_t cap)
{
    size_t at = 0;
    text[0] = '\0';
    for (int s = 0; s < sw_n; s++)
        if (row[s] && at < cap)
            at += (size_t)snprintf(text + at, cap - at, "%s%s=%s", at ? " " : "", sw_table[s].name,
                                   sw_table[s].v[row[s]].name);
    return text;
}

int sw_case(const uint8_t *row, struct rig_case *k, lf_err *err)
{
    int rc = 0;
    rig_begin(k);
    for (int s = 0; s < sw_n && rc == 0; s++) {
        const struct sw_value *v = &sw_table[s].v[row[s]];
        if (v->keys)
            rc = rig_model(k, v->keys, err);
        if (v->set)
            v->set(k, v->value);
    }
    return rc;
}
