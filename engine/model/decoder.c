/* SPDX-License-Identifier: Apache-2.0
 *
 * The decoder as graphs. One block, switched by the description; attention is over packed documents
 * or over the paged cache. */
#include "engine/model/decoder.h"

#include <math.h>
#include <stdlib.h>

#include "engine/base/mem.h"
#include "engine/model/decoder_priv.h"
#include "engine/model/mae.h"

static int check_text(const lf_model_config *c, int64_t positions, lf_err *err)
{
    if (lf_model_sees_alone(c))
        return 0;
    if (c->vocab < 1)
        return lf_fail(err, LF_EINVAL, "[model] vocab is not known");
    if (positions < 1 || positions > c->max_positions)
        return lf_fail(err, LF_EINVAL, "sequences of %lld tokens, but [model] max_positions = %lld",
                       (long long)positions, (long long)c->max_positions);
    if (c->rope_scaling == LF_ROPE_DYNAMIC && positions > c->rope_original_positions)
        return lf_fail(err, LF_ENOTSUP,
                       "sequences of %lld tokens, but [model] rope_scaling = dynamic is exact up "
                       "to rope_original_positions = "
                       "%lld only: shorten them, or choose linear or yarn",
                       (long long)positions, (long long)c->rope_original_positions);
    return 0;
}

/* The encoder of a model that sees, and what restores pictures. */
static int create_sight(lf_decoder *d, lf_err *err)
{
    const lf_model_config *c = &d->c;
    const lf_vision_config layers = lf_mae_layers(c);
    if (c->vision.family &&
        !(d->vision = lf_vision_create(&c->vision, "vision.", LF_VISION_SIDES, err)))
        return LF_EINVAL;
    if (lf_model_restores(c) && !(d->mae = lf_vision_create(&layers, "mae.", LF_VISION_SIDES, err)))
        return LF_EINVAL;
    return 0;
}

lf_decoder *lf_decoder_create(const lf_model_config *c, int64_t positions, lf_err *err)
{
    lf_decoder *d = check_text(c, positions, err) == 0 ? lf_calloc(1, sizeof(*d), err) : NULL;
    if (!d)
        return NULL;
    d->c = *c;
    d->source = lf_model_source_of(c);
    d->positions = positions;
    if (create_sight(d, err) != 0) {
        lf_decoder_destroy(d);
        return NULL;
    }
    d->slopes = lf_calloc((size_t)(c->layers + 1), sizeof *d->slopes, err);
    if (!d->slopes) {
        lf_decoder_destroy(d);
        return NULL;
    }
    for (int64_t l = 0; l < c->layers; l++)
        d->slopes[l] = (struct lf_dec_slopes){&d->c, l};
    for (unsigned k = 0; k < 8; k++)
        d->table[k / 2][k % 2] = (struct lf_dec_table){.d = d, .what = k / 2, .sin = k % 2};
    for (unsigned k = 0; k < 4; k++)
        d->growth[k / 2][k % 2] = (struct lf_dec_growth){.d = d, .nope = k / 2, .sin = k % 2};
    return d;
}

void lf_decoder_destroy(lf_decoder *d)
{
    if (!d)
        return;
    lf_vision_destroy(d->mae);
    lf_vision_destroy(d->vision);
    free(d->slopes);
    free(d);
}

const lf_model_config *lf_decoder_config(const lf_decoder *d)
{
    return &d->c;
}

void lf_decoder_softcap(const lf_model_config *c, float *logits, int64_t n)
{
    if (!(c->logit_softcap > 0))
        return;
    float cap = (float)c->logit_softcap;
    for (int64_t i = 0; i < n; i++)
        logits[i] = cap * tanhf(logits[i] / cap);
}

static void fill_slopes(void *dst, const void *ctx)
{
    const lf_decoder *d = ctx;
    lf_model_alibi_slopes(&d->c, dst);
}

/* rows of the step; documents (or sequences of the cache) that have a prefix each. */
static void begin(struct lf_dec_build *b, int64_t rows, int64_t documents)
{
    const lf_model_config *c = b->c;
    b->rows = rows;
    if (b->chunk.first)
        b->tokens = lf_input(b->g, "tokens", LF_I32, rows, 1);
    b->positions = lf_input(b->g, "positions", LF_I32, rows, 1);
    b->samples = b->dropout ? lf_input(b->g, "samples", LF_I64, rows, 1) : LF_NONE;
    b->offsets = b->dropout ? lf_input(b->g, "offsets", LF_I32, rows, 1) : LF_NONE;
    if (c->mask == LF_MASK_PREFIX)
        b->prefix = lf_input(b->g, "prefix", LF_I32, documents, 1);
    if (b->chunk.first && c->token_types)
        b->types = lf_input(b->g, "types", LF_I32, rows, 1);
    if (lf_dec_looks_ahead(c))
        b->runs = lf_input(b->g, "runs", LF_I32, rows, 2);
    if (c->position == LF_POS_ROPE2D) {
        b->turns = lf_input(b->g, "turns", LF_I32, rows, 1);
        b->blocks = lf_input(b->g, "blocks", LF_I32, rows, 1);
    }
    if (lf_dec_two_tables(b->d))
        b->turns = lf_input(b->g, "turns", LF_I32, rows, 1);
    if (c->rope_sections.n)
        b->places = lf_input(b->g, "places", LF_I32, rows, 3);
    if (c->position == LF_POS_ALIBI)
        b->alibi = lf_const(b->g, "alibi.slopes", LF_F32, 1, c->heads, fill_slopes, b->d);
}

/* scale * embedding of the token (+ embedding of its position): [R, C]. A narrower embedding is
 * projected up first, or with embed_narrow behind what else is added: [R, E]. */
static lf_val embed(struct lf_dec_build *b)
{
    const lf_model_config *c = b->c;
    const int32_t offset = (int32_t)c->position_offset;
    lf_val wte = lf_param(b->g, "embed.weight"),
           wpe = c->position == LF_POS_LEARNED ? lf_paramf(b->g, "%spos_embed.weight", b->stack)
                                               : LF_NONE;
    if (!c->embed_dim || c->embed_narrow)
        return lf_dec_see(b, lf_tp_leave(b->g, lf_embed(b->g, b->tokens, b->positions, wte, wpe,
                                                        (float)c->embed_scale, offset)));
    lf_val x = lf_embed(b->g, b->tokens, LF_NONE, wte, LF_NONE, (float)c->embed_scale, 0);
    x = lf_dec_see(b, lf_tp_leave(b->g, x));
    x = lf_dec_linear(b, x, false, "embed_in", LF_DEC_OUTSIDE);
    return wpe.id
               ? lf_add(b->g, x, lf_embed(b->g, b->tokens, b->positions, LF_NONE, wpe, 1, offset))
               : x;
}

lf_val lf_dec_embedded(struct lf_dec_build *b)
{
    const lf_model_config *c = b->c;
    lf_val x = embed(b);
    if (c->token_types) /* the rows are looked up as those of positions are */
        x = lf_add(
            b->g, x,
            lf_embed(b->g, b->types, b->types, LF_NONE, lf_param(b->g, "type_embed.weight"), 1, 0));
    if (b->noise)
        x = lf_add(b->g, x, lf_input(b->g, "noise", LF_F32, b->rows, lf_model_bottom_width(c)));
    return c->embed_norm ? lf_dec_norm(b, x, "embed_norm", LF_DEC_OUTSIDE) : x;
}

lf_val lf_dec_bottom_of(struct lf_dec_build *b, lf_val x)
{
    const lf_model_config *c = b->c;
    x = lf_dec_dropout(b, x, c->embed_dropout, "embed", LF_DEC_OUTSIDE);
    return c->embed_narrow ? lf_dec_linear(b, x, true, "embed_in", LF_DEC_OUTSIDE) : x;
}

lf_val lf_dec_bottom(struct lf_dec_build *b)
{
    return lf_dec_bottom_of(b, lf_dec_embedded(b));
}

/* Tokens, or the stream of the chunk before, to what the head reads [R, E]. LF_NONE: the chunk has
 * no head. */
lf_val lf_dec_trunk(struct lf_dec_build *b)
{
    const lf_model_config *c = b->c;
    const struct lf_dec_span own = lf_dec_span(c, &b->chunk, false);
    lf_val x = b->chunk.first ? lf_dec_bottom(b) : lf_dec_chunk_in(b);
    b->relative = lf_dec_shared_relative(b, own);
    if (c->per_layer_dim)
        b->per_layer = lf_dec_per_layer(b, x);
    if (c->altup_streams)
        x = lf_dec_altup_in(b, x);
    for (int64_t l = own.begin; l < own.end; l++) {
        lf_block_begin(b->g, (int)l);
        x = lf_dec_deep(b, lf_dec_block(b, x, l), l);
        lf_block_end(b->g);
    }
    if (!b->chunk.last || !b->more) /* of the heads behind it too: mtp.c */
        lf_dec_chunk_total(b);
    if (!b->chunk.last) {
        lf_dec_chunk_out(b, x);
        return LF_NONE;
    }
    if (c->altup_streams)
        x = lf_dec_altup_out(b, x);
    if (c->final_norm)
        x = lf_dec_norm(b, x, "final_norm", LF_DEC_OUTSIDE);
    return c->embed_dim && !c->embed_narrow
               ? lf_dec_linear(b, x, false, "embed_out", LF_DEC_OUTSIDE)
               : x;
}

lf_val lf_dec_transform(struct lf_dec_build *b, lf_val x)
{
    x = lf_dec_linear(b, x, b->c->head_transform_bias, "head_in", LF_DEC_OUTSIDE);
    return lf_dec_norm(b, lf_dec_act(b, x), "head_norm", LF_DEC_OUTSIDE);
}

/* What the head over the vocabulary reads: logits are linear in it, so logit_scale is its scale.
 * Every rank transforms all rows. */
static lf_val head_input(struct lf_dec_build *b, lf_val x)
{
    if (b->c->head_transform)
        x = lf_dec_transform(b, x);
    return fabs(b->c->logit_scale - 1) > 0 ? lf_scale(b->g, x, (float)b->c->logit_scale) : x;
}

static lf_val head_weight(struct lf_dec_build *b)
{
    lf_val w = lf_param(b->g, b->c->tied_head ? "embed.weight" : "head.weight");
    return b->c->norm_head ? lf_unit_rows(b->g, w) : w;
}

static lf_val head_bias(struct lf_dec_build *b)
{
    return b->c->head_bias ? lf_param(b->g, "head.bias") : LF_NONE;
}

void lf_dec_loss(struct lf_dec_build *b, lf_val x, lf_val targets, const struct lf_xent_opts *o)
{
    lf_xent(b->g, lf_tp_enter(b->g, head_input(b, x)), head_weight(b), head_bias(b), targets, o);
}

/* [R, V] in f32, on every rank. */
static lf_val all_logits(struct lf_dec_build *b, lf_val x)
{
    const lf_val z =
        lf_linear(b->g, lf_tp_enter(b->g, head_input(b, x)), head_weight(b), head_bias(b));
    lf_pin_f32(b->g, z);
    return lf_tp_join(b->g, z);
}

bool lf_decoder_has_dropout(const lf_model_config *c)
{
    return c->embed_dropout > 0 || c->attn_dropout > 0 || c->mlp_dropout > 0 ||
           c->attn_prob_dropout > 0;
}

bool lf_decoder_is_random(const lf_decoder *d)
{
    return lf_decoder_has_dropout(&d->c) || d->adapter_dropout > 0;
}

/* Without this a tied weight would be taken for a head that the description does not have. */
static int check_tokens(const lf_model_config *c, lf_err *err)
{
    if (lf_model_need_text(c, err) != 0)
        return LF_EINVAL;
    return c->output == LF_OUTPUT_TOKENS
               ? 0
               : lf_fail(err, LF_EINVAL, "this model gives %s, it predicts no tokens",
                         c->output == LF_OUTPUT_LABELS ? "labels ([model] output = labels)"
                                                       : "scores ([model] output = score)");
}

/* One check at the end: a graph with a failure is of no use to anyone. */
lf_graph *lf_dec_done(lf_graph *g, lf_err *err)
{
    if (!lf_graph_check(g, err))
        return g;
    lf_graph_destroy(g);
    return NULL;
}

static struct lf_dec_build documents(const lf_decoder *d, const struct lf_decoder_rows *r,
                                     bool train, bool dropout)
{
    const struct lf_decoder_chunk chunk = r->chunk ? *r->chunk : lf_dec_whole(&d->c);
    return (struct lf_dec_build){.d = d,
                                 .c = &d->c,
                                 .chunk = chunk,
                                 .differentiated = train && !chunk.frozen,
                                 .dropout = dropout && lf_decoder_is_random(d),
                                 .train = train,
                                 .adapter_off = r->adapter_off,
                                 .noise = train && r->noise,
                                 .stack = "",
                                 .media = chunk.first ? r->media : NULL};
}

/* Whoever asks for the graph of an encoder-decoder must know that there are sources. */
static int check_source(const lf_model_config *c, int64_t source_rows, lf_err *err)
{
    return !lf_model_is_seq2seq(c) || source_rows > 0
               ? 0
               : lf_fail(err, LF_ENOTSUP,
                         "this model is an encoder-decoder ([model] encoder_layers): it reads a "
                         "source text beside each target, which this use of it has none of");
}

/* The encoder's part of a graph over documents. */
static void read_source(struct lf_dec_build *b, const struct lf_decoder_rows *r)
{
    const struct lf_dec_source s = {r->source_rows, r->max_source, r->n_docs};
    if (!lf_decoder_reads_source(b->c, &b->chunk))
        return;
    struct lf_dec_build e = lf_dec_source(b, &s);
    b->source_cu = e.cu_seqlens;
    b->max_source = e.max_doc;
    b->source = lf_dec_encode(&e);
    if (lf_decoder_has_layers(b->c, &b->chunk, false))
        b->memory = lf_tp_enter(b->g, b->source);
}

static int begin_documents(struct lf_dec_build *b, lf_pstore *ps, const char *name,
                           const struct lf_decoder_rows *r, lf_err *err)
{
    if (check_source(b->c, r->source_rows, err))
        return LF_ENOTSUP;
    b->g = lf_dec_check_chunk(b->c, &b->chunk, err) ? NULL : lf_graph_create(ps, name, err);
    if (!b->g)
        return LF_EINVAL;
    begin(b, r->rows, r->n_docs);
    b->cu_seqlens = lf_input(b->g, "cu_seqlens", LF_I32, r->n_docs + 1, 1);
    lf_context_input(b->g, r->rows);
    b->max_doc = r->max_doc > 0 ? r->max_doc : r->rows;
    if (lf_model_is_seq2seq(b->c))
        read_source(b, r);
    return 0;
}

int lf_dec_begin(struct lf_dec_build *b, const lf_decoder *d, lf_pstore *ps, const char *name,
                 const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    *b = documents(d, r, train, train);
    return begin_documents(b, ps, name, r, err);
}

lf_graph *lf_dec_documents(const lf_decoder *d, lf_pstore *ps, const char *name,
                           const struct lf_decoder_rows *r, bool train, lf_val *x, lf_err *err)
{
    struct lf_dec_build b = documents(d, r, train, train);
    if (begin_documents(&b, ps, name, r, err) != 0)
        return NULL;
    *x = lf_dec_trunk(&b);
    return b.g;
}

static lf_graph *loss_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                            const struct lf_decoder_rows *r, bool train, bool score, lf_err *err)
{
    struct lf_dec_build b = documents(d, r, train, train);
    b.more = train ? lf_decoder_mtp(d) : 0;
    b.drops = train;
    if (check_tokens(&d->c, err) || begin_documents(&b, ps, name, r, err))
        return NULL;
    struct lf_xent_opts o = {.softcap = (float)d->c.logit_softcap,
                             .want_loss = score,
                             .want_lse = score,
                             .want_argmax = score,
                             .want_entropy = r->entropy};
    lf_val x = lf_dec_trunk(&b);
    if (!b.chunk.last)
        return lf_dec_done(b.g, err);
    lf_dec_loss(&b, x, lf_input(b.g, "targets", LF_I32, r->rows, 1), &o);
    if (b.more)
        lf_dec_mtp_losses(&b, x);
    if (d->nsp)
        lf_dec_nsp_loss(&b, x);
    return lf_dec_done(b.g, err);
}

lf_graph *lf_decoder_loss_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    return loss_graph(d, ps, name, r, train, false, err);
}

lf_graph *lf_decoder_score_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                 const struct lf_decoder_rows *r, lf_err *err)
{
    return loss_graph(d, ps, name, r, false, true, err);
}

static void output(struct lf_dec_build *b, lf_val v, bool train, const char *name, const char *grad)
{
    if (train)
        lf_output_grad(b->g, v, name, grad);
    else
        lf_output(b->g, v, name);
}

lf_graph *lf_decoder_heads_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                 const struct lf_decoder_rows *r, const struct lf_decoder_heads *h,
                                 lf_err *err)
{
    struct lf_dec_build b = documents(d, r, false, h->train && h->dropout);
    if ((h->logp && check_tokens(&d->c, err)) || begin_documents(&b, ps, name, r, err))
        return NULL;
    b.train = h->train; /* balance of experts is counted */
    b.differentiated = h->train && !b.chunk.frozen;
    lf_val x = lf_dec_trunk(&b);
    if (!b.chunk.last)
        return lf_dec_done(b.g, err);
    lf_val targets = lf_input(b.g, "targets", LF_I32, r->rows, 1);
    if (h->logp) {
        const struct lf_logp_opts o = {.softcap = (float)d->c.logit_softcap,
                                       .inv_temperature = (float)h->inv_temperature,
                                       .want_entropy = h->entropy};
        struct lf_logps p = lf_logp(b.g, lf_tp_enter(b.g, head_input(&b, x)), head_weight(&b),
                                    head_bias(&b), targets, &o);
        output(&b, p.logp, h->train, "lp", "dlp");
        if (h->entropy)
            output(&b, p.entropy, h->train, "entropy", "dentropy");
    }
    if (h->score) {
        const bool labels = d->c.output == LF_OUTPUT_LABELS;
        lf_val score =
            labels ? lf_dec_label_logits(&b, x)
                   : lf_linear(b.g, lf_tp_whole(b.g, x), lf_param(b.g, "score.weight"), LF_NONE);
        lf_pin_f32(b.g, score);
        output(&b, score, h->train, "score", "dscore");
    }
    if (h->hidden) {
        lf_val hidden = lf_tp_whole(b.g, x);
        lf_pin_f32(b.g, hidden);
        output(&b, hidden, h->train, "hidden", "dhidden");
    }
    return lf_dec_done(b.g, err);
}

lf_graph *lf_decoder_logits_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                  const struct lf_decoder_rows *r, lf_err *err)
{
    struct lf_dec_build b = documents(d, r, false, false);
    if (check_tokens(&d->c, err) || begin_documents(&b, ps, name, r, err))
        return NULL;
    lf_val x = lf_dec_trunk(&b);
    if (b.chunk.last)
        lf_output(b.g, all_logits(&b, x), "logits");
    return lf_dec_done(b.g, err);
}

lf_graph *lf_decoder_paged_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                 const struct lf_decoder_paged *p, lf_err *err)
{
    static const struct lf_decoder_media given = {.given = true};
    struct lf_dec_build b = {.d = d,
                             .c = &d->c,
                             .paged = p,
                             .stack = "",
                             .rows = p->rows,
                             .media = p->media ? &given : NULL,
                             .adapter_off = p->adapter_off,
                             .chunk = lf_dec_whole(&d->c)};
    b.g = check_tokens(&d->c, err) || lf_model_need_next(&d->c, err) ||
                  check_source(&d->c, p->source_rows, err)
              ? NULL
              : lf_graph_create(ps, name, err);
    if (!b.g)
        return NULL;
    begin(&b, p->rows, p->n_seq);
    b.seq = lf_input(b.g, "seq", LF_I32, p->rows, 1);
    if (lf_model_attends(&d->c))
        b.table = lf_input(b.g, "table", LF_I32, p->n_seq, p->max_pages);
    if (lf_model_is_seq2seq(&d->c)) {
        b.source_last = lf_input(b.g, "source_last", LF_I32, p->rows, 1);
        b.source_table = lf_input(b.g, "source_table", LF_I32, p->n_seq, p->max_source_pages);
    }
    const lf_val h = lf_dec_trunk(&b);
    if (p->hidden)
        lf_output(b.g, h, "hidden");
    lf_val x = lf_gather_rows(b.g, h, lf_input(b.g, "select", LF_I32, p->n_select, 1));
    lf_output(b.g, all_logits(&b, x), "logits");
    return lf_dec_done(b.g, err);
}

lf_graph *lf_decoder_source_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                  const struct lf_decoder_paged *p, lf_err *err)
{
    struct lf_dec_build b = {.d = d,
                             .c = &d->c,
                             .paged = p,
                             .stack = "",
                             .adapter_off = p->adapter_off,
                             .chunk = lf_dec_whole(&d->c)};
    const struct lf_dec_source s = {p->source_rows, 0, p->n_seq};
    if (!lf_model_is_seq2seq(&d->c)) {
        lf_fail(err, LF_EINVAL, "this model has no encoder ([model] encoder_layers)");
        return NULL;
    }
    if (check_source(&d->c, p->source_rows, err) || !(b.g = lf_graph_create(ps, name, err)))
        return NULL;
    struct lf_dec_build e = lf_dec_source(&b, &s);
    b.source_table = lf_input(b.g, "source_table", LF_I32, p->n_seq, p->max_source_pages);
    lf_dec_keep_source(&b, &e, lf_dec_encode(&e));
    return lf_dec_done(b.g, err);
}

lf_graph *lf_decoder_draft_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                 const struct lf_decoder_paged *p, lf_err *err)
{
    struct lf_dec_build b = {.d = d,
                             .c = &d->c,
                             .paged = p,
                             .stack = "",
                             .rows = p->rows,
                             .adapter_off = p->adapter_off,
                             .chunk = lf_dec_whole(&d->c)};
    if (check_tokens(&d->c, err))
        return NULL;
    if (!d->c.mtp_layers) {
        lf_fail(err, LF_EINVAL, "this model has no heads for later tokens ([model] mtp_layers)");
        return NULL;
    }
    if (lf_model_recurs(&d->c)) {
        lf_fail(
            err, LF_ENOTSUP,
            "the states of this model's mixers take in each token for good, so a guess could not "
            "be taken back: generate without speculation");
        return NULL;
    }
    if (!(b.g = lf_graph_create(ps, name, err)))
        return NULL;
    begin(&b, p->rows, p->n_seq);
    b.seq = lf_input(b.g, "seq", LF_I32, p->rows, 1);
    b.table = lf_input(b.g, "table", LF_I32, p->n_seq, p->max_pages);
    const lf_val h = lf_dec_mtp_layer(&b, lf_dec_mtp_embed(&b, b.tokens),
                                      lf_input_act(b.g, "hidden", p->rows, d->c.hidden),
                                      d->c.layers),
                 x = lf_gather_rows(b.g, h, lf_input(b.g, "select", LF_I32, p->n_select, 1));
    lf_output(b.g, all_logits(&b, x), "logits");
    return lf_dec_done(b.g, err);
}
