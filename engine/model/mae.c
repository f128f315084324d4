/* SPDX-License-Identifier: Apache-2.0
 *
 * The masked autoencoder: description, parameters, graph. */
#include "engine/model/mae.h"

#include <stdlib.h>
#include <string.h>

#include "engine/model/config_priv.h"
#include "engine/model/decoder_priv.h"

/* ---- description ---- */

lf_vision_config lf_mae_layers(const lf_model_config *c)
{
    lf_vision_config v = c->vision;
    v.layers = c->mae.layers;
    v.hidden = c->mae.hidden;
    v.heads = c->mae.heads;
    v.head_dim = c->mae.heads > 0 ? c->mae.hidden / c->mae.heads : 0;
    v.ffn = c->mae.ffn;
    v.patch_dim = c->vision.hidden;
    v.fixed_positions = v.positions > 0;
    v.pre_norm = false;
    v.final_norm = v.read_norm = true;
    return v;
}

static int refuse(const lf_model_config *c, const char *key, const char *why, lf_err *err)
{
    return lf_fail(err, LF_EINVAL, "%s: [model] %s: %s", lf_model_origin(c, key), key, why);
}

/* What a text decoder or a projector would read. */
static int check_keys(const lf_model_config *c, lf_err *err)
{
    for (size_t i = 0; i < lf_model_n_keys; i++) {
        const char *key = lf_model_keys[i].name;
        const bool other = strncmp(key, "vision.", 7) != 0 && strncmp(key, "mae.", 4) != 0;
        if (other && strcmp(lf_model_origin(c, key), "default") != 0)
            return refuse(c, key,
                          "a model that restores pictures (mae.layers) is an encoder and its "
                          "decoder alone, so nothing reads it; leave it out",
                          err);
    }
    return 0;
}

static int check_switches(const lf_model_config *c, lf_err *err)
{
    const lf_vision_config *v = &c->vision;
    if (v->windows)
        return refuse(c, "vision.family",
                      "windows are of neighbours, most of which mae.layers hides; take a family "
                      "whose layers see all of a picture",
                      err);
    if (v->stage_layers.n)
        return refuse(c, "vision.stage_layers",
                      "hidden patches leave holes in the grid that stages merge", err);
    if (v->distill_token)
        return refuse(c, "vision.distill_token", "nothing reads it with mae.layers", err);
    if (v->taps.n || v->read_states.n || (v->read_layers && v->read_layers != v->layers))
        return refuse(c,
                      v->taps.n          ? "vision.taps"
                      : v->read_states.n ? "vision.read_states"
                                         : "vision.read_layers",
                      "with mae.layers all layers of the encoder are trained, and the last is read",
                      err);
    return 0;
}

int lf_mae_check(lf_model_config *c, lf_err *err)
{
    if (!c->vision.family)
        return refuse(c, "mae.layers", "it restores pictures, which needs vision.family", err);
    if (!c->mae.hidden || !c->mae.heads)
        return lf_fail(err, LF_EINVAL, "[model] needs mae.%s", c->mae.hidden ? "heads" : "hidden");
    if (!c->mae.ffn)
        c->mae.ffn = 4 * c->mae.hidden;
    lf_vision_settle(&c->vision);
    int rc = check_keys(c, err);
    if (rc == 0)
        rc = check_switches(c, err);
    if (rc == 0)
        rc = lf_vision_check(&c->vision, err);
    if (rc != 0)
        return rc;
    const lf_vision_config layers = lf_mae_layers(c);
    return lf_vision_check(&layers, err) != 0 ? lf_err_prefix(err, "mae") : 0;
}

int64_t lf_mae_param_count(const lf_model_config *c)
{
    lf_vision_config v = lf_mae_layers(c);
    v.patch_bias = true;
    v.class_token = true; /* as long as the mask token */
    return lf_vision_param_count(&v) + c->vision.patch_dim * (v.hidden + 1);
}

/* ---- parameters ---- */

struct params {
    lf_pstore *ps;
    lf_err *err;
    float std;
    int rc;
};

static void add(struct params *t, const char *name, enum lf_init init, int64_t rows, int64_t cols)
{
    const struct lf_param_desc d = {.name = name,
                                    .ndim = cols ? 2 : 1,
                                    .dims = {rows, cols},
                                    .init = init,
                                    .init_std = t->std,
                                    .frozen = init == LF_INIT_SINCOS,
                                    .decay = init == LF_INIT_NORMAL};
    const int rc = t->rc ? t->rc : lf_pstore_add(t->ps, &d, t->err);
    t->rc = rc < 0 ? rc : 0;
}

int lf_mae_declare(const lf_model_config *c, const lf_vision *layers, lf_pstore *ps, lf_err *err)
{
    struct params t = {.ps = ps, .err = err, .std = (float)c->vision.init_std};
    const int64_t D = c->mae.hidden, K = c->vision.patch_dim;
    add(&t, "mae.embed.weight", LF_INIT_NORMAL, D, c->vision.hidden);
    add(&t, "mae.embed.bias", LF_INIT_ZERO, D, 0);
    add(&t, "mae.mask_token.weight", LF_INIT_NORMAL, 1, D);
    if (c->vision.positions)
        add(&t, "mae.pos_embed.weight", LF_INIT_SINCOS, c->vision.positions, D);
    if (t.rc == 0)
        t.rc = lf_vision_declare_layers(layers, ps, err);
    add(&t, "mae.pixels.weight", LF_INIT_NORMAL, K, D);
    add(&t, "mae.pixels.bias", LF_INIT_ZERO, K, 0);
    return t.rc;
}

/* ---- the graph ---- */

static lf_val linear(lf_graph *g, lf_val x, const char *name)
{
    lf_val w = lf_paramf(g, "%s.weight", name);
    return lf_linear(g, x, w, lf_paramf(g, "%s.bias", name));
}

/* Rows of the encoder to what the first layer of the decoder reads. */
static lf_val bottom(lf_graph *g, const lf_model_config *c, const struct lf_mae_rows *r, lf_val h)
{
    const struct lf_vision_rows *d = &r->decoder;
    const struct lf_mix place =
                            lf_mix_input(g, "mae.place", d->rows, r->encoder.rows, r->encoder.rows),
                        hidden = lf_mix_input(g, "mae.hidden", d->rows, 1, r->hidden);
    lf_val y = linear(g, h, "mae.embed");
    lf_val x = lf_add(g, lf_mix_rows(g, y, &place),
                      lf_mix_rows(g, lf_param(g, "mae.mask_token.weight"), &hidden));
    if (!c->vision.positions)
        return x;
    const struct lf_mix pos = lf_mix_input(g, "mae.pos", d->rows, c->vision.positions, d->taps);
    return lf_add(g, x, lf_mix_rows(g, lf_param(g, "mae.pos_embed.weight"), &pos));
}

lf_graph *lf_mae_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                       const struct lf_mae_rows *r, bool train, lf_err *err)
{
    if (!lf_model_restores(&d->c)) {
        lf_fail(err, LF_EINVAL,
                "the model restores no pictures: describe the decoder that does with mae.layers, "
                "mae.hidden and mae.heads in [model]");
        return NULL;
    }
    lf_graph *g = lf_graph_create(ps, name, err);
    if (!g)
        return NULL;
    lf_val h = lf_vision_encode(d->vision, g, &r->encoder, NULL, 0, NULL),
           x = lf_vision_layers(d->mae, g, &r->decoder, bottom(g, &d->c, r, h));
    const struct lf_mix select =
        lf_mix_input(g, "mae.select", r->hidden, r->decoder.rows, r->hidden);
    x = linear(g, lf_mix_rows(g, x, &select), "mae.pixels");
    lf_pin_f32(g, x);
    if (train)
        lf_output_grad(g, x, "pixels", "dpixels");
    else
        lf_output(g, x, "pixels");
    if (!lf_graph_check(g, err))
        return g;
    lf_graph_destroy(g);
    return NULL;
}
