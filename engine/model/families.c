/* SPDX-License-Identifier: Apache-2.0
 *
 * Families as data: the switches that tell one from another. Sizes are in models/<name>.ini. */
#include "engine/model/config_priv.h"

#define LLAMA                                                                                                          \
    "norm=rms", "norm_bias=no", "position=rope", "activation=silu", "mlp=glu", "qkv_bias=no", "out_bias=no",           \
        "mlp_bias=no", "head_bias=no", "init=normal", "init_std=0.02"

static const char *const gpt2[] = {"norm=layer",           "norm_eps=1e-5",
                                   "norm_bias=yes",        "position=learned",
                                   "activation=gelu_tanh", "mlp=plain",
                                   "qkv_bias=yes",         "out_bias=yes",
                                   "mlp_bias=yes",         "head_bias=no",
                                   "tied_head=yes",        "init=residual_scaled",
                                   "init_std=0.02",        NULL};
static const char *const llama1[] = {LLAMA, "norm_eps=1e-6", "rope_theta=10000", "tied_head=no", NULL};
static const char *const llama2[] = {LLAMA, "norm_eps=1e-5", "rope_theta=10000", "tied_head=no", NULL};
static const char *const llama3[] = {LLAMA, "norm_eps=1e-5", "rope_theta=500000", "tied_head=no", NULL};
static const char *const llama31[] = {LLAMA,
                                      "norm_eps=1e-5",
                                      "rope_theta=500000",
                                      "rope_scaling=llama3",
                                      "rope_factor=8",
                                      "rope_low_freq_factor=1",
                                      "rope_high_freq_factor=4",
                                      "rope_original_positions=8192",
                                      "tied_head=no",
                                      NULL};
static const char *const llama32[] = {LLAMA,
                                      "norm_eps=1e-5",
                                      "rope_theta=500000",
                                      "rope_scaling=llama3",
                                      "rope_factor=32",
                                      "rope_low_freq_factor=1",
                                      "rope_high_freq_factor=4",
                                      "rope_original_positions=8192",
                                      "tied_head=yes",
                                      NULL};
static const char *const mistral[] = {LLAMA, "norm_eps=1e-5", "rope_theta=10000", "sliding_window=4096", "tied_head=no",
                                      NULL};
/* Qwen 1.5 and 2.5 differ from 2 in sizes only. */
static const char *const qwen2[] = {LLAMA, "norm_eps=1e-6", "rope_theta=1000000", "qkv_bias=yes", "tied_head=no", NULL};
static const char *const qwen3[] = {LLAMA, "norm_eps=1e-6", "rope_theta=1000000", "qk_norm=yes", "tied_head=no", NULL};

const struct lf_model_family lf_model_families[] = {
    {"gpt2", gpt2},     {"gpt3", gpt2},        {"llama", llama2},     {"llama1", llama1},   {"llama2", llama2},
    {"llama3", llama3}, {"llama3.1", llama31}, {"llama3.2", llama32}, {"mistral", mistral}, {"qwen1.5", qwen2},
    {"qwen2", qwen2},   {"qwen2.5", qwen2},    {"qwen3", qwen3},
};
const size_t lf_model_n_families = sizeof(lf_model_families) / sizeof(lf_model_families[0]);
