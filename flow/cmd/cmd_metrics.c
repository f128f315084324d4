/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics: the curves of stages as a table, CSV, JSON, a plot of characters or an event file of
 * TensorBoard.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "engine/base/tfevents.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/curves.h"
#include "flow/cmd/plot_text.h"
#include "flow/report/report.h"
#include "flow/run/known.h"
#include "flow/run/series.h"

static const lf_opt metrics_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_COLUMNS,
    {.name = "run",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND | LF_OPT_REPEAT,
     .help = "run, may be repeated; default: the newest"},
    {.name = "key",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND | LF_OPT_REPEAT,
     .help = "metrics KEY,... for the table, or for one plot each time it is given"},
    {.name = "format",
     .type = LF_OPT_ENUM,
     LF_OPT_COMMAND,
     .def = "table",
     .choices = "table|csv|plot|tensorboard",
     .help = "form of the output; tensorboard: an event file below output"},
    {.name = "output",
     .type = LF_OPT_PATH,
     LF_OPT_COMMAND,
     .help = "tensorboard: the directory; the file lies in RUN/STAGE there"},
    {.name = "lines",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND,
     .def = "20",
     .min = 0,
     .max = 1e9,
     .help = "at most this many rows, with all validations and else evenly spread, 0 = all; csv "
             "has all unless this is given"},
};
LF_CMD_TABLE(metrics, "the curves of a stage: table, CSV, JSON, plot or TensorBoard", metrics_rows);

enum form { TABLE, CSV, PLOT, TENSORBOARD };
enum { MAX_KEYS = 250 };

/* ---- which metrics ---- */

/* "a,b" of one --key, or all of them. */
static int add_words(lf_texts *out, const char *list, lf_err *err)
{
    char copy[1024], *save = NULL;
    int rc = snprintf(copy, sizeof copy, "%s", list) < (int)sizeof copy
                 ? 0
                 : lf_fail(err, LF_EINVAL, "--key: the list is too long");
    if (rc == 0 && list[strspn(list, ", ")] == '\0')
        rc = lf_fail(err, LF_EINVAL, "--key \"%s\" names no metric", list);
    for (char *w = rc == 0 ? strtok_r(copy, ", ", &save) : NULL; rc == 0 && w != NULL;
         w = strtok_r(NULL, ", ", &save))
        rc = lf_texts_has(out, w) ? 0 : lf_texts_add(out, w, err);
    return rc;
}

static int asked_keys(lf_texts *out, const lf_cmd *c, const lf_curves *curves, lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < lf_optset_count(c->opts, "key"); i++)
        rc = add_words(out, lf_optset_str_at(c->opts, "key", i), err);
    return rc == 0 ? lf_curves_check(curves, out, err) : rc;
}

/* Every metric of any curve, or those that were asked for. */
static int keys_of(lf_texts *out, const lf_cmd *c, const lf_curves *curves, lf_err *err)
{
    *out = (lf_texts){.given = true};
    if (lf_optset_count(c->opts, "key") > 0)
        return asked_keys(out, c, curves, err);
    int rc = 0;
    for (size_t i = 0; i < curves->n; i++)
        for (size_t k = 0; rc == 0 && k < curves->v[i].keys.n; k++)
            if (!lf_texts_has(out, curves->v[i].keys.v[k]))
                rc = lf_texts_add(out, curves->v[i].keys.v[k], err);
    return rc;
}

static bool has(const lf_curve *c, const char *key)
{
    return lf_texts_has(&c->keys, key);
}

/* ---- the table ---- */

/* A column: a metric of a curve. */
struct column {
    const lf_curve *curve;
    size_t place; /* of the curve */
    const char *key;
    char name[160], title[160];
};

struct grid {
    const lf_curves *curves;
    lf_steps steps;
    struct column *cols;
    lf_column *shown; /* one more: step */
    size_t n;
};

static char *grid_cell(const void *rows, size_t row, const char *key, lf_err *err)
{
    const struct grid *g = rows;
    char text[40];
    double v = 0;
    if (strcmp(key, "step") == 0) {
        snprintf(text, sizeof text, "%.0f", g->steps.step[row]);
        return lf_strdup(text, err);
    }
    size_t i = 0;
    while (i < g->n && strcmp(g->cols[i].name, key) != 0)
        i++;
    long at = i < g->n ? g->steps.at[row * g->curves->n + g->cols[i].place] : -1;
    if (at < 0)
        return lf_strdup("-", err);
    const struct json_t *values = g->cols[i].curve->records.v[at].values;
    return lf_raw_number(&v, values, g->cols[i].key)
               ? lf_strdup(lf_fmt_value(text, sizeof text, v), err)
               : lf_raw_cell(values, g->cols[i].key, err);
}

/* A loss of restored pixels is in no unit. */
static bool of_pixels(const struct column *col)
{
    return lf_texts_has(&col->curve->keys, "pictures") &&
           (strcmp(col->key, "loss") == 0 || strcmp(col->key, "valid_loss") == 0);
}

/* "loss (nats)"; "first-2 loss (nats)" beside other runs. tokens_per_s says its unit itself. */
static void set_title(struct column *col, bool several)
{
    const char *unit = lf_unit_of(col->key).symbol;
    bool said = unit[0] == '\0' || lf_str_has_suffix(col->key, "_per_s") || of_pixels(col);
    snprintf(col->name, sizeof col->name, "%s%s%s", several ? col->curve->title : "",
             several ? "." : "", col->key);
    snprintf(col->title, sizeof col->title, "%s%s%s%s%s%s", several ? col->curve->title : "",
             several ? " " : "", col->key, said ? "" : " (", said ? "" : unit, said ? "" : ")");
}

/* Of several curves: the metric that they are judged by. */
static bool is_first(const lf_curve *c, const char *key, bool several)
{
    const lf_metric_main *m = lf_metric_main_of(c->kind);
    const char *const *first = lf_metric_first(c->kind);
    if (several)
        return strcmp(key, m->key) == 0 || strcmp(key, m->valid) == 0;
    while (*first != NULL && strcmp(*first, key) != 0)
        first++;
    return *first != NULL;
}

static bool any_first(const lf_curve *c, bool several)
{
    for (size_t i = 0; i < c->keys.n; i++)
        if (is_first(c, c->keys.v[i], several))
            return true;
    return false;
}

static void add_column(struct grid *g, size_t place, const char *key, bool hidden)
{
    struct column *col = &g->cols[g->n];
    *col = (struct column){.curve = &g->curves->v[place], .place = place, .key = key};
    set_title(col, g->curves->n > 1);
    g->shown[++g->n] = (lf_column){col->name, col->title, true, hidden};
}

/* The metrics that people look at first, then the others, hidden. With keys: these. */
static void add_columns(struct grid *g, const lf_texts *keys, bool asked)
{
    const bool several = g->curves->n > 1;
    for (int hidden = 0; hidden < (asked ? 1 : 2); hidden++)
        for (size_t p = 0; p < g->curves->n; p++) {
            const lf_curve *c = &g->curves->v[p];
            bool first_only = !asked && any_first(c, several);
            const char *const *order = lf_metric_first(c->kind);
            for (size_t i = 0; hidden == 0 && first_only && !several && order[i] != NULL; i++)
                if (has(c, order[i]) && g->n < MAX_KEYS)
                    add_column(g, p, order[i], false);
            for (size_t i = 0; i < keys->n && g->n < MAX_KEYS; i++) {
                bool first = !first_only || is_first(c, keys->v[i], several);
                bool placed = first && first_only && !several; /* by the order above */
                if (has(c, keys->v[i]) && first == (hidden == 0) && !placed)
                    add_column(g, p, keys->v[i], hidden != 0);
            }
        }
}

/* Columns that have no room on the screen are hidden, from the right. */
static int fit(struct grid *g, size_t width, lf_err *err)
{
    size_t used = 0;
    for (size_t k = 0; k <= g->n; k++) {
        if (g->shown[k].hidden)
            continue;
        size_t w = lf_text_width(g->shown[k].title);
        for (size_t i = 0; i < g->steps.n; i++) {
            char *s = grid_cell(g, i, g->shown[k].key, err);
            if (s == NULL)
                return LF_ENOMEM;
            w = lf_text_width(s) > w ? lf_text_width(s) : w;
            free(s);
        }
        g->shown[k].hidden = k > 1 && used + w > width;
        used += g->shown[k].hidden ? 0 : w + 2;
    }
    return 0;
}

/* A stage that writes one record, such as eval: a line for each metric, its standard error
 * beside it. */
static int print_single(const lf_curve *c, const lf_texts *keys, lf_err *err)
{
    int wide = 0, errs = 0;
    for (size_t i = 0; i < keys->n; i++) {
        wide = (int)strlen(keys->v[i]) > wide ? (int)strlen(keys->v[i]) : wide;
        errs += lf_str_has_suffix(keys->v[i], "_stderr");
    }
    printf("%-*s  %10s%s\n", wide, "metric", "value", errs > 0 ? "   std. error" : "");
    for (size_t i = 0; i < keys->n; i++) {
        const char *key = keys->v[i], *unit = lf_unit_of(key).symbol;
        char text[40], error[200];
        double v;
        snprintf(error, sizeof error, "%.*s", (int)strlen(key) - 7, key);
        if (lf_str_has_suffix(key, "_stderr") && lf_texts_has(keys, error))
            continue;
        if (!lf_raw_number(&v, c->records.v[0].values, key))
            continue;
        lf_say("%-*s  %10s", wide, key, lf_fmt_value(text, sizeof text, v));
        snprintf(error, sizeof error, "%s_stderr", key);
        if (lf_raw_number(&v, c->records.v[0].values, error))
            lf_say("   %10s", lf_fmt_value(text, sizeof text, v));
        lf_say("%s%s\n", unit[0] != '\0' ? "  " : "", unit);
    }
    (void)err;
    return 0;
}

static int fill_grid(struct grid *g, const lf_cmd *c, const lf_texts *keys, lf_err *err)
{
    const size_t cap = MAX_KEYS + 1;
    g->cols = lf_calloc(cap, sizeof *g->cols, err);
    g->shown = lf_calloc(cap + 1, sizeof *g->shown, err);
    if (g->cols == NULL || g->shown == NULL)
        return LF_ENOMEM;
    g->shown[0] = (lf_column){"step", "step", true, false};
    add_columns(g, keys, lf_optset_count(c->opts, "key") > 0);
    return lf_steps_choose(&g->steps, g->curves, (size_t)lf_optset_int(c->opts, "lines"), err);
}

static int print_table(const lf_cmd *c, const lf_curves *curves, const lf_texts *keys, lf_err *err)
{
    const char *spec = lf_optset_str(c->opts, "columns");
    if (curves->n == 1 && curves->v[0].records.n == 1 && spec == NULL)
        return print_single(&curves->v[0], keys, err);
    struct grid g = {.curves = curves};
    int rc = fill_grid(&g, c, keys, err);
    if (rc == 0 && lf_optset_count(c->opts, "key") == 0)
        rc = fit(&g, lf_screen_width(), err);
    const lf_table t = {.cols = g.shown, .n_cols = g.n + 1};
    if (rc == 0)
        rc = lf_table_cells(&t, &(lf_cells){.n = g.steps.n, .cell = grid_cell, .rows = &g}, spec,
                            err);
    free(g.cols);
    free(g.shown);
    lf_steps_fini(&g.steps);
    return rc;
}

/* ---- CSV ---- */

static int print_csv(const lf_cmd *c, const lf_curves *curves, const lf_texts *keys, lf_err *err)
{
    size_t max = lf_optset_is_set(c->opts, "lines") ? (size_t)lf_optset_int(c->opts, "lines") : 0;
    bool several = curves->n > 1;
    lf_steps steps;
    int rc = lf_steps_choose(&steps, curves, max, err);
    if (rc < 0)
        return rc;
    fputs(several ? "run,stage,step" : "step", stdout);
    for (size_t k = 0; k < keys->n; k++)
        lf_say(",%s", keys->v[k]);
    putchar('\n');
    for (size_t p = 0; p < curves->n; p++)
        for (size_t i = 0; i < steps.n; i++) {
            const lf_curve *cv = &curves->v[p];
            long at = steps.at[i * curves->n + p];
            double v;
            if (at < 0)
                continue;
            if (several)
                lf_say("%s,%s,", cv->label, cv->stage);
            printf("%.0f", steps.step[i]);
            for (size_t k = 0; k < keys->n; k++) {
                putchar(',');
                if (lf_raw_number(&v, cv->records.v[at].values, keys->v[k]))
                    printf("%.9g", v);
            }
            putchar('\n');
        }
    lf_steps_fini(&steps);
    return 0;
}

/* ---- plots ---- */

/* One plot: these metrics of all curves. */
static int plot(const lf_curves *curves, const lf_texts *keys, lf_err *err)
{
    lf_text_curve of[LF_TEXT_CURVES];
    char labels[LF_TEXT_CURVES][160], title[512] = "";
    size_t n = 0;
    int rc = 0;
    for (size_t k = 0; k < keys->n; k++) {
        const char *unit = lf_unit_of(keys->v[k]).symbol;
        size_t len = strlen(title);
        snprintf(title + len, sizeof title - len, "%s%s%s%s%s", k > 0 ? ", " : "", keys->v[k],
                 unit[0] != '\0' ? " (" : "", unit, unit[0] != '\0' ? ")" : "");
        for (size_t p = 0; rc == 0 && p < curves->n; p++) {
            if (!has(&curves->v[p], keys->v[k]))
                continue;
            if (n == LF_TEXT_CURVES) {
                rc = lf_fail(err, LF_EINVAL, "a plot has room for %d curves", LF_TEXT_CURVES);
                break;
            }
            snprintf(labels[n], sizeof labels[n], "%s%s%s", curves->n > 1 ? curves->v[p].title : "",
                     curves->n > 1 && keys->n > 1 ? " " : "",
                     curves->n > 1 && keys->n == 1 ? "" : keys->v[k]);
            of[n].label = labels[n];
            rc = lf_metrics_points(&of[n].p, &curves->v[p].records, keys->v[k], err);
            n += rc == 0;
        }
    }
    if (rc == 0)
        lf_text_plot(title, of, n, lf_screen_width());
    while (n > 0)
        lf_points_fini(&of[--n].p);
    return rc;
}

/* What the curves are judged by, with its validation. */
static int main_keys(lf_texts *out, const lf_curves *curves, lf_err *err)
{
    int rc = 0;
    for (size_t p = 0; p < curves->n; p++) {
        const lf_metric_main *m = lf_metric_main_of(curves->v[p].kind);
        const char *const keys[] = {m->key, m->valid};
        for (int i = 0; rc == 0 && i < 2; i++)
            if (has(&curves->v[p], keys[i]) && !lf_texts_has(out, keys[i]))
                rc = lf_texts_add(out, keys[i], err);
    }
    if (rc == 0 && out->n == 0 && curves->v[0].keys.n > 0)
        rc = lf_texts_add(out, curves->v[0].keys.v[0], err);
    return rc;
}

static int print_plots(const lf_cmd *c, const lf_curves *curves, lf_err *err)
{
    size_t n = lf_optset_count(c->opts, "key");
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < (n > 0 ? n : 1); i++) {
        lf_texts keys = {.given = true};
        rc = n > 0 ? add_words(&keys, lf_optset_str_at(c->opts, "key", i), err)
                   : main_keys(&keys, curves, err);
        if (rc == 0)
            rc = lf_curves_check(curves, &keys, err);
        if (rc == 0)
            rc = plot(curves, &keys, err);
        lf_texts_fini(&keys);
    }
    return rc;
}

/* ---- event files ---- */

/* All of it in one file, which stands for what an earlier export of this stage wrote. */
static int write_events(lf_tfevents *w, const lf_curve *m, const lf_texts *keys, lf_err *err)
{
    int rc = lf_tfevents_start(w, m->records.n > 0 ? m->records.v[0].t.v : 0, 0, err);
    for (size_t i = 0; rc == 0 && i < m->records.n; i++) {
        const lf_metric_row *r = &m->records.v[i];
        double v;
        for (size_t k = 0; k < keys->n; k++)
            if (lf_raw_number(&v, r->values, keys->v[k]))
                lf_tfevents_metric(w, keys->v[k], v);
        rc = lf_tfevents_flush(w, r->t.v, (int64_t)r->step.v, err);
    }
    return rc;
}

static int export_events(const lf_cmd *c, const lf_curve *m, const lf_texts *keys, lf_err *err)
{
    const char *output = lf_optset_str(c->opts, "output");
    lf_buf dir;
    if (output == NULL)
        return lf_fail(err, LF_EINVAL, "--format tensorboard needs --output: a directory");
    lf_buf_init(&dir);
    lf_buf_addf(&dir, "%s/%s/%s", output, m->run, m->stage);
    int rc = lf_buf_check(&dir, err);
    lf_tfevents *w = rc == 0 ? lf_tfevents_open(dir.data, lf_wall_s(), err) : NULL;
    if (rc == 0)
        rc = w != NULL ? write_events(w, m, keys, err) : err->rc;
    if (rc == 0)
        printf("%s: %zu records\n", lf_tfevents_path(w), m->records.n);
    lf_tfevents_close(w);
    lf_buf_fini(&dir);
    return rc;
}

/* ---- the command ---- */

static const struct lf_fields curves_fields =
    LF_FIELDS(lf_texts, {.key = "curves", .type = LF_FIELD_LIST, .sub = &lf_curve_fields});

static int print_json(const lf_curves *curves, const lf_texts *keys, lf_err *err)
{
    if (curves->n > 1)
        return lf_cmd_print(curves, &curves_fields, err);
    lf_curve one = curves->v[0];
    one.keys = *keys;
    return lf_cmd_print(&one, &lf_curve_fields, err);
}

/* Below what people read: the curves of a stage that ended early are shorter than its steps. */
static void tell_ends(const lf_curves *curves)
{
    for (size_t i = 0; i < curves->n; i++)
        if (curves->v[i].ended != NULL)
            lf_say("%s: %s\n", curves->v[i].title, curves->v[i].ended);
}

static int print_curves(const lf_cmd *c, const lf_curves *curves, lf_err *err)
{
    enum form form = (enum form)lf_optset_choice(c->opts, "format");
    bool any = false;
    for (size_t i = 0; i < curves->n; i++)
        any = any || curves->v[i].records.n > 0;
    if (!any && !c->json) {
        lf_say("stage %s has no metrics\n", curves->v[0].stage);
        return 0;
    }
    lf_texts keys;
    int rc = keys_of(&keys, c, curves, err);
    if (rc == 0 && c->json)
        rc = print_json(curves, &keys, err);
    else if (rc == 0 && form == PLOT)
        rc = print_plots(c, curves, err);
    else if (rc == 0 && form == CSV)
        rc = print_csv(c, curves, &keys, err);
    else if (rc == 0 && form == TABLE)
        rc = print_table(c, curves, &keys, err);
    if (rc == 0 && !c->json && (form == TABLE || form == PLOT))
        tell_ends(curves);
    for (size_t i = 0; rc == 0 && !c->json && form == TENSORBOARD && i < curves->n; i++)
        rc = export_events(c, &curves->v[i], &keys, err);
    lf_texts_fini(&keys);
    return rc;
}

static int metrics_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    size_t n_runs = 0;
    const char **runs = lf_cmd_list(c, "run", &n_runs, err);
    lf_curves curves;
    int rc = runs == NULL ? LF_ENOMEM
                          : lf_curves_load(&curves, p, (const char *const *)c->words,
                                           (size_t)c->n_words, runs, n_runs, err);
    free(runs);
    if (rc < 0)
        return rc;
    rc = print_curves(c, &curves, err);
    lf_curves_fini(&curves);
    return rc;
}

static int run_metrics(lf_cmd *c, lf_err *err)
{
    enum form form = (enum form)lf_optset_choice(c->opts, "format");
    if (lf_optset_is_set(c->opts, "output") && form != TENSORBOARD)
        return lf_fail(err, LF_EINVAL, "--output belongs to --format tensorboard");
    if (lf_optset_is_set(c->opts, "lines") && (form == PLOT || form == TENSORBOARD || c->json))
        return lf_fail(err, LF_EINVAL, "--lines belongs to --format table and csv");
    if (lf_optset_is_set(c->opts, "columns") && (form != TABLE || c->json))
        return lf_fail(err, LF_EINVAL, "--columns belongs to --format table; take --key");
    return lf_cmd_with_project(c, metrics_on, err);
}

const lf_cmd_def lf_cmd_metrics = {.table = &metrics_table,
                                   .words = "[STAGE | RUN | RUN/STAGE ...]",
                                   .max_words = 16,
                                   .run = run_metrics};
