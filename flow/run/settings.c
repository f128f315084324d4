/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings of runs side by side.
 */
#include "config.h"

#include "flow/run/settings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
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

static int by_text(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Of n values, how many are not the most frequent one. Sorts them. */
static size_t count_apart(const char **values, size_t n)
{
    size_t most = 0, same = 0;
    if (n > 0)
        qsort(values, n, sizeof *values, by_text);
    for (size_t i = 0; i < n; i++) {
        same = i > 0 && strcmp(values[i], values[i - 1]) == 0 ? same + 1 : 1;
        most = same > most ? same : most;
    }
    return n - most;
}

/* How many runs stand apart in a setting; 0 for an operational one. room: for n values. */
static size_t apart(const char **room, const lf_settings_run *runs, size_t n,
                    const lf_opt_table *const *tables, const char *name)
{
    size_t given = 0;
    for (size_t i = 0; i < n; i++) {
        const lf_opt *o = option_of(&runs[i], tables, name);
        if (o != NULL && o->cls == LF_OPT_OPERATIONAL)
            return 0;
        const char *v = lf_setting_value(&runs[i], tables, name);
        if (v != NULL)
            room[given++] = v;
    }
    return count_apart(room, given);
}

/* A setting that differs. */
struct differing {
    const char *name;
    size_t apart, place; /* place: among the settings as they were said */
};

static int most_apart_first(const void *a, const void *b)
{
    const struct differing *x = a, *y = b;
    if (x->apart != y->apart)
        return x->apart > y->apart ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Names of all settings of the runs, each once. */
static int all_names(lf_texts *names, const lf_settings_run *runs, size_t n, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; rc == 0 && k < runs[i].settings->n; k++)
            if (!lf_texts_has(names, runs[i].settings->v[k].name))
                rc = lf_texts_add(names, runs[i].settings->v[k].name, err);
    return rc;
}

static int rank(lf_texts *out, const lf_texts *names, const lf_settings_run *runs, size_t n,
                const lf_opt_table *const *tables, lf_err *err)
{
    const char **room = lf_calloc(n + 1, sizeof *room, err);
    struct differing *list = lf_calloc(names->n + 1, sizeof *list, err);
    int rc = room == NULL || list == NULL ? LF_ENOMEM : 0;
    size_t found = 0;
    for (size_t k = 0; rc == 0 && k < names->n; k++) {
        size_t a = apart(room, runs, n, tables, names->v[k]);
        if (a > 0)
            list[found++] = (struct differing){names->v[k], a, k};
    }
    if (found > 0)
        qsort(list, found, sizeof *list, most_apart_first);
    for (size_t k = 0; rc == 0 && k < found; k++)
        rc = lf_texts_add(out, list[k].name, err);
    free(room);
    free(list);
    return rc;
}

int lf_settings_differing(lf_texts *out, const lf_settings_run *runs, size_t n,
                          const lf_opt_table *const *tables, lf_err *err)
{
    lf_texts names = {.given = true}, ranked = {.given = true};
    int rc = all_names(&names, runs, n, err);
    if (rc == 0)
        rc = rank(&ranked, &names, runs, n, tables, err);
    lf_texts_fini(&names);
    if (rc < 0)
        lf_texts_fini(&ranked);
    else
        *out = ranked;
    return rc;
}
