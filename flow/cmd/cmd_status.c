/* SPDX-License-Identifier: Apache-2.0
 *
 * status: the stages of a run by evidence, or the runs of a project. What is printed was judged
 * from run directories, so it is right even when the ledger cannot be opened; the ledger only tells
 * which of many runs need not be looked at.
 */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/io.h"
#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/cmd/cmds.h"
#include "flow/record/record.h"
#include "flow/run/asking.h"
#include "flow/run/classify.h"
#include "flow/sched/describe.h"
#include "flow/sched/sched.h"

static const lf_opt status_rows[] = {
    LF_CMD_COMMON,
    LF_CMD_COLUMNS,
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
    {.name = "lines",
     .type = LF_OPT_INT,
     LF_OPT_COMMAND,
     .def = "20",
     .help = "with --all: at most this many runs, 0 = all"},
};
LF_CMD_TABLE(status, "state of a run and its stages, or the runs of the project", status_rows);

static const lf_column stage_cols[] = {
    {"name", "STAGE", false, false},        {"kind", "KIND", false, false},
    {"state", "STATE", false, false},       {"attempts", "ATTEMPTS", true, false},
    {"done_text", "STEP", true, false},     {"time_text", "TIME", true, false},
    {"reason", "REASON", false, false},     {"epoch", "EPOCH", true, true},
    {"class", "CLASS", false, true},        {"dir", "DIRECTORY", false, true},
    {"spec_id", "SPEC", false, true},       {"step", "STEP", true, true},
    {"steps", "STEPS", true, true},         {"eta_text", "LEFT", true, true},
    {"segments", "STARTS", true, true},     {"jobid", "JOB", false, true},
    {"start_text", "STARTED", false, true}, {"attempt", "ATTEMPT", true, true},
    {"n_warnings", "WARNINGS", true, true},
};
static const lf_format stage_formats[] = {
    {"progress", "name,state,done_text,time_text,eta_text,segments"},
    {"jobs", "name,state,jobid,attempt,epoch,start_text,reason"},
    {"where", "name,state,dir"},
    {NULL, NULL},
};
static const lf_table stage_table = {stage_cols, sizeof stage_cols / sizeof stage_cols[0],
                                     stage_formats};
static const lf_column run_cols[] = {
    {"run", "RUN", false, false},
    {"name", "NAME", false, false},
    {"state", "STATE", false, false},
    {"stages_text", "DONE", true, false},
    {"created_text", "CREATED", false, false},
    {"tags_text", "TAGS", false, false},
    {"rev", "REV", true, true},
    {"dir", "DIRECTORY", false, true},
};
static const lf_format run_formats[] = {
    {"ids", "run"}, {"where", "run,name,state,dir"}, {NULL, NULL}};
static const lf_table run_table = {run_cols, sizeof run_cols / sizeof run_cols[0], run_formats};

/* ---- one run ---- */

/* A row of the table. */
struct stage_row {
    lf_stage_shown s;
    char done_text[64], time_text[32], eta_text[32], start_text[21];
    const char *jobid;
};
static const struct lf_fields row_fields = LF_FIELDS_SHOWN(
    struct stage_row, {LF_FIELD_SUB(struct stage_row, s, LF_FIELD_BASE, &lf_stage_shown_fields)},
    {LF_FIELD_BUF(struct stage_row, done_text, "done_text"), .opt = true},
    {LF_FIELD_BUF(struct stage_row, time_text, "time_text"), .opt = true},
    {LF_FIELD_BUF(struct stage_row, eta_text, "eta_text"), .opt = true},
    {LF_FIELD_BUF(struct stage_row, start_text, "start_text"), .opt = true},
    LF_MEMBERS(struct stage_row, jobid));
typedef LF_ROWS(struct stage_row) stage_table_rows;

static void set_texts(struct stage_row *r)
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
        lf_time_iso(r->start_text, s->t_start.v);
    r->jobid = s->job != NULL ? s->job->id : NULL;
}

static int print_stages(const lf_run_shown *o, const char *cols, lf_err *err)
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
        set_texts(r);
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
    int rc = print_stages(o, cols, err);
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

/* ---- many ---- */

struct filter {
    const char *states; /* comma-separated, NULL: any */
    double since;       /* 0: any */
    const char *tag;
    lf_lists tags;  /* of each run; empty when the ledger does not tell */
    lf_pairs known; /* run: state, of those whose work is over, by the ledger */
};

/* "2d" ago, or a date with or without a time, local. */
static int parse_since(double *out, const char *text, lf_err *err)
{
    int64_t ago = 0;
    struct tm tm = {.tm_isdst = -1};
    char rest = 0;
    int n = sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d%c", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                   &tm.tm_hour, &tm.tm_min, &tm.tm_sec, &rest);
    if (n >= 3 && n <= 6 && tm.tm_mon >= 1 && tm.tm_mon <= 12 && tm.tm_mday >= 1 &&
        tm.tm_mday <= 31 && tm.tm_year >= 1970) {
        tm.tm_year -= 1900;
        tm.tm_mon--;
        *out = (double)mktime(&tm);
        return 0;
    }
    if (lf_parse_duration(&ago, text, NULL) < 0 || ago < 0)
        return lf_fail(err, LF_EINVAL,
                       "--since %s: a date such as 2026-11-22 or 2026-11-22T13:00, or a time ago "
                       "such as 2d or 12h",
                       text);
    *out = lf_wall_s() - (double)ago;
    return 0;
}

static bool in_list(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; p != NULL; p = strchr(p, ','), p = p != NULL ? p + 1 : NULL)
        if (strncmp(p, word, n) == 0 && (p[n] == ',' || p[n] == '\0'))
            return true;
    return false;
}

static int check_states(const char *list, lf_err *err)
{
    const char *names[9];
    for (int i = 0; i < 9; i++)
        names[i] = lf_state_name((enum lf_state)i);
    for (const char *p = list; p != NULL; p = strchr(p, ','), p = p != NULL ? p + 1 : NULL) {
        char word[32];
        bool ok = false;
        snprintf(word, sizeof word, "%.*s", (int)(strcspn(p, ",") < 31 ? strcspn(p, ",") : 31), p);
        for (int i = 0; i < 9; i++)
            ok = ok || strcmp(names[i], word) == 0;
        const char *near = ok ? NULL : lf_nearest(word, names, 9);
        if (!ok)
            return lf_fail(err, LF_EINVAL, "--state: there is no state \"%s\"%s%s%s", word,
                           near != NULL ? "; did you mean " : "",
                           near != NULL ? near
                                        : "; waiting, pending, running, done, failed, cancelled, "
                                          "purged, unknown, ended",
                           near != NULL ? "?" : "");
    }
    return 0;
}

/* What the ledger says of a run, or of a tag of it. */
struct said {
    char *run, *tag, *state;
};
static const struct lf_fields said_fields =
    LF_FIELDS(struct said, LF_MEMBERS(struct said, run, tag, state));
typedef LF_ROWS(struct said) said_list;

/* What the ledger knows, read as it is. Nothing is lost without it but time, and tags. */
static void ask_ledger(struct filter *f, const lf_project *p)
{
    lf_err e = LF_ERR_INIT;
    said_list tags = {.n = 0}, runs = {.n = 0};
    lf_ledger *l = lf_ask_open(p, &e);
    if (l != NULL)
        (void)lf_fields_list(&tags, &said_fields, lf_ledger_tags(l, NULL, &e), &e);
    if (l != NULL && f->states != NULL)
        (void)lf_fields_list(&runs, &said_fields, lf_ledger_runs(l, NULL, &e), &e);
    for (size_t i = 0; i < tags.n; i++) {
        lf_texts *of = lf_lists_add(&f->tags, tags.v[i].run, &e);
        if (of != NULL)
            (void)lf_texts_add(of, tags.v[i].tag, &e);
    }
    for (size_t i = 0; i < runs.n; i++)
        if (in_list("done,failed,cancelled", runs.v[i].state))
            (void)lf_pairs_set(&f->known, runs.v[i].run, runs.v[i].state, &e);
    lf_fields_list_fini(&tags, &said_fields);
    lf_fields_list_fini(&runs, &said_fields);
    lf_ledger_close(l);
}

/* May the run's state be taken from the ledger to pass it over? Not when somebody has touched it
 * lately. */
static bool passed_over(const struct filter *f, const lf_run *r)
{
    char hint[PATH_MAX];
    const char *state = lf_pairs_get(&f->known, r->id);
    if (f->tag != NULL) {
        const lf_texts *tags = lf_lists_get(&f->tags, r->id);
        if (tags == NULL || !lf_texts_has(tags, f->tag))
            return true;
    }
    if (f->since > 0 && lf_ulid_time(r->id) < f->since)
        return true;
    /* done: its files may have been purged since */
    if (f->states == NULL || state == NULL || in_list(f->states, state) ||
        (strcmp(state, "done") == 0 && in_list(f->states, "purged")))
        return false;
    return lf_path_set(hint, NULL, "%s/changed/%s", r->data, r->id) == 0 && !lf_io_exists(hint);
}

/* A run of the list, which owns what it points to. */
struct run_row {
    lf_run_shown r;
    char stages_text[48], created_text[21];
    char *tags_text;
    lf_texts tags;
};
static const struct lf_fields run_fields = LF_FIELDS_SHOWN(
    struct run_row, {LF_FIELD_SUB(struct run_row, r, LF_FIELD_BASE, &lf_run_shown_fields)},
    {LF_FIELD_BUF(struct run_row, stages_text, "stages_text")},
    {LF_FIELD_BUF(struct run_row, created_text, "created_text")},
    LF_MEMBERS(struct run_row, tags_text, tags));
struct run_list {
    LF_ROWS(struct run_row) runs;
};
static const struct lf_fields list_fields =
    LF_FIELDS(struct run_list, LF_LIST(struct run_list, runs, run_fields));

static int add_run_texts(struct run_row *row, const struct filter *f, lf_err *err)
{
    const lf_texts *tags = lf_lists_get(&f->tags, row->r.run);
    size_t done = 0;
    for (size_t i = 0; i < row->r.stages.n; i++)
        done += strcmp(row->r.stages.v[i].state, "done") == 0;
    snprintf(row->stages_text, sizeof row->stages_text, "%zu/%zu", done, row->r.stages.n);
    lf_time_iso(row->created_text, row->r.created.v);
    if (tags == NULL)
        return 0;
    lf_buf text;
    lf_buf_init(&text);
    for (size_t i = 0; i < tags->n; i++)
        lf_buf_addf(&text, "%s%s", i > 0 ? "," : "", tags->v[i]);
    int rc = lf_buf_check(&text, err);
    if (rc == 0)
        rc = lf_text_set(&row->tags_text, text.data, "tags", err);
    lf_buf_fini(&text);
    return rc == 0 ? lf_texts_copy(&row->tags, tags, err) : rc;
}

/* In one of the states that are wanted. */
static int add_row(struct run_list *list, const struct filter *f, const lf_run_shown *run,
                   lf_err *err)
{
    if (f->states != NULL && !in_list(f->states, run->state))
        return 0;
    struct run_row *row = lf_rows_add(&list->runs, sizeof *row, err);
    int rc = row == NULL ? LF_ENOMEM : lf_fields_copy(&row->r, run, &lf_run_shown_fields, err);
    return rc == 0 ? add_run_texts(row, f, err) : rc;
}

/* Takes the run. */
static int add_run(struct run_list *list, const struct filter *f, lf_run *run, lf_err *err)
{
    lf_run_view v;
    lf_run_shown o = {.run = NULL};
    int rc = lf_view_load(&v, run, err);
    if (rc < 0)
        return rc;
    rc = lf_sched_overlay(&v, false, err);
    if (rc == 0)
        rc = lf_describe_run(&o, &v, err);
    if (rc == 0)
        rc = add_row(list, f, &o, err);
    lf_run_shown_fini(&o);
    lf_view_fini(&v);
    return rc;
}

static int collect(struct run_list *list, const struct filter *f, lf_run_list *l, size_t max,
                   lf_err *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < l->n && (max == 0 || list->runs.n < max); i++)
        /* A run that cannot be loaded is one of a submit that died before it had frozen it. */
        if (!passed_over(f, &l->runs[i]) && lf_run_load(&l->runs[i], NULL) == 0)
            rc = add_run(list, f, &l->runs[i], err);
    return rc;
}

static int show_runs(const lf_cmd *c, const struct run_list *list, lf_err *err)
{
    if (c->json)
        return lf_cmd_print(list, &list_fields, err);
    return lf_table_show(&run_table, &list->runs, &run_fields, lf_optset_str(c->opts, "columns"),
                         err);
}

static int status_all(lf_cmd *c, const lf_project *p, lf_err *err)
{
    const char *since = lf_optset_str(c->opts, "since");
    struct filter f = {.states = lf_optset_str(c->opts, "state"),
                       .tag = lf_optset_str(c->opts, "tag")};
    lf_run_list l = {NULL, 0, 0};
    struct run_list list = {.runs = {.n = 0}};
    int rc = since != NULL ? parse_since(&f.since, since, err) : 0;
    if (rc == 0 && f.states != NULL)
        rc = check_states(f.states, err);
    if (rc == 0)
        rc = lf_run_list_load(&l, p, err);
    if (rc == 0) {
        ask_ledger(&f, p);
        rc = collect(&list, &f, &l, (size_t)lf_optset_int(c->opts, "lines"), err);
    }
    lf_run_list_fini(&l);
    if (rc == 0)
        rc = show_runs(c, &list, err);
    lf_fields_fini(&list, &list_fields);
    lf_lists_fini(&f.tags);
    lf_pairs_fini(&f.known);
    return rc;
}

static int status_on(lf_cmd *c, const lf_project *p, lf_err *err)
{
    static const char *const for_all[] = {"state", "since", "tag", "lines"};
    bool all = lf_optset_bool(c->opts, "all");
    for (size_t i = 0; i < 4; i++)
        all = all || lf_optset_is_set(c->opts, for_all[i]);
    if (all && c->n_words > 0)
        return lf_fail(err, LF_EINVAL,
                       "either one run, or the runs of the project (--all and its filters)");
    return all ? status_all(c, p, err) : status_one(c, p, err);
}

static int run_status(lf_cmd *c, lf_err *err)
{
    return lf_cmd_with_project(c, status_on, err);
}

const lf_cmd_def lf_cmd_status = {
    .table = &status_table, .words = "[RUN]", .max_words = 1, .run = run_status};
