/* SPDX-License-Identifier: Apache-2.0
 *
 * Families as data: the switches that tell one from another. Sizes are in models/<name>.ini. */
#include "engine/model/config_priv.h"

#define LLAMA                                                                                      \
    "norm=rms", "norm_bias=no", "position=rope", "activation=silu", "mlp=glu", "qkv_bias=no",      \
        "out_bias=no", "mlp_bias=no", "head_bias=no", "init=normal", "init_std=0.02"

static const char *const gpt2[] = {"norm=layer",           "norm_eps=1e-5",
                                   "norm_bias=yes",        "position=learned",
                                   "activation=gelu_tanh", "mlp=plain",
                                   "qkv_bias=yes",         "out_bias=yes",
                                   "mlp_bias=yes",         "head_bias=no",
                                   "tied_head=yes",        "init=residual_scaled",
                                   "init_std=0.02",        NULL};
static const char *const llama1[] = {LLAMA, "norm_eps=1e-6", "rope_theta=10000", "tied_head=no",
                                     NULL};
static const char *const llama2[] = {LLAMA, "norm_eps=1e-5", "rope_theta=10000", "tied_head=no",
                                     NULL};
static const char *const llama3[] = {LLAMA, "norm_eps=1e-5", "rope_theta=500000", "tied_head=no",
                                     NULL};
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
/* Three layers with a window behind one without. */
static const char *const cwm[] = {LLAMA,
                                  "norm_eps=1e-5",
                                  "rope_theta=1000000",
                                  "rope_scaling=llama3",
                                  "rope_factor=16",
                                  "rope_low_freq_factor=1",
                                  "rope_high_freq_factor=4",
                                  "rope_original_positions=8192",
                                  "layer_mixers=fwww*",
                                  "sliding_window=8192",
                                  "tied_head=no",
                                  NULL};
static const char *const mistral[] = {
    LLAMA, "norm_eps=1e-5", "rope_theta=10000", "sliding_window=4096", "tied_head=no", NULL};
/* ---- LayerNorm, biases everywhere ---- */
#define BIASED                                                                                     \
    "norm=layer", "norm_bias=yes", "norm_eps=1e-5", "mlp=plain", "qkv_bias=yes", "out_bias=yes",   \
        "mlp_bias=yes"
/* Pythia too; GPT-NeoX-20B has activation = gelu_tanh. */
static const char *const neox[] = {BIASED,
                                   "position=rope",
                                   "rope_fraction=0.25",
                                   "activation=gelu",
                                   "parallel_block=two_norms",
                                   "tied_head=no",
                                   NULL};
static const char *const gptj[] = {BIASED,
                                   "qkv_bias=no",
                                   "out_bias=no",
                                   "position=rope",
                                   "rope_fraction=0.25",
                                   "rope_interleaved=yes",
                                   "head_bias=yes",
                                   "activation=gelu_tanh",
                                   "parallel_block=one_norm",
                                   "tied_head=no",
                                   NULL};
/* OPT-350m also has block = post, final_norm = no and embed_dim. */
static const char *const opt[] = {
    BIASED, "position=learned", "position_offset=2", "activation=relu", "tied_head=yes", NULL};
static const char *const galactica[] = {
    BIASED, "position=learned", "position_offset=2", "activation=gelu", "tied_head=yes", NULL};
/* The first GPT. */
static const char *const gpt[] = {BIASED,
                                  "position=learned",
                                  "block=post",
                                  "final_norm=no",
                                  "activation=gelu_tanh",
                                  "tied_head=yes",
                                  NULL};
static const char *const bloom[] = {
    BIASED, "position=alibi", "embed_norm=yes", "activation=gelu_tanh", "tied_head=yes", NULL};
static const char *const mpt[] = {"norm=layer", "norm_eps=1e-5",   "position=alibi",
                                  "mlp=plain",  "activation=gelu", "tied_head=yes",
                                  NULL};
/* One key and value head: kv_heads = 1. */
static const char *const starcoder[] = {BIASED,       "position=learned", "activation=gelu_tanh",
                                        "kv_heads=1", "tied_head=yes",    "init=residual_scaled",
                                        NULL};
static const char *const starcoder2[] = {BIASED,
                                         "position=rope",
                                         "rope_theta=100000",
                                         "tied_head=yes",
                                         "activation=gelu_tanh",
                                         "sliding_window=4096",
                                         NULL};
static const char *const phi[] = {BIASED,
                                  "position=rope",
                                  "rope_fraction=0.4",
                                  "head_bias=yes",
                                  "activation=gelu_tanh",
                                  "parallel_block=one_norm",
                                  "tied_head=no",
                                  NULL};
/* 7B and, with 8 groups, 11B; 40B and 180B normalise twice. */
#define FALCON                                                                                     \
    "norm=layer", "norm_bias=yes", "norm_eps=1e-5", "position=rope", "mlp=plain",                  \
        "activation=gelu", "qkv_bias=no", "out_bias=no", "mlp_bias=no", "tied_head=yes"
static const char *const falcon[] = {FALCON, "parallel_block=one_norm", "kv_heads=1", NULL};
static const char *const falcon40b[] = {FALCON, "parallel_block=two_norms", "kv_heads=8", NULL};

/* ---- RMSNorm and SwiGLU ---- */
static const char *const codellama[] = {LLAMA, "norm_eps=1e-5", "rope_theta=1000000",
                                        "tied_head=no", NULL};
static const char *const yi[] = {LLAMA, "norm_eps=1e-5", "rope_theta=5000000", "tied_head=no",
                                 NULL};
/* The coder models have theta 1e5, scaled by 4. */
static const char *const deepseek[] = {LLAMA, "norm_eps=1e-6", "rope_theta=10000", "tied_head=no",
                                       NULL};
static const char *const deepseek_coder[] = {LLAMA,
                                             "norm_eps=1e-6",
                                             "rope_theta=100000",
                                             "rope_scaling=linear",
                                             "rope_factor=4",
                                             "tied_head=no",
                                             NULL};
/* 7B turns, 13B has ALiBi; the second generation has a head of unit rows. */
static const char *const baichuan[] = {LLAMA, "norm_eps=1e-6", "rope_theta=10000", "tied_head=no",
                                       NULL};
static const char *const baichuan13b[] = {LLAMA, "norm_eps=1e-6", "position=alibi", "tied_head=no",
                                          NULL};
static const char *const baichuan2[] = {LLAMA,           "norm_eps=1e-6", "rope_theta=10000",
                                        "norm_head=yes", "tied_head=no",  NULL};
static const char *const baichuan2_13b[] = {LLAMA,           "norm_eps=1e-6", "position=alibi",
                                            "norm_head=yes", "tied_head=no",  NULL};
static const char *const internlm2[] = {LLAMA,
                                        "norm_eps=1e-5",
                                        "rope_theta=1000000",
                                        "rope_scaling=dynamic",
                                        "rope_factor=2",
                                        "rope_original_positions=32768",
                                        "tied_head=no",
                                        NULL};
/* longrope of the 128k models comes with their numbers from config.json. */
static const char *const phi3[] = {LLAMA, "norm_eps=1e-5", "rope_theta=10000", "tied_head=no",
                                   NULL};
/* Queries grow by log-n beyond the trained length, which the sizes give (logn_length,
 * rope_original_positions). */
static const char *const qwen1[] = {LLAMA,
                                    "norm_eps=1e-6",
                                    "rope_theta=10000",
                                    "qkv_bias=yes",
                                    "rope_scaling=dynamic",
                                    "tied_head=no",
                                    NULL};
#define GEMMA                                                                                      \
    LLAMA, "norm_eps=1e-6", "norm_offset=1", "activation=gelu_tanh", "rope_theta=10000",           \
        "tied_head=yes", LF_MODEL_EMBED_SCALED
static const char *const gemma[] = {GEMMA, NULL};
static const char *const gemma2[] = {GEMMA,
                                     "block=sandwich",
                                     "sliding_window=4096",
                                     "layer_mixers=wf*",
                                     "attn_softcap=50",
                                     "logit_softcap=30",
                                     NULL};
static const char *const vaultgemma[] = {
    GEMMA, "sliding_window=4096", "layer_mixers=wf*", "attn_softcap=50", "logit_softcap=30", NULL};
static const char *const gemma3[] = {GEMMA,
                                     "block=sandwich",
                                     "qk_norm=yes",
                                     "rope_theta=1000000",
                                     "rope_local_theta=10000",
                                     "layer_mixers=wwwwwf*",
                                     NULL};
/* Which last layers share keys and values, and channels for each layer, come with the sizes. */
#define GEMMA_LATE                                                                                 \
    "norm=rms", "norm_eps=1e-6", "position=rope", "mlp=glu", "activation=gelu_tanh",               \
        "tied_head=yes", "block=sandwich", "qk_norm=yes", "v_norm=yes", "attn_scale=1",            \
        LF_MODEL_EMBED_SCALED, "rope_theta=1000000", "rope_local_theta=10000"
/* So do experts; a quarter of the pairs of layers without a window turns. */
static const char *const gemma4[] = {
    GEMMA_LATE,           "layer_gain=yes",       "rope_scaling=proportional",
    "rope_fraction=0.25", "layer_mixers=wwwwwf*", NULL};
/* So do streams, and gates that are cut. */
static const char *const gemma3n[] = {GEMMA_LATE, "logit_softcap=30", "layer_mixers=wwwwf*", NULL};
/* ChatGLM 2 and 3 and the first GLM-4: half of each head turns, in neighbouring pairs. */
#define GLM                                                                                        \
    LLAMA, "norm_eps=1e-5", "rope_theta=10000", "rope_fraction=0.5", "rope_interleaved=yes",       \
        "qkv_bias=yes", "tied_head=no"
static const char *const chatglm3[] = {GLM, NULL};
static const char *const glm4[] = {GLM, "block=sandwich", NULL};
static const char *const chatglm[] = {BIASED,        "block=alpha",          "position=rope2d",
                                      "mask=prefix", "activation=gelu_tanh", "tied_head=no",
                                      NULL};

/* Qwen 1.5 and 2.5 differ from 2 in sizes only. */
static const char *const qwen2[] = {LLAMA,          "norm_eps=1e-6", "rope_theta=1000000",
                                    "qkv_bias=yes", "tied_head=no",  NULL};
static const char *const qwen3[] = {LLAMA,         "norm_eps=1e-6", "rope_theta=1000000",
                                    "qk_norm=yes", "tied_head=no",  NULL};

static const char *const mixtral[] = {LLAMA,
                                      "norm_eps=1e-5",
                                      "rope_theta=1000000",
                                      "tied_head=no",
                                      "router_renorm=yes",
                                      "router_aux=0.02",
                                      NULL};
static const char *const qwen15_moe[] = {LLAMA,
                                         "norm_eps=1e-6",
                                         "rope_theta=1000000",
                                         "qkv_bias=yes",
                                         "tied_head=no",
                                         "router_renorm=no",
                                         "shared_gate=yes",
                                         "router_aux=0.001",
                                         NULL};
/* A learned sink for each head, biases everywhere, a gated unit that is cut; every other layer has
 * a window. */
static const char *const gpt_oss[] = {LLAMA,
                                      "norm_eps=1e-5",
                                      "rope_theta=150000",
                                      "rope_scaling=yarn",
                                      "rope_factor=32",
                                      "rope_original_positions=4096",
                                      "rope_truncate=no",
                                      "tied_head=no",
                                      "qkv_bias=yes",
                                      "out_bias=yes",
                                      "attn_sinks=yes",
                                      "layer_mixers=wf*",
                                      "sliding_window=128",
                                      "activation=gelu_quick",
                                      "glu_limit=7",
                                      "glu_up_offset=1",
                                      "expert_bias=yes",
                                      "router_linear_bias=yes",
                                      "router_renorm=yes",
                                      "router_aux=0.001",
                                      NULL};
static const char *const qwen3_moe[] = {
    LLAMA,          "norm_eps=1e-6",     "rope_theta=1000000", "qk_norm=yes",
    "tied_head=no", "router_renorm=yes", "router_aux=0.001",   NULL};
/* Latent attention; yarn comes with the sizes. */
static const char *const deepseek_v2[] = {LLAMA,
                                          "norm_eps=1e-6",
                                          "rope_theta=10000",
                                          "rope_interleaved=yes",
                                          "tied_head=no",
                                          "router_aux=0.001",
                                          NULL};
static const char *const deepseek_v3[] = {LLAMA,
                                          "norm_eps=1e-6",
                                          "rope_theta=10000",
                                          "rope_interleaved=yes",
                                          "tied_head=no",
                                          "router_score=sigmoid",
                                          "router_bias=yes",
                                          "router_renorm=yes",
                                          NULL};
static const char *const deepseek_moe[] = {LLAMA,
                                           "norm_eps=1e-6",
                                           "rope_theta=10000",
                                           "tied_head=no",
                                           "router_renorm=no",
                                           "layer_mlps=d,m*",
                                           "router_aux=0.001",
                                           NULL};

static const char *const internlm3[] = {LLAMA,
                                        "norm_eps=1e-5",
                                        "rope_theta=50000000",
                                        "rope_scaling=dynamic",
                                        "rope_factor=6",
                                        "rope_original_positions=32768",
                                        "tied_head=no",
                                        NULL};
static const char *const seed_oss[] = {LLAMA,          "norm_eps=1e-6", "rope_theta=10000000",
                                       "qkv_bias=yes", "tied_head=no",  NULL};
#define ERNIE LLAMA, "norm_eps=1e-5", "rope_theta=500000", "rope_interleaved=yes", "tied_head=yes"
static const char *const ernie[] = {ERNIE, NULL};
static const char *const ernie_moe[] = {
    ERNIE, "router_renorm=yes", "router_bias=yes", "layer_mlps=d,m*", "router_aux=0.001", NULL};
static const char *const mimo[] = {LLAMA,          "norm_eps=1e-5", "rope_theta=640000",
                                   "qkv_bias=yes", "tied_head=no",  NULL};
/* GLM-4.5 to 4.7; the largest also have qk_norm = yes, and three dense layers. */
static const char *const glm45[] = {LLAMA,
                                    "norm_eps=1e-5",
                                    "rope_theta=1000000",
                                    "rope_fraction=0.5",
                                    "qkv_bias=yes",
                                    "tied_head=no",
                                    "router_score=sigmoid",
                                    "router_bias=yes",
                                    "router_renorm=yes",
                                    "layer_mlps=d,m*",
                                    NULL};
static const char *const granite[] = {LLAMA, "norm_eps=1e-5", "rope_theta=10000", "tied_head=yes",
                                      NULL};
static const char *const aria_text[] = {LLAMA,          "norm_eps=1e-6",     "rope_theta=10000",
                                        "tied_head=no", "router_renorm=yes", NULL};
/* Mellum 2; which layers have a window comes with the sizes. */
static const char *const mellum[] = {
    LLAMA,          "norm_eps=1e-6",     "rope_theta=500000", "qk_norm=yes",
    "tied_head=no", "router_renorm=yes", "router_aux=0.001",  NULL};
static const char *const granite_moe[] = {LLAMA,
                                          "norm_eps=1e-6",
                                          "rope_theta=10000",
                                          "tied_head=yes",
                                          "router_renorm=yes",
                                          "router_aux=0.001",
                                          NULL};
/* Granite with windows; which layers turn comes with the sizes. */
#define SWASH "layer_mixers=fwww*", "sliding_window=128", "attn_sinks=yes"
static const char *const granite_swa[] = {
    LLAMA, SWASH, "norm_eps=1e-5", "rope_theta=10000", "tied_head=yes", NULL};
static const char *const granite_moe_swa[] = {LLAMA,
                                              SWASH,
                                              "norm_eps=1e-6",
                                              "rope_theta=10000",
                                              "tied_head=yes",
                                              "router_renorm=yes",
                                              "router_aux=0.001",
                                              NULL};
/* Command R; R+ has norms of queries and keys besides. */
static const char *const cohere[] = {LLAMA,
                                     "norm=layer",
                                     "norm_eps=1e-5",
                                     "rope_theta=8000000",
                                     "rope_interleaved=yes",
                                     "parallel_block=one_norm",
                                     "logit_scale=0.0625",
                                     "tied_head=yes",
                                     NULL};
#define OLMO                                                                                       \
    LLAMA, "norm_eps=1e-6", "rope_theta=500000", "tied_head=no", "block=out", "qk_norm=yes",       \
        "qk_norm_all_heads=yes"
static const char *const olmo2[] = {OLMO, NULL};
/* Three layers with a window of 4096, then one without, for whose longer reach yarn comes with the
 * sizes. */
static const char *const olmo3[] = {OLMO, "sliding_window=4096", "layer_mixers=wwwf*",
                                    "rope_local_theta=500000", NULL};
static const char *const olmoe[] = {
    LLAMA,         "norm_eps=1e-5",         "rope_theta=10000", "tied_head=no",
    "qk_norm=yes", "qk_norm_all_heads=yes", "router_renorm=no", "router_aux=0.01",
    NULL};
/* Layers with a window (sliding_window comes with the sizes) by turns. */
static const char *const gpt_neo[] = {
    "norm=layer",   "norm_eps=1e-5", "norm_bias=yes",    "position=learned", "activation=gelu_tanh",
    "mlp=plain",    "qkv_bias=no",   "out_bias=yes",     "mlp_bias=yes",     "head_bias=no",
    "attn_scale=1", "tied_head=yes", "layer_mixers=fw*", "init_std=0.02",    NULL};
static const char *const olmo[] = {
    LLAMA,          "norm=layer", "norm_weight=no", "norm_eps=1e-5", "rope_theta=10000",
    "tied_head=no", NULL};
static const char *const flex_olmo[] = {
    LLAMA,         "norm_eps=1e-6",         "rope_theta=500000", "block=out",       "tied_head=no",
    "qk_norm=yes", "qk_norm_all_heads=yes", "router_renorm=no",  "router_aux=0.01", NULL};
/* rope_theta is 10000 alpha^(D / (D - 2)) of the release. */
#define HUNYUAN LLAMA, "norm_eps=1e-5", "tied_head=yes", "qk_norm=yes", "qk_norm_after_rope=yes"
static const char *const hunyuan[] = {HUNYUAN, NULL};
static const char *const hunyuan_moe[] = {HUNYUAN, "router_renorm=yes", NULL};
static const char *const minimax_m2[] = {LLAMA,
                                         "norm_eps=1e-6",
                                         "rope_theta=5000000",
                                         "rope_fraction=0.5",
                                         "tied_head=no",
                                         "qk_norm=yes",
                                         "qk_norm_all_heads=yes",
                                         "router_score=sigmoid",
                                         "router_bias=yes",
                                         "router_renorm=yes",
                                         NULL};
static const char *const nemotron[] = {"norm=layer",        "norm_bias=yes",   "norm_offset=1",
                                       "norm_eps=1e-5",     "position=rope",   "rope_theta=10000",
                                       "rope_fraction=0.5", "mlp=plain",       "activation=relu2",
                                       "tied_head=no",      "init_std=0.0134", NULL};
static const char *const ministral3[] = {LLAMA,
                                         "norm_eps=1e-5",
                                         "rope_theta=1000000",
                                         "rope_scaling=yarn",
                                         "rope_factor=16",
                                         "rope_attn_factor=1",
                                         "rope_original_positions=16384",
                                         "query_growth=0.1",
                                         "tied_head=no",
                                         NULL};
/* Every fourth layer does not turn. */
static const char *const smollm3[] = {
    LLAMA, "norm_eps=1e-6", "rope_theta=5000000", "tied_head=yes", "layer_positions=rrrn*", NULL};
/* Three layers with a window, then one without, which does not turn. */
#define UNTURNED "sliding_window=4096", "layer_mixers=wwwf*", "layer_positions=rrrn*"
static const char *const cohere2[] = {LLAMA,
                                      UNTURNED,
                                      "norm=layer",
                                      "norm_eps=1e-5",
                                      "rope_theta=50000",
                                      "rope_interleaved=yes",
                                      "parallel_block=one_norm",
                                      "logit_scale=0.25",
                                      "tied_head=yes",
                                      NULL};
static const char *const exaone4[] = {
    LLAMA,       UNTURNED,      "norm_eps=1e-5", "rope_theta=1000000",
    "block=out", "qk_norm=yes", "tied_head=no",  NULL};

#define V3_ROUTER "router_score=sigmoid", "router_bias=yes", "router_renorm=yes"
/* K-EXAONE: norms in front of the branches. */
static const char *const exaone_moe[] = {LLAMA,         UNTURNED,           "norm_eps=1e-5",
                                         "qk_norm=yes", "tied_head=no",     "rope_theta=1000000",
                                         V3_ROUTER,     "router_scale=2.5", "layer_mlps=d,m*",
                                         NULL};
/* Trinity: an MLP in the first layer, or as layer_mlps says; embed_scale comes with the sizes. */
static const char *const trinity[] = {
    LLAMA,         UNTURNED,        "norm_eps=1e-5", "rope_theta=10000", "block=sandwich",
    "qk_norm=yes", "attn_gate=yes", "tied_head=no",  V3_ROUTER,          "layer_mlps=d,m*",
    NULL};
/* Flint: its layers come with the sizes. */
static const char *const flint[] = {LLAMA,
                                    "norm_eps=1e-6",
                                    "rope_theta=10000",
                                    "qk_norm=yes",
                                    "attn_sinks=yes",
                                    "tied_head=no",
                                    "router_score=sigmoid",
                                    "router_renorm=yes",
                                    "router_aux=0.0005",
                                    NULL};
/* rope_theta, and the numbers that multiply, come with the sizes. */
static const char *const clova[] = {LLAMA,          "norm_eps=1e-6",  "rope_theta=10000",
                                    "tied_head=no", "block=sandwich", NULL};
#define RELU2 "position=rope", "mlp=plain", "activation=relu2", "tied_head=no"
static const char *const arcee[] = {RELU2, "norm=rms", "norm_eps=1e-5", "rope_theta=10000", NULL};
static const char *const nanochat[] = {RELU2,
                                       "norm=rms",
                                       "norm_eps=1e-6",
                                       "norm_weight=no",
                                       "embed_norm=yes",
                                       "rope_theta=10000",
                                       "rope_backwards=yes",
                                       "qk_unit_norm=yes",
                                       "logit_softcap=15",
                                       NULL};
/* Apertus: llama3 scaling by 8 of 8192 positions comes with the sizes. */
static const char *const apertus[] = {
    "norm=rms",         "norm_eps=1e-5",       "position=rope", "mlp=plain", "qk_norm=yes",
    "activation=xielu", "rope_theta=12000000", "tied_head=no",  NULL};
static const char *const jais2[] = {RELU2,           "norm=layer",       "norm_bias=yes",
                                    "norm_eps=1e-5", "qkv_bias=yes",     "out_bias=yes",
                                    "mlp_bias=yes",  "rope_theta=10000", NULL};
static const char *const helium[] = {
    LLAMA, "norm_eps=1e-8", "rope_theta=100000", "rope_interleaved=yes", "tied_head=no", NULL};
/* The window, and which layers have it, come with the sizes. */
static const char *const ministral[] = {LLAMA, "norm_eps=1e-5", "rope_theta=100000000",
                                        "tied_head=no", NULL};
static const char *const stablelm[] = {
    "norm=layer",         "norm_bias=yes", "norm_eps=1e-5",   "position=rope", "rope_theta=10000",
    "rope_fraction=0.25", "mlp=glu",       "activation=silu", "tied_head=no",  NULL};
static const char *const dots1[] = {
    LLAMA,     "norm_eps=1e-5",    "rope_theta=10000000", "qk_norm=yes", "tied_head=no",
    V3_ROUTER, "router_scale=2.5", "layer_mlps=d,m*",     NULL};
static const char *const solar_open[] = {LLAMA,          "norm_eps=1e-5", "rope_theta=1000000",
                                         "tied_head=no", V3_ROUTER,       NULL};
static const char *const hy3[] = {
    LLAMA,     "norm_eps=1e-5",      "rope_theta=11158840", "qk_norm=yes", "tied_head=no",
    V3_ROUTER, "router_scale=2.826", "layer_mlps=d,m*",     NULL};
/* Latent attention without yarn. */
static const char *const glm47_flash[] = {LLAMA,
                                          "norm_eps=1e-5",
                                          "rope_theta=1000000",
                                          "rope_interleaved=yes",
                                          "tied_head=no",
                                          V3_ROUTER,
                                          "router_scale=1.8",
                                          "layer_mlps=d,m*",
                                          NULL};
/* Queries of latent attention grow, with the channels that do not turn. */
static const char *const mistral4[] = {LLAMA,
                                       "norm_eps=1e-6",
                                       "rope_theta=10000",
                                       "rope_interleaved=yes",
                                       "rope_scaling=yarn",
                                       "rope_factor=128",
                                       "rope_attn_factor=1",
                                       "rope_mscale_all=1",
                                       "rope_original_positions=8192",
                                       "query_growth=0.1",
                                       "tied_head=no",
                                       "router_score=softmax",
                                       "router_renorm=yes",
                                       NULL};
/* Three layers that turn and attend within chunks, then one that sees all and does not turn. */
static const char *const llama4[] = {LLAMA,
                                     "norm_eps=1e-5",
                                     "rope_theta=500000",
                                     "rope_interleaved=yes",
                                     "layer_mixers=hhhf*",
                                     "layer_positions=rrrn*",
                                     "attn_chunk=8192",
                                     "qk_unit_norm=yes",
                                     "nope_growth=0.1",
                                     "tied_head=no",
                                     "router_score=sigmoid",
                                     "router_on_input=yes",
                                     NULL};
static const char *const youtu[] = {
    LLAMA, "norm_eps=1e-6", "rope_theta=10000", "rope_interleaved=yes", "tied_head=yes", NULL};
/* The numbers that multiply come with the sizes. */
static const char *const minicpm3[] = {LLAMA, "norm_eps=1e-5", "rope_theta=10000", "tied_head=yes",
                                       NULL};

/* ---- attention among scans ---- */

/* Three layers with a gated delta rule, then one that attends. */
#define DELTA                                                                                      \
    LLAMA, "norm_eps=1e-6", "norm_offset=1", "rope_theta=10000000", "rope_fraction=0.25",          \
        "qk_norm=yes", "attn_gate=yes", "layer_mixers=gggf*", "scan_conv=4", "scan_gate=silu",     \
        "scan_norm=before_gate"
static const char *const qwen3_next[] = {DELTA,
                                         "tied_head=no",
                                         "router_score=softmax",
                                         "router_renorm=yes",
                                         "router_aux=0.001",
                                         "shared_gate=yes",
                                         NULL};
static const char *const qwen35[] = {DELTA, "tied_head=no", NULL};
/* Three layers that scan, then one that attends and does not turn. */
static const char *const olmo_hybrid[] = {LLAMA,
                                          "norm_eps=1e-6",
                                          "tied_head=no",
                                          "position=none",
                                          "block=out_attention",
                                          "qk_norm=yes",
                                          "qk_norm_all_heads=yes",
                                          "layer_mixers=gggf*",
                                          "scan_conv=4",
                                          "scan_gate=silu",
                                          "scan_norm=before_gate",
                                          "scan_norm_eps=1e-5",
                                          "scan_strength=2",
                                          NULL};
static const char *const qwen35_moe[] = {DELTA,
                                         "tied_head=no",
                                         "router_score=softmax",
                                         "router_renorm=yes",
                                         "router_aux=0.001",
                                         "shared_gate=yes",
                                         NULL};
/* Three layers with Kimi Delta Attention, then one with latent attention, which does not turn. */
/* Lightning attention; which layers attend, and the factors, come with the sizes. */
static const char *const minimax_text[] = {LLAMA,
                                           "norm_eps=1e-5",
                                           "rope_theta=1000000",
                                           "tied_head=no",
                                           "block=alpha",
                                           "residual_factors=1,1,1,1,1,1",
                                           "layer_mixers=lllllllf*",
                                           "router_score=softmax",
                                           "router_renorm=yes",
                                           "scan_gate=sigmoid",
                                           "scan_norm=before_gate",
                                           "scan_norm_parts=1",
                                           "scan_norm_eps=1e-6",
                                           NULL};
static const char *const kimi_linear[] = {LLAMA,
                                          "norm_eps=1e-5",
                                          "tied_head=no",
                                          "layer_positions=n*",
                                          "layer_mixers=kkkf*",
                                          "layer_mlps=d,m*",
                                          "scan_conv=4",
                                          "scan_gate=sigmoid",
                                          "scan_norm=before_gate",
                                          "router_score=sigmoid",
                                          "router_renorm=yes",
                                          "router_bias=yes",
                                          NULL};
/* Short convolutions; which layers attend comes with the sizes, as do the experts. */
#define LFM                                                                                        \
    LLAMA, "norm_eps=1e-5", "rope_theta=1000000", "qk_norm=yes", "tied_head=yes", "scan_conv=3"
static const char *const lfm2[] = {LFM, "layer_mixers=ccf*", NULL};
static const char *const lfm2_moe[] = {LFM,
                                       "layer_mixers=ccf*",
                                       "layer_mlps=d*2,m*",
                                       "router_score=sigmoid",
                                       "router_renorm=yes",
                                       "router_bias=yes",
                                       NULL};

/* Mamba-2 alone. */
#define MAMBA                                                                                      \
    "norm=rms", "activation=silu", "mlp=glu", "scan_gate=silu", "scan_norm=after_gate",            \
        "scan_conv=4", "scan_conv_bias=yes"
static const char *const mamba2[] = {
    MAMBA,     "norm_eps=1e-5", "position=none", "layer_mixers=s*", "layer_mlps=n*",
    "heads=0", "ffn=0",         "init_std=0.1",  "tied_head=no",    NULL};
static const char *const bamba[] = {MAMBA,
                                    "norm_eps=1e-5",
                                    "position=rope",
                                    "rope_theta=10000",
                                    "rope_fraction=0.5",
                                    "layer_mixers=s*",
                                    "layer_mlps=d*",
                                    "tied_head=no",
                                    NULL};
/* Its four multipliers and which layers attend come with the sizes. */
static const char *const granite_hybrid[] = {MAMBA,
                                             "norm_eps=1e-5",
                                             "position=none",
                                             "layer_mixers=s*",
                                             "router_renorm=yes",
                                             "tied_head=yes",
                                             NULL};
/* A layer is a mixer or an MLP alone. */
static const char *const nemotron_h[] = {"norm=rms",
                                         "norm_eps=1e-5",
                                         "position=none",
                                         "mlp=plain",
                                         "activation=relu2",
                                         "scan_gate=silu",
                                         "scan_norm=after_gate",
                                         "scan_conv=4",
                                         "scan_conv_bias=yes",
                                         "scan_step_min=0.001",
                                         "router_score=sigmoid",
                                         "router_bias=yes",
                                         "router_renorm=yes",
                                         "tied_head=no",
                                         NULL};
/* Attention and Mamba-2 side by side; the multipliers come with the sizes. */
static const char *const falcon_h1[] = {LLAMA,
                                        "norm_eps=1e-5",
                                        "rope_theta=100000000000",
                                        "layer_mixers=b*",
                                        "layer_mlps=d*",
                                        "scan_gate=silu",
                                        "scan_conv=4",
                                        "scan_conv_bias=yes",
                                        "tied_head=no",
                                        NULL};

/* ---- encoders of texts ---- */
#define FILLER                                                                                     \
    "norm=layer", "norm_bias=yes", "norm_eps=1e-12", "mask=both", "position=learned",              \
        "activation=gelu", "mlp=plain", "qkv_bias=yes", "out_bias=yes", "mlp_bias=yes",            \
        "tied_head=yes", "head_bias=yes", "head_transform=yes", "head_transform_bias=yes",         \
        "init=normal", "init_std=0.02"
#define ENCODER FILLER, "block=post", "embed_norm=yes", "final_norm=no"
/* Texts beside pictures (dual.h). */
#define TEXT_TOWER BIASED, "position=learned", "tied_head=yes", "init=normal", "init_std=0.02"
static const char *const clip[] = {TEXT_TOWER, "norm_eps=1e-5", "activation=gelu_quick", NULL};
static const char *const siglip[] = {TEXT_TOWER,
                                     "norm_eps=1e-6",
                                     "activation=gelu_tanh",
                                     "mask=both",
                                     "dual.read=attention",
                                     "dual.text_bias=yes",
                                     "dual.bias=yes",
                                     "dual.padded=yes",
                                     "dual.pad_token=1",
                                     "dual.scale_init=2.302585092994046",
                                     "dual.bias_init=-10",
                                     NULL};
static const char *const bert[] = {ENCODER, "token_types=2", NULL};
/* Both models of ELECTRA: the generator says hidden tokens, the discriminator (output = labels)
 * which tokens were replaced. */
static const char *const electra[] = {ENCODER, "token_types=2", NULL};
static const char *const roberta[] = {ENCODER, "norm_eps=1e-5", "token_types=1",
                                      "position_offset=2", NULL};
/* Norms before the branches, and one behind the last layer. */
static const char *const megatron_bert[] = {FILLER, "token_types=2", NULL};
static const char *const roberta_prenorm[] = {FILLER,          "embed_norm=yes",    "norm_eps=1e-5",
                                              "token_types=1", "position_offset=2", NULL};
static const char *const xlm_roberta_xl[] = {FILLER, "norm_eps=1e-5", "token_types=1",
                                             "position_offset=2", NULL};
static const char *const distilbert[] = {ENCODER, NULL};
/* Two layers with a window of 64 tokens of either side behind one without. */
static const char *const modernbert[] = {"norm=layer",
                                         "norm_bias=no",
                                         "norm_eps=1e-5",
                                         "mask=both",
                                         "embed_norm=yes",
                                         "first_norm=no",
                                         "position=rope",
                                         "rope_theta=160000",
                                         "rope_local_theta=10000",
                                         "layer_mixers=fww*",
                                         "sliding_window=65",
                                         "activation=gelu",
                                         "mlp=glu",
                                         "qkv_bias=no",
                                         "out_bias=no",
                                         "mlp_bias=no",
                                         "tied_head=yes",
                                         "head_bias=yes",
                                         "head_transform=yes",
                                         "init=residual_scaled",
                                         "init_std=0.02",
                                         NULL};

/* ---- encoder-decoders; encoder_layers comes with the sizes ---- */
#define T5                                                                                         \
    "norm=rms", "norm_bias=no", "norm_eps=1e-6", "position=relative", "relative_buckets=32",       \
        "relative_distance=128", "attn_scale=1", "qkv_bias=no", "out_bias=no", "mlp_bias=no",      \
        "head_bias=no", "init=t5", "init_std=1", "decoder_start=0"
static const char *const t5[] = {
    T5, "mlp=plain", "activation=relu", "tied_head=yes", LF_MODEL_HEAD_SCALED, NULL};
static const char *const t5_v11[] = {T5, "mlp=glu", "activation=gelu_tanh", "tied_head=no", NULL};
static const char *const umt5[] = {T5,
                                   "mlp=glu",
                                   "activation=gelu_tanh",
                                   "tied_head=no",
                                   "relative_each_layer=yes",
                                   LF_MODEL_HEAD_SCALED,
                                   NULL};
static const char *const bart[] = {"norm=layer",
                                   "norm_bias=yes",
                                   "norm_eps=1e-5",
                                   "block=post",
                                   "embed_norm=yes",
                                   "final_norm=no",
                                   "position=learned",
                                   "position_offset=2",
                                   "activation=gelu",
                                   "mlp=plain",
                                   "qkv_bias=yes",
                                   "out_bias=yes",
                                   "mlp_bias=yes",
                                   "head_bias=yes",
                                   "tied_head=yes",
                                   "decoder_start=2",
                                   "init=normal",
                                   "init_std=0.02",
                                   NULL};

const struct lf_model_family lf_model_families[] = {
    {"gpt2", gpt2},
    {"gpt3", gpt2},
    {"llama", llama2},
    {"llama1", llama1},
    {"llama2", llama2},
    /* clang-format off */
    {"codellama", codellama},
    {"yi", yi},
    {"gpt-neox", neox},
    {"pythia", neox},
    {"gpt-j", gptj},
    {"opt", opt},
    {"galactica", galactica},
    {"codegen", gptj},
    {"bloom", bloom},
    {"mpt", mpt},
    {"falcon", falcon},
    {"falcon-40b", falcon40b},
    {"starcoder", starcoder},
    {"starcoder2", starcoder2},
    {"phi", phi},
    {"phi3", phi3},
    {"deepseek", deepseek},
    {"deepseek-coder", deepseek_coder},
    {"baichuan", baichuan},
    {"baichuan-13b", baichuan13b},
    {"baichuan2", baichuan2},
    {"baichuan2-13b", baichuan2_13b},
    {"internlm2", internlm2},
    {"qwen", qwen1},
    {"gemma", gemma},
    {"gemma2", gemma2},
    {"gemma3", gemma3},
    {"gemma3n", gemma3n},
    {"gemma4", gemma4},
    {"gemma4-unified", gemma4},
    {"chatglm", chatglm},
    {"chatglm2", chatglm3},
    {"chatglm3", chatglm3},
    {"glm4-9b", chatglm3},
    {"glm4", glm4},
    /* clang-format on */
    {"llama3", llama3},
    {"llama3.1", llama31},
    {"llama3.2", llama32},
    {"mistral", mistral},
    {"qwen1.5", qwen2},
    {"qwen2", qwen2},
    {"qwen2.5", qwen2},
    {"qwen3", qwen3},
    {"mixtral", mixtral},
    {"qwen1.5-moe", qwen15_moe},
    {"qwen2-moe", qwen15_moe},
    {"qwen3-moe", qwen3_moe},
    {"gpt-oss", gpt_oss},
    {"deepseek-moe", deepseek_moe},
    {"deepseek-v2", deepseek_v2},
    {"deepseek-v3", deepseek_v3},
    {"internlm3", internlm3},
    {"seed-oss", seed_oss},
    {"ernie4.5", ernie},
    {"ernie4.5-moe", ernie_moe},
    {"mimo", mimo},
    {"glm4.5", glm45},
    {"granite", granite},
    {"granite-moe", granite_moe},
    {"granite-moe-shared", granite_moe},
    {"granite-swa", granite_swa},
    {"granite-moe-swa", granite_moe_swa},
    {"trinity", trinity},
    {"flint", flint},
    {"minicpm3", minicpm3},
    {"biogpt", galactica},
    {"gpt", gpt},
    {"aria-text", aria_text},
    {"mellum", mellum},
    {"cohere", cohere},
    {"olmo2", olmo2},
    {"olmo3", olmo3},
    {"olmoe", olmoe},
    {"olmo", olmo},
    {"flex-olmo", flex_olmo},
    {"nanochat", nanochat},
    {"gpt-neo", gpt_neo},
    {"iquestcoder", llama3},
    {"cwm", cwm},
    {"vaultgemma", vaultgemma},
    {"hunyuan", hunyuan},
    {"hunyuan-moe", hunyuan_moe},
    {"minimax-m2", minimax_m2},
    {"nemotron", nemotron},
    {"ministral3", ministral3},
    {"smollm3", smollm3},
    {"cohere2", cohere2},
    {"exaone4", exaone4},
    {"qwen3-next", qwen3_next},
    {"qwen3.5", qwen35},
    {"qwen3.5-moe", qwen35_moe},
    {"olmo-hybrid", olmo_hybrid},
    {"kimi-linear", kimi_linear},
    {"minimax-text", minimax_text},
    {"lfm2", lfm2},
    {"lfm2-moe", lfm2_moe},
    {"exaone-moe", exaone_moe},
    {"hyperclovax", clova},
    {"arcee", arcee},
    {"apertus", apertus},
    {"jais2", jais2},
    {"helium", helium},
    {"ministral", ministral},
    {"stablelm", stablelm},
    {"dots1", dots1},
    {"solar-open", solar_open},
    {"hy3", hy3},
    {"glm4.7-flash", glm47_flash},
    {"youtu", youtu},
    {"mistral4", mistral4},
    {"llama4", llama4},
    {"mamba2", mamba2},
    {"bamba", bamba},
    {"granite-hybrid", granite_hybrid},
    {"nemotron-h", nemotron_h},
    {"falcon-h1", falcon_h1},
    {"clip", clip},
    {"siglip", siglip},
    {"bert", bert},
    {"roberta", roberta},
    {"xlm-roberta", roberta},
    {"camembert", roberta},
    {"distilbert", distilbert},
    {"modernbert", modernbert},
    {"electra", electra},
    {"ernie", bert},
    {"data2vec-text", roberta},
    {"megatron-bert", megatron_bert},
    {"roberta-prelayernorm", roberta_prenorm},
    {"xlm-roberta-xl", xlm_roberta_xl},
    {"t5", t5},
    {"t5-v1.1", t5_v11},
    {"mt5", t5_v11},
    {"umt5", umt5},
    {"bart", bart},
};
const size_t lf_model_n_families = sizeof(lf_model_families) / sizeof(lf_model_families[0]);
