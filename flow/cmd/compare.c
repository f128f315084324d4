/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs side by side.
 */
#include "config.h"

#include "flow/cmd/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "db/ledger.h"
#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/record/fields.h"
#include "flow/report/report.h"
#include "flow/run/asking.h"
#include "flow/run/known.h"

/* What the ledger says of a metric of an attempt, in their order. */
struct extreme {
    char *run, *stage, *key;
    lf_real last, min, max;
};
static const struct lf_fields extreme_fields =
    LF_FIELDS(struct extreme, LF_MEMBERS(struct extreme, run, stage, key, last, min, max));

struct side {
    lf_compared_run of;
    lf_pairs stages;            /* name: kind */
    const lf_stage_shown *main; /* the stage that trains last, NULL: none */
    size_t first, n;            /* its part of the extremes */
};

struct lf_comparison {
    struct side *sides;
    size_t n;
    const lf_opt_table *const *tables;
    LF_ROWS(struct extreme) extremes; /* by run */
};

/* ---- making ---- */

static const lf_stage_shown *main_stage(const lf_run_shown *run)
{
    const lf_stage_shown *hit = NULL, *any = NULL;
    for (size_t i = 0; i < run->stages.n; i++) {
        const lf_stage_shown *s = &run->stages.v[i];
        double v;
        if (lf_metric_trains(s->kind))
            hit = s;
        if (s->metrics != NULL && lf_raw_number(&v, s->metrics, lf_metric_main_of(s->kind)->key))
            any = s;
    }
    return hit != NULL ? hit : any;
}

static int add_side(struct side *s, const lf_compared_run *of, lf_err *err)
{
    int rc = 0;
    s->of = *of;
    s->main = main_stage(of->shown);
    for (size_t i = 0; rc == 0 && i < of->shown->stages.n; i++)
        rc =
            lf_pairs_add(&s->stages, of->shown->stages.v[i].name, of->shown->stages.v[i].kind, err);
    return rc;
}

/* Without a ledger, or with an older one, there are last values only. */
static void ask_ledger(lf_comparison *c, const lf_project *p)
{
    lf_buf sql;
    lf_buf_init(&sql);
    /* upto: the step where the next attempt began, 0 where it trained all again. What an attempt
     * has recorded behind it is no part of the curve. */
    lf_buf_adds(&sql, "SELECT run, stage, key, last, CASE WHEN min_step <= upto THEN min END AS "
                      "min, CASE WHEN max_step <= upto THEN max END AS max FROM (SELECT m.*, "
                      "coalesce((SELECT min(s.after) FROM metric_span s WHERE s.run = m.run AND "
                      "s.stage = m.stage AND s.attempt > m.attempt), 9e18) AS upto FROM metric m) "
                      "WHERE upto > 0 AND run IN (''");
    for (size_t i = 0; i < c->n; i++)
        if (lf_ulid_valid(c->sides[i].of.shown->run))
            lf_buf_addf(&sql, ",'%s'", c->sides[i].of.shown->run);
    lf_buf_adds(&sql, ") ORDER BY run, attempt");
    lf_ledger *l = lf_buf_check(&sql, NULL) == 0 ? lf_ask_open(p, NULL) : NULL;
    if (l == NULL ||
        lf_fields_list(&c->extremes, &extreme_fields, lf_ledger_sql(l, sql.data, NULL), NULL) < 0)
        c->extremes.n = 0;
    lf_ledger_close(l);
    lf_buf_fini(&sql);
    for (size_t k = 0; k < c->extremes.n; k++)
        for (size_t i = 0; i < c->n; i++)
            if (strcmp(c->sides[i].of.shown->run, c->extremes.v[k].run) == 0) {
                c->sides[i].first = c->sides[i].n == 0 ? k : c->sides[i].first;
                c->sides[i].n++;
            }
}

lf_comparison *lf_comparison_open(const lf_compared_run *runs, size_t n, const lf_project *p,
                                  const lf_opt_table *const *tables, lf_err *err)
{
    lf_comparison *c = lf_calloc(1, sizeof *c, err);
    if (c == NULL)
        return NULL;
    c->tables = tables;
    c->sides = lf_calloc(n + 1, sizeof *c->sides, err);
    int rc = c->sides == NULL ? LF_ENOMEM : 0;
    for (; rc == 0 && c->n < n; c->n++)
        rc = add_side(&c->sides[c->n], &runs[c->n], err);
    if (rc < 0) {
        lf_comparison_close(c);
        return NULL;
    }
    ask_ledger(c, p);
    return c;
}

void lf_comparison_close(lf_comparison *c)
{
    if (c == NULL)
        return;
    for (size_t i = 0; i < c->n; i++)
        lf_pairs_fini(&c->sides[i].stages);
    lf_fields_list_fini(&c->extremes, &extreme_fields);
    free(c->sides);
    free(c);
}

/* ---- settings ---- */

static lf_settings_run settings_of(const struct side *s)
{
    return (lf_settings_run){.settings = s->of.settings, .stages = &s->stages};
}

int lf_comparison_settings(lf_texts *out, const lf_comparison *c, lf_err *err)
{
    lf_settings_run *runs = lf_calloc(c->n + 1, sizeof *runs, err);
    if (runs == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < c->n; i++)
        runs[i] = settings_of(&c->sides[i]);
    int rc = lf_settings_differing(out, runs, c->n, c->tables, err);
    free(runs);
    return rc;
}

/* ---- metrics ---- */

enum what { LAST, MIN, MAX };

static double least(double v, const lf_real *x)
{
    return x->given && !(v <= x->v) ? x->v : v;
}

/* What the ledger knows, which may be behind, and the last record. */
static double value_in(const lf_comparison *c, const struct side *s, const lf_stage_shown *stage,
                       const char *key, enum what what)
{
    double now = NAN, v = NAN;
    if (stage == NULL)
        return NAN;
    if (stage->metrics == NULL || !lf_raw_number(&now, stage->metrics, key))
        now = NAN;
    for (size_t k = s->first; k < s->first + s->n; k++) {
        const struct extreme *e = &c->extremes.v[k];
        if (strcmp(e->stage, stage->name) == 0 && strcmp(e->key, key) == 0)
            v = what == MIN   ? least(v, &e->min)
                : what == MAX ? -least(-v, &(lf_real){.v = -e->max.v, .given = e->max.given})
                              : e->last.v;
    }
    if (what == MIN && !isnan(now))
        v = v < now ? v : now;
    else if (what == MAX && !isnan(now))
        v = v > now ? v : now;
    else if (!isnan(now))
        v = now;
    return v;
}

static const lf_stage_shown *stage_of(const struct side *s, const char *name, size_t len)
{
    for (size_t i = 0; i < s->of.shown->stages.n; i++) {
        const lf_stage_shown *st = &s->of.shown->stages.v[i];
        if (strlen(st->name) == len && strncmp(st->name, name, len) == 0)
            return st;
    }
    return NULL;
}

/* The metric that the run is judged by; NULL: it has none. */
static const char *judge(const lf_comparison *c, const struct side *s, bool best, bool *max)
{
    const lf_metric_main *m = s->main != NULL ? lf_metric_main_of(s->main->kind) : NULL;
    if (m == NULL)
        return NULL;
    *max = m->max;
    return best && !isnan(value_in(c, s, s->main, m->valid, LAST)) ? m->valid : m->key;
}

static double metric(const lf_comparison *c, const struct side *s, const char *name)
{
    bool max = false;
    if (strcmp(name, "last") == 0 || strcmp(name, "best") == 0) {
        bool best = name[0] == 'b';
        const char *key = judge(c, s, best, &max);
        return key == NULL ? (double)NAN
                           : value_in(c, s, s->main, key,
                                      !best ? LAST
                                      : max ? MAX
                                            : MIN);
    }
    enum what what = lf_str_has_prefix(name, "min.")   ? MIN
                     : lf_str_has_prefix(name, "max.") ? MAX
                                                       : LAST;
    const char *word = what == LAST ? name : name + 4;
    double v = value_in(c, s, s->main, word, what);
    for (const char *dot = strchr(word, '.'); isnan(v) && dot != NULL; dot = strchr(dot + 1, '.'))
        v = value_in(c, s, stage_of(s, word, (size_t)(dot - word)), dot + 1, what);
    return v;
}

void lf_comparison_title(char *buf, size_t cap, const lf_comparison *c, const char *name)
{
    const char *all = NULL;
    bool max, same = true, best = strcmp(name, "best") == 0;
    for (size_t i = 0; i < c->n; i++) {
        const char *key = judge(c, &c->sides[i], best, &max);
        same = same && (key == NULL || all == NULL || strcmp(key, all) == 0);
        all = key != NULL ? key : all;
    }
    if (same && all != NULL)
        snprintf(buf, cap, "%s%s", best ? "best " : "", all);
    else
        snprintf(buf, cap, "%s", name);
}

/* ---- cells ---- */

char *lf_comparison_cell(const lf_comparison *c, size_t i, const char *name, lf_err *err)
{
    const lf_settings_run r = settings_of(&c->sides[i]);
    const char *said = lf_setting_value(&r, c->tables, name);
    char text[32];
    if (said != NULL)
        return lf_strdup(said[0] != '\0' ? said : "-", err);
    double v = metric(c, &c->sides[i], name);
    return lf_strdup(isnan(v) ? "-" : lf_fmt_value(text, sizeof text, v), err);
}

double lf_comparison_number(const lf_comparison *c, size_t i, const char *name)
{
    const lf_settings_run r = settings_of(&c->sides[i]);
    const char *said = lf_setting_value(&r, c->tables, name);
    double v;
    if (said == NULL)
        return metric(c, &c->sides[i], name);
    return lf_parse_f64(&v, said, NULL) == 0 ? v : (double)NAN;
}

bool lf_comparison_has(const lf_comparison *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++) {
        const lf_settings_run r = settings_of(&c->sides[i]);
        if (lf_setting_value(&r, c->tables, name) != NULL || !isnan(metric(c, &c->sides[i], name)))
            return true;
    }
    return false;
}

static int add_name(lf_texts *out, const char *name, lf_err *err)
{
    return lf_texts_has(out, name) ? 0 : lf_texts_add(out, name, err);
}

int lf_comparison_names(lf_texts *out, const lf_comparison *c, lf_err *err)
{
    lf_texts names = {.given = true};
    int rc = lf_texts_add(&names, "last", err);
    if (rc == 0)
        rc = lf_texts_add(&names, "best", err);
    for (size_t i = 0; rc == 0 && i < c->n; i++) {
        const struct side *s = &c->sides[i];
        for (size_t k = 0; rc == 0 && k < s->of.settings->n; k++)
            rc = add_name(&names, s->of.settings->v[k].name, err);
        for (size_t k = s->first; rc == 0 && k < s->first + s->n; k++)
            if (s->main != NULL && strcmp(c->extremes.v[k].stage, s->main->name) == 0)
                rc = add_name(&names, c->extremes.v[k].key, err);
    }
    if (rc < 0)
        lf_texts_fini(&names);
    else
        *out = names;
    return rc;
}
