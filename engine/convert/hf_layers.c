/* SPDX-License-Identifier: Apache-2.0
 *
 * Which layers have a window: layer_types, or the keys that say it without a list. Which are other
 * mixers. Which have no experts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/convert/hf.h"

int lf_hf_get_window(lf_hf_reader *r, int64_t def, int64_t *out, lf_err *err)
{
    *out = json_object_get(r->o, "sliding_window") ? -1 : def;
    int rc = lf_hf_get_i64(r, "sliding_window", out, err);
    if (rc == 0 && *out < 0 && json_is_number(json_object_get(r->o, "sliding_window")))
        rc = lf_fail(err, LF_EFORMAT, "%s: sliding_window = %lld", r->path, (long long)*out);
    return rc;
}

int lf_hf_get_period(lf_hf_reader *r, const char *key, int64_t *out, lf_err *err)
{
    int rc = lf_hf_get_i64(r, key, out, err);
    if (rc == 0 && *out < 1)
        rc = lf_fail(err, LF_EFORMAT, "%s: %s = %lld: every how many layers? It is 1 or more",
                     r->path, key, (long long)*out);
    return rc;
}

static bool slides_by(const struct lf_hf_slide *by, int64_t l)
{
    const int64_t behind = by->exception == LF_HF_LAST    ? l + 1
                           : by->exception == LF_HF_FIRST ? l
                                                          : l + by->period - 1;
    return l >= by->from && (by->below == 0 || l < by->below) &&
           (by->period == 0 || behind % by->period);
}

/* layer_types into slides[layers]. */
static int read_types(const lf_hf_reader *r, const lf_model_config *c, json_t *list, bool *slides,
                      lf_err *err)
{
    if (!json_is_array(list) || (int64_t)json_array_size(list) != c->layers)
        return lf_fail(err, LF_EFORMAT, "%s: layer_types does not list %lld layers", r->path,
                       (long long)c->layers);
    for (int64_t l = 0; l < c->layers; l++) {
        const char *t = json_string_value(json_array_get(list, (size_t)l));
        slides[l] = t && strcmp(t, "sliding_attention") == 0;
        if (!slides[l] && !(t && strcmp(t, "full_attention") == 0))
            return lf_fail(err, LF_ENOTSUP, "%s: layer_types: '%.40s' is not supported", r->path,
                           t ? t : "?");
    }
    return 0;
}

int lf_hf_set_letters(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
                      const char *letters, lf_err *err)
{
    struct lf_model_pattern p = {""};
    int rc = lf_model_pattern_of(&p, letters, c->layers, err);
    return rc != 0 ? rc : lf_hf_set(r, c, theirs, ours, p.text, err);
}

/* layers[l] -> the letters of a pattern of [model]. */
static int set_layers(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
                      const bool *marked, const char letters[2], lf_err *err)
{
    char *text = lf_calloc((size_t)c->layers + 1, 1, err);
    int rc = text ? 0 : LF_ENOMEM;
    for (int64_t l = 0; l < c->layers && rc == 0; l++)
        text[l] = letters[marked[l]];
    if (rc == 0)
        rc = lf_hf_set_letters(r, c, theirs, ours, text, err);
    free(text);
    return rc;
}

/* A list that the class does not read says what its other keys say. */
static int check_types(const lf_hf_reader *r, const lf_model_config *c, const bool *slides,
                       const bool *listed, lf_err *err)
{
    for (int64_t l = 0; l < c->layers; l++)
        if (listed[l] != slides[l])
            return lf_fail(err, LF_ENOTSUP,
                           "%s: layer_types says that layer %lld has %s window; the class of this "
                           "family does not "
                           "read it, and the other keys say otherwise",
                           r->path, (long long)l, listed[l] ? "a" : "no");
    return 0;
}

/* slides[2 layers]: the second half is room. */
static int find_layers(lf_hf_reader *r, lf_model_config *c, int64_t window, bool null,
                       const struct lf_hf_slide *by, bool *slides, lf_err *err)
{
    json_t *list = lf_hf_take(r, "layer_types");
    bool *listed = slides + c->layers;
    for (int64_t l = 0; l < c->layers; l++)
        slides[l] = (window >= 0 || !null) && slides_by(by, l);
    int rc = list ? read_types(r, c, list, listed, err) : 0;
    if (rc == 0 && list && by->only)
        return check_types(r, c, slides, listed, err);
    if (rc == 0 && list)
        memcpy(slides, listed, (size_t)c->layers * sizeof *slides);
    return rc;
}

int lf_hf_read_layers(lf_hf_reader *r, lf_model_config *c, int64_t window, bool null,
                      const struct lf_hf_slide *by, lf_err *err)
{
    bool *slides = lf_calloc(2 * (size_t)c->layers, sizeof *slides, err), any = false;
    int rc = slides ? find_layers(r, c, window, null, by, slides, err) : LF_ENOMEM;
    for (int64_t l = 0; l < c->layers && rc == 0; l++)
        any = any || slides[l];
    c->sliding_window = 0;
    c->layer_mixers.text[0] = 0;
    if (rc == 0 && any && window < 0)
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: sliding_window says that there is none, but layers have one", r->path);
    if (rc == 0 && any)
        rc = lf_hf_set_number(r, c, "sliding_window", "sliding_window", (double)window, err);
    if (rc == 0 && any)
        rc = set_layers(r, c, "layer_types", "layer_mixers", slides, "fw", err);
    free(slides);
    return rc;
}

int lf_hf_write_layers(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *list = json_array();
    int bad = !list;
    for (int64_t l = 0; l < c->layers && !bad; l++)
        bad = json_array_append_new(
            list,
            json_string(lf_model_layer_window(c, l) > 0 ? "sliding_attention" : "full_attention"));
    bad = bad || json_object_set(o, "layer_types", list);
    json_decref(list);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* ---- mixers by name ---- */

/* The letter of a name of layer_types; 0: it is none of them. */
static char letter_of(const struct lf_hf_mixer *mixers, const char *name)
{
    while (mixers->name && !(name && strcmp(mixers->name, name) == 0))
        mixers++;
    return mixers->letter;
}

static const char *name_of(const struct lf_hf_mixer *mixers, char letter)
{
    while (mixers->name && mixers->letter != letter)
        mixers++;
    return mixers->name;
}

int lf_hf_read_mixers(lf_hf_reader *r, lf_model_config *c, const struct lf_hf_mixer *mixers,
                      const char *def, lf_err *err)
{
    json_t *list = lf_hf_take(r, "layer_types");
    if (!list)
        return lf_hf_set(r, c, "layer_types", "layer_mixers", def, err);
    if (!json_is_array(list) || (int64_t)json_array_size(list) != c->layers)
        return lf_fail(err, LF_EFORMAT, "%s: layer_types does not list %lld layers", r->path,
                       (long long)c->layers);
    char *text = lf_calloc((size_t)c->layers + 1, 1, err);
    int rc = text ? 0 : LF_ENOMEM;
    for (int64_t l = 0; l < c->layers && rc == 0; l++) {
        const char *name = json_string_value(json_array_get(list, (size_t)l));
        text[l] = letter_of(mixers, name);
        if (!text[l])
            rc = lf_fail(err, LF_ENOTSUP, "%s: layer_types: '%.40s' is not supported", r->path,
                         name ? name : "?");
    }
    if (rc == 0)
        rc = lf_hf_set_letters(r, c, "layer_types", "layer_mixers", text, err);
    free(text);
    return rc;
}

int lf_hf_read_interval(lf_hf_reader *r, lf_model_config *c, const struct lf_hf_mixer *mixers,
                        const char *key, int64_t n, lf_err *err)
{
    char def[LF_MODEL_PATTERN];
    int rc = lf_hf_get_period(r, key, &n, err);
    if (rc == 0 && n >= (int64_t)sizeof def - 2)
        rc = lf_fail(err, LF_ENOTSUP, "%s: %s = %lld", r->path, key, (long long)n);
    if (rc != 0)
        return rc;
    memset(def, mixers[0].letter, (size_t)n);
    snprintf(def + n - 1, sizeof def - (size_t)n, "%c*", mixers[1].letter);
    return lf_hf_read_mixers(r, c, mixers, def, err);
}

int lf_hf_write_mixers(const lf_model_config *c, json_t *o, const struct lf_hf_mixer *mixers,
                       lf_err *err)
{
    json_t *list = json_array();
    int bad = !list;
    for (int64_t l = 0; l < c->layers && !bad; l++) {
        const char *name = name_of(mixers, lf_model_layer_mixer(c, l));
        if (!name) {
            json_decref(list);
            return lf_fail(err, LF_EINVAL,
                           "layer_mixers = %s: models of this family have no layers with %c",
                           c->layer_mixers.text, lf_model_layer_mixer(c, l));
        }
        bad = json_array_append_new(list, json_string(name));
    }
    bad = bad || json_object_set(o, "layer_types", list);
    json_decref(list);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* ---- layers without experts ---- */

static int mark_mlp(const lf_hf_reader *r, const lf_model_config *c, json_t *list, bool *plain,
                    lf_err *err)
{
    if (list && !json_is_array(list))
        return lf_fail(err, LF_EFORMAT, "%s: mlp_only_layers is not a list", r->path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *v = json_array_get(list, i);
        const json_int_t l = json_integer_value(v);
        if (!json_is_integer(v))
            return lf_fail(err, LF_EFORMAT, "%s: mlp_only_layers holds what is no whole number",
                           r->path);
        if (l >= 0 && l < c->layers) /* there is none behind the last */
            plain[l] = true;
    }
    return 0;
}

int lf_hf_read_mlp_layers(lf_hf_reader *r, lf_model_config *c, int64_t first, lf_err *err)
{
    int64_t step = 1;
    json_t *list = lf_hf_take(r, "mlp_only_layers");
    bool *plain = lf_calloc((size_t)c->layers, sizeof *plain, err);
    int rc = plain ? mark_mlp(r, c, list, plain, err) : LF_ENOMEM;
    for (int64_t l = 0; l < c->layers && l < first && rc == 0 && !list; l++)
        plain[l] = true;
    if (rc == 0)
        rc = lf_hf_get_period(r, "decoder_sparse_step", &step, err);
    for (int64_t l = 0; l < c->layers && rc == 0; l++)
        plain[l] = plain[l] || (l + 1) % step;
    if (rc == 0)
        rc = set_layers(r, c, "mlp_only_layers", "layer_mlps", plain, "md", err);
    free(plain);
    return rc;
}

/* Layers without experts that a step does not leave out; -1: it leaves out one that has some. */
static int64_t exceptions(const lf_model_config *c, int64_t step)
{
    int64_t n = 0;
    for (int64_t l = 0; l < c->layers; l++) {
        const bool moe = lf_model_layer_moe(c, l), met = (l + 1) % step == 0;
        if (moe && !met)
            return -1;
        n += met && !moe;
    }
    return n;
}

/* The step that leaves the fewest to list. */
static int64_t sparse_step(const lf_model_config *c)
{
    int64_t best = 1;
    for (int64_t step = 2; step <= c->layers; step++)
        if (exceptions(c, step) >= 0 && exceptions(c, step) < exceptions(c, best))
            best = step;
    return best;
}

int lf_hf_write_mlp_layers(const lf_model_config *c, json_t *o, lf_err *err)
{
    const int64_t step = sparse_step(c);
    json_t *list = json_array();
    int bad = !list || json_object_set_new(o, "decoder_sparse_step", json_integer(step));
    for (int64_t l = step - 1; l < c->layers && !bad; l += step)
        if (!lf_model_layer_moe(c, l))
            bad = json_array_append_new(list, json_integer(l));
    bad = bad || json_object_set(o, "mlp_only_layers", list);
    json_decref(list);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

int lf_hf_read_dense_layers(lf_hf_reader *r, lf_model_config *c, const char *key, int64_t def,
                            lf_err *err)
{
    char text[64];
    int64_t n = def;
    int rc = lf_hf_get_i64(r, key, &n, err);
    if (rc == 0 && (n < 0 || n > c->layers))
        rc = lf_fail(err, LF_EFORMAT, "%s: %s = %lld of %lld layers", r->path, key, (long long)n,
                     (long long)c->layers);
    snprintf(text, sizeof text, "d*%lld,m*", (long long)n);
    if (rc == 0)
        rc = lf_hf_set(r, c, key, "layer_mlps", n == c->layers ? "d*" : n ? text : "m*", err);
    return rc;
}

int lf_hf_write_dense_layers(const lf_model_config *c, json_t *o, const char *key, lf_err *err)
{
    int64_t n = 0;
    while (n < c->layers && !lf_model_layer_moe(c, n))
        n++;
    for (int64_t l = n; l < c->layers; l++)
        if (!lf_model_layer_moe(c, l))
            return lf_fail(err, LF_EINVAL,
                           "layer_mlps = %s: models of this family have experts from some layer to "
                           "the last",
                           c->layer_mlps.text);
    return json_object_set_new(o, key, json_integer(n)) ? lf_fail(err, LF_ENOMEM, "out of memory")
                                                        : 0;
}

static int mark_types(const lf_hf_reader *r, const lf_model_config *c, json_t *list, bool *plain,
                      lf_err *err)
{
    if (!json_is_array(list) || (int64_t)json_array_size(list) != c->layers)
        return lf_fail(err, LF_EFORMAT, "%s: mlp_layer_types does not list %lld layers", r->path,
                       (long long)c->layers);
    for (int64_t l = 0; l < c->layers; l++) {
        const char *t = json_string_value(json_array_get(list, (size_t)l));
        plain[l] = t && strcmp(t, "dense") == 0;
        if (!plain[l] && !(t && strcmp(t, "sparse") == 0))
            return lf_fail(err, LF_EFORMAT,
                           "%s: mlp_layer_types: '%.40s' is neither dense nor sparse", r->path,
                           t ? t : "?");
    }
    return 0;
}

int lf_hf_read_mlp_types(lf_hf_reader *r, lf_model_config *c, int64_t dense, lf_err *err)
{
    json_t *list = lf_hf_take(r, "mlp_layer_types");
    bool *plain = lf_calloc((size_t)c->layers, sizeof *plain, err);
    for (int64_t l = 0; plain && l < c->layers; l++)
        plain[l] = l < dense;
    int rc = !plain ? LF_ENOMEM : list ? mark_types(r, c, list, plain, err) : 0;
    if (rc == 0)
        rc = set_layers(r, c, "mlp_layer_types", "layer_mlps", plain, "md", err);
    free(plain);
    return rc;
}

int lf_hf_write_mlp_types(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *list = json_array();
    int bad = !list || json_object_set(o, "mlp_layer_types", list);
    for (int64_t l = 0; l < c->layers && !bad; l++)
        bad =
            json_array_append_new(list, json_string(lf_model_layer_moe(c, l) ? "sparse" : "dense"));
    json_decref(list);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

int64_t lf_hf_full_from(const lf_model_config *c)
{
    int64_t n = 0;
    while (n < c->layers && !lf_model_layer_window(c, n))
        n++;
    for (int64_t l = n; l < c->layers; l++)
        if (!lf_model_layer_window(c, l))
            return 0;
    return n;
}

/* Does every n-th layer attend in full, and no other? */
static bool full_every(const lf_model_config *c, int64_t n)
{
    for (int64_t l = 0; l < c->layers; l++)
        if ((lf_model_layer_window(c, l) > 0) != ((l + 1) % n != 0))
            return false;
    return true;
}

int64_t lf_hf_full_period(const lf_model_config *c, int64_t first)
{
    if (full_every(c, first))
        return first;
    for (int64_t n = 2; n <= c->layers; n++)
        if (full_every(c, n))
            return n;
    return 0;
}
