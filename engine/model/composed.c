/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoder, projector and decoder as one graph. */
#include "engine/model/composed.h"

#include <stdio.h>
#include <string.h>

#include "engine/graph/adapter.h"
#include "engine/model/decoder_priv.h"
#include "engine/model/dual.h"

/* ---- parameters ---- */

struct params {
    const lf_model_config *c;
    lf_pstore *ps;
    lf_err *err;
    int rc;
};

enum kind { MATRIX, GAIN, BIAS };

static void add(struct params *t, const char *prefix, const char *name, enum kind kind,
                const int64_t dims[2])
{
    char whole[96];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    const bool ones = kind == GAIN && t->c->projector.norm_offset < 0.5;
    const struct lf_param_desc d = {.name = whole,
                                    .ndim = kind == MATRIX ? 2 : 1,
                                    .dims = {dims[0], dims[1]},
                                    .init = kind == MATRIX ? LF_INIT_NORMAL
                                            : ones         ? LF_INIT_ONE
                                                           : LF_INIT_ZERO,
                                    .init_std = (float)t->c->init_std,
                                    .decay = kind == MATRIX};
    const int rc = t->rc ? t->rc : lf_pstore_add(t->ps, &d, t->err);
    t->rc = rc < 0 ? rc : 0;
}

static void add_projector(struct params *t, const char *prefix, bool norm_merged)
{
    const lf_projector_config *p = &t->c->projector;
    const int64_t in = lf_model_projected_width(t->c), merged = lf_model_merged_width(t->c),
                  E = lf_model_embed_width(t->c), out = p->kind == LF_PROJECTOR_MLP ? p->hidden : E,
                  normed = norm_merged ? merged : lf_vision_width(&t->c->vision);
    if (p->norm != LF_PROJECTOR_NO_NORM)
        add(t, prefix, "norm.weight", GAIN, (int64_t[]){normed, 0});
    if (p->norm == LF_PROJECTOR_LAYER)
        add(t, prefix, "norm.bias", BIAS, (int64_t[]){normed, 0});
    if (p->reduce)
        add(t, prefix, "reduce.weight", MATRIX, (int64_t[]){in, merged});
    add(t, prefix, "fc1.weight", MATRIX, (int64_t[]){out, in});
    if (p->bias)
        add(t, prefix, "fc1.bias", BIAS, (int64_t[]){out, 0});
    if (p->kind != LF_PROJECTOR_MLP)
        return;
    add(t, prefix, "fc2.weight", MATRIX, (int64_t[]){E, out});
    if (p->bias)
        add(t, prefix, "fc2.bias", BIAS, (int64_t[]){E, 0});
}

int lf_dec_declare_sight(const lf_decoder *d, lf_pstore *ps, lf_err *err)
{
    const lf_model_config *c = &d->c;
    struct params t = {.c = c, .ps = ps, .err = err};
    if (!c->vision.family)
        return 0;
    t.rc = lf_vision_declare(d->vision, ps, err);
    if (lf_model_is_dual(c)) /* which has no projector */
        return t.rc != 0 ? t.rc : lf_dual_declare(c, ps, err);
    add_projector(&t, "projector.", c->projector.norm_merged);
    if (c->projector.newline)
        add(&t, "projector.", "newline.weight", MATRIX, (int64_t[]){1, lf_model_embed_width(c)});
    for (int64_t i = 0; i < c->vision.taps.n; i++) {
        char prefix[48];
        snprintf(prefix, sizeof prefix, "projector.deep.%lld.", (long long)i);
        add_projector(&t, prefix, true);
    }
    return t.rc;
}

/* ---- the graph ---- */

static lf_val norm(struct lf_dec_build *b, lf_val h, const char *prefix)
{
    const lf_projector_config *p = &b->c->projector;
    const bool layer = p->norm == LF_PROJECTOR_LAYER;
    const struct lf_norm_opts o = {
        .eps = (float)p->norm_eps, .w_offset = (float)p->norm_offset, .layer = layer};
    return lf_norm(b->g, h, lf_paramf(b->g, "%snorm.weight", prefix),
                   layer ? lf_paramf(b->g, "%snorm.bias", prefix) : LF_NONE, &o);
}

/* Of what adapters of encoder and projector read. */
static float drop_of(const struct lf_dec_build *b)
{
    return b->dropout && b->media->drops ? (float)b->d->adapter_dropout : 0;
}

static lf_val linear(struct lf_dec_build *b, lf_val h, bool bias, const char *prefix,
                     const char *name)
{
    lf_val w = lf_paramf(b->g, "%s%s.weight", prefix, name),
           v = bias ? lf_paramf(b->g, "%s%s.bias", prefix, name) : LF_NONE;
    const struct lf_adapter_drop drop = {
        .p = drop_of(b), .sample = b->feature_samples, .position = b->feature_offsets};
    return b->adapter_off ? lf_linear(b->g, h, w, v) : lf_linear_adapted(b->g, h, w, v, &drop);
}

/* Selected rows of the encoder to features. */
static lf_val project(struct lf_dec_build *b, lf_val h, const char *prefix, bool norm_merged)
{
    const lf_projector_config *p = &b->c->projector;
    const int fold = (int)(p->merge * p->merge);
    if (p->norm != LF_PROJECTOR_NO_NORM && !norm_merged)
        h = norm(b, h, prefix);
    if (fold > 1)
        h = lf_fold_rows(b->g, h, fold);
    if (p->norm != LF_PROJECTOR_NO_NORM && norm_merged)
        h = norm(b, h, prefix);
    if (p->reduce)
        h = linear(b, h, false, prefix, "reduce");
    h = linear(b, h, p->bias, prefix, "fc1");
    if (p->kind != LF_PROJECTOR_MLP)
        return h;
    return linear(b, lf_act(b->g, h, (enum lf_act)p->activation), p->bias, prefix, "fc2");
}

bool lf_decoder_selects(const lf_model_config *c)
{
    return c->projector.pool > 1 || (c->vision.class_token && c->projector.merge > 1);
}

/* Pixels to rows of the encoder and of its taps, or these as they are given. */
static lf_val encode(struct lf_dec_build *b, lf_val *deep)
{
    const lf_model_config *c = b->c;
    const struct lf_decoder_media *m = b->media;
    struct lf_vision_rows rows = m->vision;
    int64_t tap[LF_MODEL_MAX_TAPS];
    rows.adapter_off = b->adapter_off;
    rows.drop = drop_of(b);
    for (int64_t i = 0; i < c->vision.taps.n; i++) {
        char name[48];
        snprintf(name, sizeof name, "media.encoded.%lld", (long long)i);
        tap[i] = (int64_t)c->vision.taps.v[i];
        if (m->encoded)
            deep[i] = lf_input_act(b->g, name, m->vision.rows, c->vision.hidden);
    }
    return m->encoded
               ? lf_input_act(b->g, "media.encoded", m->vision.rows, lf_vision_width(&c->vision))
               : lf_vision_encode(b->d->vision, b->g, &rows, tap, (int)c->vision.taps.n, deep);
}

/* To features, and to what enters behind the first decoder layers. */
static lf_val features(struct lf_dec_build *b, lf_val *deep)
{
    const lf_model_config *c = b->c;
    const struct lf_decoder_media *m = b->media;
    const int64_t n = c->vision.taps.n, each = c->projector.merge * c->projector.merge;
    lf_val h = encode(b, deep);
    if (drop_of(b) > 0) {
        b->feature_samples = lf_input(b->g, "media.samples", LF_I64, m->features, 1);
        b->feature_offsets = lf_input(b->g, "media.offsets", LF_I32, m->features, 1);
    }
    struct lf_mix select = {0};
    if (lf_decoder_selects(c)) {
        select =
            lf_mix_input(b->g, "media.select", m->features * each, m->vision.rows, m->selected);
        h = lf_mix_rows(b->g, h, &select);
    }
    for (int64_t i = 0; i < n; i++) {
        char prefix[48];
        snprintf(prefix, sizeof prefix, "projector.deep.%lld.", (long long)i);
        if (lf_decoder_selects(c))
            deep[i] = lf_mix_rows(b->g, deep[i], &select);
        deep[i] = project(b, deep[i], prefix, true);
    }
    return project(b, h, "projector.", c->projector.norm_merged);
}

/* What pictures put into each row of the stream [rows, E], and behind the first layers. */
static lf_val placed(struct lf_dec_build *b)
{
    const lf_model_config *c = b->c;
    lf_val deep[LF_MODEL_MAX_TAPS];
    lf_whole_rows(b->g, true);
    lf_val f = features(b, deep);
    lf_whole_rows(b->g, false);
    const struct lf_mix place =
        lf_mix_input_own(b->g, "media.place", b->rows, b->media->features, b->media->placed);
    for (int64_t i = 0; i < c->vision.taps.n; i++)
        b->deep[i] = lf_tp_spread(b->g, lf_mix_rows(b->g, deep[i], &place));
    f = lf_mix_rows(b->g, f, &place);
    if (!c->projector.newline)
        return lf_tp_spread(b->g, f);
    const struct lf_mix lines = lf_mix_input(b->g, "media.lines", b->rows, 1, b->media->lines);
    return lf_tp_spread(
        b->g,
        lf_add(b->g, f, lf_mix_rows(b->g, lf_param(b->g, "projector.newline.weight"), &lines)));
}

static lf_val given(struct lf_dec_build *b)
{
    const lf_model_config *c = b->c;
    char name[48];
    for (int64_t i = 0; i < c->vision.taps.n; i++) {
        snprintf(name, sizeof name, "media.deep.%lld", (long long)i);
        b->deep[i] = lf_input(b->g, name, LF_F32, b->rows, c->hidden);
    }
    return lf_input(b->g, "media.features", LF_F32, b->rows, lf_model_embed_width(c));
}

lf_val lf_dec_see(struct lf_dec_build *b, lf_val x)
{
    if (!b->media)
        return x;
    return lf_add(b->g, x, b->media->given ? given(b) : placed(b));
}

lf_val lf_dec_deep(struct lf_dec_build *b, lf_val x, int64_t l)
{
    return b->media && l < b->c->vision.taps.n ? lf_add(b->g, x, b->deep[l]) : x;
}

static void output(lf_graph *g, lf_val v, const char *name)
{
    lf_pin_f32(g, v);
    lf_output(g, v, name);
}

lf_graph *lf_decoder_encoder_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                   const struct lf_decoder_media *m, lf_err *err)
{
    struct lf_dec_build b = {
        .d = d, .c = &d->c, .media = m, .stack = "", .rows = 1, .chunk = lf_dec_whole(&d->c)};
    lf_val deep[LF_MODEL_MAX_TAPS];
    b.g = lf_graph_create(ps, name, err);
    if (!b.g)
        return NULL;
    lf_output(b.g, encode(&b, deep), "encoded");
    for (int64_t i = 0; i < d->c.vision.taps.n; i++) {
        char text[48];
        snprintf(text, sizeof text, "encoded.%lld", (long long)i);
        lf_output(b.g, deep[i], text);
    }
    if (!lf_graph_check(b.g, err))
        return b.g;
    lf_graph_destroy(b.g);
    return NULL;
}

lf_graph *lf_decoder_features_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                                    int64_t rows, const struct lf_decoder_media *m, lf_err *err)
{
    struct lf_dec_build b = {
        .d = d, .c = &d->c, .media = m, .stack = "", .rows = rows, .chunk = lf_dec_whole(&d->c)};
    b.g = lf_graph_create(ps, name, err);
    if (!b.g)
        return NULL;
    output(b.g, placed(&b), "features");
    for (int64_t i = 0; i < d->c.vision.taps.n; i++) {
        char text[48];
        snprintf(text, sizeof text, "deep.%lld", (long long)i);
        output(b.g, b.deep[i], text);
    }
    if (!lf_graph_check(b.g, err))
        return b.g;
    lf_graph_destroy(b.g);
    return NULL;
}
