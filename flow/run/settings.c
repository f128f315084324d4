/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings of runs side by side.
 */
#include "config.h"

#include "flow/run/settings.h"

#include <stdio.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/plan/pipeline.h"

static int add(lf_pairs *out, const char *stage, const char *key, const char *value, lf_err *err)
{
    char name[200];
    snprintf(name, sizeof name, "%s.%s", stage, key);
    return lf_pairs_get(out, name) == NULL ? lf_pairs_add(out, name, value, err) : 0;
}

static int add_pairs(lf_pairs *out, const char *stage, const lf_pairs *of, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < of->n; i++)
        rc = add(out, stage, of->v[i].name, of->v[i].value, err);
    return rc;
}

/* Inputs stand as paths and references among the options, and nowhere else by a readable name. */
static int add_inputs(lf_pairs *out, const lf_doc_stage *st, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < st->options.n; i++) {
        const lf_list *o = &st->options.v[i];
        if (lf_pairs_get(&st->types, o->name) == NULL)
            continue;
        lf_buf b;
        lf_buf_init(&b);
        for (size_t k = 0; k < o->values.n; k++)
            lf_buf_addf(&b, "%s%s", k > 0 ? "," : "", o->values.v[k]);
        rc = lf_buf_check(&b, err);
        if (rc == 0)
            rc = add(out, st->name, o->name, b.data, err);
        lf_buf_fini(&b);
    }
    return rc;
}

int lf_settings_of(lf_pairs *out, const lf_doc *plan, lf_err *err)
{
    lf_pairs all = {.given = true};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < plan->stages.n; i++) {
        const lf_doc_stage *st = &plan->stages.v[i];
        rc = add_pairs(&all, st->name, &st->identity, err);
        if (rc == 0)
            rc = add_pairs(&all, st->name, &st->numeric, err);
        if (rc == 0)
            rc = add_pairs(&all, st->name, &st->operational, err);
        if (rc == 0)
            rc = add_inputs(&all, st, err);
        if (rc == 0)
            rc = add_pairs(&all, "model", &st->model, err);
    }
    if (rc < 0)
        lf_pairs_fini(&all);
    else
        *out = all;
    return rc;
}

/* The option that a setting is of, NULL: of none. */
static const lf_opt *option_of(const lf_settings_run *r, const lf_opt_table *const *tables,
                               const char *name)
{
    const char *dot = strchr(name, '.');
    char stage[128];
    snprintf(stage, sizeof stage, "%.*s", dot != NULL ? (int)(dot - name) : 0, name);
    const char *kind = lf_pairs_get(r->stages, stage);
    const lf_opt_table *t = kind != NULL ? lf_table_find(tables, kind) : NULL;
    return t != NULL ? lf_opt_find(t, dot + 1) : NULL;
}

const char *lf_setting_value(const lf_settings_run *r, const lf_opt_table *const *tables,
                             const char *name)
{
    const char *said = lf_pairs_get(r->settings, name);
    const lf_opt *o = said == NULL ? option_of(r, tables, name) : NULL;
    return o != NULL ? o->def : said;
}

static bool differs(const lf_settings_run *runs, size_t n, const lf_opt_table *const *tables,
                    const char *name)
{
    const char *first = NULL;
    for (size_t i = 0; i < n; i++) {
        const lf_opt *o = option_of(&runs[i], tables, name);
        if (o != NULL && o->cls == LF_OPT_OPERATIONAL)
            return false;
        const char *v = lf_setting_value(&runs[i], tables, name);
        if (v != NULL && first != NULL && strcmp(v, first) != 0)
            return true;
        first = v != NULL ? v : first;
    }
    return false;
}

int lf_settings_differing(lf_texts *out, const lf_settings_run *runs, size_t n,
                          const lf_opt_table *const *tables, lf_err *err)
{
    lf_texts names = {.given = true};
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; rc == 0 && k < runs[i].settings->n; k++) {
            const char *name = runs[i].settings->v[k].name;
            if (!lf_texts_has(&names, name) && differs(runs, n, tables, name))
                rc = lf_texts_add(&names, name, err);
        }
    if (rc < 0)
        lf_texts_fini(&names);
    else
        *out = names;
    return rc;
}
