/* SPDX-License-Identifier: Apache-2.0
 *
 * status: the stages of a run by evidence. Works from the run's directory alone, so it is right even when the ledger
 * cannot be opened.
 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/str.h"
#include "engine/base/sys.h"
#include "flow/classify.h"
#include "flow/cmds.h"
#include "flow/describe.h"

static const lf_opt status_rows[] = {
    LF_CMD_COMMON, LF_CMD_COLUMNS,
    LF_CMD_ROW("all", LF_OPT_BOOL, 0, "no", NULL, "list every run of the project instead"),
    LF_CMD_ROW("lines", LF_OPT_INT, 0, "20", NULL, "with --all: at most this many runs, 0 = all"),
};
LF_CMD_TABLE(status, "state of a run and its stages", status_rows);

static const lf_column stage_cols[] = {
    {"name", "STAGE", false, false},       {"kind", "KIND", false, false},     {"state", "STATE", false, false},
    {"attempts", "TRY", true, false},      {"done_text", "STEP", true, false}, {"time_text", "TIME", true, false},
    {"reason", "REASON", false, false},    {"epoch", "EPOCH", true, true},     {"class", "CLASS", false, true},
    {"dir", "DIRECTORY", false, true},     {"spec_id", "SPEC", false, true},   {"step", "STEP", true, true},
    {"steps", "STEPS", true, true},
};
static const lf_column run_cols[] = {
    {"run", "RUN", false, false},          {"name", "NAME", false, false}, {"state", "STATE", false, false},
    {"created_text", "CREATED", false, false}, {"rev", "REV", true, true}, {"dir", "DIRECTORY", false, true},
};

static void add_texts(json_t *stages)
{
    char b[64], d[32];
    for (size_t i = 0; i < json_array_size(stages); i++) {
        json_t *s = json_array_get(stages, i), *step = json_object_get(s, "step");
        json_t *steps = json_object_get(s, "steps"), *dur = json_object_get(s, "duration_s");
        if (step != NULL && steps != NULL)
            snprintf(b, sizeof b, "%lld/%lld", (long long)json_integer_value(step), (long long)json_integer_value(steps));
        else if (step != NULL)
            snprintf(b, sizeof b, "%lld", (long long)json_integer_value(step));
        if (step != NULL)
            json_object_set_new(s, "done_text", json_string(b));
        if (dur != NULL)
            json_object_set_new(s, "time_text", json_string(lf_fmt_duration(d, sizeof d, json_number_value(dur))));
    }
}

static void print_failures(const json_t *stages)
{
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const json_t *s = json_array_get(stages, i);
        json_t *log = json_object_get(s, "log");
        const char *state = json_string_value(json_object_get(s, "state"));
        if (state == NULL || strcmp(state, "failed") != 0)
            continue;
        lf_say("\n%s failed", json_string_value(json_object_get(s, "name")));
        const char *cls = json_string_value(json_object_get(s, "class"));
        printf(" (%s); the last lines that matter:\n", cls != NULL ? cls : "unknown");
        for (size_t k = 0; k < json_array_size(log); k++) {
            fputs("  | ", stdout);
            const char *line = json_string_value(json_array_get(log, k));
            lf_print_safe(line != NULL ? line : "");
            putchar('\n');
        }
        if (cls != NULL && lf_class_advice(cls)[0] != '\0')
            printf("  %s\n", lf_class_advice(cls));
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
    add_texts(stages);
    if (cols == NULL)
        lf_cmd_print_head(o);
    rc = lf_table_print(stages, stage_cols, sizeof stage_cols / sizeof stage_cols[0], cols, err);
    if (rc == 0 && cols == NULL)
        print_failures(stages);
    json_decref(o);
    return rc;
}

static int status_all(lf_cmd *c, const lf_project *p, lf_err *err)
{
    lf_run_list l;
    int rc = lf_run_list_load(&l, p, err);
    if (rc < 0)
        return rc;
    json_t *rows = json_array();
    size_t max = (size_t)lf_optset_int(c->opts, "lines");
    for (size_t i = 0; i < l.n && (max == 0 || json_array_size(rows) < max); i++) {
        lf_run_view v;
        if (lf_run_load(&l.runs[i], NULL) < 0)
            continue; /* a submit that died before it had frozen anything */
        rc = lf_view_load(&v, &l.runs[i], err);
        if (rc < 0)
            break;
        json_t *o = lf_describe_run(&v);
        char when[21];
        json_object_set_new(o, "created_text",
                            json_string(lf_time_iso(when, json_number_value(json_object_get(o, "created")))));
        json_array_append_new(rows, o);
        lf_view_fini(&v);
    }
    lf_run_list_fini(&l);
    if (rc == 0 && c->json)
        return lf_cmd_print_json(json_pack("{s:o}", "runs", rows), err);
    if (rc == 0)
        rc = lf_table_print(rows, run_cols, sizeof run_cols / sizeof run_cols[0], lf_optset_str(c->opts, "columns"), err);
    json_decref(rows);
    return rc;
}

static int run_status(lf_cmd *c, lf_err *err)
{
    lf_project p;
    int rc = lf_cmd_project(&p, c, err);
    if (rc < 0)
        return rc;
    rc = lf_optset_bool(c->opts, "all") ? status_all(c, &p, err) : status_one(c, &p, err);
    lf_project_fini(&p);
    return rc;
}

const lf_cmd_def lf_cmd_status = {.table = &status_table, .words = "[RUN]", .max_words = 1, .run = run_status};
