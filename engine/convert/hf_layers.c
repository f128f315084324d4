/* SPDX-License-Identifier: Apache-2.0
 *
 * Which layers have a window: layer_types, or the keys that say it without a list. Which have no
 * experts. */
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

/* The marked layers as a list. */
static int set_list(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
                    const bool *marked, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    for (int64_t l = 0; l < c->layers; l++)
        if (marked[l])
            lf_buf_addf(&b, "%s%lld", b.len ? "," : "", (long long)l);
    int rc = lf_buf_check(&b, err);
    if (rc == 0)
        rc = lf_hf_set(r, c, theirs, ours, b.data, err);
    lf_buf_fini(&b);
    return rc;
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
    return set_list(r, c, "layer_types", "window_layers", slides, err);
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
    if (rc == 0 && any && window < 0)
        rc = lf_fail(err, LF_EFORMAT,
                     "%s: sliding_window says that there is none, but layers have one", r->path);
    if (rc == 0 && any)
        rc = lf_hf_set_number(r, c, "sliding_window", "sliding_window", (double)window, err);
    if (rc == 0 && any)
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

int lf_hf_read_mlp_layers(lf_hf_reader *r, lf_model_config *c, lf_err *err)
{
    bool *plain = lf_calloc((size_t)c->layers, sizeof *plain, err);
    int64_t first = 0, n = 0;
    int rc = plain ? mark_mlp(r, c, lf_hf_take(r, "mlp_only_layers"), plain, err) : LF_ENOMEM;
    for (int64_t l = 0; l < c->layers && rc == 0; l++) {
        n += plain[l];
        first += plain[l] && first == l;
    }
    if (rc == 0 && n == first)
        rc = lf_hf_set_number(r, c, "mlp_only_layers", "dense_layers", (double)first, err);
    else if (rc == 0)
        rc = set_list(r, c, "mlp_only_layers", "mlp_layers", plain, err);
    free(plain);
    return rc;
}

int lf_hf_write_mlp_layers(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *list = json_array();
    int bad = !list;
    for (int64_t l = 0; l < c->layers && !bad; l++)
        if (l < c->dense_layers || lf_model_list_has(&c->mlp_layers, l))
            bad = json_array_append_new(list, json_integer(l));
    bad = bad || json_object_set(o, "mlp_only_layers", list);
    json_decref(list);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}
