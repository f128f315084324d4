/* SPDX-License-Identifier: Apache-2.0
 *
 * Each switch of a description flipped, one at a time: the logits must move, or the description
 * must be refused. A switch is left out where it cannot matter by the mathematics (`when`), never
 * because a family's golden file does not show it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/base/str.h"
#include "engine/convert/map.h"
#include "tests/golden/families/family.h"
#include "tests/tap/tap.h"

/* set: settings applied together; "key=value", "key*factor", "key+number", "key!" (no <-> yes). A
 * row whose first setting changes nothing is not a flip and is left out. */
static const struct {
    const char *set, *when;
} flips[] = {
    /* norms */
    {"norm=rms norm_bias=no", "norm=layer"},
    {"norm=layer", "norm=rms"},
    {"norm_bias!", "norm=layer"},
    {"norm_weight=no", NULL},
    {"norm_eps*3000", "norm_eps!=1e-12"}, /* f32 does not see so little */
    {"norm_offset=1", "norm_offset=0"},
    {"norm_offset=0", "norm_offset=1"},
    {"embed_norm!", NULL},
    {"final_norm!", NULL},
    {"qk_norm! qk_norm_all_heads=no qk_norm_after_rope=no", "heads!=0"},
    {"qk_norm_all_heads!", "qk_norm=yes"},
    {"qk_norm_after_rope!", "qk_norm=yes position=rope logn_length=0 query_growth=0"},
    /* the block */
    {"block=pre", "parallel_block=no"},
    {"block=post", "parallel_block=no"},
    {"block=sandwich", "parallel_block=no"},
    {"block=alpha", "parallel_block=no"},
    {"block=out", "parallel_block=no"},
    {"block=out_attention", "parallel_block=no"},
    {"residual_scale*1.05",
     "block!=post residual_factors="}, /* a norm over the sum hides some of it */
    {"residual_alpha*1.05", "block=alpha residual_factors="},
    {"residual_factors=", "residual_factors!="},
    {"residual_factors=1.7,0.9,1.4,0.8,1.2,1.1", "residual_factors!="},
    {"residual_factors=1.4,0.8,1.2,1.1,1.7,0.9", "residual_factors!="},
    {"residual_factors=0.8,1.4,1.7,0.9,1.2,1.1", "residual_factors!="},
    {"parallel_block=no", NULL},
    {"parallel_block=one_norm", "block=pre"},
    {"parallel_block=two_norms", "block=pre"},
    /* positions; two settings, because rotary ones are refused without rope */
    {"position=none", NULL},
    {"position=rope", "position=none heads!=0"},
    {"position=rope", "position=alibi"},
    {"position=rope", "position=rope2d"},
    {"position=alibi", "position=rope"},
    {"position=learned", "position=rope"},
    {"position_offset=1", "position=learned"},
    {"rope_theta*1.05", "position=rope layer_positions!=n*"},
    {"rope_theta*1.05", "position=rope2d"},
    {"rope_local_theta*1.05", "rope_local_theta!=0"},
    {"rope_local_theta=0", "rope_local_theta!=0"},
    {"rope_fraction=0.5", "position=rope"},
    {"rope_fraction=1", "position=rope"},
    {"rope_interleaved!", "position=rope layer_positions!=n*"},
    {"rope_backwards!", "position=rope layer_positions!=n*"},
    {"rope_scaling=none rope_factor=1", "rope_scaling=linear"},
    {"rope_scaling=none rope_factor=1", "rope_scaling=llama3"},
    {"rope_scaling=none rope_factor=1", "rope_scaling=yarn"},
    {"rope_scaling=none rope_factor=1", "rope_scaling=longrope"},
    {"rope_scaling=none rope_fraction=1", "rope_scaling=proportional"},
    {"rope_factor*1.05", "rope_scaling=proportional"},
    {"rope_scaling=linear rope_factor=2", "rope_scaling=none position=rope layer_positions!=n*"},
    {"rope_factor*1.05", "rope_scaling=linear"},
    {"rope_factor*1.05", "rope_scaling=llama3"},
    {"rope_factor*1.05", "rope_scaling=yarn"},
    {"rope_low_freq_factor*1.3", "rope_scaling=llama3"},
    {"rope_high_freq_factor*0.9", "rope_scaling=llama3"},
    {"rope_original_positions+-1", "rope_scaling=llama3"},
    {"rope_original_positions*2", "rope_scaling=longrope"},
    {"rope_original_positions*0.5", "rope_scaling=longrope"},
    {"rope_attn_factor=1.3", "rope_scaling=longrope"},
    {"rope_attn_factor=1.3", "rope_scaling=yarn"},
    {"rope_truncate!", "rope_scaling=yarn"},
    {"rope_beta_fast*1.1", "rope_scaling=yarn"},
    {"rope_beta_slow*1.1", "rope_scaling=yarn"},
    {"rope_original_positions+-1", "rope_scaling=yarn"},
    {"logn_length=7", "position=rope"},
    {"logn_length=0", NULL},
    {"query_growth*1.2", "query_growth!=0"},
    {"query_growth=0", NULL},
    {"nope_growth*1.2", "nope_growth!=0"},
    {"nope_growth=0", NULL},
    {"nope_growth_length+1", "nope_growth!=0"},
    {"nope_growth_length+-1", "nope_growth!=0"},
    {"qk_unit_norm!", "position=rope heads!=0 layer_positions!=n*"},
    /* attention */
    {"qkv_bias!", "heads!=0"},
    {"out_bias!", "heads!=0"},
    {"kv_heads=1", "heads!=0"},
    {"mask=causal", NULL},
    {"mask=causal token_types=0", "token_types!=0"},
    {"mask=both", "mask=prefix position!=rope2d"},
    {"mla_norm_eps*3000", "kv_lora!=0"},
    {"rope_mscale_all*1.2", "kv_lora!=0"},
    {"rope_mscale_all=0", "kv_lora!=0"},
    {"kv_lora=0 q_lora=0 nope_dim=0 rope_dim=0 v_dim=0 rope_mscale_all=0", "kv_lora!=0"},
    {"attn_gate=no", "kv_lora=0"},
    {"attn_scale=0.3", "heads!=0"},
    {"attn_scale=0", NULL},
    {"attn_softcap=2", "heads!=0"},
    {"attn_softcap=0", NULL},
    {"attn_sinks!", "heads!=0"},
    {"v_norm=no", "v_norm=yes"},
    {"keys_as_values=no", "keys_as_values=yes"},
    {"kv_shared_layers+-1", "kv_shared_layers!=0"},
    {"kv_shared_layers=0 kv_shared_ffn=0", "kv_shared_layers!=0"},
    {"kv_shared_ffn=0", "kv_shared_ffn!=0"},
    {"window_head_dim=0", "window_head_dim!=0"},
    {"window_kv_heads=0", "window_kv_heads!=0"},
    {"sliding_window=8", "scan_heads=0 scan_conv=0 attn_chunk=0"},
    {"sliding_window+1", "sliding_window!=0"},
    {"sliding_window+-1", "sliding_window!=0"},
    {"sliding_window=0 layer_mixers= layer_positions= rope_local_theta=0", NULL},
    {"attn_chunk+1", "attn_chunk!=0"},
    {"attn_chunk+-1", "attn_chunk!=0"},
    {"layer_mixers=f* attn_chunk=0", "attn_chunk!=0"},
    {"layer_mixers=w* sliding_window=5 attn_chunk=0", "attn_chunk!=0"},
    {"layer_mixers=", NULL},
    {"layer_mixers=fw*", "sliding_window!=0"},
    {"layer_mixers=f,w*", "sliding_window!=0"},
    {"layer_positions=", NULL},
    {"layer_positions=n*", "position=rope"},
    {"layer_positions=r,n*", "position=rope layer_positions!=n*"},
    /* MLP */
    {"activation=silu", "layer_mlps!=n*"},
    {"activation=relu", "layer_mlps!=n*"},
    {"activation=relu2", "mlp=plain layer_mlps!=n*"},
    {"activation=xielu", "mlp=plain layer_mlps!=n*"},
    {"activation=gelu", "layer_mlps!=n*"},
    {"activation=gelu_tanh", "layer_mlps!=n*"},
    {"mlp=plain", "layer_mlps!=n*"},
    {"mlp=glu", "layer_mlps!=n*"},
    {"mlp_bias!", "experts=0 layer_mlps!=n*"},
    {"mlp_gate_scale*1.05", "experts=0 mlp=glu layer_mlps!=n*"},
    {"mlp_out_scale*1.05", /* a norm behind it hides it */
     "experts=0 layer_mlps!=n* block!=sandwich block!=out block!=post"},
    {"glu_limit=0.5", "mlp=glu layer_mlps!=n*"},
    {"glu_limit*1.05", "glu_limit!=0"},
    {"glu_limit=0", NULL},
    {"glu_up_offset=1", "mlp=glu layer_mlps!=n*"},
    {"glu_up_offset=0", NULL},
    /* scans */
    {"scan_gate=none", "scan_heads!=0"},
    {"scan_gate=silu", "scan_heads!=0"},
    {"scan_gate=sigmoid", "scan_heads!=0"},
    {"scan_norm=none", "scan_heads!=0"},
    {"scan_norm=before_gate", "scan_heads!=0"},
    {"scan_norm=after_gate", "scan_heads!=0"},
    {"scan_norm_parts=1", "scan_heads!=0 scan_norm!=none"},
    {"scan_norm_parts=0", "scan_heads!=0 scan_norm!=none"},
    {"scan_norm_eps*3000", "scan_heads!=0 scan_norm!=none"},
    {"scan_conv+1", "scan_conv!=0"},
    {"scan_conv+-1", "scan_conv!=0"},
    {"scan_conv=0 scan_conv_bias=no", "scan_conv!=0"},
    {"scan_conv_bias!", "scan_conv!=0"},
    {"scan_bias!", "scan_heads!=0"},
    {"scan_groups=1", "scan_heads!=0"},
    {"scan_step_min=0.4", "scan_value_dim!=0"},
    {"scan_step_min=0", "scan_heads!=0"},
    {"scan_step_max=0.5", "scan_heads!=0"},
    {"scan_step_max=0", "scan_heads!=0"},
    {"scan_strength=1", "layer_mixers=gf"}, /* others write by their step, or evenly */
    {"scan_strength=1.9", "layer_mixers=gf"},
    {"scan_strength=1.9", "layer_mixers=kf"},
    {"scan_scales=0.9,1.1,1.2,0.8,1.4", "scan_heads!=0"},
    {"scan_scales=0.9,1.1,1.2,0.8,1", "scan_scales=0.9,1.1,1.2,0.8,1.4"},
    {"scan_scales=1.1,0.9,1.2,0.8,1.4", "scan_scales=0.9,1.1,1.2,0.8,1.4"},
    {"scan_scales=0.9,1.2,1.1,0.8,1.4", "scan_scales=0.9,1.1,1.2,0.8,1.4"},
    {"scan_scales=", NULL},
    {"scan_in_scale*1.05", "scan_heads!=0"},
    {"scan_out_scale*1.05", "scan_heads!=0"},
    {"attn_in_scale*1.05", "scan_heads!=0 heads!=0 qk_norm=no"},
    {"attn_out_scale*1.05", "scan_heads!=0 heads!=0 block!=out_attention"},
    /* embedding and head */
    {"embed_scale*1.01", "embed_norm=no block!=alpha"}, /* a norm right behind it hides it */
    {"embed_dim=0", NULL},
    {"embed_narrow!", "embed_dim!=0"},
    {"tied_head!", "norm_head=no"},
    {"head_bias!", "norm_head=no"},
    {"norm_head!", NULL},
    {"head_transform=no head_transform_bias=no", "head_transform=yes"},
    {"head_transform_bias!", "head_transform=yes"},
    {"token_types=0", "token_types!=0"},
    {"first_norm!", "mask=both block=pre"},
    {"logit_scale*1.05", NULL},
    {"logit_softcap=4", NULL},
    {"logit_softcap=0", NULL},
    /* experts */
    {"experts_per_token=1", "experts!=0"},
    {"experts_per_token=3", "experts!=0"},
    {"router_renorm!", "experts!=0"},
    {"router_score=sigmoid", "experts!=0"},
    {"router_score=softmax", "experts!=0"},
    {"router_bias=no", "experts!=0"},
    {"router_linear_bias!", "experts!=0"},
    {"expert_bias!", "experts!=0"},
    {"router_groups=1 router_top_groups=1", "router_groups!=1"},
    {"router_top_groups+1", "router_groups!=1"},
    {"router_top_groups+-1", "router_top_groups!=1"},
    {"router_scale*1.05", /* a norm behind all that experts give hides it */
     "experts!=0 block!=out block!=sandwich block!=post"},
    {"router_scale*1.05", "experts!=0 shared_ffn!=0 block=out"},
    {"router_scale*1.05", "experts!=0 shared_ffn!=0 block=sandwich"},
    {"router_on_input!", "experts!=0"},
    {"expert_latent=0", NULL},
    {"shared_gate!", "experts!=0 shared_ffn!=0"},
    {"shared_ffn=0 shared_gate=no", "shared_ffn!=0"},
    {"router_norm=no", "router_norm=yes"},
    {"expert_gain=no", "expert_gain=yes"},
    {"per_layer_dim=0 per_layer_vocab=0", "per_layer_dim!=0"},
    {"altup_streams=0", "altup_streams!=0"},
    {"laurel_rank=0", "laurel_rank!=0"},
    {"gate_sparsity=", "gate_sparsity!="},
    {"gate_sparsity=0.78", "gate_sparsity!="},
    {"gate_sparsity=0,0.8", "gate_sparsity!="},
    /* encoder-decoders */
    {"encoder_layers=0", "encoder_layers!=0"},
    {"encoder_layers+-1", "encoder_layers!=0 encoder_layers!=1"},
    {"encoder_heads=1", "encoder_layers!=0"},
    {"encoder_ffn+-4", "encoder_layers!=0"},
    {"position=learned", "position=relative"},
    {"relative_distance+-3", "position=relative"},
    {"relative_distance+3", "position=relative"},
    {"relative_buckets=4", "position=relative"},
    {"relative_each_layer!", "position=relative"},
    {"layer_gain=no", "layer_gain=yes"},
    {"layer_mlps=", NULL},
    {"layer_mlps=dm*", "experts!=0 layer_mlps!=dm"},
    {"layer_mlps=md*", "experts!=0"},
};

/* Apply one setting; *changed: the value is another one than before. */
static int apply(lf_model_config *c, json_t *keys, const char *setting, bool *changed, lf_err *err)
{
    char key[48], to[64];
    size_t n = strcspn(setting, "=*+!");
    double x = 0;
    snprintf(key, sizeof key, "%.*s", (int)n, setting);
    const char *old = json_string_value(json_object_get(keys, key)), *arg = setting + n + 1;
    if (!old)
        tap_bail("no key '%s' of [model]", key);
    if (setting[n] == '!')
        snprintf(to, sizeof to, "%s", strcmp(old, "yes") == 0 ? "no" : "yes");
    else if (setting[n] == '=')
        snprintf(to, sizeof to, "%s", arg);
    else if (lf_parse_f64(&x, old, err) == 0)
        snprintf(to, sizeof to, "%.15g", setting[n] == '*' ? x * atof(arg) : x + atof(arg));
    *changed = strcmp(old, to) != 0;
    return lf_model_config_set(c, key, to, "flip", err);
}

int family_flip(lf_model_config *c, json_t *keys, const char *set, lf_err *err)
{
    bool first = false, changed = false;
    int rc = 0;
    for (const char *p = set; *p && !rc;) {
        char one[96];
        size_t n = strcspn(p, " ");
        snprintf(one, sizeof one, "%.*s", (int)n, p);
        rc = apply(c, keys, one, &changed, err);
        if (p == set && !rc && !(first = changed))
            return 0;
        p += n + strspn(p + n, " ");
    }
    rc = rc ? rc : lf_model_config_finish(c, err);
    return rc ? rc : 1;
}

const char *family_flip_at(size_t i, const lf_model_config *c)
{
    if (i >= sizeof flips / sizeof *flips)
        return NULL;
    return lf_map_when(flips[i].when, c) ? flips[i].set : "";
}

double family_flips(const family *f, int *n)
{
    lf_err err = LF_ERR_INIT;
    json_t *keys = lf_model_config_to_json(&f->config, &err);
    int unseen = 0;
    double least = HUGE_VAL, e = 0;
    *n = 0;
    for (size_t i = 0; i < sizeof flips / sizeof *flips; i++) {
        lf_model_config c = f->config;
        err = (lf_err)LF_ERR_INIT;
        if (!lf_map_when(flips[i].when, &c))
            continue;
        int rc = family_flip(&c, keys, flips[i].set, &err);
        if (!rc)
            continue;
        rc = rc < 0 ? rc : family_measure(f, &c, LF_F32, LF_INVARIANT, &e, NULL, &err);
        ++*n;
        if (rc < 0) {
            if (getenv("LF_VERBOSE"))
                tap_diag("%s: %s is refused: %s", f->name, flips[i].set, err.text);
            continue;
        }
        if (e < least)
            least = e;
        if (getenv("LF_VERBOSE"))
            tap_diag("%s: %s: %.2g", f->name, flips[i].set, e);
        if (e > FAMILY_SEEN)
            continue;
        unseen++;
        tap_diag("%s: %s goes unseen: %.2g", f->name, flips[i].set, e);
    }
    json_decref(keys);
    tap_ok(*n >= 20 && unseen == 0, "%s: each of %d switches flipped is noticed, least %.2g",
           f->name, *n, least);
    return least;
}

char *family_switches(const family *f)
{
    static const char *const sizes[] = {"family",        "layers",        "hidden",      "heads",
                                        "kv_heads",      "head_dim",      "ffn",         "vocab",
                                        "max_positions", "norm_eps",      "init",        "init_std",
                                        "expert_ffn",    "rope_theta",    "nope_dim",    "rope_dim",
                                        "v_dim",         "encoder_heads", "encoder_ffn", NULL};
    lf_model_config plain;
    lf_err err = LF_ERR_INIT;
    lf_model_config_defaults(&plain);
    json_t *mine = lf_model_config_to_json(&f->config, &err),
           *defaults = lf_model_config_to_json(&plain, &err);
    const char *key;
    json_t *v;
    lf_buf b;
    lf_buf_init(&b);
    if (f->config.kv_heads != f->config.heads)
        lf_buf_adds(&b, "kv_heads");
    json_object_foreach(mine, key, v)
    {
        bool size = false;
        for (const char *const *s = sizes; *s; s++)
            size = size || strcmp(*s, key) == 0;
        json_t *d = json_object_get(defaults, key);
        if (!size && !(d && json_equal(d, v)))
            lf_buf_addf(&b, "%s%s=%s", b.len ? " " : "", key, json_string_value(v));
    }
    if (b.len == 0)
        lf_buf_adds(&b, "as by default");
    json_decref(mine);
    json_decref(defaults);
    return lf_buf_steal(&b, &err);
}
