/* SPDX-License-Identifier: Apache-2.0
 *
 * What a description may not be: switches that contradict each other, and settings that nothing
 * would read. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/model/classes.h"
#include "engine/model/config_priv.h"
#include "engine/model/dual.h"
#include "engine/model/electra.h"
#include "engine/model/mae.h"
#include "engine/model/vision.h"
#include "kernels/kernels.h"

/* The origin of the key to blame, then the sentence. */
#define CONTRADICTION(key, ...) return contradiction(c, key, err, __VA_ARGS__)
static int contradiction(const lf_model_config *c, const char *key, lf_err *err, const char *fmt,
                         ...) __attribute__((format(printf, 4, 5)));
static int contradiction(const lf_model_config *c, const char *key, lf_err *err, const char *fmt,
                         ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return lf_fail(err, LF_EINVAL, "%s: [model] %s: %s", lf_model_origin(c, key), key, text);
}

static bool given(const lf_model_config *c, const char *key)
{
    return strcmp(lf_model_origin(c, key), "default") != 0;
}

bool lf_model_by_hand(const lf_model_config *c, const char *key)
{
    const char *line = strrchr(lf_model_origin(c, key), ':');
    return line && line[1] >= '0' && line[1] <= '9';
}

/* The key that says how wide the heads of a layer are. */
static const char *width_key(const lf_model_config *c, bool window)
{
    return window && c->window_head_dim ? "window_head_dim"
           : given(c, "head_dim")       ? "head_dim"
           : c->kv_lora                 ? "nope_dim"
                                        : "heads";
}

static int check_heads(lf_model_config *c, lf_err *err)
{
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->head_dim == 0 && c->kv_lora)
        c->head_dim = c->nope_dim + c->rope_dim;
    if (c->head_dim == 0) {
        if (c->hidden % c->heads)
            CONTRADICTION("heads", "%lld heads do not divide hidden = %lld; give head_dim",
                          (long long)c->heads, (long long)c->hidden);
        c->head_dim = c->hidden / c->heads;
    }
    if (c->heads % c->kv_heads)
        CONTRADICTION("kv_heads", "%lld kv_heads do not divide %lld heads", (long long)c->kv_heads,
                      (long long)c->heads);
    if (c->head_dim > 512 || c->head_dim % 2)
        CONTRADICTION(width_key(c, false),
                      "head_dim = %lld; attention needs an even one of at most 512",
                      (long long)c->head_dim);
    if (c->window_head_dim > 512 || c->window_head_dim % 2)
        CONTRADICTION("window_head_dim", "%lld; attention needs an even one of at most 512",
                      (long long)c->window_head_dim);
    if (c->window_kv_heads && c->heads % c->window_kv_heads)
        CONTRADICTION("window_kv_heads", "%lld do not divide %lld heads",
                      (long long)c->window_kv_heads, (long long)c->heads);
    return 0;
}

static int check_sizes(lf_model_config *c, lf_err *err)
{
    for (size_t i = 0; i < lf_model_n_keys; i++)
        if (!lf_model_keys[i].def && *(int64_t *)(void *)((char *)c + lf_model_keys[i].offset) == 0)
            return lf_fail(err, LF_EINVAL, "[model] needs %s", lf_model_keys[i].name);
    if (!c->heads && lf_model_attends(c))
        return lf_fail(err, LF_EINVAL, "[model] needs heads");
    if (!c->ffn && lf_model_has_dense(c))
        return lf_fail(err, LF_EINVAL, "[model] needs ffn");
    if (!c->ffn && c->experts && !c->expert_ffn)
        return lf_fail(err, LF_EINVAL, "[model] needs ffn, or expert_ffn");
    if (c->embed_dim == c->hidden)
        CONTRADICTION("embed_dim", "equals hidden; leave it out, then there are no projections");
    if (c->encoder_layers && !c->encoder_heads)
        c->encoder_heads = c->heads;
    if (c->encoder_layers && !c->encoder_ffn)
        c->encoder_ffn = c->ffn;
    if (lf_model_family_says(c->family, LF_MODEL_EMBED_SCALED) && !given(c, "embed_scale"))
        c->embed_scale = sqrt((double)c->hidden);
    if (lf_model_family_says(c->family, LF_MODEL_HEAD_SCALED) && !given(c, "logit_scale"))
        c->logit_scale = 1 / sqrt((double)c->hidden);
    return c->heads ? check_heads(c, err) : 0;
}

/* What letters of the patterns need. */
static int check_layers(const lf_model_config *c, lf_err *err)
{
    const struct {
        const char *key;
        char (*what)(const lf_model_config *, int64_t);
        char letter;
        bool there;
        const char *needs;
    } rows[] = {
        {"layer_mixers", lf_model_layer_mixer, LF_MIXER_WINDOW, c->sliding_window > 0,
         "sliding_window"},
        {"layer_mixers", lf_model_layer_mixer, LF_MIXER_CHUNK, c->attn_chunk > 0, "attn_chunk"},
        {"layer_mlps", lf_model_layer_mlp, LF_MLP_EXPERTS, c->experts > 0, "experts"},
        {"layer_mlps", lf_model_layer_mlp, LF_MLP_BOTH, c->experts > 0, "experts"},
        {"layer_positions", lf_model_layer_position, LF_TURN_LOCAL, c->rope_local_theta > 0,
         "rope_local_theta"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].there && lf_model_count_layers(c, rows[i].what, rows[i].letter))
            CONTRADICTION(rows[i].key, "a layer is %c, which needs %s", rows[i].letter,
                          rows[i].needs);
    for (int64_t l = 0; l < c->layers; l++) {
        const bool mixes = lf_model_layer_mixer(c, l) != LF_MIXER_NONE,
                   has_mlp = lf_model_layer_mlp(c, l) != LF_MLP_NONE;
        if (!mixes && !has_mlp)
            CONTRADICTION("layer_mlps", "layer %lld has neither mixer nor MLP", (long long)l);
        if ((!mixes || !has_mlp) && c->parallel_block != LF_PARALLEL_NO)
            CONTRADICTION("parallel_block", "layer %lld has %s, and nothing stands side by side",
                          (long long)l, mixes ? "no MLP" : "no mixer");
        const char turn = lf_model_layer_position(c, l);
        if (lf_model_layer_attends(c, l) && turn != LF_TURN_NONE &&
            lf_model_layer_rope_dim(c, l) !=
                lf_model_table_dim(c, turn == LF_TURN_LOCAL ? LF_ROPE_LOCAL : 0))
            CONTRADICTION("window_head_dim",
                          "layer %lld turns by tables for heads of another width: layers with a "
                          "window, and no others, turn by rope_local_theta then",
                          (long long)l);
    }
    if (c->sliding_window && lf_model_by_hand(c, "sliding_window") &&
        !lf_model_count_layers(c, lf_model_layer_mixer, LF_MIXER_WINDOW))
        CONTRADICTION("sliding_window", "no layer has a window: layer_mixers = %s",
                      c->layer_mixers.text);
    return 0;
}

/* The mixer that carries a state; 0: there is none. */
static char state_mixer(const lf_model_config *c)
{
    for (int64_t l = 0; l < c->layers; l++) {
        const char m = lf_model_layer_mixer(c, l);
        if (lf_model_layer_scans(c, l) || m == LF_MIXER_CONV)
            return m;
    }
    return 0;
}

/* Keys that only some mixers read. */
static int check_mixers_read(const lf_model_config *c, lf_err *err)
{
    static const char scanning[] = "layers with s, g, k, l or b",
                      attending[] = "a layer that attends (f, w, h or b)",
                      normed[] = "layers with s, g, k, l or b, and scan_norm";
    const char kind = state_mixer(c);
    const bool scans = kind && kind != LF_MIXER_CONV, attends = lf_model_attends(c),
               norm = scans && c->scan_norm;
    const struct {
        const char *key;
        bool set, read;
        const char *needs;
    } rows[] = {
        {"scan_heads", c->scan_heads > 0, scans, scanning},
        {"scan_groups", c->scan_groups > 0, scans, scanning},
        {"scan_key_dim", c->scan_key_dim > 0, scans, scanning},
        {"scan_value_dim", c->scan_value_dim > 0, scans, scanning},
        {"scan_conv", c->scan_conv > 0, kind != 0, "layers with s, g, k, l, b or c"},
        {"scan_conv_bias", c->scan_conv_bias, kind && c->scan_conv, "scan_conv"},
        {"scan_bias", c->scan_bias, kind != 0, "layers with s, g, k, l, b or c"},
        {"scan_gate", c->scan_gate > 0, scans, scanning},
        {"scan_norm", c->scan_norm > 0, scans, scanning},
        {"scan_norm_parts", c->scan_norm_parts > 0, norm, normed},
        {"scan_norm_eps", c->scan_norm_eps > 0, norm, normed},
        {"scan_rank", c->scan_rank > 0, kind == LF_MIXER_KDA, "layers with k"},
        {"scan_step_min", c->scan_step_min > 0, scans, scanning},
        {"scan_step_max", c->scan_step_max > 0, scans, scanning},
        {"scan_strength", fabs(c->scan_strength - 1) > 0,
         kind == LF_MIXER_DELTA || kind == LF_MIXER_KDA, "layers with g or k"},
        {"scan_scales", c->scan_scales.n > 0, scans, "layers with s or b"},
        {"scan_in_scale", fabs(c->scan_in_scale - 1) > 0, scans, scanning},
        {"scan_out_scale", fabs(c->scan_out_scale - 1) > 0, scans, scanning},
        {"attn_in_scale", fabs(c->attn_in_scale - 1) > 0, attends, attending},
        {"attn_out_scale", fabs(c->attn_out_scale - 1) > 0, attends, attending},
        {"kv_lora", c->kv_lora > 0, attends, attending},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].set && !rows[i].read && lf_model_by_hand(c, rows[i].key))
            CONTRADICTION(rows[i].key, "no layer reads it: it needs %s", rows[i].needs);
    return 0;
}

/* Mixers that carry a state. A model has one kind of them, as the sizes are of all layers. */
static int check_scans(lf_model_config *c, lf_err *err)
{
    const char kind = state_mixer(c);
    for (int64_t l = 0; l < c->layers; l++) {
        const char m = lf_model_layer_mixer(c, l);
        if ((lf_model_layer_scans(c, l) || m == LF_MIXER_CONV) && m != kind)
            CONTRADICTION("layer_mixers",
                          "layers are %c and %c; a model has one of s, g, k, l, b "
                          "and c",
                          kind, m);
    }
    if (!kind)
        return 0;
    if (c->mask == LF_MASK_PREFIX)
        CONTRADICTION("mask", "a mixer that carries a state sees nothing behind a token; take "
                              "causal");
    if (c->scan_conv == 1 || (kind == LF_MIXER_CONV && !c->scan_conv))
        CONTRADICTION("scan_conv", "a convolution has 2 to %d taps", LF_CONV_MOST_TAPS);
    if (c->mtp_layers && kind == LF_MIXER_LIGHTNING)
        CONTRADICTION("mtp_layers", "decays of lightning attention end with the last layer");
    if (kind == LF_MIXER_CONV)
        return 0;
    if (!c->scan_heads || !c->scan_key_dim || !c->scan_value_dim)
        CONTRADICTION("layer_mixers",
                      "layers with %c need scan_heads, scan_key_dim and "
                      "scan_value_dim",
                      kind);
    if (c->scan_groups == 0)
        c->scan_groups = c->scan_heads;
    if (!(c->scan_norm_eps > 0))
        c->scan_norm_eps = c->norm_eps;
    /* Families with such a norm have it over each group. */
    if (c->scan_norm == LF_SCAN_GATE_FIRST && !lf_model_by_hand(c, "scan_norm") &&
        !given(c, "scan_norm_parts"))
        c->scan_norm_parts = c->scan_groups;
    if (c->scan_heads % c->scan_groups)
        CONTRADICTION("scan_groups", "%lld do not divide %lld scan_heads",
                      (long long)c->scan_groups, (long long)c->scan_heads);
    if (c->scan_norm_parts && (c->scan_heads * c->scan_value_dim) % c->scan_norm_parts)
        CONTRADICTION("scan_norm_parts", "%lld do not divide the %lld channels of all heads",
                      (long long)c->scan_norm_parts,
                      (long long)(c->scan_heads * c->scan_value_dim));
    if ((kind == LF_MIXER_KDA) != (c->scan_rank > 0))
        CONTRADICTION("scan_rank", "it is for layers with k, which need it");
    if (kind == LF_MIXER_KDA && (c->scan_groups != c->scan_heads || !c->scan_gate || c->scan_bias))
        CONTRADICTION("layer_mixers", "layers with k have a gate, a key for each head and no bias: "
                                      "set scan_gate, leave out scan_groups and scan_bias");
    if (c->scan_scales.n &&
        (c->scan_scales.n != LF_SCAN_SCALES || (kind != LF_MIXER_SSD && kind != LF_MIXER_BOTH)))
        CONTRADICTION("scan_scales",
                      "%d numbers for layers with s or b: of gate, values, keys, "
                      "queries and steps",
                      LF_SCAN_SCALES);
    if (kind == LF_MIXER_LIGHTNING && (c->scan_step_min > 0 || c->scan_step_max > 0))
        CONTRADICTION(c->scan_step_min > 0 ? "scan_step_min" : "scan_step_max",
                      "decays of layers with l are fixed, so they have no steps");
    if (c->scan_step_max > 0 && !(c->scan_step_min < c->scan_step_max))
        CONTRADICTION("scan_step_min", "%g must be below scan_step_max = %g", c->scan_step_min,
                      c->scan_step_max);
    return 0;
}

/* Multi-head latent attention: its sizes, and what does not go with it. */
static int check_latent(const lf_model_config *c, lf_err *err)
{
    if (!c->kv_lora)
        return 0;
    if (!c->nope_dim || !c->rope_dim || !c->v_dim)
        CONTRADICTION("kv_lora", "latent attention needs nope_dim, rope_dim and v_dim");
    if (c->rope_dim % 2)
        CONTRADICTION("rope_dim", "rope turns pairs of channels, and %lld is odd",
                      (long long)c->rope_dim);
    if (c->head_dim != c->nope_dim + c->rope_dim)
        CONTRADICTION("head_dim", "%lld is not nope_dim + rope_dim = %lld; leave it out",
                      (long long)c->head_dim, (long long)(c->nope_dim + c->rope_dim));
    if (c->kv_heads != c->heads)
        CONTRADICTION("kv_heads", "latent attention has as many as heads (%lld); leave it out",
                      (long long)c->heads);
    if (c->position != LF_POS_ROPE || fabs(c->rope_fraction - 1) > 0)
        CONTRADICTION("kv_lora", "latent attention turns rope_dim channels of a head: it needs "
                                 "position = rope and no rope_fraction");
    const struct {
        const char *key;
        bool set;
    } without[] = {{"qkv_bias", c->qkv_bias},
                   {"attn_gate", c->attn_gate},
                   {"qk_norm", c->qk_norm},
                   {"logn_length", c->logn_length > 0},
                   {"qk_unit_norm", c->qk_unit_norm},
                   {"rope_sections", c->rope_sections.n > 0},
                   {"window_kv_heads", c->window_kv_heads > 0},
                   {"window_head_dim", c->window_head_dim > 0}};
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (without[i].set)
            CONTRADICTION(without[i].key, "latent attention (kv_lora) has none");
    return 0;
}

/* Layers that read what others make. */
static int check_shared(const lf_model_config *c, lf_err *err)
{
    const struct {
        const char *key;
        bool set;
    } with[] = {{"v_norm", c->v_norm},
                {"keys_as_values", c->keys_as_values},
                {"kv_shared_layers", c->kv_shared_layers > 0}};
    for (size_t i = 0; i < sizeof with / sizeof *with; i++)
        if (with[i].set && c->kv_lora)
            CONTRADICTION(with[i].key, "latent attention (kv_lora) has none");
    for (int64_t l = 0; l < c->layers && c->kv_shared_layers; l++) {
        const int64_t of = lf_model_layer_keys(c, l);
        if (of != l && lf_model_layer_mixer(c, l) != LF_MIXER_WINDOW &&
            lf_model_layer_mixer(c, l) != LF_MIXER_FULL)
            CONTRADICTION("kv_shared_layers", "layer %lld has the mixer %c, and f and w share keys",
                          (long long)l, lf_model_layer_mixer(c, l));
        if (of < 0 || lf_model_layer_position(c, of) != lf_model_layer_position(c, l))
            CONTRADICTION("kv_shared_layers",
                          "layer %lld finds no layer of its kind before the last %lld that makes "
                          "keys and values",
                          (long long)l, (long long)c->kv_shared_layers);
    }
    if (c->per_layer_dim && (c->mlp != LF_MLP_GLU || c->norm != LF_NORM_RMS))
        CONTRADICTION("per_layer_dim", "it goes with mlp = glu and norm = rms");
    if (c->vocab && c->per_layer_vocab >= c->vocab)
        CONTRADICTION("per_layer_vocab",
                      "%lld of %lld tokens; leave it out where all have channels",
                      (long long)c->per_layer_vocab, (long long)c->vocab);
    return 0;
}

/* Streams, the branch beside a mixer, and gates that are cut. */
static int check_altup(const lf_model_config *c, lf_err *err)
{
    if (c->altup_streams == 1)
        CONTRADICTION("altup_streams", "one stream is a model without them: leave it out");
    if (c->altup_streams && (c->parallel_block != LF_PARALLEL_NO || c->layer_gain))
        CONTRADICTION(c->layer_gain ? "layer_gain" : "parallel_block",
                      "does not go with altup_streams");
    if (c->laurel_rank && c->parallel_block != LF_PARALLEL_NO)
        CONTRADICTION("laurel_rank", "it joins the stream between mixer and MLP, which stand side "
                                     "by side with parallel_block");
    if (c->gate_sparsity.n > c->layers)
        CONTRADICTION("gate_sparsity", "%lld shares for %lld layers", (long long)c->gate_sparsity.n,
                      (long long)c->layers);
    for (int64_t l = 0; l < c->layers; l++)
        if (lf_model_layer_sparsity(c, l) > 0 &&
            (c->mlp != LF_MLP_GLU || !lf_model_layer_dense(c, l)))
            CONTRADICTION("gate_sparsity", "layer %lld has no MLP with a gate", (long long)l);
    return 0;
}

/* Is there a layer that attends, or one that does not? */
static bool some_attend(const lf_model_config *c, bool attends)
{
    bool any = false;
    for (int64_t l = 0; l < c->layers; l++)
        any = any || lf_model_layer_attends(c, l) == attends;
    return any;
}

static int check_block(lf_model_config *c, lf_err *err)
{
    if (c->block != LF_BLOCK_PRE && c->parallel_block != LF_PARALLEL_NO)
        CONTRADICTION("parallel_block",
                      "attention and MLP side by side read x normalised: block = pre only (%s)",
                      lf_model_origin(c, "block"));
    if (c->parallel_block != LF_PARALLEL_NO &&
        lf_model_count_layers(c, lf_model_layer_mlp, LF_MLP_BOTH))
        CONTRADICTION("parallel_block", "an MLP and experts have norms of their own: "
                                        "layer_mlps has no b then");
    if (c->block == LF_BLOCK_OUT_ATTENTION && (!some_attend(c, true) || !some_attend(c, false)))
        CONTRADICTION("block", "out_attention is for layers some of which attend and some of which "
                               "do not; take out or pre");
    if (c->residual_factors.n && c->residual_factors.n != LF_MODEL_RESIDUAL_FACTORS)
        CONTRADICTION("residual_factors",
                      "%d numbers: of the stream and of what is added, for attention, other mixers "
                      "and the MLP",
                      LF_MODEL_RESIDUAL_FACTORS);
    if (c->residual_factors.n &&
        (lf_model_by_hand(c, "residual_alpha") || lf_model_by_hand(c, "residual_scale")))
        CONTRADICTION("residual_factors", "stand in place of residual_alpha and residual_scale");
    if (c->block == LF_BLOCK_ALPHA && !c->residual_factors.n && !(c->residual_alpha > 0))
        c->residual_alpha = sqrt(2.0 * (double)c->layers);
    return 0;
}

/* Is a layer so, of those from `from` on and those of mtp_layers? */
static bool any_layer(const lf_model_config *c, int64_t from,
                      bool (*is)(const lf_model_config *c, int64_t layer))
{
    bool any = false;
    for (int64_t l = from; l < c->layers + (c->mtp_layers > 0); l++)
        any = any || is(c, l);
    return any;
}

static bool attends_without_window(const lf_model_config *c, int64_t layer)
{
    return lf_model_layer_attends(c, layer) && !lf_model_layer_window(c, layer);
}

/* A key that only one switch reads is refused where that switch is off: it would be silently
 * without effect. */
static int check_unread(const lf_model_config *c, lf_err *err)
{
    const bool yarn = c->rope_scaling == LF_ROPE_YARN,
               longrope = c->rope_scaling == LF_ROPE_LONGROPE, windows = c->sliding_window > 0,
               tokens = c->output == LF_OUTPUT_TOKENS, attends = lf_model_attends(c),
               labels = c->output == LF_OUTPUT_LABELS, transforms = lf_model_transforms(c),
               dense = lf_model_has_dense(c),
               stays = attends && c->position == LF_POS_ROPE &&
                       lf_model_count_layers(c, lf_model_layer_position, LF_TURN_NONE) > 0,
               turns = attends && c->position == LF_POS_ROPE &&
                       !lf_model_layers_are(c, lf_model_layer_position, "n*");
    const struct {
        const char *key;
        bool set, read;
        const char *needs;
    } rows[] = {
        {"residual_alpha", c->residual_alpha > 0, c->block == LF_BLOCK_ALPHA, "block = alpha"},
        {"residual_factors", c->residual_factors.n > 0, c->block == LF_BLOCK_ALPHA,
         "block = alpha"},
        {"q_lora", c->q_lora > 0, c->kv_lora > 0, "kv_lora"},
        {"nope_dim", c->nope_dim > 0, c->kv_lora > 0, "kv_lora"},
        {"rope_dim", c->rope_dim > 0, c->kv_lora > 0, "kv_lora"},
        {"v_dim", c->v_dim > 0, c->kv_lora > 0, "kv_lora"},
        {"mla_norm_eps", true, c->kv_lora > 0, "kv_lora"},
        {"rope_mscale_all", c->rope_mscale_all > 0, yarn && c->kv_lora > 0,
         "kv_lora and rope_scaling = yarn"},
        {"rope_beta_fast", true, yarn, "rope_scaling = yarn"},
        {"rope_beta_slow", true, yarn, "rope_scaling = yarn"},
        {"rope_truncate", !c->rope_truncate, yarn, "rope_scaling = yarn"},
        {"rope_attn_factor", c->rope_attn_factor > 0, yarn || longrope,
         "rope_scaling = yarn or longrope"},
        {"rope_short_factors", c->rope_short_factors.n > 0, longrope, "rope_scaling = longrope"},
        {"rope_long_factors", c->rope_long_factors.n > 0, longrope, "rope_scaling = longrope"},
        {"rope_local_theta", c->rope_local_theta > 0,
         c->position == LF_POS_ROPE &&
             (windows || lf_model_count_layers(c, lf_model_layer_position, LF_TURN_LOCAL)),
         "position = rope and layers with a window, or whose letter in layer_positions is l"},
        {"window_kv_heads", c->window_kv_heads > 0, windows, "sliding_window"},
        {"window_head_dim", c->window_head_dim > 0, windows, "sliding_window"},
        {"layer_positions", c->layer_positions.text[0] != 0, c->position == LF_POS_ROPE,
         "position = rope"},
        {"qkv_bias", c->qkv_bias, attends, "layers with attention"},
        {"out_bias", c->out_bias, attends, "layers with attention"},
        {"qk_norm", c->qk_norm, attends, "layers with attention"},
        {"attn_gate", c->attn_gate, attends, "layers with attention"},
        {"attn_chunk", c->attn_chunk > 0,
         lf_model_count_layers(c, lf_model_layer_mixer, LF_MIXER_CHUNK) > 0,
         "layers whose letter in layer_mixers is h"},
        {"qk_unit_norm", c->qk_unit_norm, turns, "layers that turn"},
        {"nope_growth", c->nope_growth > 0, stays, "layers that do not turn"},
        {"nope_growth_length", true, c->nope_growth > 0, "nope_growth"},
        {"attn_sinks", c->attn_sinks, attends, "layers with attention"},
        {"attn_softcap", c->attn_softcap > 0, attends, "layers with attention"},
        {"attn_scale", c->attn_scale > 0, attends, "layers with attention"},
        {"attn_prob_dropout", c->attn_prob_dropout > 0, attends, "layers with attention"},
        {"glu_limit", c->glu_limit > 0, c->mlp == LF_MLP_GLU, "mlp = glu"},
        {"glu_up_offset", fabs(c->glu_up_offset) > 0, c->mlp == LF_MLP_GLU, "mlp = glu"},
        {"mlp_gate_scale", fabs(c->mlp_gate_scale - 1) > 0, dense && c->mlp == LF_MLP_GLU,
         "mlp = glu in layers without experts"},
        {"mlp_out_scale", fabs(c->mlp_out_scale - 1) > 0, dense,
         "layers with an MLP and no experts"},
        {"v_norm", c->v_norm, attends, "layers with attention"},
        {"keys_as_values", c->keys_as_values, any_layer(c, 0, attends_without_window),
         "layers with attention and no window"},
        {"kv_shared_ffn", c->kv_shared_ffn > 0,
         c->kv_shared_layers > 0 &&
             any_layer(c, c->layers - c->kv_shared_layers, lf_model_layer_dense),
         "kv_shared_layers, one of them with an MLP that is no experts"},
        {"per_layer_vocab", c->per_layer_vocab > 0, c->per_layer_dim > 0, "per_layer_dim"},
        {"qk_norm_all_heads", c->qk_norm_all_heads, c->qk_norm, "qk_norm"},
        {"qk_norm_after_rope", c->qk_norm_after_rope, c->qk_norm && c->position == LF_POS_ROPE,
         "qk_norm and rope"},
        {"logit_scale", fabs(c->logit_scale - 1) > 0, tokens, "output = tokens"},
        {"head_bias", c->head_bias, tokens, "output = tokens"},
        {"norm_head", c->norm_head, tokens, "output = tokens"},
        {"head_transform", c->head_transform, tokens || transforms,
         "output = tokens or label_head = transform"},
        {"head_transform_bias", c->head_transform_bias, transforms,
         "head_transform, and output = tokens or label_head = transform"},
        {"logit_softcap", c->logit_softcap > 0, tokens, "output = tokens"},
        {"score_init", true, c->output == LF_OUTPUT_SCORE, "output = score"},
        {"labels", c->labels > 0, labels, "output = labels"},
        {"labels_of", true, labels, "output = labels"},
        {"label_row", true, labels && c->labels_of == LF_LABELS_OF_TEXT,
         "output = labels and labels_of = text"},
        {"label_head", true, labels, "output = labels"},
        {"label_bias", c->label_bias, labels, "output = labels"},
        {"nsp_head", c->nsp_head, tokens && c->mask == LF_MASK_BOTH,
         "output = tokens and mask = both"},
        {"generator_hidden", c->generator_hidden > 0, c->generator_layers > 0, "generator_layers"},
        {"generator_heads", c->generator_heads > 0, c->generator_layers > 0, "generator_layers"},
        {"generator_ffn", c->generator_ffn > 0, c->generator_layers > 0, "generator_layers"},
        {"mtp_join", true, c->mtp_layers > 0, "mtp_layers"},
        {"mtp_mlp", true, c->mtp_layers > 0, "mtp_layers"},
        {"mtp_norm", true, c->mtp_layers > 0, "mtp_layers"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].set && !rows[i].read && lf_model_by_hand(c, rows[i].key))
            CONTRADICTION(rows[i].key, "means nothing without %s", rows[i].needs);
    return 0;
}

/* Keys that only a mixture of experts reads. */
static int check_no_experts(const lf_model_config *c, lf_err *err)
{
    static const char *const keys[] = {
        "experts_per_token", "expert_ffn",       "expert_latent",      "shared_ffn",
        "shared_gate",       "expert_bias",      "router_linear_bias", "router_score",
        "router_renorm",     "router_scale",     "router_groups",      "router_top_groups",
        "router_bias",       "router_bias_rate", "router_aux",         "router_norm",
        "router_on_input",   "expert_gain",      "capacity_factor"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (lf_model_by_hand(c, keys[i]))
            CONTRADICTION(keys[i], "means nothing without experts");
    return 0;
}

static int check_experts(lf_model_config *c, lf_err *err)
{
    const int64_t groups = c->router_groups;
    if (!c->experts)
        return check_no_experts(c, err);
    if (c->expert_ffn == 0)
        c->expert_ffn = c->ffn;
    if (c->experts_per_token < 1 || c->experts_per_token > c->experts)
        CONTRADICTION("experts_per_token", "%lld of %lld experts", (long long)c->experts_per_token,
                      (long long)c->experts);
    if (c->mlp_bias)
        CONTRADICTION("mlp_bias", "experts have a bias by expert_bias: mlp_bias = no");
    if (c->expert_latent == c->hidden)
        CONTRADICTION("expert_latent",
                      "equals hidden; leave it out, then there are no projections");
    if (c->router_on_input && (c->experts_per_token > 1 || c->expert_latent))
        CONTRADICTION("router_on_input", "%s",
                      c->expert_latent ? "what experts read with expert_latent is made of it before"
                                       : "a token has one expert then: experts_per_token = 1");
    if (c->shared_gate && !c->shared_ffn)
        CONTRADICTION("shared_gate", "means nothing without shared_ffn");
    if (lf_model_moe_layers(c) < 1)
        CONTRADICTION("experts", "no layer has them: layer_mlps = %s (%s)", c->layer_mlps.text,
                      lf_model_origin(c, "layer_mlps"));
    if (c->experts % groups || c->router_top_groups > groups ||
        c->experts / groups * c->router_top_groups < c->experts_per_token)
        CONTRADICTION(
            "router_groups",
            "%lld groups, %lld of them chosen, of %lld experts do not leave %lld to choose",
            (long long)groups, (long long)c->router_top_groups, (long long)c->experts,
            (long long)c->experts_per_token);
    if (!c->router_bias && lf_model_by_hand(c, "router_bias_rate"))
        CONTRADICTION("router_bias_rate", "means nothing without router_bias");
    return 0;
}

static int check_factors(const lf_model_config *c, const char *key, const lf_model_list *l,
                         lf_err *err)
{
    if (l->n != lf_model_rope_dim(c) / 2)
        CONTRADICTION(key, "%lld numbers, but %lld pairs of channels turn", (long long)l->n,
                      (long long)(lf_model_rope_dim(c) / 2));
    return 0;
}

static int check_scaling(const lf_model_config *c, lf_err *err)
{
    if (c->position != LF_POS_ROPE)
        return 0;
    if (c->rope_scaling == LF_ROPE_LLAMA3 && c->rope_low_freq_factor >= c->rope_high_freq_factor)
        CONTRADICTION("rope_low_freq_factor", "%g must be below rope_high_freq_factor = %g",
                      c->rope_low_freq_factor, c->rope_high_freq_factor);
    if (c->rope_scaling == LF_ROPE_PLAIN && given(c, "rope_factor") && fabs(c->rope_factor - 1) > 0)
        CONTRADICTION("rope_factor", "means nothing without rope_scaling");
    if (c->rope_scaling == LF_ROPE_YARN && c->rope_beta_fast < c->rope_beta_slow)
        CONTRADICTION("rope_beta_fast", "%g must not be below rope_beta_slow = %g",
                      c->rope_beta_fast, c->rope_beta_slow);
    if (c->rope_scaling == LF_ROPE_PROPORTIONAL && c->heads &&
        c->rope_fraction * (double)c->head_dim / 2 + 1e-9 < 1)
        CONTRADICTION(
            "rope_fraction",
            "%g of the %lld pairs of a head's channels is none that turns; layers that do "
            "not turn have the letter n in layer_positions",
            c->rope_fraction, (long long)c->head_dim / 2);
    if (c->rope_scaling >= LF_ROPE_YARN && c->rope_scaling != LF_ROPE_PROPORTIONAL &&
        !given(c, "rope_original_positions"))
        CONTRADICTION(
            "rope_scaling",
            "needs rope_original_positions, the length that the model was trained at first");
    if (c->rope_scaling != LF_ROPE_LONGROPE)
        return 0;
    int rc = check_factors(c, "rope_short_factors", &c->rope_short_factors, err);
    return rc != 0 ? rc : check_factors(c, "rope_long_factors", &c->rope_long_factors, err);
}

static int check_position(const lf_model_config *c, lf_err *err)
{
    static const char *const rope_only[] = {"rope_theta", "rope_fraction", "rope_interleaved",
                                            "rope_backwards", "rope_scaling"};
    const int64_t rot = lf_model_rope_dim(c);
    if (c->position == LF_POS_ROPE && !c->heads)
        return 0; /* nothing turns */
    if (c->position != LF_POS_ROPE && c->position != LF_POS_ROPE2D) {
        /* A family may have set them; a user who sets both means something else. */
        for (size_t i = 0; i < sizeof(rope_only) / sizeof(rope_only[0]); i++)
            if (lf_model_by_hand(c, rope_only[i]) && lf_model_by_hand(c, "position"))
                CONTRADICTION(rope_only[i], "set, but position is not rope (%s)",
                              lf_model_origin(c, "position"));
    } else if (rot < 2 || rot % 2) {
        CONTRADICTION(given(c, "rope_fraction") ? "rope_fraction" : "head_dim",
                      "rope turns pairs of channels, but %g of %lld is %lld", c->rope_fraction,
                      (long long)c->head_dim / (c->position == LF_POS_ROPE2D ? 2 : 1),
                      (long long)rot);
    }
    if (c->position == LF_POS_ROPE2D && c->rope_scaling != LF_ROPE_PLAIN)
        CONTRADICTION("rope_scaling", "is for position = rope, not for rope2d");
    if (c->position == LF_POS_ROPE2D && c->mask != LF_MASK_PREFIX)
        CONTRADICTION("position",
                      "rope2d counts from the end of the prefix: it needs mask = prefix");
    if (c->position == LF_POS_ALIBI && c->mask == LF_MASK_PREFIX)
        CONTRADICTION("mask",
                      "ALiBi is a penalty for distance into the past; a prefix looks ahead");
    if (c->position == LF_POS_ALIBI && c->mask == LF_MASK_IMAGE_BLOCKS)
        CONTRADICTION("mask", "ALiBi is a penalty for distance into the past; tokens of a picture "
                              "look ahead");
    if (c->logn_length == 1)
        CONTRADICTION("logn_length", "log(1) is 0: it is 0 (off) or at least 2");
    if (c->logn_length && (c->position != LF_POS_ROPE || lf_model_rope_dim(c) != c->head_dim))
        CONTRADICTION("logn_length",
                      "needs rope over the whole head: it rides on the tables that turn the query");
    if (c->qk_norm && c->qk_norm_after_rope && (c->logn_length || c->query_growth > 0))
        CONTRADICTION("qk_norm_after_rope", "would undo %s",
                      c->logn_length ? "logn_length" : "query_growth");
    if (c->query_growth > 0 && (c->position != LF_POS_ROPE || c->logn_length ||
                                (!c->kv_lora && lf_model_rope_dim(c) != c->head_dim) ||
                                c->rope_scaling == LF_ROPE_LONGROPE))
        CONTRADICTION("query_growth", "needs rope over the whole head, without logn_length and "
                                      "longrope: it rides on the tables that turn the query");
    if (c->nope_growth > 0 && c->window_head_dim)
        CONTRADICTION("nope_growth", "it rides on a table for heads of one width: no "
                                     "window_head_dim");
    if (c->qk_unit_norm && (c->qk_norm || c->logn_length || c->query_growth > 0))
        CONTRADICTION("qk_unit_norm", "%s",
                      c->qk_norm ? "qk_norm has norms with weights in its place"
                                 : "would undo logn_length and query_growth");
    if (c->qk_unit_norm && c->position != LF_POS_ROPE)
        CONTRADICTION("qk_unit_norm", "stands behind RoPE: position = rope");
    if (c->position != LF_POS_LEARNED && c->position_offset)
        CONTRADICTION("position_offset", "belongs to position = learned");
    return 0;
}

/* Pairs of a head, each of which turns by one of three positions. */
static int check_sections(const lf_model_config *c, lf_err *err)
{
    const lf_model_list *l = &c->rope_sections;
    double sum = 0;
    for (int64_t i = 0; i < l->n; i++)
        sum += l->v[i];
    if (!l->n)
        return 0;
    if (c->position != LF_POS_ROPE || c->rope_scaling == LF_ROPE_LONGROPE || c->logn_length ||
        c->query_growth > 0)
        CONTRADICTION("rope_sections", "they are for position = rope without longrope, "
                                       "logn_length and query_growth");
    if (l->n != 3 || fabs(sum - (double)lf_model_rope_dim(c) / 2) > 0)
        CONTRADICTION("rope_sections",
                      "%lld numbers with the sum %g, but the %lld pairs of a head that turn are "
                      "divided among time, row and column",
                      (long long)l->n, sum, (long long)lf_model_rope_dim(c) / 2);
    return 0;
}

static int check_projector(lf_model_config *c, lf_err *err)
{
    lf_projector_config *p = &c->projector;
    if (p->merge > 1 && p->pool > 1)
        CONTRADICTION("projector.merge", "patches are merged or their mean is taken "
                                         "(projector.pool), not both");
    if (c->vision.windows && (c->vision.window < 1 || c->vision.window % p->merge))
        CONTRADICTION("vision.window",
                      "%lld patches a side are not a multiple of "
                      "projector.merge = %lld",
                      (long long)c->vision.window, (long long)p->merge);
    if (p->keep_class && (!c->vision.class_token || p->merge > 1 || p->pool > 1 || p->newline))
        CONTRADICTION("projector.keep_class", "%s",
                      c->vision.class_token
                          ? "a class token is no part of a grid, which projector.merge, "
                            "projector.pool and projector.newline need"
                          : "there is none without vision.class_token");
    if (p->most_tiles && !p->newline)
        CONTRADICTION("projector.most_tiles", "tiles are shrunk together with projector.newline");
    if (p->norm_merged && (p->norm == LF_PROJECTOR_NO_NORM || p->merge == 1))
        CONTRADICTION("projector.norm_merged", "there is no norm over merged patches without "
                                               "projector.norm and projector.merge");
    if (p->reduce && p->merge == 1)
        CONTRADICTION("projector.reduce", "there are no merged patches without projector.merge");
    if (p->reduce && c->vision.taps.n)
        CONTRADICTION("projector.reduce", "projectors of vision.taps have no such matrix");
    if (p->kind == LF_PROJECTOR_MLP && p->hidden == 0)
        p->hidden = lf_model_projected_width(c);
    if (p->kind == LF_PROJECTOR_LINEAR && p->hidden)
        CONTRADICTION("projector.hidden", "a linear projector has no inner width");
    if (c->vision.taps.n > LF_MODEL_MAX_TAPS)
        CONTRADICTION("vision.taps", "%lld of them; there are at most %d",
                      (long long)c->vision.taps.n, LF_MODEL_MAX_TAPS);
    if (c->vision.taps.n > c->layers)
        CONTRADICTION("vision.taps", "%lld layers are tapped for %lld decoder layers",
                      (long long)c->vision.taps.n, (long long)c->layers);
    if (c->vision.taps.n && c->embed_dim)
        CONTRADICTION("vision.taps", "they enter a stream as wide as the embedding (embed_dim)");
    return 0;
}

static int check_dual(lf_model_config *c, lf_err *err)
{
    if (!c->vision.family)
        CONTRADICTION("dual.dim", "one of both towers is an encoder of pictures: give "
                                  "vision.family");
    if (!c->vision.head_dim && c->vision.heads)
        c->vision.head_dim = c->vision.hidden / c->vision.heads;
    const int rc = lf_vision_check(&c->vision, err);
    return rc != 0 ? rc : lf_dual_check(c, err);
}

static int check_sight(lf_model_config *c, lf_err *err)
{
    for (size_t i = 0; i < lf_model_n_keys && !c->vision.family; i++)
        if (lf_model_key_sees(&lf_model_keys[i]) && given(c, lf_model_keys[i].name))
            CONTRADICTION(lf_model_keys[i].name, "nothing reads it without vision.family");
    if (!c->vision.family && c->mask == LF_MASK_IMAGE_BLOCKS)
        CONTRADICTION("mask", "image_blocks is for tokens of pictures, and nothing sees any: "
                              "vision.family is not given");
    for (size_t i = 0; i < lf_model_n_keys; i++) {
        const char *key = lf_model_keys[i].name;
        if (lf_model_key_restores(&lf_model_keys[i]) && lf_model_by_hand(c, key))
            CONTRADICTION(key, "means nothing without mae.layers");
        if (lf_model_key_classifies(&lf_model_keys[i]) && lf_model_by_hand(c, key))
            CONTRADICTION(key, "means nothing without classes.labels");
        if (lf_model_key_compares(&lf_model_keys[i]) && !lf_model_is_dual(c) &&
            lf_model_by_hand(c, key))
            CONTRADICTION(key, "means nothing without dual.dim");
        if (lf_model_is_dual(c) && lf_model_key_sees(&lf_model_keys[i]) &&
            !lf_model_key_compares(&lf_model_keys[i]) && strncmp(key, "vision.", 7) != 0 &&
            lf_model_by_hand(c, key))
            CONTRADICTION(key, "pictures enter no text where both have towers (dual.dim)");
    }
    if (lf_model_is_dual(c))
        return check_dual(c, err);
    if (!c->vision.family)
        return 0;
    if (c->vision.distill_token)
        CONTRADICTION("vision.distill_token", "it is of a model that tells classes of pictures "
                                              "(classes.labels): nothing of a text reads it");
    if (c->vision.stage_layers.n)
        CONTRADICTION("vision.stage_layers", "it is of a model that tells classes of pictures "
                                             "(classes.labels): no projector reads its rows");
    if (c->altup_streams)
        CONTRADICTION("altup_streams", "rows of pictures enter one stream: leave out "
                                       "vision.family");
    if (c->per_layer_dim)
        CONTRADICTION("per_layer_dim", "rows of pictures have no token whose channels layers could "
                                       "read: leave out vision.family");
    if (c->prefix_last && (c->mask != LF_MASK_PREFIX || c->position == LF_POS_ROPE2D))
        CONTRADICTION("prefix_last", "it is for mask = prefix, without position = rope2d");
    lf_vision_settle(&c->vision);
    int rc = lf_vision_check(&c->vision, err);
    if (rc == 0)
        rc = check_projector(c, err);
    return rc != 0 ? rc : check_sections(c, err);
}

/* Heads that predict later tokens read embeddings of tokens that stand behind theirs. */
static int check_mtp(const lf_model_config *c, lf_err *err)
{
    const struct {
        const char *key;
        bool set;
        const char *why;
    } without[] = {
        {"vision.family", c->vision.family > 0, "what a token of a picture reads is no embedding"},
        {"mask", c->mask != LF_MASK_CAUSAL, "a token that sees what follows it knows the answer"},
        {"embed_dim", c->embed_dim > 0, "the embedding is as wide as the stream there"},
        {"embed_norm", c->embed_norm, "the embedding has a norm of their own there"},
        {"final_norm", !c->final_norm, "they read what is behind that norm"},
        {"position", c->position == LF_POS_LEARNED, "it is added to the embedding"},
        {"per_layer_dim", c->per_layer_dim > 0, "it has channels for the layers of the model"},
        {"kv_shared_layers", c->kv_shared_layers > 0, "it has keys and values of its own"},
        {"altup_streams", c->altup_streams > 0, "it reads one stream"},
    };
    for (size_t i = 0; c->mtp_layers && i < sizeof without / sizeof *without; i++)
        if (without[i].set)
            CONTRADICTION(without[i].key, "does not go with mtp_layers = %lld: %s",
                          (long long)c->mtp_layers, without[i].why);
    return 0;
}

/* Is it another of the encoders that transformers has classes of? A part that only `one` of them
 * has would keep such a model from ever going out. */
static bool other_encoder(const char *family, const char *one)
{
    static const char *const known[] = {
        "bert",          "roberta",       "xlm-roberta",          "camembert",
        "distilbert",    "electra",       "modernbert",           "ernie",
        "data2vec-text", "megatron-bert", "roberta-prelayernorm", "xlm-roberta-xl"};
    bool is = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        is = is || strcmp(family, known[i]) == 0;
    return is && strcmp(family, one) != 0;
}

/* Encoders of texts, and what only they have so far. */
static int check_both(const lf_model_config *c, lf_err *err)
{
    const struct {
        const char *key;
        bool set;
        const char *why;
    } without[] = {
        {"output", c->output == LF_OUTPUT_SCORE,
         "a score is read where a text ends; take output = labels"},
        {"position", c->position == LF_POS_ALIBI, "ALiBi is a penalty for distance into the past"},
        {"layer_mixers", state_mixer(c) != 0,
         "a mixer that carries a state sees nothing behind a token"},
        {"attn_chunk", c->attn_chunk > 0, "chunks are of what comes before"},
        {"vision.family", c->vision.family > 0 && !lf_model_is_dual(c),
         "pictures stand before what is written of them"},
        {"per_layer_dim", c->per_layer_dim > 0, "it is of decoders"},
        {"altup_streams", c->altup_streams > 0, "it is of decoders"},
    };
    for (size_t i = 0; c->mask == LF_MASK_BOTH && i < sizeof without / sizeof *without; i++)
        if (without[i].set)
            CONTRADICTION(without[i].key, "does not go with mask = both: %s", without[i].why);
    if (c->token_types && c->mask != LF_MASK_BOTH)
        CONTRADICTION("token_types", "the two texts of a pair are read by mask = both alone");
    if (c->token_types && c->embed_dim && !c->embed_narrow)
        CONTRADICTION("token_types", "their rows are as wide as the stream: leave out embed_dim, "
                                     "or give embed_narrow");
    if (c->embed_narrow && (!c->embed_dim || c->mask != LF_MASK_BOTH))
        CONTRADICTION("embed_narrow", "is of an embedding that has a width of its own (embed_dim), "
                                      "of encoders (mask = both)");
    if (c->embed_narrow && c->output == LF_OUTPUT_TOKENS && !c->head_transform)
        CONTRADICTION("embed_narrow", "the head over the vocabulary is as wide as the embedding: "
                                      "head_transform leads to it");
    if (c->embed_narrow && lf_model_by_hand(c, "embed_narrow") &&
        other_encoder(c->family, "electra"))
        CONTRADICTION("embed_narrow",
                      "is of family = electra; the class of family %s has an embedding "
                      "as wide as its stream",
                      c->family);
    if (c->nsp_head && lf_model_by_hand(c, "nsp_head") && other_encoder(c->family, "bert"))
        CONTRADICTION("nsp_head", "is of family = bert; no class of family %s has it", c->family);
    if (!c->first_norm && (c->block != LF_BLOCK_PRE || c->parallel_block != LF_PARALLEL_NO ||
                           !lf_model_layer_attends(c, 0) || lf_model_layer_scans(c, 0)))
        CONTRADICTION("first_norm", "is of block = pre without parallel_block, whose first layer "
                                    "attends");
    const bool wide = c->embed_dim && !c->embed_narrow;
    if (c->head_transform && (c->mtp_layers || wide || c->activation == LF_MODEL_XIELU))
        CONTRADICTION("head_transform", "does not go with %s",
                      c->mtp_layers ? "mtp_layers: they share the head alone"
                      : wide        ? "embed_dim: it is as wide as the stream"
                                    : "activation = xielu, whose numbers are of layers");
    return 0;
}

static int check_labels(const lf_model_config *c, lf_err *err)
{
    if (c->output != LF_OUTPUT_LABELS)
        return 0;
    if (c->labels < 1)
        CONTRADICTION("labels", "output = labels needs how many there are");
    if (c->labels_of == LF_LABELS_OF_SPAN && c->labels != 2)
        CONTRADICTION("labels", "a span has two, its begin and its end (labels_of = span)");
    if (c->labels_of == LF_LABELS_OF_TEXT && c->label_row == LF_LABEL_FIRST &&
        c->mask != LF_MASK_BOTH)
        CONTRADICTION("label_row", "the first token of a text sees nothing of it without mask = "
                                   "both; take label_row = last");
    if (c->label_head == LF_LABEL_TRANSFORM && !c->head_transform)
        CONTRADICTION("label_head", "transform is that of head_transform, which is no");
    if (c->label_head == LF_LABEL_TRANSFORM && c->embed_narrow)
        CONTRADICTION("label_head", "transform leads to the narrow embedding (embed_narrow), and "
                                    "labels read the stream");
    if (c->mask == LF_MASK_PREFIX)
        CONTRADICTION("output",
                      "labels are read of a text; with mask = prefix nobody says where its "
                      "prefix ends");
    if (c->vision.family)
        CONTRADICTION("output", "labels are of texts alone, and this model sees (vision.family)");
    return 0;
}

static int check_encoder(lf_model_config *c, lf_err *err)
{
    lf_vision_settle(&c->vision);
    return lf_vision_check(&c->vision, err);
}

int lf_model_heads_fit(const lf_model_config *c, int64_t most, const char *target, lf_err *err)
{
    for (int64_t l = 0; l < c->layers; l++)
        if (lf_model_layer_attends(c, l) && lf_model_layer_head_dim(c, l) > most)
            CONTRADICTION(width_key(c, lf_model_layer_window(c, l) > 0),
                          "heads of layer %lld have %lld channels, and attention on %s takes at "
                          "most %lld; take device = cpu",
                          (long long)l, (long long)lf_model_layer_head_dim(c, l), target,
                          (long long)most);
    return 0;
}

int lf_model_config_finish(lf_model_config *c, lf_err *err)
{
    if (lf_model_restores(c))
        return lf_mae_check(c, err);
    if (lf_model_classifies(c))
        return lf_classes_check(c, err);
    if (lf_model_is_encoder(c))
        return check_encoder(c, err);
    int rc = check_sizes(c, err);
    if (rc == 0)
        rc = lf_model_settle_layers(c, err);
    if (rc == 0)
        rc = check_layers(c, err);
    if (rc == 0)
        rc = check_latent(c, err);
    if (rc == 0)
        rc = check_shared(c, err);
    if (rc == 0)
        rc = check_altup(c, err);
    if (rc == 0)
        rc = check_mixers_read(c, err); /* before defaults are filled in */
    if (rc == 0)
        rc = check_scans(c, err);
    if (rc == 0)
        rc = check_block(c, err);
    if (rc == 0)
        rc = check_position(c, err);
    if (rc == 0)
        rc = check_scaling(c, err);
    if (rc == 0)
        rc = check_experts(c, err);
    if (rc == 0)
        rc = check_unread(c, err);
    if (rc == 0)
        rc = check_sight(c, err);
    if (rc == 0)
        rc = check_mtp(c, err);
    if (rc == 0)
        rc = check_both(c, err);
    if (rc == 0)
        rc = lf_model_check_generator(c, err);
    if (rc == 0)
        rc = check_labels(c, err);
    if (rc == 0)
        rc = lf_model_check_seq2seq(c, err);
    if (rc != 0)
        return rc;
    if (c->norm == LF_NORM_RMS && c->norm_bias)
        CONTRADICTION("norm_bias", "rms norm has no bias");
    if (!c->norm_weight && (c->norm_bias || fabs(c->norm_offset) > 0))
        CONTRADICTION("norm_weight", "norms without weights have no %s",
                      c->norm_bias ? "norm_bias" : "norm_offset");
    if (c->norm_head && c->head_bias)
        CONTRADICTION("head_bias", "a head of unit rows has none (norm_head, %s)",
                      lf_model_origin(c, "norm_head"));
    if (c->output == LF_OUTPUT_SCORE && c->mask == LF_MASK_PREFIX)
        CONTRADICTION("output", "a score is read where a text ends; with mask = prefix nobody says "
                                "where its prefix does");
    if (fabs(c->norm_offset) > 0 && fabs(c->norm_offset - 1) > 0)
        CONTRADICTION("norm_offset", "%g is neither 0 nor 1", c->norm_offset);
    if (c->activation >= LF_MODEL_RELU2 && c->mlp != LF_MLP_PLAIN)
        CONTRADICTION("activation", "relu2 and xielu are for mlp = plain");
    if (c->activation == LF_MODEL_XIELU && c->experts)
        CONTRADICTION("activation", "xielu has numbers of its layer, which experts have none of");
    if (c->activation == LF_ACT_NONE)
        CONTRADICTION("activation", "an MLP without activation is one matrix");
    return 0;
}
