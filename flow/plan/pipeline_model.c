/* SPDX-License-Identifier: Apache-2.0
 *
 * The model a stage names: `model = NAME` is [model NAME] of the pipeline, a file (a '/' or ".ini"
 * in it) or an installed description; without the key [model] is taken. Keys and values are the
 * stage's business; here they are only merged, `preset =` lowest, and marked as read.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/ini.h"
#include "engine/base/io.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/plan/presets.h"

#define MODEL_MAX_BASES 16

struct model_ctx {
    lf_pipeline *p;
    const lf_pipeline_args *args;
    const lf_conf_item *at; /* where the name stands, for messages; NULL: [model] itself */
    int depth;
};

static int load_named(lf_pairs *into, struct model_ctx *x, const char *name, const char *dir,
                      lf_err *err);

/* Does this kind read [model]? Either its table has a row `model` that is no input, or it is
 * pretrain, which reads the section from its configuration file without a row of its own. */
static bool wants_model(const lf_opt_table *t)
{
    const lf_opt *o = lf_opt_find(t, "model");
    return o != NULL ? (o->flags & LF_OPT_INPUT) == 0 : strcmp(t->stage, "pretrain") == 0;
}

static int put_if_absent(lf_pairs *into, const char *key, const char *value, lf_err *err)
{
    return lf_pairs_get(into, key) != NULL ? 0 : lf_pairs_add(into, key, value, err);
}

static int load_section(lf_pairs *into, struct model_ctx *x, const char *section, lf_err *err)
{
    lf_conf *c = &x->p->conf;
    lf_conf_item *base = NULL;
    for (size_t i = lf_conf_first(c, section); i != LF_CONF_END; i = c->items[i].next) {
        lf_conf_item *it = &c->items[i];
        it->read = true;
        if (strcmp(it->key, "preset") == 0) {
            base = it;
            continue;
        }
        int rc = put_if_absent(into, it->key, it->value, err);
        if (rc < 0)
            return rc;
    }
    if (base == NULL)
        return 0;
    x->at = base;
    return load_named(into, x, base->value, x->p->project, err);
}

static int load_file(lf_pairs *into, struct model_ctx *x, const char *path, lf_err *err)
{
    lf_ini ini;
    memset(&ini, 0, sizeof ini);
    int rc = lf_ini_parse_file(&ini, path, err);
    if (rc < 0)
        return rc;
    const lf_ini_section *s = lf_ini_find_section(&ini, "model");
    const char *base = NULL;
    if (s == NULL || ini.n_sections != 1)
        rc = lf_fail(err, LF_EINVAL, "%s: a model file holds one section, [model]", path);
    for (size_t i = 0; rc == 0 && i < s->n; i++) {
        const lf_ini_entry *e = &ini.entries[s->first + i];
        if (strcmp(e->key, "preset") == 0)
            base = e->value;
        else
            rc = put_if_absent(into, e->key, e->value, err);
    }
    if (rc == 0 && base != NULL) {
        char *dir = lf_strndup(path, (size_t)(strrchr(path, '/') - path), err);
        rc = dir == NULL ? LF_ENOMEM : load_named(into, x, base, dir, err);
        free(dir);
    }
    lf_ini_fini(&ini);
    return rc;
}

static int fail_at(const struct model_ctx *x, lf_err *err, const char *name)
{
    const lf_conf *c = &x->p->conf;
    const char *names[128];
    size_t n = 0;
    for (size_t i = 0; i < c->n_sections && n < 128; i++)
        if (lf_str_has_prefix(c->sections[i].name, "model "))
            names[n++] = c->sections[i].name + strlen("model ");
    const char *near = lf_nearest(name, names, n);
    char hint[200];
    lf_presets_hint(hint, sizeof hint, x->args->model_dir, name);
    if (x->at == NULL)
        return lf_fail(err, LF_ENOENT, "model \"%s\" does not exist; %s", name, hint);
    if (near != NULL)
        return lf_conf_fail(x->at, err, "there is no model \"%s\"; did you mean [model %s]?", name,
                            near);
    return lf_conf_fail(x->at, err,
                        "there is no model \"%s\": no [model %s] here, no such file, none "
                        "installed; %s",
                        name, name, hint);
}

static int load_named(lf_pairs *into, struct model_ctx *x, const char *name, const char *dir,
                      lf_err *err)
{
    if (++x->depth > MODEL_MAX_BASES)
        return x->at != NULL
                   ? lf_conf_fail(x->at, err, "preset = %s: presets are nested more than %d deep",
                                  name, MODEL_MAX_BASES)
                   : lf_fail(err, LF_EINVAL, "model presets are nested more than %d deep",
                             MODEL_MAX_BASES);
    lf_buf b;
    lf_buf_init(&b);
    lf_buf_addf(&b, "model %s", name);
    int rc = 0;
    if (lf_conf_find_section(&x->p->conf, b.data) != NULL) {
        rc = load_section(into, x, b.data, err);
        goto out;
    }
    lf_buf_clear(&b);
    bool file = strchr(name, '/') != NULL || lf_str_has_suffix(name, ".ini");
    if (file && name[0] == '/')
        lf_buf_adds(&b, name);
    else if (file)
        lf_buf_addf(&b, "%s/%s", dir, name);
    else if (x->args->model_dir != NULL && name[0] != '.')
        lf_buf_addf(&b, "%s/%s.ini", x->args->model_dir, name);
    if (b.len == 0 || !lf_io_exists(b.data))
        rc = fail_at(x, err, name);
    else
        rc = load_file(into, x, b.data, err);
out:
    lf_buf_fini(&b);
    return rc;
}

int lf_pipeline_model(lf_pairs *out, const lf_reading *r, const char *section,
                      const lf_opt_table *table, lf_err *err)
{
    lf_pipeline *p = r->p;
    const lf_opt *row = lf_opt_find(table, "model");
    if (row != NULL && (row->flags & LF_OPT_INPUT) != 0)
        return 0;
    lf_conf_item *it = lf_conf_find(&p->conf, section, "model");
    if (it != NULL)
        it->read = true;
    if (it != NULL && !wants_model(table))
        return lf_conf_fail(it, err, "stages of kind %s take no model", table->stage);
    if (it == NULL && (!wants_model(table) || lf_conf_find_section(&p->conf, "model") == NULL))
        return 0;
    struct model_ctx x = {.p = p, .args = r->args, .at = it, .depth = 0};
    out->given = true;
    return it != NULL ? load_named(out, &x, it->value, p->project, err)
                      : load_section(out, &x, "model", err);
}

/* ---- where a key of a model stands ---- */

/* The name of a section of the model NAME; [model] for NULL. */
static const lf_conf_section *named_section(const lf_conf *c, const char *name)
{
    char section[160] = "model";
    if (name != NULL)
        snprintf(section, sizeof section, "model %s", name);
    return lf_conf_find_section(c, section);
}

const lf_conf_section *lf_pipeline_model_section(const lf_pipeline *p, const lf_doc_stage *stage)
{
    const lf_conf_item *it = lf_pipeline_option(p, stage, "model");
    return stage->model.given ? named_section(&p->conf, it != NULL ? it->value : NULL) : NULL;
}

const lf_conf_item *lf_pipeline_model_key(const lf_pipeline *p, const lf_doc_stage *stage,
                                          const char *key)
{
    const lf_conf_section *s = lf_pipeline_model_section(p, stage);
    const lf_conf_item *named_at = lf_pipeline_option(p, stage, "model");
    for (int depth = 0; s != NULL && depth <= MODEL_MAX_BASES; depth++) {
        const lf_conf_item *it = lf_conf_find(&p->conf, s->name, key);
        const lf_conf_item *base = lf_conf_find(&p->conf, s->name, "preset");
        if (it != NULL)
            return it;
        if (base == NULL)
            return NULL;
        named_at = base;
        s = named_section(&p->conf, base->value);
    }
    return stage->model.given && lf_pairs_get(&stage->model, key) != NULL ? named_at : NULL;
}
