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

static void add_texts(json_t *s)
{
    char b[64], d[32], when[21];
    json_t *step = json_object_get(s, "step"), *steps = json_object_get(s, "steps"), *v;
    if (step != NULL && steps != NULL)
        snprintf(b, sizeof b, "%lld/%lld", (long long)json_integer_value(step),
                 (long long)json_integer_value(steps));
    else if (step != NULL)
        snprintf(b, sizeof b, "%lld", (long long)json_integer_value(step));
    if (step != NULL)
        json_object_set_new(s, "done_text", json_string(b));
    if ((v = json_object_get(s, "duration_s")) != NULL)
        json_object_set_new(s, "time_text",
                            json_string(lf_fmt_duration(d, sizeof d, json_number_value(v))));
    if ((v = json_object_get(s, "eta_s")) != NULL)
        json_object_set_new(s, "eta_text",
                            json_string(lf_fmt_duration(d, sizeof d, json_number_value(v))));
    if ((v = json_object_get(s, "t_start")) != NULL)
        json_object_set_new(s, "start_text", json_string(lf_time_iso(when, json_number_value(v))));
    if ((v = json_object_get(json_object_get(s, "job"), "id")) != NULL)
        json_object_set(s, "jobid", v);
}

static void print_failures(const json_t *stages)
{
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *s = json_array_get(stages, i);
        json_t *log = json_object_get(s, "log");
        const char *state = json_string_value(json_object_get(s, "state"));
        if (state == NULL || strcmp(state, "failed") != 0)
            continue;
        const char *cls = json_string_value(json_object_get(s, "class"));
        lf_say("\n%s failed (%s); the last lines that matter:\n",
               json_string_value(json_object_get(s, "name")), cls != NULL ? cls : "unknown");
        for (size_t k = 0; k < json_array_size(log); k++) {
            const char *line = json_string_value(json_array_get(log, k));
            lf_say("  | %s\n", line != NULL ? line : "");
        }
        if (cls != NULL && lf_class_advice(cls)[0] != '\0')
            lf_say("  %s\n", lf_class_advice(cls));
    }
}

static int status_one(lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_run_view v;
    int rc = lf_view_find(&v, p, lf_cmd_word(c, 0), err);
    if (rc < 0)
        return rc;
    json_t *o = lf_describe_run(&v);
    lf_view_fini(&v);
    if (o == NULL)
        return lf_fail(err, LF_ENOMEM, "out of memory");
    if (c->json)
        return lf_cmd_print_json(o, err);
    json_t *stages = json_object_get(o, "stages");
    const char *cols = lf_optset_str(c->opts, "columns");
    for (size_t i = 0; i < json_array_size(stages); i++)
        add_texts(json_array_get(stages, i));
    if (cols == NULL) {
        lf_cmd_print_head(o);
        putchar('\n');
    }
    rc = lf_table_show(&stage_table, stages, cols, err);
    if (rc == 0 && cols == NULL)
        print_failures(stages);
    json_decref(o);
    return rc;
}

/* ---- many ---- */

struct filter {
    const char *states; /* comma-separated, NULL: any */
    double since;       /* 0: any */
    const char *tag;
    json_t *tags;  /* run -> [tags], empty when the ledger does not tell */
    json_t *known; /* run -> state of those whose work is over, by the ledger */
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
    const char *names[8];
    for (int i = 0; i < 8; i++)
        names[i] = lf_state_name((enum lf_state)i);
    for (const char *p = list; p != NULL; p = strchr(p, ','), p = p != NULL ? p + 1 : NULL) {
        char word[32];
        bool ok = false;
        snprintf(word, sizeof word, "%.*s", (int)(strcspn(p, ",") < 31 ? strcspn(p, ",") : 31), p);
        for (int i = 0; i < 8; i++)
            ok = ok || strcmp(names[i], word) == 0;
        const char *near = ok ? NULL : lf_nearest(word, names, 8);
        if (!ok)
            return lf_fail(
                err, LF_EINVAL, "--state: there is no state \"%s\"%s%s%s", word,
                near != NULL ? "; did you mean " : "",
                near != NULL
                    ? near
                    : "; waiting, pending, running, done, failed, cancelled, purged, unknown",
                near != NULL ? "?" : "");
    }
    return 0;
}

/* What the ledger knows, read as it is. Nothing is lost without it but time, and tags. */
static void ask_ledger(struct filter *f, const lf_project *p)
{
    lf_err e = LF_ERR_INIT;
    lf_ledger *l = lf_ask_open(p, &e);
    json_t *rows = l != NULL ? lf_ledger_tags(l, NULL, &e) : NULL;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *r = json_array_get(rows, i);
        const char *run = json_string_value(json_object_get(r, "run"));
        if (json_object_get(f->tags, run) == NULL)
            json_object_set_new(f->tags, run, json_array());
        json_array_append(json_object_get(f->tags, run), json_object_get(r, "tag"));
    }
    json_decref(rows);
    rows = l != NULL && f->states != NULL ? lf_ledger_runs(l, NULL, &e) : NULL;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *r = json_array_get(rows, i);
        const char *state = json_string_value(json_object_get(r, "state"));
        if (in_list("done,failed,cancelled", state))
            json_object_set(f->known, json_string_value(json_object_get(r, "run")),
                            json_object_get(r, "state"));
    }
    json_decref(rows);
    lf_ledger_close(l);
}

/* May the run's state be taken from the ledger to pass it over? Not when somebody has touched it
 * lately. */
static bool passed_over(const struct filter *f, const lf_run *r)
{
    char hint[PATH_MAX];
    const char *state = json_string_value(json_object_get(f->known, r->id));
    if (f->tag != NULL) {
        json_t *tags = json_object_get(f->tags, r->id);
        bool has = false;
        for (size_t i = 0; i < json_array_size(tags); i++)
            has = has || strcmp(json_string_value(json_array_get(tags, i)), f->tag) == 0;
        if (!has)
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

static void add_run_texts(json_t *o, const struct filter *f)
{
    char when[21], b[48];
    json_t *stages = json_object_get(o, "stages"),
           *tags = json_object_get(f->tags, json_string_value(json_object_get(o, "run")));
    size_t done = 0;
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const char *st = json_string_value(json_object_get(json_array_get(stages, i), "state"));
        done += strcmp(st, "done") == 0;
    }
    snprintf(b, sizeof b, "%zu/%zu", done, json_array_size(stages));
    json_object_set_new(o, "stages_text", json_string(b));
    json_object_set_new(
        o, "created_text",
        json_string(lf_time_iso(when, json_number_value(json_object_get(o, "created")))));
    if (tags == NULL)
        return;
    lf_buf text;
    lf_buf_init(&text);
    for (size_t i = 0; i < json_array_size(tags); i++)
        lf_buf_addf(&text, "%s%s", i > 0 ? "," : "", json_string_value(json_array_get(tags, i)));
    if (lf_buf_check(&text, NULL) == 0)
        json_object_set_new(o, "tags_text", json_string(text.data));
    json_object_set(o, "tags", tags);
    lf_buf_fini(&text);
}

static int collect(json_t *rows, const struct filter *f, lf_run_list *l, size_t max, lf_err *err)
{
    for (size_t i = 0; i < l->n && (max == 0 || json_array_size(rows) < max); i++) {
        lf_run_view v;
        if (passed_over(f, &l->runs[i]) || lf_run_load(&l->runs[i], NULL) < 0)
            continue; /* the latter: a submit that died before it had frozen anything */
        int rc = lf_view_load(&v, &l->runs[i], err);
        if (rc == 0)
            rc = lf_sched_overlay(&v, false, err);
        if (rc < 0)
            return rc;
        json_t *o = lf_describe_run(&v);
        lf_view_fini(&v);
        if (o == NULL)
            return lf_fail(err, LF_ENOMEM, "out of memory");
        add_run_texts(o, f);
        if (f->states == NULL || in_list(f->states, json_string_value(json_object_get(o, "state"))))
            json_array_append(rows, o);
        json_decref(o);
    }
    return 0;
}

static int status_all(lf_cmd *c, const lf_project *p, lf_err *err)
{
    const char *since = lf_optset_str(c->opts, "since");
    struct filter f = {.states = lf_optset_str(c->opts, "state"),
                       .tag = lf_optset_str(c->opts, "tag"),
                       .tags = json_object(),
                       .known = json_object()};
    lf_run_list l = {NULL, 0, 0};
    json_t *rows = json_array();
    int rc = since != NULL ? parse_since(&f.since, since, err) : 0;
    if (rc == 0 && f.states != NULL)
        rc = check_states(f.states, err);
    if (rc == 0)
        rc = lf_run_list_load(&l, p, err);
    if (rc == 0) {
        ask_ledger(&f, p);
        rc = collect(rows, &f, &l, (size_t)lf_optset_int(c->opts, "lines"), err);
    }
    lf_run_list_fini(&l);
    if (rc == 0 && c->json)
        rc = lf_cmd_print_json(json_pack("{s:O}", "runs", rows), err);
    else if (rc == 0)
        rc = lf_table_show(&run_table, rows, lf_optset_str(c->opts, "columns"), err);
    json_decref(rows);
    json_decref(f.tags);
    json_decref(f.known);
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
