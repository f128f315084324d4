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

enum { ID_END = 6, MAX_SETTINGS = 24 };

/* A setting in which runs differ; values[i] of run i, NULL: unknown or not there. */
struct setting {
    char *name;
    const char **values;
};
struct several {
    const lf_facts *facts;
    size_t n;
    LF_ROWS(struct setting) settings;
    size_t left_out;   /* settings beyond MAX_SETTINGS */
    char (*names)[96]; /* of the runs, for tables and legends */
};

/* ---- settings that differ ---- */

static const lf_facts_stage *stage_of(const lf_facts *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->stages[i].view->plan->name, name) == 0)
            return &f->stages[i];
    return NULL;
}

/* The value of an option, also where it is the default; the description of the model counts as
 * settings of the stage that has it. */
static const char *value_of(const lf_facts *f, const char *stage, const char *key, bool model)
{
    const lf_facts_stage *s = stage_of(f, stage);
    if (s == NULL)
        return NULL;
    return model ? lf_provenance_model(&s->from, s->view, key)
                 : lf_provenance_option(&s->from, s->view, key);
}

static bool differs(const struct several *v, const char *stage, const char *key, bool model)
{
    for (size_t i = 1; i < v->n; i++)
        if (!lf_text_same(value_of(&v->facts[0], stage, key, model),
                          value_of(&v->facts[i], stage, key, model)))
            return true;
    return false;
}

static bool is_input(const lf_doc_stage *st, const char *option)
{
    for (size_t i = 0; i < st->inputs.n; i++)
        if (strcmp(st->inputs.v[i].option, option) == 0)
            return true;
    return false;
}

static int add_setting(struct several *v, const char *stage, const char *key, bool model,
                       lf_err *err)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", model ? "model" : stage, key);
    for (size_t i = 0; i < v->settings.n; i++)
        if (strcmp(v->settings.v[i].name, name) == 0)
            return 0;
    if (!differs(v, stage, key, model))
        return 0;
    if (v->settings.n == MAX_SETTINGS) {
        v->left_out++;
        return 0;
    }
    struct setting *s = lf_rows_add(&v->settings, sizeof *s, err);
    if (s == NULL)
        return LF_ENOMEM;
    int rc = lf_text_set(&s->name, lf_text_clean(name), "setting", err);
    s->values = lf_calloc(v->n, sizeof *s->values, err);
    if (rc < 0 || s->values == NULL)
        return LF_ENOMEM;
    for (size_t i = 0; i < v->n; i++)
        s->values[i] = value_of(&v->facts[i], stage, key, model);
    return 0;
}

/* Paths of inputs are no settings: they differ wherever a run lies elsewhere. */
static int add_stage(struct several *v, const lf_facts_stage *s, lf_err *err)
{
    const lf_doc_stage *st = s->view->plan;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < st->options.n; i++)
        if (!is_input(st, st->options.v[i].name))
            rc = add_setting(v, st->name, st->options.v[i].name, false, err);
    for (size_t i = 0; rc == 0 && i < st->model.n; i++)
        rc = add_setting(v, st->name, st->model.v[i].name, true, err);
    return rc;
}

static int find_settings(struct several *v, lf_err *err)
{
    int rc = 0;
    for (size_t r = 0; rc == 0 && r < v->n; r++)
        for (size_t i = 0; rc == 0 && i < v->facts[r].n; i++)
            rc = add_stage(v, &v->facts[r].stages[i], err);
    return rc;
}

/* ---- names ---- */

/* How many runs have this value of a setting. */
static size_t with_value(const struct several *v, const struct setting *s, const char *value)
{
    size_t n = 0;
    for (size_t r = 0; r < v->n; r++)
        n += lf_text_same(s->values[r], value);
    return n;
}

/* Does a run stand out by this setting: have more runs another value? Of two runs each does. */
static bool stands_out(const struct several *v, const struct setting *s, size_t run)
{
    const size_t mine = with_value(v, s, s->values[run]);
    bool out = v->n == 2;
    for (size_t r = 0; r < v->n; r++)
        out = out || with_value(v, s, s->values[r]) > mine;
    return out || mine == 1;
}

/* The end of an id tells runs of one day apart, and is a name that every command takes. Behind it
 * stand the settings by which the run stands out. */
static void name_runs(struct several *v)
{
    for (size_t r = 0; r < v->n; r++) {
        const char *id = v->facts[r].shown.run;
        const size_t n = strlen(id), cap = sizeof v->names[r];
        int at = snprintf(v->names[r], cap, "%s", n > ID_END ? id + n - ID_END : id), shown = 0;
        for (size_t k = 0; k < v->settings.n && shown < 3; k++) {
            const struct setting *s = &v->settings.v[k];
            const char *dot = strrchr(s->name, '.');
            if (!stands_out(v, s, r) || at < 0 || (size_t)at >= cap)
                continue;
            at += snprintf(v->names[r] + at, cap - (size_t)at, "%s%s %.20s",
                           shown++ > 0 ? ", " : " (", dot != NULL ? dot + 1 : s->name,
                           s->values[r] != NULL ? s->values[r] : "-");
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
    for (size_t i = 0; i < v->settings.n; i++)
        lf_html_in(b, "th", "", v->settings.v[i].name);
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
        lf_buf_addf(b, "<tr><td title=\"%s\"><code>%s</code></td>", run->run,
                    strlen(run->run) > ID_END ? run->run + strlen(run->run) - ID_END : run->run);
        lf_html_in(b, "td", "", run->name);
        lf_buf_adds(b, "<td>");
        lf_html_state(b, run->state);
        lf_buf_addf(b, "</td><td class=\"dim\">%.16s</td>", lf_time_iso(when, run->created.v));
        for (size_t i = 0; i < v->settings.n; i++)
            lf_html_in(b, "td", "",
                       v->settings.v[i].values[r] != NULL ? v->settings.v[i].values[r] : "-");
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
    if (v->settings.n == 0)
        lf_buf_adds(b, "<p class=\"dim\">No setting differs between these runs.</p>\n");
    if (v->left_out > 0)
        lf_buf_addf(b,
                    "<p class=\"dim\">%zu more settings differ; `loong-flow diff RUN RUN` shows "
                    "them.</p>\n",
                    v->left_out);
    free(c.v);
    return rc;
}

/* ---- curves ---- */

static const char *unit_of(const lf_facts_stage *s, const char *key)
{
    return strcmp(key, "loss") == 0 || strcmp(key, "valid_loss") == 0
               ? lf_loss_unit(s->view->plan->kind)
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

int lf_report_several(lf_buf *out, const lf_run_view *const *views, size_t n, int refresh_s,
                      lf_err *err)
{
    lf_facts *facts = lf_calloc(n + 1, sizeof *facts, err);
    struct several v = {.facts = facts, .names = lf_calloc(n + 1, sizeof *v.names, err)};
    int rc = facts == NULL || v.names == NULL ? LF_ENOMEM : 0;
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
    for (size_t i = 0; i < v.settings.n; i++) {
        free(v.settings.v[i].name);
        free(v.settings.v[i].values);
    }
    free(v.settings.v);
    for (size_t i = 0; facts != NULL && i < v.n; i++)
        lf_facts_fini(&facts[i]);
    free(facts);
    free(v.names);
    return rc;
}
