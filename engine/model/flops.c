/* SPDX-License-Identifier: Apache-2.0
 *
 * FLOPs by what is trained: see flops.h. */
#include "engine/model/flops.h"

#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/model/decoder.h"
#include "engine/model/weights.h"

/* Where a tensor stands: its layer, -1 below the layers, the number of layers behind them. */
static int64_t place_of(const lf_model_config *c, const char *name)
{
    static const char *const behind[] = {"final_norm.", "head.",     "head_in.", "head_norm.",
                                         "score.",      "label_in.", "labels.",  "nsp.",
                                         "embed_out.",  "altup.out."};
    if (strncmp(name, "layers.", 7) == 0)
        return strtoll(name + 7, NULL, 10);
    for (size_t i = 0; i < sizeof behind / sizeof *behind; i++)
        if (strncmp(name, behind[i], strlen(behind[i])) == 0)
            return c->layers;
    return -1;
}

/* A table that is looked up and, tied, is the head too. */
static bool is_table(const char *name)
{
    return strcmp(name, "embed.weight") == 0;
}

/* Scalars of a tensor that multiply a token. */
static double multiplying(const lf_model_config *c, const struct lf_param_desc *d)
{
    const bool tied = (c->tied_head && c->output == LF_OUTPUT_TOKENS) || c->generator_layers > 0;
    double n = 1;
    for (int k = 0; k < d->ndim; k++)
        n *= (double)d->dims[k];
    if (d->ndim < 2 || lf_weights_is_sight(d->name) ||
        lf_str_has_suffix(d->name, "pos_embed.weight") ||
        lf_str_has_suffix(d->name, "relative.weight") ||
        strcmp(d->name, "type_embed.weight") == 0 ||
        strcmp(d->name, "per_layer.embed.weight") == 0 || lf_str_has_suffix(d->name, ".bias") ||
        (is_table(d->name) && !tied))
        return 0;
    return d->ndim == 3 ? n * (double)c->experts_per_token / (double)c->experts : n;
}

/* How often a tensor multiplies a token, with so many heads of mtp_layers. */
static double times(const lf_model_config *c, const struct lf_param_desc *d, int64_t more)
{
    if (strncmp(d->name, "layers.", 7) == 0 && place_of(c, d->name) >= c->layers)
        return more > 0 ? 1 : 0;
    return is_table(d->name) || strcmp(d->name, "head.weight") == 0 ? 1 + (double)more : 1;
}

static int64_t lowest_trained(const lf_model_config *c, const lf_pstore *ps)
{
    int64_t lowest = c->layers;
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        const int64_t at = place_of(c, d->name);
        if (!d->frozen && at < lowest)
            lowest = at;
    }
    return lowest;
}

/* Of mtp_layers, those that run: with something that is trained. */
static int64_t count_more(const lf_model_config *c, const lf_pstore *ps)
{
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        if (!d->frozen && strncmp(d->name, "layers.", 7) == 0 && place_of(c, d->name) >= c->layers)
            return c->mtp_layers;
    }
    return 0;
}

/* Work of attention in the heads of mtp_layers that run: each that of the last layer. */
static double more_work(const lf_model_config *c, int64_t more, int64_t seq_length, bool causal)
{
    return more > 0 ? (double)more * lf_model_attention_work(c, seq_length, causal, c->layers - 1)
                    : 0;
}

struct lf_train_flops lf_train_flops_of(const lf_model_config *c, const lf_pstore *ps)
{
    const int64_t lowest = lowest_trained(c, ps);
    struct lf_train_flops f = {.from = lowest < 0 ? 0 : lowest, .more = count_more(c, ps)};
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        /* The tied table multiplies as the head does, behind the layers. */
        const int64_t at = is_table(d->name) ? c->layers : place_of(c, d->name);
        const double n = multiplying(c, d) * times(c, d, f.more);
        const bool through = at < c->layers ? at >= lowest : lowest < c->layers;
        f.matrices += 2 * n + (through ? 2 * n : 0) + (d->frozen ? 0 : 2 * n);
    }
    return f;
}

/* Where a tensor stands as a pipeline counts layers. */
static int64_t depth_of(const lf_model_config *c, const char *name)
{
    static const char encoder[] = "encoder.layers.";
    if (strncmp(name, encoder, sizeof encoder - 1) == 0)
        return strtoll(name + sizeof encoder - 1, NULL, 10);
    const int64_t at = is_table(name) ? c->layers : place_of(c, name);
    return at < 0 ? at : c->encoder_layers + (at < c->layers ? at : c->layers);
}

/* Rows that a tensor multiplies for a token of the target. */
static double rows_of(const char *name, struct lf_model_lengths of)
{
    const bool source =
        strncmp(name, "encoder.", 8) == 0 || strstr(name, ".cross.k.") || strstr(name, ".cross.v.");
    return source ? (double)of.source / (double)of.target : 1;
}

static void add_layers(double *flops, const lf_model_config *c, const lf_pstore *ps, int64_t more,
                       struct lf_model_lengths of)
{
    for (int i = 0; i < lf_pstore_count(ps); i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        const int64_t at = depth_of(c, d->name);
        if (at >= 0)
            flops[at] += 6.0 * multiplying(c, d) * times(c, d, more) * rows_of(d->name, of);
    }
}

/* Work of attention in layer l of a stack that sees so many tokens. */
static double layer_work(const lf_model_config *c, int64_t length, bool causal, int64_t l)
{
    return lf_model_attention_work(c, length, causal, l) -
           lf_model_attention_work(c, length, causal, l + 1);
}

static void add_attention(double *flops, const lf_model_config *c, struct lf_model_lengths of)
{
    const lf_model_config e = lf_model_source_of(c);
    lf_model_config d = *c;
    d.encoder_layers = 0; /* its own attention; that to the source is added to it */
    const double cross =
        lf_model_is_seq2seq(c) ? (double)(c->heads * c->head_dim) * (double)of.source : 0;
    for (int64_t l = 0; l < c->encoder_layers; l++)
        flops[l] +=
            12.0 * layer_work(&e, of.source, false, l) * (double)of.source / (double)of.target;
    for (int64_t l = 0; l < c->layers; l++)
        flops[c->encoder_layers + l] += 12.0 * (layer_work(&d, of.target, true, l) + cross);
}

int lf_model_layer_flops(double *flops, const lf_model_config *c, struct lf_model_lengths of,
                         bool mtp, lf_err *err)
{
    const int64_t more = mtp ? c->mtp_layers : 0;
    lf_decoder *dec = lf_decoder_create(c, of.target, err);
    lf_pstore *ps = dec ? lf_pstore_create(err) : NULL;
    int rc = ps ? lf_decoder_declare(dec, ps, err) : err ? err->rc : LF_ENOMEM;
    if (rc == 0) {
        add_layers(flops, c, ps, more, of);
        flops[lf_model_depth(c)] += 12.0 * more_work(c, more, of.target, true);
        add_attention(flops, c, of);
    }
    lf_pstore_destroy(ps);
    lf_decoder_destroy(dec);
    return rc;
}

double lf_train_flops_per_token(const struct lf_train_flops *f, const lf_model_config *c,
                                int64_t seq_length, bool causal)
{
    return f->matrices + 12 * more_work(c, f->more, seq_length, causal) +
           4 * lf_model_attention_work(c, seq_length, causal, 0) +
           8 * lf_model_attention_work(c, seq_length, causal, f->from);
}
