/* SPDX-License-Identifier: Apache-2.0
 *
 * From an INI section to a description: presets, then explicit keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/model/config_priv.h"

#define PRESET_DEPTH 4

static int apply_section(lf_model_config *c, const lf_ini *ini, const char *section, int depth,
                         lf_err *err);

/* A preset is a path, looked for beside the file that names it, or the bare name of a file of
 * models/: $LF_MODELS_DIR/NAME.ini, then the installed one. */
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
                "%s:%d:%d: preset '%s' not found (looked for %s); the environment variable "
                "LF_MODELS_DIR names another "
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
        return lf_fail(err, LF_EINVAL, "%s:%d: presets nest deeper than %d; does one name itself?",
                       e->path, e->line, PRESET_DEPTH);
    lf_ini ini = {0};
    char *path = preset_path(e, err);
    if (!path)
        return err ? err->rc : LF_EINVAL;
    int rc = lf_ini_parse_file(&ini, path, err);
    if (rc == 0)
        rc = apply_section(c, &ini, "model", depth + 1, err);
    lf_ini_fini(&ini);
    free(path);
    return rc;
}

static int apply_key(lf_model_config *c, const lf_ini_entry *e, lf_err *err)
{
    char where[512];
    snprintf(where, sizeof(where), "%s:%d:%d", e->path, e->line, e->column);
    return lf_model_config_set(c, e->key, e->value, where, err);
}

static int apply_section(lf_model_config *c, const lf_ini *ini, const char *section, int depth,
                         lf_err *err)
{
    const lf_ini_section *s = lf_ini_find_section(ini, section);
    if (!s)
        return lf_fail(err, LF_EINVAL, "%s: no section [%s] describes the model",
                       ini->n_sections ? ini->sections[0].path : "configuration", section);
    const lf_ini_entry *preset = lf_ini_find(ini, section, "preset"),
                       *family = lf_ini_find(ini, section, "family"),
                       *vision = lf_ini_find(ini, section, "vision.family");
    char where[512];
    if (preset && family)
        return lf_fail(err, LF_EINVAL,
                       "%s:%d: family and preset together; a preset has a family already",
                       family->path, family->line);
    if (preset) {
        int rc = apply_preset(c, preset, depth, err);
        if (rc != 0)
            return rc;
    }
    if (family) {
        snprintf(where, sizeof(where), "%s:%d:%d", family->path, family->line, family->column);
        int rc = lf_model_config_family(c, family->value, where, err);
        if (rc != 0)
            return rc;
    }
    int rc = vision ? apply_key(c, vision, err) : 0;
    for (size_t i = s->first; rc == 0 && i < s->first + s->n; i++) {
        const lf_ini_entry *e = &ini->entries[i];
        if (e != preset && e != family && e != vision)
            rc = apply_key(c, e, err);
    }
    return rc;
}

int lf_model_config_from_ini(lf_model_config *out, const lf_ini *ini, const char *section,
                             lf_err *err)
{
    lf_model_config c;
    lf_model_config_defaults(&c);
    int rc = apply_section(&c, ini, section, 0, err);
    if (rc == 0)
        rc = lf_model_config_finish(&c, err);
    if (rc == 0)
        *out = c;
    return rc;
}

int lf_model_config_load(lf_model_config *out, const char *path, lf_err *err)
{
    lf_ini ini = {0};
    int rc = lf_ini_parse_file(&ini, path, err);
    if (rc == 0)
        rc = lf_model_config_from_ini(out, &ini, "model", err);
    lf_ini_fini(&ini);
    return rc;
}
