/* SPDX-License-Identifier: Apache-2.0
 *
 * From merged configuration to the plan document: sections, stage keys, options by class, unread
 * keys.
 */
#include "config.h"

#include "flow/plan/pipeline.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/synonym.h"
#include "engine/base/utf8.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/record/record.h"

static const char *const section_words[] = {"pipeline", "resources", "model", "layout",
                                            "vars",     "site",      "user",  "sweep",
                                            "stage",    "template",  "kind"};
#define N_PLAIN 8 /* of section_words: sections without a name */
static const char *const stage_keys[] = {"kind", "inherit", "after", "model", "layout", "rerun_on"};
static const char *const pipeline_keys[] = {"name",          "description", "data_dir", "scheduler",
                                            "jobs",          "share",       "include",  "on_end",
                                            "on_time_limit", "on_fail",     "report"};
#define MAX_RESOURCE_KEYS 64

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

size_t lf_section_keys(const char **out, size_t cap, const char *section)
{
    size_t n_site, n_sweep, n_layout, n = 0;
    const char *const *site = lf_site_keys(&n_site), *const *sweep = lf_sweep_keys(&n_sweep),
                      *const *layout = lf_layout_keys(&n_layout);
    const struct {
        const char *section;
        const char *const *keys;
        size_t n;
    } plain[] = {{"pipeline", pipeline_keys, COUNT(pipeline_keys)},
                 {"site", site, n_site},
                 {"sweep", sweep, n_sweep},
                 {"layout", layout, n_layout},
                 {"stage", stage_keys, COUNT(stage_keys)}};
    for (size_t i = 0; i < COUNT(plain); i++)
        for (size_t k = 0; strcmp(plain[i].section, section) == 0 && k < plain[i].n && n < cap; k++)
            out[n++] = plain[i].keys[k];
    if (strcmp(section, "resources") == 0 || strcmp(section, "stage") == 0)
        n += lf_resource_keys(out + n, cap - n);
    const struct lf_layout_part *parts = lf_layout_parts(&n_layout);
    for (size_t i = 0; strcmp(section, "stage") == 0 && i < n_layout && n < cap; i++)
        out[n++] = parts[i].key;
    return n;
}

const lf_opt_table *lf_table_find(const lf_opt_table *const *tables, const char *kind)
{
    for (; *tables != NULL; tables++)
        if (strcmp((*tables)->stage, kind) == 0)
            return *tables;
    return NULL;
}

int lf_reading_note(const lf_reading *r, int rc, lf_err *err)
{
    lf_texts *list = r->args->mistakes;
    if (rc >= 0 || rc == LF_ENOMEM || list == NULL)
        return rc;
    lf_err e = LF_ERR_INIT;
    rc = err == NULL || lf_texts_has(list, err->text) ? 0 : lf_texts_add(list, err->text, &e);
    lf_err_clear(err);
    r->p->n_mistakes++;
    return rc < 0 ? lf_fail(err, rc, "%s", e.text) : 0;
}

size_t lf_reading_mistakes(const lf_reading *r)
{
    return r->p->n_mistakes;
}

static bool name_ok(const char *s)
{
    size_t n = strlen(s);
    if (n == 0 || n > 64 || s[0] == '-' || strcmp(s, "spool") == 0)
        return false;
    return strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-") == n;
}

static int unknown_section(const lf_conf_section *s, lf_err *err)
{
    char first[64], where[32] = "";
    snprintf(first, sizeof first, "%.*s", (int)strcspn(s->name, " "), s->name);
    const char *near = lf_nearest(first, section_words, COUNT(section_words));
    bool takes_name = near != NULL && strchr("stk", near[0]) != NULL && strcmp(near, "site") != 0 &&
                      strcmp(near, "sweep") != 0;
    if (s->line > 0)
        snprintf(where, sizeof where, ":%d:1", s->line);
    if (near == NULL)
        return lf_fail(err, LF_EINVAL, "%s%s: unknown section [%s]; a stage is [stage %s]", s->path,
                       where, s->name, first);
    return lf_fail(err, LF_EINVAL, "%s%s: unknown section [%s]; did you mean [%s%s]?", s->path,
                   where, s->name, near, takes_name ? " NAME" : "");
}

static int check_section(const lf_conf_section *s, const lf_opt_table *const *tables, lf_err *err)
{
    static const char *const named[] = {"stage ", "template ", "kind ", "model ", "layout "};
    bool ok = false;
    for (size_t k = 0; k < N_PLAIN; k++)
        ok = ok || strcmp(s->name, section_words[k]) == 0;
    for (size_t k = 0; k < COUNT(named) && !ok; k++) {
        if (!lf_str_has_prefix(s->name, named[k]))
            continue;
        const char *name = s->name + strlen(named[k]);
        if (k < 2 && !name_ok(name))
            return lf_fail(err, LF_EINVAL,
                           "%s:%d:1: [%s]: a name is 1 to 64 letters, digits, '_' or '-'", s->path,
                           s->line, s->name);
        if (k == 2 && lf_table_find(tables, name) == NULL)
            return lf_fail(err, LF_EINVAL, "%s:%d:1: [%s]: there is no such stage kind", s->path,
                           s->line, s->name);
        ok = true;
    }
    if (!ok)
        return unknown_section(s, err);
    if (strcmp(s->layer, "pipeline") != 0 && lf_str_has_prefix(s->name, "stage ") &&
        strcmp(s->layer, "--set") != 0)
        return lf_fail(err, LF_EINVAL, "%s:%d:1: [%s]: stages belong in a pipeline file", s->path,
                       s->line, s->name);
    return 0;
}

static int check_sections(const lf_reading *r, lf_err *err)
{
    const lf_conf *c = &r->p->conf;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < c->n_sections; i++)
        rc = lf_reading_note(r, check_section(&c->sections[i], r->args->tables, err), err);
    return rc;
}

static int unknown_key(const lf_conf_item *it, const char *const *names, size_t n, lf_err *err)
{
    char hint[200];
    lf_synonym_hint(hint, sizeof hint, it->key, names, n);
    return lf_conf_fail_key(it, err, "unknown key \"%s\" in [%s]%s", it->key, it->section, hint);
}

static int check_keys(const lf_reading *r, const char *section, const char *const *names, size_t n,
                      lf_err *err)
{
    const lf_conf *c = &r->p->conf;
    int rc = 0;
    for (size_t i = lf_conf_first(c, section); rc == 0 && i != LF_CONF_END; i = c->items[i].next) {
        const lf_conf_item *it = &c->items[i];
        bool known = false;
        for (size_t k = 0; k < n; k++)
            known = known || strcmp(it->key, names[k]) == 0;
        if (!known)
            rc = lf_reading_note(r, unknown_key(it, names, n, err), err);
    }
    return rc;
}

/* ---- options ---- */

static int option_unknown(const lf_conf_item *it, const lf_opt_table *t, lf_err *err)
{
    const lf_opt *renamed = lf_opt_find_old(t, it->key);
    if (renamed != NULL)
        return lf_conf_fail_key(it, err, "\"%s\" of %s is now called \"%s\"", it->key, t->stage,
                                renamed->name);
    const char **names =
        lf_calloc(t->n_opts + COUNT(stage_keys) + MAX_RESOURCE_KEYS, sizeof *names, err);
    if (names == NULL)
        return LF_ENOMEM;
    size_t n = 0;
    for (size_t i = 0; i < t->n_opts; i++)
        if ((t->opts[i].flags & LF_OPT_CLI_ONLY) == 0)
            names[n++] = t->opts[i].name;
    for (size_t i = 0; i < COUNT(stage_keys); i++)
        names[n++] = stage_keys[i];
    n += lf_resource_keys(names + n, MAX_RESOURCE_KEYS);
    int rc = unknown_key(it, names, n, err);
    free(names);
    return rc;
}

static bool is_flow_key(const char *key, const lf_opt_table *t)
{
    for (size_t i = 0; i < COUNT(stage_keys); i++)
        if (strcmp(key, stage_keys[i]) == 0) {
            const lf_opt *o = strcmp(key, "model") == 0 ? lf_opt_find(t, "model") : NULL;
            return o == NULL || (o->flags & LF_OPT_INPUT) == 0;
        }
    return lf_layout_part_key(key, t) || lf_resource_key(key);
}

const char *lf_value_hint(const char *v)
{
    const size_t n = strlen(v);
    if (strchr(v, '\n') != NULL || strstr(v, " = ") != NULL)
        return "; a line that begins with a blank belongs to the value above it";
    if (strstr(v, " #") != NULL || strstr(v, " ;") != NULL)
        return "; a comment stands on a line of its own";
    if (n > 1 && (v[0] == '"' || v[0] == '\'') && v[n - 1] == v[0])
        return "; a value stands without quotes";
    return "";
}

static int set_value(lf_optset *set, const lf_opt *o, const char *v, const char *where, lf_err *err)
{
    lf_err e = LF_ERR_INIT;
    int rc = lf_optset_set(set, o->name, v, where, &e);
    if (rc >= 0)
        return rc;
    const char *hint = lf_value_hint(v);
    const bool several = (o->flags & LF_OPT_REPEAT) != 0 && strpbrk(v, " ,\t") != NULL;
    return lf_fail(err, rc, "%s%s", e.text,
                   hint[0] == '\0' && several ? "; give each value a line of its own" : hint);
}

/* One INI value into the option set and into stage.options; a repeated option has one value per
 * line. */
static int set_option(lf_lists *options, lf_optset *set, const lf_opt *o, const lf_conf_item *it,
                      lf_err *err)
{
    char where[PATH_MAX + 64];
    snprintf(where, sizeof where, "%s:%d:%d", it->path, it->line, it->column);
    lf_texts *list = lf_lists_add(options, o->name, err);
    char *copy = lf_strdup(it->value, err), *save = NULL;
    int rc = list != NULL && copy != NULL ? 0 : LF_ENOMEM;
    if (rc == 0 && (o->flags & LF_OPT_REPEAT) == 0) {
        rc = set_value(set, o, it->value, where, err);
        if (rc == 0)
            rc = lf_texts_add(list, it->value, err);
    } else if (rc == 0) {
        for (char *v = strtok_r(copy, "\n", &save); v != NULL && rc == 0;
             v = strtok_r(NULL, "\n", &save)) {
            rc = set_value(set, o, v, where, err);
            if (rc == 0)
                rc = lf_texts_add(list, v, err);
        }
    }
    free(copy);
    return rc;
}

/* What of a stage's options is filled in. */
struct filled {
    lf_lists *options;
    lf_optset *set;
    const lf_opt_table *table;
};

static int set_item(const struct filled *f, lf_conf_item *it, lf_err *err)
{
    const lf_opt *o = lf_opt_find(f->table, it->key);
    if (lf_layout_key(it->key) && (o != NULL || lf_layout_trains(f->table)))
        return lf_conf_fail_key(it, err,
                                "\"%s\" belongs in [layout], or in [layout NAME] with "
                                "layout = NAME here",
                                it->key);
    if (o == NULL)
        return option_unknown(it, f->table, err);
    if (lf_layout_part_option(it, err) != 0)
        return LF_EINVAL;
    if ((o->flags & LF_OPT_CLI_ONLY) != 0)
        return lf_conf_fail_key(
            it, err, "\"%s\" is given by loong-flow itself and is no key of a stage", it->key);
    /* the stage's own value was set first and wins over [kind] */
    return lf_lists_get(f->options, o->name) != NULL ? 0
                                                     : set_option(f->options, f->set, o, it, err);
}

static int set_options_from(const lf_reading *r, const struct filled *f, const char *section,
                            bool stage, lf_err *err)
{
    lf_conf *c = &r->p->conf;
    int rc = 0;
    for (size_t i = lf_conf_first(c, section); rc == 0 && i != LF_CONF_END; i = c->items[i].next) {
        lf_conf_item *it = &c->items[i];
        if (stage ? is_flow_key(it->key, f->table) : lf_resource_key(it->key))
            continue;
        it->read = true;
        rc = lf_reading_note(r, set_item(f, it, err), err);
    }
    return rc;
}

/* What of the stage's layout is an option of its kind. */
static int set_layout(const lf_reading *r, const struct filled *f, const char *stage, lf_err *err)
{
    lf_conf *c = &r->p->conf;
    const char *section = NULL;
    int rc = lf_layout_section(&section, c, stage, f->table, err);
    if (rc < 0 || section == NULL)
        return lf_reading_note(r, rc, err);
    for (size_t i = lf_conf_first(c, section); rc == 0 && i != LF_CONF_END; i = c->items[i].next) {
        lf_conf_item *it = &c->items[i];
        const lf_opt *o = lf_opt_find(f->table, it->key);
        if (o == NULL && lf_layout_trains(f->table))
            continue;
        it->read = true;
        rc = lf_reading_note(r,
                             o == NULL ? lf_conf_fail_key(it, err,
                                                          "\"%s\" in [%s] is about training; give "
                                                          "[%s], which only runs a model forward, "
                                                          "a layout of its own",
                                                          it->key, section, stage)
                                       : set_option(f->options, f->set, o, it, err),
                             err);
    }
    return rc;
}

/* Of one part of the stage. */
static int set_part(const lf_reading *r, const struct filled *f, const char *stage,
                    const struct lf_layout_part *part, lf_err *err)
{
    lf_conf *c = &r->p->conf;
    const char *section = NULL;
    int rc = lf_layout_part_section(&section, c, stage, part->key, err);
    if (rc < 0 || section == NULL)
        return lf_reading_note(r, rc, err);
    for (size_t i = lf_conf_first(c, section); rc == 0 && i != LF_CONF_END; i = c->items[i].next) {
        lf_conf_item *it = &c->items[i];
        it->read = true;
        rc = lf_reading_note(
            r,
            strcmp(it->key, "tensor") == 0
                ? set_option(f->options, f->set, lf_opt_find(f->table, part->option), it, err)
                : lf_conf_fail_key(it, err,
                                   "\"%s\" in [%s]: %s of [%s] takes tensor alone; give it a "
                                   "layout without %s",
                                   it->key, section, part->key, stage, it->key),
            err);
    }
    return rc;
}

/* Of all parts that its kind has. */
static int set_parts(const lf_reading *r, const struct filled *f, const char *stage, lf_err *err)
{
    size_t n;
    const struct lf_layout_part *parts = lf_layout_parts(&n);
    int rc = 0;
    for (size_t i = 0; i < n && rc == 0; i++)
        if (lf_layout_part_key(parts[i].key, f->table))
            rc = set_part(r, f, stage, &parts[i], err);
    return rc;
}

/* Owned. */
static int canonical(char **out, const lf_optset *set, const lf_opt *o, lf_err *err)
{
    lf_buf b;
    lf_buf_init(&b);
    int rc = lf_optset_canonical(set, o->name, &b, err);
    if (rc == 0 && lf_utf8_check(b.data, b.len) != b.len)
        rc = lf_fail(err, LF_EFORMAT, "%s: the value is not UTF-8", o->name);
    if (rc == 0 && (*out = lf_buf_steal(&b, err)) == NULL)
        rc = LF_ENOMEM;
    lf_buf_fini(&b);
    return rc;
}

/* Options by class, canonical text, only those that differ from the default. Inputs enter the spec
 * id by what they hold, not by how they are called, so they are left out here. */
static int set_classes(lf_doc_stage *stage, const lf_opt_table *t, const lf_optset *set,
                       lf_err *err)
{
    lf_pairs *const classes[] = {[LF_OPT_IDENTITY] = &stage->identity,
                                 [LF_OPT_NUMERIC] = &stage->numeric,
                                 [LF_OPT_OPERATIONAL] = &stage->operational};
    lf_optset *defaults = lf_optset_create(t, err);
    int rc = defaults == NULL ? LF_ENOMEM : 0;
    for (size_t i = 0; i < COUNT(classes); i++)
        classes[i]->given = true;
    stage->types.given = true;
    for (size_t i = 0; rc == 0 && i < t->n_opts; i++) {
        const lf_opt *o = &t->opts[i];
        if (!lf_optset_is_set(set, o->name))
            continue;
        if (o->type == LF_OPT_PATH)
            rc = lf_pairs_add(&stage->types, o->name, "path", err);
        if (rc == 0 && o->was != NULL) {
            stage->renamed.given = true;
            rc = lf_pairs_add(&stage->renamed, o->name, o->was, err);
        }
        if (rc < 0 || (o->flags & LF_OPT_INPUT) != 0)
            continue;
        char *mine = NULL, *def = NULL;
        rc = canonical(&mine, set, o, err);
        if (rc == 0 && o->def != NULL)
            rc = canonical(&def, defaults, o, err);
        if (rc == 0 && !lf_text_same(mine, def))
            rc = lf_pairs_add(classes[o->cls], o->name, mine, err);
        free(mine);
        free(def);
    }
    lf_optset_destroy(defaults);
    return rc;
}

/* ---- one stage ---- */

static int find_table(const lf_opt_table **out, lf_conf *c, const lf_conf_section *s,
                      const lf_pipeline_args *args, lf_err *err)
{
    lf_conf_item *it = lf_conf_find(c, s->name, "kind");
    const char *names[64];
    size_t n = 0;
    for (const lf_opt_table *const *t = args->tables; *t != NULL && n < COUNT(names); t++)
        names[n++] = (*t)->stage;
    if (it == NULL)
        return lf_fail(err, LF_EINVAL, "%s:%d:1: [%s] has no kind; give kind = %s ...", s->path,
                       s->line, s->name, n > 0 ? names[0] : "");
    it->read = true;
    *out = lf_table_find(args->tables, it->value);
    if (*out != NULL)
        return 0;
    char hint[200];
    lf_synonym_hint(hint, sizeof hint, it->value, names, n);
    lf_buf b;
    lf_buf_init(&b);
    for (size_t i = 0; i < n; i++)
        lf_buf_addf(&b, "%s%s", i > 0 ? ", " : "; there are ", names[i]);
    int rc = lf_conf_fail(it, err, "unknown stage kind \"%s\"%s", it->value,
                          hint[0] != '\0' ? hint : b.data);
    lf_buf_fini(&b);
    return rc;
}

static int set_outputs(lf_doc_stage *stage, const lf_opt_table *t, lf_err *err)
{
    int rc = 0;
    stage->outputs.given = true;
    for (const char *const *o = t->outputs; rc == 0 && o != NULL && *o != NULL; o++)
        rc = lf_texts_add(&stage->outputs, *o, err);
    if (t->any_output)
        stage->any_output = lf_flag_of(true);
    return rc;
}

/* What a start hands over to the next one (handover.h). */
static int set_carry(lf_doc_stage *stage, const lf_opt_table *t, lf_err *err)
{
    int rc = 0;
    stage->carry.given = t->carry != NULL;
    for (const lf_opt_carry *c = t->carry; rc == 0 && c != NULL && c->pattern != NULL; c++) {
        lf_doc_carry *mine = lf_rows_add(&stage->carry, sizeof *mine, err);
        rc = mine == NULL ? LF_ENOMEM : lf_text_set(&mine->pattern, c->pattern, "carry", err);
        if (rc == 0)
            mine->grows = lf_flag_of(c->grows);
    }
    return rc;
}

static int set_after(lf_doc_stage *stage, lf_conf *c, const char *section, lf_err *err)
{
    int rc = 0;
    stage->after.given = true;
    lf_conf_item *it = lf_conf_find(c, section, "after");
    if (it == NULL)
        return 0;
    it->read = true;
    char *copy = lf_strdup(it->value, err), *save = NULL;
    if (copy == NULL)
        return LF_ENOMEM;
    for (char *p = strtok_r(copy, ", \t\n", &save); p != NULL && rc == 0;
         p = strtok_r(NULL, ", \t\n", &save)) {
        char full[128];
        snprintf(full, sizeof full, "stage %s", p);
        if (lf_conf_find_section(c, full) == NULL)
            rc = lf_conf_fail(it, err, "after = %s: there is no [stage %s]", p, p);
        else
            rc = lf_texts_add(&stage->after, p, err);
    }
    free(copy);
    return rc;
}

static int set_head(lf_doc_stage *st, const lf_conf_section *s, const lf_opt_table *t, lf_err *err)
{
    int rc = lf_text_set(&st->name, s->name + strlen("stage "), "name", err);
    if (rc == 0)
        rc = lf_text_set(&st->kind, t->stage, "kind", err);
    if (rc == 0)
        rc = lf_text_set(&st->path, s->path, "path", err);
    st->spec_version = lf_int_of(t->spec_version);
    st->line = lf_int_of(s->line);
    st->column = lf_int_of(1);
    st->options.given = true;
    return rc;
}

static int build_stage(lf_doc_stage *st, const lf_reading *r, const lf_conf_section *s, lf_err *err)
{
    lf_conf *c = &r->p->conf;
    const lf_opt_table *t = NULL;
    int rc = find_table(&t, c, s, r->args, err);
    if (rc < 0)
        return rc;
    char kind_section[128];
    snprintf(kind_section, sizeof kind_section, "kind %s", t->stage);
    lf_optset *set = lf_optset_create(t, err);
    const struct filled f = {.options = &st->options, .set = set, .table = t};
    rc = set == NULL ? LF_ENOMEM : set_head(st, s, t, err);
    const size_t before = lf_reading_mistakes(r);
    if (rc == 0)
        rc = set_options_from(r, &f, s->name, true, err);
    if (rc == 0)
        rc = set_options_from(r, &f, kind_section, false, err);
    if (rc == 0)
        rc = set_layout(r, &f, s->name, err);
    if (rc == 0)
        rc = set_parts(r, &f, s->name, err);
    /* An option that is missing may be the one that is misspelled. */
    if (rc == 0 && lf_reading_mistakes(r) == before && (rc = lf_optset_check(set, err)) < 0) {
        lf_err_prefix(err, "%s:%d:1: [%s]", s->path, s->line, s->name);
        rc = lf_reading_note(r, rc, err);
    }
    if (rc == 0)
        rc = set_classes(st, t, set, err);
    if (rc == 0)
        rc = set_outputs(st, t, err);
    if (rc == 0)
        rc = set_carry(st, t, err);
    if (rc == 0)
        rc = lf_reading_note(r, set_after(st, c, s->name, err), err);
    if (rc == 0)
        rc = lf_reading_note(
            r, lf_pipeline_resources(st, c, s->name, kind_section, r->p->plan->scheduler, err),
            err);
    if (rc == 0)
        rc = lf_reading_note(r, lf_layout_nodes(st, c, s->name, t, set, err), err);
    if (rc == 0)
        rc = lf_pipeline_inputs(st, r, t, err);
    if (rc == 0)
        rc = lf_reading_note(r, lf_pipeline_model(&st->model, r, s->name, t, err), err);
    lf_optset_destroy(set);
    return rc;
}

/* ---- the whole ---- */

/* What is told and written when a run ends, and how long telling may take. */
static int set_end_commands(lf_doc *d, lf_conf *c, lf_err *err)
{
    const char *limit = lf_conf_get(c, "pipeline", "on_time_limit", "60s");
    int64_t s = 0;
    lf_err e = LF_ERR_INIT;
    int rc = lf_text_set(&d->on_end, lf_conf_get(c, "pipeline", "on_end", NULL), "on_end", err);
    if (rc == 0)
        rc = lf_text_set(&d->on_fail, lf_conf_get(c, "pipeline", "on_fail", NULL), "on_fail", err);
    if (rc == 0)
        rc = lf_text_set(&d->report, lf_conf_get(c, "pipeline", "report", NULL), "report", err);
    if (rc != 0 || (d->on_end == NULL && d->on_fail == NULL &&
                    lf_conf_find(c, "pipeline", "on_time_limit") == NULL))
        return rc;
    if (lf_parse_duration(&s, limit, &e) < 0 || s < 1 || s > 3600)
        return lf_conf_fail(lf_conf_find(c, "pipeline", "on_time_limit"), err,
                            "on_time_limit = %s: a duration from 1s to 1h", limit);
    d->on_time_limit_s = lf_int_of(s);
    return 0;
}

/* Nothing can be made below a file. A directory that is not there yet is made. */
static int check_data_dir(const lf_pipeline *p, const char *dir, lf_err *err)
{
    char path[PATH_MAX];
    struct stat st;
    const lf_conf_item *own = lf_conf_find(&p->conf, "pipeline", "data_dir");
    const lf_conf_item *it = own != NULL ? own : lf_conf_find(&p->conf, "site", "data_dir");
    int rc = lf_path_set(path, err, "%s%s%s", dir[0] == '/' ? "" : p->project,
                         dir[0] == '/' ? "" : "/", dir);
    while (rc == 0 && stat(path, &st) < 0) {
        char *slash = strrchr(path, '/');
        if (errno != ENOENT && errno != ENOTDIR)
            return 0; /* whoever writes there says why it cannot */
        if (slash == NULL || slash == path)
            return 0;
        *slash = '\0';
    }
    if (rc < 0 || S_ISDIR(st.st_mode))
        return rc;
    return it != NULL
               ? lf_conf_fail(it, err, "data_dir = %s: %s is a file; name a directory", dir, path)
               : lf_fail(err, LF_EINVAL, "data_dir = %s: %s is a file; move it away", dir, path);
}

static int set_pipeline_keys(lf_pipeline *p, lf_err *err)
{
    lf_conf *c = &p->conf;
    const char *base = strrchr(p->path, '/') + 1;
    char def[128];
    snprintf(def, sizeof def, "%.*s",
             (int)(strlen(base) > 4 && lf_str_has_suffix(base, ".ini") ? strlen(base) - 4
                                                                       : strlen(base)),
             base);
    const char *site_sched = lf_conf_get(c, "site", "scheduler", "local");
    const char *jobs_text = lf_conf_get(c, "pipeline", "jobs", "1");
    int64_t jobs = 0;
    lf_err e = LF_ERR_INIT;
    if (lf_parse_i64(&jobs, jobs_text, &e) < 0 || jobs < 1 || jobs > 1000)
        return lf_conf_fail(lf_conf_find(c, "pipeline", "jobs"), err,
                            "jobs = %s: a number of stages at once, 1 to 1000", jobs_text);
    const char *site_dir = lf_conf_get(c, "site", "data_dir", "loong-data");
    const char *dir = lf_conf_get(c, "pipeline", "data_dir", site_dir);
    if (dir[0] == '\0')
        return lf_conf_fail(lf_conf_find(c, "pipeline", "data_dir"), err, "data_dir is empty");
    int rc = lf_path_plain(dir, "data_dir", err);
    if (rc == 0)
        rc = check_data_dir(p, dir, err);
    if (rc < 0)
        return rc;
    const char *desc = lf_conf_get(c, "pipeline", "description", NULL);
    lf_doc *d = p->plan = lf_doc_new(err);
    if (d == NULL)
        return LF_ENOMEM;
    d->jobs = lf_int_of(jobs);
    d->stages.given = true;
    rc = lf_text_set(&d->name, lf_conf_get(c, "pipeline", "name", def), "name", err);
    if (rc == 0)
        rc = lf_text_set(&d->data_dir, dir, "data_dir", err);
    if (rc == 0)
        rc = lf_text_set(&d->scheduler, lf_conf_get(c, "pipeline", "scheduler", site_sched),
                         "scheduler", err);
    if (rc == 0)
        rc = lf_text_set(&d->share, lf_conf_get(c, "pipeline", "share", "none"), "share", err);
    if (rc == 0)
        rc = lf_text_set(&d->pipeline, base, "pipeline", err);
    if (rc == 0)
        rc = lf_text_set(&d->description, desc, "description", err);
    if (rc < 0)
        lf_err_prefix(err, "%s", p->path);
    if (rc == 0)
        rc = set_end_commands(d, c, err);
    return rc == 0 ? lf_pipeline_site(&d->site, c, err) : rc;
}

/* A setting that nobody read does nothing, and a setting that does nothing is a mistake. */
static int check_unread(const lf_conf *c, lf_err *err)
{
    bool set = false; /* --set may have replaced the only value that used a variable */
    for (size_t i = 0; i < c->n_items; i++)
        set = set || strcmp(c->items[i].layer, "--set") == 0;
    for (size_t i = 0; i < c->n_items; i++) {
        const lf_conf_item *it = &c->items[i];
        if (set && strcmp(it->section, "vars") == 0)
            continue;
        if (it->read || it->via != NULL || strcmp(it->layer, "site") == 0 ||
            strcmp(it->layer, "user") == 0)
            continue;
        if (lf_str_has_prefix(it->section, "layout"))
            return lf_conf_fail_key(it, err,
                                    "[%s] is used by no stage; name it with layout = NAME, "
                                    "or remove it",
                                    it->section);
        if (lf_str_has_prefix(it->section, "model"))
            return lf_conf_fail_key(
                it, err, "[%s] is used by no stage; name it with model = NAME, or remove it",
                it->section);
        return lf_conf_fail_key(it, err, "\"%s\" in [%s] is used by nothing; remove it", it->key,
                                it->section);
    }
    return 0;
}

/* Texts of these go into job scripts and command lines as they are. */
static bool goes_into_scripts(const char *key)
{
    static const char *const keys[] = {"prologue", "extra", "rank_prefix"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0)
            return true;
    return false;
}

/* Secrets are known to files by the name of their environment variable only, so there is no place
 * for one in [vars], nor in what is copied into job scripts. */
static int check_secrets(const lf_conf *c, lf_err *err)
{
    for (size_t i = 0; i < c->n_items; i++)
        if (goes_into_scripts(c->items[i].key) && lf_text_has_secret(c->items[i].raw))
            return lf_conf_fail(&c->items[i], err,
                                "%s: the value looks like a secret; scripts are kept, so let the "
                                "job read it from a "
                                "file: NAME=$(cat FILE)",
                                c->items[i].key);
        else if (strcmp(c->items[i].section, "vars") == 0 && lf_name_is_secret(c->items[i].key))
            return lf_conf_fail(
                &c->items[i], err,
                "\"%s\" looks like a secret; a pipeline is copied and kept, so it may not "
                "hold one: stages read secrets from their environment",
                c->items[i].key);
    return 0;
}

static int check_all_keys(const lf_reading *r, lf_err *err)
{
    static const char *const user_keys[] = {"trust"};
    const char *resources[MAX_RESOURCE_KEYS];
    size_t n_site = 0;
    const char *const *site_keys = lf_site_keys(&n_site);
    int rc = check_sections(r, err);
    if (rc == 0)
        rc = lf_reading_note(r, check_secrets(&r->p->conf, err), err);
    if (rc == 0)
        rc = check_keys(r, "pipeline", pipeline_keys, COUNT(pipeline_keys), err);
    if (rc == 0)
        rc = check_keys(r, "resources", resources, lf_resource_keys(resources, MAX_RESOURCE_KEYS),
                        err);
    if (rc == 0)
        rc = check_keys(r, "site", site_keys, n_site, err);
    if (rc == 0)
        rc = check_keys(r, "user", user_keys, COUNT(user_keys), err);
    return rc == 0 ? lf_layout_check(r, err) : rc;
}

/* A stage that cannot be built, such as one without a kind, is left out, so that the others are
 * still looked at. */
static int build_all(const lf_reading *r, lf_err *err)
{
    lf_pipeline *p = r->p;
    int rc = 0;
    size_t found = 0;
    for (size_t i = 0; rc == 0 && i < p->conf.n_sections; i++) {
        lf_conf_section s = p->conf.sections[i];
        if (!lf_str_has_prefix(s.name, "stage "))
            continue;
        found++;
        const size_t before = lf_reading_mistakes(r);
        lf_doc_stage *st = lf_rows_add(&p->plan->stages, sizeof *st, err);
        rc = st == NULL ? LF_ENOMEM : lf_reading_note(r, build_stage(st, r, &s, err), err);
        if (rc == 0 && st->name == NULL)
            p->plan->stages.n--;
        else if (rc == 0 && lf_reading_mistakes(r) > before)
            rc = lf_names_put(&p->doubtful, st->name, "", i, err);
    }
    if (rc == 0 && found == 0 && lf_reading_mistakes(r) == 0)
        rc = lf_fail(err, LF_EINVAL, "%s: there is no [stage NAME] in it", p->path);
    return rc;
}

/* What is left out or wrong makes more look wrong: order and unread keys are looked at when nothing
 * was noted. */
static int check_whole(const lf_reading *r, lf_err *err)
{
    int rc = lf_doc_index(r->p->plan, err);
    if (rc == 0 && lf_reading_mistakes(r) == 0)
        rc = lf_reading_note(r, lf_pipeline_order(r->p->plan, err), err);
    if (rc == 0 && lf_reading_mistakes(r) == 0)
        rc = lf_reading_note(r, check_unread(&r->p->conf, err), err);
    return rc == 0 ? lf_pipeline_cross(r, err) : rc;
}

int lf_pipeline_understand(const lf_reading *r, lf_err *err)
{
    lf_conf *c = &r->p->conf;
    int rc = check_all_keys(r, err);
    for (size_t i = lf_conf_first(c, "sweep"); i != LF_CONF_END; i = c->items[i].next)
        c->items[i].read = true; /* by lf_sweep_read */
    if (rc == 0)
        rc = lf_conf_resolve(c, err);
    if (rc == 0)
        rc = set_pipeline_keys(r->p, err);
    if (rc == 0)
        rc = build_all(r, err);
    return rc == 0 ? check_whole(r, err) : rc;
}

/* The file as it stands, or, where it is a sweep, all its children. */
static int read_all(const lf_reading *r, lf_err *err)
{
    lf_sweep_axes axes;
    int rc = lf_sweep_read(&axes, r, err);
    if (rc < 0)
        return lf_reading_note(r, rc, err) == 0 ? lf_pipeline_understand(r, err) : rc;
    rc = axes.rows.n > 0 ? lf_pipeline_expand(r, &axes, err) : lf_pipeline_understand(r, err);
    lf_sweep_axes_fini(&axes);
    return rc;
}

int lf_pipeline_load(lf_pipeline *out, const lf_pipeline_args *args, lf_err *err)
{
    lf_pipeline p;
    memset(&p, 0, sizeof p);
    const lf_reading r = {.p = &p, .args = args};
    p.path = realpath(args->path, NULL);
    if (p.path == NULL && errno == ENOENT)
        return lf_fail(err, LF_ENOENT,
                       "there is no pipeline file %s; `loong-flow init` writes one, "
                       "`loong-flow init --list` tells for what",
                       args->path);
    if (p.path == NULL)
        return lf_fail_errno(err, "pipeline file %s", args->path);
    p.project = lf_strndup(p.path, (size_t)(strrchr(p.path, '/') - p.path), err);
    int rc = p.project == NULL ? LF_ENOMEM : lf_path_plain(p.path, "the pipeline file", err);
    lf_conf_args ca = {.pipeline_path = args->path, .sets = args->sets, .n_sets = args->n_sets};
    if (rc == 0)
        rc = lf_conf_load(&p.conf, &ca, err);
    if (rc == 0)
        rc = read_all(&r, err);
    if (rc < 0)
        lf_pipeline_fini(&p);
    else
        *out = p;
    return rc;
}

void lf_pipeline_fini(lf_pipeline *p)
{
    if (p->conf.arena != NULL)
        lf_conf_fini(&p->conf);
    lf_doc_free(p->plan);
    lf_names_fini(&p->doubtful);
    free(p->path);
    free(p->project);
    memset(p, 0, sizeof *p);
}
