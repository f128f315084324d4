/* SPDX-License-Identifier: Apache-2.0
 *
 * Channels that a token has for each layer (Gemma 3n and 4), P of them for each of L layers:
 *
 *     e = (rms(x W_project / sqrt(C)) + sqrt(P) table[token]) / sqrt(2)     [R, L P]
 *     behind the MLP of layer l   x = x + norm((act(x W_in) * e_l) W_out)
 *
 * The first x is what the first layer reads; each P channels have a norm, all of one weight. A
 * token that the table has no row for (per_layer_vocab) reads that of token 0. */
#include <math.h>

#include "engine/model/decoder_priv.h"

lf_val lf_dec_per_layer(struct lf_dec_build *b, lf_val x)
{
    const lf_model_config *c = b->c;
    const struct lf_norm_opts o = {
        .eps = (float)c->norm_eps, .w_offset = (float)c->norm_offset, .heads = (int)c->layers};
    lf_val own = lf_tp_leave(
        b->g, lf_embed_some(b->g, b->tokens, lf_param(b->g, "per_layer.embed.weight"),
                            (float)sqrt((double)c->per_layer_dim), c->per_layer_vocab, c->vocab));
    lf_val seen = lf_dec_linear(b, x, false, "per_layer.project", LF_DEC_OUTSIDE);
    seen = lf_scale(b->g, seen, (float)(1 / sqrt((double)c->hidden)));
    seen = lf_norm(b->g, seen, lf_param(b->g, "per_layer.norm.weight"), LF_NONE, &o);
    return lf_scale(b->g, lf_add(b->g, seen, own), (float)M_SQRT1_2);
}

lf_val lf_dec_read_per_layer(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const lf_model_config *c = b->c;
    const int64_t P = c->per_layer_dim;
    const lf_val gate = lf_dec_linear(b, x, false, "per_layer.in", l),
                 u = lf_glu(b->g, gate, lf_slice(b->g, b->per_layer, l * P, P),
                            (enum lf_act)c->activation);
    return lf_dec_norm(b, lf_dec_linear(b, u, false, "per_layer.out", l), "per_layer.norm", l);
}
