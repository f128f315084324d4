/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows from a description by arithmetic: tables of positions, parameter count, FLOPs. */
#include <math.h>

#include "engine/model/classes.h"
#include "engine/model/config_priv.h"
#include "engine/model/decoder_priv.h"
#include "engine/model/dual.h"
#include "engine/model/mae.h"
#include "engine/model/vision.h"

int64_t lf_model_embed_width(const lf_model_config *c)
{
    return c->embed_dim ? c->embed_dim : c->hidden;
}

int64_t lf_model_bottom_width(const lf_model_config *c)
{
    return c->embed_narrow ? c->embed_dim : c->hidden;
}

int64_t lf_model_top_width(const lf_model_config *c)
{
    return c->embed_narrow ? c->hidden : lf_model_embed_width(c);
}

int64_t lf_model_transform_width(const lf_model_config *c)
{
    return c->embed_narrow ? c->embed_dim : c->hidden;
}

/* Channels that turn of a head of so many. */
static int64_t rope_dim(const lf_model_config *c, int64_t head_dim)
{
    if (c->position != LF_POS_ROPE && c->position != LF_POS_ROPE2D)
        return 0;
    if (c->kv_lora)
        return c->rope_dim;
    if (c->rope_scaling == LF_ROPE_PROPORTIONAL)
        return head_dim;
    int64_t part = c->position == LF_POS_ROPE2D ? head_dim / 2 : head_dim;
    return (int64_t)(c->rope_fraction * (double)part + 1e-9);
}

int64_t lf_model_rope_dim(const lf_model_config *c)
{
    return rope_dim(c, c->head_dim);
}

int64_t lf_model_layer_rope_dim(const lf_model_config *c, int64_t layer)
{
    return rope_dim(c, lf_model_layer_head_dim(c, layer));
}

int64_t lf_model_table_dim(const lf_model_config *c, unsigned what)
{
    const bool own = (what & LF_ROPE_LOCAL) && c->window_head_dim;
    return rope_dim(c, own ? c->window_head_dim : c->head_dim);
}

static double llama3_frequency(const lf_model_config *c, double freq)
{
    double wavelength = 2 * M_PI / freq, original = (double)c->rope_original_positions;
    double low = c->rope_low_freq_factor, high = c->rope_high_freq_factor;
    if (wavelength > original / low)
        return freq / c->rope_factor;
    if (wavelength < original / high)
        return freq;
    double s = (original / wavelength - low) / (high - low);
    return (1 - s) * freq / c->rope_factor + s * freq;
}

/* The pair that turns `turns` times over the original length. */
static double yarn_pair(const lf_model_config *c, double turns, int64_t rot)
{
    return (double)rot * log((double)c->rope_original_positions / (turns * 2 * M_PI)) /
           (2 * log(c->rope_theta));
}

static double yarn_frequency(const lf_model_config *c, double freq, int64_t i, int64_t rot)
{
    double low = yarn_pair(c, c->rope_beta_fast, rot), high = yarn_pair(c, c->rope_beta_slow, rot);
    low = fmax(c->rope_truncate ? floor(low) : low, 0);
    high = fmin(c->rope_truncate ? ceil(high) : high, (double)rot - 1);
    if (fabs(high - low) <= 0)
        high = low + 0.001;
    double s = fmin(fmax(((double)i - low) / (high - low), 0), 1);
    return s * freq / c->rope_factor + (1 - s) * freq;
}

static double rope_frequency(const lf_model_config *c, bool far, bool local, int64_t i, int64_t rot)
{
    double freq = pow(local ? c->rope_local_theta : c->rope_theta, -2.0 * (double)i / (double)rot);
    if (local)
        return freq;
    switch (c->rope_scaling) {
    case LF_ROPE_PROPORTIONAL:
        return (double)i < floor(c->rope_fraction * (double)rot / 2 + 1e-9) ? freq / c->rope_factor
                                                                            : 0;
    case LF_ROPE_LINEAR:
        return freq / c->rope_factor;
    case LF_ROPE_LLAMA3:
        return llama3_frequency(c, freq);
    case LF_ROPE_YARN:
        return yarn_frequency(c, freq, i, rot);
    case LF_ROPE_LONGROPE:
        return freq / (far ? c->rope_long_factors.v[i] : c->rope_short_factors.v[i]);
    default:
        return freq;
    }
}

/* What multiplies cos and sin. */
static double rope_amplitude(const lf_model_config *c, bool local)
{
    if (local || (c->rope_scaling != LF_ROPE_YARN && c->rope_scaling != LF_ROPE_LONGROPE))
        return 1;
    if (c->rope_attn_factor > 0)
        return c->rope_attn_factor;
    if (!(c->rope_factor > 1))
        return 1;
    return c->rope_scaling == LF_ROPE_YARN
               ? 0.1 * log(c->rope_factor) + 1
               : sqrt(1 + log(c->rope_factor) / log((double)c->rope_original_positions));
}

double lf_model_query_growth(const lf_model_config *c, bool nope, int64_t p)
{
    const double b = nope ? c->nope_growth : c->query_growth,
                 n = (double)(nope ? c->nope_growth_length : c->rope_original_positions);
    return 1 + b * log1p(floor((double)(nope ? p + 1 : p) / n));
}

/* What multiplies the query of a position, in the tables that turn it. */
static double query_scale(const lf_model_config *c, int64_t p)
{
    if (c->logn_length > 1 && p >= c->logn_length)
        return log((double)p + 1) / log((double)c->logn_length);
    return lf_model_query_growth(c, false, p);
}

void lf_model_rope_tables(const lf_model_config *c, int64_t positions, unsigned what,
                          float *cos_out, float *sin_out)
{
    const bool local = (what & LF_ROPE_LOCAL) && c->rope_local_theta > 0;
    const int64_t rot = lf_model_table_dim(c, what), half = rot / 2;
    for (int64_t i = 0; i < half; i++) {
        double freq = rope_frequency(c, (what & LF_ROPE_LONG) != 0, local, i, rot);
        for (int64_t p = 0; p < positions; p++) {
            double a = rope_amplitude(c, local);
            if (what & LF_ROPE_QUERY)
                a *= query_scale(c, p);
            if (cos_out)
                cos_out[p * half + i] = (float)(a * cos((double)p * freq));
            if (sin_out)
                sin_out[p * half + i] =
                    (float)(a * sin((double)p * (c->rope_backwards ? -freq : freq)));
        }
    }
}

void lf_model_alibi_slopes(const lf_model_config *c, float *slopes)
{
    int64_t n = 1;
    while (2 * n <= c->heads)
        n *= 2;
    for (int64_t h = 0; h < c->heads; h++) {
        double e = h < n ? -8.0 * (double)(h + 1) / (double)n
                         : -8.0 * (double)(2 * (h - n) + 1) / (double)(2 * n);
        slopes[h] = (float)exp2(e);
    }
}

bool lf_model_list_has(const lf_model_list *l, int64_t x)
{
    for (int64_t i = 0; i < l->n; i++)
        if ((int64_t)l->v[i] == x)
            return true;
    return false;
}

/* Scalars of the matrices behind the trunk. */
static int64_t head_params(const lf_model_config *c)
{
    const int64_t width = lf_model_top_width(c),
                  transform = lf_model_transforms(c) ? c->hidden * lf_model_transform_width(c) : 0;
    if (c->output == LF_OUTPUT_SCORE)
        return width;
    if (c->output == LF_OUTPUT_LABELS)
        return width * c->labels + transform + (lf_model_label_inner(c) ? width * width : 0);
    return lf_model_embed_width(c) * c->vocab + transform +
           (lf_model_tells_pairs(c) ? width * (width + 2) : 0);
}

int64_t lf_model_layer_value_dim(const lf_model_config *c, int64_t layer)
{
    return c->kv_lora ? c->v_dim : lf_model_layer_head_dim(c, layer);
}

double lf_model_layer_attn_scale(const lf_model_config *c, int64_t layer)
{
    const double m = 0.1 * c->rope_mscale_all * log(c->rope_factor) + 1;
    return c->attn_scale > 0 ? c->attn_scale
                             : m * m / sqrt((double)lf_model_layer_head_dim(c, layer));
}

/* Scalars of the matrices of attention in layer l. */
static int64_t attention_params(const lf_model_config *c, int64_t l)
{
    const int64_t d = lf_model_layer_head_dim(c, l), q = c->heads * d,
                  kv = lf_model_layer_kv_heads(c, l) * d,
                  o = c->heads * lf_model_layer_value_dim(c, l) * c->hidden;
    const int64_t made = lf_model_layer_keys(c, l) != l    ? 0
                         : lf_model_layer_has_values(c, l) ? 2
                                                           : 1; /* of keys and values */
    if (!c->kv_lora)
        return c->hidden * (q + made * kv + (c->attn_gate ? q : 0)) + o;
    return (c->q_lora ? c->q_lora * (c->hidden + q) : c->hidden * q) +
           c->hidden * (c->kv_lora + c->rope_dim) +
           c->kv_lora * c->heads * (c->nope_dim + c->v_dim) + o;
}

/* Scalars of the matrices of a scan in layer l, with those of its convolution. */
static int64_t scan_params(const lf_model_config *c, int64_t l)
{
    const struct lf_dec_scan_widths w = lf_dec_scan_widths(c, l);
    int64_t n = c->hidden * (2 * w.keys + 2 * w.values + w.gate + w.steps + w.strengths) +
                c->scan_conv * (2 * w.keys + w.values);
    if (lf_model_layer_mixer(c, l) == LF_MIXER_KDA)
        n += c->scan_rank * (2 * c->hidden + c->scan_heads * (c->scan_key_dim + c->scan_value_dim));
    return n;
}

/* Scalars of its vectors. */
static int64_t scan_vectors(const lf_model_config *c, int64_t l)
{
    const char m = lf_model_layer_mixer(c, l);
    const struct lf_dec_scan_widths w = lf_dec_scan_widths(c, l);
    int64_t n = c->scan_conv_bias && c->scan_conv ? 2 * w.keys + w.values : 0;
    if (c->scan_bias)
        n += 2 * w.keys + w.values + w.gate + w.steps + w.strengths + c->hidden;
    if (m != LF_MIXER_LIGHTNING)
        n += c->scan_heads * (1 + (m == LF_MIXER_KDA ? c->scan_key_dim : 1));
    if (m == LF_MIXER_SSD || m == LF_MIXER_BOTH)
        n += c->scan_heads;
    if (c->scan_norm)
        n += c->scan_norm_parts ? w.values : c->scan_value_dim;
    return n;
}

/* Scalars that multiply a token in layer l. */
static int64_t layer_matrices(const lf_model_config *c, int64_t l)
{
    int64_t n = lf_model_layer_attends(c, l) ? attention_params(c, l) : 0;
    if (lf_model_layer_scans(c, l))
        n += scan_params(c, l);
    if (lf_model_layer_mixer(c, l) == LF_MIXER_CONV)
        n += c->hidden * (4 * c->hidden + c->scan_conv);
    if (lf_model_layer_moe(c, l))
        n += lf_model_moe_params(c, true);
    if (lf_model_layer_dense(c, l))
        n += (c->mlp == LF_MLP_GLU ? 3 : 2) * c->hidden * lf_model_layer_ffn(c, l);
    if (lf_model_layer_mixer(c, l) != LF_MIXER_NONE)
        n += 2 * c->hidden * c->laurel_rank;
    const int64_t streams = c->altup_streams;
    return n + 2 * c->hidden * c->per_layer_dim +
           streams * (c->hidden + streams * (streams + 1)); /* router, prediction, correction */
}

int64_t lf_model_mtp_matmul_params(const lf_model_config *c)
{
    return 2 * c->hidden * c->hidden + layer_matrices(c, c->layers);
}

int64_t lf_model_matmul_params(const lf_model_config *c)
{
    int64_t n = head_params(c) + (c->embed_narrow ? 1 : 2) * c->embed_dim * c->hidden +
                c->layers * c->per_layer_dim * c->hidden;
    if (c->altup_streams)
        n += 2 * (c->altup_streams - 1) * c->hidden * c->hidden;
    for (int64_t l = 0; l < c->layers; l++)
        n += layer_matrices(c, l);
    return n + lf_model_seq2seq_matrices(c);
}

/* Norms of the stream in layer l. */
static int64_t layer_norms(const lf_model_config *c, int64_t l)
{
    const int64_t branches =
        (lf_model_layer_mixer(c, l) != LF_MIXER_NONE) + (lf_model_layer_mlp(c, l) != LF_MLP_NONE);
    const int64_t more = (lf_model_layer_mlp(c, l) == LF_MLP_BOTH ? 3 : 0) +
                         (c->per_layer_dim > 0) + (c->altup_streams > 0) +
                         (c->laurel_rank > 0 && lf_model_layer_mixer(c, l) != LF_MIXER_NONE);
    if (c->parallel_block == LF_PARALLEL_ONE_NORM)
        return 1 + more;
    return (c->block == LF_BLOCK_SANDWICH ? 2 * branches : branches) + more;
}

/* Scalars of a norm of the stream. */
static int64_t norm_numbers(const lf_model_config *c)
{
    return c->norm_weight ? c->hidden * (c->norm_bias ? 2 : 1) : 0;
}

/* Scalars of layer l that are in no matrix: norms, biases and numbers of an activation. */
static int64_t layer_vectors(const lf_model_config *c, int64_t l)
{
    const int64_t d = lf_model_layer_head_dim(c, l);
    int64_t n = norm_numbers(c) * layer_norms(c, l);
    if (lf_model_layer_attends(c, l)) {
        const bool own = lf_model_layer_keys(c, l) == l;
        const int64_t kv = own ? lf_model_layer_kv_heads(c, l) : 0;
        n += c->qkv_bias ? ((c->attn_gate ? 2 : 1) * c->heads +
                            (lf_model_layer_has_values(c, l) ? 2 : 1) * kv) *
                               d
                         : 0;
        n += c->out_bias ? c->hidden : 0;
        n += c->attn_sinks ? c->heads : 0;
        if (c->qk_norm)
            n += c->qk_norm_all_heads ? (c->heads + kv) * d : (own ? 2 : 1) * d;
        n += c->q_lora + c->kv_lora; /* their norms */
    }
    if (lf_model_layer_scans(c, l))
        n += scan_vectors(c, l);
    if (lf_model_layer_mixer(c, l) == LF_MIXER_CONV)
        n += (c->scan_bias ? 4 * c->hidden : 0) + (c->scan_conv_bias ? c->hidden : 0);
    if (lf_model_layer_dense(c, l) && c->mlp_bias)
        n += c->hidden + (c->mlp == LF_MLP_GLU ? 2 : 1) * lf_model_layer_ffn(c, l);
    if (lf_model_layer_dense(c, l) && c->activation == LF_MODEL_XIELU)
        n += 4; /* its numbers */
    return n + (c->layer_gain ? 1 : 0) + (c->altup_streams && c->per_layer_dim ? c->hidden : 0);
}

int64_t lf_model_merged_width(const lf_model_config *c)
{
    return lf_vision_width(&c->vision) * c->projector.merge * c->projector.merge;
}

int64_t lf_model_projected_width(const lf_model_config *c)
{
    return c->projector.reduce ? lf_vision_width(&c->vision) : lf_model_merged_width(c);
}

/* One projector; norm_merged: its norm is over merged patches. */
static int64_t projector_params(const lf_model_config *c, bool norm_merged)
{
    const lf_projector_config *p = &c->projector;
    const int64_t in = lf_model_projected_width(c), E = lf_model_embed_width(c),
                  out = p->kind == LF_PROJECTOR_MLP ? p->hidden : E,
                  norms = p->norm == LF_PROJECTOR_LAYER ? 2
                          : p->norm == LF_PROJECTOR_RMS ? 1
                                                        : 0;
    return norms * (norm_merged ? lf_model_merged_width(c) : lf_vision_width(&c->vision)) +
           (p->reduce ? in * lf_model_merged_width(c) : 0) + in * out + (p->bias ? out : 0) +
           (p->kind == LF_PROJECTOR_MLP ? out * E + (p->bias ? E : 0) : 0);
}

static int64_t sight_params(const lf_model_config *c)
{
    if (!c->vision.family)
        return 0;
    if (lf_model_is_dual(c))
        return lf_vision_param_count(&c->vision) + lf_dual_param_count(c);
    return lf_vision_param_count(&c->vision) + projector_params(c, c->projector.norm_merged) +
           c->vision.taps.n * projector_params(c, true) +
           (c->projector.newline ? lf_model_embed_width(c) : 0);
}

int64_t lf_model_param_count(const lf_model_config *c)
{
    if (lf_model_is_encoder(c))
        return lf_vision_param_count(&c->vision);
    if (lf_model_restores(c))
        return lf_vision_param_count(&c->vision) + lf_mae_param_count(c);
    if (lf_model_classifies(c))
        return lf_vision_param_count(&c->vision) + lf_classes_param_count(c);
    const int64_t norm = norm_numbers(c);
    const bool tokens = c->output == LF_OUTPUT_TOKENS;
    int64_t n = lf_model_matmul_params(c); /* which counts the head once */
    for (int64_t l = 0; l < c->layers; l++)
        n += layer_vectors(c, l);
    n += c->mtp_layers * (lf_model_mtp_matmul_params(c) + layer_vectors(c, c->layers) +
                          (c->mtp_norm == LF_MTP_NORM_OWN ? 3 : 2) * norm);
    n += (lf_model_moe_layers(c) + (lf_model_layer_moe(c, c->layers) ? c->mtp_layers : 0)) *
         (lf_model_moe_params(c, false) - lf_model_moe_params(c, true) + lf_model_moe_vectors(c));
    if (c->final_norm)
        n += norm;
    if (!tokens || !c->tied_head)
        n += c->vocab * lf_model_embed_width(c);
    if (c->position == LF_POS_LEARNED)
        n += (c->max_positions + c->position_offset) * lf_model_bottom_width(c);
    n += c->token_types * lf_model_bottom_width(c);
    if (c->embed_norm)
        n += norm / c->hidden * lf_model_bottom_width(c);
    if (c->embed_narrow)
        n += c->hidden; /* the bias of embed_in */
    if (!c->first_norm)
        n -= norm;
    if (lf_model_transforms(c))
        n += (norm / c->hidden + c->head_transform_bias) * lf_model_transform_width(c);
    if (c->per_layer_dim)
        n += c->per_layer_dim *
             (c->layers * (c->per_layer_vocab ? c->per_layer_vocab : c->vocab) + 1);
    if (lf_model_tells_pairs(c))
        n += lf_model_top_width(c) + 2;
    if (c->head_bias && tokens)
        n += c->vocab;
    if (c->output == LF_OUTPUT_LABELS)
        n +=
            (c->label_bias ? c->labels : 0) + (lf_model_label_inner(c) ? lf_model_top_width(c) : 0);
    return n + sight_params(c) + lf_model_seq2seq_params(c);
}

/* The mean number of keys of a query in layer l. */
static double layer_keys(const lf_model_config *c, double t, bool causal, int64_t l)
{
    const double w = (double)lf_model_layer_window(c, l),
                 chunk = (double)lf_model_layer_chunk(c, l);
    if (c->mask == LF_MASK_BOTH)
        return w > 0 && 2 * w - 1 < t ? 2 * w - 1 : t;
    if (!causal)
        return t;
    if (chunk > 0 && chunk < t)
        return chunk / 2;
    return w > 0 && w < t ? w - w * w / (2 * t) : t / 2;
}

/* A quarter of the FLOPs of a token in the scan of layer l. */
static double scan_work(const lf_model_config *c, int64_t l)
{
    const char m = lf_model_layer_mixer(c, l);
    const double dk = (double)c->scan_key_dim, dv = (double)c->scan_value_dim,
                 chunk = (LF_SCAN_CHUNK + 1) / 2.0 * (dk + dv);
    const bool delta = m == LF_MIXER_DELTA || m == LF_MIXER_KDA;
    return (double)c->scan_heads * (delta ? 3 * dk * dv + 2 * chunk : 2 * dk * dv + chunk) / 2;
}

double lf_model_attention_work(const lf_model_config *c, int64_t seq_length, bool causal,
                               int64_t from)
{
    double work = 0;
    for (int64_t l = from; l < c->layers; l++)
        work += lf_model_layer_scans(c, l) ? scan_work(c, l) : 0;
    for (int64_t l = from; l < c->layers; l++)
        if (lf_model_layer_attends(c, l))
            work += (double)(c->heads *
                             (lf_model_layer_head_dim(c, l) + lf_model_layer_value_dim(c, l))) /
                    2 * layer_keys(c, (double)seq_length, causal, l);
    return work + lf_model_seq2seq_attention(c, seq_length, from);
}

double lf_model_train_flops_per_token(const lf_model_config *c, int64_t seq_length, bool causal)
{
    return 6.0 * (double)lf_model_matmul_params(c) +
           12.0 * lf_model_attention_work(c, seq_length, causal, 0);
}
