/* SPDX-License-Identifier: Apache-2.0
 *
 * [sweep] and lists of --set, to axes and children.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/plan/pipeline_priv.h"
#include "flow/plan/sweep.h"

static const char *const sweep_keys[] = {"zip",          "seeds",        "metric",
                                         "max_parallel", "max_children", "max_core_hours",
                                         "method",       "rungs",        "keep"};
#define N_KEYS       (sizeof sweep_keys / sizeof sweep_keys[0])
#define DEF_CHILDREN 100

const char *const *lf_sweep_keys(size_t *n)
{
    *n = N_KEYS;
    return sweep_keys;
}

/* ---- which keys may be swept ---- */

static bool may_differ(const char *section)
{
    static const char *const kinds[] = {"stage ", "template ", "kind ", "model "};
    static const char *const whole[] = {"model", "vars", "resources"};
    bool ok = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        ok = ok || lf_str_has_prefix(section, kinds[i]);
    for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
        ok = ok || strcmp(section, whole[i]) == 0;
    return ok;
}

/* Does such an option take texts that may hold commas? kind NULL: of any kind. */
static bool takes_commas(const lf_opt_table *const *tables, const char *kind, const char *key)
{
    for (; *tables != NULL; tables++) {
        const lf_opt *o =
            kind == NULL || strcmp((*tables)->stage, kind) == 0 ? lf_opt_find(*tables, key) : NULL;
        if (o != NULL &&
            (o->type == LF_OPT_STR || o->type == LF_OPT_PATH || (o->flags & LF_OPT_REPEAT) != 0))
            return true;
    }
    return false;
}

/* Is a value with a comma in it one value for this key? */
static bool is_text(const lf_reading *r, const char *section, const char *key)
{
    static const char *const flow_keys[] = {"after", "inherit", "kind", "model", "rerun_on"};
    const lf_conf *c = &r->p->conf;
    if (!may_differ(section) || strcmp(section, "resources") == 0)
        return true;
    if (strcmp(section, "vars") == 0 || lf_str_has_prefix(section, "model"))
        return false;
    for (size_t i = 0; i < sizeof flow_keys / sizeof flow_keys[0]; i++)
        if (strcmp(key, flow_keys[i]) == 0)
            return true;
    if (lf_resource_key(key))
        return true;
    const lf_conf_item *kind = lf_conf_find(c, section, "kind");
    const char *word = lf_str_has_prefix(section, "kind ") ? section + strlen("kind ")
                       : kind != NULL                      ? kind->raw
                                                           : NULL;
    return takes_commas(r->args->tables, word, key);
}

/* ---- axes ---- */

/* Is the key an axis of the file, which --set may have replaced? */
static bool in_file(const lf_reading *r, const char *name)
{
    return lf_conf_find(&r->p->conf, "sweep", name) != NULL;
}

static lf_sweep_axis *axis_of(lf_sweep_axes *a, const char *name)
{
    for (size_t i = 0; i < a->rows.n; i++)
        if (strcmp(a->rows.v[i].name, name) == 0)
            return &a->rows.v[i];
    return NULL;
}

static int put_axis(lf_sweep_axes *a, const char *name, const lf_conf_item *at, lf_texts *values,
                    lf_err *err)
{
    lf_sweep_axis *x = axis_of(a, name);
    if (x == NULL) {
        x = lf_rows_add(&a->rows, sizeof *x, err);
        if (x == NULL || lf_text_set(&x->name, name, "sweep", err) < 0)
            return LF_ENOMEM;
    }
    lf_texts_fini(&x->values);
    x->values = *values;
    x->at = *at;
    memset(values, 0, sizeof *values);
    return 0;
}

/* An axis of [sweep], unless --set gives the key one value. */
static int read_axis(lf_sweep_axes *a, const lf_reading *r, const lf_conf_item *it, lf_err *err)
{
    char *section = NULL, *key = NULL;
    lf_texts values = {.n = 0};
    bool quoted;
    lf_err e = LF_ERR_INIT;
    const lf_conf *c = &r->p->conf;
    int rc = lf_conf_split(&section, &key, c, it->key, err);
    if (rc < 0)
        return rc;
    const lf_conf_item *now = lf_conf_find(c, section, key);
    if (!may_differ(section))
        rc = lf_conf_fail(it, err,
                          "%s: a sweep takes keys of stages, templates, kinds, models, [vars] and "
                          "[resources], and there is no such section",
                          it->key);
    else if (now != NULL && strcmp(now->layer, "--set") == 0)
        rc = 0;
    else if ((rc = lf_sweep_values(&values, &quoted, it->raw, &e)) < 0)
        rc = rc == LF_ENOMEM ? lf_fail(err, rc, "%s", e.text)
                             : lf_conf_fail(it, err, "%s: %s", it->key, e.text);
    else
        rc = put_axis(a, it->key, it, &values, err);
    lf_texts_fini(&values);
    free(section);
    free(key);
    return rc;
}

/* --set NAME=VALUE: is VALUE a list? Then it is an axis, and leaves the sets. */
static int read_set(lf_sweep_axes *a, const lf_reading *r, const char *arg, lf_err *err)
{
    const char *eq = strchr(arg, '=');
    const lf_conf_item at = {.layer = "--set", .path = "--set"};
    char *name = lf_strndup(arg, (size_t)(eq - arg), err), *section = NULL, *key = NULL;
    lf_texts values = {.n = 0};
    bool quoted = false, axis = false;
    lf_err e = LF_ERR_INIT;
    int rc = name == NULL ? LF_ENOMEM : lf_conf_split(&section, &key, &r->p->conf, name, err);
    if (rc == 0 && strcmp(section, "sweep") != 0 && may_differ(section)) {
        const bool text = !in_file(r, name) && is_text(r, section, key),
                   list = strpbrk(eq + 1, ",\n") != NULL;
        /* Only a list can be wrong as one. */
        const int read = lf_sweep_values(&values, &quoted, eq + 1, &e);
        axis = read == 0 && (text ? quoted && values.n > 1 : values.n > 1 || quoted);
        if (read == LF_ENOMEM || (read < 0 && list && !text))
            rc = lf_fail(err, read, "--set %s: %s", name, e.text);
    }
    if (rc == 0 && axis)
        rc = put_axis(a, name, &at, &values, err);
    if (rc == 0 && !axis)
        a->sets[a->n_sets++] = arg;
    lf_texts_fini(&values);
    free(name);
    free(section);
    free(key);
    return rc;
}

static int read_axes(lf_sweep_axes *a, const lf_reading *r, lf_err *err)
{
    const lf_conf *c = &r->p->conf;
    int rc = 0;
    for (size_t i = lf_conf_first(c, "sweep"); rc == 0 && i != LF_CONF_END; i = c->items[i].next)
        if (strchr(c->items[i].key, '.') != NULL)
            rc = read_axis(a, r, &c->items[i], err);
    for (size_t i = 0; rc == 0 && i < r->args->n_sets; i++)
        rc = read_set(a, r, r->args->sets[i], err);
    return rc;
}

/* ---- zip ---- */

/* Axes of one group go together; axes that no line names are a group each. */
static int zip_line(lf_sweep_axes *a, const lf_reading *r, const lf_conf_item *it, char *line,
                    lf_err *err)
{
    char *save = NULL;
    const lf_sweep_axis *first = NULL;
    for (char *w = strtok_r(line, " ,\t", &save); w != NULL; w = strtok_r(NULL, " ,\t", &save)) {
        lf_sweep_axis *x = axis_of(a, w);
        if (x == NULL && in_file(r, w))
            continue; /* --set gives it one value */
        if (x == NULL)
            return lf_conf_fail(it, err, "zip: %s is no axis of this sweep", w);
        if (first == NULL)
            first = x;
        if (x->values.n != first->values.n)
            return lf_conf_fail(it, err, "zip: %s has %zu values and %s %zu; they go in pairs",
                                first->name, first->values.n, x->name, x->values.n);
        x->group = first->group;
    }
    return 0;
}

static int read_zip(lf_sweep_axes *a, const lf_reading *r, lf_err *err)
{
    const lf_conf_item *it = lf_conf_find(&r->p->conf, "sweep", "zip");
    for (size_t i = 0; i < a->rows.n; i++)
        a->rows.v[i].group = i;
    char *text = it != NULL ? lf_strdup(it->raw, err) : NULL, *save = NULL;
    int rc = it != NULL && text == NULL ? LF_ENOMEM : 0;
    for (char *l = text != NULL ? strtok_r(text, "\n", &save) : NULL; rc == 0 && l != NULL;
         l = strtok_r(NULL, "\n", &save))
        rc = zip_line(a, r, it, l, err);
    free(text);
    return rc;
}

/* ---- children ---- */

static int count_children(lf_sweep_axes *a, const lf_reading *r, lf_err *err)
{
    const lf_conf_item *it = lf_conf_find(&r->p->conf, "sweep", "max_children");
    int64_t most = DEF_CHILDREN;
    lf_err e = LF_ERR_INIT;
    if (it != NULL && (lf_parse_i64(&most, it->raw, &e) < 0 || most < 1 || most > LF_SWEEP_MOST))
        return lf_conf_fail(it, err, "max_children = %s: a number from 1 to %d", it->raw,
                            LF_SWEEP_MOST);
    int64_t n = 1;
    for (size_t i = 0; i < a->rows.n; i++)
        if (a->rows.v[i].group == i) {
            n *= (int64_t)a->rows.v[i].values.n; /* both are below 2^20 */
            if (n > most)
                return lf_conf_fail(&a->rows.v[i].at, err,
                                    "the sweep has more than %lld children (%s and the axes before "
                                    "it); raise max_children of [sweep], or leave values out",
                                    (long long)most, a->rows.v[i].name);
        }
    a->n_children = (size_t)n;
    return 0;
}

/* Which value of axis i child k has: the last group is the fastest. */
static size_t place_of(const lf_sweep_axes *a, size_t k, size_t i)
{
    for (size_t g = a->rows.n; g-- > 0;) {
        const size_t n = a->rows.v[g].values.n;
        if (a->rows.v[g].group != g)
            continue;
        if (g == a->rows.v[i].group)
            return k % n;
        k /= n;
    }
    return 0;
}

int lf_sweep_child_of(lf_sweep_child *out, lf_conf_set *over, const lf_sweep_axes *a, size_t k,
                      lf_err *err)
{
    int rc = 0;
    out->number = lf_int_of((int64_t)k + 1);
    out->settings.given = out->stages.given = true;
    for (size_t i = 0; rc == 0 && i < a->rows.n; i++) {
        const lf_sweep_axis *x = &a->rows.v[i];
        const char *value = x->values.v[place_of(a, k, i)];
        over[i] = (lf_conf_set){.name = x->name,
                                .value = value,
                                .layer = x->at.layer,
                                .path = x->at.path,
                                .line = x->at.line,
                                .column = x->at.column};
        rc = lf_pairs_add(&out->settings, x->name, value, err);
    }
    return rc;
}

/* ---- the other keys ---- */

static int read_seeds(lf_texts *out, lf_sweep_axes *a, const lf_reading *r, const lf_conf_item *it,
                      lf_err *err)
{
    char *text = lf_strdup(it->raw, err), *save = NULL;
    int rc = text == NULL ? LF_ENOMEM : 0;
    for (char *w = rc == 0 ? strtok_r(text, " ,\t\n", &save) : NULL; rc == 0 && w != NULL;
         w = strtok_r(NULL, " ,\t\n", &save)) {
        if (axis_of(a, w) != NULL)
            rc = lf_texts_add(out, w, err);
        else if (!in_file(r, w))
            rc = lf_conf_fail(it, err, "%s: %s is no axis of this sweep", it->key, w);
    }
    free(text);
    return rc;
}

static int read_metric(lf_sweep *s, const lf_conf_item *it, lf_err *err)
{
    char stage[128], key[128], goal[16] = "min", rest[2];
    int n = sscanf(it->raw, "%127[^. \t].%127s %15s %1s", stage, key, goal, rest);
    if (n < 2 || n > 3 || (strcmp(goal, "min") != 0 && strcmp(goal, "max") != 0))
        return lf_conf_fail(it, err,
                            "metric = %s: STAGE.KEY, and min or max behind it, as in "
                            "train.valid_loss min",
                            it->raw);
    int rc = lf_text_set(&s->metric_stage, stage, "metric", err);
    if (rc == 0)
        rc = lf_text_set(&s->metric, key, "metric", err);
    return rc == 0 ? lf_text_set(&s->goal, goal, "metric", err) : rc;
}

static int read_numbers(lf_sweep *s, const lf_conf *c, lf_err *err)
{
    const lf_conf_item *most = lf_conf_find(c, "sweep", "max_parallel");
    const lf_conf_item *hours = lf_conf_find(c, "sweep", "max_core_hours");
    int64_t n = 0;
    double h = 0;
    lf_err e = LF_ERR_INIT;
    if (most != NULL && (lf_parse_i64(&n, most->raw, &e) < 0 || n < 1 || n > 1000))
        return lf_conf_fail(most, err, "max_parallel = %s: a number of stages at once, 1 to 1000",
                            most->raw);
    if (hours != NULL && (lf_parse_f64(&h, hours->raw, &e) < 0 || h <= 0))
        return lf_conf_fail(hours, err, "max_core_hours = %s: a number above 0", hours->raw);
    if (most != NULL)
        s->max_parallel = lf_int_of(n);
    if (hours != NULL)
        s->max_core_hours = lf_real_of(h);
    return 0;
}

static int read_steps(lf_sweep *s, const lf_conf_item *it, lf_err *err)
{
    bool quoted;
    int64_t step, last = 0;
    lf_err e = LF_ERR_INIT;
    int rc = lf_sweep_values(&s->rungs, &quoted, it->raw, &e);
    if (rc < 0)
        return lf_conf_fail(it, err, "rungs: %s", e.text);
    for (size_t i = 0; i < s->rungs.n; i++) {
        if (lf_parse_count(&step, s->rungs.v[i], &e) < 0 || step <= last)
            return lf_conf_fail(it, err, "rungs = %s: steps that rise, from 1", it->raw);
        last = step;
    }
    return 0;
}

/* "1/3" or "0.5". */
static int read_keep(lf_sweep *s, const lf_conf_item *it, lf_err *err)
{
    char a[32], b[32] = "1", rest[2];
    double n = 0, of = 1;
    const int got = sscanf(it->raw, "%31[0-9.] / %31[0-9.] %1s", a, b, rest);
    if (got < 1 || got > 2 || lf_parse_f64(&n, a, NULL) < 0 || lf_parse_f64(&of, b, NULL) < 0 ||
        !(n > 0) || !(n < of))
        return lf_conf_fail(it, err, "keep = %s: a share between 0 and 1, such as 1/3", it->raw);
    s->keep = lf_real_of(n / of);
    return 0;
}

static int read_method(lf_sweep *s, const lf_conf *c, lf_err *err)
{
    const lf_conf_item *method = lf_conf_find(c, "sweep", "method");
    const lf_conf_item *rungs = lf_conf_find(c, "sweep", "rungs");
    const lf_conf_item *keep = lf_conf_find(c, "sweep", "keep");
    const bool halving = method != NULL && strcmp(method->raw, "halving") == 0;
    if (method != NULL && !halving && strcmp(method->raw, "grid") != 0)
        return lf_conf_fail(method, err, "method = %s: grid or halving", method->raw);
    if (!halving && (rungs != NULL || keep != NULL))
        return lf_conf_fail(rungs != NULL ? rungs : keep, err,
                            "%s is for method = halving; set it, or remove this",
                            rungs != NULL ? "rungs" : "keep");
    if (!halving)
        return 0;
    if (rungs == NULL || s->metric == NULL)
        return lf_conf_fail(method, err, "method = halving needs %s",
                            rungs == NULL ? "rungs, the steps at which children are compared"
                                          : "metric, what children are compared by");
    s->keep = lf_real_of(0.5);
    int rc = read_steps(s, rungs, err);
    return rc == 0 && keep != NULL ? read_keep(s, keep, err) : rc;
}

static int check_keys(const lf_conf *c, lf_err *err)
{
    for (size_t i = lf_conf_first(c, "sweep"); i != LF_CONF_END; i = c->items[i].next) {
        const lf_conf_item *it = &c->items[i];
        bool known = strchr(it->key, '.') != NULL;
        for (size_t k = 0; k < N_KEYS; k++)
            known = known || strcmp(it->key, sweep_keys[k]) == 0;
        const char *near = known ? NULL : lf_nearest(it->key, sweep_keys, N_KEYS);
        if (!known)
            return lf_conf_fail(it, err,
                                "unknown key \"%s\" in [sweep]%s%s%s; an axis is SECTION.KEY",
                                it->key, near != NULL ? "; did you mean \"" : "",
                                near != NULL ? near : "", near != NULL ? "\"?" : "");
    }
    return 0;
}

static int read_rest(lf_sweep_axes *a, const lf_reading *r, lf_err *err)
{
    const lf_conf *c = &r->p->conf;
    const lf_conf_item *seeds = lf_conf_find(c, "sweep", "seeds");
    const lf_conf_item *metric = lf_conf_find(c, "sweep", "metric");
    int rc = check_keys(c, err);
    if (rc == 0)
        rc = read_numbers(&a->sweep, c, err);
    if (rc == 0 && seeds != NULL)
        rc = read_seeds(&a->sweep.seeds, a, r, seeds, err);
    if (rc == 0 && metric != NULL)
        rc = read_metric(&a->sweep, metric, err);
    if (rc == 0)
        rc = read_method(&a->sweep, c, err);
    for (size_t i = 0; rc == 0 && i < a->rows.n; i++) {
        lf_texts *list = lf_lists_add(&a->sweep.axes, a->rows.v[i].name, err);
        rc = list == NULL ? LF_ENOMEM : 0;
        for (size_t k = 0; rc == 0 && k < a->rows.v[i].values.n; k++)
            rc = lf_texts_add(list, a->rows.v[i].values.v[k], err);
    }
    a->sweep.given = a->rows.n > 0;
    a->sweep.children.given = true;
    return rc;
}

int lf_sweep_read(lf_sweep_axes *out, const lf_reading *r, lf_err *err)
{
    lf_sweep_axes a;
    memset(&a, 0, sizeof a);
    const lf_conf_section *s = lf_conf_find_section(&r->p->conf, "sweep");
    a.sets = lf_calloc(r->args->n_sets + 1, sizeof *a.sets, err);
    int rc = a.sets == NULL ? LF_ENOMEM : read_axes(&a, r, err);
    if (rc == 0 && a.rows.n > 0)
        rc = read_zip(&a, r, err);
    if (rc == 0 && (a.rows.n > 0 || s != NULL))
        rc = read_rest(&a, r, err);
    if (rc == 0 && a.rows.n > 0)
        rc = count_children(&a, r, err);
    if (rc < 0)
        lf_sweep_axes_fini(&a);
    else
        *out = a;
    return rc;
}

void lf_sweep_axes_fini(lf_sweep_axes *a)
{
    for (size_t i = 0; i < a->rows.n; i++) {
        free(a->rows.v[i].name);
        lf_texts_fini(&a->rows.v[i].values);
    }
    free(a->rows.v);
    free(a->sets);
    lf_sweep_fini(&a->sweep);
    memset(a, 0, sizeof *a);
}
