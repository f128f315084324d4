/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixers that carry a state through a document: scans (kernels/scan.h) and short convolutions.
 *
 *     q, k, v, z, a, b = x W_in                    of the mixer's kind, see lf_dec_scan_widths
 *     q, k, v = silu(conv(q)), silu(conv(k)), silu(conv(v))
 *     g, beta = scan_gate(a, b)                    lightning: fixed decays, and nothing else
 *     o       = scan(q, k, v, g, beta) (+ skip v)
 *     y       = W_o (gate and norm of o by z)
 *
 *     s  Mamba-2 (Dao and Gu 2024): q, k, v, a are C, B, x, dt; beta = dt; skip
 *     g  Gated DeltaNet (Yang et al. 2024): q and k of length one, q / sqrt(Dk); beta may be
 *        multiplied by scan_strength
 *     k  Kimi Delta Attention (Kimi Linear 2025): as g, a decay for each channel of a key;
 *        a = f_b(f_a x) and z = g_b(g_a x)
 *     l  lightning attention (Qin et al. 2024): head h of H in layer l of L forgets by e^-s,
 *        s = 2^(-8 (h + 1) / H) (1 - l / (L - 1 + 1e-5) + 1e-5); q, k, v = silu(x W_in)
 *     c  short convolution (LFM2, 2025): y = W_o (c * conv(b * x)), where b, c, x are of W_in
 *
 * While generating, the convolution and the scan of a layer have a state each for every sequence.
 */
#include <math.h>
#include <stdio.h>

#include "engine/model/decoder_priv.h"

#define UNIT_EPS 1e-6f /* of queries and keys of length one */

struct lf_dec_scan_widths lf_dec_scan_widths(const lf_model_config *c, int64_t layer)
{
    const char m = lf_model_layer_mixer(c, layer);
    const int64_t keys = c->scan_groups * c->scan_key_dim,
                  values = c->scan_heads * c->scan_value_dim;
    const bool writes = m == LF_MIXER_DELTA || m == LF_MIXER_KDA,
               ranks = m == LF_MIXER_KDA; /* they make decays and gate elsewhere */
    return (struct lf_dec_scan_widths){.keys = keys,
                                       .values = values,
                                       .gate = c->scan_gate && !ranks ? values : 0,
                                       .steps =
                                           m == LF_MIXER_LIGHTNING || ranks ? 0 : c->scan_heads,
                                       .strengths = writes ? c->scan_heads : 0};
}

static void fill_slopes(void *dst, const void *ctx)
{
    const struct lf_dec_slopes *s = ctx;
    const lf_model_config *c = s->c;
    const double depth = (double)s->layer / ((double)c->layers - 1 + 1e-5);
    for (int64_t h = 0; h < c->scan_heads; h++)
        ((float *)dst)[h] =
            (float)-(exp2(-8.0 * (double)(h + 1) / (double)c->scan_heads) * (1 - depth + 1e-5));
}

/* ---- states ---- */

static struct lf_slots slots(const struct lf_dec_build *b, lf_val state)
{
    return (struct lf_slots){state, b->seq, b->positions};
}

/* The convolution "layers.l.part.weight" of x, over documents or over sequences. */
static lf_val convolve(struct lf_dec_build *b, lf_val x, int64_t channels, enum lf_act act,
                       const char *part, int64_t l)
{
    const lf_model_config *c = b->c;
    const lf_val w = lf_paramf(b->g, "layers.%lld.%s.weight", (long long)l, part),
                 bias = c->scan_conv_bias
                            ? lf_paramf(b->g, "layers.%lld.%s.bias", (long long)l, part)
                            : LF_NONE;
    if (!b->paged)
        return lf_conv(b->g, x, w, bias, b->cu_seqlens, act, NULL);
    char name[64];
    snprintf(name, sizeof name, "%s.%lld", part, (long long)l);
    const struct lf_slots s = slots(
        b, lf_state(b->g, name, b->paged->cache, b->paged->n_seq, (c->scan_conv - 1) * channels));
    return lf_conv(b->g, x, w, bias, LF_NONE, act, &s);
}

static lf_val scan(struct lf_dec_build *b, const struct lf_scan_in_vals *in,
                   const struct lf_scan_opts *o, int64_t l)
{
    if (!b->paged)
        return lf_scan(b->g, in, b->cu_seqlens, o, NULL);
    char name[32];
    snprintf(name, sizeof name, "scan.%lld", (long long)l);
    const struct lf_slots s =
        slots(b, lf_scan_state(b->g, name, b->paged->n_seq, b->c->scan_key_dim,
                               b->c->scan_value_dim, o, b->paged->mode));
    return lf_scan(b->g, in, LF_NONE, o, &s);
}

/* ---- a scan ---- */

/* Columns [at, at + n) of what the projection gives, times their scale. */
static lf_val columns(struct lf_dec_build *b, lf_val in, int64_t at, int64_t n, int scale)
{
    const lf_model_list *by = &b->c->scan_scales;
    return n ? lf_dec_scaled(b, lf_slice(b->g, in, at, n), by->n ? by->v[scale] : 1) : LF_NONE;
}

/* q, k, v behind their convolution. They lie side by side and pass through one, or with scan_scales
 * through one each. */
static void mix_rows(struct lf_dec_build *b, lf_val in, const struct lf_dec_scan_widths *w,
                     int64_t l, struct lf_scan_in_vals *out)
{
    static const char *const parts[] = {"scan.conv_q", "scan.conv_k", "scan.conv_v"};
    static const int scales[] = {LF_SCALE_Q, LF_SCALE_K, LF_SCALE_V};
    lf_val *const v[] = {&out->q, &out->k, &out->v};
    const int64_t all = 2 * w->keys + w->values, n[] = {w->keys, w->keys, w->values};
    const bool apart = b->c->scan_scales.n > 0, conv = b->c->scan_conv > 0;
    lf_val x = apart ? in : lf_slice(b->g, in, 0, all);
    if (!apart)
        x = conv ? convolve(b, x, all, LF_ACT_SILU, "scan.conv", l) : lf_act(b->g, x, LF_ACT_SILU);
    for (int i = 0; i < 3; i++) {
        *v[i] = columns(b, x, i * w->keys, n[i], scales[i]);
        if (apart)
            *v[i] = conv ? convolve(b, *v[i], n[i], LF_ACT_SILU, parts[i], l)
                         : lf_act(b->g, *v[i], LF_ACT_SILU);
    }
}

/* Decays and strengths of writing. */
static void gates(struct lf_dec_build *b, lf_val a, lf_val strengths, int64_t l,
                  struct lf_scan_in_vals *out)
{
    const lf_model_config *c = b->c;
    const struct lf_scan_gate_opts o = {.heads = (int)c->scan_heads,
                                        .low = (float)c->scan_step_min,
                                        .high = c->scan_step_max > 0 ? (float)c->scan_step_max
                                                                     : INFINITY,
                                        .strength = (float)c->scan_strength};
    const struct lf_scan_gates g =
        lf_scan_gate(b->g, a, strengths, lf_paramf(b->g, "layers.%lld.scan.a_log", (long long)l),
                     lf_paramf(b->g, "layers.%lld.scan.dt_bias", (long long)l), &o);
    out->g = g.g;
    out->beta = g.beta;
}

static lf_val scan_norm(struct lf_dec_build *b, lf_val o, int64_t l)
{
    const lf_model_config *c = b->c;
    const int64_t parts = c->scan_norm_parts;
    const struct lf_norm_opts n = {.eps = (float)c->scan_norm_eps,
                                   .heads = (int)(parts ? parts : c->scan_heads),
                                   .each = parts > 1};
    return lf_norm(b->g, o, lf_paramf(b->g, "layers.%lld.scan.norm.weight", (long long)l), LF_NONE,
                   &n);
}

static lf_val gated(struct lf_dec_build *b, lf_val o, lf_val z, int64_t l)
{
    const lf_model_config *c = b->c;
    const enum lf_act act = c->scan_gate == LF_SCAN_SILU ? LF_ACT_SILU : LF_ACT_SIGMOID;
    if (c->scan_norm == LF_SCAN_NORM_FIRST)
        o = scan_norm(b, o, l);
    if (z.id)
        o = lf_glu(b->g, z, o, act);
    return c->scan_norm == LF_SCAN_GATE_FIRST ? scan_norm(b, o, l) : o;
}

static struct lf_scan_opts scan_opts(const lf_model_config *c, char mixer)
{
    const bool delta = mixer == LF_MIXER_DELTA || mixer == LF_MIXER_KDA;
    return (struct lf_scan_opts){.heads = (int)c->scan_heads,
                                 .groups = (int)c->scan_groups,
                                 .scale = delta ? (float)(1 / sqrt((double)c->scan_key_dim)) : 1,
                                 .unit_eps = delta ? UNIT_EPS : 0,
                                 .delta = delta,
                                 .per_channel = mixer == LF_MIXER_KDA};
}

lf_val lf_dec_scan(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const lf_model_config *c = b->c;
    const char m = lf_model_layer_mixer(c, l);
    const struct lf_dec_scan_widths w = lf_dec_scan_widths(c, l);
    const struct lf_scan_opts o = scan_opts(c, m);
    const int64_t z_at = 2 * w.keys + w.values, a_at = z_at + w.gate, b_at = a_at + w.steps;
    struct lf_scan_in_vals in = {LF_NONE, LF_NONE, LF_NONE, LF_NONE, LF_NONE, LF_NONE};
    x = lf_tp_enter(b->g, x);
    const lf_val all = lf_dec_linear(b, x, c->scan_bias, "scan.in", l);
    lf_val z = columns(b, all, z_at, w.gate, LF_SCALE_Z),
           a = columns(b, all, a_at, w.steps, LF_SCALE_A);
    mix_rows(b, all, &w, l, &in);
    if (m == LF_MIXER_KDA) {
        const lf_val low = lf_dec_linear(b, x, false, "scan.fg_a", l);
        a = lf_dec_linear(b, lf_slice(b->g, low, 0, c->scan_rank), false, "scan.f_b", l);
        z = lf_dec_linear(b, lf_slice(b->g, low, c->scan_rank, c->scan_rank), false, "scan.g_b", l);
    }
    if (m == LF_MIXER_LIGHTNING) {
        char name[48];
        snprintf(name, sizeof name, "layers.%lld.scan.slopes", (long long)l);
        in.g = lf_const(b->g, name, LF_F32, 1, c->scan_heads, fill_slopes, &b->d->slopes[l]);
    } else {
        gates(b, a, w.strengths ? lf_slice(b->g, all, b_at, w.strengths) : LF_NONE, l, &in);
    }
    if (m == LF_MIXER_SSD || m == LF_MIXER_BOTH)
        in.skip = lf_paramf(b->g, "layers.%lld.scan.skip", (long long)l);
    return lf_tp_leave(
        b->g, lf_dec_linear(b, gated(b, scan(b, &in, &o, l), z, l), c->scan_bias, "scan.o", l));
}

/* ---- a short convolution ---- */

lf_val lf_dec_short_conv(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const int64_t n = b->c->hidden;
    const lf_val in = lf_dec_linear(b, lf_tp_enter(b->g, x), b->c->scan_bias, "conv.in", l);
    lf_val part[3]; /* b, c, x */
    for (int i = 0; i < 3; i++)
        part[i] = lf_slice(b->g, in, i * n, n);
    lf_val y = lf_glu(b->g, part[0], part[2], LF_ACT_NONE);
    y = convolve(b, y, n, LF_ACT_NONE, "conv.filter", l);
    y = lf_glu(b->g, part[1], y, LF_ACT_NONE);
    return lf_tp_leave(b->g, lf_dec_linear(b, y, b->c->scan_bias, "conv.o", l));
}
