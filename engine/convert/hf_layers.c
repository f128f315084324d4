/* SPDX-License-Identifier: Apache-2.0
 *
 * Which layers have a window: layer_types, or the keys that say it without a list. */
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/convert/hf.h"

int lf_hf_get_window(lf_hf_reader *r, int64_t def, int64_t *out, lf_err *err)
{
    *out = json_object_get(r->o, "sliding_window") ? 0 : def;
    return lf_hf_get_i64(r, "sliding_window", out, err);
}

static bool slides_by(const struct lf_hf_slide *by, int64_t l)
{
    return l >= by->from && (by->below == 0 || l < by->below) &&
           (by->period == 0 || (l + 1) % by->period);
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

/* The same layers as `by` says? */
static bool same(const bool *slides, int64_t layers, const struct lf_hf_slide *by)
{
    for (int64_t l = 0; l < layers; l++)
        if (slides[l] != slides_by(by, l))
            return false;
    return true;
}

/* The shortest of the ways in which [model] says it. by: the way of the family, taken first. */
static int set_layers(lf_hf_reader *r, lf_model_config *c, const bool *slides,
                      const struct lf_hf_slide *by, lf_err *err)
{
    struct lf_hf_slide from = {0}, every = {.period = by->period};
    while (from.from < c->layers && !slides[from.from])
        from.from++;
    if (by->period && same(slides, c->layers, &every))
        return lf_hf_set_number(r, c, "layer_types", "window_pattern", (double)every.period, err);
    if (same(slides, c->layers, &from))
        return lf_hf_set_number(r, c, "layer_types", "max_window_layers", (double)from.from, err);
    for (every.period = 2; every.period <= c->layers; every.period++)
        if (same(slides, c->layers, &every))
            return lf_hf_set_number(r, c, "layer_types", "window_pattern", (double)every.period,
                                    err);
    return lf_fail(err, LF_ENOTSUP, "%s: layer_types has windows in no order that is supported",
                   r->path);
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
        slides[l] = (window || !null) && slides_by(by, l);
    int rc = list ? read_types(r, c, list, listed, err) : 0;
    if (!rc && list && by->only)
        return check_types(r, c, slides, listed, err);
    if (!rc && list)
        memcpy(slides, listed, (size_t)c->layers * sizeof *slides);
    return rc;
}

int lf_hf_read_layers(lf_hf_reader *r, lf_model_config *c, int64_t window, bool null,
                      const struct lf_hf_slide *by, lf_err *err)
{
    bool *slides = lf_calloc(2 * (size_t)c->layers, sizeof *slides, err), any = false;
    int rc = slides ? find_layers(r, c, window, null, by, slides, err) : LF_ENOMEM;
    for (int64_t l = 0; l < c->layers && !rc; l++)
        any = any || slides[l];
    c->sliding_window = 0;
    if (!rc && any && !window && !json_is_number(json_object_get(r->o, "sliding_window")))
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: sliding_window says that there is none, but layers have one", r->path);
    if (!rc && any)
        rc = lf_hf_set_number(r, c, "sliding_window", "sliding_window", (double)window, err);
    if (!rc && any)
        rc = set_layers(r, c, slides, by, err);
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
