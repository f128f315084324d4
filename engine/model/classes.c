/* SPDX-License-Identifier: Apache-2.0
 *
 * Classes of pictures: description, parameters, graph, and the rows that a picture is told by. */
#include "engine/model/classes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/model/config_priv.h"
#include "engine/model/decoder_priv.h"
#include "engine/model/sight_priv.h"

/* ---- description ---- */

static int refuse(const lf_model_config *c, const char *key, const char *why, lf_err *err)
{
    return lf_fail(err, LF_EINVAL, "%s: [model] %s: %s", lf_model_origin(c, key), key, why);
}

/* What a text decoder, a projector or what restores pictures would read. */
static int check_keys(const lf_model_config *c, lf_err *err)
{
    for (size_t i = 0; i < lf_model_n_keys; i++) {
        const char *key = lf_model_keys[i].name;
        const bool other = strncmp(key, "vision.", 7) != 0 && strncmp(key, "classes.", 8) != 0;
        if (other && strcmp(lf_model_origin(c, key), "default") != 0)
            return refuse(c, key,
                          "a model that tells classes of pictures (classes.labels) is an encoder "
                          "and its heads alone, so nothing reads it; leave it out",
                          err);
    }
    return 0;
}

static int check_read(const lf_model_config *c, lf_err *err)
{
    const lf_vision_config *v = &c->vision;
    if (c->classes.read == LF_CLASS_FIRST && !v->class_token)
        return refuse(c, "classes.read",
                      "this encoder has no class token (vision.class_token); say classes.read = "
                      "mean",
                      err);
    if ((c->classes.read == LF_CLASS_BOTH) && !v->distill_token)
        return refuse(c, "classes.read",
                      "both reads the distill token too, which this encoder has not "
                      "(vision.distill_token)",
                      err);
    if (c->classes.norm && c->classes.read == LF_CLASS_BOTH)
        return refuse(c, "classes.norm", "it is of one head, and classes.read = both has two", err);
    if (c->classes.norm_eps > 0 && c->classes.read == LF_CLASS_BOTH)
        return refuse(c, "classes.norm_eps", "two tokens have no norm behind them", err);
    if (v->taps.n || v->read_states.n || (v->read_layers && v->read_layers != v->layers))
        return refuse(c,
                      v->taps.n          ? "vision.taps"
                      : v->read_states.n ? "vision.read_states"
                                         : "vision.read_layers",
                      "classes are told behind all layers of the encoder", err);
    return 0;
}

int lf_classes_check(lf_model_config *c, lf_err *err)
{
    if (!c->vision.family)
        return refuse(c, "classes.labels", "it is of pictures, which needs vision.family", err);
    if (c->classes.labels < 2)
        return refuse(c, "classes.labels", "of one class there is nothing to tell", err);
    lf_vision_settle(&c->vision);
    int rc = check_keys(c, err);
    if (rc == 0)
        rc = check_read(c, err);
    return rc != 0 ? rc : lf_vision_check(&c->vision, err);
}

static int heads(const lf_model_config *c)
{
    return c->classes.read == LF_CLASS_BOTH ? 2 : 1;
}

int64_t lf_classes_param_count(const lf_model_config *c)
{
    return heads(c) * c->classes.labels * (c->vision.hidden + 1) +
           (c->classes.norm ? 2 * c->vision.hidden : 0) +
           (c->classes.norm_eps > 0 ? 2 * c->vision.hidden : 0);
}

/* ---- parameters ---- */

static const char *const head_names[] = {"classes", "classes.distill"};

/* Constants that normalise nothing until they are measured. */
static int declare_constants(const lf_model_config *c, lf_pstore *ps, lf_err *err)
{
    const int64_t C = c->vision.hidden;
    const struct lf_param_desc shift = {.name = LF_CLASSES_SHIFT,
                                        .ndim = 2,
                                        .dims = {1, C},
                                        .init = LF_INIT_ZERO,
                                        .frozen = true},
                               gain = {.name = LF_CLASSES_GAIN,
                                       .ndim = 1,
                                       .dims = {C},
                                       .init = LF_INIT_ONE,
                                       .frozen = true};
    int rc = lf_pstore_add(ps, &shift, err);
    if (rc >= 0)
        rc = lf_pstore_add(ps, &gain, err);
    return rc < 0 ? rc : 0;
}

static int declare_norm(const lf_model_config *c, lf_pstore *ps, lf_err *err)
{
    static const char *const names[] = {"classes.norm.weight", "classes.norm.bias"};
    int rc = 0;
    for (int k = 0; k < 2 && rc >= 0 && c->classes.norm_eps > 0; k++) {
        const struct lf_param_desc d = {.name = names[k],
                                        .ndim = 1,
                                        .dims = {c->vision.hidden},
                                        .init = k ? LF_INIT_ZERO : LF_INIT_ONE};
        rc = lf_pstore_add(ps, &d, err);
    }
    return rc;
}

int lf_classes_declare(const lf_model_config *c, lf_pstore *ps, lf_err *err)
{
    int rc = declare_norm(c, ps, err);
    for (int k = 0; k < 2 * heads(c) && rc >= 0; k++) {
        const bool bias = k % 2;
        char name[64];
        snprintf(name, sizeof name, "%s.%s", head_names[k / 2], bias ? "bias" : "weight");
        const struct lf_param_desc d = {.name = name,
                                        .ndim = bias ? 1 : 2,
                                        .dims = {c->classes.labels, bias ? 0 : c->vision.hidden},
                                        .init = bias ? LF_INIT_ZERO : LF_INIT_NORMAL,
                                        .init_std = (float)c->vision.init_std,
                                        .decay = !bias};
        rc = lf_pstore_add(ps, &d, err);
    }
    if (rc < 0)
        return rc;
    return c->classes.norm ? declare_constants(c, ps, err) : 0;
}

/* ---- the graph ---- */

struct lf_classes_rows lf_classes_bounds(const lf_model_config *c, int64_t patches, int64_t tiles)
{
    struct lf_classes_rows r = {.media = lf_sight_bounds(c, patches, tiles, 1)};
    r.pictures = r.media.vision.images - 1;
    return r;
}

/* Entries of a matrix that picks rows of pictures: one of each, or all. */
static int64_t entries(const lf_model_config *c, const struct lf_classes_rows *r)
{
    return c->classes.read == LF_CLASS_MEAN ? lf_vision_end_rows(&c->vision, &r->media.vision)
                                            : r->pictures;
}

static const char *const matrices[] = {"classes.read", "classes.second"}, ones[] = "classes.ones";

static struct lf_mix read_matrix(lf_graph *g, const lf_model_config *c,
                                 const struct lf_classes_rows *r, int k)
{
    return lf_mix_input(g, matrices[k], r->pictures,
                        lf_vision_end_rows(&c->vision, &r->media.vision), entries(c, r));
}

struct lf_mix lf_classes_read(lf_graph *g, const lf_model_config *c,
                              const struct lf_classes_rows *r)
{
    return read_matrix(g, c, r, 0);
}

static lf_val normalised(lf_graph *g, const struct lf_classes_rows *r, lf_val s, bool train)
{
    const struct lf_mix each = lf_mix_input(g, ones, r->pictures, 1, r->pictures);
    lf_pin_f32(g, s);
    if (!train)
        lf_output(g, s, "features");
    s = lf_add(g, s, lf_mix_rows(g, lf_param(g, LF_CLASSES_SHIFT), &each));
    return lf_col_gate(g, s, lf_param(g, LF_CLASSES_GAIN));
}

static void add_head(lf_graph *g, const lf_model_config *c, const struct lf_classes_rows *r,
                     lf_val h, int k, bool train)
{
    static const char *const out[] = {"score", "distilled"}, *const back[] = {"dscore",
                                                                              "ddistilled"};
    const struct lf_mix read = read_matrix(g, c, r, k);
    const struct lf_norm_opts norm = {.eps = (float)c->classes.norm_eps, .layer = true};
    lf_val w = lf_paramf(g, "%s.weight", head_names[k]), s = lf_mix_rows(g, h, &read);
    if (c->classes.norm_eps > 0)
        s = lf_norm(g, s, lf_param(g, "classes.norm.weight"), lf_param(g, "classes.norm.bias"),
                    &norm);
    if (c->classes.norm)
        s = normalised(g, r, s, train);
    lf_val z = lf_linear(g, s, w, lf_paramf(g, "%s.bias", head_names[k]));
    lf_pin_f32(g, z);
    if (train)
        lf_output_grad(g, z, out[k], back[k]);
    else
        lf_output(g, z, out[k]);
}

lf_graph *lf_classes_graph(const lf_decoder *d, lf_pstore *ps, const char *name,
                           const struct lf_classes_rows *r, bool train, lf_err *err)
{
    const lf_model_config *c = &d->c;
    if (!lf_model_classifies(c)) {
        lf_fail(err, LF_EINVAL,
                "the model tells no classes of pictures: say how many there are with "
                "classes.labels in [model], and give the encoder with vision_from");
        return NULL;
    }
    if (c->vision.grid && lf_vision_pictures(&c->vision, &r->media.vision) < 1) {
        lf_fail(err, LF_EINVAL,
                "there is room for %lld patches, and a picture has %lld x %lld (vision.grid): give "
                "a larger max_patches",
                (long long)r->media.vision.patches, (long long)c->vision.grid,
                (long long)c->vision.grid);
        return NULL;
    }
    lf_graph *g = lf_graph_create(ps, name, err);
    if (!g)
        return NULL;
    lf_val h = lf_vision_encode(d->vision, g, &r->media.vision, NULL, 0, NULL);
    for (int k = 0; k < heads(c); k++)
        add_head(g, c, r, h, k, train);
    if (!lf_graph_check(g, err))
        return g;
    lf_graph_destroy(g);
    return NULL;
}

/* ---- the rows that a picture is told by ---- */

struct lf_classes_sight {
    lf_model_config c;
    struct lf_classes_rows r;
    lf_sight *sight;
    struct lf_sight_matrix m[2], each;
    int32_t n;         /* pictures at hand */
    int32_t *identity; /* [rows + 1], with drop_path */
    float *path;       /* [rows] */
    char *block;
};

static size_t lay_out(lf_classes_sight *s, struct lf_sight_block *b)
{
    for (int k = 0; k < heads(&s->c); k++)
        lf_sight_carve_matrix(b, &s->m[k], matrices[k], s->r.pictures,
                              lf_vision_end_rows(&s->c.vision, &s->r.media.vision),
                              entries(&s->c, &s->r));
    if (s->c.classes.norm)
        lf_sight_carve_matrix(b, &s->each, ones, s->r.pictures, 1, s->r.pictures);
    const int64_t paths = s->r.media.vision.drop_path ? s->r.media.vision.rows + 1 : 0;
    s->identity = lf_sight_carve(b, paths, sizeof *s->identity);
    s->path = lf_sight_carve(b, paths, sizeof *s->path);
    return b->used;
}

size_t lf_classes_sight_bytes(const lf_model_config *c, const struct lf_classes_rows *r)
{
    lf_classes_sight s = {.c = *c, .r = *r};
    struct lf_sight_block b = {0};
    return lay_out(&s, &b) + sizeof s + lf_sight_bytes(c, &r->media, 1);
}

lf_classes_sight *lf_classes_sight_create(const lf_model_config *c, const struct lf_classes_rows *r,
                                          lf_err *err)
{
    lf_classes_sight *s = lf_calloc(1, sizeof *s, err);
    if (!s)
        return NULL;
    struct lf_sight_block b = {0};
    s->c = *c;
    s->r = *r;
    s->block = lf_calloc(lay_out(s, &b), 1, err);
    s->sight = lf_sight_create(c, &r->media, 1, err);
    if (!s->block || !s->sight) {
        lf_classes_sight_destroy(s);
        return NULL;
    }
    b = (struct lf_sight_block){.at = s->block};
    lay_out(s, &b);
    return s;
}

void lf_classes_sight_destroy(lf_classes_sight *s)
{
    if (!s)
        return;
    lf_sight_destroy(s->sight);
    free(s->block);
    free(s);
}

/* The rows of picture i in stage t: first ... end - 1. */
struct span {
    int32_t first, end;
};
static struct span rows_of(const lf_classes_sight *s, int64_t stage, int32_t i)
{
    const int64_t each = lf_vision_stage_of(&s->c.vision, stage).side;
    return each ? (struct span){(int32_t)(i * each * each), (int32_t)((i + 1) * each * each)}
                : (struct span){s->sight->images[i], s->sight->images[i + 1]};
}

/* The row of picture i in matrix k. */
static void add_picture(lf_classes_sight *s, int k, int32_t i)
{
    const struct span all = rows_of(s, lf_vision_stages(&s->c.vision) - 1, i);
    const int32_t first = all.first, end = all.end,
                  patches = first + (int32_t)lf_vision_tokens(&s->c.vision);
    if (s->c.classes.read == LF_CLASS_MEAN)
        for (int32_t r = patches; r < end; r++)
            lf_sight_entry(&s->m[k], r, 1.0 / (end - patches));
    else
        lf_sight_entry(&s->m[k], first + k, 1);
    lf_sight_end_row(&s->m[k]);
}

static void add_ones(lf_classes_sight *s, int32_t n)
{
    lf_sight_begin(&s->each);
    for (int32_t i = 0; i < n; i++) {
        lf_sight_entry(&s->each, 0, 1);
        lf_sight_end_row(&s->each);
    }
    lf_sight_finish(&s->each);
}

static int add_pictures(lf_classes_sight *s, int32_t n, int rc)
{
    s->n = n;
    for (int k = 0; k < heads(&s->c) && rc == 0; k++) {
        lf_sight_begin(&s->m[k]);
        for (int32_t i = 0; i < n; i++)
            add_picture(s, k, i);
        lf_sight_finish(&s->m[k]);
    }
    if (s->c.classes.norm && rc == 0)
        add_ones(s, n);
    return rc;
}

int lf_classes_sight_fill(lf_classes_sight *s, const struct lf_sight_batch *b, lf_err *err)
{
    return add_pictures(s, b->n_tiles, lf_sight_rows(s->sight, b, err));
}

int lf_classes_sight_fill_media(lf_classes_sight *s, const struct lf_sight_media *in, lf_err *err)
{
    return add_pictures(s, in->media->n_tiles, lf_sight_fill_encoder(s->sight, in, err));
}

int lf_classes_sight_write_pixels(const lf_classes_sight *s, lf_exec *ex, int chain, int slot,
                                  lf_err *err)
{
    return lf_sight_write_pixels(s->sight, ex, chain, slot, err);
}

const int32_t *lf_classes_sight_order(const lf_classes_sight *s)
{
    return lf_sight_patch_order(s->sight);
}

int lf_classes_sight_write(const lf_classes_sight *s, lf_exec *ex, int chain, int slot, lf_err *err)
{
    const struct lf_sight_at a = {ex, chain, slot};
    int rc = lf_sight_write_encoder(s->sight, ex, chain, slot, err);
    for (int k = 0; k < heads(&s->c) && rc == 0; k++)
        rc = lf_sight_write_matrix(&a, &s->m[k], err);
    return rc == 0 && s->c.classes.norm ? lf_sight_write_matrix(&a, &s->each, err) : rc;
}

/* One branch of layer l; rows behind the last picture are as they are. */
static int write_path(lf_classes_sight *s, const struct lf_sight_at *a, int64_t l, const char *name,
                      const float *keep, lf_err *err)
{
    const int64_t stage = lf_vision_stage_at(&s->c.vision, l),
                  R = lf_vision_stage_rows(&s->c.vision, &s->r.media.vision, stage);
    for (int64_t r = 0; r < R; r++)
        s->path[r] = 1;
    for (int32_t i = 0; i < s->n; i++) {
        const struct span p = rows_of(s, stage, i);
        for (int32_t r = p.first; r < p.end; r++)
            s->path[r] = keep[i];
    }
    return lf_exec_write(a->ex, a->chain, a->slot, name, s->path, (size_t)R * sizeof *s->path, err);
}

int lf_classes_sight_write_paths(lf_classes_sight *s, lf_exec *ex, int chain, int slot,
                                 const float *keep, lf_err *err)
{
    static const char *const branch[] = {"attn", "mlp"};
    const struct lf_sight_at a = {ex, chain, slot};
    const size_t R = (size_t)s->r.media.vision.rows;
    const bool stages = s->c.vision.stage_layers.n > 0; /* theirs are constants */
    for (size_t r = 0; r <= R; r++)
        s->identity[r] = (int32_t)r;
    int rc =
        stages ? 0
               : lf_exec_write(ex, chain, slot, "vision.path.start", s->identity, (R + 1) * 4, err);
    if (rc == 0 && !stages)
        rc = lf_exec_write(ex, chain, slot, "vision.path.index", s->identity, R * 4, err);
    for (int64_t k = 0; k < 2 * s->c.vision.layers && rc == 0; k++) {
        char name[64];
        if (k % 2 == 0 && s->c.vision.conv_taps) /* there is one branch */
            continue;
        snprintf(name, sizeof name, "vision.path.%lld.%s", (long long)(k / 2), branch[k % 2]);
        rc = write_path(s, &a, k / 2, name, keep + k * s->r.pictures, err);
    }
    return rc;
}
