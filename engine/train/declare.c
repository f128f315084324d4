/* SPDX-License-Identifier: Apache-2.0
 *
 * The tensors of a rank, and which of them are trained. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/train/loop_priv.h"

/* A pattern may match layers of other ranks alone, but it matches some of the model. */
static int freeze(const struct lf_train_model *m, const struct lf_train_config *c, lf_err *err)
{
    for (size_t i = 0; i < c->n_freeze; i++) {
        const int here = lf_pstore_freeze_matching(m->ps, c->freeze[i], true),
                  all = m->whole ? lf_pstore_freeze_matching(m->whole, c->freeze[i], true) : here;
        if (all == 0)
            return lf_fail(
                err, LF_EINVAL,
                "freeze = %s matches no tensor of the model; names are like layers.0.attn.q.weight",
                c->freeze[i]);
    }
    return 0;
}

/* How many layers lie below a tensor, the embedding being one: 0 for what enters the first layer,
 * and n + 1 for what stands behind the last of n. */
static int64_t depth_of(const char *name, const char *stack, int64_t n)
{
    static const char *const above[] = {"final_norm", "head", "labels.",  "label_in.",
                                        "score.",     "mtp.", "classes.", "nsp."};
    const size_t skip = strlen(stack);
    const char *rest = strncmp(name, stack, skip) == 0 ? name + skip : name;
    if (strncmp(rest, "layers.", 7) == 0)
        return 1 + strtoll(rest + 7, NULL, 10);
    for (size_t i = 0; i < sizeof above / sizeof *above; i++)
        if (strncmp(rest, above[i], strlen(above[i])) == 0)
            return n + 1;
    return 0;
}

/* Layers further down learn more slowly: by layer_decay for each layer above a tensor (Clark et al.
 * 2020, ELECTRA; Bao et al. 2021, BEiT). */
static int decay_rates(const struct lf_train_model *m, const struct lf_train_config *c, lf_err *err)
{
    const lf_model_config *mc = lf_decoder_config(m->dec);
    const bool sees = lf_model_classifies(mc);
    const int64_t n = sees ? mc->vision.layers : mc->layers;
    if (!(c->layer_decay > 0))
        return 0;
    if (mc->vision.family && !sees)
        return lf_fail(err, LF_ENOTSUP,
                       "layer_decay is of models with one stack of layers, and this one has an "
                       "encoder of pictures and a decoder; take lr_scale");
    if (lf_model_is_seq2seq(mc))
        return lf_fail(err, LF_ENOTSUP,
                       "layer_decay is of models with one stack of layers, and this one has an "
                       "encoder and a decoder; take lr_scale");
    for (int i = 0; i < lf_pstore_count(m->ps); i++) {
        const int64_t depth = depth_of(lf_pstore_desc(m->ps, i)->name, sees ? "vision." : "", n);
        lf_pstore_set_lr(m->ps, i, pow(c->layer_decay, (double)(n + 1 - depth)));
    }
    return 0;
}

static int scale_rates(const struct lf_train_model *m, const struct lf_train_config *c, lf_err *err)
{
    if (decay_rates(m, c, err) != 0)
        return LF_ENOTSUP;
    for (size_t i = 0; i < c->n_lr_scale; i++) {
        const struct lf_lr_scale *s = &c->lr_scale[i];
        const int here = lf_pstore_lr_matching(m->ps, s),
                  all = m->whole ? lf_pstore_lr_matching(m->whole, s) : here;
        if (all == 0)
            return lf_fail(err, LF_EINVAL, "lr_scale: %s matches no tensor of the model",
                           s->pattern);
    }
    return 0;
}

/* A tied embedding is in the first and in the last chunk of the model. Where one rank has both,
 * they share it as the parts of a whole model do. */
static void tie(const struct lf_train_model *m)
{
    const struct lf_decoder_chunk ends[] = {{.first = true}, {.last = true}};
    struct lf_decoder_tied tied[LF_DECODER_TIED];
    const int n = lf_train_has_ends(&m->cut) ? 0 : lf_decoder_tied(m->dec, ends, 2, tied);
    for (int i = 0; i < n; i++) {
        const int at = lf_pstore_find(m->ps, tied[i].name);
        if (at >= 0)
            lf_pstore_tie(m->ps, at, m->cut.chunk[0].part.first == (tied[i].owner == 0));
    }
}

/* Do several ranks of the pipeline axis have layers of a stack? *first has the first of them. */
static bool several_have(const struct lf_train_model *m, bool source, int *first)
{
    const struct lf_train_cut *k = &m->cut;
    bool several = false;
    *first = -1;
    for (int s = 0; s < k->spec.ranks * k->spec.chunks; s++) {
        const struct lf_decoder_chunk part = lf_train_part(k, s);
        int rank, chunk;
        lf_pipe_place(&rank, &chunk, &k->spec, s);
        if (!lf_decoder_has_layers(lf_decoder_config(m->dec), &part, source))
            continue;
        several = several || (*first >= 0 && rank != *first);
        *first = *first < 0 ? rank : *first;
    }
    return several;
}

/* Tables that all layers of a stack share are on each rank that has some of these. */
static void spread(const struct lf_train_model *m, const struct lf_train_who *who)
{
    struct lf_decoder_spread of[LF_DECODER_SPREAD];
    const int n = lf_decoder_spread(lf_decoder_config(m->dec), of);
    int64_t all = 0;
    for (int i = 0; i < n; i++) {
        int first;
        if (!several_have(m, of[i].source, &first))
            continue;
        const int at = lf_pstore_find(m->ps, of[i].name);
        if (at >= 0)
            lf_pstore_spread(m->ps, at, who->pipeline == first, all);
        all += of[i].elements / who->tensor_ranks;
    }
    lf_pstore_spread_all(m->ps, all);
}

struct lf_adapter_config lf_train_adapter(const struct lf_train_config *c,
                                          const lf_model_config *mc)
{
    struct lf_adapter_config a = *c->adapter;
    if (!c->adapter_from) /* that says it itself */
        a.mtp = lf_train_mtp(c) && mc->mtp_layers > 0;
    return a;
}

static int declare_chunks(const struct lf_train_model *m, lf_pstore *ps,
                          const struct lf_train_config *c, const struct lf_decoder_chunk *part,
                          int n, lf_err *err)
{
    int rc = lf_decoder_declare_chunks(m->dec, ps, part, n, err);
    if (rc == 0 && c->adapter) {
        const struct lf_adapter_config a = lf_train_adapter(c, lf_decoder_config(m->dec));
        rc = lf_decoder_adapt(m->dec, ps, &a, err);
        if (rc == 0 && c->n_features && lf_adapter_of_encoder(ps))
            rc = lf_fail(err, LF_EINVAL,
                         "features are those of an encoder that is not trained, and lora_targets "
                         "puts adapters on it; leave one of them out");
    }
    if (rc == 0 && c->objective && c->objective->declare)
        rc = c->objective->declare(c->objective->user, m->dec, ps, err);
    return rc;
}

/* What the whole model has, where this rank has some layers alone: for its size and its FLOPs. */
static int declare_whole(struct lf_train_model *m, const struct lf_train_config *c, lf_err *err)
{
    const struct lf_decoder_chunk all = {
        .end = lf_model_depth(lf_decoder_config(m->dec)), .first = true, .last = true};
    m->whole = lf_pstore_create(err);
    return m->whole ? declare_chunks(m, m->whole, c, &all, 1, err) : LF_ENOMEM;
}

/* Whether a part of the model has tensors with gradients. */
static int is_trained(bool *yes, const struct lf_train_model *m, const struct lf_train_config *c,
                      const struct lf_decoder_chunk *part, lf_err *err)
{
    lf_pstore *ps = lf_pstore_create(err);
    int rc = ps ? declare_chunks(m, ps, c, part, 1, err) : LF_ENOMEM;
    for (size_t i = 0; i < c->n_freeze && rc == 0; i++)
        lf_pstore_freeze_matching(ps, c->freeze[i], true);
    if (rc == 0 && c->n_features)
        lf_pstore_leave(ps, "vision.");
    for (int i = 0; i < lf_pstore_count(ps) && rc == 0; i++) {
        const struct lf_param_desc *d = lf_pstore_desc(ps, i);
        *yes = *yes || (!d->frozen && !(d->balance_rate > 0));
    }
    lf_pstore_destroy(ps);
    return rc;
}

/* Gradients go back to the first part that is trained, and no further. */
static int mark_frozen(struct lf_train_model *m, const struct lf_train_config *c, lf_err *err)
{
    struct lf_train_cut *k = &m->cut;
    const int stages = k->spec.ranks * k->spec.chunks;
    bool trained = false;
    int first = -1, rc = 0;
    while (rc == 0 && !trained && ++first < stages) {
        const struct lf_decoder_chunk part = lf_train_part(k, first);
        rc = is_trained(&trained, m, c, &part, err);
    }
    if (rc == 0 && !trained)
        rc = lf_fail(err, LF_EINVAL, "every tensor is frozen, nothing would be trained");
    for (int i = 0; i < k->n_chunks; i++) {
        k->chunk[i].part.frozen_before = k->chunk[i].stage <= first;
        k->chunk[i].part.frozen = k->chunk[i].stage < first;
    }
    return rc;
}

int lf_train_declare(struct lf_train_model *m, const struct lf_train_config *c,
                     const struct lf_train_who *who, lf_err *err)
{
    struct lf_decoder_chunk part[LF_TRAIN_MAX_CHUNKS];
    for (int i = 0; i < m->cut.n_chunks; i++)
        part[i] = m->cut.chunk[i].part;
    int rc = declare_chunks(m, m->ps, c, part, m->cut.n_chunks, err);
    if (rc == 0 && lf_train_is_cut(&m->cut)) {
        lf_pstore_part(m->ps);
        tie(m);
        spread(m, who);
        rc = declare_whole(m, c, err);
    }
    if (rc == 0 && !c->max_patches) { /* nothing reads these */
        lf_pstore_freeze(m->ps, "vision.", true);
        lf_pstore_freeze(m->ps, "projector.", true);
    }
    if (rc == 0 && c->n_features) {
        lf_pstore_leave(m->ps, "vision.");
        if (m->whole)
            lf_pstore_leave(m->whole, "vision.");
    }
    if (rc == 0 && c->fp8)
        rc = lf_decoder_mark_fp8(m->dec, m->ps, &c->fp8_layers, err);
    if (rc == 0)
        rc = freeze(m, c, err);
    if (rc == 0)
        rc = scale_rates(m, c, err);
    return rc == 0 && lf_train_is_cut(&m->cut) ? mark_frozen(m, c, err) : rc;
}
