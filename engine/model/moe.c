/* SPDX-License-Identifier: Apache-2.0
 *
 * Mixture of experts in a decoder layer: what it weighs, and its graph.
 * An expert takes as many rows as choose it, or in training with capacity_factor the first of them;
 * buffers hold tokens * experts_per_token rows. */
#include <math.h>
#include <stdio.h>

#include "engine/graph/adapter.h"
#include "engine/model/decoder_priv.h"

int64_t lf_model_moe_params(const lf_model_config *c, bool active)
{
    const int64_t used = active ? c->experts_per_token : c->experts,
                  matrices = c->mlp == LF_MLP_GLU ? 3 : 2,
                  width = c->expert_latent ? c->expert_latent : c->hidden;
    return c->hidden * (c->experts + matrices * c->shared_ffn + 2 * c->expert_latent +
                        (c->shared_gate ? 1 : 0)) +
           matrices * used * c->expert_ffn * width;
}

int64_t lf_model_moe_vectors(const lf_model_config *c)
{
    const int64_t inner = (c->mlp == LF_MLP_GLU ? 2 : 1) * c->expert_ffn;
    return (c->router_bias ? c->experts : 0) + (c->router_linear_bias ? c->experts : 0) +
           (c->router_norm ? c->hidden : 0) + (c->expert_gain ? c->experts : 0) +
           (c->expert_bias
                ? c->experts * (inner + (c->expert_latent ? c->expert_latent : c->hidden))
                : 0);
}

static lf_val expert(struct lf_dec_build *b, lf_val x, const struct lf_routes *r, const char *part,
                     int64_t l)
{
    const long long n = (long long)l;
    const lf_val bias =
        b->c->expert_bias ? lf_paramf(b->g, "layers.%lld.moe.experts.%s.bias", n, part) : LF_NONE;
    const lf_val w = lf_paramf(b->g, "layers.%lld.moe.experts.%s.weight", n, part);
    return b->adapter_off ? lf_moe_linear(b->g, x, w, bias, r)
                          : lf_moe_linear_adapted(b->g, x, w, bias, r);
}

/* What experts make of the rows that chose them. */
static lf_val experts(struct lf_dec_build *b, lf_val x, const struct lf_routes *r, int64_t l)
{
    const lf_model_config *c = b->c;
    struct lf_routes here = *r; /* of the experts that this rank has */
    x = lf_moe_send(b->g, x, &here);
    lf_val u = c->mlp == LF_MLP_GLU
                   ? lf_dec_glu(b, expert(b, x, &here, "gate", l), expert(b, x, &here, "up", l))
                   : lf_dec_act(b, expert(b, x, &here, "up", l));
    return lf_moe_combine(b->g, lf_moe_return(b->g, expert(b, u, &here, "down", l), &here), r);
}

/* The shared expert: an MLP that every row takes. */
static lf_val shared(struct lf_dec_build *b, lf_val h, int64_t l)
{
    const lf_model_config *c = b->c;
    if (c->mlp != LF_MLP_GLU)
        return lf_dec_linear(b, lf_dec_act(b, lf_dec_linear(b, h, false, "moe.shared.up", l)),
                             false, "moe.shared.down", l);
    lf_val gu = lf_dec_linear(b, h, false, "moe.shared.gate_up", l);
    lf_val u = lf_dec_glu(b, lf_slice(b->g, gu, 0, c->shared_ffn),
                          lf_slice(b->g, gu, c->shared_ffn, c->shared_ffn));
    return lf_dec_linear(b, u, false, "moe.shared.down", l);
}

/* Layers with experts, of all chunks, that run in training. */
static int moe_layers(const struct lf_dec_build *b)
{
    const int64_t more = lf_model_layer_moe(b->c, b->c->layers) ? b->more : 0;
    return (int)(lf_model_moe_layers(b->c) + more);
}

static struct lf_routes routes(struct lf_dec_build *b, lf_val h, lf_val bias, int64_t l)
{
    const lf_model_config *c = b->c;
    const struct lf_route_opts o = {.k = (int)c->experts_per_token,
                                    .groups = (int)c->router_groups,
                                    .top_groups = (int)c->router_top_groups,
                                    .sigmoid = c->router_score == LF_ROUTER_SIGMOID,
                                    .renorm = c->router_renorm,
                                    .scale = (float)c->router_scale,
                                    .aux = (float)c->router_aux,
                                    .layers = moe_layers(b),
                                    .capacity_factor = b->drops ? c->capacity_factor : 0};
    const lf_val add = c->router_linear_bias
                           ? lf_paramf(b->g, "layers.%lld.moe.router.logit_bias", (long long)l)
                           : LF_NONE;
    return lf_moe_route(b->g, lf_dec_linear_with(b, h, add, "moe.router", l), bias, &o);
}

/* What the router reads of the stream, where it has a norm of its own. */
static lf_val router_input(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const struct lf_norm_opts o = {.eps = (float)b->c->norm_eps};
    const lf_val w = lf_paramf(b->g, "layers.%lld.moe.router.norm.weight", (long long)l);
    return lf_scale(b->g, lf_norm(b->g, x, w, LF_NONE, &o),
                    (float)(1 / sqrt((double)b->c->hidden)));
}

/* Experts that read and give expert_latent channels. Both projections are of whole rows, so ranks
 * add up what experts give before the second. */
static lf_val latent_experts(struct lf_dec_build *b, lf_val h, const struct lf_routes *r, int64_t l)
{
    const lf_val x = lf_tp_enter(b->g, lf_dec_linear(b, h, false, "moe.latent_in", l));
    return lf_dec_linear(b, lf_tp_leave(b->g, experts(b, x, r, l)), false, "moe.latent_out", l);
}

static bool last_moe_layer(const struct lf_dec_build *b, int64_t l)
{
    for (l++; l < b->c->layers + b->more; l++)
        if (lf_model_layer_moe(b->c, l))
            return false;
    return true;
}

/* With router_on_input each row has one expert, and weighing it is bringing it there and back. */
lf_val lf_dec_moe(struct lf_dec_build *b, lf_val x, lf_val h, int64_t l)
{
    const lf_model_config *c = b->c;
    lf_val bias = c->router_bias ? lf_paramf(b->g, "layers.%lld.moe.router.bias", (long long)l)
                                 : LF_NONE,
           told = c->router_norm ? lf_tp_whole(b->g, router_input(b, x, l)) : LF_NONE;
    /* Ranks that divide rows choose the experts of all rows alike, as those that do not. */
    h = lf_tp_whole(b->g, h);
    const lf_val in = lf_tp_enter(b->g, h); /* the router and the gate read what is before it */
    struct lf_routes r = routes(b, c->router_norm ? told : h, bias, l);
    if (b->train)
        b->load = lf_moe_stats(b->g, &r, bias, b->cu_seqlens, b->load,
                               last_moe_layer(b, l) ? moe_layers(b) : 0);
    if (c->expert_gain)
        r.weights = lf_moe_gain(b->g, r.weights, r.ids,
                                lf_paramf(b->g, "layers.%lld.moe.router.gain", (long long)l));
    lf_val read = in;
    if (c->router_on_input) {
        read = lf_tp_enter(b->g, lf_moe_combine(b->g, lf_moe_permute(b->g, h, &r), &r));
        r.weights = LF_NONE;
    } else {
        r.weights = lf_tp_enter(b->g, r.weights);
    }
    lf_val y = c->expert_latent ? latent_experts(b, h, &r, l) : experts(b, read, &r, l);
    if (c->shared_ffn) {
        lf_val s = shared(b, in, l);
        if (c->shared_gate) { /* weighs all of it */
            lf_val gate = lf_dec_linear(b, h, false, "moe.shared_gate", l);
            s = lf_row_gate(b->g, s, lf_tp_enter(b->g, gate));
        }
        if (c->expert_latent)
            return lf_add(b->g, y, lf_tp_leave(b->g, s));
        y = lf_add(b->g, y, s);
    }
    return c->expert_latent ? y : lf_tp_leave(b->g, y);
}
