/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention (DeepSeek-V2: DeepSeek-AI 2024): queries, keys and values of a layer.
 *
 *     q   = x Wq  or  norm(x Wqa) Wqb          [T, H, nope + rope]; the last channels turn
 *     c   = norm(x Wkva[0 ... kv_lora])        the latent, [T, kv_lora]
 *     r   = turn(x Wkva[kv_lora ...])          one head of `rope` channels that all heads share
 *     k_h = [c Wkb_h | r],  v_h = c Wvb_h      [T, H, nope + rope], [T, H, v]
 *
 * Queries, with the channels that do not turn, grow with their position where query_growth or
 * nope_growth say so. Both norms are RMS norms with mla_norm_eps. In a layout that divides matrices
 * x enters once: what is made of it below the heads is the same on every rank, and its gradients
 * are summed with those of x, or of the weights.
 */
#include "engine/model/decoder_priv.h"

#include <stdio.h>

/* The norm of a latent value. */
static lf_val latent_norm(struct lf_dec_build *b, lf_val x, const char *part, int64_t l)
{
    const struct lf_norm_opts o = {.eps = (float)b->c->mla_norm_eps};
    return lf_norm(b->g, x, lf_paramf(b->g, "layers.%lld.attn.%s.weight", (long long)l, part),
                   LF_NONE, &o);
}

struct lf_dec_heads lf_dec_latent_heads(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const lf_model_config *c = b->c;
    const int64_t H = c->heads;
    lf_val q, a, r, kv;
    x = lf_tp_enter(b->g, x);
    if (c->q_lora)
        q = lf_dec_linear(b,
                          latent_norm(b, lf_dec_linear(b, x, false, "attn.q_a", l), "q_a_norm", l),
                          false, "attn.q_b", l);
    else
        q = lf_dec_linear(b, x, false, "attn.q", l);
    a = lf_dec_linear(b, x, false, "attn.kv_a", l);
    r = lf_slice(b->g, a, c->kv_lora, c->rope_dim);
    if (lf_model_layer_position(c, l) != LF_TURN_NONE) {
        const struct lf_dec_turn own = {.heads = H, .first = c->nope_dim, .layer = l},
                                 shared = {.heads = 1, .layer = l};
        q = lf_dec_rope(b, q, &own);
        r = lf_dec_rope(b, r, &shared);
    }
    q = lf_dec_grow(b, q, l);
    kv = lf_dec_linear(b, latent_norm(b, lf_slice(b->g, a, 0, c->kv_lora), "kv_a_norm", l), false,
                       "attn.kv_b", l);
    return (struct lf_dec_heads){
        .q = q,
        .k = lf_heads_join(b->g, lf_slice(b->g, kv, 0, H * c->nope_dim), r, (int)H),
        .v = lf_slice(b->g, kv, H * c->nope_dim, H * c->v_dim)};
}
