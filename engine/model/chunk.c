/* SPDX-License-Identifier: Apache-2.0
 *
 * Chunks of a decoder: which layers they have and what crosses between them. */
#include "engine/model/decoder_priv.h"

struct lf_decoder_chunk lf_dec_whole(const lf_model_config *c)
{
    return (struct lf_decoder_chunk){
        .begin = 0, .end = lf_model_depth(c), .first = true, .last = true};
}

int lf_dec_check_chunk(const lf_model_config *c, const struct lf_decoder_chunk *k, lf_err *err)
{
    const bool whole = k->first && k->last;
    if (!whole && c->altup_streams)
        return lf_fail(err, LF_ENOTSUP,
                       "[model] altup_streams: several streams do not go from one stage of a "
                       "pipeline to the next; take pipeline = 1");
    if (!whole && (c->per_layer_dim || c->kv_shared_layers))
        return lf_fail(
            err, LF_ENOTSUP,
            "[model] %s: layers of this model read what stands before the first ones, so "
            "they do not divide among stages of a pipeline; take pipeline = 1",
            c->per_layer_dim ? "per_layer_dim" : "kv_shared_layers");
    const int64_t layers = lf_model_depth(c);
    const bool inside = k->begin >= 0 && k->begin <= k->end && k->end <= layers;
    if (inside && (!k->first || k->begin == 0) && (!k->last || k->end == layers))
        return 0;
    return lf_fail(err, LF_EINVAL,
                   "chunk of layers [%lld, %lld)%s%s: the model has %lld layers, the first chunk "
                   "begins with layer 0 and the last one ends with layer %lld",
                   (long long)k->begin, (long long)k->end, k->first ? ", first" : "",
                   k->last ? ", last" : "", (long long)layers, (long long)layers - 1);
}

/* Heads of mtp_layers stand in the last chunk. */
bool lf_dec_load_crosses(const struct lf_dec_build *b, int64_t cut)
{
    bool before = false, behind = false;
    for (int64_t l = 0; l < b->c->layers + b->more; l++)
        *(l < cut ? &before : &behind) |= lf_model_layer_moe(b->c, l);
    return before && behind;
}

lf_val lf_dec_chunk_in(struct lf_dec_build *b)
{
    const bool gradient = b->differentiated && !b->chunk.frozen_before;
    const lf_val x = lf_cut_in(b->g, "x", b->rows, b->c->hidden, gradient ? "dx" : NULL);
    if (b->train && lf_dec_load_crosses(b, b->chunk.begin))
        b->load = lf_input(b->g, "load", LF_F32, 2, b->c->experts);
    return x;
}

/* The balance over all layers: it comes from the next chunk where that has more layers with
 * experts, and goes to the one before where that has some. */
void lf_dec_chunk_total(struct lf_dec_build *b)
{
    const struct lf_decoder_chunk *k = &b->chunk;
    if (!b->differentiated || !(b->c->router_aux > 0))
        return;
    const bool comes = !k->last && lf_dec_load_crosses(b, k->end),
               goes = !k->first && !k->frozen_before && lf_dec_load_crosses(b, k->begin);
    if (comes)
        lf_moe_total(b->g, lf_input(b->g, "load_total", LF_F32, 2, b->c->experts),
                     goes ? "load_total" : NULL);
    else if (goes)
        lf_cut_out_sums(b->g, b->load, "load_total");
}

void lf_dec_chunk_out(struct lf_dec_build *b, lf_val x)
{
    lf_cut_out(b->g, x, "x", b->differentiated ? "dx" : NULL);
    if (lf_dec_source_crosses(b->c, b->chunk.end))
        lf_cut_out(b->g, b->source, "source", b->differentiated ? "dsource" : NULL);
    if (b->train && lf_dec_load_crosses(b, b->chunk.end))
        lf_cut_out_sums(b->g, b->load, "load");
}

int lf_decoder_tied(const lf_decoder *d, const struct lf_decoder_chunk *chunks, int n,
                    struct lf_decoder_tied out[LF_DECODER_TIED])
{
    struct lf_decoder_tied t = {.name = "embed.weight", .owner = -1, .other = -1};
    for (int i = 0; i < n; i++) {
        if (chunks[i].first)
            t.owner = i;
        if (chunks[i].last)
            t.other = i;
    }
    const bool tied = (d->c.tied_head && d->c.output == LF_OUTPUT_TOKENS) || lf_decoder_mtp(d);
    if (!tied || t.owner < 0 || t.other < 0 || t.owner == t.other)
        return 0;
    out[0] = t;
    return 1;
}
