/* SPDX-License-Identifier: Apache-2.0
 *
 * The key table of [model], setting keys from text and writing them back in canonical form. */
#include "engine/model/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/synonym.h"
#include "engine/model/config_priv.h"
#include "engine/model/vision.h"
#include "kernels/kernels.h"

static const char *const norm_names[] = {"rms", "layer", NULL};
static const char *const block_names[] = {"pre", "post",          "sandwich", "alpha",
                                          "out", "out_attention", NULL};
static const char *const position_names[] = {"rope",   "learned",  "alibi", "none",
                                             "rope2d", "relative", NULL};
static const char *const mask_names[] = {"causal", "prefix", "image_blocks", "both", NULL};
static const char *const scaling_names[] = {"none",     "linear",  "llama3",       "yarn",
                                            "longrope", "dynamic", "proportional", NULL};
/* In the order of enum lf_act. */
static const char *const act_names[] = {"none", "gelu", "gelu_tanh", "gelu_quick",
                                        "silu", "relu", NULL};
/* The same and, behind them, LF_MODEL_RELU2 and LF_MODEL_XIELU. */
static const char *const mlp_act_names[] = {"none", "gelu",  "gelu_tanh", "gelu_quick", "silu",
                                            "relu", "relu2", "xielu",     NULL};
static const char *const mlp_names[] = {"glu", "plain", NULL};
static const char *const parallel_names[] = {"no", "one_norm", "two_norms", NULL};
static const char *const router_names[] = {"softmax", "sigmoid", NULL};
static const char *const init_names[] = {"normal", "residual_scaled", "t5", NULL};
static const char *const output_names[] = {"tokens", "score", "labels", NULL};
const char *const lf_class_reads[] = {"class", "mean", "both", NULL};
static const char *const dual_read_names[] = {"class", "attention", NULL};
static const char *const labels_of_names[] = {"text", "token", "span", NULL};
static const char *const label_row_names[] = {"last", "first", NULL};
static const char *const label_head_names[] = {"plain", "tanh", "relu", "transform", "gelu", NULL};
static const char *const mtp_join_names[] = {"embed_hidden", "hidden_embed", NULL};
static const char *const mtp_mlp_names[] = {"last", "dense", NULL};
static const char *const mtp_norm_names[] = {"own", "final", NULL};
static const char *const merge_norm_names[] = {"together", "behind", "each", NULL};
static const char *const projector_names[] = {"linear", "mlp", NULL};
static const char *const projector_norm_names[] = {"none", "rms", "layer", NULL};
static const char *const mixer_letters[] = {"fwhnsgklbc", NULL};
static const char *const scan_gate_names[] = {"none", "silu", "sigmoid", NULL};
static const char *const scan_norm_names[] = {"none", "before_gate", "after_gate", NULL};
static const char *const mlp_letters[] = {"dmnb", NULL};
static const char *const turn_letters[] = {"rln", NULL};
static const char *const score_init_names[] = {"sqrt", "inverse", "init_std", "zero", NULL};

#define AT(field) offsetof(lf_model_config, field)
#define COUNT(field, min, max, def)                                                                \
    {                                                                                              \
#field, LF_MK_COUNT, AT(field), min, max, NULL, def                                        \
    }
#define REAL(field, min, max, def)                                                                 \
    {                                                                                              \
#field, LF_MK_REAL, AT(field), min, max, NULL, def                                         \
    }
#define BOOL(field, def)                                                                           \
    {                                                                                              \
#field, LF_MK_BOOL, AT(field), 0, 0, NULL, def                                             \
    }
#define ENUM(field, names, def)                                                                    \
    {                                                                                              \
#field, LF_MK_ENUM, AT(field), 0, 0, names, def                                            \
    }

#define LIST(field, min, max)                                                                      \
    {                                                                                              \
#field, LF_MK_LIST, AT(field), min, max, NULL, ""                                          \
    }

#define PATTERN(field, letters)                                                                    \
    {                                                                                              \
#field, LF_MK_PATTERN, AT(field), 0, 0, letters, ""                                        \
    }

const struct lf_model_key lf_model_keys[] = {
    COUNT(layers, 1, 4096, NULL),
    PATTERN(layer_mixers, mixer_letters),
    PATTERN(layer_mlps, mlp_letters),
    PATTERN(layer_positions, turn_letters),
    COUNT(hidden, 1, 1 << 20, NULL),
    COUNT(heads, 0, 65536, "0"),
    COUNT(kv_heads, 0, 65536, "0"),
    COUNT(head_dim, 0, 65536, "0"),
    COUNT(kv_lora, 0, 1 << 20, "0"),
    COUNT(q_lora, 0, 1 << 20, "0"),
    COUNT(nope_dim, 0, 256, "0"),
    COUNT(rope_dim, 0, 256, "0"),
    COUNT(v_dim, 0, 256, "0"),
    REAL(mla_norm_eps, 1e-12, 1e-1, "1e-6"),
    REAL(rope_mscale_all, 0, 100, "0"),
    COUNT(ffn, 0, 1 << 24, "0"),
    COUNT(vocab, 0, 1 << 24, "0"),
    COUNT(max_positions, 1, 1 << 27, NULL),
    COUNT(embed_dim, 0, 1 << 20, "0"),
    BOOL(embed_narrow, "no"),
    ENUM(block, block_names, "pre"),
    REAL(residual_alpha, 0, 1e6, "0"),
    REAL(residual_scale, 1e-6, 1e6, "1"),
    LIST(residual_factors, 0, 1e6),
    BOOL(final_norm, "yes"),
    ENUM(norm, norm_names, "rms"),
    REAL(norm_eps, 1e-12, 1e-1, "1e-5"),
    REAL(norm_offset, -1, 1, "0"),
    BOOL(norm_weight, "yes"),
    BOOL(norm_bias, "no"),
    BOOL(embed_norm, "no"),
    BOOL(first_norm, "yes"),
    ENUM(position, position_names, "rope"),
    COUNT(position_offset, 0, 1024, "0"),
    COUNT(token_types, 0, 1024, "0"),
    REAL(rope_theta, 1, 1e12, "10000"),
    REAL(rope_local_theta, 0, 1e12, "0"),
    REAL(rope_fraction, 0.01, 1, "1"),
    BOOL(rope_interleaved, "no"),
    BOOL(rope_backwards, "no"),
    ENUM(rope_scaling, scaling_names, "none"),
    REAL(rope_factor, 1, 1e6, "1"),
    REAL(rope_low_freq_factor, 1e-3, 1e6, "1"),
    REAL(rope_high_freq_factor, 1e-3, 1e6, "4"),
    REAL(rope_beta_fast, 1e-3, 1e6, "32"),
    REAL(rope_beta_slow, 1e-3, 1e6, "1"),
    BOOL(rope_truncate, "yes"),
    REAL(rope_attn_factor, 0, 1e6, "0"),
    LIST(rope_short_factors, 1e-3, 1e6),
    LIST(rope_long_factors, 1e-3, 1e6),
    COUNT(rope_original_positions, 1, 1 << 27, "8192"),
    COUNT(logn_length, 0, 1 << 27, "0"),
    REAL(query_growth, 0, 1e3, "0"),
    REAL(nope_growth, 0, 1e3, "0"),
    COUNT(nope_growth_length, 1, 1 << 27, "8192"),
    ENUM(activation, mlp_act_names, "silu"),
    ENUM(mlp, mlp_names, "glu"),
    REAL(glu_limit, 0, 1e6, "0"),
    REAL(glu_up_offset, -1e3, 1e3, "0"),
    REAL(mlp_gate_scale, 1e-6, 1e6, "1"),
    REAL(mlp_out_scale, 1e-6, 1e6, "1"),
    BOOL(qkv_bias, "no"),
    BOOL(out_bias, "no"),
    BOOL(mlp_bias, "no"),
    BOOL(head_bias, "no"),
    BOOL(attn_gate, "no"),
    BOOL(qk_norm, "no"),
    BOOL(qk_norm_all_heads, "no"),
    BOOL(qk_norm_after_rope, "no"),
    BOOL(qk_unit_norm, "no"),
    BOOL(v_norm, "no"),
    BOOL(keys_as_values, "no"),
    COUNT(kv_shared_layers, 0, 4096, "0"),
    COUNT(kv_shared_ffn, 0, 1 << 24, "0"),
    COUNT(per_layer_dim, 0, 1 << 16, "0"),
    COUNT(per_layer_vocab, 0, 1 << 24, "0"),
    COUNT(altup_streams, 0, 8, "0"),
    COUNT(laurel_rank, 0, 1 << 16, "0"),
    LIST(gate_sparsity, 0, 0.999999),
    BOOL(layer_gain, "no"),
    BOOL(tied_head, "no"),
    BOOL(norm_head, "no"),
    BOOL(head_transform, "no"),
    BOOL(head_transform_bias, "no"),
    ENUM(output, output_names, "tokens"),
    COUNT(labels, 0, 1 << 20, "0"),
    ENUM(labels_of, labels_of_names, "text"),
    ENUM(label_row, label_row_names, "last"),
    ENUM(label_head, label_head_names, "plain"),
    BOOL(label_bias, "no"),
    BOOL(nsp_head, "no"),
    COUNT(generator_layers, 0, 4096, "0"),
    COUNT(generator_hidden, 0, 1 << 20, "0"),
    COUNT(generator_heads, 0, 65536, "0"),
    COUNT(generator_ffn, 0, 1 << 24, "0"),
    COUNT(mtp_layers, 0, LF_MORE_HEADS, "0"),
    ENUM(mtp_join, mtp_join_names, "embed_hidden"),
    ENUM(mtp_mlp, mtp_mlp_names, "last"),
    ENUM(mtp_norm, mtp_norm_names, "own"),
    ENUM(mask, mask_names, "causal"),
    COUNT(sliding_window, 0, 1 << 27, "0"),
    COUNT(attn_chunk, 0, 1 << 27, "0"),
    COUNT(window_kv_heads, 0, 65536, "0"),
    COUNT(window_head_dim, 0, 65536, "0"),
    COUNT(scan_heads, 0, 65536, "0"),
    COUNT(scan_groups, 0, 65536, "0"),
    COUNT(scan_key_dim, 0, LF_SCAN_MOST_D, "0"),
    COUNT(scan_value_dim, 0, LF_SCAN_MOST_D, "0"),
    COUNT(scan_conv, 0, LF_CONV_MOST_TAPS, "0"),
    BOOL(scan_conv_bias, "no"),
    BOOL(scan_bias, "no"),
    ENUM(scan_gate, scan_gate_names, "none"),
    ENUM(scan_norm, scan_norm_names, "none"),
    COUNT(scan_norm_parts, 0, 65536, "0"),
    REAL(scan_norm_eps, 0, 1e-1, "0"),
    COUNT(scan_rank, 0, 1 << 20, "0"),
    REAL(scan_step_min, 0, 1e6, "0"),
    REAL(scan_step_max, 0, 1e6, "0"),
    REAL(scan_strength, 1e-6, 2, "1"),
    LIST(scan_scales, 1e-6, 1e6),
    REAL(scan_in_scale, 1e-6, 1e6, "1"),
    REAL(scan_out_scale, 1e-6, 1e6, "1"),
    REAL(attn_in_scale, 1e-6, 1e6, "1"),
    REAL(attn_out_scale, 1e-6, 1e6, "1"),
    ENUM(parallel_block, parallel_names, "no"),
    REAL(attn_scale, 0, 1e6, "0"),
    REAL(attn_softcap, 0, 1e6, "0"),
    BOOL(attn_sinks, "no"),
    REAL(logit_softcap, 0, 1e6, "0"),
    REAL(logit_scale, 1e-6, 1e6, "1"),
    REAL(embed_scale, 1e-6, 1e6, "1"),
    REAL(embed_dropout, 0, 0.99, "0"),
    REAL(attn_dropout, 0, 0.99, "0"),
    REAL(mlp_dropout, 0, 0.99, "0"),
    REAL(attn_prob_dropout, 0, 0.99, "0"),
    REAL(init_std, 0, 10, "0.02"),
    ENUM(init, init_names, "normal"),
    ENUM(score_init, score_init_names, "sqrt"),
    COUNT(experts, 0, LF_MOE_MAX_EXPERTS, "0"),
    COUNT(experts_per_token, 0, LF_MOE_MAX_EXPERTS, "0"),
    COUNT(expert_ffn, 0, 1 << 24, "0"),
    COUNT(expert_latent, 0, 1 << 20, "0"),
    COUNT(shared_ffn, 0, 1 << 24, "0"),
    BOOL(shared_gate, "no"),
    BOOL(expert_bias, "no"),
    BOOL(router_linear_bias, "no"),
    BOOL(router_norm, "no"),
    BOOL(expert_gain, "no"),
    ENUM(router_score, router_names, "softmax"),
    BOOL(router_renorm, "no"),
    BOOL(router_on_input, "no"),
    REAL(router_scale, 1e-6, 1e6, "1"),
    COUNT(router_groups, 1, LF_MOE_MAX_EXPERTS, "1"),
    COUNT(router_top_groups, 1, LF_MOE_MAX_EXPERTS, "1"),
    BOOL(router_bias, "no"),
    REAL(router_bias_rate, 0, 1, "0.001"),
    REAL(router_aux, 0, 1e3, "0"),
    REAL(capacity_factor, 0, 1e3, "0"),
    COUNT(encoder_layers, 0, 4096, "0"),
    COUNT(encoder_heads, 0, 65536, "0"),
    COUNT(encoder_ffn, 0, 1 << 24, "0"),
    COUNT(decoder_start, 0, 1 << 24, "0"),
    COUNT(relative_buckets, 0, 1 << 20, "32"),
    COUNT(relative_distance, 0, 1 << 20, "128"),
    BOOL(relative_each_layer, "no"),
    /* Of models that see alone, from here on. The family sets all of vision.*, and comes first. */
    ENUM(vision.family, lf_vision_families, "none"),
    COUNT(vision.layers, 1, 4096, ""),
    COUNT(vision.hidden, 1, 1 << 20, ""),
    COUNT(vision.heads, 0, 65536, ""),
    COUNT(vision.head_dim, 0, 65536, ""),
    COUNT(vision.ffn, 1, 1 << 24, ""),
    COUNT(vision.patch_dim, 1, 1 << 20, ""),
    BOOL(vision.patch_bias, ""),
    BOOL(vision.class_token, ""),
    BOOL(vision.distill_token, ""),
    COUNT(vision.positions, 0, 1 << 24, ""),
    BOOL(vision.fixed_positions, ""),
    BOOL(vision.rope, ""),
    REAL(vision.rope_theta, 0, 1e12, ""),
    BOOL(vision.rope_own, ""),
    BOOL(vision.rope_interleaved, ""),
    COUNT(vision.rope_side, 0, 4096, ""),
    BOOL(vision.buckets, ""),
    BOOL(vision.smooth_positions, ""),
    ENUM(vision.norm, norm_names, ""),
    REAL(vision.norm_eps, 1e-12, 1e-1, ""),
    BOOL(vision.pre_norm, ""),
    BOOL(vision.final_norm, ""),
    BOOL(vision.qkv_bias, ""),
    BOOL(vision.bias, ""),
    BOOL(vision.bare_keys, ""),
    BOOL(vision.qk_norm, ""),
    BOOL(vision.attn_inner_norm, ""),
    BOOL(vision.mlp_inner_norm, ""),
    BOOL(vision.layer_scale, ""),
    ENUM(vision.mlp, mlp_names, ""),
    ENUM(vision.activation, act_names, ""),
    BOOL(vision.windows, ""),
    COUNT(vision.window, 0, 4096, ""),
    LIST(vision.full_layers, 0, 4095),
    LIST(vision.stage_layers, 1, 4096),
    LIST(vision.stage_widths, 1, 1 << 20),
    LIST(vision.stage_heads, 1, 65536),
    ENUM(vision.merge_norm, merge_norm_names, ""),
    BOOL(vision.merge_bias, ""),
    COUNT(vision.grid, 0, 4096, ""),
    BOOL(vision.shifted, ""),
    COUNT(vision.conv_taps, 0, 15, ""),
    BOOL(vision.mix_patches, ""),
    BOOL(vision.affine, ""),
    BOOL(vision.cosine, ""),
    BOOL(vision.out_norm, ""),
    LIST(vision.trained_windows, 0, 4096),
    REAL(vision.init_std, 0, 10, ""),
    REAL(vision.layer_scale_init, 0, 10, ""),
    COUNT(vision.read_layers, 0, 4096, ""),
    BOOL(vision.read_norm, ""),
    LIST(vision.read_states, 0, 4096),
    LIST(vision.taps, 0, 4095),
    COUNT(mae.layers, 0, 4096, ""),
    COUNT(mae.hidden, 1, 1 << 20, ""),
    COUNT(mae.heads, 1, 65536, ""),
    COUNT(mae.ffn, 0, 1 << 24, ""),
    COUNT(classes.labels, 0, 1 << 20, ""),
    ENUM(classes.read, lf_class_reads, ""),
    COUNT(dual.dim, 0, 1 << 20, "0"),
    ENUM(dual.read, dual_read_names, "class"),
    BOOL(dual.text_bias, "no"),
    BOOL(dual.bias, "no"),
    BOOL(dual.padded, "no"),
    COUNT(dual.pad_token, 0, 1 << 24, "0"),
    COUNT(dual.end_token, -1, 1 << 24, "-1"),
    REAL(dual.scale_init, -100, 100, "2.6592600369327779"),
    REAL(dual.bias_init, -1000, 1000, "0"),
    BOOL(classes.norm, ""),
    REAL(classes.norm_eps, 0, 1, ""),
    ENUM(projector.kind, projector_names, "mlp"),
    COUNT(projector.merge, 1, 16, "1"),
    COUNT(projector.pool, 1, 64, "1"),
    ENUM(projector.norm, projector_norm_names, "none"),
    BOOL(projector.norm_merged, "no"),
    REAL(projector.norm_eps, 1e-12, 1e-1, "1e-6"),
    REAL(projector.norm_offset, 0, 1, "0"),
    BOOL(projector.reduce, "no"),
    COUNT(projector.hidden, 0, 1 << 24, "0"),
    ENUM(projector.activation, act_names, "gelu"),
    BOOL(projector.bias, "yes"),
    BOOL(projector.keep_class, "no"),
    BOOL(projector.newline, "no"),
    COUNT(projector.most_tiles, 0, 4096, "0"),
    BOOL(prefix_last, "no"),
    COUNT(image_token, 0, 1 << 24, "0"),
    LIST(rope_sections, 0, 65536),
    BOOL(rope_sections_interleaved, "no"),
};
const size_t lf_model_n_keys = sizeof(lf_model_keys) / sizeof(lf_model_keys[0]);
_Static_assert(sizeof(lf_model_keys) / sizeof(lf_model_keys[0]) <= LF_MODEL_MAX_KEYS,
               "origin[] holds one per key");

/* Keys of the table from this one on have no meaning without it. */
static const struct lf_model_key *first_of_sight(void)
{
    return lf_model_key_find("vision.family");
}

bool lf_model_key_sees(const struct lf_model_key *k)
{
    return k >= first_of_sight();
}

bool lf_model_key_restores(const struct lf_model_key *k)
{
    return strncmp(k->name, "mae.", 4) == 0;
}

bool lf_model_restores(const lf_model_config *c)
{
    return c->mae.layers > 0;
}

bool lf_model_key_classifies(const struct lf_model_key *k)
{
    return strncmp(k->name, "classes.", 8) == 0;
}

bool lf_model_classifies(const lf_model_config *c)
{
    return c->classes.labels > 0;
}

bool lf_model_key_compares(const struct lf_model_key *k)
{
    return strncmp(k->name, "dual.", 5) == 0;
}

bool lf_model_is_dual(const lf_model_config *c)
{
    return c->dual.dim > 0;
}

bool lf_model_sees_alone(const lf_model_config *c)
{
    return lf_model_restores(c) || lf_model_classifies(c) || lf_model_is_encoder(c);
}

bool lf_model_is_encoder(const lf_model_config *c)
{
    return c->vision.family && !c->layers && !lf_model_restores(c) && !lf_model_classifies(c);
}

lf_model_config lf_model_encoder_of(const lf_model_config *c, enum lf_model_beside beside)
{
    lf_model_config e;
    lf_model_config_defaults(&e);
    snprintf(e.family, sizeof e.family, "%s", c->family);
    e.vision = c->vision;
    e.vision.read_layers = 0;
    e.vision.read_norm = c->vision.final_norm;
    e.vision.read_states = (lf_model_list){0};
    e.vision.taps = (lf_model_list){0};
    if (beside == LF_BESIDE_RESTORING)
        e.mae = c->mae;
    if (beside == LF_BESIDE_CLASSES)
        e.classes = c->classes;
    return e;
}

/* Does a description have this key? Models that see alone have those from `sight` on. */
static bool has_key(const lf_model_config *c, const struct lf_model_key *k,
                    const struct lf_model_key *sight)
{
    if (lf_model_is_encoder(c))
        return strncmp(k->name, "vision.", 7) == 0;
    if (lf_model_restores(c))
        return lf_model_key_restores(k) || strncmp(k->name, "vision.", 7) == 0;
    if (lf_model_classifies(c))
        return lf_model_key_classifies(k) || strncmp(k->name, "vision.", 7) == 0;
    if (k >= sight && lf_model_is_dual(c))
        return lf_model_key_compares(k) || strncmp(k->name, "vision.", 7) == 0;
    return k >= sight ? c->vision.family && !lf_model_key_restores(k) &&
                            !lf_model_key_classifies(k) && !lf_model_key_compares(k)
                      : true;
}

static void *field_of(lf_model_config *c, const struct lf_model_key *k)
{
    return (char *)c + k->offset;
}
static const void *field_of_const(const lf_model_config *c, const struct lf_model_key *k)
{
    return (const char *)c + k->offset;
}

const struct lf_model_key *lf_model_key_find(const char *name)
{
    for (size_t i = 0; i < lf_model_n_keys; i++) {
        const char *key = lf_model_keys[i].name;
        /* Most differ at once; a description asks for each of the keys, several times. */
        if (key[0] == name[0] && strcmp(key, name) == 0)
            return &lf_model_keys[i];
    }
    return NULL;
}

bool lf_model_key_is_real(const char *key)
{
    const struct lf_model_key *k = lf_model_key_find(key);
    return k && k->type == LF_MK_REAL;
}

const char *lf_model_origin(const lf_model_config *c, const char *key)
{
    const struct lf_model_key *k = lf_model_key_find(key);
    if (!k)
        LF_BUG("no model key %s", key);
    const char *o = c->origin[k - lf_model_keys];
    return o[0] ? o : "default";
}

static int unknown_key(const char *key, const char *where, lf_err *err)
{
    const char *names[LF_MODEL_MAX_KEYS + 2];
    size_t n = 0;
    for (; n < lf_model_n_keys; n++)
        names[n] = lf_model_keys[n].name;
    names[n++] = "family";
    names[n++] = "preset";
    char hint[200];
    lf_synonym_hint(hint, sizeof hint, key, names, n);
    return lf_fail(err, LF_EINVAL, "%s: unknown key '%s' in [model]%s", where, key, hint);
}

static int set_enum(int *out, const struct lf_model_key *k, const char *value, const char *where,
                    lf_err *err)
{
    for (int i = 0; k->choices[i]; i++)
        if (strcmp(k->choices[i], value) == 0) {
            *out = i;
            return 0;
        }
    lf_buf all;
    lf_buf_init(&all);
    for (int i = 0; k->choices[i]; i++)
        lf_buf_addf(&all, "%s%s", i ? ", " : "", k->choices[i]);
    int rc =
        lf_fail(err, LF_EINVAL, "%s: %s = %s is not one of: %s", where, k->name, value, all.data);
    lf_buf_fini(&all);
    return rc;
}

static int set_number(lf_model_config *c, const struct lf_model_key *k, const char *value,
                      const char *where, lf_err *err)
{
    int64_t n = 0;
    double x = 0;
    const int rc = k->type != LF_MK_COUNT ? lf_parse_f64(&x, value, err)
                   : k->min < 0           ? lf_parse_i64(&n, value, err)
                                          : lf_parse_count(&n, value, err);
    if (rc != 0)
        return lf_err_prefix(err, "%s: %s", where, k->name);
    if (k->type == LF_MK_COUNT)
        x = (double)n;
    if (x < k->min || x > k->max)
        return lf_fail(err, LF_EINVAL, "%s: %s = %s is outside %g to %g", where, k->name, value,
                       k->min, k->max);
    if (k->type == LF_MK_COUNT)
        *(int64_t *)field_of(c, k) = n;
    else
        *(double *)field_of(c, k) = x;
    return 0;
}

/* "1.0,1.25": numbers between commas; the empty text is the empty list. */
static int set_list(lf_model_list *out, const struct lf_model_key *k, const char *value,
                    const char *where, lf_err *err)
{
    lf_model_list l = {0};
    char item[64];
    for (const char *p = value; *p;) {
        size_t n = strcspn(p, ",");
        double x = 0;
        if (l.n == LF_MODEL_MAX_FACTORS)
            return lf_fail(err, LF_EINVAL, "%s: %s has more than %d numbers", where, k->name,
                           LF_MODEL_MAX_FACTORS);
        snprintf(item, sizeof(item), "%.*s", n < sizeof(item) ? (int)n : 0, p + strspn(p, " "));
        item[strcspn(item, ", ")] = 0;
        int rc = lf_parse_f64(&x, item, err);
        if (rc != 0)
            return lf_err_prefix(err, "%s: %s, number %lld", where, k->name, (long long)l.n + 1);
        if (!(x >= k->min && x <= k->max))
            return lf_fail(err, LF_EINVAL, "%s: %s, number %lld = %s is outside %g to %g", where,
                           k->name, (long long)l.n + 1, item, k->min, k->max);
        l.v[l.n++] = x;
        p += n;
        if (*p == ',' && !*++p)
            return lf_fail(err, LF_EINVAL, "%s: %s ends in a comma", where, k->name);
    }
    *out = l;
    return 0;
}

int lf_model_config_set(lf_model_config *c, const char *key, const char *value, const char *where,
                        lf_err *err)
{
    const struct lf_model_key *k = lf_model_key_find(key);
    if (!k)
        return unknown_key(key, where, err);
    int rc = 0;
    if (k->type == LF_MK_BOOL) {
        rc = lf_parse_bool(field_of(c, k), value, err);
        if (rc != 0)
            return lf_err_prefix(err, "%s: %s", where, key);
    } else if (k->type == LF_MK_ENUM) {
        rc = set_enum(field_of(c, k), k, value, where, err);
    } else if (k->type == LF_MK_LIST) {
        rc = set_list(field_of(c, k), k, value, where, err);
    } else if (k->type == LF_MK_PATTERN) {
        rc = lf_model_pattern_set(field_of(c, k), k, value, where, err);
    } else {
        rc = set_number(c, k, value, where, err);
    }
    if (rc != 0)
        return rc;
    if (k->offset == AT(vision.family))
        lf_vision_family(&c->vision, c->vision.family);
    /* The end of a long path says more than its beginning. */
    size_t n = strlen(where), skip = n >= LF_MODEL_ORIGIN ? n - LF_MODEL_ORIGIN + 1 : 0;
    snprintf(c->origin[k - lf_model_keys], LF_MODEL_ORIGIN, "%s", where + skip);
    return 0;
}

void lf_model_config_defaults(lf_model_config *c)
{
    memset(c, 0, sizeof(*c));
    snprintf(c->family, sizeof(c->family), "custom");
    for (size_t i = 0; i < lf_model_n_keys; i++) {
        lf_err err = LF_ERR_INIT;
        if (lf_model_keys[i].def && lf_model_keys[i].def[0] &&
            lf_model_config_set(c, lf_model_keys[i].name, lf_model_keys[i].def, "default", &err))
            LF_BUG("%s", err.text);
        c->origin[i][0] = 0;
    }
}

static const struct lf_model_family *find_family(const char *name)
{
    for (size_t i = 0; i < lf_model_n_families; i++)
        if (strcmp(lf_model_families[i].name, name) == 0)
            return &lf_model_families[i];
    return NULL;
}

bool lf_model_family_says(const char *name, const char *setting)
{
    const struct lf_model_family *f = find_family(name);
    bool says = false;
    for (const char *const *s = f ? f->settings : NULL; s && *s && !says; s++)
        says = strcmp(*s, setting) == 0;
    return says;
}

int lf_model_config_family(lf_model_config *c, const char *family, const char *where, lf_err *err)
{
    const struct lf_model_family *f = find_family(family);
    if (!f) {
        lf_buf all;
        lf_buf_init(&all);
        for (size_t i = 0; i < lf_model_n_families; i++)
            lf_buf_addf(&all, "%s%s", i ? ", " : "", lf_model_families[i].name);
        int rc =
            lf_fail(err, LF_EINVAL, "%s: unknown family '%s'; known: %s", where, family, all.data);
        lf_buf_fini(&all);
        return rc;
    }
    for (const char *const *s = f->settings; *s; s++) {
        char key[48], from[64];
        const char *eq = strchr(*s, '=');
        snprintf(key, sizeof(key), "%.*s", (int)(eq - *s), *s);
        snprintf(from, sizeof(from), "family %s", f->name);
        if (strcmp(*s, LF_MODEL_EMBED_SCALED) != 0 && strcmp(*s, LF_MODEL_HEAD_SCALED) != 0 &&
            lf_model_config_set(c, key, eq + 1, from, err))
            LF_BUG("family %s: %s", f->name, *s);
    }
    snprintf(c->family, sizeof(c->family), "%s", f->name);
    return 0;
}

/* 17 digits bring a double back exactly, fewer are used when they do too. */
static void real_text(double x, char *buf, size_t cap)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, cap, "%.*g", digits, x);
        /* strtod follows the locale; programs here never set one. */
        double back = strtod(buf, NULL);
        if (memcmp(&back, &x, sizeof(x)) == 0)
            break;
    }
}

#define KEY_TEXT (LF_MODEL_MAX_FACTORS * 26)
/* Canonical text of one key. cap >= KEY_TEXT. */
static void key_text(const lf_model_config *c, const struct lf_model_key *k, char *buf, size_t cap)
{
    const void *p = field_of_const(c, k);
    switch (k->type) {
    case LF_MK_COUNT:
        snprintf(buf, cap, "%lld", (long long)*(const int64_t *)p);
        break;
    case LF_MK_BOOL:
        snprintf(buf, cap, "%s", *(const bool *)p ? "yes" : "no");
        break;
    case LF_MK_ENUM:
        snprintf(buf, cap, "%s", k->choices[*(const int *)p]);
        break;
    case LF_MK_PATTERN:
        snprintf(buf, cap, "%s", ((const struct lf_model_pattern *)p)->text);
        break;
    case LF_MK_REAL:
        real_text(*(const double *)p, buf, cap);
        break;
    case LF_MK_LIST: {
        const lf_model_list *l = p;
        size_t at = 0;
        buf[0] = 0;
        for (int64_t i = 0; i < l->n; i++) {
            char one[32];
            real_text(l->v[i], one, sizeof(one));
            at += (size_t)snprintf(buf + at, cap - at, "%s%s", i ? "," : "", one);
        }
        break;
    }
    }
}

json_t *lf_model_config_to_json(const lf_model_config *c, lf_err *err)
{
    char buf[KEY_TEXT];
    const struct lf_model_key *sight = first_of_sight();
    json_t *o = json_object();
    int bad = o ? json_object_set_new(o, "family", json_string(c->family)) : -1;
    for (size_t i = 0; i < lf_model_n_keys && !bad; i++) {
        if (!has_key(c, &lf_model_keys[i], sight))
            continue;
        key_text(c, &lf_model_keys[i], buf, sizeof(buf));
        bad = json_object_set_new(o, lf_model_keys[i].name, json_string(buf));
    }
    if (bad) {
        json_decref(o);
        lf_fail(err, LF_ENOMEM, "model description: out of memory");
        return NULL;
    }
    return o;
}

bool lf_model_config_is(const lf_model_config *c, const char *key, const char *text)
{
    char buf[KEY_TEXT];
    const struct lf_model_key *k = lf_model_key_find(key);
    if (strcmp(key, "family") == 0)
        return strcmp(c->family, text) == 0;
    if (!k || !has_key(c, k, first_of_sight()))
        return false;
    key_text(c, k, buf, sizeof buf);
    return strcmp(buf, text) == 0;
}

int lf_model_config_from_json(lf_model_config *out, json_t *o, const char *what, lf_err *err)
{
    lf_model_config c;
    lf_model_config_defaults(&c);
    if (!json_is_object(o))
        return lf_fail(err, LF_EFORMAT, "%s: the model description is not an object", what);
    const char *key;
    json_t *v;
    const char *sees = json_string_value(json_object_get(o, "vision.family"));
    int rc = sees ? lf_model_config_set(&c, "vision.family", sees, what, err) : 0;
    if (rc != 0)
        return rc;
    json_object_foreach(o, key, v)
    {
        if (!json_is_string(v))
            return lf_fail(err, LF_EFORMAT, "%s: model.%s is not a string", what, key);
        if (strcmp(key, "vision.family") == 0 || lf_model_key_counts(key))
            continue;
        if (strcmp(key, "family") == 0) {
            snprintf(c.family, sizeof(c.family), "%s", json_string_value(v));
            continue;
        }
        rc = lf_model_config_set(&c, key, json_string_value(v), what, err);
        if (rc != 0)
            return rc;
    }
    /* "file:line" says that a user gave a key; here all keys came at once, whatever the name of the
     * directory holds. */
    for (size_t i = 0; i < lf_model_n_keys; i++)
        for (char *p = strchr(c.origin[i], ':'); p; p = strchr(p, ':'))
            *p = ';';
    rc = lf_model_layers_from_counters(&c, o, err);
    if (rc == 0)
        rc = lf_model_config_finish(&c, err);
    if (rc != 0)
        return rc;
    *out = c;
    return 0;
}

bool lf_model_config_equal(const lf_model_config *a, const lf_model_config *b, const char **key)
{
    char ta[KEY_TEXT], tb[KEY_TEXT];
    for (size_t i = 0; i < lf_model_n_keys; i++) {
        const struct lf_model_key *k = &lf_model_keys[i];
        if (strcmp(k->name, "init") == 0 || strcmp(k->name, "init_std") == 0 ||
            strcmp(k->name, "score_init") == 0)
            continue; /* only matter at step 0 */
        key_text(a, k, ta, sizeof(ta));
        key_text(b, k, tb, sizeof(tb));
        if (strcmp(ta, tb) == 0)
            continue;
        if (key)
            *key = k->name;
        return false;
    }
    return true;
}
