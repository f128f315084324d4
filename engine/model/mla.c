/* SPDX-License-Identifier: Apache-2.0
 *
 * Multi-head latent attention (DeepSeek-V2: DeepSeek-AI 2024): queries, keys and values of a layer.
 *
 *     q   = x Wq  or  norm(x Wqa) Wqb          [T, H, nope + rope]; the last channels turn
 *     c   = norm(x Wkva[0 ... kv_lora])        the latent, [T, kv_lora]
 *     r   = turn(x Wkva[kv_lora ...])          one head of `rope` channels that all heads share
 *     k_h = [c Wkb_h | r],  v_h = c Wvb_h      [T, H, nope + rope], [T, H, v]
 *
 * A paged cache may keep c and r alone (lf_decoder_keeps_latents). Then Wkb and Wvb are absorbed
 * into what is on either side of attention, whose keys are [c | r] and whose values c, of one head
 * that all queries share (DeepSeek-V2, section 2.1.2):
 *
 *     q'_h = [q_h[0 ... nope] Wkb_h^T | q_h[nope ...]]
 *     o_h  = (softmax(scale q'_h [c | r]^T) c) Wvb_h
 *
 * Queries, with the channels that do not turn, grow with their position where query_growth or
 * nope_growth say so. Both norms are RMS norms with mla_norm_eps. In a layout that divides matrices
 * x enters once: what is made of it below the heads is the same on every rank, and its gradients
 * are summed with those of x, or of the weights.
 */
#include "engine/graph/adapter.h"
#include "engine/model/decoder_priv.h"

#include <stdio.h>

/* The norm of a latent value. */
static lf_val latent_norm(struct lf_dec_build *b, lf_val x, const char *part, int64_t l)
{
    const struct lf_norm_opts o = {.eps = (float)b->c->mla_norm_eps};
    return lf_norm(b->g, x, lf_paramf(b->g, "layers.%lld.attn.%s.weight", (long long)l, part),
                   LF_NONE, &o);
}

/* Queries, the latent and the head that all share. */
struct latents {
    lf_val q, c, r;
};

static struct latents latents(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const lf_model_config *c = b->c;
    const int64_t H = c->heads;
    lf_val q, a, r;
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
    return (struct latents){
        .q = q, .c = latent_norm(b, lf_slice(b->g, a, 0, c->kv_lora), "kv_a_norm", l), .r = r};
}

struct lf_dec_heads lf_dec_latent_heads(struct lf_dec_build *b, lf_val x, int64_t l)
{
    const lf_model_config *c = b->c;
    const int64_t H = c->heads;
    const struct latents a = latents(b, x, l);
    const lf_val kv = lf_dec_linear(b, a.c, false, "attn.kv_b", l);
    return (struct lf_dec_heads){
        .q = a.q,
        .k = lf_heads_join(b->g, lf_slice(b->g, kv, 0, H * c->nope_dim), a.r, (int)H),
        .v = lf_slice(b->g, kv, H * c->nope_dim, H * c->v_dim)};
}

bool lf_decoder_keeps_latents(const lf_decoder *d, const lf_pstore *ps, enum lf_numeric mode)
{
    const lf_model_config *c = &d->c;
    const int64_t wide = c->kv_lora + c->rope_dim;
    char group[64];
    if (!c->kv_lora || mode == LF_INVARIANT || wide % 2 || wide > LF_ATTN_MAX_CHANNELS)
        return false;
    for (int64_t l = 0; l < c->layers + c->mtp_layers; l++) {
        snprintf(group, sizeof group, "layers.%lld.attn.kv_b.weight", (long long)l);
        if (lf_pstore_adapted(ps, group))
            return false;
    }
    return true;
}

lf_val lf_dec_absorbed(struct lf_dec_build *b, lf_val x, const struct lf_attn_opts *o, int64_t l)
{
    const lf_model_config *c = b->c;
    const struct lf_decoder_paged *p = b->paged;
    const int32_t nope = (int32_t)c->nope_dim, H = (int32_t)c->heads;
    const struct lf_heads_linear_opts in = {.heads = H, .rows = nope, .transposed = true},
                                      out = {
                                          .heads = H, .first = H * nope, .rows = (int32_t)c->v_dim};
    const struct latents a = latents(b, x, l);
    const lf_val w = lf_paramf(b->g, "layers.%lld.attn.kv_b.weight", (long long)l);
    struct lf_attn_opts one = *o;
    char name[32];
    one.groups = 1;
    snprintf(name, sizeof name, "kv.%lld.latent", (long long)l);
    const struct lf_kv_cache cache = {
        .k_pages =
            lf_state(b->g, name, p->cache, p->n_pages * p->page_tokens, c->kv_lora + c->rope_dim),
        .seq = b->seq,
        .pos = b->positions,
        .table = b->table,
        .page_tokens = p->page_tokens,
        .latent = c->kv_lora};
    lf_kv_write(b->g, a.c, a.r, &cache, 1);
    const lf_val q = lf_heads_linear(b->g, a.q, w, &in);
    return lf_heads_linear(b->g, lf_attention_paged(b->g, q, &cache, b->alibi, &one), w, &out);
}
