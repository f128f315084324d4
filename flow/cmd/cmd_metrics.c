/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics: the curves of a stage as a table, CSV, JSON, a plot of characters or an event file of
 * TensorBoard.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/mem.h"
#include "engine/base/sys.h"
#include "engine/base/tfevents.h"
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
     .help = "table: at most this many rows, evenly spread, 0 = all"},
};
LF_CMD_TABLE(metrics, "the curves of a stage: table, CSV, JSON, plot or TensorBoard", metrics_rows);

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

static int print_plots(const lf_metric_rows *records, const lf_texts *keys, lf_err *err)
{
    int rc = 0;
    for (size_t k = 0; rc == 0 && k < keys->n; k++) {
        lf_points p;
        rc = lf_metrics_points(&p, records, keys->v[k], err);
        if (rc == 0 && p.n > 0)
            plot(keys->v[k], &p);
        if (rc == 0)
            lf_points_fini(&p);
    }
    return rc;
}

static void print_csv(const lf_metric_rows *records, const lf_texts *keys)
{
    fputs("step", stdout);
    for (size_t k = 0; k < keys->n; k++)
        printf(",%s", keys->v[k]);
    putchar('\n');
    for (size_t i = 0; i < records->n; i++) {
        double v;
        printf("%.0f", records->v[i].step.v);
        for (size_t k = 0; k < keys->n; k++) {
            putchar(',');
            if (lf_raw_number(&v, records->v[i].values, keys->v[k]))
                printf("%.9g", v);
        }
        putchar('\n');
    }
}

/* The records that a table shows: first and last always among them. */
struct sample {
    const lf_metric_rows *records;
    size_t show;
};

static char *value_of(const void *rows, size_t row, const char *key, lf_err *err)
{
    const struct sample *s = rows;
    size_t total = s->records->n, at = s->show > 1 ? row * (total - 1) / (s->show - 1) : total - 1;
    return lf_raw_cell(s->records->v[at].values, key, err);
}

static int print_table(const lf_cmd *c, const lf_metric_rows *records, const lf_texts *keys,
                       lf_err *err)
{
    lf_column cols[40] = {{"step", "step", true, false}};
    lf_table t = {.cols = cols, .n_cols = 1};
    size_t total = records->n, max = (size_t)lf_optset_int(c->opts, "lines");
    for (size_t k = 0; k < keys->n && t.n_cols < 40; k++)
        cols[t.n_cols++] = (lf_column){keys->v[k], keys->v[k], true, false};
    const struct sample s = {.records = records, .show = max == 0 || max > total ? total : max};
    return lf_table_cells(&t, &(lf_cells){.n = s.show, .cell = value_of, .rows = &s},
                          lf_optset_str(c->opts, "columns"), err);
}

/* The curves of a stage. */
struct curves {
    const char *run, *stage;
    lf_texts keys;
    lf_metric_rows records;
};
static const struct lf_fields curves_fields =
    LF_FIELDS(struct curves, LF_MEMBERS(struct curves, run, stage, keys),
              LF_LIST(struct curves, records, lf_metric_row_fields));

/* All of it in one file, which stands for what an earlier export of this stage wrote. */
static int write_events(lf_tfevents *w, const struct curves *m, lf_err *err)
{
    int rc = lf_tfevents_start(w, m->records.n > 0 ? m->records.v[0].t.v : 0, 0, err);
    for (size_t i = 0; rc == 0 && i < m->records.n; i++) {
        const lf_metric_row *r = &m->records.v[i];
        double v;
        for (size_t k = 0; k < m->keys.n; k++)
            if (lf_raw_number(&v, r->values, m->keys.v[k]))
                lf_tfevents_metric(w, m->keys.v[k], v);
        rc = lf_tfevents_flush(w, r->t.v, (int64_t)r->step.v, err);
    }
    return rc;
}

static int export_events(const lf_cmd *c, const struct curves *m, lf_err *err)
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
        rc = w != NULL ? write_events(w, m, err) : err->rc;
    if (rc == 0)
        printf("%s: %zu records\n", lf_tfevents_path(w), m->records.n);
    lf_tfevents_close(w);
    lf_buf_fini(&dir);
    return rc;
}

static int choose_keys(lf_texts *keys, const lf_cmd *c, const lf_metric_rows *records, lf_err *err)
{
    size_t n = lf_optset_count(c->opts, "key");
    int rc = n == 0 ? lf_metric_names(keys, records, err) : 0;
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = lf_texts_add(keys, lf_optset_str_at(c->opts, "key", i), err);
    return rc;
}

/* The stage named, or the one with the longest curves. */
static int pick_records(struct curves *out, const lf_cmd *c, const lf_run_view *v, lf_err *err)
{
    const char *word = lf_cmd_word(c, 0);
    for (size_t i = 0; i < v->n; i++) {
        const char *this = v->stages[i].plan->name;
        lf_metric_rows r;
        if (word != NULL && strcmp(word, this) != 0)
            continue;
        int rc = lf_metrics_records(&r, &v->stages[i], err);
        if (rc < 0)
            return rc;
        if (out->stage == NULL || r.n > out->records.n) {
            lf_metric_rows_fini(&out->records);
            out->records = r;
            out->stage = this;
        } else {
            lf_metric_rows_fini(&r);
        }
    }
    return out->stage != NULL ? 0
                              : lf_fail(err, LF_EINVAL, "run %s has no stage \"%s\"", v->run.id,
                                        word != NULL ? word : "");
}

/* Below what people read: the curves of a stage that ended early are shorter than its steps. */
static void tell_end(const lf_run_view *v, const char *stage)
{
    char text[128];
    const lf_stage_view *s = lf_view_stage(v, stage);
    if (s != NULL && s->result_done != NULL && s->result_done->ended != NULL)
        printf("%s: %s\n", stage, lf_cut_short_text(text, sizeof text, s->result_done->ended));
}

static int metrics_of(lf_cmd *c, lf_run_view *v, lf_err *err)
{
    struct curves m = {.run = v->run.id};
    int rc = pick_records(&m, c, v, err), form = lf_optset_choice(c->opts, "format");
    if (rc == 0)
        rc = choose_keys(&m.keys, c, &m.records, err);
    if (rc == 0 && c->json)
        rc = lf_cmd_print(&m, &curves_fields, err);
    else if (rc == 0 && m.records.n == 0)
        printf("stage %s has no metrics\n", m.stage);
    else if (rc == 0 && form == 3)
        rc = export_events(c, &m, err);
    else if (rc == 0 && form == 2)
        rc = print_plots(&m.records, &m.keys, err);
    else if (rc == 0 && form == 1)
        print_csv(&m.records, &m.keys);
    else if (rc == 0)
        rc = print_table(c, &m.records, &m.keys, err);
    if (rc == 0 && !c->json && m.records.n > 0 && (form == 0 || form == 2))
        tell_end(v, m.stage);
    lf_texts_fini(&m.keys);
    lf_metric_rows_fini(&m.records);
    return rc;
}

static int run_metrics(lf_cmd *c, lf_err *err)
{
    if (lf_optset_is_set(c->opts, "output") && lf_optset_choice(c->opts, "format") != 3)
        return lf_fail(err, LF_EINVAL, "--output belongs to --format tensorboard");
    return lf_cmd_with_run(c, lf_optset_str(c->opts, "run"), metrics_of, err);
}

const lf_cmd_def lf_cmd_metrics = {
    .table = &metrics_table, .words = "[STAGE]", .max_words = 1, .run = run_metrics};
