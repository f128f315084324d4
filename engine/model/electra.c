/* SPDX-License-Identifier: Apache-2.0
 *
 * ELECTRA's two encoders: description, parameters, graphs. See electra.h. */
#include "engine/model/electra.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/decoder_priv.h"

struct lf_electra {
    const lf_decoder *d;
    lf_decoder *g;
};

/* ---- descriptions ---- */

void lf_model_generator(lf_model_config *g, const lf_model_config *c)
{
    const int64_t embed = lf_model_embed_width(c);
    *g = *c;
    g->layers = c->generator_layers;
    g->hidden = c->generator_hidden;
    g->heads = g->kv_heads = c->generator_heads;
    g->head_dim = g->hidden / g->heads;
    g->ffn = c->generator_ffn;
    g->embed_dim = embed == g->hidden ? 0 : embed;
    g->embed_narrow = g->embed_dim > 0;
    g->output = LF_OUTPUT_TOKENS;
    g->labels = 0;
    g->labels_of = LF_LABELS_OF_TEXT;
    g->label_row = LF_LABEL_LAST;
    g->label_head = LF_LABEL_PLAIN;
    g->label_bias = false;
    g->tied_head = g->head_bias = g->head_transform = g->head_transform_bias = true;
    lf_model_leave_generator(g);
}

void lf_model_leave_generator(lf_model_config *c)
{
    c->generator_layers = c->generator_hidden = c->generator_heads = c->generator_ffn = 0;
}

int lf_model_check_generator(const lf_model_config *c, lf_err *err)
{
    const struct {
        bool set;
        const char *what;
    } without[] = {
        {c->position != LF_POS_LEARNED, "another position than learned"},
        {c->embed_dim && !c->embed_narrow,
         "embed_dim without embed_narrow: both encoders read the embedding with its positions"},
        {c->experts > 0, "experts"},
        {c->mtp_layers > 0, "mtp_layers"},
        {c->nsp_head, "nsp_head"},
        {c->window_kv_heads > 0, "window_kv_heads"},
    };
    if (!c->generator_layers)
        return 0;
    if (c->mask != LF_MASK_BOTH || strcmp(c->family, "electra") != 0)
        return lf_fail(err, LF_EINVAL,
                       "[model] generator_layers: is of family = electra, whose encoders (mask = "
                       "both) share an embedding");
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (without[i].set)
            return lf_fail(err, LF_EINVAL, "[model] generator_layers: does not go with %s",
                           without[i].what);
    if (c->generator_hidden < 1 || c->generator_heads < 1 || c->generator_ffn < 1)
        return lf_fail(err, LF_EINVAL,
                       "[model] generator_layers: the generator has sizes of its own: give "
                       "generator_hidden, generator_heads and generator_ffn");
    return c->generator_hidden % (2 * c->generator_heads)
               ? lf_fail(err, LF_EINVAL,
                         "[model] generator_hidden: %lld is no multiple of twice generator_heads = "
                         "%lld",
                         (long long)c->generator_hidden, (long long)c->generator_heads)
               : 0;
}

void lf_model_give_discriminator(lf_model_config *c)
{
    if (!c->generator_layers || c->output != LF_OUTPUT_TOKENS)
        return;
    c->output = LF_OUTPUT_LABELS;
    c->nsp_head = false;
    c->labels = 1;
    c->labels_of = LF_LABELS_OF_TOKEN;
    c->label_row = LF_LABEL_LAST;
    c->label_head = LF_LABEL_GELU;
    c->label_bias = true;
}

bool lf_model_discriminates(const lf_model_config *c)
{
    return c->output == LF_OUTPUT_LABELS && c->labels == 1 && c->labels_of == LF_LABELS_OF_TOKEN &&
           c->label_head == LF_LABEL_GELU;
}

bool lf_electra_shares(const char *name)
{
    static const char *const shared[] = {"embed.", "pos_embed.", "type_embed.", "embed_norm."};
    for (size_t i = 0; i < sizeof shared / sizeof *shared; i++)
        if (strncmp(name, shared[i], strlen(shared[i])) == 0)
            return true;
    return false;
}

/* ---- the object ---- */

lf_electra *lf_electra_create(const lf_decoder *d, int64_t positions, lf_err *err)
{
    lf_model_config c;
    if (!d->c.generator_layers || !lf_model_discriminates(&d->c)) {
        lf_fail(err, LF_EINVAL,
                "objective = electra trains a model that tells replaced tokens together with one "
                "that makes them: describe the latter with generator_layers, generator_hidden, "
                "generator_heads and generator_ffn in [model]");
        return NULL;
    }
    lf_electra *e = lf_calloc(1, sizeof *e, err);
    if (!e)
        return NULL;
    lf_model_generator(&c, &d->c);
    e->d = d;
    e->g = lf_decoder_create(&c, positions, err);
    if (!e->g) {
        lf_electra_destroy(e);
        return NULL;
    }
    return e;
}

void lf_electra_destroy(lf_electra *e)
{
    if (!e)
        return;
    lf_decoder_destroy(e->g);
    free(e);
}

int64_t lf_electra_width(const lf_electra *e)
{
    return lf_model_embed_width(&e->d->c);
}

int lf_electra_declare(const lf_electra *e, lf_pstore *ps, lf_err *err)
{
    const struct lf_layout *l = lf_pstore_layout_of(ps);
    return l->tensor > 1 || l->context > 1
               ? lf_fail(err, LF_ENOTSUP,
                         "tensor and context do not divide the generator of objective = electra; "
                         "leave them out")
               : lf_dec_declare_generator(e->g, ps, err);
}

/* ---- graphs ---- */

/* The generator in the graph of b, which reads these tokens: what its head reads, [R, E]. */
static lf_val generate(const lf_electra *e, const struct lf_dec_build *b, lf_val tokens)
{
    const lf_model_config *c = &e->g->c;
    struct lf_dec_build below = *b, g = *b;
    below.tokens = tokens;
    g.d = e->g;
    g.c = c;
    g.stack = LF_ELECTRA_STACK;
    g.chunk = lf_dec_whole(c);
    lf_val x = lf_dec_bottom_of(&g, lf_dec_embedded(&below));
    for (int64_t l = 0; l < c->layers; l++) {
        lf_block_begin(g.g, (int)(b->c->layers + l));
        x = lf_dec_block(&g, x, l);
        lf_block_end(g.g);
    }
    if (c->final_norm)
        x = lf_dec_norm(&g, x, "final_norm", LF_DEC_OUTSIDE);
    return lf_dec_transform(&g, x);
}

static lf_val head_bias(lf_graph *g)
{
    return lf_param(g, LF_ELECTRA_STACK "head.bias");
}

static void output(lf_graph *g, lf_val v, bool train, const char *name, const char *grad)
{
    if (train)
        lf_output_grad(g, v, name, grad);
    else
        lf_output(g, v, name);
}

lf_graph *lf_electra_graph(const lf_electra *e, lf_pstore *ps, const char *name,
                           const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    struct lf_dec_build b;
    if (lf_dec_begin(&b, e->d, ps, name, r, train, err) != 0)
        return NULL;
    const lf_val said = generate(e, &b, lf_input(b.g, "hidden_tokens", LF_I32, r->rows, 1)),
                 score = lf_dec_label_logits(&b, lf_dec_trunk(&b));
    lf_pin_f32(b.g, score);
    output(b.g, score, train, "score", "dscore");
    /* last, so that its gradient of the embedding comes first, together with that of its bias */
    const struct lf_logps p =
        lf_logp(b.g, said, lf_param(b.g, "embed.weight"), head_bias(b.g),
                lf_input(b.g, "targets", LF_I32, r->rows, 1), &(struct lf_logp_opts){0});
    output(b.g, p.logp, train, "lp", "dlp");
    return lf_dec_done(b.g, err);
}

lf_graph *lf_electra_read_graph(const lf_electra *e, lf_pstore *ps, const char *name,
                                const struct lf_decoder_rows *r, bool train, lf_err *err)
{
    struct lf_dec_build b;
    if (lf_dec_begin(&b, e->d, ps, name, r, train, err) != 0)
        return NULL;
    const lf_val x = generate(e, &b, b.tokens);
    lf_pin_f32(b.g, x);
    lf_output(b.g, x, "hidden");
    return lf_dec_done(b.g, err);
}

lf_graph *lf_electra_say_graph(const lf_electra *e, lf_pstore *ps, const char *name, int64_t n,
                               lf_err *err)
{
    lf_graph *g = lf_graph_create(ps, name, err);
    if (!g)
        return NULL;
    const lf_val z = lf_linear(g, lf_input(g, "hidden", LF_F32, n, lf_electra_width(e)),
                               lf_param(g, "embed.weight"), head_bias(g));
    lf_pin_f32(g, z);
    lf_output(g, z, "logits");
    return lf_dec_done(g, err);
}
