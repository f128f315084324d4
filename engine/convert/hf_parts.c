/* SPDX-License-Identifier: Apache-2.0
 *
 * What the config.json of many families share: rotary positions, activations, windows by layer. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/hf.h"

static const struct {
    const char *theirs, *ours;
} acts[] = {
    /* the first of each of ours is written */
    {"gelu", "gelu"},           {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"},
    {"gelu_fast", "gelu_tanh"}, {"gelu_python", "gelu"},   {"quick_gelu", "gelu_quick"},
    {"silu", "silu"},           {"swish", "silu"},         {"relu", "relu"},
};

const char *lf_hf_act_from(const char *theirs)
{
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (strcmp(acts[i].theirs, theirs) == 0)
            return acts[i].ours;
    return NULL;
}

const char *lf_hf_act_to(const char *ours)
{
    for (size_t i = 0; i < sizeof acts / sizeof acts[0]; i++)
        if (strcmp(acts[i].ours, ours) == 0)
            return acts[i].theirs;
    return NULL;
}

/* ---- rotary positions ---- */

/* Members of rope_scaling by type: theirs, ours, what absence means (NAN: must be there). */
struct rope_member {
    const char *theirs, *ours;
    double def;
};
static const struct rope_member linear[] = {{"factor", "rope_factor", NAN}, {0}};
static const struct rope_member dynamic[] = {{"factor", "rope_factor", NAN}, {0}};
static const struct rope_member llama3[] = {{"factor", "rope_factor", NAN},
                                            {"low_freq_factor", "rope_low_freq_factor", NAN},
                                            {"high_freq_factor", "rope_high_freq_factor", NAN},
                                            {"original_max_position_embeddings", "rope_original_positions", NAN},
                                            {0}};
static const struct rope_member yarn[] = {{"factor", "rope_factor", NAN},
                                          {"original_max_position_embeddings", "rope_original_positions", 0},
                                          {"beta_fast", "rope_beta_fast", 32},
                                          {"beta_slow", "rope_beta_slow", 1},
                                          {"attention_factor", "rope_attn_factor", 0},
                                          {0}};
static const struct rope_member longrope[] = {{"short_factor", "rope_short_factors", NAN},
                                              {"long_factor", "rope_long_factors", NAN},
                                              {"attention_factor", "rope_attn_factor", 0},
                                              {"original_max_position_embeddings", "rope_original_positions", 0},
                                              {0}};
static const struct {
    const char *theirs, *ours;
    const struct rope_member *members;
} scalings[] = {{"linear", "linear", linear}, {"dynamic", "dynamic", dynamic},    {"llama3", "llama3", llama3},
                {"yarn", "yarn", yarn},       {"longrope", "longrope", longrope}, {"su", "longrope", longrope}};

/* [1.0, 1.5] -> "1.0,1.5" */
static int read_list(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours, json_t *list,
                     lf_err *err)
{
    lf_buf b;
    int rc = 0;
    lf_buf_init(&b);
    for (size_t i = 0; i < json_array_size(list) && !rc; i++) {
        if (!json_is_number(json_array_get(list, i)))
            rc = lf_fail(err, LF_EFORMAT, "%s: %s holds what is no number", r->path, theirs);
        lf_buf_addf(&b, "%s%.17g", i ? "," : "", json_number_value(json_array_get(list, i)));
    }
    if (!rc)
        rc = lf_buf_check(&b, err);
    if (!rc)
        rc = lf_hf_set(r, c, theirs, ours, b.data, err);
    lf_buf_fini(&b);
    return rc;
}

static json_t *list_of(const char *text)
{
    json_t *list = json_array();
    for (const char *p = text; list && p && *p;) {
        char item[40];
        double x = 0;
        size_t n = strcspn(p, ",");
        snprintf(item, sizeof item, "%.*s", (int)n, p);
        if (lf_parse_f64(&x, item, NULL) || json_array_append_new(list, json_real(x)))
            break;
        p += n + (p[n] == ',');
    }
    return list;
}

/* Some files say it outside of rope_scaling. */
static double original_positions(const lf_hf_reader *r, const lf_model_config *c)
{
    json_t *v = json_object_get(r->o, "original_max_position_embeddings");
    return json_is_number(v) ? json_number_value(v) : (double)c->max_positions;
}

static int read_member(lf_hf_reader *r, lf_model_config *c, json_t *s, const struct rope_member *m, lf_err *err)
{
    double v = m->def;
    json_t *have = json_object_get(s, m->theirs);
    if (json_is_array(have)) {
        int rc = read_list(r, c, m->theirs, m->ours, have, err);
        json_object_del(s, m->theirs);
        return rc;
    }
    if (have && !json_is_null(have) && !json_is_number(have))
        return lf_fail(err, LF_EFORMAT, "%s: %s of rope_scaling is not a number", r->path, m->theirs);
    if (json_is_number(have))
        v = json_number_value(have);
    else if (isnan(v))
        return lf_fail(err, LF_EFORMAT, "%s: rope_scaling has no %s", r->path, m->theirs);
    else if (strcmp(m->theirs, "original_max_position_embeddings") == 0)
        v = original_positions(r, c);
    json_object_del(s, m->theirs);
    return v > 0 || have ? lf_hf_set_number(r, c, m->theirs, m->ours, v, err) : 0;
}

static int read_scaling(lf_hf_reader *r, lf_model_config *c, json_t *s, const char *type, lf_err *err)
{
    for (size_t i = 0; i < sizeof scalings / sizeof scalings[0]; i++) {
        if (strcmp(scalings[i].theirs, type) != 0)
            continue;
        int rc = lf_hf_set(r, c, "rope_scaling", "rope_scaling", scalings[i].ours, err);
        for (const struct rope_member *m = scalings[i].members; m->theirs && !rc; m++)
            rc = read_member(r, c, s, m, err);
        if (!rc && scalings[i].members == longrope &&
            c->rope_original_positions > 0) { /* the amplitude follows from the lengths */
            json_object_del(s, "factor");
            rc = lf_hf_set_number(r, c, "rope_scaling", "rope_factor",
                                  (double)c->max_positions / (double)c->rope_original_positions, err);
        }
        return rc;
    }
    return lf_fail(err, LF_ENOTSUP, "%s: rope_scaling of type '%.40s' is not supported", r->path, type);
}

/* One object of parameters: {"rope_type", "rope_theta", "partial_rotary_factor", members of the type}. */
static int read_rope_object(lf_hf_reader *r, lf_model_config *c, json_t *given, lf_err *err)
{
    json_t *s = json_copy(given);
    int rc = s ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    if (!rc && !json_is_object(s))
        rc = lf_fail(err, LF_EFORMAT, "%s: rope_scaling is not an object", r->path);
    const char *type = rc ? NULL : json_string_value(json_object_get(s, "rope_type"));
    if (!rc && !type)
        type = json_string_value(json_object_get(s, "type"));
    json_t *theta = rc ? NULL : json_object_get(s, "rope_theta"),
           *part = rc ? NULL : json_object_get(s, "partial_rotary_factor");
    if (json_is_number(theta))
        rc = lf_hf_set_number(r, c, "rope_theta", "rope_theta", json_number_value(theta), err);
    if (!rc && json_is_number(part))
        rc = lf_hf_set_number(r, c, "partial_rotary_factor", "rope_fraction", json_number_value(part), err);
    if (!rc && type && strcmp(type, "default") != 0)
        rc = read_scaling(r, c, s, type, err);
    static const char *const known[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
    for (size_t i = 0; !rc && i < sizeof known / sizeof known[0]; i++)
        json_object_del(s, known[i]);
    const char *key;
    json_t *v;
    json_object_foreach(s, key, v) if (!rc && !json_is_null(v)) rc =
        lf_fail(err, LF_ENOTSUP, "%s: '%.60s' of rope_scaling is not known", r->path, key);
    json_decref(s);
    return rc;
}

int lf_hf_read_rope(lf_hf_reader *r, lf_model_config *c, double theta, lf_err *err)
{
    double part = -1;
    int rc = lf_hf_get_f64(r, "rope_theta", &theta, err);
    if (!rc)
        rc = lf_hf_set_number(r, c, "rope_theta", "rope_theta", theta, err);
    if (!rc)
        rc = lf_hf_get_f64(r, "partial_rotary_factor", &part, err);
    if (!rc && part >= 0)
        rc = lf_hf_set_number(r, c, "partial_rotary_factor", "rope_fraction", part, err);
    json_t *a = rc ? NULL : lf_hf_take(r, "rope_scaling"), *b = rc ? NULL : lf_hf_take(r, "rope_parameters");
    lf_hf_take(r, "original_max_position_embeddings"); /* read with the scaling that needs it */
    if (json_object_get(b, "full_attention"))          /* one object per kind of layer */
        b = json_object_get(b, "full_attention");
    if (!rc && a && b && !json_equal(a, b))
        rc = lf_fail(err, LF_EFORMAT, "%s: rope_scaling and rope_parameters say different things", r->path);
    if (!rc && (b || a))
        rc = read_rope_object(r, c, b ? b : a, err);
    if (!rc && c->rope_scaling == LF_ROPE_DYNAMIC) /* counts from the longest sequence of training */
        rc = lf_hf_set_number(r, c, "rope_scaling", "rope_original_positions", (double)c->max_positions, err);
    return rc;
}

int lf_hf_write_partial_rope(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_rope(c, o, err);
    if (!rc && json_object_set_new(o, "partial_rotary_factor", json_real(c->rope_fraction)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

int lf_hf_write_rope(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *ours = lf_model_config_to_json(c, err), *s = json_object();
    int rc = ours && s ? 0 : LF_ENOMEM;
    const char *kind = rc ? NULL : json_string_value(json_object_get(ours, "rope_scaling"));
    if (!rc && json_object_set_new(o, "rope_theta", json_real(c->rope_theta)))
        rc = LF_ENOMEM;
    for (size_t i = 0; !rc && kind && i < sizeof scalings / sizeof scalings[0]; i++) {
        if (strcmp(scalings[i].ours, kind) != 0)
            continue;
        rc = json_object_set_new(s, "rope_type", json_string(scalings[i].theirs));
        for (const struct rope_member *m = scalings[i].members; m->theirs && !rc; m++) {
            double x = 0;
            int64_t n = 0;
            const char *text = json_string_value(json_object_get(ours, m->ours));
            if (strcmp(m->ours, "rope_short_factors") == 0 || strcmp(m->ours, "rope_long_factors") == 0)
                rc = json_object_set_new(s, m->theirs, list_of(text));
            else if (text && lf_parse_i64(&n, text, NULL) == 0 && strcmp(m->ours, "rope_original_positions") == 0)
                rc = json_object_set_new(s, m->theirs, json_integer(n));
            else if (text && lf_parse_f64(&x, text, NULL) == 0 && (x > 0 || isnan(m->def)))
                rc = json_object_set_new(s, m->theirs, json_real(x));
        }
        if (!rc)
            rc = json_object_set(o, "rope_scaling", s);
        break; /* the first of two names */
    }
    json_decref(ours);
    json_decref(s);
    return rc ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

/* ---- windows by layer ---- */

int lf_hf_write_layer_types(const lf_model_config *c, json_t *o, lf_err *err)
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

int lf_hf_check_layer_types(lf_hf_reader *r, const lf_model_config *c, lf_err *err)
{
    json_t *list = lf_hf_take(r, "layer_types");
    if (!list)
        return 0;
    if (!json_is_array(list) || (int64_t)json_array_size(list) != c->layers)
        return lf_fail(err, LF_EFORMAT, "%s: layer_types does not list %lld layers", r->path, (long long)c->layers);
    for (int64_t l = 0; l < c->layers; l++) {
        const char *t = json_string_value(json_array_get(list, (size_t)l));
        bool full = t && strcmp(t, "full_attention") == 0, sliding = t && strcmp(t, "sliding_attention") == 0;
        if (!full && !sliding)
            return lf_fail(err, LF_ENOTSUP, "%s: layer_types: '%.40s' is not supported", r->path, t ? t : "?");
        if (sliding != (lf_model_layer_window(c, l) > 0))
            return lf_fail(err, LF_ENOTSUP,
                           "%s: layer_types says that layer %lld has %s window, the other keys say otherwise", r->path,
                           (long long)l, sliding ? "a" : "no");
    }
    return 0;
}
