/* SPDX-License-Identifier: Apache-2.0
 *
 * The models that tests cut into chunks, by the switches of families, and how results compare.
 */
#include <math.h>
#include <string.h>

#include "tests/unit/chunk_rig.h"

#define SCAN(mixers) mixers, "scan_heads=4", "scan_key_dim=5", "scan_value_dim=6"
#define MAMBA                                                                                      \
    SCAN("layer_mixers=sf*"), "scan_groups=2", "scan_conv=4", "scan_conv_bias=yes",                \
        "scan_gate=silu", "scan_norm=after_gate", "scan_norm_parts=2"
#define DELTA                                                                                      \
    SCAN("layer_mixers=gf*"), "scan_groups=2", "scan_conv=4", "scan_gate=silu",                    \
        "scan_norm=before_gate", "attn_gate=yes"
#define KDA                                                                                        \
    SCAN("layer_mixers=kf*"), "scan_conv=4", "scan_rank=3", "scan_gate=sigmoid",                   \
        "scan_norm=before_gate"
#define LIGHTNING                                                                                  \
    SCAN("layer_mixers=lf*"), "scan_gate=sigmoid", "scan_norm=before_gate", "scan_norm_parts=1"
#define BESIDE                                                                                     \
    SCAN("layer_mixers=b*"), "scan_conv=3", "scan_gate=silu", "scan_norm=after_gate",              \
        "scan_scales=0.5,2,0.7,1.5,0.9", "mlp_out_scale=0.8"
#define CHUNKS                                                                                     \
    "layer_mixers=hf*", "attn_chunk=5", "layer_positions=rn*", "qk_unit_norm=yes",                 \
        "nope_growth=0.3", "nope_growth_length=4", "experts=4", "experts_per_token=1",             \
        "expert_ffn=16", "shared_ffn=16", "router_score=sigmoid", "router_on_input=yes"
#define SHORT "layer_mixers=cf*", "scan_conv=3"

/* Encoder-decoders of as many layers. */
#define STACKS         "layers=2", "encoder_layers=2", "kv_heads=4"
#define STACKS_BY_FAR  STACKS, "position=relative", "relative_buckets=8", "relative_distance=12"
#define STACKS_LEARNED STACKS, "position=learned", "block=post", "norm=layer", "embed_norm=yes"

const struct rig_model rig_models[] = {
    {.name = "llama"},
    {.name = "gpt2",
     .set = {"norm=layer", "norm_bias=yes", "mlp=plain", "activation=gelu", "qkv_bias=yes",
             "out_bias=yes", "mlp_bias=yes", "position=learned", "embed_dropout=0.1",
             "attn_dropout=0.1", "mlp_dropout=0.1", "attn_prob_dropout=0.1"}},
    {.name = "gpt2, tied",
     .set = {"norm=layer", "norm_bias=yes", "mlp=plain", "position=learned", "tied_head=yes"}},
    {.name = "gpt-j, parallel",
     .set = {"parallel_block=one_norm", "rope_interleaved=yes", "rope_fraction=0.5",
             "head_bias=yes"}},
    {.name = "gpt-neox, two norms", .set = {"parallel_block=two_norms", "kv_heads=4"}},
    {.name = "bloom",
     .set = {"position=alibi", "embed_norm=yes", "norm=layer", "norm_bias=yes", "tied_head=yes"}},
    {.name = "opt-350m",
     .set = {"block=post", "embed_dim=24", "final_norm=no", "position=learned", "position_offset=2",
             "tied_head=yes"}},
    {.name = "bert",
     .set = {"mask=both", "block=post", "final_norm=no", "position=learned", "token_types=2",
             "tied_head=yes", "head_transform=yes", "head_transform_bias=yes", "embed_norm=yes"}},
    {.name = "electra",
     .set = {"mask=both", "block=post", "final_norm=no", "position=learned", "token_types=2",
             "embed_dim=24", "embed_narrow=yes", "tied_head=yes", "head_transform=yes",
             "head_transform_bias=yes", "embed_norm=yes"}},
    {.name = "modernbert",
     .set = {"mask=both", "first_norm=no", "sliding_window=4", "layer_mixers=fw*",
             "rope_local_theta=100", "head_transform=yes"}},
    {.name = "mistral", .set = {"sliding_window=6"}},
    {.name = "qwen",
     .set = {"logn_length=8", "qkv_bias=yes", "kv_heads=4", "layer_mixers=ff,w*",
             "sliding_window=5"}},
    {.name = "olmo2",
     .set = {"block=out", "qk_norm=yes", "qk_norm_all_heads=yes", "logit_scale=0.25"}},
    {.name = "granite, hunyuan",
     .set = {"residual_scale=0.3", "logit_scale=0.25", "qk_norm=yes", "qk_norm_after_rope=yes"}},
    {.name = "nemotron, ministral3",
     .set = {"norm=layer", "norm_bias=yes", "norm_offset=1", "mlp=plain", "activation=relu2",
             "query_growth=0.3", "rope_original_positions=4"}},
    {.name = "qwen3", .set = {"qk_norm=yes", "tied_head=yes"}},
    {.name = "gemma2",
     .set = {"block=sandwich", "norm_offset=1", "attn_softcap=5", "logit_softcap=3",
             "embed_scale=5.6", "sliding_window=6", "layer_mixers=wf*", "tied_head=yes"}},
    {.name = "gemma3",
     .set = {"block=sandwich", "norm_offset=1", "qk_norm=yes", "sliding_window=6",
             "layer_mixers=wwf*", "rope_local_theta=100", "rope_scaling=linear", "rope_factor=8"}},
    {.name = "chatglm-6b",
     .set = {"block=alpha", "norm=layer", "norm_bias=yes", "position=rope2d", "mask=prefix",
             "mlp=plain", "activation=gelu", "qkv_bias=yes", "kv_heads=4"}},
    {.name = "baichuan2", .set = {"norm_head=yes"}},
    {.name = "phi3, longrope",
     .set = {"rope_scaling=longrope", "rope_original_positions=16",
             "rope_short_factors=1,1.1,1.2,1.3", "rope_long_factors=2,3,4,5"}},
    {.name = "llama-yarn",
     .set = {"rope_scaling=yarn", "rope_factor=4", "rope_original_positions=16"}},
    {.name = "mixtral",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "router_aux=0.1"}},
    {.name = "deepseek-moe",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "shared_ffn=16",
             "layer_mlps=d,m*", "router_aux=0.1", "router_scale=2", "router_renorm=no"}},
    {.name = "qwen2-moe, sparse",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "shared_ffn=16",
             "shared_gate=yes", "layer_mlps=dm*", "router_aux=0.1"}},
    {.name = "experts before dense layers",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "layer_mlps=md*",
             "router_aux=0.1"}},
    {.name = "deepseek-v3",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "shared_ffn=16",
             "router_score=sigmoid", "router_bias=yes", "router_bias_rate=0.01"}},
    {.name = "gpt-oss",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "expert_bias=yes",
             "router_linear_bias=yes", "activation=gelu_quick", "glu_limit=0.7", "glu_up_offset=1",
             "attn_sinks=yes", "qkv_bias=yes", "out_bias=yes", "router_aux=0.1"}},
    {.name = "mixers and MLPs apart", .set = {"layer_mixers=fn*", "layer_mlps=nd*"}},
    {.name = "layers without positions", .set = {"layer_positions=rrn*"}},
    {.name = "windows with heads of their own",
     .set = {"sliding_window=6", "layer_mixers=wf*", "window_kv_heads=4", "window_head_dim=4",
             "rope_local_theta=100", "qk_norm=yes"}},
    {.name = "noise", .set = {"embed_norm=yes"}, .noise = true},
    {.name = "lora", .set = {"qkv_bias=yes"}, .lora = 3, .lora_dropout = 0.1},
    {.name = "dora", .lora = -3},
    {.name = "lora of one layer", .lora = 3, .targets = "layers.1.*"},
    {.name = "lora of one layer of experts",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "router_aux=0.1"},
     .lora = 3,
     .targets = "layers.1.attn.*"},
    {.name = "lora of a reward model", .set = {"output=score"}, .head = RIG_SCORE, .lora = 3},
    {.name = "a layer held", .set = {"tied_head=yes"}, .freeze = "layers.0.*"},
    {.name = "policy", .set = {"attn_dropout=0.1"}, .head = RIG_LOGP},
    {.name = "reward model", .set = {"output=score"}, .head = RIG_SCORE},
    {.name = "scoring", .set = {"tied_head=yes"}, .head = RIG_SCORING},
    {.name = "logits", .set = {"norm_head=yes"}, .head = RIG_LOGITS},
    {.name = "latent attention",
     .set = {"kv_heads=4", "kv_lora=12", "q_lora=10", "nope_dim=6", "rope_dim=4", "v_dim=5",
             "tied_head=yes"}},
    {.name = "latent attention that grows",
     .set = {"kv_heads=4", "kv_lora=12", "nope_dim=6", "rope_dim=4", "v_dim=5", "query_growth=0.3",
             "rope_original_positions=4"}},
    {.name = "llama4", .set = {CHUNKS}},
    {.name = "lora of llama4", .set = {CHUNKS}, .lora = 3, .targets = "layers.*.attn.*"},
    {.name = "mamba", .set = {MAMBA}},
    {.name = "gated delta net", .set = {DELTA}},
    {.name = "kimi delta attention", .set = {KDA}},
    {.name = "lightning", .set = {LIGHTNING}},
    {.name = "attention beside mamba", .set = {BESIDE}},
    {.name = "short convolutions", .set = {SHORT}},
    {.name = "lora of mamba", .set = {MAMBA}, .lora = 3},
    {.name = "lora of gated delta net", .set = {DELTA}, .lora = 3},
    {.name = "lora of kimi delta attention", .set = {KDA}, .lora = 3},
    {.name = "lora of lightning", .set = {LIGHTNING}, .lora = 3},
    {.name = "lora of attention beside mamba", .set = {BESIDE}, .lora = 3},
    {.name = "lora of short convolutions", .set = {SHORT}, .lora = 3},
    {.name = "experts without gates",
     .set = {"experts=4", "experts_per_token=2", "expert_ffn=16", "shared_ffn=16", "mlp=plain",
             "activation=relu2", "expert_latent=20", "router_aux=0.1"}},
    {.name = "later tokens",
     .set = {"mtp_layers=2", "logit_softcap=3", "attn_dropout=0.1"},
     .mtp = true},
    {.name = "later tokens, experts",
     .set = {"mtp_layers=1", "mtp_join=hidden_embed", "tied_head=yes", "experts=4",
             "experts_per_token=2", "expert_ffn=16", "router_aux=0.1", "layer_mlps=dm*"},
     .mtp = true},
    {.name = "later tokens without experts",
     .set = {"mtp_layers=2", "mtp_mlp=dense", "mtp_norm=final", "experts=4", "experts_per_token=2",
             "expert_ffn=16", "router_aux=0.1"},
     .mtp = true},
    {.name = "later tokens alone",
     .set = {"mtp_layers=1"},
     .mtp = true,
     .freeze = "layers.[0-3].*"},
    {.name = "lora with later tokens", .set = {"mtp_layers=1"}, .mtp = true, .lora = 3},
    {.name = "heads for later tokens, idle", .set = {"mtp_layers=2"}, .lora = 3},
    {.name = "t5", .set = {STACKS_BY_FAR, "tied_head=yes", "attn_dropout=0.1"}},
    {.name = "umt5", .set = {STACKS_BY_FAR, "relative_each_layer=yes", "attn_prob_dropout=0.1"}},
    {.name = "bart", .set = {STACKS_LEARNED, "tied_head=yes", "head_bias=yes", "final_norm=no"}},
    {.name = "an encoder-decoder says logits", .set = {STACKS_BY_FAR}, .head = RIG_LOGITS},
    {.name = "lora of t5", .set = {STACKS_BY_FAR}, .lora = 3},
    {.name = "lora of the encoder of t5",
     .set = {STACKS_BY_FAR},
     .lora = 3,
     .targets = "encoder.layers.1.*"},
    {.name = "lora of the decoder of t5",
     .set = {STACKS_BY_FAR},
     .lora = 3,
     .targets = "layers.1.*"},
};
const int rig_n_models = sizeof rig_models / sizeof *rig_models;

const struct rig_model *rig_model(const char *name)
{
    for (int i = 0; i < rig_n_models; i++)
        if (strcmp(rig_models[i].name, name) == 0)
            return &rig_models[i];
    return NULL;
}

/* ---- comparing ---- */

static bool is_tied(const struct rig_model *m, const char *name)
{
    lf_model_config c;
    rig_configure(m, &c);
    return (c.tied_head || m->mtp) && strcmp(name, "embed.weight") == 0;
}

/* A table that all layers of a stack share. */
static bool is_spread(const struct rig_model *m, const char *name)
{
    lf_model_config c;
    struct lf_decoder_spread of[LF_DECODER_SPREAD];
    bool yes = false;
    rig_configure(m, &c);
    for (int i = lf_decoder_spread(&c, of) - 1; i >= 0; i--)
        yes = yes || strcmp(of[i].name, name) == 0;
    return yes;
}

/* Of such a table: what all chunks have, in their order. */
static double error_of_all(const struct rig_result *r, const struct rig_tensor *want)
{
    double diff = 0, norm = 0;
    for (int64_t e = 0; e < want->n; e++) {
        double sum = 0;
        for (int i = 0; i < r->n_t; i++)
            sum += strcmp(r->t[i].name, want->name) == 0 ? (double)r->t[i].grad[e] : 0;
        diff += (sum - (double)want->grad[e]) * (sum - (double)want->grad[e]);
        norm += (double)want->grad[e] * (double)want->grad[e];
    }
    return sqrt(diff / norm);
}

/* Of a tied embedding: what both chunks have, that of the head first. */
static double error_of_sum(const struct rig_result *r, const struct rig_tensor *want)
{
    const struct rig_tensor *head = rig_find(r, want->name, true),
                            *embed = rig_find(r, want->name, false);
    double diff = 0, norm = 0;
    if (!head || !embed || head->n != want->n || embed->n != want->n)
        return (double)INFINITY;
    for (int64_t e = 0; e < want->n; e++) {
        const double sum = (double)(head == embed ? head->grad[e] : head->grad[e] + embed->grad[e]);
        diff += (sum - (double)want->grad[e]) * (sum - (double)want->grad[e]);
        norm += (double)want->grad[e] * (double)want->grad[e];
    }
    return sqrt(diff / norm);
}

int rig_differing(const struct rig_model *m, const struct rig_result *whole,
                  const struct rig_result *cut, const char **name)
{
    int bad = 0;
    for (int i = 0; i < whole->n_t; i++) {
        const struct rig_tensor *want = &whole->t[i], *is = rig_find(cut, want->name, true);
        const bool same =
            is_spread(m, want->name) ? error_of_all(cut, want) <= 1e-6
            : is_tied(m, want->name) && !cut->exact
                ? error_of_sum(cut, want) <= 1e-6
                : is && is->n == want->n &&
                      memcmp(is->grad, want->grad, (size_t)want->n * sizeof *want->grad) == 0;
        if (!same && !bad++)
            *name = want->name;
    }
    return bad;
}

bool rig_near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * fabs(b);
}

bool rig_same_record(const struct rig_result *a, const struct rig_result *b)
{
    double any = b->rec.loss_sum;
    for (size_t i = 0; i < sizeof b->out / sizeof *b->out; i++)
        any += fabs(b->out[i]);
    return any > 0 && a->rec.loss_sum == b->rec.loss_sum && a->rec.tokens == b->rec.tokens &&
           a->rec.correct == b->rec.correct && a->rec.router_aux == b->rec.router_aux &&
           rig_near(a->rec.router_entropy, b->rec.router_entropy) &&
           rig_near(a->rec.router_load, b->rec.router_load) &&
           memcmp(a->rec.more_loss, b->rec.more_loss, sizeof a->rec.more_loss) == 0 &&
           memcmp(a->rec.more_tokens, b->rec.more_tokens, sizeof a->rec.more_tokens) == 0 &&
           memcmp(a->rec.more_correct, b->rec.more_correct, sizeof a->rec.more_correct) == 0 &&
           a->rec.router_seen == b->rec.router_seen && memcmp(a->out, b->out, sizeof a->out) == 0;
}

struct rig_way rig_whole(const struct rig_way *w)
{
    return (struct rig_way){.few = w->few,
                            .micro = w->micro,
                            .compute = w->compute,
                            .fp8 = w->fp8,
                            .fp8_edges = w->fp8_edges};
}
