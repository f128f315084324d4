/* SPDX-License-Identifier: Apache-2.0
 *
 * What follows from a description by arithmetic: tables of positions, parameter count, FLOPs. */
#include <math.h>

#include "engine/model/config_priv.h"

int64_t lf_model_rope_dim(const lf_model_config *c)
{
    if (c->position != LF_POS_ROPE)
        return 0;
    return (int64_t)(c->rope_fraction * (double)c->head_dim + 1e-9);
}

static double rope_frequency(const lf_model_config *c, int64_t i, int64_t rot)
{
    double freq = pow(c->rope_theta, -2.0 * (double)i / (double)rot);
    if (c->rope_scaling == LF_ROPE_LINEAR)
        return freq / c->rope_factor;
    if (c->rope_scaling == LF_ROPE_LLAMA3) {
        double wavelength = 2 * M_PI / freq, original = (double)c->rope_original_positions;
        double low = c->rope_low_freq_factor, high = c->rope_high_freq_factor;
        if (wavelength > original / low)
            return freq / c->rope_factor;
        if (wavelength < original / high)
            return freq;
        double s = (original / wavelength - low) / (high - low);
        return (1 - s) * freq / c->rope_factor + s * freq;
    }
    return freq;
}

void lf_model_rope_tables(const lf_model_config *c, int64_t positions, float *cos_out, float *sin_out)
{
    int64_t rot = lf_model_rope_dim(c), half = rot / 2;
    for (int64_t i = 0; i < half; i++) {
        double freq = rope_frequency(c, i, rot);
        for (int64_t p = 0; p < positions; p++) {
            if (cos_out)
                cos_out[p * half + i] = (float)cos((double)p * freq);
            if (sin_out)
                sin_out[p * half + i] = (float)sin((double)p * freq);
        }
    }
}

void lf_model_alibi_slopes(const lf_model_config *c, float *slopes)
{
    int64_t n = 1;
    while (2 * n <= c->heads)
        n *= 2;
    for (int64_t h = 0; h < c->heads; h++) {
        double e = h < n ? -8.0 * (double)(h + 1) / (double)n : -8.0 * (double)(2 * (h - n) + 1) / (double)(2 * n);
        slopes[h] = (float)exp2(e);
    }
}

int64_t lf_model_layer_window(const lf_model_config *c, int64_t layer)
{
    return layer >= c->max_window_layers ? c->sliding_window : 0;
}

int64_t lf_model_matmul_params(const lf_model_config *c)
{
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    int64_t attn = c->hidden * (q + 2 * kv) + q * c->hidden;
    int64_t mlp = (c->mlp == LF_MLP_GLU ? 3 : 2) * c->hidden * c->ffn;
    return c->layers * (attn + mlp) + c->vocab * c->hidden;
}

int64_t lf_model_param_count(const lf_model_config *c)
{
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    int64_t norm = c->hidden * (c->norm_bias ? 2 : 1);
    int64_t layer = norm * (c->parallel_block == LF_PARALLEL_ONE_NORM ? 1 : 2);
    if (c->qkv_bias)
        layer += q + 2 * kv;
    if (c->out_bias)
        layer += c->hidden;
    if (c->mlp_bias)
        layer += c->hidden + (c->mlp == LF_MLP_GLU ? 2 : 1) * c->ffn;
    if (c->qk_norm)
        layer += 2 * c->head_dim;
    int64_t n = lf_model_matmul_params(c) + c->layers * layer + norm; /* matmul counts the head's V x C once */
    if (!c->tied_head)
        n += c->vocab * c->hidden;
    if (c->position == LF_POS_LEARNED)
        n += (c->max_positions + c->position_offset) * c->hidden;
    if (c->embed_norm)
        n += norm;
    if (c->head_bias)
        n += c->vocab;
    return n;
}

double lf_model_train_flops_per_token(const lf_model_config *c, int64_t seq_length, bool causal)
{
    double keys = 0, t = (double)seq_length;
    for (int64_t i = 0; i < c->layers; i++) {
        double w = (double)lf_model_layer_window(c, i);
        if (!causal)
            keys += t;
        else if (w > 0 && w < t)
            keys += w - w * w / (2 * t);
        else
            keys += t / 2;
    }
    return 6.0 * (double)lf_model_matmul_params(c) + 12.0 * (double)(c->heads * c->head_dim) * keys;
}
