/* SPDX-License-Identifier: Apache-2.0
 *
 * What the config.json of many families share: rotary positions, activations. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/base/json.h"
#include "engine/convert/hf.h"

static const struct {
    const char *theirs, *ours;
} acts[] = {
    /* the first of each of ours is written */
    {"gelu", "gelu"},
    {"gelu_new", "gelu_tanh"},
    {"gelu_pytorch_tanh", "gelu_tanh"},
    {"gelu_fast", "gelu_tanh"},
    {"gelu_python", "gelu"},
    {"quick_gelu", "gelu_quick"},
    {"silu", "silu"},
    {"swish", "silu"},
    {"relu", "relu"},
    {"relu2", "relu2"},
    {"xielu", "xielu"},
    {"gelu_accurate", "gelu_tanh"},
    {"gelu_python_tanh", "gelu_tanh"},
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
static const struct rope_member llama3[] = {
    {"factor", "rope_factor", NAN},
    {"low_freq_factor", "rope_low_freq_factor", NAN},
    {"high_freq_factor", "rope_high_freq_factor", NAN},
    {"original_max_position_embeddings", "rope_original_positions", 0},
    {0}};
static const struct rope_member yarn[] = {
    {"factor", "rope_factor", 0},
    {"original_max_position_embeddings", "rope_original_positions", 0},
    {"beta_fast", "rope_beta_fast", 32},
    {"beta_slow", "rope_beta_slow", 1},
    {"attention_factor", "rope_attn_factor", 0},
    {0}};
static const struct rope_member longrope[] = {
    {"factor", "rope_factor", 0},
    {"short_factor", "rope_short_factors", NAN},
    {"long_factor", "rope_long_factors", NAN},
    {"attention_factor", "rope_attn_factor", 0},
    {"original_max_position_embeddings", "rope_original_positions", 0},
    {0}};
static const struct rope_member proportional[] = {{"factor", "rope_factor", 1}, {0}};
static const struct {
    const char *theirs, *ours;
    const struct rope_member *members;
} scalings[] = {{"linear", "linear", linear},
                {"dynamic", "dynamic", dynamic},
                {"llama3", "llama3", llama3},
                {"yarn", "yarn", yarn},
                {"longrope", "longrope", longrope},
                {"su", "longrope", longrope},
                {"proportional", "proportional", proportional}};

/* [1.0, 1.5] -> "1.0,1.5" */
int lf_hf_set_list(lf_hf_reader *r, lf_model_config *c, const char *theirs, const char *ours,
                   json_t *list, lf_err *err)
{
    lf_buf b;
    int rc = 0;
    lf_buf_init(&b);
    for (size_t i = 0; i < json_array_size(list) && rc == 0; i++) {
        if (!json_is_number(json_array_get(list, i)))
            rc = lf_fail(err, LF_EFORMAT, "%s: %s holds what is no number", r->path, theirs);
        lf_buf_addf(&b, "%s%.17g", i ? "," : "", json_number_value(json_array_get(list, i)));
    }
    if (rc == 0)
        rc = lf_buf_check(&b, err);
    if (rc == 0)
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

/* What stands outside of rope_scaling has precedence. */
static double original_positions(const lf_hf_reader *r, const lf_model_config *c,
                                 const struct lf_hf_rope *as, json_t *inside)
{
    json_t *v = json_object_get(r->o, "original_max_position_embeddings");
    if (json_is_number(v) && as->original >= 0)
        return json_number_value(v);
    if (as->original > 0)
        return (double)as->original;
    return json_is_number(inside) ? json_number_value(inside) : (double)c->max_positions;
}

static int read_member(lf_hf_reader *r, lf_model_config *c, json_t *s, const struct lf_hf_rope *as,
                       const struct rope_member *m, lf_err *err)
{
    double v = m->def;
    json_t *have = json_object_get(s, m->theirs);
    if (json_is_array(have)) {
        int rc = lf_hf_set_list(r, c, m->theirs, m->ours, have, err);
        json_object_del(s, m->theirs);
        return rc;
    }
    if (have && !json_is_null(have) && !json_is_number(have))
        return lf_fail(err, LF_EFORMAT, "%s: %s of rope_scaling is not a number", r->path,
                       m->theirs);
    bool given = json_is_number(have) &&
                 !(m->def > 0 && fabs(json_number_value(have)) <= 0); /* 0 is absence too */
    if (strcmp(m->theirs, "original_max_position_embeddings") == 0)
        v = original_positions(r, c, as, have);
    else if (given)
        v = json_number_value(have);
    else if (isnan(v))
        return lf_fail(err, LF_EFORMAT, "%s: rope_scaling has no %s", r->path, m->theirs);
    json_object_del(s, m->theirs);
    return v > 0 || given ? lf_hf_set_number(r, c, m->theirs, m->ours, v, err) : 0;
}

/* yarn and longrope: where there is no factor it is the ratio of the lengths. The amplitude of
 * longrope, which is all that its factor says, does not fall below 1. */
static int read_factor(lf_hf_reader *r, lf_model_config *c, double factor, lf_err *err)
{
    if (!(factor > 0) && c->rope_original_positions > 0)
        factor = fmax(1, (double)c->max_positions / (double)c->rope_original_positions);
    if (c->rope_scaling == LF_ROPE_LONGROPE)
        factor = fmax(1, factor);
    return lf_hf_set_number(r, c, "factor", "rope_factor", factor, err);
}

/* yarn: the amplitude by mscale and mscale_all_dim, where both are given and attention_factor is
 * not; the scale of scores of latent attention; whole ends of the ramp or not. */
static int read_yarn(lf_hf_reader *r, lf_model_config *c, json_t *s, lf_err *err)
{
    json_t *truncate = json_object_get(s, "truncate");
    if (truncate && !json_is_boolean(truncate) && !json_is_null(truncate))
        return lf_fail(err, LF_EFORMAT, "%s: truncate of rope_scaling is neither true nor false",
                       r->path);
    const double grow = 0.1 * log(c->rope_factor),
                 over = json_number_value(json_object_get(s, "mscale")),
                 under = json_number_value(json_object_get(s, "mscale_all_dim"));
    int rc = 0;
    if (truncate && !json_is_true(truncate))
        rc = lf_hf_set(r, c, "truncate", "rope_truncate", "no", err);
    if (rc == 0 && fabs(over) > 0 && fabs(under) > 0 && !(c->rope_attn_factor > 0))
        rc = lf_hf_set_number(r, c, "mscale", "rope_attn_factor",
                              (over * grow + 1) / (under * grow + 1), err);
    if (rc == 0 && under > 0 && c->kv_lora)
        rc = lf_hf_set_number(r, c, "mscale_all_dim", "rope_mscale_all", under, err);
    static const char *const known[] = {"truncate", "mscale", "mscale_all_dim"};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        json_object_del(s, known[i]);
    return rc;
}

static int read_scaling(lf_hf_reader *r, lf_model_config *c, json_t *s, const struct lf_hf_rope *as,
                        const char *type, lf_err *err)
{
    if (as->longrope && strcmp(as->longrope, type) == 0)
        type = "longrope";
    for (size_t i = 0; i < sizeof scalings / sizeof scalings[0]; i++) {
        if (strcmp(scalings[i].theirs, type) != 0)
            continue;
        const bool ratio = scalings[i].members == yarn || scalings[i].members == longrope;
        json_t *given = json_object_get(s, "factor");
        const double factor = json_is_number(given) ? json_number_value(given) : 0;
        int rc = lf_hf_set(r, c, "rope_scaling", "rope_scaling", scalings[i].ours, err);
        if (ratio && (json_is_number(given) || json_is_null(given)))
            json_object_del(s, "factor");
        for (const struct rope_member *m = scalings[i].members; m->theirs && rc == 0; m++)
            rc = read_member(r, c, s, as, m, err);
        rc = rc || !ratio ? rc : read_factor(r, c, factor, err);
        return rc || scalings[i].members != yarn ? rc : read_yarn(r, c, s, err);
    }
    return lf_fail(err, LF_ENOTSUP, "%s: rope_scaling of type '%.40s' is not supported", r->path,
                   type);
}

/* One object of parameters: {"rope_type", "rope_theta", "partial_rotary_factor", members of the
 * type}. */
static int read_rope_object(lf_hf_reader *r, lf_model_config *c, json_t *given,
                            const struct lf_hf_rope *as, lf_err *err)
{
    json_t *s = json_copy(given);
    int rc = s ? 0 : lf_fail(err, LF_ENOMEM, "out of memory");
    if (rc == 0 && !json_is_object(s))
        rc = lf_fail(err, LF_EFORMAT, "%s: rope_scaling is not an object", r->path);
    const char *type = rc != 0 ? NULL : json_string_value(json_object_get(s, "rope_type"));
    if (rc == 0 && !type)
        type = json_string_value(json_object_get(s, "type"));
    json_t *theta = rc != 0 ? NULL : json_object_get(s, "rope_theta"),
           *part = rc != 0 ? NULL : json_object_get(s, "partial_rotary_factor");
    if (json_is_number(theta))
        rc = lf_hf_set_number(r, c, "rope_theta", "rope_theta", json_number_value(theta), err);
    if (rc == 0 && json_is_number(part))
        rc = lf_hf_set_number(r, c, "partial_rotary_factor", "rope_fraction",
                              json_number_value(part), err);
    if (rc == 0 && type && strcmp(type, "default") != 0)
        rc = read_scaling(r, c, s, as, type, err);
    static const char *const known[] = {"rope_type", "type", "rope_theta", "partial_rotary_factor"};
    for (size_t i = 0; rc == 0 && i < sizeof known / sizeof known[0]; i++)
        json_object_del(s, known[i]);
    const char *key;
    json_t *v;
    json_object_foreach(s, key, v) if (rc == 0 && !json_is_null(v)) rc =
        lf_fail(err, LF_ENOTSUP, "%s: '%.60s' of rope_scaling is not known", r->path, key);
    json_decref(s);
    return rc;
}

static bool says_nothing(json_t *o)
{
    return json_is_object(o) && json_object_size(o) == 0;
}

int lf_hf_read_rope_as(lf_hf_reader *r, lf_model_config *c, const struct lf_hf_rope *as,
                       lf_err *err)
{
    double theta = as->theta, part = -1, whole = c->rope_fraction;
    int rc = lf_hf_get_f64(r, "rope_theta", &theta, err);
    if (rc == 0)
        rc = lf_hf_set_number(r, c, "rope_theta", "rope_theta", theta, err);
    if (rc == 0)
        rc = lf_hf_get_f64(r, "partial_rotary_factor", &part, err);
    if (rc == 0 && part >= 0)
        rc = lf_hf_set_number(r, c, "partial_rotary_factor", "rope_fraction", part, err);
    json_t *a = rc != 0 ? NULL : lf_hf_take(r, "rope_scaling"),
           *b = rc != 0 ? NULL : lf_hf_take(r, "rope_parameters");
    a = says_nothing(a) ? NULL : a;
    b = says_nothing(b) ? NULL : b;
    lf_hf_take(r, "original_max_position_embeddings"); /* read with the scaling that needs it */
    b = as->params ? as->params : b;
    if (rc == 0 && a && b && !json_equal(a, b))
        rc = lf_fail(err, LF_EFORMAT, "%s: rope_scaling and rope_parameters say different things",
                     r->path);
    if (rc == 0 && (b || a))
        rc = read_rope_object(r, c, b ? b : a, as, err);
    if (rc == 0 && !as->part && fabs(c->rope_fraction - whole) > 0)
        rc = lf_fail(err, LF_ENOTSUP,
                     "%s: partial_rotary_factor = %g, but the class of this family turns whole "
                     "heads, whatever it says",
                     r->path, c->rope_fraction);
    if (rc == 0 &&
        c->rope_scaling == LF_ROPE_DYNAMIC) /* counts from the longest sequence of training */
        rc = lf_hf_set_number(r, c, "rope_scaling", "rope_original_positions",
                              (double)c->max_positions, err);
    return rc;
}

int lf_hf_read_rope(lf_hf_reader *r, lf_model_config *c, double theta, lf_err *err)
{
    return lf_hf_read_rope_as(r, c, &(struct lf_hf_rope){.theta = theta}, err);
}

int lf_hf_read_local_rope(const lf_hf_reader *r, json_t *own, double *theta, lf_err *err)
{
    const char *key, *type = json_string_value(json_object_get(own, "rope_type"));
    json_t *v;
    if (own && !json_is_object(own) && !json_is_null(own))
        return lf_fail(err, LF_EFORMAT, "%s: sliding_attention of rope_parameters is not an object",
                       r->path);
    if (type && strcmp(type, "default") != 0)
        return lf_fail(
            err, LF_ENOTSUP,
            "%s: layers with a window that scale their rotary positions are not supported",
            r->path);
    json_object_foreach(own, key, v)
    {
        if (strcmp(key, "rope_theta") == 0 && json_is_number(v))
            *theta = json_number_value(v);
        else if (strcmp(key, "rope_type") != 0 && !json_is_null(v))
            return lf_fail(err, LF_ENOTSUP, "%s: %.60s of layers with a window is not supported",
                           r->path, key);
    }
    return 0;
}

int lf_hf_write_partial_rope(const lf_model_config *c, json_t *o, lf_err *err)
{
    int rc = lf_hf_write_rope(c, o, err);
    if (rc == 0 && json_object_set_new(o, "partial_rotary_factor", json_real(c->rope_fraction)))
        rc = lf_fail(err, LF_ENOMEM, "out of memory");
    return rc;
}

/* yarn of latent attention: mscale_all_dim, and the mscale from which the amplitude follows, for
 * readers that take no attention_factor. */
static int write_mscale(const lf_model_config *c, json_t *s)
{
    const double grow = 0.1 * log(c->rope_factor), under = c->rope_mscale_all;
    double over = under;
    if (!(under > 0))
        return 0;
    if (fabs(c->rope_attn_factor - 1) > 0 && grow > 0)
        over = (c->rope_attn_factor * (under * grow + 1) - 1) / grow;
    if (c->rope_attn_factor > 0 && over > 0 && json_object_set_new(s, "mscale", json_real(over)))
        return LF_ENOMEM;
    return json_object_set_new(s, "mscale_all_dim", json_real(under)) ? LF_ENOMEM : 0;
}

int lf_hf_write_rope(const lf_model_config *c, json_t *o, lf_err *err)
{
    json_t *ours = lf_model_config_to_json(c, err), *s = json_object();
    int rc = ours && s ? 0 : LF_ENOMEM;
    const char *kind = rc != 0 ? NULL : json_string_value(json_object_get(ours, "rope_scaling"));
    if (rc == 0 && json_object_set_new(o, "rope_theta", json_real(c->rope_theta)))
        rc = LF_ENOMEM;
    for (size_t i = 0; rc == 0 && kind && i < sizeof scalings / sizeof scalings[0]; i++) {
        if (strcmp(scalings[i].ours, kind) != 0)
            continue;
        rc = json_object_set_new(s, "rope_type", json_string(scalings[i].theirs));
        for (const struct rope_member *m = scalings[i].members; m->theirs && rc == 0; m++) {
            double x = 0;
            int64_t n = 0;
            const char *text = json_string_value(json_object_get(ours, m->ours));
            if (strcmp(m->ours, "rope_short_factors") == 0 ||
                strcmp(m->ours, "rope_long_factors") == 0)
                rc = json_object_set_new(s, m->theirs, list_of(text));
            else if (text && lf_parse_i64(&n, text, NULL) == 0 &&
                     strcmp(m->ours, "rope_original_positions") == 0)
                rc = json_object_set_new(s, m->theirs, json_integer(n));
            else if (text && lf_parse_f64(&x, text, NULL) == 0 && (x > 0 || isnan(m->def)))
                rc = json_object_set_new(s, m->theirs, json_real(x));
        }
        if (c->rope_scaling == LF_ROPE_LONGROPE && /* said by the lengths */
            fabs(c->rope_factor * (double)c->rope_original_positions - (double)c->max_positions) <=
                0)
            json_object_del(s, "factor");
        if (rc == 0 && c->rope_scaling == LF_ROPE_YARN && !c->rope_truncate)
            rc = json_object_set_new(s, "truncate", json_false());
        if (rc == 0 && c->rope_scaling == LF_ROPE_YARN)
            rc = write_mscale(c, s);
        if (rc == 0)
            rc = json_object_set(o, "rope_scaling", s);
        break; /* the first of two names */
    }
    json_decref(ours);
    json_decref(s);
    return rc != 0 ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}

int lf_hf_write_rope_kinds(const lf_model_config *c, json_t *o, lf_err *err)
{
    const double local = c->rope_local_theta > 0 ? c->rope_local_theta : c->rope_theta;
    int rc = lf_hf_write_rope(c, o, err);
    if (rc != 0)
        return rc;
    json_t *scaling = json_object_get(o, "rope_scaling"),
           *full = scaling ? json_deep_copy(scaling) : json_pack("{s:s}", "rope_type", "default"),
           *window = json_pack("{s:s, s:f}", "rope_type", "default", "rope_theta", local);
    int bad = !full || !window || json_object_set_new(full, "rope_theta", json_real(c->rope_theta));
    if (!bad && c->rope_scaling == LF_ROPE_PROPORTIONAL)
        bad = json_object_set_new(full, "partial_rotary_factor", json_real(c->rope_fraction));
    json_object_del(o, "rope_scaling");
    json_object_del(o, "rope_theta");
    bad = bad || json_object_set_new(
                     o, "rope_parameters",
                     json_pack("{s:O, s:O}", "full_attention", full, "sliding_attention", window));
    json_decref(full);
    json_decref(window);
    return bad ? lf_fail(err, LF_ENOMEM, "out of memory") : 0;
}
