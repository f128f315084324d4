/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter table of the decoder: names, groups, shapes, initial values, decay and shard rules,
 * in one place. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "engine/graph/layout.h"
#include "engine/model/classes.h"
#include "engine/model/decoder_priv.h"
#include "engine/model/electra.h"
#include "engine/model/mae.h"

struct table {
    lf_pstore *ps;
    const lf_model_config *c;
    const char *stack; /* what names begin with: "" or "encoder." */
    bool frozen;       /* what follows is */
    lf_err *err;
    int rc;
};

enum kind {
    MATRIX,
    EMBEDDING, /* of tokens, and the head */
    QUERY,
    DISTANCES, /* a row is looked up by distance, a column is of a head */
    RESIDUAL_OUT,
    SCALE,
    BIAS,
    PLAIN_SCALE,
    TAPS,
    DECAY,
    STEP,
    GIVEN
};

/* The spread of the first values of a matrix. */
static double spread_of(const lf_model_config *c, enum kind kind, const struct lf_param_desc *d)
{
    if (c->init == LF_MINIT_RESIDUAL_SCALED && kind == RESIDUAL_OUT)
        return c->init_std / sqrt(2.0 * (double)c->layers);
    if (c->init != LF_MINIT_T5 || kind == EMBEDDING)
        return c->init_std;
    const int64_t in = kind == DISTANCES ? c->hidden : d->dims[d->ndim - 1];
    return c->init_std / sqrt((double)in * (kind == QUERY ? (double)c->head_dim : 1));
}

/* Initial value and decay by kind. */
static void declare(struct table *t, enum kind kind, struct lf_param_desc *d)
{
    if (t->rc)
        return;
    switch (kind) {
    case MATRIX:
    case EMBEDDING:
    case QUERY:
    case DISTANCES:
    case RESIDUAL_OUT:
        d->init = LF_INIT_NORMAL;
        d->init_std = (float)spread_of(t->c, kind, d);
        d->decay = true;
        break;
    case SCALE:
        d->init = t->c->norm_offset > 0.5 ? LF_INIT_ZERO : LF_INIT_ONE;
        if (t->c->init == LF_MINIT_T5) { /* all begins with that factor */
            d->init = LF_INIT_VALUE;
            d->init_std = (float)t->c->init_std;
        }
        break;
    case BIAS:
        d->init = LF_INIT_ZERO;
        break;
    case PLAIN_SCALE: /* no norm_offset is added to it */
        d->init = LF_INIT_ONE;
        break;
    case TAPS:
        d->init = LF_INIT_UNIFORM;
        d->init_std = (float)(1 / sqrt((double)t->c->scan_conv));
        break;
    case DECAY:
    case STEP:
        d->init = kind == DECAY ? LF_INIT_DECAY : LF_INIT_STEP;
        break;
    case GIVEN: /* by who declares it */
        break;
    }
    d->frozen = d->frozen || t->frozen;
    d->balance_rate = t->frozen ? 0 : d->balance_rate;
    int rc = lf_pstore_add(t->ps, d, t->err);
    if (rc < 0)
        t->rc = rc;
}

struct shape {
    int64_t out, in; /* in 0: a vector */
};

static struct shape matrix(int64_t out, int64_t in)
{
    return (struct shape){out, in};
}

static struct shape vector(int64_t n)
{
    return (struct shape){n, 0};
}

/* parts: what stays whole where ranks divide the tensor, such as heads; 0: an element. shared:
 * there may be fewer than ranks. */
struct cut {
    enum lf_shard_rule rule;
    int64_t parts;
    bool shared;
};

static const struct cut WHOLE = {LF_SHARD_NONE, 0, false}, ROWS = {LF_SHARD_ROWS, 0, false},
                        COLS = {LF_SHARD_COLS, 0, false},
                        VOCABULARY = {LF_SHARD_VOCABULARY, 0, false};

static void add(struct table *t, const char *group, enum kind kind, struct cut cut,
                struct shape shape, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
static void add(struct table *t, const char *group, enum kind kind, struct cut cut,
                struct shape shape, const char *fmt, ...)
{
    if (t->rc)
        return;
    char name[96], whole[96];
    const size_t n = (size_t)snprintf(name, sizeof(name), "%s", t->stack);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name + n, sizeof(name) - n, fmt, ap);
    va_end(ap);
    if (group)
        snprintf(whole, sizeof(whole), "%s%s", t->stack, group);
    struct lf_param_desc d = {.name = name,
                              .group = group ? whole : NULL,
                              .ndim = shape.in ? 2 : 1,
                              .dims = {shape.out, shape.in},
                              .shard = cut.rule,
                              .shard_parts = cut.parts,
                              .shard_shared = cut.shared};
    declare(t, kind, &d);
}

/* One matrix [out, in] for each expert. */
static void add_expert(struct table *t, enum kind kind, struct cut cut, struct shape shape,
                       const char *part, int64_t l)
{
    char name[96];
    snprintf(name, sizeof(name), "layers.%lld.moe.experts.%s.weight", (long long)l, part);
    struct lf_param_desc d = {.name = name,
                              .ndim = 3,
                              .dims = {t->c->experts, shape.out, shape.in},
                              .shard = cut.rule,
                              .shard_parts = cut.parts,
                              .experts = true};
    declare(t, kind, &d);
}

/* The bias of each expert's matrix: a row for each. */
static void add_expert_bias(struct table *t, struct cut cut, int64_t n, const char *part, int64_t l)
{
    char name[96];
    snprintf(name, sizeof(name), "layers.%lld.moe.experts.%s.bias", (long long)l, part);
    struct lf_param_desc d = {.name = name,
                              .ndim = 2,
                              .dims = {t->c->experts, n},
                              .shard = cut.rule,
                              .shard_parts = cut.parts,
                              .experts = true};
    declare(t, BIAS, &d);
}

static void add_wide_norm(struct table *t, const char *name, int64_t width)
{
    if (t->c->norm_weight)
        add(t, NULL, SCALE, WHOLE, vector(width), "%s.weight", name);
    if (t->c->norm_bias)
        add(t, NULL, BIAS, WHOLE, vector(width), "%s.bias", name);
}

static void add_norm(struct table *t, const char *name)
{
    add_wide_norm(t, name, t->c->hidden);
}

/* What any attention ends with: sinks of its heads, and the projection of `width` channels. */
static void add_outputs(struct table *t, int64_t width, int64_t l)
{
    const lf_model_config *c = t->c;
    const long long n = (long long)l;
    const struct cut heads = {LF_SHARD_ROWS, c->heads, false},
                     outputs = {LF_SHARD_COLS, c->heads, false};
    if (c->attn_sinks)
        add(t, NULL, BIAS, heads, vector(c->heads), "layers.%lld.attn.sinks", n);
    add(t, NULL, RESIDUAL_OUT, outputs, matrix(c->hidden, width), "layers.%lld.attn.o.weight", n);
    if (c->out_bias)
        add(t, NULL, BIAS, WHOLE, vector(c->hidden), "layers.%lld.attn.o.bias", n);
}

/* Multi-head latent attention (mla.c): what has heads is divided by them, the latent is not. */
static void add_latent(struct table *t, int64_t l)
{
    const lf_model_config *c = t->c;
    const long long n = (long long)l;
    const int64_t q = c->heads * c->head_dim, k = c->heads * c->nope_dim, v = c->heads * c->v_dim;
    const struct cut heads = {LF_SHARD_ROWS, c->heads, false};
    char w[64];
    if (c->q_lora) {
        add(t, NULL, MATRIX, WHOLE, matrix(c->q_lora, c->hidden), "layers.%lld.attn.q_a.weight", n);
        add(t, NULL, SCALE, WHOLE, vector(c->q_lora), "layers.%lld.attn.q_a_norm.weight", n);
        add(t, NULL, MATRIX, heads, matrix(q, c->q_lora), "layers.%lld.attn.q_b.weight", n);
    } else {
        add(t, NULL, MATRIX, heads, matrix(q, c->hidden), "layers.%lld.attn.q.weight", n);
    }
    add(t, NULL, MATRIX, WHOLE, matrix(c->kv_lora + c->rope_dim, c->hidden),
        "layers.%lld.attn.kv_a.weight", n);
    add(t, NULL, SCALE, WHOLE, vector(c->kv_lora), "layers.%lld.attn.kv_a_norm.weight", n);
    snprintf(w, sizeof(w), "layers.%lld.attn.kv_b.weight", n);
    add(t, w, MATRIX, heads, matrix(k, c->kv_lora), "layers.%lld.attn.k_b.weight", n);
    add(t, w, MATRIX, heads, matrix(v, c->kv_lora), "layers.%lld.attn.v_b.weight", n);
    add_outputs(t, v, l);
}

/* What is added to scores by distance: of layer l, or outside of all. */
static void add_relative(struct table *t, int64_t l)
{
    const lf_model_config *c = t->c;
    const struct shape table = matrix(c->relative_buckets, c->heads);
    const struct cut heads = {LF_SHARD_COLS, c->heads, false};
    if (c->position != LF_POS_RELATIVE || c->relative_each_layer != (l != LF_DEC_OUTSIDE))
        return;
    if (l == LF_DEC_OUTSIDE)
        add(t, NULL, DISTANCES, heads, table, "relative.weight");
    else
        add(t, NULL, DISTANCES, heads, table, "layers.%lld.attn.relative.weight", (long long)l);
}

/* Attention of a decoder's layer to what the encoder gave. */
static void add_cross(struct table *t, int64_t l)
{
    const lf_model_config *c = t->c;
    const long long n = (long long)l;
    const int64_t q = c->heads * c->head_dim;
    const struct cut heads = {LF_SHARD_ROWS, c->heads, false},
                     outputs = {LF_SHARD_COLS, c->heads, false};
    char w[64], b[64];
    snprintf(w, sizeof(w), "layers.%lld.cross.kv.weight", n);
    snprintf(b, sizeof(b), "layers.%lld.cross.kv.bias", n);
    add(t, NULL, QUERY, heads, matrix(q, c->hidden), "layers.%lld.cross.q.weight", n);
    if (c->qkv_bias)
        add(t, NULL, BIAS, heads, vector(q), "layers.%lld.cross.q.bias", n);
    add(t, w, MATRIX, heads, matrix(q, c->hidden), "layers.%lld.cross.k.weight", n);
    add(t, w, MATRIX, heads, matrix(q, c->hidden), "layers.%lld.cross.v.weight", n);
    if (c->qkv_bias) {
        add(t, b, BIAS, heads, vector(q), "layers.%lld.cross.k.bias", n);
        add(t, b, BIAS, heads, vector(q), "layers.%lld.cross.v.bias", n);
    }
    add(t, NULL, RESIDUAL_OUT, outputs, matrix(c->hidden, q), "layers.%lld.cross.o.weight", n);
    if (c->out_bias)
        add(t, NULL, BIAS, WHOLE, vector(c->hidden), "layers.%lld.cross.o.bias", n);
}

static void add_attention(struct table *t, int64_t l)
{
    const lf_model_config *c = t->c;
    long long n = (long long)l;
    const int64_t d = lf_model_layer_head_dim(c, l), groups = lf_model_layer_kv_heads(c, l),
                  q = c->heads * d, kv = groups * d;
    const struct cut queries = {LF_SHARD_ROWS, c->heads, false},
                     keys = {LF_SHARD_ROWS, groups, true};
    char w[64], b[64];
    snprintf(w, sizeof(w), "layers.%lld.attn.qkv.weight", n);
    snprintf(b, sizeof(b), "layers.%lld.attn.qkv.bias", n);
    add(t, w, QUERY, queries, matrix(q, c->hidden), "layers.%lld.attn.q.weight", n);
    const bool own = lf_model_layer_keys(c, l) == l,
               values = own && lf_model_layer_has_values(c, l);
    if (own)
        add(t, w, MATRIX, keys, matrix(kv, c->hidden), "layers.%lld.attn.k.weight", n);
    if (values)
        add(t, w, MATRIX, keys, matrix(kv, c->hidden), "layers.%lld.attn.v.weight", n);
    if (c->attn_gate)
        add(t, w, MATRIX, queries, matrix(q, c->hidden), "layers.%lld.attn.gate.weight", n);
    if (c->qkv_bias)
        add(t, b, BIAS, queries, vector(q), "layers.%lld.attn.q.bias", n);
    if (c->qkv_bias && own)
        add(t, b, BIAS, keys, vector(kv), "layers.%lld.attn.k.bias", n);
    if (c->qkv_bias && values)
        add(t, b, BIAS, keys, vector(kv), "layers.%lld.attn.v.bias", n);
    if (c->qkv_bias && c->attn_gate)
        add(t, b, BIAS, queries, vector(q), "layers.%lld.attn.gate.bias", n);
    if (c->qk_norm) {
        const bool all = c->qk_norm_all_heads;
        add(t, NULL, SCALE, all ? queries : WHOLE, vector(all ? q : d),
            "layers.%lld.attn.q_norm.weight", n);
        if (own)
            add(t, NULL, SCALE, all ? keys : WHOLE, vector(all ? kv : d),
                "layers.%lld.attn.k_norm.weight", n);
    }
    add_relative(t, l);
    add_outputs(t, q, l);
}

/* The numbers of xIELU begin as in the paper: the factor of the quadratic and of the exponential
 * side is 0.8, and beta is a part of the latter. beta and eps stay. */
static void add_xielu(struct table *t, int64_t l)
{
    const double beta = 0.5, factor = 0.8;
    const struct {
        const char *name;
        double value;
        bool frozen;
    } numbers[] = {{"positive", log(expm1(factor)), false},
                   {"negative", log(expm1(factor - beta)), false},
                   {"beta", beta, true},
                   {"eps", -1e-6, true}};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
        char name[64];
        snprintf(name, sizeof(name), "layers.%lld.mlp.act.%s", (long long)l, numbers[i].name);
        struct lf_param_desc d = {.name = name,
                                  .ndim = 1,
                                  .dims = {1},
                                  .init = LF_INIT_VALUE,
                                  .init_std = (float)numbers[i].value,
                                  .frozen = numbers[i].frozen};
        declare(t, GIVEN, &d);
    }
}

static void add_mlp(struct table *t, int64_t l)
{
    const lf_model_config *c = t->c;
    const int64_t ffn = lf_model_layer_ffn(c, l);
    long long n = (long long)l;
    bool glu = c->mlp == LF_MLP_GLU;
    char w[64], b[64];
    snprintf(w, sizeof(w), "layers.%lld.mlp.gate_up.weight", n);
    snprintf(b, sizeof(b), "layers.%lld.mlp.gate_up.bias", n);
    if (glu)
        add(t, w, MATRIX, ROWS, matrix(ffn, c->hidden), "layers.%lld.mlp.gate.weight", n);
    add(t, glu ? w : NULL, MATRIX, ROWS, matrix(ffn, c->hidden), "layers.%lld.mlp.up.weight", n);
    if (glu && c->mlp_bias)
        add(t, b, BIAS, ROWS, vector(ffn), "layers.%lld.mlp.gate.bias", n);
    if (c->mlp_bias)
        add(t, glu ? b : NULL, BIAS, ROWS, vector(ffn), "layers.%lld.mlp.up.bias", n);
    if (c->activation == LF_MODEL_XIELU)
        add_xielu(t, l);
    add(t, NULL, RESIDUAL_OUT, COLS, matrix(c->hidden, ffn), "layers.%lld.mlp.down.weight", n);
    if (c->mlp_bias)
        add(t, NULL, BIAS, WHOLE, vector(c->hidden), "layers.%lld.mlp.down.bias", n);
}

/* Each expert, and what projects to and from what they read and give. */
static void add_experts(struct table *t, int64_t l)
{
    const lf_model_config *c = t->c;
    const long long n = (long long)l;
    const bool glu = c->mlp == LF_MLP_GLU, latent = c->expert_latent > 0;
    const int64_t width = latent ? c->expert_latent : c->hidden;
    if (latent)
        add(t, NULL, MATRIX, WHOLE, matrix(width, c->hidden), "layers.%lld.moe.latent_in.weight",
            n);
    if (glu)
        add_expert(t, MATRIX, ROWS, matrix(c->expert_ffn, width), "gate", l);
    add_expert(t, MATRIX, ROWS, matrix(c->expert_ffn, width), "up", l);
    add_expert(t, latent ? MATRIX : RESIDUAL_OUT, COLS, matrix(width, c->expert_ffn), "down", l);
    if (c->expert_bias && glu)
        add_expert_bias(t, COLS, c->expert_ffn, "gate", l);
    if (c->expert_bias) {
        add_expert_bias(t, COLS, c->expert_ffn, "up", l);
        add_expert_bias(t, WHOLE, width, "down", l);
    }
    if (latent)
        add(t, NULL, RESIDUAL_OUT, WHOLE, matrix(c->hidden, width),
            "layers.%lld.moe.latent_out.weight", n);
}

/* Router, experts, shared expert. */
static void add_moe(struct table *t, int64_t l)
{
    const lf_model_config *c = t->c;
    const long long n = (long long)l;
    const bool glu = c->mlp == LF_MLP_GLU;
    char name[64];
    add(t, NULL, MATRIX, WHOLE, matrix(c->experts, c->hidden), "layers.%lld.moe.router.weight", n);
    if (c->router_linear_bias)
        add(t, NULL, BIAS, WHOLE, vector(c->experts), "layers.%lld.moe.router.logit_bias", n);
    if (c->router_bias) {
        snprintf(name, sizeof(name), "layers.%lld.moe.router.bias", n);
        struct lf_param_desc d = {.name = name,
                                  .ndim = 1,
                                  .dims = {c->experts},
                                  .balance_rate = (float)c->router_bias_rate,
                                  .frozen = !(c->router_bias_rate > 0)};
        declare(t, BIAS, &d);
    }
    if (c->router_norm)
        add(t, NULL, PLAIN_SCALE, WHOLE, vector(c->hidden), "layers.%lld.moe.router.norm.weight",
            n);
    if (c->expert_gain)
        add(t, NULL, PLAIN_SCALE, WHOLE, vector(c->experts), "layers.%lld.moe.router.gain", n);
    add_experts(t, l);
    if (c->shared_ffn) {
        snprintf(name, sizeof(name), "layers.%lld.moe.shared.gate_up.weight", n);
        if (glu)
            add(t, name, MATRIX, ROWS, matrix(c->shared_ffn, c->hidden),
                "layers.%lld.moe.shared.gate.weight", n);
        add(t, glu ? name : NULL, MATRIX, ROWS, matrix(c->shared_ffn, c->hidden),
            "layers.%lld.moe.shared.up.weight", n);
        add(t, NULL, RESIDUAL_OUT, COLS, matrix(c->hidden, c->shared_ffn),
            "layers.%lld.moe.shared.down.weight", n);
    }
    if (c->shared_gate)
        add(t, NULL, MATRIX, WHOLE, matrix(1, c->hidden), "layers.%lld.moe.shared_gate.weight", n);
}

static void add_layer_norm(struct table *t, int64_t l, const char *part)
{
    char name[64];
    snprintf(name, sizeof(name), "layers.%lld.%s", (long long)l, part);
    add_norm(t, name);
}

/* Its convolution: of queries and keys by their heads, of values by theirs. */
static void add_taps(struct table *t, int64_t l, const struct cut cuts[2], const int64_t widths[2])
{
    static const char *const parts[] = {"q", "k", "v"};
    const lf_model_config *c = t->c;
    char group[64];
    for (int i = 0; i < 3; i++) {
        snprintf(group, sizeof group, "layers.%lld.scan.conv.weight", (long long)l);
        add(t, c->scan_scales.n ? NULL : group, TAPS, cuts[i == 2],
            matrix(widths[i == 2], c->scan_conv), "layers.%lld.scan.conv_%s.weight", (long long)l,
            parts[i]);
    }
    for (int i = 0; i < 3 && c->scan_conv_bias; i++) {
        snprintf(group, sizeof group, "layers.%lld.scan.conv.bias", (long long)l);
        add(t, c->scan_scales.n ? NULL : group, BIAS, cuts[i == 2], vector(widths[i == 2]),
            "layers.%lld.scan.conv_%s.bias", (long long)l, parts[i]);
    }
}

/* The projections of a scan: members of scan.in in the order in which mixer.c slices them. */
static void add_scan_in(struct table *t, int64_t l, bool bias, const struct cut cuts[2])
{
    const lf_model_config *c = t->c;
    const struct lf_dec_scan_widths w = lf_dec_scan_widths(c, l);
    const struct {
        const char *part;
        int64_t width;
        bool keys;
    } rows[] = {{"q", w.keys, true},  {"k", w.keys, true},   {"v", w.values, false},
                {"z", w.gate, false}, {"a", w.steps, false}, {"b", w.strengths, false}};
    char group[64];
    snprintf(group, sizeof group, "layers.%lld.scan.in.%s", (long long)l, bias ? "bias" : "weight");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].width && bias)
            add(t, group, BIAS, cuts[!rows[i].keys], vector(rows[i].width),
                "layers.%lld.scan.%s.bias", (long long)l, rows[i].part);
        else if (rows[i].width)
            add(t, group, MATRIX, cuts[!rows[i].keys], matrix(rows[i].width, c->hidden),
                "layers.%lld.scan.%s.weight", (long long)l, rows[i].part);
}

/* Kimi Delta Attention: decays and gate are made through scan_rank channels. */
static void add_scan_ranks(struct table *t, int64_t l, struct cut heads)
{
    const lf_model_config *c = t->c;
    const int64_t decays = c->scan_heads * c->scan_key_dim,
                  gate = c->scan_heads * c->scan_value_dim, r = c->scan_rank;
    const long long n = (long long)l;
    char w[64];
    snprintf(w, sizeof w, "layers.%lld.scan.fg_a.weight", n);
    add(t, w, MATRIX, WHOLE, matrix(r, c->hidden), "layers.%lld.scan.f_a.weight", n);
    add(t, w, MATRIX, WHOLE, matrix(r, c->hidden), "layers.%lld.scan.g_a.weight", n);
    add(t, NULL, MATRIX, heads, matrix(decays, r), "layers.%lld.scan.f_b.weight", n);
    add(t, NULL, MATRIX, heads, matrix(gate, r), "layers.%lld.scan.g_b.weight", n);
}

/* A scan (mixer.c). Queries and keys are divided by their heads, all else by those of values. */
static void add_scan(struct table *t, int64_t l)
{
    const lf_model_config *c = t->c;
    const char m = lf_model_layer_mixer(c, l);
    const long long n = (long long)l;
    const struct lf_dec_scan_widths w = lf_dec_scan_widths(c, l);
    const struct cut cuts[] = {{LF_SHARD_ROWS, c->scan_groups, true},
                               {LF_SHARD_ROWS, c->scan_heads, false}},
                     out = {LF_SHARD_COLS, c->scan_heads, false};
    add_scan_in(t, l, false, cuts);
    if (c->scan_bias)
        add_scan_in(t, l, true, cuts);
    if (m == LF_MIXER_KDA)
        add_scan_ranks(t, l, cuts[1]);
    if (c->scan_conv)
        add_taps(t, l, cuts, (const int64_t[]){w.keys, w.values});
    if (m != LF_MIXER_LIGHTNING) {
        const int64_t decays = c->scan_heads * (m == LF_MIXER_KDA ? c->scan_key_dim : 1);
        add(t, NULL, DECAY, cuts[1], vector(c->scan_heads), "layers.%lld.scan.a_log", n);
        add(t, NULL, STEP, cuts[1], vector(decays), "layers.%lld.scan.dt_bias", n);
    }
    if (m == LF_MIXER_SSD || m == LF_MIXER_BOTH)
        add(t, NULL, PLAIN_SCALE, cuts[1], vector(c->scan_heads), "layers.%lld.scan.skip", n);
    if (c->scan_norm && c->scan_norm_parts)
        add(t, NULL, PLAIN_SCALE, cuts[1], vector(w.values), "layers.%lld.scan.norm.weight", n);
    else if (c->scan_norm)
        add(t, NULL, PLAIN_SCALE, WHOLE, vector(c->scan_value_dim), "layers.%lld.scan.norm.weight",
            n);
    add(t, NULL, RESIDUAL_OUT, out, matrix(c->hidden, w.values), "layers.%lld.scan.o.weight", n);
    if (c->scan_bias)
        add(t, NULL, BIAS, WHOLE, vector(c->hidden), "layers.%lld.scan.o.bias", n);
}

/* A short convolution (mixer.c). */
static void add_short_conv(struct table *t, int64_t l)
{
    static const char *const parts[] = {"b", "c", "x"};
    const lf_model_config *c = t->c;
    const long long n = (long long)l;
    char w[64], b[64];
    snprintf(w, sizeof w, "layers.%lld.conv.in.weight", n);
    snprintf(b, sizeof b, "layers.%lld.conv.in.bias", n);
    for (int i = 0; i < 3; i++)
        add(t, w, MATRIX, ROWS, matrix(c->hidden, c->hidden), "layers.%lld.conv.%s.weight", n,
            parts[i]);
    for (int i = 0; i < 3 && c->scan_bias; i++)
        add(t, b, BIAS, ROWS, vector(c->hidden), "layers.%lld.conv.%s.bias", n, parts[i]);
    add(t, NULL, TAPS, ROWS, matrix(c->hidden, c->scan_conv), "layers.%lld.conv.filter.weight", n);
    if (c->scan_conv_bias)
        add(t, NULL, BIAS, ROWS, vector(c->hidden), "layers.%lld.conv.filter.bias", n);
    add(t, NULL, RESIDUAL_OUT, COLS, matrix(c->hidden, c->hidden), "layers.%lld.conv.o.weight", n);
    if (c->scan_bias)
        add(t, NULL, BIAS, WHOLE, vector(c->hidden), "layers.%lld.conv.o.bias", n);
}

/* What predicts and corrects the streams of a layer. */
static void add_altup(struct table *t, int64_t l)
{
    const lf_model_config *c = t->c;
    const int64_t streams = c->altup_streams;
    const long long n = (long long)l;
    add_layer_norm(t, l, "altup.norm");
    add(t, NULL, MATRIX, WHOLE, matrix(streams, c->hidden), "layers.%lld.altup.router.weight", n);
    add(t, NULL, MATRIX, WHOLE, matrix(streams * streams, streams),
        "layers.%lld.altup.predict.weight", n);
    add(t, NULL, MATRIX, WHOLE, matrix(streams, streams), "layers.%lld.altup.correct.weight", n);
    if (c->per_layer_dim)
        add(t, NULL, PLAIN_SCALE, WHOLE, vector(c->hidden), "layers.%lld.altup.gain", n);
}

/* A low-rank branch beside the mixer. */
static void add_laurel(struct table *t, int64_t l)
{
    const lf_model_config *c = t->c;
    add(t, NULL, MATRIX, WHOLE, matrix(c->laurel_rank, c->hidden), "layers.%lld.laurel.in.weight",
        (long long)l);
    add(t, NULL, RESIDUAL_OUT, WHOLE, matrix(c->hidden, c->laurel_rank),
        "layers.%lld.laurel.out.weight", (long long)l);
    add_layer_norm(t, l, "laurel.norm");
}

/* What stands behind the branches of a layer: per_layer.c, and a number that multiplies all. */
static void add_layer_end(struct table *t, int64_t l)
{
    const lf_model_config *c = t->c;
    const long long n = (long long)l;
    if (c->altup_streams)
        add_altup(t, l);
    if (c->per_layer_dim) {
        add(t, NULL, MATRIX, WHOLE, matrix(c->per_layer_dim, c->hidden),
            "layers.%lld.per_layer.in.weight", n);
        add(t, NULL, RESIDUAL_OUT, WHOLE, matrix(c->hidden, c->per_layer_dim),
            "layers.%lld.per_layer.out.weight", n);
        add_layer_norm(t, l, "per_layer.norm");
    }
    if (c->layer_gain) {
        char name[64];
        snprintf(name, sizeof(name), "layers.%lld.gain", n);
        struct lf_param_desc d = {
            .name = name, .ndim = 1, .dims = {1}, .init = LF_INIT_ONE, .frozen = true};
        declare(t, GIVEN, &d);
    }
}

/* The MLP of a layer, its experts, or both with norms of their own. */
static void add_mlps(struct table *t, int64_t l)
{
    const bool both = lf_model_layer_mlp(t->c, l) == LF_MLP_BOTH;
    if (lf_model_layer_dense(t->c, l))
        add_mlp(t, l);
    if (both)
        add_layer_norm(t, l, "mlp.out_norm");
    if (both)
        add_layer_norm(t, l, "moe.norm");
    if (lf_model_layer_moe(t->c, l))
        add_moe(t, l);
    if (both)
        add_layer_norm(t, l, "moe.out_norm");
}

static void add_layer(struct table *t, int64_t l)
{
    const bool sandwich = t->c->block == LF_BLOCK_SANDWICH;
    const char mixer = lf_model_layer_mixer(t->c, l), mlp = lf_model_layer_mlp(t->c, l);
    if (mixer != LF_MIXER_NONE) {
        if (l > 0 || t->c->first_norm)
            add_layer_norm(t, l, "attn_norm");
        if (lf_model_layer_attends(t->c, l) && t->c->kv_lora)
            add_latent(t, l);
        else if (lf_model_layer_attends(t->c, l))
            add_attention(t, l);
        if (lf_model_layer_scans(t->c, l))
            add_scan(t, l);
        if (mixer == LF_MIXER_CONV)
            add_short_conv(t, l);
        if (sandwich)
            add_layer_norm(t, l, "attn_post_norm");
        if (t->c->laurel_rank)
            add_laurel(t, l);
    }
    if (lf_model_is_seq2seq(t->c)) {
        add_layer_norm(t, l, "cross_norm");
        add_cross(t, l);
    }
    if (mlp != LF_MLP_NONE) {
        if (t->c->parallel_block != LF_PARALLEL_ONE_NORM)
            add_layer_norm(t, l, "mlp_norm");
        add_mlps(t, l);
        if (sandwich)
            add_layer_norm(t, l, "mlp_post_norm");
    }
    add_layer_end(t, l);
}

/* A head of multi-token prediction. */
static void add_mtp(struct table *t, int64_t l)
{
    add_layer_norm(t, l, "mtp.embed_norm");
    add_layer_norm(t, l, "mtp.hidden_norm");
    add(t, NULL, MATRIX, WHOLE, matrix(t->c->hidden, 2 * t->c->hidden),
        "layers.%lld.mtp.join.weight", (long long)l);
    add_layer(t, l);
    if (t->c->mtp_norm == LF_MTP_NORM_OWN)
        add_layer_norm(t, l, "mtp.final_norm");
}

/* The spread of its initial values is a choice of its own: score_init of config.h. */
static void add_score(struct table *t)
{
    const int64_t width = lf_model_embed_width(t->c);
    const double by[] = {1 / sqrt((double)width + 1), 1 / ((double)width + 1), t->c->init_std, 0};
    struct lf_param_desc d = {.name = "score.weight",
                              .ndim = 2,
                              .dims = {1, width},
                              .init = LF_INIT_NORMAL,
                              .init_std = (float)by[t->c->score_init],
                              .decay = true};
    int rc = t->rc ? t->rc : lf_pstore_add(t->ps, &d, t->err);
    if (rc < 0)
        t->rc = rc;
}

static void add_transform(struct table *t)
{
    const lf_model_config *c = t->c;
    if (!lf_model_transforms(c))
        return;
    const int64_t width = lf_model_transform_width(c);
    add(t, NULL, MATRIX, WHOLE, matrix(width, c->hidden), "head_in.weight");
    if (c->head_transform_bias)
        add(t, NULL, BIAS, WHOLE, vector(width), "head_in.bias");
    add_wide_norm(t, "head_norm", width);
}

/* What stands before the last matrix of labels, and of pairs of texts. */
static void add_pooler(struct table *t)
{
    const int64_t width = lf_model_top_width(t->c);
    add(t, NULL, MATRIX, WHOLE, matrix(width, width), "label_in.weight");
    add(t, NULL, BIAS, WHOLE, vector(width), "label_in.bias");
}

/* What labels are read by (labels.c). */
static void add_labels(struct table *t)
{
    const lf_model_config *c = t->c;
    const int64_t width = lf_model_top_width(c);
    add_transform(t);
    if (lf_model_label_inner(c))
        add_pooler(t);
    add(t, NULL, MATRIX, WHOLE, matrix(c->labels, width), "labels.weight");
    if (c->label_bias)
        add(t, NULL, BIAS, WHOLE, vector(c->labels), "labels.bias");
}

static void add_head(struct table *t)
{
    const lf_model_config *c = t->c;
    add_transform(t);
    if (!c->tied_head)
        add(t, NULL, EMBEDDING, VOCABULARY, matrix(c->vocab, lf_model_embed_width(c)),
            "head.weight");
    t->frozen = lf_model_is_seq2seq(c); /* BART's is given, and trained by nobody */
    if (c->head_bias)
        add(t, NULL, BIAS, VOCABULARY, vector(c->vocab), "head.bias");
    t->frozen = false;
}

/* The pooler and what tells of pairs of texts (nsp.c). */
static void add_nsp(struct table *t)
{
    const int64_t width = lf_model_top_width(t->c);
    add_pooler(t);
    add(t, NULL, MATRIX, WHOLE, matrix(2, width), "nsp.weight");
    add(t, NULL, BIAS, WHOLE, vector(2), "nsp.bias");
}

/* What chunks have of a model. */
struct held {
    bool first, last;
    bool mtp; /* with heads that are trained, which read the embedding */
    const struct lf_decoder_chunk *chunk;
    int n;
};

/* Some of layers [from, to), as chunks count. */
static bool holds_some(const struct held *h, int64_t from, int64_t to)
{
    bool yes = false;
    for (int i = 0; i < h->n; i++)
        yes = yes || (h->chunk[i].begin < to && h->chunk[i].end > from &&
                      h->chunk[i].begin < h->chunk[i].end);
    return yes;
}

/* What stands between the embedding and the layers of a stack. */
static void add_below(struct table *t)
{
    const lf_model_config *c = t->c;
    const int64_t width = lf_model_bottom_width(c);
    if (c->position == LF_POS_LEARNED)
        add(t, NULL, MATRIX, WHOLE, matrix(c->max_positions + c->position_offset, width),
            "pos_embed.weight");
    if (c->token_types)
        add(t, NULL, MATRIX, WHOLE, matrix(c->token_types, width), "type_embed.weight");
    if (c->embed_norm)
        add_wide_norm(t, "embed_norm", width);
}

/* The encoder of an encoder-decoder, whose embedding is the decoder's. */
static void add_source(struct table *t, const lf_model_config *source, const struct held *h)
{
    const struct table whole = *t;
    bool ends = false;
    t->c = source;
    t->stack = "encoder.";
    if (h->first)
        add_below(t);
    if (holds_some(h, 0, source->layers))
        add_relative(t, LF_DEC_OUTSIDE);
    for (int64_t l = 0; l < source->layers; l++)
        if (holds_some(h, l, l + 1))
            add_layer(t, l);
    for (int i = 0; i < h->n; i++)
        ends = ends || lf_dec_ends_source(whole.c, &h->chunk[i]);
    if (source->final_norm && ends)
        add_norm(t, "final_norm");
    t->c = whole.c;
    t->stack = whole.stack;
}

/* Projections between the embedding and streams. */
static void add_streams(struct table *t, bool in)
{
    const lf_model_config *c = t->c;
    for (int64_t i = 1; i < c->altup_streams; i++)
        add(t, in ? "altup.in.weight" : NULL, MATRIX, WHOLE, matrix(c->hidden, c->hidden),
            "altup.%s.%lld.weight", in ? "in" : "out", (long long)i);
}

static void add_bottom(struct table *t, const struct held *h)
{
    const lf_model_config *c = t->c;
    const bool tied = (c->tied_head && c->output == LF_OUTPUT_TOKENS) || h->mtp;
    if (h->first || (h->last && tied))
        add(t, NULL, EMBEDDING, VOCABULARY, matrix(c->vocab, lf_model_embed_width(c)),
            "embed.weight");
    if (c->embed_dim && h->first)
        add(t, NULL, MATRIX, WHOLE, matrix(c->hidden, c->embed_dim), "embed_in.weight");
    if (c->embed_narrow && h->first)
        add(t, NULL, BIAS, WHOLE, vector(c->hidden), "embed_in.bias");
    if (c->embed_dim && !c->embed_narrow && h->last)
        add(t, NULL, MATRIX, WHOLE, matrix(c->embed_dim, c->hidden), "embed_out.weight");
    if (h->first)
        add_below(t);
    if (holds_some(h, c->encoder_layers, lf_model_depth(c)))
        add_relative(t, LF_DEC_OUTSIDE);
    if (c->per_layer_dim && h->first) {
        const int64_t all = c->layers * c->per_layer_dim,
                      rows = c->per_layer_vocab ? c->per_layer_vocab : c->vocab;
        add(t, NULL, MATRIX, VOCABULARY, matrix(rows, all), "per_layer.embed.weight");
        add(t, NULL, MATRIX, WHOLE, matrix(all, c->hidden), "per_layer.project.weight");
        add(t, NULL, SCALE, WHOLE, vector(c->per_layer_dim), "per_layer.norm.weight");
    }
    if (h->first)
        add_streams(t, true);
}

static void add_top(struct table *t)
{
    add_streams(t, false);
    if (t->c->final_norm)
        add_norm(t, "final_norm");
    if (t->c->output == LF_OUTPUT_SCORE)
        add_score(t);
    else if (t->c->output == LF_OUTPUT_LABELS)
        add_labels(t);
    else
        add_head(t);
}

/* An encoder and what restores pictures from it, with no text decoder. */
static int declare_restoring(const lf_decoder *d, lf_pstore *ps, lf_err *err)
{
    const int rc = lf_vision_declare(d->vision, ps, err);
    return rc != 0 ? rc : lf_mae_declare(&d->c, d->mae, ps, err);
}

/* An encoder and what tells classes from it. */
static int declare_classes(const lf_decoder *d, lf_pstore *ps, lf_err *err)
{
    const int rc = lf_vision_declare(d->vision, ps, err);
    return rc != 0 ? rc : lf_classes_declare(&d->c, ps, err);
}

int lf_decoder_declare_chunks(const lf_decoder *d, lf_pstore *ps,
                              const struct lf_decoder_chunk *chunks, int n, lf_err *err)
{
    const lf_model_config *c = &d->c;
    struct table t = {.ps = ps, .c = c, .stack = "", .err = err};
    struct held h = {.chunk = chunks, .n = n, .mtp = lf_decoder_mtp(d) > 0};
    t.rc = lf_dec_check_layout(c, lf_pstore_layout_of(ps), err);
    for (int i = 0; i < n && t.rc == 0; i++) {
        t.rc = lf_dec_check_chunk(c, &chunks[i], err);
        if (t.rc == 0 && chunks[i].first && chunks[i].end < c->vision.taps.n)
            t.rc =
                lf_fail(err, LF_ENOTSUP,
                        "vision.taps enter the first %lld layers, which a pipeline leaves in its "
                        "first stage; it has %lld",
                        (long long)c->vision.taps.n, (long long)chunks[i].end);
        h.first = h.first || chunks[i].first;
        h.last = h.last || chunks[i].last;
    }
    if (t.rc == 0 && lf_model_is_encoder(c))
        return lf_vision_declare(d->vision, ps, err);
    if (t.rc == 0 && lf_model_restores(c))
        return declare_restoring(d, ps, err);
    if (t.rc == 0 && lf_model_classifies(c))
        return declare_classes(d, ps, err);
    if (h.first && t.rc == 0)
        t.rc = lf_dec_declare_sight(d, ps, err);
    add_bottom(&t, &h);
    if (t.rc == 0 && lf_model_is_seq2seq(c))
        add_source(&t, &d->source, &h);
    for (int64_t l = 0; l < c->layers; l++)
        if (holds_some(&h, c->encoder_layers + l, c->encoder_layers + l + 1))
            add_layer(&t, l);
    if (h.last)
        add_top(&t);
    t.frozen = !lf_decoder_nsp(d);
    if (h.last && lf_model_tells_pairs(c))
        add_nsp(&t);
    t.frozen = !h.mtp;
    for (int64_t k = 0; h.last && k < c->mtp_layers; k++)
        add_mtp(&t, c->layers + k);
    return t.rc;
}

int lf_dec_declare_generator(const lf_decoder *d, lf_pstore *ps, lf_err *err)
{
    const lf_model_config *c = &d->c;
    struct table t = {.ps = ps, .c = c, .stack = LF_ELECTRA_STACK, .err = err};
    if (c->embed_dim) {
        add(&t, NULL, MATRIX, WHOLE, matrix(c->hidden, c->embed_dim), "embed_in.weight");
        add(&t, NULL, BIAS, WHOLE, vector(c->hidden), "embed_in.bias");
    }
    for (int64_t l = 0; l < c->layers; l++)
        add_layer(&t, l);
    add_top(&t);
    return t.rc;
}

int lf_decoder_declare(const lf_decoder *d, lf_pstore *ps, lf_err *err)
{
    const struct lf_decoder_chunk whole = lf_dec_whole(&d->c);
    return lf_decoder_declare_chunks(d, ps, &whole, 1, err);
}
