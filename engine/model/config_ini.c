/* SPDX-License-Identifier: Apache-2.0
 *
 * From an INI section to a checked description: presets, explicit keys, contradictions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/model/config_priv.h"
#include "kernels/kernels.h"

#define PRESET_DEPTH 4

static int apply_section(lf_model_config *c, const lf_ini *ini, const char *section, int depth, lf_err *err);

/* A preset is a path, looked for beside the file that names it, or the bare name of a file of models/:
 * $LF_MODELS_DIR/NAME.ini, then the installed one. */
static char *preset_path(const lf_ini_entry *e, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    if (strchr(e->value, '/') || lf_str_has_suffix(e->value, ".ini")) {
        const char *slash = strrchr(e->path, '/');
        if (e->value[0] != '/' && slash)
            lf_buf_add(&b, e->path, (size_t)(slash - e->path) + 1);
        lf_buf_adds(&b, e->value);
    } else {
        const char *dir = getenv("LF_MODELS_DIR");
        lf_buf_addf(&b, "%s/%s.ini", dir ? dir : LF_DATADIR "/models", e->value);
    }
    char *path = lf_buf_steal(&b, err);
    if (path && !lf_io_exists(path)) {
        lf_fail(err, LF_ENOENT,
                "%s:%d:%d: preset '%s' not found (looked for %s); the environment variable LF_MODELS_DIR names another "
                "folder "
                "of models",
                e->path, e->line, e->column, e->value, path);
        free(path);
        return NULL;
    }
    return path;
}

static int apply_preset(lf_model_config *c, const lf_ini_entry *e, int depth, lf_err *err)
{
    if (depth >= PRESET_DEPTH)
        return lf_fail(err, LF_EINVAL, "%s:%d: presets nest deeper than %d; does one name itself?", e->path, e->line,
                       PRESET_DEPTH);
    lf_ini ini = {0};
    char *path = preset_path(e, err);
    if (!path)
        return err ? err->rc : LF_EINVAL;
    int rc = lf_ini_parse_file(&ini, path, err);
    if (!rc)
        rc = apply_section(c, &ini, "model", depth + 1, err);
    lf_ini_fini(&ini);
    free(path);
    return rc;
}

static int apply_section(lf_model_config *c, const lf_ini *ini, const char *section, int depth, lf_err *err)
{
    const lf_ini_section *s = lf_ini_find_section(ini, section);
    if (!s)
        return lf_fail(err, LF_EINVAL, "%s: no section [%s] describes the model",
                       ini->n_sections ? ini->sections[0].path : "configuration", section);
    const lf_ini_entry *preset = lf_ini_find(ini, section, "preset"), *family = lf_ini_find(ini, section, "family");
    char where[512];
    if (preset && family)
        return lf_fail(err, LF_EINVAL, "%s:%d: family and preset together; a preset has a family already", family->path,
                       family->line);
    if (preset) {
        int rc = apply_preset(c, preset, depth, err);
        if (rc)
            return rc;
    }
    if (family) {
        snprintf(where, sizeof(where), "%s:%d:%d", family->path, family->line, family->column);
        int rc = lf_model_config_family(c, family->value, where, err);
        if (rc)
            return rc;
    }
    for (size_t i = s->first; i < s->first + s->n; i++) {
        const lf_ini_entry *e = &ini->entries[i];
        if (e == preset || e == family)
            continue;
        snprintf(where, sizeof(where), "%s:%d:%d", e->path, e->line, e->column);
        int rc = lf_model_config_set(c, e->key, e->value, where, err);
        if (rc)
            return rc;
    }
    return 0;
}

int lf_model_config_from_ini(lf_model_config *out, const lf_ini *ini, const char *section, lf_err *err)
{
    lf_model_config c;
    lf_model_config_defaults(&c);
    int rc = apply_section(&c, ini, section, 0, err);
    if (!rc)
        rc = lf_model_config_finish(&c, err);
    if (!rc)
        *out = c;
    return rc;
}

int lf_model_config_load(lf_model_config *out, const char *path, lf_err *err)
{
    lf_ini ini = {0};
    int rc = lf_ini_parse_file(&ini, path, err);
    if (!rc)
        rc = lf_model_config_from_ini(out, &ini, "model", err);
    lf_ini_fini(&ini);
    return rc;
}

/* The origin of the key to blame, then the sentence. */
#define CONTRADICTION(key, ...) return contradiction(c, key, err, __VA_ARGS__)
static int contradiction(const lf_model_config *c, const char *key, lf_err *err, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int contradiction(const lf_model_config *c, const char *key, lf_err *err, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return lf_fail(err, LF_EINVAL, "%s: [model] %s: %s", lf_model_origin(c, key), key, text);
}

static bool given(const lf_model_config *c, const char *key)
{
    return strcmp(lf_model_origin(c, key), "default") != 0;
}

static int check_sizes(lf_model_config *c, lf_err *err)
{
    for (size_t i = 0; i < lf_model_n_keys; i++)
        if (!lf_model_keys[i].def && *(int64_t *)(void *)((char *)c + lf_model_keys[i].offset) == 0)
            return lf_fail(err, LF_EINVAL, "[model] needs %s", lf_model_keys[i].name);
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->head_dim == 0) {
        if (c->hidden % c->heads)
            CONTRADICTION("heads", "%lld heads do not divide hidden = %lld; give head_dim", (long long)c->heads,
                          (long long)c->hidden);
        c->head_dim = c->hidden / c->heads;
    }
    if (c->heads % c->kv_heads)
        CONTRADICTION("kv_heads", "%lld kv_heads do not divide %lld heads", (long long)c->kv_heads,
                      (long long)c->heads);
    if (c->head_dim > 256 || c->head_dim % 2)
        CONTRADICTION(given(c, "head_dim") ? "head_dim" : "heads",
                      "head_dim = %lld; attention needs an even one of at most 256", (long long)c->head_dim);
    if (c->max_window_layers > c->layers)
        CONTRADICTION("max_window_layers", "%lld is more than the %lld layers", (long long)c->max_window_layers,
                      (long long)c->layers);
    if (c->max_window_layers && !c->sliding_window)
        CONTRADICTION("max_window_layers", "means nothing without sliding_window");
    return 0;
}

static int check_position(const lf_model_config *c, lf_err *err)
{
    static const char *const rope_only[] = {"rope_theta", "rope_fraction", "rope_interleaved", "rope_scaling"};
    if (c->position != LF_POS_ROPE) {
        /* A family may have set them; a user who sets both means something else. */
        for (size_t i = 0; i < sizeof(rope_only) / sizeof(rope_only[0]); i++) {
            const char *o = lf_model_origin(c, rope_only[i]);
            if (strchr(o, ':') && strchr(lf_model_origin(c, "position"), ':'))
                CONTRADICTION(rope_only[i], "set, but position is not rope (%s)", lf_model_origin(c, "position"));
        }
    } else if (lf_model_rope_dim(c) < 2 || lf_model_rope_dim(c) % 2) {
        CONTRADICTION(given(c, "rope_fraction") ? "rope_fraction" : "head_dim",
                      "rope turns pairs of channels, but %g of %lld is %lld", c->rope_fraction, (long long)c->head_dim,
                      (long long)lf_model_rope_dim(c));
    }
    if (c->rope_scaling == LF_ROPE_LLAMA3 && c->rope_low_freq_factor >= c->rope_high_freq_factor)
        CONTRADICTION("rope_low_freq_factor", "%g must be below rope_high_freq_factor = %g", c->rope_low_freq_factor,
                      c->rope_high_freq_factor);
    if (c->rope_scaling == LF_ROPE_PLAIN && given(c, "rope_factor") && fabs(c->rope_factor - 1) > 0)
        CONTRADICTION("rope_factor", "means nothing without rope_scaling");
    if (c->position != LF_POS_LEARNED && c->position_offset)
        CONTRADICTION("position_offset", "belongs to position = learned");
    return 0;
}

int lf_model_config_finish(lf_model_config *c, lf_err *err)
{
    int rc = check_sizes(c, err);
    if (!rc)
        rc = check_position(c, err);
    if (rc)
        return rc;
    if (c->norm == LF_NORM_RMS && c->norm_bias)
        CONTRADICTION("norm_bias", "rms norm has no bias");
    if (c->tied_head && c->head_bias)
        CONTRADICTION("head_bias", "a tied head has no bias of its own (tied_head, %s)",
                      lf_model_origin(c, "tied_head"));
    if (fabs(c->norm_offset) > 0 && fabs(c->norm_offset - 1) > 0)
        CONTRADICTION("norm_offset", "%g is neither 0 nor 1", c->norm_offset);
    if (c->activation == LF_ACT_NONE)
        CONTRADICTION("activation", "an MLP without activation is one matrix");
    return 0;
}
