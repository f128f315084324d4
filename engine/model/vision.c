/* SPDX-License-Identifier: Apache-2.0
 *
 * The vision core: families, parameters, the graph. */
#include "engine/model/vision.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/graph/adapter.h"
#include "engine/model/vision_priv.h"

/* ---- families ---- */

/* All have biases in every linear layer, but for Pixtral, which has none, InternViT-6B, which has
 * none for queries, keys and values, and EVA, which has none for keys. */
#define LAYER(e) .norm = LF_NORM_LAYER, .norm_eps = e, .qkv_bias = true
#define RMS      .norm = LF_NORM_RMS, .norm_eps = 1e-6
#define MLP(a)   .mlp = LF_MLP_PLAIN, .activation = LF_ACT_##a, .bias = true
#define GATED(a) .mlp = LF_MLP_GLU, .activation = LF_ACT_##a
#define SWIGLU   GATED(SILU), .bias = true
#define ROPE     .rope = true, .rope_theta = 10000
#define SCALE(x) .layer_scale = true, .layer_scale_init = x
#define PATCH    .patch_bias = true
#define CLASS    .class_token = true
#define BARE     .bare_keys = true
#define DISTILL  .distill_token = true
#define SHIFTED  .shifted = true, .pre_norm = true, .final_norm = true
#define CONV     .pre_norm = true, .merge_norm = LF_MERGE_EACH, .merge_bias = true, .conv_taps = 7
#define INNER    .attn_inner_norm = true, .mlp_inner_norm = true

const char *const lf_vision_families[] = {
    "none",     "clip",       "siglip",   "internvit", "internvit-rms", "dinov2",  "dinov2-swiglu",
    "qwen2-vl", "qwen2.5-vl", "qwen3-vl", "idefics3",  "pixtral",       "vit-mae", "eva-clip",
    "eva02",    "siglip2",    "vit",      "deit",      "swin",          "swinv2",  "convnext",
    "resmlp",   NULL};
enum {
    NONE,
    CLIP,
    SIGLIP,
    INTERNVIT,
    INTERNVIT_RMS,
    DINOV2,
    DINOV2_SWIGLU,
    QWEN2,
    QWEN25,
    QWEN3,
    IDEFICS3,
    PIXTRAL,
    MAE,
    EVA,
    EVA02,
    SIGLIP2,
    VIT,
    DEIT,
    SWIN,
    SWINV2,
    CONVNEXT,
    RESMLP
};

static const lf_vision_config switches[] = {
    [NONE] = {0},
    [CLIP] = {LAYER(1e-5), MLP(GELU_QUICK), CLASS, .pre_norm = true, .final_norm = true},
    [SIGLIP] = {LAYER(1e-6), MLP(GELU_TANH), PATCH, .final_norm = true},
    [INTERNVIT] = {LAYER(1e-6), MLP(GELU), PATCH, CLASS, SCALE(0.1)},
    [INTERNVIT_RMS] = {RMS, MLP(GELU), PATCH, CLASS, SCALE(0.1), .qk_norm = true},
    [DINOV2] = {LAYER(1e-6), MLP(GELU), PATCH, CLASS, SCALE(1), .final_norm = true},
    [DINOV2_SWIGLU] = {LAYER(1e-6), SWIGLU, PATCH, CLASS, SCALE(1), .final_norm = true},
    [QWEN2] = {LAYER(1e-6), MLP(GELU_QUICK), ROPE},
    [QWEN25] = {RMS, SWIGLU, ROPE, .qkv_bias = true, .windows = true},
    [QWEN3] = {LAYER(1e-6), MLP(GELU_TANH), PATCH, ROPE},
    [SIGLIP2] = {LAYER(1e-6), MLP(GELU_TANH), PATCH, .final_norm = true, .smooth_positions = true},
    [IDEFICS3] = {LAYER(1e-6), MLP(GELU_TANH), PATCH, .final_norm = true, .buckets = true},
    [PIXTRAL] = {.norm = LF_NORM_RMS,
                 .norm_eps = 1e-5,
                 GATED(GELU),
                 ROPE,
                 .rope_own = true,
                 .pre_norm = true},
    [MAE] = {LAYER(1e-12), MLP(GELU), PATCH, CLASS, .final_norm = true, .fixed_positions = true},
    [EVA] = {LAYER(1e-6), MLP(GELU), PATCH, CLASS, BARE, .final_norm = true},
    [EVA02] = {LAYER(1e-6), SWIGLU, PATCH, CLASS, BARE, INNER, ROPE, .rope_interleaved = true,
               .final_norm = true},
    [VIT] = {LAYER(1e-12), MLP(GELU), PATCH, CLASS, .final_norm = true},
    [DEIT] = {LAYER(1e-12), MLP(GELU), PATCH, CLASS, DISTILL, .final_norm = true},
    [SWIN] = {LAYER(1e-5), MLP(GELU), PATCH, SHIFTED},
    [SWINV2] = {LAYER(1e-5), MLP(GELU), PATCH, SHIFTED, BARE, .cosine = true, .out_norm = true,
                .merge_norm = LF_MERGE_BEHIND},
    [CONVNEXT] = {.norm = LF_NORM_LAYER, .norm_eps = 1e-6, MLP(GELU), PATCH, SCALE(1e-6), CONV},
    [RESMLP] = {.norm = LF_NORM_LAYER,
                .norm_eps = 1e-6,
                .affine = true,
                .mix_patches = true,
                MLP(GELU),
                PATCH,
                SCALE(0.1),
                .final_norm = true},
};

void lf_vision_family(lf_vision_config *c, int family)
{
    *c = switches[family];
    c->family = family;
    c->init_std = 0.02;
    c->read_norm = c->final_norm;
}

int lf_vision_family_of(const char *name)
{
    for (int i = 1; lf_vision_families[i]; i++)
        if (strcmp(lf_vision_families[i], name) == 0)
            return i;
    return 0;
}

int64_t lf_vision_tokens(const lf_vision_config *c)
{
    return (int64_t)c->class_token + c->distill_token;
}

int64_t lf_vision_table_side(const lf_vision_config *c)
{
    const int64_t squares = c->positions - lf_vision_tokens(c);
    return squares > 0 ? (int64_t)sqrt((double)squares) : 0;
}

static bool reads_norm(const lf_vision_config *c)
{
    return c->final_norm && c->read_norm && lf_vision_read_layers(c) == c->layers &&
           !c->read_states.n;
}

int64_t lf_vision_width(const lf_vision_config *c)
{
    return c->hidden * (c->read_states.n ? c->read_states.n : 1);
}

/* ---- the object ---- */

struct table { /* of cosines or sines */
    const lf_vision *v;
    bool sin;
};

struct lf_vision {
    lf_vision_config c;
    char prefix[32], inputs[32]; /* of tensors, of inputs */
    int64_t sides;
    struct table table[2];
    struct lf_vision_tables *tables;
};

lf_vision *lf_vision_create(const lf_vision_config *c, const char *prefix, int64_t sides,
                            lf_err *err)
{
    lf_vision *v = NULL;
    if (lf_vision_check(c, err) == 0)
        v = lf_calloc(1, sizeof *v, err);
    if (!v)
        return NULL;
    v->tables = lf_vision_tables_create(err);
    if (!v->tables) {
        free(v);
        return NULL;
    }
    if (snprintf(v->prefix, sizeof v->prefix, "%s", prefix) >= (int)sizeof v->prefix) {
        lf_fail(err, LF_EINVAL, "the prefix %s is too long", prefix);
        lf_vision_destroy(v);
        return NULL;
    }
    memcpy(v->inputs, v->prefix, sizeof v->inputs);
    v->c = *c;
    v->sides = sides;
    for (int k = 0; k < 2; k++)
        v->table[k] = (struct table){v, k == 1};
    return v;
}

void lf_vision_destroy(lf_vision *v)
{
    if (v)
        lf_vision_tables_destroy(v->tables);
    free(v);
}

void lf_vision_share_inputs(lf_vision *v, const lf_vision *of)
{
    memcpy(v->inputs, of->inputs, sizeof v->inputs);
}

/* ---- parameters ---- */

struct params {
    const lf_vision *v;
    lf_pstore *ps;
    bool unread; /* kept for export, but frozen */
    struct lf_vision_stage t;
    lf_err *err;
    int rc;
};
/* TABLE: of distances, which do not decay. */
enum kind { MATRIX, GAIN, BIAS, LAYER_SCALE, SINCOS, TABLE, HEADS };
struct shape {
    int64_t rows, cols; /* cols 0: a vector */
};

/* rule: how ranks divide it. */
static void add(struct params *t, enum kind kind, struct shape shape, enum lf_shard_rule rule,
                const char *group, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
static void add(struct params *t, enum kind kind, struct shape shape, enum lf_shard_rule rule,
                const char *group, const char *fmt, ...)
{
    char name[128], whole[160], in_group[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    snprintf(whole, sizeof whole, "%s%s", t->v->prefix, name);
    snprintf(in_group, sizeof in_group, "%s%s", t->v->prefix, group ? group : "");
    const bool heads = strstr(name, ".attn.") && rule != LF_SHARD_NONE;
    struct lf_param_desc d = {.name = whole,
                              .group = group ? in_group : NULL,
                              .ndim = shape.cols ? 2 : 1,
                              .dims = {shape.rows, shape.cols},
                              .frozen = t->unread || kind == SINCOS,
                              .shard = rule,
                              .shard_parts = heads ? t->t.heads : 0,
                              .decay = kind == MATRIX};
    d.init = kind == MATRIX || kind == TABLE        ? LF_INIT_NORMAL
             : kind == LAYER_SCALE || kind == HEADS ? LF_INIT_VALUE
             : kind == SINCOS                       ? LF_INIT_SINCOS
             : kind == GAIN                         ? LF_INIT_ONE
                                                    : LF_INIT_ZERO;
    d.init_std = (float)(kind == LAYER_SCALE ? t->v->c.layer_scale_init
                         : kind == HEADS     ? log(10)
                                             : t->v->c.init_std);
    const int rc = t->rc ? t->rc : lf_pstore_add(t->ps, &d, t->err);
    t->rc = rc < 0 ? rc : 0;
}

static void add_norm_of(struct params *t, const char *name, int64_t width, enum lf_shard_rule rule)
{
    add(t, GAIN, (struct shape){width, 0}, rule, NULL, "%s.weight", name);
    if (t->v->c.norm == LF_NORM_LAYER)
        add(t, BIAS, (struct shape){width, 0}, rule, NULL, "%s.bias", name);
}

static void add_norm(struct params *t, const char *name)
{
    add_norm_of(t, name, t->t.width, LF_SHARD_NONE);
}

/* What scores get for how far a key is; with cosine, what they are multiplied by too. */
static void add_distances(struct params *t, long long l)
{
    const lf_vision_config *c = &t->v->c;
    const int64_t w = lf_window_of(c, lf_vision_stage_at(c, l)), n = 2 * w - 1;
    if (c->cosine) {
        add(t, TABLE, (struct shape){LF_VISION_DISTANCES, 2}, LF_SHARD_NONE, NULL,
            "layers.%lld.attn.distances.up.weight", l);
        add(t, BIAS, (struct shape){LF_VISION_DISTANCES, 0}, LF_SHARD_NONE, NULL,
            "layers.%lld.attn.distances.up.bias", l);
        add(t, TABLE, (struct shape){t->t.heads, LF_VISION_DISTANCES}, LF_SHARD_ROWS, NULL,
            "layers.%lld.attn.distances.down.weight", l);
        add(t, HEADS, (struct shape){t->t.heads, 1}, LF_SHARD_ROWS, NULL,
            "layers.%lld.attn.temperature.weight", l);
    } else {
        add(t, TABLE, (struct shape){n * n, t->t.heads}, LF_SHARD_COLS, NULL,
            "layers.%lld.attn.distances.weight", l);
    }
}

static void add_attention(struct params *t, long long l)
{
    const lf_vision_config *c = &t->v->c;
    const int64_t C = t->t.width;
    static const char part[] = "qkv";
    char group[64];
    for (int bias = 0; bias < 1 + c->qkv_bias; bias++) {
        snprintf(group, sizeof group, "layers.%lld.attn.qkv.%s", l, bias ? "bias" : "weight");
        for (int k = 0; k < 3; k++)
            if (!bias || !c->bare_keys || part[k] != 'k')
                add(t, bias ? BIAS : MATRIX, (struct shape){C, bias ? 0 : C}, LF_SHARD_ROWS,
                    c->bare_keys ? NULL : group, "layers.%lld.attn.%c.%s", l, part[k],
                    bias ? "bias" : "weight");
    }
    for (int k = 0; k < 2 * c->qk_norm; k++)
        add(t, GAIN, (struct shape){C, 0}, LF_SHARD_ROWS, NULL, "layers.%lld.attn.%c_norm.weight",
            l, part[k]);
    snprintf(group, sizeof group, "layers.%lld.attn.inner_norm", l);
    if (c->attn_inner_norm)
        add_norm_of(t, group, C, LF_SHARD_ROWS);
    if (c->shifted)
        add_distances(t, l);
    add(t, MATRIX, (struct shape){C, C}, LF_SHARD_COLS, NULL, "layers.%lld.attn.o.weight", l);
    if (c->bias)
        add(t, BIAS, (struct shape){C, 0}, LF_SHARD_NONE, NULL, "layers.%lld.attn.o.bias", l);
}

static void add_mlp(struct params *t, long long l)
{
    const lf_vision_config *c = &t->v->c;
    const bool glu = c->mlp == LF_MLP_GLU;
    char group[64];
    for (int bias = 0; bias < 1 + c->bias; bias++)
        for (int up = !glu; up < 2; up++) {
            const char *what = bias ? "bias" : "weight";
            snprintf(group, sizeof group, "layers.%lld.mlp.gate_up.%s", l, what);
            add(t, bias ? BIAS : MATRIX, (struct shape){t->t.ffn, bias ? 0 : t->t.width},
                LF_SHARD_ROWS, glu ? group : NULL, "layers.%lld.mlp.%s.%s", l, up ? "up" : "gate",
                what);
        }
    snprintf(group, sizeof group, "layers.%lld.mlp.inner_norm", l);
    if (c->mlp_inner_norm)
        add_norm_of(t, group, t->t.ffn, LF_SHARD_ROWS);
    add(t, MATRIX, (struct shape){t->t.width, t->t.ffn}, LF_SHARD_COLS, NULL,
        "layers.%lld.mlp.down.weight", l);
    if (c->bias)
        add(t, BIAS, (struct shape){t->t.width, 0}, LF_SHARD_NONE, NULL,
            "layers.%lld.mlp.down.bias", l);
}

/* K x K numbers of each channel. */
static void add_conv(struct params *t, long long l)
{
    const int64_t C = t->t.width, K = t->v->c.conv_taps;
    add(t, MATRIX, (struct shape){C, K * K}, LF_SHARD_NONE, NULL, "layers.%lld.conv.weight", l);
    add(t, BIAS, (struct shape){C, 0}, LF_SHARD_NONE, NULL, "layers.%lld.conv.bias", l);
}

/* A number for each patch from each one, and a bias of each. */
static void add_mix(struct params *t, long long l)
{
    const int64_t N = t->v->c.grid * t->v->c.grid;
    add(t, MATRIX, (struct shape){N, N}, LF_SHARD_NONE, NULL, "layers.%lld.mix.weight", l);
    add(t, BIAS, (struct shape){N, 0}, LF_SHARD_NONE, NULL, "layers.%lld.mix.bias", l);
}

static void add_branch(struct params *t, long long l, const char *branch)
{
    char name[64];
    snprintf(name, sizeof name, "layers.%lld.%s_norm", l, branch);
    add_norm(t, name);
    if (strcmp(branch, "attn") == 0 && t->v->c.mix_patches)
        add_mix(t, l);
    else if (strcmp(branch, "attn") == 0)
        add_attention(t, l);
    else
        add_mlp(t, l);
    if (t->v->c.layer_scale)
        add(t, LAYER_SCALE, (struct shape){t->t.width, 0}, LF_SHARD_NONE, NULL,
            "layers.%lld.%s_scale", l, branch);
}

/* From the stage of t to the next one: a part of the last layer before it. */
static void add_merge(struct params *t, int64_t s)
{
    const lf_vision_config *c = &t->v->c;
    const long long l = (long long)(t->t.first + t->t.layers - 1);
    const int64_t C = t->t.width, next = lf_vision_stage_of(c, s + 1).width;
    char name[64];
    snprintf(name, sizeof name, "layers.%lld.merge_norm", l);
    add_norm_of(t, name,
                c->merge_norm == LF_MERGE_TOGETHER ? 4 * C
                : c->merge_norm == LF_MERGE_BEHIND ? next
                                                   : C,
                LF_SHARD_NONE);
    add(t, MATRIX, (struct shape){next, 4 * C}, LF_SHARD_NONE, NULL, "layers.%lld.merge.weight", l);
    if (c->merge_bias)
        add(t, BIAS, (struct shape){next, 0}, LF_SHARD_NONE, NULL, "layers.%lld.merge.bias", l);
}

int lf_vision_declare_layers(const lf_vision *v, lf_pstore *ps, lf_err *err)
{
    struct params t = {.v = v, .ps = ps, .err = err};
    const lf_vision_config *c = &v->c;
    for (int64_t l = 0; l < c->layers; l++) {
        const int64_t s = lf_vision_stage_at(c, l);
        t.t = lf_vision_stage_of(c, s);
        t.unread = l >= lf_vision_read_layers(c);
        if (c->conv_taps)
            add_conv(&t, (long long)l);
        else
            add_branch(&t, (long long)l, "attn");
        add_branch(&t, (long long)l, "mlp");
        if (l + 1 == t.t.first + t.t.layers && s + 1 < lf_vision_stages(c))
            add_merge(&t, s);
    }
    t.unread = !reads_norm(c);
    if (c->final_norm)
        add_norm(&t, "final_norm");
    return t.rc;
}

int lf_vision_declare(const lf_vision *v, lf_pstore *ps, lf_err *err)
{
    const lf_vision_config *c = &v->c;
    struct params t = {.v = v, .ps = ps, .t = lf_vision_stage_of(c, 0), .err = err};
    const int64_t C = t.t.width;
    add(&t, MATRIX, (struct shape){C, c->patch_dim}, LF_SHARD_NONE, NULL, "patch_embed.weight");
    if (c->patch_bias)
        add(&t, BIAS, (struct shape){C, 0}, LF_SHARD_NONE, NULL, "patch_embed.bias");
    if (c->class_token)
        add(&t, MATRIX, (struct shape){1, C}, LF_SHARD_NONE, NULL, "class_token.weight");
    if (c->distill_token)
        add(&t, MATRIX, (struct shape){1, C}, LF_SHARD_NONE, NULL, "distill_token.weight");
    if (c->positions)
        add(&t, c->fixed_positions ? SINCOS : MATRIX, (struct shape){c->positions, C},
            LF_SHARD_NONE, NULL, "pos_embed.weight");
    if (c->pre_norm)
        add_norm(&t, "pre_norm");
    return t.rc != 0 ? t.rc : lf_vision_declare_layers(v, ps, err);
}

/* Of a layer of a stage, and of what leads from it to the next. */
static int64_t layer_params(const lf_vision_config *c, int64_t s)
{
    const struct lf_vision_stage t = lf_vision_stage_of(c, s);
    const int64_t C = t.width, vectors = c->norm == LF_NORM_LAYER ? 2 : 1, norm = vectors * C,
                  matrices = c->mlp == LF_MLP_GLU ? 2 : 1, n = 2 * lf_window_of(c, s) - 1;
    if (c->conv_taps)
        return norm + C * (c->conv_taps * c->conv_taps + 1) + (matrices + 1) * t.ffn * C +
               (c->bias ? matrices * t.ffn + C : 0) + (c->layer_scale ? C : 0);
    const int64_t N = c->grid * c->grid;
    if (c->mix_patches)
        return 2 * norm + N * N + N + (matrices + 1) * t.ffn * C +
               (c->bias ? matrices * t.ffn + C : 0) + (c->layer_scale ? 2 * C : 0);
    int64_t layer = 2 * norm + 4 * C * C + (c->qkv_bias ? (c->bare_keys ? 2 : 3) * C : 0);
    layer += (c->attn_inner_norm ? norm : 0) + (c->mlp_inner_norm ? vectors * t.ffn : 0);
    layer += (matrices + 1) * t.ffn * C + (c->bias ? matrices * t.ffn + 2 * C : 0);
    layer += (c->qk_norm ? 2 * C : 0) + (c->layer_scale ? 2 * C : 0);
    if (c->shifted)
        layer += c->cosine ? (3 + t.heads) * LF_VISION_DISTANCES + t.heads : n * n * t.heads;
    return layer;
}

static int64_t merge_params(const lf_vision_config *c, int64_t s)
{
    const int64_t C = lf_vision_stage_of(c, s).width, next = lf_vision_stage_of(c, s + 1).width,
                  vectors = c->norm == LF_NORM_LAYER ? 2 : 1;
    return next * 4 * C + (c->merge_bias ? next : 0) +
           vectors * (c->merge_norm == LF_MERGE_TOGETHER ? 4 * C
                      : c->merge_norm == LF_MERGE_BEHIND ? next
                                                         : C);
}

int64_t lf_vision_param_count(const lf_vision_config *c)
{
    const int64_t vectors = c->norm == LF_NORM_LAYER ? 2 : 1, C = lf_vision_stage_of(c, 0).width,
                  stages = lf_vision_stages(c);
    int64_t n = 0;
    for (int64_t s = 0; s < stages; s++)
        n += lf_vision_stage_of(c, s).layers * layer_params(c, s) +
             (s + 1 < stages ? merge_params(c, s) : 0);
    return n + C * c->patch_dim + (c->patch_bias ? C : 0) + lf_vision_tokens(c) * C +
           c->positions * C + (c->pre_norm ? vectors * C : 0) +
           (c->final_norm ? vectors * c->hidden : 0);
}

/* ---- the graph ---- */

struct build {
    const lf_vision *v;
    const lf_vision_config *c;
    lf_graph *g;
    const struct lf_vision_rows *r;
    struct lf_vision_stage t; /* of the layer that is built */
    int64_t rows;             /* in it */
    lf_val positions, images, windows, path[2];
    struct lf_adapter_drop drop;
};

static lf_val input(struct build *b, const char *name, enum lf_dtype dtype, int64_t rows,
                    int64_t cols)
{
    char whole[96];
    snprintf(whole, sizeof whole, "%s%s", b->v->inputs, name);
    return lf_input(b->g, whole, dtype, rows, cols);
}

/* The six arrays of a matrix [rows, from]. */
static struct lf_mix matrix(struct build *b, const char *name, int64_t rows, int64_t from,
                            int64_t entries)
{
    char whole[96];
    snprintf(whole, sizeof whole, "%s%s", b->v->inputs, name);
    return lf_mix_input(b->g, whole, rows, from, entries);
}

static lf_val param(struct build *b, const char *name)
{
    return lf_paramf(b->g, "%s%s", b->v->prefix, name);
}

static lf_val linear(struct build *b, lf_val x, bool bias, const char *name)
{
    lf_val w = lf_paramf(b->g, "%s%s.weight", b->v->prefix, name),
           v = bias ? lf_paramf(b->g, "%s%s.bias", b->v->prefix, name) : LF_NONE;
    return b->r->adapter_off ? lf_linear(b->g, x, w, v)
                             : lf_linear_adapted(b->g, x, w, v, &b->drop);
}

/* inner: of channels that ranks divide. */
static lf_val norm_of(struct build *b, lf_val x, bool inner, const char *name)
{
    const bool layer = b->c->norm == LF_NORM_LAYER;
    const struct lf_norm_opts o = {
        .eps = (float)b->c->norm_eps, .layer = layer, .affine = b->c->affine, .divided = inner};
    lf_val w = lf_paramf(b->g, "%s%s.weight", b->v->prefix, name);
    return lf_norm(b->g, x, w, layer ? lf_paramf(b->g, "%s%s.bias", b->v->prefix, name) : LF_NONE,
                   &o);
}

static lf_val norm(struct build *b, lf_val x, const char *name)
{
    return norm_of(b, x, false, name);
}

static lf_val all_heads_norm(struct build *b, lf_val x, const char *name)
{
    const struct lf_norm_opts o = {.eps = (float)b->c->norm_eps, .divided = true};
    return lf_norm(b->g, x, lf_paramf(b->g, "%s%s.weight", b->v->prefix, name), LF_NONE, &o);
}

/* Pair i of head_dim / 2 turns by the row of the patch, then by its column, with the same
 * frequencies or with those between them (rope_own). */
static void fill_rope(void *dst, const void *ctx)
{
    const struct table *t = ctx;
    const int64_t half = t->v->c.head_dim / 2, quarter = half / 2;
    const lf_vision_config *c = &t->v->c;
    const double share = c->rope_side ? (double)c->rope_side / (double)lf_vision_table_side(c) : 1;
    float *out = dst;
    for (int64_t p = 0; p < t->v->sides; p++)
        for (int64_t i = 0; i < half; i++) {
            const double step =
                             (double)(i % quarter) + (t->v->c.rope_own && i >= quarter ? 0.5 : 0),
                         inv = pow(t->v->c.rope_theta, -2.0 * step / (double)half),
                         angle = (double)p * share * inv;
            out[p * half + i] = (float)(t->sin ? sin(angle) : cos(angle));
        }
}

static void fill_axis(void *dst, const void *ctx)
{
    const lf_vision *v = ctx;
    int32_t *axis = dst;
    const int64_t half = v->c.head_dim / 2;
    for (int64_t i = 0; i < half; i++)
        axis[i] = i < half / 2 ? 1 : 2;
}

static lf_val constant(struct build *b, const char *name, enum lf_dtype dtype, int64_t rows,
                       int64_t cols, void (*fill)(void *dst, const void *ctx), const void *ctx)
{
    char whole[96];
    snprintf(whole, sizeof whole, "%s%s", b->v->prefix, name);
    return lf_const(b->g, whole, dtype, rows, cols, fill, ctx);
}

static lf_val rope(struct build *b, lf_val x, int64_t heads)
{
    const int64_t half = b->c->head_dim / 2;
    const struct lf_rope_opts o = {.heads = (int)heads,
                                   .rot = (int)b->c->head_dim,
                                   .interleaved = b->c->rope_interleaved,
                                   .axis =
                                       constant(b, "rope.axis", LF_I32, half, 1, fill_axis, b->v)};
    lf_val t[2];
    for (int k = 0; k < 2; k++)
        t[k] = constant(b, k ? "rope.sin" : "rope.cos", LF_F32, b->v->sides, half, fill_rope,
                        &b->v->table[k]);
    return lf_rope(b->g, x, b->positions, t[0], t[1], &o);
}

static const char *part_of(char buf[64], int64_t l, const char *part)
{
    snprintf(buf, 64, "layers.%lld.%s", (long long)l, part);
    return buf;
}

struct heads {
    lf_val q, k, v;
};

/* One product where all three have a bias or none has; otherwise the bias is not that of all. */
static struct heads heads_of(struct build *b, lf_val h, int64_t l)
{
    const lf_vision_config *c = b->c;
    const int64_t C = b->t.width;
    char name[64];
    struct heads y;
    if (c->bare_keys) {
        y.q = linear(b, h, c->qkv_bias, part_of(name, l, "attn.q"));
        y.k = linear(b, h, false, part_of(name, l, "attn.k"));
        y.v = linear(b, h, c->qkv_bias, part_of(name, l, "attn.v"));
        if (c->rope) {
            y.q = rope(b, y.q, b->t.heads);
            y.k = rope(b, y.k, b->t.heads);
        }
        return y;
    }
    lf_val qkv = linear(b, h, c->qkv_bias, part_of(name, l, "attn.qkv")), qk = qkv;
    if (c->rope) /* q and k lie side by side: one pass turns both */
        qk = rope(b, lf_slice(b->g, qkv, 0, 2 * C), 2 * b->t.heads);
    y.v = lf_slice(b->g, qkv, 2 * C, C);
    y.q = lf_slice(b->g, qk, 0, C);
    y.k = lf_slice(b->g, qk, C, C);
    return y;
}

static struct lf_table_place tables(struct build *b)
{
    return (struct lf_table_place){b->g, b->v->prefix, b->v->tables, b->c, b->r};
}

/* A number of each head for each distance in a window, f32 [(2 w - 1)^2, heads]. */
static lf_val distances(struct build *b, int64_t l)
{
    const struct lf_table_place at = tables(b);
    const int64_t s = lf_vision_stage_at(b->c, l), n = 2 * lf_window_of(b->c, s) - 1;
    char name[64];
    lf_val y;
    if (b->c->cosine) {
        y = linear(b, lf_table_distances(&at, s), true, part_of(name, l, "attn.distances.up"));
        y = lf_tp_enter(b->g, lf_act(b->g, y, LF_ACT_RELU)); /* ranks have numbers of their heads */
        y = linear(b, y, false, part_of(name, l, "attn.distances.down"));
        y = lf_scale(b->g, lf_act(b->g, y, LF_ACT_SIGMOID), LF_VISION_MOST_DISTANCE);
    } else {
        /* the rows are looked up as those of positions are */
        const lf_val all = lf_table_numbers(&at, n * n);
        y = lf_embed(b->g, all, all, LF_NONE, param(b, part_of(name, l, "attn.distances.weight")),
                     1, 0);
    }
    lf_pin_f32(b->g, y);
    return y;
}

/* Queries and keys of length sqrt(D) each, and queries times a number of the head. */
static void make_cosines(struct build *b, struct heads *x, int64_t l)
{
    const struct lf_norm_opts unit = {.eps = 1e-12f, .heads = (int)b->t.heads};
    char name[64];
    x->q = lf_norm(b->g, x->q, LF_NONE, LF_NONE, &unit);
    x->k = lf_norm(b->g, x->k, LF_NONE, LF_NONE, &unit);
    x->q = lf_head_gate(b->g, x->q, param(b, part_of(name, l, "attn.temperature.weight")),
                        (int)b->t.heads, (float)log(LF_VISION_MOST_TEMPERATURE));
}

/* Attention within windows, a part of which is a document where it moved. */
static lf_val windowed(struct build *b, lf_val h, int64_t l)
{
    const struct lf_table_place at = tables(b);
    const struct lf_windows w = lf_windows_of(b->c, b->r, l);
    const double D = (double)b->t.head_dim;
    const struct lf_mix in = w.plain ? (struct lf_mix){.start = LF_NONE} : lf_table_windows(&at, l),
                        back = {in.back_start, in.back_index, in.back_weight,
                                in.start,      in.index,      in.weight};
    char name[64];
    if (!w.plain)
        h = lf_mix_rows(b->g, h, &in);
    struct heads x = heads_of(b, lf_tp_enter(b->g, h), l);
    if (b->c->cosine)
        make_cosines(b, &x, l);
    const struct lf_attn_opts o = {.heads = (int)b->t.heads,
                                   .groups = (int)b->t.heads,
                                   .scale = (float)(b->c->cosine ? 1 / D : 1 / sqrt(D)),
                                   .max_doc = w.max_doc,
                                   .bias = distances(b, l),
                                   .place = lf_table_cells(&at, l)};
    lf_val a = lf_attention(b->g, x.q, x.k, x.v, lf_table_cu(&at, l), LF_NONE, &o);
    if (!w.plain)
        a = lf_mix_rows(b->g, a, &back);
    return lf_tp_leave(b->g, linear(b, a, b->c->bias, part_of(name, l, "attn.o")));
}

static lf_val attention(struct build *b, lf_val h, int64_t l)
{
    const lf_vision_config *c = b->c;
    const bool full = !c->windows || lf_model_list_has(&c->full_layers, l);
    char name[64];
    const struct heads x = heads_of(b, lf_tp_enter(b->g, h), l);
    lf_val q = x.q, k = x.k;
    if (c->qk_norm) {
        q = all_heads_norm(b, q, part_of(name, l, "attn.q_norm"));
        k = all_heads_norm(b, k, part_of(name, l, "attn.k_norm"));
    }
    const struct lf_attn_opts o = {.heads = (int)b->t.heads,
                                   .groups = (int)b->t.heads,
                                   .scale = (float)(1 / sqrt((double)b->t.head_dim)),
                                   .max_doc = full ? b->r->max_image : b->r->max_window};
    lf_val a = lf_attention(b->g, q, k, x.v, full ? b->images : b->windows, LF_NONE, &o);
    if (c->attn_inner_norm)
        a = norm_of(b, a, true, part_of(name, l, "attn.inner_norm"));
    return lf_tp_leave(b->g, linear(b, a, c->bias, part_of(name, l, "attn.o")));
}

static lf_val mlp(struct build *b, lf_val h, int64_t l)
{
    const lf_vision_config *c = b->c;
    const enum lf_act act = (enum lf_act)c->activation;
    char name[64];
    lf_val u;
    h = lf_tp_enter(b->g, h);
    if (c->mlp == LF_MLP_GLU) {
        lf_val gu = linear(b, h, c->bias, part_of(name, l, "mlp.gate_up"));
        u = lf_glu(b->g, lf_slice(b->g, gu, 0, b->t.ffn), lf_slice(b->g, gu, b->t.ffn, b->t.ffn),
                   act);
    } else {
        u = lf_act(b->g, linear(b, h, c->bias, part_of(name, l, "mlp.up")), act);
    }
    if (c->mlp_inner_norm)
        u = norm_of(b, u, true, part_of(name, l, "mlp.inner_norm"));
    return lf_tp_leave(b->g, linear(b, u, c->bias, part_of(name, l, "mlp.down")));
}

/* A branch, times a number for each row. The matrix is diagonal, and its own transpose. */
static lf_val on_path(struct build *b, lf_val f, int64_t l, const char *branch)
{
    const int64_t R = b->rows;
    char name[64];
    snprintf(name, sizeof name, "path.%lld.%s", (long long)l, branch);
    const lf_val w = input(b, name, LF_F32, R, 1);
    return lf_mix_rows(b->g, f,
                       &(struct lf_mix){b->path[0], b->path[1], w, b->path[0], b->path[1], w});
}

static lf_val join(struct build *b, lf_val x, lf_val f, int64_t l, const char *branch)
{
    char name[64], scale[16];
    snprintf(scale, sizeof scale, "%s_scale", branch);
    if (b->c->layer_scale)
        f = lf_col_gate(b->g, f, param(b, part_of(name, l, scale)));
    if (b->r->drop_path)
        f = on_path(b, f, l, branch);
    return lf_add(b->g, x, f);
}

/* Each channel by itself, over the squares of its stage. */
static lf_val convolved(struct build *b, lf_val x, int64_t l)
{
    char weight[64], bias[64];
    return lf_dwconv(b->g, x, param(b, part_of(weight, l, "conv.weight")),
                     param(b, part_of(bias, l, "conv.bias")), b->t.side);
}

/* A matrix over the patches of each picture, the same for all channels. */
static lf_val mixed(struct build *b, lf_val h, int64_t l)
{
    char name[64];
    h = lf_turn_rows(b->g, h, b->c->grid * b->c->grid, 0);
    h = linear(b, h, true, part_of(name, l, "mix"));
    return lf_turn_rows(b->g, h, b->t.width, b->rows);
}

/* One branch of a layer. A convolution stands before the norm of the MLP, and is no branch. */
static lf_val add_to(struct build *b, lf_val x, int64_t l, bool attn)
{
    const char *branch = attn ? "attn" : "mlp";
    const bool behind = b->c->out_norm;
    char of[64];
    part_of(of, l, attn ? "attn_norm" : "mlp_norm");
    if (attn && b->c->conv_taps)
        return x;
    lf_val f = b->c->conv_taps ? convolved(b, x, l) : x;
    f = behind ? f : norm(b, f, of);
    f = !attn               ? mlp(b, f, l)
        : b->c->mix_patches ? mixed(b, f, l)
        : b->c->shifted     ? windowed(b, f, l)
                            : attention(b, f, l);
    return join(b, x, behind ? norm(b, f, of) : f, l, branch);
}

/* Behind the last layer of stage s: 2 x 2 patches become one. */
static lf_val merged(struct build *b, lf_val x, int64_t s)
{
    const struct lf_table_place at = tables(b);
    const int64_t l = b->t.first + b->t.layers - 1;
    const int where = b->c->merge_norm;
    char name[64], of[64];
    part_of(of, l, "merge_norm");
    if (where == LF_MERGE_EACH)
        x = norm(b, x, of);
    const struct lf_mix four = lf_table_merge(&at, s);
    x = lf_fold_rows(b->g, lf_mix_rows(b->g, x, &four), 4);
    if (where == LF_MERGE_TOGETHER)
        x = norm(b, x, of);
    x = linear(b, x, b->c->merge_bias, part_of(name, l, "merge"));
    return where == LF_MERGE_BEHIND ? norm(b, x, of) : x;
}

/* What layers of stage s read. */
static void enter_stage(struct build *b, int64_t s)
{
    const struct lf_table_place at = tables(b);
    b->t = lf_vision_stage_of(b->c, s);
    b->rows = lf_vision_stage_rows(b->c, b->r, s);
    if (b->r->drop_path && b->c->stage_layers.n) {
        b->path[0] = lf_table_numbers(&at, b->rows + 1);
        b->path[1] = lf_table_numbers(&at, b->rows);
    }
}

/* Pixels to what the first layer reads. */
static lf_val bottom(struct build *b)
{
    const lf_vision_config *c = b->c;
    const struct lf_vision_rows *r = b->r;
    lf_val x = linear(b, input(b, "pixels", LF_F32, r->patches, c->patch_dim), c->patch_bias,
                      "patch_embed");
    if (c->class_token) {
        const struct lf_mix place = matrix(b, "place", r->rows, r->patches, r->patches),
                            class = matrix(b, "class", r->rows, 1, r->images);
        x = lf_add(b->g, lf_mix_rows(b->g, x, &place),
                   lf_mix_rows(b->g, param(b, "class_token.weight"), &class));
    }
    if (c->distill_token) {
        const struct lf_mix distill = matrix(b, "distill", r->rows, 1, r->images);
        x = lf_add(b->g, x, lf_mix_rows(b->g, param(b, "distill_token.weight"), &distill));
    }
    if (c->pre_norm && c->stage_layers.n)
        x = norm(b, x, "pre_norm");
    if (c->positions) {
        const struct lf_mix pos = matrix(b, "pos", r->rows, c->positions, r->taps);
        x = lf_add(b->g, x, lf_mix_rows(b->g, param(b, "pos_embed.weight"), &pos));
    }
    return c->pre_norm && !c->stage_layers.n ? norm(b, x, "pre_norm") : x;
}

/* Blocks of a graph have numbers; a decoder's layers take those from 0 on. */
enum { FIRST_BLOCK = 1 << 20 };

/* Keeps the stream behind l layers wherever read_states has it. */
static void keep_state(const struct build *b, lf_val x, int64_t l, lf_val *state)
{
    for (int64_t i = 0; i < b->c->read_states.n; i++)
        if ((int64_t)b->c->read_states.v[i] == l)
            state[i] = x;
}

static lf_val beside(struct build *b, const lf_val *state)
{
    lf_val x = state[0];
    for (int64_t i = 1; i < b->c->read_states.n; i++)
        x = lf_heads_join(b->g, x, state[i], 1);
    return x;
}

static lf_val layers(struct build *b, lf_val x, const int64_t *tap, int n_tap, lf_val *deep)
{
    const lf_vision_config *c = b->c;
    lf_val state[LF_MODEL_MAX_TAPS];
    keep_state(b, x, 0, state);
    if (c->rope)
        b->positions = input(b, "positions", LF_I32, b->r->rows, 3);
    if (lf_vision_by_pictures(c))
        b->images = input(b, "cu_seqlens", LF_I32, b->r->images + 1, 1);
    if (b->r->drop > 0)
        b->drop = (struct lf_adapter_drop){.p = b->r->drop,
                                           .sample = input(b, "samples", LF_I64, b->r->rows, 1),
                                           .position = input(b, "offsets", LF_I32, b->r->rows, 1)};
    if (b->r->drop_path && !c->stage_layers.n) {
        b->path[0] = input(b, "path.start", LF_I32, b->r->rows + 1, 1);
        b->path[1] = input(b, "path.index", LF_I32, b->r->rows, 1);
    }
    if (c->windows)
        b->windows = input(b, "cu_windows", LF_I32, b->r->windows + 1, 1);
    for (int64_t l = 0; l < lf_vision_read_layers(c); l++) {
        lf_block_begin(b->g, FIRST_BLOCK * (1 + b->r->stack) + (int)l);
        const int64_t s = lf_vision_stage_at(c, l);
        if (l == 0 || l == b->t.first + b->t.layers)
            enter_stage(b, s);
        x = add_to(b, add_to(b, x, l, true), l, false);
        if (l + 1 == b->t.first + b->t.layers && s + 1 < lf_vision_stages(c))
            x = merged(b, x, s);
        lf_block_end(b->g);
        keep_state(b, x, l + 1, state);
        for (int i = 0; i < n_tap; i++)
            if (tap[i] == l)
                deep[i] = x;
    }
    if (c->read_states.n)
        return beside(b, state);
    return reads_norm(c) ? norm(b, x, "final_norm") : x;
}

lf_val lf_vision_encode(const lf_vision *v, lf_graph *g, const struct lf_vision_rows *r,
                        const int64_t *tap, int n_tap, lf_val *deep)
{
    struct build b = {.v = v, .c = &v->c, .g = g, .r = r};
    return layers(&b, bottom(&b), tap, n_tap, deep);
}

lf_val lf_vision_layers(const lf_vision *v, lf_graph *g, const struct lf_vision_rows *r, lf_val x)
{
    struct build b = {.v = v, .c = &v->c, .g = g, .r = r};
    return layers(&b, x, NULL, 0, NULL);
}
