/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics: the curves of a stage as a table, CSV, JSON or a plot of characters.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "flow/cmd/cmds.h"
#include "flow/run/series.h"
#include "flow/sched/describe.h"

static const lf_opt metrics_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_COLUMNS,
    {.name = "run", .type = LF_OPT_STR, LF_OPT_COMMAND, .help = "run; default: the newest"},
    {.name = "key",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND | LF_OPT_REPEAT,
     .help = "metric, may be repeated; default: all"},
    {.name = "format",
     .type = LF_OPT_ENUM,
     LF_OPT_COMMAND,
     .def = "table",
     .choices = "table|csv|plot",
     .help = "form of the output"},
    {.name = "lines",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND,
     .def = "20",
     .help = "table: at most this many rows, evenly spread, 0 = all"},
};
LF_CMD_TABLE(metrics, "the curves of a stage: table, CSV, JSON or plot", metrics_rows);

#define PLOT_W 72
#define PLOT_H 16

static void plot(const char *key, const lf_points *p)
{
    char grid[PLOT_H][PLOT_W + 1];
    double lo = INFINITY, hi = -INFINITY;
    for (size_t i = 0; i < p->n; i++)
        if (isfinite(p->y[i])) {
            lo = p->y[i] < lo ? p->y[i] : lo;
            hi = p->y[i] > hi ? p->y[i] : hi;
        }
    if (!isfinite(lo))
        return;
    double x0 = p->x[0], x1 = p->x[p->n - 1], dx = x1 > x0 ? x1 - x0 : 1,
           dy = hi > lo ? hi - lo : 1;
    for (int r = 0; r < PLOT_H; r++) {
        memset(grid[r], ' ', PLOT_W);
        grid[r][PLOT_W] = '\0';
    }
    for (size_t i = 0; i < p->n; i++) {
        if (!isfinite(p->y[i]))
            continue;
        int col = (int)((p->x[i] - x0) / dx * (PLOT_W - 1)),
            row = (int)((hi - p->y[i]) / dy * (PLOT_H - 1));
        grid[row][col] = '*';
    }
    printf("%s\n", key);
    for (int r = 0; r < PLOT_H; r++) {
        if (r == 0 || r == PLOT_H - 1)
            printf("%10.4g |%s\n", r == 0 ? hi : lo, grid[r]);
        else
            printf("%10s |%s\n", "", grid[r]);
    }
    printf("%10s +", "");
    for (int i = 0; i < PLOT_W; i++)
        putchar('-');
    printf("\n%12s%-.0f%*.0f  step\n\n", "", x0, PLOT_W - 10, x1);
}

static int print_plots(const json_t *records, const json_t *keys, lf_err *err)
{
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < json_array_size(keys); k++) {
        lf_points p;
        rc = lf_metrics_points(&p, records, json_string_value(json_array_get(keys, k)), err);
        if (rc == 0 && p.n > 0)
            plot(json_string_value(json_array_get(keys, k)), &p);
        if (rc == 0)
            lf_points_fini(&p);
    }
    return rc;
}

static void print_csv(const json_t *records, const json_t *keys)
{
    fputs("step", stdout);
    for (size_t k = 0; k < json_array_size(keys); k++)
        printf(",%s", json_string_value(json_array_get(keys, k)));
    putchar('\n');
    for (size_t i = 0; i < json_array_size(records); i++) {
        const json_t *r = json_array_get(records, i);
        printf("%.0f", json_number_value(json_object_get(r, "step")));
        for (size_t k = 0; k < json_array_size(keys); k++) {
            const json_t *v = json_object_get(r, json_string_value(json_array_get(keys, k)));
            putchar(',');
            if (json_is_number(v))
                printf("%.9g", json_number_value(v));
        }
        putchar('\n');
    }
}

static int print_table(const lf_cmd *c, const json_t *records, const json_t *keys, lf_err *err)
{
    lf_column cols[40] = {{"step", "step", true, false}};
    size_t n = 1, total = json_array_size(records), max = (size_t)lf_optset_int(c->opts, "lines");
    for (size_t k = 0; k < json_array_size(keys) && n < 40; k++, n++)
        cols[n] = (lf_column){json_string_value(json_array_get(keys, k)),
                              json_string_value(json_array_get(keys, k)), true, false};
    json_t *rows = json_array();
    size_t show = max == 0 || max > total ? total : max;
    for (size_t i = 0; i < show; i++) { /* first and last always among them */
        size_t at = show > 1 ? i * (total - 1) / (show - 1) : total - 1;
        json_array_append(rows, json_array_get(records, at));
    }
    int rc = lf_table_print(rows, cols, n, lf_optset_str(c->opts, "columns"), err);
    json_decref(rows);
    return rc;
}

static json_t *choose_keys(const lf_cmd *c, const json_t *records)
{
    size_t n = lf_optset_count(c->opts, "key");
    if (n == 0)
        return lf_metrics_keys(records);
    json_t *keys = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(keys, json_string(lf_optset_str_at(c->opts, "key", i)));
    return keys;
}

/* The stage named, or the one with the longest curves. */
static int pick_records(json_t **out, const char **name, const lf_cmd *c, lf_run_view *v,
                        lf_err *err)
{
    const char *word = lf_cmd_word(c, 0);
    *out = NULL;
    *name = NULL;
    for (size_t i = 0; i < v->n; i++) {
        const char *this = v->stages[i].plan->name;
        if (word != NULL && strcmp(word, this) != 0)
            continue;
        json_t *r = lf_metrics_records(&v->stages[i], err);
        if (r == NULL) {
            json_decref(*out);
            return err->rc != 0 ? err->rc : LF_EIO;
        }
        if (*out == NULL || json_array_size(r) > json_array_size(*out)) {
            json_decref(*out);
            *out = r;
            *name = this;
        } else {
            json_decref(r);
        }
    }
    return *out != NULL ? 0
                        : lf_fail(err, LF_EINVAL, "run %s has no stage \"%s\"", v->run.id,
                                  word != NULL ? word : "");
}

static int metrics_of(lf_cmd *c, lf_run_view *v, lf_err *err)
{
    json_t *records = NULL;
    const char *name = NULL;
    int rc = pick_records(&records, &name, c, v, err), form = lf_optset_choice(c->opts, "format");
    if (rc < 0)
        return rc;
    json_t *keys = choose_keys(c, records);
    if (c->json)
        rc = lf_cmd_print_json(json_pack("{s:s, s:s, s:O, s:O?}", "run", v->run.id, "stage", name,
                                         "keys", keys, "records", records),
                               err);
    else if (json_array_size(records) == 0)
        printf("stage %s has no metrics\n", name);
    else if (form == 2)
        rc = print_plots(records, keys, err);
    else if (form == 1)
        print_csv(records, keys);
    else
        rc = print_table(c, records, keys, err);
    json_decref(keys);
    json_decref(records);
    return rc;
}

static int run_metrics(lf_cmd *c, lf_err *err)
{
    lf_project p;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    lf_run_view v;
    rc = lf_view_find(&v, &p, lf_optset_str(c->opts, "run"), err);
    if (rc == 0) {
        rc = metrics_of(c, &v, err);
        lf_view_fini(&v);
    }
    lf_project_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_metrics = {
    .table = &metrics_table, .words = "[STAGE]", .max_words = 1, .run = run_metrics};
