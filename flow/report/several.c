/* SPDX-License-Identifier: Apache-2.0
 *
 * A page about several runs: in what they differ, what came of it, their curves over each other.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "flow/record/record.h"
#include "flow/record/units.h"
#include "flow/report/report.h"
#include "flow/run/project.h"
#include "flow/run/settings.h"

enum { MAX_SETTINGS = 24 };

struct several {
    const lf_facts *facts;
    size_t n;
    const lf_opt_table *const *tables;
    struct side {
        lf_pairs settings, stages;
    } * sides;
    lf_settings_run *runs; /* borrow from sides */
    lf_texts differing;    /* names of settings */
    size_t n_settings;     /* of differing, that are shown */
    char (*names)[96];     /* of the runs, for legends */
};

static const lf_facts_stage *stage_of(const lf_facts *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->stages[i].view->plan->name, name) == 0)
            return &f->stages[i];
    return NULL;
}

static const char *label_of(const struct several *v, size_t run)
{
    return lf_run_label(&v->facts[run].view->run);
}

/* ---- settings that differ ---- */

static const char *value_of(const struct several *v, size_t run, const char *setting)
{
    return lf_setting_value(&v->runs[run], v->tables, setting);
}

static int add_side(struct side *s, const lf_facts *f, lf_err *err)
{
    int rc = lf_settings_of(&s->settings, f->view->run.plan, err);
    for (size_t i = 0; rc == 0 && i < f->n; i++)
        rc = lf_pairs_add(&s->stages, f->stages[i].view->plan->name, f->stages[i].view->plan->kind,
                          err);
    return rc;
}

static int find_settings(struct several *v, lf_err *err)
{
    int rc = 0;
    for (size_t r = 0; rc == 0 && r < v->n; r++) {
        rc = add_side(&v->sides[r], &v->facts[r], err);
        v->runs[r] =
            (lf_settings_run){.settings = &v->sides[r].settings, .stages = &v->sides[r].stages};
    }
    if (rc == 0)
        rc = lf_settings_differing(&v->differing, v->runs, v->n, v->tables, err);
    v->n_settings = v->differing.n < MAX_SETTINGS ? v->differing.n : MAX_SETTINGS;
    return rc;
}

/* ---- names ---- */

/* How many runs have the value of this run. */
static size_t with_value_of(const struct several *v, const char *setting, size_t run)
{
    size_t n = 0;
    for (size_t r = 0; r < v->n; r++)
        n += lf_text_same(value_of(v, r, setting), value_of(v, run, setting));
    return n;
}

/* Does a run stand out by this setting: have more runs another value? Of two runs each does. */
static bool stands_out(const struct several *v, const char *setting, size_t run)
{
    const size_t mine = with_value_of(v, setting, run);
    bool out = v->n == 2;
    for (size_t r = 0; r < v->n; r++)
        out = out || with_value_of(v, setting, r) > mine;
    return out || mine == 1;
}

/* Behind the name that every command takes stand the settings by which the run stands out. */
static void name_runs(struct several *v)
{
    for (size_t r = 0; r < v->n; r++) {
        const size_t cap = sizeof v->names[r];
        int at = snprintf(v->names[r], cap, "%s", label_of(v, r)), shown = 0;
        for (size_t k = 0; k < v->n_settings && shown < 3; k++) {
            const char *name = v->differing.v[k], *dot = strrchr(name, '.');
            if (!stands_out(v, name, r) || at < 0 || (size_t)at >= cap)
                continue;
            const char *value = value_of(v, r, name);
            at += snprintf(v->names[r] + at, cap - (size_t)at, "%s%s %.20s",
                           shown++ > 0 ? ", " : " (", dot != NULL ? dot + 1 : name,
                           value != NULL ? value : "-");
        }
        if (shown > 0 && at > 0 && (size_t)at + 1 < cap)
            snprintf(v->names[r] + at, cap - (size_t)at, ")");
        lf_text_clean(v->names[r]);
    }
}

/* ---- the table ---- */

/* A column of numbers: the last or the lowest value of a key of a stage. */
struct column {
    const char *stage, *key;
    bool lowest;
};

static double number_of(const lf_facts *f, const struct column *c)
{
    const lf_facts_stage *s = stage_of(f, c->stage);
    return s == NULL   ? (double)NAN
           : c->lowest ? lf_facts_lowest(s, c->key, NULL)
                       : lf_facts_last(s, c->key);
}

static double best_of(const struct several *v, const struct column *c)
{
    const enum lf_better better = lf_unit_of(c->key).better;
    double best = NAN;
    for (size_t i = 0; i < v->n && better != LF_BETTER_NONE; i++) {
        const double x = number_of(&v->facts[i], c);
        if (isfinite(x) && (!isfinite(best) || (better == LF_BETTER_LOW ? x < best : x > best)))
            best = x;
    }
    return best;
}

typedef LF_ROWS(struct column) columns;

static int add_column(columns *out, const struct several *v, const struct column *c, lf_err *err)
{
    bool any = false;
    for (size_t i = 0; i < out->n; i++)
        if (strcmp(out->v[i].stage, c->stage) == 0 && strcmp(out->v[i].key, c->key) == 0 &&
            out->v[i].lowest == c->lowest)
            return 0;
    for (size_t i = 0; i < v->n; i++)
        any = any || isfinite(number_of(&v->facts[i], c));
    struct column *row = any ? lf_rows_add(out, sizeof *row, err) : NULL;
    if (any && row == NULL)
        return LF_ENOMEM;
    if (any)
        *row = *c;
    return 0;
}

/* What evaluations say about quality, without counts and errors. */
static bool is_score(const char *key)
{
    const size_t n = strlen(key);
    return lf_unit_of(key).better != LF_BETTER_NONE &&
           !(n > 7 && !strcmp(key + n - 7, "_stderr")) && strcmp(key, "tokens_per_s") != 0;
}

static int stage_columns(columns *out, const struct several *v, const lf_facts_stage *s,
                         lf_err *err)
{
    const char *name = s->view->plan->name;
    int rc = 0;
    if (s->records.n > 1) {
        const struct column fixed[] = {{name, "valid_loss", true},
                                       {name, "loss", false},
                                       {name, "tokens", false},
                                       {name, "tokens_per_s", false}};
        for (size_t i = 0; rc == 0 && i < sizeof fixed / sizeof fixed[0]; i++)
            rc = add_column(out, v, &fixed[i], err);
        return rc;
    }
    for (size_t k = 0; rc == 0 && k < s->keys.n && k < 12; k++)
        if (is_score(s->keys.v[k]))
            rc = add_column(out, v, &(struct column){name, s->keys.v[k], false}, err);
    return rc;
}

static void number_cell(lf_buf *b, double x, double best)
{
    char text[32];
    if (!isfinite(x)) {
        lf_buf_adds(b, "<td class=\"n\">-</td>");
        return;
    }
    const bool is_best = x == best;
    lf_buf_addf(b, "<td class=\"n\" title=\"%.17g\">%s%s%s</td>", x, is_best ? "<b>" : "",
                lf_fmt_value(text, sizeof text, x), is_best ? "</b>" : "");
}

static void table_head(lf_buf *b, const struct several *v, const columns *c)
{
    lf_buf_adds(b, "<div class=\"wide\"><table class=\"runs\"><tr><th>run</th><th>name</th>"
                   "<th>state</th><th>made</th>");
    for (size_t i = 0; i < v->n_settings; i++)
        lf_html_in(b, "th", "", v->differing.v[i]);
    for (size_t i = 0; i < c->n; i++) {
        const lf_unit u = lf_unit_of(c->v[i].key);
        lf_buf_adds(b, "<th class=\"n\">");
        lf_html_text(b, u.title);
        lf_html_text(b, c->v[i].lowest ? ", best" : "");
        lf_buf_adds(b, "<br><span class=\"dim\">");
        lf_html_text(b, c->v[i].stage);
        lf_html_text(b, u.unit[0] != '\0' ? ", " : "");
        lf_html_text(b, u.unit);
        lf_buf_adds(b, "</span></th>");
    }
    lf_buf_adds(b, "</tr>\n");
}

static void table(lf_buf *b, const struct several *v, const columns *c)
{
    char when[21];
    table_head(b, v, c);
    for (size_t r = 0; r < v->n; r++) {
        const lf_run_shown *run = &v->facts[r].shown;
        lf_buf_addf(b, "<tr><td title=\"%s\">", run->run);
        lf_html_in(b, "code", "", label_of(v, r));
        lf_buf_adds(b, "</td>");
        lf_html_in(b, "td", "", run->name);
        lf_buf_adds(b, "<td>");
        lf_html_state(b, run->state);
        lf_buf_addf(b, "</td><td class=\"dim\">%.16s</td>", lf_time_iso(when, run->created.v));
        for (size_t i = 0; i < v->n_settings; i++) {
            const char *value = value_of(v, r, v->differing.v[i]);
            lf_html_in(b, "td", "", value != NULL ? value : "-");
        }
        for (size_t i = 0; i < c->n; i++)
            number_cell(b, number_of(&v->facts[r], &c->v[i]), best_of(v, &c->v[i]));
        lf_buf_adds(b, "</tr>\n");
    }
    lf_buf_adds(b, "</table></div>\n");
}

static int runs_table(lf_buf *b, const struct several *v, lf_err *err)
{
    columns c = {.n = 0};
    int rc = 0;
    for (size_t r = 0; rc == 0 && r < v->n; r++)
        for (size_t i = 0; rc == 0 && i < v->facts[r].n; i++)
            rc = stage_columns(&c, v, &v->facts[r].stages[i], err);
    if (rc == 0)
        table(b, v, &c);
    if (v->n_settings == 0)
        lf_buf_adds(b, "<p class=\"dim\">No setting differs between these runs.</p>\n");
    if (v->differing.n > v->n_settings)
        lf_buf_addf(b,
                    "<p class=\"dim\">%zu more settings differ; `loong-flow diff RUN RUN` shows "
                    "them.</p>\n",
                    v->differing.n - v->n_settings);
    free(c.v);
    return rc;
}

/* ---- curves ---- */

static const char *unit_of(const lf_facts_stage *s, const char *key)
{
    return strcmp(key, "loss") == 0 || strcmp(key, "valid_loss") == 0 ? lf_facts_loss_unit(s)
                                                                      : lf_unit_of(key).unit;
}

static int overlay(lf_buf *b, const struct several *v, const char *stage, const char *key,
                   lf_err *err)
{
    lf_plot_line lines[LF_PLOT_LINES];
    const lf_unit u = lf_unit_of(key);
    size_t n = 0;
    bool any = false;
    for (size_t r = 0; r < v->n && n < LF_PLOT_LINES; r++) {
        const lf_facts_stage *s = stage_of(&v->facts[r], stage);
        if (s != NULL && s->records.n > 1 && lf_facts_key(s, key) >= 0)
            lines[n++] = (lf_plot_line){.name = v->names[r],
                                        .of = s,
                                        .key = key,
                                        .run = (int)r,
                                        .stage = (int)(s - v->facts[r].stages),
                                        .best = u.better == LF_BETTER_LOW};
    }
    return n == 0 ? 0
                  : lf_report_plot(b, &any,
                                   &(lf_plot){.title = u.title,
                                              .unit = unit_of(lines[0].of, key),
                                              .log_y = strcmp(key, "grad_norm") == 0,
                                              .lines = lines,
                                              .n = n},
                                   err);
}

/* Was this stage's name met in an earlier run? */
static bool met(const struct several *v, size_t run, const char *stage)
{
    for (size_t r = 0; r < run; r++) {
        const lf_facts_stage *s = stage_of(&v->facts[r], stage);
        if (s != NULL && s->records.n > 1)
            return true;
    }
    return false;
}

static int overlays(lf_buf *b, const struct several *v, lf_err *err)
{
    static const char *const keys[] = {"valid_loss", "loss",         "reward", "accuracy",
                                       "grad_norm",  "tokens_per_s", "lr",     "rss"};
    int rc = 0;
    for (size_t r = 0; r < v->n && r < LF_PLOT_LINES; r++)
        for (size_t i = 0; rc == 0 && i < v->facts[r].n; i++) {
            const lf_facts_stage *s = &v->facts[r].stages[i];
            const char *name = s->view->plan->name;
            if (s->records.n < 2 || met(v, r, name))
                continue;
            lf_html_in(b, "h3", "", name);
            lf_buf_adds(b, "<div class=\"curves\">");
            for (size_t k = 0; rc == 0 && k < sizeof keys / sizeof keys[0]; k++)
                rc = overlay(b, v, name, keys[k], err);
            lf_buf_adds(b, "</div>\n");
        }
    return rc;
}

/* ---- the page ---- */

static int body(lf_buf *b, const struct several *v, int refresh_s, lf_err *err)
{
    char when[21], title[64];
    const lf_facts *drawn[LF_PLOT_LINES];
    const size_t n = v->n < LF_PLOT_LINES ? v->n : LF_PLOT_LINES;
    snprintf(title, sizeof title, "%zu runs", v->n);
    lf_page_begin(b, title, refresh_s);
    lf_buf_addf(b,
                "<h1>%s</h1>\n<p class=\"dim\">this page: %s, loong-flow %s</p>\n<h2>Runs</h2>\n",
                title, lf_time_iso(when, lf_wall_s()), PACKAGE_VERSION);
    int rc = runs_table(b, v, err);
    lf_buf_adds(b, "<h2 id=\"metrics\">Metrics</h2>\n<div id=\"controls\"></div>\n");
    if (v->n > n)
        lf_buf_addf(b, "<p class=\"dim\">Curves of the first %zu runs; the table has all.</p>\n",
                    n);
    if (rc == 0)
        rc = overlays(b, v, err);
    for (size_t i = 0; i < n; i++)
        drawn[i] = &v->facts[i];
    return rc == 0 ? lf_page_end(b, drawn, n, err) : rc;
}

int lf_report_several(lf_buf *out, const lf_run_view *const *views, size_t n,
                      const lf_opt_table *const *tables, int refresh_s, lf_err *err)
{
    lf_facts *facts = lf_calloc(n + 1, sizeof *facts, err);
    struct several v = {.facts = facts,
                        .tables = tables,
                        .sides = lf_calloc(n + 1, sizeof *v.sides, err),
                        .runs = lf_calloc(n + 1, sizeof *v.runs, err),
                        .names = lf_calloc(n + 1, sizeof *v.names, err)};
    bool there = facts != NULL && v.sides != NULL && v.runs != NULL && v.names != NULL;
    int rc = there ? 0 : LF_ENOMEM;
    while (rc == 0 && v.n < n) {
        rc = lf_facts_load(&facts[v.n], views[v.n], err);
        v.n += rc == 0;
    }
    if (rc == 0)
        rc = find_settings(&v, err);
    if (rc == 0) {
        name_runs(&v);
        rc = body(out, &v, refresh_s, err);
    }
    for (size_t i = 0; there && i < v.n; i++) {
        lf_pairs_fini(&v.sides[i].settings);
        lf_pairs_fini(&v.sides[i].stages);
        lf_facts_fini(&facts[i]);
    }
    lf_texts_fini(&v.differing);
    free(facts);
    free(v.sides);
    free(v.runs);
    free(v.names);
    return rc;
}
