/* SPDX-License-Identifier: Apache-2.0
 *
 * status: the stages of a run by evidence, or the runs of a project. What is printed was judged
 * from run directories, so it is right even when the ledger cannot be opened; the ledger only tells
 * which of many runs need not be looked at.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "flow/cmd/cmds.h"
#include "flow/cmd/status_all.h"
#include "flow/run/classify.h"
#include "flow/sched/describe.h"

static const lf_opt status_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_COLUMNS,
    LF_CMD_UTC,
    {.name = "all",
     .type = LF_OPT_BOOL,
     LF_OPT_COMMAND,
     .def = "no",
     .help = "list the runs of the project instead, newest first"},
    {.name = "state",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND,
     .help = "with --all: runs in these states, comma-separated"},
    {.name = "since",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND,
     .help = "with --all: runs made since a date (2026-11-22, 2026-11-22T13:00) or a time ago "
             "(2d, 12h)"},
    {.name = "tag",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND,
     .help = "with --all: runs that have this tag"},
    {.name = "sort",
     .type = LF_OPT_STR,
     LF_OPT_COMMAND,
     .help = "with --all: by this column, smallest first; -COLUMN: largest first"},
    {.name = "lines",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND,
     .def = "20",
     .help = "with --all: at most this many runs, 0 = all"},
};
LF_CMD_TABLE(status, "state of a run and its stages, or the runs of the project", status_rows);

static const lf_column stage_cols[] = {
    {"name", "STAGE", false, false},         {"kind", "KIND", false, false},
    {"state", "STATE", false, false},        {"attempts", "ATTEMPTS", true, false},
    {"done_text", "STEP", true, false},      {"time_text", "TIME", true, false},
    {"reason", "REASON", false, false},      {"epoch", "EPOCH", true, true},
    {"class", "CLASS", false, true},         {"dir", "DIRECTORY", false, true},
    {"spec_id", "SPEC", false, true},        {"step", "STEP", true, true},
    {"steps", "STEPS", true, true},          {"eta_text", "LEFT", true, true},
    {"segments", "STARTS", true, true},      {"jobid", "JOB", false, true},
    {"start_text", "STARTED", false, true},  {"attempt", "ATTEMPT", true, true},
    {"n_warnings", "WARNINGS", true, true},  {"layout", "LAYOUT", false, true},
    {"exposed_text", "EXPOSED", true, true},
};
static const lf_format stage_formats[] = {
    {"progress", "name,state,done_text,time_text,eta_text,exposed_text,segments"},
    {"jobs", "name,state,jobid,attempt,epoch,start_text,reason"},
    {"where", "name,state,dir"},
    {NULL, NULL},
};
static const lf_table stage_table = {stage_cols, sizeof stage_cols / sizeof stage_cols[0],
                                     stage_formats};
/* ---- one run ---- */

/* A row of the table. */
struct stage_row {
    lf_stage_shown s;
    char done_text[64], time_text[32], eta_text[32], start_text[21], exposed_text[16];
    const char *jobid;
};
static const struct lf_fields row_fields = LF_FIELDS_SHOWN(
    struct stage_row, {LF_FIELD_SUB(struct stage_row, s, LF_FIELD_BASE, &lf_stage_shown_fields)},
    {LF_FIELD_BUF(struct stage_row, done_text, "done_text"), .opt = true},
    {LF_FIELD_BUF(struct stage_row, time_text, "time_text"), .opt = true},
    {LF_FIELD_BUF(struct stage_row, eta_text, "eta_text"), .opt = true},
    {LF_FIELD_BUF(struct stage_row, start_text, "start_text"), .opt = true},
    {LF_FIELD_BUF(struct stage_row, exposed_text, "exposed_text"), .opt = true},
    LF_MEMBERS(struct stage_row, jobid));
typedef LF_ROWS(struct stage_row) stage_table_rows;

/* The share of its last step in which a rank waited for messages that nothing hides. */
static void set_exposed(struct stage_row *r)
{
    double waited, step;
    if (lf_raw_number(&waited, r->s.metrics, "comm_exposed_s") &&
        lf_raw_number(&step, r->s.metrics, "step_s") && step > 0)
        snprintf(r->exposed_text, sizeof r->exposed_text, "%.0f %%", 100 * waited / step);
}

static void set_texts(struct stage_row *r, const lf_cmd *c)
{
    const lf_stage_shown *s = &r->s;
    if (s->step.given && s->steps.given)
        snprintf(r->done_text, sizeof r->done_text, "%lld/%lld", (long long)s->step.v,
                 (long long)s->steps.v);
    else if (s->step.given)
        snprintf(r->done_text, sizeof r->done_text, "%lld", (long long)s->step.v);
    if (s->duration_s.given)
        lf_fmt_duration(r->time_text, sizeof r->time_text, s->duration_s.v);
    if (s->eta_s.given)
        lf_fmt_duration(r->eta_text, sizeof r->eta_text, s->eta_s.v);
    if (s->t_start.given)
        lf_cmd_time(r->start_text, c, s->t_start.v);
    set_exposed(r);
    r->jobid = s->job != NULL ? s->job->id : NULL;
}

static int print_stages(const lf_cmd *c, const lf_run_shown *o, const char *cols, lf_err *err)
{
    stage_table_rows rows = {.n = 0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->stages.n; i++) {
        struct stage_row *r = lf_rows_add(&rows, sizeof *r, err);
        if (r == NULL) {
            rc = LF_ENOMEM;
            continue;
        }
        r->s = o->stages.v[i];
        set_texts(r, c);
    }
    if (rc == 0)
        rc = lf_table_show(&stage_table, &rows, &row_fields, cols, err);
    free(rows.v);
    return rc;
}

static void print_failures(const lf_run_shown *o)
{
    for (size_t i = 0; i < o->stages.n; i++) {
        const lf_stage_shown *s = &o->stages.v[i];
        if (strcmp(s->state, "failed") != 0)
            continue;
        lf_say("\n%s failed (%s); the last lines that matter:\n", s->name,
               s->cls != NULL ? s->cls : "unknown");
        for (size_t k = 0; k < s->log.n; k++)
            lf_say("  | %s\n", s->log.v[k]);
        if (s->cls != NULL && lf_class_advice(s->cls)[0] != '\0')
            lf_say("  %s\n", lf_class_advice(s->cls));
    }
}

static void print_warnings(const lf_run_shown *o)
{
    for (size_t i = 0; i < o->stages.n; i++) {
        const lf_stage_shown *s = &o->stages.v[i];
        if (!s->n_warnings.given)
            continue;
        lf_say("\n%s: %lld warning%s\n", s->name, (long long)s->n_warnings.v,
               s->n_warnings.v == 1 ? "" : "s");
        for (size_t k = 0; k < s->warnings.n; k++)
            lf_say("  | %s\n", s->warnings.v[k]);
    }
}

static int show_run(const lf_cmd *c, const lf_run_shown *o, lf_err *err)
{
    const char *cols = lf_optset_str(c->opts, "columns");
    if (c->json)
        return lf_cmd_print(o, &lf_run_shown_fields, err);
    if (cols == NULL) {
        lf_cmd_print_head(o);
        putchar('\n');
    }
    int rc = print_stages(c, o, cols, err);
    if (rc == 0 && cols == NULL) {
        print_warnings(o);
        print_failures(o);
    }
    return rc;
}

static int status_one(lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_run_view v;
    lf_run_shown o;
    int rc = lf_view_find(&v, p, lf_cmd_word(c, 0), err);
    if (rc < 0)
        return rc;
    rc = lf_describe_run(&o, &v, err);
    if (rc == 0)
        rc = show_run(c, &o, err);
    lf_run_shown_fini(&o);
    lf_view_fini(&v);
    return rc;
}

static int status_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    static const char *const for_all[] = {"state", "since", "tag", "sort", "lines"};
    bool all = lf_optset_bool(c->opts, "all");
    for (size_t i = 0; i < sizeof for_all / sizeof for_all[0]; i++)
        all = all || lf_optset_is_set(c->opts, for_all[i]);
    if (all && c->n_words > 0)
        return lf_fail(err, LF_EINVAL,
                       "either one run, or the runs of the project (--all and its filters)");
    return all ? lf_cmd_status_all(c, p, err) : status_one(c, p, err);
}

static int run_status(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_project(c, status_on, err);
}

const lf_cmd_def lf_cmd_status = {
    .table = &status_table, .words = "[RUN]", .max_words = 1, .run = run_status};
