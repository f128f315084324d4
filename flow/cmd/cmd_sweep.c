/* SPDX-License-Identifier: Apache-2.0
 *
 * sweep: what the children of a sweep have reached, as a table, over seeds, and along each axis.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "flow/cmd/cmds.h"
#include "flow/run/outcome.h"

#define MOST_COLUMNS 40
#define PLOT_W       50

static const lf_opt sweep_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_COLUMNS,
    {.name = "metric",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND,
     .help = "STAGE.KEY to compare by; default: that of [sweep], else valid_loss or loss"},
    {.name = "goal",
     .type = LF_OPT_ENUM,
     LF_OPT_COMMAND,
     .choices = "min|max",
     .help = "what is better; default: that of [sweep], else min"},
};
LF_CMD_TABLE(sweep, "what the settings of a sweep have reached", sweep_rows);

static char *number(const lf_real *v, lf_err *err)
{
    char b[40] = "-";
    if (v->given)
        snprintf(b, sizeof b, "%.6g", v->v);
    return lf_strdup(b, err);
}

static char *whole(int v, lf_err *err)
{
    char b[16];
    snprintf(b, sizeof b, "%d", v);
    return lf_strdup(b, err);
}

/* ---- children ---- */

static char *child_cell(const void *rows, size_t row, const char *key, lf_err *err)
{
    const lf_outcome_child *c = &((const lf_outcome *)rows)->children.v[row];
    const char *setting = lf_pairs_get(&c->settings, key);
    if (setting != NULL)
        return lf_strdup(setting, err);
    if (strcmp(key, "child") == 0)
        return whole(c->number, err);
    if (strcmp(key, "step") == 0)
        return number(&c->step, err);
    if (strcmp(key, "last") == 0)
        return c->not_finite ? lf_strdup("nan", err) : number(&c->last, err);
    if (strcmp(key, "best") == 0)
        return number(&c->best, err);
    if (strcmp(key, "best_step") == 0)
        return number(&c->best_step, err);
    if (strcmp(key, "state") == 0)
        return lf_strdup(c->state, err);
    const char *text = strcmp(key, "stage") == 0  ? c->stage
                       : strcmp(key, "stop") == 0 ? c->stop
                       : c->winner                ? "<- best"
                                                  : "";
    return lf_strdup(text != NULL ? text : "-", err);
}

static int print_children(const lf_cmd *c, const lf_outcome *o, lf_err *err)
{
    lf_column cols[MOST_COLUMNS + 9] = {{"child", "CHILD", true, false}};
    size_t n = 1;
    for (size_t i = 0; i < o->axes.n && n < MOST_COLUMNS; i++)
        cols[n++] = (lf_column){o->axes.v[i], o->axes.v[i], true, false};
    cols[n++] = (lf_column){"state", "STATE", false, false};
    cols[n++] = (lf_column){"stop", "AT", false, true};
    cols[n++] = (lf_column){"stage", "STAGE", false, true};
    cols[n++] = (lf_column){"step", "STEP", true, false};
    cols[n++] = (lf_column){"last", "LAST", true, false};
    cols[n++] = (lf_column){"best", "BEST", true, false};
    cols[n++] = (lf_column){"best_step", "BEST STEP", true, true};
    cols[n++] = (lf_column){"winner", "", false, false};
    const lf_table t = {.cols = cols, .n_cols = n};
    return lf_table_cells(&t, &(lf_cells){.n = o->children.n, .cell = child_cell, .rows = o},
                          lf_optset_str(c->opts, "columns"), err);
}

/* ---- seeds ---- */

static char *group_cell(const void *rows, size_t row, const char *key, lf_err *err)
{
    const lf_outcome_group *g = &((const lf_outcome *)rows)->groups.v[row];
    const char *setting = lf_pairs_get(&g->settings, key);
    if (setting != NULL)
        return lf_strdup(setting, err);
    if (strcmp(key, "n") == 0)
        return whole(g->n, err);
    if (strcmp(key, "mean") == 0)
        return g->bad > 0 ? lf_strdup("nan", err) : number(&g->mean, err);
    if (strcmp(key, "stderr") == 0)
        return number(&g->stderr_, err);
    return lf_strdup(g->winner ? "<- best" : "", err);
}

static int print_groups(const lf_outcome *o, lf_err *err)
{
    lf_column cols[MOST_COLUMNS + 4];
    size_t n = 0;
    for (size_t i = 0; i < o->axes.n && n < MOST_COLUMNS; i++)
        if (!lf_texts_has(&o->seeds, o->axes.v[i]))
            cols[n++] = (lf_column){o->axes.v[i], o->axes.v[i], true, false};
    cols[n++] = (lf_column){"n", "SEEDS", true, false};
    cols[n++] = (lf_column){"mean", "MEAN", true, false};
    cols[n++] = (lf_column){"stderr", "+-", true, false};
    cols[n++] = (lf_column){"winner", "", false, false};
    const lf_table t = {.cols = cols, .n_cols = n};
    putchar('\n');
    return lf_table_cells(&t, &(lf_cells){.n = o->groups.n, .cell = group_cell, .rows = o}, NULL,
                          err);
}

/* ---- along an axis ---- */

struct range {
    double lo, hi;
};

static int place(const struct range *r, double v)
{
    double at = r->hi > r->lo ? (v - r->lo) / (r->hi - r->lo) * (PLOT_W - 1) : 0;
    return at < 0 ? 0 : at > PLOT_W - 1 ? PLOT_W - 1 : (int)lrint(at);
}

/* With their errors, so that these lie within. */
static bool range_of(struct range *r, const lf_outcome *o)
{
    *r = (struct range){INFINITY, -INFINITY};
    for (size_t i = 0; i < o->groups.n; i++) {
        const lf_outcome_group *g = &o->groups.v[i];
        if (!g->mean.given)
            continue;
        r->lo = fmin(r->lo, g->mean.v - g->stderr_.v);
        r->hi = fmax(r->hi, g->mean.v + g->stderr_.v);
    }
    return isfinite(r->lo) && isfinite(r->hi);
}

/* The groups with this value of the axis, one mark for each: error bars first, so that no bar hides
 * a mark. */
static void print_value(const lf_outcome *o, const char *axis, const char *value,
                        const struct range *r)
{
    char line[PLOT_W + 1];
    memset(line, ' ', PLOT_W);
    line[PLOT_W] = '\0';
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < o->groups.n; i++) {
            const lf_outcome_group *g = &o->groups.v[i];
            if (!g->mean.given || !lf_text_same(lf_pairs_get(&g->settings, axis), value))
                continue;
            const int from = place(r, g->mean.v - g->stderr_.v),
                      to = place(r, g->mean.v + g->stderr_.v);
            if (pass == 0)
                memset(line + from, '-', (size_t)(to - from) + 1);
            else if (pass == 1)
                line[place(r, g->mean.v)] = 'o';
            else if (g->winner)
                line[place(r, g->mean.v)] = '*';
        }
    printf(" |%s|\n", line);
}

static void print_axis(const lf_outcome *o, const lf_list *axis, const struct range *r)
{
    int width = 0;
    for (size_t i = 0; i < axis->values.n; i++) {
        const int w = (int)lf_text_width(axis->values.v[i]);
        width = w > width ? w : width;
    }
    width = width < 24 ? width : 24;
    lf_say("\n%s\n", axis->name);
    for (size_t i = 0; i < axis->values.n; i++) {
        const char *v = axis->values.v[i];
        const int w = (int)lf_text_width(v);
        printf("%*s", w < width ? width - w : 0, "");
        lf_say("%.24s", v);
        print_value(o, axis->name, v, r);
    }
    printf("%*s   %-*.4g%.4g\n", width, "", PLOT_W - 4, r->lo, r->hi);
}

static void print_plots(const lf_outcome *o, const lf_sweep *s)
{
    struct range r;
    if (!range_of(&r, o) || !(r.hi > r.lo))
        return; /* one point is no curve */
    for (size_t i = 0; i < s->axes.n; i++)
        if (s->axes.v[i].values.n > 1 && !lf_texts_has(&o->seeds, s->axes.v[i].name))
            print_axis(o, &s->axes.v[i], &r);
}

/* ---- the command ---- */

/* Is a child done, and has none a value of the metric? */
static bool done_without(const lf_outcome *o)
{
    bool done = false, has = false;
    for (size_t i = 0; i < o->children.n; i++) {
        const lf_outcome_child *k = &o->children.v[i];
        done = done || strcmp(k->state, "done") == 0;
        has = has || k->last.given || k->not_finite;
    }
    return done && !has;
}

static int print_outcome(lf_cmd *c, lf_run_view *v, lf_err *err)
{
    lf_outcome o;
    int rc = lf_outcome_load(&o, v, lf_optset_str(c->opts, "metric"),
                             lf_optset_str(c->opts, "goal"), err);
    if (rc < 0)
        return rc;
    if (c->json) {
        rc = lf_cmd_print(&o, &lf_outcome_fields, err);
        lf_outcome_fini(&o);
        return rc;
    }
    if (o.metric != NULL)
        lf_say("run %s: %s of %s, %s is better\n\n", lf_run_label(&v->run), o.metric,
               o.metric_stage, strcmp(o.goal, "max") == 0 ? "more" : "less");
    else
        lf_say("run %s: no stage has recorded valid_loss or loss; name a metric with --metric\n\n",
               lf_run_label(&v->run));
    rc = print_children(c, &o, err);
    if (rc == 0 && o.metric != NULL && done_without(&o))
        lf_say("\nno child has recorded %s, so nothing is compared; name another metric with "
               "--metric\n",
               o.metric);
    if (rc == 0 && o.seeds.n > 0 && lf_optset_str(c->opts, "columns") == NULL)
        rc = print_groups(&o, err);
    if (rc == 0 && lf_optset_str(c->opts, "columns") == NULL)
        print_plots(&o, &v->run.plan->sweep);
    lf_outcome_fini(&o);
    return rc;
}

static int run_sweep(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_run(c, lf_cmd_word(c, 0), print_outcome, err);
}

const lf_cmd_def lf_cmd_sweep = {
    .table = &sweep_table, .words = "[RUN]", .max_words = 1, .run = run_sweep};
